//! The decisions of leader election: a pure step from what a Lease says, and for how long it has
//! said so, to what is to be done.
//!
//! As in client-go, a holder's clock is never compared with ours: what counts is for how long
//! we have seen the record unchanged. Our own lease is valid from the *sending* of the write that
//! made or renewed it, for a shorter time than others wait; when its answer came tells nothing.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

use crate::clock::Timestamp;

/// How long others wait for a renewal before they take the lease.
pub(super) const DURATION: Duration = Duration::from_secs(15);
/// How long after a renewal was sent its holder still takes the lease for its own.
pub(super) const VALIDITY: Duration = Duration::from_secs(10);
/// How often it is looked at.
pub(super) const RETRY: Duration = Duration::from_secs(2);
/// How often a release is tried against others who write.
const RELEASES: u32 = 3;

/// What a candidate hears.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Input {
    /// It starts, or has waited as long as it wanted to.
    Due,
    /// A read has ended; `None` when there is no Lease.
    Read(Result<Option<Lease>, Failure>),
    /// A write has ended.
    Written(Result<Lease, Failure>),
    /// Nothing is to be written under the lease any more; whatever is under way is forgotten.
    Release,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The Lease was changed, created or deleted since it was read.
    Conflict,
    /// The request was refused, or had no answer in time: a write may or may not have happened.
    Other(String),
}

/// What is to be done next. Requests end within the time given, or count as not answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Read the Lease.
    Get {
        /// For how long at most.
        within: Duration,
    },
    /// Create it.
    Create {
        /// Its content.
        lease: Lease,
        /// For how long at most.
        within: Duration,
    },
    /// Replace the very version that was read.
    Replace {
        /// Its new content, with the resourceVersion of the old one.
        lease: Lease,
        /// For how long at most.
        within: Duration,
    },
    /// Come back after that time.
    Wait(Duration),
    /// The lease was held and is no more, for this reason. The last word.
    Lost(String),
    /// It was released, or somebody else has it, or why it could not be. The last word.
    Released(Result<(), String>),
}

/// A candidate for a Lease. Times count on a clock of its own that is never set.
#[derive(Debug)]
pub(super) struct Election {
    namespace: String,
    name: String,
    identity: String,
    /// What the Lease was last seen to say, and since when.
    seen: Option<(LeaseSpec, Duration)>,
    /// The Lease as our last write left it: the next one is a change of this version.
    own: Option<Lease>,
    /// When the last write was sent.
    sent: Duration,
    /// Until when the lease is ours.
    valid_until: Option<Duration>,
    /// Why it was not renewed.
    trouble: Option<String>,
    /// Whether the last write met another's.
    conflicted: bool,
    /// How often it may yet be tried to release it, once that is wanted.
    releasing: Option<u32>,
}

impl Election {
    pub(super) const fn new(namespace: String, name: String, identity: String) -> Self {
        Self {
            namespace,
            name,
            identity,
            seen: None,
            own: None,
            sent: Duration::ZERO,
            valid_until: None,
            trouble: None,
            conflicted: false,
            releasing: None,
        }
    }

    /// Until when the lease is ours, if it is.
    pub(super) const fn valid_until(&self) -> Option<Duration> {
        self.valid_until
    }

    /// Who was last seen to hold it.
    pub(super) fn holder(&self) -> &str {
        self.seen.as_ref().map_or("", |(spec, _)| holder_of(spec))
    }

    /// Takes in what was heard and says what is next.
    pub(super) fn step(&mut self, now: Duration, time: Timestamp, input: Input) -> Action {
        if let Some(tries) = self.releasing {
            return self.release(now, time, input, tries);
        }
        if input == Input::Release {
            self.releasing = Some(RELEASES);
            return Action::Get { within: RETRY };
        }
        // whatever is heard after that time, others may have acted on it
        if self.valid_until.is_some_and(|until| until <= now) {
            let reason = match input {
                Input::Read(Err(Failure::Other(reason)))
                | Input::Written(Err(Failure::Other(reason))) => Some(reason),
                _ => self.trouble.take(),
            };
            return Action::Lost(reason.unwrap_or_else(|| "it was not renewed in time".to_owned()));
        }
        match input {
            Input::Due => match self.own.take() {
                Some(lease) => self.write(now, time, lease),
                None => self.get(now),
            },
            Input::Read(Ok(lease)) => self.decide(now, time, lease),
            Input::Written(Ok(lease)) => self.written(now, lease),
            // who holds it now, it says itself; not at once again, should it be changed all the time
            Input::Written(Err(Failure::Conflict)) if !self.conflicted => {
                self.conflicted = true;
                self.get(now)
            }
            Input::Read(Err(failure)) | Input::Written(Err(failure)) => {
                self.conflicted = false;
                self.trouble = Some(match failure {
                    Failure::Conflict => "it is being changed by others".to_owned(),
                    Failure::Other(reason) => reason,
                });
                self.wait(now)
            }
            Input::Release => unreachable!("it is handled above"),
        }
    }

