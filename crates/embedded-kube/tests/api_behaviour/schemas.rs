//! Schemas of custom resources, and the patches that know types.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::Status;
use serde_json::{Value, json};

use crate::world::{World, object, refusal};

fn gadget(spec: Value) -> Value {
    json!({
        "apiVersion": "test.impresario.dev/v1",
        "kind": "Gadget",
        "metadata": { "name": "g" },
        "spec": spec,
    })
}

async fn refused_gadget(world: &World, spec: Value) -> Box<Status> {
    let gadget: DynamicObject = object(gadget(spec));
    refusal(
        world
            .gadgets()
            .create(&PostParams::default(), &gadget)
            .await,
    )
}

pub async fn unknown_fields_are_pruned(world: World) {
    let created = world
        .create_gadget(gadget(json!({ "size": 1, "weight": 2 })))
        .await;
    assert_eq!(
        created.data["spec"],
        json!({ "size": 1, "colour": "green" })
    );
    let change = Patch::Merge(json!({ "spec": { "weight": 3 }, "extra": true }));
    let patched = world
        .gadgets()
        .patch("g", &PatchParams::default(), &change)
        .await
        .unwrap();
    assert_eq!(patched.data["spec"], created.data["spec"]);
    assert_eq!(patched.data["extra"], Value::Null);
    assert_eq!(
        patched.metadata.resource_version,
        created.metadata.resource_version
    );
}

pub async fn defaults_are_filled_in(world: World) {
    let created = world.create_gadget(gadget(json!({}))).await;
    assert_eq!(created.data["spec"], json!({ "colour": "green" }));
    let paint = async |colour: Value| {
        let change = Patch::Merge(json!({ "spec": { "colour": colour } }));
        let patched = world
            .gadgets()
            .patch("g", &PatchParams::default(), &change)
            .await;
        patched.unwrap().data["spec"]["colour"].clone()
    };
    assert_eq!(paint(json!("red")).await, "red");
    assert_eq!(paint(Value::Null).await, "green");
}

pub async fn a_value_out_of_bounds_is_refused(world: World) {
    let refused = refused_gadget(&world, json!({ "size": -1 })).await;
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    let text = "spec.size in body should be greater than or equal to 0";
    assert!(refused.message.ends_with(text), "{}", refused.message);
    let cause = &refused.details.unwrap().causes[0];
    assert_eq!(
        (cause.field.as_str(), cause.reason.as_str()),
        ("spec.size", "FieldValueInvalid")
    );
}

pub async fn a_value_of_the_wrong_type_is_refused(world: World) {
    for (spec, field) in [
        (json!({ "size": "large" }), "spec.size"),
        (json!({ "parts": "one" }), "spec.parts"),
        (json!({ "parts": [1] }), "spec.parts"),
        (json!(7), "spec"),
    ] {
        let refused = refused_gadget(&world, spec.clone()).await;
        assert_eq!(
            (refused.code, refused.reason.as_str()),
            (422, "Invalid"),
            "{spec}"
        );
        let text = refused.message;
        assert!(
            text.contains(field) && text.contains("in body must be of type"),
            "{text}"
        );
    }
}

pub async fn a_status_obeys_the_schema_too(world: World) {
    world.create_gadget(gadget(json!({}))).await;
    let change = Patch::Merge(json!({ "status": { "phase": 7 } }));
    let patched = world
        .gadgets()
        .patch_status("g", &PatchParams::default(), &change)
        .await;
    assert_eq!(refusal(patched).code, 422);
    let change = Patch::Merge(json!({ "status": { "phase": "Running", "other": 1 } }));
    let patched = world
        .gadgets()
        .patch_status("g", &PatchParams::default(), &change)
        .await;
    assert_eq!(
        patched.unwrap().data["status"],
        json!({ "phase": "Running" })
    );
}

