//! The listener program, through its real clients, against the embedded Actions service and
//! the embedded API server, under virtual time.

mod finished;
mod stage;
mod storm;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use impresario::actions::ReqwestTransports;
use impresario::api::ListenerConfig;
use impresario::clock::Clock;
use impresario::listener::{Health, ListenerEnv, ListenerMetrics, run};
use impresario::simulation::actions_service::{Fault, JobSpec, JobState, Outcome, Refusal};
use impresario::simulation::api_server::faults::{
    Interceptor, Outcome as ApiOutcome, RequestFate, RequestInfo,
};
use impresario::simulation::api_server::http::Verb;
use impresario::simulation::api_server::status::ApiError;
use kube::api::{DeleteParams, Patch, PatchParams};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use stage::{NAMESPACE, RUNNER_SET, SCALE_SET, Setting, Stage, minutes, until};

const MESSAGE_TYPE: &str = "RunnerScaleSetJobMessages";

fn job_element(message_type: &str, request: i64, runner: &str) -> Value {
    json!({
        "messageType": message_type, "runnerRequestId": request, "jobId": format!("job-{request}"),
        "ownerName": "acme", "repositoryName": "gears", "jobDisplayName": "deploy",
        "jobWorkflowRef": "acme/gears/.github/workflows/d.yml@refs/heads/x", "workflowRunId": 99,
        "eventName": "push", "runnerId": 4000, "runnerName": runner, "result": "failed",
        "scaleSetAssignTime": "2026-03-04T05:00:00Z", "runnerAssignTime": "2026-03-04T05:00:09Z",
        "finishTime": "2026-03-04T05:01:00Z",
    })
}

fn message(id: i64, assigned: i64, elements: &[Value]) -> Fault {
    let body = json!({
        "messageId": id, "messageType": MESSAGE_TYPE,
        "body": Value::from(elements).to_string(),
        "statistics": {"totalAssignedJobs": assigned},
    });
    Outcome::Replace(200, Bytes::from(body.to_string())).into()
}

// === scaling ===

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

