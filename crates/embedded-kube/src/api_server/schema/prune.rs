//! Reading an object against its schema: unknown fields are dropped and reported, built-in
//! types are checked as the typed decoder of a real server does.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::omit::is_omitted;
use super::{Node, Schema, child, element};

/// What a request wants done about fields that its object's kind does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Refuse the request.
    Strict,
    /// Drop them and say so in `Warning` headers. What a server does unless told otherwise.
    #[default]
    Warn,
    /// Drop them silently.
    Ignore,
}

/// Why an object cannot be read. Each is a 400 BadRequest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fields that the kind does not have, under `Strict`.
    #[error("strict decoding error: {}", quoted_fields(.0).join(", "))]
    Unknown(Vec<String>),
    /// A value of another type than its field's.
    #[error("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}")]
    Type {
        /// The JSON type that is there.
        found: &'static str,
        /// The innermost type and the path from the top: `PodSpec.spec.containers`.
        field: String,
        /// The type that should be there.
        wanted: String,
    },
    /// A `[]byte` field, such as a Secret's data, that is not base64.
    #[error("illegal base64 data at input byte {0}")]
    Base64(usize),
    /// A time that is not RFC 3339.
    #[error("parsing time {0:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse it (field {1})")]
    Time(String, String),
}

/// Each path as the server words it: `unknown field "spec.foo"`.
#[must_use]
pub fn quoted_fields(paths: &[String]) -> Vec<String> {
    paths
        .iter()
        .map(|path| format!("unknown field {path:?}"))
        .collect()
}

/// Reads `object` as its kind: drops what the kind does not have and returns warnings, one
/// for each `Warning` header.
///
/// # Errors
/// When a built-in field has the wrong type, or under `Strict` when something was dropped.
pub fn decode(
    schema: &Schema,
    object: &mut Value,
    directive: FieldValidation,
) -> Result<Vec<String>, DecodeError> {
    let unknown = prune(schema, object)?;
    match directive {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(quoted_fields(&unknown)),
        FieldValidation::Strict if unknown.is_empty() => Ok(Vec::new()),
        FieldValidation::Strict => Err(DecodeError::Unknown(unknown)),
    }
}

/// Drops every field that the schema does not have and returns their paths in order. Nulls
/// in built-in types are dropped as well, and zero values that these cannot hold: to them,
/// such a value and none are the same.
///
/// # Errors
/// When a field of a built-in type has the wrong type.
pub fn prune(schema: &Schema, object: &mut Value) -> Result<Vec<String>, DecodeError> {
    let mut unknown = Vec::new();
    visit(schema.root(), object, &Place::top(), &mut unknown)?;
    Ok(unknown)
}

/// Where a walk is, in the two spellings that messages use.
struct Place {
    /// `spec.containers[0].env`
    path: String,
    /// `spec.containers.env`
    go_path: String,
    /// The innermost built-in type around it.
    go_type: Option<String>,
}

impl Place {
    fn top() -> Self {
        Self {
            path: String::new(),
            go_path: String::new(),
            go_type: None,
        }
    }

    fn field(&self, name: &str, parent: Node<'_>) -> Self {
        Self {
            path: child(&self.path, name),
            // Go names the map, not the entry
            go_path: match parent.named(name) {
                Some(_) => child(&self.go_path, name),
                None => self.go_path.clone(),
            },
            go_type: parent
                .type_name()
                .map(str::to_owned)
                .or_else(|| self.go_type.clone()),
        }
    }

    fn element(&self, index: usize) -> Self {
        Self {
            path: element(&self.path, index),
            go_path: self.go_path.clone(),
            go_type: self.go_type.clone(),
        }
    }
}

fn visit(
    node: Node<'_>,
    value: &mut Value,
    place: &Place,
    unknown: &mut Vec<String>,
) -> Result<(), DecodeError> {
    let builtin = node.type_name().is_some() || place.go_type.is_some();
    if builtin {
        check_type(node, value, place)?;
    }
    match value {
        Value::Object(fields) => {
            let names: Vec<String> = fields.keys().cloned().collect();
            for name in names {
                let Some(inner) = node.field(&name) else {
                    fields.remove(&name);
                    unknown.push(child(&place.path, &name));
                    continue;
                };
                let opaque = node.preserves_unknown() && node.named(&name).is_none();
                if builtin && !opaque && fields.get(&name) == Some(&Value::Null) {
                    fields.remove(&name);
                    continue;
                }
                if let Some(value) = fields.get_mut(&name) {
                    visit(inner, value, &place.field(&name, node), unknown)?;
                    if is_omitted(node, &name, value) {
                        fields.remove(&name);
                    }
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                visit(node.items(), item, &place.element(index), unknown)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn check_type(node: Node<'_>, value: &Value, place: &Place) -> Result<(), DecodeError> {
    let fits = match (node.type_(), value) {
        (_, Value::Null) | (None, _) => !node.int_or_string() || int_or_string(value),
        (Some("object"), value) => value.is_object(),
        (Some("array"), value) => value.is_array(),
        (Some("string"), value) => value.is_string(),
        (Some("boolean"), value) => value.is_boolean(),
        (Some("integer"), value) => value.is_i64() || value.is_u64(),
        (Some("number"), value) => value.is_number(),
        (Some(_), _) => true,
    };
    if !fits {
        return Err(DecodeError::Type {
            found: json_type(value),
            field: match &place.go_type {
                Some(name) => format!("{name}.{}", place.go_path),
                None => place.go_path.clone(),
            },
            wanted: go_type(node),
        });
    }
    match (node.text("format"), value) {
        (Some("byte"), Value::String(text)) => {
            match BASE64.decode(text.replace(['\n', '\r'], "")) {
                Ok(_) => Ok(()),
                Err(error) => Err(DecodeError::Base64(base64_position(&error, text))),
            }
        }
        (Some("date-time"), Value::String(text)) if !super::validate::is_date_time(text) => {
            Err(DecodeError::Time(text.clone(), place.path.clone()))
        }
        _ => Ok(()),
    }
}

fn int_or_string(value: &Value) -> bool {
    matches!(value, Value::Null | Value::String(_) | Value::Number(_))
}

fn base64_position(error: &base64::DecodeError, text: &str) -> usize {
    match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => {
            *at
        }
        _ => text.len(),
    }
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A type as Go would print it, as near as the schema lets us.
fn go_type(node: Node<'_>) -> String {
    if let Some(name) = node.type_name() {
        return format!("v1.{name}");
    }
    match (node.type_(), node.text("format")) {
        (Some("integer"), Some(format)) => format.to_owned(),
        (Some("integer"), None) => "int64".into(),
        (Some("boolean"), _) => "bool".into(),
        (Some("string"), Some("byte")) => "[]uint8".into(),
        (Some("array"), _) => format!("[]{}", go_type(node.items())),
        (Some("object"), _) => {
            let mut text = String::from("map[string]");
            let inner = node.keyword("additionalProperties").map(Node::new);
            let _ = write!(text, "{}", inner.map_or("interface {}".into(), go_type));
            text
        }
        (Some(other), _) => other.to_owned(),
        (None, _) => "interface {}".into(),
    }
}
