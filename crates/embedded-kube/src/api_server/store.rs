//! The objects, their history and who owns whom: what etcd and the watch cache are to the
//! real server.
//!
//! Knows JSON objects by shelf (one per stored resource), namespace and name. It stamps the
//! resource version, and has no other rule of Kubernetes in it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Notify;

use super::object;

/// Most changes kept for watchers on each shelf.
const HISTORY: usize = 10_000;

/// So much memory may the objects of a shelf's history take, about, and so many changes are kept
/// all the same. A change is a whole object: a busy pool of runners would have a gigabyte of them.
const HISTORY_WEIGHT: usize = 16 << 20;
const SHORTEST_HISTORY: usize = 500;

/// Where an object is kept: shelf, namespace (empty for cluster-scoped ones) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId {
    pub shelf: Arc<str>,
    pub namespace: String,
    pub name: String,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// One entry of the history.
#[derive(Clone, Debug)]
pub struct Change {
    /// The store's revision when it happened.
    pub revision: u64,
    pub kind: ChangeKind,
    /// The object as it is now, or was last, with this change's resource version.
    pub object: Arc<Value>,
    /// The object before, when there was one.
    pub previous: Option<Arc<Value>>,
    /// What the object takes in memory, about.
    weight: usize,
}

/// The history that was asked for is gone; holds the oldest revision that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted(pub u64);

type Key = (String, String);

#[derive(Debug, Default)]
struct Shelf {
    objects: BTreeMap<Key, Arc<Value>>,
    history: VecDeque<Change>,
    /// What the objects of the history take, about.
    weight: usize,
    /// Changes up to this revision are gone.
    compacted: u64,
    /// Wakes who waits for a change, in the order of their waiting: tokio's watch channel
    /// would draw the order at random.
    changed: Arc<Notify>,
}

impl Shelf {
    fn is_too_long(&self) -> bool {
        let count = self.history.len();
        count > HISTORY || (self.weight > HISTORY_WEIGHT && count > SHORTEST_HISTORY)
    }
}

/// All objects.
#[derive(Debug)]
pub struct Store {
    revision: u64,
    compacted: u64,
    shelves: BTreeMap<Arc<str>, Shelf>,
    by_uid: BTreeMap<String, ObjectId>,
    dependents: BTreeMap<String, BTreeSet<ObjectId>>,
    /// Changes that the background work has not looked at yet.
    unseen: VecDeque<(ObjectId, Change)>,
    restorations: u64,
}

/// All objects at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    revision: u64,
    shelves: BTreeMap<Arc<str>, BTreeMap<Key, Arc<Value>>>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            // "0" has a meaning of its own in requests, so no object may carry it
            revision: 1,
            compacted: 0,
            shelves: BTreeMap::new(),
            by_uid: BTreeMap::new(),
            dependents: BTreeMap::new(),
            unseen: VecDeque::new(),
            restorations: 0,
        }
    }
}

impl Store {
    /// The revision of the last change to anything.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// One object.
    #[must_use]
    pub fn get(&self, shelf: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        let shelf = self.shelves.get(shelf)?;
        shelf.objects.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The object kept at `id`.
    #[must_use]
    pub fn at(&self, id: &ObjectId) -> Option<&Arc<Value>> {
        self.get(&id.shelf, &id.namespace, &id.name)
    }

    /// Objects by namespace and name; of one namespace when it is given.
    pub fn list<'a>(
        &'a self,
        shelf: &str,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Value>> + use<'a> {
        let from = (namespace.unwrap_or_default().to_owned(), String::new());
        self.shelves
            .get(shelf)
            .into_iter()
            .flat_map(move |shelf| shelf.objects.range(from.clone()..))
            .take_while(move |((of, _), _)| namespace.is_none_or(|namespace| of == namespace))
            .map(|(_, object)| object)
    }

