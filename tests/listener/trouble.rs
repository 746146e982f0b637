//! What the listener does while the world around it is out of order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use embedded_actions::{Fault, JobSpec, Outcome, Refusal};
use embedded_kube::faults::Interceptor;
use secrecy::ExposeSecret;
use tokio::time::sleep;

use crate::stage::{
    Down, NAMESPACE, SCALE_SET, Setting, Stage, TOKEN, job_element, minutes, until,
};

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
    stage.service.accept_only([TOKEN]);
    until("it listens", || stage.target() == (1, 0)).await;
    listener.terminate().await.unwrap();
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

#[tokio::test(start_paused = true)]
async fn a_service_that_is_out_of_order_in_any_way_does_not_make_it_look_dead() {
    let calls = [
        "create_registration_token",
        "register",
        "open_session",
        "refresh_session",
        "get_message",
        "delete_session",
    ];
    for fault in [
        Fault::from(Outcome::Hang),
        Refusal::new(503, "", "down")
            .header("retry-after", "30")
            .into(),
        Refusal::new(429, "", "slow down")
            .header("retry-after", "3600")
            .into(),
        Refusal::new(403, "", "rate limit")
            .header("x-ratelimit-remaining", "0")
            .header("x-ratelimit-reset", "1772604000")
            .into(),
        Refusal::new(403, "", "no").into(),
        Outcome::Unreachable.into(),
        Outcome::LoseAnswer.into(),
    ] {
        let stage = Stage::new().await;
        let listener = stage.listen("listener-a", 0, 10);
        minutes(2).await;
        for call in calls {
            stage.service.faults().always(call, fault.clone());
        }
        stage.service.expire_tenant_tokens();
        stage.service.drop_sessions();
        for seconds in (0..3600).step_by(10) {
            sleep(Duration::from_secs(10)).await;
            let live = listener.health.live();
            assert_eq!(live, Ok(()), "{fault:?} after {seconds} s");
        }
        for call in calls {
            stage.service.faults().clear(call);
        }
        minutes(10).await;
        stage.service.queue_job(JobSpec::on(SCALE_SET));
        until("it listens again", || stage.target().0 == 1).await;
        listener.terminate().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_or_a_token_that_no_request_can_carry_is_one_bad_reply_and_no_end() {
    type Bend = fn(&mut serde_json::Value);
    let bends: [(&str, &'static str, Bend); 6] = [
        ("queue token, opened", "sessions", |value| {
            value["messageQueueAccessToken"] = "two\nlines".into();
        }),
        ("queue URL, opened", "sessions", |value| {
            value["messageQueueUrl"] = "ftp://queue.example/7".into();
        }),
        ("no queue URL, opened", "sessions", |value| {
            value["messageQueueUrl"] = "".into();
        }),
        ("registration token", "registration-token", |value| {
            value["token"] = "two\nlines".into();
        }),
        ("tenant token", "runner-registration", |value| {
            value["token"] = "two\nlines".into();
        }),
        ("tenant URL", "runner-registration", |value| {
            value["url"] = "ftp://tenant.example/".into();
        }),
    ];
    for (what, path, bend) in bends {
        let stage = Stage::new().await;
        stage.wire.bend_next(path, bend);
        let listener = stage.listen("listener-a", 0, 10);
        minutes(6).await;
        if listener.task.is_finished() {
            let ended = listener.task.await.unwrap();
            panic!("{what}: the listener has ended: {ended:?}");
        }
        stage.service.queue_job(JobSpec::on(SCALE_SET));
        until("it listens", || stage.target().0 == 1).await;
        listener.terminate().await.unwrap();
    }
}
