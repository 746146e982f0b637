//! What one watch knows, and what it does next: a list, then events from there on, then again
//! after an end, after a failure, after a restore of the store.
//!
//! Pure; knows no connection and no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::outage::Outage;
use crate::actors::core::backoff;
use crate::actors::runtime::router::{ActorKey, ObjectEvent, keys_of};
use crate::messages::{Kind, KubeError, KubeErrorKind, Object, ObjectRef};

/// How many objects are looked up at once.
const LOOK_UPS: usize = 8;

/// What happens to a watch.
#[derive(Debug)]
pub(super) enum Input {
    /// It begins.
    Start,
    /// A whole list has come.
    Listed(Listing),
    /// The resourceVersion has come that the server is at now.
    Checked {
        /// It.
        version: String,
        /// The newest one in an answer to a write of ours, before that was asked.
        written: u64,
    },
    /// The server has begun to answer with events.
    Established,
    /// An object was added or modified.
    Changed(Object),
    /// So was one that cannot be read.
    Unreadable {
        /// Which.
        object: ObjectRef,
        /// Its version.
        version: String,
    },
    /// An object was deleted, or is selected no more.
    Deleted {
        /// Which.
        object: ObjectRef,
        /// Its uid.
        uid: String,
        /// The version of its end.
        version: String,
        /// The object itself, if it can be read.
        last: Option<Object>,
    },
    /// Nothing has happened up to this version.
    Bookmark(String),
    /// The events have ended without an error.
    Ended,
    /// What was tried has failed.
    Failed(Problem),
    /// An object that a list lacks was looked up.
    LookedUp(ObjectRef, Result<Object, KubeError>),
    /// The time has come that [`Progress::alarm`] named.
    Woken,
}

/// A whole list.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Its objects.
    pub objects: Vec<Object>,
    /// Those that are none of their kind.
    pub unreadable: Vec<ObjectRef>,
    /// Its resourceVersion.
    pub version: String,
    /// The newest version in an answer to a write of ours, before the list was asked for.
    pub written: u64,
}

/// Why something failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// What happened, and what a person can do about it.
    pub message: String,
    /// The version to go on from is not known any more, or not yet: only a list helps.
    pub expired: bool,
}

/// What a watch does. Each of `List`, `Check` and `Watch` takes the place of what ran before.
#[derive(Debug)]
pub(super) enum Action {
    /// Read the whole list.
    List,
    /// Ask for the version that the server is at now.
    Check,
    /// Ask for the events after this version.
    Watch(String),
    /// Look an object up that a list lacks.
    LookUp(ObjectRef),
    /// Hand over the first list.
    Begin(Vec<Object>),
    /// Hand over a event.
    Deliver(ObjectEvent),
    /// Tell that a list was read again.
    Relisted,
    /// Tell that an object that a list lacks could not be looked up.
    Unsettled(ObjectRef, KubeError),
    /// Tell of a failure.
    Failing {
        /// What happened.
        message: String,
        /// Whether it worked before.
        first: bool,
    },
    /// End, since it has failed for too long.
    GiveUp(String),
    /// End, since the store has gone back.
    Restored(Versions),
}

/// How far a store has gone back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The newest resourceVersion that was known.
    pub known: u64,
    /// The one that a consistent list has now.
    pub found: u64,
}

/// What is known of a watched object: enough to say that it is gone, or has gone back.
#[derive(Debug)]
struct Known {
    uid: String,
    keys: Vec<ActorKey>,
    version: u64,
}

/// An object that was known and that a list lacks. It is open until it is known whether the
/// object is gone.
#[derive(Debug, Default)]
struct Absence {
    failures: u32,
    in_flight: bool,
    /// When to look it up again.
    due: Option<Instant>,
    /// It may not be looked up, and only a further list can tell.
    refused: bool,
}

/// What is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Listing,
    Checking,
    /// Asking for events, or getting them.
    Watching,
    /// Until then, and then a list or a check.
    Waiting(Instant, Next),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    List,
    Check,
}

/// What one watch knows.
#[derive(Debug)]
pub(super) struct Progress {
    kind: Kind,
    known: BTreeMap<ObjectRef, Known>,
    absences: BTreeMap<ObjectRef, Absence>,
    /// The first list was handed over.
    synced: bool,
    /// Where events go on.
    position: String,
    /// The newest version seen.
    newest: u64,
    /// One answer was older than what is known.
    doubted: bool,
    phase: Phase,
    /// When what is going on began.
    began: Instant,
    outage: Outage,
}

impl Progress {
    pub(super) fn new(kind: Kind, now: Instant) -> Self {
        Self {
            kind,
            known: BTreeMap::new(),
            absences: BTreeMap::new(),
            synced: false,
            position: String::new(),
            newest: 0,
            doubted: false,
            phase: Phase::Listing,
            began: now,
            outage: Outage::default(),
        }
    }

