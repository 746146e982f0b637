//! The scale set in the Actions service: found, created, kept equal to what the spec says, and
//! registered again when the service has lost it.
//!
//! What was learned is written into annotations; they are what counts after a restart.

use serde_json::json;

use super::conditions::Finding;
use super::context::ScaleSetContext;
use super::record::{
    Wanted, differs, group_name, has_moved, lacks_place, place, recorded, same_labels, wanted,
};
use super::registration::{Registered, is_for_a_person};
use super::state::ScaleSetMachine;
use super::vocabulary::ScaleSetTag;
use crate::api::AutoscalingRunnerSet;
use crate::api::constants::annotations;
use crate::messages::reason::code_of_call;
use crate::messages::{
    ActionsAnswer, ActionsCall, ActionsError, EventSeverity, KubeObject, KubeRequest,
    ListenerCommand, RunnerScaleSet, codes,
};
use crate::resources::{metadata_patch, tenant_of_set, url_labels};

/// Id of the default runner group.
const DEFAULT_GROUP: i64 = 1;

impl ScaleSetMachine {
    /// Brings the registration forward by one call or patch. Answers with the scale set that
    /// the annotations name, once they name a usable one. `no_listener` says that a listener
    /// is about to be created.
    pub(super) fn register(
        &mut self,
        ars: &AutoscalingRunnerSet,
        no_listener: bool,
        ctx: &mut ScaleSetContext,
    ) -> Option<Registered> {
        self.registration.follow(&tenant_of_set(ars));
        let registered = self.bring_forward(ars, no_listener, ctx);
        ctx.notes.registered = self.registration_finding(ars, registered.is_some());
        self.announce_registration_error(ars, ctx);
        self.announce_sharing(ars, ctx);
        registered
    }

    fn bring_forward(
        &mut self,
        ars: &AutoscalingRunnerSet,
        no_listener: bool,
        ctx: &mut ScaleSetContext,
    ) -> Option<Registered> {
        let recorded = recorded(ars);
        let wanted = wanted(ars);
        if self.registration.unrecorded {
            self.record(ars, ctx);
        }
        let moved = has_moved(ars);
        if moved && let Some(id) = recorded.id {
            let message = format!(
                "the config URL has changed: the scale set with id {id} stays behind at the old \
                 one, delete it there"
            );
            self.announce(ars, EventSeverity::Warning, "ScaleSetLeft", message, ctx);
        }
        if let Some(id) = recorded.id.filter(|id| self.registration.lost == Some(*id)) {
            let message = format!(
                "the Actions service does not know the scale set with id {id} any more: it is \
                 registered again"
            );
            self.announce(ars, EventSeverity::Warning, "ScaleSetLost", message, ctx);
        }
        let usable = |id: &i64| !moved && !self.registration.is_outdated(*id);
        let id = recorded.id.filter(usable);
        let Some(id) = id else {
            if !self.registration.unrecorded {
                self.find_or_create(ars, &wanted, ctx);
            }
            return None;
        };
        if self
            .registration
            .known
            .as_ref()
            .is_some_and(|known| known.id != id)
            && !self.registration.unrecorded
        {
            // somebody has put another id there
            self.registration.known = None;
            self.registration.confirmed = false;
            self.registration.compared = None;
        }
        if lacks_place(ars) {
            self.write_place(ars, ctx);
        }
        let generation = ars.metadata.generation.unwrap_or(0);
        let observed = ars
            .status
            .as_ref()
            .and_then(|status| status.observed_generation);
        let news = generation > observed.unwrap_or(0) || differs(&recorded, &wanted);
        let to_compare = news && self.registration.compared != Some(generation);
        let to_confirm = (no_listener || self.registration.missed) && !self.registration.confirmed;
        if to_compare || to_confirm {
            self.compare(ars, id, &wanted, generation, ctx);
        } else if !self.shared_with.is_empty() && self.registration.known.is_none() {
            // only who can see it keeps another from deleting it
            self.call(ars, ActionsCall::GetScaleSet { id }, ctx);
        }
        Some(Registered {
            id,
            confirmed: self.registration.confirmed,
            settled: (!news || self.registration.compared == Some(generation))
                && !self.registration.unrecorded,
        })
    }

