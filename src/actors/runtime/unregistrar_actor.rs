//! The actor around [`Unregistrar`]: sends the calls that are due and hands back the answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::actor::{InFlight, outcome};
use super::services::{ActionsIo, Unregister};
use crate::actors::unregistrar::Unregistrar;
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
            let stopped = || {
                Err(ActionsError {
                    kind: ActionsErrorKind::Unavailable,
                    message: "the unregistrar has stopped".to_owned(),
                    retry_after: None,
                })
            };
            // waits while the mailbox is full
            if unregistrar.send(Remove { request, reply }).await.is_err() {
                return stopped();
            }
            answer.await.unwrap_or_else(|_| stopped())
        })
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
        self.removals.request(self.last_asker, message.request);
        self.go_on(ctx);
    }
}

impl UnregistrarActor {
    /// Does what is due.
    fn go_on(&mut self, ctx: &mut Context<Self>) {
        let due = self.removals.due(self.clock.now());
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
            let call = self.actions.run(request).into_actor(self);
            ctx.spawn(call.map(move |result, unregistrar, ctx| {
                drop(running);
                let metrics = &unregistrar.metrics.actors;
                metrics
                    .effects
                    .with_label_values(&[NAME, EFFECT, outcome(&result)])
                    .inc();
                metrics
                    .effect_duration
                    .with_label_values(&[NAME, EFFECT])
                    .observe(started.elapsed().as_secs_f64());
                unregistrar
                    .removals
                    .finished(claim, result, unregistrar.clock.now());
                unregistrar.go_on(ctx);
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
            unregistrar.go_on(ctx);
        }));
        self.alarm = Some((time, handle));
    }
}
