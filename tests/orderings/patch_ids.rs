//! The listener's patch ids start again, pass through marks of before, and wrap; each id asks
//! for a decision of its own.

use std::time::Duration;

use impresario::api::EphemeralRunnerSet;
use impresario::api::constants::annotations;
use kube::ResourceExt;

use crate::stage::play;
use crate::world::World;

/// Where what is made is made at once.
const MOMENT: Duration = Duration::from_secs(10);

#[test]
fn ids_that_start_again_pass_through_the_mark_of_the_last_cleanup() {
    play(async || {
        let world = World::by_hand().await;
        counted_under(&world, 3).await;
        // another listener: its ids start again
        for (replicas, patch) in [(2, 0), (3, 1), (4, 2), (5, 3), (6, 4)] {
            world.stage.ersset(replicas, patch).await;
            becomes(&world, replicas, patch).await;
        }
        world.assert_sound().await;
    });
}

#[test]
fn ids_that_start_again_pass_through_the_mark_after_a_restart_of_the_controller() {
    play(async || {
        let world = World::by_hand().await;
        counted_under(&world, 3).await;
        world.restart();
        world.stage.settle().await;
        for (replicas, patch) in [(2, 0), (3, 1), (4, 2), (5, 3), (6, 4)] {
            world.stage.ersset(replicas, patch).await;
            becomes(&world, replicas, patch).await;
        }
        world.assert_sound().await;
    });
}

#[test]
fn ids_that_start_again_pass_through_those_that_runners_were_made_under() {
    play(async || {
        let world = World::by_hand().await;
        world.stage.settled_fixture(0, 20).await;
        for (replicas, patch) in [(1, 1), (2, 2), (3, 3)] {
            world.stage.ersset(replicas, patch).await;
            becomes(&world, replicas, patch).await;
        }
        for (replicas, patch) in [(4, 0), (5, 1), (6, 2), (7, 3), (8, 4)] {
            world.stage.ersset(replicas, patch).await;
            becomes(&world, replicas, patch).await;
        }
        world.assert_sound().await;
    });
}

#[test]
fn ids_wrap_and_each_is_decided_on() {
    play(async || {
        let world = World::by_hand().await;
        world.stage.settled_fixture(0, 20).await;
        let ids = [2_147_483_646, 2_147_483_647, 0, 1, 2];
        for (replicas, patch) in (1..).zip(ids) {
            world.stage.ersset(replicas, patch).await;
            becomes(&world, replicas, patch).await;
        }
        world.assert_sound().await;
    });
}

#[test]
fn finished_runners_are_counted_under_ids_that_wrap() {
    play(async || {
        let world = World::by_hand().await;
        world.stage.settled_fixture(0, 20).await;
        let mut replicas = 4;
        world.stage.ersset(replicas, 2_147_483_645).await;
        becomes(&world, replicas, 2_147_483_645).await;
        for patch in [2_147_483_646, 2_147_483_647, 1, 2] {
            let runner = world.fleet().await.remove(0).0;
            // the listener has not heard of its end, and then has
            world.stage.ersset(replicas, patch).await;
            does_a_job(&world, &runner).await;
            assert!(world.runner(&runner).await.is_none(), "{patch}");
            assert_eq!(counted(&world).await, patch);
            replicas -= 1;
            assert_eq!(world.fleet().await.len(), count(replicas), "{patch}");
        }
        assert_eq!(world.history.created(), 4);
        world.assert_sound().await;
    });
}

#[test]
fn a_minimum_under_id_0_is_refilled_and_shrunk_whatever_was_counted_before() {
    play(async || {
        let world = World::by_hand().await;
        world.stage.settled_fixture(2, 20).await;
        world.stage.ersset(2, 0).await;
        becomes(&world, 2, 0).await;
        // refilled, again and again, without a word of the listener
        for round in 1..=3 {
            let runner = world.fleet().await.remove(0).0;
            does_a_job(&world, &runner).await;
            world
                .stage
                .within(MOMENT, "it is refilled", async || {
                    let fleet = world.fleet().await;
                    fleet.len() == 2 && fleet.iter().all(|(name, _)| *name != runner)
                })
                .await;
            assert_eq!(world.history.created(), 2 + round);
        }
        // jobs come, one ends under their id, and then there are none
        world.stage.ersset(4, 1).await;
        becomes(&world, 4, 1).await;
        let runner = world.fleet().await.remove(0).0;
        does_a_job(&world, &runner).await;
        world.stage.ersset(3, 2).await;
        world.stage.settle().await;
        world.stage.ersset(2, 0).await;
        becomes(&world, 2, 0).await;
        world.stage.ersset(0, 0).await;
        becomes(&world, 0, 0).await;
        world.assert_sound().await;
    });
}

