//! A stage for whole-program tests: a cluster (embedded, or a real API server), the Actions
//! service, a controller that can be killed, and hands to play kubelet, listener and person.
//!
//! On the embedded cluster time is virtual, so waiting costs nothing and is exact; on a real
//! one it is real. Both wait by looking again until a deadline, and a deadline that passes
//! says what there was instead.

pub mod census;
mod clearing;
pub mod hands;
pub mod invariants;
pub mod ledger;
pub mod manifests;
pub mod warden;

use impresario::simulation::transports;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::sync::Arc;
use std::time::Duration;

use embedded_actions::{ActionsService, JobSpec, JobState};
use embedded_kube::Snapshot;
use impresario::api::stand_in::{decode, stand_ins};
use impresario::api::{
    AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet,
};
use impresario::clock::Clock;
use impresario::resources::ControllerSettings;
use impresario::simulation::cluster::{
    CONTROLLER_NAMESPACE, Cluster, ClusterOptions, ControllerWorld, RunningController,
};
use k8s_openapi::api::core::v1::{Event, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

use census::Census;
#[allow(unused_imports, reason = "not every test uses all of them")]
pub use warden::{Hindrance, Trouble, Warden, Who, Writes};

/// How long to wait for what ought to happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// How soon to look whether it has, at first and in the end.
const LOOK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(800));
/// Silence for so long is rest: where time is virtual, and where it is real and dear.
const SILENCE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3));
/// How many lines of each log a failure shows.
const SHOWN: usize = 60;

/// How much of each line.
const WIDTH: usize = 400;

/// Where virtual time begins.
const BEGIN: &str = "2026-03-04T05:06:07Z";

/// Plays a test on one thread, in virtual time.
pub fn play<T>(test: impl AsyncFnOnce() -> T) -> T {
    run(true, test)
}

/// Plays a test on one thread, in real time.
pub fn play_live<T>(test: impl AsyncFnOnce() -> T) -> T {
    run(false, test)
}

fn run<T>(paused: bool, test: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(paused)
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, test())
}

/// What was stored at one time, and what the warden knew of it.
pub struct Backup {
    store: Snapshot,
    ledger: ledger::Ledger,
}

/// Cluster, Actions service and controller.
pub struct Stage {
    /// May do everything.
    pub client: Client,
    pub actions: ActionsService,
    pub warden: Arc<Warden>,
    /// Whether pods live by themselves.
    pub runs_pods: bool,
    cluster: Option<Cluster>,
    /// Of a controller on a real cluster.
    real: Option<(Client, Clock)>,
    /// Of what is made on a real cluster.
    census: Option<Census>,
    /// Of the next controller.
    settings: RefCell<ControllerSettings>,
    /// The only namespace that the next controller looks after; none for all.
    watched: RefCell<Option<String>>,
    controller: RefCell<Option<RunningController>>,
}

impl Stage {
    /// An embedded cluster whose pods live by themselves, with the real listener program and
    /// simulated runners, and a controller.
    pub async fn whole(seed: u64) -> Self {
        let stage = Self::embedded(seed, true, true).await;
        stage.start_controller();
        stage
    }

    /// The same without a log, which takes more time than all else: for tests of many runs.
    /// With `STAGE_LOG` set there is one, to see why a run fails.
    pub async fn whole_without_log(seed: u64) -> Self {
        let keep_log = std::env::var_os("STAGE_LOG").is_some();
        let stage = Self::embedded(seed, true, keep_log).await;
        stage.start_controller();
        stage
    }

    /// An embedded cluster whose pods do what the test says, and a controller.
    pub async fn by_hand() -> Self {
        let stage = Self::embedded(5, false, true).await;
        stage.start_controller();
        stage
    }

    /// An embedded cluster without a controller.
    pub async fn embedded(seed: u64, run_pods: bool, keep_log: bool) -> Self {
        Self::embedded_with(seed, |options| {
            options.run_pods = run_pods;
            options.keep_log = keep_log;
        })
        .await
    }

