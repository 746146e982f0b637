//! A corrected runner spec switches a parked scale set on again at once (SCN-13).

use std::time::Duration;

use impresario::api::{
    AutoscalingListenerPhase, AutoscalingRunnerSetPhase, EphemeralRunner, EphemeralRunnerSet,
    EphemeralRunnerSetPhase,
};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use crate::scenes::{
    condition, embedded, events, image, is_observed, listener, listener_phase, park_without_jobs,
    phase, revision, revisions, until_recovered,
};
use crate::stage::manifests::{RUN, SET};
use crate::stage::{Stage, Writes};

#[test]
fn another_image_recovers() {
    embedded(scn_13);
}

pub async fn scn_13(stage: &Stage) {
    let parked = park_without_jobs(stage).await;
    let (old, _) = revisions(&stage.runner_set().await);
    let listener_pods = stage.created("pods");

    // 1. another image
    stage.set_image("img:2").await;
    stage
        .until("it is pending", async || {
            phase(stage).await == Some(AutoscalingRunnerSetPhase::Pending)
        })
        .await;
    assert!(!is_observed(stage).await);
    until_recovered(stage).await;
    let set = stage.runner_set().await;
    assert_eq!(set.uid(), parked.runner_set);
    assert_eq!(revisions(&set), (old + 1, old + 1));
    let spec = set.spec.ephemeral_runner_spec.clone().unwrap();
    let containers = spec.spec.unwrap_or_default().containers;
    assert_eq!(containers[0].image.as_deref(), Some("img:2"));
    let status = set.status.unwrap_or_default();
    assert_eq!(status.phase, Some(EphemeralRunnerSetPhase::Running));
    assert_eq!(listener(stage).await.uid(), parked.listener);
    assert_eq!(
        listener_phase(stage).await,
        Some(AutoscalingListenerPhase::Running)
    );
    assert_eq!(stage.listener_pods().await.len(), 1);
    assert_eq!(stage.created("pods"), listener_pods + 1);
    assert!(is_observed(stage).await);
    if !stage.is_real() {
        let phases = stage.warden.phases("autoscalingrunnersets");
        let last = &phases[phases.len() - 3..];
        assert_eq!(last, ["Outdated", "Pending", "Running"], "{phases:?}");
    }
    // what was rejected is gone, and nobody took its place: nothing is asked for
    assert!(stage.runners().await.is_empty());

    // 2. runners are made of the new spec
    let names = stage.scale_up(2, 1).await;
    for runner in stage.live().await {
        assert_eq!(image(&runner), "img:2");
        assert_eq!(revision(&runner), old + 1);
        let pod: Pod = stage.get(RUN, &runner.name_any()).await.unwrap();
        let containers = pod.spec.unwrap_or_default().containers;
        assert_eq!(containers[0].image.as_deref(), Some("img:2"));
    }
    assert_eq!(names.len(), 2);
    stage.assert_at_rest().await;
}

/// SCN-13, variant M.
#[test]
fn other_runner_metadata_recovers() {
    embedded(async |stage| {
        let parked = park_without_jobs(stage).await;
        stage
            .edit(json!({"ephemeralRunnerMetadata": {"labels": {"cost-center": "42"}}}))
            .await;
        until_recovered(stage).await;
        let set = stage.runner_set().await;
        assert_eq!(set.uid(), parked.runner_set);
        assert_eq!(revisions(&set), (2, 2));
        assert!(is_observed(stage).await);
        stage.scale_up(2, 1).await;
        for runner in stage.live().await {
            assert_eq!(runner.labels()["cost-center"], "42");
            assert_eq!((image(&runner).as_str(), revision(&runner)), ("img:1", 2));
        }
        stage.assert_at_rest().await;
    });
}

/// SCN-13, variant D.
#[test]
fn a_runner_set_deleted_while_parked_is_made_again_and_counts_as_corrected() {
    embedded(async |stage| {
        let parked = park_without_jobs(stage).await;
        stage.delete::<EphemeralRunnerSet>(RUN, SET).await;
        until_recovered(stage).await;
        let set = stage.runner_set().await;
        assert_ne!(set.uid(), parked.runner_set);
        assert_eq!(revisions(&set), (1, 1));
        assert_eq!(listener(stage).await.uid(), parked.listener);
        assert!(stage.runners().await.is_empty(), "they went with their set");
        let told = events(stage, "Recovered").await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("is gone"), "{told:?}");
        stage.scale_up(2, 1).await;
        stage.assert_at_rest().await;
    });
}

