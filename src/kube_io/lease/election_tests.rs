//! Every state of a candidate, with every answer that it can get in it.

use super::*;

const TIME: Timestamp = Timestamp::UNIX_EPOCH;

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn candidate() -> Election {
    Election::new("ns".into(), "lease".into(), "me".into())
}

fn spec(holder: &str) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(15),
        lease_transitions: Some(4),
        ..LeaseSpec::default()
    }
}

/// As the API server shows it at that version.
fn lease(holder: &str, version: u64) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some("lease".into()),
            namespace: Some("ns".into()),
            resource_version: Some(version.to_string()),
            ..ObjectMeta::default()
        },
        spec: Some(spec(holder)),
    }
}

fn other(reason: &str) -> Failure {
    Failure::Other(reason.to_owned())
}

fn read(lease: Lease) -> Input {
    Input::Read(Ok(Some(lease)))
}

/// In short: the verb, the version written on and the holder written, and for how long.
fn short(action: &Action) -> String {
    let content = |lease: &Lease| {
        let version = lease.metadata.resource_version.as_deref().unwrap_or("none");
        let holder = lease.spec.as_ref().map_or("nobody", holder_of);
        format!("\"{holder}\" at {version}")
    };
    match action {
        Action::Get { within } => format!("get within {}", within.as_secs()),
        Action::Create { lease, within } => {
            format!("create {} within {}", content(lease), within.as_secs())
        }
        Action::Replace { lease, within } => {
            format!("replace {} within {}", content(lease), within.as_secs())
        }
        Action::Wait(time) => format!("wait {}", time.as_secs()),
        Action::Lost(reason) => format!("lost: {reason}"),
        Action::Released(Ok(())) => "released".to_owned(),
        Action::Released(Err(reason)) => format!("kept: {reason}"),
    }
}

/// Plays inputs at their seconds, and compares each action.
fn play(candidate: &mut Election, script: &[(u64, Input, &str)]) {
    for (number, (second, input, expected)) in script.iter().enumerate() {
        let action = candidate.step(at(*second), TIME, input.clone());
        assert_eq!(short(&action), *expected, "line {number}: {input:?}");
    }
}

/// One that has held the lease since second 0, by a write at version 1.
fn holder() -> Election {
    let mut candidate = candidate();
    play(
        &mut candidate,
        &[
            (0, Input::Due, "get within 10"),
            (0, Input::Read(Ok(None)), "create \"me\" at none within 10"),
            (0, Input::Written(Ok(lease("me", 1))), "wait 2"),
        ],
    );
    assert_eq!(candidate.valid_until(), Some(at(10)));
    candidate
}

#[test]
fn a_follower_waits_for_as_long_as_the_lease_is_seen_to_change() {
    let mut candidate = candidate();
    for round in 0..20_u64 {
        let mut theirs = lease("other", round + 1);
        theirs.spec.get_or_insert_default().renew_time =
            Some(MicroTime(crate::clock::after(TIME, round as i64)));
        play(
            &mut candidate,
            &[
                (round * 10, Input::Due, "get within 10"),
                (round * 10, read(theirs), "wait 2"),
            ],
        );
    }
    assert_eq!(candidate.valid_until(), None);
    assert_eq!(candidate.holder(), "other");
}

#[test]
fn it_takes_a_lease_that_was_seen_unchanged_for_its_time_and_only_that_version() {
    let mut candidate = candidate();
    play(
        &mut candidate,
        &[
            (100, read(lease("other", 7)), "wait 2"),
            (115, read(lease("other", 7)), "wait 2"),
            (
                116,
                read(lease("other", 7)),
                "replace \"me\" at 7 within 10",
            ),
            (117, Input::Written(Err(Failure::Conflict)), "get within 10"),
            // renewed at the last moment, and so it is another wait
            (117, read(lease("another", 8)), "wait 2"),
            (132, read(lease("another", 8)), "wait 2"),
            (
                133,
                read(lease("another", 8)),
                "replace \"me\" at 8 within 10",
            ),
        ],
    );
    assert_eq!(candidate.valid_until(), None, "it has no answer yet");
    play(
        &mut candidate,
        &[(134, Input::Written(Ok(lease("me", 9))), "wait 2")],
    );
    assert_eq!(
        candidate.valid_until(),
        Some(at(143)),
        "from when it was sent"
    );
}

