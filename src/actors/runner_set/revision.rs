//! Revisions of the runner spec: applying a new one, and standing still under one that the
//! service has rejected.

use super::books::Class;
use super::machine::{RunnerSetMachine, applied_revision};
use super::status::Marks;
use crate::actors::runner::turn::Turn;
use crate::api::{EphemeralRunnerSet, EphemeralRunnerSetPhase};
use crate::messages::RunnerCommand;

impl RunnerSetMachine {
    /// Lets go of what was made before `target`, leaves busy runners, and only then moves the
    /// marker. A crash in between repeats the cleanup, which is harmless.
    pub(super) fn apply_revision(
        &mut self,
        set: &EphemeralRunnerSet,
        target: i64,
        turn: &mut Turn<Self>,
    ) {
        self.creation.trim(0);
        while let Some(name) = self.books.next_idle(target) {
            self.tell(name, RunnerCommand::Release, turn);
        }
        if self.books.releases() > 0 || !self.creation.is_empty() {
            return;
        }
        if !self.proxy.refresh_for(target) {
            self.keep_proxy(set, turn);
            return;
        }
        let advanced = target.max(applied_revision(set));
        // verdicts are judged against the revision that is to stand
        let phase = if self.books.is_outdated_at(advanced) {
            EphemeralRunnerSetPhase::Outdated
        } else {
            EphemeralRunnerSetPhase::Running
        };
        let marks = Marks {
            applied: Some(advanced),
            cleanup_patch: Some(0),
            phase: Some(phase),
        };
        if self.write_marks(set, &marks, turn) {
            self.failing.reset();
        }
    }

    /// Whether the service rejects the runners' version under the applied revision. Only a new
    /// revision ends that.
    pub(super) fn is_outdated(&self, set: &EphemeralRunnerSet) -> bool {
        self.books.count(Class::Outdated) > 0
            || set.status.as_ref().and_then(|status| status.phase)
                == Some(EphemeralRunnerSetPhase::Outdated)
    }

    /// Under a rejected revision: runners without a job are let go, none is made.
    pub(super) fn stand_still(&mut self, set: &EphemeralRunnerSet, turn: &mut Turn<Self>) {
        self.creation.trim(0);
        while let Some(name) = self.books.next_idle(i64::MAX) {
            self.tell(name, RunnerCommand::Release, turn);
        }
        while let Some(name) = self.books.next_stale() {
            self.tell(name, RunnerCommand::Delete, turn);
        }
        self.count_finished(set, turn);
        turn.wake_at_some(self.books.next_rest_end());
    }
}
