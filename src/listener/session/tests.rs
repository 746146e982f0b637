mod demand;
mod link;

use super::*;
use crate::actions::{JobDetails, Statistics};

const T0: Duration = Duration::ZERO;
const HELD_POLL: Duration = Duration::from_secs(50);

fn failure(kind: FailureKind) -> Failure {
    Failure::new(kind, "it did not work")
}

fn assigned(jobs: i64) -> Statistics {
    Statistics {
        assigned_jobs: jobs,
        ..Statistics::default()
    }
}

fn job(request: i64) -> JobDetails {
    JobDetails {
        runner_request_id: request,
        runner_name: format!("runner-{request}"),
        ..JobDetails::default()
    }
}

fn message(id: i64, jobs: Vec<JobMessage>) -> Outcome {
    Outcome::Polled(
        Ok(Polled::Message(Message {
            id,
            statistics: Some(assigned(3)),
            jobs,
        })),
        HELD_POLL,
    )
}

fn empty() -> Outcome {
    Outcome::Polled(Ok(Polled::None), HELD_POLL)
}

fn poll_failed(kind: FailureKind) -> Outcome {
    Outcome::Polled(Err(failure(kind)), T0)
}

fn publish(replicas: i64, patch_id: i64) -> Task {
    Task::Publish(Publication {
        patch: super::super::scaler::Patch { replicas, patch_id },
        standing: false,
        tells_of_finished: false,
    })
}

/// As [`publish`], and it tells of finished jobs.
fn publish_telling(replicas: i64, patch_id: i64) -> Task {
    match publish(replicas, patch_id) {
        Task::Publish(publication) => Task::Publish(Publication {
            tells_of_finished: true,
            ..publication
        }),
        other => other,
    }
}

const fn poll(after: i64) -> Task {
    Task::Poll {
        after,
        capacity: 10,
    }
}

/// A program that is polling, with min 1, max 10 and no jobs.
fn polling() -> Session {
    let mut session = Session::new(1, 10, 0);
    assert_eq!(session.start(T0).task, Task::Open);
    let step = session.step(T0, Outcome::Opened(Ok(Some(assigned(0)))));
    assert_eq!(step.task, publish(1, 0));
    let step = session.step(T0, Outcome::Published(Ok(())));
    assert_eq!(step.task, poll(0));
    // a poll that was held: the token is known to be good
    session.step(T0, empty());
    let step = session.step(T0, Outcome::Published(Ok(())));
    assert_eq!(step.task, poll(0));
    session
}

/// Takes the outcomes one after the other and gives the tasks they lead to.
fn tasks(session: &mut Session, outcomes: Vec<Outcome>) -> Vec<Task> {
    let steps = outcomes.into_iter();
    steps
        .map(|outcome| session.step(T0, outcome).task)
        .collect()
}

fn is_wait(task: &Task) -> bool {
    matches!(task, Task::Wait(wait) if !wait.is_zero())
}

#[test]
fn jobs_that_waited_while_no_listener_ran_are_scaled_for_at_once() {
    let mut session = Session::new(1, 10, 0);
    session.start(T0);
    let step = session.step(T0, Outcome::Opened(Ok(Some(assigned(3)))));
    assert_eq!(step.task, publish(4, 1));
    assert!(step.notes.contains(&Note::Statistics(assigned(3))));
}

#[test]
fn jobs_that_went_to_others_are_told_and_not_asked_for_again() {
    let mut session = polling();
    let on_offer = |request| JobMessage::Available(job(request));
    session.step(T0, message(41, vec![on_offer(7), on_offer(8), on_offer(9)]));
    let step = session.step(T0, Outcome::Acquired(Ok(vec![8])));
    assert!(step.notes.contains(&Note::NotAcquired(2)));
    assert_eq!(step.task, publish(4, 2));
}

