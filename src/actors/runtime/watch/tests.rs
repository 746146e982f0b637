//! What a watch does, as tables: what happens to it, and what it does about that.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::outage::GIVE_UP_AFTER;
use super::progress::{Action, Input, Listing, Problem, Progress};
use crate::actors::core::backoff;
use crate::actors::runtime::router::ObjectEvent;
use crate::messages::{Kind, KubeError, KubeErrorKind, KubeObject as _, Object, ObjectRef};

/// A watch, and the time it lives in.
struct Play {
    progress: Progress,
    now: Instant,
}

/// Name, uid and version of a pod.
type Told = (&'static str, &'static str, u64);

fn pod((name, uid, version): Told) -> Object {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some("ci".to_owned());
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.uid = Some(uid.to_owned());
    pod.metadata.resource_version = Some(version.to_string());
    Arc::new(pod).into_object()
}

fn named(name: &str) -> ObjectRef {
    ObjectRef::new(Kind::Pod, "ci", name)
}

fn list(version: u64, pods: &[Told]) -> Input {
    Input::Listed(Listing {
        objects: pods.iter().copied().map(pod).collect(),
        version: version.to_string(),
        ..Listing::default()
    })
}

fn check(version: u64) -> Input {
    Input::Checked {
        version: version.to_string(),
        written: 0,
    }
}

fn deleted((name, uid, version): Told) -> Input {
    Input::Deleted {
        object: named(name),
        uid: uid.to_owned(),
        version: version.to_string(),
        last: None,
    }
}

fn failed() -> Input {
    Input::Failed(Problem {
        message: "no".to_owned(),
        expired: false,
    })
}

fn expired() -> Input {
    Input::Failed(Problem {
        message: "too old".to_owned(),
        expired: true,
    })
}

fn found(object: Told) -> Input {
    Input::LookedUp(named(object.0), Ok(pod(object)))
}

fn unanswered(name: &str, kind: KubeErrorKind) -> Input {
    let error = KubeError {
        kind,
        message: "no".to_owned(),
        retry_after: None,
    };
    Input::LookedUp(named(name), Err(error))
}

fn shown(action: &Action) -> String {
    match action {
        Action::List => "list".to_owned(),
        Action::Check => "check".to_owned(),
        Action::Watch(from) => format!("watch {from}"),
        Action::LookUp(object) => format!("look up {}", object.name),
        Action::Begin(objects) => {
            let names: Vec<_> = objects
                .iter()
                .map(|object| object.reference().name)
                .collect();
            format!("begin [{}]", names.join(" "))
        }
        Action::Deliver(ObjectEvent::Observed(object)) => {
            let version = object
                .meta()
                .resource_version
                .as_deref()
                .unwrap_or_default();
            format!("saw {}@{version}", object.reference().name)
        }
        Action::Deliver(ObjectEvent::Gone { object, uid, .. }) => {
            format!("gone {} {uid}", object.name)
        }
        Action::Relisted => "relisted".to_owned(),
        Action::Unsettled(object, _) => format!("unsettled {}", object.name),
        Action::Failing { first, .. } => {
            if *first { "failing" } else { "failing still" }.to_owned()
        }
        Action::GiveUp(_) => "give up".to_owned(),
        Action::Restored(versions) => format!("restored {}->{}", versions.known, versions.found),
    }
}

impl Play {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            progress: Progress::new(Kind::Pod, now),
            now,
        }
    }

    /// One whose first list, of that version, had these pods.
    fn watching(version: u64, pods: &[Told]) -> Self {
        let mut play = Self::new();
        play.tell(Input::Start);
        play.tell(list(version, pods));
        play.tell(Input::Established);
        play
    }

    fn tell(&mut self, input: Input) -> Vec<String> {
        let actions = self.progress.step(self.now, input);
        actions.iter().map(shown).collect()
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Lets time pass until it wants to be woken, and wakes it. Says how long that was.
    fn wake(&mut self) -> (Duration, Vec<String>) {
        let alarm = self.progress.alarm().expect("it waits for nothing");
        let waited = alarm.saturating_duration_since(self.now);
        self.now = self.now.max(alarm);
        (waited, self.tell(Input::Woken))
    }

    fn woken(&mut self) -> Vec<String> {
        self.wake().1
    }
}

