//! A fleet that an older controller made: runners without a stamp count as revision 0.

use impresario::api::{
    AutoscalingRunnerSetPhase, EphemeralRunner, EphemeralRunnerSet, EphemeralRunnerSetPhase,
};
use serde_json::json;

use crate::stage::manifests::{RUN, SET};
use crate::stage::play;
use crate::world::World;

const RUNNING: Option<EphemeralRunnerSetPhase> = Some(EphemeralRunnerSetPhase::Running);
const OUTDATED: Option<EphemeralRunnerSetPhase> = Some(EphemeralRunnerSetPhase::Outdated);

/// A set that never heard of revisions, with three runners of which the first has a job, and
/// a controller that has just found it.
async fn adopted() -> (World, Vec<String>) {
    let world = World::by_hand().await;
    let names = world.one_busy_of(3).await;
    world.stage.kill_controller();
    let none = json!({"spec": {"actionableRevision": null}});
    world
        .stage
        .patch::<EphemeralRunnerSet>(RUN, SET, none)
        .await;
    let none = json!({"status": {
        "appliedActionableRevision": null, "finishedRunnerCleanupPatchID": null, "phase": null,
    }});
    world.patch_status::<EphemeralRunnerSet>(SET, none).await;
    let none = json!({"metadata": {"annotations": {
        "actions.github.com/actionable-revision": null,
        "actions.github.com/patch-id": null,
        "actions.github.com/integrity-hash": "f00d",
    }}});
    for name in &names {
        world
            .stage
            .patch::<EphemeralRunner>(RUN, name, none.clone())
            .await;
    }
    world.restart();
    world.stage.settle().await;
    world.until_fleet(&[0, 0, 0]).await;
    assert_eq!(
        world.standing().await.2,
        0,
        "nothing changed, nothing bumped"
    );
    (world, names)
}

#[test]
fn the_first_fix_of_an_adopted_fleet_replaces_its_idle_runners() {
    play(async || {
        let (world, names) = adopted().await;
        world.fix("img:2").await;
        world.until_fleet(&[0, 1, 1]).await;
        assert!(world.stage.is_live(&names[0]).await);
        assert_eq!(world.standing().await, (RUNNING, 1, 1));
        assert_eq!(world.history.created(), 5);
        world.until_running().await;
        sound(&world).await;
    });
}

#[test]
fn without_anything_applied_the_verdict_of_a_runner_without_a_stamp_counts() {
    play(async || {
        let (world, names) = adopted().await;
        world.stage.exit(&names[1], 7).await;
        world.until_parked().await;
        assert_eq!(world.standing().await, (OUTDATED, 0, 0));
        assert!(world.stage.is_live(&names[0]).await);
        assert_eq!(world.history.created(), 3);
        // the fix is the first revision, and the verdict older than it
        world.fix("img:2").await;
        world.until_running().await;
        assert_eq!(world.standing().await, (RUNNING, 1, 1));
        world.stage.ersset(3, 0).await;
        world.until_fleet(&[0, 1, 1]).await;
        sound(&world).await;
    });
}

#[test]
fn after_something_was_applied_the_verdict_of_a_runner_without_a_stamp_is_stale() {
    play(async || {
        let (world, names) = adopted().await;
        world.fix("img:2").await;
        world.until_fleet(&[0, 1, 1]).await;
        world.stage.exit(&names[0], 7).await;
        world.until_fleet(&[1, 1, 1]).await;
        assert_eq!(world.history.condemned(), None);
        assert_eq!(world.standing().await, (RUNNING, 1, 1));
        let phases = world.history.scale_set_phases();
        assert!(!phases.contains(&AutoscalingRunnerSetPhase::Outdated));
        world.until_running().await;
        sound(&world).await;
    });
}

#[test]
fn a_mixed_fleet_is_judged_runner_by_runner() {
    play(async || {
        let (world, names) = adopted().await;
        world.fix("img:2").await;
        world.until_fleet(&[0, 1, 1]).await;
        let fleet = world.fleet().await;
        let (stamped, _) = fleet.iter().find(|(_, revision)| *revision == 1).unwrap();
        // both at once: the one's verdict is stale, the other's stands
        world.stage.exit(&names[0], 7).await;
        world.stage.exit(stamped, 7).await;
        world.until_parked().await;
        assert_eq!(world.standing().await, (OUTDATED, 1, 1));
        assert!(world.runner(&names[0]).await.is_none());
        sound(&world).await;
    });
}

/// The test took the applied revision back, which nobody else may: one violation is its own.
async fn sound(world: &World) {
    world.stage.settle().await;
    world.stage.assert_nothing_left_over_beside_runners().await;
    let own = |violation: &String| violation.starts_with("INV-8: back to 0");
    let mut violations = world.history.violations();
    let count = violations.len();
    violations.retain(|violation| !own(violation));
    assert!(violations.is_empty(), "{violations:#?}");
    assert_eq!(count, 1);
}
