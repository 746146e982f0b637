//! The two requests: what is asked for when, and what is kept.

use std::time::Duration;

use embedded_actions::{Fault, Outcome, Refusal};
use futures::future::join_all;
use impresario::actions::{
    CredentialSource as _, KeyVault, ReqwestTransports, SourceErrorKind, TransportOptions,
    Transports as _,
};
use impresario::clock::Clock;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::world::{ANOTHER, CLIENT, NAME, TENANT, TOKEN, World, token, value};

#[tokio::test(start_paused = true)]
async fn a_secret_is_read_after_a_challenge_and_a_login() {
    let world = World::new();
    let fields = world.client().fields(NAME).await.unwrap();
    assert_eq!(token(&fields), TOKEN);
    assert_eq!(
        world.take_calls(),
        ["vault_secret 401", "vault_login 200", "vault_secret 200"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_serves_until_shortly_before_it_expires() {
    let world = World::new();
    world.vault.tokens_last(3600);
    let client = world.client();
    client.fields(NAME).await.unwrap();
    world.take_calls();
    sleep(Duration::from_secs(3470)).await;
    world.vault.put(NAME, &value("ghp_Rotated"));
    let fields = client.fields(NAME).await.unwrap();
    assert_eq!(token(&fields), "ghp_Rotated");
    assert_eq!(world.take_calls(), ["vault_secret 200"]);
    sleep(Duration::from_secs(20)).await;
    client.fields(NAME).await.unwrap();
    assert_eq!(world.take_calls(), ["vault_login 200", "vault_secret 200"]);
}

#[tokio::test(start_paused = true)]
async fn who_needs_a_token_meanwhile_waits_for_the_one_login() {
    let world = World::new();
    let slow = Fault::delay(Duration::from_secs(3));
    world.vault.faults().always("vault_login", slow);
    let client = world.client();
    for read in join_all((0..20).map(|_| client.fields(NAME))).await {
        read.unwrap();
    }
    assert_eq!(world.vault.calls("vault_login"), 1);
}

#[tokio::test(start_paused = true)]
async fn who_waited_for_a_login_that_failed_is_told_so_and_asks_no_second_time() {
    let world = World::new();
    let down = Outcome::Unreachable;
    world.vault.faults().always("vault_login", down);
    let client = world.client();
    let began = Instant::now();
    for read in join_all((0..20).map(|_| client.fields(NAME))).await {
        let error = read.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Unavailable, "{error}");
        assert!(
            error.message.contains("login.microsoftonline.com"),
            "{error}"
        );
    }
    assert_eq!(world.vault.calls("vault_login"), 4);
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    world.vault.faults().clear("vault_login");
    client.fields(NAME).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_taken_back_is_replaced_once() {
    let world = World::new();
    let client = world.client();
    client.fields(NAME).await.unwrap();
    world.vault.revoke_tokens();
    world.take_calls();
    client.fields(NAME).await.unwrap();
    assert_eq!(
        world.take_calls(),
        ["vault_secret 401", "vault_login 200", "vault_secret 200"]
    );
    // one that never takes them is asked no third time
    world.vault.tokens_last(0);
    world.vault.revoke_tokens();
    let error = client.fields(NAME).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Refused, "{error}");
    assert_eq!(
        world.take_calls(),
        ["vault_secret 401", "vault_login 200", "vault_secret 401"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_was_renewed_is_used_by_the_next_login() {
    let world = World::new();
    let client = world.client();
    client.fields(NAME).await.unwrap();
    world.file("application.pem", ANOTHER.as_bytes());
    world
        .vault
        .register(TENANT, CLIENT, ANOTHER.as_bytes())
        .unwrap();
    world.vault.revoke_tokens();
    client.fields(NAME).await.unwrap();
    assert_eq!(world.vault.calls("vault_login"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_busy_vault_is_asked_again_when_it_says() {
    let world = World::new();
    let busy = Refusal::new(429, "Throttled", "slow down").header("retry-after", "17");
    world.vault.faults().next("vault_secret", busy.clone());
    let began = Instant::now();
    let client = world.client();
    client.fields(NAME).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(17));
    // who is to stay away longer than a call can wait is told so
    let long = busy.header("retry-after", "120");
    world.vault.faults().next(
        "vault_secret",
        Refusal {
            headers: vec![long.headers[1].clone()],
            ..long
        },
    );
    let error = client.fields(NAME).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Unavailable);
    assert_eq!(error.retry_after, Some(Duration::from_secs(120)));
    assert!(error.message.contains("429"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_is_made_again_and_silence_has_an_end() {
    let world = World::new();
    let faults = world.vault.faults();
    faults.next("vault_secret", Outcome::Unreachable);
    faults.next("vault_secret", Outcome::LoseAnswer);
    faults.next("vault_login", Refusal::new(503, "", ""));
    world.client().fields(NAME).await.unwrap();
    assert_eq!(
        world.take_calls(),
        [
            "vault_secret connection",
            "vault_secret connection",
            "vault_secret 401",
            "vault_login 503",
            "vault_login 200",
            "vault_secret 200",
        ]
    );
    faults.always("vault_secret", Outcome::Hang);
    let began = Instant::now();
    let error = world.refusal().await;
    assert_eq!(error.kind, SourceErrorKind::Unavailable);
    assert!(error.message.contains("no answer within 20 s"), "{error}");
    assert_eq!(began.elapsed(), Duration::from_secs(20));
}

#[tokio::test]
async fn over_a_port_it_is_the_same() {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let world = World::with(Clock::system(), &url);
    let server = tokio::spawn(world.vault.clone().serve(socket));
    let transport = ReqwestTransports.transport(&TransportOptions::default());
    let client = KeyVault::new(&world.config, transport.unwrap(), Clock::system(), None);
    let fields = client.unwrap().fields(NAME).await.unwrap();
    assert_eq!(token(&fields), TOKEN);
    assert_eq!(world.vault.calls("vault_login"), 1);
    server.abort();
}
