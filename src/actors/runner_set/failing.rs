//! How long to wait before failed runners are replaced.

use k8s_openapi::jiff::SignedDuration;

use crate::actors::core::backoff::RECREATION;
use crate::clock::Timestamp;

/// After a wait, a runner that is made so much later still is no retry.
const FORGIVEN_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Counts rounds of failure, not runners: a hundred that were made together and fail together
/// have shown one thing once.
#[derive(Debug, Default)]
pub(super) struct FailureBackoff {
    rounds: u32,
    until: Option<Timestamp>,
}

impl FailureBackoff {
    /// A runner of the set `who` has failed that was made at `created`. Sets that fail for one
    /// reason, as when a registry is down, do not come back together.
    pub fn count(&mut self, now: Timestamp, created: Timestamp, who: &str) {
        // creation times are whole seconds
        let is_of_this_round = |until: Timestamp| created.as_second() < until.as_second();
        if self.until.is_some_and(is_of_this_round) {
            return;
        }
        // nobody needed a runner for so long: what failed then says little of now
        let forgets = |until: Timestamp| created.duration_since(until) > FORGIVEN_AFTER;
        if self.until.is_some_and(forgets) {
            self.rounds = 0;
        }
        // the first replacement comes at once
        let wait = RECREATION.spread(self.rounds, who);
        self.rounds = self.rounds.saturating_add(1);
        self.until = now.saturating_add(wait).ok();
    }

    /// A runner got ready, or the runner spec was changed.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Until when no runner is to be made.
    pub fn until(&self, now: Timestamp) -> Option<Timestamp> {
        self.until.filter(|time| *time > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::after;

    #[test]
    fn runners_that_fail_together_count_once_and_rounds_wait_longer() {
        let expected = [0, 5, 10, 20, 40, 80, 160, 300, 300];
        for (wait, plain) in waits("ci/a").into_iter().zip(expected) {
            assert!(wait <= plain * 1_000 && wait >= plain * 750, "{wait} ms");
        }
    }

    #[test]
    fn sets_that_fail_together_do_not_come_back_together() {
        assert_ne!(waits("ci/a"), waits("ci/b"));
    }

    /// The waits of nine rounds, in milliseconds.
    fn waits(who: &str) -> Vec<i128> {
        let mut failing = FailureBackoff::default();
        let mut created = after(Timestamp::UNIX_EPOCH, 100);
        let mut waits = Vec::new();
        for _ in 0..9 {
            let failed = after(created, 2);
            for age in 0..3 {
                failing.count(after(failed, age), created, who);
            }
            let next = failing.until(failed).unwrap_or(failed);
            waits.push(next.duration_since(failed).as_millis());
            created = next;
        }
        waits
    }

    #[test]
    fn a_failure_long_after_the_others_counts_as_the_first() {
        for (later, expected) in [(500, 300), (700, 0)] {
            let mut failing = FailureBackoff::default();
            let mut created = after(Timestamp::UNIX_EPOCH, 100);
            for _ in 0..9 {
                failing.count(after(created, 2), created, "ci/a");
                created = failing.until(created).unwrap_or(after(created, 3));
            }
            let created = after(created, later);
            failing.count(after(created, 2), created, "ci/a");
            let wait = failing.until(after(created, 2));
            let wait = wait.map_or(0, |until| until.duration_since(after(created, 2)).as_secs());
            let range = expected * 3 / 4..=expected;
            assert!(range.contains(&wait), "{later} s later: {wait} s");
        }
    }

    #[test]
    fn a_ready_runner_ends_the_wait() {
        let now = after(Timestamp::UNIX_EPOCH, 9);
        let mut failing = FailureBackoff::default();
        failing.count(now, now, "ci/a");
        failing.count(after(now, 2), after(now, 1), "ci/a");
        assert!(failing.until(now).is_some());
        failing.reset();
        assert_eq!(failing.until(now), None);
    }
}