    /// An embedded cluster without a controller, set up with other options than the usual ones.
    pub async fn embedded_with(seed: u64, change: impl FnOnce(&mut ClusterOptions)) -> Self {
        let clock = Clock::simulated(BEGIN.parse().unwrap());
        let warden = warden::warden();
        warden.goes_by(clock.clone());
        let mut options = ClusterOptions {
            interceptor: warden.clone(),
            actions_interceptor: Some(warden.clone()),
            ..ClusterOptions::new(clock, seed)
        };
        change(&mut options);
        let (run_pods, settings) = (options.run_pods, options.settings.clone());
        let cluster = Cluster::start(options).await.unwrap();
        warden.look_at(Some(cluster.api.clone()), Some(cluster.actions.clone()));
        Self {
            client: cluster.api.client(),
            actions: cluster.actions.clone(),
            warden,
            runs_pods: run_pods,
            cluster: Some(cluster),
            real: None,
            census: None,
            settings: RefCell::new(settings),
            watched: RefCell::default(),
            controller: RefCell::default(),
        }
    }

    /// A real API server: `client` may do everything, `controller` what the controller may.
    /// The Actions service is embedded, and the test plays kubelet and listener.
    pub fn real(client: Client, controller: Client) -> Self {
        let clock = Clock::system();
        let warden = warden::warden();
        let actions = ActionsService::new(embedded_actions::Options {
            interceptor: Some(warden.clone()),
            ..embedded_actions::Options::new(clock.clone())
        });
        let settings = ControllerSettings {
            namespace: CONTROLLER_NAMESPACE.to_owned(),
            ..ControllerSettings::default()
        };
        let census = Some(Census::start(&client));
        Self {
            client,
            actions,
            warden,
            runs_pods: false,
            cluster: None,
            real: Some((controller, clock)),
            census,
            settings: RefCell::new(settings),
            watched: RefCell::default(),
            controller: RefCell::default(),
        }
    }

