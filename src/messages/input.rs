//! What reaches an actor.

use super::actions::{ActionsAnswer, ActionsError};
use super::kube::{KubeAnswer, KubeError};
use super::object::{Object, ObjectRef};

/// One message to an actor, or the result of an earlier effect of its own. `Tag` names that
/// effect, `Command` is what its parent says, `Report` what its children say.
///
/// Messages are level, not edge: the same object may come twice, an intermediate one may be
/// missing, and after a restart all come again.
#[derive(Clone, Debug)]
pub enum Input<Tag, Command, Report> {
    /// The newest state of an object, as a watch or the parent showed it.
    Observed(Object),
    /// An object is gone from the API server.
    Gone {
        /// Which.
        object: ObjectRef,
        /// The uid it had; tells it from a successor of the same name.
        uid: String,
    },
    /// A request to the API server ended.
    Kube(Tag, Result<KubeAnswer, KubeError>),
    /// A call to the Actions service ended.
    Actions(Tag, Result<ActionsAnswer, ActionsError>),
    /// The parent says something.
    Command(Command),
    /// A child says something.
    Report(Report),
    /// Time has come for something that the actor waits for; which, it finds out itself.
    Tick,
}

/// Of an actor that has no children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoReport {}
