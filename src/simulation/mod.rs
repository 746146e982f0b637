//! The cluster that is made of the embedded servers (`crates/`) and our programs, in one process.

mod apply;
pub mod cluster;
mod programs;
mod transports;

pub use transports::{transports, with_key_vault};

/// Annotation of a pod that asks for a fault, as `impresario.dev/fault: exit=7`.
pub const FAULT_ANNOTATION: &str = "impresario.dev/fault";
