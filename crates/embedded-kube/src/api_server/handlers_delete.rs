//! DELETE, and what deletion means: grace, finalizers, propagation.

use std::sync::Arc;

use serde_json::{Value, json};

use super::handlers::{Call, Reply, render};
use super::handlers_read::{list_of, selector};
use super::kinds::ResourceType;
use super::status::{ApiError, FieldError};
use super::store::ObjectId;
use super::{State, http as wire, object};
use wall_clock::{Timestamp, after};

/// The finalizer of an object that waits for its dependents to go.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object that lets its dependents go before it ends.
pub(super) const ORPHAN: &str = "orphan";

/// Namespaces without which no cluster works.
const PROTECTED: [&str; 3] = ["default", "kube-public", "kube-system"];

/// What becomes of the objects that the deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Propagation {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// How something is to be deleted.
#[derive(Clone, Debug, Default)]
pub(super) struct DeleteOptions {
    pub grace_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    pub uid: Option<String>,
    pub revision: Option<String>,
    pub dry_run: bool,
}

/// What a deletion came to.
pub(super) struct Deletion {
    /// The object as it is now, or was last.
    pub object: Arc<Value>,
    /// Whether it is gone.
    pub gone: bool,
}

impl State {
    pub(super) fn delete(&mut self, call: &Call<'_>) -> Result<Reply, ApiError> {
        let resource = Arc::clone(call.resource());
        let options = DeleteOptions::read(call)?;
        let existing = self.existing(call)?;
        if resource.is("", "namespaces") && PROTECTED.contains(&call.target.name()) {
            let why = "this namespace may not be deleted";
            let name = call.target.name();
            return Err(ApiError::forbidden(resource.resource(), name, why));
        }
        let deletion = self.delete_object(&resource, &existing, &options, call.now)?;
        if deletion.gone && !resource.returns_deleted() {
            return Ok(Reply::Document(200, success(&resource, &existing)));
        }
        Ok(Reply::object(200, render(&resource, &deletion.object)))
    }

    pub(super) fn delete_collection(&mut self, call: &Call<'_>) -> Result<Reply, ApiError> {
        let resource = Arc::clone(call.resource());
        if resource.is("", "namespaces") {
            return Err(ApiError::method_not_allowed());
        }
        let options = DeleteOptions::read(call)?;
        let selector = selector(call)?;
        let namespace = call.target.namespace.as_deref();
        let objects = self.store.list(&resource.shelf, namespace);
        let selected: Vec<_> = objects
            .filter(|object| selector.matches(object))
            .cloned()
            .collect();
        let mut deleted = Vec::new();
        for existing in selected {
            let deletion = self.delete_object(&resource, &existing, &options, call.now)?;
            deleted.push(deletion.object);
        }
        let metadata = json!({ "resourceVersion": self.store.revision().to_string() });
        Ok(Reply::List(list_of(&resource, &deleted, metadata)))
    }

    /// Deletes an object, or marks it where something holds it back.
    ///
    /// # Errors
    /// When a precondition is not met.
    pub(super) fn delete_object(
        &mut self,
        resource: &ResourceType,
        existing: &Arc<Value>,
        options: &DeleteOptions,
        now: Timestamp,
    ) -> Result<Deletion, ApiError> {
        options.check(resource, existing)?;
        let mut marked = Value::clone(existing);
        mark_propagation(&mut marked, options.propagation);
        let held = object::finalizers(&marked).next().is_some()
            || (resource.is("", "namespaces")
                && !object::list(&marked["spec"]["finalizers"]).is_empty());
        let grace = match resource.is("", "pods") {
            true => mark_gracefully(&mut marked, options.grace_seconds, now),
            false => {
                if held {
                    mark(&mut marked, 0, now);
                }
                0
            }
        };
        if held && resource.is("", "namespaces") {
            marked["status"]["phase"] = "Terminating".into();
        }
        let gone = !held && grace == 0;
        if options.dry_run {
            let object = Arc::new(marked);
            return Ok(Deletion { object, gone });
        }
        let mut object = Arc::clone(existing);
        if marked != **existing {
            object = self.store.put(&resource.shelf, marked);
        }
        if gone {
            let id = ObjectId {
                shelf: Arc::clone(&resource.shelf),
                namespace: object::namespace(existing).to_owned(),
                name: object::name(existing).to_owned(),
            };
            if let Some(last) = self.end(resource, &id) {
                object = last;
            }
        }
        Ok(Deletion { object, gone })
    }

    /// Removes an object from the store.
    pub(super) fn end(&mut self, resource: &ResourceType, id: &ObjectId) -> Option<Arc<Value>> {
        let last = self.store.remove(id)?;
        if resource.is("", "pods") {
            self.logs.forget(&last);
        }
        if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.registry.uninstall(&last);
        }
        Some(last)
    }
}

/// Sets the finalizers by which an object's dependents are looked after.
fn mark_propagation(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else {
        return;
    };
    let wanted = match propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND),
        Propagation::Orphan => Some(ORPHAN),
    };
    let mut finalizers: Vec<String> = object::finalizers(object)
        .filter(|&finalizer| {
            ![FOREGROUND, ORPHAN].contains(&finalizer) || Some(finalizer) == wanted
        })
        .map(str::to_owned)
        .collect();
    if let Some(wanted) = wanted
        && !finalizers.iter().any(|finalizer| finalizer == wanted)
    {
        finalizers.push(wanted.to_owned());
    }
    object::set_finalizers(object, finalizers);
}

