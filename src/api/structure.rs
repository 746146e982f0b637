//! Whether an object has the structure that its CustomResourceDefinition demands.
//!
//! serde would stop at the first wrong type and pass over unknown fields. This walks the
//! object along the schema and finds them all, each with its path, as the API server does
//! with field validation set to strict.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::crd::crds;
use super::schema::metadata;
use super::schema_facts::QUANTITY_PATTERN;
use super::validation::FieldProblem;

/// Schemas by kind, with that of the metadata put in.
static SCHEMAS: LazyLock<BTreeMap<String, JSONSchemaProps>> = LazyLock::new(|| {
    crds()
        .into_iter()
        .filter_map(|crd| {
            let version = crd.spec.versions.into_iter().next()?;
            let mut schema = version.schema?.open_api_v3_schema?;
            schema
                .properties
                .get_or_insert_default()
                .insert("metadata".to_owned(), metadata());
            Some((crd.spec.names.kind, schema))
        })
        .collect()
});

/// All that is wrong with the structure of an object of ours; `None` when its kind is none of
/// the four. A field that is null counts as absent.
#[must_use]
pub fn structure_problems(kind: &str, object: &Value) -> Option<Vec<FieldProblem>> {
    let schema = SCHEMAS.get(kind)?;
    let mut walk = Walk::default();
    walk.value(schema, object);
    Some(walk.problems)
}

/// The kinds that [`structure_problems`] knows.
pub(super) fn known_kinds() -> Vec<&'static str> {
    SCHEMAS.keys().map(String::as_str).collect()
}

/// A walk through an object, and what it has found.
#[derive(Default)]
struct Walk {
    path: Vec<String>,
    problems: Vec<FieldProblem>,
}

impl Walk {
    fn problem(&mut self, message: impl Into<String>) {
        self.problems.push(FieldProblem {
            path: self.path.concat().trim_start_matches('.').to_owned(),
            message: message.into(),
        });
    }

    fn below(&mut self, step: String, visit: impl FnOnce(&mut Self)) {
        self.path.push(step);
        visit(self);
        self.path.pop();
    }

    fn value(&mut self, schema: &JSONSchemaProps, value: &Value) {
        if schema.x_kubernetes_int_or_string == Some(true) {
            return self.int_or_string(schema, value);
        }
        let expected = schema.type_.as_deref().unwrap_or_default();
        match (expected, value) {
            ("object", Value::Object(_)) => self.object(schema, value),
            ("array", Value::Array(items)) => self.array(schema, items),
            ("string", Value::String(text)) => self.string(schema, text),
            ("integer", Value::Number(_)) if is_whole(value) => self.integer(schema, value),
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) | ("", _) => {}
            (expected, value) => {
                self.problem(format!(
                    "is {}; it must be {}",
                    article(type_name(value)),
                    article(expected)
                ));
            }
        }
    }

    fn object(&mut self, schema: &JSONSchemaProps, value: &Value) {
        let fields = value.as_object().into_iter().flatten();
        for (name, field) in fields.filter(|(_, field)| !field.is_null()) {
            let property = schema
                .properties
                .as_ref()
                .and_then(|properties| properties.get(name));
            match (property, &schema.additional_properties) {
                (Some(property), _) => {
                    self.below(format!(".{name}"), |walk| walk.value(property, field));
                }
                (None, Some(JSONSchemaPropsOrBool::Schema(additional))) => {
                    self.below(format!("[{name}]"), |walk| walk.value(additional, field));
                }
                (None, Some(JSONSchemaPropsOrBool::Bool(true))) => {}
                (None, _) => {
                    if let Some(properties) = &schema.properties {
                        let message = unknown(name, properties);
                        self.below(format!(".{name}"), |walk| walk.problem(message));
                    }
                }
            }
        }
        for name in schema.required.iter().flatten() {
            if value.get(name).is_none_or(Value::is_null) {
                self.below(format!(".{name}"), |walk| {
                    walk.problem("is not set; it is required");
                });
            }
        }
    }

    fn array(&mut self, schema: &JSONSchemaProps, items: &[Value]) {
        if let Some(JSONSchemaPropsOrArray::Schema(item_schema)) = &schema.items {
            for (index, item) in items.iter().enumerate() {
                self.below(format!("[{index}]"), |walk| walk.value(item_schema, item));
            }
        }
        self.uniqueness(schema, items);
    }

    /// Items of a set, or the keys of a list that is a map, are there once each.
    fn uniqueness(&mut self, schema: &JSONSchemaProps, items: &[Value]) {
        let keys = schema.x_kubernetes_list_map_keys.as_deref().unwrap_or(&[]);
        let identity = |item: &Value| match schema.x_kubernetes_list_type.as_deref() {
            Some("map") => {
                let values = keys.iter().map(|key| match item.get(key) {
                    Some(value) => value.to_string(),
                    None => default_of(schema, key),
                });
                Some(values.collect::<Vec<_>>().join(", "))
            }
            Some("set") => Some(item.to_string()),
            _ => None,
        };
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            if let Some(identity) = identity(item)
                && !seen.insert(identity)
            {
                let message = if keys.is_empty() {
                    "is there twice; remove one of the two".to_owned()
                } else {
                    format!(
                        "has the same {} as an item before it; change or remove one of the two",
                        keys.join(" and ")
                    )
                };
                self.below(format!("[{index}]"), |walk| walk.problem(message));
            }
        }
    }

    fn string(&mut self, schema: &JSONSchemaProps, text: &str) {
        if schema.format.as_deref() == Some("date-time") && text.parse::<Timestamp>().is_err() {
            self.problem("is not a time; write it as 2006-01-02T15:04:05Z");
        }
        if let Some(allowed) = &schema.enum_ {
            let allowed: Vec<&str> = allowed.iter().filter_map(|json| json.0.as_str()).collect();
            if !allowed.contains(&text) {
                self.problem(format!("must be one of {}", allowed.join(", ")));
            }
        }
    }

    fn integer(&mut self, schema: &JSONSchemaProps, value: &Value) {
        let number = value.as_i64();
        let fits = match schema.format.as_deref() {
            Some("int32") => number.is_some_and(|number| i32::try_from(number).is_ok()),
            Some("int64") => number.is_some(),
            _ => true,
        };
        if !fits {
            self.problem("is too large a number");
        }
        if let (Some(number), Some(minimum)) = (value.as_f64(), schema.minimum)
            && number < minimum
        {
            self.problem(format!("is {value}; it must be {minimum} or more"));
        }
    }

    fn int_or_string(&mut self, schema: &JSONSchemaProps, value: &Value) {
        match value {
            Value::Number(_) if is_whole(value) => {}
            Value::String(text) => {
                if schema.pattern.as_deref() == Some(QUANTITY_PATTERN) && !is_quantity(text) {
                    self.problem(format!(
                        "\"{text}\" is not an amount; write it as 500m, 2 or 4Gi"
                    ));
                }
            }
            other => {
                let found = article(type_name(other));
                self.problem(format!("is {found}; it must be an integer or a string"));
            }
        }
    }
}

