//! Runner: one per EphemeralRunner. Registers it, makes its Secret and pod, says how it
//! ends, and clears up after it.
//!
//! Owns the EphemeralRunner's finalizers and status (but for the job's fields, which are the
//! listener's), the JIT configuration Secret and the pod. Pure.

mod calls;
mod deletion;
mod ending;
mod launch;
mod linked;
mod machine;
mod pod_state;
mod registration;
mod status;
#[cfg(test)]
mod tests;
mod view;

pub use machine::{Origin, RunnerMachine, RunnerTag};
pub use pod_state::{End, PodState, judge};
pub use view::{is_denial, view};
