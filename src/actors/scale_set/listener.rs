//! The AutoscalingListener: made once the scale set is registered, replaced when what it
//! has to say changes, stopped while the scale set is parked.
//!
//! Two of them never have a pod at the same time: one under an old name goes first, and a
//! successor of the same name is made when its predecessor is gone.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::conditions::Finding;
use super::context::ScaleSetContext;
use super::registration::Registered;
use super::state::ScaleSetMachine;
use super::vocabulary::ScaleSetTag;
use crate::actors::core::cached::{FREELY, Presence, Verb};
use crate::actors::core::difference::Difference;
use crate::api::constants::labels;
use crate::api::{
    AutoscalingListener, AutoscalingListenerPhase, AutoscalingListenerSpec, AutoscalingRunnerSet,
};
use crate::messages::reason::code_of_call;
use crate::messages::{
    Effect, EventSeverity, Kind, KubeObject, KubeRequest, ObjectRef, Reason, Tally, codes,
};
use crate::resources::{autoscaling_listener, listener_name, metadata_patch, provide_annotation};
use crate::semantic::{Drift, deep_equal, drift};

impl ScaleSetMachine {
    /// Keeps the AutoscalingListener. Says whether it is as it should be and in place.
    pub(super) fn keep_listener(
        &mut self,
        ars: &AutoscalingRunnerSet,
        registered: Registered,
        parked: bool,
        ctx: &mut ScaleSetContext,
    ) -> bool {
        let mut desired = autoscaling_listener(ars, registered.id, &self.settings);
        if parked {
            desired.spec.phase = Some(AutoscalingListenerPhase::Stopped);
        }
        let name = listener_name(ars);
        let others_gone = self.remove_listeners(Some(&name), ctx);
        let child = self.listeners.entry(name.clone()).or_default();
        let settled = match child.object.presence().clone() {
            Presence::Unknown => {
                self.read_listener(&name, ctx);
                false
            }
            Presence::Absent => {
                if others_gone && registered.confirmed {
                    self.create_listener(&name, desired, ctx);
                }
                false
            }
            Presence::Present(live) => self.correct_listener(ars, &live, &desired, ctx),
        };
        ctx.notes.listener = if parked {
            Finding::fails(codes::STOPPED, self.verdict())
        } else {
            self.listener_finding(&name, settled)
        };
        self.tell_problem(ars, &name, ctx);
        let child = self.listeners.get(&name);
        settled
            && child.is_some_and(|child| {
                if parked {
                    child.is_stopped()
                } else {
                    child.is_ready()
                }
            })
    }

    /// Deletes every AutoscalingListener but the one of that name. Says whether they are gone.
    pub(super) fn remove_listeners(
        &mut self,
        but: Option<&str>,
        ctx: &mut ScaleSetContext,
    ) -> bool {
        self.listeners
            .retain(|name, child| but == Some(name.as_str()) || !child.is_gone());
        let (namespace, scale_set) = (self.namespace.clone(), self.name.clone());
        let mut gone = true;
        let mut unknown = Vec::new();
        for (name, child) in &mut self.listeners {
            if but == Some(name.as_str()) {
                continue;
            }
            match child.object.presence().clone() {
                Presence::Unknown => {
                    gone = false;
                    unknown.push(name.clone());
                }
                // the actor may still be busy with what is left
                Presence::Absent => gone = false,
                Presence::Present(live) if !is_of(&live, &namespace, &scale_set) => {}
                Presence::Present(live) => {
                    gone = false;
                    if live.metadata.deletion_timestamp.is_none() {
                        let tag = ScaleSetTag::Listener(name.clone(), Verb::Delete);
                        let uid = live.metadata.uid.clone();
                        ctx.delete(&mut child.object, tag, live.as_ref(), uid);
                    }
                }
            }
        }
        for name in unknown {
            self.read_listener(&name, ctx);
        }
        gone
    }

    /// Whether the AutoscalingListener of the current spec has to be created next.
    pub(super) fn has_no_listener(&self, ars: &AutoscalingRunnerSet) -> bool {
        let child = self.listeners.get(&listener_name(ars));
        child.is_some_and(|child| child.object.is_absent() && !child.object.is_in_flight())
    }

    pub(super) fn read_listener(&mut self, name: &str, ctx: &mut ScaleSetContext) {
        let namespace = &self.settings.namespace;
        let target = ObjectRef::new(Kind::AutoscalingListener, namespace, name);
        let tag = ScaleSetTag::Listener(name.to_owned(), Verb::Read);
        if let Some(child) = self.listeners.get_mut(name) {
            ctx.read(&mut child.object, tag, target);
        }
    }

