//! One request and its answer: deadline, limit of concurrency, retries, observation.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

use super::error::{Error, ErrorKind};
use super::options::Observer;
use super::retry;
use super::transport::{AnswerLimit, Transport, TransportError, TransportErrorKind};
use crate::clock::Clock;

/// How long a call may take, with all that belongs to it.
const CALL: Duration = Duration::from_secs(60);
/// How long a poll may take, which the service holds for about 50 s.
const POLL: Duration = Duration::from_secs(90);

/// How long a message of the queue may be. It tells of many jobs, about a kilobyte each; all other
/// answers tell of one thing.
const MESSAGE_LIMIT: AnswerLimit = AnswerLimit(8 << 20);

/// Until when a call has to be over: all its tries, the waits between them, and the new token
/// that it may need. While it waits for its turn the deadline moves on.
pub(super) struct Deadline {
    until: Instant,
    whole: Duration,
    /// Whether failed requests are sent again within it.
    repeats: bool,
}

impl Deadline {
    /// Of a call that begins now.
    pub(super) fn of_call() -> Self {
        Self::within(CALL)
    }

    /// Of a call that begins now and is made again by whoever asks for it, with a back-off of its
    /// own: repeats in here would begin that anew each time.
    pub(super) fn of_one_try() -> Self {
        Self {
            repeats: false,
            ..Self::of_call()
        }
    }

    /// Of a poll that begins now.
    pub(super) fn of_poll() -> Self {
        Self::within(POLL)
    }

    fn within(whole: Duration) -> Self {
        Self {
            until: Instant::now() + whole,
            whole,
            repeats: true,
        }
    }

    /// The same, or so long from now if that is earlier.
    pub(super) fn at_most(&self, whole: Duration) -> Self {
        let mut shorter = Self::within(whole);
        shorter.repeats = self.repeats;
        if self.until <= shorter.until {
            shorter.until = self.until;
            shorter.whole = self.whole;
        }
        shorter
    }

    /// Whether a wait leaves time for another try.
    pub(super) fn allows(&self, wait: Duration) -> bool {
        Instant::now() + wait < self.until
    }

    /// Waits for something, at most until then.
    pub(super) async fn meet<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        timeout_at(self.until, future).await.ok()
    }
}

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
    /// Takes its turn.
    Call,
    /// Does not take a turn: others may be waiting for it while they hold all of them.
    Aside,
    /// Neither takes a turn nor is repeated.
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

    /// As one that is not counted as concurrent, since calls in flight may wait for it.
    pub(super) fn aside(mut self) -> Self {
        self.kind = Kind::Aside;
        self
    }

    /// As a long poll: it is not counted as concurrent and is sent once, since whoever polls
    /// does so again anyway.
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
        if self.kind == Kind::Poll {
            request.extensions_mut().insert(MESSAGE_LIMIT);
        }
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

enum Failed {
    Try(Failure),
    /// There was no answer in time.
    TooLate,
}

enum Wait {
    BackOff,
    /// The service has asked for it.
    AtLeast(Duration),
}

impl Sender {
    /// Sends the request until it is answered with success, refused for good, has failed too
    /// often, or its time is over.
    pub(super) async fn send(
        &self,
        exchange: &Exchange,
        deadline: &mut Deadline,
    ) -> Result<Response<Bytes>, Error> {
        let mut failures = 0;
        let mut before: Option<Error> = None;
        loop {
            let Failure { error, again_after } = match self.attempt(exchange, deadline).await {
                Ok(response) => return Ok(response),
                Err(Failed::Try(failure)) => failure,
                Err(Failed::TooLate) => return Err(too_late(exchange.call, deadline, before)),
            };
            failures += 1;
            let back_off = retry::back_off(failures, &exchange.url);
            let wait = match again_after {
                Some(Wait::BackOff) => back_off,
                Some(Wait::AtLeast(wait)) => wait.max(back_off),
                None => return Err(error),
            };
            let repeats = exchange.kind != Kind::Poll && deadline.repeats;
            let may_repeat = repeats && failures <= retry::RETRIES;
            if !may_repeat || !deadline.allows(wait) {
                return Err(error);
            }
            tracing::debug!(call = exchange.call, %error, ?wait, "request is sent again");
            before = Some(error);
            sleep(wait).await;
        }
    }

    async fn attempt(
        &self,
        exchange: &Exchange,
        deadline: &mut Deadline,
    ) -> Result<Response<Bytes>, Failed> {
        let request = exchange.request(&self.user_agent);
        let request = request.map_err(|error| Failed::Try(Failure::of(error)))?;
        let _turn = match exchange.kind {
            Kind::Poll | Kind::Aside => None,
            Kind::Call => {
                let asked = Instant::now();
                // The semaphore is never closed; were it, the call would go ahead.
                let turn = self.permits.acquire().await.ok();
                deadline.until += asked.elapsed();
                turn
            }
        };
        let sent = Instant::now();
        let answer = deadline.meet(self.transport.send(request)).await;
        let duration = sent.elapsed();
        match answer {
            None => {
                self.observe(exchange.call, "timeout", duration);
                Err(Failed::TooLate)
            }
            Some(Err(error)) => {
                self.observe(exchange.call, "connection", duration);
                Err(Failed::Try(Failure::on_the_way(exchange.call, error)))
            }
            Some(Ok(response)) => {
                self.observe(exchange.call, response.status().as_str(), duration);
                if response.status().is_success() {
                    return Ok(response);
                }
                Err(Failed::Try(self.refusal(exchange, &response)))
            }
        }
    }

    fn refusal(&self, exchange: &Exchange, response: &Response<Bytes>) -> Failure {
        let mut error = Error::read(exchange.call, response, exchange.secret.expose_secret());
        let now = self.clock.now();
        error.retry_after = retry::retry_after(response.headers(), now);
        let limit = matches!(error.kind, ErrorKind::Unauthorized | ErrorKind::Unavailable)
            .then(|| retry::limit(response.status(), response.headers(), &error.message, now));
        if let Some(wait) = limit.flatten() {
            error.kind = ErrorKind::Unavailable;
            error.retry_after = Some(wait);
            if let Some(lifted) = retry::at_second(now, wait) {
                error.message = format!("{}; the limit is lifted at {lifted}", error.message);
            }
        }
        let again_after = match (error.kind, error.retry_after) {
            (ErrorKind::Unavailable, None) => Some(Wait::BackOff),
            (ErrorKind::Unavailable, Some(wait)) if wait <= retry::LONGEST_WAIT => {
                Some(Wait::AtLeast(wait))
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
            TransportErrorKind::Untrusted => {
                Self::of(Error::new(ErrorKind::Untrusted, call, error.message))
            }
            TransportErrorKind::ProxyRefused => {
                Self::of(Error::new(ErrorKind::ProxyRefused, call, error.message))
            }
            TransportErrorKind::Unacceptable => {
                Self::of(Error::new(ErrorKind::Unreadable, call, error.message))
            }
            TransportErrorKind::Connect | TransportErrorKind::Broken => Self {
                error: unavailable(call, error.message),
                again_after: Some(Wait::BackOff),
            },
        }
    }
}

/// What is said of a call that is not over in time: what went wrong before it, if anything.
fn too_late(call: &'static str, deadline: &Deadline, before: Option<Error>) -> Error {
    let message = format!("no answer within {} s", deadline.whole.as_secs());
    match before {
        Some(mut error) => {
            error.message = format!("{}; then {message}", error.message);
            error
        }
        None => unavailable(call, message),
    }
}

fn unavailable(call: &'static str, message: String) -> Error {
    Error::new(ErrorKind::Unavailable, call, message)
}