#[test]
fn a_held_session_is_waited_for_without_end() {
    let mut session = Session::new(1, 10, 0);
    session.start(T0);
    let held = failure(FailureKind::SessionConflict);
    let mut waits = Vec::new();
    for _ in 0..50 {
        let step = session.step(T0, Outcome::Opened(Err(held.clone())));
        assert!(step.notes.contains(&Note::Held(held.clone())));
        let Task::Wait(wait) = step.task else {
            panic!("{:?}", step.task)
        };
        waits.push(wait);
        assert_eq!(session.step(T0, Outcome::Waited).task, Task::Open);
    }
    for (wait, plain) in waits.iter().zip([2, 4, 8, 16]) {
        let plain = Duration::from_secs(plain);
        let least = (plain * 3 / 4).max(Duration::from_secs(2));
        assert!((least..=plain).contains(wait), "{waits:?}");
    }
    assert!(waits[49] > Duration::from_secs(22) && waits[49] <= Duration::from_secs(30));
}

#[test]
fn an_empty_poll_publishes_the_last_known_demand_again() {
    let mut session = polling();
    session.step(T0, message(41, Vec::new()));
    let seen = tasks(
        &mut session,
        vec![
            Outcome::Published(Ok(())),
            Outcome::Acknowledged(Ok(())),
            empty(),
            Outcome::Published(Ok(())),
        ],
    );
    assert_eq!(
        seen,
        [Task::Acknowledge(41), poll(41), publish(4, 3), poll(41)]
    );
}

#[test]
fn a_message_is_acquired_recorded_published_and_then_acknowledged() {
    let mut session = polling();
    let step = session.step(
        T0,
        message(
            41,
            vec![
                JobMessage::Started(job(5)),
                JobMessage::Available(job(7)),
                JobMessage::Available(job(8)),
                JobMessage::Available(job(7)),
                JobMessage::Assigned(job(6)),
                JobMessage::Completed(job(5)),
            ],
        ),
    );
    assert_eq!(step.task, Task::Acquire(vec![7, 8]));
    let step = session.step(T0, Outcome::Acquired(Ok(vec![8])));
    assert_eq!(
        step.task,
        Task::Record(vec![Record::Started(job(5)), Record::Completed(job(5))])
    );
    let step = session.step(
        T0,
        Outcome::Recorded(vec![Ok(Recording::New), Ok(Recording::New)]),
    );
    assert_eq!(step.notes, [Note::Started(job(5)), Note::Completed(job(5))]);
    assert_eq!(step.task, publish_telling(4, 2));
    let seen = tasks(
        &mut session,
        vec![Outcome::Published(Ok(())), Outcome::Acknowledged(Ok(()))],
    );
    assert_eq!(seen, [Task::Acknowledge(41), poll(41)]);
}

#[test]
fn without_capacity_no_job_is_acquired() {
    let mut session = Session::new(0, 0, 0);
    session.start(T0);
    session.step(T0, Outcome::Opened(Ok(None)));
    session.step(T0, Outcome::Published(Ok(())));
    let step = session.step(T0, message(41, vec![JobMessage::Available(job(7))]));
    assert_eq!(step.task, publish(0, 1));
}

#[test]
fn a_message_that_comes_again_is_only_acknowledged() {
    let mut session = polling();
    let again = || message(41, vec![JobMessage::Started(job(5))]);
    session.step(T0, again());
    session.step(T0, Outcome::Recorded(vec![Ok(Recording::New)]));
    session.step(T0, Outcome::Published(Ok(())));
    session.step(T0, Outcome::Acknowledged(Ok(())));

    let step = session.step(T0, again());
    assert_eq!(step.task, Task::Acknowledge(41));
    assert_eq!(step.notes, [Note::Polled("message"), Note::Duplicate(41)]);
    // and a service that goes on so is not asked without a pause
    assert!(is_wait(
        &session.step(T0, Outcome::Acknowledged(Ok(()))).task
    ));
    assert_eq!(session.step(T0, Outcome::Waited).task, poll(41));
}

#[test]
fn what_was_recorded_before_a_crash_is_not_counted_twice() {
    let mut session = polling();
    session.step(T0, message(41, vec![JobMessage::Started(job(5))]));
    let step = session.step(T0, Outcome::Recorded(vec![Ok(Recording::Already)]));
    assert_eq!(step.notes, []);
}

