//! Revisions as the scale set publishes them, and when it parks and recovers by them: each
//! rule as rows.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::{Value, json};

use super::world::{CONTROLLER, POOL, RUNNERS, World};
use crate::api::AutoscalingListenerPhase;
use crate::api::AutoscalingRunnerSetPhase as Phase;
use crate::api::constants::annotations;
use crate::messages::{Kind, KubeRequest, RunnerCounts};

type Edit = fn(&mut Value);
/// What is to be seen of it.
type Check = fn(&World) -> bool;
/// What the set loses.
type Loss = fn(&mut World);

/// The runner set says this of itself: phase, applied revision, wanted revision.
fn stand(world: &mut World, phase: Value, applied: Value, wanted: Value) {
    world.applies = false;
    world.edit_set(|set| {
        set["spec"]["actionableRevision"] = wanted;
        set["status"] = json!({
            "currentReplicas": 0, "phase": phase, "appliedActionableRevision": applied,
        });
    });
    world.pass(10);
}

fn parked() -> World {
    let mut world = World::settled();
    world.edit_set(|set| {
        set["spec"]["replicas"] = json!(2);
        set["spec"]["patchID"] = json!(5);
    });
    stand(&mut world, json!("Outdated"), json!(1), json!(1));
    assert_eq!(world.phase(), Some(Phase::Outdated));
    world.applies = true;
    world
}

fn is_stopped(world: &World) -> bool {
    world.al().spec.phase == Some(AutoscalingListenerPhase::Stopped)
}

fn target(world: &World) -> (Option<i64>, i64) {
    let spec = &world.ers().spec;
    (spec.replicas, spec.patch_id)
}

/// Writes the bodies of the patches down that the runner set gets from now on.
fn patches_of_set(world: &mut World) -> Rc<RefCell<Vec<Value>>> {
    let bodies = Rc::<RefCell<Vec<Value>>>::default();
    let written = bodies.clone();
    world.cluster.sabotage(move |request| {
        if let KubeRequest::Patch { target, body, .. } = request
            && target.kind == Kind::EphemeralRunnerSet
        {
            written.borrow_mut().push(body.clone());
        }
        None
    });
    bodies
}

// === parking ===

#[test]
fn it_parks_only_on_a_verdict_about_the_revision_that_is_wanted() {
    let rows = [
        ("the first revision", "Outdated", json!(1), json!(1), true),
        (
            "no revisions at all",
            "Outdated",
            Value::Null,
            Value::Null,
            true,
        ),
        ("revision 0", "Outdated", json!(0), Value::Null, true),
        ("a later one", "Outdated", json!(7), json!(7), true),
        ("one above the wanted", "Outdated", json!(9), json!(7), true),
        (
            "one below the wanted",
            "Outdated",
            json!(6),
            json!(7),
            false,
        ),
        ("none applied", "Outdated", Value::Null, json!(1), false),
        ("no verdict", "Running", json!(1), json!(1), false),
        ("a verdict nobody knows", "Tired", json!(1), json!(1), false),
    ];
    for (row, phase, applied, wanted, parks) in rows {
        let mut world = World::settled();
        world.edit_set(|set| {
            set["spec"]["replicas"] = json!(3);
            set["spec"]["patchID"] = json!(8);
        });
        stand(&mut world, json!(phase), applied, wanted);
        assert_eq!(world.phase() == Some(Phase::Outdated), parks, "{row}");
        assert_eq!(is_stopped(&world), parks, "{row}");
        assert_eq!(world.cluster.names(Kind::Pod).is_empty(), parks, "{row}");
        let expected = if parks { (Some(0), 0) } else { (Some(3), 8) };
        assert_eq!(target(&world), expected, "{row}");
        assert_eq!(world.events_of("Parked"), usize::from(parks), "{row}");
    }
}

