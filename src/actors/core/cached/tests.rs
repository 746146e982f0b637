use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::*;
use crate::messages::{Kind, Object};

fn pod(uid: &str, version: u64) -> Arc<Pod> {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.to_owned());
    pod.metadata.resource_version = Some(version.to_string());
    Arc::new(pod)
}

fn answer(pod: &Arc<Pod>) -> Result<KubeAnswer, KubeError> {
    Ok(KubeAnswer::Object(Object::Pod(pod.clone())))
}

fn error(kind: KubeErrorKind) -> Result<KubeAnswer, KubeError> {
    Err(KubeError {
        kind,
        message: "no".to_owned(),
        retry_after: None,
    })
}

fn who() -> ObjectRef {
    ObjectRef::new(Kind::Pod, "ci", "a")
}

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

#[test]
fn events_move_a_copy_forward_only() {
    let mut cached = Cached::present(pod("u", 9));
    assert!(!cached.observe(pod("u", 9)));
    assert!(!cached.observe(pod("u", 3)));
    assert!(cached.observe(pod("u", 10)));
}

#[test]
fn a_write_is_read_back_from_its_answer_and_older_events_are_dropped() {
    let mut cached = Cached::<Pod>::absent();
    cached.begin(NOW, FREELY, &mut Wake::default());
    assert!(!cached.is_free(NOW));
    cached.finish(NOW, Verb::Read, &answer(&pod("u", 20)), &who());
    assert!(cached.is_free(NOW));
    assert!(!cached.observe(pod("u", 19)));
    assert_eq!(version(cached.get().unwrap().as_ref()), 20);
}

#[test]
fn an_answer_that_the_watch_has_overtaken_changes_nothing() {
    let mut cached = Cached::present(pod("u", 5));
    cached.begin(NOW, FREELY, &mut Wake::default());
    cached.observe(pod("u", 8));
    cached.finish(NOW, Verb::Read, &answer(&pod("u", 7)), &who());
    assert_eq!(version(cached.get().unwrap().as_ref()), 8);
}

#[test]
fn the_dead_do_not_come_back_by_late_events_or_answers() {
    let mut cached = Cached::present(pod("u", 5));
    assert!(cached.observe_gone("u"));
    assert!(!cached.observe(pod("u", 6)));
    cached.finish(NOW, Verb::Read, &answer(&pod("u", 7)), &who());
    assert!(cached.is_absent());
    assert!(cached.observe(pod("successor", 8)));
    assert!(!cached.observe_gone("u"));
    assert!(cached.get().is_some());
}

#[test]
fn what_may_or_may_not_have_happened_is_read_next_after_a_back_off() {
    for kind in [
        KubeErrorKind::Unanswered,
        KubeErrorKind::Conflict,
        KubeErrorKind::AlreadyExists,
    ] {
        let mut cached = Cached::present(pod("u", 5));
        cached.begin(NOW, FREELY, &mut Wake::default());
        cached.finish(NOW, Verb::Read, &error(kind), &who());
        assert!(cached.is_unknown(), "{kind:?}");
        assert!(!cached.is_free(NOW));
        let at = cached.waits_until(NOW).unwrap();
        assert!(cached.is_free(at));
    }
}

#[test]
fn what_a_watch_shows_settles_what_an_error_left_open() {
    let mut cached = Cached::<Pod>::absent();
    cached.begin(NOW, FREELY, &mut Wake::default());
    cached.finish(
        NOW,
        Verb::Read,
        &error(KubeErrorKind::AlreadyExists),
        &who(),
    );
    assert!(cached.last_error().is_some());
    assert!(cached.observe(pod("u", 5)));
    assert!(cached.last_error().is_none());
    assert!(!cached.is_free(NOW), "the back-off stays");

    cached.finish(NOW, Verb::Read, &error(KubeErrorKind::Invalid), &who());
    assert!(cached.observe(pod("u", 6)));
    let refused = cached.last_error().map(|error| error.kind);
    assert_eq!(refused, Some(KubeErrorKind::Invalid), "it is refused still");
}

#[test]
fn a_late_answer_that_there_is_none_does_not_bury_who_came_since() {
    let answers = || [error(KubeErrorKind::NotFound), Ok(KubeAnswer::Deleted)];
    for late in answers() {
        let before: [fn() -> Cached<Pod>; 3] = [
            || Cached::present(pod("old", 5)),
            Cached::absent,
            Cached::default,
        ];
        for cached in before {
            let mut cached = cached();
            cached.begin(NOW, FREELY, &mut Wake::default());
            assert!(cached.observe(pod("new", 9)));
            cached.finish(NOW, Verb::Read, &late, &who());
            let uid = cached.get().and_then(|pod| pod.metadata.uid.clone());
            assert_eq!(uid.as_deref(), Some("new"), "{late:?}");
            assert!(cached.is_free(NOW), "{late:?}");
            // and what comes late of the one before says nothing
            cached.observe_gone("old");
            assert!(!cached.observe(pod("old", 6)), "{late:?}");
            assert!(cached.observe_gone("new"), "{late:?}");
        }
    }
    for answer in answers() {
        let mut cached = Cached::present(pod("u", 5));
        cached.begin(NOW, FREELY, &mut Wake::default());
        // the same, as it was marked to go
        assert!(cached.observe(pod("u", 9)));
        cached.finish(NOW, Verb::Read, &answer, &who());
        assert!(cached.is_absent(), "{answer:?}");
        assert!(!cached.observe(pod("u", 10)), "{answer:?}");
    }
}

