//! A small world for the machines: an API server, the Actions service, nodes, and the shells,
//! all in one value, run to a fixpoint under a clock that only it moves. Here are its parts and
//! the tester's hands.

mod judge;
mod servers;
mod shells;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use self::judge::Jobs;
use crate::actors::InputOf;
use crate::actors::runner::{RunnerMachine, RunnerTag};
use crate::actors::runner_set::{RunnerSetCommand, RunnerSetMachine, RunnerSetTag};
use crate::actors::unregistrar::{Claim, Unregistrar};
use crate::api::constants::annotations;
use crate::api::{EphemeralRunner, EphemeralRunnerSet, listener_patch};
use crate::clock::{Timestamp, after};
use crate::messages::{
    ActionsErrorKind, ActionsRequest, Input, Kind, KubeErrorKind, KubeRequest, Object, ObjectRef,
    RunnerSetReport,
};
use crate::resources::ControllerSettings;
use k8s_openapi::jiff::SignedDuration;

pub const NAMESPACE: &str = "arc-runners";
pub const SET: &str = "pool";
pub const SCALE_SET_ID: i64 = 11;

/// What goes wrong, at the request of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It takes effect, and its answer is lost.
    LostAnswer(usize),
    /// The server is busy.
    Refused(usize),
    /// The process dies before it.
    CrashBefore(usize),
    /// The process dies after it, before the answer.
    CrashAfter(usize),
}

/// To whom something goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum To {
    Set,
    Runner(String),
}

#[allow(clippy::large_enum_variant, reason = "there are few at a time")]
enum Message {
    Set(InputOf<RunnerSetMachine>),
    Runner(String, InputOf<RunnerMachine>),
    Watch(Object),
    Gone(ObjectRef, String),
    Kube(To, SetOrRunnerTag, KubeRequest),
    Actions(String, RunnerTag, ActionsRequest, Option<Claim>),
}

enum SetOrRunnerTag {
    Set(RunnerSetTag),
    Runner(RunnerTag),
}

/// A runner in the Actions service.
#[derive(Clone, Debug)]
pub struct Registered {
    pub name: String,
    pub scale_set: i64,
    pub busy: bool,
}

/// A patch that a listener has computed: who was alive then, and up to when it knows of ends.
struct Computed {
    alive: BTreeSet<String>,
    until: Option<Timestamp>,
}

#[derive(Default)]
pub struct World {
    pub now: Timestamp,
    objects: BTreeMap<ObjectRef, Value>,
    version: u64,
    pub registered: BTreeMap<i64, Registered>,
    next_runner: i64,
    set: Option<RunnerSetMachine>,
    runners: BTreeMap<String, RunnerMachine>,
    unregistrar: Unregistrar<String>,
    inbox: VecDeque<Message>,
    wakes: BTreeMap<To, Timestamp>,
    unregistrar_wake: Option<Timestamp>,
    /// Requests so far, of both kinds.
    pub requests: usize,
    /// Everything asked of the API server and the service.
    pub log: Vec<String>,
    pub fault: Option<Fault>,
    /// Errors that the API server answers creates of a kind with.
    pub refuse_creates: BTreeMap<Kind, KubeErrorKind>,
    /// So many objects of a kind there may be.
    pub quota: BTreeMap<Kind, usize>,
    /// Errors that the service answers calls of that name with.
    pub refuse_calls: BTreeMap<&'static str, ActionsErrorKind>,
    /// Requests that hang: those whose log line contains one of these.
    pub hang: Vec<&'static str>,
    hanging: Vec<Message>,
    /// Pods get ready by themselves.
    pub auto_start: bool,
    pub created: BTreeSet<String>,
    /// The set's last report.
    pub report: Option<RunnerSetReport>,
    /// Reasons of the events.
    pub events: Vec<&'static str>,
    pub violations: Vec<String>,
    /// A revision that is applied excuses no runner for a job that is done: there is no restart.
    pub strict: bool,
    /// The patch that the listener has computed and not written.
    computed: Option<Computed>,
    jobs: Jobs,
}

// === the tester's hands ===

