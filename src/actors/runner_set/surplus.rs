//! Runners that are too many: whether some may be asked to go while jobs run.

use super::machine::RunnerSetMachine;
use crate::actors::core::step_context::StepContext;
use crate::api::constants::annotations;
use crate::api::{EphemeralRunnerSet, listener_patch};
use crate::clock::{Timestamp, after};

/// For so many seconds our listener's patches have to ask for no more.
const AGREEMENT: i64 = 30;
/// So many of them have to.
const PATCHES: u32 = 2;

/// What our listener's patches agree on: since when, and how many of them, have asked for no more
/// than the one at hand.
#[derive(Debug, Default)]
pub(super) struct SurplusAgreement {
    /// Id and replicas of the patch at hand.
    patch: Option<(i64, i64)>,
    since: Option<Timestamp>,
    patches: u32,
}

impl SurplusAgreement {
    /// Follows the set to its patch. One that our listener has not written agrees with none.
    pub fn follow_patch(&mut self, now: Timestamp, set: &EphemeralRunnerSet) {
        let replicas = set.spec.replicas.unwrap_or(0);
        let before = self.patch.replace((set.spec.patch_id, replicas));
        if !is_of_our_listener(set) {
            self.since = None;
            return;
        }
        if before == self.patch && self.since.is_some() {
            return;
        }
        let falls = before.is_some_and(|(_, before)| replicas < before);
        if self.since.is_none() || falls {
            self.since = Some(now);
            self.patches = 0;
        }
        self.patches = self.patches.saturating_add(1);
    }

    /// From when on they agree, if enough of them do.
    fn stands_from(&self) -> Option<Timestamp> {
        let since = self.since.filter(|_| self.patches >= PATCHES)?;
        Some(after(since, AGREEMENT))
    }
}

impl RunnerSetMachine {
    /// Asks surplus runners to go where the listener lets us: under patch 0, which says that nothing
    /// goes on, or when several patches of our own have asked for no more for a while. What another
    /// listener's patch leaves out nobody knows. Either way the service is asked first: a runner that
    /// has taken a job meanwhile stays.
    pub(super) fn release_surplus(
        &mut self,
        set: &EphemeralRunnerSet,
        ctx: &mut StepContext<Self>,
    ) {
        let replicas = set.spec.replicas.unwrap_or(0).max(0);
        if set.spec.patch_id != 0 {
            let Some(due) = self.surplus.stands_from() else {
                return;
            };
            if due > ctx.now {
                return ctx.wake_at(due);
            }
        }
        self.shrink(replicas, ctx);
    }
}

/// Whether our listener has written the patch at hand.
fn is_of_our_listener(set: &EphemeralRunnerSet) -> bool {
    let stamps = set.metadata.annotations.as_ref();
    let stamp = stamps.and_then(|stamps| stamps.get(annotations::LISTENER_PATCH));
    let replicas = set.spec.replicas.unwrap_or(0);
    stamp.is_some_and(|stamp| *stamp == listener_patch(set.spec.patch_id, replicas))
}
