//! Checking a custom resource against its CRD's schema, with the messages of a real server.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use regex::Regex;
use serde_json::{Number, Value};

use super::{ListKind, Node, Schema, child, element};
use crate::api_server::status::{Fault, FieldError};

/// The patterns of a schema, compiled, by their text. One that does not compile is the CRD's
/// fault and takes everything.
pub(super) type Patterns = BTreeMap<String, Regex>;

/// Compiles every `pattern` in a schema.
pub(super) fn patterns(schema: &Value) -> Patterns {
    fn collect(schema: &Value, patterns: &mut Patterns) {
        match schema {
            Value::Object(fields) => {
                if let Some(Value::String(pattern)) = fields.get("pattern")
                    && let Ok(regex) = Regex::new(pattern)
                {
                    patterns.insert(pattern.clone(), regex);
                }
                fields.values().for_each(|value| collect(value, patterns));
            }
            Value::Array(items) => items.iter().for_each(|item| collect(item, patterns)),
            _ => {}
        }
    }
    let mut patterns = Patterns::new();
    collect(schema, &mut patterns);
    patterns
}

/// Everything that is wrong with a custom resource; nothing for a built-in kind, whose types
/// were checked when it was decoded.
#[must_use]
pub fn validate(schema: &Schema, object: &Value) -> Vec<FieldError> {
    let mut findings = Findings {
        patterns: &schema.patterns,
        faults: Vec::new(),
    };
    if schema.is_custom() {
        findings.check(schema.root(), object, "");
    }
    findings.faults
}

/// Whether a text is an RFC 3339 time.
pub(super) fn is_date_time(text: &str) -> bool {
    text.parse::<Timestamp>().is_ok()
}

struct Findings<'s> {
    patterns: &'s Patterns,
    faults: Vec<FieldError>,
}

