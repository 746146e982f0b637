//! Server-side apply by one and by several managers.

use serde_json::{Value, json};

use super::{ApplyError, Manager, apply, record_update};
use crate::api_server::schema::{Schema, tests::gadget};

const NOW: &str = "2026-03-01T10:00:00Z";

fn manager(name: &str) -> Manager {
    Manager {
        name: name.into(),
        api_version: "test.example/v1".into(),
        subresource: String::new(),
    }
}

fn config(spec: Value) -> Value {
    json!({
        "apiVersion": "test.example/v1",
        "kind": "Gadget",
        "metadata": {"name": "g1", "namespace": "ns1"},
        "spec": spec,
    })
}

fn applied(live: Option<&Value>, spec: Value, by: &str) -> Result<Value, ApplyError> {
    apply(&gadget(), live, &config(spec), &manager(by), false, NOW)
}

#[test]
fn applying_creates_and_records_what_was_set() {
    let created = applied(
        None,
        json!({"url": "u", "parts": [{"name": "p", "size": 2}], "tags": ["x"]}),
        "ann",
    )
    .unwrap();
    assert_eq!(
        created["metadata"]["managedFields"],
        json!([{
            "manager": "ann",
            "operation": "Apply",
            "apiVersion": "test.example/v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {
                "f:parts": {"k:{\"name\":\"p\"}": {".": {}, "f:name": {}, "f:size": {}}},
                "f:tags": {"v:\"x\"": {}},
                "f:url": {},
            }},
        }])
    );
}

#[test]
fn applying_twice_changes_nothing() {
    let spec = json!({"url": "u", "parts": [{"name": "p"}], "labels": {"a": "b"}});
    let once = applied(None, spec.clone(), "ann").unwrap();
    let twice = apply(
        &gadget(),
        Some(&once),
        &config(spec),
        &manager("ann"),
        false,
        "2027-01-01T00:00:00Z",
    )
    .unwrap();
    assert_eq!(once, twice);
}

#[test]
fn what_the_only_owner_leaves_out_goes() {
    let live = applied(
        None,
        json!({
            "url": "u", "note": "n", "tags": ["x", "y"], "labels": {"a": "1", "b": "2"},
            "parts": [{"name": "p", "size": 2}, {"name": "q"}],
        }),
        "ann",
    )
    .unwrap();
    let after = applied(
        Some(&live),
        json!({
            "url": "u", "tags": ["y"], "labels": {"b": "2"}, "parts": [{"name": "p"}],
        }),
        "ann",
    )
    .unwrap();
    assert_eq!(
        after["spec"],
        json!({"url": "u", "tags": ["y"], "labels": {"b": "2"}, "parts": [{"name": "p"}]})
    );
}

#[test]
fn labels_can_go_and_the_name_stays() {
    let mut labelled = config(json!({"url": "u"}));
    labelled["metadata"]["labels"] = json!({"a": "1"});
    let live = apply(&gadget(), None, &labelled, &manager("ann"), false, NOW).unwrap();
    let after = applied(Some(&live), json!({"url": "u"}), "ann").unwrap();
    assert_eq!(after["metadata"]["name"], "g1");
    assert_eq!(after["metadata"]["labels"], Value::Null);
}

#[test]
fn what_another_owns_stays() {
    let live = applied(
        None,
        json!({"url": "u", "labels": {"a": "1"}, "parts": [{"name": "p", "size": 2}]}),
        "ann",
    )
    .unwrap();
    let live = applied(
        Some(&live),
        json!({"labels": {"a": "1", "b": "2"}, "parts": [{"name": "p", "weight": 3}]}),
        "bob",
    )
    .unwrap();
    let after = applied(Some(&live), json!({"url": "u"}), "ann").unwrap();
    assert_eq!(
        after["spec"],
        json!({"url": "u", "labels": {"a": "1", "b": "2"}, "parts": [{"name": "p", "weight": 3}]})
    );
}

#[test]
fn another_value_for_what_another_owns_is_a_conflict() {
    let live = applied(None, json!({"url": "u", "replicas": 1}), "ann").unwrap();
    let error = applied(Some(&live), json!({"replicas": 2}), "bob").unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"ann\": .spec.replicas"
    );
    assert_eq!(error.code(), 409);
    let error = applied(Some(&live), json!({"replicas": 2, "url": "v"}), "bob").unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"ann\":\n- .spec.replicas\n- .spec.url"
    );
}

