//! The threads that scale sets live on.
//!
//! A scale set and all below it stay on one thread, so that messages between them never
//! cross threads. Under simulation there is one thread, the caller's. A thread that dies takes
//! its scale sets with it, so that is told, and the process starts anew.

use std::any::Any;
use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc as blocking;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::LocalSet;

/// For how long the end of all threads is waited for. What runs on them is short.
const JOIN: Duration = Duration::from_secs(1);

/// Something to start on a thread.
type Start = Box<dyn FnOnce() + Send>;

/// A thread has ended that should not have, and its scale sets with it.
#[derive(Debug, thiserror::Error)]
#[error("the thread {thread} has ended, which is a bug, please report it: {reason}")]
pub struct WorkerEnded {
    /// Name of the thread.
    pub thread: String,
    /// What it panicked with.
    pub reason: String,
}

/// Where actors are started.
pub enum Workers {
    /// On the thread of the caller, who is inside a `LocalSet`.
    Here,
    /// On threads of their own, each with a current-thread runtime.
    Threads(Threads),
}

/// Threads for scale sets. They are ended, and waited for, when this is dropped.
pub struct Threads {
    senders: Vec<mpsc::UnboundedSender<Start>>,
    ended: Option<mpsc::UnboundedReceiver<WorkerEnded>>,
    /// Each thread holds the other end until it has ended.
    all_ended: blocking::Receiver<Infallible>,
}

impl Workers {
    /// Starts so many threads.
    ///
    /// # Errors
    ///
    /// When the operating system gives no thread or the runtime cannot be built.
    pub fn threads(count: usize) -> io::Result<Self> {
        let mut senders = Vec::with_capacity(count);
        let (ended, endings) = mpsc::unbounded_channel();
        let (alive, all_ended) = blocking::channel();
        for index in 0..count.max(1) {
            // scale sets are few and each is sent once, so this channel does not grow
            let (sender, receiver) = mpsc::unbounded_channel();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let (ended, alive) = (ended.clone(), alive.clone());
            let thread = format!("scale-sets-{index}");
            std::thread::Builder::new()
                .name(thread.clone())
                .spawn(move || {
                    let worked = catch_unwind(AssertUnwindSafe(|| work(runtime, receiver)));
                    if let Err(panic) = worked {
                        let reason = panic_message(panic.as_ref());
                        // nobody listens when the process is about to end anyway
                        let _heard = ended.send(WorkerEnded { thread, reason });
                    }
                    drop(alive);
                })?;
            senders.push(sender);
        }
        Ok(Self::Threads(Threads {
            senders,
            ended: Some(endings),
            all_ended,
        }))
    }

    /// How many threads there are, beside the caller's.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Here => 0,
            Self::Threads(threads) => threads.senders.len(),
        }
    }

    /// So many threads; 0 is the thread of the caller.
    ///
    /// # Errors
    ///
    /// As [`Self::threads`].
    pub fn of_count(count: usize) -> io::Result<Self> {
        match count {
            0 => Ok(Self::Here),
            count => Self::threads(count),
        }
    }

    /// Starts something on the thread that `key` belongs to.
    pub fn start(&self, key: &str, start: impl FnOnce() + Send + 'static) {
        match self {
            Self::Here => start(),
            Self::Threads(Threads { senders, .. }) => {
                let hash = key.bytes().fold(0_usize, |hash, byte| {
                    hash.wrapping_mul(31).wrapping_add(usize::from(byte))
                });
                let sender = &senders[hash % senders.len()];
                if sender.send(Box::new(start)).is_err() {
                    tracing::error!(key, "the thread for scale sets has ended");
                }
            }
        }
    }

    /// Ends when a thread does that should not. To be called once, before the workers are given
    /// away.
    pub fn ended(&mut self) -> impl Future<Output = WorkerEnded> + use<> {
        let endings = match self {
            Self::Here => None,
            Self::Threads(threads) => threads.ended.take(),
        };
        async move {
            if let Some(mut endings) = endings
                && let Some(ended) = endings.recv().await
            {
                return ended;
            }
            std::future::pending().await
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.senders.clear();
        if self.all_ended.recv_timeout(JOIN) == Err(blocking::RecvTimeoutError::Timeout) {
            tracing::warn!("a thread for scale sets does not end; it ends with the process");
        }
    }
}

fn work(runtime: tokio::runtime::Runtime, mut receiver: mpsc::UnboundedReceiver<Start>) {
    let local = LocalSet::new();
    local.block_on(&runtime, async move {
        while let Some(start) = receiver.recv().await {
            start();
        }
    });
    drop(local);
    // a name that is still being looked up must not hold the thread
    runtime.shutdown_background();
}

/// What a panic was called with.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_thread_that_dies_is_told_with_its_name_and_why() {
        let mut workers = Workers::threads(1).unwrap();
        let ended = workers.ended();
        workers.start("a", || panic!("as asked"));
        let ended = ended.await;
        assert_eq!(ended.thread, "scale-sets-0");
        assert_eq!(ended.reason, "as asked");
    }

    #[tokio::test]
    async fn threads_end_with_what_runs_on_them_when_they_are_dropped() {
        let mut workers = Workers::threads(2).unwrap();
        let ended = workers.ended();
        let mut running = Vec::new();
        for key in ["a", "b", "c"] {
            let (alive, gone) = oneshot::channel::<()>();
            workers.start(key, move || {
                tokio::task::spawn_local(async move {
                    let _alive = alive;
                    std::future::pending::<()>().await;
                });
            });
            running.push(gone);
        }
        drop(workers);
        for mut gone in running {
            assert_eq!(gone.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        }
        assert!(ended.now_or_never().is_none(), "that was as it should be");
    }
}