    /// Looks at the scale set in the service, and changes it there if it differs.
    fn compare(
        &mut self,
        ars: &AutoscalingRunnerSet,
        id: i64,
        wanted: &Wanted,
        generation: i64,
        ctx: &mut ScaleSetContext,
    ) {
        let known = self.registration.known.clone();
        let Some(known) = known.filter(|_| self.registration.confirmed) else {
            self.call(ars, ActionsCall::GetScaleSet { id }, ctx);
            return;
        };
        if self.registration.compared == Some(generation) {
            return;
        }
        let Some(group_id) = self.group_id(ars, wanted, Some(&known), ctx) else {
            return;
        };
        let same = known.name.eq_ignore_ascii_case(&wanted.name)
            && known.group_id == group_id
            && same_labels(&known.labels, &wanted.labels);
        if same {
            self.registration.satisfied();
            self.registration.compared = Some(generation);
            let recorded = recorded(ars);
            self.registration.unrecorded |= recorded.name != known.name
                || recorded.group != group_name(&known, &ars.spec.runner_group);
            if self.registration.unrecorded {
                self.record(ars, ctx);
            }
            return;
        }
        let call = ActionsCall::UpdateScaleSet {
            id,
            name: wanted.name.clone(),
            group_id,
            labels: wanted.labels.clone(),
        };
        if self.call(ars, call, ctx) {
            self.registration.told = Some(generation);
        }
    }

    fn find_or_create(
        &mut self,
        ars: &AutoscalingRunnerSet,
        wanted: &Wanted,
        ctx: &mut ScaleSetContext,
    ) {
        let Some(group_id) = self.group_id(ars, wanted, None, ctx) else {
            return;
        };
        let place = (group_id, wanted.name.clone());
        let call = if self.registration.nothing_at.as_ref() == Some(&place) {
            ActionsCall::CreateScaleSet {
                name: wanted.name.clone(),
                group_id,
                labels: wanted.labels.clone(),
            }
        } else {
            let (group_id, name) = place;
            ActionsCall::FindScaleSet { group_id, name }
        };
        self.call(ars, call, ctx);
    }

    /// Id of the wanted group, if it is known or needs no question.
    fn group_id(
        &mut self,
        ars: &AutoscalingRunnerSet,
        wanted: &Wanted,
        known: Option<&RunnerScaleSet>,
        ctx: &mut ScaleSetContext,
    ) -> Option<i64> {
        if wanted.group.is_empty() {
            return Some(DEFAULT_GROUP);
        }
        let at_hand = known.map(|set| (&set.group_name, set.group_id));
        let looked_up = self.registration.group.as_ref();
        let found = at_hand
            .into_iter()
            .chain(looked_up.map(|(name, id)| (name, *id)))
            .find(|(name, _)| name.eq_ignore_ascii_case(&wanted.group))
            .map(|(_, id)| id);
        if found.is_none() {
            let name = wanted.group.clone();
            self.call(ars, ActionsCall::GetRunnerGroup { name }, ctx);
        }
        found
    }

    /// Sends a call, unless one is in flight or a back-off runs. Says whether it was sent.
    fn call(
        &mut self,
        ars: &AutoscalingRunnerSet,
        call: ActionsCall,
        ctx: &mut ScaleSetContext,
    ) -> bool {
        let registration = &mut self.registration;
        if registration.in_flight.is_some() {
            return false;
        }
        if let Some(time) = registration.not_before.filter(|time| *time > ctx.now) {
            ctx.wake_at(time);
            return false;
        }
        registration.calls += 1;
        registration.in_flight = Some(call.clone());
        let tag = ScaleSetTag::Registration(registration.calls);
        let tenant = tenant_of_set(ars);
        ctx.actions(tag, tenant, call);
        true
    }

    /// Writes what the service said into the annotations, and the labels of the URL beside it.
    fn record(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) {
        let Some(known) = self.registration.known.clone() else {
            self.registration.unrecorded = false;
            return;
        };
        let group = group_name(&known, &ars.spec.runner_group);
        let mut desired = ars.metadata.clone();
        desired.labels = Some(url_labels(&ars.spec.github_config_url));
        desired.annotations = Some(
            [
                (annotations::RUNNER_SCALE_SET_ID, known.id.to_string()),
                (annotations::RUNNER_SCALE_SET_NAME, known.name.clone()),
                (annotations::RUNNER_GROUP_NAME, group.clone()),
                (annotations::CONFIG_URL, place(ars)),
            ]
            .map(|(key, value)| (key.to_owned(), value))
            .into(),
        );
        let Some(body) = metadata_patch(&ars.metadata, &desired) else {
            self.registration.unrecorded = false;
            let message = format!(
                "scale set \"{}\" has id {} in runner group \"{group}\"",
                known.name, known.id
            );
            self.announce(ars, EventSeverity::Normal, "Registered", message, ctx);
            return;
        };
        self.send_scale_set(ctx, body.to_string(), || {
            KubeRequest::patch(ars.reference(), body)
        });
    }

