//! Impresario runs GitHub Actions runner scale sets on Kubernetes, as actors.
//!
//! A user writes an [`api::AutoscalingRunnerSet`]; each one gets an actor that owns its
//! listener, its runner set and the runners. Every decision is a pure step function in
//! [`actors`]; the rest of the crate carries decisions out:
//!
//! ```text
//!  watch events ──► router ──► actor shell ──► step(now, input) ──► effects
//!                                   ▲                                  │
//!                                   └──────── results as inputs ◄── kube_io, actions
//! ```
//!
//! Imports point downwards: [`api`] imports nothing of ours, [`semantic`], [`messages`] and
//! [`resources`] import [`api`], [`actors`] import all of these, and only `main`,
//! [`command`] and [`simulation`] import [`actors`].

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

pub mod actions;
pub mod actors;
pub mod api;
pub use wall_clock as clock;
pub mod command;
pub mod keep_alive;
pub mod kube_io;
pub mod listener;
pub mod messages;
pub mod metrics;
pub mod resources;
pub mod semantic;
pub mod simulation;
