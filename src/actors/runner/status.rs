//! Writing the runner's status. Only the controller's fields: the job's are the listener's.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Map, Value, json};

use super::machine::{Asked, RunnerMachine, RunnerTag};
use super::pod_state::PodState;
use super::view;
use crate::actors::core::cached::Verb;
use crate::actors::core::step_context::StepContext;
use crate::api::{EphemeralRunner, EphemeralRunnerPhase};
use crate::clock::after;
use crate::messages::reason::{code_of_request, keeps_from_pod};
use crate::messages::{EventSeverity, Kind, KubeError, KubeErrorKind, KubeRequest, Reason, codes};

/// For so many seconds a pod may get ready before the runner's id and phase are written
/// without waiting for it; in most lives one write is enough.
const FIRST_WRITE: i64 = 5;

/// What becomes of reason and message.
pub(super) enum Change {
    Keep,
    Clear,
    Set(Reason),
}

/// What is to be written. Id and name of the runner go along while they are not on record, and
/// so does the phase while there is none.
pub(super) struct StatusWrite {
    pub phase: Option<EphemeralRunnerPhase>,
    pub ready: Option<bool>,
    pub reason: Change,
    pub failures: Option<Value>,
}

impl RunnerMachine {
    /// Sends a patch of the status, if none is under way. Says whether it did.
    pub(super) fn write_status(
        &mut self,
        er: &EphemeralRunner,
        write: StatusWrite,
        ctx: &mut StepContext<Self>,
    ) -> bool {
        if !self.runner.is_free(ctx.now) {
            return false;
        }
        let was_ready = er.status.as_ref().is_some_and(|status| status.ready);
        let first = view::phase(er).is_none() && write.phase.is_none();
        let mut fields = Map::new();
        let mut set = |key: &str, value: Value| {
            fields.insert(key.to_owned(), value);
        };
        if let Some(phase) = write.phase {
            set("phase", json!(phase));
        } else if first {
            set("phase", json!(EphemeralRunnerPhase::Pending));
        }
        if let Some(ready) = write.ready.filter(|ready| *ready != was_ready) {
            set("ready", json!(ready));
        }
        match write.reason {
            Change::Keep => {}
            Change::Clear if recorded_reason(er).is_none() => {}
            Change::Clear => {
                set("reason", Value::Null);
                set("message", Value::Null);
            }
            Change::Set(reason) => {
                set("reason", reason.code.into());
                set("message", reason.message.into());
            }
        }
        if let Some(failures) = write.failures {
            set("failures", failures);
        }
        if self.id_is_unrecorded(er) {
            set("runnerId", json!(self.registration.id()));
            set("runnerName", self.name.as_str().into());
        }
        if fields.is_empty() {
            return false;
        }
        ctx.begin(&mut self.runner);
        ctx.kube(
            RunnerTag::Runner(Verb::Patch),
            KubeRequest::Patch {
                target: self.reference(Kind::EphemeralRunner),
                body: json!({ "status": fields }),
                status: true,
                // the listener may be setting `Running` right now, which must not be undone
                lock: first
                    .then(|| er.metadata.resource_version.clone())
                    .flatten(),
            },
        );
        true
    }

    pub(super) fn id_is_unrecorded(&self, er: &EphemeralRunner) -> bool {
        self.registration
            .id()
            .is_some_and(|id| view::runner_id(er) != Some(id))
    }

    /// Keeps the status of a runner with a living pod up to date.
    pub(super) fn refresh_status(
        &mut self,
        er: &EphemeralRunner,
        pod: &Pod,
        state: &PodState,
        ctx: &mut StepContext<Self>,
    ) {
        let reason = match (&state.trouble, recorded_reason(er)) {
            (Some(trouble), word) if word != Some(trouble.code.as_ref()) => {
                Change::Set(trouble.clone())
            }
            (None, Some(word)) if state.runs || keeps_from_pod(word) => Change::Clear,
            _ => Change::Keep,
        };
        let was_ready = er.status.as_ref().is_some_and(|status| status.ready);
        let urgent = state.ready != was_ready
            || !matches!(reason, Change::Keep)
            || self.asked == Asked::Release;
        let unrecorded = view::phase(er).is_none() || self.id_is_unrecorded(er);
        let created = pod.metadata.creation_timestamp.as_ref();
        let due = after(created.map_or(ctx.now, |time| time.0), FIRST_WRITE);
        if unrecorded && !urgent && due > ctx.now {
            return ctx.wake_at(due);
        }
        if unrecorded || urgent {
            let write = StatusWrite {
                phase: None,
                ready: Some(state.ready),
                reason,
                failures: None,
            };
            self.write_status(er, write, ctx);
        }
    }

    /// What keeps the runner from getting its pod, if something does.
    pub(super) fn trouble(&self) -> Option<Reason> {
        let refused = |error: Option<&KubeError>| {
            let error = error?;
            match error.kind {
                KubeErrorKind::QuotaExceeded
                | KubeErrorKind::NamespaceTerminating
                | KubeErrorKind::Forbidden
                | KubeErrorKind::Unavailable
                | KubeErrorKind::Other => {
                    let code = code_of_request(error.kind);
                    Some(Reason::new(code, error.message.clone()))
                }
                _ => None,
            }
        };
        self.registration
            .trouble()
            .or_else(|| refused(self.secret.last_error()))
            .or_else(|| refused(self.pod.last_error()))
    }

    /// Puts what keeps the runner from getting its pod into the status once it has lasted.
    pub(super) fn note_trouble(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) {
        let Some(trouble) = self.trouble() else {
            self.trouble_since = None;
            return;
        };
        let since = match &self.trouble_since {
            Some((code, since)) if *code == trouble.code => *since,
            _ => {
                self.trouble_since = Some((trouble.code.clone(), ctx.now));
                ctx.now
            }
        };
        let due = after(since, FIRST_WRITE);
        if due > ctx.now {
            ctx.wake_at(due);
        } else if recorded_reason(er) != Some(trouble.code.as_ref()) {
            let write = StatusWrite {
                phase: None,
                ready: None,
                reason: Change::Set(trouble),
                failures: None,
            };
            self.write_status(er, write, ctx);
        }
    }

    /// Puts it on record that a runner that is to go waits for its job. Once: the wait may be
    /// hours long.
    pub(super) fn note_job_wait(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) {
        if recorded_reason(er) != Some(codes::WAITS_FOR_JOB) {
            let message = "the runner is being deleted and waits for its job to end";
            let write = StatusWrite {
                phase: None,
                ready: None,
                reason: Change::Set(Reason::new(codes::WAITS_FOR_JOB, message)),
                failures: None,
            };
            self.write_status(er, write, ctx);
        }
    }

    /// Publishes a failure.
    pub(super) fn announce(
        &self,
        word: &'static str,
        reason: &Reason,
        ctx: &mut StepContext<Self>,
    ) {
        self.event(ctx, EventSeverity::Warning, word, reason.to_string());
    }
}

fn recorded_reason(er: &EphemeralRunner) -> Option<&str> {
    er.status
        .as_ref()
        .and_then(|status| status.reason.as_deref())
        .filter(|word| !word.is_empty())
}
