//! A listener machine, the small API server, and a person who plays kubelet.

use std::collections::VecDeque;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::{Value, json};

use super::cluster::{Cluster, Shown};
use crate::actors::listener::ListenerMachine;
use crate::actors::{InputOf, Machine};
use crate::api::AutoscalingListener;
use crate::clock::{Timestamp, after};
use crate::messages::{
    Effect, EventNote, Input, Kind, KubeRequest, ListenerCommand, ListenerReport, Object, Reason,
    Tally,
};
use crate::resources::ControllerSettings;

pub const CONTROLLER: &str = "control";
pub const RUNNERS: &str = "runners";
pub const NAME: &str = "pool-abc-listener";

pub struct World {
    pub cluster: Cluster,
    pub machine: ListenerMachine,
    pub settings: Arc<ControllerSettings>,
    pub reports: Vec<ListenerReport>,
    pub events: Vec<EventNote>,
    pub tallies: Vec<Tally>,
    pub stopped: bool,
    pub wake: Option<Timestamp>,
    /// Watch events overtake answers.
    pub watch_first: bool,
    /// Answers to creations of this kind are kept back, and no watch shows it.
    pub hold: Option<Kind>,
    held: Vec<InputOf<ListenerMachine>>,
    queue: VecDeque<InputOf<ListenerMachine>>,
}

pub fn settings() -> ControllerSettings {
    ControllerSettings {
        namespace: CONTROLLER.to_owned(),
        listener_image: "listener:1".to_owned(),
        listener_metrics_addr: ":8080".to_owned(),
        ..ControllerSettings::default()
    }
}

pub fn listener() -> AutoscalingListener {
    serde_json::from_value(json!({
        "metadata": {
            "name": NAME, "namespace": CONTROLLER,
            "labels": {"app.kubernetes.io/component": "runner-scale-set-listener"},
        },
        "spec": {
            "githubConfigUrl": "https://github.com/acme/widgets",
            "githubConfigSecret": "credentials",
            "runnerScaleSetId": 11,
            "autoscalingRunnerSetNamespace": RUNNERS,
            "autoscalingRunnerSetName": "pool",
            "ephemeralRunnerSetName": "pool",
            "maxRunners": 9,
            "minRunners": 1,
            "image": "listener:1",
        },
    }))
    .unwrap()
}

pub fn secret(name: &str, data: &[(&str, &str)]) -> Secret {
    let data = data
        .iter()
        .map(|(key, value)| {
            let bytes = k8s_openapi::ByteString(value.as_bytes().to_vec());
            ((*key).to_owned(), bytes)
        })
        .collect();
    let mut secret = Secret {
        data: Some(data),
        ..Secret::default()
    };
    secret.metadata.name = Some(name.to_owned());
    secret.metadata.namespace = Some(RUNNERS.to_owned());
    secret
}

impl World {
    /// With an AutoscalingListener and its credentials, and nothing decided yet.
    pub fn new() -> Self {
        Self::with(settings())
    }

    pub fn with(settings: ControllerSettings) -> Self {
        let settings = Arc::new(settings);
        let mut world = Self {
            cluster: Cluster::new(),
            machine: ListenerMachine::new(CONTROLLER, NAME, settings.clone()),
            settings,
            reports: Vec::new(),
            events: Vec::new(),
            tallies: Vec::new(),
            stopped: false,
            wake: None,
            watch_first: false,
            hold: None,
            held: Vec::new(),
            queue: VecDeque::new(),
        };
        let token = secret("credentials", &[("github_token", "t0p-s3cret")]);
        world.cluster.apply(token);
        world.cluster.apply(listener());
        world
    }

    /// With everything in place and the listener running.
    pub fn running() -> Self {
        let mut world = Self::new();
        world.settle();
        world.start_pod();
        world.settle();
        world
    }

