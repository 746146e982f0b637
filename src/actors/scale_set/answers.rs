//! How the results of a scale set's effects are taken into its state.

use super::context::ScaleSetContext;
use super::state::ScaleSetMachine;
use super::vocabulary::ScaleSetTag;
use crate::actors::core::cached::Verb;
use crate::actors::core::ownership::{Ownership, ownership};
use crate::api::EphemeralRunnerSet;
use crate::messages::{
    ActionsAnswer, ActionsError, Kind, KubeAnswer, KubeError, KubeObject, ObjectRef,
};

impl ScaleSetMachine {
    /// Takes in the end of a request to the API server.
    pub(super) fn finish(
        &mut self,
        tag: ScaleSetTag,
        result: Result<KubeAnswer, KubeError>,
        ctx: &mut ScaleSetContext,
    ) {
        match tag {
            ScaleSetTag::ScaleSet(verb) => {
                let who = self.reference();
                self.ars.finish(ctx.now, verb, &result, &who);
            }
            ScaleSetTag::Status => self.finish_status(&result, ctx),
            ScaleSetTag::Listener(name, verb) => self.finish_listener(&name, verb, &result, ctx),
            ScaleSetTag::RunnerSet(verb) => self.finish_runner_set(verb, &result, ctx),
            ScaleSetTag::FormerSet(name, verb) => {
                self.finish_former_set(&name, verb, &result, ctx);
            }
            ScaleSetTag::FormerRunners(name) => self.finish_former_runners(&name, &result, ctx),
            ScaleSetTag::Protected(at) => self.protection.finish(ctx.now, at, result),
            ScaleSetTag::Registration(_) | ScaleSetTag::Deregistration => {}
        }
    }

    /// Takes in the end of a call to the Actions service.
    pub(super) fn answered(
        &mut self,
        tag: &ScaleSetTag,
        result: Result<ActionsAnswer, ActionsError>,
        ctx: &mut ScaleSetContext,
    ) {
        match tag {
            ScaleSetTag::Registration(number) => self.registration_answered(*number, result, ctx),
            ScaleSetTag::Deregistration => {
                let who = format!("{}/{}", self.namespace, self.name);
                self.deregistration.finish(ctx.now, result, &who);
            }
            _ => {}
        }
    }

    fn finish_status(&mut self, result: &Result<KubeAnswer, KubeError>, ctx: &ScaleSetContext) {
        let who = self.reference().to_string();
        if self.status.finish(ctx.now, result, &who) {
            self.ars.forget();
        }
        if let Ok(KubeAnswer::Object(object)) = result
            && let Some(ars) = object.get()
        {
            self.ars.observe(ars);
        }
    }

    fn finish_listener(
        &mut self,
        name: &str,
        verb: Verb,
        result: &Result<KubeAnswer, KubeError>,
        ctx: &mut ScaleSetContext,
    ) {
        let namespace = &self.settings.namespace;
        let who = ObjectRef::new(Kind::AutoscalingListener, namespace, name);
        let child = self.listeners.entry(name.to_owned()).or_default();
        child.object.finish(ctx.now, verb, result, &who);
        let newest = child.object.get().cloned().filter(|_| result.is_ok());
        if let Some(object) = newest.filter(|object| self.owns(object)) {
            self.hand_to_listener(name, object, ctx);
        }
    }

    fn finish_runner_set(
        &mut self,
        verb: Verb,
        result: &Result<KubeAnswer, KubeError>,
        ctx: &mut ScaleSetContext,
    ) {
        let who = self.runner_set_reference();
        self.runner_set.object.finish(ctx.now, verb, result, &who);
        let ours = |set: &EphemeralRunnerSet| {
            let owner = self.ars.get();
            owner.is_none_or(|ars| ownership(&set.metadata, ars.as_ref()) != Ownership::Foreign)
        };
        let newest = self.runner_set.object.get().cloned();
        if let Some(object) = newest.filter(|set| result.is_ok() && ours(set)) {
            self.hand_to_runner_set(object.into_object(), ctx);
        }
    }
}
