//! The listener of one scale set: its AutoscalingListener's finalizer and status, and
//! everything the listener program needs: ServiceAccount, Role, RoleBinding, proxy Secret, config
//! Secret, pod.
//!
//! Pure decisions. On every input the whole state is looked at: the first thing missing, in
//! that order, is made, and what differs is set right. Which objects have to exist is decided
//! in `state` and `teardown`, how one is kept in `objects` and `secrets`, when the pod has to be
//! made again in `pod`, `health`, `restarts` and `read_version`.

mod context;
mod health;
mod objects;
mod pod;
mod read_version;
mod report;
mod restarts;
mod secrets;
mod sources;
mod state;
mod teardown;
#[cfg(test)]
pub(super) mod tests;

pub use super::core::cached::Verb;
pub use context::{ListenerTag, Part};
pub use state::ListenerMachine;
