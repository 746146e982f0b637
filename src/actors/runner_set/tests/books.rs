//! Counts and queues, report by report.

use super::super::books::{Books, Class};
use crate::clock::{Timestamp, after};
use crate::messages::{RunnerCommand, RunnerReport, RunnerState};

fn now() -> Timestamp {
    after(Timestamp::UNIX_EPOCH, 1_800_000_000)
}

fn report(name: &str, state: RunnerState) -> RunnerReport {
    RunnerReport {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        created: now(),
        patch_id: 4,
        revision: 2,
        state,
        has_job: state == RunnerState::Running,
        deleting: false,
        holds_resources: true,
        registered: true,
        ready: false,
        refused: false,
        reason: None,
    }
}

fn deleting(name: &str, state: RunnerState, holds_resources: bool) -> RunnerReport {
    RunnerReport {
        deleting: true,
        holds_resources,
        ..report(name, state)
    }
}

#[test]
fn each_runner_counts_once_and_in_one_state() {
    use RunnerState::{Failed, Finished, Outdated, Pending, Running};
    let mut books = Books::default();
    books.set_applied(2);
    let stale = RunnerReport {
        revision: 1,
        ..report("stale", Outdated)
    };
    let all = [
        (report("pending", Pending), Class::Pending),
        (report("running", Running), Class::Running),
        (report("finished", Finished), Class::Finished),
        (report("failed", Failed), Class::Failed),
        (report("outdated", Outdated), Class::Outdated),
        (stale, Class::Stale),
        (deleting("deleting", Finished, true), Class::Deleting),
        (deleting("leaving", Running, false), Class::Leaving),
    ];
    for _ in 0..2 {
        for (report, class) in &all {
            books.put(now(), report.clone());
            assert_eq!(books.count(*class), 1, "{class:?}");
        }
    }
    assert_eq!(books.capacity(), 3, "pending, running, deleting");
    assert_eq!(books.latest_patch(), 4);
    for (report, class) in &all {
        books.remove(&report.name, &report.uid);
        assert_eq!(books.count(*class), 0, "{class:?}");
    }
    assert!(books.is_empty());
    assert_eq!(books.latest_patch(), 0);
}

#[test]
fn a_runner_of_annotation_less_origin_is_current_until_a_revision_is_applied() {
    let mut books = Books::default();
    let bare = RunnerReport {
        revision: 0,
        ..report("bare", RunnerState::Outdated)
    };
    books.put(now(), bare);
    assert_eq!(books.count(Class::Outdated), 1);
    assert!(books.set_applied(1), "its place is to be filled");
    assert_eq!(books.count(Class::Stale), 1);
    assert!(!books.set_applied(1));
}

#[test]
fn a_place_is_lost_when_a_runner_goes_that_had_no_job_and_when_it_is_free() {
    use RunnerState::{Failed, Finished, Pending, Running};
    // (before, then, whether the place is to be filled now)
    let table = [
        (report("r", Pending), report("r", Failed), true),
        (report("r", Pending), deleting("r", Pending, true), false),
        (report("r", Pending), deleting("r", Pending, false), true),
        (report("r", Running), deleting("r", Running, false), false),
        (report("r", Finished), deleting("r", Finished, false), false),
        (report("r", Failed), deleting("r", Failed, false), true),
        (
            deleting("r", Pending, true),
            deleting("r", Pending, false),
            true,
        ),
        (
            deleting("r", Finished, true),
            deleting("r", Finished, false),
            false,
        ),
    ];
    for (before, then, lost) in table {
        let mut books = Books::default();
        books.put(now(), before.clone());
        assert_eq!(
            books.put(now(), then.clone()).lost,
            lost,
            "{before:?} {then:?}"
        );
    }
    for (before, lost) in [
        (report("r", Pending), true),
        (report("r", Finished), false),
        (deleting("r", Pending, true), true),
        (deleting("r", Finished, true), false),
    ] {
        let mut books = Books::default();
        books.put(now(), before.clone());
        assert_eq!(books.remove("r", "uid-r"), lost, "{before:?}");
    }
}

#[test]
fn a_report_of_an_earlier_runner_of_the_name_strikes_nothing_off() {
    let mut books = Books::default();
    books.put(now(), report("r", RunnerState::Pending));
    assert!(!books.remove("r", "uid-of-another"));
    assert!(books.contains("r"));
}

#[test]
fn a_refused_runner_rests_for_thirty_seconds() {
    let mut books = Books::default();
    books.put(now(), report("r", RunnerState::Pending));
    assert_eq!(books.next_surplus(now()).as_deref(), Some("r"));
    books.tell(now(), "r", RunnerCommand::Release);
    assert_eq!((books.next_surplus(now()), books.releases()), (None, 1));
    let refused = RunnerReport {
        refused: true,
        ..report("r", RunnerState::Pending)
    };
    books.put(now(), refused);
    assert_eq!((books.next_surplus(now()), books.releases()), (None, 0));
    assert_eq!(books.next_rest_end(), Some(after(now(), 30)));
    books.end_rests(after(now(), 29));
    assert_eq!(books.next_surplus(after(now(), 29)), None);
    books.end_rests(after(now(), 30));
    assert_eq!(books.next_surplus(after(now(), 30)).as_deref(), Some("r"));
}

#[test]
fn what_was_told_is_told_again_after_a_minute_and_without_an_id_it_is_deletion() {
    for (registered, command) in [
        (true, RunnerCommand::Release),
        (false, RunnerCommand::Delete),
    ] {
        let mut books = Books::default();
        let pending = RunnerReport {
            registered,
            ..report("r", RunnerState::Pending)
        };
        books.put(now(), pending);
        books.tell(now(), "r", RunnerCommand::Release);
        assert_eq!(books.next_reminder(after(now(), 59)), None);
        let reminder = books.next_reminder(after(now(), 60));
        assert_eq!(reminder, Some(("r".to_owned(), command)));
    }
}

#[test]
fn a_runner_that_finishes_while_it_is_asked_to_go_waits_to_be_counted() {
    let mut books = Books::default();
    books.put(now(), report("r", RunnerState::Pending));
    books.tell(now(), "r", RunnerCommand::Release);
    books.put(now(), report("r", RunnerState::Finished));
    assert_eq!(books.releases(), 0);
    assert_eq!(books.next_finished().as_deref(), Some("r"));
}
