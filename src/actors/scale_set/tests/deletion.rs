//! How a scale set goes.

use serde_json::json;

use super::world::{CONTROLLER, POOL, RUNNERS, World, sharer};
use crate::actors::Machine;
use crate::actors::listener::tests::cluster::{Fault, from_value};
use crate::actors::scale_set::{ScaleSetCommand, ScaleSetReport};
use crate::api::constants::labels;
use crate::messages::{
    ActionsErrorKind, Effect, Input, Kind, KubeErrorKind, KubeRequest, RunnerCounts,
};

pub const PROTECTION: &str = "actions.github.com/cleanup-protection";

pub fn delete(world: &mut World) {
    world
        .cluster
        .delete(Kind::AutoscalingRunnerSet, RUNNERS, POOL);
    world.settle();
}

/// Only what the user made is left.
fn assert_gone(world: &World) {
    let left: Vec<_> = world.cluster.objects.keys().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(world.stopped);
    assert_eq!(world.reports.last(), Some(&ScaleSetReport::Gone));
}

#[test]
fn everything_goes_in_order() {
    let mut world = World::settled();
    let before = world.cluster.writes.len();
    delete(&mut world);
    world.pass(10);
    assert_gone(&world);
    assert!(world.service.sets.is_empty());
    assert_eq!(world.service.count("delete_scale_set"), 1);
    let place = |write: &str| {
        let after = &world.cluster.writes[before..];
        after.iter().position(|one| one.starts_with(write)).unwrap()
    };
    assert!(place("delete AutoscalingListener") < place("delete EphemeralRunnerSet"));
    assert!(place("patch AutoscalingListener") < place("delete EphemeralRunnerSet"));
}

#[test]
fn a_scale_set_that_another_set_has_as_well_stays() {
    let mut world = World::settled();
    let others = vec![sharer(true)];
    world.command(ScaleSetCommand::Shared(others));
    delete(&mut world);
    world.pass(10);
    assert_gone(&world);
    assert!(world.service.sets.contains_key(&11));
    assert_eq!(world.service.count("delete_scale_set"), 0);
    assert_eq!(world.events_of("ScaleSetLeft"), 1);
    let note = world
        .events
        .iter()
        .find(|note| note.reason == "ScaleSetLeft");
    assert!(note.unwrap().message.contains("team-b/pool still has it"));
}

#[test]
fn a_made_up_id_does_not_keep_the_scale_set_of_another() {
    let mut world = World::settled();
    world.command(ScaleSetCommand::Shared(vec![sharer(false)]));
    delete(&mut world);
    world.pass(30);
    // the other may yet show it
    assert_eq!(world.service.count("delete_scale_set"), 0);
    let ready = world.condition("Ready");
    assert!(ready.contains("team-b/pool to show"), "{ready}");
    world.pass(40);
    assert_gone(&world);
    assert_eq!(world.service.count("delete_scale_set"), 1);
    assert_eq!(world.events_of("ScaleSetLeft"), 0);
}

#[test]
fn a_claim_that_is_shown_in_time_keeps_the_scale_set() {
    let mut world = World::settled();
    world.command(ScaleSetCommand::Shared(vec![sharer(false)]));
    delete(&mut world);
    world.pass(30);
    world.command(ScaleSetCommand::Shared(vec![sharer(true)]));
    world.pass(40);
    assert_gone(&world);
    assert_eq!(world.service.count("delete_scale_set"), 0);
    assert_eq!(world.events_of("ScaleSetLeft"), 1);
}

#[test]
fn the_id_of_an_earlier_config_url_is_not_deleted_at_another() {
    let mut world = World::settled();
    // the service behind the new URL is out of order, and has that id for somebody else
    world.service.fault = Some(ActionsErrorKind::Unavailable);
    let url = "https://ghes.acme.io/acme/widgets";
    world.edit(|ars| ars["spec"]["githubConfigUrl"] = json!(url));
    world.pass(10);
    world.service.fault = None;
    delete(&mut world);
    world.pass(60);
    assert_gone(&world);
    assert_eq!(world.service.count("delete_scale_set"), 0);
    assert!(world.events_of("ScaleSetLeft") >= 1);
}

