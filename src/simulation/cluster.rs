//! The embedded cluster as one piece: API server, kubelet, Actions service, and controllers
//! that can be started, killed and started again.
//!
//! Everything runs on the current thread, inside the caller's `LocalSet`. With tokio's time
//! paused, a run is a function of its seed.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use embedded_actions::{ActionsService, KeyVault};
use embedded_kube::kubelet::{Kubelet, KubeletOptions, NODE};
use embedded_kube::{Admission, ApiServer, ApiServerOptions, Snapshot, faults};
use serde_json::{Value, json};
use tokio::task::{JoinHandle, LocalSet};

use super::FAULT_ANNOTATION;
pub use super::apply::ApplyError;
use super::programs::{ListenerBook, SimulatedPrograms};
use super::transports::{transports, with_key_vault};
use crate::actions::{Clients, ClientsOptions, Transports, UserAgent};
use crate::actors::{
    CallMetrics, ControllerOptions, Journal, KubeSources, UnregistrarHandle, Workers,
    run_controller,
};
use crate::clock::Clock;
use crate::kube_io::{Fence, KubeIo, Limiter, Refusals};
use crate::metrics::Metrics;
use crate::resources::ControllerSettings;

/// The controller's namespace, as in `config/`.
pub const CONTROLLER_NAMESPACE: &str = "arc-systems";
/// The controller's ServiceAccount, as in `config/`.
const CONTROLLER_ACCOUNT: &str = "impresario-controller";

/// What the controller may do: the same rules that are installed in a real cluster.
const RBAC: [(&str, &str); 4] = [
    (
        "config/rbac/service_account.yaml",
        include_str!("../../config/rbac/service_account.yaml"),
    ),
    (
        "config/rbac/cluster_role.yaml",
        include_str!("../../config/rbac/cluster_role.yaml"),
    ),
    (
        "config/rbac/runner_namespace_role.yaml",
        include_str!("../../config/rbac/runner_namespace_role.yaml"),
    ),
    (
        "config/rbac/controller_namespace_role.yaml",
        include_str!("../../config/rbac/controller_namespace_role.yaml"),
    ),
];

/// How a cluster is set up.
pub struct ClusterOptions {
    /// Wall time of everything in it.
    pub clock: Clock,
    /// Source of uids, generated names and faults.
    pub seed: u64,
    /// Delays of pods.
    pub kubelet: KubeletOptions,
    /// From a runner's start until it is online.
    pub sign_in: Duration,
    /// How long the Actions service holds a poll; GitHub's does for about 50 s.
    pub poll: Duration,
    /// The controller's settings.
    pub settings: ControllerSettings,
    /// Whether a line is kept for each request, change and step.
    pub keep_log: bool,
    /// Whether the kubelet takes pods through their life. Without it they stay as they were
    /// created, for whoever plays the kubelet.
    pub run_pods: bool,
    /// What admission does to new objects.
    pub admission: Vec<Admission>,
    /// What goes wrong with requests and watch events of the API server.
    pub interceptor: Arc<dyn faults::Interceptor>,
    /// What goes wrong with calls of the Actions service.
    pub actions_interceptor: Option<Arc<dyn embedded_actions::Interceptor>>,
    /// A vault that controller and listeners can reach.
    pub key_vault: Option<KeyVault>,
    /// The CustomResourceDefinitions that are installed; ours if none are given.
    pub crds: Option<Vec<Value>>,
}

impl ClusterOptions {
    /// A cluster with the usual delays, and no log.
    #[must_use]
    pub fn new(clock: Clock, seed: u64) -> Self {
        Self {
            clock,
            seed,
            kubelet: KubeletOptions {
                fault_annotation: Some(FAULT_ANNOTATION),
                ..KubeletOptions::default()
            },
            sign_in: Duration::from_millis(150),
            poll: Duration::from_secs(50),
            settings: ControllerSettings {
                namespace: CONTROLLER_NAMESPACE.to_owned(),
                ..ControllerSettings::default()
            },
            keep_log: false,
            run_pods: true,
            admission: Vec::new(),
            interceptor: Arc::new(faults::NoFaults),
            actions_interceptor: None,
            key_vault: None,
            crds: None,
        }
    }
}

/// An embedded cluster.
pub struct Cluster {
    /// The API server.
    pub api: ApiServer,
    /// The Actions service.
    pub actions: ActionsService,
    /// The kubelet.
    pub kubelet: Kubelet,
    /// Wall time.
    pub clock: Clock,
    transports: Arc<dyn Transports>,
    settings: Arc<ControllerSettings>,
    log: Option<Log>,
    listener_metrics: ListenerBook,
    /// The kubelet's task, when it runs.
    kubelet_task: RefCell<Option<JoinHandle<()>>>,
}

