//! What one step of an actor collects while it looks at the state: effects, the time at which it
//! wants to go on, and what it notes on its way.

use std::hash::Hash;

use super::cached::{Cached, FREELY, Verb};
use super::machine::{EffectOf, Machine};
use super::wake::Wake;
use crate::clock::Timestamp;
use crate::messages::{
    ActionsCall, ActionsRequest, Effect, EventNote, EventSeverity, KubeObject, KubeRequest,
    ObjectRef, Tenant,
};

/// One step of machine `M`.
pub struct StepContext<M: Machine> {
    /// The time of the step.
    pub now: Timestamp,
    /// When to look again.
    pub wake: Wake,
    /// What the step notes for its end.
    pub notes: M::Notes,
    effects: Vec<EffectOf<M>>,
}

impl<M: Machine> StepContext<M> {
    /// At the start of a step.
    pub fn new(now: Timestamp) -> Self {
        Self {
            now,
            wake: Wake::default(),
            notes: M::Notes::default(),
            effects: Vec::new(),
        }
    }

    /// Asks for something.
    pub fn push(&mut self, effect: EffectOf<M>) {
        self.effects.push(effect);
    }

    /// What was asked for so far.
    #[cfg(test)]
    pub fn effects(&self) -> &[EffectOf<M>] {
        &self.effects
    }

    /// Sends a request that is about no object with a copy of its own.
    pub fn kube(&mut self, tag: M::Tag, request: KubeRequest) {
        self.push(Effect::Kube(tag, request));
    }

    /// Whether a request about an object may be sent now; if so, it counts as in flight.
    pub fn begin<T: KubeObject>(&mut self, cached: &mut Cached<T>) -> bool {
        cached.begin(self.now, FREELY, &mut self.wake)
    }

    /// Sends a request about an object, unless one is in flight or has to wait. Says whether it
    /// was sent. `what` is that of [`Cached::begin`].
    pub fn send<T: KubeObject>(
        &mut self,
        cached: &mut Cached<T>,
        tag: M::Tag,
        what: Option<impl Hash>,
        request: impl FnOnce() -> KubeRequest,
    ) -> bool {
        let free = cached.begin(self.now, what, &mut self.wake);
        if free {
            self.kube(tag, request());
        }
        free
    }

    /// Reads an object. Says whether the request was sent.
    pub fn read<T: KubeObject>(
        &mut self,
        cached: &mut Cached<T>,
        tag: M::Tag,
        target: ObjectRef,
    ) -> bool {
        self.send(cached, tag, FREELY, || KubeRequest::Get(target))
    }

    /// Deletes exactly this object, again after 0, 5, 10, … s for as long as it stays for the same
    /// reason. Says whether the request was sent.
    pub fn delete<T: KubeObject>(
        &mut self,
        cached: &mut Cached<T>,
        tag: M::Tag,
        live: &T,
        why: impl Hash,
    ) -> bool {
        self.send(cached, tag, Some((Verb::Delete, why)), || {
            KubeRequest::Delete {
                target: live.reference(),
                uid: live.meta().uid.clone(),
                lock: None,
                grace: None,
            }
        })
    }

    /// Calls the Actions service.
    pub fn actions(&mut self, tag: M::Tag, tenant: Tenant, call: ActionsCall) {
        self.push(Effect::Actions(tag, ActionsRequest { tenant, call }));
    }

    /// Wants to go on at that time at the latest. A time that has passed is no wish: what
    /// was due then has been done in this step.
    pub fn wake_at(&mut self, time: Timestamp) {
        if time > self.now {
            self.wake.at(time);
        }
    }

    /// As [`Self::wake_at`], if there is a time.
    pub fn wake_at_some(&mut self, time: Option<Timestamp>) {
        if let Some(time) = time {
            self.wake_at(time);
        }
    }

    /// Publishes an event about an object.
    pub fn event<T: KubeObject>(
        &mut self,
        about: &T,
        severity: EventSeverity,
        reason: &'static str,
        message: String,
    ) {
        self.push(Effect::Event(EventNote {
            about: about.reference(),
            uid: about.meta().uid.clone().unwrap_or_default(),
            severity,
            reason,
            message,
        }));
    }

    /// What the step answers: all that was asked for, and the wake-up at the end.
    pub fn into_effects(mut self) -> Vec<EffectOf<M>> {
        let stops = matches!(self.effects.last(), Some(Effect::Stop));
        if let Some(time) = self.wake.earliest().filter(|_| !stops) {
            self.effects.push(Effect::WakeAt(time));
        }
        self.effects
    }
}
