//! Objects and answers for the tests, and a runner that is driven by hand.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Secret};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::actors::core::cached::Verb;
use crate::actors::runner::{Origin, RunnerMachine, RunnerTag};
use crate::actors::{EffectOf, InputOf, Machine};
use crate::api::EphemeralRunner;
use crate::clock::{Timestamp, after};
use crate::messages::{
    ActionsAnswer, ActionsCall, ActionsError, ActionsErrorKind, Effect, Input, JitConfig, Kind,
    KubeAnswer, KubeError, KubeErrorKind, KubeRequest, Object, ObjectRef, Runner, RunnerCommand,
    RunnerReport,
};
use crate::resources::ControllerSettings;

pub const NAME: &str = "pool-runner-x7k2m";
pub const ID: i64 = 42;

pub fn start() -> Timestamp {
    after(Timestamp::UNIX_EPOCH, 1_800_000_000)
}

/// An EphemeralRunner, with `patch` merged over it.
pub fn er(version: u32, patch: Value) -> Arc<EphemeralRunner> {
    let mut value = json!({
        "apiVersion": "actions.github.com/v1alpha1", "kind": "EphemeralRunner",
        "metadata": {
            "name": NAME, "namespace": "arc-runners", "uid": "er-uid",
            "resourceVersion": version.to_string(), "creationTimestamp": start(),
            "labels": { "team": "blue" },
            "annotations": {
                "actions.github.com/patch-id": "5",
                "actions.github.com/actionable-revision": "3"
            },
            "finalizers": [
                "ephemeralrunner.actions.github.com/finalizer",
                "ephemeralrunner.actions.github.com/runner-registration-finalizer"
            ]
        },
        "spec": {
            "githubConfigUrl": "https://github.com/acme/widgets",
            "githubConfigSecret": "gh", "runnerScaleSetId": 11,
            "spec": { "containers": [
                { "name": "runner", "image": "img:1", "workingDir": "/work" },
                { "name": "side", "image": "side:1" }] }
        }
    });
    json_patch::merge(&mut value, &patch);
    Arc::new(serde_json::from_value(value).unwrap())
}

/// The runner's pod, with this status.
pub fn pod(version: u32, status: Value) -> Arc<Pod> {
    let mut value = json!({
        "metadata": {
            "name": NAME, "namespace": "arc-runners", "uid": "pod-uid",
            "resourceVersion": version.to_string(), "creationTimestamp": start(),
            "ownerReferences": [{ "apiVersion": "actions.github.com/v1alpha1",
                "kind": "EphemeralRunner", "name": NAME, "uid": "er-uid" }]
        },
        "spec": { "nodeName": "node-a", "restartPolicy": "Never", "containers": [
            { "name": "runner", "image": "img:1" }, { "name": "side", "image": "side:1" }] }
    });
    json_patch::merge(&mut value, &json!({ "status": status }));
    Arc::new(serde_json::from_value(value).unwrap())
}

/// A pod whose containers `runner` and `side` are in these states.
pub fn pod_in(version: u32, phase: &str, runner: Value, side: Value) -> Arc<Pod> {
    let container = |name: &str, state: Value| {
        json!({ "name": name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": state })
    };
    let ready = if phase == "Running" { "True" } else { "False" };
    pod(
        version,
        json!({
            "phase": phase,
            "conditions": [
                { "type": "PodScheduled", "status": "True", "lastTransitionTime": start() },
                { "type": "Initialized", "status": "True", "lastTransitionTime": start() },
                { "type": "Ready", "status": ready, "lastTransitionTime": start() }],
            "containerStatuses": [container("runner", runner), container("side", side)]
        }),
    )
}

pub fn running() -> Value {
    json!({ "running": { "startedAt": start() } })
}

pub fn ended(code: i32) -> Value {
    json!({ "terminated": { "exitCode": code } })
}

pub fn secret(version: u32, id: &str) -> Arc<Secret> {
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {
                "name": NAME, "namespace": "arc-runners", "uid": "secret-uid",
                "resourceVersion": version.to_string(),
                "ownerReferences": [{ "apiVersion": "actions.github.com/v1alpha1",
                    "kind": "EphemeralRunner", "name": NAME, "uid": "er-uid" }]
            },
            "data": {
                "jitToken": base64(b"jit"), "runnerName": base64(NAME.as_bytes()),
                "runnerId": base64(id.as_bytes()), "scaleSetId": base64(b"11")
            }
        }))
        .unwrap(),
    )
}

