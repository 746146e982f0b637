//! A person deletes an object in the middle: while the set is parked, and while a revision is
//! being applied.

use std::time::Duration;

use impresario::api::{
    AutoscalingListener, AutoscalingListenerPhase, EphemeralRunner, EphemeralRunnerPhase,
    EphemeralRunnerSet, EphemeralRunnerSetPhase,
};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use kube::ResourceExt;

use crate::stage::manifests::{RUN, SET};
use crate::stage::play;
use crate::world::{World, phase};

const RUNNING: Option<EphemeralRunnerSetPhase> = Some(EphemeralRunnerSetPhase::Running);

/// Parked, with a busy runner and, if the set keeps it, the rejected one.
async fn parked() -> (World, Vec<String>) {
    let world = World::by_hand().await;
    let names = world.one_busy_of(3).await;
    world.stage.exit(&names[2], 7).await;
    world.until_parked().await;
    (world, names)
}

#[test]
fn the_runner_set_while_parked_is_made_anew_and_counts_as_corrected() {
    play(async || {
        let (world, names) = parked().await;
        let before = world.stage.runner_set().await.uid();
        world.stage.delete::<EphemeralRunnerSet>(RUN, SET).await;
        // its busy runner is waited for
        world.stage.pass(Duration::from_secs(60)).await;
        assert!(world.stage.is_live(&names[0]).await);
        world.stage.exit(&names[0], 0).await;
        world.until_running().await;
        assert_ne!(world.stage.runner_set().await.uid(), before);
        assert_eq!(world.standing().await, (RUNNING, 1, 1));
        world.stage.ersset(2, 0).await;
        world.until_fleet(&[1, 1]).await;
        world.assert_sound().await;
    });
}

#[test]
fn a_busy_runner_rejected_while_its_set_is_deleted_condemns_nobody() {
    play(async || {
        let (world, names) = parked().await;
        world.stage.delete::<EphemeralRunnerSet>(RUN, SET).await;
        world.stage.settle().await;
        world.stage.exit(&names[0], 7).await;
        world.until_running().await;
        assert_eq!(world.standing().await, (RUNNING, 1, 1));
        world.assert_sound().await;
    });
}

#[test]
fn the_runner_set_while_a_revision_is_applied_is_made_anew_with_the_new_spec() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(3).await;
        world.hold_the_mark();
        world.fix("img:2").await;
        world.until_wanted(2).await;
        world.stage.delete::<EphemeralRunnerSet>(RUN, SET).await;
        world.seam.let_go();
        world.stage.pass(Duration::from_secs(60)).await;
        assert!(world.stage.is_live(&names[0]).await, "its job goes on");
        world.stage.exit(&names[0], 0).await;
        world.until_running().await;
        world.stage.ersset(2, 0).await;
        world.until_fleet(&[1, 1]).await;
        let pods = world.stage.runner_pods().await;
        for pod in pods {
            let spec = pod.spec.unwrap();
            assert_eq!(spec.containers[0].image.as_deref(), Some("img:2"));
        }
        world.assert_sound().await;
    });
}

#[test]
fn the_listener_object_while_parked_is_made_anew_and_stays_stopped() {
    play(async || {
        let (world, _) = parked().await;
        let listener = world.stage.all::<AutoscalingListener>().await.remove(0);
        let pods = world.stage.warden.count("create", "pods");
        world
            .stage
            .delete::<AutoscalingListener>(CONTROLLER_NAMESPACE, &listener.name_any())
            .await;
        world
            .stage
            .until("another is there", async || {
                let all = world.stage.all::<AutoscalingListener>().await;
                all.len() == 1 && all[0].uid() != listener.uid()
            })
            .await;
        world.until_parked().await;
        world.stage.pass(Duration::from_secs(300)).await;
        let another = world.stage.all::<AutoscalingListener>().await.remove(0);
        assert_eq!(another.spec.phase, Some(AutoscalingListenerPhase::Stopped));
        assert_eq!(world.stage.warden.count("create", "pods"), pods);
        // and it listens again when the fix comes
        world.fix("img:2").await;
        world.until_running().await;
        world.assert_sound().await;
    });
}

#[test]
fn the_listener_object_while_a_revision_is_applied_is_made_anew_and_the_fix_applied() {
    play(async || {
        let world = World::by_hand().await;
        world.one_busy_of(3).await;
        let listener = world.stage.all::<AutoscalingListener>().await.remove(0);
        world.hold_the_mark();
        world.fix("img:2").await;
        world
            .stage
            .delete::<AutoscalingListener>(CONTROLLER_NAMESPACE, &listener.name_any())
            .await;
        world.stage.pass(Duration::from_secs(2)).await;
        world.seam.let_go();
        world.until_fleet(&[1, 2, 2]).await;
        world.until_running().await;
        world.assert_sound().await;
    });
}

/// The rejected runner is what a person looks at to see why. Without it the set stays as it
/// is: nobody has corrected anything.
#[test]
fn the_rejected_runner_while_parked_does_not_set_the_scale_set_going() {
    play(async || {
        let (world, names) = parked().await;
        let created = world.history.created();
        let rejected = world.runner(&names[2]).await;
        let kept = rejected.as_ref().and_then(phase);
        assert_eq!(kept, Some(EphemeralRunnerPhase::Outdated), "it is kept");
        world.stage.delete::<EphemeralRunner>(RUN, &names[2]).await;
        world.stage.pass(Duration::from_secs(300)).await;
        world.until_parked().await;
        assert_eq!(world.history.created(), created);
        world.fix("img:2").await;
        world.until_running().await;
        world.assert_sound().await;
    });
}
