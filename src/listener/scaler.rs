//! How many runners there are to be, and under which patch id that is published.
//!
//! Pure. The patch id tells the controller how to take the number: a new id means "decide
//! once", and 0 means "nothing is going on, so you may force the count" (remove a surplus, and
//! fill the place of a runner as soon as it has ended). So 0 never goes with jobs, not even in
//! a listener's first patch: some of them may be over by the time it is written, and runners
//! would be made for them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::{Value, json};

use crate::api::constants::annotations;
use crate::clock::Timestamp;

/// The last patch id before the sequence starts again.
pub const LAST_PATCH_ID: i64 = 2_147_483_647;

/// What is written to the EphemeralRunnerSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Runners wanted.
    pub replicas: i64,
    /// Number of this patch.
    pub patch_id: i64,
}

/// A patch to be published, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// What the set is to say.
    pub patch: Patch,
    /// The set said exactly this when it was last written. Then reading it is enough, and it
    /// is written only if someone else has changed it (or made it anew) since: a system at
    /// rest writes nothing.
    pub standing: bool,
    /// It says up to when finished jobs are left out of the number.
    pub tells_of_finished: bool,
}

impl Publication {
    /// The merge patch. `until` is when the last of the jobs was recorded as finished that are
    /// left out, when the set is to say so.
    #[must_use]
    pub fn body(self, until: Option<Timestamp>) -> Value {
        let Patch { replicas, patch_id } = self.patch;
        let mut body = json!({"spec": {"replicas": replicas, "patchID": patch_id}});
        if let Some(until) = until {
            let until = json!(MicroTime(until));
            body["metadata"] = json!({"annotations": {annotations::JOBS_COUNTED_UNTIL: until}});
        }
        body
    }
}

/// Turns demand into patches.
#[derive(Clone, Debug)]
pub struct Scaler {
    min: i64,
    max: i64,
    assigned: i64,
    next_id: i64,
    eventful: bool,
    target: Option<i64>,
    confirmed: Option<Patch>,
    /// The demand is as new as the newest message.
    informed: bool,
    /// So it was when the last patch was decided on.
    current: bool,
    /// Jobs were recorded as finished of which the runner set was not told.
    untold: bool,
}

impl Scaler {
    /// A scaler that has published nothing so far, between so many runners at rest and so many
    /// at most.
    #[must_use]
    pub const fn new(min: i64, max: i64) -> Self {
        Self {
            min,
            max,
            assigned: 0,
            next_id: 0,
            eventful: false,
            target: None,
            confirmed: None,
            informed: false,
            current: false,
            untold: false,
        }
    }

    /// Takes the number of jobs assigned to the scale set, running or waiting. Answers whether
    /// it is another than before.
    pub const fn demand(&mut self, assigned: i64) -> bool {
        let changed = assigned != self.assigned;
        if changed {
            self.assigned = assigned;
            self.eventful = true;
        }
        changed
    }

    /// Takes note that something happened to jobs since the last patch, even if the demand is
    /// what it was.
    pub const fn happened(&mut self) {
        self.eventful = true;
    }

    /// Takes note whether the demand is as new as the newest message: one without a demand may
    /// tell of a finished job that the known demand includes.
    pub const fn informed(&mut self, informed: bool) {
        self.informed = informed;
    }

    /// Takes note that a job is recorded as finished.
    pub const fn finished(&mut self) {
        self.untold = true;
    }

    /// Whether the runner set can be told of finished jobs, by the next patch at the latest.
    #[must_use]
    pub const fn has_to_tell(&self) -> bool {
        self.untold && self.informed
    }

    /// A publication of the last patch as it is to be sent now.
    #[must_use]
    pub const fn complete(&self, publication: Publication) -> Publication {
        let tells = self.untold && self.current;
        Publication {
            patch: publication.patch,
            standing: publication.standing && !tells,
            tells_of_finished: tells,
        }
    }

    /// The next patch. It stays the one to publish until [`Scaler::published`] is told.
    pub fn decide(&mut self) -> Publication {
        let target = self
            .min
            .saturating_add(self.assigned.max(0))
            .min(self.max)
            .max(0);
        let sequence = if self.next_id == 0 && target != self.min {
            1
        } else {
            self.next_id
        };
        self.next_id = if sequence >= LAST_PATCH_ID {
            0
        } else {
            sequence + 1
        };
        let at_rest = !self.eventful && self.target == Some(target) && target == self.min;
        let patch = Patch {
            replicas: target,
            patch_id: if at_rest { 0 } else { sequence },
        };
        self.eventful = false;
        self.current = self.informed;
        self.target = Some(target);
        Publication {
            patch,
            standing: self.confirmed == Some(patch),
            tells_of_finished: false,
        }
    }

