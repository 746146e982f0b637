//! The scale set in the Actions service: found, created, kept equal to what the spec says, and
//! registered again when the service has lost it.
//!
//! One call is in flight at a time. What was learned is written into annotations; they are
//! what counts after a restart.

use super::conditions::Finding;
use super::state::ScaleSetMachine;
use super::step::Step;
use super::vocabulary::ScaleSetTag;
use crate::actors::backoff::Schedule;
use crate::api::AutoscalingRunnerSet;
use crate::api::constants::{annotations, labels};
use crate::clock::Timestamp;
use crate::messages::{
    ActionsAnswer, ActionsCall, ActionsError, ActionsErrorKind, ActionsRequest, EventSeverity,
    KubeObject, KubeRequest, ListenerCommand, RunnerScaleSet, Tenant,
};
use crate::resources::{
    metadata_patch, scale_set_labels, scale_set_name, tenant_of_set, url_labels,
};

/// Id of the default runner group.
const DEFAULT_GROUP: i64 = 1;
/// Name of the default runner group, where the service does not give one.
const DEFAULT_GROUP_NAME: &str = "Default";

/// For calls that failed. After a Secret was mended, a listener is to be there within a minute.
const CALLS: Schedule = Schedule {
    first_ms: 1_000,
    cap_ms: 40_000,
};

/// Where the registration stands.
#[derive(Debug, Default)]
pub struct Registration {
    /// As whom the calls were made; another one starts afresh.
    tenant: Option<Tenant>,
    /// Counts the calls, so that a late answer to an earlier one is recognised.
    calls: u64,
    in_flight: Option<ActionsCall>,
    failures: u32,
    not_before: Option<Timestamp>,
    error: Option<ActionsError>,
    /// Group that was looked up last, and its id.
    group: Option<(String, i64)>,
    /// Group and name that no scale set was found under.
    nothing_at: Option<(i64, String)>,
    /// The scale set as the service last described it.
    known: Option<RunnerScaleSet>,
    /// Its id, name or group are not yet in the annotations.
    unrecorded: bool,
    /// An id that the service does not know any more.
    lost: Option<i64>,
    /// Generation whose wishes the service was last compared with.
    compared: Option<i64>,
    /// Generation whose wishes the service was last told.
    told: Option<i64>,
    /// The service has shown the scale set since the last listener was created or ended for want
    /// of it.
    confirmed: bool,
    /// The pod of the last listener that ended for want of the scale set.
    missed_by: Option<String>,
    /// Since then the service has not said whether it knows the scale set.
    missed: bool,
}

/// What the rest may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The scale set's id.
    pub id: i64,
    /// Whether a listener may be created with it.
    pub confirmed: bool,
    /// Whether the service has what the spec says.
    pub settled: bool,
}

/// What the annotations say.
#[derive(Debug, PartialEq, Eq)]
struct Recorded<'a> {
    id: Option<i64>,
    name: &'a str,
    group: &'a str,
}

/// What the spec says.
struct Wanted {
    name: String,
    /// Empty for the default group.
    group: String,
    labels: Vec<String>,
}

/// The id in the annotation; one that is no number counts as none.
#[must_use]
pub fn recorded_id(ars: &AutoscalingRunnerSet) -> Option<i64> {
    annotation(ars, annotations::RUNNER_SCALE_SET_ID)
        .parse()
        .ok()
        .filter(|id| *id > 0)
}

impl Registration {
    /// A listener was created with the scale set; before the next one it is looked at again.
    pub const fn used(&mut self) {
        self.confirmed = false;
    }

    /// The listener in that pod has ended since the service does not know the scale set: before
    /// the next one it is looked at again.
    pub fn missed(&mut self, pod: &str) {
        if self.missed_by.as_deref() != Some(pod) {
            self.missed_by = Some(pod.to_owned());
            self.missed = true;
            self.confirmed = false;
        }
    }

