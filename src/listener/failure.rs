//! Why something that the listener tried did not work, in the terms of its decisions.

use std::time::Duration;

use crate::actions::{Error, ErrorKind};

/// A failure. The message holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What it means.
    pub kind: FailureKind,
    /// What happened.
    pub message: String,
    /// How long the other side asks to wait.
    pub retry_after: Option<Duration>,
}

/// What a failure means for the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// A setting or the credentials cannot be used as they are. A restart with another
    /// configuration is what mends it.
    Config,
    /// GitHub or the API server refuses us.
    Refused,
    /// The session's queue token has expired.
    TokenExpired,
    /// The service does not know the session.
    SessionNotFound,
    /// Another session of the scale set is open.
    SessionConflict,
    /// The service does not know the scale set.
    ScaleSetNotFound,
    /// The API server does not know the object.
    NotFound,
    /// The API server holds the request to be wrong; it will do so again.
    Invalid,
    /// The object changed each time between reading and writing.
    Conflict,
    /// The other side is busy, out of order or did not answer.
    Unavailable,
    /// Anything else.
    Other,
}

impl FailureKind {
    /// The kind's name, for metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Refused => "refused",
            Self::TokenExpired => "token_expired",
            Self::SessionNotFound => "session_not_found",
            Self::SessionConflict => "session_conflict",
            Self::ScaleSetNotFound => "scale_set_not_found",
            Self::NotFound => "not_found",
            Self::Invalid => "invalid",
            Self::Conflict => "conflict",
            Self::Unavailable => "unavailable",
            Self::Other => "other",
        }
    }
}

impl Failure {
    /// A failure of the kind.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after: None,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::Credentials | ErrorKind::Config => FailureKind::Config,
            ErrorKind::Unauthorized => FailureKind::Refused,
            ErrorKind::QueueTokenExpired => FailureKind::TokenExpired,
            ErrorKind::SessionNotFound => FailureKind::SessionNotFound,
            ErrorKind::SessionConflict => FailureKind::SessionConflict,
            ErrorKind::ScaleSetNotFound => FailureKind::ScaleSetNotFound,
            ErrorKind::Unavailable => FailureKind::Unavailable,
            // a queue that is not there is one whose session has ended
            _ if error.call == "get_message" && error.status == Some(404) => {
                FailureKind::SessionNotFound
            }
            _ if error.call == "refresh_session" && error.status == Some(409) => {
                FailureKind::SessionConflict
            }
            _ => FailureKind::Other,
        };
        Self {
            kind,
            message: error.to_string(),
            retry_after: error.retry_after,
        }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = &error else {
            // the connection, or an answer that cannot be read
            return Self::new(FailureKind::Unavailable, error.to_string());
        };
        let kind = match status.code {
            401 | 403 => FailureKind::Refused,
            404 => FailureKind::NotFound,
            409 => FailureKind::Conflict,
            400 | 405 | 413 | 415 | 422 => FailureKind::Invalid,
            408 | 429 | 500.. => FailureKind::Unavailable,
            _ => FailureKind::Other,
        };
        let retry_after = status
            .details
            .as_ref()
            .filter(|details| details.retry_after_seconds > 0)
            .map(|details| Duration::from_secs(u64::from(details.retry_after_seconds)));
        Self {
            kind,
            message: format!("{} ({})", status.message, status.code),
            retry_after,
        }
    }
}
