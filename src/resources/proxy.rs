//! Proxy variables, and the Secret that hands them to the runners of a set.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, Secret, SecretKeySelector};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::error::ConfigError;
use super::metadata::owned_meta;
use super::names::runner_proxy_secret_name;
use super::sources::{Sources, secret_text};
use crate::api::constants::{keys, labels};
use crate::api::{EphemeralRunnerSet, ProxyConfig, ProxyServerConfig};

/// Schemes that proxy clients understand.
const SCHEMES: [&str; 4] = ["http", "https", "socks5", "socks5h"];

/// Who signs in to a proxy.
#[derive(Clone, Debug)]
pub struct ProxyCredentials {
    /// User.
    pub user: String,
    /// Password.
    pub password: SecretString,
}

/// One of the two kinds of proxy, and what it is called where.
struct Server<'a> {
    config: &'a ProxyServerConfig,
    key: &'static str,
    url_field: &'static str,
    credentials_field: &'static str,
}

/// The data of a proxy Secret: `http_proxy`, `https_proxy` and `no_proxy`, each only when
/// configured. `credentials` are by name of their Secret.
///
/// # Errors
///
/// When a URL is not usable or credentials that are referred to are not given.
pub fn proxy_env_data(
    proxy: &ProxyConfig,
    credentials: &BTreeMap<String, ProxyCredentials>,
) -> Result<BTreeMap<String, ByteString>, ConfigError> {
    let mut data = BTreeMap::new();
    for server in servers(proxy) {
        let url = proxy_url(&server, credentials)?;
        data.insert(
            server.key.to_owned(),
            ByteString(url.expose_secret().as_bytes().to_vec()),
        );
    }
    if !proxy.no_proxy.is_empty() {
        let hosts = proxy.no_proxy.join(",");
        data.insert(keys::NO_PROXY.to_owned(), ByteString(hosts.into_bytes()));
    }
    Ok(data)
}

/// The Secret with the proxy variables of a set's runners; `None` when it has no proxy.
///
/// # Errors
///
/// When a proxy's URL or credentials are not usable.
pub fn runner_proxy_secret(
    set: &EphemeralRunnerSet,
    sources: &Sources,
) -> Result<Option<Secret>, ConfigError> {
    let spec = set.spec.ephemeral_runner_spec.as_ref();
    let Some(proxy) = spec.and_then(|spec| configured(spec.proxy.as_ref())) else {
        return Ok(None);
    };
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let set_name = set.metadata.name.as_deref().unwrap_or_default();
    let name = runner_proxy_secret_name(namespace, set_name);
    let credentials = proxy_credentials(proxy, namespace, sources)?;
    Ok(Some(Secret {
        metadata: owned_meta(set, name, labels::COMPONENT_RUNNER_SET, None),
        data: Some(proxy_env_data(proxy, &credentials)?),
        ..Secret::default()
    }))
}

/// The credentials that a proxy configuration refers to, by name of their Secret.
pub(super) fn proxy_credentials(
    proxy: &ProxyConfig,
    namespace: &str,
    sources: &Sources,
) -> Result<BTreeMap<String, ProxyCredentials>, ConfigError> {
    let mut result = BTreeMap::new();
    for server in servers(proxy) {
        let name = server.config.credential_secret_ref.as_str();
        if name.is_empty() {
            continue;
        }
        let field = server.credentials_field;
        let secret = sources.secret(namespace, name, field)?;
        let credentials = ProxyCredentials {
            user: secret_text(secret, keys::USERNAME, field)?,
            password: secret_text(secret, keys::PASSWORD, field)?.into(),
        };
        result.insert(name.to_owned(), credentials);
    }
    Ok(result)
}

/// The proxy variables that a container takes from the proxy Secret `secret`: only those
/// that are in it, since a reference to a missing key keeps a container from starting.
pub(super) fn proxy_env(proxy: Option<&ProxyConfig>, secret: &str) -> Vec<EnvVar> {
    let Some(proxy) = configured(proxy) else {
        return Vec::new();
    };
    let mut names: Vec<&str> = servers(proxy).map(|server| server.key).collect();
    if !proxy.no_proxy.is_empty() {
        names.push(keys::NO_PROXY);
    }
    names
        .into_iter()
        .map(|name| env_from_secret(name, secret, name))
        .collect()
}

/// A variable whose value is the key of a Secret.
pub(super) fn env_from_secret(name: &str, secret: &str, key: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: secret.to_owned(),
                key: key.to_owned(),
                optional: None,
            }),
            ..EnvVarSource::default()
        }),
    }
}

/// The proxy configuration, when it says anything.
pub(super) fn configured(proxy: Option<&ProxyConfig>) -> Option<&ProxyConfig> {
    proxy.filter(|proxy| servers(proxy).next().is_some() || !proxy.no_proxy.is_empty())
}

fn servers(proxy: &ProxyConfig) -> impl Iterator<Item = Server<'_>> {
    let http = proxy.http.as_ref().map(|config| Server {
        config,
        key: keys::HTTP_PROXY,
        url_field: "spec.proxy.http.url",
        credentials_field: "spec.proxy.http.credentialSecretRef",
    });
    let https = proxy.https.as_ref().map(|config| Server {
        config,
        key: keys::HTTPS_PROXY,
        url_field: "spec.proxy.https.url",
        credentials_field: "spec.proxy.https.credentialSecretRef",
    });
    [http, https]
        .into_iter()
        .flatten()
        .filter(|server| !server.config.url.trim().is_empty())
}

/// The URL with its credentials, otherwise letter for letter as the user wrote it.
fn proxy_url(
    server: &Server<'_>,
    credentials: &BTreeMap<String, ProxyCredentials>,
) -> Result<SecretString, ConfigError> {
    let url = server.config.url.trim();
    let invalid = |problem| ConfigError::Field {
        field: server.url_field,
        problem,
    };
    let (scheme, rest) = url
        .split_once("://")
        .ok_or_else(|| invalid("has no scheme: write it as http://HOST:PORT"))?;
    if !SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()) {
        return Err(invalid("is of another scheme than http, https and socks5"));
    }
    match Url::parse(url) {
        Ok(parsed) if parsed.has_host() => {}
        _ => return Err(invalid("is not a URL of the form http://HOST:PORT")),
    }
    let secret = server.config.credential_secret_ref.as_str();
    if secret.is_empty() {
        return Ok(url.to_owned().into());
    }
    let ProxyCredentials { user, password } =
        credentials.get(secret).ok_or(ConfigError::Field {
            field: server.credentials_field,
            problem: "names a Secret that was not read",
        })?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].rfind('@').map_or(0, |at| at + 1);
    let user = percent_encoded(user);
    let password = percent_encoded(password.expose_secret());
    Ok(format!("{scheme}://{user}:{password}@{}", &rest[host..]).into())
}

/// `text` with all but the unreserved characters of RFC 3986 written as `%XX`.
fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
