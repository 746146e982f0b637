//! The controller: one per process. Owns the watches, makes scale sets, and hears from them.

mod sharing;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use actix::prelude::*;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::task::{JoinSet, LocalSet};

use self::sharing::{Claim, Sharing};
use super::children::start_scale_set;
use super::mailbox::Mailbox;
use super::registered_runners::{Registered, remove_registration};
use super::router::{ActorKey, ObjectEvent, Router, keys_of};
use super::schema_watch::SchemaWatch;
use super::services::{ActionsIo, Journal, Services, Unregister};
use super::watch::{Barrier, StoreRestored, Watch, WatchEnded, WatchLost};
use super::workers::{WorkerEnded, Workers};
use crate::actors::scale_set::{
    GaugeLabels, ScaleSetCommand, ScaleSetMachine, ScaleSetReport, identity,
};
use crate::api::constants::labels;
use crate::api::{
    AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet, MissingFields,
};
use crate::clock::Clock;
use crate::kube_io::{DRAIN, EventPublisher, Fence, KubeIo, Limiter, Refusals};
use crate::messages::{EventNote, EventSeverity, Input, Kind, KubeObject, Object};
use crate::metrics::Metrics;
use crate::resources::ControllerSettings;

/// Runners' pods carry this label, whatever the template says.
const RUNNER_PODS: &str = "actions-ephemeral-runner=True";
/// What belongs to listeners in the controller's namespace.
const LISTENER_PARTS: &str = "app.kubernetes.io/component=runner-scale-set-listener";

/// How many watches there are, and so initial lists.
const WATCHES: usize = 9;

/// What a controller works with.
pub struct ControllerOptions {
    /// The API server.
    pub client: Client,
    /// Limit on requests to it.
    pub limiter: Arc<Limiter>,
    /// The missing rights that were named already.
    pub refusals: Refusals,
    /// What all writes pass.
    pub fence: Fence,
    /// The Actions service.
    pub actions: Arc<dyn ActionsIo>,
    /// Removal of runners.
    pub unregistrar: Arc<dyn Unregister>,
    /// Wall time.
    pub clock: Clock,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// What the process was started with.
    pub settings: Arc<ControllerSettings>,
    /// The only namespace whose scale sets are looked after; `None` for all.
    pub namespace: Option<String>,
    /// Where scale sets live.
    pub workers: Workers,
    /// Turns true when all watches are established and delivered.
    pub ready: Arc<AtomicBool>,
    /// Where each step is written down, if anywhere.
    pub journal: Option<Journal>,
}

