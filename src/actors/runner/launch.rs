//! A runner that is neither done nor being deleted: on its way to a pod, and while it has one.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::ending::{Cause, may_work};
use super::machine::{Asked, Own, RunnerMachine, RunnerTag};
use super::pod_state::{End, PodState, judge};
use super::registration::Standing;
use super::status::{Change, StatusWrite};
use super::view;
use crate::actors::core::backoff::RECREATION;
use crate::actors::core::cached::{Cached, Verb};
use crate::actors::core::step_context::StepContext;
use crate::api::constants::finalizers;
use crate::api::{EphemeralRunner, EphemeralRunnerPhase};
use crate::clock::{Timestamp, after};
use crate::messages::{Kind, KubeRequest, Object, Reason, codes};
use crate::resources;

/// So many pods may fail within a day; one more, and the runner has failed.
const MAX_FAILURES: usize = 5;
/// For how many seconds a failure counts.
const DAY: i64 = 86_400;
/// How long, in seconds, a quota may keep a runner from getting its pod.
const QUOTA_PATIENCE: i64 = 600;

impl RunnerMachine {
    /// Does the first thing that is missing.
    pub(super) fn run(&mut self, er: &Arc<EphemeralRunner>, ctx: &mut StepContext<Self>) {
        if !has_finalizers(er) {
            return self.add_finalizers(er, ctx);
        }
        if self.asked == Asked::Release {
            self.release(er, ctx);
        }
        match self.own_pod(er) {
            Own::Unknown => self.read_pod(ctx),
            Own::Foreign => self.fail(er, &name_taken("Pod"), ctx),
            Own::Ours(pod) => self.follow(er, &pod, ctx),
            Own::Absent if self.asked == Asked::Release => {}
            // one may be there by now, and have taken a job: the answer will tell
            Own::Absent if self.pod.is_in_flight() => {}
            Own::Absent => self.launch(er, ctx),
        }
    }

    /// Objects that others made lack them; ours have them from the start.
    fn add_finalizers(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) {
        if !ctx.begin(&mut self.runner) {
            return;
        }
        let mut wanted: Vec<String> = er.metadata.finalizers.clone().unwrap_or_default();
        for ours in OURS {
            if !wanted.iter().any(|present| present == ours) {
                wanted.push((*ours).to_owned());
            }
        }
        ctx.kube(
            RunnerTag::Runner(Verb::Patch),
            KubeRequest::Patch {
                target: self.reference(Kind::EphemeralRunner),
                body: json!({ "metadata": { "finalizers": wanted } }),
                status: false,
                lock: er.metadata.resource_version.clone(),
            },
        );
    }

    // === without a pod ===

    fn launch(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) {
        if let Some(uid) = self.last_pod.clone()
            && !is_counted(er, &uid)
        {
            let reason = Reason::new(
                codes::POD_VANISHED,
                "the runner's pod was deleted from outside",
            );
            return self.count_failure(er, &uid, &reason, false, ctx);
        }
        if view::has_job(er) {
            let reason = Reason::new(
                codes::POD_VANISHED,
                "the runner's pod is gone, and its job with it",
            );
            return self.fail(er, &reason, ctx);
        }
        if let Some(reason) = self.refusal.clone() {
            return self.fail(er, &reason, ctx);
        }
        if self.quota_holds(er, ctx) {
            return self.note_trouble(er, ctx);
        }
        let due = self.next_attempt(er, ctx.now);
        if due > ctx.now {
            return ctx.wake_at(due);
        }
        match self.own_secret(er) {
            Own::Unknown => self.read_secret(ctx),
            Own::Foreign => self.fail(er, &name_taken("Secret"), ctx),
            Own::Absent => self.register(er, ctx),
            Own::Ours(secret) => match resources::read_jit_secret(&secret) {
                // no runner signs in with a registration that was taken back
                Ok(record) if self.registration.is_taken_back(record.runner_id) => {
                    self.remove_secret(&secret, ctx);
                }
                Ok(record) => {
                    self.registration.standing = Standing::Known(record.runner_id);
                    self.registration.jit = None;
                    self.create_pod(er, ctx);
                }
                Err(_) => self.remove_secret(&secret, ctx),
            },
        }
        self.note_trouble(er, ctx);
    }

