//! From a request to its answer: who may ask, which handler does it, in which shape.

use std::sync::{Arc, PoisonError};

use http::{Response, request::Parts};
use serde_json::{Value, json};

use super::faults::RequestInfo;
use super::http::{self as wire, Body, Format, Query, Route, Shape, Target, Verb};
use super::kinds::{self, ResourceType};
use super::seams::{self, FieldValidation, Writer};
use super::status::ApiError;
use super::store::{Change, ObjectId};
use super::{Identity, Inner, State, object, watch};
use wall_clock::Timestamp;

/// A request as it came in.
pub(super) struct Incoming<'a> {
    pub parts: &'a Parts,
    pub body: &'a [u8],
    pub identity: &'a Identity,
    pub info: &'a RequestInfo,
    /// Revisions by which a read lags behind.
    pub behind: u64,
    pub now: Timestamp,
}

/// A request for a resource, understood.
pub(super) struct Call<'a> {
    pub target: &'a Target,
    pub verb: Verb,
    pub query: &'a Query,
    pub parts: &'a Parts,
    pub body: &'a [u8],
    pub identity: &'a Identity,
    pub format: Format,
    pub user_agent: &'a str,
    pub behind: u64,
    pub now: Timestamp,
}

/// An answer before it is given its shape.
pub(super) enum Reply {
    /// One object, in the version asked for.
    Object {
        code: u16,
        object: Value,
        warnings: Vec<String>,
    },
    /// A list, in the version asked for.
    List(Value),
    /// A `Status`, or another document that has one shape only.
    Document(u16, Value),
    /// Plain text, as of a log.
    Text(String),
}

impl Reply {
    pub fn object(code: u16, object: Value) -> Self {
        Self::Object {
            code,
            object,
            warnings: Vec::new(),
        }
    }
}

impl<'a> Call<'a> {
    pub fn resource(&self) -> &'a Arc<ResourceType> {
        &self.target.resource
    }

    /// Whether the request is only to be tried.
    pub fn is_dry_run(&self) -> Result<bool, ApiError> {
        match self.query.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(ApiError::bad_request(format!(
                "invalid dryRun {other:?}: supported values: \"All\""
            ))),
        }
    }

    /// Who writes: the field manager, by default the client's name.
    pub fn writer(&self) -> Writer<'a> {
        let manager = match self.query.get("fieldManager") {
            "" if self.user_agent.is_empty() => "unknown",
            "" => self.user_agent,
            manager => manager,
        };
        Writer {
            manager,
            subresource: self.target.subresource(),
            now: self.now,
        }
    }

    /// What to do about unknown fields; `Warn` when the request does not say.
    pub fn field_validation(&self) -> Result<FieldValidation, ApiError> {
        match self.query.get("fieldValidation") {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => Err(ApiError::bad_request(format!(
                "invalid fieldValidation {other:?}: supported values: \"Ignore\", \"Strict\", \
                 \"Warn\""
            ))),
        }
    }
}

/// Carries out a request.
pub(super) fn respond(inner: &Arc<Inner>, request: &Incoming<'_>) -> Response<Body> {
    let mut state = inner.state.lock().unwrap_or_else(PoisonError::into_inner);
    let response = state.respond(inner, request);
    let changes = state.settle(request.now);
    drop(state);
    inner.tell(&changes, Some(request.info));
    response.unwrap_or_else(|error| wire::refusal(&error))
}

impl State {
    /// What can be said of a request before it is carried out.
    pub(super) fn describe(&self, parts: &Parts) -> RequestInfo {
        let agent = parts.headers.get(http::header::USER_AGENT);
        let agent = agent
            .and_then(|agent| agent.to_str().ok())
            .unwrap_or_default();
        let user_agent = agent.split('/').next().unwrap_or_default().to_owned();
        match wire::route(parts.uri.path(), &self.registry) {
            Ok(Route::Resource(target)) => RequestInfo {
                verb: wire::verb(&parts.method, &target, &Query::parse(parts.uri.query())).ok(),
                resource: kinds::shelf_name(&target.resource.group, &target.resource.plural),
                namespace: target.namespace().to_owned(),
                name: target.name().to_owned(),
                subresource: target.subresource().to_owned(),
                user_agent,
            },
            _ => RequestInfo {
                verb: None,
                resource: parts.uri.path().to_owned(),
                namespace: String::new(),
                name: String::new(),
                subresource: String::new(),
                user_agent,
            },
        }
    }

    fn respond(
        &mut self,
        inner: &Arc<Inner>,
        request: &Incoming<'_>,
    ) -> Result<Response<Body>, ApiError> {
        let path = request.parts.uri.path();
        match wire::route(path, &self.registry)? {
            Route::Health => Ok(wire::text(200, "ok")),
            Route::Version => Ok(wire::document(200, &version(), false, &[])),
            Route::Other => {
                let headers = &request.parts.headers;
                seams::describe_api(path, headers, &self.registry)
                    .ok_or_else(ApiError::no_such_path)
            }
            Route::Resource(target) => self.respond_for(inner, request, &target),
        }
    }

