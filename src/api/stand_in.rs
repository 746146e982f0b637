//! Annotations that stand in for fields that the CustomResourceDefinitions of a cluster lack.
//!
//! `impresario.dev/status.jobResult: '"succeeded"'` holds what `status.jobResult` would, as
//! JSON. An object is *raised* as it comes from the server: what stands in annotations is put
//! into its fields, and the annotations are taken off, so that nobody else has to know of
//! them. A write is *lowered* on its way to the server: what has no field becomes an
//! annotation.
//!
//! Of a field and its annotation the field wins. It can only be there because it was written
//! after the schema had it, and so after the annotation.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::fields::{Field, MissingFields, Section};

const PREFIX: &str = "impresario.dev/";

impl Field {
    /// The annotation that stands in for it.
    #[must_use]
    pub fn annotation(self) -> String {
        format!("{PREFIX}{}.{}", self.section().as_str(), self.name())
    }

    /// The field of that kind that the annotation stands in for.
    #[must_use]
    pub fn of_annotation(kind: &str, annotation: &str) -> Option<Self> {
        let path = annotation.strip_prefix(PREFIX)?;
        let (section, name) = path.split_once('.')?;
        let section = Section::ALL
            .into_iter()
            .find(|one| one.as_str() == section)?;
        Self::find(kind, section, name)
    }
}

/// The fields for which an annotation of the object stands in.
#[must_use]
pub fn stand_ins<'a>(kind: &str, annotations: impl IntoIterator<Item = &'a String>) -> Vec<Field> {
    let found = annotations
        .into_iter()
        .filter_map(|annotation| Field::of_annotation(kind, annotation));
    found.collect()
}

/// The fields for which an annotation of the object, given as JSON, stands in.
#[must_use]
pub fn stand_ins_of(kind: &str, object: &Value) -> Vec<Field> {
    match object.pointer("/metadata/annotations") {
        Some(Value::Object(annotations)) => stand_ins(kind, annotations.keys()),
        _ => Vec::new(),
    }
}

/// What the field itself holds, as the server shows it.
#[must_use]
pub fn native(object: &Value, field: Field) -> Option<&Value> {
    let section = object.get(field.section().as_str())?;
    section.get(field.name()).filter(|value| !value.is_null())
}

/// What stands in for the field; `None` when that cannot be read.
#[must_use]
pub fn standing(object: &Value, field: Field) -> Option<Value> {
    let annotations = object.pointer("/metadata/annotations")?;
    let text = annotations.get(field.annotation())?.as_str()?;
    serde_json::from_str(text).ok()
}

/// Puts what stands in annotations into its fields and takes the annotations off. Answers for
/// which fields there was one.
pub fn raise(kind: &str, object: &mut Value) -> Vec<Field> {
    let fields = stand_ins_of(kind, object);
    for &field in &fields {
        if native(object, field).is_none()
            && let Some(value) = standing(object, field)
        {
            put(object, field, value);
        }
        take_off(object, field);
    }
    fields
}

/// Decodes an object as it came from the server, raised. Answers also for which fields there
/// was an annotation. Annotations that do not fit their fields are as good as none.
///
/// # Errors
///
/// When the object is none of its type.
pub fn decode<K: DeserializeOwned>(
    kind: &str,
    object: &Value,
) -> serde_json::Result<(K, Vec<Field>)> {
    if stand_ins_of(kind, object).is_empty() {
        return Ok((K::deserialize(object)?, Vec::new()));
    }
    let mut whole = object.clone();
    let fields = raise(kind, &mut whole);
    let decoded = K::deserialize(&whole).or_else(|_| K::deserialize(object))?;
    Ok((decoded, fields))
}

fn put(object: &mut Value, field: Field, value: Value) {
    let Value::Object(parts) = object else { return };
    let section = parts
        .entry(field.section().as_str())
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(section) = section {
        section.insert(field.name().to_owned(), value);
    }
}

fn take_off(object: &mut Value, field: Field) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return;
    };
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else {
        return;
    };
    annotations.remove(&field.annotation());
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// The fields that a merge patch sets or removes, and those that an object has.
#[must_use]
pub fn touched(kind: &str, section: Section, body: &Value) -> Vec<Field> {
    let fields = body.get(section.as_str()).and_then(Value::as_object);
    let names = fields.into_iter().flat_map(Map::keys);
    names
        .filter_map(|name| Field::find(kind, section, name))
        .collect()
}

/// What an annotation says in place of the field: JSON, or nothing for nothing.
#[must_use]
pub fn annotation_value(value: &Value) -> Value {
    if value.is_null() {
        Value::Null
    } else {
        Value::String(value.to_string())
    }
}

/// Takes out of a merge patch what has no field, and answers with the annotations that take
/// its place. Patches of maps stay: what they leave out is not known before the answer.
#[must_use]
pub fn lower_patch(
    kind: &str,
    section: Section,
    body: &mut Value,
    missing: &MissingFields,
) -> Map<String, Value> {
    lower(kind, section, body, missing, |value| !value.is_object())
}

/// Has an object that is to be created say in annotations what has no field. The status of a
/// new object is not looked at, by the server neither.
pub fn lower_new(kind: &str, object: &mut Value, missing: &MissingFields) {
    let annotations = lower(kind, Section::Spec, object, missing, |_| true);
    annotate(object, annotations);
}

