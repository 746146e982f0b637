//! One merge patch of a custom resource, as the requests that it takes where the server has
//! no field for some of it. Pure.
//!
//! Usually that is the patch as it was asked for. What has no field goes into annotations
//! ([`crate::api::stand_in`]): with the same request where the object itself is patched, with
//! a second one where its status is, since a status write takes no metadata. The fields go
//! first: they are what others look at, and what a crash in between leaves is an older
//! marker, under which the work is done again.
//!
//! What does not come back in an answer has no field either; so nothing has to be known of
//! the schemas beforehand.

use serde_json::{Map, Value, json};

use crate::api::stand_in::{
    annotate, annotation_value, lower_patch, native, stand_ins_of, standing, touched,
};
use crate::api::{Field, MissingFields, Section};

/// A request that is to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedPatch {
    /// What of the object is patched.
    pub section: Section,
    /// The merge patch, with its lock.
    pub body: Value,
}

/// One merge patch and what is left to do about it.
#[derive(Debug)]
pub struct PatchPlan {
    kind: &'static str,
    section: Section,
    /// The patch as it was asked for.
    asked: Value,
    locked: bool,
    /// Fields that were turned into annotations.
    lowered: Vec<Field>,
    /// What is to be sent next, before what goes into annotations.
    fields: Option<Value>,
    annotations: Map<String, Value>,
    /// resourceVersion that the next request must meet.
    lock: Option<String>,
    answer: Option<Value>,
    learned: Learned,
}

/// What an answer said about the schema.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// Fields that did not come back.
    pub missing: Vec<Field>,
    /// Fields that were thought missing and are there.
    pub present: Vec<Field>,
}

impl PatchPlan {
    /// Of a patch of an object's spec and metadata, or of its status.
    #[must_use]
    pub fn new(
        kind: &'static str,
        section: Section,
        asked: Value,
        lock: Option<String>,
        missing: &MissingFields,
    ) -> Self {
        let mut fields = asked.clone();
        let mut annotations = lower_patch(kind, section, &mut fields, missing);
        let lowered = annotations
            .keys()
            .filter_map(|name| Field::of_annotation(kind, name))
            .collect();
        if section == Section::Spec {
            annotate(&mut fields, std::mem::take(&mut annotations));
        }
        let nothing = fields.as_object().is_some_and(Map::is_empty) && !annotations.is_empty();
        Self {
            kind,
            section,
            asked,
            locked: lock.is_some(),
            lowered,
            fields: (!nothing).then_some(fields),
            annotations,
            lock,
            answer: None,
            learned: Learned::default(),
        }
    }

    /// Of an object that was created, for what did not come back of it.
    #[must_use]
    pub fn after_create(kind: &'static str, asked: Value, answer: Value) -> Self {
        let mut plan = Self {
            kind,
            section: Section::Spec,
            asked,
            locked: false,
            lowered: Vec::new(),
            fields: None,
            annotations: Map::new(),
            lock: None,
            answer: None,
            learned: Learned::default(),
        };
        plan.answered(answer);
        plan
    }

    /// The request to send now; none when all is done.
    pub fn next(&mut self) -> Option<PlannedPatch> {
        if let Some(fields) = self.fields.take() {
            return Some(PlannedPatch {
                section: self.section,
                body: with_lock(fields, self.lock.take()),
            });
        }
        let mut annotations = std::mem::take(&mut self.annotations);
        if let Some(answer) = &self.answer {
            let known = answer.pointer("/metadata/annotations");
            let said = |name: &String| known.and_then(|known| known.get(name));
            annotations.retain(|name, value| said(name).unwrap_or(&Value::Null) != value);
        }
        if annotations.is_empty() {
            return None;
        }
        let mut body = json!({});
        annotate(&mut body, annotations);
        Some(PlannedPatch {
            section: Section::Spec,
            body: with_lock(body, self.lock.take()),
        })
    }

    /// Takes in the object that the request was answered with.
    pub fn answered(&mut self, answer: Value) {
        if self.answer.is_none() {
            self.compare(&answer);
        }
        let version = answer.pointer("/metadata/resourceVersion");
        self.lock = version
            .and_then(Value::as_str)
            .filter(|_| self.locked)
            .map(str::to_owned);
        self.answer = Some(answer);
    }

    /// Compares what was written with what came back.
    fn compare(&mut self, answer: &Value) {
        let stood = stand_ins_of(self.kind, answer);
        let mut again = Map::new();
        for field in touched(self.kind, self.section, &self.asked) {
            let asked = &self.asked[self.section.as_str()][field.name()];
            let came_back = native(answer, field).is_some();
            if self.lowered.contains(&field) {
                if came_back {
                    // it was there all the time, and would win over its annotation
                    self.learned.present.push(field);
                    again.insert(field.name().to_owned(), asked.clone());
                    self.annotations.insert(field.annotation(), Value::Null);
                }
            } else if !asked.is_null() && !came_back {
                self.learned.missing.push(field);
                let value = merged(standing(answer, field), asked);
                self.annotations
                    .insert(field.annotation(), annotation_value(&value));
            } else if stood.contains(&field) {
                // the field is newer than what stood in for it
                self.annotations.insert(field.annotation(), Value::Null);
            }
        }
        if !again.is_empty() {
            self.fields = Some(json!({ self.section.as_str(): again }));
        }
    }

