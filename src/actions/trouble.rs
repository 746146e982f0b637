//! Why no answer came over the network, in words that say what to do.
//!
//! Names the proxy that a request went through, since otherwise the one that failed is taken
//! for the service; and tells a certificate that is not trusted and a proxy that wants other
//! credentials, which a person has to mend, from a connection that may come back.

use std::error::Error as StdError;

use rustls::CertificateError;

use super::proxy::ProxyServer;
use super::transport::{TransportError, TransportErrorKind};

/// What hyper says of a proxy's 407; its type is not public.
const WANTS_CREDENTIALS: &str = "proxy authorization required";

/// Explains an error of a request to that host, sent through that proxy.
pub(super) fn explain(
    error: &reqwest::Error,
    host: &str,
    proxy: Option<&ProxyServer>,
) -> TransportError {
    if error.is_builder() {
        return TransportError::new(TransportErrorKind::Options, chain(error));
    }
    if let Some(problem) = certificate_problem(error) {
        return untrusted(&problem, host);
    }
    let text = chain(error);
    match proxy {
        Some(proxy) if text.contains(WANTS_CREDENTIALS) => refused_by(proxy),
        _ => {
            let kind = if error.is_connect() {
                TransportErrorKind::Connect
            } else {
                TransportErrorKind::Broken
            };
            let through = proxy.map(|proxy| format!(" through the proxy {proxy}"));
            let through = through.unwrap_or_default();
            TransportError::new(kind, format!("{host} cannot be reached{through}: {text}"))
        }
    }
}

/// A proxy has answered 407.
pub(super) fn refused_by(proxy: &ProxyServer) -> TransportError {
    let message = if proxy.has_credentials() {
        format!(
            "the proxy {proxy} refuses the user and password it was given (407): correct them in \
             the Secret that the proxy's credentialSecretRef names"
        )
    } else {
        format!(
            "the proxy {proxy} asks for a user and password (407): name a Secret with the keys \
             username and password in the proxy's credentialSecretRef"
        )
    };
    TransportError::new(TransportErrorKind::ProxyRefused, message)
}

fn untrusted(problem: &CertificateError, host: &str) -> TransportError {
    let message = match problem {
        // the latter of an authority that was made anew under its old name
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "the certificate of {host} is of an authority that is not trusted: put its \
             current root certificate into a ConfigMap and name that in githubServerTLS"
        ),
        problem => format!(
            "the certificate of {host} cannot be accepted: {problem}; renew or correct it on the \
             server, or give the URL that it is for"
        ),
    };
    TransportError::new(TransportErrorKind::Untrusted, message)
}

/// What is wrong with the other side's certificate, if that is the cause.
fn certificate_problem(error: &reqwest::Error) -> Option<CertificateError> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        // an I/O error is not the source of what it wraps
        let inner = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        let inner = inner.map(|inner| inner as &(dyn StdError + 'static));
        for candidate in [Some(error), inner].into_iter().flatten() {
            if let Some(rustls::Error::InvalidCertificate(problem)) = candidate.downcast_ref() {
                return Some(problem.clone());
            }
        }
        cause = inner.or_else(|| error.source());
    }
    None
}

/// An error with its causes, each once.
pub(super) fn chain(error: &dyn StdError) -> String {
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
