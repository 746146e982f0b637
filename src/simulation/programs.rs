//! What runs in the pods of a simulated cluster: the real listener program, and a simulated
//! runner that takes one job.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use embedded_actions::ActionsService;
use embedded_kube::ApiServer;
use embedded_kube::kubelet::{Programs, Servers, Stop};
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use tokio::time::sleep;

use crate::actions::{Proxies, Transports};
use crate::api::constants::{LISTENER_CONTAINER, RUNNER_CONTAINER, env, keys};
use crate::clock::Clock;
use crate::listener::{self, Health, ListenerEnv, ListenerMetrics};

/// The programs of a simulated cluster.
#[derive(Clone)]
pub struct SimulatedPrograms {
    /// The kubelet's own: it reads what pods mount.
    pub kubelet_client: kube::Client,
    /// The API server that listeners talk to, each as its own ServiceAccount.
    pub api: ApiServer,
    /// The Actions service that runners talk to.
    pub actions: ActionsService,
    /// Ways of listeners to the Actions service, and to whatever else there is.
    pub transports: Arc<dyn Transports>,
    /// Wall time.
    pub clock: Clock,
    /// From a runner's start until it is online.
    pub sign_in: Duration,
    /// Metrics of the listeners, by pod, of those that have ended as well.
    pub listener_metrics: ListenerBook,
}

/// Metrics of listeners, by pod: the latest listener of that name.
pub(super) type ListenerBook = Arc<Mutex<BTreeMap<String, Arc<ListenerMetrics>>>>;

impl Programs for SimulatedPrograms {
    fn main_container<'a>(&self, pod: &'a Pod) -> Option<&'a str> {
        let containers = &pod.spec.as_ref()?.containers;
        let named = |name: &str| containers.iter().find(|container| container.name == name);
        let main = named(RUNNER_CONTAINER).or_else(|| named(LISTENER_CONTAINER));
        let main = main.or(containers.first());
        main.map(|container| container.name.as_str())
    }

    fn run(&self, pod: Arc<Pod>, stop: Stop) -> LocalBoxFuture<'static, i32> {
        let (namespace, _) = names(&pod);
        let secrets = Api::<Secret>::namespaced(self.kubelet_client.clone(), &namespace);
        let programs = self.clone();
        Box::pin(async move {
            // a pod whose Secret is missing does not start in a real cluster; here it fails
            if let Some(name) = jit_secret_name(&pod) {
                return match secret_value(&secrets, &name, keys::JIT_TOKEN).await {
                    Some(jit) => {
                        let jit = String::from_utf8_lossy(&jit).into_owned();
                        programs.runner(&pod, jit, stop).await
                    }
                    None => 1,
                };
            }
            if let Some(name) = config_secret_name(&pod) {
                return match secret_value(&secrets, &name, keys::LISTENER_CONFIG).await {
                    Some(config) => programs.listener(&pod, config, stop).await,
                    None => 1,
                };
            }
            Servers.run(pod, stop).await
        })
    }
}

impl SimulatedPrograms {
    /// Runs the listener with the configuration its pod mounts, until it ends or is stopped.
    async fn listener(&self, pod: &Pod, config: Vec<u8>, stop: Stop) -> i32 {
        let (namespace, name) = names(pod);
        let account = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.service_account_name.clone());
        let user = format!(
            "system:serviceaccount:{namespace}:{}",
            account.unwrap_or_default()
        );
        let kube = self.api.client_as(&user, &["system:authenticated"]);
        let config = match listener::parse(&config, Path::new("config.json")) {
            Ok(config) => config,
            Err(error) => {
                tracing::error!(pod = name, %error, "listener ended");
                return 1;
            }
        };
        let (metrics, complaints) = match ListenerMetrics::new(&config) {
            Ok(made) => made,
            Err(error) => {
                tracing::error!(pod = name, %error, "listener metrics");
                return 1;
            }
        };
        for complaint in complaints {
            tracing::warn!(
                pod = name,
                complaint,
                "listenerMetrics is not what it seems"
            );
        }
        let metrics = Arc::new(metrics);
        self.listener_metrics
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.clone(), metrics.clone());
        let env = ListenerEnv {
            kube,
            transports: Arc::clone(&self.transports),
            proxies: Proxies::default(),
            clock: self.clock.clone(),
            hostname: name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            force_ghes: false,
            metrics,
            health: Arc::new(Health::new()),
        };
        match listener::run(config, env, stop.told()).await {
            Ok(()) => 0,
            Err(error) => {
                tracing::error!(pod = name, %error, "listener ended");
                i32::from(error.exit_code())
            }
        }
    }

    /// Runs a runner with the JIT configuration it was given, until it ends or is stopped.
    async fn runner(&self, pod: &Pod, jit: String, stop: Stop) -> i32 {
        let (_, name) = names(pod);
        let work = async {
            sleep(self.sign_in).await;
            let runner = match self.actions.runner_online(&jit) {
                Ok(runner) => runner,
                Err(error) => {
                    tracing::debug!(pod = name, %error, "runner ends");
                    return 1;
                }
            };
            runner.work().await;
            0
        };
        tokio::select! {
            biased;
            code = work => code,
            () = stop.told() => Stop::EXIT_CODE,
        }
    }
}

/// The Secret with the JIT configuration, for a pod of a runner.
fn jit_secret_name(pod: &Pod) -> Option<String> {
    let containers = &pod.spec.as_ref()?.containers;
    let runner = containers.iter().find(|c| c.name == RUNNER_CONTAINER)?;
    let variables = runner.env.as_ref()?;
    let jit = variables
        .iter()
        .find(|variable| variable.name == env::RUNNER_JIT_CONFIG)?;
    let source = jit.value_from.as_ref()?.secret_key_ref.as_ref()?;
    Some(source.name.clone())
}

/// The Secret with the configuration, for a pod of a listener.
fn config_secret_name(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    if !spec.containers.iter().any(|c| c.name == LISTENER_CONTAINER) {
        return None;
    }
    let volumes = spec.volumes.as_ref()?;
    let volume = volumes.iter().find(|v| v.name == "listener-config")?;
    volume.secret.as_ref()?.secret_name.clone()
}

async fn secret_value(secrets: &Api<Secret>, name: &str, key: &str) -> Option<Vec<u8>> {
    let secret = secrets.get_opt(name).await.ok().flatten()?;
    secret.data?.remove(key).map(|bytes| bytes.0)
}

fn names(pod: &Pod) -> (String, String) {
    (
        pod.metadata.namespace.clone().unwrap_or_default(),
        pod.metadata.name.clone().unwrap_or_default(),
    )
}
