//! An embedded Azure Key Vault, with the tenant that lets applications in to it.
//!
//! It speaks the protocol of the real ones, and believes nothing: a token is given for an
//! assertion whose signature, thumbprint, audience and times are right, and a secret for such
//! a token. It refuses, delays or loses whatever it is asked to, by the names of its two
//! calls, `vault_login` and `vault_secret`.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{RSA_PSS_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::ParsedCertificate;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tower_service::Service;
use url::{Url, form_urlencoded};

use crate::actions_service::{CallInfo, Faults, Interceptor as _, Lost, Outcome};
use wall_clock::{Clock, Timestamp, after};

/// Names of what may be asked for to go wrong: the login, and the reading of a secret.
const CALLS: [&str; 2] = ["vault_login", "vault_secret"];
const LOGIN: &str = "https://login.microsoftonline.com";
const RESOURCE: &str = "https://vault.azure.net";
const API_VERSION: &str = "7.4";
/// No request of a client is larger.
const LARGEST_BODY: usize = 1 << 20;
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The vault. Clones are the same vault.
#[derive(Clone)]
pub struct KeyVault(Arc<Shared>);

struct Shared {
    clock: Clock,
    url: Url,
    /// Who is asked for tokens, and for what they are.
    login: Url,
    resource: String,
    faults: Faults,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    applications: BTreeMap<String, Application>,
    secrets: BTreeMap<String, String>,
    is_closed: bool,
    /// For how many seconds a token is valid.
    lifetime: i64,
    tokens: BTreeMap<String, Timestamp>,
    given: u64,
    assertions: BTreeSet<String>,
    calls: Vec<&'static str>,
}

/// An application that may sign in with a certificate.
struct Application {
    tenant: String,
    thumbprint: String,
    public_key: Vec<u8>,
}

/// A text that holds no certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no X.509 certificate in PEM form in it")]
pub struct BadCertificate;

