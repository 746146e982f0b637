//! One request and its answer: deadline, retries, observation.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tokio::time::{Instant, sleep, timeout};

use super::error::VaultError;
use crate::actions::options::Observer;
use crate::actions::retry;
use crate::actions::transport::{Transport, TransportErrorKind};
use crate::clock::Clock;

/// How long a request may take to be answered. Calls of GitHub wait for it, so it is shorter
/// than theirs.
const DEADLINE: Duration = Duration::from_secs(20);
/// How often a request is sent at most; fewer times than theirs, for the same reason.
const TRIES: u32 = 4;

/// Sends requests.
pub(super) struct Http {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) clock: Clock,
    pub(super) observer: Option<Arc<dyn Observer>>,
}

impl Http {
    /// Sends the request until it is answered by something else than a sign of trouble, or
    /// has failed too often. What is not yet a success is left to the caller.
    pub(super) async fn send(
        &self,
        call: &'static str,
        whom: &str,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, VaultError> {
        let mut failures = 0;
        loop {
            let (problem, asked, again) = match self.attempt(call, request.clone()).await {
                Attempt::Answered(response) => return Ok(response),
                Attempt::Refused(problem) => return Err(VaultError::setting("proxy", problem)),
                Attempt::Failed {
                    problem,
                    retry_after,
                    again,
                } => (problem, retry_after, again),
            };
            failures += 1;
            let too_long = asked.is_some_and(|wait| wait > retry::LONGEST_WAIT);
            if !again || too_long || failures >= TRIES {
                return Err(VaultError::Unavailable {
                    whom: whom.to_owned(),
                    problem,
                    retry_after: asked,
                });
            }
            let wait = asked.unwrap_or_else(|| retry::back_off(failures, whom));
            tracing::debug!(call, whom, problem, ?wait, "request is sent again");
            sleep(wait).await;
        }
    }

    async fn attempt(&self, call: &'static str, request: Request<Bytes>) -> Attempt {
        let sent = Instant::now();
        let answer = timeout(DEADLINE, self.transport.send(request)).await;
        let observe = |outcome: &str| {
            if let Some(observer) = &self.observer {
                observer.request(call, outcome, sent.elapsed());
            }
        };
        match answer {
            Err(_) => {
                observe("timeout");
                Attempt::Failed {
                    problem: format!("no answer within {} s", DEADLINE.as_secs()),
                    retry_after: None,
                    again: false,
                }
            }
            Ok(Err(error)) => {
                observe("connection");
                if error.kind == TransportErrorKind::Options {
                    return Attempt::Refused(error.message);
                }
                Attempt::Failed {
                    again: error.kind != TransportErrorKind::Unacceptable,
                    problem: error.message,
                    retry_after: None,
                }
            }
            Ok(Ok(response)) => {
                observe(response.status().as_str());
                if !matches!(response.status().as_u16(), 408 | 429 | 500..) {
                    return Attempt::Answered(response);
                }
                Attempt::Failed {
                    problem: format!("it answers with {}", response.status()),
                    retry_after: retry::retry_after(response.headers(), self.clock.now()),
                    again: true,
                }
            }
        }
    }
}

enum Attempt {
    Answered(Response<Bytes>),
    /// An option is not usable.
    Refused(String),
    Failed {
        problem: String,
        retry_after: Option<Duration>,
        again: bool,
    },
}