    /// Writes down where a scale set is that an older controller has registered.
    fn write_place(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) {
        let body =
            json!({ "metadata": { "annotations": { annotations::CONFIG_URL: place(ars) } } });
        self.send_scale_set(ctx, body.to_string(), || {
            KubeRequest::patch(ars.reference(), body)
        });
    }

    /// Says that another AutoscalingRunnerSet has the same scale set: only one listener can
    /// have its session, so that the other set takes no job.
    fn announce_sharing(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) {
        match self.sharing() {
            Some(message) => {
                self.announce(
                    ars,
                    EventSeverity::Warning,
                    codes::SCALE_SET_SHARED,
                    message,
                    ctx,
                );
            }
            None => self.settle(codes::SCALE_SET_SHARED),
        }
    }

    fn sharing(&self) -> Option<String> {
        let others = self.sharers(true);
        (!others.is_empty()).then(|| {
            format!(
                "the scale set is shared with {others}: only one of them can take its jobs; give \
                 each its own runnerScaleSetName or runnerGroup"
            )
        })
    }

    /// Names of those that say that they have the scale set as well, and have shown it or not.
    pub(super) fn sharers(&self, proven: bool) -> String {
        let names = self.shared_with.iter().filter(|one| one.proven == proven);
        let names: Vec<&str> = names.map(|one| one.name.as_str()).collect();
        names.join(", ")
    }

    /// Whether the service has shown the scale set that the annotations name, under the name
    /// that the spec has for it.
    pub(super) fn has_proof(&self, ars: &AutoscalingRunnerSet) -> bool {
        let known = self.registration.known.as_ref();
        known.is_some_and(|known| {
            recorded(ars).id == Some(known.id) && known.name.eq_ignore_ascii_case(&wanted(ars).name)
        })
    }

    fn registration_finding(&self, ars: &AutoscalingRunnerSet, usable: bool) -> Finding {
        match &self.registration.error {
            // the service having a bad time does not undo a registration
            Some(error) if !usable || is_for_a_person(error.kind) => {
                Finding::fails(code_of_call(error.kind), &error.message)
            }
            _ if usable => {
                let recorded = recorded(ars);
                let (id, name, group) = (recorded.id.unwrap_or(0), recorded.name, recorded.group);
                let message =
                    format!("scale set \"{name}\" has id {id} in runner group \"{group}\"");
                match self.sharing() {
                    Some(sharing) => {
                        Finding::holds(codes::SCALE_SET_SHARED, format!("{message}; {sharing}"))
                    }
                    None => Finding::holds("Registered", message),
                }
            }
            _ => Finding::fails(codes::REGISTERING, "the scale set is being registered"),
        }
    }

    fn announce_registration_error(
        &mut self,
        ars: &AutoscalingRunnerSet,
        ctx: &mut ScaleSetContext,
    ) {
        const TOPIC: &str = codes::REGISTRATION_FAILED;
        let Some(error) = self.registration.error.clone() else {
            self.settle(TOPIC);
            for reason in [
                codes::CREDENTIALS_UNUSABLE,
                codes::CREDENTIALS_FORBIDDEN,
                codes::CREDENTIALS_REFUSED,
                codes::CONFIG_INVALID,
                codes::GROUP_NOT_FOUND,
            ] {
                self.settle(reason);
            }
            return;
        };
        // messages of a service that is out of order differ each time
        let is_news = is_for_a_person(error.kind) || self.registration.failures == 1;
        if is_news {
            let reason = code_of_call(error.kind);
            self.announce(ars, EventSeverity::Warning, reason, error.message, ctx);
        }
    }

    /// Takes in the end of a call.
    pub(super) fn registration_answered(
        &mut self,
        number: u64,
        result: Result<ActionsAnswer, ActionsError>,
        ctx: &mut ScaleSetContext,
    ) {
        let who = format!("{}/{}", self.namespace, self.name);
        let mended = self.registration.answered(ctx.now, number, result, &who);
        if mended {
            self.tell_listeners(&ListenerCommand::RefreshSources, ctx);
        }
    }
}
