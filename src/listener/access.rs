//! Access to the Actions service: the client with the credentials in use, and where other
//! ones come from.
//!
//! Credentials in `config.json` stay as they are: the controller replaces the pod when they
//! change. It does not see a vault's change, so those are read again here, every sync period
//! and whenever the service refuses them. Other ones take the place of the old between two
//! calls: the session, its cursor and the message in hand belong to the scale set and go on.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::config::{CredentialsFrom, Settings};
use super::failure::{Failure, FailureKind};
use super::program::{ListenerEnv, ListenerError};
use crate::actions::{
    Client, ClientOptions, CredentialSource, Error, ErrorKind, KeyVault, SourceError, Transport,
    TransportOptions, UserAgent, read_credentials, same_credentials,
};
use crate::api::Credentials;
use crate::clock::Clock;

/// How often a vault is read again.
const SYNC_PERIOD: Duration = Duration::from_secs(60);

/// The way to the Actions service.
pub(super) struct Access {
    factory: Factory,
    vault: Option<Vault>,
    used: Mutex<Option<Used>>,
}

/// The vault and the key of the credentials in it.
struct Vault {
    source: Box<dyn CredentialSource>,
    key: String,
    /// When it was read. Locked while it is, so that it is read once for all who wait.
    read: tokio::sync::Mutex<Option<Instant>>,
}

/// Credentials with their client.
struct Used {
    credentials: Credentials,
    client: Arc<Client>,
}

impl Access {
    /// Nothing is sent yet.
    pub(super) fn new(settings: &Settings, env: &ListenerEnv) -> Result<Self, ListenerError> {
        let unusable = |error: String| ListenerError::Unusable(error);
        let transport = |options: &TransportOptions| {
            let made = env.transports.transport(options);
            made.map_err(|error| unusable(error.to_string()))
        };
        let factory = Factory {
            options: ClientOptions {
                user_agent: UserAgent {
                    version: env.version.clone(),
                    scale_set_id: settings.scale_set_id,
                    subsystem: "listener".to_owned(),
                    ..UserAgent::default()
                },
                force_ghes: env.force_ghes,
                observer: Some(env.metrics.clone()),
                // of no one yet
                ..ClientOptions::new(settings.url.clone(), Credentials::Token("".into()))
            },
            transport: transport(&TransportOptions {
                root_ca: settings.root_ca.clone().map(String::into_bytes),
                proxies: env.proxies.clone(),
            })?,
            clock: env.clock.clone(),
        };
        let (vault, used) = match &settings.credentials {
            CredentialsFrom::File(credentials) => {
                let client = factory.client(credentials);
                let used = Used {
                    credentials: credentials.clone(),
                    client: client.map_err(|error| unusable(error.to_string()))?,
                };
                (None, Some(used))
            }
            CredentialsFrom::Vault(vault) => {
                let transport = transport(&TransportOptions {
                    root_ca: None,
                    proxies: vault.proxies.as_ref().unwrap_or(&env.proxies).clone(),
                })?;
                let (clock, observer) = (env.clock.clone(), env.metrics.clone());
                let source = KeyVault::new(&vault.config, transport, clock, Some(observer));
                let vault = Vault {
                    source: Box::new(source.map_err(|error| unusable(error.to_string()))?),
                    key: vault.key.clone(),
                    read: tokio::sync::Mutex::default(),
                };
                (Some(vault), None)
            }
        };
        Ok(Self {
            factory,
            vault,
            used: Mutex::new(used),
        })
    }

    /// Makes a call. When the service refuses the credentials, their vault is read again; with
    /// other ones the call is made once more.
    pub(super) async fn call<T, F>(
        &self,
        call: impl Fn(Arc<Client>) -> F + Send,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        let began = Instant::now();
        let client = match self.client() {
            Some(client) => client,
            None => self.look_up(began).await?,
        };
        let error = match call(Arc::clone(&client)).await {
            Err(error) if error.kind == ErrorKind::Unauthorized => error,
            result => return result.map_err(Failure::from),
        };
        match self.look_up(began).await {
            Ok(other) if !Arc::ptr_eq(&other, &client) => Ok(call(other).await?),
            _ => Err(error.into()),
        }
    }

    /// Reads the vault again every sync period, for ever.
    pub(super) async fn keep_up(&self) -> Infallible {
        if self.vault.is_none() {
            return std::future::pending().await;
        }
        loop {
            sleep(SYNC_PERIOD).await;
            // the first time it is read by who needs it
            if self.client().is_some()
                && let Err(failure) = self.look_up(Instant::now()).await
            {
                tracing::warn!(error = %failure, "credentials were not read again; the old ones go on");
            }
        }
    }

    fn client(&self) -> Option<Arc<Client>> {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.as_ref().map(|used| Arc::clone(&used.client))
    }

    /// The client with the credentials that the vault held at that time or later.
    async fn look_up(&self, at: Instant) -> Result<Arc<Client>, Failure> {
        let Some(vault) = &self.vault else {
            return self.client().ok_or_else(no_client);
        };
        let mut read = vault.read.lock().await;
        if let Some(time) = *read
            && time > at
            && let Some(client) = self.client()
        {
            return Ok(client);
        }
        let credentials = read_credentials(&*vault.source, &vault.key).await?;
        *read = Some(Instant::now());
        self.take(&vault.source.describe(&vault.key), credentials)
    }

    /// Uses these credentials from now on.
    fn take(&self, source: &str, credentials: Credentials) -> Result<Arc<Client>, Failure> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = &*used
            && same_credentials(&used.credentials, &credentials)
        {
            return Ok(Arc::clone(&used.client));
        }
        // what is wrong with them is mended in the vault, and needs no restart
        let client = self.factory.client(&credentials).map_err(|error| {
            Failure::new(
                FailureKind::Refused,
                format!("{source} is not usable: {error}"),
            )
        })?;
        if used.is_some() {
            tracing::info!(
                source,
                "credentials have changed; the session goes on with them"
            );
        }
        *used = Some(Used {
            credentials,
            client: Arc::clone(&client),
        });
        Ok(client)
    }
}

/// Makes clients.
struct Factory {
    options: ClientOptions,
    transport: Arc<dyn Transport>,
    clock: Clock,
}

impl Factory {
    fn client(&self, credentials: &Credentials) -> Result<Arc<Client>, Error> {
        let options = ClientOptions {
            credentials: credentials.clone(),
            ..self.options.clone()
        };
        let transport = Arc::clone(&self.transport);
        Client::new(options, transport, self.clock.clone()).map(Arc::new)
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        use crate::actions::SourceErrorKind;
        let kind = match error.kind {
            SourceErrorKind::Config => FailureKind::Config,
            SourceErrorKind::Refused | SourceErrorKind::Unusable | SourceErrorKind::Denied => {
                FailureKind::Refused
            }
            SourceErrorKind::Unavailable => FailureKind::Unavailable,
        };
        Self {
            kind,
            message: error.message,
            retry_after: error.retry_after,
        }
    }
}

/// Cannot be: credentials in the file have their client from the start.
fn no_client() -> Failure {
    Failure::new(FailureKind::Other, "there is no client")
}
