//! Finds the actor that a watch event is for, from the object's kind, name, owner references
//! and labels. Keeps no object.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use dashmap::DashMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::first_lists::FirstLists;
use super::mailbox::Deliver;
use crate::api::constants::labels;
use crate::messages::{Object, ObjectRef};

/// How many uids of objects whose actors have stopped are remembered.
const REMEMBERED: usize = 8192;

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
pub enum ObjectEvent {
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

/// Takes a event that no actor is there for.
type Unclaimed = Box<dyn Fn(ActorKey, ObjectEvent) + Send + Sync>;

/// Finds actors. Shared by all threads.
#[derive(Default)]
pub struct Router {
    actors: DashMap<ActorKey, Arc<dyn Deliver>>,
    /// What was listed of runners whose actors have not started.
    pub(super) first_lists: FirstLists,
    recently_deleted: Mutex<RecentlyDeleted>,
    /// The only namespace whose scale sets are looked after; absent for all.
    scope: Option<String>,
    unclaimed: OnceLock<Unclaimed>,
}

#[derive(Default)]
struct RecentlyDeleted {
    known: HashSet<String>,
    oldest_first: VecDeque<String>,
}

impl Router {
    /// Of a controller that looks after the scale sets in that namespace only. What belongs to
    /// others, such as the AutoscalingListeners that another controller keeps in the same
    /// namespace as this one, is not seen.
    #[must_use]
    pub fn within(scope: Option<String>) -> Self {
        Self {
            scope,
            ..Self::default()
        }
    }

    /// Sets who takes what is handed on and no actor is there for. To be called once.
    pub fn set_unclaimed(&self, take: impl Fn(ActorKey, ObjectEvent) + Send + Sync + 'static) {
        let _first = self.unclaimed.set(Box::new(take));
    }

    /// Delivers what an actor has left behind that has stopped.
    pub fn hand_on(&self, event: ObjectEvent) {
        if let Some((key, event)) = self.deliver(event)
            && let Some(take) = self.unclaimed.get()
        {
            take(key, event);
        }
    }

    /// An actor has started.
    pub fn register(&self, key: ActorKey, mailbox: Arc<dyn Deliver>) {
        self.actors.insert(key, mailbox);
    }

    /// An actor has stopped. Late events about its objects are dropped from now on, so that
    /// they do not bring it back.
    pub fn forget(&self, key: &ActorKey, uids: impl Iterator<Item = String>) {
        self.actors.remove(key);
        let mut recently_deleted = self
            .recently_deleted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for uid in uids {
            if recently_deleted.known.insert(uid.clone()) {
                recently_deleted.oldest_first.push_back(uid);
            }
            if recently_deleted.oldest_first.len() > REMEMBERED
                && let Some(oldest) = recently_deleted.oldest_first.pop_front()
            {
                recently_deleted.known.remove(&oldest);
            }
        }
    }

    /// Delivers what a watch showed. Answers with the scale set's key and the event when no
    /// actor is there that could take it: one may be starting, or has to be made.
    #[must_use]
    pub fn deliver(&self, event: ObjectEvent) -> Option<(ActorKey, ObjectEvent)> {
        let undelivered = self.offer(event)?;
        for key in &undelivered.keys {
            // whoever starts later has to look
            self.first_lists.forget(key);
        }
        self.nearest(undelivered)
    }

    /// The same for an object of the first lists, which is no news.
    #[must_use]
    pub fn deliver_listed(&self, object: Object) -> Option<(ActorKey, ObjectEvent)> {
        self.nearest(self.offer(ObjectEvent::Observed(object))?)
    }

    /// Hands a event to the first actor that is there for it, or hands it back with the keys
    /// of those that are not.
    fn offer(&self, event: ObjectEvent) -> Option<Undelivered> {
        let (keys, uid) = match &event {
            ObjectEvent::Observed(object) => (keys_of(object), object.uid().to_owned()),
            ObjectEvent::Gone { keys, uid, .. } => (keys.clone(), uid.clone()),
        };
        if self.is_recently_deleted(&uid) {
            return None;
        }
        for key in &keys {
            // the guard is not held while the message is sent
            let mailbox = self.actors.get(key).map(|entry| entry.value().clone());
            if let Some(mailbox) = mailbox {
                match event {
                    ObjectEvent::Observed(object) => mailbox.observed(object),
                    ObjectEvent::Gone { object, uid, .. } => mailbox.gone(object, uid),
                }
                return None;
            }
        }
        Some(Undelivered { keys, event })
    }

    /// The scale set of ours that it belongs to, if it is of one.
    fn nearest(&self, undelivered: Undelivered) -> Option<(ActorKey, ObjectEvent)> {
        let Undelivered { keys, event } = undelivered;
        let key = keys.last().filter(|key| self.looks_after(key))?;
        Some((key.clone(), event))
    }

    /// Whether that is the key of a scale set of ours.
    fn looks_after(&self, key: &ActorKey) -> bool {
        let scope = self.scope.as_ref();
        key.kind == ActorKind::ScaleSet && scope.is_none_or(|scope| *scope == key.namespace)
    }

    fn is_recently_deleted(&self, uid: &str) -> bool {
        let recently_deleted = self
            .recently_deleted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        recently_deleted.known.contains(uid)
    }
}

/// An event that no actor is there for.
struct Undelivered {
    keys: Vec<ActorKey>,
    event: ObjectEvent,
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::api::{
        AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet,
    };

