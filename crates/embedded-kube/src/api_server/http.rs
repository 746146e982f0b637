//! From an HTTP request to what it asks for, and from an answer back to HTTP.
//!
//! Paths, query parameters and media types live here; what a request does is in `handlers`.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use super::kinds::{Registry, ResourceType};
use super::protobuf::{self, ProtobufError};
use super::status::ApiError;

/// The error of a response body: the connection broke.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of every response.
pub type Body = UnsyncBoxBody<Bytes, BodyError>;

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";

/// What is asked for, in Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Follows the changes of a collection.
    Watch,
    /// Creates an object, or posts to a subresource.
    Create,
    /// Replaces an object.
    Update,
    /// Changes an object, or applies a configuration.
    Patch,
    /// Deletes one object.
    Delete,
    /// Deletes a collection.
    DeleteCollection,
}

impl Verb {
    /// The word in RBAC rules.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Whether nothing is changed by it.
    #[must_use]
    pub fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// The object or collection that a path names.
#[derive(Clone, Debug)]
pub struct Target {
    pub resource: Arc<ResourceType>,
    /// Namespace in the path; none for cluster-scoped resources and lists over all.
    pub namespace: Option<String>,
    /// Name in the path; none for collections.
    pub name: Option<String>,
    /// Subresource such as `status`.
    pub subresource: Option<String>,
}

impl Target {
    /// The name in the path, empty for a collection.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// The namespace in the path, empty when there is none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    /// The subresource, empty for the object itself.
    #[must_use]
    pub fn subresource(&self) -> &str {
        self.subresource.as_deref().unwrap_or_default()
    }
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub enum Route {
    /// `/healthz`, `/livez`, `/readyz`.
    Health,
    /// `/version`.
    Version,
    /// A path that may describe the API itself.
    Other,
    /// A resource.
    Resource(Target),
}

/// Finds where a path leads.
///
/// # Errors
/// 404 when it names no resource.
pub fn route(path: &str, registry: &Registry) -> Result<Route, ApiError> {
    let parts: Vec<String> = path
        .split('/')
        .filter(|part| !part.is_empty())
        .map(percent_decode)
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => return Ok(Route::Health),
        ["version"] => return Ok(Route::Version),
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Ok(Route::Other),
    };
    let (namespace, rest) = match rest {
        // namespaces/NAME and its own subresources are about the namespace itself
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
        _ => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some(name), None),
        [plural, name, subresource] => (plural, Some(name), Some(subresource)),
        _ => return Err(ApiError::no_such_path()),
    };
    let resource = registry
        .get(group, version, plural)
        .ok_or_else(ApiError::no_such_path)?;
    let target = Target {
        resource: Arc::clone(resource),
        namespace,
        name: name.map(|&name| name.to_owned()),
        subresource: subresource.map(|&name| name.to_owned()),
    };
    check_scope(&target)?;
    Ok(Route::Resource(target))
}

fn check_scope(target: &Target) -> Result<(), ApiError> {
    let resource = &target.resource;
    let misplaced = match (&target.namespace, &target.name) {
        (Some(_), _) => !resource.namespaced,
        (None, Some(_)) => resource.namespaced,
        (None, None) => false,
    };
    let unknown = target
        .subresource
        .as_deref()
        .is_some_and(|name| !resource.subresources.contains(name));
    if misplaced || unknown {
        return Err(ApiError::no_such_path());
    }
    Ok(())
}

