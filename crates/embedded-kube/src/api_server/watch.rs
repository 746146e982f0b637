//! WATCH: a stream of events, one JSON document a line, from the history of a shelf.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use rand::RngExt;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

use super::faults::{EventFate, EventInfo};
use super::handlers::{Call, render};
use super::handlers_read::selector;
use super::http::{Body, BodyError, Format, Query, Shape, json_bytes};
use super::kinds::ResourceType;
use super::selectors::Selector;
use super::status::{ApiError, FieldError};
use super::store::{Change, ChangeKind, Compacted, Store};
use super::{Inner, State, object, seams};

/// Time between bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// Shortest time after which the server ends a watch that sets no limit; the longest is
/// twice that.
const LONGEST_WATCH_SECONDS: u64 = 1800;

/// A watch in progress.
struct Watcher {
    inner: Arc<Inner>,
    resource: Arc<ResourceType>,
    namespace: Option<String>,
    selector: Selector,
    format: Format,
    include_object: String,
    user_agent: String,
    /// Changes up to this revision have been looked at.
    seen: u64,
    changed: Arc<Notify>,
    /// Events to send, each with the time before which it may not be sent.
    pending: VecDeque<(Option<Instant>, Bytes)>,
    deadline: Instant,
    /// When the next bookmark is due; none when the client does not want any.
    bookmark: Option<Instant>,
    /// How often the store had been restored when this began.
    restorations: u64,
    /// No event will be added any more.
    over: bool,
}

/// Begins a watch.
///
/// # Errors
/// For parameters that make no sense.
pub(super) fn start(
    inner: &Arc<Inner>,
    state: &mut State,
    call: &Call<'_>,
) -> Result<Body, ApiError> {
    let revision = call.query.number("resourceVersion")?;
    let initial_events = wants_initial_events(call.query, revision)?;
    let seconds = match call.query.number("timeoutSeconds")? {
        Some(seconds @ 1..) => seconds,
        _ => {
            let more = state.rng.random_range(0..LONGEST_WATCH_SECONDS);
            LONGEST_WATCH_SECONDS + more
        }
    };
    let now = Instant::now();
    let bookmarks = call.query.flag("allowWatchBookmarks");
    let mut watcher = Watcher {
        inner: Arc::clone(inner),
        resource: Arc::clone(call.resource()),
        namespace: call.target.namespace.clone(),
        selector: selector(call)?,
        format: call.format,
        include_object: call.query.get("includeObject").to_owned(),
        user_agent: call.user_agent.to_owned(),
        seen: revision.unwrap_or_default(),
        changed: state.store.changed(&call.resource().shelf),
        pending: VecDeque::new(),
        deadline: now + Duration::from_secs(seconds),
        bookmark: bookmarks.then(|| now + BOOKMARK_EVERY),
        restorations: state.store.restorations(),
        over: false,
    };
    if initial_events {
        watcher.begin_with_everything(&state.store, call.behind);
        if call.query.flag("sendInitialEvents") {
            watcher.push_bookmark(true);
        }
    }
    Ok(watcher.into_body())
}

/// Whether the watch begins with an ADDED event for everything there is.
fn wants_initial_events(query: &Query, revision: Option<u64>) -> Result<bool, ApiError> {
    let rule = query.get("resourceVersionMatch");
    if query.get("sendInitialEvents").is_empty() {
        if rule.is_empty() {
            return Ok(revision.unwrap_or_default() == 0);
        }
        let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
                      provided";
        return Err(bad_options("resourceVersionMatch", detail));
    }
    if rule != "NotOlderThan" {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return Err(bad_options("resourceVersionMatch", detail));
    }
    let wanted = query.flag("sendInitialEvents");
    if wanted && !query.flag("allowWatchBookmarks") {
        let detail = "sendInitialEvents requires allowWatchBookmarks";
        return Err(bad_options("allowWatchBookmarks", detail));
    }
    Ok(wanted)
}

fn bad_options(field: &str, detail: &str) -> ApiError {
    let fault = FieldError::forbidden(field, detail);
    ApiError::invalid("meta.k8s.io", "ListOptions", "", &[fault])
}

impl Watcher {
    fn begin_with_everything(&mut self, store: &Store, behind: u64) {
        let namespace = self.namespace.clone();
        let shelf = Arc::clone(&self.resource.shelf);
        let stale = store.revision().saturating_sub(behind);
        let (objects, revision) = match store.list_at(&shelf, namespace.as_deref(), stale) {
            Ok(objects) => (objects, stale),
            Err(Compacted(_)) => {
                let objects = store.list(&shelf, namespace.as_deref()).cloned();
                (objects.collect(), store.revision())
            }
        };
        for object in &objects {
            if self.selector.matches(object) {
                self.push("ADDED", object);
            }
        }
        self.seen = revision;
    }

