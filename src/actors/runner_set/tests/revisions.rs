//! New revisions of the runner spec, and verdicts on a runner's version.

use serde_json::json;

use super::world::{SET, World};
use crate::api::EphemeralRunnerSetPhase;
use crate::api::constants::annotations;
use crate::messages::{ActionsErrorKind, Kind};

fn image(world: &mut World, image: &str, revision: i64) {
    world.set_spec(json!({
        "actionableRevision": revision,
        "ephemeralRunnerSpec": {
            "spec": { "containers": [{ "name": "runner", "image": image }] } }
    }));
}

fn applied(world: &World) -> i64 {
    world
        .set()
        .status
        .unwrap()
        .applied_actionable_revision
        .unwrap()
}

fn phase(world: &World) -> EphemeralRunnerSetPhase {
    world.set().status.unwrap().phase.unwrap()
}

#[test]
fn a_new_revision_replaces_idle_runners_through_the_service_and_spares_busy_ones() {
    let mut world = World::new();
    world.scale(3, 1);
    let names = world.live();
    world.busy(&names[0]);
    image(&mut world, "img:2", 2);
    assert_eq!(applied(&world), 2);
    assert_eq!(world.count("remove_runner"), 2);
    let first_removal = position(&world, "remove_runner");
    assert!(first_removal < position(&world, "delete EphemeralRunner"));
    let live = world.live();
    assert_eq!(live.len(), 3, "{:#?}", world.log);
    assert!(live.contains(&names[0]));
    for name in live.iter().filter(|name| **name != names[0]) {
        assert_eq!(
            world.annotation(name, annotations::ACTIONABLE_REVISION),
            "2"
        );
        let pod = world.value(Kind::Pod, name);
        assert_eq!(pod["spec"]["containers"][0]["image"], "img:2");
    }
    assert!(world.violations.is_empty(), "{:?}", world.violations);
}

#[test]
fn the_marker_moves_only_after_the_cleanup() {
    let mut world = World::new();
    world.scale(1, 1);
    let name = world.live().remove(0);
    world
        .refuse_calls
        .insert("remove_runner", ActionsErrorKind::Unavailable);
    image(&mut world, "img:2", 2);
    world.advance(300);
    assert_eq!(applied(&world), 1);
    assert_eq!(world.live(), [name]);
    world.refuse_calls.clear();
    world.advance(120);
    assert_eq!(applied(&world), 2);
    assert_eq!(world.live().len(), 1);
    assert_eq!(world.created.len(), 2);
}

#[test]
fn a_runner_that_the_service_keeps_is_left_and_the_revision_applied() {
    let mut world = World::new();
    world.scale(1, 1);
    let name = world.live().remove(0);
    for registered in world.registered.values_mut() {
        registered.busy = true;
    }
    image(&mut world, "img:2", 2);
    assert_eq!(applied(&world), 2);
    assert_eq!(world.count("remove_runner"), 1);
    assert_eq!(world.live(), [name]);
    assert!(world.violations.is_empty(), "{:?}", world.violations);
}

#[test]
fn an_older_target_changes_nothing() {
    let mut world = World::new();
    image(&mut world, "img:2", 5);
    world.scale(1, 1);
    let live = world.live();
    world.set_spec(json!({ "actionableRevision": 3 }));
    world.advance(60);
    assert_eq!(applied(&world), 5);
    assert_eq!(world.live(), live);
}

