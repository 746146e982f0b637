//! Revisions of the runner spec: applying a new one, and standing still under one that the
//! service has rejected.

use super::machine::{RunnerSetMachine, applied_revision};
use super::runner_index::RunnerClass;
use super::status::StatusMarks;
use crate::actors::core::step_context::StepContext;
use crate::api::{EphemeralRunnerSet, EphemeralRunnerSetPhase};
use crate::messages::RunnerCommand;

impl RunnerSetMachine {
    /// Lets go of what was made before `target`, leaves busy runners, and only then moves the
    /// marker. A crash in between repeats the cleanup, which is harmless.
    pub(super) fn apply_revision(
        &mut self,
        set: &EphemeralRunnerSet,
        target: i64,
        ctx: &mut StepContext<Self>,
    ) {
        self.creation.trim(0);
        self.release_before(target, ctx);
        if self.runners.releases() > 0 || !self.creation.is_empty() {
            return;
        }
        if self.runners.is_unasked_before(target) {
            // none counts as let go that the service was not asked about
            return ctx.wake_at_some(self.runners.next_rest_end());
        }
        if !self.proxy.refresh_for(target) {
            self.keep_proxy(set, ctx);
            return;
        }
        let advanced = target.max(applied_revision(set));
        // verdicts are judged against the revision that is to stand
        let phase = if self.runners.is_outdated_at(advanced) {
            EphemeralRunnerSetPhase::Outdated
        } else {
            EphemeralRunnerSetPhase::Running
        };
        let marks = StatusMarks {
            applied: Some(advanced),
            cleanup_patch: Some(0),
            phase: Some(phase),
        };
        if self.write_marks(set, &marks, ctx) {
            self.failing.reset();
        }
    }

    /// Asks idle runners to go that were made before `revision`. One that the service keeps is asked
    /// again after a rest: the job that it was kept for may have been taken back.
    pub(super) fn release_before(&mut self, revision: i64, ctx: &mut StepContext<Self>) {
        while let Some(name) = self.runners.next_idle_before(revision) {
            self.command_runner(name, RunnerCommand::Release, ctx);
        }
    }

    /// Follows the applied revision, and judges whether the service rejects the runners'
    /// version under it.
    ///
    /// A verdict is given by a runner that was made under the applied revision or a newer one,
    /// and stands until another revision is applied: that the runner is deleted by a person
    /// corrects nothing, and must not set a parked scale set going. So this is judged anew when
    /// the revision or a runner's state changes; the phase on record is believed only by a
    /// process that has just started, and is corrected where it says something else.
    pub(super) fn follow_verdict(&mut self, set: &EphemeralRunnerSet) {
        let known = self.runners.applied();
        let applied = applied_revision(set);
        self.lost |= self.runners.set_applied(applied);
        let verdict = self.runners.count(RunnerClass::Outdated) > 0;
        let standing = match self.rejected {
            None => phase(set) == Some(EphemeralRunnerSetPhase::Outdated),
            Some(_) if known != applied => {
                self.reserved.forget_unknown();
                false
            }
            Some(before) => before,
        };
        self.rejected = Some(standing || verdict);
    }

    pub(super) fn is_outdated(&self) -> bool {
        self.rejected == Some(true)
    }

    /// Puts the phase on record, at once: everything else waits for it.
    pub(super) fn keep_phase(&mut self, set: &EphemeralRunnerSet, ctx: &mut StepContext<Self>) {
        let wanted = self.phase();
        if phase(set).is_some_and(|known| known != wanted) {
            let marks = StatusMarks {
                phase: Some(wanted),
                ..StatusMarks::default()
            };
            self.write_marks(set, &marks, ctx);
        }
    }

    /// The phase as it is judged.
    pub(super) fn phase(&self) -> EphemeralRunnerSetPhase {
        if self.is_outdated() {
            EphemeralRunnerSetPhase::Outdated
        } else {
            EphemeralRunnerSetPhase::Running
        }
    }

    /// Under a rejected revision: runners without a job are let go, none is made.
    pub(super) fn reconcile_parked(
        &mut self,
        set: &EphemeralRunnerSet,
        ctx: &mut StepContext<Self>,
    ) {
        self.creation.trim(0);
        while let Some(name) = self.runners.next_idle() {
            self.command_runner(name, RunnerCommand::Release, ctx);
        }
        while let Some(name) = self.runners.next_stale() {
            self.command_runner(name, RunnerCommand::Delete, ctx);
        }
        self.count_finished_if_due(set, ctx);
        ctx.wake_at_some(self.runners.next_rest_end());
    }
}

fn phase(set: &EphemeralRunnerSet) -> Option<EphemeralRunnerSetPhase> {
    set.status.as_ref().and_then(|status| status.phase)
}
