//! Rows as `kubectl get` shows them.

use serde_json::{Value, json};

use super::{IncludeObject, Printer, age};
use wall_clock::Timestamp;

fn now() -> Timestamp {
    "2026-03-01T10:00:00Z".parse().unwrap()
}

fn cells(printer: &Printer, object: &Value) -> Vec<Value> {
    let table = printer.table(object, IncludeObject::None, now());
    let columns = table["columnDefinitions"].as_array().unwrap().len();
    let cells = table["rows"][0]["cells"].as_array().unwrap().clone();
    assert_eq!(columns, cells.len(), "a cell for each column");
    cells
}

fn pod_status(status: Value, metadata: Value) -> Vec<Value> {
    let pod = json!({
        "metadata": metadata,
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}, {"name": "j"}]},
        "status": status,
    });
    cells(&Printer::builtin("", "pods"), &pod)[..5].to_vec()
}

#[test]
fn a_pod_shows_what_its_containers_do() {
    let born = json!({"name": "p", "creationTimestamp": "2026-03-01T09:55:30Z"});
    let running = json!({"ready": true, "restartCount": 1, "state": {"running": {}},
        "lastState": {"terminated": {"finishedAt": "2026-03-01T09:59:00Z"}}});
    let waiting = json!({"restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}});
    assert_eq!(
        pod_status(
            json!({"phase": "Running", "containerStatuses": [running, running]}),
            born.clone()
        ),
        [
            json!("p"),
            json!("2/2"),
            json!("Running"),
            json!("2 (60s ago)"),
            json!("4m30s")
        ]
    );
    assert_eq!(
        pod_status(
            json!({"phase": "Pending", "containerStatuses": [waiting, running]}),
            born.clone()
        )[1..3],
        [json!("1/2"), json!("ImagePullBackOff")]
    );
    let through = json!({"name": "i", "state": {"terminated": {"exitCode": 0}}});
    let at_work = json!({"name": "j", "state": {"running": {}}});
    assert_eq!(
        pod_status(
            json!({"phase": "Pending", "initContainerStatuses": [through, at_work]}),
            born.clone()
        )[2],
        "Init:1/2"
    );
    let ended = json!({"state": {"terminated": {"exitCode": 3}}});
    assert_eq!(
        pod_status(
            json!({"phase": "Failed", "containerStatuses": [ended]}),
            born
        )[2],
        "ExitCode:3"
    );
    let going = json!({"name": "p", "deletionTimestamp": "2026-03-01T09:59:59Z"});
    assert_eq!(
        pod_status(json!({"phase": "Running"}), going)[2],
        "Terminating"
    );
}

#[test]
fn a_definition_decides_its_columns() {
    let crd = json!({"spec": {"versions": [{"name": "v1", "additionalPrinterColumns": [
        {"name": "Max", "type": "integer", "jsonPath": ".spec.max"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "priority": 1},
        {"name": "Owner", "type": "string", "jsonPath": ".metadata.labels.example\\.com/owner"},
        {"name": "None", "type": "string", "jsonPath": ".status.nothing"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]}]}});
    let printer = Printer::of_crd(&crd, "v1");
    let object = json!({
        "metadata": {"name": "g", "labels": {"example.com/owner": "ann"}, "creationTimestamp": "2026-02-27T10:00:00Z"},
        "spec": {"max": 5},
        "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
    });
    assert_eq!(
        cells(&printer, &object),
        [
            json!("g"),
            json!(5),
            json!("True"),
            json!("ann"),
            Value::Null,
            json!("2d")
        ]
    );
    let table = printer.table(&object, IncludeObject::Metadata, now());
    assert_eq!(table["columnDefinitions"][2]["priority"], 1);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table["rows"][0]["object"]["metadata"]["name"], "g");
}

#[test]
fn a_definition_without_columns_shows_name_and_age() {
    let crd = json!({"spec": {"versions": [{"name": "v1"}]}});
    let object = json!({"metadata": {"name": "g"}});
    assert_eq!(
        cells(&Printer::of_crd(&crd, "v1"), &object),
        [json!("g"), json!("<unknown>")]
    );
}

#[test]
fn every_printer_makes_a_cell_for_each_column_of_an_empty_object() {
    for (group, plural) in [
        ("", "pods"),
        ("", "nodes"),
        ("", "secrets"),
        ("", "configmaps"),
        ("", "serviceaccounts"),
        ("", "namespaces"),
        ("", "events"),
        ("events.k8s.io", "events"),
        ("", "services"),
        ("", "persistentvolumeclaims"),
        ("", "resourcequotas"),
        ("apps", "deployments"),
        ("batch", "jobs"),
        ("coordination.k8s.io", "leases"),
        ("rbac.authorization.k8s.io", "roles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("other", "things"),
    ] {
        cells(
            &Printer::builtin(group, plural),
            &json!({"metadata": {"name": "n"}}),
        );
    }
}

#[test]
fn a_list_keeps_its_version_and_continuation() {
    let list = json!({
        "metadata": {"resourceVersion": "12", "continue": "more", "selfLink": "x"},
        "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}],
    });
    let table = Printer::builtin("", "").table(&list, IncludeObject::None, now());
    assert_eq!(
        table["metadata"],
        json!({"resourceVersion": "12", "continue": "more"})
    );
    assert_eq!(table["rows"].as_array().unwrap().len(), 2);
}

#[test]
fn whole_objects_in_rows_say_what_they_are() {
    let list = json!({
        "kind": "NamespaceList", "apiVersion": "v1", "metadata": {},
        "items": [{"metadata": {"name": "a"}}],
    });
    let table = Printer::builtin("", "namespaces").table(&list, IncludeObject::Object, now());
    assert_eq!(
        table["rows"][0]["object"],
        json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a"}})
    );
}

#[test]
fn events_show_in_both_spellings() {
    let old = json!({
        "metadata": {"name": "e"}, "type": "Normal", "reason": "Made", "message": "made it\n", "count": 3,
        "firstTimestamp": "2026-03-01T09:50:00Z", "lastTimestamp": "2026-03-01T09:59:58Z",
        "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "kubelet", "host": "n1"},
    });
    let new = json!({
        "metadata": {"name": "e"}, "type": "Normal", "reason": "Made", "note": "made it",
        "deprecatedFirstTimestamp": "2026-03-01T09:50:00Z", "eventTime": "2026-03-01T09:00:00Z",
        "series": {"lastObservedTime": "2026-03-01T09:59:58Z", "count": 3},
        "regarding": {"kind": "Pod", "name": "p"}, "deprecatedSource": {"component": "kubelet", "host": "n1"},
    });
    let printer = Printer::builtin("", "events");
    assert_eq!(cells(&printer, &old), cells(&printer, &new));
    assert_eq!(
        cells(&printer, &old)[..4],
        [json!("2s"), json!("Normal"), json!("Made"), json!("pod/p")]
    );
}

#[test]
fn ages_are_short() {
    for (seconds, expected) in [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (3600, "60m"),
        (3 * 3600 + 60, "3h1m"),
        (9 * 3600, "9h"),
        (50 * 3600, "2d2h"),
        (9 * 86400, "9d"),
        (800 * 86400, "2y70d"),
        (9 * 365 * 86400, "9y"),
    ] {
        assert_eq!(age::short(seconds), expected);
    }
}
