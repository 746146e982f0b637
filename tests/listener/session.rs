//! The message session: held by another, expired, lost, replaced.

use std::time::Duration;

use bytes::Bytes;
use embedded_actions::{Fault, JobSpec, Outcome, Refusal};
use serde_json::Value;
use tokio::time::Instant;

use crate::stage::{SCALE_SET, Stage, minutes, until};

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
async fn the_session_of_a_predecessor_that_died_is_waited_for_whatever_its_name() {
    // a listener pod that is made again has the name of the one before
    for successor in ["listener-a", "listener-b"] {
        let stage = Stage::new().await;
        let first = stage.listen("listener-a", 1, 10);
        until("it listens", || stage.target() == (1, 0)).await;
        minutes(3).await;
        first.kill().await;
        let second = stage.listen(successor, 2, 10);
        let began = Instant::now();
        until("the other one listens", || second.health.ready().is_ok()).await;
        // the service ends a session that nobody polls for after two minutes
        assert!(began.elapsed() <= Duration::from_secs(120 + 31));
        until("it scales", || stage.target().0 == 2).await;
        let sessions = stage.service.sessions();
        assert_eq!(sessions.len(), 1);
        assert_eq!(sessions[0].owner, successor);
        second.terminate().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn however_a_refresh_fails_the_session_comes_back_with_its_cursor() {
    let conflict = "RunnerScaleSetSessionConflictException";
    for (what, fault) in [
        ("401", Refusal::new(401, "", "expired").into()),
        ("403", Refusal::new(403, "", "forbidden").into()),
        ("404", Refusal::new(404, "", "not found").into()),
        ("409", Refusal::new(409, conflict, "pod-x has it").into()),
        ("409 without a name", Refusal::new(409, "", "busy").into()),
        ("400", Refusal::new(400, "", "bad request").into()),
        ("429", Refusal::new(429, "", "slow down").into()),
        ("500", Refusal::new(500, "", "oops").into()),
        ("503", Refusal::new(503, "", "down").into()),
        ("hang", Fault::from(Outcome::Hang)),
        ("reset", Outcome::Unreachable.into()),
        ("lost answer", Outcome::LoseAnswer.into()),
        ("empty", Outcome::Replace(200, Bytes::new()).into()),
    ] {
        let stage = Stage::new().await;
        let listener = stage.listen("listener-a", 0, 10);
        stage.service.queue_job(JobSpec::on(SCALE_SET));
        until("a runner is asked for", || stage.target().0 == 1).await;
        minutes(2).await;
        let cursor = stage.wire.last_poll().last_message_id;
        assert!(cursor.is_some(), "{what}");
        stage
            .service
            .faults()
            .always("refresh_session", fault.clone());
        stage.service.expire_queue_tokens();
        minutes(5).await;
        stage.service.faults().clear("refresh_session");
        minutes(2).await;
        assert_eq!(listener.health.ready(), Ok(()), "{what}");
        assert_eq!(stage.service.sessions().len(), 1, "{what}");
        assert_eq!(stage.wire.last_poll().last_message_id, cursor, "{what}");
        stage.service.queue_job(JobSpec::on(SCALE_SET));
        until("it goes on", || stage.target().0 == 2).await;
        listener.terminate().await.unwrap();
        assert_eq!(stage.service.sessions(), [], "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_refused_for_ever_is_refreshed_ever_more_slowly() {
    for call in ["get_message", "acquire_jobs", "delete_message"] {
        let stage = Stage::new().await;
        let listener = stage.listen("listener-a", 0, 10);
        minutes(2).await;
        let refused = Refusal::new(401, "", "expired");
        stage.service.faults().always(call, refused);
        stage.service.queue_job(JobSpec::on(SCALE_SET));
        minutes(10).await;
        let refreshed = stage.logged("refresh_session -> 200");
        assert!((1..100).contains(&refreshed), "{call} {refreshed}");
        stage.service.faults().clear(call);
        until("it goes on", || stage.target().0 == 1).await;
        listener.terminate().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_tells_no_statistics_is_asked_once_more() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    for _ in 0..3 {
        stage.service.queue_job(JobSpec::on(SCALE_SET));
    }
    until("three runners are asked for", || stage.target().0 == 3).await;
    listener.terminate().await.unwrap();
    let bare = |value: &mut Value| value["statistics"] = Value::Null;
    stage.wire.bend_next("sessions", bare);
    let listener = stage.listen("listener-b", 0, 10);
    minutes(1).await;
    assert_eq!(stage.logged("refresh_session -> 200"), 1);
    assert_eq!(stage.target().0, 3, "it was never less");
    listener.terminate().await.unwrap();
}
