//! Reading and writing the parts that every Kubernetes object has, on plain JSON.

use serde_json::{Map, Value};

use wall_clock::Timestamp;

/// A string at `metadata.<field>`, or the empty string.
#[must_use]
pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// `metadata.name`, or the empty string.
#[must_use]
pub fn name(object: &Value) -> &str {
    meta(object, "name")
}

/// `metadata.namespace`, or the empty string.
#[must_use]
pub fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

/// `metadata.uid`, or the empty string.
#[must_use]
pub fn uid(object: &Value) -> &str {
    meta(object, "uid")
}

/// `metadata.resourceVersion` of a stored object.
#[must_use]
pub fn revision(object: &Value) -> u64 {
    meta(object, "resourceVersion").parse().unwrap_or_default()
}

/// Whether a deletion has been asked for.
#[must_use]
pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    strings(&object["metadata"]["finalizers"])
}

/// `metadata.ownerReferences`.
#[must_use]
pub fn owner_references(object: &Value) -> &[Value] {
    list(&object["metadata"]["ownerReferences"])
}

/// The elements of a JSON array; none for anything else.
#[must_use]
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The strings of a JSON array; none for anything else.
pub fn strings(value: &Value) -> impl Iterator<Item = &str> {
    list(value).iter().filter_map(Value::as_str)
}

/// `object[field]` as a map to write to, created when it is absent or not a map.
pub fn map_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !object[field].is_object() {
        object[field] = Value::Object(Map::new());
    }
    match &mut object[field] {
        Value::Object(map) => map,
        _ => unreachable!("set just above"),
    }
}

/// `metadata` as a map to write to.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    map_mut(object, "metadata")
}

/// Replaces the finalizers; no list at all when none are left.
pub fn set_finalizers(object: &mut Value, finalizers: Vec<String>) {
    let metadata = meta_mut(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), finalizers.into());
    }
}

/// Moves a field from one object to another, or removes it when the first has none.
pub fn copy_field(from: &Value, to: &mut Map<String, Value>, field: &str) {
    match from.get(field) {
        Some(value) => {
            to.insert(field.to_owned(), value.clone());
        }
        None => {
            to.remove(field);
        }
    }
}

/// A time as `metav1.Time` writes it: whole seconds, UTC.
#[must_use]
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What a value takes in memory, about: enough to tell large from small.
#[must_use]
pub fn weight(value: &Value) -> usize {
    /// A string or number with what is around it; an entry of a map with its share of the node.
    const LEAF: usize = 32;
    const ENTRY: usize = 64;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => LEAF,
        Value::String(text) => LEAF + text.len(),
        Value::Array(items) => LEAF + items.iter().map(weight).sum::<usize>(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| ENTRY + key.len() + weight(value))
            .sum::<usize>()
            .max(LEAF),
    }
}
