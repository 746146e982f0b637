//! The actors: pure step functions, and the actix shells that run them.
//!
//! Each actor is a [`Machine`]: a plain state struct with a `step` that knows no clock, no
//! I/O, no randomness and no runtime; these are the folders here. The files beside them
//! are the shells: they know actix and tokio, and decide nothing.

mod actions_io;
pub mod backoff;
mod brief;
mod controller;
mod family;
mod first_lists;
mod inbox;
mod last_words;
mod lenient;
pub mod listener;
mod machine;
mod owned;
mod registered;
mod router;
pub mod runner;
pub mod runner_set;
pub mod scale_set;
mod schema_watch;
mod shell;
#[cfg(test)]
mod shell_tests;
pub mod tracked;
pub mod unregistrar;
mod unregistrar_task;
mod watch;
mod workers;
mod world;

pub use actions_io::{CallMetrics, Fenced, KubeSources};
pub use controller::{ControllerError, ControllerOptions, run as run_controller};
pub use inbox::{Deliver, Inbox};
pub use machine::{Coalesce, EffectOf, InputOf, Machine, Topic};
pub use router::{ActorKey, ActorKind, Router, Sighting};
pub use shell::{Birth, Childless, Family, Shell};
pub use unregistrar_task::UnregistrarTask;
pub use watch::{StoreRestored, WatchEnded, WatchLost};
pub use workers::{WorkerEnded, Workers};
pub use world::{ActionsIo, Journal, Unregister, World};
