//! Runners on their way into being: each has a slot from the decision until its create is
//! accepted, and counts as capacity all that time.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::machine::{RunnerSetMachine, RunnerSetTag, applied_revision};
use super::runner_index::RunnerIndex;
use crate::actors::core::backoff;
use crate::actors::core::cached::{Cached, Presence, Verb};
use crate::actors::core::step_context::StepContext;
use crate::actors::runner::view;
use crate::api::constants::annotations;
use crate::api::{EphemeralRunner, EphemeralRunnerSet};
use crate::clock::Timestamp;
use crate::messages::{
    Effect, Kind, KubeAnswer, KubeError, KubeErrorKind, KubeRequest, ObjectRef, RunnerDirective,
};
use crate::resources;

/// So many creates are under way at a time.
pub(super) const MAX_CREATES: usize = 64;

/// While a quota leaves no room, one create after another shows whether there is some.
const PROBES: backoff::Schedule = backoff::Schedule {
    first_ms: 5_000,
    cap_ms: 30_000,
};

/// The slots, by the names chosen for their runners.
#[derive(Debug, Default)]
pub(super) struct PendingCreations {
    slots: BTreeMap<String, Cached<EphemeralRunner>>,
    nonce: Option<u64>,
    error: Option<KubeError>,
}

impl PendingCreations {
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Why the last create was refused, until one is accepted.
    pub const fn error(&self) -> Option<&KubeError> {
        self.error.as_ref()
    }

    /// Whether a quota leaves no room for another.
    pub fn is_crowded(&self) -> bool {
        let error = self.error.as_ref();
        error.is_some_and(|error| error.kind == KubeErrorKind::QuotaExceeded)
    }

    /// Lets what was refused be tried at once.
    pub fn hurry(&mut self) {
        self.slots.values_mut().for_each(Cached::retry_now);
    }

    /// A runner of that name has been seen. Says whether it was one of ours on its way.
    pub fn seen(&mut self, name: &str) -> bool {
        self.slots.remove(name).is_some()
    }

    /// Gives slots up that nothing is under way for, until `wanted` are left.
    pub fn trim(&mut self, wanted: usize) {
        while self.slots.len() > wanted {
            let idle = self
                .slots
                .iter()
                .find(|(_, slot)| slot.is_absent() && !slot.is_in_flight())
                .map(|(name, _)| name.clone());
            match idle {
                Some(name) => self.slots.remove(&name),
                None => return,
            };
        }
        if self.slots.is_empty() {
            // what is not wanted any more is not refused any more
            self.error = None;
        }
    }

    /// Takes a free name. Names do not repeat within a process, and hardly between two.
    fn open(&mut self, now: Timestamp, set: &EphemeralRunnerSet, runners: &RunnerIndex) {
        let nonce = self.nonce.get_or_insert_with(|| seed(now, &set.metadata));
        for _ in 0..1_000 {
            *nonce = nonce.wrapping_add(1);
            let name = resources::runner_name(set, *nonce);
            if !runners.contains(&name) && !self.slots.contains_key(&name) {
                self.slots.insert(name, Cached::absent());
                return;
            }
        }
    }
}

impl RunnerSetMachine {
    /// Goes on with `gap` more runners than there are slots for.
    ///
    /// Under a new patch the runner that closes the gap is made last, after all others were
    /// accepted, and it alone carries the patch's id: a scale-up that is cut short is thus
    /// known to be unfinished.
    pub(super) fn create_runners(
        &mut self,
        set: &EphemeralRunnerSet,
        mut gap: usize,
        ctx: &mut StepContext<Self>,
    ) {
        if let Some(time) = self.failing.until(ctx.now) {
            return ctx.wake_at(time);
        }
        let mut room = self.room_for(gap, ctx);
        while gap > 0 && room > 0 && self.creation.len() < MAX_CREATES {
            self.creation.open(ctx.now, set, &self.runners);
            gap -= 1;
            room -= 1;
        }
        let latest = self.runners.latest_patch();
        let patch = set.spec.patch_id;
        let closes = patch != 0 && patch != latest && gap == 0;
        let (stamp, held) = if !closes {
            let open_gap = patch != 0 && patch != latest;
            (if open_gap { latest } else { patch }, None)
        } else if self.creation.len() == 1 {
            (patch, None)
        } else {
            (latest, self.creation.last_unsent())
        };
        // a person may have raised the applied revision; under one below it a verdict would be
        // stale from the start, and a rejected spec be tried for ever
        let revision = set.spec.actionable_revision.unwrap_or(0);
        let revision = revision.max(applied_revision(set));
        for (name, slot) in &mut self.creation.slots {
            let waits = !slot.is_absent() || Some(name) == held.as_ref();
            if waits || !ctx.begin(slot) {
                continue;
            }
            let runner = stamped(resources::ephemeral_runner(set, name), stamp, revision);
            ctx.kube(
                RunnerSetTag::Runner(name.clone(), Verb::Create),
                KubeRequest::Create(runner.into()),
            );
        }
    }

