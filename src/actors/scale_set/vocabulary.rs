//! What a scale set says and hears.

use std::sync::Arc;

use crate::actors::core::cached::Verb;
use crate::actors::{Coalesce, Topic};
use crate::api::MissingFields;
use crate::messages::{ListenerReport, RunnerCounts, RunnerSetReport};

/// Names an effect of a scale set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScaleSetTag {
    /// A request about the AutoscalingRunnerSet itself.
    ScaleSet(Verb),
    /// A write of its status.
    Status,
    /// A request about the AutoscalingListener of that name.
    Listener(String, Verb),
    /// A request about the EphemeralRunnerSet.
    RunnerSet(Verb),
    /// A request about the EphemeralRunnerSet of another name.
    FormerSet(String, Verb),
    /// The search for runners of that one.
    FormerRunners(String),
    /// The call of that number on the way to a registration.
    Registration(u64),
    /// The deletion of the scale set in the Actions service.
    Deregistration,
    /// A request about the chart's protected object at that place in the list.
    Protected(usize),
}

/// What the controller tells a scale set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScaleSetCommand {
    /// All objects that existed at the start were delivered. Until then nothing is decided.
    Synced,
    /// These have the same scale set in the service and are not being deleted.
    Shared(Vec<Sharer>),
    /// The cluster's schemas lack these fields of ours, or none.
    FieldsMissing(Arc<MissingFields>),
}

/// Another AutoscalingRunnerSet that says that it has the same scale set in the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharer {
    /// Its name, as `namespace/name`.
    pub name: String,
    /// Whether the service has shown the scale set to its credentials. Until then it may as well
    /// have made the id up.
    pub proven: bool,
}

impl Topic for ScaleSetCommand {
    fn topic(&self) -> &'static str {
        match self {
            // told before the other: what may be deleted in the service depends on it
            Self::Shared(_) => "shared",
            Self::FieldsMissing(_) => "fields missing",
            Self::Synced => "synced",
        }
    }
    fn holds(&self) -> bool {
        true
    }
}

/// What the children of a scale set tell it.
#[derive(Clone, Debug, PartialEq)]
pub enum ChildReport {
    /// A listener.
    Listener(ListenerReport),
    /// The runner set.
    RunnerSet(RunnerSetReport),
}

impl Coalesce for ChildReport {
    fn subject(&self) -> String {
        match self {
            Self::Listener(report) => format!("listener {}", report.subject()),
            Self::RunnerSet(report) => report.subject(),
        }
    }

    fn absorb(&mut self, older: &Self) {
        match (self, older) {
            (Self::Listener(report), Self::Listener(older)) => report.absorb(older),
            (Self::RunnerSet(report), Self::RunnerSet(older)) => report.absorb(older),
            _ => {}
        }
    }
}

/// What a scale set tells the controller.
#[derive(Clone, Debug, PartialEq)]
pub enum ScaleSetReport {
    /// What the controller has to know about it; comes when it has changed.
    Summary(ScaleSetSummary),
    /// The AutoscalingRunnerSet and all below it are gone, and the actor has stopped.
    Gone,
}

/// What the controller has to know about a scale set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleSetSummary {
    /// How many runners there are, by state.
    pub counts: RunnerCounts,
    /// Whether its listener runs.
    pub listener_running: bool,
    /// Names the scale set in the service, once it is registered: two with the same name are
    /// one.
    pub identity: Option<String>,
    /// Whether the service has shown that scale set to it.
    pub proven: bool,
    /// Whether it is being deleted.
    pub going: bool,
    /// Labels of its gauges.
    pub labels: GaugeLabels,
}

/// Labels of the `gha_controller_*` gauges of a scale set.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GaugeLabels {
    /// Name of the AutoscalingRunnerSet.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Repository in the config URL.
    pub repository: String,
    /// Organization or owner in the config URL.
    pub organization: String,
    /// Enterprise in the config URL.
    pub enterprise: String,
}
