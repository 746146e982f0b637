//! What is known of a registration with the Actions service, and how each answer changes it.
//! One call is in flight at a time.

use crate::actors::core::backoff::Schedule;
use crate::clock::Timestamp;
use crate::messages::{
    ActionsAnswer, ActionsCall, ActionsError, ActionsErrorKind, RunnerScaleSet, Tenant,
};

/// For calls that failed.
const CALLS: Schedule = Schedule {
    first_ms: 1_000,
    cap_ms: 40_000,
};

/// For calls that need other credentials or another configuration: these are read again with each
/// call, and what was mended in them counts within ten seconds. (Refused credentials are not shown
/// to the service so often; that is the client's business.)
const UNTIL_MENDED: Schedule = Schedule {
    first_ms: 1_000,
    cap_ms: 10_000,
};

/// Where the registration stands.
#[derive(Debug, Default)]
pub struct Registration {
    /// As whom the calls were made; another one starts afresh.
    pub(super) tenant: Option<Tenant>,
    /// Counts the calls, so that a late answer to an earlier one is recognised.
    pub(super) calls: u64,
    pub(super) in_flight: Option<ActionsCall>,
    pub(super) failures: u32,
    pub(super) not_before: Option<Timestamp>,
    pub(super) error: Option<ActionsError>,
    /// Group that was looked up last, and its id.
    pub(super) group: Option<(String, i64)>,
    /// Group and name that no scale set was found under.
    pub(super) nothing_at: Option<(i64, String)>,
    /// The scale set as the service last described it.
    pub(super) known: Option<RunnerScaleSet>,
    /// Its id, name or group are not yet in the annotations.
    pub(super) unrecorded: bool,
    /// An id that the service does not know any more.
    pub(super) lost: Option<i64>,
    /// Generation whose wishes the service was last compared with.
    pub(super) compared: Option<i64>,
    /// Generation whose wishes the service was last told.
    pub(super) told: Option<i64>,
    /// The service has shown the scale set since the last listener was created or ended for want
    /// of it.
    pub(super) confirmed: bool,
    /// The last end of a listener that may have been for want of the scale set.
    pub(super) missed_by: Option<String>,
    /// Since then the service has not said whether it knows the scale set.
    pub(super) missed: bool,
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

impl Registration {
    /// A listener was created with the scale set; before the next one it is looked at again.
    pub const fn used(&mut self) {
        self.confirmed = false;
    }

    /// A listener has ended, maybe since the service does not know the scale set: before the next
    /// one it is looked at again.
    pub fn missed(&mut self, end: &str) {
        if self.missed_by.as_deref() != Some(end) {
            self.missed_by = Some(end.to_owned());
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
                self.fail(now, &call, before, error, who);
                false
            }
            Err(error) => {
                self.fail(now, &call, before, error, who);
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
    pub(super) fn is_outdated(&self, id: i64) -> bool {
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

    /// The service has what the spec says, so that an error about an earlier wish is over.
    pub(super) fn satisfied(&mut self) {
        self.error = None;
        self.forgive();
    }

    fn fail(
        &mut self,
        now: Timestamp,
        call: &ActionsCall,
        before: Option<ActionsError>,
        error: ActionsError,
        who: &str,
    ) {
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
        let own = schedule_of(error.kind).until(now, self.failures, who);
        let asked = error
            .retry_after
            .and_then(|wait| now.saturating_add(wait).ok());
        self.not_before = Some(asked.map_or(own, |time| time.max(own)));
        // what is said again with other ids is no news
        let said = before.filter(|before| {
            before.kind == error.kind && without_ids(&before.message) == without_ids(&error.message)
        });
        self.error = Some(said.unwrap_or(error));
    }

    /// Follows the spec to another tenant: nothing that was learned from the old one holds.
    pub(super) fn follow(&mut self, tenant: &Tenant) {
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

/// What an error says, without the ids of the answer at its end.
fn without_ids(message: &str) -> &str {
    [" (ActivityId ", " (X-GitHub-Request-Id "]
        .iter()
        .fold(message, |rest, ids| rest.split(ids).next().unwrap_or(rest))
}

/// How long to wait after an error.
const fn schedule_of(kind: ActionsErrorKind) -> Schedule {
    match kind {
        ActionsErrorKind::Credentials
        | ActionsErrorKind::Config
        | ActionsErrorKind::Unauthorized => UNTIL_MENDED,
        _ => CALLS,
    }
}

/// Whether a person has to mend something before the call can succeed.
pub const fn is_for_a_person(kind: ActionsErrorKind) -> bool {
    matches!(
        kind,
        ActionsErrorKind::Credentials
            | ActionsErrorKind::Denied
            | ActionsErrorKind::Config
            | ActionsErrorKind::Unauthorized
            | ActionsErrorKind::GroupNotFound
    )
}
