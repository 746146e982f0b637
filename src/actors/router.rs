//! Finds the actor that a watch event is for, from the object's kind, name, owner references
//! and labels. Keeps no object.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use dashmap::DashMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::inbox::Deliver;
use crate::api::constants::labels;
use crate::messages::{Object, ObjectRef};

/// How many uids of objects whose actors have stopped are remembered.
const BURIED: usize = 8192;

/// The actors that objects are delivered to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActorKind {
    /// One per AutoscalingRunnerSet, with its namespace and name.
    ScaleSet,
    /// One per AutoscalingListener.
    Listener,
    /// One per EphemeralRunnerSet.
    RunnerSet,
    /// One per EphemeralRunner.
    Runner,
}

/// Names an actor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorKey {
    /// What it is.
    pub kind: ActorKind,
    /// Namespace of its object.
    pub namespace: String,
    /// Name of its object.
    pub name: String,
}

impl ActorKey {
    /// Puts the three together.
    pub fn new(kind: ActorKind, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ActorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{}/{}", self.kind, self.namespace, self.name)
    }
}

/// What a watch showed.
#[derive(Clone, Debug)]
pub enum Sighting {
    /// The newest state of an object.
    Observed(Object),
    /// That an object is gone.
    Gone {
        /// Which.
        object: ObjectRef,
        /// The uid it had.
        uid: String,
        /// The actors it may be for, best first.
        keys: Vec<ActorKey>,
    },
}

/// Finds actors. Shared by all threads.
#[derive(Default)]
pub struct Router {
    actors: DashMap<ActorKey, Arc<dyn Deliver>>,
    buried: Mutex<Buried>,
}

#[derive(Default)]
struct Buried {
    known: HashSet<String>,
    oldest_first: VecDeque<String>,
}

impl Router {
    /// An actor has started.
    pub fn register(&self, key: ActorKey, inbox: Arc<dyn Deliver>) {
        self.actors.insert(key, inbox);
    }

    /// An actor has stopped. Late events about its objects are dropped from now on, so that
    /// they do not bring it back.
    pub fn forget(&self, key: &ActorKey, uids: impl Iterator<Item = String>) {
        self.actors.remove(key);
        let mut buried = self.buried.lock().unwrap_or_else(PoisonError::into_inner);
        for uid in uids {
            if buried.known.insert(uid.clone()) {
                buried.oldest_first.push_back(uid);
            }
            if buried.oldest_first.len() > BURIED
                && let Some(oldest) = buried.oldest_first.pop_front()
            {
                buried.known.remove(&oldest);
            }
        }
    }

    /// Delivers what a watch showed. Answers with the scale set's key and the sighting when no
    /// actor is there that could take it and one has to be made.
    #[must_use]
    pub fn deliver(&self, sighting: Sighting) -> Option<(ActorKey, Sighting)> {
        let (keys, uid) = match &sighting {
            Sighting::Observed(object) => (keys_of(object), object.uid().to_owned()),
            Sighting::Gone { keys, uid, .. } => (keys.clone(), uid.clone()),
        };
        if self.is_buried(&uid) {
            return None;
        }
        for key in &keys {
            // the guard is not held while the message is sent
            let inbox = self.actors.get(key).map(|entry| entry.value().clone());
            if let Some(inbox) = inbox {
                match sighting {
                    Sighting::Observed(object) => inbox.observed(object),
                    Sighting::Gone { object, uid, .. } => inbox.gone(object, uid),
                }
                return None;
            }
        }
        match (&sighting, keys.last()) {
            (Sighting::Observed(_), Some(key)) if key.kind == ActorKind::ScaleSet => {
                Some((key.clone(), sighting))
            }
            _ => None,
        }
    }

    fn is_buried(&self, uid: &str) -> bool {
        let buried = self.buried.lock().unwrap_or_else(PoisonError::into_inner);
        buried.known.contains(uid)
    }
}

/// The actors that an object may be for: the one that owns it, then those above it that can
/// make the one that owns it. For custom resources the last is the scale set.
#[must_use]
pub fn keys_of(object: &Object) -> Vec<ActorKey> {
    use ActorKind::{Listener, Runner, RunnerSet, ScaleSet};
    let meta = object.meta();
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let name = meta.name.as_deref().unwrap_or_default();
    match object {
        Object::AutoscalingRunnerSet(_) => vec![ActorKey::new(ScaleSet, namespace, name)],
        Object::AutoscalingListener(listener) => vec![
            ActorKey::new(Listener, namespace, name),
            ActorKey::new(
                ScaleSet,
                &listener.spec.autoscaling_runner_set_namespace,
                &listener.spec.autoscaling_runner_set_name,
            ),
        ],
        Object::EphemeralRunnerSet(_) => {
            let owner = owner(meta, "AutoscalingRunnerSet").unwrap_or(name);
            vec![
                ActorKey::new(RunnerSet, namespace, name),
                ActorKey::new(ScaleSet, namespace, owner),
            ]
        }
        Object::EphemeralRunner(_) => {
            let mut keys = vec![ActorKey::new(Runner, namespace, name)];
            let set =
                owner(meta, "EphemeralRunnerSet").or_else(|| label(meta, labels::SCALE_SET_NAME));
            if let Some(set) = set {
                keys.push(ActorKey::new(RunnerSet, namespace, set));
                let scale_set = label(meta, labels::SCALE_SET_NAME).unwrap_or(set);
                keys.push(ActorKey::new(ScaleSet, namespace, scale_set));
            }
            keys
        }
        Object::Pod(_) | Object::ServiceAccount(_) | Object::Secret(_) | Object::ConfigMap(_) => {
            if let Some(runner) = owner(meta, "EphemeralRunner") {
                vec![ActorKey::new(Runner, namespace, runner)]
            } else if let Some(listener) = owner(meta, "AutoscalingListener") {
                vec![ActorKey::new(Listener, namespace, listener)]
            } else {
                // an owner reference may have been removed; the names are the owners'
                vec![
                    ActorKey::new(Runner, namespace, name),
                    ActorKey::new(Listener, namespace, name),
                ]
            }
        }
        Object::Role(_) | Object::RoleBinding(_) => {
            match (
                label(meta, labels::LISTENER_NAMESPACE),
                label(meta, labels::LISTENER_NAME),
            ) {
                (Some(namespace), Some(name)) => vec![ActorKey::new(Listener, namespace, name)],
                _ => Vec::new(),
            }
        }
    }
}

fn owner<'a>(meta: &'a ObjectMeta, kind: &str) -> Option<&'a str> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|owner| owner.kind == kind)
        .map(|owner| owner.name.as_str())
}

fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}
