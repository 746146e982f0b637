//! The chain of tokens: credentials, registration token, tenant token.
//!
//! A tenant token is shared by all calls of a client. One refresh runs at a time; who needs
//! a token meanwhile waits for it and gets its result, also when that is a failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use url::Url;

use super::app_key::AppKey;
use super::error::{Error, ErrorKind};
use super::exchange::{Deadline, Exchange, Sender};
use super::retry;
use super::wire::{self, Registration, Token};
use crate::api::constants::keys;
use crate::api::{ConfigScope, ConfigUrl, Credentials};
use crate::clock::{Timestamp, after};

/// A token with so many seconds left is refreshed.
const REFRESH_BEFORE: i64 = 60;
/// How long a tenant token is used that does not say when it expires.
const UNKNOWN_LIFETIME: i64 = 600;
/// How long a new tenant token is used at least, unless the service refuses it.
const SHORTEST_USE: i64 = 30;
/// While the old token lasts, how long a refresh may keep a call waiting, and how long after
/// a failed one the next is tried.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the REST API answers with.
const REST: &str = "application/vnd.github+json";

/// Where a tenant's calls go, and what opens it.
pub(super) struct TenantToken {
    /// Base of the tenant's URLs; its path ends with a slash.
    pub(super) url: Url,
    /// The token.
    pub(super) token: SecretString,
    expires: Timestamp,
}

impl TenantToken {
    fn lasts(&self, now: Timestamp, seconds: i64) -> bool {
        self.expires > after(now, seconds)
    }
}

/// Gets tenant tokens.
pub(super) struct Tokens {
    url: ConfigUrl,
    api: Url,
    credentials: Signer,
    state: Mutex<State>,
    refreshes: AtomicU64,
}

#[derive(Default)]
struct State {
    token: Option<Arc<TenantToken>>,
    failure: Option<Error>,
    /// How often in a row no token was got.
    failures: u32,
    /// The service is left alone until then: it has asked for it, or goes on refusing.
    not_before: Option<Timestamp>,
}

impl Tokens {
    pub(super) fn new(
        url: ConfigUrl,
        credentials: Credentials,
        force_ghes: bool,
    ) -> Result<Self, Error> {
        let api = Url::parse(&url.api_base(force_ghes)).map_err(|error| {
            let message = format!("the config URL {url} gives no usable API URL: {error}");
            Error::new(ErrorKind::Config, "configure", message)
        })?;
        Ok(Self {
            url,
            api,
            credentials: Signer::new(credentials)?,
            state: Mutex::default(),
            refreshes: AtomicU64::new(0),
        })
    }

    /// The tenant token, a new one when `rejected` is the one in use or it is about to expire.
    pub(super) async fn current(
        &self,
        sender: &Sender,
        rejected: Option<&Arc<TenantToken>>,
        deadline: &mut Deadline,
    ) -> Result<Arc<TenantToken>, Error> {
        let seen = self.refreshes.load(Ordering::Acquire);
        let Some(mut state) = deadline.meet(self.state.lock()).await else {
            let message = "another call's wait for a token took too long";
            return Err(Error::new(ErrorKind::Unavailable, "register", message));
        };
        if let (Some(token), Some(rejected)) = (&state.token, rejected)
            && Arc::ptr_eq(token, rejected)
        {
            state.token = None;
        }
        let now = sender.clock.now();
        if let Some(token) = &state.token
            && token.lasts(now, REFRESH_BEFORE)
        {
            return Ok(Arc::clone(token));
        }
        let refreshed_meanwhile = self.refreshes.load(Ordering::Acquire) != seen;
        let outcome = match &state.failure {
            Some(failure) if refreshed_meanwhile => Err(failure.clone()),
            _ => self.refresh(sender, &mut state, deadline).await,
        };
        // While the old token lasts, a refresh that failed harms nobody.
        outcome.or_else(|error| match &state.token {
            Some(token) if token.lasts(sender.clock.now(), 0) => Ok(Arc::clone(token)),
            _ => Err(error),
        })
    }

