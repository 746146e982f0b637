//! Whether the program is alive and ready, as the probes of its pod ask.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// After so long without a sign of life, a restart is what is left to try.
pub const LIVENESS_LIMIT: Duration = Duration::from_secs(180);

/// Signs of life of one listener program.
///
/// It is alive while polls end, however they end: when the service is out of order, polls
/// that fail are what a healthy listener does. An attempt to open or refresh a session that
/// ended counts like a poll, since a session that someone else holds, or a service that is out
/// of order, is no reason to be restarted.
#[derive(Debug)]
pub struct Health(Mutex<State>);

#[derive(Debug)]
struct State {
    last_turn: Instant,
    ready: bool,
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl Health {
    /// A program that has just started. To be called inside a tokio runtime.
    #[must_use]
    pub fn new() -> Self {
        Self(Mutex::new(State {
            last_turn: Instant::now(),
            ready: false,
        }))
    }

    /// A poll has ended.
    pub fn turned(&self) {
        self.with(|state| state.last_turn = Instant::now());
    }

    /// Says whether a session is open.
    pub fn set_ready(&self, ready: bool) {
        self.with(|state| state.ready = ready);
    }

    /// Whether it is alive.
    ///
    /// # Errors
    ///
    /// When no poll has ended for [`LIVENESS_LIMIT`]; the text says for how long.
    pub fn live(&self) -> Result<(), String> {
        let idle = self.with(|state| state.last_turn.elapsed());
        if idle <= LIVENESS_LIMIT {
            return Ok(());
        }
        Err(format!(
            "no poll of the message queue has ended for {} s",
            idle.as_secs()
        ))
    }

    /// Whether it listens.
    ///
    /// # Errors
    ///
    /// When no message session is open.
    pub fn ready(&self) -> Result<(), String> {
        if self.with(|state| state.ready) {
            return Ok(());
        }
        Err("no message session is open".to_owned())
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        // both fields are sound after a panic elsewhere
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_alive_until_three_minutes_after_the_last_poll() {
        let health = Health::new();
        tokio::time::advance(Duration::from_secs(170)).await;
        assert_eq!(health.live(), Ok(()));
        health.turned();
        tokio::time::advance(Duration::from_secs(180)).await;
        assert_eq!(health.live(), Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(health.live().unwrap_err().contains("181 s"));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_ready_while_a_session_is_open() {
        let health = Health::new();
        assert!(health.ready().is_err());
        health.set_ready(true);
        assert_eq!(health.ready(), Ok(()));
        health.set_ready(false);
        assert!(health.ready().is_err());
    }
}
