//! The way out: giving up the registration, and clearing up pod, Secret and what hooks made.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::{Value, json};

use super::ending::may_work;
use super::linked::Of;
use super::machine::{Asked, Own, RunnerMachine, RunnerTag};
use super::pod_state::{End, PodState, judge};
use super::registration::Standing;
use super::status::{Change, StatusWrite};
use super::view;
use crate::actors::core::cached::{Cached, Verb};
use crate::actors::core::step_context::StepContext;
use crate::api::constants::finalizers;
use crate::api::{EphemeralRunner, EphemeralRunnerPhase};
use crate::clock::after;
use crate::messages::{EventSeverity, Kind, KubeErrorKind, KubeObject, KubeRequest, Refusal};
use crate::resources;

/// How long, in seconds, the service may say that a job is running on a runner whose pod is gone.
const GHOST_JOB_PATIENCE: i64 = 600;

impl RunnerMachine {
    /// The set wants the runner gone if the service agrees.
    pub(super) fn release(&mut self, er: &Arc<EphemeralRunner>, ctx: &mut StepContext<Self>) {
        if view::has_job(er) {
            return self.refuse(Refusal::Busy);
        }
        // a write under way may bring a job to light, or the id on record
        if self.runner.is_in_flight() {
            return;
        }
        if self.seek_id(er, ctx) {
            if self.id_is_unrecorded(er) {
                let write = StatusWrite {
                    phase: None,
                    ready: None,
                    reason: Change::Keep,
                    failures: None,
                };
                self.write_status(er, write, ctx);
            } else {
                self.ask_removal(er, ctx);
            }
        } else if self.is_unregistered() {
            self.delete_runner(er, ctx);
        }
    }

    /// A runner that is done: pod and Secret go, it stays to be counted. Others may have said that it
    /// is done, so the service is asked where it may work.
    pub(super) fn retire(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) {
        if self.asked == Asked::Release {
            self.asked = Asked::Nothing;
        }
        match self.own_pod(er) {
            Own::Unknown => self.read_pod(ctx),
            Own::Ours(pod) => {
                let state = judge(&pod, ctx.now);
                if may_work(er, &state) && !self.take_back(er, ctx) {
                    return;
                }
                self.remove_pod(er, &pod, &state, ctx);
            }
            Own::Absent | Own::Foreign => {}
        }
        match self.own_secret(er) {
            Own::Unknown => self.read_secret(ctx),
            Own::Ours(secret) => self.remove_secret(&secret, ctx),
            Own::Absent | Own::Foreign => {}
        }
    }

    /// A runner that is being deleted.
    pub(super) fn dissolve(&mut self, er: &Arc<EphemeralRunner>, ctx: &mut StepContext<Self>) {
        let pod = match self.own_pod(er) {
            Own::Unknown => return self.read_pod(ctx),
            Own::Ours(pod) => {
                let state = judge(&pod, ctx.now);
                Some((pod, state))
            }
            Own::Absent | Own::Foreign => None,
        };
        let ended_well = pod
            .as_ref()
            .is_some_and(|(_, state)| state.end == Some(End::Succeeded))
            || view::phase(er) == Some(EphemeralRunnerPhase::Succeeded);
        let had_job = view::has_job(er) || self.registration.job_runs;
        if ended_well && had_job && !self.registration.is_calling() {
            // it has taken its registration back itself; one that had no job leaves it behind
            self.registration.standing = Standing::Removed;
        }
        let alive = pod.as_ref().is_some_and(|(_, state)| may_work(er, state));
        if !alive {
            self.registration.hasten(ctx.now);
        }
        let released = self.deregister(er, pod.is_none(), alive, ctx);
        if alive && !released {
            if self.registration.job_runs {
                self.note_job_wait(er, ctx);
            }
            return;
        }
        if let Some((pod, state)) = &pod {
            self.remove_pod(er, pod, state, ctx);
        }
        let secret_gone = match self.own_secret(er) {
            // what may not be removed here goes with its owner
            Own::Unknown | Own::Ours(_) if is_denied(&self.secret) => !self.secret.is_in_flight(),
            Own::Unknown => {
                self.read_secret(ctx);
                false
            }
            Own::Ours(secret) => {
                self.remove_secret(&secret, ctx);
                false
            }
            Own::Absent | Own::Foreign => !self.secret.is_in_flight(),
        };
        let pod_gone = pod.is_none() && !self.pod.is_in_flight();
        let linked_gone = pod_gone && self.sweep_linked(er, ctx);
        if pod_gone && secret_gone && linked_gone && released {
            self.drop_finalizers(er, ctx);
        }
    }

    // === the registration ===

    /// Drives the removal of the registration. Says whether there is none any more. Who has taken the
    /// finalizer off says so too, but not of a runner that may work.
    fn deregister(
        &mut self,
        er: &Arc<EphemeralRunner>,
        pod_gone: bool,
        alive: bool,
        ctx: &mut StepContext<Self>,
    ) -> bool {
        if !alive && !holds(er, finalizers::EPHEMERAL_RUNNER_REGISTRATION) {
            return true;
        }
        if pod_gone && self.registration.job_runs {
            let since = *self.pod_gone_since.get_or_insert(ctx.now);
            let end = after(since, GHOST_JOB_PATIENCE);
            if end <= ctx.now {
                let message = "the service says that a job is running on it, \
                               but its pod has been gone for 10 minutes";
                self.give_up_removal(message, ctx);
            }
            ctx.wake_at(end);
        }
        self.take_back(er, ctx)
    }

