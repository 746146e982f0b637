//! What the real server fills in for pods and pod templates, admission plug-ins included.

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Map, Value, json};

use super::set;
use crate::api_server::admission::push;
use crate::api_server::handlers_write::NAME_LETTERS;
use crate::api_server::object;

/// File mode of volumes that are files: rw-r--r--.
const DEFAULT_MODE: i64 = 0o644;

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Seconds for which a pod tolerates a node that does not answer.
const NODE_TOLERATION_SECONDS: i64 = 300;

/// Fills in a pod's spec, or a template's.
pub(super) fn fill_in_spec(spec: &mut Map<String, Value>) {
    set(spec, "restartPolicy", json!("Always"));
    set(spec, "dnsPolicy", json!("ClusterFirst"));
    set(spec, "schedulerName", json!("default-scheduler"));
    set(spec, "terminationGracePeriodSeconds", json!(30));
    set(spec, "securityContext", json!({}));
    mirror_service_account(spec);
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Value::Object(container) = container {
                fill_in_container(container, host_network);
            }
        }
    }
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten() {
        if let Value::Object(volume) = volume {
            fill_in_volume(volume);
        }
    }
}

/// Fills in what only a pod has, and not a template.
pub(super) fn fill_in_pod(pod: &mut Value) {
    let spec = object::map_mut(pod, "spec");
    set(spec, "enableServiceLinks", json!(true));
    set(spec, "priority", json!(0));
    set(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        tolerate(spec, key);
    }
    let status = json!({ "phase": "Pending", "qosClass": qos_class(&pod["spec"]) });
    pod["status"] = status;
}

/// Fills in the service account and its token's volume. To be done before other admission.
pub(super) fn give_service_account(pod: &mut Value, account: Option<&Value>, rng: &mut StdRng) {
    let spec = object::map_mut(pod, "spec");
    set(spec, "serviceAccountName", json!("default"));
    mirror_service_account(spec);
    let account = account.unwrap_or(&Value::Null);
    let secrets = object::list(&account["imagePullSecrets"]);
    if object::list(spec.get("imagePullSecrets").unwrap_or(&Value::Null)).is_empty()
        && !secrets.is_empty()
    {
        spec.insert("imagePullSecrets".into(), secrets.into());
    }
    let wanted = match spec.get("automountServiceAccountToken") {
        Some(Value::Bool(wanted)) => *wanted,
        _ => account["automountServiceAccountToken"] != false,
    };
    if wanted {
        mount_token(spec, rng);
    }
}

fn mirror_service_account(spec: &mut Map<String, Value>) {
    let name = spec
        .get("serviceAccountName")
        .or_else(|| spec.get("serviceAccount"))
        .cloned();
    if let Some(name) = name {
        spec.insert("serviceAccountName".into(), name.clone());
        spec.insert("serviceAccount".into(), name);
    }
}

fn mount_token(spec: &mut Map<String, Value>, rng: &mut StdRng) {
    let mut volume = "kube-api-access-".to_owned();
    for _ in 0..5 {
        let letter = NAME_LETTERS[rng.random_range(0..NAME_LETTERS.len())];
        volume.push(char::from(letter));
    }
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let mounts = object::list(&container["volumeMounts"]);
            let taken = mounts.iter().any(|mount| mount["mountPath"] == TOKEN_PATH);
            if let (false, Value::Object(container)) = (taken, container) {
                let mount = json!({ "name": volume, "readOnly": true, "mountPath": TOKEN_PATH });
                push(container, "volumeMounts", mount);
                mounted = true;
            }
        }
    }
    if mounted {
        push(spec, "volumes", token_volume(&volume));
    }
}

