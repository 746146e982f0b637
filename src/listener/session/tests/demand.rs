//! Whose word counts for the demand, and what is done without one.

use super::*;

#[test]
fn a_session_without_statistics_is_asked_once_more_before_anything_is_published() {
    let mut session = Session::new(1, 10, 0);
    session.start(T0);
    assert_eq!(
        session.step(T0, Outcome::Opened(Ok(None))).task,
        Task::Refresh
    );
    let told = Outcome::Refreshed(Ok(Some(assigned(3))));
    assert_eq!(session.step(T0, told).task, publish(4, 1));

    let mut session = Session::new(1, 10, 0);
    session.start(T0);
    session.step(T0, Outcome::Opened(Ok(None)));
    let untold = Outcome::Refreshed(Ok(None));
    assert_eq!(session.step(T0, untold).task, publish(1, 0));
}

#[test]
fn a_session_opened_in_place_without_statistics_keeps_the_demand() {
    let mut session = polling();
    session.step(T0, message(41, Vec::new()));
    session.step(T0, Outcome::Published(Ok(())));
    session.step(T0, Outcome::Acknowledged(Ok(())));
    session.step(T0, poll_failed(FailureKind::TokenExpired));
    let lost = failure(FailureKind::SessionNotFound);
    session.step(T0, Outcome::Refreshed(Err(lost)));
    session.step(T0, Outcome::Opened(Ok(None)));
    let untold = Outcome::Refreshed(Ok(None));
    assert_eq!(session.step(T0, untold).task, publish(4, 3));
}

#[test]
fn a_message_without_statistics_keeps_the_demand_and_has_it_asked_for() {
    let mut session = polling();
    let Outcome::Polled(Ok(Polled::Message(mut bare)), took) = message(41, Vec::new()) else {
        panic!("it is a message")
    };
    bare.statistics = None;
    let step = session.step(T0, Outcome::Polled(Ok(Polled::Message(bare)), took));
    assert_eq!(step.task, publish(1, 2));
    let acknowledged = session.step(T0, Outcome::Published(Ok(()))).task;
    assert_eq!(acknowledged, Task::Acknowledge(41));
    let asked = session.step(T0, Outcome::Acknowledged(Ok(()))).task;
    assert_eq!(asked, Task::Refresh);
    let told = Outcome::Refreshed(Ok(Some(assigned(6))));
    assert_eq!(session.step(T0, told).task, publish(7, 3));
    assert_eq!(session.step(T0, Outcome::Published(Ok(()))).task, poll(41));
}

#[test]
fn a_demand_that_nobody_tells_does_not_hold_up_the_loop() {
    for refused in [FailureKind::Unavailable, FailureKind::Refused] {
        let mut session = Session::new(1, 10, 0);
        session.start(T0);
        session.step(T0, Outcome::Opened(Ok(None)));
        let failed = Outcome::Refreshed(Err(failure(refused)));
        assert!(is_wait(&session.step(T0, failed).task));
        assert_eq!(session.step(T0, Outcome::Waited).task, publish(1, 0));
        assert_eq!(session.step(T0, Outcome::Published(Ok(()))).task, poll(0));
    }
}

#[test]
fn statistics_count_and_not_the_jobs_that_a_message_tells_of() {
    let mut session = polling();
    let started = (5..9).map(|number| JobMessage::Started(job(number)));
    session.step(T0, message(41, started.collect()));
    let recorded = vec![Ok(Recording::New); 4];
    // three assigned, as the statistics say, although four have started
    assert_eq!(
        session.step(T0, Outcome::Recorded(recorded)).task,
        publish(4, 2)
    );
}

#[test]
fn what_a_refreshed_session_says_is_published_at_once() {
    let mut session = polling();
    session.step(T0, poll_failed(FailureKind::TokenExpired));
    let told = Outcome::Refreshed(Ok(Some(assigned(5))));
    assert_eq!(session.step(T0, told).task, publish(6, 2));
}
