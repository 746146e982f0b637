//! The runner's state, and how inputs are taken into it. What follows from the state stands
//! in the files beside, one subject each.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Secret};

use super::ending::Ending;
use super::linked::{Linked, Of};
use super::pod_state::{lost_at, node_lost};
use super::registration::{Registration, Standing};
use super::view;
use crate::actors::core::cached::{Cached, Presence, Verb};
use crate::actors::core::step_context::StepContext;
use crate::actors::{EffectOf, InputOf, Machine};
use crate::api::EphemeralRunner;
use crate::clock::{Timestamp, after};
use crate::messages::{
    Effect, EventSeverity, Input, Kind, KubeAnswer, KubeError, KubeErrorKind, KubeObject,
    KubeRequest, Launch, NoDirective, NoReport, Object, ObjectRef, Reason, Refusal, RunnerCommand,
    RunnerReport, RunnerState, codes,
};
use crate::resources::ControllerSettings;

/// After how many seconds a refusal by quota is tried again.
const QUOTA_RETRY: i64 = 30;

/// How the actor came to its EphemeralRunner.
#[derive(Clone, Debug)]
pub enum Origin {
    /// We created it just now: it has neither a Secret nor a pod, and is not registered.
    Created(Arc<EphemeralRunner>),
    /// It was found. Without an object at hand it is read first.
    Found(Option<Arc<EphemeralRunner>>),
    /// It was found in the first list of its kind, and the first list of pods showed this one
    /// under its name, or none.
    Listed {
        /// As it was listed.
        runner: Arc<EphemeralRunner>,
        /// Its pod.
        pod: Option<Arc<Pod>>,
    },
}

/// Names an effect of a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunnerTag {
    /// A request about the EphemeralRunner itself.
    Runner(Verb),
    /// One about its Secret.
    Secret(Verb),
    /// One about its pod.
    Pod(Verb),
    /// Lists objects that container hooks made.
    ListLinked(Kind),
    /// Deletes one of them.
    DeleteLinked(ObjectRef),
    /// Registers the runner.
    Generate,
    /// Looks the runner up by name.
    Find,
    /// Removes the registration.
    Remove,
}

/// What the set has asked for and is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Nothing,
    Release,
    Delete,
}

/// An object under the runner's name, seen from the runner.
pub(super) enum Own<T> {
    Unknown,
    Absent,
    /// It belongs to something else.
    Foreign,
    Ours(Arc<T>),
}

/// The decision part of a runner.
#[derive(Debug)]
pub struct RunnerMachine {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) set_name: String,
    pub(super) settings: Arc<ControllerSettings>,
    pub(super) runner: Cached<EphemeralRunner>,
    pub(super) secret: Cached<Secret>,
    pub(super) pod: Cached<Pod>,
    /// The pod was shown as gone without having been deleted: it may only have lost the
    /// label that the watch selects by, so it is read.
    pub(super) doubts_pod: bool,
    /// When the pod was last read, and not only shown by a watch.
    pub(super) pod_read: Option<Timestamp>,
    /// Uid of the last pod seen.
    pub(super) last_pod: Option<String>,
    pub(super) registration: Registration,
    pub(super) asked: Asked,
    pub(super) linked: Linked,
    /// Why the API server refused the pod or the Secret for good.
    pub(super) refusal: Option<Reason>,
    /// Since when a quota keeps the pod or the Secret from being made.
    pub(super) quota_since: Option<Timestamp>,
    pub(super) quota_retry: Option<Timestamp>,
    /// When the job was first seen to be recorded as ended.
    pub(super) job_ended_since: Option<Timestamp>,
    /// That the runner is to end although it may work.
    pub(super) ending: Option<Ending>,
    /// Since when the pod is known to be gone while the runner is being deleted.
    pub(super) pod_gone_since: Option<Timestamp>,
    /// Since when the same trouble keeps the runner from getting its pod.
    pub(super) trouble_since: Option<(Cow<'static, str>, Timestamp)>,
    refused: Option<Refusal>,
    reported: Option<RunnerReport>,
    stopped: bool,
}

