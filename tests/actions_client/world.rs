//! The client, the embedded service, and virtual time; and what all tests here use.

use impresario::simulation::transports;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
pub use std::sync::{Arc, Mutex};
pub use std::time::Duration;

pub use bytes::Bytes;
pub use embedded_actions::{
    ActionsService, CallInfo, Fault, Interceptor, JobSpec, JobState, Mangling, Options, Outcome,
    Refusal,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
pub use futures::future::join_all;
pub use impresario::actions::{
    Client, ClientOptions, Error, ErrorKind, JobMessage, Message, Polled, Proxies, ProxyServer,
    ReqwestTransports, Session, Transport, TransportErrorKind, TransportOptions, Transports,
};
use impresario::actions::{Observer, TransportError};
pub use impresario::api::{ConfigUrl, Credentials};
pub use impresario::clock::Clock;
pub use secrecy::ExposeSecret;
pub use tokio::time::{Instant, sleep};

pub const TOKEN: &str = "ghp_orchid";
pub const NOBODY: i64 = 987_654;

pub struct World {
    pub service: ActionsService,
    pub client: Client,
    pub requests: Arc<Requests>,
    pub log: Arc<Mutex<Vec<String>>>,
    pub clock: Clock,
}

/// Counts requests by call and outcome.
#[derive(Default)]
pub struct Requests(Mutex<BTreeMap<(&'static str, String), u32>>);

impl Observer for Requests {
    fn request(&self, call: &'static str, outcome: &str, _duration: Duration) {
        let key = (call, outcome.to_owned());
        *self.0.lock().unwrap().entry(key).or_default() += 1;
    }
}

impl Requests {
    pub fn of(&self, call: &str) -> u32 {
        let counts = self.0.lock().unwrap();
        let of_call = counts.iter().filter(|((name, _), _)| *name == call);
        of_call.map(|(_, count)| count).sum()
    }

    pub fn with(&self, call: &'static str, outcome: &str) -> u32 {
        let counts = self.0.lock().unwrap();
        let count = counts.get(&(call, outcome.to_owned()));
        count.copied().unwrap_or_default()
    }
}

pub fn world() -> World {
    let clock = Clock::simulated("2026-01-02T03:04:05Z".parse().unwrap());
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut options = Options::new(clock.clone());
    let sink = Arc::clone(&log);
    options.log = Some(Arc::new(move |line: &str| {
        sink.lock().unwrap().push(line.to_owned());
    }));
    let service = ActionsService::new(options);
    service.accept_only([TOKEN]);
    let requests: Arc<Requests> = Arc::default();
    let client = client(
        &service,
        &clock,
        &requests,
        Credentials::Token(TOKEN.into()),
    );
    World {
        service,
        client,
        requests,
        log,
        clock,
    }
}

pub fn client(
    service: &ActionsService,
    clock: &Clock,
    requests: &Arc<Requests>,
    credentials: Credentials,
) -> Client {
    let mut options = options(credentials);
    options.observer = Some(requests.clone());
    let transport = transports(service).transport(&TransportOptions::default());
    Client::new(options, transport.unwrap(), clock.clone()).unwrap()
}

/// A client that nobody counts the requests of.
pub fn client_over(
    transport: Arc<dyn Transport>,
    clock: &Clock,
    credentials: Credentials,
) -> Result<Client, Error> {
    Client::new(options(credentials), transport, clock.clone())
}

fn options(credentials: Credentials) -> ClientOptions {
    let url = ConfigUrl::parse("https://github.com/acme/widgets").unwrap();
    ClientOptions::new(url, credentials)
}

/// What a transport answers with.
pub type Answering = BoxFuture<'static, Result<http::Response<Bytes>, TransportError>>;

/// An answer with the ids of a request.
pub fn answer(status: u16, body: impl Into<Bytes>) -> Answering {
    let response = http::Response::builder()
        .status(status)
        .header("ActivityId", "act-7")
        .header("X-GitHub-Request-Id", "AB:12")
        .body(body.into());
    std::future::ready(Ok(response.unwrap())).boxed()
}

/// Counts the requests that are under way together.
pub struct Counting {
    inner: Arc<dyn Transport>,
    now: Arc<AtomicUsize>,
    pub most: AtomicUsize,
}

impl Counting {
    pub fn of(service: &ActionsService) -> Arc<Self> {
        let inner = transports(service).transport(&TransportOptions::default());
        Arc::new(Self {
            inner: inner.unwrap(),
            now: Arc::default(),
            most: AtomicUsize::new(0),
        })
    }
}

impl Transport for Counting {
    fn send(&self, request: http::Request<Bytes>) -> Answering {
        let now = self.now.clone();
        let count = now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(count, Ordering::Relaxed);
        let sent = self.inner.send(request);
        sent.inspect(move |_| {
            now.fetch_sub(1, Ordering::Relaxed);
        })
        .boxed()
    }
}

impl World {
    pub async fn scale_set(&self, name: &str) -> i64 {
        let labels = [name.to_owned(), "gpu".to_owned()];
        let set = self.client.create_scale_set(name, 1, &labels).await;
        set.unwrap().id
    }

    pub async fn session(&self, set: i64) -> Session {
        self.client.open_session(set, "listener-0").await.unwrap()
    }

    pub async fn next_message(&self, session: &Session, last: i64, capacity: i64) -> Message {
        match self.client.get_message(session, last, capacity).await {
            Ok(Polled::Message(message)) => message,
            other => panic!("no message: {other:?}"),
        }
    }

    pub async fn jit(&self, set: i64, name: &str) -> String {
        let jit = self
            .client
            .generate_jit_config(set, name, "")
            .await
            .unwrap();
        jit.encoded.expose_secret().to_owned()
    }
}

pub fn kinds(message: &Message) -> Vec<(&'static str, i64)> {
    let kind = |job: &JobMessage| match job {
        JobMessage::Available(job) => ("available", job.runner_request_id),
        JobMessage::Assigned(job) => ("assigned", job.runner_request_id),
        JobMessage::Started(job) => ("started", job.runner_request_id),
        JobMessage::Completed(job) => ("completed", job.runner_request_id),
        JobMessage::Unknown { .. } => ("unknown", 0),
    };
    message.jobs.iter().map(kind).collect()
}