#[test]
fn a_crash_while_applying_repeats_the_cleanup() {
    let mut world = World::new();
    world.scale(2, 1);
    world.hang.push(r#""appliedActionableRevision":2"#);
    image(&mut world, "img:2", 2);
    assert_eq!(applied(&world), 1);
    world.hang.clear();
    world.restart();
    world.settle();
    assert_eq!(applied(&world), 2);
    assert_eq!(world.live().len(), 2);
    assert_eq!(world.created.len(), 4);
}

#[test]
fn exit_code_7_stops_the_set_and_spares_busy_runners() {
    let mut world = World::new();
    world.scale(3, 1);
    let names = world.live();
    world.busy(&names[1]);
    world.exit(&names[0], 7);
    world.advance(60);
    assert_eq!(phase(&world), EphemeralRunnerSetPhase::Outdated);
    let left = [names[0].clone(), names[1].clone()];
    assert_eq!(world.live(), left, "the idle one is let go");
    assert_eq!(world.names(Kind::Pod), [names[1].clone()]);
    world.scale(5, 9);
    world.advance(300);
    assert_eq!(world.created.len(), 3, "none is made");
    assert!(world.violations.is_empty(), "{:?}", world.violations);
}

#[test]
fn a_verdict_outlives_its_runner() {
    let mut world = World::new();
    world.scale(1, 1);
    let name = world.live().remove(0);
    world.exit(&name, 7);
    world.delete(Kind::EphemeralRunner, &name);
    world.restart();
    world.advance(60);
    assert_eq!(phase(&world), EphemeralRunnerSetPhase::Outdated);
    assert_eq!(world.created.len(), 1);
}

#[test]
fn the_rejected_runner_is_kept_with_its_reason_while_its_verdict_stands() {
    let mut world = World::new();
    world.scale(1, 1);
    let name = world.live().remove(0);
    world.exit(&name, 7);
    world.scale(0, 0);
    let writes = world.writes();
    world.advance(3_600);
    world.restart();
    world.advance(3_600);
    assert_eq!(world.writes(), writes, "at rest: {:#?}", world.log);
    let status = world.runner(&name).unwrap().status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("RunnerVersionRejected"));
    // a person takes it away: that corrects nothing
    world.delete(Kind::EphemeralRunner, &name);
    world.advance(60);
    let writes = world.writes();
    for _ in 0..2 {
        world.advance(3_600);
        world.restart();
    }
    world.advance(60);
    assert_eq!(world.writes(), writes, "at rest: {:#?}", world.log);
    assert_eq!(phase(&world), EphemeralRunnerSetPhase::Outdated);
    world.scale(3, 9);
    assert_eq!(world.created.len(), 1);
}

#[test]
fn a_phase_that_a_person_wrote_is_corrected_in_both_directions() {
    let mut world = World::new();
    world.scale(1, 1);
    let name = world.live().remove(0);
    world.edit_set(&json!({ "status": { "phase": "Outdated" } }));
    assert_eq!(phase(&world), EphemeralRunnerSetPhase::Running);
    world.scale(2, 2);
    assert_eq!(world.live().len(), 2, "{:#?}", world.log);
    world.exit(&name, 7);
    assert_eq!(phase(&world), EphemeralRunnerSetPhase::Outdated);
    world.edit_set(&json!({ "status": { "phase": "Running" } }));
    assert_eq!(phase(&world), EphemeralRunnerSetPhase::Outdated);
    world.scale(5, 3);
    assert_eq!(world.created.len(), 2, "none is made meanwhile");
}

#[test]
fn a_phase_is_written_at_once_and_only_onto_the_copy_it_was_judged_on() {
    let mut world = World::new();
    world.scale(2, 1);
    let name = world.live().remove(0);
    world.exit(&name, 7);
    let outdated = r#""phase":"Outdated""#;
    let written =
        |line: &&String| line.starts_with("patch EphemeralRunnerSet") && line.contains(outdated);
    let line = world.log.iter().find(written).unwrap();
    assert!(line.contains("status at "), "{line}");
}

