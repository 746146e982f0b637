//! GitHub's Actions service, as runner scale sets see it, and an Azure Key Vault, inside the
//! process: to test clients of them against.
//!
//! Both speak the protocol of the real ones, in HTTP requests and answers: as
//! [`tower::Service`](tower_service::Service)s within the process, or on a port. Both refuse, delay
//! or lose whatever they are asked to ([`Faults`]). Time comes from a
//! [`wall_clock::Clock`] and tokio, ids from counters: two runs with one seed are the same, and
//! take no time if tokio's clock is paused.
//!
//! ```
//! use bytes::Bytes;
//! use embedded_actions::{ActionsService, Options};
//! use http::Request;
//! use tower_service::Service as _;
//! use wall_clock::Clock;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Clock::simulated("2026-02-03T04:05:06Z".parse()?);
//! let mut service = ActionsService::new(Options::new(clock));
//! service.accept_only(["t0"]);
//!
//! // the first call of every client; the others follow from its answer
//! let url = "https://api.github.com/orgs/acme/actions/runners/registration-token";
//! let request = |token| {
//!     let request = Request::post(url).header("authorization", format!("Bearer {token}"));
//!     request.body(Bytes::new())
//! };
//! assert_eq!(service.call(request("t0")?).await?.status(), 201);
//! assert_eq!(service.call(request("t1")?).await?.status(), 401);
//! # Ok(())
//! # }
//! ```
//!
//! What is on the wire (names of fields, scopes, statistics) is defined here once more, on purpose:
//! a server that shared the definitions of the client it is to test would take the client's
//! mistakes for right.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

mod actions_service;
mod key_vault;

pub use actions_service::{
    ADMIN, ActionsService, App, BadKey, CALLS, CallInfo, Durations, Fault, Faults, Interceptor,
    Job, JobSpec, JobState, Log, Lost, Mangling, NamedFault, Options, Outcome, Refusal,
    RunnerHandle, RunnerInfo, ScaleSetInfo, SessionInfo, SignInRefused, Standing, Statistics,
};
pub use key_vault::{BadCertificate, KeyVault};
