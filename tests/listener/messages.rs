//! What becomes of messages and of answers that are none.

use std::time::Duration;

use bytes::Bytes;
use embedded_actions::{Fault, JobSpec, Outcome, Refusal};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use crate::stage::{RUNNER_SET, SCALE_SET, Stage, job_element, message, minutes, until};

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

#[tokio::test(start_paused = true)]
async fn an_empty_answer_and_one_with_a_byte_order_mark_are_taken_for_what_they_are() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    minutes(1).await;
    let faults = stage.service.faults();
    faults.next("get_message", Outcome::Replace(200, Bytes::new()));
    let body = json!({
        "messageId": 900, "messageType": "RunnerScaleSetJobMessages", "body": "[]",
        "statistics": {"totalAssignedJobs": 3},
    });
    let marked = Bytes::from(format!("\u{feff}{body}"));
    faults.next("get_message", Outcome::Replace(200, marked));
    until("the target is published", || stage.target().0 == 3).await;
    assert!(listener.metric("impresario_listener_polls_total", "unreadable") > 0.5);
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_of_an_unknown_type_is_counted_and_acknowledged_and_its_statistics_taken() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    stage.wire.bend(|message| {
        if !message.is_null() {
            message["messageType"] = json!("RunnerScaleSetMoodMessages");
        }
    });
    stage
        .service
        .tell(stage.scale_set, json!({"messageType": "JobPaused"}));
    minutes(3).await;
    let unknown = listener.metric("impresario_listener_job_messages_total", "unknown");
    assert!((unknown - 1.0).abs() < f64::EPSILON, "{unknown}");
    assert_eq!(stage.logged("delete_message -> 204"), 1);
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn statistics_that_are_missing_or_unreadable_are_asked_for() {
    for statistics in [
        json!(null),
        json!({}),
        json!([1]),
        json!("seven"),
        json!({"totalAssignedJobs": null, "totalRunningJobs": 4}),
        json!({"totalAssignedJobs": "two"}),
    ] {
        let stage = Stage::new().await;
        let listener = stage.listen("listener-a", 0, 10);
        minutes(2).await;
        let odd = statistics.clone();
        stage.wire.bend(move |message| {
            message["statistics"] = odd.clone();
        });
        stage.service.queue_job(JobSpec::on(SCALE_SET));
        stage.service.queue_job(JobSpec::on(SCALE_SET));
        let began = Instant::now();
        until("two runners are asked for", || stage.target().0 == 2).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{statistics}");
        minutes(5).await;
        assert_eq!(stage.target().0, 2, "{statistics}");
        listener.terminate().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn absurd_statistics_stay_within_the_bounds_and_are_forgotten_with_the_next() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 1, 10);
    minutes(2).await;
    for (assigned, target) in [(i64::MAX, 10), (-7, 1), (0, 1), (i64::MIN, 1), (3, 4)] {
        stage.wire.bend(move |message| {
            message["statistics"]["totalAssignedJobs"] = json!(assigned);
        });
        stage
            .service
            .tell(stage.scale_set, json!({"messageType": "JobPaused"}));
        minutes(1).await;
        assert_eq!(stage.target().0, target, "{assigned}");
    }
    stage.wire.straighten();
    stage
        .service
        .tell(stage.scale_set, json!({"messageType": "JobPaused"}));
    until("the truth is published", || stage.target().0 == 1).await;
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn statistics_count_where_the_body_contradicts_them() {
    let stage = Stage::new().await;
    let names: Vec<String> = (0..4)
        .map(|number| format!("linux-runner-{number}"))
        .collect();
    let mut elements = Vec::new();
    for (number, name) in (60..).zip(&names) {
        stage.make_runner(name).await;
        elements.push(job_element("JobStarted", number, name));
    }
    let listener = stage.listen("listener-a", 0, 10);
    // four jobs have started, and one is assigned
    stage
        .service
        .faults()
        .next("get_message", message(900, 1, &elements));
    minutes(3).await;
    assert_eq!(stage.target().0, 1);
    assert!(
        stage.target().1 > 0,
        "which removes no runner, as the controller takes it"
    );
    for name in &names {
        assert_eq!(stage.status(name)["phase"], "Running", "{name}");
    }
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_that_never_works_does_not_hold_up_the_target() {
    for fault in [
        Fault::from(Outcome::Hang),
        Refusal::new(500, "", "oops").into(),
        Refusal::new(429, "", "slow down")
            .header("retry-after", "30")
            .into(),
        Refusal::new(401, "", "expired").into(),
        Refusal::new(400, "", "no").into(),
        Outcome::Replace(200, Bytes::from_static(b"<html>")).into(),
    ] {
        let stage = Stage::new().await;
        let listener = stage.listen("listener-a", 0, 10);
        minutes(2).await;
        let faults = stage.service.faults();
        faults.always("acquire_jobs", fault.clone());
        let offered = job_element("JobAvailable", 61, "");
        faults.next("get_message", message(900, 4, &[offered]));
        let before = stage.requests("patch", "ephemeralrunnersets");
        until("the message is there", || {
            stage.logged("get_message -> 200, replaced") == 1
        })
        .await;
        let began = Instant::now();
        // another one where a refreshed session tells of no jobs
        until("a target is published", || {
            stage.requests("patch", "ephemeralrunnersets") > before
        })
        .await;
        assert!(began.elapsed() < Duration::from_secs(25), "{fault:?}");
        let polls = stage.logged("get_message");
        minutes(4).await;
        assert!(stage.logged("get_message") > polls, "it polls: {fault:?}");
        assert_eq!(listener.health.live(), Ok(()), "{fault:?}");
        listener.terminate().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_that_went_to_others_are_not_asked_for_again() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    minutes(1).await;
    let part = Bytes::from_static(br#"{"count": 1, "value": [62]}"#);
    let faults = stage.service.faults();
    faults.next("acquire_jobs", Outcome::Replace(200, part));
    let offers = [61, 62, 63].map(|request| job_element("JobAvailable", request, ""));
    faults.next("get_message", message(900, 1, &offers));
    minutes(3).await;
    assert_eq!(stage.logged("acquire_jobs"), 1);
    assert_eq!(stage.target().0, 1);
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_acknowledgement_got_lost_is_counted_once() {
    for fault in [Outcome::LoseAnswer, Outcome::Unreachable, Outcome::Hang] {
        let stage = Stage::new().await;
        stage.make_runner("linux-runner-a").await;
        let listener = stage.listen("listener-a", 0, 10);
        let faults = stage.service.faults();
        faults.always("delete_message", fault.clone());
        let started = job_element("JobStarted", 61, "linux-runner-a");
        stage.service.tell(stage.scale_set, started);
        minutes(10).await;
        faults.clear("delete_message");
        stage.service.deliver_again(stage.scale_set);
        minutes(5).await;
        let counted = listener.metric("gha_started_jobs_total", "");
        assert!((counted - 1.0).abs() < f64::EPSILON, "{fault:?} {counted}");
        assert_eq!(stage.requests("patch", "ephemeralrunners/status"), 1);
        listener.terminate().await.unwrap();
    }
}
