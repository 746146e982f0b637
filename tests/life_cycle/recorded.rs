//! The objects that a running ARC left in etcd, put onto a cluster with the rights of ARC's chart
//! and nothing else for the controller.

use impresario::simulation::transports;
use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use impresario::actions::{Clients, ClientsOptions};
use impresario::actors::KubeSources;
use impresario::api::{AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner};
use impresario::clock::Clock;
use impresario::kube_io::{KubeIo, Limiter};
use impresario::messages::{ActionsAnswer, ActionsCall, ActionsRequest};
use impresario::metrics::Metrics;
use impresario::resources::tenant_of_set;
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch};
use kube::api::{PatchParams, PostParams, TypeMeta};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::stage::Stage;
use crate::stage::hands::{ended, running};
use crate::stage::manifests;

/// Namespace of the recorded pool.
pub const NAMESPACE: &str = "arc-runners";
/// Its name.
pub const POOL: &str = "pool";
/// What the release 0.14.2 left.
pub const RELEASE: &str = "live/arc-0.14.2-objects.yaml";
/// What master left.
pub const MASTER: &str = "live/arc-master-objects.yaml";
/// The controller's account in the tests.
const ACCOUNT: &str = "impresario-controller";

/// A recorded pool on a cluster.
pub struct Recorded {
    /// The cluster, without a controller.
    pub stage: Stage,
    /// Uid of the AutoscalingListener that was found.
    pub listener: String,
    /// Name of the runner with a job.
    pub busy: String,
    /// Names of the others.
    pub idle: Vec<String>,
}

impl Recorded {
    /// Puts the objects of a file onto the cluster; none where this checkout has no such file.
    pub async fn on(stage: Stage, file: &str) -> Option<Self> {
        let documents = manifests::rendered(file)?;
        give_arcs_rights(&stage).await?;
        stage.apply(&[manifests::namespace(NAMESPACE)]).await;
        let mut uids = BTreeMap::new();
        let (users, others) = documents.into_iter().partition::<Vec<Value>, _>(is_users);
        for document in users {
            create(&stage, document, &mut uids).await;
        }
        let ids = register(&stage, &others).await;
        // admission wants their ServiceAccounts
        let (pods, others) = others
            .into_iter()
            .partition::<Vec<Value>, _>(|one| one["kind"] == "Pod");
        for mut document in others.into_iter().chain(pods) {
            put_ids(&mut document, &ids);
            create(&stage, document, &mut uids).await;
        }
        let listeners = stage.all::<AutoscalingListener>().await;
        let (mut busy, mut idle) = (Vec::new(), Vec::new());
        for runner in stage.all::<EphemeralRunner>().await {
            let status = runner.status.clone().unwrap_or_default();
            let job = status.job_id.unwrap_or_default();
            let names = if job.is_empty() { &mut idle } else { &mut busy };
            names.push(runner.name_any());
        }
        let busy = busy.pop().expect("one has a job");
        stage.warden.refuses_to_remove(stage.registration(&busy));
        Some(Self {
            listener: listeners[0].uid().unwrap(),
            stage,
            busy,
            idle,
        })
    }

    /// Starts the controller and, as the kubelet, the listener that it makes in place of ARC's.
    pub async fn take_over(&self) {
        let stage = &self.stage;
        stage.start_controller();
        stage
            .until("another listener has a pod", async || {
                let listeners = stage.all::<AutoscalingListener>().await;
                let pods = stage.listener_pods().await;
                let owner = pods.first().and_then(|pod| pod.owner_references().first());
                let uid = owner.map(|owner| owner.uid.clone());
                listeners.len() == 1
                    && uid == listeners[0].uid()
                    && listeners[0].uid().as_deref() != Some(&self.listener)
            })
            .await;
        let pod = stage.listener_pods().await.remove(0).name_any();
        stage
            .pod_status(CONTROLLER_NAMESPACE, &pod, running("listener"))
            .await;
        stage
            .until("it is settled", async || stage.is_settled().await)
            .await;
        stage.settle().await;
    }

