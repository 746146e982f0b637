//! SCN-22, SCN-33 and SCN-35.

use std::time::Duration;

use bytes::Bytes;
use embedded_actions::{JobState, Outcome};
use impresario::api::{EphemeralRunner, EphemeralRunnerPhase, EphemeralRunnerStatus};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::stage::manifests::{RUN, SET, credentials, fixture, namespace, scale_set};
use crate::stage::{Stage, play};
use crate::world::Holding;

// === SCN-22: maxRunners lowered under load ===

fn capacity(stage: &Stage) -> i64 {
    stage.actions.scale_sets()[0].capacity
}

fn busy(stage: &Stage) -> usize {
    let runners = stage.actions.runners();
    runners.iter().filter(|runner| runner.job.is_some()).count()
}

#[test]
fn scn_22_a_lower_maximum_kills_no_runner_and_with_none_no_job_is_acquired() {
    play(async || {
        let stage = Stage::whole(22).await;
        stage.settled_fixture(0, 6).await;
        stage.queue_jobs(4, SET, Duration::from_secs(300));
        stage.queue_jobs(2, SET, Duration::from_secs(1800));
        stage
            .until("six runners are busy", async || busy(&stage) == 6)
            .await;
        stage.settle().await;
        let pod = stage.listener_uid().await;
        let (created, deleted) = (
            stage.warden.count("create", "ephemeralrunners"),
            stage.warden.count("delete", "ephemeralrunners"),
        );

        stage.edit(json!({"maxRunners": 2})).await;
        stage
            .until("another listener runs", async || {
                let now = stage.listener_uid().await;
                now.is_some() && now != pod
            })
            .await;
        stage
            .until("polls announce 2", async || capacity(&stage) == 2)
            .await;
        let second = stage.listener_uid().await;
        stage.pass(Duration::from_secs(120)).await;
        assert_eq!(stage.listener_uid().await, second, "one new pod");
        assert_eq!(busy(&stage), 6);
        assert_eq!(stage.warden.count("create", "ephemeralrunners"), created);
        assert_eq!(stage.warden.count("delete", "ephemeralrunners"), deleted);

        stage
            .within(Duration::from_secs(400), "four are done", async || {
                stage.jobs_done() == 4
            })
            .await;
        stage
            .until("two are left", async || stage.live().await.len() == 2)
            .await;
        stage.pass(Duration::from_secs(120)).await;
        assert_eq!(stage.live().await.len(), 2);
        assert_eq!(stage.warden.count("create", "ephemeralrunners"), created);

        stage.edit(json!({"maxRunners": 0})).await;
        stage
            .until("polls announce 0", async || capacity(&stage) == 0)
            .await;
        let acquired = stage.warden.calls("acquire_jobs");
        stage.queue_jobs(3, SET, Duration::from_secs(5));
        stage.pass(Duration::from_secs(300)).await;
        assert_eq!(stage.warden.calls("acquire_jobs"), acquired);
        assert_eq!(stage.warden.count("create", "ephemeralrunners"), created);
        assert_eq!(busy(&stage), 2);
        let jobs = stage.actions.jobs();
        let waiting = jobs.iter().filter(|job| job.state == JobState::Queued);
        assert_eq!(waiting.count(), 3);
        stage.assert_sound();
    });
}

// === SCN-33: work waiting at start ===

