//! The actor around [`Unregistrar`]: sends the calls that are due and hands back the answers.
//!
//! What is asked for is in memory only. Should the unregistrar panic, which is a bug, all who wait
//! are told that it failed: they ask again, each with its own back-off, and the new one begins
//! with nothing. A removal that is repeated for it does no harm.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::actor::{InFlight, outcome};
use super::services::{ActionsIo, Unregister};
use super::workers::panic_message;
use crate::actors::unregistrar::{Due, Unregistrar};
use crate::clock::{Clock, Timestamp};
use crate::messages::{ActionsAnswer, ActionsError, ActionsErrorKind, ActionsRequest};
use crate::metrics::Metrics;

type Answer = Result<ActionsAnswer, ActionsError>;

/// The way to the unregistrar, from any thread.
#[derive(Clone)]
pub struct UnregistrarHandle(Addr<UnregistrarActor>);

impl UnregistrarHandle {
    /// Starts the unregistrar on the current thread, inside a `LocalSet`.
    #[must_use]
    pub fn start(actions: Arc<dyn ActionsIo>, clock: Clock, metrics: Arc<Metrics>) -> Self {
        let unregistrar = UnregistrarActor {
            actions,
            clock,
            metrics,
            removals: Unregistrar::default(),
            askers: BTreeMap::new(),
            last_asker: 0,
            generation: 0,
            alarm: None,
        };
        Self(unregistrar.start())
    }
}

impl Unregister for UnregistrarHandle {
    fn remove(&self, request: ActionsRequest) -> BoxFuture<'static, Answer> {
        let unregistrar = self.0.clone();
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let stopped = || Err(unavailable("the unregistrar has stopped"));
            // waits while the mailbox is full
            if unregistrar.send(Remove { request, reply }).await.is_err() {
                return stopped();
            }
            answer.await.unwrap_or_else(|_| stopped())
        })
    }
}

fn unavailable(message: &str) -> ActionsError {
    ActionsError {
        kind: ActionsErrorKind::Unavailable,
        message: message.to_owned(),
        retry_after: None,
    }
}

#[derive(Message)]
#[rtype(result = "()")]
struct Remove {
    request: ActionsRequest,
    reply: oneshot::Sender<Answer>,
}

/// Who asks at the unregistrar is a number.
struct UnregistrarActor {
    actions: Arc<dyn ActionsIo>,
    clock: Clock,
    metrics: Arc<Metrics>,
    removals: Unregistrar<u64>,
    askers: BTreeMap<u64, oneshot::Sender<Answer>>,
    last_asker: u64,
    /// Counts the states made; results of calls of an earlier one are dropped.
    generation: u32,
    alarm: Option<(Timestamp, SpawnHandle)>,
}

/// Name of the actor in the metrics.
const NAME: &str = "unregistrar";
/// Name of its one effect in the metrics.
const EFFECT: &str = "remove_runner";

impl Actor for UnregistrarActor {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        let live = &self.metrics.actors.live;
        live.with_label_values(&[NAME]).inc();
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        let live = &self.metrics.actors.live;
        live.with_label_values(&[NAME]).dec();
    }
}

impl Handler<Remove> for UnregistrarActor {
    type Result = ();

    fn handle(&mut self, message: Remove, ctx: &mut Self::Context) {
        let _timed = self.metrics.actors.handling(NAME, "remove");
        self.last_asker += 1;
        self.askers.insert(self.last_asker, message.reply);
        let asker = self.last_asker;
        self.step(ctx, |removals, _| removals.request(asker, message.request));
    }
}

