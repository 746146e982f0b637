//! `EphemeralRunnerSet`: the runners of one scale set. The listener writes how many.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{ResourceMeta, known_phase};
use super::ephemeral_runner::EphemeralRunnerSpec;

/// How many runners there are to be, and what each is made of.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "actions.github.com",
    version = "v1alpha1",
    kind = "EphemeralRunnerSet",
    plural = "ephemeralrunnersets",
    shortname = "ers",
    namespaced,
    status = "EphemeralRunnerSetStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name":"DesiredReplicas","type":"integer","jsonPath":".spec.replicas"}"#,
    printcolumn = r#"{"name":"CurrentReplicas","type":"integer","jsonPath":".status.currentReplicas"}"#,
    printcolumn = r#"{"name":"Pending Runners","type":"integer","jsonPath":".status.pendingEphemeralRunners"}"#,
    printcolumn = r#"{"name":"Running Runners","type":"integer","jsonPath":".status.runningEphemeralRunners"}"#,
    printcolumn = r#"{"name":"Failed Runners","type":"integer","jsonPath":".status.failedEphemeralRunners"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Revision","type":"integer","priority":1,"jsonPath":".spec.actionableRevision"}"#,
    printcolumn = r#"{"name":"Applied Revision","type":"integer","priority":1,"jsonPath":".status.appliedActionableRevision"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct EphemeralRunnerSetSpec {
    /// Runners wanted, as the listener last computed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Number of the listener's patch that wrote `replicas`; 0 lets the controller force the
    /// count.
    #[serde(rename = "patchID")]
    pub patch_id: i64,
    /// Revision of the runner spec below. It grows by one with each change of that spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actionable_revision: Option<i64>,
    /// What each new runner is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ephemeral_runner_spec: Option<EphemeralRunnerSpec>,
    /// Labels and annotations of each new runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ephemeral_runner_metadata: Option<ResourceMeta>,
}

/// What is known of the runners of one set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EphemeralRunnerSetStatus {
    /// Runners that count as capacity. ARC's schema requires it, even when it is 0.
    pub current_replicas: i64,
    /// Runners without a job so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_ephemeral_runners: Option<i64>,
    /// Runners with a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_ephemeral_runners: Option<i64>,
    /// Runners that failed without having had a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_ephemeral_runners: Option<i64>,
    /// Whether the current runner spec is accepted by the Actions service.
    #[serde(
        default,
        deserialize_with = "known_phase",
        skip_serializing_if = "Option::is_none"
    )]
    pub phase: Option<EphemeralRunnerSetPhase>,
    /// Newest revision whose cleanup is done. It never moves backwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_actionable_revision: Option<i64>,
    /// Patch id under which finished runners were last removed; under it the set does not
    /// grow, since `replicas` was computed while they were alive.
    #[serde(
        rename = "finishedRunnerCleanupPatchID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub finished_runner_cleanup_patch_id: Option<i64>,
}

/// Whether the current runner spec is accepted by the Actions service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum EphemeralRunnerSetPhase {
    /// It is, as far as is known.
    Running,
    /// A runner of the applied revision was rejected for its version.
    Outdated,
}

/// How our listener names a patch of its own, beside it.
#[must_use]
pub fn listener_patch(patch_id: i64, replicas: i64) -> String {
    format!("{replicas} by patch {patch_id}")
}
