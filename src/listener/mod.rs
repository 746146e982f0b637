//! The listener program: holds the message session of one scale set, turns its messages into
//! a number of runners, and records on each runner which job it has.
//!
//! ```text
//!  Actions service ─► program ─► session::step ─► next task ─► program ─► API server
//!                        └────────── outcome ◄────────┘
//! ```
//!
//! [`run`] is the whole program but for its surroundings, which the command `listener` or a
//! simulation provides. Decisions are the pure parts `session` and `scaler`.

mod access;
mod config;
mod failure;
mod health;
mod metrics;
mod narrator;
mod program;
mod recorder;
mod scaler;
mod session;
mod workflow_ref;

pub use config::{ConfigError, CredentialsFrom, LogSettings, Settings, VaultSettings, load, parse};
pub use health::{Health, LIVENESS_LIMIT};
pub use metrics::ListenerMetrics;
pub use program::{ListenerEnv, ListenerError, run};
