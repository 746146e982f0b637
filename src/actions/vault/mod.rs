//! Azure Key Vault as a source of credentials, with a certificate to sign in with.
//!
//! ```text
//!  secret ─► GET {vault}/secrets/{name} ─► 401, challenge: whom to ask, for what
//!               │                              │
//!               │                 certificate ─┴► POST {login}/{tenant}/oauth2/v2.0/token
//!               └◄──────────── access token ◄────────┘
//! ```
//!
//! The two requests are written out here, over our own [`Transport`], and not left to
//! `azure_identity` and `azure_security_keyvault_secrets`: those judge the age of tokens by
//! the machine's clock, draw the jitter of their waits from unseeded chance and wait outside
//! of tokio's time, so that no simulation could hold them; and of signing in with a
//! certificate, all but the form's encoding would have to be here anyway, since the crates
//! do that with OpenSSL. Protocol: Microsoft's "Microsoft identity platform application
//! authentication certificate credentials" and "Key Vault: authentication, requests and
//! responses", REST API 7.4.
//!
//! No secret, token or assertion reaches a log, an error or a `Debug` text.

mod certificate;
mod challenge;
mod error;
mod http;
mod login;
mod value;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use ::http::{HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;

use self::challenge::Challenge;
pub use self::error::VaultError;
use self::http::Http;
use self::login::{AccessToken, Login};
use super::credentials::{CredentialSource, Fields, SourceError};
use super::options::Observer;
use super::transport::Transport;
use crate::api::AzureKeyVaultConfig;
use crate::clock::Clock;

const API_VERSION: &str = "7.4";
const CALL: &str = "vault_secret";

/// A Key Vault, and the application that reads it. To be shared: its access token is got once
/// for all who need it, and kept until shortly before it expires.
///
/// Each request has a deadline of 20 s. One that met 429, 5xx or a broken connection is sent
/// up to four times; one that was not answered in time is not.
pub struct KeyVault {
    url: Url,
    login: Login,
    http: Http,
    access: Mutex<Access>,
}

/// The way in, as far as it is known. Locked while it is being found, so that it is found
/// once for all who wait.
#[derive(Default)]
struct Access {
    challenge: Option<Challenge>,
    token: Option<Arc<AccessToken>>,
    /// Why it was not found, and when.
    failure: Option<(Instant, VaultError)>,
}

impl KeyVault {
    /// A vault; nothing is sent, and the certificate not read, before the first secret is
    /// asked for.
    ///
    /// # Errors
    ///
    /// When a setting is missing or not usable.
    pub fn new(
        config: &AzureKeyVaultConfig,
        transport: Arc<dyn Transport>,
        clock: Clock,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Self, VaultError> {
        if let Some((field, problem)) = config.problems().first() {
            return Err(VaultError::setting(field, *problem));
        }
        let url = config
            .parsed_url()
            .ok_or_else(|| VaultError::setting("url", "is not the URL of a vault"))?;
        Ok(Self {
            url,
            login: Login::new(
                &config.tenant_id,
                &config.client_id,
                Path::new(&config.certificate_path),
            ),
            http: Http {
                transport,
                clock,
                observer,
            },
            access: Mutex::default(),
        })
    }

    /// The value of a secret's newest version.
    ///
    /// # Errors
    ///
    /// When the certificate cannot be used, the tenant or the vault refuses, there is no such
    /// secret, or somebody does not answer.
    pub async fn secret(&self, name: &str) -> Result<SecretString, VaultError> {
        if let Some(problem) = AzureKeyVaultConfig::secret_name_problem(name) {
            return Err(VaultError::setting(
                "githubConfigSecret",
                format!("\"{name}\" {problem}"),
            ));
        }
        let token = self.token(name, None).await?;
        let response = self.get(name, token.as_deref()).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return self.read(name, &response, token.as_deref());
        }
        // The token was taken back before its time, or the vault has moved to another tenant.
        let rejected = Rejected {
            token,
            challenge: Challenge::read(self.challenge_of(&response), &self.url)?,
        };
        let token = self.token(name, Some(rejected)).await?;
        let response = self.get(name, token.as_deref()).await?;
        self.read(name, &response, token.as_deref())
    }

