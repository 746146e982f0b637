//! The columns of built-in kinds.

use serde_json::{Value, json};

use super::{Column, age};
use crate::clock::Timestamp;

/// Makes an object's cells, one for each column.
pub(super) type Cells = fn(&Value, Timestamp) -> Vec<Value>;

/// A column's name, its type, and whether it is shown with `-o wide` only.
type Head = (&'static str, &'static str, bool);

const NONE: &str = "<none>";
const UNKNOWN: &str = "<unknown>";

/// The columns and the cells of a resource.
pub(super) fn printer(group: &str, plural: &str) -> (Vec<Column>, Cells) {
    let (heads, cells): (&[Head], Cells) = match (group, plural) {
        ("", "pods") => (PODS, pod),
        ("", "nodes") => (NODES, node),
        ("", "secrets") => (SECRETS, secret),
        ("", "configmaps") => (CONFIG_MAPS, config_map),
        ("", "serviceaccounts") => (SERVICE_ACCOUNTS, service_account),
        ("", "namespaces") => (NAMESPACES, namespace),
        ("" | "events.k8s.io", "events") => (EVENTS, event),
        ("", "services") => (SERVICES, service),
        ("", "persistentvolumeclaims") => (CLAIMS, claim),
        ("", "resourcequotas") => (QUOTAS, quota),
        ("apps", "deployments") => (DEPLOYMENTS, deployment),
        ("batch", "jobs") => (JOBS, job),
        ("coordination.k8s.io", "leases") => (LEASES, lease),
        ("rbac.authorization.k8s.io", "roles" | "clusterroles")
        | ("apiextensions.k8s.io", "customresourcedefinitions") => (CREATED, created),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            (BINDINGS, binding)
        }
        _ => (&[("Age", "string", false)], named),
    };
    let mut columns = match (group, plural) {
        ("" | "events.k8s.io", "events") => Vec::new(),
        _ => vec![Column::new("Name", "string", "name", 0)],
    };
    columns.extend(heads.iter().map(|(name, type_, wide)| {
        let format = if *name == "Name" { "name" } else { "" };
        Column::new(name, type_, format, i64::from(*wide))
    }));
    (columns, cells)
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

fn list<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn size(value: &Value, pointer: &str) -> usize {
    value
        .pointer(pointer)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

fn or<'t>(text: &'t str, fallback: &'t str) -> &'t str {
    if text.is_empty() { fallback } else { text }
}

fn or_none(text: &str) -> Value {
    json!(or(text, NONE))
}

fn name(object: &Value) -> Value {
    json!(text(object, "/metadata/name"))
}

fn since(value: &Value, pointer: &str, now: Timestamp) -> Option<String> {
    let then = text(value, pointer).parse::<Timestamp>().ok()?;
    Some(age::since(then, now))
}

fn age(object: &Value, now: Timestamp) -> Value {
    json!(since(object, "/metadata/creationTimestamp", now).unwrap_or_else(|| UNKNOWN.into()))
}

/// `a=1,b=2`, in order.
fn labels(value: &Value, pointer: &str) -> Value {
    let all: Vec<String> = value
        .pointer(pointer)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    or_none(&all.join(","))
}

fn named(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(object), age(object, now)]
}

const CREATED: &[Head] = &[("Created At", "date", false)];

fn created(object: &Value, _: Timestamp) -> Vec<Value> {
    vec![
        name(object),
        json!(text(object, "/metadata/creationTimestamp")),
    ]
}

const PODS: &[Head] = &[
    ("Ready", "string", false),
    ("Status", "string", false),
    ("Restarts", "string", false),
    ("Age", "string", false),
    ("IP", "string", true),
    ("Node", "string", true),
    ("Nominated Node", "string", true),
    ("Readiness Gates", "string", true),
];

