//! The way out.

use serde_json::json;

use super::objects::*;
use crate::actors::Machine;
use crate::actors::core::cached::Verb;
use crate::actors::runner::{Origin, RunnerTag};
use crate::messages::{
    ActionsAnswer, ActionsErrorKind, Effect, Input, Kind, KubeAnswer, KubeErrorKind, KubeRequest,
    Object, ObjectRef, RunnerCommand, RunnerState,
};

const DROP: &str = r#"patch EphemeralRunner at 30 {"metadata":{"finalizers":null}}"#;

/// Being deleted, with a living pod.
fn alive() -> (Hand, Vec<String>) {
    Hand::found(
        er(30, deleted(known(json!({ "ready": true })))),
        Some(pod_in(21, "Running", running(), running())),
    )
}

#[test]
fn a_living_runner_is_taken_from_the_service_before_anything_is_deleted() {
    let (mut hand, asked) = alive();
    assert_eq!(asked, ["remove 42"]);
    let asked = hand.actions(RunnerTag::Remove, Ok(ActionsAnswer::Done));
    assert_eq!(asked, ["delete Pod", "get Secret"]);
    let found = answer(Object::Secret(secret(5, "42")));
    assert_eq!(
        hand.kube(RunnerTag::Secret(Verb::Read), found),
        ["delete Secret"]
    );
    assert!(
        hand.kube(RunnerTag::Secret(Verb::Delete), Ok(KubeAnswer::Deleted))
            .is_empty()
    );
    assert_eq!(
        hand.kube(RunnerTag::Pod(Verb::Delete), Ok(KubeAnswer::Deleted)),
        [DROP]
    );
    let gone = er(
        31,
        json!({ "metadata": {
        "deletionTimestamp": start(), "finalizers": null } }),
    );
    hand.kube(
        RunnerTag::Runner(Verb::Patch),
        answer(Object::EphemeralRunner(gone)),
    );
    assert!(hand.stopped);
    assert_eq!(hand.report.unwrap().state, RunnerState::Gone);
}

#[test]
fn a_runner_with_a_job_is_asked_for_again_ever_more_rarely() {
    let (mut hand, _) = alive();
    let asked = hand.actions(
        RunnerTag::Remove,
        refused(ActionsErrorKind::JobStillRunning),
    );
    let waits = json!({ "reason": "WaitsForJob",
        "message": "the runner is being deleted and waits for its job to end" });
    let patch = json!({ "status": waits });
    assert_eq!(asked, [format!("patch EphemeralRunner {patch}")]);
    let noted = er(31, deleted(known(waits)));
    hand.kube(
        RunnerTag::Runner(Verb::Patch),
        answer(Object::EphemeralRunner(noted)),
    );
    for wait in [30, 60, 120, 240, 300, 300] {
        assert_eq!(hand.wakes_in(), Some(wait));
        assert!(hand.after(wait - 1).is_empty());
        assert_eq!(hand.after(1), ["remove 42"]);
        let again = hand.actions(
            RunnerTag::Remove,
            refused(ActionsErrorKind::JobStillRunning),
        );
        assert!(again.is_empty(), "it is on record: {again:?}");
    }
    assert!(hand.events.is_empty(), "{:?}", hand.events);
    // it dies: nothing can run there any more, and the service finds out in a moment
    let asked = hand.sees_pod(pod_in(22, "Failed", ended(137), ended(0)));
    assert_eq!(asked, ["delete Pod grace 0", "get Secret"]);
    assert_eq!(hand.wakes_in(), Some(30));
    assert_eq!(hand.after(30), ["remove 42"]);
}

#[test]
fn a_refusal_to_a_release_says_nothing_of_a_later_deletion() {
    let (mut hand, _) = Hand::found(
        er(30, known(json!({ "ready": true }))),
        Some(pod_in(21, "Running", running(), running())),
    );
    assert_eq!(hand.tell(RunnerCommand::Release), ["remove 42"]);
    hand.actions(
        RunnerTag::Remove,
        refused(ActionsErrorKind::JobStillRunning),
    );
    let asked = hand.sees_runner(er(31, deleted(known(json!({ "ready": true })))));
    assert!(asked.is_empty(), "nobody has asked for this yet: {asked:?}");
    assert_eq!(hand.after(30), ["remove 42"]);
}

