//! An actor's mailbox, and what happens when it is full.
//!
//! The mailbox is bounded. When it is full, or the actor has not started, messages wait beside
//! it, and of each object and each child only the newest is kept: so nothing is lost, and
//! memory does not grow with the rate of events. Order is kept: while something waits, all
//! later messages wait behind it.
//!
//! An actor that stops may have a successor of the same name. So what it did not handle, and
//! what still comes for it, is handed on, in order.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use actix::Addr;
use actix::dev::SendError;
use indexmap::IndexMap;
use prometheus::{IntCounter, IntGauge};
use tokio::time::Instant;

use super::actor::{Drain, MachineActor, Mail};
use crate::actors::core::machine::{Coalesce, InputOf, Machine, Topic};
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
pub struct Mailbox<M: Machine>(Arc<Inner<M>>)
where
    M::ChildReport: Coalesce;

struct Inner<M: Machine> {
    address: OnceLock<Addr<MachineActor<M>>>,
    overflow: Mutex<Overflow<M>>,
    in_queue: AtomicI64,
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

/// What is beside the mailbox.
struct Overflow<M: Machine> {
    waiting: Waiting<M>,
    stage: Stage,
}

/// Takes what an actor that has stopped did not handle.
type HandOn = Box<dyn Fn(Leftover) + Send>;

/// How far an actor is on its way out.
enum Stage {
    /// It works, or is yet to start.
    Open,
    /// It has stopped, and its mailbox is not empty yet: new messages wait behind that.
    Closing,
    /// It is gone.
    Closed(HandOn),
}

/// A message to an actor that has stopped, which a successor may need.
#[derive(Debug)]
pub enum Leftover {
    /// The newest state of an object.
    Observed(Object),
    /// An object is gone.
    Gone(ObjectRef, String),
}

impl Leftover {
    /// The message, if a successor may need it. What parent and children have to say, they say
    /// to a successor anyway, and results are of the state that asked.
    pub fn of<T, C, R>(input: Input<T, C, R>) -> Option<Self> {
        match input {
            Input::Observed(object) => Some(Self::Observed(object)),
            Input::Gone { object, uid } => Some(Self::Gone(object, uid)),
            Input::Kube(..)
            | Input::Actions(..)
            | Input::Command(_)
            | Input::Report(_)
            | Input::Tick => None,
        }
    }
}

/// Messages that wait, in order. A newer one about the same takes the place of an older one.
pub struct Waiting<M: Machine> {
    messages: IndexMap<Slot, Timed<M>>,
    unique: u64,
}

/// What a waiting message is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Slot {
    Object(ObjectRef),
    Report(String),
    Command(&'static str),
    Tick,
    Unique(u64),
}

impl<M: Machine> Default for Waiting<M> {
    fn default() -> Self {
        Self {
            messages: IndexMap::new(),
            unique: 0,
        }
    }
}

impl<M: Machine> Waiting<M> {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Adds a message. Says whether there is one more than before.
    pub fn put(&mut self, mut timed: Timed<M>) -> bool {
        let slot = match &timed.input {
            Input::Observed(object) => Slot::Object(object.reference()),
            Input::Gone { object, .. } => Slot::Object(object.clone()),
            Input::Report(report) => Slot::Report(report.subject()),
            Input::Command(command) => Slot::Command(command.topic()),
            Input::Tick => Slot::Tick,
            Input::Kube(..) | Input::Actions(..) => {
                self.unique += 1;
                Slot::Unique(self.unique)
            }
        };
        let older = self.messages.get(&slot);
        if let Some(older) = older {
            if is_of_predecessor(&timed.input, &older.input) {
                return false;
            }
            if let (Input::Report(newer), Input::Report(older)) = (&mut timed.input, &older.input) {
                newer.absorb(older);
            }
            timed.sent = older.sent;
        }
        let is_more = older.is_none();
        self.messages.insert(slot, timed);
        is_more
    }

    /// Takes all, oldest first.
    pub fn take(&mut self) -> impl Iterator<Item = Timed<M>> + use<M> {
        std::mem::take(&mut self.messages).into_values()
    }

