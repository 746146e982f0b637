//! What has to change on an object for ARC to manage it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::api::constants::{annotations, finalizers};
use crate::api::{AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet};

/// Annotations under this prefix are read by us alone.
const PREFIX: &str = "impresario.dev/";

/// A change to an object.
#[derive(Debug, PartialEq)]
pub struct Change {
    /// As a merge patch; finalizers are in it as a whole list.
    pub body: Value,
    /// In words.
    pub text: String,
}

/// Of a scale set: what is on record for us alone goes.
pub fn of_scale_set(set: &AutoscalingRunnerSet) -> Option<Change> {
    change(
        &set.metadata,
        without_ours(&set.metadata, &[annotations::CONFIG_URL]),
        None,
    )
}

/// Of a runner set: our finalizer goes as well.
pub fn of_runner_set(set: &EphemeralRunnerSet) -> Option<Change> {
    let changed = with_one(&set.metadata, without_ours(&set.metadata, &[]));
    change(
        &set.metadata,
        changed,
        Some(finalizers::EPHEMERAL_RUNNER_SET),
    )
}

/// Of a listener: ARC's controllers want it to have an annotation.
pub fn of_listener(listener: &AutoscalingListener) -> Option<Change> {
    let changed = with_one(&listener.metadata, without_ours(&listener.metadata, &[]));
    change(&listener.metadata, changed, None)
}

/// Of a runner: what stands in for fields that ARC's definitions lack.
pub fn of_runner(runner: &EphemeralRunner) -> Option<Change> {
    change(&runner.metadata, without_ours(&runner.metadata, &[]), None)
}

/// Takes the annotations off that we alone read, and these. The one that says who made the object
/// stays, since it may be the only one.
fn without_ours(meta: &ObjectMeta, also: &[&str]) -> Map<String, Value> {
    let known = meta.annotations.iter().flatten().map(|(key, _)| key);
    let ours = known.filter(|key| {
        (key.starts_with(PREFIX) && *key != annotations::MADE_BY) || also.contains(&key.as_str())
    });
    ours.map(|key| (key.clone(), Value::Null)).collect()
}

/// Adds the one that says who made the object, if none would be left.
fn with_one(meta: &ObjectMeta, mut changed: Map<String, Value>) -> Map<String, Value> {
    let count = meta.annotations.as_ref().map_or(0, |known| known.len());
    if count == changed.len() {
        changed.insert(annotations::MADE_BY.to_owned(), json!("impresario"));
    }
    changed
}

fn change(meta: &ObjectMeta, notes: Map<String, Value>, finalizer: Option<&str>) -> Option<Change> {
    let (mut body, mut text) = (Map::new(), Vec::new());
    let held = meta.finalizers.as_deref().unwrap_or_default();
    if let Some(ours) = finalizer.filter(|ours| held.iter().any(|name| name == ours)) {
        let rest: Vec<&String> = held.iter().filter(|name| *name != ours).collect();
        body.insert("finalizers".to_owned(), json!(rest));
        text.push(format!("take finalizer {ours} off"));
    }
    for (key, value) in &notes {
        text.push(match value {
            Value::Null => format!("take annotation {key} off"),
            _ => format!("put annotation {key} on"),
        });
    }
    if !notes.is_empty() {
        body.insert("annotations".to_owned(), Value::Object(notes));
    }
    (!body.is_empty()).then(|| Change {
        body: json!({ "metadata": body }),
        text: text.join(", "),
    })
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::*;

    fn object<K: DeserializeOwned>(notes: Value, finalizers: &[&str]) -> K {
        let spec = json!({
            "githubConfigUrl": "", "githubConfigSecret": "", "patchID": 0,
            "template": {}, "runnerScaleSetId": 1, "autoscalingRunnerSetName": "",
            "autoscalingRunnerSetNamespace": "", "ephemeralRunnerSetName": "", "image": "",
            "maxRunners": 1, "minRunners": 0,
        });
        let meta = json!({"name": "n", "annotations": notes, "finalizers": finalizers});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    const OURS: &str = finalizers::EPHEMERAL_RUNNER_SET;
    const ARCS: &str = finalizers::EPHEMERAL_RUNNER;

    #[test]
    fn a_runner_set_loses_our_finalizer_and_what_only_we_read() {
        for (notes, held, wanted) in [
            (json!({"theirs": "1"}), &[][..], None),
            (json!({(annotations::MADE_BY): "impresario"}), &[ARCS], None),
            (
                json!({"theirs": "1"}),
                &[OURS, ARCS, "x/y"],
                Some(json!({"finalizers": [ARCS, "x/y"]})),
            ),
            (
                json!({"theirs": "1", "impresario.dev/jobs-counted-until": "t"}),
                &[OURS],
                Some(json!({
                    "finalizers": [],
                    "annotations": {"impresario.dev/jobs-counted-until": null},
                })),
            ),
            (
                json!({"impresario.dev/jobs-counted-until": "t"}),
                &[],
                Some(json!({"annotations": {
                    "impresario.dev/jobs-counted-until": null, (annotations::MADE_BY): "impresario",
                }})),
            ),
            (
                Value::Null,
                &[],
                Some(json!({"annotations": {(annotations::MADE_BY): "impresario"}})),
            ),
        ] {
            let found = of_runner_set(&object(notes.clone(), held));
            let body = found.map(|change| change.body["metadata"].clone());
            assert_eq!(body, wanted, "{notes} {held:?}");
        }
    }

    #[test]
    fn a_listener_always_has_an_annotation() {
        let added = json!({"metadata": {"annotations": {(annotations::MADE_BY): "impresario"}}});
        let found = of_listener(&object(Value::Null, &["theirs"])).unwrap();
        assert_eq!(found.body, added);
        assert_eq!(
            found.text,
            format!("put annotation {} on", annotations::MADE_BY)
        );
        assert_eq!(of_listener(&object(json!({"x": "1"}), &[])), None);
        assert_eq!(
            of_listener(&object(json!({(annotations::MADE_BY): "impresario"}), &[])),
            None
        );
    }

    #[test]
    fn a_runner_keeps_all_but_what_only_we_read() {
        let notes = json!({
            "theirs": "1", "impresario.dev/status.jobResult": "\"succeeded\"",
            (annotations::ACTIONABLE_REVISION): "2",
        });
        let found = of_runner(&object(notes, &[ARCS])).unwrap();
        let wanted = json!({"metadata": {"annotations": {
            "impresario.dev/status.jobResult": null,
        }}});
        assert_eq!(found.body, wanted);
        assert_eq!(of_runner(&object(json!({"theirs": "1"}), &[ARCS])), None);
    }

    #[test]
    fn a_scale_set_keeps_what_arc_reads() {
        let found = of_scale_set(&object(
            json!({"runner-scale-set-id": "1", (annotations::CONFIG_URL): "u", "impresario.dev/a": "b"}),
            &[finalizers::AUTOSCALING_RUNNER_SET],
        ));
        let wanted = json!({"metadata": {"annotations": {
            (annotations::CONFIG_URL): null, "impresario.dev/a": null,
        }}});
        assert_eq!(found.unwrap().body, wanted);
    }
}