pub async fn what_is_applied_belongs_to_its_manager(world: World) {
    let apply = async |manager: &str, spec: Value, force: bool| {
        let parameters = PatchParams {
            force,
            ..PatchParams::apply(manager)
        };
        world
            .gadgets()
            .patch("g", &parameters, &Patch::Apply(gadget(spec)))
            .await
    };
    let created = apply("one", json!({ "size": 1, "colour": "red" }), false)
        .await
        .unwrap();
    assert_eq!(created.data["spec"], json!({ "size": 1, "colour": "red" }));
    let refused = refusal(apply("two", json!({ "size": 2 }), false).await);
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    assert!(
        refused.message.contains(".spec.size"),
        "{}",
        refused.message
    );
    let forced = apply("two", json!({ "size": 2 }), true).await.unwrap();
    assert_eq!(forced.data["spec"], json!({ "size": 2, "colour": "red" }));
    // what its only manager leaves out goes, here back to its default
    let left_out = apply("one", json!({}), false).await.unwrap();
    assert_eq!(
        left_out.data["spec"],
        json!({ "size": 2, "colour": "green" })
    );
    let again = apply("one", json!({}), false).await.unwrap();
    assert_eq!(
        again.metadata.resource_version,
        left_out.metadata.resource_version
    );
}

pub async fn a_strategic_patch_merges_lists_by_key(world: World) {
    let pod = json!({
        "metadata": { "name": "p", "finalizers": ["test.impresario.dev/a"] },
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{ "name": "one", "image": "i:1" }, { "name": "two", "image": "j:1" }],
        },
    });
    world.create_pod(pod).await;
    let change = Patch::Strategic(json!({
        "metadata": { "finalizers": ["test.impresario.dev/b"] },
        "spec": { "containers": [{ "name": "two", "image": "j:2" }] },
    }));
    let patched = world
        .pods()
        .patch("p", &PatchParams::default(), &change)
        .await
        .unwrap();
    let images: Vec<Option<String>> = patched
        .spec
        .unwrap()
        .containers
        .into_iter()
        .map(|c| c.image)
        .collect();
    assert_eq!(images, [Some("i:1".to_owned()), Some("j:2".to_owned())]);
    let mut finalizers = patched.metadata.finalizers.unwrap();
    finalizers.sort();
    assert_eq!(
        finalizers,
        ["test.impresario.dev/a", "test.impresario.dev/b"]
    );
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    world
        .pods()
        .patch("p", &PatchParams::default(), &release)
        .await
        .unwrap();
}

pub async fn a_custom_resource_takes_no_strategic_patch(world: World) {
    world.create_gadget(gadget(json!({}))).await;
    let change = Patch::Strategic(json!({ "spec": { "size": 1 } }));
    let patched = world
        .gadgets()
        .patch("g", &PatchParams::default(), &change)
        .await;
    let refused = refusal(patched);
    assert_eq!(
        (refused.code, refused.reason.as_str()),
        (415, "UnsupportedMediaType")
    );
}

pub async fn writes_are_recorded_under_their_manager(world: World) {
    let parameters = PostParams {
        field_manager: Some("creator".into()),
        ..PostParams::default()
    };
    let gadget: DynamicObject = object(gadget(json!({ "size": 1 })));
    world.gadgets().create(&parameters, &gadget).await.unwrap();
    let parameters = PatchParams {
        field_manager: Some("patcher".into()),
        ..PatchParams::default()
    };
    let change = Patch::Merge(json!({ "spec": { "size": 2 } }));
    let patched = world
        .gadgets()
        .patch("g", &parameters, &change)
        .await
        .unwrap();
    let fields = patched.metadata.managed_fields.unwrap();
    let of = |manager: &str| {
        let entry = fields
            .iter()
            .find(|entry| entry.manager.as_deref() == Some(manager));
        let entry = entry.unwrap_or_else(|| panic!("no {manager} in {fields:?}"));
        json!(entry.fields_v1)["f:spec"]["f:size"].is_object()
    };
    assert!(of("patcher") && !of("creator"));
}
