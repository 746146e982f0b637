//! The configuration: reads `config.json`, checks all of it once, and says of every fault which
//! key it is in and what to do. Never shows a value that may be a secret.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use serde_json::{Map, Value};

use crate::actions::{Proxies, ProxyServer};
use crate::api::constants::{env, keys};
use crate::api::{
    AZURE_KEY_VAULT, AzureKeyVaultConfig, ConfigUrl, Credentials, ListenerConfig,
    ListenerVaultProxy,
};
use crate::metrics::http::parse_address;

/// Paths that the listener answers itself, and that the metrics cannot have.
const RESERVED_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// Why there is no usable configuration. Holds nothing of the file's content but key names,
/// numbers and the config URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The environment does not say where the file is.
    #[error(
        "the environment variable {} is not set: set it to the path of the listener's config.json",
        env::LISTENER_CONFIG_PATH
    )]
    NoPath,
    /// The file cannot be read.
    #[error("cannot read {path} (from {}): {problem}", env::LISTENER_CONFIG_PATH)]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        problem: String,
    },
    /// The file is not JSON.
    #[error(
        "{path} is not valid JSON: {problem} at line {line}, column {column}; the controller \
         writes this file, so delete its Secret to have it written again"
    )]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What kind of fault it is.
        problem: &'static str,
        /// Where, from 1.
        line: usize,
        /// Where, from 1.
        column: usize,
    },
    /// Keys hold what they must not.
    #[error("the listener's configuration is not usable: {}", .faults.join("; "))]
    Invalid {
        /// One sentence for each fault; each names its key.
        faults: Vec<String>,
    },
}

/// Reads the file at this path.
///
/// # Errors
///
/// When the file cannot be read, is not JSON, or a key has a value of the wrong type.
pub fn load(path: &Path) -> Result<ListenerConfig, ConfigError> {
    let text = std::fs::read(path).map_err(|error| ConfigError::Unreadable {
        path: path.to_owned(),
        problem: error.to_string(),
    })?;
    parse(&text, path)
}

/// Reads the content of the file. The path is for the errors only.
///
/// # Errors
///
/// When the content is not JSON, or a key has a value of the wrong type.
pub fn parse(text: &[u8], path: &Path) -> Result<ListenerConfig, ConfigError> {
    // serde's own messages quote the value, and the value may be a secret
    let value: Value = serde_json::from_slice(text).map_err(|error| ConfigError::Syntax {
        path: path.to_owned(),
        problem: match error.classify() {
            serde_json::error::Category::Eof => "it ends too early",
            serde_json::error::Category::Io => "it cannot be read",
            _ => "something is out of place",
        },
        line: error.line(),
        column: error.column(),
    })?;
    let Value::Object(object) = value else {
        return Err(invalid("the file does not hold a JSON object".to_owned()));
    };
    let faults: Vec<String> = object
        .iter()
        .filter(|(key, value)| {
            decode(Map::from_iter([((*key).clone(), (*value).clone())])).is_none()
        })
        .map(|(key, _)| format!("{key} has a value of the wrong type"))
        .collect();
    match decode(object) {
        Some(config) if faults.is_empty() => Ok(config),
        _ => Err(ConfigError::Invalid { faults }),
    }
}

fn decode(object: Map<String, Value>) -> Option<ListenerConfig> {
    serde_json::from_value(Value::Object(object)).ok()
}

const fn invalid_list(faults: Vec<String>) -> ConfigError {
    ConfigError::Invalid { faults }
}

fn invalid(fault: String) -> ConfigError {
    invalid_list(vec![fault])
}

/// The configuration, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose jobs.
    pub url: ConfigUrl,
    /// As whom.
    pub credentials: CredentialsFrom,
    /// Further root certificate, PEM.
    pub root_ca: Option<String>,
    /// The scale set's id in the Actions service.
    pub scale_set_id: i64,
    /// Namespace of the EphemeralRunnerSet and its runners.
    pub namespace: String,
    /// Name of the EphemeralRunnerSet.
    pub runner_set: String,
    /// Runners kept waiting for jobs.
    pub min_runners: i64,
    /// Most runners at one time.
    pub max_runners: i64,
    /// Where to serve metrics and health; `None` when they are off.
    pub metrics_address: Option<SocketAddr>,
    /// Path of the metrics.
    pub metrics_path: String,
    /// How to log.
    pub log: LogSettings,
}

