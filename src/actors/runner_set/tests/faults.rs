//! A whole life of a set, with one thing going wrong at every request in turn.

use super::world::{Fault, World};
use crate::messages::Kind;

/// Scale-up, a job, a failed runner, a scale-down, and the deletion. Asserts only what holds
/// whatever goes wrong on the way.
fn live_through(fault: Option<Fault>) -> World {
    let mut world = World::new();
    world.fault = fault;
    world.scale(3, 1);
    world.advance(40);
    let live = world.live();
    assert_eq!(live.len(), 3, "scaled up: {:#?}", world.log);
    assert_eq!(world.names(Kind::Pod), live, "{:#?}", world.log);
    assert_eq!(world.registered.len(), 3, "{:#?}", world.log);

    // one takes a job and ends: its place stays free until the next patch
    world.busy(&live[0]);
    world.exit(&live[0], 0);
    world.advance(120);
    assert_eq!(world.live(), live[1..], "{:#?}", world.log);

    // another is deleted by a person: its place is filled
    world.delete(Kind::EphemeralRunner, &live[1]);
    world.scale(2, 2);
    world.advance(120);
    assert_eq!(world.live().len(), 2, "{:#?}", world.log);

    world.scale(1, 0);
    world.advance(120);
    assert_eq!(world.live().len(), 1, "{:#?}", world.log);
    assert_eq!(world.registered.len(), 1, "{:#?}", world.log);

    world.delete(Kind::EphemeralRunnerSet, super::world::SET);
    world.advance(120);
    for kind in [
        Kind::EphemeralRunner,
        Kind::EphemeralRunnerSet,
        Kind::Pod,
        Kind::Secret,
    ] {
        assert!(
            world.names(kind).is_empty(),
            "{kind} left: {:#?}",
            world.log
        );
    }
    assert!(world.registered.is_empty(), "{:#?}", world.log);
    assert!(world.violations.is_empty(), "{:?}", world.violations);
    world
}

fn at_every_request(fault: impl Fn(usize) -> Fault) {
    let requests = live_through(None).requests;
    assert!(requests > 30);
    for at in 1..=requests {
        println!("{:?}", fault(at));
        live_through(Some(fault(at)));
    }
}

#[test]
fn nothing_is_lost_or_doubled_when_an_answer_is_lost() {
    at_every_request(Fault::LostAnswer);
}

#[test]
fn nothing_is_lost_or_doubled_when_a_request_is_refused() {
    at_every_request(Fault::Refused);
}

#[test]
fn nothing_is_lost_or_doubled_when_the_process_dies_before_a_request() {
    at_every_request(Fault::CrashBefore);
}

#[test]
fn nothing_is_lost_or_doubled_when_the_process_dies_after_a_request() {
    at_every_request(Fault::CrashAfter);
}

#[test]
fn two_runs_ask_for_the_same_things_in_the_same_order() {
    assert_eq!(live_through(None).log, live_through(None).log);
}