    /// Whether the busy runner is as it was: there, not going, with a pod that is not going.
    pub async fn busy_goes_on(&self) -> bool {
        let pods = self.stage.runner_pods().await;
        let pod = pods.iter().find(|pod| pod.name_any() == self.busy);
        let runner: Option<EphemeralRunner> = self.stage.get(NAMESPACE, &self.busy).await;
        pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()) && runner.is_some()
    }

    /// The busy runner's job ends, and it with it.
    pub async fn end_job(&self) {
        let id = self.stage.registration(&self.busy);
        self.stage.warden.lets_remove(id);
        self.stage.actions.deregister(id);
        let pod = self
            .stage
            .pod_status(NAMESPACE, &self.busy, ended("runner", 0));
        pod.await;
    }

    /// Deletes the pool and the chart's own objects, as `helm uninstall` does, and nothing else.
    pub async fn uninstall(&self) {
        self.stage
            .delete::<AutoscalingRunnerSet>(NAMESPACE, POOL)
            .await;
        for account in self.stage.all::<ServiceAccount>().await {
            if is_charts(account.annotations()) {
                self.stage
                    .delete::<ServiceAccount>(NAMESPACE, &account.name_any())
                    .await;
            }
        }
        for role in self.stage.all::<Role>().await {
            if is_charts(role.annotations()) {
                self.stage.delete::<Role>(NAMESPACE, &role.name_any()).await;
            }
        }
        for binding in self.stage.all::<RoleBinding>().await {
            if is_charts(binding.annotations()) {
                self.stage
                    .delete::<RoleBinding>(NAMESPACE, &binding.name_any())
                    .await;
            }
        }
    }

    /// Waits until nothing is left of the pool: no object, no finalizer, nothing in the service.
    pub async fn until_gone(&self) {
        let stage = &self.stage;
        stage
            .until("nothing is left", async || {
                let mut left = stage.leftovers().await;
                // the controller's own
                left.retain(|name| !name.contains("arc-gha-rs-controller"));
                left.is_empty() && self.held().await.is_empty()
            })
            .await;
    }

    /// Names of the chart's objects that are still there.
    pub async fn held(&self) -> Vec<String> {
        let mut names = Vec::new();
        for account in self.stage.all::<ServiceAccount>().await {
            names.extend(is_charts(account.annotations()).then(|| account.name_any()));
        }
        for role in self.stage.all::<Role>().await {
            names.extend(is_charts(role.annotations()).then(|| role.name_any()));
        }
        for binding in self.stage.all::<RoleBinding>().await {
            names.extend(is_charts(binding.annotations()).then(|| binding.name_any()));
        }
        names
    }
}

fn is_charts(annotations: &BTreeMap<String, String>) -> bool {
    annotations.contains_key("meta.helm.sh/release-name")
}

/// A Secret with credentials, which the service has to be called with.
fn is_users(document: &Value) -> bool {
    document["kind"] == "Secret" && document["data"]["github_token"].is_string()
}

/// Binds exactly the roles that ARC's controller chart renders to the controller.
async fn give_arcs_rights(stage: &Stage) -> Option<()> {
    let documents = manifests::rendered("rendered/controller-0.14.2-defaults.yaml")?;
    give_rights(stage, documents).await;
    Some(())
}

/// Binds these roles to the controller, and no others.
pub async fn give_rights(stage: &Stage, documents: Vec<Value>) {
    let bindings = Api::<ClusterRoleBinding>::all(stage.client.clone());
    for name in [ACCOUNT, "all-runner-namespaces"] {
        let _gone = bindings.delete(name, &DeleteParams::default()).await;
    }
    stage
        .delete::<RoleBinding>(CONTROLLER_NAMESPACE, ACCOUNT)
        .await;
    stage
        .apply(&[manifests::namespace(CONTROLLER_NAMESPACE)])
        .await;
    for mut document in documents {
        if document["kind"].as_str().unwrap().contains("Role") {
            bind_to_ours(&mut document);
            stage.apply(&[document]).await;
        }
    }
}

/// The controller of the tests has another account than the one that was recorded.
pub fn bind_to_ours(document: &mut Value) {
    let subjects = document.get_mut("subjects").and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten() {
        if subject["name"] == "ctl" || subject["name"] == "arc-gha-rs-controller" {
            subject["name"] = ACCOUNT.into();
        }
    }
}

/// Ids under which the service knows a name.
struct Ids {
    scale_set: i64,
    runners: BTreeMap<String, i64>,
}

