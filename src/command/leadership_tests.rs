//! Processes that write all the time, seen from the API server: whoever writes holds the lease,
//! however late the answers are, and however the process before has ended.

use std::sync::{Arc, Mutex};

use clap::Parser as _;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;

use super::*;
use crate::clock::{Clock, Timestamp};
use crate::kube_io::late_client::{Delays, delays, in_time, late};
use crate::kube_io::{KubeIo, Limiter};
use crate::messages::{KubeRequest, Object};
use crate::metrics::Metrics;
use embedded_kube::faults::{ChangeInfo, Interceptor};
use embedded_kube::{ApiServer, ApiServerOptions};

/// Writes down who held the lease when who wrote.
#[derive(Clone, Default)]
struct Witness(Arc<Mutex<Testimony>>);

#[derive(Default)]
struct Testimony {
    holder: String,
    holders: Vec<String>,
    /// How often each process wrote.
    writes: Vec<(String, usize)>,
    /// Who wrote without the lease.
    intruders: Vec<String>,
}

impl Interceptor for Witness {
    fn changed(&self, change: &ChangeInfo<'_>) {
        let Some(object) = change.after else { return };
        let mut seen = self.0.lock().unwrap();
        match change.resource {
            "leases.coordination.k8s.io" => {
                let holder = object["spec"]["holderIdentity"]
                    .as_str()
                    .unwrap_or_default();
                if seen.holder != holder {
                    seen.holder = holder.to_owned();
                    seen.holders.push(holder.to_owned());
                }
            }
            "configmaps" => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let Some((writer, _)) = name.split_once('-') else {
                    return;
                };
                if seen.holder != writer {
                    let intruder = format!("{name} while {} held it", seen.holder);
                    seen.intruders.push(intruder);
                }
                match seen.writes.last_mut() {
                    Some((last, count)) if last == writer => *count += 1,
                    _ => seen.writes.push((writer.to_owned(), 1)),
                }
            }
            _ => {}
        }
    }
}

struct Stage {
    server: ApiServer,
    clock: Clock,
    witness: Witness,
}

/// A process of the test.
struct Process {
    task: JoinHandle<anyhow::Result<()>>,
    stop: oneshot::Sender<()>,
    fail: oneshot::Sender<()>,
    fence: Fence,
}

impl Stage {
    fn new() -> Self {
        let clock = Clock::simulated(Timestamp::UNIX_EPOCH);
        let witness = Witness::default();
        let server = ApiServer::new(ApiServerOptions {
            interceptor: Arc::new(witness.clone()),
            ..ApiServerOptions::new(clock.clone(), 1)
        });
        Self {
            server,
            clock,
            witness,
        }
    }

