//! The listener's state, and the order in which it is looked at.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::jiff::SignedDuration;
use serde_json::json;

use super::context::{ListenerContext, ListenerNotes, ListenerTag, Part};
use super::objects::{correct_role, correct_role_binding, correct_service_account, keep};
use super::read_version::ReadVersion;
use super::restarts::Restarts;
use super::sources::SourceReader;
use crate::actors::core::cached::{Cached, Presence, Verb};
use crate::actors::{EffectOf, InputOf, Machine};
use crate::api::constants::finalizers;
use crate::api::{AutoscalingListener, AutoscalingListenerPhase};
use crate::clock::Timestamp;
use crate::messages::{
    Effect, Input, Kind, KubeAnswer, KubeError, KubeObject, KubeRequest, ListenerCommand,
    ListenerReport, NoDirective, NoReport, Object, ObjectRef, Reason,
};
use crate::resources::{
    ControllerSettings, listener_config_secret_name, listener_proxy_secret_name, listener_role,
    listener_role_binding, listener_service_account, listener_sources,
};

/// How often the sources are read while a listener that failed waits for its next try: what was
/// mended in them ends the wait.
const WAITING_PERIOD: SignedDuration = SignedDuration::from_secs(8);

/// Decides everything about one listener.
#[derive(Debug)]
pub struct ListenerMachine {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) settings: Arc<ControllerSettings>,
    pub(super) al: Cached<AutoscalingListener>,
    /// The newest copy that was ever seen; what it needed is removed when it is gone.
    last_seen: Option<Arc<AutoscalingListener>>,
    pub(super) parts: Parts,
    pub(super) sources: SourceReader,
    /// What a person has to mend in the sources: one word and a sentence.
    pub(super) problem: Option<Reason>,
    pub(super) restarts: Restarts,
    /// The last end of a listener that puts in doubt whether the service knows the scale set.
    pub(super) missed_scale_set: Option<String>,
    /// The AutoscalingRunnerSet is gone.
    orphaned: bool,
    pub(super) reported: Option<ListenerReport>,
    /// Messages of events that are published once.
    announced: BTreeSet<String>,
    stopped: bool,
}

/// The objects that a listener consists of.
#[derive(Debug, Default)]
pub struct Parts {
    pub service_account: Cached<ServiceAccount>,
    pub role: Cached<Role>,
    pub role_binding: Cached<RoleBinding>,
    pub proxy_secret: Cached<Secret>,
    pub config_secret: Cached<Secret>,
    /// What the listener has read of these two.
    pub proxy_read: ReadVersion,
    pub config_read: ReadVersion,
    pub pod: Cached<Pod>,
}

impl Machine for ListenerMachine {
    const NAME: &'static str = "listener";
    type Tag = ListenerTag;
    type Command = ListenerCommand;
    type Report = ListenerReport;
    type ChildReport = NoReport;
    type Directive = NoDirective;
    type Notes = ListenerNotes;

    fn step(&mut self, now: Timestamp, input: InputOf<Self>) -> Vec<EffectOf<Self>> {
        if self.stopped {
            return Vec::new();
        }
        self.take(now, input);
        let mut ctx = ListenerContext::new(now);
        ctx.notes.announced = std::mem::take(&mut self.announced);
        self.evaluate(&mut ctx);
        self.announced = std::mem::take(&mut ctx.notes.announced);
        ctx.into_effects()
    }
}

