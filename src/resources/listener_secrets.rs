//! The two Secrets of a listener: its configuration and its proxy variables.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use secrecy::ExposeSecret;

use super::ControllerSettings;
use super::error::ConfigError;
use super::metadata::owned_meta;
use super::names::{listener_config_secret_name, listener_proxy_secret_name};
use super::proxy::{Way, configured, proxy_credentials, proxy_env_data, vault_proxy};
use super::sources::{Sources, root_ca_selector};
use crate::api::constants::{keys, labels};
use crate::api::{
    AZURE_KEY_VAULT, AutoscalingListener, Credentials, ListenerConfig, ListenerVault, VaultConfig,
};
use crate::messages::{Kind, KubeObject, ObjectRef};

/// The Secret with the listener's `config.json`.
///
/// # Errors
///
/// When credentials, root certificate or vault settings are missing or not usable.
pub fn listener_config_secret(
    al: &AutoscalingListener,
    sources: &Sources,
    settings: &ControllerSettings,
) -> Result<Secret, ConfigError> {
    let name = al.metadata.name.as_deref().unwrap_or_default();
    let user = al.spec.config_secret_metadata.as_ref();
    let config = listener_config(al, sources, settings)?;
    let json = serde_json::to_vec(&config).map_err(|error| ConfigError::Encoding {
        problem: error.to_string(),
    })?;
    Ok(Secret {
        metadata: owned_meta(
            al,
            listener_config_secret_name(name),
            labels::COMPONENT_LISTENER,
            user,
        ),
        data: Some(BTreeMap::from([(
            keys::LISTENER_CONFIG.to_owned(),
            ByteString(json),
        )])),
        ..Secret::default()
    })
}

/// The Secret with the listener's proxy variables; `None` when it has no proxy.
///
/// # Errors
///
/// When a proxy's URL or credentials are not usable.
pub fn listener_proxy_secret(
    al: &AutoscalingListener,
    sources: &Sources,
) -> Result<Option<Secret>, ConfigError> {
    let Some(proxy) = configured(al.spec.proxy.as_ref()) else {
        return Ok(None);
    };
    let name = listener_proxy_secret_name(al.metadata.name.as_deref().unwrap_or_default());
    let namespace = &al.spec.autoscaling_runner_set_namespace;
    let credentials = proxy_credentials(proxy, Way::GitHub, namespace, sources)?;
    Ok(Some(Secret {
        metadata: owned_meta(al, name, labels::COMPONENT_LISTENER, None),
        data: Some(proxy_env_data(proxy, &credentials)?),
        ..Secret::default()
    }))
}

fn listener_config(
    al: &AutoscalingListener,
    sources: &Sources,
    settings: &ControllerSettings,
) -> Result<ListenerConfig, ConfigError> {
    let spec = &al.spec;
    let metrics_addr = settings.listener_metrics_address();
    let mut config = ListenerConfig {
        configure_url: spec.github_config_url.clone(),
        ephemeral_runner_set_namespace: spec.autoscaling_runner_set_namespace.clone(),
        ephemeral_runner_set_name: spec.ephemeral_runner_set_name.clone(),
        max_runners: spec.max_runners,
        min_runners: spec.min_runners,
        runner_scale_set_id: spec.runner_scale_set_id,
        runner_scale_set_name: spec.autoscaling_runner_set_name.clone(),
        server_root_ca: root_ca(al, sources)?.unwrap_or_default(),
        log_level: settings.log_level.clone(),
        log_format: settings.log_format.clone(),
        metrics_addr: metrics_addr.unwrap_or_default().to_owned(),
        metrics_endpoint: metrics_addr
            .map(|_| settings.listener_metrics_endpoint.clone())
            .unwrap_or_default(),
        metrics: spec.metrics.clone(),
        ..ListenerConfig::default()
    };
    match &spec.vault_config {
        Some(vault) => put_vault(&mut config, vault, al, sources)?,
        None => put_credentials(&mut config, al, sources)?,
    }
    Ok(config)
}

