//! Fixes that follow one another, are taken back, or come while the old listener still writes.

use std::time::Duration;

use impresario::api::{EphemeralRunnerSet, EphemeralRunnerSetPhase};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use crate::seam::Held;
use crate::stage::manifests::SET;
use crate::stage::play;
use crate::world::World;

const RUNNING: Option<EphemeralRunnerSetPhase> = Some(EphemeralRunnerSetPhase::Running);
const OUTDATED: Option<EphemeralRunnerSetPhase> = Some(EphemeralRunnerSetPhase::Outdated);

#[test]
fn a_second_fix_before_the_first_is_applied_is_the_one_that_runs() {
    play(async || {
        let world = World::by_hand().await;
        world.one_busy_of(3).await;
        world.hold_the_mark();
        world.fix("img:2").await;
        world.until_wanted(2).await;
        world.fix("img:3").await;
        world.until_wanted(3).await;
        assert_eq!(world.standing().await.1, 1, "nothing is applied yet");
        world.seam.let_go();
        world.until_fleet(&[1, 3, 3]).await;
        assert_eq!(world.standing().await, (RUNNING, 3, 3));
        assert_eq!(images(&world).await, ["img:1", "img:3", "img:3"]);
        assert_eq!(world.history.created(), 5, "none was made for the first");
        world.until_running().await;
        world.assert_sound().await;
    });
}

#[test]
fn a_second_fix_after_the_first_was_applied_replaces_what_that_made() {
    play(async || {
        let world = World::by_hand().await;
        world.one_busy_of(3).await;
        world.fix("img:2").await;
        world.until_applied(2).await;
        world.fix("img:3").await;
        world.until_applied(3).await;
        world.until_fleet(&[1, 3, 3]).await;
        assert_eq!(images(&world).await, ["img:1", "img:3", "img:3"]);
        world.until_running().await;
        world.assert_sound().await;
    });
}

#[test]
fn a_fix_that_is_taken_back_is_a_revision_of_its_own() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(3).await;
        world.fix("img:2").await;
        world.until_fleet(&[1, 2, 2]).await;
        world.fix("img:1").await;
        world.until_fleet(&[1, 3, 3]).await;
        assert_eq!(images(&world).await, ["img:1", "img:1", "img:1"]);
        // what the first runner says is about the first revision, whatever its image
        world.stage.exit(&names[0], 7).await;
        world.until_fleet(&[3, 3, 3]).await;
        assert_eq!(world.history.condemned(), None);
        world.until_running().await;
        world.assert_sound().await;
    });
}

#[test]
fn a_fix_that_is_taken_back_before_it_is_applied_is_a_revision_of_its_own() {
    play(async || {
        let world = World::by_hand().await;
        world.one_busy_of(2).await;
        world.hold_the_mark();
        world.fix("img:2").await;
        world.until_wanted(2).await;
        world.fix("img:1").await;
        world.until_wanted(3).await;
        world.seam.let_go();
        world.until_fleet(&[1, 3]).await;
        assert_eq!(images(&world).await, ["img:1", "img:1"]);
        world.until_running().await;
        world.assert_sound().await;
    });
}

#[test]
fn taken_back_while_parked_the_rejected_spec_is_tried_and_parks_again() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(2).await;
        world.stage.exit(&names[1], 7).await;
        world.until_parked().await;
        world.fix("img:2").await;
        world.until_running().await;
        world.stage.ersset(2, 0).await;
        world.until_fleet(&[1, 2]).await;
        world.fix("img:1").await;
        world.until_fleet(&[1, 3]).await;
        let fleet = world.fleet().await;
        let (again, _) = fleet.iter().find(|(_, revision)| *revision == 3).unwrap();
        world.stage.exit(again, 7).await;
        world.until_parked().await;
        assert_eq!(world.standing().await, (OUTDATED, 3, 3));
        world.fix("img:2").await;
        world.until_running().await;
        assert_eq!(world.standing().await, (RUNNING, 4, 4));
        world.assert_sound().await;
    });
}

#[test]
fn two_fixes_in_a_row_while_parked_end_in_the_second() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(2).await;
        world.stage.exit(&names[1], 7).await;
        world.until_parked().await;
        world
            .seam
            .hold("ephemeralrunnersets", Held::After, Duration::from_secs(8));
        world.fix("img:2").await;
        world.stage.pass(Duration::from_secs(1)).await;
        world.fix("img:3").await;
        world.seam.let_go();
        world.until_running().await;
        world.stage.ersset(2, 0).await;
        world
            .stage
            .until("two", async || world.fleet().await.len() == 2)
            .await;
        assert_eq!(images(&world).await, ["img:1", "img:3"]);
        world.assert_sound().await;
    });
}