/// A person has raised it, say. Runners made under it must not be stale from the start: a
/// rejected spec would be tried for ever.
#[test]
fn an_applied_revision_above_the_wanted_one_ends_well() {
    let mut world = World::new();
    world.scale(2, 1);
    world.edit_set(&json!({ "status": { "appliedActionableRevision": 50 } }));
    let old = world.live();
    for name in &old {
        world.exit(name, 7);
    }
    world.advance(10);
    let new = world.live();
    assert_eq!(new.len(), 2, "stale verdicts: {:#?}", world.log);
    assert_eq!(
        world.annotation(&new[0], annotations::ACTIONABLE_REVISION),
        "50"
    );
    world.exit(&new[0], 7);
    world.advance(60);
    assert_eq!(phase(&world), EphemeralRunnerSetPhase::Outdated);
    assert_eq!(world.created.len(), 4);
    // the scale set's next revision is above both
    image(&mut world, "img:2", 51);
    world.advance(10);
    assert_eq!(phase(&world), EphemeralRunnerSetPhase::Running);
    assert_eq!((applied(&world), world.live().len()), (51, 2));
}

#[test]
fn a_new_revision_makes_the_verdict_stale_and_the_set_runs_again() {
    let mut world = World::new();
    world.scale(2, 1);
    let names = world.live();
    world.exit(&names[0], 7);
    world.advance(10);
    image(&mut world, "img:2", 2);
    world.advance(10);
    assert_eq!(phase(&world), EphemeralRunnerSetPhase::Running);
    assert_eq!(applied(&world), 2);
    let live = world.live();
    assert_eq!(live.len(), 2, "{:#?}", world.log);
    assert!(!live.contains(&names[0]));
}

#[test]
fn a_verdict_older_than_the_applied_revision_counts_for_nothing() {
    let mut world = World::new();
    world.scale(1, 1);
    let busy = world.live().remove(0);
    world.busy(&busy);
    image(&mut world, "img:2", 2);
    world.scale(2, 2);
    world.exit(&busy, 7);
    world.advance(20);
    assert_eq!(phase(&world), EphemeralRunnerSetPhase::Running);
    assert!(!world.live().contains(&busy));
    assert_eq!(world.live().len(), 2);
}

#[test]
fn while_the_id_is_not_on_record_the_service_is_not_asked_and_the_marker_waits() {
    let mut world = World::new();
    world.auto_start = false;
    world.hang.push("runnerId");
    world.scale(1, 1);
    let name = world.live().remove(0);
    image(&mut world, "img:2", 2);
    world.advance(40);
    assert_eq!(world.count("remove_runner"), 0);
    assert_eq!(world.live(), [name.as_str()]);
    assert_eq!(world.names(Kind::Pod), [name.as_str()]);
    assert_eq!(applied(&world), 1);

    for registered in world.registered.values_mut() {
        registered.busy = true;
    }
    world.unhang();
    assert_eq!(world.count("remove_runner"), 1);
    assert_eq!(world.live(), [name]);
    assert_eq!(applied(&world), 2);
}

#[test]
fn an_id_that_never_gets_on_record_costs_the_runner_before_the_marker_moves() {
    let mut world = World::new();
    world.auto_start = false;
    world.hang.push("runnerId");
    world.scale(1, 1);
    image(&mut world, "img:2", 2);
    world.advance(59);
    assert_eq!((world.live().len(), applied(&world)), (1, 1));
    // it is to be deleted, and waits for the answer to the write that is under way
    world.advance(30);
    assert_eq!((world.live().len(), applied(&world)), (1, 1));
    assert_eq!(world.count("remove_runner"), 0);
    world.unhang();
    world.advance(5);
    assert_eq!(applied(&world), 2);
    assert_eq!(world.count("remove_runner"), 1);
    assert!(world.violations.is_empty(), "{:?}", world.violations);
}

#[test]
fn a_runner_whose_registration_never_ends_is_deleted_after_a_minute() {
    let mut world = World::new();
    world.hang.push("GenerateJitConfig");
    world.scale(1, 1);
    image(&mut world, "img:2", 2);
    world.advance(40);
    assert_eq!((world.live().len(), applied(&world)), (1, 1));
    world.advance(40);
    assert!(applied(&world) == 2, "{:#?}", world.log);
    assert_eq!(world.count("remove_runner"), 0);
    world.unhang();
    assert_eq!(world.live().len(), 1);
    assert_eq!(
        world.registered.len(),
        1,
        "the late registration is removed"
    );
}

