//! Checking a custom resource against its CRD's schema, with the messages of a real server.

use k8s_openapi::jiff::Timestamp;
use regex::Regex;
use serde_json::{Number, Value};

use super::{ListKind, Node, Schema, child, element};

/// One thing that is wrong with an object: an entry of a Status' `details.causes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: &'static str,
    /// What is wrong, without the field: `Invalid value: -1: …`.
    pub message: String,
    /// Where: `spec.minRunners`.
    pub field: String,
}

impl Cause {
    fn invalid(field: &str, value: &str, detail: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {value}: {detail}"),
            field: field.to_owned(),
        }
    }

    fn required(field: String) -> Self {
        Self {
            reason: "FieldValueRequired",
            message: "Required value".into(),
            field,
        }
    }

    fn wrong_type(field: &str, wanted: &str, found: &str) -> Self {
        let detail = format!("{} in body must be of type {wanted}: {found:?}", field);
        Self {
            reason: "FieldValueTypeInvalid",
            message: format!("Invalid value: {found:?}: {detail}"),
            field: field.to_owned(),
        }
    }

    /// The cause as one line: `spec.minRunners: Invalid value: …`.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
}

/// The text of a 422 for an object: `Kind.group "name" is invalid: …`.
#[must_use]
pub fn invalid_message(group_kind: &str, name: &str, causes: &[Cause]) -> String {
    let lines: Vec<String> = causes.iter().map(Cause::line).collect();
    let lines = match lines.as_slice() {
        [only] => only.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    format!("{group_kind} {name:?} is invalid: {lines}")
}

/// Everything that is wrong with a custom resource; nothing for a built-in kind, whose types
/// were checked when it was decoded.
#[must_use]
pub fn validate(schema: &Schema, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if schema.is_custom() {
        check(schema.root(), object, "", &mut causes);
    }
    causes
}

/// Whether a text is an RFC 3339 time.
pub(super) fn is_date_time(text: &str) -> bool {
    text.parse::<Timestamp>().is_ok()
}

fn check(node: Node<'_>, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    // built-in types inside a custom resource (metadata) were checked by decoding
    if node.type_name().is_some() || (value.is_null() && node.nullable()) {
        return;
    }
    if !has_type(node, value) {
        let wanted = match node.type_() {
            Some(name) => name,
            None => "integer or string",
        };
        causes.push(Cause::wrong_type(path, wanted, type_of(value)));
        return;
    }
    check_enum(node, value, path, causes);
    match value {
        Value::String(text) => check_string(node, text, path, causes),
        Value::Number(number) => check_number(node, number, path, causes),
        Value::Array(items) => check_list(node, items, path, causes),
        Value::Object(_) => check_object(node, value, path, causes),
        _ => {}
    }
    check_combinations(node, value, path, causes);
}

fn has_type(node: Node<'_>, value: &Value) -> bool {
    match node.type_() {
        None if node.int_or_string() => is_integer(value) || value.is_string(),
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => is_integer(value),
        Some("number") => value.is_number(),
        Some(_) => true,
    }
}

#[allow(
    clippy::float_cmp,
    reason = "a whole number has a fraction of exactly zero"
)]
fn is_integer(value: &Value) -> bool {
    match value {
        Value::Number(number) if number.is_f64() => {
            number.as_f64().is_some_and(|float| float.fract() == 0.0)
        }
        Value::Number(_) => true,
        _ => false,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_enum(node: Node<'_>, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(allowed) = node.keyword("enum").and_then(Value::as_array) else {
        return;
    };
    if !allowed.contains(value) {
        let list: Vec<String> = allowed.iter().map(Value::to_string).collect();
        causes.push(Cause {
            reason: "FieldValueNotSupported",
            message: format!(
                "Unsupported value: {value}: supported values: {}",
                list.join(", ")
            ),
            field: path.to_owned(),
        });
    }
}

fn check_string(node: Node<'_>, text: &str, path: &str, causes: &mut Vec<Cause>) {
    let quoted = format!("{text:?}");
    let length = text.chars().count() as u64;
    if let Some(limit) = limit(node, "minLength").filter(|limit| length < *limit) {
        let detail = format!("{} in body should be at least {limit} chars long", path);
        causes.push(Cause::invalid(path, &quoted, &detail));
    }
    if let Some(limit) = limit(node, "maxLength").filter(|limit| length > *limit) {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {limit} bytes"),
            field: path.to_owned(),
        });
    }
    if let Some(pattern) = node.text("pattern") {
        // a pattern that does not compile is the CRD's fault and was refused with it
        let matches = Regex::new(pattern).map_or(true, |regex| regex.is_match(text));
        if !matches {
            let detail = format!("{} in body should match '{pattern}'", path);
            causes.push(Cause::invalid(path, &quoted, &detail));
        }
    }
    if node.text("format") == Some("date-time") && !is_date_time(text) {
        let detail = format!("{} in body must be of type date-time: {quoted}", path);
        causes.push(Cause::invalid(path, &quoted, &detail));
    }
}