    /// Whether a call is in flight.
    pub const fn is_calling(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Id of a scale set that no annotation names yet.
    pub fn unrecorded_id(&self) -> Option<i64> {
        let known = self.known.as_ref().filter(|_| self.unrecorded);
        known.map(|known| known.id)
    }

    /// Why the last call failed.
    pub const fn error(&self) -> Option<&ActionsError> {
        self.error.as_ref()
    }

    /// Lets the next call go at once.
    pub const fn forgive(&mut self) {
        self.failures = 0;
        self.not_before = None;
    }

    /// Takes in the end of a call. Says whether an error of the credentials is over.
    pub fn answered(
        &mut self,
        now: Timestamp,
        number: u64,
        result: Result<ActionsAnswer, ActionsError>,
        who: &str,
    ) -> bool {
        if number != self.calls {
            return false;
        }
        let Some(call) = self.in_flight.take() else {
            return false;
        };
        let before = self.error.take();
        match result {
            Ok(answer) if fits(&call, &answer) => {
                self.forgive();
                self.learn(call, answer);
                before.is_some_and(|error| is_for_a_person(error.kind))
            }
            Ok(_) => {
                let message = format!("the answer to {} does not fit the question", call.name());
                let error = ActionsError {
                    kind: ActionsErrorKind::Other,
                    message,
                    retry_after: None,
                };
                self.fail(now, &call, error, who);
                false
            }
            Err(error) => {
                self.fail(now, &call, error, who);
                false
            }
        }
    }

    fn learn(&mut self, call: ActionsCall, answer: ActionsAnswer) {
        match (call, answer) {
            (ActionsCall::GetRunnerGroup { name }, ActionsAnswer::Group(group)) => {
                self.group = Some((name, group.id));
            }
            (ActionsCall::FindScaleSet { group_id, name }, ActionsAnswer::ScaleSet(None)) => {
                self.nothing_at = Some((group_id, name));
            }
            (ActionsCall::GetScaleSet { id }, ActionsAnswer::ScaleSet(None)) => self.lose(id),
            (ActionsCall::GetScaleSet { .. }, ActionsAnswer::ScaleSet(Some(set))) => {
                self.know(set);
            }
            (ActionsCall::UpdateScaleSet { .. }, ActionsAnswer::ScaleSet(Some(set))) => {
                self.know(set);
                self.unrecorded = true;
                // whatever the service has made of it, it is told once
                self.compared = self.told;
            }
            (_, ActionsAnswer::ScaleSet(Some(set))) => {
                self.know(set);
                self.unrecorded = true;
                self.nothing_at = None;
                self.lost = None;
            }
            _ => {}
        }
    }

    /// Whether the service does not know that id any more, or another one takes its place.
    fn is_outdated(&self, id: i64) -> bool {
        let successor = self.known.as_ref().filter(|_| self.unrecorded);
        self.lost == Some(id) || successor.is_some_and(|known| known.id != id)
    }

    fn know(&mut self, set: RunnerScaleSet) {
        self.known = Some(set);
        self.confirmed = true;
        self.missed = false;
    }

    fn lose(&mut self, id: i64) {
        self.lost = Some(id);
        self.known = None;
        self.unrecorded = false;
        self.confirmed = false;
        self.missed = false;
        self.compared = None;
    }

    fn fail(&mut self, now: Timestamp, call: &ActionsCall, error: ActionsError, who: &str) {
        match call {
            ActionsCall::GetScaleSet { id } | ActionsCall::UpdateScaleSet { id, .. }
                if error.kind == ActionsErrorKind::ScaleSetNotFound =>
            {
                self.lose(*id);
                return;
            }
            // it may be there all the same, so that it is looked for again
            ActionsCall::CreateScaleSet { .. } => self.nothing_at = None,
            _ => {}
        }
        if error.kind == ActionsErrorKind::GroupNotFound {
            self.group = None;
        }
        self.failures = self.failures.saturating_add(1);
        let own = CALLS.until(now, self.failures, who);
        let asked = error
            .retry_after
            .and_then(|wait| now.saturating_add(wait).ok());
        self.not_before = Some(asked.map_or(own, |time| time.max(own)));
        self.error = Some(error);
    }

    /// Follows the spec to another tenant: nothing that was learned from the old one holds.
    fn follow(&mut self, tenant: &Tenant) {
        if self.tenant.as_ref() == Some(tenant) {
            return;
        }
        let moved = self
            .tenant
            .as_ref()
            .is_some_and(|old| old.config_url != tenant.config_url);
        if moved {
            *self = Self {
                calls: self.calls,
                ..Self::default()
            };
        }
        self.forgive();
        self.tenant = Some(tenant.clone());
    }
}

impl ScaleSetMachine {
    /// Brings the registration forward by one call or patch. Answers with the scale set that
    /// the annotations name, once they name a usable one. `no_listener` says that a listener
    /// is about to be created.
    pub(super) fn register(
        &mut self,
        ars: &AutoscalingRunnerSet,
        no_listener: bool,
        step: &mut Step,
    ) -> Option<Registered> {
        self.registration.follow(&tenant_of_set(ars));
        let registered = self.bring_forward(ars, no_listener, step);
        step.findings.registered = self.registration_finding(ars, registered.is_some());
        self.announce_registration_error(ars, step);
        registered
    }

