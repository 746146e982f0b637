//! Removals, asked for and answered.

use super::*;

fn now() -> Timestamp {
    after(Timestamp::UNIX_EPOCH, 1_800_000_000)
}

fn tenant(name: &str) -> Tenant {
    Tenant {
        config_url: format!("https://github.com/{name}"),
        namespace: format!("ns-{name}"),
        secret: format!("secret-{name}"),
        proxy: None,
        tls: None,
        vault: None,
    }
}

fn removal(name: &str, id: i64) -> ActionsRequest {
    ActionsRequest {
        tenant: tenant(name),
        call: ActionsCall::RemoveRunner { id },
    }
}

fn error(kind: ActionsErrorKind) -> Result<ActionsAnswer, ActionsError> {
    Err(ActionsError {
        kind,
        message: kind.to_string(),
        retry_after: None,
    })
}

/// The one call that is due.
fn only_call(unregistrar: &mut Unregistrar<&str>, now: Timestamp) -> Claim {
    let due = unregistrar.due(now);
    assert_eq!(due.calls.len(), 1);
    assert!(due.answers.is_empty());
    due.calls[0].0
}

#[test]
fn a_removal_is_sent_once_and_answered_to_all_who_asked() {
    let mut unregistrar = Unregistrar::default();
    unregistrar.request("a", removal("acme", 7));
    unregistrar.request("a", removal("acme", 7));
    let claim = only_call(&mut unregistrar, now());
    unregistrar.request("b", removal("acme", 7));
    assert!(unregistrar.due(now()).calls.is_empty());
    unregistrar.finished(claim, Ok(ActionsAnswer::Done), now());
    let due = unregistrar.due(now());
    let askers: Vec<&str> = due.answers.iter().map(|(asker, _)| *asker).collect();
    assert_eq!(askers, ["a", "b"]);
    assert!(due.answers.iter().all(|(_, answer)| answer.is_ok()));
    assert!(unregistrar.is_empty());
}

#[test]
fn one_tenant_has_at_most_so_many_calls_under_way_and_others_do_not_wait_for_it() {
    let mut unregistrar = Unregistrar::new(3);
    for id in 1..=10 {
        unregistrar.request("a", removal("acme", id));
    }
    unregistrar.request("b", removal("other", 1));
    let due = unregistrar.due(now());
    assert_eq!(due.calls.len(), 4);
    unregistrar.finished(due.calls[0].0, Ok(ActionsAnswer::Done), now());
    let next = unregistrar.due(now());
    assert_eq!(next.calls.len(), 1);
    let call = &next.calls[0].1.call;
    assert_eq!(*call, ActionsCall::RemoveRunner { id: 4 }, "in order");
    assert_eq!(unregistrar.len(), 10);
}

#[test]
fn not_found_is_success_and_a_running_job_is_answered_at_once() {
    // (what the service says, whether that is success)
    let table = [
        (ActionsErrorKind::RunnerNotFound, true),
        (ActionsErrorKind::JobStillRunning, false),
    ];
    for (kind, success) in table {
        let mut unregistrar = Unregistrar::default();
        unregistrar.request("a", removal("acme", 7));
        let claim = only_call(&mut unregistrar, now());
        unregistrar.finished(claim, error(kind), now());
        let due = unregistrar.due(now());
        assert_eq!(due.answers.len(), 1, "{kind}");
        assert_eq!(due.answers[0].1.is_ok(), success, "{kind}");
        assert!(unregistrar.is_empty(), "{kind}: it may be asked for again");
    }
}

#[test]
fn other_errors_are_retried_ever_more_slowly_without_an_answer() {
    for kind in [
        ActionsErrorKind::Unavailable,
        ActionsErrorKind::Unauthorized,
        ActionsErrorKind::Other,
    ] {
        let mut unregistrar = Unregistrar::default();
        unregistrar.request("a", removal("acme", 7));
        let mut time = now();
        let mut waits = Vec::new();
        for _ in 0..8 {
            let claim = only_call(&mut unregistrar, time);
            unregistrar.finished(claim, error(kind), time);
            let due = unregistrar.due(time);
            assert!(due.calls.is_empty() && due.answers.is_empty(), "{kind}");
            let wake = due.wake_at.unwrap();
            waits.push(wake.duration_since(time).as_secs());
            time = wake;
        }
        assert!(waits[..6].is_sorted() && waits[0] < 2, "{waits:?}");
        assert!((45..=60).contains(&waits[7]), "{waits:?}");
    }
}

