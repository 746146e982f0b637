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
    /// Uid of the copy that was known when the request in flight was sent.
    asked_of: Option<String>,
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
            asked_of: None,
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
    pub fn begin(&mut self) {
        self.in_flight = true;
        self.asked_of = self.uid();
    }

    fn uid(&self) -> Option<String> {
        self.get().and_then(|known| known.meta().uid.clone())
    }

    /// Lets the next request go at once, whatever failed before.
    pub fn forgive(&mut self) {
        self.failures = 0;
        self.not_before = None;
        self.last_error = None;
    }

    /// Lets the next request go at once; why the last one failed stays known.
    pub const fn hurry(&mut self) {
        self.failures = 0;
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
                let schedule = match error.kind {
                    KubeErrorKind::Forbidden => backoff::DENIED,
                    _ => schedule,
                };
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
                    // the watch may have been faster than the answer
                    if self.dead.is_some() && self.dead == object.meta().uid {
                        self.presence = Presence::Absent;
                        return;
                    }
                    match &self.presence {
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

    /// Takes in the answer that there is none. It speaks of when it was asked: one that a watch
    /// has shown since is another, made later, and when that goes the watch says so.
    fn bury(&mut self) {
        let known = self.uid();
        if known.is_some() && known != self.asked_of {
            self.dead = self.asked_of.take().or(self.dead.take());
            return;
        }
        self.dead = known.or(self.dead.take());
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::messages::{Kind, Object};

    fn pod(uid: &str, version: u64) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        pod.metadata.resource_version = Some(version.to_string());
        Arc::new(pod)
    }

    fn answer(pod: &Arc<Pod>) -> Result<KubeAnswer, KubeError> {
        Ok(KubeAnswer::Object(Object::Pod(pod.clone())))
    }

    fn error(kind: KubeErrorKind) -> Result<KubeAnswer, KubeError> {
        Err(KubeError {
            kind,
            message: "no".to_owned(),
            retry_after: None,
        })
    }

    fn who() -> ObjectRef {
        ObjectRef::new(Kind::Pod, "ci", "a")
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn events_move_a_copy_forward_only() {
        let mut tracked = Tracked::present(pod("u", 9));
        assert!(!tracked.observe(pod("u", 9)));
        assert!(!tracked.observe(pod("u", 3)));
        assert!(tracked.observe(pod("u", 10)));
    }

    #[test]
    fn a_write_is_read_back_from_its_answer_and_older_events_are_dropped() {
        let mut tracked = Tracked::<Pod>::absent();
        tracked.begin();
        assert!(!tracked.is_free(NOW));
        tracked.finish(NOW, &answer(&pod("u", 20)), &who());
        assert!(tracked.is_free(NOW));
        assert!(!tracked.observe(pod("u", 19)));
        assert_eq!(version(tracked.get().unwrap().as_ref()), 20);
    }

    #[test]
    fn an_answer_that_the_watch_has_overtaken_changes_nothing() {
        let mut tracked = Tracked::present(pod("u", 5));
        tracked.begin();
        tracked.observe(pod("u", 8));
        tracked.finish(NOW, &answer(&pod("u", 7)), &who());
        assert_eq!(version(tracked.get().unwrap().as_ref()), 8);
    }

    #[test]
    fn the_dead_do_not_come_back_by_late_events_or_answers() {
        let mut tracked = Tracked::present(pod("u", 5));
        assert!(tracked.observe_gone("u"));
        assert!(!tracked.observe(pod("u", 6)));
        tracked.finish(NOW, &answer(&pod("u", 7)), &who());
        assert!(tracked.is_absent());
        assert!(tracked.observe(pod("successor", 8)));
        assert!(!tracked.observe_gone("u"));
        assert!(tracked.get().is_some());
    }

    #[test]
    fn what_may_or_may_not_have_happened_is_read_next_after_a_back_off() {
        for kind in [
            KubeErrorKind::Unanswered,
            KubeErrorKind::Conflict,
            KubeErrorKind::AlreadyExists,
        ] {
            let mut tracked = Tracked::present(pod("u", 5));
            tracked.begin();
            tracked.finish(NOW, &error(kind), &who());
            assert!(tracked.is_unknown(), "{kind:?}");
            assert!(!tracked.is_free(NOW));
            let at = tracked.waits_until(NOW).unwrap();
            assert!(tracked.is_free(at));
        }
    }

    #[test]
    fn what_a_watch_shows_settles_what_an_error_left_open() {
        let mut tracked = Tracked::<Pod>::absent();
        tracked.begin();
        tracked.finish(NOW, &error(KubeErrorKind::AlreadyExists), &who());
        assert!(tracked.last_error().is_some());
        assert!(tracked.observe(pod("u", 5)));
        assert!(tracked.last_error().is_none());
        assert!(!tracked.is_free(NOW), "the back-off stays");

        tracked.finish(NOW, &error(KubeErrorKind::Invalid), &who());
        assert!(tracked.observe(pod("u", 6)));
        let refused = tracked.last_error().map(|error| error.kind);
        assert_eq!(refused, Some(KubeErrorKind::Invalid), "it is refused still");
    }

    #[test]
    fn a_late_answer_that_there_is_none_does_not_bury_who_came_since() {
        let answers = || [error(KubeErrorKind::NotFound), Ok(KubeAnswer::Deleted)];
        for late in answers() {
            let before: [fn() -> Tracked<Pod>; 3] = [
                || Tracked::present(pod("old", 5)),
                Tracked::absent,
                Tracked::default,
            ];
            for tracked in before {
                let mut tracked = tracked();
                tracked.begin();
                assert!(tracked.observe(pod("new", 9)));
                tracked.finish(NOW, &late, &who());
                let uid = tracked.get().and_then(|pod| pod.metadata.uid.clone());
                assert_eq!(uid.as_deref(), Some("new"), "{late:?}");
                assert!(tracked.is_free(NOW), "{late:?}");
                // and what comes late of the one before says nothing
                tracked.observe_gone("old");
                assert!(!tracked.observe(pod("old", 6)), "{late:?}");
                assert!(tracked.observe_gone("new"), "{late:?}");
            }
        }
        for answer in answers() {
            let mut tracked = Tracked::present(pod("u", 5));
            tracked.begin();
            // the same, as it was marked to go
            assert!(tracked.observe(pod("u", 9)));
            tracked.finish(NOW, &answer, &who());
            assert!(tracked.is_absent(), "{answer:?}");
            assert!(!tracked.observe(pod("u", 10)), "{answer:?}");
        }
    }

    #[test]
    fn not_found_is_an_answer() {
        let mut tracked = Tracked::present(pod("u", 5));
        tracked.begin();
        tracked.finish(NOW, &error(KubeErrorKind::NotFound), &who());
        assert!(tracked.is_absent() && tracked.is_free(NOW));
    }

    #[test]
    fn failures_back_off_further_each_time_and_a_success_forgives() {
        let mut tracked = Tracked::present(pod("u", 5));
        let mut waits = Vec::new();
        for _ in 0..3 {
            tracked.begin();
            tracked.finish(NOW, &error(KubeErrorKind::Unavailable), &who());
            waits.push(tracked.waits_until(NOW).unwrap());
        }
        assert!(waits.is_sorted() && waits[0] < waits[2]);
        assert!(tracked.get().is_some(), "the copy is as good as before");
        tracked.finish(NOW, &answer(&pod("u", 6)), &who());
        assert!(tracked.is_free(NOW) && tracked.last_error().is_none());
    }

    #[test]
    fn the_server_may_ask_for_a_longer_wait() {
        let mut tracked = Tracked::present(pod("u", 5));
        let asked = KubeError {
            kind: KubeErrorKind::Unavailable,
            message: String::new(),
            retry_after: Some(Duration::from_secs(90)),
        };
        tracked.finish(NOW, &Err(asked), &who());
        assert_eq!(
            tracked.waits_until(NOW).unwrap(),
            crate::clock::after(NOW, 90)
        );
    }
}
