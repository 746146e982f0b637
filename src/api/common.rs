//! Parts that several of the custom resources share.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMapKeySelector;
use schemars::JsonSchema;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize};
use url::{Host, Url};

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

/// The one kind of vault there is.
pub const AZURE_KEY_VAULT: &str = "azure_key_vault";

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
    /// Proxies for calls to the vault and to its tenant's login. Without them, the environment
    /// of controller and listener decides.
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
    /// Path, inside the pods of controller and listener, of a PEM file with the certificate
    /// that it signs in with, and its private key.
    pub certificate_path: String,
}

impl AzureKeyVaultConfig {
    /// What keeps it from being used: fields, in their order, each with what to do.
    #[must_use]
    pub fn problems(&self) -> Vec<(&'static str, &'static str)> {
        let mut problems = Vec::new();
        if self.url.is_empty() {
            problems.push(("url", "is not set; give the vault's URL"));
        } else if self.parsed_url().is_none() {
            let problem = "is not the URL of a vault; use https://VAULT.vault.azure.net";
            problems.push(("url", problem));
        }
        if self.tenant_id.is_empty() {
            problems.push(("tenantId", "is not set; give the Entra tenant"));
        } else if !is_tenant(&self.tenant_id) {
            let problem =
                "is not the id or domain of a tenant; use letters, digits, dots and dashes";
            problems.push(("tenantId", problem));
        }
        if self.client_id.is_empty() {
            let problem = "is not set; give the application that signs in";
            problems.push(("clientId", problem));
        }
        if self.certificate_path.is_empty() {
            let problem = "is not set; give the path of the certificate in the pod";
            problems.push(("certificatePath", problem));
        }
        problems
    }

    /// The vault's URL. `None` when nothing can be fetched from it: it is none, or the tokens
    /// would cross a network in the open, which this machine's own addresses are not.
    #[must_use]
    pub fn parsed_url(&self) -> Option<Url> {
        let url = Url::parse(&self.url).ok()?;
        let is_safe = match (url.scheme(), url.host()?) {
            ("https", _) => true,
            ("http", Host::Domain(name)) => name == "localhost",
            ("http", Host::Ipv4(address)) => address.is_loopback(),
            ("http", Host::Ipv6(address)) => address.is_loopback(),
            _ => false,
        };
        is_safe.then_some(url)
    }

    /// Why a text cannot be the name of a secret in a Key Vault, if so.
    #[must_use]
    pub fn secret_name_problem(name: &str) -> Option<&'static str> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_name = (1..=127).contains(&name.len()) && name.bytes().all(is_part);
        (!is_name).then_some(
            "is not the name of a secret in a Key Vault; it has at most 127 letters, digits and \
             dashes",
        )
    }
}

fn is_tenant(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    text.bytes().all(is_part) && !text.starts_with('.')
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