#[test]
fn the_service_is_not_asked_earlier_than_it_wishes() {
    let mut unregistrar = Unregistrar::default();
    unregistrar.request("a", removal("acme", 7));
    let claim = only_call(&mut unregistrar, now());
    let mut busy = error(ActionsErrorKind::Unavailable);
    if let Err(error) = &mut busy {
        error.retry_after = Some(std::time::Duration::from_secs(50));
    }
    unregistrar.finished(claim, busy, now());
    assert_eq!(unregistrar.due(now()).wake_at, Some(after(now(), 50)));
    assert!(unregistrar.due(after(now(), 49)).calls.is_empty());
    assert_eq!(unregistrar.due(after(now(), 50)).calls.len(), 1);
}

#[test]
fn credentials_of_no_use_are_answered_in_the_end() {
    // (what is wrong, seconds that it is put up with)
    let table = [
        (ActionsErrorKind::Credentials, 20),
        (ActionsErrorKind::Config, 20),
        (ActionsErrorKind::Unauthorized, 600),
    ];
    for (kind, patience) in table {
        let mut unregistrar = Unregistrar::default();
        unregistrar.request("a", removal("acme", 7));
        let mut time = now();
        let answered = loop {
            let claim = only_call(&mut unregistrar, time);
            unregistrar.finished(claim, error(kind), time);
            let due = unregistrar.due(time);
            if let Some((_, answer)) = due.answers.into_iter().next() {
                assert_eq!(answer.unwrap_err().kind, kind);
                break time;
            }
            time = due.wake_at.unwrap();
        };
        let waited = answered.duration_since(now()).as_secs();
        assert!(
            (patience..patience + 61).contains(&waited),
            "{kind}: {waited}"
        );

        // the next one learns it from its first try
        unregistrar.request("b", removal("acme", 8));
        let claim = only_call(&mut unregistrar, answered);
        unregistrar.finished(claim, error(kind), answered);
        assert_eq!(unregistrar.due(answered).answers.len(), 1);

        // and a success ends it
        unregistrar.request("c", removal("acme", 9));
        let claim = only_call(&mut unregistrar, answered);
        unregistrar.finished(claim, Ok(ActionsAnswer::Done), answered);
        assert_eq!(unregistrar.due(answered).answers.len(), 1);
        unregistrar.request("d", removal("acme", 10));
        let claim = only_call(&mut unregistrar, answered);
        unregistrar.finished(claim, error(kind), answered);
        assert!(unregistrar.due(answered).answers.is_empty());
    }
}

#[test]
fn the_service_is_never_asked_about_id_0() {
    let mut unregistrar = Unregistrar::default();
    unregistrar.request("a", removal("acme", 0));
    let due = unregistrar.due(now());
    assert!(due.calls.is_empty());
    assert!(due.answers[0].1.is_err());
}

#[test]
fn tenants_that_differ_only_in_their_proxy_are_two() {
    let mut unregistrar = Unregistrar::new(1);
    let mut second = removal("acme", 7);
    second.tenant.proxy = Some(crate::api::ProxyConfig::default());
    unregistrar.request("a", removal("acme", 7));
    unregistrar.request("b", second);
    assert_eq!(unregistrar.due(now()).calls.len(), 2);
}

#[test]
fn a_tenant_without_work_is_forgotten() {
    let mut unregistrar = Unregistrar::default();
    for number in 0..1_000 {
        unregistrar.request("a", removal(&format!("acme-{number}"), 7));
        let claim = only_call(&mut unregistrar, now());
        unregistrar.finished(claim, Ok(ActionsAnswer::Done), now());
        assert_eq!(unregistrar.due(now()).answers.len(), 1);
    }
    assert!(unregistrar.tenants.is_empty() && unregistrar.places.is_empty());

    // one that waits for its next try has work
    unregistrar.request("a", removal("acme", 7));
    let claim = only_call(&mut unregistrar, now());
    unregistrar.finished(claim, error(ActionsErrorKind::Unavailable), now());
    let later = after(now(), 10_000);
    let claim = only_call(&mut unregistrar, later);
    // and one whose credentials are of no use is known for a while
    unregistrar.finished(claim, error(ActionsErrorKind::Credentials), later);
    let later = after(later, 60);
    let claim = only_call(&mut unregistrar, later);
    unregistrar.finished(claim, error(ActionsErrorKind::Credentials), later);
    assert_eq!(unregistrar.due(later).answers.len(), 1);
    assert_eq!(unregistrar.tenants.len(), 1);
    let _nothing = unregistrar.due(after(later, 7_200));
    assert!(unregistrar.tenants.is_empty() && unregistrar.places.is_empty());
}
