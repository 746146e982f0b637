//! The actors: pure step functions, and what runs them.
//!
//! Each actor is a [`Machine`]: a plain state struct with a `step` that knows no clock, no
//! I/O, no randomness and no runtime. [`core`] is the kit that they are made of, [`runtime`]
//! runs them; the other folders are one actor each.

pub mod core;
pub mod listener;
pub mod runner;
pub mod runner_set;
pub mod runtime;
pub mod scale_set;
pub mod unregistrar;

pub use self::core::machine::{Coalesce, EffectOf, InputOf, Machine, Topic};
pub use self::runtime::{
    ActionsIo, ActorKey, ActorKind, ActorSpec, CallMetrics, Children, ControllerError,
    ControllerOptions, Deliver, Fenced, Journal, KubeSources, MachineActor, Mailbox, NoChildren,
    ObjectEvent, Router, Services, StoreRestored, Unregister, UnregistrarHandle, WatchEnded,
    WatchLost, WorkerEnded, Workers, run_controller,
};
