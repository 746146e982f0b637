//! How often the listener's pod was made again, why, and when it may be made next.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PodSpec, Secret};
use k8s_openapi::jiff::SignedDuration;

use super::health::{Cause, End};
use crate::actors::core::backoff::RECREATION;
use crate::actors::core::wake::Wake;
use crate::api::AutoscalingListenerStatus;
use crate::clock::Timestamp;
use crate::messages::Reason;

/// A pod that was healthy for so long has no history.
const HEALTHY_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// As the how manieth end one counts at least after which somebody else has to do something
/// before the next pod: that waits for 10 s.
const TIME_FOR_OTHERS: u32 = 2;

/// So far apart at least are pods that somebody else ends one after the other.
const PACE: SignedDuration = SignedDuration::from_secs(3);

/// After so many failures in a row it is doubtful whether the scale set exists: not every
/// listener says so by its exit code.
const DOUBTFUL_AFTER: u32 = 3;

/// Stands for the end of the pod as a whole, after however many of its container that the node
/// has answered with another start.
const WHOLE: u32 = u32::MAX;

/// The history of a listener's pods.
#[derive(Debug, Default)]
pub struct Restarts {
    /// Failures since a pod was last healthy for long enough.
    count: u32,
    /// As what at least the next end counts for its wait.
    least: u32,
    /// Why the last pod was ended or ended by itself: one word and a sentence.
    reason: Option<Reason>,
    /// Reason as the status gives it.
    recorded: Option<String>,
    /// Before this no pod is made.
    not_before: Option<Timestamp>,
    /// What the wait is for, if it is for a failure.
    failed_with: Option<BuiltFrom>,
    /// When the last pod that somebody else ended was made again, or will be.
    disrupted: Option<Timestamp>,
    /// The pod that was seen last.
    seen: Option<String>,
    /// The pod whose listener was seen running last.
    ran: Option<String>,
    /// The pod whose end was taken into account, and how much of it.
    settled: Option<(String, u32)>,
}

/// What a pod is built from. When it changes after a failure, waiting is of no use any more.
#[derive(Clone, Debug)]
pub struct BuiltFrom {
    /// The config Secret.
    pub config: Option<Arc<Secret>>,
    /// The pod's desired spec.
    pub spec: Option<PodSpec>,
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
    pub const fn reason(&self) -> Option<&Reason> {
        self.reason.as_ref()
    }

    /// Whether it has failed so often in a row that its scale set may be what is missing.
    #[must_use]
    pub const fn is_doubtful(&self) -> bool {
        self.count >= DOUBTFUL_AFTER
    }

    /// Notes a pod that exists.
    pub fn saw(&mut self, uid: &str) {
        if self.seen.as_deref() != Some(uid) {
            self.seen = Some(uid.to_owned());
        }
    }

    /// Whether the listener of that pod was seen running.
    #[must_use]
    pub fn has_run(&self, uid: &str) -> bool {
        self.ran.as_deref() == Some(uid)
    }

    /// Notes that the pod `uid` ended, and not by us. Says so if that is news.
    ///
    /// What somebody else ends is made again at once, however often, but not faster than a
    /// person would do it. A failure waits longer each time.
    pub fn ended(&mut self, now: Timestamp, uid: &str, end: &End, from: BuiltFrom) -> bool {
        if !self.settle(uid, WHOLE) {
            return false;
        }
        let least = std::mem::take(&mut self.least);
        self.failed_with = None;
        if end.cause == Cause::Disruption {
            let paced = self
                .disrupted
                .and_then(|last| last.saturating_add(PACE).ok());
            self.not_before = paced.filter(|time| *time > now);
            self.disrupted = Some(self.not_before.unwrap_or(now));
        } else {
            let waits = self.count.max(least);
            self.not_before = (waits > 0).then(|| RECREATION.until(now, waits, uid));
            self.failed_with = Some(from);
            self.count = self.count.saturating_add(1);
        }
        self.note(&end.reason, &end.message);
        true
    }

