//! The rights that ARC's charts give a controller suffice, with ARC's own CustomResourceDefinitions:
//! those of all namespaces, and those of a single one.

use std::time::Duration;

use impresario::api::EphemeralRunner;
use impresario::clock::Clock;
use impresario::kube_io::{Candidate, Fence};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, TypeMeta};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::permissions::{delete_namespace, until_namespace_is_gone};
use crate::recorded::{bind_to_ours, give_rights};
use crate::stage::manifests::{RUN, SET, TOKEN, apply, fixture, namespace, older_crds, rendered};
use crate::stage::{Stage, play, play_live};
use real_kube::envtest;

/// The controller's chart at its defaults, and for one namespace only.
const CHARTS: [(&str, Option<&str>); 2] = [
    ("rendered/controller-0.14.2-defaults.yaml", None),
    (
        "rendered/controller-0.14.2-single-namespace.yaml",
        Some(RUN),
    ),
];

/// The pool's chart, and the name that it was rendered with.
const POOLS: [(&str, &str); 3] = [
    ("scale-set-default.yaml", "my-set"),
    ("scale-set-kubernetes-mode.yaml", "gpu-large"),
    ("scale-set-dind-ghes-proxy.yaml", "ghes-set"),
];

/// What those rights do not have, and what is done without: the events of a pool.
const DONE_WITHOUT: &str = "request create events run/ -> 403";

/// What two charts render, with the names of the tests.
struct Release {
    controller: Vec<Value>,
    pool: Vec<Value>,
    watched: Option<&'static str>,
}

impl Release {
    fn of(chart: (&str, Option<&'static str>), pool: (&str, &str)) -> Option<Self> {
        let mut pool = renamed(rendered(pool.0)?, pool.1);
        for document in &mut pool {
            if document["kind"] == "Secret" {
                // the key of a GitHub App that it holds may be none
                document["data"] = json!({});
                document["stringData"] = json!({ "github_token": TOKEN });
            }
            if document["kind"] == "AutoscalingRunnerSet" {
                document["spec"]["minRunners"] = json!(1);
            }
        }
        Some(Self {
            controller: renamed(rendered(chart.0)?, SET),
            pool,
            watched: chart.1,
        })
    }

    /// Installs both, and starts the controller.
    async fn install(&self, stage: &Stage) {
        stage.actions.add_runner_group("gpu");
        stage.apply(&[namespace(RUN)]).await;
        stage.apply(&users_own()).await;
        give_rights(stage, self.controller.clone()).await;
        for document in &self.pool {
            let mut document = document.clone();
            bind_to_ours(&mut document);
            apply(&stage.client, &document).await;
        }
        stage.watch_only(self.watched);
        stage.start_controller();
    }

    /// Deletes what the pool's chart has rendered, as `helm uninstall` does, and waits until it is
    /// gone.
    async fn uninstall(&self, stage: &Stage, order: Order) {
        let mut documents: Vec<&Value> = self.pool.iter().collect();
        if order == Order::ScaleSetFirst {
            documents.reverse();
        }
        for document in documents {
            delete(stage, document).await;
        }
        let patience = Duration::from_secs(300);
        stage
            .within(patience, "nothing is left", async || {
                let mut left = stage.leftovers().await;
                // the controller's own
                left.retain(|name| !name.contains("arc-gha-rs-controller"));
                for document in &self.pool {
                    left.extend(get(stage, document).await.map(|object| object.name_any()));
                }
                left.is_empty()
            })
            .await;
    }
}

/// What the pools' charts expect to be there.
fn users_own() -> Vec<Value> {
    let secret = |name: &str, data: Value| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": RUN},
            "stringData": data,
        })
    };
    let authority = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
    vec![
        secret("pre-defined", json!({ "github_token": TOKEN })),
        secret(
            "proxy-auth",
            json!({"username": "mara", "password": "hush"}),
        ),
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "ca", "namespace": RUN},
            "data": {"ca.crt": authority},
        }),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    ScaleSetFirst,
    ScaleSetLast,
}

fn renamed(documents: Vec<Value>, name: &str) -> Vec<Value> {
    let text = Value::from(documents).to_string();
    let text = text.replace("\"arc-runners\"", &format!("\"{RUN}\""));
    serde_json::from_str(&text.replace(name, SET)).unwrap()
}

