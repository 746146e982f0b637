//! A new revision comes before the id of a runner is on record (SCN-37): the runner is given a
//! minute, and the service is never asked about id 0.

use std::time::Duration;

use impresario::api::EphemeralRunner;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::scenes::{embedded, is_observed, revision, revisions};
use crate::stage::manifests::RUN;
use crate::stage::{Hindrance, Stage, Writes};

/// Most of the time that a runner is given.
const NEARLY_ALL: Duration = Duration::from_secs(45);

/// One runner, registered, with a pod, and without an id on record.
async fn unrecorded(stage: &Stage) -> (String, i64, Hindrance) {
    stage.settled_fixture(0, 10).await;
    let held = stage
        .warden
        .hold(Writes::of("patch", "ephemeralrunners/status"));
    stage.ersset(1, 1).await;
    stage
        .until("there is a pod", async || {
            stage.runner_pods().await.len() == 1
        })
        .await;
    let runner = stage.live().await.remove(0).name_any();
    let id = stage.registration(&runner);
    assert_eq!(recorded(stage, &runner).await, 0);
    (runner, id, held)
}

async fn recorded(stage: &Stage, runner: &str) -> i64 {
    let runner: EphemeralRunner = stage.get(RUN, runner).await.unwrap();
    let status = runner.status.unwrap_or_default();
    status.runner_id.unwrap_or(0)
}

async fn has_pod(stage: &Stage, runner: &str) -> bool {
    let pod: Option<Pod> = stage.get(RUN, runner).await;
    pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none())
}

/// The service is not asked, runner and pod are there, and the revision is not applied.
async fn assert_waits(stage: &Stage, runner: &str) {
    assert_eq!(stage.service()["remove_runner"], 0);
    assert!(stage.is_live(runner).await && has_pod(stage, runner).await);
    assert_eq!(revisions(&stage.runner_set().await), (2, 1));
    assert!(!is_observed(stage).await);
}

#[test]
fn an_id_that_comes_late_is_waited_for_and_then_asked_about() {
    embedded(async |stage| {
        let (runner, id, held) = unrecorded(stage).await;
        stage.set_image("img:2").await;
        stage.pass(NEARLY_ALL).await;
        assert_waits(stage, &runner).await;

        stage.warden.refuses_to_remove(id);
        assert!(held.met() > 0, "the id is on its way");
        held.lift();
        stage
            .until("it is applied", async || {
                revisions(&stage.runner_set().await) == (2, 2)
            })
            .await;
        assert_eq!(stage.warden.removals(), [id]);
        // a runner of an older revision that was kept is asked again, less and less often
        stage.pass(Duration::from_secs(120)).await;
        let asked = stage.warden.removals();
        assert!(asked.iter().all(|asked| *asked == id), "{asked:?}");
        assert!((2..=4).contains(&asked.len()), "{asked:?}");
        assert!(stage.is_live(&runner).await && has_pod(stage, &runner).await);
        assert_eq!(recorded(stage, &runner).await, id);
        assert!(is_observed(stage).await);
        stage.assert_at_rest().await;
    });
}

/// Variant N.
#[test]
fn an_id_that_never_comes_costs_the_runner_and_not_its_pod_before_the_service_lets_go() {
    embedded(async |stage| {
        let (runner, id, held) = unrecorded(stage).await;
        stage.warden.refuses_to_remove(id);
        stage.set_image("img:2").await;
        stage.pass(NEARLY_ALL).await;
        assert_waits(stage, &runner).await;

        let soon = Duration::from_secs(90);
        stage
            .within(soon, "it is being deleted", async || {
                !stage.is_live(&runner).await
            })
            .await;
        stage
            .until("the service is asked", async || {
                stage.warden.removals().first() == Some(&id)
            })
            .await;
        stage.pass(Duration::from_secs(200)).await;
        assert!(has_pod(stage, &runner).await, "the service refuses");
        assert!(stage.get::<EphemeralRunner>(RUN, &runner).await.is_some());
        assert!(stage.warden.removals().iter().all(|asked| *asked == id));

        stage.warden.lets_remove(id);
        stage
            .until("it is gone", async || {
                stage.get::<EphemeralRunner>(RUN, &runner).await.is_none()
                    && !has_pod(stage, &runner).await
            })
            .await;
        held.lift();
        stage
            .until("another takes its place", async || {
                stage.live().await.len() == 1
            })
            .await;
        stage.settle().await;
        assert_eq!(revisions(&stage.runner_set().await), (2, 2));
        assert_eq!(revision(&stage.live().await[0]), 2);
        stage.assert_at_rest().await;
    });
}

/// Variant J.
#[test]
fn a_job_that_comes_before_the_id_keeps_the_runner() {
    embedded(async |stage| {
        let (runner, _, held) = unrecorded(stage).await;
        stage.set_image("img:2").await;
        stage.pass(Duration::from_secs(10)).await;
        assert_waits(stage, &runner).await;
        stage.busy(&runner, 77).await;
        for _ in 0..10 {
            stage.pass(Duration::from_secs(30)).await;
            assert!(stage.is_live(&runner).await && has_pod(stage, &runner).await);
        }
        assert_eq!(revisions(&stage.runner_set().await), (2, 2));
        let asked = stage.warden.removals();
        assert!(asked.is_empty(), "it has a job: {asked:?}");
        held.lift();
        stage.settle().await;
        stage.exit(&runner, 0).await;
        stage.ersset(0, 2).await;
        stage
            .until("it is gone", async || stage.runners().await.is_empty())
            .await;
    });
}
