//! A pod in one line: what its containers do, in a word and three counts.

use serde_json::{Value, json};

use super::age;
use super::builtin::{self, Head, NONE, condition, list, name, number, or, or_none, text};
use wall_clock::Timestamp;

pub(super) const HEADS: &[Head] = &[
    ("Ready", "string", false),
    ("Status", "string", false),
    ("Restarts", "string", false),
    ("Age", "string", false),
    ("IP", "string", true),
    ("Node", "string", true),
    ("Nominated Node", "string", true),
    ("Readiness Gates", "string", true),
];

pub(super) fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
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
        builtin::age(pod, now),
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
