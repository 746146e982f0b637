//! A service in process under virtual time, and clients of it.

use impresario::simulation::transports;
use std::sync::{Arc, Mutex};

use embedded_actions::{ActionsService, NamedFault, Options};
use impresario::actions::{Client, ClientOptions, Message, Polled, Session, TransportOptions};
use impresario::api::{ConfigUrl, Credentials};
use impresario::clock::Clock;
use secrecy::ExposeSecret as _;
use serde_json::Value;

pub const TOKEN: &str = "ghp_larkspur";
pub const URL: &str = "https://github.com/acme/widgets";

pub struct World {
    pub service: ActionsService,
    pub client: Client,
    pub clock: Clock,
    log: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub fn new() -> Self {
        Self::with_seed(0)
    }

    pub fn with_seed(seed: u64) -> Self {
        let clock = Clock::simulated("2026-02-03T04:05:06Z".parse().unwrap());
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let lines = Arc::clone(&log);
        let service = ActionsService::new(Options {
            seed,
            log: Some(Arc::new(move |line: &str| {
                lines.lock().unwrap().push(line.to_owned());
            })),
            ..Options::new(clock.clone())
        });
        let client = client(&service, &clock, URL, Credentials::Token(TOKEN.into()));
        Self {
            service,
            client,
            clock,
            log,
        }
    }

    pub fn client_of(&self, url: &str, credentials: Credentials) -> Client {
        client(&self.service, &self.clock, url, credentials)
    }

    /// Makes calls go wrong for ever.
    pub fn ask(&self, call: &'static str, fault: Value) {
        let fault: NamedFault = serde_json::from_value(fault).unwrap();
        self.service
            .faults()
            .always(call, fault.at(self.clock.now()));
    }

    /// Makes the next call go wrong.
    pub fn ask_once(&self, call: &'static str, fault: Value) {
        let fault: NamedFault = serde_json::from_value(fault).unwrap();
        self.service.faults().next(call, fault.at(self.clock.now()));
    }

    pub async fn scale_set(&self, name: &str) -> i64 {
        let labels = [name.to_owned()];
        let set = self.client.create_scale_set(name, 1, &labels).await;
        set.unwrap().id
    }

    pub async fn session(&self, set: i64) -> Session {
        self.client.open_session(set, "larkspur-0").await.unwrap()
    }

    /// Registers a runner; answers its id and its JIT configuration.
    pub async fn runner(&self, set: i64, name: &str) -> (i64, String) {
        let jit = self.client.generate_jit_config(set, name, "").await;
        let jit = jit.unwrap();
        (jit.runner.id, jit.encoded.expose_secret().to_owned())
    }

    pub async fn message(&self, session: &Session, last: i64) -> Message {
        match self.client.get_message(session, last, 10).await {
            Ok(Polled::Message(message)) => message,
            other => panic!("no message: {other:?}"),
        }
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

fn client(service: &ActionsService, clock: &Clock, url: &str, credentials: Credentials) -> Client {
    let options = ClientOptions::new(ConfigUrl::parse(url).unwrap(), credentials);
    let transport = transports(service).transport(&TransportOptions::default());
    Client::new(options, transport.unwrap(), clock.clone()).unwrap()
}
