//! A scale set is deleted in every state it can be in, and is gone in the end.

use std::time::Duration;

use embedded_actions::Fault;
use embedded_kube::kubelet::PodFault;
use impresario::api::{
    AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerPhase,
    EphemeralRunnerSet,
};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use kube::ResourceExt;
use serde_json::json;

use crate::stage::manifests::{RUN, SET, fixture};
use crate::stage::{Stage, play};

const GONE: &str = "everything is gone";

#[test]
fn before_it_is_registered() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage
            .actions
            .faults()
            .always("register", Fault::refuse(503, ""));
        stage.apply(&fixture(1, 3)).await;
        stage.pass(Duration::from_secs(3)).await;
        stage.delete_scale_set().await;
        stage.assert_sound();
    });
}

/// One back-off for one removal, however it is carried out.
#[test]
fn while_the_service_fails_at_every_removal() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 3).await;
        let runner = stage.scale_up(1, 1).await.remove(0);
        stage.up(&runner).await;
        let failing = Fault::refuse(500, "InternalException");
        stage.actions.faults().always("remove_runner", failing);
        stage.delete::<EphemeralRunner>(RUN, &runner).await;
        stage.pass(Duration::from_secs(3_600)).await;
        let asked = stage.warden.calls("remove_runner");
        assert!((55..=90).contains(&asked), "asked {asked} times in an hour");
        stage.actions.faults().clear_all();
        let minute = Duration::from_secs(61);
        stage
            .within(minute, "it is gone", async || {
                !stage.is_live(&runner).await && stage.get::<Pod>(RUN, &runner).await.is_none()
            })
            .await;
        stage.assert_sound();
    });
}

#[test]
fn before_its_finalizer_is_there() {
    play(async || {
        let stage = Stage::embedded(3, false, true).await;
        stage.apply(&fixture(1, 3)).await;
        stage.delete::<AutoscalingRunnerSet>(RUN, SET).await;
        stage.start_controller();
        stage
            .until(GONE, async || stage.leftovers().await.is_empty())
            .await;
        stage.assert_sound();
    });
}

#[test]
fn while_it_is_being_registered() {
    play(async || {
        let stage = Stage::by_hand().await;
        let slow = Fault::delay(Duration::from_secs(20));
        stage.actions.faults().next("create_scale_set", slow);
        stage.apply(&fixture(1, 3)).await;
        stage.pass(Duration::from_secs(3)).await;
        stage.delete_scale_set().await;
        stage.settle().await;
        assert!(
            stage.leftovers().await.is_empty(),
            "{}",
            stage.picture().await
        );
        stage.assert_sound();
    });
}

#[test]
fn while_its_listener_is_pending() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.apply(&fixture(1, 3)).await;
        stage
            .until("a pod", async || !stage.listener_pods().await.is_empty())
            .await;
        stage.delete_scale_set().await;
        assert_eq!(stage.service()["delete_scale_set"], 1);
        stage.assert_sound();
    });
}

#[test]
fn at_every_moment_of_its_first_seconds() {
    for milliseconds in (0..2500).step_by(50) {
        play(async || {
            let stage = Stage::whole_without_log(17).await;
            stage.apply(&fixture(2, 3)).await;
            stage.pass(Duration::from_millis(milliseconds)).await;
            stage.delete_scale_set().await;
            stage.settle().await;
            let left = stage.leftovers().await;
            assert!(
                left.is_empty(),
                "after {milliseconds} ms: {}",
                stage.picture().await
            );
            stage.assert_sound();
        });
    }
}

#[test]
fn with_pending_and_idle_runners() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 5).await;
        let names = stage.scale_up(3, 1).await;
        stage.up(&names[0]).await;
        stage.settle().await;
        let mut ids: Vec<i64> = names.iter().map(|name| stage.registration(name)).collect();
        stage.delete_scale_set().await;
        ids.sort_unstable();
        let mut removed = stage.warden.removals();
        removed.sort_unstable();
        assert_eq!(removed, ids);
        stage.assert_sound();
    });
}

#[test]
fn a_busy_runner_is_waited_for() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(1, 10).await;
        let names = stage.scale_up(2, 1).await;
        for name in &names {
            stage.up(name).await;
        }
        stage.busy(&names[0], 5).await;
        stage.settle().await;
        let pod = stage.get::<Pod>(RUN, &names[0]).await.unwrap();

        stage.delete::<AutoscalingRunnerSet>(RUN, SET).await;
        stage
            .until("the listener is gone", async || {
                stage.listener_pods().await.is_empty()
            })
            .await;
        stage
            .until("the idle one is gone", async || {
                stage.runners().await.len() == 1
            })
            .await;
        stage.pass(Duration::from_secs(1800)).await;
        let still = stage
            .get::<Pod>(RUN, &names[0])
            .await
            .expect("its pod is there");
        assert_eq!(still.uid(), pod.uid());
        assert!(still.metadata.deletion_timestamp.is_none());
        assert_eq!(stage.service()["delete_scale_set"], 0);

        stage.exit(&names[0], 0).await;
        let soon = Duration::from_secs(10);
        stage
            .within(soon, GONE, async || stage.leftovers().await.is_empty())
            .await;
        assert_eq!(stage.service()["delete_scale_set"], 1);
        stage.assert_sound();
    });
}

