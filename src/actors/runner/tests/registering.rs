//! On the way to a JIT configuration.

use serde_json::json;

use super::objects::*;
use crate::actors::core::cached::Verb;
use crate::actors::runner::{Origin, RunnerTag};
use crate::messages::{
    ActionsAnswer, ActionsErrorKind, KubeErrorKind, Object, Runner, RunnerCommand,
};

const REGISTER: &str = "register pool-runner-x7k2m in 11 at /work";
const FIND: &str = "find pool-runner-x7k2m";

fn runner(id: i64, scale_set_id: i64) -> Result<ActionsAnswer, crate::messages::ActionsError> {
    Ok(ActionsAnswer::Runner(Some(Runner {
        id,
        name: NAME.to_owned(),
        scale_set_id,
    })))
}

#[test]
fn a_name_taken_by_a_runner_of_this_scale_set_is_freed() {
    let (mut hand, _) = Hand::created();
    let asked = hand.actions(RunnerTag::Generate, refused(ActionsErrorKind::RunnerExists));
    assert_eq!(asked, [FIND]);
    assert_eq!(hand.actions(RunnerTag::Find, runner(77, 11)), ["remove 77"]);
    let asked = hand.actions(RunnerTag::Remove, Ok(ActionsAnswer::Done));
    assert_eq!(asked, [REGISTER]);
    assert_eq!(hand.actions(RunnerTag::Generate, jit()), ["create Secret"]);
}

#[test]
fn a_name_that_is_free_after_all_is_tried_again_with_a_delay() {
    let (mut hand, _) = Hand::created();
    hand.actions(RunnerTag::Generate, refused(ActionsErrorKind::RunnerExists));
    assert!(
        hand.actions(RunnerTag::Find, Ok(ActionsAnswer::Runner(None)))
            .is_empty()
    );
    assert!(hand.wake.is_some());
    assert_eq!(hand.after(1), [REGISTER]);
}