    /// Takes how the last publication went. After a failure nothing is known of what the set
    /// says.
    pub const fn published(&mut self, patch: Patch, accepted: bool) {
        self.confirmed = if accepted { Some(patch) } else { None };
        if accepted && self.current {
            // one task at a time: nothing was recorded since it was sent
            self.untold = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn patch(replicas: i64, patch_id: i64) -> Patch {
        Patch { replicas, patch_id }
    }

    fn publish(scaler: &mut Scaler) -> Patch {
        let publication = scaler.decide();
        scaler.published(publication.patch, true);
        publication.patch
    }

    #[test]
    fn target_is_min_plus_assigned_up_to_max() {
        for (min, max, assigned, target) in [
            (0, 10, 0, 0),
            (0, 10, 3, 3),
            (2, 10, 3, 5),
            (2, 4, 3, 4),
            (5, 5, 3, 5),
            (0, 0, 7, 0),
            (1, 9, -4, 1),
            (1, 2_147_483_647, i64::MAX, 2_147_483_647),
        ] {
            let mut scaler = Scaler::new(min, max);
            scaler.demand(assigned);
            assert_eq!(
                scaler.decide().patch.replicas,
                target,
                "min {min} max {max} assigned {assigned}"
            );
        }
    }

    #[test]
    fn patch_ids_count_from_zero_while_there_is_work() {
        let mut scaler = Scaler::new(1, 10);
        assert_eq!(publish(&mut scaler), patch(1, 0));
        scaler.demand(2);
        let seen: Vec<Patch> = (0..3).map(|_| publish(&mut scaler)).collect();
        assert_eq!(seen, [patch(3, 1), patch(3, 2), patch(3, 3)]);
    }

    #[test]
    fn a_first_patch_with_jobs_does_not_have_the_count_forced() {
        let mut scaler = Scaler::new(1, 10);
        scaler.demand(2);
        let seen: Vec<Patch> = (0..2).map(|_| publish(&mut scaler)).collect();
        assert_eq!(seen, [patch(3, 1), patch(3, 2)]);
    }

    #[test]
    fn the_sequence_starts_again_after_its_last_id() {
        let mut scaler = Scaler::new(0, 10);
        scaler.next_id = LAST_PATCH_ID;
        scaler.demand(1);
        assert_eq!(publish(&mut scaler).patch_id, LAST_PATCH_ID);
        assert_eq!(publish(&mut scaler).patch_id, 1);
        assert_eq!(publish(&mut scaler).patch_id, 2);
        scaler.next_id = LAST_PATCH_ID;
        scaler.demand(0);
        assert_eq!(publish(&mut scaler).patch_id, LAST_PATCH_ID);
        assert_eq!(publish(&mut scaler).patch_id, 0);
    }

    #[test]
    fn at_rest_the_patch_id_is_zero_and_the_sequence_goes_on() {
        let mut scaler = Scaler::new(2, 10);
        assert_eq!(publish(&mut scaler), patch(2, 0));
        assert_eq!(publish(&mut scaler), patch(2, 0));
        scaler.demand(1);
        assert_eq!(publish(&mut scaler), patch(3, 2));
        scaler.demand(0);
        // the target fell with this very patch: a runner may hold a job not heard of yet
        assert_eq!(publish(&mut scaler), patch(2, 3));
        assert_eq!(publish(&mut scaler), patch(2, 0));
    }

    #[test]
    fn a_job_that_came_and_went_is_no_rest() {
        let mut scaler = Scaler::new(2, 10);
        publish(&mut scaler);
        scaler.happened();
        assert_eq!(publish(&mut scaler), patch(2, 1));
        assert_eq!(publish(&mut scaler), patch(2, 0));
    }

    #[test]
    fn a_demand_that_changed_under_the_same_target_is_no_rest() {
        let mut scaler = Scaler::new(5, 5);
        publish(&mut scaler);
        scaler.demand(3);
        assert_eq!(publish(&mut scaler), patch(5, 1));
        assert_eq!(publish(&mut scaler), patch(5, 0));
    }

    #[test]
    fn only_a_patch_known_to_stand_need_not_be_written() {
        let mut scaler = Scaler::new(2, 10);
        let first = scaler.decide();
        assert!(!first.standing, "nothing was written before");
        scaler.published(first.patch, true);
        assert!(scaler.decide().standing);
        scaler.published(first.patch, false);
        assert!(!scaler.decide().standing, "the last write failed");
        scaler.demand(1);
        assert!(!scaler.decide().standing, "the number is another");
    }

    /// The body of the next patch, which is accepted.
    fn next_body(scaler: &mut Scaler) -> Value {
        let finished = "2026-01-02T03:04:05.000007Z".parse().ok();
        let publication = scaler.decide();
        let sent = scaler.complete(publication);
        let body = sent.body(finished.filter(|_| sent.tells_of_finished));
        scaler.published(publication.patch, true);
        body
    }

    #[test]
    fn the_body_uses_the_names_of_the_custom_resource_and_tells_of_finished_jobs_once() {
        let mut scaler = Scaler::new(0, 10);
        scaler.informed(true);
        scaler.demand(4);
        let plain = |patch_id: i64| json!({"spec": {"replicas": 4, "patchID": patch_id}});
        assert_eq!(next_body(&mut scaler), plain(1));
        scaler.finished();
        scaler.finished();
        let mut telling = plain(2);
        telling["metadata"] = json!({"annotations": {
            "impresario.dev/jobs-counted-until": "2026-01-02T03:04:05.000007Z"}});
        assert_eq!(next_body(&mut scaler), telling);
        assert_eq!(next_body(&mut scaler), plain(3));
    }

    #[test]
    fn finished_jobs_are_told_of_with_a_demand_as_new_until_a_patch_is_accepted() {
        let mut scaler = Scaler::new(2, 10);
        scaler.informed(true);
        publish(&mut scaler);
        scaler.informed(false);
        scaler.finished();
        let silent = scaler.decide();
        assert!(!scaler.complete(silent).tells_of_finished);
        scaler.published(silent.patch, true);
        assert!(!scaler.has_to_tell());

        scaler.informed(true);
        assert!(scaler.has_to_tell());
        assert!(!scaler.complete(silent).tells_of_finished, "it is too old");
        for accepted in [false, true] {
            let next = scaler.decide();
            let sent = scaler.complete(next);
            assert!(sent.tells_of_finished && !sent.standing, "it is written");
            scaler.published(next.patch, accepted);
            assert_eq!(scaler.has_to_tell(), !accepted);
        }
    }
}
