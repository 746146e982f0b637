//! The embedded cluster: API server, kubelet and Actions service in one process.

pub mod api_server;
