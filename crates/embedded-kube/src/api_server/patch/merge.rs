//! JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

/// Merges `patch` into `target`: maps field by field, null removes, all else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else {
        return;
    };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_removes_maps_merge_and_lists_are_replaced() {
        let mut object = json!({ "a": { "x": 1, "y": 2 }, "list": [1, 2], "b": "text" });
        let patch =
            json!({ "a": { "x": null, "z": { "deep": null, "kept": 3 } }, "list": [3], "b": {} });
        merge(&mut object, &patch);
        assert_eq!(
            object,
            json!({ "a": { "y": 2, "z": { "kept": 3 } }, "list": [3], "b": {} })
        );
    }
}
