//! Runs the calls that actors ask for: finds the client of a tenant, and makes one when its
//! credentials, proxies or root certificate are new or have changed.
//!
//! Calls that come together share one reading of the sources; one that comes later has them
//! read again, so that it uses a rotated credential. A client whose sources have changed, or
//! that nobody has called for a while, is let go.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapKeySelector, Secret};
use secrecy::SecretString;
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::client::Client;
use super::credentials::{
    CredentialSource, KubernetesSecrets, SourceError, read_credentials, same_credentials,
};
use super::error::{Error, ErrorKind};
use super::options::{ClientOptions, Observer, UserAgent};
use super::proxy::{Proxies, ProxyServer};
use super::transport::{TransportOptions, Transports};
use super::vault::KeyVault;
use crate::api::constants::keys;
use crate::api::{
    AZURE_KEY_VAULT, AzureKeyVaultConfig, ConfigUrl, Credentials, Policy, ProxyConfig,
    ProxyServerConfig, VaultConfig,
};
use crate::clock::Clock;
use crate::messages::{
    ActionsAnswer, ActionsError, ActionsErrorKind, ActionsRequest, KubeError, Tenant,
};

/// Where Secrets and ConfigMaps are read from; `None` says that there is no such object.
pub trait Sources: Send + Sync {
    /// Reads a Secret.
    fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> BoxFuture<'static, Result<Option<Secret>, KubeError>>;

    /// Reads a ConfigMap.
    fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> BoxFuture<'static, Result<Option<ConfigMap>, KubeError>>;
}

/// Settings of [`Clients`].
#[derive(Clone)]
pub struct ClientsOptions {
    /// Who says it is calling.
    pub user_agent: UserAgent,
    /// Treats every host as a GitHub Enterprise Server (`GITHUB_ACTIONS_FORCE_GHES`).
    pub force_ghes: bool,
    /// How many calls of one client may be in flight at once.
    pub concurrency: usize,
    /// How long what was read from the sources may be used without reading again. From the API
    /// server they are read more often.
    pub sync_period: Duration,
    /// Proxies of tenants that name none, as the process's environment gives them.
    pub default_proxies: Proxies,
    /// Which services and vaults may be called.
    pub policy: Policy,
    /// Told of every request.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Default for ClientsOptions {
    fn default() -> Self {
        Self {
            user_agent: UserAgent::default(),
            force_ghes: false,
            concurrency: 32,
            sync_period: Duration::from_secs(60),
            default_proxies: Proxies::default(),
            policy: Policy::default(),
            observer: None,
        }
    }
}

/// How long what was read from the API server is used: the calls of a burst share a read.
const BURST: Duration = Duration::from_secs(2);
/// How long the API server may take to show the sources.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a call waits for sources to be read again while there is a client to use.
const IN_USE: Duration = Duration::from_secs(5);
/// A tenant that made no call for so long is forgotten.
const IDLE: Duration = Duration::from_secs(3600);

/// The clients of all tenants. Clones share them.
#[derive(Clone)]
pub struct Clients(Arc<Shared>);

struct Shared {
    sources: Arc<dyn Sources>,
    transports: Arc<dyn Transports>,
    clock: Clock,
    options: ClientsOptions,
    tenants: Mutex<Tenants>,
    clients: Mutex<Vec<(Identity, Weak<Client>)>>,
    vaults: Mutex<Vec<(VaultIdentity, Weak<KeyVault>)>>,
}

#[derive(Default)]
struct Tenants {
    known: BTreeMap<String, Known>,
    swept: Option<Instant>,
}

struct Known {
    resolution: Arc<Resolution>,
    used: Instant,
}

/// What a tenant's sources said when they were last read. Locked while they are being read,
/// so that they are read once for all who wait.
type Resolution = tokio::sync::Mutex<Option<Resolved>>;

struct Resolved {
    outcome: Result<Arc<Client>, ActionsError>,
    read: Instant,
    /// How long it is used before the sources are read again.
    good_for: Duration,
    /// Kept here for its access token.
    vault: Option<Arc<KeyVault>>,
}

/// What makes two tenants share a client.
struct Identity {
    url: ConfigUrl,
    credentials: Credentials,
    transport: TransportOptions,
}

/// What makes two tenants share a vault.
#[derive(PartialEq, Eq)]
struct VaultIdentity {
    config: AzureKeyVaultConfig,
    proxies: Proxies,
}

