//! The embedded cluster: API server, kubelet, Actions service and Key Vault in one
//! process.

pub mod actions_service;
// its fields are named as Kubernetes names them
#[allow(missing_docs)]
pub mod api_server;
mod apply;
pub mod cluster;
mod http1;
pub mod key_vault;
pub mod kubelet;
mod programs;
