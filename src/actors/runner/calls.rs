//! Calls to the Actions service about the runner's registration, and what their ends mean.

use super::deletion::is_denied;
use super::machine::{Asked, Own, RunnerMachine, RunnerTag};
use super::registration::{Call, Removal, Standing};
use super::view;
use crate::actors::core::step_context::StepContext;
use crate::api::EphemeralRunner;
use crate::messages::{
    ActionsAnswer, ActionsCall, ActionsError, ActionsRequest, Effect, Reason, Refusal, codes,
};
use crate::resources;

impl RunnerMachine {
    /// Sends a call to the Actions service. A removal goes through the unregistrar.
    pub(super) fn call(&mut self, er: &EphemeralRunner, call: Call, ctx: &mut StepContext<Self>) {
        if !self.registration.is_free(ctx.now) {
            return;
        }
        self.registration.begin(call);
        let tenant = resources::tenant_of_runner(er);
        match call {
            Call::Generate => ctx.actions(
                RunnerTag::Generate,
                tenant,
                ActionsCall::GenerateJitConfig {
                    scale_set_id: er.spec.runner_scale_set_id,
                    name: self.name.clone(),
                    work_folder: resources::work_folder(er),
                },
            ),
            Call::Find => ctx.actions(
                RunnerTag::Find,
                tenant,
                ActionsCall::FindRunner {
                    name: self.name.clone(),
                },
            ),
            Call::Remove(id) => ctx.push(Effect::Unregister(
                RunnerTag::Remove,
                ActionsRequest {
                    tenant,
                    call: ActionsCall::RemoveRunner { id },
                },
            )),
        }
    }

    /// Says whether there is a registration whose id is known; goes and looks where that is
    /// not certain: in the Secret, then by name.
    pub(super) fn seek_id(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) -> bool {
        if self.registration.standing == Standing::Unknown && !self.registration.is_calling() {
            match self.own_secret(er) {
                Own::Unknown if is_denied(&self.secret) => self.call(er, Call::Find, ctx),
                Own::Unknown => self.read_secret(ctx),
                Own::Ours(secret) => match resources::read_jit_secret(&secret) {
                    Ok(record) => self.registration.learn(Some(record.runner_id)),
                    Err(_) => self.call(er, Call::Find, ctx),
                },
                Own::Absent | Own::Foreign => self.call(er, Call::Find, ctx),
            }
        }
        self.registration.id().is_some()
    }

    pub(super) fn ask_removal(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) {
        if let Some(id) = self.registration.id() {
            self.call(er, Call::Remove(id), ctx);
        }
    }

    /// Has the service take the registration back. Says whether there is none any more.
    pub(super) fn take_back(&mut self, er: &EphemeralRunner, ctx: &mut StepContext<Self>) -> bool {
        if self.seek_id(er, ctx) {
            self.ask_removal(er, ctx);
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
        tag: &RunnerTag,
        result: Result<ActionsAnswer, ActionsError>,
        ctx: &mut StepContext<Self>,
    ) {
        let who = format!("{}/{}", self.namespace, self.name);
        match tag {
            RunnerTag::Generate => self.registration.generated(ctx.now, result, &who),
            RunnerTag::Find => {
                let ours = self
                    .runner
                    .get()
                    .map_or(0, |er| er.spec.runner_scale_set_id);
                if let Some(removal) = self.registration.found(ctx.now, result, ours, &who) {
                    self.take_removal(removal, ctx);
                }
            }
            RunnerTag::Remove => {
                if let Some(removal) = self.registration.removed(ctx.now, result, &who) {
                    self.take_removal(removal, ctx);
                }
            }
            _ => {}
        }
    }

    fn take_removal(&mut self, removal: Removal, ctx: &mut StepContext<Self>) {
        let has_job = self.runner.get().is_some_and(|er| view::has_job(er));
        let deleting = self.runner.get().is_some_and(|er| view::is_deleting(er));
        let releasing = self.asked == Asked::Release && !deleting;
        match removal {
            // the job was recorded while we asked, so the runner has ended or will
            Removal::Done if releasing && has_job => self.refuse(Refusal::Busy),
            Removal::Done => {}
            Removal::Refused if releasing => self.refuse(Refusal::Busy),
            Removal::GivenUp(message) if releasing => {
                let code = self.registration.trouble().map(|trouble| trouble.code);
                let code = code.unwrap_or(codes::CREDENTIALS_REFUSED.into());
                self.refuse(Refusal::NotAsked(Reason::new(code, message)));
            }
            Removal::Denied if releasing => {
                let missing = || Reason::new(codes::CREDENTIALS_FORBIDDEN, "a right is missing");
                let why = self.registration.trouble().unwrap_or_else(missing);
                self.refuse(Refusal::NotAsked(why));
            }
            // asked on the way to a registration of our own, and not to let this runner go
            Removal::Refused
                if !deleting && !has_job && self.secret.is_absent() && self.pod.is_absent() =>
            {
                self.registration.taken = Some(Reason::new(
                    codes::RUNNER_NAME_TAKEN,
                    "the runner's name is registered already, and has a job",
                ));
            }
            Removal::GivenUp(message) if deleting => self.give_up_removal(&message, ctx),
            Removal::Refused if !deleting => self.keep(ctx),
            Removal::Refused | Removal::GivenUp(_) | Removal::Denied => {}
        }
    }
}
