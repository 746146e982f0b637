//! Parking and recovery.

use serde_json::json;

use super::world::{POOL, RUNNERS, World};
use crate::api::AutoscalingListenerPhase;
use crate::api::AutoscalingRunnerSetPhase as Phase;
use crate::messages::Kind;

/// What the runner set's actor writes after a runner was rejected for its version.
fn reject(world: &mut World, applied: i64) {
    world.edit_set(|set| {
        set["status"] = json!({"currentReplicas": 0, "phase": "Outdated", "appliedActionableRevision": applied});
    });
}

fn parked() -> World {
    let mut world = World::settled();
    world.edit_set(|set| {
        set["spec"]["replicas"] = json!(2);
        set["spec"]["patchID"] = json!(5);
    });
    reject(&mut world, 1);
    world.pass(5);
    assert_eq!(world.phase(), Some(Phase::Outdated));
    world
}

#[test]
fn a_rejected_runner_version_parks_the_scale_set() {
    let mut world = parked();
    assert_eq!(
        world.al().spec.phase,
        Some(AutoscalingListenerPhase::Stopped)
    );
    assert_eq!(world.cluster.count("create AutoscalingListener"), 1);
    for kind in [
        Kind::Pod,
        Kind::Role,
        Kind::RoleBinding,
        Kind::ServiceAccount,
    ] {
        assert!(world.cluster.names(kind).is_empty(), "{kind}");
    }
    let ers = world.ers();
    assert_eq!((ers.spec.replicas, ers.spec.patch_id), (Some(0), 0));
    assert_eq!(ers.spec.actionable_revision, Some(1));
    assert_eq!(world.service.count("delete_scale_set"), 0);
    assert_eq!(world.events_of("Parked"), 1);
    assert!(world.condition("Ready").contains("spec.template"));
    let (writes, calls) = (world.cluster.writes.len(), world.service.calls.len());
    world.pass(3600);
    world.restart();
    world.pass(300);
    assert_eq!(
        world.cluster.writes.len(),
        writes,
        "{:#?}",
        &world.cluster.writes[writes..]
    );
    assert_eq!(world.service.calls.len(), calls);
}

#[test]
fn a_late_patch_of_a_draining_listener_is_taken_back() {
    let mut world = parked();
    world.edit_set(|set| {
        set["spec"]["replicas"] = json!(3);
        set["spec"]["patchID"] = json!(9);
    });
    world.pass(5);
    let ers = world.ers();
    assert_eq!((ers.spec.replicas, ers.spec.patch_id), (Some(0), 0));
}

#[test]
fn a_corrected_template_recovers() {
    let mut world = parked();
    world.edit(|ars| ars["spec"]["template"]["spec"]["containers"][0]["image"] = json!("runner:2"));
    world.pass(5);
    assert_eq!(world.ers().spec.actionable_revision, Some(2));
    assert_eq!(
        world.al().spec.phase,
        Some(AutoscalingListenerPhase::Running)
    );
    assert_eq!(world.events_of("Recovered"), 1);
    // the old verdict is about revision 1
    assert_eq!(world.phase(), Some(Phase::Running));
    world.edit_set(|set| {
        set["status"] =
            json!({"currentReplicas": 0, "phase": "Running", "appliedActionableRevision": 2});
    });
    world.pass(5);
    assert_eq!(world.phase(), Some(Phase::Running));
    assert!(world.is_observed());
    assert_eq!(world.cluster.names(Kind::Pod).len(), 1);
}

#[test]
fn corrected_runner_metadata_recovers() {
    let mut world = parked();
    world.edit(|ars| ars["spec"]["ephemeralRunnerMetadata"] = json!({"labels": {"a": "b"}}));
    world.pass(5);
    assert_eq!(world.ers().spec.actionable_revision, Some(2));
    assert_eq!(world.phase(), Some(Phase::Running));
}

#[test]
fn a_missing_set_counts_as_corrected() {
    let mut world = parked();
    let before = world.ers().metadata.uid.clone();
    world
        .cluster
        .delete(Kind::EphemeralRunnerSet, RUNNERS, POOL);
    world.pass(5);
    assert_ne!(world.ers().metadata.uid, before);
    assert_eq!(world.phase(), Some(Phase::Running));
}

#[test]
fn other_edits_reach_the_parked_objects_and_keep_them_parked() {
    let mut world = parked();
    world.edit(|ars| ars["spec"]["maxRunners"] = json!(3));
    world.pass(5);
    assert_eq!(world.phase(), Some(Phase::Outdated));
    assert!(world.is_observed());
    assert_eq!(world.al().spec.max_runners, 3);
    assert_eq!(
        world.al().spec.phase,
        Some(AutoscalingListenerPhase::Stopped)
    );
    assert!(world.cluster.names(Kind::Pod).is_empty());
    assert_eq!(world.ers().spec.actionable_revision, Some(1));
}

#[test]
fn a_verdict_about_an_older_revision_does_not_park() {
    let mut world = World::settled();
    world.applies = false;
    world.edit(|ars| ars["spec"]["template"]["spec"]["containers"][0]["image"] = json!("runner:2"));
    world.pass(5);
    reject(&mut world, 1);
    world.pass(60);
    assert_eq!(world.phase(), Some(Phase::Pending));
    assert_eq!(world.events_of("Parked"), 0);
    assert_eq!(world.al().spec.phase, None);
    assert_eq!(world.cluster.names(Kind::Pod).len(), 1);
}
