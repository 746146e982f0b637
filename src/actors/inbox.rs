//! An actor's mailbox, and what happens when it is full.
//!
//! The mailbox is bounded. When it is full, or the actor has not started, messages wait beside
//! it, and of each object and each child only the newest is kept: so nothing is lost, and
//! memory does not grow with the rate of events. Order is kept: while something waits, all
//! later messages wait behind it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use actix::Addr;
use actix::dev::SendError;
use indexmap::IndexMap;
use prometheus::{IntCounter, IntGauge};
use tokio::time::Instant;

use super::machine::{Coalesce, InputOf, Machine};
use super::shell::{Drain, Mail, Shell};
use crate::messages::{Input, Object, ObjectRef};
use crate::metrics::ActorMetrics;

/// How many messages a mailbox holds.
pub const CAPACITY: usize = 256;

/// Something that objects can be delivered to, whatever the actor behind it.
pub trait Deliver: Send + Sync {
    /// Delivers the newest state of an object.
    fn observed(&self, object: Object);
    /// Delivers the news that an object is gone.
    fn gone(&self, object: ObjectRef, uid: String);
}

/// The way to an actor. Clones lead to the same one.
pub struct Inbox<M: Machine>(Arc<Inner<M>>)
where
    M::ChildReport: Coalesce;

struct Inner<M: Machine> {
    address: OnceLock<Addr<Shell<M>>>,
    waiting: Mutex<IndexMap<Slot, Timed<M>>>,
    in_mailbox: AtomicI64,
    unique: AtomicI64,
    depth: IntGauge,
    overflows: IntCounter,
}

/// A message and when it was sent.
pub struct Timed<M: Machine> {
    /// The message.
    pub input: InputOf<M>,
    /// When it was sent.
    pub sent: Instant,
}

/// What a waiting message is about. A newer one about the same takes its place.
#[derive(PartialEq, Eq, Hash)]
enum Slot {
    Object(ObjectRef),
    Report(String),
    Tick,
    Unique(i64),
}

impl<M: Machine> Clone for Inbox<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: Machine> Inbox<M> {
    /// An inbox whose actor is yet to start.
    #[must_use]
    pub fn new(metrics: &ActorMetrics) -> Self {
        Self(Arc::new(Inner {
            address: OnceLock::new(),
            waiting: Mutex::default(),
            in_mailbox: AtomicI64::new(0),
            unique: AtomicI64::new(0),
            depth: metrics.mailbox_depth.with_label_values(&[M::NAME]),
            overflows: metrics.overflows.with_label_values(&[M::NAME]),
        }))
    }

    /// Sends a message. Never blocks and never fails; a message to an actor that has stopped is
    /// dropped.
    pub fn send(&self, input: InputOf<M>) {
        let inner = &self.0;
        let mut waiting = inner.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut timed = Timed {
            input,
            sent: Instant::now(),
        };
        if waiting.is_empty()
            && let Some(address) = inner.address.get()
        {
            // counted first: the actor may handle it before this thread goes on
            inner.in_mailbox.fetch_add(1, Ordering::AcqRel);
            inner.depth.inc();
            match address.try_send(Mail(timed)) {
                Ok(()) => return,
                Err(SendError::Closed(_)) => return self.left_mailbox(),
                Err(SendError::Full(Mail(back))) => {
                    self.left_mailbox();
                    timed = back;
                }
            }
        }
        inner.overflows.inc();
        self.coalesce(&mut waiting, timed);
        if let Some(address) = inner.address.get() {
            // should even this not fit, there are messages still to be handled, and after the
            // last of them the actor looks here
            let _fits = address.try_send(Drain);
        }
    }

    fn coalesce(&self, waiting: &mut IndexMap<Slot, Timed<M>>, mut timed: Timed<M>) {
        let slot = match &timed.input {
            Input::Observed(object) => Slot::Object(object.reference()),
            Input::Gone { object, .. } => Slot::Object(object.clone()),
            Input::Report(report) => Slot::Report(report.subject()),
            Input::Tick => Slot::Tick,
            Input::Kube(..) | Input::Actions(..) | Input::Command(_) => {
                Slot::Unique(self.0.unique.fetch_add(1, Ordering::Relaxed))
            }
        };
        if let Some(older) = waiting.get(&slot) {
            if let (Input::Report(newer), Input::Report(older)) = (&mut timed.input, &older.input) {
                newer.absorb(older);
            }
            timed.sent = older.sent;
        } else {
            self.0.depth.inc();
        }
        waiting.insert(slot, timed);
    }

    /// The actor has started under this address.
    pub(super) fn bind(&self, address: Addr<Shell<M>>) {
        let _first = self.0.address.set(address);
    }

    /// Notes that a message left the mailbox.
    pub(super) fn left_mailbox(&self) {
        self.0.in_mailbox.fetch_sub(1, Ordering::AcqRel);
        self.0.depth.dec();
    }

    /// Whether the mailbox is empty, so that the turn is at what waits beside it.
    pub(super) fn mailbox_is_empty(&self) -> bool {
        self.0.in_mailbox.load(Ordering::Acquire) <= 0
    }

    /// Takes what waits beside the mailbox, oldest first.
    pub(super) fn take_waiting(&self) -> impl Iterator<Item = Timed<M>> + use<M> {
        let mut waiting = self
            .0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let taken = std::mem::take(&mut *waiting);
        self.0
            .depth
            .sub(i64::try_from(taken.len()).unwrap_or_default());
        taken.into_values()
    }

    /// The actor has stopped: what it did not handle no longer counts.
    pub(super) fn close(&self) {
        self.0
            .depth
            .sub(self.0.in_mailbox.swap(0, Ordering::AcqRel));
        drop(self.take_waiting());
    }
}

impl<M: Machine> Deliver for Inbox<M> {
    fn observed(&self, object: Object) {
        self.send(Input::Observed(object));
    }

    fn gone(&self, object: ObjectRef, uid: String) {
        self.send(Input::Gone { object, uid });
    }
}