/// Registers the recorded scale set and runners at the service.
async fn register(stage: &Stage, documents: &[Value]) -> Ids {
    let of_kind = |kind: &str| {
        let those = documents.iter().filter(move |one| one["kind"] == *kind);
        those.cloned().collect::<Vec<Value>>()
    };
    let sources = KubeIo::new(
        stage.client.clone(),
        Limiter::unlimited(),
        Arc::new(Metrics::new().unwrap()),
    );
    let clients = Clients::new(
        Arc::new(KubeSources(sources)),
        transports(&stage.actions),
        Clock::simulated("2026-03-04T05:06:07Z".parse().unwrap()),
        ClientsOptions::default(),
    );
    let set: AutoscalingRunnerSet =
        serde_json::from_value(of_kind("AutoscalingRunnerSet").remove(0)).unwrap();
    let call = async |call| {
        let tenant = tenant_of_set(&set);
        clients.run(ActionsRequest { tenant, call }).await.unwrap()
    };
    let created = call(ActionsCall::CreateScaleSet {
        name: POOL.to_owned(),
        group_id: 1,
        labels: vec![POOL.to_owned()],
    });
    let ActionsAnswer::ScaleSet(Some(created)) = created.await else {
        panic!("no scale set");
    };
    let mut runners = BTreeMap::new();
    for runner in of_kind("EphemeralRunner") {
        let name = runner["metadata"]["name"].as_str().unwrap().to_owned();
        let registered = call(ActionsCall::GenerateJitConfig {
            scale_set_id: created.id,
            name: name.clone(),
            work_folder: String::new(),
        });
        let ActionsAnswer::Jit(registered) = registered.await else {
            panic!("not registered");
        };
        runners.insert(name, registered.runner.id);
    }
    Ids {
        scale_set: created.id,
        runners,
    }
}

/// Puts the ids in place of those that were recorded.
fn put_ids(document: &mut Value, ids: &Ids) {
    let name = document["metadata"]["name"].as_str().unwrap().to_owned();
    let encoded = |id: i64| Value::from(STANDARD.encode(id.to_string()));
    let runner = ids.runners.get(&name).copied();
    match (document["kind"].as_str().unwrap(), runner) {
        ("AutoscalingRunnerSet", _) => {
            document["metadata"]["annotations"]["runner-scale-set-id"] =
                ids.scale_set.to_string().into();
        }
        ("AutoscalingListener", _) => document["spec"]["runnerScaleSetId"] = ids.scale_set.into(),
        ("EphemeralRunnerSet", _) => {
            document["spec"]["ephemeralRunnerSpec"]["runnerScaleSetId"] = ids.scale_set.into();
        }
        ("EphemeralRunner", Some(id)) => {
            document["spec"]["runnerScaleSetId"] = ids.scale_set.into();
            document["status"]["runnerId"] = id.into();
        }
        ("Secret", Some(id)) => {
            document["data"]["runnerId"] = encoded(id);
            document["data"]["scaleSetId"] = encoded(ids.scale_set);
        }
        _ => {}
    }
}

/// Creates an object as it was recorded, status and all, owned by the one that has the place of
/// its owner. `uids` learns what became of its uid.
async fn create(stage: &Stage, mut document: Value, uids: &mut BTreeMap<String, String>) {
    bind_to_ours(&mut document);
    let text = |field: &str| document[field].as_str().unwrap_or_default().to_owned();
    let types = TypeMeta {
        api_version: text("apiVersion"),
        kind: text("kind"),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
    let meta = document["metadata"].as_object_mut().unwrap();
    let recorded = meta.remove("uid").unwrap().as_str().unwrap().to_owned();
    for field in ["resourceVersion", "creationTimestamp", "generation"] {
        meta.remove(field);
    }
    let owners = meta
        .get_mut("ownerReferences")
        .and_then(Value::as_array_mut);
    for owner in owners.into_iter().flatten() {
        owner["uid"] = uids[owner["uid"].as_str().unwrap()].clone().into();
    }
    let namespace = meta["namespace"].as_str().unwrap();
    let api = Api::<DynamicObject>::namespaced_with(stage.client.clone(), namespace, &resource);
    let status = document.as_object_mut().unwrap().remove("status");
    let object: DynamicObject = serde_json::from_value(document).unwrap();
    let name = object.name_any();
    let created = api.create(&PostParams::default(), &object).await;
    let created = created.unwrap_or_else(|error| panic!("{} {name}: {error}", types.kind));
    uids.insert(recorded, created.uid().unwrap());
    if let Some(status) = status {
        let patch = Patch::Merge(json!({ "status": status }));
        let params = PatchParams::default();
        let written = api.patch_status(&name, &params, &patch).await;
        written.unwrap_or_else(|error| panic!("status of {} {name}: {error}", types.kind));
    }
}
