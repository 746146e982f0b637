//! What is known of the runner's registration in the Actions service, and of the calls
//! about it. One call is under way at a time.

use crate::actors::core::backoff::Schedule;
use crate::clock::{Timestamp, after};
use crate::messages::reason::code_of_call;
use crate::messages::{ActionsAnswer, ActionsError, ActionsErrorKind, JitConfig, Reason, codes};

/// Calls that failed: 1, 2, 4, … s up to a minute, so that mended credentials are noticed.
const CALLS: Schedule = Schedule {
    first_ms: 1_000,
    cap_ms: 60_000,
};

/// Removals that were refused for a running job: half a minute, growing to five. A runner that ends
/// by itself is seen to, so nothing is lost by the wait.
const REFUSALS: Schedule = Schedule {
    first_ms: 30_000,
    cap_ms: 300_000,
};

/// After so many seconds with credentials of no use, a runner is not looked for any longer by one
/// that is to go.
const USELESS_FOR: i64 = 20;

/// What is known of the registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is none for certain.
    None,
    /// There may be one.
    Unknown,
    /// There is one, under this id. Never 0.
    Known(i64),
    /// There was one, and it was removed or left behind for good.
    Removed,
}

/// A call under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Registers the runner.
    Generate,
    /// Looks it up by name.
    Find,
    /// Removes the registration under this id.
    Remove(i64),
}

/// How a removal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is removed, or was not there.
    Done,
    /// The runner has a job.
    Refused,
    /// It cannot be asked for: the credentials are of no use.
    GivenUp(String),
    /// It cannot be asked for while the controller may not read the credentials.
    Denied,
}

/// What is known of the registration, and of the calls about it.
#[derive(Debug)]
pub struct Registration {
    /// What is known of it.
    pub standing: Standing,
    /// The JIT configuration, until it is in the Secret.
    pub jit: Option<JitConfig>,
    /// Whether the name is in use by a runner that we cannot remove.
    pub taken: Option<Reason>,
    /// Whether the last removal was refused for a running job.
    pub job_runs: bool,
    /// The id that was last taken back.
    taken_back: Option<i64>,
    call: Option<Call>,
    find_next: bool,
    /// Since when the credentials are of no use for a look-up.
    useless_since: Option<Timestamp>,
    failures: u32,
    /// How often in a row a removal was refused for a running job.
    refusals: u32,
    not_before: Option<Timestamp>,
    error: Option<ActionsError>,
}

impl Registration {
    /// Of a runner of which that is known.
    pub const fn new(standing: Standing) -> Self {
        Self {
            standing,
            jit: None,
            taken: None,
            job_runs: false,
            taken_back: None,
            call: None,
            find_next: false,
            useless_since: None,
            failures: 0,
            refusals: 0,
            not_before: None,
            error: None,
        }
    }

    /// Takes in an id found on record, unless something newer is known.
    pub const fn learn(&mut self, id: Option<i64>) {
        if let (Standing::Unknown, Some(id)) = (self.standing, id) {
            self.standing = Standing::Known(id);
        }
    }

    /// The id, if there is a registration and it is known.
    pub const fn id(&self) -> Option<i64> {
        match self.standing {
            Standing::Known(id) => Some(id),
            _ => None,
        }
    }

    /// Whether the registration of that id was taken back.
    pub fn is_taken_back(&self, id: i64) -> bool {
        self.taken_back == Some(id)
    }

    /// Whether no call is under way and none has to wait.
    pub fn is_free(&self, now: Timestamp) -> bool {
        self.call.is_none() && self.not_before.is_none_or(|time| time <= now)
    }

    /// Whether a call is under way.
    pub const fn is_calling(&self) -> bool {
        self.call.is_some()
    }

