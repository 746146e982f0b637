//! What the tests apply: the fixture of all scenarios, and what real charts render.

use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, TypeMeta};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// Namespace of the fixture's runners.
pub const RUN: &str = "run";
/// Name of its scale set, and label of its jobs.
pub const SET: &str = "set";
/// A credential that must be seen nowhere.
pub const TOKEN: &str = "ghp_NobodyMaySeeThis";

/// Fixture F: a scale set with a container `runner`, and its credentials.
pub fn fixture(min: i64, max: i64) -> Vec<Value> {
    vec![namespace(RUN), credentials(), scale_set(min, max)]
}

pub fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub fn credentials() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "gh", "namespace": RUN},
        "stringData": {"github_token": TOKEN},
    })
}

pub fn scale_set(min: i64, max: i64) -> Value {
    json!({
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "AutoscalingRunnerSet",
        "metadata": {"name": SET, "namespace": RUN},
        "spec": {
            "githubConfigUrl": "https://gh.test/org/repo",
            "githubConfigSecret": "gh",
            "minRunners": min,
            "maxRunners": max,
            "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "runner", "image": "img:1"}],
            }},
        },
    })
}

/// The documents of a file that a real chart rendered; none, with a note, where this checkout
/// has no such file.
pub fn rendered(file: &str) -> Option<Vec<Value>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/fixtures");
    let path = format!("{folder}/{file}");
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: there is no {path}");
        return None;
    };
    let documents = impresario::api::read_manifests(&text, file).unwrap();
    Some(
        documents
            .into_iter()
            .map(|document| document.value)
            .collect(),
    )
}

/// The CustomResourceDefinitions of ARC 0.14.2; none, with a note, where this checkout does not
/// have them.
pub fn older_crds() -> Option<Vec<Value>> {
    let mut crds = Vec::new();
    for kind in [
        "autoscalinglisteners",
        "autoscalingrunnersets",
        "ephemeralrunners",
        "ephemeralrunnersets",
    ] {
        let file = format!("crds-0.14.2/actions.github.com_{kind}.yaml");
        crds.extend(rendered(&file)?);
    }
    Some(crds)
}

/// Our CustomResourceDefinitions.
pub fn our_crds() -> Vec<Value> {
    let crds = impresario::api::crds();
    crds.iter().map(|crd| serde_json::json!(crd)).collect()
}

/// Whether a person made this Secret.
pub fn is_users(secret: &Secret) -> bool {
    let kind = secret.type_.as_deref().unwrap_or_default();
    kind == "kubernetes.io/service-account-token"
        || ["gh", "pre-defined", "proxy-auth"].contains(&secret.name_any().as_str())
}

/// Creates or changes an object, as a person with `kubectl apply` does.
pub async fn apply(client: &Client, document: &Value) {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str);
    let types = TypeMeta {
        api_version: text("/apiVersion").unwrap().to_owned(),
        kind: text("/kind").unwrap().to_owned(),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = text("/metadata/name").unwrap();
    let parameters = PatchParams::apply("a-person").force();
    let applied = api.patch(name, &parameters, &Patch::Apply(document)).await;
    applied.unwrap_or_else(|error| panic!("{} {name}: {error}", types.kind));
}

/// The rights of the controller, as they are installed in a real cluster, and its namespace.
pub fn rights() -> Vec<Value> {
    let mut documents = vec![namespace(CONTROLLER_NAMESPACE)];
    for (source, text) in [
        (
            "service_account.yaml",
            include_str!("../../../config/rbac/service_account.yaml"),
        ),
        (
            "cluster_role.yaml",
            include_str!("../../../config/rbac/cluster_role.yaml"),
        ),
        (
            "runner_namespace_role.yaml",
            include_str!("../../../config/rbac/runner_namespace_role.yaml"),
        ),
        (
            "controller_namespace_role.yaml",
            include_str!("../../../config/rbac/controller_namespace_role.yaml"),
        ),
    ] {
        let read = impresario::api::read_manifests(text, source).unwrap();
        documents.extend(read.into_iter().map(|document| document.value));
    }
    documents
}

/// What gives the controller its rights in a namespace with runners.
pub fn binding(namespace: &str) -> Value {
    impresario::simulation::cluster::runner_namespace_binding(namespace)
}
