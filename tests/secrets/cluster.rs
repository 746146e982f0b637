//! The cluster that secrets are used in, with everything it shows kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use embedded_actions::KeyVault;
use embedded_kube::ApiError;
use embedded_kube::faults::{Interceptor, Outcome, RequestFate, RequestInfo};
use impresario::clock::Clock;
use impresario::simulation::cluster::{Cluster, ClusterOptions, RunningController};
use prometheus::{Encoder as _, Registry, TextEncoder};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use url::Url;

use crate::logged::Logged;

/// Where the embedded vault is.
pub const VAULT: &str = "https://acme.vault.azure.net/";

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(900);

/// An API server that refuses every so manieth request, or loses its answer, in turn.
#[derive(Default)]
pub struct Trouble {
    /// How many requests there are to one that goes wrong; 0: none does.
    every: AtomicUsize,
    seen: AtomicUsize,
}

impl Trouble {
    pub fn every(&self, requests: usize) {
        self.every.store(requests, Ordering::Relaxed);
    }
}

impl Interceptor for Trouble {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        let every = self.every.load(Ordering::Relaxed);
        let ours = request.user_agent.starts_with("system:serviceaccount:");
        if every == 0 || !ours {
            return RequestFate::default();
        }
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        let outcome = match (seen.is_multiple_of(every), seen / every % 4) {
            (false, _) => Outcome::Answered,
            (true, 0) => {
                Outcome::Refused(ApiError::new(500, "InternalError", "etcd is out of order"))
            }
            (true, 1) => Outcome::AnswerLost,
            (true, 2) => Outcome::Lost,
            (true, _) => Outcome::Refused(ApiError::new(409, "Conflict", "it has changed")),
        };
        RequestFate {
            outcome,
            ..RequestFate::default()
        }
    }
}

/// The cluster.
pub struct World {
    pub cluster: Cluster,
    pub vault: KeyVault,
    pub trouble: Arc<Trouble>,
    pub controller: Option<RunningController>,
    logged: Logged,
    /// What was kept of controllers that are gone.
    kept: Vec<(String, String)>,
    _guard: tracing::subscriber::DefaultGuard,
}

impl World {
    pub async fn new() -> Self {
        let logged = Logged::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("debug,impresario=trace")
            .with_ansi(false)
            .with_writer(logged.clone())
            .finish();
        let guard = tracing::subscriber::set_default(subscriber);
        let clock = Clock::simulated("2026-07-08T09:10:11Z".parse().unwrap());
        let trouble = Arc::new(Trouble::default());
        let vault = KeyVault::new(clock.clone(), &Url::parse(VAULT).unwrap());
        let options = ClusterOptions {
            key_vault: Some(vault.clone()),
            keep_log: true,
            poll: Duration::from_secs(5),
            interceptor: trouble.clone(),
            ..ClusterOptions::new(clock, 29)
        };
        let cluster = Cluster::start(options).await.unwrap();
        cluster.actions.keep_secrets();
        let controller = Some(cluster.start_controller());
        Self {
            cluster,
            vault,
            trouble,
            controller,
            logged,
            kept: Vec::new(),
            _guard: guard,
        }
    }

    pub async fn apply(&self, object: Value) {
        self.cluster.apply(&object).await.unwrap();
    }

    /// Kills the controller and starts another.
    pub fn restart_controller(&mut self) {
        if let Some(controller) = self.controller.take() {
            let registry = controller.metrics.registry();
            self.kept.push((
                "metrics of a killed controller".to_owned(),
                exposed(registry),
            ));
        }
        self.controller = Some(self.cluster.start_controller());
    }

    /// Waits until something holds.
    pub async fn until(&self, what: &str, holds: impl Fn(&Cluster) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(&self.cluster) {
            assert!(
                Instant::now() < deadline,
                "not in time: {what}\n{}",
                self.picture()
            );
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// What helps to see why something does not come about.
    fn picture(&self) -> String {
        let log = self.logged.text();
        let ours = log.lines().filter(|line| line.contains(" impresario::"));
        let ours: Vec<&str> = ours.collect();
        let last = &ours[ours.len().saturating_sub(60)..];
        let objects = self.objects();
        let objects = objects
            .iter()
            .filter(|(_, text)| text.contains("actions.github.com"))
            .map(|(name, text)| format!("{name} {text}"));
        let objects: Vec<String> = objects.collect();
        format!("{}\n{}", objects.join("\n"), last.join("\n"))
    }

    /// Everything there is to see: logs, metrics, and all objects but Secrets; each with its
    /// place.
    pub fn everything(&self) -> Vec<(String, String)> {
        let log = self.logged.text();
        let mut places = self.kept.clone();
        places.push(("the log".to_owned(), log));
        places.push(("the journal".to_owned(), self.cluster.take_log().join("\n")));
        let metrics = self.controller.as_ref().unwrap().metrics.registry();
        places.push(("metrics of the controller".to_owned(), exposed(metrics)));
        for (pod, registry) in self.cluster.listener_metrics() {
            places.push((format!("metrics of {pod}"), exposed(&registry)));
        }
        places.extend(self.objects());
        places
    }

    /// Keeps what the objects show now: a status does not stay.
    pub fn look(&mut self) {
        for seen in self.objects() {
            if !self.kept.contains(&seen) {
                self.kept.push(seen);
            }
        }
    }

    /// All objects but Secrets.
    fn objects(&self) -> Vec<(String, String)> {
        let mut places = Vec::new();
        for resource in self.cluster.api.resources() {
            if resource.is("", "secrets") {
                continue;
            }
            let objects = self
                .cluster
                .api
                .list(&resource.group, &resource.plural, None);
            for object in objects {
                let name = format!("{} {}", resource.kind, object["metadata"]["name"]);
                places.push((name, object.to_string()));
            }
        }
        places
    }

    /// All Secrets.
    pub fn stored(&self) -> String {
        let secrets = self.cluster.api.list("", "secrets", None);
        secrets.iter().map(|secret| format!("{secret}\n")).collect()
    }
}

fn exposed(registry: &Registry) -> String {
    let mut text = Vec::new();
    TextEncoder::new()
        .encode(&registry.gather(), &mut text)
        .unwrap();
    String::from_utf8(text).unwrap()
}