    fn respond_for(
        &mut self,
        inner: &Arc<Inner>,
        request: &Incoming<'_>,
        target: &Target,
    ) -> Result<Response<Body>, ApiError> {
        let query = Query::parse(request.parts.uri.query());
        let verb = wire::verb(&request.parts.method, target, &query)?;
        self.authorize(request.identity, verb, target)?;
        let call = Call {
            target,
            verb,
            query: &query,
            parts: request.parts,
            body: request.body,
            identity: request.identity,
            format: wire::negotiate(&request.parts.headers)?,
            user_agent: &request.info.user_agent,
            behind: request.behind,
            now: request.now,
        };
        if verb == Verb::Watch {
            return watch::start(inner, self, &call).map(wire::stream);
        }
        let reply = self.dispatch(&call)?;
        Ok(shape(&call, reply))
    }

    fn dispatch(&mut self, call: &Call<'_>) -> Result<Reply, ApiError> {
        if call.resource().is_virtual {
            return match call.verb {
                Verb::Create => self.review_access(call),
                _ => Err(ApiError::method_not_allowed()),
            };
        }
        match (call.verb, call.target.subresource()) {
            (Verb::Get, "log") => self.pod_log(call),
            (Verb::Create, "binding") => self.bind_pod(call),
            (Verb::Create, "eviction") => self.evict_pod(call),
            (_, "log" | "binding" | "eviction") => Err(ApiError::method_not_allowed()),
            (Verb::Get, _) => self.get(call),
            (Verb::List, _) => self.list(call),
            (Verb::Create, "") => self.create(call),
            (Verb::Update, _) => self.update(call),
            (Verb::Patch, _) => self.patch(call),
            (Verb::Delete, "") => self.delete(call),
            (Verb::DeleteCollection, "") => self.delete_collection(call),
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// Passes the changes made on to the record and to the background work. Answers with them.
    pub(super) fn settle(&mut self, now: Timestamp) -> Vec<(ObjectId, Change)> {
        let mut changes = Vec::new();
        while let Some((id, change)) = self.store.take_unseen() {
            self.record.change(now, &id, &change);
            self.garbage.notice(&self.store, &id, &change);
            changes.push((id, change));
        }
        changes
    }
}

fn shape(call: &Call<'_>, reply: Reply) -> Response<Body> {
    let yaml = call.format.yaml;
    match reply {
        Reply::Text(text) => wire::text(200, &text),
        Reply::Document(code, document) => wire::document(code, &document, yaml, &[]),
        Reply::Object {
            code,
            object,
            warnings,
        } => wire::document(code, &shaped(call, object), yaml, &warnings),
        Reply::List(list) => wire::document(200, &shaped(call, list), yaml, &[]),
    }
}

/// An object or list in the shape asked for; whole when that shape cannot be given.
pub(super) fn shaped(call: &Call<'_>, object: Value) -> Value {
    match call.format.shape {
        Shape::Whole => object,
        Shape::Metadata => metadata_only(object),
        Shape::Table => {
            let include = call.query.get("includeObject");
            seams::table(call.resource(), &object, include, call.now).unwrap_or(object)
        }
    }
}

fn metadata_only(mut object: Value) -> Value {
    let partial = |object: &mut Value| {
        json!({
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": object["metadata"].take(),
        })
    };
    if !object["items"].is_array() {
        return partial(&mut object);
    }
    let items = object["items"].as_array_mut().into_iter().flatten();
    let items: Vec<Value> = items.map(partial).collect();
    json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"].take(),
        "items": items,
    })
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "gitVersion": "v1.36.0+impresario",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "embedded",
    })
}

/// A stored object in the version of a resource.
pub(super) fn render(resource: &ResourceType, stored: &Value) -> Value {
    if resource.is("events.k8s.io", "events") {
        return super::events::to_new(stored);
    }
    let mut rendered = stored.clone();
    rendered["apiVersion"] = resource.api_version().into();
    rendered["kind"] = resource.kind.as_str().into();
    rendered
}

/// An object of a resource in the form in which it is stored.
pub(super) fn to_stored(resource: &ResourceType, object: Value) -> Value {
    if resource.is("events.k8s.io", "events") {
        return super::events::to_core(&object);
    }
    object
}

impl State {
    /// The stored object that a request names.
    pub(super) fn existing(&self, call: &Call<'_>) -> Result<Arc<Value>, ApiError> {
        let target = call.target;
        self.store
            .get(&target.resource.shelf, target.namespace(), target.name())
            .cloned()
            .ok_or_else(|| ApiError::not_found(target.resource.resource(), target.name()))
    }

    /// Writes an object and lets the server itself follow it.
    pub(super) fn write(&mut self, resource: &ResourceType, object: Value) -> Arc<Value> {
        let written = self.store.put(&resource.shelf, object);
        if resource.is("apiextensions.k8s.io", "customresourcedefinitions")
            && !object::is_deleting(&written)
        {
            self.registry.install(&written);
        }
        written
    }
}