#[test]
fn the_deletion_of_an_outdated_set_clears_it_up() {
    let mut world = World::new();
    world.scale(2, 1);
    let name = world.live().remove(0);
    world.exit(&name, 7);
    world.delete(Kind::EphemeralRunnerSet, SET);
    world.advance(10);
    assert!(world.names(Kind::EphemeralRunner).is_empty());
    assert!(world.registered.is_empty());
}

/// What the service or the credentials may answer, so that it is not known whether a runner has a
/// job.
const NOT_ASKED: [(ActionsErrorKind, &str); 3] = [
    (ActionsErrorKind::Credentials, "CredentialsUnusable"),
    (ActionsErrorKind::Config, "ConfigInvalid"),
    (ActionsErrorKind::Unauthorized, "CredentialsRefused"),
];

#[test]
fn a_revision_is_not_applied_while_a_runner_could_not_be_asked_to_go() {
    for restarted in [false, true] {
        for (kind, word) in NOT_ASKED {
            let mut world = World::new();
            world.scale(3, 1);
            world.refuse_calls.insert("remove_runner", kind);
            image(&mut world, "img:2", 2);
            world.advance(20);
            assert_eq!((applied(&world), world.live().len()), (1, 3), "{word}");
            world.advance(680);
            assert_eq!((applied(&world), world.live().len()), (1, 3), "{word}");
            let problem = world.report.clone().unwrap().problem.unwrap();
            assert_eq!(problem.code, word);
            if restarted {
                world.restart();
            }
            world.refuse_calls.clear();
            world.advance(60);
            assert_eq!((applied(&world), world.live().len()), (2, 3), "{word}");
            for name in world.live() {
                let revision = world.annotation(&name, annotations::ACTIONABLE_REVISION);
                assert_eq!(revision, "2", "{word}");
            }
            let problem = world.report.clone().unwrap().problem;
            assert_eq!(problem, None, "{word}: it is over");
            assert!(world.violations.is_empty(), "{:?}", world.violations);
        }
    }
}

#[test]
fn what_kept_a_runner_from_being_asked_is_forgotten_when_nobody_wants_it_to_go() {
    for (kind, word) in NOT_ASKED {
        let mut world = World::new();
        world.scale(2, 0);
        world.refuse_calls.insert("remove_runner", kind);
        world.scale(1, 0);
        world.advance(700);
        assert_eq!(world.report.clone().unwrap().problem.unwrap().code, word);
        world.scale(2, 0);
        world.refuse_calls.clear();
        world.advance(60);
        assert_eq!(world.report.clone().unwrap().problem, None, "{word}");
        assert_eq!(world.created.len(), 2);
    }
}

#[test]
fn an_answer_of_the_service_ends_the_trouble_also_when_it_says_that_a_job_runs() {
    for (kind, word) in NOT_ASKED {
        let mut world = World::new();
        world.scale(1, 1);
        for registered in world.registered.values_mut() {
            registered.busy = true;
        }
        world.refuse_calls.insert("remove_runner", kind);
        image(&mut world, "img:2", 2);
        world.advance(700);
        assert_eq!(world.report.clone().unwrap().problem.unwrap().code, word);
        world.refuse_calls.clear();
        world.advance(60);
        assert_eq!(world.report.clone().unwrap().problem, None, "{word}");
        assert_eq!((applied(&world), world.created.len()), (2, 1));
    }
}

#[test]
fn a_runner_that_was_kept_for_a_job_is_asked_again_after_the_revision_was_applied() {
    for restarted in [false, true] {
        let mut world = World::new();
        world.scale(1, 1);
        let name = world.live().remove(0);
        for registered in world.registered.values_mut() {
            registered.busy = true;
        }
        image(&mut world, "img:2", 2);
        world.advance(10);
        assert_eq!((applied(&world), world.live()), (2, vec![name.clone()]));
        if restarted {
            world.restart();
        }
        // the job was cancelled before it began
        world.end_job(&name);
        world.advance(60);
        assert!(!world.live().contains(&name), "{:#?}", world.log);
        assert_eq!(world.live().len(), 1);
        assert!(world.violations.is_empty(), "{:?}", world.violations);
    }
}