#[test]
fn a_record_whose_answer_was_lost_is_counted_once() {
    let mut session = polling();
    session.step(T0, message(41, vec![JobMessage::Started(job(5))]));
    let lost = vec![Err(failure(FailureKind::Unavailable))];
    assert_eq!(
        session.step(T0, Outcome::Recorded(lost)).task,
        publish(4, 2)
    );
    assert!(is_wait(&session.step(T0, Outcome::Published(Ok(()))).task));
    let step = session.step(T0, Outcome::Waited);
    assert_eq!(step.task, Task::Record(vec![Record::Started(job(5))]));
    let step = session.step(T0, Outcome::Recorded(vec![Ok(Recording::Already)]));
    assert_eq!(step.notes, [Note::Started(job(5))]);
    assert_eq!(step.task, Task::Acknowledge(41));
}

#[test]
fn a_missing_runner_is_skipped_and_its_job_counted() {
    let mut session = polling();
    session.step(T0, message(41, vec![JobMessage::Completed(job(5))]));
    let skipped = Recording::Skipped("gone".to_owned());
    let step = session.step(T0, Outcome::Recorded(vec![Ok(skipped)]));
    assert_eq!(
        step.notes,
        [
            Note::NotRecorded(Record::Completed(job(5)), "gone".to_owned()),
            Note::Completed(job(5)),
        ]
    );
    assert_eq!(step.task, publish(4, 2));
}

#[test]
fn parts_that_fail_do_not_keep_the_target_from_being_published() {
    let mut session = polling();
    session.step(
        T0,
        message(
            41,
            vec![
                JobMessage::Available(job(7)),
                JobMessage::Started(job(5)),
                JobMessage::Started(job(6)),
            ],
        ),
    );
    let down = || Err(failure(FailureKind::Unavailable));
    let seen = tasks(
        &mut session,
        vec![
            Outcome::Acquired(Err(failure(FailureKind::Unavailable))),
            Outcome::Recorded(vec![Ok(Recording::New), down()]),
            Outcome::Published(Ok(())),
        ],
    );
    assert_eq!(
        seen[0],
        Task::Record(vec![Record::Started(job(5)), Record::Started(job(6))])
    );
    assert_eq!(seen[1], publish(4, 2));
    assert!(is_wait(&seen[2]));
    // the next round does what is left, and publishes nothing again
    let seen = tasks(
        &mut session,
        vec![
            Outcome::Waited,
            Outcome::Acquired(Ok(vec![7])),
            Outcome::Recorded(vec![Ok(Recording::New)]),
        ],
    );
    assert_eq!(
        seen,
        [
            Task::Acquire(vec![7]),
            Task::Record(vec![Record::Started(job(6))]),
            Task::Acknowledge(41),
        ]
    );
}

#[test]
fn a_record_that_never_works_holds_the_queue_up_for_a_minute() {
    let mut session = polling();
    session.step(T0, message(41, vec![JobMessage::Started(job(5))]));
    let mut now = T0;
    let mut rounds = 0;
    let last = loop {
        let down = Err(failure(FailureKind::Refused));
        let step = session.step(now, Outcome::Recorded(vec![down]));
        let step = match step.task {
            Task::Publish(_) => session.step(now, Outcome::Published(Ok(()))),
            _ => step,
        };
        let Task::Wait(wait) = step.task else {
            break step;
        };
        now += wait;
        rounds += 1;
        session.step(now, Outcome::Waited);
    };
    assert_eq!(last.task, Task::Acknowledge(41));
    assert!(now >= PATIENCE && now <= PATIENCE + Duration::from_secs(30));
    assert!((4..10).contains(&rounds), "{rounds}");
    assert!(last.notes.contains(&Note::PutOff(1)));
}

/// A program that has put off the start of job 5 and is polling again.
fn with_a_record_put_off() -> Session {
    let mut session = polling();
    session.step(T0, message(41, vec![JobMessage::Started(job(5))]));
    let down = || Outcome::Recorded(vec![Err(failure(FailureKind::Refused))]);
    session.step(T0, down());
    session.step(T0, Outcome::Published(Ok(())));
    session.step(PATIENCE, Outcome::Waited);
    assert_eq!(session.step(PATIENCE, down()).task, Task::Acknowledge(41));
    let step = session.step(PATIENCE, Outcome::Acknowledged(Ok(())));
    assert_eq!(step.task, poll(41));
    session
}

