//! What an EphemeralRunner says of itself: the part of a runner's report that is on record.
//!
//! Used by the runner for its reports, and by its set for runners whose actor has not
//! spoken yet.

use crate::api::constants::annotations;
use crate::api::{EphemeralRunner, EphemeralRunnerPhase};
use crate::clock::Timestamp;
use crate::messages::{Launch, Reason, RunnerReport, RunnerState, codes};

/// The report that follows from the object alone. Whatever it does not say is taken for the
/// worse: a pod or Secret may exist.
#[must_use]
pub fn view(er: &EphemeralRunner) -> RunnerReport {
    let status = er.status.as_ref();
    let text = |field: Option<&String>| field.cloned().unwrap_or_default();
    let reason = text(status.and_then(|status| status.reason.as_ref()));
    let message = text(status.and_then(|status| status.message.as_ref()));
    RunnerReport {
        name: er.metadata.name.clone().unwrap_or_default(),
        uid: er.metadata.uid.clone().unwrap_or_default(),
        created: created(er),
        patch_id: number(er, annotations::PATCH_ID),
        revision: number(er, annotations::ACTIONABLE_REVISION),
        state: state(er),
        has_job: has_job(er),
        job_finished: job_finished(er),
        deleting: is_deleting(er),
        holds_resources: true,
        lost: false,
        launch: launch(er),
        registered: runner_id(er).is_some(),
        ready: status.is_some_and(|status| status.ready),
        refused: None,
        reason: (!reason.is_empty()).then(|| Reason::new(reason, message)),
    }
}

/// Whether the listener has recorded a job on it. Its phase does not tell: ARC's controller
/// calls each runner `Running` whose pod runs, and listeners write job and phase together.
#[must_use]
pub fn has_job(er: &EphemeralRunner) -> bool {
    let is_said = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.is_empty());
    let is_set = |id: Option<i64>| id.is_some_and(|id| id > 0);
    er.status.as_ref().is_some_and(|status| {
        is_said(&status.job_id)
            || is_said(&status.job_repository_name)
            || is_said(&status.job_display_name)
            || is_set(status.job_request_id)
            || is_set(status.workflow_run_id)
    })
}

/// Whether the job recorded on it is recorded as ended.
#[must_use]
pub fn job_ended(er: &EphemeralRunner) -> bool {
    er.status.as_ref().is_some_and(|status| {
        status.job_finished_at.is_some()
            || status
                .job_result
                .as_deref()
                .is_some_and(|result| !result.is_empty())
    })
}

/// When its job was recorded as finished, if that is on record.
#[must_use]
pub fn job_finished(er: &EphemeralRunner) -> Option<Timestamp> {
    let finished = er.status.as_ref()?.job_finished_at.as_ref()?;
    Some(finished.0)
}

/// How far it is on its way to a pod, as far as that is on record.
fn launch(er: &EphemeralRunner) -> Launch {
    let status = er.status.as_ref();
    let reason = status.and_then(|status| status.reason.as_deref());
    if reason == Some(codes::QUOTA_EXCEEDED) && !is_done(er) {
        Launch::Crowded
    } else if status.is_some_and(|status| status.ready) || has_job(er) || is_done(er) {
        Launch::Done
    } else {
        Launch::UnderWay
    }
}

/// Whether it has a deletionTimestamp.
#[must_use]
pub const fn is_deleting(er: &EphemeralRunner) -> bool {
    er.metadata.deletion_timestamp.is_some()
}

/// Whether its phase is one that it never leaves.
#[must_use]
pub fn is_done(er: &EphemeralRunner) -> bool {
    use EphemeralRunnerPhase::{Failed, Outdated, Succeeded};
    matches!(phase(er), Some(Succeeded | Failed | Outdated))
}

/// Its phase, if it has one.
#[must_use]
pub fn phase(er: &EphemeralRunner) -> Option<EphemeralRunnerPhase> {
    er.status.as_ref().and_then(|status| status.phase)
}

/// Its id in the Actions service, if that is on record.
#[must_use]
pub fn runner_id(er: &EphemeralRunner) -> Option<i64> {
    er.status
        .as_ref()
        .and_then(|status| status.runner_id)
        .filter(|id| *id > 0)
}

/// A verdict on the runner's version stands whether or not a job was recorded: the service
/// may give a job to a runner that then refuses to run.
fn state(er: &EphemeralRunner) -> RunnerState {
    match phase(er) {
        Some(EphemeralRunnerPhase::Succeeded) => RunnerState::Finished,
        Some(EphemeralRunnerPhase::Failed) if has_job(er) => RunnerState::Finished,
        Some(EphemeralRunnerPhase::Failed) => RunnerState::Failed,
        Some(EphemeralRunnerPhase::Outdated) => RunnerState::Outdated,
        _ if has_job(er) => RunnerState::Running,
        _ => RunnerState::Pending,
    }
}

