//! What a person is told about revisions: which one is wanted and which applied while they
//! differ, and why a scale set is parked.

use std::sync::Arc;

use serde_json::json;

use super::world::{POOL, RUNNERS, World};
use crate::actors::listener::tests::cluster::Fault;
use crate::actors::scale_set::ScaleSetCommand;
use crate::api::AutoscalingListenerPhase as ListenerPhase;
use crate::api::AutoscalingRunnerSetPhase as Phase;
use crate::api::{CRD_COMMAND, Field};
use crate::messages::{Kind, KubeErrorKind, KubeRequest, Rejected};

const LAST_WORDS: &str = "the Actions service rejected the runner's version \
                          (exit code 7: version 2.300 is deprecated)";
const TOLD: &str = "runner pool-x7 of revision 1: the Actions service rejected the runner's version \
                    (exit code 7: version 2.300 is deprecated): \
                    change the runner template (spec.template) to a newer runner image";

fn image(world: &mut World, image: &str) {
    world.edit(|ars| ars["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image));
}

/// What the runner set's actor writes and says when a runner of that revision was rejected.
fn reject(world: &mut World, revision: i64, runner: &str, message: &str) {
    world.rejected = Some(Rejected {
        runner: runner.to_owned(),
        message: message.to_owned(),
    });
    world.edit_set(|set| {
        set["status"] = json!({
            "currentReplicas": 0, "phase": "Outdated", "appliedActionableRevision": revision,
        });
    });
    world.pass(5);
}

fn parked() -> World {
    let mut world = World::settled();
    reject(&mut world, 1, "pool-x7", LAST_WORDS);
    assert_eq!(world.phase(), Some(Phase::Outdated));
    world
}

/// The messages of the events of that reason.
fn said(world: &World, reason: &str) -> Vec<String> {
    let events = world.events.iter().filter(|note| note.reason == reason);
    events.map(|note| note.message.clone()).collect()
}

#[test]
fn while_a_revision_is_applied_both_are_named() {
    let mut world = World::settled();
    world.applies = false;
    image(&mut world, "runner:2");
    world.pass(5);
    let told = "False ApplyingRevision: revision 2 of the runner spec is wanted, \
                revision 1 is applied: first all runners without a job are replaced";
    assert_eq!(world.condition("RunnersReady"), told);
    assert_eq!(world.condition("Ready"), told);
    // what keeps it from being applied is named beside
    image(&mut world, "runner:3");
    world.pass(5);
    let told = world.condition("RunnersReady");
    assert!(
        told.contains("revision 3 of the runner spec is wanted, revision 1"),
        "{told}"
    );

    world.applies = true;
    world.play_runner_set();
    world.pass(5);
    assert_eq!(
        world.condition("RunnersReady"),
        "True RunnersReady: runners can be made"
    );
    assert!(world.condition("Ready").starts_with("True"));
}

#[test]
fn a_revision_that_cannot_be_published_is_named_with_the_reason() {
    let mut world = World::settled();
    world.cluster.sabotage(|request| {
        let patch = matches!(request, KubeRequest::Patch { .. });
        (patch && request.kind() == Kind::EphemeralRunnerSet)
            .then_some(Fault::Refuse(KubeErrorKind::Forbidden))
    });
    image(&mut world, "runner:2");
    world.pass(60);
    let told = world.condition("RunnersReady");
    assert!(
        told.starts_with(
            "False RunnerSetNotApplied: revision 2 of the runner spec is wanted, \
             revision 1 is applied; EphemeralRunnerSet runners/pool: "
        ),
        "{told}"
    );
}

#[test]
fn why_it_is_parked_is_told_with_the_runner_its_last_words_and_the_remedy() {
    let remedy = "change the runner template (spec.template) to a newer runner image";
    // (what, the runner's message, what is told of it)
    let table = [
        ("usually", LAST_WORDS, LAST_WORDS.to_owned()),
        (
            "nothing is known",
            "",
            "the Actions service rejects the runner's version".to_owned(),
        ),
        (
            "it names a credential",
            "exit code 7: ghs_secret was refused",
            "exit code 7: [redacted] was refused".to_owned(),
        ),
    ];
    for (what, message, told) in table {
        let mut world = World::settled();
        reject(&mut world, 1, "pool-x7", message);
        let sentence = format!("runner pool-x7 of revision 1: {told}: {remedy}");
        for (kind, reason) in [
            ("RunnersReady", "Outdated"),
            ("ListenerReady", "Stopped"),
            ("Ready", "Outdated"),
        ] {
            let expected = format!("False {reason}: {sentence}");
            assert_eq!(world.condition(kind), expected, "{what}");
        }
        assert_eq!(said(&world, "Parked"), [sentence], "{what}");
    }
}

#[test]
fn the_first_verdict_told_stays_through_others_the_loss_of_the_runner_and_a_restart() {
    let mut world = parked();
    let writes = world.cluster.writes.len();
    let unchanged = |world: &World, what: &str| {
        let told = world.condition("RunnersReady");
        assert_eq!(told, format!("False Outdated: {TOLD}"), "{what}");
        assert_eq!(said(world, "Parked"), [TOLD], "{what}");
    };
    reject(&mut world, 1, "pool-a1", "another one");
    unchanged(&world, "another runner is rejected");
    world.rejected = None;
    world.play_runner_set();
    world.pass(5);
    unchanged(&world, "a person deletes the runner");
    world.restart();
    world.pass(60);
    unchanged(&world, "another controller looks");
    let ours = &world.cluster.writes[writes..];
    assert!(ours.is_empty(), "{ours:#?}");
}

#[test]
fn a_second_verdict_is_told_anew() {
    let mut world = parked();
    image(&mut world, "runner:2");
    world.pass(5);
    assert_eq!(world.phase(), Some(Phase::Running));
    reject(&mut world, 2, "pool-b2", "exit code 7: still too old");
    assert_eq!(world.phase(), Some(Phase::Outdated));
    let told = world.condition("RunnersReady");
    assert!(
        told.contains("runner pool-b2 of revision 2: exit code 7: still too old"),
        "{told}"
    );
    assert_eq!(said(&world, "Parked").len(), 2);
}

#[test]
fn the_recovery_is_told_with_the_revision_and_what_was_rejected() {
    let mut world = parked();
    image(&mut world, "runner:2");
    world.pass(5);
    let because = "runner pool-x7 of revision 1: the Actions service rejected the runner's version \
                   (exit code 7: version 2.300 is deprecated)";
    let recovered = format!(
        "runners are made again: revision 2 of the runner spec takes the place of the one that \
         was rejected ({because})"
    );
    assert_eq!(said(&world, "Recovered"), [recovered]);

    let mut world = parked();
    world
        .cluster
        .delete(Kind::EphemeralRunnerSet, RUNNERS, POOL);
    world.pass(5);
    let recovered =
        format!("runners are made again: the runner set that was rejected is gone ({because})");
    assert_eq!(said(&world, "Recovered"), [recovered]);
}

#[test]
fn a_correction_that_cannot_be_published_is_pending_and_wakes_no_listener() {
    let mut world = parked();
    world.cluster.sabotage(|request| {
        let patch = matches!(request, KubeRequest::Patch { .. });
        (patch && request.kind() == Kind::EphemeralRunnerSet)
            .then_some(Fault::Refuse(KubeErrorKind::Unavailable))
    });
    image(&mut world, "runner:2");
    world.pass(60);
    assert_eq!(world.phase(), Some(Phase::Pending));
    assert!(!world.is_observed());
    assert_eq!(world.al().spec.phase, Some(ListenerPhase::Stopped));
    assert!(said(&world, "Recovered").is_empty());
    world.cluster.stop_sabotage();
    world.pass(60);
    assert_eq!(world.phase(), Some(Phase::Running));
    assert_eq!(world.al().spec.phase, Some(ListenerPhase::Running));
    assert_eq!(said(&world, "Recovered").len(), 1);
    assert!(world.is_observed());
}

/// Where a write about the runner set is refused or its answer is lost, the copy of it is not
/// known for a moment. That is no verdict, neither way.
#[test]
fn a_moment_of_ignorance_wakes_no_listener() {
    for kind in [KubeErrorKind::Conflict, KubeErrorKind::Unanswered] {
        let mut world = parked();
        let mut faults = 1;
        world.cluster.sabotage(move |request| {
            let patch = matches!(request, KubeRequest::Patch { .. });
            let hit = patch && request.kind() == Kind::EphemeralRunnerSet && faults > 0;
            faults -= usize::from(hit);
            hit.then_some(Fault::Refuse(kind))
        });
        let before = world.cluster.writes.len();
        // a late target of the listener, which is taken back
        world.edit_set(|set| set["spec"]["replicas"] = json!(3));
        world.pass(60);
        assert_eq!(world.ers().spec.replicas, Some(0));
        let writes = &world.cluster.writes[before..];
        let other: Vec<&String> = writes
            .iter()
            .filter(|write| !write.contains("EphemeralRunnerSet"))
            .filter(|write| !write.contains("status"))
            .collect();
        assert!(other.is_empty(), "{kind:?}: {other:#?}");
        assert_eq!(world.phase(), Some(Phase::Outdated), "{kind:?}");
        assert!(said(&world, "Recovered").is_empty(), "{kind:?}");
    }
}

fn lack(world: &mut World, fields: &[&str]) {
    let missing = Field::all().filter(|field| fields.contains(&field.to_string().as_str()));
    world.command(ScaleSetCommand::FieldsMissing(Arc::new(missing.collect())));
    world.pass(5);
}

#[test]
fn fields_that_the_cluster_lacks_are_named_once_with_the_cure_and_hold_nothing_up() {
    let mut world = World::settled();
    assert_eq!(world.condition("FieldsServed"), "absent");
    for _ in 0..3 {
        lack(&mut world, &["EphemeralRunner.status.jobResult"]);
    }
    let told = world.condition("FieldsServed");
    assert!(told.starts_with("False FieldsMissing"), "{told}");
    assert!(told.contains("EphemeralRunner.status.jobResult"), "{told}");
    assert!(told.ends_with(CRD_COMMAND), "{told}");
    assert!(world.condition("Ready").starts_with("True"));
    assert_eq!(said(&world, "FieldsMissing").len(), 1);
    assert!(world.is_observed());
    image(&mut world, "runner:2");
    world.pass(5);
    assert!(world.is_observed(), "a change is applied all the same");

    lack(&mut world, &[]);
    assert_eq!(world.condition("FieldsServed"), "absent");
    lack(&mut world, &["AutoscalingListener.spec.phase"]);
    assert_eq!(said(&world, "FieldsMissing").len(), 2, "that is news again");
}
