//! Taking everything down that a listener needs, because it is stopped or its
//! AutoscalingListener goes.

use super::context::{ListenerContext, Part};
use super::objects::remove;
use super::state::ListenerMachine;
use crate::api::AutoscalingListener;
use crate::messages::{Kind, ObjectRef};
use crate::resources::{listener_config_secret_name, listener_proxy_secret_name};

impl ListenerMachine {
    /// Removes the pod, and once it is gone all the rest: a listener that ends needs its
    /// permissions to finish the message in hand. Says whether everything is gone.
    pub(super) fn tear_down(
        &mut self,
        al: &AutoscalingListener,
        ctx: &mut ListenerContext,
    ) -> bool {
        self.restarts.rest();
        self.problem = None;
        if !self.remove_pod(al, ctx) {
            return false;
        }
        let parts = &mut self.parts;
        let here = |kind, name: String| ObjectRef::new(kind, &self.namespace, name);
        let there = |kind| {
            let namespace = &al.spec.autoscaling_runner_set_namespace;
            ObjectRef::new(kind, namespace, &self.name)
        };
        let config = here(Kind::Secret, listener_config_secret_name(&self.name));
        let proxy = here(Kind::Secret, listener_proxy_secret_name(&self.name));
        let role_binding = there(Kind::RoleBinding);
        let role = there(Kind::Role);
        let account = here(Kind::ServiceAccount, self.name.clone());
        let gone = [
            remove(
                &mut parts.config_secret,
                Part::ConfigSecret,
                al,
                &config,
                ctx,
            ),
            remove(&mut parts.proxy_secret, Part::ProxySecret, al, &proxy, ctx),
            remove(
                &mut parts.role_binding,
                Part::RoleBinding,
                al,
                &role_binding,
                ctx,
            ),
            remove(&mut parts.role, Part::Role, al, &role, ctx),
            remove(
                &mut parts.service_account,
                Part::ServiceAccount,
                al,
                &account,
                ctx,
            ),
        ];
        gone.iter().all(|gone| *gone)
    }
}