    fn into_body(self) -> Body {
        let events = stream::unfold(self, |mut watcher| async move {
            let line = watcher.next().await?;
            Some((Ok::<_, BodyError>(Frame::data(line)), watcher))
        });
        StreamBody::new(events).boxed_unsync()
    }

    /// The next line to send; none at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some((not_before, line)) = self.pending.pop_front() {
                if let Some(time) = not_before {
                    sleep_until(time).await;
                }
                return Some(line);
            }
            if self.over {
                return None;
            }
            let changed = Arc::clone(&self.changed);
            let mut change = pin!(changed.notified());
            // what changes while the changes so far are collected is not missed
            change.as_mut().enable();
            self.collect();
            if self.pending.is_empty() && !self.over {
                self.wait(change).await;
            }
        }
    }

    /// Waits for the change, the next bookmark or the end.
    async fn wait(&mut self, change: Pin<&mut Notified<'_>>) {
        let bookmark = self.bookmark.unwrap_or(self.deadline);
        tokio::select! {
            biased;
            () = change => {}
            () = sleep_until(self.deadline.min(bookmark)) => {
                if self.bookmark.is_some() {
                    self.push_bookmark(false);
                    self.bookmark = Some(Instant::now() + BOOKMARK_EVERY);
                }
                self.over = Instant::now() >= self.deadline;
            }
        }
    }

    /// Takes over the changes since the last time.
    fn collect(&mut self) {
        let inner = Arc::clone(&self.inner);
        let state = inner.lock();
        if state.store.restorations() != self.restorations {
            // the server was stopped for it
            self.over = true;
            return;
        }
        match state.store.changes_after(&self.resource.shelf, self.seen) {
            Ok(changes) => {
                for change in changes {
                    self.consider(change);
                    if self.over {
                        return;
                    }
                }
                self.seen = self.seen.max(state.store.revision());
            }
            Err(Compacted(oldest)) => self.fail(&ApiError::too_old(self.seen, oldest)),
        }
    }

    /// Turns a change into the event that a client with this selector sees, if any.
    fn consider(&mut self, change: &Change) {
        let of = object::namespace(&change.object);
        if self.namespace.as_deref().is_some_and(|wanted| wanted != of) {
            return;
        }
        let selects = |object: &Arc<Value>| self.selector.matches(object);
        let before = change.previous.as_ref().is_some_and(selects);
        let after = change.kind != ChangeKind::Deleted && selects(&change.object);
        match (before, after) {
            (false, false) => {}
            (false, true) => self.push("ADDED", &change.object),
            (true, true) => self.push("MODIFIED", &change.object),
            (true, false) => {
                // as it was when it was last selected, at the revision of its leaving
                let mut last = change.previous.as_deref().cloned().unwrap_or_default();
                let revision = change.revision.to_string();
                object::meta_mut(&mut last).insert("resourceVersion".into(), revision.into());
                self.push("DELETED", &last);
            }
        }
    }

    fn push(&mut self, kind: &str, stored: &Value) {
        let resource = Arc::clone(&self.resource);
        let fate = self.inner.interceptor.event(&EventInfo {
            resource: &resource.shelf,
            namespace: object::namespace(stored),
            name: object::name(stored),
            kind,
            user_agent: &self.user_agent,
        });
        let copies = match fate {
            EventFate::Dropped => 0,
            EventFate::Delivered | EventFate::Delayed(_) => 1,
            EventFate::Duplicated => 2,
            EventFate::Closed => {
                self.over = true;
                0
            }
            EventFate::Expired => {
                let revision = object::revision(stored);
                self.fail(&ApiError::too_old(self.seen, revision));
                0
            }
        };
        let not_before = match fate {
            EventFate::Delayed(time) => Some(Instant::now() + time),
            _ => None,
        };
        if copies > 0 {
            let event = line(kind, &self.shaped(render(&resource, stored)));
            for _ in 0..copies {
                self.pending.push_back((not_before, event.clone()));
            }
        }
    }

    fn shaped(&self, object: Value) -> Value {
        match self.format.shape {
            Shape::Whole => object,
            Shape::Metadata => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": object["metadata"],
            }),
            Shape::Table => {
                let now = self.inner.clock.now();
                seams::table(&self.resource, &object, &self.include_object, now).unwrap_or(object)
            }
        }
    }

    fn push_bookmark(&mut self, ends_initial_events: bool) {
        let mut metadata = json!({
            "resourceVersion": self.seen.to_string(),
            "creationTimestamp": null,
        });
        if ends_initial_events {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let bookmark = json!({
            "kind": self.resource.kind,
            "apiVersion": self.resource.api_version(),
            "metadata": metadata,
        });
        self.pending.push_back((None, line("BOOKMARK", &bookmark)));
    }

    fn fail(&mut self, error: &ApiError) {
        self.pending
            .push_back((None, line("ERROR", &error.to_status())));
        self.over = true;
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    let mut line = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
    line.append(&mut json_bytes(object));
    line.extend_from_slice(b"}\n");
    line.into()
}