#[test]
fn a_busy_runner_is_waited_for_and_the_service_is_not_called_before() {
    let mut world = World::settled();
    world.count_runners(RunnerCounts {
        running: 1,
        ..RunnerCounts::default()
    });
    delete(&mut world);
    world.pass(600);
    assert_eq!(world.service.count("delete_scale_set"), 0);
    assert!(world.cluster.names(Kind::AutoscalingListener).is_empty());
    assert!(
        world.condition("Ready").contains("1 runners to finish"),
        "{}",
        world.condition("Ready")
    );
    world.count_runners(RunnerCounts::default());
    world.pass(10);
    assert_gone(&world);
    assert_eq!(world.service.count("delete_scale_set"), 1);
}

#[test]
fn a_deletion_that_waits_for_a_busy_runner_is_at_rest() {
    let mut world = World::settled();
    world.count_runners(RunnerCounts {
        running: 1,
        ..RunnerCounts::default()
    });
    delete(&mut world);
    world.pass(60);
    let (requests, directives) = (world.cluster.requests, world.directives.len());
    for _ in 0..3600 {
        world.pass(1);
        let now = world.cluster.now;
        let effects = world.machine.step(now, Input::Tick);
        let other = effects
            .iter()
            .filter(|effect| !matches!(effect, Effect::WakeAt(_)));
        assert_eq!(other.count(), 0, "{effects:?}");
        world.play_runner_set();
    }
    world.settle();
    assert_eq!(world.cluster.requests, requests);
    assert_eq!(world.directives.len(), directives);
}

#[test]
fn a_successor_of_a_deleted_scale_set_has_its_listener_looked_for_again() {
    let mut world = World::settled();
    delete(&mut world);
    world.pass(60);
    assert!(world.stopped);
    world.stopped = false;
    world.apply(super::world::scale_set());
    world.restart();
    world.pass(60);
    assert_eq!(world.cluster.names(Kind::AutoscalingListener).len(), 1);
    delete(&mut world);
    world.pass(60);
    assert_gone(&world);
}

#[test]
fn a_role_that_lost_the_labels_of_its_listener_goes_too() {
    for kind in [Kind::Role, Kind::RoleBinding] {
        let mut world = World::settled();
        let name = world.cluster.names(kind).remove(0);
        delete_unlabelled(&mut world, kind, &name);
        world.pass(60);
        assert!(world.cluster.names(kind).is_empty(), "{kind}");
        assert_gone(&world);
    }
}

/// Takes the listener's labels off the object at the moment of the deletion.
fn delete_unlabelled(world: &mut World, kind: Kind, name: &str) {
    world.cluster.edit(kind, RUNNERS, name, |object| {
        let labels = object["metadata"]["labels"].as_object_mut().unwrap();
        labels.remove(labels::LISTENER_NAME);
        labels.remove(labels::LISTENER_NAMESPACE);
    });
    world
        .cluster
        .delete(Kind::AutoscalingListener, CONTROLLER, name);
    delete(world);
}

#[test]
fn refused_credentials_are_tried_for_a_minute() {
    let mut world = World::settled();
    world.service.fault = Some(ActionsErrorKind::Unauthorized);
    delete(&mut world);
    world.pass(30);
    assert!(!world.stopped);
    assert_eq!(world.events_of("ScaleSetLeft"), 0);
    world.service.fault = None;
    world.pass(60);
    assert_gone(&world);
    assert!(world.service.sets.is_empty());
    assert_eq!(world.events_of("ScaleSetLeft"), 0);
}

#[test]
fn one_refusal_after_a_long_outage_does_not_end_the_deletion() {
    let mut world = World::settled();
    world.service.fault = Some(ActionsErrorKind::Unavailable);
    delete(&mut world);
    world.pass(300);
    world.service.fault = Some(ActionsErrorKind::Unauthorized);
    let calls = world.service.count("delete_scale_set");
    while world.service.count("delete_scale_set") == calls {
        world.pass(1);
    }
    world.pass(1);
    assert!(!world.stopped);
    world.service.fault = None;
    world.pass(120);
    assert_gone(&world);
    assert!(world.service.sets.is_empty());
}

#[test]
fn credentials_that_stay_refused_do_not_hold_the_deletion() {
    let mut world = World::settled();
    world.service.fault = Some(ActionsErrorKind::Unauthorized);
    delete(&mut world);
    world.pass(180);
    assert_gone(&world);
    let calls = world.service.count("delete_scale_set");
    assert!((4..=10).contains(&calls), "{calls}");
    assert_eq!(world.events_of("ScaleSetLeft"), 1);
}

