//! What is this scale set's, and what only looks like it.

use serde_json::{Value, json};

use super::world::*;
use crate::actors::Machine;
use crate::actors::listener::tests::cluster::{from_value, to_value};
use crate::actors::scale_set::ScaleSetTag;
use crate::actors::scale_set::record::{
    differs, has_moved, identity, recorded, recorded_id, wanted,
};
use crate::api::AutoscalingRunnerSet;
use crate::api::constants::{annotations, labels};
use crate::messages::{
    ActionsAnswer, Effect, Input, Kind, KubeObject as _, Object, ObjectRef, RunnerGroup,
    ScaleSetDirective,
};

/// The AutoscalingListener of a scale set of that name, under the name of ours.
fn listener_of(namespace: &str, name: &str) -> Object {
    let ours = World::settled().al();
    let mut value = to_value(&ours.into_object());
    value["spec"]["autoscalingRunnerSetNamespace"] = json!(namespace);
    value["spec"]["autoscalingRunnerSetName"] = json!(name);
    value["metadata"]["labels"][labels::SCALE_SET_NAMESPACE] = json!(namespace);
    value["metadata"]["labels"][labels::SCALE_SET_NAME] = json!(name);
    from_value(Kind::AutoscalingListener, value)
}

#[test]
fn a_listener_of_another_scale_set_is_not_touched_and_named_when_it_is_in_the_way() {
    for (namespace, name) in [
        ("elsewhere", POOL),
        (RUNNERS, "other"),
        ("elsewhere", "other"),
    ] {
        let mut world = World::new();
        world.cluster.apply(listener_of(namespace, name));
        world.pass(120);
        let ready = world.condition("ListenerReady");
        assert!(ready.starts_with("False ForeignObject"), "{ready}");
        assert!(ready.contains(&format!("{namespace}/{name}")), "{ready}");
        assert_eq!(world.events_of("ForeignObject"), 1);
        super::deletion::delete(&mut world);
        world.pass(120);
        assert!(world.stopped);
        let theirs = world.cluster.names(Kind::AutoscalingListener);
        assert_eq!(theirs.len(), 1, "{namespace}/{name}: it is gone");
        for write in &world.cluster.writes {
            assert!(!write.contains("AutoscalingListener"), "{write}");
        }
        for directive in &world.directives {
            assert!(!directive.starts_with("Listener"), "{directive}");
        }
    }
}

/// What a step tells the children.
fn told(world: &mut World, object: ObjectRef, uid: &str) -> Vec<String> {
    let uid = uid.to_owned();
    let effects = world
        .machine
        .step(world.cluster.now, Input::Gone { object, uid });
    let told = effects.into_iter().filter_map(|effect| match effect {
        Effect::Child(ScaleSetDirective::Listener { name, .. }) => Some(format!("listener {name}")),
        Effect::Child(ScaleSetDirective::RunnerSet(_)) => Some("runner set".to_owned()),
        Effect::Kube(_, request) => Some(format!("{} {}", request.verb(), request.kind())),
        _ => None,
    });
    told.collect()
}

#[test]
fn that_an_object_is_gone_is_passed_on_to_who_looks_after_it() {
    let mut world = World::settled();
    let listener = world.al();
    let name = listener.metadata.name.clone().unwrap();
    let runner_set = world.ers();
    let uid = runner_set.metadata.uid.clone().unwrap();
    let of = |kind, name: &str| ObjectRef::new(kind, RUNNERS, name);
    let runner = of(Kind::EphemeralRunner, "pool-runner-x");
    assert_eq!(told(&mut world, runner, &uid), ["runner set"]);
    let other = of(Kind::EphemeralRunnerSet, "other");
    assert!(told(&mut world, other, &uid).is_empty());
    let earlier = of(Kind::EphemeralRunnerSet, POOL);
    assert_eq!(told(&mut world, earlier, "earlier"), ["runner set"]);
    let own = of(Kind::EphemeralRunnerSet, POOL);
    let said = told(&mut world, own, &uid);
    assert!(said.contains(&"runner set".to_owned()), "{said:?}");
    assert!(said.len() > 1, "and it is made again: {said:?}");
    let other = ObjectRef::new(Kind::AutoscalingListener, CONTROLLER, "other");
    assert!(told(&mut world, other, "x").is_empty());
    let own = listener.reference();
    let uid = listener.metadata.uid.clone().unwrap();
    let said = told(&mut world, own, &uid);
    assert!(said.contains(&format!("listener {name}")), "{said:?}");
}

/// An answer that is none to the question is asked for again later, and not at once for ever.
#[test]
fn an_answer_to_another_question_is_a_failure() {
    let group = RunnerGroup {
        id: 7,
        name: "gpu".to_owned(),
    };
    for answer in [
        ActionsAnswer::Done,
        ActionsAnswer::Runner(None),
        ActionsAnswer::Group(group),
    ] {
        let mut world = World::new();
        world.hold_calls = true;
        world.pass(1);
        assert_eq!(world.service.calls.len(), 1);
        let what = format!("{answer:?}");
        let input = Input::Actions(ScaleSetTag::Registration(1), Ok(answer));
        let effects = world.machine.step(world.cluster.now, input);
        let calls = effects
            .iter()
            .filter(|one| matches!(one, Effect::Actions(..)));
        assert_eq!(calls.count(), 0, "{what}: it is asked at once");
        let said = format!("{effects:?}");
        assert!(said.contains("does not fit the question"), "{what}: {said}");
    }
}

