//! The embedded cluster: API server, kubelet and Actions service in one process.

pub mod actions_service;
// its fields are named as Kubernetes names them
#[allow(missing_docs)]
pub mod api_server;
mod apply;
pub mod cluster;
mod http1;
pub mod kubelet;
mod programs;
