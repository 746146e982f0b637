//! Which job is recorded on which runner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use embedded_actions::JobSpec;
use embedded_kube::ApiError;
use embedded_kube::Verb;
use embedded_kube::faults::{Interceptor, Outcome as ApiOutcome, RequestFate, RequestInfo};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::stage::{SCALE_SET, Setting, Stage, job_element, minutes, until};

#[tokio::test(start_paused = true)]
async fn a_job_that_starts_on_a_failed_runner_is_recorded_and_the_phase_kept() {
    let stage = Stage::new().await;
    stage.make_runner("linux-runner-a").await;
    stage
        .patch_status("linux-runner-a", json!({"phase": "Failed"}))
        .await;
    let listener = stage.listen("listener-a", 0, 10);
    let started = job_element("JobStarted", 61, "linux-runner-a");
    stage.service.tell(stage.scale_set, started);
    until("the start is recorded", || {
        stage.status("linux-runner-a")["jobId"] == "job-61"
    })
    .await;
    assert_eq!(stage.status("linux-runner-a")["phase"], "Failed");
    listener.terminate().await.unwrap();
}

/// The first write of a runner's status that carries a resourceVersion takes five seconds: the
/// listener's.
#[derive(Default)]
struct SlowFirstRecord(AtomicU32);

impl Interceptor for SlowFirstRecord {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        let record = request.verb == Some(Verb::Patch) && request.subresource == "status";
        let first = record && self.0.fetch_add(1, Ordering::Relaxed) == 0;
        RequestFate {
            delay_before: Duration::from_secs(if first { 5 } else { 0 }),
            ..RequestFate::default()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_fails_between_read_and_write_stays_failed() {
    let stage = Stage::with(Setting {
        api: Arc::new(SlowFirstRecord::default()),
        ..Setting::default()
    })
    .await;
    stage.make_runner("linux-runner-a").await;
    let listener = stage.listen("listener-a", 0, 10);
    let started = job_element("JobStarted", 61, "linux-runner-a");
    stage.service.tell(stage.scale_set, started);
    until("the listener has read it", || {
        stage.requests("get", "ephemeralrunners") > 0
    })
    .await;
    stage
        .patch_status("linux-runner-a", json!({"phase": "Failed"}))
        .await;
    until("the start is recorded", || {
        stage.status("linux-runner-a")["jobId"] == "job-61"
    })
    .await;
    assert_eq!(stage.status("linux-runner-a")["phase"], "Failed");
    // the tester's, the one that met the conflict, and the one after
    assert_eq!(stage.requests("patch", "ephemeralrunners/status"), 3);
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn runners_that_are_missing_going_or_strange_do_not_stop_the_listener() {
    let stage = Stage::new().await;
    stage.make_runner("linux-runner-b").await;
    let finalizer = Patch::Merge(json!({"metadata": {"finalizers": ["acme.example/hold"]}}));
    stage
        .runners
        .patch("linux-runner-b", &PatchParams::default(), &finalizer)
        .await
        .unwrap();
    stage
        .runners
        .delete("linux-runner-b", &DeleteParams::default())
        .await
        .unwrap();
    let listener = stage.listen("listener-a", 0, 10);
    for (request, runner) in [
        (61, "linux-runner-missing"),
        (62, "linux-runner-b"),
        (63, "../../../api/v1/secrets"),
        (64, ""),
    ] {
        for message_type in ["JobStarted", "JobCompleted"] {
            let element = job_element(message_type, request, runner);
            stage.service.tell(stage.scale_set, element);
        }
    }
    minutes(5).await;
    let going = stage.status("linux-runner-b");
    assert_eq!(going["jobId"], "job-62");
    assert_eq!(going["jobResult"], "failed");
    assert_eq!(going["phase"], Value::Null);
    let counted = listener.metric("gha_completed_jobs_total", "");
    assert!((counted - 4.0).abs() < f64::EPSILON, "{counted}");
    assert_eq!(stage.logged("delete_message -> 204"), 1);
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    until("it goes on", || stage.target().0 == 1).await;
    listener.terminate().await.unwrap();
}

/// Every write of a runner's status meets a newer object.
#[derive(Default)]
struct Contended {
    quiet: AtomicBool,
    writes: AtomicU32,
}

impl Interceptor for Contended {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        let record = request.verb == Some(Verb::Patch) && request.subresource == "status";
        let outcome = if record && !self.quiet.load(Ordering::Relaxed) {
            self.writes.fetch_add(1, Ordering::Relaxed);
            ApiOutcome::Refused(ApiError::new(409, "Conflict", "somebody was faster"))
        } else {
            ApiOutcome::Answered
        };
        RequestFate {
            outcome,
            ..RequestFate::default()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_changes_at_each_try_is_tried_five_times_and_again_later() {
    let contended = Arc::new(Contended::default());
    let stage = Stage::with(Setting {
        api: Arc::clone(&contended) as Arc<dyn Interceptor>,
        ..Setting::default()
    })
    .await;
    stage.make_runner("linux-runner-a").await;
    let listener = stage.listen("listener-a", 0, 10);
    let started = job_element("JobStarted", 61, "linux-runner-a");
    stage.service.tell(stage.scale_set, started);
    let tries = || contended.writes.load(Ordering::Relaxed);
    until("it has tried", || tries() > 0).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(tries(), 5);
    // it does not hold the queue up for ever
    minutes(3).await;
    assert_eq!(stage.logged("delete_message -> 204"), 1);
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    until("a runner is asked for", || stage.target().0 == 1).await;
    contended.quiet.store(true, Ordering::Relaxed);
    until("the start is recorded", || {
        stage.status("linux-runner-a")["phase"] == "Running"
    })
    .await;
    let counted = || listener.metric("gha_started_jobs_total", "");
    until("it is counted", || counted() > 0.5).await;
    minutes(5).await;
    assert!((counted() - 1.0).abs() < f64::EPSILON);
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_job_is_recorded_only_where_runner_and_job_are_the_same() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    for (name, status) in [
        (
            "linux-runner-a",
            json!({"runnerId": 4000, "jobId": "job-61"}),
        ),
        (
            "linux-runner-b",
            json!({"runnerId": 4001, "jobId": "job-62"}),
        ),
        (
            "linux-runner-c",
            json!({"runnerId": 4000, "jobId": "job-1"}),
        ),
        ("linux-runner-d", json!({"runnerId": 4000})),
    ] {
        stage.make_runner(name).await;
        stage.patch_status(name, status).await;
    }
    for (request, name) in [
        (61, "linux-runner-a"),
        (62, "linux-runner-b"),
        (63, "linux-runner-c"),
        (64, "linux-runner-d"),
    ] {
        let completed = job_element("JobCompleted", request, name);
        stage.service.tell(stage.scale_set, completed);
    }
    minutes(3).await;
    let result = |name: &str| stage.status(name)["jobResult"].clone();
    assert_eq!(result("linux-runner-a"), "failed");
    assert_eq!(result("linux-runner-b"), Value::Null, "another runner");
    assert_eq!(result("linux-runner-c"), Value::Null, "another job");
    assert_eq!(result("linux-runner-d"), "failed");
    assert_eq!(stage.status("linux-runner-d")["jobId"], "job-64");
    let counted = listener.metric("gha_completed_jobs_total", "");
    assert!((counted - 4.0).abs() < f64::EPSILON, "{counted}");
    listener.terminate().await.unwrap();
}
