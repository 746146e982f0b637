//! Strategic merge patch: a merge patch in which lists of built-in types merge by key, with
//! directives (`$patch`, `$deleteFromPrimitiveList`, `$setElementOrder`, `$retainKeys`).
//!
//! Pure; which lists merge, and by what, comes from the kind's [`Schema`].

use serde_json::{Map, Value};

use crate::api_server::schema::{Node, Schema};

/// Why a strategic merge patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrategicError {
    /// The kind is a custom resource: the server answers 415.
    #[error(
        "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, application/apply-patch+cbor"
    )]
    Unsupported,
    /// An element of a list that merges by key has no key.
    #[error("map: {element} does not contain declared merge key: {key}")]
    NoMergeKey {
        /// The element, as JSON.
        element: String,
        /// The missing field.
        key: String,
    },
    /// `$patch` says something else than delete, replace or merge.
    #[error("unknown patch type: {0} (use delete, replace or merge)")]
    Directive(String),
    /// A directive has a value of the wrong type.
    #[error("wrong type of {0}: {1}")]
    Shape(String, &'static str),
}

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

impl StrategicError {
    /// The HTTP status code and the Status' `reason`, as the real server answers.
    #[must_use]
    pub fn code_and_reason(&self) -> (u16, &'static str) {
        match self {
            Self::Unsupported => (415, "UnsupportedMediaType"),
            Self::NoMergeKey { .. } | Self::Directive(_) => (500, ""),
            Self::Shape(..) => (400, "BadRequest"),
        }
    }
}

/// `current` with `patch` merged into it.
///
/// # Errors
/// When the patch is malformed or the kind does not take such patches.
pub fn strategic_merge(
    schema: &Schema,
    current: &Value,
    patch: &Value,
) -> Result<Value, StrategicError> {
    if schema.is_custom() {
        return Err(StrategicError::Unsupported);
    }
    Ok(merge_value(schema.root(), Some(current), patch)?.unwrap_or_default())
}

/// The outcome of a patch for one value; `None` means that it is gone.
fn merge_value(
    node: Node<'_>,
    current: Option<&Value>,
    patch: &Value,
) -> Result<Option<Value>, StrategicError> {
    match patch {
        Value::Null => Ok(None),
        Value::Object(patch) => {
            let empty = Map::new();
            let current = current.and_then(Value::as_object).unwrap_or(&empty);
            merge_object(node, current, patch)
        }
        Value::Array(patch) => {
            let empty = Vec::new();
            let current = current.and_then(Value::as_array).unwrap_or(&empty);
            merge_list(node, current, patch).map(|list| Some(Value::Array(list)))
        }
        scalar => Ok(Some(scalar.clone())),
    }
}

fn merge_object(
    node: Node<'_>,
    current: &Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Option<Value>, StrategicError> {
    let directive = directive(patch)?;
    let mut result = match directive {
        Directive::Delete => return Ok(None),
        Directive::Replace => Map::new(),
        Directive::Merge => current.clone(),
    };
    if let Some(retained) = patch.get(RETAIN_KEYS) {
        let retained = retained.as_array().ok_or(StrategicError::Shape(
            RETAIN_KEYS.into(),
            "want a list of names",
        ))?;
        result.retain(|name, _| retained.iter().any(|kept| kept == name.as_str()));
    }
    for (name, value) in patch {
        if name == PATCH
            || name == RETAIN_KEYS
            || name.starts_with(DELETE_FROM)
            || name.starts_with(ELEMENT_ORDER)
        {
            continue;
        }
        let inner = node.field(name).unwrap_or_else(Node::anything);
        match merge_value(inner, result.get(name), value)? {
            Some(value) => result.insert(name.clone(), value),
            None => result.remove(name),
        };
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_FROM) {
            delete_scalars(&mut result, list, value)?;
        }
    }
    for (name, order) in patch {
        if let Some(list) = name.strip_prefix(ELEMENT_ORDER) {
            let inner = node.field(list).unwrap_or_else(Node::anything);
            set_order(inner, &mut result, list, order)?;
        }
    }
    Ok(Some(Value::Object(result)))
}

enum Directive {
    Delete,
    Replace,
    Merge,
}

