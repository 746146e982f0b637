//! Counts and queues, report by report.

use super::super::runner_index::{CountedRunner, RunnerClass, RunnerIndex, SlotFate};
use crate::clock::{Timestamp, after};
use crate::messages::{
    Launch, Reason, Refusal, RunnerCommand, RunnerCounts, RunnerReport, RunnerState,
};

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
        job_finished: None,
        deleting: false,
        holds_resources: true,
        lost: false,
        launch: Launch::Done,
        registered: true,
        ready: false,
        refused: None,
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
    let mut index = RunnerIndex::default();
    index.set_applied(2);
    let stale = RunnerReport {
        revision: 1,
        ..report("stale", Outdated)
    };
    let all = [
        (report("pending", Pending), RunnerClass::Pending),
        (report("running", Running), RunnerClass::Running),
        (report("finished", Finished), RunnerClass::Finished),
        (report("failed", Failed), RunnerClass::Failed),
        (report("outdated", Outdated), RunnerClass::Outdated),
        (stale, RunnerClass::Stale),
        (deleting("deleting", Finished, true), RunnerClass::Deleting),
        (deleting("leaving", Running, false), RunnerClass::Leaving),
    ];
    for _ in 0..2 {
        for (report, class) in &all {
            index.record_report(now(), report.clone());
            assert_eq!(index.count(*class), 1, "{class:?}");
        }
    }
    assert_eq!(index.capacity(), 3, "pending, running, deleting");
    let told = RunnerCounts {
        pending: 1,
        running: 1,
        failed: 1,
        finished: 1,
        outdated: 2,
        deleting: 2,
    };
    assert_eq!(index.counts(), told);
    let rejected = index.rejected().map(|rejected| rejected.runner);
    assert_eq!(
        rejected.as_deref(),
        Some("outdated"),
        "and not the stale one"
    );
    assert_eq!(index.latest_patch(), 4);
    for (report, class) in &all {
        index.remove(&report.name, &report.uid);
        assert_eq!(index.count(*class), 0, "{class:?}");
    }
    assert!(index.is_empty());
    assert_eq!(index.latest_patch(), 0);
}

#[test]
fn a_runner_of_annotation_less_origin_is_current_until_a_revision_is_applied() {
    let mut index = RunnerIndex::default();
    let bare = RunnerReport {
        revision: 0,
        ..report("bare", RunnerState::Outdated)
    };
    index.record_report(now(), bare);
    assert_eq!(index.count(RunnerClass::Outdated), 1);
    assert!(index.set_applied(1), "its place is to be filled");
    assert_eq!(index.count(RunnerClass::Stale), 1);
    assert!(!index.set_applied(1));
}

/// A moment of the jobs' end, after which others are.
fn end() -> Timestamp {
    after(now(), 7)
}

/// With the job's end on record.
fn ended(report: RunnerReport, finished: Timestamp) -> RunnerReport {
    RunnerReport {
        job_finished: Some(finished),
        ..report
    }
}

#[test]
fn a_place_opens_when_no_job_was_done_in_it_and_is_spent_when_one_was() {
    use RunnerState::{Failed, Finished, Outdated, Pending, Running};
    use SlotFate::{Kept, Open, Spent};
    let stale = || RunnerReport {
        revision: 1,
        ..report("r", Outdated)
    };
    let told = |state| ended(report("r", state), end());
    let untold = |state| ended(report("r", state), after(end(), 1));
    let going = |held: bool, report: RunnerReport| RunnerReport {
        deleting: true,
        holds_resources: held,
        ..report
    };
    // (name, states one after the other, what becomes of the place with the last of them)
    let table = [
        (
            "failed",
            vec![report("r", Pending), report("r", Failed)],
            Open,
        ),
        ("stale", vec![report("r", Pending), stale()], Open),
        (
            "stale after a job was given",
            vec![report("r", Running), stale()],
            Kept,
        ),
        (
            "and deleted",
            vec![report("r", Running), stale(), going(false, stale())],
            Open,
        ),
        (
            "rejected",
            vec![report("r", Pending), report("r", Outdated)],
            Kept,
        ),
        (
            "busy",
            vec![report("r", Pending), report("r", Running)],
            Kept,
        ),
        (
            "an idle one on its way out",
            vec![report("r", Pending), going(true, report("r", Pending))],
            Kept,
        ),
        (
            "an idle one as good as gone",
            vec![report("r", Pending), going(false, report("r", Pending))],
            Open,
        ),
        (
            "an idle one that was on its way out",
            vec![
                report("r", Pending),
                going(true, report("r", Pending)),
                going(false, report("r", Pending)),
            ],
            Open,
        ),
        (
            "the same, said twice",
            vec![
                report("r", Pending),
                going(false, report("r", Pending)),
                going(false, report("r", Pending)),
            ],
            Kept,
        ),
        (
            "a failed one deleted",
            vec![report("r", Failed), going(false, report("r", Failed))],
            Open,
        ),
        (
            "a busy one deleted by a person",
            vec![report("r", Running), going(false, report("r", Running))],
            Spent,
        ),
        (
            "a busy one deleted by a person, step by step",
            vec![
                report("r", Running),
                going(true, report("r", Running)),
                going(false, report("r", Running)),
            ],
            Spent,
        ),
        (
            "a finished one deleted by a person",
            vec![report("r", Finished), going(false, report("r", Finished))],
            Spent,
        ),
        (
            "finished",
            vec![report("r", Running), report("r", Finished)],
            Kept,
        ),
        (
            "finished, of which replicas knows",
            vec![report("r", Running), told(Finished)],
            Open,
        ),
        (
            "finished, of which replicas does not know",
            vec![report("r", Running), untold(Finished)],
            Kept,
        ),
        (
            "finished, of which is heard later that replicas knows",
            vec![report("r", Finished), told(Finished)],
            Open,
        ),
        (
            "finished, known of and gone",
            vec![told(Finished), going(false, told(Finished))],
            Kept,
        ),
        (
            "a busy one whose end replicas knows of, deleted by a person",
            vec![
                told(Running),
                going(true, told(Running)),
                going(false, told(Running)),
            ],
            Open,
        ),
        (
            "one found on its way out, which a predecessor has counted",
            vec![
                going(true, report("r", Finished)),
                going(false, report("r", Finished)),
            ],
            Open,
        ),
    ];
    for (name, reports, expected) in table {
        let mut index = RunnerIndex::default();
        index.set_applied(2);
        index.set_counted_until(Some(end()));
        let places: Vec<SlotFate> = reports
            .into_iter()
            .map(|report| index.record_report(now(), report).place)
            .collect();
        assert_eq!(places.last(), Some(&expected), "{name}: {places:?}");
    }
}