#[test]
fn what_is_free_or_missing_or_ours_is_written_at_once() {
    for (found, expected) in [
        (None, "create \"me\" at none within 10"),
        (Some(lease("", 3)), "replace \"me\" at 3 within 10"),
        (Some(lease("me", 3)), "replace \"me\" at 3 within 10"),
    ] {
        play(&mut candidate(), &[(0, Input::Read(Ok(found)), expected)]);
    }
}

#[test]
fn transitions_count_changes_of_holder() {
    for (holder, expected) in [("", 5), ("me", 4)] {
        let action = candidate().step(at(0), TIME, read(lease(holder, 3)));
        let Action::Replace { lease, .. } = action else {
            panic!("{action:?}");
        };
        let spec = lease.spec.unwrap();
        assert_eq!(spec.lease_transitions, Some(expected), "{holder}");
        assert_eq!(spec.lease_duration_seconds, Some(15));
    }
}

#[test]
fn durations_that_make_no_sense_are_the_usual_one() {
    for (seconds, expires) in [(None, 15), (Some(-1), 15), (Some(0), 0), (Some(60), 60)] {
        let mut theirs = lease("other", 3);
        theirs.spec.get_or_insert_default().lease_duration_seconds = seconds;
        play(
            &mut candidate(),
            &[
                (0, read(theirs.clone()), "wait 2"),
                (expires, read(theirs.clone()), "wait 2"),
                (
                    expires + 1,
                    read(theirs.clone()),
                    "replace \"me\" at 3 within 10",
                ),
            ],
        );
    }
}

#[test]
fn nothing_is_written_without_a_resource_version() {
    let mut bare = lease("", 3);
    bare.metadata.resource_version = None;
    play(&mut candidate(), &[(0, read(bare.clone()), "wait 2")]);
    let mut candidate = candidate();
    bare.spec = Some(spec("me"));
    play(
        &mut candidate,
        &[
            (0, Input::Release, "get within 2"),
            (0, read(bare), "released"),
        ],
    );
}

#[test]
fn a_lease_that_a_person_deletes_still_holds_for_its_time() {
    let mut candidate = candidate();
    play(
        &mut candidate,
        &[
            (0, read(lease("other", 7)), "wait 2"),
            (2, Input::Read(Ok(None)), "wait 2"),
            (15, Input::Read(Ok(None)), "wait 2"),
            (16, Input::Read(Ok(None)), "create \"me\" at none within 10"),
        ],
    );
}

#[test]
fn a_holder_renews_on_the_version_it_wrote_and_counts_from_the_sending() {
    let mut holder = holder();
    play(
        &mut holder,
        &[
            (2, Input::Due, "replace \"me\" at 1 within 8"),
            // late, but in time
            (9, Input::Written(Ok(lease("me", 2))), "wait 2"),
        ],
    );
    assert_eq!(holder.valid_until(), Some(at(12)), "and not 19");
    play(
        &mut holder,
        &[
            (11, Input::Due, "replace \"me\" at 2 within 1"),
            (
                12,
                Input::Written(Ok(lease("me", 3))),
                "lost: it was not renewed in time",
            ),
        ],
    );
}

#[test]
fn a_holder_gives_up_at_the_end_of_its_time_whatever_it_hears() {
    let late = [
        Input::Due,
        Input::Read(Ok(None)),
        read(lease("me", 1)),
        Input::Read(Err(other("no"))),
        Input::Written(Ok(lease("me", 2))),
        Input::Written(Err(Failure::Conflict)),
        Input::Written(Err(other("no"))),
    ];
    for input in late {
        let mut holder = holder();
        let action = holder.step(at(10), TIME, input.clone());
        assert!(matches!(action, Action::Lost(_)), "{input:?}: {action:?}");
    }
}

#[test]
fn a_holder_tries_again_while_it_has_time_and_says_what_was_in_the_way() {
    let mut holder = holder();
    play(
        &mut holder,
        &[
            (2, Input::Due, "replace \"me\" at 1 within 8"),
            (3, Input::Written(Err(other("500"))), "wait 2"),
            // the write may have happened, so it is read what the version is
            (5, Input::Due, "get within 5"),
            (6, Input::Read(Err(other("502"))), "wait 2"),
            (8, Input::Due, "get within 2"),
            (9, Input::Read(Err(other("503"))), "wait 1"),
            (10, Input::Due, "lost: 503"),
        ],
    );
}

