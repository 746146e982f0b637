//! Watches: turn the event streams of the API server into events for the router.
//!
//! Each watch first hands over a whole list, waits until all lists are there and delivered,
//! and then delivers event by event. What it knows and does next stands in [`progress`]; here
//! are the requests. An object missing from a later list is looked up before it is believed
//! gone, for as long as it takes to find out. A list that is older than what is known says that
//! the store was restored from a backup: then nothing that is known holds any more.

mod outage;
mod progress;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix::Addr;
use futures::future::LocalBoxFuture;
use futures::stream::{self, FuturesUnordered, LocalBoxStream, pending};
use futures::{FutureExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use self::outage::GIVE_UP_AFTER;
pub use self::progress::Versions;
use self::progress::{Action, Input, Listing, Problem, Progress};
use super::controller::{Controller, InitialList, Unrouted};
use super::decoded::Decoded;
use super::router::ObjectEvent;
use super::services::Services;
use crate::messages::{
    EventNote, EventSeverity, Kind, KubeError, KubeErrorKind, KubeObject, KubeRequest, Object,
    ObjectRef,
};

/// How many objects a page of a list has.
const PAGE: u32 = 500;
/// How long a page of a list, or the beginning of a watch, may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// After how many seconds the server is to end a watch.
const WATCH_SECONDS: u32 = 290;
/// After that much without a sign of life a watch is silent. Bookmarks come once a minute, but
/// nobody promises them; a dead connection is noticed sooner, by its pings.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);

/// A watch that could not be established again.
#[derive(Debug, thiserror::Error)]
#[error("no watch on {kind} for {} s: {message}", GIVE_UP_AFTER.as_secs())]
pub struct WatchLost {
    /// What was watched.
    pub kind: Kind,
    /// The last error, and what to do about it.
    pub message: String,
}

/// How a watch ends.
#[derive(Debug, thiserror::Error)]
pub enum WatchEnded {
    /// It could not be established again.
    #[error(transparent)]
    Lost(WatchLost),
    /// The store went back.
    #[error(transparent)]
    Restored(StoreRestored),
}

/// The API server's store was restored from a backup: what is known of objects is of a time
/// that never was.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the API server's store was restored from a backup: {kind} were known at resourceVersion {}, \
     and are at {} now", versions.known, versions.found
)]
pub struct StoreRestored {
    /// Of which kind the list was that showed it.
    pub kind: Kind,
    /// How far it went back.
    pub versions: Versions,
}

/// One watch.
pub struct Watch<K> {
    /// What is watched.
    pub api: Api<Decoded<K>>,
    /// Label selector; empty for all objects.
    pub selector: &'static str,
    /// For the journal and requests.
    pub services: Arc<Services>,
    /// Who takes whole lists, and objects that no actor is there for.
    pub controller: Addr<Controller>,
    /// Opened when the first lists of all watches were delivered.
    pub barrier: Barrier,
}

/// Holds who comes to it until it is opened, for good, and then lets them pass in the order in
/// which they came. (tokio's watch channel would let them pass in one drawn at random.)
#[derive(Clone, Debug, Default)]
pub struct Barrier(Arc<(AtomicBool, Notify)>);

impl Barrier {
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

impl<K> Watch<K>
where
    K: KubeObject + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    /// Watches until it cannot any more.
    pub async fn run(self) -> WatchEnded {
        let mut progress = Progress::new(K::KIND, Instant::now());
        // what runs now: a list, a check or a watch
        let mut request: LocalBoxStream<'_, Input> = pending().boxed_local();
        let mut look_ups = FuturesUnordered::new();
        let mut input = Input::Start;
        loop {
            for action in progress.step(Instant::now(), input) {
                match action {
                    Action::List => request = one(self.list().boxed_local()),
                    Action::Check => request = one(self.check().boxed_local()),
                    Action::Watch(from) => request = self.watch(from),
                    Action::LookUp(object) => look_ups.push(self.look_up(object)),
                    Action::Begin(objects) => self.begin(objects).await,
                    Action::Deliver(event) => self.deliver(event).await,
                    Action::Relisted => self.restarted("relist"),
                    Action::Unsettled(object, error) => {
                        tracing::warn!(%object, %error, "not listed, and could not be looked up");
                    }
                    Action::Failing { message, first } => {
                        if first {
                            tracing::warn!(kind = %K::KIND, "watch failed: {message}");
                        }
                        self.restarted("error");
                    }
                    Action::GiveUp(message) => {
                        self.restarted("error");
                        return WatchEnded::Lost(WatchLost {
                            kind: K::KIND,
                            message,
                        });
                    }
                    Action::Restored(versions) => {
                        return WatchEnded::Restored(StoreRestored {
                            kind: K::KIND,
                            versions,
                        });
                    }
                }
            }
            let alarm = progress.alarm();
            input = tokio::select! {
                // in a fixed order, so that a simulation repeats itself
                biased;
                Some(input) = request.next() => input,
                Some(input) = look_ups.next() => input,
                () = ring(alarm) => Input::Woken,
            };
        }
    }

