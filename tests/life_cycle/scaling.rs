//! How many runners there are, and who goes when there are too many. The test plays listener
//! and kubelet.

use std::time::Duration;

use impresario::simulation::actions_service::Fault;
use kube::ResourceExt;

use crate::stage::{Stage, play};

const MOMENT: Duration = Duration::from_secs(5);

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
        stage.exit(&names[0], 0).await;
        stage
            .within(MOMENT, "another takes its place", async || {
                let live = stage.live().await;
                live.len() == 2 && live.iter().all(|runner| runner.name_any() != names[0])
            })
            .await;
        stage.settle().await;
        let mut ids: Vec<i64> = stage
            .actions
            .runners()
            .iter()
            .map(|runner| runner.id)
            .collect();
        stage.ersset(0, 0).await;
        stage
            .until("all are gone", async || stage.runners().await.is_empty())
            .await;
        let mut removed = stage.warden.removals();
        ids.sort_unstable();
        removed.sort_unstable();
        assert_eq!(removed, ids);
        stage.assert_sound();
    });
}

#[test]
fn scale_down_takes_the_idle_and_asks_the_service_first() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 10).await;
        let four = stage.scale_up(4, 1).await;
        for name in &four {
            stage.up(name).await;
        }
        let [busy, too, older, younger] = <[String; 4]>::try_from(four).unwrap();
        stage.busy(&busy, 1).await;
        stage.busy(&too, 2).await;
        // a fifth, whose registration takes its time
        let slow = Fault::delay(Duration::from_secs(50));
        stage.actions.faults().next("generate_jit_config", slow);
        stage.ersset(5, 2).await;
        stage
            .until("five", async || stage.live().await.len() == 5)
            .await;
        let fifth = stage
            .live()
            .await
            .into_iter()
            .map(|runner| runner.name_any());
        let known = [&busy, &too, &older, &younger];
        let fifth = fifth
            .into_iter()
            .find(|name| !known.contains(&name))
            .unwrap();
        // the service has given the older one a job, of which nothing has been heard
        let (of_older, of_younger) = (stage.registration(&older), stage.registration(&younger));
        stage.warden.refuses_to_remove(of_older);

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
        let mut asked = stage.warden.removals();
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(asked, [of_older, of_younger]);

        stage.warden.lets_remove(of_older);
        stage
            .within(Duration::from_secs(300), "the others go too", async || {
                !stage.is_live(&older).await && !stage.is_live(&fifth).await
            })
            .await;
        assert!(stage.is_live(&busy).await && stage.is_live(&too).await);
        stage.assert_sound();
    });
}

#[test]
fn a_slow_starter_is_neither_killed_nor_doubled() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 10).await;
        let slow = stage.scale_up(1, 1).await.remove(0);
        stage.ersset(0, 2).await;
        stage.pass(Duration::from_secs(30)).await;
        assert!(stage.is_live(&slow).await);
        assert_eq!(stage.runner_pods().await.len(), 1);
        assert_eq!(stage.service()["remove_runner"], 0);
        stage.ersset(1, 3).await;
        stage.settle().await;
        assert_eq!(stage.warden.count("create", "ephemeralrunners"), 1);

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
