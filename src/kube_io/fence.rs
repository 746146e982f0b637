//! Who does not hold the lease does not write.
//!
//! Every write passes the fence, from whatever thread. It is open while the lease is valid, and
//! it counts who has passed and has no answer yet, so that the lease is given up only after the
//! last answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

/// The fence. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Fence(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    idle: Notify,
}

#[derive(Debug)]
struct State {
    open: Open,
    /// Writes that have no answer yet.
    writing: usize,
}

/// Until when writes may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Always,
    Until(Instant),
    /// For good.
    Closed,
}

/// A write under way; it ends when this is dropped.
#[derive(Debug)]
pub struct Writing(Fence);

impl Fence {
    /// Of a process that works without a lease: open until it is closed.
    #[must_use]
    pub fn open() -> Self {
        Self::new(Open::Always)
    }

    /// Of a candidate: shut until the lease is held.
    #[must_use]
    pub fn shut() -> Self {
        Self::new(Open::Until(Instant::now()))
    }

    fn new(open: Open) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State { open, writing: 0 }),
            idle: Notify::new(),
        }))
    }

    /// The lease is held until then.
    pub(super) fn open_until(&self, time: Instant) {
        let mut state = self.lock();
        if state.open != Open::Closed {
            state.open = Open::Until(time);
        }
    }

    /// Lets nobody pass any more.
    pub fn close(&self) {
        self.lock().open = Open::Closed;
    }

    /// Begins a write, if it may begin.
    #[must_use]
    pub fn enter(&self) -> Option<Writing> {
        let mut state = self.lock();
        let open = match state.open {
            Open::Always => true,
            Open::Until(time) => Instant::now() < time,
            Open::Closed => false,
        };
        open.then(|| {
            state.writing += 1;
            Writing(self.clone())
        })
    }

    /// Begins a write, or waits for ever: a process whose fence is closed is about to end, and
    /// nobody has to hear that nothing is written any more.
    pub async fn pass(&self) -> Writing {
        match self.enter() {
            Some(writing) => writing,
            None => std::future::pending().await,
        }
    }

    /// How many writes have no answer yet.
    #[must_use]
    pub fn writing(&self) -> usize {
        self.lock().writing
    }

    /// Waits until every write has its answer.
    pub async fn drained(&self) {
        loop {
            // first the ticket, so that an end between the look and the wait is not missed
            let idle = self.0.idle.notified();
            if self.writing() == 0 {
                return;
            }
            idle.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.writing -= 1;
        if state.writing == 0 {
            self.0.0.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_open_for_as_long_as_the_lease_is_valid() {
        let fence = Fence::shut();
        assert!(fence.enter().is_none());
        fence.open_until(Instant::now() + Duration::from_secs(10));
        assert!(fence.enter().is_some());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(fence.enter().is_none(), "it was not renewed");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_closed_stays_closed_and_whoever_comes_waits_for_ever() {
        let fence = Fence::open();
        fence.close();
        fence.open_until(Instant::now() + Duration::from_secs(10));
        assert!(fence.enter().is_none());
        assert!(fence.pass().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_drained_when_the_last_write_has_ended() {
        let fence = Fence::open();
        let (one, other) = (fence.enter(), fence.enter());
        assert!(one.is_some() && other.is_some());
        fence.close();
        drop(one);
        assert!(fence.drained().now_or_never().is_none());
        let waiting = tokio::spawn({
            let fence = fence.clone();
            async move { fence.drained().await }
        });
        tokio::task::yield_now().await;
        drop(other);
        waiting.await.unwrap();
        assert_eq!(fence.writing(), 0);
    }
}
