//! How often the listener's pod was made again, why, and when it may be made next.

use k8s_openapi::jiff::SignedDuration;

use crate::actors::backoff::RECREATION;
use crate::actors::owned::Wake;
use crate::api::AutoscalingListenerStatus;
use crate::clock::Timestamp;

/// A pod that was healthy for so long has no history.
const HEALTHY_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// As the how manieth end one counts at least after which somebody else has to do something
/// before the next pod: that waits for 10 s.
const TIME_FOR_OTHERS: u32 = 2;

/// The history of a listener's pods.
#[derive(Debug, Default)]
pub struct Restarts {
    /// Ends since a pod was last healthy for long enough.
    count: u32,
    /// As what at least the next end counts for its wait.
    least: u32,
    /// Why the last pod was ended or ended by itself: one word and a sentence.
    reason: Option<(String, String)>,
    /// Reason as the status gives it.
    recorded: Option<String>,
    /// Before this no pod is made.
    not_before: Option<Timestamp>,
    /// The pod that was seen last.
    seen: Option<String>,
    /// The pod whose end was taken into account.
    settled: Option<String>,
}

impl Restarts {
    /// Goes on from what an earlier process wrote down.
    pub fn recorded(status: Option<&AutoscalingListenerStatus>) -> Self {
        let restarts = status.and_then(|status| status.restarts).unwrap_or(0);
        Self {
            count: u32::try_from(restarts).unwrap_or(0),
            recorded: status.and_then(|status| status.last_restart_reason.clone()),
            ..Self::default()
        }
    }

    /// What the status is to say.
    #[must_use]
    pub fn status(&self) -> AutoscalingListenerStatus {
        AutoscalingListenerStatus {
            restarts: (self.count > 0 || self.recorded.is_some()).then(|| i64::from(self.count)),
            last_restart_reason: self.recorded.clone(),
        }
    }

    /// Why the last pod went.
    #[must_use]
    pub const fn reason(&self) -> Option<&(String, String)> {
        self.reason.as_ref()
    }

    /// Notes a pod that exists.
    pub fn saw(&mut self, uid: &str) {
        if self.seen.as_deref() != Some(uid) {
            self.seen = Some(uid.to_owned());
        }
    }

    /// Notes that the pod `uid` ended by itself. Says so if that is news.
    pub fn ended(&mut self, now: Timestamp, uid: &str, reason: &str, message: &str) -> bool {
        if self.settled.as_deref() == Some(uid) {
            return false;
        }
        let waits = self.count.max(std::mem::take(&mut self.least));
        self.not_before = (waits > 0).then(|| RECREATION.until(now, waits, uid));
        self.count = self.count.saturating_add(1);
        self.note(uid, reason, message);
        true
    }

    /// The next end is not answered at once, even if it is the first.
    pub const fn give_time(&mut self) {
        self.least = TIME_FOR_OTHERS;
    }

    /// Notes that we end the pod `uid`, which waits for no back-off. Says so if that is news.
    pub fn replaced(&mut self, uid: &str, reason: &str, message: &str) -> bool {
        if self.settled.as_deref() == Some(uid) {
            return false;
        }
        self.not_before = None;
        self.note(uid, reason, message);
        true
    }

    /// Notes that the listener is not to have a pod for now: what goes then is no failure.
    pub fn rest(&mut self) {
        self.settled = self.seen.take();
        self.not_before = None;
    }

    /// The pod that was there and is gone without a word, if there is one.
    #[must_use]
    pub fn vanished(&self) -> Option<String> {
        self.seen.clone().filter(|_| self.seen != self.settled)
    }

    /// Whether a pod may be made now.
    pub fn may_create(&self, now: Timestamp, wake: &mut Wake) -> bool {
        match self.not_before {
            Some(time) if time > now => {
                wake.at(time);
                false
            }
            _ => true,
        }
    }

    /// When the next pod is made, if that is not now.
    #[must_use]
    pub const fn next(&self) -> Option<Timestamp> {
        self.not_before
    }

    /// Takes in that the listener has been running since then.
    pub fn healthy_since(&mut self, now: Timestamp, since: Timestamp, wake: &mut Wake) {
        if self.count == 0 {
            return;
        }
        let due = since.saturating_add(HEALTHY_AFTER).unwrap_or(now);
        if due <= now {
            self.count = 0;
        } else {
            wake.at(due);
        }
    }

    fn note(&mut self, uid: &str, reason: &str, message: &str) {
        self.settled = Some(uid.to_owned());
        self.recorded = Some(format!("{reason}: {message}"));
        self.reason = Some((reason.to_owned(), message.to_owned()));
    }
}
