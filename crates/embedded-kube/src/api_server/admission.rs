//! What admission webhooks of real clusters do to new objects, for tests that must stand it.

use serde_json::{Map, Value};

use super::kinds::ResourceType;
use super::object;

/// A change that admission makes to every new object of a kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Admission {
    /// Puts a container before all others in every pod, as service meshes do.
    FirstContainer(Value),
    /// Adds a volume to every pod behind its first one, and mounts it in every container at that
    /// path, likewise: between what was asked for and what other admission has added.
    Volume {
        /// The volume, as in a pod's spec.
        volume: Value,
        /// Where it is mounted.
        mount_path: String,
    },
    /// Adds labels to every object of a resource (by its plural name).
    Labels {
        /// The resource's.
        plural: String,
        /// Keys and values.
        labels: Vec<(String, String)>,
    },
}

impl Admission {
    /// Makes the change.
    pub(super) fn admit(&self, resource: &ResourceType, new: &mut Value) {
        let is_pod = resource.is("", "pods");
        match self {
            Self::FirstContainer(container) if is_pod => {
                if let Some(containers) = new["spec"]["containers"].as_array_mut() {
                    containers.insert(0, container.clone());
                }
            }
            Self::Volume { volume, mount_path } if is_pod => add_volume(new, volume, mount_path),
            Self::Labels { plural, labels } if *plural == resource.plural => {
                let metadata = object::meta_mut(new);
                let map = metadata
                    .entry("labels")
                    .or_insert_with(|| Value::Object(Map::new()));
                for (key, value) in labels {
                    map[key] = value.as_str().into();
                }
            }
            _ => {}
        }
    }
}

fn add_volume(pod: &mut Value, volume: &Value, mount_path: &str) {
    let spec = object::map_mut(pod, "spec");
    put_second(spec, "volumes", volume.clone());
    let containers = spec.get_mut("containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        if let Value::Object(container) = container {
            let mount = serde_json::json!({ "name": volume["name"], "mountPath": mount_path });
            put_second(container, "volumeMounts", mount);
        }
    }
}

fn put_second(fields: &mut Map<String, Value>, list: &str, item: Value) {
    match fields.get_mut(list) {
        Some(Value::Array(items)) if !items.is_empty() => items.insert(1, item),
        _ => push(fields, list, item),
    }
}

/// Appends to a list that may not be there yet.
pub(super) fn push(fields: &mut Map<String, Value>, list: &str, item: Value) {
    let items = fields
        .entry(list)
        .or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(items) = items {
        items.push(item);
    }
}
