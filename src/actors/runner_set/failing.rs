//! How long to wait before failed runners are replaced.

use crate::actors::backoff::RECREATION;
use crate::clock::Timestamp;

/// Counts rounds of failure, not runners: a hundred that were made together and fail together
/// have shown one thing once.
#[derive(Debug, Default)]
pub(super) struct Failing {
    rounds: u32,
    counted: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl Failing {
    /// A runner has failed that was made at `created`.
    pub fn count(&mut self, now: Timestamp, created: Timestamp) {
        if self.counted.is_some_and(|counted| created < counted) {
            return;
        }
        // the first replacement comes at once
        let wait = RECREATION.plain(self.rounds);
        self.rounds = self.rounds.saturating_add(1);
        self.counted = Some(now);
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
        let start = Timestamp::UNIX_EPOCH;
        let mut failing = Failing::default();
        let mut now = after(start, 100);
        let mut waits = Vec::new();
        for _ in 0..9 {
            for age in [0, 1, 2] {
                failing.count(after(now, age), now);
            }
            let counted = now;
            now = failing.until(now).unwrap_or(now);
            waits.push(now.duration_since(counted).as_secs());
        }
        assert_eq!(waits, [0, 5, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn a_ready_runner_ends_the_wait() {
        let now = after(Timestamp::UNIX_EPOCH, 9);
        let mut failing = Failing::default();
        failing.count(now, now);
        failing.count(now, now);
        assert!(failing.until(now).is_some());
        failing.reset();
        assert_eq!(failing.until(now), None);
    }
}