#[test]
fn what_was_put_off_is_tried_again_after_each_poll() {
    let mut session = with_a_record_put_off();
    let again = Task::Record(vec![Record::Started(job(5))]);
    for _ in 0..3 {
        session.step(PATIENCE, empty());
        let step = session.step(PATIENCE, Outcome::Published(Ok(())));
        assert_eq!(step.task, again);
        let down = vec![Err(failure(FailureKind::Unavailable))];
        let step = session.step(PATIENCE, Outcome::Recorded(down));
        assert_eq!(step.task, poll(41));
    }
    session.step(PATIENCE, empty());
    session.step(PATIENCE, Outcome::Published(Ok(())));
    let step = session.step(PATIENCE, Outcome::Recorded(vec![Ok(Recording::New)]));
    assert_eq!(step.notes, [Note::Started(job(5))]);
    assert_eq!(step.task, poll(41));
}

#[test]
fn what_was_put_off_goes_before_later_news_and_does_not_hold_them_up() {
    let mut session = with_a_record_put_off();
    let step = session.step(PATIENCE, message(42, vec![JobMessage::Completed(job(5))]));
    assert_eq!(
        step.task,
        Task::Record(vec![Record::Started(job(5)), Record::Completed(job(5))])
    );
    let results = vec![Err(failure(FailureKind::Unavailable)), Ok(Recording::New)];
    session.step(PATIENCE, Outcome::Recorded(results));
    let step = session.step(PATIENCE, Outcome::Published(Ok(())));
    assert_eq!(step.task, Task::Acknowledge(42));
}

#[test]
fn what_was_put_off_is_given_up_after_an_hour_and_counted() {
    let mut session = with_a_record_put_off();
    let step = session.step(PUT_OFF, empty());
    assert!(step.notes.contains(&Note::Started(job(5))));
    let step = session.step(PUT_OFF, Outcome::Published(Ok(())));
    assert_eq!(step.task, poll(41));
}

#[test]
fn a_record_that_is_refused_as_wrong_is_not_tried_again() {
    let mut session = polling();
    session.step(T0, message(41, vec![JobMessage::Started(job(5))]));
    let wrong = Err(failure(FailureKind::Invalid));
    session.step(T0, Outcome::Recorded(vec![wrong]));
    let step = session.step(T0, Outcome::Published(Ok(())));
    assert_eq!(step.task, Task::Acknowledge(41));
}

#[test]
fn nothing_is_polled_while_the_target_cannot_be_published() {
    let mut session = polling();
    session.step(T0, message(41, vec![JobMessage::Started(job(5))]));
    let mut now = T0;
    for _ in 0..40 {
        let down = || failure(FailureKind::Unavailable);
        let task = session.step(now, Outcome::Recorded(vec![Err(down())])).task;
        assert_eq!(task, publish(4, 2));
        let Task::Wait(wait) = session.step(now, Outcome::Published(Err(down()))).task else {
            panic!("the message was put down")
        };
        now += wait;
        let task = session.step(now, Outcome::Waited).task;
        assert_eq!(task, Task::Record(vec![Record::Started(job(5))]));
    }
    let task = session
        .step(now, Outcome::Recorded(vec![Ok(Recording::New)]))
        .task;
    assert_eq!(task, publish(4, 2));
    let task = session.step(now, Outcome::Published(Ok(()))).task;
    assert_eq!(task, Task::Acknowledge(41));
}

#[test]
fn what_cannot_be_understood_is_noted_and_acknowledged() {
    let mut session = polling();
    let step = session.step(
        T0,
        message(
            41,
            vec![JobMessage::Unknown {
                message_type: "JobPaused".to_owned(),
            }],
        ),
    );
    assert!(step.notes.contains(&Note::Part("unknown")));
    assert!(step.notes.contains(&Note::Unknown("JobPaused".to_owned())));
    assert_eq!(step.task, publish(4, 2));
    let step = session.step(T0, Outcome::Published(Ok(())));
    assert_eq!(step.task, Task::Acknowledge(41));
}