/// The verb of a request for a resource.
///
/// # Errors
/// 405 when the method means nothing there.
pub fn verb(method: &Method, target: &Target, query: &Query) -> Result<Verb, ApiError> {
    let named = target.name.is_some();
    let watch = query.flag("watch");
    Ok(match (method.as_str(), named) {
        ("GET", true) if watch && target.subresource.is_none() => Verb::Watch,
        ("GET" | "HEAD", true) => Verb::Get,
        ("GET", false) if watch => Verb::Watch,
        ("GET" | "HEAD", false) => Verb::List,
        ("POST", false) => Verb::Create,
        ("POST", true) if target.subresource.is_some() => Verb::Create,
        ("PUT", true) => Verb::Update,
        ("PATCH", true) => Verb::Patch,
        ("DELETE", true) => Verb::Delete,
        ("DELETE", false) => Verb::DeleteCollection,
        _ => return Err(ApiError::method_not_allowed()),
    })
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// Query parameters.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses what follows the question mark.
    #[must_use]
    pub fn parse(query: Option<&str>) -> Self {
        let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.into_owned().collect())
    }

    /// A parameter, or the empty string.
    #[must_use]
    pub fn get(&self, name: &str) -> &str {
        let mut pairs = self.0.iter();
        pairs
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value)
    }

    /// Whether a parameter is there and means yes.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        let given = self.0.iter().any(|(key, _)| key == name);
        given
            && !matches!(
                self.get(name),
                "0" | "false" | "f" | "F" | "False" | "FALSE"
            )
    }

    /// A number.
    ///
    /// # Errors
    /// 400 when the parameter is there and is no number.
    pub fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.get(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                ApiError::bad_request(format!(
                    "unable to decode query parameter {name}: invalid number {text:?}"
                ))
            }),
        }
    }
}

/// The shape in which objects are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// As they are.
    Whole,
    /// Metadata only (`PartialObjectMetadata`).
    Metadata,
    /// Rows for people (`Table`).
    Table,
}

/// What a response is to look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    pub shape: Shape,
    pub yaml: bool,
}

/// Picks the first of the `Accept` header's media types that can be served.
///
/// # Errors
/// 406 when there is none.
pub fn negotiate(headers: &HeaderMap) -> Result<Format, ApiError> {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    let accept = accept.filter(|text| !text.is_empty()).unwrap_or("*/*");
    accept
        .split(',')
        .find_map(format_of)
        .ok_or_else(|| ApiError::not_acceptable(&[JSON, YAML]))
}

fn format_of(media_type: &str) -> Option<Format> {
    let mut parts = media_type.split(';').map(str::trim);
    let yaml = match parts.next()? {
        "application/json" | "*/*" | "application/*" => false,
        "application/yaml" => true,
        _ => return None,
    };
    let (mut kind, mut group, mut version) = ("", "", "");
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key {
            "as" => kind = value,
            "g" => group = value,
            "v" => version = value,
            _ => {}
        }
    }
    let shape = match kind {
        "" => Shape::Whole,
        _ if group != "meta.k8s.io" || version != "v1" => return None,
        "PartialObjectMetadata" | "PartialObjectMetadataList" => Shape::Metadata,
        "Table" => Shape::Table,
        _ => return None,
    };
    Some(Format { shape, yaml })
}

/// The media type of a request's body, without parameters; JSON when there is none.
#[must_use]
pub fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(header::CONTENT_TYPE);
    let text = value.and_then(|v| v.to_str().ok()).unwrap_or(JSON);
    text.split(';').next().unwrap_or(JSON).trim()
}

/// Reads a body as JSON, or as YAML or protobuf where its media type says so.
///
/// # Errors
/// 400 when it is malformed, 415 for another media type.
pub fn read_body(headers: &HeaderMap, body: &[u8]) -> Result<Value, ApiError> {
    match content_type(headers) {
        JSON => parse_json(body),
        YAML => parse_yaml(body),
        protobuf::MEDIA_TYPE => protobuf::decode(body).map_err(|error| match error {
            ProtobufError::Malformed(_) => ApiError::bad_request(error.to_string()),
            ProtobufError::UnknownKind(..) => {
                ApiError::new(415, "UnsupportedMediaType", error.to_string())
            }
        }),
        _ => Err(ApiError::unsupported_media_type(&[JSON, YAML])),
    }
}

/// Reads JSON.
///
/// # Errors
/// 400 when it is malformed.
pub fn parse_json(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        ApiError::bad_request(format!(
            "the object provided is unrecognized: the body is not JSON: {error}"
        ))
    })
}

/// Reads YAML.
///
/// # Errors
/// 400 when it is malformed.
pub fn parse_yaml(body: &[u8]) -> Result<Value, ApiError> {
    let malformed = |error: &dyn std::fmt::Display| {
        ApiError::bad_request(format!("error decoding YAML: {error}"))
    };
    let text = std::str::from_utf8(body).map_err(|error| malformed(&error))?;
    serde_saphyr::from_str(text).map_err(|error| malformed(&error))
}

