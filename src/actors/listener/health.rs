//! How a listener's pod is, judged by its container `listener`: a sidecar must not hide a dead
//! listener, and a pod that still starts is nobody's business.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};

use crate::actors::last_words::presentable;
use crate::api::constants::LISTENER_CONTAINER;
use crate::clock::Timestamp;

/// How a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It is being deleted; its grace ends at that time.
    Deleting(Timestamp),
    /// It will not run any more.
    Ended {
        /// One word.
        reason: String,
        /// A sentence.
        message: String,
    },
    /// It does not run yet, for that reason if one is known.
    Starting(Option<(String, String)>),
    /// The listener runs, since then if that is known.
    Running(Option<Timestamp>),
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
    let state = listener_state(status);
    if let Some(ended) = ended(status, state) {
        return ended;
    }
    match state.and_then(|state| state.running.as_ref()) {
        Some(running) => Health::Running(running.started_at.as_ref().map(|time| time.0)),
        None => Health::Starting(waits_for(status, state)),
    }
}

/// Since when the listener has been running, as far as that is known.
#[must_use]
pub fn running_since(pod: &Pod) -> Option<Timestamp> {
    match health(pod) {
        Health::Running(since) => since,
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

fn listener_state(status: &PodStatus) -> Option<&ContainerState> {
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let is_listener = |one: &&ContainerStatus| one.name == LISTENER_CONTAINER;
    containers.iter().find(is_listener)?.state.as_ref()
}

fn is_over(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"))
}

fn ended(status: &PodStatus, state: Option<&ContainerState>) -> Option<Health> {
    if let Some(terminated) = state.and_then(|state| state.terminated.as_ref()) {
        let reason = terminated.reason.clone().filter(|word| !word.is_empty());
        let said = terminated.message.as_deref().map(presentable);
        let tail = said.filter(|text| !text.is_empty());
        let code = terminated.exit_code;
        return Some(Health::Ended {
            reason: reason.unwrap_or_else(|| "Terminated".to_owned()),
            message: tail.map_or_else(
                || format!("the listener ended with exit code {code}"),
                |tail| format!("the listener ended with exit code {code}: {tail}"),
            ),
        });
    }
    let lost = status.reason.as_deref() == Some("NodeLost");
    if !is_over(status) && !lost {
        return None;
    }
    let phase = status.phase.as_deref().unwrap_or("Failed");
    let reason = status.reason.clone().unwrap_or_else(|| phase.to_owned());
    let said = status.message.clone().filter(|text| !text.is_empty());
    let message = said
        .or_else(|| failed_init_container(status))
        .unwrap_or_else(|| format!("the pod is {phase}"));
    Some(Health::Ended { reason, message })
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
fn waits_for(status: &PodStatus, state: Option<&ContainerState>) -> Option<(String, String)> {
    let waiting = state.and_then(|state| state.waiting.as_ref());
    if let Some(waiting) = waiting
        && let Some(reason) = &waiting.reason
        && reason != "ContainerCreating"
        && reason != "PodInitializing"
    {
        let message = waiting.message.clone();
        return Some((
            reason.clone(),
            message.unwrap_or_else(|| "the listener waits".to_owned()),
        ));
    }
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let scheduled = conditions.iter().find(|one| one.type_ == "PodScheduled")?;
    (scheduled.status == "False").then(|| {
        let reason = scheduled.reason.clone();
        let message = scheduled.message.clone();
        (
            reason.unwrap_or_else(|| "Unschedulable".to_owned()),
            message.unwrap_or_else(|| "no node takes the listener's pod".to_owned()),
        )
    })
}
