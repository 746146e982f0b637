//! A client of the API server whose connections notice that they have gone silent.
//!
//! kube's own client asks for no sign of life, so a watch on a dead connection waits for
//! minutes, and speaks HTTP/1.1 only, so that every watch and every request at once needs a
//! connection with a TLS handshake of its own. This one speaks HTTP/2 where the server does
//! and sends pings on it; where it does not, the probes of TCP are left.

use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use kube::{Client, Config, Error};
use tower::{BoxError, ServiceBuilder};

use super::retry_after::RetryAfterLayer;
use crate::keep_alive::KeepAlive;

/// Of one watch or answer, so much may be under way before it is read.
const STREAM_WINDOW: u32 = 1024 * 1024;
/// Of all together: a few watches that nobody reads must not stop the others.
const CONNECTION_WINDOW: u32 = 32 * STREAM_WINDOW;

/// A client for this configuration. It retries nothing: those who ask know what an answer
/// means to them, and have their own back-off.
///
/// # Errors
///
/// When certificates or credentials of the configuration are not usable, or it names a proxy.
pub fn connect(config: Config) -> kube::Result<Client> {
    connect_with(config, KeepAlive::DEFAULT)
}

/// As [`connect`], with other limits.
///
/// # Errors
///
/// As [`connect`].
pub fn connect_with(config: Config, keep_alive: KeepAlive) -> kube::Result<Client> {
    if config.proxy_url.is_some() {
        // kube says what is wrong with it, since this program has no proxy towards the cluster
        return Client::try_from(config);
    }
    let http = HttpClient::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(keep_alive.idle)
        .http2_keep_alive_timeout(keep_alive.timeout)
        .http2_keep_alive_while_idle(true)
        .build::<_, Body>(tls(&config, tcp(&config, keep_alive))?);
    let service = ServiceBuilder::new()
        .layer(RetryAfterLayer)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

fn tcp(config: &Config, keep_alive: KeepAlive) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_keepalive(Some(keep_alive.idle));
    connector.set_keepalive_interval(Some(keep_alive.probe_interval()));
    connector.set_keepalive_retries(Some(KeepAlive::PROBES));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(keep_alive.unacknowledged()));
    connector
}

fn tls(config: &Config, tcp: HttpConnector) -> kube::Result<HttpsConnector<HttpConnector>> {
    let mut builder = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|error| {
            Error::RustlsTls(kube::client::RustlsTlsError::InvalidServerName(error))
        })?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_all_versions().wrap_connector(tcp))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use futures::{StreamExt as _, TryStreamExt as _};
    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use kube::api::WatchParams;
    use tokio::net::TcpListener;
    use tower::Service as _;

    use super::*;
    use crate::keep_alive::test_support::{BRIEF, network, server};

    const POD: &str = r#"{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","resourceVersion":"1"}}}
"#;

    fn config(address: SocketAddr, certificate: &rcgen::Certificate) -> Config {
        let mut config = Config::new(format!("https://{address}").parse().unwrap());
        config.root_cert = Some(vec![certificate.der().to_vec()]);
        config
    }

    #[tokio::test]
    async fn a_watch_on_a_silent_connection_ends_and_the_next_request_uses_another() {
        let (target, certificate) = server(&["h2"], POD).await;
        let (address, silence) = network(target).await;
        let client = connect_with(config(address, &certificate), BRIEF).unwrap();
        let pods = Api::<Pod>::all(client);
        for _ in 0..2 {
            let events = pods.watch(&WatchParams::default(), "0").await.unwrap();
            let mut events = events.boxed();
            events.try_next().await.unwrap().expect("the first event");
            silence.send_replace(());
            let ended = tokio::time::timeout(Duration::from_secs(30), events.try_next()).await;
            let ended = ended.expect("the silence was not noticed");
            assert!(!matches!(ended, Ok(Some(_))), "{ended:?}");
        }
    }

    #[tokio::test]
    async fn a_server_without_http2_is_spoken_to_as_before() {
        let (address, certificate) = server(&[], POD).await;
        let client = connect(config(address, &certificate)).unwrap();
        let pods = Api::<Pod>::all(client);
        let events = pods.watch(&WatchParams::default(), "0").await.unwrap();
        let mut events = events.boxed();
        assert!(events.try_next().await.unwrap().is_some());
    }

    #[tokio::test]
    async fn connections_have_the_probes_of_tcp() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: http::Uri = format!("http://{}", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let mut connector = tcp(&Config::new(url.clone()), KeepAlive::DEFAULT);
        let stream = connector.call(url).await.unwrap().into_inner();
        let socket = socket2::SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
        assert_eq!(
            socket.tcp_keepalive_time().unwrap(),
            KeepAlive::DEFAULT.idle
        );
        let between = socket.tcp_keepalive_interval().unwrap();
        assert_eq!(between, KeepAlive::DEFAULT.probe_interval());
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), KeepAlive::PROBES);
        #[cfg(target_os = "linux")]
        assert_eq!(
            socket.tcp_user_timeout().unwrap(),
            Some(KeepAlive::DEFAULT.unacknowledged())
        );
    }
}
