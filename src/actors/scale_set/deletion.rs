//! The deletion of a scale set: listener, runners, the registration, the chart's protected
//! objects, finalizer, each when what comes before it is gone.

use k8s_openapi::jiff::SignedDuration;
use serde_json::json;

use super::conditions::Finding;
use super::context::ScaleSetContext;
use super::record::{has_moved, recorded_id};
use super::state::ScaleSetMachine;
use super::vocabulary::ScaleSetTag;
use crate::actors::core::backoff::Schedule;
use crate::actors::core::cached::{Presence, Verb};
use crate::actors::core::ownership::{Ownership, ownership};
use crate::api::AutoscalingRunnerSet;
use crate::api::constants::annotations::RUNNER_SCALE_SET_ID;
use crate::api::constants::finalizers;
use crate::clock::Timestamp;
use crate::messages::{
    ActionsAnswer, ActionsCall, ActionsError, ActionsErrorKind, EventSeverity, KubeObject,
    KubeRequest, codes,
};
use crate::resources::{listener_name, tenant_of_set};

/// For a deletion in the service that failed.
const CALLS: Schedule = Schedule {
    first_ms: 1_000,
    cap_ms: 60_000,
};
/// A service that cannot be reached for so long does not hold a deletion any longer.
const GIVE_UP_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Credentials that the service refuses for so long do not either: a token that is just being
/// replaced, or a service in disorder, is refused for a moment.
const REFUSED_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// Another set that says that it has the scale set as well is given so long to show it.
const PROOF_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// How far the deletion of the scale set in the service has come.
#[derive(Debug, Default)]
pub struct Deregistration {
    in_flight: bool,
    failures: u32,
    not_before: Option<Timestamp>,
    /// When it was first tried.
    since: Option<Timestamp>,
    /// Since when the credentials are refused.
    refused: Option<Timestamp>,
    /// Since when another set is to show that it has the scale set as well.
    in_question: Option<Timestamp>,
    /// The service has none of it any more, or it is left there.
    done: bool,
    /// Why it is left there.
    left: Option<ActionsError>,
    error: Option<ActionsError>,
}

impl Deregistration {
    /// Takes in the end of the call.
    pub fn finish(
        &mut self,
        now: Timestamp,
        result: Result<ActionsAnswer, ActionsError>,
        who: &str,
    ) {
        self.in_flight = false;
        let error = match result {
            Ok(_) => None,
            Err(error) if error.kind == ActionsErrorKind::ScaleSetNotFound => None,
            Err(error) => Some(error),
        };
        let Some(error) = error else {
            self.done = true;
            return;
        };
        if self.has_patience(now, error.kind) {
            self.failures = self.failures.saturating_add(1);
            let own = CALLS.until(now, self.failures, who);
            let asked = error
                .retry_after
                .and_then(|wait| now.saturating_add(wait).ok());
            self.not_before = Some(asked.map_or(own, |time| time.max(own)));
            self.error = Some(error);
        } else {
            self.done = true;
            self.left = Some(error);
        }
    }

    /// Whether it is tried again after that error.
    fn has_patience(&mut self, now: Timestamp, kind: ActionsErrorKind) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_refused = kind == ActionsErrorKind::Unauthorized;
        let refused = self.refused.filter(|_| is_refused).unwrap_or(now);
        self.refused = is_refused.then_some(refused);
        match kind {
            // that takes a person, who may have removed them with the scale set
            ActionsErrorKind::Credentials | ActionsErrorKind::Config => false,
            ActionsErrorKind::Unauthorized => now.duration_since(refused) < REFUSED_AFTER,
            _ => now.duration_since(since) < GIVE_UP_AFTER,
        }
    }
}

impl ScaleSetMachine {
    /// Takes the next step of the deletion.
    pub(super) fn delete(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) {
        let known = ars.metadata.finalizers.as_deref().unwrap_or_default();
        if !known
            .iter()
            .any(|name| name == finalizers::AUTOSCALING_RUNNER_SET)
        {
            self.await_end(ars, ctx);
            return;
        }
        let waits_for = self.take_down(ars, ctx);
        if let Some(what) = waits_for {
            ctx.notes.ready = Finding::fails(codes::DELETING, format!("waiting for {what}"));
        }
    }

