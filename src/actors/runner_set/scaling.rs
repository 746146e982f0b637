//! How many runners there are to be: the decision on counts and the listener's patch.

use super::machine::{RunnerSetMachine, applied_revision, cleanup_patch};
use super::runner_index::RunnerClass;
use super::status::StatusMarks;
use crate::actors::core::step_context::StepContext;
use crate::api::EphemeralRunnerSet;
use crate::messages::RunnerCommand;

impl RunnerSetMachine {
    /// Decides on one input, in this order: stale runners go, finished ones are counted, and
    /// only then the set grows or shrinks.
    pub(super) fn scale(
        &mut self,
        set: &EphemeralRunnerSet,
        may_create: bool,
        ctx: &mut StepContext<Self>,
    ) {
        while let Some(name) = self.runners.next_stale() {
            self.command_runner(name, RunnerCommand::Delete, ctx);
        }
        if self.runners.count(RunnerClass::Stale) > 0 {
            return;
        }
        self.follow_room(set, ctx);
        let revision = set.spec.actionable_revision.unwrap_or(0);
        self.release_before(revision.min(applied_revision(set)), ctx);
        ctx.wake_at_some(self.runners.next_rest_end());
        let is_due = self.is_due(set);
        if !is_due && !self.unsure && self.creation.is_empty() {
            return self.release_surplus(set, ctx);
        }
        if is_due && self.count_finished(set, ctx) {
            return;
        }
        let replicas = set.spec.replicas.unwrap_or(0).max(0);
        let free = replicas - self.runners.capacity();
        let fillable = self.reserved.fillable(free, self.runners.uncounted());
        let wanted = usize::try_from(fillable).unwrap_or(0);
        self.creation.trim(wanted);
        let gap = wanted.saturating_sub(self.creation.len());
        if wanted > 0 {
            if may_create {
                self.create_runners(set, gap, ctx);
            }
        } else {
            self.release_surplus(set, ctx);
        }
        if wanted == 0 && self.creation.is_empty() {
            self.rest_room();
            // the decision is carried out
            self.unsure = false;
            self.lost &= self.runners.uncounted() > 0;
        }
    }

    /// Whether a decision is due: the listener may have the count forced, its patch has not
    /// been served, or a place has come free that is to be filled.
    fn is_due(&self, set: &EphemeralRunnerSet) -> bool {
        let patch = set.spec.patch_id;
        patch == 0 || patch != self.runners.latest_patch() || self.lost
    }

    /// Counts finished runners, if a decision is due. Before that is on record, nothing is done
    /// about it.
    pub(super) fn count_finished_if_due(
        &mut self,
        set: &EphemeralRunnerSet,
        ctx: &mut StepContext<Self>,
    ) {
        if self.is_due(set) {
            self.count_finished(set, ctx);
        }
    }

    /// Counts finished runners: puts on record that it is done under this patch, then lets them
    /// go and holds their places. Says whether it did either: nothing else is decided on the
    /// same input.
    fn count_finished(&mut self, set: &EphemeralRunnerSet, ctx: &mut StepContext<Self>) -> bool {
        let (patch, marker) = (set.spec.patch_id, cleanup_patch(set));
        let on_record = self.reserved.is_count_on_record(marker);
        if !self.runners.has_to_count(ctx.now, patch, on_record) {
            ctx.wake_at_some(self.runners.counts_at());
            return false;
        }
        if !on_record {
            self.runners.mark_finished();
            self.reserved.write_count();
        }
        if marker != patch {
            let marks = StatusMarks {
                cleanup_patch: Some(patch),
                ..StatusMarks::default()
            };
            return self.write_marks(set, &marks, ctx);
        }
        for counted in self.runners.count_finished(ctx.now, patch) {
            self.reserved.reserve(counted);
        }
        self.clear_settled(ctx);
        true
    }

    /// Lets finished runners go that are counted. Each stays until its pod and Secret are gone:
    /// a runner in deletion that holds some is capacity once more.
    pub(super) fn clear_settled(&mut self, ctx: &mut StepContext<Self>) {
        while let Some(name) = self.runners.next_settled() {
            self.command_runner(name, RunnerCommand::Delete, ctx);
        }
    }

    /// Asks surplus runners to go, as many at once as there are too many.
    pub(super) fn shrink(&mut self, replicas: i64, ctx: &mut StepContext<Self>) {
        let alive =
            self.runners.count(RunnerClass::Pending) + self.runners.count(RunnerClass::Running);
        let surplus = usize::try_from(alive - replicas).unwrap_or(0);
        while self.runners.releases() < surplus
            && let Some(name) = self.runners.next_surplus(ctx.now)
        {
            self.command_runner(name, RunnerCommand::Release, ctx);
        }
        if self.runners.releases() < surplus {
            ctx.wake_at_some(self.runners.next_surplus_at());
        }
    }

    /// Failed runners are no capacity. One is kept for a person to look at, until another
    /// does well.
    pub(super) fn clear_failed(&mut self, ctx: &mut StepContext<Self>) {
        let kept = usize::from(!std::mem::take(&mut self.succeeded));
        while let Some(name) = self.runners.next_failed(kept) {
            self.command_runner(name, RunnerCommand::Delete, ctx);
        }
    }
}
