//! `status.observedGeneration` catches up only when everything is applied and the listener is
//! in place: each way in which something may be missing.

use serde_json::{Value, json};

use super::world::{CONTROLLER, World};
use crate::actors::listener::tests::cluster::Fault;
use crate::api::AutoscalingRunnerSetPhase as Phase;
use crate::messages::{ActionsErrorKind, Kind, KubeErrorKind, KubeRequest};

type Change = fn(&mut World);

/// A way to hinder a change.
struct Row {
    name: &'static str,
    edit: fn(&mut Value),
    hinder: Change,
    lift: Change,
}

fn new_image(ars: &mut Value) {
    ars["spec"]["template"]["spec"]["containers"][0]["image"] = json!("runner:2");
}

fn new_maximum(ars: &mut Value) {
    ars["spec"]["maxRunners"] = json!(4);
}

fn new_name(ars: &mut Value) {
    ars["spec"]["runnerScaleSetName"] = json!("other");
}

fn refuse(world: &mut World, verb: &'static str, kind: Kind) {
    world.cluster.sabotage(move |request| {
        let is = match request {
            KubeRequest::Create(_) => "create",
            KubeRequest::Patch { status: false, .. } => "patch",
            KubeRequest::Delete { .. } => "delete",
            _ => "",
        };
        (is == verb && request.kind() == kind).then_some(Fault::Refuse(KubeErrorKind::Unavailable))
    });
}

fn stop(world: &mut World) {
    world.cluster.stop_sabotage();
}

const ROWS: &[Row] = &[
    Row {
        name: "the service does not take the new name",
        edit: new_name,
        hinder: |world| world.service.fault = Some(ActionsErrorKind::Unavailable),
        lift: |world| world.service.fault = None,
    },
    Row {
        name: "the annotations cannot be written",
        edit: new_name,
        hinder: |world| refuse(world, "patch", Kind::AutoscalingRunnerSet),
        lift: stop,
    },
    Row {
        name: "the runner set cannot be patched",
        edit: new_image,
        hinder: |world| refuse(world, "patch", Kind::EphemeralRunnerSet),
        lift: stop,
    },
    Row {
        name: "the new revision is not applied",
        edit: new_image,
        hinder: |world| world.applies = false,
        lift: |world| {
            world.applies = true;
            world.play_runner_set();
        },
    },
    Row {
        name: "the old listener cannot be deleted",
        edit: new_maximum,
        hinder: |world| refuse(world, "delete", Kind::AutoscalingListener),
        lift: stop,
    },
    Row {
        name: "the new listener cannot be created",
        edit: new_maximum,
        hinder: |world| refuse(world, "create", Kind::AutoscalingListener),
        lift: stop,
    },
    Row {
        name: "the listener's rights cannot be given",
        edit: new_maximum,
        hinder: |world| refuse(world, "create", Kind::Role),
        lift: stop,
    },
    Row {
        name: "the listener's configuration cannot be written",
        edit: new_maximum,
        hinder: |world| refuse(world, "create", Kind::Secret),
        lift: stop,
    },
    Row {
        name: "the listener's pod cannot be created",
        edit: new_maximum,
        hinder: |world| refuse(world, "create", Kind::Pod),
        lift: stop,
    },
    Row {
        name: "the listener's pod does not start",
        edit: new_maximum,
        hinder: |world| world.kubelet = false,
        lift: |world| world.kubelet = true,
    },
    Row {
        name: "the spec makes no sense",
        edit: |ars| ars["spec"]["minRunners"] = json!(50),
        hinder: |_| {},
        lift: |world| world.edit(|ars| ars["spec"]["minRunners"] = json!(1)),
    },
];

fn observed(world: &World) -> Option<i64> {
    let ars = world.ars();
    ars.status
        .as_ref()
        .and_then(|status| status.observed_generation)
}

#[test]
fn it_lags_while_anything_is_missing_and_catches_up_without_an_edit() {
    for row in ROWS {
        let mut world = World::settled();
        let before = observed(&world);
        (row.hinder)(&mut world);
        world.edit(row.edit);
        world.pass(90);
        assert_eq!(observed(&world), before, "{}", row.name);
        assert_eq!(world.phase(), Some(Phase::Pending), "{}", row.name);
        world.restart();
        world.pass(90);
        assert_eq!(observed(&world), before, "{}, after a restart", row.name);
        (row.lift)(&mut world);
        world.pass(400);
        assert!(world.is_observed(), "{}", row.name);
        assert_eq!(world.phase(), Some(Phase::Running), "{}", row.name);
    }
}

/// A set whose first runner is rejected when its generation has not been observed yet.
fn rejected_at_once(hinder: impl FnOnce(&mut World)) -> World {
    let mut world = World::settled();
    world.kubelet = false;
    world.edit(new_maximum);
    world.settle();
    assert!(!world.is_observed());
    hinder(&mut world);
    world.edit_set(|set| {
        set["spec"]["replicas"] = json!(1);
        set["status"] = json!({
            "currentReplicas": 0, "phase": "Outdated", "appliedActionableRevision": 1,
        });
    });
    world.pass(90);
    world
}

#[test]
fn a_parked_set_is_observed_when_its_listener_is_stopped_and_nothing_is_asked_for() {
    let mut world = rejected_at_once(|world| world.kubelet = true);
    assert!(world.is_observed());
    assert_eq!(world.phase(), Some(Phase::Outdated));

    // (what, how)
    let table: [(&str, Change); 3] = [
        ("the runner set cannot be put to rest", |world| {
            world.kubelet = true;
            refuse(world, "patch", Kind::EphemeralRunnerSet);
        }),
        ("the listener cannot be stopped", |world| {
            world.kubelet = true;
            refuse(world, "patch", Kind::AutoscalingListener);
        }),
        ("the listener's pod does not go", |_| {}),
    ];
    for (what, hinder) in table {
        world = rejected_at_once(hinder);
        assert!(!world.is_observed(), "{what}");
        assert_eq!(world.phase(), Some(Phase::Pending), "{what}");
        world.kubelet = true;
        world.cluster.stop_sabotage();
        for name in world.cluster.names(Kind::Pod) {
            world.cluster.vanish(Kind::Pod, CONTROLLER, &name);
        }
        world.pass(400);
        assert!(world.is_observed(), "{what}");
        assert_eq!(world.phase(), Some(Phase::Outdated), "{what}");
    }
}
