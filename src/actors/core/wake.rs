//! When an actor wants to be woken.

use crate::clock::Timestamp;

/// Collects the earliest time at which an actor wants to be woken.
#[derive(Debug, Default)]
pub struct Wake(Option<Timestamp>);

impl Wake {
    /// Asks to be woken at `time` at the latest.
    pub fn at(&mut self, time: Timestamp) {
        self.0 = Some(self.0.map_or(time, |earlier| earlier.min(time)));
    }

    /// The earliest wish.
    #[must_use]
    pub const fn earliest(&self) -> Option<Timestamp> {
        self.0
    }
}
