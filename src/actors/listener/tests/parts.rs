//! Parts that somebody else has in hand, and sources that cannot be read.

use serde_json::json;

use super::cluster::Fault;
use super::world::{CONTROLLER, NAME, RUNNERS, World};
use crate::messages::{Kind, KubeRequest, ObjectRef};

/// What belongs to an AutoscalingListener of the same name before this one is about to be
/// collected: it goes, and ours are made in its place.
#[test]
fn the_parts_of_an_earlier_listener_of_the_name_are_not_taken_over() {
    for (kind, name) in [
        (Kind::ServiceAccount, NAME.to_owned()),
        (Kind::Secret, format!("{NAME}-config")),
        (Kind::Pod, NAME.to_owned()),
    ] {
        let mut world = World::running();
        let reference = ObjectRef::new(kind, CONTROLLER, &name);
        let earlier = world.cluster.objects[&reference].uid().to_owned();
        world.cluster.edit(kind, CONTROLLER, &name, |part| {
            part["metadata"]["ownerReferences"][0]["uid"] = json!("earlier");
        });
        world.restart();
        let patches = world.cluster.count(&format!("patch {kind} {name}"));
        world.pass(1);
        if kind == Kind::Pod {
            // it ends in its own time
            assert!(
                world.reason().starts_with("Predecessor"),
                "{}",
                world.reason()
            );
            world.finish_pod();
        }
        world.pass(120);
        let now = &world.cluster.objects[&reference];
        assert_ne!(now.uid(), earlier, "{kind}: it was kept");
        let owners = now.meta().owner_references.clone().unwrap();
        let ours: Vec<_> = owners.iter().map(|owner| owner.uid.as_str()).collect();
        let listener = ObjectRef::new(Kind::AutoscalingListener, CONTROLLER, NAME);
        assert_eq!(ours, [world.cluster.objects[&listener].uid()], "{kind}");
        let since = world.cluster.count(&format!("patch {kind} {name}"));
        assert_eq!(since, patches, "{kind}: it was changed before it went");
    }
}

/// What is being deleted, and held by somebody's finalizer, is neither kept nor changed, and the
/// pod waits for what follows it.
#[test]
fn a_part_that_is_being_deleted_is_waited_for() {
    let secret = format!("{NAME}-config");
    for (kind, namespace, name) in [
        (Kind::ServiceAccount, CONTROLLER, NAME),
        (Kind::Role, RUNNERS, NAME),
        (Kind::RoleBinding, RUNNERS, NAME),
        (Kind::Secret, CONTROLLER, &secret),
    ] {
        let mut world = World::new();
        world.pass(1);
        world.cluster.edit(kind, namespace, name, |part| {
            part["metadata"]["finalizers"] = json!(["acme.example/keep"]);
        });
        world.cluster.delete(kind, namespace, name);
        world.cluster.vanish(Kind::Pod, CONTROLLER, NAME);
        world.restart();
        let writes = world.cluster.writes.len();
        world.pass(300);
        let target = format!("{kind} {name}");
        let since = &world.cluster.writes[writes..];
        assert!(
            since
                .iter()
                .all(|write| !write.ends_with(&target) && write != "create Pod"),
            "{kind}: {since:?}"
        );
        world.cluster.edit(kind, namespace, name, |part| {
            part["metadata"]["finalizers"] = json!([]);
        });
        world.pass(300);
        assert_eq!(
            world.cluster.count(&format!("create {target}")),
            2,
            "{kind}"
        );
        assert!(world.pod().is_some(), "{kind}");
    }
}

/// A right that is gone does not come back by waiting, so it is told even where an older copy would
/// do; a server with a bad time is waited for with what was read last.
#[test]
fn a_source_that_cannot_be_read_is_told_unless_the_last_copy_will_do() {
    use crate::messages::KubeErrorKind::{Forbidden, NotFound, Unavailable};
    let refusing = |world: &mut World, kind| {
        world.cluster.sabotage(move |request| {
            let read = matches!(request, KubeRequest::Get(target) if target.name == "credentials");
            read.then_some(Fault::Refuse(kind))
        });
        world.pass(180);
    };
    for (kind, expected) in [
        (Forbidden, Some("SourceUnreadable")),
        (NotFound, Some("SourceMissing")),
        (Unavailable, None),
    ] {
        let mut world = World::running();
        refusing(&mut world, kind);
        let problem = world.report().problem.clone();
        let (reason, message) = problem.map(|one| (one.code, one.message)).unzip();
        assert_eq!(reason.as_deref(), expected, "{kind:?}");
        assert!(world.report().ready, "{kind:?}: it runs on");
        if kind == Forbidden {
            let message = message.unwrap();
            assert!(
                message.contains("runners/credentials cannot be read"),
                "{message}"
            );
        }
        world.cluster.stop_sabotage();
        world.pass(180);
        assert_eq!(world.report().problem, None, "{kind:?}: over");
    }
    // nothing was read yet
    for kind in [Forbidden, Unavailable] {
        let mut world = World::new();
        refusing(&mut world, kind);
        let reason = world.reason();
        assert!(
            reason.starts_with("SourceUnreadable: "),
            "{kind:?} {reason}"
        );
        assert!(
            reason.contains("runners/credentials cannot be read"),
            "{reason}"
        );
        assert!(world.pod().is_none(), "{kind:?}");
    }
}
