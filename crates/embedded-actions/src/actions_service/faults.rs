//! Everything that can go wrong with a call, on demand.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::mangling::Mangling;

/// Decides what goes wrong with a call.
pub trait Interceptor: Send + Sync {
    /// `None` lets the call through.
    fn intercept(&self, call: &CallInfo<'_>) -> Option<Fault>;
}

/// A call before it is answered.
#[derive(Clone, Copy, Debug)]
pub struct CallInfo<'a> {
    /// Its name, one of [`CALLS`](super::CALLS): that of the client's method.
    pub name: &'static str,
    /// Its path.
    pub path: &'a str,
    /// Its query; empty without one.
    pub query: &'a str,
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
    /// It is refused in words that repeat what it was authorized with, and its body.
    Echo,
    /// It takes effect, and a token in its answer has a number for a name (`jti`). For `register`,
    /// `open_session` and `refresh_session`.
    NumberToken,
    /// It takes effect, and its answer is changed on the way.
    Mangle(Mangling),
    /// It is answered as usual, after somebody else has registered the runner that it is about
    /// for this scale set. For `generate_jit_config`.
    Forestall(i64),
    /// It takes effect for the first half of what it asks for, rounded down. For
    /// `acquire_jobs`.
    Halve,
    /// It cannot be sent.
    Unreachable,
    /// It has no effect, and the connection breaks before an answer.
    Reset,
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

impl From<Mangling> for Fault {
    fn from(mangling: Mangling) -> Self {
        Outcome::Mangle(mangling).into()
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Outcome::Refuse(refusal).into()
    }
}

/// Faults asked for in advance, by the name of the call.
#[derive(Debug)]
pub struct Faults {
    /// The names there are.
    calls: &'static [&'static str],
    scripts: Mutex<BTreeMap<&'static str, Script>>,
}

#[derive(Clone, Debug, Default)]
struct Script {
    next: VecDeque<Option<Fault>>,
    /// Until then, after those above.
    lasting: Option<(Instant, Fault)>,
    always: Option<Fault>,
}

/// What is asked for of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The call's name.
    pub call: &'static str,
    /// How many of the next calls have their fate.
    pub next: usize,
    /// How long all calls after these go wrong.
    pub lasting: Option<Duration>,
    /// Whether all calls after that go wrong.
    pub always: bool,
}

impl Faults {
    /// Of a service with these calls.
    #[must_use]
    pub const fn of(calls: &'static [&'static str]) -> Self {
        Self {
            calls,
            scripts: Mutex::new(BTreeMap::new()),
        }
    }

    /// The next call of this name, after those asked for already, goes wrong so.
    pub fn next(&self, call: &'static str, fault: impl Into<Fault>) {
        self.times(call, 1, fault);
    }

    /// The next calls of this name, after those asked for already, go wrong so.
    pub fn times(&self, call: &'static str, count: usize, fault: impl Into<Fault>) {
        let fault = fault.into();
        self.script(call, |script| {
            let more = std::iter::repeat_n(Some(fault), count);
            script.next.extend(more);
        });
    }

    /// The next call of this name, after those asked for already, goes well.
    pub fn pass(&self, call: &'static str) {
        self.script(call, |script| script.next.push_back(None));
    }

    /// Every call of this name goes wrong so for a while, once those asked for singly are used
    /// up.
    pub fn lasting(&self, call: &'static str, time: Duration, fault: impl Into<Fault>) {
        let until = Instant::now() + time;
        self.script(call, |script| script.lasting = Some((until, fault.into())));
    }

    /// Every call of this name goes wrong so, once those asked for otherwise are over.
    pub fn always(&self, call: &'static str, fault: impl Into<Fault>) {
        self.script(call, |script| script.always = Some(fault.into()));
    }

    /// No call of this name goes wrong any more.
    pub fn clear(&self, call: &'static str) {
        self.script(call, |script| *script = Script::default());
    }

    /// No call goes wrong any more.
    pub fn clear_all(&self) {
        self.scripts().clear();
    }

    /// What is asked for and has not come to pass yet, by call.
    #[must_use]
    pub fn standing(&self) -> Vec<Standing> {
        let now = Instant::now();
        let scripts = self.scripts();
        let standing = scripts.iter().map(|(call, script)| Standing {
            call,
            next: script.next.len(),
            lasting: script
                .lasting
                .as_ref()
                .map(|(until, _)| until.duration_since(now))
                .filter(|left| !left.is_zero()),
            always: script.always.is_some(),
        });
        standing
            .filter(|one| one.next > 0 || one.lasting.is_some() || one.always)
            .collect()
    }

    fn scripts(&self) -> MutexGuard<'_, BTreeMap<&'static str, Script>> {
        self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn script(&self, call: &'static str, change: impl FnOnce(&mut Script)) {
        // under a name that no call has it would never come to pass
        debug_assert!(self.calls.contains(&call), "there is no call {call}");
        change(self.scripts().entry(call).or_default());
    }
}

impl Interceptor for Faults {
    fn intercept(&self, call: &CallInfo<'_>) -> Option<Fault> {
        let mut scripts = self.scripts();
        let script = scripts.get_mut(call.name)?;
        if let Some(next) = script.next.pop_front() {
            return next;
        }
        match &script.lasting {
            Some((until, fault)) if *until > Instant::now() => Some(fault.clone()),
            _ => script.always.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::routes::CALLS;
    use super::*;

    fn fate(faults: &Faults, name: &'static str) -> Option<u16> {
        let fault = faults.intercept(&CallInfo {
            name,
            path: "/",
            query: "",
        })?;
        match fault.outcome {
            Outcome::Refuse(refusal) => Some(refusal.status),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn single_faults_come_first_then_lasting_ones_then_those_for_ever() {
        let faults = Faults::of(&CALLS);
        faults.always("register", Fault::refuse(500, ""));
        faults.lasting("register", Duration::from_secs(30), Fault::refuse(403, ""));
        faults.times("register", 2, Fault::refuse(401, ""));
        faults.pass("register");
        let fates: Vec<_> = (0..5).map(|_| fate(&faults, "register")).collect();
        assert_eq!(fates, [Some(401), Some(401), None, Some(403), Some(403)]);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(fate(&faults, "register"), Some(500));
        assert_eq!(fate(&faults, "open_session"), None);
        faults.clear("register");
        assert_eq!(fate(&faults, "register"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_come_to_pass_stands_no_more() {
        let faults = Faults::of(&CALLS);
        faults.times("find_runner", 2, Outcome::Hang);
        faults.lasting("get_runner", Duration::from_secs(9), Outcome::Hang);
        let standing = |call, next, lasting: Option<u64>| Standing {
            call,
            next,
            lasting: lasting.map(Duration::from_secs),
            always: false,
        };
        let both = [
            standing("find_runner", 2, None),
            standing("get_runner", 0, Some(9)),
        ];
        assert_eq!(faults.standing(), both);
        for _ in 0..2 {
            let call = CallInfo {
                name: "find_runner",
                path: "/",
                query: "",
            };
            faults.intercept(&call);
        }
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(faults.standing(), []);
    }
}
