//! How a listener's pod is, judged by its container `listener`: a sidecar must not hide a dead
//! listener, and a pod that still starts is nobody's business.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition, PodStatus,
};

use crate::actors::core::redact::redact_for_display;
use crate::api::constants::{LISTENER_CONTAINER, SCALE_SET_GONE_EXIT_CODE};
use crate::clock::Timestamp;
use crate::messages::Reason;

/// How a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It is being deleted; its grace ends at that time.
    Deleting(Timestamp),
    /// It will not run any more, or is not to be started again by its node.
    Ended(End),
    /// It does not run yet, for that reason if one is known.
    Starting(Option<Reason>),
    /// The listener runs.
    Running {
        /// Since when, if that is known.
        since: Option<Timestamp>,
        /// How it ended before its node started it again in the same pod
        /// (`restartPolicy: Always`), if it did.
        before: Option<Restarted>,
    },
}

/// How a listener ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Whose doing it was.
    pub cause: Cause,
}

/// Whose doing the end of a listener was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its own, or nobody knows.
    Crash,
    /// That of somebody who does not mind the listener, but wants it elsewhere or anew: its pod
    /// was deleted, evicted or preempted, or its node went.
    Disruption,
    /// It said that the Actions service does not know its scale set.
    ScaleSetGone,
}

/// An end after which the node started the listener again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restarted {
    /// How it ended.
    pub end: End,
    /// As the how manieth end in this pod.
    pub count: u32,
}

impl End {
    /// A pod that is being deleted, or is gone, and not by us.
    #[must_use]
    pub fn deleted() -> Self {
        Self {
            reason: "PodDeleted".to_owned(),
            message: "the pod was deleted".to_owned(),
            cause: Cause::Disruption,
        }
    }
}

/// How the pod is.
#[must_use]
pub fn health(pod: &Pod) -> Health {
    if let Some(time) = &pod.metadata.deletion_timestamp {
        return Health::Deleting(time.0);
    }
    let Some(status) = &pod.status else {
        return Health::Starting(None);
    };
    let listener = listener_status(status);
    if let Some(end) = end(status, listener) {
        return Health::Ended(end);
    }
    let state = listener.and_then(|listener| listener.state.as_ref());
    match state.and_then(|state| state.running.as_ref()) {
        Some(running) => Health::Running {
            since: running.started_at.as_ref().map(|time| time.0),
            before: listener.and_then(restarted),
        },
        None => Health::Starting(waits_for(status, state)),
    }
}

/// Since when the listener has been running, as far as that is known.
#[must_use]
pub fn running_since(pod: &Pod) -> Option<Timestamp> {
    match health(pod) {
        Health::Running { since, .. } => since,
        _ => None,
    }
}

/// Whether no container of the pod runs, so that ending it needs no grace.
#[must_use]
pub fn nothing_runs(pod: &Pod) -> bool {
    let Some(status) = &pod.status else {
        return pod
            .spec
            .as_ref()
            .is_none_or(|spec| spec.node_name.is_none());
    };
    if is_over(status) {
        return true;
    }
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    !containers.is_empty()
        && containers.iter().all(|container| {
            let state = container.state.as_ref();
            state.is_some_and(|state| state.terminated.is_some())
        })
}

/// Whether the listener has been running in the pod at some time.
#[must_use]
pub fn has_run(pod: &Pod) -> bool {
    let listener = pod.status.as_ref().and_then(listener_status);
    listener.is_some_and(|listener| {
        let began = |state: &ContainerState| state.running.is_some() || state.terminated.is_some();
        let states = [&listener.state, &listener.last_state];
        states.into_iter().flatten().any(began)
    })
}

fn listener_status(status: &PodStatus) -> Option<&ContainerStatus> {
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    containers.iter().find(|one| one.name == LISTENER_CONTAINER)
}

fn last_end(listener: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    listener.last_state.as_ref()?.terminated.as_ref()
}

/// How a listener that runs ended before.
fn restarted(listener: &ContainerStatus) -> Option<Restarted> {
    Some(Restarted {
        end: end_of_container(last_end(listener)?),
        count: u32::try_from(listener.restart_count).unwrap_or(0),
    })
}

fn is_over(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"))
}

