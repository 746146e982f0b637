//! How many runners are asked for, and when.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use embedded_actions::{JobSpec, JobState};
use embedded_kube::ApiError;
use embedded_kube::Verb;
use embedded_kube::faults::{Interceptor, Outcome as ApiOutcome, RequestFate, RequestInfo};
use kube::api::{DeleteParams, Patch, PatchParams};
use secrecy::ExposeSecret;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::stage::{RUNNER_SET, SCALE_SET, Setting, Stage, job_element, message, minutes, until};

#[tokio::test(start_paused = true)]
async fn a_burst_of_jobs_is_acquired_run_recorded_and_scaled_back() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 1, 10);
    until("the set is at its minimum", || stage.target() == (1, 0)).await;

    let job = stage
        .service
        .queue_job(JobSpec::on(SCALE_SET).named("build"));
    until("a runner is asked for", || stage.target().0 == 2).await;
    assert_eq!(stage.service.job(job).unwrap().state, JobState::Assigned);

    let jit = stage.register("linux-runner-a").await;
    let runner = stage
        .service
        .runner_online(jit.encoded.expose_secret())
        .unwrap();
    let taken = runner.next_job().await.unwrap();
    until("the start is recorded", || {
        stage.status("linux-runner-a")["phase"] == "Running"
    })
    .await;
    assert_eq!(
        stage.status("linux-runner-a"),
        json!({
            "phase": "Running", "jobRequestId": job, "jobId": taken.job_id(),
            "jobRepositoryName": "acme/widgets", "jobDisplayName": "build",
            "jobWorkflowRef": "acme/widgets/.github/workflows/build.yaml@refs/heads/main",
            "workflowRunId": stage.status("linux-runner-a")["workflowRunId"],
        })
    );

    sleep(Duration::from_secs(30)).await;
    runner.complete(&taken, "succeeded");
    until("the end is recorded", || {
        stage.status("linux-runner-a")["jobResult"] == "succeeded"
    })
    .await;
    assert!(stage.status("linux-runner-a")["jobFinishedAt"].is_string());
    until("the set is at its minimum", || stage.target() == (1, 0)).await;

    for (name, count) in [
        ("gha_started_jobs_total", 1.0),
        ("gha_completed_jobs_total", 1.0),
        ("gha_job_startup_duration_seconds_count", 1.0),
        ("gha_job_execution_duration_seconds_count", 1.0),
        ("gha_desired_runners", 1.0),
        ("gha_assigned_jobs", 0.0),
    ] {
        let seen = listener.metric(name, "");
        assert!((seen - count).abs() < f64::EPSILON, "{name} {seen}");
    }
    assert!(listener.metric("gha_job_execution_duration_seconds_sum", "") >= 30.0);
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn jobs_that_waited_while_no_listener_ran_are_scaled_for_at_once() {
    let stage = Stage::new().await;
    let first = stage.listen("listener-a", 0, 10);
    for _ in 0..3 {
        stage.service.queue_job(JobSpec::on(SCALE_SET));
    }
    until("three runners are asked for", || stage.target().0 == 3).await;
    first.terminate().await.unwrap();
    let nothing = Patch::Merge(json!({"spec": {"replicas": 0, "patchID": 0}}));
    stage
        .sets
        .patch(RUNNER_SET, &PatchParams::default(), &nothing)
        .await
        .unwrap();

    let began = Instant::now();
    let second = stage.listen("listener-b", 0, 10);
    until("three runners are asked for", || stage.target().0 == 3).await;
    assert!(began.elapsed() < Duration::from_secs(5));
    second.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn at_rest_nothing_is_written() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 2, 10);
    until("the set is at its minimum", || stage.target() == (2, 0)).await;
    minutes(5).await;
    let (patches, revision) = (
        stage.requests("patch", "ephemeralrunnersets"),
        stage.api.revision(),
    );
    minutes(60).await;
    assert_eq!(stage.requests("patch", "ephemeralrunnersets"), patches);
    assert_eq!(stage.api.revision(), revision);
    assert!(listener.metric("impresario_listener_polls_total", "empty") > 60.0);
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_runner_set_that_was_made_anew_gets_its_target_within_a_poll() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 2, 10);
    until("the set is at its minimum", || stage.target() == (2, 0)).await;
    minutes(10).await;
    stage
        .sets
        .delete(RUNNER_SET, &DeleteParams::default())
        .await
        .unwrap();
    minutes(5).await;
    stage.make_runner_set().await;
    let began = Instant::now();
    until("the set is at its minimum again", || stage.target().0 == 2).await;
    assert!(
        began.elapsed() <= Duration::from_secs(61),
        "{:?}",
        began.elapsed()
    );
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_capacity_no_job_is_acquired() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 0);
    until("it polls", || {
        listener.metric("impresario_listener_polls_total", "") > 0.0
    })
    .await;
    let offered = job_element("JobAvailable", 61, "");
    stage
        .service
        .faults()
        .next("get_message", message(900, 0, &[offered]));
    minutes(5).await;
    assert!(listener.metric("impresario_listener_job_messages_total", "available") > 0.0);
    assert_eq!(stage.logged("acquire_jobs"), 0);
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn polls_announce_the_most_jobs_there_can_be() {
    for max in [0, 7, 2_147_483_647] {
        let stage = Stage::new().await;
        let listener = stage.listen("listener-a", 0, max);
        minutes(1).await;
        assert_eq!(stage.wire.last_poll().capacity, max.to_string());
        listener.terminate().await.unwrap();
    }
}

/// While it is there, writes to the runner set are answered so.
#[derive(Default)]
struct Denied(Mutex<Option<(u16, &'static str)>>);

impl Interceptor for Denied {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        let target = request.verb == Some(Verb::Patch)
            && request.resource.starts_with("ephemeralrunnersets");
        let outcome = match *self.0.lock().unwrap() {
            Some((code, reason)) if target => {
                ApiOutcome::Refused(ApiError::new(code, reason, "denied by the test"))
            }
            _ => ApiOutcome::Answered,
        };
        RequestFate {
            outcome,
            ..RequestFate::default()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_cannot_be_written_keeps_its_message_until_it_can() {
    for (code, reason) in [
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (404, "NotFound"),
        (409, "Conflict"),
        (422, "Invalid"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
    ] {
        let denied = Arc::new(Denied::default());
        let stage = Stage::with(Setting {
            api: Arc::clone(&denied) as Arc<dyn Interceptor>,
            ..Setting::default()
        })
        .await;
        let listener = stage.listen("listener-a", 0, 10);
        minutes(2).await;
        *denied.0.lock().unwrap() = Some((code, reason));
        let before = stage.requests("patch", "ephemeralrunnersets");
        stage.service.queue_job(JobSpec::on(SCALE_SET));
        minutes(15).await;
        assert!(!listener.task.is_finished(), "{code}");
        assert_eq!(stage.logged("delete_message"), 0, "{code}");
        let tries = stage.requests("patch", "ephemeralrunnersets") - before;
        assert!((20..60).contains(&tries), "{code} {tries}");
        let errors = listener.metric("impresario_listener_errors_total", "publish");
        assert!(errors > 19.0, "{code} {errors}");

        *denied.0.lock().unwrap() = None;
        let began = Instant::now();
        until("the target is published", || stage.target().0 == 1).await;
        assert!(began.elapsed() <= Duration::from_secs(31), "{code}");
        until("the message is acknowledged", || {
            stage.logged("delete_message -> 204") > 0
        })
        .await;
        listener.terminate().await.unwrap();
    }
}
