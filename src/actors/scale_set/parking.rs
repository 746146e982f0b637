//! Parking: what is decided, and what a person is told, while the Actions service rejects the
//! version of the runners.
//!
//! What a person is told is kept in the conditions, so it outlives the runner that it names, and
//! this process.

use super::conditions::{Finding, kinds};
use super::context::ScaleSetContext;
use super::runner_set::{Revisions, Standing, applied};
use super::state::ScaleSetMachine;
use crate::actors::core::redact::redact_for_display;
use crate::api::{AutoscalingRunnerSet, AutoscalingRunnerSetPhase as Phase};
use crate::messages::{EventSeverity, Rejected, codes};

/// Reason of the condition that says why a scale set is parked.
const REJECTED: &str = codes::OUTDATED;

/// What a person has to do about it.
const REMEDY: &str = "change the runner template (spec.template) to a newer runner image";

/// What is said where nobody knows more.
const NO_DETAILS: &str = "the Actions service rejects the runner's version";

/// Whether the scale set is parked, as far as this process knows.
#[derive(Debug, Default)]
pub struct Parking {
    parked: Option<bool>,
    /// Why it is, or was until it recovered.
    because: Option<String>,
}

impl Parking {
    fn because(&self) -> &str {
        self.because.as_deref().unwrap_or(NO_DETAILS)
    }
}

impl ScaleSetMachine {
    /// Follows what the runner set says. Answers whether the scale set is to be parked; while
    /// nothing can be said, that is as it was.
    pub(super) fn follow_verdict(
        &mut self,
        ars: &AutoscalingRunnerSet,
        standing: Standing,
        ctx: &mut ScaleSetContext,
    ) -> bool {
        let first_look = self.parking.parked.is_none();
        let before = self.parking.parked.unwrap_or_else(|| was_parked(ars));
        let parked = standing.rejected.unwrap_or(before);
        self.parking.parked = Some(parked);
        ctx.notes.parked = Some(parked);
        ctx.notes.corrected = standing.corrected;
        if before && first_look {
            self.parking.because = told(ars);
        }
        if parked {
            self.learn_reason();
            self.settle("Recovered");
            if !standing.corrected {
                ctx.notes.runners = Finding::fails(REJECTED, self.verdict());
            }
        } else {
            if before {
                self.announce_recovery(ars, ctx);
            }
            self.parking.because = None;
            self.settle("Parked");
        }
        parked
    }

    /// The first reason that is told stays: one verdict is as good as another, and the runner
    /// may be deleted meanwhile.
    fn learn_reason(&mut self) {
        let report = self.runner_set.report.as_ref();
        let rejected = report.and_then(|report| report.rejected.as_ref());
        let revision = self.runner_set.object.get().map(|set| applied(set));
        if self.parking.because.is_none() {
            self.parking.because = rejected.map(|rejected| described(rejected, revision));
        }
    }

    /// Why the scale set is parked, and what to do.
    pub(super) fn verdict(&self) -> String {
        format!("{}: {REMEDY}", self.parking.because())
    }

    /// Tells that the scale set is parked.
    pub(super) fn announce_parking(
        &mut self,
        ars: &AutoscalingRunnerSet,
        ctx: &mut ScaleSetContext,
    ) {
        let message = self.verdict();
        self.announce(ars, EventSeverity::Warning, "Parked", message, ctx);
    }

    fn announce_recovery(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) {
        let before = self.parking.because();
        let message = match ctx.notes.revisions {
            Some(Revisions { wanted, .. }) => format!(
                "runners are made again: revision {wanted} of the runner spec takes the place of \
                 the one that was rejected ({before})"
            ),
            None => format!(
                "runners are made again: the runner set that was rejected is gone ({before})"
            ),
        };
        self.announce(ars, EventSeverity::Normal, "Recovered", message, ctx);
    }
}

/// Whether the scale set was parked when this process had not looked yet.
fn was_parked(ars: &AutoscalingRunnerSet) -> bool {
    ars.status.as_ref().and_then(|status| status.phase) == Some(Phase::Outdated)
}

/// The reason that stands in the conditions, if it is one in detail.
fn told(ars: &AutoscalingRunnerSet) -> Option<String> {
    let conditions = &ars.status.as_ref()?.conditions;
    let condition = conditions
        .iter()
        .find(|one| one.type_ == kinds::RUNNERS_READY && one.reason == REJECTED)?;
    let because = condition.message.strip_suffix(REMEDY)?.strip_suffix(": ")?;
    (because != NO_DETAILS).then(|| because.to_owned())
}

fn described(rejected: &Rejected, revision: Option<i64>) -> String {
    let Rejected { runner, message } = rejected;
    let revision = revision.map_or_else(String::new, |revision| format!(" of revision {revision}"));
    match redact_for_display(message) {
        said if said.is_empty() => format!("runner {runner}{revision}: {NO_DETAILS}"),
        said => format!("runner {runner}{revision}: {said}"),
    }
}
