//! One request and its answer: deadline, limit of concurrency, retries, observation.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use super::error::{Error, ErrorKind};
use super::options::Observer;
use super::retry;
use super::transport::{Transport, TransportError, TransportErrorKind};
use crate::clock::Clock;

/// How long a call may take to be answered.
const CALL_DEADLINE: Duration = Duration::from_secs(60);
/// How long a poll may take, which the service holds for about 50 s.
const POLL_DEADLINE: Duration = Duration::from_secs(90);

/// A request before it is sent.
pub(super) struct Exchange {
    call: &'static str,
    method: Method,
    url: String,
    scheme: &'static str,
    secret: SecretString,
    headers: HeaderMap,
    body: Bytes,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Call,
    Poll,
}

impl Exchange {
    /// A request authorized by a bearer token.
    pub(super) fn new(
        call: &'static str,
        method: Method,
        url: impl Into<String>,
        secret: &SecretString,
    ) -> Self {
        Self {
            call,
            method,
            url: url.into(),
            scheme: "Bearer",
            secret: secret.clone(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            kind: Kind::Call,
        }
    }

    /// With a JSON body.
    pub(super) fn json(mut self, body: &Value) -> Self {
        self.body = Bytes::from(body.to_string());
        self
    }

    /// Authorized by another scheme than `Bearer`.
    pub(super) fn scheme(mut self, scheme: &'static str) -> Self {
        self.scheme = scheme;
        self
    }

    /// With what the answer may be.
    pub(super) fn accept(mut self, accept: &'static str) -> Self {
        let value = HeaderValue::from_static(accept);
        self.headers.insert(ACCEPT, value);
        self
    }

    /// With a header whose value is a number.
    pub(super) fn number(mut self, name: &'static str, value: i64) -> Self {
        self.headers.insert(name, HeaderValue::from(value));
        self
    }

    /// As a long poll: it may take longer, is not counted as concurrent, and is sent once,
    /// since whoever polls does so again anyway.
    pub(super) fn poll(mut self) -> Self {
        self.kind = Kind::Poll;
        self
    }

    fn request(&self, user_agent: &HeaderValue) -> Result<Request<Bytes>, Error> {
        let unusable = |what: &str| {
            let message = format!("the {what} holds characters that a request cannot carry");
            Error::new(ErrorKind::Credentials, self.call, message)
        };
        let authorization = format!("{} {}", self.scheme, self.secret.expose_secret());
        let mut authorization =
            HeaderValue::from_str(&authorization).map_err(|_| unusable("token"))?;
        authorization.set_sensitive(true);
        let mut request = Request::new(self.body.clone());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.url.parse().map_err(|_| {
            let message = "the service named a URL that cannot be used";
            Error::new(ErrorKind::Unreadable, self.call, message)
        })?;
        let headers = request.headers_mut();
        *headers = self.headers.clone();
        headers.insert(AUTHORIZATION, authorization);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, user_agent.clone());
        Ok(request)
    }
}

/// Sends exchanges over one transport.
pub(super) struct Sender {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) clock: Clock,
    pub(super) permits: Semaphore,
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) user_agent: HeaderValue,
}

/// A failed try.
struct Failure {
    error: Error,
    /// The wait before the next try; `None` when trying again is of no use.
    again_after: Option<Wait>,
}

enum Wait {
    BackOff,
    Exactly(Duration),
}

impl Sender {
    /// Sends the request until it is answered with success, refused for good, or has failed
    /// too often.
    pub(super) async fn send(&self, exchange: &Exchange) -> Result<Response<Bytes>, Error> {
        let mut failures = 0;
        loop {
            let Failure { error, again_after } = match self.attempt(exchange).await {
                Ok(response) => return Ok(response),
                Err(failure) => failure,
            };
            failures += 1;
            let tries = if exchange.kind == Kind::Poll {
                1
            } else {
                retry::TRIES
            };
            let wait = match again_after {
                None => return Err(error),
                Some(_) if failures >= tries => return Err(error),
                Some(Wait::Exactly(wait)) => wait,
                Some(Wait::BackOff) => retry::back_off(failures, &exchange.url),
            };
            tracing::debug!(call = exchange.call, %error, ?wait, "request is sent again");
            sleep(wait).await;
        }
    }

    async fn attempt(&self, exchange: &Exchange) -> Result<Response<Bytes>, Failure> {
        let request = exchange.request(&self.user_agent).map_err(Failure::of)?;
        let (deadline, _permit) = match exchange.kind {
            Kind::Poll => (POLL_DEADLINE, None),
            // The semaphore is never closed; were it, the call would go ahead.
            Kind::Call => (CALL_DEADLINE, self.permits.acquire().await.ok()),
        };
        let sent = Instant::now();
        let answer = timeout(deadline, self.transport.send(request)).await;
        let duration = sent.elapsed();
        match answer {
            Err(_) => {
                self.observe(exchange.call, "timeout", duration);
                let message = format!("no answer within {} s", deadline.as_secs());
                Err(Failure::of(unavailable(exchange.call, message)))
            }
            Ok(Err(error)) => {
                self.observe(exchange.call, "connection", duration);
                Err(Failure::on_the_way(exchange.call, error))
            }
            Ok(Ok(response)) => {
                self.observe(exchange.call, response.status().as_str(), duration);
                if response.status().is_success() {
                    return Ok(response);
                }
                Err(self.refusal(exchange, &response))
            }
        }
    }

    fn refusal(&self, exchange: &Exchange, response: &Response<Bytes>) -> Failure {
        let mut error = Error::read(exchange.call, response, exchange.secret.expose_secret());
        let now = self.clock.now();
        error.retry_after = retry::retry_after(response.headers(), now);
        if let Some(wait) = retry::rate_limit(response.headers(), now)
            && matches!(response.status().as_u16(), 403 | 429)
        {
            error.kind = ErrorKind::Unavailable;
            error.retry_after = Some(wait);
            let again_after =
                (wait <= retry::LONGEST_RATE_LIMIT_WAIT).then_some(Wait::Exactly(wait));
            return Failure { error, again_after };
        }
        let again_after = match (error.kind, error.retry_after) {
            (ErrorKind::Unavailable, None) => Some(Wait::BackOff),
            (ErrorKind::Unavailable, Some(wait)) if wait <= retry::LONGEST_WAIT => {
                Some(Wait::Exactly(wait))
            }
            _ => None,
        };
        Failure { error, again_after }
    }

    fn observe(&self, call: &'static str, outcome: &str, duration: Duration) {
        if let Some(observer) = &self.observer {
            observer.request(call, outcome, duration);
        }
    }
}

impl Failure {
    /// One that is not tried again.
    const fn of(error: Error) -> Self {
        Self {
            error,
            again_after: None,
        }
    }

    fn on_the_way(call: &'static str, error: TransportError) -> Self {
        match error.kind {
            TransportErrorKind::Options => {
                Self::of(Error::new(ErrorKind::Config, call, error.message))
            }
            TransportErrorKind::Connect | TransportErrorKind::Broken => Self {
                error: unavailable(call, error.message),
                again_after: Some(Wait::BackOff),
            },
        }
    }
}

fn unavailable(call: &'static str, message: String) -> Error {
    Error::new(ErrorKind::Unavailable, call, message)
}
