//! Somebody deletes the scale set in GitHub while its listener runs.

use std::time::Duration;

use embedded_actions::Refusal;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;

use crate::stage::manifests::SET;
use crate::stage::{Stage, Trouble, play};

const JOB: Duration = Duration::from_secs(20);

/// Deletes the scale set there, as a person with the REST API does.
async fn delete_in_github(stage: &Stage) -> i64 {
    let sets = stage.actions.scale_sets();
    let [set] = &sets[..] else { panic!("{sets:?}") };
    stage.github().delete_scale_set(set.id).await.unwrap();
    set.id
}

async fn recorded_id(stage: &Stage) -> i64 {
    let set = stage.scale_set().await;
    set.annotations()["runner-scale-set-id"].parse().unwrap()
}

#[test]
fn a_scale_set_that_was_deleted_in_github_is_registered_again_and_serves_jobs() {
    play(async || {
        let stage = Stage::whole(41).await;
        stage.settled_fixture(1, 4).await;
        let old = delete_in_github(&stage).await;
        stage
            .until("the scale set is there again", async || {
                recorded_id(&stage).await != old
            })
            .await;
        let new = recorded_id(&stage).await;
        stage
            .until("all are told", async || {
                let runner_set = stage.runner_set().await;
                let spec = runner_set.spec.ephemeral_runner_spec.unwrap();
                let listener = stage.listener().await;
                spec.runner_scale_set_id == new && listener.spec.runner_scale_set_id == new
            })
            .await;
        stage.queue_jobs(3, SET, JOB);
        stage
            .until("all jobs are done", async || stage.jobs_done() == 3)
            .await;
        stage
            .until("it is settled", async || stage.is_settled().await)
            .await;
        let sets = stage.actions.scale_sets();
        assert_eq!(sets.len(), 1, "{sets:?}");
        assert_eq!(sets[0].name, SET);
        let events = stage.all::<Event>().await;
        let lost = |event: &&Event| event.reason.as_deref() == Some("ScaleSetLost");
        let told: Vec<&Event> = events.iter().filter(lost).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        let message = told[0].message.clone().unwrap();
        assert!(message.contains(&format!("id {old} ")), "{message}");
        stage.settle().await;
        stage.assert_nothing_left_over_beside_runners().await;
        stage.assert_sound();
        stage.delete_scale_set().await;
    });
}

#[test]
fn a_job_that_runs_while_its_scale_set_is_deleted_does_not_keep_it_from_coming_back() {
    play(async || {
        let stage = Stage::whole(42).await;
        stage.settled_fixture(0, 4).await;
        stage.queue_jobs(2, SET, Duration::from_secs(3600));
        stage
            .until("the jobs run", async || {
                let runners = stage.actions.runners();
                runners.iter().filter(|one| one.job.is_some()).count() == 2
            })
            .await;
        let old = delete_in_github(&stage).await;
        stage.queue_jobs(2, SET, JOB);
        stage
            .until("the scale set is there again", async || {
                recorded_id(&stage).await != old
            })
            .await;
        stage
            .until("the new jobs are done", async || stage.jobs_done() == 2)
            .await;
        stage.settle().await;
        stage.assert_nothing_left_over_beside_runners().await;
    });
}

#[test]
fn a_controller_that_dies_while_it_registers_again_still_registers_once() {
    for (writes, seed) in (1..).zip(51..55) {
        for trouble in [Trouble::DeathBefore(writes), Trouble::DeathAfter(writes)] {
            play(async || {
                let stage = Stage::whole_without_log(seed).await;
                stage.settled_fixture(1, 4).await;
                let old = delete_in_github(&stage).await;
                stage.warden.plan(trouble);
                stage.warden.death().await;
                stage.pass(Duration::from_secs(2)).await;
                stage.start_controller();
                stage
                    .within(Duration::from_secs(300), "it serves jobs", async || {
                        recorded_id(&stage).await != old && stage.is_settled().await
                    })
                    .await;
                stage.queue_jobs(2, SET, JOB);
                stage
                    .until("all jobs are done", async || stage.jobs_done() == 2)
                    .await;
                stage.settle().await;
                assert_eq!(stage.actions.scale_sets().len(), 1);
                assert_eq!(stage.service()["create_scale_set"], 2);
                stage.assert_sound();
            });
        }
    }
}

/// What the service answers for a moment, by calls of both listener and controller.
fn not_found() -> Refusal {
    Refusal::new(
        404,
        "RunnerScaleSetNotFoundException",
        "No runner scale set found.",
    )
}

#[test]
fn a_service_that_does_not_know_the_scale_set_for_a_moment_changes_nothing() {
    for flaps in [1, 4] {
        play(async || {
            let stage = Stage::whole(43).await;
            stage.settled_fixture(1, 4).await;
            let id = recorded_id(&stage).await;
            let listener = (stage.listener().await.uid(), stage.listener_uid().await);
            let faults = stage.actions.faults();
            for _ in 0..flaps {
                faults.next("open_session", not_found());
            }
            faults.next("refresh_session", not_found());
            stage.actions.drop_sessions();
            stage
                .until("a session is open again", async || {
                    stage.actions.sessions().len() == 1
                })
                .await;
            stage.pass(Duration::from_secs(300)).await;
            assert_eq!(recorded_id(&stage).await, id);
            let now = (stage.listener().await.uid(), stage.listener_uid().await);
            assert_eq!(now, listener);
            assert_eq!(stage.service()["create_scale_set"], 1);
        });
    }
}

#[test]
fn a_scale_set_that_the_controller_finds_after_all_costs_one_listener_pod() {
    play(async || {
        let stage = Stage::whole(44).await;
        stage.settled_fixture(1, 4).await;
        let id = recorded_id(&stage).await;
        let (listener, pod) = (stage.listener().await.uid(), stage.listener_uid().await);
        let faults = stage.actions.faults();
        for _ in 0..5 {
            faults.next("open_session", not_found());
        }
        stage.actions.drop_sessions();
        stage
            .until("another pod runs", async || {
                let now = stage.listener_uid().await;
                now.is_some() && now != pod && stage.actions.sessions().len() == 1
            })
            .await;
        let second = stage.listener_uid().await;
        stage.pass(Duration::from_secs(1800)).await;
        assert_eq!(stage.listener_uid().await, second);
        assert_eq!(stage.listener().await.uid(), listener);
        assert_eq!(recorded_id(&stage).await, id);
        assert_eq!(stage.service()["create_scale_set"], 1);
        // before the listener's creation, and when it had ended
        assert_eq!(stage.warden.calls("get_scale_set"), 1);
        stage.assert_sound();
    });
}

#[test]
fn while_the_service_denies_the_scale_set_pods_are_made_ever_more_slowly() {
    play(async || {
        let stage = Stage::whole(45).await;
        stage.settled_fixture(1, 4).await;
        let id = recorded_id(&stage).await;
        // denied to the listener only, as to credentials that see less
        stage.actions.faults().always("open_session", not_found());
        stage.actions.drop_sessions();
        stage.pass(Duration::from_secs(3600)).await;
        let made = stage.warden.writes();
        let made = made
            .iter()
            .filter(|write| write.verb == "create" && write.resource == "pods")
            .filter(|write| write.namespace == "arc-systems")
            .count();
        assert!((5..20).contains(&made), "{made}");
        assert_eq!(recorded_id(&stage).await, id);
        assert_eq!(stage.service()["create_scale_set"], 1);
        stage.actions.faults().clear("open_session");
        stage
            .within(Duration::from_secs(400), "it listens again", async || {
                stage.actions.sessions().len() == 1
            })
            .await;
    });
}
