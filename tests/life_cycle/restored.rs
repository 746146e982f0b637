//! The API server's store is restored from a backup while the controller runs: its
//! resourceVersions go back, some objects come back, and others are gone without a word.

use std::time::Duration;

use impresario::api::AutoscalingRunnerSet;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;

use crate::stage::manifests::{RUN, SET};
use crate::stage::{Stage, play};

/// What waits for nobody is done within this time.
const AT_ONCE: Duration = Duration::from_secs(5);
const JOB: Duration = Duration::from_secs(40);

/// Names of the runners that the service knows.
fn registered(stage: &Stage) -> Vec<String> {
    let runners = stage.actions.runners().into_iter();
    let mut names: Vec<String> = runners.map(|runner| runner.name).collect();
    names.sort();
    names
}

async fn alive(stage: &Stage) -> Vec<String> {
    let mut names: Vec<String> = stage
        .live()
        .await
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    names.sort();
    names
}

fn restorations(stage: &Stage) -> f64 {
    let kinds = [
        "AutoscalingRunnerSet",
        "EphemeralRunner",
        "EphemeralRunnerSet",
        "Pod",
    ];
    let others = [
        "AutoscalingListener",
        "ServiceAccount",
        "Role",
        "RoleBinding",
    ];
    let all = kinds.into_iter().chain(others);
    all.map(|kind| stage.counted("impresario_store_restorations_total", ("kind", kind)))
        .sum()
}

#[test]
fn work_goes_on_at_once_after_a_restore_and_it_is_told() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 10).await;
        let before = stage.scale_up(2, 1).await;
        let backup = stage.backup();
        let after = stage.scale_up(4, 2).await;
        assert_eq!(registered(&stage).len(), 4);

        stage.restore(&backup);
        stage.ersset(5, 3).await;
        stage
            .within(AT_ONCE, "five runners have pods", async || {
                stage.runner_pods().await.len() == 5
            })
            .await;
        stage.settle().await;
        let now = alive(&stage).await;
        assert!(before.iter().all(|name| now.contains(name)), "{now:?}");
        let lost = |name: &&String| !before.contains(name);
        for name in after.iter().filter(lost) {
            assert!(!now.contains(name), "{name} is not in the backup");
        }
        assert_eq!(registered(&stage), now, "no registration without a runner");

        assert!(
            (restorations(&stage) - 1.0).abs() < 0.5,
            "it is counted once"
        );
        let events: Vec<Event> = stage.cluster().api.list_as(Some(RUN));
        let told = events
            .iter()
            .filter(|event| event.reason.as_deref() == Some("StoreRestored"));
        let told: Vec<&Event> = told.collect();
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].involved_object.name.as_deref(), Some(SET));
        assert_eq!(told[0].type_.as_deref(), Some("Warning"));

        stage.assert_at_rest().await;
        stage.assert_nothing_left_over_beside_runners().await;
        stage.assert_sound();
        stage.delete_scale_set().await;
    });
}

#[test]
fn a_restore_is_noticed_also_when_the_versions_have_caught_up() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 10).await;
        stage.scale_up(1, 1).await;
        let backup = stage.backup();
        stage.scale_up(2, 2).await;
        let known = stage.cluster().api.revision();
        stage.restore(&backup);
        // somebody else writes, before a watch looks again
        let mut round = 0;
        while stage.cluster().api.revision() <= known {
            let note = serde_json::json!({"metadata": {"annotations": {"n": round.to_string()}}});
            let node = kube::Api::<k8s_openapi::api::core::v1::Node>::all(stage.client.clone());
            let patch = kube::api::Patch::Merge(note);
            let name = embedded_kube::kubelet::NODE;
            node.patch(name, &kube::api::PatchParams::default(), &patch)
                .await
                .unwrap();
            round += 1;
        }
        stage.ersset(3, 3).await;
        stage
            .within(AT_ONCE, "three runners have pods", async || {
                stage.runner_pods().await.len() == 3
            })
            .await;
        stage.settle().await;
        assert_eq!(registered(&stage), alive(&stage).await);
        stage.assert_sound();
    });
}

#[test]
fn a_scale_set_that_the_backup_does_not_have_is_let_go_and_made_again() {
    play(async || {
        let stage = Stage::by_hand().await;
        let backup = stage.backup();
        stage.settled_fixture(0, 10).await;
        let lost = stage.scale_up(2, 1).await;
        stage.restore(&backup);
        // nothing is there, and without credentials nothing can be done about the service
        stage.pass(Duration::from_secs(30)).await;
        assert_eq!(registered(&stage).len(), 2);
        stage.settled_fixture(0, 10).await;
        let now = stage.scale_up(3, 1).await;
        assert!(now.iter().all(|name| !lost.contains(name)), "{now:?}");
        stage
            .within(Duration::from_secs(300), "the lost are gone", async || {
                registered(&stage) == alive(&stage).await
            })
            .await;
        stage.assert_sound();
        stage.delete_scale_set().await;
    });
}

#[test]
fn listener_and_runners_that_run_by_themselves_outlive_a_restore() {
    for seed in [31, 32, 33] {
        play(async || {
            let stage = Stage::whole(seed).await;
            stage.settled_fixture(1, 6).await;
            stage.queue_jobs(3, SET, JOB);
            stage
                .until("all run", async || stage.live().await.len() == 4)
                .await;
            stage.pass(Duration::from_secs(5)).await;
            let backup = stage.backup();
            stage
                .until("they are done", async || stage.jobs_done() == 3)
                .await;
            stage.settle().await;
            stage.restore(&backup);
            stage.pass(Duration::from_secs(seed)).await;
            stage.queue_jobs(4, SET, JOB);
            stage
                .within(Duration::from_secs(300), "the new are done", async || {
                    stage.jobs_done() == 7
                })
                .await;
            stage
                .within(Duration::from_secs(300), "one is left", async || {
                    stage.runners().await.len() == 1 && registered(&stage).len() == 1
                })
                .await;
            stage.pass(Duration::from_secs(120)).await;
            stage.assert_at_rest().await;
            stage.assert_nothing_left_over_beside_runners().await;
            stage.delete::<AutoscalingRunnerSet>(RUN, SET).await;
            stage
                .until("everything is gone", async || {
                    stage.leftovers().await.is_empty()
                })
                .await;
        });
    }
}