/// Default of a key in the items of a list, as JSON.
fn default_of(schema: &JSONSchemaProps, key: &str) -> String {
    let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items else {
        return String::new();
    };
    let property = item
        .properties
        .as_ref()
        .and_then(|properties| properties.get(key));
    property
        .and_then(|property| property.default.as_ref())
        .map_or_else(String::new, |default| default.0.to_string())
}

fn is_whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64()
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_whole(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

fn article(name: &str) -> String {
    match name {
        "null" => "null".to_owned(),
        "array" => "a list".to_owned(),
        "integer" | "object" => format!("an {name}"),
        _ => format!("a {name}"),
    }
}

fn unknown(name: &str, properties: &BTreeMap<String, JSONSchemaProps>) -> String {
    let nearest = properties
        .keys()
        .map(|known| {
            let same = known.eq_ignore_ascii_case(name);
            (if same { 0 } else { distance(known, name) }, known)
        })
        .min();
    match nearest {
        Some((0..=2, known)) => format!("is not a field; did you mean {known}?"),
        _ => "is not a field; remove it".to_owned(),
    }
}

/// How many letters have to be added, removed or changed to make the one of the other.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, letter) in left.chars().enumerate() {
        let mut corner = line;
        let mut before = line + 1;
        for (cell, other) in row.iter_mut().skip(1).zip(&right) {
            let changed = corner + usize::from(letter != *other);
            corner = *cell;
            before = changed.min(before + 1).min(corner + 1);
            *cell = before;
        }
        if let Some(first) = row.first_mut() {
            *first = line + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Whether the text has the form of [`QUANTITY_PATTERN`].
fn is_quantity(text: &str) -> bool {
    let Some(suffix) = after_decimal(text) else {
        return false;
    };
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let decimal = ["n", "u", "m", "k", "M", "G", "T", "P", "E"];
    suffix.is_empty()
        || binary.contains(&suffix)
        || decimal.contains(&suffix)
        || suffix
            .strip_prefix(['e', 'E'])
            .is_some_and(|exponent| after_decimal(exponent) == Some(""))
}

/// What follows the signed decimal number that the text begins with.
fn after_decimal(text: &str) -> Option<&str> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let whole = digits(unsigned);
    let rest = &unsigned[whole..];
    let Some(fraction) = rest.strip_prefix('.') else {
        return (whole > 0).then_some(rest);
    };
    let part = digits(fraction);
    (whole + part > 0).then(|| &fraction[part..])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scale_set(pointer: &str, value: Value) -> Vec<String> {
        let mut object = json!({
            "apiVersion": "actions.github.com/v1alpha1",
            "kind": "AutoscalingRunnerSet",
            "metadata": {"name": "linux", "namespace": "ci", "labels": {"a": "b"}},
            "spec": {"template": {"metadata": {}, "spec": {"containers": [
                {"name": "runner", "ports": [], "resources": {"limits": {}}}]}}},
            "status": {},
        });
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        let problems = structure_problems("AutoscalingRunnerSet", &object).unwrap();
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_the_server_takes_has_no_problem() {
        for (pointer, value) in [
            ("/spec/minRunners", json!(2)),
            ("/spec/proxy", Value::Null),
            ("/metadata/creationTimestamp", Value::Null),
            ("/metadata/annotations", json!({"any.thing/x": "y"})),
            (
                "/spec/template/spec/containers/0/resources/limits",
                json!({"cpu": 2, "memory": "4Gi"}),
            ),
            (
                "/spec/template/spec/containers/0/ports",
                json!([{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}]),
            ),
            ("/spec/template/spec/nodeSelector", json!({"a.b/c": "d"})),
            ("/status/phase", json!("AnyPhase")),
        ] {
            assert_eq!(scale_set(pointer, value), Vec::<String>::new(), "{pointer}");
        }
    }

    #[test]
    fn each_fault_is_named_with_its_path() {
        for (pointer, value, expected) in [
            (
                "/spec/minRunners",
                json!("two"),
                "spec.minRunners: is a string; it must be an integer",
            ),
            (
                "/spec/minRunners",
                json!(1.5),
                "spec.minRunners: is a number; it must be an integer",
            ),
            (
                "/spec/minRunners",
                json!(-1),
                "spec.minRunners: is -1; it must be 0 or more",
            ),
            (
                "/spec/maxRunners",
                json!(u64::MAX),
                "spec.maxRunners: is too large a number",
            ),
            (
                "/spec/minRunner",
                json!(1),
                "spec.minRunner: is not a field; did you mean minRunners?",
            ),
            (
                "/spec/maxrunners",
                json!(1),
                "spec.maxrunners: is not a field; did you mean maxRunners?",
            ),
            (
                "/spec/colour",
                json!(1),
                "spec.colour: is not a field; remove it",
            ),
            (
                "/spec/runnerScaleSetLabels",
                json!("gpu"),
                "spec.runnerScaleSetLabels: is a string; it must be a list",
            ),
            (
                "/spec/runnerScaleSetLabels",
                json!(["gpu", null]),
                "spec.runnerScaleSetLabels[1]: is null; it must be a string",
            ),
            (
                "/spec/listenerMetrics",
                json!({"gauges": {"gha_x": {}}}),
                "spec.listenerMetrics.gauges[gha_x].labels: is not set; it is required",
            ),
            (
                "/spec/template/spec/containers/0/imagePullPolice",
                json!("Always"),
                "spec.template.spec.containers[0].imagePullPolice: is not a field; did you mean imagePullPolicy?",
            ),
            (
                "/spec/template/spec/containers/0/env",
                json!([{"name": "A", "value": 1}]),
                "spec.template.spec.containers[0].env[0].value: is an integer; it must be a string",
            ),
            (
                "/spec/template/spec/containers/0/resources/limits",
                json!({"memory": "4 GB"}),
                "spec.template.spec.containers[0].resources.limits[memory]: \"4 GB\" is not an amount; write it as 500m, 2 or 4Gi",
            ),
            (
                "/spec/template/spec/containers/0/ports",
                json!([{"containerPort": 53}, {"containerPort": 53, "protocol": "TCP"}]),
                "spec.template.spec.containers[0].ports[1]: has the same containerPort and protocol as an item before it; change or remove one of the two",
            ),
            (
                "/metadata/label",
                json!({}),
                "metadata.label: is not a field; did you mean labels?",
            ),
            (
                "/metadata/labels",
                json!({"a": true}),
                "metadata.labels[a]: is a boolean; it must be a string",
            ),
            (
                "/status/conditions",
                json!([{"type": "Ready", "status": "Yes", "reason": "r",
             "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z"}]),
                "status.conditions[0].status: must be one of True, False, Unknown",
            ),
            (
                "/metadata/creationTimestamp",
                json!("today"),
                "metadata.creationTimestamp: is not a time; write it as 2006-01-02T15:04:05Z",
            ),
        ] {
            assert_eq!(scale_set(pointer, value), [expected]);
        }
    }

    #[test]
    fn amounts_have_the_form_that_the_schema_demands() {
        for (text, good) in [
            ("1", true),
            ("+.5", true),
            ("-1.", true),
            ("500m", true),
            ("4Gi", true),
            ("1e3", true),
            ("1E-2", true),
            ("1e", false),
            ("", false),
            (".", false),
            ("4GB", false),
            ("Gi", false),
            ("1 ", false),
            ("1ee3", false),
            ("1K", false),
            ("1E", true),
        ] {
            assert_eq!(is_quantity(text), good, "{text}");
        }
    }

    #[test]
    fn a_kind_of_others_is_not_judged() {
        assert_eq!(structure_problems("Pod", &json!({})), None);
    }
}
