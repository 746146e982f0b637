//! The vocabulary the actors speak: what reaches an actor, what it asks to be done, and
//! what children and parents tell each other.
//!
//! Only data: nothing here does anything, and nothing here knows a runtime. Effects and
//! inputs are plain values, so that a step function can be tested as a table.

mod actions;
mod brief;
mod effect;
mod input;
mod kube;
mod object;
pub mod reason;
mod scale_set;

pub use actions::{
    ActionsAnswer, ActionsCall, ActionsError, ActionsErrorKind, ActionsRequest, JitConfig, Runner,
    RunnerGroup, RunnerScaleSet, Tenant,
};
pub use brief::{Brief, InBrief};
pub use effect::{Effect, EventNote, EventSeverity, NoDirective, Tally};
pub use input::{Input, NoReport};
pub use kube::{KubeAnswer, KubeError, KubeErrorKind, KubeRequest};
pub use object::{Kind, KubeObject, Object, ObjectRef};
pub use reason::{Reason, codes};
pub use scale_set::{
    Launch, ListenerCommand, ListenerDirective, ListenerReport, Refusal, Rejected, RunnerCommand,
    RunnerCounts, RunnerDirective, RunnerReport, RunnerSetDirective, RunnerSetReport, RunnerState,
    ScaleSetDirective,
};
