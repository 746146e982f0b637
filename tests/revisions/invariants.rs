//! The warden sees what must not be: each check is shown to fire on a write that a controller in
//! disorder might make. The real one is dead while that happens.

use embedded_actions::{CallInfo, Interceptor as _, JobSpec, JobState};
use impresario::api::{
    AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet,
};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;

use crate::stage::manifests::{RUN, SET};
use crate::stage::{Known, Stage, play};

/// Longer than requests may cross each other.
const A_WHILE: Duration = Duration::from_secs(3);

/// Plays what leads to a scene without a controller and, after it, a write in its name; answers
/// with what the warden says of that write.
fn forged(scene: impl AsyncFn(&Stage), write: impl AsyncFn(&Stage, &Forger)) -> Vec<String> {
    play(async || {
        let stage = Stage::by_hand().await;
        scene(&stage).await;
        stage.settle().await;
        stage.kill_controller();
        stage.pass(A_WHILE).await;
        assert_eq!(stage.warden.violations(), [""; 0]);
        write(&stage, &Forger(stage.as_controller())).await;
        stage.warden.violations()
    })
}

/// Writes in the controller's name.
struct Forger(kube::Client);

impl Forger {
    fn api<K: Known>(&self, namespace: &str) -> kube::Api<K> {
        kube::Api::namespaced(self.0.clone(), namespace)
    }

