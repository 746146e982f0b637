//! What schemas do to objects, with the texts of a real server.

use serde_json::{Value, json};

use super::builtin::Definitions;
use super::default::apply_defaults;
use super::prune::{DecodeError, FieldValidation, decode};
use super::validate::validate;
use super::{ListKind, Schema};

/// A schema with one of everything.
pub(crate) fn gadget() -> Schema {
    Schema::of_crd(&gadget_crd(), "v1").unwrap()
}

pub(crate) fn gadget_crd() -> Value {
    let schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": {
            "type": "object",
            "required": ["url"],
            "properties": gadget_spec(),
        }},
    });
    json!({
        "metadata": {"name": "gadgets.test.example"},
        "spec": {
            "group": "test.example",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

fn gadget_spec() -> Value {
    let part = json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "size": {"type": "integer", "default": 7},
            "weight": {"type": "number"},
        },
    });
    json!({
        "url": {"type": "string", "pattern": "^https://", "minLength": 8, "maxLength": 20},
        "replicas": {
            "type": "integer", "format": "int32", "minimum": 0, "maximum": 9, "default": 1,
        },
        "mode": {"type": "string", "enum": ["once", "many"]},
        "port": {"x-kubernetes-int-or-string": true},
        "note": {"type": "string", "nullable": true},
        "at": {"type": "string", "format": "date-time"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "tags": {
            "type": "array", "items": {"type": "string"}, "maxItems": 3,
            "x-kubernetes-list-type": "set",
        },
        "plain": {"type": "array", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": part,
        },
        "template": {
            "type": "object",
            "x-kubernetes-embedded-resource": true,
            "properties": {"data": {"type": "string"}},
        },
    })
}

fn object(spec: Value) -> Value {
    json!({
        "apiVersion": "test.example/v1",
        "kind": "Gadget",
        "metadata": {"name": "g1", "labels": {"tier": "a"}},
        "spec": spec,
    })
}

fn problems(spec: Value) -> Vec<String> {
    let mut object = object(spec);
    apply_defaults(&gadget(), &mut object);
    validate(&gadget(), &object)
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn unknown_fields_are_dropped_and_named_by_path() {
    let mut pruned = object(json!({
        "url": "https://a",
        "wrong": 1,
        "parts": [{"name": "p", "extra": true}],
        "free": {"anything": {"goes": 1}},
        "template": {"metadata": {"name": "t", "odd": 1}, "data": "d", "other": 2}
    }));
    let warnings = decode(&gadget(), &mut pruned, FieldValidation::Warn).unwrap();
    assert_eq!(
        warnings,
        [
            r#"unknown field "spec.parts[0].extra""#,
            r#"unknown field "spec.template.metadata.odd""#,
            r#"unknown field "spec.template.other""#,
            r#"unknown field "spec.wrong""#,
        ]
    );
    assert_eq!(
        pruned["spec"],
        json!({
            "url": "https://a",
            "parts": [{"name": "p"}],
            "free": {"anything": {"goes": 1}},
            "template": {"metadata": {"name": "t"}, "data": "d"}
        })
    );
}

#[test]
fn strict_refuses_what_ignore_drops_silently() {
    let mut unknown = object(json!({"url": "https://a", "foo": 1, "bar": 2}));
    let refused = decode(&gadget(), &mut unknown.clone(), FieldValidation::Strict).unwrap_err();
    assert_eq!(
        refused.to_string(),
        r#"strict decoding error: unknown field "spec.bar", unknown field "spec.foo""#
    );
    let silent = decode(&gadget(), &mut unknown, FieldValidation::Ignore).unwrap();
    assert!(silent.is_empty());
}

#[test]
fn validation_speaks_as_the_real_server() {
    for (spec, expected) in [
        (
            json!({"url": "https://a", "replicas": -1}),
            "spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0",
        ),
        (
            json!({"url": "https://a", "replicas": 10}),
            "spec.replicas: Invalid value: 10: spec.replicas in body should be less than or equal to 9",
        ),
        (
            json!({"url": "https://a", "replicas": "two"}),
            "spec.replicas: Invalid value: \"string\": spec.replicas in body must be of type integer: \"string\"",
        ),
        (
            json!({"url": "https://a", "mode": "never"}),
            "spec.mode: Unsupported value: \"never\": supported values: \"once\", \"many\"",
        ),
        (json!({}), "spec.url: Required value"),
        (
            json!({"url": "ftp://abcd"}),
            "spec.url: Invalid value: \"ftp://abcd\": spec.url in body should match '^https://'",
        ),
        (
            json!({"url": "https:/"}),
            "spec.url: Invalid value: \"https:/\": spec.url in body should be at least 8 chars long",
        ),
        (
            json!({"url": "https://abcdefghijklmnop"}),
            "spec.url: Too long: may not be more than 20 bytes",
        ),
        (
            json!({"url": "https://a", "tags": ["x", "y", "x"]}),
            "spec.tags[2]: Duplicate value: \"x\"",
        ),
        (
            json!({"url": "https://a", "tags": ["x", "y", "z", "w"]}),
            "spec.tags: Too many: 4: must have at most 3 items",
        ),
        (
            json!({"url": "https://a", "parts": [{"name": "p"}, {"name": "p", "size": 1}]}),
            "spec.parts[1]: Duplicate value: {\"name\":\"p\"}",
        ),
        (
            json!({"url": "https://a", "port": true}),
            "spec.port: Invalid value: \"boolean\": spec.port in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"url": "https://a", "tags": [null]}),
            "spec.tags[0]: Invalid value: \"null\": spec.tags[0] in body must be of type string: \"null\"",
        ),
        (
            json!({"url": "https://a", "at": "noon"}),
            "spec.at: Invalid value: \"noon\": spec.at in body must be of type date-time: \"noon\"",
        ),
    ] {
        assert!(
            problems(spec.clone()).contains(&expected.to_owned()),
            "{:?}",
            problems(spec)
        );
    }
}

#[test]
fn a_good_object_has_no_problems() {
    let spec = json!({
        "url": "https://a", "replicas": 3, "mode": "once", "port": "http", "note": null,
        "at": "2026-01-02T03:04:05Z", "free": {"x": null}, "labels": {"a": "b"},
        "tags": ["x", "y"], "plain": ["x", "x"], "parts": [{"name": "p", "weight": 1}]
    });
    assert_eq!(problems(spec), Vec::<String>::new());
}

#[test]
fn defaults_fill_what_is_absent_or_null_at_any_depth() {
    let mut filled =
        object(json!({"url": "https://a", "replicas": null, "parts": [{"name": "p"}]}));
    apply_defaults(&gadget(), &mut filled);
    assert_eq!(filled["spec"]["replicas"], 1);
    assert_eq!(filled["spec"]["parts"][0]["size"], 7);
}

#[test]
fn nulls_stay_only_where_they_are_values() {
    let mut filled = object(json!({
        "url": "https://a", "mode": null, "note": null, "labels": {"a": null}, "free": {"x": null},
    }));
    apply_defaults(&gadget(), &mut filled);
    assert_eq!(
        filled["spec"],
        json!({"url": "https://a", "replicas": 1, "note": null, "labels": {}, "free": {"x": null}})
    );
}

fn pod(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p1"}, "spec": spec})
}

#[test]
fn built_in_kinds_name_unknown_fields_and_drop_nulls() {
    let schema = Schema::builtin("v1", "Pod").unwrap();
    let mut read = pod(json!({
        "nodeName": null,
        "containers": [{"name": "c", "image": "i", "imagePull": "x", "resources": {"limits": {"cpu": 1}}}],
        "volumes": [{"name": "v", "emptyDir": {}}]
    }));
    let warnings = decode(&schema, &mut read, FieldValidation::Warn).unwrap();
    assert_eq!(
        warnings,
        [r#"unknown field "spec.containers[0].imagePull""#]
    );
    assert_eq!(
        read["spec"],
        json!({
            "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": 1}}}],
            "volumes": [{"name": "v", "emptyDir": {}}]
        })
    );
}

