//! The real server decodes pods into types and writes them back, which drops a zero value
//! wherever absent and zero mean the same. Names tell where they do not.

use serde_json::Value;

/// Fields whose `false` says something else than their absence.
const FALSE_MATTERS: &[&str] = &[
    "allowPrivilegeEscalation",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "hostProcess",
    "hostUsers",
    "optional",
    "privileged",
    "readOnlyRootFilesystem",
    "runAsNonRoot",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
];

/// Fields whose zero is dropped.
const ZERO_IS_NOTHING: &[&str] = &[
    "hostPort",
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "partition",
];

/// Fields whose empty text says something else than their absence, or has to be there.
const EMPTY_MATTERS: &[&str] = &[
    "apiGroup",
    "name",
    "mountPath",
    "path",
    "service",
    "storageClassName",
    "topologyKey",
    "type",
    "volumeAttributesClassName",
];

/// Lists that are written even when they are empty.
const LISTS_WRITTEN: &[&str] = &["containers", "sources", "nodeSelectorTerms", "monitors"];

/// Fields that are maps from names to values, not objects with fields.
const MAPS: &[&str] = &[
    "annotations",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "options",
    "overhead",
    "requests",
    "volumeAttributes",
];

/// Drops what the real server would not write back of a pod's spec or template.
pub(super) fn drop_zeros(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, field| !is_dropped(name, field));
            for (name, field) in fields.iter_mut() {
                if !MAPS.contains(&name.as_str()) {
                    drop_zeros(field);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(drop_zeros),
        _ => {}
    }
}

fn is_dropped(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(false) => !FALSE_MATTERS.contains(&name),
        Value::Number(number) => number.as_i64() == Some(0) && ZERO_IS_NOTHING.contains(&name),
        Value::String(text) => text.is_empty() && !EMPTY_MATTERS.contains(&name),
        Value::Array(items) => items.is_empty() && !LISTS_WRITTEN.contains(&name),
        Value::Object(fields) => fields.is_empty() && MAPS.contains(&name),
        Value::Bool(true) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn zeros_that_mean_nothing_go_and_the_others_stay() {
        let mut spec = json!({
            "hostNetwork": false,
            "automountServiceAccountToken": false,
            "nodeSelector": {},
            "securityContext": {},
            "terminationGracePeriodSeconds": 0,
            "initContainers": [],
            "containers": [{
                "name": "runner",
                "env": [{ "name": "EMPTY", "value": "" }],
                "ports": [],
                "volumeMounts": [{ "name": "v", "mountPath": "/v", "readOnly": false }],
            }],
            "volumes": [{ "name": "v", "emptyDir": {} }],
        });
        drop_zeros(&mut spec);
        assert_eq!(
            spec,
            json!({
                "automountServiceAccountToken": false,
                "securityContext": {},
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "runner",
                    "env": [{ "name": "EMPTY" }],
                    "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
                }],
                "volumes": [{ "name": "v", "emptyDir": {} }],
            })
        );
    }
}
