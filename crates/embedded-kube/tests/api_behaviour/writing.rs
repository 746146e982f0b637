//! Creating, replacing and patching.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::world::{World, object, refusal, watch};

const LETTERS: &str = "bcdfghjklmnpqrstvwxz2456789";

fn create() -> PostParams {
    PostParams::default()
}

fn patch() -> PatchParams {
    PatchParams::default()
}

pub async fn a_new_object_is_stamped(world: World) {
    let map = world
        .create_map(json!({ "metadata": { "name": "stamped" } }))
        .await;
    assert_eq!(map.namespace().as_ref(), Some(&world.namespace));
    assert_eq!(map.uid().unwrap().len(), 36);
    assert!(map.resource_version().unwrap().parse::<u64>().unwrap() > 0);
    assert!(map.creation_timestamp().is_some());
    assert_eq!(map.metadata.generation, None);
    let gadget = world
        .create_gadget(json!({ "metadata": { "name": "g" }, "spec": {} }))
        .await;
    assert_eq!(gadget.metadata.generation, Some(1));
    assert!(gadget.resource_version() > map.resource_version());
}

pub async fn a_generated_name_adds_five_letters(world: World) {
    let map = json!({ "metadata": { "generateName": "runner-" } });
    let name = world.create_map(map.clone()).await.name_any();
    let suffix = name.strip_prefix("runner-").unwrap();
    assert_eq!(suffix.len(), 5);
    assert!(suffix.chars().all(|c| LETTERS.contains(c)), "{name}");
    assert_ne!(world.create_map(map).await.name_any(), name);
    let long = "x".repeat(80) + "-";
    let map = json!({ "metadata": { "generateName": long } });
    assert_eq!(world.create_map(map).await.name_any().len(), 63);
}

pub async fn creating_twice_is_refused(world: World) {
    let map: ConfigMap = object(json!({ "metadata": { "name": "twice" } }));
    world.maps().create(&create(), &map).await.unwrap();
    let refusal = refusal(world.maps().create(&create(), &map).await);
    assert_eq!(
        (refusal.code, refusal.reason.as_str()),
        (409, "AlreadyExists")
    );
    assert_eq!(refusal.message, "configmaps \"twice\" already exists");
    let details = refusal.details.unwrap();
    assert_eq!(
        (details.name.as_str(), details.kind.as_str()),
        ("twice", "configmaps")
    );
}

pub async fn a_missing_object_is_not_found(world: World) {
    let missing = refusal(world.gadgets().get("none").await);
    assert_eq!((missing.code, missing.reason.as_str()), (404, "NotFound"));
    assert_eq!(
        missing.message,
        "gadgets.test.impresario.dev \"none\" not found"
    );
    let nothing = Patch::Merge(json!({ "data": {} }));
    assert_eq!(
        refusal(world.maps().patch("none", &patch(), &nothing).await).code,
        404
    );
    let map: ConfigMap = object(json!({ "metadata": { "name": "none" } }));
    assert_eq!(
        refusal(world.maps().replace("none", &create(), &map).await).code,
        404
    );
}

pub async fn a_namespace_has_to_exist(world: World) {
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), "nowhere");
    let map: ConfigMap = object(json!({ "metadata": { "name": "m" } }));
    let refusal = refusal(maps.create(&create(), &map).await);
    assert_eq!(refusal.code, 404);
    assert_eq!(refusal.message, "namespaces \"nowhere\" not found");
    assert_eq!(maps.list(&Default::default()).await.unwrap().items.len(), 0);
}

