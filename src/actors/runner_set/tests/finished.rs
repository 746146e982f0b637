//! Finished runners: who counts them, whose places are held, and for how long.

use serde_json::json;

use super::world::{Fault, World};
use crate::messages::Kind;

/// A set whose listener has asked for so many runners under patch 4, and their names.
fn with(replicas: i64) -> (World, Vec<String>) {
    let mut world = World::new();
    world.scale(replicas, 4);
    let names = world.live();
    (world, names)
}

fn done(world: &mut World, name: &str) {
    world.busy(name);
    world.exit(name, 0);
}

fn is_sound(world: &World) {
    assert!(world.violations.is_empty(), "{:#?}", world.violations);
}

// === the rule of the marker ===

#[test]
fn a_finished_runner_waits_without_pod_and_secret_until_a_decision_is_due() {
    let (mut world, names) = with(2);
    done(&mut world, &names[0]);
    world.advance(3_600);
    assert_eq!(world.live(), names);
    assert_eq!(world.names(Kind::Pod), [names[1].clone()]);
    assert_eq!(world.names(Kind::Secret), [names[1].clone()]);
    assert_eq!(world.marker(), 0, "the patch has been served");
    let requests = world.requests;
    world.advance(3_600);
    assert_eq!(world.requests, requests, "and it rests");
}

#[test]
fn the_next_patch_counts_it_and_holds_its_place_and_the_one_after_fills_it() {
    let (mut world, names) = with(2);
    done(&mut world, &names[0]);
    world.scale(2, 5);
    world.advance(300);
    assert_eq!((world.live(), world.marker()), (names[1..].to_vec(), 5));
    world.scale(2, 6);
    assert_eq!(world.live().len(), 2);
    is_sound(&world);
}

#[test]
fn only_the_places_that_the_count_has_opened_are_held() {
    // (name, replicas of the next patch, how many finish, how many are alive under it)
    let table = [
        ("as many as before", 3, 1, 2),
        ("two more are wanted", 5, 1, 4),
        ("fewer are wanted", 2, 1, 2),
        ("fewer than are left", 1, 1, 2),
        ("two have finished", 5, 2, 3),
        ("all have finished", 3, 3, 0),
        ("all have finished and more are wanted", 4, 3, 1),
    ];
    for (name, replicas, finish, alive) in table {
        let (mut world, names) = with(3);
        for one in &names[..finish] {
            done(&mut world, one);
        }
        world.scale(replicas, 5);
        world.advance(60);
        assert_eq!(world.live().len(), alive, "{name}: {:#?}", world.log);
        is_sound(&world);
    }
}

#[test]
fn a_busy_pool_grows_although_every_patch_finds_a_finished_runner() {
    let (mut world, _) = with(3);
    for patch in 5..25 {
        let one = world.alive().remove(0);
        done(&mut world, &one);
        world.scale(3, patch);
        assert!(!world.alive().is_empty(), "starved under {patch}");
    }
    assert!(
        world.created.len() >= 20,
        "{} were made",
        world.created.len()
    );
    is_sound(&world);
}

#[test]
fn patch_0_holds_nothing() {
    let (mut world, names) = with(2);
    done(&mut world, &names[0]);
    world.scale(2, 0);
    assert_eq!(world.live().len(), 2);
    assert!(!world.live().contains(&names[0]));
    let idle = world.live();
    world.exit(&idle[0], 0);
    assert_eq!(world.live().len(), 2, "refilled without a new patch");
    is_sound(&world);
}

#[test]
fn a_runner_lost_for_no_job_is_replaced_beside_a_held_place() {
    let (mut world, names) = with(3);
    done(&mut world, &names[0]);
    world.scale(3, 5);
    assert_eq!(world.live().len(), 2);
    world.delete(Kind::EphemeralRunner, &names[1]);
    world.advance(10);
    assert_eq!(world.live().len(), 2, "{:#?}", world.log);
    is_sound(&world);
}