impl RunnerMachine {
    /// Of the EphemeralRunner of that name.
    #[must_use]
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        set_name: impl Into<String>,
        origin: Origin,
        settings: Arc<ControllerSettings>,
    ) -> Self {
        let (runner, secret, pod, standing) = match origin {
            Origin::Created(er) => (
                Cached::present(er),
                Cached::absent(),
                Cached::absent(),
                Standing::None,
            ),
            Origin::Found(er) => (
                er.map_or_else(Cached::default, Cached::present),
                Cached::default(),
                Cached::default(),
                Standing::Unknown,
            ),
            Origin::Listed { runner, pod } => {
                // the lists are of different moments: a pod may have been made in between, which
                // matters where its absence ends something; where it is made, the answer tells
                let ends =
                    view::has_job(&runner) || view::is_done(&runner) || view::is_deleting(&runner);
                let pod = match pod {
                    Some(pod) => Cached::present(pod),
                    None if ends => Cached::default(),
                    None => Cached::absent(),
                };
                let runner = Cached::present(runner);
                (runner, Cached::default(), pod, Standing::Unknown)
            }
        };
        Self {
            namespace: namespace.into(),
            name: name.into(),
            set_name: set_name.into(),
            settings,
            runner,
            secret,
            pod,
            doubts_pod: false,
            pod_read: None,
            last_pod: None,
            registration: Registration::new(standing),
            asked: Asked::Nothing,
            linked: Linked::default(),
            refusal: None,
            quota_since: None,
            quota_retry: None,
            job_ended_since: None,
            ending: None,
            pod_gone_since: None,
            trouble_since: None,
            refused: None,
            reported: None,
            stopped: false,
        }
    }

    /// The runner set that it belongs to.
    #[must_use]
    pub fn set_name(&self) -> &str {
        &self.set_name
    }

    // === taking inputs in ===

    /// An object of another name is none of ours, whoever owns it: what container hooks make for a
    /// job is owned by the runner's pod, and others may make themselves owned by the runner.
    fn observe(&mut self, object: &Object) {
        if object.meta().name.as_deref() != Some(&self.name) {
            return;
        }
        match object {
            Object::EphemeralRunner(er) => {
                self.runner.observe(er.clone());
            }
            Object::Pod(pod) => {
                self.pod.observe(pod.clone());
            }
            Object::Secret(secret) => {
                self.secret.observe(secret.clone());
            }
            _ => {}
        }
    }

    fn observe_gone(&mut self, object: &ObjectRef, uid: &str) {
        if object.name != self.name {
            return;
        }
        match object.kind {
            Kind::EphemeralRunner => {
                self.runner.observe_gone(uid);
            }
            Kind::Secret => {
                self.secret.observe_gone(uid);
            }
            Kind::Pod => {
                let unexpected = self.pod.get().is_some_and(|pod| {
                    pod.metadata.uid.as_deref() == Some(uid)
                        && pod.metadata.deletion_timestamp.is_none()
                });
                if unexpected {
                    self.doubts_pod = true;
                } else {
                    self.pod.observe_gone(uid);
                }
            }
            _ => {}
        }
    }

    fn command(&mut self, command: &RunnerCommand) {
        match command {
            RunnerCommand::Delete => self.asked = Asked::Delete,
            RunnerCommand::Release if self.asked == Asked::Nothing => {
                self.asked = Asked::Release;
            }
            RunnerCommand::Release => {}
            RunnerCommand::TryAgain => {
                self.quota_retry = None;
                self.secret.retry_now();
                self.pod.retry_now();
            }
        }
    }

    fn take_kube(
        &mut self,
        tag: &RunnerTag,
        result: &Result<KubeAnswer, KubeError>,
        ctx: &mut StepContext<Self>,
    ) {
        let now = ctx.now;
        match tag {
            RunnerTag::Runner(verb) => {
                let who = self.reference(Kind::EphemeralRunner);
                self.runner.finish(now, *verb, result, &who);
            }
            RunnerTag::Secret(verb) => {
                if *verb == Verb::Create {
                    self.take_create("Secret", result, ctx);
                }
                let who = self.reference(Kind::Secret);
                self.secret.finish(now, *verb, result, &who);
            }
            RunnerTag::Pod(verb) => {
                if *verb == Verb::Create {
                    self.take_create("Pod", result, ctx);
                }
                let who = self.reference(Kind::Pod);
                self.pod.finish(now, *verb, result, &who);
                if result.is_ok() || self.pod.is_absent() {
                    self.doubts_pod = false;
                }
                if *verb == Verb::Read && result.is_ok() {
                    self.pod_read = Some(now);
                }
            }
            RunnerTag::ListLinked(kind) => {
                let refused = self.linked.listed(
                    now,
                    *kind,
                    result,
                    &Of {
                        namespace: &self.namespace,
                        name: &self.name,
                    },
                );
                self.linked_refused(refused, ctx);
            }
            RunnerTag::DeleteLinked(object) => {
                let refused = self.linked.deleted(now, object, result);
                self.linked_refused(refused, ctx);
            }
            RunnerTag::Generate | RunnerTag::Find | RunnerTag::Remove => {}
        }
    }

    /// Refusals of a create that trying again at once does not mend.
    fn take_create(
        &mut self,
        what: &'static str,
        result: &Result<KubeAnswer, KubeError>,
        ctx: &mut StepContext<Self>,
    ) {
        let Err(error) = result else {
            self.quota_since = None;
            self.quota_retry = None;
            return;
        };
        match error.kind {
            KubeErrorKind::Invalid => {
                let code = match what {
                    "Pod" => codes::POD_INVALID,
                    _ => codes::SECRET_INVALID,
                };
                self.refusal = Some(Reason::new(code, error.message.clone()));
            }
            KubeErrorKind::Forbidden if what == "Pod" => {
                self.refusal = Some(Reason::new(codes::POD_FORBIDDEN, error.message.clone()));
            }
            KubeErrorKind::QuotaExceeded => {
                self.quota_retry = Some(after(ctx.now, QUOTA_RETRY));
                // the set says so once for all
                self.quota_since.get_or_insert(ctx.now);
            }
            _ => {}
        }
    }

    fn linked_refused(&self, refused: Option<String>, ctx: &mut StepContext<Self>) {
        if let Some(message) = refused {
            let message = format!("objects that container hooks made may be left: {message}");
            self.event(ctx, EventSeverity::Warning, "LinkedObjectsLeft", message);
        }
    }

    // === what the files beside share ===

    pub(super) fn refuse(&mut self, why: Refusal) {
        self.asked = Asked::Nothing;
        self.refused = Some(why);
        // that was about this request; the next one asks anew
        self.registration.forget_refusals();
    }

    pub(super) fn reference(&self, kind: Kind) -> ObjectRef {
        ObjectRef::new(kind, self.namespace.as_str(), self.name.as_str())
    }

    pub(super) fn event(
        &self,
        ctx: &mut StepContext<Self>,
        severity: EventSeverity,
        reason: &'static str,
        message: String,
    ) {
        if let Some(er) = self.runner.get() {
            ctx.event(er.as_ref(), severity, reason, message);
        }
    }

    pub(super) fn own_pod(&self, er: &EphemeralRunner) -> Own<Pod> {
        if self.doubts_pod {
            return Own::Unknown;
        }
        own(&self.pod, er)
    }

    pub(super) fn own_secret(&self, er: &EphemeralRunner) -> Own<Secret> {
        own(&self.secret, er)
    }

    pub(super) fn read_pod(&mut self, ctx: &mut StepContext<Self>) {
        if ctx.begin(&mut self.pod) {
            ctx.kube(
                RunnerTag::Pod(Verb::Read),
                KubeRequest::Get(self.reference(Kind::Pod)),
            );
        }
    }

    pub(super) fn read_secret(&mut self, ctx: &mut StepContext<Self>) {
        if ctx.begin(&mut self.secret) {
            ctx.kube(
                RunnerTag::Secret(Verb::Read),
                KubeRequest::Get(self.reference(Kind::Secret)),
            );
        }
    }

    // === deciding ===

    fn evaluate(&mut self, ctx: &mut StepContext<Self>) {
        match self.runner.presence() {
            Presence::Unknown => {
                if ctx.begin(&mut self.runner) {
                    let target = self.reference(Kind::EphemeralRunner);
                    ctx.kube(RunnerTag::Runner(Verb::Read), KubeRequest::Get(target));
                }
            }
            Presence::Absent => return self.end(ctx),
            Presence::Present(er) => {
                let er = er.clone();
                let no_finalizers = er.metadata.finalizers.iter().flatten().next().is_none();
                if view::is_deleting(&er) && no_finalizers {
                    // the answer to the patch that took the last one off
                    return self.end(ctx);
                }
                self.registration.learn(view::runner_id(&er));
                if view::is_deleting(&er) {
                    self.dissolve(&er, ctx);
                } else if self.asked == Asked::Delete {
                    self.delete_runner(&er, ctx);
                } else if view::is_done(&er) {
                    self.retire(&er, ctx);
                } else {
                    self.run(&er, ctx);
                }
            }
        }
        self.report(ctx);
        ctx.wake_at_some(self.runner.waits_until(ctx.now));
        ctx.wake_at_some(self.secret.waits_until(ctx.now));
        ctx.wake_at_some(self.pod.waits_until(ctx.now));
        ctx.wake_at_some(self.registration.waits_until(ctx.now));
    }

    /// Deletes the EphemeralRunner; the rest follows from its deletionTimestamp.
    pub(super) fn delete_runner(&mut self, er: &Arc<EphemeralRunner>, ctx: &mut StepContext<Self>) {
        if ctx.begin(&mut self.runner) {
            let request = KubeRequest::delete(&er.clone().into_object());
            ctx.kube(RunnerTag::Runner(Verb::Delete), request);
        }
    }

    fn report(&mut self, ctx: &mut StepContext<Self>) {
        let Some(er) = self.runner.get() else {
            return;
        };
        let mut report = view::view(er);
        report.holds_resources = !matches!(
            (self.own_pod(er), self.own_secret(er)),
            (Own::Absent | Own::Foreign, Own::Absent | Own::Foreign)
        );
        report.launch = match self.own_pod(er) {
            Own::Ours(_) => Launch::Done,
            _ if self.quota_since.is_some() => Launch::Crowded,
            _ => report.launch,
        };
        // of one that has its pod, what went wrong with a call counts while it is asked to go
        let calls = self.asked == Asked::Release || !matches!(self.own_pod(er), Own::Ours(_));
        if report.reason.is_none() {
            report.reason = match report.state {
                RunnerState::Pending if calls => self.trouble(),
                RunnerState::Pending if !report.deleting => None,
                _ => self.trouble().filter(view::is_denial),
            };
        }
        if let Own::Ours(pod) = self.own_pod(er)
            && let Some(time) = lost_at(&pod)
        {
            ctx.wake_at(time);
            report.lost = time <= ctx.now;
            if report.lost {
                report.reason = Some(node_lost(&pod));
                // what hangs there can do nothing any more
                report.holds_resources &= !self.is_unregistered();
            }
        }
        let refused = self.refused.take();
        if refused.is_some() || self.reported.as_ref() != Some(&report) {
            self.reported = Some(report.clone());
            report.refused = refused;
            ctx.push(Effect::Report(report));
        }
    }

    fn end(&mut self, ctx: &mut StepContext<Self>) {
        self.stopped = true;
        let last = match (self.reported.take(), self.runner.get()) {
            (Some(report), _) => report,
            (None, Some(er)) => view::view(er),
            (None, None) => RunnerReport {
                name: self.name.clone(),
                ..view::view(&EphemeralRunner::default())
            },
        };
        // the last copy may tell more than the last report
        let finished = self.runner.get().and_then(|er| view::job_finished(er));
        ctx.push(Effect::Report(RunnerReport {
            state: RunnerState::Gone,
            job_finished: finished.or(last.job_finished),
            holds_resources: false,
            ready: false,
            ..last
        }));
        ctx.push(Effect::Stop);
    }
}