impl ListenerMachine {
    /// Of the AutoscalingListener of that name. Nothing is known of it yet.
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
            al: Cached::default(),
            last_seen: None,
            parts: Parts::default(),
            sources: SourceReader::default(),
            problem: None,
            restarts: Restarts::default(),
            missed_scale_set: None,
            orphaned: false,
            reported: None,
            announced: BTreeSet::new(),
            stopped: false,
        }
    }

    pub(super) fn sync_period(&self) -> SignedDuration {
        SignedDuration::try_from(self.settings.sync_period).unwrap_or(SignedDuration::MAX)
    }

    // === taking the input in ===

    fn take(&mut self, now: Timestamp, input: InputOf<Self>) {
        match input {
            Input::Observed(object) => self.observe(object),
            Input::Gone { object, uid } => self.observe_gone(&object, &uid),
            Input::Kube(ListenerTag::Part(part, verb), result) => {
                self.finish(now, part, verb, &result);
            }
            Input::Kube(ListenerTag::Source(name), result) => {
                self.sources.finish(now, &name, &result);
            }
            Input::Command(ListenerCommand::RefreshSources) => self.refresh_sources(),
            Input::Command(ListenerCommand::Orphaned) => self.orphaned = true,
            Input::Actions(..) | Input::Report(_) | Input::Tick => {}
        }
        self.follow_listener();
    }

    fn observe(&mut self, object: Object) {
        if !self.is_place_of_part(&object.reference()) {
            return;
        }
        let name = object.meta().name.clone().unwrap_or_default();
        match object {
            Object::AutoscalingListener(al) => {
                let moved = self.al.observe(al);
                if moved {
                    // whoever touches it wants it looked after
                    self.refresh_sources();
                }
            }
            Object::ServiceAccount(object) => {
                self.parts.service_account.observe(object);
            }
            Object::Role(object) => {
                self.parts.role.observe(object);
            }
            Object::RoleBinding(object) => {
                self.parts.role_binding.observe(object);
            }
            Object::Pod(object) => {
                self.parts.pod.observe(object);
            }
            Object::Secret(object) => {
                if let Some(slot) = self.secret_named(&name) {
                    slot.observe(object);
                }
            }
            _ => {}
        }
    }

    fn observe_gone(&mut self, object: &ObjectRef, uid: &str) {
        if !self.is_place_of_part(object) {
            return;
        }
        match object.kind {
            Kind::AutoscalingListener => {
                self.al.observe_gone(uid);
            }
            Kind::ServiceAccount => self.parts.service_account.observe_missing(uid),
            Kind::Role => self.parts.role.observe_missing(uid),
            Kind::RoleBinding => self.parts.role_binding.observe_missing(uid),
            Kind::Pod => self.parts.pod.observe_missing(uid),
            Kind::Secret => {
                if let Some(slot) = self.secret_named(&object.name) {
                    slot.observe_missing(uid);
                }
            }
            _ => {}
        }
    }

    /// Whether an object at that place is one of ours. Role and RoleBinding find their way here
    /// by labels, which whoever may write such objects in any namespace can put on them.
    fn is_place_of_part(&self, object: &ObjectRef) -> bool {
        let scale_sets = self.last_seen.as_ref();
        let scale_sets = scale_sets.map(|al| &al.spec.autoscaling_runner_set_namespace);
        match object.kind {
            Kind::Role | Kind::RoleBinding => {
                object.name == self.name && Some(&object.namespace) == scale_sets
            }
            Kind::Secret => object.namespace == self.namespace,
            _ => object.namespace == self.namespace && object.name == self.name,
        }
    }

    fn secret_named(&mut self, name: &str) -> Option<&mut Cached<Secret>> {
        if name == listener_config_secret_name(&self.name) {
            Some(&mut self.parts.config_secret)
        } else if name == listener_proxy_secret_name(&self.name) {
            Some(&mut self.parts.proxy_secret)
        } else {
            None
        }
    }

    fn finish(
        &mut self,
        now: Timestamp,
        part: Part,
        verb: Verb,
        result: &Result<KubeAnswer, KubeError>,
    ) {
        // only spreads the back-off
        let who = ObjectRef::new(kind_of(part), &self.namespace, &self.name);
        let parts = &mut self.parts;
        match part {
            Part::Listener => self.al.finish(now, verb, result, &who),
            Part::ServiceAccount => parts.service_account.finish(now, verb, result, &who),
            Part::Role => parts.role.finish(now, verb, result, &who),
            Part::RoleBinding => parts.role_binding.finish(now, verb, result, &who),
            Part::ProxySecret => parts.proxy_secret.finish(now, verb, result, &who),
            Part::ConfigSecret => parts.config_secret.finish(now, verb, result, &who),
            Part::Pod => parts.pod.finish(now, verb, result, &who),
        }
    }

    /// A successor under the same name starts afresh: what its predecessor had may be gone.
    fn follow_listener(&mut self) {
        let Some(al) = self.al.get() else { return };
        let uid = |one: &AutoscalingListener| one.metadata.uid.clone();
        let known = self.last_seen.as_deref().map(uid);
        if known != Some(uid(al)) {
            self.restarts = Restarts::recorded(al.status.as_ref());
            self.missed_scale_set = None;
            self.orphaned &= known.is_none();
            if known.is_some() {
                self.parts.forget();
            }
        }
        self.last_seen = Some(al.clone());
    }

    // === looking at the state ===

    fn evaluate(&mut self, ctx: &mut ListenerContext) {
        match self.al.presence().clone() {
            Presence::Unknown => {
                let target = self.al_reference();
                ctx.read_part(&mut self.al, Part::Listener, &target);
            }
            Presence::Absent => {
                self.end(ctx);
                return;
            }
            Presence::Present(al) if al.metadata.deletion_timestamp.is_some() => {
                self.delete(&al, ctx);
            }
            Presence::Present(al) => self.keep(&al, ctx),
        }
        self.report(ctx);
    }

    /// The AutoscalingListener as it was seen last.
    pub(super) fn newest_copy(&self) -> Option<Arc<AutoscalingListener>> {
        self.al.get().or(self.last_seen.as_ref()).cloned()
    }

    fn al_reference(&self) -> ObjectRef {
        ObjectRef::new(Kind::AutoscalingListener, &self.namespace, &self.name)
    }

    /// The AutoscalingListener is gone. Roles have no owner that would take them along, so all
    /// is removed here if somebody forced the finalizer off.
    fn end(&mut self, ctx: &mut ListenerContext) {
        if let Some(al) = self.last_seen.clone()
            && !self.tear_down(&al, ctx)
        {
            self.report(ctx);
            return;
        }
        self.stopped = true;
        ctx.report(ListenerReport {
            name: self.name.clone(),
            listener: None,
            has_pod: false,
            ready: false,
            reason: None,
            problem: None,
            missed_scale_set: None,
        });
        ctx.push(Effect::Stop);
    }

    fn delete(&mut self, al: &Arc<AutoscalingListener>, ctx: &mut ListenerContext) {
        if !self.tear_down(al, ctx) {
            return;
        }
        let known = al.metadata.finalizers.as_deref().unwrap_or_default();
        let ours = |name: &&String| *name == finalizers::AUTOSCALING_LISTENER;
        if known.iter().any(|name| ours(&name)) {
            let rest: Vec<_> = known.iter().filter(|name| !ours(name)).collect();
            self.patch_finalizers(al, json!(rest), ctx);
        } else {
            let uid = al.metadata.uid.as_deref().unwrap_or_default();
            ctx.poll(&mut self.al, Part::Listener, &al.reference(), uid);
        }
    }

    fn keep(&mut self, al: &Arc<AutoscalingListener>, ctx: &mut ListenerContext) {
        if self.orphaned {
            super::objects::delete(&mut self.al, Part::Listener, al.clone(), None, ctx);
            return;
        }
        let known = al.metadata.finalizers.as_deref().unwrap_or_default();
        if !known
            .iter()
            .any(|name| name == finalizers::AUTOSCALING_LISTENER)
        {
            let mut all: Vec<&str> = known.iter().map(String::as_str).collect();
            all.push(finalizers::AUTOSCALING_LISTENER);
            self.patch_finalizers(al, json!(all), ctx);
            ctx.trouble_with(&self.al, &al.reference());
            return;
        }
        if al.spec.phase == Some(AutoscalingListenerPhase::Stopped) {
            self.tear_down(al, ctx);
        } else {
            self.keep_parts(al, ctx);
        }
        self.keep_status(al, ctx);
    }

    fn patch_finalizers(
        &mut self,
        al: &AutoscalingListener,
        finalizers: serde_json::Value,
        ctx: &mut ListenerContext,
    ) {
        let body = json!({ "metadata": { "finalizers": finalizers } });
        let what = Some(body.to_string());
        ctx.send_part(&mut self.al, Part::Listener, Verb::Patch, what, || {
            KubeRequest::Patch {
                target: al.reference(),
                body,
                status: false,
                lock: al.metadata.resource_version.clone(),
            }
        });
    }

    /// One after the other, each needing those before it.
    fn keep_parts(&mut self, al: &AutoscalingListener, ctx: &mut ListenerContext) {
        self.read_unknown(al, ctx);
        let period = if self.restarts.waits(ctx.now) {
            WAITING_PERIOD.min(self.sync_period())
        } else {
            self.sync_period()
        };
        let sources = self.sources.gather(listener_sources(al), period, ctx);
        if let Some(refused) = self.sources.refused() {
            self.problem = Some(refused);
        }
        let access = self.keep_access(al, ctx);
        let config = match sources {
            Some(sources) if access => self.keep_secrets(al, &sources, ctx),
            _ => None,
        };
        self.keep_pod(al, config.as_deref(), ctx);
    }

    /// At the start all are read at the same time.
    fn read_unknown(&mut self, al: &AutoscalingListener, ctx: &mut ListenerContext) {
        let here = |kind, name: &str| ObjectRef::new(kind, &self.namespace, name);
        let there = |kind| {
            let namespace = &al.spec.autoscaling_runner_set_namespace;
            ObjectRef::new(kind, namespace, &self.name)
        };
        let config = here(Kind::Secret, &listener_config_secret_name(&self.name));
        let proxy = here(Kind::Secret, &listener_proxy_secret_name(&self.name));
        let account = here(Kind::ServiceAccount, &self.name);
        let pod = here(Kind::Pod, &self.name);
        let (role, binding) = (there(Kind::Role), there(Kind::RoleBinding));
        let parts = &mut self.parts;
        read_if_unknown(
            &mut parts.service_account,
            Part::ServiceAccount,
            &account,
            ctx,
        );
        read_if_unknown(&mut parts.role, Part::Role, &role, ctx);
        read_if_unknown(&mut parts.role_binding, Part::RoleBinding, &binding, ctx);
        if al.spec.proxy.is_some() {
            read_if_unknown(&mut parts.proxy_secret, Part::ProxySecret, &proxy, ctx);
        }
        read_if_unknown(&mut parts.config_secret, Part::ConfigSecret, &config, ctx);
        read_if_unknown(&mut parts.pod, Part::Pod, &pod, ctx);
    }

    /// Says whether the pod has an identity and its permissions.
    fn keep_access(&mut self, al: &AutoscalingListener, ctx: &mut ListenerContext) -> bool {
        let parts = &mut self.parts;
        keep(
            &mut parts.service_account,
            Part::ServiceAccount,
            al,
            listener_service_account(al),
            correct_service_account,
            ctx,
        )
        .exists()
            && keep(
                &mut parts.role,
                Part::Role,
                al,
                listener_role(al),
                correct_role,
                ctx,
            )
            .exists()
            && keep(
                &mut parts.role_binding,
                Part::RoleBinding,
                al,
                listener_role_binding(al),
                correct_role_binding,
                ctx,
            )
            .exists()
    }

    fn keep_status(&mut self, al: &AutoscalingListener, ctx: &mut ListenerContext) {
        let wanted = self.restarts.status();
        if al.status.clone().unwrap_or_default() == wanted {
            return;
        }
        let body = json!({ "status": {
            "restarts": wanted.restarts,
            "lastRestartReason": wanted.last_restart_reason,
        } });
        let what = Some(body.to_string());
        ctx.send_part(&mut self.al, Part::Listener, Verb::Patch, what, || {
            KubeRequest::patch_status(al.reference(), body)
        });
    }
}

impl Parts {
    fn forget(&mut self) {
        self.service_account.forget();
        self.role.forget();
        self.role_binding.forget();
        self.proxy_secret.forget();
        self.config_secret.forget();
        self.proxy_read = ReadVersion::default();
        self.config_read = ReadVersion::default();
        self.pod.forget();
    }
}

fn read_if_unknown<T: KubeObject>(
    slot: &mut Cached<T>,
    part: Part,
    target: &ObjectRef,
    ctx: &mut ListenerContext,
) {
    if slot.is_unknown() {
        ctx.read_part(slot, part, target);
    }
}

const fn kind_of(part: Part) -> Kind {
    match part {
        Part::Listener => Kind::AutoscalingListener,
        Part::ServiceAccount => Kind::ServiceAccount,
        Part::Role => Kind::Role,
        Part::RoleBinding => Kind::RoleBinding,
        Part::ProxySecret | Part::ConfigSecret => Kind::Secret,
        Part::Pod => Kind::Pod,
    }
}
