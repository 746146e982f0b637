//! What a person is shown, as JSON.

use serde_json::{Value, json};

use super::super::jobs::JobState;
use super::super::{ActionsService, Job, Standing};

pub(super) fn help(calls: &[(&str, &str)]) -> Value {
    let calls = calls.iter();
    calls
        .map(|(call, what)| ((*call).to_owned(), json!(what)))
        .collect()
}

pub(super) fn scale_sets(service: &ActionsService) -> Value {
    let sets = service.scale_sets().into_iter().map(|set| {
        json!({
            "id": set.id,
            "name": set.name,
            "scope": set.scope,
            "runnerGroupId": set.group_id,
            "labels": set.labels,
            "statistics": set.statistics,
        })
    });
    sets.collect()
}

pub(super) fn runners(service: &ActionsService) -> Value {
    let runners = service.runners().into_iter().map(|runner| {
        json!({
            "id": runner.id,
            "name": runner.name,
            "scaleSetId": runner.scale_set_id,
            "online": runner.online,
            "jobId": runner.job,
        })
    });
    runners.collect()
}

pub(super) fn jobs(service: &ActionsService) -> Value {
    service.jobs().iter().map(job).collect()
}

fn job(job: &Job) -> Value {
    let state = match job.state {
        JobState::Queued => "queued",
        JobState::Available => "available",
        JobState::Assigned => "assigned",
        JobState::Running => "running",
        JobState::Completed => "completed",
    };
    let time = |time: Option<wall_clock::Timestamp>| time.map(|time| time.to_string());
    json!({
        "id": job.id,
        "name": job.spec.display_name,
        "labels": job.spec.runs_on,
        "state": state,
        "result": job.result,
        "scaleSetId": job.scale_set_id,
        "runnerName": job.runner_name,
        "queuedAt": job.queued.to_string(),
        "assignedAt": time(job.assigned),
        "startedAt": time(job.started),
        "completedAt": time(job.completed),
    })
}

pub(super) fn sessions(service: &ActionsService) -> Value {
    let sessions = service.sessions().into_iter().map(|session| {
        json!({
            "id": session.id,
            "scaleSetId": session.scale_set_id,
            "owner": session.owner,
        })
    });
    sessions.collect()
}

pub(super) fn faults(service: &ActionsService) -> Value {
    let standing = service.faults().standing().into_iter();
    let standing = standing.map(
        |Standing {
             call,
             next,
             lasting,
             always,
         }| {
            let lasting = lasting.map(|left| left.as_secs_f64());
            json!({"call": call, "next": next, "secondsLeft": lasting, "always": always})
        },
    );
    standing.collect()
}