    /// The embedded cluster.
    pub fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().expect("an embedded cluster")
    }

    /// A backup of the embedded cluster's store.
    pub fn backup(&self) -> Backup {
        Backup {
            store: self.cluster().api.snapshot(),
            ledger: self.warden.ledger(),
        }
    }

    /// Restores the embedded cluster's store.
    pub fn restore(&self, backup: &Backup) {
        self.cluster().restore(&backup.store);
        self.warden.go_back(backup.ledger.clone());
    }

    /// A client that may do what the controller may, and is taken for it.
    pub fn as_controller(&self) -> Client {
        let user = format!("system:serviceaccount:{CONTROLLER_NAMESPACE}:impresario-controller");
        let api = &self.cluster().api;
        api.client_as(&user, &["system:authenticated"])
    }

    /// Starts a controller in place of the one that runs.
    pub fn start_controller(&self) {
        self.kill_controller();
        self.warden.revive();
        let settings = Arc::new(self.settings.borrow().clone());
        let namespace = self.watched.borrow().clone();
        let started = match (&self.cluster, &self.real) {
            (Some(cluster), _) => cluster.start_controller_for(settings, namespace),
            (None, Some((client, clock))) => RunningController::start(ControllerWorld {
                client: client.clone(),
                transports: transports(&self.actions),
                clock: clock.clone(),
                settings,
                namespace,
                journal: None,
            }),
            (None, None) => unreachable!("a stage has a cluster"),
        };
        self.controller.replace(Some(started));
    }

    /// Starts a controller with other settings in place of the one that runs.
    pub fn restart_with(&self, change: impl FnOnce(&mut ControllerSettings)) {
        change(&mut self.settings.borrow_mut());
        self.start_controller();
    }

    /// The next controllers look after this namespace only.
    pub fn watch_only(&self, namespace: Option<&str>) {
        self.watched.replace(namespace.map(str::to_owned));
    }

    /// How many requests to the API server the controller has counted, by verb, kind and code.
    pub fn requests(&self) -> BTreeMap<[String; 3], f64> {
        let controller = self.controller.borrow();
        let registry = controller.as_ref().map(|one| one.metrics.registry());
        let families = registry.map(prometheus::Registry::gather);
        let mut families = families.into_iter().flatten();
        let all = families.find(|family| family.name() == "impresario_kubernetes_requests_total");
        let series = all.iter().flat_map(|family| family.get_metric());
        let counted = series.map(|one| {
            let label = |name: &str| {
                let mut labels = one.get_label().iter();
                let found = labels.find(|pair| pair.name() == name);
                found.map_or_else(String::new, |pair| pair.value().to_owned())
            };
            let key = ["verb", "kind", "code"].map(label);
            (key, one.get_counter().get_value())
        });
        counted.collect()
    }

    /// The sum of the series of a counter of the controller that have this label.
    pub fn counted(&self, metric: &str, label: (&str, &str)) -> f64 {
        let controller = self.controller.borrow();
        let registry = controller.as_ref().map(|one| one.metrics.registry());
        let families = registry.map(prometheus::Registry::gather);
        let mut families = families.into_iter().flatten();
        let family = families.find(|family| family.name() == metric);
        let series = family.iter().flat_map(|family| family.get_metric());
        let has_label = |one: &&prometheus::proto::Metric| {
            let mut labels = one.get_label().iter();
            labels.any(|pair| (pair.name(), pair.value()) == label)
        };
        series
            .filter(has_label)
            .map(|one| one.get_counter().get_value())
            .sum()
    }

    /// How many series of a metric the controller shows.
    pub fn series(&self, metric: &str) -> usize {
        let controller = self.controller.borrow();
        let registry = controller.as_ref().map(|one| one.metrics.registry());
        let families = registry.map(prometheus::Registry::gather);
        let mut families = families.into_iter().flatten();
        let family = families.find(|family| family.name() == metric);
        family.map_or(0, |family| family.get_metric().len())
    }

    /// How many objects of that plural name were ever made, by whomever.
    pub fn created(&self, plural: &str) -> usize {
        match &self.census {
            Some(census) => census.count(plural),
            None => self.warden.created(plural),
        }
    }

    /// Whether time is real.
    pub fn is_real(&self) -> bool {
        self.real.is_some()
    }

    /// Kills the controller, wherever it is.
    pub fn kill_controller(&self) {
        self.controller.replace(None);
    }

    /// Whether the controller has ended by itself.
    pub fn controller_has_ended(&self) -> bool {
        let controller = self.controller.borrow();
        controller
            .as_ref()
            .is_some_and(RunningController::has_ended)
    }

    // === waiting ===

    /// Waits until something holds.
    #[track_caller]
    pub fn until(&self, what: &str, holds: impl AsyncFn() -> bool) -> impl Future<Output = ()> {
        self.within(PATIENCE, what, holds)
    }

    /// Waits so long at most until something holds.
    #[track_caller]
    pub fn within(
        &self,
        patience: Duration,
        what: &str,
        holds: impl AsyncFn() -> bool,
    ) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move {
            let deadline = Instant::now() + patience;
            let mut pause = LOOK.0;
            while !holds().await {
                if Instant::now() >= deadline {
                    panic!(
                        "{at}: not within {patience:?}: {what}\n{}",
                        self.picture().await
                    );
                }
                sleep(pause).await;
                pause = (pause * 2).min(LOOK.1);
            }
        }
    }

    /// Waits until neither the controller nor a listener has written anything for a while.
    #[track_caller]
    pub fn settle(&self) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move {
            let deadline = Instant::now() + Duration::from_secs(600);
            let silence = if self.is_real() { SILENCE.1 } else { SILENCE.0 };
            loop {
                let before = self.writes().await;
                sleep(silence).await;
                if self.writes().await == before {
                    self.warden.check_rest();
                    return;
                }
                if Instant::now() >= deadline {
                    panic!("{at}: it never settles\n{}", self.picture().await);
                }
            }
        }
    }

    /// INV-14: after rest, a minute of silence.
    #[track_caller]
    pub fn assert_at_rest(&self) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move {
            self.settle().await;
            let (before, ours) = (self.writes().await, self.warden.writes().len());
            sleep(self.soon_or(Duration::from_secs(60))).await;
            let mut since = self.warden.writes().split_off(ours);
            since.retain(|write| write.who != Who::Other);
            if self.writes().await != before || !since.is_empty() {
                panic!(
                    "{at}: written at rest: {since:#?}\n{}",
                    self.picture().await
                );
            }
        }
    }

    /// That time where it is virtual and costs nothing, a few seconds where it is real.
    pub fn soon_or(&self, time: Duration) -> Duration {
        if self.cluster.is_some() {
            time
        } else {
            time.min(Duration::from_secs(8))
        }
    }

    /// Something that changes with every write of ours.
    async fn writes(&self) -> String {
        if self.cluster.is_some() {
            return self.warden.writes_of_ours().to_string();
        }
        let mut revisions = String::new();
        self.revisions::<AutoscalingRunnerSet>(&mut revisions).await;
        self.revisions::<AutoscalingListener>(&mut revisions).await;
        self.revisions::<EphemeralRunnerSet>(&mut revisions).await;
        self.revisions::<EphemeralRunner>(&mut revisions).await;
        self.revisions::<Pod>(&mut revisions).await;
        self.revisions::<Secret>(&mut revisions).await;
        self.revisions::<Role>(&mut revisions).await;
        self.revisions::<RoleBinding>(&mut revisions).await;
        revisions
    }

    async fn revisions<K: Known>(&self, text: &mut String) {
        for object in self.all::<K>().await {
            let revision = object.resource_version().unwrap_or_default();
            let _ = write!(text, "{}@{revision} ", object.name_any());
        }
    }

    // === looking ===

    /// The objects of a kind, by namespace and name.
    pub async fn all<K: Known>(&self) -> Vec<K> {
        let api = Api::<K>::all(self.client.clone());
        let items = api.list(&ListParams::default()).await.unwrap().items;
        let mut items: Vec<K> = items.into_iter().map(raised).collect();
        items.sort_by_key(|object| (object.namespace(), object.name_any()));
        items
    }

    /// An object.
    pub async fn get<K: Known>(&self, namespace: &str, name: &str) -> Option<K> {
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        api.get_opt(name).await.unwrap().map(raised)
    }

    /// The scale set of the fixture.
    pub async fn scale_set(&self) -> AutoscalingRunnerSet {
        let mut sets = self.all::<AutoscalingRunnerSet>().await;
        assert_eq!(sets.len(), 1, "a test has one scale set");
        sets.remove(0)
    }

    /// Its runner set.
    pub async fn runner_set(&self) -> EphemeralRunnerSet {
        let mut sets = self.all::<EphemeralRunnerSet>().await;
        assert_eq!(sets.len(), 1, "a scale set has one runner set");
        sets.remove(0)
    }

    /// All runners, the oldest first.
    pub async fn runners(&self) -> Vec<EphemeralRunner> {
        let mut runners = self.all::<EphemeralRunner>().await;
        runners.sort_by_key(|runner| (runner.creation_timestamp(), runner.name_any()));
        runners
    }

    /// The runners that are not being deleted.
    pub async fn live(&self) -> Vec<EphemeralRunner> {
        let mut runners = self.runners().await;
        runners.retain(|runner| runner.metadata.deletion_timestamp.is_none());
        runners
    }

    /// The pods of listeners.
    pub async fn listener_pods(&self) -> Vec<Pod> {
        let mut pods = self.all::<Pod>().await;
        pods.retain(|pod| pod.namespace().as_deref() == Some(CONTROLLER_NAMESPACE));
        pods
    }

    /// The pods of runners.
    pub async fn runner_pods(&self) -> Vec<Pod> {
        let mut pods = self.all::<Pod>().await;
        pods.retain(|pod| pod.namespace().as_deref() != Some(CONTROLLER_NAMESPACE));
        pods
    }

    /// How many jobs have ended well.
    pub fn jobs_done(&self) -> usize {
        let jobs = self.actions.jobs();
        let done = jobs.iter().filter(|job| job.state == JobState::Completed);
        done.filter(|job| job.result == "succeeded").count()
    }

    /// Queues jobs that last so long.
    pub fn queue_jobs(&self, count: usize, label: &str, lasting: Duration) {
        for number in 1..=count {
            let job = JobSpec::on(label)
                .lasting(lasting)
                .named(format!("job {number}"));
            self.actions.queue_job(job);
        }
    }

    /// Names of what is there and should not be, once nothing is wanted any more: objects of
    /// ours, and what the Actions service remembers.
    pub async fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        self.list_names::<AutoscalingRunnerSet>(&mut left, |_| true)
            .await;
        self.list_names::<AutoscalingListener>(&mut left, |_| true)
            .await;
        self.list_names::<EphemeralRunnerSet>(&mut left, |_| true)
            .await;
        self.list_names::<EphemeralRunner>(&mut left, |_| true)
            .await;
        self.list_names::<Pod>(&mut left, |_| true).await;
        self.list_names::<Secret>(&mut left, |secret| !manifests::is_users(secret))
            .await;
        let of_listener = |name: &str| name.ends_with("-listener");
        self.list_names::<ServiceAccount>(&mut left, |o| of_listener(&o.name_any()))
            .await;
        self.list_names::<Role>(&mut left, |o| of_listener(&o.name_any()))
            .await;
        self.list_names::<RoleBinding>(&mut left, |o| of_listener(&o.name_any()))
            .await;
        left.extend(
            self.actions
                .runners()
                .iter()
                .map(|runner| format!("{runner:?}")),
        );
        left.extend(
            self.actions
                .scale_sets()
                .iter()
                .map(|set| format!("{set:?}")),
        );
        left.extend(
            self.actions
                .sessions()
                .iter()
                .map(|session| format!("{session:?}")),
        );
        left
    }

    async fn list_names<K: Known>(&self, names: &mut Vec<String>, wanted: impl Fn(&K) -> bool) {
        for object in self.all::<K>().await.iter().filter(|object| wanted(object)) {
            let namespace = object.namespace().unwrap_or_default();
            names.push(format!(
                "{} {namespace}/{}",
                K::kind(&()),
                object.name_any()
            ));
        }
    }

    /// INV-10: nothing belongs to a runner that is not there (any more).
    #[track_caller]
    pub fn assert_nothing_left_over_beside_runners(&self) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move {
            let runners: Vec<String> = self
                .runners()
                .await
                .iter()
                .map(ResourceExt::name_any)
                .collect();
            let mut strangers = Vec::new();
            for pod in self.runner_pods().await {
                strangers.push(pod.name_any());
            }
            for secret in self.all::<Secret>().await {
                let jit = secret
                    .data
                    .as_ref()
                    .is_some_and(|data| data.contains_key("jitToken"));
                if jit {
                    strangers.push(secret.name_any());
                }
            }
            strangers.extend(self.actions.runners().into_iter().map(|runner| runner.name));
            strangers.retain(|name| !runners.contains(name));
            assert!(strangers.is_empty(), "{at}: left over: {strangers:?}");
        }
    }

    /// Nothing happened that must not, and no secret was shown.
    #[track_caller]
    pub fn assert_sound(&self) {
        let violations = self.warden.violations();
        assert!(violations.is_empty(), "{violations:#?}");
        let several = self.actions.runners_with_several_jobs();
        assert!(several.is_empty(), "runners with several jobs: {several:?}");
        let shown = self.objects_with(manifests::TOKEN);
        assert!(shown.is_empty(), "a credential is shown: {shown:#?}");
    }

    /// The objects of an embedded cluster, Secrets apart, that have this in them.
    pub fn objects_with(&self, text: &str) -> Vec<String> {
        let api = self.cluster.as_ref().map(|cluster| &cluster.api);
        let resources = api.map(|api| api.resources()).unwrap_or_default();
        let others = resources.iter().filter(|one| one.kind != "Secret");
        others
            .flat_map(|one| self.cluster().api.list(&one.group, &one.plural, None))
            .map(|object| object.to_string())
            .filter(|object| object.contains(text))
            .collect()
    }

    /// Everything that helps to see why a test fails.
    pub async fn picture(&self) -> String {
        let mut text = String::new();
        for set in self.all::<AutoscalingRunnerSet>().await {
            let _ = writeln!(text, "ARS {} {:?}", meta(&set), set.status);
        }
        for listener in self.all::<AutoscalingListener>().await {
            let _ = writeln!(text, "AL  {} {:?}", meta(&listener), listener.status);
        }
        for set in self.all::<EphemeralRunnerSet>().await {
            let (replicas, patch) = (set.spec.replicas, set.spec.patch_id);
            let meta = meta(&set);
            let _ = writeln!(text, "ERS {meta} {replicas:?}/{patch} {:?}", set.status);
        }
        for runner in self.runners().await {
            let _ = writeln!(text, "ER  {} {:?}", meta(&runner), runner.status);
        }
        for pod in self.all::<Pod>().await {
            let phase = pod.status.as_ref().and_then(|status| status.phase.clone());
            let _ = writeln!(text, "pod {} {phase:?}", meta(&pod));
        }
        let _ = writeln!(text, "left over {:#?}", self.leftovers().await);
        for event in self.all::<Event>().await {
            let (reason, message) = (event.reason.unwrap_or_default(), event.message);
            let _ = writeln!(text, "event {reason}: {}", message.unwrap_or_default());
        }
        let _ = writeln!(text, "violations {:#?}", self.warden.violations());
        let writes = self.warden.writes();
        for write in writes.iter().skip(writes.len().saturating_sub(SHOWN)) {
            let _ = writeln!(text, "{write:?}");
        }
        if let Some(cluster) = &self.cluster {
            let requests = cluster.api.take_log();
            let steps = cluster.take_log();
            for mut log in [requests, steps] {
                // mostly the test's own looks
                log.retain(|line| !line.contains("request list") && !line.contains("request get"));
                for line in log.iter().skip(log.len().saturating_sub(SHOWN)) {
                    let line: String = line.chars().take(WIDTH).collect();
                    let _ = writeln!(text, "{line}");
                }
            }
        }
        text
    }

    /// What is counted about the Actions service.
    pub fn service(&self) -> BTreeMap<&'static str, usize> {
        [
            "create_scale_set",
            "delete_scale_set",
            "generate_jit_config",
            "remove_runner",
        ]
        .into_iter()
        .map(|call| (call, self.warden.calls(call)))
        .collect()
    }

    /// A condition of the scale set as `status reason: message`.
    pub async fn condition(&self, kind: &str) -> String {
        let set = self.scale_set().await;
        let status = set.status.unwrap_or_default();
        let found = status.conditions.iter().find(|one| one.type_ == kind);
        found.map_or_else(String::new, |one| {
            format!("{} {}: {}", one.status, one.reason, one.message)
        })
    }

    /// Whether a condition of the scale set says that this right is missing, where, and which role
    /// has it.
    pub async fn said_of(&self, resource: &str, verb: &str) -> bool {
        let set = self.scale_set().await;
        let right = format!("cannot {verb} resource \"{resource}\"");
        let parts = [&right, manifests::RUN, "impresario-runner-namespace"];
        let status = set.status.unwrap_or_default();
        let mut said = status.conditions.iter().filter(|one| one.status != "True");
        said.any(|one| parts.iter().all(|part| one.message.contains(part)))
    }

    /// Applies a manifest of one or more documents.
    pub async fn apply(&self, documents: &[Value]) {
        for document in documents {
            if document["kind"] == "AutoscalingRunnerSet" {
                let namespace = document["metadata"]["namespace"].as_str().unwrap();
                manifests::apply(&self.client, &manifests::binding(namespace)).await;
            }
            manifests::apply(&self.client, document).await;
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // the server holds the warden, and it the server
        self.warden.look_at(None, None);
    }
}

/// A namespaced kind that is read and listed here.
pub trait Known:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
{
}

impl<K> Known for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
{
}

/// The object with what stands in annotations in its fields.
pub fn raised<K: Known>(object: K) -> K {
    let kind = K::kind(&());
    if stand_ins(&kind, object.annotations().keys()).is_empty() {
        return object;
    }
    let value = serde_json::to_value(object).unwrap();
    decode(&kind, &value).unwrap().0
}

fn meta<K: Known>(object: &K) -> String {
    let going = object.meta().deletion_timestamp.is_some();
    let namespace = object.namespace().unwrap_or_default();
    let going = if going { " deleting" } else { "" };
    let finalizers = object.finalizers();
    format!("{namespace}/{}{going} {finalizers:?}", object.name_any())
}