/// The same while a job runs: its runner holds the old one, and nothing starts before that ends.
#[test]
fn a_runner_set_deleted_while_parked_stays_parked_until_its_last_job_has_ended() {
    embedded(async |stage| {
        let parked = crate::scenes::park(stage).await;
        let pods = stage.created("pods");
        stage.delete::<EphemeralRunnerSet>(RUN, SET).await;
        stage.pass(Duration::from_secs(300)).await;
        let busy: EphemeralRunner = stage.get(RUN, &parked.busy).await.unwrap();
        assert_eq!(busy.metadata.deletion_timestamp, None);
        assert_eq!(stage.runner_set().await.uid(), parked.runner_set);
        assert_eq!(
            phase(stage).await,
            Some(AutoscalingRunnerSetPhase::Outdated)
        );
        assert_eq!(
            listener_phase(stage).await,
            Some(AutoscalingListenerPhase::Stopped)
        );
        assert_eq!(stage.created("pods"), pods);
        stage.start_controller();
        stage.settle().await;
        assert_eq!(stage.created("pods"), pods, "another controller sees it so");

        stage.exit(&parked.busy, 0).await;
        stage
            .until("there is another set", async || {
                let sets = stage.all::<EphemeralRunnerSet>().await;
                sets.len() == 1 && sets[0].uid() != parked.runner_set
            })
            .await;
        until_recovered(stage).await;
        assert_eq!(listener(stage).await.uid(), parked.listener);
        assert_eq!(events(stage, "Recovered").await.len(), 1);
        stage.assert_at_rest().await;
    });
}

/// A job that runs when the set is parked outlives verdict and recovery.
#[test]
fn a_busy_runner_outlives_verdict_and_recovery() {
    embedded(async |stage| {
        let parked = crate::scenes::park(stage).await;
        let pod: Pod = stage.get(RUN, &parked.busy).await.unwrap();
        stage.set_image("img:2").await;
        until_recovered(stage).await;
        stage.ersset(2, 2).await;
        stage
            .until("there are two", async || stage.live().await.len() == 2)
            .await;
        stage.settle().await;
        let still: Pod = stage.get(RUN, &parked.busy).await.unwrap();
        assert_eq!(still.uid(), pod.uid());
        // and its own verdict, about what is gone, counts for nothing
        stage.exit(&parked.busy, 7).await;
        stage
            .until("it is gone", async || {
                stage
                    .get::<EphemeralRunner>(RUN, &parked.busy)
                    .await
                    .is_none()
            })
            .await;
        stage.settle().await;
        assert_eq!(phase(stage).await, Some(AutoscalingRunnerSetPhase::Running));
        assert_eq!(stage.live().await.len(), 2, "it is replaced");
        assert!(stage.live().await.iter().all(|one| revision(one) == 2));
    });
}

#[test]
fn the_way_back_is_told() {
    embedded(async |stage| {
        let parked = park_without_jobs(stage).await;
        let held = stage
            .warden
            .hold(Writes::of("patch", "ephemeralrunnersets/status"));
        stage.set_image("img:2").await;
        let differ = "revision 2 of the runner spec is wanted, revision 1 is applied";
        stage
            .until("both revisions are told", async || {
                condition(stage, "RunnersReady").await.contains(differ)
            })
            .await;
        assert_eq!(phase(stage).await, Some(AutoscalingRunnerSetPhase::Pending));
        let told = events(stage, "Recovered").await;
        assert_eq!(told.len(), 1, "{told:?}");
        for part in ["revision 2", &parked.rejected, "exit code 7"] {
            assert!(told[0].contains(part), "{told:?}");
        }
        held.lift();
        until_recovered(stage).await;
        assert_eq!(
            condition(stage, "RunnersReady").await,
            "True RunnersReady: runners can be made"
        );
        assert!(condition(stage, "Ready").await.starts_with("True"));
    });
}

/// A correction that the API server does not take is pending, not recovered.
#[test]
fn a_correction_that_is_refused_stays_pending_and_is_told() {
    embedded(async |stage| {
        park_without_jobs(stage).await;
        let error = crate::half_applied::out_of_order();
        let refused = stage
            .warden
            .refuse(Writes::of("patch", "ephemeralrunnersets"), error);
        stage.set_image("img:2").await;
        stage.pass(Duration::from_secs(60)).await;
        assert_eq!(phase(stage).await, Some(AutoscalingRunnerSetPhase::Pending));
        assert!(!is_observed(stage).await);
        assert_eq!(
            listener_phase(stage).await,
            Some(AutoscalingListenerPhase::Stopped)
        );
        let told = condition(stage, "RunnersReady").await;
        let differ = "revision 2 of the runner spec is wanted, revision 1 is applied";
        assert!(told.contains(differ), "{told}");
        assert!(events(stage, "Recovered").await.is_empty());
        refused.lift();
        until_recovered(stage).await;
        assert_eq!(revisions(&stage.runner_set().await), (2, 2));
    });
}
