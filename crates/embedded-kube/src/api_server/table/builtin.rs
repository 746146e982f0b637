//! The columns of built-in kinds.

use serde_json::{Value, json};

use super::{Column, age, pods};
use wall_clock::Timestamp;

/// Makes an object's cells, one for each column.
pub(super) type Cells = fn(&Value, Timestamp) -> Vec<Value>;

/// A column's name, its type, and whether it is shown with `-o wide` only.
pub(super) type Head = (&'static str, &'static str, bool);

pub(super) const NONE: &str = "<none>";
const UNKNOWN: &str = "<unknown>";

/// The columns and the cells of a resource.
pub(super) fn printer(group: &str, plural: &str) -> (Vec<Column>, Cells) {
    let (heads, cells): (&[Head], Cells) = match (group, plural) {
        ("", "pods") => (pods::HEADS, pods::cells),
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

pub(super) fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

pub(super) fn list<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

pub(super) fn number(value: &Value, pointer: &str) -> i64 {
    value.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn size(value: &Value, pointer: &str) -> usize {
    value
        .pointer(pointer)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

pub(super) fn or<'t>(text: &'t str, fallback: &'t str) -> &'t str {
    if text.is_empty() { fallback } else { text }
}

pub(super) fn or_none(text: &str) -> Value {
    json!(or(text, NONE))
}

pub(super) fn name(object: &Value) -> Value {
    json!(text(object, "/metadata/name"))
}

fn since(value: &Value, pointer: &str, now: Timestamp) -> Option<String> {
    let then = text(value, pointer).parse::<Timestamp>().ok()?;
    Some(age::since(then, now))
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
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

/// The status of a condition.
pub(super) fn condition<'v>(object: &'v Value, type_: &str) -> Option<&'v str> {
    list(object, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == type_)
        .map(|condition| text(condition, "/status"))
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