fn pod(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = PodSummary::of(pod);
    let restarts = match (&summary.last_restart, summary.restarts) {
        (Some(last), restarts) if restarts > 0 => {
            format!("{restarts} ({} ago)", age::since(*last, now))
        }
        (_, restarts) => restarts.to_string(),
    };
    vec![
        name(pod),
        json!(format!("{}/{}", summary.ready, summary.total)),
        json!(summary.status),
        json!(restarts),
        age(pod, now),
        or_none(text(pod, "/status/podIP")),
        or_none(text(pod, "/spec/nodeName")),
        or_none(text(pod, "/status/nominatedNodeName")),
        readiness_gates(pod),
    ]
}

fn readiness_gates(pod: &Value) -> Value {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return json!(NONE);
    }
    let ready = gates
        .iter()
        .filter(|gate| condition(pod, text(gate, "/conditionType")) == Some("True"))
        .count();
    json!(format!("{ready}/{}", gates.len()))
}

/// The status of a condition.
fn condition<'v>(object: &'v Value, type_: &str) -> Option<&'v str> {
    list(object, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == type_)
        .map(|condition| text(condition, "/status"))
}

/// A pod's state in one word and its counts.
struct PodSummary {
    status: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

impl PodSummary {
    fn of(pod: &Value) -> Self {
        let phase = text(pod, "/status/phase");
        let restartable = |container: &&Value| text(container, "/restartPolicy") == "Always";
        let sidecars = list(pod, "/spec/initContainers")
            .iter()
            .filter(restartable)
            .count();
        let mut summary = Self {
            status: or(text(pod, "/status/reason"), phase).to_owned(),
            ready: 0,
            total: list(pod, "/spec/containers").len() + sidecars,
            restarts: 0,
            last_restart: None,
        };
        let initializing = summary.count_init(pod);
        if !initializing || condition(pod, "Initialized") == Some("True") {
            summary.count_containers(pod);
        }
        let deleted = pod.pointer("/metadata/deletionTimestamp").is_some();
        if deleted && text(pod, "/status/reason") == "NodeLost" {
            summary.status = "Unknown".into();
        } else if deleted && !matches!(phase, "Succeeded" | "Failed") {
            summary.status = "Terminating".into();
        }
        summary
    }

    fn count_restarts(&mut self, status: &Value) {
        self.restarts += number(status, "/restartCount");
        let ended = text(status, "/lastState/terminated/finishedAt").parse::<Timestamp>();
        self.last_restart = self.last_restart.max(ended.ok());
    }

    /// Looks at the first init container that is not through; returns whether there is one.
    fn count_init(&mut self, pod: &Value) -> bool {
        let containers = list(pod, "/spec/initContainers");
        let is_sidecar = |status: &Value| {
            containers.iter().any(|container| {
                container["name"] == status["name"] && text(container, "/restartPolicy") == "Always"
            })
        };
        for (index, status) in list(pod, "/status/initContainerStatuses")
            .iter()
            .enumerate()
        {
            self.count_restarts(status);
            let terminated = status
                .pointer("/state/terminated")
                .filter(|ended| !ended.is_null());
            let waiting = text(status, "/state/waiting/reason");
            self.status = match terminated {
                Some(ended) if number(ended, "/exitCode") == 0 => continue,
                _ if is_sidecar(status) && status["started"] == true => {
                    self.ready += usize::from(status["ready"] == true);
                    continue;
                }
                Some(ended) => format!("Init:{}", end_reason(ended)),
                None if !matches!(waiting, "" | "PodInitializing") => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", containers.len()),
            };
            return true;
        }
        false
    }

