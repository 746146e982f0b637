//! Parents and children: how each actor of a scale set is made, and how directives reach it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::inbox::Inbox;
use super::listener::ListenerMachine;
use super::machine::Coalesce;
use super::router::{ActorKey, ActorKind};
use super::runner::{Origin, RunnerMachine};
use super::runner_set::{RunnerSetCommand, RunnerSetMachine};
use super::scale_set::{ChildReport, ScaleSetCommand, ScaleSetMachine, ScaleSetReport};
use super::shell::{Birth, Childless, Family, Shell};
use super::world::World;
use crate::messages::{
    Input, Kind, ListenerDirective, Object, RunnerDirective, RunnerReport, RunnerSetDirective,
    RunnerState, ScaleSetDirective,
};

/// Starts the actor of a scale set on the current thread. `report` takes what it tells the
/// controller.
pub fn start_scale_set(
    world: &Arc<World>,
    inbox: Inbox<ScaleSetMachine>,
    key: ActorKey,
    report: Box<dyn Fn(ScaleSetReport)>,
) {
    let make = {
        let (world, key) = (world.clone(), key.clone());
        move || {
            ScaleSetMachine::new(
                key.namespace.clone(),
                key.name.clone(),
                world.settings.clone(),
            )
        }
    };
    let family = ScaleSetFamily {
        world: world.clone(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        listeners: BTreeMap::new(),
        runner_set: None,
        synced: false,
        last: BTreeMap::new(),
    };
    let birth = Birth {
        key,
        ancestors: Vec::new(),
        own: &[Kind::AutoscalingRunnerSet, Kind::EphemeralRunnerSet],
        machine: make(),
        factory: Box::new(make),
        report,
        family: Box::new(family),
    };
    Shell::start(world.clone(), inbox, birth);
}

/// A scale set's listeners (one, but for a moment when its name changes) and runner set.
struct ScaleSetFamily {
    world: Arc<World>,
    namespace: String,
    name: String,
    listeners: BTreeMap<String, Inbox<ListenerMachine>>,
    runner_set: Option<Inbox<RunnerSetMachine>>,
    synced: bool,
    /// What each child last said, by who said it.
    last: BTreeMap<String, ChildReport>,
}

impl ScaleSetFamily {
    fn key(&self) -> ActorKey {
        ActorKey::new(ActorKind::ScaleSet, &self.namespace, &self.name)
    }

    fn listener(&mut self, name: &str, parent: &Inbox<ScaleSetMachine>) -> Inbox<ListenerMachine> {
        if let Some(inbox) = self.listeners.get(name) {
            return inbox.clone();
        }
        let inbox = Inbox::new(&self.world.metrics.actors);
        self.listeners.insert(name.to_owned(), inbox.clone());
        let namespace = self.world.settings.namespace.clone();
        let make = {
            let (world, namespace, name) = (self.world.clone(), namespace.clone(), name.to_owned());
            move || ListenerMachine::new(namespace.clone(), name.clone(), world.settings.clone())
        };
        let parent = parent.clone();
        let birth = Birth {
            key: ActorKey::new(ActorKind::Listener, namespace, name),
            ancestors: vec![self.key()],
            own: &[
                Kind::AutoscalingListener,
                Kind::Pod,
                Kind::ServiceAccount,
                Kind::Role,
                Kind::RoleBinding,
            ],
            machine: make(),
            factory: Box::new(make),
            report: Box::new(move |report| {
                parent.send(Input::Report(ChildReport::Listener(report)));
            }),
            family: Box::new(Childless),
        };
        Shell::start(self.world.clone(), inbox.clone(), birth);
        inbox
    }

    fn runner_set(&mut self, parent: &Inbox<ScaleSetMachine>) -> Inbox<RunnerSetMachine> {
        if let Some(inbox) = &self.runner_set {
            return inbox.clone();
        }
        let inbox = Inbox::new(&self.world.metrics.actors);
        self.runner_set = Some(inbox.clone());
        let make = {
            let world = self.world.clone();
            let (namespace, name) = (self.namespace.clone(), self.name.clone());
            move || RunnerSetMachine::new(namespace.clone(), name.clone(), world.settings.clone())
        };
        let family = RunnerSetFamily {
            world: self.world.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            runners: BTreeMap::new(),
            last: BTreeMap::new(),
        };
        let parent = parent.clone();
        let birth = Birth {
            key: ActorKey::new(ActorKind::RunnerSet, &self.namespace, &self.name),
            ancestors: vec![self.key()],
            own: &[Kind::EphemeralRunnerSet],
            machine: make(),
            factory: Box::new(make),
            report: Box::new(move |report| {
                parent.send(Input::Report(ChildReport::RunnerSet(report)));
            }),
            family: Box::new(family),
        };
        Shell::start(self.world.clone(), inbox.clone(), birth);
        if self.synced {
            inbox.send(Input::Command(RunnerSetCommand::Synced));
        }
        inbox
    }
}

impl Family<ScaleSetMachine> for ScaleSetFamily {
    fn direct(&mut self, directive: ScaleSetDirective, parent: &Inbox<ScaleSetMachine>) {
        match directive {
            ScaleSetDirective::Listener { name, directive } => match directive {
                ListenerDirective::Observe(listener) => {
                    let object = Object::AutoscalingListener(listener);
                    self.listener(&name, parent).send(Input::Observed(object));
                }
                ListenerDirective::Gone { object, uid } => {
                    if let Some(inbox) = self.listeners.get(&name) {
                        inbox.send(Input::Gone { object, uid });
                    }
                }
                ListenerDirective::Tell(command) => {
                    if let Some(inbox) = self.listeners.get(&name) {
                        inbox.send(Input::Command(command));
                    }
                }
            },
            ScaleSetDirective::RunnerSet(RunnerSetDirective::Deliver(object)) => {
                self.runner_set(parent).send(Input::Observed(object));
            }
            ScaleSetDirective::RunnerSet(RunnerSetDirective::Gone { object, uid }) => {
                if let Some(inbox) = &self.runner_set {
                    inbox.send(Input::Gone { object, uid });
                }
            }
        }
    }

    fn heard(&mut self, report: &ChildReport) {
        match report {
            ChildReport::Listener(gone) if gone.listener.is_none() => {
                self.listeners.remove(&gone.name);
                self.last.remove(&report.subject());
            }
            ChildReport::RunnerSet(gone) if gone.is_last() => {
                self.runner_set = None;
                self.last.remove(&report.subject());
            }
            _ => {
                self.last.insert(report.subject(), report.clone());
            }
        }
    }

    fn told(&mut self, command: &ScaleSetCommand) {
        if matches!(command, ScaleSetCommand::Synced) {
            self.synced = true;
            if let Some(inbox) = &self.runner_set {
                inbox.send(Input::Command(RunnerSetCommand::Synced));
            }
        }
    }

    fn last_reports(&self) -> Vec<ChildReport> {
        self.last.values().cloned().collect()
    }
}

/// The runners of a runner set.
struct RunnerSetFamily {
    world: Arc<World>,
    namespace: String,
    name: String,
    runners: BTreeMap<String, Inbox<RunnerMachine>>,
    /// What each runner last said, by its name.
    last: BTreeMap<String, RunnerReport>,
}

impl RunnerSetFamily {
    /// The set and its scale set.
    fn lineage(&self) -> Vec<ActorKey> {
        let kinds = [ActorKind::RunnerSet, ActorKind::ScaleSet];
        kinds
            .map(|kind| ActorKey::new(kind, &self.namespace, &self.name))
            .into()
    }

    fn start_runner(
        &mut self,
        name: &str,
        origin: Origin,
        parent: &Inbox<RunnerSetMachine>,
    ) -> Inbox<RunnerMachine> {
        let inbox = Inbox::new(&self.world.metrics.actors);
        self.runners.insert(name.to_owned(), inbox.clone());
        let key = ActorKey::new(ActorKind::Runner, &self.namespace, name);
        // first the way for news, so that none is missed from here on
        self.world
            .router
            .register(key.clone(), Arc::new(inbox.clone()));
        let origin = match (origin, self.world.router.first_lists.take(&key)) {
            (Origin::Found(Some(runner)), Some(pod)) => Origin::Listed { runner, pod },
            (origin, _) => origin,
        };
        let make = {
            let world = self.world.clone();
            let (namespace, set) = (self.namespace.clone(), self.name.clone());
            let name = name.to_owned();
            move |origin| {
                RunnerMachine::new(
                    namespace.clone(),
                    name.clone(),
                    set.clone(),
                    origin,
                    world.settings.clone(),
                )
            }
        };
        let parent = parent.clone();
        let birth = Birth {
            key,
            ancestors: self.lineage(),
            own: &[Kind::EphemeralRunner, Kind::Pod],
            machine: make(origin),
            factory: Box::new(move || make(Origin::Found(None))),
            report: Box::new(move |report| parent.send(Input::Report(report))),
            family: Box::new(Childless),
        };
        Shell::start(self.world.clone(), inbox.clone(), birth);
        inbox
    }
}

impl Family<RunnerSetMachine> for RunnerSetFamily {
    fn direct(&mut self, directive: RunnerDirective, parent: &Inbox<RunnerSetMachine>) {
        match directive {
            RunnerDirective::Created(runner) => {
                let name = runner.metadata.name.clone().unwrap_or_default();
                match self.runners.get(&name) {
                    // the watch was faster than the answer
                    Some(inbox) => inbox.send(Input::Observed(Object::EphemeralRunner(runner))),
                    None => {
                        self.start_runner(&name, Origin::Created(runner), parent);
                    }
                }
            }
            RunnerDirective::Observe(runner) => {
                let name = runner.metadata.name.clone().unwrap_or_default();
                let inbox = match self.runners.get(&name) {
                    Some(inbox) => inbox.clone(),
                    None => self.start_runner(&name, Origin::Found(Some(runner.clone())), parent),
                };
                inbox.send(Input::Observed(Object::EphemeralRunner(runner)));
            }
            RunnerDirective::Tell { name, command } => {
                if let Some(inbox) = self.runners.get(&name) {
                    inbox.send(Input::Command(command));
                }
            }
        }
    }

    fn heard(&mut self, report: &RunnerReport) {
        if report.state == RunnerState::Gone {
            self.runners.remove(&report.name);
            self.last.remove(&report.name);
            return;
        }
        let last = RunnerReport {
            // an answer, not a state: it is said once
            refused: None,
            ..report.clone()
        };
        self.last.insert(report.name.clone(), last);
    }

    fn told(&mut self, _command: &RunnerSetCommand) {}

    fn last_reports(&self) -> Vec<RunnerReport> {
        self.last.values().cloned().collect()
    }
}