#[test]
fn a_holder_goes_on_when_a_read_shows_that_it_is_still_the_holder() {
    let mut holder = holder();
    play(
        &mut holder,
        &[
            (2, Input::Due, "replace \"me\" at 1 within 8"),
            (
                4,
                Input::Written(Err(other("the answer was lost"))),
                "wait 2",
            ),
            (6, Input::Due, "get within 4"),
            (6, read(lease("me", 2)), "replace \"me\" at 2 within 4"),
            (7, Input::Written(Ok(lease("me", 3))), "wait 2"),
        ],
    );
    assert_eq!(holder.valid_until(), Some(at(16)));
}

#[test]
fn a_holder_that_finds_another_in_its_place_has_lost() {
    let mut holder = holder();
    play(
        &mut holder,
        &[
            (2, Input::Due, "replace \"me\" at 1 within 8"),
            (2, Input::Written(Err(Failure::Conflict)), "get within 8"),
            (3, read(lease("other", 2)), "lost: other holds it"),
        ],
    );
}

#[test]
fn a_lease_that_is_changed_all_the_time_is_not_tried_in_a_hot_loop() {
    let mut holder = holder();
    play(
        &mut holder,
        &[
            (2, Input::Due, "replace \"me\" at 1 within 8"),
            (2, Input::Written(Err(Failure::Conflict)), "get within 8"),
            (2, read(lease("me", 2)), "replace \"me\" at 2 within 8"),
            (2, Input::Written(Err(Failure::Conflict)), "wait 2"),
        ],
    );
}

#[test]
fn a_holder_makes_a_deleted_lease_again() {
    let mut holder = holder();
    play(
        &mut holder,
        &[
            (2, Input::Due, "replace \"me\" at 1 within 8"),
            (2, Input::Written(Err(Failure::Conflict)), "get within 8"),
            (2, Input::Read(Ok(None)), "create \"me\" at none within 8"),
            (3, Input::Written(Ok(lease("me", 5))), "wait 2"),
        ],
    );
    assert_eq!(holder.valid_until(), Some(at(12)));
}

#[test]
fn a_take_over_whose_answer_comes_too_late_is_none_until_it_is_renewed() {
    let mut candidate = candidate();
    play(
        &mut candidate,
        &[
            (0, read(lease("", 3)), "replace \"me\" at 3 within 10"),
            (10, Input::Written(Ok(lease("me", 4))), "get within 10"),
        ],
    );
    assert_eq!(candidate.valid_until(), None);
    play(
        &mut candidate,
        &[
            (11, read(lease("me", 4)), "replace \"me\" at 4 within 10"),
            (12, Input::Written(Ok(lease("me", 5))), "wait 2"),
        ],
    );
    assert_eq!(candidate.valid_until(), Some(at(21)));
}

#[test]
fn only_what_is_ours_is_released_and_what_became_of_it_is_told() {
    let conflict = || Input::Written(Err(Failure::Conflict));
    let free = "replace \"\" at 5 within 2";
    for script in [
        vec![
            (3, read(lease("me", 5)), free),
            (3, Input::Written(Ok(lease("", 6))), "released"),
        ],
        vec![(3, read(lease("other", 5)), "released")],
        vec![(3, Input::Read(Ok(None)), "released")],
        vec![(3, Input::Read(Err(other("no"))), "kept: no")],
        vec![
            (3, read(lease("me", 5)), free),
            (4, Input::Written(Err(other("no"))), "kept: no"),
        ],
        // a renewal that was under way still arrived
        vec![
            (3, read(lease("me", 5)), free),
            (3, conflict(), "get within 2"),
            (3, read(lease("me", 6)), "replace \"\" at 6 within 2"),
            (3, conflict(), "get within 2"),
            (3, read(lease("me", 7)), "replace \"\" at 7 within 2"),
            (3, conflict(), "kept: it is being changed by others"),
        ],
    ] {
        let mut holder = holder();
        play(&mut holder, &[(2, Input::Release, "get within 2")]);
        play(&mut holder, &script);
    }
}

#[test]
fn a_lease_is_released_also_when_its_time_is_over_if_it_still_says_us() {
    let mut holder = holder();
    play(
        &mut holder,
        &[
            (20, Input::Release, "get within 2"),
            (20, read(lease("me", 5)), "replace \"\" at 5 within 2"),
        ],
    );
}