    fn len(&self) -> usize {
        self.messages.len()
    }
}

/// Whether the news is that the predecessor of an object is gone, which says nothing about the
/// object.
fn is_of_predecessor<T, C, R>(news: &Input<T, C, R>, known: &Input<T, C, R>) -> bool {
    match (news, known) {
        (Input::Gone { uid, .. }, Input::Observed(object)) => object.uid() != uid,
        _ => false,
    }
}

impl<M: Machine> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M: Machine> Mailbox<M> {
    /// A mailbox whose actor is yet to start.
    #[must_use]
    pub fn new(metrics: &ActorMetrics) -> Self {
        Self(Arc::new(Inner {
            address: OnceLock::new(),
            overflow: Mutex::new(Overflow {
                waiting: Waiting::default(),
                stage: Stage::Open,
            }),
            in_queue: AtomicI64::new(0),
            depth: metrics.mailbox_depth.with_label_values(&[M::NAME]),
            overflows: metrics.overflows.with_label_values(&[M::NAME]),
        }))
    }

    /// Sends a message. Never blocks and never fails; what comes for an actor that has stopped
    /// is handed on to its successor.
    pub fn send(&self, input: InputOf<M>) {
        let inner = &self.0;
        let mut overflow = self.overflow();
        if let Stage::Closed(hand_on) = &overflow.stage {
            return Leftover::of(input).into_iter().for_each(hand_on);
        }
        let mut timed = Timed {
            input,
            sent: Instant::now(),
        };
        let is_open = matches!(overflow.stage, Stage::Open);
        if is_open
            && overflow.waiting.is_empty()
            && let Some(address) = inner.address.get()
        {
            // counted first: the actor may handle it before this thread goes on
            inner.in_queue.fetch_add(1, Ordering::AcqRel);
            inner.depth.inc();
            match address.try_send(Mail(timed)) {
                Ok(()) => return,
                // it was torn down with all the others
                Err(SendError::Closed(_)) => return self.left_queue(),
                Err(SendError::Full(Mail(back))) => {
                    self.left_queue();
                    timed = back;
                }
            }
        }
        inner.overflows.inc();
        if overflow.waiting.put(timed) {
            inner.depth.inc();
        }
        if let Some(address) = inner.address.get() {
            // should even this not fit, there are messages still to be handled, and after the
            // last of them the actor looks here
            let _fits = address.try_send(Drain);
        }
    }

    fn overflow(&self) -> MutexGuard<'_, Overflow<M>> {
        self.0
            .overflow
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The actor has started under this address.
    pub(super) fn bind(&self, address: Addr<MachineActor<M>>) {
        let _first = self.0.address.set(address);
    }

    /// Notes that a message left the mailbox.
    pub(super) fn left_queue(&self) {
        self.0.in_queue.fetch_sub(1, Ordering::AcqRel);
        self.0.depth.dec();
    }

    /// Whether the mailbox is empty, so that the turn is at what waits beside it.
    pub(super) fn queue_is_empty(&self) -> bool {
        self.0.in_queue.load(Ordering::Acquire) <= 0
    }

    /// Takes what waits beside the mailbox, oldest first.
    pub(super) fn take_waiting(&self) -> impl Iterator<Item = Timed<M>> + use<M> {
        self.take_from(&mut self.overflow())
    }

    fn take_from(&self, overflow: &mut Overflow<M>) -> impl Iterator<Item = Timed<M>> + use<M> {
        let count = i64::try_from(overflow.waiting.len()).unwrap_or_default();
        self.0.depth.sub(count);
        overflow.waiting.take()
    }

    /// The actor has stopped, and its mailbox may not be empty.
    pub(super) fn begin_close(&self) {
        self.overflow().stage = Stage::Closing;
    }

    /// The actor has stopped, and its mailbox is empty: what waits beside it, and what still
    /// comes, goes to `hand_on`.
    pub(super) fn close(&self, hand_on: HandOn) {
        let mut overflow = self.overflow();
        // under the lock, so that what comes now goes behind it
        for timed in self.take_from(&mut overflow) {
            Leftover::of(timed.input).into_iter().for_each(&hand_on);
        }
        overflow.stage = Stage::Closed(hand_on);
    }

    /// The actor is torn down together with all others: what it did not handle no longer
    /// counts.
    pub(super) fn discard(&self) {
        self.0.depth.sub(self.0.in_queue.swap(0, Ordering::AcqRel));
        drop(self.take_waiting());
    }
}

impl<M: Machine> Deliver for Mailbox<M> {
    fn observed(&self, object: Object) {
        self.send(Input::Observed(object));
    }

    fn gone(&self, object: ObjectRef, uid: String) {
        self.send(Input::Gone { object, uid });
    }
}
