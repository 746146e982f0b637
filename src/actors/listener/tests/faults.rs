//! Whatever goes wrong with a request, the listener comes to stand in the end, nothing is made
//! twice, and nothing spins.

use std::cell::Cell;
use std::rc::Rc;

use super::cluster::Fault;
use super::world::World;
use crate::messages::{Kind, KubeErrorKind, KubeRequest};

const FAULTS: [Fault; 10] = [
    Fault::Refuse(KubeErrorKind::NotFound),
    Fault::Refuse(KubeErrorKind::AlreadyExists),
    Fault::Refuse(KubeErrorKind::Conflict),
    Fault::Refuse(KubeErrorKind::Invalid),
    Fault::Refuse(KubeErrorKind::QuotaExceeded),
    Fault::Refuse(KubeErrorKind::Forbidden),
    Fault::Refuse(KubeErrorKind::Unavailable),
    Fault::Refuse(KubeErrorKind::Other),
    Fault::LoseAnswer,
    Fault::LoseRequest,
];

/// Whether a server that does not lie may answer that.
fn can_happen(fault: Fault, request: &KubeRequest) -> bool {
    let is_read = matches!(request, KubeRequest::Get(_));
    let is_delete = matches!(request, KubeRequest::Delete { .. });
    match fault {
        Fault::Refuse(KubeErrorKind::NotFound) => !is_read && !is_delete,
        Fault::Refuse(KubeErrorKind::AlreadyExists | KubeErrorKind::Conflict) => !is_read,
        _ => true,
    }
}

/// Sabotages the request of that number.
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
        for number in 1..=16 {
            let mut world = World::new();
            nth(&mut world, number, fault);
            world.pass(120);
            assert!(world.pod().is_some(), "{fault:?} at request {number}");
            world.start_pod();
            world.pass(1);
            assert!(world.report().ready, "{fault:?} at request {number}");
            for kind in [
                Kind::Pod,
                Kind::Role,
                Kind::RoleBinding,
                Kind::ServiceAccount,
            ] {
                let made = world.cluster.count(&format!("create {kind} "));
                assert_eq!(made, 1, "{kind} with {fault:?} at request {number}");
            }
            world.cluster.stop_sabotage();
            world.pass(120);
            let writes = world.cluster.writes.len();
            world.pass(3600);
            assert_eq!(world.cluster.writes.len(), writes);
        }
    }
}

#[test]
fn one_fault_at_any_point_of_the_way_down_heals() {
    for fault in FAULTS {
        for number in 1..=10 {
            let mut world = World::running();
            nth(&mut world, number, fault);
            let namespace = super::world::CONTROLLER;
            world
                .cluster
                .delete(Kind::AutoscalingListener, namespace, super::world::NAME);
            world.pass(60);
            if world.pod().is_some() {
                world.finish_pod();
            }
            world.pass(120);
            assert!(world.stopped, "{fault:?} at request {number}");
            assert_eq!(
                world.cluster.objects.len(),
                1,
                "{fault:?} at request {number}"
            );
        }
    }
}

#[test]
fn a_lasting_refusal_backs_off_and_is_named() {
    for kind in Kind::ALL {
        let refused = *kind;
        if matches!(
            refused,
            Kind::AutoscalingRunnerSet
                | Kind::EphemeralRunnerSet
                | Kind::EphemeralRunner
                | Kind::ConfigMap
                | Kind::AutoscalingListener
        ) {
            continue;
        }
        let mut world = World::new();
        world.cluster.sabotage(move |request| {
            let create = matches!(request, KubeRequest::Create(_));
            (create && request.kind() == refused).then_some(Fault::Refuse(KubeErrorKind::Forbidden))
        });
        world.pass(600);
        assert!(
            world.cluster.requests < 120,
            "{refused}: {}",
            world.cluster.requests
        );
        assert!(!world.report().ready);
        assert!(
            world.reason().contains(refused.as_str()),
            "{}",
            world.reason()
        );
        assert!(
            world.reason().starts_with("Forbidden"),
            "{}",
            world.reason()
        );
        assert!(
            world.reports.len() < 10,
            "{refused}: {}",
            world.reports.len()
        );
        world.cluster.stop_sabotage();
        world.pass(120);
        assert!(world.pod().is_some(), "{refused}");
    }
}

#[test]
fn a_missing_namespace_does_not_spin() {
    let mut world = World::new();
    world.cluster.sabotage(|request| {
        matches!(request, KubeRequest::Create(_)).then_some(Fault::Refuse(KubeErrorKind::NotFound))
    });
    world.pass(600);
    assert!(world.cluster.requests < 100, "{}", world.cluster.requests);
}

#[test]
fn a_restart_after_any_request_makes_nothing_twice() {
    for number in 1..=16 {
        let mut world = World::new();
        nth(&mut world, number, Fault::LoseAnswer);
        world.settle();
        world.cluster.stop_sabotage();
        world.restart();
        world.pass(60);
        assert!(world.pod().is_some());
        assert_eq!(
            world.cluster.count("create Pod"),
            1,
            "after request {number}"
        );
    }
}
