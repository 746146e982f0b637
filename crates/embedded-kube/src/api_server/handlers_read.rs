//! GET and LIST.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::sync::Arc;

use serde_json::{Value, json};

use super::handlers::{Call, Reply, render};
use super::kinds::ResourceType;
use super::selectors::Selector;
use super::status::{ApiError, FieldError};
use super::store::Compacted;
use super::{State, object};

/// Where a list goes on: the revision it began at and the last object given.
struct Continue {
    revision: u64,
    namespace: String,
    name: String,
}

impl State {
    pub(super) fn get(&self, call: &Call<'_>) -> Result<Reply, ApiError> {
        let target = call.target;
        let resource = call.resource();
        let stored = if call.behind > 0 {
            self.as_of(call, self.store.revision().saturating_sub(call.behind))?
                .into_iter()
                .find(|object| object::name(object) == target.name())
                .ok_or_else(|| ApiError::not_found(resource.resource(), target.name()))?
        } else {
            self.existing(call)?
        };
        Ok(Reply::object(200, render(resource, &stored)))
    }

    pub(super) fn list(&self, call: &Call<'_>) -> Result<Reply, ApiError> {
        let selector = selector(call)?;
        let limit = call.query.number("limit")?.unwrap_or_default();
        let from = Continue::parse(call.query.get("continue"))?;
        let revision = self.list_revision(call, from.as_ref())?;
        let objects = if revision == self.store.revision() {
            let namespace = call.target.namespace.as_deref();
            self.store
                .list(&call.resource().shelf, namespace)
                .cloned()
                .collect()
        } else {
            self.as_of(call, revision)?
        };
        let mut objects = objects
            .into_iter()
            .filter(|object| from.as_ref().is_none_or(|from| from.is_before(object)))
            .filter(|object| selector.matches(object));
        let page: Vec<Arc<Value>> = match limit {
            0 => objects.by_ref().collect(),
            limit => objects.by_ref().take(limit as usize).collect(),
        };
        let left = objects.count();
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        if let (Some(last), 1..) = (page.last(), left) {
            metadata["continue"] = Continue::after(last, revision).into();
            if selector.is_empty() {
                metadata["remainingItemCount"] = left.into();
            }
        }
        Ok(Reply::List(list_of(call.resource(), &page, metadata)))
    }

    /// The revision that a list is to show.
    fn list_revision(&self, call: &Call<'_>, from: Option<&Continue>) -> Result<u64, ApiError> {
        let newest = self.store.revision();
        let asked = call.query.number("resourceVersion")?;
        let rule = call.query.get("resourceVersionMatch");
        if let Some(from) = from {
            return match asked {
                Some(1..) => Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                )),
                _ => Ok(from.revision),
            };
        }
        match (rule, asked) {
            ("", _) | ("NotOlderThan", Some(_)) => {}
            ("Exact", Some(revision @ 1..)) if revision <= newest => return Ok(revision),
            ("Exact", Some(1..)) => {}
            ("Exact" | "NotOlderThan", _) => return Err(match_without_revision()),
            (other, _) => {
                let supported = ["Exact", "NotOlderThan", ""];
                let fault = FieldError::not_supported("resourceVersionMatch", other, &supported);
                return Err(ApiError::invalid(
                    "meta.k8s.io",
                    "ListOptions",
                    "",
                    &[fault],
                ));
            }
        }
        if let Some(asked) = asked
            && asked > newest
        {
            return Err(too_large(asked, newest));
        }
        Ok(newest
            .saturating_sub(call.behind)
            .max(asked.unwrap_or_default()))
    }

    fn as_of(&self, call: &Call<'_>, revision: u64) -> Result<Vec<Arc<Value>>, ApiError> {
        let namespace = call.target.namespace.as_deref();
        let shelf = &call.resource().shelf;
        let objects = self.store.list_at(shelf, namespace, revision);
        objects.map_err(|Compacted(_)| {
            ApiError::expired(
                "The provided continue parameter or resource version is too old to display a \
                 consistent list result. You can start a new list without the continue parameter.",
            )
        })
    }
}

/// The selector of a request; a watch or list of one name selects that name.
pub(super) fn selector(call: &Call<'_>) -> Result<Selector, ApiError> {
    let labels = call.query.get("labelSelector");
    let mut fields = call.query.get("fieldSelector").to_owned();
    if let Some(name) = &call.target.name {
        if !fields.is_empty() {
            fields.push(',');
        }
        fields.push_str(&format!("metadata.name={name}"));
    }
    Selector::parse(labels, &fields, &call.resource().plural)
        .map_err(|error| ApiError::bad_request(error.to_string()))
}

/// A list in the version of a resource. As on the real server, items of built-in kinds do
/// not repeat their kind.
pub(super) fn list_of(resource: &ResourceType, objects: &[Arc<Value>], metadata: Value) -> Value {
    let items = objects.iter().map(|stored| {
        let mut object = render(resource, stored);
        if let (false, Value::Object(fields)) = (resource.is_custom(), &mut object) {
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        object
    });
    json!({
        "kind": resource.list_kind,
        "apiVersion": resource.api_version(),
        "metadata": metadata,
        "items": items.collect::<Vec<Value>>(),
    })
}

fn match_without_revision() -> ApiError {
    let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
    let fault = FieldError::forbidden("resourceVersionMatch", detail);
    ApiError::invalid("meta.k8s.io", "ListOptions", "", &[fault])
}

fn too_large(asked: u64, newest: u64) -> ApiError {
    let message = format!("Too large resource version: {asked}, current: {newest}");
    let mut error = ApiError::new(504, "Timeout", message);
    error.details = json!({ "retryAfterSeconds": 1 });
    let text = "Too large resource version";
    error.because("ResourceVersionTooLarge", text, "")
}

impl Continue {
    fn parse(token: &str) -> Result<Option<Self>, ApiError> {
        if token.is_empty() {
            return Ok(None);
        }
        let parsed = URL_SAFE_NO_PAD
            .decode(token)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<(u64, String, String)>(&bytes).ok());
        match parsed {
            Some((revision, namespace, name)) => Ok(Some(Self {
                revision,
                namespace,
                name,
            })),
            None => Err(ApiError::bad_request("continue key is not valid")),
        }
    }

    fn after(last: &Value, revision: u64) -> String {
        let place = json!([revision, object::namespace(last), object::name(last)]);
        URL_SAFE_NO_PAD.encode(place.to_string())
    }

    fn is_before(&self, object: &Value) -> bool {
        (self.namespace.as_str(), self.name.as_str())
            < (object::namespace(object), object::name(object))
    }
}