    /// Objects as they were at `revision`, by namespace and name.
    ///
    /// # Errors
    /// When that revision is older than the history kept.
    pub fn list_at(
        &self,
        shelf: &str,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<Vec<Arc<Value>>, Compacted> {
        let mut objects: BTreeMap<(&str, &str), Arc<Value>> = self
            .list(shelf, namespace)
            .map(|object| {
                let key = (object::namespace(object), object::name(object));
                (key, Arc::clone(object))
            })
            .collect();
        let later = self.changes_after(shelf, revision)?;
        for change in later.rev() {
            let key = (
                object::namespace(&change.object),
                object::name(&change.object),
            );
            if namespace.is_some_and(|namespace| namespace != key.0) {
                continue;
            }
            match &change.previous {
                Some(previous) => objects.insert(key, Arc::clone(previous)),
                None => objects.remove(&key),
            };
        }
        Ok(objects.into_values().collect())
    }

    /// The changes to a shelf after `revision`, oldest first.
    ///
    /// # Errors
    /// When changes after that revision are gone.
    pub fn changes_after<'a>(
        &'a self,
        shelf: &str,
        revision: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &'a Change> + use<'a>, Compacted> {
        let shelf = self.shelves.get(shelf);
        let compacted = shelf.map_or(0, |shelf| shelf.compacted).max(self.compacted);
        if revision < compacted {
            return Err(Compacted(compacted));
        }
        Ok(shelf.into_iter().flat_map(move |shelf| {
            let first = shelf
                .history
                .partition_point(|change| change.revision <= revision);
            shelf.history.range(first..)
        }))
    }

    /// What wakes those who wait for a change to a shelf.
    pub fn changed(&mut self, shelf: &Arc<str>) -> Arc<Notify> {
        let shelf = self.shelves.entry(Arc::clone(shelf)).or_default();
        Arc::clone(&shelf.changed)
    }

    /// Writes an object, new or changed, with a new resource version.
    pub fn put(&mut self, shelf: &Arc<str>, object: Value) -> Arc<Value> {
        let id = ObjectId {
            shelf: Arc::clone(shelf),
            namespace: object::namespace(&object).to_owned(),
            name: object::name(&object).to_owned(),
        };
        let object = self.stamp(object);
        let previous = self
            .shelf(shelf)
            .objects
            .insert((id.namespace.clone(), id.name.clone()), object.clone());
        if let Some(previous) = &previous {
            self.forget(previous, &id);
        }
        self.remember(&object, &id);
        let kind = match previous {
            Some(_) => ChangeKind::Modified,
            None => ChangeKind::Added,
        };
        self.record(&id, kind, object.clone(), previous);
        object
    }

    /// Removes an object; returns it as it was last, with the resource version of its end.
    pub fn remove(&mut self, id: &ObjectId) -> Option<Arc<Value>> {
        let key = (id.namespace.clone(), id.name.clone());
        let previous = self.shelves.get_mut(&id.shelf)?.objects.remove(&key)?;
        self.forget(&previous, id);
        let object = self.stamp(Value::clone(&previous));
        let kind = ChangeKind::Deleted;
        self.record(id, kind, object.clone(), Some(previous));
        Some(object)
    }

    /// Removes from a shelf what was changed longest ago, until no more than `most` are left.
    pub fn keep_newest(&mut self, shelf: &str, most: usize) {
        while let Some(kept) = self.shelves.get_key_value(shelf)
            && kept.1.objects.len() > most
        {
            let objects = kept.1.objects.values();
            let oldest = objects.min_by_key(|object| object::revision(object));
            let Some(oldest) = oldest else { return };
            let id = ObjectId {
                shelf: Arc::clone(kept.0),
                namespace: object::namespace(oldest).to_owned(),
                name: object::name(oldest).to_owned(),
            };
            self.remove(&id);
        }
    }

    /// Drops all history, as etcd's compaction does: watches from older revisions end.
    pub fn compact(&mut self) {
        self.compacted = self.revision;
        for shelf in self.shelves.values_mut() {
            shelf.history.clear();
            shelf.weight = 0;
        }
    }

    /// All objects as they are now, as a backup of etcd has them.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let objects = |shelf: &Shelf| shelf.objects.clone();
        let shelves = self.shelves.iter();
        Snapshot {
            revision: self.revision,
            shelves: shelves
                .map(|(name, shelf)| (Arc::clone(name), objects(shelf)))
                .collect(),
        }
    }

    /// Puts the objects of a snapshot in the place of all there are. The revision goes back with
    /// them, and there is no history: nobody is told what has come and gone by that.
    pub fn restore(&mut self, snapshot: &Snapshot) {
        let changed: Vec<(Arc<str>, Arc<Notify>)> = self
            .shelves
            .iter()
            .map(|(name, shelf)| (Arc::clone(name), Arc::clone(&shelf.changed)))
            .collect();
        *self = Self {
            revision: snapshot.revision,
            compacted: snapshot.revision,
            restorations: self.restorations + 1,
            ..Self::default()
        };
        for (name, objects) in &snapshot.shelves {
            for ((namespace, object_name), object) in objects {
                let id = ObjectId {
                    shelf: Arc::clone(name),
                    namespace: namespace.clone(),
                    name: object_name.clone(),
                };
                self.remember(object, &id);
            }
            self.shelf(name).objects.clone_from(objects);
        }
        // those who watch are woken, to find that their watch has ended
        for (name, changed) in changed {
            changed.notify_waiters();
            self.shelf(&name).changed = changed;
        }
    }

