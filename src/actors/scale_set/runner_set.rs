//! The EphemeralRunnerSet: made, given each new runner spec under a higher revision, and put to
//! rest while the service rejects its runners.
//!
//! `replicas` and `patchID` are the listener's and touched only while the set is parked.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::conditions::Finding;
use super::context::ScaleSetContext;
use super::merge_diff::merge_diff;
use super::state::ScaleSetMachine;
use super::vocabulary::ScaleSetTag;
use crate::actors::core::cached::{Presence, Verb};
use crate::actors::core::ownership::{Ownership, owner_patch, ownership};
use crate::api::{
    AutoscalingRunnerSet, EphemeralRunnerSet, EphemeralRunnerSetPhase, EphemeralRunnerSetSpec,
};
use crate::messages::{EventSeverity, Kind, KubeObject, KubeRequest, ObjectRef, codes};
use crate::resources::{ephemeral_runner_set, provide_annotation};
use crate::semantic::{deep_equal, drift};

/// How the runner set stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// It is as the spec asks, and its newest runner spec is applied.
    pub settled: bool,
    /// Whether the service rejects the runners of the spec that stands there. Nothing while
    /// that cannot be said: what was decided on it stays.
    pub rejected: Option<bool>,
    /// What was rejected has been corrected, and the correction is on its way.
    pub corrected: bool,
}

impl Standing {
    /// Something about it is on its way, and nothing that it was told stands any more.
    const MISSING: Self = Self {
        settled: false,
        rejected: Some(false),
        corrected: false,
    };
    /// Something about it is on its way.
    const UNKNOWN: Self = Self {
        settled: false,
        rejected: None,
        corrected: false,
    };
}

impl ScaleSetMachine {
    /// Keeps the EphemeralRunnerSet.
    pub(super) fn keep_runner_set(
        &mut self,
        ars: &AutoscalingRunnerSet,
        scale_set_id: i64,
        ctx: &mut ScaleSetContext,
    ) -> Standing {
        let mut desired = ephemeral_runner_set(ars, scale_set_id, &self.settings);
        let live = self.runner_set.object.get().map(|live| &live.metadata);
        provide_annotation(&mut desired.metadata, live);
        let standing = match self.runner_set.object.presence().clone() {
            Presence::Unknown => {
                self.read_runner_set(ctx);
                ctx.notes.revisions = self.runner_set.revisions;
                Standing {
                    corrected: self.runner_set.corrected,
                    ..Standing::UNKNOWN
                }
            }
            Presence::Absent => {
                self.runner_set.revisions = None;
                self.runner_set.corrected = false;
                self.send_runner_set(ctx, Verb::Create, "", || {
                    KubeRequest::Create(desired.into())
                });
                Standing::MISSING
            }
            Presence::Present(live) => {
                let standing = self.correct_runner_set(ars, &live, &desired, ctx);
                self.runner_set.revisions = ctx.notes.revisions;
                self.runner_set.corrected = standing.corrected;
                standing
            }
        };
        if ctx.notes.runners == Finding::Unknown {
            ctx.notes.runners = self.runners_finding(standing.settled, ctx);
        }
        standing
    }

    pub(super) fn runner_set_reference(&self) -> ObjectRef {
        ObjectRef::new(Kind::EphemeralRunnerSet, &self.namespace, &self.name)
    }

    pub(super) fn read_runner_set(&mut self, ctx: &mut ScaleSetContext) {
        let target = self.runner_set_reference();
        let tag = ScaleSetTag::RunnerSet(Verb::Read);
        ctx.read(&mut self.runner_set.object, tag, target);
    }

    fn send_runner_set(
        &mut self,
        ctx: &mut ScaleSetContext,
        verb: Verb,
        what: impl std::hash::Hash,
        request: impl FnOnce() -> KubeRequest,
    ) -> bool {
        let tag = ScaleSetTag::RunnerSet(verb);
        ctx.send(
            &mut self.runner_set.object,
            tag,
            Some((verb, what)),
            request,
        )
    }

    fn correct_runner_set(
        &mut self,
        ars: &AutoscalingRunnerSet,
        live: &Arc<EphemeralRunnerSet>,
        desired: &EphemeralRunnerSet,
        ctx: &mut ScaleSetContext,
    ) -> Standing {
        if live.metadata.deletion_timestamp.is_some() {
            return Standing::UNKNOWN;
        }
        if !self.may_keep_runner_set(ars, live, ctx) {
            return Standing::MISSING;
        }
        let rejected = is_rejected(live);
        ctx.notes.revisions = Some(Revisions::of(live));
        let change = change(live, desired);
        if let Some(body) = change.patch {
            let lock = change.lock;
            let sent = self.send_runner_set(ctx, Verb::Patch, change.what, || KubeRequest::Patch {
                target: live.reference(),
                body,
                status: false,
                lock,
            });
            if let Some(revision) = change.revision {
                ctx.notes.revisions = Some(Revisions {
                    wanted: revision,
                    applied: applied(live),
                });
                if sent {
                    let difference = change.difference.unwrap_or_default();
                    if revision > Revisions::of(live).highest() {
                        self.announce_revision(ars, revision, &difference, ctx);
                    } else {
                        self.announce_last_revision(ars, live, ctx);
                    }
                }
            }
            return Standing {
                settled: false,
                rejected: Some(rejected),
                corrected: change.revision.is_some(),
            };
        }
        let at_rest = !rejected || self.put_to_rest(live, ctx);
        Standing {
            settled: at_rest && Revisions::of(live).agree(),
            rejected: Some(rejected),
            corrected: false,
        }
    }

