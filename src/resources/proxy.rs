//! Proxy variables, and the Secret that hands them to the runners of a set.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, Secret, SecretKeySelector};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::error::ConfigError;
use super::metadata::owned_meta;
use super::names::runner_proxy_secret_name;
use super::sources::{Sources, secret_text};
use crate::api::constants::{keys, labels};
use crate::api::{EphemeralRunnerSet, ListenerVaultProxy, ProxyConfig, ProxyServerConfig};
use crate::messages::KubeObject;

/// Schemes of a proxy that both this program and runners can use.
const SCHEMES: [&str; 2] = ["http", "https"];

/// Who signs in to a proxy.
#[derive(Clone, Debug)]
pub struct ProxyCredentials {
    /// User.
    pub user: String,
    /// Password.
    pub password: SecretString,
}

/// What the proxies are on the way to.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// GitHub: `spec.proxy`.
    GitHub,
    /// The vault with the credentials: `spec.vaultConfig.proxy`.
    Vault,
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
    for server in servers(proxy, Way::GitHub) {
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
    let credentials = proxy_credentials(proxy, Way::GitHub, namespace, sources)?;
    Ok(Some(Secret {
        metadata: owned_meta(set, name, labels::COMPONENT_RUNNER_SET, None),
        data: Some(proxy_env_data(proxy, &credentials)?),
        ..Secret::default()
    }))
}

/// The credentials that a proxy configuration refers to, by name of their Secret.
pub(super) fn proxy_credentials(
    proxy: &ProxyConfig,
    way: Way,
    namespace: &str,
    sources: &Sources,
) -> Result<BTreeMap<String, ProxyCredentials>, ConfigError> {
    let mut result = BTreeMap::new();
    for server in servers(proxy, way) {
        let name = server.config.credential_secret_ref.as_str();
        if name.is_empty() {
            continue;
        }
        let field = server.credentials_field;
        let secret = sources.secret(namespace, name, field)?;
        let text = |key: &str| {
            secret_text(secret, key)?.ok_or_else(|| ConfigError::MissingKey {
                object: secret.reference(),
                key: key.to_owned(),
                field,
            })
        };
        let credentials = ProxyCredentials {
            user: text(keys::USERNAME)?,
            password: text(keys::PASSWORD)?.into(),
        };
        result.insert(name.to_owned(), credentials);
    }
    Ok(result)
}

/// The proxies on a listener's way to its vault.
///
/// # Errors
///
/// When a URL is not usable, or credentials are missing.
pub(super) fn vault_proxy(
    proxy: &ProxyConfig,
    namespace: &str,
    sources: &Sources,
) -> Result<ListenerVaultProxy, ConfigError> {
    let credentials = proxy_credentials(proxy, Way::Vault, namespace, sources)?;
    let mut result = ListenerVaultProxy {
        no_proxy: proxy.no_proxy.join(","),
        ..ListenerVaultProxy::default()
    };
    for server in servers(proxy, Way::Vault) {
        let url = proxy_url(&server, &credentials)?;
        let slot = match server.key {
            keys::HTTP_PROXY => &mut result.http,
            _ => &mut result.https,
        };
        url.expose_secret().clone_into(slot);
    }
    Ok(result)
}

/// The proxy variables that a container takes from the proxy Secret `secret`: only those
/// that are in it, since a reference to a missing key keeps a container from starting.
pub(super) fn proxy_env(proxy: Option<&ProxyConfig>, secret: &str) -> Vec<EnvVar> {
    let Some(proxy) = configured(proxy) else {
        return Vec::new();
    };
    let no_proxy = (!proxy.no_proxy.is_empty()).then_some(keys::NO_PROXY);
    servers(proxy, Way::GitHub)
        .map(|server| server.key)
        .chain(no_proxy)
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
    proxy.filter(|proxy| servers(proxy, Way::GitHub).next().is_some() || !proxy.no_proxy.is_empty())
}

