//! EphemeralRunnerSets of this scale set under other names, such as `NAME-xxxxx` of ARC 0.14.
//!
//! Their runners are the runner set's like all others: it counts them, lets the idle ones go
//! and waits for the busy ones. The old set itself is deleted, and let go when no runner
//! is its own any more: its finalizers, also those that ARC put on it, keep the garbage
//! collector away from the runners until then.

use std::sync::Arc;

use serde_json::{Value, json};

use super::context::ScaleSetContext;
use super::state::ScaleSetMachine;
use super::vocabulary::ScaleSetTag;
use crate::actors::core::backoff;
use crate::actors::core::cached::{Cached, Presence, Verb};
use crate::api::constants::{finalizers, labels};
use crate::api::{AutoscalingRunnerSet, EphemeralRunnerSet};
use crate::clock::{Timestamp, after};
use crate::messages::{
    Effect, EventSeverity, Kind, KubeAnswer, KubeError, KubeObject, KubeRequest, ObjectRef,
};

/// Finalizers that one of ARC's versions or we put on an EphemeralRunnerSet.
const LET_GO: [&str; 2] = [
    finalizers::EPHEMERAL_RUNNER_SET,
    finalizers::EPHEMERAL_RUNNER,
];

/// Between two looks for its runners while these come and go, in seconds.
const PAUSE: i64 = 5;

/// A set under another name.
#[derive(Debug, Default)]
pub struct FormerSet {
    object: Cached<EphemeralRunnerSet>,
    runners: Search,
}

/// The search for runners that are still its own.
#[derive(Debug, Default)]
struct Search {
    in_flight: bool,
    last: Option<Timestamp>,
    looks: u32,
    not_before: Option<Timestamp>,
    /// There are none, and no new ones are made.
    none: bool,
}

impl Search {
    fn finish(&mut self, now: Timestamp, uid: &str, result: &Result<KubeAnswer, KubeError>) {
        self.in_flight = false;
        self.last = Some(now);
        if let Ok(KubeAnswer::Objects(objects)) = result {
            let owners = objects.iter().flat_map(|one| &one.meta().owner_references);
            self.none = owners.flatten().all(|owner| owner.uid != uid);
        }
        self.looks = self.looks.saturating_add(1);
        self.not_before = Some(backoff::RECREATION.until(now, self.looks, uid));
    }

    /// Runners have come or gone.
    fn hurry(&mut self) {
        self.looks = 0;
        let soon = self.last.map(|last| after(last, PAUSE));
        self.not_before = self.not_before.min(soon);
    }
}

impl ScaleSetMachine {
    /// Whether the set is this scale set's, or that of one of the same name before it, under
    /// another name.
    pub(super) fn is_former_set(&self, set: &EphemeralRunnerSet) -> bool {
        let owners = set.metadata.owner_references.as_deref().unwrap_or_default();
        set.metadata.name.as_ref() != Some(&self.name)
            && owners.iter().any(|owner| {
                owner.controller == Some(true)
                    && owner.kind == Kind::AutoscalingRunnerSet.as_str()
                    && owner.name == self.name
            })
    }

    pub(super) fn observe_former_set(&mut self, set: Arc<EphemeralRunnerSet>) {
        let name = set.metadata.name.clone().unwrap_or_default();
        self.former_sets
            .entry(name)
            .or_default()
            .object
            .observe(set);
    }

    pub(super) fn former_set_gone(&mut self, name: &str, uid: &str) {
        if let Some(former) = self.former_sets.get_mut(name) {
            former.object.observe_gone(uid);
        }
    }

    pub(super) fn finish_former_set(
        &mut self,
        name: &str,
        verb: Verb,
        result: &Result<KubeAnswer, KubeError>,
        ctx: &ScaleSetContext,
    ) {
        let who = ObjectRef::new(Kind::EphemeralRunnerSet, &self.namespace, name);
        if let Some(former) = self.former_sets.get_mut(name) {
            former.object.finish(ctx.now, verb, result, &who);
        }
    }

