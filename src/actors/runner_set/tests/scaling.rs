//! Counts and the listener's patches.

use serde_json::json;

use super::world::{Fault, SET, World};
use crate::api::EphemeralRunnerPhase;
use crate::api::constants::annotations;
use crate::messages::{ActionsErrorKind, Kind, KubeErrorKind};

#[test]
fn the_first_status_write_carries_current_replicas_even_when_0() {
    let mut world = World::new();
    world.settle();
    let first = world
        .log
        .iter()
        .find(|line| line.contains("status"))
        .unwrap();
    assert!(first.contains(r#""currentReplicas":0"#), "{first}");
}

#[test]
fn a_set_at_rest_writes_nothing() {
    let mut world = World::new();
    world.scale(3, 1);
    world.advance(30);
    let writes = world.writes();
    let requests = world.requests;
    world.advance(3_600);
    assert_eq!((world.writes(), world.requests), (writes, requests));
}

#[test]
fn only_the_last_runner_of_a_scale_up_carries_the_new_patch() {
    let mut world = World::new();
    world.scale(1, 6);
    world.scale(4, 7);
    let mut stamps: Vec<String> = world
        .live()
        .iter()
        .map(|name| world.annotation(name, annotations::PATCH_ID))
        .collect();
    stamps.sort();
    assert_eq!(stamps, ["6", "6", "6", "7"]);
}

#[test]
fn a_scale_up_cut_short_by_a_crash_is_completed_under_the_same_patch() {
    let mut world = World::new();
    world.scale(1, 6);
    // three are accepted, then the process dies
    let requests = world.requests;
    world.fault = Some(Fault::CrashAfter(requests + 3));
    world.scale(5, 7);
    world.advance(10);
    assert_eq!(world.live().len(), 5);
    assert!(world.violations.is_empty(), "{:?}", world.violations);
}

#[test]
fn creates_that_fail_are_retried_under_the_same_patch() {
    let mut world = World::new();
    world
        .refuse_creates
        .insert(Kind::EphemeralRunner, KubeErrorKind::Unavailable);
    world.scale(3, 1);
    assert!(world.live().is_empty());
    let tried = world.count("create EphemeralRunner");
    world.advance(60);
    let more = world.count("create EphemeralRunner") - tried;
    assert!((1..30).contains(&more), "backed off: {more} in a minute");
    world.refuse_creates.clear();
    world.advance(60);
    assert_eq!(world.live().len(), 3);
}

#[test]
fn refused_creates_are_reported_with_the_servers_words() {
    let mut world = World::new();
    world
        .refuse_creates
        .insert(Kind::EphemeralRunner, KubeErrorKind::QuotaExceeded);
    world.scale(1, 1);
    let problem = world.report.clone().unwrap().problem.unwrap();
    assert_eq!(problem.code, "RunnerRefused");
    assert!(problem.message.contains("QuotaExceeded"), "{problem:?}");
    world.refuse_creates.clear();
    world.advance(30);
    assert_eq!(
        world.report.clone().unwrap().problem,
        None,
        "{:#?}",
        world.log
    );
}

#[test]
fn at_most_64_creates_are_under_way() {
    let mut world = World::new();
    world.hang.push("create EphemeralRunner");
    world.scale(200, 1);
    world.advance(60);
    assert_eq!(world.hanging_count(), 64);
    world.unhang();
    assert_eq!(world.live().len(), 200);
    assert!(world.violations.is_empty(), "{:?}", world.violations);
}

#[test]
fn the_warm_minimum_refills_and_shrinks_under_patch_0() {
    let mut world = World::new();
    world.scale(2, 0);
    let names = world.live();
    world.exit(&names[0], 0);
    assert_eq!(world.live().len(), 2, "refilled without a new patch");
    assert!(!world.live().contains(&names[0]));
    world.scale(0, 0);
    assert_eq!(world.count("remove_runner"), 3, "one of them by itself");
    assert!(world.live().is_empty());
    assert!(world.registered.is_empty());
}

#[test]
fn nothing_is_removed_under_another_patch_than_0() {
    let mut world = World::new();
    world.auto_start = false;
    world.scale(1, 1);
    let names = world.live();
    world.scale(0, 2);
    world.advance(300);
    assert_eq!(world.live(), names);
    assert_eq!(world.names(Kind::Pod), names);
    assert_eq!(world.count("remove_runner"), 0);
    world.scale(1, 3);
    assert_eq!(world.created.len(), 1);
}

#[test]
fn a_scale_down_skips_busy_and_unregistered_runners_and_takes_the_next_after_a_refusal() {
    let mut world = World::new();
    world.scale(2, 1);
    let busy = world.live();
    for name in &busy {
        world.busy(name);
    }
    world.advance(10);
    world.scale(3, 2);
    let older = new_one(&world, &busy);
    world.advance(10);
    world.scale(4, 3);
    let younger = new_one(&world, &[busy.clone(), vec![older.clone()]].concat());
    world.advance(10);
    world.hang.push("GenerateJitConfig");
    world.scale(5, 4);
    // the service has just given it a job that no one has heard of
    set_busy(&mut world, &older, true);
    world.scale(1, 0);
    let left = world.live();
    assert_eq!(left.len(), 4, "{:#?}", world.log);
    assert!(!left.contains(&younger));
    assert_eq!(world.count("remove_runner"), 2);

    set_busy(&mut world, &older, false);
    world.unhang();
    world.advance(60);
    assert_eq!(world.live(), busy, "{:#?}", world.log);
    assert!(world.violations.is_empty(), "{:?}", world.violations);
}

#[test]
fn a_scale_down_asks_as_many_as_there_are_too_many_and_the_oldest_first() {
    let mut world = World::new();
    world.scale(1, 1);
    let oldest = world.live().remove(0);
    world.advance(10);
    world.scale(4, 2);
    world.scale(3, 0);
    assert!(!world.live().contains(&oldest));
    assert_eq!(world.live().len(), 3);
    assert_eq!(world.count("remove_runner"), 1);
}

#[test]
fn an_unregistered_runner_is_left_alone_for_two_minutes() {
    let mut world = World::new();
    world.hang.push("GenerateJitConfig");
    world.scale(1, 0);
    world.scale(0, 0);
    world.advance(100);
    assert_eq!(world.live().len(), 1);
    world.advance(120);
    assert!(world.live().is_empty());
    assert_eq!(world.count("remove_runner"), 0, "never asked about id 0");
    world.unhang();
    assert!(world.registered.is_empty(), "{:#?}", world.log);
    assert!(world.names(Kind::EphemeralRunner).is_empty());
}

#[test]
fn a_runner_deleted_by_a_person_is_replaced_under_the_same_patch() {
    let mut world = World::new();
    world.scale(2, 3);
    let names = world.live();
    world.delete(Kind::EphemeralRunner, &names[0]);
    world.advance(10);
    assert_eq!(world.live().len(), 2, "{:#?}", world.log);
    assert!(world.names(Kind::EphemeralRunner).len() == 2);
}

#[test]
fn a_broken_template_backs_off_keeps_one_to_look_at_and_recovers() {
    let mut world = World::new();
    world
        .refuse_creates
        .insert(Kind::Pod, KubeErrorKind::Invalid);
    world.scale(3, 1);
    world.advance(600);
    let failed = world.live();
    assert_eq!(failed.len(), 1, "{failed:?}");
    let er = world.runner(&failed[0]).unwrap().status.unwrap();
    assert_eq!(er.phase, Some(EphemeralRunnerPhase::Failed));
    assert_eq!(er.reason.as_deref(), Some("PodInvalid"));
    let made = world.created.len();
    assert!((9..=30).contains(&made), "{made} made in ten minutes");
    assert_eq!(
        world.report.clone().unwrap().problem.unwrap().code,
        "PodInvalid"
    );

    world.refuse_creates.clear();
    world.advance(360);
    assert_eq!(world.live().len(), 3, "{:#?}", world.log);
    assert!(
        !world.live().contains(&failed[0]),
        "it goes with the next success"
    );
    assert_eq!(
        world.set().status.unwrap().failed_ephemeral_runners,
        Some(0)
    );
    assert!(world.violations.is_empty(), "{:?}", world.violations);
}

#[test]
fn counts_are_written_at_most_once_a_second_and_the_last_value_lands() {
    let mut world = World::new();
    world.settle();
    let before = world.count("patch EphemeralRunnerSet");
    world.scale(50, 1);
    let writes = world.count("patch EphemeralRunnerSet") - before;
    assert!(writes <= 4, "{writes} in three seconds");
    let status = world.set().status.unwrap();
    assert_eq!(status.pending_ephemeral_runners, Some(50));
    assert_eq!(status.current_replicas, 50);
}

#[test]
fn deletion_waits_for_busy_runners_and_ends_with_the_finalizer() {
    let mut world = World::new();
    world.scale(2, 1);
    let names = world.live();
    world.busy(&names[0]);
    world.delete(Kind::EphemeralRunnerSet, SET);
    world.advance(90);
    assert_eq!(world.names(Kind::EphemeralRunner), [names[0].clone()]);
    assert_eq!(world.names(Kind::EphemeralRunnerSet), [SET]);
    world.exit(&names[0], 0);
    world.advance(7);
    assert!(world.names(Kind::EphemeralRunner).is_empty());
    assert!(world.names(Kind::EphemeralRunnerSet).is_empty());
    assert!(world.report.clone().unwrap().set.is_none());
    assert!(world.violations.is_empty(), "{:?}", world.violations);
}

#[test]
fn deletion_does_not_wait_for_credentials_that_are_gone() {
    let mut world = World::new();
    world.scale(2, 1);
    let names = world.live();
    world.busy(&names[0]);
    world
        .refuse_calls
        .insert("remove_runner", ActionsErrorKind::Credentials);
    world.delete(Kind::EphemeralRunnerSet, SET);
    world.advance(30);
    world.exit(&names[0], 0);
    world.advance(27);
    assert!(
        world.names(Kind::EphemeralRunner).is_empty(),
        "{:#?}",
        world.log
    );
    assert!(world.names(Kind::EphemeralRunnerSet).is_empty());
    assert!(world.events.contains(&"RegistrationLeft"));
}

// === the proxy Secret ===

#[test]
fn runners_wait_for_their_proxy_secret_which_follows_its_sources_and_goes_at_the_end() {
    let mut world = World::new();
    world.set_spec(json!({
        "ephemeralRunnerSpec": { "proxy": { "http": {
            "url": "http://proxy.test:3128", "credentialSecretRef": "proxy-login" } } }
    }));
    world.scale(1, 1);
    assert!(world.live().is_empty());
    let problem = world.report.clone().unwrap().problem.unwrap();
    assert!(problem.message.contains("proxy-login"), "{problem:?}");

    // "user" and "secret-1"
    world.put_secret(
        "proxy-login",
        &json!({ "username": "dXNlcg==", "password": "c2VjcmV0LTE=" }),
    );
    world.advance(70);
    assert_eq!(world.live().len(), 1, "{:#?}", world.log);
    let secret = "pool-754b578d-runner-proxy";
    let first = world.value(Kind::Secret, secret)["data"].clone();

    world.put_secret("proxy-login", &json!({ "password": "c2VjcmV0LTI=" }));
    world.advance(70);
    assert_ne!(world.value(Kind::Secret, secret)["data"], first);
    let writes = world.writes();
    world.advance(600);
    assert_eq!(world.writes(), writes);
    assert!(!world.log.iter().any(|line| line.contains("secret-")));

    world.delete(Kind::EphemeralRunnerSet, SET);
    world.advance(10);
    assert_eq!(world.names(Kind::Secret), ["proxy-login"]);
    assert!(world.names(Kind::EphemeralRunnerSet).is_empty());
}

const PROXY_SECRET: &str = "pool-754b578d-runner-proxy";

/// With a proxy under revision 2 and two runners, and then without it under revision 3.
fn with_proxy_taken_away() -> (World, String) {
    let mut world = World::new();
    world.put_secret(
        "proxy-login",
        &json!({ "username": "dXNlcg==", "password": "c2VjcmV0LTE=" }),
    );
    world.set_spec(json!({
        "actionableRevision": 2,
        "ephemeralRunnerSpec": { "proxy": { "http": {
            "url": "http://proxy.test:3128", "credentialSecretRef": "proxy-login" } } }
    }));
    world.scale(2, 1);
    world.advance(10);
    let busy = world.live().remove(0);
    world.busy(&busy);
    world.set_spec(json!({ "actionableRevision": 3, "ephemeralRunnerSpec": { "proxy": null } }));
    world.advance(60);
    assert_eq!(world.live().len(), 2, "{:#?}", world.log);
    (world, busy)
}

fn has_proxy_secret(world: &World) -> bool {
    world.names(Kind::Secret).contains(&PROXY_SECRET.to_owned())
}

#[test]
fn the_proxy_secret_stays_for_runners_made_with_it_and_goes_after_the_last() {
    let (mut world, busy) = with_proxy_taken_away();
    assert!(has_proxy_secret(&world), "a runner refers to it");
    world.exit(&busy, 0);
    world.scale(1, 2);
    world.advance(60);
    assert!(!has_proxy_secret(&world), "{:#?}", world.log);
    assert!(world.violations.is_empty(), "{:?}", world.violations);
}

#[test]
fn a_proxy_secret_that_is_of_no_use_is_found_after_a_restart_with_one_read() {
    let (mut world, busy) = with_proxy_taken_away();
    world.restart();
    world.advance(10);
    world.exit(&busy, 0);
    world.scale(1, 2);
    world.advance(60);
    assert!(!has_proxy_secret(&world), "{:#?}", world.log);
    world.restart();
    let before = world.log.len();
    world.advance(3_600);
    let reads = world.log[before..]
        .iter()
        .filter(|line| line.contains(PROXY_SECRET));
    assert_eq!(reads.count(), 1);
}

#[test]
fn a_set_that_never_had_a_proxy_does_not_look_for_its_secret() {
    let mut world = World::new();
    world.scale(1, 1);
    world.restart();
    world.advance(600);
    assert!(!world.log.iter().any(|line| line.contains(PROXY_SECRET)));
}

fn new_one(world: &World, known: &[String]) -> String {
    let mut fresh = world.live();
    fresh.retain(|name| !known.contains(name));
    assert_eq!(fresh.len(), 1);
    fresh.remove(0)
}

fn set_busy(world: &mut World, name: &str, busy: bool) {
    for registered in world.registered.values_mut() {
        if registered.name == name {
            registered.busy = busy;
        }
    }
}
