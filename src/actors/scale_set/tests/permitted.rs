//! What the operator of a shared cluster allows, and what becomes of a scale set that asks for
//! more.

use serde_json::{Value, json};

use super::world::World;
use crate::api::{ListenerTemplatePolicy, Policy};
use crate::messages::Kind;

fn restricted() -> Policy {
    Policy {
        listener_template: ListenerTemplatePolicy::Restricted,
        ..Policy::default()
    }
}

fn privileged() -> Value {
    json!({"spec": {"containers": [
        {"name": "listener", "securityContext": {"privileged": true}}]}})
}

#[test]
fn nothing_is_made_of_a_template_that_is_not_allowed_and_a_person_is_told_what() {
    let mut world = World::new();
    world.edit(|set| set["spec"]["listenerTemplate"] = privileged());
    world.restart_with(restricted());
    world.pass(60);
    let ready = world.condition("Ready");
    for part in [
        "False NotAllowed",
        "spec.listenerTemplate.spec.containers[0].securityContext.privileged",
        "--listener-template-policy",
    ] {
        assert!(ready.contains(part), "{ready}");
    }
    assert_eq!(world.events_of("NotAllowed"), 1);
    for kind in [
        Kind::AutoscalingListener,
        Kind::EphemeralRunnerSet,
        Kind::Pod,
    ] {
        assert!(world.cluster.names(kind).is_empty(), "{kind}");
    }
    assert!(world.service.sets.is_empty());

    world.edit(|set| set["spec"]["listenerTemplate"] = Value::Null);
    world.pass(60);
    assert_eq!(world.condition("Ready"), "True Ready: jobs are taken");
}

#[test]
fn an_edit_that_is_not_allowed_leaves_the_listener_that_there_is() {
    let mut world = World::new();
    world.restart_with(restricted());
    world.pass(60);
    assert_eq!(world.condition("Ready"), "True Ready: jobs are taken");
    let before = world.al().metadata.uid.clone();
    world.edit(|set| set["spec"]["listenerTemplate"] = privileged());
    world.pass(60);
    assert!(world.condition("Ready").starts_with("False NotAllowed"));
    assert_eq!(world.al().metadata.uid, before);
    assert_eq!(world.al().spec.template, None);
    assert_eq!(world.cluster.names(Kind::Pod).len(), 1);
}

#[test]
fn a_listener_that_has_what_is_not_allowed_any_more_is_removed_and_comes_back_when_corrected() {
    let mut world = World::new();
    world.edit(|set| set["spec"]["listenerTemplate"] = privileged());
    world.pass(60);
    assert_eq!(world.cluster.names(Kind::Pod).len(), 1);
    world.restart_with(restricted());
    world.pass(60);
    assert!(world.cluster.names(Kind::AutoscalingListener).is_empty());
    assert!(world.cluster.names(Kind::Pod).is_empty());
    assert_eq!(world.cluster.names(Kind::EphemeralRunnerSet).len(), 1);
    let listener = world.condition("ListenerReady");
    assert!(listener.starts_with("False NotAllowed"), "{listener}");

    world.edit(|set| set["spec"]["listenerTemplate"] = Value::Null);
    world.pass(60);
    assert_eq!(world.condition("Ready"), "True Ready: jobs are taken");
    assert_eq!(world.cluster.names(Kind::Pod).len(), 1);
}
