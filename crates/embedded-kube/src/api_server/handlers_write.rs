//! POST, PUT and PATCH.

use std::sync::Arc;

use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Map, Value, json};

use super::handlers::{Call, Reply, render, to_stored};
use super::http::Verb;
use super::kinds::ResourceType;
use super::patch::{json as json_patch, merge};
use super::seams::{self, Decoded, FieldValidation, Writer};
use super::status::{ApiError, FieldError};
use super::store::ObjectId;
use super::{State, defaults, http as wire, object, quota, validation};
use wall_clock::Timestamp;

/// The letters of generated names, which spell no words.
pub(super) const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// How often a name is generated until one is free, as on the real server.
const NAME_ATTEMPTS: usize = 8;

/// How many Events are kept. The real server forgets them after an hour; this one lives shorter, and
/// in less memory.
const MOST_EVENTS: usize = 5_000;

/// Longest name, and longest stem of a generated one.
const LONGEST_NAME: usize = 63;

impl State {
    pub(super) fn create(&mut self, call: &Call<'_>) -> Result<Reply, ApiError> {
        let body = wire::read_body(&call.parts.headers, call.body)?;
        let dry_run = call.is_dry_run()?;
        self.create_object(call, body, call.field_validation()?, dry_run, true)
    }

    fn create_object(
        &mut self,
        call: &Call<'_>,
        body: Value,
        field_validation: FieldValidation,
        dry_run: bool,
        records_manager: bool,
    ) -> Result<Reply, ApiError> {
        let resource = Arc::clone(call.resource());
        let body = with_identity(&resource, body, call.target.namespace())?;
        let decoded = seams::decode(&resource, body, field_validation)?;
        let Decoded {
            mut object,
            warnings,
        } = decoded;
        self.check_namespace(&resource, &object)?;
        if !object::meta(&object, "resourceVersion").is_empty() {
            let text = "resourceVersion should not be set on objects to be created";
            return Err(ApiError::new(500, "InternalError", text));
        }
        if resource.drops_status_on_create() {
            object.as_object_mut().map(|fields| fields.remove("status"));
        }
        self.name(&resource, &mut object);
        self.stamp_new(&resource, &mut object, call.now);
        self.admit(&resource, &mut object)?;
        defaults::fill_in(&resource, &mut object);
        let mut faults = validation::on_create(&resource, &object);
        faults.extend(seams::validate(&resource, &object, None));
        refuse(&resource, object::name(&object), &faults)?;
        self.authorize_roles(call, &resource, &object)?;
        quota::check(&self.store, &resource, &object)?;
        let (namespace, name) = (object::namespace(&object), object::name(&object));
        if self.store.get(&resource.shelf, namespace, name).is_some() {
            return Err(ApiError::already_exists(resource.resource(), name));
        }
        if records_manager {
            seams::record_manager(&resource, None, &mut object, call.writer());
        }
        let object = to_stored(&resource, object);
        let object = match dry_run {
            true => Arc::new(object),
            false => self.write(&resource, object),
        };
        if &*resource.shelf == "events" && !dry_run {
            self.store.keep_newest(&resource.shelf, MOST_EVENTS);
        }
        if resource.is("", "namespaces") && !dry_run {
            self.open_namespace(object::name(&object), call.now);
        }
        Ok(Reply::Object {
            code: 201,
            object: render(&resource, &object),
            warnings,
        })
    }

    pub(super) fn update(&mut self, call: &Call<'_>) -> Result<Reply, ApiError> {
        let resource = Arc::clone(call.resource());
        let body = wire::read_body(&call.parts.headers, call.body)?;
        let body = with_identity(&resource, body, call.target.namespace())?;
        let decoded = seams::decode(&resource, body, call.field_validation()?)?;
        match object::name(&decoded.object) {
            name if name == call.target.name() => {}
            "" => {
                return Err(ApiError::bad_request(format!(
                    "the name of the object ({} based on URL) was undeterminable: name must be \
                     provided",
                    call.target.name()
                )));
            }
            name => {
                return Err(ApiError::bad_request(format!(
                    "the name of the object ({name}) does not match the name on the URL ({})",
                    call.target.name()
                )));
            }
        }
        let existing = match self.existing(call) {
            Ok(existing) => existing,
            Err(_) if resource.creates_on_update() && call.target.subresource.is_none() => {
                let (rules, dry_run) = (call.field_validation()?, call.is_dry_run()?);
                return self.create_object(call, decoded.object, rules, dry_run, true);
            }
            Err(error) => return Err(error),
        };
        let revision = object::meta(&decoded.object, "resourceVersion");
        if matches!(revision, "" | "0") && !resource.allows_unconditional_update() {
            let detail = "must be specified for an update";
            let fault = FieldError::invalid("metadata.resourceVersion", 0, detail);
            return Err(invalid(&resource, call.target.name(), &[fault]));
        }
        let writer = Some(call.writer());
        self.replace(call, &existing, decoded, writer)
    }

