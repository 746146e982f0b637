//! Hands: the test as person, listener and kubelet, on any cluster.

use std::time::Duration;

use impresario::api::{
    AutoscalingRunnerSet, AutoscalingRunnerSetPhase, EphemeralRunner, EphemeralRunnerSet,
};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::manifests::{RUN, SET, fixture};
use super::{Known, Stage};

/// Time stamps that the kubelet of the tests writes; nothing decides by them.
const WHEN: &str = "2026-03-04T05:06:07Z";

impl Stage {
    /// Applies fixture F and waits until it has settled. Where the test plays the kubelet, it
    /// starts the listener's pod.
    pub async fn settled_fixture(&self, min: i64, max: i64) {
        self.apply(&fixture(min, max)).await;
        if !self.runs_pods {
            self.until("a listener pod", async || {
                !self.listener_pods().await.is_empty()
            })
            .await;
            self.start_listener().await;
        }
        self.until("the scale set is settled", async || self.is_settled().await)
            .await;
        self.settle().await;
    }

    /// Whether phase, generation and condition say that all is in place.
    pub async fn is_settled(&self) -> bool {
        let set = self.scale_set().await;
        let status = set.status.clone().unwrap_or_default();
        status.phase == Some(AutoscalingRunnerSetPhase::Running)
            && status.observed_generation == set.metadata.generation
    }

    // === as a person ===

    /// Merges something into an object.
    pub async fn patch<K: Known>(&self, namespace: &str, name: &str, patch: Value) {
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        let patched = api
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        patched.unwrap_or_else(|error| panic!("{} {name}: {error}", K::kind(&())));
    }

    /// Merges something into an object's status.
    pub async fn patch_status<K: Known>(&self, namespace: &str, name: &str, status: Value) {
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        let patch = Patch::Merge(json!({"status": status}));
        let patched = api
            .patch_status(name, &PatchParams::default(), &patch)
            .await;
        patched.unwrap_or_else(|error| panic!("status of {} {name}: {error}", K::kind(&())));
    }

    /// Merges something into the scale set's spec.
    pub async fn edit(&self, spec: Value) {
        self.patch::<AutoscalingRunnerSet>(RUN, SET, json!({"spec": spec}))
            .await;
    }

    /// Gives the runners another image.
    pub async fn set_image(&self, image: &str) {
        let containers = json!([{"name": "runner", "image": image}]);
        self.edit(json!({"template": {"spec": {"containers": containers}}}))
            .await;
    }

