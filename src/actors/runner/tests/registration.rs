//! What each answer about a registration means, call by call.

use super::objects::*;
use crate::actors::runner::registration::{Call, Registration, Removal, Standing};
use crate::clock::after;
use crate::messages::{ActionsAnswer, ActionsErrorKind, JitConfig, Runner};

const WHO: &str = "acme/pool";

/// In so many seconds the next call may be made; none when at once.
fn wait(registration: &Registration) -> Option<i64> {
    let until = registration.waits_until(start())?;
    Some(until.duration_since(start()).as_secs())
}

fn runner(id: i64, scale_set_id: i64) -> ActionsAnswer {
    ActionsAnswer::Runner(Some(Runner {
        id,
        name: NAME.to_owned(),
        scale_set_id,
    }))
}

#[test]
fn only_an_id_above_0_is_a_registration() {
    for (id, standing, next) in [
        (ID, Standing::Known(ID), Call::Remove(ID)),
        (1, Standing::Known(1), Call::Remove(1)),
        (0, Standing::Unknown, Call::Find),
        (-1, Standing::Unknown, Call::Find),
    ] {
        let Ok(ActionsAnswer::Jit(jit)) = jit() else {
            unreachable!()
        };
        let runner = Runner { id, ..jit.runner };
        let answer = ActionsAnswer::Jit(JitConfig { runner, ..jit });
        let mut registration = Registration::new(Standing::None);
        registration.begin(Call::Generate);
        registration.generated(start(), Ok(answer), WHO);
        assert_eq!(registration.standing, standing, "{id}");
        assert_eq!(registration.next_towards_jit(), next, "{id}");
        assert_eq!(registration.jit.is_some(), id > 0, "{id}");
    }
    for (id, owner, standing) in [
        (ID, 11, Standing::Known(ID)),
        (ID, 12, Standing::None),
        (0, 11, Standing::None),
    ] {
        let mut registration = Registration::new(Standing::Unknown);
        registration.found(start(), Ok(runner(id, owner)), 11, WHO);
        assert_eq!(registration.standing, standing, "{id} of {owner}");
        let taken = registration.taken.is_some();
        assert_eq!(taken, standing == Standing::None, "{id} of {owner}");
    }
}

#[test]
fn an_answer_to_a_removal_says_whether_it_is_over_and_who_is_to_blame() {
    use ActionsErrorKind as Kind;
    let given_up = |kind: Kind| Removal::GivenUp(format!("service: {kind}"));
    for (kind, removal, standing, word) in [
        (
            Kind::RunnerNotFound,
            Some(Removal::Done),
            Standing::Removed,
            None,
        ),
        (
            Kind::JobStillRunning,
            Some(Removal::Refused),
            Standing::Known(ID),
            None,
        ),
        (
            Kind::Credentials,
            Some(given_up(Kind::Credentials)),
            Standing::Known(ID),
            Some("CredentialsUnusable"),
        ),
        (
            Kind::Config,
            Some(given_up(Kind::Config)),
            Standing::Known(ID),
            Some("ConfigInvalid"),
        ),
        (
            Kind::Unauthorized,
            Some(given_up(Kind::Unauthorized)),
            Standing::Known(ID),
            Some("CredentialsRefused"),
        ),
        (
            Kind::Denied,
            Some(Removal::Denied),
            Standing::Known(ID),
            Some("CredentialsForbidden"),
        ),
        (
            Kind::Unavailable,
            None,
            Standing::Known(ID),
            Some("ServiceUnavailable"),
        ),
        (
            Kind::ScaleSetNotFound,
            None,
            Standing::Known(ID),
            Some("ScaleSetNotFound"),
        ),
        (
            Kind::RunnerExists,
            None,
            Standing::Known(ID),
            Some("RunnerNameTaken"),
        ),
        (
            Kind::Other,
            None,
            Standing::Known(ID),
            Some("RegistrationFailed"),
        ),
    ] {
        let mut registration = Registration::new(Standing::Known(ID));
        registration.begin(Call::Remove(ID));
        assert_eq!(
            registration.removed(start(), refused(kind), WHO),
            removal,
            "{kind}"
        );
        assert_eq!(registration.standing, standing, "{kind}");
        assert!(!registration.is_calling(), "{kind}");
        let trouble = registration.trouble().map(|trouble| trouble.code);
        assert_eq!(trouble.as_deref(), word, "{kind}");
        assert_eq!(
            registration.job_runs,
            kind == Kind::JobStillRunning,
            "{kind}"
        );
        assert_eq!(
            registration.is_taken_back(ID),
            standing == Standing::Removed,
            "{kind}"
        );
    }
}