#[test]
fn with_a_finished_runner_that_was_not_counted() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 10).await;
        let names = stage.scale_up(1, 1).await;
        stage.up(&names[0]).await;
        stage.busy(&names[0], 6).await;
        stage.settle().await;
        // all of this while no controller looks
        stage.kill_controller();
        stage.exit(&names[0], 0).await;
        stage.delete::<AutoscalingRunnerSet>(RUN, SET).await;
        stage.start_controller();
        stage
            .until(GONE, async || stage.leftovers().await.is_empty())
            .await;
        assert_eq!(stage.service()["delete_scale_set"], 1);
        stage.assert_sound();
    });
}

#[test]
fn with_a_runner_that_failed_for_good() {
    play(async || {
        let stage = Stage::whole(9).await;
        stage.settled_fixture(1, 3).await;
        let fault = PodFault::Image("InvalidImageName".into()).to_string();
        stage
            .edit(json!({"template": {
                "metadata": {"annotations": {"impresario.dev/fault": fault}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "runner", "image": "Img 2"}],
                },
            }}))
            .await;
        let failed = async || {
            stage.runners().await.into_iter().any(|runner| {
                let status = runner.status.unwrap_or_default();
                status.phase == Some(EphemeralRunnerPhase::Failed)
            })
        };
        stage
            .within(Duration::from_secs(600), "a runner has failed", failed)
            .await;
        stage.delete_scale_set().await;
        assert_eq!(stage.service()["delete_scale_set"], 1);
        stage.assert_sound();
    });
}

#[test]
fn after_a_person_has_deleted_its_runner_set() {
    deleted_by_a_person(async |stage| stage.delete::<EphemeralRunnerSet>(RUN, SET).await);
}

#[test]
fn after_a_person_has_deleted_its_listener() {
    deleted_by_a_person(async |stage| {
        let listener = stage
            .all::<AutoscalingListener>()
            .await
            .remove(0)
            .name_any();
        stage
            .delete::<AutoscalingListener>(CONTROLLER_NAMESPACE, &listener)
            .await;
    });
}

#[test]
fn after_a_person_has_deleted_a_runner() {
    deleted_by_a_person(async |stage| {
        let runner = stage.runners().await.remove(0).name_any();
        stage.delete::<EphemeralRunner>(RUN, &runner).await;
    });
}

#[test]
fn after_a_person_has_deleted_a_runners_pod() {
    deleted_by_a_person(async |stage| {
        let runner = stage.runners().await.remove(0).name_any();
        stage.delete::<Pod>(RUN, &runner).await;
    });
}

#[test]
fn after_a_person_has_deleted_a_runners_secret() {
    deleted_by_a_person(async |stage| {
        let runner = stage.runners().await.remove(0).name_any();
        stage.delete::<Secret>(RUN, &runner).await;
    });
}

/// A person deletes something of a pool with two idle runners. It mends itself, or is deleted
/// in the middle of that: both end well.
fn deleted_by_a_person(what: impl AsyncFn(&Stage)) {
    play(async || {
        let stage = Stage::whole(21).await;
        stage.settled_fixture(2, 4).await;
        what(&stage).await;
        stage.delete_scale_set().await;
        stage.assert_sound();
    });
    play(async || {
        let stage = Stage::whole(22).await;
        stage.settled_fixture(2, 4).await;
        what(&stage).await;
        stage
            .until("it has mended itself", async || {
                stage.all::<EphemeralRunnerSet>().await.len() == 1
                    && stage.listener_pods().await.len() == 1
                    && is_pool_of(&stage, 2).await
            })
            .await;
        stage.queue_jobs(2, SET, Duration::from_secs(5));
        stage
            .until("it still works", async || stage.jobs_done() == 2)
            .await;
        stage
            .until("it is at rest", async || is_pool_of(&stage, 2).await)
            .await;
        stage.settle().await;
        stage.assert_nothing_left_over_beside_runners().await;
        stage.delete_scale_set().await;
        stage.assert_sound();
    });
}

/// Whether there are so many runners, all live with a pod that is ready.
async fn is_pool_of(stage: &Stage, count: usize) -> bool {
    let (all, live) = (stage.runners().await, stage.live().await);
    let ready = live
        .iter()
        .filter(|runner| runner.status.as_ref().is_some_and(|s| s.ready));
    all.len() == count && ready.count() == count && stage.runner_pods().await.len() == count
}

#[test]
fn without_its_credentials() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 4).await;
        let names = stage.scale_up(2, 1).await;
        stage.up(&names[0]).await;
        stage.settle().await;
        stage.delete::<Secret>(RUN, "gh").await;
        // long enough that nothing is remembered of them
        stage.pass(Duration::from_secs(180)).await;
        stage.delete::<AutoscalingRunnerSet>(RUN, SET).await;
        stage
            .within(
                Duration::from_secs(60),
                "no object of it is left",
                async || {
                    let left = stage.leftovers().await;
                    left.iter().all(|name| name.contains("Info {"))
                },
            )
            .await;
        let warned = stage.all::<Event>().await.into_iter().any(|event| {
            event.type_.as_deref() == Some("Warning")
                && event.message.unwrap_or_default().contains(SET)
        });
        assert!(warned, "{}", stage.picture().await);
        stage.assert_sound();
    });
}

#[test]
fn when_the_service_fails_at_first() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 4).await;
        let faults = stage.actions.faults();
        for _ in 0..3 {
            faults.next("delete_scale_set", Fault::refuse(500, ""));
        }
        stage.delete_scale_set().await;
        assert_eq!(stage.service()["delete_scale_set"], 4);
        stage.assert_sound();
    });
}
