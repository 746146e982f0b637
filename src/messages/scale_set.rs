//! What the actors of one scale set say to each other.
//!
//! ```text
//! ScaleSet ── ListenerDirective ─► Listener        ListenerReport ─► ScaleSet
//!          ── RunnerSetDirective ► RunnerSet      RunnerSetReport ─► ScaleSet
//! RunnerSet ── RunnerDirective ──► Runner            RunnerReport ─► RunnerSet
//! ```

use std::sync::Arc;

use super::object::{Object, ObjectRef};
use super::reason::Reason;
use crate::api::{AutoscalingListener, EphemeralRunner, EphemeralRunnerSet};
use crate::clock::Timestamp;

/// What a scale set wants done with its children.
#[derive(Clone, Debug, PartialEq)]
pub enum ScaleSetDirective {
    /// About the listener under this name of AutoscalingListener (in the controller's namespace).
    Listener {
        /// Name of the AutoscalingListener.
        name: String,
        /// What.
        directive: ListenerDirective,
    },
    /// About the runner set, which has the scale set's name and namespace.
    RunnerSet(RunnerSetDirective),
}

/// What a scale set wants of a listener.
#[derive(Clone, Debug, PartialEq)]
pub enum ListenerDirective {
    /// Makes the actor unless it exists, and hands it the object.
    Observe(Arc<AutoscalingListener>),
    /// Hands it an object or the news that one is gone, as for [`RunnerSetDirective::Deliver`].
    Gone {
        /// Which.
        object: ObjectRef,
        /// The uid it had.
        uid: String,
    },
    /// Tells it something.
    Tell(ListenerCommand),
}

/// What a scale set tells a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerCommand {
    /// Sources that cannot be watched may have changed: read them again.
    RefreshSources,
    /// The AutoscalingRunnerSet is gone: delete the AutoscalingListener.
    Orphaned,
}

/// What a listener tells its scale set: how its AutoscalingListener and pod are now.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerReport {
    /// Name of the AutoscalingListener.
    pub name: String,
    /// The newest copy; `None` when it is gone, and then the actor has stopped.
    pub listener: Option<Arc<AutoscalingListener>>,
    /// Whether its pod exists, alive or not, or may exist.
    pub has_pod: bool,
    /// Whether the listener container runs and the pod was built from the current config.
    pub ready: bool,
    /// Why it is not ready, or why the pod was last made again.
    pub reason: Option<Reason>,
    /// What a person has to mend in what its Secrets are made from, whether it runs or not.
    pub problem: Option<Reason>,
    /// Names the last end of a listener that says that the Actions service does not know the scale
    /// set, or makes it likely: whether that is so has to be found out.
    pub missed_scale_set: Option<String>,
}

/// What a scale set wants of its runner set.
#[derive(Clone, Debug, PartialEq)]
pub enum RunnerSetDirective {
    /// Makes the actor unless it exists, and hands it the object: the EphemeralRunnerSet
    /// itself, or one of its EphemeralRunners that no actor is known for.
    Deliver(Object),
    /// Hands it the news that an object is gone.
    Gone {
        /// Which.
        object: ObjectRef,
        /// The uid it had.
        uid: String,
    },
}

/// What a runner set tells its scale set.
#[derive(Clone, Debug, PartialEq)]
pub struct RunnerSetReport {
    /// The newest copy; `None` when it is gone. The actor stops when its runners are gone too.
    pub set: Option<Arc<EphemeralRunnerSet>>,
    /// How many runners there are, by state.
    pub counts: RunnerCounts,
    /// What keeps runners from being made or from getting ready.
    pub problem: Option<Reason>,
    /// A runner that was rejected for its version under the applied revision.
    pub rejected: Option<Rejected>,
}

/// A runner that the Actions service rejected for its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Name of the EphemeralRunner.
    pub runner: String,
    /// What it left behind: its exit code and last words.
    pub message: String,
}

