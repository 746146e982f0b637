//! The actix actor around a step function: receives messages, calls the step, runs the
//! effects concurrently, and feeds each result back as the next input.
//!
//! It decides nothing. Supervision is here too: a panic, in the step or in running what it asked
//! for, is caught, counted and logged with the input; then the state is made anew by the parent's
//! factory, with back-off, from the last objects seen and all that holds, while siblings go on.
//! What comes in the meantime waits.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures::FutureExt;
use tokio::time::Instant;

use super::mailbox::{CAPACITY, Leftover, Mailbox, Timed, Waiting};
use super::router::{ActorKey, ObjectEvent};
use super::services::Services;
use super::workers::panic_message;
use crate::actors::core::backoff;
use crate::actors::core::machine::{EffectOf, InputOf, Machine, Topic};
use crate::clock::Timestamp;
use crate::messages::{Effect, InBrief, Input, Kind, KubeError, Object, ObjectRef};

/// After so long without a failure the next one counts as the first.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);

/// A message in a mailbox.
pub struct Mail<M: Machine>(pub Timed<M>);

impl<M: Machine> Message for Mail<M> {
    type Result = ();
}

/// Says that messages wait beside the mailbox.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Drain;

/// The children of an actor, and how its directives reach them.
pub trait Children<M: Machine>: 'static {
    /// Makes a child or tells it something.
    fn direct(&mut self, directive: M::Directive, parent: &Mailbox<M>);
    /// A child has reported; forget it if it is gone. Called before the step hears of it.
    fn on_report(&mut self, report: &M::ChildReport);
    /// The parent's parent has told it something. Called after the step's effects were run.
    fn on_command(&mut self, command: &M::Command);
    /// What the children last said, for a parent that was made anew.
    fn last_reports(&self) -> Vec<M::ChildReport>;
}

/// Of an actor without children.
pub struct NoChildren;

impl<M: Machine<Directive = crate::messages::NoDirective>> Children<M> for NoChildren {
    fn direct(&mut self, directive: M::Directive, _parent: &Mailbox<M>) {
        match directive {}
    }
    fn on_report(&mut self, _report: &M::ChildReport) {}
    fn on_command(&mut self, _command: &M::Command) {}
    fn last_reports(&self) -> Vec<M::ChildReport> {
        Vec::new()
    }
}

/// What an actor is started with.
pub struct ActorSpec<M: Machine> {
    /// Under which key the router finds it.
    pub key: ActorKey,
    /// Those above it, the nearest first.
    pub ancestors: Vec<ActorKey>,
    /// Kinds of which it keeps the last object seen, to start anew from.
    pub own: &'static [Kind],
    /// The first state.
    pub machine: M,
    /// Makes the state anew.
    pub factory: Box<dyn Fn() -> M>,
    /// Tells the parent.
    pub report: Box<dyn Fn(M::Report)>,
    /// Its children.
    pub children: Box<dyn Children<M>>,
}

/// The actix actor around a step function.
pub struct MachineActor<M: Machine> {
    spec: ActorSpec<M>,
    services: Arc<Services>,
    mailbox: Mailbox<M>,
    alarm: Option<(Timestamp, SpawnHandle)>,
    /// Counts the states made; results of effects of an earlier one are dropped.
    generation: u32,
    /// Set while the state waits to be made anew.
    down: bool,
    failures: u32,
    /// When it last happened.
    went_down: Option<Instant>,
    kept: BTreeMap<ObjectRef, Object>,
    /// The commands that hold, by their topics.
    holding: BTreeMap<&'static str, M::Command>,
    /// What came while the state waits to be made anew.
    missed: Waiting<M>,
    /// The object whose news made the state panic last.
    suspect: Option<ObjectRef>,
    /// The machine has ended; what is still in the mailbox is handed on.
    ended: bool,
}

impl<M: Machine> MachineActor<M> {
    /// Starts the actor on the current thread. Messages sent to the mailbox before are handled
    /// first.
    pub fn start(services: Arc<Services>, mailbox: Mailbox<M>, spec: ActorSpec<M>) {
        let actor = Self {
            spec,
            services,
            mailbox,
            alarm: None,
            generation: 0,
            down: false,
            failures: 0,
            went_down: None,
            kept: BTreeMap::new(),
            holding: BTreeMap::new(),
            missed: Waiting::default(),
            suspect: None,
            ended: false,
        };
        Actor::start(actor);
    }

    fn receive(&mut self, timed: Timed<M>, ctx: &mut Context<Self>) {
        let kind = kind_of(&timed.input);
        let labels = [M::NAME, kind];
        let metrics = &self.services.metrics.actors;
        metrics.messages.with_label_values(&labels).inc();
        metrics
            .mailbox_wait
            .with_label_values(&labels)
            .observe(timed.sent.elapsed().as_secs_f64());
        self.handle(timed.input, ctx);
    }

