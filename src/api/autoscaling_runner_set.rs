//! `AutoscalingRunnerSet`: what a user writes to get one pool of runners.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{
    MetricsConfig, ProxyConfig, ResourceMeta, TlsConfig, VaultConfig, known_phase,
};

/// The wish of a user for one pool of runners.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "actions.github.com",
    version = "v1alpha1",
    kind = "AutoscalingRunnerSet",
    plural = "autoscalingrunnersets",
    shortname = "ars",
    namespaced,
    status = "AutoscalingRunnerSetStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Minimum Runners","type":"integer","jsonPath":".spec.minRunners"}"#,
    printcolumn = r#"{"name":"Maximum Runners","type":"integer","jsonPath":".spec.maxRunners"}"#,
    printcolumn = r#"{"name":"Current Runners","type":"integer","jsonPath":".status.currentRunners"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Pending Runners","type":"integer","jsonPath":".status.pendingEphemeralRunners"}"#,
    printcolumn = r#"{"name":"Running Runners","type":"integer","jsonPath":".status.runningEphemeralRunners"}"#,
    printcolumn = r#"{"name":"Failed Runners","type":"integer","jsonPath":".status.failedEphemeralRunners"}"#,
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].reason"}"#,
    printcolumn = r#"{"name":"Message","type":"string","priority":1,"jsonPath":".status.conditions[?(@.type==\"Ready\")].message"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalingRunnerSetSpec {
    /// Enterprise, organization or repository whose jobs the runners take.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub github_config_url: String,
    /// Name of the Secret with the GitHub credentials, or their key in the vault.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub github_config_secret: String,
    /// Runner group in GitHub; empty means the default group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub runner_group: String,
    /// Name that jobs use in `runs-on`; empty means the name of this object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub runner_scale_set_name: String,
    /// Further labels of the scale set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runner_scale_set_labels: Vec<String>,
    /// Proxies for calls to GitHub, for controller, listener and runners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyConfig>,
    /// Root certificate of a GitHub Enterprise Server.
    #[serde(rename = "githubServerTLS", skip_serializing_if = "Option::is_none")]
    pub github_server_tls: Option<TlsConfig>,
    /// Vault that holds the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vault_config: Option<VaultConfig>,
    /// Pod that each runner runs in; its container `runner` is the runner.
    pub template: PodTemplateSpec,
    /// What to add to or change in the listener's pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_template: Option<PodTemplateSpec>,
    /// Which of the listener's metrics exist; absent means the default ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_metrics: Option<MetricsConfig>,
    /// Most runners at one time; absent means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_runners: Option<i64>,
    /// Runners kept waiting for jobs; absent means none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_runners: Option<i64>,
    /// Metadata for the AutoscalingListener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaling_listener: Option<ResourceMeta>,
    /// Metadata for the listener's ServiceAccount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_service_account_metadata: Option<ResourceMeta>,
    /// Metadata for the listener's Role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_role_metadata: Option<ResourceMeta>,
    /// Metadata for the listener's RoleBinding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_role_binding_metadata: Option<ResourceMeta>,
    /// Metadata for the Secret with the listener's configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener_config_secret_metadata: Option<ResourceMeta>,
    /// Metadata for the EphemeralRunnerSet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral_runner_set_metadata: Option<ResourceMeta>,
    /// Metadata for each EphemeralRunner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral_runner_metadata: Option<ResourceMeta>,
    /// Metadata for each runner's JIT configuration Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral_runner_config_secret_metadata: Option<ResourceMeta>,
}

/// What is known of one pool of runners.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalingRunnerSetStatus {
    /// Where the scale set stands as a whole.
    #[serde(
        deserialize_with = "known_phase",
        skip_serializing_if = "Option::is_none"
    )]
    pub phase: Option<AutoscalingRunnerSetPhase>,
    /// Newest generation that is wholly applied, its listener in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Runners that count as capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_runners: Option<i64>,
    /// Runners without a job so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_ephemeral_runners: Option<i64>,
    /// Runners with a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_ephemeral_runners: Option<i64>,
    /// Runners that failed without having had a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_ephemeral_runners: Option<i64>,
    /// `Registered`, `ListenerReady`, `RunnersReady` and `Ready`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Where a scale set stands as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AutoscalingRunnerSetPhase {
    /// A change is being applied.
    Pending,
    /// Everything is applied and the listener is in place.
    Running,
    /// Parked: GitHub rejects the version of the runner in the template.
    Outdated,
}
