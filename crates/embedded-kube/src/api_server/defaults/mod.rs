//! The fields that the real server fills in.

mod pods;
mod zeros;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::rngs::StdRng;
use serde_json::{Map, Value, json};

use super::gc::DEFINITION_CLEANUP;
use super::kinds::ResourceType;
use super::object;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Sets a field that is absent.
fn set(fields: &mut Map<String, Value>, name: &str, default: Value) {
    fields.entry(name).or_insert(default);
}

/// Fills in what the service account gives a new pod.
pub(super) fn give_service_account(pod: &mut Value, account: Option<&Value>, rng: &mut StdRng) {
    pods::give_service_account(pod, account, rng);
}

/// Fills in a new object.
pub(super) fn fill_in(resource: &ResourceType, object: &mut Value) {
    drop_empty_metadata(object);
    if resource.is_custom() {
        return;
    }
    fill_in_always(resource, object);
    match resource.plural.as_str() {
        "namespaces" => fill_in_namespace(object),
        "customresourcedefinitions" => fill_in_definition(object),
        "pods" => pods::fill_in_pod(object),
        "services" => fill_in_service(object),
        "persistentvolumeclaims" => object["status"] = json!({ "phase": "Pending" }),
        "deployments" | "jobs" | "nodes" => set_empty_status(object),
        _ => {}
    }
}

/// Fills in a changed object.
pub(super) fn fill_in_update(resource: &ResourceType, new: &mut Value) {
    drop_empty_metadata(new);
    if resource.is_custom() {
        return;
    }
    fill_in_always(resource, new);
    if resource.plural == "customresourcedefinitions" {
        fill_in_definition(new);
    }
}

/// What is filled in on every write.
fn fill_in_always(resource: &ResourceType, object: &mut Value) {
    match resource.plural.as_str() {
        "pods" => {
            zeros::drop_zeros(&mut object["spec"]);
            pods::fill_in_spec(object::map_mut(object, "spec"));
        }
        "secrets" => fill_in_secret(object),
        "rolebindings" | "clusterrolebindings" => fill_in_binding(object),
        "deployments" => fill_in_deployment(object),
        "jobs" => fill_in_job(object),
        "persistentvolumeclaims" => {
            set(
                object::map_mut(object, "spec"),
                "volumeMode",
                json!("Filesystem"),
            );
        }
        _ => {}
    }
}

fn drop_empty_metadata(object: &mut Value) {
    let metadata = object::meta_mut(object);
    metadata.retain(|_, value| match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
}

fn fill_in_namespace(namespace: &mut Value) {
    namespace["spec"]["finalizers"] = json!(["kubernetes"]);
    namespace["status"] = json!({ "phase": "Active" });
    let name = object::name(namespace).to_owned();
    let labels = object::meta_mut(namespace)
        .entry("labels")
        .or_insert_with(|| json!({}));
    labels["kubernetes.io/metadata.name"] = name.into();
}

fn fill_in_secret(secret: &mut Value) {
    let Value::Object(fields) = secret else {
        return;
    };
    set(fields, "type", json!("Opaque"));
    if let Some(Value::Object(texts)) = fields.remove("stringData") {
        let data = fields.entry("data").or_insert_with(|| json!({}));
        for (key, text) in texts {
            let text = text.as_str().unwrap_or_default();
            data[key] = STANDARD.encode(text).into();
        }
    }
    if fields
        .get("data")
        .and_then(Value::as_object)
        .is_some_and(Map::is_empty)
    {
        fields.remove("data");
    }
}

fn fill_in_binding(binding: &mut Value) {
    let reference = object::map_mut(binding, "roleRef");
    set(reference, "apiGroup", json!(RBAC));
    let subjects = binding.get_mut("subjects").and_then(Value::as_array_mut);
    for subject in subjects.into_iter().flatten() {
        let named = matches!(subject["kind"].as_str(), Some("User" | "Group"));
        if let (true, Value::Object(subject)) = (named, subject) {
            set(subject, "apiGroup", json!(RBAC));
        }
    }
}

fn fill_in_template(owner: &mut Value) {
    let template = &mut owner["spec"]["template"];
    if template["spec"].is_object() {
        zeros::drop_zeros(template);
        pods::fill_in_spec(object::map_mut(template, "spec"));
    }
}

fn fill_in_deployment(deployment: &mut Value) {
    let spec = object::map_mut(deployment, "spec");
    set(spec, "replicas", json!(1));
    set(spec, "revisionHistoryLimit", json!(10));
    set(spec, "progressDeadlineSeconds", json!(600));
    let strategy = object::map_mut(&mut deployment["spec"], "strategy");
    set(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling = json!({ "maxSurge": "25%", "maxUnavailable": "25%" });
        set(strategy, "rollingUpdate", rolling);
    }
    fill_in_template(deployment);
}

fn fill_in_job(job: &mut Value) {
    let spec = object::map_mut(job, "spec");
    let parallel = spec.contains_key("parallelism") || spec.contains_key("completions");
    if !parallel {
        set(spec, "completions", json!(1));
    }
    set(spec, "parallelism", json!(1));
    set(spec, "backoffLimit", json!(6));
    set(spec, "completionMode", json!("NonIndexed"));
    set(spec, "suspend", json!(false));
    fill_in_template(job);
}

fn fill_in_service(service: &mut Value) {
    let spec = object::map_mut(service, "spec");
    set(spec, "type", json!("ClusterIP"));
    set(spec, "sessionAffinity", json!("None"));
    set(spec, "internalTrafficPolicy", json!("Cluster"));
    set(spec, "ipFamilies", json!(["IPv4"]));
    set(spec, "ipFamilyPolicy", json!("SingleStack"));
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        if let Value::Object(port) = port {
            set(port, "protocol", json!("TCP"));
            if let Some(number) = port.get("port").cloned() {
                set(port, "targetPort", number);
            }
        }
    }
    service["status"] = json!({ "loadBalancer": {} });
}

fn set_empty_status(object: &mut Value) {
    if let Value::Object(fields) = object {
        set(fields, "status", json!({}));
    }
}

fn fill_in_definition(crd: &mut Value) {
    let spec = object::map_mut(crd, "spec");
    let names = spec.entry("names").or_insert_with(|| json!({}));
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    if names["singular"].is_null() {
        names["singular"] = kind.to_lowercase().into();
    }
    if names["listKind"].is_null() {
        names["listKind"] = format!("{kind}List").into();
    }
    let names = names.clone();
    set(spec, "conversion", json!({ "strategy": "None" }));
    if object::is_deleting(crd) {
        return;
    }
    let versions = object::list(&crd["spec"]["versions"]);
    let storage = versions.iter().find(|version| version["storage"] == true);
    let stored: Vec<Value> = storage.into_iter().map(|v| v["name"].clone()).collect();
    let since = object::meta(crd, "creationTimestamp").to_owned();
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": since,
        })
    };
    crd["status"] = json!({
        "acceptedNames": names,
        "storedVersions": stored,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition(
                "Established",
                "InitialNamesAccepted",
                "the initial names have been accepted",
            ),
        ],
    });
    let finalizers = object::finalizers(crd).map(str::to_owned);
    let mut finalizers: Vec<String> = finalizers.collect();
    if !finalizers
        .iter()
        .any(|finalizer| finalizer == DEFINITION_CLEANUP)
    {
        finalizers.push(DEFINITION_CLEANUP.to_owned());
    }
    object::set_finalizers(crd, finalizers);
}

#[cfg(test)]
mod tests;