    /// Reads all pages of a list. Nothing is said of its resourceVersion, which makes it a
    /// consistent read: it shows everything that was written before it was asked for.
    async fn list(&self) -> Input {
        let written = self.services.kube.newest_version(K::KIND);
        let mut listing = Listing {
            written,
            ..Listing::default()
        };
        let mut next = None;
        loop {
            let params = ListParams {
                limit: Some(PAGE),
                continue_token: next,
                ..self.selected()
            };
            let page = match in_time::<K, _>(self.api.list(&params)).await {
                Ok(page) => page,
                Err(problem) => return Input::Failed(problem),
            };
            for object in page.items {
                let (namespace, name) = names(&object.metadata);
                let reference = ObjectRef::new(K::KIND, namespace, name);
                match self.read(object) {
                    Some(object) => listing.objects.push(object),
                    None => listing.unreadable.push(reference),
                }
            }
            listing.version = page.metadata.resource_version.unwrap_or_default();
            next = page.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                return Input::Listed(listing);
            }
        }
    }

    /// Asks for the version that the server is at. A watch from a version that is yet to come
    /// is silent until it has come, so nobody would notice that the store went back.
    async fn check(&self) -> Input {
        let written = self.services.kube.newest_version(K::KIND);
        let params = ListParams {
            limit: Some(1),
            ..self.selected()
        };
        match in_time::<K, _>(self.api.list(&params)).await {
            Ok(page) => Input::Checked {
                version: page.metadata.resource_version.unwrap_or_default(),
                written,
            },
            Err(problem) => Input::Failed(problem),
        }
    }

    fn watch(&self, from: String) -> LocalBoxStream<'_, Input> {
        let params = WatchParams {
            timeout: Some(WATCH_SECONDS),
            label_selector: self.selected().label_selector,
            ..WatchParams::default()
        };
        let start = async move {
            let events = match in_time::<K, _>(self.api.watch(&params, &from)).await {
                Ok(events) => events.boxed_local(),
                Err(problem) => return stream::iter([Input::Failed(problem)]).boxed_local(),
            };
            let inputs = stream::unfold(Some(events), async |events| {
                let mut events = events?;
                let (input, goes_on) = match timeout(SILENCE, events.next()).await {
                    Ok(Some(Ok(event))) => self.take(event),
                    Ok(Some(Err(error))) => (Input::Failed(problem::<K>(&error)), false),
                    Ok(None) => (Input::Ended, false),
                    Err(_) => (Input::Failed(silent(SILENCE)), false),
                };
                Some((input, goes_on.then_some(events)))
            });
            stream::iter([Input::Established])
                .chain(inputs)
                .boxed_local()
        };
        stream::once(start).flatten().chain(pending()).boxed_local()
    }

    /// What an event says, and whether others can follow.
    fn take(&self, event: WatchEvent<Decoded<K>>) -> (Input, bool) {
        let input = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let (namespace, name) = names(&object.metadata);
                let reference = ObjectRef::new(K::KIND, namespace, name);
                let version = object.metadata.resource_version.clone().unwrap_or_default();
                match self.read(object) {
                    Some(object) => Input::Changed(object),
                    None => Input::Unreadable {
                        object: reference,
                        version,
                    },
                }
            }
            WatchEvent::Deleted(object) => {
                let (namespace, name) = names(&object.metadata);
                let reference = ObjectRef::new(K::KIND, namespace, name);
                self.services
                    .kube
                    .served()
                    .stands_in(&reference, Vec::new());
                Input::Deleted {
                    object: reference,
                    uid: object.metadata.uid.clone().unwrap_or_default(),
                    version: object.metadata.resource_version.clone().unwrap_or_default(),
                    last: object.decoded.ok().map(|last| Arc::new(last).into_object()),
                }
            }
            WatchEvent::Bookmark(bookmark) => Input::Bookmark(bookmark.metadata.resource_version),
            WatchEvent::Error(status) => {
                return (
                    Input::Failed(problem::<K>(&kube::Error::Api(status.boxed()))),
                    false,
                );
            }
        };
        (input, true)
    }

    fn selected(&self) -> ListParams {
        let selector = Some(self.selector).filter(|selector| !selector.is_empty());
        ListParams {
            label_selector: selector.map(str::to_owned),
            ..ListParams::default()
        }
    }

    /// Finds out whether an object that a list lacks is gone.
    async fn look_up(&self, object: ObjectRef) -> Input {
        let request = KubeRequest::Get(object.clone());
        let result = match self.services.kube.run(request).await {
            Ok(answer) => answer.object().cloned().ok_or_else(|| KubeError {
                kind: KubeErrorKind::Other,
                message: "the answer holds no object".to_owned(),
                retry_after: None,
            }),
            Err(error) => Err(error),
        };
        Input::LookedUp(object, result)
    }

    async fn begin(&self, objects: Vec<Object>) {
        for object in &objects {
            self.services.registered.seen(object);
        }
        let list = InitialList {
            kind: K::KIND,
            selector: self.selector,
            objects,
        };
        // an error means that the controller is gone, and with it this task
        let _ended = self.controller.send(list).await;
        self.barrier.pass().await;
    }

    /// The object, if it is one of its kind. One that is not stands for itself alone: that is
    /// told where people look, and the watch goes on.
    fn read(&self, object: Decoded<K>) -> Option<Object> {
        let (namespace, name) = names(&object.metadata);
        let about = ObjectRef::new(K::KIND, namespace, name);
        self.services
            .kube
            .served()
            .stands_in(&about, object.stand_ins);
        let problem = match object.decoded {
            Ok(object) => return Some(Arc::new(object).into_object()),
            Err(problem) => problem,
        };
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
        let services = self.services.clone();
        tokio::task::spawn_local(async move { services.events.publish(&note).await });
        None
    }

    async fn deliver(&self, event: ObjectEvent) {
        self.services.registered.note(&event);
        if let Some((key, event)) = self.services.router.deliver(event) {
            let _ended = self.controller.send(Unrouted { key, event }).await;
        }
    }

    fn restarted(&self, reason: &str) {
        self.services
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

/// The one input that comes of a request.
fn one(request: LocalBoxFuture<'_, Input>) -> LocalBoxStream<'_, Input> {
    stream::once(request).chain(pending()).boxed_local()
}

async fn ring(alarm: Option<Instant>) {
    match alarm {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Waits for an answer for as long as it may take.
async fn in_time<K: KubeObject, T>(
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, Problem> {
    match timeout(DEADLINE, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(problem::<K>(&error)),
        Err(_) => Err(silent(DEADLINE)),
    }
}

fn silent(waited: Duration) -> Problem {
    Problem {
        message: format!(
            "nothing came from the API server for {} s",
            waited.as_secs()
        ),
        expired: false,
    }
}

/// What a failure means, with what a person can do about the common ones.
fn problem<K: KubeObject>(error: &kube::Error) -> Problem {
    let kube::Error::Api(status) = error else {
        return Problem {
            message: error.to_string(),
            expired: false,
        };
    };
    let kind = K::KIND;
    let message = match status.code {
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
    };
    let ahead = status.details.as_ref().is_some_and(|details| {
        let causes = &details.causes;
        causes
            .iter()
            .any(|cause| cause.reason == "ResourceVersionTooLarge")
    });
    Problem {
        message,
        expired: status.code == 410 || ahead,
    }
}