#[test]
fn a_mark_equal_to_the_patch_holds_its_gap_through_a_restart_until_the_next_patch() {
    play(async || {
        let world = World::by_hand().await;
        counted_under(&world, 3).await;
        let created = world.history.created();
        for _ in 0..3 {
            world.restart();
            world.stage.pass(Duration::from_secs(60)).await;
            world.stage.settle().await;
            assert_eq!(
                world.history.created(),
                created,
                "{}",
                world.picture().await
            );
        }
        world.stage.ersset(2, 4).await;
        becomes(&world, 2, 4).await;
        assert_eq!(world.history.created(), created + 1);
        world.assert_sound().await;
    });
}

/// `replicas` is as old as it was, so the place of the finished runner stays free.
#[test]
fn a_new_revision_takes_the_mark_back_and_fills_only_the_places_that_it_opened() {
    play(async || {
        let world = World::by_hand().await;
        counted_under(&world, 3).await;
        world.fix("img:2").await;
        world.until_applied(2).await;
        assert_eq!(counted(&world).await, 0);
        world.until_fleet(&[2]).await;
        world.stage.ersset(2, 4).await;
        world.until_fleet(&[2, 2]).await;
        world.assert_sound().await;
    });
}

/// A restart in the middle of each: marker, deletion, and what comes after.
#[test]
fn a_finished_runner_is_counted_once_whenever_the_controller_is_restarted() {
    for milliseconds in (0..1_500).step_by(100) {
        play(async || {
            let world = World::by_hand().await;
            world.stage.settled_fixture(0, 20).await;
            world.stage.ersset(2, 1).await;
            becomes(&world, 2, 1).await;
            let runner = world.fleet().await.remove(0).0;
            world.seam.jitter(milliseconds, Duration::from_millis(300));
            world.stage.up(&runner).await;
            world.stage.busy(&runner, 12).await;
            world.stage.exit(&runner, 0).await;
            world.stage.ersset(2, 2).await;
            world.stage.pass(Duration::from_millis(milliseconds)).await;
            world.restart();
            world.stage.settle().await;
            let picture = world.picture().await;
            assert!(world.runner(&runner).await.is_none(), "{picture}");
            let created = world.history.created();
            assert_eq!(created, 2, "after {milliseconds} ms\n{picture}");
            world.assert_sound().await;
        });
    }
}

/// Two runners, one of which does a job and is counted under this patch while the listener
/// still asks for two.
async fn counted_under(world: &World, patch: i64) {
    world.stage.settled_fixture(0, 20).await;
    world.stage.ersset(2, 1).await;
    becomes(world, 2, 1).await;
    let runner = world.fleet().await.remove(0).0;
    does_a_job(world, &runner).await;
    world.stage.ersset(2, patch).await;
    world.stage.settle().await;
    assert_eq!(counted(world).await, patch);
    assert_eq!(world.fleet().await.len(), 1);
}

async fn does_a_job(world: &World, runner: &str) {
    world.stage.up(runner).await;
    world.stage.busy(runner, 12).await;
    world.stage.exit(runner, 0).await;
    world.stage.settle().await;
}

/// Soon there are so many runners, and no others.
async fn becomes(world: &World, replicas: i64, patch: i64) {
    let what = format!("{replicas} runners under patch {patch}");
    world
        .stage
        .within(MOMENT, &what, async || {
            world.fleet().await.len() == count(replicas)
        })
        .await;
    world.stage.settle().await;
    assert_eq!(world.fleet().await.len(), count(replicas));
}

/// The patch under which finished runners were last counted.
async fn counted(world: &World) -> i64 {
    let set: EphemeralRunnerSet = world.stage.runner_set().await;
    let status = set.status.unwrap_or_default();
    status.finished_runner_cleanup_patch_id.unwrap_or(0)
}

fn count(replicas: i64) -> usize {
    usize::try_from(replicas).unwrap()
}

/// Scaling up in the middle, then a restart: it is completed, under the same patch.
#[test]
fn a_scale_up_that_is_cut_short_is_completed_under_its_patch() {
    for writes in 0..8 {
        play(async || {
            let world = World::by_hand().await;
            world.stage.settled_fixture(0, 20).await;
            world.seam.record();
            world.seam.plan(writes, crate::seam::Trouble::DeathAfter);
            world.stage.ersset(4, 2_147_483_647).await;
            world.seam.death().await;
            world.restart();
            becomes(&world, 4, 2_147_483_647).await;
            assert_eq!(world.history.created(), 4);
            let live = world.stage.live().await;
            let stamps = live
                .iter()
                .map(|one| &one.annotations()[annotations::PATCH_ID]);
            let newest = stamps.filter(|stamp| *stamp == "2147483647").count();
            assert!(newest >= 1);
            world.assert_sound().await;
        });
    }
}