impl World {
    pub fn new() -> Self {
        let mut world = Self {
            now: after(Timestamp::UNIX_EPOCH, 1_800_000_000),
            next_runner: 70,
            auto_start: true,
            ..Self::default()
        };
        world.apply(json!({
            "apiVersion": "actions.github.com/v1alpha1", "kind": "EphemeralRunnerSet",
            "metadata": { "name": SET, "namespace": NAMESPACE, "labels": { "team": "blue" } },
            "spec": {
                "replicas": 0, "patchID": 0, "actionableRevision": 1,
                "ephemeralRunnerSpec": {
                    "githubConfigUrl": "https://github.com/acme/widgets",
                    "githubConfigSecret": "gh",
                    "runnerScaleSetId": SCALE_SET_ID,
                    "spec": { "containers": [{ "name": "runner", "image": "img:1" }] }
                }
            }
        }));
        world.start();
        world
    }

    /// Starts the process: everything is listed anew.
    pub fn start(&mut self) {
        self.set = Some(RunnerSetMachine::new(
            NAMESPACE,
            SET,
            Arc::new(ControllerSettings::default()),
        ));
        self.runners.clear();
        self.unregistrar = Unregistrar::default();
        self.inbox.clear();
        self.wakes.clear();
        self.unregistrar_wake = None;
        self.hanging.clear();
        let listed: Vec<Object> = [Kind::EphemeralRunnerSet, Kind::EphemeralRunner, Kind::Pod]
            .into_iter()
            .flat_map(|kind| self.all(kind))
            .collect();
        self.inbox.extend(listed.into_iter().map(Message::Watch));
        self.inbox
            .push_back(Message::Set(Input::Command(RunnerSetCommand::Synced)));
    }

    /// The process dies, and another takes over.
    pub fn restart(&mut self) {
        self.now = after(self.now, 1);
        self.forget_patch();
        self.start();
    }

    pub fn set_spec(&mut self, spec: Value) {
        let target = ObjectRef::new(Kind::EphemeralRunnerSet, NAMESPACE, SET);
        self.merge(&target, &json!({ "spec": spec }));
        self.settle();
    }

    /// The listener's patch, as ARC's writes it.
    pub fn scale(&mut self, replicas: i64, patch: i64) {
        self.begin_patch();
        self.set_spec(json!({ "replicas": replicas, "patchID": patch }));
    }

    /// The listener's patch, as ours writes it: computed without all jobs that are recorded as
    /// ended.
    pub fn scale_knowing(&mut self, replicas: i64, patch: i64) {
        self.begin_patch();
        let target = ObjectRef::new(Kind::EphemeralRunnerSet, NAMESPACE, SET);
        let until = self.jobs.last_end().map(|time| time.to_string());
        let stamps = json!({ annotations::JOBS_COUNTED_UNTIL: until });
        let spec = json!({ "replicas": replicas, "patchID": patch });
        self.merge(
            &target,
            &json!({ "metadata": { "annotations": stamps }, "spec": spec }),
        );
        self.settle();
    }

    /// The same from our listener, as it names it.
    pub fn scale_as_ours(&mut self, replicas: i64, patch: i64) {
        self.begin_patch();
        let target = ObjectRef::new(Kind::EphemeralRunnerSet, NAMESPACE, SET);
        let stamps = json!({ annotations::LISTENER_PATCH: listener_patch(patch, replicas) });
        let spec = json!({ "replicas": replicas, "patchID": patch });
        self.merge(
            &target,
            &json!({ "metadata": { "annotations": stamps }, "spec": spec }),
        );
        self.settle();
    }

    /// A listener computes its next patch, and knows of no end that comes later. `telling` says
    /// that it is ours.
    pub fn compute(&mut self, telling: bool) {
        self.computed = Some(Computed {
            alive: self.alive().into_iter().collect(),
            until: self.jobs.last_end().filter(|_| telling),
        });
    }

    /// It writes the patch that it has computed.
    pub fn write_computed(&mut self, replicas: i64, patch: i64) {
        let computed = self.computed.take().unwrap();
        self.jobs.under_patch = computed.alive;
        let target = ObjectRef::new(Kind::EphemeralRunnerSet, NAMESPACE, SET);
        let mut body = json!({ "spec": { "replicas": replicas, "patchID": patch } });
        if let Some(until) = computed.until {
            let stamps = json!({ annotations::JOBS_COUNTED_UNTIL: until.to_string() });
            body["metadata"] = json!({ "annotations": stamps });
        }
        self.merge(&target, &body);
        self.settle();
    }

