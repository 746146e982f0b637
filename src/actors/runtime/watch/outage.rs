//! For how long something has failed without a success in between, and how long to wait
//! before it is tried again.
//!
//! A success is that the server sends something, or that its answer has stayed open for longer
//! than the back-off. That a request was accepted is none: a watch that is accepted and broken
//! off at once, over and over, is a failure that lasts.

use std::time::Duration;

use tokio::time::Instant;

use crate::actors::core::backoff;

/// How long a watch may fail before the process gives up and starts anew.
pub(super) const GIVE_UP_AFTER: Duration = Duration::from_secs(300);
/// So much later than the back-off says, an attempt is no longer one of the same outage: the
/// machine has slept, say.
const GAP: Duration = Duration::from_secs(30);

/// Consecutive failures.
#[derive(Debug, Default)]
pub(super) struct Outage {
    failures: u32,
    since: Option<Instant>,
    last: Option<Instant>,
    /// Since when the server answers.
    established: Option<Instant>,
}

impl Outage {
    pub(super) const fn failures(&self) -> u32 {
        self.failures
    }

    /// The server has begun to answer.
    pub(super) const fn established(&mut self, now: Instant) {
        self.established = Some(now);
    }

    /// The server has sent something.
    pub(super) fn record_contact(&mut self) {
        *self = Self {
            established: self.established,
            ..Self::default()
        };
    }

    /// Takes in a failure of an attempt.
    pub(super) fn failed(&mut self, began: Instant, now: Instant) {
        let late = self
            .last
            .is_some_and(|last| began.saturating_duration_since(last) > self.longest_wait() + GAP);
        if late || self.is_over(now) {
            *self = Self::default();
        }
        self.established = None;
        self.failures = self.failures.saturating_add(1);
        self.since.get_or_insert(now);
        self.last = Some(now);
    }

    /// Whether what is established now has lived long enough to be a success.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.established.is_some_and(|at| {
            let lived = now.saturating_duration_since(at);
            lived > self.longest_wait().max(Duration::from_secs(1))
        })
    }

    /// Whether it has lasted for too long.
    pub(super) fn is_hopeless(&self, now: Instant) -> bool {
        self.since
            .is_some_and(|since| now.saturating_duration_since(since) >= GIVE_UP_AFTER)
    }

    /// How long to wait after the last failure.
    pub(super) fn wait(&self, who: &str) -> Duration {
        let wait = backoff::REQUESTS.spread(self.failures, who);
        Duration::try_from(wait).unwrap_or_default()
    }

    fn longest_wait(&self) -> Duration {
        Duration::try_from(backoff::REQUESTS.plain(self.failures)).unwrap_or_default()
    }
}
