//! Calls to the Actions service about the runner's registration, and what their ends mean.

use super::deletion::is_denied;
use super::machine::{Asked, Own, RunnerMachine, Tag};
use super::registration::{Call, Removal, Standing};
use super::turn::Turn;
use super::view;
use crate::api::EphemeralRunner;
use crate::messages::{ActionsAnswer, ActionsCall, ActionsError, ActionsRequest, Effect, Refusal};
use crate::resources;

impl RunnerMachine {
    /// Sends a call to the Actions service. A removal goes through the unregistrar.
    pub(super) fn call(&mut self, er: &EphemeralRunner, call: Call, turn: &mut Turn<Self>) {
        if !self.registration.is_free(turn.now) {
            return;
        }
        self.registration.begin(call);
        let tenant = resources::tenant_of_runner(er);
        match call {
            Call::Generate => turn.actions(
                Tag::Generate,
                tenant,
                ActionsCall::GenerateJitConfig {
                    scale_set_id: er.spec.runner_scale_set_id,
                    name: self.name.clone(),
                    work_folder: resources::work_folder(er),
                },
            ),
            Call::Find => turn.actions(
                Tag::Find,
                tenant,
                ActionsCall::FindRunner {
                    name: self.name.clone(),
                },
            ),
            Call::Remove(id) => turn.push(Effect::Unregister(
                Tag::Remove,
                ActionsRequest {
                    tenant,
                    call: ActionsCall::RemoveRunner { id },
                },
            )),
        }
    }

    /// Says whether there is a registration whose id is known; goes and looks where that is
    /// not certain: in the Secret, then by name.
    pub(super) fn seek_id(&mut self, er: &EphemeralRunner, turn: &mut Turn<Self>) -> bool {
        if self.registration.standing == Standing::Unknown && !self.registration.is_calling() {
            match self.own_secret(er) {
                Own::Unknown if is_denied(&self.secret) => self.call(er, Call::Find, turn),
                Own::Unknown => self.read_secret(turn),
                Own::Ours(secret) => match resources::read_jit_secret(&secret) {
                    Ok(record) => self.registration.learn(Some(record.runner_id)),
                    Err(_) => self.call(er, Call::Find, turn),
                },
                Own::Absent | Own::Foreign => self.call(er, Call::Find, turn),
            }
        }
        self.registration.id().is_some()
    }

    pub(super) fn ask_removal(&mut self, er: &EphemeralRunner, turn: &mut Turn<Self>) {
        if let Some(id) = self.registration.id() {
            self.call(er, Call::Remove(id), turn);
        }
    }

    /// Has the service take the registration back. Says whether there is none any more.
    pub(super) fn take_back(&mut self, er: &EphemeralRunner, turn: &mut Turn<Self>) -> bool {
        if self.seek_id(er, turn) {
            self.ask_removal(er, turn);
            return false;
        }
        self.is_unregistered()
    }

    pub(super) fn is_unregistered(&self) -> bool {
        !self.registration.is_calling()
            && matches!(
                self.registration.standing,
                Standing::None | Standing::Removed
            )
    }

    // === answers ===

    pub(super) fn take_actions(
        &mut self,
        tag: &Tag,
        result: Result<ActionsAnswer, ActionsError>,
        turn: &mut Turn<Self>,
    ) {
        let who = format!("{}/{}", self.namespace, self.name);
        match tag {
            Tag::Generate => self.registration.generated(turn.now, result, &who),
            Tag::Find => {
                let ours = self
                    .runner
                    .get()
                    .map_or(0, |er| er.spec.runner_scale_set_id);
                if let Some(removal) = self.registration.found(turn.now, result, ours, &who) {
                    self.take_removal(removal, turn);
                }
            }
            Tag::Remove => {
                if let Some(removal) = self.registration.removed(turn.now, result, &who) {
                    self.take_removal(removal, turn);
                }
            }
            _ => {}
        }
    }

    fn take_removal(&mut self, removal: Removal, turn: &mut Turn<Self>) {
        let has_job = self.runner.get().is_some_and(|er| view::has_job(er));
        let deleting = self.runner.get().is_some_and(|er| view::is_deleting(er));
        let releasing = self.asked == Asked::Release && !deleting;
        match removal {
            // the job was recorded while we asked, so the runner has ended or will
            Removal::Done if releasing && has_job => self.refuse(Refusal::Busy),
            Removal::Done => {}
            Removal::Refused if releasing => self.refuse(Refusal::Busy),
            Removal::GivenUp(message) if releasing => {
                let word = self.registration.trouble().map(|(word, _)| word);
                let word = word.unwrap_or_else(|| "CredentialsRefused".to_owned());
                self.refuse(Refusal::NotAsked(word, message));
            }
            Removal::Denied if releasing => {
                let why = self.registration.trouble().unwrap_or_default();
                self.refuse(Refusal::NotAsked(why.0, why.1));
            }
            // asked on the way to a registration of our own, and not to let this runner go
            Removal::Refused
                if !deleting && !has_job && self.secret.is_absent() && self.pod.is_absent() =>
            {
                self.registration.taken = Some((
                    "RunnerNameTaken".to_owned(),
                    "the runner's name is registered already, and has a job".to_owned(),
                ));
            }
            Removal::GivenUp(message) if deleting => self.give_up_removal(&message, turn),
            Removal::Refused if !deleting => self.keep(turn),
            Removal::Refused | Removal::GivenUp(_) | Removal::Denied => {}
        }
    }
}
