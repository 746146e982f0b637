//! Real servers on loopback: the embedded service behind TLS with a private authority, and an
//! HTTP proxy that wants a password.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::world::*;

/// A server that ends with the test.
pub struct Server {
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listening() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The embedded service behind TLS, for these names; and the authority's certificate as PEM.
pub async fn tls_service(service: &ActionsService, names: &[&str]) -> (Server, String) {
    let (acceptor, authority) = acceptor(names);
    let (listener, address) = listening().await;
    let service = service.clone();
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve_tls(service.clone(), acceptor.clone(), stream));
        }
    });
    (Server { address, task }, authority)
}

fn acceptor(names: &[&str]) -> (TlsAcceptor, String) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = authority.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(authority, key);
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(names).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        );
    (TlsAcceptor::from(Arc::new(config.unwrap())), pem)
}

async fn serve_tls(service: ActionsService, acceptor: TlsAcceptor, stream: TcpStream) {
    // one that does not trust the certificate goes away
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let answer = service_fn(move |request: http::Request<Incoming>| {
        let service = service.clone();
        async move {
            let (mut parts, body) = request.into_parts();
            // the service names URLs of the scheme that it was reached under
            let host = parts.headers["host"].to_str().unwrap().to_owned();
            let path = parts.uri.path_and_query().unwrap().as_str();
            parts.uri = format!("https://{host}{path}").parse().unwrap();
            let body = body.collect().await.unwrap().to_bytes();
            let answer = service.handle(http::Request::from_parts(parts, body)).await;
            answer.map(|answer| answer.map(Full::new))
        }
    });
    let http = hyper::server::conn::http1::Builder::new();
    let _ = http.serve_connection(TokioIo::new(stream), answer).await;
}

/// An HTTP proxy that asks for a user and password, and connects to one place whatever it is
/// asked for. Keeps the first lines of the requests that it served.
pub struct Proxy {
    pub server: Server,
    pub served: Arc<Mutex<Vec<String>>>,
}

pub async fn proxy(user: &str, password: &str, target: SocketAddr) -> Proxy {
    let (listener, address) = listening().await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let login = STANDARD.encode(format!("{user}:{password}"));
    let seen = served.clone();
    let task = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve_proxy(stream, login.clone(), target, seen.clone()));
        }
    });
    let server = Server { address, task };
    Proxy { server, served }
}

async fn serve_proxy(
    mut stream: TcpStream,
    login: String,
    target: SocketAddr,
    served: Arc<Mutex<Vec<String>>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let first = head.lines().next().unwrap().to_owned();
    let authorized = head.lines().any(|line| {
        let value = line.split_once(": ");
        value.is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("proxy-authorization") && value == format!("Basic {login}")
        })
    });
    let answer: &[u8] = if !authorized {
        b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\
          Content-Length: 0\r\n\r\n"
    } else if first.starts_with("CONNECT ") {
        b"HTTP/1.1 200 Connection established\r\n\r\n"
    } else {
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    };
    if authorized {
        served.lock().unwrap().push(first.clone());
    }
    if stream.write_all(answer).await.is_ok() && authorized && first.starts_with("CONNECT ") {
        let mut there = TcpStream::connect(target).await.unwrap();
        let _ = copy_bidirectional(&mut stream, &mut there).await;
    }
}
