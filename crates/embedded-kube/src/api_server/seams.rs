//! Where the rest of the server's face plugs in: schemas, strategic merge, server-side
//! apply, tables, discovery. The handlers call these and nothing else of those modules.

use http::{HeaderMap, Response, header};
use serde_json::Value;

use super::http::{self as wire, Body};
use super::kinds::{Registry, ResourceType};
use super::patch::apply::{self as server_side, ApplyError, Manager};
use super::patch::strategic::strategic_merge;
use super::schema::{DecodeError, default, prune, validate as rules};
use super::status::{ApiError, FieldError};
use super::table::{IncludeObject, Printer};
use super::{discovery, object, openapi};
use wall_clock::Timestamp;

pub use super::schema::FieldValidation;

/// A body read as an object of its kind.
#[derive(Clone, Debug)]
pub struct Decoded {
    /// The object, without unknown fields, and with its schema's defaults.
    pub object: Value,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

/// Who writes, and through which door, for `metadata.managedFields`.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// Field manager.
    pub manager: &'a str,
    /// Subresource, or the empty string.
    pub subresource: &'a str,
    pub now: Timestamp,
}

impl Writer<'_> {
    fn manager_of(&self, resource: &ResourceType) -> Manager {
        Manager {
            name: self.manager.to_owned(),
            api_version: resource.api_version(),
            subresource: self.subresource.to_owned(),
        }
    }
}

/// Reads a body as an object of a resource: prunes unknown fields or refuses them, fills in
/// the schema's defaults, refuses wrong types.
///
/// # Errors
/// 400 for what cannot be decoded.
pub fn decode(
    resource: &ResourceType,
    object: Value,
    validation: FieldValidation,
) -> Result<Decoded, ApiError> {
    read(resource, object, validation).map_err(|error| {
        ApiError::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {error}",
            kind = resource.kind,
            version = resource.version,
        ))
    })
}

/// The same for what a patch made of an object. Of the object the client sent no more than
/// the patch, so that is what a refusal shows.
///
/// # Errors
/// 422 for unknown fields, 400 for what cannot be decoded.
pub fn decode_patched(
    resource: &ResourceType,
    object: Value,
    patch: &[u8],
    validation: FieldValidation,
) -> Result<Decoded, ApiError> {
    read(resource, object, validation).map_err(|error| match error {
        DecodeError::Unknown(_) => {
            let patch = String::from_utf8_lossy(patch);
            let fault = FieldError::invalid("patch", patch, error.to_string());
            ApiError::invalid("", "", "", &[fault])
        }
        error => ApiError::bad_request(error.to_string()),
    })
}

fn read(
    resource: &ResourceType,
    mut object: Value,
    validation: FieldValidation,
) -> Result<Decoded, DecodeError> {
    let warnings = prune::decode(&resource.schema, &mut object, validation)?;
    default::apply_defaults(&resource.schema, &mut object);
    Ok(Decoded { object, warnings })
}

/// What a custom resource's schema forbids in an object about to be stored.
#[must_use]
pub fn validate(
    resource: &ResourceType,
    object: &Value,
    _previous: Option<&Value>,
) -> Vec<FieldError> {
    rules::validate(&resource.schema, object)
}

/// A strategic merge patch applied to an object.
///
/// # Errors
/// 415 for custom resources, 400 for a patch that makes no sense.
pub fn strategic(
    resource: &ResourceType,
    current: &Value,
    patch: &Value,
) -> Result<Value, ApiError> {
    strategic_merge(&resource.schema, current, patch).map_err(|error| {
        let (code, reason) = error.code_and_reason();
        ApiError::new(code, reason, error.to_string())
    })
}

/// A configuration applied server side: to an object, or to none.
///
/// # Errors
/// 409 when another manager owns a field and `force` is not given.
pub fn apply(
    resource: &ResourceType,
    current: Option<&Value>,
    applied: &Value,
    writer: Writer<'_>,
    force: bool,
) -> Result<Value, ApiError> {
    let manager = writer.manager_of(resource);
    let now = object::time(writer.now);
    server_side::apply(&resource.schema, current, applied, &manager, force, &now).map_err(|error| {
        let refusal = ApiError::new(error.code(), error.reason(), error.to_string());
        let ApplyError::Conflicts(conflicts) = error else {
            return refusal;
        };
        conflicts.iter().fold(refusal, |refusal, conflict| {
            let message = format!("conflict with {}", conflict.manager);
            refusal.because("FieldManagerConflict", &message, &conflict.path)
        })
    })
}

/// Records in `metadata.managedFields` which fields a write set.
pub fn record_manager(
    resource: &ResourceType,
    previous: Option<&Value>,
    object: &mut Value,
    writer: Writer<'_>,
) {
    let manager = writer.manager_of(resource);
    let now = object::time(writer.now);
    server_side::record_update(&resource.schema, previous, object, &manager, &now);
}

/// An object or a list as a `Table`; none when there is no table for it.
#[must_use]
pub fn table(
    resource: &ResourceType,
    object: &Value,
    include_object: &str,
    now: Timestamp,
) -> Option<Value> {
    let include = IncludeObject::parse(Some(include_object))?;
    let printer = match &resource.crd {
        Some(crd) => Printer::of_crd(crd, &resource.version),
        None => Printer::builtin(&resource.group, &resource.plural),
    };
    Some(printer.table(object, include, now))
}

/// The answer to a request about the API itself (`/api`, `/apis`, `/openapi`); none when
/// the path is not such a one.
#[must_use]
pub fn describe_api(
    path: &str,
    headers: &HeaderMap,
    registry: &Registry,
) -> Option<Response<Body>> {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    let accept = accept.unwrap_or_default();
    if path.starts_with("/openapi/") {
        if !openapi::accepts_json(accept) {
            let error = ApiError::not_acceptable(&["application/json"]);
            return Some(wire::refusal(&error));
        }
        let document = openapi::document(path, registry)?;
        return Some(wire::document(200, &document, false, &[]));
    }
    // only the two roots have the aggregated form
    let aggregated = matches!(path.trim_end_matches('/'), "/api" | "/apis")
        && discovery::wants_aggregated(accept);
    let document = discovery::document(path, registry, aggregated)?;
    let media_type = if aggregated {
        discovery::AGGREGATED
    } else {
        "application/json"
    };
    Some(wire::respond(
        200,
        media_type,
        document.to_string().into_bytes(),
    ))
}
