//! Watches: turn the event streams of the API server into sightings for the router.
//!
//! Each watch first hands over a whole list, waits until all lists are there and delivered,
//! and then delivers event by event. After a reconnect the list may come from a server that
//! lags, so an object missing from it is looked up before it is believed gone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix::Addr;
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::backoff;
use super::controller::{Controller, InitialList, Unrouted};
use super::lenient::Lenient;
use super::router::{ActorKey, Sighting, keys_of};
use super::world::World;
use crate::messages::{
    EventNote, EventSeverity, Kind, KubeErrorKind, KubeObject, KubeRequest, Object, ObjectRef,
};

/// How long a watch may fail before the process gives up and starts anew.
const GIVE_UP_AFTER: Duration = Duration::from_secs(300);

/// A watch that could not be established again.
#[derive(Debug, thiserror::Error)]
#[error("no watch on {kind} for {} s: {message}", GIVE_UP_AFTER.as_secs())]
pub struct WatchLost {
    /// What was watched.
    pub kind: Kind,
    /// The last error, and what to do about it.
    pub message: String,
}

/// One watch.
pub struct Watch<K> {
    /// What is watched.
    pub api: Api<Lenient<K>>,
    /// Label selector; empty for all objects.
    pub selector: &'static str,
    /// For the journal and requests.
    pub world: Arc<World>,
    /// Who takes whole lists, and objects that no actor is there for.
    pub controller: Addr<Controller>,
    /// Opened when the first lists of all watches were delivered.
    pub gate: Gate,
}

/// Holds who comes to it until it is opened, for good, and then lets them pass in the order in
/// which they came. (tokio's watch channel would let them pass in one drawn at random.)
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<(AtomicBool, Notify)>);

impl Gate {
    /// Opens it.
    pub fn open(&self) {
        self.0.0.store(true, Ordering::Release);
        self.0.1.notify_waiters();
    }

    /// Whether it is open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.0.load(Ordering::Acquire)
    }

    /// Waits until it is open.
    pub async fn pass(&self) {
        let mut opened = pin!(self.0.1.notified());
        // it may be opened just now
        opened.as_mut().enable();
        if !self.is_open() {
            opened.await;
        }
    }
}

/// What is known of a watched object: enough to say that it is gone.
struct Known {
    uid: String,
    keys: Vec<ActorKey>,
}

/// What one watch remembers.
#[derive(Default)]
struct Progress {
    known: BTreeMap<ObjectRef, Known>,
    /// Objects of the list that is being read.
    listed: Vec<Object>,
    synced: bool,
    failures: u32,
    failing_since: Option<Instant>,
}

