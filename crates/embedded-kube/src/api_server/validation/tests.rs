use serde_json::json;

use super::*;
use crate::api_server::kinds::Registry;

fn faults(plural: &str, object: &Value) -> Vec<String> {
    let registry = Registry::builtin();
    let resource = registry.get("", "v1", plural).unwrap();
    let faults = on_create(resource, object);
    faults.iter().map(ToString::to_string).collect()
}

fn change_faults(plural: &str, group: &str, old: &Value, new: &Value) -> Vec<String> {
    let registry = Registry::builtin();
    let resource = registry.get(group, "v1", plural).unwrap();
    let faults = on_update(resource, old, new, "");
    faults.iter().map(|fault| fault.field.clone()).collect()
}

#[test]
fn a_pods_faults_name_their_fields() {
    let pod = json!({
        "metadata": { "name": "p" },
        "spec": {
            "restartPolicy": "Sometimes",
            "volumes": [{ "name": "v" }, { "name": "v" }],
            "containers": [
                { "name": "a", "image": "i", "volumeMounts": [{ "name": "w", "mountPath": "/w" }] },
                { "name": "a", "env": [{ "value": "x" }] },
                { "name": "Not_A_Label", "image": "i" },
            ],
        },
    });
    let faults = faults("pods", &pod);
    let starts: Vec<&str> = vec![
        "spec.volumes[1].name: Duplicate value: \"v\"",
        "spec.containers[0].volumeMounts[0].name: Not found: \"w\"",
        "spec.containers[1].name: Duplicate value: \"a\"",
        "spec.containers[1].image: Required value",
        "spec.containers[1].env[0].name: Required value",
        "spec.containers[2].name: Invalid value: \"Not_A_Label\": a lowercase RFC 1123 label",
        "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \
         \"Never\", \"OnFailure\"",
    ];
    assert_eq!(faults.len(), starts.len(), "{faults:#?}");
    for (fault, start) in faults.iter().zip(starts) {
        assert!(fault.starts_with(start), "{fault}");
    }
}

#[test]
fn a_pod_without_containers_is_refused() {
    let pod = json!({ "metadata": { "name": "p" }, "spec": {} });
    assert_eq!(faults("pods", &pod), ["spec.containers: Required value"]);
}

#[test]
fn only_images_and_a_few_others_of_a_pod_can_change() {
    let old =
        json!({ "spec": { "nodeName": "n", "containers": [{ "name": "a", "image": "i:1" }] } });
    let mut new = old.clone();
    new["spec"]["containers"][0]["image"] = "i:2".into();
    new["spec"]["tolerations"] = json!([{ "key": "k" }]);
    assert!(change_faults("pods", "", &old, &new).is_empty());
    new["spec"]["containers"][0]["command"] = json!(["x"]);
    assert_eq!(change_faults("pods", "", &old, &new), ["spec"]);
}

#[test]
fn labels_must_be_labels() {
    let object = |labels: Value| json!({ "metadata": { "name": "m", "labels": labels } });
    assert!(
        faults(
            "configmaps",
            &object(json!({ "a.io/b": "C_d-1.x", "empty": "" }))
        )
        .is_empty()
    );
    for labels in [
        json!({ "a": "-x" }),
        json!({ "a": "x".repeat(64) }),
        json!({ "a/b/c": "x" }),
        json!({ "_a": "x" }),
    ] {
        assert_eq!(
            faults("configmaps", &object(labels.clone())).len(),
            1,
            "{labels}"
        );
    }
}

#[test]
fn types_references_and_immutable_data_cannot_change() {
    let secret = |kind: &str| json!({ "kind": "Secret", "type": kind });
    assert_eq!(
        change_faults("secrets", "", &secret("a"), &secret("b")),
        ["type"]
    );
    let map = |text: &str| json!({ "immutable": true, "data": { "k": text } });
    assert_eq!(
        change_faults("configmaps", "", &map("1"), &map("2")),
        ["data"]
    );
    let binding = |role: &str| json!({ "roleRef": { "kind": "Role", "name": role } });
    let group = "rbac.authorization.k8s.io";
    let (old, new) = (binding("a"), binding("b"));
    assert_eq!(
        change_faults("rolebindings", group, &old, &new),
        ["roleRef"]
    );
}

#[test]
fn finalizers_cannot_be_added_to_what_is_being_deleted() {
    let object = |finalizers: Value| json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers } });
    let old = object(json!(["a.io/x", "a.io/y"]));
    assert!(change_faults("configmaps", "", &old, &object(json!(["a.io/y"]))).is_empty());
    let added = object(json!(["a.io/x", "a.io/z"]));
    assert_eq!(
        change_faults("configmaps", "", &old, &added),
        ["metadata.finalizers"]
    );
}
