//! The subresources of pods that are requests of their own: log, binding, eviction.

use std::sync::Arc;

use serde_json::{Value, json};

use super::handlers::{Call, Reply};
use super::handlers_delete::DeleteOptions;
use super::status::ApiError;
use super::{State, http as wire, object};

/// Where the kubelet leaves a container's output for `pods/log`.
pub const LOG_ANNOTATION: &str = "simulation.impresario/log";

impl State {
    /// The output of a pod: what the simulated kubelet left in its annotation.
    pub(super) fn pod_log(&self, call: &Call<'_>) -> Result<Reply, ApiError> {
        let pod = self.existing(call)?;
        let container = call.query.get("container");
        let names: Vec<&str> = object::list(&pod["spec"]["containers"])
            .iter()
            .chain(object::list(&pod["spec"]["initContainers"]))
            .filter_map(|container| container["name"].as_str())
            .collect();
        let name = call.target.name();
        if !container.is_empty() && !names.contains(&container) {
            return Err(ApiError::bad_request(format!(
                "container {container} is not valid for pod {name}"
            )));
        }
        if pod["spec"]["nodeName"]
            .as_str()
            .unwrap_or_default()
            .is_empty()
        {
            return Err(ApiError::bad_request(format!(
                "pod {name} does not have a host assigned"
            )));
        }
        let log = pod["metadata"]["annotations"][LOG_ANNOTATION].as_str();
        Ok(Reply::Text(log.unwrap_or_default().to_owned()))
    }

    /// Puts a pod on a node, as a scheduler asks for.
    pub(super) fn bind_pod(&mut self, call: &Call<'_>) -> Result<Reply, ApiError> {
        let pod = self.existing(call)?;
        let resource = Arc::clone(call.resource());
        let binding = wire::read_body(&call.parts.headers, call.body)?;
        let node = binding["target"]["name"].as_str().unwrap_or_default();
        let name = call.target.name();
        if node.is_empty() {
            return Err(ApiError::bad_request("binding: target.name is required"));
        }
        let refuse = |why: &str| Err(ApiError::conflict(resource.resource(), name, why));
        if object::is_deleting(&pod) {
            return refuse(&format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            ));
        }
        if let Some(assigned) = pod["spec"]["nodeName"]
            .as_str()
            .filter(|node| !node.is_empty())
        {
            return refuse(&format!(
                "pod {name} is already assigned to node {assigned:?}"
            ));
        }
        let mut bound = Value::clone(&pod);
        bound["spec"]["nodeName"] = node.into();
        set_condition(
            &mut bound,
            json!({
                "type": "PodScheduled",
                "status": "True",
                "lastTransitionTime": object::time(call.now),
            }),
        );
        if !call.is_dry_run()? {
            self.write(&resource, bound);
        }
        Ok(Reply::Document(201, created()))
    }

    /// Deletes a pod politely. There are no disruption budgets here, so nothing refuses.
    pub(super) fn evict_pod(&mut self, call: &Call<'_>) -> Result<Reply, ApiError> {
        let pod = self.existing(call)?;
        let resource = Arc::clone(call.resource());
        let eviction = wire::read_body(&call.parts.headers, call.body)?;
        let options = DeleteOptions::from_parts(call, &eviction["deleteOptions"])?;
        let mut evicted = pod;
        if !options.dry_run && !object::is_deleting(&evicted) {
            let mut marked = Value::clone(&evicted);
            set_condition(
                &mut marked,
                json!({
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "EvictionByEvictionAPI",
                    "message": "Eviction API: evicting",
                    "lastTransitionTime": object::time(call.now),
                }),
            );
            evicted = self.write(&resource, marked);
        }
        self.delete_object(&resource, &evicted, &options, call.now)?;
        Ok(Reply::Document(201, created()))
    }
}

fn set_condition(pod: &mut Value, condition: Value) {
    let status = object::map_mut(pod, "status");
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    conditions.retain(|other| other["type"] != condition["type"]);
    conditions.push(condition);
}

fn created() -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    })
}