    /// Whether the AutoscalingListener says that it is this scale set's.
    pub(super) fn owns(&self, listener: &AutoscalingListener) -> bool {
        is_of(listener, &self.namespace, &self.name)
    }

    fn create_listener(
        &mut self,
        name: &str,
        mut desired: AutoscalingListener,
        ctx: &mut ScaleSetContext,
    ) {
        provide_annotation(&mut desired.metadata, None);
        let Some(child) = self.listeners.get_mut(name) else {
            return;
        };
        let tag = ScaleSetTag::Listener(name.to_owned(), Verb::Create);
        // a replacement is slowed down where the old one is deleted
        let sent = ctx.send(&mut child.object, tag, FREELY, || {
            KubeRequest::Create(desired.into())
        });
        if sent {
            self.registration.used();
        }
    }

    fn correct_listener(
        &mut self,
        ars: &AutoscalingRunnerSet,
        live: &Arc<AutoscalingListener>,
        desired: &AutoscalingListener,
        ctx: &mut ScaleSetContext,
    ) -> bool {
        if !self.may_keep_listener(ars, live, ctx) {
            return false;
        }
        let name = live.metadata.name.clone().unwrap_or_default();
        let Some(child) = self.listeners.get_mut(&name) else {
            return false;
        };
        if let Some(difference) = difference(live, desired) {
            let tag = ScaleSetTag::Listener(name, Verb::Delete);
            if ctx.delete(&mut child.object, tag, live.as_ref(), &difference.text) {
                self.announce_replacement(ars, &difference, ctx);
            }
            return false;
        }
        let phase = |spec: &AutoscalingListenerSpec| spec.phase.unwrap_or_default();
        let wanted = phase(&desired.spec);
        let mut body = Map::new();
        if phase(&live.spec) != wanted {
            body.insert("spec".to_owned(), json!({ "phase": wanted }));
        }
        let mut metadata = ObjectMeta::default();
        provide_annotation(&mut metadata, Some(&live.metadata));
        if let Some(annotations) = metadata.annotations {
            let annotations = json!({ "annotations": annotations });
            body.insert("metadata".to_owned(), annotations);
        }
        if body.is_empty() {
            return !child.object.is_in_flight();
        }
        let body = Value::Object(body);
        let tag = ScaleSetTag::Listener(name, Verb::Patch);
        let what = Some((Verb::Patch, body.to_string()));
        ctx.send(&mut child.object, tag, what, || {
            KubeRequest::patch(live.reference(), body)
        });
        false
    }

    /// Says why the listener is replaced, and with it its pod.
    fn announce_replacement(
        &mut self,
        ars: &AutoscalingRunnerSet,
        difference: &Difference,
        ctx: &mut ScaleSetContext,
    ) {
        let message = format!("the listener is replaced: {}", difference.text);
        let severity = EventSeverity::Normal;
        if self.announce(ars, severity, "ListenerReplaced", message, ctx) {
            let reason = difference.reason;
            ctx.push(Effect::Count(Tally::ListenerRecreation { reason }));
        }
    }

    /// Whether the live one is ours and stays.
    fn may_keep_listener(
        &mut self,
        ars: &AutoscalingRunnerSet,
        live: &Arc<AutoscalingListener>,
        ctx: &mut ScaleSetContext,
    ) -> bool {
        if live.metadata.deletion_timestamp.is_some() {
            return false;
        }
        if self.owns(live) {
            return true;
        }
        let message = in_the_way(live);
        self.announce(
            ars,
            EventSeverity::Warning,
            codes::FOREIGN_OBJECT,
            message,
            ctx,
        );
        let name = live.metadata.name.clone().unwrap_or_default();
        if let Some(child) = self.listeners.get_mut(&name) {
            let tag = ScaleSetTag::Listener(name, Verb::Read);
            let target = live.reference();
            ctx.send(
                &mut child.object,
                tag,
                Some((Verb::Read, "foreign")),
                || KubeRequest::Get(target),
            );
        }
        false
    }

