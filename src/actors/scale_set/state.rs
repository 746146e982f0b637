//! The scale set's state, and the order in which it is looked at.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::children::{ListenerChild, RunnerSetChild};
use super::conditions::{Finding, Findings};
use super::context::ScaleSetContext;
use super::deletion::Deregistration;
use super::former::FormerSet;
use super::parking::Parking;
use super::protection::Protection;
use super::registration::Registration;
use super::status::StatusWriter;
use super::vocabulary::{
    ChildReport, ScaleSetCommand, ScaleSetReport, ScaleSetSummary, ScaleSetTag, Sharer,
};
use crate::actors::core::cached::{Cached, Presence, Verb};
use crate::actors::{EffectOf, InputOf, Machine};
use crate::api::constants::{finalizers, labels};
use crate::api::{AutoscalingRunnerSet, MissingFields};
use crate::clock::Timestamp;
use crate::messages::{
    Effect, EventNote, EventSeverity, Input, Kind, KubeObject, KubeRequest, ListenerCommand,
    Object, ObjectRef, ScaleSetDirective, codes,
};
use crate::resources::ControllerSettings;

/// Versions of charts that this controller was tested with, by their beginning.
const TESTED_CHARTS: [&str; 2] = ["0.14.", "0.15."];

/// Decides everything about one scale set.
#[derive(Debug)]
pub struct ScaleSetMachine {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) settings: Arc<ControllerSettings>,
    /// All objects of the start were delivered.
    synced: bool,
    pub(super) ars: Cached<AutoscalingRunnerSet>,
    /// By the name of the AutoscalingListener: one under an old name may linger.
    pub(super) listeners: BTreeMap<String, ListenerChild>,
    /// Name of the AutoscalingListener that the deletion has looked for.
    pub(super) sought_listener: Option<String>,
    pub(super) runner_set: RunnerSetChild,
    /// EphemeralRunnerSets of this scale set under other names, by these.
    pub(super) former_sets: BTreeMap<String, FormerSet>,
    pub(super) registration: Registration,
    pub(super) deregistration: Deregistration,
    pub(super) protection: Protection,
    pub(super) parking: Parking,
    pub(super) status: StatusWriter,
    /// Uid and generation of the AutoscalingRunnerSet that the state is about.
    about: Option<(String, Option<i64>)>,
    /// Last message of each event by its reason.
    announced: BTreeMap<&'static str, String>,
    pub(super) summary: Option<ScaleSetSummary>,
    /// Other AutoscalingRunnerSets that say that they have the same scale set in the service.
    pub(super) shared_with: Vec<Sharer>,
    /// Fields that the cluster's schemas lack.
    missing: Arc<MissingFields>,
    pub(super) stopped: bool,
}

impl Machine for ScaleSetMachine {
    const NAME: &'static str = "scale_set";
    type Tag = ScaleSetTag;
    type Command = ScaleSetCommand;
    type Report = ScaleSetReport;
    type ChildReport = ChildReport;
    type Directive = ScaleSetDirective;
    type Notes = Findings;

    fn step(&mut self, now: Timestamp, input: InputOf<Self>) -> Vec<EffectOf<Self>> {
        if self.stopped {
            return Vec::new();
        }
        let mut ctx = ScaleSetContext::new(now);
        self.take(input, &mut ctx);
        self.follow_scale_set();
        if self.synced {
            self.evaluate(&mut ctx);
        }
        ctx.into_effects()
    }
}