fn put_vault(
    config: &mut ListenerConfig,
    vault: &VaultConfig,
    al: &AutoscalingListener,
    sources: &Sources,
) -> Result<(), ConfigError> {
    if vault.vault_type != AZURE_KEY_VAULT {
        return Err(ConfigError::Field {
            field: "spec.vaultConfig.type",
            problem: "is not a kind of vault we know: set it to azure_key_vault",
        });
    }
    let Some(azure) = &vault.azure_key_vault else {
        return Err(ConfigError::Field {
            field: "spec.vaultConfig.azureKeyVault",
            problem: "is missing: set url, tenantId, clientId and certificatePath",
        });
    };
    let namespace = &al.spec.autoscaling_runner_set_namespace;
    let proxy = vault.proxy.as_ref();
    let proxy = proxy.map(|proxy| vault_proxy(proxy, namespace, sources));
    config.vault_type.clone_from(&vault.vault_type);
    config
        .vault_lookup_key
        .clone_from(&al.spec.github_config_secret);
    config.azure_key_vault = Some(ListenerVault::new(azure, proxy.transpose()?));
    Ok(())
}

fn put_credentials(
    config: &mut ListenerConfig,
    al: &AutoscalingListener,
    sources: &Sources,
) -> Result<(), ConfigError> {
    let namespace = &al.spec.autoscaling_runner_set_namespace;
    let name = &al.spec.github_config_secret;
    let secret = sources.secret(namespace, name, "spec.githubConfigSecret")?;
    let data = secret.data.clone().unwrap_or_default();
    let credentials =
        Credentials::from_data(&data).map_err(|problem| ConfigError::Credentials {
            object: secret.reference(),
            problem,
        })?;
    match credentials {
        Credentials::Token(token) => token.expose_secret().clone_into(&mut config.github_token),
        Credentials::App {
            app_id,
            installation_id,
            private_key,
        } => {
            config.github_app_id = app_id;
            config.github_app_installation_id = installation_id;
            private_key
                .expose_secret()
                .clone_into(&mut config.github_app_private_key);
        }
    }
    Ok(())
}