    /// The access token, a new one when there is none, it is about to expire or it was
    /// rejected. `None` for a vault that asks for none.
    async fn token(
        &self,
        name: &str,
        rejected: Option<Rejected>,
    ) -> Result<Option<Arc<AccessToken>>, VaultError> {
        let asked = Instant::now();
        let mut access = self.access.lock().await;
        if let Some((failed, error)) = &access.failure
            && *failed > asked
        {
            // somebody has just tried, while this one waited
            return Err(error.clone());
        }
        if let Some(Rejected { token, challenge }) = rejected {
            let is_current = match (&token, &access.token) {
                (Some(rejected), Some(current)) => Arc::ptr_eq(rejected, current),
                (None, Some(_)) => false,
                (_, None) => true,
            };
            if is_current {
                access.token = None;
                access.challenge = Some(challenge);
            }
        }
        if let Some(token) = &access.token
            && token.lasts(self.http.clock.now())
        {
            return Ok(Some(Arc::clone(token)));
        }
        let found = self.find_way_in(name, &mut access).await;
        access.failure = found
            .as_ref()
            .err()
            .map(|error| (Instant::now(), error.clone()));
        found
    }

    async fn find_way_in(
        &self,
        name: &str,
        access: &mut Access,
    ) -> Result<Option<Arc<AccessToken>>, VaultError> {
        access.token = None;
        if access.challenge.is_none() {
            let response = self.get(name, None).await?;
            if response.status() != StatusCode::UNAUTHORIZED {
                // it will say the same again, or asks for no token at all
                return Ok(None);
            }
            let challenge = Challenge::read(self.challenge_of(&response), &self.url)?;
            access.challenge = Some(challenge);
        }
        let Some(challenge) = &access.challenge else {
            return Ok(None);
        };
        let token = Arc::new(self.login.sign_in(challenge, &self.http).await?);
        access.token = Some(Arc::clone(&token));
        Ok(Some(token))
    }

    async fn get(
        &self,
        name: &str,
        token: Option<&AccessToken>,
    ) -> Result<Response<Bytes>, VaultError> {
        let mut url = self.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["secrets", name]);
        }
        url.query_pairs_mut()
            .append_pair("api-version", API_VERSION);
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = url
            .as_str()
            .parse()
            .map_err(|_| VaultError::setting("url", "is not the URL of a vault"))?;
        if let Some(token) = token {
            let value = format!("Bearer {}", token.bearer.expose_secret());
            let mut value = HeaderValue::from_str(&value).map_err(|_| VaultError::Unexpected {
                whom: self.login.tenant.clone(),
                problem: "gave a token that a request cannot carry".to_owned(),
            })?;
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        self.http.send(CALL, &self.name(), request).await
    }

    fn challenge_of<'a>(&self, response: &'a Response<Bytes>) -> impl Iterator<Item = &'a str> {
        let values = response.headers().get_all(WWW_AUTHENTICATE).into_iter();
        values.filter_map(|value| value.to_str().ok())
    }

    fn read(
        &self,
        name: &str,
        response: &Response<Bytes>,
        token: Option<&AccessToken>,
    ) -> Result<SecretString, VaultError> {
        let status = response.status();
        if status.is_success() {
            return value::of_answer(response.body())
                .map_err(|problem| self.unusable(name, problem));
        }
        let sent = token.map_or("", |token| token.bearer.expose_secret());
        let message = value::error_of(response.body(), sent);
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => VaultError::Forbidden {
                vault: self.name(),
                name: name.to_owned(),
                client_id: self.login.client_id.clone(),
                message,
            },
            StatusCode::NOT_FOUND => VaultError::Missing {
                vault: self.name(),
                name: name.to_owned(),
            },
            _ => VaultError::Unexpected {
                whom: format!("the vault {}", self.name()),
                problem: format!("answered with {status}: {message}"),
            },
        })
    }

    fn unusable(&self, name: &str, problem: impl Into<String>) -> VaultError {
        VaultError::Value {
            vault: self.name(),
            name: name.to_owned(),
            problem: problem.into(),
        }
    }

    /// Its host, by which people know it.
    fn name(&self) -> String {
        self.url.host_str().unwrap_or_default().to_owned()
    }
}

/// What the vault said to a request with this token, if any.
struct Rejected {
    token: Option<Arc<AccessToken>>,
    challenge: Challenge,
}

impl CredentialSource for KeyVault {
    fn fields<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Fields, SourceError>> {
        async move {
            let value = self.secret(name).await?;
            let fields = value::fields(&value).map_err(|problem| self.unusable(name, problem))?;
            Ok(fields)
        }
        .boxed()
    }

    fn describe(&self, name: &str) -> String {
        format!("secret {name} of the vault {}", self.name())
    }
}

impl fmt::Debug for KeyVault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyVault")
            .field("url", &self.url.as_str())
            .finish_non_exhaustive()
    }
}
