//! A runner that a new leader finds in its first lists: what these show is not read again, and
//! what they do not show ends nothing.

use serde_json::json;

use super::objects::*;
use crate::actors::core::cached::Verb;
use crate::actors::runner::{Origin, RunnerTag};
use crate::messages::{KubeErrorKind, Object};

fn listed(runner: serde_json::Value, pod: bool) -> Vec<String> {
    let pod = pod.then(|| pod_in(21, "Running", running(), running()));
    let runner = er(20, runner);
    Hand::new(Origin::Listed { runner, pod }).tick()
}

#[test]
fn of_a_runner_whose_pod_is_listed_and_whose_id_is_on_record_nothing_is_read() {
    for runner in [
        known(json!({ "ready": true })),
        with_job(json!({ "ready": true, "runnerId": 42, "runnerName": "r" })),
    ] {
        let asked = listed(runner, true);
        assert!(
            asked.iter().all(|line| !line.starts_with("get")),
            "{asked:?}"
        );
    }
}

#[test]
fn the_secret_is_read_where_it_alone_knows_the_id() {
    assert_eq!(listed(json!({}), true)[0], "get Secret");
}

#[test]
fn of_a_runner_without_a_pod_only_the_secret_is_read() {
    assert_eq!(listed(json!({}), false), ["get Secret"]);
}

#[test]
fn that_no_pod_was_listed_ends_nothing_before_it_was_looked_for() {
    for runner in [
        with_job(json!({})),
        known(json!({ "phase": "Succeeded" })),
        deleted(known(json!({}))),
    ] {
        assert_eq!(listed(runner.clone(), false)[0], "get Pod", "{runner}");
    }
}

#[test]
fn a_pod_made_after_the_list_is_found_when_it_would_be_made() {
    let runner = er(20, json!({}));
    let mut hand = Hand::new(Origin::Listed { runner, pod: None });
    hand.tick();
    let asked = hand.kube(
        RunnerTag::Secret(Verb::Read),
        answer(Object::Secret(secret(2, "42"))),
    );
    assert_eq!(asked, ["create Pod"]);
    hand.kube(
        RunnerTag::Pod(Verb::Create),
        kube_error(KubeErrorKind::AlreadyExists),
    );
    let asked = hand.after(60);
    assert_eq!(asked, ["get Pod"]);
}