/// Why a controller cannot go on; the process is to start anew.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// A watch cannot be established any more.
    #[error(transparent)]
    Watch(#[from] WatchLost),
    /// Scale sets have nobody who looks after them.
    #[error(transparent)]
    Worker(#[from] WorkerEnded),
    /// Scale sets have no threads to live on.
    #[error("threads for scale sets: {0}")]
    Threads(#[from] std::io::Error),
    /// Nobody makes scale sets any more.
    #[error("the controller's actor has ended, which is a bug, please report it")]
    Actor,
}

/// Runs the controller until it cannot go on. To be called inside a `LocalSet`.
///
/// When the API server's store is restored from a backup, what the actors know is of a time
/// that never was. All of it is a cache, so they end, and others begin from new lists.
///
/// # Errors
///
/// When a watch cannot be established any more, or a worker or the controller's actor has ended.
pub async fn run(mut options: ControllerOptions) -> Result<Infallible, ControllerError> {
    let registered = Arc::new(Registered::default());
    let threads = options.workers.count();
    let mut restored = None;
    loop {
        let workers = std::mem::replace(&mut options.workers, Workers::Here);
        // a set of its own, so that all that was started ends with it
        let actors = LocalSet::new();
        let life = run_once(&options, workers, registered.clone(), restored.take());
        let ended = actors.run_until(life).await;
        if !matches!(ended, Ok(WatchEnded::Restored(_))) {
            // the lease may be given up after this, and what is dropped may still arrive
            options.fence.close();
            let drained = tokio::time::timeout(DRAIN, options.fence.drained());
            if actors.run_until(drained).await.is_err() {
                tracing::warn!("some writes have had no answer");
            }
        }
        drop(actors);
        match ended? {
            WatchEnded::Lost(lost) => return Err(lost.into()),
            WatchEnded::Restored(found) => {
                tracing::warn!("{found}; all objects are read anew");
                options.ready.store(false, Ordering::Relaxed);
                let counter = &options.metrics.store_restorations;
                counter.with_label_values(&[found.kind.as_str()]).inc();
                restored = Some(found);
                options.workers = Workers::of_count(threads)?;
            }
        }
    }
}

async fn run_once(
    options: &ControllerOptions,
    mut workers: Workers,
    registered: Arc<Registered>,
    restored: Option<StoreRestored>,
) -> Result<WatchEnded, ControllerError> {
    let worker_ended = workers.ended();
    let client = options.client.clone();
    let events = EventPublisher::new(client.clone(), options.clock.clone());
    let kube = KubeIo::new(client, options.limiter.clone(), options.metrics.clone())
        .at_home_in(&options.settings.namespace)
        .sharing(options.refusals.clone());
    let events = events.sharing(options.refusals.clone());
    let services = Arc::new(Services {
        kube: kube.behind(options.fence.clone()),
        actions: options.actions.clone(),
        unregistrar: options.unregistrar.clone(),
        events: events.behind(options.fence.clone()),
        clock: options.clock.clone(),
        metrics: options.metrics.clone(),
        router: Router::within(options.namespace.clone()),
        registered,
        settings: options.settings.clone(),
        journal: options.journal.clone(),
    });
    // before anything is read or written that may lack fields
    let schemas = SchemaWatch::begin(services.clone()).await;
    let barrier = Barrier::default();
    let (alive, actor_ended) = oneshot::channel();
    let controller = Controller {
        services: services.clone(),
        workers,
        lists: Vec::new(),
        barrier: barrier.clone(),
        ready: options.ready.clone(),
        scale_sets: BTreeMap::new(),
        said: Said::default(),
        gauges: BTreeMap::new(),
        sharing: Sharing::default(),
        restored,
        _alive: alive,
        missing: Arc::default(),
    }
    .start();
    tokio::task::spawn_local(schemas.run(controller.clone()));
    let unclaimed = controller.clone();
    services.router.set_unclaimed(move |key, event| {
        // few, as actors seldom stop: past the bounds of the mailbox, so that nothing is lost
        unclaimed.do_send(Unrouted { key, event });
    });
    let mut watches = start_watches(
        &services,
        &controller,
        &barrier,
        options.namespace.as_deref(),
    );
    let watch_ended = async {
        loop {
            // they end only by being lost; a panic in one is a bug, and the process starts anew
            match watches.join_next().await {
                Some(Ok(ended)) => return ended,
                Some(Err(error)) if error.is_panic() => {
                    std::panic::resume_unwind(error.into_panic())
                }
                _ => {}
            }
        }
    };
    tokio::select! {
        biased;
        ended = worker_ended => Err(ended.into()),
        _ = actor_ended => Err(ControllerError::Actor),
        ended = watch_ended => Ok(ended),
    }
}

fn start_watches(
    services: &Arc<Services>,
    controller: &Addr<Controller>,
    barrier: &Barrier,
    namespace: Option<&str>,
) -> JoinSet<WatchEnded> {
    let starter = Starter {
        services,
        controller,
        barrier,
    };
    let own = Some(services.settings.namespace.as_str());
    let mut watches = JoinSet::new();
    starter.watch::<AutoscalingRunnerSet>(&mut watches, namespace, "");
    starter.watch::<AutoscalingListener>(&mut watches, own, "");
    starter.watch::<EphemeralRunnerSet>(&mut watches, namespace, "");
    starter.watch::<EphemeralRunner>(&mut watches, namespace, "");
    starter.watch::<Pod>(&mut watches, namespace, RUNNER_PODS);
    starter.watch::<Pod>(&mut watches, own, LISTENER_PARTS);
    starter.watch::<ServiceAccount>(&mut watches, own, LISTENER_PARTS);
    starter.watch::<Role>(&mut watches, namespace, labels::LISTENER_NAME);
    starter.watch::<RoleBinding>(&mut watches, namespace, labels::LISTENER_NAME);
    watches
}

struct Starter<'a> {
    services: &'a Arc<Services>,
    controller: &'a Addr<Controller>,
    barrier: &'a Barrier,
}

impl Starter<'_> {
    fn watch<K>(
        &self,
        watches: &mut JoinSet<WatchEnded>,
        namespace: Option<&str>,
        selector: &'static str,
    ) where
        K: KubeObject
            + Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let client = self.services.kube.client().clone();
        let watch = Watch::<K> {
            api: match namespace {
                Some(namespace) => Api::namespaced(client, namespace),
                None => Api::all(client),
            },
            selector,
            services: self.services.clone(),
            controller: self.controller.clone(),
            barrier: self.barrier.clone(),
        };
        watches.spawn_local(watch.run());
    }
}

