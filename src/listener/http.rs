//! Serves metrics, liveness and readiness. Knows nothing of what is measured or checked.

use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Registry, TextEncoder};
use tokio::net::TcpListener;

use super::config::Address;
use super::health::Health;

/// Answers the questions of a pod's probes.
pub trait Checks: Send + Sync + 'static {
    /// Whether the program should go on; if not, why.
    ///
    /// # Errors
    ///
    /// When it should be restarted.
    fn live(&self) -> Result<(), String>;

    /// Whether it does its work; if not, why.
    ///
    /// # Errors
    ///
    /// When it does not.
    fn ready(&self) -> Result<(), String>;
}

impl Checks for Health {
    fn live(&self) -> Result<(), String> {
        Self::live(self)
    }

    fn ready(&self) -> Result<(), String> {
        Self::ready(self)
    }
}

struct Served {
    registry: Registry,
    checks: Arc<dyn Checks>,
}

/// Listens on the address. Without a host it takes every interface, IPv6 where there is any.
///
/// # Errors
///
/// When the address cannot be had; the text names it.
pub async fn bind(address: &Address) -> io::Result<TcpListener> {
    let port = address.port;
    let result = match &address.host {
        Some(host) => TcpListener::bind((host.as_str(), port)).await,
        None => match TcpListener::bind(("::", port)).await {
            // a port in use is so on both; anything else may mean that there is no IPv6
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                TcpListener::bind(("0.0.0.0", port)).await
            }
            result => result,
        },
    };
    result.map_err(|error| {
        let host = address.host.as_deref().unwrap_or_default();
        io::Error::new(
            error.kind(),
            format!("cannot listen on {host}:{port} (metrics_addr): {error}"),
        )
    })
}

/// Serves the registry under `metrics_path`, and the checks under `/healthz` and `/readyz`,
/// until `shutdown` ends.
///
/// # Errors
///
/// When the listener breaks.
pub async fn serve(
    listener: TcpListener,
    metrics_path: &str,
    registry: Registry,
    checks: Arc<dyn Checks>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let router = Router::new()
        .route(metrics_path, get(metrics))
        .route("/healthz", get(live))
        .route("/readyz", get(ready))
        .with_state(Arc::new(Served { registry, checks }));
    axum::serve(listener, router)
        .with_graceful_shutdown(shutdown)
        .await
}

async fn metrics(State(served): State<Arc<Served>>) -> Response {
    match TextEncoder::new().encode_to_string(&served.registry.gather()) {
        Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn live(State(served): State<Arc<Served>>) -> Response {
    answer(served.checks.live())
}

async fn ready(State(served): State<Arc<Served>>) -> Response {
    answer(served.checks.ready())
}

fn answer(check: Result<(), String>) -> Response {
    match check {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()).into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use prometheus::IntCounter;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    struct Fixed;

    impl Checks for Fixed {
        fn live(&self) -> Result<(), String> {
            Ok(())
        }

        fn ready(&self) -> Result<(), String> {
            Err("no session yet".to_owned())
        }
    }

    async fn fetch(port: u16, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    fn local(port: u16) -> Address {
        Address {
            host: Some("127.0.0.1".to_owned()),
            port,
        }
    }

    #[tokio::test]
    async fn metrics_and_checks_are_answered_until_shutdown() {
        let registry = Registry::new();
        let counter = IntCounter::new("jobs_total", "jobs").unwrap();
        registry.register(Box::new(counter.clone())).unwrap();
        counter.inc_by(5);
        let listener = bind(&local(0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let server = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            serve(listener, "/measures", registry, Arc::new(Fixed), stopped).await
        });

        let text = fetch(port, "/measures").await;
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert!(text.contains("\njobs_total 5\n"), "{text}");
        assert!(fetch(port, "/healthz").await.starts_with("HTTP/1.1 200"));
        let text = fetch(port, "/readyz").await;
        assert!(text.starts_with("HTTP/1.1 503"), "{text}");
        assert!(text.contains("no session yet"), "{text}");
        assert!(fetch(port, "/metrics").await.starts_with("HTTP/1.1 404"));

        stop.send(()).unwrap();
        server.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let first = bind(&local(0)).await.unwrap();
        let port = first.local_addr().unwrap().port();
        let text = bind(&local(port)).await.unwrap_err().to_string();
        assert!(text.contains(&format!("127.0.0.1:{port}")), "{text}");
    }
}