fn created(er: &EphemeralRunner) -> Timestamp {
    er.metadata
        .creation_timestamp
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

fn number(er: &EphemeralRunner, annotation: &str) -> i64 {
    er.metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(annotation))
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// Whether the controller lacks a right for what is to be done.
#[must_use]
pub fn is_denial(reason: &Reason) -> bool {
    matches!(
        reason.code.as_ref(),
        codes::FORBIDDEN | codes::CREDENTIALS_FORBIDDEN
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seen(status: Value) -> RunnerReport {
        let runner = json!({
            "metadata": { "name": "r", "namespace": "ci", "uid": "u" },
            "spec": { "githubConfigUrl": "", "githubConfigSecret": "", "runnerScaleSetId": 1 },
            "status": status,
        });
        view(&serde_json::from_value(runner).unwrap())
    }

    #[test]
    fn a_runner_is_busy_when_a_job_is_on_record_whatever_its_phase() {
        for phase in [Value::Null, json!("Pending"), json!("Running")] {
            let idle = seen(json!({ "phase": phase, "ready": true, "runnerId": 3 }));
            assert_eq!(
                (idle.state, idle.has_job),
                (RunnerState::Pending, false),
                "{phase}"
            );
            for (field, value) in [
                ("jobId", json!("j")),
                ("jobRequestId", json!(42)),
                ("jobRepositoryName", json!("org/repo")),
                ("jobDisplayName", json!("build")),
                ("workflowRunId", json!(101)),
            ] {
                let busy = seen(json!({ "phase": phase, field: value }));
                let found = (busy.state, busy.has_job);
                assert_eq!(found, (RunnerState::Running, true), "{phase} {field}");
            }
        }
    }

    /// How far a runner is that no actor has spoken for: what is not on record has not been done.
    #[test]
    fn a_launch_is_over_when_the_runner_is_ready_has_a_job_or_is_done() {
        for (status, expected) in [
            (Value::Null, Launch::UnderWay),
            (json!({ "phase": "Pending" }), Launch::UnderWay),
            (json!({ "phase": "Running" }), Launch::UnderWay),
            (json!({ "phase": "Running", "ready": true }), Launch::Done),
            (json!({ "phase": "Running", "jobId": "j" }), Launch::Done),
            (json!({ "phase": "Succeeded" }), Launch::Done),
            (json!({ "phase": "Failed" }), Launch::Done),
            (json!({ "phase": "Outdated" }), Launch::Done),
            (json!({ "reason": "QuotaExceeded" }), Launch::Crowded),
            (
                json!({ "reason": "QuotaExceeded", "phase": "Pending" }),
                Launch::Crowded,
            ),
            (
                json!({ "reason": "QuotaExceeded", "phase": "Failed" }),
                Launch::Done,
            ),
            (json!({ "reason": "Other" }), Launch::UnderWay),
        ] {
            assert_eq!(seen(status.clone()).launch, expected, "{status}");
        }
    }

    #[test]
    fn a_job_has_ended_when_its_time_or_its_result_is_on_record() {
        for (status, expected) in [
            (Value::Null, false),
            (json!({ "jobId": "j" }), false),
            (json!({ "jobResult": "" }), false),
            (json!({ "jobResult": "succeeded" }), true),
            (json!({ "jobFinishedAt": "2026-03-01T08:00:00Z" }), true),
            (
                json!({ "jobFinishedAt": "2026-03-01T08:00:00Z", "jobResult": "failed" }),
                true,
            ),
        ] {
            let runner: EphemeralRunner = serde_json::from_value(json!({
                "metadata": { "name": "r" },
                "spec": { "githubConfigUrl": "", "githubConfigSecret": "", "runnerScaleSetId": 1 },
                "status": status,
            }))
            .unwrap();
            assert_eq!(job_ended(&runner), expected, "{status}");
            assert_eq!(
                job_finished(&runner).is_some(),
                status.get("jobFinishedAt").is_some(),
                "{status}"
            );
        }
    }

    #[test]
    fn ids_of_0_are_none() {
        for (id, known) in [(-1, false), (0, false), (1, true)] {
            let report = seen(json!({ "runnerId": id }));
            assert_eq!(report.registered, known, "{id}");
            let report = seen(json!({ "jobRequestId": id }));
            assert_eq!(report.has_job, known, "{id}");
            let report = seen(json!({ "workflowRunId": id }));
            assert_eq!(report.has_job, known, "{id}");
        }
    }
}