fn servers(proxy: &ProxyConfig, way: Way) -> impl Iterator<Item = Server<'_>> {
    let [http_url, http_credentials, https_url, https_credentials] = match way {
        Way::GitHub => [
            "spec.proxy.http.url",
            "spec.proxy.http.credentialSecretRef",
            "spec.proxy.https.url",
            "spec.proxy.https.credentialSecretRef",
        ],
        Way::Vault => [
            "spec.vaultConfig.proxy.http.url",
            "spec.vaultConfig.proxy.http.credentialSecretRef",
            "spec.vaultConfig.proxy.https.url",
            "spec.vaultConfig.proxy.https.credentialSecretRef",
        ],
    };
    let http = proxy.http.as_ref().map(|config| Server {
        config,
        key: keys::HTTP_PROXY,
        url_field: http_url,
        credentials_field: http_credentials,
    });
    let https = proxy.https.as_ref().map(|config| Server {
        config,
        key: keys::HTTPS_PROXY,
        url_field: https_url,
        credentials_field: https_credentials,
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
        return Err(invalid("is of another scheme than http and https"));
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

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

fn percent_encoded(text: &str) -> impl std::fmt::Display {
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use super::super::metadata::owner_reference;
    use super::super::test_support::{map, secret, set, sources, texts};
    use super::*;

    fn proxy(url: &str, secret: &str) -> ProxyConfig {
        ProxyConfig {
            http: Some(ProxyServerConfig {
                url: url.to_owned(),
                credential_secret_ref: secret.to_owned(),
            }),
            ..ProxyConfig::default()
        }
    }

    fn http_proxy(url: &str, user: &str, password: &str) -> String {
        let credentials = ProxyCredentials {
            user: user.to_owned(),
            password: password.to_owned().into(),
        };
        let credentials = BTreeMap::from([("auth".to_owned(), credentials)]);
        let data = proxy_env_data(&proxy(url, "auth"), &credentials).unwrap();
        texts(Some(&data))["http_proxy"].clone()
    }

    #[test]
    fn the_runners_secret_holds_a_variable_for_each_part_of_the_configuration() {
        let set = set();
        let secret = runner_proxy_secret(&set, &sources()).unwrap().unwrap();
        assert_eq!(
            texts(secret.data.as_ref()),
            map(&[
                ("http_proxy", "http://plain.proxy:3128"),
                ("https_proxy", "http://me%40acme:p%3A%2Fss@tls.proxy:3129"),
                ("no_proxy", "10.0.0.0/8,acme.internal"),
            ])
        );
        let metadata = secret.metadata;
        assert_eq!(
            metadata.name,
            Some(runner_proxy_secret_name("runners", "pool"))
        );
        assert_eq!(metadata.namespace.as_deref(), Some("runners"));
        assert_eq!(metadata.owner_references, Some(vec![owner_reference(&set)]));
        assert_eq!(metadata.labels.unwrap()[labels::SCALE_SET_NAME], "pool");
    }

    #[test]
    fn a_set_without_proxy_has_no_proxy_secret() {
        let mut set = set();
        let spec = set.spec.ephemeral_runner_spec.as_mut().unwrap();
        spec.proxy = Some(proxy(" ", ""));
        assert_eq!(runner_proxy_secret(&set, &sources()), Ok(None));
        set.spec.ephemeral_runner_spec = None;
        assert_eq!(runner_proxy_secret(&set, &sources()), Ok(None));
    }

    #[test]
    fn credentials_are_escaped_and_the_rest_of_the_url_is_kept() {
        for (url, expected) in [
            ("http://h:1", "http://u%25:p%40%3A~@h:1"),
            ("HTTPS://h/a@b", "HTTPS://u%25:p%40%3A~@h/a@b"),
            ("http://old:pass@h:1/", "http://u%25:p%40%3A~@h:1/"),
            ("https://[::1]:9", "https://u%25:p%40%3A~@[::1]:9"),
        ] {
            assert_eq!(http_proxy(url, "u%", "p@:~"), expected);
        }
    }

    #[test]
    fn a_url_that_is_none_is_named_by_its_field_and_not_shown() {
        for (url, problem) in [
            ("s3cret.proxy:3128", "has no scheme"),
            ("socks5://s3cret:1", "another scheme than http and https"),
            ("ftp://s3cret", "another scheme than http and https"),
            (
                "http://s3cret:port",
                "not a URL of the form http://HOST:PORT",
            ),
            ("http://", "not a URL of the form http://HOST:PORT"),
        ] {
            let error = proxy_env_data(&proxy(url, ""), &BTreeMap::new()).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with("spec.proxy.http.url "), "{text}");
            assert!(text.contains(problem), "{text}");
            assert!(!text.contains("s3cret"), "{text}");
        }
    }

    #[test]
    fn a_proxy_is_never_used_without_the_credentials_it_refers_to() {
        let error = proxy_env_data(&proxy("http://h:1", "auth"), &BTreeMap::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "spec.proxy.http.credentialSecretRef names a Secret that was not read"
        );
    }

    #[test]
    fn missing_credentials_are_named_by_secret_key_and_field() {
        let error = runner_proxy_secret(&set(), &Sources::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Secret runners/proxy-auth, named by spec.proxy.https.credentialSecretRef, does not \
             exist: create it or correct the field"
        );
        let mut sources = Sources::default();
        sources.insert(&secret("runners", "proxy-auth", &[("username", "me")]));
        let error = runner_proxy_secret(&set(), &sources).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Secret runners/proxy-auth has no key password: add it or correct \
             spec.proxy.https.credentialSecretRef"
        );
    }

    #[test]
    fn a_container_refers_only_to_variables_that_the_secret_has() {
        let names = |proxy: Option<&ProxyConfig>| -> Vec<String> {
            let variables = proxy_env(proxy, "the-secret");
            variables
                .into_iter()
                .map(|variable| variable.name)
                .collect()
        };
        assert_eq!(names(None), Vec::<String>::new());
        assert_eq!(names(Some(&proxy("http://h", ""))), ["http_proxy"]);
        let full = set().spec.ephemeral_runner_spec.unwrap().proxy;
        assert_eq!(
            names(full.as_ref()),
            ["http_proxy", "https_proxy", "no_proxy"]
        );
    }
}