const A: Told = ("a", "u1", 5);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_list_comes_first_and_events_follow_from_there() {
    let mut play = Play::new();
    assert_eq!(play.tell(Input::Start), ["list"]);
    assert_eq!(play.tell(list(7, &[A])), ["begin [a]", "watch 7"]);
    assert!(play.tell(Input::Established).is_empty());
    assert_eq!(play.tell(Input::Changed(pod(("b", "u2", 8)))), ["saw b@8"]);
    assert!(play.tell(Input::Bookmark("12".to_owned())).is_empty());
    assert_eq!(play.tell(deleted(("a", "u1", 13))), ["gone a u1"]);
    assert!(play.tell(deleted(("a", "u1", 13))).is_empty(), "told once");
    play.pass(MINUTE);
    assert_eq!(play.tell(Input::Ended), ["check"]);
    assert_eq!(play.tell(check(13)), ["watch 13"]);
    assert_eq!(play.progress.alarm(), None);
}

/// A watch that has read a list which lacks the pod.
fn lacking() -> Play {
    let mut play = Play::watching(7, &[A]);
    play.tell(expired());
    assert_eq!(play.woken(), ["list"]);
    let relisted = play.tell(list(9, &[]));
    assert_eq!(relisted, ["relisted", "watch 9", "look up a"]);
    play
}