#[test]
fn unusable_credentials_do_not_hold_the_deletion() {
    for kind in [ActionsErrorKind::Credentials, ActionsErrorKind::Config] {
        let mut world = World::settled();
        world.service.fault = Some(kind);
        delete(&mut world);
        world.pass(60);
        assert_gone(&world);
        assert_eq!(world.service.count("delete_scale_set"), 1);
        let left = world
            .events
            .iter()
            .find(|note| note.reason == "ScaleSetLeft")
            .unwrap();
        assert!(left.message.contains("id 11"), "{left:?}");
    }
}

#[test]
fn a_service_with_a_bad_time_is_asked_again() {
    let mut world = World::settled();
    world.service.fault = Some(ActionsErrorKind::Unavailable);
    delete(&mut world);
    world.pass(30);
    assert!(world.service.count("delete_scale_set") >= 3);
    assert!(!world.stopped);
    world.service.fault = None;
    world.pass(60);
    assert_gone(&world);
    assert!(world.service.sets.is_empty());
    assert_eq!(world.events_of("ScaleSetLeft"), 0);
}

#[test]
fn a_service_is_not_asked_to_delete_before_it_wishes_to_be() {
    let mut world = World::settled();
    world.service.fault = Some(ActionsErrorKind::Unavailable);
    world.service.wait = Some(std::time::Duration::from_secs(90));
    delete(&mut world);
    world.pass(85);
    assert_eq!(world.service.count("delete_scale_set"), 1);
    world.pass(10);
    assert_eq!(world.service.count("delete_scale_set"), 2);
}

#[test]
fn a_service_that_stays_away_does_not_hold_the_deletion_for_ever() {
    let mut world = World::settled();
    world.service.fault = Some(ActionsErrorKind::Unavailable);
    delete(&mut world);
    world.pass(700);
    assert_gone(&world);
    assert_eq!(world.events_of("ScaleSetLeft"), 1);
}

#[test]
fn a_scale_set_without_a_usable_id_is_not_deleted_in_the_service() {
    let mut world = World::settled();
    world.service.fault = Some(ActionsErrorKind::Unavailable);
    world.cluster.sabotage(|request| {
        let kind = request.kind();
        (kind == Kind::AutoscalingRunnerSet
            && matches!(request, KubeRequest::Patch { status: false, .. }))
        .then_some(Fault::Refuse(KubeErrorKind::Unavailable))
    });
    world.edit(|ars| ars["metadata"]["annotations"]["runner-scale-set-id"] = json!("x"));
    world.settle();
    world.cluster.stop_sabotage();
    delete(&mut world);
    world.pass(60);
    assert_gone(&world);
    assert_eq!(world.service.count("delete_scale_set"), 0);
}

pub fn protected(world: &mut World) {
    let pairs = [
        (
            Kind::RoleBinding,
            "kube-rb",
            "cleanup-kubernetes-mode-role-binding-name",
        ),
        (Kind::Role, "kube-role", "cleanup-kubernetes-mode-role-name"),
        (
            Kind::ServiceAccount,
            "kube-sa",
            "cleanup-kubernetes-mode-service-account-name",
        ),
        (Kind::Secret, "gh-secret", "cleanup-github-secret-name"),
        (
            Kind::RoleBinding,
            "manager-rb",
            "cleanup-manager-role-binding",
        ),
        (Kind::Role, "manager-role", "cleanup-manager-role-name"),
    ];
    for (kind, name, annotation) in pairs {
        let mut value = json!({"metadata": {"name": name, "namespace": RUNNERS, "finalizers": [PROTECTION, "theirs/x"]}});
        if kind == Kind::RoleBinding {
            value["roleRef"] = json!({"apiGroup": "g", "kind": "Role", "name": "r"});
        }
        world.cluster.apply(from_value(kind, value));
        world.edit(|ars| {
            ars["metadata"]["annotations"][format!("actions.github.com/{annotation}")] =
                json!(name);
        });
    }
    world.edit(|ars| {
        ars["metadata"]["annotations"]["actions.github.com/cleanup-no-permission-service-account-name"] = json!("not-there");
    });
    world.pass(5);
}