#[test]
fn edits_that_leave_the_runners_alone_are_passed_on_and_do_not_un_park() {
    let rows: [(&str, Edit, Check); 6] = [
        (
            "maximum",
            |ars| ars["spec"]["maxRunners"] = json!(3),
            |world| world.al().spec.max_runners == 3,
        ),
        (
            "minimum",
            |ars| ars["spec"]["minRunners"] = json!(2),
            |world| world.al().spec.min_runners == 2,
        ),
        (
            "group",
            |ars| ars["spec"]["runnerGroup"] = json!("gpu"),
            |world| world.service.sets.values().all(|set| set.group_id == 7),
        ),
        (
            "name",
            |ars| ars["spec"]["runnerScaleSetName"] = json!("other"),
            |world| world.service.sets.values().all(|set| set.name == "other"),
        ),
        (
            "label",
            |ars| ars["metadata"]["labels"]["team"] = json!("release"),
            |world| {
                let labels = world.ers().metadata.labels.clone().unwrap_or_default();
                labels.get("team").map(String::as_str) == Some("release")
            },
        ),
        (
            "listener template",
            |ars| {
                ars["spec"]["listenerTemplate"] =
                    json!({"spec": {"containers": [{"name": "listener", "image": "own:3"}]}});
            },
            |world| {
                let template = world.al().spec.template.clone();
                serde_json::to_string(&template).unwrap().contains("own:3")
            },
        ),
    ];
    for (row, edit, is_passed_on) in rows {
        let mut world = parked();
        world.edit(edit);
        world.pass(60);
        assert!(is_passed_on(&world), "{row}");
        assert_eq!(world.phase(), Some(Phase::Outdated), "{row}");
        assert!(world.is_observed(), "{row}");
        assert!(is_stopped(&world), "{row}");
        assert!(world.cluster.names(Kind::Pod).is_empty(), "{row}");
        assert_eq!(world.ers().spec.actionable_revision, Some(1), "{row}");
        assert_eq!(target(&world), (Some(0), 0), "{row}");
        assert_eq!(world.events_of("Recovered"), 0, "{row}");
        let writes = world.cluster.writes.len();
        world.pass(3600);
        assert_eq!(world.cluster.writes.len(), writes, "{row}: it is at rest");
    }
}

#[test]
fn a_parked_set_that_lacks_something_is_no_resting_state() {
    let rows: [(&str, Loss, bool); 4] = [
        (
            "its listener's object",
            |world| {
                let name = world.cluster.names(Kind::AutoscalingListener).remove(0);
                world
                    .cluster
                    .delete(Kind::AutoscalingListener, CONTROLLER, &name);
            },
            true,
        ),
        (
            "its id",
            |world| {
                world.edit(|ars| {
                    let all = ars["metadata"]["annotations"].as_object_mut().unwrap();
                    all.remove(annotations::RUNNER_SCALE_SET_ID).unwrap();
                });
            },
            true,
        ),
        (
            "its runner set",
            |world| {
                world
                    .cluster
                    .delete(Kind::EphemeralRunnerSet, RUNNERS, POOL);
            },
            false,
        ),
        (
            "its runner set and its listener's object",
            |world| {
                let name = world.cluster.names(Kind::AutoscalingListener).remove(0);
                world
                    .cluster
                    .delete(Kind::AutoscalingListener, CONTROLLER, &name);
                world
                    .cluster
                    .delete(Kind::EphemeralRunnerSet, RUNNERS, POOL);
            },
            false,
        ),
    ];
    for (row, take, stays_parked) in rows {
        for restarted in [false, true] {
            let row = format!("{row}, restarted {restarted}");
            let mut world = parked();
            take(&mut world);
            if restarted {
                world.restart();
            }
            world.pass(60);
            assert!(
                !world
                    .annotation(annotations::RUNNER_SCALE_SET_ID)
                    .is_empty()
            );
            assert_eq!(is_stopped(&world), stays_parked, "{row}");
            let expected = if stays_parked {
                Phase::Outdated
            } else {
                Phase::Running
            };
            assert_eq!(world.phase(), Some(expected), "{row}");
            let pods = world.cluster.names(Kind::Pod).len();
            assert_eq!(pods, usize::from(!stays_parked), "{row}");
            assert!(world.is_observed(), "{row}");
            assert_eq!(world.ers().spec.actionable_revision, Some(1), "{row}");
            assert_eq!(world.service.sets.len(), 1, "{row}");
        }
    }
}