impl Clients {
    /// Clients that read from these sources and send over these transports.
    #[must_use]
    pub fn new(
        sources: Arc<dyn Sources>,
        transports: Arc<dyn Transports>,
        clock: Clock,
        options: ClientsOptions,
    ) -> Self {
        Self(Arc::new(Shared {
            sources,
            transports,
            clock,
            options,
            tenants: Mutex::default(),
            clients: Mutex::default(),
            vaults: Mutex::default(),
        }))
    }

    /// Runs a call. When the credentials or the proxy's are refused, or the certificate is not
    /// trusted, the sources are read again; if they have changed, the call is made once more.
    ///
    /// # Errors
    ///
    /// When a source is missing or unusable, and when the call fails.
    pub async fn run(&self, request: ActionsRequest) -> Result<ActionsAnswer, ActionsError> {
        let started = Instant::now();
        let client = self.client(&request.tenant, None).await?;
        let error = match client.run(&request.call).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if !matches!(
            error.kind,
            ErrorKind::Unauthorized | ErrorKind::ProxyRefused | ErrorKind::Untrusted
        ) {
            return Err(error.into());
        }
        let renewed = self.client(&request.tenant, Some(started)).await?;
        if Arc::ptr_eq(&renewed, &client) {
            return Err(error.into());
        }
        Ok(renewed.run(&request.call).await?)
    }

    /// The client of a tenant, from sources read after the given time and just now.
    async fn client(
        &self,
        tenant: &Tenant,
        newer_than: Option<Instant>,
    ) -> Result<Arc<Client>, ActionsError> {
        let asked = Instant::now();
        let resolution = self.0.resolution(tenant);
        let mut resolved = resolution.lock().await;
        if let Some(Resolved {
            outcome,
            read,
            good_for,
            ..
        }) = &*resolved
        {
            let fresh = match outcome {
                Ok(_) => read.elapsed() < *good_for && newer_than.is_none_or(|time| *read > time),
                // Read for somebody else while this call waited: that counts for it too.
                Err(_) => *read > asked,
            };
            if fresh {
                return outcome.clone();
            }
        }
        // what there is stays until there is something else: this call may be given up
        let (old, mut vault) = match &*resolved {
            Some(Resolved { outcome, vault, .. }) => (outcome.clone().ok(), vault.clone()),
            None => (None, None),
        };
        let patience = if old.is_some() && newer_than.is_none() {
            IN_USE
        } else {
            PATIENCE
        };
        let reading = self.0.resolve(tenant, &mut vault);
        let answer = timeout(patience, reading).await;
        let sync_period = self.0.options.sync_period;
        let (outcome, good_for) = match (answer.unwrap_or_else(|_| Err(silent(patience))), old) {
            // Sources that cannot be read for the moment leave the client in use, and are not
            // waited for by one call after the other.
            (Err(error), Some(old)) if error.kind == ActionsErrorKind::Unavailable => {
                (Ok(old), sync_period)
            }
            // a vault is somebody else's service: it is not asked at every call
            (outcome, _) if tenant.vault.is_some() => (outcome, sync_period),
            (outcome, _) => (outcome, sync_period.min(BURST)),
        };
        *resolved = Some(Resolved {
            outcome: outcome.clone(),
            read: Instant::now(),
            good_for,
            vault,
        });
        outcome
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

impl Shared {
    fn resolution(&self, tenant: &Tenant) -> Arc<Resolution> {
        let key = json!([
            tenant.config_url,
            tenant.namespace,
            tenant.secret,
            tenant.proxy,
            tenant.tls,
            tenant.vault,
        ]);
        let now = Instant::now();
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.swept.is_none_or(|time| now - time >= IDLE) {
            tenants.swept = Some(now);
            tenants.known.retain(|_, known| now - known.used < IDLE);
            self.forget_unused();
        }
        let known = tenants.known.entry(key.to_string());
        let known = known.or_insert_with(|| Known {
            resolution: Arc::default(),
            used: now,
        });
        known.used = now;
        Arc::clone(&known.resolution)
    }

    /// Forgets the clients that nobody has any more, and the credentials with them.
    fn forget_unused(&self) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|(_, client)| client.strong_count() > 0);
    }