#[test]
fn a_runner_that_ends_with_exit_0_while_being_deleted_needs_no_call() {
    let (mut hand, _) = alive();
    hand.actions(
        RunnerTag::Remove,
        refused(ActionsErrorKind::JobStillRunning),
    );
    let noted = er(30, deleted(known(json!({ "reason": "WaitsForJob" }))));
    hand.kube(
        RunnerTag::Runner(Verb::Patch),
        answer(Object::EphemeralRunner(noted)),
    );
    let asked = hand.sees_pod(pod_in(22, "Succeeded", ended(0), ended(0)));
    assert_eq!(asked, ["delete Pod grace 0", "get Secret"]);
    hand.kube(RunnerTag::Pod(Verb::Delete), Ok(KubeAnswer::Deleted));
    let asked = hand.kube(
        RunnerTag::Secret(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    assert_eq!(asked, [DROP]);
}

/// It leaves its registration behind: only a job that is over takes that with it.
#[test]
fn a_runner_that_ended_well_without_a_job_is_taken_from_the_service() {
    let done = deleted(known(json!({ "phase": "Succeeded" })));
    let mut hand = Hand::new(Origin::Found(Some(er(30, done))));
    hand.tick();
    let asked = hand.kube(
        RunnerTag::Pod(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    assert_eq!(asked, ["remove 42", "get Secret"]);
    let asked = hand.kube(
        RunnerTag::Secret(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    assert!(asked.is_empty(), "{asked:?}");
    assert_eq!(
        hand.actions(RunnerTag::Remove, Ok(ActionsAnswer::Done)),
        [DROP]
    );

    // seen while its pod is still there
    let idle = er(30, deleted(known(json!({ "ready": true }))));
    let (_, asked) = Hand::found(idle, Some(pod_in(21, "Succeeded", ended(0), ended(0))));
    assert!(asked.contains(&"remove 42".to_owned()), "{asked:?}");
}

#[test]
fn a_succeeded_runner_is_let_go_without_a_call() {
    let done = er(30, deleted(with_job(json!({ "phase": "Succeeded" }))));
    let mut hand = Hand::new(Origin::Found(Some(done)));
    hand.tick();
    let asked = hand.kube(
        RunnerTag::Pod(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    assert_eq!(asked, ["get Secret"]);
    let asked = hand.kube(
        RunnerTag::Secret(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    assert_eq!(asked, [DROP]);
}

#[test]
fn local_cleanup_does_not_wait_for_the_service_when_nothing_is_alive() {
    let failed = er(30, deleted(known(json!({ "phase": "Failed" }))));
    let (mut hand, asked) = Hand::found(failed, Some(pod_in(21, "Failed", ended(1), ended(0))));
    assert_eq!(asked, ["remove 42", "delete Pod grace 0", "delete Secret"]);
    hand.kube(RunnerTag::Pod(Verb::Delete), Ok(KubeAnswer::Deleted));
    let asked = hand.kube(RunnerTag::Secret(Verb::Delete), Ok(KubeAnswer::Deleted));
    assert!(asked.is_empty(), "the registration holds it: {asked:?}");
    let report = hand.report.clone().unwrap();
    assert!(report.deleting && !report.holds_resources);
    assert_eq!(
        hand.actions(RunnerTag::Remove, Ok(ActionsAnswer::Done)),
        [DROP]
    );
}

#[test]
fn a_registration_nobody_knows_the_id_of_is_looked_up_by_name() {
    let mut hand = Hand::new(Origin::Found(Some(er(30, deleted(json!({}))))));
    hand.tick();
    let asked = hand.kube(
        RunnerTag::Pod(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    assert_eq!(asked, ["get Secret"]);
    let asked = hand.kube(
        RunnerTag::Secret(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    assert_eq!(asked, ["find pool-runner-x7k2m"]);
    let asked = hand.actions(RunnerTag::Find, Ok(ActionsAnswer::Runner(None)));
    assert_eq!(asked, [DROP]);
}

#[test]
fn a_job_on_a_pod_gone_for_ten_minutes_is_given_up_with_an_event() {
    let failed = er(30, deleted(known(json!({ "phase": "Failed" }))));
    let mut hand = Hand::new(Origin::Found(Some(failed)));
    hand.tick();
    hand.kube(
        RunnerTag::Pod(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    hand.kube(
        RunnerTag::Secret(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    let mut asked = Vec::new();
    let mut seconds = 0;
    while asked.is_empty() {
        hand.actions(
            RunnerTag::Remove,
            refused(ActionsErrorKind::JobStillRunning),
        );
        seconds += 30;
        asked = hand.after(30);
        asked.retain(|line| line != "remove 42");
        assert!(seconds < 700);
    }
    assert_eq!(asked, [DROP]);
    assert_eq!(hand.events, ["RegistrationLeft"]);
    assert!(seconds >= 600, "{seconds}");
}

#[test]
fn credentials_that_are_gone_do_not_hold_a_runner_but_a_job_does() {
    let (mut hand, _) = alive();
    let asked = hand.actions(RunnerTag::Remove, refused(ActionsErrorKind::Credentials));
    assert_eq!(asked, ["delete Pod", "get Secret"]);
    assert_eq!(hand.events, ["RegistrationLeft"]);

    let (mut hand, _) = Hand::found(
        er(30, deleted(with_job(json!({ "ready": true })))),
        Some(pod_in(21, "Running", running(), running())),
    );
    let asked = hand.actions(RunnerTag::Remove, refused(ActionsErrorKind::Credentials));
    assert!(asked.is_empty(), "{asked:?}");
}

#[test]
fn the_finalizers_of_others_stay() {
    let others = json!({ "metadata": { "finalizers": [
        "other/one",
        "ephemeralrunner.actions.github.com/finalizer",
        "ephemeralrunner.actions.github.com/runner-registration-finalizer"] } });
    let mut patch = deleted(with_job(json!({ "phase": "Succeeded" })));
    json_patch::merge(&mut patch, &others);
    let mut hand = Hand::new(Origin::Found(Some(er(30, patch))));
    hand.tick();
    hand.kube(
        RunnerTag::Pod(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    let asked = hand.kube(
        RunnerTag::Secret(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    assert_eq!(
        asked,
        [r#"patch EphemeralRunner at 30 {"metadata":{"finalizers":["other/one"]}}"#]
    );
    let left = json!({ "metadata": {
        "deletionTimestamp": start(), "finalizers": ["other/one"] } });
    let asked = hand.kube(
        RunnerTag::Runner(Verb::Patch),
        answer(Object::EphemeralRunner(er(31, left))),
    );
    assert!(asked.is_empty());
    assert!(!hand.stopped);
}

// === rights that are missing ===

#[test]
fn a_secret_that_may_not_be_read_or_removed_goes_with_its_owner() {
    for readable in [false, true] {
        let (mut hand, _) = alive();
        hand.actions(RunnerTag::Remove, Ok(ActionsAnswer::Done));
        let denied = || kube_error(KubeErrorKind::Forbidden);
        let asked = if readable {
            let found = answer(Object::Secret(secret(5, "42")));
            assert_eq!(
                hand.kube(RunnerTag::Secret(Verb::Read), found),
                ["delete Secret"]
            );
            hand.kube(RunnerTag::Secret(Verb::Delete), denied())
        } else {
            hand.kube(RunnerTag::Secret(Verb::Read), denied())
        };
        assert!(asked.is_empty(), "{asked:?}");
        assert_eq!(
            hand.kube(RunnerTag::Pod(Verb::Delete), Ok(KubeAnswer::Deleted)),
            [DROP]
        );
    }
}

#[test]
fn credentials_that_may_not_be_read_are_waited_for_and_told() {
    let (mut hand, _) = alive();
    for _ in 0..100 {
        hand.actions(RunnerTag::Remove, refused(ActionsErrorKind::Denied));
        let reason = hand.report.clone().unwrap().reason.unwrap();
        assert_eq!(reason.code, "CredentialsForbidden");
        assert_eq!(hand.after(60), ["remove 42"]);
    }
    assert_eq!(hand.events, [""; 0]);
    let asked = hand.actions(RunnerTag::Remove, Ok(ActionsAnswer::Done));
    assert_eq!(asked, ["delete Pod", "get Secret"]);
}

#[test]
fn a_runner_that_cannot_be_looked_for_is_left_and_named() {
    let unknown = er(30, deleted(json!({ "status": { "runnerId": null } })));
    let mut hand = Hand::new(Origin::Found(Some(unknown)));
    hand.tick();
    hand.kube(
        RunnerTag::Pod(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    let mut asked = hand.kube(
        RunnerTag::Secret(Verb::Read),
        kube_error(KubeErrorKind::Forbidden),
    );
    let mut calls = 0;
    while asked != [DROP] {
        assert!(
            asked.len() == 1 && asked[0].starts_with("find"),
            "{asked:?}"
        );
        calls += 1;
        assert!(calls < 20, "it is asked for ever");
        asked = hand.actions(RunnerTag::Find, refused(ActionsErrorKind::Credentials));
        if asked.is_empty() {
            asked = hand.after(60);
        }
    }
    assert_eq!(hand.events, ["RegistrationLeft"]);
}

// === what container hooks made ===

fn with_hooks(status: serde_json::Value) -> std::sync::Arc<crate::api::EphemeralRunner> {
    let mut patch = deleted(with_job(status));
    json_patch::merge(
        &mut patch,
        &json!({ "spec": { "spec": { "containers": [{ "name": "runner", "env": [
            { "name": "ACTIONS_RUNNER_CONTAINER_HOOKS", "value": "/hooks.js" }] }] } } }),
    );
    er(30, patch)
}

fn hook_pod() -> Object {
    let mut value = json!(*pod(40, json!({ "phase": "Running" })));
    value["metadata"]["name"] = json!("pool-runner-x7k2m-workflow");
    Object::Pod(std::sync::Arc::new(serde_json::from_value(value).unwrap()))
}

fn swept() -> (Hand, Vec<String>) {
    let mut hand = Hand::new(Origin::Found(Some(with_hooks(
        json!({ "phase": "Succeeded" }),
    ))));
    hand.tick();
    let mut asked = hand.kube(
        RunnerTag::Pod(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    asked.extend(hand.kube(
        RunnerTag::Secret(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    ));
    (hand, asked)
}

#[test]
fn objects_that_container_hooks_made_go_with_the_runner() {
    let (mut hand, asked) = swept();
    assert_eq!(
        asked,
        [
            "get Secret",
            "list Pod runner-pod=pool-runner-x7k2m",
            "list Secret runner-pod=pool-runner-x7k2m"
        ]
    );
    let asked = hand.kube(
        RunnerTag::ListLinked(Kind::Pod),
        Ok(KubeAnswer::Objects(vec![hook_pod()])),
    );
    assert_eq!(asked, ["delete Pod pool-runner-x7k2m-workflow at 40"]);
    let asked = hand.kube(
        RunnerTag::ListLinked(Kind::Secret),
        Ok(KubeAnswer::Objects(Vec::new())),
    );
    assert!(asked.is_empty());
    let linked = ObjectRef::new(Kind::Pod, "arc-runners", "pool-runner-x7k2m-workflow");
    let asked = hand.kube(RunnerTag::DeleteLinked(linked), Ok(KubeAnswer::Deleted));
    assert_eq!(asked, [DROP]);
}

/// Its name may be another job's by then, and its label another runner's.
#[test]
fn an_object_of_a_hook_is_deleted_only_as_it_was_listed() {
    let (mut hand, _) = swept();
    let listed = hook_pod();
    let meta = listed.meta().clone();
    assert!(meta.uid.is_some() && meta.resource_version.is_some());
    let list = Input::Kube(
        RunnerTag::ListLinked(Kind::Pod),
        Ok(KubeAnswer::Objects(vec![listed])),
    );
    let effects = hand.machine.step(hand.now, list);
    let deletes = effects.into_iter().filter_map(|effect| match effect {
        Effect::Kube(
            _,
            KubeRequest::Delete {
                target, uid, lock, ..
            },
        ) => Some((target.name, uid, lock)),
        _ => None,
    });
    let name = meta.name.unwrap();
    assert_eq!(
        deletes.collect::<Vec<_>>(),
        [(name.clone(), meta.uid, meta.resource_version)]
    );
    // it is another one by now: what is there is looked at again
    let linked = ObjectRef::new(Kind::Pod, "arc-runners", name.as_str());
    let asked = hand.kube(
        RunnerTag::DeleteLinked(linked),
        kube_error(KubeErrorKind::Conflict),
    );
    assert!(asked.is_empty(), "{asked:?}");
    assert_eq!(hand.after(1), ["list Pod runner-pod=pool-runner-x7k2m"]);
}

#[test]
fn a_lack_of_permission_on_linked_objects_is_reported_and_holds_nothing() {
    let (mut hand, _) = swept();
    hand.kube(
        RunnerTag::ListLinked(Kind::Pod),
        kube_error(KubeErrorKind::Forbidden),
    );
    assert_eq!(hand.events, ["LinkedObjectsLeft"]);
    let asked = hand.kube(
        RunnerTag::ListLinked(Kind::Secret),
        Ok(KubeAnswer::Objects(Vec::new())),
    );
    assert_eq!(asked, [DROP]);
}

#[test]
fn a_list_of_linked_objects_that_fails_is_tried_again() {
    let (mut hand, _) = swept();
    hand.kube(
        RunnerTag::ListLinked(Kind::Secret),
        Ok(KubeAnswer::Objects(Vec::new())),
    );
    hand.kube(
        RunnerTag::ListLinked(Kind::Pod),
        kube_error(KubeErrorKind::Unavailable),
    );
    assert_eq!(hand.after(1), ["list Pod runner-pod=pool-runner-x7k2m"]);
}

#[test]
fn a_deletion_command_is_one_request_and_a_gone_runner_stops_its_actor() {
    let done = er(20, known(json!({ "phase": "Failed" })));
    let mut hand = Hand::new(Origin::Found(Some(done)));
    assert_eq!(hand.tell(RunnerCommand::Delete), ["delete EphemeralRunner"]);
    assert!(hand.tell(RunnerCommand::Delete).is_empty());
    assert!(hand.tick().is_empty());
    hand.gone(Kind::EphemeralRunner, "er-uid");
    assert!(hand.stopped);
}