    /// Notes that the listener in the pod `uid` ended for the `count`th time, and that its node has
    /// started it again. Says so if that is news.
    pub fn restarted(&mut self, uid: &str, count: u32, end: &End) -> bool {
        // an earlier process has counted it, if it wrote it down
        let known = self.settled.is_none()
            && self.count > 0
            && self.recorded.as_ref() == Some(&text(&end.reason, &end.message));
        if !self.settle(uid, count) || known {
            return false;
        }
        self.count = self.count.saturating_add(1);
        self.note(&end.reason, &end.message);
        true
    }

    /// The next end is not answered at once, even if it is the first.
    pub const fn give_time(&mut self) {
        self.least = TIME_FOR_OTHERS;
    }

    /// Notes that we end the pod `uid`, which waits for no back-off. Says so if that is news.
    pub fn replaced(&mut self, uid: &str, reason: &str, message: &str) -> bool {
        if !self.settle(uid, WHOLE) {
            return false;
        }
        self.not_before = None;
        self.note(reason, message);
        true
    }

    /// Notes that the listener is not to have a pod for now: what goes then is no failure.
    pub fn rest(&mut self) {
        self.settled = self.seen.take().map(|uid| (uid, WHOLE));
        self.not_before = None;
    }

    /// The pod that was there and is gone without a word, if there is one.
    #[must_use]
    pub fn vanished(&self) -> Option<String> {
        self.seen.clone().filter(|uid| !self.is_settled(uid, WHOLE))
    }

    /// Whether a wait after a failure is running, which is over as soon as the cause is mended.
    #[must_use]
    pub fn waits(&self, now: Timestamp) -> bool {
        self.failed_with.is_some() && self.not_before.is_some_and(|time| time > now)
    }

    /// Takes in what a pod would be built from now: the wait is over if that is something else
    /// than what has failed.
    pub fn may_build_from(
        &mut self,
        now: BuiltFrom,
        same_config: impl FnOnce(&Secret, &Secret) -> bool,
    ) {
        let Some(failed) = &self.failed_with else {
            return;
        };
        let same = match (&failed.config, &now.config) {
            (Some(failed), Some(now)) => same_config(failed, now),
            // not known yet when it failed
            _ => true,
        };
        if !same || failed.spec != now.spec {
            self.not_before = None;
        }
        self.failed_with = Some(now).filter(|_| self.not_before.is_some());
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

    /// Whether one that has been running since then has no history any more.
    #[must_use]
    pub fn is_healthy(now: Timestamp, since: Timestamp) -> bool {
        now.duration_since(since) >= HEALTHY_AFTER
    }

    /// Takes in that the listener in the pod `uid` has been running since then.
    pub fn running_since(&mut self, now: Timestamp, uid: &str, since: Timestamp, wake: &mut Wake) {
        if !self.has_run(uid) {
            self.ran = Some(uid.to_owned());
        }
        if self.count == 0 {
            return;
        }
        if Self::is_healthy(now, since) {
            self.count = 0;
        } else {
            wake.at(since.saturating_add(HEALTHY_AFTER).unwrap_or(now));
        }
    }

    fn is_settled(&self, uid: &str, count: u32) -> bool {
        let settled = self.settled.as_ref();
        settled.is_some_and(|(known, done)| known == uid && *done >= count)
    }

    /// Takes an end into account. Says whether that is news.
    fn settle(&mut self, uid: &str, count: u32) -> bool {
        let news = !self.is_settled(uid, count);
        if news {
            self.settled = Some((uid.to_owned(), count));
        }
        news
    }

    fn note(&mut self, reason: &str, message: &str) {
        self.recorded = Some(text(reason, message));
        self.reason = Some(Reason::new(reason.to_owned(), message));
    }
}

fn text(reason: &str, message: &str) -> String {
    format!("{reason}: {message}")
}
