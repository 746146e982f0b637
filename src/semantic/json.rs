//! Comparison of objects in their JSON form.

use std::fmt;

use serde_json::{Map, Value};

/// A difference between a desired and a live object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// Where, as `spec.containers[listener].image`.
    pub path: String,
    /// What is desired; masked where it may be a secret.
    pub desired: String,
    /// What is there; masked likewise.
    pub live: String,
}

impl Drift {
    /// The last field of the path, for a metric's label.
    #[must_use]
    pub fn reason(&self) -> &str {
        let tail = self.path.rsplit('.').next().unwrap_or_default();
        tail.split('[').next().unwrap_or(tail)
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} → {}", self.path, self.live, self.desired)
    }
}

/// Keys by which elements of a list of objects are matched, in the order they are tried.
const MERGE_KEYS: [&str; 5] = ["name", "mountPath", "containerPort", "ip", "topologyKey"];

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether both mean the same.
pub fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let covered = |one: &Map<String, Value>, other: &Map<String, Value>| {
                one.iter().all(|(key, value)| match other.get(key) {
                    Some(other) => equal(value, other),
                    None => is_empty(value),
                })
            };
            covered(a, b) && covered(b, a)
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        _ => a == b || (is_empty(a) && is_empty(b)),
    }
}

/// The first thing that `desired` sets and `live` has not.
pub fn drift(desired: &Value, live: &Value) -> Option<Drift> {
    differ(desired, Some(live), &mut String::new())
}

fn differ(desired: &Value, live: Option<&Value>, path: &mut String) -> Option<Drift> {
    if is_empty(desired) {
        return None;
    }
    match (desired, live) {
        (Value::Object(wanted), Some(Value::Object(live))) => {
            wanted.iter().find_map(|(key, value)| {
                within(path, &format!(".{key}"), |path| {
                    differ(value, live.get(key), path)
                })
            })
        }
        (Value::Array(wanted), Some(Value::Array(live))) => differ_list(wanted, live, path),
        (wanted, Some(live)) if wanted == live => None,
        // the server drops zeros of value types
        (Value::Bool(false), None) => None,
        (Value::Number(number), None) if number.as_f64() == Some(0.0) => None,
        (wanted, live) => Some(Drift {
            path: path.trim_start_matches('.').to_owned(),
            desired: shown(path, Some(wanted)),
            live: shown(path, live),
        }),
    }
}

/// Keyed elements are matched by their key wherever they stand; others must appear in order,
/// with anything in between.
fn differ_list(wanted: &[Value], live: &[Value], path: &mut String) -> Option<Drift> {
    let mut rest = live.iter();
    for (index, element) in wanted.iter().enumerate() {
        let key = MERGE_KEYS
            .iter()
            .find_map(|key| element.get(key).map(|value| (*key, value)));
        if let Some((key, value)) = key {
            let label = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            let twin = live.iter().find(|other| other.get(key) == Some(value));
            let found = within(path, &format!("[{label}]"), |path| {
                differ(element, twin, path)
            });
            if found.is_some() {
                return found;
            }
        } else if !rest.any(|other| differ(element, Some(other), &mut String::new()).is_none()) {
            let at = format!("[{index}]");
            return within(path, &at, |path| differ(element, live.get(index), path)).or_else(
                || {
                    Some(Drift {
                        path: format!("{}{at}", path.trim_start_matches('.')),
                        desired: shown(path, Some(element)),
                        live: "out of order".to_owned(),
                    })
                },
            );
        }
    }
    None
}

fn within<R>(path: &mut String, part: &str, run: impl FnOnce(&mut String) -> R) -> R {
    let length = path.len();
    path.push_str(part);
    let result = run(path);
    path.truncate(length);
    result
}

/// A value for people. Environment values may be secrets, and so may what Secrets hold.
fn shown(path: &str, value: Option<&Value>) -> String {
    let secret = path.contains(".env[") || path.starts_with(".data") || path.contains("stringData");
    match value {
        None => "absent".to_owned(),
        Some(_) if secret => "[redacted]".to_owned(),
        Some(value) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_null_and_empty_are_equal_but_zero_is_not_absent() {
        assert!(equal(&json!({"a": [], "b": {"c": null}}), &json!({})));
        assert!(!equal(&json!({"runAsUser": 0}), &json!({})));
        assert!(!equal(&json!({"a": [1, 2]}), &json!({"a": [2, 1]})));
    }

    #[test]
    fn what_server_and_admission_add_is_no_drift() {
        let desired = json!({"spec": {"containers": [
            {"name": "listener", "image": "a", "env": [{"name": "X", "value": "1"}]}
        ], "tolerations": []}});
        let live = json!({"spec": {"nodeName": "n", "tolerations": [{"key": "t"}], "containers": [
            {"name": "injected", "image": "i"},
            {"name": "listener", "image": "a", "imagePullPolicy": "Always",
             "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]}
        ]}});
        assert_eq!(drift(&desired, &live), None);
    }

    #[test]
    fn drift_names_the_path_and_both_values() {
        let desired = json!({"spec": {"containers": [{"name": "listener", "image": "b"}]}});
        let live = json!({"spec": {"containers": [{"name": "listener", "image": "a"}]}});
        let found = drift(&desired, &live).unwrap();
        assert_eq!(
            found.to_string(),
            r#"spec.containers[listener].image: "a" → "b""#
        );
        assert_eq!(found.reason(), "image");
    }

    #[test]
    fn values_of_the_environment_are_not_shown() {
        let desired = json!({"c": [{"name": "l", "env": [{"name": "T", "value": "new"}]}]});
        let live = json!({"c": [{"name": "l", "env": [{"name": "T", "value": "old"}]}]});
        let text = drift(&desired, &live).unwrap().to_string();
        assert_eq!(text, "c[l].env[T].value: [redacted] → [redacted]");
    }

    #[test]
    fn a_list_without_keys_is_an_ordered_subsequence() {
        assert_eq!(drift(&json!(["a", "c"]), &json!(["a", "b", "c"])), None);
        assert!(drift(&json!(["c", "a"]), &json!(["a", "b", "c"])).is_some());
    }
}