    /// The tenant's client, from sources read now. Puts its vault beside it, if it has one.
    async fn resolve(
        &self,
        tenant: &Tenant,
        vault: &mut Option<Arc<KeyVault>>,
    ) -> Result<Arc<Client>, ActionsError> {
        let url =
            ConfigUrl::parse(&tenant.config_url).map_err(|error| config(error.to_string()))?;
        // before the credentials are read: they are for none that may not be called
        let policy = &self.options.policy;
        policy.check_config_url(&url).map_err(config)?;
        let secrets = KubernetesSecrets {
            sources: &self.sources,
            namespace: &tenant.namespace,
            field: "githubConfigSecret",
        };
        let source: &dyn CredentialSource = match &tenant.vault {
            Some(config) => {
                let found = self.vault(&tenant.namespace, config).await?;
                &**vault.insert(found)
            }
            None => &secrets,
        };
        let credentials = read_credentials(source, &tenant.secret).await?;
        let proxies = match &tenant.proxy {
            Some(proxy) => self.proxies(&tenant.namespace, "proxy", proxy).await?,
            None => self.options.default_proxies.clone(),
        };
        let certificate = tenant.tls.as_ref().and_then(|tls| {
            let source = tls.certificate_from.as_ref()?;
            source.config_map_key_ref.as_ref()
        });
        let root_ca = match certificate {
            Some(selector) => self.root_ca(&tenant.namespace, selector).await?,
            None => None,
        };
        let client = self.shared_client(Identity {
            url,
            credentials,
            transport: TransportOptions { root_ca, proxies },
        });
        client.map_err(|error| match (error.kind, certificate) {
            // the key and the certificate are judged only when they are used
            (ErrorKind::Credentials, _) => unusable(format!(
                "Secret {}/{} is not usable: {}",
                tenant.namespace, tenant.secret, error.message
            )),
            (ErrorKind::Config, Some(selector)) => config(format!(
                "key {} of ConfigMap {}/{}, named by githubServerTLS: {}",
                selector.key, tenant.namespace, selector.name, error.message
            )),
            _ => error.into(),
        })
    }