fn base64(bytes: &[u8]) -> String {
    json!(k8s_openapi::ByteString(bytes.to_vec()))
        .as_str()
        .unwrap()
        .to_owned()
}

/// A status with which a runner is on record as registered, and with `more`.
pub fn known(more: Value) -> Value {
    let mut status = json!({ "phase": "Pending", "runnerId": ID, "runnerName": NAME });
    json_patch::merge(&mut status, &more);
    json!({ "status": status })
}

pub fn with_job(more: Value) -> Value {
    let mut job = json!({ "phase": "Running", "jobId": "job-9", "jobRequestId": 9 });
    json_patch::merge(&mut job, &more);
    known(job)
}

pub fn deleted(patch: Value) -> Value {
    let mut value = json!({ "metadata": { "deletionTimestamp": after(start(), 60) } });
    json_patch::merge(&mut value, &patch);
    value
}

pub fn jit() -> Result<ActionsAnswer, ActionsError> {
    Ok(ActionsAnswer::Jit(JitConfig {
        runner: Runner {
            id: ID,
            name: NAME.to_owned(),
            scale_set_id: 11,
        },
        encoded: SecretString::from("jit"),
    }))
}

pub fn refused(kind: ActionsErrorKind) -> Result<ActionsAnswer, ActionsError> {
    Err(ActionsError {
        kind,
        message: format!("service: {kind}"),
        retry_after: None,
    })
}

pub fn kube_error(kind: KubeErrorKind) -> Result<KubeAnswer, KubeError> {
    Err(KubeError {
        kind,
        message: format!("server: {kind:?}"),
        retry_after: None,
    })
}

pub fn answer(object: impl Into<Object>) -> Result<KubeAnswer, KubeError> {
    Ok(KubeAnswer::Object(object.into()))
}

/// A runner and the time.
pub struct Hand {
    pub machine: RunnerMachine,
    pub now: Timestamp,
    pub report: Option<RunnerReport>,
    pub events: Vec<&'static str>,
    pub wake: Option<Timestamp>,
    pub stopped: bool,
}

impl Hand {
    pub fn created() -> (Self, Vec<String>) {
        let runner = er(10, json!({}));
        let mut hand = Self::new(Origin::Created(runner.clone()));
        let asked = hand.observe(Object::EphemeralRunner(runner));
        (hand, asked)
    }

    /// One found with this status, whose pod and Secret have been read.
    pub fn found(runner: Arc<EphemeralRunner>, pod: Option<Arc<Pod>>) -> (Self, Vec<String>) {
        let mut hand = Self::new(Origin::Found(Some(runner)));
        let first = hand.tick();
        assert_eq!(first[0], "get Pod");
        let result = pod.map_or_else(
            || kube_error(KubeErrorKind::NotFound),
            |pod| Ok(KubeAnswer::Object(Object::Pod(pod))),
        );
        let mut asked = first[1..].to_vec();
        asked.extend(hand.kube(RunnerTag::Pod(Verb::Read), result));
        if asked.contains(&"get Secret".to_owned()) {
            let secret = Object::Secret(secret(2, "42"));
            let more = hand.kube(
                RunnerTag::Secret(Verb::Read),
                Ok(KubeAnswer::Object(secret)),
            );
            asked.retain(|line| line != "get Secret");
            asked.extend(more);
        }
        (hand, asked)
    }

    pub fn new(origin: Origin) -> Self {
        Self::named(NAME, origin)
    }

    pub fn named(name: &str, origin: Origin) -> Self {
        Self::with(name, origin, ControllerSettings::default())
    }

    pub fn with(name: &str, origin: Origin, settings: ControllerSettings) -> Self {
        let settings = Arc::new(settings);
        Self {
            machine: RunnerMachine::new("arc-runners", name, "pool", origin, settings),
            now: start(),
            report: None,
            events: Vec::new(),
            wake: None,
            stopped: false,
        }
    }

