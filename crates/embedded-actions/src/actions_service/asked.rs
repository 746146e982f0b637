//! What a request asks, taken apart once.

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderName, Request};
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// A request, taken apart.
pub(super) struct Asked {
    authorization: String,
    query: Vec<(String, String)>,
    pub(super) capacity: Option<i64>,
    pub(super) body: Value,
    /// Scheme, host and port under which the service was reached.
    pub(super) origin: String,
}

impl Asked {
    pub(super) fn of(request: &Request<Bytes>) -> Self {
        let header = |name: &HeaderName| {
            let value = request.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let uri = request.uri();
        let query = uri.query().unwrap_or_default();
        let query = url::form_urlencoded::parse(query.as_bytes()).into_owned();
        let host = uri.authority().map(ToString::to_string);
        let host = host.or_else(|| header(&HOST)).unwrap_or_default();
        let capacity = HeaderName::from_static("x-scalesetmaxcapacity");
        Self {
            authorization: header(&AUTHORIZATION).unwrap_or_default(),
            query: query.collect(),
            capacity: header(&capacity).and_then(|text| text.parse().ok()),
            body: serde_json::from_slice(request.body()).unwrap_or(Value::Null),
            origin: format!("{}://{host}", uri.scheme_str().unwrap_or("http")),
        }
    }

    pub(super) fn parameter(&self, name: &str) -> &str {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    pub(super) fn number(&self, name: &str) -> i64 {
        self.parameter(name).parse().unwrap_or_default()
    }

    /// The token it is authorized with, if that is of this scheme; else nothing.
    pub(super) fn token(&self, scheme: &str) -> &str {
        let rest = self.authorization.strip_prefix(scheme);
        rest.map(str::trim).unwrap_or_default()
    }

    /// What it is authorized with, whatever the scheme.
    pub(super) fn secret(&self) -> &str {
        let parts = self.authorization.split_once(' ');
        parts.map_or("", |(_, secret)| secret.trim())
    }
}

/// Undoes the percent encoding of a part of a path.
pub(super) fn percent_decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
