//! What the listener logs. Alone in its process: whether a line of the program is logged at
//! all is decided once for all threads, so that tests beside this one could silence it.

#[path = "../support/logged.rs"]
mod logged;
#[path = "../listener/stage.rs"]
#[allow(dead_code, reason = "the stage serves another file too")]
mod stage;
#[path = "../listener/wire.rs"]
#[allow(dead_code, reason = "the stage serves another file too")]
mod wire;

mod secrets;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use embedded_actions::{JobSpec, Outcome, Refusal};
use impresario::actions::{Proxies, ReqwestTransports};
use impresario::api::ListenerConfig;
use impresario::clock::Clock;
use impresario::listener::{Health, ListenerEnv, ListenerMetrics, run};
use prometheus::TextEncoder;
use secrecy::ExposeSecret;

use logged::Logged;
use secrets::shown;
use stage::{Running, SCALE_SET, Stage, job_element, minutes, until};

/// Made for this test.
const APP_KEY: &str = include_str!("app-key.pem");
const PROXY_PASSWORD: &str = "pro%y$s/w+rd";

#[tokio::test(start_paused = true)]
async fn the_log_of_a_run_shows_what_happened_and_no_secret() {
    let logged = Logged::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(logged.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let stage = Stage::new().await;
    let mut secrets = BTreeSet::from([stage::TOKEN.to_owned(), PROXY_PASSWORD.to_owned()]);
    let key_lines = APP_KEY.lines().filter(|line| !line.starts_with("-----"));
    secrets.extend(key_lines.map(str::to_owned));
    let mut pages = refused_and_accepted(&stage).await;
    pages += &signed_in_as_an_app(&stage).await;
    // what others of the program's surroundings hold
    let jit = stage.register("linux-runner-z").await;
    secrets.insert(jit.encoded.expose_secret().to_owned());
    let problem = behind_a_proxy_that_is_not_there(&stage).await;
    let on_the_wire = stage.wire.secrets();
    assert!(on_the_wire.len() > 12, "{}", on_the_wire.len());
    secrets.extend(on_the_wire);

    let log = logged.text();
    for words in [
        "Bad credentials",
        "check the token",
        "pod-x has it",
        "the holder is named in the error",
        "it is that of an earlier run of this listener",
        "already has an active session for owner listener-a",
        "session deleted",
        "the message session is lost",
        "job started",
        "cannot be read, polling again",
        "of no known type",
        "registers the scale set again",
    ] {
        assert!(log.contains(words), "{words}\n{log}");
    }
    for (name, text) in [("log", &log), ("metrics", &pages), ("error", &problem)] {
        assert!(!text.is_empty(), "{name}");
        let shown = shown(text, &secrets);
        assert!(shown.is_empty(), "in the {name}: {shown:#?}");
    }
    assert!(!log.contains("Bearer"), "{log}");
}

fn page(listener: &Running) -> String {
    let families = listener.metrics.registry().gather();
    TextEncoder::new().encode_to_string(&families).unwrap()
}

/// With a personal access token: credentials refused, a session held, tokens that expire, jobs,
/// broken answers, a death.
async fn refused_and_accepted(stage: &Stage) -> String {
    stage.service.accept_only(["ghp_another"]);
    let held = Refusal::new(
        409,
        "RunnerScaleSetSessionConflictException",
        "pod-x has it",
    );
    stage.service.faults().next("open_session", held);
    let listener = stage.listen("listener-a", 1, 10);
    minutes(5).await;
    stage.service.accept_only([stage::TOKEN]);
    until("it listens", || stage.target() == (1, 0)).await;
    minutes(2).await;
    stage.service.expire_queue_tokens();
    minutes(2).await;
    stage.service.expire_tenant_tokens();
    stage.service.drop_sessions();
    minutes(2).await;
    stage.make_runner("linux-runner-a").await;
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    for element in [
        job_element("JobStarted", 61, "linux-runner-a"),
        job_element("JobPaused", 62, ""),
    ] {
        stage.service.tell(stage.scale_set, element);
    }
    minutes(2).await;
    let faults = stage.service.faults();
    for call in [
        "get_message",
        "acquire_jobs",
        "delete_message",
        "refresh_session",
    ] {
        faults.next(call, Refusal::new(401, "", "expired"));
        faults.next(call, Refusal::new(500, "", "oops"));
        faults.next(call, Outcome::Unreachable);
        faults.next(call, Outcome::Hang);
        faults.next(call, Outcome::Replace(200, Bytes::from_static(b"<html>")));
    }
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    minutes(10).await;
    let page = page(&listener);
    listener.kill().await;
    let successor = stage.listen("listener-a", 1, 10);
    until("the next one listens", || successor.health.ready().is_ok()).await;
    successor.terminate().await.unwrap();
    page
}

/// With a GitHub App, until the scale set is gone.
async fn signed_in_as_an_app(stage: &Stage) -> String {
    let config = ListenerConfig {
        github_token: String::new(),
        github_app_id: "Iv23liOrchid".to_owned(),
        github_app_installation_id: 4711,
        github_app_private_key: APP_KEY.to_owned(),
        ..stage.config()
    };
    let listener = stage.listen_with("listener-b", config);
    until("it listens", || listener.health.ready().is_ok()).await;
    stage.service.expire_tenant_tokens();
    minutes(90).await;
    let page = page(&listener);
    let faults = stage.service.faults();
    for _ in 0..5 {
        let gone = Refusal::new(404, "RunnerScaleSetNotFoundException", "none found");
        faults.next("open_session", gone);
    }
    stage.service.drop_sessions();
    let error = listener.task.await.unwrap().unwrap_err();
    assert_eq!(error.exit_code(), 44);
    page + &error.to_string()
}

/// Over the network, through a proxy whose password is in its URL.
async fn behind_a_proxy_that_is_not_there(stage: &Stage) -> String {
    impresario::command::install_tls_provider();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let password: String =
        url::form_urlencoded::byte_serialize(PROXY_PASSWORD.as_bytes()).collect();
    let proxy = format!("http://someone:{password}@127.0.0.1:{port}");
    let proxies = Proxies::from_environment(|name| (name == "https_proxy").then(|| proxy.clone()));
    let config = stage.config();
    let (metrics, _) = ListenerMetrics::new(&config).unwrap();
    let metrics = Arc::new(metrics);
    let env = ListenerEnv {
        kube: stage.api.client(),
        transports: Arc::new(ReqwestTransports),
        proxies: proxies.unwrap(),
        clock: Clock::system(),
        hostname: "listener-c".to_owned(),
        version: "0.0.0-test".to_owned(),
        force_ghes: false,
        metrics: Arc::clone(&metrics),
        health: Arc::new(Health::new()),
    };
    let ended = tokio::time::timeout(
        Duration::from_secs(120),
        run(config, env, std::future::pending()),
    );
    assert!(ended.await.is_err(), "it goes on trying");
    let families = metrics.registry().gather();
    let page = TextEncoder::new().encode_to_string(&families).unwrap();
    assert!(page.contains("operation=\"open_session\""), "{page}");
    page
}