#[test]
fn a_name_taken_by_another_scale_set_is_left_alone_and_the_runner_fails() {
    let (mut hand, _) = Hand::created();
    hand.actions(RunnerTag::Generate, refused(ActionsErrorKind::RunnerExists));
    let asked = hand.actions(RunnerTag::Find, runner(77, 99));
    assert_eq!(asked.len(), 1);
    assert!(asked[0].contains("RunnerNameTaken"), "{asked:?}");
    assert!(asked[0].contains(r#""phase":"Failed""#), "{asked:?}");
}

#[test]
fn a_service_that_goes_on_refusing_the_name_is_asked_ever_more_slowly() {
    let (mut hand, _) = Hand::created();
    let mut calls = 0;
    for _ in 0..600 {
        let asked = hand.after(1);
        let mut todo = asked;
        while let Some(line) = todo.pop() {
            calls += 1;
            todo = match line.split(' ').next() {
                Some("register") => {
                    hand.actions(RunnerTag::Generate, refused(ActionsErrorKind::RunnerExists))
                }
                Some("find") => hand.actions(RunnerTag::Find, runner(77, 11)),
                Some("remove") => hand.actions(RunnerTag::Remove, Ok(ActionsAnswer::Done)),
                _ => Vec::new(),
            };
        }
        if calls == 0 {
            calls = 1;
            hand.actions(RunnerTag::Generate, refused(ActionsErrorKind::RunnerExists));
        }
    }
    assert!(calls < 70, "{calls} calls in ten minutes");
}

#[test]
fn retry_after_is_honoured() {
    let (mut hand, _) = Hand::created();
    let mut busy = refused(ActionsErrorKind::Unavailable);
    if let Err(error) = &mut busy {
        error.retry_after = Some(std::time::Duration::from_secs(20));
    }
    assert!(hand.actions(RunnerTag::Generate, busy).is_empty());
    assert!(hand.after(19).iter().all(|line| line != REGISTER));
    assert!(hand.after(1).contains(&REGISTER.to_owned()));
}

#[test]
fn trouble_that_lasts_is_put_into_the_status_and_the_report() {
    let (mut hand, _) = Hand::created();
    hand.actions(RunnerTag::Generate, refused(ActionsErrorKind::Credentials));
    assert_eq!(
        hand.report.clone().unwrap().reason.unwrap().code,
        "CredentialsUnusable"
    );
    let mut written = Vec::new();
    for _ in 0..6 {
        for line in hand.after(1) {
            if line == REGISTER {
                hand.actions(RunnerTag::Generate, refused(ActionsErrorKind::Credentials));
            } else {
                written.push(line);
            }
        }
    }
    assert_eq!(written.len(), 1, "{written:?}");
    assert!(written[0].contains("CredentialsUnusable"), "{written:?}");
}

#[test]
fn a_jit_configuration_is_kept_while_its_secret_cannot_be_made() {
    let (mut hand, _) = Hand::created();
    hand.actions(RunnerTag::Generate, jit());
    hand.kube(
        RunnerTag::Secret(Verb::Create),
        kube_error(KubeErrorKind::Unavailable),
    );
    assert_eq!(hand.after(1), ["create Secret"]);
    hand.kube(
        RunnerTag::Secret(Verb::Create),
        kube_error(KubeErrorKind::Unanswered),
    );
    assert_eq!(hand.after(1), ["get Secret"]);
    let asked = hand.kube(
        RunnerTag::Secret(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    assert_eq!(asked, ["create Secret"]);
}

#[test]
fn a_secret_without_a_readable_id_is_made_again() {
    let mut hand = Hand::new(Origin::Found(Some(er(20, json!({})))));
    hand.tick();
    assert_eq!(
        hand.kube(
            RunnerTag::Pod(Verb::Read),
            kube_error(KubeErrorKind::NotFound)
        ),
        ["get Secret"]
    );
    let unreadable = answer(Object::Secret(secret(5, "forty-two")));
    assert_eq!(
        hand.kube(RunnerTag::Secret(Verb::Read), unreadable),
        ["delete Secret"]
    );
    let asked = hand.kube(
        RunnerTag::Secret(Verb::Delete),
        Ok(crate::messages::KubeAnswer::Deleted),
    );
    assert_eq!(asked, [REGISTER]);
}

#[test]
fn a_registration_whose_configuration_is_lost_is_removed_before_another_is_made() {
    let mut hand = Hand::new(Origin::Found(Some(er(20, known(json!({}))))));
    hand.tick();
    hand.kube(
        RunnerTag::Pod(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    let asked = hand.kube(
        RunnerTag::Secret(Verb::Read),
        kube_error(KubeErrorKind::NotFound),
    );
    assert_eq!(asked, ["remove 42"]);
    assert_eq!(
        hand.actions(RunnerTag::Remove, Ok(ActionsAnswer::Done)),
        [REGISTER]
    );
}

// === release ===

#[test]
fn a_release_asks_the_service_and_then_deletes_the_runner() {
    let (mut hand, _) = Hand::found(
        er(20, known(json!({ "ready": true }))),
        Some(pod_in(21, "Running", running(), running())),
    );
    assert_eq!(hand.tell(RunnerCommand::Release), ["remove 42"]);
    assert!(hand.tell(RunnerCommand::Release).is_empty());
    assert_eq!(
        hand.actions(RunnerTag::Remove, Ok(ActionsAnswer::Done)),
        ["delete EphemeralRunner"]
    );
}

#[test]
fn a_release_is_refused_once_when_the_service_has_given_the_runner_a_job() {
    let (mut hand, _) = Hand::found(
        er(20, known(json!({ "ready": true }))),
        Some(pod_in(21, "Running", running(), running())),
    );
    hand.tell(RunnerCommand::Release);
    let asked = hand.actions(
        RunnerTag::Remove,
        refused(ActionsErrorKind::JobStillRunning),
    );
    assert!(asked.is_empty());
    assert!(hand.report.take().unwrap().refused.is_some());
    hand.tick();
    assert_eq!(hand.report, None);
}

#[test]
fn a_release_of_a_runner_with_a_job_is_refused_without_asking() {
    let (mut hand, _) = Hand::found(
        er(20, with_job(json!({ "ready": true }))),
        Some(pod_in(21, "Running", running(), running())),
    );
    assert!(hand.tell(RunnerCommand::Release).is_empty());
    assert!(hand.report.unwrap().refused.is_some());
}

#[test]
fn a_job_recorded_while_the_service_is_asked_keeps_the_runner() {
    let (mut hand, _) = Hand::found(
        er(20, known(json!({ "ready": true }))),
        Some(pod_in(21, "Running", running(), running())),
    );
    hand.tell(RunnerCommand::Release);
    let started = er(22, with_job(json!({ "ready": true })));
    assert!(hand.sees_runner(started).is_empty());
    assert!(hand.report.take().unwrap().refused.is_some());
    for answer in [
        refused(ActionsErrorKind::JobStillRunning),
        Ok(ActionsAnswer::Done),
    ] {
        assert!(hand.actions(RunnerTag::Remove, answer).is_empty());
    }
    let (_, asked) = (hand.tick(), hand.after(100));
    assert!(asked.is_empty(), "{asked:?}");
}

/// While finalizers are put back that somebody took off, nothing else is looked at; the set is told
/// all the same.
#[test]
fn a_removal_that_a_recorded_job_was_faster_than_is_refused_whatever_else_is_to_be_done() {
    for verdict in [
        Ok(ActionsAnswer::Done),
        refused(ActionsErrorKind::JobStillRunning),
    ] {
        let (mut hand, _) = Hand::found(
            er(20, known(json!({ "ready": true }))),
            Some(pod_in(21, "Running", running(), running())),
        );
        hand.tell(RunnerCommand::Release);
        let mut started = with_job(json!({ "ready": true }));
        started["metadata"] = json!({ "finalizers": null });
        let asked = hand.sees_runner(er(22, started));
        assert!(asked[0].contains("finalizers"), "{asked:?}");
        hand.report = None;
        let asked = hand.actions(RunnerTag::Remove, verdict);
        assert!(asked.is_empty(), "{asked:?}");
        let refused = hand.report.take().and_then(|report| report.refused);
        assert!(refused.is_some());
    }
}

#[test]
fn a_release_before_the_registration_is_answered_waits_for_the_id() {
    let (mut hand, _) = Hand::created();
    assert!(hand.tell(RunnerCommand::Release).is_empty());
    let asked = hand.actions(RunnerTag::Generate, jit());
    assert_eq!(asked.len(), 1);
    assert!(
        asked[0].contains(r#""runnerId":42"#),
        "on record first: {asked:?}"
    );
    let written = er(14, known(json!({})));
    let asked = hand.kube(
        RunnerTag::Runner(Verb::Patch),
        answer(Object::EphemeralRunner(written)),
    );
    assert_eq!(asked, ["remove 42"]);
}

#[test]
fn a_release_of_a_runner_that_was_never_registered_asks_nobody() {
    let (mut hand, _) = Hand::created();
    hand.actions(RunnerTag::Generate, refused(ActionsErrorKind::Credentials));
    assert_eq!(
        hand.tell(RunnerCommand::Release),
        ["delete EphemeralRunner"]
    );
}

#[test]
fn a_release_of_a_runner_that_may_be_registered_looks_it_up_by_name() {
    let (mut hand, _) = Hand::created();
    hand.actions(RunnerTag::Generate, refused(ActionsErrorKind::Unavailable));
    hand.tell(RunnerCommand::Release);
    assert_eq!(hand.after(2), [FIND]);
    assert_eq!(
        hand.actions(RunnerTag::Find, Ok(ActionsAnswer::Runner(None))),
        ["delete EphemeralRunner"]
    );
}
