//! What Secrets of ours are made from: objects of the user's that we read and do not own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapKeySelector, Secret};

use super::error::ConfigError;
use crate::api::{AutoscalingListener, EphemeralRunnerSet, ProxyConfig, TlsConfig};
use crate::messages::{Kind, KubeObject, Object, ObjectRef};

/// Objects that were read for a listener or a runner set, all of one namespace.
#[derive(Clone, Default, PartialEq)]
pub struct Sources {
    secrets: BTreeMap<String, Arc<Secret>>,
    config_maps: BTreeMap<String, Arc<ConfigMap>>,
}

impl Sources {
    /// Takes in an object that was read, in place of an older copy. Only Secrets and
    /// ConfigMaps can be sources.
    pub fn insert(&mut self, object: &Object) {
        let name = object.meta().name.clone().unwrap_or_default();
        match object {
            Object::Secret(secret) => {
                self.secrets.insert(name, Arc::clone(secret));
            }
            Object::ConfigMap(config_map) => {
                self.config_maps.insert(name, Arc::clone(config_map));
            }
            _ => {}
        }
    }

    /// Forgets an object that was found missing.
    pub fn remove(&mut self, object: &ObjectRef) {
        match object.kind {
            Kind::Secret => {
                self.secrets.remove(&object.name);
            }
            Kind::ConfigMap => {
                self.config_maps.remove(&object.name);
            }
            _ => {}
        }
    }

    pub(super) fn secret(
        &self,
        namespace: &str,
        name: &str,
        field: &'static str,
    ) -> Result<&Arc<Secret>, ConfigError> {
        self.secrets.get(name).ok_or_else(|| ConfigError::Missing {
            object: ObjectRef::new(Kind::Secret, namespace, name),
            field,
        })
    }

    pub(super) fn config_map(&self, name: &str) -> Option<&Arc<ConfigMap>> {
        self.config_maps.get(name)
    }
}

/// Names only: values of Secrets must not end up in logs.
impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("secrets", &self.secrets.keys())
            .field("config_maps", &self.config_maps.keys())
            .finish()
    }
}

/// What has to be read before the Secrets of a listener can be built: credentials unless they
/// are in a vault, credentials of all proxies, root certificate.
#[must_use]
pub fn listener_sources(al: &AutoscalingListener) -> Vec<ObjectRef> {
    let spec = &al.spec;
    let namespace = spec.autoscaling_runner_set_namespace.as_str();
    let mut names = proxy_secret_names(spec.proxy.as_ref());
    match &spec.vault_config {
        Some(vault) => names.extend(proxy_secret_names(vault.proxy.as_ref())),
        None => names.push(&spec.github_config_secret),
    }
    let mut sources = secret_references(namespace, names);
    let tls = spec.github_server_tls.as_ref();
    if let Some(selector) = tls.and_then(root_ca_selector) {
        let name = selector.name.as_str();
        sources.push(ObjectRef::new(Kind::ConfigMap, namespace, name));
    }
    sources
}

/// What has to be read before the proxy Secret of a set's runners can be built.
#[must_use]
pub fn runner_proxy_sources(set: &EphemeralRunnerSet) -> Vec<ObjectRef> {
    let spec = set.spec.ephemeral_runner_spec.as_ref();
    let names = proxy_secret_names(spec.and_then(|spec| spec.proxy.as_ref()));
    secret_references(set.metadata.namespace.as_deref().unwrap_or_default(), names)
}

/// The key of a ConfigMap that the root certificate is read from.
pub(super) fn root_ca_selector(tls: &TlsConfig) -> Option<&ConfigMapKeySelector> {
    tls.certificate_from.as_ref()?.config_map_key_ref.as_ref()
}

/// The value of a Secret's key as text, without the line end that files put behind it; `None`
/// when there is no such key.
pub(super) fn secret_text(secret: &Secret, key: &str) -> Result<Option<String>, ConfigError> {
    let Some(ByteString(bytes)) = secret.data.as_ref().and_then(|data| data.get(key)) else {
        return Ok(None);
    };
    let text = std::str::from_utf8(bytes).map_err(|_| ConfigError::InvalidKey {
        object: secret.reference(),
        key: key.to_owned(),
        problem: "is not text",
    })?;
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}

fn proxy_secret_names(proxy: Option<&ProxyConfig>) -> Vec<&str> {
    proxy
        .into_iter()
        .flat_map(|proxy| [&proxy.http, &proxy.https])
        .flatten()
        .map(|server| server.credential_secret_ref.as_str())
        .collect()
}

/// References to Secrets of these names, each once; an empty name refers to none.
fn secret_references(namespace: &str, mut names: Vec<&str>) -> Vec<ObjectRef> {
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(|name| ObjectRef::new(Kind::Secret, namespace, name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{config_map, listener, secret, set, sources};
    use super::*;

    fn shown(references: &[ObjectRef]) -> Vec<String> {
        references.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_listener_needs_credentials_proxy_secrets_and_the_root_certificate() {
        assert_eq!(
            shown(&listener_sources(&listener())),
            [
                "Secret runners/github-secret",
                "Secret runners/proxy-auth",
                "ConfigMap runners/ca-map",
            ]
        );
    }

    #[test]
    fn with_a_vault_no_credentials_are_read() {
        let mut listener = listener();
        listener.spec.vault_config = Some(crate::api::VaultConfig::default());
        assert_eq!(
            shown(&listener_sources(&listener)),
            ["Secret runners/proxy-auth", "ConfigMap runners/ca-map"]
        );
        listener.spec.vault_config = Some(crate::api::VaultConfig {
            proxy: Some(ProxyConfig {
                https: Some(crate::api::ProxyServerConfig {
                    url: "http://p:1".to_owned(),
                    credential_secret_ref: "vault-proxy-auth".to_owned(),
                }),
                ..ProxyConfig::default()
            }),
            ..crate::api::VaultConfig::default()
        });
        assert_eq!(
            shown(&listener_sources(&listener)),
            [
                "Secret runners/proxy-auth",
                "Secret runners/vault-proxy-auth",
                "ConfigMap runners/ca-map"
            ]
        );
    }

    #[test]
    fn a_secret_that_serves_both_proxies_is_read_once() {
        let mut set = set();
        let spec = set.spec.ephemeral_runner_spec.as_mut().unwrap();
        let proxy = spec.proxy.as_mut().unwrap();
        proxy.http.clone_from(&proxy.https);
        assert_eq!(
            shown(&runner_proxy_sources(&set)),
            ["Secret runners/proxy-auth"]
        );
    }

    #[test]
    fn the_newest_copy_counts_and_a_removed_one_is_missing() {
        let mut sources = sources();
        let object = secret("runners", "github-secret", &[("k", "new")]);
        sources.insert(&object);
        let read = sources.secret("runners", "github-secret", "f").unwrap();
        assert_eq!(secret_text(read, "k"), Ok(Some("new".to_owned())));
        sources.remove(&object.reference());
        assert_eq!(
            sources
                .secret("runners", "github-secret", "spec.githubConfigSecret")
                .unwrap_err()
                .to_string(),
            "Secret runners/github-secret, named by spec.githubConfigSecret, does not exist: \
             create it or correct the field"
        );
        let object = config_map("runners", "ca-map", &[]);
        sources.remove(&object.reference());
        assert_eq!(sources.config_map("ca-map"), None);
    }

    #[test]
    fn values_are_not_shown() {
        let shown = format!("{:?}", sources());
        assert!(shown.contains("github-secret"), "{shown}");
        assert!(!shown.contains("ghp_token"), "{shown}");
    }
}