/// Why the tenant does not let an application in: the code, and what it says.
struct Refused(u32, &'static str);

impl KeyVault {
    /// An empty vault at this URL. One in `vault.azure.net` is entered as the real ones are; any
    /// other gives tokens itself.
    #[must_use]
    pub fn new(clock: Clock, url: &Url) -> Self {
        let is_real = url
            .host_str()
            .is_some_and(|host| host.ends_with(".vault.azure.net"));
        let mut own = url.clone();
        own.set_path("");
        let login = is_real.then(|| Url::parse(LOGIN).ok()).flatten();
        let resource = if is_real {
            RESOURCE.to_owned()
        } else {
            own.as_str().trim_end_matches('/').to_owned()
        };
        Self(Arc::new(Shared {
            clock,
            url: url.clone(),
            login: login.unwrap_or(own),
            resource,
            faults: Faults::of(&CALLS),
            state: Mutex::new(State {
                lifetime: 3599,
                ..State::default()
            }),
        }))
    }

    /// Lets an application in that signs in with the first certificate of this PEM text.
    ///
    /// # Errors
    ///
    /// When it holds no certificate.
    pub fn register(
        &self,
        tenant: &str,
        client_id: &str,
        pem: &[u8],
    ) -> Result<(), BadCertificate> {
        let certificate = CertificateDer::from_pem_slice(pem).map_err(|_| BadCertificate)?;
        let key = ParsedCertificate::try_from(&certificate)
            .map_err(|_| BadCertificate)?
            .subject_public_key_info();
        let application = Application {
            tenant: tenant.to_owned(),
            thumbprint: URL_SAFE_NO_PAD.encode(digest(&SHA256, &certificate)),
            public_key: key.to_vec(),
        };
        let mut state = self.state();
        state.applications.insert(client_id.to_owned(), application);
        Ok(())
    }

    /// Puts a secret's newest version there.
    pub fn put(&self, name: &str, value: &str) {
        let mut state = self.state();
        state.secrets.insert(name.to_owned(), value.to_owned());
    }

    /// Takes a secret away.
    pub fn remove(&self, name: &str) {
        self.state().secrets.remove(name);
    }

    /// Whether nobody has the right to read secrets.
    pub fn close(&self, is_closed: bool) {
        self.state().is_closed = is_closed;
    }

    /// For how many seconds tokens given from now on are valid.
    pub fn tokens_last(&self, seconds: i64) {
        self.state().lifetime = seconds;
    }

    /// Makes all tokens invalid before their time.
    pub fn revoke_tokens(&self) {
        self.state().tokens.clear();
    }

    /// Where to ask for things to go wrong.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// How often it was called so, well or not.
    #[must_use]
    pub fn calls(&self, name: &str) -> usize {
        let state = self.state();
        state.calls.iter().filter(|call| **call == name).count()
    }

    /// Answers requests on a port, until dropped.
    ///
    /// # Errors
    ///
    /// When the port cannot be listened on any more.
    pub async fn serve(self, listener: TcpListener) -> io::Result<Infallible> {
        let answer = move |request: Request<Incoming>| {
            let vault = self.clone();
            async move {
                let request = embedded_http::read_whole(request, LARGEST_BODY).await;
                let request = request.map_err(|_| Lost::Answer)?;
                let answer = vault.handle(request).await?;
                Ok::<_, Lost>(answer.map(Full::new))
            }
        };
        embedded_http::serve(listener, answer).await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether requests to this host are for the vault, or for the tenant that lets into it.
    #[must_use]
    pub fn answers_for(&self, host: Option<&str>) -> bool {
        host == self.0.url.host_str() || host == self.0.login.host_str()
    }

    /// Answers a request.
    ///
    /// # Errors
    ///
    /// When a fault takes the request or its answer away.
    pub async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Lost> {
        let path = request.uri().path().to_owned();
        let is_login = path.ends_with("/oauth2/v2.0/token");
        let name = if is_login { CALLS[0] } else { CALLS[1] };
        self.state().calls.push(name);
        let query = request.uri().query().unwrap_or_default().to_owned();
        let call = CallInfo {
            name,
            path: &path,
            query: &query,
        };
        let answer = |vault: &Self| {
            if is_login {
                vault.login(&request)
            } else {
                vault.secret(&request)
            }
        };
        let Some(fault) = self.0.faults.intercept(&call) else {
            return Ok(answer(self));
        };
        sleep(fault.delay).await;
        match fault.outcome {
            Outcome::Answer => Ok(answer(self)),
            Outcome::Refuse(refusal) => {
                let body = json!({
                    "error": {"code": refusal.type_name, "message": refusal.message},
                });
                let mut response = response(refusal.status, &body);
                for (name, value) in refusal.headers {
                    if let Ok(value) = value.parse() {
                        response.headers_mut().insert(name, value);
                    }
                }
                Ok(response)
            }
            Outcome::Replace(status, body) => {
                let mut response = Response::new(body);
                *response.status_mut() = status.try_into().unwrap_or_default();
                Ok(response)
            }
            Outcome::Unreachable => Err(Lost::Unreachable),
            Outcome::Reset => Err(Lost::Request),
            // what an Actions service alone can do
            Outcome::Echo
            | Outcome::Mangle(_)
            | Outcome::Forestall(_)
            | Outcome::Halve
            | Outcome::NumberToken => Ok(answer(self)),
            Outcome::LoseAnswer => {
                answer(self);
                Err(Lost::Answer)
            }
            Outcome::Hang => std::future::pending().await,
        }
    }

    // === the tenant ===

    fn login(&self, request: &Request<Bytes>) -> Response<Bytes> {
        match self.sign_in(request) {
            Ok(answer) => response(200, &answer),
            Err(Refused(code, text)) => {
                let description = format!(
                    "AADSTS{code}: {text} Trace ID: 11 Correlation ID: 12\r\nTimestamp: now"
                );
                let body = json!({
                    "error": "invalid_client",
                    "error_description": description,
                    "error_codes": [code],
                });
                response(if code == 90_002 { 400 } else { 401 }, &body)
            }
        }
    }

    fn sign_in(&self, request: &Request<Bytes>) -> Result<Value, Refused> {
        let form: BTreeMap<String, String> = form_urlencoded::parse(request.body())
            .into_owned()
            .collect();
        let field = |name: &str| form.get(name).map_or("", String::as_str);
        let is_form = request
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|value| value == "application/x-www-form-urlencoded");
        if request.method() != Method::POST
            || !is_form
            || field("grant_type") != "client_credentials"
            || field("client_assertion_type") != ASSERTION_TYPE
        {
            return Err(Refused(900_144, "The request is not a sign-in."));
        }
        if field("scope") != format!("{}/.default", self.0.resource) {
            return Err(Refused(70_011, "The scope is not valid."));
        }
        let mut state = self.state();
        let client_id = field("client_id");
        let tenant = request.uri().path().split('/').nth(1).unwrap_or_default();
        let mut applications = state.applications.iter();
        if !applications.any(|(_, known)| known.tenant == tenant) {
            return Err(Refused(90_002, "Tenant not found."));
        }
        let known = state.applications.get(client_id);
        let known = known.filter(|known| known.tenant == tenant);
        let Some(application) = known else {
            return Err(Refused(
                700_016,
                "Application was not found in the directory.",
            ));
        };
        let claims = application.verified(field("client_assertion"))?;
        self.check(&claims, client_id, request.uri().path())?;
        let id = claims["jti"].as_str().unwrap_or_default().to_owned();
        if id.is_empty() || !state.assertions.insert(id) {
            return Err(Refused(700_025, "The assertion was used before."));
        }
        state.given += 1;
        let token = format!("akv-{:04}", state.given);
        let expires = after(self.0.clock.now(), state.lifetime);
        state.tokens.insert(token.clone(), expires);
        Ok(json!({
            "token_type": "Bearer",
            "expires_in": state.lifetime,
            "access_token": token,
        }))
    }

    fn check(&self, claims: &Value, client_id: &str, path: &str) -> Result<(), Refused> {
        let mut audience = self.0.login.clone();
        audience.set_path(path);
        let text = |name: &str| claims[name].as_str().unwrap_or_default();
        if text("iss") != client_id || text("sub") != client_id {
            return Err(Refused(700_021, "The assertion is of another application."));
        }
        if text("aud") != audience.as_str() {
            return Err(Refused(50_027, "The assertion is for another audience."));
        }
        let number = |name: &str| claims[name].as_i64().unwrap_or_default();
        let now = self.0.clock.now().as_second();
        if number("nbf") > now || number("exp") <= now || number("exp") > now + 86_400 {
            return Err(Refused(
                700_024,
                "The assertion is not within its valid time.",
            ));
        }
        Ok(())
    }

    // === the vault ===

    fn secret(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let state = self.state();
        let token = request
            .headers()
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let expires = token.and_then(|token| state.tokens.get(token));
        if expires.is_none_or(|expires| *expires <= self.0.clock.now()) {
            return self.challenge();
        }
        if state.is_closed {
            let body = json!({"error": {
                "code": "Forbidden",
                "message": "Caller is not authorized to perform action on resource.",
                "innererror": {"code": "ForbiddenByRbac"},
            }});
            return response(403, &body);
        }
        let version = format!("api-version={API_VERSION}");
        if request.method() != Method::GET || request.uri().query() != Some(version.as_str()) {
            return response(400, &json!({"error": {"code": "BadParameter"}}));
        }
        let name = request.uri().path().strip_prefix("/secrets/");
        match name.and_then(|name| state.secrets.get(name)) {
            Some(value) => response(200, &json!({"value": value, "id": self.0.url.as_str()})),
            None => response(404, &json!({"error": {"code": "SecretNotFound"}})),
        }
    }

    fn challenge(&self) -> Response<Bytes> {
        let Shared {
            login, resource, ..
        } = &*self.0;
        let value = format!("Bearer authorization=\"{login}a-tenant\", resource=\"{resource}\"");
        let mut response = response(401, &json!({"error": {"code": "Unauthorized"}}));
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(WWW_AUTHENTICATE, value);
        }
        response
    }
}

