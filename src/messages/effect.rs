//! What an actor asks to be done.

use super::actions::ActionsRequest;
use super::kube::KubeRequest;
use super::object::ObjectRef;
use crate::clock::Timestamp;

/// One thing that a step asks its shell to do. `Tag` comes back with the result, `Report` goes
/// to the parent, `Directive` concerns a child.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<Tag, Report, Directive> {
    /// Sends a request to the API server. Effects run concurrently, in no order; each ends in
    /// one [`super::Input::Kube`] with the same tag.
    Kube(Tag, KubeRequest),
    /// Calls the Actions service. Each ends in one [`super::Input::Actions`].
    Actions(Tag, ActionsRequest),
    /// Hands the removal of a registered runner to the unregistrar, which tries until the
    /// service agrees: it retries what is worth it and knows "not found" as success. Ends in one
    /// [`super::Input::Actions`] with `Done`, or with `JobStillRunning` each time the
    /// service refuses; then the actor may ask again.
    Unregister(Tag, ActionsRequest),
    /// Asks for an [`super::Input::Tick`] at that time at the latest. The shell keeps the
    /// earliest of all wishes and forgets it when it fires, so a step that still waits for
    /// something asks again on every tick.
    WakeAt(Timestamp),
    /// Publishes a Kubernetes Event.
    Event(EventNote),
    /// Counts something for the metrics, beside what the shell counts of itself.
    Count(Tally),
    /// Tells the parent.
    Report(Report),
    /// Makes a child, or tells it something.
    Child(Directive),
    /// Ends this actor. It comes last.
    Stop,
}

/// Something that a decision counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tally {
    /// A listener's pod that has to be made again.
    ListenerRecreation {
        /// Why: the last field of the path where it had drifted, or another word of a bounded
        /// set.
        reason: &'static str,
    },
}

/// What a Kubernetes Event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventNote {
    /// The object it is about.
    pub about: ObjectRef,
    /// That object's uid, without which `kubectl describe` does not find it.
    pub uid: String,
    /// Whether something is wrong.
    pub severity: EventSeverity,
    /// One word in UpperCamelCase: why the event is published.
    pub reason: &'static str,
    /// A sentence for a person.
    pub message: String,
}

/// Whether something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSeverity {
    /// Nothing is wrong.
    Normal,
    /// Somebody should look.
    Warning,
}

/// Of an actor that has no children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDirective {}
