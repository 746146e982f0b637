//! Strategic merge of pods, as kubectl sends it.

use serde_json::{Value, json};

use super::{StrategicError, strategic_merge};
use crate::api_server::schema::{Schema, tests::gadget};

fn pod() -> Value {
    json!({
        "metadata": {"name": "p1", "finalizers": ["a/one", "b/two"], "labels": {"x": "1", "y": "2"}},
        "spec": {
            "nodeSelector": {"os": "linux"},
            "containers": [
                {"name": "first", "image": "i1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
                {"name": "second", "image": "i2", "args": ["-v"]},
            ],
            "tolerations": [{"key": "t1"}, {"key": "t2"}],
            "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
        }
    })
}

fn patched(patch: Value) -> Value {
    let schema = Schema::builtin("v1", "Pod").unwrap();
    strategic_merge(&schema, &pod(), &patch).unwrap()
}

#[test]
fn elements_with_a_merge_key_are_merged_in_place() {
    let result = patched(json!({"spec": {"containers": [
        {"name": "second", "image": "new"},
        {"name": "third", "image": "i3"},
    ]}}));
    let names: Vec<_> = result["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|container| container["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["first", "second", "third"]);
    assert_eq!(
        result["spec"]["containers"][1],
        json!({"name": "second", "image": "new", "args": ["-v"]})
    );
}

#[test]
fn null_removes_and_lists_without_a_key_are_replaced() {
    let result = patched(json!({
        "metadata": {"labels": {"x": null}},
        "spec": {"tolerations": [{"key": "t3"}], "containers": [{"name": "second", "args": ["-q"]}]}
    }));
    assert_eq!(result["metadata"]["labels"], json!({"y": "2"}));
    assert_eq!(result["spec"]["tolerations"], json!([{"key": "t3"}]));
    assert_eq!(result["spec"]["containers"][1]["args"], json!(["-q"]));
}

#[test]
fn directives_delete_replace_and_clear() {
    let result = patched(json!({
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["a/one"], "labels": {"$patch": "replace", "z": "3"}},
        "spec": {
            "containers": [
                {"name": "second", "$patch": "delete"},
                {"name": "first", "env": [{"$patch": "replace"}, {"name": "C", "value": "3"}]},
            ],
            "volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}],
        }
    }));
    assert_eq!(result["metadata"]["finalizers"], json!(["b/two"]));
    assert_eq!(result["metadata"]["labels"], json!({"z": "3"}));
    assert_eq!(
        result["spec"]["volumes"],
        json!([{"name": "v", "hostPath": {"path": "/x"}}])
    );
    assert_eq!(
        result["spec"]["containers"],
        json!([{"name": "first", "image": "i1", "env": [{"name": "C", "value": "3"}]}])
    );
}

#[test]
fn finalizers_merge_as_a_set() {
    let result = patched(json!({"metadata": {"finalizers": ["b/two", "c/three"]}}));
    assert_eq!(
        result["metadata"]["finalizers"],
        json!(["a/one", "b/two", "c/three"])
    );
}

#[test]
fn element_order_is_set_as_asked() {
    let result = patched(json!({"spec": {
        "$setElementOrder/containers": [{"name": "second"}, {"name": "first"}, {"name": "zero"}],
        "containers": [{"name": "zero", "image": "i0"}],
    }}));
    let names: Vec<_> = result["spec"]["containers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|container| container["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["second", "first", "zero"]);
}

#[test]
fn malformed_patches_are_refused() {
    let schema = Schema::builtin("v1", "Pod").unwrap();
    let refuse = |patch| strategic_merge(&schema, &pod(), &patch).unwrap_err();
    assert!(matches!(
        refuse(json!({"spec": {"containers": [{"image": "x"}]}})),
        StrategicError::NoMergeKey { key, .. } if key == "name"
    ));
    assert_eq!(
        refuse(json!({"spec": {"$patch": "explode"}})),
        StrategicError::Directive("explode".into())
    );
    assert_eq!(
        strategic_merge(&gadget(), &json!({}), &json!({})),
        Err(StrategicError::Unsupported)
    );
}
