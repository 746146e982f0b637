//! Events have two faces over one store: core/v1 and events.k8s.io/v1.

use serde_json::{Map, Value, json};

/// Names of the same field: core/v1, events.k8s.io/v1.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// A core/v1 event as events.k8s.io/v1.
#[must_use]
pub fn to_new(event: &Value) -> Value {
    let mut renamed = rename(event, |name| {
        RENAMED.iter().find(|row| row.0 == name).map(|row| row.1)
    });
    renamed["apiVersion"] = json!("events.k8s.io/v1");
    renamed
}

/// An events.k8s.io/v1 event as core/v1.
#[must_use]
pub fn to_core(event: &Value) -> Value {
    let mut renamed = rename(event, |name| {
        RENAMED.iter().find(|row| row.1 == name).map(|row| row.0)
    });
    renamed["apiVersion"] = json!("v1");
    renamed
}

fn rename(event: &Value, new_name: impl Fn(&str) -> Option<&'static str>) -> Value {
    let mut renamed = Map::new();
    for (name, value) in event.as_object().into_iter().flatten() {
        let name = new_name(name).map_or_else(|| name.clone(), str::to_owned);
        renamed.insert(name, value.clone());
    }
    Value::Object(renamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_survives_the_way_there_and_back() {
        let event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "note": "runner is online",
            "regarding": { "name": "r-1" },
            "series": { "count": 2 },
        });
        let core = to_core(&event);
        assert_eq!(core["message"], "runner is online");
        assert_eq!(core["involvedObject"]["name"], "r-1");
        assert_eq!(to_new(&core), event);
    }
}
