//! A limit on the rate of requests, as `--k8s-client-rate-limiter-qps` and `-burst` set it.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// A token bucket on tokio's clock.
pub struct Limiter {
    rate: Option<Rate>,
}

struct Rate {
    every: Duration,
    burst: u32,
    /// When the next request would be due if requests came one by one, `every` apart.
    due: Mutex<Option<Instant>>,
}

impl Limiter {
    /// No limit: the API server's own fairness decides.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self { rate: None }
    }

    /// At most `qps` requests a second on average, and `burst` at once. A rate that is not
    /// positive means no limit.
    #[must_use]
    pub fn new(qps: f64, burst: u32) -> Self {
        if !qps.is_finite() || qps <= 0.0 {
            return Self::unlimited();
        }
        Self {
            rate: Some(Rate {
                every: Duration::from_secs_f64(1.0 / qps),
                burst: burst.max(1),
                due: Mutex::new(None),
            }),
        }
    }

    /// Waits until a request may be sent. Callers are admitted in the order they came.
    pub async fn admit(&self) {
        if let Some(rate) = &self.rate {
            let at = rate.reserve(Instant::now());
            tokio::time::sleep_until(at).await;
        }
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
            limiter.admit().await;
            times.push((Instant::now() - start).as_millis());
        }
        assert_eq!(times, [0, 0, 0, 0, 0, 100, 200, 300]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_rate_is_no_limit() {
        let limiter = Limiter::new(0.0, 0);
        let start = Instant::now();
        for _ in 0..1000 {
            limiter.admit().await;
        }
        assert_eq!(Instant::now(), start);
    }
}