    async fn status<K: Known>(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({"status": status}));
        let api = self.api::<K>(RUN);
        api.patch_status(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Makes another runner like that one.
    async fn another_like(&self, stage: &Stage, runner: &str) {
        let mut copy: EphemeralRunner = stage.get(RUN, runner).await.unwrap();
        copy.metadata.name = Some("another".to_owned());
        copy.metadata.resource_version = None;
        copy.metadata.uid = None;
        copy.status = None;
        let api = self.api::<EphemeralRunner>(RUN);
        api.create(&PostParams::default(), &copy).await.unwrap();
    }
}

#[track_caller]
fn assert_only(violations: &[String], about: &str) {
    assert_eq!(violations.len(), 1, "{violations:#?}");
    assert!(violations[0].starts_with(about), "{violations:#?}");
}

/// A settled scale set with so many runners, all of them ready.
async fn with_runners(stage: &Stage, count: usize) -> Vec<String> {
    stage.settled_fixture(0, 10).await;
    let names = stage.scale_up(count, 1).await;
    for name in &names {
        stage.up(name).await;
    }
    names
}

async fn first(stage: &Stage) -> String {
    stage.runners().await.remove(0).name_any()
}

// === INV-2 ===

/// Of two runners one has finished, and nobody has counted it yet.
async fn one_of_two_has_finished(stage: &Stage) {
    let names = with_runners(stage, 2).await;
    stage.busy(&names[0], 1).await;
    stage.exit(&names[0], 0).await;
}

#[test]
fn a_runner_made_for_a_job_that_has_ended_is_seen() {
    let found = forged(one_of_two_has_finished, async |stage, forger| {
        forger.another_like(stage, &first(stage).await).await;
    });
    assert_only(&found, "INV-2:");
}

#[test]
fn a_finished_runner_that_a_later_patch_still_counts_on_is_not_replaced_under_it() {
    let scene = async |stage: &Stage| {
        let names = with_runners(stage, 2).await;
        stage.busy(&names[0], 1).await;
        stage.kill_controller();
        // the message that led to this patch is older than the job's end
        stage.ersset(2, 2).await;
        stage.exit(&names[0], 0).await;
        let status = json!({"phase": "Succeeded"});
        stage
            .patch_status::<EphemeralRunner>(RUN, &names[0], status)
            .await;
    };
    let found = forged(scene, async |stage, forger| {
        forger.another_like(stage, &first(stage).await).await;
    });
    assert_only(&found, "INV-2:");
}

#[test]
fn a_runner_made_for_a_new_patch_or_without_one_is_none_of_that() {
    // (replicas, patch id)
    for (replicas, patch) in [(3, 2), (2, 0)] {
        let found = forged(one_of_two_has_finished, async |stage, forger| {
            stage.ersset(replicas, patch).await;
            stage.pass(A_WHILE).await;
            forger.another_like(stage, &first(stage).await).await;
        });
        assert_eq!(found, [""; 0], "{replicas} under {patch}");
    }
}

#[test]
fn a_finished_runner_that_the_listener_has_left_out_may_be_replaced() {
    let scene = async |stage: &Stage| {
        with_runners(stage, 2).await;
    };
    let end = "2026-03-04T06:00:00.123456Z";
    let before = "2026-03-04T06:00:00.123455Z";
    for (told, expected) in [(end, 0), (before, 1)] {
        let found = forged(scene, async |stage, forger| {
            let runner = first(stage).await;
            let status = json!({
                "phase": "Succeeded", "jobFinishedAt": end, "jobResult": "succeeded",
            });
            stage
                .patch_status::<EphemeralRunner>(RUN, &runner, status)
                .await;
            let annotations = json!({"impresario.dev/jobs-counted-until": told});
            let patch = json!({"metadata": {"annotations": annotations}});
            stage.patch::<EphemeralRunnerSet>(RUN, SET, patch).await;
            forger.another_like(stage, &runner).await;
        });
        assert_eq!(found.len(), expected, "{found:#?}");
    }
}

// === INV-3 ===

#[test]
fn a_runner_too_many_is_seen() {
    let scene = async |stage: &Stage| {
        with_runners(stage, 2).await;
    };
    let found = forged(scene, async |stage, forger| {
        forger.another_like(stage, &first(stage).await).await;
    });
    assert!(
        found.iter().any(|one| one.starts_with("INV-3:")),
        "{found:#?}"
    );
}

// === INV-7 ===

async fn one_is_rejected(stage: &Stage) {
    let names = with_runners(stage, 1).await;
    stage.exit(&names[0], 7).await;
}

#[test]
fn outdated_without_a_verdict_is_seen() {
    let scene = async |stage: &Stage| {
        with_runners(stage, 1).await;
    };
    let found = forged(scene, async |_, forger| {
        forger
            .status::<EphemeralRunnerSet>(SET, json!({"phase": "Outdated"}))
            .await;
    });
    assert_only(&found, "INV-7: Outdated without a verdict about revision 1");
}

#[test]
fn outdated_for_a_verdict_about_an_older_revision_is_seen() {
    let scene = async |stage: &Stage| {
        let names = with_runners(stage, 1).await;
        stage.busy(&names[0], 1).await;
        stage.set_image("img:2").await;
        stage.settle().await;
        stage.exit(&names[0], 7).await;
    };
    let found = forged(scene, async |_, forger| {
        forger
            .status::<EphemeralRunnerSet>(SET, json!({"phase": "Outdated"}))
            .await;
    });
    assert_only(&found, "INV-7: Outdated without a verdict about revision 2");
}

#[test]
fn running_in_spite_of_a_verdict_is_seen() {
    let found = forged(one_is_rejected, async |_, forger| {
        forger
            .status::<EphemeralRunnerSet>(SET, json!({"phase": "Running"}))
            .await;
    });
    assert_only(&found, "INV-7: Running at revision 1");
}

#[test]
fn a_verdict_that_is_not_said_is_seen_at_rest() {
    let found = forged(one_is_rejected, async |stage, _| {
        // a person does what a controller would be caught at
        let status = json!({"phase": "Running"});
        stage
            .patch_status::<EphemeralRunnerSet>(RUN, SET, status)
            .await;
        stage.settle().await;
    });
    assert_only(&found, "INV-7: set is not Outdated");
}

#[test]
fn a_scale_set_that_is_parked_for_nothing_is_seen() {
    let scene = async |stage: &Stage| {
        with_runners(stage, 1).await;
    };
    let found = forged(scene, async |_, forger| {
        forger
            .status::<AutoscalingRunnerSet>(SET, json!({"phase": "Outdated"}))
            .await;
    });
    assert_only(&found, "INV-7: set is parked");
}

// === INV-8 ===

#[test]
fn an_applied_revision_that_moves_backwards_is_seen() {
    let scene = async |stage: &Stage| stage.settled_fixture(0, 10).await;
    let found = forged(scene, async |_, forger| {
        let status = json!({"appliedActionableRevision": 0});
        forger.status::<EphemeralRunnerSet>(SET, status).await;
    });
    assert_only(&found, "INV-8: the applied revision goes from 1 to 0");
}

#[test]
fn a_revision_applied_before_its_idle_runners_are_gone_is_seen() {
    let scene = async |stage: &Stage| {
        let names = with_runners(stage, 2).await;
        stage.busy(&names[0], 1).await;
    };
    let found = forged(scene, async |stage, forger| {
        let patch = json!({"spec": {"actionableRevision": 2}});
        stage.patch::<EphemeralRunnerSet>(RUN, SET, patch).await;
        let status = json!({"appliedActionableRevision": 2});
        forger.status::<EphemeralRunnerSet>(SET, status).await;
    });
    assert_only(&found, "INV-8: revision 2 is applied beside idle");
}

#[test]
fn a_revision_applied_beside_runners_that_the_service_keeps_is_none_of_that() {
    let scene = async |stage: &Stage| {
        let names = with_runners(stage, 1).await;
        // the service has given it a job, of which nothing has been heard
        let id = stage.registration(&names[0]);
        stage.warden.refuses_to_remove(id);
        stage.set_image("img:2").await;
    };
    let found = forged(scene, async |stage, _| {
        let set = stage.runner_set().await;
        assert_eq!(set.status.unwrap().applied_actionable_revision, Some(2));
        assert_eq!(stage.live().await.len(), 1);
    });
    assert_eq!(found, [""; 0]);
}

// === INV-10 ===

#[test]
#[should_panic(expected = "left over: [\"gone\"]")]
fn what_a_runner_that_is_gone_has_left_is_seen() {
    play(async || {
        let stage = Stage::by_hand().await;
        with_runners(&stage, 1).await;
        stage.assert_nothing_left_over_beside_runners().await;
        let secret = json!({"metadata": {"name": "gone"}, "stringData": {"jitToken": "t"}});
        let api = Forger(stage.as_controller()).api::<Secret>(RUN);
        let secret = serde_json::from_value(secret).unwrap();
        api.create(&PostParams::default(), &secret).await.unwrap();
        stage.assert_nothing_left_over_beside_runners().await;
    });
}

// === INV-11 ===

#[test]
fn a_second_listener_and_a_second_pod_of_one_are_seen() {
    let scene = async |stage: &Stage| stage.settled_fixture(0, 10).await;
    let found = forged(scene, async |stage, forger| {
        let mut pod = stage.listener_pods().await.remove(0);
        pod.metadata.name = Some("second".to_owned());
        pod.metadata.resource_version = None;
        pod.metadata.uid = None;
        pod.status = None;
        let api = forger.api::<Pod>(CONTROLLER_NAMESPACE);
        api.create(&PostParams::default(), &pod).await.unwrap();
    });
    assert_only(&found, "INV-11:");
    let found = forged(scene, async |stage, forger| {
        let mut listener = stage.all::<AutoscalingListener>().await.remove(0);
        listener.metadata.name = Some("second".to_owned());
        listener.metadata.resource_version = None;
        listener.metadata.uid = None;
        let api = forger.api::<AutoscalingListener>(CONTROLLER_NAMESPACE);
        api.create(&PostParams::default(), &listener).await.unwrap();
    });
    assert_only(&found, "INV-11:");
}

// === INV-13 ===

#[test]
fn a_removal_of_runner_0_is_seen() {
    play(async || {
        let stage = Stage::by_hand().await;
        for (id, expected) in [(7, 0), (0, 1)] {
            let path = format!("/_apis/distributedtask/pools/0/agents/{id}");
            let call = CallInfo {
                name: "remove_runner",
                path: &path,
                query: "",
            };
            let fault = stage.warden.intercept(&call);
            assert!(fault.is_none());
            let seen = stage.warden.violations();
            assert_eq!(seen.len(), expected, "{seen:#?}");
            assert!(seen.iter().all(|one| one.starts_with("INV-13:")));
        }
    });
}

// === INV-14 ===

#[test]
#[should_panic(expected = "written at rest")]
fn a_write_at_rest_is_seen() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 10).await;
        let forger = Forger(stage.as_controller());
        let writing = async {
            stage.pass(Duration::from_secs(50)).await;
            forger
                .status::<AutoscalingRunnerSet>(SET, json!({"currentRunners": 3}))
                .await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = writing => {}
            () = stage.assert_at_rest() => {}
        }
    });
}