    /// Takes an input and answers with what is asked, in words.
    pub fn step(&mut self, input: InputOf<RunnerMachine>) -> Vec<String> {
        self.wake = None;
        let effects = self.machine.step(self.now, input);
        effects
            .into_iter()
            .filter_map(|effect| self.note(effect))
            .collect()
    }

    fn note(&mut self, effect: EffectOf<RunnerMachine>) -> Option<String> {
        match effect {
            Effect::Kube(_, request) => return Some(words(&request)),
            Effect::Actions(_, request) => return Some(call(&request.call)),
            Effect::Unregister(_, request) => return Some(call(&request.call)),
            Effect::WakeAt(time) => self.wake = Some(time),
            Effect::Event(note) => self.events.push(note.reason),
            Effect::Count(_) => {}
            Effect::Report(report) => self.report = Some(report),
            Effect::Stop => self.stopped = true,
            Effect::Child(never) => match never {},
        }
        None
    }

    pub fn observe(&mut self, object: Object) -> Vec<String> {
        self.step(Input::Observed(object))
    }

    pub fn sees_pod(&mut self, pod: Arc<Pod>) -> Vec<String> {
        self.observe(Object::Pod(pod))
    }

    pub fn sees_runner(&mut self, runner: Arc<EphemeralRunner>) -> Vec<String> {
        self.observe(Object::EphemeralRunner(runner))
    }

    pub fn gone(&mut self, kind: Kind, uid: &str) -> Vec<String> {
        self.step(Input::Gone {
            object: ObjectRef::new(kind, "arc-runners", NAME),
            uid: uid.to_owned(),
        })
    }

    pub fn kube(&mut self, tag: RunnerTag, result: Result<KubeAnswer, KubeError>) -> Vec<String> {
        self.step(Input::Kube(tag, result))
    }

    pub fn actions(
        &mut self,
        tag: RunnerTag,
        result: Result<ActionsAnswer, ActionsError>,
    ) -> Vec<String> {
        self.step(Input::Actions(tag, result))
    }

    pub fn tell(&mut self, command: RunnerCommand) -> Vec<String> {
        self.step(Input::Command(command))
    }

    pub fn tick(&mut self) -> Vec<String> {
        self.step(Input::Tick)
    }

    pub fn after(&mut self, seconds: i64) -> Vec<String> {
        self.now = after(self.now, seconds);
        self.tick()
    }

    pub fn wakes_in(&self) -> Option<i64> {
        self.wake
            .map(|time| time.duration_since(self.now).as_secs())
    }
}

fn words(request: &KubeRequest) -> String {
    request.assert_guarded();
    let kind = request.kind();
    match request {
        KubeRequest::Get(_) => format!("get {kind}"),
        KubeRequest::List { selector, .. } => format!("list {kind} {selector}"),
        KubeRequest::Create(_) => format!("create {kind}"),
        KubeRequest::Patch { body, lock, .. } => {
            let lock = lock
                .as_ref()
                .map_or(String::new(), |lock| format!(" at {lock}"));
            format!("patch {kind}{lock} {body}")
        }
        KubeRequest::DropFinalizer { finalizer, .. } => format!("drop {finalizer} of {kind}"),
        KubeRequest::Delete {
            grace,
            target,
            lock,
            ..
        } => {
            let name = if target.name == NAME {
                String::new()
            } else {
                format!(" {}", target.name)
            };
            let lock = lock
                .as_ref()
                .map_or(String::new(), |lock| format!(" at {lock}"));
            match grace {
                Some(seconds) => format!("delete {kind}{name}{lock} grace {seconds}"),
                None => format!("delete {kind}{name}{lock}"),
            }
        }
    }
}

fn call(call: &ActionsCall) -> String {
    match call {
        ActionsCall::RemoveRunner { id } => format!("remove {id}"),
        ActionsCall::GenerateJitConfig {
            scale_set_id,
            name,
            work_folder,
        } => {
            format!("register {name} in {scale_set_id} at {work_folder}")
        }
        ActionsCall::FindRunner { name } => format!("find {name}"),
        other => other.name().to_owned(),
    }
}