#[test]
fn scn_33_work_that_waits_at_the_start_is_scaled_for_and_after_a_kill_not_again() {
    play(async || {
        let stage = Stage::embedded(33, true, true).await;
        let faults = stage.actions.faults();
        let session = json!({
            "sessionId": "00000000-0000-4000-8000-000000000033", "ownerName": "whoever",
            "messageQueueUrl": "https://gh.test/tenants/1/queue/none",
            "messageQueueAccessToken": "opens-nothing", "runnerScaleSet": {"id": 11},
            "statistics": {"totalAvailableJobs": 0, "totalAssignedJobs": 3},
        });
        let opened = Outcome::Replace(200, Bytes::from(session.to_string()));
        faults.always("open_session", opened);
        faults.always("get_message", Outcome::Replace(202, Bytes::new()));
        stage.start_controller();
        stage.apply(&fixture(0, 10)).await;
        stage
            .until("a session", async || {
                stage.warden.calls("open_session") == 1
            })
            .await;
        let began = Instant::now();
        stage
            .until("three runners are asked for", async || {
                stage.runner_set().await.spec.replicas == Some(3)
            })
            .await;
        assert!(began.elapsed() < Duration::from_secs(5));
        stage
            .until("three runners", async || stage.runners().await.len() == 3)
            .await;
        stage.pass(Duration::from_secs(60)).await;
        assert_eq!(stage.runners().await.len(), 3);

        let created = stage.warden.count("create", "ephemeralrunners");
        stage.kill_listener().await;
        stage
            .until("a new session", async || {
                stage.warden.calls("open_session") == 2
            })
            .await;
        stage.pass(Duration::from_secs(120)).await;
        assert_eq!(stage.runner_set().await.spec.replicas, Some(3));
        assert_eq!(
            stage.warden.count("create", "ephemeralrunners"),
            created,
            "{}",
            stage.picture().await
        );
        assert_eq!(stage.live().await.len(), 3);
        stage.assert_sound();
    });
}

// === SCN-35: job start meets a failing pod ===

/// The fixture, with runner pods that no node takes.
fn unscheduled() -> Vec<Value> {
    let mut set = scale_set(0, 10);
    set["spec"]["template"]["metadata"] =
        json!({"annotations": {"impresario.dev/fault": "unschedulable"}});
    vec![namespace(RUN), credentials(), set]
}

/// News of a job on a runner, as the service sends them.
fn news(stage: &Stage, message_type: &str, request: i64, runner: &str) {
    let id = stage.actions.runners();
    let id = id.iter().find(|one| one.name == runner);
    let scale_set = stage.actions.scale_sets()[0].id;
    let element = json!({
        "messageType": message_type, "runnerRequestId": request, "jobId": format!("job-{request}"),
        "ownerName": "org", "repositoryName": "repo", "jobDisplayName": format!("build {request}"),
        "jobWorkflowRef": "org/repo/.github/workflows/ci.yaml@refs/heads/main",
        "workflowRunId": 7000 + request, "eventName": "push",
        "runnerId": id.map_or(0, |one| one.id), "runnerName": runner,
    });
    stage.actions.tell(scale_set, element);
}

