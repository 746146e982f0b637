//! One life cycle with the test as kubelet and listener. It is the same on the embedded API
//! server and on a real one, which keeps the embedded one honest.

use k8s_openapi::api::core::v1::{Pod, Secret};

use crate::stage::manifests::{RUN, binding, namespace, rights};
use crate::stage::{Stage, play, play_live};
use real_kube::envtest;

#[test]
fn a_life_cycle_on_the_embedded_api_server() {
    play(async || {
        let stage = Stage::by_hand().await;
        life_cycle(&stage).await;
        stage.assert_sound();
    });
}

#[test]
fn the_same_life_cycle_on_a_real_api_server() {
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
        stage.start_controller();
        life_cycle(&stage).await;
        stage.assert_sound();
    });
}

async fn life_cycle(stage: &Stage) {
    stage.settled_fixture(0, 10).await;
    assert!(stage.runners().await.is_empty());
    assert_eq!(stage.actions.scale_sets().len(), 1);

    // three are asked for, and get a Secret and a pod each
    let names = stage.scale_up(3, 1).await;
    for name in &names {
        assert!(
            stage.get::<Secret>(RUN, name).await.is_some(),
            "{name} has no Secret"
        );
        stage.up(name).await;
    }
    stage
        .until("all are ready", async || all_ready(stage).await)
        .await;
    stage
        .until("they are counted", async || {
            let status = stage.scale_set().await.status.unwrap_or_default();
            status.current_runners == Some(3)
        })
        .await;
    let known: Vec<String> = stage
        .actions
        .runners()
        .into_iter()
        .map(|runner| runner.name)
        .collect();
    assert_eq!(known.len(), 3, "{known:?}");

    // two get jobs; the listener asks for less, which takes nobody away
    let [first, second, third] = <[String; 3]>::try_from(names).unwrap();
    stage.busy(&first, 41).await;
    stage.busy(&second, 42).await;
    stage.ersset(2, 2).await;
    stage.settle().await;
    assert_eq!(stage.live().await.len(), 3);

    // both end: pod and Secret go at once, and the runner when it has been counted
    for (runner, wanted, patch) in [(&first, 1, 3), (&second, 0, 4)] {
        stage.exit(runner, 0).await;
        stage
            .until("its parts are gone", async || {
                !has_parts(stage, runner).await
            })
            .await;
        stage.ersset(wanted, patch).await;
        stage
            .until("it is gone", async || !stage.is_live(runner).await)
            .await;
    }

    // nothing is wanted any more: only without a patch id the idle one is removed
    stage.settle().await;
    assert!(stage.is_live(&third).await);
    let id = stage.registration(&third);
    stage.ersset(0, 0).await;
    stage
        .until("nobody is left", async || stage.runners().await.is_empty())
        .await;
    assert_eq!(stage.warden.removals(), [id]);
    assert!(stage.actions.runners().is_empty());
    stage
        .until("that is counted", async || {
            let status = stage.scale_set().await.status.unwrap_or_default();
            status.current_runners == Some(0)
        })
        .await;
    stage.settle().await;

    stage.delete_scale_set().await;
    assert_eq!(stage.service()["delete_scale_set"], 1);
    assert_eq!(stage.service()["create_scale_set"], 1);
    assert_eq!(stage.service()["generate_jit_config"], 3);
}

async fn all_ready(stage: &Stage) -> bool {
    let runners = stage.live().await;
    runners
        .iter()
        .all(|runner| runner.status.as_ref().is_some_and(|status| status.ready))
}

async fn has_parts(stage: &Stage, runner: &str) -> bool {
    stage.get::<Pod>(RUN, runner).await.is_some()
        || stage.get::<Secret>(RUN, runner).await.is_some()
}
