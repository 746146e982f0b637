//! The set's end: runners first, then the proxy Secret, then the finalizer.

use super::machine::RunnerSetMachine;
use crate::actors::core::step_context::StepContext;
use crate::api::EphemeralRunnerSet;
use crate::messages::RunnerCommand;

impl RunnerSetMachine {
    /// A set that is being deleted.
    pub(super) fn delete(&mut self, set: &EphemeralRunnerSet, ctx: &mut StepContext<Self>) {
        if !self.has_finalizer(set) {
            // it goes, or waits for somebody else
            return self.wind_down(ctx);
        }
        self.wind_down(ctx);
        if !self.books.is_empty() || !self.creation.is_empty() {
            self.keep_status(set, ctx);
        } else if self.remove_proxy(set, ctx) {
            self.drop_finalizer(set, ctx);
        }
    }

    /// Lets all runners go: idle ones through the service, busy ones when they have ended.
    pub(super) fn wind_down(&mut self, ctx: &mut StepContext<Self>) {
        self.creation.trim(0);
        self.remind(ctx);
        while let Some(name) = self
            .books
            .next_finished()
            .or_else(|| self.books.next_failed(0))
            .or_else(|| self.books.next_stale())
            .or_else(|| self.books.next_outdated())
            .or_else(|| self.books.next_unasked())
        {
            self.tell(name, RunnerCommand::Delete, ctx);
        }
        while let Some(name) = self.books.next_idle() {
            self.tell(name, RunnerCommand::Release, ctx);
        }
        ctx.wake_at_some(self.books.next_rest_end());
    }
}
