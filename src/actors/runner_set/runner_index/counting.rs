//! Which finished runners are counted, and when.

use super::{CountedRunner, RunnerIndex};
use crate::clock::Timestamp;
use crate::messages::RunnerReport;

impl RunnerIndex {
    /// Another patch was seen.
    pub const fn begin_patch(&mut self) {
        self.patch = self.patch.wrapping_add(1);
    }

    /// Takes in up to when finished jobs are left out of `replicas`. Says whether that opens
    /// places.
    pub fn set_counted_until(&mut self, until: Option<Timestamp>) -> bool {
        if until == self.counted_until {
            return false;
        }
        // it hardly ever goes back; then nobody is called back who was let go
        self.counted_until = until;
        let mut opens = false;
        while let Some((finished, name)) = self.uncounted.first().cloned()
            && self.counted_until.is_some_and(|until| finished <= until)
            && let Some(mut entry) = self.unlink(&name)
        {
            entry.counted = true;
            self.link(name, entry);
            opens = true;
        }
        opens
    }

    /// Whether finished runners are to be counted now under this patch; `on_record` says that a
    /// count under it is on record.
    ///
    /// A listener that says which jobs it has left out will say so of these too. Until then
    /// `replicas` may include them, under whichever patch it comes: one that crosses their end
    /// is written later and computed earlier. Of any other listener the next patch may be computed
    /// already when a count is on record, so that what ends later waits for that patch. Patch 0
    /// says that nothing goes on.
    pub fn has_to_count(&self, now: Timestamp, patch: i64, on_record: bool) -> bool {
        if patch == 0 {
            !self.uncounted.is_empty()
        } else if self.counted_until.is_some() {
            self.unheard.first().is_some_and(|(until, _)| *until <= now)
        } else if on_record {
            !self.marked.is_empty()
        } else {
            !self.uncounted.is_empty()
        }
    }

    /// When [`Self::has_to_count`] will say so, unless the listener says something before.
    pub fn counts_at(&self) -> Option<Timestamp> {
        let tells = self.counted_until.is_some();
        let (until, _) = self.unheard.first().filter(|_| tells)?;
        Some(*until)
    }

    /// Notes that the count that is about to be put on record is about all that are finished.
    pub fn mark_finished(&mut self) {
        let all: Vec<String> = self
            .uncounted
            .iter()
            .map(|(_, name)| name.clone())
            .collect();
        for name in all {
            if let Some(mut entry) = self.unlink(&name) {
                entry.marked = true;
                self.link(name, entry);
            }
        }
    }

    /// Counts the finished runners that are to be, once the count is on record. Gives those that
    /// were not counted before.
    pub fn count_finished(&mut self, now: Timestamp, patch: i64) -> Vec<CountedRunner> {
        let mut counted = Vec::new();
        while self.has_to_count(now, patch, true)
            && let Some(name) = self.next_to_count(patch)
            && let Some(mut entry) = self.unlink(&name)
        {
            entry.counted = true;
            counted.push(CountedRunner {
                name: name.clone(),
                finished: entry.report.job_finished,
                late: entry.ended.is_none_or(|(_, under)| under == self.patch),
            });
            self.link(name, entry);
        }
        counted
    }

    fn next_to_count(&self, patch: i64) -> Option<String> {
        let queue = if patch != 0 && self.counted_until.is_none() {
            &self.marked
        } else {
            &self.unheard
        };
        queue.first().map(|(_, name)| name.clone())
    }

    /// Whether `replicas` was computed without the job that was recorded as finished then.
    pub fn is_counted(&self, finished: Option<Timestamp>) -> bool {
        finished.is_some_and(|finished| self.counted_until.is_some_and(|until| finished <= until))
    }

    pub(super) fn is_known_of(&self, report: &RunnerReport) -> bool {
        self.is_counted(report.job_finished)
    }

    /// Finished runners that no decision has counted and that `replicas` may include.
    pub fn uncounted(&self) -> i64 {
        i64::try_from(self.uncounted.len()).unwrap_or(i64::MAX)
    }
}
