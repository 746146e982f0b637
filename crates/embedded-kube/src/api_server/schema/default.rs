//! Filling in what a schema's `default`s give, and dropping nulls that it does not allow.

use serde_json::{Map, Value};

use super::{Node, Schema};

/// Adds the defaults of a custom resource's schema to an object, in place. A null in a field
/// that the schema names and that may not be null counts as absent.
pub fn apply_defaults(schema: &Schema, object: &mut Value) {
    if schema.is_custom() {
        fill(schema.root(), object);
    }
}

fn fill(node: Node<'_>, value: &mut Value) {
    if node.type_name().is_some() {
        return;
    }
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| !value.is_null() || allows_null(node, name));
            add_defaults(node, fields);
            for (name, value) in fields.iter_mut() {
                if let Some(inner) = node.field(name) {
                    fill(inner, value);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                fill(node.items(), item);
            }
        }
        _ => {}
    }
}

/// Whether null may stay: where it is a value, or where nothing is said of the field.
fn allows_null(node: Node<'_>, name: &str) -> bool {
    match node.named(name) {
        Some(inner) => inner.nullable(),
        None if node.keyword("additionalProperties").is_some() => {
            node.field(name).is_none_or(|inner| inner.nullable())
        }
        None => true,
    }
}

fn add_defaults(node: Node<'_>, fields: &mut Map<String, Value>) {
    for (name, schema) in node.properties().into_iter().flatten() {
        if let Some(default) = schema.get("default")
            && !fields.contains_key(name)
        {
            fields.insert(name.clone(), default.clone());
        }
    }
}
