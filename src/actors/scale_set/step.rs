//! What one step of a scale set collects while it looks at the state.

use std::hash::Hash;

use super::conditions::Findings;
use super::state::ScaleSetMachine;
use super::vocabulary::ScaleSetTag;
use crate::actors::EffectOf;
use crate::actors::core::owned::Verb;
use crate::actors::core::owned::{FREELY, Owned, Wake};
use crate::clock::Timestamp;
use crate::messages::{ActionsRequest, Effect, KubeObject, KubeRequest, ObjectRef};

/// What one step collects.
pub struct Step {
    /// When it happens.
    pub now: Timestamp,
    /// What is to be done.
    pub effects: Vec<EffectOf<ScaleSetMachine>>,
    /// When to look again.
    pub wake: Wake,
    /// What the conditions will say.
    pub findings: Findings,
}

impl Step {
    /// Nothing yet.
    pub fn new(now: Timestamp) -> Self {
        Self {
            now,
            effects: Vec::new(),
            wake: Wake::default(),
            findings: Findings::default(),
        }
    }

    /// Sends a request about an object, unless one is in flight or has to wait. Says whether it
    /// was sent.
    pub fn send<T: KubeObject>(
        &mut self,
        slot: &mut Owned<T>,
        tag: ScaleSetTag,
        what: Option<impl Hash>,
        request: impl FnOnce() -> KubeRequest,
    ) -> bool {
        let free = slot.begin(self.now, what, &mut self.wake);
        if free {
            self.effects.push(Effect::Kube(tag, request()));
        }
        free
    }

    /// Reads an object.
    pub fn read<T: KubeObject>(
        &mut self,
        slot: &mut Owned<T>,
        tag: ScaleSetTag,
        target: ObjectRef,
    ) {
        self.send(slot, tag, FREELY, || KubeRequest::Get(target));
    }

    /// Deletes exactly this object.
    pub fn delete<T: KubeObject>(
        &mut self,
        slot: &mut Owned<T>,
        tag: ScaleSetTag,
        live: &T,
        why: impl Hash,
    ) -> bool {
        self.send(slot, tag, Some((Verb::Delete, why)), || {
            KubeRequest::Delete {
                target: live.reference(),
                uid: live.meta().uid.clone(),
                lock: None,
                grace: None,
            }
        })
    }

    /// Calls the Actions service.
    pub fn call(&mut self, tag: ScaleSetTag, request: ActionsRequest) {
        self.effects.push(Effect::Actions(tag, request));
    }

    /// Everything, the wake-up included.
    pub fn into_effects(mut self) -> Vec<EffectOf<ScaleSetMachine>> {
        let stops = matches!(self.effects.last(), Some(Effect::Stop));
        if let Some(time) = self.wake.earliest().filter(|_| !stops) {
            self.effects.push(Effect::WakeAt(time));
        }
        self.effects
    }
}
