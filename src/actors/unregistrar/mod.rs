//! Removes runners' registrations from the Actions service, for all runners of all sets: in
//! bounded numbers per tenant, each runner once at a time, with back-off.
//!
//! A plain value behind [`crate::messages::Effect::Unregister`]. Its owner sends what
//! [`Unregistrar::due`] says and hands back what came of it. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::actors::core::backoff::Schedule;
use crate::clock::{Timestamp, after};
use crate::messages::{
    ActionsAnswer, ActionsCall, ActionsError, ActionsErrorKind, ActionsRequest, Tenant,
};

#[cfg(test)]
mod tests;

/// So many removals of one tenant are under way at a time.
pub const DEFAULT_CONCURRENCY: usize = 8;

/// Removals that failed: 1, 2, 4, … s up to a minute.
const RETRIES: Schedule = Schedule {
    first_ms: 1_000,
    cap_ms: 60_000,
};
/// For so many seconds credentials may be missing or unusable before the asker is told: it
/// may have to do without (the scale set is being uninstalled, say).
const CREDENTIALS_PATIENCE: i64 = 20;
/// The same for credentials that the service refuses, which it does in passing too.
const REFUSAL_PATIENCE: i64 = 600;
/// For so many seconds it is remembered of a tenant without work that its credentials are of no use.
const MEMORY: i64 = 3_600;

/// What the owner has to do.
#[derive(Clone, Debug)]
pub struct Due<K> {
    /// Calls to send; each ends in [`Unregistrar::finished`] with its claim.
    pub calls: Vec<(Claim, ActionsRequest)>,
    /// Answers for those who asked.
    pub answers: Vec<(K, Result<ActionsAnswer, ActionsError>)>,
    /// When to ask for what is due again, at the latest.
    pub wake_at: Option<Timestamp>,
}

/// One runner of one tenant, being removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim {
    tenant: usize,
    runner: i64,
}

/// The removals asked for and not answered. `K` says who asked.
#[derive(Debug)]
pub struct Unregistrar<K> {
    concurrency: usize,
    /// By their places, which are given once. There are those that have work, and those whose
    /// credentials were of no use lately.
    tenants: BTreeMap<usize, Lane>,
    next_place: usize,
    /// When tenants were last forgotten whose credentials were of no use.
    swept: Option<Timestamp>,
    /// Places by what mostly tells tenants apart: URL, namespace and Secret.
    places: BTreeMap<(String, String, String), Vec<usize>>,
    /// Tenants with work that has not been sent.
    waiting: BTreeSet<usize>,
    work: BTreeMap<Claim, Work<K>>,
    answers: Vec<(K, Result<ActionsAnswer, ActionsError>)>,
    /// The end of this runner's removal is met with a panic, as by a bug.
    #[cfg(test)]
    pub(super) tripwire: Option<i64>,
}

#[derive(Debug)]
struct Lane {
    tenant: Tenant,
    in_flight: usize,
    queue: VecDeque<i64>,
    /// Runners whose turn comes later, by when.
    resting: BTreeSet<(Timestamp, i64)>,
    /// Since when the credentials have been of no use.
    locked_out: Option<(ActionsErrorKind, Timestamp)>,
}

#[derive(Debug)]
struct Work<K> {
    askers: Vec<K>,
    failures: u32,
}

impl<K: PartialEq> Default for Unregistrar<K> {
    fn default() -> Self {
        Self::new(DEFAULT_CONCURRENCY)
    }
}

impl<K: PartialEq> Unregistrar<K> {
    /// With so many removals under way per tenant, at least one.
    #[must_use]
    pub fn new(concurrency: usize) -> Self {
        Self {
            concurrency: concurrency.max(1),
            tenants: BTreeMap::new(),
            next_place: 0,
            swept: None,
            places: BTreeMap::new(),
            waiting: BTreeSet::new(),
            work: BTreeMap::new(),
            answers: Vec::new(),
            #[cfg(test)]
            tripwire: None,
        }
    }

