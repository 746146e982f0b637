use rand::SeedableRng;

use super::*;
use crate::api_server::kinds::Registry;

fn filled_in(plural: &str, group: &str, mut object: Value) -> Value {
    let registry = Registry::builtin();
    let resource = registry.get(group, "v1", plural).unwrap();
    if plural == "pods" {
        give_service_account(&mut object, None, &mut StdRng::seed_from_u64(3));
    }
    fill_in(resource, &mut object);
    object
}

#[test]
fn a_pod_gets_what_a_real_server_gives_it() {
    let pod = filled_in(
        "pods",
        "",
        json!({
            "metadata": { "name": "runner-a" },
            "spec": {
                "restartPolicy": "Never",
                "serviceAccountName": "ci",
                "containers": [{
                    "name": "runner",
                    "image": "ghcr.io/actions/runner",
                    "resources": { "limits": { "cpu": "1" } },
                    "ports": [{ "containerPort": 8080 }],
                    "livenessProbe": { "httpGet": { "port": 8080 } },
                    "env": [{ "name": "N", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
                }],
                "volumes": [{ "name": "work" }, { "name": "s", "secret": { "secretName": "x" } }],
            },
        }),
    );
    let spec = &pod["spec"];
    assert_eq!(spec["restartPolicy"], "Never");
    assert_eq!(spec["serviceAccount"], "ci");
    assert_eq!(spec["priority"], 0);
    assert_eq!(spec["tolerations"].as_array().unwrap().len(), 2);
    let container = &spec["containers"][0];
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["resources"]["requests"], json!({ "cpu": "1" }));
    assert_eq!(container["ports"][0]["protocol"], "TCP");
    assert_eq!(
        container["livenessProbe"],
        json!({
            "httpGet": { "port": 8080, "path": "/", "scheme": "HTTP" },
            "timeoutSeconds": 1,
            "periodSeconds": 10,
            "successThreshold": 1,
            "failureThreshold": 3,
        })
    );
    assert_eq!(
        container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"],
        "v1"
    );
    assert_eq!(spec["volumes"][0]["emptyDir"], json!({}));
    assert_eq!(spec["volumes"][1]["secret"]["defaultMode"], 420);
    let token = spec["volumes"][2]["name"].as_str().unwrap();
    assert!(token.starts_with("kube-api-access-"), "{token}");
    assert_eq!(container["volumeMounts"][0]["name"], token);
    assert_eq!(
        pod["status"],
        json!({ "phase": "Pending", "qosClass": "Burstable" })
    );
}

#[test]
fn defaults_leave_a_filled_in_pod_alone() {
    let once = filled_in(
        "pods",
        "",
        json!({
            "metadata": { "name": "a" },
            "spec": { "hostNetwork": true, "containers": [{ "name": "c", "image": "i:1", "ports": [{ "containerPort": 1 }] }] },
        }),
    );
    assert_eq!(once["spec"]["containers"][0]["ports"][0]["hostPort"], 1);
    assert_eq!(filled_in("pods", "", once.clone()), once);
}

#[test]
fn no_token_is_mounted_where_it_is_not_wanted() {
    let pod = filled_in(
        "pods",
        "",
        json!({ "metadata": {}, "spec": { "automountServiceAccountToken": false, "containers": [{ "name": "c", "image": "i:1" }] } }),
    );
    assert!(pod["spec"]["volumes"].is_null());
}

#[test]
fn a_secrets_texts_become_data() {
    let secret = filled_in(
        "secrets",
        "",
        json!({ "metadata": { "name": "s" }, "data": { "a": "MQ==" }, "stringData": { "b": "2" } }),
    );
    assert_eq!(secret["type"], "Opaque");
    assert_eq!(secret["data"], json!({ "a": "MQ==", "b": "Mg==" }));
    assert!(secret.get("stringData").is_none());
}

#[test]
fn only_users_and_groups_get_an_api_group() {
    let binding = filled_in(
        "rolebindings",
        RBAC,
        json!({
            "metadata": { "name": "b" },
            "roleRef": { "kind": "Role", "name": "r" },
            "subjects": [{ "kind": "User", "name": "u" }, { "kind": "ServiceAccount", "name": "s" }],
        }),
    );
    assert_eq!(binding["roleRef"]["apiGroup"], RBAC);
    assert_eq!(binding["subjects"][0]["apiGroup"], RBAC);
    assert!(binding["subjects"][1].get("apiGroup").is_none());
}