/// The controller's actor.
pub struct Controller {
    services: Arc<Services>,
    workers: Workers,
    /// First lists that have come so far.
    lists: Vec<InitialList>,
    barrier: Barrier,
    ready: Arc<AtomicBool>,
    scale_sets: BTreeMap<ActorKey, Mailbox<ScaleSetMachine>>,
    said: Said,
    /// Under which labels a scale set's gauges stand.
    gauges: BTreeMap<ActorKey, GaugeLabels>,
    sharing: Sharing,
    /// Why this is not the first controller of the process.
    restored: Option<StoreRestored>,
    /// Dropped with the actor, however it ends.
    _alive: oneshot::Sender<Infallible>,
    /// Fields that the cluster's schemas lack.
    missing: Arc<MissingFields>,
}

/// The schemas of the cluster lack these fields now.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SchemasChanged(pub Arc<MissingFields>);

/// The first whole list of a watch.
#[derive(Message)]
#[rtype(result = "()")]
pub struct InitialList {
    /// What was listed.
    pub kind: Kind,
    /// With which label selector.
    pub selector: &'static str,
    /// The objects.
    pub objects: Vec<Object>,
}

/// An event that no actor is there for: the scale set has to be made.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Unrouted {
    /// The scale set.
    pub key: ActorKey,
    /// The event.
    pub event: ObjectEvent,
}

/// What scale sets have said and the controller has not heard, the newest of each. Beside the
/// mailbox, so that it cannot grow with the number of reports.
type Said = Arc<Mutex<BTreeMap<ActorKey, ScaleSetReport>>>;

/// Says that a scale set has said something.
#[derive(Message)]
#[rtype(result = "()")]
struct ScaleSetSpoke;

/// Name of the actor in the metrics.
const NAME: &str = "controller";

impl Actor for Controller {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        let live = &self.services.metrics.actors.live;
        live.with_label_values(&[NAME]).inc();
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        let live = &self.services.metrics.actors.live;
        live.with_label_values(&[NAME]).dec();
        for labels in std::mem::take(&mut self.gauges).into_values() {
            self.withdraw(&labels);
        }
    }
}

impl Handler<SchemasChanged> for Controller {
    type Result = ();

    fn handle(&mut self, SchemasChanged(missing): SchemasChanged, _: &mut Self::Context) {
        let _timed = self
            .services
            .metrics
            .actors
            .handling(NAME, "schemas_changed");
        for mailbox in self.scale_sets.values() {
            let command = ScaleSetCommand::FieldsMissing(missing.clone());
            mailbox.send(Input::Command(command));
        }
        self.missing = missing;
    }
}

