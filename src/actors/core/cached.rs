//! An actor's copy of one object, and what is known of the requests about it: which one may be
//! sent now, and what is to be made of the answer.
//!
//! Here stand two of the rules of the architecture: own writes are read back at once and
//! watch events move a copy forward only (1), and one write is in flight per object (2). Besides,
//! how old the copy is (for objects that no watch shows), and a brake for a write that succeeds
//! and is wanted again all the same, because somebody else undoes it. Pure; knows no runtime.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::jiff::SignedDuration;

use super::backoff::{self, RECREATION, Schedule};
use super::wake::Wake;
use crate::clock::Timestamp;
use crate::messages::{KubeAnswer, KubeError, KubeErrorKind, KubeObject, ObjectRef};

/// After so long without it, a write that was repeated is a first one again.
const FORGET_REPEATS_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// For requests that need no brake.
pub const FREELY: Option<()> = None;

/// What a request in flight does; the same error means different things to different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads the object.
    Read,
    /// Creates it.
    Create,
    /// Patches it or its status.
    Patch,
    /// Deletes it.
    Delete,
}

/// What an actor knows of an object.
#[derive(Debug, PartialEq)]
pub enum Presence<T> {
    /// Nothing: it must be read before anything is decided. So it is at the start, and after
    /// a write whose answer was lost.
    Unknown,
    /// There is none.
    Absent,
    /// The newest copy.
    Present(Arc<T>),
}

impl<T> Clone for Presence<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Unknown => Self::Unknown,
            Self::Absent => Self::Absent,
            Self::Present(object) => Self::Present(object.clone()),
        }
    }
}

/// An actor's copy of one object, and what is known of the requests about it.
#[derive(Debug)]
pub struct Cached<T> {
    presence: Presence<T>,
    /// Uid of the last one that is known to be gone: late events about it say nothing.
    deleted_uid: Option<String>,
    /// The request in flight, if there is one.
    in_flight: Option<InFlight>,
    /// How often in a row requests have failed. A read between two writes that fail counts for
    /// nothing.
    failures: u32,
    /// What the last one that failed was to do.
    failed: Option<Verb>,
    not_before: Option<Timestamp>,
    last_error: Option<KubeError>,
    /// When the copy was last an answer of the API server; absent after [`Self::distrust`].
    confirmed: Option<Timestamp>,
    /// Requests with a brake that succeeded of late; few.
    repeats: Vec<Repeated>,
}

/// A request in flight.
#[derive(Debug)]
struct InFlight {
    /// Uid of the copy that was known when it was sent.
    asked_of: Option<String>,
    /// Uid of the last one that was known to be gone when it was sent.
    knew_deleted: Option<String>,
    /// What it does, if it has a brake.
    fingerprint: Option<u64>,
    /// What it answers may be out of date already.
    is_doubtful: bool,
}

/// A request that succeeded.
#[derive(Debug)]
struct Repeated {
    fingerprint: u64,
    at: Timestamp,
    times: u32,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self {
            presence: Presence::Unknown,
            deleted_uid: None,
            in_flight: None,
            failures: 0,
            failed: None,
            not_before: None,
            last_error: None,
            confirmed: None,
            repeats: Vec::new(),
        }
    }
}

impl<T: KubeObject> Cached<T> {
    /// Of an object that is known not to exist.
    #[must_use]
    pub fn absent() -> Self {
        Self {
            presence: Presence::Absent,
            ..Self::default()
        }
    }

    /// Of an object at hand.
    #[must_use]
    pub fn present(object: Arc<T>) -> Self {
        Self {
            presence: Presence::Present(object),
            ..Self::default()
        }
    }

    /// What is known of it.
    #[must_use]
    pub const fn presence(&self) -> &Presence<T> {
        &self.presence
    }

    /// The newest copy, if it is known to exist.
    #[must_use]
    pub const fn get(&self) -> Option<&Arc<T>> {
        match &self.presence {
            Presence::Present(object) => Some(object),
            _ => None,
        }
    }

