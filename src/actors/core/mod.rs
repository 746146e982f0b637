//! The step kit: what the decision parts of all actors are made of. Each rule of the
//! architecture that is about an actor and its objects stands here once.
//!
//! Knows messages, the API types and the time that it is given; no runtime, no I/O, and none of
//! the actors by name.

pub mod backoff;
mod brief;
pub mod cached;
pub mod difference;
pub mod machine;
pub mod ownership;
pub mod redact;
pub mod step_context;
pub mod wake;
