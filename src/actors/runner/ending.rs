//! Ending a runner that may work. Whatever gives the cause, a timer or a node that is lost, the
//! Actions service has the last word: it takes the registration back, and then the runner has no
//! job and gets none; or it says that a job runs, and then the runner stays.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::machine::{Own, RunnerMachine};
use super::pod_state::{End, PodState, lost_at, node_lost};
use super::view;
use crate::actors::core::step_context::StepContext;
use crate::api::{EphemeralRunner, EphemeralRunnerPhase};
use crate::clock::{Timestamp, after};
use crate::messages::{EventSeverity, Reason, codes};

/// How long, in seconds, a runner whose job is recorded as ended may take to end by itself.
const JOB_END_GRACE: i64 = 30;

/// A runner that is to end, once the service agrees.
#[derive(Debug)]
pub(super) struct Ending {
    /// Why.
    reason: Reason,
    /// Since when. What is decided about it is decided on a pod that was read after that.
    since: Timestamp,
    /// Whether the service has said that its job runs.
    kept: bool,
}

/// Why a runner that may work is to end.
pub(super) enum Cause {
    /// Its pod has ended or does not start.
    PodEnded(Reason),
    /// Its pod should have gone, and hangs.
    NodeLost(Reason),
    /// Its job has ended, and it has not.
    JobEnded(Reason),
}

impl Cause {
    pub const fn reason(&self) -> &Reason {
        match self {
            Self::PodEnded(reason) | Self::NodeLost(reason) | Self::JobEnded(reason) => reason,
        }
    }
}

impl RunnerMachine {
    /// Why the runner is to end although it may work, if there is a cause.
    pub(super) fn cause(
        &mut self,
        er: &EphemeralRunner,
        pod: &Pod,
        state: &PodState,
        ctx: &mut StepContext<Self>,
    ) -> Option<Cause> {
        if !may_work(er, state) {
            return None;
        }
        // the pod hangs whatever its containers are said to do
        if lost_at(pod).is_some_and(|time| time <= ctx.now) {
            return Some(Cause::NodeLost(node_lost(pod)));
        }
        match &state.end {
            // it has had a job, so it has started: our copy of the pod is old
            Some(_) if state.presumed && view::has_job(er) => {}
            Some(End::Failed(reason) | End::Outdated(reason)) => {
                return Some(Cause::PodEnded(reason.clone()));
            }
            Some(End::Succeeded) => {
                let message =
                    "the runner ended with exit code 0, and its container may start again";
                return Some(Cause::PodEnded(Reason::new(codes::COMPLETED, message)));
            }
            None => {}
        }
        self.overdue(er, ctx).map(Cause::JobEnded)
    }

    /// A runner whose job has ended gets a moment to end itself.
    fn overdue(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) -> Option<Reason> {
        if !view::job_ended(er) {
            return None;
        }
        let since = *self.job_ended_since.get_or_insert(ctx.now);
        let end = after(since, JOB_END_GRACE);
        if end > ctx.now {
            ctx.wake_at(end);
            return None;
        }
        let message = "the runner's job has ended, but the runner has not within 30 seconds";
        Some(Reason::new(codes::RUNNER_DID_NOT_END, message))
    }

    /// Whether the runner may be ended: its pod was read since there is a cause, and the service has
    /// taken the registration back. Does what is missing.
    pub(super) fn may_end(
        &mut self,
        er: &Arc<EphemeralRunner>,
        reason: &Reason,
        ctx: &mut StepContext<Self>,
    ) -> bool {
        let since = match &self.ending {
            Some(ending) if ending.reason.code == reason.code => ending.since,
            _ => {
                self.ending = Some(Ending {
                    reason: reason.clone(),
                    since: ctx.now,
                    kept: false,
                });
                ctx.now
            }
        };
        if !self.is_unregistered() && !self.registration.is_free(ctx.now) {
            return false;
        }
        if self.pod_read.is_none_or(|read| read < since) {
            self.read_pod(ctx);
            return false;
        }
        self.take_back(er, ctx)
    }

    /// The service says that the runner has a job: it stays, and is asked about later, on the
    /// ground of a pod that is read again.
    pub(super) fn keep(&mut self, ctx: &mut StepContext<Self>) {
        let message = match &mut self.ending {
            Some(ending) => {
                ending.since = ctx.now;
                ending.kept = true;
                kept(&ending.reason.message)
            }
            None => kept("the runner is on record as ended, and its container may run"),
        };
        if self.registration.is_first_refusal() {
            self.event(ctx, EventSeverity::Warning, "RunnerKept", message);
        }
    }

    /// What is to be said of a runner that is to end and is not ended yet.
    pub(super) fn ending_trouble(&self, cause: &Cause) -> Option<Reason> {
        let reason = cause.reason();
        match (&self.ending, cause) {
            (Some(Ending { kept: true, .. }), _) => {
                Some(Reason::new(reason.code.clone(), kept(&reason.message)))
            }
            (_, Cause::NodeLost(_)) => Some(reason.clone()),
            _ => None,
        }
    }

    /// Takes the Secret away whose registration was taken back: no pod is to be made from it. Says
    /// whether there is none.
    pub(super) fn drop_secret(
        &mut self,
        er: &EphemeralRunner,
        ctx: &mut StepContext<Self>,
    ) -> bool {
        match self.own_secret(er) {
            Own::Unknown => self.read_secret(ctx),
            Own::Ours(secret) => self.remove_secret(&secret, ctx),
            Own::Absent | Own::Foreign => return !self.secret.is_in_flight(),
        }
        false
    }
}

/// Whether the runner of a pod may work, now or later. One that has had its job and ended well does
/// not: it has taken its registration back itself, and a second life of its container finds none.
pub(super) fn may_work(er: &EphemeralRunner, state: &PodState) -> bool {
    let ended_well = state.end == Some(End::Succeeded)
        || view::phase(er) == Some(EphemeralRunnerPhase::Succeeded);
    state.can_run && !(ended_well && view::has_job(er))
}

fn kept(message: &str) -> String {
    format!(
        "{message}; the Actions service says that its job runs, so it is left alone and asked about \
         again"
    )
}