#[test]
fn the_loss_of_an_idle_runner_has_the_finished_counted_under_the_patch_that_was_served() {
    let (mut world, names) = with(3);
    done(&mut world, &names[0]);
    world.delete(Kind::EphemeralRunner, &names[1]);
    world.advance(10);
    assert_eq!(world.marker(), 4);
    assert!(!world.live().contains(&names[0]));
    assert_eq!(world.live().len(), 2);
    is_sound(&world);
}

#[test]
fn the_place_of_a_busy_runner_that_a_person_deletes_is_held_too() {
    let (mut world, names) = with(3);
    world.busy(&names[0]);
    world.delete(Kind::EphemeralRunner, &names[0]);
    world.exit(&names[0], 0);
    // something makes a decision due
    world.delete(Kind::EphemeralRunner, &names[1]);
    world.advance(60);
    assert_eq!(world.live().len(), 2, "{:#?}", world.log);
    is_sound(&world);
}

// === the marker's write ===

#[test]
fn nothing_is_deleted_before_the_count_is_on_record_and_others_are_made_meanwhile() {
    let (mut world, names) = with(2);
    done(&mut world, &names[0]);
    world.hang.push("finishedRunnerCleanupPatchID");
    world.scale(4, 5);
    assert_eq!(world.alive().len(), 1, "nothing else on the same input");
    world.busy(&names[1]);
    assert!(world.live().contains(&names[0]));
    assert_eq!(world.alive().len(), 3, "{:#?}", world.log);
    world.unhang();
    world.scale(4, 6);
    assert!(!world.live().contains(&names[0]));
    is_sound(&world);
}

#[test]
fn a_count_that_meets_a_newer_object_is_made_on_a_fresh_one() {
    let (mut world, names) = with(2);
    done(&mut world, &names[0]);
    world.hang.push("finishedRunnerCleanupPatchID");
    world.scale(2, 5);
    // the listener is faster, and its patch is the one to count under
    world.scale(3, 6);
    world.unhang();
    world.advance(10);
    assert_eq!(world.marker(), 6);
    assert_eq!(world.live().len(), 2, "{:#?}", world.log);
    let counted = "\"finishedRunnerCleanupPatchID\":";
    let writes: Vec<&String> = world
        .log
        .iter()
        .filter(|line| line.contains(counted))
        .collect();
    let last = writes.last().unwrap();
    assert!(last.contains("status at "), "with a lock: {last}");
    is_sound(&world);
}

#[test]
fn a_runner_whose_deletion_hangs_is_held_once() {
    let (mut world, names) = with(3);
    done(&mut world, &names[0]);
    world.hang.push("delete EphemeralRunner");
    world.scale(4, 5);
    world.advance(30);
    assert!(world.live().contains(&names[0]), "its deletion hangs");
    assert_eq!(world.alive().len(), 3, "{:#?}", world.log);
    world.unhang();
    world.advance(30);
    assert_eq!(world.live().len(), 3, "{:#?}", world.log);
    is_sound(&world);
}

#[test]
fn a_finished_runner_is_not_in_deletion_while_its_pod_lingers() {
    let (mut world, names) = with(2);
    world.hang.push("delete Pod");
    done(&mut world, &names[0]);
    world.scale(3, 5);
    world.advance(60);
    assert!(world.live().contains(&names[0]));
    assert_eq!(world.marker(), 5, "it is counted");
    assert_eq!(world.alive().len(), 2, "{:#?}", world.log);
    world.unhang();
    assert_eq!(world.live().len(), 2);
    is_sound(&world);
}

// === crashes ===

#[test]
fn a_new_process_holds_the_whole_gap_under_the_patch_on_record_and_nothing_under_the_next() {
    let (mut world, names) = with(3);
    done(&mut world, &names[0]);
    world.scale(3, 5);
    world.restart();
    world.advance(10);
    world.delete(Kind::EphemeralRunner, &names[1]);
    world.advance(60);
    assert_eq!(
        world.live(),
        names[2..],
        "whose places are free nobody knows"
    );
    world.scale(3, 6);
    assert_eq!(world.live().len(), 3);
    is_sound(&world);
}

