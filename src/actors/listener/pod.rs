//! The listener's pod: when it is made, when it has to be made again, and what is done
//! about one that does not go.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Map, Value};

use super::context::{ListenerContext, Part};
use super::health::{Cause, End, Health, Restarted, has_run, health, nothing_runs};
use super::objects::{complete_metadata, delete, may_keep, remove};
use super::restarts::{BuiltFrom, Restarts};
use super::secrets::same_content;
use super::state::ListenerMachine;
use crate::actors::core::cached::{FREELY, Presence, Verb};
use crate::actors::core::difference::Difference;
use crate::api::AutoscalingListener;
use crate::api::constants::annotations::LISTENER_CONFIG_RESOURCE_VERSION as CONFIG_VERSION;
use crate::clock::Timestamp;
use crate::messages::{EventSeverity, Kind, KubeObject, KubeRequest, ObjectRef, Reason, codes};
use crate::resources::listener_pod;
use crate::semantic::drift;

/// A pod that is still there so long after its grace ended hangs.
const HANGS_AFTER: SignedDuration = SignedDuration::from_secs(30);

impl ListenerMachine {
    /// Keeps the pod. `config` is the version of the config Secret, when that is as it should be.
    pub(super) fn keep_pod(
        &mut self,
        al: &AutoscalingListener,
        config: Option<&str>,
        ctx: &mut ListenerContext,
    ) {
        let target = self.pod_reference();
        match self.parts.pod.presence().clone() {
            Presence::Unknown => {
                ctx.read_part(&mut self.parts.pod, Part::Pod, &target);
            }
            Presence::Absent => self.make_pod(al, config, ctx),
            Presence::Present(pod) => {
                if may_keep(&mut self.parts.pod, Part::Pod, al, &pod, ctx) {
                    self.judge_pod(al, config, &pod, ctx);
                }
            }
        }
        ctx.trouble_with(&self.parts.pod, &target);
    }

    /// Removes the pod. Says whether it is known to be gone.
    pub(super) fn remove_pod(
        &mut self,
        al: &AutoscalingListener,
        ctx: &mut ListenerContext,
    ) -> bool {
        if let Some(pod) = self.parts.pod.get().cloned() {
            if let Health::Deleting(deadline) = health(&pod) {
                self.wait_for_end(al, &pod, deadline, ctx);
                return false;
            }
            if nothing_runs(&pod) && may_keep(&mut self.parts.pod, Part::Pod, al, &pod, ctx) {
                delete(&mut self.parts.pod, Part::Pod, pod, Some(0), ctx);
                return false;
            }
        }
        let target = self.pod_reference();
        remove(&mut self.parts.pod, Part::Pod, al, &target, ctx)
    }

    fn pod_reference(&self) -> ObjectRef {
        ObjectRef::new(Kind::Pod, &self.namespace, &self.name)
    }

    fn make_pod(
        &mut self,
        al: &AutoscalingListener,
        config: Option<&str>,
        ctx: &mut ListenerContext,
    ) {
        if let Some(uid) = self.restarts.vanished() {
            self.note_end(al, &uid, &End::deleted(), ctx);
        }
        if config.is_some() && !ctx.notes.reading {
            let from = self.built_from(al);
            self.restarts.may_build_from(from, same_content);
        }
        if !self.restarts.may_create(ctx.now, &mut ctx.wake) {
            let next = self.restarts.next().unwrap_or(ctx.now);
            if let Some(Reason { code, message }) = self.restarts.reason().cloned() {
                ctx.trouble(
                    code,
                    format!("{message}; the pod is made again at {next:.0}"),
                );
            }
            return;
        }
        let Some(version) = config.filter(|_| !ctx.notes.reading) else {
            return;
        };
        // the history of the pods is the brake here
        let settings = &self.settings;
        ctx.send_part(&mut self.parts.pod, Part::Pod, Verb::Create, FREELY, || {
            KubeRequest::Create(listener_pod(al, Some(version), settings).into())
        });
    }

