//! A small world for the machines: an API server, the Actions service, nodes, and the shells,
//! all in one value, run to a fixpoint under a clock that only it moves.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use secrecy::SecretString;
use serde_json::{Value, json};

use crate::actors::runner::{Origin, RunnerMachine, Tag as RunnerTag};
use crate::actors::runner_set::{RunnerSetCommand, RunnerSetMachine, Tag as SetTag};
use crate::actors::unregistrar::{Claim, Unregistrar};
use crate::actors::{EffectOf, InputOf, Machine};
use crate::api::{EphemeralRunner, EphemeralRunnerSet};
use crate::clock::{Timestamp, after};
use crate::messages::{
    ActionsAnswer, ActionsCall, ActionsError, ActionsErrorKind, ActionsRequest, Effect, Input,
    JitConfig, Kind, KubeAnswer, KubeError, KubeErrorKind, KubeRequest, Object, ObjectRef, Runner,
    RunnerDirective, RunnerSetReport,
};
use crate::resources::ControllerSettings;

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
    Set(SetTag),
    Runner(RunnerTag),
}

/// A runner in the Actions service.
#[derive(Clone, Debug)]
pub struct Registered {
    pub name: String,
    pub scale_set: i64,
    pub busy: bool,
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
    /// Reasons of the runners' events.
    pub events: Vec<&'static str>,
    pub violations: Vec<String>,
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
        self.start();
    }

    pub fn set_spec(&mut self, spec: Value) {
        let target = ObjectRef::new(Kind::EphemeralRunnerSet, NAMESPACE, SET);
        self.merge(&target, &json!({ "spec": spec }));
        self.settle();
    }

    pub fn scale(&mut self, replicas: i64, patch: i64) {
        self.set_spec(json!({ "replicas": replicas, "patchID": patch }));
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

// === the shells ===

impl World {
    fn deliver(&mut self, message: Message) {
        match message {
            Message::Set(input) => self.step_set(input),
            Message::Runner(name, input) => self.step_runner(&name, input),
            Message::Watch(object) => self.route(object),
            Message::Gone(object, uid) => {
                let input_for_runner = self.runners.contains_key(&object.name);
                if input_for_runner && object.kind != Kind::EphemeralRunnerSet {
                    let name = object.name.clone();
                    self.step_runner(&name, Input::Gone { object, uid });
                } else if object.kind != Kind::Pod {
                    self.step_set(Input::Gone { object, uid });
                }
            }
            Message::Kube(to, tag, request) if self.hangs(&format!("{request:?}")) => {
                self.hanging.push(Message::Kube(to, tag, request));
            }
            Message::Actions(name, tag, request, claim)
                if self.hangs(&format!("{:?}", request.call)) =>
            {
                self.hanging
                    .push(Message::Actions(name, tag, request, claim));
            }
            Message::Kube(to, tag, request) => self.run_kube(to, tag, &request),
            Message::Actions(name, tag, request, claim) => {
                self.run_actions(name, tag, request, claim);
            }
        }
    }

    fn route(&mut self, object: Object) {
        let name = object.meta().name.clone().unwrap_or_default();
        if object.kind() == Kind::EphemeralRunnerSet {
            self.step_set(Input::Observed(object));
        } else if self.runners.contains_key(&name) {
            self.step_runner(&name, Input::Observed(object));
        } else if object.kind() == Kind::EphemeralRunner {
            self.step_set(Input::Observed(object));
        }
    }

    fn step_set(&mut self, input: InputOf<RunnerSetMachine>) {
        let Some(machine) = &mut self.set else {
            return;
        };
        let effects = machine.step(self.now, input);
        for effect in effects {
            self.run_set_effect(effect);
        }
    }

    fn run_set_effect(&mut self, effect: EffectOf<RunnerSetMachine>) {
        match effect {
            Effect::Kube(tag, request) => {
                self.inbox
                    .push_back(Message::Kube(To::Set, SetOrRunnerTag::Set(tag), request))
            }
            Effect::WakeAt(time) => self.wake(To::Set, time),
            Effect::Child(directive) => self.direct(directive),
            Effect::Stop => self.set = None,
            Effect::Report(report) => self.report = Some(report),
            Effect::Event(_) | Effect::Count(_) => {}
            Effect::Actions(..) | Effect::Unregister(..) => {
                panic!("a set does not call the service")
            }
        }
    }

    fn direct(&mut self, directive: RunnerDirective) {
        let (er, origin): (_, fn(Arc<EphemeralRunner>) -> Origin) = match directive {
            RunnerDirective::Created(er) => (er, Origin::Created),
            RunnerDirective::Observe(er) => (er, |er| Origin::Found(Some(er))),
            RunnerDirective::Tell { name, command } => {
                let input = Input::Command(command);
                return self.inbox.push_back(Message::Runner(name, input));
            }
        };
        let name = er.metadata.name.clone().unwrap();
        let settings = Arc::new(ControllerSettings::default());
        self.runners.entry(name.clone()).or_insert_with(|| {
            RunnerMachine::new(NAMESPACE, name.as_str(), SET, origin(er.clone()), settings)
        });
        let input = Input::Observed(Object::EphemeralRunner(er));
        self.inbox.push_back(Message::Runner(name, input));
    }

    fn step_runner(&mut self, name: &str, input: InputOf<RunnerMachine>) {
        let Some(machine) = self.runners.get_mut(name) else {
            return;
        };
        for effect in machine.step(self.now, input) {
            let to = To::Runner(name.to_owned());
            match effect {
                Effect::Kube(tag, request) => {
                    self.inbox
                        .push_back(Message::Kube(to, SetOrRunnerTag::Runner(tag), request))
                }
                Effect::Actions(tag, request) => {
                    self.inbox
                        .push_back(Message::Actions(name.to_owned(), tag, request, None))
                }
                Effect::Unregister(_, request) => {
                    self.unregistrar.request(name.to_owned(), request);
                    self.run_unregistrar();
                }
                Effect::WakeAt(time) => self.wake(to, time),
                Effect::Report(report) => {
                    self.inbox.push_back(Message::Set(Input::Report(report)));
                }
                Effect::Stop => {
                    self.runners.remove(name);
                    self.wakes.remove(&to);
                }
                Effect::Event(note) => self.events.push(note.reason),
                Effect::Count(_) => {}
                Effect::Child(never) => match never {},
            }
        }
    }

    fn run_unregistrar(&mut self) {
        let due = self.unregistrar.due(self.now);
        self.unregistrar_wake = due.wake_at;
        for (claim, request) in due.calls {
            self.inbox.push_back(Message::Actions(
                String::new(),
                RunnerTag::Remove,
                request,
                Some(claim),
            ));
        }
        for (name, answer) in due.answers {
            let input = Input::Actions(RunnerTag::Remove, answer);
            self.inbox.push_back(Message::Runner(name, input));
        }
    }

    fn wake(&mut self, to: To, time: Timestamp) {
        let wish = self.wakes.entry(to).or_insert(time);
        *wish = (*wish).min(time);
    }

    fn next_wake(&self) -> Option<Timestamp> {
        self.wakes
            .values()
            .copied()
            .chain(self.unregistrar_wake)
            .min()
    }

    fn fire(&mut self) {
        if self.unregistrar_wake.is_some_and(|time| time <= self.now) {
            self.run_unregistrar();
        }
        let due: Vec<To> = self
            .wakes
            .iter()
            .filter(|(_, time)| **time <= self.now)
            .map(|(to, _)| to.clone())
            .collect();
        for to in due {
            self.wakes.remove(&to);
            match to {
                To::Set => self.step_set(Input::Tick),
                To::Runner(name) => self.step_runner(&name, Input::Tick),
            }
        }
    }
}

// === requests and what may go wrong with them ===

enum Luck {
    Fine,
    Lost,
    Refused,
    Crash,
}

impl World {
    /// What becomes of the next request; `Crash` has happened already.
    fn luck(&mut self) -> Luck {
        self.requests += 1;
        match self.fault {
            Some(Fault::LostAnswer(at)) if at == self.requests => Luck::Lost,
            Some(Fault::Refused(at)) if at == self.requests => Luck::Refused,
            Some(Fault::CrashBefore(at)) if at == self.requests => Luck::Crash,
            _ => Luck::Fine,
        }
    }

    fn crashes_after(&self) -> bool {
        self.fault == Some(Fault::CrashAfter(self.requests))
    }

    fn run_kube(&mut self, to: To, tag: SetOrRunnerTag, request: &KubeRequest) {
        let unanswered = |kind| {
            Err(KubeError {
                kind,
                message: "the wire broke".to_owned(),
                retry_after: None,
            })
        };
        let result = match self.luck() {
            Luck::Crash => return self.restart(),
            Luck::Refused => unanswered(KubeErrorKind::Unavailable),
            Luck::Lost => {
                let _ = self.serve(request);
                unanswered(KubeErrorKind::Unanswered)
            }
            Luck::Fine => self.serve(request),
        };
        if self.crashes_after() {
            return self.restart();
        }
        match (to, tag) {
            (To::Set, SetOrRunnerTag::Set(tag)) => {
                self.inbox.push_back(Message::Set(Input::Kube(tag, result)));
            }
            (To::Runner(name), SetOrRunnerTag::Runner(tag)) => {
                self.inbox
                    .push_back(Message::Runner(name, Input::Kube(tag, result)));
            }
            _ => unreachable!(),
        }
    }

    fn run_actions(
        &mut self,
        name: String,
        tag: RunnerTag,
        request: ActionsRequest,
        claim: Option<Claim>,
    ) {
        let unavailable = Err(error_of(ActionsErrorKind::Unavailable));
        let result = match self.luck() {
            Luck::Crash => return self.restart(),
            Luck::Refused => unavailable,
            Luck::Lost => {
                let _ = self.serve_actions(&request.call);
                unavailable
            }
            Luck::Fine => self.serve_actions(&request.call),
        };
        if self.crashes_after() {
            return self.restart();
        }
        if let Some(claim) = claim {
            self.unregistrar.finished(claim, result, self.now);
            self.run_unregistrar();
        } else {
            self.inbox
                .push_back(Message::Runner(name, Input::Actions(tag, result)));
        }
    }
}

// === the Actions service ===

impl World {
    fn serve_actions(&mut self, call: &ActionsCall) -> Result<ActionsAnswer, ActionsError> {
        self.log.push(format!("{} {call:?}", call.name()));
        if let Some(kind) = self.refuse_calls.get(call.name()) {
            return Err(error_of(*kind));
        }
        match call {
            ActionsCall::GenerateJitConfig {
                scale_set_id, name, ..
            } => {
                if self.is_registered(name) {
                    return Err(error_of(ActionsErrorKind::RunnerExists));
                }
                self.next_runner += 1;
                let id = self.next_runner;
                self.registered.insert(
                    id,
                    Registered {
                        name: name.clone(),
                        scale_set: *scale_set_id,
                        busy: false,
                    },
                );
                Ok(ActionsAnswer::Jit(JitConfig {
                    runner: Runner {
                        id,
                        name: name.clone(),
                        scale_set_id: *scale_set_id,
                    },
                    encoded: SecretString::from(format!("jit-{id}")),
                }))
            }
            ActionsCall::FindRunner { name } => Ok(ActionsAnswer::Runner(
                self.registered
                    .iter()
                    .find(|(_, registered)| registered.name == *name)
                    .map(|(id, registered)| Runner {
                        id: *id,
                        name: name.clone(),
                        scale_set_id: registered.scale_set,
                    }),
            )),
            ActionsCall::RemoveRunner { id } => match self.registered.get(id) {
                _ if *id == 0 => {
                    self.violations.push("asked about id 0".to_owned());
                    Err(error_of(ActionsErrorKind::RunnerNotFound))
                }
                None => Err(error_of(ActionsErrorKind::RunnerNotFound)),
                Some(registered) if registered.busy => {
                    Err(error_of(ActionsErrorKind::JobStillRunning))
                }
                Some(_) => {
                    self.registered.remove(id);
                    Ok(ActionsAnswer::Done)
                }
            },
            other => panic!("not expected of runners: {other:?}"),
        }
    }
}

pub fn error_of(kind: ActionsErrorKind) -> ActionsError {
    ActionsError {
        kind,
        message: format!("the service said {kind}"),
        retry_after: None,
    }
}

// === the API server ===

fn object(value: &Value) -> Object {
    fn read<T: serde::de::DeserializeOwned + Into<Object>>(value: &Value) -> Object {
        serde_json::from_value::<T>(value.clone()).unwrap().into()
    }
    use k8s_openapi::api::core::v1::{Pod, Secret};
    match value["kind"].as_str().unwrap() {
        "EphemeralRunnerSet" => read::<EphemeralRunnerSet>(value),
        "EphemeralRunner" => read::<EphemeralRunner>(value),
        "Pod" => read::<Pod>(value),
        "Secret" => read::<Secret>(value),
        other => panic!("unknown kind {other}"),
    }
}

fn value(object: &Object) -> Value {
    match object {
        Object::EphemeralRunnerSet(inner) => json!(**inner),
        Object::EphemeralRunner(inner) => json!(**inner),
        Object::Pod(inner) => json!(**inner),
        Object::Secret(inner) => json!(**inner),
        other => panic!("unknown kind {other:?}"),
    }
}

fn kube_error(kind: KubeErrorKind) -> KubeError {
    KubeError {
        kind,
        message: format!("the API server said {kind:?}"),
        retry_after: None,
    }
}

impl World {
    fn all(&self, kind: Kind) -> Vec<Object> {
        self.objects
            .iter()
            .filter(|(target, _)| target.kind == kind)
            .map(|(_, value)| object(value))
            .collect()
    }

    fn serve(&mut self, request: &KubeRequest) -> Result<KubeAnswer, KubeError> {
        self.log.push(format!("{request:?}"));
        match request {
            KubeRequest::Get(target) => self
                .objects
                .get(target)
                .map(|value| KubeAnswer::Object(object(value)))
                .ok_or_else(|| kube_error(KubeErrorKind::NotFound)),
            KubeRequest::List { kind, selector, .. } => {
                let (key, wanted) = selector.split_once('=').unwrap();
                Ok(KubeAnswer::Objects(
                    self.all(*kind)
                        .into_iter()
                        .filter(|object| {
                            let labels = object.meta().labels.as_ref();
                            labels
                                .and_then(|labels| labels.get(key))
                                .map(String::as_str)
                                == Some(wanted)
                        })
                        .collect(),
                ))
            }
            KubeRequest::Create(object) => self.create(object),
            KubeRequest::Patch {
                target, body, lock, ..
            } => {
                let live = self
                    .objects
                    .get(target)
                    .ok_or_else(|| kube_error(KubeErrorKind::NotFound))?;
                let version = live["metadata"]["resourceVersion"].as_str();
                if lock.is_some() && lock.as_deref() != version {
                    return Err(kube_error(KubeErrorKind::Conflict));
                }
                Ok(KubeAnswer::Object(self.merge(target, body)))
            }
            KubeRequest::Delete {
                target, uid, grace, ..
            } => {
                if let (Some(uid), Some(live)) = (uid, self.objects.get(target))
                    && live["metadata"]["uid"].as_str() != Some(uid)
                {
                    return Err(kube_error(KubeErrorKind::Conflict));
                }
                self.check_deletion(target);
                self.remove(target, *grace)
            }
        }
    }

    fn create(&mut self, wanted: &Object) -> Result<KubeAnswer, KubeError> {
        if let Some(kind) = self.refuse_creates.get(&wanted.kind()) {
            return Err(kube_error(*kind));
        }
        if self.objects.contains_key(&wanted.reference()) {
            return Err(kube_error(KubeErrorKind::AlreadyExists));
        }
        if wanted.kind() == Kind::EphemeralRunner {
            self.check_creation(&wanted.reference().name);
        }
        Ok(KubeAnswer::Object(self.apply(value(wanted))))
    }

    fn apply(&mut self, mut value: Value) -> Object {
        self.version += 1;
        let meta = value["metadata"].as_object_mut().unwrap();
        meta.insert("uid".to_owned(), json!(format!("uid-{}", self.version)));
        meta.insert("creationTimestamp".to_owned(), json!(self.now));
        meta.insert(
            "resourceVersion".to_owned(),
            json!(self.version.to_string()),
        );
        let created = object(&value);
        self.objects.insert(created.reference(), value);
        self.inbox.push_back(Message::Watch(created.clone()));
        created
    }

    fn merge(&mut self, target: &ObjectRef, patch: &Value) -> Object {
        let live = self.objects.get_mut(target).unwrap();
        json_patch::merge(live, patch);
        self.version += 1;
        live["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let updated = object(live);
        let meta = updated.meta();
        let done = meta.deletion_timestamp.is_some()
            && meta.finalizers.iter().flatten().next().is_none()
            && updated.kind() != Kind::Pod;
        if done {
            self.objects.remove(target);
            let uid = updated.uid().to_owned();
            self.inbox.push_back(Message::Gone(target.clone(), uid));
        } else {
            self.inbox.push_back(Message::Watch(updated.clone()));
        }
        updated
    }

    /// As the server deletes: what has finalizers or a grace period lingers.
    fn remove(&mut self, target: &ObjectRef, grace: Option<u32>) -> Result<KubeAnswer, KubeError> {
        let live = self
            .objects
            .get(target)
            .ok_or_else(|| kube_error(KubeErrorKind::NotFound))?;
        let meta = object(live);
        let meta = meta.meta();
        let scheduled = !live["spec"]["nodeName"].is_null();
        let lingers = meta.finalizers.iter().flatten().next().is_some()
            || (target.kind == Kind::Pod && grace != Some(0) && scheduled);
        if lingers {
            if meta.deletion_timestamp.is_some() {
                return Ok(KubeAnswer::Object(object(live)));
            }
            let stamp = json!({ "metadata": { "deletionTimestamp": self.now } });
            return Ok(KubeAnswer::Object(self.merge(target, &stamp)));
        }
        let uid = meta.uid.clone().unwrap_or_default();
        self.objects.remove(target);
        self.inbox.push_back(Message::Gone(target.clone(), uid));
        Ok(KubeAnswer::Deleted)
    }

    // === nodes, and what must hold ===

    /// Starts new pods and lets ones go that are being deleted. Says whether it did anything.
    fn nodes_act(&mut self) -> bool {
        let pods: Vec<(ObjectRef, Value)> = self
            .objects
            .iter()
            .filter(|(target, _)| target.kind == Kind::Pod)
            .map(|(target, value)| (target.clone(), value.clone()))
            .collect();
        for (target, pod) in pods {
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                let _ = self.remove(&target, Some(0));
                return true;
            }
            if self.auto_start && pod["status"]["phase"].is_null() {
                self.up(&target.name);
                return true;
            }
        }
        false
    }

    /// Never more runners than the newest `replicas` allows.
    fn check_creation(&mut self, name: &str) {
        let replicas = self.set().spec.replicas.unwrap_or(0);
        let alive = self
            .all(Kind::EphemeralRunner)
            .iter()
            .filter(|object| {
                let done = value(object)["status"]["phase"]
                    .as_str()
                    .is_some_and(|phase| matches!(phase, "Succeeded" | "Failed" | "Outdated"));
                let name = &object.meta().name.clone().unwrap();
                let pod = ObjectRef::new(Kind::Pod, NAMESPACE, name.as_str());
                let deleting = object.meta().deletion_timestamp.is_some();
                !done && (!deleting || self.objects.contains_key(&pod))
            })
            .count();
        if i64::try_from(alive).unwrap() >= replicas {
            self.violations
                .push(format!("{name} created beside {alive}, wanted {replicas}"));
        }
        let set = self.set();
        let counted = set
            .status
            .and_then(|status| status.finished_runner_cleanup_patch_id)
            .unwrap_or(0);
        if set.spec.patch_id > 0 && counted == set.spec.patch_id {
            self.violations
                .push(format!("{name} created for a job that is done"));
        }
        if !self.created.insert(name.to_owned()) {
            self.violations.push(format!("{name} created twice"));
        }
    }

    /// A pod whose runner has a job is not deleted while it runs.
    fn check_deletion(&mut self, target: &ObjectRef) {
        if target.kind != Kind::Pod {
            return;
        }
        let runs = self
            .objects
            .get(target)
            .is_some_and(|pod| pod["status"]["phase"].as_str() == Some("Running"));
        let busy = self
            .registered
            .values()
            .any(|registered| registered.busy && registered.name == target.name);
        if runs && busy {
            self.violations
                .push(format!("pod {} deleted under its job", target.name));
        }
    }
}