    async fn refresh(
        &self,
        sender: &Sender,
        state: &mut State,
        deadline: &mut Deadline,
    ) -> Result<Arc<TenantToken>, Error> {
        let now = sender.clock.now();
        if let (Some(until), Some(failure)) = (state.not_before, &state.failure)
            && let Ok(left) = Duration::try_from(until.duration_since(now))
            && !left.is_zero()
        {
            let mut error = failure.clone();
            // other credentials come with another client, and need not wait for this one
            error.retry_after = Some(left).filter(|_| error.kind != ErrorKind::Unauthorized);
            return Err(error);
        }
        let in_use = state.token.as_ref().filter(|token| token.lasts(now, 0));
        // the call that waits can still be made with the old token
        let outcome = match in_use {
            Some(_) => self.obtain(sender, &mut deadline.at_most(PATIENCE)).await,
            None => self.obtain(sender, deadline).await,
        };
        self.refreshes.fetch_add(1, Ordering::Release);
        match outcome {
            Ok(token) => {
                let token = Arc::new(token);
                *state = State {
                    token: Some(Arc::clone(&token)),
                    ..State::default()
                };
                Ok(token)
            }
            Err(error) => {
                state.failures = state.failures.saturating_add(1);
                let own = match in_use {
                    Some(_) => PATIENCE,
                    None => rest(error.kind, state.failures),
                };
                let wait = error.retry_after.unwrap_or_default().max(own);
                let until = sender.clock.now().saturating_add(wait);
                state.not_before = until.ok().filter(|_| !wait.is_zero());
                state.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    async fn obtain(&self, sender: &Sender, deadline: &mut Deadline) -> Result<TenantToken, Error> {
        let bearer = self.bearer(sender, deadline).await?;
        let registration = self.registration_token(sender, &bearer, deadline).await?;
        self.register(sender, &registration, deadline).await
    }

    /// What the REST API is called with: the personal access token, or a fresh token of the
    /// App's installation.
    async fn bearer(
        &self,
        sender: &Sender,
        deadline: &mut Deadline,
    ) -> Result<SecretString, Error> {
        const CALL: &str = "create_installation_token";
        let (jwt, installation_id) = match &self.credentials {
            Signer::Token(token) => return Ok(token.clone()),
            Signer::App {
                issuer,
                installation_id,
                key,
            } => (key.jwt(issuer, sender.clock.now()), *installation_id),
        };
        let jwt = jwt.ok_or_else(|| {
            let message = format!("{} cannot sign", keys::GITHUB_APP_PRIVATE_KEY);
            Error::new(ErrorKind::Credentials, CALL, message)
        })?;
        let id = installation_id.to_string();
        let url = self.api_url(&["app", "installations", &id, "access_tokens"]);
        let exchange = Exchange::new(CALL, Method::POST, url, &jwt)
            .accept(REST)
            .json(&json!({}))
            .aside();
        let sent = sender.send(&exchange, deadline).await;
        let response = sent.map_err(|error| {
            let hint = "check the app id, the installation id and the private key";
            refused(error, hint)
        })?;
        Ok(wire::read::<Token>(CALL, &response)?.token)
    }

    async fn registration_token(
        &self,
        sender: &Sender,
        bearer: &SecretString,
        deadline: &mut Deadline,
    ) -> Result<SecretString, Error> {
        const CALL: &str = "create_registration_token";
        let scope: &[&str] = match &self.url.scope {
            ConfigScope::Enterprise(name) => &["enterprises", name],
            ConfigScope::Organization(name) => &["orgs", name],
            ConfigScope::Repository { owner, repository } => &["repos", owner, repository],
        };
        let path = [scope, &["actions", "runners", "registration-token"]].concat();
        let exchange = Exchange::new(CALL, Method::POST, self.api_url(&path), bearer)
            .accept(REST)
            .aside();
        let sent = sender.send(&exchange, deadline).await;
        let response = sent.map_err(|mut error| {
            if matches!(error.status, Some(301 | 302 | 307 | 308)) {
                error.kind = ErrorKind::Config;
                error.message = format!(
                    "{} has moved to another name: correct githubConfigUrl",
                    self.url
                );
            }
            let hint = format!(
                "check that {} exists and that the credentials may administer its runners",
                self.url
            );
            refused(error, &hint)
        })?;
        Ok(wire::read::<Token>(CALL, &response)?.token)
    }

    /// Trades a registration token for a tenant token. The service may need a moment to know
    /// the registration token.
    async fn register(
        &self,
        sender: &Sender,
        registration: &SecretString,
        deadline: &mut Deadline,
    ) -> Result<TenantToken, Error> {
        const CALL: &str = "register";
        let url = self.api_url(&["actions", "runner-registration"]);
        let body = json!({"url": self.url.to_string(), "runner_event": "register"});
        let exchange = Exchange::new(CALL, Method::POST, url, registration)
            .scheme("RemoteAuth")
            .json(&body)
            .aside();
        let mut failures = 0;
        loop {
            let error = match sender.send(&exchange, deadline).await {
                Ok(response) => {
                    let registration: Registration = wire::read(CALL, &response)?;
                    return tenant(registration, sender.clock.now()).ok_or_else(|| {
                        let message = "the service named a tenant URL that cannot be used";
                        Error::about(ErrorKind::Unreadable, CALL, &response, message)
                    });
                }
                Err(error) => error,
            };
            failures += 1;
            let asked = error.retry_after.unwrap_or_default();
            let wait = retry::back_off(failures, &self.url.to_string()).max(asked);
            let worth_it = error.kind == ErrorKind::Unauthorized
                && failures <= retry::RETRIES
                && asked <= retry::LONGEST_WAIT;
            if !worth_it || !deadline.allows(wait) {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
        }
    }

    fn api_url(&self, path: &[&str]) -> String {
        let mut url = self.api.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url.into()
    }
}

/// Says of a refusal what to check. GitHub says "not found" of what a token may not see.
fn refused(mut error: Error, hint: &str) -> Error {
    if error.status == Some(404) {
        error.kind = ErrorKind::Unauthorized;
    }
    if error.kind == ErrorKind::Unauthorized {
        error.message = format!("{}; {hint}", error.message);
    }
    error
}

/// How long the service is left alone after so many failures in a row: 0, 1, 3, 7, 15 s, and 31 s
/// when it refuses the credentials. Each caller backs off for itself; this is for when there are
/// many.
fn rest(kind: ErrorKind, failures: u32) -> Duration {
    let longest = if kind == ErrorKind::Unauthorized {
        5
    } else {
        4
    };
    Duration::from_secs((1 << failures.saturating_sub(1).min(longest)) - 1)
}

fn tenant(registration: Registration, now: Timestamp) -> Option<TenantToken> {
    let mut url = Url::parse(&registration.url).ok().filter(wire::is_http)?;
    url.set_query(None);
    url.set_fragment(None);
    url.path_segments_mut().ok()?.pop_if_empty().push("");
    let expires = expiry(registration.token.expose_secret())
        .unwrap_or_else(|| after(now, UNKNOWN_LIFETIME))
        // or each call would get a new one, when the clocks differ by so much
        .max(after(now, REFRESH_BEFORE + SHORTEST_USE));
    Some(TenantToken {
        url,
        token: registration.token,
        expires,
    })
}

/// When a JWT expires. Its signature is not our concern: it is for the service.
fn expiry(jwt: &str) -> Option<Timestamp> {
    let payload = jwt.split('.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&payload).ok()?;
    let seconds = claims.get("exp")?;
    #[allow(clippy::cast_possible_truncation, reason = "a time, in seconds")]
    let seconds = seconds
        .as_i64()
        .or_else(|| seconds.as_f64().map(|s| s as i64))?;
    Timestamp::from_second(seconds).ok()
}

/// Credentials, made ready for use.
enum Signer {
    Token(SecretString),
    App {
        issuer: String,
        installation_id: i64,
        key: AppKey,
    },
}

impl Signer {
    fn new(credentials: Credentials) -> Result<Self, Error> {
        Ok(match credentials {
            Credentials::Token(token) => Self::Token(token),
            Credentials::App {
                app_id,
                installation_id,
                private_key,
            } => Self::App {
                key: AppKey::read(&private_key).map_err(|problem| {
                    let message =
                        format!("the value of {} {problem}", keys::GITHUB_APP_PRIVATE_KEY);
                    Error::new(ErrorKind::Credentials, "configure", message)
                })?,
                issuer: app_id,
                installation_id,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expiry_of_a_token_is_read_whatever_its_signature() {
        let payload = URL_SAFE_NO_PAD.encode(r#"{"exp":1767323045,"orchid":"x"}"#);
        let expected = "2026-01-02T03:04:05Z".parse().unwrap();
        assert_eq!(expiry(&format!("e30.{payload}.sig")), Some(expected));
        for opaque in ["", "opaque", "a.b.c", "e30.e30.x"] {
            assert_eq!(expiry(opaque), None, "{opaque}");
        }
    }

    #[test]
    fn a_tenant_url_keeps_its_path_and_loses_its_query() {
        for (url, expected) in [
            (
                "https://pipelines.example/abc",
                "https://pipelines.example/abc/",
            ),
            (
                "https://pipelines.example/abc/?x=1",
                "https://pipelines.example/abc/",
            ),
            ("https://pipelines.example", "https://pipelines.example/"),
        ] {
            let registration = Registration {
                url: url.to_owned(),
                token: "opaque".into(),
            };
            let token = tenant(registration, Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(token.url.as_str(), expected);
            assert!(token.lasts(Timestamp::UNIX_EPOCH, UNKNOWN_LIFETIME - 1));
        }
    }
}