    pub(super) fn patch(&mut self, call: &Call<'_>) -> Result<Reply, ApiError> {
        let resource = Arc::clone(call.resource());
        let content_type = wire::content_type(&call.parts.headers);
        if content_type == "application/apply-patch+yaml" {
            return self.apply(call);
        }
        let existing = self.existing(call)?;
        let current = render(&resource, &existing);
        let patched = match content_type {
            "application/merge-patch+json" => {
                let mut patched = current;
                merge::merge(&mut patched, &wire::parse_json(call.body)?);
                patched
            }
            "application/json-patch+json" => json_patch::apply(&current, call.body)?,
            "application/strategic-merge-patch+json" => {
                let patch = wire::parse_json(call.body)?;
                seams::strategic(&resource, &current, &patch)?
            }
            _ => {
                return Err(ApiError::unsupported_media_type(&[
                    "application/json-patch+json",
                    "application/merge-patch+json",
                    "application/strategic-merge-patch+json",
                    "application/apply-patch+yaml",
                ]));
            }
        };
        let patched = with_identity(&resource, patched, call.target.namespace())?;
        if object::name(&patched) != call.target.name() {
            let fault = FieldError::invalid(
                "metadata.name",
                object::name(&patched),
                "field is immutable",
            );
            refuse(&resource, call.target.name(), &[fault])?;
        }
        let decoded =
            seams::decode_patched(&resource, patched, call.body, call.field_validation()?)?;
        self.replace(call, &existing, decoded, Some(call.writer()))
    }

