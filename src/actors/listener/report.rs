//! What a scale set hears of its listener.

use super::context::ListenerContext;
use super::health::{Health, health};
use super::state::ListenerMachine;
use crate::api::constants::annotations::LISTENER_CONFIG_RESOURCE_VERSION;
use crate::messages::ListenerReport;

impl ListenerMachine {
    /// Tells the scale set what has changed for it.
    pub(super) fn report(&mut self, ctx: &mut ListenerContext) {
        let ready = self.is_ready();
        if ready && ctx.notes.trouble.is_none() {
            // what is wrong the next time is news again
            ctx.notes.announced.clear();
        }
        let trouble = ctx.notes.trouble.take();
        // that there is none is said once, in the end: one whose state has to be read again
        // after a lost answer may be there, and of one that is gone there may be remains
        let Some(listener) = self.newest_copy() else {
            return;
        };
        if self.reported.is_none() && trouble.is_none() && self.is_unread() {
            // not everything is known yet, and what the scale set has is as good
            return;
        }
        let reason = if ready {
            self.restarts.reason().cloned()
        } else {
            trouble
        };
        let report = ListenerReport {
            name: self.name.clone(),
            listener: Some(listener),
            has_pod: !self.parts.pod.is_absent(),
            ready,
            reason,
            problem: self.problem.clone(),
            missed_scale_set: self.missed_scale_set.clone(),
        };
        if self.reported.as_ref() != Some(&report) {
            self.reported = Some(report.clone());
            ctx.report(report);
        }
    }

    /// Whether something that a report depends on was not read yet.
    fn is_unread(&self) -> bool {
        let parts = &self.parts;
        // without the access the Secrets and their sources are not looked at
        parts.pod.is_unknown()
            || parts.config_secret.is_unknown()
            || parts.service_account.is_unknown()
            || parts.role.is_unknown()
            || parts.role_binding.is_unknown()
            || self.sources.is_unread()
    }

    /// Whether the listener container runs, in a pod built from the current config Secret.
    fn is_ready(&self) -> bool {
        let (Some(pod), Some(config)) = (self.parts.pod.get(), self.parts.config_secret.get())
        else {
            return false;
        };
        let annotations = pod.metadata.annotations.as_ref();
        let version = annotations.and_then(|all| all.get(LISTENER_CONFIG_RESOURCE_VERSION));
        version == Some(&self.parts.config_read.mark(config))
            && matches!(health(pod), Health::Running { .. })
    }
}
