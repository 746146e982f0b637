//! The Secret with the proxy variables of the set's runners: made, kept equal to what it is
//! made from, and removed at the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value, json};

use super::machine::{RunnerSetMachine, RunnerSetTag, applied_revision};
use crate::actors::core::backoff;
use crate::actors::core::cached::{Cached, FREELY, Presence, Verb};
use crate::actors::core::step_context::StepContext;
use crate::api::{EphemeralRunnerSet, ProxyConfig};
use crate::clock::Timestamp;
use crate::messages::{
    Kind, KubeAnswer, KubeError, KubeErrorKind, KubeObject, KubeRequest, ObjectRef, Reason, codes,
};
use crate::resources::{self, Sources};

/// The revision that a set is made with.
const FIRST_REVISION: i64 = 1;

/// The runners' proxy Secret and the Secrets it is made from.
#[derive(Debug, Default)]
pub(super) struct ProxySecret {
    live: Cached<Secret>,
    sources: Sources,
    /// Reads under way.
    reading: BTreeSet<ObjectRef>,
    /// Reads still to be sent.
    to_read: BTreeSet<ObjectRef>,
    /// What the sources were last read for, and when that began.
    read_for: Option<(ProxyConfig, Timestamp)>,
    /// The revision that the sources were read for once more.
    refreshed: Option<i64>,
    failures: u32,
    not_before: Option<Timestamp>,
    problem: Option<Reason>,
}

impl ProxySecret {
    pub fn observe(&mut self, secret: Arc<Secret>) {
        let known = self.live.get().and_then(|live| live.metadata.name.clone());
        if known.is_some() && known == secret.metadata.name {
            self.live.observe(secret);
        }
    }

    pub fn observe_gone(&mut self, uid: &str) {
        self.live.observe_gone(uid);
    }

    /// What a person has to mend.
    pub fn problem(&self) -> Option<Reason> {
        self.problem.clone()
    }

    /// Takes in a source, or that it is missing.
    pub fn take_source(
        &mut self,
        now: Timestamp,
        source: &ObjectRef,
        result: &Result<KubeAnswer, KubeError>,
    ) {
        self.reading.remove(source);
        match result {
            Ok(KubeAnswer::Object(object)) => {
                self.failures = 0;
                self.sources.insert(object);
            }
            Ok(_) => self.sources.remove(source),
            Err(error) if error.kind == KubeErrorKind::NotFound => self.sources.remove(source),
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                let until = backoff::REQUESTS.until(now, self.failures, &source.to_string());
                self.not_before = Some(until);
                self.to_read.insert(source.clone());
                if error.kind == KubeErrorKind::Forbidden {
                    self.problem = Some(Reason::new(codes::PROXY_FORBIDDEN, error.message.clone()));
                }
            }
        }
    }

    /// Takes in the end of a request about the Secret itself.
    pub fn take_secret(
        &mut self,
        now: Timestamp,
        verb: Verb,
        target: &ObjectRef,
        result: &Result<KubeAnswer, KubeError>,
    ) {
        self.live.finish(now, verb, result, target);
    }

    /// Whether the sources have been read for that revision; asks for it if not.
    pub fn refresh_for(&mut self, revision: i64) -> bool {
        if self.refreshed == Some(revision) {
            return self.read_for.is_none() || self.is_read();
        }
        self.refreshed = Some(revision);
        // a set without a proxy has nothing to read
        match &mut self.read_for {
            None => true,
            Some((_, since)) => {
                *since = Timestamp::UNIX_EPOCH;
                false
            }
        }
    }

    fn is_read(&self) -> bool {
        self.reading.is_empty()
            && self.to_read.is_empty()
            && self
                .read_for
                .as_ref()
                .is_some_and(|(_, since)| *since > Timestamp::UNIX_EPOCH)
            && self.live.get().is_some()
    }
}

impl RunnerSetMachine {
    /// Keeps the Secret as it should be. Says whether runners can be made.
    pub(super) fn keep_proxy(
        &mut self,
        set: &EphemeralRunnerSet,
        ctx: &mut StepContext<Self>,
    ) -> bool {
        let Some(proxy) = proxy_of(set) else {
            self.proxy.problem = None;
            self.proxy.read_for = None;
            self.clear_unused_proxy(set, ctx);
            return true;
        };
        self.plan_reads(set, proxy, ctx);
        self.send_reads(ctx);
        if self.proxy.reading.is_empty() && self.proxy.to_read.is_empty() {
            match resources::runner_proxy_secret(set, &self.proxy.sources) {
                Ok(Some(wanted)) => {
                    self.proxy.problem = None;
                    self.write_proxy(wanted, ctx);
                }
                Ok(None) => {
                    self.proxy.problem = None;
                    self.clear_unused_proxy(set, ctx);
                    return true;
                }
                Err(error) => {
                    self.proxy.problem = Some(Reason::new(codes::PROXY_INVALID, error.to_string()));
                }
            }
        }
        ctx.wake_at_some(self.proxy.live.waits_until(ctx.now));
        self.proxy.live.get().is_some()
    }