#[test]
fn force_takes_the_field_over() {
    let live = applied(None, json!({"url": "u", "replicas": 1}), "ann").unwrap();
    let taken = apply(
        &gadget(),
        Some(&live),
        &config(json!({"replicas": 2})),
        &manager("bob"),
        true,
        NOW,
    )
    .unwrap();
    assert_eq!(taken["spec"], json!({"url": "u", "replicas": 2}));
    let fields = |at: usize| &taken["metadata"]["managedFields"][at]["fieldsV1"];
    assert_eq!(fields(0), &json!({"f:spec": {"f:url": {}}}));
    assert_eq!(fields(1), &json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn the_same_value_is_shared_without_conflict() {
    let live = applied(None, json!({"url": "u", "replicas": 1}), "ann").unwrap();
    let shared = applied(Some(&live), json!({"replicas": 1}), "bob").unwrap();
    let after = applied(Some(&shared), json!({"url": "u"}), "ann").unwrap();
    assert_eq!(after["spec"]["replicas"], 1);
}

#[test]
fn other_writes_are_recorded_as_updates_and_conflict_by_version() {
    let mut created = config(json!({"url": "u", "replicas": 1}));
    record_update(&gadget(), None, &mut created, &manager("editor"), NOW);
    assert_eq!(
        created["metadata"]["managedFields"][0]["fieldsV1"],
        json!({"f:spec": {".": {}, "f:replicas": {}, "f:url": {}}})
    );
    let error = applied(Some(&created), json!({"replicas": 2}), "ann").unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"editor\" using test.example/v1: .spec.replicas"
    );
}

#[test]
fn an_update_takes_what_it_changes_from_an_applier() {
    let live = applied(None, json!({"url": "u", "replicas": 1, "note": "n"}), "ann").unwrap();
    let mut edited = live.clone();
    edited["spec"]["replicas"] = json!(5);
    edited["spec"].as_object_mut().unwrap().remove("note");
    record_update(&gadget(), Some(&live), &mut edited, &manager("editor"), NOW);
    let entries = &edited["metadata"]["managedFields"];
    assert_eq!(entries[0]["fieldsV1"], json!({"f:spec": {"f:url": {}}}));
    assert_eq!(entries[1]["operation"], "Update");
    assert_eq!(
        entries[1]["fieldsV1"],
        json!({"f:spec": {"f:replicas": {}}})
    );
}

#[test]
fn a_status_writer_owns_status_only() {
    let live = config(json!({"url": "u"}));
    let mut written = live.clone();
    written["status"] = json!({"ready": true});
    let writer = Manager {
        subresource: "status".into(),
        ..manager("kubelet")
    };
    record_update(&gadget(), Some(&live), &mut written, &writer, NOW);
    let entry = &written["metadata"]["managedFields"][0];
    assert_eq!(entry["subresource"], "status");
    assert_eq!(
        entry["fieldsV1"],
        json!({"f:status": {".": {}, "f:ready": {}}})
    );
}

#[test]
fn a_configuration_that_does_not_fit_is_refused_with_its_place() {
    let error = applied(None, json!({"nope": 1}), "ann").unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to create typed patch object (ns1/g1; test.example/v1, Kind=Gadget): .spec.nope: field not declared in schema"
    );
    let error = applied(None, json!({"parts": [{"size": 1}]}), "ann").unwrap_err();
    assert!(
        error.to_string().contains("omits key field \"name\""),
        "{error}"
    );
    let twice = json!({"parts": [{"name": "p"}, {"name": "p"}]});
    let error = applied(None, twice, "ann").unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with(".spec.parts: duplicate entries for key [name=\"p\"]"),
        "{error}"
    );
    let mut carried = config(json!({}));
    carried["metadata"]["managedFields"] = json!([]);
    let error = apply(&gadget(), None, &carried, &manager("ann"), false, NOW).unwrap_err();
    assert_eq!(error, ApplyError::ManagedFields);
}

#[test]
fn pods_merge_containers_by_name_and_ports_by_number_and_protocol() {
    let schema = Schema::builtin("v1", "Pod").unwrap();
    let pod = |containers: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}
        })
    };
    let by = |name: &str| Manager {
        api_version: "v1".into(),
        ..manager(name)
    };
    let first = pod(json!([{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]));
    let live = apply(&schema, None, &first, &by("ann"), false, NOW).unwrap();
    let second = pod(
        json!([{"name": "c", "ports": [{"containerPort": 80, "protocol": "UDP"}]}, {"name": "d", "image": "j"}]),
    );
    let both = apply(&schema, Some(&live), &second, &by("bob"), false, NOW).unwrap();
    assert_eq!(
        both["spec"]["containers"],
        json!([
            {"name": "c", "image": "i", "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]},
            {"name": "d", "image": "j"},
        ])
    );
}