    /// The client of this identity, a new one when there is none yet.
    fn shared_client(&self, identity: Identity) -> Result<Arc<Client>, Error> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|(_, client)| client.strong_count() > 0);
        let known = clients.iter().find(|(known, _)| *known == identity);
        if let Some(client) = known.and_then(|(_, client)| client.upgrade()) {
            return Ok(client);
        }
        let transport = self
            .transports
            .transport(&identity.transport)
            .map_err(|error| Error::new(ErrorKind::Config, "configure", error.message))?;
        let options = ClientOptions {
            url: identity.url.clone(),
            credentials: identity.credentials.clone(),
            user_agent: self.options.user_agent.clone(),
            force_ghes: self.options.force_ghes,
            concurrency: self.options.concurrency,
            observer: self.options.observer.clone(),
        };
        let client = Client::new(options, transport, self.clock.clone());
        let client = Arc::new(client?);
        clients.push((identity, Arc::downgrade(&client)));
        Ok(client)
    }

    /// The vault of this configuration, a new one when there is none yet.
    async fn vault(
        &self,
        namespace: &str,
        vault: &VaultConfig,
    ) -> Result<Arc<KeyVault>, ActionsError> {
        if vault.vault_type != AZURE_KEY_VAULT {
            return Err(config(format!(
                "vaultConfig.type \"{}\" is not a kind of vault: use {AZURE_KEY_VAULT}",
                vault.vault_type
            )));
        }
        self.options.policy.check_vault(vault).map_err(config)?;
        let azure = vault.azure_key_vault.clone().ok_or_else(|| {
            let message = "vaultConfig.azureKeyVault is not set: give url, tenantId, clientId \
                           and certificatePath";
            config(message.to_owned())
        })?;
        let proxies = match &vault.proxy {
            Some(proxy) => self.proxies(namespace, "vaultConfig.proxy", proxy).await?,
            None => self.options.default_proxies.clone(),
        };
        self.shared_vault(VaultIdentity {
            config: azure,
            proxies,
        })
    }

    fn shared_vault(&self, identity: VaultIdentity) -> Result<Arc<KeyVault>, ActionsError> {
        let mut vaults = self.vaults.lock().unwrap_or_else(PoisonError::into_inner);
        vaults.retain(|(_, vault)| vault.strong_count() > 0);
        let known = vaults.iter().find(|(known, _)| *known == identity);
        if let Some(vault) = known.and_then(|(_, vault)| vault.upgrade()) {
            return Ok(vault);
        }
        let transport = self.transports.transport(&TransportOptions {
            root_ca: None,
            proxies: identity.proxies.clone(),
        });
        let transport = transport.map_err(|error| config(error.to_string()))?;
        let (clock, observer) = (self.clock.clone(), self.options.observer.clone());
        let vault = KeyVault::new(&identity.config, transport, clock, observer);
        let vault = Arc::new(vault.map_err(SourceError::from)?);
        vaults.push((identity, Arc::downgrade(&vault)));
        Ok(vault)
    }

    /// The proxies that a field of this name configures.
    async fn proxies(
        &self,
        namespace: &str,
        field: &str,
        proxy: &ProxyConfig,
    ) -> Result<Proxies, ActionsError> {
        let http = format!("{field}.http");
        let http = self.proxy_server(namespace, &http, proxy.http.as_ref());
        let http = http.await?;
        let https = format!("{field}.https");
        let https = self.proxy_server(namespace, &https, proxy.https.as_ref());
        let https = https.await?;
        Ok(Proxies::new(
            http,
            https,
            proxy.no_proxy.iter().map(String::as_str),
        ))
    }

    async fn proxy_server(
        &self,
        namespace: &str,
        field: &str,
        server: Option<&ProxyServerConfig>,
    ) -> Result<Option<ProxyServer>, ActionsError> {
        let Some(server) = server.filter(|server| !server.url.is_empty()) else {
            return Ok(None);
        };
        let parsed =
            ProxyServer::parse(&server.url).map_err(|error| config(format!("{field}: {error}")))?;
        let name = &server.credential_secret_ref;
        if name.is_empty() {
            return Ok(Some(parsed));
        }
        let field = format!("{field}.credentialSecretRef");
        let secrets = KubernetesSecrets {
            sources: &self.sources,
            namespace,
            field: &field,
        };
        let fields = secrets.fields(name).await?;
        let value = |key: &str| {
            let bytes = fields.get(key);
            let text = bytes.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
            text.ok_or_else(|| {
                unusable(format!(
                    "Secret {namespace}/{name}, named by {field}, holds no text under the key \
                     {key}: it needs {} and {}",
                    keys::USERNAME,
                    keys::PASSWORD
                ))
            })
        };
        let user = value(keys::USERNAME)?;
        let password = SecretString::from(value(keys::PASSWORD)?);
        Ok(Some(parsed.credentials(user, password)))
    }

    async fn root_ca(
        &self,
        namespace: &str,
        selector: &ConfigMapKeySelector,
    ) -> Result<Option<Vec<u8>>, ActionsError> {
        let (name, key) = (&selector.name, &selector.key);
        let optional = selector.optional.unwrap_or_default();
        let read = self.sources.config_map(namespace, name).await;
        let what = format!("ConfigMap {namespace}/{name}");
        let map = match read.map_err(|error| SourceError::from_kube(&what, &error))? {
            Some(map) => map,
            None if optional => return Ok(None),
            None => {
                return Err(unusable(format!(
                    "{what}, named by githubServerTLS, does not exist: create it with the root \
                     certificate under the key {key}"
                )));
            }
        };
        let text = map.data.and_then(|mut data| data.remove(key));
        let bytes = || Some(map.binary_data?.remove(key)?.0);
        match text.map(String::into_bytes).or_else(bytes) {
            Some(pem) => Ok(Some(pem)),
            None if optional => Ok(None),
            None => Err(unusable(format!(
                "{what}, named by githubServerTLS, has no key {key}: put the root certificate \
                 there in PEM form"
            ))),
        }
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
            && self.transport == other.transport
            && same_credentials(&self.credentials, &other.credentials)
    }
}

fn config(message: String) -> ActionsError {
    ActionsError {
        kind: ActionsErrorKind::Config,
        message,
        retry_after: None,
    }
}

fn unusable(message: String) -> ActionsError {
    ActionsError {
        kind: ActionsErrorKind::Credentials,
        message,
        retry_after: None,
    }
}

fn silent(patience: Duration) -> ActionsError {
    let seconds = patience.as_secs();
    ActionsError {
        kind: ActionsErrorKind::Unavailable,
        message: format!("the credentials could not be read within {seconds} s"),
        retry_after: None,
    }
}

#[cfg(test)]
mod tests;