impl RunnerSetReport {
    /// Whether this is the last report: the set and all its runners are gone, and the actor has
    /// stopped.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.set.is_none() && self.counts == RunnerCounts::default()
    }
}

/// Runners by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunnerCounts {
    /// Without a job so far.
    pub pending: i64,
    /// With a job.
    pub running: i64,
    /// Failed without having had a job.
    pub failed: i64,
    /// Ended, waiting to be counted.
    pub finished: i64,
    /// Rejected for their version.
    pub outdated: i64,
    /// Being deleted.
    pub deleting: i64,
}

/// What a runner set wants of a runner.
#[derive(Clone, Debug, PartialEq)]
pub enum RunnerDirective {
    /// Makes the actor for a runner that was just created by us: it has no Secret and no pod.
    Created(Arc<EphemeralRunner>),
    /// Makes the actor, unless it exists, for a runner found on the API server, and hands it the
    /// object.
    Observe(Arc<EphemeralRunner>),
    /// Tells it something.
    Tell {
        /// Name of the EphemeralRunner.
        name: String,
        /// What.
        command: RunnerCommand,
    },
}

/// What a runner set tells a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunnerCommand {
    /// Have the Actions service remove your registration and, if it agrees, delete yourself; if
    /// it has given you a job or cannot be asked, stay and report [`RunnerReport::refused`]. A runner whose
    /// id nobody knows waits for it as long as the step that asked allows.
    Release,
    /// Delete yourself: you are finished, failed, stale, or rejected.
    Delete,
    /// There may be room now where a quota left none: try at once.
    TryAgain,
}

/// What a runner tells its runner set, whenever any of it has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct RunnerReport {
    /// Name of the EphemeralRunner.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// When it was created.
    pub created: Timestamp,
    /// Patch id it was made under; 0 when it carries none.
    pub patch_id: i64,
    /// Revision it was made from; 0 when it carries none.
    pub revision: i64,
    /// Where it stands.
    pub state: RunnerState,
    /// Whether a job was recorded on it.
    pub has_job: bool,
    /// When its job was recorded as finished, if it was.
    pub job_finished: Option<Timestamp>,
    /// Whether it has a deletionTimestamp.
    pub deleting: bool,
    /// Whether its pod or its Secret may still exist. A deleting runner without either only
    /// waits for its deregistration, and does not count as capacity. A pod that is [`lost`] counts
    /// no longer once the service has taken the registration back.
    ///
    /// [`lost`]: Self::lost
    pub holds_resources: bool,
    /// Whether its pod should have gone by now, and hangs: its node may be lost. `reason` says so
    /// then, whatever else is the matter.
    pub lost: bool,
    /// How far it is on its way to a pod.
    pub launch: Launch,
    /// Whether its id in the Actions service is on record.
    pub registered: bool,
    /// Whether its pod is ready.
    pub ready: bool,
    /// The answer to [`RunnerCommand::Release`] of a runner that stays, once.
    pub refused: Option<Refusal>,
    /// Why it failed, was rejected, or does not get ready.
    pub reason: Option<Reason>,
}

/// How far a runner is on its way to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// It has none so far.
    UnderWay,
    /// A quota leaves no room for its pod or its Secret.
    Crowded,
    /// The API server has accepted its pod.
    Done,
}

/// Why a runner that was to be released stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The service has given it a job.
    Busy,
    /// The service could not be asked, for want of usable credentials.
    NotAsked(Reason),
}

/// Where a runner stands, seen from its runner set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunnerState {
    /// Without a job so far.
    Pending,
    /// With a job.
    Running,
    /// Ended by itself with exit code 0, or in any way after a job was recorded.
    Finished,
    /// Ended in any other way, without a job.
    Failed,
    /// Rejected for its version (exit code 7).
    Outdated,
    /// The EphemeralRunner is gone, and the actor has stopped.
    Gone,
}