impl Handler<InitialList> for Controller {
    type Result = ();

    fn handle(&mut self, list: InitialList, ctx: &mut Self::Context) {
        let _timed = self.services.metrics.actors.handling(NAME, "initial_list");
        self.hear();
        self.lists.push(list);
        if self.lists.len() < WATCHES {
            return;
        }
        let mut lists = std::mem::take(&mut self.lists);
        if let Some(restored) = self.restored.take() {
            self.tell_of_restoration(&restored, &lists);
        }
        // owners before what they own, so that each finds its actor
        lists.sort_by_key(|list| (list.kind, list.selector));
        let listed = lists.iter().flat_map(|list| &list.objects);
        self.services.router.first_lists.fill(listed);
        for object in lists.into_iter().flat_map(|list| list.objects) {
            if let Some((key, event)) = self.services.router.deliver_listed(object.clone()) {
                self.pass_on(&key, event, ctx);
            }
            self.learn_claim(&object);
        }
        for mailbox in self.scale_sets.values() {
            mailbox.send(Input::Command(ScaleSetCommand::Synced));
        }
        self.ready.store(true, Ordering::Relaxed);
        self.barrier.open();
        tracing::info!(scale_sets = self.scale_sets.len(), "controller started");
    }
}

impl Handler<Unrouted> for Controller {
    type Result = ();

    fn handle(&mut self, message: Unrouted, ctx: &mut Self::Context) {
        let _timed = self.services.metrics.actors.handling(NAME, "unrouted");
        // one that is gone must not be taken for the one that is asked for
        self.hear();
        self.pass_on(&message.key, message.event, ctx);
    }
}

impl Handler<ScaleSetSpoke> for Controller {
    type Result = ();

    fn handle(&mut self, _: ScaleSetSpoke, _ctx: &mut Self::Context) {
        let _timed = self.services.metrics.actors.handling(NAME, "report");
        self.hear();
    }
}

impl Controller {
    /// Tells each scale set that the store was restored, and takes the registrations away whose
    /// runners are not in it any more.
    fn tell_of_restoration(&self, restored: &StoreRestored, lists: &[InitialList]) {
        let objects = || lists.iter().flat_map(|list| &list.objects);
        let uids = objects().map(|object| object.uid().to_owned()).collect();
        for runner in self.services.registered.take_missing(&uids) {
            tokio::task::spawn_local(remove_registration(self.services.clone(), runner));
        }
        for object in objects() {
            if object.kind() != Kind::AutoscalingRunnerSet {
                continue;
            }
            let note = EventNote {
                about: object.reference(),
                uid: object.uid().to_owned(),
                severity: EventSeverity::Warning,
                reason: "StoreRestored",
                message: format!(
                    "{restored}. Everything is read anew, and registrations of runners that are \
                     gone are removed. Apply again what was changed since the backup."
                ),
            };
            let services = self.services.clone();
            tokio::task::spawn_local(async move { services.events.publish(&note).await });
        }
    }

