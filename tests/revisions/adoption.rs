//! A cluster as ARC 0.14 leaves it, with busy and idle runners, gets our controller: nobody is
//! deleted, the listener is restarted once at most, and then there is silence.

use impresario::api::constants::annotations::{
    ACTIONABLE_REVISION, INTEGRITY_HASH, LISTENER_CONFIG_RESOURCE_VERSION, PATCH_ID,
};
use impresario::api::constants::labels;
use impresario::api::{
    AutoscalingListener, AutoscalingRunnerSet, AutoscalingRunnerSetPhase, EphemeralRunner,
    EphemeralRunnerSet,
};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::scenes::{embedded, is_observed, phase, revision, revisions};
use crate::stage::manifests::{RUN, SET};
use crate::stage::{Known, Stage};

/// The version of ARC's charts and controller.
const ARC: &str = "0.14.2";
const ARC_IMAGE: &str = "ghcr.io/actions/gha-runner-scale-set-controller:0.14.2";

/// What the tests compare before and after.
struct Left {
    /// The runner with a job.
    busy: String,
    runners: Vec<(String, Option<String>, Option<String>)>,
    runner_set: Option<String>,
}

/// A scale set with three runners, one of them busy, as ARC leaves it when it is uninstalled.
async fn left_by_arc(stage: &Stage) -> Left {
    stage.settled_fixture(0, 10).await;
    let names = stage.scale_up(3, 4).await;
    for name in &names {
        stage.up(name).await;
    }
    stage.busy(&names[0], 7).await;
    stage.settle().await;
    stage.kill_controller();

    strip_scale_set(stage).await;
    strip_runner_set(stage).await;
    for (at, name) in names.iter().enumerate() {
        strip_runner(stage, name, at).await;
    }
    strip_listener(stage).await;
    Left {
        busy: names[0].clone(),
        runners: runners(stage).await,
        runner_set: stage.runner_set().await.uid(),
    }
}

/// ARC's labels and leftovers, and none of our annotations.
fn metadata(ours: &[&str]) -> Value {
    let mut metadata = json!({"labels": {}, "annotations": {INTEGRITY_HASH: "5d41402abc4b2a76"}});
    metadata["labels"][labels::VERSION] = ARC.into();
    for name in ours {
        metadata["annotations"][*name] = Value::Null;
    }
    metadata
}

async fn strip<K: Known>(stage: &Stage, namespace: &str, name: &str, ours: &[&str]) {
    let patch = json!({"metadata": metadata(ours)});
    stage.patch::<K>(namespace, name, patch).await;
}

async fn strip_scale_set(stage: &Stage) {
    strip::<AutoscalingRunnerSet>(stage, RUN, SET, &[]).await;
    let status = json!({
        "phase": null, "observedGeneration": null, "conditions": null, "currentRunners": 3,
        "pendingEphemeralRunners": null, "runningEphemeralRunners": 1,
    });
    stage
        .patch_status::<AutoscalingRunnerSet>(RUN, SET, status)
        .await;
}

async fn strip_runner_set(stage: &Stage) {
    // Go writes empty structs and strings where there is nothing
    let patch = json!({
        "metadata": metadata(&[]),
        "spec": {
            "actionableRevision": null,
            "ephemeralRunnerMetadata": {},
            "ephemeralRunnerSpec": {
                "metadata": {"creationTimestamp": null},
                "proxySecretRef": "",
                "spec": {"restartPolicy": "Never", "containers": [
                    {"name": "runner", "image": "img:1", "resources": {}, "env": [], "command": []},
                ]},
            },
        },
    });
    stage.patch::<EphemeralRunnerSet>(RUN, SET, patch).await;
    let status = json!({
        "phase": null, "appliedActionableRevision": null, "finishedRunnerCleanupPatchID": null,
        "currentReplicas": 3, "pendingEphemeralRunners": 2, "runningEphemeralRunners": 1,
    });
    stage
        .patch_status::<EphemeralRunnerSet>(RUN, SET, status)
        .await;
}

/// Runner, pod and Secret. Of ARC's runners only the newer ones carry a patch id.
async fn strip_runner(stage: &Stage, name: &str, at: usize) {
    let ours: &[&str] = if at == 2 {
        &[ACTIONABLE_REVISION]
    } else {
        &[ACTIONABLE_REVISION, PATCH_ID]
    };
    strip::<EphemeralRunner>(stage, RUN, name, ours).await;
    strip::<Pod>(stage, RUN, name, ours).await;
    strip::<Secret>(stage, RUN, name, ours).await;
}