    fn handle(&mut self, input: InputOf<M>, ctx: &mut Context<Self>) {
        if self.ended {
            let leftover = Leftover::of(input).into_iter();
            return leftover.for_each(|leftover| self.hand_on()(leftover));
        }
        self.remember(&input);
        if let Input::Report(report) = &input {
            self.spec.children.on_report(report);
        }
        if let Input::Kube(_, Err(error)) = &input {
            self.tell_refusal(error);
        }
        let command = match &input {
            Input::Command(command) => Some(command.clone()),
            _ => None,
        };
        if self.down {
            return self.miss(input);
        }
        let kind = kind_of(&input);
        let kept_for_the_log = input.clone();
        let now = self.services.clock.now();
        let started = Instant::now();
        // the state is thrown away if it panics
        let stepped = catch_unwind(AssertUnwindSafe(|| self.spec.machine.step(now, input)));
        self.services
            .metrics
            .actors
            .step
            .with_label_values(&[M::NAME, kind])
            .observe(started.elapsed().as_secs_f64());
        let effects = match stepped {
            Ok(effects) => effects,
            Err(panic) => return self.panicked(&*panic, kept_for_the_log, ctx),
        };
        if self.suspect.is_some() && self.suspect == self.news_of(&kept_for_the_log) {
            self.suspect = None;
        }
        self.services
            .journal(|| format!("{} {kept_for_the_log:?} -> {effects:?}", self.spec.key));
        tracing::debug!(
            actor = M::NAME,
            key = %self.spec.key,
            because = %InBrief(&kept_for_the_log),
            decided = %InBrief(&effects[..]),
            "step"
        );
        tracing::trace!(
            actor = M::NAME, key = %self.spec.key, input = ?kept_for_the_log, ?effects, "whole step"
        );
        let ran = catch_unwind(AssertUnwindSafe(|| {
            for effect in effects {
                self.run(effect, ctx);
            }
            if let Some(command) = command {
                self.spec.children.on_command(&command);
            }
        }));
        if let Err(panic) = ran {
            self.panicked(&*panic, kept_for_the_log, ctx);
        }
    }

    fn panicked(&mut self, panic: &(dyn Any + Send), input: InputOf<M>, ctx: &mut Context<Self>) {
        tracing::error!(
            actor = M::NAME,
            key = %self.spec.key,
            because = %InBrief(&input),
            panic = panic_message(panic),
            "a step panicked: this is a bug, please report it"
        );
        tracing::trace!(actor = M::NAME, key = %self.spec.key, ?input, "the input that it panicked at");
        self.suspect(input);
        self.go_down("panic", ctx);
    }

    /// Publishes that a right is missing, on the object that this actor looks after.
    fn tell_refusal(&self, error: &KubeError) {
        let object = self.kept.values().next();
        let note = object.and_then(|object| self.services.events.note_refusal(object, error));
        if let Some(note) = note {
            let services = self.services.clone();
            tokio::task::spawn_local(async move { services.events.publish(&note).await });
        }
    }

    /// Keeps what a state made anew has to be told.
    fn remember(&mut self, input: &InputOf<M>) {
        match input {
            Input::Observed(object) if self.is_own(object) => {
                self.kept.insert(object.reference(), object.clone());
            }
            // it may be about the predecessor of the one that is kept
            Input::Gone { object, uid }
                if self.kept.get(object).is_some_and(|kept| kept.uid() == uid) =>
            {
                self.kept.remove(object);
            }
            Input::Command(command) if command.holds() => {
                self.holding.insert(command.topic(), command.clone());
            }
            _ => {}
        }
    }

    fn is_own(&self, object: &Object) -> bool {
        self.spec.own.contains(&object.kind())
    }

    /// Keeps for later what a state made anew would not hear of otherwise.
    fn miss(&mut self, input: InputOf<M>) {
        let is_kept = match &input {
            Input::Observed(object) => self.is_own(object),
            Input::Command(command) => command.holds(),
            Input::Gone { .. } => false,
            // the children keep what was said last
            Input::Report(_) | Input::Kube(..) | Input::Actions(..) | Input::Tick => true,
        };
        if !is_kept {
            let sent = Instant::now();
            self.missed.put(Timed { input, sent });
        }
    }

    /// The news that made the state panic is told once more to the next one, which may take it.
    /// If it panics again, it goes without: one object must not stop all others.
    fn suspect(&mut self, input: InputOf<M>) {
        let Some(about) = self.news_of(&input) else {
            return;
        };
        if self.suspect.as_ref() == Some(&about) {
            self.suspect = None;
            tracing::error!(key = %self.spec.key, %about, "left out, it made the state panic twice");
            return;
        }
        self.suspect = Some(about);
        self.miss(input);
    }

