//! Every order of what happens around the end of a job: no runner is made for a job that is done,
//! and the set is full again two patches later.
//!
//! A patch is computed before it is written: what ends in between is not known to it.

use serde_json::json;

use super::world::World;
use crate::messages::Kind;

const MARKER: &str = r#""finishedRunnerCleanupPatchID":"#;
const APPLIED: &str = r#""appliedActionableRevision":2"#;
const WANTED: i64 = 3;

/// Something that happens once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The end of the job is recorded.
    Recorded,
    /// Its runner ends.
    Ends,
    /// A person deletes an idle runner, so that a decision is due.
    Lost,
    /// The listener computes its next patch.
    Computed,
    /// It writes that patch.
    Written,
    /// The write of the marker goes through, if there is one.
    Marked,
    /// A new runner spec is published.
    Raised,
    /// The write that says that it is applied goes through, if there is one.
    Applied,
}

/// How the listener's patch stands when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The patch was served.
    Served,
    /// Under it a finished runner was counted.
    CountedRunner,
    /// It asks for as many as there are, so that no runner carries it.
    Unserved,
}

fn begin(start: Start, telling: bool) -> (World, u32) {
    let mut world = World::new();
    world.strict = true;
    let scale = |world: &mut World, replicas, patch| {
        if telling {
            world.scale_knowing(replicas, patch);
        } else {
            world.scale(replicas, patch);
        }
    };
    scale(&mut world, WANTED, 3);
    match start {
        Start::Served => {}
        Start::CountedRunner => {
            let one = world.live().remove(0);
            world.busy(&one);
            world.exit(&one, 0);
            scale(&mut world, WANTED, 4);
        }
        Start::Unserved => scale(&mut world, WANTED, 4),
    }
    if telling {
        // it has told of something, so that it is known to tell
        let stamps = json!({ "impresario.dev/jobs-counted-until": "2020-01-01T00:00:00Z" });
        world.edit_set(&json!({ "metadata": { "annotations": stamps } }));
    }
    (world, 5)
}

fn happen(world: &mut World, event: Event, busy: &str, telling: bool) {
    match event {
        Event::Recorded => {
            if world.has_job(busy) {
                world.complete(busy);
            }
        }
        Event::Ends => {
            if world.names(Kind::Pod).contains(&busy.to_owned()) {
                world.exit(busy, 0);
            }
        }
        Event::Lost => {
            let idle = world.alive().into_iter().find(|name| name != busy);
            if let Some(idle) = idle {
                world.delete(Kind::EphemeralRunner, &idle);
            }
        }
        Event::Computed => world.compute(telling),
        Event::Written => world.write_computed(WANTED, 5),
        Event::Marked => world.unhang_part(MARKER),
        Event::Raised => world.set_spec(json!({ "actionableRevision": 2 })),
        Event::Applied => world.unhang_part(APPLIED),
    }
}

/// All orders of the events in which a patch is computed before it is written.
fn orders(events: &[Event]) -> Vec<Vec<Event>> {
    if events.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, first) in events.iter().enumerate() {
        let mut rest = events.to_vec();
        rest.remove(index);
        if *first == Event::Written && rest.contains(&Event::Computed) {
            continue;
        }
        for mut order in orders(&rest) {
            order.insert(0, *first);
            all.push(order);
        }
    }
    all
}

fn run(start: Start, telling: bool, order: &[Event]) {
    let (mut world, first) = begin(start, telling);
    let busy = world.alive().remove(0);
    world.busy(&busy);
    world.hang.extend([MARKER, APPLIED]);
    for event in order {
        happen(&mut world, *event, &busy, telling);
    }
    let row = format!("{start:?}, telling: {telling}, {order:?}");
    assert!(
        world.violations.is_empty(),
        "{row}: {:#?}",
        world.violations
    );
    world.unhang();
    // the minute in which a listener may still tell
    world.advance(70);
    for patch in 1..3 {
        world.compute(telling);
        world.write_computed(WANTED, i64::from(first + patch));
        world.advance(10);
    }
    let alive = world.alive().len();
    assert_eq!(i64::try_from(alive), Ok(WANTED), "{row}: {:#?}", world.log);
    assert_eq!(world.live().len(), alive, "{row}: all are counted");
    assert!(
        world.violations.is_empty(),
        "{row}: {:#?}",
        world.violations
    );
}

const STARTS: [Start; 3] = [Start::Served, Start::CountedRunner, Start::Unserved];

#[test]
fn no_order_makes_a_runner_for_a_job_that_is_done_if_the_listener_tells_nothing() {
    use Event::{Applied, Computed, Ends, Lost, Marked, Raised, Written};
    for start in STARTS {
        for order in orders(&[Ends, Lost, Computed, Written, Marked]) {
            run(start, false, &order);
        }
        for order in orders(&[Ends, Computed, Written, Marked, Raised, Applied]) {
            run(start, false, &order);
        }
    }
}

#[test]
fn no_order_makes_a_runner_for_a_job_that_is_done_if_the_listener_tells_what_it_left_out() {
    use Event::{Applied, Computed, Ends, Lost, Marked, Raised, Recorded, Written};
    for start in STARTS {
        for order in orders(&[Ends, Recorded, Lost, Computed, Written, Marked]) {
            run(start, true, &order);
        }
        for order in orders(&[Ends, Recorded, Computed, Written, Raised, Applied]) {
            run(start, true, &order);
        }
    }
}

/// As it was seen with a listener of another make.
#[test]
fn what_ends_after_the_count_is_on_record_is_counted_under_the_next_patch() {
    let (mut world, _) = begin(Start::CountedRunner, false);
    assert_eq!(world.marker(), 4);
    let one = world.alive().remove(0);
    world.busy(&one);
    world.exit(&one, 0);
    world.advance(60);
    assert!(world.live().contains(&one), "it waits");
    let made = world.created.len();
    world.scale(WANTED, 5);
    world.advance(60);
    assert_eq!((world.marker(), world.live().contains(&one)), (5, false));
    assert_eq!(world.created.len(), made + 1, "the place of the first one");
    world.scale(WANTED, 6);
    assert_eq!(world.live().len(), 3);
    assert!(world.violations.is_empty(), "{:#?}", world.violations);
}