impl UnregistrarActor {
    /// Has the unregistrar take something in, and does what is due.
    fn step(
        &mut self,
        ctx: &mut Context<Self>,
        take: impl FnOnce(&mut Unregistrar<u64>, Timestamp),
    ) {
        let now = self.clock.now();
        // the state is thrown away if it panics
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            take(&mut self.removals, now);
            self.removals.due(now)
        }));
        match stepped {
            Ok(due) => self.run(due, ctx),
            Err(panic) => self.begin_anew(&*panic),
        }
    }

    /// Begins with nothing. Who waits is told, and asks again.
    fn begin_anew(&mut self, panic: &(dyn Any + Send)) {
        tracing::error!(
            actor = NAME,
            waiting = self.askers.len(),
            panic = panic_message(panic),
            "a step panicked: this is a bug, please report it"
        );
        let restarts = &self.metrics.actors.restarts;
        restarts.with_label_values(&[NAME, "panic"]).inc();
        self.removals = Unregistrar::default();
        self.generation += 1;
        for reply in std::mem::take(&mut self.askers).into_values() {
            let failed = "the unregistrar failed and has begun anew: ask again";
            let _heard = reply.send(Err(unavailable(failed)));
        }
    }

    fn run(&mut self, due: Due<u64>, ctx: &mut Context<Self>) {
        for (asker, answer) in due.answers {
            if let Some(reply) = self.askers.remove(&asker) {
                // the asker may be gone; the removal is done all the same
                let _heard = reply.send(answer);
            }
        }
        for (claim, request) in due.calls {
            let in_flight = &self.metrics.actors.effects_in_flight;
            let running = InFlight::enter(in_flight.with_label_values(&[NAME, EFFECT]));
            let started = Instant::now();
            let (actions, generation) = (self.actions.clone(), self.generation);
            let call = async move { actions.run(request).await };
            let call = AssertUnwindSafe(call).catch_unwind().into_actor(self);
            ctx.spawn(call.map(move |ended, unregistrar, ctx| {
                drop(running);
                let result = ended.unwrap_or_else(|panic| {
                    let panic = panic_message(&*panic);
                    tracing::error!(
                        actor = NAME,
                        effect = EFFECT,
                        panic,
                        "an effect panicked: this is a bug, please report it"
                    );
                    Err(unavailable("the call panicked"))
                });
                let metrics = &unregistrar.metrics.actors;
                metrics
                    .effects
                    .with_label_values(&[NAME, EFFECT, outcome(&result)])
                    .inc();
                metrics
                    .effect_duration
                    .with_label_values(&[NAME, EFFECT])
                    .observe(started.elapsed().as_secs_f64());
                if unregistrar.generation == generation {
                    unregistrar.step(ctx, |removals, now| removals.finished(claim, result, now));
                }
            }));
        }
        if let Some(time) = due.wake_at {
            self.arm(time, ctx);
        }
    }

    fn arm(&mut self, time: Timestamp, ctx: &mut Context<Self>) {
        if let Some((armed, handle)) = self.alarm {
            if armed <= time {
                return;
            }
            ctx.cancel_future(handle);
        }
        let wait = time.duration_since(self.clock.now());
        let wait = Duration::try_from(wait)
            .unwrap_or_default()
            .max(Duration::from_millis(1));
        let ring = tokio::time::sleep(wait).into_actor(self);
        let handle = ctx.spawn(ring.map(|(), unregistrar, ctx| {
            unregistrar.alarm = None;
            unregistrar.step(ctx, |_, _| {});
        }));
        self.alarm = Some((time, handle));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::task::LocalSet;

    use super::*;
    use crate::messages::{ActionsCall, Tenant};

    /// Removals of these runners make the call, or the state, panic; once each.
    struct Actions {
        panics: Mutex<Vec<i64>>,
        calls: Mutex<Vec<i64>>,
    }

    impl ActionsIo for Actions {
        fn run(&self, request: ActionsRequest) -> BoxFuture<'static, Answer> {
            let ActionsCall::RemoveRunner { id } = request.call else {
                panic!("no removal");
            };
            self.calls.lock().unwrap().push(id);
            let mut panics = self.panics.lock().unwrap();
            if let Some(at) = panics.iter().position(|one| *one == id) {
                panics.remove(at);
                drop(panics);
                panic!("a bug in the call");
            }
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok(ActionsAnswer::Done)
            })
        }
    }

    fn removal(id: i64) -> ActionsRequest {
        ActionsRequest {
            tenant: Tenant {
                config_url: "https://github.com/acme".to_owned(),
                namespace: "ci".to_owned(),
                secret: "token".to_owned(),
                proxy: None,
                tls: None,
                vault: None,
            },
            call: ActionsCall::RemoveRunner { id },
        }
    }

    /// Asks until it is done, as a runner does; answers how often it asked.
    async fn remove(unregistrar: &UnregistrarHandle, id: i64) -> usize {
        for asked in 1..10 {
            if unregistrar.remove(removal(id)).await.is_ok() {
                return asked;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("runner {id} is not removed");
    }

    /// Twenty removals, of which more wait than are under way.
    async fn twenty(tripwire: Option<i64>, panics: Vec<i64>) -> (Vec<usize>, Arc<Metrics>) {
        let actions = Arc::new(Actions {
            panics: Mutex::new(panics),
            calls: Mutex::default(),
        });
        let metrics = Arc::new(Metrics::new().unwrap());
        let mut removals = Unregistrar::default();
        removals.tripwire = tripwire;
        let unregistrar = UnregistrarActor {
            actions: actions.clone(),
            clock: Clock::simulated(Timestamp::UNIX_EPOCH),
            metrics: metrics.clone(),
            removals,
            askers: BTreeMap::new(),
            last_asker: 0,
            generation: 0,
            alarm: None,
        };
        let unregistrar = UnregistrarHandle(unregistrar.start());
        let all = (1..=20).map(|id| remove(&unregistrar, id));
        let asked = futures::future::join_all(all).await;
        let mut calls = actions.calls.lock().unwrap().clone();
        calls.sort_unstable();
        calls.dedup();
        assert_eq!(calls, (1..=20).collect::<Vec<_>>());
        let in_flight = &metrics.actors.effects_in_flight;
        assert_eq!(in_flight.with_label_values(&[NAME, EFFECT]).get(), 0);
        (asked, metrics)
    }

    fn restarts(metrics: &Metrics) -> u64 {
        let restarts = &metrics.actors.restarts;
        restarts.with_label_values(&[NAME, "panic"]).get()
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_loses_no_removal_that_is_waited_for() {
        let played = async {
            let (asked, metrics) = twenty(Some(3), Vec::new()).await;
            // those whose answers had come did not ask again
            assert!(asked.iter().all(|times| *times <= 2), "{asked:?}");
            assert!(asked.contains(&2), "{asked:?}");
            assert_eq!(restarts(&metrics), 1);
        };
        LocalSet::new().run_until(played).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_panics_is_made_again_and_holds_up_no_other() {
        let played = async {
            let (asked, metrics) = twenty(None, vec![4, 17]).await;
            assert_eq!(asked, [1; 20]);
            assert_eq!(restarts(&metrics), 0);
        };
        LocalSet::new().run_until(played).await;
    }
}
