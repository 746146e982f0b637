//! The actors: pure step functions, and the actix shells that run them.
//!
//! Each actor is a [`Machine`]: a plain state struct with a `step` that knows no clock, no
//! I/O, no randomness and no runtime. Only the files `shell`, `controller`, `router` and
//! `pool` know actix and tokio.

mod actions_io;
pub mod backoff;
mod inbox;
pub mod listener;
mod machine;
mod router;
pub mod scale_set;
mod shell;
#[cfg(test)]
mod shell_tests;
pub mod runner;
pub mod tracked;
mod workers;
mod world;

pub use actions_io::{CallMetrics, KubeSources};
pub use inbox::{Deliver, Inbox};
pub use machine::{Coalesce, EffectOf, InputOf, Machine};
pub use router::{ActorKey, ActorKind, Router, Sighting};
pub use shell::{Birth, Childless, Family, Repeat, Shell};
pub use workers::Workers;
pub use world::{ActionsIo, Journal, Unregister, World};
