//! Everything that can go wrong with a call, on demand.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

/// Decides what goes wrong with a call.
pub trait Interceptor: Send + Sync {
    /// `None` lets the call through.
    fn intercept(&self, call: &CallInfo<'_>) -> Option<Fault>;
}

/// A call before it is answered.
#[derive(Clone, Copy, Debug)]
pub struct CallInfo<'a> {
    /// Its name, as [`crate::messages::ActionsCall::name`] or the client's method has it.
    pub name: &'static str,
    /// Its path, without the tenant.
    pub path: &'a str,
}

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// How long it takes before anything else.
    pub delay: Duration,
    /// What then happens.
    pub outcome: Outcome,
}

/// What happens to a call that something goes wrong with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is answered as usual.
    Answer,
    /// It is refused and has no effect.
    Refuse(Refusal),
    /// It is answered with this status and body and has no effect.
    Replace(u16, Bytes),
    /// It cannot be sent.
    Unreachable,
    /// It takes effect, and the answer is lost.
    LoseAnswer,
    /// It has no effect and is never answered.
    Hang,
}

/// A refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// The service's name for it; empty for an answer that is plain text.
    pub type_name: String,
    /// What it says.
    pub message: String,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
}

impl Refusal {
    /// A refusal with a name.
    pub fn new(status: u16, type_name: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status,
            type_name: type_name.into(),
            message: message.into(),
            headers: Vec::new(),
        }
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl Fault {
    /// The call takes this long, and is answered.
    #[must_use]
    pub const fn delay(delay: Duration) -> Self {
        Self {
            delay,
            outcome: Outcome::Answer,
        }
    }

    /// The call is refused.
    pub fn refuse(status: u16, type_name: &str) -> Self {
        Refusal::new(status, type_name, format!("{type_name} was asked for")).into()
    }
}

impl From<Outcome> for Fault {
    fn from(outcome: Outcome) -> Self {
        Self {
            delay: Duration::ZERO,
            outcome,
        }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Outcome::Refuse(refusal).into()
    }
}

/// Faults asked for in advance, by the name of the call.
#[derive(Debug, Default)]
pub struct Faults(Mutex<BTreeMap<&'static str, Script>>);

#[derive(Debug, Default)]
struct Script {
    next: VecDeque<Option<Fault>>,
    always: Option<Fault>,
}

impl Faults {
    /// The next call of this name, after those asked for already, goes wrong so.
    pub fn next(&self, call: &'static str, fault: impl Into<Fault>) {
        self.script(call, |script| script.next.push_back(Some(fault.into())));
    }

    /// The next call of this name, after those asked for already, goes well.
    pub fn pass(&self, call: &'static str) {
        self.script(call, |script| script.next.push_back(None));
    }

    /// Every call of this name goes wrong so, once those asked for singly are used up.
    pub fn always(&self, call: &'static str, fault: impl Into<Fault>) {
        self.script(call, |script| script.always = Some(fault.into()));
    }

    /// No call of this name goes wrong any more.
    pub fn clear(&self, call: &'static str) {
        self.script(call, |script| *script = Script::default());
    }

    fn script(&self, call: &'static str, change: impl FnOnce(&mut Script)) {
        let mut scripts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(scripts.entry(call).or_default());
    }
}

impl Interceptor for Faults {
    fn intercept(&self, call: &CallInfo<'_>) -> Option<Fault> {
        let mut scripts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let script = scripts.get_mut(call.name)?;
        match script.next.pop_front() {
            Some(next) => next,
            None => script.always.clone(),
        }
    }
}
