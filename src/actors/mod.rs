//! The actors: pure step functions, and the actix shells that run them.
//!
//! Each actor is a [`Machine`]: a plain state struct with a `step` that knows no clock, no
//! I/O, no randomness and no runtime. Only the files `shell`, `controller`, `router` and
//! `pool` know actix and tokio.

pub mod backoff;
mod machine;
pub mod runner;
pub mod runner_set;
pub mod tracked;
pub mod unregistrar;

pub use machine::{EffectOf, InputOf, Machine};