    /// The object that a message is about that is not kept anyway.
    fn news_of(&self, input: &InputOf<M>) -> Option<ObjectRef> {
        match input {
            Input::Observed(object) if !self.is_own(object) => Some(object.reference()),
            Input::Gone { object, .. } => Some(object.clone()),
            _ => None,
        }
    }

    /// What takes the messages that this actor does not handle any more.
    fn hand_on(&self) -> impl Fn(Leftover) + Send + 'static {
        let services = self.services.clone();
        // a successor first
        let mut keys = vec![self.spec.key.clone()];
        keys.extend(self.spec.ancestors.iter().cloned());
        move |leftover| {
            services.router.hand_on(match leftover {
                Leftover::Observed(object) => ObjectEvent::Observed(object),
                Leftover::Gone(object, uid) => ObjectEvent::Gone {
                    object,
                    uid,
                    keys: keys.clone(),
                },
            });
        }
    }

    /// The machine has ended. Its objects are gone, so late news of them is dropped from now on.
    fn end(&mut self, ctx: &mut Context<Self>) {
        self.ended = true;
        let uids = self.kept.values().map(|object| object.uid().to_owned());
        self.services.router.forget(&self.spec.key, uids);
        self.mailbox.begin_close();
        self.leave(ctx);
    }

    /// Stops the actor when all that was in its mailbox is handed on.
    fn leave(&self, ctx: &mut Context<Self>) {
        if self.mailbox.queue_is_empty() {
            self.mailbox.close(Box::new(self.hand_on()));
            ctx.stop();
        }
    }

    fn run(&mut self, effect: EffectOf<M>, ctx: &mut Context<Self>) {
        let services = self.services.clone();
        match effect {
            Effect::Kube(tag, request) => {
                let label = request.verb();
                self.feed_back(label, ctx, async move {
                    let result = services.kube.run(request).await;
                    (outcome(&result), Input::Kube(tag, result))
                });
            }
            Effect::Actions(tag, request) => {
                let label = request.call.name();
                self.feed_back(label, ctx, async move {
                    let result = services.actions.run(request).await;
                    (outcome(&result), Input::Actions(tag, result))
                });
            }
            Effect::Unregister(tag, request) => {
                self.feed_back("unregister", ctx, async move {
                    let result = services.unregistrar.remove(request).await;
                    (outcome(&result), Input::Actions(tag, result))
                });
            }
            Effect::WakeAt(time) => self.arm(time, ctx),
            Effect::Event(note) => {
                tracing::info!(about = %note.about, reason = note.reason, "{}", note.message);
                tokio::task::spawn_local(async move { services.events.publish(&note).await });
            }
            Effect::Count(tally) => self.services.metrics.count(tally),
            Effect::Report(report) => (self.spec.report)(report),
            Effect::Child(directive) => self.spec.children.direct(directive, &self.mailbox),
            Effect::Stop => self.end(ctx),
        }
    }

    /// Runs an effect beside all others and takes its result in as the next input.
    fn feed_back(
        &self,
        effect: &'static str,
        ctx: &mut Context<Self>,
        work: impl Future<Output = (&'static str, InputOf<M>)> + 'static,
    ) {
        let generation = self.generation;
        let metrics = &self.services.metrics.actors;
        let in_flight = metrics
            .effects_in_flight
            .with_label_values(&[M::NAME, effect]);
        let running = InFlight::enter(in_flight);
        let started = Instant::now();
        let work = AssertUnwindSafe(work).catch_unwind();
        let work = work.into_actor(self).map(move |ended, actor, ctx| {
            drop(running);
            let (result, input) = match ended {
                Ok(ended) => ended,
                Err(panic) => {
                    let panic = panic_message(&*panic);
                    tracing::error!(
                        actor = M::NAME, key = %actor.spec.key, effect, panic,
                        "an effect panicked: this is a bug, please report it"
                    );
                    if actor.generation == generation {
                        actor.go_down("panic", ctx);
                    }
                    return;
                }
            };
            let metrics = &actor.services.metrics.actors;
            metrics
                .effects
                .with_label_values(&[M::NAME, effect, result])
                .inc();
            metrics
                .effect_duration
                .with_label_values(&[M::NAME, effect])
                .observe(started.elapsed().as_secs_f64());
            if actor.generation == generation {
                actor.handle(input, ctx);
            }
        });
        ctx.spawn(work);
    }

    fn arm(&mut self, time: Timestamp, ctx: &mut Context<Self>) {
        if let Some((armed, handle)) = self.alarm {
            if armed <= time {
                return;
            }
            ctx.cancel_future(handle);
        }
        let wait = time.duration_since(self.services.clock.now());
        // never at once: a step that asks for the past must not spin
        let wait = Duration::try_from(wait)
            .unwrap_or_default()
            .max(Duration::from_millis(1));
        let generation = self.generation;
        let ring = tokio::time::sleep(wait)
            .into_actor(self)
            .map(move |(), actor, ctx| {
                if actor.generation == generation {
                    actor.alarm = None;
                    actor.handle(Input::Tick, ctx);
                }
            });
        self.alarm = Some((time, ctx.spawn(ring)));
    }

    fn go_down(&mut self, reason: &str, ctx: &mut Context<Self>) {
        self.down = true;
        self.generation += 1;
        if self
            .went_down
            .is_none_or(|last| last.elapsed() > FORGIVEN_AFTER)
        {
            self.failures = 0;
        }
        self.went_down = Some(Instant::now());
        self.failures += 1;
        if let Some((_, handle)) = self.alarm.take() {
            ctx.cancel_future(handle);
        }
        self.services
            .metrics
            .actors
            .restarts
            .with_label_values(&[M::NAME, reason])
            .inc();
        let wait = backoff::RECREATION.spread(self.failures, &self.spec.key.to_string());
        let wait = Duration::try_from(wait).unwrap_or_default();
        let come_back = tokio::time::sleep(wait)
            .into_actor(self)
            .map(|(), actor, ctx| actor.come_back(ctx));
        ctx.spawn(come_back);
    }

    fn come_back(&mut self, ctx: &mut Context<Self>) {
        self.spec.machine = (self.spec.factory)();
        self.down = false;
        let seen: Vec<Object> = self.kept.values().cloned().collect();
        for object in seen {
            self.handle(Input::Observed(object), ctx);
        }
        for report in self.spec.children.last_reports() {
            self.handle(Input::Report(report), ctx);
        }
        let holding: Vec<M::Command> = self.holding.values().cloned().collect();
        for command in holding {
            self.handle(Input::Command(command), ctx);
        }
        for missed in self.missed.take() {
            self.handle(missed.input, ctx);
        }
        self.handle(Input::Tick, ctx);
    }

    /// Handles what waits beside the mailbox, when all that was sent before it is handled.
    fn drain(&mut self, ctx: &mut Context<Self>) {
        if self.ended {
            return self.leave(ctx);
        }
        if !self.mailbox.queue_is_empty() {
            return;
        }
        for timed in self.mailbox.take_waiting() {
            self.receive(timed, ctx);
        }
    }
}

