//! RunnerSet: one per EphemeralRunnerSet. Keeps the books on its runners, decides how many
//! there are, applies new revisions of the runner spec, and reports the state of all.
//!
//! Owns the set's finalizer and status, the proxy Secret of its runners, and the creation of
//! EphemeralRunners; a runner deletes itself when told. `spec.replicas` and `spec.patchID`
//! are the listener's. Pure.

mod books;
mod creation;
mod deletion;
mod failing;
mod hold;
mod machine;
mod proxy;
mod revision;
mod room;
mod scaling;
mod status;
mod surplus;
#[cfg(test)]
mod tests;

pub use machine::{RunnerSetCommand, RunnerSetMachine, RunnerSetTag};
