//! `config.json`: what the controller hands to a listener program.
//!
//! The controller writes it into the Secret that the listener's pod mounts. Keys are a
//! contract with ARC's listener, which reads the same file.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::common::{AzureKeyVaultConfig, MetricsConfig};

/// The listener's configuration. Its `Debug` shows no credentials.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerConfig {
    /// Config URL.
    pub configure_url: String,
    /// Kind of vault; empty when the credentials are in this file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub vault_type: String,
    /// Key of the credentials in the vault.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub vault_lookup_key: String,
    /// The vault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_key_vault: Option<ListenerVault>,
    /// App id or client id of a GitHub App.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub github_app_id: String,
    /// Installation id of a GitHub App; 0 when there is none.
    #[serde(skip_serializing_if = "is_zero")]
    pub github_app_installation_id: i64,
    /// Private key of a GitHub App, PEM.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub github_app_private_key: String,
    /// Personal access token.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub github_token: String,
    /// Namespace of the EphemeralRunnerSet.
    pub ephemeral_runner_set_namespace: String,
    /// Name of the EphemeralRunnerSet.
    pub ephemeral_runner_set_name: String,
    /// Most runners at one time.
    pub max_runners: i64,
    /// Runners kept waiting for jobs.
    pub min_runners: i64,
    /// The scale set's id in the Actions service.
    pub runner_scale_set_id: i64,
    /// The scale set's name, for the metrics.
    pub runner_scale_set_name: String,
    /// Further root certificate, PEM.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_root_ca: String,
    /// Log level.
    pub log_level: String,
    /// Log format, `text` or `json`.
    pub log_format: String,
    /// Address for metrics and health, `host:port` or `:port`; empty turns them off.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub metrics_addr: String,
    /// Path of the metrics.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub metrics_endpoint: String,
    /// Which metrics exist; absent means the default ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsConfig>,
}

impl fmt::Debug for ListenerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerConfig")
            .field("configure_url", &self.configure_url)
            .field("runner_scale_set_id", &self.runner_scale_set_id)
            .field(
                "ephemeral_runner_set_namespace",
                &self.ephemeral_runner_set_namespace,
            )
            .field("ephemeral_runner_set_name", &self.ephemeral_runner_set_name)
            .field("min_runners", &self.min_runners)
            .field("max_runners", &self.max_runners)
            .finish_non_exhaustive()
    }
}

/// The vault that a listener reads its credentials from, in the file's own spelling.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerVault {
    /// The vault's URL.
    pub url: String,
    /// The Entra tenant.
    pub tenant_id: String,
    /// The application that signs in.
    pub client_id: String,
    /// Path of the certificate it signs in with.
    pub certificate_path: String,
    /// Proxies for calls to the vault; absent leaves it to the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ListenerVaultProxy>,
}

/// Proxies for calls to the vault. The URLs hold the credentials, since a listener may read no
/// Secret; so there is no `Debug`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListenerVaultProxy {
    /// Proxy for `http` targets.
    #[serde(rename = "HTTPProxy", skip_serializing_if = "String::is_empty")]
    pub http: String,
    /// Proxy for `https` targets.
    #[serde(rename = "HTTPSProxy", skip_serializing_if = "String::is_empty")]
    pub https: String,
    /// What is reached directly, apart by commas.
    #[serde(rename = "NoProxy", skip_serializing_if = "String::is_empty")]
    pub no_proxy: String,
}

impl ListenerVault {
    /// The vault of a scale set's spec, for its listener.
    #[must_use]
    pub fn new(vault: &AzureKeyVaultConfig, proxy: Option<ListenerVaultProxy>) -> Self {
        Self {
            url: vault.url.clone(),
            tenant_id: vault.tenant_id.clone(),
            client_id: vault.client_id.clone(),
            certificate_path: vault.certificate_path.clone(),
            proxy,
        }
    }

    /// The same, in the spec's words.
    #[must_use]
    pub fn vault(&self) -> AzureKeyVaultConfig {
        AzureKeyVaultConfig {
            url: self.url.clone(),
            tenant_id: self.tenant_id.clone(),
            client_id: self.client_id.clone(),
            certificate_path: self.certificate_path.clone(),
        }
    }
}

// serde hands the field by reference
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &i64) -> bool {
    *number == 0
}
