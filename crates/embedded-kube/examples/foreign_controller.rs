//! A controller that knows nothing of this crate, under test: it notes on every ConfigMap how many
//! keys it has. The API server refuses its first write, time is paused, and rights are those that
//! a role gives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use embedded_kube::faults::{Interceptor, Outcome, RequestFate, RequestInfo};
use embedded_kube::{ApiError, ApiServer, ApiServerOptions, Verb};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::wait::await_condition;
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use serde_json::json;
use wall_clock::Clock;

// === the controller, as anybody writes one ===

const KEYS: &str = "example.dev/keys";

async fn run(client: Client) {
    let maps = Api::<ConfigMap>::all(client.clone());
    let later = |_, error: &kube::Error, _| {
        println!("controller: {error}");
        Action::requeue(Duration::from_secs(3600))
    };
    Controller::new(maps, watcher::Config::default())
        .run(reconcile, later, Arc::new(client))
        .for_each(|_| async {})
        .await;
}

async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> kube::Result<Action> {
    let keys = map.data.as_ref().map_or(0, BTreeMap::len).to_string();
    if map.annotations().get(KEYS) != Some(&keys) {
        let namespace = map.namespace().unwrap_or_default();
        let maps = Api::<ConfigMap>::namespaced(Client::clone(&client), &namespace);
        let patch = Patch::Merge(json!({"metadata": {"annotations": {KEYS: keys}}}));
        maps.patch(&map.name_any(), &PatchParams::default(), &patch)
            .await?;
    }
    Ok(Action::await_change())
}

// === what it is put through ===

/// Refuses the first write of the controller.
#[derive(Default)]
struct FirstWriteFails(AtomicBool);

impl Interceptor for FirstWriteFails {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        let is_write = request.verb == Some(Verb::Patch);
        let outcome = if is_write && !self.0.swap(true, Ordering::Relaxed) {
            Outcome::Refused(ApiError::new(500, "InternalError", "etcd has no leader"))
        } else {
            Outcome::Answered
        };
        RequestFate {
            outcome,
            ..RequestFate::default()
        }
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> anyhow::Result<()> {
    let clock = Clock::simulated("2026-02-03T04:05:06Z".parse()?);
    let server = ApiServer::new(ApiServerOptions {
        interceptor: Arc::new(FirstWriteFails::default()),
        ..ApiServerOptions::new(clock.clone(), 1)
    });
    let admin = server.client();

    let role: ClusterRole = serde_json::from_value(json!({
        "metadata": {"name": "notes-keys"},
        "rules": [{
            "apiGroups": [""],
            "resources": ["configmaps"],
            "verbs": ["list", "watch", "patch"],
        }],
    }))?;
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "notes-keys"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "notes-keys",
        },
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "notes-keys"}],
    }))?;
    let params = PostParams::default();
    Api::all(admin.clone()).create(&params, &role).await?;
    Api::all(admin.clone()).create(&params, &binding).await?;
    let user = "system:serviceaccount:default:notes-keys";
    tokio::spawn(run(server.client_as(user, &[])));

    let maps: Api<ConfigMap> = Api::default_namespaced(admin);
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "settings"},
        "data": {"colour": "blue", "size": "9"},
    }))?;
    maps.create(&params, &map).await?;
    let noted =
        |map: Option<&ConfigMap>| map.is_some_and(|map| map.annotations().contains_key(KEYS));
    let map = await_condition(maps, "settings", noted).await?;

    let map = map.unwrap_or_default();
    println!(
        "{}: settings has {} keys",
        clock.now(),
        map.annotations()[KEYS]
    );
    for (key, count) in server.requests() {
        println!(
            "{count:3} {} {} by {}",
            key.verb, key.resource, key.user_agent
        );
    }
    Ok(())
}
