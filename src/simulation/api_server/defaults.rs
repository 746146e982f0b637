//! The fields that the real server fills in.

use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::gc::DEFINITION_CLEANUP;
use super::kinds::ResourceType;
use super::object;

/// Fills in a new object of a built-in kind.
pub(super) fn fill_in(resource: &ResourceType, object: &mut Value, _rng: &mut StdRng) {
    match resource.plural.as_str() {
        _ if resource.is_custom() => {}
        "namespaces" => {
            object["spec"]["finalizers"] = json!(["kubernetes"]);
            object["status"]["phase"] = "Active".into();
            let name = object::name(object).to_owned();
            let labels = object::meta_mut(object)
                .entry("labels")
                .or_insert_with(|| json!({}));
            labels["kubernetes.io/metadata.name"] = name.into();
        }
        "customresourcedefinitions" => fill_in_definition(object),
        "pods" => {
            object["status"] = json!({ "phase": "Pending" });
        }
        _ => {}
    }
}

/// Fills in a changed object of a built-in kind.
pub(super) fn fill_in_update(resource: &ResourceType, _old: &Value, new: &mut Value) {
    if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
        fill_in_definition(new);
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
    spec.entry("conversion")
        .or_insert_with(|| json!({ "strategy": "None" }));
    let versions = crd["spec"]["versions"].clone();
    let storage = object::list(&versions)
        .iter()
        .find(|v| v["storage"] == true);
    let stored = storage.map(|version| version["name"].clone());
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
        "storedVersions": stored.into_iter().collect::<Vec<Value>>(),
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
    });
    if !object::is_deleting(crd) {
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
}
