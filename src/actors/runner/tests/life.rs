//! From the EphemeralRunner to its pod, and to its end.

use serde_json::json;

use super::objects::*;
use crate::actors::core::cached::Verb;
use crate::actors::runner::{Origin, RunnerTag};
use crate::clock::after;
use crate::messages::{Kind, KubeErrorKind, Object, ObjectRef, RunnerCommand, RunnerState};

const REGISTER: &str = "register pool-runner-x7k2m in 11 at /work";

/// A runner whose pod was just created.
fn with_pod() -> Hand {
    let (mut hand, _) = Hand::created();
    hand.actions(RunnerTag::Generate, jit());
    hand.kube(
        RunnerTag::Secret(Verb::Create),
        answer(Object::Secret(secret(11, "42"))),
    );
    hand.kube(
        RunnerTag::Pod(Verb::Create),
        answer(Object::Pod(pod(12, json!({ "phase": "Pending" })))),
    );
    hand
}

#[test]
fn a_created_runner_gets_its_pod_in_three_requests_and_its_status_in_one() {
    let (mut hand, asked) = Hand::created();
    assert_eq!(asked, [REGISTER]);
    assert_eq!(hand.actions(RunnerTag::Generate, jit()), ["create Secret"]);
    assert_eq!(
        hand.kube(
            RunnerTag::Secret(Verb::Create),
            answer(Object::Secret(secret(11, "42")))
        ),
        ["create Pod"]
    );
    let nothing: [&str; 0] = [];
    let asked = hand.kube(
        RunnerTag::Pod(Verb::Create),
        answer(Object::Pod(pod(12, json!({ "phase": "Pending" })))),
    );
    assert_eq!(asked, nothing);
    let asked = hand.sees_pod(pod_in(13, "Running", running(), running()));
    assert_eq!(
        asked,
        [
            r#"patch EphemeralRunner at 10 {"status":{"phase":"Pending","ready":true,"runnerId":42,"runnerName":"pool-runner-x7k2m"}}"#
        ]
    );
    let written = er(14, known(json!({ "ready": true })));
    assert_eq!(
        hand.kube(
            RunnerTag::Runner(Verb::Patch),
            answer(Object::EphemeralRunner(written))
        ),
        nothing
    );
    let report = hand.report.clone().unwrap();
    assert!(report.ready && report.registered);
    assert_eq!(report.state, RunnerState::Pending);
    assert_eq!((report.patch_id, report.revision), (5, 3));
}

/// The pod is made, runs, and has taken a job before the answer to its create is there.
#[test]
fn a_job_that_is_faster_than_the_answer_to_the_create_is_let_run() {
    let (mut hand, _) = Hand::created();
    hand.actions(RunnerTag::Generate, jit());
    hand.kube(
        RunnerTag::Secret(Verb::Create),
        answer(Object::Secret(secret(11, "42"))),
    );
    let nothing: [&str; 0] = [];
    assert_eq!(hand.sees_runner(er(13, with_job(json!({})))), nothing);
    let created = answer(Object::Pod(pod(12, json!({ "phase": "Pending" }))));
    let asked = hand.kube(RunnerTag::Pod(Verb::Create), created);
    assert!(!asked.iter().any(|one| one.contains("delete")), "{asked:?}");
    assert_eq!(hand.report.clone().unwrap().state, RunnerState::Running);
}

