//! The ends of jobs, as the runner set is told of them.

use std::sync::Arc;
use std::time::Duration;

use kube::api::DeleteParams;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::time::sleep;

use embedded_actions::JobSpec;
use embedded_kube::ApiError;
use embedded_kube::Verb;
use embedded_kube::faults::{Interceptor, Outcome, RequestFate, RequestInfo};
use impresario::api::constants::annotations;
use impresario::api::crds;
use impresario::clock::Timestamp;

use super::stage::{NAMESPACE, RUNNER_SET, SCALE_SET, Setting, Stage, minutes, until};

/// Up to when finished jobs are left out of `replicas`.
fn told(stage: &Stage) -> Option<String> {
    let (group, plural) = ("actions.github.com", "ephemeralrunnersets");
    let set = stage.api.get(group, plural, NAMESPACE, RUNNER_SET).unwrap();
    let annotation = &set["metadata"]["annotations"][annotations::JOBS_COUNTED_UNTIL];
    annotation.as_str().map(str::to_owned)
}

/// Runs one job on a runner of that name; gives when its end was recorded.
async fn job_on(stage: &Stage, name: &str) -> String {
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    until("a runner is asked for", || stage.target().0 == 1).await;
    let jit = stage.register(name).await;
    let runner = stage
        .service
        .runner_online(jit.encoded.expose_secret())
        .unwrap();
    let job = runner.next_job().await.unwrap();
    sleep(Duration::from_secs(20)).await;
    runner.complete(&job, "succeeded");
    until("none is asked for", || stage.target().0 == 0).await;
    let status = stage.status(name);
    status["jobFinishedAt"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_target_that_leaves_a_finished_job_out_says_so_by_the_time_of_its_record() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    until("it is told", || told(&stage).is_some()).await;
    let beginning = told(&stage).unwrap();
    let first = job_on(&stage, "runner-a").await;
    assert_eq!(first.len(), "2026-03-04T05:06:07.000000Z".len(), "{first}");
    assert!(first > beginning);
    assert_eq!(told(&stage).as_ref(), Some(&first));
    let second = job_on(&stage, "runner-b").await;
    assert_eq!(told(&stage).as_ref(), Some(&second));
    assert!(second > first);
    listener.terminate().await.unwrap();
}

/// Otherwise an end would be taken for one that an old target leaves out.
#[tokio::test(start_paused = true)]
async fn a_listener_whose_clock_is_behind_goes_on_where_its_predecessor_was() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    let first: Timestamp = job_on(&stage, "runner-a").await.parse().unwrap();
    listener.terminate().await.unwrap();
    stage.clock.jump(-3_600_000);
    let listener = stage.listen("listener-b", 0, 10);
    let second: Timestamp = job_on(&stage, "runner-b").await.parse().unwrap();
    assert_eq!(second.duration_since(first).as_micros(), 1);
    assert_eq!(told(&stage).unwrap().parse::<Timestamp>().unwrap(), second);
    listener.terminate().await.unwrap();
}

/// Without it a runner that ends before the first word is counted under a target that may
/// include its job.
#[tokio::test(start_paused = true)]
async fn the_first_target_says_up_to_when_finished_jobs_are_left_out() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 2, 10);
    until("two are asked for", || stage.target().0 == 2).await;
    assert!(told(&stage).is_some());
    assert_eq!(stage.requests("patch", "ephemeralrunnersets"), 1);
    let beginning = told(&stage);
    minutes(5).await;
    assert_eq!(told(&stage), beginning, "it is said once");
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_successor_leaves_standing_what_was_told() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    let first = job_on(&stage, "runner-a").await;
    listener.terminate().await.unwrap();
    let before = stage.requests("patch", "ephemeralrunnersets");
    let listener = stage.listen("listener-b", 2, 10);
    until("two are asked for", || stage.target().0 == 2).await;
    assert_eq!(stage.requests("patch", "ephemeralrunnersets"), before + 1);
    assert_eq!(told(&stage), Some(first));
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_set_made_anew_is_told_no_more_than_the_one_before() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    let first = job_on(&stage, "runner-a").await;
    let anew = DeleteParams::default();
    stage.sets.delete(RUNNER_SET, &anew).await.unwrap();
    stage.make_runner_set().await;
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    until("it is told", || told(&stage).is_some()).await;
    assert_eq!(told(&stage), Some(first));
    listener.terminate().await.unwrap();
}

