//! Scale sets and what people do to them: each change reaches the listener by another way.

use impresario::api::constants::annotations::LISTENER_CONFIG_RESOURCE_VERSION;
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::stage::Stage;
use crate::stage::manifests::{RUN, credentials, namespace, scale_set};
use crate::watched::{name, pod};

/// A credential that must be seen nowhere.
pub const OTHER_TOKEN: &str = "ghp_NorMayThisBeSeen";
/// The value of a variable, which must not be seen either.
pub const OTHER_COLOUR: &str = "unseen-red";

/// A scale set with everything that the changes below change.
pub fn documents() -> Vec<Value> {
    let mut set = scale_set(0, 10);
    let spec = &mut set["spec"];
    spec["githubServerTLS"] = json!({
        "certificateFrom": {"configMapKeyRef": {"name": "ca", "key": "ca.crt"}},
    });
    spec["listenerMetrics"] = metrics(&["name"]);
    spec["listenerTemplate"] = template("blue", &[9000]);
    vec![namespace(RUN), credentials(), authority("MA=="), set]
}

/// A scale set with this listener template.
pub fn with_template(template: &Value) -> Vec<Value> {
    let mut set = scale_set(0, 10);
    set["spec"]["listenerTemplate"] = template.clone();
    vec![namespace(RUN), credentials(), set]
}

fn authority(content: &str) -> Value {
    let certificate =
        format!("-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----\n");
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "ca", "namespace": RUN},
        "data": {"ca.crt": certificate},
    })
}

fn metrics(labels: &[&str]) -> Value {
    json!({"gauges": {"gha_assigned_jobs": {"labels": labels}}})
}

fn template(colour: &str, ports: &[u16]) -> Value {
    let port = |port: &u16| json!({"name": format!("port-{port}"), "containerPort": port});
    json!({"spec": {
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "containers": [{
            "name": "listener",
            "env": [{"name": "COLOUR", "value": colour}],
            "ports": ports.iter().map(port).collect::<Vec<_>>(),
        }],
    }})
}

async fn edit_template(stage: &Stage, template: Value) {
    stage.edit(json!({"listenerTemplate": template})).await;
}

pub async fn image(stage: &Stage) {
    stage.restart_with(|settings| settings.listener_image = "listener:next".to_owned());
}

pub async fn variable(stage: &Stage) {
    edit_template(stage, template(OTHER_COLOUR, &[9000])).await;
}

pub async fn port_more(stage: &Stage) {
    edit_template(stage, template("blue", &[9000, 9001])).await;
}

pub async fn port_less(stage: &Stage) {
    edit_template(stage, template("blue", &[])).await;
}

pub async fn toleration_less(stage: &Stage) {
    let mut template = template("blue", &[9000]);
    template["spec"]["tolerations"] = json!([]);
    edit_template(stage, template).await;
}

pub async fn metrics_off(stage: &Stage) {
    stage.restart_with(|settings| settings.listener_metrics_addr = String::new());
}

pub async fn metrics_on(stage: &Stage) {
    stage.restart_with(|settings| settings.listener_metrics_addr = ":8080".to_owned());
}

pub async fn config_url(stage: &Stage) {
    stage
        .edit(json!({"githubConfigUrl": "https://gh.test/org/other"}))
        .await;
}

pub async fn certificate(stage: &Stage) {
    let data = authority("MDA=")["data"].clone();
    stage
        .patch::<ConfigMap>(RUN, "ca", json!({"data": data}))
        .await;
}

pub async fn metrics_config(stage: &Stage) {
    stage
        .edit(json!({"listenerMetrics": metrics(&["name", "namespace"])}))
        .await;
}

pub async fn minimum(stage: &Stage) {
    stage.edit(json!({"minRunners": 1})).await;
}

pub async fn maximum(stage: &Stage) {
    stage.edit(json!({"maxRunners": 11})).await;
}

pub async fn token(stage: &Stage) {
    stage
        .patch::<Secret>(
            RUN,
            "gh",
            json!({"stringData": {"github_token": OTHER_TOKEN}}),
        )
        .await;
}

/// As a pod of an older controller is.
pub async fn mark_removed(stage: &Stage) {
    let annotations = json!({LISTENER_CONFIG_RESOURCE_VERSION: null});
    let name = name(stage).await;
    let patch = json!({"metadata": {"annotations": annotations}});
    stage.patch::<Pod>(CONTROLLER_NAMESPACE, &name, patch).await;
}

/// An older controller made the pod, and ours takes over.
pub async fn older_controller(stage: &Stage) {
    stage.kill_controller();
    mark_removed(stage).await;
    stage.start_controller();
}

/// The same, and the credentials have changed since the older one looked at them.
pub async fn older_controller_and_token(stage: &Stage) {
    stage.kill_controller();
    mark_removed(stage).await;
    token(stage).await;
    stage.start_controller();
}

/// The credentials change while no controller looks.
pub async fn token_unobserved(stage: &Stage) {
    stage.kill_controller();
    token(stage).await;
    stage.start_controller();
}

/// Takes the pod away and puts another in its place, as it would have been created where
/// admission is different. The controller sees neither.
pub async fn made_otherwise(stage: &Stage, change: impl FnOnce(&mut Value)) {
    stage.kill_controller();
    let before = pod(stage).await;
    let name = before.name_any();
    stage.delete::<Pod>(CONTROLLER_NAMESPACE, &name).await;
    stage
        .until("the pod is gone", async || {
            stage.listener_pods().await.is_empty()
        })
        .await;
    let mut value = serde_json::to_value(&before).unwrap();
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "managedFields",
    ] {
        value["metadata"].as_object_mut().unwrap().remove(field);
    }
    value.as_object_mut().unwrap().remove("status");
    value["spec"].as_object_mut().unwrap().remove("nodeName");
    change(&mut value);
    let pods = Api::<Pod>::namespaced(stage.client.clone(), CONTROLLER_NAMESPACE);
    let pod: Pod = serde_json::from_value(value).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    stage.start_controller();
}
