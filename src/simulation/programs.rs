//! What runs in the pods of a simulated cluster: the real listener program, and a simulated
//! runner that takes one job.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Pod;
use tokio::time::sleep;

use super::actions_service::ActionsService;
use super::api_server::ApiServer;
use super::kubelet::{Programs, Stop};
use crate::actions::{Proxies, Transports};
use crate::clock::Clock;
use crate::listener::{self, Health, ListenerEnv, ListenerMetrics};

/// The programs of a simulated cluster.
pub struct SimulatedPrograms {
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
    fn listener(&self, pod: Arc<Pod>, config: Vec<u8>, stop: Stop) -> LocalBoxFuture<'static, i32> {
        let (namespace, name) = names(&pod);
        let account = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.service_account_name.clone());
        let user = format!(
            "system:serviceaccount:{namespace}:{}",
            account.unwrap_or_default()
        );
        let kube = self.api.client_as(&user, &["system:authenticated"]);
        let transports = Arc::clone(&self.transports);
        let clock = self.clock.clone();
        let book = self.listener_metrics.clone();
        Box::pin(async move {
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
            book.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(name.clone(), metrics.clone());
            let env = ListenerEnv {
                kube,
                transports,
                proxies: Proxies::default(),
                clock,
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
        })
    }

    fn runner(&self, pod: Arc<Pod>, jit: String, stop: Stop) -> LocalBoxFuture<'static, i32> {
        let (_, name) = names(&pod);
        let service = self.actions.clone();
        let sign_in = self.sign_in;
        Box::pin(async move {
            let work = async {
                sleep(sign_in).await;
                let runner = match service.runner_online(&jit) {
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
                () = stop.told() => 143,
            }
        })
    }
}

fn names(pod: &Pod) -> (String, String) {
    (
        pod.metadata.namespace.clone().unwrap_or_default(),
        pod.metadata.name.clone().unwrap_or_default(),
    )
}
