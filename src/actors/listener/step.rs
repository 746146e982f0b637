//! What one step of a listener collects while it looks at the state.

use std::collections::BTreeSet;
use std::hash::Hash;

use super::state::ListenerMachine;
use crate::actors::EffectOf;
use crate::actors::core::owned::{FREELY, Owned, Verb, Wake};
use crate::api::AutoscalingListener;
use crate::clock::Timestamp;
use crate::messages::{
    Effect, EventNote, EventSeverity, KubeErrorKind, KubeObject, KubeRequest, ListenerReport,
    ObjectRef, Tally,
};

/// Names a request of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerTag {
    /// About one of the objects it keeps.
    Part(Part, Verb),
    /// The read of an object that its Secrets are made from.
    Source(ObjectRef),
}

/// An object that a listener keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The AutoscalingListener itself.
    Listener,
    /// Identity of the pod.
    ServiceAccount,
    /// What the pod may do.
    Role,
    /// That the pod may do it.
    RoleBinding,
    /// Proxy variables.
    ProxySecret,
    /// The listener program's configuration.
    ConfigSecret,
    /// The pod.
    Pod,
}

/// What one step collects.
pub struct Step {
    /// When it happens.
    pub now: Timestamp,
    /// What is to be done.
    pub effects: Vec<EffectOf<ListenerMachine>>,
    /// When to look again.
    pub wake: Wake,
    /// What keeps the listener from running: the first thing found.
    pub trouble: Option<(String, String)>,
    /// Whether newer copies of the sources are on their way: what is made now would be
    /// out of date.
    pub reading: bool,
    /// Messages of events that are published once.
    pub announced: BTreeSet<String>,
}

impl Step {
    /// Nothing yet.
    pub fn new(now: Timestamp, announced: BTreeSet<String>) -> Self {
        Self {
            now,
            announced,
            effects: Vec::new(),
            wake: Wake::default(),
            trouble: None,
            reading: false,
        }
    }

    /// Sends a request about an object, unless one is in flight or a back-off runs. Says
    /// whether it was sent.
    pub fn send<T: KubeObject>(
        &mut self,
        slot: &mut Owned<T>,
        part: Part,
        verb: Verb,
        what: Option<impl Hash>,
        request: impl FnOnce() -> KubeRequest,
    ) -> bool {
        let what = what.map(|what| (verb, what));
        let free = slot.begin(self.now, what, &mut self.wake);
        if free {
            let tag = ListenerTag::Part(part, verb);
            self.effects.push(Effect::Kube(tag, request()));
        }
        free
    }

    /// Reads an object.
    pub fn read<T: KubeObject>(
        &mut self,
        slot: &mut Owned<T>,
        part: Part,
        target: &ObjectRef,
    ) -> bool {
        self.send(slot, part, Verb::Read, FREELY, || {
            KubeRequest::Get(target.clone())
        })
    }

    /// Reads an object again after 0, 5, 10, … s for as long as it is the same `uid`.
    pub fn poll<T: KubeObject>(
        &mut self,
        slot: &mut Owned<T>,
        part: Part,
        target: &ObjectRef,
        uid: &str,
    ) {
        self.send(slot, part, Verb::Read, Some(uid), || {
            KubeRequest::Get(target.clone())
        });
    }

    /// Keeps the first trouble.
    pub fn trouble(&mut self, reason: &str, message: impl Into<String>) {
        if self.trouble.is_none() {
            self.trouble = Some((reason.to_owned(), message.into()));
        }
    }

    /// Tells why a request about an object fails, if it does.
    pub fn trouble_with<T: KubeObject>(&mut self, slot: &Owned<T>, target: &ObjectRef) {
        if let Some(error) = slot.last_error() {
            self.trouble(word(error.kind), format!("{target}: {error}"));
        }
    }

    /// Whether this has not been said yet; from now on it has.
    pub fn is_news(&mut self, message: &str) -> bool {
        self.announced.insert(message.to_owned())
    }

    /// Publishes an event about the AutoscalingListener.
    pub fn event(
        &mut self,
        al: &AutoscalingListener,
        severity: EventSeverity,
        reason: &'static str,
        message: String,
    ) {
        self.effects.push(Effect::Event(EventNote {
            about: al.reference(),
            uid: al.metadata.uid.clone().unwrap_or_default(),
            severity,
            reason,
            message,
        }));
    }

    /// Counts a pod that has to be made again.
    pub fn recreation(&mut self, reason: &'static str) {
        self.effects
            .push(Effect::Count(Tally::ListenerRecreation { reason }));
    }

    /// Tells the scale set.
    pub fn report(&mut self, report: ListenerReport) {
        self.effects.push(Effect::Report(report));
    }

    /// Everything, the wake-up included.
    pub fn into_effects(mut self) -> Vec<EffectOf<ListenerMachine>> {
        if let Some(time) = self.wake.earliest() {
            let last = self.effects.last();
            let stops = matches!(last, Some(Effect::Stop));
            if !stops {
                self.effects.push(Effect::WakeAt(time));
            }
        }
        self.effects
    }
}

/// One word for the reason of a condition.
const fn word(kind: KubeErrorKind) -> &'static str {
    match kind {
        KubeErrorKind::Forbidden => "Forbidden",
        KubeErrorKind::Invalid => "Invalid",
        KubeErrorKind::QuotaExceeded => "QuotaExceeded",
        KubeErrorKind::NamespaceTerminating => "NamespaceTerminating",
        KubeErrorKind::Unavailable | KubeErrorKind::Unanswered => "ApiServerUnavailable",
        KubeErrorKind::NotFound
        | KubeErrorKind::AlreadyExists
        | KubeErrorKind::Conflict
        | KubeErrorKind::Other => "RequestFailed",
    }
}
