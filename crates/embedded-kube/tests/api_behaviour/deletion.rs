//! Deleting: finalizers, preconditions, owners, namespaces.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, WatchParams,
};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::world::{World, gone, object, refusal, watch, within};

const FINALIZER: &str = "test.impresario.dev/hold";

fn patch() -> PatchParams {
    PatchParams::default()
}

fn release() -> Patch<Value> {
    Patch::Merge(json!({ "metadata": { "finalizers": null } }))
}

async fn owned(world: &World, name: &str, owners: &[&ConfigMap]) -> ConfigMap {
    let references: Vec<Value> = owners
        .iter()
        .map(|owner| {
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": owner.name_any(),
                "uid": owner.uid(),
                "blockOwnerDeletion": true,
            })
        })
        .collect();
    let metadata = json!({ "name": name, "ownerReferences": references });
    world.create_map(json!({ "metadata": metadata })).await
}

pub async fn what_nothing_holds_is_gone_at_once(world: World) {
    let map = world
        .create_map(json!({ "metadata": { "name": "m" } }))
        .await;
    let answer = world
        .maps()
        .delete("m", &DeleteParams::default())
        .await
        .unwrap();
    let status = answer.right().expect("a Status, since the object is gone");
    let details = status.details.unwrap();
    assert_eq!((details.name, Some(details.uid)), ("m".into(), map.uid()));
    assert!(world.maps().get_opt("m").await.unwrap().is_none());
    let refusal = refusal(world.maps().delete("m", &DeleteParams::default()).await);
    assert_eq!((refusal.code, refusal.reason.as_str()), (404, "NotFound"));
}

pub async fn a_finalizer_holds_an_object(world: World) {
    let gadget = json!({ "metadata": { "name": "g", "finalizers": [FINALIZER] }, "spec": {} });
    let created = world.create_gadget(gadget).await;
    let revision = created.resource_version().unwrap();
    let mut events = watch(&world.gadgets(), &WatchParams::default(), &revision).await;
    let answer = world
        .gadgets()
        .delete("g", &DeleteParams::default())
        .await
        .unwrap();
    let marked = answer.left().expect("the object, since it is still there");
    assert!(marked.metadata.deletion_timestamp.is_some());
    assert_eq!(marked.metadata.deletion_grace_period_seconds, Some(0));
    assert_eq!(marked.metadata.generation, Some(2));
    // it can still be written
    let label =
        Patch::Merge(json!({ "metadata": { "labels": { "a": "1" } }, "spec": { "size": 1 } }));
    let labelled = world.gadgets().patch("g", &patch(), &label).await.unwrap();
    assert_eq!(
        labelled.metadata.deletion_timestamp,
        marked.metadata.deletion_timestamp
    );
    let last = world
        .gadgets()
        .patch("g", &patch(), &release())
        .await
        .unwrap();
    assert!(last.finalizers().is_empty());
    assert!(world.gadgets().get_opt("g").await.unwrap().is_none());
    assert_eq!(events.next_name().await.0, "MODIFIED");
    assert_eq!(events.next_name().await.0, "MODIFIED");
    assert_eq!(events.next_name().await, ("DELETED", "g".into()));
}

pub async fn no_finalizer_is_added_to_what_is_being_deleted(world: World) {
    world
        .create_map(json!({ "metadata": { "name": "m", "finalizers": [FINALIZER] } }))
        .await;
    world
        .maps()
        .delete("m", &DeleteParams::default())
        .await
        .unwrap();
    let finalizers = [FINALIZER, "test.impresario.dev/second"];
    let add = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    let refusal = refusal(world.maps().patch("m", &patch(), &add).await);
    assert_eq!((refusal.code, refusal.reason.as_str()), (422, "Invalid"));
    assert!(
        refusal
            .message
            .contains("no new finalizers can be added if the object is being deleted"),
        "{}",
        refusal.message
    );
    world.maps().patch("m", &patch(), &release()).await.unwrap();
}

pub async fn a_second_deletion_changes_nothing(world: World) {
    world
        .create_map(json!({ "metadata": { "name": "m", "finalizers": [FINALIZER] } }))
        .await;
    let first = world
        .maps()
        .delete("m", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    let second = world
        .maps()
        .delete("m", &DeleteParams::default())
        .await
        .unwrap()
        .left()
        .unwrap();
    assert_eq!(first.resource_version(), second.resource_version());
    world.maps().patch("m", &patch(), &release()).await.unwrap();
}

pub async fn preconditions_protect_a_successor(world: World) {
    let map = world
        .create_map(json!({ "metadata": { "name": "m" } }))
        .await;
    let with = |uid: Option<String>, resource_version: Option<String>| DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version,
        }),
        ..DeleteParams::default()
    };
    for condition in [
        with(Some("other".into()), None),
        with(None, Some("1".into())),
    ] {
        let refusal = refusal(world.maps().delete("m", &condition).await);
        assert_eq!((refusal.code, refusal.reason.as_str()), (409, "Conflict"));
    }
    let condition = with(map.uid(), map.resource_version());
    world.maps().delete("m", &condition).await.unwrap();
}

pub async fn dependents_go_after_their_owner(world: World) {
    let owner = world
        .create_map(json!({ "metadata": { "name": "owner" } }))
        .await;
    let child = owned(&world, "child", &[&owner]).await;
    let grandchild = owned(&world, "grandchild", &[&child]).await;
    let background = DeleteParams::background();
    world.maps().delete("owner", &background).await.unwrap();
    gone(world.maps(), &child).await;
    gone(world.maps(), &grandchild).await;
}

