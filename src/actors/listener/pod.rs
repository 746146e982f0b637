//! The listener's pod: when it is made, when it has to be made again, and what is done
//! about one that does not go.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::jiff::SignedDuration;
use serde_json::{Map, Value};

use super::health::{Health, health, nothing_runs};
use super::objects::{complete_metadata, delete, may_keep, remove};
use super::state::ListenerMachine;
use super::step::{Part, Step};
use crate::actors::owned::{Difference, FREELY, Verb};
use crate::actors::tracked::Presence;
use crate::api::AutoscalingListener;
use crate::api::constants::annotations::LISTENER_CONFIG_RESOURCE_VERSION as CONFIG_VERSION;
use crate::clock::Timestamp;
use crate::messages::{EventSeverity, Kind, KubeObject, KubeRequest, ObjectRef};
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
        step: &mut Step,
    ) {
        let target = self.pod_reference();
        match self.parts.pod.presence().clone() {
            Presence::Unknown => {
                step.read(&mut self.parts.pod, Part::Pod, &target);
            }
            Presence::Absent => self.make_pod(al, config, step),
            Presence::Present(pod) => {
                if may_keep(&mut self.parts.pod, Part::Pod, al, &pod, step) {
                    self.judge_pod(al, config, &pod, step);
                }
            }
        }
        step.trouble_with(&self.parts.pod, &target);
    }

    /// Removes the pod. Says whether it is known to be gone.
    pub(super) fn remove_pod(&mut self, al: &AutoscalingListener, step: &mut Step) -> bool {
        if let Some(pod) = self.parts.pod.get().cloned() {
            if let Health::Deleting(deadline) = health(&pod) {
                self.wait_for_end(al, &pod, deadline, step);
                return false;
            }
            if nothing_runs(&pod) && may_keep(&mut self.parts.pod, Part::Pod, al, &pod, step) {
                delete(&mut self.parts.pod, Part::Pod, pod, Some(0), step);
                return false;
            }
        }
        let target = self.pod_reference();
        remove(&mut self.parts.pod, Part::Pod, al, &target, step)
    }

    fn pod_reference(&self) -> ObjectRef {
        ObjectRef::new(Kind::Pod, &self.namespace, &self.name)
    }

    fn make_pod(&mut self, al: &AutoscalingListener, config: Option<&str>, step: &mut Step) {
        if let Some(uid) = self.restarts.vanished() {
            self.note_end(al, &uid, "PodDeleted", "the pod was deleted", step);
        }
        if !self.restarts.may_create(step.now, &mut step.wake) {
            let (reason, message) = self.restarts.reason().cloned().unwrap_or_default();
            let next = self.restarts.next().unwrap_or(step.now);
            step.trouble(
                &reason,
                format!("{message}; the pod is made again at {next:.0}"),
            );
            return;
        }
        let Some(version) = config.filter(|_| !step.reading) else {
            return;
        };
        // the history of the pods is the brake here
        let settings = &self.settings;
        step.send(&mut self.parts.pod, Part::Pod, Verb::Create, FREELY, || {
            KubeRequest::Create(listener_pod(al, Some(version), settings).into())
        });
    }

    fn judge_pod(
        &mut self,
        al: &AutoscalingListener,
        config: Option<&str>,
        pod: &Arc<Pod>,
        step: &mut Step,
    ) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        self.restarts.saw(&uid);
        match health(pod) {
            Health::Deleting(deadline) => {
                self.note_end(al, &uid, "PodDeleted", "the pod was deleted", step);
                self.wait_for_end(al, pod, deadline, step);
            }
            Health::Ended {
                reason,
                message,
                scale_set_gone,
            } => {
                if scale_set_gone {
                    // the scale set looks into it, which takes it less than the wait
                    self.missed_scale_set = Some(uid.clone());
                    self.restarts.give_time();
                }
                self.note_end(al, &uid, &reason, &message, step);
                step.trouble(&reason, message);
                let grace = nothing_runs(pod).then_some(0);
                delete(&mut self.parts.pod, Part::Pod, pod.clone(), grace, step);
            }
            Health::Starting(reason) => {
                let waits = (
                    "Starting".to_owned(),
                    "the listener's pod starts".to_owned(),
                );
                let (reason, message) = reason.unwrap_or(waits);
                step.trouble(&reason, message);
                self.correct_pod(al, config, pod, step);
            }
            Health::Running(since) => {
                let since = since.unwrap_or(step.now);
                self.restarts.healthy_since(step.now, since, &mut step.wake);
                self.correct_pod(al, config, pod, step);
            }
        }
    }

    /// Takes the end of a pod into account, once.
    fn note_end(
        &mut self,
        al: &AutoscalingListener,
        uid: &str,
        reason: &str,
        message: &str,
        step: &mut Step,
    ) {
        if !self.restarts.ended(step.now, uid, reason, message) {
            return;
        }
        // it may have ended because what it was built from is out of date
        self.refresh_sources();
        let wait = match self.restarts.next() {
            Some(time) => format!("not before {time:.0}"),
            None => "at once".to_owned(),
        };
        let text = format!("{reason}: {message}; the listener's pod is made again {wait}");
        step.event(al, EventSeverity::Warning, "ListenerRestarted", text);
        step.recreation(label_of_end(reason));
    }

    /// Ends a pod that differs from the desired one where a live pod cannot be changed, or brings
    /// labels, annotations and a lost owner onto it. Without a config to compare with, nothing is done:
    /// what cannot be made again is not ended.
    fn correct_pod(
        &mut self,
        al: &AutoscalingListener,
        config: Option<&str>,
        pod: &Arc<Pod>,
        step: &mut Step,
    ) {
        let Some(version) = config else { return };
        let mut desired = listener_pod(al, Some(version), &self.settings);
        let Some(difference) = difference(&desired, pod) else {
            // never recorded on a pod that has not read it
            if let Some(annotations) = &mut desired.metadata.annotations {
                annotations.remove(CONFIG_VERSION);
            }
            self.correct_metadata(pod, &desired, step);
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
        if step.send(slot, Part::Pod, Verb::Delete, what, delete)
            && self.restarts.replaced(uid, "Drift", &difference.text)
        {
            let message = format!("the listener's pod is made again: {}", difference.text);
            step.event(al, EventSeverity::Normal, "ListenerRecreated", message);
            step.recreation(difference.reason);
        }
    }

    fn correct_metadata(&mut self, pod: &Arc<Pod>, desired: &Pod, step: &mut Step) {
        let mut body = Map::new();
        let lock = complete_metadata(&mut body, &pod.metadata, &desired.metadata);
        if body.is_empty() {
            return;
        }
        let body = Value::Object(body);
        let slot = &mut self.parts.pod;
        step.send(slot, Part::Pod, Verb::Patch, Some(body.to_string()), || {
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
        step: &mut Step,
    ) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let node = node.unwrap_or("none");
        let name = &self.name;
        step.trouble(
            "PodTerminating",
            format!("the old pod {name} on node {node} is still being deleted"),
        );
        let hangs_at = deadline.saturating_add(HANGS_AFTER).unwrap_or(deadline);
        if hangs_at > step.now {
            step.wake.at(hangs_at);
        } else {
            let message = format!(
                "pod {name} hangs in deletion; if its node {node} is lost, remove the node or \
                 force the deletion, or start the controller with --force-delete-lost-pods-after"
            );
            if step.is_news(&message) {
                step.event(al, EventSeverity::Warning, "ListenerStuck", message);
            }
        }
        self.force_end(al, pod, deadline, step);
    }

    fn force_end(
        &mut self,
        al: &AutoscalingListener,
        pod: &Arc<Pod>,
        deadline: Timestamp,
        step: &mut Step,
    ) {
        let forced = pod.metadata.deletion_grace_period_seconds == Some(0);
        let Some(wait) = self.settings.force_delete_lost_pods_after else {
            return;
        };
        let due = deadline.saturating_add(wait).unwrap_or(deadline);
        if forced {
            return;
        }
        if due > step.now {
            step.wake.at(due);
        } else if delete(&mut self.parts.pod, Part::Pod, pod.clone(), Some(0), step) {
            let message = format!("pod {} was removed without waiting for its node", self.name);
            step.event(al, EventSeverity::Warning, "ListenerForceDeleted", message);
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
fn label_of_end(reason: &str) -> &'static str {
    match reason {
        "PodDeleted" => "deleted",
        "Evicted" => "evicted",
        "NodeLost" => "node_lost",
        "ScaleSetGone" => "scale_set_gone",
        _ => "ended",
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