    /// Takes the next step. Answers with what it waits for.
    fn take_down(
        &mut self,
        ars: &AutoscalingRunnerSet,
        ctx: &mut ScaleSetContext,
    ) -> Option<String> {
        self.look_for_listener(ars);
        if !self.remove_listeners(None, ctx) {
            let why = self.listener_trouble();
            ctx.notes.listener = going("the listener is being removed", why.as_deref());
            return Some(because("the listener to end", why.as_deref()));
        }
        ctx.notes.listener = going("the listener is gone", None);
        let former_gone = self.dissolve_former_sets(ctx);
        if !self.remove_runner_set(ars, ctx) || !former_gone {
            let why = self.runners_trouble();
            ctx.notes.runners = going("the runners are being removed", why.as_deref());
            return Some(because(&self.remaining_runners(), why.as_deref()));
        }
        ctx.notes.runners = going("the runners are gone", None);
        if !self.deregister(ars, ctx) {
            return Some(self.remaining_registration());
        }
        if !self.release_protected(ars, ctx) {
            let problem = self.protection.problem();
            let problem = problem.map_or(String::new(), |problem| format!(": {problem}"));
            return Some(format!(
                "the chart's protected objects to be released{problem}"
            ));
        }
        let known = ars.metadata.finalizers.as_deref().unwrap_or_default();
        let rest: Vec<&String> = known
            .iter()
            .filter(|name| *name != finalizers::AUTOSCALING_RUNNER_SET)
            .collect();
        let body = json!({ "metadata": { "finalizers": rest } });
        self.patch_scale_set_at(ars, body, ctx);
        None
    }

    /// What keeps a listener from ending.
    fn listener_trouble(&self) -> Option<String> {
        self.listeners.values().find_map(|child| {
            let error = child.object.last_error().map(ToString::to_string);
            let report = child.report.as_ref().filter(|report| !report.ready);
            let told = report.and_then(|report| report.reason.as_ref());
            error.or_else(|| told.map(|reason| reason.message.clone()))
        })
    }

    /// What keeps the runners from ending.
    fn runners_trouble(&self) -> Option<String> {
        let error = self.runner_set.object.last_error();
        let report = self.runner_set.report.as_ref();
        let told = report.and_then(|report| report.problem.as_ref());
        error
            .map(ToString::to_string)
            .or_else(|| told.map(|reason| reason.message.clone()))
    }

    /// One that was never heard of may be there all the same. It is looked for once: that it is
    /// gone is forgotten with it.
    fn look_for_listener(&mut self, ars: &AutoscalingRunnerSet) {
        let name = listener_name(ars);
        if self.sought_listener.as_ref() != Some(&name) {
            self.listeners.entry(name.clone()).or_default();
            self.sought_listener = Some(name);
        }
    }

    fn remove_runner_set(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) -> bool {
        match self.runner_set.object.presence().clone() {
            Presence::Unknown => {
                self.read_runner_set(ctx);
                false
            }
            Presence::Absent => self.runner_set.is_gone(),
            Presence::Present(live) if ownership(&live.metadata, ars) == Ownership::Foreign => true,
            Presence::Present(live) => {
                if live.metadata.deletion_timestamp.is_none() {
                    self.delete_runner_set(&live, ctx);
                }
                false
            }
        }
    }

    fn remaining_runners(&self) -> String {
        let counts = self.runner_set.report.as_ref().map(|report| report.counts);
        match counts {
            Some(counts) if counts.running > 0 => {
                format!("{} runners to finish their jobs", counts.running)
            }
            _ => "the runners to end".to_owned(),
        }
    }

    fn remaining_registration(&self) -> String {
        let unproven = self.sharers(false);
        if self.deregistration.since.is_none() && !unproven.is_empty() {
            return format!("{unproven} to show that it has the scale set as well");
        }
        let error = self.deregistration.error.as_ref();
        let reason = error.map_or(String::new(), |error| format!(": {error}"));
        format!("the scale set to be deleted in the Actions service{reason}")
    }

