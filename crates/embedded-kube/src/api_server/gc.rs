//! The work that goes on behind requests: objects whose owners are gone are deleted,
//! namespaces and definitions that are being deleted are emptied.
//!
//! Driven by changes: each one names the objects that may now have to go, and those are
//! looked at one by one.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};

use serde_json::Value;
use tokio::sync::Notify;

use super::handlers_delete::{DeleteOptions, FOREGROUND, ORPHAN, Propagation};
use super::kinds::ResourceType;
use super::store::{Change, ChangeKind, ObjectId, Store};
use super::{Inner, State, object, quota};
use wall_clock::Timestamp;

/// The finalizer of a definition whose objects still exist.
pub(super) const DEFINITION_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Objects to look at, in the order in which they came up.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    queue: VecDeque<ObjectId>,
    queued: BTreeSet<ObjectId>,
}

impl Garbage {
    fn push(&mut self, id: ObjectId) {
        if self.queued.insert(id.clone()) {
            self.queue.push_back(id);
        }
    }

    fn pop(&mut self) -> Option<ObjectId> {
        let id = self.queue.pop_front()?;
        self.queued.remove(&id);
        Some(id)
    }

    /// Queues what a change may have made garbage.
    pub(super) fn notice(&mut self, store: &Store, id: &ObjectId, change: &Change) {
        let object = &change.object;
        if change.kind != ChangeKind::Deleted {
            let owned = !object::owner_references(object).is_empty();
            if owned || object::is_deleting(object) {
                self.push(id.clone());
            }
        }
        let waits =
            |object: &Value| object::is_deleting(object) && has_finalizer(object, FOREGROUND);
        let waited = change.previous.as_deref().is_some_and(waits);
        if change.kind == ChangeKind::Deleted || (waits(object) && !waited) {
            for dependent in store.dependents(object::uid(object)) {
                self.push(dependent.clone());
            }
        }
        self.notice_waiting_owners(store, id, change);
        self.notice_quotas(store, id, change);
    }

    /// Quotas of the namespace count again when objects come, go or end.
    fn notice_quotas(&mut self, store: &Store, id: &ObjectId, change: &Change) {
        let of_quota = *id.shelf == *quota::shelf();
        if of_quota && change.kind != ChangeKind::Deleted {
            self.push(id.clone());
        }
        let phase = |object: &Value| object["status"]["phase"].clone();
        let counts = change.kind != ChangeKind::Modified
            || (&*id.shelf == "pods"
                && change.previous.as_deref().map(phase) != Some(phase(&change.object)));
        if !counts || id.namespace.is_empty() || !quota::is_counted(&id.shelf) {
            return;
        }
        for quota in store.list(&quota::shelf(), Some(&id.namespace)) {
            self.push(ObjectId {
                shelf: quota::shelf().into(),
                namespace: id.namespace.clone(),
                name: object::name(quota).to_owned(),
            });
        }
    }

    /// Whoever waits for this object to go, or to stop holding it up, is looked at again.
    fn notice_waiting_owners(&mut self, store: &Store, id: &ObjectId, change: &Change) {
        let before = change.previous.as_deref().unwrap_or(&Value::Null);
        for owner in object::owner_references(before) {
            let uid = owner["uid"].as_str().unwrap_or_default();
            self.push_if_deleting(store, store.find_uid(uid).cloned());
        }
        if change.kind != ChangeKind::Deleted {
            return;
        }
        let cluster_scoped = |shelf: &str, name: &str| ObjectId {
            shelf: shelf.into(),
            namespace: String::new(),
            name: name.to_owned(),
        };
        if !id.namespace.is_empty() && store.is_empty_namespace(&id.namespace) {
            let namespace = cluster_scoped("namespaces", &id.namespace);
            self.push_if_deleting(store, Some(namespace));
        }
        if store.list(&id.shelf, None).next().is_none() {
            let definition = cluster_scoped(DEFINITIONS, &id.shelf);
            self.push_if_deleting(store, Some(definition));
        }
    }