    fn bring_forward(
        &mut self,
        ars: &AutoscalingRunnerSet,
        no_listener: bool,
        step: &mut Step,
    ) -> Option<Registered> {
        let recorded = recorded(ars);
        let wanted = wanted(ars);
        if self.registration.unrecorded {
            self.record(ars, step);
        }
        let moved = has_moved(ars);
        if moved && let Some(id) = recorded.id {
            let message = format!(
                "the config URL has changed: the scale set with id {id} stays behind at the old \
                 one, delete it there"
            );
            self.announce(ars, EventSeverity::Warning, "ScaleSetLeft", message, step);
        }
        if let Some(id) = recorded.id.filter(|id| self.registration.lost == Some(*id)) {
            let message = format!(
                "the Actions service does not know the scale set with id {id} any more: it is \
                 registered again"
            );
            self.announce(ars, EventSeverity::Warning, "ScaleSetLost", message, step);
        }
        let usable = |id: &i64| !moved && !self.registration.is_outdated(*id);
        let id = recorded.id.filter(usable);
        let Some(id) = id else {
            if !self.registration.unrecorded {
                self.find_or_create(ars, &wanted, step);
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
        let generation = ars.metadata.generation.unwrap_or(0);
        let observed = ars
            .status
            .as_ref()
            .and_then(|status| status.observed_generation);
        let news = generation > observed.unwrap_or(0) || differs(&recorded, &wanted);
        let to_compare = news && self.registration.compared != Some(generation);
        let to_confirm = (no_listener || self.registration.missed) && !self.registration.confirmed;
        if to_compare || to_confirm {
            self.compare(ars, id, &wanted, generation, step);
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
        step: &mut Step,
    ) {
        let known = self.registration.known.clone();
        let Some(known) = known.filter(|_| self.registration.confirmed) else {
            self.call(ars, ActionsCall::GetScaleSet { id }, step);
            return;
        };
        if self.registration.compared == Some(generation) {
            return;
        }
        let Some(group_id) = self.group_id(ars, wanted, Some(&known), step) else {
            return;
        };
        let same = known.name.eq_ignore_ascii_case(&wanted.name)
            && known.group_id == group_id
            && same_labels(&known.labels, &wanted.labels);
        if same {
            self.registration.compared = Some(generation);
            let recorded = recorded(ars);
            self.registration.unrecorded |= recorded.name != known.name
                || recorded.group != group_name(&known, &ars.spec.runner_group);
            if self.registration.unrecorded {
                self.record(ars, step);
            }
            return;
        }
        let call = ActionsCall::UpdateScaleSet {
            id,
            name: wanted.name.clone(),
            group_id,
            labels: wanted.labels.clone(),
        };
        if self.call(ars, call, step) {
            self.registration.told = Some(generation);
        }
    }

    fn find_or_create(&mut self, ars: &AutoscalingRunnerSet, wanted: &Wanted, step: &mut Step) {
        let Some(group_id) = self.group_id(ars, wanted, None, step) else {
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
        self.call(ars, call, step);
    }

    /// Id of the wanted group, if it is known or needs no question.
    fn group_id(
        &mut self,
        ars: &AutoscalingRunnerSet,
        wanted: &Wanted,
        known: Option<&RunnerScaleSet>,
        step: &mut Step,
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
            self.call(ars, ActionsCall::GetRunnerGroup { name }, step);
        }
        found
    }

    /// Sends a call, unless one is in flight or a back-off runs. Says whether it was sent.
    fn call(&mut self, ars: &AutoscalingRunnerSet, call: ActionsCall, step: &mut Step) -> bool {
        let registration = &mut self.registration;
        if registration.in_flight.is_some() {
            return false;
        }
        if let Some(time) = registration.not_before.filter(|time| *time > step.now) {
            step.wake.at(time);
            return false;
        }
        registration.calls += 1;
        registration.in_flight = Some(call.clone());
        let tag = ScaleSetTag::Registration(registration.calls);
        let tenant = tenant_of_set(ars);
        step.call(tag, ActionsRequest { tenant, call });
        true
    }

    /// Writes what the service said into the annotations, and the labels of the URL beside it.
    fn record(&mut self, ars: &AutoscalingRunnerSet, step: &mut Step) {
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
            self.announce(ars, EventSeverity::Normal, "Registered", message, step);
            return;
        };
        self.send_scale_set(step, body.to_string(), || {
            KubeRequest::patch(ars.reference(), body)
        });
    }

    fn registration_finding(&self, ars: &AutoscalingRunnerSet, usable: bool) -> Finding {
        match &self.registration.error {
            // the service having a bad time does not undo a registration
            Some(error) if !usable || is_for_a_person(error.kind) => {
                Finding::fails(reason_of(error.kind), &error.message)
            }
            _ if usable => {
                let recorded = recorded(ars);
                let (id, name, group) = (recorded.id.unwrap_or(0), recorded.name, recorded.group);
                let message =
                    format!("scale set \"{name}\" has id {id} in runner group \"{group}\"");
                Finding::holds("Registered", message)
            }
            _ => Finding::fails("Registering", "the scale set is being registered"),
        }
    }

    fn announce_registration_error(&mut self, ars: &AutoscalingRunnerSet, step: &mut Step) {
        const TOPIC: &str = "RegistrationFailed";
        let Some(error) = self.registration.error.clone() else {
            self.settle(TOPIC);
            for reason in [
                "CredentialsUnusable",
                "CredentialsRefused",
                "ConfigInvalid",
                "GroupNotFound",
            ] {
                self.settle(reason);
            }
            return;
        };
        // messages of a service that is out of order differ each time
        let is_news = is_for_a_person(error.kind) || self.registration.failures == 1;
        if is_news {
            let reason = reason_of(error.kind);
            self.announce(ars, EventSeverity::Warning, reason, error.message, step);
        }
    }

    /// Takes in the end of a call.
    pub(super) fn registration_answered(
        &mut self,
        number: u64,
        result: Result<ActionsAnswer, ActionsError>,
        step: &mut Step,
    ) {
        let who = format!("{}/{}", self.namespace, self.name);
        let mended = self.registration.answered(step.now, number, result, &who);
        if mended {
            self.tell_listeners(&ListenerCommand::RefreshSources, step);
        }
    }
}

/// Whether an answer is one to that call.
const fn fits(call: &ActionsCall, answer: &ActionsAnswer) -> bool {
    match answer {
        ActionsAnswer::Group(_) => matches!(call, ActionsCall::GetRunnerGroup { .. }),
        ActionsAnswer::ScaleSet(Some(_)) => !matches!(call, ActionsCall::GetRunnerGroup { .. }),
        ActionsAnswer::ScaleSet(None) => matches!(
            call,
            ActionsCall::FindScaleSet { .. } | ActionsCall::GetScaleSet { .. }
        ),
        _ => false,
    }
}

/// Whether a person has to mend something before the call can succeed.
pub const fn is_for_a_person(kind: ActionsErrorKind) -> bool {
    matches!(
        kind,
        ActionsErrorKind::Credentials
            | ActionsErrorKind::Config
            | ActionsErrorKind::Unauthorized
            | ActionsErrorKind::GroupNotFound
    )
}

/// One word for it.
pub const fn reason_of(kind: ActionsErrorKind) -> &'static str {
    match kind {
        ActionsErrorKind::Credentials => "CredentialsUnusable",
        ActionsErrorKind::Unauthorized => "CredentialsRefused",
        ActionsErrorKind::Config => "ConfigInvalid",
        ActionsErrorKind::GroupNotFound => "GroupNotFound",
        ActionsErrorKind::Unavailable => "ServiceUnavailable",
        _ => "RegistrationFailed",
    }
}

fn annotation<'a>(ars: &'a AutoscalingRunnerSet, key: &str) -> &'a str {
    let all = ars.metadata.annotations.as_ref();
    all.and_then(|all| all.get(key))
        .map_or("", |value| value.trim())
}

