//! Single inputs to a set, and what it answers.

use std::sync::Arc;

use serde_json::json;

use crate::actors::runner::view;
use crate::actors::runner_set::{RunnerSetCommand, RunnerSetMachine};
use crate::actors::{EffectOf, Machine};
use crate::api::{EphemeralRunner, EphemeralRunnerSet};
use crate::clock::{Timestamp, after};
use crate::messages::{
    Effect, Input, Kind, KubeRequest, Object, ObjectRef, RunnerCommand, RunnerDirective,
    RunnerReport, RunnerState,
};
use crate::resources::ControllerSettings;

fn now() -> Timestamp {
    after(Timestamp::UNIX_EPOCH, 1_800_000_000)
}

fn set(replicas: i64) -> Object {
    let set: EphemeralRunnerSet = serde_json::from_value(json!({
        "apiVersion": "actions.github.com/v1alpha1", "kind": "EphemeralRunnerSet",
        "metadata": { "name": "pool", "namespace": "arc-runners", "uid": "set-uid",
            "resourceVersion": "5",
            "finalizers": ["ephemeralrunnerset.actions.github.com/finalizer"] },
        "spec": { "replicas": replicas, "patchID": 3 },
        "status": { "currentReplicas": replicas, "pendingEphemeralRunners": replicas,
            "runningEphemeralRunners": 0, "failedEphemeralRunners": 0, "phase": "Running" }
    }))
    .unwrap();
    set.into()
}

fn runner(name: &str) -> EphemeralRunner {
    serde_json::from_value(json!({
        "apiVersion": "actions.github.com/v1alpha1", "kind": "EphemeralRunner",
        "metadata": { "name": name, "namespace": "arc-runners", "uid": format!("uid-{name}"),
            "resourceVersion": "7", "creationTimestamp": now(),
            "annotations": { "actions.github.com/patch-id": "3" } },
        "spec": { "githubConfigUrl": "https://github.com/acme", "githubConfigSecret": "gh",
            "runnerScaleSetId": 11 }
    }))
    .unwrap()
}

fn machine() -> RunnerSetMachine {
    RunnerSetMachine::new(
        "arc-runners",
        "pool",
        Arc::new(ControllerSettings::default()),
    )
}

fn synced() -> Input<super::super::RunnerSetTag, RunnerSetCommand, RunnerReport> {
    Input::Command(RunnerSetCommand::Synced)
}

fn children(effects: &[EffectOf<RunnerSetMachine>]) -> Vec<&RunnerDirective> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Child(directive) => Some(directive),
            _ => None,
        })
        .collect()
}

fn creates(effects: &[EffectOf<RunnerSetMachine>]) -> usize {
    effects
        .iter()
        .filter(|effect| matches!(effect, Effect::Kube(_, KubeRequest::Create(_))))
        .count()
}

#[test]
fn nothing_is_decided_before_all_runners_of_the_first_list_are_known() {
    let mut machine = machine();
    assert!(machine.step(now(), Input::Observed(set(2))).is_empty());
    let found = runner("pool-runner-aaaaa");
    let effects = machine.step(now(), Input::Observed(found.clone().into()));
    assert_eq!(
        effects,
        [Effect::Child(RunnerDirective::Observe(Arc::new(found)))]
    );
    let effects = machine.step(now(), synced());
    assert_eq!(creates(&effects), 1, "one is there: {effects:?}");
}

#[test]
fn a_set_that_nobody_delivered_is_read() {
    let effects = machine().step(now(), synced());
    let target = ObjectRef::new(Kind::EphemeralRunnerSet, "arc-runners", "pool");
    assert!(effects.iter().any(
        |effect| matches!(effect, Effect::Kube(_, KubeRequest::Get(read)) if *read == target)
    ));
}

#[test]
fn a_late_event_about_a_runner_that_is_gone_makes_no_actor() {
    let mut machine = machine();
    machine.step(now(), Input::Observed(set(1)));
    let gone = runner("pool-runner-aaaaa");
    machine.step(now(), Input::Observed(gone.clone().into()));
    machine.step(now(), synced());
    let last = RunnerReport {
        state: RunnerState::Gone,
        ..view(&gone)
    };
    machine.step(now(), Input::Report(last));
    let effects = machine.step(now(), Input::Observed(gone.into()));
    assert!(children(&effects).is_empty(), "{effects:?}");
}

#[test]
fn a_set_started_anew_hears_of_its_runners_from_their_actors() {
    let mut machine = machine();
    machine.step(now(), Input::Observed(set(1)));
    machine.step(now(), Input::Report(view(&runner("pool-runner-aaaaa"))));
    let effects = machine.step(now(), synced());
    assert_eq!(creates(&effects), 0, "{effects:?}");
}

#[test]
fn a_repeated_message_asks_for_nothing_more() {
    let mut machine = machine();
    machine.step(now(), Input::Observed(set(1)));
    let found = runner("pool-runner-aaaaa");
    machine.step(now(), Input::Observed(found.clone().into()));
    machine.step(now(), synced());
    let report = view(&found);
    machine.step(now(), Input::Report(report.clone()));
    for _ in 0..3 {
        assert!(machine.step(now(), Input::Observed(set(1))).is_empty());
        assert!(
            machine
                .step(now(), Input::Report(report.clone()))
                .is_empty()
        );
        assert!(machine.step(now(), Input::Tick).is_empty());
    }
}

#[test]
fn a_runner_that_does_not_answer_is_told_again() {
    let mut machine = machine();
    machine.step(now(), Input::Observed(set(0)));
    let found = runner("pool-runner-aaaaa");
    machine.step(now(), Input::Observed(found.clone().into()));
    machine.step(now(), synced());
    let failed = |name: &str| RunnerReport {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        state: RunnerState::Failed,
        ..view(&found)
    };
    machine.step(now(), Input::Observed(runner("pool-runner-bbbbb").into()));
    machine.step(now(), Input::Report(failed("pool-runner-aaaaa")));
    let delete = RunnerDirective::Tell {
        name: "pool-runner-aaaaa".to_owned(),
        command: RunnerCommand::Delete,
    };
    let effects = machine.step(now(), Input::Report(failed("pool-runner-bbbbb")));
    assert_eq!(children(&effects), [&delete], "one is kept");
    let effects = machine.step(after(now(), 60), Input::Tick);
    assert_eq!(children(&effects), [&delete]);
}