pub async fn a_lost_update_is_refused(world: World) {
    let first = world
        .create_map(json!({ "metadata": { "name": "m" }, "data": { "a": "1" } }))
        .await;
    let mut second = first.clone();
    second
        .data
        .get_or_insert_default()
        .insert("b".into(), "2".into());
    let second = world.maps().replace("m", &create(), &second).await.unwrap();
    assert_ne!(second.resource_version(), first.resource_version());
    let mut stale = first;
    stale.data = None;
    let refusal = refusal(world.maps().replace("m", &create(), &stale).await);
    assert_eq!((refusal.code, refusal.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        refusal.message,
        "Operation cannot be fulfilled on configmaps \"m\": the object has been modified; please \
         apply your changes to the latest version and try again"
    );
    assert_eq!(world.maps().get("m").await.unwrap().data, second.data);
}

pub async fn a_patch_with_an_old_revision_is_refused(world: World) {
    let map = world
        .create_map(json!({ "metadata": { "name": "m" } }))
        .await;
    let change = |revision: Option<String>, value: &str| {
        Patch::Merge(json!({
            "metadata": { "resourceVersion": revision },
            "data": { "k": value },
        }))
    };
    let revision = map.resource_version();
    world
        .maps()
        .patch("m", &patch(), &change(revision.clone(), "1"))
        .await
        .unwrap();
    let refusal = refusal(
        world
            .maps()
            .patch("m", &patch(), &change(revision, "2"))
            .await,
    );
    assert_eq!((refusal.code, refusal.reason.as_str()), (409, "Conflict"));
}

pub async fn a_custom_resource_is_not_replaced_blindly(world: World) {
    let mut gadget = world
        .create_gadget(json!({ "metadata": { "name": "g" }, "spec": {} }))
        .await;
    gadget.metadata.resource_version = None;
    let refused = refusal(world.gadgets().replace("g", &create(), &gadget).await);
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    let causes = refused.details.unwrap().causes;
    assert_eq!(causes[0].field, "metadata.resourceVersion");
    // a built-in kind can be
    let mut map = world
        .create_map(json!({ "metadata": { "name": "m" } }))
        .await;
    map.metadata.resource_version = None;
    map.data = object(json!({ "k": "v" }));
    world.maps().replace("m", &create(), &map).await.unwrap();
}

pub async fn another_uid_is_refused(world: World) {
    let mut map = world
        .create_map(json!({ "metadata": { "name": "m" } }))
        .await;
    map.metadata.uid = Some("other".into());
    let refused = refusal(world.maps().replace("m", &create(), &map).await);
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    assert!(
        refused.message.contains("UID in precondition: other"),
        "{}",
        refused.message
    );
    let change = Patch::Merge(json!({ "metadata": { "uid": "other" }, "data": { "k": "v" } }));
    let refused = refusal(world.maps().patch("m", &patch(), &change).await);
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    assert_eq!(refused.details.unwrap().causes[0].field, "metadata.uid");
}

pub async fn a_custom_resource_says_its_kind(world: World) {
    let path = format!(
        "/apis/test.impresario.dev/v1/namespaces/{}/gadgets",
        world.namespace
    );
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request
        .body(br#"{"metadata":{"name":"g"}}"#.to_vec())
        .unwrap();
    let refused = refusal(world.client.request::<Value>(request).await);
    assert_eq!((refused.code, refused.reason.as_str()), (400, "BadRequest"));
    assert!(
        refused.message.contains("Object 'Kind' is missing"),
        "{}",
        refused.message
    );
}

pub async fn a_patch_that_changes_nothing_writes_nothing(world: World) {
    let map = world
        .create_map(json!({ "metadata": { "name": "m" }, "data": { "a": "1" } }))
        .await;
    let revision = map.resource_version().unwrap();
    let mut events = watch(&world.maps(), &WatchParams::default(), &revision).await;
    let same = Patch::Merge(json!({ "data": { "a": "1", "b": null } }));
    let unchanged = world.maps().patch("m", &patch(), &same).await.unwrap();
    assert_eq!(unchanged.resource_version().unwrap(), revision);
    let replaced = world
        .maps()
        .replace("m", &create(), &unchanged)
        .await
        .unwrap();
    assert_eq!(replaced.resource_version().unwrap(), revision);
    world
        .create_map(json!({ "metadata": { "name": "next" } }))
        .await;
    assert_eq!(events.next_name().await, ("ADDED", "next".into()));
}

pub async fn null_removes_in_a_merge_patch(world: World) {
    let map = json!({
        "metadata": { "name": "m", "labels": { "a": "1", "b": "2" } },
        "data": { "x": "1", "y": "2" },
    });
    world.create_map(map).await;
    let change = Patch::Merge(json!({
        "metadata": { "labels": { "a": null, "c": "3" } },
        "data": { "x": null },
    }));
    let patched = world.maps().patch("m", &patch(), &change).await.unwrap();
    assert_eq!(json!(patched.labels()), json!({ "b": "2", "c": "3" }));
    assert_eq!(json!(patched.data), json!({ "y": "2" }));
    let change = Patch::Merge(json!({ "metadata": { "labels": null }, "data": null }));
    let patched = world.maps().patch("m", &patch(), &change).await.unwrap();
    assert!(patched.labels().is_empty() && patched.data.is_none());
}

pub async fn a_json_patch_is_all_or_nothing(world: World) {
    world
        .create_map(json!({ "metadata": { "name": "m" }, "data": { "a": "1" } }))
        .await;
    let steps = |value: &str| -> Patch<ConfigMap> {
        Patch::Json(object(json!([
            { "op": "add", "path": "/data/b", "value": "2" },
            { "op": "test", "path": "/data/a", "value": value },
        ])))
    };
    let refused = refusal(world.maps().patch("m", &patch(), &steps("9")).await);
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    let untouched = world.maps().get("m").await.unwrap();
    assert_eq!(json!(untouched.data), json!({ "a": "1" }));
    let patched = world
        .maps()
        .patch("m", &patch(), &steps("1"))
        .await
        .unwrap();
    assert_eq!(json!(patched.data), json!({ "a": "1", "b": "2" }));
}

pub async fn status_and_spec_are_written_apart(world: World) {
    let gadget = json!({
        "metadata": { "name": "g" },
        "spec": { "size": 1 },
        "status": { "phase": "Ignored" },
    });
    let created = world.create_gadget(gadget).await;
    assert_eq!(created.data["status"], Value::Null);
    let both = Patch::Merge(json!({ "spec": { "size": 2 }, "status": { "phase": "Running" } }));
    let patched = world
        .gadgets()
        .patch_status("g", &patch(), &both)
        .await
        .unwrap();
    assert_eq!(
        (
            &patched.data["spec"]["size"],
            &patched.data["status"]["phase"]
        ),
        (&json!(1), &json!("Running"))
    );
    let both = Patch::Merge(json!({ "spec": { "size": 3 }, "status": { "phase": "Failed" } }));
    let mut patched = world.gadgets().patch("g", &patch(), &both).await.unwrap();
    assert_eq!(
        (
            &patched.data["spec"]["size"],
            &patched.data["status"]["phase"]
        ),
        (&json!(3), &json!("Running"))
    );
    patched.data["spec"]["size"] = json!(4);
    patched.data["status"]["phase"] = json!("Done");
    let replaced = world
        .gadgets()
        .replace_status("g", &create(), &patched)
        .await
        .unwrap();
    assert_eq!(
        (
            &replaced.data["spec"]["size"],
            &replaced.data["status"]["phase"]
        ),
        (&json!(3), &json!("Done"))
    );
    let mut without = replaced;
    without.data["spec"]["size"] = json!(5);
    without.data.as_object_mut().unwrap().remove("status");
    let replaced = world
        .gadgets()
        .replace("g", &create(), &without)
        .await
        .unwrap();
    assert_eq!(
        (
            &replaced.data["spec"]["size"],
            &replaced.data["status"]["phase"]
        ),
        (&json!(5), &json!("Done"))
    );
}

pub async fn a_status_write_leaves_metadata_alone(world: World) {
    let created = world
        .create_gadget(json!({ "metadata": { "name": "g" }, "spec": {} }))
        .await;
    let change = Patch::Merge(json!({
        "metadata": { "labels": { "a": "1" }, "finalizers": ["test.impresario.dev/x"] },
        "status": { "phase": "Running" },
    }));
    let patched = world
        .gadgets()
        .patch_status("g", &patch(), &change)
        .await
        .unwrap();
    assert!(patched.labels().is_empty() && patched.finalizers().is_empty());
    assert_eq!(patched.data["status"]["phase"], "Running");
    assert_ne!(patched.resource_version(), created.resource_version());
}

pub async fn generation_counts_changes_of_the_spec(world: World) {
    let created = world
        .create_gadget(json!({ "metadata": { "name": "g" }, "spec": { "size": 1 } }))
        .await;
    assert_eq!(created.metadata.generation, Some(1));
    let gadgets = world.gadgets();
    let generation = async |change: Value| {
        let patched = gadgets
            .patch("g", &patch(), &Patch::Merge(change))
            .await
            .unwrap();
        patched.metadata.generation.unwrap()
    };
    assert_eq!(
        generation(json!({ "metadata": { "labels": { "a": "1" } } })).await,
        1
    );
    assert_eq!(generation(json!({ "spec": { "size": 2 } })).await, 2);
    assert_eq!(generation(json!({ "spec": { "size": 2 } })).await, 2);
    assert_eq!(
        generation(json!({ "metadata": { "generation": 7 } })).await,
        2
    );
    let status = Patch::Merge(json!({ "status": { "phase": "Running" } }));
    let patched = gadgets.patch_status("g", &patch(), &status).await.unwrap();
    assert_eq!(patched.metadata.generation, Some(2));
}

pub async fn a_dry_run_leaves_no_trace(world: World) {
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let map: ConfigMap = object(json!({ "metadata": { "name": "dry" } }));
    let answered = world.maps().create(&dry, &map).await.unwrap();
    assert!(answered.uid().is_some());
    assert!(world.maps().get_opt("dry").await.unwrap().is_none());
    let created = world
        .create_map(json!({ "metadata": { "name": "dry" } }))
        .await;
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let change = Patch::Merge(json!({ "data": { "k": "v" } }));
    let answered = world.maps().patch("dry", &dry, &change).await.unwrap();
    assert!(answered.data.is_some());
    let unchanged = world.maps().get("dry").await.unwrap();
    assert_eq!(unchanged.resource_version(), created.resource_version());
}

pub async fn system_fields_cannot_be_changed(world: World) {
    let created = world
        .create_map(json!({ "metadata": { "name": "m" } }))
        .await;
    let change = Patch::Merge(json!({
        "metadata": { "creationTimestamp": "2001-01-01T00:00:00Z", "labels": { "a": "1" } },
    }));
    let patched = world.maps().patch("m", &patch(), &change).await.unwrap();
    assert_eq!(patched.creation_timestamp(), created.creation_timestamp());
    let change = Patch::Merge(json!({ "metadata": { "name": "other" } }));
    assert!(world.maps().patch("m", &patch(), &change).await.is_err());
    let change = Patch::Merge(json!({ "metadata": { "namespace": "kube-system" } }));
    assert_eq!(
        refusal(world.maps().patch("m", &patch(), &change).await).code,
        400
    );
    let renamed: ConfigMap = object(json!({ "metadata": { "name": "other" } }));
    assert_eq!(
        refusal(world.maps().replace("m", &create(), &renamed).await).code,
        400
    );
    let elsewhere: ConfigMap =
        object(json!({ "metadata": { "name": "x", "namespace": "kube-system" } }));
    assert_eq!(
        refusal(world.maps().create(&create(), &elsewhere).await).code,
        400
    );
}

pub async fn a_name_must_be_a_name(world: World) {
    let map: ConfigMap = object(json!({ "metadata": { "name": "Not_A_Name" } }));
    let refused = refusal(world.maps().create(&create(), &map).await);
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    let start =
        "ConfigMap \"Not_A_Name\" is invalid: metadata.name: Invalid value: \"Not_A_Name\": ";
    assert!(refused.message.starts_with(start), "{}", refused.message);
    let cause = &refused.details.unwrap().causes[0];
    assert_eq!(
        (cause.reason.as_str(), cause.field.as_str()),
        ("FieldValueInvalid", "metadata.name")
    );
    let map: ConfigMap = object(json!({ "metadata": {} }));
    let refused = refusal(world.maps().create(&create(), &map).await);
    assert!(
        refused.message.contains("name or generateName is required"),
        "{}",
        refused.message
    );
}

pub async fn labels_must_be_labels(world: World) {
    let gadget: DynamicObject = object(json!({
        "apiVersion": "test.impresario.dev/v1",
        "kind": "Gadget",
        "metadata": { "name": "g", "labels": { "size": "much too long ".repeat(9) } },
    }));
    let refusal = refusal(world.gadgets().create(&create(), &gadget).await);
    assert_eq!(refusal.code, 422);
    let causes = refusal.details.unwrap().causes;
    assert!(
        causes.iter().all(|cause| cause.field == "metadata.labels"),
        "{causes:?}"
    );
    assert_eq!(causes.len(), 2);
}

pub async fn an_owner_reference_must_be_whole(world: World) {
    let map: ConfigMap = object(json!({
        "metadata": {
            "name": "m",
            "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "" }],
        },
    }));
    let refusal = refusal(world.maps().create(&create(), &map).await);
    assert_eq!(refusal.code, 422);
    assert!(
        refusal.message.contains("uid must not be empty"),
        "{}",
        refusal.message
    );
}

pub async fn a_secret_takes_texts_and_keeps_its_type(world: World) {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    let secret: Secret = object(json!({
        "metadata": { "name": "s" },
        "data": { "a": "b25l" },
        "stringData": { "b": "two" },
    }));
    let created = secrets.create(&create(), &secret).await.unwrap();
    assert_eq!(created.type_.as_deref(), Some("Opaque"));
    assert_eq!(json!(created.data), json!({ "a": "b25l", "b": "dHdv" }));
    assert!(created.string_data.is_none());
    let change = Patch::Merge(json!({ "type": "example.com/other" }));
    let refused = refusal(secrets.patch("s", &patch(), &change).await);
    assert_eq!(refused.code, 422);
    assert!(
        refused.message.contains("type: Invalid value"),
        "{}",
        refused.message
    );
    let freeze = Patch::Merge(json!({ "immutable": true }));
    secrets.patch("s", &patch(), &freeze).await.unwrap();
    let change = Patch::Merge(json!({ "stringData": { "a": "other" } }));
    let refused = refusal(secrets.patch("s", &patch(), &change).await);
    assert!(
        refused
            .message
            .contains("data: Forbidden: field is immutable when `immutable` is set"),
        "{}",
        refused.message
    );
}

pub async fn a_binding_keeps_its_role(world: World) {
    let bindings: Api<RoleBinding> = Api::namespaced(world.client.clone(), &world.namespace);
    let binding: RoleBinding = object(json!({
        "metadata": { "name": "b" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one" },
        "subjects": [{ "kind": "User", "name": "mona" }],
    }));
    let created = bindings.create(&create(), &binding).await.unwrap();
    let subject = &created.subjects.unwrap()[0];
    assert_eq!(
        subject.api_group.as_deref(),
        Some("rbac.authorization.k8s.io")
    );
    let change = Patch::Merge(json!({ "roleRef": { "name": "two" } }));
    let refusal = refusal(bindings.patch("b", &patch(), &change).await);
    assert_eq!(refusal.code, 422);
    assert!(
        refusal.message.contains("cannot change roleRef"),
        "{}",
        refusal.message
    );
}

pub async fn the_wrong_kind_is_a_bad_request(world: World) {
    let body = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "m" } });
    let refusal = refusal(post(&world, body.to_string().into_bytes()).await);
    assert_eq!((refusal.code, refusal.reason.as_str()), (400, "BadRequest"));
}

pub async fn a_body_that_is_no_object_is_a_bad_request(world: World) {
    for body in ["[1, 2]", "{ not json", "\"text\"", ""] {
        let refusal = refusal(post(&world, body.into()).await);
        assert_eq!(refusal.code, 400, "{body:?}");
    }
}

async fn post(world: &World, body: Vec<u8>) -> kube::Result<Value> {
    let path = format!("/api/v1/namespaces/{}/configmaps", world.namespace);
    let request = http::Request::post(path).header("content-type", "application/json");
    world.client.request(request.body(body).unwrap()).await
}

pub async fn a_large_number_survives(world: World) {
    let size = 9_007_199_254_740_993_i64;
    let gadget = json!({ "metadata": { "name": "g" }, "spec": { "size": size } });
    assert_eq!(world.create_gadget(gadget).await.data["spec"]["size"], size);
}