    /// How many removals are asked for and not answered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.work.len()
    }

    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Takes a request in. One who asks for a runner that is being removed already gets the
    /// same answer. Anything but the removal of a runner with an id is answered as an error.
    pub fn request(&mut self, asker: K, request: ActionsRequest) {
        let ActionsCall::RemoveRunner { id } = request.call else {
            return self
                .answers
                .push((asker, Err(not_a_removal(&request.call))));
        };
        if id <= 0 {
            return self
                .answers
                .push((asker, Err(not_a_removal(&request.call))));
        }
        let tenant = self.lane(request.tenant);
        let claim = Claim { tenant, runner: id };
        if let Some(work) = self.work.get_mut(&claim) {
            if !work.askers.contains(&asker) {
                work.askers.push(asker);
            }
            return;
        }
        if let Some(lane) = self.tenants.get_mut(&tenant) {
            lane.queue.push_back(id);
        }
        self.waiting.insert(tenant);
        let work = Work {
            askers: vec![asker],
            failures: 0,
        };
        self.work.insert(claim, work);
    }

    /// Takes in how a call ended.
    pub fn finished(
        &mut self,
        claim: Claim,
        result: Result<ActionsAnswer, ActionsError>,
        now: Timestamp,
    ) {
        #[cfg(test)]
        assert_ne!(Some(claim.runner), self.tripwire, "a bug");
        let (Some(lane), Some(work)) = (
            self.tenants.get_mut(&claim.tenant),
            self.work.get_mut(&claim),
        ) else {
            return;
        };
        lane.in_flight = lane.in_flight.saturating_sub(1);
        let answer = match result {
            Ok(_) => Some(Ok(ActionsAnswer::Done)),
            Err(error) => match error.kind {
                ActionsErrorKind::RunnerNotFound => Some(Ok(ActionsAnswer::Done)),
                ActionsErrorKind::JobStillRunning => Some(Err(error)),
                _ if lane.lock_out(&error, now) => Some(Err(error)),
                _ => {
                    work.failures = work.failures.saturating_add(1);
                    let own = RETRIES.until(now, work.failures, &claim.runner.to_string());
                    let asked = error
                        .retry_after
                        .and_then(|wait| now.saturating_add(wait).ok());
                    let time = asked.map_or(own, |time| time.max(own));
                    lane.resting.insert((time, claim.runner));
                    self.waiting.insert(claim.tenant);
                    None
                }
            },
        };
        if let Some(answer) = answer {
            if !matches!(&answer, Err(error) if is_lockout(error.kind)) {
                lane.locked_out = None;
            }
            let askers = self.work.remove(&claim).map(|work| work.askers);
            for asker in askers.into_iter().flatten() {
                self.answers.push((asker, answer.clone()));
            }
            let lane = self.tenants.get(&claim.tenant);
            if lane.is_some_and(|lane| lane.is_idle() && lane.locked_out.is_none()) {
                self.forget(claim.tenant);
            }
        }
    }

    /// What is to be done now.
    #[must_use]
    pub fn due(&mut self, now: Timestamp) -> Due<K> {
        let mut due = Due {
            calls: Vec::new(),
            answers: std::mem::take(&mut self.answers),
            wake_at: None,
        };
        self.sweep(now);
        self.waiting.retain(|&tenant| {
            let Some(lane) = self.tenants.get_mut(&tenant) else {
                return false;
            };
            lane.end_rests(now);
            while lane.in_flight < self.concurrency
                && let Some(runner) = lane.queue.pop_front()
            {
                lane.in_flight += 1;
                let request = ActionsRequest {
                    tenant: lane.tenant.clone(),
                    call: ActionsCall::RemoveRunner { id: runner },
                };
                due.calls.push((Claim { tenant, runner }, request));
            }
            if let Some((time, _)) = lane.resting.first() {
                due.wake_at = Some(due.wake_at.map_or(*time, |wake| wake.min(*time)));
            }
            !lane.queue.is_empty() || !lane.resting.is_empty()
        });
        due
    }

    fn lane(&mut self, tenant: Tenant) -> usize {
        let places = self.places.entry(key(&tenant)).or_default();
        let is_there = |place: &usize| {
            let lane = self.tenants.get(place);
            lane.is_some_and(|lane| lane.tenant == tenant)
        };
        let known = places.iter().copied().find(is_there);
        if let Some(place) = known {
            return place;
        }
        let place = self.next_place;
        self.next_place += 1;
        places.push(place);
        let lane = Lane {
            tenant,
            in_flight: 0,
            queue: VecDeque::new(),
            resting: BTreeSet::new(),
            locked_out: None,
        };
        self.tenants.insert(place, lane);
        place
    }

    /// Forgets tenants without work that were locked out long ago.
    fn sweep(&mut self, now: Timestamp) {
        let is_due = |last: Timestamp| after(last, MEMORY) <= now;
        if !self.swept.is_none_or(is_due) {
            return;
        }
        self.swept = Some(now);
        let idle = self.tenants.iter().filter(|(_, lane)| lane.is_idle());
        let old = idle.filter(|(_, lane)| lane.locked_out.is_none_or(|(_, since)| is_due(since)));
        let old: Vec<usize> = old.map(|(place, _)| *place).collect();
        for place in old {
            self.forget(place);
        }
    }

    fn forget(&mut self, place: usize) {
        let Some(lane) = self.tenants.remove(&place) else {
            return;
        };
        let key = key(&lane.tenant);
        if let Some(places) = self.places.get_mut(&key) {
            places.retain(|other| *other != place);
            if places.is_empty() {
                self.places.remove(&key);
            }
        }
    }
}

/// What mostly tells tenants apart.
fn key(tenant: &Tenant) -> (String, String, String) {
    (
        tenant.config_url.clone(),
        tenant.namespace.clone(),
        tenant.secret.clone(),
    )
}

impl Lane {
    fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.queue.is_empty() && self.resting.is_empty()
    }

    fn end_rests(&mut self, now: Timestamp) {
        while let Some(&(time, runner)) = self.resting.first()
            && time <= now
        {
            self.resting.pop_first();
            self.queue.push_back(runner);
        }
    }

    /// Notes what an error says of the credentials. Says whether they have been of no use for
    /// so long that the asker is to be told.
    fn lock_out(&mut self, error: &ActionsError, now: Timestamp) -> bool {
        if !is_lockout(error.kind) {
            return false;
        }
        let since = match self.locked_out {
            Some((kind, since)) if kind == error.kind => since,
            _ => now,
        };
        self.locked_out = Some((error.kind, since));
        let patience = match error.kind {
            ActionsErrorKind::Unauthorized => REFUSAL_PATIENCE,
            _ => CREDENTIALS_PATIENCE,
        };
        after(since, patience) <= now
    }
}

const fn is_lockout(kind: ActionsErrorKind) -> bool {
    matches!(
        kind,
        ActionsErrorKind::Credentials
            | ActionsErrorKind::Denied
            | ActionsErrorKind::Config
            | ActionsErrorKind::Unauthorized
    )
}

fn not_a_removal(call: &ActionsCall) -> ActionsError {
    ActionsError {
        kind: ActionsErrorKind::Other,
        message: format!("{} is not the removal of a runner with an id", call.name()),
        retry_after: None,
    }
}