    fn apply(&mut self, call: &Call<'_>) -> Result<Reply, ApiError> {
        let resource = Arc::clone(call.resource());
        if call.query.get("fieldManager").is_empty() {
            let detail = "is required for apply patch";
            let fault = FieldError::required("fieldManager", detail);
            return Err(ApiError::invalid(
                "meta.k8s.io",
                "PatchOptions",
                "",
                &[fault],
            ));
        }
        let applied = wire::parse_yaml(call.body)?;
        let mut applied = with_identity(&resource, applied, call.target.namespace())?;
        object::meta_mut(&mut applied)
            .entry("name")
            .or_insert_with(|| call.target.name().into());
        if object::name(&applied) != call.target.name() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                object::name(&applied),
                call.target.name()
            )));
        }
        let rules = call.field_validation()?;
        let force = call.query.flag("force");
        let writer = call.writer();
        match self.existing(call) {
            Ok(existing) => {
                let current = render(&resource, &existing);
                let merged = seams::apply(&resource, Some(&current), &applied, writer, force)?;
                let decoded = seams::decode(&resource, merged, rules)?;
                self.replace(call, &existing, decoded, None)
            }
            Err(error) if call.target.subresource.is_some() => Err(error),
            Err(_) if !object::uid(&applied).is_empty() => {
                let why = format!(
                    "uid mismatch: the provided object specified uid {}, and no existing object \
                     was found",
                    object::uid(&applied)
                );
                let name = call.target.name();
                Err(ApiError::conflict(resource.resource(), name, &why))
            }
            Err(_) => {
                let created = seams::apply(&resource, None, &applied, writer, force)?;
                self.create_object(call, created, rules, call.is_dry_run()?, false)
            }
        }
    }

    /// Replaces an object or a part of it, if that changes anything.
    fn replace(
        &mut self,
        call: &Call<'_>,
        existing: &Arc<Value>,
        decoded: Decoded,
        writer: Option<Writer<'_>>,
    ) -> Result<Reply, ApiError> {
        let resource = Arc::clone(call.resource());
        let old = render(&resource, existing);
        let Decoded {
            object: mut new,
            warnings,
        } = decoded;
        check_preconditions(&resource, call.verb, &old, &new)?;
        keep_system_fields(&resource, &old, &mut new)?;
        restrict_to_subresource(&resource, call.target.subresource(), &old, &mut new);
        defaults::fill_in_update(&resource, &mut new);
        let mut faults = validation::on_update(&resource, &old, &new, call.target.subresource());
        faults.extend(seams::validate(&resource, &new, Some(&old)));
        refuse(&resource, call.target.name(), &faults)?;
        self.authorize_role_change(call, &resource, &old, &new)?;
        if resource.has_generation() && has_new_generation(&resource, &old, &new) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
            object::meta_mut(&mut new).insert("generation".into(), (generation + 1).into());
        }
        if let Some(writer) = writer {
            seams::record_manager(&resource, Some(&old), &mut new, writer);
        }
        let written = if new == old {
            Arc::clone(existing)
        } else {
            let mut stored = to_stored(&resource, new);
            stored["apiVersion"] = existing["apiVersion"].clone();
            match call.is_dry_run()? {
                true => Arc::new(stored),
                false => self.store_update(&resource, stored),
            }
        };
        Ok(Reply::Object {
            code: 200,
            object: render(&resource, &written),
            warnings,
        })
    }

    /// Writes a changed object, or ends it when the change took away what held it back.
    pub(super) fn store_update(&mut self, resource: &ResourceType, stored: Value) -> Arc<Value> {
        let held = object::finalizers(&stored).next().is_some()
            || (resource.is("", "namespaces")
                && !object::list(&stored["spec"]["finalizers"]).is_empty());
        let at_end = stored["metadata"]["deletionGracePeriodSeconds"] == 0;
        if object::is_deleting(&stored) && at_end && !held {
            let id = ObjectId {
                shelf: Arc::clone(&resource.shelf),
                namespace: object::namespace(&stored).to_owned(),
                name: object::name(&stored).to_owned(),
            };
            self.end(resource, &id);
            return Arc::new(stored);
        }
        self.write(resource, stored)
    }

    /// Makes a namespace, as the server does for its own.
    pub(super) fn create_namespace(&mut self, name: &str, now: Timestamp) {
        let resource = self.registry.get("", "v1", "namespaces").cloned();
        let Some(resource) = resource else { return };
        let mut namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": { "name": name },
        });
        self.stamp_new(&resource, &mut namespace, now);
        defaults::fill_in(&resource, &mut namespace);
        self.write(&resource, namespace);
        self.open_namespace(name, now);
        self.settle(now);
    }

    /// Gives a new namespace the service account that its pods have by default.
    fn open_namespace(&mut self, name: &str, now: Timestamp) {
        let resource = self.registry.get("", "v1", "serviceaccounts").cloned();
        let Some(resource) = resource else { return };
        let mut account = json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": "default", "namespace": name },
        });
        self.stamp_new(&resource, &mut account, now);
        self.write(&resource, account);
    }

    /// Creates or replaces a CustomResourceDefinition.
    pub(super) fn install_crd(&mut self, mut crd: Value, now: Timestamp) -> Result<(), ApiError> {
        let resource = self
            .registry
            .get("apiextensions.k8s.io", "v1", "customresourcedefinitions")
            .cloned()
            .ok_or_else(ApiError::no_such_path)?;
        let name = object::name(&crd).to_owned();
        self.stamp_new(&resource, &mut crd, now);
        defaults::fill_in(&resource, &mut crd);
        refuse(&resource, &name, &validation::on_create(&resource, &crd))?;
        if let Some(existing) = self.store.get(&resource.shelf, "", &name) {
            crd["metadata"]["uid"] = existing["metadata"]["uid"].clone();
        }
        self.write(&resource, crd);
        self.settle(now);
        Ok(())
    }

    fn check_namespace(&self, resource: &ResourceType, object: &Value) -> Result<(), ApiError> {
        let name = object::namespace(object);
        if !resource.namespaced {
            return Ok(());
        }
        let Some(namespace) = self.store.get("namespaces", "", name) else {
            let namespaces = super::status::Resource {
                group: "",
                plural: "namespaces",
            };
            return Err(ApiError::not_found(namespaces, name));
        };
        if object::is_deleting(namespace) {
            let why = format!(
                "unable to create new content in namespace {name} because it is being terminated"
            );
            let text = format!("namespace {name} is being terminated");
            let error = ApiError::forbidden(resource.resource(), object::name(object), &why);
            return Err(error.because("NamespaceTerminating", &text, "metadata.namespace"));
        }
        Ok(())
    }

    /// Does what admission plug-ins do to a new object.
    fn admit(&mut self, resource: &ResourceType, object: &mut Value) -> Result<(), ApiError> {
        if resource.is("", "pods") {
            let name = match object["spec"]["serviceAccountName"].as_str() {
                Some(name) if !name.is_empty() => name.to_owned(),
                _ => "default".to_owned(),
            };
            let namespace = object::namespace(object);
            let account = self.store.get("serviceaccounts", namespace, &name).cloned();
            let Some(account) = account else {
                let why = format!(
                    "error looking up service account {namespace}/{name}: serviceaccount \
                     {name:?} not found"
                );
                let pod = object::name(object);
                return Err(ApiError::forbidden(resource.resource(), pod, &why));
            };
            defaults::give_service_account(object, Some(&account), &mut self.rng);
        }
        for admission in &self.admission {
            admission.admit(resource, object);
        }
        Ok(())
    }

    /// Generates a name where one is asked for.
    fn name(&mut self, resource: &ResourceType, object: &mut Value) {
        let stem = object::meta(object, "generateName").to_owned();
        if !object::name(object).is_empty() || stem.is_empty() {
            return;
        }
        let namespace = object::namespace(object).to_owned();
        for _ in 0..NAME_ATTEMPTS {
            let name = generated_name(&stem, &mut self.rng);
            let taken = self.store.get(&resource.shelf, &namespace, &name).is_some();
            object::meta_mut(object).insert("name".into(), name.into());
            if !taken {
                return;
            }
        }
    }

    /// Sets what the server alone decides about a new object.
    fn stamp_new(&mut self, resource: &ResourceType, object: &mut Value, now: Timestamp) {
        let uid = uid(&mut self.rng);
        let metadata = object::meta_mut(object);
        for field in [
            "resourceVersion",
            "generation",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            metadata.remove(field);
        }
        metadata.insert("uid".into(), uid.into());
        metadata.insert("creationTimestamp".into(), object::time(now).into());
        if resource.has_generation() {
            metadata.insert("generation".into(), 1.into());
        }
    }
}