    /// Whether it is known not to exist.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self.presence, Presence::Absent)
    }

    /// Whether it must be read first.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        matches!(self.presence, Presence::Unknown)
    }

    /// Takes in what a watch showed. Says whether the copy moved forward.
    pub fn observe(&mut self, object: Arc<T>) -> bool {
        let uid = object.meta().uid.as_deref();
        if uid.is_some() && uid == self.deleted_uid.as_deref() {
            return false;
        }
        if let Presence::Present(known) = &self.presence
            && version(object.as_ref()) <= version(known.as_ref())
        {
            return false;
        }
        if self.is_unknown() {
            // what the error left open is answered, and nobody may have to ask again
            self.last_error = None;
        }
        self.presence = Presence::Present(object);
        true
    }

    /// Takes in that a watch showed the object of that uid to be gone. Says whether that was
    /// the one known here.
    pub fn observe_gone(&mut self, uid: &str) -> bool {
        match &self.presence {
            Presence::Present(known) if known.meta().uid.as_deref() == Some(uid) => {
                self.presence = Presence::Absent;
                self.deleted_uid = Some(uid.to_owned());
                true
            }
            _ => {
                self.deleted_uid = Some(uid.to_owned());
                false
            }
        }
    }

    /// Takes in that a watch showed the object of that uid to be gone, where it may only have
    /// lost the label that the watch selects by: unless its deletion had been announced,
    /// it is read to make sure.
    pub fn observe_missing(&mut self, uid: &str) {
        let known = self
            .get()
            .filter(|known| known.meta().uid.as_deref() == Some(uid));
        match known {
            Some(known) if known.meta().deletion_timestamp.is_none() => self.forget(),
            _ => {
                self.observe_gone(uid);
            }
        }
    }

    /// Forgets what is known, so that the object is read next. What a request in flight
    /// answers is forgotten too.
    pub fn forget(&mut self) {
        self.confirmed = None;
        match &mut self.in_flight {
            Some(request) => request.is_doubtful = true,
            None => self.reset(),
        }
    }

    /// As nothing was known, but for what was repeated of late.
    fn reset(&mut self) {
        let repeats = std::mem::take(&mut self.repeats);
        *self = Self {
            confirmed: self.confirmed,
            repeats,
            ..Self::default()
        };
    }

    /// When the copy was last an answer of the API server; absent after [`Self::distrust`].
    #[must_use]
    pub const fn confirmed(&self) -> Option<Timestamp> {
        self.confirmed
    }

    /// Has [`Self::is_stale`] say so from now on, until the object is read again.
    pub const fn distrust(&mut self) {
        self.confirmed = None;
    }

    /// Whether the copy is older than `period`, for objects that no watch shows.
    pub fn is_stale(&self, now: Timestamp, period: SignedDuration, wake: &mut Wake) -> bool {
        let until = self
            .confirmed
            .and_then(|time| time.saturating_add(period).ok());
        match until {
            Some(until) if until > now => {
                wake.at(until);
                false
            }
            _ => true,
        }
    }

    /// Whether a request may be sent now: none is in flight and no back-off runs.
    #[must_use]
    pub fn is_free(&self, now: Timestamp) -> bool {
        self.in_flight.is_none() && self.not_before.is_none_or(|time| time <= now)
    }

    /// Whether a request is in flight.
    #[must_use]
    pub const fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Until when requests have to wait, if they have to.
    #[must_use]
    pub fn waits_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.not_before
            .filter(|time| self.in_flight.is_none() && *time > now)
    }

    /// Whether this request may be sent now; if so, it counts as in flight. If it only has to
    /// wait for some time, `wake` learns until when.
    ///
    /// `what` tells requests apart: one that has succeeded of late and is wanted again was
    /// undone by somebody, and is repeated after 0, 5, 10, … s. [`FREELY`] has no such brake.
    pub fn begin(&mut self, now: Timestamp, what: Option<impl Hash>, wake: &mut Wake) -> bool {
        if self.is_in_flight() {
            return false;
        }
        let fingerprint = what.map(fingerprint);
        let undone = self
            .repeats
            .iter()
            .find(|done| Some(done.fingerprint) == fingerprint);
        let repeat_at =
            undone.map(|done| RECREATION.until(done.at, done.times, &done.fingerprint.to_string()));
        let until = self.waits_until(now).max(repeat_at);
        if let Some(until) = until.filter(|time| *time > now) {
            wake.at(until);
            return false;
        }
        self.in_flight = Some(InFlight {
            asked_of: self.uid(),
            knew_deleted: self.deleted_uid.clone(),
            fingerprint,
            is_doubtful: false,
        });
        true
    }

    fn uid(&self) -> Option<String> {
        self.get().and_then(|known| known.meta().uid.clone())
    }

    /// Lets the next request go at once, whatever failed before.
    pub fn reset_backoff(&mut self) {
        self.retry_now();
        self.last_error = None;
    }

    /// A request was answered. A read says nothing about a write that fails: when the answer to
    /// a write is unclear it is read each time, and the writes would never back off.
    fn answered(&mut self, verb: Verb) {
        if verb == Verb::Read && self.failed.is_some_and(|failed| failed != Verb::Read) {
            self.not_before = None;
            self.last_error = None;
        } else {
            self.reset_backoff();
        }
    }

    /// Lets the next request go at once; why the last one failed stays known.
    pub const fn retry_now(&mut self) {
        self.failures = 0;
        self.failed = None;
        self.not_before = None;
    }

    /// Why the last request failed; `None` after one that succeeded.
    #[must_use]
    pub const fn last_error(&self) -> Option<&KubeError> {
        self.last_error.as_ref()
    }

    /// Takes in the end of a request. `who` spreads the back-off.
    ///
    /// Answers and the errors that are answers move the copy: a lost answer, a conflict
    /// and "already exists" make it unknown, so that it is read next; "not found" makes it
    /// absent. All other errors leave it and start a back-off.
    pub fn finish(
        &mut self,
        now: Timestamp,
        verb: Verb,
        result: &Result<KubeAnswer, KubeError>,
        who: &ObjectRef,
    ) {
        self.finish_with(now, verb, result, who, backoff::REQUESTS);
    }

    /// As [`Self::finish`], with another schedule of back-off.
    pub fn finish_with(
        &mut self,
        now: Timestamp,
        verb: Verb,
        result: &Result<KubeAnswer, KubeError>,
        who: &ObjectRef,
        schedule: Schedule,
    ) {
        let request = self.in_flight.take();
        match reinterpret(verb, result).as_ref() {
            Ok(answer) => {
                self.answered(verb);
                self.take_answer(answer, request.as_ref());
            }
            Err(error) if error.kind == KubeErrorKind::NotFound => {
                self.answered(verb);
                let asked_of = request
                    .as_ref()
                    .and_then(|request| request.asked_of.clone());
                self.mark_deleted(asked_of);
            }
            Err(error) => self.back_off(now, verb, error, who, schedule),
        }
        let Some(request) = request else {
            return;
        };
        if request.is_doubtful && !self.is_absent() {
            self.reset();
        }
        if result.is_ok() {
            self.confirmed = Some(now);
            if let Some(fingerprint) = request.fingerprint {
                self.remember(now, fingerprint);
            }
        }
    }

    fn back_off(
        &mut self,
        now: Timestamp,
        verb: Verb,
        error: &KubeError,
        who: &ObjectRef,
        schedule: Schedule,
    ) {
        if matches!(
            error.kind,
            KubeErrorKind::Conflict | KubeErrorKind::AlreadyExists | KubeErrorKind::Unanswered
        ) {
            self.presence = Presence::Unknown;
        }
        self.failures = self.failures.saturating_add(1);
        self.failed = Some(verb);
        let asked = error
            .retry_after
            .and_then(|wait| now.saturating_add(wait).ok());
        let schedule = match error.kind {
            KubeErrorKind::Forbidden => backoff::DENIED,
            _ => schedule,
        };
        let own = schedule.until(now, self.failures, &who.to_string());
        self.not_before = Some(asked.map_or(own, |time| time.max(own)));
        self.last_error = Some(error.clone());
    }

    fn take_answer(&mut self, answer: &KubeAnswer, request: Option<&InFlight>) {
        let asked_of = request.and_then(|request| request.asked_of.clone());
        let knew_deleted = request.and_then(|request| request.knew_deleted.clone());
        match answer {
            KubeAnswer::Object(object) => {
                if let Some(object) = T::from_object(object) {
                    self.take_object(object, knew_deleted);
                }
            }
            KubeAnswer::Deleted => self.mark_deleted(asked_of),
            KubeAnswer::Objects(_) => {}
        }
    }

    /// Takes in the object of an answer. The watch may have been faster than the answer: it may
    /// have shown a newer state, the end of that object, or another of its name.
    fn take_object(&mut self, object: Arc<T>, knew_deleted: Option<String>) {
        let uid = object.meta().uid.as_ref();
        if uid.is_some() && uid == self.deleted_uid.as_ref() {
            if knew_deleted.as_ref() != uid {
                if self.uid().as_ref() == uid || self.is_unknown() {
                    self.presence = Presence::Absent;
                }
                return;
            }
            // asked after that: what was shown to be gone is there
            self.deleted_uid = None;
        }
        match &self.presence {
            Presence::Present(known) if version(known.as_ref()) > version(object.as_ref()) => {}
            _ => self.presence = Presence::Present(object),
        }
    }

    /// Takes in the answer that there is none. It speaks of when it was asked: one that a watch
    /// has shown since is another, made later, and when that goes the watch says so.
    fn mark_deleted(&mut self, asked_of: Option<String>) {
        let known = self.uid();
        if known.is_some() && known != asked_of {
            self.deleted_uid = asked_of.or(self.deleted_uid.take());
            return;
        }
        self.deleted_uid = known.or(self.deleted_uid.take());
        self.presence = Presence::Absent;
    }

    fn remember(&mut self, now: Timestamp, fingerprint: u64) {
        self.repeats
            .retain(|done| now.duration_since(done.at) < FORGET_REPEATS_AFTER);
        let known = self
            .repeats
            .iter_mut()
            .find(|done| done.fingerprint == fingerprint);
        match known {
            Some(done) => {
                done.at = now;
                done.times += 1;
            }
            None => self.repeats.push(Repeated {
                fingerprint,
                at: now,
                times: 0,
            }),
        }
    }
}

/// "Not found" says nothing about the object when it answers a create (its namespace is
/// missing), and must be made sure of when it answers a patch.
fn reinterpret(
    verb: Verb,
    result: &Result<KubeAnswer, KubeError>,
) -> Cow<'_, Result<KubeAnswer, KubeError>> {
    let kind = match (verb, result) {
        (Verb::Create, Err(error)) if error.kind == KubeErrorKind::NotFound => KubeErrorKind::Other,
        (Verb::Patch, Err(error)) if error.kind == KubeErrorKind::NotFound => {
            KubeErrorKind::Conflict
        }
        _ => return Cow::Borrowed(result),
    };
    let changed = result.clone().map_err(|error| KubeError { kind, ..error });
    Cow::Owned(changed)
}

/// The same for the same content, in every run.
fn fingerprint(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// An object's resourceVersion as a number, so that two can be put in order; 0 when it has
/// none that is one.
#[must_use]
pub fn version<T: KubeObject>(object: &T) -> u64 {
    object
        .meta()
        .resource_version
        .as_deref()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