#[test]
fn a_success_ends_the_wait_and_begins_the_count_anew() {
    let mut registration = Registration::new(Standing::None);
    let fails = |registration: &mut Registration| {
        registration.generated(start(), refused(ActionsErrorKind::Unavailable), WHO);
    };
    for _ in 0..5 {
        fails(&mut registration);
    }
    assert!(wait(&registration).unwrap() > 5, "{registration:?}");
    registration.generated(start(), jit(), WHO);
    assert!(registration.is_free(start()) && registration.trouble().is_none());
    assert_eq!(wait(&registration), None);
    fails(&mut registration);
    assert!(wait(&registration).unwrap() <= 1, "{registration:?}");
}

/// The look-up that a conflict leads to is made at once the first time, and later ones wait.
#[test]
fn a_name_that_goes_on_being_taken_is_looked_up_ever_less_often() {
    let mut registration = Registration::new(Standing::None);
    let conflict = || refused(ActionsErrorKind::RunnerExists);
    registration.generated(start(), conflict(), WHO);
    assert_eq!(wait(&registration), None);
    assert_eq!(registration.next_towards_jit(), Call::Find);
    registration.generated(start(), conflict(), WHO);
    assert!(!registration.is_free(start()));
}

#[test]
fn a_wait_is_one_for_a_call_that_is_yet_to_be_made() {
    let mut registration = Registration::new(Standing::None);
    registration.generated(start(), refused(ActionsErrorKind::Unavailable), WHO);
    let until = registration.waits_until(start()).unwrap();
    assert!(!registration.is_free(start()) && registration.is_free(until));
    assert_eq!(registration.waits_until(until), None, "it is over");
    registration.begin(Call::Generate);
    assert_eq!(registration.waits_until(start()), None, "one is under way");
    assert!(!registration.is_free(until));
}

/// One that ended need not wait until it is asked again whether its job runs; other waits stay.
#[test]
fn only_the_waits_for_a_job_are_cut_short() {
    let mut refuses = Registration::new(Standing::Known(ID));
    let mut fails = Registration::new(Standing::Known(ID));
    for _ in 0..8 {
        refuses.removed(start(), refused(ActionsErrorKind::JobStillRunning), WHO);
        fails.removed(start(), refused(ActionsErrorKind::Unavailable), WHO);
    }
    let before = (wait(&refuses), wait(&fails));
    assert_eq!(before.0, Some(300));
    assert!(before.1 > Some(30), "{before:?}");
    refuses.hasten(start());
    fails.hasten(start());
    assert_eq!((wait(&refuses), wait(&fails)), (Some(30), before.1));
    assert!(!refuses.is_first_refusal());
}

#[test]
fn a_look_up_is_given_up_when_credentials_were_of_no_use_for_twenty_seconds() {
    use ActionsErrorKind as Kind;
    let find = |registration: &mut Registration, second: i64, kind| {
        registration.found(after(start(), second), refused(kind), 11, WHO)
    };
    for kind in [Kind::Credentials, Kind::Config] {
        let mut registration = Registration::new(Standing::Unknown);
        assert_eq!(find(&mut registration, 0, kind), None, "{kind}");
        assert_eq!(find(&mut registration, 19, kind), None, "{kind}");
        let given_up = Some(Removal::GivenUp(format!("service: {kind}")));
        assert_eq!(find(&mut registration, 20, kind), given_up, "{kind}");
        // another failure in between, and it is not known to have been so all the time
        let mut registration = Registration::new(Standing::Unknown);
        assert_eq!(find(&mut registration, 0, kind), None, "{kind}");
        assert_eq!(
            find(&mut registration, 10, Kind::Unavailable),
            None,
            "{kind}"
        );
        assert_eq!(find(&mut registration, 20, kind), None, "{kind}");
    }
    let mut registration = Registration::new(Standing::Unknown);
    for second in [0, 100] {
        assert_eq!(find(&mut registration, second, Kind::Unauthorized), None);
    }
    // there is none, which is an answer
    registration.found(start(), refused(Kind::RunnerNotFound), 11, WHO);
    assert_eq!(registration.standing, Standing::None);
}