    /// Leaves the registration to the service.
    pub(super) fn give_up_removal(&mut self, why: &str, ctx: &mut StepContext<Self>) {
        let Some(er) = self.runner.get().cloned() else {
            return;
        };
        let alive = self
            .pod
            .get()
            .is_some_and(|pod| judge(pod, ctx.now).can_run);
        if alive && view::has_job(&er) {
            return;
        }
        let who = match self.registration.id() {
            Some(id) => format!("runner {id} is left"),
            None => "the runner may be left".to_owned(),
        };
        self.registration.standing = Standing::Removed;
        let message =
            format!("{who} registered in the Actions service, and its deletion goes on: {why}");
        self.event(ctx, EventSeverity::Warning, "RegistrationLeft", message);
    }

    // === the objects ===

    /// Deletes the pod, without grace when nothing of it runs. To be asked for only of a runner that
    /// cannot work, or that the service has taken back.
    ///
    /// What rests on our copy of the pod alone is done to that version only: so is a delete without
    /// grace of a pod that may have found its node, and each that no deletion of the runner asks for.
    pub(super) fn remove_pod(
        &mut self,
        er: &EphemeralRunner,
        pod: &Pod,
        state: &PodState,
        ctx: &mut StepContext<Self>,
    ) {
        if pod.metadata.deletion_timestamp.is_some() {
            return self.force_pod(pod, ctx);
        }
        let locked = state.can_run && (state.is_dead || !view::is_deleting(er));
        self.delete_pod(pod, state.is_dead.then_some(0), locked, ctx);
    }

    /// Deletes a pod without grace that hangs in deletion, if the settings ask for that.
    fn force_pod(&mut self, pod: &Pod, ctx: &mut StepContext<Self>) {
        let (Some(deletion), Some(patience)) = (
            pod.metadata.deletion_timestamp.as_ref(),
            self.settings.force_delete_lost_pods_after,
        ) else {
            return;
        };
        let due = deletion.0.saturating_add(patience).unwrap_or(ctx.now);
        if due > ctx.now {
            return ctx.wake_at(due);
        }
        if self.pod_read.is_none_or(|read| read < due) {
            return self.read_pod(ctx);
        }
        if self.delete_pod(pod, Some(0), true, ctx) {
            let message = "the pod hangs in deletion on a lost node and is removed by force";
            self.event(
                ctx,
                EventSeverity::Warning,
                "PodForceDeleted",
                message.to_owned(),
            );
        }
    }

    fn delete_pod(
        &mut self,
        pod: &Pod,
        grace: Option<u32>,
        locked: bool,
        ctx: &mut StepContext<Self>,
    ) -> bool {
        if !ctx.begin(&mut self.pod) {
            return false;
        }
        ctx.kube(
            RunnerTag::Pod(Verb::Delete),
            KubeRequest::Delete {
                target: self.reference(Kind::Pod),
                uid: pod.metadata.uid.clone(),
                lock: pod.metadata.resource_version.clone().filter(|_| locked),
                grace,
            },
        );
        true
    }

    pub(super) fn remove_secret(&mut self, secret: &Secret, ctx: &mut StepContext<Self>) {
        if secret.metadata.deletion_timestamp.is_some() || !ctx.begin(&mut self.secret) {
            return;
        }
        ctx.kube(
            RunnerTag::Secret(Verb::Delete),
            KubeRequest::Delete {
                target: self.reference(Kind::Secret),
                uid: secret.metadata.uid.clone(),
                lock: None,
                grace: None,
            },
        );
    }

    fn sweep_linked(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) -> bool {
        if !resources::has_container_hooks(er) {
            return true;
        }
        let of = Of {
            namespace: &self.namespace,
            name: &self.name,
        };
        self.linked.sweep(&of, ctx)
    }

    /// Lets the EphemeralRunner go. Finalizers of others stay.
    fn drop_finalizers(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) {
        let ours = |name: &str| {
            name == finalizers::EPHEMERAL_RUNNER
                || name == finalizers::EPHEMERAL_RUNNER_REGISTRATION
        };
        let present = er.metadata.finalizers.as_deref().unwrap_or_default();
        if !present.iter().any(|name| ours(name)) || !ctx.begin(&mut self.runner) {
            return;
        }
        let others: Vec<&String> = present.iter().filter(|name| !ours(name)).collect();
        let value = if others.is_empty() {
            Value::Null
        } else {
            json!(others)
        };
        ctx.kube(
            RunnerTag::Runner(Verb::Patch),
            KubeRequest::Patch {
                target: self.reference(Kind::EphemeralRunner),
                body: json!({ "metadata": { "finalizers": value } }),
                status: false,
                lock: er.metadata.resource_version.clone(),
            },
        );
    }
}

/// Whether the controller may not do what it last tried with an object.
pub(super) fn is_denied<T: KubeObject>(object: &Cached<T>) -> bool {
    let error = object.last_error();
    error.is_some_and(|error| error.kind == KubeErrorKind::Forbidden)
}

fn holds(er: &EphemeralRunner, finalizer: &str) -> bool {
    er.metadata
        .finalizers
        .iter()
        .flatten()
        .any(|name| name == finalizer)
}
