//! Two ways in: a transport within the process, and a port.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::ActionsService;
use crate::actions::{Transport, TransportError, TransportErrorKind, TransportOptions, Transports};

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

/// No request of ours is larger.
const LARGEST_BODY: usize = 1 << 20;

impl ActionsService {
    /// Transports to this service, whatever the host of a request.
    #[must_use]
    pub fn transports(&self) -> Arc<dyn Transports> {
        Arc::new(InProcess(self.clone()))
    }

    /// Answers requests on a port, until dropped. The config URL of clients is then
    /// `http://HOST:PORT/…`.
    ///
    /// # Errors
    ///
    /// When the port cannot be listened on any more.
    pub async fn serve(self, listener: TcpListener) -> io::Result<Infallible> {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await?;
            while connections.try_join_next().is_some() {}
            connections.spawn(self.clone().serve_connection(stream));
        }
    }

    async fn serve_connection(self, stream: TcpStream) {
        let service = service_fn(move |request: Request<Incoming>| {
            let service = self.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = Limited::new(body, LARGEST_BODY).collect().await;
                let Ok(body) = body else {
                    let response = Response::builder().status(413).body(Full::default());
                    return response.map_err(|_| Lost::Answer);
                };
                let request = Request::from_parts(parts, body.to_bytes());
                Ok(service.handle(request).await?.map(Full::new))
            }
        });
        let http = hyper::server::conn::http1::Builder::new();
        // A connection that ends early is the other side's affair, or was asked for.
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    }
}

#[derive(Clone)]
struct InProcess(ActionsService);

impl Transports for InProcess {
    fn transport(&self, _options: &TransportOptions) -> Result<Arc<dyn Transport>, TransportError> {
        Ok(Arc::new(self.clone()))
    }
}

impl Transport for InProcess {
    fn send(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<Bytes>, TransportError>> {
        let service = self.0.clone();
        async move {
            service.handle(request).await.map_err(|lost| {
                let kind = match lost {
                    Lost::Unreachable => TransportErrorKind::Connect,
                    Lost::Request | Lost::Answer => TransportErrorKind::Broken,
                };
                TransportError::new(kind, lost.to_string())
            })
        }
        .boxed()
    }
}
