//! A pool of ARC is taken over and goes on, and nothing is left of it in the end. The controller has the
//! rights of ARC's chart, and no others.

use std::time::Duration;

use impresario::api::{EphemeralRunner, EphemeralRunnerSet};
use kube::ResourceExt;
use serde_json::json;

use crate::recorded::{MASTER, NAMESPACE, POOL, RELEASE, Recorded};
use crate::stage::{Stage, play, play_live};
use real_kube::envtest;

#[test]
fn the_pool_of_the_release_goes_on_and_its_old_set_goes() {
    play(async || {
        if let Some(found) = embedded(RELEASE).await {
            drain(&found).await;
            uninstall(&found).await;
        }
    });
}

#[test]
fn the_pool_of_the_release_is_taken_over_on_a_real_api_server() {
    play_live(async || {
        let Some(env) = envtest::start().await else {
            return;
        };
        env.install(impresario::api::crds()).await;
        let controller =
            env.impersonating()("system:serviceaccount:arc-systems:impresario-controller");
        let stage = Stage::real(env.client.clone(), controller);
        if let Some(found) = Recorded::on(stage, RELEASE).await {
            drain(&found).await;
            uninstall(&found).await;
        }
    });
}

#[test]
fn the_pool_of_master_goes_on() {
    play(async || {
        let Some(found) = embedded(MASTER).await else {
            return;
        };
        found.take_over().await;
        assert!(found.busy_goes_on().await);
        // nothing about the runners has changed, so the idle ones stay as well
        for name in &found.idle {
            let runner: Option<EphemeralRunner> = found.stage.get(NAMESPACE, name).await;
            assert!(runner.is_some(), "{name}");
        }
        assert_eq!(sets(&found.stage).await, [POOL]);
        found.stage.assert_at_rest().await;
        found.end_job().await;
        uninstall(&found).await;
    });
}

#[test]
fn a_pool_that_is_uninstalled_while_a_job_runs_goes_when_it_has_ended() {
    play(async || {
        for file in [RELEASE, MASTER] {
            let Some(found) = embedded(file).await else {
                return;
            };
            found.take_over().await;
            found.uninstall().await;
            found.stage.pass(Duration::from_secs(3600)).await;
            assert!(found.busy_goes_on().await, "{file}");
            found.end_job().await;
            found.until_gone().await;
        }
    });
}

/// One that the controller meets only after somebody has uninstalled it.
#[test]
fn a_pool_that_was_uninstalled_before_goes_too() {
    play(async || {
        for file in [RELEASE, MASTER] {
            let Some(found) = embedded(file).await else {
                return;
            };
            found.uninstall().await;
            found.stage.start_controller();
            found.stage.pass(Duration::from_secs(600)).await;
            assert!(found.busy_goes_on().await, "{file}");
            found.end_job().await;
            found.until_gone().await;
        }
    });
}

async fn embedded(file: &str) -> Option<Recorded> {
    let stage = Stage::embedded(7, false, true).await;
    Recorded::on(stage, file).await
}

/// Names of the runner sets.
async fn sets(stage: &Stage) -> Vec<String> {
    let all = stage.all::<EphemeralRunnerSet>().await;
    all.iter().map(ResourceExt::name_any).collect()
}

/// The idle runners are replaced by and by, the busy one ends its job, and the old set goes.
async fn drain(found: &Recorded) {
    let stage = &found.stage;
    found.take_over().await;
    stage
        .until("the idle ones are gone", async || {
            let runners = stage.runners().await;
            let names: Vec<String> = runners.iter().map(ResourceExt::name_any).collect();
            names == [found.busy.clone()]
        })
        .await;
    assert!(found.busy_goes_on().await);
    assert_eq!(sets(stage).await, [POOL, "pool-smfjw"]);
    let counts = stage.scale_set().await.status.unwrap_or_default();
    assert_eq!(counts.current_runners, Some(1), "{}", stage.picture().await);
    stage.assert_at_rest().await;
    assert!(found.busy_goes_on().await);

    found.end_job().await;
    for patch_id in [1, 2] {
        // the listener: first one that may still count the job, then one that does not
        let spec = json!({"spec": {"replicas": 0, "patchID": patch_id}});
        stage
            .patch::<EphemeralRunnerSet>(NAMESPACE, POOL, spec)
            .await;
        stage.settle().await;
    }
    stage
        .until("the old set is gone", async || sets(stage).await == [POOL])
        .await;
    assert!(stage.runners().await.is_empty());
}

async fn uninstall(found: &Recorded) {
    found.uninstall().await;
    found.until_gone().await;
}