impl Machine for RunnerMachine {
    const NAME: &'static str = "runner";
    type Tag = RunnerTag;
    type Command = RunnerCommand;
    type Report = RunnerReport;
    type ChildReport = NoReport;
    type Directive = NoDirective;
    type Notes = ();

    fn step(&mut self, now: Timestamp, input: InputOf<Self>) -> Vec<EffectOf<Self>> {
        if self.stopped {
            return Vec::new();
        }
        let mut ctx = StepContext::new(now);
        match input {
            Input::Observed(object) => self.observe(&object),
            Input::Gone { object, uid } => self.observe_gone(&object, &uid),
            Input::Kube(tag, result) => self.take_kube(&tag, &result, &mut ctx),
            Input::Actions(tag, result) => self.take_actions(&tag, result, &mut ctx),
            Input::Command(command) => self.command(&command),
            Input::Report(never) => match never {},
            Input::Tick => {}
        }
        self.evaluate(&mut ctx);
        ctx.into_effects()
    }
}

fn own<T: KubeObject>(tracked: &Cached<T>, er: &EphemeralRunner) -> Own<T> {
    match tracked.presence() {
        Presence::Unknown => Own::Unknown,
        Presence::Absent => Own::Absent,
        Presence::Present(object) => {
            let mut owners = object.meta().owner_references.iter().flatten();
            let foreign = owners.clone().next().is_some()
                && !owners.any(|owner| Some(&owner.uid) == er.metadata.uid.as_ref());
            if foreign {
                Own::Foreign
            } else {
                Own::Ours(object.clone())
            }
        }
    }
}
