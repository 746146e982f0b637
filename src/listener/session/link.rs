//! The message session itself: opened, held by another, refreshed, lost, closed.

use std::time::Duration;

use super::vocabulary::Note;
use super::{Failure, FailureKind, Session, Statistics};

/// So many answers in a row, over a quarter of a minute, must say that the scale set does not
/// exist before that is believed: a service that was restarted may say so once.
const DISOWNED: u32 = 5;
/// A session that another holds is not asked for again sooner than this.
const HELD_FOR: Duration = Duration::from_secs(2);
/// So often is a refresh tried that is refused for no reason of its own.
const REFRESHES: u32 = 3;

impl Session {
    pub(super) fn opened(&mut self, result: Result<Option<Statistics>, Failure>) {
        match result {
            Ok(statistics) => {
                self.open = true;
                self.stale = false;
                self.fresh = true;
                self.disowned = 0;
                self.notes.push(Note::SessionOpened);
                self.take_statistics(statistics);
                self.decide();
            }
            Err(failure) if failure.kind == FailureKind::SessionConflict => {
                self.disowned = 0;
                // 2, 4, 8, … s: who holds it needs some time to let go of it
                self.failures = self.failures.max(1);
                let wait = self.back_off(failure.retry_after);
                self.wait = Some(wait.max(HELD_FOR));
                self.notes.push(Note::Held(failure));
            }
            Err(failure) if failure.kind == FailureKind::ScaleSetNotFound => {
                self.disowned += 1;
                if self.disowned >= DISOWNED {
                    self.end_with(failure);
                } else {
                    self.failed("open_session", failure);
                }
            }
            Err(failure) => self.failed("open_session", failure),
        }
    }

    pub(super) fn refreshed(&mut self, result: Result<Option<Statistics>, Failure>) {
        let failure = match result {
            Ok(statistics) => {
                self.stale = false;
                self.fresh = true;
                if self.take_statistics(statistics) {
                    self.decide();
                }
                self.tell_of_finished();
                // that is all there is to know
                self.ask = false;
                return;
            }
            Err(failure) => failure,
        };
        self.ask = false;
        let lost = match failure.kind {
            FailureKind::SessionNotFound
            // another one is open in its place
            | FailureKind::SessionConflict
            // opening a session shows whether that is so
            | FailureKind::ScaleSetNotFound => true,
            // what is refused without end must not be asked for without end
            FailureKind::Other => self.failures >= REFRESHES,
            _ => false,
        };
        if !lost {
            self.failed("refresh_session", failure);
            return;
        }
        self.open = false;
        self.stale = false;
        // at once, but not again and again
        if self.failures > 0 {
            self.wait = Some(self.back_off(failure.retry_after));
        }
        self.failures = self.failures.max(1);
        self.notes.push(Note::SessionLost(failure));
    }

    /// Takes a failure on the queue. The first time a token is refused it is replaced at once.
    /// Answers whether the failure was no more than that.
    pub(super) fn token_refused(&mut self, failure: &Failure) -> bool {
        let refused = matches!(
            failure.kind,
            FailureKind::TokenExpired | FailureKind::SessionNotFound
        );
        if !refused {
            return false;
        }
        self.stale = true;
        !self.fresh
    }

    pub(super) fn session_closed(&mut self, result: Result<(), Failure>) {
        self.closed = true;
        self.open = false;
        match result {
            Ok(()) => self.notes.push(Note::SessionClosed),
            // closed by the service already
            Err(failure)
                if matches!(
                    failure.kind,
                    FailureKind::SessionNotFound | FailureKind::ScaleSetNotFound
                ) => {}
            Err(failure) => {
                let reason = format!("the session was left to expire: {failure}");
                self.notes.push(Note::GivenUp("delete_session", reason));
            }
        }
    }
}