/// The pod of the listener hangs in its end, and the listener in it goes on writing.
#[test]
fn what_a_draining_listener_writes_is_put_back_until_the_fix_and_then_obeyed() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(2).await;
        let listener = world.stage.listener_pods().await.remove(0).name_any();
        hang(&world, &listener, true).await;
        world.stage.exit(&names[1], 7).await;
        world
            .stage
            .until("the listener is told to end", async || {
                let pods = world.stage.listener_pods().await;
                pods.iter()
                    .all(|pod| pod.metadata.deletion_timestamp.is_some())
            })
            .await;
        for (replicas, patch) in [(3, 7), (4, 8), (4, 8)] {
            world.stage.ersset(replicas, patch).await;
            world
                .stage
                .within(Duration::from_secs(400), "it is put back", async || {
                    let spec = world.stage.runner_set().await.spec;
                    (spec.replicas, spec.patch_id) == (Some(0), 0)
                })
                .await;
        }
        assert_eq!(world.history.created(), 2, "none was made for it");

        // the fix comes while it still drains, and it writes once more
        world.fix("img:2").await;
        world.stage.ersset(3, 9).await;
        world.until_applied(2).await;
        hang(&world, &listener, false).await;
        world.until_running().await;
        world.until_fleet(&[1, 2, 2]).await;
        let spec = world.stage.runner_set().await.spec;
        assert_eq!((spec.replicas, spec.patch_id), (Some(3), 9));
        // and so is its successor
        world.stage.ersset(4, 0).await;
        world.until_fleet(&[1, 2, 2, 2]).await;
        world.assert_sound().await;
    });
}

/// A late patch of the old listener and the fix meet at the API server.
#[test]
fn a_target_that_comes_with_the_fix_is_not_put_back_after_it() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(2).await;
        world.stage.exit(&names[1], 7).await;
        world.until_parked().await;
        // the pin to 0/0 and the fix are both on their way when it writes
        world
            .seam
            .hold("ephemeralrunnersets", Held::Before, Duration::from_secs(5));
        world.stage.ersset(2, 5).await;
        world.stage.pass(Duration::from_secs(1)).await;
        world.fix("img:2").await;
        world.stage.pass(Duration::from_secs(1)).await;
        world.seam.let_go();
        world.until_running().await;
        let set = world.stage.runner_set().await;
        assert_eq!((set.spec.replicas, set.spec.patch_id), (Some(0), 0));
        world.stage.ersset(2, 6).await;
        world.until_fleet(&[1, 2]).await;
        world.assert_sound().await;
    });
}

#[test]
fn corrected_metadata_recovers_as_a_corrected_image_does() {
    play(async || {
        let world = World::by_hand().await;
        let names = world.one_busy_of(2).await;
        world.stage.exit(&names[1], 7).await;
        world.until_parked().await;
        world
            .stage
            .edit(json!({"ephemeralRunnerMetadata": {"labels": {"channel": "new"}}}))
            .await;
        world.until_running().await;
        assert_eq!(world.standing().await, (RUNNING, 2, 2));
        world.stage.ersset(2, 0).await;
        world.until_fleet(&[1, 2]).await;
        let labelled = world.stage.live().await.into_iter();
        let labelled = labelled.filter(|one| one.labels().contains_key("channel"));
        assert_eq!(labelled.count(), 1);
        world.assert_sound().await;
    });
}

/// Makes a pod linger, or lets it go.
async fn hang(world: &World, pod: &str, linger: bool) {
    let finalizers = if linger {
        json!(["test/linger"])
    } else {
        json!(null)
    };
    let patch = json!({"metadata": {"finalizers": finalizers}});
    let namespace = impresario::simulation::cluster::CONTROLLER_NAMESPACE;
    world.stage.patch::<Pod>(namespace, pod, patch).await;
}

/// The images that runners have, in order.
async fn images(world: &World) -> Vec<String> {
    let pods = world.stage.runner_pods().await.into_iter();
    let images = pods.filter_map(|pod| pod.spec?.containers.first()?.image.clone());
    let mut images: Vec<String> = images.collect();
    images.sort_unstable();
    images
}

/// Of the runner set, by hand.
#[test]
fn a_revision_below_the_applied_one_is_overtaken_by_the_next_fix() {
    play(async || {
        let world = World::by_hand().await;
        world.one_busy_of(2).await;
        // as an older controller may have left it
        let far = json!({"status": {"appliedActionableRevision": 7}});
        world.patch_status::<EphemeralRunnerSet>(SET, far).await;
        world.stage.settle().await;
        world.fix("img:2").await;
        world.until_fleet(&[1, 8]).await;
        assert_eq!(world.standing().await, (RUNNING, 8, 8));
        world.until_running().await;
        world.assert_sound().await;
    });
}
