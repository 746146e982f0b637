//! No secret is in what an error or the log shows, even when the service repeats it. Alone in
//! its process: whether a line of the program is logged at all is decided once for all
//! threads, so that tests beside this one could silence it.

#[path = "../actions_client/key_files.rs"]
#[allow(dead_code, reason = "the keys serve another file too")]
mod key_files;
#[path = "../actions_client/world.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the world serves another file too"
)]
mod world;

use impresario::simulation::transports;
use std::io::Write;
use std::sync::atomic::{AtomicU16, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::key_files::PKCS8;
use crate::world::*;

/// Hands requests on, or answers with a status and everything that the request was authorized
/// with. Remembers what that was.
struct Echo {
    inner: Arc<dyn Transport>,
    /// Part of the path of the call to answer, and with what.
    call: Mutex<&'static str>,
    status: AtomicU16,
    secrets: Mutex<Vec<String>>,
}

impl Transport for Echo {
    fn send(&self, request: http::Request<Bytes>) -> Answering {
        let authorization = request.headers()["authorization"].to_str().unwrap();
        let secret = authorization.split_once(' ').unwrap().1.to_owned();
        self.secrets.lock().unwrap().push(secret.clone());
        let call = *self.call.lock().unwrap();
        if call.is_empty() || !request.uri().path().contains(call) {
            return self.inner.send(request);
        }
        let body = format!("bad token: {}", forms(&secret).join(" or "));
        answer(self.status.load(Ordering::Relaxed), body)
    }
}

fn forms(secret: &str) -> Vec<String> {
    vec![
        secret.to_owned(),
        STANDARD.encode(secret),
        STANDARD_NO_PAD.encode(secret),
        URL_SAFE_NO_PAD.encode(secret),
        utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(),
    ]
}

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn no_failure_of_any_kind_shows_a_secret() {
    let log = Log::default();
    let sink = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || sink.clone())
        .finish();
    let _logged = tracing::subscriber::set_default(subscriber);

    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    let inner = transports(&world.service).transport(&TransportOptions::default());
    let echo = Arc::new(Echo {
        inner: inner.unwrap(),
        call: Mutex::default(),
        status: AtomicU16::new(200),
        secrets: Mutex::default(),
    });
    let mut shown = Vec::new();
    let mut failures = 0;
    for status in [200, 400, 401, 403, 404, 407, 409, 429, 500, 503] {
        echo.status.store(status, Ordering::Relaxed);
        for call in [
            "access_tokens",
            "registration-token",
            "runner-registration",
            "_apis",
            "queue",
        ] {
            *echo.call.lock().unwrap() = call;
            let app = Credentials::App {
                app_id: "Iv23liOrchid".to_owned(),
                installation_id: 4711,
                private_key: PKCS8.into(),
            };
            for credentials in [app, Credentials::Token(TOKEN.into())] {
                shown.push(format!("{credentials:?}"));
                let client = client_over(echo.clone(), &world.clock, credentials).unwrap();
                let results = [
                    client.get_scale_set(set).await.err(),
                    client.get_runner_group("default").await.err(),
                    client.find_runner("nobody").await.err(),
                    client.acquire_jobs(set, &session, &[1]).await.err(),
                    client.delete_message(&session, 1).await.err(),
                ];
                let polled = client.get_message(&session, 0, 0).await;
                shown.push(format!("{polled:?} {session:?} {client:?}"));
                for error in results.into_iter().flatten().chain(polled.err()) {
                    failures += 1;
                    shown.push(format!("{error} {error:?}"));
                    let told = impresario::messages::ActionsError::from(error);
                    shown.push(format!("{told} {told:?}"));
                }
            }
        }
    }
    assert!(failures > 200, "only {failures} failures");

    let mut secrets = echo.secrets.lock().unwrap().clone();
    secrets.extend(PKCS8.lines().map(str::to_owned));
    secrets.push(session.queue_token.expose_secret().to_owned());
    secrets.push(TOKEN.to_owned());
    secrets.sort();
    secrets.dedup();
    assert!(secrets.len() > 40, "only {} secrets", secrets.len());
    shown.push(String::from_utf8(log.0.lock().unwrap().clone()).unwrap());
    assert!(shown.last().unwrap().contains("request is sent again"));
    for secret in secrets.iter().filter(|secret| !secret.contains("-----")) {
        for form in forms(secret) {
            let found = shown.iter().find(|text| text.contains(&form));
            assert_eq!(found, None, "{form}");
        }
    }
}
