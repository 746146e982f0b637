//! The rules of comparison, one by one. `tests/semantic.rs` compares all of them with a slow
//! reference.

use k8s_openapi::api::core::v1::{Pod, PodSpec, Secret};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Drift, deep_equal, drift};
use crate::api::{AutoscalingListenerSpec, ResourceMeta};

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A pod's spec with one container of these fields.
fn container(fields: &Value) -> PodSpec {
    let mut container = json!({"name": "listener"});
    let (Some(all), Some(more)) = (container.as_object_mut(), fields.as_object()) else {
        unreachable!("both are objects")
    };
    all.extend(more.clone());
    read(json!({"containers": [container]}))
}

fn same(a: &Value, b: &Value) -> bool {
    let (a, b) = (container(a), container(b));
    let forth = deep_equal(&a, &b);
    assert_eq!(forth, deep_equal(&b, &a), "not symmetric");
    forth
}

fn lost(desired: &Value, live: &Value) -> Option<Drift> {
    drift(&container(desired), &container(live))
}

/// Where `live` drifts, below the one container.
fn lost_at(desired: &Value, live: &Value) -> Option<String> {
    let path = lost(desired, live)?.path;
    Some(path.trim_start_matches("containers[listener].").to_owned())
}

// === deep_equal ===

#[test]
fn an_absent_list_or_map_equals_an_empty_one() {
    assert!(same(&json!({"args": [], "env": []}), &json!({})));
    assert!(same(
        &json!({"resources": {"limits": {}}}),
        &json!({"resources": {}})
    ));
    assert!(!same(&json!({"args": [""]}), &json!({})));
}

#[test]
fn an_absent_value_equals_its_zero_but_an_absent_pointer_does_not() {
    assert!(same(&json!({"image": "", "tty": false}), &json!({})));
    assert!(same(
        &json!({"livenessProbe": {"timeoutSeconds": 0}}),
        &json!({"livenessProbe": {}})
    ));
    for pointer in ["runAsUser", "runAsGroup"] {
        let zero = json!({"securityContext": {pointer: 0}});
        assert!(!same(&zero, &json!({"securityContext": {}})), "{pointer}");
    }
    assert!(!same(
        &json!({"securityContext": {"privileged": false}}),
        &json!({"securityContext": {}})
    ));
    assert!(!same(&json!({"restartPolicy": ""}), &json!({})));
}

#[test]
fn an_absent_struct_equals_an_empty_one_unless_it_is_a_pointer() {
    assert!(same(&json!({"resources": {"claims": []}}), &json!({})));
    assert!(!same(&json!({"securityContext": {}}), &json!({})));
    assert!(!same(
        &json!({"resources": {"limits": {"cpu": "0"}}}),
        &json!({})
    ));
}

