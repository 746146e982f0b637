//! A scale set machine with its listeners' machines, a runner set that somebody plays, and the
//! servers that they talk to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::actors::listener::ListenerMachine;
use crate::actors::listener::tests::cluster::{Cluster, Shown};
use crate::actors::scale_set::{
    ChildReport, ScaleSetCommand, ScaleSetMachine, ScaleSetReport, ScaleSetTag, Sharer,
};
use crate::actors::{EffectOf, InputOf, Machine};
use crate::api::constants::finalizers;
use crate::api::{
    AutoscalingListener, AutoscalingRunnerSet, AutoscalingRunnerSetPhase, EphemeralRunnerSet,
    Policy,
};
use crate::clock::{Timestamp, after};
use crate::messages::{
    ActionsAnswer, ActionsCall, ActionsError, ActionsErrorKind, ActionsRequest, Effect, EventNote,
    Input, Kind, KubeObject, KubeRequest, ListenerDirective, Object, ObjectRef, Rejected,
    RunnerCounts, RunnerGroup, RunnerScaleSet, RunnerSetDirective, RunnerSetReport,
    ScaleSetDirective, Tally,
};
use crate::resources::ControllerSettings;

pub const CONTROLLER: &str = "control";
pub const RUNNERS: &str = "runners";
pub const POOL: &str = "pool";

/// The Actions service.
#[derive(Default)]
pub struct Service {
    pub sets: BTreeMap<i64, RunnerScaleSet>,
    pub calls: Vec<ActionsCall>,
    /// Answers every call while it is there.
    pub fault: Option<ActionsErrorKind>,
    /// How long it asks to wait then.
    pub wait: Option<std::time::Duration>,
    /// Id of the next scale set.
    pub next: i64,
}

impl Service {
    pub fn count(&self, call: &str) -> usize {
        self.calls.iter().filter(|one| one.name() == call).count()
    }

    fn run(&mut self, request: ActionsRequest) -> Result<ActionsAnswer, ActionsError> {
        self.calls.push(request.call.clone());
        let number = self.calls.len();
        self.answer(request.call).map_err(|mut error| {
            error.retry_after = self.wait;
            // as the client does it: with ids that differ each time
            error.message += &format!(" (ActivityId a-{number}, X-GitHub-Request-Id r-{number})");
            error
        })
    }

    fn answer(&mut self, call: ActionsCall) -> Result<ActionsAnswer, ActionsError> {
        if let Some(kind) = self.fault {
            return Err(failure(kind));
        }
        match call {
            ActionsCall::GetRunnerGroup { name } if name == "gpu" => {
                Ok(ActionsAnswer::Group(RunnerGroup { id: 7, name }))
            }
            ActionsCall::GetRunnerGroup { .. } => Err(failure(ActionsErrorKind::GroupNotFound)),
            ActionsCall::FindScaleSet { group_id, name } => {
                let found = self
                    .sets
                    .values()
                    .find(|set| set.group_id == group_id && set.name.eq_ignore_ascii_case(&name));
                Ok(ActionsAnswer::ScaleSet(found.cloned()))
            }
            ActionsCall::GetScaleSet { id } => {
                Ok(ActionsAnswer::ScaleSet(self.sets.get(&id).cloned()))
            }
            ActionsCall::CreateScaleSet {
                name,
                group_id,
                labels,
            } => {
                self.next += 1;
                let id = self.next;
                Ok(self.put(id, name, group_id, labels))
            }
            ActionsCall::UpdateScaleSet {
                id,
                name,
                group_id,
                labels,
            } => {
                if !self.sets.contains_key(&id) {
                    return Err(failure(ActionsErrorKind::ScaleSetNotFound));
                }
                Ok(self.put(id, name, group_id, labels))
            }
            ActionsCall::DeleteScaleSet { id } => {
                self.sets.remove(&id);
                Ok(ActionsAnswer::Done)
            }
            other => panic!("a scale set does not call {}", other.name()),
        }
    }

    pub fn put(
        &mut self,
        id: i64,
        name: String,
        group_id: i64,
        labels: Vec<String>,
    ) -> ActionsAnswer {
        let group_name = if group_id == 7 { "gpu" } else { "Default" };
        let set = RunnerScaleSet {
            id,
            name,
            group_id,
            group_name: group_name.to_owned(),
            labels,
        };
        self.sets.insert(id, set.clone());
        ActionsAnswer::ScaleSet(Some(set))
    }
}

