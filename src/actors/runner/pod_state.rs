//! How a runner's pod is doing: a pure reading of one copy of it.
//!
//! The container `runner` decides. What the kubelet and others say of the pod as a whole
//! counts where that container says nothing.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::actors::core::redact::redact_for_display;
use crate::api::constants::{EXIT_CODE_OUTDATED, RUNNER_CONTAINER};
use crate::clock::{Timestamp, after};
use crate::messages::{Reason, codes};

/// How long, in seconds, a pod may wait for a node before that is worth a word: a cluster that
/// grows on demand takes a moment.
const NODE_PATIENCE: i64 = 60;
/// For how many seconds a pod may be there after the end of its grace period: the kubelet kills what
/// is left then, and says so.
const LEAVING: i64 = 5;
/// How long, in seconds, a scheduled pod may go without starting its runner, and how long an
/// image may refuse to be pulled.
pub const START_PATIENCE: i64 = 600;

/// The image is not there, or not now: the kubelet goes on trying.
const IMAGE_PULL: &str = "ImagePullBackOff";
/// No further try gets the image.
const HOPELESS_IMAGE: [&str; 2] = ["InvalidImageName", "ErrImageNeverPull"];

/// How a runner ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With exit code 0.
    Succeeded,
    /// With the exit code that says that the service rejected its version.
    Outdated(Reason),
    /// In any other way.
    Failed(Reason),
}

/// What one copy of a pod says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodState {
    /// How the runner ended, if it did.
    pub end: Option<End>,
    /// Whether that is presumed: it has not been seen to start, and nothing shows that it will not.
    pub presumed: bool,
    /// Whether another pod of this runner would end in the same way.
    pub permanent: bool,
    /// Whether the runner may run a job, now or later. Only what the pod shows for good rules that
    /// out: that no node or container does, at the moment, does not.
    pub can_run: bool,
    /// Whether the runner's container runs.
    pub runs: bool,
    /// Whether the pod is ready.
    pub ready: bool,
    /// Whether nothing of the pod runs or may be about to: it can go without grace.
    pub is_dead: bool,
    /// Why the runner has not started, if something is in its way.
    pub trouble: Option<Reason>,
    /// When that counts as a failure.
    pub gives_up: Option<Timestamp>,
    /// When it counts as trouble that no node takes the pod.
    pub complains: Option<Timestamp>,
}

/// Reads a pod as it is at `now`.
#[must_use]
pub fn judge(pod: &Pod, now: Timestamp) -> PodState {
    let empty = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&empty);
    let runner = runner_status(status);
    let state = runner.and_then(|runner| runner.state.as_ref());
    let runs = !is_over(status) && state.is_some_and(|state| state.running.is_some());
    let unplaced = unplaced(pod, status);
    let complains = unplaced
        .as_ref()
        .map(|(since, _)| after(*since, NODE_PATIENCE));
    let shown = ended(pod, status);
    let is_shown = shown.is_some();
    let (mut end, mut trouble, gives_up) = match shown {
        Some(end) => (Some(end), None, None),
        None if runs => (None, None, None),
        None => waiting(pod, status, now),
    };
    if end.is_none() && complains.is_some_and(|time| time <= now) {
        trouble = unplaced.map(|(_, reason)| reason);
    }
    if end.is_none() && gives_up.is_some_and(|time| time <= now) {
        end = Some(End::Failed(trouble.clone().unwrap_or_else(|| {
            reason(
                codes::START_TIMEOUT,
                "the runner's container did not start in 10 minutes",
            )
        })));
    }
    // an image that cannot be had is as missing for the next pod
    let permanent = end.is_some() && trouble.as_ref().is_some_and(is_about_image);
    PodState {
        presumed: end.is_some() && !is_shown,
        can_run: !is_over_for_good(pod, status),
        runs,
        ready: runs && condition(status, "Ready").is_some_and(|(is, _)| is),
        is_dead: (is_over(status) && !something_runs(status))
            || is_untouched(pod, status)
            || all_terminated(pod, status),
        end,
        permanent,
        trouble,
        gives_up,
        complains,
    }
}

/// When a pod that is being deleted should have gone, and counts as lost. A deletionTimestamp is
/// when the grace period ends, not when it begins.
pub fn lost_at(pod: &Pod) -> Option<Timestamp> {
    let deletion = pod.metadata.deletion_timestamp.as_ref()?;
    Some(after(deletion.0, LEAVING))
}

/// What is said of a pod that counts as lost.
pub fn node_lost(pod: &Pod) -> Reason {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let message = format!(
        "the pod is being deleted and has not gone within its grace period: node {:?} may be lost",
        node.unwrap_or_default()
    );
    reason(codes::NODE_LOST, &message)
}