#[test]
fn an_unreadable_answer_publishes_again_and_backs_off() {
    let mut session = polling();
    session.step(T0, message(41, Vec::new()));
    session.step(T0, Outcome::Published(Ok(())));
    session.step(T0, Outcome::Acknowledged(Ok(())));
    let mut waits = Vec::new();
    for round in 0..4 {
        let unreadable = Polled::Unreadable {
            status: 200,
            problem: "html".to_owned(),
        };
        let step = session.step(T0, Outcome::Polled(Ok(unreadable), T0));
        assert_eq!(step.task, publish(4, 3 + round));
        let Task::Wait(wait) = session.step(T0, Outcome::Published(Ok(()))).task else {
            panic!("it does not wait")
        };
        waits.push(wait);
        assert_eq!(session.step(T0, Outcome::Waited).task, poll(41));
    }
    assert!(waits.is_sorted() && waits[3] > waits[0], "{waits:?}");
}

#[test]
fn a_service_that_does_not_hold_polls_is_asked_ever_more_slowly() {
    let mut session = polling();
    let unheld = || Outcome::Polled(Ok(Polled::None), Duration::ZERO);
    let pauses = |session: &mut Session, expected: &[u64]| {
        for seconds in expected {
            session.step(T0, unheld());
            let step = session.step(T0, Outcome::Published(Ok(())));
            assert_eq!(step.task, Task::Wait(Duration::from_secs(*seconds)));
            assert_eq!(session.step(T0, Outcome::Waited).task, poll(0));
        }
    };
    pauses(&mut session, &[1, 2, 4, 8, 10, 10]);
    session.step(T0, empty());
    let step = session.step(T0, Outcome::Published(Ok(())));
    assert_eq!(step.task, poll(0), "this one was held");
    pauses(&mut session, &[1, 2]);
}

#[test]
fn an_expired_token_is_replaced_and_the_task_tried_again() {
    let expired = || failure(FailureKind::TokenExpired);
    let mut session = polling();
    let seen = tasks(
        &mut session,
        vec![
            poll_failed(FailureKind::TokenExpired),
            Outcome::Refreshed(Ok(None)),
        ],
    );
    assert_eq!(seen, [Task::Refresh, poll(0)]);

    session.step(T0, message(41, vec![JobMessage::Available(job(7))]));
    let seen = tasks(
        &mut session,
        vec![
            Outcome::Acquired(Err(expired())),
            Outcome::Refreshed(Ok(None)),
            Outcome::Acquired(Ok(vec![7])),
            Outcome::Published(Ok(())),
            Outcome::Acknowledged(Err(expired())),
            Outcome::Refreshed(Ok(None)),
            Outcome::Acknowledged(Ok(())),
        ],
    );
    assert_eq!(
        seen,
        [
            Task::Refresh,
            Task::Acquire(vec![7]),
            publish(4, 2),
            Task::Acknowledge(41),
            Task::Refresh,
            Task::Acknowledge(41),
            poll(41),
        ]
    );
}

#[test]
fn a_new_token_that_is_refused_too_is_an_error_that_backs_off() {
    let mut session = polling();
    let mut waits = Vec::new();
    for _ in 0..5 {
        let task = session
            .step(T0, poll_failed(FailureKind::TokenExpired))
            .task;
        let task = match task {
            Task::Wait(wait) => {
                waits.push(wait);
                session.step(T0, Outcome::Waited).task
            }
            task => task,
        };
        assert_eq!(task, Task::Refresh);
        let task = session.step(T0, Outcome::Refreshed(Ok(None))).task;
        assert_eq!(task, poll(0));
    }
    assert_eq!(waits.len(), 4);
    assert!(waits.is_sorted());
}