#[test]
fn a_runner_with_a_job_that_nobody_has_heard_of_is_asked_less_and_less_often() {
    let mut world = World::new();
    world.scale(1, 1);
    for registered in world.registered.values_mut() {
        registered.busy = true;
    }
    image(&mut world, "img:2", 2);
    world.advance(3_600);
    let asked = world.count("remove_runner");
    assert!((20..=33).contains(&asked), "{asked} times in an hour");
}

/// The job is recorded while the service takes the registration back.
#[test]
fn a_runner_that_was_given_a_job_meanwhile_stays_although_the_service_let_it_go() {
    let mut world = World::new();
    world.scale(1, 1);
    let name = world.live().remove(0);
    world.hang.push("RemoveRunner");
    image(&mut world, "img:2", 2);
    assert_eq!(world.live(), [name.as_str()]);
    world.busy(&name);
    world.end_job(&name);
    world.unhang();
    world.advance(300);
    assert_eq!(world.live(), [name.as_str()], "{:#?}", world.log);
    assert_eq!(world.names(Kind::Pod), [name]);
    assert_eq!(world.count("delete"), 0);
    assert_eq!(applied(&world), 2);
}

#[test]
fn the_last_revision_there_is_keeps_nobody() {
    // (name, whether the runners' version is rejected)
    for (name, rejected) in [("a set that runs", false), ("one that is parked", true)] {
        let mut world = World::new();
        world.set_spec(json!({ "actionableRevision": i64::MAX }));
        world.scale(3, 1);
        assert_eq!(applied(&world), i64::MAX, "{name}");
        let names = world.live();
        if rejected {
            world.exit(&names[0], 7);
            world.advance(10);
            assert_eq!(phase(&world), EphemeralRunnerSetPhase::Outdated);
            assert_eq!(world.live(), names[..1], "{name}: idle ones are let go");
        }
        world.delete(Kind::EphemeralRunnerSet, SET);
        world.advance(30);
        assert!(world.names(Kind::EphemeralRunner).is_empty(), "{name}");
        assert!(world.names(Kind::EphemeralRunnerSet).is_empty(), "{name}");
        assert!(world.registered.is_empty(), "{name}");
    }
}

#[test]
fn numbers_at_their_ends_are_taken_as_they_are() {
    // (field, value, runners alive)
    for (spec, alive) in [
        (json!({ "replicas": i64::MIN, "patchID": 0 }), 0),
        (json!({ "replicas": -1, "patchID": 7 }), 2),
        (json!({ "replicas": 3, "patchID": i64::MAX }), 3),
        (json!({ "replicas": 3, "patchID": i64::MIN }), 3),
        (json!({ "replicas": 3, "patchID": -1 }), 3),
        (json!({ "actionableRevision": i64::MIN }), 2),
        (json!({ "actionableRevision": i64::MAX }), 2),
    ] {
        let mut world = World::new();
        world.scale(2, 1);
        world.set_spec(spec.clone());
        world.advance(30);
        assert_eq!(world.live().len(), alive, "{spec}: {:#?}", world.log);
        let requests = world.requests;
        world.advance(3_600);
        assert_eq!(world.requests, requests, "{spec}: it rests");
        world.delete(Kind::EphemeralRunnerSet, SET);
        world.advance(60);
        assert!(world.names(Kind::EphemeralRunnerSet).is_empty(), "{spec}");
        assert!(world.registered.is_empty(), "{spec}");
    }
}

fn position(world: &World, beginning: &str) -> usize {
    world
        .log
        .iter()
        .position(|line| line.starts_with(beginning))
        .unwrap()
}