#[test]
fn zero_values_that_a_built_in_type_cannot_hold_are_dropped() {
    let schema = Schema::builtin("v1", "Pod").unwrap();
    let mut read = pod(json!({
        "hostNetwork": false, "nodeName": "", "runtimeClassName": "", "nodeSelector": {},
        "enableServiceLinks": false, "terminationGracePeriodSeconds": 0, "securityContext": {},
        "containers": [{"name": "", "command": [], "resources": {"limits": {}}, "env": [{"name": "A", "value": ""}]}],
    }));
    read["metadata"] = json!({"name": "p1", "finalizers": [], "annotations": {"a": ""}});
    decode(&schema, &mut read, FieldValidation::Strict).unwrap();
    assert_eq!(
        read["spec"],
        json!({
            "runtimeClassName": "", "enableServiceLinks": false, "terminationGracePeriodSeconds": 0,
            "securityContext": {},
            "containers": [{"name": "", "resources": {}, "env": [{"name": "A"}]}],
        })
    );
    assert_eq!(
        read["metadata"],
        json!({"name": "p1", "annotations": {"a": ""}})
    );
}

#[test]
fn built_in_kinds_name_the_field_with_the_wrong_type() {
    let schema = Schema::builtin("v1", "Pod").unwrap();
    let error = |spec| {
        decode(&schema, &mut pod(spec), FieldValidation::Ignore)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        error(json!({"containers": "none"})),
        "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container"
    );
    assert_eq!(
        error(json!({"containers": [{"name": "c", "env": [{"name": "A", "value": 1}]}]})),
        "json: cannot unmarshal number into Go struct field EnvVar.spec.containers.env.value of type string"
    );
    let secret = Schema::builtin("v1", "Secret").unwrap();
    let mut bad = json!({"apiVersion": "v1", "kind": "Secret", "data": {"k": "a?bc"}});
    assert_eq!(
        decode(&secret, &mut bad, FieldValidation::Ignore),
        Err(DecodeError::Base64(1))
    );
}

#[test]
fn every_merge_rule_names_a_field_that_exists() {
    let types = Definitions::builtin().types();
    for (name, field) in super::builtin::merge_rules() {
        let found = types
            .get(name)
            .and_then(|schema| schema.pointer(&format!("/properties/{field}")));
        assert!(found.is_some(), "{name} has no {field}");
    }
}

#[test]
fn containers_merge_by_name_and_ports_by_number_and_protocol() {
    let schema = Schema::builtin("v1", "Pod").unwrap();
    let containers = schema
        .root()
        .named("spec")
        .unwrap()
        .named("containers")
        .unwrap();
    assert_eq!(containers.list_kind(), ListKind::Map(vec!["name"]));
    let ports = containers.items().named("ports").unwrap();
    assert_eq!(
        ports.list_kind(),
        ListKind::Map(vec!["containerPort", "protocol"])
    );
    assert_eq!(ports.patch_merge_key(), Some("containerPort"));
}
