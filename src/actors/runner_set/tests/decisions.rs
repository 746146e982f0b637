//! Single decisions, row by row: a set and its runners as a process finds them, and what it
//! asks for; or what it asks for when one thing has changed after that.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::actors::core::cached::Verb;
use crate::actors::runner::view;
use crate::actors::runner_set::{RunnerSetCommand, RunnerSetMachine};
use crate::actors::{EffectOf, Machine};
use crate::api::{EphemeralRunner, EphemeralRunnerSet};
use crate::clock::{Timestamp, after};
use crate::messages::{
    Effect, Input, KubeRequest, Launch, Object, RunnerDirective, RunnerReport, RunnerState,
};
use crate::resources::ControllerSettings;

fn now() -> Timestamp {
    after(Timestamp::UNIX_EPOCH, 1_800_000_000)
}

/// A set of so many replicas under a patch, with some of its status.
fn set(replicas: i64, patch: i64, status: &Value) -> Value {
    let mut set = json!({
        "apiVersion": "actions.github.com/v1alpha1", "kind": "EphemeralRunnerSet",
        "metadata": { "name": "pool", "namespace": "arc-runners", "uid": "set-uid",
            "resourceVersion": "5",
            "finalizers": ["ephemeralrunnerset.actions.github.com/finalizer"] },
        "spec": { "replicas": replicas, "patchID": patch, "actionableRevision": 2 },
        "status": { "currentReplicas": 0, "phase": "Running", "appliedActionableRevision": 2 }
    });
    json_patch::merge(&mut set["status"], status);
    set
}

/// A runner that was made under a patch and revision 2, so many seconds ago.
fn runner(name: &str, patch: i64, age: i64, status: &Value) -> Value {
    json!({
        "apiVersion": "actions.github.com/v1alpha1", "kind": "EphemeralRunner",
        "metadata": { "name": name, "namespace": "arc-runners", "uid": format!("uid-{name}"),
            "resourceVersion": "7", "creationTimestamp": after(now(), -age),
            "annotations": {
                "actions.github.com/patch-id": patch.to_string(),
                "actions.github.com/actionable-revision": "2" } },
        "spec": { "githubConfigUrl": "https://github.com/acme", "githubConfigSecret": "gh",
            "runnerScaleSetId": 11 },
        "status": status
    })
}

fn idle(name: &str, patch: i64) -> Value {
    runner(
        name,
        patch,
        60,
        &json!({ "phase": "Pending", "runnerId": 9 }),
    )
}

fn busy(name: &str, patch: i64) -> Value {
    runner(
        name,
        patch,
        60,
        &json!({ "phase": "Running", "runnerId": 9, "jobId": "j" }),
    )
}

fn over(name: &str, patch: i64, phase: &str) -> Value {
    runner(name, patch, 60, &json!({ "phase": phase }))
}

fn going(mut runner: Value) -> Value {
    runner["metadata"]["deletionTimestamp"] = json!(now());
    runner
}

fn of_revision(mut runner: Value, revision: Option<i64>) -> Value {
    let key = "actions.github.com/actionable-revision";
    runner["metadata"]["annotations"][key] = json!(revision.map(|number| number.to_string()));
    if revision.is_none() {
        runner["metadata"]["annotations"] = json!({});
    }
    runner
}

type Effects = Vec<EffectOf<RunnerSetMachine>>;

/// A process that has found the set and its runners; and what it asks for.
struct Found {
    machine: RunnerSetMachine,
    effects: Effects,
}

impl Found {
    fn new(set: &Value, runners: &[Value]) -> Self {
        let settings = Arc::new(ControllerSettings::default());
        let mut machine = RunnerSetMachine::new("arc-runners", "pool", settings);
        machine.step(now(), Input::Observed(read_set(set)));
        for runner in runners {
            let runner: EphemeralRunner = serde_json::from_value(runner.clone()).unwrap();
            let report = as_it_says_itself(&runner);
            machine.step(now(), Input::Observed(runner.into()));
            machine.step(now(), Input::Report(report));
        }
        let effects = machine.step(now(), Input::Command(RunnerSetCommand::Synced));
        Self { machine, effects }
    }

    /// The set's spec is patched.
    fn then(&mut self, set: &Value, version: u64) -> Vec<String> {
        let mut set = set.clone();
        set["metadata"]["resourceVersion"] = json!(version.to_string());
        shown(&self.machine.step(now(), Input::Observed(read_set(&set))))
    }

    fn hears(&mut self, runner: &Value, change: impl FnOnce(&mut RunnerReport)) -> Vec<String> {
        let runner: EphemeralRunner = serde_json::from_value(runner.clone()).unwrap();
        let mut report = as_it_says_itself(&runner);
        change(&mut report);
        shown(&self.machine.step(now(), Input::Report(report)))
    }
}