    /// Whether a quota is in the way at this time.
    fn quota_holds(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) -> bool {
        let Some(since) = self.quota_since else {
            return false;
        };
        let end = after(since, QUOTA_PATIENCE);
        if end <= ctx.now {
            let message = "a quota has left no room for the runner for 10 minutes";
            self.fail(er, &Reason::new(codes::QUOTA_EXCEEDED, message), ctx);
            return true;
        }
        ctx.wake_at(end);
        ctx.wake_at_some(self.quota_retry);
        self.quota_retry.is_some_and(|time| time > ctx.now)
    }

    /// On the way to the Secret.
    fn register(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) {
        if let Some(reason) = self.registration.taken.clone() {
            return self.fail(er, &reason, ctx);
        }
        if let Some(jit) = &self.registration.jit {
            if ctx.begin(&mut self.secret) {
                let secret = resources::jit_secret(er, jit);
                ctx.kube(
                    RunnerTag::Secret(Verb::Create),
                    KubeRequest::Create(secret.into()),
                );
            }
            return;
        }
        let next = self.registration.next_towards_jit();
        self.call(er, next, ctx);
    }

    fn create_pod(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) {
        if ctx.begin(&mut self.pod) {
            let pod = resources::runner_pod(er, &self.settings);
            ctx.kube(
                RunnerTag::Pod(Verb::Create),
                KubeRequest::Create(Object::from(pod)),
            );
        }
    }

    /// When the next pod may be made. Runners that failed together do not come back together.
    fn next_attempt(&self, er: &EphemeralRunner, now: Timestamp) -> Timestamp {
        let count = recent_failures(er, now).count().min(MAX_FAILURES);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let who = format!("{}/{}", self.namespace, self.name);
        recent_failures(er, now)
            .max()
            .map_or(now, |last| RECREATION.until(last, count, &who))
    }

    // === with a pod ===

    fn follow(&mut self, er: &Arc<EphemeralRunner>, pod: &Pod, ctx: &mut StepContext<Self>) {
        self.last_pod.clone_from(&pod.metadata.uid);
        self.quota_since = None;
        self.learn_id(er, ctx);
        let state = judge(pod, ctx.now);
        ctx.wake_at_some(state.gives_up);
        ctx.wake_at_some(state.complains);
        let Some(cause) = self.cause(er, pod, &state, ctx) else {
            if self.ending.take().is_some() {
                self.registration.forget_refusals();
            }
            // it may yet start, or is known to have started
            let end = state.end.as_ref().filter(|_| !may_work(er, &state));
            return self.take_end(er, pod, &state, end, ctx);
        };
        if !self.may_end(er, cause.reason(), ctx) {
            let state = PodState {
                trouble: self.ending_trouble(&cause).or(state.trouble),
                ..state
            };
            return self.refresh_status(er, pod, &state, ctx);
        }
        match cause {
            Cause::PodEnded(_) => {
                let makes_another = !state.permanent && !view::has_job(er);
                if !makes_another || self.drop_secret(er, ctx) {
                    self.take_end(er, pod, &state, state.end.as_ref(), ctx);
                }
            }
            // it has done its work, or its job is lost
            Cause::NodeLost(reason) if view::has_job(er) => self.fail(er, &reason, ctx),
            Cause::NodeLost(reason) => self.replace(er, &reason, ctx),
            Cause::JobEnded(reason) => self.fail(er, &reason, ctx),
        }
    }

    /// Takes in how the pod has ended, or how it does.
    fn take_end(
        &mut self,
        er: &EphemeralRunner,
        pod: &Pod,
        state: &PodState,
        end: Option<&End>,
        ctx: &mut StepContext<Self>,
    ) {
        match end {
            Some(End::Succeeded) => {
                self.finish(er, EphemeralRunnerPhase::Succeeded, Change::Clear, ctx);
            }
            Some(End::Outdated(reason)) => {
                let change = Change::Set(reason.clone());
                self.finish(er, EphemeralRunnerPhase::Outdated, change, ctx);
            }
            Some(End::Failed(reason)) => {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                if !view::has_job(er) && is_counted(er, uid) {
                    self.remove_pod(er, pod, state, ctx);
                } else {
                    self.count_failure(er, uid, reason, state.permanent, ctx);
                }
            }
            None => self.refresh_status(er, pod, state, ctx),
        }
    }

    /// Deletes a runner without a job whose pod hangs: it is of no use, and the set makes another.
    fn replace(&mut self, er: &Arc<EphemeralRunner>, reason: &Reason, ctx: &mut StepContext<Self>) {
        if self.runner.is_free(ctx.now) {
            self.announce("RunnerReplaced", reason, ctx);
        }
        self.delete_runner(er, ctx);
    }