fn api_of(stage: &Stage, document: &Value) -> (Api<DynamicObject>, String) {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str);
    let types = TypeMeta {
        api_version: text("/apiVersion").unwrap().to_owned(),
        kind: text("/kind").unwrap().to_owned(),
    };
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types).unwrap());
    let api = match text("/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(stage.client.clone(), namespace, &resource),
        None => Api::all_with(stage.client.clone(), &resource),
    };
    (api, text("/metadata/name").unwrap().to_owned())
}

async fn get(stage: &Stage, document: &Value) -> Option<DynamicObject> {
    let (api, name) = api_of(stage, document);
    api.get_opt(&name).await.unwrap()
}

async fn delete(stage: &Stage, document: &Value) {
    let (api, name) = api_of(stage, document);
    match api.delete(&name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        answer => drop(answer.unwrap()),
    }
}

/// Nothing was refused that is needed, to the controller or to a listener.
fn assert_enough(stage: &Stage, what: &str) {
    let mut refused = stage.requests();
    refused.retain(|[_, _, code], _| code == "403");
    assert!(refused.is_empty(), "{what}: {refused:?}");
    if !stage.is_real() {
        let mut log = stage.cluster().api.take_log();
        log.retain(|line| line.ends_with("-> 403") && !line.ends_with(DONE_WITHOUT));
        assert!(log.is_empty(), "{what}: {log:#?}");
    }
}

/// With the real listener, whose rights come from the Role that the controller makes.
#[test]
fn jobs_run_and_an_uninstall_ends() {
    let Some(crds) = older_crds() else { return };
    for chart in CHARTS {
        for pool in POOLS {
            for order in [Order::ScaleSetFirst, Order::ScaleSetLast] {
                let Some(release) = Release::of(chart, pool) else {
                    return;
                };
                play(async || whole(&release, order, crds.clone()).await);
            }
        }
    }
}

async fn whole(release: &Release, order: Order, crds: Vec<Value>) {
    let stage = Stage::embedded_with(41, |options| {
        options.keep_log = true;
        options.crds = Some(crds);
    })
    .await;
    release.install(&stage).await;
    stage.queue_jobs(5, SET, Duration::from_secs(20));
    stage
        .until("all jobs are done", async || stage.jobs_done() == 5)
        .await;
    another_image(&stage).await;
    // the listener polls for 50 s, and then says that nothing is to be done
    stage.pass(Duration::from_secs(120)).await;
    stage.assert_at_rest().await;
    release.uninstall(&stage, order).await;
    assert_enough(&stage, &format!("{:?} {order:?}", release.watched));
    stage.assert_sound();
}

/// It reaches the runner that waits.
async fn another_image(stage: &Stage) {
    stage.set_image("img:2").await;
    stage
        .until("the runner that waits has it", async || {
            let pods = stage.runner_pods().await;
            pods.iter().map(image).eq([Some("img:2".to_owned())])
        })
        .await;
}

fn image(pod: &Pod) -> Option<String> {
    let container = pod.spec.as_ref()?.containers.first()?;
    container.image.clone()
}

#[test]
fn the_same_on_a_real_api_server() {
    let Some(crds) = older_crds() else { return };
    play_live(async || {
        let Some(env) = envtest::start().await else {
            return;
        };
        let kinds = crds
            .into_iter()
            .map(|crd| serde_json::from_value(crd).unwrap());
        env.install(kinds.collect()).await;
        let user = "system:serviceaccount:arc-systems:impresario-controller";
        let stage = || Stage::real(env.client.clone(), env.impersonating()(user));
        for chart in CHARTS {
            println!("--- {}", chart.0);
            let Some(release) = Release::of(chart, POOLS[0]) else {
                return;
            };
            let stage = stage();
            release.install(&stage).await;
            by_hand(&stage).await;
            if chart.1.is_some() {
                take_lease(&stage, env.impersonating()(user)).await;
            }
            release.uninstall(&stage, Order::ScaleSetFirst).await;
            assert_enough(&stage, chart.0);
            stage.assert_sound();
            stage.clear().await;
            for document in &release.controller {
                delete(&stage, document).await;
            }
        }
        println!("--- a namespace that goes");
        let stage = stage();
        lose_binding_and_namespace(&stage).await;
        stage.clear().await;
    });
}

/// As that chart's controller does.
async fn take_lease(stage: &Stage, client: Client) {
    let fence = Fence::shut();
    let lease = "arc-gha-rs-controller";
    let (clock, own) = (Clock::system(), fence.clone());
    let mut candidate = Candidate::new(client, clock, CONTROLLER_NAMESPACE, lease, "me", own);
    candidate.acquire().await;
    assert!(fence.enter().is_some());
    candidate.release().await;
    let lease: Lease = stage.get(CONTROLLER_NAMESPACE, lease).await.unwrap();
    let holder = lease.spec.and_then(|spec| spec.holder_identity);
    assert_eq!(holder.unwrap_or_default(), "");
}

