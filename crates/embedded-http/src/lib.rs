//! HTTP/1.1 on a port, for servers that are embedded in tests and demonstrations: they share how
//! connections are kept, and differ in what they answer.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Why a request cannot be answered: its body is too large, or broke off.
pub type BodyError = Box<dyn Error + Send + Sync>;

/// Answers requests until no more connections can be accepted. A request whose answer is an
/// error ends its connection without one. Dropping the future ends all connections.
///
/// # Errors
///
/// When no more connections can be accepted.
pub async fn serve<A, F, B, E>(listener: TcpListener, answer: A) -> io::Result<Infallible>
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BodyError>,
    E: Into<BodyError>,
{
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        while connections.try_join_next().is_some() {}
        let answer = answer.clone();
        connections.spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            // the other side's affair, or asked for
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
}

/// Reads a request with a body of this many bytes at most.
///
/// # Errors
///
/// When its body is larger, or breaks off.
pub async fn read_whole(
    request: Request<Incoming>,
    largest_body: usize,
) -> Result<Request<Bytes>, BodyError> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, largest_body).collect().await?;
    Ok(Request::from_parts(parts, body.to_bytes()))
}
