//! When a session, or its scale set, counts as lost.

use super::*;

#[test]
fn a_scale_set_that_is_gone_ends_the_program_when_that_was_said_five_times_in_a_row() {
    let mut session = Session::new(1, 10, 0);
    session.start(T0);
    let gone = || failure(FailureKind::ScaleSetNotFound);
    for _ in 0..4 {
        assert!(is_wait(
            &session.step(T0, Outcome::Opened(Err(gone()))).task
        ));
        assert_eq!(session.step(T0, Outcome::Waited).task, Task::Open);
        // a service that is out of order says neither
        let down = failure(FailureKind::Unavailable);
        session.step(T0, Outcome::Opened(Err(down)));
        session.step(T0, Outcome::Waited);
    }
    let step = session.step(T0, Outcome::Opened(Err(gone())));
    assert_eq!(step.task, Task::End(Some(gone())));
}

#[test]
fn a_service_that_knows_the_scale_set_again_is_believed() {
    let mut session = Session::new(1, 10, 0);
    session.start(T0);
    let held = Outcome::Opened(Err(failure(FailureKind::SessionConflict)));
    for _ in 0..5 {
        for _ in 0..4 {
            let gone = Outcome::Opened(Err(failure(FailureKind::ScaleSetNotFound)));
            session.step(T0, gone);
            session.step(T0, Outcome::Waited);
        }
        assert!(is_wait(&session.step(T0, held.clone()).task));
        assert_eq!(session.step(T0, Outcome::Waited).task, Task::Open);
    }
}

#[test]
fn a_session_is_opened_anew_when_its_refresh_shows_that_it_is_lost() {
    for kind in [
        FailureKind::SessionNotFound,
        FailureKind::SessionConflict,
        FailureKind::ScaleSetNotFound,
    ] {
        let mut session = polling();
        session.step(T0, poll_failed(FailureKind::TokenExpired));
        let step = session.step(T0, Outcome::Refreshed(Err(failure(kind))));
        assert_eq!(step.task, Task::Open, "{kind:?}");
        assert!(step.notes.contains(&Note::SessionLost(failure(kind))));
    }
}

#[test]
fn a_refresh_that_is_refused_for_no_known_reason_is_given_up_after_three_tries() {
    let mut session = polling();
    session.step(T0, poll_failed(FailureKind::TokenExpired));
    let odd = || Outcome::Refreshed(Err(failure(FailureKind::Other)));
    for _ in 0..3 {
        assert!(is_wait(&session.step(T0, odd()).task));
        assert_eq!(session.step(T0, Outcome::Waited).task, Task::Refresh);
    }
    assert!(is_wait(&session.step(T0, odd()).task));
    assert_eq!(session.step(T0, Outcome::Waited).task, Task::Open);
}

#[test]
fn a_service_that_is_out_of_order_is_asked_to_refresh_without_end() {
    let mut session = polling();
    session.step(T0, poll_failed(FailureKind::TokenExpired));
    for kind in [FailureKind::Unavailable, FailureKind::Refused].repeat(10) {
        session.step(T0, Outcome::Refreshed(Err(failure(kind))));
        assert_eq!(session.step(T0, Outcome::Waited).task, Task::Refresh);
    }
}
