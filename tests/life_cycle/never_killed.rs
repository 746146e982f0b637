//! A runner that works is not ended, whatever the controller believes and whatever time it is; and
//! the warden, which sees to that in every run, sees it.

use std::time::Duration;

use embedded_actions::{JobSpec, JobState};
use embedded_kube::kubelet::PodFault;
use impresario::api::{EphemeralRunner, EphemeralRunnerPhase};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::stage::hands::running;
use crate::stage::manifests::{RUN, SET};
use crate::stage::{Stage, play};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Waits until a job runs by the service's word; answers its runner's name.
async fn job_runs(stage: &Stage, job: i64) -> String {
    stage
        .until("the job runs", async || {
            let job = stage.actions.job(job);
            job.is_some_and(|job| job.state == JobState::Running)
        })
        .await;
    stage.actions.job(job).unwrap().runner_name
}

/// Whether the pod is there and nobody deletes it.
async fn has_pod(stage: &Stage, runner: &str) -> bool {
    let pod: Option<Pod> = stage.get(RUN, runner).await;
    pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none())
}

async fn reasons_of_events(stage: &Stage, runner: &str) -> Vec<String> {
    let events: Vec<Event> = stage.all().await;
    let about = |event: &Event| event.involved_object.name.as_deref() == Some(runner);
    let own = events.into_iter().filter(about);
    own.filter_map(|event| event.reason).collect()
}

#[test]
fn the_warden_sees_a_working_runner_being_ended() {
    // (whether the job is on record, whether its end is)
    for (started, over) in [(false, false), (true, false), (true, true)] {
        play(async || {
            let stage = Stage::by_hand().await;
            stage.settled_fixture(0, 5).await;
            let runner = stage.scale_up(1, 1).await.remove(0);
            stage.up(&runner).await;
            if started {
                stage.busy(&runner, 8).await;
            } else {
                stage.warden.refuses_to_remove(stage.registration(&runner));
            }
            if over {
                let end = json!({"status": {"jobResult": "canceled"}});
                stage
                    .patch_status::<EphemeralRunner>(RUN, &runner, end)
                    .await;
            }
            stage.assert_sound();
            stage.kill_controller();
            stage.warden.revive();
            let pods = Api::<Pod>::namespaced(stage.as_controller(), RUN);
            pods.delete(&runner, &DeleteParams::default())
                .await
                .unwrap();
            let seen = stage.warden.violations();
            assert!(seen.iter().any(|one| one.starts_with("INV-1:")), "{seen:?}");
        });
    }
}

#[test]
fn the_warden_lets_a_runner_be_ended_whose_job_is_over() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 5).await;
        let runner = stage.scale_up(1, 1).await.remove(0);
        stage.up(&runner).await;
        stage.busy(&runner, 8).await;
        stage.exit(&runner, 0).await;
        stage.ersset(0, 2).await;
        stage
            .until("it is gone", async || stage.runners().await.is_empty())
            .await;
        stage.assert_sound();
    });
}

/// The cleanup steps of a job that is cancelled may take long; the service says at once that the
/// job has completed.
#[test]
fn a_cancelled_job_cleans_up_for_as_long_as_it_takes() {
    play(async || {
        let stage = Stage::whole(31).await;
        stage.settled_fixture(0, 2).await;
        let job = JobSpec::on(SET).lasting(HOUR).cleaning_up(20 * MINUTE);
        let job = stage.actions.queue_job(job);
        let runner = job_runs(&stage, job).await;
        stage.pass(MINUTE).await;
        assert!(stage.actions.cancel_job(job));
        stage
            .until("its end is on record", async || {
                let found: Option<EphemeralRunner> = stage.get(RUN, &runner).await;
                let status = found.and_then(|runner| runner.status);
                status.is_some_and(|status| status.job_finished_at.is_some())
            })
            .await;
        for _ in 0..19 {
            stage.pass(MINUTE - Duration::from_secs(1)).await;
            assert!(has_pod(&stage, &runner).await, "{}", stage.picture().await);
        }
        let found: EphemeralRunner = stage.get(RUN, &runner).await.unwrap();
        let status = found.status.unwrap();
        assert_eq!(status.phase, Some(EphemeralRunnerPhase::Running));
        assert_eq!(status.reason.as_deref(), Some("RunnerDidNotEnd"));
        let events = reasons_of_events(&stage, &runner).await;
        assert!(events.contains(&"RunnerKept".to_owned()), "{events:?}");
        stage
            .within(5 * MINUTE, "it ends by itself, and goes", async || {
                stage.runners().await.is_empty()
            })
            .await;
        stage.settle().await;
        stage.assert_nothing_left_over_beside_runners().await;
        stage.assert_sound();
    });
}

