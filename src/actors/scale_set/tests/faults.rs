//! Whatever goes wrong with a request or a call, the scale set comes to stand, and nothing is
//! made twice.

use std::cell::Cell;
use std::rc::Rc;

use serde_json::json;

use super::world::{POOL, RUNNERS, World};
use crate::actors::listener::tests::cluster::Fault;
use crate::api::AutoscalingRunnerSetPhase as Phase;
use crate::messages::{Kind, KubeErrorKind, KubeRequest};

const FAULTS: [Fault; 9] = [
    Fault::Refuse(KubeErrorKind::NotFound),
    Fault::Refuse(KubeErrorKind::AlreadyExists),
    Fault::Refuse(KubeErrorKind::Conflict),
    Fault::Refuse(KubeErrorKind::Invalid),
    Fault::Refuse(KubeErrorKind::Forbidden),
    Fault::Refuse(KubeErrorKind::Unavailable),
    Fault::Refuse(KubeErrorKind::Other),
    Fault::LoseAnswer,
    Fault::LoseRequest,
];

fn can_happen(fault: Fault, request: &KubeRequest) -> bool {
    let is_read = matches!(request, KubeRequest::Get(_));
    let is_delete = matches!(request, KubeRequest::Delete { .. });
    match fault {
        Fault::Refuse(KubeErrorKind::NotFound) => !is_read && !is_delete,
        Fault::Refuse(KubeErrorKind::AlreadyExists | KubeErrorKind::Conflict) => !is_read,
        _ => true,
    }
}

fn nth(world: &mut World, number: u32, fault: Fault) {
    let seen = Rc::new(Cell::new(0));
    world.cluster.sabotage(move |request| {
        seen.set(seen.get() + 1);
        (seen.get() == number && can_happen(fault, request)).then_some(fault)
    });
}

#[test]
fn one_fault_at_any_point_of_the_way_up_heals() {
    for fault in FAULTS {
        for number in 1..=30 {
            let mut world = World::new();
            nth(&mut world, number, fault);
            world.pass(120);
            let at = format!("{fault:?} at request {number}");
            assert_eq!(world.phase(), Some(Phase::Running), "{at}");
            assert!(world.is_observed(), "{at}");
            for kind in [
                Kind::AutoscalingListener,
                Kind::EphemeralRunnerSet,
                Kind::Pod,
            ] {
                assert_eq!(
                    world.cluster.count(&format!("create {kind}")),
                    1,
                    "{kind}: {at}"
                );
            }
            assert_eq!(world.service.sets.len(), 1, "{at}");
        }
    }
}

#[test]
fn one_fault_at_any_point_of_a_change_heals() {
    for fault in FAULTS {
        for number in 1..=30 {
            let mut world = World::settled();
            nth(&mut world, number, fault);
            world.edit(|ars| {
                ars["spec"]["maxRunners"] = json!(3);
                ars["spec"]["runnerGroup"] = json!("gpu");
                ars["spec"]["template"]["spec"]["containers"][0]["image"] = json!("runner:2");
            });
            world.pass(120);
            let at = format!("{fault:?} at request {number}");
            assert_eq!(world.phase(), Some(Phase::Running), "{at}");
            assert!(world.is_observed(), "{at}");
            assert_eq!(world.ers().spec.actionable_revision, Some(2), "{at}");
            assert_eq!(world.al().spec.max_runners, 3, "{at}");
            assert_eq!(world.most_pods, 1, "{at}");
        }
    }
}

#[test]
fn one_fault_at_any_point_of_the_way_down_heals() {
    for fault in FAULTS {
        for number in 1..=30 {
            let mut world = World::settled();
            nth(&mut world, number, fault);
            world
                .cluster
                .delete(Kind::AutoscalingRunnerSet, RUNNERS, POOL);
            world.pass(120);
            let at = format!("{fault:?} at request {number}");
            assert!(world.stopped, "{at}: {:?}", world.cluster.objects.keys());
            assert_eq!(world.cluster.objects.len(), 1, "{at}");
            assert_eq!(world.service.count("delete_scale_set"), 1, "{at}");
        }
    }
}

#[test]
fn a_controller_killed_at_any_point_of_the_way_up_makes_nothing_twice() {
    for step in 0..30 {
        let mut world = World::new();
        let seen = Rc::new(Cell::new(0));
        world.cluster.sabotage(move |_| {
            seen.set(seen.get() + 1);
            (seen.get() > step).then_some(Fault::LoseRequest)
        });
        world.settle();
        world.cluster.stop_sabotage();
        world.restart();
        world.pass(60);
        let at = format!("killed after {step} requests");
        assert_eq!(world.phase(), Some(Phase::Running), "{at}");
        for kind in [
            Kind::AutoscalingListener,
            Kind::EphemeralRunnerSet,
            Kind::Pod,
        ] {
            assert_eq!(
                world.cluster.count(&format!("create {kind}")),
                1,
                "{kind}: {at}"
            );
        }
        assert_eq!(world.service.sets.len(), 1, "{at}");
    }
}

#[test]
fn a_lasting_refusal_of_any_write_backs_off() {
    for kind in [
        Kind::AutoscalingRunnerSet,
        Kind::AutoscalingListener,
        Kind::EphemeralRunnerSet,
    ] {
        let mut world = World::new();
        world.cluster.sabotage(move |request| {
            let write = !matches!(
                request,
                KubeRequest::Get(_) | KubeRequest::Patch { status: true, .. }
            );
            (write && request.kind() == kind).then_some(Fault::Refuse(KubeErrorKind::Forbidden))
        });
        world.pass(600);
        assert!(
            world.cluster.requests < 120,
            "{kind}: {}",
            world.cluster.requests
        );
        let said = world.condition("Ready");
        assert!(said.contains("forbidden"), "{kind}: {said}");
        world.cluster.stop_sabotage();
        world.pass(120);
        assert_eq!(world.phase(), Some(Phase::Running), "{kind}");
    }
}
