//! What we rely on in a Kubernetes API server, as one suite through the kube client.

use futures::{StreamExt, TryStreamExt};
use impresario::clock::Clock;
use impresario::simulation::api_server::{ApiServer, ApiServerOptions};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{
    DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn smoke() {
    let clock = Clock::simulated("2026-01-02T03:04:05Z".parse().unwrap());
    let server = ApiServer::new(ApiServerOptions::new(clock, 7));
    let client = server.client();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let map: ConfigMap =
        serde_json::from_value(json!({"metadata": {"generateName": "a-"}, "data": {"x": "1"}}))
            .unwrap();
    let created = maps.create(&PostParams::default(), &map).await.unwrap();
    let name = created.metadata.name.clone().unwrap();
    let mut events = maps
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .boxed();
    assert!(matches!(
        events.try_next().await.unwrap(),
        Some(WatchEvent::Added(_))
    ));
    let patched = maps
        .patch(
            &name,
            &PatchParams::default(),
            &Patch::Merge(json!({"data": {"x": null, "y": "2"}})),
        )
        .await
        .unwrap();
    assert_eq!(patched.data.unwrap().len(), 1);
    assert!(matches!(
        events.try_next().await.unwrap(),
        Some(WatchEvent::Modified(_))
    ));
    assert_eq!(
        maps.list(&ListParams::default()).await.unwrap().items.len(),
        1
    );
    let error = maps
        .replace(&name, &PostParams::default(), &created)
        .await
        .unwrap_err();
    println!("{error}");
    maps.delete(&name, &DeleteParams::default())
        .await
        .unwrap()
        .right()
        .unwrap();
    assert!(matches!(
        events.try_next().await.unwrap(),
        Some(WatchEvent::Deleted(_))
    ));
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": created.metadata.uid}]}, "spec": {"containers": [{"name": "x", "image": "y"}]}})).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(pods.get_opt("a").await.unwrap().is_none());
}