fn token_volume(name: &str) -> Value {
    let field = json!({ "apiVersion": "v1", "fieldPath": "metadata.namespace" });
    json!({
        "name": name,
        "projected": {
            "defaultMode": DEFAULT_MODE,
            "sources": [
                { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
                { "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{ "key": "ca.crt", "path": "ca.crt" }],
                } },
                { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": field }] } },
            ],
        },
    })
}

fn tolerate(spec: &mut Map<String, Value>, key: &str) {
    let tolerations = spec.get("tolerations").unwrap_or(&Value::Null);
    let tolerated = object::list(tolerations).iter().any(|toleration| {
        let of_key = toleration["key"]
            .as_str()
            .is_none_or(|k| k.is_empty() || k == key);
        let effect = toleration["effect"].as_str().unwrap_or_default();
        of_key && matches!(effect, "" | "NoExecute")
    });
    if !tolerated {
        let toleration = json!({
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": NODE_TOLERATION_SECONDS,
        });
        push(spec, "tolerations", toleration);
    }
}

fn fill_in_container(container: &mut Map<String, Value>, host_network: bool) {
    set(container, "resources", json!({}));
    set(
        container,
        "terminationMessagePath",
        json!("/dev/termination-log"),
    );
    set(container, "terminationMessagePolicy", json!("File"));
    let image = container.get("image").and_then(Value::as_str);
    let policy = pull_policy(image.unwrap_or_default());
    set(container, "imagePullPolicy", json!(policy));
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        if let Value::Object(port) = port {
            set(port, "protocol", json!("TCP"));
            if let (true, Some(number)) = (host_network, port.get("containerPort").cloned()) {
                set(port, "hostPort", number);
            }
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(Value::Object(probe)) = container.get_mut(probe) {
            fill_in_probe(probe);
        }
    }
    for hook in ["postStart", "preStop"] {
        let lifecycle = container
            .get_mut("lifecycle")
            .and_then(Value::as_object_mut);
        if let Some(Value::Object(hook)) = lifecycle.and_then(|hooks| hooks.get_mut(hook)) {
            fill_in_http(hook);
        }
    }
    request_limits(container);
    let variables = container.get_mut("env").and_then(Value::as_array_mut);
    for variable in variables.into_iter().flatten() {
        if let Some(Value::Object(source)) = variable.get_mut("valueFrom") {
            fill_in_field(source);
        }
    }
}

/// Always for an image that may change under its name, else when it is not there.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or_default();
    let pinned = name.contains('@');
    let tag = name.split_once(':').map(|(_, tag)| tag);
    match tag {
        _ if pinned => "IfNotPresent",
        None | Some("latest") => "Always",
        Some(_) => "IfNotPresent",
    }
}

/// What is limited and not requested is requested.
fn request_limits(container: &mut Map<String, Value>) {
    let Some(Value::Object(resources)) = container.get_mut("resources") else {
        return;
    };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    if let Value::Object(requests) = requests {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

fn fill_in_probe(probe: &mut Map<String, Value>) {
    for (field, default) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        if probe.get(field).is_none_or(|value| *value == 0) {
            probe.insert(field.into(), default.into());
        }
    }
    if let Some(Value::Object(grpc)) = probe.get_mut("grpc") {
        set(grpc, "service", json!(""));
    }
    fill_in_http(probe);
}

fn fill_in_http(handler: &mut Map<String, Value>) {
    if let Some(Value::Object(http)) = handler.get_mut("httpGet") {
        set(http, "path", json!("/"));
        set(http, "scheme", json!("HTTP"));
    }
}

fn fill_in_field(source: &mut Map<String, Value>) {
    if let Some(Value::Object(field)) = source.get_mut("fieldRef") {
        set(field, "apiVersion", json!("v1"));
    }
    if let Some(Value::Object(field)) = source.get_mut("resourceFieldRef") {
        set(field, "divisor", json!("0"));
    }
}

fn fill_in_volume(volume: &mut Map<String, Value>) {
    if !volume.keys().any(|field| field != "name") {
        volume.insert("emptyDir".into(), json!({}));
    }
    for kind in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(Value::Object(source)) = volume.get_mut(kind) {
            set(source, "defaultMode", json!(DEFAULT_MODE));
            fill_in_files(source);
        }
    }
    let projected = volume.get_mut("projected");
    let sources = projected.and_then(|projected| projected.get_mut("sources"));
    for source in sources.and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(Value::Object(files)) = source.get_mut("downwardAPI") {
            fill_in_files(files);
        }
        if let Some(Value::Object(token)) = source.get_mut("serviceAccountToken") {
            set(token, "expirationSeconds", json!(3600));
        }
    }
    if let Some(Value::Object(host_path)) = volume.get_mut("hostPath") {
        set(host_path, "type", json!(""));
    }
    let template = volume
        .get_mut("ephemeral")
        .and_then(|v| v.get_mut("volumeClaimTemplate"));
    if let Some(Value::Object(claim)) = template.and_then(|template| template.get_mut("spec")) {
        set(claim, "volumeMode", json!("Filesystem"));
    }
}

fn fill_in_files(source: &mut Map<String, Value>) {
    let items = source.get_mut("items").and_then(Value::as_array_mut);
    for item in items.into_iter().flatten() {
        if let Value::Object(item) = item {
            fill_in_field(item);
        }
    }
}

/// Quality of service, from what the containers ask for.
fn qos_class(spec: &Value) -> &'static str {
    let containers = || {
        let init = object::list(&spec["initContainers"]);
        object::list(&spec["containers"]).iter().chain(init)
    };
    let named = |container: &Value, list: &str| -> Vec<Value> {
        let given = &container["resources"][list];
        ["cpu", "memory"]
            .iter()
            .map(|&name| given[name].clone())
            .collect()
    };
    let asks = |container: &Value| {
        let all = [named(container, "requests"), named(container, "limits")];
        all.iter().flatten().any(|quantity| !quantity.is_null())
    };
    if !containers().any(asks) {
        return "BestEffort";
    }
    let guaranteed = containers().all(|container| {
        let limits = named(container, "limits");
        limits.iter().all(|limit| !limit.is_null()) && limits == named(container, "requests")
    });
    if guaranteed {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
