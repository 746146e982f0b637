//! A whole life of a set, with one thing going wrong at every request in turn.

use proptest::prelude::*;

use super::world::{Fault, SET, World};
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

    // one takes a job and ends: its place stays free until the next patch but one
    world.busy(&live[0]);
    world.exit(&live[0], 0);
    world.advance(120);
    assert_eq!(world.alive(), live[1..], "{:#?}", world.log);
    world.scale(3, 2);
    world.advance(120);
    assert_eq!(world.live(), live[1..], "{:#?}", world.log);
    world.scale(3, 3);
    world.advance(120);
    assert_eq!(world.live().len(), 3, "{:#?}", world.log);

    // the end of another's job is on record before it ends, and the patch knows of it
    world.busy(&live[1]);
    world.complete(&live[1]);
    world.scale_knowing(3, 4);
    world.exit(&live[1], 0);
    world.advance(120);
    assert_eq!(world.live().len(), 3, "{:#?}", world.log);
    assert!(!world.live().contains(&live[1]));

    // a third is deleted by a person: its place is filled
    world.delete(Kind::EphemeralRunner, &live[2]);
    world.scale(2, 5);
    world.advance(120);
    assert_eq!(world.live().len(), 3, "{:#?}", world.log);

    world.scale(1, 0);
    world.advance(120);
    assert_eq!(world.live().len(), 1, "{:#?}", world.log);
    assert_eq!(world.registered.len(), 1, "{:#?}", world.log);

    world.delete(Kind::EphemeralRunnerSet, SET);
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

/// Something that happens.
#[derive(Clone, Debug)]
enum Happening {
    /// The listener patches: so many runners, with the next patch id, or 0.
    Patch(i64, bool),
    /// Our listener does, and knows of all jobs whose end it has recorded.
    PatchKnowing(i64),
    /// It records the end of a runner's job.
    Done(usize),
    /// A job starts on a runner.
    Job(usize),
    /// A runner's container ends.
    Exit(usize, i32),
    /// A person deletes a runner, or its pod.
    DeleteRunner(usize),
    DeletePod(usize),
    /// The process dies, or its next requests meet a fault.
    Restart,
    Fault(usize, usize),
    /// A new runner spec is published.
    Revision,
    /// Time passes.
    Wait(i64),
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::{
        DeletePod, DeleteRunner, Done, Exit, Fault, Job, Patch, PatchKnowing, Restart, Revision,
        Wait,
    };
    prop_oneof![
        4 => (0_i64..5, prop::bool::weighted(0.3))
            .prop_map(|(replicas, forced)| Patch(replicas, forced)),
        2 => (0_i64..5).prop_map(PatchKnowing),
        2 => (0_usize..5).prop_map(Done),
        3 => (0_usize..5).prop_map(Job),
        3 => (0_usize..5, prop_oneof![Just(0), Just(1)]).prop_map(|(at, code)| Exit(at, code)),
        1 => (0_usize..5).prop_map(DeleteRunner),
        1 => (0_usize..5).prop_map(DeletePod),
        1 => Just(Restart),
        3 => (0_usize..4, 1_usize..8).prop_map(|(kind, at)| Fault(kind, at)),
        1 => Just(Revision),
        2 => (1_i64..90).prop_map(Wait),
    ]
}

fn happen(world: &mut World, happening: &Happening, patch: &mut i64, revision: &mut i64) {
    let at = |world: &World, index: usize, kind: Kind| {
        let names = world.names(kind);
        (!names.is_empty()).then(|| names[index % names.len()].clone())
    };
    match happening {
        Happening::Patch(replicas, forced) => {
            *patch += 1;
            world.scale(*replicas, if *forced { 0 } else { *patch });
        }
        Happening::PatchKnowing(replicas) => {
            *patch += 1;
            world.scale_knowing(*replicas, *patch);
        }
        Happening::Done(index) => {
            if let Some(name) = at(world, *index, Kind::EphemeralRunner)
                && world.has_job(&name)
            {
                world.complete(&name);
            }
        }
        Happening::Job(index) => {
            if let Some(name) = at(world, *index, Kind::Pod)
                && world.value(Kind::Pod, &name)["status"]["phase"] == "Running"
                && world.is_registered(&name)
                && !world.has_ended(&name)
            {
                world.busy(&name);
            }
        }
        Happening::Exit(index, code) => {
            if let Some(name) = at(world, *index, Kind::Pod) {
                world.exit(&name, *code);
            }
        }
        Happening::DeleteRunner(index) => {
            if let Some(name) = at(world, *index, Kind::EphemeralRunner) {
                world.delete(Kind::EphemeralRunner, &name);
            }
        }
        Happening::DeletePod(index) => {
            if let Some(name) = at(world, *index, Kind::Pod) {
                world.delete(Kind::Pod, &name);
                world.end_job(&name);
            }
        }
        Happening::Restart => {
            world.restart();
            world.settle();
        }
        Happening::Fault(kind, ahead) => {
            let at = world.requests + ahead;
            world.fault = Some(match kind {
                0 => Fault::LostAnswer(at),
                1 => Fault::Refused(at),
                2 => Fault::CrashBefore(at),
                _ => Fault::CrashAfter(at),
            });
        }
        Happening::Revision => {
            *revision += 1;
            world.set_spec(serde_json::json!({ "actionableRevision": *revision }));
        }
        Happening::Wait(seconds) => world.advance(*seconds),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Never more runners than the newest `replicas`, none for a job that is done, no name made
    /// twice, no pod deleted under its job, id 0 never asked about; afterwards the set gets where it is to be, rests there,
    /// and leaves nothing behind.
    #[test]
    fn whatever_happens_the_set_gets_where_it_is_to_be(
        happenings in prop::collection::vec(happening(), 1..25),
    ) {
        let mut world = World::new();
        let (mut patch, mut revision) = (0, 1);
        for happening in &happenings {
            happen(&mut world, happening, &mut patch, &mut revision);
        }
        world.fault = None;
        for name in world.names(Kind::Pod) {
            // one that ends may let another go
            if world.names(Kind::Pod).contains(&name) {
                world.end_job(&name);
                world.exit(&name, 0);
            }
        }
        world.advance(700);
        world.scale(2, 0);
        world.advance(700);
        prop_assert_eq!(world.ready().len(), 2, "{:#?}", world.log);
        let requests = world.requests;
        world.advance(3_600);
        prop_assert_eq!(world.requests, requests, "{:#?}", world.log);
        world.delete(Kind::EphemeralRunnerSet, SET);
        world.advance(900);
        for kind in [Kind::EphemeralRunner, Kind::EphemeralRunnerSet, Kind::Pod, Kind::Secret] {
            prop_assert!(world.names(kind).is_empty(), "{} left: {:#?}", kind, world.log);
        }
        prop_assert!(world.registered.is_empty(), "{:#?}", world.log);
        prop_assert!(world.violations.is_empty(), "{:?}", world.violations);
    }
}