/// Its runners may take hours to go; until then nothing takes jobs, and nothing says so.
#[test]
fn a_parked_set_whose_runner_set_goes_slowly_stays_parked_until_it_is_gone() {
    let mut world = parked();
    world.edit_set(|set| {
        set["metadata"]["finalizers"] = json!(["ephemeralrunner.actions.github.com/finalizer"]);
    });
    world.count_runners(RunnerCounts {
        running: 1,
        ..RunnerCounts::default()
    });
    world
        .cluster
        .delete(Kind::EphemeralRunnerSet, RUNNERS, POOL);
    world.pass(3600);
    assert!(is_stopped(&world));
    assert!(world.cluster.names(Kind::Pod).is_empty());
    world.edit_set(|set| set["metadata"]["finalizers"] = json!([]));
    world.count_runners(RunnerCounts::default());
    world.pass(30);
    assert_eq!(world.phase(), Some(Phase::Running));
    assert_eq!(world.ers().status.as_ref().unwrap().phase, running());
}

const fn running() -> Option<crate::api::EphemeralRunnerSetPhase> {
    Some(crate::api::EphemeralRunnerSetPhase::Running)
}

// === publishing and recovering ===

#[test]
fn a_revision_is_one_above_all_that_were_and_comes_in_one_patch_with_the_spec() {
    let rows = [
        ("never applied", json!(1), Value::Null, 2),
        ("applied", json!(1), json!(1), 2),
        ("not applied yet", json!(5), json!(3), 6),
        ("applied above the wanted", json!(2), json!(7), 8),
        ("no revisions at all", Value::Null, Value::Null, 1),
        ("none wanted, some applied", Value::Null, json!(4), 5),
    ];
    let edits: [(&str, Edit); 3] = [
        ("image", |ars| {
            ars["spec"]["template"]["spec"]["containers"][0]["image"] = json!("runner:2");
        }),
        ("annotation of the pod", |ars| {
            ars["spec"]["template"]["metadata"] = json!({"annotations": {"a": "b"}});
        }),
        ("both spec and metadata", |ars| {
            ars["spec"]["template"]["spec"]["serviceAccountName"] = json!("builder");
            ars["spec"]["ephemeralRunnerMetadata"] = json!({"labels": {"c": "d"}});
        }),
    ];
    for (row, wanted, applied, expected) in rows {
        for (what, edit) in edits {
            for phase in ["Running", "Outdated"] {
                let row = format!("{row}, {what}, {phase}");
                let mut world = World::settled();
                stand(&mut world, json!(phase), applied.clone(), wanted.clone());
                let patches = patches_of_set(&mut world);
                world.edit(edit);
                world.settle();
                let first = patches.borrow().first().cloned().unwrap_or_default();
                assert_eq!(first["spec"]["actionableRevision"], expected, "{row}");
                assert!(first["spec"]["ephemeralRunnerSpec"].is_object(), "{row}");
                assert!(first["spec"].get("replicas").is_none(), "{row}: {first}");
                assert!(first["spec"].get("patchID").is_none(), "{row}: {first}");
                world.applies = true;
                world.play_runner_set();
                world.pass(60);
                let spec = &world.ers().spec;
                assert_eq!(spec.actionable_revision, Some(expected), "{row}");
                assert_eq!(world.phase(), Some(Phase::Running), "{row}");
                assert!(!is_stopped(&world), "{row}");
                assert!(world.is_observed(), "{row}");
            }
        }
    }
}