fn lower(
    kind: &str,
    section: Section,
    body: &mut Value,
    missing: &MissingFields,
    fits: impl Fn(&Value) -> bool,
) -> Map<String, Value> {
    let mut annotations = Map::new();
    for field in touched(kind, section, body) {
        let Some(Value::Object(fields)) = body.get_mut(section.as_str()) else {
            continue;
        };
        if missing.contains(field)
            && fields.get(field.name()).is_some_and(&fits)
            && let Some(value) = fields.remove(field.name())
        {
            annotations.insert(field.annotation(), annotation_value(&value));
        }
    }
    if let Value::Object(parts) = body
        && parts.get(section.as_str()) == Some(&Value::Object(Map::new()))
        && !annotations.is_empty()
    {
        parts.remove(section.as_str());
    }
    annotations
}

/// Adds annotations to an object or a merge patch.
pub fn annotate(body: &mut Value, annotations: Map<String, Value>) {
    let Value::Object(parts) = body else { return };
    if annotations.is_empty() {
        return;
    }
    let map = || Value::Object(Map::new());
    let metadata = parts.entry("metadata").or_insert_with(map);
    let Value::Object(metadata) = metadata else {
        return;
    };
    let known = metadata.entry("annotations").or_insert_with(map);
    if let Value::Object(known) = known {
        known.extend(annotations);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::names::key_problem;
    use crate::api::{EphemeralRunner, EphemeralRunnerSet};

    #[test]
    fn every_field_has_an_annotation_of_its_own_that_kubernetes_takes() {
        for field in Field::all() {
            let annotation = field.annotation();
            assert_eq!(key_problem(&annotation), None, "{annotation}");
            let found = Field::of_annotation(field.kind(), &annotation);
            assert_eq!(found, Some(field));
        }
        for other in [
            "impresario.dev/fault",
            "impresario.dev/jobs-counted-until",
            "impresario.dev/status.nothing",
            "example.org/status.phase",
        ] {
            assert_eq!(Field::of_annotation("EphemeralRunner", other), None);
        }
    }

    fn set(annotations: &Value, status: &Value) -> Value {
        json!({
            "apiVersion": "actions.github.com/v1alpha1",
            "kind": "EphemeralRunnerSet",
            "metadata": {"name": "x", "annotations": annotations},
            "spec": {"patchID": 3},
            "status": status,
        })
    }

    const APPLIED: &str = "impresario.dev/status.appliedActionableRevision";
    const REVISION: &str = "impresario.dev/spec.actionableRevision";

    fn read(object: &Value) -> (EphemeralRunnerSet, usize) {
        let (set, fields) = decode::<EphemeralRunnerSet>("EphemeralRunnerSet", object).unwrap();
        (set, fields.len())
    }

    #[test]
    fn annotations_are_read_as_fields_and_nobody_else_sees_them() {
        let annotations = json!({REVISION: "5", APPLIED: "4", "note": "mine"});
        let (set, found) = read(&set(&annotations, &json!({"currentReplicas": 2})));
        assert_eq!(found, 2);
        assert_eq!(set.spec.actionable_revision, Some(5));
        let status = set.status.unwrap();
        assert_eq!(status.applied_actionable_revision, Some(4));
        assert_eq!(status.current_replicas, 2);
        let left = set.metadata.annotations.unwrap();
        assert_eq!(left.into_keys().collect::<Vec<_>>(), ["note"]);
    }

    #[test]
    fn the_field_wins() {
        let status = json!({"currentReplicas": 2, "appliedActionableRevision": 9});
        let (set, found) = read(&set(&json!({APPLIED: "4"}), &status));
        assert_eq!(found, 1);
        assert_eq!(set.status.unwrap().applied_actionable_revision, Some(9));
        assert_eq!(set.metadata.annotations, None);
    }

    #[test]
    fn an_annotation_that_a_person_has_broken_is_as_good_as_none() {
        for text in ["", "four", "[4]", "{"] {
            let (set, _) = read(&set(
                &json!({APPLIED: text}),
                &json!({"currentReplicas": 2}),
            ));
            assert_eq!(
                set.status.unwrap().applied_actionable_revision,
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn times_and_texts_come_back_as_they_went() {
        let status = json!({
            "jobResult": "succeeded \"and\" more",
            "jobFinishedAt": "2026-03-04T05:06:07.000001Z",
            "phase": "Running",
        });
        let mut body = json!({"status": status});
        let missing = Field::all().collect();
        let annotations = lower_patch("EphemeralRunner", Section::Status, &mut body, &missing);
        assert_eq!(body, json!({}));
        let mut object = json!({
            "metadata": {"name": "x"},
            "spec": {
                "githubConfigUrl": "u", "githubConfigSecret": "s", "runnerScaleSetId": 1,
            },
        });
        annotate(&mut object, annotations);
        let (runner, _) = decode::<EphemeralRunner>("EphemeralRunner", &object).unwrap();
        assert_eq!(json!(runner.status), status);
    }

    #[test]
    fn a_new_object_says_in_annotations_what_has_no_field() {
        let mut object = set(&json!({"note": "mine"}), &json!({}));
        object["spec"]["actionableRevision"] = json!(1);
        let missing = Field::all().filter(|field| field.name() == "actionableRevision");
        lower_new("EphemeralRunnerSet", &mut object, &missing.collect());
        assert_eq!(object["spec"], json!({"patchID": 3}));
        let annotations = json!({REVISION: "1", "note": "mine"});
        assert_eq!(object["metadata"]["annotations"], annotations);
    }
}
