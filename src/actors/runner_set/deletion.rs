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
            return self.delete_all_runners(ctx);
        }
        self.delete_all_runners(ctx);
        if !self.runners.is_empty() || !self.creation.is_empty() {
            self.keep_status(set, ctx);
        } else if self.remove_proxy(set, ctx) {
            self.drop_finalizer(set, ctx);
        }
    }

    /// Lets all runners go: idle ones through the service, busy ones when they have ended.
    pub(super) fn delete_all_runners(&mut self, ctx: &mut StepContext<Self>) {
        self.creation.trim(0);
        self.repeat_commands(ctx);
        while let Some(name) = self
            .runners
            .next_finished()
            .or_else(|| self.runners.next_failed(0))
            .or_else(|| self.runners.next_stale())
            .or_else(|| self.runners.next_outdated())
            .or_else(|| self.runners.next_unasked())
        {
            self.command_runner(name, RunnerCommand::Delete, ctx);
        }
        while let Some(name) = self.runners.next_idle() {
            self.command_runner(name, RunnerCommand::Release, ctx);
        }
        ctx.wake_at_some(self.runners.next_rest_end());
    }
}