    /// Takes back what the listener has asked for. Says whether nothing is asked for.
    fn put_to_rest(&mut self, live: &EphemeralRunnerSet, ctx: &mut ScaleSetContext) -> bool {
        if live.spec.replicas.unwrap_or(0) == 0 && live.spec.patch_id == 0 {
            return true;
        }
        let body = json!({ "spec": { "replicas": 0, "patchID": 0 } });
        self.send_runner_set(ctx, Verb::Patch, "park", || {
            KubeRequest::patch(live.reference(), body)
        });
        false
    }

    fn announce_revision(
        &mut self,
        ars: &AutoscalingRunnerSet,
        revision: i64,
        difference: &str,
        ctx: &mut ScaleSetContext,
    ) {
        let message = format!("runner spec changed, revision {revision}: {difference}");
        self.announce(
            ars,
            EventSeverity::Normal,
            "RunnerSpecChanged",
            message,
            ctx,
        );
    }

    /// A person may have written the last revision there is.
    fn announce_last_revision(
        &mut self,
        ars: &AutoscalingRunnerSet,
        live: &EphemeralRunnerSet,
        ctx: &mut ScaleSetContext,
    ) {
        let message = format!(
            "revision {} is the last there is: only new runners have the changed spec; delete {} to \
             begin again",
            i64::MAX,
            live.reference(),
        );
        self.announce(ars, EventSeverity::Warning, "LastRevision", message, ctx);
    }

    /// Whether the live one is ours and stays. If not, it is removed, waited for, or named to a
    /// person.
    fn may_keep_runner_set(
        &mut self,
        ars: &AutoscalingRunnerSet,
        live: &Arc<EphemeralRunnerSet>,
        ctx: &mut ScaleSetContext,
    ) -> bool {
        match ownership(&live.metadata, ars) {
            Ownership::Ours | Ownership::Nobodys => true,
            Ownership::Predecessors => {
                self.delete_runner_set(live, ctx);
                false
            }
            Ownership::Foreign => {
                let message = format!(
                    "{} belongs to somebody else and is in the way: remove or rename it",
                    live.reference()
                );
                ctx.notes.runners = Finding::fails(codes::FOREIGN_OBJECT, &message);
                self.announce(
                    ars,
                    EventSeverity::Warning,
                    codes::FOREIGN_OBJECT,
                    message,
                    ctx,
                );
                let target = live.reference();
                self.send_runner_set(ctx, Verb::Read, "foreign", || KubeRequest::Get(target));
                false
            }
        }
    }

    /// Deletes the EphemeralRunnerSet; its actor lets it go when its runners are gone.
    pub(super) fn delete_runner_set(
        &mut self,
        live: &EphemeralRunnerSet,
        ctx: &mut ScaleSetContext,
    ) {
        let tag = ScaleSetTag::RunnerSet(Verb::Delete);
        let uid = live.metadata.uid.clone();
        ctx.delete(&mut self.runner_set.object, tag, live, uid);
    }

    fn runners_finding(&self, settled: bool, ctx: &ScaleSetContext) -> Finding {
        let apart = ctx.notes.revisions.filter(|both| !both.agree());
        let with_revisions = |code: Cow<'static, str>, message: &str| {
            let message = match apart {
                Some(both) => format!("{both}; {message}"),
                None => message.to_owned(),
            };
            Finding::fails(code, message)
        };
        // of a set that is as it should be, an error tells how it got there
        let error = self.runner_set.object.last_error();
        if let Some(error) = error.filter(|_| !settled) {
            let target = self.runner_set_reference();
            return with_revisions(
                codes::RUNNER_SET_NOT_APPLIED.into(),
                &format!("{target}: {error}"),
            );
        }
        let report = self.runner_set.report.as_ref();
        match (report.map(|report| &report.problem), apart) {
            (Some(Some(problem)), _) => with_revisions(problem.code.clone(), &problem.message),
            (_, Some(both)) => {
                let message = format!("{both}: first all runners without a job are replaced");
                Finding::fails(codes::APPLYING_REVISION, message)
            }
            (Some(None), None) => Finding::holds(codes::RUNNERS_READY, "runners can be made"),
            (None, None) if self.runner_set.object.is_absent() => {
                Finding::fails(codes::CREATING, "the EphemeralRunnerSet is being created")
            }
            (None, None) => Finding::Unknown,
        }
    }
}