impl ScaleSetMachine {
    /// Of the AutoscalingRunnerSet of that name. Nothing is known of it yet.
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
            synced: false,
            ars: Cached::default(),
            listeners: BTreeMap::new(),
            sought_listener: None,
            runner_set: RunnerSetChild::default(),
            former_sets: BTreeMap::new(),
            registration: Registration::default(),
            deregistration: Deregistration::default(),
            protection: Protection::default(),
            parking: Parking::default(),
            status: StatusWriter::default(),
            about: None,
            announced: BTreeMap::new(),
            summary: None,
            shared_with: Vec::new(),
            missing: Arc::default(),
            stopped: false,
        }
    }

    pub(super) fn reference(&self) -> ObjectRef {
        ObjectRef::new(Kind::AutoscalingRunnerSet, &self.namespace, &self.name)
    }

    // === taking the input in ===

    fn take(&mut self, input: InputOf<Self>, ctx: &mut ScaleSetContext) {
        match input {
            Input::Observed(object) => self.observe(object, ctx),
            Input::Gone { object, uid } if object.kind == Kind::AutoscalingRunnerSet => {
                if object == self.reference() {
                    self.ars.observe_gone(&uid);
                }
            }
            Input::Gone { object, uid } => self.pass_on_gone(object, uid, ctx),
            Input::Kube(tag, result) => self.finish(tag, result, ctx),
            Input::Actions(tag, result) => self.answered(&tag, result, ctx),
            Input::Command(ScaleSetCommand::Synced) => self.synced = true,
            Input::Command(ScaleSetCommand::Shared(others)) => self.shared_with = others,
            Input::Command(ScaleSetCommand::FieldsMissing(fields)) => self.missing = fields,
            Input::Report(ChildReport::Listener(report)) => self.hear_listener(report, ctx),
            Input::Report(ChildReport::RunnerSet(report)) => self.hear_runner_set(report, ctx),
            Input::Tick => {}
        }
    }

    fn observe(&mut self, object: Object, ctx: &mut ScaleSetContext) {
        match object {
            Object::AutoscalingRunnerSet(ars) => self.observe_scale_set(ars, ctx),
            Object::AutoscalingListener(listener) if self.owns(&listener) => {
                let name = listener.metadata.name.clone().unwrap_or_default();
                let child = self.listeners.entry(name.clone()).or_default();
                child.object.observe(listener.clone());
                self.hand_to_listener(&name, listener, ctx);
            }
            Object::EphemeralRunnerSet(set) if set.reference() == self.runner_set_reference() => {
                self.runner_set.object.observe(set.clone());
                self.hand_to_runner_set(set.into_object(), ctx);
            }
            Object::EphemeralRunnerSet(set) if self.is_former_set(&set) => {
                self.observe_former_set(set);
            }
            Object::EphemeralRunner(_) => self.hand_to_runner_set(object, ctx),
            _ => {}
        }
    }

    fn observe_scale_set(&mut self, ars: Arc<AutoscalingRunnerSet>, ctx: &mut ScaleSetContext) {
        if ars.reference() != self.reference() {
            return;
        }
        let annotations = |ars: &AutoscalingRunnerSet| ars.metadata.annotations.clone();
        let before = self.ars.get().map(|ars| annotations(ars));
        let touched = before.is_some_and(|before| before != annotations(&ars));
        if self.ars.observe(ars) && touched {
            // a chart that changes a Secret shows it in an annotation
            self.registration.forgive();
            self.tell_listeners(&ListenerCommand::RefreshSources, ctx);
        }
    }

    /// Follows the AutoscalingRunnerSet to another generation, or another one of the name.
    fn follow_scale_set(&mut self) {
        let Some(ars) = self.ars.get() else { return };
        let uid = ars.metadata.uid.clone().unwrap_or_default();
        let generation = ars.metadata.generation;
        match &self.about {
            Some((known, _)) if *known != uid => {
                self.registration = Registration::default();
                self.deregistration = Deregistration::default();
                self.protection = Protection::default();
                self.parking = Parking::default();
                self.sought_listener = None;
                self.announced.clear();
            }
            // a person has changed something: it is tried at once
            Some((_, known)) if *known != generation => self.registration.forgive(),
            _ => {}
        }
        self.about = Some((uid, generation));
    }

    // === looking at the state ===

    fn evaluate(&mut self, ctx: &mut ScaleSetContext) {
        match self.ars.presence().clone() {
            Presence::Unknown => {
                let tag = ScaleSetTag::ScaleSet(Verb::Read);
                let target = self.reference();
                ctx.read(&mut self.ars, tag, target);
            }
            Presence::Absent => self.wind_up(ctx),
            Presence::Present(ars) => {
                if ars.metadata.deletion_timestamp.is_some() {
                    self.delete(&ars, ctx);
                } else {
                    self.keep(&ars, ctx);
                }
                self.keep_status(&ars, ctx);
                self.report_summary(&ars, ctx);
            }
        }
    }

    fn keep(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) {
        if !self.keep_finalizer(ars, ctx)
            || !self.keep_valid(ars, ctx)
            || !self.keep_permitted(ars, ctx)
        {
            return;
        }
        self.judge_version(ars, ctx);
        self.judge_schemas(ars, ctx);
        let no_listener = self.has_no_listener(ars);
        let Some(registered) = self.register(ars, no_listener, ctx) else {
            return;
        };
        let runner_set = self.keep_runner_set(ars, registered.id, ctx);
        self.announce_former_sets(ars, ctx);
        self.dissolve_former_sets(ctx);
        let parked = self.follow_verdict(ars, runner_set, ctx);
        let listener = self.keep_listener(ars, registered, parked, ctx);
        ctx.notes.settled = registered.settled && listener && runner_set.settled;
        if ctx.notes.settled {
            // the next change is news, even if it is the same again
            self.settle("ListenerReplaced");
        }
    }

    /// Nothing is made before the finalizer is there that sees to its end.
    fn keep_finalizer(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) -> bool {
        let known = ars.metadata.finalizers.as_deref().unwrap_or_default();
        let ours = finalizers::AUTOSCALING_RUNNER_SET;
        if known.iter().any(|name| name == ours) {
            return true;
        }
        let mut all: Vec<&str> = known.iter().map(String::as_str).collect();
        all.push(ours);
        let body = json!({ "metadata": { "finalizers": all } });
        self.patch_scale_set_at(ars, body, ctx);
        if let Some(error) = self.ars.last_error() {
            let message = format!("the finalizer cannot be added: {error}");
            ctx.notes.ready = Finding::fails(codes::NOT_WRITABLE, message);
        }
        false
    }

    /// Nothing is made of a spec that makes no sense, and nothing is torn down for it.
    fn keep_valid(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) -> bool {
        const TOPIC: &str = codes::INVALID_SPEC;
        let Err(problem) = check(ars) else {
            self.settle(TOPIC);
            return true;
        };
        ctx.notes.ready = Finding::fails(TOPIC, &problem);
        self.announce(ars, EventSeverity::Warning, TOPIC, problem, ctx);
        false
    }

    /// Nothing is made of a spec that asks for what the operator does not allow. A listener that
    /// was made of one that was allowed goes on; one that has what is not allowed any more goes.
    fn keep_permitted(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) -> bool {
        const TOPIC: &str = codes::NOT_ALLOWED;
        let settings = self.settings.clone();
        let Err(problems) = settings.policy.check(ars) else {
            self.settle(TOPIC);
            return true;
        };
        let problem = problems.to_string();
        let goes_on = self.listeners.iter().find(|(_, child)| {
            let live = child.object.get();
            live.is_some_and(|live| settings.policy.allows_listener(&live.spec))
        });
        let goes_on = goes_on.map(|(name, _)| name.clone());
        self.remove_listeners(goes_on.as_deref(), ctx);
        if goes_on.is_none() {
            ctx.notes.listener = Finding::fails(TOPIC, &problem);
        }
        ctx.notes.ready = Finding::fails(TOPIC, &problem);
        self.announce(ars, EventSeverity::Warning, TOPIC, problem, ctx);
        false
    }

    /// An untested chart is said to be one, and served all the same.
    fn judge_version(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) {
        const TOPIC: &str = codes::UNTESTED_VERSION;
        let all = ars.metadata.labels.as_ref();
        let version = all.and_then(|all| all.get(labels::VERSION));
        let tested = |version: &&String| {
            **version != self.settings.version
                && !TESTED_CHARTS.iter().any(|known| version.starts_with(known))
        };
        let Some(version) = version.filter(tested) else {
            self.settle(TOPIC);
            ctx.notes.version = Finding::Absent;
            return;
        };
        let message = format!(
            "the chart's version {version} was not tested with controller {}: upgrade one of them",
            self.settings.version
        );
        ctx.notes.version = Finding::fails(TOPIC, &message);
        self.announce(ars, EventSeverity::Warning, TOPIC, message, ctx);
    }

    /// A cluster whose schemas lack fields is told what to do, and served all the same.
    fn judge_schemas(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) {
        const TOPIC: &str = codes::FIELDS_MISSING;
        if self.missing.is_empty() {
            self.settle(TOPIC);
            ctx.notes.fields = Finding::Absent;
            return;
        }
        let message = self.missing.to_string();
        ctx.notes.fields = Finding::fails(TOPIC, &message);
        self.announce(ars, EventSeverity::Warning, TOPIC, message, ctx);
    }

    // === writing the AutoscalingRunnerSet ===

    /// Sends a patch of the object itself, unless one of it or its status is in flight.
    pub(super) fn send_scale_set(
        &mut self,
        ctx: &mut ScaleSetContext,
        what: impl std::hash::Hash,
        request: impl FnOnce() -> KubeRequest,
    ) {
        if !self.status.in_flight {
            let tag = ScaleSetTag::ScaleSet(Verb::Patch);
            ctx.send(&mut self.ars, tag, Some((Verb::Patch, what)), request);
        }
    }

    /// As that, with an optimistic lock.
    pub(super) fn patch_scale_set_at(
        &mut self,
        ars: &AutoscalingRunnerSet,
        body: Value,
        ctx: &mut ScaleSetContext,
    ) {
        self.send_scale_set(ctx, body.to_string(), || KubeRequest::Patch {
            target: ars.reference(),
            body,
            status: false,
            lock: ars.metadata.resource_version.clone(),
        });
    }

    // === events ===

    /// Publishes an event, once for each message.
    pub(super) fn announce(
        &mut self,
        ars: &AutoscalingRunnerSet,
        severity: EventSeverity,
        reason: &'static str,
        message: String,
        ctx: &mut ScaleSetContext,
    ) -> bool {
        if self.announced.get(reason) == Some(&message) {
            return false;
        }
        self.announced.insert(reason, message.clone());
        ctx.push(Effect::Event(EventNote {
            about: ars.reference(),
            uid: ars.metadata.uid.clone().unwrap_or_default(),
            severity,
            reason,
            message,
        }));
        true
    }

    /// What the event of that reason was about is over: the next one is news.
    pub(super) fn settle(&mut self, reason: &'static str) {
        self.announced.remove(reason);
    }
}

/// Whether the spec makes sense.
fn check(ars: &AutoscalingRunnerSet) -> Result<(), String> {
    ars.validate().map_err(|problems| problems.to_string())
}
