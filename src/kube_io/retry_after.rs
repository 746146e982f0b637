//! How long a server asks to wait stands in the body of its refusal or in a header, and kube
//! reads the body alone. This puts what the header says into the body.

use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, Layer, Service};

/// A refusal is not longer than that.
const LONGEST: usize = 1024 * 1024;

/// Makes refusals say how long to wait.
#[derive(Clone, Copy, Debug)]
pub struct RetryAfterLayer;

impl<S> Layer<S> for RetryAfterLayer {
    type Service = RetryAfter<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RetryAfter(inner)
    }
}

/// A service whose refusals say how long to wait.
#[derive(Clone, Debug)]
pub struct RetryAfter<S>(S);

impl<S, B> Service<Request<Body>> for RetryAfter<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<http_body_util::Either<B, http_body_util::Full<Bytes>>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move {
            let (mut parts, body) = answer.await.map_err(Into::into)?.into_parts();
            let seconds = seconds(&parts.headers).filter(|_| !parts.status.is_success());
            let Some(seconds) = seconds else {
                let body = http_body_util::Either::Left(body);
                return Ok(Response::from_parts(parts, body));
            };
            let text = match Limited::new(body, LONGEST).collect().await {
                Ok(text) => text.to_bytes(),
                // what is so long is no word of the API server's
                Err(error) if error.is::<LengthLimitError>() => Bytes::new(),
                Err(error) => return Err(error),
            };
            let text = with_seconds(&text, parts.status.as_u16(), seconds);
            parts.headers.remove(header::CONTENT_LENGTH);
            let body = http_body_util::Full::new(Bytes::from(text));
            Ok(Response::from_parts(
                parts,
                http_body_util::Either::Right(body),
            ))
        })
    }
}

fn seconds(headers: &HeaderMap) -> Option<u32> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().filter(|seconds| *seconds > 0)
}

/// The refusal, with at least so long a wait. What is none in the server's words becomes one.
fn with_seconds(text: &[u8], code: u16, seconds: u32) -> String {
    let refusal = serde_json::from_slice::<Value>(text).ok();
    let mut refusal = refusal
        .filter(|refusal| refusal["kind"] == "Status")
        .unwrap_or_else(|| {
            json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                "message": String::from_utf8_lossy(text).trim(),
            })
        });
    let in_body = refusal["details"]["retryAfterSeconds"].as_u64();
    if in_body.unwrap_or(0) < u64::from(seconds) {
        json_patch::merge(
            &mut refusal,
            &json!({"details": {"retryAfterSeconds": seconds}}),
        );
    }
    refusal.to_string()
}
