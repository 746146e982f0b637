//! Publishing Kubernetes Events. Best effort: an Event that cannot be written is logged and
//! forgotten, since no decision rests on it.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Semaphore;

use super::fence::Fence;
use super::refusals::{Refusals, missing_right};
use super::says_terminating;
use crate::clock::{Clock, Timestamp};
use crate::messages::{EventNote, EventSeverity, KubeError, Object};

/// How many different Events are remembered, so that a repeated one raises a count.
const REMEMBERED: usize = 1024;

/// How long an Event may go without an answer.
const DEADLINE: Duration = Duration::from_secs(60);

/// So many Events are on their way at most.
const UNDER_WAY: usize = 4;

/// Where Events about objects without a namespace stand.
const WITHOUT_NAMESPACE: &str = "default";

/// Publishes Events through one client.
pub struct EventPublisher {
    client: Client,
    clock: Clock,
    fence: Fence,
    under_way: Semaphore,
    recent: Mutex<VecDeque<Recent>>,
    /// Those that an Event was about.
    refusals: Refusals,
    /// Those of Events themselves.
    refused: Refusals,
}

struct Recent {
    name: String,
    first: Timestamp,
    count: i32,
}

impl EventPublisher {
    /// Publishes through `client`, stamped by `clock`.
    #[must_use]
    pub fn new(client: Client, clock: Clock) -> Self {
        Self {
            client,
            clock,
            fence: Fence::open(),
            under_way: Semaphore::const_new(UNDER_WAY),
            recent: Mutex::default(),
            refusals: Refusals::default(),
            refused: Refusals::default(),
        }
    }

    /// The same, with these refusals of Events known.
    #[must_use]
    pub fn sharing(self, refused: Refusals) -> Self {
        Self { refused, ..self }
    }

    /// The same, behind this fence.
    #[must_use]
    pub fn behind(self, fence: Fence) -> Self {
        Self { fence, ..self }
    }

    /// What to publish about a request that an object's actor sent and that was refused for want
    /// of a right: once for each right that is missing.
    #[must_use]
    pub fn note_refusal(&self, object: &Object, error: &KubeError) -> Option<EventNote> {
        let right = missing_right(error).filter(|right| self.refusals.is_news(right))?;
        Some(EventNote {
            about: object.reference(),
            uid: object.uid().to_owned(),
            severity: EventSeverity::Warning,
            reason: "PermissionMissing",
            message: format!(
                "the controller's ServiceAccount may not {right}: give it that right; what waits \
                 for it is tried again by itself"
            ),
        })
    }

    /// Publishes what the note says. An equal note within the memory of this process raises the
    /// count of the Event that is there.
    pub async fn publish(&self, note: &EventNote) {
        let _admitted = self.under_way.acquire().await;
        let _writing = self.fence.pass().await;
        let now = self.clock.now();
        let name = event_name(note);
        let (first, count) = self.count(&name, now);
        let event = event(note, &name, first, now, count);
        let write = self.write(event, count, now);
        let problem = match tokio::time::timeout(DEADLINE, write).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => {
                self.refused.log(&super::classify(&error, "create", false));
                error.to_string()
            }
            Err(_) => "no answer".to_owned(),
        };
        tracing::debug!(about = %note.about, reason = note.reason, problem, "event not written");
    }

    /// Writes an Event. In a namespace that is being deleted none can be made: there it is told of
    /// the namespace, which `kubectl describe namespace` shows.
    async fn write(&self, mut event: Event, count: i32, now: Timestamp) -> kube::Result<()> {
        let told = self.write_one(&event, count, now).await;
        match told {
            Err(kube::Error::Api(status)) if says_terminating(&status) => {}
            other => return other,
        }
        let about = &event.involved_object;
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        let (kind, name) = (part(&about.kind), part(&about.name));
        event.message = Some(format!("{kind} {name}: {}", part(&event.message)));
        event.involved_object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Namespace".to_owned()),
            name: about.namespace.clone(),
            ..ObjectReference::default()
        };
        event.metadata.namespace = Some(WITHOUT_NAMESPACE.to_owned());
        self.write_one(&event, count, now).await
    }

    async fn write_one(&self, event: &Event, count: i32, now: Timestamp) -> kube::Result<()> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let namespace = text(&event.metadata.namespace);
        let name = text(&event.metadata.name);
        let api = Api::<Event>::namespaced(self.client.clone(), &namespace);
        let written = match api.create(&PostParams::default(), event).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let again = json!({ "count": count.max(2), "lastTimestamp": Time(now) });
                api.patch(&name, &PatchParams::default(), &Patch::Merge(again))
                    .await
            }
            other => other,
        };
        written.map(drop)
    }

    fn count(&self, name: &str, now: Timestamp) -> (Timestamp, i32) {
        let mut recent = self
            .recent
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(known) = recent.iter_mut().find(|known| known.name == name) {
            known.count = known.count.saturating_add(1);
            return (known.first, known.count);
        }
        if recent.len() == REMEMBERED {
            recent.pop_front();
        }
        recent.push_back(Recent {
            name: name.to_owned(),
            first: now,
            count: 1,
        });
        (now, 1)
    }
}

/// The same for the same note, so that a repeated one meets the one before.
fn event_name(note: &EventNote) -> String {
    let hash = [note.uid.as_str(), note.reason, &note.message]
        .iter()
        .flat_map(|part| part.bytes().chain([0]))
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{}.{hash:016x}", note.about.name)
}

fn event(note: &EventNote, name: &str, first: Timestamp, now: Timestamp, count: i32) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(note.about.namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(note.about.kind.api_version().to_owned()),
            kind: Some(note.about.kind.as_str().to_owned()),
            namespace: Some(note.about.namespace.clone()),
            name: Some(note.about.name.clone()),
            uid: Some(note.uid.clone()),
            ..ObjectReference::default()
        },
        type_: Some(
            match note.severity {
                EventSeverity::Normal => "Normal",
                EventSeverity::Warning => "Warning",
            }
            .to_owned(),
        ),
        reason: Some(note.reason.to_owned()),
        message: Some(note.message.clone()),
        source: Some(EventSource {
            component: Some("impresario".to_owned()),
            host: None,
        }),
        first_timestamp: Some(Time(first)),
        last_timestamp: Some(Time(now)),
        count: Some(count),
        ..Event::default()
    }
}