/// Whether a runner of the spec that stands there was rejected. While a new revision is not
/// applied yet, the verdict is about the one before.
fn is_rejected(live: &EphemeralRunnerSet) -> bool {
    let Some(status) = &live.status else {
        return false;
    };
    status.phase == Some(EphemeralRunnerSetPhase::Outdated)
        && applied(live) >= live.spec.actionable_revision.unwrap_or(0)
}

/// The revision of the runner spec that is wanted, and the one that is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revisions {
    pub wanted: i64,
    pub applied: i64,
}

impl Revisions {
    fn of(live: &EphemeralRunnerSet) -> Self {
        Self {
            wanted: live.spec.actionable_revision.unwrap_or(0),
            applied: applied(live),
        }
    }

    fn highest(self) -> i64 {
        self.wanted.max(self.applied)
    }

    /// Whether nothing is left to apply.
    const fn agree(self) -> bool {
        self.applied >= self.wanted
    }
}

impl fmt::Display for Revisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, applied } = self;
        write!(
            f,
            "revision {wanted} of the runner spec is wanted, revision {applied} is applied"
        )
    }
}

/// The revision whose cleanup is done.
pub(super) fn applied(live: &EphemeralRunnerSet) -> i64 {
    let status = live.status.as_ref();
    status
        .and_then(|status| status.applied_actionable_revision)
        .unwrap_or(0)
}

/// What has to change on a live EphemeralRunnerSet.
#[derive(Default)]
struct Change {
    patch: Option<Value>,
    lock: Option<String>,
    /// Tells the change apart from others; the revision is no part of it, since it would make
    /// each attempt another one.
    what: String,
    revision: Option<i64>,
    difference: Option<String>,
}

fn change(live: &EphemeralRunnerSet, desired: &EphemeralRunnerSet) -> Change {
    let (known, wanted) = (&live.spec, &desired.spec);
    // each field is either compared or known not to be: a new one has to be put here
    let EphemeralRunnerSetSpec {
        ephemeral_runner_spec,
        ephemeral_runner_metadata,
        // the listener's
        replicas: _,
        patch_id: _,
        // it follows from the others
        actionable_revision: _,
    } = wanted;
    let new_spec = !deep_equal(&known.ephemeral_runner_spec, ephemeral_runner_spec);
    let new_metadata = !deep_equal(&known.ephemeral_runner_metadata, ephemeral_runner_metadata);
    let mut change = Change::default();
    let mut spec = Map::new();
    if new_spec {
        let old = json!(known.ephemeral_runner_spec);
        let new = json!(wanted.ephemeral_runner_spec);
        spec.insert("ephemeralRunnerSpec".to_owned(), merge_diff(&old, &new));
        change.difference = first_difference(live, desired);
    }
    if new_metadata {
        let old = json!(known.ephemeral_runner_metadata);
        let new = json!(wanted.ephemeral_runner_metadata);
        spec.insert("ephemeralRunnerMetadata".to_owned(), merge_diff(&old, &new));
    }
    let mut body = Map::new();
    let metadata = crate::resources::metadata_patch(&live.metadata, &desired.metadata);
    let owners = owner_patch(&live.metadata, &desired.metadata);
    // a list is replaced as a whole, so nobody may add to it in between
    change.lock = owners.as_ref().and(live.metadata.resource_version.clone());
    for patch in [metadata, owners].into_iter().flatten() {
        if let Value::Object(mut patch) = patch
            && let Some(Value::Object(fields)) = patch.remove("metadata")
        {
            let known = body.entry("metadata").or_insert_with(|| json!({}));
            if let Value::Object(known) = known {
                known.extend(fields);
            }
        }
    }
    change.what = json!([spec, body]).to_string();
    // a correction of the runner metadata also counts as one of what was rejected
    if new_spec || (new_metadata && is_rejected(live)) {
        // a person may have written the last one there is
        let revision = Revisions::of(live).highest().saturating_add(1);
        spec.insert("actionableRevision".to_owned(), json!(revision));
        change.revision = Some(revision);
    }
    if !spec.is_empty() {
        body.insert("spec".to_owned(), Value::Object(spec));
    }
    change.patch = (!body.is_empty()).then_some(Value::Object(body));
    change
}

fn first_difference(live: &EphemeralRunnerSet, desired: &EphemeralRunnerSet) -> Option<String> {
    let (live, desired) = (
        &live.spec.ephemeral_runner_spec,
        &desired.spec.ephemeral_runner_spec,
    );
    let added = drift(desired, live).map(|drift| drift.to_string());
    added.or_else(|| drift(live, desired).map(|drift| format!("{} is gone", drift.path)))
}
