//! How a request gets to the service: over the network, or to a handler in this process.
//!
//! The only place that knows reqwest. Deadlines and retries are the client's business: a
//! transport sends a request once and waits for as long as it is polled.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::proxy::Proxies;

/// Sends requests.
pub trait Transport: Send + Sync {
    /// Sends the request, whose URI is absolute, and reads the whole answer. Redirects are
    /// not followed. Dropping the future gives the request up.
    fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> BoxFuture<'static, Result<http::Response<Bytes>, TransportError>>;
}

/// Makes transports.
pub trait Transports: Send + Sync {
    /// A transport with these options.
    ///
    /// # Errors
    ///
    /// When the root certificate or a proxy's URL is not usable.
    fn transport(&self, options: &TransportOptions) -> Result<Arc<dyn Transport>, TransportError>;
}

/// What a transport is to observe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransportOptions {
    /// Root certificates in PEM form, trusted beside the system's.
    pub root_ca: Option<Vec<u8>>,
    /// Proxies.
    pub proxies: Proxies,
}

/// Why no answer came. Holds no URL and so no secret of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TransportError {
    /// What it means for the one who asked.
    pub kind: TransportErrorKind,
    /// What happened.
    pub message: String,
}

/// What a missing answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportErrorKind {
    /// An option is not usable; trying again does not help.
    Options,
    /// No connection came about: the request did not take effect.
    Connect,
    /// The connection broke: the request may have taken effect.
    Broken,
}

impl TransportError {
    /// An error of the kind.
    pub fn new(kind: TransportErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    fn from_reqwest(error: reqwest::Error) -> Self {
        let kind = if error.is_builder() {
            TransportErrorKind::Options
        } else if error.is_connect() {
            TransportErrorKind::Connect
        } else {
            TransportErrorKind::Broken
        };
        Self::new(kind, chain(&error.without_url()))
    }
}

/// An error with its causes, each once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text
}

/// The network, by reqwest with rustls.
pub struct ReqwestTransport(reqwest::Client);

impl ReqwestTransport {
    /// A transport with its own pool of connections.
    ///
    /// # Errors
    ///
    /// When the root certificate is not PEM or TLS cannot be set up.
    pub fn new(options: &TransportOptions) -> Result<Self, TransportError> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(std::time::Duration::from_secs(30))
            // The proxies are ours to choose, also when they come from the environment.
            .no_proxy();
        if let Some(pem) = &options.root_ca {
            builder = builder.tls_certs_merge(root_certificates(pem)?);
        }
        if !options.proxies.is_empty() {
            let proxies = options.proxies.clone();
            builder = builder.proxy(reqwest::Proxy::custom(move |url| proxies.for_url(url)));
        }
        builder
            .build()
            .map(Self)
            .map_err(TransportError::from_reqwest)
    }
}

fn root_certificates(pem: &[u8]) -> Result<Vec<reqwest::Certificate>, TransportError> {
    let refuse = |problem: &str| {
        TransportError::new(
            TransportErrorKind::Options,
            format!("the root certificate is not usable: {problem}"),
        )
    };
    let certificates =
        reqwest::Certificate::from_pem_bundle(pem).map_err(|error| refuse(&chain(&error)))?;
    if certificates.is_empty() {
        return Err(refuse("it holds no certificate in PEM form"));
    }
    Ok(certificates)
}

impl Transport for ReqwestTransport {
    fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> BoxFuture<'static, Result<http::Response<Bytes>, TransportError>> {
        let client = self.0.clone();
        async move {
            let request =
                reqwest::Request::try_from(request).map_err(TransportError::from_reqwest)?;
            let answer = client
                .execute(request)
                .await
                .map_err(TransportError::from_reqwest)?;
            let mut response = http::Response::new(Bytes::new());
            *response.status_mut() = answer.status();
            *response.headers_mut() = answer.headers().clone();
            *response.body_mut() = answer.bytes().await.map_err(|error| {
                let text = chain(&error.without_url());
                TransportError::new(TransportErrorKind::Broken, text)
            })?;
            Ok(response)
        }
        .boxed()
    }
}

/// Makes [`ReqwestTransport`]s.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReqwestTransports;

impl Transports for ReqwestTransports {
    fn transport(&self, options: &TransportOptions) -> Result<Arc<dyn Transport>, TransportError> {
        Ok(Arc::new(ReqwestTransport::new(options)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_certificate_that_is_not_pem_is_refused_before_any_call() {
        for (pem, expected) in [
            ("not a certificate", "no certificate in PEM form"),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "not usable",
            ),
        ] {
            let options = TransportOptions {
                root_ca: Some(pem.into()),
                ..TransportOptions::default()
            };
            let error = ReqwestTransports.transport(&options).err().unwrap();
            assert_eq!(error.kind, TransportErrorKind::Options, "{error}");
            if pem.starts_with("not") {
                assert!(error.message.contains(expected), "{error}");
            }
        }
    }
}