    /// Sources cannot be watched, so they are read again every now and then.
    fn plan_reads(
        &mut self,
        set: &EphemeralRunnerSet,
        proxy: &ProxyConfig,
        ctx: &mut StepContext<Self>,
    ) {
        let period = self.settings.sync_period;
        if let Some((read_for, since)) = &self.proxy.read_for
            && read_for == proxy
        {
            let due = since.saturating_add(period).unwrap_or(*since);
            if due > ctx.now {
                return ctx.wake_at(due);
            }
        }
        self.proxy.read_for = Some((proxy.clone(), ctx.now));
        self.proxy.to_read = resources::runner_proxy_sources(set).into_iter().collect();
        if !self.proxy.live.is_in_flight() {
            self.proxy.live = Cached::default();
        }
        let due = ctx.now.saturating_add(period).unwrap_or(ctx.now);
        ctx.wake_at(due);
    }

    fn send_reads(&mut self, ctx: &mut StepContext<Self>) {
        if let Some(time) = self.proxy.not_before.filter(|time| *time > ctx.now) {
            ctx.wake_at(time);
        } else {
            for source in std::mem::take(&mut self.proxy.to_read) {
                if self.proxy.reading.insert(source.clone()) {
                    let request = KubeRequest::Get(source.clone());
                    ctx.kube(RunnerSetTag::Source(source), request);
                }
            }
        }
        if self.proxy.live.is_unknown() && ctx.begin(&mut self.proxy.live) {
            let target = reference(&self.namespace, &self.name);
            ctx.kube(RunnerSetTag::Proxy(Verb::Read), KubeRequest::Get(target));
        }
    }

    fn write_proxy(&mut self, wanted: Secret, ctx: &mut StepContext<Self>) {
        let (verb, request) = match self.proxy.live.presence() {
            Presence::Unknown => return,
            Presence::Absent => (Verb::Create, KubeRequest::Create(wanted.into())),
            Presence::Present(live) if live.data == wanted.data => return,
            Presence::Present(live) => {
                let patch = KubeRequest::patch(live.reference(), data_patch(live, &wanted));
                (Verb::Patch, patch)
            }
        };
        if ctx.begin(&mut self.proxy.live) {
            ctx.kube(RunnerSetTag::Proxy(verb), request);
        }
    }

    /// A set whose proxy was taken away keeps no Secret with its credentials, once no runner is
    /// left that was made with it.
    fn clear_unused_proxy(&mut self, set: &EphemeralRunnerSet, ctx: &mut StepContext<Self>) {
        let revision = set.spec.actionable_revision.unwrap_or(0);
        let may_be_in_use = !self.creation.is_empty()
            || applied_revision(set) < revision
            || self
                .runners
                .oldest_revision()
                .is_some_and(|oldest| oldest < revision);
        // to take a proxy away is a new revision: under the first there was none
        let never_made = revision <= FIRST_REVISION && self.proxy.live.is_unknown();
        if !may_be_in_use && !never_made {
            self.clear_proxy(ctx);
        }
    }

    /// Removes the Secret at the set's end. Says whether it is gone. One that may not be removed
    /// here goes with its owner.
    pub(super) fn remove_proxy(
        &mut self,
        set: &EphemeralRunnerSet,
        ctx: &mut StepContext<Self>,
    ) -> bool {
        let never_made = proxy_of(set).is_none() && self.proxy.live.is_unknown();
        if never_made && !self.proxy.live.is_in_flight() {
            return true;
        }
        let error = self.proxy.live.last_error();
        let denied = error.is_some_and(|error| error.kind == KubeErrorKind::Forbidden);
        (denied && !self.proxy.live.is_in_flight()) || self.clear_proxy(ctx)
    }

    /// Removes the Secret, wherever it comes from. Says whether it is gone.
    fn clear_proxy(&mut self, ctx: &mut StepContext<Self>) -> bool {
        ctx.wake_at_some(self.proxy.live.waits_until(ctx.now));
        match self.proxy.live.presence().clone() {
            Presence::Absent => return !self.proxy.live.is_in_flight(),
            Presence::Unknown => {
                let target = reference(&self.namespace, &self.name);
                ctx.read(
                    &mut self.proxy.live,
                    RunnerSetTag::Proxy(Verb::Read),
                    target,
                );
            }
            Presence::Present(live) if live.metadata.deletion_timestamp.is_some() => {}
            Presence::Present(live) => {
                let tag = RunnerSetTag::Proxy(Verb::Delete);
                ctx.send(&mut self.proxy.live, tag, FREELY, || {
                    KubeRequest::delete(&live.into_object())
                });
            }
        }
        false
    }
}

fn proxy_of(set: &EphemeralRunnerSet) -> Option<&ProxyConfig> {
    set.spec.ephemeral_runner_spec.as_ref()?.proxy.as_ref()
}

pub(super) fn reference(namespace: &str, set: &str) -> ObjectRef {
    ObjectRef::new(
        Kind::Secret,
        namespace,
        resources::runner_proxy_secret_name(namespace, set),
    )
}

/// A merge patch that makes the data equal; keys that are not wanted go.
fn data_patch(live: &Secret, wanted: &Secret) -> Value {
    let mut data = Map::new();
    for key in live.data.iter().flat_map(|data| data.keys()) {
        data.insert(key.clone(), Value::Null);
    }
    for (key, value) in wanted.data.iter().flatten() {
        data.insert(key.clone(), json!(value));
    }
    json!({ "data": data })
}
