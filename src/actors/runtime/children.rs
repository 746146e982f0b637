//! Parents and children: how each actor of a scale set is made, and how directives reach it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::actor::{ActorSpec, Children, MachineActor, NoChildren};
use super::mailbox::Mailbox;
use super::router::{ActorKey, ActorKind};
use super::services::Services;
use crate::actors::core::machine::Coalesce;
use crate::actors::listener::ListenerMachine;
use crate::actors::runner::{Origin, RunnerMachine};
use crate::actors::runner_set::{RunnerSetCommand, RunnerSetMachine};
use crate::actors::scale_set::{ChildReport, ScaleSetCommand, ScaleSetMachine, ScaleSetReport};
use crate::messages::{
    Input, Kind, ListenerDirective, Object, RunnerDirective, RunnerReport, RunnerSetDirective,
    RunnerState, ScaleSetDirective,
};

/// Starts the actor of a scale set on the current thread. `report` takes what it tells the
/// controller.
pub fn start_scale_set(
    services: &Arc<Services>,
    mailbox: Mailbox<ScaleSetMachine>,
    key: ActorKey,
    report: Box<dyn Fn(ScaleSetReport)>,
) {
    let make = {
        let (services, key) = (services.clone(), key.clone());
        move || {
            ScaleSetMachine::new(
                key.namespace.clone(),
                key.name.clone(),
                services.settings.clone(),
            )
        }
    };
    let children = ScaleSetChildren {
        services: services.clone(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        listeners: BTreeMap::new(),
        runner_set: None,
        synced: false,
        last: BTreeMap::new(),
    };
    let spec = ActorSpec {
        key,
        ancestors: Vec::new(),
        own: &[Kind::AutoscalingRunnerSet, Kind::EphemeralRunnerSet],
        machine: make(),
        factory: Box::new(make),
        report,
        children: Box::new(children),
    };
    MachineActor::start(services.clone(), mailbox, spec);
}

/// A scale set's listeners (one, but for a moment when its name changes) and runner set.
struct ScaleSetChildren {
    services: Arc<Services>,
    namespace: String,
    name: String,
    listeners: BTreeMap<String, Mailbox<ListenerMachine>>,
    runner_set: Option<Mailbox<RunnerSetMachine>>,
    synced: bool,
    /// What each child last said, by who said it.
    last: BTreeMap<String, ChildReport>,
}

impl ScaleSetChildren {
    fn key(&self) -> ActorKey {
        ActorKey::new(ActorKind::ScaleSet, &self.namespace, &self.name)
    }

    fn listener(
        &mut self,
        name: &str,
        parent: &Mailbox<ScaleSetMachine>,
    ) -> Mailbox<ListenerMachine> {
        if let Some(mailbox) = self.listeners.get(name) {
            return mailbox.clone();
        }
        let mailbox = Mailbox::new(&self.services.metrics.actors);
        self.listeners.insert(name.to_owned(), mailbox.clone());
        let namespace = self.services.settings.namespace.clone();
        let make = {
            let (services, namespace, name) =
                (self.services.clone(), namespace.clone(), name.to_owned());
            move || ListenerMachine::new(namespace.clone(), name.clone(), services.settings.clone())
        };
        let parent = parent.clone();
        let spec = ActorSpec {
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
            children: Box::new(NoChildren),
        };
        MachineActor::start(self.services.clone(), mailbox.clone(), spec);
        mailbox
    }

    fn runner_set(&mut self, parent: &Mailbox<ScaleSetMachine>) -> Mailbox<RunnerSetMachine> {
        if let Some(mailbox) = &self.runner_set {
            return mailbox.clone();
        }
        let mailbox = Mailbox::new(&self.services.metrics.actors);
        self.runner_set = Some(mailbox.clone());
        let make = {
            let services = self.services.clone();
            let (namespace, name) = (self.namespace.clone(), self.name.clone());
            move || {
                RunnerSetMachine::new(namespace.clone(), name.clone(), services.settings.clone())
            }
        };
        let children = RunnerSetChildren {
            services: self.services.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            runners: BTreeMap::new(),
            last: BTreeMap::new(),
        };
        let parent = parent.clone();
        let spec = ActorSpec {
            key: ActorKey::new(ActorKind::RunnerSet, &self.namespace, &self.name),
            ancestors: vec![self.key()],
            own: &[Kind::EphemeralRunnerSet],
            machine: make(),
            factory: Box::new(make),
            report: Box::new(move |report| {
                parent.send(Input::Report(ChildReport::RunnerSet(report)));
            }),
            children: Box::new(children),
        };
        MachineActor::start(self.services.clone(), mailbox.clone(), spec);
        if self.synced {
            mailbox.send(Input::Command(RunnerSetCommand::Synced));
        }
        mailbox
    }
}

impl Children<ScaleSetMachine> for ScaleSetChildren {
    fn direct(&mut self, directive: ScaleSetDirective, parent: &Mailbox<ScaleSetMachine>) {
        match directive {
            ScaleSetDirective::Listener { name, directive } => match directive {
                ListenerDirective::Observe(listener) => {
                    let object = Object::AutoscalingListener(listener);
                    self.listener(&name, parent).send(Input::Observed(object));
                }
                ListenerDirective::Gone { object, uid } => {
                    if let Some(mailbox) = self.listeners.get(&name) {
                        mailbox.send(Input::Gone { object, uid });
                    }
                }
                ListenerDirective::Tell(command) => {
                    if let Some(mailbox) = self.listeners.get(&name) {
                        mailbox.send(Input::Command(command));
                    }
                }
            },
            ScaleSetDirective::RunnerSet(RunnerSetDirective::Deliver(object)) => {
                self.runner_set(parent).send(Input::Observed(object));
            }
            ScaleSetDirective::RunnerSet(RunnerSetDirective::Gone { object, uid }) => {
                if let Some(mailbox) = &self.runner_set {
                    mailbox.send(Input::Gone { object, uid });
                }
            }
        }
    }

    fn on_report(&mut self, report: &ChildReport) {
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

    fn on_command(&mut self, command: &ScaleSetCommand) {
        if matches!(command, ScaleSetCommand::Synced) {
            self.synced = true;
            if let Some(mailbox) = &self.runner_set {
                mailbox.send(Input::Command(RunnerSetCommand::Synced));
            }
        }
    }

    fn last_reports(&self) -> Vec<ChildReport> {
        self.last.values().cloned().collect()
    }
}

/// The runners of a runner set.
struct RunnerSetChildren {
    services: Arc<Services>,
    namespace: String,
    name: String,
    runners: BTreeMap<String, Mailbox<RunnerMachine>>,
    /// What each runner last said, by its name.
    last: BTreeMap<String, RunnerReport>,
}

impl RunnerSetChildren {
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
        parent: &Mailbox<RunnerSetMachine>,
    ) -> Mailbox<RunnerMachine> {
        let mailbox = Mailbox::new(&self.services.metrics.actors);
        self.runners.insert(name.to_owned(), mailbox.clone());
        let key = ActorKey::new(ActorKind::Runner, &self.namespace, name);
        // first the way for news, so that none is missed from here on
        self.services
            .router
            .register(key.clone(), Arc::new(mailbox.clone()));
        let origin = match (origin, self.services.router.first_lists.take(&key)) {
            (Origin::Found(Some(runner)), Some(pod)) => Origin::Listed { runner, pod },
            (origin, _) => origin,
        };
        let make = {
            let services = self.services.clone();
            let (namespace, set) = (self.namespace.clone(), self.name.clone());
            let name = name.to_owned();
            move |origin| {
                RunnerMachine::new(
                    namespace.clone(),
                    name.clone(),
                    set.clone(),
                    origin,
                    services.settings.clone(),
                )
            }
        };
        let parent = parent.clone();
        let spec = ActorSpec {
            key,
            ancestors: self.lineage(),
            own: &[Kind::EphemeralRunner, Kind::Pod],
            machine: make(origin),
            factory: Box::new(move || make(Origin::Found(None))),
            report: Box::new(move |report| parent.send(Input::Report(report))),
            children: Box::new(NoChildren),
        };
        MachineActor::start(self.services.clone(), mailbox.clone(), spec);
        mailbox
    }
}

impl Children<RunnerSetMachine> for RunnerSetChildren {
    fn direct(&mut self, directive: RunnerDirective, parent: &Mailbox<RunnerSetMachine>) {
        match directive {
            RunnerDirective::Created(runner) => {
                let name = runner.metadata.name.clone().unwrap_or_default();
                match self.runners.get(&name) {
                    // the watch was faster than the answer
                    Some(mailbox) => mailbox.send(Input::Observed(Object::EphemeralRunner(runner))),
                    None => {
                        self.start_runner(&name, Origin::Created(runner), parent);
                    }
                }
            }
            RunnerDirective::Observe(runner) => {
                let name = runner.metadata.name.clone().unwrap_or_default();
                let mailbox = match self.runners.get(&name) {
                    Some(mailbox) => mailbox.clone(),
                    None => self.start_runner(&name, Origin::Found(Some(runner.clone())), parent),
                };
                mailbox.send(Input::Observed(Object::EphemeralRunner(runner)));
            }
            RunnerDirective::Tell { name, command } => {
                if let Some(mailbox) = self.runners.get(&name) {
                    mailbox.send(Input::Command(command));
                }
            }
        }
    }

    fn on_report(&mut self, report: &RunnerReport) {
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

    fn on_command(&mut self, _command: &RunnerSetCommand) {}

    fn last_reports(&self) -> Vec<RunnerReport> {
        self.last.values().cloned().collect()
    }
}