impl<M: Machine> Actor for MachineActor<M> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.set_mailbox_capacity(CAPACITY);
        self.services
            .metrics
            .actors
            .live
            .with_label_values(&[M::NAME])
            .inc();
        self.services
            .router
            .register(self.spec.key.clone(), Arc::new(self.mailbox.clone()));
        self.mailbox.bind(ctx.address());
        // first what is known already, so that nothing is read that waits here
        self.drain(ctx);
        self.handle(Input::Tick, ctx);
    }

    fn stopped(&mut self, _ctx: &mut Self::Context) {
        self.services
            .metrics
            .actors
            .live
            .with_label_values(&[M::NAME])
            .dec();
        if !self.ended {
            let none = std::iter::empty();
            self.services.router.forget(&self.spec.key, none);
            self.mailbox.discard();
        }
    }
}

impl<M: Machine> Handler<Mail<M>> for MachineActor<M> {
    type Result = ();

    fn handle(&mut self, mail: Mail<M>, ctx: &mut Self::Context) {
        self.mailbox.left_queue();
        self.receive(mail.0, ctx);
        self.drain(ctx);
    }
}

impl<M: Machine> Handler<Drain> for MachineActor<M> {
    type Result = ();

    fn handle(&mut self, _: Drain, ctx: &mut Self::Context) {
        self.drain(ctx);
    }
}

/// Counts an effect as in flight for as long as it lives, however it ends.
pub(super) struct InFlight(prometheus::IntGauge);

impl InFlight {
    pub(super) fn enter(gauge: prometheus::IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Names a result for the metrics.
pub(super) trait Outcome {
    fn label(&self) -> &'static str;
}

impl Outcome for crate::messages::KubeError {
    fn label(&self) -> &'static str {
        self.kind.as_str()
    }
}

impl Outcome for crate::messages::ActionsError {
    fn label(&self) -> &'static str {
        self.kind.as_str()
    }
}

pub(super) fn outcome<T, E: Outcome>(result: &Result<T, E>) -> &'static str {
    result.as_ref().map_or_else(Outcome::label, |_| "ok")
}

const fn kind_of<T, C, R>(input: &Input<T, C, R>) -> &'static str {
    match input {
        Input::Observed(object) => object.kind().as_str(),
        Input::Gone { .. } => "gone",
        Input::Kube(..) => "kube_result",
        Input::Actions(..) => "actions_result",
        Input::Command(_) => "command",
        Input::Report(_) => "report",
        Input::Tick => "tick",
    }
}