    /// How often it was restored: what was begun before that has lost its connection.
    #[must_use]
    pub fn restorations(&self) -> u64 {
        self.restorations
    }

    /// The object with this uid.
    #[must_use]
    pub fn find_uid(&self, uid: &str) -> Option<&ObjectId> {
        self.by_uid.get(uid)
    }

    /// The objects that name this uid as an owner.
    pub fn dependents(&self, uid: &str) -> impl Iterator<Item = &ObjectId> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// Everything in a namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<ObjectId> {
        let mut found = Vec::new();
        for shelf in self.shelves.keys() {
            found.extend(self.list(shelf, Some(namespace)).map(|object| ObjectId {
                shelf: Arc::clone(shelf),
                namespace: namespace.to_owned(),
                name: object::name(object).to_owned(),
            }));
        }
        found
    }

    /// Whether nothing is in a namespace.
    #[must_use]
    pub fn is_empty_namespace(&self, namespace: &str) -> bool {
        let mut shelves = self.shelves.keys();
        shelves.all(|shelf| self.list(shelf, Some(namespace)).next().is_none())
    }

    /// The oldest change that has not been taken from here before, with its place.
    pub fn take_unseen(&mut self) -> Option<(ObjectId, Change)> {
        self.unseen.pop_front()
    }

    fn shelf(&mut self, shelf: &Arc<str>) -> &mut Shelf {
        self.shelves.entry(Arc::clone(shelf)).or_default()
    }

    fn stamp(&mut self, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        let revision = self.revision.to_string();
        object::meta_mut(&mut object).insert("resourceVersion".into(), revision.into());
        Arc::new(object)
    }

    fn remember(&mut self, object: &Value, id: &ObjectId) {
        self.by_uid.insert(object::uid(object).into(), id.clone());
        for owner in object::owner_references(object) {
            let uid = owner["uid"].as_str().unwrap_or_default();
            let dependents = self.dependents.entry(uid.to_owned()).or_default();
            dependents.insert(id.clone());
        }
    }

    fn forget(&mut self, object: &Value, id: &ObjectId) {
        self.by_uid.remove(object::uid(object));
        for owner in object::owner_references(object) {
            let uid = owner["uid"].as_str().unwrap_or_default();
            if let Some(dependents) = self.dependents.get_mut(uid) {
                dependents.remove(id);
                if dependents.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
    }

    fn record(
        &mut self,
        id: &ObjectId,
        kind: ChangeKind,
        object: Arc<Value>,
        previous: Option<Arc<Value>>,
    ) {
        let revision = self.revision;
        let weight = object::weight(&object);
        let change = Change {
            revision,
            kind,
            object,
            previous,
            weight,
        };
        self.unseen.push_back((id.clone(), change.clone()));
        let shelf = self.shelf(&id.shelf);
        shelf.history.push_back(change);
        shelf.weight += weight;
        while shelf.is_too_long()
            && let Some(oldest) = shelf.history.pop_front()
        {
            shelf.weight -= oldest.weight;
            shelf.compacted = oldest.revision;
        }
        shelf.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(namespace: &str, name: &str, owner: &str) -> Value {
        json!({
            "metadata": {
                "namespace": namespace,
                "name": name,
                "uid": format!("uid-{name}"),
                "ownerReferences": [{ "uid": owner }],
            },
        })
    }

    fn id(shelf: &Arc<str>, namespace: &str, name: &str) -> ObjectId {
        ObjectId {
            shelf: Arc::clone(shelf),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    fn names(objects: &[Arc<Value>]) -> Vec<&str> {
        objects.iter().map(|object| object::name(object)).collect()
    }

    #[test]
    fn the_past_can_be_listed_until_it_is_compacted() {
        let shelf: Arc<str> = "things".into();
        let mut store = Store::default();
        store.put(&shelf, object("ci", "a", ""));
        store.put(&shelf, object("other", "b", ""));
        let then = store.revision();
        store.put(&shelf, object("ci", "c", ""));
        store.remove(&id(&shelf, "ci", "a")).unwrap();
        let past = store.list_at(&shelf, None, then).unwrap();
        assert_eq!(names(&past), ["a", "b"]);
        let past = store.list_at(&shelf, Some("ci"), then).unwrap();
        assert_eq!(names(&past), ["a"]);
        store.compact();
        let gone = store.list_at(&shelf, None, then);
        assert_eq!(gone.unwrap_err(), Compacted(store.revision()));
        let now = store.list_at(&shelf, None, store.revision()).unwrap();
        assert_eq!(names(&now), ["c", "b"]);
    }

    #[test]
    fn a_restored_snapshot_takes_the_place_of_everything() {
        let shelf: Arc<str> = "things".into();
        let mut store = Store::default();
        store.put(&shelf, object("ci", "a", "uid-owner"));
        let snapshot = store.snapshot();
        store.put(&shelf, object("ci", "b", ""));
        store.remove(&id(&shelf, "ci", "a")).unwrap();
        store.restore(&snapshot);
        let listed: Vec<_> = store.list(&shelf, None).cloned().collect();
        assert_eq!(names(&listed), ["a"]);
        assert_eq!((store.revision(), store.restorations()), (2, 1));
        assert_eq!(store.dependents("uid-owner").count(), 1);
        assert!(store.find_uid("uid-b").is_none());
        assert!(store.changes_after(&shelf, 1).is_err(), "the past is gone");
        // a watch from a version that is yet to come is silent until it has come
        assert_eq!(store.changes_after(&shelf, 4).unwrap().count(), 0);
    }

    #[test]
    fn history_is_kept_up_to_its_limit() {
        let shelf: Arc<str> = "things".into();
        let mut store = Store::default();
        let first = store.put(&shelf, object("ci", "a", ""));
        for _ in 0..HISTORY {
            store.put(&shelf, object("ci", "a", ""));
        }
        let first = object::revision(&first);
        assert_eq!(store.changes_after(&shelf, first).unwrap().count(), HISTORY);
        assert!(store.changes_after(&shelf, first - 1).is_err());
    }

    #[test]
    fn what_was_changed_longest_ago_makes_room() {
        let shelf: Arc<str> = "events".into();
        let mut store = Store::default();
        for name in ["a", "b", "c", "a"] {
            store.put(&shelf, object("ci", name, ""));
        }
        store.keep_newest("events", 2);
        let left: Vec<_> = store.list("events", None).cloned().collect();
        assert_eq!(names(&left), ["a", "c"]);
        store.keep_newest("none", 0);
    }

    #[test]
    fn the_history_of_large_objects_is_shorter() {
        let shelf: Arc<str> = "things".into();
        let mut store = Store::default();
        let large = |number: usize| {
            let mut object = object("ci", "a", "");
            object["data"] = json!({ "long": "x".repeat(100_000), "number": number });
            object
        };
        let first = store.put(&shelf, large(0));
        let first = object::revision(&first);
        for number in 0..2_000 {
            store.put(&shelf, large(number));
        }
        let oldest = store.changes_after(&shelf, first).err().unwrap();
        let kept = store.changes_after(&shelf, oldest.0).unwrap().count();
        assert_eq!(kept, SHORTEST_HISTORY);
        // small ones are as many as ever
        for _ in 0..HISTORY {
            store.put(&shelf, object("ci", "b", ""));
        }
        let then = store.revision() - HISTORY as u64;
        assert_eq!(store.changes_after(&shelf, then).unwrap().count(), HISTORY);
        store.compact();
        assert_eq!(store.shelf(&shelf).weight, 0);
    }

    #[test]
    fn a_namespace_is_listed_without_its_neighbours() {
        let shelf: Arc<str> = "things".into();
        let mut store = Store::default();
        for (namespace, name) in [("ci", "a"), ("ci-2", "b"), ("c", "c")] {
            store.put(&shelf, object(namespace, name, ""));
        }
        let listed: Vec<_> = store.list(&shelf, Some("ci")).cloned().collect();
        assert_eq!(names(&listed), ["a"]);
        assert!(!store.is_empty_namespace("c"));
        assert!(store.is_empty_namespace("c-2"));
    }

    #[test]
    fn dependents_are_known_by_their_owners_uid() {
        let shelf: Arc<str> = "things".into();
        let mut store = Store::default();
        store.put(&shelf, object("ci", "a", "uid-owner"));
        assert_eq!(store.dependents("uid-owner").count(), 1);
        store.put(&shelf, object("ci", "a", "uid-other"));
        assert_eq!(store.dependents("uid-owner").count(), 0);
        store.remove(&id(&shelf, "ci", "a"));
        assert_eq!(store.dependents("uid-other").count(), 0);
        assert!(store.find_uid("uid-a").is_none());
    }
}