async fn strip_listener(stage: &Stage) {
    let listener = stage.all::<AutoscalingListener>().await.remove(0);
    let name = listener.name_any();
    let patch = json!({"metadata": metadata(&[]), "spec": {"image": ARC_IMAGE, "phase": null}});
    stage
        .patch::<AutoscalingListener>(CONTROLLER_NAMESPACE, &name, patch)
        .await;
    let pod = stage.listener_pods().await.remove(0).name_any();
    let patch = json!({
        "metadata": metadata(&[LISTENER_CONFIG_RESOURCE_VERSION]),
        "spec": {"containers": [{"name": "listener", "image": ARC_IMAGE}]},
    });
    let api = kube::Api::<Pod>::namespaced(stage.client.clone(), CONTROLLER_NAMESPACE);
    api.patch(&pod, &PatchParams::default(), &Patch::Strategic(patch))
        .await
        .unwrap();
    let config = format!("{name}-config");
    strip::<Secret>(stage, CONTROLLER_NAMESPACE, &config, &[]).await;
    let theirs = json!({
        "configureUrl": "https://gh.test/org/repo", "runnerScaleSetId": 1, "metrics": null,
    });
    let patch = json!({"stringData": {"config.json": theirs.to_string()}});
    stage
        .patch::<Secret>(CONTROLLER_NAMESPACE, &config, patch)
        .await;
    strip::<ServiceAccount>(stage, CONTROLLER_NAMESPACE, &name, &[]).await;
    strip::<RoleBinding>(stage, RUN, &name, &[]).await;
    let rules = json!({"metadata": metadata(&[]), "rules": [
        {"apiGroups": ["actions.github.com"], "resources": ["ephemeralrunnersets"],
         "resourceNames": [SET], "verbs": ["patch"]},
        {"apiGroups": ["actions.github.com"],
         "resources": ["ephemeralrunners", "ephemeralrunners/status"], "verbs": ["patch"]},
    ]});
    stage.patch::<Role>(RUN, &name, rules).await;
}

/// Name, uid, and uid of the pod of each runner.
async fn runners(stage: &Stage) -> Vec<(String, Option<String>, Option<String>)> {
    let mut all = Vec::new();
    for runner in stage.live().await {
        let name = runner.name_any();
        let pod: Option<Pod> = stage.get(RUN, &name).await;
        all.push((name, runner.uid(), pod.and_then(|pod| pod.uid())));
    }
    all
}

/// Our controller starts, and its listener's pod too, until everything is at rest.
async fn adopt(stage: &Stage, left: &Left) {
    let pods = stage.created("pods");
    let listeners = stage.created("autoscalinglisteners");
    stage.start_controller();
    stage
        .until("another listener pod", async || {
            stage.created("pods") > pods && !stage.listener_pods().await.is_empty()
        })
        .await;
    stage.start_listener().await;
    stage
        .until("it is settled", async || stage.is_settled().await)
        .await;
    stage.settle().await;

    assert_eq!(runners(stage).await, left.runners, "nobody is touched");
    assert_eq!(stage.warden.count("delete", "ephemeralrunners"), 0);
    assert_eq!(stage.service()["remove_runner"], 0);
    assert_eq!(stage.runner_set().await.uid(), left.runner_set);
    assert_eq!(stage.created("ephemeralrunnersets"), 1);
    assert_eq!(stage.created("ephemeralrunners"), 3);
    assert_eq!(stage.created("pods"), pods + 1, "one restart");
    assert!(stage.created("autoscalinglisteners") <= listeners + 1);
    assert_eq!(stage.service()["create_scale_set"], 1);
    // it was never bumped: what runs is what is wanted
    assert_eq!(revisions(&stage.runner_set().await), (0, 0));
    stage.assert_at_rest().await;
}

#[test]
fn what_arc_leaves_is_taken_over_as_it_is() {
    embedded(async |stage| {
        let left = left_by_arc(stage).await;
        adopt(stage, &left).await;
        assert_eq!(phase(stage).await, Some(AutoscalingRunnerSetPhase::Running));
        assert!(is_observed(stage).await);

        // and works on: a job ends, the listener asks for less
        stage.exit(&left.busy, 0).await;
        stage.ersset(2, 5).await;
        stage
            .until("two are left", async || stage.runners().await.len() == 2)
            .await;
        // another controller finds nothing to do
        stage.settle().await;
        let pods = stage.created("pods");
        stage.start_controller();
        stage.assert_at_rest().await;
        assert_eq!(stage.created("pods"), pods);
        stage.delete_scale_set().await;
    });
}

/// The first change of the runner spec under our controller.
#[test]
fn the_first_change_replaces_what_arc_made_and_spares_its_busy_runner() {
    embedded(async |stage| {
        let left = left_by_arc(stage).await;
        adopt(stage, &left).await;
        stage.set_image("img:2").await;
        stage
            .until("it is applied", async || {
                revisions(&stage.runner_set().await) == (1, 1)
            })
            .await;
        stage
            .until("there are three again", async || {
                stage.live().await.len() == 3 && stage.runner_pods().await.len() == 3
            })
            .await;
        stage.settle().await;
        let live = stage.live().await;
        assert_eq!(live[0].name_any(), left.busy);
        assert_eq!((revision(&live[0]), revision(&live[1])), (0, 1));
        stage.assert_at_rest().await;
    });
}

/// While ARC's objects are taken over, our controller is killed and started again.
#[test]
fn an_interrupted_takeover_is_completed() {
    for writes in 1..=6 {
        embedded(async |stage| {
            let left = left_by_arc(stage).await;
            let pods = stage.created("pods");
            stage.start_controller();
            stage.warden.plan(crate::stage::Trouble::DeathAfter(writes));
            stage.warden.death().await;
            stage.start_controller();
            stage
                .until("there is a listener pod", async || {
                    stage.created("pods") > pods && stage.listener_pods().await.len() == 1
                })
                .await;
            stage.start_listener().await;
            stage
                .until("it is settled", async || stage.is_settled().await)
                .await;
            stage.settle().await;
            assert_eq!(runners(stage).await, left.runners, "after {writes} writes");
            assert_eq!(stage.created("pods"), pods + 1, "after {writes} writes");
            stage.assert_at_rest().await;
        });
    }
}