    /// What the answers said about the schema, since it was asked for.
    pub fn learned(&mut self) -> Learned {
        std::mem::take(&mut self.learned)
    }

    /// The last answer: the object as it is now.
    #[must_use]
    pub fn into_answer(self) -> Option<Value> {
        self.answer
    }
}

/// What a merge patch makes of what stands there.
fn merged(known: Option<Value>, patch: &Value) -> Value {
    let mut value = known.unwrap_or_default();
    json_patch::merge(&mut value, patch);
    value
}

fn with_lock(mut body: Value, lock: Option<String>) -> Value {
    if let Some(lock) = lock {
        json_patch::merge(
            &mut body,
            &json!({ "metadata": { "resourceVersion": lock } }),
        );
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::stand_in::raise;

    /// A server that keeps what its schema has.
    struct Server {
        object: Value,
        lacks: MissingFields,
        kind: &'static str,
        changes: u32,
    }

    impl Server {
        fn new(kind: &'static str, lacks: MissingFields) -> Self {
            let metadata = json!({"name": "x", "resourceVersion": "1"});
            Self {
                object: json!({"metadata": metadata, "spec": {}, "status": {}}),
                lacks,
                kind,
                changes: 0,
            }
        }

        fn patch(&mut self, patch: &PlannedPatch) -> Result<Value, String> {
            let mut body = patch.body.clone();
            let version = &self.object["metadata"]["resourceVersion"];
            let lock = &body["metadata"]["resourceVersion"];
            if !lock.is_null() && lock != version {
                return Err(format!("conflict: {lock} is not {version}"));
            }
            // a write of one part ignores the others
            let ignored: &[&str] = match patch.section {
                Section::Spec => &["status"],
                Section::Status => &["spec", "metadata"],
            };
            for part in ignored {
                body.as_object_mut().unwrap().remove(*part);
            }
            let mut after = self.object.clone();
            json_patch::merge(&mut after, &body);
            for field in self.lacks.iter().filter(|field| field.kind() == self.kind) {
                if let Value::Object(section) = &mut after[field.section().as_str()] {
                    section.remove(field.name());
                }
            }
            if after != self.object {
                self.changes += 1;
                after["metadata"]["resourceVersion"] = json!((self.changes + 1).to_string());
                self.object = after;
            }
            Ok(self.object.clone())
        }

        /// Sends what a patch takes, by someone who takes `missing` to be missing. Answers how
        /// the object looks to those who ask for it.
        fn carry_out(
            &mut self,
            section: Section,
            body: Value,
            lock: bool,
            missing: &mut MissingFields,
        ) -> Value {
            let version = self.object["metadata"]["resourceVersion"].as_str();
            let lock = version.map(str::to_owned).filter(|_| lock);
            let mut plan = PatchPlan::new(self.kind, section, body, lock, missing);
            let mut requests = 0;
            while let Some(next) = plan.next() {
                requests += 1;
                plan.answered(self.patch(&next).unwrap());
                let learned = plan.learned();
                learned.missing.iter().for_each(|field| {
                    missing.insert(*field);
                });
                learned.present.iter().for_each(|field| {
                    missing.remove(*field);
                });
            }
            assert!((1..=3).contains(&requests), "{requests} requests");
            let mut seen = plan.into_answer().unwrap();
            raise(self.kind, &mut seen);
            seen
        }
    }

    fn body(field: Field, value: &Value) -> Value {
        json!({ field.section().as_str(): { field.name(): value } })
    }

    /// Every field, whether it is there or not and whether that is known or not, after every
    /// order of writes by those who know and those who do not.
    #[test]
    fn what_is_written_is_what_is_seen_whatever_the_schema_has() {
        let values = [
            json!(7),
            json!("text"),
            json!([{"a": 1}]),
            json!({"a": {"b": 1}}),
        ];
        for field in Field::all() {
            for (lacking, value) in [true, false]
                .into_iter()
                .flat_map(|l| values.iter().map(move |value| (l, value)))
            {
                for knows in [true, false] {
                    one_field(field, lacking, knows, value);
                }
            }
        }
    }

    fn one_field(field: Field, lacking: bool, knows: bool, value: &Value) {
        let what = format!("{field}, lacking {lacking}, known {knows}, {value}");
        let alone = MissingFields::from_iter([field]);
        let lacks = if lacking {
            alone.clone()
        } else {
            MissingFields::default()
        };
        let mut missing = if lacking == knows {
            alone
        } else {
            MissingFields::default()
        };
        let mut server = Server::new(field.kind(), lacks.clone());
        let section = field.section();
        let seen = |object: &Value| object[section.as_str()][field.name()].clone();
        for lock in [true, false] {
            for value in [json!(1), value.clone(), value.clone()] {
                let asked = body(field, &value);
                let object = server.carry_out(section, asked, lock, &mut missing);
                assert_eq!(seen(&object), value, "{what}");
            }
            // a write of what is there changes nothing
            let before = server.changes;
            server.carry_out(section, body(field, value), lock, &mut missing);
            assert_eq!(server.changes, before, "{what}");
            let asked = body(field, &Value::Null);
            let object = server.carry_out(section, asked, lock, &mut missing);
            assert_eq!(seen(&object), Value::Null, "{what}: removed");
        }
        if lacking {
            assert_eq!(missing, lacks, "{what}: learned");
        }
    }

    #[test]
    fn a_schema_that_comes_later_takes_the_state_over() {
        for field in Field::all() {
            let lacks = MissingFields::from_iter([field]);
            let mut server = Server::new(field.kind(), lacks.clone());
            let mut controller = lacks.clone();
            let section = field.section();
            server.carry_out(section, body(field, &json!(1)), false, &mut controller);
            let annotations = &server.object["metadata"]["annotations"];
            assert_eq!(annotations[field.annotation()], "1", "{field}");

            server.lacks = MissingFields::default();
            let mut told = MissingFields::default();
            let object = server.carry_out(section, body(field, &json!(2)), true, &mut told);
            assert_eq!(object[section.as_str()][field.name()], 2);
            assert_eq!(native(&server.object, field), Some(&json!(2)), "{field}");
            assert_eq!(stand_ins_of(field.kind(), &server.object), [], "{field}");

            // one who has not heard of it learns it from the answer
            let object = server.carry_out(section, body(field, &json!(3)), true, &mut controller);
            assert_eq!(object[section.as_str()][field.name()], 3);
            assert_eq!(native(&server.object, field), Some(&json!(3)), "{field}");
            assert_eq!(stand_ins_of(field.kind(), &server.object), [], "{field}");
            assert!(controller.is_empty(), "{field}");
        }
    }

    fn applied() -> Field {
        let name = "appliedActionableRevision";
        Field::find("EphemeralRunnerSet", Section::Status, name).unwrap()
    }

    fn plan(asked: Value, lock: Option<&str>) -> PatchPlan {
        let missing = MissingFields::from_iter([applied()]);
        let lock = lock.map(str::to_owned);
        PatchPlan::new("EphemeralRunnerSet", Section::Status, asked, lock, &missing)
    }

    #[test]
    fn a_status_goes_in_two_requests_under_one_lock_and_the_fields_go_first() {
        let status = json!({"phase": "Running", "appliedActionableRevision": 4});
        let mut plan = plan(json!({"status": status}), Some("10"));
        let first = plan.next().unwrap();
        assert_eq!(first.section, Section::Status);
        let lock = json!({"resourceVersion": "10"});
        assert_eq!(
            first.body,
            json!({"metadata": lock, "status": {"phase": "Running"}})
        );
        plan.answered(json!({
            "metadata": {"resourceVersion": "11"}, "status": {"phase": "Running"},
        }));
        let second = plan.next().unwrap();
        assert_eq!(second.section, Section::Spec);
        let annotations = json!({"impresario.dev/status.appliedActionableRevision": "4"});
        let metadata = json!({"resourceVersion": "11", "annotations": annotations});
        assert_eq!(second.body, json!({ "metadata": metadata }));
        plan.answered(json!({"metadata": {"resourceVersion": "12"}}));
        assert_eq!(plan.next(), None);
    }

    #[test]
    fn an_annotation_that_says_so_already_is_not_written() {
        let status = json!({"phase": "Running", "appliedActionableRevision": 4});
        let mut plan = plan(json!({"status": status}), None);
        plan.next().unwrap();
        let annotations = json!({"impresario.dev/status.appliedActionableRevision": "4"});
        plan.answered(json!({
            "metadata": {"resourceVersion": "11", "annotations": annotations},
            "status": {"phase": "Running"},
        }));
        assert_eq!(plan.next(), None);
    }

    #[test]
    fn what_a_new_object_lacks_is_added_to_it() {
        let asked = json!({"metadata": {"name": "x"}, "spec": {"actionableRevision": 1}});
        let answer = json!({"metadata": {"name": "x", "resourceVersion": "1"}, "spec": {}});
        let mut plan = PatchPlan::after_create("EphemeralRunnerSet", asked, answer);
        let added = plan.next().unwrap();
        let annotations = json!({"impresario.dev/spec.actionableRevision": "1"});
        assert_eq!(
            added.body,
            json!({"metadata": {"annotations": annotations}})
        );
        assert_eq!(plan.learned().missing.len(), 1);
    }
}
