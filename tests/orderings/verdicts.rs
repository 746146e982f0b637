//! A busy runner of the old spec exits with 7 around the time a fix is published and applied.
//! Whenever it does, the fix stands.

use std::time::Duration;

use impresario::api::{AutoscalingRunnerSetPhase, EphemeralRunnerSet, EphemeralRunnerSetPhase};
use serde_json::json;

use crate::seam::Held;
use crate::stage::manifests::{RUN, SET};
use crate::stage::play;
use crate::world::World;

const OUTDATED: Option<EphemeralRunnerSetPhase> = Some(EphemeralRunnerSetPhase::Outdated);
const ERS_STATUS: &str = "ephemeralrunnersets/status";
const HELD: Duration = Duration::from_secs(10);

#[test]
fn after_the_fix_was_applied_it_counts_for_nothing() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(3).await;
        world.fix("img:2").await;
        world.until_applied(2).await;
        world.until_fleet(&[1, 2, 2]).await;
        world.stage.exit(&names[0], 7).await;
        world.until_fleet(&[2, 2, 2]).await;

        assert!(world.history.applied(2) < world.history.verdict_of(&names[0]));
        assert_eq!(world.history.condemned(), None);
        assert_eq!(world.history.created(), 6);
        ends_well(&world).await;
    });
}

#[test]
fn while_the_applied_mark_is_on_its_way_it_does_not_park() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(3).await;
        world.seam.hold(ERS_STATUS, Held::Before, HELD);
        world.fix("img:2").await;
        world
            .stage
            .until("the idle ones are gone", async || {
                world.stage.live().await.len() == 1
            })
            .await;
        // the counts of before have landed, and the mark is on its way
        world.stage.pass(HELD).await;
        assert_eq!(world.standing().await.1, 1);
        world.stage.exit(&names[0], 7).await;
        world.stage.pass(Duration::from_millis(500)).await;
        assert_eq!(world.standing().await.1, 1, "the mark has not landed");
        world.seam.let_go();
        world.until_fleet(&[2, 2, 2]).await;

        let verdict = world.history.verdict_of(&names[0]);
        assert!(verdict > world.history.wanted(2) && verdict < world.history.applied(2));
        ends_well(&world).await;
    });
}

#[test]
fn while_the_answer_to_the_applied_mark_is_on_its_way_it_counts_for_nothing() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(3).await;
        world.seam.hold(ERS_STATUS, Held::After, HELD);
        world.seam.slow_down("ephemeralrunnersets", HELD);
        world.fix("img:2").await;
        world.until_applied(2).await;
        world.stage.exit(&names[0], 7).await;
        world.stage.pass(Duration::from_secs(2)).await;
        world.seam.let_go();
        world.until_fleet(&[2, 2, 2]).await;

        assert!(world.history.applied(2) < world.history.verdict_of(&names[0]));
        assert_eq!(world.history.condemned(), None);
        ends_well(&world).await;
    });
}

#[test]
fn while_idle_runners_are_being_released_it_does_not_park() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(3).await;
        world.seam.hold("ephemeralrunners", Held::Before, HELD);
        world.fix("img:2").await;
        world.until_wanted(2).await;
        world.stage.pass(Duration::from_secs(1)).await;
        assert_eq!(world.stage.live().await.len(), 3, "nobody has gone yet");
        world.stage.exit(&names[0], 7).await;
        world.stage.pass(Duration::from_secs(5)).await;
        // the verdict is about what still is the applied revision, and is said so
        assert_eq!(world.standing().await, (OUTDATED, 1, 2));
        world.seam.let_go();
        world.until_fleet(&[2, 2, 2]).await;

        let verdict = world.history.verdict_of(&names[0]);
        assert!(verdict > world.history.wanted(2) && verdict < world.history.applied(2));
        ends_well(&world).await;
    });
}

#[test]
fn before_the_scale_set_has_seen_it_a_published_fix_stands() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(3).await;
        // the verdict is written down, and neither its answer nor an event tells of it
        world.seam.hold(ERS_STATUS, Held::After, HELD);
        world.seam.slow_down("ephemeralrunnersets", HELD);
        world.stage.exit(&names[0], 7).await;
        world
            .stage
            .until("the verdict stands", async || {
                world.standing().await.0 == OUTDATED
            })
            .await;
        world.fix("img:2").await;
        world.until_wanted(2).await;
        world.seam.let_go();
        world.until_fleet(&[2, 2, 2]).await;

        let condemned = world.history.condemned().unwrap();
        assert!(condemned < world.history.wanted(2));
        ends_well(&world).await;
    });
}