    /// When it wants to be woken, if at all.
    pub(super) fn alarm(&self) -> Option<Instant> {
        let retry = match self.phase {
            Phase::Waiting(until, _) => Some(until),
            _ => None,
        };
        let absences = self.absences.values().filter_map(|absence| {
            let waits = !absence.in_flight && (!absence.refused || self.phase == Phase::Watching);
            absence.due.filter(|_| waits)
        });
        absences.chain(retry).min()
    }

    pub(super) fn step(&mut self, now: Instant, input: Input) -> Vec<Action> {
        let mut actions = Vec::new();
        match input {
            Input::Start => self.begin(now, Next::List, &mut actions),
            Input::Listed(listing) => self.listed(now, listing, &mut actions),
            Input::Checked { version, written } => {
                if self.is_older(number(&version), written) {
                    self.doubted = true;
                    self.begin(now, Next::List, &mut actions);
                } else {
                    self.watch(&mut actions);
                }
            }
            Input::Established => self.outage.established(now),
            Input::Changed(object) => {
                self.record_version(
                    object
                        .meta()
                        .resource_version
                        .as_deref()
                        .unwrap_or_default(),
                );
                self.absences.remove(&object.reference());
                self.observed(object, &mut actions);
            }
            Input::Unreadable { object, version } => {
                self.record_version(&version);
                self.absences.remove(&object);
            }
            Input::Deleted {
                object,
                uid,
                version,
                last,
            } => {
                self.record_version(&version);
                self.deleted(object, uid, last, &mut actions);
            }
            Input::Bookmark(version) => self.record_version(&version),
            Input::Ended if self.outage.is_over(now) => {
                self.outage = Outage::default();
                self.begin(now, Next::Check, &mut actions);
            }
            Input::Ended => {
                let problem = Problem {
                    message: "the server ended the watch before anything came".to_owned(),
                    expired: false,
                };
                self.failed(now, problem, &mut actions);
            }
            Input::Failed(problem) => self.failed(now, problem, &mut actions),
            Input::LookedUp(object, result) => {
                self.looked_up(now, object, result, &mut actions);
            }
            Input::Woken => {}
        }
        self.go_on(now, &mut actions);
        actions
    }

    /// Does what is due.
    fn go_on(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if let Phase::Waiting(until, next) = self.phase
            && until <= now
        {
            self.begin(now, next, actions);
        }
        let mut in_flight = self.absences.values().filter(|one| one.in_flight).count();
        let mut list = false;
        for (object, absence) in &mut self.absences {
            if absence.in_flight || absence.due.is_some_and(|due| due > now) {
                continue;
            }
            if absence.refused {
                list = true;
            } else if in_flight < LOOK_UPS {
                in_flight += 1;
                absence.in_flight = true;
                actions.push(Action::LookUp(object.clone()));
            }
        }
        if list && self.phase == Phase::Watching {
            self.begin(now, Next::List, actions);
        }
    }

    fn begin(&mut self, now: Instant, next: Next, actions: &mut Vec<Action>) {
        self.began = now;
        match next {
            Next::List => {
                self.phase = Phase::Listing;
                actions.push(Action::List);
            }
            Next::Check => {
                self.phase = Phase::Checking;
                actions.push(Action::Check);
            }
        }
    }

    fn watch(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::Watching;
        actions.push(Action::Watch(self.position.clone()));
    }

    /// The stream lives, and has come to this version.
    fn record_version(&mut self, version: &str) {
        self.outage.record_contact();
        self.newest = self.newest.max(number(version));
        if !version.is_empty() {
            version.clone_into(&mut self.position);
        }
    }

    fn failed(&mut self, now: Instant, problem: Problem, actions: &mut Vec<Action>) {
        self.outage.failed(self.began, now);
        if self.outage.is_hopeless(now) {
            actions.push(Action::GiveUp(problem.message));
            return;
        }
        let next = match self.phase {
            _ if problem.expired => Next::List,
            Phase::Listing | Phase::Waiting(_, Next::List) => Next::List,
            Phase::Checking | Phase::Watching | Phase::Waiting(..) => Next::Check,
        };
        let wait = self.outage.wait(self.kind.as_str());
        self.phase = Phase::Waiting(now + wait, next);
        actions.push(Action::Failing {
            message: problem.message,
            first: self.outage.failures() == 1,
        });
    }

    /// Whether a consistent answer is older than what is known, which cannot be while the store
    /// goes forward.
    fn is_older(&self, version: u64, written: u64) -> bool {
        self.synced && version != 0 && version < self.newest.max(written)
    }