impl Application {
    /// The claims of an assertion that this application's certificate has signed.
    fn verified(&self, assertion: &str) -> Result<Value, Refused> {
        const NOT_OURS: Refused = Refused(
            700_027,
            "The certificate used to sign the client assertion is not registered on application.",
        );
        let (text, signature) = assertion.rsplit_once('.').ok_or(NOT_OURS)?;
        let (header, claims) = text.split_once('.').ok_or(NOT_OURS)?;
        let part = |part: &str| -> Option<Value> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
        };
        let header = part(header).ok_or(NOT_OURS)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| NOT_OURS)?;
        let key = UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, &self.public_key);
        let is_signed = key.verify(text.as_bytes(), &signature).is_ok();
        if header["alg"] != "PS256" || header["x5t#S256"] != self.thumbprint || !is_signed {
            return Err(NOT_OURS);
        }
        part(claims).ok_or(NOT_OURS)
    }
}

fn response(status: u16, body: &Value) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = status.try_into().unwrap_or_default();
    let json = http::HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

impl Service<Request<Bytes>> for KeyVault {
    type Response = Response<Bytes>;
    type Error = Lost;
    type Future = BoxFuture<'static, Result<Response<Bytes>, Lost>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let vault = self.clone();
        Box::pin(async move { vault.handle(request).await })
    }
}