    /// Deletes an object, if it is there.
    pub async fn delete<K: Known>(&self, namespace: &str, name: &str) {
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        match api.delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{} {name}: {error}", K::kind(&())),
        }
    }

    /// Deletes the scale set and waits until nothing is left of it, here and in the service.
    pub async fn delete_scale_set(&self) {
        self.delete::<AutoscalingRunnerSet>(RUN, SET).await;
        self.until("everything is gone", async || {
            self.leftovers().await.is_empty()
        })
        .await;
    }

    // === as the listener ===

    /// Asks for runners: ERset(n, p).
    pub async fn ersset(&self, replicas: i64, patch_id: i64) {
        let spec = json!({"spec": {"replicas": replicas, "patchID": patch_id}});
        self.patch::<EphemeralRunnerSet>(RUN, SET, spec).await;
    }

    /// Records that a job has started on a runner, and makes the service say so.
    pub async fn busy(&self, runner: &str, job: i64) {
        let status = json!({"status": {
            "phase": "Running",
            "jobRequestId": job,
            "jobId": format!("job-{job}"),
            "jobRepositoryName": "org/repo",
            "jobWorkflowRef": "org/repo/.github/workflows/ci.yaml@refs/heads/main",
            "workflowRunId": 7000 + job,
            "jobDisplayName": format!("build {job}"),
        }});
        let api = Api::<EphemeralRunner>::namespaced(self.client.clone(), RUN);
        api.patch_status(runner, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
        self.warden.refuses_to_remove(self.registration(runner));
    }

    /// The id under which the service knows a runner.
    pub fn registration(&self, runner: &str) -> i64 {
        let runners = self.actions.runners();
        let found = runners.iter().find(|known| known.name == runner);
        found
            .unwrap_or_else(|| panic!("{runner} is not registered"))
            .id
    }

    // === as the kubelet ===

    /// Writes a pod's status.
    pub async fn pod_status(&self, namespace: &str, pod: &str, status: Value) {
        self.patch_status::<Pod>(namespace, pod, status).await;
    }

    /// A runner's pod is Running and Ready.
    pub async fn up(&self, runner: &str) {
        self.pod_status(RUN, runner, running("runner")).await;
    }

    /// A runner's container ends with this code. With 0 the runner has deregistered itself;
    /// either way its job is over.
    pub async fn exit(&self, runner: &str, code: i32) {
        self.exit_saying(runner, code, "").await;
    }

    /// The same, with last words.
    pub async fn exit_saying(&self, runner: &str, code: i32, words: &str) {
        let known = self
            .actions
            .runners()
            .into_iter()
            .find(|known| known.name == runner);
        if let Some(known) = known {
            self.warden.lets_remove(known.id);
            if code == 0 {
                self.actions.deregister(known.id);
            }
        }
        let mut status = ended("runner", code);
        status["containerStatuses"][0]["state"]["terminated"]["message"] = words.into();
        self.pod_status(RUN, runner, status).await;
    }

    /// Starts the listener's pod; where there are several, those that do not run.
    pub async fn start_listener(&self) {
        let pods = self.listener_pods().await;
        assert!(!pods.is_empty(), "no listener pod");
        let runs = |pod: &Pod| {
            let status = pod.status.as_ref();
            status.and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        for pod in pods.iter().filter(|pod| !runs(pod)) {
            self.pod_status(CONTROLLER_NAMESPACE, &pod.name_any(), running("listener"))
                .await;
        }
    }

    // === seen together ===

    /// Asks for so many runners, and waits until they have pods; answers their names, the
    /// oldest first.
    pub async fn scale_up(&self, replicas: usize, patch_id: i64) -> Vec<String> {
        self.ersset(i64::try_from(replicas).unwrap(), patch_id)
            .await;
        self.until("all runners have pods", async || {
            self.runner_pods().await.len() == replicas
        })
        .await;
        self.settle().await;
        let runners = self.live().await;
        assert_eq!(runners.len(), replicas, "{}", self.picture().await);
        runners.iter().map(ResourceExt::name_any).collect()
    }

    /// Whether a runner is there and not being deleted.
    pub async fn is_live(&self, runner: &str) -> bool {
        let found: Option<EphemeralRunner> = self.get(RUN, runner).await;
        found.is_some_and(|runner| runner.metadata.deletion_timestamp.is_none())
    }

    /// Lets time pass, which costs nothing where it is virtual.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// The status of a pod that is Running and Ready.
pub fn running(container: &str) -> Value {
    json!({
        "phase": "Running",
        "startTime": WHEN,
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": WHEN},
            {"type": "Initialized", "status": "True", "lastTransitionTime": WHEN},
            {"type": "Ready", "status": "True", "lastTransitionTime": WHEN},
        ],
        "containerStatuses": [status(container, true, &json!({"running": {"startedAt": WHEN}}))],
    })
}

/// The status of a pod whose container has ended.
pub fn ended(container: &str, code: i32) -> Value {
    let (phase, reason) = if code == 0 {
        ("Succeeded", "Completed")
    } else {
        ("Failed", "Error")
    };
    let terminated = json!({"terminated": {
        "exitCode": code, "reason": reason, "startedAt": WHEN, "finishedAt": WHEN,
    }});
    json!({
        "phase": phase,
        "conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": WHEN},
        ],
        "containerStatuses": [status(container, false, &terminated)],
    })
}

/// A container's status.
pub fn status(container: &str, ready: bool, state: &Value) -> Value {
    json!({
        "name": container, "ready": ready, "restartCount": 0, "image": "img:1", "imageID": "",
        "state": state,
    })
}
