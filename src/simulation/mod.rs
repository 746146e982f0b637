//! The embedded cluster: API server, kubelet, Actions service and Key Vault in one
//! process.

pub mod actions_service;
mod apply;
pub mod cluster;
pub mod key_vault;
mod programs;

/// Annotation of a pod that asks for a fault, as `impresario.dev/fault: exit=7`.
pub const FAULT_ANNOTATION: &str = "impresario.dev/fault";