/// A runner that is over has neither pod nor Secret; others may.
fn as_it_says_itself(runner: &EphemeralRunner) -> RunnerReport {
    let report = view(runner);
    RunnerReport {
        holds_resources: !matches!(
            report.state,
            RunnerState::Finished | RunnerState::Failed | RunnerState::Outdated
        ),
        launch: Launch::Done,
        ..report
    }
}

fn read_set(set: &Value) -> Object {
    let set: EphemeralRunnerSet = serde_json::from_value(set.clone()).unwrap();
    set.into()
}

/// What is asked for, in few words: counts, reads and names of new runners are left out.
fn shown(effects: &Effects) -> Vec<String> {
    let lines = effects.iter().filter_map(|effect| match effect {
        Effect::Kube(_, KubeRequest::Create(Object::EphemeralRunner(runner))) => {
            let stamps = runner.metadata.annotations.clone().unwrap();
            let stamp = |key: &str| stamps[&format!("actions.github.com/{key}")].clone();
            let (patch, revision) = (stamp("patch-id"), stamp("actionable-revision"));
            Some(format!("create under {patch}, revision {revision}"))
        }
        Effect::Kube(_, KubeRequest::Patch { body, lock, .. }) => {
            let marks: Vec<String> = body["status"]
                .as_object()?
                .iter()
                .filter(|(key, _)| !key.contains("Runners") && *key != "currentReplicas")
                .map(|(key, value)| format!("{key} = {value}"))
                .collect();
            let lock = lock.as_ref().map(|version| format!(" at {version}"));
            (!marks.is_empty()).then(|| marks.join(", ") + &lock.unwrap_or_default())
        }
        Effect::Kube(_, KubeRequest::Get(_)) => None,
        Effect::Kube(_, request) => Some(format!("{request:?}")),
        Effect::Child(RunnerDirective::Tell { name, command }) => {
            Some(format!("{command:?} {name}"))
        }
        _ => None,
    });
    lines.collect()
}

const NOTHING: [&str; 0] = [];