pub fn failure(kind: ActionsErrorKind) -> ActionsError {
    ActionsError {
        kind,
        message: format!("the service says {kind}"),
        retry_after: None,
    }
}

pub struct World {
    pub cluster: Cluster,
    pub service: Service,
    pub machine: ScaleSetMachine,
    listeners: BTreeMap<String, ListenerMachine>,
    /// Whether there is an actor for the runner set.
    runner_set: bool,
    pub counts: RunnerCounts,
    /// A runner that it says was rejected.
    pub rejected: Option<Rejected>,
    /// Whether it applies each new revision at once.
    pub applies: bool,
    settings: Arc<ControllerSettings>,
    pub reports: Vec<ScaleSetReport>,
    pub events: Vec<EventNote>,
    pub tallies: Vec<Tally>,
    /// Directives to children, as text.
    pub directives: Vec<String>,
    pub stopped: bool,
    /// Pods of listeners get running by themselves.
    pub kubelet: bool,
    pub most_pods: usize,
    /// Watch events overtake answers.
    pub watch_first: bool,
    /// Answers to creations of this kind by the scale set are kept back, and no watch shows it.
    pub hold: Option<Kind>,
    /// Answers of the Actions service are kept back.
    pub hold_calls: bool,
    held: Vec<Message>,
    wake: BTreeMap<String, Timestamp>,
    queue: VecDeque<Message>,
}

enum Message {
    ScaleSet(InputOf<ScaleSetMachine>),
    Listener(String, InputOf<ListenerMachine>),
}

pub fn scale_set() -> Value {
    json!({
        "metadata": {
            "name": POOL, "namespace": RUNNERS,
            "labels": {"app.kubernetes.io/version": "0.14.2", "team": "build"},
        },
        "spec": {
            "githubConfigUrl": "https://github.com/acme/widgets",
            "githubConfigSecret": "credentials",
            "maxRunners": 9,
            "template": {"spec": {"containers": [{"name": "runner", "image": "runner:1"}]}},
        },
    })
}

/// Another set that says that it has the same scale set.
pub fn sharer(proven: bool) -> Sharer {
    Sharer {
        name: "team-b/pool".to_owned(),
        proven,
    }
}

impl World {
    pub fn new() -> Self {
        let settings = Arc::new(ControllerSettings {
            namespace: CONTROLLER.to_owned(),
            listener_image: "listener:1".to_owned(),
            ..ControllerSettings::default()
        });
        let mut world = Self {
            cluster: Cluster::new(),
            service: Service {
                next: 10,
                ..Service::default()
            },
            machine: ScaleSetMachine::new(RUNNERS, POOL, settings.clone()),
            listeners: BTreeMap::new(),
            runner_set: false,
            counts: RunnerCounts::default(),
            rejected: None,
            applies: true,
            settings,
            reports: Vec::new(),
            events: Vec::new(),
            tallies: Vec::new(),
            directives: Vec::new(),
            stopped: false,
            kubelet: true,
            most_pods: 0,
            watch_first: false,
            hold: None,
            hold_calls: false,
            held: Vec::new(),
            wake: BTreeMap::new(),
            queue: VecDeque::new(),
        };
        let secret: Object = crate::actors::listener::tests::cluster::from_value(
            Kind::Secret,
            json!({"metadata": {"name": "credentials", "namespace": RUNNERS},
                   "data": {"github_token": "dDBwLXMzY3JldA=="}}),
        );
        world.cluster.apply(secret);
        world.apply(scale_set());
        world
            .queue
            .push_back(Message::ScaleSet(Input::Command(ScaleSetCommand::Synced)));
        world
    }

    pub fn settled() -> Self {
        let mut world = Self::new();
        world.pass(5);
        assert_eq!(world.phase(), Some(AutoscalingRunnerSetPhase::Running));
        world
    }

    pub fn apply(&mut self, scale_set: Value) {
        let object = crate::actors::listener::tests::cluster::from_value(
            Kind::AutoscalingRunnerSet,
            scale_set,
        );
        self.cluster.apply(object);
    }

