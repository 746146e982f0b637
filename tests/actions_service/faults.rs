//! Each fault that can be asked for by name, as the real client meets it.

use std::time::Duration;

use embedded_actions::JobSpec;
use impresario::actions::{ErrorKind, JobMessage, Polled, Statistics};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::World;

#[tokio::test(start_paused = true)]
async fn a_refusal_is_met_as_what_it_is_and_has_no_effect() {
    let world = World::new();
    let set = world.scale_set("linux").await;
    let (id, _) = world.runner(set, "linux-1").await;
    for (fault, status, kind) in [
        ("unauthorized", Some(401), ErrorKind::Unauthorized),
        ("forbidden", Some(403), ErrorKind::Unauthorized),
        ("not-found", Some(404), ErrorKind::RunnerNotFound),
        ("too-many-requests", Some(429), ErrorKind::Unavailable),
        ("internal-error", Some(500), ErrorKind::Unavailable),
        ("bad-gateway", Some(502), ErrorKind::Unavailable),
        ("unavailable", Some(503), ErrorKind::Unavailable),
        ("runner-exists", Some(409), ErrorKind::RunnerExists),
        ("runner-not-found", Some(404), ErrorKind::RunnerNotFound),
        ("job-still-running", Some(400), ErrorKind::JobStillRunning),
        ("scale-set-gone", Some(404), ErrorKind::ScaleSetNotFound),
        ("hang", None, ErrorKind::Unavailable),
        ("unreachable", None, ErrorKind::Unavailable),
        ("connection-reset", None, ErrorKind::Unavailable),
    ] {
        world.ask("remove_runner", json!({"fault": fault}));
        let error = world.client.remove_runner(id).await.unwrap_err();
        assert_eq!(
            (error.status, error.kind),
            (status, kind),
            "{fault}: {error}"
        );
        assert_eq!(world.service.runners().len(), 1, "{fault}");
    }
    world.service.faults().clear("remove_runner");
    world.client.remove_runner(id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_that_repeats_the_token_does_not_get_it_into_an_error() {
    let world = World::new();
    world.ask_once("create_registration_token", json!({"fault": "echo"}));
    let error = world.client.get_runner_group("default").await.unwrap_err();
    assert_eq!(error.status, Some(400));
    let text = format!("{error} {error:?}");
    assert!(text.contains("makes sense"), "{text}");
    assert!(!text.contains(crate::world::TOKEN), "{text}");
}

#[tokio::test(start_paused = true)]
async fn waits_that_are_asked_for_are_told() {
    let world = World::new();
    let set = world.scale_set("linux").await;
    for (fault, seconds) in [
        (json!({"fault": "rate-limited", "resetAfter": 600}), 601),
        (json!({"fault": "too-many-requests", "retryAfter": 45}), 45),
        (json!({"fault": "unavailable", "retryAfter": 50}), 50),
    ] {
        world.ask("get_scale_set", fault.clone());
        let error = world.client.get_scale_set(set).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable, "{fault}");
        let wait = Duration::from_secs(seconds);
        assert_eq!(error.retry_after, Some(wait), "{fault}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_takes_its_time_and_a_lost_answer_has_taken_effect() {
    let world = World::new();
    let set = world.scale_set("linux").await;
    world.ask_once(
        "get_scale_set",
        json!({"fault": "slow", "milliseconds": 700}),
    );
    let began = Instant::now();
    assert!(world.client.get_scale_set(set).await.unwrap().is_some());
    assert_eq!(began.elapsed(), Duration::from_millis(700));

    world.ask_once("generate_jit_config", json!({"fault": "answer-lost"}));
    // a call about a runner is sent once: who asked for it asks again
    let lost = world.client.generate_jit_config(set, "linux-1", "").await;
    assert_eq!(lost.unwrap_err().kind, ErrorKind::Unavailable);
    let again = world.client.generate_jit_config(set, "linux-1", "").await;
    assert_eq!(again.unwrap_err().kind, ErrorKind::RunnerExists);
    assert_eq!(world.service.runners().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn broken_bodies_are_unreadable_though_the_call_took_effect() {
    for fault in ["empty-body", "garbage-body", "html-page"] {
        let world = World::new();
        let set = world.scale_set("linux").await;
        world.ask_once("generate_jit_config", json!({"fault": fault}));
        let error = world.client.generate_jit_config(set, "linux-1", "").await;
        assert_eq!(error.unwrap_err().kind, ErrorKind::Unreadable, "{fault}");
        assert_eq!(world.service.runners().len(), 1, "{fault}");
    }
    let world = World::new();
    let set = world.scale_set("linux").await;
    world.ask_once("get_scale_set", json!({"fault": "byte-order-mark"}));
    assert!(world.client.get_scale_set(set).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn sessions_are_held_by_others_or_gone_and_their_refresh_is_refused() {
    let world = World::new();
    let set = world.scale_set("linux").await;
    let held = json!({"fault": "session-conflict", "holder": "old-pod-7"});
    world.ask_once("open_session", held);
    let error = world.client.open_session(set, "new-pod").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::SessionConflict);
    assert!(error.message.contains("old-pod-7"), "{error}");
    let session = world.session(set).await;
    for (fault, kind) in [
        ("session-gone", ErrorKind::SessionNotFound),
        ("unauthorized", ErrorKind::Unauthorized),
    ] {
        world.ask("refresh_session", json!({"fault": fault}));
        let error = world.client.refresh_session(set, &session.id).await;
        assert_eq!(error.unwrap_err().kind, kind, "{fault}");
    }
}

/// What a poll brings while a fault is asked for: how it reads, and its statistics.
async fn polled(fault: &str) -> (String, Option<Statistics>) {
    let world = World::new();
    let set = world.scale_set("linux").await;
    let session = world.session(set).await;
    world.service.queue_job(JobSpec::on("linux"));
    world.ask_once("get_message", json!({"fault": fault}));
    match world.client.get_message(&session, 0, 10).await.unwrap() {
        Polled::None => ("none".to_owned(), None),
        Polled::Unreadable { .. } => ("unreadable".to_owned(), None),
        Polled::Message(message) => {
            let kinds: Vec<&str> = message.jobs.iter().map(kind).collect();
            (kinds.join(" "), message.statistics)
        }
    }
}

fn kind(job: &JobMessage) -> &'static str {
    match job {
        JobMessage::Available(_) => "available",
        JobMessage::Assigned(_) => "assigned",
        JobMessage::Started(_) => "started",
        JobMessage::Completed(_) => "completed",
        JobMessage::Unknown { .. } => "unknown",
    }
}

#[tokio::test(start_paused = true)]
async fn messages_are_odd_in_every_way_they_can_be() {
    let told = Some(Statistics {
        available_jobs: 1,
        ..Statistics::default()
    });
    for (fault, kinds, statistics) in [
        ("byte-order-mark", "available", told),
        ("empty-body", "unreadable", None),
        ("garbage-body", "unreadable", None),
        ("html-page", "unreadable", None),
        ("null-statistics", "available", None),
        ("zero-statistics", "available", Some(Statistics::default())),
        ("unknown-message-type", "unknown", told),
        ("unknown-element", "unknown available", told),
        ("body-not-json", "unknown", told),
    ] {
        let expected = (kinds.to_owned(), statistics);
        assert_eq!(polled(fault).await, expected, "{fault}");
    }
}

/// So that none is added without a test. What each of them does is what the tests above and in
/// the file beside show.
#[tokio::test(start_paused = true)]
async fn every_fault_that_has_a_name_is_met_in_these_tests() {
    let source = [
        include_str!("faults.rs"),
        include_str!("oddities.rs"),
        include_str!("answers.rs"),
    ]
    .concat();
    let error =
        serde_json::from_value::<embedded_actions::NamedFault>(json!({"fault": "no such fault"}));
    let error = error.unwrap_err().to_string();
    let names: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
    assert!(names.len() > 25, "{names:?}");
    for name in names {
        assert!(
            source.contains(&format!("\"{name}\"")),
            "{name} is not tested"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_log_and_another_one_another() {
    async fn run(seed: u64) -> Vec<String> {
        let world = World::with_seed(seed);
        let set = world.scale_set("linux").await;
        let session = world.session(set).await;
        for fault in [
            "unavailable",
            "connection-reset",
            "answer-lost",
            "html-page",
        ] {
            let fault: Value = json!({"fault": fault});
            world.ask_once("get_message", fault.clone());
            world.ask_once("generate_jit_config", fault);
        }
        world.service.queue_job(JobSpec::on("linux"));
        for number in 0..6 {
            let name = format!("linux-{number}");
            let _ = world.client.generate_jit_config(set, &name, "").await;
            let _ = world.client.get_message(&session, 0, 10).await;
        }
        let mut log = world.log();
        log.extend(
            world
                .service
                .sessions()
                .into_iter()
                .map(|session| session.id),
        );
        log
    }
    let first = run(7).await;
    assert!(first.len() > 20, "{first:#?}");
    assert_eq!(first, run(7).await);
    assert_ne!(first, run(8).await);
}