async fn write_status(stage: &Stage, runner: &str, status: Value) {
    let api = Api::<EphemeralRunner>::namespaced(stage.client.clone(), RUN);
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(runner, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn status(stage: &Stage, runner: &str) -> EphemeralRunnerStatus {
    let found: EphemeralRunner = stage.get(RUN, runner).await.expect("the runner is there");
    found.status.unwrap_or_default()
}

/// Keeps a runner that is deleted from going.
async fn hold(stage: &Stage, runner: &str) {
    let found: EphemeralRunner = stage.get(RUN, runner).await.expect("the runner is there");
    let mut all = found.metadata.finalizers.unwrap_or_default();
    all.push("tester.example/hold".to_owned());
    let patch = json!({"metadata": {"finalizers": all}});
    stage.patch::<EphemeralRunner>(RUN, runner, patch).await;
}

/// A cluster with three runners whose pods are Pending, and what stands before its API server.
async fn with_pending_runners() -> (Stage, std::sync::Arc<Holding>, Vec<String>) {
    let mut holding = None;
    let stage = Stage::embedded_with(35, |options| {
        options.keep_log = true;
        let held = Holding::before(options.interceptor.clone());
        options.interceptor = held.clone();
        holding = Some(held);
    })
    .await;
    stage.start_controller();
    stage.apply(&unscheduled()).await;
    stage
        .until("it is settled", async || stage.is_settled().await)
        .await;
    stage.queue_jobs(3, SET, Duration::from_secs(60));
    stage
        .until("three runners have pods", async || {
            stage.runner_pods().await.len() == 3
        })
        .await;
    stage.settle().await;
    let runners = stage.live().await;
    let names = runners.iter().map(ResourceExt::name_any).collect();
    (stage, holding.unwrap(), names)
}

#[test]
fn scn_35_a_runner_that_fails_between_read_and_write_keeps_its_end_and_gets_its_job() {
    play(async || {
        let (stage, holding, runners) = with_pending_runners().await;
        let runner = &runners[0];
        let pod = stage.listener_uid().await;
        // a failed runner with a job is finished and goes when it is counted: it is to be seen
        hold(&stage, runner).await;
        holding.arm();
        news(&stage, "JobStarted", 61, runner);
        stage
            .until("the listener has read and writes", async || {
                holding.seen() == 1
            })
            .await;
        write_status(&stage, runner, json!({"phase": "Failed"})).await;
        stage
            .until("the job is recorded", async || {
                status(&stage, runner).await.job_id.as_deref() == Some("job-61")
            })
            .await;
        let now = status(&stage, runner).await;
        assert_eq!(now.phase, Some(EphemeralRunnerPhase::Failed));
        assert_eq!(now.job_request_id, Some(61));
        assert_eq!(now.job_repository_name.as_deref(), Some("org/repo"));
        assert_eq!(now.job_display_name.as_deref(), Some("build 61"));
        assert_eq!(now.workflow_run_id, Some(7061));
        assert!((2..=5).contains(&holding.seen()), "{}", holding.seen());
        assert_listens(&stage, &pod).await;
        stage.assert_sound();
    });
}

#[test]
fn scn_35_jobs_on_runners_that_are_missing_or_going_end_nothing_and_change_no_phase() {
    play(async || {
        let (stage, holding, runners) = with_pending_runners().await;
        let going = &runners[1];
        let pod = stage.listener_uid().await;
        hold(&stage, going).await;
        stage.delete::<EphemeralRunner>(RUN, going).await;
        stage.settle().await;
        let before = status(&stage, going).await.phase;
        holding.arm();
        news(&stage, "JobStarted", 62, "set-runner-none");
        news(&stage, "JobStarted", 63, going);
        stage
            .until("the job is recorded", async || {
                status(&stage, going).await.job_id.as_deref() == Some("job-63")
            })
            .await;
        assert_eq!(status(&stage, going).await.phase, before);
        let missing: Option<EphemeralRunner> = stage.get(RUN, "set-runner-none").await;
        assert!(missing.is_none());
        assert_listens(&stage, &pod).await;
        stage.assert_sound();
    });
}

#[test]
fn scn_35_a_job_that_starts_while_its_pod_is_pending_stays_through_pod_events() {
    play(async || {
        let (stage, _, runners) = with_pending_runners().await;
        let runner = &runners[2];
        let pod = stage.listener_uid().await;
        news(&stage, "JobStarted", 64, runner);
        let is_running = async || {
            let now = status(&stage, runner).await;
            now.phase == Some(EphemeralRunnerPhase::Running)
                && now.job_id.as_deref() == Some("job-64")
        };
        stage.until("the job is recorded", is_running).await;
        for number in 1..=5 {
            let message = format!("0/{number} nodes are available");
            let condition = json!({"conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": message, "lastTransitionTime": "2026-03-04T05:06:07Z",
            }]});
            stage.pod_status(RUN, runner, condition).await;
            stage.pass(Duration::from_secs(2)).await;
            assert!(is_running().await, "{:?}", status(&stage, runner).await);
        }
        assert_listens(&stage, &pod).await;
        stage.assert_sound();
    });
}

/// The listener is the same, and its polls go on.
async fn assert_listens(stage: &Stage, pod: &Option<String>) {
    let polls = stage.warden.calls("get_message");
    stage.pass(Duration::from_secs(120)).await;
    assert_eq!(stage.listener_uid().await, *pod);
    assert!(stage.warden.calls("get_message") > polls);
}