/// How it ended, if it did. One that its node is about to start again has ended too: with what it
/// was started with before, when something else may be wanted by now.
fn end(status: &PodStatus, listener: Option<&ContainerStatus>) -> Option<End> {
    let state = listener.and_then(|listener| listener.state.as_ref());
    let runs = state.is_some_and(|state| state.running.is_some());
    let terminated = state
        .and_then(|state| state.terminated.as_ref())
        .or_else(|| listener.and_then(last_end).filter(|_| !runs));
    let lost = status.reason.as_deref() == Some("NodeLost");
    let own = terminated.map(end_of_container);
    if let Some(end) = &own
        && end.cause == Cause::ScaleSetGone
    {
        return own;
    }
    if (is_over(status) || lost) && is_disrupted(status) {
        return Some(end_of_pod(status, Cause::Disruption));
    }
    own.or_else(|| is_over(status).then(|| end_of_pod(status, Cause::Crash)))
}

/// Whether the pod ended for what happened to its node or to make room for others.
fn is_disrupted(status: &PodStatus) -> bool {
    const REASONS: [&str; 5] = [
        "Evicted",
        "NodeLost",
        "NodeShutdown",
        "Shutdown",
        "Preempting",
    ];
    let reason = status.reason.as_deref();
    reason.is_some_and(|reason| REASONS.contains(&reason)) || disruption(status).is_some()
}

fn disruption(status: &PodStatus) -> Option<&PodCondition> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let says_so = |one: &&PodCondition| one.type_ == "DisruptionTarget" && one.status == "True";
    conditions.iter().find(says_so)
}

fn end_of_container(terminated: &ContainerStateTerminated) -> End {
    let code = terminated.exit_code;
    if code == i32::from(SCALE_SET_GONE_EXIT_CODE) {
        return End {
            reason: "ScaleSetGone".to_owned(),
            message: "the Actions service told the listener that its scale set does not exist"
                .to_owned(),
            cause: Cause::ScaleSetGone,
        };
    }
    let reason = terminated.reason.clone().filter(|word| !word.is_empty());
    let said = terminated.message.as_deref().map(redact_for_display);
    let tail = said.filter(|text| !text.is_empty());
    End {
        reason: reason.unwrap_or_else(|| "Terminated".to_owned()),
        message: tail.map_or_else(
            || format!("the listener ended with exit code {code}"),
            |tail| format!("the listener ended with exit code {code}: {tail}"),
        ),
        cause: Cause::Crash,
    }
}

fn end_of_pod(status: &PodStatus, cause: Cause) -> End {
    let phase = status.phase.as_deref().unwrap_or("Failed");
    let disruption = disruption(status).and_then(|condition| condition.reason.clone());
    let reason = status.reason.clone().or(disruption);
    let reason = reason.unwrap_or_else(|| phase.to_owned());
    let said = status.message.clone().filter(|text| !text.is_empty());
    let message = said
        .or_else(|| failed_init_container(status))
        .unwrap_or_else(|| format!("the pod is {phase}"));
    End {
        reason,
        message,
        cause,
    }
}

fn failed_init_container(status: &PodStatus) -> Option<String> {
    let containers = status
        .init_container_statuses
        .as_deref()
        .unwrap_or_default();
    containers.iter().find_map(|container| {
        let terminated = container.state.as_ref()?.terminated.as_ref()?;
        let code = terminated.exit_code;
        (code != 0).then(|| {
            let name = &container.name;
            format!("init container {name} ended with exit code {code}")
        })
    })
}

/// What a pod that starts is waiting for, where that is more than a matter of seconds.
fn waits_for(status: &PodStatus, state: Option<&ContainerState>) -> Option<Reason> {
    let waiting = state.and_then(|state| state.waiting.as_ref());
    if let Some(waiting) = waiting
        && let Some(reason) = &waiting.reason
        && reason != "ContainerCreating"
        && reason != "PodInitializing"
    {
        let message = waiting.message.clone();
        return Some(Reason::new(
            reason.clone(),
            message.unwrap_or_else(|| "the listener waits".to_owned()),
        ));
    }
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let scheduled = conditions.iter().find(|one| one.type_ == "PodScheduled")?;
    (scheduled.status == "False").then(|| {
        let reason = scheduled.reason.clone();
        let message = scheduled.message.clone();
        Reason::new(
            reason.unwrap_or_else(|| "Unschedulable".to_owned()),
            message.unwrap_or_else(|| "no node takes the listener's pod".to_owned()),
        )
    })
}
