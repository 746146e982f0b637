//! What is left below an AutoscalingRunnerSet that is gone, its finalizer forced off.
//!
//! Listeners are told to delete themselves; the EphemeralRunnerSet is collected with its owner.

use super::context::ScaleSetContext;
use super::state::ScaleSetMachine;
use super::vocabulary::ScaleSetReport;
use crate::messages::{Effect, ListenerCommand, ListenerDirective, ScaleSetDirective};

impl ScaleSetMachine {
    /// Waits until all children are gone, then ends.
    pub(super) fn wind_up(&mut self, ctx: &mut ScaleSetContext) {
        // what is being created is about to be there
        let mut left = self.runner_set.alive || self.runner_set.object.is_in_flight();
        left |= !self.dissolve_former_sets(ctx);
        for (name, child) in &mut self.listeners {
            left |= child.alive || child.object.is_in_flight();
            let known = child.object.get();
            let going = known.is_some_and(|live| live.metadata.deletion_timestamp.is_some());
            if child.alive && !going && !child.told {
                child.told = true;
                let directive = ListenerDirective::Tell(ListenerCommand::Orphaned);
                ctx.push(Effect::Child(ScaleSetDirective::Listener {
                    name: name.clone(),
                    directive,
                }));
            }
        }
        if !left {
            self.stopped = true;
            ctx.push(Effect::Report(ScaleSetReport::Gone));
            ctx.push(Effect::Stop);
        }
    }
}
