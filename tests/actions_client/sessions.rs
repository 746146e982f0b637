//! Message sessions: one at a time, their tokens and their end.

use crate::world::*;

#[tokio::test(start_paused = true)]
async fn a_second_session_is_refused_and_the_holder_named() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world
        .client
        .open_session(set, "listener-old")
        .await
        .unwrap();
    let refused = world
        .client
        .open_session(set, "listener-new")
        .await
        .unwrap_err();
    assert_eq!(refused.kind, ErrorKind::SessionConflict);
    assert!(refused.to_string().contains("listener-old"), "{refused}");
    world.client.delete_session(set, &session.id).await.unwrap();
    world
        .client
        .open_session(set, "listener-new")
        .await
        .unwrap();
    assert_eq!(world.service.sessions()[0].owner, "listener-new");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_polls_for_gives_way() {
    let world = world();
    let set = world.scale_set("ci").await;
    world
        .client
        .open_session(set, "listener-killed")
        .await
        .unwrap();
    sleep(Duration::from_secs(121)).await;
    world
        .client
        .open_session(set, "listener-new")
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_expired_queue_token_is_told_apart_and_refreshed() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    let expire = async {
        sleep(Duration::from_secs(3)).await;
        world.service.expire_queue_tokens();
    };
    let poll = world.client.get_message(&session, 0, 9);
    let (polled, ()) = tokio::join!(poll, expire);
    assert_eq!(polled.unwrap_err().kind, ErrorKind::QueueTokenExpired);
    let acknowledged = world.client.delete_message(&session, 1).await;
    assert_eq!(acknowledged.unwrap_err().kind, ErrorKind::QueueTokenExpired);
    let acquired = world.client.acquire_jobs(set, &session, &[1]).await;
    assert_eq!(acquired.unwrap_err().kind, ErrorKind::QueueTokenExpired);
    let refreshed = world
        .client
        .refresh_session(set, &session.id)
        .await
        .unwrap();
    assert_eq!(refreshed.id, session.id);
    let polled = world.client.get_message(&refreshed, 0, 9).await;
    assert_eq!(polled, Ok(Polled::None));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_the_service_forgot_is_told_apart() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    world.service.drop_sessions();
    let polled = world.client.get_message(&session, 0, 9).await;
    assert_eq!(polled.unwrap_err().kind, ErrorKind::QueueTokenExpired);
    let refreshed = world.client.refresh_session(set, &session.id).await;
    assert_eq!(refreshed.unwrap_err().kind, ErrorKind::SessionNotFound);
    let deleted = world.client.delete_session(set, &session.id).await;
    assert_eq!(deleted.unwrap_err().kind, ErrorKind::SessionNotFound);
}

#[tokio::test(start_paused = true)]
async fn jobs_on_offer_to_a_closed_session_are_offered_to_the_next() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    let job = world.service.queue_job(JobSpec::on("ci"));
    let offer = world.next_message(&session, 0, 9).await;
    world
        .client
        .delete_message(&session, offer.id)
        .await
        .unwrap();
    world.client.delete_session(set, &session.id).await.unwrap();
    let session = world.session(set).await;
    let offer = world.next_message(&session, offer.id, 9).await;
    assert_eq!(kinds(&offer), [("available", job)]);
}

#[tokio::test(start_paused = true)]
async fn a_success_that_cannot_be_read_is_no_error_of_a_poll() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    for body in ["", "<html>oops</html>"] {
        let replaced = Outcome::Replace(200, body.into());
        world.service.faults().next("get_message", replaced);
        let polled = world.client.get_message(&session, 0, 9).await.unwrap();
        let unreadable = matches!(polled, Polled::Unreadable { status: 200, .. });
        assert!(unreadable, "{polled:?}");
    }
}