#[test]
fn a_session_that_is_gone_is_replaced_in_place_keeping_the_cursor() {
    let mut session = polling();
    session.step(T0, message(41, Vec::new()));
    session.step(T0, Outcome::Published(Ok(())));
    session.step(T0, Outcome::Acknowledged(Ok(())));
    let gone = || Outcome::Refreshed(Err(failure(FailureKind::SessionNotFound)));
    let seen = tasks(
        &mut session,
        vec![
            poll_failed(FailureKind::TokenExpired),
            gone(),
            Outcome::Opened(Ok(Some(assigned(5)))),
            Outcome::Published(Ok(())),
        ],
    );
    assert_eq!(seen, [Task::Refresh, Task::Open, publish(6, 3), poll(41)]);
    // a service that loses each session is not asked for others without a pause
    session.step(T0, poll_failed(FailureKind::SessionNotFound));
    session.step(T0, Outcome::Waited);
    assert!(is_wait(&session.step(T0, gone()).task));
}

#[test]
fn a_session_lost_with_a_message_in_hand_leaves_it_in_hand() {
    let mut session = polling();
    session.step(T0, message(41, vec![JobMessage::Available(job(7))]));
    let seen = tasks(
        &mut session,
        vec![
            Outcome::Acquired(Err(failure(FailureKind::TokenExpired))),
            Outcome::Refreshed(Err(failure(FailureKind::SessionNotFound))),
            Outcome::Opened(Ok(Some(assigned(2)))),
            Outcome::Acquired(Ok(vec![7])),
        ],
    );
    assert_eq!(
        seen,
        [
            Task::Refresh,
            Task::Open,
            Task::Acquire(vec![7]),
            publish(3, 3)
        ]
    );
}

#[test]
fn a_message_that_cannot_be_acknowledged_is_left_after_three_tries() {
    let mut session = polling();
    session.step(T0, message(41, Vec::new()));
    session.step(T0, Outcome::Published(Ok(())));
    for _ in 0..2 {
        let down = Outcome::Acknowledged(Err(failure(FailureKind::Unavailable)));
        assert!(is_wait(&session.step(T0, down).task));
        assert_eq!(
            session.step(T0, Outcome::Waited).task,
            Task::Acknowledge(41)
        );
    }
    let down = Outcome::Acknowledged(Err(failure(FailureKind::Unavailable)));
    assert_eq!(session.step(T0, down).task, poll(41));
    assert_eq!(
        session.step(T0, message(41, Vec::new())).task,
        Task::Acknowledge(41)
    );
}

#[test]
fn errors_of_polls_back_off_up_to_half_a_minute_and_longer_when_asked() {
    let mut session = polling();
    for expected in [1, 2, 4, 8, 16, 30, 30] {
        let Task::Wait(wait) = session.step(T0, poll_failed(FailureKind::Unavailable)).task else {
            panic!("it does not wait")
        };
        let most = Duration::from_secs(expected);
        assert!(wait <= most && wait >= most * 3 / 4, "{wait:?}");
        assert_eq!(session.step(T0, Outcome::Waited).task, poll(0));
    }
    for (asked, waits) in [(50, 50), (4_000, 120)] {
        let limited = Failure {
            retry_after: Some(Duration::from_secs(asked)),
            ..failure(FailureKind::Unavailable)
        };
        let task = session.step(T0, Outcome::Polled(Err(limited), T0)).task;
        assert_eq!(task, Task::Wait(Duration::from_secs(waits)));
        session.step(T0, Outcome::Waited);
    }
    // one good poll, and the next error is a first one
    session.step(T0, empty());
    session.step(T0, Outcome::Published(Ok(())));
    let Task::Wait(wait) = session.step(T0, poll_failed(FailureKind::Unavailable)).task else {
        panic!("it does not wait")
    };
    assert!(wait <= Duration::from_secs(1));
}

