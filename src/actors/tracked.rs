//! An actor's copy of one object, and what is known of the requests about it.
//!
//! Here stand two of the rules of the architecture: own writes are read back at once and
//! watch events move a copy forward only (1), and one write is in flight per object (2).
//! Pure; knows no runtime.

use std::sync::Arc;

use super::backoff::{self, Schedule};
use crate::clock::Timestamp;
use crate::messages::{KubeAnswer, KubeError, KubeErrorKind, KubeObject, ObjectRef};

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
pub struct Tracked<T> {
    presence: Presence<T>,
    /// Uid of the last one that is known to be gone: late events about it say nothing.
    dead: Option<String>,
    in_flight: bool,
    failures: u32,
    not_before: Option<Timestamp>,
    last_error: Option<KubeError>,
}

impl<T> Default for Tracked<T> {
    fn default() -> Self {
        Self {
            presence: Presence::Unknown,
            dead: None,
            in_flight: false,
            failures: 0,
            not_before: None,
            last_error: None,
        }
    }
}

impl<T: KubeObject> Tracked<T> {
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
        if uid.is_some() && uid == self.dead.as_deref() {
            return false;
        }
        if let Presence::Present(known) = &self.presence
            && version(object.as_ref()) <= version(known.as_ref())
        {
            return false;
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
                self.dead = Some(uid.to_owned());
                true
            }
            _ => {
                self.dead = Some(uid.to_owned());
                false
            }
        }
    }

    /// Whether a request may be sent now: none is in flight and no back-off runs.
    #[must_use]
    pub fn is_free(&self, now: Timestamp) -> bool {
        !self.in_flight && self.not_before.is_none_or(|time| time <= now)
    }

    /// Whether a request is in flight.
    #[must_use]
    pub const fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    /// Until when requests have to wait, if they have to.
    #[must_use]
    pub fn waits_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.not_before
            .filter(|time| !self.in_flight && *time > now)
    }

    /// Notes that a request was sent.
    pub const fn begin(&mut self) {
        self.in_flight = true;
    }

    /// Lets the next request go at once, whatever failed before.
    pub fn forgive(&mut self) {
        self.failures = 0;
        self.not_before = None;
        self.last_error = None;
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
        result: &Result<KubeAnswer, KubeError>,
        who: &ObjectRef,
    ) {
        self.finish_with(now, result, who, backoff::REQUESTS);
    }

    /// As [`Self::finish`], with another schedule of back-off.
    pub fn finish_with(
        &mut self,
        now: Timestamp,
        result: &Result<KubeAnswer, KubeError>,
        who: &ObjectRef,
        schedule: Schedule,
    ) {
        self.in_flight = false;
        match result {
            Ok(answer) => {
                self.forgive();
                self.take_answer(answer);
            }
            Err(error) => {
                match error.kind {
                    KubeErrorKind::NotFound => {
                        self.bury();
                        self.forgive();
                        return;
                    }
                    KubeErrorKind::Conflict
                    | KubeErrorKind::AlreadyExists
                    | KubeErrorKind::Unanswered => self.presence = Presence::Unknown,
                    _ => {}
                }
                self.failures = self.failures.saturating_add(1);
                let asked = error
                    .retry_after
                    .and_then(|wait| now.saturating_add(wait).ok());
                let own = schedule.until(now, self.failures, &who.to_string());
                self.not_before = Some(asked.map_or(own, |time| time.max(own)));
                self.last_error = Some(error.clone());
            }
        }
    }

    fn take_answer(&mut self, answer: &KubeAnswer) {
        match answer {
            KubeAnswer::Object(object) => {
                if let Some(object) = T::from_object(object) {
                    match &self.presence {
                        // the watch may have been faster than the answer
                        Presence::Present(known)
                            if known.meta().uid == object.meta().uid
                                && version(known.as_ref()) > version(object.as_ref()) => {}
                        _ => self.presence = Presence::Present(object),
                    }
                }
            }
            KubeAnswer::Deleted => self.bury(),
            KubeAnswer::Objects(_) => {}
        }
    }

    fn bury(&mut self) {
        if let Presence::Present(known) = &self.presence {
            self.dead = known.meta().uid.clone();
        }
        self.presence = Presence::Absent;
    }
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