impl<K> Watch<K>
where
    K: KubeObject + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    /// Watches until it cannot any more.
    pub async fn run(mut self) -> WatchLost {
        let mut config = watcher::Config::default().page_size(500);
        if !self.selector.is_empty() {
            config = config.labels(self.selector);
        }
        let mut events = Box::pin(watcher::watcher(self.api.clone(), config));
        let mut progress = Progress::default();
        // the stream itself never ends
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    progress.failures = 0;
                    progress.failing_since = None;
                    self.take(event, &mut progress).await;
                }
                Err(error) => {
                    if let Some(lost) = self.failed(&error, &mut progress).await {
                        return lost;
                    }
                }
            }
        }
        WatchLost {
            kind: K::KIND,
            message: "the stream of events ended".to_owned(),
        }
    }

    async fn take(&mut self, event: Event<Lenient<K>>, progress: &mut Progress) {
        match event {
            Event::Init => progress.listed.clear(),
            Event::InitApply(object) => {
                if let Some(object) = self.read(object) {
                    progress.listed.push(object);
                }
            }
            Event::InitDone => self.listed(progress).await,
            Event::Apply(object) => {
                if let Some(object) = self.read(object) {
                    self.observed(object, progress).await;
                }
            }
            Event::Delete(object) => self.deleted(object, progress).await,
        }
    }

    async fn deleted(&self, object: Lenient<K>, progress: &mut Progress) {
        let (namespace, name) = names(&object.metadata);
        let known = progress
            .known
            .remove(&ObjectRef::new(K::KIND, namespace, name));
        let sighting = match (object.decoded, known) {
            (Ok(object), _) => {
                let object = Arc::new(object).into_object();
                Sighting::Gone {
                    uid: object.uid().to_owned(),
                    keys: keys_of(&object),
                    object: object.reference(),
                }
            }
            // it could be read once, and has an actor
            (Err(_), Some(known)) => Sighting::Gone {
                uid: known.uid,
                keys: known.keys,
                object: ObjectRef::new(K::KIND, namespace, name),
            },
            (Err(_), None) => return,
        };
        self.deliver(sighting).await;
    }

    async fn listed(&mut self, progress: &mut Progress) {
        let objects = std::mem::take(&mut progress.listed);
        let present: BTreeSet<ObjectRef> = objects.iter().map(Object::reference).collect();
        if progress.synced {
            self.restarted("relist");
            for object in objects {
                self.observed(object, progress).await;
            }
            let missing: Vec<ObjectRef> = progress
                .known
                .keys()
                .filter(|reference| !present.contains(*reference))
                .cloned()
                .collect();
            for reference in missing {
                self.look_up(reference, progress).await;
            }
            return;
        }
        for object in &objects {
            remember(object, progress);
        }
        progress.synced = true;
        let list = InitialList {
            kind: K::KIND,
            selector: self.selector,
            objects,
        };
        // an error means that the controller is gone, and with it this task
        let _ended = self.controller.send(list).await;
        self.gate.pass().await;
    }

    /// Finds out whether an object that a list lacks is gone.
    async fn look_up(&self, reference: ObjectRef, progress: &mut Progress) {
        match self
            .world
            .kube
            .run(KubeRequest::Get(reference.clone()))
            .await
        {
            Ok(answer) => {
                if let Some(object) = answer.object() {
                    self.observed(object.clone(), progress).await;
                }
            }
            Err(error) if error.kind == KubeErrorKind::NotFound => {
                if let Some(known) = progress.known.remove(&reference) {
                    self.deliver(Sighting::Gone {
                        object: reference,
                        uid: known.uid,
                        keys: known.keys,
                    })
                    .await;
                }
            }
            // it stays known, and the next list asks again
            Err(error) => tracing::warn!(object = %reference, %error, "could not be looked up"),
        }
    }

    /// The object, if it is one of its kind. One that is not stands for itself alone: that is
    /// told where people look, and the watch goes on.
    fn read(&self, object: Lenient<K>) -> Option<Object> {
        let problem = match object.decoded {
            Ok(object) => return Some(Arc::new(object).into_object()),
            Err(problem) => problem,
        };
        let (namespace, name) = names(&object.metadata);
        let about = ObjectRef::new(K::KIND, namespace, name);
        tracing::error!(%about, problem, "object cannot be read and is left alone");
        let note = EventNote {
            about,
            uid: object.metadata.uid.unwrap_or_default(),
            severity: EventSeverity::Warning,
            reason: "Unreadable",
            message: format!(
                "{problem}: correct it with kubectl edit; until then it is left alone"
            ),
        };
        let world = self.world.clone();
        tokio::task::spawn_local(async move { world.events.publish(&note).await });
        None
    }

    async fn observed(&self, object: Object, progress: &mut Progress) {
        remember(&object, progress);
        self.deliver(Sighting::Observed(object)).await;
    }

    async fn deliver(&self, sighting: Sighting) {
        if let Some((key, sighting)) = self.world.router.deliver(sighting) {
            let _ended = self.controller.send(Unrouted { key, sighting }).await;
        }
    }

    async fn failed(&self, error: &watcher::Error, progress: &mut Progress) -> Option<WatchLost> {
        let since = *progress.failing_since.get_or_insert_with(Instant::now);
        progress.failures = progress.failures.saturating_add(1);
        let message = explain(K::KIND, error);
        if progress.failures == 1 {
            tracing::warn!(kind = %K::KIND, "watch failed: {message}");
        }
        self.restarted("error");
        if since.elapsed() >= GIVE_UP_AFTER {
            return Some(WatchLost {
                kind: K::KIND,
                message,
            });
        }
        let wait = backoff::REQUESTS.spread(progress.failures, K::KIND.as_str());
        tokio::time::sleep(Duration::try_from(wait).unwrap_or_default()).await;
        None
    }

    fn restarted(&self, reason: &str) {
        self.world
            .metrics
            .watch_restarts
            .with_label_values(&[K::KIND.as_str(), reason])
            .inc();
    }
}

/// Namespace and name.
fn names(metadata: &ObjectMeta) -> (&str, &str) {
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    (namespace.unwrap_or_default(), name.unwrap_or_default())
}

fn remember(object: &Object, progress: &mut Progress) {
    progress.known.insert(
        object.reference(),
        Known {
            uid: object.uid().to_owned(),
            keys: keys_of(object),
        },
    );
}

/// The error, with what a person can do about the common ones.
fn explain(kind: Kind, error: &watcher::Error) -> String {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => status,
        watcher::Error::WatchError(status) => status,
        other => return other.to_string(),
    };
    match status.code {
        401 | 403 => format!(
            "{}; the controller's ServiceAccount needs list and watch on {}, or start with \
             --watch-single-namespace",
            status.message,
            kind.plural()
        ),
        404 if kind.api_version().starts_with("actions.github.com") => format!(
            "{} are not known to the API server; install them with `impresario crds | kubectl \
             apply --server-side -f -`",
            kind.plural()
        ),
        _ => status.message.clone(),
    }
}
