//! Candidates for one Lease on an API server whose requests and answers are late: at no moment
//! may two of them write.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::LocalSet;

use super::*;
use crate::clock::Timestamp;
use crate::kube_io::late_client::{Delays, delays, in_time, late};
use embedded_kube::{ApiServer, ApiServerOptions};

struct Stage {
    server: ApiServer,
    clock: Clock,
}

impl Stage {
    fn new() -> Self {
        let clock = Clock::simulated(Timestamp::UNIX_EPOCH);
        Self {
            server: ApiServer::new(ApiServerOptions::new(clock.clone(), 1)),
            clock,
        }
    }

    fn candidate(&self, identity: &str, fence: &Fence, delays: &Delays) -> Candidate {
        Candidate::new(
            late(self.server.client(), delays.clone()),
            self.clock.clone(),
            "default",
            "lease",
            identity,
            fence.clone(),
        )
    }
}

async fn staged<F: Future<Output = ()>>(play: impl FnOnce(Stage) -> F) {
    LocalSet::new()
        .run_until(async { play(Stage::new()).await })
        .await;
}

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Of all fences ever made, how many are open now.
fn open(fences: &RefCell<Vec<Fence>>) -> usize {
    let fences = fences.borrow();
    fences
        .iter()
        .filter(|fence| fence.enter().is_some())
        .count()
}

#[tokio::test(start_paused = true)]
async fn at_no_moment_do_two_hold_the_lease_however_late_answers_are() {
    for seed in 0..40 {
        staged(|stage| async move {
            let fences = Rc::new(RefCell::new(Vec::new()));
            let terms = Rc::new(Cell::new(0));
            let mut tasks = Vec::new();
            for number in 0..3_u64 {
                let mut rng = StdRng::seed_from_u64(seed * 3 + number);
                let delays = delays(move |_| {
                    let mut draw = || match rng.random_range(0..6) {
                        0 => Duration::from_millis(rng.random_range(0..14_000)),
                        1 => Duration::from_millis(rng.random_range(0..3_000)),
                        _ => Duration::from_millis(rng.random_range(0..50)),
                    };
                    (draw(), draw())
                });
                let (server, clock) = (stage.server.clone(), stage.clock.clone());
                let (fences, terms) = (fences.clone(), terms.clone());
                tasks.push(tokio::task::spawn_local(async move {
                    let stage = Stage { server, clock };
                    // each term is a process of its own
                    for term in 0.. {
                        let fence = Fence::shut();
                        fences.borrow_mut().push(fence.clone());
                        let identity = format!("{number}-{term}");
                        let mut candidate = stage.candidate(&identity, &fence, &delays);
                        candidate.acquire().await;
                        terms.set(terms.get() + 1);
                        // some end by themselves
                        let stop = tokio::time::sleep(seconds(20 + number * 30));
                        tokio::select! {
                            lost = candidate.hold() => assert!(!lost.reason.is_empty()),
                            () = stop => candidate.release().await,
                        }
                        fence.close();
                    }
                }));
            }
            for _ in 0..20_000 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                assert!(open(&fences) <= 1, "two may write, seed {seed}");
            }
            assert!(terms.get() >= 10, "seed {seed}: {} terms", terms.get());
            tasks.iter().for_each(tokio::task::JoinHandle::abort);
        })
        .await;
    }
}

/// The holder's renewals reach the server, and the answers are late: it has to be over for it
/// before another takes the lease.
#[tokio::test(start_paused = true)]
async fn a_holder_whose_answers_are_late_is_done_before_its_successor_begins() {
    for late_by in [3, 7, 9, 11, 14, 20, 60] {
        staged(|stage| async move {
            let fences = Rc::new(RefCell::new(vec![Fence::shut(), Fence::shut()]));
            let (first, second) = (fences.borrow()[0].clone(), fences.borrow()[1].clone());
            let slow = Arc::new(Mutex::new(Duration::ZERO));
            let there = slow.clone();
            let slow_answers = delays(move |_| (Duration::ZERO, *there.lock().unwrap()));
            let mut holder = stage.candidate("first", &first, &slow_answers);
            holder.acquire().await;
            *slow.lock().unwrap() = seconds(late_by);
            let mut successor = stage.candidate("second", &second, &in_time());
            let successor = tokio::task::spawn_local(async move {
                successor.acquire().await;
                successor.hold().await
            });
            let holding = tokio::task::spawn_local(async move { holder.hold().await });
            for _ in 0..1_200 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                assert!(
                    open(&fences) <= 1,
                    "two may write, answers {late_by} s late"
                );
            }
            if late_by > 10 {
                assert!(holding.is_finished(), "answers {late_by} s late");
                assert!(second.enter().is_some(), "it has a successor");
            }
            successor.abort();
            holding.abort();
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_that_find_it_free_at_once_one_holds_it() {
    staged(|stage| async move {
        // both have read before either writes
        let slow_writes = || {
            delays(|method| match *method {
                http::Method::GET => (Duration::ZERO, Duration::ZERO),
                _ => (seconds(1), Duration::ZERO),
            })
        };
        let fences = RefCell::new(vec![Fence::shut(), Fence::shut()]);
        let (first, second) = (fences.borrow()[0].clone(), fences.borrow()[1].clone());
        let mut one = stage.candidate("one", &first, &slow_writes());
        let mut other = stage.candidate("other", &second, &slow_writes());
        let ended = tokio::time::timeout(seconds(30), async {
            tokio::join!(
                async {
                    one.acquire().await;
                    one.hold().await
                },
                async {
                    other.acquire().await;
                    other.hold().await
                }
            )
        });
        assert!(ended.await.is_err(), "one of them holds it still");
        assert_eq!(open(&fences), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_released_is_taken_at_once() {
    staged(|stage| async move {
        let (first, second) = (Fence::shut(), Fence::shut());
        let mut holder = stage.candidate("first", &first, &in_time());
        holder.acquire().await;
        let mut successor = stage.candidate("second", &second, &in_time());
        let waited = tokio::join!(
            async {
                tokio::time::sleep(seconds(5)).await;
                holder.release().await;
                assert!(first.enter().is_none(), "nobody writes after a release");
            },
            async {
                let start = Instant::now();
                successor.acquire().await;
                start.elapsed()
            }
        )
        .1;
        assert!(waited < seconds(8), "{waited:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_ends_the_holder_in_time() {
    staged(|stage| async move {
        let fence = Fence::shut();
        let mute = Arc::new(Mutex::new(false));
        let there = mute.clone();
        let delays = delays(move |_| match *there.lock().unwrap() {
            true => (seconds(3_600), Duration::ZERO),
            false => (Duration::ZERO, Duration::ZERO),
        });
        let mut holder = stage.candidate("first", &fence, &delays);
        holder.acquire().await;
        *mute.lock().unwrap() = true;
        let start = Instant::now();
        let lost = holder.hold().await;
        assert!(start.elapsed() <= seconds(10), "{:?}", start.elapsed());
        assert!(lost.to_string().contains("does not answer"), "{lost}");
        assert!(fence.enter().is_none());
    })
    .await;
}
