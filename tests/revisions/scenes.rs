//! Where the scenarios begin, and what they look at.

use std::time::Duration;

use impresario::api::constants::annotations;
use impresario::api::{
    AutoscalingListener, AutoscalingListenerPhase, AutoscalingRunnerSetPhase, EphemeralRunner,
    EphemeralRunnerSet, EphemeralRunnerSetPhase,
};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::{Event, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;

use crate::stage::manifests::{RUN, is_users};
use crate::stage::{Known, Stage, play};

/// What a runner says whose version is rejected.
pub const LAST_WORDS: &str = "Runner version v2.300.0 is deprecated and cannot receive messages.";

pub const FIVE_MINUTES: Duration = Duration::from_secs(300);

/// Plays a scenario on the embedded API server.
pub fn embedded(scenario: impl AsyncFn(&Stage)) {
    play(async || {
        let stage = Stage::by_hand().await;
        scenario(&stage).await;
        stage.assert_sound();
    });
}

/// A scale set that SCN-11 has parked.
pub struct Parked {
    /// The runner that was rejected.
    pub rejected: String,
    /// The runner with a job.
    pub busy: String,
    pub listener: Option<String>,
    pub runner_set: Option<String>,
}

/// SCN-11, step 1: of two runners, one idle and one busy, the idle one exits with code 7.
pub async fn park(stage: &Stage) -> Parked {
    stage.settled_fixture(0, 10).await;
    let names = stage.scale_up(2, 1).await;
    for name in &names {
        stage.up(name).await;
    }
    let [rejected, busy] = <[String; 2]>::try_from(names).unwrap();
    stage.busy(&busy, 41).await;
    stage.settle().await;
    let parked = Parked {
        rejected,
        busy,
        listener: stage.all::<AutoscalingListener>().await.remove(0).uid(),
        runner_set: stage.runner_set().await.uid(),
    };
    stage.exit_saying(&parked.rejected, 7, LAST_WORDS).await;
    stage
        .until("the scale set is parked", async || is_parked(stage).await)
        .await;
    stage.settle().await;
    parked
}

/// The same, with nobody left but the one that was rejected.
pub async fn park_without_jobs(stage: &Stage) -> Parked {
    let parked = park(stage).await;
    stage.exit(&parked.busy, 0).await;
    stage
        .until("the busy one is counted and gone", async || {
            stage
                .get::<EphemeralRunner>(RUN, &parked.busy)
                .await
                .is_none()
        })
        .await;
    stage.settle().await;
    assert!(is_observed(stage).await, "{}", stage.picture().await);
    parked
}

/// Phases of scale set, runner set and listener together say that nothing is to be done.
pub async fn is_parked(stage: &Stage) -> bool {
    let set = stage.runner_set().await;
    phase(stage).await == Some(AutoscalingRunnerSetPhase::Outdated)
        && set.status.clone().and_then(|status| status.phase)
            == Some(EphemeralRunnerSetPhase::Outdated)
        && (set.spec.replicas, set.spec.patch_id) == (Some(0), 0)
        && listener_phase(stage).await == Some(AutoscalingListenerPhase::Stopped)
        && parts_of_listener(stage).await.is_empty()
}

/// SCN-13's outcome, but for the phases in between: the listener's pod is started on the way.
pub async fn until_recovered(stage: &Stage) {
    stage
        .until("there is a listener pod", async || {
            stage.listener_pods().await.len() == 1
        })
        .await;
    stage
        .until("it is pending: its listener does not run yet", async || {
            phase(stage).await == Some(AutoscalingRunnerSetPhase::Pending)
        })
        .await;
    stage.start_listener().await;
    stage
        .until("it is settled", async || stage.is_settled().await)
        .await;
    stage.settle().await;
}

pub async fn phase(stage: &Stage) -> Option<AutoscalingRunnerSetPhase> {
    let status = stage.scale_set().await.status.unwrap_or_default();
    status.phase
}

pub async fn is_observed(stage: &Stage) -> bool {
    let set = stage.scale_set().await;
    let status = set.status.unwrap_or_default();
    status.observed_generation == set.metadata.generation
}

/// A condition as `status reason: message`.
pub async fn condition(stage: &Stage, kind: &str) -> String {
    let status = stage.scale_set().await.status.unwrap_or_default();
    let found = status.conditions.into_iter().find(|one| one.type_ == kind);
    found.map_or("absent".to_owned(), |one| {
        format!("{} {}: {}", one.status, one.reason, one.message)
    })
}

/// The messages of the events of that reason.
pub async fn events(stage: &Stage, reason: &str) -> Vec<String> {
    let mut events = stage.all::<Event>().await;
    events.retain(|event| event.reason.as_deref() == Some(reason));
    let message = |event: Event| event.message.unwrap_or_default();
    events.into_iter().map(message).collect()
}

pub async fn listener(stage: &Stage) -> AutoscalingListener {
    let mut listeners = stage.all::<AutoscalingListener>().await;
    assert_eq!(listeners.len(), 1, "a scale set has one listener");
    listeners.remove(0)
}

pub async fn listener_phase(stage: &Stage) -> Option<AutoscalingListenerPhase> {
    let listeners = stage.all::<AutoscalingListener>().await;
    listeners.first().and_then(|listener| listener.spec.phase)
}

/// What there is of the listener below its AutoscalingListener.
pub async fn parts_of_listener(stage: &Stage) -> Vec<String> {
    let mut parts = Vec::new();
    for pod in stage.listener_pods().await {
        parts.push(format!("pod {}", pod.name_any()));
    }
    let of_listener = |name: &str| name.ends_with("-listener");
    let controllers = Some(CONTROLLER_NAMESPACE);
    for secret in stage.all::<Secret>().await {
        if secret.namespace().as_deref() == controllers && !is_users(&secret) {
            parts.push(format!("Secret {}", secret.name_any()));
        }
    }
    async fn named<K: Known>(stage: &Stage, parts: &mut Vec<String>, is: impl Fn(&str) -> bool) {
        for object in stage.all::<K>().await {
            if is(&object.name_any()) {
                parts.push(format!("{} {}", K::kind(&()), object.name_any()));
            }
        }
    }
    named::<ServiceAccount>(stage, &mut parts, of_listener).await;
    named::<Role>(stage, &mut parts, of_listener).await;
    named::<RoleBinding>(stage, &mut parts, of_listener).await;
    parts
}

/// Wanted and applied revision.
pub fn revisions(set: &EphemeralRunnerSet) -> (i64, i64) {
    let applied = set.status.as_ref();
    let applied = applied.and_then(|status| status.applied_actionable_revision);
    (
        set.spec.actionable_revision.unwrap_or(0),
        applied.unwrap_or(0),
    )
}

/// The revision that a runner carries.
pub fn revision(runner: &EphemeralRunner) -> i64 {
    let carried = runner.annotations().get(annotations::ACTIONABLE_REVISION);
    carried.map_or(0, |text| text.parse().unwrap())
}

/// The image that a runner's pod is made with.
pub fn image(runner: &EphemeralRunner) -> String {
    let containers = runner.spec.spec.clone().unwrap_or_default().containers;
    containers[0].image.clone().unwrap_or_default()
}
