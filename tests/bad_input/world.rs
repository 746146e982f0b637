//! An embedded cluster with a controller under virtual time, a scale set that is well, and
//! everything logged kept.

use std::time::Duration;

use embedded_actions::{JobSpec, JobState};
use impresario::api::AutoscalingRunnerSet;
use impresario::clock::Clock;
use impresario::simulation::cluster::{Cluster, ClusterOptions, RunningController};
use k8s_openapi::api::core::v1::{Event, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::logged::Logged;

/// A token whose base64 and URL-encoded forms differ from its plain one.
pub const TOKEN: &str = "ghp_t0ken/of+the=test&";
/// Namespace and name of the scale set that is well.
pub const WELL: (&str, &str) = ("calm", "steady");
/// Namespace and name of the one that bad input is given to.
pub const ILL: (&str, &str) = ("ci", "linux");

/// How long anything may take. Mending must show within a minute; the rest is for what goes
/// on after it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The cluster.
pub struct World {
    pub cluster: Cluster,
    pub controller: Option<RunningController>,
    pub logged: Logged,
    _guard: tracing::subscriber::DefaultGuard,
}

/// Runs a test on this thread, where actors and their like live.
pub async fn on_stage<F: Future<Output = ()>>(test: F) {
    tokio::task::LocalSet::new().run_until(test).await;
}

impl World {
    /// A cluster whose one scale set is well.
    pub async fn new() -> Self {
        let logged = Logged::default();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("warn,impresario=debug")
            .with_ansi(false)
            .with_writer(logged.clone())
            .finish();
        let guard = tracing::subscriber::set_default(subscriber);
        let clock = Clock::simulated("2026-05-06T07:08:09Z".parse().unwrap());
        let options = ClusterOptions {
            keep_log: true,
            poll: Duration::from_secs(5),
            ..ClusterOptions::new(clock, 11)
        };
        let cluster = Cluster::start(options).await.unwrap();
        let controller = Some(cluster.start_controller());
        let world = Self {
            cluster,
            controller,
            logged,
            _guard: guard,
        };
        let (namespace, name) = WELL;
        world
            .apply(secret(
                namespace,
                "calm-auth",
                &[("github_token", "ghp_of-the-calm-one")],
            ))
            .await;
        world.apply(scale_set(namespace, name, "calm-auth")).await;
        world.until_ready(WELL).await;
        world
    }

    pub async fn apply(&self, object: Value) {
        self.cluster.apply(&object).await.unwrap();
    }

    /// Puts a Secret in the place of one of that name, as `kubectl replace` does.
    pub async fn replace_secret(&self, object: Value) {
        let secret: Secret = serde_json::from_value(object).unwrap();
        let namespace = secret.metadata.namespace.clone().unwrap();
        let name = secret.metadata.name.clone().unwrap();
        let api = Api::<Secret>::namespaced(self.cluster.api.client(), &namespace);
        api.replace(&name, &kube::api::PostParams::default(), &secret)
            .await
            .unwrap();
    }

    pub fn scale_set(&self, (namespace, name): (&str, &str)) -> Option<AutoscalingRunnerSet> {
        let all: Vec<AutoscalingRunnerSet> = self.cluster.api.list_as(Some(namespace));
        all.into_iter()
            .find(|set| set.metadata.name.as_deref() == Some(name))
    }

    pub fn condition(&self, set: (&str, &str), kind: &str) -> Option<Condition> {
        let status = self.scale_set(set)?.status?;
        let mut conditions = status.conditions.into_iter();
        conditions.find(|condition| condition.type_ == kind)
    }

    /// The warnings about a scale set.
    pub fn warnings(&self, (namespace, name): (&str, &str)) -> Vec<Event> {
        let all: Vec<Event> = self.cluster.api.list_as(Some(namespace));
        all.into_iter()
            .filter(|event| {
                event.type_.as_deref() == Some("Warning")
                    && event.involved_object.kind.as_deref() == Some("AutoscalingRunnerSet")
                    && event.involved_object.name.as_deref() == Some(name)
            })
            .collect()
    }

    /// Waits until it holds, in virtual time.
    pub async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            if Instant::now() >= deadline {
                panic!("not within {PATIENCE:?}: {what}\n{}", self.state());
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// What there is to see when a test has failed.
    fn state(&self) -> String {
        let status = |set| json!(self.scale_set(set).and_then(|set| set.status)).to_string();
        let logged = self.logged.text();
        let lines: Vec<&str> = logged
            .lines()
            .filter(|line| !line.contains("poll ended"))
            .collect();
        let last = lines[lines.len().saturating_sub(30)..].join("\n");
        format!("ill: {}\nwell: {}\n{last}", status(ILL), status(WELL))
    }

    pub async fn until_ready(&self, set: (&str, &str)) {
        let what = format!("{set:?} is ready");
        self.until(&what, || self.holds(set, "Ready")).await;
    }

    fn holds(&self, set: (&str, &str), kind: &str) -> bool {
        let condition = self.condition(set, kind);
        condition.is_some_and(|condition| condition.status == "True")
    }

    /// Waits until condition and event of the ill scale set say that, word for word in parts.
    pub async fn until_told(&self, kind: &str, reason: &str, parts: &[&str]) {
        let says = |message: &str| parts.iter().all(|part| message.contains(part));
        let what = format!("condition {kind} says {reason} with {parts:?}");
        self.until(&what, || {
            self.condition(ILL, kind).is_some_and(|condition| {
                condition.status == "False"
                    && condition.reason == reason
                    && says(&condition.message)
            })
        })
        .await;
        let what = format!("a warning says {reason} with {parts:?}");
        self.until(&what, || {
            self.warnings(ILL).iter().any(|event| {
                event.reason.as_deref() == Some(reason)
                    && says(event.message.as_deref().unwrap_or_default())
            })
        })
        .await;
        let ready = self.condition(ILL, "Ready").unwrap();
        assert_eq!(ready.status, "False", "{ready:?}");
    }

    /// Shows that the scale set that is well still takes jobs, and that nothing crashed.
    pub async fn others_go_on(&self) {
        self.takes_a_job(WELL.1).await;
        assert!(self.holds(WELL, "Ready"));
        self.nothing_crashed();
    }

    pub async fn takes_a_job(&self, label: &str) {
        let spec = JobSpec::on(label).lasting(Duration::from_secs(1));
        let id = self.cluster.actions.queue_job(spec);
        self.until(&format!("a job for {label} is done"), || {
            let job = self.cluster.actions.job(id);
            job.is_some_and(|job| job.state == JobState::Completed)
        })
        .await;
    }

    pub fn nothing_crashed(&self) {
        let controller = self.controller.as_ref().unwrap();
        assert!(!controller.has_ended(), "the controller has ended");
        let logged = self.logged.text();
        assert!(!logged.contains("panicked"), "{logged}");
        let families = controller.metrics.registry().gather();
        let restarts = families
            .iter()
            .find(|family| family.name() == "impresario_actor_restarts_total");
        assert!(restarts.is_none_or(|family| family.get_metric().is_empty()));
    }
}

/// A Secret with these texts.
pub fn secret(namespace: &str, name: &str, texts: &[(&str, &str)]) -> Value {
    let data: serde_json::Map<String, Value> = texts
        .iter()
        .map(|(key, text)| {
            use base64::Engine as _;
            let encoded = base64::engine::general_purpose::STANDARD.encode(text);
            ((*key).to_owned(), encoded.into())
        })
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    })
}

/// A scale set that keeps one runner.
pub fn scale_set(namespace: &str, name: &str, secret: &str) -> Value {
    json!({
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "AutoscalingRunnerSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "githubConfigUrl": "https://github.com/acme/widgets",
            "githubConfigSecret": secret,
            "minRunners": 1,
            "maxRunners": 3,
            "template": {"spec": {"containers": [
                {"name": "runner", "image": "ghcr.io/actions/actions-runner:2.330.0"},
            ]}},
        },
    })
}

/// The ill scale set, before anything is wrong with it.
pub fn ill() -> Value {
    scale_set(ILL.0, ILL.1, "github-auth")
}

/// The credentials it names.
pub fn credentials() -> Value {
    secret(ILL.0, "github-auth", &[("github_token", TOKEN)])
}