#[test]
fn what_finished_before_a_restart_is_counted_after_it_and_not_by_it() {
    let (mut world, names) = with(2);
    done(&mut world, &names[0]);
    world.restart();
    world.advance(60);
    assert_eq!((world.live(), world.marker()), (names.clone(), 0));
    world.scale(3, 5);
    assert_eq!(world.live().len(), 2);
    assert!(!world.live().contains(&names[0]));
    is_sound(&world);
}

#[test]
fn a_crash_around_any_write_of_the_count_makes_no_runner_for_the_job_that_is_done() {
    let crashes: [fn(usize) -> Fault; 4] = [
        Fault::CrashBefore,
        Fault::CrashAfter,
        Fault::LostAnswer,
        Fault::Refused,
    ];
    for crash in crashes {
        for ahead in 1..12 {
            let (mut world, names) = with(3);
            done(&mut world, &names[0]);
            world.fault = Some(crash(world.requests + ahead));
            world.scale(4, 5);
            world.advance(60);
            let alive = world.alive().len();
            assert!((2..=3).contains(&alive), "{:?}: {alive}", world.fault);
            // one that was not deleted any more is counted once more
            for patch in [6, 7] {
                world.scale(4, patch);
                world.advance(60);
            }
            assert_eq!(world.live().len(), 4, "{:?} {:#?}", world.fault, world.log);
            is_sound(&world);
        }
    }
}

// === the marker's way down ===

#[test]
fn the_listeners_ids_begin_again_and_pass_through_the_marker_and_the_stamps() {
    let (mut world, names) = with(2);
    done(&mut world, &names[0]);
    world.scale(2, 5);
    world.scale(2, 6);
    assert_eq!((world.marker(), world.live().len()), (5, 2));
    for (patch, replicas) in [(0, 2), (1, 2), (4, 3), (5, 4), (6, 5)] {
        world.scale(replicas, patch);
        let live = i64::try_from(world.live().len()).unwrap();
        assert_eq!(live, replicas, "under {patch}");
    }
    let one = world.live().remove(0);
    done(&mut world, &one);
    world.scale(5, 1);
    assert_eq!(world.marker(), 1, "it may move down");
    is_sound(&world);
}

#[test]
fn the_ids_wrap() {
    let mut world = World::new();
    for (patch, replicas) in [
        (2_147_483_646, 1),
        (2_147_483_647, 3),
        (0, 3),
        (1, 4),
        (2, 4),
    ] {
        world.scale(replicas, patch);
        let live = i64::try_from(world.live().len()).unwrap();
        assert_eq!(live, replicas, "under {patch}");
    }
    let one = world.live().remove(0);
    done(&mut world, &one);
    assert_eq!(
        world.live().len(),
        3,
        "no runner carries the patch, so it is decided on"
    );
    assert_eq!(world.marker(), 2);
    world.scale(4, 3);
    assert_eq!(world.live().len(), 3, "computed before the end, maybe");
    world.scale(4, 4);
    assert_eq!(world.live().len(), 4);
    is_sound(&world);
}

#[test]
fn a_new_revision_takes_the_marker_back_and_only_what_is_known_stays_held() {
    for restarted in [false, true] {
        let (mut world, names) = with(3);
        done(&mut world, &names[0]);
        world.scale(3, 5);
        assert_eq!((world.marker(), world.live().len()), (5, 2));
        if restarted {
            world.restart();
            world.settle();
        }
        world.set_spec(json!({ "actionableRevision": 2 }));
        world.advance(60);
        assert_eq!(world.marker(), 0);
        assert_eq!(
            world.live().len(),
            if restarted { 3 } else { 2 },
            "{:#?}",
            world.log
        );
        world.scale(3, 6);
        assert_eq!(world.live().len(), 3);
        is_sound(&world);
    }
}

// === a patch that knows of the end ===

