//! The shells: who gets a message, and what is done with the machines' effects.

use std::sync::Arc;

use super::{Message, NAMESPACE, SET, SetOrRunnerTag, To, World};
use crate::actors::runner::{Origin, RunnerMachine, RunnerTag};
use crate::actors::runner_set::RunnerSetMachine;
use crate::actors::{EffectOf, InputOf, Machine};
use crate::api::EphemeralRunner;
use crate::clock::Timestamp;
use crate::messages::{Effect, Input, Kind, Object, RunnerDirective};
use crate::resources::ControllerSettings;

impl World {
    pub(super) fn deliver(&mut self, message: Message) {
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
            Effect::Event(note) => self.events.push(note.reason),
            Effect::Count(_) => {}
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

    pub(super) fn run_unregistrar(&mut self) {
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

    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        self.wakes
            .values()
            .copied()
            .chain(self.unregistrar_wake)
            .min()
    }

    pub(super) fn fire(&mut self) {
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
