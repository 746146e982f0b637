//! Writing the set's status and finalizer.

use serde_json::{Map, Value, json};

use super::machine::{RunnerSetMachine, RunnerSetTag};
use super::runner_index::RunnerClass;
use crate::actors::core::cached::Verb;
use crate::actors::core::step_context::StepContext;
use crate::api::constants::finalizers;
use crate::api::{EphemeralRunnerSet, EphemeralRunnerSetPhase, EphemeralRunnerSetStatus};
use crate::clock::after;
use crate::messages::KubeRequest;

/// At most one write of counts in so many seconds.
const STATUS_PERIOD: i64 = 1;

/// What stands in the status and is not a count. It is written at once, and only onto the
/// copy that it was decided on.
#[derive(Debug, Default)]
pub(super) struct StatusMarks {
    pub applied: Option<i64>,
    pub cleanup_patch: Option<i64>,
    pub phase: Option<EphemeralRunnerSetPhase>,
}

impl RunnerSetMachine {
    /// Writes marks, with an optimistic lock; the counts go along. Says whether it was sent.
    pub(super) fn write_marks(
        &mut self,
        set: &EphemeralRunnerSet,
        marks: &StatusMarks,
        ctx: &mut StepContext<Self>,
    ) -> bool {
        let lock = set.metadata.resource_version.clone();
        self.write_status(set, marks, lock, ctx)
    }

    /// Keeps the counts in the status up to date.
    pub(super) fn keep_status(&mut self, set: &EphemeralRunnerSet, ctx: &mut StepContext<Self>) {
        if changes(set, &self.desired_status(set, &StatusMarks::default())).is_empty() {
            return;
        }
        let due = self
            .status_written
            .map_or(ctx.now, |time| after(time, STATUS_PERIOD));
        if due > ctx.now {
            ctx.wake_at(due);
        } else {
            self.write_status(set, &StatusMarks::default(), None, ctx);
        }
    }

    fn write_status(
        &mut self,
        set: &EphemeralRunnerSet,
        marks: &StatusMarks,
        lock: Option<String>,
        ctx: &mut StepContext<Self>,
    ) -> bool {
        let body = changes(set, &self.desired_status(set, marks));
        if body.is_empty() || !ctx.begin(&mut self.set) {
            return false;
        }
        self.status_written = Some(ctx.now);
        ctx.kube(
            RunnerSetTag::RunnerSet(Verb::Patch),
            KubeRequest::Patch {
                target: self.reference(),
                body: json!({ "status": body }),
                status: true,
                lock,
            },
        );
        true
    }

    fn desired_status(
        &self,
        set: &EphemeralRunnerSet,
        marks: &StatusMarks,
    ) -> EphemeralRunnerSetStatus {
        let live = set.status.as_ref();
        EphemeralRunnerSetStatus {
            current_replicas: self.runners.capacity(),
            pending_ephemeral_runners: Some(self.runners.count(RunnerClass::Pending)),
            running_ephemeral_runners: Some(self.runners.count(RunnerClass::Running)),
            failed_ephemeral_runners: Some(self.runners.count(RunnerClass::Failed)),
            phase: Some(marks.phase.unwrap_or_else(|| self.phase())),
            applied_actionable_revision: marks
                .applied
                .or_else(|| live.and_then(|status| status.applied_actionable_revision)),
            finished_runner_cleanup_patch_id: marks
                .cleanup_patch
                .or_else(|| live.and_then(|status| status.finished_runner_cleanup_patch_id)),
        }
    }

    pub(super) fn has_finalizer(&self, set: &EphemeralRunnerSet) -> bool {
        set.metadata
            .finalizers
            .iter()
            .flatten()
            .any(|name| name == finalizers::EPHEMERAL_RUNNER_SET)
    }

    pub(super) fn add_finalizer(&mut self, set: &EphemeralRunnerSet, ctx: &mut StepContext<Self>) {
        let mut wanted = set.metadata.finalizers.clone().unwrap_or_default();
        wanted.push(finalizers::EPHEMERAL_RUNNER_SET.to_owned());
        self.write_finalizers(
            set,
            RunnerSetTag::RunnerSet(Verb::Patch),
            json!(wanted),
            ctx,
        );
    }

    pub(super) fn drop_finalizer(&mut self, set: &EphemeralRunnerSet, ctx: &mut StepContext<Self>) {
        let others: Vec<&String> = set
            .metadata
            .finalizers
            .iter()
            .flatten()
            .filter(|name| *name != finalizers::EPHEMERAL_RUNNER_SET)
            .collect();
        let value = if others.is_empty() {
            Value::Null
        } else {
            json!(others)
        };
        self.write_finalizers(set, RunnerSetTag::RunnerSet(Verb::Patch), value, ctx);
    }

    fn write_finalizers(
        &mut self,
        set: &EphemeralRunnerSet,
        tag: RunnerSetTag,
        finalizers: Value,
        ctx: &mut StepContext<Self>,
    ) {
        if !ctx.begin(&mut self.set) {
            return;
        }
        ctx.kube(
            tag,
            KubeRequest::Patch {
                target: self.reference(),
                body: json!({ "metadata": { "finalizers": finalizers } }),
                status: false,
                lock: set.metadata.resource_version.clone(),
            },
        );
    }
}

/// The fields of `wanted` that the live status lacks or has differently.
fn changes(set: &EphemeralRunnerSet, wanted: &EphemeralRunnerSetStatus) -> Map<String, Value> {
    if set.status.as_ref() == Some(wanted) {
        return Map::new();
    }
    let fields = |status: &EphemeralRunnerSetStatus| match json!(status) {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    let live = set.status.as_ref().map(fields).unwrap_or_default();
    fields(wanted)
        .into_iter()
        .filter(|(key, value)| live.get(key) != Some(value))
        .collect()
}
