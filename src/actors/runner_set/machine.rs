//! The set's state, and how inputs are taken into it. What follows from the state stands in
//! the files beside, one subject each.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::creation::PendingCreations;
use super::failing::FailureBackoff;
use super::proxy::{ProxySecret, reference as proxy_reference};
use super::reserved_slots::ReservedSlots;
use super::room::QuotaRoom;
use super::runner_index::{CountedRunner, RunnerIndex, SlotFate};
use super::surplus::SurplusAgreement;
use crate::actors::core::cached::{Cached, Presence, Verb};
use crate::actors::core::step_context::StepContext;
use crate::actors::{EffectOf, InputOf, Machine, Topic};
use crate::api::EphemeralRunnerSet;
use crate::api::constants::annotations;
use crate::clock::Timestamp;
use crate::messages::{
    Effect, Input, Kind, KubeAnswer, KubeError, KubeRequest, Object, ObjectRef, Reason, Rejected,
    RunnerCommand, RunnerCounts, RunnerDirective, RunnerReport, RunnerSetReport, RunnerState,
    codes,
};
use crate::resources::ControllerSettings;

/// So many uids of runners that are gone are remembered, against late events about them.
const MAX_RECENTLY_DELETED: usize = 4_096;

/// Names an effect of a runner set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunnerSetTag {
    /// A request about the EphemeralRunnerSet itself.
    RunnerSet(Verb),
    /// One about the EphemeralRunner of that name: its create, or the read that clears up what
    /// became of it.
    Runner(String, Verb),
    /// The read of a Secret that proxy credentials come from.
    Source(ObjectRef),
    /// One about the runners' proxy Secret.
    Proxy(Verb),
}

/// What a runner set is told by what runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerSetCommand {
    /// All runners of the initial list have been delivered. Nothing is decided before.
    Synced,
}

impl Topic for RunnerSetCommand {
    fn topic(&self) -> &'static str {
        "synced"
    }
    fn holds(&self) -> bool {
        true
    }
}

/// The decision part of a runner set.
#[derive(Debug)]
pub struct RunnerSetMachine {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) settings: Arc<ControllerSettings>,
    pub(super) set: Cached<EphemeralRunnerSet>,
    pub(super) runners: RunnerIndex,
    pub(super) creation: PendingCreations,
    pub(super) failing: FailureBackoff,
    pub(super) proxy: ProxySecret,
    pub(super) reserved: ReservedSlots,
    pub(super) quota_room: QuotaRoom,
    pub(super) surplus: SurplusAgreement,
    /// What was last asked for.
    replicas: Option<i64>,
    /// Since the last decision a place has come free that is to be filled, or a new patch has
    /// come.
    pub(super) lost: bool,
    /// No decision was carried out so far: nobody knows whether a place has come free before.
    pub(super) unsure: bool,
    /// Whether the service rejects the runners' version under the applied revision; nothing
    /// before the set was first looked at.
    pub(super) rejected: Option<bool>,
    /// A runner got ready, or ended well, since the failed ones were last cleared away.
    pub(super) succeeded: bool,
    pub(super) status_written: Option<Timestamp>,
    pub(super) recently_deleted: RecentlyDeleted,
    synced: bool,
    /// The newest copy that was known for certain.
    pub(super) last_set: Option<Arc<EphemeralRunnerSet>>,
    /// Uid of the set that the state is about.
    about: Option<String>,
    reported: Option<Reported>,
    stopped: bool,
}

/// What the scale set was last told: uid and version of the set, counts, problem, verdict.
type Reported = (
    Option<(Option<String>, Option<String>)>,
    RunnerCounts,
    Option<Reason>,
    Option<Rejected>,
);