    /// The listener records the end of the runner's job.
    pub fn complete(&mut self, name: &str) {
        let target = ObjectRef::new(Kind::EphemeralRunner, NAMESPACE, name);
        let last = self.jobs.last_end().unwrap_or(self.now);
        let at = last.max(self.now) + SignedDuration::from_micros(1);
        self.jobs.ended(name, at);
        self.merge(
            &target,
            &json!({ "status": { "jobResult": "succeeded", "jobFinishedAt": at.to_string() } }),
        );
        self.end_job(name);
        self.settle();
    }

    /// Whether a job is recorded on the runner whose end is not.
    pub fn has_job(&self, name: &str) -> bool {
        let status = self.runner(name).and_then(|er| er.status);
        status.is_some_and(|status| status.job_id.is_some()) && !self.has_ended(name)
    }

    /// Whether the end of the runner's job is recorded.
    pub fn has_ended(&self, name: &str) -> bool {
        let status = self.runner(name).and_then(|er| er.status);
        status.is_some_and(|status| status.job_finished_at.is_some())
    }

    /// Up to when jobs are left out of `replicas`.
    fn counted_until(&self) -> Option<Timestamp> {
        let annotations = self.set().metadata.annotations?;
        annotations
            .get(annotations::JOBS_COUNTED_UNTIL)?
            .parse()
            .ok()
    }

    /// The patch under which finished runners were last counted.
    pub fn marker(&self) -> i64 {
        let status = self.set().status;
        status
            .and_then(|status| status.finished_runner_cleanup_patch_id)
            .unwrap_or(0)
    }

    /// Merges into the set's metadata or status.
    pub fn edit_set(&mut self, patch: &Value) {
        let target = ObjectRef::new(Kind::EphemeralRunnerSet, NAMESPACE, SET);
        self.merge(&target, patch);
        self.settle();
    }

    pub fn set(&self) -> EphemeralRunnerSet {
        let target = ObjectRef::new(Kind::EphemeralRunnerSet, NAMESPACE, SET);
        serde_json::from_value(self.objects[&target].clone()).unwrap()
    }

    pub fn runner(&self, name: &str) -> Option<EphemeralRunner> {
        let target = ObjectRef::new(Kind::EphemeralRunner, NAMESPACE, name);
        let value = self.objects.get(&target)?.clone();
        Some(serde_json::from_value(value).unwrap())
    }

    /// Names of the objects of a kind.
    pub fn names(&self, kind: Kind) -> Vec<String> {
        self.objects
            .keys()
            .filter(|target| target.kind == kind)
            .map(|target| target.name.clone())
            .collect()
    }

    /// Runners without a deletionTimestamp.
    pub fn live(&self) -> Vec<String> {
        self.names(Kind::EphemeralRunner)
            .into_iter()
            .filter(|name| {
                self.runner(name)
                    .is_some_and(|er| er.metadata.deletion_timestamp.is_none())
            })
            .collect()
    }

    /// An annotation of a runner.
    pub fn annotation(&self, name: &str, key: &str) -> String {
        self.runner(name).unwrap().metadata.annotations.unwrap()[key].clone()
    }