// === messages ===

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_twice_changes_nothing_and_is_counted_once() {
    let stage = Stage::new().await;
    stage.make_runner("linux-runner-a").await;
    let elements = [
        job_element("JobStarted", 61, "linux-runner-a"),
        job_element("JobCompleted", 61, "linux-runner-a"),
    ];
    stage
        .service
        .faults()
        .next("get_message", message(900, 4, &elements));
    stage
        .service
        .faults()
        .next("get_message", message(900, 7, &elements));
    let listener = stage.listen("listener-a", 0, 10);
    minutes(5).await;
    assert_eq!(stage.logged("get_message -> 200, replaced"), 2);
    assert_eq!(stage.target().0, 4);
    for name in ["gha_started_jobs_total", "gha_completed_jobs_total"] {
        let seen = listener.metric(name, "");
        assert!((seen - 1.0).abs() < f64::EPSILON, "{name} {seen}");
    }
    assert_eq!(stage.requests("patch", "ephemeralrunners/status"), 2);
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_met_again_after_a_crash_is_not_counted_twice() {
    let stage = Stage::new().await;
    stage.make_runner("linux-runner-a").await;
    let element = || job_element("JobStarted", 61, "linux-runner-a");
    // it crashes before the acknowledgement
    stage
        .service
        .faults()
        .always("delete_message", Outcome::Hang);
    let first = stage.listen("listener-a", 0, 10);
    stage.service.tell(stage.scale_set, element());
    until("the start is recorded", || {
        stage.status("linux-runner-a")["phase"] == "Running"
    })
    .await;
    until("it counts", || {
        first.metric("gha_started_jobs_total", "") > 0.0
    })
    .await;
    first.kill().await;
    stage.service.faults().clear("delete_message");

    let before = stage.requests("patch", "ephemeralrunners/status");
    let second = stage.listen("listener-a", 0, 10);
    until("it comes again", || {
        second.metric("impresario_listener_job_messages_total", "started") > 0.0
    })
    .await;
    minutes(3).await;
    assert!(second.metric("gha_started_jobs_total", "").abs() < f64::EPSILON);
    assert_eq!(stage.requests("patch", "ephemeralrunners/status"), before);
    second.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_understood_is_counted_and_acknowledged() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    stage.service.tell(
        stage.scale_set,
        json!({"messageType": "JobPaused", "x": [1]}),
    );
    stage.service.tell(stage.scale_set, json!("rubbish"));
    minutes(10).await;
    let unknown = listener.metric("impresario_listener_job_messages_total", "unknown");
    assert!((unknown - 2.0).abs() < f64::EPSILON, "{unknown}");
    assert_eq!(stage.logged("delete_message -> 204"), 1);
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broken_answer_publishes_the_demand_again() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    until("a runner is asked for", || stage.target().0 == 1).await;
    minutes(1).await;
    let nothing = Patch::Merge(json!({"spec": {"replicas": 0, "patchID": 0}}));
    stage
        .sets
        .patch(RUNNER_SET, &PatchParams::default(), &nothing)
        .await
        .unwrap();
    let html = Outcome::Replace(200, Bytes::from_static(b"<html>bad gateway</html>"));
    stage.service.faults().always("get_message", html);
    until("it is asked for again", || stage.target().0 == 1).await;

    minutes(10).await;
    let polls = listener.metric("impresario_listener_polls_total", "unreadable");
    assert!((10.0..40.0).contains(&polls), "{polls}");
    assert_eq!(listener.health.live(), Ok(()));
    stage.service.faults().clear("get_message");
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    until("it goes on", || stage.target().0 == 2).await;
    listener.terminate().await.unwrap();
}

// === the session ===

#[tokio::test(start_paused = true)]
async fn a_session_held_by_another_is_waited_for() {
    let stage = Stage::new().await;
    let held = Refusal::new(
        409,
        "RunnerScaleSetSessionConflictException",
        "held by pod-x",
    );
    stage.service.faults().always("open_session", held);
    let listener = stage.listen("listener-b", 1, 10);
    minutes(60).await;
    assert!(!listener.task.is_finished());
    assert_eq!(listener.health.live(), Ok(()));
    assert!(listener.health.ready().is_err());
    let tries = stage.logged("open_session -> 409");
    assert!((100..200).contains(&tries), "{tries}");
    assert_eq!(stage.requests("patch", "ephemeralrunnersets"), 0);

    stage.service.faults().clear("open_session");
    let began = Instant::now();
    until("it has the session", || stage.target() == (1, 0)).await;
    assert!(began.elapsed() <= Duration::from_secs(31));
    assert_eq!(listener.health.ready(), Ok(()));
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_expired_token_is_refreshed_wherever_it_is_met() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    minutes(3).await;
    let session = stage.service.sessions();
    stage.service.expire_queue_tokens();
    minutes(2).await;
    assert_eq!(stage.logged("refresh_session -> 200"), 1);

    for call in ["acquire_jobs", "delete_message"] {
        stage
            .service
            .faults()
            .next(call, Refusal::new(401, "", "expired"));
    }
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    until("a runner is asked for", || stage.target().0 == 1).await;
    minutes(1).await;
    assert_eq!(stage.logged("refresh_session -> 200"), 3);
    assert_eq!(stage.service.sessions(), session, "it is the same session");
    assert!(
        listener
            .metric("impresario_listener_errors_total", "")
            .abs()
            < f64::EPSILON
    );
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_that_the_service_forgot_is_replaced_in_place() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    until("a runner is asked for", || stage.target().0 == 1).await;
    minutes(2).await;
    let forgotten = stage.service.sessions();
    stage.service.drop_sessions();
    minutes(2).await;
    assert_eq!(stage.logged("refresh_session -> 404"), 1);
    let sessions = stage.service.sessions();
    assert_eq!(sessions.len(), 1);
    assert_ne!(sessions, forgotten);
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    until("it goes on", || stage.target().0 == 2).await;
    listener.terminate().await.unwrap();
    assert_eq!(stage.service.sessions(), []);
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_it_deletes_its_session() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    minutes(3).await;
    assert_eq!(stage.service.sessions().len(), 1);
    let began = Instant::now();
    listener.terminate().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(stage.service.sessions(), []);
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_with_a_message_in_hand_it_finishes_it_first() {
    let stage = Stage::with(Setting {
        api: Arc::new(SlowTarget),
        ..Setting::default()
    })
    .await;
    stage
        .service
        .faults()
        .next("get_message", message(900, 4, &[]));
    let listener = stage.listen("listener-a", 0, 10);
    until("it has the message", || {
        stage.logged("get_message -> 200") == 1
    })
    .await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.target().0, 0);
    listener.terminate().await.unwrap();
    assert_eq!(stage.target().0, 4);
    // the message was never in the service's queue
    assert_eq!(stage.logged("delete_message -> 404"), 1);
    assert_eq!(stage.service.sessions(), []);
}

/// Writes to the runner set take ten seconds.
struct SlowTarget;

impl Interceptor for SlowTarget {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        let slow = request.verb == Some(Verb::Patch)
            && request.resource.starts_with("ephemeralrunnersets");
        RequestFate {
            delay_before: Duration::from_secs(if slow { 10 } else { 0 }),
            ..RequestFate::default()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_while_nothing_works_it_still_ends_in_time() {
    let down = Arc::new(Down::default());
    let stage = Stage::with(Setting {
        api: Arc::clone(&down) as Arc<dyn Interceptor>,
        ..Setting::default()
    })
    .await;
    let listener = stage.listen("listener-a", 0, 10);
    minutes(3).await;
    down.0.store(true, Ordering::Relaxed);
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    minutes(1).await;
    stage
        .service
        .faults()
        .always("delete_session", Outcome::Hang);
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_with_a_message_whose_every_part_is_slow_it_still_ends_in_time() {
    let stage = Stage::with(Setting {
        api: Arc::new(SlowTarget),
        ..Setting::default()
    })
    .await;
    let listener = stage.listen("listener-a", 0, 10);
    minutes(3).await;
    let faults = stage.service.faults();
    faults.always("acquire_jobs", Fault::delay(Duration::from_secs(28)));
    for call in ["delete_message", "delete_session"] {
        faults.always(call, Fault::delay(Duration::from_secs(40)));
    }
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    listener.terminate().await.unwrap();
    assert!(began.elapsed() > Duration::from_secs(40));
}

// === records ===

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

// === when the world is out of order ===

/// While it is set, every request is answered with 503.
#[derive(Default)]
struct Down(AtomicBool);

impl Interceptor for Down {
    fn request(&self, _: &RequestInfo) -> RequestFate {
        let outcome = if self.0.load(Ordering::Relaxed) {
            ApiOutcome::Refused(ApiError::new(503, "ServiceUnavailable", "etcd is gone"))
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
async fn while_the_api_server_is_down_no_message_is_lost() {
    let down = Arc::new(Down::default());
    let stage = Stage::with(Setting {
        api: Arc::clone(&down) as Arc<dyn Interceptor>,
        ..Setting::default()
    })
    .await;
    stage.make_runner("linux-runner-a").await;
    let listener = stage.listen("listener-a", 0, 10);
    minutes(2).await;
    down.0.store(true, Ordering::Relaxed);
    let started = job_element("JobStarted", 61, "linux-runner-a");
    stage.service.tell(stage.scale_set, started);
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    minutes(10).await;
    assert!(!listener.task.is_finished());
    assert_eq!(stage.logged("delete_message"), 0);
    down.0.store(false, Ordering::Relaxed);
    until("the start is recorded", || {
        stage.status("linux-runner-a")["phase"] == "Running"
    })
    .await;
    until("a runner is asked for", || stage.target().0 == 1).await;
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn credentials_that_are_refused_are_tried_until_they_are_accepted() {
    let stage = Stage::new().await;
    stage.service.accept_only(["ghp_another"]);
    let listener = stage.listen("listener-a", 1, 10);
    minutes(30).await;
    assert!(!listener.task.is_finished());
    assert!(listener.metric("impresario_listener_errors_total", "refused") > 10.0);
    stage.service.accept_only([stage::TOKEN]);
    until("it listens", || stage.target() == (1, 0)).await;
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_scale_set_that_is_gone_does_not_end_the_program() {
    let stage = Stage::new().await;
    let config = ListenerConfig {
        runner_scale_set_id: 987_654,
        ..stage.config()
    };
    let listener = stage.listen_with("listener-a", config);
    minutes(30).await;
    assert!(!listener.task.is_finished());
    assert!(listener.metric("impresario_listener_errors_total", "not_found") > 10.0);
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn only_an_unusable_configuration_ends_the_program() {
    let stage = Stage::new().await;
    for (change, words) in [
        (
            (|config| config.github_token.clear()) as fn(&mut ListenerConfig),
            "github_token",
        ),
        (|config| config.max_runners = -1, "max_runners is -1"),
        (
            |config| {
                config.github_token.clear();
                config.github_app_id = "17".into();
                config.github_app_installation_id = 18;
                config.github_app_private_key = "no key at all".into();
            },
            "key",
        ),
    ] {
        let mut config = stage.config();
        change(&mut config);
        let listener = stage.listen_with("listener-a", config);
        let error = listener.task.await.unwrap().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(!error.contains("no key at all"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_root_certificate_that_is_none_ends_the_program_with_a_reason() {
    let stage = Stage::new().await;
    let config = ListenerConfig {
        server_root_ca: "not a certificate".to_owned(),
        ..stage.config()
    };
    let (metrics, _) = ListenerMetrics::new(&config).unwrap();
    let env = ListenerEnv {
        kube: stage.api.client(),
        transports: Arc::new(ReqwestTransports),
        proxies: Default::default(),
        clock: Clock::system(),
        hostname: "listener-a".to_owned(),
        version: "0.0.0-test".to_owned(),
        force_ghes: false,
        metrics: Arc::new(metrics),
        health: Arc::new(Health::new()),
    };
    let ended = run(config, env, std::future::pending()).await;
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn liveness_ends_with_the_polls() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    minutes(30).await;
    assert_eq!(listener.health.live(), Ok(()));
    let health = Arc::clone(&listener.health);
    listener.kill().await;
    minutes(4).await;
    assert!(health.live().unwrap_err().contains("no poll"));
}

#[tokio::test(start_paused = true)]
async fn two_runs_are_the_same() {
    let mut logs = Vec::new();
    for _ in 0..2 {
        let stage = Stage::new().await;
        let listener = stage.listen("listener-a", 1, 5);
        for number in 0..8 {
            stage
                .service
                .queue_job(JobSpec::on(SCALE_SET).named(format!("job {number}")));
        }
        for name in ["linux-runner-a", "linux-runner-b"] {
            let jit = stage.register(name).await;
            let runner = stage
                .service
                .runner_online(jit.encoded.expose_secret())
                .unwrap();
            let job = runner.next_job().await.unwrap();
            runner.complete(&job, "succeeded");
        }
        minutes(5).await;
        listener.terminate().await.unwrap();
        let service = stage.log.lock().unwrap().clone();
        logs.push((stage.api.take_log(), service));
    }
    assert!(logs[0].0.len() > 20 && logs[0].1.len() > 20);
    assert_eq!(logs[0], logs[1]);
    assert!(logs[0].0.iter().any(|line| line.contains(NAMESPACE)));
}