impl RunnerSetMachine {
    /// Of the EphemeralRunnerSet of that name.
    #[must_use]
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        settings: Arc<ControllerSettings>,
    ) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            settings,
            set: Cached::default(),
            runners: RunnerIndex::default(),
            creation: PendingCreations::default(),
            failing: FailureBackoff::default(),
            proxy: ProxySecret::default(),
            reserved: ReservedSlots::default(),
            quota_room: QuotaRoom::default(),
            surplus: SurplusAgreement::default(),
            replicas: None,
            lost: false,
            unsure: true,
            rejected: None,
            succeeded: false,
            status_written: None,
            recently_deleted: RecentlyDeleted::default(),
            synced: false,
            last_set: None,
            about: None,
            reported: None,
            stopped: false,
        }
    }

    // === taking inputs in ===

    fn observe(&mut self, object: Object, ctx: &mut StepContext<Self>) {
        match object {
            Object::EphemeralRunnerSet(set) => {
                self.set.observe(set);
            }
            Object::EphemeralRunner(runner) => self.take_found(runner, ctx),
            Object::Secret(secret) => self.proxy.observe(secret),
            _ => {}
        }
    }

    fn observe_gone(&mut self, object: &ObjectRef, uid: &str) {
        match object.kind {
            Kind::EphemeralRunnerSet => {
                self.set.observe_gone(uid);
            }
            Kind::EphemeralRunner => {
                self.remove_runner(&object.name, uid, None);
                self.recently_deleted.remove(uid);
            }
            Kind::Secret => self.proxy.observe_gone(uid),
            _ => {}
        }
    }

    fn take_report(&mut self, report: RunnerReport, ctx: &mut StepContext<Self>) {
        if report.state == RunnerState::Gone {
            self.remove_runner(&report.name, &report.uid, report.job_finished);
            self.recently_deleted.insert(report.uid);
            return;
        }
        // a set whose actor was started anew hears of its runners from their actors
        let known = self.runners.uid(&report.name);
        let is_new = known.is_none() && !self.recently_deleted.contains(&report.uid);
        if is_new || known == Some(report.uid.as_str()) {
            self.record_report(report, ctx);
        }
    }

    /// Takes a report into the index, and what it means for the set.
    pub(super) fn record_report(&mut self, report: RunnerReport, ctx: &mut StepContext<Self>) {
        let created = report.created;
        let (name, finished) = (report.name.clone(), report.job_finished);
        let change = self.runners.record_report(ctx.now, report);
        self.settle_slot(name, finished, change.place);
        if change.failed {
            let who = format!("{}/{}", self.namespace, self.name);
            self.failing.count(ctx.now, created, &who);
        }
        if change.ready {
            self.failing.reset();
        }
        if change.launched {
            self.quota_room.launched();
        }
        if change.freed {
            self.quota_room.freed();
        }
        self.succeeded |= change.ready || change.finished;
    }

    /// Strikes a runner off that is gone.
    fn remove_runner(&mut self, name: &str, uid: &str, finished: Option<Timestamp>) {
        let place = self.runners.remove(name, uid);
        self.quota_room.freed();
        self.settle_slot(name.to_owned(), finished, place);
    }

    /// Takes in what becomes of a runner's place.
    fn settle_slot(&mut self, name: String, finished: Option<Timestamp>, place: SlotFate) {
        match place {
            _ if self.runners.is_counted(finished) => {
                let opens = self.reserved.release(&name) || place != SlotFate::Kept;
                self.lost |= opens && self.synced;
            }
            SlotFate::Kept => {}
            // before all are known, it may be long since
            SlotFate::Open => self.lost |= self.synced,
            SlotFate::Spent => self.reserved.reserve(CountedRunner {
                name,
                finished,
                late: true,
            }),
        }
    }

    fn take_kube(
        &mut self,
        tag: &RunnerSetTag,
        result: &Result<KubeAnswer, KubeError>,
        ctx: &mut StepContext<Self>,
    ) {
        match tag {
            RunnerSetTag::RunnerSet(verb) => {
                let target = self.reference();
                self.set.finish(ctx.now, *verb, result, &target);
            }
            RunnerSetTag::Runner(name, verb) => self.take_create(name, *verb, result, ctx),
            RunnerSetTag::Source(source) => self.proxy.take_source(ctx.now, source, result),
            RunnerSetTag::Proxy(verb) => {
                let target = proxy_reference(&self.namespace, &self.name);
                self.proxy.take_secret(ctx.now, *verb, &target, result);
            }
        }
    }

    // === what the files beside share ===

    pub(super) fn reference(&self) -> ObjectRef {
        ObjectRef::new(
            Kind::EphemeralRunnerSet,
            self.namespace.as_str(),
            self.name.as_str(),
        )
    }

    /// Tells a runner something and notes it in the runners.
    pub(super) fn command_runner(
        &mut self,
        name: String,
        command: RunnerCommand,
        ctx: &mut StepContext<Self>,
    ) {
        self.runners.record_command(ctx.now, &name, command.clone());
        ctx.push(Effect::Child(RunnerDirective::Tell { name, command }));
    }

    // === deciding ===

    fn evaluate(&mut self, ctx: &mut StepContext<Self>) {
        if !self.synced {
            return;
        }
        self.resolve_creates(ctx);
        self.runners.end_pauses(ctx.now);
        match self.set.presence().clone() {
            Presence::Unknown => {
                if ctx.begin(&mut self.set) {
                    ctx.kube(
                        RunnerSetTag::RunnerSet(Verb::Read),
                        KubeRequest::Get(self.reference()),
                    );
                }
            }
            Presence::Absent => {
                self.last_set = None;
                self.delete_all_runners(ctx);
                if self.runners.is_empty() && self.creation.is_empty() {
                    self.report(ctx);
                    self.stopped = true;
                    return ctx.push(Effect::Stop);
                }
            }
            Presence::Present(set) if is_gone(&set) => {
                // the answer to the patch that took the last finalizer off
                self.set
                    .observe_gone(set.metadata.uid.as_deref().unwrap_or_default());
                return self.evaluate(ctx);
            }
            Presence::Present(set) => {
                self.last_set = Some(set.clone());
                self.follow_spec(&set, ctx.now);
                if set.metadata.deletion_timestamp.is_some() {
                    self.delete(&set, ctx);
                } else {
                    self.reconcile(&set, ctx);
                }
            }
        }
        // a set that was never seen is not gone: nothing is said before it was read
        if !self.set.is_unknown() || self.last_set.is_some() {
            self.report(ctx);
        }
        ctx.wake_at_some(self.set.waits_until(ctx.now));
        ctx.wake_at_some(self.runners.next_repeat_at());
    }

    fn reconcile(&mut self, set: &EphemeralRunnerSet, ctx: &mut StepContext<Self>) {
        if !self.has_finalizer(set) {
            return self.add_finalizer(set, ctx);
        }
        self.repeat_commands(ctx);
        let proxy_in_place = self.keep_proxy(set, ctx);
        self.clear_failed(ctx);
        self.clear_settled(ctx);
        let target = set.spec.actionable_revision.unwrap_or(0);
        if target > applied_revision(set) {
            self.apply_revision(set, target, ctx);
        } else if self.is_outdated() {
            self.reconcile_parked(set, ctx);
        } else {
            self.scale(set, proxy_in_place, ctx);
        }
        self.keep_phase(set, ctx);
        self.keep_status(set, ctx);
    }

    /// Follows the set to its revision, its patch and its phase.
    fn follow_spec(&mut self, set: &EphemeralRunnerSet, now: Timestamp) {
        if self.about != set.metadata.uid {
            self.about.clone_from(&set.metadata.uid);
            self.reserved = ReservedSlots::default();
            self.surplus = SurplusAgreement::default();
            self.replicas = None;
            self.rejected = None;
        }
        // a new patch is decided on even when a runner carries its number already
        let telling = counted_until(set).is_some();
        let patch = set.spec.patch_id;
        if self.reserved.is_another(patch) {
            self.runners.begin_patch();
        }
        let is_first = self.reserved.is_unknown();
        self.lost |= self
            .reserved
            .follow_patch(patch, cleanup_patch(set), telling);
        if is_first && self.reserved.is_count_on_record(cleanup_patch(set)) {
            // a predecessor has written it, and died before it was carried out
            self.runners.mark_finished();
        }
        self.lost |= self.runners.set_counted_until(counted_until(set));
        // the ids of our listener begin again with it, and may meet the one that stands
        let replicas = set.spec.replicas.unwrap_or(0);
        let before = self.replicas.replace(replicas);
        self.surplus.follow_patch(now, set);
        let is_another = before.is_some_and(|before| before != replicas);
        self.lost |= is_another && telling;
        let runners = &self.runners;
        self.lost |= self
            .reserved
            .release_counted(|finished| runners.is_counted(finished));
        self.follow_verdict(set);
    }

    /// Says again what has had no effect for long: a runner's actor may have been restarted.
    pub(super) fn repeat_commands(&mut self, ctx: &mut StepContext<Self>) {
        while let Some((name, command)) = self.runners.next_repeat(ctx.now) {
            self.command_runner(name, command, ctx);
        }
    }

    fn report(&mut self, ctx: &mut StepContext<Self>) {
        let version = self.last_set.as_ref().map(|set| {
            (
                set.metadata.uid.clone(),
                set.metadata.resource_version.clone(),
            )
        });
        let runners = &self.runners;
        let now = (
            version,
            runners.counts(),
            self.problem(),
            runners.rejected(),
        );
        if self.reported.as_ref() != Some(&now) {
            ctx.push(Effect::Report(RunnerSetReport {
                set: self.last_set.clone(),
                counts: now.1,
                problem: now.2.clone(),
                rejected: now.3.clone(),
            }));
            self.reported = Some(now);
        }
    }

    /// What keeps runners from being made or from getting ready.
    pub(super) fn problem(&self) -> Option<Reason> {
        let refused = |error: &KubeError| Reason::new(codes::RUNNER_REFUSED, error.message.clone());
        self.proxy
            .problem()
            .or_else(|| self.creation.error().map(refused))
            .or_else(|| self.runners.trouble())
    }
}