    /// Runs until nothing happens any more at this time.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            let Some(input) = self.next_input() else {
                return;
            };
            let effects = self.machine.step(self.cluster.now, input);
            self.carry_out(effects);
        }
        panic!("it does not come to rest: {:#?}", self.cluster.writes);
    }

    fn next_input(&mut self) -> Option<InputOf<ListenerMachine>> {
        if self.watch_first {
            self.next_shown().or_else(|| self.queue.pop_front())
        } else {
            let answer = self.queue.pop_front();
            answer.or_else(|| self.next_shown())
        }
    }

    fn next_shown(&mut self) -> Option<InputOf<ListenerMachine>> {
        loop {
            let shown = self.cluster.shown.pop_front()?;
            let input = match shown {
                Shown::Observed(object) if Some(object.kind()) == self.hold => continue,
                Shown::Observed(object) => Input::Observed(object),
                Shown::Gone(object, uid) => Input::Gone { object, uid },
            };
            return Some(input);
        }
    }

    /// Lets the answers go that were kept back.
    pub fn release(&mut self) {
        self.hold = None;
        self.queue.extend(self.held.drain(..));
        self.settle();
    }

    fn carry_out(&mut self, effects: Vec<crate::actors::EffectOf<ListenerMachine>>) {
        for effect in effects {
            match effect {
                Effect::Kube(tag, request) => {
                    let result = self.cluster.run(&request);
                    let answer = Input::Kube(tag, result);
                    if matches!(request, KubeRequest::Create(_))
                        && Some(request.kind()) == self.hold
                    {
                        self.held.push(answer);
                    } else {
                        self.queue.push_back(answer);
                    }
                }
                Effect::WakeAt(time) => {
                    self.wake = Some(self.wake.map_or(time, |known| known.min(time)));
                }
                Effect::Event(note) => self.events.push(note),
                Effect::Count(tally) => self.tallies.push(tally),
                Effect::Report(report) => self.reports.push(report),
                Effect::Stop => self.stopped = true,
                Effect::Actions(..) | Effect::Unregister(..) | Effect::Child(_) => unreachable!(),
            }
        }
        let says_gone = |report: &ListenerReport| report.listener.is_none();
        assert!(
            self.stopped || !self.reports.iter().any(says_gone),
            "it is said to be gone, and may not be"
        );
    }

    /// Lets so many seconds go by, waking the machine when it asked for it.
    pub fn pass(&mut self, seconds: i64) {
        let end = after(self.cluster.now, seconds);
        self.settle();
        while let Some(time) = self.wake.filter(|time| *time <= end) {
            self.wake = None;
            self.cluster.now = time.max(self.cluster.now);
            self.queue.push_back(Input::Tick);
            self.settle();
        }
        self.cluster.now = end;
    }

    pub fn command(&mut self, command: ListenerCommand) {
        self.queue.push_back(Input::Command(command));
        self.settle();
    }

    /// Forgets everything, as a new process does.
    pub fn restart(&mut self) {
        self.machine = ListenerMachine::new(CONTROLLER, NAME, self.settings.clone());
        self.queue.clear();
        self.cluster.shown.clear();
        self.wake = None;
        let all: Vec<Object> = self.cluster.objects.values().cloned().collect();
        let watched = all
            .into_iter()
            .filter(|object| !matches!(object.kind(), Kind::Secret | Kind::ConfigMap));
        self.queue.extend(watched.map(Input::Observed));
    }

    pub fn report(&self) -> &ListenerReport {
        self.reports.last().unwrap()
    }

    pub fn reason(&self) -> String {
        let reason = self.report().reason.as_ref();
        reason.map_or_else(String::new, Reason::to_string)
    }

    pub fn pod(&self) -> Option<Arc<Pod>> {
        self.cluster.get(CONTROLLER, NAME)
    }

    pub fn pod_uid(&self) -> String {
        self.pod().unwrap().metadata.uid.clone().unwrap()
    }

    pub fn config(&self) -> Value {
        let name = format!("{NAME}-config");
        let secret: Arc<Secret> = self.cluster.get(CONTROLLER, &name).unwrap();
        serde_json::from_slice(&secret.data.as_ref().unwrap()["config.json"].0).unwrap()
    }

    // === kubelet ===

    pub fn edit_pod(&mut self, change: impl FnOnce(&mut Value)) {
        self.cluster.edit(Kind::Pod, CONTROLLER, NAME, change);
    }

    pub fn start_pod(&mut self) {
        let since = self.cluster.now;
        self.edit_pod(|pod| {
            pod["spec"]["nodeName"] = json!("node-1");
            pod["status"] = json!({"phase": "Running", "containerStatuses": [
                container("listener", json!({"running": {"startedAt": since.to_string()}})),
            ]});
        });
    }

    pub fn end_listener(&mut self, exit_code: i32) {
        self.edit_pod(|pod| {
            pod["spec"]["nodeName"] = json!("node-1");
            pod["status"] = json!({"phase": "Failed", "containerStatuses": [
                container("listener", json!({"terminated": {"exitCode": exit_code, "reason": "Error"}})),
            ]});
        });
    }

    /// A pod that was asked to end ends.
    pub fn finish_pod(&mut self) {
        self.cluster.vanish(Kind::Pod, CONTROLLER, NAME);
    }
}

pub fn container(name: &str, state: Value) -> Value {
    json!({"name": name, "state": state, "ready": false, "restartCount": 0, "image": "i", "imageID": "d"})
}
