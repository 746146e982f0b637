//! How many runners there are, and who goes when there are too many. The test plays listener
//! and kubelet.

use std::collections::BTreeSet;
use std::time::Duration;

use embedded_actions::Fault;
use impresario::api::EphemeralRunner;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::stage::manifests::RUN;
use crate::stage::{Stage, play};

const MOMENT: Duration = Duration::from_secs(5);

/// SCN-19.
#[test]
fn the_warm_minimum_refills_and_shrinks() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(2, 10).await;
        let names = stage.scale_up(2, 0).await;
        for name in &names {
            stage.up(name).await;
        }
        stage.settle().await;

        // 1. one ends, and another takes its place without a new patch
        stage.exit(&names[0], 0).await;
        stage
            .within(MOMENT, "another takes its place", async || {
                let live = stage.live().await;
                live.len() == 2 && live.iter().all(|runner| runner.name_any() != names[0])
            })
            .await;
        stage.settle().await;
        assert_eq!(stage.warden.created("ephemeralrunners"), 3);
        let spec = stage.runner_set().await.spec;
        assert_eq!((spec.replicas, spec.patch_id), (Some(2), 0));

        // 2. nobody is wanted: both are removed from the service, then deleted
        let live = stage.live().await;
        let ids = live.iter().map(|runner| {
            let name = runner.name_any();
            let id = stage.registration(&name);
            (name, id)
        });
        let ids: Vec<(String, i64)> = ids.collect();
        stage.ersset(0, 0).await;
        stage
            .until("all are gone", async || stage.runners().await.is_empty())
            .await;
        for (name, id) in &ids {
            assert_eq!(stage.warden.removals_of(name, *id), (1, 1), "{name}");
        }
        // and so is the one that exited without a job
        assert_eq!(stage.warden.removals().len(), 3);
        stage.assert_sound();
    });
}

/// SCN-20.
#[test]
fn scale_down_takes_the_idle_and_asks_the_service_first() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 10).await;
        // five, of which the registration of the fifth takes its time
        let faults = stage.actions.faults();
        for _ in 0..4 {
            faults.pass("generate_jit_config");
        }
        let slow = Fault::delay(Duration::from_secs(50));
        faults.next("generate_jit_config", slow);
        stage.ersset(5, 1).await;
        stage
            .until("four have pods", async || {
                stage.runner_pods().await.len() == 4
            })
            .await;
        let mut with_pod: Vec<String> = Vec::new();
        let mut without: Vec<String> = Vec::new();
        let pods = stage.runner_pods().await;
        for runner in stage.live().await {
            let name = runner.name_any();
            let has_pod = pods.iter().any(|pod| pod.name_any() == name);
            if has_pod { &mut with_pod } else { &mut without }.push(name);
        }
        let fifth = without.remove(0);
        let [busy, too, older, younger] = <[String; 4]>::try_from(with_pod).unwrap();
        for name in [&busy, &too, &older, &younger] {
            stage.up(name).await;
        }
        stage.busy(&busy, 1).await;
        stage.busy(&too, 2).await;
        stage.settle().await;
        let untouched = async |stage: &Stage| {
            let mut versions = Vec::new();
            for name in [&busy, &too] {
                let runner: EphemeralRunner = stage.get(RUN, name).await.unwrap();
                versions.push(runner.resource_version());
            }
            versions
        };
        let before = untouched(&stage).await;
        // the service has given the older one a job, of which nothing has been heard
        let (of_older, of_younger) = (stage.registration(&older), stage.registration(&younger));
        stage.warden.refuses_to_remove(of_older);

        // 1. one is wanted
        stage.ersset(1, 0).await;
        stage
            .until("the younger is gone", async || {
                !stage.is_live(&younger).await
            })
            .await;
        stage.pass(Duration::from_secs(20)).await;
        for kept in [&busy, &too, &older, &fifth] {
            assert!(
                stage.is_live(kept).await,
                "{kept}\n{}",
                stage.picture().await
            );
        }
        assert_eq!(stage.warden.count("delete", "ephemeralrunners"), 1);
        let asked: BTreeSet<i64> = stage.warden.removals().into_iter().collect();
        assert_eq!(asked, BTreeSet::from([of_older, of_younger]));

        // 2. the job of the older one has ended, and the fifth gets its registration
        stage.warden.lets_remove(of_older);
        stage
            .until("the fifth is registered", async || {
                let known = stage.actions.runners();
                known.iter().any(|one| one.name == fifth) || !stage.is_live(&fifth).await
            })
            .await;
        stage
            .within(Duration::from_secs(300), "the others go too", async || {
                !stage.is_live(&older).await && !stage.is_live(&fifth).await
            })
            .await;
        stage
            .until("nobody else is known to the service", async || {
                stage.actions.runners().len() == 2
            })
            .await;
        stage.settle().await;
        assert_eq!(untouched(&stage).await, before);
        stage.assert_sound();
    });
}

/// SCN-21.
#[test]
fn a_slow_starter_is_neither_killed_nor_doubled() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 10).await;
        let slow = stage.scale_up(1, 1).await.remove(0);
        let pod: Pod = stage.get(RUN, &slow).await.unwrap();
        assert_eq!(pod.spec.clone().unwrap_or_default().node_name, None);

        // 1. it is not wanted for a while
        stage.ersset(0, 2).await;
        stage.pass(Duration::from_secs(30)).await;
        assert!(stage.is_live(&slow).await);
        let still: Pod = stage.get(RUN, &slow).await.unwrap();
        assert_eq!(still.uid(), pod.uid());
        assert_eq!(still.metadata.deletion_timestamp, None);
        assert_eq!(stage.service()["remove_runner"], 0);

        // 2. it is wanted again
        stage.ersset(1, 3).await;
        stage.settle().await;
        assert_eq!(stage.warden.created("ephemeralrunners"), 1);

        // 3. it starts after all, does its job, and goes
        stage.up(&slow).await;
        stage.busy(&slow, 9).await;
        stage.exit(&slow, 0).await;
        stage.settle().await;
        stage.ersset(0, 4).await;
        stage
            .until("it is gone", async || stage.runners().await.is_empty())
            .await;
        stage.assert_sound();
    });
}

#[test]
fn two_hundred_are_made_at_once_and_each_only_once() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 300).await;
        let latency = Fault::delay(Duration::from_millis(100));
        stage
            .actions
            .faults()
            .always("generate_jit_config", latency);
        stage.scale_up(200, 1).await;
        assert_eq!(stage.service()["generate_jit_config"], 200);
        assert_eq!(stage.warden.count("create", "ephemeralrunners"), 200);
        assert_eq!(
            stage.warden.count("create", "pods"),
            201,
            "and the listener's"
        );
        stage.assert_sound();
    });
}