/// The further root certificate, PEM; `None` when there is none to be.
fn root_ca(al: &AutoscalingListener, sources: &Sources) -> Result<Option<String>, ConfigError> {
    const FIELD: &str = "spec.githubServerTLS.certificateFrom.configMapKeyRef";
    let Some(tls) = &al.spec.github_server_tls else {
        return Ok(None);
    };
    let selector = root_ca_selector(tls).ok_or(ConfigError::Field {
        field: FIELD,
        problem: "is missing: name the ConfigMap and the key of the root certificate",
    })?;
    let namespace = al.spec.autoscaling_runner_set_namespace.as_str();
    let object = ObjectRef::new(Kind::ConfigMap, namespace, selector.name.as_str());
    let key = selector.key.clone();
    let found = match sources.config_map(&selector.name) {
        Some(config_map) => {
            let data = config_map.data.as_ref();
            data.and_then(|data| data.get(&key))
                .ok_or(ConfigError::MissingKey {
                    object: object.clone(),
                    key: key.clone(),
                    field: FIELD,
                })
        }
        None => Err(ConfigError::Missing {
            object: object.clone(),
            field: FIELD,
        }),
    };
    match found {
        Ok(pem) if pem.contains("-----BEGIN CERTIFICATE-----") => Ok(Some(pem.clone())),
        Ok(_) => Err(ConfigError::InvalidKey {
            object,
            key,
            problem: "holds no certificate in PEM form",
        }),
        Err(_) if selector.optional == Some(true) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::metadata::owner_reference;
    use super::super::test_support::{
        CA, config_map, listener, map, secret, settings, sources, texts,
    };
    use super::*;
    use crate::api::{AzureKeyVaultConfig, ProxyConfig, ProxyServerConfig, TlsConfig};
    use crate::messages::Object;

    fn config(al: &AutoscalingListener, settings: &ControllerSettings) -> Value {
        let secret = listener_config_secret(al, &sources(), settings).unwrap();
        serde_json::from_str(&texts(secret.data.as_ref())["config.json"]).unwrap()
    }

    fn refusal(al: &AutoscalingListener, changed: &Object) -> String {
        let mut sources = sources();
        sources.insert(changed);
        listener_config_secret(al, &sources, &settings())
            .unwrap_err()
            .to_string()
    }

    fn vault() -> VaultConfig {
        VaultConfig {
            vault_type: "azure_key_vault".to_owned(),
            azure_key_vault: Some(AzureKeyVaultConfig {
                url: "https://vault".to_owned(),
                tenant_id: "tenant".to_owned(),
                client_id: "client".to_owned(),
                certificate_path: "/cert".to_owned(),
            }),
            proxy: None,
        }
    }

    #[test]
    fn each_key_of_the_configuration_comes_from_where_it_belongs() {
        assert_eq!(
            config(&listener(), &settings()),
            json!({
                "configure_url": "https://github.com/acme/widgets",
                "github_token": "ghp_token",
                "ephemeral_runner_set_namespace": "runners",
                "ephemeral_runner_set_name": "pool",
                "max_runners": 9,
                "min_runners": 2,
                "runner_scale_set_id": 41,
                "runner_scale_set_name": "pool",
                "server_root_ca": CA,
                "log_level": "debug",
                "log_format": "json",
                "metrics_addr": ":8081",
                "metrics_endpoint": "/scrape",
                "metrics": {"gauges": {"gha_busy_runners": {"labels": ["name"]}}},
            })
        );
    }

    #[test]
    fn the_configuration_is_the_same_to_the_byte_each_time() {
        let build = || listener_config_secret(&listener(), &sources(), &settings()).unwrap();
        assert_eq!(build(), build());
    }

    #[test]
    fn an_apps_credentials_are_handed_on() {
        let mut sources = sources();
        let app = [
            ("github_app_id", "Iv1.abc"),
            ("github_app_installation_id", "77"),
            ("github_app_private_key", "pem"),
        ];
        sources.insert(&secret("runners", "github-secret", &app));
        let config = listener_config(&listener(), &sources, &settings()).unwrap();
        assert_eq!(config.github_app_id, "Iv1.abc");
        assert_eq!(config.github_app_installation_id, 77);
        assert_eq!(config.github_app_private_key, "pem");
        assert_eq!(config.github_token, "");
    }

    #[test]
    fn with_a_vault_the_lookup_key_stands_in_place_of_credentials() {
        let mut al = listener();
        al.spec.vault_config = Some(vault());
        let config = config(&al, &settings());
        assert_eq!(config["vault_type"], "azure_key_vault");
        assert_eq!(config["vault_lookup_key"], "github-secret");
        assert_eq!(
            config["azure_key_vault"],
            json!({
                "url": "https://vault",
                "tenant_id": "tenant",
                "client_id": "client",
                "certificate_path": "/cert",
            })
        );
        assert_eq!(config.get("github_token"), None);
    }

    #[test]
    fn a_vaults_proxy_is_handed_on_with_its_credentials() {
        let mut al = listener();
        let server = ProxyServerConfig {
            url: "http://vault.proxy:3128".to_owned(),
            credential_secret_ref: "vault-auth".to_owned(),
        };
        al.spec.vault_config = Some(VaultConfig {
            proxy: Some(ProxyConfig {
                https: Some(server),
                no_proxy: vec![".acme.io".to_owned(), "10.0.0.0/8".to_owned()],
                ..ProxyConfig::default()
            }),
            ..vault()
        });
        let mut sources = sources();
        let error = listener_config_secret(&al, &sources, &settings()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("spec.vaultConfig.proxy.https.credentialSecretRef"),
            "{error}"
        );
        let auth = [("username", "us@er"), ("password", "pass")];
        sources.insert(&secret("runners", "vault-auth", &auth));
        let config = listener_config(&al, &sources, &settings()).unwrap();
        assert_eq!(
            json!(config.azure_key_vault.unwrap().proxy),
            json!({
                "HTTPSProxy": "http://us%40er:pass@vault.proxy:3128",
                "NoProxy": ".acme.io,10.0.0.0/8",
            })
        );
    }

    #[test]
    fn a_vault_that_cannot_be_read_is_named_by_its_field() {
        let mut al = listener();
        let mut refused = |vault: VaultConfig| {
            al.spec.vault_config = Some(vault);
            listener_config_secret(&al, &sources(), &settings())
                .unwrap_err()
                .to_string()
        };
        let unknown = refused(VaultConfig::default());
        assert!(unknown.starts_with("spec.vaultConfig.type "), "{unknown}");
        let empty = refused(VaultConfig {
            azure_key_vault: None,
            ..vault()
        });
        assert!(
            empty.starts_with("spec.vaultConfig.azureKeyVault "),
            "{empty}"
        );
    }

    #[test]
    fn without_a_metrics_address_the_endpoint_is_left_out_too() {
        for none in ["", "0"] {
            let mut settings = settings();
            settings.listener_metrics_addr = none.to_owned();
            let config = config(&listener(), &settings);
            assert_eq!(config.get("metrics_addr"), None);
            assert_eq!(config.get("metrics_endpoint"), None);
        }
    }

    #[test]
    fn unusable_sources_are_named_by_object_and_key_without_their_value() {
        let al = listener();
        let both = [("github_token", "s3cret"), ("github_app_id", "s3cret")];
        for (changed, expected) in [
            (
                secret("runners", "github-secret", &[]),
                "Secret runners/github-secret is not usable: it holds no credentials",
            ),
            (
                secret("runners", "github-secret", &both),
                "it holds both a personal access token (github_token) and a GitHub App",
            ),
            (
                config_map("runners", "ca-map", &[("other.crt", "s3cret")]),
                "ConfigMap runners/ca-map has no key ca.crt: add it or correct \
                 spec.githubServerTLS.certificateFrom.configMapKeyRef",
            ),
            (
                config_map("runners", "ca-map", &[("ca.crt", "s3cret")]),
                "key ca.crt of ConfigMap runners/ca-map holds no certificate in PEM form",
            ),
        ] {
            let error = refusal(&al, &changed);
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
        let error = listener_config_secret(&al, &Sources::default(), &settings()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("ConfigMap runners/ca-map, named by")
        );
    }

    #[test]
    fn a_root_certificate_that_is_optional_may_be_missing() {
        let mut al = listener();
        let from = &mut al.spec.github_server_tls.as_mut().unwrap().certificate_from;
        let selector = from.as_mut().unwrap().config_map_key_ref.as_mut().unwrap();
        selector.optional = Some(true);
        selector.name = "elsewhere".to_owned();
        assert_eq!(config(&al, &settings()).get("server_root_ca"), None);
    }

    #[test]
    fn a_root_certificate_from_nowhere_is_refused() {
        let mut al = listener();
        al.spec.github_server_tls = Some(TlsConfig::default());
        let error = listener_config_secret(&al, &sources(), &settings()).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("spec.githubServerTLS.certificateFrom.configMapKeyRef is missing"),
            "{error}"
        );
    }

    #[test]
    fn both_secrets_live_beside_the_listener_and_go_with_it() {
        let al = listener();
        let config = listener_config_secret(&al, &sources(), &settings()).unwrap();
        let proxy = listener_proxy_secret(&al, &sources()).unwrap().unwrap();
        for (metadata, name) in [
            (&config.metadata, "pool-al-config"),
            (&proxy.metadata, "pool-al-proxy"),
        ] {
            assert_eq!(metadata.name.as_deref(), Some(name));
            assert_eq!(metadata.namespace.as_deref(), Some("system"));
            assert_eq!(metadata.owner_references, Some(vec![owner_reference(&al)]));
        }
        assert_eq!(config.metadata.labels.unwrap()["kind-label"], "config");
        assert_eq!(
            config.metadata.annotations.unwrap()["kind-note"],
            "config-note"
        );
        assert_eq!(proxy.metadata.labels.unwrap()["kind-label"], "listener");
        assert_eq!(
            texts(proxy.data.as_ref()),
            map(&[
                ("http_proxy", "http://plain.proxy:3128"),
                ("https_proxy", "http://me%40acme:p%3A%2Fss@tls.proxy:3129"),
                ("no_proxy", "10.0.0.0/8,acme.internal"),
            ])
        );
    }

    #[test]
    fn a_listener_without_proxy_has_no_proxy_secret() {
        let mut al = listener();
        al.spec.proxy = None;
        assert_eq!(listener_proxy_secret(&al, &sources()), Ok(None));
    }
}
