//! What the first lists of the watches say about runners, so that a controller that takes over does
//! not ask for each of thousands of pods again.
//!
//! Pods are listed before the actors of their runners exist. What the lists showed is kept until
//! the runner's actor starts, or until something newer is seen.

use std::collections::HashMap;
use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::Pod;

use super::router::{ActorKey, ActorKind};
use crate::messages::Object;

/// The pods of listed runners.
#[derive(Default)]
pub struct FirstLists(DashMap<ActorKey, Option<Arc<Pod>>>);

impl FirstLists {
    /// Takes in all that was listed: for each runner its pod, or that there was none.
    pub fn fill<'a>(&self, objects: impl Iterator<Item = &'a Object> + Clone) {
        let pods: HashMap<ActorKey, Arc<Pod>> = objects
            .clone()
            .filter_map(|object| match object {
                Object::Pod(pod) => Some((runner(object), pod.clone())),
                _ => None,
            })
            .collect();
        for object in objects {
            if matches!(object, Object::EphemeralRunner(_)) {
                let key = runner(object);
                let pod = pods.get(&key).cloned();
                self.0.insert(key, pod);
            }
        }
    }

    /// The listed pod of a runner whose actor starts; `None` when the lists say nothing, or
    /// nothing that still holds.
    pub fn take(&self, key: &ActorKey) -> Option<Option<Arc<Pod>>> {
        self.0.remove(key).map(|(_, pod)| pod)
    }

    /// Something newer was seen of that runner, or of its pod.
    pub fn forget(&self, key: &ActorKey) {
        self.0.remove(key);
    }
}

/// The runner of that name.
fn runner(object: &Object) -> ActorKey {
    let object = object.reference();
    ActorKey::new(ActorKind::Runner, object.namespace, object.name)
}
