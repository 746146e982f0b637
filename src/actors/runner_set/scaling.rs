//! How many runners there are to be: the decision on counts and the listener's patch.

use super::books::Class;
use super::machine::RunnerSetMachine;
use super::status::Marks;
use crate::actors::runner::turn::Turn;
use crate::api::EphemeralRunnerSet;
use crate::messages::RunnerCommand;

impl RunnerSetMachine {
    /// Decides on one input, in this order: stale runners go, finished ones are counted, and
    /// only then the set grows or shrinks.
    pub(super) fn scale(
        &mut self,
        set: &EphemeralRunnerSet,
        may_create: bool,
        turn: &mut Turn<Self>,
    ) {
        while let Some(name) = self.books.next_stale() {
            self.tell(name, RunnerCommand::Delete, turn);
        }
        if self.books.count(Class::Stale) > 0 || self.count_finished(set, turn) {
            return;
        }
        let patch = set.spec.patch_id;
        let is_due = patch == 0 || patch != self.books.latest_patch() || self.lost;
        let replicas = set.spec.replicas.unwrap_or(0).max(0);
        let capacity = self.books.capacity();
        let wanted = usize::try_from(replicas - capacity).unwrap_or(0);
        self.creation.trim(wanted);
        if !is_due && self.creation.is_empty() {
            return;
        }
        let gap = wanted.saturating_sub(self.creation.len());
        let held_back = patch > 0 && cleanup_patch(set) == patch;
        if wanted > 0 {
            if held_back {
                self.creation.trim(0);
            } else if may_create {
                self.create_runners(set, gap, turn);
            }
        } else if patch == 0 {
            self.shrink(replicas, turn);
        }
        if wanted == 0 && self.creation.is_empty() {
            // the decision is carried out
            self.lost = false;
        }
    }

    /// Counts finished runners and lets them go. Says whether there are any: `replicas` was
    /// computed while they were alive, so nothing else is decided on it.
    pub(super) fn count_finished(
        &mut self,
        set: &EphemeralRunnerSet,
        turn: &mut Turn<Self>,
    ) -> bool {
        if self.books.count(Class::Finished) == 0 {
            return false;
        }
        if cleanup_patch(set) == set.spec.patch_id {
            while let Some(name) = self.books.next_finished() {
                self.tell(name, RunnerCommand::Delete, turn);
            }
        } else {
            let marks = Marks {
                cleanup_patch: Some(set.spec.patch_id),
                ..Marks::default()
            };
            self.write_marks(set, &marks, turn);
        }
        true
    }

    /// Asks surplus runners to go, as many at once as there are too many.
    fn shrink(&mut self, replicas: i64, turn: &mut Turn<Self>) {
        let alive = self.books.count(Class::Pending) + self.books.count(Class::Running);
        let surplus = usize::try_from(alive - replicas).unwrap_or(0);
        while self.books.releases() < surplus
            && let Some(name) = self.books.next_surplus(turn.now)
        {
            self.tell(name, RunnerCommand::Release, turn);
        }
        if self.books.releases() < surplus {
            turn.wake_at_some(self.books.next_surplus_at());
        }
    }

    /// Failed runners are no capacity. One is kept for a person to look at, until another
    /// does well.
    pub(super) fn clear_failed(&mut self, turn: &mut Turn<Self>) {
        let kept = usize::from(!std::mem::take(&mut self.succeeded));
        while let Some(name) = self.books.next_failed(kept) {
            self.tell(name, RunnerCommand::Delete, turn);
        }
    }
}

/// The patch under which finished runners were last counted. Absent and 0 are the same: patch
/// 0 holds nothing back.
fn cleanup_patch(set: &EphemeralRunnerSet) -> i64 {
    set.status
        .as_ref()
        .and_then(|status| status.finished_runner_cleanup_patch_id)
        .unwrap_or(0)
}
