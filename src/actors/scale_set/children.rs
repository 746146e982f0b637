//! What a scale set knows of its children: the objects that it owns the spec of, and the last
//! word of the actors that look after them.

use std::sync::Arc;

use super::context::ScaleSetContext;
use super::runner_set::Revisions;
use super::state::ScaleSetMachine;
use crate::actors::core::cached::Cached;
use crate::api::{AutoscalingListener, EphemeralRunnerSet};
use crate::messages::{
    Effect, KubeObject, ListenerCommand, ListenerDirective, ListenerReport, Object, ObjectRef,
    RunnerSetDirective, RunnerSetReport, ScaleSetDirective,
};

/// A listener.
#[derive(Debug, Default)]
pub struct ListenerChild {
    /// Its AutoscalingListener.
    pub object: Cached<AutoscalingListener>,
    /// Whether an actor looks after it.
    pub alive: bool,
    /// What that last said.
    pub report: Option<ListenerReport>,
    /// It was told that the AutoscalingRunnerSet is gone, since it last said something.
    pub told: bool,
}

/// The runner set.
#[derive(Debug, Default)]
pub struct RunnerSetChild {
    /// The EphemeralRunnerSet.
    pub object: Cached<EphemeralRunnerSet>,
    /// Its revisions as they were last seen, or asked for; they stand while the answer to a
    /// write is unclear.
    pub revisions: Option<Revisions>,
    /// Whether what was rejected has been corrected, when it was last seen.
    pub corrected: bool,
    /// Whether an actor looks after it or its runners.
    pub alive: bool,
    /// What that last said.
    pub report: Option<RunnerSetReport>,
}

impl ListenerChild {
    /// Whether neither the object nor an actor for it is there.
    pub const fn is_gone(&self) -> bool {
        !self.alive && self.object.is_absent() && !self.object.is_in_flight()
    }

    /// Whether the actor says that no pod of the listener is left.
    pub fn is_stopped(&self) -> bool {
        self.report.as_ref().is_some_and(|report| !report.has_pod)
    }

    /// Whether the actor says that the listener runs.
    pub fn is_ready(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.ready)
    }
}

impl RunnerSetChild {
    /// Whether neither the object nor an actor for it or its runners is there.
    pub const fn is_gone(&self) -> bool {
        !self.alive && self.object.is_absent() && !self.object.is_in_flight()
    }
}

impl ScaleSetMachine {
    // === from the children ===

    /// Takes in what a listener says.
    pub(super) fn hear_listener(&mut self, report: ListenerReport, ctx: &mut ScaleSetContext) {
        let name = report.name.clone();
        let child = self.listeners.entry(name.clone()).or_default();
        child.told = false;
        if let Some(end) = &report.missed_scale_set {
            self.registration.missed(end);
        }
        if let Some(object) = &report.listener {
            child.object.observe(object.clone());
            child.alive = true;
            child.report = Some(report);
            return;
        }
        // the uid says which one is gone: a successor may be there already
        let last = child.report.take().and_then(|last| last.listener);
        match last.and_then(|last| last.metadata.uid.clone()) {
            Some(uid) => {
                child.object.observe_gone(&uid);
            }
            None => child.object.forget(),
        }
        child.alive = false;
        if let Some(successor) = child.object.get().cloned() {
            self.hand_to_listener(&name, successor, ctx);
        }
    }

    /// Takes in what the runner set says.
    pub(super) fn hear_runner_set(&mut self, report: RunnerSetReport, ctx: &mut ScaleSetContext) {
        let child = &mut self.runner_set;
        let stopped = report.is_last();
        if let Some(object) = &report.set {
            child.object.observe(object.clone());
        } else {
            let last = child.report.as_ref().and_then(|last| last.set.as_ref());
            match last.and_then(|last| last.metadata.uid.clone()) {
                Some(uid) => {
                    child.object.observe_gone(&uid);
                }
                None if child.object.get().is_some() => child.object.forget(),
                None => {}
            }
        }
        child.alive = !stopped;
        let before = child.report.as_ref().map(|report| report.counts);
        let changed = before != Some(report.counts);
        child.report = (!stopped).then_some(report);
        if stopped && let Some(successor) = child.object.get().cloned() {
            self.hand_to_runner_set(successor.into_object(), ctx);
        }
        if changed {
            self.hurry_former_sets();
        }
    }

    // === to the children ===

    /// Hands an AutoscalingListener to its actor, which is made if need be.
    pub(super) fn hand_to_listener(
        &mut self,
        name: &str,
        object: Arc<AutoscalingListener>,
        ctx: &mut ScaleSetContext,
    ) {
        self.listeners.entry(name.to_owned()).or_default().alive = true;
        self.direct_listener(name, ListenerDirective::Observe(object), ctx);
    }

    /// Hands an object to the runner set's actor, which is made if need be.
    pub(super) fn hand_to_runner_set(&mut self, object: Object, ctx: &mut ScaleSetContext) {
        self.runner_set.alive = true;
        let directive = RunnerSetDirective::Deliver(object);
        ctx.push(Effect::Child(ScaleSetDirective::RunnerSet(directive)));
    }

    /// Tells every listener that is there.
    pub(super) fn tell_listeners(&self, command: &ListenerCommand, ctx: &mut ScaleSetContext) {
        let alive = self.listeners.iter().filter(|(_, child)| child.alive);
        for (name, _) in alive {
            self.direct_listener(name, ListenerDirective::Tell(command.clone()), ctx);
        }
    }

    /// Passes on the news that an object of a child is gone.
    pub(super) fn pass_on_gone(
        &mut self,
        object: ObjectRef,
        uid: String,
        ctx: &mut ScaleSetContext,
    ) {
        use crate::messages::Kind::{AutoscalingListener, EphemeralRunner, EphemeralRunnerSet};
        match object.kind {
            AutoscalingListener => {
                let Some(child) = self.listeners.get_mut(&object.name) else {
                    return;
                };
                child.object.observe_gone(&uid);
                if child.alive {
                    let name = object.name.clone();
                    self.direct_listener(&name, ListenerDirective::Gone { object, uid }, ctx);
                }
            }
            EphemeralRunnerSet if object.name != self.name => {
                self.former_set_gone(&object.name, &uid);
            }
            EphemeralRunnerSet | EphemeralRunner => {
                if object == self.runner_set_reference() {
                    self.runner_set.object.observe_gone(&uid);
                }
                if self.runner_set.alive {
                    let directive = RunnerSetDirective::Gone { object, uid };
                    ctx.push(Effect::Child(ScaleSetDirective::RunnerSet(directive)));
                }
            }
            _ => {}
        }
    }

    fn direct_listener(&self, name: &str, directive: ListenerDirective, ctx: &mut ScaleSetContext) {
        ctx.push(Effect::Child(ScaleSetDirective::Listener {
            name: name.to_owned(),
            directive,
        }));
    }
}
