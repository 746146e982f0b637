//! The chart's own objects that its finalizer protects until the scale set is gone: Roles and
//! Secrets that the controller needs to the last. Annotations name them; they are released one
//! after the other, those that give the controller its permissions last.

use serde_json::json;

use super::state::ScaleSetMachine;
use super::step::Step;
use super::vocabulary::ScaleSetTag;
use crate::actors::backoff;
use crate::api::AutoscalingRunnerSet;
use crate::api::constants::annotations::cleanup;
use crate::api::constants::finalizers::CLEANUP_PROTECTION;
use crate::clock::Timestamp;
use crate::messages::{
    Effect, Kind, KubeAnswer, KubeError, KubeErrorKind, KubeRequest, Object, ObjectRef,
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

/// How far the release has come.
#[derive(Debug, Default)]
pub struct Protection {
    /// Place in the list.
    at: usize,
    in_flight: bool,
    /// The object at that place, when it was read and holds the finalizer.
    held: Option<Object>,
    failures: u32,
    not_before: Option<Timestamp>,
}

impl Protection {
    fn next(&mut self) {
        self.at += 1;
        self.held = None;
        self.failures = 0;
        self.not_before = None;
    }

    /// Takes in the end of a request about the object at that place.
    pub fn finish(&mut self, now: Timestamp, at: usize, result: Result<KubeAnswer, KubeError>) {
        if at != self.at {
            return;
        }
        self.in_flight = false;
        match result {
            Ok(KubeAnswer::Object(object)) if holds(&object) => self.held = Some(object),
            // gone, or not ours to read: neither stops a deletion
            Ok(_) => self.next(),
            Err(error)
                if matches!(
                    error.kind,
                    KubeErrorKind::NotFound | KubeErrorKind::Forbidden
                ) =>
            {
                self.next();
            }
            Err(_) => {
                self.held = None;
                self.failures = self.failures.saturating_add(1);
                let until = backoff::REQUESTS.until(now, self.failures, &at.to_string());
                self.not_before = Some(until);
            }
        }
    }
}

impl ScaleSetMachine {
    /// Releases the next protected object. Says whether all are.
    pub(super) fn release_protected(
        &mut self,
        ars: &AutoscalingRunnerSet,
        step: &mut Step,
    ) -> bool {
        let annotations = ars.metadata.annotations.as_ref();
        let protection = &mut self.protection;
        while let Some((annotation, kind)) = PROTECTED.get(protection.at) {
            let named = annotations.and_then(|all| all.get(*annotation));
            let Some(name) = named.filter(|name| !name.is_empty()) else {
                protection.next();
                continue;
            };
            if protection.in_flight {
                return false;
            }
            if let Some(time) = protection.not_before.filter(|time| *time > step.now) {
                step.wake.at(time);
                return false;
            }
            let request = match &protection.held {
                None => KubeRequest::Get(ObjectRef::new(*kind, &self.namespace, name)),
                Some(object) => without_protection(object),
            };
            protection.in_flight = true;
            let tag = ScaleSetTag::Protected(protection.at);
            step.effects.push(Effect::Kube(tag, request));
            return false;
        }
        true
    }
}

fn holds(object: &Object) -> bool {
    let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
    finalizers.iter().any(|name| name == CLEANUP_PROTECTION)
}

fn without_protection(object: &Object) -> KubeRequest {
    let finalizers = object.meta().finalizers.as_deref().unwrap_or_default();
    let rest: Vec<&String> = finalizers
        .iter()
        .filter(|name| *name != CLEANUP_PROTECTION)
        .collect();
    KubeRequest::Patch {
        target: object.reference(),
        body: json!({ "metadata": { "finalizers": rest } }),
        status: false,
        lock: object.meta().resource_version.clone(),
    }
}
