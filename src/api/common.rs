//! Parts that several of the custom resources share.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMapKeySelector;
use schemars::JsonSchema;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize};

/// Proxies for calls to GitHub, and the hosts reached without them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyConfig {
    /// Proxy for `http` targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<ProxyServerConfig>,
    /// Proxy for `https` targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https: Option<ProxyServerConfig>,
    /// Hosts, domains, addresses and networks reached directly.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_proxy: Vec<String>,
}

/// One proxy server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyServerConfig {
    /// The proxy's URL, without credentials.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// Name of a Secret with the keys `username` and `password`, in the scale set's namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub credential_secret_ref: String,
}

/// How the certificate of a GitHub Enterprise Server is verified.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsConfig {
    /// Where the root certificate is read from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_from: Option<TlsCertificateSource>,
}

/// A place that holds a root certificate in PEM form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsCertificateSource {
    /// A key of a ConfigMap in the scale set's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<ConfigMapKeySelector>,
}

/// A vault that holds the GitHub credentials in place of a Kubernetes Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VaultConfig {
    /// Kind of vault; `azure_key_vault` is the one there is.
    #[serde(rename = "type", skip_serializing_if = "String::is_empty")]
    pub vault_type: String,
    /// Settings for `azure_key_vault`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_key_vault: Option<AzureKeyVaultConfig>,
    /// Proxies for calls to the vault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyConfig>,
}

/// An Azure Key Vault and the identity that reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AzureKeyVaultConfig {
    /// The vault's URL.
    pub url: String,
    /// The Entra tenant.
    pub tenant_id: String,
    /// The application that signs in.
    pub client_id: String,
    /// Path, inside the pod, of the certificate it signs in with.
    pub certificate_path: String,
}

/// Which of the listener's metrics exist, by name without or with their `gha_` prefix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MetricsConfig {
    /// Counters by metric name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, CounterMetric>,
    /// Gauges by metric name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub gauges: BTreeMap<String, GaugeMetric>,
    /// Histograms by metric name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub histograms: BTreeMap<String, HistogramMetric>,
}

/// Settings of one counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CounterMetric {
    /// Names of the labels it carries.
    pub labels: Vec<String>,
}

/// Settings of one gauge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GaugeMetric {
    /// Names of the labels it carries.
    pub labels: Vec<String>,
}

/// Settings of one histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistogramMetric {
    /// Names of the labels it carries.
    pub labels: Vec<String>,
    /// Upper bounds of its buckets, in seconds; empty means the default ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<f64>,
}

/// Labels and annotations for an object that the controller makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ResourceMeta {
    /// Labels to add.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Reads a phase. One that is not ours, of another version or written by hand, counts as
/// absent: an object must be readable whatever its phase says.
pub(super) fn known_phase<'de, D, Phase>(deserializer: D) -> Result<Option<Phase>, D::Error>
where
    D: Deserializer<'de>,
    Phase: Deserialize<'de>,
{
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.and_then(|text| {
        let text: serde::de::value::StringDeserializer<serde::de::value::Error> =
            text.into_deserializer();
        Phase::deserialize(text).ok()
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::api::{AutoscalingListener, AutoscalingListenerPhase, EphemeralRunner};
    use crate::api::{EphemeralRunnerPhase, EphemeralRunnerStatus};

    #[test]
    fn a_phase_of_another_version_counts_as_absent() {
        for (text, phase) in [
            ("Succeeded", Some(EphemeralRunnerPhase::Succeeded)),
            ("Aborted", None),
            ("", None),
        ] {
            let status: EphemeralRunnerStatus =
                serde_json::from_value(json!({"phase": text, "runnerId": 7})).unwrap();
            assert_eq!((status.phase, status.runner_id), (phase, Some(7)), "{text}");
        }
        let listener: AutoscalingListener =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"phase": "Paused"}}))
                .unwrap();
        assert_eq!(listener.spec.phase, None::<AutoscalingListenerPhase>);
    }

    #[test]
    fn a_phase_of_the_wrong_type_is_an_error() {
        let object = json!({"metadata": {}, "spec": {
            "githubConfigUrl": "https://github.com/acme", "githubConfigSecret": "s",
            "runnerScaleSetId": 1}, "status": {"phase": 3}});
        assert!(serde_json::from_value::<EphemeralRunner>(object).is_err());
    }
}
