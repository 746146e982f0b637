//! Scenarios SCN-05, SCN-06 and SCN-08.

use std::sync::Arc;
use std::time::Duration;

use embedded_kube::faults::{EventFate, EventInfo, Interceptor, RequestFate, RequestInfo};
use impresario::api::{AutoscalingListener, AutoscalingRunnerSet, EphemeralRunnerSet};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use kube::ResourceExt;
use serde_json::json;

use crate::changes::{self, documents};
use crate::drifted::stage;
use crate::stage::manifests::{RUN, SET, fixture};
use crate::stage::{Stage, play};
use crate::unmoved::injected;
use crate::watched::{Watched, name, pod};

#[test]
fn scn_05_listener_drift_decisions() {
    play(async || {
        let stage = stage().await;
        let watched = Watched::at_rest(&stage, &documents()).await;
        let none = async |_: &Stage| {};
        watched.replaces("a: the server's defaults", 0, none).await;
        let inject = async |stage: &Stage| changes::made_otherwise(stage, injected).await;
        watched.replaces("b: made by hand, once", 1, inject).await;
        assert_eq!(pod(&stage).await.spec.unwrap().containers[0].name, "inj");
        watched.replaces("b: an injected container", 0, none).await;
        watched.replaces("c: image", 1, changes::image).await;
        watched
            .replaces("d: no metrics", 1, changes::metrics_off)
            .await;
        assert_eq!(ports(&stage).await, [9000]);
        watched.replaces("e: metrics", 1, changes::metrics_on).await;
        assert_eq!(ports(&stage).await, [8080, 9000]);
        watched.replaces("f: token", 1, changes::token).await;
        watched
            .replaces("g: no mark", 1, changes::mark_removed)
            .await;
        watched.replaces("g: and then", 0, none).await;
        watched
            .replaces("h: a toleration less", 1, changes::toleration_less)
            .await;
        let before = watched.made();
        let label = json!({"metadata": {"labels": {"team": "rockets"}}});
        stage.patch::<AutoscalingRunnerSet>(RUN, SET, label).await;
        watched.nudge(10).await;
        watched.pass_poll().await;
        assert!(watched.made() <= before + 1, "i: a label of the ARS");
        watched.replaces("i: and then", 0, none).await;
        assert_eq!(stage.warden.count("create", "ephemeralrunners"), 0);
        assert_eq!(stage.warden.count("delete", "ephemeralrunners"), 0);
        stage.assert_sound();
    });
}

async fn ports(stage: &Stage) -> Vec<i32> {
    let spec = pod(stage).await.spec.unwrap();
    let listener = spec.containers.iter().find(|one| one.name == "listener");
    let ports = listener.and_then(|listener| listener.ports.as_ref());
    ports
        .into_iter()
        .flatten()
        .map(|port| port.container_port)
        .collect()
}

#[test]
fn scn_06_missing_and_empty_collections_are_the_same() {
    play(async || {
        let stage = stage().await;
        let mut documents = fixture(0, 10);
        let spec = &mut documents[2]["spec"];
        spec["listenerTemplate"] = json!({
            "metadata": {"labels": {}},
            "spec": {
                "tolerations": [],
                "imagePullSecrets": [],
                "containers": [{"name": "listener", "env": []}],
            },
        });
        let pod = &mut spec["template"]["spec"];
        pod["tolerations"] = json!([]);
        pod["volumes"] = json!([]);
        pod["containers"][0]["env"] = json!([]);
        let watched = Watched::at_rest(&stage, &documents).await;
        let before = identity(&stage).await;
        watched.nudge(20).await;
        watched.pass_poll().await;
        assert_eq!(identity(&stage).await, before);
        for resource in ["autoscalinglisteners", "pods", "ephemeralrunnersets"] {
            assert_eq!(stage.warden.count("delete", resource), 0, "{resource}");
        }
        assert_eq!(watched.made(), 1);
        stage.assert_sound();
    });
}

/// Uids of listener and runner set, and the revision applied.
async fn identity(stage: &Stage) -> (Option<String>, Option<String>, Option<i64>) {
    let name = name(stage).await;
    let listener = stage
        .get::<AutoscalingListener>(CONTROLLER_NAMESPACE, &name)
        .await;
    let set = stage.runner_set().await;
    let status = set.status.clone().unwrap_or_default();
    (
        listener.and_then(|listener| listener.uid()),
        set.uid(),
        status.applied_actionable_revision,
    )
}

/// The controller sees runner sets three seconds late.
struct LateRunnerSets(Arc<dyn Interceptor>);

impl Interceptor for LateRunnerSets {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        self.0.request(request)
    }

    fn event(&self, event: &EventInfo<'_>) -> EventFate {
        if event.resource == "ephemeralrunnersets.actions.github.com"
            && event.user_agent.contains("impresario-controller")
        {
            EventFate::Delayed(Duration::from_secs(3))
        } else {
            self.0.event(event)
        }
    }
}

#[test]
fn scn_08_one_runner_set_and_a_valid_reference_to_it() {
    play(async || {
        let stage = Stage::embedded_with(52, |options| {
            let usual = options.interceptor.clone();
            options.interceptor = Arc::new(LateRunnerSets(usual));
        })
        .await;
        stage.start_controller();
        stage.apply(&fixture(0, 10)).await;
        for number in ["1", "2"] {
            let note = json!({"metadata": {"annotations": {"edit": number}}});
            stage.patch::<AutoscalingRunnerSet>(RUN, SET, note).await;
            stage.pass(Duration::from_millis(400)).await;
        }
        let watched = Watched::at_rest(&stage, &[]).await;
        assert_eq!(stage.warden.count("create", "ephemeralrunnersets"), 1);
        let sets = stage.all::<EphemeralRunnerSet>().await;
        assert_eq!(sets.len(), 1);
        assert_eq!(reference(&stage).await, sets[0].name_any());

        let before = watched.made();
        let name = name(&stage).await;
        let ghost = json!({"spec": {"ephemeralRunnerSetName": "ghost"}});
        stage
            .patch::<AutoscalingListener>(CONTROLLER_NAMESPACE, &name, ghost)
            .await;
        stage
            .until("the reference is valid again", async || {
                let found = stage
                    .get::<AutoscalingListener>(CONTROLLER_NAMESPACE, &name)
                    .await;
                let spec = found.map(|listener| listener.spec);
                spec.is_some_and(|spec| spec.ephemeral_runner_set_name == SET)
            })
            .await;
        watched.pass_poll().await;
        assert_eq!(reference(&stage).await, SET);
        assert!(watched.made() <= before + 1, "{}", watched.made() - before);
        let settled = stage.warden.writes_of_ours();
        watched.nudge(10).await;
        watched.pass_poll().await;
        assert_eq!(stage.warden.writes_of_ours(), settled);
        assert_eq!(stage.warden.count("create", "ephemeralrunnersets"), 1);
        stage.assert_sound();
    });
}

async fn reference(stage: &Stage) -> String {
    let listeners = stage.all::<AutoscalingListener>().await;
    assert_eq!(listeners.len(), 1);
    listeners[0].spec.ephemeral_runner_set_name.clone()
}
