//! One object that an actor keeps in the state it wants: which request may be sent about it
//! now, and what is to be made of the answer.
//!
//! Adds to [`Tracked`] what its owner needs besides: how old the copy is (for objects that
//! no watch shows), and a brake for a write that succeeds and is wanted again all the same,
//! because somebody else undoes it.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use crate::actors::core::backoff::RECREATION;
use crate::actors::core::tracked::{Presence, Tracked};
use crate::clock::Timestamp;
use crate::messages::{KubeAnswer, KubeError, KubeErrorKind, KubeObject, ObjectRef};
use crate::semantic::Drift;

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

/// Collects the earliest time at which an actor wants to be woken.
#[derive(Debug, Default)]
pub struct Wake(Option<Timestamp>);

impl Wake {
    /// Asks to be woken at `time` at the latest.
    pub fn at(&mut self, time: Timestamp) {
        self.0 = Some(self.0.map_or(time, |earlier| earlier.min(time)));
    }

    /// The earliest wish.
    #[must_use]
    pub const fn earliest(&self) -> Option<Timestamp> {
        self.0
    }
}

/// An object that an actor keeps in the state it wants.
#[derive(Debug)]
pub struct Owned<T> {
    tracked: Tracked<T>,
    /// When its copy was last an answer of the API server; absent after [`Self::distrust`].
    confirmed: Option<Timestamp>,
    /// What the request in flight does, if it has a brake.
    in_flight: Option<u64>,
    /// What the request in flight answers may be out of date already.
    doubtful: bool,
    /// Requests with a brake that succeeded of late; few.
    done: Vec<Repeated>,
}

/// A request that succeeded.
#[derive(Debug)]
struct Repeated {
    what: u64,
    at: Timestamp,
    times: u32,
}

impl<T> Default for Owned<T> {
    fn default() -> Self {
        Self {
            tracked: Tracked::default(),
            confirmed: None,
            in_flight: None,
            doubtful: false,
            done: Vec::new(),
        }
    }
}

impl<T: KubeObject> Owned<T> {
    /// What is known of it.
    #[must_use]
    pub const fn presence(&self) -> &Presence<T> {
        self.tracked.presence()
    }

    /// The newest copy, if it is known to exist.
    #[must_use]
    pub const fn get(&self) -> Option<&Arc<T>> {
        self.tracked.get()
    }

    /// Whether it is known not to exist.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        self.tracked.is_absent()
    }

    /// Whether it must be read first.
    #[must_use]
    pub const fn is_unknown(&self) -> bool {
        self.tracked.is_unknown()
    }

    /// Whether a request is in flight.
    #[must_use]
    pub const fn is_in_flight(&self) -> bool {
        self.tracked.is_in_flight()
    }

    /// Why the last request failed; `None` after one that succeeded.
    #[must_use]
    pub const fn last_error(&self) -> Option<&KubeError> {
        self.tracked.last_error()
    }

    /// Takes in what a watch showed. Says whether the copy moved forward.
    pub fn observe(&mut self, object: Arc<T>) -> bool {
        self.tracked.observe(object)
    }

    /// Takes in that the object of that uid is gone. Says whether that was the one known here.
    pub fn observe_gone(&mut self, uid: &str) -> bool {
        self.tracked.observe_gone(uid)
    }

    /// Forgets what is known, so that the object is read next. What a request in flight
    /// answers is forgotten too.
    pub fn forget(&mut self) {
        self.confirmed = None;
        if self.is_in_flight() {
            self.doubtful = true;
        } else {
            self.tracked = Tracked::default();
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

    /// When its copy was last an answer of the API server; absent after [`Self::distrust`].
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

    /// Whether this request may be sent now; if so, it counts as in flight. If it only has to
    /// wait for some time, `wake` learns until when.
    ///
    /// `what` tells requests apart: one that has succeeded of late and is wanted again was
    /// undone by somebody, and is repeated after 0, 5, 10, … s. [`FREELY`] has no such brake.
    pub fn begin(&mut self, now: Timestamp, what: Option<impl Hash>, wake: &mut Wake) -> bool {
        if self.is_in_flight() {
            return false;
        }
        let what = what.map(fingerprint);
        let undone = self.done.iter().find(|done| Some(done.what) == what);
        let repeat_at =
            undone.map(|done| RECREATION.until(done.at, done.times, &done.what.to_string()));
        let until = self.tracked.waits_until(now).max(repeat_at);
        if let Some(until) = until.filter(|time| *time > now) {
            wake.at(until);
            return false;
        }
        self.tracked.begin();
        self.in_flight = what;
        true
    }

    /// Takes in the end of a request.
    pub fn finish(
        &mut self,
        now: Timestamp,
        verb: Verb,
        result: &Result<KubeAnswer, KubeError>,
        who: &ObjectRef,
    ) {
        self.tracked.finish(now, &reinterpret(verb, result), who);
        if std::mem::take(&mut self.doubtful) && !self.is_absent() {
            self.tracked = Tracked::default();
        }
        let what = self.in_flight.take();
        if result.is_ok() {
            self.confirmed = Some(now);
            what.into_iter().for_each(|what| self.remember(now, what));
        }
    }

    fn remember(&mut self, now: Timestamp, what: u64) {
        self.done
            .retain(|done| now.duration_since(done.at) < FORGET_REPEATS_AFTER);
        match self.done.iter_mut().find(|done| done.what == what) {
            Some(done) => {
                done.at = now;
                done.times += 1;
            }
            None => self.done.push(Repeated {
                what,
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

/// Whose an object of an expected name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The owner's.
    Ours,
    /// Nobody's: it may be taken over.
    Nobodys,
    /// That of an earlier owner of the same name, and about to be collected.
    Predecessors,
    /// Somebody else's.
    Foreign,
}

/// Whose an object is, judged by its owner references. `owner` must be on the API server.
pub fn ownership<K: KubeObject>(meta: &ObjectMeta, owner: &K) -> Ownership {
    let references = meta.owner_references.as_deref().unwrap_or_default();
    let uid = owner.meta().uid.as_deref().unwrap_or_default();
    if references.iter().any(|reference| reference.uid == uid) {
        return Ownership::Ours;
    }
    match references
        .iter()
        .find(|reference| reference.controller == Some(true))
    {
        None => Ownership::Nobodys,
        Some(other)
            if other.kind == K::KIND.as_str()
                && Some(&other.name) == owner.meta().name.as_ref() =>
        {
            Ownership::Predecessors
        }
        Some(_) => Ownership::Foreign,
    }
}

/// Why a live object has to be made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// One of a bounded set of words, for a metric's label.
    pub reason: &'static str,
    /// Where, and both values, for a person; without secrets.
    pub text: String,
}

impl Difference {
    /// Of the specs of the two.
    #[must_use]
    pub fn of_specs(drift: &Drift) -> Self {
        Self {
            reason: drift.reason(),
            text: format!("spec.{drift}"),
        }
    }
}

/// The patch that puts a lost owner back beside those that are there.
#[must_use]
pub fn owner_patch(live: &ObjectMeta, desired: &ObjectMeta) -> Option<Value> {
    let known = live.owner_references.as_deref().unwrap_or_default();
    let wanted = desired.owner_references.as_deref().unwrap_or_default();
    let lost = wanted
        .iter()
        .filter(|wanted| known.iter().all(|known| known.uid != wanted.uid));
    let mut all = known.to_vec();
    all.extend(lost.cloned());
    (all.len() > known.len()).then(|| json!({ "metadata": { "ownerReferences": all } }))
}
