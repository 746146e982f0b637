//! What must hold whenever a runner is made or a pod deleted.

use std::collections::{BTreeMap, BTreeSet};

use super::{NAMESPACE, World};
use crate::api::EphemeralRunnerPhase;
use crate::clock::Timestamp;
use crate::messages::{Kind, ObjectRef};

/// What is known of jobs, to tell whether a runner is made for one that is done.
#[derive(Default)]
pub(super) struct Jobs {
    /// Runners that were alive when the patch at hand was written, and all made since.
    pub(super) under_patch: BTreeSet<String>,
    /// Runners that ever had a job, or ended well without.
    spent: BTreeSet<String>,
    /// When the jobs' ends were recorded.
    ended: BTreeMap<String, Timestamp>,
}

impl Jobs {
    pub fn had_job(&mut self, name: &str) {
        self.spent.insert(name.to_owned());
    }

    pub fn ended(&mut self, name: &str, at: Timestamp) {
        self.ended.insert(name.to_owned(), at);
    }

    pub fn last_end(&self) -> Option<Timestamp> {
        self.ended.values().max().copied()
    }
}

impl World {
    /// Takes note of who is alive: a new patch is written, or the memory of the one at hand is
    /// given up for a reason.
    pub(super) fn begin_patch(&mut self) {
        self.jobs.under_patch = self.alive().into_iter().collect();
    }

    /// A new process does not know of runners that a person deleted. Of those that its
    /// predecessor has counted under this patch it knows by the marker, and makes none at all.
    pub(super) fn forget_patch(&mut self) {
        if !self.names(Kind::EphemeralRunnerSet).is_empty()
            && self.marker() != self.set().spec.patch_id
        {
            let live = self.live();
            self.jobs.under_patch.retain(|name| live.contains(name));
        }
    }

    /// Runners that are not over; one in deletion is not while it has a pod.
    pub fn alive(&self) -> Vec<String> {
        let mut names = self.names(Kind::EphemeralRunner);
        names.retain(|name| {
            let runner = self.runner(name).unwrap_or_default();
            let phase = runner.status.unwrap_or_default().phase;
            let over = matches!(
                phase,
                Some(
                    EphemeralRunnerPhase::Succeeded
                        | EphemeralRunnerPhase::Failed
                        | EphemeralRunnerPhase::Outdated
                )
            );
            let pod = ObjectRef::new(Kind::Pod, NAMESPACE, name.as_str());
            let deleting = runner.metadata.deletion_timestamp.is_some();
            !over && (!deleting || self.objects.contains_key(&pod))
        });
        names
    }

    /// Never more runners than the newest `replicas` allows (INV-3), and none for a job that is
    /// done (INV-2).
    pub(super) fn judge_creation(&mut self, name: &str) {
        let set = self.set();
        let replicas = set.spec.replicas.unwrap_or(0);
        let alive = self.alive();
        let count = |length: usize| i64::try_from(length).unwrap();
        if count(alive.len()) >= replicas {
            self.violations.push(format!(
                "{name} created beside {alive:?}, wanted {replicas}"
            ));
        }
        let until = self.counted_until();
        let known = |name: &String| self.jobs.ended.get(name).copied() <= until && until.is_some();
        let done: Vec<&String> = self
            .jobs
            .under_patch
            .intersection(&self.jobs.spent)
            .filter(|name| !alive.contains(name))
            .filter(|name| !(self.jobs.ended.contains_key(*name) && known(name)))
            .collect();
        let patch = set.spec.patch_id;
        if patch > 0 && count(alive.len() + done.len()) >= replicas {
            self.violations.push(format!(
                "{name} created under {patch} beside {alive:?}, wanted {replicas}: {done:?} are done"
            ));
        }
        self.jobs.under_patch.insert(name.to_owned());
        if !self.created.insert(name.to_owned()) {
            self.violations.push(format!("{name} created twice"));
        }
    }

    /// A pod whose runner has a job is not deleted while it runs.
    pub(super) fn judge_deletion(&mut self, target: &ObjectRef) {
        if target.kind != Kind::Pod {
            return;
        }
        let runs = self
            .objects
            .get(target)
            .is_some_and(|pod| pod["status"]["phase"].as_str() == Some("Running"));
        let busy = self
            .registered
            .values()
            .any(|registered| registered.busy && registered.name == target.name);
        if runs && busy {
            self.violations
                .push(format!("pod {} deleted under its job", target.name));
        }
    }
}