/// 422 when there are faults.
pub(super) fn refuse(
    resource: &ResourceType,
    name: &str,
    faults: &[FieldError],
) -> Result<(), ApiError> {
    if faults.is_empty() {
        return Ok(());
    }
    Err(invalid(resource, name, faults))
}

fn invalid(resource: &ResourceType, name: &str, faults: &[FieldError]) -> ApiError {
    ApiError::invalid(&resource.group, &resource.kind, name, faults)
}

/// The body as an object of the resource in the namespace of the request.
fn with_identity(
    resource: &ResourceType,
    mut body: Value,
    namespace: &str,
) -> Result<Value, ApiError> {
    let Value::Object(fields) = &mut body else {
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): it is not a JSON object",
            resource.kind
        )));
    };
    let expected = [
        ("kind", resource.kind.clone()),
        ("apiVersion", resource.api_version()),
    ];
    for (field, expected) in expected {
        match fields.get(field).and_then(Value::as_str) {
            // the real server takes built-in kinds without them
            None | Some("") if resource.is_custom() => {
                let what = if field == "kind" { "Kind" } else { field };
                return Err(ApiError::bad_request(format!(
                    "{} in version {:?} cannot be handled as a {}: Object '{what}' is missing",
                    resource.kind, resource.version, resource.kind
                )));
            }
            None | Some("") => {
                fields.insert(field.to_owned(), expected.into());
            }
            Some(given) if given == expected => {}
            Some(given) => {
                let what = if field == "kind" {
                    "kind"
                } else {
                    "API version"
                };
                return Err(ApiError::bad_request(format!(
                    "the {what} in the data ({given}) does not match the expected {what} \
                     ({expected})"
                )));
            }
        }
    }
    let metadata = fields
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(metadata) = metadata else {
        return Err(ApiError::bad_request("metadata must be an object"));
    };
    let given = metadata.get("namespace").and_then(Value::as_str);
    match given.unwrap_or_default() {
        "" if namespace.is_empty() => {
            metadata.remove("namespace");
        }
        "" => {
            metadata.insert("namespace".into(), namespace.into());
        }
        given if given == namespace => {}
        _ => {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the \
                 request",
            ));
        }
    }
    Ok(body)
}

