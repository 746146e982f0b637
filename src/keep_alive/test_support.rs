//! A network that goes silent: nothing passes on it, and nothing is reset.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::KeepAlive;

/// Limits that a test can wait for.
pub const BRIEF: KeepAlive = KeepAlive {
    idle: Duration::from_millis(50),
    // a busy machine is not silent
    timeout: Duration::from_secs(2),
};

/// A server behind TLS that begins each answer so and never ends it.
pub async fn server(protocols: &[&str], first: &'static str) -> (SocketAddr, rcgen::Certificate) {
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certificate = certified.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.into())
        .unwrap();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().into())
        .collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await.unwrap();
                let answer = service_fn(move |_| async move {
                    let first = Frame::data(Bytes::from_static(first.as_bytes()));
                    let events = futures::stream::iter([Ok::<_, Infallible>(first)])
                        .chain(futures::stream::pending());
                    Ok::<_, Infallible>(http::Response::new(StreamBody::new(events)))
                });
                let http = auto::Builder::new(TokioExecutor::new());
                let _ended = http.serve_connection(TokioIo::new(stream), answer).await;
            });
        }
    });
    (address, certified.cert)
}

/// A network on the way to the target, whose connections of up to now go silent when told:
/// nothing passes, and nothing is reset.
pub async fn network(target: SocketAddr) -> (SocketAddr, watch::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (silence, heard) = watch::channel(());
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut heard = heard.clone();
            heard.mark_unchanged();
            tokio::spawn(async move {
                let mut far = TcpStream::connect(target).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    _ = heard.changed() => std::future::pending().await,
                }
            });
        }
    });
    (address, silence)
}