/// Before anybody but the runner's actor has seen it, that is.
#[test]
fn before_the_runner_set_has_seen_it_a_published_fix_stands() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(3).await;
        world
            .seam
            .hold("ephemeralrunners/status", Held::After, HELD);
        world.seam.slow_down("ephemeralrunners", HELD);
        world.stage.exit(&names[0], 7).await;
        world
            .stage
            .until("it is rejected", async || {
                let runner = world.runner(&names[0]).await.unwrap();
                crate::world::phase(&runner)
                    == Some(impresario::api::EphemeralRunnerPhase::Outdated)
            })
            .await;
        world.fix("img:2").await;
        world.until_applied(2).await;
        world.seam.let_go();
        world.until_fleet(&[2, 2, 2]).await;

        assert!(world.history.verdict_of(&names[0]) < world.history.wanted(2));
        assert_eq!(world.history.condemned(), None);
        ends_well(&world).await;
    });
}

/// The fix is there when the verdict is told, and the scale set has not heard of it.
#[test]
fn before_the_scale_set_has_seen_the_fix_a_verdict_does_not_discard_it() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(3).await;
        world.seam.slow_down("autoscalingrunnersets", HELD);
        world.fix("img:2").await;
        world.stage.exit(&names[0], 7).await;
        world.until_applied(2).await;
        world.seam.let_go();
        world.until_running().await;
        // the listener asks again, as it does when it starts
        world.stage.ersset(3, 1).await;
        world.until_fleet(&[2, 2, 2]).await;

        let verdict = world.history.verdict_of(&names[0]);
        assert!(verdict < world.history.wanted(2));
        assert!(world.history.condemned().unwrap() < world.history.wanted(2));
        world.until_running().await;
        world.assert_sound().await;
    });
}

#[test]
fn a_verdict_and_a_fix_while_no_controller_runs_end_in_the_fix() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(3).await;
        world.stage.kill_controller();
        world.stage.exit(&names[0], 7).await;
        world.fix("img:2").await;
        world.restart();
        world.until_fleet(&[2, 2, 2]).await;
        ends_well(&world).await;
    });
}

#[test]
fn a_verdict_about_the_fix_itself_parks() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(2).await;
        world.fix("img:2").await;
        world.until_fleet(&[1, 2]).await;
        let fleet = world.fleet().await;
        let (new, _) = fleet.iter().find(|(_, revision)| *revision == 2).unwrap();
        world.stage.exit(new, 7).await;
        world.until_parked().await;
        assert_eq!(world.standing().await, (OUTDATED, 2, 2));
        let set = world.stage.runner_set().await;
        assert_eq!((set.spec.replicas, set.spec.patch_id), (Some(0), 0));
        // the old one's verdict adds nothing
        world.stage.exit(&names[0], 7).await;
        world.stage.settle().await;
        world
            .stage
            .until("its stale verdict is cleared away", async || {
                world.runner(&names[0]).await.is_none()
            })
            .await;
        assert_eq!(world.standing().await, (OUTDATED, 2, 2));
        assert_eq!(world.history.created(), 3);
        world.assert_sound().await;
    });
}

/// Somebody may have written so; the runners say otherwise.
#[test]
fn an_older_revision_wanted_by_hand_changes_nothing() {
    play(async || {
        let world = World::by_hand().await;
        world.one_busy_of(2).await;
        world.fix("img:2").await;
        world.until_fleet(&[1, 2]).await;
        let before = world.fleet().await;
        let older = json!({"spec": {"actionableRevision": 1}});
        world
            .stage
            .patch::<EphemeralRunnerSet>(RUN, SET, older)
            .await;
        world.stage.pass(Duration::from_secs(60)).await;
        assert_eq!(world.fleet().await, before);
        assert_eq!(world.standing().await.1, 2);
        // the next fix is above both
        world.fix("img:3").await;
        world.until_fleet(&[1, 3]).await;
        ends_well(&world).await;
    });
}

/// The scale set never was parked, and runs.
async fn ends_well(world: &World) {
    world.until_running().await;
    let phases = world.history.scale_set_phases();
    assert!(
        !phases.contains(&AutoscalingRunnerSetPhase::Outdated),
        "{phases:?}\n{}",
        world.history.picture()
    );
    world.assert_sound().await;
}