/// All of the pool, and what the chart protects, with the rights that are in the namespace itself.
#[test]
fn a_namespace_is_let_go() {
    let Some(crds) = older_crds() else { return };
    for pool in POOLS {
        let Some(release) = Release::of(CHARTS[0], pool) else {
            return;
        };
        play(async || {
            let stage = Stage::embedded_with(43, |options| {
                options.crds = Some(crds.clone());
            })
            .await;
            release.install(&stage).await;
            stage.queue_jobs(1, SET, Duration::from_secs(3600));
            stage
                .until("two runners", async || {
                    stage.runner_pods().await.len() == 2 && !stage.listener_pods().await.is_empty()
                })
                .await;
            stage.pass(Duration::from_secs(30)).await;
            delete_namespace(&stage).await;
            until_namespace_is_gone(&stage).await;
        });
    }
}

/// A pool that a person wrote, with the Role of the chart in its namespace. Its binding goes first;
/// then the ClusterRole alone has to do.
async fn lose_binding_and_namespace(stage: &Stage) {
    let Some(release) = Release::of(CHARTS[0], POOLS[0]) else {
        return;
    };
    stage.apply(&[namespace(RUN)]).await;
    give_rights(stage, release.controller.clone()).await;
    let manager = |document: &&Value| {
        let kind = document["kind"].as_str().unwrap();
        ["Role", "RoleBinding"].contains(&kind)
    };
    let manager: Vec<Value> = release.pool.iter().filter(manager).cloned().collect();
    for mut document in manager.iter().cloned() {
        bind_to_ours(&mut document);
        document["metadata"]["finalizers"] = json!([]);
        apply(&stage.client, &document).await;
    }
    for document in fixture(0, 4) {
        apply(&stage.client, &document).await;
    }
    stage.watch_only(None);
    stage.start_controller();
    until_listens(stage).await;
    let runners = stage.scale_up(2, 1).await;
    for runner in &runners {
        stage.up(runner).await;
    }
    stage.busy(&runners[0], 7).await;
    stage.settle().await;
    for document in &manager {
        if document["kind"] == "RoleBinding" {
            delete(stage, document).await;
        }
    }
    delete_namespace(stage).await;
    until_namespace_is_gone(stage).await;
}

#[test]
fn the_cluster_role_alone_suffices_to_let_a_namespace_go() {
    let Some(crds) = older_crds() else { return };
    play(async || {
        let stage = Stage::embedded_with(47, |options| {
            options.run_pods = false;
            options.crds = Some(crds);
        })
        .await;
        lose_binding_and_namespace(&stage).await;
    });
}

/// The test plays kubelet and listener: one runner gets a job and ends it, the other is replaced.
async fn by_hand(stage: &Stage) {
    until_listens(stage).await;
    let names = stage.scale_up(2, 1).await;
    for name in &names {
        stage.up(name).await;
    }
    let [busy, idle] = <[String; 2]>::try_from(names).unwrap();
    stage.busy(&busy, 41).await;
    stage.settle().await;
    stage.set_image("img:2").await;
    stage
        .until("the idle one is gone", async || !stage.is_live(&idle).await)
        .await;
    assert!(stage.is_live(&busy).await);
    stage.exit(&busy, 0).await;
    stage
        .until("its parts are gone", async || {
            stage.get::<Pod>(RUN, &busy).await.is_none()
                && stage.get::<Secret>(RUN, &busy).await.is_none()
        })
        .await;
    stage.ersset(1, 2).await;
    stage
        .until("one with the new image waits", async || {
            let runners = stage.live().await;
            let pods = stage.runner_pods().await;
            let waits = |runner: &EphemeralRunner| runner.name_any() != busy;
            runners.len() == 1
                && runners.iter().all(waits)
                && pods.iter().map(image).eq([Some("img:2".to_owned())])
        })
        .await;
    stage.settle().await;
}

async fn until_listens(stage: &Stage) {
    stage
        .until("a listener pod", async || {
            !stage.listener_pods().await.is_empty()
        })
        .await;
    stage.start_listener().await;
    stage
        .until("the scale set is settled", async || {
            stage.is_settled().await
        })
        .await;
}
