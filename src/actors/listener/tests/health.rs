//! What a listener's pod says of it.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::world::container;
use crate::actors::listener::health::{
    Cause, Health, has_run, health, nothing_runs, running_since,
};

fn pod(status: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "l", "namespace": "control"},
        "spec": {"nodeName": "node-1", "containers": []},
        "status": status,
    }))
    .unwrap()
}

const SINCE: &str = "2026-03-01T08:00:00Z";

fn running() -> Value {
    json!({"running": {"startedAt": SINCE}})
}

fn ended(code: i32) -> Value {
    json!({"terminated": {"exitCode": code}})
}

fn waiting(reason: &str) -> Value {
    json!({"waiting": {"reason": reason}})
}

#[test]
fn what_keeps_a_listener_from_starting_is_told_when_it_is_no_matter_of_seconds() {
    let starting = |listener: Value, scheduled: Value| {
        let status = json!({"phase": "Pending", "conditions": scheduled,
                            "containerStatuses": [container("listener", listener)]});
        let Health::Starting(why) = health(&pod(status)) else {
            panic!("it starts")
        };
        why
    };
    let told = |reason: &str, message: &str| Some((reason.to_owned(), message.to_owned()));
    let at = |status: &str, reason: Value| {
        json!([{"type": "Ready", "status": "False", "reason": "Other"},
               {"type": "PodScheduled", "status": status, "reason": reason}])
    };
    let no_node = "no node takes the listener's pod";
    for (listener, scheduled, expected) in [
        (waiting("ContainerCreating"), json!([]), None),
        (waiting("PodInitializing"), json!([]), None),
        (
            waiting("ImagePullBackOff"),
            json!([]),
            told("ImagePullBackOff", "the listener waits"),
        ),
        (json!({"waiting": {}}), json!([]), None),
        (json!({}), at("True", json!(null)), None),
        (
            json!({}),
            at("False", json!("NoRoom")),
            told("NoRoom", no_node),
        ),
        (
            json!({}),
            at("False", json!(null)),
            told("Unschedulable", no_node),
        ),
        (
            waiting("ContainerCreating"),
            at("False", json!("NoRoom")),
            told("NoRoom", no_node),
        ),
    ] {
        let what = format!("{listener} {scheduled}");
        let told = starting(listener, scheduled).map(|told| (told.code.into_owned(), told.message));
        assert_eq!(told, expected, "{what}");
    }
}

#[test]
fn an_end_is_told_with_what_the_pod_or_its_init_container_says() {
    let message = |status: Value| match health(&pod(status)) {
        Health::Ended(end) => (end.message, end.cause),
        other => panic!("{other:?}"),
    };
    let init = |code: i32| {
        json!({"phase": "Failed", "initContainerStatuses": [
            container("first", ended(0)), container("second", ended(code))]})
    };
    let (said, cause) = message(init(3));
    assert_eq!(said, "init container second ended with exit code 3");
    assert_eq!(cause, Cause::Crash);
    assert_eq!(message(init(0)).0, "the pod is Failed");
    let mut own = init(3);
    own["message"] = json!("no disk");
    assert_eq!(message(own.clone()).0, "no disk");
    own["message"] = json!("");
    assert!(message(own).0.starts_with("init container second"));
    let crashed = |end: Value| {
        message(json!({"phase": "Failed", "containerStatuses": [container("listener", end)]})).0
    };
    assert_eq!(crashed(ended(1)), "the listener ended with exit code 1");
    let words = json!({"terminated": {"exitCode": 1, "message": "no route"}});
    assert_eq!(
        crashed(words),
        "the listener ended with exit code 1: no route"
    );
}

#[test]
fn only_a_disruption_that_holds_excuses_an_end() {
    let cause = |kind: &str, status: &str| {
        let status = json!({"phase": "Failed", "conditions": [{"type": kind, "status": status}],
                            "containerStatuses": [container("listener", ended(137))]});
        match health(&pod(status)) {
            Health::Ended(end) => end.cause,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(cause("DisruptionTarget", "True"), Cause::Disruption);
    assert_eq!(cause("DisruptionTarget", "False"), Cause::Crash);
    assert_eq!(cause("PodScheduled", "True"), Cause::Crash);
}

/// A pod can go without grace when nothing of it runs or may be about to.
#[test]
fn a_pod_needs_its_grace_while_anything_of_it_may_run() {
    let of = |containers: Value| nothing_runs(&pod(json!({"containerStatuses": containers})));
    let (listener, side) = (
        container("listener", ended(1)),
        container("side", running()),
    );
    assert!(of(json!([listener])));
    assert!(!of(json!([listener, side])));
    assert!(!of(json!([container(
        "listener",
        waiting("ContainerCreating")
    )])));
    assert!(!of(json!([])), "nothing is shown yet");
    for phase in ["Failed", "Succeeded"] {
        assert!(nothing_runs(&pod(json!({"phase": phase}))), "{phase}");
    }
    let mut unseen = pod(json!({}));
    unseen.status = None;
    assert!(!nothing_runs(&unseen), "a node has it");
    unseen.spec.as_mut().unwrap().node_name = None;
    assert!(nothing_runs(&unseen));
}

#[test]
fn whether_a_listener_has_run_and_since_when_is_read_from_its_own_container() {
    let of = |name: &str, state: Value, last: Value| {
        let mut shown = container(name, state);
        shown["lastState"] = last;
        pod(json!({"phase": "Running", "containerStatuses": [shown]}))
    };
    let none = || json!({});
    for (pod, ran, since) in [
        (of("listener", running(), none()), true, true),
        (of("listener", ended(0), none()), true, false),
        (
            of("listener", waiting("CrashLoopBackOff"), ended(1)),
            true,
            false,
        ),
        (of("listener", running(), ended(1)), true, true),
        (
            of("listener", waiting("ContainerCreating"), none()),
            false,
            false,
        ),
        (of("side", running(), ended(1)), false, false),
        (of("listener", json!({"running": {}}), none()), true, false),
    ] {
        let status = serde_json::to_string(&pod.status).unwrap();
        assert_eq!(has_run(&pod), ran, "{status}");
        let expected = since.then(|| SINCE.parse().unwrap());
        assert_eq!(running_since(&pod), expected, "{status}");
    }
}