    /// Starts a process whose threads write all the time; each write takes that long to reach the
    /// server, and its answer that long to come back.
    fn start(&self, name: &'static str, lease: Delays, writes: (Duration, Duration)) -> Process {
        let fence = Fence::shut();
        let candidate = Candidate::new(
            late(self.server.client(), lease),
            self.clock.clone(),
            "default",
            "lease",
            name,
            fence.clone(),
        );
        let (stop, told) = oneshot::channel();
        let (fail, failed) = oneshot::channel();
        let kube = KubeIo::new(
            late(self.server.client(), delays(move |_| writes)),
            Limiter::unlimited(),
            Arc::new(Metrics::new().unwrap()),
        )
        .behind(fence.clone());
        let in_work = fence.clone();
        let work = move || {
            // as the controller: what it started ends with it, and it waits before it ends
            let threads = LocalSet::new();
            for thread in 0..3 {
                threads.spawn_local(write_on(kube.clone(), name, thread));
            }
            Ok(async move {
                if threads.run_until(failed).await.is_err() {
                    threads.run_until(std::future::pending::<()>()).await;
                }
                in_work.close();
                threads.run_until(in_work.drained()).await;
                anyhow::anyhow!("a watch was lost")
            })
        };
        let stopped = async move {
            if told.await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let task = run_while_leading(Some(candidate), fence.clone(), stopped, work);
        Process {
            task: tokio::task::spawn_local(task),
            stop,
            fail,
            fence,
        }
    }

    fn end(&self) -> Testimony {
        let seen = std::mem::take(&mut *self.witness.0.lock().unwrap());
        assert_eq!(seen.intruders, [""; 0], "somebody wrote without the lease");
        seen
    }
}

/// Writes without end.
async fn write_on(kube: KubeIo, writer: &'static str, thread: u32) {
    for number in 0.. {
        let map = ConfigMap {
            metadata: ObjectMeta {
                namespace: Some("default".into()),
                name: Some(format!("{writer}-{thread}-{number}")),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        let _answer = kube.run(KubeRequest::Create(Object::from(map))).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn staged<F: Future<Output = ()>>(play: impl FnOnce(Stage) -> F) {
    LocalSet::new()
        .run_until(async { play(Stage::new()).await })
        .await;
}

async fn pass(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

const SLOW: (Duration, Duration) = (Duration::from_millis(1_500), Duration::from_millis(1_500));
const FAST: (Duration, Duration) = (Duration::ZERO, Duration::from_millis(5));

#[tokio::test(start_paused = true)]
async fn a_process_that_is_told_to_stop_gives_the_lease_up_after_its_last_write() {
    staged(|stage| async move {
        let first = stage.start("first", in_time(), SLOW);
        pass(500).await;
        let second = stage.start("second", in_time(), FAST);
        // in the midst of writes, at several places of their way
        for moment in [7_777, 300] {
            pass(moment).await;
        }
        first.stop.send(()).unwrap();
        let start = Instant::now();
        first.task.await.unwrap().unwrap();
        let took = start.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
        pass(10_000).await;
        drop(second);
        let seen = stage.end();
        assert_eq!(
            seen.holders,
            ["first", "", "second"],
            "released, not expired"
        );
        assert_eq!(seen.writes.len(), 2, "{:?}", seen.writes);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn whenever_it_is_told_to_stop_nobody_writes_without_the_lease() {
    for moment in (0..4_000).step_by(125) {
        staged(|stage| async move {
            let first = stage.start("first", in_time(), SLOW);
            pass(3_000).await;
            let second = stage.start("second", in_time(), FAST);
            pass(moment).await;
            first.stop.send(()).unwrap();
            first.task.await.unwrap().unwrap();
            pass(5_000).await;
            drop(second);
            assert_eq!(stage.end().holders, ["first", "", "second"]);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_whose_renewals_are_answered_too_late_writes_no_more_when_another_begins() {
    for late_by in [3, 9, 12, 30] {
        staged(|stage| async move {
            let late_since = Arc::new(Mutex::new(None::<Duration>));
            let there = late_since.clone();
            let answers = delays(move |_| {
                let late_by = there.lock().unwrap().unwrap_or_default();
                (Duration::ZERO, late_by)
            });
            let first = stage.start("first", answers, SLOW);
            pass(3_000).await;
            let second = stage.start("second", in_time(), FAST);
            *late_since.lock().unwrap() = Some(Duration::from_secs(late_by));
            pass(120_000).await;
            if late_by > 3 {
                let lost = first.task.await.unwrap().unwrap_err().to_string();
                assert!(lost.contains("lease default/lease was lost"), "{lost}");
                assert!(second.fence.enter().is_some());
                assert_eq!(stage.end().holders, ["first", "second"]);
            } else {
                assert_eq!(stage.end().holders, ["first"]);
            }
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_whose_work_ends_gives_the_lease_up_in_the_same_way() {
    staged(|stage| async move {
        let first = stage.start("first", in_time(), SLOW);
        pass(3_700).await;
        let second = stage.start("second", in_time(), FAST);
        first.fail.send(()).unwrap();
        let ended = first.task.await.unwrap().unwrap_err().to_string();
        assert_eq!(ended, "a watch was lost");
        pass(5_000).await;
        drop(second);
        assert_eq!(stage.end().holders, ["first", "", "second"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn writes_that_are_never_answered_hold_neither_the_process_nor_the_lease_for_ever() {
    staged(|stage| async move {
        let mute = (Duration::ZERO, Duration::from_secs(3_600));
        let first = stage.start("first", in_time(), mute);
        pass(3_000).await;
        let second = stage.start("second", in_time(), FAST);
        first.stop.send(()).unwrap();
        let start = Instant::now();
        first.task.await.unwrap().unwrap();
        let took = start.elapsed();
        assert!(took < Duration::from_secs(8), "a pod has 10 s: {took:?}");
        pass(30_000).await;
        drop(second);
        assert_eq!(
            stage.end().holders,
            ["first", "second"],
            "it was left to expire, since they may yet have arrived"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_is_told_to_stop_leaves_the_lease_to_its_holder() {
    staged(|stage| async move {
        let first = stage.start("first", in_time(), FAST);
        pass(1_000).await;
        let second = stage.start("second", in_time(), FAST);
        pass(3_000).await;
        second.stop.send(()).unwrap();
        second.task.await.unwrap().unwrap();
        pass(30_000).await;
        assert!(first.fence.enter().is_some());
        assert_eq!(stage.end().holders, ["first"]);
    })
    .await;
}

/// Controllers in one namespace, by their flags: those for different namespaces each lead, and
/// those for the same one take turns.
#[tokio::test(start_paused = true)]
async fn controllers_for_different_namespaces_do_not_wait_for_each_other() {
    let a = "--watch-single-namespace=team-a";
    let b = "--watch-single-namespace=team-b";
    let id = "--leader-election-id=arc";
    for (one, other, leases) in [
        (vec![], vec![], ["impresario", "impresario"]),
        (vec![a], vec![b], ["impresario-team-a", "impresario-team-b"]),
        (vec![a], vec![], ["impresario-team-a", "impresario"]),
        (vec![a], vec![a], ["impresario-team-a", "impresario-team-a"]),
        (vec![a, id], vec![b, id], ["arc", "arc"]),
        (
            vec![a, "--leader-election-id=x"],
            vec![b, "--leader-election-id=y"],
            ["x", "y"],
        ),
    ] {
        let stage = Stage::new();
        let lease = |flags: &[&str]| {
            let flags = ["controller"].iter().chain(flags);
            crate::command::controller::Args::try_parse_from(flags)
                .unwrap()
                .lease()
        };
        let names = [lease(&one), lease(&other)];
        assert_eq!(names, leases, "{one:?} {other:?}");
        let candidate = |lease: &str, name| {
            let (client, clock) = (stage.server.client(), stage.clock.clone());
            Candidate::new(client, clock, "default", lease, name, Fence::shut())
        };
        candidate(&names[0], "one").acquire().await;
        let mut second = candidate(&names[1], "other");
        let both = tokio::time::timeout(Duration::from_secs(5), second.acquire());
        assert_eq!(both.await.is_ok(), names[0] != names[1], "{names:?}");
    }
}