#[test]
fn the_charts_protected_objects_are_released_in_order() {
    let mut world = World::settled();
    protected(&mut world);
    let before = world.cluster.writes.len();
    delete(&mut world);
    world.pass(10);
    let released: Vec<_> = world.cluster.writes[before..]
        .iter()
        .filter_map(|write| write.strip_prefix("patch "))
        .filter(|write| !write.starts_with("Auto") && !write.starts_with("Ephemeral"))
        .collect();
    assert_eq!(
        released,
        [
            "RoleBinding kube-rb",
            "Role kube-role",
            "ServiceAccount kube-sa",
            "Secret gh-secret",
            "RoleBinding manager-rb",
            "Role manager-role",
        ]
    );
    assert!(world.stopped);
    for object in world
        .cluster
        .objects
        .values()
        .filter(|one| one.meta().finalizers.is_some())
    {
        assert_eq!(object.meta().finalizers.as_ref().unwrap(), &["theirs/x"]);
    }
}

#[test]
fn a_controller_killed_at_any_point_of_a_deletion_goes_on_with_it() {
    for step in 0..30 {
        let mut world = World::settled();
        protected(&mut world);
        world
            .cluster
            .delete(Kind::AutoscalingRunnerSet, RUNNERS, POOL);
        let kill_at = world.cluster.requests + step;
        let seen = std::rc::Rc::new(std::cell::Cell::new(world.cluster.requests));
        world.cluster.sabotage(move |_| {
            seen.set(seen.get() + 1);
            (seen.get() > kill_at).then_some(Fault::LoseRequest)
        });
        world.settle();
        world.cluster.stop_sabotage();
        world.restart();
        world.pass(60);
        assert!(world.stopped, "killed after {step} requests");
        assert!(world.service.sets.is_empty());
        assert!(world.cluster.names(Kind::AutoscalingRunnerSet).is_empty());
    }
}

#[test]
fn what_is_left_of_a_forced_deletion_is_wound_up() {
    let mut world = World::settled();
    world
        .cluster
        .vanish(Kind::AutoscalingRunnerSet, RUNNERS, POOL);
    world.settle();
    world.pass(5);
    assert!(world.cluster.names(Kind::AutoscalingListener).is_empty());
    assert!(world.cluster.names(Kind::Role).is_empty());
    assert!(!world.stopped, "the set is still there");
    // the garbage collector
    world
        .cluster
        .delete(Kind::EphemeralRunnerSet, RUNNERS, POOL);
    world.settle();
    world.play_runner_set();
    world.pass(5);
    assert_gone(&world);
}

#[test]
fn a_scale_set_that_is_gone_at_the_start_ends_at_once() {
    let mut world = World::new();
    world
        .cluster
        .vanish(Kind::AutoscalingRunnerSet, RUNNERS, POOL);
    world.cluster.shown.clear();
    world.pass(5);
    assert_gone(&world);
    assert!(world.cluster.writes.is_empty());
}

#[test]
fn what_was_being_created_when_the_scale_set_was_deleted_goes_too() {
    for kind in [Kind::AutoscalingListener, Kind::EphemeralRunnerSet] {
        let mut world = World::new();
        world.hold = Some(kind);
        world.pass(5);
        delete(&mut world);
        world.pass(5);
        assert!(!world.stopped);
        world.release();
        world.pass(60);
        assert_gone(&world);
        assert!(world.service.sets.is_empty());
    }
}

#[test]
fn a_registration_under_way_is_taken_back() {
    let mut world = World::new();
    world.hold_calls = true;
    world.settle();
    // nothing was found; the answer to the creation is kept back
    world.release_calls_once();
    delete(&mut world);
    assert_eq!(world.service.sets.len(), 1);
    world.release();
    world.pass(60);
    assert_gone(&world);
    assert!(world.service.sets.is_empty());
}

#[test]
fn objects_of_others_are_left_alone() {
    let mut world = World::new();
    world.cluster.apply(from_value(
        Kind::EphemeralRunnerSet,
        json!({"metadata": {"name": POOL, "namespace": RUNNERS, "ownerReferences": [
            {"apiVersion": "other/v1", "kind": "Fleet", "name": "f", "uid": "f-1", "controller": true}]},
            "spec": {"patchID": 0}}),
    ));
    world.pass(60);
    assert!(
        world
            .condition("RunnersReady")
            .starts_with("False ForeignObject")
    );
    assert_eq!(world.events_of("ForeignObject"), 1);
    delete(&mut world);
    world.pass(60);
    assert!(world.cluster.names(Kind::AutoscalingRunnerSet).is_empty());
    assert_eq!(world.cluster.count("delete EphemeralRunnerSet"), 0);
    assert_eq!(world.cluster.names(Kind::EphemeralRunnerSet), [POOL]);
}
