//! How soon a connection that has gone silent is noticed.
//!
//! A peer that dies, or a network that drops packets without a word, resets nothing. Whoever
//! waits for an answer on such a connection waits until its own deadline, and a watch or a
//! long poll has a long one. So connections are asked for a sign of life.

use std::time::Duration;

/// How soon a connection that has gone silent is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// After so long without traffic a sign of life is asked for.
    pub idle: Duration,
    /// After so long without one, the connection counts as broken.
    pub timeout: Duration,
}

impl KeepAlive {
    /// What the program works with: both together stay below 20 s.
    pub const DEFAULT: Self = Self {
        idle: Duration::from_secs(8),
        timeout: Duration::from_secs(8),
    };
    /// How many probes of TCP go into the timeout.
    pub const PROBES: u32 = 2;

    /// From one probe of TCP to the next. The kernel counts whole seconds.
    #[must_use]
    pub fn probe_interval(self) -> Duration {
        (self.timeout / Self::PROBES).max(Duration::from_secs(1))
    }

    /// For how long sent data may go without being acknowledged.
    #[must_use]
    pub const fn unacknowledged(self) -> Duration {
        self.idle.saturating_add(self.timeout)
    }
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
pub mod test_support;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_connection_is_noticed_within_twenty_seconds() {
        let default = KeepAlive::DEFAULT;
        let by_probes = default.idle + default.probe_interval() * KeepAlive::PROBES;
        for noticed in [by_probes, default.unacknowledged()] {
            assert!(noticed < Duration::from_secs(20), "{noticed:?}");
        }
    }
}