// === INV-15 ===

#[test]
fn a_scale_set_that_is_not_gone_is_seen() {
    play(async || {
        let stage = Stage::by_hand().await;
        with_runners(&stage, 1).await;
        let left = stage.leftovers().await;
        // the four custom resources, both pods, the service's scale set and runner, and more
        for what in [
            "AutoscalingRunnerSet ",
            "AutoscalingListener ",
            "EphemeralRunnerSet ",
            "EphemeralRunner ",
            "Pod ",
            "Secret ",
            "ServiceAccount ",
            "Role ",
            "RoleBinding ",
        ] {
            assert!(
                left.iter().any(|one| one.starts_with(what)),
                "{what}: {left:#?}"
            );
        }
    });
}

// === INV-16 ===

#[test]
#[should_panic(expected = "the job runs")]
fn a_job_that_gets_no_runner_is_seen() {
    play(async || {
        let stage = Stage::whole(5).await;
        stage.settled_fixture(0, 2).await;
        stage.kill_controller();
        let job = stage.actions.queue_job(JobSpec::on(SET));
        stage
            .until("the job runs", async || {
                let jobs = stage.actions.jobs();
                let own = jobs.iter().find(|one| one.id == job);
                own.is_some_and(|one| one.state == JobState::Running)
            })
            .await;
    });
}