/// A response with a JSON (or YAML) document.
#[must_use]
pub fn document(code: u16, value: &Value, yaml: bool, warnings: &[String]) -> Response<Body> {
    let text = yaml.then(|| serde_saphyr::to_string(value));
    let (media_type, bytes) = match text {
        Some(Ok(text)) => (YAML, text.into_bytes()),
        _ => (JSON, json_bytes(value)),
    };
    let mut response = respond(code, media_type, bytes);
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = format!("299 - \"{quoted}\"").parse() {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// A document as JSON.
#[must_use]
pub fn json_bytes(value: &Value) -> Vec<u8> {
    // writing a Value into memory cannot fail, and to_string is the same but slower
    serde_json::to_vec(value).unwrap_or_else(|_| value.to_string().into_bytes())
}

/// A response with a text.
#[must_use]
pub fn text(code: u16, text: &str) -> Response<Body> {
    respond(code, "text/plain; charset=utf-8", text.as_bytes().to_vec())
}

/// A response with a refusal.
#[must_use]
pub fn refusal(error: &ApiError) -> Response<Body> {
    let mut response = document(error.code, &error.to_status(), false, &[]);
    if let Some(seconds) = error.details["retryAfterSeconds"].as_u64() {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// A response with a body that comes in pieces.
#[must_use]
pub fn stream(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(JSON));
    response
}

/// A response with a body of any media type.
#[must_use]
pub fn respond(code: u16, media_type: &'static str, bytes: Vec<u8>) -> Response<Body> {
    let body = Full::new(Bytes::from(bytes)).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    let media_type = header::HeaderValue::from_static(media_type);
    headers.insert(header::CONTENT_TYPE, media_type);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Option<(String, String, String, String)> {
        match route(path, &Registry::builtin()).ok()? {
            Route::Resource(target) => Some((
                target.resource.plural.clone(),
                target.namespace().to_owned(),
                target.name().to_owned(),
                target.subresource().to_owned(),
            )),
            _ => None,
        }
    }

    fn parts(a: &str, b: &str, c: &str, d: &str) -> Option<(String, String, String, String)> {
        Some((a.into(), b.into(), c.into(), d.into()))
    }

    #[test]
    fn paths_lead_to_resources() {
        assert_eq!(target("/api/v1/pods"), parts("pods", "", "", ""));
        assert_eq!(
            target("/api/v1/namespaces/ci/pods/x/status"),
            parts("pods", "ci", "x", "status")
        );
        assert_eq!(
            target("/api/v1/namespaces/ci"),
            parts("namespaces", "", "ci", "")
        );
        assert_eq!(
            target("/api/v1/namespaces/ci/finalize"),
            parts("namespaces", "", "ci", "finalize")
        );
        assert_eq!(
            target("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode"),
            parts("clusterroles", "", "system:node", "")
        );
    }

    #[test]
    fn paths_that_name_nothing_are_not_found() {
        for path in [
            "/api/v1/gadgets",
            "/api/v1/pods/x",
            "/api/v1/namespaces/ci/nodes/n",
            "/api/v1/namespaces/ci/secrets/s/status",
            "/api/v1/namespaces/ci/pods/x/status/y",
        ] {
            let error = route(path, &Registry::builtin()).unwrap_err();
            assert_eq!(error.code, 404, "{path}");
        }
    }

    #[test]
    fn the_first_media_type_that_can_be_served_wins() {
        let format = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            negotiate(&headers).map(|format| (format.shape, format.yaml))
        };
        assert_eq!(format("*/*"), Ok((Shape::Whole, false)));
        assert_eq!(
            format("application/vnd.kubernetes.protobuf, application/json"),
            Ok((Shape::Whole, false))
        );
        assert_eq!(
            format("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"),
            Ok((Shape::Table, false))
        );
        assert_eq!(
            format("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
            Ok((Shape::Metadata, false))
        );
        assert_eq!(format("application/yaml"), Ok((Shape::Whole, true)));
        assert_eq!(format("text/html").unwrap_err().code, 406);
    }
}