#[test]
fn quantities_are_equal_by_value() {
    let limits = |cpu: &str| json!({"resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}});
    assert!(same(&limits("1"), &limits("1000m")));
    assert!(!same(&limits("1"), &limits("1001m")));
    assert!(same(&limits("much"), &limits("much")));
    assert!(!same(&limits("much"), &limits("more")));
}

#[test]
fn an_absent_quantity_of_a_value_type_equals_nothing_of_any_spelling() {
    let divisor = |divisor: Option<&str>| {
        let field = json!({"resource": "limits.cpu", "divisor": divisor});
        json!({"env": [{"name": "CPU", "valueFrom": {"resourceFieldRef": field}}]})
    };
    assert!(same(&divisor(Some("0")), &divisor(None)));
    assert!(same(&divisor(Some("0m")), &divisor(Some("0"))));
    assert!(!same(&divisor(Some("1")), &divisor(None)));
}

#[test]
fn times_are_equal_as_instants() {
    let made = |time: &str| read::<ObjectMeta>(json!({"name": "a", "creationTimestamp": time}));
    assert!(deep_equal(
        &made("2026-03-01T10:00:00Z"),
        &made("2026-03-01T12:00:00+02:00")
    ));
    assert!(!deep_equal(
        &made("2026-03-01T10:00:00Z"),
        &made("2026-03-01T10:00:01Z")
    ));
    assert!(deep_equal(
        &made("0001-01-01T00:00:00Z"),
        &read(json!({"name": "a"}))
    ));
}

#[test]
fn a_port_by_number_is_not_one_by_name() {
    let port = |port: Value| json!({"readinessProbe": {"httpGet": {"port": port}}});
    assert!(same(&port(json!(80)), &port(json!(80))));
    assert!(!same(&port(json!(80)), &port(json!("80"))));
}

#[test]
fn lists_have_an_order_and_maps_have_none() {
    assert!(!same(
        &json!({"args": ["a", "b"]}),
        &json!({"args": ["b", "a"]})
    ));
    let a: ResourceMeta = read(json!({"labels": {"x": "1", "y": "2"}}));
    let b: ResourceMeta = read(json!({"labels": {"y": "2", "x": "1"}}));
    let c: ResourceMeta = read(json!({"labels": {"y": "2", "x": ""}}));
    let d: ResourceMeta = read(json!({"labels": {"y": "2"}}));
    assert!(deep_equal(&a, &b));
    assert!(
        !deep_equal(&c, &d),
        "an entry counts, even one without a value"
    );
}

#[test]
fn absent_metadata_equals_empty_metadata_and_absent_metrics_do_not_equal_none() {
    let empty: Option<ResourceMeta> = Some(ResourceMeta::default());
    assert!(deep_equal(&empty, &None));
    let spec = |value: Value| read::<AutoscalingListenerSpec>(value);
    assert!(deep_equal(
        &spec(json!({"roleMetadata": {"labels": {}}})),
        &spec(json!({}))
    ));
    assert!(deep_equal(
        &spec(json!({"phase": "Running"})),
        &spec(json!({}))
    ));
    assert!(!deep_equal(
        &spec(json!({"phase": "Stopped"})),
        &spec(json!({}))
    ));
    assert!(!deep_equal(&spec(json!({"metrics": {}})), &spec(json!({}))));
}

#[test]
fn rules_of_a_role_are_compared_in_full() {
    let rule = |verbs: Value| read::<PolicyRule>(json!({"apiGroups": [""], "verbs": verbs}));
    assert!(deep_equal(
        &Some(vec![rule(json!(["get", "list"]))]),
        &Some(vec![rule(json!(["get", "list"]))])
    ));
    assert!(!deep_equal(
        &Some(vec![rule(json!(["get"]))]),
        &Some(vec![rule(json!(["get", "list"]))])
    ));
    assert!(deep_equal(&None::<Vec<PolicyRule>>, &Some(Vec::new())));
}

// === drift ===

/// The listener's pod has to keep what was added to it. Were equality asked of it, or did a
/// difference that the server or admission makes count, each listener of a cluster would be
/// deleted and made again without end.
#[test]
fn the_listeners_comparison_is_never_equality() {
    let desired: PodSpec = read(json!({
        "serviceAccountName": "acme-listener",
        "restartPolicy": "Never",
        "tolerations": [],
        "containers": [{
            "name": "listener",
            "image": "ghcr.io/acme/impresario:1",
            "ports": [{"containerPort": 8080}],
            "env": [{"name": "CONFIG", "value": "/etc/config.json"}],
            "resources": {"limits": {"cpu": "1000m"}},
            "livenessProbe": {"httpGet": {"port": 8080, "path": "/healthz"}},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/config"}]
        }],
        "hostNetwork": true,
        "volumes": [
            {"name": "config", "secret": {"secretName": "acme-config"}},
            {"name": "scratch", "emptyDir": {}}
        ]
    }));
    let live: PodSpec = read(json!({
        "nodeName": "node-3",
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "acme-listener",
        "serviceAccount": "acme-listener",
        "restartPolicy": "Never",
        "priority": 0,
        "securityContext": {},
        "hostNetwork": true,
        "initContainers": [{"name": "mesh-init", "image": "mesh:9"}],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
        "containers": [
            {"name": "mesh", "image": "mesh:9"},
            {
                "name": "listener",
                "image": "ghcr.io/acme/impresario:1",
                "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log",
                "ports": [
                    {"containerPort": 15090, "protocol": "TCP"},
                    {"containerPort": 8080, "hostPort": 8080, "protocol": "TCP"}
                ],
                "env": [
                    {"name": "MESH", "value": "on"},
                    {"name": "CONFIG", "value": "/etc/config.json"}
                ],
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                "livenessProbe": {
                    "httpGet": {"port": 8080, "path": "/healthz", "scheme": "HTTP"},
                    "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1,
                    "failureThreshold": 3
                },
                "volumeMounts": [
                    {"name": "mesh-certs", "mountPath": "/etc/mesh"},
                    {"name": "config", "mountPath": "/etc/config"}
                ]
            }
        ],
        "volumes": [
            {"name": "config", "secret": {"secretName": "acme-config", "defaultMode": 420}},
            {"name": "mesh-certs", "emptyDir": {"medium": "Memory"}},
            {"name": "scratch", "emptyDir": {}}
        ]
    }));
    assert_eq!(drift(&desired, &live), None);
    assert!(!deep_equal(&desired, &live));
    assert!(drift(&live, &desired).is_some());
}

#[test]
fn drift_names_the_path_and_both_values() {
    let pod = |image: &str| {
        read::<Pod>(json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "listener", "image": image}]}}))
    };
    let found = drift(&pod("b"), &pod("a")).unwrap();
    assert_eq!(
        found.to_string(),
        r#"spec.containers[listener].image: "a" → "b""#
    );
    assert_eq!(found.reason(), "image");
}

