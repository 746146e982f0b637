//! A quota that leaves no room for all: for pods, for Secrets, or for EphemeralRunners.

use super::world::World;
use crate::messages::{Kind, KubeErrorKind};

const KINDS: [Kind; 3] = [Kind::Pod, Kind::Secret, Kind::EphemeralRunner];

/// There is room for five, and sixty are wanted.
fn five_of_sixty(kind: Kind) -> World {
    let mut world = World::new();
    world.quota.insert(kind, 5);
    world.scale(60, 1);
    world.advance(70);
    assert_eq!(world.ready().len(), 5, "{kind}: {:#?}", world.log);
    world
}

fn events(world: &World) -> usize {
    let of_quota = |reason: &&&str| **reason == "QuotaExceeded";
    world.events.iter().filter(of_quota).count()
}

#[test]
fn a_refusal_is_known_to_the_whole_set() {
    for kind in KINDS {
        let mut world = five_of_sixty(kind);
        let creates = world.count(&format!("create {kind} "));
        assert!(creates <= 20, "{kind}: {creates} creates");
        let registrations = world.count("generate_jit_config");
        assert!(registrations <= 9, "{kind}: {registrations} registrations");
        assert_eq!(events(&world), 1, "{kind}: {:?}", world.events);
        assert!(world.registered.len() <= 6, "one at most waits for room");
        let problem = world.report.clone().unwrap().problem.unwrap();
        assert!(problem.message.contains("QuotaExceeded"), "{problem:?}");

        // one probe at a time, and it is not registered anew
        world.advance(300);
        let more = world.count(&format!("create {kind} ")) - creates;
        assert!(more <= 15, "{kind}: {more} in five minutes");
        assert_eq!(world.count("generate_jit_config"), registrations, "{kind}");
        assert_eq!(events(&world), 1, "{kind}");
        assert!(world.violations.is_empty(), "{:?}", world.violations);
    }
}

#[test]
fn room_that_appears_is_used_within_half_a_minute() {
    for kind in KINDS {
        let mut world = five_of_sixty(kind);
        world.quota.clear();
        world.advance(35);
        assert_eq!(world.ready().len(), 60, "{kind}: {:#?}", world.log);
        assert_eq!(world.report.clone().unwrap().problem, None, "{kind}");
    }
}

#[test]
fn room_that_a_runner_leaves_is_used_at_once_and_by_one() {
    for kind in KINDS {
        let mut world = five_of_sixty(kind);
        let one = world.ready().remove(0);
        let before = world.count("generate_jit_config");
        world.delete(Kind::EphemeralRunner, &one);
        world.advance(5);
        assert_eq!(world.ready().len(), 5, "{kind}: {:#?}", world.log);
        let made = world.count("generate_jit_config") - before;
        assert!(made <= 2, "{kind}: {made} were registered for one place");
        assert_eq!(events(&world), 1, "{kind}");
    }
}

#[test]
fn many_are_made_quickly_where_there_is_room() {
    let mut world = World::new();
    world.scale(200, 1);
    assert_eq!(world.ready().len(), 200);
    assert!(world.violations.is_empty(), "{:?}", world.violations);
}

/// What is slow is no quota.
#[test]
fn runners_that_get_no_pod_for_another_reason_do_not_keep_others_from_being_made() {
    let mut world = World::new();
    world.hang.push("GenerateJitConfig");
    world.scale(40, 1);
    assert!(world.live().len() < 10, "{}", world.live().len());
    world.advance(60);
    assert_eq!(world.live().len(), 40);

    let mut world = World::new();
    world
        .refuse_creates
        .insert(Kind::Pod, KubeErrorKind::Unavailable);
    world.scale(40, 1);
    world.advance(60);
    assert_eq!(world.live().len(), 40);
    world.refuse_creates.clear();
    world.advance(60);
    assert_eq!(world.ready().len(), 40);
}
