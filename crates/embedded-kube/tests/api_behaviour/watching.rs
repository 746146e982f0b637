//! Listing and watching.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, VersionMatch, WatchParams};
use serde_json::{Value, json};

use crate::world::{World, refusal, watch};

fn map(name: &str, labels: Value) -> Value {
    json!({ "metadata": { "name": name, "labels": labels } })
}

fn names<K: kube::Resource>(objects: &[K]) -> Vec<String> {
    objects.iter().map(ResourceExt::name_any).collect()
}

/// Leaves out what a real cluster may put into every namespace.
fn ours() -> ListParams {
    ListParams::default().labels("ours")
}

pub async fn a_watch_shows_what_happens_after_its_revision(world: World) {
    world.create_map(map("before", json!({}))).await;
    let list = world.maps().list(&ours()).await.unwrap();
    let revision = list.metadata.resource_version.unwrap();
    world.create_map(map("after", json!({}))).await;
    let mut events = watch(&world.maps(), &WatchParams::default(), &revision).await;
    assert_eq!(events.next_name().await, ("ADDED", "after".into()));
    let change = Patch::Merge(json!({ "data": { "k": "v" } }));
    world
        .maps()
        .patch("before", &PatchParams::default(), &change)
        .await
        .unwrap();
    assert_eq!(events.next_name().await, ("MODIFIED", "before".into()));
    world
        .maps()
        .delete("after", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(events.next_name().await, ("DELETED", "after".into()));
}

pub async fn a_watch_from_nowhere_begins_with_everything(world: World) {
    world.create_map(map("b", json!({ "ours": "" }))).await;
    world.create_map(map("a", json!({ "ours": "" }))).await;
    let mut events = watch(&world.maps(), &WatchParams::default().labels("ours"), "0").await;
    let mut first = [events.next_name().await, events.next_name().await];
    first.sort();
    assert_eq!(
        first,
        [("ADDED", "a".to_owned()), ("ADDED", "b".to_owned())]
    );
    world.create_map(map("c", json!({ "ours": "" }))).await;
    assert_eq!(events.next_name().await, ("ADDED", "c".into()));
}

pub async fn a_watch_ends_at_its_timeout(world: World) {
    let parameters = WatchParams::default().timeout(2).labels("ours");
    let mut events = watch(&world.maps(), &parameters, "0").await;
    while let Some(event) = events.next_raw().await {
        assert!(
            matches!(event, Ok(kube::api::WatchEvent::Bookmark(_))),
            "{event:?}"
        );
    }
}

pub async fn entering_and_leaving_a_selector_are_added_and_deleted(world: World) {
    let created = world
        .create_map(map("m", json!({ "colour": "blue" })))
        .await;
    let revision = created.resource_version().unwrap();
    let red = WatchParams::default().labels("colour=red");
    let mut events = watch(&world.maps(), &red, &revision).await;
    let paint = async |colour: &str| {
        let change = Patch::Merge(json!({ "metadata": { "labels": { "colour": colour } } }));
        world
            .maps()
            .patch("m", &PatchParams::default(), &change)
            .await
            .unwrap()
    };
    paint("red").await;
    assert_eq!(events.next_name().await, ("ADDED", "m".into()));
    let left = paint("green").await;
    let (kind, last) = events.next().await;
    assert_eq!(kind, "DELETED");
    // as it was when it was last selected, at the revision of its leaving
    assert_eq!(last.labels()["colour"], "red");
    assert_eq!(last.resource_version(), left.resource_version());
    world
        .maps()
        .delete("m", &DeleteParams::default())
        .await
        .unwrap();
    world.create_map(map("n", json!({ "colour": "red" }))).await;
    assert_eq!(events.next_name().await, ("ADDED", "n".into()));
}

pub async fn a_deletion_carries_a_newer_revision(world: World) {
    let created = world.create_map(map("m", json!({}))).await;
    let revision = created.resource_version().unwrap();
    let mut events = watch(&world.maps(), &WatchParams::default(), &revision).await;
    world
        .maps()
        .delete("m", &DeleteParams::default())
        .await
        .unwrap();
    let (kind, last) = events.next().await;
    assert_eq!(kind, "DELETED");
    let number = |revision: String| revision.parse::<u64>().unwrap();
    assert!(number(last.resource_version().unwrap()) > number(revision));
}

pub async fn a_list_in_pages_shows_one_moment(world: World) {
    for name in ["a", "b", "c", "d", "e"] {
        world.create_map(map(name, json!({ "ours": "" }))).await;
    }
    let mut parameters = ours().limit(2);
    let first = world.maps().list(&parameters).await.unwrap();
    assert_eq!(names(&first.items), ["a", "b"]);
    let revision = first.metadata.resource_version.clone();
    world
        .maps()
        .delete("c", &DeleteParams::default())
        .await
        .unwrap();
    world.create_map(map("d2", json!({ "ours": "" }))).await;
    parameters.continue_token = first.metadata.continue_;
    let second = world.maps().list(&parameters).await.unwrap();
    assert_eq!(names(&second.items), ["c", "d"]);
    assert_eq!(second.metadata.resource_version, revision);
    parameters.continue_token = second.metadata.continue_;
    let third = world.maps().list(&parameters).await.unwrap();
    assert_eq!(names(&third.items), ["e"]);
    assert_eq!(third.metadata.continue_.unwrap_or_default(), "");
    let now = world.maps().list(&ours()).await.unwrap();
    assert_eq!(names(&now.items), ["a", "b", "d", "d2", "e"]);
}

pub async fn a_list_can_show_the_past(world: World) {
    let first = world.create_map(map("a", json!({ "ours": "" }))).await;
    world.create_map(map("b", json!({ "ours": "" }))).await;
    let revision = first.resource_version().unwrap();
    let exact = ours().at(&revision).matching(VersionMatch::Exact);
    let list = world.maps().list(&exact).await.unwrap();
    assert_eq!(names(&list.items), ["a"]);
    assert_eq!(list.metadata.resource_version.unwrap(), revision);
    let newer = ours().at(&revision).matching(VersionMatch::NotOlderThan);
    let list = world.maps().list(&newer).await.unwrap();
    assert!(!list.items.is_empty());
    let without = ours().matching(VersionMatch::Exact);
    let request = kube::core::Request::new("/api/v1/configmaps").list(&without);
    if let Ok(request) = request {
        let refused = refusal(world.client.request::<Value>(request).await);
        assert!(matches!(refused.code, 400 | 422), "{refused:?}");
    }
}

pub async fn labels_select_in_every_form(world: World) {
    world
        .create_map(map(
            "a",
            json!({ "ours": "", "colour": "red", "size": "1" }),
        ))
        .await;
    world
        .create_map(map("b", json!({ "ours": "", "colour": "blue" })))
        .await;
    world.create_map(map("c", json!({ "ours": "" }))).await;
    for (selector, selected) in [
        ("ours", vec!["a", "b", "c"]),
        ("ours,colour=red", vec!["a"]),
        ("ours,colour==red,size=1", vec!["a"]),
        ("ours,colour!=red", vec!["b", "c"]),
        ("ours,colour in (red, blue)", vec!["a", "b"]),
        ("ours,colour notin (red)", vec!["b", "c"]),
        ("ours,!colour", vec!["c"]),
        ("ours,colour", vec!["a", "b"]),
    ] {
        let list = world
            .maps()
            .list(&ListParams::default().labels(selector))
            .await
            .unwrap();
        assert_eq!(names(&list.items), selected, "{selector}");
    }
    let refusal = refusal(
        world
            .maps()
            .list(&ListParams::default().labels("a in ("))
            .await,
    );
    assert_eq!((refusal.code, refusal.reason.as_str()), (400, "BadRequest"));
}

pub async fn pods_are_selected_by_node_and_phase(world: World) {
    for (name, node) in [("a", "one"), ("b", "two")] {
        world
            .create_pod(json!({
                "metadata": { "name": name },
                "spec": {
                    "nodeName": node,
                    "automountServiceAccountToken": false,
                    "containers": [{ "name": "c", "image": "i:1" }],
                },
            }))
            .await;
    }
    let running = Patch::Merge(json!({ "status": { "phase": "Running" } }));
    world
        .pods()
        .patch_status("b", &PatchParams::default(), &running)
        .await
        .unwrap();
    for (selector, selected) in [
        ("spec.nodeName=one", vec!["a"]),
        ("spec.nodeName!=one", vec!["b"]),
        ("status.phase=Running", vec!["b"]),
        ("status.phase=Pending,spec.restartPolicy=Always", vec!["a"]),
        ("metadata.name=a", vec!["a"]),
    ] {
        let list = world
            .pods()
            .list(&ListParams::default().fields(selector))
            .await
            .unwrap();
        assert_eq!(names(&list.items), selected, "{selector}");
    }
    let here = format!("metadata.namespace={}", world.namespace);
    let list = world
        .pods()
        .list(&ListParams::default().fields(&here))
        .await
        .unwrap();
    assert_eq!(names(&list.items), ["a", "b"]);
}

pub async fn an_unknown_field_selects_nothing(world: World) {
    let odd = ListParams::default().fields("spec.replicas=1");
    for refused in [
        refusal(world.pods().list(&odd).await),
        refusal(world.gadgets().list(&odd).await),
    ] {
        assert_eq!(refused.code, 400);
        assert!(
            refused
                .message
                .contains("field label not supported: spec.replicas"),
            "{}",
            refused.message
        );
    }
}

pub async fn metadata_alone_can_be_asked_for(world: World) {
    world
        .create_map(
            json!({ "metadata": { "name": "m", "labels": { "ours": "" } }, "data": { "k": "v" } }),
        )
        .await;
    let one = world.maps().get_metadata("m").await.unwrap();
    assert_eq!(one.types.unwrap().kind, "PartialObjectMetadata");
    assert_eq!(one.metadata.name.as_deref(), Some("m"));
    let list = world.maps().list_metadata(&ours()).await.unwrap();
    assert_eq!(names(&list.items), ["m"]);
    let change = Patch::Merge(json!({ "data": { "k": "w" } }));
    let metadata = world
        .maps()
        .patch_metadata("m", &PatchParams::default(), &change)
        .await
        .unwrap();
    let map: ConfigMap = world.maps().get("m").await.unwrap();
    assert_eq!(metadata.metadata.resource_version, map.resource_version());
}