/// A log that several write to.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn write(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A running controller. Dropping it kills it, wherever it is.
pub struct RunningController {
    /// Its metrics.
    pub metrics: Arc<Metrics>,
    ready: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

/// What a controller on the current thread works with.
pub struct ControllerWorld {
    /// An API server: the embedded one, or any other.
    pub client: kube::Client,
    /// Ways to the Actions service.
    pub transports: Arc<dyn Transports>,
    /// Wall time.
    pub clock: Clock,
    /// The controller's settings.
    pub settings: Arc<ControllerSettings>,
    /// The only namespace whose scale sets it looks after; `None` for all.
    pub namespace: Option<String>,
    /// Where each step is written down, if anywhere.
    pub journal: Option<Journal>,
}

impl RunningController {
    /// Starts a controller on the current thread. To be called inside a `LocalSet`.
    #[must_use]
    pub fn start(world: ControllerWorld) -> Self {
        // metrics declare fixed names in a new registry, which a test shows to be sound
        let metrics = Arc::new(Metrics::new().unwrap_or_else(|error| unreachable!("{error}")));
        let ready = Arc::new(AtomicBool::new(false));
        let refusals = Refusals::default();
        let sources = KubeIo::new(world.client.clone(), Limiter::unlimited(), metrics.clone())
            .at_home_in(&world.settings.namespace)
            .sharing(refusals.clone());
        let options = ClientsOptions {
            user_agent: UserAgent {
                version: world.settings.version.clone(),
                subsystem: "controller".to_owned(),
                ..UserAgent::default()
            },
            sync_period: world.settings.sync_period,
            policy: world.settings.policy.clone(),
            observer: Some(Arc::new(CallMetrics(metrics.clone()))),
            ..ClientsOptions::default()
        };
        let actions = Arc::new(Clients::new(
            Arc::new(KubeSources(sources)),
            world.transports,
            world.clock.clone(),
            options,
        ));
        let (metrics_there, ready_there) = (metrics.clone(), ready.clone());
        // a set of its own, so that everything the controller started dies with it
        let own = LocalSet::new();
        own.spawn_local(async move {
            let unregistrar = UnregistrarHandle::start(
                actions.clone(),
                world.clock.clone(),
                metrics_there.clone(),
            );
            let ended = run_controller(ControllerOptions {
                client: world.client,
                limiter: Arc::new(Limiter::unlimited()),
                refusals,
                fence: Fence::open(),
                unregistrar: Arc::new(unregistrar),
                actions,
                clock: world.clock,
                metrics: metrics_there,
                settings: world.settings,
                namespace: world.namespace,
                workers: Workers::Here,
                ready: ready_there,
                journal: world.journal,
            });
            match ended.await {
                Ok(never) => match never {},
                Err(lost) => tracing::error!(%lost, "controller ended"),
            }
        });
        Self {
            metrics,
            ready,
            task: tokio::task::spawn_local(own),
        }
    }

    /// Whether its watches are established.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Whether it has ended by itself, because a watch was lost.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for RunningController {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Cluster {
    /// Starts a cluster with our resources installed, without a controller. To be called inside
    /// a `LocalSet`.
    ///
    /// # Errors
    ///
    /// When our own manifests do not install, which tests would have shown.
    pub async fn start(options: ClusterOptions) -> anyhow::Result<Self> {
        let log = options.keep_log.then(Log::default);
        let api = ApiServer::new(ApiServerOptions {
            keep_log: options.keep_log,
            admission: options.admission,
            interceptor: options.interceptor,
            ..ApiServerOptions::new(options.clock.clone(), options.seed)
        });
        let crds = match options.crds {
            Some(crds) => crds,
            None => {
                let ours = crate::api::crds().into_iter();
                ours.map(serde_json::to_value).collect::<Result<_, _>>()?
            }
        };
        for crd in crds {
            api.install_crd(crd)
                .map_err(|error| anyhow::anyhow!("{error:?}"))?;
        }
        let actions = ActionsService::new(embedded_actions::Options {
            seed: options.seed,
            durations: embedded_actions::Durations {
                poll: options.poll,
                ..embedded_actions::Durations::default()
            },
            log: log.clone().map(|log| {
                let write = move |line: &str| log.write(line.to_owned());
                Arc::new(write) as Arc<dyn Fn(&str) + Send + Sync>
            }),
            interceptor: options.actions_interceptor,
            ..embedded_actions::Options::new(options.clock.clone())
        });
        let listener_metrics = ListenerBook::default();
        let transports = match options.key_vault {
            Some(vault) => with_key_vault(&vault, transports(&actions)),
            None => transports(&actions),
        };
        let kubelet_client = api.client_as("system:kubelet", &["system:masters"]);
        let programs = SimulatedPrograms {
            kubelet_client: kubelet_client.clone(),
            listener_metrics: listener_metrics.clone(),
            api: api.clone(),
            actions: actions.clone(),
            transports: Arc::clone(&transports),
            clock: options.clock.clone(),
            sign_in: options.sign_in,
        };
        let kubelet = Kubelet::new(
            kubelet_client,
            options.clock.clone(),
            options.kubelet,
            Rc::new(programs),
        );
        let run_kubelet = || tokio::task::spawn_local(kubelet.clone().run());
        let kubelet_task = options.run_pods.then(run_kubelet);
        let cluster = Self {
            api,
            actions,
            kubelet,
            clock: options.clock,
            transports,
            settings: Arc::new(options.settings),
            log,
            listener_metrics,
            kubelet_task: RefCell::new(kubelet_task),
        };
        cluster.furnish().await?;
        Ok(cluster)
    }

