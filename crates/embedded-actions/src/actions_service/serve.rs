//! Two ways in: a tower service within the process, and a port.

use std::convert::Infallible;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::net::TcpListener;
use tower_service::Service;

use super::ActionsService;

/// A request that gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// It did not reach the service.
    #[error("connection refused")]
    Unreachable,
    /// It was lost on the way, and had no effect.
    #[error("connection reset while the request was sent")]
    Request,
    /// It took effect, and its answer was lost.
    #[error("connection reset before the answer came")]
    Answer,
}

/// No request of a client is larger.
const LARGEST_BODY: usize = 1 << 20;

impl ActionsService {
    /// Answers requests on a port, until dropped. The config URL of clients is then
    /// `http://HOST:PORT/…`.
    ///
    /// # Errors
    ///
    /// When the port cannot be listened on any more.
    pub async fn serve(self, listener: TcpListener) -> io::Result<Infallible> {
        embedded_http::serve(listener, move |request| self.clone().receive(request)).await
    }

    pub(super) async fn receive(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Lost> {
        let response = match whole(request).await {
            Ok(request) => self.handle(request).await?,
            Err(_) => too_large(),
        };
        Ok(response.map(Full::new))
    }
}

/// A request with its body.
pub(super) async fn whole(
    request: Request<Incoming>,
) -> Result<Request<Bytes>, embedded_http::BodyError> {
    embedded_http::read_whole(request, LARGEST_BODY).await
}

fn too_large() -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(
        b"The request is too large or broke off.",
    ));
    *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

impl Service<Request<Bytes>> for ActionsService {
    type Response = Response<Bytes>;
    type Error = Lost;
    type Future = BoxFuture<'static, Result<Response<Bytes>, Lost>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { service.handle(request).await })
    }
}