/// Marks an object as being deleted, unless it is already.
fn mark(object: &mut Value, grace: i64, now: Timestamp) {
    if object::is_deleting(object) {
        return;
    }
    let generation = object["metadata"]["generation"].as_i64();
    let metadata = object::meta_mut(object);
    let end = object::time(after(now, grace));
    metadata.insert("deletionTimestamp".into(), end.into());
    metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
    if let Some(generation) = generation.filter(|&generation| generation > 0) {
        metadata.insert("generation".into(), (generation + 1).into());
    }
}

/// Marks a pod with the time it has left, which a second deletion can only shorten; returns
/// the seconds.
fn mark_gracefully(pod: &mut Value, asked: Option<i64>, now: Timestamp) -> i64 {
    if object::is_deleting(pod) {
        let left = pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let left = left.unwrap_or_default();
        let Some(asked) = asked.filter(|&asked| asked < left) else {
            return left;
        };
        let end = object::meta(pod, "deletionTimestamp").parse();
        let end: Timestamp = end.unwrap_or(now);
        let metadata = object::meta_mut(pod);
        let end = object::time(after(end, asked - left));
        metadata.insert("deletionTimestamp".into(), end.into());
        metadata.insert("deletionGracePeriodSeconds".into(), asked.into());
        return asked;
    }
    let unscheduled = pod["spec"]["nodeName"]
        .as_str()
        .unwrap_or_default()
        .is_empty();
    let over = matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    );
    let grace = match asked {
        _ if unscheduled || over => 0,
        Some(asked) => asked,
        None => pod["spec"]["terminationGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(30),
    };
    // the real server takes a negative period for a second
    let grace = if grace < 0 { 1 } else { grace };
    mark(pod, grace, now);
    grace
}

/// The answer when an object is gone.
fn success(resource: &ResourceType, object: &Value) -> Value {
    let mut details = json!({
        "name": object::name(object),
        "kind": resource.plural,
        "uid": object::uid(object),
    });
    if !resource.group.is_empty() {
        details["group"] = resource.group.as_str().into();
    }
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    })
}

impl DeleteOptions {
    /// Reads the options from the body, or else from the query.
    fn read(call: &Call<'_>) -> Result<Self, ApiError> {
        let body = match call.body {
            [] => Value::Null,
            body => wire::read_body(&call.parts.headers, body)?,
        };
        Self::from_parts(call, &body)
    }

    /// Reads the options from a `DeleteOptions` object, where it is silent from the query.
    pub(super) fn from_parts(call: &Call<'_>, body: &Value) -> Result<Self, ApiError> {
        let query = call.query;
        let policy = match body["propagationPolicy"].as_str() {
            Some(policy) => policy,
            None => query.get("propagationPolicy"),
        };
        let orphan = match body["orphanDependents"].as_bool() {
            None if !query.get("orphanDependents").is_empty() => {
                Some(query.flag("orphanDependents"))
            }
            given => given,
        };
        let propagation = match (policy, orphan) {
            ("", None) => None,
            ("", Some(true)) => Some(Propagation::Orphan),
            ("" | "Background", _) => Some(Propagation::Background),
            ("Foreground", _) => Some(Propagation::Foreground),
            ("Orphan", _) => Some(Propagation::Orphan),
            (other, _) => return Err(unknown_policy(other)),
        };
        let given = &body["gracePeriodSeconds"];
        if !(given.is_null() || given.is_i64()) {
            return Err(ApiError::bad_request(format!(
                "DeleteOptions.gracePeriodSeconds: {given} is no whole number"
            )));
        }
        let grace_seconds = match given.as_i64() {
            None => match query.get("gracePeriodSeconds") {
                "" => None,
                text => Some(text.parse().map_err(|_| {
                    ApiError::bad_request(format!("gracePeriodSeconds: {text:?} is no number"))
                })?),
            },
            given => given,
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let dry_run = object::strings(&body["dryRun"]).any(|value| value == "All");
        Ok(Self {
            grace_seconds,
            propagation,
            uid: text(&body["preconditions"]["uid"]),
            revision: text(&body["preconditions"]["resourceVersion"]),
            dry_run: dry_run || call.is_dry_run()?,
        })
    }

    fn check(&self, resource: &ResourceType, existing: &Value) -> Result<(), ApiError> {
        let name = object::name(existing);
        let conflict = |what: &str, given: &str, actual: &str| {
            let why = format!(
                "Precondition failed: {what} in precondition: {given}, {what} in object meta: \
                 {actual}"
            );
            Err(ApiError::conflict(resource.resource(), name, &why))
        };
        if let Some(given) = &self.uid
            && given != object::uid(existing)
        {
            return conflict("UID", given, object::uid(existing));
        }
        let revision = object::meta(existing, "resourceVersion");
        if let Some(given) = &self.revision
            && given != revision
        {
            return conflict("ResourceVersion", given, revision);
        }
        Ok(())
    }
}

fn unknown_policy(policy: &str) -> ApiError {
    let supported = ["Background", "Foreground", "Orphan"];
    let fault = FieldError::not_supported("propagationPolicy", policy, &supported);
    ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[fault])
}
