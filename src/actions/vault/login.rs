//! Access tokens: the application signs in at its tenant with an assertion that its
//! certificate has signed.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::certificate::Certificate;
use super::challenge::Challenge;
use super::error::VaultError;
use super::http::Http;
use crate::actions::error::redact_secret;
use crate::clock::{Timestamp, after};

const CALL: &str = "vault_login";
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// A token with so many seconds left is got anew.
const REFRESH_BEFORE: i64 = 120;
/// How long a token is used that does not say when it expires.
const UNKNOWN_LIFETIME: i64 = 600;

/// What opens the vault.
pub(super) struct AccessToken {
    pub(super) bearer: SecretString,
    expires: Timestamp,
}

impl AccessToken {
    pub(super) fn lasts(&self, now: Timestamp) -> bool {
        self.expires > after(now, REFRESH_BEFORE)
    }
}

/// The application.
pub(super) struct Login {
    pub(super) tenant: String,
    pub(super) client_id: String,
    certificate: PathBuf,
}

impl Login {
    pub(super) fn new(tenant: &str, client_id: &str, certificate: &Path) -> Self {
        Self {
            tenant: tenant.to_owned(),
            client_id: client_id.to_owned(),
            certificate: certificate.to_owned(),
        }
    }

    /// Gets a token for what the vault asks for. The certificate is read each time: one that
    /// was renewed is used by the next token.
    pub(super) async fn sign_in(
        &self,
        challenge: &Challenge,
        http: &Http,
    ) -> Result<AccessToken, VaultError> {
        let mut url = challenge.authority.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            let path = [self.tenant.as_str(), "oauth2", "v2.0", "token"];
            segments.pop_if_empty().extend(path);
        }
        let assertion = self.assertion(&url, http.clock.now())?;
        let request = self.request(&url, challenge, &assertion)?;
        let host = url.host_str().unwrap_or_default();
        let response = http.send(CALL, host, request).await?;
        if response.status().is_success() {
            return read(&response, http.clock.now()).ok_or_else(|| VaultError::Unexpected {
                whom: host.to_owned(),
                problem: "let us in without a token".to_owned(),
            });
        }
        Err(self.refusal(host, &response, &assertion))
    }

    fn assertion(&self, audience: &Url, now: Timestamp) -> Result<SecretString, VaultError> {
        let unusable = |problem| VaultError::Certificate {
            path: self.certificate.clone(),
            problem,
        };
        let certificate = Certificate::read(&self.certificate).map_err(unusable)?;
        certificate
            .assertion(&self.client_id, audience.as_str(), now)
            .map_err(unusable)
    }

    fn request(
        &self,
        url: &Url,
        challenge: &Challenge,
        assertion: &SecretString,
    ) -> Result<Request<Bytes>, VaultError> {
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("client_id", &self.client_id)
            .append_pair("scope", &challenge.scope)
            .append_pair("client_assertion_type", ASSERTION_TYPE)
            .append_pair("client_assertion", assertion.expose_secret())
            .append_pair("grant_type", "client_credentials")
            .finish();
        let mut request = Request::new(Bytes::from(form));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url
            .as_str()
            .parse()
            .map_err(|_| VaultError::setting("tenantId", "gives no URL that can be used"))?;
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(CONTENT_TYPE, form);
        Ok(request)
    }

    fn refusal(
        &self,
        host: &str,
        response: &Response<Bytes>,
        assertion: &SecretString,
    ) -> VaultError {
        let body: Value = serde_json::from_slice(response.body()).unwrap_or_default();
        let text = |key: &str| body.get(key).and_then(Value::as_str);
        let description = text("error_description").or_else(|| text("error"));
        // its first line is for people; ids and the time come after it
        let line = description.and_then(|text| text.lines().next());
        let message = match line {
            Some(line) => redact_secret(line, assertion.expose_secret()),
            None => format!("it answers with {}", response.status()),
        };
        VaultError::LoginRefused {
            host: host.to_owned(),
            tenant: self.tenant.clone(),
            client_id: self.client_id.clone(),
            advice: advice(&message),
            message,
        }
    }
}

/// What to do about the codes that settings and certificates are behind.
fn advice(message: &str) -> &'static str {
    let code = message.split([':', ' ']).next().unwrap_or_default();
    match code {
        "AADSTS700016" => "; correct clientId, or register the application in this tenant",
        "AADSTS90002" | "AADSTS900023" => "; correct tenantId",
        "AADSTS700027" => {
            "; add the certificate of certificatePath to the application's certificates, or \
             renew it if it has expired"
        }
        "AADSTS700024" => "; correct the clock of this node",
        "AADSTS7000222" | "AADSTS7000112" => "; enable the application, or renew its credentials",
        _ => "",
    }
}

fn read(response: &Response<Bytes>, now: Timestamp) -> Option<AccessToken> {
    let body: Value = serde_json::from_slice(response.body()).ok()?;
    let bearer = body.get("access_token")?.as_str()?;
    if bearer.is_empty() {
        return None;
    }
    let seconds = body.get("expires_in").and_then(|value| {
        let text = value.as_str();
        value.as_i64().or_else(|| text?.parse().ok())
    });
    Some(AccessToken {
        bearer: bearer.into(),
        expires: after(now, seconds.unwrap_or(UNKNOWN_LIFETIME)),
    })
}