/// Where the credentials are.
#[derive(Clone, Debug)]
pub enum CredentialsFrom {
    /// In the file itself.
    File(Credentials),
    /// In a vault.
    Vault(Box<VaultSettings>),
}

/// A vault, and where the credentials are in it.
#[derive(Clone, Debug)]
pub struct VaultSettings {
    /// The vault.
    pub config: AzureKeyVaultConfig,
    /// Key of the credentials in it.
    pub key: String,
    /// Proxies on the way to it; `None` leaves it to the environment.
    pub proxies: Option<Proxies>,
}

/// How to log, in the words of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The least severe level that is written.
    pub level: &'static str,
    /// `text` or `json`.
    pub format: &'static str,
}

impl Settings {
    /// Checks a configuration.
    ///
    /// # Errors
    ///
    /// When something in it is not usable. The error lists every fault, each with its key.
    pub fn resolve(config: &ListenerConfig) -> Result<Self, ConfigError> {
        let mut faults = Vec::new();
        let url = keep(&mut faults, url(config));
        let credentials = keep(&mut faults, credentials(config));
        let metrics_address = keep(&mut faults, address(&config.metrics_addr)).flatten();
        let metrics_path = keep(&mut faults, metrics_path(&config.metrics_endpoint));
        let log = keep(&mut faults, log(config));
        faults.extend(range_faults(config));
        match (url, credentials, metrics_path, log) {
            (Some(url), Some(credentials), Some(metrics_path), Some(log)) if faults.is_empty() => {
                Ok(Self {
                    url,
                    credentials,
                    root_ca: Some(config.server_root_ca.clone()).filter(|pem| !pem.is_empty()),
                    scale_set_id: config.runner_scale_set_id,
                    namespace: config.ephemeral_runner_set_namespace.clone(),
                    runner_set: config.ephemeral_runner_set_name.clone(),
                    min_runners: config.min_runners,
                    max_runners: config.max_runners,
                    metrics_address,
                    metrics_path,
                    log,
                })
            }
            _ => Err(invalid_list(faults)),
        }
    }
}

fn keep<T>(faults: &mut Vec<String>, result: Result<T, String>) -> Option<T> {
    result.map_err(|fault| faults.push(fault)).ok()
}

fn url(config: &ListenerConfig) -> Result<ConfigUrl, String> {
    ConfigUrl::parse(&config.configure_url).map_err(|error| format!("configure_url: {error}"))
}

fn credentials(config: &ListenerConfig) -> Result<CredentialsFrom, String> {
    match config.vault_type.as_str() {
        "" if config.azure_key_vault.is_some() => Err(format!(
            "vault_type is missing, and azure_key_vault is set; set it to {AZURE_KEY_VAULT}"
        )),
        "" => credentials_of_file(config).map(CredentialsFrom::File),
        AZURE_KEY_VAULT => {
            let vault = vault(config)?;
            Ok(CredentialsFrom::Vault(Box::new(vault)))
        }
        other => Err(format!(
            "vault_type \"{other}\" is not a kind of vault; set it to {AZURE_KEY_VAULT}"
        )),
    }
}

fn vault(config: &ListenerConfig) -> Result<VaultSettings, String> {
    let key = &config.vault_lookup_key;
    if key.is_empty() {
        return Err("vault_lookup_key is missing or empty".to_owned());
    }
    if let Some(problem) = AzureKeyVaultConfig::secret_name_problem(key) {
        return Err(format!("vault_lookup_key \"{key}\" {problem}"));
    }
    let Some(vault) = &config.azure_key_vault else {
        return Err(
            "azure_key_vault is missing; it needs url, tenant_id, client_id and certificate_path"
                .to_owned(),
        );
    };
    let settings = vault.vault();
    if let Some((field, problem)) = settings.problems().first() {
        let key = match *field {
            "tenantId" => "tenant_id",
            "clientId" => "client_id",
            "certificatePath" => "certificate_path",
            other => other,
        };
        return Err(format!("azure_key_vault.{key} {problem}"));
    }
    let proxies = vault.proxy.as_ref().map(vault_proxies);
    Ok(VaultSettings {
        config: settings,
        key: key.clone(),
        proxies: proxies.transpose()?,
    })
}