    /// The controller's settings.
    #[must_use]
    pub fn settings(&self) -> &Arc<ControllerSettings> {
        &self.settings
    }

    /// Starts a controller on the current thread.
    #[must_use]
    pub fn start_controller(&self) -> RunningController {
        self.start_controller_with(self.settings.clone())
    }

    /// Starts a controller with other settings than the cluster's.
    #[must_use]
    pub fn start_controller_with(&self, settings: Arc<ControllerSettings>) -> RunningController {
        self.start_controller_for(settings, None)
    }

    /// Starts a controller that looks after the scale sets of one namespace only.
    #[must_use]
    pub fn start_controller_in(&self, namespace: &str) -> RunningController {
        self.start_controller_for(self.settings.clone(), Some(namespace.to_owned()))
    }

    /// Starts a controller with other settings than the cluster's, which looks after the scale
    /// sets of one namespace, or of all.
    #[must_use]
    pub fn start_controller_for(
        &self,
        settings: Arc<ControllerSettings>,
        namespace: Option<String>,
    ) -> RunningController {
        let journal = self.log.clone().map(|log| {
            let clock = self.clock.clone();
            let write = move |line: &str| log.write(format!("{} {line}", clock.now()));
            Arc::new(write) as Journal
        });
        RunningController::start(ControllerWorld {
            client: self.controller_client(),
            transports: Arc::clone(&self.transports),
            clock: self.clock.clone(),
            settings,
            namespace,
            journal,
        })
    }

    /// The metrics of each listener that runs or has run, by its pod's name; when several had
    /// the name, those of the latest.
    #[must_use]
    pub fn listener_metrics(&self) -> Vec<(String, prometheus::Registry)> {
        let book = self.listener_metrics.lock();
        let book = book.unwrap_or_else(PoisonError::into_inner);
        let metrics = book.iter();
        metrics
            .map(|(pod, metrics)| (pod.clone(), metrics.registry().clone()))
            .collect()
    }

    /// Takes the lines logged so far: those of the API server, then those of Actions service
    /// and actors in the order they happened.
    #[must_use]
    pub fn take_log(&self) -> Vec<String> {
        let mut lines = self.api.take_log();
        lines.extend(self.log.iter().flat_map(Log::take));
        lines
    }

    /// Restores the API server's store, and starts the kubelet anew, as who restores etcd is told
    /// to do. To be called inside a `LocalSet`.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.api.restore(snapshot);
        self.kubelet_task.replace_with(|task| {
            let old = task.take()?;
            old.abort();
            Some(tokio::task::spawn_local(self.kubelet.clone().run()))
        });
    }

    /// Applies an object: creates it, or replaces what the manifest sets. The namespace of a scale
    /// set gets the binding that people give it in a real cluster.
    ///
    /// # Errors
    ///
    /// As the API server answers.
    pub async fn apply(&self, object: &Value) -> Result<(), ApplyError> {
        if object["kind"] == "AutoscalingRunnerSet" {
            let namespace = object["metadata"]["namespace"].as_str();
            let binding = runner_namespace_binding(namespace.unwrap_or("default"));
            super::apply::apply(&self.api, &binding).await?;
        }
        super::apply::apply(&self.api, object).await
    }

    /// The client of the controller: as its ServiceAccount, with the rights that are installed
    /// with it in a real cluster.
    fn controller_client(&self) -> kube::Client {
        let user = format!("system:serviceaccount:{CONTROLLER_NAMESPACE}:{CONTROLLER_ACCOUNT}");
        self.api.client_as(&user, &["system:authenticated"])
    }

    async fn furnish(&self) -> anyhow::Result<()> {
        for (kind, name) in [("Namespace", CONTROLLER_NAMESPACE), ("Node", NODE)] {
            let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
            self.apply(&object).await?;
        }
        for (source, text) in RBAC {
            for object in crate::api::read_manifests(text, source)? {
                self.apply(&object.value).await?;
            }
        }
        Ok(())
    }
}

/// What lets the controller work in a namespace with runners, as in `config/samples`.
#[must_use]
pub fn runner_namespace_binding(namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": CONTROLLER_ACCOUNT, "namespace": namespace},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "impresario-runner-namespace",
        },
        "subjects": [{
            "kind": "ServiceAccount",
            "name": CONTROLLER_ACCOUNT,
            "namespace": CONTROLLER_NAMESPACE,
        }],
    })
}