    fn listed(&mut self, now: Instant, listing: Listing, actions: &mut Vec<Action>) {
        let version = number(&listing.version);
        let older = self.is_older(version, listing.written)
            || listing
                .objects
                .iter()
                .any(|object| self.has_gone_back(object));
        if older && self.doubted {
            actions.push(Action::Restored(Versions {
                known: self.newest.max(listing.written),
                found: version,
            }));
            return;
        }
        self.doubted = older;
        if older {
            // one answer may come from a server that lags against the rules; two do not
            self.begin(now, Next::List, actions);
            return;
        }
        self.newest = self.newest.max(version);
        self.position = listing.version;
        if self.synced {
            actions.push(Action::Relisted);
            self.compare(listing.objects, &listing.unreadable, actions);
        } else {
            self.synced = true;
            for object in &listing.objects {
                self.remember(object);
            }
            actions.push(Action::Begin(listing.objects));
        }
        self.watch(actions);
    }

    fn has_gone_back(&self, object: &Object) -> bool {
        self.known
            .get(&object.reference())
            .is_some_and(|known| known.uid == object.uid() && version_of(object) < known.version)
    }

    /// Takes in a list that is not the first.
    fn compare(
        &mut self,
        objects: Vec<Object>,
        unreadable: &[ObjectRef],
        actions: &mut Vec<Action>,
    ) {
        let listed = objects.iter().map(Object::reference);
        let present: BTreeSet<ObjectRef> = listed.chain(unreadable.iter().cloned()).collect();
        for object in objects {
            self.observed(object, actions);
        }
        self.absences.retain(|object, _| !present.contains(object));
        let missing = self.known.keys().filter(|object| !present.contains(object));
        let missing: Vec<ObjectRef> = missing.cloned().collect();
        for object in missing {
            if self.absences.entry(object.clone()).or_default().refused {
                self.gone(&object, actions);
            }
        }
    }

    fn looked_up(
        &mut self,
        now: Instant,
        object: ObjectRef,
        result: Result<Object, KubeError>,
        actions: &mut Vec<Action>,
    ) {
        // an event or a list may have been faster
        let Some(absence) = self.absences.get_mut(&object) else {
            return;
        };
        absence.in_flight = false;
        match result {
            Ok(found) => {
                self.absences.remove(&object);
                self.observed(found, actions);
            }
            Err(error) if error.kind == KubeErrorKind::NotFound => self.gone(&object, actions),
            Err(error) => {
                absence.failures = absence.failures.saturating_add(1);
                let wait = backoff::REQUESTS.spread(absence.failures, &object.to_string());
                absence.due = Some(now + Duration::try_from(wait).unwrap_or_default());
                absence.refused = !matches!(
                    error.kind,
                    KubeErrorKind::Unavailable | KubeErrorKind::Unanswered
                );
                if absence.failures == 1 {
                    actions.push(Action::Unsettled(object, error));
                }
            }
        }
    }

    fn deleted(
        &mut self,
        object: ObjectRef,
        uid: String,
        last: Option<Object>,
        actions: &mut Vec<Action>,
    ) {
        self.absences.remove(&object);
        let known = self.known.remove(&object);
        let keys = match (&last, known) {
            (Some(last), _) => keys_of(last),
            // it could be read once, and has an actor
            (None, Some(known)) => known.keys,
            (None, None) => return,
        };
        actions.push(Action::Deliver(ObjectEvent::Gone { object, uid, keys }));
    }

    fn observed(&mut self, object: Object, actions: &mut Vec<Action>) {
        let replaced = self.known.get(&object.reference());
        if replaced.is_some_and(|known| known.uid != object.uid()) {
            self.gone(&object.reference(), actions);
        }
        self.remember(&object);
        actions.push(Action::Deliver(ObjectEvent::Observed(object)));
    }

    fn gone(&mut self, object: &ObjectRef, actions: &mut Vec<Action>) {
        self.absences.remove(object);
        if let Some(known) = self.known.remove(object) {
            actions.push(Action::Deliver(ObjectEvent::Gone {
                object: object.clone(),
                uid: known.uid,
                keys: known.keys,
            }));
        }
    }

    fn remember(&mut self, object: &Object) {
        let known = Known {
            uid: object.uid().to_owned(),
            keys: keys_of(object),
            version: version_of(object),
        };
        self.known.insert(object.reference(), known);
    }
}

fn version_of(object: &Object) -> u64 {
    number(
        object
            .meta()
            .resource_version
            .as_deref()
            .unwrap_or_default(),
    )
}

/// A resourceVersion as a number, so that two can be put in order; 0 when it is none.
pub(super) fn number(version: &str) -> u64 {
    version.parse().unwrap_or(0)
}