#[test]
fn what_a_new_process_makes_of_what_it_finds() {
    let none = json!({});
    let counted = |patch: i64| json!({ "finishedRunnerCleanupPatchID": patch });
    let gone = |name: &str| going(over(name, 3, "Succeeded"));
    let table: Vec<(&str, Value, Vec<Value>, Vec<&str>)> = vec![
        // 3.3, 3.5: scale-up and its stamps
        (
            "as many as wanted",
            set(2, 3, &none),
            vec![idle("a", 3), busy("b", 2)],
            vec![],
        ),
        (
            "one is missing under a patch that was served",
            set(2, 3, &none),
            vec![idle("a", 3)],
            vec!["create under 3, revision 2"],
        ),
        (
            "one is missing under a new patch: it carries the patch",
            set(2, 7, &none),
            vec![idle("a", 6)],
            vec!["create under 7, revision 2"],
        ),
        (
            "three are missing under a new patch: the last one waits for the others",
            set(4, 7, &none),
            vec![idle("a", 6)],
            vec!["create under 6, revision 2", "create under 6, revision 2"],
        ),
        (
            "the first patch of all",
            set(2, 1, &none),
            vec![],
            vec!["create under 0, revision 2"],
        ),
        (
            "the last id",
            set(2, 2_147_483_647, &none),
            vec![idle("a", 2_147_483_646)],
            vec!["create under 2147483647, revision 2"],
        ),
        (
            "the first id again",
            set(2, 1, &none),
            vec![idle("a", 2_147_483_647)],
            vec!["create under 1, revision 2"],
        ),
        // 3.5: capacity
        (
            "one in deletion counts while it holds a pod",
            set(2, 3, &none),
            vec![idle("a", 3), going(busy("b", 3))],
            vec![],
        ),
        (
            "one that only waits for its deregistration does not",
            set(2, 3, &none),
            vec![idle("a", 3), gone("b")],
            vec!["create under 3, revision 2"],
        ),
        // 3.5: the marker
        (
            "counted under this patch: nobody knows whose places are free",
            set(3, 5, &counted(5)),
            vec![idle("a", 5)],
            vec![],
        ),
        (
            "counted under another",
            set(2, 6, &counted(5)),
            vec![idle("a", 5)],
            vec!["create under 6, revision 2"],
        ),
        (
            "counted under 0, which holds nothing",
            set(2, 0, &counted(0)),
            vec![idle("a", 5)],
            vec!["create under 0, revision 2"],
        ),
        (
            "an earlier count does not hold 0 back",
            set(2, 0, &counted(5)),
            vec![idle("a", 5)],
            vec!["create under 0, revision 2"],
        ),
        // 3.4: finished runners
        (
            "a finished one under a patch that was served stays",
            set(2, 3, &none),
            vec![idle("a", 3), over("b", 2, "Succeeded")],
            vec![],
        ),
        (
            "a finished one under a new patch is put on record first",
            set(3, 4, &none),
            vec![idle("a", 3), over("b", 2, "Succeeded")],
            vec!["finishedRunnerCleanupPatchID = 4 at 5"],
        ),
        (
            "it is on record: it goes, and nothing else on this input",
            set(3, 4, &counted(4)),
            vec![idle("a", 3), over("b", 2, "Succeeded")],
            vec!["Delete b"],
        ),
        (
            "one that failed with a job is finished",
            set(3, 4, &counted(4)),
            vec![idle("a", 3), {
                let failed = json!({ "phase": "Failed", "jobId": "j" });
                runner("b", 2, 60, &failed)
            }],
            vec!["Delete b"],
        ),
        (
            "0 needs no record where none is",
            set(2, 0, &none),
            vec![idle("a", 3), over("b", 2, "Succeeded")],
            vec!["Delete b"],
        ),
        (
            "0 takes a record back",
            set(2, 0, &counted(4)),
            vec![idle("a", 3), over("b", 2, "Succeeded")],
            vec!["finishedRunnerCleanupPatchID = 0 at 5"],
        ),
        // 3.6: scale-down
        (
            "nothing is removed under another patch than 0",
            set(0, 4, &none),
            vec![idle("a", 3), idle("b", 3)],
            vec![],
        ),
        (
            "surplus goes under 0, the oldest first, and no busy one",
            set(1, 0, &none),
            vec![
                busy("a", 3),
                idle("b", 3),
                runner("c", 3, 90, &json!({ "phase": "Pending", "runnerId": 8 })),
            ],
            vec!["Release c", "Release b"],
        ),
        (
            "one without an id is left alone while it is young",
            set(0, 0, &none),
            vec![runner("a", 3, 119, &json!({}))],
            vec![],
        ),
        (
            "and goes when it is two minutes old",
            set(0, 0, &none),
            vec![runner("a", 3, 120, &json!({}))],
            vec!["Release a"],
        ),
        // 3.7: failed runners
        (
            "a failed one is no capacity, and one is kept",
            set(2, 3, &none),
            vec![idle("a", 3), over("b", 3, "Failed")],
            vec!["create under 3, revision 2"],
        ),
        (
            "of two, the newest",
            set(0, 3, &none),
            vec![
                over("a", 3, "Failed"),
                runner("b", 3, 30, &json!({ "phase": "Failed" })),
            ],
            vec!["Delete a"],
        ),
        // 4.1: revisions
        (
            "a new revision lets idle ones go first",
            set(2, 3, &json!({ "appliedActionableRevision": 1 })),
            vec![of_revision(idle("a", 3), Some(1)), busy("b", 3)],
            vec!["Release a"],
        ),
        (
            "without idle ones it is applied, on the copy it was decided on",
            set(2, 3, &json!({ "appliedActionableRevision": 1 })),
            vec![of_revision(busy("b", 3), Some(1))],
            vec!["appliedActionableRevision = 2, finishedRunnerCleanupPatchID = 0 at 5"],
        ),
        (
            "applied, it takes an older verdict back",
            set(
                2,
                3,
                &json!({ "appliedActionableRevision": 1, "phase": "Outdated" }),
            ),
            vec![of_revision(over("b", 3, "Outdated"), Some(1))],
            vec![
                "appliedActionableRevision = 2, finishedRunnerCleanupPatchID = 0, \
                 phase = \"Running\" at 5",
            ],
        ),
        (
            "and not one of its own",
            set(2, 3, &json!({ "appliedActionableRevision": 1 })),
            vec![over("b", 3, "Outdated")],
            vec![
                "appliedActionableRevision = 2, finishedRunnerCleanupPatchID = 0, \
                 phase = \"Outdated\" at 5",
            ],
        ),
        (
            "an older target changes nothing",
            set(1, 3, &json!({ "appliedActionableRevision": 9 })),
            vec![idle("a", 3)],
            vec![],
        ),
        (
            "what is made under an older target is judged by what is applied",
            set(2, 3, &json!({ "appliedActionableRevision": 9 })),
            vec![idle("a", 3)],
            vec!["create under 3, revision 9"],
        ),
        // 4.2: verdicts
        (
            "a verdict about the applied revision lets idle ones go, and makes none",
            set(5, 3, &none),
            vec![over("a", 3, "Outdated"), idle("b", 3), busy("c", 3)],
            vec!["Release b", "phase = \"Outdated\" at 5"],
        ),
        (
            "one about a newer revision stands too",
            set(5, 3, &none),
            vec![of_revision(over("a", 3, "Outdated"), Some(3))],
            vec!["phase = \"Outdated\" at 5"],
        ),
        (
            "a stale one goes, and the decision waits",
            set(2, 3, &none),
            vec![of_revision(over("a", 3, "Outdated"), Some(1)), idle("b", 3)],
            vec!["Delete a"],
        ),
        (
            "one without a stamp is stale where something was applied",
            set(1, 3, &none),
            vec![of_revision(over("a", 3, "Outdated"), None), idle("b", 3)],
            vec!["Delete a"],
        ),
        (
            "a parked set has its finished runners go and keeps the rejected one",
            set(0, 0, &json!({ "phase": "Outdated" })),
            vec![over("a", 3, "Outdated"), over("b", 3, "Succeeded")],
            vec!["Delete b"],
        ),
        (
            "a parked set whose rejected runner a person has deleted stays parked",
            set(0, 0, &json!({ "phase": "Outdated" })),
            vec![],
            vec![],
        ),
    ];
    for (name, set, runners, expected) in table {
        let found = Found::new(&set, &runners);
        assert_eq!(shown(&found.effects), expected, "{name}");
    }
}

