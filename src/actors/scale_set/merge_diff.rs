//! The merge patch from one JSON value to another. A merge patch cannot leave a field out to
//! remove it: it has to name it with a null.

use serde_json::{Map, Value};

/// The merge patch that makes `live` to `desired`.
#[must_use]
pub fn merge_diff(live: &Value, desired: &Value) -> Value {
    let (Value::Object(live), Value::Object(desired)) = (live, desired) else {
        return desired.clone();
    };
    let removed = live
        .keys()
        .filter(|key| !desired.contains_key(*key))
        .map(|key| (key.clone(), Value::Null));
    let changed = desired
        .iter()
        .filter_map(|(key, wanted)| match live.get(key) {
            Some(known) if known == wanted => None,
            Some(known) => Some((key.clone(), merge_diff(known, wanted))),
            None => Some((key.clone(), wanted.clone())),
        });
    Value::Object(removed.chain(changed).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_patch_removes_what_is_no_longer_wanted() {
        let live = json!({"a": {"x": 1, "y": 2}, "list": [1, 2], "old": true, "same": "s"});
        let desired = json!({"a": {"x": 3}, "list": [2], "new": {"z": []}, "same": "s"});
        let mut patched = live.clone();
        let patch = merge_diff(&live, &desired);
        assert_eq!(patch["old"], Value::Null);
        assert!(patch.get("same").is_none());
        json_patch::merge(&mut patched, &patch);
        assert_eq!(patched, desired);
    }
}
