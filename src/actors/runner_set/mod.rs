//! RunnerSet: one per EphemeralRunnerSet. Keeps an index of its runners, decides how many
//! there are, applies new revisions of the runner spec, and reports the state of all.
//!
//! Owns the set's finalizer and status, the proxy Secret of its runners, and the creation of
//! EphemeralRunners; a runner deletes itself when told. `spec.replicas` and `spec.patchID`
//! are the listener's. Pure.

mod creation;
mod deletion;
mod failing;
mod machine;
mod proxy;
mod reserved_slots;
mod revision;
mod room;
mod runner_index;
mod scaling;
mod status;
mod surplus;
#[cfg(test)]
mod tests;

pub use machine::{RunnerSetCommand, RunnerSetMachine, RunnerSetTag};