#[test]
fn a_runner_that_is_struck_off_leaves_its_place_as_it_last_stood() {
    use RunnerState::{Failed, Finished, Pending, Running};
    use SlotFate::{Kept, Open, Spent};
    let table = [
        ("idle", vec![report("r", Pending)], Open),
        ("busy", vec![report("r", Running)], Spent),
        ("finished", vec![report("r", Finished)], Spent),
        (
            "finished and known of",
            vec![ended(report("r", Finished), end())],
            Kept,
        ),
        ("failed", vec![report("r", Failed)], Open),
        (
            "idle, on its way out",
            vec![report("r", Pending), deleting("r", Pending, true)],
            Open,
        ),
        (
            "finished, on its way out",
            vec![report("r", Finished), deleting("r", Finished, true)],
            Spent,
        ),
        (
            "as good as gone before",
            vec![report("r", Pending), deleting("r", Pending, false)],
            Kept,
        ),
    ];
    for (name, reports, expected) in table {
        let mut index = RunnerIndex::default();
        index.set_counted_until(Some(end()));
        for report in reports {
            index.record_report(now(), report);
        }
        assert_eq!(index.remove("r", "uid-r"), expected, "{name}");
        assert_eq!(index.remove("r", "uid-r"), Kept, "{name}: twice");
    }
}

#[test]
fn finished_runners_are_counted_once_and_go_when_nothing_of_them_is_left() {
    use RunnerState::Finished;
    let bare = |name| RunnerReport {
        holds_resources: false,
        ..report(name, Finished)
    };
    let mut index = RunnerIndex::default();
    index.record_report(now(), report("holds", Finished));
    index.record_report(now(), ended(bare("bare"), end()));
    assert_eq!(index.uncounted(), 2);
    assert_eq!(index.next_settled(), None, "nobody goes uncounted");
    assert_eq!(index.count_finished(now(), 5), [], "it is not on record");
    index.mark_finished();
    let counted = |name: &str, finished| CountedRunner {
        name: name.to_owned(),
        finished,
        late: true,
    };
    let both = [counted("bare", Some(end())), counted("holds", None)];
    assert_eq!(index.count_finished(now(), 5), both);
    let again = index.count_finished(now(), 5);
    assert_eq!((index.uncounted(), again), (0, Vec::new()));
    assert_eq!(index.next_settled().as_deref(), Some("bare"));
    index.record_command(now(), "bare", RunnerCommand::Delete);
    assert_eq!(index.next_settled(), None);
    index.record_report(now(), bare("holds"));
    assert_eq!(index.next_settled().as_deref(), Some("holds"));
    assert_eq!(index.uncounted(), 0);
}

#[test]
fn whose_end_replicas_comes_to_know_of_is_counted_by_that() {
    use RunnerState::{Finished, Running};
    let mut index = RunnerIndex::default();
    index.record_report(now(), ended(report("early", Finished), end()));
    index.record_report(now(), ended(report("late", Finished), after(end(), 1)));
    index.record_report(now(), report("unknown", Finished));
    index.record_report(now(), ended(report("running", Running), end()));
    assert_eq!(index.uncounted(), 3);
    assert!(index.set_counted_until(Some(end())), "early's place opens");
    assert_eq!(index.uncounted(), 2);
    assert!(!index.set_counted_until(Some(end())));
    assert!(index.set_counted_until(Some(after(end(), 1))));
    assert_eq!(index.uncounted(), 1);
    // back again, by hand: who was let go is not called back
    assert!(!index.set_counted_until(None));
    assert_eq!(index.uncounted(), 1);
    assert_eq!(index.count(RunnerClass::Finished), 3);
}