impl Findings<'_> {
    fn refuse(&mut self, path: &str, fault: Fault, detail: impl Into<String>) {
        self.faults.push(FieldError::new(path, fault, detail));
    }

    /// A value that breaks a rule; `rule` completes the sentence that starts with the field.
    fn invalid(&mut self, path: &str, value: Value, rule: &str) {
        let detail = format!("{path} in body {rule}");
        self.refuse(path, Fault::Invalid(value), detail);
    }

    fn check(&mut self, node: Node<'_>, value: &Value, path: &str) {
        // built-in types inside a custom resource (metadata) were checked by decoding
        if node.type_name().is_some() || (value.is_null() && node.nullable()) {
            return;
        }
        if !has_type(node, value) {
            let wanted = node.type_().unwrap_or("integer,string");
            let found = type_of(value);
            let detail = format!("{path} in body must be of type {wanted}: {found:?}");
            self.refuse(path, Fault::TypeInvalid(found.into()), detail);
            return;
        }
        self.check_enum(node, value, path);
        match value {
            Value::String(text) => self.check_string(node, text, path),
            Value::Number(number) => self.check_number(node, number, path),
            Value::Array(items) => self.check_list(node, items, path),
            Value::Object(_) => self.check_object(node, value, path),
            _ => {}
        }
        self.check_combinations(node, value, path);
    }

    fn check_enum(&mut self, node: Node<'_>, value: &Value, path: &str) {
        let Some(allowed) = node.keyword("enum").and_then(Value::as_array) else {
            return;
        };
        if !allowed.contains(value) {
            let list: Vec<String> = allowed.iter().map(Value::to_string).collect();
            let detail = format!("supported values: {}", list.join(", "));
            self.refuse(path, Fault::NotSupported(value.clone()), detail);
        }
    }

    /// Checks a string; as on a real server, only the first rule that it breaks is named.
    fn check_string(&mut self, node: Node<'_>, text: &str, path: &str) {
        let length = text.chars().count() as u64;
        if let Some(limit) = limit(node, "maxLength").filter(|limit| length > *limit) {
            let detail = format!("may not be more than {limit} bytes");
            self.refuse(path, Fault::TooLong, detail);
        } else if let Some(limit) = limit(node, "minLength").filter(|limit| length < *limit) {
            let rule = format!("should be at least {limit} chars long");
            self.invalid(path, text.into(), &rule);
        } else if let Some(pattern) = node.text("pattern")
            && let Some(regex) = self.patterns.get(pattern)
            && !regex.is_match(text)
        {
            self.invalid(path, text.into(), &format!("should match '{pattern}'"));
        }
        if node.text("format") == Some("date-time") && !is_date_time(text) {
            let rule = format!("must be of type date-time: {text:?}");
            self.invalid(path, text.into(), &rule);
        }
    }

    /// Checks a number. Its format (`int32`) is not checked: a real server does not either.
    fn check_number(&mut self, node: Node<'_>, number: &Number, path: &str) {
        let shown = || Value::Number(number.clone());
        let Some(value) = number.as_f64() else {
            return;
        };
        let bound = |name: &str| node.keyword(name).filter(|bound| bound.is_number());
        if let Some(factor) = bound("multipleOf")
            && let Some(step) = factor.as_f64()
            && step != 0.0
            && (value / step).fract() != 0.0
        {
            self.invalid(path, shown(), &format!("should be a multiple of {factor}"));
        }
        if let Some(maximum) = bound("maximum") {
            let limit = maximum.as_f64().unwrap_or(f64::MAX);
            if node.flag("exclusiveMaximum") && value >= limit {
                self.invalid(path, shown(), &format!("should be less than {maximum}"));
            } else if value > limit {
                let rule = format!("should be less than or equal to {maximum}");
                self.invalid(path, shown(), &rule);
            }
        }
        if let Some(minimum) = bound("minimum") {
            let limit = minimum.as_f64().unwrap_or(f64::MIN);
            if node.flag("exclusiveMinimum") && value <= limit {
                self.invalid(path, shown(), &format!("should be greater than {minimum}"));
            } else if value < limit {
                let rule = format!("should be greater than or equal to {minimum}");
                self.invalid(path, shown(), &rule);
            }
        }
    }

    fn check_list(&mut self, node: Node<'_>, items: &[Value], path: &str) {
        let length = items.len() as u64;
        if let Some(limit) = limit(node, "minItems").filter(|limit| length < *limit) {
            let rule = format!("should have at least {limit} items");
            self.invalid(path, length.into(), &rule);
        }
        if let Some(limit) = limit(node, "maxItems").filter(|limit| length > *limit) {
            let detail = format!("must have at most {limit} items");
            self.refuse(path, Fault::TooMany(length), detail);
        }
        self.check_duplicates(node, items, path);
        for (index, item) in items.iter().enumerate() {
            self.check(node.items(), item, &element(path, index));
        }
    }

    fn check_duplicates(&mut self, node: Node<'_>, items: &[Value], path: &str) {
        let kind = node.list_kind();
        if kind == ListKind::Atomic && !node.flag("uniqueItems") {
            return;
        }
        let identity = |item: &Value| -> Value {
            match &kind {
                ListKind::Map(keys) => keys
                    .iter()
                    .filter_map(|key| Some(((*key).to_owned(), item.get(key)?.clone())))
                    .collect(),
                _ => item.clone(),
            }
        };
        let mut seen: Vec<Value> = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let identity = identity(item);
            if seen.contains(&identity) {
                self.refuse(&element(path, index), Fault::Duplicate(identity), "");
            } else {
                seen.push(identity);
            }
        }
    }

    fn check_object(&mut self, node: Node<'_>, value: &Value, path: &str) {
        let Some(fields) = value.as_object() else {
            return;
        };
        let required = node.keyword("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                self.refuse(&child(path, name), Fault::Required, "");
            }
        }
        let length = fields.len() as u64;
        if let Some(limit) = limit(node, "minProperties").filter(|limit| length < *limit) {
            let rule = format!("should have at least {limit} properties");
            self.invalid(path, length.into(), &rule);
        }
        if let Some(limit) = limit(node, "maxProperties").filter(|limit| length > *limit) {
            let detail = format!("must have at most {limit} items");
            self.refuse(path, Fault::TooMany(length), detail);
        }
        for (name, value) in fields {
            if let Some(inner) = node.field(name) {
                self.check(inner, value, &child(path, name));
            }
        }
    }

    /// `allOf`, `anyOf`, `oneOf` and `not`, which in a structural schema only constrain.
    fn check_combinations(&mut self, node: Node<'_>, value: &Value, path: &str) {
        let branches = |name: &str| node.keyword(name).and_then(Value::as_array);
        let patterns = self.patterns;
        let faults_of = |schema: &Value| {
            let mut findings = Findings {
                patterns,
                faults: Vec::new(),
            };
            findings.check(Node::new(schema), value, path);
            findings.faults
        };
        for schema in branches("allOf").into_iter().flatten() {
            self.faults.extend(faults_of(schema));
        }
        if let Some(any) = branches("anyOf") {
            let faults: Vec<_> = any.iter().map(faults_of).collect();
            if !faults.iter().any(Vec::is_empty) {
                self.combination(path, "must validate at least one schema (anyOf)");
                self.faults
                    .extend(faults.into_iter().next().into_iter().flatten());
            }
        }
        if let Some(one) = branches("oneOf") {
            let rule = "must validate one and only one schema (oneOf)";
            let faults: Vec<_> = one.iter().map(faults_of).collect();
            match faults.iter().filter(|faults| faults.is_empty()).count() {
                1 => {}
                0 => {
                    self.combination(path, &format!("{rule}. Found none valid"));
                    self.faults
                        .extend(faults.into_iter().next().into_iter().flatten());
                }
                found => {
                    self.combination(path, &format!("{rule}. Found {found} valid alternatives"));
                }
            }
        }
        if let Some(not) = node.keyword("not")
            && faults_of(not).is_empty()
        {
            self.combination(path, "must not validate the schema (not)");
        }
    }

    /// A value that breaks a rule on several schemas. The real server loses the field here
    /// and names it in the text only.
    fn combination(&mut self, path: &str, rule: &str) {
        let detail = format!("{path:?} {rule}");
        self.refuse("<nil>", Fault::Invalid("".into()), detail);
    }
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

fn limit(node: Node<'_>, name: &str) -> Option<u64> {
    node.keyword(name)?.as_u64()
}