    /// Until when calls have to wait, if they have to.
    pub fn waits_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.not_before
            .filter(|time| self.call.is_none() && *time > now)
    }

    /// Why the last call failed, if it did.
    pub fn trouble(&self) -> Option<Reason> {
        let error = self.error.as_ref()?;
        Some(Reason::new(code_of_call(error.kind), error.message.clone()))
    }

    /// The next call on the way to a JIT configuration.
    pub const fn next_towards_jit(&self) -> Call {
        match self.standing {
            _ if self.find_next => Call::Find,
            Standing::Known(id) => Call::Remove(id),
            _ => Call::Generate,
        }
    }

    /// Forgets that a removal was refused: what asked for it is given up.
    pub const fn forget_refusals(&mut self) {
        self.job_runs = false;
        self.refusals = 0;
    }

    /// The runner cannot work any more: that a removal was refused grows no wait.
    pub fn hasten(&mut self, now: Timestamp) {
        if self.refusals > 0 {
            self.refusals = 0;
            let soon = now.saturating_add(REFUSALS.plain(1)).unwrap_or(now);
            self.not_before = self.not_before.map(|time| time.min(soon));
        }
    }

    /// Whether the last removal was refused, and the one before was not.
    pub const fn is_first_refusal(&self) -> bool {
        self.refusals == 1
    }

    /// Notes that a call was sent.
    pub const fn begin(&mut self, call: Call) {
        self.call = Some(call);
    }

    /// Takes in the end of a registering call.
    pub fn generated(
        &mut self,
        now: Timestamp,
        result: Result<ActionsAnswer, ActionsError>,
        who: &str,
    ) {
        self.call = None;
        match result {
            Ok(ActionsAnswer::Jit(jit)) if jit.runner.id > 0 => {
                self.succeed();
                self.standing = Standing::Known(jit.runner.id);
                self.jit = Some(jit);
            }
            Ok(_) => {
                self.standing = Standing::Unknown;
                self.find_next = true;
                self.fail(now, unexpected("a JIT configuration"), who);
            }
            Err(error) if error.kind == ActionsErrorKind::RunnerExists => {
                self.standing = Standing::Unknown;
                self.find_next = true;
                self.failures = self.failures.saturating_add(1);
                if self.failures > 1 {
                    self.not_before = Some(CALLS.until(now, self.failures, who));
                }
                self.error = Some(error);
            }
            Err(error) => {
                // it may have taken effect all the same
                if matches!(
                    error.kind,
                    ActionsErrorKind::Unavailable | ActionsErrorKind::Other
                ) {
                    self.standing = Standing::Unknown;
                }
                self.fail(now, error, who);
            }
        }
    }

    /// Takes in the end of a look-up. `ours` is the scale set that our runners belong to. Says
    /// when it cannot be had any more.
    pub fn found(
        &mut self,
        now: Timestamp,
        result: Result<ActionsAnswer, ActionsError>,
        ours: i64,
        who: &str,
    ) -> Option<Removal> {
        self.call = None;
        let since = self.useless_since.take();
        match result {
            Ok(ActionsAnswer::Runner(None)) => {
                self.standing = Standing::None;
                let after_conflict = std::mem::take(&mut self.find_next);
                if after_conflict {
                    // the service contradicted itself: give it a moment
                    self.not_before = Some(CALLS.until(now, self.failures.max(1), who));
                }
            }
            Ok(ActionsAnswer::Runner(Some(runner))) => {
                self.find_next = false;
                if runner.scale_set_id == ours && runner.id > 0 {
                    self.standing = Standing::Known(runner.id);
                } else {
                    self.standing = Standing::None;
                    self.taken = Some(Reason::new(
                        codes::RUNNER_NAME_TAKEN,
                        format!(
                            "runner {} of scale set {} has the name already",
                            runner.id, runner.scale_set_id
                        ),
                    ));
                }
            }
            Ok(_) => self.fail(now, unexpected("a runner"), who),
            Err(error) if error.kind == ActionsErrorKind::RunnerNotFound => {
                self.find_next = false;
                self.standing = Standing::None;
            }
            Err(error) => {
                let useless = matches!(
                    error.kind,
                    ActionsErrorKind::Credentials | ActionsErrorKind::Config
                );
                let message = error.message.clone();
                self.fail(now, error, who);
                if useless {
                    let since = *self.useless_since.insert(since.unwrap_or(now));
                    let given_up = after(since, USELESS_FOR) <= now;
                    return given_up.then_some(Removal::GivenUp(message));
                }
            }
        }
        None
    }

    /// Takes in the end of a removal.
    pub fn removed(
        &mut self,
        now: Timestamp,
        result: Result<ActionsAnswer, ActionsError>,
        who: &str,
    ) -> Option<Removal> {
        self.call = None;
        match result {
            Ok(_) => Some(self.gone()),
            Err(error) => match error.kind {
                ActionsErrorKind::RunnerNotFound => Some(self.gone()),
                ActionsErrorKind::JobStillRunning => {
                    self.job_runs = true;
                    self.refusals = self.refusals.saturating_add(1);
                    let wait = REFUSALS.plain(self.refusals);
                    self.not_before = Some(now.saturating_add(wait).unwrap_or(now));
                    // that is an answer: whatever kept it from being asked is over
                    self.error = None;
                    Some(Removal::Refused)
                }
                ActionsErrorKind::Credentials
                | ActionsErrorKind::Config
                | ActionsErrorKind::Unauthorized => {
                    let message = error.message.clone();
                    self.fail(now, error, who);
                    Some(Removal::GivenUp(message))
                }
                ActionsErrorKind::Denied => {
                    self.fail(now, error, who);
                    Some(Removal::Denied)
                }
                _ => {
                    self.fail(now, error, who);
                    None
                }
            },
        }
    }

    /// Failures stay counted: a service that goes on refusing the name after it agreed to
    /// free it must not be asked in a circle.
    fn gone(&mut self) -> Removal {
        self.forget_refusals();
        self.find_next = false;
        self.not_before = None;
        self.error = None;
        self.taken_back = self.id();
        self.standing = Standing::Removed;
        Removal::Done
    }

    fn succeed(&mut self) {
        self.find_next = false;
        self.failures = 0;
        self.not_before = None;
        self.error = None;
    }

    fn fail(&mut self, now: Timestamp, error: ActionsError, who: &str) {
        self.failures = self.failures.saturating_add(1);
        let own = CALLS.until(now, self.failures, who);
        let asked = error
            .retry_after
            .and_then(|wait| now.saturating_add(wait).ok());
        self.not_before = Some(asked.map_or(own, |time| time.max(own)));
        self.error = Some(error);
    }
}

fn unexpected(what: &str) -> ActionsError {
    ActionsError {
        kind: ActionsErrorKind::Other,
        message: format!("the Actions service did not answer with {what}"),
        retry_after: None,
    }
}
