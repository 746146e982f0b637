//! The listener program: message session, scaler and its metrics.

mod config;
mod health;
mod http;
mod metrics;
mod scaler;
mod workflow_ref;
