//! What holds for every patch, however odd.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::apply::{Manager, apply, record_update};
use super::field_set::FieldSet;
use super::strategic::strategic_merge;
use crate::api_server::schema::tests::gadget;
use crate::api_server::schema::{FieldValidation, Schema, default, prune, validate};

const NOW: &str = "2026-03-01T10:00:00Z";

/// Field names that mean something somewhere.
const NAMES: &[&str] = &[
    "metadata",
    "spec",
    "status",
    "name",
    "labels",
    "finalizers",
    "ownerReferences",
    "managedFields",
    "containers",
    "env",
    "ports",
    "containerPort",
    "tags",
    "parts",
    "size",
    "url",
    "free",
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..90).prop_map(Value::from),
        prop_oneof![
            Just("a"),
            Just("b"),
            Just("delete"),
            Just("replace"),
            Just("")
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((prop::sample::select(NAMES), inner), 0..4).prop_map(|fields| {
                let fields = fields.into_iter();
                Value::Object(
                    fields
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect(),
                )
            }),
        ]
    })
}

/// A configuration of a gadget that fits its schema.
fn gadget_config() -> impl Strategy<Value = Value> {
    let scalar = || prop::option::of(prop_oneof![Just("a"), Just("b")]);
    let names = || prop::collection::btree_set(prop_oneof![Just("p"), Just("q"), Just("r")], 0..3);
    (scalar(), names(), names(), names(), prop::option::of(0..3)).prop_map(
        |(note, tags, parts, labels, size)| {
            let mut spec = Map::new();
            if let Some(note) = note {
                spec.insert("note".into(), json!(note));
            }
            spec.insert("tags".into(), json!(tags));
            let part = |name: &&str| match size {
                Some(size) => json!({"name": name, "size": size}),
                None => json!({"name": name}),
            };
            spec.insert("parts".into(), parts.iter().map(part).collect());
            let labels: Map<String, Value> = labels
                .iter()
                .map(|name| ((*name).to_owned(), json!("1")))
                .collect();
            spec.insert("labels".into(), Value::Object(labels));
            json!({
                "apiVersion": "test.example/v1", "kind": "Gadget",
                "metadata": {"name": "g1"}, "spec": spec,
            })
        },
    )
}

fn manager(name: &str) -> Manager {
    Manager {
        name: name.into(),
        api_version: "test.example/v1".into(),
        subresource: String::new(),
    }
}

/// Whether what an applied list or map holds is held by the result. Nobody owns an empty
/// list or map, so another may have taken that away.
fn holds(whole: &Value, part: &Value) -> bool {
    let is_empty = |value: &Value| *value == json!([]) || *value == json!({});
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(name, part)| match whole.get(name) {
                Some(whole) => holds(whole, part),
                None => is_empty(part),
            })
        }
        (Value::Array(whole), Value::Array(part)) => part
            .iter()
            .all(|part| whole.iter().any(|whole| holds(whole, part))),
        (whole, part) => whole == part,
    }
}

proptest! {
    #[test]
    fn any_json_is_answered(current in any_json(), patch in any_json()) {
        for schema in [Schema::builtin("v1", "Pod").unwrap(), gadget()] {
            let _ = strategic_merge(&schema, &current, &patch);
            let _ = apply(&schema, Some(&current), &patch, &manager("ann"), true, NOW);
            let mut new = patch.clone();
            record_update(&schema, Some(&current), &mut new, &manager("ann"), NOW);
            let mut read = patch.clone();
            let _ = prune::decode(&schema, &mut read, FieldValidation::Warn);
            default::apply_defaults(&schema, &mut read);
            let _ = validate::validate(&schema, &read);
        }
    }

    #[test]
    fn applying_again_changes_nothing(first in gadget_config(), second in gadget_config()) {
        let schema = gadget();
        let live = apply(&schema, None, &first, &manager("ann"), false, NOW).unwrap();
        let once = apply(&schema, Some(&live), &second, &manager("ann"), false, NOW).unwrap();
        let later = "2027-01-01T00:00:00Z";
        let twice = apply(&schema, Some(&once), &second, &manager("ann"), false, later).unwrap();
        prop_assert_eq!(&once, &twice);
        prop_assert!(holds(&once, &second));
    }

    #[test]
    fn what_one_applies_another_does_not_take_away(
        ann in gadget_config(),
        bob in gadget_config(),
        less in gadget_config(),
    ) {
        let schema = gadget();
        let live = apply(&schema, None, &ann, &manager("ann"), false, NOW).unwrap();
        let both = apply(&schema, Some(&live), &bob, &manager("bob"), true, NOW).unwrap();
        if let Ok(after) = apply(&schema, Some(&both), &less, &manager("ann"), false, NOW) {
            prop_assert!(holds(&after, &bob), "{} lost some of {}", after, bob);
        }
    }

    #[test]
    fn records_survive_their_json_form(config in gadget_config()) {
        let live = apply(&gadget(), None, &config, &manager("ann"), false, NOW).unwrap();
        for entry in live["metadata"]["managedFields"].as_array().into_iter().flatten() {
            let fields = &entry["fieldsV1"];
            prop_assert_eq!(&FieldSet::from_json(fields).to_json(), fields);
        }
    }
}
