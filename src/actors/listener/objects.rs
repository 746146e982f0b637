//! How one object of a listener is kept: read before it is made, made when it is missing, set
//! right where it differs, left alone where others added to it, and never taken from
//! somebody else.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::context::{ListenerContext, Part};
use crate::actors::core::cached::{Cached, Presence, Verb};
use crate::actors::core::ownership::{Ownership, owner_patch, ownership};
use crate::api::AutoscalingListener;
use crate::api::constants::labels;
use crate::messages::{EventSeverity, KubeObject, KubeRequest, ObjectRef, codes};
use crate::resources::metadata_patch;
use crate::semantic::deep_equal;

/// How an object stands after it was looked at.
#[derive(Debug)]
pub enum Kept<T> {
    /// It is as it should be, and no request about it is in flight.
    Settled(Arc<T>),
    /// It is there, and something about it is being set right.
    Changing,
    /// It is not there, or not ours, or going.
    Missing,
}

impl<T> Kept<T> {
    /// Whether it is there.
    pub const fn exists(&self) -> bool {
        !matches!(self, Self::Missing)
    }
}

/// What has to happen to a live object.
#[derive(Debug, PartialEq)]
pub enum Correction {
    /// Nothing.
    None,
    /// This merge patch.
    Patch(Value),
    /// It differs where it cannot be changed.
    Recreate,
}

/// Keeps `desired` in place. `correct` says what a live one lacks besides metadata.
pub fn keep<T: KubeObject>(
    slot: &mut Cached<T>,
    part: Part,
    al: &AutoscalingListener,
    desired: T,
    correct: impl FnOnce(&T, &T) -> Correction,
    ctx: &mut ListenerContext,
) -> Kept<T> {
    let target = desired.reference();
    let kept = match slot.presence().clone() {
        Presence::Unknown => {
            ctx.read_part(slot, part, &target);
            Kept::Missing
        }
        Presence::Absent => {
            ctx.send_part(slot, part, Verb::Create, Some(""), || {
                KubeRequest::Create(Arc::new(desired).into_object())
            });
            Kept::Missing
        }
        Presence::Present(live) if may_keep(slot, part, al, &live, ctx) => {
            set_right(slot, part, &live, &desired, correct, ctx)
        }
        Presence::Present(_) => Kept::Missing,
    };
    ctx.trouble_with(slot, &target);
    kept
}

/// Deletes the object of that name if it is ours. Says whether it is known to be gone.
pub fn remove<T: KubeObject>(
    slot: &mut Cached<T>,
    part: Part,
    al: &AutoscalingListener,
    target: &ObjectRef,
    ctx: &mut ListenerContext,
) -> bool {
    match slot.presence().clone() {
        Presence::Unknown => {
            ctx.read_part(slot, part, target);
        }
        // one that is being created is about to be there
        Presence::Absent => return !slot.is_in_flight(),
        Presence::Present(live) => {
            let uid = live.meta().uid.clone().unwrap_or_default();
            match whose(live.as_ref(), al) {
                // of that name there is one that is not ours; ours is gone
                Ownership::Foreign => return true,
                _ if live.meta().deletion_timestamp.is_some() => {
                    ctx.poll(slot, part, target, &uid);
                }
                _ => {
                    delete(slot, part, live, None, ctx);
                }
            }
        }
    }
    ctx.trouble_with(slot, target);
    false
}

/// Sends the delete of exactly this object.
pub fn delete<T: KubeObject>(
    slot: &mut Cached<T>,
    part: Part,
    live: Arc<T>,
    grace: Option<u32>,
    ctx: &mut ListenerContext,
) -> bool {
    let uid = live.meta().uid.clone();
    ctx.send_part(slot, part, Verb::Delete, Some(uid.clone()), || {
        KubeRequest::Delete {
            target: live.reference(),
            uid,
            lock: None,
            grace,
        }
    })
}

/// Whether the live object is ours, or may become ours. If not, it is waited for, removed, or
/// named to a person.
pub fn may_keep<T: KubeObject>(
    slot: &mut Cached<T>,
    part: Part,
    al: &AutoscalingListener,
    live: &Arc<T>,
    ctx: &mut ListenerContext,
) -> bool {
    let target = live.reference();
    let uid = live.meta().uid.clone().unwrap_or_default();
    let going = live.meta().deletion_timestamp.is_some();
    match whose(live.as_ref(), al) {
        Ownership::Foreign => {
            let name = al.metadata.name.as_deref().unwrap_or_default();
            let message = format!(
                "{target} does not belong to the AutoscalingListener {name} and is in its \
                 way: remove or rename it"
            );
            if ctx.is_news(&message) {
                ctx.event(
                    al,
                    EventSeverity::Warning,
                    codes::FOREIGN_OBJECT,
                    message.clone(),
                );
            }
            ctx.trouble(codes::FOREIGN_OBJECT, message);
            ctx.poll(slot, part, &target, &uid);
            false
        }
        // no watch may show us the end of these
        _ if going && part != Part::Pod => {
            ctx.poll(slot, part, &target, &uid);
            false
        }
        Ownership::Predecessors => {
            if !going {
                delete(slot, part, live.clone(), None, ctx);
            }
            ctx.trouble(
                "Predecessor",
                format!("{target} of an earlier listener still goes"),
            );
            false
        }
        _ => true,
    }
}

