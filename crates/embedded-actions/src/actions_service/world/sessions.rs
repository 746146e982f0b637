//! Sessions and their queues of messages.

use serde_json::{Value, json};

use super::super::faults::Refusal;
use super::{Grant, Moment, OpenSession, Outcome, World, next};

impl World {
    pub(crate) fn open_session(
        &mut self,
        scope: i64,
        set: i64,
        owner: &str,
        now: Moment,
    ) -> Outcome<String> {
        let found = self.scale_set(scope, set)?;
        let held = found.session.as_ref().and_then(|id| self.sessions.get(id));
        if let Some(held) = held
            && self.is_live(held, now)
        {
            let message = format!(
                "The runner scale set {} already has an active session for owner {}.",
                found.name, held.owner
            );
            return Err(Refusal::new(
                409,
                "RunnerScaleSetSessionConflictException",
                message,
            ));
        }
        self.close_session_of(set, now);
        let id = self.uuid();
        let session = OpenSession {
            id: id.clone(),
            scale_set: set,
            owner: owner.to_owned(),
            last_used: now.instant,
        };
        self.sessions.insert(id.clone(), session);
        let opened = self.scale_set_mut(scope, set)?;
        opened.session = Some(id.clone());
        opened.capacity = 0;
        self.note(format!("session of scale set {set} opened by {owner}"));
        Ok(id)
    }

    pub(super) fn is_live(&self, session: &OpenSession, now: Moment) -> bool {
        now.instant.duration_since(session.last_used) < self.durations.idle_session
    }

    pub(crate) fn session(&self, scope: i64, set: i64, id: &str) -> Outcome<&OpenSession> {
        self.scale_set(scope, set)?;
        let session = self.sessions.get(id).filter(|found| found.scale_set == set);
        session.ok_or_else(|| {
            let message = format!("No session found with identifier {id}.");
            Refusal::new(404, "RunnerScaleSetSessionNotFoundException", message)
        })
    }

    /// Closes a scale set's session, if it has one. What was on offer is on offer to others.
    pub(crate) fn close_session_of(&mut self, set_id: i64, now: Moment) {
        let Some(set) = self.scale_sets.get_mut(&set_id) else {
            return;
        };
        let Some(session) = set.session.take() else {
            return;
        };
        let offered = std::mem::take(&mut set.offered);
        set.events
            .retain(|event| event["messageType"] != "JobAvailable");
        set.news.notify_waiters();
        self.sessions.remove(&session);
        for job in offered.into_keys() {
            self.queue_again(job);
        }
        self.revoke(|grant| *grant == Grant::Queue(session.clone()));
        self.note(format!("session of scale set {set_id} closed"));
        self.dispatch_all(now);
    }

    /// A poll of a queue: the capacity it tells, and the next message, if there is one.
    pub(crate) fn poll(
        &mut self,
        session: &str,
        last: i64,
        capacity: Option<i64>,
        now: Moment,
    ) -> Option<Value> {
        let session = self.sessions.get_mut(session)?;
        session.last_used = now.instant;
        let id = session.scale_set;
        self.scale_sets.get_mut(&id)?.capacity = capacity.unwrap_or(i64::MAX);
        self.dispatch(id, now);
        let set = self.scale_sets.get_mut(&id)?;
        if let Some(message) = set.again.take() {
            return Some(message);
        }
        let cursor = if self.ignores_cursor { 0 } else { last };
        let known = set.messages.range(cursor.max(0).saturating_add(1)..).next();
        if let Some((_, message)) = known {
            set.latest = Some(message.clone());
            return Some(message.clone());
        }
        if set.events.is_empty() {
            return None;
        }
        let events = Value::Array(std::mem::take(&mut set.events));
        let message_id = next(&mut self.last.message);
        let message = json!({
            "messageId": message_id,
            "messageType": "RunnerScaleSetJobMessages",
            "body": events.to_string(),
            "statistics": set.statistics(),
        });
        set.messages.insert(message_id, message.clone());
        set.latest = Some(message.clone());
        Some(message)
    }

    pub(crate) fn acknowledge(&mut self, set: i64, message: i64) -> bool {
        let set = self.scale_sets.get_mut(&set);
        set.is_some_and(|set| set.messages.remove(&message).is_some())
    }

    /// Has the next poll deliver the latest message once more.
    pub(crate) fn deliver_again(&mut self, set: i64) {
        if let Some(set) = self.scale_sets.get_mut(&set) {
            set.again.clone_from(&set.latest);
            set.news.notify_waiters();
        }
    }

    /// Puts an element of any kind into the next message.
    pub(crate) fn tell(&mut self, set: i64, element: Value) {
        if let Some(set) = self.scale_sets.get_mut(&set) {
            set.tell(element);
        }
    }
}
