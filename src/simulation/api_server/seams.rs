//! Where the rest of the server's face plugs in: schemas, strategic merge, server-side
//! apply, tables, discovery. The handlers call these and nothing else of those modules.

use http::{HeaderMap, Response};
use serde_json::Value;

use super::http::Body;
use super::kinds::{Registry, ResourceType};
use super::object;
use super::status::{ApiError, FieldError};
use crate::clock::Timestamp;

/// What to do about fields that a kind does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

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

/// Reads a body as an object of a resource: prunes unknown fields or refuses them, fills in
/// the schema's defaults, refuses wrong types.
///
/// # Errors
/// 400 for what cannot be decoded, 422 for what the schema forbids.
pub fn decode(
    resource: &ResourceType,
    mut object: Value,
    _validation: FieldValidation,
) -> Result<Decoded, ApiError> {
    if !resource.is_custom() {
        object::drop_nulls(&mut object);
    }
    Ok(Decoded {
        object,
        warnings: Vec::new(),
    })
}

/// What a custom resource's schema forbids in an object about to be stored.
#[must_use]
pub fn validate(
    _resource: &ResourceType,
    _object: &Value,
    _previous: Option<&Value>,
) -> Vec<FieldError> {
    Vec::new()
}

/// A strategic merge patch applied to an object.
///
/// # Errors
/// 415 for custom resources, 400 for a patch that makes no sense.
pub fn strategic(
    _resource: &ResourceType,
    _current: &Value,
    _patch: &Value,
) -> Result<Value, ApiError> {
    Err(ApiError::unsupported_media_type(&[
        "application/json-patch+json",
        "application/merge-patch+json",
    ]))
}

/// A configuration applied server side: to an object, or to none.
///
/// # Errors
/// 409 when another manager owns a field and `force` is not given.
pub fn apply(
    _resource: &ResourceType,
    _current: Option<&Value>,
    _applied: &Value,
    _writer: Writer<'_>,
    _force: bool,
) -> Result<Value, ApiError> {
    Err(ApiError::unsupported_media_type(&[
        "application/json-patch+json",
        "application/merge-patch+json",
    ]))
}

/// Records in `metadata.managedFields` which fields a write set.
pub fn record_manager(
    _resource: &ResourceType,
    _previous: Option<&Value>,
    _object: &mut Value,
    _writer: Writer<'_>,
) {
}

/// An object or a list as a `Table`; none when there is no table for it.
#[must_use]
pub fn table(
    _resource: &ResourceType,
    _object: &Value,
    _include_object: &str,
    _now: Timestamp,
) -> Option<Value> {
    None
}

/// The answer to a request about the API itself (`/api`, `/apis`, `/openapi`); none when
/// the path is not such a one.
#[must_use]
pub fn describe_api(
    _path: &str,
    _headers: &HeaderMap,
    _registry: &Registry,
) -> Option<Response<Body>> {
    None
}
