//! How the program ends: told to, or for a configuration that is of no use.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use embedded_actions::{Fault, JobSpec, Outcome, Refusal};
use embedded_kube::Verb;
use embedded_kube::faults::{Interceptor, RequestFate, RequestInfo};
use impresario::actions::ReqwestTransports;
use impresario::api::ListenerConfig;
use impresario::clock::Clock;
use impresario::listener::{Health, ListenerEnv, ListenerMetrics, run};
use tokio::time::{Instant, sleep};

use crate::stage::{Down, SCALE_SET, Setting, Stage, message, minutes, until};

#[tokio::test(start_paused = true)]
async fn told_to_stop_it_deletes_its_session() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    minutes(3).await;
    assert_eq!(stage.service.sessions().len(), 1);
    let began = Instant::now();
    listener.terminate().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(stage.service.sessions(), []);
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_with_a_message_in_hand_it_finishes_it_first() {
    let stage = Stage::with(Setting {
        api: Arc::new(SlowTarget),
        ..Setting::default()
    })
    .await;
    stage
        .service
        .faults()
        .next("get_message", message(900, 4, &[]));
    let listener = stage.listen("listener-a", 0, 10);
    until("it has the message", || {
        stage.logged("get_message -> 200") == 1
    })
    .await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.target().0, 0);
    listener.terminate().await.unwrap();
    assert_eq!(stage.target().0, 4);
    // the message was never in the service's queue
    assert_eq!(stage.logged("delete_message -> 404"), 1);
    assert_eq!(stage.service.sessions(), []);
}

/// Writes to the runner set take ten seconds.
struct SlowTarget;

impl Interceptor for SlowTarget {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        let slow = request.verb == Some(Verb::Patch)
            && request.resource.starts_with("ephemeralrunnersets");
        RequestFate {
            delay_before: Duration::from_secs(if slow { 10 } else { 0 }),
            ..RequestFate::default()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_while_nothing_works_it_still_ends_in_time() {
    let down = Arc::new(Down::default());
    let stage = Stage::with(Setting {
        api: Arc::clone(&down) as Arc<dyn Interceptor>,
        ..Setting::default()
    })
    .await;
    let listener = stage.listen("listener-a", 0, 10);
    minutes(3).await;
    down.0.store(true, Ordering::Relaxed);
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    minutes(1).await;
    stage
        .service
        .faults()
        .always("delete_session", Outcome::Hang);
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_with_a_message_whose_every_part_is_slow_it_still_ends_in_time() {
    let stage = Stage::with(Setting {
        api: Arc::new(SlowTarget),
        ..Setting::default()
    })
    .await;
    let listener = stage.listen("listener-a", 0, 10);
    minutes(3).await;
    let faults = stage.service.faults();
    faults.always("acquire_jobs", Fault::delay(Duration::from_secs(28)));
    for call in ["delete_message", "delete_session"] {
        faults.always(call, Fault::delay(Duration::from_secs(40)));
    }
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    listener.terminate().await.unwrap();
    assert!(began.elapsed() > Duration::from_secs(40));
}

#[tokio::test(start_paused = true)]
async fn only_an_unusable_configuration_ends_the_program() {
    let stage = Stage::new().await;
    for (change, words) in [
        (
            (|config| config.github_token.clear()) as fn(&mut ListenerConfig),
            "github_token",
        ),
        (|config| config.max_runners = -1, "max_runners is -1"),
        (
            |config| {
                config.github_token.clear();
                config.github_app_id = "17".into();
                config.github_app_installation_id = 18;
                config.github_app_private_key = "no key at all".into();
            },
            "key",
        ),
    ] {
        let mut config = stage.config();
        change(&mut config);
        let listener = stage.listen_with("listener-a", config);
        let error = listener.task.await.unwrap().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(!error.contains("no key at all"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_root_certificate_that_is_none_ends_the_program_with_a_reason() {
    let stage = Stage::new().await;
    let config = ListenerConfig {
        server_root_ca: "not a certificate".to_owned(),
        ..stage.config()
    };
    let (metrics, _) = ListenerMetrics::new(&config).unwrap();
    let env = ListenerEnv {
        kube: stage.api.client(),
        transports: Arc::new(ReqwestTransports),
        proxies: Default::default(),
        clock: Clock::system(),
        hostname: "listener-a".to_owned(),
        version: "0.0.0-test".to_owned(),
        force_ghes: false,
        metrics: Arc::new(metrics),
        health: Arc::new(Health::new()),
    };
    let ended = run(config, env, std::future::pending()).await;
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_scale_set_that_does_not_exist_ends_the_program_with_an_exit_code_of_its_own() {
    let stage = Stage::new().await;
    let config = ListenerConfig {
        runner_scale_set_id: 987_654,
        ..stage.config()
    };
    let listener = stage.listen_with("listener-a", config);
    let began = Instant::now();
    let error = listener.task.await.unwrap().unwrap_err();
    assert!(
        (Duration::from_secs(10)..Duration::from_secs(30)).contains(&began.elapsed()),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(error.exit_code(), 44);
    let text = error.to_string();
    assert!(text.contains("runner_scale_set_id 987654"), "{text}");
    assert_eq!(stage.logged("open_session -> 404"), 5);
}

#[tokio::test(start_paused = true)]
async fn a_scale_set_that_is_deleted_while_it_listens_ends_the_program() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    minutes(3).await;
    stage
        .github
        .delete_scale_set(stage.scale_set)
        .await
        .unwrap();
    let error = listener.task.await.unwrap().unwrap_err();
    assert_eq!(error.exit_code(), 44);
}

#[tokio::test(start_paused = true)]
async fn a_scale_set_that_the_service_misses_for_a_moment_does_not() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    minutes(3).await;
    let missing = || Refusal::new(404, "RunnerScaleSetNotFoundException", "none found");
    for _ in 0..3 {
        let faults = stage.service.faults();
        faults.next("refresh_session", missing());
        for _ in 0..4 {
            faults.next("open_session", missing());
        }
        stage.service.drop_sessions();
        minutes(3).await;
        assert_eq!(stage.service.sessions().len(), 1);
    }
    listener.terminate().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn told_to_stop_while_the_service_answers_nothing_it_still_ends_in_time() {
    for listens in [false, true] {
        let stage = Stage::new().await;
        let calls = [
            "open_session",
            "get_message",
            "refresh_session",
            "acquire_jobs",
            "delete_message",
            "delete_session",
        ];
        let silence = || {
            for call in calls {
                stage.service.faults().always(call, Outcome::Hang);
            }
        };
        if !listens {
            silence();
        }
        let listener = stage.listen("listener-a", 0, 10);
        minutes(3).await;
        silence();
        if listens {
            stage.service.queue_job(JobSpec::on(SCALE_SET));
        }
        minutes(1).await;
        listener.terminate().await.unwrap();
    }
}