#[test]
fn what_is_left_of_a_message_waits_as_long_as_it_was_asked_to() {
    let limited = |seconds| Failure {
        retry_after: Some(Duration::from_secs(seconds)),
        ..failure(FailureKind::Unavailable)
    };
    for (asked, waits) in [(9, 9), (4_000, 60)] {
        let mut session = polling();
        session.step(T0, message(41, vec![JobMessage::Available(job(7))]));
        session.step(T0, Outcome::Acquired(Err(limited(asked))));
        let task = session.step(T0, Outcome::Published(Ok(()))).task;
        assert_eq!(task, Task::Wait(Duration::from_secs(waits)));
    }
    let mut session = polling();
    session.step(T0, message(41, vec![JobMessage::Started(job(7))]));
    session.step(T0, Outcome::Recorded(vec![Err(limited(11))]));
    let task = session.step(T0, Outcome::Published(Ok(()))).task;
    assert_eq!(task, Task::Wait(Duration::from_secs(11)));
    // and once more it was not asked for anything
    session.step(T0, Outcome::Waited);
    let down = failure(FailureKind::Unavailable);
    let Task::Wait(wait) = session.step(T0, Outcome::Recorded(vec![Err(down)])).task else {
        panic!("it does not wait")
    };
    assert!(wait <= Duration::from_secs(4), "{wait:?}");
}

#[test]
fn the_target_does_not_wait_for_what_was_asked_of_others() {
    let mut session = polling();
    session.step(T0, message(41, vec![JobMessage::Available(job(7))]));
    let limited = Failure {
        retry_after: Some(Duration::from_secs(50)),
        ..failure(FailureKind::Unavailable)
    };
    session.step(T0, Outcome::Acquired(Err(limited)));
    let down = Outcome::Published(Err(failure(FailureKind::Unavailable)));
    let Task::Wait(wait) = session.step(T0, down).task else {
        panic!("it does not wait")
    };
    assert!(wait <= Duration::from_secs(1), "{wait:?}");
}

#[test]
fn only_an_unusable_configuration_ends_the_program() {
    let mut session = Session::new(1, 10, 0);
    session.start(T0);
    let unusable = failure(FailureKind::Config);
    let step = session.step(T0, Outcome::Opened(Err(unusable.clone())));
    assert_eq!(step.task, Task::End(Some(unusable)));
}

#[test]
fn told_to_stop_while_polling_it_deletes_the_session_at_once() {
    let mut session = polling();
    assert_eq!(session.stop(T0), Stop::Drop);
    assert_eq!(session.step(T0, Outcome::Dropped).task, Task::Close);
    let step = session.step(T0, Outcome::Closed(Ok(())));
    assert_eq!(step.notes, [Note::SessionClosed]);
    assert_eq!(step.task, Task::End(None));
}

#[test]
fn told_to_stop_with_a_message_in_hand_it_finishes_the_message_first() {
    let mut session = polling();
    session.step(T0, message(41, vec![JobMessage::Started(job(5))]));
    assert_eq!(session.stop(T0), Stop::Await(FINISHING));
    let seen = tasks(
        &mut session,
        vec![
            Outcome::Recorded(vec![Ok(Recording::New)]),
            Outcome::Published(Ok(())),
            Outcome::Acknowledged(Ok(())),
            Outcome::Closed(Ok(())),
        ],
    );
    assert_eq!(
        seen,
        [
            publish(4, 2),
            Task::Acknowledge(41),
            Task::Close,
            Task::End(None)
        ]
    );
}

#[test]
fn told_to_stop_with_a_message_that_does_not_get_done_it_leaves_it_to_the_next() {
    let mut session = polling();
    session.step(T0, message(41, vec![JobMessage::Started(job(5))]));
    session.stop(T0);
    let down = || failure(FailureKind::Unavailable);
    session.step(T0, Outcome::Recorded(vec![Err(down())]));
    let task = session.step(T0, Outcome::Published(Err(down()))).task;
    assert!(is_wait(&task));
    assert_eq!(session.step(FINISHING, Outcome::Waited).task, Task::Close);
}

#[test]
fn a_message_task_that_hangs_after_the_signal_is_dropped() {
    let mut session = polling();
    session.step(T0, message(41, vec![JobMessage::Started(job(5))]));
    session.stop(T0);
    assert_eq!(session.step(FINISHING, Outcome::Dropped).task, Task::Close);
}

#[test]
fn told_to_stop_while_waiting_for_a_held_session_it_ends_without_one() {
    let mut session = Session::new(1, 10, 0);
    session.start(T0);
    let held = failure(FailureKind::SessionConflict);
    session.step(T0, Outcome::Opened(Err(held)));
    assert_eq!(session.stop(T0), Stop::Drop);
    assert_eq!(session.step(T0, Outcome::Dropped).task, Task::End(None));
}

