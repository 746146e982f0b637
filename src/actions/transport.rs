//! How a request gets to the service: over the network, or to a handler in this process.
//!
//! The only place that knows reqwest. Deadlines and retries are the client's business: a
//! transport sends a request once and waits for as long as it is polled.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::CONTENT_ENCODING;

use super::proxy::Proxies;
use super::trouble::{self, chain};
use crate::keep_alive::KeepAlive;

/// How many bytes of an answer to a success are read at most. Goes into the extensions of a
/// request; without it the default holds.
///
/// Who answers is chosen by whoever writes a config URL, and must not have our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerLimit(pub usize);

/// How many bytes of a refusal are read; what is longer is cut, since only a line of it is told.
const REFUSAL_LIMIT: usize = 64 << 10;

impl Default for AnswerLimit {
    fn default() -> Self {
        Self(1 << 20)
    }
}

/// Sends requests.
pub trait Transport: Send + Sync {
    /// Sends the request, whose URI is absolute, and reads the answer up to its
    /// [`AnswerLimit`]. Redirects are not followed. Dropping the future gives the request up.
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
    /// The other side's certificate is not trusted; a person has to mend that.
    Untrusted,
    /// The proxy wants other credentials; a person has to mend that.
    ProxyRefused,
    /// No connection came about: the request did not take effect.
    Connect,
    /// The connection broke: the request may have taken effect.
    Broken,
    /// The answer is longer than the limit, or packed. The request may have taken effect, and
    /// trying again does not help.
    Unacceptable,
}

impl TransportError {
    /// An error of the kind.
    pub fn new(kind: TransportErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }
}

/// The network, by reqwest with rustls.
pub struct ReqwestTransport {
    client: reqwest::Client,
    proxies: Arc<Proxies>,
}

impl ReqwestTransport {
    /// A transport with its own pool of connections.
    ///
    /// # Errors
    ///
    /// When the root certificate is not PEM or TLS cannot be set up.
    pub fn new(options: &TransportOptions) -> Result<Self, TransportError> {
        Self::with_keep_alive(options, KeepAlive::DEFAULT)
    }

    /// As [`Self::new`], with other limits on silence. A poll holds its connection for nearly
    /// a minute without a byte, which only pings tell from a dead one.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn with_keep_alive(
        options: &TransportOptions,
        keep_alive: KeepAlive,
    ) -> Result<Self, TransportError> {
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(std::time::Duration::from_secs(30))
            .tcp_keepalive(keep_alive.idle)
            .tcp_keepalive_interval(keep_alive.probe_interval())
            .tcp_keepalive_retries(KeepAlive::PROBES)
            .http2_keep_alive_interval(keep_alive.idle)
            .http2_keep_alive_timeout(keep_alive.timeout)
            // The proxies are ours to choose, also when they come from the environment.
            .no_proxy();
        if let Some(pem) = &options.root_ca {
            builder = builder.tls_certs_merge(root_certificates(pem)?);
        }
        if !options.proxies.is_empty() {
            let proxies = options.proxies.clone();
            builder = builder.proxy(reqwest::Proxy::custom(move |url| proxies.for_url(url)));
        }
        #[cfg(target_os = "linux")]
        {
            builder = builder.tcp_user_timeout(keep_alive.unacknowledged());
        }
        let client = builder.build().map_err(|error| {
            TransportError::new(TransportErrorKind::Options, chain(&error.without_url()))
        })?;
        let proxies = Arc::new(options.proxies.clone());
        Ok(Self { client, proxies })
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
        let client = self.client.clone();
        let proxies = Arc::clone(&self.proxies);
        let limit = request.extensions().get().copied().unwrap_or_default();
        async move {
            let options = |error: reqwest::Error| {
                TransportError::new(TransportErrorKind::Options, chain(&error.without_url()))
            };
            let request = reqwest::Request::try_from(request).map_err(options)?;
            let host = request.url().host_str().unwrap_or_default().to_owned();
            let proxy = proxies.server_for(request.url());
            let explain =
                |error: reqwest::Error| trouble::explain(&error.without_url(), &host, proxy);
            let answer = client.execute(request).await.map_err(explain)?;
            if let (Some(proxy), 407) = (proxy, answer.status().as_u16()) {
                return Err(trouble::refused_by(proxy));
            }
            let mut response = http::Response::new(Bytes::new());
            *response.status_mut() = answer.status();
            *response.headers_mut() = answer.headers().clone();
            *response.body_mut() = read_body(answer, limit).await?;
            Ok(response)
        }
        .boxed()
    }
}

/// Reads the body up to the limit. Should reqwest ever be built to unpack what is packed, it is
/// the unpacked bytes that are counted.
async fn read_body(
    mut answer: reqwest::Response,
    AnswerLimit(limit): AnswerLimit,
) -> Result<Bytes, TransportError> {
    let success = answer.status().is_success();
    let limit = if success { limit } else { REFUSAL_LIMIT };
    let too_long = || {
        let message = format!("the answer is longer than {limit} bytes, which is the limit");
        TransportError::new(TransportErrorKind::Unacceptable, message)
    };
    if success {
        if let Some(packed) = packed(answer.headers()) {
            let message = format!("the answer is packed ({packed}), which was not asked for");
            let kind = TransportErrorKind::Unacceptable;
            return Err(TransportError::new(kind, message));
        }
        let announced = answer.content_length().unwrap_or(0);
        if usize::try_from(announced).map_or(true, |length| length > limit) {
            return Err(too_long());
        }
    }
    let mut body = BytesMut::new();
    loop {
        let chunk = answer.chunk().await.map_err(|error| {
            let text = chain(&error.without_url());
            TransportError::new(TransportErrorKind::Broken, text)
        })?;
        let Some(chunk) = chunk else { break };
        let room = limit - body.len();
        if chunk.len() > room && success {
            return Err(too_long());
        }
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == limit && !success {
            break;
        }
    }
    Ok(body.freeze())
}

/// How the body is packed, if it is.
fn packed(headers: &http::HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_ENCODING)?;
    let value = value.to_str().unwrap_or("in an unknown way").trim();
    let plain = value.is_empty() || value.eq_ignore_ascii_case("identity");
    (!plain).then(|| value.chars().take(40).collect())
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
    use std::time::Duration;

    use super::*;
    use crate::keep_alive::test_support::{BRIEF, network, server};

    #[tokio::test]
    async fn a_poll_on_a_silent_connection_ends_as_broken() {
        let (target, certificate) = server(&["h2"], "{").await;
        let (address, silence) = network(target).await;
        let options = TransportOptions {
            root_ca: Some(certificate.pem().into_bytes()),
            ..TransportOptions::default()
        };
        let transport = ReqwestTransport::with_keep_alive(&options, BRIEF).unwrap();
        let request = http::Request::get(format!("https://{address}/"));
        let mut poll = transport.send(request.body(Bytes::new()).unwrap());
        // the connection comes about, and the answer begins
        let begun = tokio::time::timeout(Duration::from_millis(300), &mut poll).await;
        assert!(begun.is_err(), "{begun:?}");
        silence.send_replace(());
        let ended = tokio::time::timeout(Duration::from_secs(30), poll).await;
        let error = ended.expect("the silence was not noticed").unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::Broken, "{error}");
    }

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
