//! One step of a scale set.

use super::state::ScaleSetMachine;
use crate::actors::core::step_context::StepContext;

/// One step of a scale set. It notes what the conditions will say.
pub type ScaleSetContext = StepContext<ScaleSetMachine>;