impl Machine for RunnerSetMachine {
    const NAME: &'static str = "runner_set";
    type Tag = RunnerSetTag;
    type Command = RunnerSetCommand;
    type Report = RunnerSetReport;
    type ChildReport = RunnerReport;
    type Directive = RunnerDirective;
    type Notes = ();

    fn step(&mut self, now: Timestamp, input: InputOf<Self>) -> Vec<EffectOf<Self>> {
        if self.stopped {
            return Vec::new();
        }
        let mut ctx = StepContext::new(now);
        match input {
            Input::Observed(object) => self.observe(object, &mut ctx),
            Input::Gone { object, uid } => self.observe_gone(&object, &uid),
            Input::Kube(tag, result) => self.take_kube(&tag, &result, &mut ctx),
            // a set calls nobody but the API server
            Input::Actions(..) | Input::Tick => {}
            Input::Command(RunnerSetCommand::Synced) => self.synced = true,
            Input::Report(report) => self.take_report(report, &mut ctx),
        }
        self.evaluate(&mut ctx);
        ctx.into_effects()
    }
}

fn is_gone(set: &EphemeralRunnerSet) -> bool {
    set.metadata.deletion_timestamp.is_some()
        && set.metadata.finalizers.iter().flatten().next().is_none()
}

/// The newest revision whose cleanup is done; 0 for a set that never applied one.
pub(super) fn applied_revision(set: &EphemeralRunnerSet) -> i64 {
    set.status
        .as_ref()
        .and_then(|status| status.applied_actionable_revision)
        .unwrap_or(0)
}

