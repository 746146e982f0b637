//! A Kubernetes API server and a kubelet inside the process, to test controllers against.
//!
//! The [`ApiServer`] is an in-memory kube-apiserver: it gives out [`kube::Client`]s that need no
//! socket, and can be served on a port for kubectl and helm. It validates, defaults and prunes
//! by schemas, built-in ones and those of CustomResourceDefinitions; it knows all kinds of
//! patches, server-side apply, watches with history and bookmarks, finalizers and garbage
//! collection, RBAC, quotas, and tables. One suite (`tests/api_behaviour`) runs against it and
//! against a real server, to keep it honest. The [`kubelet`] takes pods through their life.
//!
//! Time comes from a [`wall_clock::Clock`] and tokio, chance from a seed: with tokio's time
//! paused, hours pass in milliseconds, and a run is a function of its seed. Any request and any
//! watch event can be lost, delayed, repeated or refused on the way ([`faults`]).
//!
//! ```
//! use embedded_kube::{ApiServer, ApiServerOptions};
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, PostParams};
//! use wall_clock::Clock;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> kube::Result<()> {
//! let clock = Clock::simulated("2026-02-03T04:05:06Z".parse().expect("a time"));
//! let server = ApiServer::new(ApiServerOptions::new(clock, 1));
//! let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
//!
//! let mut map = ConfigMap::default();
//! map.metadata.name = Some("settings".into());
//! let map = maps.create(&PostParams::default(), &map).await?;
//! let created = map.metadata.creation_timestamp.expect("set by the server");
//! assert_eq!(created.0.to_string(), "2026-02-03T04:05:06Z");
//! # Ok(())
//! # }
//! ```
//!
//! `examples/foreign_controller.rs` shows a controller under test.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

mod api_server;
pub mod kubelet;

pub use api_server::{
    Admission, ApiError, ApiServer, ApiServerOptions, Body, BodyError, ConnectionLost, Identity,
    RequestKey, ResourceType, Snapshot, Verb, faults,
};