/// What a write says of the object it is meant for must be so. A wrong uid is a conflict in
/// a whole object and an immutable field in a patch.
fn check_preconditions(
    resource: &ResourceType,
    verb: Verb,
    old: &Value,
    new: &Value,
) -> Result<(), ApiError> {
    let name = object::name(old);
    let (given, actual) = (object::uid(new), object::uid(old));
    if !given.is_empty() && given != actual {
        if verb == Verb::Patch {
            let fault = FieldError::invalid("metadata.uid", given, "field is immutable");
            return Err(invalid(resource, name, &[fault]));
        }
        let why = format!(
            "Precondition failed: UID in precondition: {given}, UID in object meta: {actual}"
        );
        return Err(ApiError::conflict(resource.resource(), name, &why));
    }
    match object::meta(new, "resourceVersion") {
        "" | "0" => Ok(()),
        given if given == object::meta(old, "resourceVersion") => Ok(()),
        _ => Err(ApiError::stale(resource.resource(), name)),
    }
}

/// Restores what a client cannot change.
fn keep_system_fields(
    resource: &ResourceType,
    old: &Value,
    new: &mut Value,
) -> Result<(), ApiError> {
    let asked = new["metadata"]["deletionTimestamp"].clone();
    if asked.is_string() && !object::is_deleting(old) {
        let fault = FieldError::invalid("metadata.deletionTimestamp", asked, "field is immutable");
        refuse(resource, object::name(old), &[fault])?;
    }
    let metadata = object::meta_mut(new);
    for field in [
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        object::copy_field(&old["metadata"], metadata, field);
    }
    Ok(())
}

/// Limits a write to the part of the object that its subresource is about, and a write of
/// the object itself to the rest.
fn restrict_to_subresource(
    resource: &ResourceType,
    subresource: &str,
    old: &Value,
    new: &mut Value,
) {
    match subresource {
        "status" => {
            let mut restricted = old.clone();
            if let Value::Object(fields) = &mut restricted {
                object::copy_field(new, fields, "status");
            }
            let (from, to) = (&new["metadata"], object::meta_mut(&mut restricted));
            object::copy_field(from, to, "managedFields");
            if !resource.is_custom() {
                for field in ["labels", "annotations", "finalizers"] {
                    object::copy_field(from, to, field);
                }
            }
            *new = restricted;
        }
        "finalize" => {
            let finalizers = new["spec"]["finalizers"].clone();
            *new = old.clone();
            new["spec"]["finalizers"] = finalizers;
        }
        _ if resource.has_status() => {
            if let Value::Object(fields) = new {
                object::copy_field(old, fields, "status");
            }
        }
        _ => {}
    }
}

fn has_new_generation(resource: &ResourceType, old: &Value, new: &Value) -> bool {
    let counts = |name: &str| name != "metadata" && !(name == "status" && resource.has_status());
    let has_all_of = |one: &Value, other: &Value| {
        let mut fields = one.as_object().into_iter().flatten();
        fields.all(|(name, value)| !counts(name) || other.get(name) == Some(value))
    };
    !(has_all_of(old, new) && has_all_of(new, old))
}

fn generated_name(stem: &str, rng: &mut StdRng) -> String {
    let longest_stem = LONGEST_NAME - 5;
    let end = (0..=longest_stem.min(stem.len()))
        .rev()
        .find(|&end| stem.is_char_boundary(end));
    let mut name = stem[..end.unwrap_or_default()].to_owned();
    for _ in 0..5 {
        let letter = NAME_LETTERS[rng.random_range(0..NAME_LETTERS.len())];
        name.push(char::from(letter));
    }
    name
}

/// A random uid in the form of RFC 4122, version 4.
fn uid(rng: &mut StdRng) -> String {
    let bits: u128 = rng.random();
    let bits = bits & !(0xf << 76) | (0x4 << 76);
    let bits = bits & !(0x3 << 62) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}
