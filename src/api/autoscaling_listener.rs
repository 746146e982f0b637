//! `AutoscalingListener`: the listener of one scale set, in the controller's namespace.

use k8s_openapi::api::core::v1::{LocalObjectReference, PodTemplateSpec};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{
    MetricsConfig, ProxyConfig, ResourceMeta, TlsConfig, VaultConfig, known_phase,
};

/// What the listener of one scale set needs.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "actions.github.com",
    version = "v1alpha1",
    kind = "AutoscalingListener",
    plural = "autoscalinglisteners",
    shortname = "al",
    namespaced,
    status = "AutoscalingListenerStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name":"GitHub Configure URL","type":"string","jsonPath":".spec.githubConfigUrl"}"#,
    printcolumn = r#"{"name":"AutoscalingRunnerSet Namespace","type":"string","jsonPath":".spec.autoscalingRunnerSetNamespace"}"#,
    printcolumn = r#"{"name":"AutoscalingRunnerSet Name","type":"string","jsonPath":".spec.autoscalingRunnerSetName"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalingListenerSpec {
    /// Enterprise, organization or repository whose jobs the runners take.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub github_config_url: String,
    /// Name of the Secret with the GitHub credentials, or their key in the vault.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub github_config_secret: String,
    /// The scale set's id in the Actions service.
    #[serde(skip_serializing_if = "is_zero")]
    pub runner_scale_set_id: i64,
    /// Namespace of the AutoscalingRunnerSet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub autoscaling_runner_set_namespace: String,
    /// Name of the AutoscalingRunnerSet.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub autoscaling_runner_set_name: String,
    /// Name of the EphemeralRunnerSet that the listener scales.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ephemeral_runner_set_name: String,
    /// Most runners at one time.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub max_runners: i64,
    /// Runners kept waiting for jobs.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0))]
    pub min_runners: i64,
    /// The listener's image.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Secrets to pull that image with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Proxies for calls to GitHub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyConfig>,
    /// Root certificate of a GitHub Enterprise Server.
    #[serde(rename = "githubServerTLS", skip_serializing_if = "Option::is_none")]
    pub github_server_tls: Option<TlsConfig>,
    /// Vault that holds the credentials.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vault_config: Option<VaultConfig>,
    /// Which of the listener's metrics exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsConfig>,
    /// What to add to or change in the listener's pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<PodTemplateSpec>,
    /// Metadata for the configuration Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_secret_metadata: Option<ResourceMeta>,
    /// Metadata for the ServiceAccount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account_metadata: Option<ResourceMeta>,
    /// Metadata for the Role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_metadata: Option<ResourceMeta>,
    /// Metadata for the RoleBinding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_binding_metadata: Option<ResourceMeta>,
    /// Whether the listener is to run; absent means `Running`.
    #[serde(
        deserialize_with = "known_phase",
        skip_serializing_if = "Option::is_none"
    )]
    pub phase: Option<AutoscalingListenerPhase>,
}

/// Whether a listener is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AutoscalingListenerPhase {
    /// The listener's pod and all it needs exist.
    #[default]
    Running,
    /// Everything but the AutoscalingListener itself is removed.
    Stopped,
}

/// What is known of one listener. All of it is ours; ARC keeps none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoscalingListenerStatus {
    /// Times the pod was made again since it was last healthy for ten minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restarts: Option<i64>,
    /// Why the pod was last made again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_restart_reason: Option<String>,
}

// serde hands the field by reference
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &i64) -> bool {
    *number == 0
}