/// The API server's store may be restored from a backup. What it says then is of an earlier
/// time, and both the target and the word on finished jobs are said again: with the next patch
/// while there is work, and at rest with the next poll.
#[tokio::test(start_paused = true)]
async fn a_set_that_comes_back_from_a_backup_is_told_again() {
    for at_work in [false, true] {
        let stage = Stage::new().await;
        let listener = stage.listen("listener-a", 0, 10);
        job_on(&stage, "runner-a").await;
        minutes(5).await;
        let backup = stage.api.snapshot();
        let last = job_on(&stage, "runner-b").await;
        assert_eq!(told(&stage).as_ref(), Some(&last));
        minutes(5).await;
        stage.api.restore(&backup);
        assert!(told(&stage).unwrap() < last);
        if at_work {
            stage.service.queue_job(JobSpec::on(SCALE_SET));
            until("a runner is asked for", || stage.target().0 == 1).await;
        } else {
            minutes(2).await;
        }
        assert_eq!(told(&stage).as_ref(), Some(&last), "at work: {at_work}");
        let patches = stage.requests("patch", "ephemeralrunnersets");
        minutes(5).await;
        let since = stage.requests("patch", "ephemeralrunnersets") - patches;
        assert!(at_work || since == 0, "{since} patches at rest");
        listener.terminate().await.unwrap();
    }
}

/// The set may not be read: a Role made by ARC.
struct Unreadable;

impl Interceptor for Unreadable {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        let reads =
            request.verb == Some(Verb::Get) && request.resource.starts_with("ephemeralrunnersets");
        RequestFate {
            outcome: if reads {
                Outcome::Refused(ApiError::new(403, "Forbidden", "no rule allows it"))
            } else {
                Outcome::Answered
            },
            ..RequestFate::default()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_permission_to_read_the_set_is_told_all_the_same() {
    let stage = Stage::with(Setting {
        api: Arc::new(Unreadable),
        ..Setting::default()
    })
    .await;
    let listener = stage.listen("listener-a", 0, 10);
    until("it is told", || told(&stage).is_some()).await;
    let beginning = told(&stage).unwrap();
    let first = job_on(&stage, "runner-a").await;
    assert!(first > beginning);
    listener.terminate().await.unwrap();
    let listener = stage.listen("listener-b", 2, 10);
    until("two are asked for", || stage.target().0 == 2).await;
    minutes(1).await;
    assert_eq!(told(&stage), Some(first), "it is not taken back");
    listener.terminate().await.unwrap();
}

/// Our definitions without what ARC 0.14.2 has no field for.
fn crds_without_ends() -> Vec<Value> {
    let mut all: Vec<Value> = crds().iter().map(|crd| json!(crd)).collect();
    for crd in &mut all {
        let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let status = schema["properties"]["status"]["properties"].as_object_mut();
        let status = status.unwrap();
        status.remove("jobResult");
        status.remove("jobFinishedAt");
    }
    all
}

#[tokio::test(start_paused = true)]
async fn an_end_that_has_no_field_is_recorded_in_annotations_and_found_there_again() {
    const FINISHED: &str = "impresario.dev/status.jobFinishedAt";
    let stage = Stage::with(Setting {
        crds: crds_without_ends(),
        ..Setting::default()
    })
    .await;
    let annotations = |name: &str| {
        let (group, plural) = ("actions.github.com", "ephemeralrunners");
        let runner = stage.api.get(group, plural, NAMESPACE, name).unwrap();
        runner["metadata"]["annotations"].clone()
    };
    let job_on = async |name: &str| {
        stage.service.queue_job(JobSpec::on(SCALE_SET));
        until("a runner is asked for", || stage.target().0 == 1).await;
        let jit = stage.register(name).await;
        let jit = jit.encoded.expose_secret();
        let runner = stage.service.runner_online(jit).unwrap();
        let job = runner.next_job().await.unwrap();
        sleep(Duration::from_secs(20)).await;
        runner.complete(&job, "succeeded");
        until("none is asked for", || stage.target().0 == 0).await;
        let recorded = annotations(name);
        assert_eq!(recorded["impresario.dev/status.jobResult"], "\"succeeded\"");
        let text = recorded[FINISHED].as_str().unwrap();
        serde_json::from_str::<String>(text).unwrap()
    };
    let listener = stage.listen("listener-a", 0, 10);
    let first = job_on("runner-a").await;
    assert_eq!(told(&stage), Some(first));
    // what is noticed once is known: the second end takes no request in vain
    let before = stage.requests("patch", "ephemeralrunners/status");
    let second = job_on("runner-b").await;
    let statuses = stage.requests("patch", "ephemeralrunners/status") - before;
    assert_eq!(statuses, 1, "of the start alone");
    assert_eq!(told(&stage), Some(second));
    listener.terminate().await.unwrap();
}
