//! Wall time, from the one place that may ask for it.
//!
//! Waiting is tokio's business; this says what time it is. Under simulation both move
//! together: the simulated clock is tokio's own, which can be paused, counted from a fixed
//! start. The clock can be moved against tokio's (a person sets a node's clock), never by us.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
//! # .block_on(async {
//! use std::time::Duration;
//! use wall_clock::Clock;
//!
//! let clock = Clock::simulated("2026-02-03T04:05:06Z".parse().unwrap());
//! tokio::time::sleep(Duration::from_secs(60)).await; // takes no time, if tokio's is paused
//! assert_eq!(clock.now().to_string(), "2026-02-03T04:06:06Z");
//! # });
//! ```
//!
//! A crate of its own, since servers for tests need it as well as programs: they must tell the
//! same time, and a trait would have had one implementation in each.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::SignedDuration;
pub use jiff::Timestamp;

/// Says what time it is. Clones tell the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Simulated {
        start: Timestamp,
        since: tokio::time::Instant,
        jumped_ms: Arc<AtomicI64>,
    },
}

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that reads `start` now and goes on with tokio's time. To be called inside a
    /// tokio runtime.
    #[must_use]
    pub fn simulated(start: Timestamp) -> Self {
        Self(Source::Simulated {
            start,
            since: tokio::time::Instant::now(),
            jumped_ms: Arc::default(),
        })
    }

    /// What time it is.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "this is the one place")]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => Timestamp::now(),
            Source::Simulated {
                start,
                since,
                jumped_ms,
            } => {
                let elapsed = SignedDuration::try_from(since.elapsed()).unwrap_or_default();
                let jumped = SignedDuration::from_millis(jumped_ms.load(Ordering::Relaxed));
                start
                    .saturating_add(elapsed)
                    .unwrap_or(*start)
                    .saturating_add(jumped)
                    .unwrap_or(*start)
            }
        }
    }

    /// Moves a simulated clock against tokio's by so many milliseconds; the system's clock
    /// is left alone.
    pub fn jump(&self, milliseconds: i64) {
        if let Source::Simulated { jumped_ms, .. } = &self.0 {
            jumped_ms.fetch_add(milliseconds, Ordering::Relaxed);
        }
    }
}

/// `time` moved by so many seconds, at the end of time if it would pass it.
#[must_use]
pub fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_clock_moves_with_tokios_and_can_be_set() {
        let start: Timestamp = "2026-02-03T04:05:06Z".parse().unwrap();
        let clock = Clock::simulated(start);
        let other = clock.clone();
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(clock.now(), after(start, 40));
        clock.jump(-10_000);
        assert_eq!(other.now(), after(start, 30), "a clone tells the same time");
    }

    #[test]
    fn time_ends_nowhere() {
        assert_eq!(after(Timestamp::MAX, 1), Timestamp::MAX);
    }
}
