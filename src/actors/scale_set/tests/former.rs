//! EphemeralRunnerSets under other names, as ARC 0.14 leaves them.

use std::cell::Cell;
use std::rc::Rc;

use serde_json::json;

use super::deletion::delete;
use super::world::{POOL, RUNNERS, World};
use crate::actors::listener::tests::cluster::{Fault, from_value};
use crate::api::EphemeralRunnerSet;
use crate::messages::{Kind, RunnerCounts};

const OLD: &str = "pool-smfjw";
/// What ARC 0.14 holds its sets by.
const ARCS: &str = "ephemeralrunner.actions.github.com/finalizer";

/// A set of ARC 0.14 with these finalizers and so many runners, one of them known to be busy.
fn found(finalizers: &[&str], runners: usize) -> World {
    let mut world = World::new();
    let owner = world.ars().metadata.uid.clone().unwrap();
    world.cluster.apply(from_value(
        Kind::EphemeralRunnerSet,
        json!({
            "metadata": {
                "name": OLD, "namespace": RUNNERS, "finalizers": finalizers,
                "ownerReferences": [{
                    "apiVersion": "actions.github.com/v1alpha1", "kind": "AutoscalingRunnerSet",
                    "name": POOL, "uid": owner, "controller": true,
                }],
            },
            "spec": {"replicas": 3, "patchID": 1},
        }),
    ));
    let uid = old(&world).unwrap().metadata.uid.clone();
    for number in 0..runners {
        world.cluster.apply(from_value(
            Kind::EphemeralRunner,
            json!({
                "metadata": {
                    "name": format!("{OLD}-runner-{number}"), "namespace": RUNNERS,
                    "finalizers": [ARCS],
                    "labels": {"actions.github.com/scale-set-name": POOL},
                    "ownerReferences": [{
                        "apiVersion": "actions.github.com/v1alpha1", "kind": "EphemeralRunnerSet",
                        "name": OLD, "uid": uid, "controller": true,
                    }],
                },
                "spec": {"githubConfigUrl": "", "githubConfigSecret": "", "runnerScaleSetId": 1},
            }),
        ));
    }
    world.counts = counts(runners);
    world
}

fn counts(runners: usize) -> RunnerCounts {
    RunnerCounts {
        running: i64::try_from(runners).unwrap(),
        ..RunnerCounts::default()
    }
}

fn old(world: &World) -> Option<std::sync::Arc<EphemeralRunnerSet>> {
    world.cluster.get(RUNNERS, OLD)
}

fn end_runner(world: &mut World, number: usize, left: usize) {
    let name = format!("{OLD}-runner-{number}");
    world.cluster.vanish(Kind::EphemeralRunner, RUNNERS, &name);
    world.count_runners(counts(left));
}

#[test]
fn it_goes_with_its_last_runner_and_no_sooner() {
    for finalizers in [
        &[ARCS][..],
        &["ephemeralrunnerset.actions.github.com/finalizer"],
        &[ARCS, "ephemeralrunnerset.actions.github.com/finalizer"],
    ] {
        let mut world = found(finalizers, 2);
        world.pass(60);
        let held = old(&world).unwrap();
        assert!(held.metadata.deletion_timestamp.is_some());
        assert_eq!(held.metadata.finalizers.as_ref().unwrap(), finalizers);
        assert_eq!(world.cluster.names(Kind::EphemeralRunner).len(), 2);
        assert_eq!(world.ers().metadata.name.as_deref(), Some(POOL));
        assert_eq!(world.events_of("RunnerSetAdopted"), 1);
        end_runner(&mut world, 0, 1);
        world.pass(60);
        assert!(old(&world).is_some(), "one is left");
        end_runner(&mut world, 1, 0);
        world.pass(10);
        assert!(old(&world).is_none(), "{finalizers:?}");
        assert_eq!(
            world
                .cluster
                .count(&format!("delete EphemeralRunnerSet {OLD}")),
            1
        );
    }
}

