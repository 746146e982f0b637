//! Runners that are too many while jobs run.

use super::world::World;
use crate::messages::Kind;

/// Six jobs were queued, one runs, and the others are cancelled under patch 2.
fn six_and_one(ours: bool) -> (World, String) {
    let mut world = World::new();
    let scale = |world: &mut World, replicas, patch| {
        if ours {
            world.scale_as_ours(replicas, patch);
        } else {
            world.scale(replicas, patch);
        }
    };
    scale(&mut world, 6, 1);
    let busy = world.live().remove(0);
    world.busy(&busy);
    world.advance(10);
    scale(&mut world, 1, 2);
    (world, busy)
}

#[test]
fn what_several_patches_of_our_listener_leave_out_is_released_after_a_while() {
    let (mut world, busy) = six_and_one(true);
    world.advance(40);
    assert_eq!(world.live().len(), 6, "one patch is not enough");
    world.scale_as_ours(1, 3);
    assert_eq!(world.live(), [busy.as_str()], "{:#?}", world.log);
    assert_eq!(world.count("remove_runner"), 5, "through the service");
    let requests = world.requests;
    world.advance(3_600);
    assert_eq!(world.requests, requests, "and it rests");
    assert_eq!(world.names(Kind::Pod), [busy]);
    assert!(world.violations.is_empty(), "{:#?}", world.violations);
}

#[test]
fn patches_in_quick_succession_agree_when_half_a_minute_is_over() {
    let (mut world, _) = six_and_one(true);
    for patch in 3..6 {
        world.advance(2);
        world.scale_as_ours(1, patch);
    }
    assert_eq!(world.live().len(), 6);
    world.advance(20);
    assert_eq!(world.live().len(), 1, "{:#?}", world.log);
}

#[test]
fn what_another_listener_leaves_out_stays() {
    let (mut world, _) = six_and_one(false);
    for patch in 3..20 {
        world.advance(50);
        world.scale(1, patch);
    }
    assert_eq!((world.live().len(), world.count("remove_runner")), (6, 0));

    // also when ours was there before
    let (mut world, _) = six_and_one(true);
    for patch in 3..20 {
        world.advance(50);
        world.scale(1, patch);
    }
    assert_eq!((world.live().len(), world.count("remove_runner")), (6, 0));
}

#[test]
fn a_demand_that_rises_is_what_the_surplus_is_measured_by_and_one_that_falls_begins_anew() {
    let (mut world, _) = six_and_one(true);
    world.advance(20);
    world.scale_as_ours(4, 3);
    world.advance(20);
    assert_eq!(world.live().len(), 4, "{:#?}", world.log);
    world.scale_as_ours(2, 4);
    world.advance(10);
    world.scale_as_ours(2, 5);
    world.advance(10);
    assert_eq!(world.live().len(), 4);
    world.advance(10);
    assert_eq!(world.live().len(), 2);
    assert!(world.violations.is_empty(), "{:#?}", world.violations);
}

#[test]
fn the_oldest_go_first_and_a_refusal_protects() {
    let (mut world, _) = six_and_one(true);
    world.advance(10);
    let old = world.live();
    world.scale_as_ours(7, 3);
    let young = world.live().into_iter().find(|name| !old.contains(name));
    for registered in world.registered.values_mut() {
        // nobody has heard of their jobs
        registered.busy |= registered.name == old[1] || registered.name == old[2];
    }
    for patch in 4..6 {
        world.advance(35);
        world.scale_as_ours(4, patch);
    }
    let left = world.live();
    assert_eq!(left.len(), 4, "{:#?}", world.log);
    for kept in [&old[1], &old[2]] {
        assert!(left.contains(kept));
    }
    assert!(left.contains(&young.unwrap()), "the youngest stays");
    assert!(world.violations.is_empty(), "{:#?}", world.violations);
}
