//! Which job is recorded on which runner.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use impresario::simulation::actions_service::JobSpec;
use impresario::simulation::api_server::faults::{Interceptor, RequestFate, RequestInfo};
use impresario::simulation::api_server::http::Verb;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

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
