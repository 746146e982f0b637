//! What a pod says of its runner.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::objects::*;
use crate::actors::runner::{End, PodState, judge};
use crate::clock::after;
use crate::messages::Reason;

fn waiting(reason: &str) -> Value {
    json!({ "waiting": { "reason": reason, "message": "because" } })
}

fn state(pod: &Pod, age: i64) -> PodState {
    judge(pod, after(start(), age))
}

fn failure(state: &PodState) -> Option<&str> {
    match &state.end {
        Some(End::Failed(reason)) => Some(&reason.code),
        _ => None,
    }
}

#[test]
fn the_runners_container_decides_whatever_its_sidecars_do() {
    let pod = pod_in(1, "Running", ended(0), running());
    assert_eq!(state(&pod, 0).end, Some(End::Succeeded));
    assert!(!state(&pod, 0).is_dead, "the sidecar still runs");
    let pod = pod_in(1, "Running", running(), ended(1));
    assert_eq!(state(&pod, 0).end, None);
    let pod = pod_in(1, "Failed", ended(0), ended(1));
    assert_eq!(state(&pod, 0).end, Some(End::Succeeded));
    assert!(state(&pod, 0).is_dead);
}

#[test]
fn the_end_of_a_pod_as_a_whole_counts_where_its_container_says_nothing() {
    for reason in ["Evicted", "OutOfcpu", "NodeLost"] {
        let gone = pod(
            1,
            json!({ "phase": "Failed", "reason": reason, "message": "m" }),
        );
        assert_eq!(failure(&state(&gone, 0)), Some(reason));
        let mut lost = json!(*pod_in(1, "Failed", running(), running()));
        lost["status"]["reason"] = json!(reason);
        let lost: Pod = serde_json::from_value(lost).unwrap();
        assert_eq!(
            failure(&state(&lost, 0)),
            Some(reason),
            "still shown as running"
        );
        assert!(state(&lost, 0).can_run, "its node may only be out of reach");
        assert!(!state(&lost, 0).is_dead);
        assert!(!state(&gone, 0).can_run && state(&gone, 0).is_dead);
    }
}

#[test]
fn a_failing_init_container_counts_and_a_sidecar_does_not() {
    let init = |restart: Value| -> Pod {
        let mut value = json!(*pod_in(1, "Pending", waiting("PodInitializing"), running()));
        value["spec"]["initContainers"] =
            json!([{ "name": "fetch", "image": "i", "restartPolicy": restart }]);
        value["status"]["initContainerStatuses"] = json!([{ "name": "fetch", "image": "",
            "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": 3 } } }]);
        serde_json::from_value(value).unwrap()
    };
    assert_eq!(
        failure(&state(&init(Value::Null), 0)),
        Some("InitContainerFailed")
    );
    assert_eq!(state(&init(json!("Always")), 0).end, None);
}

#[test]
fn a_restarted_container_has_ended_for_us() {
    let mut value = json!(*pod_in(
        1,
        "Running",
        waiting("CrashLoopBackOff"),
        running()
    ));
    value["status"]["containerStatuses"][0]["lastState"] =
        json!({ "terminated": { "exitCode": 7 } });
    let pod: Pod = serde_json::from_value(value).unwrap();
    assert!(matches!(state(&pod, 0).end, Some(End::Outdated(_))));
}

#[test]
fn the_last_words_of_a_runner_are_kept_short_and_without_credentials() {
    // (exit code, terminated as the kubelet shows it, what becomes of it)
    let table = [
        (
            7,
            json!({ "reason": "Error", "message": "version 2.300\nis deprecated" }),
            "RunnerVersionRejected: the Actions service rejected the runner's version \
             (exit code 7: version 2.300 is deprecated)",
        ),
        (
            7,
            json!({ "reason": "Error" }),
            "RunnerVersionRejected: the Actions service rejected the runner's version \
             (exit code 7: Error)",
        ),
        (
            1,
            json!({ "reason": "Error", "message": "401 for ghs_a1b2" }),
            "Error: exit code 1: 401 for [redacted]",
        ),
        (
            137,
            json!({ "reason": "OOMKilled" }),
            "OOMKilled: the runner ended with exit code 137",
        ),
    ];
    for (code, mut terminated, expected) in table {
        terminated["exitCode"] = code.into();
        let pod = pod_in(1, "Failed", json!({ "terminated": terminated }), running());
        let reason = match state(&pod, 0).end {
            Some(
                End::Outdated(Reason {
                    code: word,
                    message,
                })
                | End::Failed(Reason {
                    code: word,
                    message,
                }),
            ) => {
                format!("{word}: {message}")
            }
            other => format!("{other:?}"),
        };
        assert_eq!(reason, expected);
    }
}