    /// What was read decides.
    fn decide(&mut self, now: Duration, time: Timestamp, lease: Option<Lease>) -> Action {
        let Some(lease) = lease else {
            // deleted by a person: its holder does not know yet
            return if self.is_held_by_another(now) {
                self.wait(now)
            } else {
                self.create(now, time)
            };
        };
        self.see(lease.spec.clone().unwrap_or_default(), now);
        if !self.is_held_by_another(now) {
            return self.write(now, time, lease);
        }
        if self.valid_until.is_some() {
            return Action::Lost(format!("{} holds it", self.holder()));
        }
        self.wait(now)
    }

    fn see(&mut self, spec: LeaseSpec, now: Duration) {
        if self.seen.as_ref().is_none_or(|(seen, _)| *seen != spec) {
            self.seen = Some((spec, now));
        }
    }

    /// Whether what was last seen keeps us out.
    fn is_held_by_another(&self, now: Duration) -> bool {
        let Some((spec, since)) = &self.seen else {
            return false;
        };
        let holds_for = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(DURATION, Duration::from_secs);
        let holder = holder_of(spec);
        let expired = now.saturating_sub(*since) > holds_for;
        !holder.is_empty() && holder != self.identity && !expired
    }

    fn written(&mut self, now: Duration, lease: Lease) -> Action {
        self.conflicted = false;
        self.trouble = None;
        self.see(lease.spec.clone().unwrap_or_default(), now);
        let until = self.sent + VALIDITY;
        if until <= now {
            // only of one that did not hold it: it has come too late to rely on
            return self.get(now);
        }
        self.own = Some(lease);
        self.valid_until = Some(until);
        self.wait(now)
    }

    // === actions ===

    /// How long a request may take: a holder has to know before its time is over.
    fn within(&self, now: Duration) -> Duration {
        self.valid_until
            .map_or(VALIDITY, |until| until.saturating_sub(now))
    }

    fn get(&self, now: Duration) -> Action {
        Action::Get {
            within: self.within(now),
        }
    }

    /// Until it is time to look again, and for a holder no longer than its lease is valid.
    pub(super) fn wait(&self, now: Duration) -> Action {
        Action::Wait(RETRY.min(self.within(now)))
    }

    fn create(&mut self, now: Duration, time: Timestamp) -> Action {
        self.sent = now;
        Action::Create {
            lease: Lease {
                metadata: ObjectMeta {
                    name: Some(self.name.clone()),
                    namespace: Some(self.namespace.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.record(None, time)),
            },
            within: self.within(now),
        }
    }

    fn write(&mut self, now: Duration, time: Timestamp, mut lease: Lease) -> Action {
        if lease.metadata.resource_version.is_none() {
            // without it the write would win over whatever has happened in between
            self.trouble = Some("the API server shows it without a resourceVersion".to_owned());
            return self.wait(now);
        }
        self.sent = now;
        lease.spec = Some(self.record(lease.spec.as_ref(), time));
        Action::Replace {
            lease,
            within: self.within(now),
        }
    }

    /// What the Lease is to say.
    fn record(&self, before: Option<&LeaseSpec>, time: Timestamp) -> LeaseSpec {
        let kept = before.filter(|spec| holder_of(spec) == self.identity);
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: kept
                .and_then(|spec| spec.acquire_time.clone())
                .or(Some(MicroTime(time))),
            renew_time: Some(MicroTime(time)),
            lease_transitions: Some(match (before, kept) {
                (Some(_), None) => transitions.saturating_add(1),
                _ => transitions,
            }),
            ..before.cloned().unwrap_or_default()
        }
    }

    // === release ===

    fn release(&mut self, now: Duration, time: Timestamp, input: Input, tries: u32) -> Action {
        let failure = match input {
            Input::Read(Ok(lease)) => {
                return match lease {
                    Some(lease) if self.is_ours(&lease) => self.free(now, time, lease),
                    _ => Action::Released(Ok(())),
                };
            }
            Input::Written(Ok(_)) => return Action::Released(Ok(())),
            Input::Written(Err(Failure::Conflict)) if tries > 1 => {
                self.releasing = Some(tries - 1);
                return Action::Get { within: RETRY };
            }
            Input::Due | Input::Release => return Action::Get { within: RETRY },
            Input::Read(Err(failure)) | Input::Written(Err(failure)) => failure,
        };
        Action::Released(Err(match failure {
            Failure::Conflict => "it is being changed by others".to_owned(),
            Failure::Other(reason) => reason,
        }))
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        let holder = lease.spec.as_ref().map(holder_of);
        holder == Some(&self.identity) && lease.metadata.resource_version.is_some()
    }

    /// Frees it, so that a successor need not wait for it to expire.
    fn free(&mut self, now: Duration, time: Timestamp, mut lease: Lease) -> Action {
        self.sent = now;
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(time));
        Action::Replace {
            lease,
            within: RETRY,
        }
    }
}

fn holder_of(spec: &LeaseSpec) -> &str {
    spec.holder_identity.as_deref().unwrap_or_default()
}

#[cfg(test)]
#[path = "election_tests.rs"]
mod tests;