/// The end that the containers or the pod as a whole show.
fn ended(pod: &Pod, status: &PodStatus) -> Option<End> {
    if let Some(terminated) = runner_status(status).and_then(last_end) {
        return Some(end_of(terminated));
    }
    if let Some((name, terminated)) = failed_init_container(pod, status) {
        return Some(End::Failed(reason(
            terminated
                .reason
                .as_deref()
                .unwrap_or(codes::INIT_CONTAINER_FAILED),
            &format!(
                "init container {name} ended with exit code {}",
                terminated.exit_code
            ),
        )));
    }
    match status.phase.as_deref() {
        Some("Failed") => Some(End::Failed(reason(
            status.reason.as_deref().unwrap_or(codes::POD_FAILED),
            status.message.as_deref().unwrap_or("the pod failed"),
        ))),
        Some("Succeeded") => Some(End::Succeeded),
        _ => None,
    }
}

/// The runner's end. One that the kubelet is about to start again has ended for us: its
/// registration is good for one life.
fn last_end(runner: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    let state = runner.state.as_ref()?;
    if state.terminated.is_some() {
        return state.terminated.as_ref();
    }
    state.waiting.as_ref()?;
    runner.last_state.as_ref()?.terminated.as_ref()
}

fn end_of(terminated: &ContainerStateTerminated) -> End {
    let code = terminated.exit_code;
    if code == 0 {
        return End::Succeeded;
    }
    let said = redact_for_display(terminated.message.as_deref().unwrap_or_default());
    let word = terminated.reason.as_deref().unwrap_or("Error");
    if code == EXIT_CODE_OUTDATED {
        let said = if said.is_empty() { word } else { &said };
        let message =
            format!("the Actions service rejected the runner's version (exit code {code}: {said})");
        return End::Outdated(reason(codes::RUNNER_VERSION_REJECTED, &message));
    }
    let message = if said.is_empty() {
        format!("the runner ended with exit code {code}")
    } else {
        format!("exit code {code}: {said}")
    };
    End::Failed(reason(word, &message))
}

/// An init container whose failure ends the pod. One that restarts for ever is a sidecar.
fn failed_init_container<'a>(
    pod: &Pod,
    status: &'a PodStatus,
) -> Option<(&'a str, &'a ContainerStateTerminated)> {
    let spec = pod.spec.as_ref()?;
    let final_failure = status.phase.as_deref() == Some("Failed")
        || spec.restart_policy.as_deref() == Some("Never");
    let is_sidecar = |name: &str| {
        spec.init_containers.iter().flatten().any(|container| {
            container.name == name && container.restart_policy.as_deref() == Some("Always")
        })
    };
    status
        .init_container_statuses
        .iter()
        .flatten()
        .filter(|init| final_failure && !is_sidecar(&init.name))
        .find_map(|init| {
            let terminated = init.state.as_ref()?.terminated.as_ref()?;
            (terminated.exit_code != 0).then_some((init.name.as_str(), terminated))
        })
}

/// What keeps the runner from starting: an end where that is for good, else the trouble and
/// when it counts as a failure.
fn waiting(
    pod: &Pod,
    status: &PodStatus,
    now: Timestamp,
) -> (Option<End>, Option<Reason>, Option<Timestamp>) {
    let Some(scheduled) = scheduled(pod, status) else {
        return (None, None, None);
    };
    let mut statuses = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .flatten();
    if let Some(found) = statuses.clone().find_map(image_trouble) {
        if found.code != IMAGE_PULL {
            return (Some(End::Failed(found.clone())), Some(found), None);
        }
        let since = initialized(status).map_or(scheduled, |time| time.max(scheduled));
        return (None, Some(found), Some(after(since, START_PATIENCE)));
    }
    let initialises = statuses.any(|container| {
        container.name != RUNNER_CONTAINER
            && container
                .state
                .as_ref()
                .is_some_and(|state| state.running.is_some())
    }) && initialized(status).is_none();
    if initialises {
        return (None, None, None);
    }
    let since = initialized(status).map_or(scheduled, |time| time.max(scheduled));
    let found = runner_status(status)
        .and_then(|runner| runner.state.as_ref()?.waiting.as_ref())
        .and_then(|waiting| {
            let word = waiting.reason.as_deref()?;
            let normal = matches!(word, "ContainerCreating" | "PodInitializing");
            let late = now >= after(since, START_PATIENCE);
            (!normal || late).then(|| reason(word, waiting.message.as_deref().unwrap_or_default()))
        });
    (None, found, Some(after(since, START_PATIENCE)))
}