    fn judge_pod(
        &mut self,
        al: &AutoscalingListener,
        config: Option<&str>,
        pod: &Arc<Pod>,
        ctx: &mut ListenerContext,
    ) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        self.restarts.saw(&uid);
        match health(pod) {
            Health::Deleting(deadline) => {
                self.note_end(al, &uid, &End::deleted(), ctx);
                self.wait_for_end(al, pod, deadline, ctx);
            }
            Health::Ended(mut end) => {
                if end.cause == Cause::Disruption && !has_run(pod) && !self.restarts.has_run(&uid) {
                    // a node that takes no pod in would have them made without end
                    end.cause = Cause::Crash;
                }
                self.note_end(al, &uid, &end, ctx);
                ctx.trouble(end.reason, end.message);
                let grace = nothing_runs(pod).then_some(0);
                delete(&mut self.parts.pod, Part::Pod, pod.clone(), grace, ctx);
            }
            Health::Starting(reason) => {
                let waits = || Reason::new(codes::STARTING, "the listener's pod starts");
                let Reason { code, message } = reason.unwrap_or_else(waits);
                ctx.trouble(code, message);
                self.correct_pod(al, config, pod, ctx);
            }
            Health::Running { since, before } => {
                let since = since.unwrap_or(ctx.now);
                if let Some(restarted) = before
                    && !Restarts::is_healthy(ctx.now, since)
                {
                    self.note_restart(al, &uid, &restarted, ctx);
                }
                self.restarts
                    .running_since(ctx.now, &uid, since, &mut ctx.wake);
                self.correct_pod(al, config, pod, ctx);
            }
        }
    }

    /// What a pod would be built from now.
    fn built_from(&self, al: &AutoscalingListener) -> BuiltFrom {
        BuiltFrom {
            config: self.parts.config_secret.get().cloned(),
            spec: listener_pod(al, None, &self.settings).spec,
        }
    }

    /// Takes the end of a pod into account, once.
    fn note_end(
        &mut self,
        al: &AutoscalingListener,
        uid: &str,
        end: &End,
        ctx: &mut ListenerContext,
    ) {
        if end.cause == Cause::ScaleSetGone {
            // the scale set looks into it, which takes it less than the wait
            self.restarts.give_time();
        }
        let from = self.built_from(al);
        if !self.restarts.ended(ctx.now, uid, end, from) {
            return;
        }
        let next = match self.restarts.next() {
            Some(time) => format!("the listener's pod is made again not before {time:.0}"),
            None => "the listener's pod is made again at once".to_owned(),
        };
        self.tell_end(al, uid.to_owned(), end, &next, ctx);
    }

    /// Takes into account that the node has started a listener again that had ended, once.
    fn note_restart(
        &mut self,
        al: &AutoscalingListener,
        uid: &str,
        restarted: &Restarted,
        ctx: &mut ListenerContext,
    ) {
        let Restarted { end, count } = restarted;
        if self.restarts.restarted(uid, *count, end) {
            let next = "the node has started it again in the same pod";
            self.tell_end(al, format!("{uid}/{count}"), end, next, ctx);
        }
    }

    /// Tells of an end that was taken into account. `which` names it, and no other.
    fn tell_end(
        &mut self,
        al: &AutoscalingListener,
        which: String,
        end: &End,
        next: &str,
        ctx: &mut ListenerContext,
    ) {
        let failed = end.cause != Cause::Disruption;
        if end.cause == Cause::ScaleSetGone || (failed && self.restarts.is_doubtful()) {
            self.missed_scale_set = Some(which);
        }
        // it may have ended because what it was built from is out of date
        self.refresh_sources();
        let text = format!("{}: {}; {next}", end.reason, end.message);
        ctx.event(al, EventSeverity::Warning, "ListenerRestarted", text);
        ctx.count_recreation(label_of_end(end));
    }

    /// Ends a pod that differs from the desired one where a live pod cannot be changed, or brings
    /// labels, annotations and a lost owner onto it. Without a config to compare with, nothing is done:
    /// what cannot be made again is not ended.
    fn correct_pod(
        &mut self,
        al: &AutoscalingListener,
        config: Option<&str>,
        pod: &Arc<Pod>,
        ctx: &mut ListenerContext,
    ) {
        let Some(version) = config else { return };
        let mut desired = listener_pod(al, Some(version), &self.settings);
        let Some(difference) = difference(&desired, pod) else {
            // never recorded on a pod that has not read it
            if let Some(annotations) = &mut desired.metadata.annotations {
                annotations.remove(CONFIG_VERSION);
            }
            self.correct_metadata(pod, &desired, ctx);
            return;
        };
        let uid = pod.metadata.uid.clone();
        let target = pod.reference();
        let grace = nothing_runs(pod).then_some(0);
        let delete = || KubeRequest::Delete {
            target,
            uid,
            lock: None,
            grace,
        };
        let slot = &mut self.parts.pod;
        let what = Some(&difference.text);
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if ctx.send_part(slot, Part::Pod, Verb::Delete, what, delete)
            && self.restarts.replaced(uid, "Drift", &difference.text)
        {
            let message = format!("the listener's pod is made again: {}", difference.text);
            ctx.event(al, EventSeverity::Normal, "ListenerRecreated", message);
            ctx.count_recreation(difference.reason);
        }
    }

    fn correct_metadata(&mut self, pod: &Arc<Pod>, desired: &Pod, ctx: &mut ListenerContext) {
        let mut body = Map::new();
        let lock = complete_metadata(&mut body, &pod.metadata, &desired.metadata);
        if body.is_empty() {
            return;
        }
        let body = Value::Object(body);
        let slot = &mut self.parts.pod;
        ctx.send_part(slot, Part::Pod, Verb::Patch, Some(body.to_string()), || {
            KubeRequest::Patch {
                target: pod.reference(),
                body,
                status: false,
                lock,
            }
        });
    }

    /// Waits for a pod that is being deleted, says so, and if the settings allow it, ends the
    /// wait: on a lost node nobody else does.
    fn wait_for_end(
        &mut self,
        al: &AutoscalingListener,
        pod: &Arc<Pod>,
        deadline: Timestamp,
        ctx: &mut ListenerContext,
    ) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let node = node.unwrap_or("none");
        let name = &self.name;
        ctx.trouble(
            "PodTerminating",
            format!("the old pod {name} on node {node} is still being deleted"),
        );
        let hangs_at = deadline.saturating_add(HANGS_AFTER).unwrap_or(deadline);
        if hangs_at > ctx.now {
            ctx.wake_at(hangs_at);
        } else {
            let message = format!(
                "pod {name} hangs in deletion; if its node {node} is lost, remove the node or \
                 force the deletion, or start the controller with --force-delete-lost-pods-after"
            );
            if ctx.is_news(&message) {
                ctx.event(al, EventSeverity::Warning, "ListenerStuck", message);
            }
        }
        self.force_end(al, pod, deadline, ctx);
    }

    fn force_end(
        &mut self,
        al: &AutoscalingListener,
        pod: &Arc<Pod>,
        deadline: Timestamp,
        ctx: &mut ListenerContext,
    ) {
        let forced = pod.metadata.deletion_grace_period_seconds == Some(0);
        let Some(wait) = self.settings.force_delete_lost_pods_after else {
            return;
        };
        let due = deadline.saturating_add(wait).unwrap_or(deadline);
        if forced {
            return;
        }
        if due > ctx.now {
            ctx.wake_at(due);
        } else if delete(&mut self.parts.pod, Part::Pod, pod.clone(), Some(0), ctx) {
            let message = format!("pod {} was removed without waiting for its node", self.name);
            ctx.event(al, EventSeverity::Warning, "ListenerForceDeleted", message);
        }
    }
}