fn check_number(node: Node<'_>, number: &Number, path: &str, causes: &mut Vec<Cause>) {
    let shown = number.to_string();
    let mut refuse = |detail: String| {
        let detail = format!("{} in body {detail}", path);
        causes.push(Cause::invalid(path, &shown, &detail));
    };
    let Some(value) = number.as_f64() else {
        return;
    };
    let bound = |name: &str| node.keyword(name).filter(|bound| bound.is_number());
    if let Some(minimum) = bound("minimum") {
        let limit = minimum.as_f64().unwrap_or(f64::MIN);
        if node.flag("exclusiveMinimum") && value <= limit {
            refuse(format!("should be greater than {minimum}"));
        } else if value < limit {
            refuse(format!("should be greater than or equal to {minimum}"));
        }
    }
    if let Some(maximum) = bound("maximum") {
        let limit = maximum.as_f64().unwrap_or(f64::MAX);
        if node.flag("exclusiveMaximum") && value >= limit {
            refuse(format!("should be less than {maximum}"));
        } else if value > limit {
            refuse(format!("should be less than or equal to {maximum}"));
        }
    }
    if let Some(factor) = bound("multipleOf")
        && let Some(step) = factor.as_f64()
        && step != 0.0
        && (value / step).fract() != 0.0
    {
        refuse(format!("should be a multiple of {factor}"));
    }
    let whole = number.as_i64();
    match node.text("format") {
        Some("int32") if whole.is_none_or(|whole| i32::try_from(whole).is_err()) => {
            refuse("must be of type int32: \"integer\"".into());
        }
        Some("int64") if whole.is_none() && number.is_u64() => {
            refuse("must be of type int64: \"integer\"".into());
        }
        _ => {}
    }
}

fn check_list(node: Node<'_>, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let length = items.len() as u64;
    if let Some(limit) = limit(node, "minItems").filter(|limit| length < *limit) {
        let detail = format!("{} in body should have at least {limit} items", path);
        causes.push(Cause::invalid(path, &length.to_string(), &detail));
    }
    if let Some(limit) = limit(node, "maxItems").filter(|limit| length > *limit) {
        causes.push(Cause {
            reason: "FieldValueTooMany",
            message: format!("Too many: {length}: must have at most {limit} items"),
            field: path.to_owned(),
        });
    }
    check_duplicates(node, items, path, causes);
    for (index, item) in items.iter().enumerate() {
        check(node.items(), item, &element(path, index), causes);
    }
}

fn check_duplicates(node: Node<'_>, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let identity = |item: &Value| -> Value {
        match node.list_kind() {
            ListKind::Map(keys) => keys
                .iter()
                .filter_map(|key| Some(((*key).to_owned(), item.get(key)?.clone())))
                .collect(),
            _ => item.clone(),
        }
    };
    let unique = node.flag("uniqueItems");
    if node.list_kind() == ListKind::Atomic && !unique {
        return;
    }
    let mut seen: Vec<Value> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let identity = identity(item);
        if seen.contains(&identity) {
            causes.push(Cause {
                reason: "FieldValueDuplicate",
                message: format!("Duplicate value: {identity}"),
                field: element(path, index),
            });
        } else {
            seen.push(identity);
        }
    }
}

fn check_object(node: Node<'_>, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(fields) = value.as_object() else {
        return;
    };
    let required = node.keyword("required").and_then(Value::as_array);
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            causes.push(Cause::required(child(path, name)));
        }
    }
    let length = fields.len() as u64;
    if let Some(limit) = limit(node, "minProperties").filter(|limit| length < *limit) {
        let detail = format!("{} in body should have at least {limit} properties", path);
        causes.push(Cause::invalid(path, &length.to_string(), &detail));
    }
    if let Some(limit) = limit(node, "maxProperties").filter(|limit| length > *limit) {
        causes.push(Cause {
            reason: "FieldValueTooMany",
            message: format!("Too many: {length}: must have at most {limit} items"),
            field: path.to_owned(),
        });
    }
    for (name, value) in fields {
        if let Some(inner) = node.field(name) {
            check(inner, value, &child(path, name), causes);
        }
    }
}

/// `allOf`, `anyOf`, `oneOf` and `not`, which in a structural schema only constrain.
fn check_combinations(node: Node<'_>, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let branches = |name: &str| node.keyword(name).and_then(Value::as_array);
    let valid = |schema: &Value| {
        let mut found = Vec::new();
        check(Node::new(schema), value, path, &mut found);
        found.is_empty()
    };
    for schema in branches("allOf").into_iter().flatten() {
        check(Node::new(schema), value, path, causes);
    }
    let mut refuse = |detail: &str| {
        let detail = format!("{} in body {detail}", path);
        causes.push(Cause::invalid(path, &value.to_string(), &detail));
    };
    if let Some(any) = branches("anyOf")
        && !any.iter().any(valid)
    {
        refuse("must validate at least one schema (anyOf)");
    }
    if let Some(one) = branches("oneOf") {
        match one.iter().filter(|schema| valid(schema)).count() {
            1 => {}
            0 => refuse("must validate one and only one schema (oneOf). Found none valid"),
            found => refuse(&format!(
                "must validate one and only one schema (oneOf). Found {found} valid alternatives"
            )),
        }
    }
    if let Some(not) = node.keyword("not")
        && valid(not)
    {
        refuse("must not validate the schema (not)");
    }
}

fn limit(node: Node<'_>, name: &str) -> Option<u64> {
    node.keyword(name)?.as_u64()
}
