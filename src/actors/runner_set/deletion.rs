//! The set's end: runners first, then the proxy Secret, then the finalizer.

use super::machine::RunnerSetMachine;
use crate::actors::runner::turn::Turn;
use crate::api::EphemeralRunnerSet;
use crate::messages::RunnerCommand;

impl RunnerSetMachine {
    /// A set that is being deleted.
    pub(super) fn delete(&mut self, set: &EphemeralRunnerSet, turn: &mut Turn<Self>) {
        if !self.has_finalizer(set) {
            // it goes, or waits for somebody else
            return self.wind_down(turn);
        }
        self.wind_down(turn);
        if !self.books.is_empty() || !self.creation.is_empty() {
            self.keep_status(set, turn);
        } else if self.remove_proxy(set, turn) {
            self.drop_finalizer(set, turn);
        }
    }

    /// Lets all runners go: idle ones through the service, busy ones when they have ended.
    pub(super) fn wind_down(&mut self, turn: &mut Turn<Self>) {
        self.creation.trim(0);
        self.remind(turn);
        while let Some(name) = self
            .books
            .next_finished()
            .or_else(|| self.books.next_failed(0))
            .or_else(|| self.books.next_stale())
            .or_else(|| self.books.next_outdated())
            .or_else(|| self.books.next_unasked())
        {
            self.tell(name, RunnerCommand::Delete, turn);
        }
        while let Some(name) = self.books.next_idle() {
            self.tell(name, RunnerCommand::Release, turn);
        }
        turn.wake_at_some(self.books.next_rest_end());
    }
}