    /// The id is needed for the status, and after a restart it may be in the Secret only.
    fn learn_id(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) {
        if self.registration.standing != Standing::Unknown {
            return;
        }
        match self.own_secret(er) {
            Own::Unknown => self.read_secret(ctx),
            Own::Ours(secret) => {
                let record = resources::read_jit_secret(&secret);
                self.registration
                    .learn(record.ok().map(|record| record.runner_id));
            }
            Own::Absent | Own::Foreign => {}
        }
    }

    // === failures ===

    /// Counts the end of a pod. With a job it is the runner's end, for the service fails the
    /// job, and so it is where the next pod would end in the same way.
    fn count_failure(
        &mut self,
        er: &EphemeralRunner,
        uid: &str,
        reason: &Reason,
        permanent: bool,
        ctx: &mut StepContext<Self>,
    ) {
        if view::has_job(er) {
            return self.fail(er, reason, ctx);
        }
        let recent = recent_failures(er, ctx.now).count() + 1;
        let mut failures = serde_json::Map::new();
        for (old, _) in failures_of(er).filter(|(_, time)| !is_recent(*time, ctx.now)) {
            failures.insert(old.to_owned(), serde_json::Value::Null);
        }
        failures.insert(uid.to_owned(), json!(ctx.now));
        let failed = permanent || recent > MAX_FAILURES;
        let written = self.write_status(
            er,
            StatusWrite {
                phase: failed.then_some(EphemeralRunnerPhase::Failed),
                ready: Some(false),
                reason: Change::Set(reason.clone()),
                failures: Some(failures.into()),
            },
            ctx,
        );
        if written {
            self.announce(
                if failed {
                    "RunnerFailed"
                } else {
                    codes::POD_FAILED
                },
                reason,
                ctx,
            );
            // someone may have deleted it, which would be why
            if !self.secret.is_in_flight() {
                self.secret = Cached::default();
            }
        }
    }

    /// Ends the runner as failed.
    pub(super) fn fail(
        &mut self,
        er: &EphemeralRunner,
        reason: &Reason,
        ctx: &mut StepContext<Self>,
    ) {
        let change = Change::Set(reason.clone());
        self.finish(er, EphemeralRunnerPhase::Failed, change, ctx);
    }

    fn finish(
        &mut self,
        er: &EphemeralRunner,
        phase: EphemeralRunnerPhase,
        change: Change,
        ctx: &mut StepContext<Self>,
    ) {
        let reason = match &change {
            Change::Set(reason) => Some(reason.clone()),
            Change::Keep | Change::Clear => None,
        };
        let write = StatusWrite {
            phase: Some(phase),
            ready: Some(false),
            reason: change,
            failures: None,
        };
        if self.write_status(er, write, ctx)
            && let Some(reason) = reason
        {
            let word = match phase {
                EphemeralRunnerPhase::Outdated => "RunnerOutdated",
                _ => "RunnerFailed",
            };
            self.announce(word, &reason, ctx);
        }
    }
}

const OURS: &[&str] = &[
    finalizers::EPHEMERAL_RUNNER,
    finalizers::EPHEMERAL_RUNNER_REGISTRATION,
];

fn has_finalizers(er: &EphemeralRunner) -> bool {
    let present = er.metadata.finalizers.as_deref().unwrap_or_default();
    OURS.iter()
        .all(|ours| present.iter().any(|name| name == ours))
}

fn failures_of(er: &EphemeralRunner) -> impl Iterator<Item = (&str, Timestamp)> {
    er.status
        .iter()
        .flat_map(|status| &status.failures)
        .map(|(uid, time)| (uid.as_str(), time.0))
}

fn is_recent(time: Timestamp, now: Timestamp) -> bool {
    after(time, DAY) > now
}

fn recent_failures(er: &EphemeralRunner, now: Timestamp) -> impl Iterator<Item = Timestamp> {
    failures_of(er)
        .map(|(_, time)| time)
        .filter(move |time| is_recent(*time, now))
}

fn is_counted(er: &EphemeralRunner, uid: &str) -> bool {
    failures_of(er).any(|(counted, _)| counted == uid)
}

fn name_taken(what: &str) -> Reason {
    let code = match what {
        "Pod" => codes::POD_NAME_TAKEN,
        _ => codes::SECRET_NAME_TAKEN,
    };
    let message = format!("there is a {what} of the runner's name that belongs to something else");
    Reason::new(code, message)
}
