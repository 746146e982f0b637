//! The threads that scale sets live on.
//!
//! A scale set and all below it stay on one thread, so that messages between them never
//! cross threads. Under simulation there is one thread, the caller's.

use std::io;

use tokio::sync::mpsc;
use tokio::task::LocalSet;

/// Something to start on a thread.
type Start = Box<dyn FnOnce() + Send>;

/// Where actors are started.
pub enum Workers {
    /// On the thread of the caller, who is inside a `LocalSet`.
    Here,
    /// On threads of their own, each with a current-thread runtime.
    Threads(Vec<mpsc::UnboundedSender<Start>>),
}

impl Workers {
    /// Starts so many threads. They end when this is dropped.
    ///
    /// # Errors
    ///
    /// When the operating system gives no thread or the runtime cannot be built.
    pub fn threads(count: usize) -> io::Result<Self> {
        let mut senders = Vec::with_capacity(count);
        for index in 0..count.max(1) {
            // scale sets are few and each is sent once, so this channel does not grow
            let (sender, receiver) = mpsc::unbounded_channel();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            std::thread::Builder::new()
                .name(format!("scale-sets-{index}"))
                .spawn(move || work(&runtime, receiver))?;
            senders.push(sender);
        }
        Ok(Self::Threads(senders))
    }

    /// Starts something on the thread that `key` belongs to.
    pub fn start(&self, key: &str, start: impl FnOnce() + Send + 'static) {
        match self {
            Self::Here => start(),
            Self::Threads(senders) => {
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
}

fn work(runtime: &tokio::runtime::Runtime, mut receiver: mpsc::UnboundedReceiver<Start>) {
    let local = LocalSet::new();
    local.block_on(runtime, async move {
        while let Some(start) = receiver.recv().await {
            start();
        }
    });
}
