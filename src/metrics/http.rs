//! The HTTP endpoint for metrics and health, of controller and listener alike.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus::{Encoder, Registry, TextEncoder};

/// Answers a health question: `Err` says what is wrong.
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What the endpoint serves.
#[derive(Clone, Default)]
pub struct Endpoint {
    routes: Router,
}

impl Endpoint {
    /// Serves the metrics of a registry under a path.
    #[must_use]
    pub fn metrics(mut self, path: &str, registry: Registry) -> Self {
        let path = format!("/{}", path.trim_start_matches('/'));
        self.routes = self
            .routes
            .route(&path, get(move || async move { render(&registry) }));
        self
    }

    /// Serves a health question under a path: 200 `ok`, or 503 and what is wrong.
    #[must_use]
    pub fn check(mut self, path: &str, check: Check) -> Self {
        self.routes = self.routes.route(
            path,
            get(move || async move {
                match check() {
                    Ok(()) => (StatusCode::OK, "ok".to_owned()),
                    Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, problem),
                }
            }),
        );
        self
    }

    /// Serves until the task is dropped.
    ///
    /// # Errors
    ///
    /// When the listener fails.
    pub async fn serve(self, listener: tokio::net::TcpListener) -> std::io::Result<()> {
        axum::serve(listener, self.routes).await
    }

    /// The routes, for tests that go without a port.
    pub fn into_router(self) -> Router {
        self.routes
    }
}

/// An address as the flags give it: `host:port`, or `:port` for all interfaces.
///
/// # Errors
///
/// When it is neither; the message says which forms there are.
pub fn parse_address(flag: &str, text: &str) -> Result<SocketAddr, String> {
    let full = if text.starts_with(':') {
        format!("0.0.0.0{text}")
    } else {
        text.replacen("localhost:", "127.0.0.1:", 1)
    };
    full.parse().map_err(|_| {
        format!("{flag} is \"{text}\"; it must be HOST:PORT or :PORT, with an IP address as host")
    })
}

fn render(registry: &Registry) -> impl IntoResponse + use<> {
    let encoder = TextEncoder::new();
    let mut body = Vec::new();
    match encoder.encode(&registry.gather(), &mut body) {
        Ok(()) => (
            StatusCode::OK,
            [(header::CONTENT_TYPE, encoder.format_type().to_owned())],
            body,
        ),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain".to_owned())],
            error.to_string().into_bytes(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn ask(endpoint: Endpoint, path: &str) -> (StatusCode, String) {
        let request = http::Request::get(path)
            .body(axum::body::Body::empty())
            .unwrap();
        let response = endpoint.into_router().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn metrics_are_served_under_the_path_asked_for() {
        let metrics = crate::metrics::Metrics::new().unwrap();
        metrics.actors.live.with_label_values(&["runner"]).set(3);
        let endpoint = Endpoint::default().metrics("metrics", metrics.registry().clone());
        let (status, body) = ask(endpoint, "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(
            body.contains("impresario_actors{actor=\"runner\"} 3"),
            "{body}"
        );
    }

    #[tokio::test]
    async fn a_failing_check_says_what_is_wrong() {
        let endpoint =
            Endpoint::default().check("/readyz", Arc::new(|| Err("no watch yet".into())));
        let (status, body) = ask(endpoint, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(body, "no watch yet");
    }

    #[test]
    fn addresses_come_with_or_without_a_host() {
        assert_eq!(
            parse_address("--a", ":8080").unwrap().to_string(),
            "0.0.0.0:8080"
        );
        assert_eq!(
            parse_address("--a", "127.0.0.1:0").unwrap().to_string(),
            "127.0.0.1:0"
        );
        let error = parse_address("--metrics-addr", "8080").unwrap_err();
        assert!(
            error.contains("--metrics-addr") && error.contains("8080"),
            "{error}"
        );
    }
}
