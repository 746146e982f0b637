//! Filling in what a schema's `default`s give.

use serde_json::Value;

use super::{Node, Schema};

/// Adds the defaults of a custom resource's schema to an object, in place. A null where the
/// schema does not allow one and has a default counts as absent.
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
            for (name, schema) in node.properties().into_iter().flatten() {
                let Some(default) = schema.get("default") else {
                    continue;
                };
                let absent = match fields.get(name) {
                    None => true,
                    Some(Value::Null) => !Node::new(schema).nullable(),
                    Some(_) => false,
                };
                if absent {
                    fields.insert(name.clone(), default.clone());
                }
            }
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