#[test]
fn a_pod_that_takes_its_time_has_the_id_put_on_record_after_five_seconds() {
    let mut hand = with_pod();
    assert_eq!(hand.wakes_in(), Some(5));
    let asked = hand.after(5);
    assert_eq!(asked.len(), 1);
    assert!(asked[0].contains(r#""runnerId":42"#), "{asked:?}");
    assert!(!asked[0].contains("ready"), "{asked:?}");
}

#[test]
fn the_same_message_twice_asks_for_nothing() {
    let mut hand = with_pod();
    let up = pod_in(13, "Running", running(), running());
    hand.sees_pod(up.clone());
    let written = er(14, known(json!({ "ready": true })));
    hand.kube(
        RunnerTag::Runner(Verb::Patch),
        answer(Object::EphemeralRunner(written.clone())),
    );
    hand.report = None;
    for _ in 0..3 {
        assert!(hand.sees_pod(up.clone()).is_empty());
        assert!(hand.sees_runner(written.clone()).is_empty());
        assert!(hand.tick().is_empty());
    }
    assert_eq!(hand.report, None);
    assert_eq!(hand.wake, None);
}

#[test]
fn a_found_runner_reads_its_pod_before_anything_else() {
    let (mut hand, asked) = Hand::found(er(10, json!({})), None);
    assert_eq!(asked, ["create Pod"], "the Secret was there");
    assert!(hand.tick().is_empty());
    let mut hand = Hand::new(Origin::Found(None));
    assert_eq!(hand.tick(), ["get EphemeralRunner"]);
    hand.kube(
        RunnerTag::Runner(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    assert!(hand.stopped);
    assert_eq!(hand.report.unwrap().state, RunnerState::Gone);
}

#[test]
fn an_object_made_by_others_gets_its_finalizers_under_a_lock() {
    let bare = er(10, json!({ "metadata": { "finalizers": ["other/one"] } }));
    let mut hand = Hand::new(Origin::Found(Some(bare)));
    let asked = hand.tick();
    assert_eq!(asked.len(), 1);
    assert!(
        asked[0].starts_with("patch EphemeralRunner at 10"),
        "{asked:?}"
    );
    for name in ["other/one", "ephemeralrunner.actions.github.com/finalizer"] {
        assert!(asked[0].contains(name), "{asked:?}");
    }
}

#[test]
fn exit_0_is_recorded_first_and_then_pod_and_secret_go_and_the_runner_waits() {
    let (mut hand, _) = Hand::found(
        er(20, with_job(json!({ "ready": true }))),
        Some(pod_in(21, "Running", running(), running())),
    );
    let asked = hand.sees_pod(pod_in(22, "Succeeded", ended(0), ended(0)));
    assert_eq!(
        asked,
        [r#"patch EphemeralRunner {"status":{"phase":"Succeeded","ready":false}}"#]
    );
    let done = er(23, with_job(json!({ "phase": "Succeeded" })));
    let asked = hand.kube(
        RunnerTag::Runner(Verb::Patch),
        answer(Object::EphemeralRunner(done)),
    );
    assert_eq!(asked, ["delete Pod grace 0", "get Secret"]);
    let found = answer(Object::Secret(secret(5, "42")));
    assert_eq!(
        hand.kube(RunnerTag::Secret(Verb::Read), found),
        ["delete Secret"]
    );
    hand.kube(
        RunnerTag::Pod(Verb::Delete),
        Ok(crate::messages::KubeAnswer::Deleted),
    );
    hand.kube(
        RunnerTag::Secret(Verb::Delete),
        Ok(crate::messages::KubeAnswer::Deleted),
    );
    let report = hand.report.clone().unwrap();
    assert_eq!(report.state, RunnerState::Finished);
    assert!(!report.holds_resources && !report.deleting);
    assert!(hand.tick().is_empty());
    assert_eq!(hand.tell(RunnerCommand::Delete), ["delete EphemeralRunner"]);
}

#[test]
fn a_pod_goes_with_its_own_grace_while_a_container_runs() {
    let done = er(23, with_job(json!({ "phase": "Succeeded" })));
    let (_, asked) = Hand::found(done, Some(pod_in(22, "Running", ended(0), running())));
    assert!(asked.contains(&"delete Pod".to_owned()), "{asked:?}");
}

#[test]
fn exit_7_is_outdated_with_its_reason() {
    let (mut hand, _) = Hand::found(
        er(20, known(json!({ "ready": true }))),
        Some(pod_in(21, "Running", running(), running())),
    );
    let asked = hand.sees_pod(pod_in(22, "Failed", ended(7), ended(0)));
    assert!(asked[0].contains(r#""phase":"Outdated""#), "{asked:?}");
    assert!(asked[0].contains("RunnerVersionRejected"), "{asked:?}");
    let rejected = er(23, known(json!({ "phase": "Outdated" })));
    hand.kube(
        RunnerTag::Runner(Verb::Patch),
        answer(Object::EphemeralRunner(rejected)),
    );
    assert_eq!(hand.report.clone().unwrap().state, RunnerState::Outdated);
}

#[test]
fn any_other_end_with_a_job_fails_the_runner_and_counts_as_finished() {
    let (mut hand, _) = Hand::found(
        er(20, with_job(json!({ "ready": true }))),
        Some(pod_in(21, "Running", running(), running())),
    );
    let oom = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled" } });
    let asked = hand.sees_pod(pod_in(22, "Failed", oom, ended(0)));
    assert_eq!(asked.len(), 1);
    assert!(asked[0].contains(r#""phase":"Failed""#), "{asked:?}");
    assert!(asked[0].contains(r#""reason":"OOMKilled""#), "{asked:?}");
    let failed = er(23, with_job(json!({ "phase": "Failed" })));
    hand.kube(
        RunnerTag::Runner(Verb::Patch),
        answer(Object::EphemeralRunner(failed)),
    );
    assert_eq!(hand.report.clone().unwrap().state, RunnerState::Finished);
}

#[test]
fn a_terminal_phase_is_never_written_over() {
    for phase in ["Succeeded", "Failed", "Outdated"] {
        let done = er(20, known(json!({ "phase": phase })));
        let up = pod_in(21, "Running", running(), running());
        let (mut hand, asked) = Hand::found(done, Some(up));
        let again = hand.sees_pod(pod_in(22, "Running", running(), ended(0)));
        for line in asked.iter().chain(&again) {
            assert!(!line.contains("status"), "{phase}: {line}");
        }
    }
}

#[test]
fn the_first_phase_does_not_undo_running_when_the_listener_was_faster() {
    let mut hand = with_pod();
    let asked = hand.sees_pod(pod_in(13, "Running", running(), running()));
    assert!(
        asked[0].starts_with("patch EphemeralRunner at 10"),
        "locked"
    );
    hand.kube(
        RunnerTag::Runner(Verb::Patch),
        kube_error(KubeErrorKind::Conflict),
    );
    assert_eq!(hand.after(1), ["get EphemeralRunner"]);
    let started = er(
        15,
        json!({ "status": { "phase": "Running", "jobId": "job-9" } }),
    );
    let asked = hand.kube(
        RunnerTag::Runner(Verb::Read),
        answer(Object::EphemeralRunner(started)),
    );
    assert_eq!(asked.len(), 1);
    assert!(!asked[0].contains("phase"), "{asked:?}");
    assert!(asked[0].contains(r#""ready":true"#), "{asked:?}");
}

#[test]
fn job_fields_are_never_written() {
    let (mut hand, asked) = Hand::found(
        er(
            20,
            json!({ "status": { "phase": "Running", "jobId": "job-9" } }),
        ),
        Some(pod_in(21, "Running", running(), running())),
    );
    let end = hand.sees_pod(pod_in(22, "Failed", ended(1), ended(0)));
    for line in asked.iter().chain(&end) {
        assert!(!line.contains("job"), "{line}");
    }
}

#[test]
fn a_runner_says_once_that_no_node_takes_its_pod() {
    let unplaced = |message: &str| {
        let mut value = json!(*pod(
            21,
            json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled",
                "status": "False", "reason": "Unschedulable", "message": message,
                "lastTransitionTime": start() }] }),
        ));
        value["spec"]["nodeName"] = serde_json::Value::Null;
        std::sync::Arc::new(serde_json::from_value(value).unwrap())
    };
    let (mut hand, asked) = Hand::found(er(20, known(json!({}))), Some(unplaced("0/3 nodes")));
    assert!(asked.is_empty(), "{asked:?}");
    assert_eq!(hand.wakes_in(), Some(60));
    assert_eq!(
        hand.after(60),
        [r#"patch EphemeralRunner {"status":{"message":"0/3 nodes","reason":"Unschedulable"}}"#]
    );
    let noted = er(22, known(json!({ "reason": "Unschedulable" })));
    hand.kube(
        RunnerTag::Runner(Verb::Patch),
        answer(Object::EphemeralRunner(noted)),
    );
    assert!(hand.sees_pod(unplaced("0/4 nodes")).is_empty());
    assert!(hand.after(3_600).is_empty());
    let up = hand.sees_pod(pod_in(23, "Running", running(), running()));
    assert!(up[0].contains(r#""reason":null"#), "{up:?}");
}

/// Container hooks make pods and Secrets, and others may be owned by the runner too.
#[test]
fn only_an_object_of_its_own_name_is_the_runners() {
    fn named<T>(object: &std::sync::Arc<T>) -> std::sync::Arc<T>
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
    {
        let mut value = json!(**object);
        value["metadata"]["name"] = json!(format!("{NAME}-workflow"));
        std::sync::Arc::new(serde_json::from_value(value).unwrap())
    }
    let up = pod_in(21, "Running", running(), running());
    let status = known(json!({ "ready": true }));
    let (mut hand, _) = Hand::found(er(20, status.clone()), Some(up));
    let over = pod_in(99, "Failed", ended(1), ended(0));
    for object in [
        Object::Pod(named(&over)),
        Object::Secret(named(&secret(99, "7"))),
        Object::EphemeralRunner(named(&er(99, deleted(json!({}))))),
    ] {
        assert_eq!(hand.observe(object), [""; 0]);
    }
    for (kind, uid) in [
        (Kind::Pod, "pod-uid"),
        (Kind::Secret, "secret-uid"),
        (Kind::EphemeralRunner, "er-uid"),
    ] {
        let gone = ObjectRef::new(kind, "arc-runners", format!("{NAME}-workflow"));
        let input = crate::messages::Input::Gone {
            object: gone,
            uid: uid.to_owned(),
        };
        assert_eq!(hand.step(input), [""; 0]);
    }
    assert!(!hand.stopped);
    let asked = hand.sees_runner(er(100, deleted(status)));
    assert_eq!(asked, ["remove 42"], "it still knows its own");
}

// === failures ===

#[test]
fn a_failure_without_a_job_is_counted_then_the_pod_goes_and_comes_again_later() {
    let (mut hand, _) = Hand::found(
        er(20, known(json!({ "ready": true }))),
        Some(pod_in(21, "Running", running(), running())),
    );
    let asked = hand.sees_pod(pod_in(22, "Failed", ended(1), ended(0)));
    assert_eq!(asked.len(), 1);
    assert!(asked[0].contains(r#""failures":{"pod-uid":""#), "{asked:?}");
    assert!(!asked[0].contains("phase"), "{asked:?}");
    let counted = known(json!({ "failures": { "pod-uid": start() }, "reason": "Error" }));
    let asked = hand.kube(
        RunnerTag::Runner(Verb::Patch),
        answer(Object::EphemeralRunner(er(23, counted))),
    );
    assert_eq!(asked, ["delete Pod grace 0"]);
    let asked = hand.kube(
        RunnerTag::Pod(Verb::Delete),
        Ok(crate::messages::KubeAnswer::Deleted),
    );
    assert!(asked.is_empty());
    assert!(matches!(hand.wakes_in(), Some(3..=5)), "5 s, spread");
    assert_eq!(hand.after(5), ["get Secret"], "someone may have deleted it");
    let found = answer(Object::Secret(secret(5, "42")));
    assert_eq!(
        hand.kube(RunnerTag::Secret(Verb::Read), found),
        ["create Pod"]
    );
}

#[test]
fn the_wait_grows_with_each_failure_and_old_failures_do_not_count() {
    let day = 86_400;
    // (ages of failures in seconds, wait)
    let table: [(&[i64], i64); 6] = [
        (&[0], 5),
        (&[0, 100], 10),
        (&[0, 100, 200], 20),
        (&[0, 100, 200, 300], 40),
        (&[0, 100, 200, 300, 400], 80),
        (&[0, day + 1, day + 2, day + 3, day + 4], 5),
    ];
    for (ages, wait) in table {
        let failures: serde_json::Map<_, _> = ages
            .iter()
            .map(|age| (format!("pod-{age}"), json!(after(start(), -age))))
            .collect();
        let (mut hand, asked) = Hand::found(er(20, known(json!({ "failures": failures }))), None);
        assert!(asked.is_empty(), "{ages:?}: {asked:?}");
        let spread = wait * 3 / 4..=wait;
        assert!(spread.contains(&hand.wakes_in().unwrap()), "{ages:?}");
        assert!(!hand.after(wait).is_empty());
    }
}

#[test]
fn runners_whose_pods_failed_together_do_not_get_their_next_ones_together() {
    let wait = |name: &str| {
        let failures = json!({ "failures": { "a": start(), "b": start(), "c": start() } });
        let mut value = json!(*er(20, known(failures)));
        value["metadata"]["name"] = json!(name);
        let er = std::sync::Arc::new(serde_json::from_value(value).unwrap());
        let mut hand = Hand::named(name, Origin::Found(Some(er)));
        hand.tick();
        hand.kube(
            RunnerTag::Pod(Verb::Read),
            kube_error(KubeErrorKind::NotFound),
        );
        hand.wake.unwrap()
    };
    assert_ne!(wait("pool-runner-x7k2m"), wait("pool-runner-q4w9z"));
}

#[test]
fn the_sixth_failure_within_a_day_fails_the_runner() {
    for (age, fails) in [(50_000, true), (90_000, false)] {
        let failures: serde_json::Map<_, _> = (0..5)
            .map(|n| (format!("pod-{n}"), json!(after(start(), -age - n))))
            .collect();
        let (_, asked) = Hand::found(
            er(20, known(json!({ "failures": failures }))),
            Some(pod_in(21, "Failed", ended(1), ended(0))),
        );
        let failed = asked[0].contains(r#""phase":"Failed""#);
        assert_eq!(failed, fails, "{asked:?}");
        assert_eq!(asked[0].contains(r#""pod-0":null"#), !fails, "{asked:?}");
    }
}

#[test]
fn a_failure_is_counted_once_however_often_it_is_seen() {
    let counted = known(json!({ "failures": { "pod-uid": start() } }));
    let failed = pod_in(21, "Failed", ended(1), ended(0));
    let (mut hand, asked) = Hand::found(er(20, counted), Some(failed.clone()));
    assert_eq!(asked, ["delete Pod grace 0"]);
    assert!(hand.sees_pod(failed).is_empty());
}

#[test]
fn a_pod_that_vanishes_is_confirmed_by_a_read_and_counted() {
    let (mut hand, _) = Hand::found(
        er(20, known(json!({ "ready": true }))),
        Some(pod_in(21, "Running", running(), running())),
    );
    assert_eq!(hand.gone(Kind::Pod, "pod-uid"), ["get Pod"]);
    let asked = hand.kube(
        RunnerTag::Pod(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    assert_eq!(asked.len(), 1);
    assert!(asked[0].contains(r#""failures":{"pod-uid":""#), "{asked:?}");
    assert!(asked[0].contains("PodVanished"), "{asked:?}");
}

#[test]
fn a_pod_that_only_lost_its_label_is_not_counted() {
    let up = pod_in(21, "Running", running(), running());
    let (mut hand, _) = Hand::found(er(20, known(json!({ "ready": true }))), Some(up.clone()));
    assert_eq!(hand.gone(Kind::Pod, "pod-uid"), ["get Pod"]);
    assert!(
        hand.kube(RunnerTag::Pod(Verb::Read), answer(Object::Pod(up)))
            .is_empty()
    );
}

#[test]
fn a_pod_is_never_made_again_once_a_job_was_recorded() {
    let (_, asked) = Hand::found(er(20, with_job(json!({}))), None);
    assert_eq!(asked.len(), 1);
    assert!(asked[0].contains(r#""phase":"Failed""#), "{asked:?}");
    let (mut hand, _) = Hand::found(
        er(20, with_job(json!({ "ready": true }))),
        Some(pod_in(21, "Running", running(), running())),
    );
    hand.gone(Kind::Pod, "pod-uid");
    let asked = hand.kube(
        RunnerTag::Pod(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    assert!(asked[0].contains(r#""phase":"Failed""#), "{asked:?}");
}

// === refused pods ===

fn pod_refused(kind: KubeErrorKind) -> (Hand, Vec<String>) {
    let (mut hand, _) = Hand::created();
    hand.actions(RunnerTag::Generate, jit());
    hand.kube(
        RunnerTag::Secret(Verb::Create),
        answer(Object::Secret(secret(11, "42"))),
    );
    let asked = hand.kube(RunnerTag::Pod(Verb::Create), kube_error(kind));
    (hand, asked)
}

#[test]
fn an_invalid_or_forbidden_pod_fails_the_runner_with_the_servers_message() {
    for (kind, reason) in [
        (KubeErrorKind::Invalid, "PodInvalid"),
        (KubeErrorKind::Forbidden, "PodForbidden"),
    ] {
        let (_, asked) = pod_refused(kind);
        assert_eq!(asked.len(), 1);
        assert!(asked[0].contains(r#""phase":"Failed""#), "{asked:?}");
        assert!(asked[0].contains(reason), "{asked:?}");
        assert!(asked[0].contains("server: "), "{asked:?}");
    }
}

#[test]
fn a_quota_is_waited_for_with_an_event_and_the_runner_given_up_after_ten_minutes() {
    let (mut hand, asked) = pod_refused(KubeErrorKind::QuotaExceeded);
    assert!(asked.is_empty(), "{asked:?}");
    assert!(hand.events.is_empty(), "the set tells: {:?}", hand.events);
    let mut creates = 0;
    for _ in 0..19 {
        let asked = hand.after(30);
        if asked.contains(&"create Pod".to_owned()) {
            creates += 1;
            hand.kube(
                RunnerTag::Pod(Verb::Create),
                kube_error(KubeErrorKind::QuotaExceeded),
            );
        }
        if asked.iter().any(|line| line.contains("status")) {
            assert!(asked.concat().contains("QuotaExceeded"), "{asked:?}");
            let noted = known(json!({ "reason": "QuotaExceeded" }));
            hand.kube(
                RunnerTag::Runner(Verb::Patch),
                answer(Object::EphemeralRunner(er(15, noted))),
            );
        }
    }
    assert!(creates >= 18, "{creates}");
    let asked = hand.after(30);
    assert!(asked[0].contains(r#""phase":"Failed""#), "{asked:?}");
    assert_eq!(hand.events, ["RunnerFailed"]);
}

#[test]
fn other_refusals_back_off_and_a_lost_answer_is_read_first() {
    let (mut hand, asked) = pod_refused(KubeErrorKind::Unavailable);
    assert!(asked.is_empty());
    assert_eq!(hand.after(1), ["create Pod"]);
    hand.kube(
        RunnerTag::Pod(Verb::Create),
        kube_error(KubeErrorKind::Unanswered),
    );
    assert_eq!(hand.after(1), ["get Pod"]);
    let asked = hand.kube(
        RunnerTag::Pod(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    assert_eq!(asked, ["create Pod"]);
}

#[test]
fn a_pod_of_the_name_that_belongs_to_something_else_is_not_touched() {
    let foreign = json!({ "metadata": { "ownerReferences": [{
        "apiVersion": "v1", "kind": "Other", "name": "other", "uid": "other-uid" }] } });
    let mut value = json!(*pod(12, json!({ "phase": "Running" })));
    json_patch::merge(&mut value, &foreign);
    let foreign = std::sync::Arc::new(serde_json::from_value(value).unwrap());
    let (mut hand, asked) = Hand::found(er(20, known(json!({}))), Some(foreign));
    assert!(asked[0].contains("PodNameTaken"), "{asked:?}");
    let failed = er(23, known(json!({ "phase": "Failed" })));
    let asked = hand.kube(
        RunnerTag::Runner(Verb::Patch),
        answer(Object::EphemeralRunner(failed)),
    );
    assert!(!asked.contains(&"delete Pod".to_owned()), "{asked:?}");
}