/// Why a container's image cannot be had. The kubelet alternates between trying and waiting;
/// both are one trouble.
fn image_trouble(container: &ContainerStatus) -> Option<Reason> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let word = match waiting.reason.as_deref()? {
        "ErrImagePull" | IMAGE_PULL => IMAGE_PULL,
        word if HOPELESS_IMAGE.contains(&word) => word,
        _ => return None,
    };
    let image = container.image.as_str();
    let message = match waiting.message.as_deref().unwrap_or_default() {
        "" => format!("image {image:?} cannot be had"),
        text if text.contains(image) => text.to_owned(),
        text => format!("image {image:?}: {text}"),
    };
    Some(reason(word, &message))
}

fn is_about_image(reason: &Reason) -> bool {
    reason.code == IMAGE_PULL || HOPELESS_IMAGE.contains(&reason.code.as_ref())
}

fn scheduled(pod: &Pod, status: &PodStatus) -> Option<Timestamp> {
    match condition(status, "PodScheduled") {
        Some((true, Some(time))) => Some(time),
        Some((false, _)) => None,
        _ if !is_untouched(pod, status) => status
            .start_time
            .as_ref()
            .or(pod.metadata.creation_timestamp.as_ref())
            .map(|Time(time)| *time),
        _ => None,
    }
}

/// Since when the scheduler finds no node for the pod, and what it says.
fn unplaced(pod: &Pod, status: &PodStatus) -> Option<(Timestamp, Reason)> {
    let mut conditions = status.conditions.iter().flatten();
    let refusal = conditions.find(|is| is.type_ == "PodScheduled" && is.status == "False")?;
    let since = refusal
        .last_transition_time
        .as_ref()
        .or(pod.metadata.creation_timestamp.as_ref())?;
    let word = refusal.reason.as_deref().unwrap_or("Unschedulable");
    let message = refusal
        .message
        .as_deref()
        .unwrap_or("no node takes the pod");
    Some((since.0, reason(word, message)))
}

fn initialized(status: &PodStatus) -> Option<Timestamp> {
    condition(status, "Initialized")
        .filter(|(is, _)| *is)
        .and_then(|(_, time)| time)
}

fn condition(status: &PodStatus, kind: &str) -> Option<(bool, Option<Timestamp>)> {
    let found = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind)?;
    let time = found.last_transition_time.as_ref().map(|Time(time)| *time);
    Some((found.status == "True", time))
}

fn runner_status(status: &PodStatus) -> Option<&ContainerStatus> {
    status
        .container_statuses
        .iter()
        .flatten()
        .find(|container| container.name == RUNNER_CONTAINER)
}

/// Whether the pod as a whole has ended.
fn is_over(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"))
}

/// Whether it is for good that the runner does nothing any more. A pod may be declared failed for
/// its node, by somebody who cannot reach that: what is shown as running may run then.
fn is_over_for_good(pod: &Pod, status: &PodStatus) -> bool {
    let state = runner_status(status).and_then(|runner| runner.state.as_ref());
    let is_shown_running = state.is_some_and(|state| state.running.is_some());
    let ended = state.and_then(|state| state.terminated.as_ref());
    ended.is_some_and(|ended| is_over(status) || !restarts(pod, ended))
        || failed_init_container(pod, status).is_some()
        || (is_over(status) && !is_shown_running)
}

/// Whether the kubelet starts a container again that ended so. The server gives each pod a policy.
fn restarts(pod: &Pod, ended: &ContainerStateTerminated) -> bool {
    let policy = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref());
    match policy {
        Some("Never") => false,
        Some("OnFailure") => ended.exit_code != 0,
        _ => true,
    }
}

/// Whether some container is shown as running.
fn something_runs(status: &PodStatus) -> bool {
    let mut containers = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .flatten();
    containers.any(|container| {
        let state = container.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    })
}

/// Whether no node has anything to do with it yet.
fn is_untouched(pod: &Pod, status: &PodStatus) -> bool {
    let bound = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .is_some_and(|node| !node.is_empty());
    let shown = status.container_statuses.iter().flatten().next().is_some();
    !bound && !shown
}

/// Whether every container of the pod has ended and shows it.
fn all_terminated(pod: &Pod, status: &PodStatus) -> bool {
    let wanted = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let ended = |container: &&ContainerStatus| {
        container
            .state
            .as_ref()
            .is_some_and(|state| state.terminated.is_some())
    };
    let shown = status.container_statuses.as_deref().unwrap_or_default();
    let sidecar_runs = status
        .init_container_statuses
        .iter()
        .flatten()
        .any(|init| !ended(&init));
    wanted > 0 && !sidecar_runs && shown.iter().filter(ended).count() >= wanted
}

fn reason(word: &str, message: &str) -> Reason {
    Reason::new(word.to_owned(), message)
}
