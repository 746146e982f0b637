//! One scale set: its registration with the Actions service, its phase and status, and the two
//! objects below it, AutoscalingListener and EphemeralRunnerSet.
//!
//! Pure decisions. It owns the spec of these two objects; their actors own their finalizers and
//! status and all below them, and report the newest copies. On every input the whole state is
//! looked at, in the order of the files: `registering`, `runner_set`, `listener`, `status`; or
//! `deletion` when the AutoscalingRunnerSet goes, `orphan` when it is gone.

mod answers;
mod children;
mod conditions;
mod context;
mod deletion;
mod former;
mod listener;
mod merge_diff;
mod orphan;
mod parking;
mod protection;
mod record;
mod registering;
mod registration;
mod runner_set;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use record::identity;
pub use state::ScaleSetMachine;
pub use vocabulary::{
    ChildReport, GaugeLabels, ScaleSetCommand, ScaleSetReport, ScaleSetSummary, ScaleSetTag, Sharer,
};
