//! What becomes of a pod that fails, and of the listener's. The test plays listener and
//! kubelet.

use std::collections::BTreeSet;
use std::time::Duration;

use impresario::api::{AutoscalingListener, EphemeralRunner, EphemeralRunnerPhase};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::stage::hands::{ended, running, status};
use crate::stage::manifests::RUN;
use crate::stage::{Stage, play};

#[test]
fn an_evicted_pod_is_made_again_a_few_times() {
    fails_before_a_job(&json!({"phase": "Failed", "reason": "Evicted", "message": "low memory"}));
}

#[test]
fn a_pod_the_kubelet_rejects_is_made_again_a_few_times() {
    fails_before_a_job(&json!({"phase": "Failed", "reason": "OutOfcpu", "message": "no cpu"}));
}

#[test]
fn a_runner_that_exits_with_1_is_started_again_a_few_times() {
    fails_before_a_job(&ended("runner", 1));
}

#[test]
fn a_pod_whose_init_container_fails_is_made_again_a_few_times() {
    let terminated = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
    fails_before_a_job(&json!({
        "phase": "Failed",
        "initContainerStatuses": [status("prepare", false, &terminated)],
    }));
}

/// Lets every pod of a runner fail so, before it has a job.
fn fails_before_a_job(failure: &Value) {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 5).await;
        let runner = stage.scale_up(1, 1).await.remove(0);
        let mut uids = BTreeSet::new();
        let mut failures = 0;
        loop {
            let pods = stage.runner_pods().await;
            assert!(pods.len() <= 1, "never more than one pod");
            let current: Option<EphemeralRunner> = stage.get(RUN, &runner).await;
            let status = current.and_then(|runner| runner.status).unwrap_or_default();
            if status.phase == Some(EphemeralRunnerPhase::Failed) {
                assert!(status.reason.is_some_and(|reason| !reason.is_empty()));
                break;
            }
            assert!(
                failures <= 6,
                "it is given up after six failures\n{}",
                stage.picture().await
            );
            let fresh = pods.iter().find(|pod| !uids.contains(&pod.uid()));
            let Some(pod) = fresh else {
                stage.pass(Duration::from_secs(1)).await;
                continue;
            };
            assert_eq!(pod.name_any(), runner, "the same runner gets the next pod");
            uids.insert(pod.uid());
            failures += 1;
            stage.pod_status(RUN, &runner, failure.clone()).await;
        }
        assert_eq!(failures, 6);
        stage.assert_sound();
    });
}

#[test]
fn a_runner_that_failed_once_does_its_job_with_the_next_pod() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 5).await;
        let runner = stage.scale_up(1, 1).await.remove(0);
        let first = stage.get::<Pod>(RUN, &runner).await.unwrap();
        stage.pod_status(RUN, &runner, ended("runner", 137)).await;
        stage
            .until("there is another pod", async || {
                let pod = stage.get::<Pod>(RUN, &runner).await;
                pod.is_some_and(|pod| pod.uid() != first.uid())
            })
            .await;
        stage.up(&runner).await;
        stage.busy(&runner, 8).await;
        stage.exit(&runner, 0).await;
        stage.ersset(0, 2).await;
        stage
            .until("it is gone", async || stage.runners().await.is_empty())
            .await;
        assert_eq!(stage.warden.count("create", "ephemeralrunners"), 1);
        stage.assert_sound();
    });
}

#[test]
fn an_evicted_listener_is_replaced_once() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 10).await;
        let before = stage.listener_pods().await.remove(0);
        let listener = stage.all::<AutoscalingListener>().await.remove(0).uid();
        let set = stage.runner_set().await.uid();
        let evicted = json!({"phase": "Failed", "reason": "Evicted", "containerStatuses": null});
        stage
            .pod_status(CONTROLLER_NAMESPACE, &before.name_any(), evicted)
            .await;
        stage
            .until("another pod", async || is_other(&stage, &before).await)
            .await;
        stage.start_listener().await;
        stage.settle().await;
        stage.pass(Duration::from_secs(60)).await;
        assert_eq!(stage.warden.count("create", "pods"), 2);
        assert_eq!(stage.warden.count("create", "ephemeralrunnersets"), 1);
        assert_eq!(
            stage.all::<AutoscalingListener>().await.remove(0).uid(),
            listener
        );
        assert_eq!(stage.runner_set().await.uid(), set);
        stage.assert_sound();
    });
}

#[test]
fn a_sidecar_cannot_hide_a_dead_listener_nor_end_a_live_one() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 10).await;
        stage
            .edit(json!({"listenerTemplate": {"spec": {"containers": [
                {"name": "listener"}, {"name": "side", "image": "side:1"},
            ]}}}))
            .await;
        stage
            .until("a pod with both", async || {
                let pods = stage.listener_pods().await;
                let spec = pods
                    .first()
                    .and_then(|pod| pod.spec.clone())
                    .unwrap_or_default();
                spec.containers.len() == 2
            })
            .await;
        stage
            .pod_status(CONTROLLER_NAMESPACE, &name(&stage).await, both(None, None))
            .await;
        stage.settle().await;
        let before = stage.listener_pods().await.remove(0);

        // the listener ends, the sidecar runs on
        stage
            .pod_status(
                CONTROLLER_NAMESPACE,
                &name(&stage).await,
                both(Some(1), None),
            )
            .await;
        stage
            .until("another pod", async || is_other(&stage, &before).await)
            .await;
        stage
            .pod_status(CONTROLLER_NAMESPACE, &name(&stage).await, both(None, None))
            .await;
        stage.settle().await;

        // the sidecar ends, the listener runs on
        let after = stage.listener_pods().await.remove(0);
        stage
            .pod_status(
                CONTROLLER_NAMESPACE,
                &name(&stage).await,
                both(None, Some(1)),
            )
            .await;
        stage.settle().await;
        stage.pass(Duration::from_secs(60)).await;
        assert_eq!(stage.listener_pods().await.remove(0).uid(), after.uid());
        stage.assert_sound();
    });
}

async fn name(stage: &Stage) -> String {
    stage.listener_pods().await.remove(0).name_any()
}

async fn is_other(stage: &Stage, before: &Pod) -> bool {
    let pods = stage.listener_pods().await;
    pods.len() == 1 && pods[0].uid() != before.uid()
}

/// A pod that is Running with a listener and a sidecar, each of which may have ended.
fn both(listener: Option<i32>, side: Option<i32>) -> Value {
    let state = |code: Option<i32>| match code {
        None => json!({"running": {"startedAt": "2026-03-04T05:06:07Z"}}),
        Some(code) => json!({"terminated": {"exitCode": code, "reason": "Error"}}),
    };
    let mut all = running("listener");
    all["containerStatuses"] = json!([
        status("listener", listener.is_none(), &state(listener)),
        status("side", side.is_none(), &state(side)),
    ]);
    all
}