    /// Takes in what scale sets have said.
    fn hear(&mut self) {
        let said = {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *said)
        };
        for (key, report) in said {
            self.publish(&key, &report);
            self.tell_who_share(&key, &report);
            if matches!(report, ScaleSetReport::Gone) {
                self.scale_sets.remove(&key);
            }
        }
    }

    /// Tells scale sets that are one in the service of each other.
    fn tell_who_share(&mut self, key: &ActorKey, report: &ScaleSetReport) {
        let claim = match report {
            ScaleSetReport::Summary(summary) => Claim {
                identity: summary.identity.clone(),
                going: summary.going,
                proven: summary.proven,
            },
            ScaleSetReport::Gone => Claim::default(),
        };
        self.take_claim(key, claim);
    }

    /// Takes in what an AutoscalingRunnerSet of the first list has: one that is being deleted
    /// may be the first that comes to decide, and before the others have spoken.
    fn learn_claim(&mut self, object: &Object) {
        let Object::AutoscalingRunnerSet(ars) = object else {
            return;
        };
        let claim = Claim {
            identity: identity(ars),
            going: ars.metadata.deletion_timestamp.is_some(),
            proven: false,
        };
        for key in keys_of(object) {
            self.take_claim(&key, claim.clone());
        }
    }

    fn take_claim(&mut self, key: &ActorKey, claim: Claim) {
        for (member, others) in self.sharing.record_claim(key, claim) {
            if let Some(mailbox) = self.scale_sets.get(&member) {
                mailbox.send(Input::Command(ScaleSetCommand::Shared(others)));
            }
        }
    }

    fn pass_on(&mut self, key: &ActorKey, event: ObjectEvent, ctx: &mut Context<Self>) {
        let known = self.scale_sets.get(key).cloned();
        match event {
            ObjectEvent::Observed(object) => {
                let mailbox = known.unwrap_or_else(|| self.start_scale_set(key, ctx));
                mailbox.send(Input::Observed(object));
            }
            // nobody has to be made to hear of it, but one may be starting
            ObjectEvent::Gone { object, uid, .. } => {
                if let Some(mailbox) = known {
                    mailbox.send(Input::Gone { object, uid });
                }
            }
        }
    }

    fn start_scale_set(
        &mut self,
        key: &ActorKey,
        ctx: &mut Context<Self>,
    ) -> Mailbox<ScaleSetMachine> {
        let mailbox = Mailbox::new(&self.services.metrics.actors);
        self.scale_sets.insert(key.clone(), mailbox.clone());
        if !self.missing.is_empty() {
            let command = ScaleSetCommand::FieldsMissing(self.missing.clone());
            mailbox.send(Input::Command(command));
        }
        if self.barrier.is_open() {
            mailbox.send(Input::Command(ScaleSetCommand::Synced));
        }
        let (services, inbox_there, key_there) =
            (self.services.clone(), mailbox.clone(), key.clone());
        let (controller, said) = (ctx.address(), self.said.clone());
        self.workers.start(&key.to_string(), move || {
            let key = key_there.clone();
            let report = Box::new(move |report| {
                said.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(key.clone(), report);
                // should it not fit, the controller looks after the messages before it
                let _fits = controller.try_send(ScaleSetSpoke);
            });
            start_scale_set(&services, inbox_there, key_there, report);
        });
        mailbox
    }

    /// Sets the gauges of a scale set, or takes them away when it is gone.
    fn publish(&mut self, key: &ActorKey, report: &ScaleSetReport) {
        let ScaleSetReport::Summary(summary) = report else {
            if let Some(labels) = self.gauges.remove(key) {
                self.withdraw(&labels);
            }
            return;
        };
        let before = self.gauges.insert(key.clone(), summary.labels.clone());
        if let Some(before) = before.filter(|before| *before != summary.labels) {
            self.withdraw(&before);
        }
        let labels = values(&summary.labels);
        let pools = &self.services.metrics.pools;
        let set = |gauge: &prometheus::GaugeVec, count: i64| {
            #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
            gauge.with_label_values(&labels).set(count as f64);
        };
        set(&pools.pending, summary.counts.pending);
        set(&pools.running, summary.counts.running);
        set(&pools.failed, summary.counts.failed);
        set(&pools.listeners, i64::from(summary.listener_running));
    }

    fn withdraw(&self, labels: &GaugeLabels) {
        let labels = values(labels);
        let pools = &self.services.metrics.pools;
        for gauge in [
            &pools.pending,
            &pools.running,
            &pools.failed,
            &pools.listeners,
        ] {
            // one that was never set needs no removal
            let _removed = gauge.remove_label_values(&labels);
        }
    }
}

/// The values of the gauges' labels, in the order they are declared in.
fn values(labels: &GaugeLabels) -> [&str; 5] {
    [
        &labels.name,
        &labels.namespace,
        &labels.repository,
        &labels.organization,
        &labels.enterprise,
    ]
}