    /// Deletes the scale set in the service and then forgets its id. Says whether that is done.
    fn deregister(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) -> bool {
        if self.registration.is_calling() {
            // what that call makes has to go too
            return false;
        }
        let recorded = recorded_id(ars);
        let Some(id) = self.registration.unrecorded_id().or(recorded) else {
            return true;
        };
        let decided = self.deregistration.done || self.deregistration.in_flight;
        if !decided && let Some(why) = self.is_not_ours_to_delete(ars) {
            self.deregistration.done = true;
            self.deregistration.left = Some(why);
        }
        if !self.deregistration.done && self.is_in_question(ctx) {
            return false;
        }
        if self.deregistration.done {
            self.say_what_is_left(ars, id, ctx);
            if recorded.is_some() {
                self.forget_id(ars, ctx);
            }
            return recorded.is_none();
        }
        let deregistration = &mut self.deregistration;
        if deregistration.in_flight {
            return false;
        }
        if let Some(time) = deregistration.not_before.filter(|time| *time > ctx.now) {
            ctx.wake_at(time);
            return false;
        }
        deregistration.in_flight = true;
        deregistration.since.get_or_insert(ctx.now);
        let tenant = tenant_of_set(ars);
        let call = ActionsCall::DeleteScaleSet { id };
        ctx.actions(ScaleSetTag::Deregistration, tenant, call);
        false
    }

    /// Why the scale set of the recorded id is left in the service, where it is to be.
    fn is_not_ours_to_delete(&self, ars: &AutoscalingRunnerSet) -> Option<ActionsError> {
        let message = if has_moved(ars) && self.registration.unrecorded_id().is_none() {
            "the config URL has changed, and the id is that of the old one".to_owned()
        } else {
            let others = self.sharers(true);
            if others.is_empty() {
                return None;
            }
            format!("{others} still has it")
        };
        Some(ActionsError {
            kind: ActionsErrorKind::Config,
            message,
            retry_after: None,
        })
    }

    /// Whether another set that says that it has the scale set may yet show it. An id can be made
    /// up, so that it is not waited for long.
    fn is_in_question(&mut self, ctx: &mut ScaleSetContext) -> bool {
        if self.deregistration.in_flight || self.shared_with.iter().all(|one| one.proven) {
            return false;
        }
        let since = *self.deregistration.in_question.get_or_insert(ctx.now);
        let until = since.saturating_add(PROOF_WITHIN).unwrap_or(ctx.now);
        ctx.wake_at(until);
        until > ctx.now
    }

    fn say_what_is_left(&mut self, ars: &AutoscalingRunnerSet, id: i64, ctx: &mut ScaleSetContext) {
        if let Some(error) = self.deregistration.left.clone() {
            let message = format!(
                "the scale set with id {id} was left in the Actions service at {}, delete it \
                 there: {error}",
                ars.spec.github_config_url
            );
            self.announce(ars, EventSeverity::Warning, "ScaleSetLeft", message, ctx);
        }
    }

    fn forget_id(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) {
        let body = json!({ "metadata": { "annotations": { RUNNER_SCALE_SET_ID: null } } });
        self.send_scale_set(ctx, body.to_string(), || {
            KubeRequest::patch(ars.reference(), body)
        });
    }

    /// Our part is done; others may hold the object.
    fn await_end(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) {
        let target = ars.reference();
        let tag = ScaleSetTag::ScaleSet(Verb::Read);
        ctx.send(&mut self.ars, tag, Some("end"), || KubeRequest::Get(target));
    }
}

/// What happens, and what keeps it from happening.
fn because(what: &str, why: Option<&str>) -> String {
    why.map_or_else(|| what.to_owned(), |why| format!("{what}: {why}"))
}

fn going(what: &str, why: Option<&str>) -> Finding {
    Finding::fails(codes::DELETING, because(what, why))
}
