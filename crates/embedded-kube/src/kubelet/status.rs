//! Pod statuses as a kubelet writes them.

use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

use wall_clock::Timestamp;

/// What a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// It waits, for this reason, with this message.
    Waiting(String, String),
    /// It runs, ready or not.
    Running(bool),
    /// It ended with this code and reason.
    Ended(i32, String),
}

/// The status of a whole pod.
pub struct PodState<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its phase.
    pub phase: &'a str,
    /// Why, when the pod as a whole ended.
    pub reason: Option<(&'a str, &'a str)>,
    /// Its init containers, all in the same state.
    pub init: ContainerState,
    /// Its containers by name, in the order of the spec.
    pub containers: Vec<(String, ContainerState)>,
    /// When it started.
    pub started: Timestamp,
    /// Now.
    pub now: Timestamp,
}

impl PodState<'_> {
    /// A merge patch of the status subresource.
    pub fn patch(&self) -> Value {
        let spec = self.pod.spec.as_ref();
        let images = |containers: Option<&Vec<Container>>| -> Vec<(String, String)> {
            containers
                .into_iter()
                .flatten()
                .map(|c| (c.name.clone(), c.image.clone().unwrap_or_default()))
                .collect()
        };
        let main = images(spec.map(|spec| &spec.containers));
        let init = images(spec.and_then(|spec| spec.init_containers.as_ref()));
        let ready = !self.containers.is_empty()
            && self
                .containers
                .iter()
                .all(|(_, state)| *state == ContainerState::Running(true));
        let condition = |kind: &str, holds: bool| {
            json!({
                "type": kind,
                "status": if holds { "True" } else { "False" },
                "lastTransitionTime": self.now,
            })
        };
        let container_statuses: Vec<Value> = main
            .iter()
            .filter_map(|(name, image)| {
                let (_, state) = self.containers.iter().find(|(known, _)| known == name)?;
                Some(self.container(name, image, state))
            })
            .collect();
        let init_statuses: Vec<Value> = init
            .iter()
            .map(|(name, image)| self.container(name, image, &self.init))
            .collect();
        json!({ "status": {
            "phase": self.phase,
            "reason": self.reason.map(|(reason, _)| reason),
            "message": self.reason.map(|(_, message)| message),
            "startTime": self.started,
            "hostIP": "10.0.0.1",
            "podIP": "10.1.0.1",
            "conditions": [
                condition("PodScheduled", true),
                condition("Initialized", self.init_done()),
                condition("ContainersReady", ready),
                condition("Ready", ready),
            ],
            "initContainerStatuses": init_statuses,
            "containerStatuses": container_statuses,
        }})
    }

    const fn init_done(&self) -> bool {
        matches!(
            self.init,
            ContainerState::Ended(0, _) | ContainerState::Running(_)
        )
    }

    fn container(&self, name: &str, image: &str, state: &ContainerState) -> Value {
        let (state, ready) = match state {
            ContainerState::Waiting(reason, message) => (
                json!({"waiting": {"reason": reason, "message": message}}),
                false,
            ),
            ContainerState::Running(ready) => {
                (json!({"running": {"startedAt": self.started}}), *ready)
            }
            ContainerState::Ended(code, reason) => (
                json!({"terminated": {
                    "exitCode": code,
                    "reason": reason,
                    "startedAt": self.started,
                    "finishedAt": self.now,
                }}),
                false,
            ),
        };
        json!({
            "name": name,
            "image": image,
            "imageID": format!("sim://{image}"),
            "restartCount": 0,
            "ready": ready,
            "started": ready,
            "state": state,
        })
    }
}
