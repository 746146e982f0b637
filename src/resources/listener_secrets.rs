//! The two Secrets of a listener: its configuration and its proxy variables.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use secrecy::ExposeSecret;

use super::ControllerSettings;
use super::error::ConfigError;
use super::metadata::owned_meta;
use super::names::{listener_config_secret_name, listener_proxy_secret_name};
use super::proxy::{configured, proxy_credentials, proxy_env_data};
use super::sources::{Sources, root_ca_selector};
use crate::api::constants::{keys, labels};
use crate::api::{AutoscalingListener, Credentials, ListenerConfig, VaultConfig};
use crate::messages::{Kind, KubeObject, ObjectRef};

/// The one kind of vault there is.
const AZURE_KEY_VAULT: &str = "azure_key_vault";

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
    let credentials = proxy_credentials(proxy, namespace, sources)?;
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
        Some(vault) => put_vault(&mut config, vault, &spec.github_config_secret)?,
        None => put_credentials(&mut config, al, sources)?,
    }
    Ok(config)
}

fn put_vault(
    config: &mut ListenerConfig,
    vault: &VaultConfig,
    lookup_key: &str,
) -> Result<(), ConfigError> {
    if vault.vault_type != AZURE_KEY_VAULT {
        return Err(ConfigError::Field {
            field: "spec.vaultConfig.type",
            problem: "is not a kind of vault we know: set it to azure_key_vault",
        });
    }
    if vault.azure_key_vault.is_none() {
        return Err(ConfigError::Field {
            field: "spec.vaultConfig.azureKeyVault",
            problem: "is missing: set url, tenantId, clientId and certificatePath",
        });
    }
    config.vault_type.clone_from(&vault.vault_type);
    lookup_key.clone_into(&mut config.vault_lookup_key);
    config.azure_key_vault.clone_from(&vault.azure_key_vault);
    config.vault_proxy.clone_from(&vault.proxy);
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
    let tls = al.spec.github_server_tls.as_ref();
    let Some(selector) = root_ca_selector(tls) else {
        return match tls {
            Some(_) => Err(ConfigError::Field {
                field: FIELD,
                problem: "is missing: name the ConfigMap and the key of the root certificate",
            }),
            None => Ok(None),
        };
    };
    let optional = selector.optional == Some(true);
    let namespace = al.spec.autoscaling_runner_set_namespace.as_str();
    let object = ObjectRef::new(Kind::ConfigMap, namespace, selector.name.as_str());
    let Some(config_map) = sources.config_map(&selector.name) else {
        return match optional {
            true => Ok(None),
            false => Err(ConfigError::Missing {
                object,
                field: FIELD,
            }),
        };
    };
    let text = config_map
        .data
        .as_ref()
        .and_then(|data| data.get(&selector.key));
    match text {
        Some(pem) if pem.contains("-----BEGIN CERTIFICATE-----") => Ok(Some(pem.clone())),
        Some(_) => Err(ConfigError::InvalidKey {
            object,
            key: selector.key.clone(),
            problem: "holds no certificate in PEM form",
        }),
        None if optional => Ok(None),
        None => Err(ConfigError::MissingKey {
            object,
            key: selector.key.clone(),
            field: FIELD,
        }),
    }
}