#[test]
fn a_set_that_never_heard_of_revisions_is_taken_over_as_it_is() {
    let mut set = set(3, 7, &json!({}));
    set["spec"]["actionableRevision"] = Value::Null;
    set["status"] = Value::Null;
    set["metadata"]["annotations"] = json!({ "actions.github.com/integrity-hash": "0a1b" });
    let runners = [
        of_revision(idle("a", 0), None),
        of_revision(busy("b", 0), None),
        of_revision(runner("c", 0, 9, &json!({})), None),
    ];
    let mut found = Found::new(&set, &runners);
    assert_eq!(
        shown(&found.effects),
        ["phase = \"Running\""],
        "no bump, no deletion"
    );
    for (version, patch) in [(6, 7), (7, 8), (8, 9)] {
        set["spec"]["patchID"] = json!(patch);
        assert_eq!(found.then(&set, version), NOTHING);
    }
    // its verdict counts while nothing was applied
    let mut found = Found::new(&set, &[of_revision(over("a", 0, "Outdated"), None)]);
    assert!(shown(&found.effects)[0].contains("phase = \"Outdated\""));
    assert_eq!(found.then(&set, 9), NOTHING);
}

#[test]
fn a_decision_is_due_for_a_new_patch_or_a_lost_runner_and_otherwise_not() {
    let none = json!({});
    let finished = over("c", 2, "Succeeded");
    let failed = over("b", 3, "Failed");
    let counted = "finishedRunnerCleanupPatchID";
    // everything is in its place, so that what is asked for follows from what comes
    let found = || {
        let runners = [idle("a", 3), idle("b", 3), busy("c", 2)];
        let mut found = Found::new(&set(3, 3, &none), &runners);
        assert_eq!(shown(&found.effects), NOTHING);
        // the counts are on record
        let status = json!({ "currentReplicas": 3, "pendingEphemeralRunners": 2,
            "runningEphemeralRunners": 1, "failedEphemeralRunners": 0 });
        let answer: EphemeralRunnerSet = serde_json::from_value(set(3, 3, &status)).unwrap();
        let answer = crate::messages::KubeAnswer::Object(answer.into());
        let tag = crate::actors::runner_set::RunnerSetTag::RunnerSet(Verb::Patch);
        assert_eq!(
            shown(&found.machine.step(now(), Input::Kube(tag, Ok(answer)))),
            NOTHING
        );
        found
    };

    let mut served = found();
    assert_eq!(
        served.hears(&finished, |_| ()),
        NOTHING,
        "the patch has been served"
    );
    assert_eq!(served.then(&set(3, 3, &none), 6), NOTHING, "the same again");

    let mut lost = found();
    lost.hears(&finished, |_| ());
    let asked = lost.hears(&failed, |_| ());
    assert_eq!(asked, [format!("{counted} = 3 at 5")]);

    let mut patched = found();
    patched.hears(&finished, |_| ());
    assert_eq!(
        patched.then(&set(3, 4, &none), 6),
        [format!("{counted} = 4 at 6")]
    );

    // a number that a runner carries already is another patch all the same
    let mut again = found();
    again.then(&set(3, 2, &none), 6);
    assert_eq!(
        again.then(&set(4, 3, &none), 7),
        ["create under 3, revision 2"]
    );
}