#[test]
fn one_without_runners_goes_at_once_and_keeps_what_others_hold_it_by() {
    let mut world = found(&[ARCS, "theirs/x"], 0);
    world.pass(10);
    let held = old(&world).unwrap();
    assert_eq!(held.metadata.finalizers.as_ref().unwrap(), &["theirs/x"]);
    let asked = count_requests(&mut world);
    world.pass(3600);
    assert_eq!(asked.get(), 0, "it waits in silence");
    world
        .cluster
        .edit(Kind::EphemeralRunnerSet, RUNNERS, OLD, |set| {
            set["metadata"]["finalizers"] = json!([]);
        });
    world.settle();
    delete(&mut world);
    world.pass(60);
    assert!(world.stopped);
}

#[test]
fn a_busy_runner_of_it_is_looked_for_ever_less_often() {
    let mut world = found(&[ARCS], 1);
    world.pass(1800);
    let asked = count_requests(&mut world);
    world.pass(3600);
    let looks = asked.replace(0);
    assert!((10..=20).contains(&looks), "{looks}");
    // runners of the pool come and go
    for second in 0..60 {
        world.count_runners(counts(1 + second % 2));
        world.pass(1);
    }
    let looks = asked.get();
    assert!((8..=14).contains(&looks), "{looks}");
}

/// Counts the requests about runner sets and runners from now on.
fn count_requests(world: &mut World) -> Rc<Cell<u32>> {
    let count = Rc::new(Cell::new(0));
    let there = count.clone();
    world.cluster.sabotage(move |request| {
        let kinds = [Kind::EphemeralRunnerSet, Kind::EphemeralRunner];
        let counts = u32::from(kinds.contains(&request.kind()));
        there.set(there.get() + counts);
        None
    });
    count
}

#[test]
fn a_deletion_waits_for_it() {
    let mut world = found(&[ARCS], 1);
    world.pass(30);
    delete(&mut world);
    world.pass(600);
    assert!(!world.stopped);
    assert!(world.condition("Ready").contains("1 runners to finish"));
    assert_eq!(world.service.count("delete_scale_set"), 0);
    end_runner(&mut world, 0, 0);
    world.pass(60);
    assert!(world.stopped);
    assert!(old(&world).is_none());
}

#[test]
fn a_forced_deletion_takes_it_along() {
    let mut world = found(&[ARCS], 0);
    world.cluster.sabotage(|request| {
        (request.verb() == "patch" && request.kind() == Kind::EphemeralRunnerSet)
            .then_some(Fault::LoseRequest)
    });
    world.pass(10);
    world
        .cluster
        .vanish(Kind::AutoscalingRunnerSet, RUNNERS, POOL);
    world
        .cluster
        .delete(Kind::EphemeralRunnerSet, RUNNERS, POOL);
    world.cluster.stop_sabotage();
    world.pass(60);
    world.play_runner_set();
    world.pass(60);
    assert!(old(&world).is_none());
    assert!(world.stopped);
}

#[test]
fn a_controller_killed_at_any_point_goes_on_with_it() {
    for limit in 0..25 {
        let mut world = found(&[ARCS], 0);
        let seen = Cell::new(0);
        world.cluster.sabotage(move |_| {
            seen.set(seen.get() + 1);
            (seen.get() > limit).then_some(Fault::LoseRequest)
        });
        world.settle();
        world.cluster.stop_sabotage();
        world.restart();
        world.pass(60);
        assert!(old(&world).is_none(), "killed after {limit} requests");
        assert_eq!(world.cluster.names(Kind::EphemeralRunnerSet), [POOL]);
    }
}

#[test]
fn a_set_of_somebody_else_is_left_alone() {
    for owner in [
        json!([{"apiVersion": "actions.github.com/v1alpha1", "kind": "AutoscalingRunnerSet",
                "name": "other", "uid": "o", "controller": true}]),
        json!([{"apiVersion": "other/v1", "kind": "Fleet", "name": POOL, "uid": "o",
                "controller": true}]),
        json!([]),
    ] {
        let mut world = found(&[ARCS], 0);
        world
            .cluster
            .edit(Kind::EphemeralRunnerSet, RUNNERS, OLD, |set| {
                set["metadata"]["ownerReferences"] = owner.clone();
            });
        world.cluster.shown.clear();
        world.restart();
        world.pass(60);
        assert!(old(&world).unwrap().metadata.deletion_timestamp.is_none());
        delete(&mut world);
        world.pass(60);
        assert!(world.stopped, "{owner}");
        assert!(old(&world).is_some(), "{owner}");
    }
}
