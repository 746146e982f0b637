//! The subresources of pods that are requests of their own: log, binding, eviction.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::handlers::{Call, Reply};
use super::handlers_delete::DeleteOptions;
use super::status::ApiError;
use super::{State, http as wire, object};

/// What containers have written, by their pod's uid and their name.
#[derive(Debug, Default)]
pub(super) struct Logs(BTreeMap<(String, String), String>);

impl Logs {
    pub fn append(&mut self, pod: &Value, container: &str, line: &str) {
        let key = (object::uid(pod).to_owned(), container.to_owned());
        let log = self.0.entry(key).or_default();
        log.push_str(line);
        log.push('\n');
    }

    fn read(&self, pod: &Value, container: &str) -> &str {
        let key = (object::uid(pod).to_owned(), container.to_owned());
        self.0.get(&key).map_or("", String::as_str)
    }

    /// Drops what the containers of a pod that is gone have written.
    pub fn forget(&mut self, pod: &Value) {
        let uid = object::uid(pod);
        self.0.retain(|(of, _), _| of != uid);
    }
}

impl State {
    /// What a container of a pod has written.
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
        let container = match (container, names.first()) {
            ("", Some(first)) => first,
            (given, _) => given,
        };
        let log = self.logs.read(&pod, container);
        let lines: Vec<&str> = log.split_inclusive('\n').collect();
        let wanted = call.query.number("tailLines")?.map(|count| count as usize);
        let skipped = lines.len().saturating_sub(wanted.unwrap_or(lines.len()));
        Ok(Reply::Text(lines[skipped..].concat()))
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