/// Where the pod differs from the desired one such that it must be made again.
fn difference(desired: &Pod, live: &Pod) -> Option<Difference> {
    let version = |pod: &Pod| {
        let annotations = pod.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(CONFIG_VERSION)).cloned()
    };
    let (wanted, read) = (version(desired), version(live));
    if wanted.is_some() && wanted != read {
        let read = read.unwrap_or_else(|| "an unknown version".to_owned());
        let wanted = wanted.unwrap_or_default();
        return Some(Difference {
            reason: "config",
            text: format!("its configuration changed: {read} → {wanted}"),
        });
    }
    fewer_ports(desired, live)
        .or_else(|| drift(&desired.spec, &live.spec).map(|drift| Difference::of_specs(&drift)))
}

/// What the metric calls the end of a pod. The words of a kubelet are not bounded.
fn label_of_end(end: &End) -> &'static str {
    match (end.reason.as_str(), end.cause) {
        ("PodDeleted", _) => "deleted",
        (codes::NODE_LOST, _) => "node_lost",
        ("Evicted", _) | (_, Cause::Disruption) => "evicted",
        (_, Cause::ScaleSetGone) => "scale_set_gone",
        (_, Cause::Crash) => "ended",
    }
}

/// A port that is no longer wanted is what a derivation cannot see.
fn fewer_ports(desired: &Pod, live: &Pod) -> Option<Difference> {
    let containers = |pod: &Pod| -> Vec<Container> {
        let spec = pod.spec.as_ref();
        spec.map(|spec| spec.containers.clone()).unwrap_or_default()
    };
    let live = containers(live);
    containers(desired).iter().find_map(|wanted| {
        let twin = live.iter().find(|other| other.name == wanted.name)?;
        let count = |one: &Container| one.ports.as_ref().map_or(0, Vec::len);
        let (there, wanted_count) = (count(twin), count(wanted));
        let name = &wanted.name;
        (wanted_count < there).then(|| Difference {
            reason: "ports",
            text: format!("spec.containers[{name}].ports: {there} → {wanted_count}"),
        })
    })
}