    /// Objects of the scale set `pool` in that namespace, as a controller in `arc` makes them.
    fn objects_of(namespace: &str) -> [Object; 4] {
        let here = |name: &str| {
            json!({"name": name, "namespace": namespace, "uid": name,
                   "labels": {labels::SCALE_SET_NAME: "pool"}})
        };
        let meta = |meta: serde_json::Value| serde_json::from_value(meta).unwrap();
        let mut listener = AutoscalingListener {
            metadata: meta(json!({"name": "pool-x-listener", "namespace": "arc"})),
            ..AutoscalingListener::default()
        };
        listener.spec.autoscaling_runner_set_namespace = namespace.to_owned();
        listener.spec.autoscaling_runner_set_name = "pool".to_owned();
        [
            Object::from(AutoscalingRunnerSet {
                metadata: meta(here("pool")),
                ..AutoscalingRunnerSet::default()
            }),
            Object::from(listener),
            Object::from(EphemeralRunnerSet {
                metadata: meta(here("pool")),
                ..EphemeralRunnerSet::default()
            }),
            Object::from(EphemeralRunner {
                metadata: meta(here("pool-runner-x")),
                ..EphemeralRunner::default()
            }),
        ]
    }

    fn gone(object: &Object) -> ObjectEvent {
        ObjectEvent::Gone {
            object: object.reference(),
            uid: object.uid().to_owned(),
            keys: keys_of(object),
        }
    }

    #[test]
    fn what_belongs_to_a_scale_set_of_another_controller_is_not_seen() {
        for (scope, namespace, seen) in [
            (None, "a", true),
            (Some("a"), "a", true),
            (Some("a"), "b", false),
            (Some("a"), "arc", false),
            (Some("arc"), "arc", true),
        ] {
            let router = Router::within(scope.map(str::to_owned));
            for object in objects_of(namespace) {
                let key = ActorKey::new(ActorKind::ScaleSet, namespace, "pool");
                for event in [ObjectEvent::Observed(object.clone()), gone(&object)] {
                    let unclaimed = router.deliver(event).map(|(key, _)| key);
                    assert_eq!(unclaimed, seen.then(|| key.clone()), "{scope:?} {object:?}");
                }
            }
        }
    }

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Deliver for Counter {
        fn observed(&self, _: Object) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn gone(&self, _: ObjectRef, _: String) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_actor_is_preferred_to_those_above_it() {
        let router = Router::default();
        let (set, runner) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
        let key = |kind, name| ActorKey::new(kind, "a", name);
        router.register(key(ActorKind::ScaleSet, "pool"), set.clone());
        router.register(key(ActorKind::Runner, "pool-runner-x"), runner.clone());
        for object in objects_of("a") {
            assert!(
                router
                    .deliver(ObjectEvent::Observed(object.clone()))
                    .is_none()
            );
            assert!(router.deliver(gone(&object)).is_none());
        }
        let counts = [&set, &runner].map(|one| one.0.load(Ordering::Relaxed));
        assert_eq!(counts, [6, 2]);
    }

    /// Late news of what an ended actor looked after brings nobody back, and news of others does.
    #[test]
    fn news_of_an_object_whose_actor_has_ended_is_dropped_and_that_of_a_successor_is_not() {
        let router = Router::default();
        let actor = Arc::new(Counter::default());
        let key = ActorKey::new(ActorKind::ScaleSet, "a", "pool");
        let [object, ..] = objects_of("a");
        router.register(key.clone(), actor.clone());
        router.forget(&key, [object.uid().to_owned()].into_iter());
        for event in [ObjectEvent::Observed(object.clone()), gone(&object)] {
            assert!(
                router.deliver(event).is_none(),
                "nobody has to be made for it"
            );
        }
        assert!(router.deliver_listed(object.clone()).is_none());
        let successor = Object::from(AutoscalingRunnerSet {
            metadata: ObjectMeta {
                uid: Some("successor".to_owned()),
                ..object.meta().clone()
            },
            ..AutoscalingRunnerSet::default()
        });
        for event in [ObjectEvent::Observed(successor.clone()), gone(&successor)] {
            let unclaimed = router.deliver(event).map(|(key, _)| key);
            assert_eq!(unclaimed, Some(key.clone()));
        }
        // and a new actor of that name hears of its own object only
        router.register(key, actor.clone());
        for object in [object, successor] {
            assert!(router.deliver(ObjectEvent::Observed(object)).is_none());
        }
        assert_eq!(actor.0.load(Ordering::Relaxed), 1);
    }

    /// However many actors end, memory of them is bounded, and the latest are remembered.
    #[test]
    fn the_oldest_of_many_ended_objects_are_forgotten_first() {
        let router = Router::default();
        let key = ActorKey::new(ActorKind::Runner, "a", "x");
        let uids = (0..=REMEMBERED).map(|number| number.to_string());
        router.forget(&key, uids);
        assert!(!router.is_recently_deleted("0"));
        for kept in [1, 2, REMEMBERED] {
            assert!(router.is_recently_deleted(&kept.to_string()), "{kept}");
        }
        // told again, it does not count twice
        router.forget(&key, ["1".to_owned()].into_iter());
        let memory = router.recently_deleted.lock().unwrap();
        assert_eq!(
            (memory.known.len(), memory.oldest_first.len()),
            (REMEMBERED, REMEMBERED)
        );
    }
}
