//! One step of a listener: what its requests are called, and what it notes on its way.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::Hash;

use super::state::ListenerMachine;
use crate::actors::core::cached::{Cached, FREELY, Verb};
use crate::actors::core::step_context::StepContext;
use crate::messages::reason::code_of_request;
use crate::messages::{Effect, KubeObject, KubeRequest, ListenerReport, ObjectRef, Reason, Tally};

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

/// One step of a listener.
pub type ListenerContext = StepContext<ListenerMachine>;

/// What a step of a listener notes for its end.
#[derive(Debug, Default)]
pub struct ListenerNotes {
    /// What keeps the listener from running: the first thing found.
    pub trouble: Option<Reason>,
    /// Whether newer copies of the sources are on their way: what is made now would be
    /// out of date.
    pub reading: bool,
    /// Messages of events that are published once.
    pub announced: BTreeSet<String>,
}

impl ListenerContext {
    /// Sends a request about one of the objects that a listener keeps, unless one is in flight or
    /// a back-off runs. Says whether it was sent.
    pub fn send_part<T: KubeObject>(
        &mut self,
        cached: &mut Cached<T>,
        part: Part,
        verb: Verb,
        what: Option<impl Hash>,
        request: impl FnOnce() -> KubeRequest,
    ) -> bool {
        let what = what.map(|what| (verb, what));
        self.send(cached, ListenerTag::Part(part, verb), what, request)
    }

    /// Reads one of these objects.
    pub fn read_part<T: KubeObject>(
        &mut self,
        cached: &mut Cached<T>,
        part: Part,
        target: &ObjectRef,
    ) -> bool {
        self.send_part(cached, part, Verb::Read, FREELY, || {
            KubeRequest::Get(target.clone())
        })
    }

    /// Reads one again after 0, 5, 10, … s for as long as it is the same `uid`.
    pub fn poll<T: KubeObject>(
        &mut self,
        cached: &mut Cached<T>,
        part: Part,
        target: &ObjectRef,
        uid: &str,
    ) {
        self.send_part(cached, part, Verb::Read, Some(uid), || {
            KubeRequest::Get(target.clone())
        });
    }

    /// Keeps the first trouble.
    pub fn trouble(&mut self, code: impl Into<Cow<'static, str>>, message: impl Into<String>) {
        if self.notes.trouble.is_none() {
            self.notes.trouble = Some(Reason::new(code, message));
        }
    }

    /// Tells why a request about an object fails, if it does.
    pub fn trouble_with<T: KubeObject>(&mut self, cached: &Cached<T>, target: &ObjectRef) {
        if let Some(error) = cached.last_error() {
            self.trouble(code_of_request(error.kind), format!("{target}: {error}"));
        }
    }

    /// Whether this has not been said yet; from now on it has.
    pub fn is_news(&mut self, message: &str) -> bool {
        self.notes.announced.insert(message.to_owned())
    }

    /// Counts a pod that has to be made again.
    pub fn count_recreation(&mut self, reason: &'static str) {
        self.push(Effect::Count(Tally::ListenerRecreation { reason }));
    }

    /// Tells the scale set.
    pub fn report(&mut self, report: ListenerReport) {
        self.push(Effect::Report(report));
    }
}
