//! What a new leader asks of the API server, counted: it does not grow with the runners that its
//! first lists show.

use std::collections::BTreeMap;
use std::time::Duration;

use impresario::api::{EphemeralRunner, EphemeralRunnerPhase};
use impresario::clock::Clock;
use impresario::simulation::cluster::{Cluster, ClusterOptions, RunningController};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::stage::manifests::fixture;
use crate::stage::play;

/// Requests of the controller so far, by verb and resource.
type Requests = BTreeMap<(&'static str, String), u64>;

fn requests(cluster: &Cluster) -> Requests {
    let all = cluster.api.requests().into_iter();
    let ours = all.filter(|(key, _)| key.user_agent.ends_with("impresario-controller"));
    let mut requests = Requests::new();
    for (key, count) in ours {
        *requests.entry((key.verb, key.resource)).or_default() += count;
    }
    requests
}

/// Waits until the controller has asked nothing for a while but what it asks every minute.
async fn settle(cluster: &Cluster) {
    let writes = || {
        let requests = requests(cluster).into_iter();
        let writes = requests.filter(|((verb, _), _)| !matches!(*verb, "get" | "list" | "watch"));
        writes.map(|(_, count)| count).sum::<u64>()
    };
    loop {
        let before = writes();
        tokio::time::sleep(Duration::from_secs(20)).await;
        if writes() == before {
            return;
        }
    }
}

async fn pool(size: usize) -> (Cluster, RunningController) {
    let clock = Clock::simulated("2026-03-04T05:06:07Z".parse().unwrap());
    let cluster = Cluster::start(ClusterOptions::new(clock, 7)).await.unwrap();
    let controller = cluster.start_controller();
    let count = i64::try_from(size).unwrap();
    for object in fixture(count, count) {
        cluster.apply(&object).await.unwrap();
    }
    let ready = || {
        let runners = cluster.api.list_as::<EphemeralRunner>(None).into_iter();
        let statuses = runners.filter_map(|runner| runner.status);
        statuses.filter(|status| status.ready).count()
    };
    while ready() < size {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    settle(&cluster).await;
    (cluster, controller)
}

/// What the controller that takes over asks until it is at rest.
async fn take_over(cluster: &Cluster, before: RunningController) -> Requests {
    drop(before);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = requests(cluster);
    let controller = cluster.start_controller();
    while !controller.is_ready() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    settle(cluster).await;
    let mut asked = requests(cluster);
    for (key, count) in before {
        if let Some(after) = asked.get_mut(&key) {
            *after -= count;
        }
    }
    asked.retain(|_, count| *count > 0);
    asked
}

fn total(requests: &Requests) -> u64 {
    requests.values().sum()
}

#[test]
fn a_new_leader_asks_for_no_runner_that_its_lists_show() {
    let of_size = |size| {
        play(async || {
            let (cluster, controller) = pool(size).await;
            let pods = cluster.api.list_as::<Pod>(None).len();
            assert!(pods > size, "with the listener's");
            let asked = take_over(&cluster, controller).await;
            assert_eq!(cluster.api.list_as::<Pod>(None).len(), pods);
            asked
        })
    };
    let (few, many) = (of_size(3), of_size(60));
    assert_eq!(few, many, "it grows with the runners");
    assert!(total(&many) < 60, "{many:#?}");
}

/// Those that the dead controller had left on the way are read, and no others.
#[test]
fn a_new_leader_reads_what_the_old_one_had_not_finished() {
    play(async || {
        let clock = Clock::simulated("2026-03-04T05:06:07Z".parse().unwrap());
        let cluster = Cluster::start(ClusterOptions::new(clock, 7)).await.unwrap();
        let controller = cluster.start_controller();
        for object in fixture(40, 40) {
            cluster.apply(&object).await.unwrap();
        }
        let listed = || cluster.api.list_as::<EphemeralRunner>(None);
        while listed().len() < 40 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let asked = take_over(&cluster, controller).await;
        let ready = |runner: &EphemeralRunner| {
            let status = runner.status.as_ref();
            status.is_some_and(|status| {
                status.ready && status.phase == Some(EphemeralRunnerPhase::Pending)
            })
        };
        let runners = listed();
        assert_eq!(runners.len(), 40);
        for runner in &runners {
            assert!(ready(runner), "{}: {:?}", runner.name_any(), runner.status);
        }
        let reads = asked.get(&("get", "pods".to_owned())).copied();
        assert!(reads.unwrap_or_default() <= 10, "{asked:#?}");
    });
}

/// The figures. Not a test of ours: it takes minutes.
#[test]
#[ignore = "takes minutes; prints figures"]
fn figures_of_take_over() {
    for size in [1_000, 5_000] {
        play(async || {
            let (cluster, controller) = pool(size).await;
            let asked = take_over(&cluster, controller).await;
            println!("{size} runners: {} requests: {asked:?}", total(&asked));
        });
    }
}