#[test]
fn the_reason_is_a_fields_name_whatever_the_keys_of_the_path_hold() {
    let meta = |value: &str| read::<ObjectMeta>(json!({"labels": {"a.b/c]d.e": value}}));
    let found = drift(&meta("1"), &meta("2")).unwrap();
    assert_eq!(found.path, "labels[a.b/c]d.e]");
    assert_eq!(found.reason(), "labels");
    let missing = lost(&json!({"env": [{"name": "A.B"}]}), &json!({})).unwrap();
    assert_eq!(
        missing.to_string(),
        "containers[listener].env[A.B]: absent → {…}"
    );
    assert_eq!(missing.reason(), "env");
    let bare = drift(&"a".to_owned(), &"b".to_owned()).unwrap();
    assert_eq!(
        (bare.to_string().as_str(), bare.reason()),
        (r#""b" → "a""#, "")
    );
}

#[test]
fn a_missing_container_is_drift() {
    let live: PodSpec = read(json!({"containers": [{"name": "mesh", "image": "m"}]}));
    let found = drift(&container(&json!({"image": "a"})), &live).unwrap();
    assert_eq!(found.to_string(), "containers[listener]: absent → {…}");
    assert_eq!(found.reason(), "containers");
}

#[test]
fn a_zero_that_is_spelled_out_agrees_with_absent_values_only() {
    let probe = |delay: Option<i32>| json!({"livenessProbe": {"initialDelaySeconds": delay}});
    assert_eq!(lost(&probe(Some(0)), &probe(None)), None);
    assert_eq!(lost(&probe(None), &probe(Some(7))), None);
    let found = lost(&probe(Some(0)), &probe(Some(7))).unwrap();
    assert_eq!((found.live.as_str(), found.desired.as_str()), ("7", "0"));
    assert!(lost(&json!({"tty": false}), &json!({"tty": true})).is_some());
    assert_eq!(lost(&json!({"tty": false}), &json!({})), None);
}

#[test]
fn a_zero_behind_a_pointer_is_compared_with_what_is_there() {
    let user = |user: Option<i64>| json!({"securityContext": {"runAsUser": user}});
    assert_eq!(lost(&user(None), &user(Some(1001))), None);
    assert_eq!(lost(&user(Some(0)), &user(Some(0))), None);
    for live in [Some(1001), None] {
        let path = lost_at(&user(Some(0)), &user(live));
        assert_eq!(
            path.as_deref(),
            Some("securityContext.runAsUser"),
            "{live:?}"
        );
    }
}

#[test]
fn a_zero_for_which_the_server_puts_its_default_is_no_drift() {
    let probe = |fields: Value| json!({"startupProbe": fields});
    assert_eq!(
        lost(
            &probe(json!({"timeoutSeconds": 0, "periodSeconds": 0})),
            &probe(json!({"timeoutSeconds": 1, "periodSeconds": 10}))
        ),
        None
    );
    let port = |port: Value| json!({"ports": [port]});
    assert_eq!(
        lost(
            &port(json!({"containerPort": 80, "hostPort": 0})),
            &port(json!({"containerPort": 80, "hostPort": 80, "protocol": "TCP"}))
        ),
        None
    );
}

#[test]
fn another_kind_of_volume_is_drift_even_when_the_desired_one_sets_nothing() {
    let volume = |source: Value| {
        let mut volume = json!({"name": "work"});
        volume
            .as_object_mut()
            .unwrap()
            .extend(source.as_object().unwrap().clone());
        read::<PodSpec>(json!({"containers": [], "volumes": [volume]}))
    };
    let empty = volume(json!({"emptyDir": {}}));
    assert_eq!(
        drift(&empty, &volume(json!({"emptyDir": {"medium": "Memory"}}))),
        None
    );
    let found = drift(&empty, &volume(json!({"hostPath": {"path": "/work"}}))).unwrap();
    assert_eq!(found.to_string(), "volumes[work].emptyDir: absent → {}");
}

#[test]
fn ports_are_told_apart_by_protocol() {
    let ports = |ports: Value| json!({"ports": ports});
    let both = ports(
        json!([{"containerPort": 53, "protocol": "UDP", "name": "u"},
                            {"containerPort": 53, "name": "t"}]),
    );
    let live = ports(
        json!([{"containerPort": 53, "protocol": "TCP", "name": "t"},
                            {"containerPort": 53, "protocol": "UDP", "name": "u"}]),
    );
    assert_eq!(lost(&both, &live), None);
    let tcp = ports(json!([{"containerPort": 53, "protocol": "TCP", "name": "t"}]));
    assert_eq!(lost_at(&both, &tcp).as_deref(), Some("ports[53/UDP]"));
    let renamed = ports(json!([{"containerPort": 53, "name": "x"}]));
    assert_eq!(lost_at(&tcp, &renamed).as_deref(), Some("ports[53].name"));
}

#[test]
fn elements_that_share_a_key_have_to_be_there_in_their_order() {
    let env = |values: &[&str]| {
        let env: Vec<Value> = values
            .iter()
            .map(|v| json!({"name": "X", "value": v}))
            .collect();
        json!({"env": env})
    };
    assert_eq!(lost(&env(&["1", "2"]), &env(&["1", "2"])), None);
    assert_eq!(lost(&env(&["1", "2"]), &env(&["0", "1", "3", "2"])), None);
    assert_eq!(
        lost_at(&env(&["1", "2"]), &env(&["2", "1"])).as_deref(),
        Some("env[X]")
    );
    assert_eq!(
        lost_at(&env(&["1"]), &env(&["2"])).as_deref(),
        Some("env[X].value")
    );
}

#[test]
fn a_list_without_keys_is_an_ordered_subsequence() {
    let args = |args: &[&str]| json!({"args": args});
    assert_eq!(lost(&args(&["a", "c"]), &args(&["a", "b", "c"])), None);
    let found = lost(&args(&["a", "x", "c"]), &args(&["a", "b", "c"])).unwrap();
    assert_eq!(
        found.to_string(),
        r#"containers[listener].args[1]: "b" → "x""#
    );
    let found = lost(&args(&["c", "a"]), &args(&["a", "b", "c"])).unwrap();
    assert_eq!(
        found.to_string(),
        r#"containers[listener].args[1]: absent → "a""#
    );
}

#[test]
fn drift_in_a_list_without_keys_is_seen_in_the_element_most_alike() {
    let spec =
        |tolerations: Value| read::<PodSpec>(json!({"containers": [], "tolerations": tolerations}));
    let desired = spec(json!([{"key": "dedicated", "operator": "Equal", "value": "ci"}]));
    let live = spec(json!([
        {"key": "spot", "operator": "Exists"},
        {"key": "dedicated", "operator": "Equal", "value": "web"}
    ]));
    let found = drift(&desired, &live).unwrap();
    assert_eq!(found.to_string(), r#"tolerations[0].value: "web" → "ci""#);
}

#[test]
fn an_entry_of_a_map_has_to_be_there_with_its_value() {
    let spec =
        |selector: Value| read::<PodSpec>(json!({"containers": [], "nodeSelector": selector}));
    let desired = spec(json!({"pool": ""}));
    assert_eq!(
        drift(&desired, &spec(json!({"os": "linux", "pool": ""}))),
        None
    );
    let other = drift(&desired, &spec(json!({"pool": "gpu"}))).unwrap();
    assert_eq!(other.to_string(), r#"nodeSelector[pool]: "gpu" → """#);
    let missing = drift(&desired, &spec(json!({"os": "linux"}))).unwrap();
    assert_eq!(missing.to_string(), r#"nodeSelector[pool]: absent → """#);
}

// === what is not shown ===

#[test]
fn values_of_the_environment_are_not_shown() {
    let env = |value: &str| json!({"env": [{"name": "TOKEN", "value": value}]});
    let found = lost(&env("new-secret"), &env("old-secret")).unwrap();
    assert_eq!(
        found.to_string(),
        "containers[listener].env[TOKEN].value: [redacted] → [redacted]"
    );
    let found = lost(&env("new-secret"), &json!({"env": [{"name": "TOKEN"}]})).unwrap();
    assert_eq!(
        found.to_string(),
        "containers[listener].env[TOKEN].value: absent → [redacted]"
    );
}

#[test]
fn data_of_secrets_is_not_shown() {
    let data = |value: &str| read::<Secret>(json!({"data": {"key.pem": value}}));
    let found = drift(&data("bmV3"), &data("b2xk")).unwrap();
    assert_eq!(found.to_string(), "data[key.pem]: [redacted] → [redacted]");
    let plain = |value: &str| read::<Secret>(json!({"stringData": {"token": value}}));
    let found = drift(&plain("ghp_new"), &plain("ghp_old")).unwrap();
    assert_eq!(
        found.to_string(),
        "stringData[token]: [redacted] → [redacted]"
    );
}

#[test]
fn values_of_http_headers_are_not_shown() {
    let header = |value: &str| {
        let headers = json!([{"name": "Authorization", "value": value}]);
        json!({"livenessProbe": {"httpGet": {"port": 1, "httpHeaders": headers}}})
    };
    let text = lost(&header("Bearer a"), &header("Bearer b"))
        .unwrap()
        .to_string();
    assert!(!text.contains("Bearer"), "{text}");
}

#[test]
fn long_values_are_cut() {
    let meta =
        |letter: &str| read::<ObjectMeta>(json!({"annotations": {"a": letter.repeat(9999)}}));
    let found = drift(&meta("ä"), &meta("b")).unwrap();
    assert!(found.to_string().chars().count() < 300, "{found}");
    assert!(found.desired.ends_with("ä…"), "{found}");
}