#[test]
fn the_place_of_a_job_that_the_patch_leaves_out_is_filled_at_once_and_needs_no_marker() {
    // in which order the ends become known: record, patch, exit
    for order in ["rpe", "rep", "erp"] {
        let (mut world, names) = with(2);
        world.busy(&names[0]);
        for event in order.chars() {
            match event {
                'r' => world.complete(&names[0]),
                'p' => world.scale_knowing(2, 5),
                _ => world.exit(&names[0], 0),
            }
        }
        assert_eq!(world.live().len(), 2, "{order}: {:#?}", world.log);
        assert!(!world.live().contains(&names[0]), "{order}");
        assert_eq!(world.marker(), 0, "{order}");
        is_sound(&world);
    }
}

#[test]
fn a_served_patch_is_decided_on_again_when_a_job_that_it_leaves_out_ends() {
    let (mut world, names) = with(2);
    world.busy(&names[0]);
    world.complete(&names[0]);
    // a third is made and carries the patch
    world.scale_knowing(3, 5);
    assert_eq!(world.live().len(), 3);
    world.exit(&names[0], 0);
    assert_eq!(world.live().len(), 3, "{:#?}", world.log);
    is_sound(&world);
}

/// The ids of our listener begin again with it.
#[test]
fn another_number_under_the_id_that_stands_is_served_if_it_is_of_our_listener() {
    let (mut world, names) = with(2);
    done(&mut world, &names[0]);
    world.complete(&names[0]);
    world.scale_knowing(3, 5);
    assert_eq!(world.live().len(), 3);
    world.scale_knowing(4, 5);
    assert_eq!(world.live().len(), 4, "{:#?}", world.log);
    is_sound(&world);

    // any other's patch has been served
    let (mut world, _) = with(2);
    world.scale(3, 5);
    world.scale(4, 5);
    assert_eq!(world.live().len(), 3, "{:#?}", world.log);
}

#[test]
fn a_held_place_opens_when_the_patch_turns_out_to_know() {
    let (mut world, names) = with(2);
    done(&mut world, &names[0]);
    world.complete(&names[0]);
    world.hang.push("delete EphemeralRunner");
    world.scale(2, 5);
    assert_eq!((world.marker(), world.alive().len()), (5, 1));
    // the same patch, told late
    world.scale_knowing(2, 5);
    assert_eq!(world.alive().len(), 2, "{:#?}", world.log);
    world.unhang();
    assert_eq!(world.live().len(), 2);
    is_sound(&world);
}

#[test]
fn an_end_after_the_patch_is_not_known_to_it() {
    let (mut world, names) = with(3);
    done(&mut world, &names[0]);
    world.complete(&names[0]);
    world.scale_knowing(3, 5);
    assert_eq!(world.live().len(), 3);
    done(&mut world, &names[1]);
    world.complete(&names[1]);
    world.advance(60);
    assert!(world.live().contains(&names[1]), "it waits");
    world.scale_knowing(3, 6);
    assert!(!world.live().contains(&names[1]));
    assert_eq!((world.live().len(), world.marker()), (3, 0));
    is_sound(&world);
}

#[test]
fn a_stream_of_jobs_keeps_a_small_pool_full_when_the_patches_know() {
    let (mut world, _) = with(1);
    for patch in 5..15 {
        let one = world.alive().remove(0);
        world.busy(&one);
        world.complete(&one);
        world.scale_knowing(1, patch);
        world.exit(&one, 0);
        assert_eq!(world.live().len(), 1, "under {patch}");
    }
    is_sound(&world);
}

#[test]
fn an_annotation_that_is_no_time_tells_nothing() {
    let (mut world, names) = with(2);
    done(&mut world, &names[0]);
    world.complete(&names[0]);
    let nonsense = json!({ "impresario.dev/jobs-counted-until": "yesterday" });
    world.edit_set(&json!({ "metadata": { "annotations": nonsense } }));
    world.advance(60);
    assert_eq!(world.live(), names);
}