    /// Reads runners whose create got no clear answer.
    pub(super) fn resolve_creates(&mut self, ctx: &mut StepContext<Self>) {
        for (name, slot) in &mut self.creation.slots {
            ctx.wake_at_some(slot.waits_until(ctx.now));
            if slot.is_unknown() && ctx.begin(slot) {
                let target = ObjectRef::new(
                    Kind::EphemeralRunner,
                    self.namespace.as_str(),
                    name.as_str(),
                );
                ctx.kube(
                    RunnerSetTag::Runner(name.clone(), Verb::Read),
                    KubeRequest::Get(target),
                );
            }
        }
    }

    /// Takes in the answer to a create, or to the read that clears one up.
    pub(super) fn take_create(
        &mut self,
        name: &str,
        verb: Verb,
        result: &Result<KubeAnswer, KubeError>,
        ctx: &mut StepContext<Self>,
    ) {
        match result {
            Ok(_) => self.creation.error = None,
            Err(error) if is_refusal(error.kind) => self.creation.error = Some(error.clone()),
            Err(_) => {}
        }
        let Some(slot) = self.creation.slots.get_mut(name) else {
            // the watch was faster than the answer
            return;
        };
        let target = ObjectRef::new(Kind::EphemeralRunner, self.namespace.as_str(), name);
        slot.finish_with(ctx.now, verb, result, &target, schedule(result));
        let presence = slot.presence().clone();
        let Presence::Present(runner) = presence else {
            return;
        };
        self.creation.slots.remove(name);
        if self.runners.contains(name) || !self.owns(&runner) {
            // the name is taken: the gap is filled under another
            return;
        }
        self.record_report(view(&runner), ctx);
        ctx.push(Effect::Child(if verb == Verb::Read {
            RunnerDirective::Observe(runner)
        } else {
            RunnerDirective::Created(runner)
        }));
    }

    /// Takes a runner in that no actor is known for.
    pub(super) fn take_found(&mut self, runner: Arc<EphemeralRunner>, ctx: &mut StepContext<Self>) {
        let report = view(&runner);
        if self.recently_deleted.contains(&report.uid) {
            return;
        }
        let ours = self.creation.seen(&report.name);
        self.record_report(report, ctx);
        ctx.push(Effect::Child(if ours {
            RunnerDirective::Created(runner)
        } else {
            RunnerDirective::Observe(runner)
        }));
    }

    fn owns(&self, runner: &EphemeralRunner) -> bool {
        // the set is not known for certain while the answer to a write of it is unclear
        let set = self.set.get().or(self.last_set.as_ref());
        let uid = set.and_then(|set| set.metadata.uid.as_ref());
        runner
            .metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| Some(&owner.uid) == uid)
    }
}

impl PendingCreations {
    /// The last slot whose create has not been sent.
    fn last_unsent(&self) -> Option<String> {
        self.slots
            .iter()
            .rfind(|(_, slot)| slot.is_absent() && !slot.is_in_flight())
            .map(|(name, _)| name.clone())
    }
}

fn stamped(mut runner: EphemeralRunner, patch: i64, revision: i64) -> EphemeralRunner {
    let stamps = runner.metadata.annotations.get_or_insert_default();
    for (key, number) in [
        (annotations::PATCH_ID, patch),
        (annotations::ACTIONABLE_REVISION, revision),
    ] {
        stamps.insert(key.to_owned(), number.to_string());
    }
    runner
}

/// Whether a person has to do something about it.
const fn is_refusal(kind: KubeErrorKind) -> bool {
    matches!(
        kind,
        KubeErrorKind::Invalid
            | KubeErrorKind::QuotaExceeded
            | KubeErrorKind::NamespaceTerminating
            | KubeErrorKind::Forbidden
            | KubeErrorKind::Other
    )
}

const fn schedule(result: &Result<KubeAnswer, KubeError>) -> backoff::Schedule {
    match result {
        Err(error) if matches!(error.kind, KubeErrorKind::QuotaExceeded) => PROBES,
        Err(error) if is_refusal(error.kind) => backoff::RECREATION,
        _ => backoff::REQUESTS,
    }
}

/// Where names start: somewhere else in each process, so that a restarted one does not run
/// into the names of its predecessor.
fn seed(now: Timestamp, meta: &ObjectMeta) -> u64 {
    let uid = meta.uid.as_deref().unwrap_or_default();
    let time = now.as_nanosecond().to_le_bytes();
    uid.bytes()
        .chain(time)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}