#[test]
fn after_the_last_revision_there_is_the_spec_is_passed_on_all_the_same() {
    let mut world = World::settled();
    let last = json!(i64::MAX);
    stand(&mut world, json!("Running"), last.clone(), last);
    let patches = patches_of_set(&mut world);
    world.edit(|ars| {
        ars["spec"]["template"]["spec"]["containers"][0]["image"] = json!("runner:2");
    });
    world.settle();
    let first = patches.borrow().first().cloned().unwrap_or_default();
    assert!(first["spec"]["ephemeralRunnerSpec"].is_object(), "{first}");
    assert_eq!(first["spec"]["actionableRevision"], i64::MAX);
}

#[test]
fn changed_runner_metadata_is_a_correction_only_of_what_was_rejected() {
    let rows = [
        ("running", "Running", json!(1), json!(1), Some(1)),
        ("rejected", "Outdated", json!(1), json!(1), Some(2)),
        ("rejected long ago", "Outdated", json!(1), json!(3), Some(3)),
    ];
    for (row, phase, applied, wanted, expected) in rows {
        let mut world = World::settled();
        stand(&mut world, json!(phase), applied, wanted);
        let patches = patches_of_set(&mut world);
        world.edit(|ars| ars["spec"]["ephemeralRunnerMetadata"] = json!({"labels": {"a": "b"}}));
        world.settle();
        let first = patches.borrow().first().cloned().unwrap_or_default();
        assert!(
            first["spec"]["ephemeralRunnerMetadata"].is_object(),
            "{row}"
        );
        assert_eq!(world.ers().spec.actionable_revision, expected, "{row}");
    }
}

#[test]
fn a_recovery_is_pending_then_running_and_wakes_the_listener_once() {
    let rows: [(&str, Edit, bool); 3] = [
        (
            "image",
            |ars| ars["spec"]["template"]["spec"]["containers"][0]["image"] = json!("runner:2"),
            false,
        ),
        (
            "metadata",
            |ars| ars["spec"]["ephemeralRunnerMetadata"] = json!({"annotations": {"a": "b"}}),
            false,
        ),
        (
            "image and maximum",
            |ars| {
                ars["spec"]["template"]["spec"]["containers"][0]["image"] = json!("runner:2");
                ars["spec"]["maxRunners"] = json!(3);
            },
            true,
        ),
    ];
    for (row, edit, replaced) in rows {
        let mut world = parked();
        let listener = world.al().metadata.uid.clone();
        let pods = world.cluster.count("create Pod");
        world.applies = false;
        world.edit(edit);
        world.pass(10);
        assert_eq!(world.phase(), Some(Phase::Pending), "{row}");
        assert!(!world.is_observed(), "{row}");
        world.applies = true;
        world.play_runner_set();
        world.pass(10);
        assert_eq!(world.phase(), Some(Phase::Running), "{row}");
        assert!(world.is_observed(), "{row}");
        assert_eq!(world.al().metadata.uid != listener, replaced, "{row}");
        assert_eq!(world.cluster.count("create Pod"), pods + 1, "{row}");
        assert_eq!(world.events_of("Recovered"), 1, "{row}");
        // what the listener now asks for stands
        world.edit_set(|set| {
            set["spec"]["replicas"] = json!(4);
            set["spec"]["patchID"] = json!(1);
        });
        world.pass(600);
        assert_eq!(target(&world), (Some(4), 1), "{row}");
    }
}

#[test]
fn a_verdict_that_comes_after_the_fix_was_published_does_not_park() {
    let mut world = World::settled();
    world.applies = false;
    world.edit(|ars| ars["spec"]["template"]["spec"]["containers"][0]["image"] = json!("runner:2"));
    world.pass(5);
    world.edit_set(|set| {
        set["status"] = json!({
            "currentReplicas": 1, "phase": "Outdated", "appliedActionableRevision": 1,
        });
    });
    world.pass(600);
    assert!(!is_stopped(&world));
    assert_eq!(world.events_of("Parked"), 0);
    world.applies = true;
    world.play_runner_set();
    world.pass(10);
    assert_eq!(world.phase(), Some(Phase::Running));
    assert_eq!(world.ers().spec.actionable_revision, Some(2));
}
