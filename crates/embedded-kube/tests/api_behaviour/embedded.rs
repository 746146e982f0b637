//! What can be shown on the embedded server only: history that is forgotten, time that is
//! made to pass, faults, and features that the real server of these tests is too old for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use embedded_kube::Admission;
use embedded_kube::ApiError;
use embedded_kube::Verb;
use embedded_kube::faults::{EventFate, EventInfo, Interceptor, Outcome, RequestFate, RequestInfo};
use embedded_kube::{ApiServer, ApiServerOptions};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use wall_clock::Clock;

use crate::world::{object, refusal, watch, within};

fn options(seed: u64) -> ApiServerOptions {
    let clock = Clock::simulated("2026-03-04T05:06:07Z".parse().unwrap());
    ApiServerOptions::new(clock, seed)
}

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), "default")
}

fn map(name: &str) -> ConfigMap {
    object(json!({ "metadata": { "name": name } }))
}

fn pod(name: &str, resources: Value) -> Pod {
    object(json!({
        "metadata": { "name": name },
        "spec": { "containers": [{ "name": "c", "image": "i:1", "resources": resources }] },
    }))
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_before_a_compaction_is_told_so() {
    let server = ApiServer::new(options(1));
    let maps = maps(&server.client());
    let old = maps
        .create(&PostParams::default(), &map("a"))
        .await
        .unwrap();
    maps.create(&PostParams::default(), &map("b"))
        .await
        .unwrap();
    server.compact();
    let revision = old.resource_version().unwrap();
    let mut events = watch(&maps, &WatchParams::default(), &revision).await;
    match events.next_raw().await {
        Some(Ok(WatchEvent::Error(status))) => {
            assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
        }
        other => panic!("{other:?}"),
    }
    assert!(events.next_raw().await.is_none());
    let newest = server.revision().to_string();
    let mut events = watch(&maps, &WatchParams::default(), &newest).await;
    maps.create(&PostParams::default(), &map("c"))
        .await
        .unwrap();
    assert_eq!(events.next_name().await, ("ADDED", "c".into()));
}

#[tokio::test(start_paused = true)]
async fn a_page_from_before_a_compaction_is_gone() {
    let server = ApiServer::new(options(1));
    let maps = maps(&server.client());
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &map(name))
            .await
            .unwrap();
    }
    let mut parameters = ListParams::default().limit(1);
    let first = maps.list(&parameters).await.unwrap();
    maps.create(&PostParams::default(), &map("d"))
        .await
        .unwrap();
    server.compact();
    parameters.continue_token = first.metadata.continue_;
    let refusal = refusal(maps.list(&parameters).await);
    assert_eq!((refusal.code, refusal.reason.as_str()), (410, "Expired"));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_gets_a_bookmark_every_minute() {
    let server = ApiServer::new(options(1));
    let client = server.client();
    let revision = server.revision().to_string();
    let parameters = WatchParams::default().timeout(150);
    let mut events = watch(&maps(&client), &parameters, &revision).await;
    let pods = pods(&client);
    pods.create(&PostParams::default(), &pod("p", json!({})))
        .await
        .unwrap();
    let newest = server.revision().to_string();
    let mut seconds = Vec::new();
    let start = tokio::time::Instant::now();
    while let Some(event) = events.next_raw().await {
        match event {
            Ok(WatchEvent::Bookmark(bookmark)) => {
                assert_eq!(bookmark.metadata.resource_version, newest);
                seconds.push(start.elapsed().as_secs());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seconds, [60, 120, 150]);
}

#[tokio::test(start_paused = true)]
async fn a_streamed_list_ends_with_a_bookmark_that_says_so() {
    let server = ApiServer::new(options(1));
    let maps = maps(&server.client());
    maps.create(&PostParams::default(), &map("a"))
        .await
        .unwrap();
    let parameters = WatchParams::default().initial_events();
    let mut events = watch(&maps, &parameters, "0").await;
    assert_eq!(events.next_name().await, ("ADDED", "a".into()));
    match events.next_raw().await {
        Some(Ok(WatchEvent::Bookmark(bookmark))) => {
            assert_eq!(
                bookmark.metadata.annotations["k8s.io/initial-events-end"],
                "true"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_refuses_what_there_is_no_room_for() {
    let server = ApiServer::new(options(1));
    let client = server.client();
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), "default");
    let quota: ResourceQuota = object(json!({
        "metadata": { "name": "q" },
        "spec": { "hard": { "pods": "2", "requests.cpu": "1" } },
    }));
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    let pods = pods(&client);
    let cpu = |amount: &str| json!({ "requests": { "cpu": amount } });
    let refused = refusal(
        pods.create(&PostParams::default(), &pod("a", json!({})))
            .await,
    );
    assert_eq!(
        refused.message,
        "pods \"a\" is forbidden: failed quota: q: must specify requests.cpu for: c"
    );
    pods.create(&PostParams::default(), &pod("a", cpu("600m")))
        .await
        .unwrap();
    let refused = refusal(
        pods.create(&PostParams::default(), &pod("b", cpu("500m")))
            .await,
    );
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    assert_eq!(
        refused.message,
        "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=500m, used: \
         requests.cpu=600m, limited: requests.cpu=1"
    );
    pods.create(&PostParams::default(), &pod("b", cpu("400m")))
        .await
        .unwrap();
    let refused = refusal(
        pods.create(&PostParams::default(), &pod("c", cpu("0")))
            .await,
    );
    assert_eq!(
        refused.message,
        "pods \"c\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
    );
    let used = |quota: Option<&ResourceQuota>| {
        let status = quota
            .and_then(|quota| quota.status.clone())
            .unwrap_or_default();
        json!(status.used) == json!({ "pods": "2", "requests.cpu": "1" })
    };
    within(await_condition(quotas, "q", used)).await.unwrap();
    // a pod that has ended leaves room
    let done = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    pods.patch_status("a", &PatchParams::default(), &done)
        .await
        .unwrap();
    pods.create(&PostParams::default(), &pod("c", cpu("600m")))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pod_needs_its_service_account() {
    let server = ApiServer::new(options(1));
    let pods = pods(&server.client());
    let mut pod = pod("p", json!({}));
    let spec = pod.spec.as_mut().unwrap();
    spec.service_account_name = Some("ci".into());
    let refused = refusal(pods.create(&PostParams::default(), &pod).await);
    assert_eq!(
        refused.message,
        "pods \"p\" is forbidden: error looking up service account default/ci: serviceaccount \
         \"ci\" not found"
    );
    pod.spec.as_mut().unwrap().service_account_name = None;
    let created = pods.create(&PostParams::default(), &pod).await.unwrap();
    let spec = created.spec.unwrap();
    let volume = &spec.volumes.unwrap()[0].name;
    assert!(volume.starts_with("kube-api-access-"));
    assert_eq!(
        &spec.containers[0].volume_mounts.as_ref().unwrap()[0].name,
        volume
    );
}

#[tokio::test(start_paused = true)]
async fn admission_can_change_what_is_created() {
    let mut options = options(1);
    options.admission = vec![
        Admission::FirstContainer(json!({ "name": "proxy", "image": "mesh:1" })),
        Admission::Volume {
            volume: json!({ "name": "certs", "emptyDir": {} }),
            mount_path: "/certs".into(),
        },
        Admission::Labels {
            plural: "pods".into(),
            labels: vec![("team".into(), "mesh".into())],
        },
    ];
    let server = ApiServer::new(options);
    let pods = pods(&server.client());
    let created = pods
        .create(&PostParams::default(), &pod("p", json!({})))
        .await
        .unwrap();
    assert_eq!(created.labels()["team"], "mesh");
    let spec = created.spec.unwrap();
    let names: Vec<&str> = spec.containers.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["proxy", "c"]);
    assert_eq!(
        spec.containers[0].image_pull_policy.as_deref(),
        Some("IfNotPresent")
    );
    for container in &spec.containers {
        let mounts = container.volume_mounts.as_ref().unwrap();
        assert!(mounts.iter().any(|mount| mount.mount_path == "/certs"));
    }
}

/// Gives the next fates to creations and events, then lets everything pass.
#[derive(Default)]
struct Script {
    creations: Vec<Outcome>,
    events: Vec<EventFate>,
    next_creation: AtomicUsize,
    next_event: AtomicUsize,
}

impl Interceptor for Script {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        if request.verb != Some(Verb::Create) {
            return RequestFate::default();
        }
        let next = self.next_creation.fetch_add(1, Ordering::Relaxed);
        RequestFate {
            delay_before: Duration::from_millis(5),
            outcome: self.creations.get(next).cloned().unwrap_or_default(),
            delay_after: Duration::from_millis(7),
            ..RequestFate::default()
        }
    }

    fn event(&self, _: &EventInfo<'_>) -> EventFate {
        let next = self.next_event.fetch_add(1, Ordering::Relaxed);
        self.events.get(next).copied().unwrap_or_default()
    }
}

fn scripted(script: Script) -> ApiServer {
    let mut options = options(1);
    options.interceptor = Arc::new(script);
    ApiServer::new(options)
}

#[tokio::test(start_paused = true)]
async fn a_request_can_fail_before_and_after_its_effect() {
    let busy = ApiError::new(503, "ServiceUnavailable", "busy");
    let server = scripted(Script {
        creations: vec![
            Outcome::Refused(busy.clone()),
            Outcome::AnsweredWrongly(busy),
            Outcome::Lost,
            Outcome::AnswerLost,
        ],
        ..Script::default()
    });
    let maps = maps(&server.client());
    let mut there = Vec::new();
    let start = tokio::time::Instant::now();
    for name in ["refused", "wrong", "lost", "answer-lost", "fine"] {
        let answer = maps.create(&PostParams::default(), &map(name)).await;
        there.push((answer.is_ok(), maps.get_opt(name).await.unwrap().is_some()));
    }
    assert_eq!(
        there,
        [
            (false, false),
            (false, true),
            (false, false),
            (false, true),
            (true, true)
        ]
    );
    assert_eq!(start.elapsed(), Duration::from_millis(5 * 12));
}

#[tokio::test(start_paused = true)]
async fn watch_events_can_be_dropped_doubled_and_delayed() {
    let server = scripted(Script {
        events: vec![
            EventFate::Dropped,
            EventFate::Duplicated,
            EventFate::Delayed(Duration::from_secs(9)),
            EventFate::Closed,
        ],
        ..Script::default()
    });
    let maps = maps(&server.client());
    let revision = server.revision().to_string();
    let mut events = watch(&maps, &WatchParams::default(), &revision).await;
    for name in ["a", "b", "c", "d"] {
        maps.create(&PostParams::default(), &map(name))
            .await
            .unwrap();
    }
    let start = tokio::time::Instant::now();
    assert_eq!(events.next_name().await.1, "b");
    assert_eq!(events.next_name().await.1, "b");
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(events.next_name().await.1, "c");
    assert_eq!(start.elapsed(), Duration::from_secs(9));
    assert!(events.next_raw().await.is_none());
}

/// A small life, with its log.
async fn life(seed: u64) -> Vec<String> {
    let mut options = options(seed);
    options.keep_log = true;
    let server = ApiServer::new(options);
    let maps = maps(&server.client());
    for _ in 0..20 {
        let map: ConfigMap = object(json!({ "metadata": { "generateName": "m-" } }));
        let owner = maps.create(&PostParams::default(), &map).await.unwrap();
        let child: ConfigMap = object(json!({
            "metadata": {
                "generateName": "child-",
                "ownerReferences": [{
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": owner.name_any(),
                    "uid": owner.uid(),
                }],
            },
        }));
        let child = maps.create(&PostParams::default(), &child).await.unwrap();
        maps.delete(&owner.name_any(), &DeleteParams::default())
            .await
            .unwrap();
        crate::world::gone(maps.clone(), &child).await;
    }
    server.take_log()
}

#[test]
fn one_seed_gives_one_log() {
    let run = |seed| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(life(seed))
    };
    let log = run(5);
    assert!(log.len() > 80, "{log:#?}");
    assert_eq!(log, run(5));
    assert_ne!(log, run(6));
}

#[tokio::test(start_paused = true)]
async fn requests_are_counted() {
    let server = ApiServer::new(options(1));
    let maps = maps(&server.client_named("tester/1.0"));
    maps.create(&PostParams::default(), &map("a"))
        .await
        .unwrap();
    let _ = maps.get_opt("a").await.unwrap();
    let _ = maps.get_opt("b").await.unwrap();
    let counts: Vec<(&str, String, String, u64)> = server
        .requests()
        .into_iter()
        .map(|(key, count)| (key.verb, key.resource, key.user_agent, count))
        .collect();
    let count = |verb, count| (verb, "configmaps".to_owned(), "tester".to_owned(), count);
    assert_eq!(counts, [count("create", 1), count("get", 2)]);
}

#[tokio::test(start_paused = true)]
async fn what_a_container_wrote_can_be_read_until_its_pod_is_gone() {
    let server = ApiServer::new(options(1));
    let pods = pods(&server.client());
    let mut pod = pod("p", json!({}));
    pod.spec.as_mut().unwrap().node_name = Some("node-1".into());
    pods.create(&PostParams::default(), &pod).await.unwrap();
    for line in ["one", "two", "three"] {
        server.append_pod_log("default", "p", "c", line);
    }
    let all = pods.logs("p", &LogParams::default()).await.unwrap();
    assert_eq!(all, "one\ntwo\nthree\n");
    let tail = LogParams {
        tail_lines: Some(1),
        container: Some("c".into()),
        ..LogParams::default()
    };
    assert_eq!(pods.logs("p", &tail).await.unwrap(), "three\n");
    let other = LogParams {
        container: Some("x".into()),
        ..LogParams::default()
    };
    let refused = refusal(pods.logs("p", &other).await);
    assert_eq!(refused.message, "container x is not valid for pod p");
    let now = DeleteParams::default().grace_period(0);
    pods.delete("p", &now).await.unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    assert_eq!(pods.logs("p", &LogParams::default()).await.unwrap(), "");
}

#[tokio::test]
async fn the_port_serves_what_the_client_in_process_sees() {
    let server = ApiServer::new(options(1));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(server.serve(listener));
    let config = kube::Config::new(url.parse().unwrap());
    let maps = maps(&Client::try_from(config.clone()).unwrap());
    let mut events = watch(&maps, &WatchParams::default(), "0").await;
    maps.create(&PostParams::default(), &map("a"))
        .await
        .unwrap();
    assert_eq!(events.next_name().await, ("ADDED", "a".into()));
    assert!(server.get("", "configmaps", "default", "a").is_some());
    let mut config = config;
    config.auth_info.impersonate = Some("mona".into());
    let someone: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
    assert_eq!(refusal(someone.get("a").await).code, 403);
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn a_cluster_keeps_its_own_namespaces() {
    let server = ApiServer::new(options(1));
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(server.client());
    let refused = refusal(
        namespaces
            .delete("kube-system", &DeleteParams::default())
            .await,
    );
    assert_eq!(
        refused.message,
        "namespaces \"kube-system\" is forbidden: this namespace may not be deleted"
    );
}

#[tokio::test(start_paused = true)]
async fn a_definition_takes_its_objects_along() {
    let world = crate::world::World::embedded();
    let held = json!({ "metadata": { "name": "g", "finalizers": ["test.impresario.dev/x"] } });
    world.create_gadget(held).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let name = "gadgets.test.impresario.dev";
    let definition = definitions.get(name).await.unwrap();
    definitions
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    let gadgets = world.gadgets();
    gadgets
        .patch("g", &PatchParams::default(), &release)
        .await
        .unwrap();
    crate::world::gone(definitions, &definition).await;
    assert_eq!(
        refusal(gadgets.get("g").await).message,
        "the server could not find the requested resource"
    );
}