#[test]
fn images_that_can_never_be_pulled_fail_at_once_and_others_after_ten_minutes() {
    // (reason, end at once, end after ten minutes)
    let table = [
        ("InvalidImageName", Some("InvalidImageName")),
        ("ErrImageNeverPull", Some("ErrImageNeverPull")),
        ("ImagePullBackOff", None),
        ("ErrImagePull", None),
    ];
    for (reason, at_once) in table {
        let pod = pod_in(1, "Pending", waiting(reason), running());
        assert_eq!(failure(&state(&pod, 1)), at_once, "{reason}");
        let late = at_once.unwrap_or("ImagePullBackOff");
        assert_eq!(failure(&state(&pod, 600)), Some(late), "{reason}");
    }
    let pod = pod_in(1, "Pending", waiting("ErrImagePull"), running());
    let early = state(&pod, 599);
    assert_eq!(early.end, None);
    assert_eq!(
        early.trouble.unwrap().code,
        "ImagePullBackOff",
        "one trouble"
    );
    assert_eq!(early.gives_up, Some(after(start(), 600)));
}

#[test]
fn an_image_that_cannot_be_had_is_named_and_stays_so_for_the_next_pod() {
    for (word, message, shown) in [
        ("ErrImageNeverPull", "because", r#"image "img:1": because"#),
        ("ErrImagePull", "no img:1 here", "no img:1 here"),
        ("InvalidImageName", "", r#"image "img:1" cannot be had"#),
    ] {
        let mut value = json!(*pod_in(1, "Pending", waiting(word), running()));
        let runner = &mut value["status"]["containerStatuses"][0];
        runner["image"] = json!("img:1");
        runner["state"]["waiting"]["message"] = json!(message);
        let late = state(&serde_json::from_value(value).unwrap(), 600);
        let Some(End::Failed(Reason { message: said, .. })) = &late.end else {
            panic!("{late:?}");
        };
        assert_eq!(said, shown);
        assert!(late.permanent, "{word}");
    }
    let early = pod_in(1, "Pending", waiting("ErrImagePull"), running());
    assert!(!state(&early, 599).permanent, "it may come yet");
    assert!(!state(&pod_in(1, "Failed", ended(1), ended(0)), 0).permanent);
    let slow = pod_in(1, "Pending", waiting("ContainerCreating"), running());
    assert!(!state(&slow, 600).permanent);
}

#[test]
fn a_scheduled_pod_that_does_not_start_its_runner_fails_after_ten_minutes() {
    let creating = pod_in(1, "Pending", waiting("ContainerCreating"), running());
    assert_eq!(state(&creating, 599).end, None);
    assert_eq!(state(&creating, 599).trouble, None, "that is normal");
    assert_eq!(failure(&state(&creating, 600)), Some("ContainerCreating"));
    let silent = pod(
        1,
        json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "True", "lastTransitionTime": start() }] }),
    );
    assert_eq!(failure(&state(&silent, 600)), Some("StartTimeout"));
}

#[test]
fn an_unscheduled_pod_is_left_alone_and_needs_no_grace() {
    let mut value = json!(*pod(
        1,
        json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] }),
    ));
    value["spec"]["nodeName"] = Value::Null;
    let pod: Pod = serde_json::from_value(value).unwrap();
    let late = state(&pod, 100_000);
    assert_eq!((late.end, late.gives_up), (None, None));
    assert!(late.is_dead && late.can_run);
}

#[test]
fn a_pod_that_no_node_takes_for_a_minute_is_in_trouble_and_does_not_give_up() {
    let mut value = json!(*pod(
        1,
        json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
              "message": "0/3 nodes are available", "lastTransitionTime": after(start(), 5) }] }),
    ));
    value["spec"]["nodeName"] = Value::Null;
    let pod: Pod = serde_json::from_value(value).unwrap();
    let early = state(&pod, 64);
    assert_eq!(early.trouble, None);
    assert_eq!(early.complains, Some(after(start(), 65)));
    let late = state(&pod, 65);
    assert_eq!(
        late.trouble,
        Some(Reason::new("Unschedulable", "0/3 nodes are available"))
    );
    assert_eq!(state(&pod, 100_000).end, None);
}

#[test]
fn a_pod_is_ready_only_while_its_runner_runs() {
    let up = state(&pod_in(1, "Running", running(), running()), 0);
    assert!(up.ready && up.runs && up.can_run);
    let down = state(&pod_in(1, "Running", ended(1), running()), 0);
    assert!(!down.ready && !down.runs && !down.can_run);
}

/// A pod that can go without grace is one of which nothing runs or may be about to.
#[test]
fn a_pod_needs_no_grace_only_when_nothing_of_it_runs_or_may_start() {
    let container = |name: &str, state: Value| {
        json!({ "name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": state })
    };
    let (runner, side) = ("runner", "side");
    let dead = |node: Option<&str>, containers: &[Value], init: &[Value]| {
        let status = json!({ "phase": "Running", "containerStatuses": containers,
                             "initContainerStatuses": init });
        let mut value = json!(*pod(1, status));
        value["spec"]["nodeName"] = json!(node);
        let pod: Pod = serde_json::from_value(value).unwrap();
        state(&pod, 0).is_dead
    };
    let on = Some("node-a");
    let both = [container(runner, ended(0)), container(side, ended(1))];
    assert!(dead(on, &both, &[]), "both have ended");
    assert!(
        dead(on, &both, &[container("init", ended(0))]),
        "and so has what came before"
    );
    assert!(
        !dead(on, &both, &[container("sidecar", running())]),
        "a sidecar runs beside them"
    );
    assert!(
        !dead(on, &both[..1], &[]),
        "the other one is not shown, and may run"
    );
    let one = [container(runner, ended(0)), container(side, running())];
    assert!(!dead(on, &one, &[]));
    let about_to = [
        container(runner, ended(0)),
        container(side, waiting("Creating")),
    ];
    assert!(!dead(on, &about_to, &[]));
    assert!(!dead(on, &[], &[]), "a node has it");
    assert!(
        dead(None, &[], &[]) && dead(Some(""), &[], &[]),
        "no node has it"
    );
    assert!(
        !dead(None, &about_to, &[]),
        "no node is named, and yet one shows its containers"
    );
}