#[test]
fn told_to_stop_while_a_session_is_being_opened_it_deletes_that_session() {
    let mut session = Session::new(1, 10, 0);
    session.start(T0);
    assert_eq!(session.stop(T0), Stop::Await(SETTLING));
    let step = session.step(T0, Outcome::Opened(Ok(None)));
    assert_eq!(step.task, Task::Close);
}

#[test]
fn a_session_that_cannot_be_deleted_does_not_keep_the_program() {
    let mut session = polling();
    session.stop(T0);
    session.step(T0, Outcome::Dropped);
    let down = failure(FailureKind::Unavailable);
    assert_eq!(
        session.step(T0, Outcome::Closed(Err(down))).task,
        Task::End(None)
    );
}

#[test]
fn listeners_that_failed_together_do_not_come_back_together() {
    assert_ne!(spread(4, 11), spread(4, 12));
    for failures in 1..40 {
        assert!(spread(failures, 7) <= Duration::from_secs(30));
    }
}

// === telling of finished jobs ===

fn ends(id: i64) -> Outcome {
    message(id, vec![JobMessage::Completed(job(5))])
}

#[test]
fn the_end_of_a_job_is_told_with_the_target_that_follows_its_record_and_once() {
    for recording in [Recording::New, Recording::Already] {
        let mut session = polling();
        let seen = tasks(
            &mut session,
            vec![
                ends(41),
                Outcome::Recorded(vec![Ok(recording)]),
                Outcome::Published(Err(failure(FailureKind::Unavailable))),
                Outcome::Waited,
                Outcome::Published(Ok(())),
                Outcome::Acknowledged(Ok(())),
                empty(),
            ],
        );
        assert_eq!(seen[1], publish_telling(4, 2));
        assert_eq!(seen[3], publish_telling(4, 2), "it was not told");
        assert_eq!(seen[6], publish(4, 3));
    }
}

#[test]
fn the_end_of_a_job_that_is_not_recorded_is_not_told() {
    let mut session = polling();
    let skipped = Recording::Skipped("no such runner".to_owned());
    let seen = tasks(
        &mut session,
        vec![ends(41), Outcome::Recorded(vec![Ok(skipped)])],
    );
    assert_eq!(seen[1], publish(4, 2));
}

#[test]
fn an_end_that_is_recorded_late_is_told_with_a_patch_of_its_own() {
    let mut session = polling();
    let seen = tasks(
        &mut session,
        vec![
            ends(41),
            Outcome::Recorded(vec![Err(failure(FailureKind::Unavailable))]),
            Outcome::Published(Ok(())),
            Outcome::Waited,
            Outcome::Recorded(vec![Ok(Recording::Already)]),
            Outcome::Published(Ok(())),
        ],
    );
    assert_eq!(seen[1], publish(4, 2));
    assert!(is_wait(&seen[2]));
    assert_eq!(seen[4], publish_telling(4, 3));
    assert_eq!(seen[5], Task::Acknowledge(41));
}

/// The target then is older than the job's end, and may include it.
#[test]
fn an_end_that_comes_without_a_demand_is_told_when_the_demand_is_known() {
    let mut session = polling();
    let unknown = Outcome::Polled(
        Ok(Polled::Message(Message {
            id: 41,
            statistics: None,
            jobs: vec![JobMessage::Completed(job(5))],
        })),
        HELD_POLL,
    );
    let seen = tasks(
        &mut session,
        vec![unknown, Outcome::Recorded(vec![Ok(Recording::New)])],
    );
    assert_eq!(seen[1], publish(1, 2));
    session.step(T0, Outcome::Published(Ok(())));
    session.step(T0, Outcome::Acknowledged(Ok(())));
    session.step(T0, poll_failed(FailureKind::TokenExpired));
    let step = session.step(T0, Outcome::Refreshed(Ok(Some(assigned(2)))));
    assert_eq!(step.task, publish_telling(3, 3));
}