    fn count_containers(&mut self, pod: &Value) {
        let mut any_running = false;
        // the first container's state is the one that shows
        for status in list(pod, "/status/containerStatuses").iter().rev() {
            self.count_restarts(status);
            let waiting = text(status, "/state/waiting/reason");
            let terminated = status
                .pointer("/state/terminated")
                .filter(|ended| !ended.is_null());
            if !waiting.is_empty() {
                self.status = waiting.to_owned();
            } else if let Some(ended) = terminated {
                self.status = end_reason(ended);
            } else if status["ready"] == true && status.pointer("/state/running").is_some() {
                any_running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" && any_running {
            let ready = condition(pod, "Ready") == Some("True");
            self.status = if ready { "Running" } else { "NotReady" }.into();
        }
    }
}

/// Why a container ended, in one word.
fn end_reason(terminated: &Value) -> String {
    let signal = number(terminated, "/signal");
    match text(terminated, "/reason") {
        "" if signal != 0 => format!("Signal:{signal}"),
        "" => format!("ExitCode:{}", number(terminated, "/exitCode")),
        reason => reason.to_owned(),
    }
}

const NODES: &[Head] = &[
    ("Status", "string", false),
    ("Roles", "string", false),
    ("Age", "string", false),
    ("Version", "string", false),
    ("Internal-IP", "string", true),
    ("External-IP", "string", true),
    ("OS-Image", "string", true),
    ("Kernel-Version", "string", true),
    ("Container-Runtime", "string", true),
];

fn node(node: &Value, now: Timestamp) -> Vec<Value> {
    let ready = match condition(node, "Ready") {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = node.pointer("/spec/unschedulable") == Some(&json!(true));
    let status = if cordoned {
        format!("{ready},SchedulingDisabled")
    } else {
        ready.into()
    };
    let roles: Vec<&str> = node
        .pointer("/metadata/labels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    let address = |type_: &str| {
        let all = list(node, "/status/addresses");
        let found = all.iter().find(|address| text(address, "/type") == type_);
        or_none(found.map_or("", |address| text(address, "/address")))
    };
    let info = |field: &str| {
        json!(or(
            text(node, &format!("/status/nodeInfo/{field}")),
            UNKNOWN
        ))
    };
    vec![
        name(node),
        json!(status),
        or_none(&roles.join(",")),
        age(node, now),
        json!(text(node, "/status/nodeInfo/kubeletVersion")),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

const SECRETS: &[Head] = &[
    ("Type", "string", false),
    ("Data", "integer", false),
    ("Age", "string", false),
];

fn secret(secret: &Value, now: Timestamp) -> Vec<Value> {
    let type_ = json!(text(secret, "/type"));
    vec![
        name(secret),
        type_,
        json!(size(secret, "/data")),
        age(secret, now),
    ]
}

const CONFIG_MAPS: &[Head] = &[("Data", "integer", false), ("Age", "string", false)];

fn config_map(map: &Value, now: Timestamp) -> Vec<Value> {
    let entries = size(map, "/data") + size(map, "/binaryData");
    vec![name(map), json!(entries), age(map, now)]
}

// servers of 1.34 and later no longer count Secrets here
const SERVICE_ACCOUNTS: &[Head] = &[("Age", "string", false)];

fn service_account(account: &Value, now: Timestamp) -> Vec<Value> {
    named(account, now)
}

const NAMESPACES: &[Head] = &[("Status", "string", false), ("Age", "string", false)];

fn namespace(namespace: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(namespace),
        json!(text(namespace, "/status/phase")),
        age(namespace, now),
    ]
}

const EVENTS: &[Head] = &[
    ("Last Seen", "string", false),
    ("Type", "string", false),
    ("Reason", "string", false),
    ("Object", "string", false),
    ("Subobject", "string", true),
    ("Source", "string", true),
    ("Message", "string", false),
    ("First Seen", "string", true),
    ("Count", "string", true),
    ("Name", "string", true),
];

/// An event in either of its two spellings (`v1` and `events.k8s.io/v1`).
fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let either = |old: &str, new: &str| or(text(event, old), text(event, new)).to_owned();
    let time = |pointers: &[&str]| {
        let found = pointers
            .iter()
            .find_map(|pointer| since(event, pointer, now));
        found.unwrap_or_else(|| UNKNOWN.into())
    };
    let first = ["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"];
    let last = [
        "/series/lastObservedTime",
        "/lastTimestamp",
        "/deprecatedLastTimestamp",
        "/firstTimestamp",
        "/deprecatedFirstTimestamp",
        "/eventTime",
    ];
    let counts = ["/series/count", "/count", "/deprecatedCount"];
    let count = counts
        .iter()
        .map(|pointer| number(event, pointer))
        .find(|count| *count > 0);
    let kind = either("/involvedObject/kind", "/regarding/kind").to_lowercase();
    let object = either("/involvedObject/name", "/regarding/name");
    let component = either("/source/component", "/deprecatedSource/component");
    let component = or(&component, text(event, "/reportingComponent"));
    let component = or(component, text(event, "/reportingController")).to_owned();
    let host = either("/source/host", "/deprecatedSource/host");
    let source = if host.is_empty() {
        component
    } else {
        format!("{component}, {host}")
    };
    vec![
        json!(time(&last)),
        json!(text(event, "/type")),
        json!(text(event, "/reason")),
        json!(format!("{kind}/{object}")),
        json!(either("/involvedObject/fieldPath", "/regarding/fieldPath")),
        json!(source),
        json!(either("/message", "/note").trim()),
        json!(time(&first)),
        json!(count.unwrap_or(1)),
        name(event),
    ]
}

const SERVICES: &[Head] = &[
    ("Type", "string", false),
    ("Cluster-IP", "string", false),
    ("External-IP", "string", false),
    ("Port(s)", "string", false),
    ("Age", "string", false),
    ("Selector", "string", true),
];

fn service(service: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = list(service, "/spec/ports")
        .iter()
        .map(|port| {
            let protocol = or(text(port, "/protocol"), "TCP");
            match number(port, "/nodePort") {
                0 => format!("{}/{protocol}", number(port, "/port")),
                node => format!("{}:{node}/{protocol}", number(port, "/port")),
            }
        })
        .collect();
    vec![
        name(service),
        json!(or(text(service, "/spec/type"), "ClusterIP")),
        or_none(text(service, "/spec/clusterIP")),
        json!(NONE),
        or_none(&ports.join(",")),
        age(service, now),
        labels(service, "/spec/selector"),
    ]
}

const CLAIMS: &[Head] = &[
    ("Status", "string", false),
    ("Volume", "string", false),
    ("Capacity", "string", false),
    ("Access Modes", "string", false),
    ("StorageClass", "string", false),
    ("VolumeAttributesClass", "string", false),
    ("Age", "string", false),
    ("VolumeMode", "string", true),
];

fn claim(claim: &Value, now: Timestamp) -> Vec<Value> {
    let phase = match claim.pointer("/metadata/deletionTimestamp") {
        Some(_) => "Terminating",
        None => text(claim, "/status/phase"),
    };
    let modes: Vec<&str> = list(claim, "/status/accessModes")
        .iter()
        .filter_map(Value::as_str)
        .map(|mode| match mode {
            "ReadWriteOnce" => "RWO",
            "ReadOnlyMany" => "ROX",
            "ReadWriteMany" => "RWX",
            "ReadWriteOncePod" => "RWOP",
            other => other,
        })
        .collect();
    vec![
        name(claim),
        json!(phase),
        json!(text(claim, "/spec/volumeName")),
        json!(text(claim, "/status/capacity/storage")),
        json!(modes.join(",")),
        json!(text(claim, "/spec/storageClassName")),
        json!(or(
            text(claim, "/spec/volumeAttributesClassName"),
            "<unset>"
        )),
        age(claim, now),
        json!(or(text(claim, "/spec/volumeMode"), "<unset>")),
    ]
}

const QUOTAS: &[Head] = &[
    ("Request", "string", false),
    ("Limit", "string", false),
    ("Age", "string", false),
];

fn quota(quota: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let hard = quota.pointer("/status/hard").and_then(Value::as_object);
    for (resource, hard) in hard.into_iter().flatten() {
        let used = &quota["status"]["used"][resource];
        let line = format!(
            "{resource}: {}/{}",
            used.as_str().unwrap_or("0"),
            hard.as_str().unwrap_or_default()
        );
        if resource.starts_with("limits") {
            limits.push(line)
        } else {
            requests.push(line)
        }
    }
    vec![
        name(quota),
        json!(requests.join(", ")),
        json!(limits.join(", ")),
        age(quota, now),
    ]
}

const DEPLOYMENTS: &[Head] = &[
    ("Ready", "string", false),
    ("Up-to-date", "integer", false),
    ("Available", "integer", false),
    ("Age", "string", false),
    ("Containers", "string", true),
    ("Images", "string", true),
    ("Selector", "string", true),
];

fn deployment(deployment: &Value, now: Timestamp) -> Vec<Value> {
    let wanted = deployment
        .pointer("/spec/replicas")
        .and_then(Value::as_i64)
        .unwrap_or(1);
    let (containers, images) = template(deployment);
    vec![
        name(deployment),
        json!(format!(
            "{}/{wanted}",
            number(deployment, "/status/readyReplicas")
        )),
        json!(number(deployment, "/status/updatedReplicas")),
        json!(number(deployment, "/status/availableReplicas")),
        age(deployment, now),
        containers,
        images,
        labels(deployment, "/spec/selector/matchLabels"),
    ]
}

/// The names and images of a pod template's containers.
fn template(object: &Value) -> (Value, Value) {
    let containers = list(object, "/spec/template/spec/containers");
    let all = |field: &str| {
        let values: Vec<&str> = containers
            .iter()
            .map(|container| text(container, field))
            .collect();
        json!(values.join(","))
    };
    (all("/name"), all("/image"))
}

const JOBS: &[Head] = &[
    ("Status", "string", false),
    ("Completions", "string", false),
    ("Duration", "string", false),
    ("Age", "string", false),
    ("Containers", "string", true),
    ("Images", "string", true),
    ("Selector", "string", true),
];

fn job(job: &Value, now: Timestamp) -> Vec<Value> {
    let status = ["Complete", "Failed", "Suspended"]
        .into_iter()
        .find(|type_| condition(job, type_) == Some("True"));
    let wanted = job
        .pointer("/spec/completions")
        .and_then(Value::as_i64)
        .unwrap_or(1);
    let end = text(job, "/status/completionTime")
        .parse::<Timestamp>()
        .unwrap_or(now);
    let duration = since(job, "/status/startTime", end).unwrap_or_default();
    let (containers, images) = template(job);
    vec![
        name(job),
        json!(status.unwrap_or("Running")),
        json!(format!("{}/{wanted}", number(job, "/status/succeeded"))),
        json!(duration),
        age(job, now),
        containers,
        images,
        labels(job, "/spec/selector/matchLabels"),
    ]
}

const LEASES: &[Head] = &[("Holder", "string", false), ("Age", "string", false)];

fn lease(lease: &Value, now: Timestamp) -> Vec<Value> {
    let holder = json!(text(lease, "/spec/holderIdentity"));
    vec![name(lease), holder, age(lease, now)]
}

const BINDINGS: &[Head] = &[
    ("Role", "string", false),
    ("Age", "string", false),
    ("Users", "string", true),
    ("Groups", "string", true),
    ("ServiceAccounts", "string", true),
];

fn binding(binding: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let all: Vec<String> = list(binding, "/subjects")
            .iter()
            .filter(|subject| text(subject, "/kind") == kind)
            .map(|subject| match text(subject, "/namespace") {
                "" => text(subject, "/name").to_owned(),
                namespace => format!("{namespace}/{}", text(subject, "/name")),
            })
            .collect();
        json!(all.join(", "))
    };
    vec![
        name(binding),
        json!(format!(
            "{}/{}",
            text(binding, "/roleRef/kind"),
            text(binding, "/roleRef/name")
        )),
        age(binding, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}