    fn push_if_deleting(&mut self, store: &Store, id: Option<ObjectId>) {
        if let Some(id) = id
            && store
                .at(&id)
                .is_some_and(|object| object::is_deleting(object))
        {
            self.push(id);
        }
    }
}

/// Works until the server is gone.
pub(super) async fn run(server: Weak<Inner>, work: Arc<Notify>) {
    loop {
        work.notified().await;
        loop {
            let Some(inner) = server.upgrade() else {
                return;
            };
            let changes = inner.lock().collect_one(inner.clock.now());
            let Some(changes) = changes else { break };
            inner.tell(&changes, None);
            drop(inner);
            tokio::task::yield_now().await;
        }
    }
}

impl State {
    /// Looks at one object, if there is one to look at; returns what changed by that.
    fn collect_one(&mut self, now: Timestamp) -> Option<Vec<(ObjectId, Change)>> {
        let id = self.garbage.pop()?;
        let resource = self.registry.by_shelf(&id.shelf).cloned();
        let object = self.store.at(&id).cloned();
        if let (Some(resource), Some(object)) = (resource, object) {
            self.look_at(&resource, &id, &object, now);
        }
        Some(self.settle(now))
    }

    fn look_at(
        &mut self,
        resource: &ResourceType,
        id: &ObjectId,
        object: &Arc<Value>,
        now: Timestamp,
    ) {
        if object::is_deleting(object) {
            if resource.is("", "namespaces") {
                return self.empty_namespace(resource, object, now);
            }
            if &*id.shelf == DEFINITIONS {
                return self.empty_definition(resource, object, now);
            }
            if has_finalizer(object, ORPHAN) {
                return self.orphan_dependents(resource, object);
            }
            if has_finalizer(object, FOREGROUND) && !self.is_blocked(object) {
                return self.release(resource, object, FOREGROUND);
            }
        }
        if resource.is("", "resourcequotas") {
            let status = quota::status(&self.store, object);
            if object["status"] != status {
                let mut counted = Value::clone(object);
                counted["status"] = status;
                self.store_update(resource, counted);
                return;
            }
        }
        self.judge_owners(resource, object, now);
    }

    /// Whether a dependent that blocks its owner's deletion still exists.
    fn is_blocked(&self, owner: &Value) -> bool {
        let uid = object::uid(owner);
        self.store.dependents(uid).any(|id| {
            let references = self
                .store
                .at(id)
                .map(|object| object::owner_references(object));
            let mut references = references.into_iter().flatten();
            references.any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
        })
    }

    fn release(&mut self, resource: &ResourceType, object: &Value, finalizer: &str) {
        let mut released = object.clone();
        let left = object::finalizers(object).filter(|&other| other != finalizer);
        let left = left.map(str::to_owned).collect();
        object::set_finalizers(&mut released, left);
        self.store_update(resource, released);
    }

    /// Deletes an object whose owners are all gone or waiting for it, or forgets those.
    fn judge_owners(&mut self, resource: &ResourceType, object: &Arc<Value>, now: Timestamp) {
        let references = object::owner_references(object);
        if references.is_empty() {
            return;
        }
        let (mut solid, mut waiting) = (Vec::new(), false);
        for reference in references {
            match self.owner(object, reference) {
                Owner::Solid => solid.push(reference.clone()),
                Owner::WaitsForDependents => waiting = true,
                Owner::Absent => {}
            }
        }
        if solid.len() == references.len() {
            return;
        }
        if !solid.is_empty() {
            let mut kept = Value::clone(object);
            object::meta_mut(&mut kept).insert("ownerReferences".into(), solid.into());
            self.store_update(resource, kept);
            return;
        }
        if object::is_deleting(object) {
            return;
        }
        let has_dependents = self.store.dependents(object::uid(object)).next().is_some();
        let propagation = match () {
            () if waiting && has_dependents => Propagation::Foreground,
            () if has_finalizer(object, ORPHAN) => Propagation::Orphan,
            () if has_finalizer(object, FOREGROUND) => Propagation::Foreground,
            () => Propagation::Background,
        };
        self.discard(resource, object, propagation, now);
    }