    /// A Secret of the user's.
    pub fn put_secret(&mut self, name: &str, data: &Value) {
        let target = ObjectRef::new(Kind::Secret, NAMESPACE, name);
        if self.objects.contains_key(&target) {
            self.merge(&target, &json!({ "data": data }));
        } else {
            self.apply(json!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": { "name": name, "namespace": NAMESPACE }, "data": data
            }));
        }
    }

    pub fn value(&self, kind: Kind, name: &str) -> &Value {
        &self.objects[&ObjectRef::new(kind, NAMESPACE, name)]
    }

    /// Lets go on what hangs.
    pub fn unhang(&mut self) {
        self.hang.clear();
        let hanging = std::mem::take(&mut self.hanging);
        self.inbox.extend(hanging);
        self.settle();
    }

    /// Lets go on what hangs for want of one of the parts.
    pub fn unhang_part(&mut self, part: &'static str) {
        self.hang.retain(|one| *one != part);
        let hanging = std::mem::take(&mut self.hanging);
        self.inbox.extend(hanging);
        self.settle();
    }

    pub fn hanging_count(&self) -> usize {
        self.hanging.len()
    }

    fn hangs(&self, line: &str) -> bool {
        self.hang.iter().any(|part| line.contains(part))
    }

    /// The runner's pod runs and is ready.
    pub fn up(&mut self, name: &str) {
        let target = ObjectRef::new(Kind::Pod, NAMESPACE, name);
        let status = json!({
            "phase": "Running",
            "conditions": [
                { "type": "PodScheduled", "status": "True", "lastTransitionTime": self.now },
                { "type": "Ready", "status": "True", "lastTransitionTime": self.now }],
            "containerStatuses": [container(json!({ "running": { "startedAt": self.now } }))]
        });
        self.merge(
            &target,
            &json!({ "spec": { "nodeName": "node-a" }, "status": status }),
        );
    }

    /// The listener records a job on the runner.
    pub fn busy(&mut self, name: &str) {
        let target = ObjectRef::new(Kind::EphemeralRunner, NAMESPACE, name);
        self.merge(
            &target,
            &json!({ "status": { "phase": "Running", "jobId": format!("job-of-{name}") } }),
        );
        self.jobs.had_job(name);
        for registered in self.registered.values_mut() {
            registered.busy |= registered.name == name;
        }
        self.settle();
    }

    /// The runner's container ends.
    pub fn exit(&mut self, name: &str, code: i32) {
        let target = ObjectRef::new(Kind::Pod, NAMESPACE, name);
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        self.merge(
            &target,
            &json!({ "spec": { "nodeName": "node-a" }, "status": {
                "phase": phase,
                "conditions": null,
                "containerStatuses": [container(json!({ "terminated": { "exitCode": code } }))]
            } }),
        );
        if code == 0 {
            self.jobs.had_job(name);
            self.registered
                .retain(|_, registered| registered.name != name);
        }
        self.end_job(name);
        self.settle();
    }

    /// The service learns that the runner has no job any more.
    pub fn end_job(&mut self, name: &str) {
        for registered in self.registered.values_mut() {
            registered.busy &= registered.name != name;
        }
    }

    /// Runners whose pod is ready.
    pub fn ready(&self) -> Vec<String> {
        let mut live = self.live();
        live.retain(|name| {
            let status = self.runner(name).and_then(|er| er.status);
            status.is_some_and(|status| status.ready)
        });
        live
    }

    /// A person deletes an object.
    pub fn delete(&mut self, kind: Kind, name: &str) {
        let target = ObjectRef::new(kind, NAMESPACE, name);
        self.remove(&target, None).unwrap();
        self.settle();
    }

    pub fn count(&self, beginning: &str) -> usize {
        self.log
            .iter()
            .filter(|line| line.starts_with(beginning))
            .count()
    }

    /// Requests that change something.
    pub fn writes(&self) -> usize {
        ["create ", "patch ", "delete "]
            .into_iter()
            .map(|verb| self.count(verb))
            .sum()
    }

    pub fn is_registered(&self, name: &str) -> bool {
        self.registered
            .values()
            .any(|registered| registered.name == name)
    }

    /// Runs until nothing is left to do at this time, going on to times that someone waits
    /// for within the next seconds.
    pub fn settle(&mut self) {
        self.advance(3);
    }

    /// Lets so many seconds pass.
    pub fn advance(&mut self, seconds: i64) {
        let end = after(self.now, seconds);
        for _ in 0..200_000 {
            if let Some(message) = self.inbox.pop_front() {
                self.deliver(message);
            } else if self.nodes_act() {
            } else if let Some(time) = self.next_wake().filter(|time| *time <= end) {
                self.now = self.now.max(time);
                self.fire();
            } else {
                self.now = end;
                return;
            }
        }
        panic!(
            "no rest after 200000 messages: {:?}",
            self.log.iter().rev().take(30).collect::<Vec<_>>()
        );
    }
}

fn container(state: Value) -> Value {
    let runs = state.get("running").is_some();
    json!({ "name": "runner", "image": "img:1", "imageID": "", "ready": runs, "restartCount": 0,
            "state": state })
}
