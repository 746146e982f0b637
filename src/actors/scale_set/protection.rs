//! The chart's own objects that its finalizer protects until the scale set is gone: Roles and
//! Secrets that the controller needs to the last. Annotations name them; they are released one
//! after the other, those that give the controller its permissions last.
//!
//! A release needs no more than the right to patch. A refusal is no release: with the right to
//! list it is looked whether the finalizer is still there, and then it is tried again for as
//! long as it is. Before the controller gives its own rights away, it notes on the scale set that
//! the others are released, since it could not find that out again.

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Map, Value, json};

use super::context::ScaleSetContext;
use super::state::ScaleSetMachine;
use super::vocabulary::ScaleSetTag;
use crate::actors::core::backoff;
use crate::api::AutoscalingRunnerSet;
use crate::api::constants::annotations::cleanup;
use crate::api::constants::finalizers::CLEANUP_PROTECTION;
use crate::clock::Timestamp;
use crate::messages::{
    Effect, EventSeverity, Kind, KubeAnswer, KubeError, KubeErrorKind, KubeObject, KubeRequest,
    Object, ObjectRef,
};

/// Annotations that name protected objects, and their kinds, in the order of release.
const PROTECTED: [(&str, Kind); 7] = [
    (cleanup::KUBERNETES_MODE_ROLE_BINDING, Kind::RoleBinding),
    (cleanup::KUBERNETES_MODE_ROLE, Kind::Role),
    (
        cleanup::KUBERNETES_MODE_SERVICE_ACCOUNT,
        Kind::ServiceAccount,
    ),
    (cleanup::NO_PERMISSION_SERVICE_ACCOUNT, Kind::ServiceAccount),
    (cleanup::GITHUB_SECRET, Kind::Secret),
    (cleanup::MANAGER_ROLE_BINDING, Kind::RoleBinding),
    (cleanup::MANAGER_ROLE, Kind::Role),
];
/// From that place on they give the controller its permissions.
const OWN_RIGHTS: usize = 5;

/// A refusal about an object that cannot be seen does not hold the deletion longer than this:
/// most likely it is gone.
const GIVE_UP_UNSEEN_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// How far the release has come.
#[derive(Debug, Default)]
pub struct Protection {
    /// Place in the list.
    at: usize,
    in_flight: bool,
    /// What the object at that place is called.
    target: Option<ObjectRef>,
    refusal: Option<Refusal>,
    failures: u32,
    not_before: Option<Timestamp>,
}

/// A release that was refused.
#[derive(Debug)]
struct Refusal {
    since: Timestamp,
    error: KubeError,
    /// The object has to be looked for next.
    look: bool,
    /// What was last seen of it.
    sight: Option<Sight>,
}

/// What was seen of an object whose release was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    /// It holds the finalizer.
    Holds,
    /// We may not look either.
    Denied,
}

impl Protection {
    fn next(&mut self) {
        *self = Self {
            at: self.at + 1,
            ..Self::default()
        };
    }

    /// Takes in the end of a request about the object at that place.
    pub fn finish(&mut self, now: Timestamp, at: usize, result: Result<KubeAnswer, KubeError>) {
        if at != self.at {
            return;
        }
        self.in_flight = false;
        let Some(refusal) = self.refusal.as_mut().filter(|refusal| refusal.look) else {
            return self.take_release(now, result);
        };
        let sight = match result {
            Ok(KubeAnswer::Objects(objects)) => {
                let target = self.target.as_ref();
                let found = objects.iter().find(|one| Some(&one.reference()) == target);
                if !found.is_some_and(holds) {
                    return self.next();
                }
                Sight::Holds
            }
            Err(error) if error.kind == KubeErrorKind::Forbidden => Sight::Denied,
            _ => return self.try_again(now, backoff::REQUESTS),
        };
        refusal.look = false;
        refusal.sight = Some(sight);
        self.try_again(now, backoff::RECREATION);
    }

    fn take_release(&mut self, now: Timestamp, result: Result<KubeAnswer, KubeError>) {
        match result {
            Ok(_) => self.next(),
            Err(error) if error.kind == KubeErrorKind::NotFound => self.next(),
            Err(error) if error.kind == KubeErrorKind::Forbidden => {
                let before = self.refusal.as_ref();
                self.refusal = Some(Refusal {
                    since: before.map_or(now, |before| before.since),
                    sight: before.and_then(|before| before.sight),
                    look: true,
                    error,
                });
            }
            Err(_) => self.try_again(now, backoff::REQUESTS),
        }
    }

