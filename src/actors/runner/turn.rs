//! What one step collects on its way: effects, and the earliest time it wants to go on.

use crate::actors::{EffectOf, Machine};
use crate::clock::Timestamp;
use crate::messages::{
    ActionsCall, ActionsRequest, Effect, EventNote, EventSeverity, KubeObject, KubeRequest, Tenant,
};

/// The effects of one step of machine `M` so far.
pub(in crate::actors) struct Turn<M: Machine> {
    /// The time of the step.
    pub now: Timestamp,
    effects: Vec<EffectOf<M>>,
    wake: Option<Timestamp>,
}

impl<M: Machine> Turn<M> {
    /// At the start of a step.
    pub const fn new(now: Timestamp) -> Self {
        Self {
            now,
            effects: Vec::new(),
            wake: None,
        }
    }

    /// Asks for something.
    pub fn push(&mut self, effect: EffectOf<M>) {
        self.effects.push(effect);
    }

    /// Sends a request to the API server.
    pub fn kube(&mut self, tag: M::Tag, request: KubeRequest) {
        self.push(Effect::Kube(tag, request));
    }

    /// Calls the Actions service.
    pub fn actions(&mut self, tag: M::Tag, tenant: Tenant, call: ActionsCall) {
        self.push(Effect::Actions(tag, ActionsRequest { tenant, call }));
    }

    /// Wants to go on at that time at the latest. A time that has passed is no wish: what
    /// was due then has been done in this step.
    pub fn wake_at(&mut self, time: Timestamp) {
        if time > self.now {
            self.wake = Some(self.wake.map_or(time, |wake| wake.min(time)));
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

    /// What the step answers.
    pub fn finish(mut self) -> Vec<EffectOf<M>> {
        if let Some(time) = self.wake {
            let stops = matches!(self.effects.last(), Some(Effect::Stop));
            if !stops {
                self.effects.push(Effect::WakeAt(time));
            }
        }
        self.effects
    }
}