    pub fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        self.cluster
            .edit(Kind::AutoscalingRunnerSet, RUNNERS, POOL, change);
    }

    pub fn edit_set(&mut self, change: impl FnOnce(&mut Value)) {
        self.cluster
            .edit(Kind::EphemeralRunnerSet, RUNNERS, POOL, change);
    }

    // === looking at it ===

    pub fn ars(&self) -> Arc<AutoscalingRunnerSet> {
        self.cluster.get(RUNNERS, POOL).unwrap()
    }

    pub fn ers(&self) -> Arc<EphemeralRunnerSet> {
        self.cluster.get(RUNNERS, POOL).unwrap()
    }

    pub fn al(&self) -> Arc<AutoscalingListener> {
        let names = self.cluster.names(Kind::AutoscalingListener);
        assert_eq!(names.len(), 1, "{names:?}");
        self.cluster.get(CONTROLLER, &names[0]).unwrap()
    }

    pub fn phase(&self) -> Option<AutoscalingRunnerSetPhase> {
        self.ars().status.as_ref().and_then(|status| status.phase)
    }

    pub fn is_observed(&self) -> bool {
        let ars = self.ars();
        let observed = ars
            .status
            .as_ref()
            .and_then(|status| status.observed_generation);
        observed == ars.metadata.generation
    }

    /// A condition as `status reason: message`.
    pub fn condition(&self, kind: &str) -> String {
        let ars = self.ars();
        let all = &ars.status.as_ref().unwrap().conditions;
        let found = all.iter().find(|one| one.type_ == kind);
        found.map_or("absent".to_owned(), |one| {
            format!("{} {}: {}", one.status, one.reason, one.message)
        })
    }

    pub fn annotation(&self, key: &str) -> String {
        let ars = self.ars();
        let all = ars.metadata.annotations.clone().unwrap_or_default();
        all.get(key).cloned().unwrap_or_default()
    }

    pub fn events_of(&self, reason: &str) -> usize {
        let those = self.events.iter().filter(|note| note.reason == reason);
        those.count()
    }

    // === running it ===

    pub fn settle(&mut self) {
        for _ in 0..20_000 {
            let pods = self.cluster.names(Kind::Pod).len();
            self.most_pods = self.most_pods.max(pods);
            if let Some(shown) = self.overtaking() {
                self.route(shown);
            } else if let Some(message) = self.queue.pop_front() {
                self.handle(message);
            } else if let Some(shown) = self.cluster.shown.pop_front() {
                self.route(shown);
            } else if !(self.kubelet && self.play_kubelet()) {
                return;
            }
        }
        panic!("it does not come to rest: {:#?}", self.cluster.writes);
    }

    fn overtaking(&mut self) -> Option<Shown> {
        let shown = &mut self.cluster.shown;
        self.watch_first.then(|| shown.pop_front()).flatten()
    }

    /// Lets the answers go that were kept back.
    pub fn release(&mut self) {
        self.hold = None;
        self.hold_calls = false;
        self.queue.extend(self.held.drain(..));
        self.settle();
    }

    /// Lets the answers go that were kept back, and keeps back those to the next calls.
    pub fn release_calls_once(&mut self) {
        self.queue.extend(self.held.drain(..));
        self.settle();
    }

    pub fn pass(&mut self, seconds: i64) {
        let end = after(self.cluster.now, seconds);
        self.settle();
        loop {
            let next = self.wake.iter().min_by_key(|(_, time)| **time);
            let Some((who, time)) = next.map(|(who, time)| (who.clone(), *time)) else {
                break;
            };
            if time > end {
                break;
            }
            self.wake.remove(&who);
            self.cluster.now = time.max(self.cluster.now);
            let message = if who.is_empty() {
                Message::ScaleSet(Input::Tick)
            } else {
                Message::Listener(who, Input::Tick)
            };
            self.queue.push_back(message);
            self.settle();
        }
        self.cluster.now = end;
    }

    fn handle(&mut self, message: Message) {
        let now = self.cluster.now;
        match message {
            Message::ScaleSet(input) => {
                let effects = self.machine.step(now, input);
                self.carry_out(effects);
            }
            Message::Listener(name, input) => {
                if let Some(machine) = self.listeners.get_mut(&name) {
                    let effects = machine.step(now, input);
                    self.carry_out_for(&name, effects);
                }
            }
        }
    }

    fn route(&mut self, shown: Shown) {
        let (object, input) = match &shown {
            Shown::Observed(object) => (object.reference(), None),
            Shown::Gone(object, uid) => (object.clone(), Some(uid.clone())),
        };
        match object.kind {
            Kind::EphemeralRunnerSet if self.runner_set && object.name == POOL => {
                return self.play_runner_set();
            }
            Kind::AutoscalingRunnerSet | Kind::EphemeralRunnerSet | Kind::EphemeralRunner => {}
            _ if self.listeners.contains_key(&object.name) => {
                let name = object.name;
                let input = match shown {
                    Shown::Observed(object) => Input::Observed(object),
                    Shown::Gone(object, uid) => Input::Gone { object, uid },
                };
                return self.queue.push_back(Message::Listener(name, input));
            }
            Kind::AutoscalingListener => {}
            _ => return,
        }
        let input = match (shown, input) {
            (Shown::Observed(object), _) => Input::Observed(object),
            (_, uid) => Input::Gone {
                object,
                uid: uid.unwrap(),
            },
        };
        self.queue.push_back(Message::ScaleSet(input));
    }

    fn carry_out(&mut self, effects: Vec<EffectOf<ScaleSetMachine>>) {
        for effect in effects {
            match effect {
                Effect::Kube(tag, request) => {
                    let result = self.cluster.run(&request);
                    let answer = Message::ScaleSet(Input::Kube(tag, result));
                    if is_create(&request) && Some(request.kind()) == self.hold {
                        self.cluster.shown.pop_back();
                        self.held.push(answer);
                    } else {
                        self.queue.push_back(answer);
                    }
                }
                Effect::Actions(tag, request) => {
                    let result = self.service.run(request);
                    let answer = Message::ScaleSet(Input::Actions(tag, result));
                    if self.hold_calls {
                        self.held.push(answer);
                    } else {
                        self.queue.push_back(answer);
                    }
                }
                Effect::WakeAt(time) => self.wake_at(String::new(), time),
                Effect::Event(note) => self.events.push(note),
                Effect::Count(tally) => self.tallies.push(tally),
                Effect::Report(report) => self.reports.push(report),
                Effect::Child(directive) => self.direct(directive),
                Effect::Stop => self.stopped = true,
                Effect::Unregister(..) => unreachable!(),
            }
        }
    }

    fn carry_out_for(&mut self, name: &str, effects: Vec<EffectOf<ListenerMachine>>) {
        for effect in effects {
            match effect {
                Effect::Kube(tag, request) => {
                    let result = self.cluster.run(&request);
                    let input = Input::Kube(tag, result);
                    self.queue
                        .push_back(Message::Listener(name.to_owned(), input));
                }
                Effect::WakeAt(time) => self.wake_at(name.to_owned(), time),
                Effect::Event(note) => self.events.push(note),
                Effect::Count(tally) => self.tallies.push(tally),
                Effect::Report(report) => {
                    let input = Input::Report(ChildReport::Listener(report));
                    self.queue.push_back(Message::ScaleSet(input));
                }
                Effect::Stop => {
                    self.listeners.remove(name);
                    self.wake.remove(name);
                }
                _ => unreachable!(),
            }
        }
    }

    fn wake_at(&mut self, who: String, time: Timestamp) {
        let known = self.wake.entry(who).or_insert(time);
        *known = time.min(*known);
    }

    fn direct(&mut self, directive: ScaleSetDirective) {
        self.directives.push(format!("{directive:?}"));
        match directive {
            ScaleSetDirective::Listener { name, directive } => {
                let input = match directive {
                    ListenerDirective::Observe(al) => {
                        let settings = self.settings.clone();
                        self.listeners
                            .entry(name.clone())
                            .or_insert_with(|| ListenerMachine::new(CONTROLLER, &name, settings));
                        Input::Observed(al.into_object())
                    }
                    ListenerDirective::Gone { object, uid } => Input::Gone { object, uid },
                    ListenerDirective::Tell(command) => Input::Command(command),
                };
                self.queue.push_back(Message::Listener(name, input));
            }
            ScaleSetDirective::RunnerSet(RunnerSetDirective::Deliver(_)) => {
                self.runner_set = true;
                self.play_runner_set();
            }
            ScaleSetDirective::RunnerSet(RunnerSetDirective::Gone { .. }) => {
                self.play_runner_set();
            }
        }
    }

    /// Applies a new revision, lets the set go when no runner is left, and reports.
    pub fn play_runner_set(&mut self) {
        if !self.runner_set {
            return;
        }
        if self.applies {
            self.apply_revision();
        }
        let set: Option<Arc<EphemeralRunnerSet>> = self.cluster.get(RUNNERS, POOL);
        let report = RunnerSetReport {
            set: set.clone(),
            counts: self.counts,
            problem: None,
            rejected: self.rejected.clone(),
        };
        self.runner_set = !report.is_last();
        let input = Input::Report(ChildReport::RunnerSet(report));
        self.queue.push_back(Message::ScaleSet(input));
        let held = set.is_some_and(|set| {
            set.metadata.deletion_timestamp.is_some()
                && set
                    .metadata
                    .finalizers
                    .iter()
                    .flatten()
                    .any(|one| one == finalizers::EPHEMERAL_RUNNER_SET)
        });
        if held && self.counts == RunnerCounts::default() {
            self.edit_set(|set| set["metadata"]["finalizers"] = json!([]));
        }
    }

    /// As the runner set's actor when no runner is in its way.
    fn apply_revision(&mut self) {
        let Some(set) = self.cluster.get::<EphemeralRunnerSet>(RUNNERS, POOL) else {
            return;
        };
        let wanted = set.spec.actionable_revision.unwrap_or(0);
        let status = set.status.clone().unwrap_or_default();
        let applied = status.applied_actionable_revision.unwrap_or(0);
        if set.metadata.deletion_timestamp.is_none() && wanted > applied {
            self.rejected = None;
            self.edit_set(|set| {
                set["status"] = json!({
                    "currentReplicas": 0, "phase": "Running",
                    "appliedActionableRevision": wanted,
                });
            });
        }
    }

    /// Says how many runners there are.
    pub fn count_runners(&mut self, counts: RunnerCounts) {
        self.counts = counts;
        self.play_runner_set();
        self.settle();
    }

    /// The listener that runs ends by itself.
    pub fn end_listener(&mut self, exit_code: i32) {
        let name = self.al().metadata.name.clone().unwrap();
        self.cluster.edit(Kind::Pod, CONTROLLER, &name, |pod| {
            let state = json!({"terminated": {"exitCode": exit_code, "reason": "Error"}});
            pod["status"]["containerStatuses"][0]["state"] = state;
        });
        self.settle();
    }

    fn play_kubelet(&mut self) -> bool {
        let pods: Vec<Object> = self
            .cluster
            .objects
            .values()
            .filter(|object| object.kind() == Kind::Pod)
            .cloned()
            .collect();
        for pod in pods {
            let ObjectRef { name, .. } = pod.reference();
            let value = crate::actors::listener::tests::cluster::to_value(&pod);
            if !value["metadata"]["deletionTimestamp"].is_null() {
                self.cluster.vanish(Kind::Pod, CONTROLLER, &name);
                return true;
            }
            if value["status"].is_null() {
                let since = self.cluster.now.to_string();
                self.cluster.edit(Kind::Pod, CONTROLLER, &name, |pod| {
                    pod["spec"]["nodeName"] = json!("node-1");
                    pod["status"] = json!({"phase": "Running", "containerStatuses": [
                        {"name": "listener", "state": {"running": {"startedAt": since}}, "ready": true,
                         "restartCount": 0, "image": "i", "imageID": "d"}]});
                });
                return true;
            }
        }
        false
    }

    /// A new process with this policy.
    pub fn restart_with(&mut self, policy: Policy) {
        self.settings = Arc::new(ControllerSettings {
            policy,
            ..(*self.settings).clone()
        });
        self.restart();
    }

    /// Forgets everything, as a new process does.
    pub fn restart(&mut self) {
        self.machine = ScaleSetMachine::new(RUNNERS, POOL, self.settings.clone());
        self.listeners.clear();
        self.runner_set = false;
        self.queue.clear();
        self.cluster.shown.clear();
        self.wake.clear();
        let all: Vec<Object> = self.cluster.objects.values().cloned().collect();
        for object in all {
            if !matches!(object.kind(), Kind::Secret | Kind::ConfigMap) {
                self.route(Shown::Observed(object));
                while let Some(message) = self.queue.pop_front() {
                    self.handle(message);
                }
            }
        }
        self.queue
            .push_back(Message::ScaleSet(Input::Command(ScaleSetCommand::Synced)));
    }

    pub fn command(&mut self, command: ScaleSetCommand) {
        self.queue
            .push_back(Message::ScaleSet(Input::Command(command)));
        self.pass(5);
    }

    pub fn observe(&mut self, object: Object) -> Vec<EffectOf<ScaleSetMachine>> {
        self.machine.step(self.cluster.now, Input::Observed(object))
    }

    pub fn answer_twice(&mut self, tag: ScaleSetTag) {
        let result = Err(failure(ActionsErrorKind::Other));
        self.queue
            .push_back(Message::ScaleSet(Input::Actions(tag, result)));
    }
}

fn is_create(request: &KubeRequest) -> bool {
    matches!(request, KubeRequest::Create(_))
}