/// The patch under which finished runners were last counted. Absent and 0 are the same: patch
/// 0 holds nothing back.
pub(super) fn cleanup_patch(set: &EphemeralRunnerSet) -> i64 {
    set.status
        .as_ref()
        .and_then(|status| status.finished_runner_cleanup_patch_id)
        .unwrap_or(0)
}

/// Up to when finished jobs are left out of `replicas`, as far as our own listener says so.
fn counted_until(set: &EphemeralRunnerSet) -> Option<Timestamp> {
    set.metadata
        .annotations
        .as_ref()?
        .get(annotations::JOBS_COUNTED_UNTIL)?
        .parse()
        .ok()
}

/// Uids of runners that are gone, the oldest forgotten first.
#[derive(Debug, Default)]
pub(super) struct RecentlyDeleted {
    uids: BTreeSet<String>,
    order: VecDeque<String>,
}

impl RecentlyDeleted {
    pub fn contains(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }

    fn insert(&mut self, uid: String) {
        if self.uids.insert(uid.clone()) {
            self.order.push_back(uid);
        }
        while self.order.len() > MAX_RECENTLY_DELETED {
            if let Some(oldest) = self.order.pop_front() {
                self.uids.remove(&oldest);
            }
        }
    }

    fn remove(&mut self, uid: &str) {
        self.uids.remove(uid);
        while let Some(oldest) = self.order.front()
            && !self.uids.contains(oldest)
        {
            self.order.pop_front();
        }
    }
}
