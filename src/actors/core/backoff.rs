//! How long to wait before a thing is tried again: exponential, capped, and spread.
//!
//! Steps may not draw random numbers, so the spread comes from a hash of who waits and for
//! which time: two runners that failed together do not come back together, and a
//! simulation repeats itself.

use k8s_openapi::jiff::SignedDuration;

use crate::clock::Timestamp;

/// A schedule of growing waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The wait after the first failure, in milliseconds. It doubles with each further one.
    pub first_ms: i64,
    /// The longest wait, in milliseconds.
    pub cap_ms: i64,
}

/// For requests that failed on their way: 0.2 s, doubling up to 30 s.
pub const REQUESTS: Schedule = Schedule {
    first_ms: 200,
    cap_ms: 30_000,
};

/// For requests that lack a right: a person has to give it. 1 s, doubling up to 2 min.
pub const DENIED: Schedule = Schedule {
    first_ms: 1_000,
    cap_ms: 120_000,
};

/// For things made again because they ended: 5, 10, 20, … s up to 5 min. (The first time
/// is at once; that is the caller's business.)
pub const RECREATION: Schedule = Schedule {
    first_ms: 5_000,
    cap_ms: 300_000,
};

impl Schedule {
    /// The wait after so many failures (1 = the first), without spread.
    #[must_use]
    pub fn plain(self, failures: u32) -> SignedDuration {
        if failures == 0 {
            return SignedDuration::ZERO;
        }
        let factor = 1_i64 << (failures - 1).min(40);
        SignedDuration::from_millis(self.first_ms.saturating_mul(factor).min(self.cap_ms))
    }

    /// The wait after so many failures, shortened by up to a quarter, depending on `who`.
    #[must_use]
    pub fn spread(self, failures: u32, who: &str) -> SignedDuration {
        let plain = self.plain(failures);
        let seed = fnv(who.bytes().chain(failures.to_le_bytes()));
        let share = i64::from(seed % 256);
        let cut = i64::try_from(plain.as_millis()).unwrap_or(i64::MAX) / 4 * share / 256;
        plain.saturating_sub(SignedDuration::from_millis(cut))
    }

    /// When to try again after so many failures, the last of them at `now`.
    #[must_use]
    pub fn until(self, now: Timestamp, failures: u32, who: &str) -> Timestamp {
        now.saturating_add(self.spread(failures, who))
            .unwrap_or(now)
    }
}

fn fnv(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap() {
        let seconds: Vec<i64> = (0..=8).map(|n| RECREATION.plain(n).as_secs()).collect();
        assert_eq!(seconds, [0, 5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(RECREATION.plain(u32::MAX).as_secs(), 300);
    }

    #[test]
    fn spread_cuts_at_most_a_quarter_and_differs_by_who_waits() {
        for failures in 1..10 {
            let plain = RECREATION.plain(failures);
            let spread = RECREATION.spread(failures, "ci/a");
            assert!(spread <= plain && spread >= plain * 3 / 4);
        }
        assert_ne!(RECREATION.spread(7, "ci/a"), RECREATION.spread(7, "ci/b"));
        assert_eq!(RECREATION.spread(7, "ci/a"), RECREATION.spread(7, "ci/a"));
    }
}