    fn owner(&self, object: &Value, reference: &Value) -> Owner {
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let resource = self.registry.by_kind(text("apiVersion"), text("kind"));
        let Some(resource) = resource else {
            return Owner::Absent;
        };
        let namespace = match resource.namespaced {
            true => object::namespace(object),
            false => "",
        };
        let owner = self.store.get(&resource.shelf, namespace, text("name"));
        match owner.filter(|owner| object::uid(owner) == text("uid")) {
            None => Owner::Absent,
            Some(owner) if object::is_deleting(owner) && has_finalizer(owner, FOREGROUND) => {
                Owner::WaitsForDependents
            }
            Some(_) => Owner::Solid,
        }
    }

    fn orphan_dependents(&mut self, resource: &ResourceType, owner: &Value) {
        let uid = object::uid(owner);
        let dependents: Vec<ObjectId> = self.store.dependents(uid).cloned().collect();
        for id in dependents {
            let dependent = self.store.at(&id).cloned();
            let of = self.registry.by_shelf(&id.shelf).cloned();
            let (Some(dependent), Some(of)) = (dependent, of) else {
                continue;
            };
            let references = object::owner_references(&dependent).iter();
            let left: Vec<Value> = references.filter(|r| r["uid"] != uid).cloned().collect();
            let mut freed = Value::clone(&dependent);
            let metadata = object::meta_mut(&mut freed);
            match left.is_empty() {
                true => metadata.remove("ownerReferences"),
                false => metadata.insert("ownerReferences".into(), left.into()),
            };
            self.store_update(&of, freed);
        }
        self.release(resource, owner, ORPHAN);
    }

    fn empty_namespace(&mut self, resource: &ResourceType, namespace: &Value, now: Timestamp) {
        let content = self.store.in_namespace(object::name(namespace));
        if content.is_empty() {
            let mut emptied = namespace.clone();
            object::map_mut(&mut emptied, "spec").remove("finalizers");
            self.store_update(resource, emptied);
            return;
        }
        for id in content {
            self.discard_at(&id, now);
        }
    }

    fn empty_definition(&mut self, resource: &ResourceType, definition: &Value, now: Timestamp) {
        let objects = self.store.list(object::name(definition), None);
        let ids: Vec<ObjectId> = objects
            .map(|object| ObjectId {
                shelf: object::name(definition).into(),
                namespace: object::namespace(object).to_owned(),
                name: object::name(object).to_owned(),
            })
            .collect();
        if ids.is_empty() {
            return self.release(resource, definition, DEFINITION_CLEANUP);
        }
        for id in ids {
            self.discard_at(&id, now);
        }
    }

    fn discard_at(&mut self, id: &ObjectId, now: Timestamp) {
        let resource = self.registry.by_shelf(&id.shelf).cloned();
        let object = self.store.at(id).cloned();
        if let (Some(resource), Some(object)) = (resource, object) {
            self.discard(&resource, &object, Propagation::Background, now);
        }
    }

    fn discard(
        &mut self,
        resource: &ResourceType,
        object: &Arc<Value>,
        propagation: Propagation,
        now: Timestamp,
    ) {
        if object::is_deleting(object) {
            return;
        }
        let options = DeleteOptions {
            propagation: Some(propagation),
            ..DeleteOptions::default()
        };
        if let Err(error) = self.delete_object(resource, object, &options, now) {
            // a deletion without preconditions is not refused
            tracing::error!(%error, kind = resource.kind, "garbage collection failed");
        }
    }
}

/// What has become of an owner.
enum Owner {
    Solid,
    WaitsForDependents,
    Absent,
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    object::finalizers(object).any(|other| other == finalizer)
}