fn directive(patch: &Map<String, Value>) -> Result<Directive, StrategicError> {
    match patch.get(PATCH) {
        None => Ok(Directive::Merge),
        Some(Value::String(text)) => match text.as_str() {
            "delete" => Ok(Directive::Delete),
            "replace" => Ok(Directive::Replace),
            "merge" => Ok(Directive::Merge),
            other => Err(StrategicError::Directive(other.to_owned())),
        },
        Some(_) => Err(StrategicError::Shape(PATCH.into(), "want a string")),
    }
}

fn merge_list(
    node: Node<'_>,
    current: &[Value],
    patch: &[Value],
) -> Result<Vec<Value>, StrategicError> {
    if !node.has_patch_strategy("merge") {
        return plain(node, patch);
    }
    match node.patch_merge_key() {
        Some(key) => merge_keyed(node, key, current, patch),
        None => {
            let mut result = current.to_vec();
            for value in patch {
                if !result.contains(value) {
                    result.push(value.clone());
                }
            }
            Ok(result)
        }
    }
}

/// A list that replaces what is there; its elements may still hold directives.
fn plain(node: Node<'_>, patch: &[Value]) -> Result<Vec<Value>, StrategicError> {
    let mut result = Vec::with_capacity(patch.len());
    for value in patch {
        match value {
            Value::Object(_) => result.extend(merge_value(node.items(), None, value)?),
            other => result.push(other.clone()),
        }
    }
    Ok(result)
}

fn merge_keyed(
    node: Node<'_>,
    key: &str,
    current: &[Value],
    patch: &[Value],
) -> Result<Vec<Value>, StrategicError> {
    let replaces = patch
        .iter()
        .any(|element| element.get(PATCH).is_some_and(|value| value == "replace"));
    if replaces {
        // the element that says so is only the directive
        return Ok(patch
            .iter()
            .filter(|element| element.get(PATCH).is_none())
            .cloned()
            .collect());
    }
    let mut result = current.to_vec();
    for element in patch {
        let identity = element.get(key).ok_or_else(|| StrategicError::NoMergeKey {
            element: element.to_string(),
            key: key.to_owned(),
        })?;
        let found = result
            .iter()
            .position(|there| there.get(key) == Some(identity));
        let merged = merge_value(node.items(), found.map(|at| &result[at]), element)?;
        match (found, merged) {
            (Some(at), Some(merged)) => result[at] = merged,
            (Some(_), None) => result.retain(|there| there.get(key) != Some(identity)),
            (None, Some(merged)) => result.push(merged),
            (None, None) => {}
        }
    }
    Ok(result)
}

fn delete_scalars(
    object: &mut Map<String, Value>,
    list: &str,
    gone: &Value,
) -> Result<(), StrategicError> {
    let gone = gone.as_array().ok_or_else(|| {
        StrategicError::Shape(format!("{DELETE_FROM}{list}"), "want a list of values")
    })?;
    if let Some(Value::Array(items)) = object.get_mut(list) {
        items.retain(|item| !gone.contains(item));
    }
    Ok(())
}

/// Sorts a list as the patch asks. Elements that the patch does not mention stay at their
/// index.
fn set_order(
    node: Node<'_>,
    object: &mut Map<String, Value>,
    list: &str,
    order: &Value,
) -> Result<(), StrategicError> {
    let order = order.as_array().ok_or_else(|| {
        StrategicError::Shape(format!("{ELEMENT_ORDER}{list}"), "want a list of elements")
    })?;
    let Some(Value::Array(items)) = object.get_mut(list) else {
        return Ok(());
    };
    let identity = |item: &Value| -> Value {
        match node.patch_merge_key() {
            Some(key) if item.is_object() => item.get(key).cloned().unwrap_or_default(),
            _ => item.clone(),
        }
    };
    let wanted: Vec<Value> = order.iter().map(identity).collect();
    let mut mentioned: Vec<(usize, Value)> = Vec::new();
    let mut others: Vec<(usize, Value)> = Vec::new();
    for (at, item) in std::mem::take(items).into_iter().enumerate() {
        let id = identity(&item);
        match wanted.iter().position(|other| *other == id) {
            Some(rank) => mentioned.push((rank, item)),
            None => others.push((at, item)),
        }
    }
    mentioned.sort_by_key(|(rank, _)| *rank);
    *items = mentioned.into_iter().map(|(_, item)| item).collect();
    for (at, item) in others {
        items.insert(at.min(items.len()), item);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
