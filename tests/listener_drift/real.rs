//! The same decisions against a real API server, with its own defaults. There is no kubelet: the
//! test starts the pods, and those that are asked to end are gone at once. Nor is there a
//! webhook: what admission would have injected is put into a pod by hand.

use impresario::api::{AutoscalingListener, EphemeralRunnerSet};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde_json::json;

use crate::changes::{self, documents};
use crate::stage::manifests::{RUN, SET, binding, namespace, rights};
use crate::stage::{Stage, play_live};
use crate::unmoved::{injected, mark, move_pod, respelled, templates};
use crate::watched::{Watched, name, pod};
use real_kube::envtest;

#[test]
fn each_drift_makes_the_pod_again_once() {
    on_a_real_server(async |stage| {
        let watched = Watched::at_rest(stage, &documents()).await;
        watched.replaces("image", 1, changes::image).await;
        watched.replaces("variable", 1, changes::variable).await;
        watched.replaces("a port more", 1, changes::port_more).await;
        watched.replaces("a port less", 1, changes::port_less).await;
        watched
            .replaces("no metrics", 1, changes::metrics_off)
            .await;
        watched.replaces("metrics", 1, changes::metrics_on).await;
        watched
            .replaces("certificate", 1, changes::certificate)
            .await;
        watched
            .replaces("metrics", 1, changes::metrics_config)
            .await;
        watched.replaces("minimum", 1, changes::minimum).await;
        watched.replaces("maximum", 1, changes::maximum).await;
        watched.replaces("no mark", 1, changes::mark_removed).await;
        watched.replaces("token", 1, changes::token).await;
        watched
            .replaces("older", 1, changes::older_controller)
            .await;
        watched.replaces("URL", 1, changes::config_url).await;
    });
}

#[test]
fn a_pod_of_an_older_controller_that_did_not_see_the_last_change() {
    on_a_real_server(async |stage| {
        let watched = Watched::at_rest(stage, &documents()).await;
        let change = changes::older_controller_and_token;
        watched.replaces("older", 1, change).await;
    });
}

#[test]
fn what_is_no_drift_leaves_the_pod_alone() {
    on_a_real_server(async |stage| {
        let none = async |_: &Stage| {};
        let watched = Watched::at_rest(stage, &documents()).await;
        watched.replaces("the server's defaults", 0, none).await;
        for row in templates() {
            let what = row.what;
            let template = json!({"listenerTemplate": row.template});
            // a merge patch keeps what the last row had
            stage.edit(json!({"listenerTemplate": null})).await;
            watched.rest().await;
            stage.edit(template).await;
            watched.rest().await;
            let spec = pod(stage).await.spec.unwrap();
            if !what.contains("tolerations") {
                assert!((row.shows)(&spec), "{what}: {spec:#?}");
            }
            watched.replaces(what, 0, none).await;
        }
        let limits = json!({"limits": {"cpu": "1000m", "memory": "1Gi"}});
        let container = json!({"name": "listener", "resources": limits});
        let template = json!({"spec": {"containers": [container]}});
        stage.edit(json!({"listenerTemplate": template})).await;
        watched.rest().await;
        for change in [respelled, injected] {
            let remake = async |stage: &Stage| changes::made_otherwise(stage, change).await;
            watched.replaces("made by hand", 1, remake).await;
            watched.replaces("and then", 0, none).await;
        }
        watched.replaces("a condition", 0, move_pod).await;

        let name = name(stage).await;
        let control = CONTROLLER_NAMESPACE;
        mark::<AutoscalingListener>(stage, control, &name).await;
        mark::<ServiceAccount>(stage, control, &name).await;
        mark::<Pod>(stage, control, &name).await;
        mark::<Secret>(stage, control, &format!("{name}-config")).await;
        mark::<Role>(stage, RUN, &name).await;
        mark::<RoleBinding>(stage, RUN, &name).await;
        mark::<EphemeralRunnerSet>(stage, RUN, SET).await;
        watched.replaces("foreign metadata", 0, none).await;
    });
}

/// Plays a test with a control plane of its own, where there is one to be had.
fn on_a_real_server(test: impl AsyncFnOnce(&Stage)) {
    play_live(async || {
        let Some(env) = envtest::start().await else {
            return;
        };
        env.install(impresario::api::crds()).await;
        let controller =
            env.impersonating()("system:serviceaccount:arc-systems:impresario-controller");
        let stage = Stage::real(env.client.clone(), controller);
        stage.apply(&rights()).await;
        stage.apply(&[namespace(RUN), binding(RUN)]).await;
        stage.restart_with(|settings| settings.listener_metrics_addr = ":8080".to_owned());
        test(&stage).await;
        stage.assert_sound();
    });
}