fn vault_proxies(proxy: &ListenerVaultProxy) -> Result<Proxies, String> {
    let server = |key: &str, url: &str| {
        let parsed = (!url.is_empty()).then(|| ProxyServer::parse(url));
        let parsed = parsed.transpose();
        parsed.map_err(|error| format!("azure_key_vault.proxy.{key}: {error}"))
    };
    Ok(Proxies::new(
        server("HTTPProxy", &proxy.http)?,
        server("HTTPSProxy", &proxy.https)?,
        [proxy.no_proxy.as_str()],
    ))
}

/// The file's keys are those of a credentials Secret, and so are its faults.
fn credentials_of_file(config: &ListenerConfig) -> Result<Credentials, String> {
    let installation = match config.github_app_installation_id {
        0 => String::new(),
        id => id.to_string(),
    };
    let data: BTreeMap<String, ByteString> = [
        (keys::GITHUB_TOKEN, &config.github_token),
        (keys::GITHUB_APP_ID, &config.github_app_id),
        (keys::GITHUB_APP_INSTALLATION_ID, &installation),
        (keys::GITHUB_APP_PRIVATE_KEY, &config.github_app_private_key),
    ]
    .into_iter()
    .map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())))
    .collect();
    Credentials::from_data(&data).map_err(|error| format!("credentials: {error}"))
}

fn range_faults(config: &ListenerConfig) -> Vec<String> {
    let mut faults = Vec::new();
    for (key, text) in [
        (
            "ephemeral_runner_set_namespace",
            &config.ephemeral_runner_set_namespace,
        ),
        (
            "ephemeral_runner_set_name",
            &config.ephemeral_runner_set_name,
        ),
    ] {
        if text.is_empty() {
            faults.push(format!("{key} is missing or empty"));
        } else if !is_object_name(text) {
            faults.push(format!(
                "{key} \"{text}\" is no name of a Kubernetes object"
            ));
        }
    }
    let ListenerConfig {
        runner_scale_set_id: id,
        min_runners: min,
        max_runners: max,
        ..
    } = config;
    if *id <= 0 {
        faults.push(format!(
            "runner_scale_set_id is {id}; it must be the scale set's id, greater than 0"
        ));
    }
    for (key, count) in [("min_runners", min), ("max_runners", max)] {
        if *count < 0 {
            faults.push(format!("{key} is {count}; it must not be negative"));
        }
    }
    if min > max {
        faults.push(format!(
            "min_runners is {min} and max_runners is {max}; min_runners must not be greater"
        ));
    }
    faults
}

/// Whether the text can be the name of a Kubernetes object, and so a part of a request's path.
#[must_use]
pub fn is_object_name(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 253
        && text
            .bytes()
            .all(|byte| alphanumeric(byte) || byte == b'-' || byte == b'.')
        && text.bytes().next().is_some_and(alphanumeric)
        && text.bytes().last().is_some_and(alphanumeric)
}

/// Empty and `0` turn the metrics off.
fn address(text: &str) -> Result<Option<SocketAddr>, String> {
    match text {
        "" | "0" => Ok(None),
        text => parse_address("metrics_addr", text).map(Some),
    }
}

fn metrics_path(text: &str) -> Result<String, String> {
    match text {
        "" => Ok("/metrics".to_owned()),
        path if RESERVED_PATHS.contains(&path) => Err(format!(
            "metrics_endpoint \"{path}\" is taken by the health checks; choose another path"
        )),
        path if !path.starts_with('/') || path.contains(['?', '#', '{', '}', '*', ':', ' ']) => {
            Err(format!(
                "metrics_endpoint \"{path}\" is no path; it must begin with a slash, as /metrics"
            ))
        }
        path => Ok(path.to_owned()),
    }
}

fn log(config: &ListenerConfig) -> Result<LogSettings, String> {
    let level = match config.log_level.to_ascii_lowercase().as_str() {
        "" | "info" | "0" => "info",
        // numbers are ARC's verbosity
        "debug" | "1" | "2" | "3" | "4" | "5" => "debug",
        "trace" => "trace",
        "warn" => "warn",
        "error" => "error",
        other => {
            return Err(format!(
                "log_level \"{other}\" is none of trace, debug, info, warn and error"
            ));
        }
    };
    let format = match config.log_format.to_ascii_lowercase().as_str() {
        "" | "text" => "text",
        "json" => "json",
        other => return Err(format!("log_format \"{other}\" is neither text nor json")),
    };
    Ok(LogSettings { level, format })
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