    pub(super) fn finish_former_runners(
        &mut self,
        name: &str,
        result: &Result<KubeAnswer, KubeError>,
        ctx: &ScaleSetContext,
    ) {
        if let Some(former) = self.former_sets.get_mut(name) {
            let uid = former.object.get().and_then(|set| set.metadata.uid.clone());
            let uid = uid.unwrap_or_default();
            former.runners.finish(ctx.now, &uid, result);
        }
    }

    /// Runners have come or gone, those of former sets among them.
    pub(super) fn hurry_former_sets(&mut self) {
        for former in self.former_sets.values_mut() {
            former.runners.hurry();
        }
    }

    /// Says that the runners of former sets go on as runners of this one.
    pub(super) fn announce_former_sets(
        &mut self,
        ars: &AutoscalingRunnerSet,
        ctx: &mut ScaleSetContext,
    ) {
        let names: Vec<&str> = self.former_sets.keys().map(String::as_str).collect();
        if !names.is_empty() {
            let message = format!(
                "the runners of EphemeralRunnerSet {} go on as runners of {}; it goes when the \
                 last of them has ended",
                names.join(", "),
                self.name
            );
            let severity = EventSeverity::Normal;
            self.announce(ars, severity, "RunnerSetAdopted", message, ctx);
        }
    }

    /// Deletes former sets, and lets those go that have no runners any more. Says whether all
    /// are gone.
    pub(super) fn dissolve_former_sets(&mut self, ctx: &mut ScaleSetContext) -> bool {
        let (namespace, scale_set) = (&self.namespace, &self.name);
        self.former_sets.retain(|name, former| {
            former.dissolve(
                &Of {
                    namespace,
                    scale_set,
                    name,
                },
                ctx,
            )
        });
        self.former_sets.is_empty()
    }
}

/// Which one.
struct Of<'a> {
    namespace: &'a str,
    scale_set: &'a str,
    name: &'a str,
}

impl FormerSet {
    /// Takes the next step towards its end. Says whether it is still there.
    fn dissolve(&mut self, of: &Of<'_>, ctx: &mut ScaleSetContext) -> bool {
        let tag = |verb| ScaleSetTag::FormerSet(of.name.to_owned(), verb);
        match self.object.presence().clone() {
            Presence::Absent => return self.object.is_in_flight(),
            Presence::Unknown => {
                let target = ObjectRef::new(Kind::EphemeralRunnerSet, of.namespace, of.name);
                ctx.read(&mut self.object, tag(Verb::Read), target);
            }
            Presence::Present(live) if live.metadata.deletion_timestamp.is_none() => {
                let uid = live.metadata.uid.clone();
                ctx.delete(&mut self.object, tag(Verb::Delete), live.as_ref(), uid);
            }
            Presence::Present(live) => {
                let held = live.metadata.finalizers.as_deref().unwrap_or_default();
                if held.is_empty() {
                    return false;
                }
                let (ours, rest): (Vec<&String>, _) = held
                    .iter()
                    .partition(|name| LET_GO.contains(&name.as_str()));
                if !ours.is_empty() && self.has_no_runners(of, ctx) {
                    let lock = live.metadata.resource_version.clone();
                    let body = finalizers_patch(&rest);
                    let what = Some((Verb::Patch, body.to_string()));
                    ctx.send(&mut self.object, tag(Verb::Patch), what, || {
                        KubeRequest::Patch {
                            target: live.reference(),
                            body,
                            status: false,
                            lock,
                        }
                    });
                }
            }
        }
        true
    }

    fn has_no_runners(&mut self, of: &Of<'_>, ctx: &mut ScaleSetContext) -> bool {
        let search = &mut self.runners;
        if search.none || search.in_flight {
            return search.none;
        }
        if let Some(time) = search.not_before.filter(|time| *time > ctx.now) {
            ctx.wake_at(time);
            return false;
        }
        search.in_flight = true;
        let request = KubeRequest::List {
            kind: Kind::EphemeralRunner,
            namespace: of.namespace.to_owned(),
            selector: format!("{}={}", labels::SCALE_SET_NAME, of.scale_set),
        };
        let tag = ScaleSetTag::FormerRunners(of.name.to_owned());
        ctx.push(Effect::Kube(tag, request));
        false
    }
}

fn finalizers_patch(rest: &[&String]) -> Value {
    json!({ "metadata": { "finalizers": rest } })
}
