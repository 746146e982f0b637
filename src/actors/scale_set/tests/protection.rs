//! The chart's protected objects, when the controller may not do all it wants to.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use super::deletion::{PROTECTION, delete, protected};
use super::world::{RUNNERS, World};
use crate::actors::listener::tests::cluster::Fault;
use crate::messages::{Kind, KubeErrorKind, KubeRequest};

const REFUSED: Option<Fault> = Some(Fault::Refuse(KubeErrorKind::Forbidden));

/// Names of the protected objects that hold the chart's finalizer.
fn held(world: &World) -> Vec<String> {
    let all = world.cluster.objects.values();
    let holds = all.filter(|object| {
        let finalizers = object.meta().finalizers.iter().flatten();
        finalizers.into_iter().any(|name| name == PROTECTION)
    });
    holds.map(|object| object.reference().name).collect()
}

/// Whether it is about a kind of which the chart protects objects.
fn concerns(request: &KubeRequest) -> bool {
    let kinds = [
        Kind::Role,
        Kind::RoleBinding,
        Kind::ServiceAccount,
        Kind::Secret,
    ];
    kinds.contains(&request.kind())
}

#[test]
fn a_release_needs_no_right_but_to_patch() {
    let mut world = World::settled();
    protected(&mut world);
    world.cluster.sabotage(|request| {
        let reads = matches!(request, KubeRequest::Get(_) | KubeRequest::List { .. });
        let theirs = ["kube-", "gh-", "manager-"];
        let about = format!("{request:?}");
        (reads && theirs.iter().any(|name| about.contains(name)))
            .then_some(Fault::Refuse(KubeErrorKind::Forbidden))
    });
    delete(&mut world);
    world.pass(10);
    assert!(world.stopped);
    assert_eq!(held(&world), Vec::<String>::new());
    assert_eq!(world.events_of("ReleaseRefused"), 0);
}

#[test]
fn a_refusal_is_no_release_whatever_the_object() {
    for name in [
        "kube-rb",
        "kube-role",
        "kube-sa",
        "gh-secret",
        "manager-rb",
        "manager-role",
    ] {
        let mut world = World::settled();
        protected(&mut world);
        world.cluster.sabotage(move |request| match request {
            KubeRequest::DropFinalizer { target, .. } if target.name == name => REFUSED,
            _ => None,
        });
        delete(&mut world);
        world.pass(60);
        let ready = world.condition("Ready");
        assert!(
            ready.contains(&format!("runners/{name} cannot be released")),
            "{ready}"
        );
        world.pass(3600);
        assert!(!world.stopped, "{name}");
        assert!(held(&world).contains(&name.to_owned()), "{name}");
        assert_eq!(world.events_of("ReleaseRefused"), 1, "{name}");
        let before = world.cluster.requests;
        world.pass(600);
        assert!(world.cluster.requests - before <= 12, "no hot loop");
        // what comes after it waits, the right to do it as well
        if name.starts_with("kube-") {
            assert!(held(&world).contains(&"manager-rb".to_owned()), "{name}");
        }
        world.cluster.stop_sabotage();
        world.pass(600);
        assert!(world.stopped, "{name}");
        assert_eq!(held(&world), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn what_can_neither_be_patched_nor_seen_is_left_after_ten_minutes_by_name() {
    let mut world = World::settled();
    protected(&mut world);
    world.cluster.sabotage(|request| {
        let secret = request.kind() == Kind::Secret;
        let asked = matches!(
            request,
            KubeRequest::DropFinalizer { .. } | KubeRequest::List { .. }
        );
        (secret && asked).then_some(Fault::Refuse(KubeErrorKind::Forbidden))
    });
    delete(&mut world);
    world.pass(500);
    assert!(!world.stopped);
    world.pass(400);
    assert!(world.stopped);
    assert_eq!(held(&world), ["gh-secret"]);
    let left = world
        .events
        .iter()
        .find(|note| note.reason == "ProtectedObjectLeft")
        .unwrap();
    assert!(
        left.message.contains("Secret runners/gh-secret"),
        "{left:?}"
    );
}

#[test]
fn one_that_was_released_by_somebody_else_is_not_waited_for() {
    for is_there in [true, false] {
        let mut world = World::settled();
        protected(&mut world);
        world
            .cluster
            .edit(Kind::Role, RUNNERS, "kube-role", |role| {
                role["metadata"]["finalizers"] = serde_json::json!([]);
            });
        if !is_there {
            world.cluster.vanish(Kind::Role, RUNNERS, "kube-role");
        }
        world.cluster.sabotage(|request| match request {
            KubeRequest::DropFinalizer { target, .. } if target.name == "kube-role" => REFUSED,
            _ => None,
        });
        delete(&mut world);
        world.pass(10);
        assert!(world.stopped, "{is_there}");
        assert_eq!(world.events_of("ReleaseRefused"), 0);
    }
}

/// With the manager's RoleBinding go the rights in the namespace; ARC's ClusterRole goes on
/// to list all these kinds but Secrets, and to patch Roles.
#[test]
fn a_controller_killed_at_any_point_of_the_release_does_not_need_rights_it_gave_away() {
    for limit in 0..12 {
        let mut world = World::settled();
        protected(&mut world);
        let released = Rc::new(RefCell::new(BTreeSet::new()));
        // requests since the first release, and the one from which on none arrives
        let seen = Cell::new(0);
        let killed_at = Rc::new(Cell::new(limit));
        let alive_until = killed_at.clone();
        world.cluster.sabotage(move |request| {
            let mut released = released.borrow_mut();
            let release = matches!(request, KubeRequest::DropFinalizer { .. });
            if release || !released.is_empty() {
                seen.set(seen.get() + 1);
            }
            if seen.get() > alive_until.get() {
                return Some(Fault::LoseRequest);
            }
            let bound = !released.contains("manager-rb");
            if let KubeRequest::DropFinalizer { target, .. } = request {
                if !bound && target.kind != Kind::Role {
                    return REFUSED;
                }
                released.insert(target.name.clone());
                return None;
            }
            let unseen = matches!(request, KubeRequest::Get(_)) || request.kind() == Kind::Secret;
            (!bound && unseen && concerns(request))
                .then_some(Fault::Refuse(KubeErrorKind::Forbidden))
        });
        delete(&mut world);
        killed_at.set(u32::MAX);
        world.restart();
        world.pass(60);
        assert!(world.stopped, "killed after {limit} requests");
        assert_eq!(held(&world), Vec::<String>::new(), "killed after {limit}");
        assert_eq!(world.events_of("ProtectedObjectLeft"), 0);
    }
}
