//! Limits on requests: on their rate, as `--k8s-client-rate-limiter-qps` and `-burst` set it, and
//! on how many are under way, so that a controller that starts with thousands of runners does
//! not open as many connections.

use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// So many reads are under way at most.
const READS: usize = 16;
/// So many writes. More than reads: one may wait for an admission webhook, and others should not
/// have to wait for that.
const WRITES: usize = 64;

/// A token bucket on tokio's clock, and a bound on what is under way.
pub struct Limiter {
    rate: Option<Rate>,
    reads: Semaphore,
    writes: Semaphore,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It changes nothing.
    Read,
    /// It may change something.
    Write,
}

/// A request may be sent; it is over when this is dropped.
#[derive(Debug)]
pub struct Admitted<'a> {
    _permit: Option<SemaphorePermit<'a>>,
}

struct Rate {
    every: Duration,
    burst: u32,
    /// When the next request would be due if requests came one by one, `every` apart.
    due: Mutex<Option<Instant>>,
}

impl Limiter {
    /// No limit on the rate: the API server's own fairness decides.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self::with_rate(None)
    }

    const fn with_rate(rate: Option<Rate>) -> Self {
        Self {
            rate,
            reads: Semaphore::const_new(READS),
            writes: Semaphore::const_new(WRITES),
        }
    }

    /// At most `qps` requests a second on average, and `burst` at once. A rate that is not
    /// positive means no limit.
    #[must_use]
    pub fn new(qps: f64, burst: u32) -> Self {
        if !qps.is_finite() || qps <= 0.0 {
            return Self::unlimited();
        }
        Self::with_rate(Some(Rate {
            every: Duration::from_secs_f64(1.0 / qps),
            burst: burst.max(1),
            due: Mutex::new(None),
        }))
    }

    /// Waits until a request may be sent. Callers are admitted in the order they came.
    pub async fn admit(&self, access: Access) -> Admitted<'_> {
        let under_way = match access {
            Access::Read => &self.reads,
            Access::Write => &self.writes,
        };
        // it is never closed, and then there would be no bound
        let permit = under_way.acquire().await.ok();
        if let Some(rate) = &self.rate {
            let at = rate.reserve(Instant::now());
            tokio::time::sleep_until(at).await;
        }
        Admitted { _permit: permit }
    }
}

impl Rate {
    fn reserve(&self, now: Instant) -> Instant {
        let mut due = self
            .due
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let this = due.map_or(now, |due| due.max(now));
        *due = Some(this + self.every);
        let ahead = self.every * (self.burst - 1);
        this.checked_sub(ahead).map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let limiter = Limiter::new(10.0, 5);
        let start = Instant::now();
        let mut times = Vec::new();
        for _ in 0..8 {
            limiter.admit(Access::Read).await;
            times.push((Instant::now() - start).as_millis());
        }
        assert_eq!(times, [0, 0, 0, 0, 0, 100, 200, 300]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_rate_is_no_limit() {
        let limiter = Limiter::new(0.0, 0);
        let start = Instant::now();
        for _ in 0..1000 {
            limiter.admit(Access::Read).await;
        }
        assert_eq!(Instant::now(), start);
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_under_way_at_most_and_reads_do_not_wait_for_writes() {
        use futures::FutureExt;

        let limiter = Limiter::unlimited();
        let mut all = Vec::new();
        for (access, most) in [(Access::Write, WRITES), (Access::Read, READS)] {
            let mut under_way = Vec::new();
            while let Some(admitted) = limiter.admit(access).now_or_never() {
                under_way.push(admitted);
            }
            assert_eq!(under_way.len(), most, "{access:?}");
            under_way.pop();
            assert!(limiter.admit(access).now_or_never().is_some());
            // while these go on, the other kind has its own
            all.append(&mut under_way);
        }
    }
}
