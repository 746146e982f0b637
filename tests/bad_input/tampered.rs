//! Objects of ours that somebody has spoilt.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::world::{ILL, World, credentials, ill, on_stage};

#[tokio::test(start_paused = true)]
async fn a_spoilt_jit_secret_is_made_anew() {
    on_stage(async {
        let spoilt = [
            json!({"runnerId": "bm90IGEgbnVtYmVy"}),
            json!({"runnerId": null}),
            json!({"jitToken": null, "runnerId": "//79"}),
        ];
        for data in spoilt {
            let mut world = World::new().await;
            world.apply(credentials()).await;
            world.apply(ill()).await;
            world.until_ready(ILL).await;
            let (name, jit) = jit_secret(&world);
            // without a pod and with a controller that starts anew, the Secret is all there is
            world.controller = None;
            let patch = PatchParams::default();
            secrets(&world, ILL.0)
                .patch(&name, &patch, &Patch::Merge(json!({ "data": data })))
                .await
                .unwrap();
            let pods = Api::<Pod>::namespaced(world.cluster.api.client(), ILL.0);
            pods.delete(&name, &DeleteParams::default().grace_period(0))
                .await
                .unwrap();
            world.controller = Some(world.cluster.start_controller());
            world
                .until("a runner waits with a Secret of its own", || {
                    jit_secrets(&world).iter().any(|(_, other)| *other != jit)
                })
                .await;
            world.takes_a_job(ILL.1).await;
            world.others_go_on().await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_spoilt_config_of_the_listener_is_written_again() {
    on_stage(async {
        let world = World::new().await;
        world.apply(credentials()).await;
        world.apply(ill()).await;
        world.until_ready(ILL).await;
        let namespace = &world.cluster.settings().namespace;
        let listener = listener_of(&world);
        let config = format!("{listener}-config");
        // `{"github_token": "x` in base64
        let spoilt = json!({"data": {"config.json": "eyJnaXRodWJfdG9rZW4iOiAieA=="}});
        secrets(&world, namespace)
            .patch(&config, &PatchParams::default(), &Patch::Merge(spoilt))
            .await
            .unwrap();
        let pods = Api::<Pod>::namespaced(world.cluster.api.client(), namespace);
        let before = pods.get(&listener).await.unwrap().metadata.uid;
        // its successor has to read the file
        pods.delete(&listener, &DeleteParams::default())
            .await
            .unwrap();
        world
            .until("another pod runs", || {
                let all: Vec<Pod> = world.cluster.api.list_as(Some(namespace));
                all.iter().any(|pod| {
                    pod.metadata.name.as_ref() == Some(&listener) && pod.metadata.uid != before
                })
            })
            .await;
        world.until_ready(ILL).await;
        world.takes_a_job(ILL.1).await;
        world.others_go_on().await;
    })
    .await;
}

fn secrets(world: &World, namespace: &str) -> Api<Secret> {
    Api::namespaced(world.cluster.api.client(), namespace)
}

/// JIT Secrets of the ill scale set's runners by name, with their token.
fn jit_secrets(world: &World) -> BTreeMap<String, Vec<u8>> {
    let all: Vec<Secret> = world.cluster.api.list_as(Some(ILL.0));
    all.into_iter()
        .filter_map(|secret| {
            let mut data = secret.data?;
            let id = data.remove("runnerId")?;
            std::str::from_utf8(&id.0).ok()?.parse::<i64>().ok()?;
            Some((secret.metadata.name?, data.remove("jitToken")?.0))
        })
        .collect()
}

fn jit_secret(world: &World) -> (String, Vec<u8>) {
    jit_secrets(world).into_iter().next().unwrap()
}

fn listener_of(world: &World) -> String {
    let namespace = &world.cluster.settings().namespace;
    let pods: Vec<Pod> = world.cluster.api.list_as(Some(namespace));
    pods.into_iter()
        .filter_map(|pod| pod.metadata.name)
        .find(|name| name.starts_with(ILL.1))
        .unwrap()
}