fn set_right<T: KubeObject>(
    slot: &mut Cached<T>,
    part: Part,
    live: &Arc<T>,
    desired: &T,
    correct: impl FnOnce(&T, &T) -> Correction,
    ctx: &mut ListenerContext,
) -> Kept<T> {
    let mut body = Map::new();
    match correct(live, desired) {
        Correction::None => {}
        Correction::Patch(content) => merge(&mut body, content),
        Correction::Recreate => {
            delete(slot, part, live.clone(), None, ctx);
            return Kept::Missing;
        }
    }
    let lock = complete_metadata(&mut body, live.meta(), desired.meta());
    if body.is_empty() {
        return if slot.is_in_flight() {
            Kept::Changing
        } else {
            Kept::Settled(live.clone())
        };
    }
    let body = Value::Object(body);
    ctx.send_part(slot, part, Verb::Patch, Some(body.to_string()), || {
        KubeRequest::Patch {
            target: live.reference(),
            body,
            status: false,
            lock,
        }
    });
    Kept::Changing
}

/// Adds to the patch `body` what brings labels, annotations and a lost owner onto a live object.
/// Answers with the resourceVersion that the patch is locked to, if it has to be.
pub fn complete_metadata(
    body: &mut Map<String, Value>,
    live: &ObjectMeta,
    desired: &ObjectMeta,
) -> Option<String> {
    if let Some(metadata) = metadata_patch(live, desired) {
        merge(body, metadata);
    }
    let owners = owner_patch(live, desired)?;
    merge(body, owners);
    // a list is replaced as a whole, so nobody may add to it in between
    live.resource_version.clone()
}

/// Whose the object is: by its owner reference, and where it lives in another namespace than
/// its AutoscalingListener, by its labels.
fn whose<T: KubeObject>(live: &T, al: &AutoscalingListener) -> Ownership {
    let meta = live.meta();
    let label = |key: &str| {
        let labels = meta.labels.as_ref();
        labels
            .and_then(|labels| labels.get(key))
            .map(String::as_str)
    };
    if matches!(
        T::KIND,
        crate::messages::Kind::Role | crate::messages::Kind::RoleBinding
    ) {
        let name = label(labels::LISTENER_NAME);
        let namespace = label(labels::LISTENER_NAMESPACE);
        let says_other = name.is_some_and(|name| Some(name) != al.metadata.name.as_deref())
            || namespace.is_some_and(|space| Some(space) != al.metadata.namespace.as_deref());
        let says_ours = name.is_some() && namespace.is_some();
        let scale_sets = || {
            label(labels::COMPONENT) == Some(labels::COMPONENT_LISTENER)
                && label(labels::SCALE_SET_NAME) == Some(&al.spec.autoscaling_runner_set_name)
                && label(labels::SCALE_SET_NAMESPACE)
                    == Some(&al.spec.autoscaling_runner_set_namespace)
        };
        // somebody may have taken a label off, and then the others say it
        let ours = says_ours || ownership(meta, al) == Ownership::Ours || scale_sets();
        return if ours && !says_other {
            Ownership::Ours
        } else {
            Ownership::Foreign
        };
    }
    match ownership(meta, al) {
        Ownership::Nobodys if label(labels::COMPONENT) != Some(labels::COMPONENT_LISTENER) => {
            Ownership::Foreign
        }
        other => other,
    }
}

/// Adds `patch` to `body`, one level below the top merged.
fn merge(body: &mut Map<String, Value>, patch: Value) {
    let Value::Object(patch) = patch else { return };
    for (key, value) in patch {
        match (body.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
            (_, value) => {
                body.insert(key, value);
            }
        }
    }
}

/// A ServiceAccount has nothing but metadata.
pub const fn correct_service_account(_: &ServiceAccount, _: &ServiceAccount) -> Correction {
    Correction::None
}

/// A Role's rules are exactly ours.
pub fn correct_role(live: &Role, desired: &Role) -> Correction {
    if deep_equal(&live.rules, &desired.rules) {
        Correction::None
    } else {
        Correction::Patch(json!({ "rules": desired.rules }))
    }
}

/// A RoleBinding's subjects are exactly ours; which role it binds cannot be changed.
pub fn correct_role_binding(live: &RoleBinding, desired: &RoleBinding) -> Correction {
    if !deep_equal(&live.role_ref, &desired.role_ref) {
        Correction::Recreate
    } else if deep_equal(&live.subjects, &desired.subjects) {
        Correction::None
    } else {
        Correction::Patch(json!({ "subjects": desired.subjects }))
    }
}