    fn try_again(&mut self, now: Timestamp, schedule: backoff::Schedule) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(schedule.until(now, self.failures, &self.at.to_string()));
    }

    /// What keeps the object at that place from being released, once that is certain.
    pub fn problem(&self) -> Option<String> {
        let refusal = self.refusal.as_ref()?;
        let target = self.target.as_ref()?;
        refusal.sight.map(|_| {
            format!(
                "{target} cannot be released: {}; give the controller the right to patch it, or \
                 take its finalizer {CLEANUP_PROTECTION} off with kubectl edit",
                refusal.error.message
            )
        })
    }

    /// Whether it is time to leave an object to a person that cannot even be seen.
    fn is_given_up(&self, now: Timestamp) -> bool {
        self.refusal.as_ref().is_some_and(|refusal| {
            refusal.sight == Some(Sight::Denied)
                && now.duration_since(refusal.since) >= GIVE_UP_UNSEEN_AFTER
        })
    }

    /// The request that is to be sent next about the object.
    fn request(&self, target: ObjectRef) -> KubeRequest {
        match &self.refusal {
            Some(refusal) if refusal.look => KubeRequest::List {
                kind: target.kind,
                namespace: target.namespace,
                selector: String::new(),
            },
            _ => KubeRequest::DropFinalizer {
                target,
                finalizer: CLEANUP_PROTECTION,
            },
        }
    }
}

impl ScaleSetMachine {
    /// Releases the next protected object. Says whether all are.
    pub(super) fn release_protected(
        &mut self,
        ars: &AutoscalingRunnerSet,
        ctx: &mut ScaleSetContext,
    ) -> bool {
        while let Some((annotation, kind)) = PROTECTED.get(self.protection.at) {
            let Some(name) = named(ars, annotation) else {
                self.protection.next();
                continue;
            };
            if self.protection.in_flight {
                return false;
            }
            if self.protection.at >= OWN_RIGHTS && !self.note_released(ars, ctx) {
                return false;
            }
            if self.protection.is_given_up(ctx.now) {
                self.leave_protected(ars, ctx);
                continue;
            }
            if let Some(problem) = self.protection.problem() {
                let severity = EventSeverity::Warning;
                self.announce(ars, severity, "ReleaseRefused", problem, ctx);
            }
            let waits = self.protection.not_before;
            if let Some(time) = waits.filter(|time| *time > ctx.now) {
                ctx.wake_at(time);
                return false;
            }
            let target = ObjectRef::new(*kind, &self.namespace, name);
            self.protection.target = Some(target.clone());
            self.protection.in_flight = true;
            let tag = ScaleSetTag::Protected(self.protection.at);
            let request = self.protection.request(target);
            ctx.push(Effect::Kube(tag, request));
            return false;
        }
        true
    }

    /// Notes that all is released that needs rights which are given away next. Says whether that
    /// is on record.
    fn note_released(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) -> bool {
        let released = PROTECTED.iter().take(OWN_RIGHTS);
        let named: Map<String, Value> = released
            .filter(|(annotation, _)| named(ars, annotation).is_some())
            .map(|(annotation, _)| ((*annotation).to_owned(), Value::Null))
            .collect();
        if named.is_empty() {
            return true;
        }
        let body = json!({ "metadata": { "annotations": named } });
        self.send_scale_set(ctx, body.to_string(), || {
            KubeRequest::patch(ars.reference(), body)
        });
        false
    }

    fn leave_protected(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) {
        if let Some(target) = &self.protection.target {
            let message = format!(
                "{target} is left as it is, since the controller may neither see nor patch it: \
                 should it hang in deletion, take its finalizer {CLEANUP_PROTECTION} off"
            );
            let severity = EventSeverity::Warning;
            self.announce(ars, severity, "ProtectedObjectLeft", message, ctx);
        }
        self.protection.next();
    }
}

fn named<'a>(ars: &'a AutoscalingRunnerSet, annotation: &str) -> Option<&'a str> {
    let annotations = ars.metadata.annotations.as_ref();
    let name = annotations.and_then(|all| all.get(annotation));
    name.map(String::as_str).filter(|name| !name.is_empty())
}

fn holds(object: &Object) -> bool {
    let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
    finalizers.iter().any(|name| name == CLEANUP_PROTECTION)
}