pub async fn a_dependent_stays_while_one_owner_does(world: World) {
    let one = world
        .create_map(json!({ "metadata": { "name": "one" } }))
        .await;
    let two = world
        .create_map(json!({ "metadata": { "name": "two" } }))
        .await;
    let child = owned(&world, "child", &[&one, &two]).await;
    world
        .maps()
        .delete("one", &DeleteParams::background())
        .await
        .unwrap();
    let owner_left = move |map: Option<&ConfigMap>| {
        let owners = map
            .map(|map| map.owner_references().to_vec())
            .unwrap_or_default();
        owners.len() == 1 && owners[0].name == "two"
    };
    within(await_condition(world.maps(), "child", owner_left))
        .await
        .unwrap();
    world
        .maps()
        .delete("two", &DeleteParams::background())
        .await
        .unwrap();
    gone(world.maps(), &child).await;
}

pub async fn an_owner_with_another_uid_is_no_owner(world: World) {
    let owner = world
        .create_map(json!({ "metadata": { "name": "owner" } }))
        .await;
    let mut former = owner.clone();
    former.metadata.uid = Some("11111111-2222-4333-8444-555555555555".into());
    let child = owned(&world, "child", &[&former]).await;
    gone(world.maps(), &child).await;
    assert!(world.maps().get_opt("owner").await.unwrap().is_some());
}

pub async fn orphans_stay_and_forget_their_owner(world: World) {
    let owner = world
        .create_map(json!({ "metadata": { "name": "owner" } }))
        .await;
    owned(&world, "child", &[&owner]).await;
    world
        .maps()
        .delete("owner", &DeleteParams::orphan())
        .await
        .unwrap();
    gone(world.maps(), &owner).await;
    let child = world.maps().get("child").await.unwrap();
    assert!(child.owner_references().is_empty());
    assert!(child.metadata.deletion_timestamp.is_none());
}

pub async fn in_the_foreground_the_owner_goes_last(world: World) {
    let owner = world
        .create_map(json!({ "metadata": { "name": "owner" } }))
        .await;
    let child = owned(&world, "child", &[&owner]).await;
    let hold = Patch::Merge(json!({ "metadata": { "finalizers": [FINALIZER] } }));
    world.maps().patch("child", &patch(), &hold).await.unwrap();
    let answer = world
        .maps()
        .delete("owner", &DeleteParams::foreground())
        .await
        .unwrap();
    assert_eq!(answer.left().unwrap().finalizers(), ["foregroundDeletion"]);
    let deleting =
        |map: Option<&ConfigMap>| map.is_some_and(|map| map.metadata.deletion_timestamp.is_some());
    within(await_condition(world.maps(), "child", deleting))
        .await
        .unwrap();
    assert!(world.maps().get_opt("owner").await.unwrap().is_some());
    world
        .maps()
        .patch("child", &patch(), &release())
        .await
        .unwrap();
    gone(world.maps(), &child).await;
    gone(world.maps(), &owner).await;
}

pub async fn a_collection_is_deleted_by_label(world: World) {
    for (name, colour) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        world
            .create_map(json!({ "metadata": { "name": name, "labels": { "colour": colour } } }))
            .await;
    }
    let red = ListParams::default().labels("colour=red");
    world
        .maps()
        .delete_collection(&DeleteParams::default(), &red)
        .await
        .unwrap();
    let left = world
        .maps()
        .list(&ListParams::default().labels("colour"))
        .await
        .unwrap();
    let left: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["b"]);
}

pub async fn a_namespace_takes_its_content_along(world: World) {
    let name = format!("{}-content", world.namespace);
    world.create_namespace(&name).await;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &name);
    let map: ConfigMap = object(json!({ "metadata": { "name": "m" } }));
    maps.create(&PostParams::default(), &map).await.unwrap();
    let namespace = world.namespaces().get(&name).await.unwrap();
    world
        .namespaces()
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    gone(world.namespaces(), &namespace).await;
    assert!(maps.get_opt("m").await.unwrap().is_none());
}

pub async fn nothing_is_created_in_a_terminating_namespace(world: World) {
    let name = format!("{}-end", world.namespace);
    world.create_namespace(&name).await;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &name);
    let held: ConfigMap =
        object(json!({ "metadata": { "name": "held", "finalizers": [FINALIZER] } }));
    maps.create(&PostParams::default(), &held).await.unwrap();
    let answer = world
        .namespaces()
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    let namespace = answer.left().unwrap();
    assert_eq!(
        namespace.status.as_ref().unwrap().phase.as_deref(),
        Some("Terminating")
    );
    let late: ConfigMap = object(json!({ "metadata": { "name": "late" } }));
    let refusal = refusal(maps.create(&PostParams::default(), &late).await);
    assert_eq!((refusal.code, refusal.reason.as_str()), (403, "Forbidden"));
    let why =
        format!("unable to create new content in namespace {name} because it is being terminated");
    assert_eq!(
        refusal.message,
        format!("configmaps \"late\" is forbidden: {why}")
    );
    assert_eq!(
        refusal.details.unwrap().causes[0].reason,
        "NamespaceTerminating"
    );
    maps.patch("held", &patch(), &release()).await.unwrap();
    gone(world.namespaces(), &namespace).await;
}