    /// Tells what has to be mended in what the listener is made from. One that runs goes on
    /// with what it has, but runners need the same credentials, so the scale set is not ready.
    fn tell_problem(&mut self, ars: &AutoscalingRunnerSet, name: &str, ctx: &mut ScaleSetContext) {
        const TOPIC: &str = codes::SOURCE_UNUSABLE;
        let Some(child) = self.listeners.get(name) else {
            return;
        };
        let Some(report) = child.report.as_ref() else {
            // nothing is known yet, or a successor is being made: it will say
            return;
        };
        let Some(Reason { code, message }) = report.problem.clone() else {
            self.settle(TOPIC);
            return;
        };
        if report.ready {
            ctx.notes.ready = Finding::fails(code, &message);
        }
        self.announce(ars, EventSeverity::Warning, TOPIC, message, ctx);
    }

    fn listener_finding(&self, name: &str, settled: bool) -> Finding {
        let Some(child) = self.listeners.get(name) else {
            return Finding::Unknown;
        };
        // of one that is as it should be, an error tells how it got there
        let error = child.object.last_error();
        if let Some(error) = error.filter(|_| !settled) {
            let message = format!("AutoscalingListener {name}: {error}");
            return Finding::fails(codes::LISTENER_NOT_APPLIED, message);
        }
        let going = |live: &AutoscalingListener| live.metadata.deletion_timestamp.is_some();
        match (&child.report, child.object.get()) {
            (_, None) if child.object.is_absent() => match self.registration.error() {
                Some(error) => Finding::fails(code_of_call(error.kind), &error.message),
                None => Finding::fails(codes::CREATING, "the listener is being created"),
            },
            (_, Some(live)) if !self.owns(live) => {
                Finding::fails(codes::FOREIGN_OBJECT, in_the_way(live))
            }
            (_, Some(live)) if going(live) => {
                Finding::fails(codes::REPLACING, "the listener is being replaced")
            }
            (Some(report), _) if report.ready => match &report.problem {
                Some(Reason { code, message }) => Finding::holds(
                    code.clone(),
                    format!("the listener runs with what it was started with; {message}"),
                ),
                None => Finding::holds(codes::LISTENER_RUNNING, "the listener runs"),
            },
            (Some(report), _) => match &report.reason {
                Some(reason) => Finding::Fails(reason.clone()),
                None => Finding::fails(codes::STARTING, "the listener is being set up"),
            },
            (None, _) => Finding::Unknown,
        }
    }
}

/// What to do about the listener of another scale set that has the name of ours.
fn in_the_way(live: &AutoscalingListener) -> String {
    let theirs = &live.spec;
    format!(
        "{} belongs to the scale set {}/{} and is in the way: remove it, or change the name, the \
         runner group or the config URL of one of the two",
        live.reference(),
        theirs.autoscaling_runner_set_namespace,
        theirs.autoscaling_runner_set_name,
    )
}

/// Whether the AutoscalingListener is that scale set's: it says so in its spec or, should that
/// have been edited, in its labels.
fn is_of(listener: &AutoscalingListener, namespace: &str, name: &str) -> bool {
    let spec = &listener.spec;
    let label = |key: &str| {
        let all = listener.metadata.labels.as_ref();
        all.and_then(|all| all.get(key)).map(String::as_str)
    };
    (spec.autoscaling_runner_set_namespace == namespace && spec.autoscaling_runner_set_name == name)
        || (label(labels::SCALE_SET_NAMESPACE) == Some(namespace)
            && label(labels::SCALE_SET_NAME) == Some(name))
}

/// Where the live one differs such that it is replaced; its phase can be changed.
fn difference(live: &AutoscalingListener, desired: &AutoscalingListener) -> Option<Difference> {
    let without_phase = |spec: &AutoscalingListenerSpec| AutoscalingListenerSpec {
        phase: None,
        ..spec.clone()
    };
    let (known, wanted) = (without_phase(&live.spec), without_phase(&desired.spec));
    if !deep_equal(&known, &wanted) {
        let added = drift(&wanted, &known).map(|drift| Difference::of_specs(&drift));
        let removed = || drift(&known, &wanted).map(|drift| no_longer_wanted(&drift));
        return added.or_else(removed).or_else(|| {
            Some(Difference {
                reason: "spec",
                text: "spec".to_owned(),
            })
        });
    }
    metadata_patch(&live.metadata, &desired.metadata).map(|patch| Difference {
        reason: "metadata",
        text: format!("metadata lacks {}", patch["metadata"]),
    })
}

fn no_longer_wanted(drift: &Drift) -> Difference {
    Difference {
        reason: drift.reason(),
        text: format!("spec.{} is gone", drift.path),
    }
}
