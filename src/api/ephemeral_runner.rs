//! `EphemeralRunner`: one runner, which takes one job.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::{ProxyConfig, ResourceMeta, TlsConfig, VaultConfig, known_phase};

/// What one runner is made of. The pod template is inlined as `metadata` and `spec`.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "actions.github.com",
    version = "v1alpha1",
    kind = "EphemeralRunner",
    plural = "ephemeralrunners",
    shortname = "er",
    namespaced,
    status = "EphemeralRunnerStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name":"GitHub Config URL","type":"string","jsonPath":".spec.githubConfigUrl"}"#,
    printcolumn = r#"{"name":"RunnerId","type":"number","jsonPath":".status.runnerId"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"JobRepository","type":"string","jsonPath":".status.jobRepositoryName"}"#,
    printcolumn = r#"{"name":"JobWorkflowRef","type":"string","jsonPath":".status.jobWorkflowRef"}"#,
    printcolumn = r#"{"name":"WorkflowRunId","type":"number","jsonPath":".status.workflowRunId"}"#,
    printcolumn = r#"{"name":"JobDisplayName","type":"string","jsonPath":".status.jobDisplayName"}"#,
    printcolumn = r#"{"name":"JobId","type":"string","jsonPath":".status.jobId"}"#,
    printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.message"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct EphemeralRunnerSpec {
    /// Enterprise, organization or repository whose jobs the runner takes.
    pub github_config_url: String,
    /// Name of the Secret with the GitHub credentials, or their key in the vault.
    pub github_config_secret: String,
    /// Root certificate of a GitHub Enterprise Server.
    #[serde(
        rename = "githubServerTLS",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub github_server_tls: Option<TlsConfig>,
    /// The scale set's id in the Actions service.
    pub runner_scale_set_id: i64,
    /// Proxies for calls to GitHub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyConfig>,
    /// Name of the Secret with the proxy variables of the runner's pod.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub proxy_secret_ref: String,
    /// Vault that holds the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vault_config: Option<VaultConfig>,
    /// Metadata for the runner's JIT configuration Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ephemeral_runner_config_secret_metadata: Option<ResourceMeta>,
    /// Metadata of the pod template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<ObjectMeta>,
    /// Pod of the pod template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<PodSpec>,
}

/// What is known of one runner. The job's fields belong to the listener; the rest to the
/// controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralRunnerStatus {
    /// Whether the runner's pod is ready.
    #[serde(skip_serializing_if = "is_false")]
    pub ready: bool,
    /// Where the runner stands; absent means that nothing has happened yet.
    #[serde(
        deserialize_with = "known_phase",
        skip_serializing_if = "Option::is_none"
    )]
    pub phase: Option<EphemeralRunnerPhase>,
    /// One word on why it stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence on why it stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The runner's id in the Actions service; 0 or absent means that it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner_id: Option<i64>,
    /// The runner's name in the Actions service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner_name: Option<String>,
    /// When pods of this runner failed, by pod UID.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<String, Time>,
    /// Request id of the job it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_request_id: Option<i64>,
    /// Id of the job it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// `owner/name` of the job's repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_repository_name: Option<String>,
    /// Workflow file and ref of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_workflow_ref: Option<String>,
    /// Id of the workflow run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_run_id: Option<i64>,
    /// The job's name as GitHub shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_display_name: Option<String>,
    /// How the job ended (`succeeded`, `failed`, `canceled`, …), as the service says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_result: Option<String>,
    /// When the job ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_finished_at: Option<MicroTime>,
}

/// Where a runner stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum EphemeralRunnerPhase {
    /// It has no job so far.
    Pending,
    /// A job has started on it.
    Running,
    /// It ended by itself, with exit code 0.
    Succeeded,
    /// It ended in any other way.
    Failed,
    /// The Actions service rejected its version (exit code 7).
    Outdated,
}

// serde hands the field by reference
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(flag: &bool) -> bool {
    !*flag
}