#[test]
fn nothing_that_another_place_said_is_used_after_a_move() {
    let mut world = World::new();
    world.edit(|ars| ars["spec"]["runnerGroup"] = json!("gpu"));
    world.pass(5);
    assert_eq!(world.service.count("get_runner_group"), 1);
    world.service.sets.clear();
    world.edit(|ars| ars["spec"]["githubConfigUrl"] = json!("https://github.com/other"));
    world.pass(10);
    assert_eq!(
        world.service.count("get_runner_group"),
        2,
        "its group has another id"
    );

    // and what it says only then
    let mut world = World::new();
    world.service.put(5, POOL.to_owned(), 1, Vec::new());
    world.hold_calls = true;
    world.pass(1);
    world.service.sets.clear();
    world.edit(|ars| ars["spec"]["githubConfigUrl"] = json!("https://github.com/other"));
    world.pass(1);
    assert_eq!(world.service.calls.len(), 2);
    world.release();
    world.pass(10);
    assert_eq!(world.annotation(annotations::RUNNER_SCALE_SET_ID), "11");
}

fn with(change: impl FnOnce(&mut Value)) -> AutoscalingRunnerSet {
    let mut value = scale_set();
    value["metadata"]["annotations"] = json!({
        (annotations::RUNNER_SCALE_SET_ID): "42",
        (annotations::RUNNER_SCALE_SET_NAME): POOL,
        (annotations::RUNNER_GROUP_NAME): "Default",
    });
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_scale_set_is_known_by_its_place_and_a_usable_id() {
    let base = identity(&with(|_| {})).unwrap();
    let id = |id: &str| {
        with(|ars| ars["metadata"]["annotations"][annotations::RUNNER_SCALE_SET_ID] = json!(id))
    };
    for unusable in ["", "0", "-1", "x", "4 2"] {
        let ars = id(unusable);
        assert_eq!(
            (recorded_id(&ars), identity(&ars)),
            (None, None),
            "{unusable:?}"
        );
    }
    assert_eq!(recorded_id(&id(" 1 ")), Some(1));
    assert_ne!(identity(&id("43")).unwrap(), base);
    let at = |url: &str| with(|ars| ars["spec"]["githubConfigUrl"] = json!(url));
    assert_eq!(
        identity(&at("https://www.github.com/Acme/Widgets/")).unwrap(),
        base
    );
    assert_ne!(
        identity(&at("https://github.com/acme/other")).unwrap(),
        base
    );
    assert_ne!(
        identity(&at("https://ghe.example/acme/widgets")).unwrap(),
        base
    );
    assert_eq!(identity(&at("no URL")), None);
}

/// Of a scale set whose place was not written down, the labels that a chart or controller gave it
/// tell where it was registered.
#[test]
fn an_id_is_of_the_place_that_annotation_or_labels_name() {
    let of = |place: Value, labelled: Value| {
        with(|ars| {
            json_patch::merge(
                &mut ars["metadata"]["annotations"],
                &json!({(annotations::CONFIG_URL): place}),
            );
            json_patch::merge(&mut ars["metadata"]["labels"], &labelled);
        })
    };
    let (here, there) = (
        "https://github.com/acme/widgets",
        "https://github.com/acme/other",
    );
    let label = |organization: Value, repository: Value| json!({(labels::ORGANIZATION): organization, (labels::REPOSITORY): repository});
    for (place, labelled, moved) in [
        (Value::Null, json!({}), false),
        (json!(here), json!({}), false),
        (json!("https://GitHub.com/ACME/widgets/"), json!({}), false),
        (json!(there), json!({}), true),
        (json!("no URL"), json!({}), true),
        (Value::Null, label(json!("acme"), json!("widgets")), false),
        (Value::Null, label(json!("Acme"), json!("Widgets")), false),
        (Value::Null, label(json!("acme"), json!("other")), true),
        (Value::Null, label(json!("acme"), Value::Null), true),
        (
            Value::Null,
            json!({(labels::ORGANIZATION): "acme", (labels::REPOSITORY): "widgets",
                   (labels::ENTERPRISE): "big"}),
            true,
        ),
        // what is written down counts
        (json!(here), label(json!("acme"), json!("other")), false),
    ] {
        let ars = of(place.clone(), labelled.clone());
        assert_eq!(has_moved(&ars), moved, "{place} {labelled}");
        assert_eq!(identity(&ars).is_none(), moved, "{place} {labelled}");
    }
}

#[test]
fn a_wish_differs_from_what_is_recorded_in_name_or_group_whatever_their_case() {
    for (name, group, expected) in [
        (POOL, "", false),
        ("POOL", "", false),
        ("other", "", true),
        (POOL, "default", false),
        (POOL, "gpu", true),
        ("other", "gpu", true),
        ("other", "Default", true),
    ] {
        let ars = with(|ars| {
            ars["spec"]["runnerScaleSetName"] = json!(name);
            ars["spec"]["runnerGroup"] = json!(group);
        });
        assert_eq!(
            differs(&recorded(&ars), &wanted(&ars)),
            expected,
            "{name} {group}"
        );
    }
}