#[test]
fn an_absence_is_open_until_it_is_settled() {
    use KubeErrorKind::{NotFound, Unanswered, Unavailable};
    let gone = || unanswered("a", NotFound);
    let there = || found(("a", "u1", 5));
    let fails = || unanswered("a", Unavailable);
    type Row = (&'static str, usize, fn() -> Input, &'static [&'static str]);
    let table: [Row; 6] = [
        (
            "it is gone",
            0,
            || unanswered("a", NotFound),
            &["gone a u1"],
        ),
        ("it is there", 0, || found(("a", "u1", 5)), &["saw a@5"]),
        (
            "it is gone, late",
            3,
            || unanswered("a", NotFound),
            &["gone a u1"],
        ),
        (
            "it is there, late",
            40,
            || found(("a", "u1", 5)),
            &["saw a@5"],
        ),
        (
            "an event says so",
            2,
            || deleted(("a", "u1", 11)),
            &["gone a u1"],
        ),
        (
            "another has its name",
            2,
            || found(("a", "u2", 8)),
            &["gone a u1", "saw a@8"],
        ),
    ];
    for (name, failures, end, expected) in table {
        let mut play = lacking();
        let mut waits = Vec::new();
        for failure in 0..failures {
            let told = play.tell(fails());
            assert_eq!(
                told,
                if failure == 0 {
                    &["unsettled a"][..]
                } else {
                    &[]
                },
                "{name}"
            );
            let (wait, actions) = play.wake();
            assert_eq!(actions, ["look up a"], "{name}");
            waits.push(wait);
        }
        for (wait, failure) in waits.iter().zip(1..) {
            let plain = Duration::try_from(backoff::REQUESTS.plain(failure)).unwrap();
            assert!(*wait <= plain && *wait >= plain / 2, "{name}: {wait:?}");
        }
        assert_eq!(play.tell(end()), expected, "{name}");
        assert_eq!(play.progress.alarm(), None, "{name}");
        // what comes late says nothing
        for late in [gone(), there(), fails(), unanswered("a", Unanswered)] {
            assert!(play.tell(late).is_empty(), "{name}");
        }
    }
}

#[test]
fn an_absence_ends_when_the_object_is_seen() {
    for seen in [
        Input::Changed(pod(("a", "u1", 10))),
        Input::Unreadable {
            object: named("a"),
            version: "10".to_owned(),
        },
    ] {
        let mut play = lacking();
        play.tell(unanswered("a", KubeErrorKind::Unavailable));
        play.tell(seen);
        assert_eq!(play.progress.alarm(), None);
        assert!(
            play.tell(unanswered("a", KubeErrorKind::NotFound))
                .is_empty()
        );
    }
    let mut play = lacking();
    play.tell(unanswered("a", KubeErrorKind::Unavailable));
    play.tell(expired());
    while play.woken() != ["list"] {}
    assert_eq!(
        play.tell(list(11, &[A])),
        ["relisted", "saw a@5", "watch 11"]
    );
    assert_eq!(play.progress.alarm(), None);
}

#[test]
fn what_may_not_be_looked_up_is_settled_by_a_second_list() {
    for kind in [KubeErrorKind::Forbidden, KubeErrorKind::Other] {
        let mut play = lacking();
        assert_eq!(play.tell(unanswered("a", kind)), ["unsettled a"]);
        assert_eq!(play.woken(), ["list"]);
        // it fails too, which is the second failure since anything came
        assert_eq!(play.tell(failed()), ["failing still"]);
        assert_eq!(play.woken(), ["list"]);
        assert_eq!(play.progress.alarm(), None);
        let settled = play.tell(list(9, &[]));
        assert_eq!(settled, ["relisted", "gone a u1", "watch 9"]);
        assert_eq!(play.progress.alarm(), None);

        let mut play = lacking();
        play.tell(unanswered("a", kind));
        play.woken();
        assert_eq!(play.tell(list(9, &[A])), ["relisted", "saw a@5", "watch 9"]);
        assert_eq!(play.progress.alarm(), None);
    }
}

#[test]
fn a_few_absences_are_looked_up_at_once_and_all_in_the_end() {
    let names: Vec<String> = (0..40).map(|index| format!("p{index:02}")).collect();
    let pods: Vec<Told> = names
        .iter()
        .map(|name| (&*name.clone().leak(), "u", 5))
        .collect();
    let mut play = Play::watching(7, &pods);
    play.tell(expired());
    play.woken();
    let mut open: Vec<String> = play
        .tell(list(9, &[]))
        .iter()
        .filter_map(|action| action.strip_prefix("look up ").map(str::to_owned))
        .collect();
    let mut most = open.len();
    let mut gone = 0;
    while let Some(name) = open.pop() {
        for action in play.tell(unanswered(&name, KubeErrorKind::NotFound)) {
            match action.strip_prefix("look up ") {
                Some(next) => open.push(next.to_owned()),
                None => gone += 1,
            }
        }
        most = most.max(open.len());
    }
    assert_eq!((gone, most), (40, 8));
}

#[test]
fn an_object_that_cannot_be_read_is_there() {
    let mut play = Play::watching(7, &[A]);
    play.tell(expired());
    play.woken();
    let listing = Listing {
        unreadable: vec![named("a")],
        version: "9".to_owned(),
        ..Listing::default()
    };
    assert_eq!(play.tell(Input::Listed(listing)), ["relisted", "watch 9"]);
}

#[test]
fn a_successor_in_a_list_ends_the_one_before() {
    let mut play = Play::watching(7, &[A]);
    play.tell(expired());
    play.woken();
    let relisted = play.tell(list(9, &[("a", "u2", 8)]));
    assert_eq!(relisted, ["relisted", "gone a u1", "saw a@8", "watch 9"]);
}

/// The waits until the next attempts, and how the last of them ended.
fn failing_for(play: &mut Play, attempt: impl Fn(&mut Play) -> Vec<String>) -> Vec<Duration> {
    let mut waits = Vec::new();
    loop {
        let actions = attempt(play);
        if actions == ["give up"] {
            return waits;
        }
        assert!(waits.len() < 1000, "it never gives up");
        let expected = if waits.is_empty() {
            "failing"
        } else {
            "failing still"
        };
        assert_eq!(actions, [expected]);
        waits.push(play.wake().0);
    }
}

#[test]
fn each_failure_waits_longer_and_after_five_minutes_it_gives_up() {
    type Attempt = fn(&mut Play) -> Vec<String>;
    let table: [(&str, Play, Attempt); 5] = [
        ("the first list is refused", Play::new(), |play| {
            play.tell(failed())
        }),
        ("later lists are", Play::watching(7, &[]), |play| {
            play.tell(expired())
        }),
        ("the check is", Play::watching(7, &[]), |play| {
            play.tell(failed())
        }),
        // that the watch starts again is no success
        ("the watch breaks at once", Play::watching(7, &[]), |play| {
            play.tell(check(7));
            play.tell(Input::Established);
            play.tell(failed())
        }),
        ("it is always too old", Play::watching(7, &[]), |play| {
            play.tell(list(7, &[]));
            play.tell(Input::Established);
            play.tell(expired())
        }),
    ];
    for (name, mut play, attempt) in table {
        let began = play.now;
        let waits = failing_for(&mut play, attempt);
        let lasted = play.now - began;
        assert!(lasted >= GIVE_UP_AFTER, "{name}: {lasted:?}");
        assert!(lasted < GIVE_UP_AFTER + 31 * SECOND, "{name}: {lasted:?}");
        assert!(waits.len() < 25, "{name}: {} tries", waits.len());
        for (wait, failures) in waits.iter().zip(1..) {
            let plain = Duration::try_from(backoff::REQUESTS.plain(failures)).unwrap();
            assert!(*wait <= plain && *wait >= plain / 2, "{name}: {wait:?}");
        }
    }
}

#[test]
fn failures_with_a_success_between_them_are_not_one_outage() {
    type Success = fn(&mut Play);
    let table: [(&str, Success); 4] = [
        ("it was established and lived", |play| {
            play.pass(301 * SECOND)
        }),
        ("a bookmark came", |play| {
            play.tell(Input::Bookmark("8".to_owned()));
        }),
        ("an event came", |play| {
            play.tell(Input::Changed(pod(("b", "u2", 8))));
        }),
        ("it ended as it should", |play| {
            play.pass(290 * SECOND);
            assert_eq!(play.tell(Input::Ended), ["check"]);
        }),
    ];
    for (name, success) in table {
        let mut play = Play::watching(7, &[]);
        for round in 0..50 {
            success(&mut play);
            // the first of its outage, whenever it comes
            assert_eq!(play.tell(failed()), ["failing"], "{name}, round {round}");
            let (wait, actions) = play.wake();
            assert!(wait <= Duration::from_millis(200), "{name}: {wait:?}");
            assert_eq!(actions, ["check"]);
            play.tell(check(8));
            play.tell(Input::Established);
        }
    }
}

#[test]
fn a_gap_longer_than_the_back_off_starts_afresh() {
    let mut play = Play::new();
    play.tell(Input::Start);
    assert_eq!(play.tell(failed()), ["failing"]);
    // the machine sleeps
    play.pass(600 * SECOND);
    assert_eq!(play.woken(), ["list"]);
    assert_eq!(play.tell(failed()), ["failing"]);

    // an attempt that takes its time is no gap
    let mut play = Play::new();
    play.tell(Input::Start);
    let waits = failing_for(&mut play, |play| {
        play.pass(MINUTE);
        play.tell(failed())
    });
    assert_eq!(waits.len(), 5);
}

#[test]
fn a_watch_that_ends_before_anything_came_is_a_failure() {
    let mut play = Play::watching(7, &[]);
    assert_eq!(play.tell(Input::Ended), ["failing"]);
    assert_eq!(play.woken(), ["check"]);
}

#[test]
fn consistent_answers_that_are_older_mean_a_restored_store() {
    // each begins with a watch at version 20 that has failed
    let table: [(&str, Vec<Input>, &str); 7] = [
        (
            "the check and the list",
            vec![check(12), list(12, &[A])],
            "restored 20->12",
        ),
        (
            "a list and the next",
            vec![
                check(20),
                expired(),
                Input::Woken,
                list(12, &[]),
                list(13, &[]),
            ],
            "restored 20->13",
        ),
        (
            "an object has gone back, and others have caught up",
            vec![
                check(30),
                expired(),
                Input::Woken,
                list(30, &[A]),
                list(31, &[A]),
            ],
            "restored 20->31",
        ),
        (
            "older than a write of ours",
            vec![
                Input::Checked {
                    version: "25".to_owned(),
                    written: 40,
                },
                Input::Listed(Listing {
                    objects: vec![pod(("a", "u1", 20))],
                    version: "25".to_owned(),
                    written: 40,
                    ..Listing::default()
                }),
            ],
            "restored 40->25",
        ),
        (
            "one that lags",
            vec![check(12), list(20, &[("a", "u1", 20)])],
            "watch 20",
        ),
        (
            "one list that lags",
            vec![
                check(20),
                expired(),
                Input::Woken,
                list(12, &[]),
                list(20, &[("a", "u1", 20)]),
            ],
            "watch 20",
        ),
        ("versions that are no numbers", vec![check(0)], "watch 20"),
    ];
    for (name, inputs, expected) in table {
        let mut play = Play::watching(7, &[A]);
        play.tell(Input::Changed(pod(("a", "u1", 20))));
        play.tell(failed());
        assert_eq!(play.woken(), ["check"], "{name}");
        let mut last = Vec::new();
        for input in inputs {
            last = match input {
                Input::Woken => play.woken(),
                input => play.tell(input),
            };
        }
        assert!(
            last.iter().any(|action| action == expected),
            "{name}: {last:?}"
        );
    }
}

#[test]
fn the_first_list_is_believed_whatever_was_written_before() {
    let mut play = Play::new();
    play.tell(Input::Start);
    let listing = Listing {
        version: "7".to_owned(),
        written: 40,
        ..Listing::default()
    };
    assert_eq!(play.tell(Input::Listed(listing)), ["begin []", "watch 7"]);
}