/// From when on a start is waited for: when a node was found, else when the pod was made.
#[test]
fn the_ten_minutes_of_a_start_begin_when_a_node_has_the_pod() {
    let scheduled = |status: &str, at: Value| json!([{ "type": "PodScheduled", "status": status, "lastTransitionTime": at }]);
    let gives_up = |node: Option<&str>, conditions: Value, started: Value| {
        let status = json!({ "phase": "Pending", "conditions": conditions, "startTime": started });
        let mut value = json!(*pod(1, status));
        value["spec"]["nodeName"] = json!(node);
        let pod: Pod = serde_json::from_value(value).unwrap();
        let gives_up = state(&pod, 0).gives_up?;
        Some(gives_up.duration_since(start()).as_secs())
    };
    let (at, later) = (json!(after(start(), 30)), json!(after(start(), 50)));
    let on = Some("node-a");
    for (node, conditions, started, expected) in [
        (on, scheduled("True", at.clone()), Value::Null, Some(630)),
        (on, scheduled("True", at.clone()), later.clone(), Some(630)),
        // not said when
        (on, scheduled("True", Value::Null), later.clone(), Some(650)),
        (on, json!([]), later.clone(), Some(650)),
        (on, json!([]), Value::Null, Some(600)),
        // no node yet, whatever the pod names
        (on, scheduled("False", at.clone()), later.clone(), None),
        (None, scheduled("False", at.clone()), Value::Null, None),
        (None, json!([]), Value::Null, None),
        // by hand: bound without a scheduler
        (
            None,
            json!([{ "type": "Ready", "status": "True", "lastTransitionTime": at }]),
            Value::Null,
            None,
        ),
    ] {
        let what = format!("{node:?} {conditions} {started}");
        assert_eq!(gives_up(node, conditions, started), expected, "{what}");
    }
    // the time before the init containers are done is theirs
    let both = json!([
        { "type": "Initialized", "status": "True", "lastTransitionTime": later },
        { "type": "PodScheduled", "status": "True", "lastTransitionTime": at }]);
    assert_eq!(gives_up(on, both, Value::Null), Some(650));
    let not_yet = json!([
        { "type": "Initialized", "status": "False", "lastTransitionTime": later },
        { "type": "PodScheduled", "status": "True", "lastTransitionTime": at }]);
    assert_eq!(gives_up(on, not_yet, Value::Null), Some(630));
}

/// An init container that works may take its time; one that waits may not.
#[test]
fn an_init_container_that_runs_is_not_late() {
    let with_init = |state: Value, initialized: &str| {
        let mut value = json!(*pod_in(1, "Pending", waiting("PodInitializing"), running()));
        value["status"]["containerStatuses"] = json!([
            { "name": "runner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
              "state": waiting("PodInitializing") }]);
        value["status"]["initContainerStatuses"] = json!([
            { "name": "clone", "image": "", "imageID": "", "ready": false, "restartCount": 0,
              "state": state }]);
        value["status"]["conditions"][1]["status"] = json!(initialized);
        serde_json::from_value::<Pod>(value).unwrap()
    };
    let late = |pod: &Pod| failure(&state(pod, 100_000)).map(str::to_owned);
    assert_eq!(late(&with_init(running(), "False")), None);
    let done = Some("PodInitializing".to_owned());
    assert_eq!(late(&with_init(running(), "True")), done, "it is a sidecar");
    assert_eq!(late(&with_init(waiting("PodInitializing"), "False")), done);
    assert_eq!(late(&with_init(ended(0), "False")), done);
}

/// Which ends the kubelet answers with another start.
#[test]
fn whether_a_runner_that_ended_may_run_again_is_a_matter_of_the_pods_policy() {
    for (policy, code, can_run) in [
        (Some("Never"), 0, false),
        (Some("Never"), 1, false),
        (Some("OnFailure"), 0, false),
        (Some("OnFailure"), 1, true),
        (Some("Always"), 0, true),
        (Some("Always"), 1, true),
        // what is not said is the server's default
        (None, 0, true),
    ] {
        let mut value = json!(*pod_in(1, "Running", ended(code), running()));
        value["spec"]["restartPolicy"] = json!(policy);
        let pod: Pod = serde_json::from_value(value).unwrap();
        assert_eq!(state(&pod, 0).can_run, can_run, "{policy:?} {code}");
    }
}