#[test]
fn not_found_is_an_answer() {
    let mut cached = Cached::present(pod("u", 5));
    cached.begin(NOW, FREELY, &mut Wake::default());
    cached.finish(NOW, Verb::Read, &error(KubeErrorKind::NotFound), &who());
    assert!(cached.is_absent() && cached.is_free(NOW));
}

#[test]
fn failures_back_off_further_each_time_and_a_success_forgives() {
    let mut cached = Cached::present(pod("u", 5));
    let mut waits = Vec::new();
    for _ in 0..3 {
        cached.begin(NOW, FREELY, &mut Wake::default());
        cached.finish(NOW, Verb::Read, &error(KubeErrorKind::Unavailable), &who());
        waits.push(cached.waits_until(NOW).unwrap());
    }
    assert!(waits.is_sorted() && waits[0] < waits[2]);
    assert!(cached.get().is_some(), "the copy is as good as before");
    cached.finish(NOW, Verb::Read, &answer(&pod("u", 6)), &who());
    assert!(cached.is_free(NOW) && cached.last_error().is_none());
}

#[test]
fn the_server_may_ask_for_a_longer_wait() {
    let mut cached = Cached::present(pod("u", 5));
    let asked = KubeError {
        kind: KubeErrorKind::Unavailable,
        message: String::new(),
        retry_after: Some(Duration::from_secs(90)),
    };
    cached.finish(NOW, Verb::Read, &Err(asked), &who());
    assert_eq!(
        cached.waits_until(NOW).unwrap(),
        crate::clock::after(NOW, 90)
    );
}

#[test]
fn a_read_between_two_writes_that_fail_does_not_shorten_the_wait() {
    for (verb, kind, found) in [
        (Verb::Patch, KubeErrorKind::Unanswered, true),
        (Verb::Patch, KubeErrorKind::Conflict, true),
        (Verb::Delete, KubeErrorKind::Unanswered, true),
        (Verb::Create, KubeErrorKind::Unanswered, false),
    ] {
        let mut cached = Cached::<Pod>::default();
        let (mut now, mut waits) = (NOW, Vec::new());
        for round in 0..6 {
            cached.begin(now, FREELY, &mut Wake::default());
            cached.finish(now, verb, &error(kind), &who());
            let until = cached.waits_until(now).unwrap();
            waits.push(until.duration_since(now));
            now = until;
            cached.begin(now, FREELY, &mut Wake::default());
            let read = match found {
                true => answer(&pod("u", 5 + round)),
                false => error(KubeErrorKind::NotFound),
            };
            cached.finish(now, Verb::Read, &read, &who());
            assert!(
                cached.is_free(now),
                "{verb:?} {kind:?}: what was read is acted on at once"
            );
        }
        assert!(waits[5] > waits[0] * 8, "{verb:?} {kind:?}: {waits:?}");
        // a write that succeeds is the end of it
        cached.finish(now, verb, &answer(&pod("u", 99)), &who());
        cached.finish(now, verb, &error(kind), &who());
        let wait = cached.waits_until(now).unwrap().duration_since(now);
        assert!(wait < waits[1], "{verb:?} {kind:?}");
    }
}

#[test]
fn a_late_answer_about_a_predecessor_changes_nothing_of_its_successor() {
    // what the watch has shown by the time the answer comes
    type Show = fn(&mut Cached<Pod>);
    let shown: [(&str, Show); 3] = [
        ("both", |cached| {
            cached.observe_gone("old");
            cached.observe(pod("new", 9));
        }),
        ("the new one first", |cached| {
            cached.observe(pod("new", 9));
            cached.observe_gone("old");
        }),
        ("only the new one", |cached| {
            cached.observe(pod("new", 9));
        }),
    ];
    for (name, show) in shown {
        for verb in [Verb::Read, Verb::Patch, Verb::Delete] {
            let mut cached = Cached::present(pod("old", 5));
            cached.begin(NOW, FREELY, &mut Wake::default());
            show(&mut cached);
            cached.finish(NOW, verb, &answer(&pod("old", 6)), &who());
            let uid = cached.get().and_then(|pod| pod.metadata.uid.clone());
            assert_eq!(uid.as_deref(), Some("new"), "{name} {verb:?}");
            assert!(cached.is_free(NOW));
        }
    }
}

#[test]
fn an_answer_that_was_asked_for_after_an_object_was_shown_to_be_gone_is_believed() {
    let mut cached = Cached::present(pod("u", 5));
    cached.observe_gone("u");
    cached.begin(NOW, FREELY, &mut Wake::default());
    cached.finish(NOW, Verb::Read, &answer(&pod("u", 7)), &who());
    assert!(cached.get().is_some());
    assert!(
        cached.observe(pod("u", 8)),
        "and so is the watch from now on"
    );
}

#[test]
fn a_read_that_shows_another_of_the_name_is_taken() {
    let mut cached = Cached::present(pod("old", 5));
    cached.begin(NOW, FREELY, &mut Wake::default());
    cached.finish(NOW, Verb::Read, &answer(&pod("new", 9)), &who());
    let uid = cached.get().and_then(|pod| pod.metadata.uid.clone());
    assert_eq!(uid.as_deref(), Some("new"));
}