#[test]
fn where_the_listener_says_whom_it_left_out_its_word_is_waited_for() {
    use RunnerState::Finished;
    let table = [
        ("it never said anything", None, 5, 0, true),
        ("it said so of others", Some(end()), 5, 0, false),
        ("for long", Some(end()), 5, 59, false),
        ("for too long", Some(end()), 5, 60, true),
        ("nothing goes on", Some(end()), 0, 0, true),
    ];
    for (name, until, patch, seconds, counts) in table {
        let mut index = RunnerIndex::default();
        index.set_counted_until(until);
        index.record_report(now(), report("unknown", Finished));
        index.record_report(now(), ended(report("late", Finished), after(end(), 1)));
        // saying it again does not begin the wait anew
        index.record_report(after(now(), 30), report("unknown", Finished));
        let then = after(now(), seconds);
        assert_eq!(index.has_to_count(then, patch, false), counts, "{name}");
        if counts {
            index.mark_finished();
        }
        let counted = index.count_finished(then, patch).len();
        assert_eq!(counted, if counts { 2 } else { 0 }, "{name}");
        let left = if counts { 0 } else { 2 };
        assert_eq!(index.uncounted(), left, "{name}");
        let at = (!counts).then(|| after(now(), 60));
        assert_eq!(index.counts_at(), at, "{name}");
    }
}

#[test]
fn a_report_of_an_earlier_runner_of_the_name_strikes_nothing_off() {
    let mut index = RunnerIndex::default();
    index.record_report(now(), report("r", RunnerState::Pending));
    assert_eq!(index.remove("r", "uid-of-another"), SlotFate::Kept);
    assert!(index.contains("r"));
}

#[test]
fn a_refused_runner_rests_for_thirty_seconds() {
    let mut index = RunnerIndex::default();
    index.record_report(now(), report("r", RunnerState::Pending));
    assert_eq!(index.next_surplus(now()).as_deref(), Some("r"));
    index.record_command(now(), "r", RunnerCommand::Release);
    assert_eq!((index.next_surplus(now()), index.releases()), (None, 1));
    let refused = RunnerReport {
        refused: Some(Refusal::Busy),
        ..report("r", RunnerState::Pending)
    };
    index.record_report(now(), refused);
    assert_eq!((index.next_surplus(now()), index.releases()), (None, 0));
    assert_eq!(index.next_rest_end(), Some(after(now(), 30)));
    index.end_pauses(after(now(), 29));
    assert_eq!(index.next_surplus(after(now(), 29)), None);
    index.end_pauses(after(now(), 30));
    assert_eq!(index.next_surplus(after(now(), 30)).as_deref(), Some("r"));
}

#[test]
fn what_was_told_is_told_again_after_a_minute_and_without_an_id_it_is_deletion() {
    for (registered, command) in [
        (true, RunnerCommand::Release),
        (false, RunnerCommand::Delete),
    ] {
        let mut index = RunnerIndex::default();
        let pending = RunnerReport {
            registered,
            ..report("r", RunnerState::Pending)
        };
        index.record_report(now(), pending);
        index.record_command(now(), "r", RunnerCommand::Release);
        assert_eq!(index.next_repeat(after(now(), 59)), None);
        let reminder = index.next_repeat(after(now(), 60));
        assert_eq!(reminder, Some(("r".to_owned(), command)));
    }
}

#[test]
fn a_runner_that_finishes_while_it_is_asked_to_go_waits_to_be_counted() {
    let mut index = RunnerIndex::default();
    index.record_report(now(), report("r", RunnerState::Pending));
    index.record_command(now(), "r", RunnerCommand::Release);
    index.record_report(now(), report("r", RunnerState::Finished));
    assert_eq!(index.releases(), 0);
    assert_eq!(index.next_finished().as_deref(), Some("r"));
}

#[test]
fn a_pod_that_hangs_is_told_whoever_it_belongs_to() {
    use RunnerState::{Pending, Running};
    let hanging = |report: RunnerReport| RunnerReport {
        lost: true,
        reason: Some(Reason::new("NodeLost", "gone")),
        ..report
    };
    for (name, report, tells) in [
        ("idle", hanging(report("r", Pending)), true),
        ("busy", hanging(report("r", Running)), true),
        ("in deletion", hanging(deleting("r", Running, true)), true),
        (
            "it holds nothing any more",
            hanging(deleting("r", Running, false)),
            false,
        ),
    ] {
        let mut index = RunnerIndex::default();
        let is_capacity = report.holds_resources;
        index.record_report(now(), report);
        assert_eq!(index.trouble().is_some(), tells, "{name}");
        assert_eq!(index.capacity() == 1, is_capacity, "{name}");
        index.remove("r", "uid-r");
        assert_eq!(index.trouble(), None, "{name}");
    }
}
