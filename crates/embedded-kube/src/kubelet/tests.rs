//! Pods on a server of their own, under paused time.

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::json;
use tokio::task::LocalSet;

use super::*;
use crate::{ApiServer, ApiServerOptions};

const FAULT: &str = "example.dev/fault";

/// Ends with this code after an hour.
struct EndsWith(i32);

impl Programs for EndsWith {
    fn run(&self, _: Arc<Pod>, _: Stop) -> LocalBoxFuture<'static, i32> {
        let code = self.0;
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            code
        })
    }
}

/// A cluster with one node, and pods of its default namespace.
async fn pods(programs: impl Programs + 'static) -> Api<Pod> {
    let clock = Clock::simulated("2026-02-03T04:05:06Z".parse().unwrap());
    let server = ApiServer::new(ApiServerOptions::new(clock.clone(), 3));
    let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}})).unwrap();
    let nodes = Api::all(server.client());
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let options = KubeletOptions {
        fault_annotation: Some(FAULT),
        ..KubeletOptions::default()
    };
    let kubelet = Kubelet::new(server.client(), clock, options, Rc::new(programs));
    tokio::task::spawn_local(kubelet.run());
    Api::default_namespaced(server.client())
}

async fn create(pods: &Api<Pod>, annotations: serde_json::Value) {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "i:1"}, {"name": "side", "image": "i:2"}]},
    }));
    let pod = pod.unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

async fn until_phase(pods: &Api<Pod>, phase: &str) -> Pod {
    let is = |pod: Option<&Pod>| {
        let status = pod.and_then(|pod| pod.status.as_ref());
        status.is_some_and(|status| status.phase.as_deref() == Some(phase))
    };
    await_condition(pods.clone(), "p", is)
        .await
        .unwrap()
        .unwrap()
}

fn exit_codes(pod: &Pod) -> Vec<Option<i32>> {
    let statuses = pod.status.iter().flat_map(|s| &s.container_statuses);
    let states = statuses.flatten().map(|container| container.state.as_ref());
    let ended = states.map(|state| Some(state?.terminated.as_ref()?.exit_code));
    ended.collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_runs_until_it_is_deleted_and_then_is_gone() {
    let test = async {
        let pods = pods(Servers).await;
        create(&pods, json!({})).await;
        let pod = until_phase(&pods, "Running").await;
        assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some(NODE));
        pods.delete("p", &DeleteParams::default()).await.unwrap();
        let gone = |pod: Option<&Pod>| pod.is_none();
        await_condition(pods, "p", gone).await.unwrap();
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn the_main_containers_exit_code_decides_how_its_pod_ends() {
    for (code, phase) in [(0, "Succeeded"), (7, "Failed")] {
        let test = async {
            let pods = pods(EndsWith(code)).await;
            create(&pods, json!({})).await;
            let pod = until_phase(&pods, phase).await;
            assert_eq!(exit_codes(&pod), [Some(code), Some(0)]);
        };
        LocalSet::new().run_until(test).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_the_fault_it_asks_for_and_one_that_nobody_knows_is_ignored() {
    let test = async {
        let pods = pods(Servers).await;
        create(&pods, json!({FAULT: "exit=9"})).await;
        let pod = until_phase(&pods, "Failed").await;
        assert_eq!(exit_codes(&pod), [Some(9), Some(0)]);
    };
    LocalSet::new().run_until(test).await;
    let test = async {
        let pods = pods(Servers).await;
        create(&pods, json!({FAULT: "explode"})).await;
        until_phase(&pods, "Running").await;
    };
    LocalSet::new().run_until(test).await;
}