#[test]
fn a_clock_that_jumps_an_hour_ends_no_job() {
    for seed in [32, 33] {
        play(async || {
            let stage = Stage::whole(seed).await;
            stage.settled_fixture(1, 4).await;
            stage.queue_jobs(3, SET, 10 * MINUTE);
            for _ in 0..12 {
                stage.pass(Duration::from_secs(7)).await;
                stage.cluster().clock.jump(3_600_000);
            }
            stage
                .within(HOUR, "all jobs are done", async || stage.jobs_done() == 3)
                .await;
            stage.assert_sound();
        });
    }
}

/// The controller's copy of the pod is that of a pod which has not started.
#[test]
fn a_busy_pod_outlives_a_watch_that_shows_nothing_for_twenty_minutes() {
    for recorded in [true, false] {
        play(async || {
            let stage = Stage::by_hand().await;
            stage.settled_fixture(0, 5).await;
            let runner = stage.scale_up(1, 1).await.remove(0);
            let mut creating = running("runner");
            creating["phase"] = json!("Pending");
            creating["containerStatuses"][0]["state"] =
                json!({"waiting": {"reason": "ContainerCreating"}});
            stage.pod_status(RUN, &runner, creating).await;
            stage.settle().await;
            stage.warden.blind(Some("pods"));
            stage.up(&runner).await;
            if recorded {
                stage.busy(&runner, 8).await;
            } else {
                stage.warden.refuses_to_remove(stage.registration(&runner));
            }
            for _ in 0..20 {
                stage.pass(MINUTE).await;
                assert!(has_pod(&stage, &runner).await, "{}", stage.picture().await);
            }
            stage.warden.blind(None);
            // it may have ended, for want of lists
            stage.start_controller();
            stage.settle().await;
            assert!(stage.is_live(&runner).await);
            stage.assert_sound();
        });
    }
}

/// The node does not come back; its runner has no job.
#[test]
fn an_idle_runner_on_a_lost_node_is_replaced_within_a_minute() {
    play(async || {
        let stage = Stage::whole(34).await;
        stage.settled_fixture(1, 3).await;
        stage
            .until("a runner is there", async || {
                let live = stage.live().await;
                live.iter().any(|runner| {
                    let status = runner.status.as_ref();
                    status.is_some_and(|status| status.ready)
                })
            })
            .await;
        let first = stage.live().await.remove(0).name_any();
        let kubelet = &stage.cluster().kubelet;
        kubelet.fail(RUN, &first, PodFault::NodeLost);
        let pods = Api::<Pod>::namespaced(stage.client.clone(), RUN);
        pods.delete(&first, &DeleteParams::default().grace_period(30))
            .await
            .unwrap();
        stage
            .within(2 * MINUTE, "another takes its place", async || {
                let live = stage.live().await;
                live.iter().any(|runner| {
                    let ready = runner.status.as_ref().is_some_and(|status| status.ready);
                    ready && runner.name_any() != first
                })
            })
            .await;
        let events = reasons_of_events(&stage, &first).await;
        assert!(events.contains(&"RunnerReplaced".to_owned()), "{events:?}");
        let registered = stage.actions.runners();
        assert!(registered.iter().all(|runner| runner.name != first));
        stage.assert_sound();
    });
}

/// A partition, seen from the other side: the runner works, and the service hears it.
#[test]
fn a_busy_runner_on_a_lost_node_is_kept_while_the_service_says_that_it_works() {
    play(async || {
        let stage = Stage::whole(35).await;
        stage.settled_fixture(0, 3).await;
        let job = JobSpec::on(SET).lasting(HOUR);
        let job = stage.actions.queue_job(job);
        let runner = job_runs(&stage, job).await;
        stage.pass(MINUTE).await;
        let kubelet = &stage.cluster().kubelet;
        kubelet.fail(RUN, &runner, PodFault::NodeLost);
        stage.warden.refuses_to_remove(stage.registration(&runner));
        let pods = Api::<Pod>::namespaced(stage.client.clone(), RUN);
        pods.delete(&runner, &DeleteParams::default().grace_period(30))
            .await
            .unwrap();
        stage.pass(20 * MINUTE).await;
        let found: EphemeralRunner = stage.get(RUN, &runner).await.unwrap();
        let status = found.status.unwrap();
        assert_eq!(status.phase, Some(EphemeralRunnerPhase::Running));
        assert_eq!(status.reason.as_deref(), Some("NodeLost"));
        let events = reasons_of_events(&stage, &runner).await;
        assert!(events.contains(&"RunnerKept".to_owned()), "{events:?}");
        stage.assert_sound();
    });
}