fn recorded(ars: &AutoscalingRunnerSet) -> Recorded<'_> {
    Recorded {
        id: recorded_id(ars),
        name: annotation(ars, annotations::RUNNER_SCALE_SET_NAME),
        group: annotation(ars, annotations::RUNNER_GROUP_NAME),
    }
}

fn wanted(ars: &AutoscalingRunnerSet) -> Wanted {
    Wanted {
        name: scale_set_name(ars),
        group: ars.spec.runner_group.clone(),
        labels: scale_set_labels(ars),
    }
}

/// Whether name or group differ from what was recorded. The default group has no name here:
/// whether it is meant shows when the service is asked.
fn differs(recorded: &Recorded<'_>, wanted: &Wanted) -> bool {
    !recorded.name.eq_ignore_ascii_case(&wanted.name)
        || (!wanted.group.is_empty() && !recorded.group.eq_ignore_ascii_case(&wanted.group))
}

/// Whether the URL labels are those of another config URL than the spec's: the recorded id
/// belongs to that one.
fn has_moved(ars: &AutoscalingRunnerSet) -> bool {
    let now = url_labels(&ars.spec.github_config_url);
    let keys = [labels::ENTERPRISE, labels::ORGANIZATION, labels::REPOSITORY];
    let then = |key: &str| ars.metadata.labels.as_ref().and_then(|all| all.get(key));
    keys.iter().any(|key| then(key).is_some())
        && keys.iter().any(|key| match (then(key), now.get(*key)) {
            (Some(then), Some(now)) => !then.eq_ignore_ascii_case(now),
            (None, None) => false,
            _ => true,
        })
}

fn same_labels(a: &[String], b: &[String]) -> bool {
    let covers = |one: &[String], other: &[String]| {
        one.iter()
            .all(|label| other.iter().any(|twin| twin.eq_ignore_ascii_case(label)))
    };
    covers(a, b) && covers(b, a)
}

fn group_name(set: &RunnerScaleSet, asked: &str) -> String {
    let names = [set.group_name.as_str(), asked, DEFAULT_GROUP_NAME];
    let given = names.into_iter().find(|name| !name.is_empty());
    given.unwrap_or_default().to_owned()
}
