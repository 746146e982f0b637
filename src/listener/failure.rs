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

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::core::response::StatusDetails;

    use super::*;
    use crate::actions::Ids;

    fn of_service(kind: ErrorKind, call: &'static str, status: Option<u16>) -> FailureKind {
        let failure = Failure::from(Error {
            kind,
            call,
            status,
            type_name: None,
            message: "as it said".to_owned(),
            ids: Ids::default(),
            retry_after: Some(Duration::from_secs(9)),
        });
        assert_eq!(failure.retry_after, Some(Duration::from_secs(9)));
        assert!(failure.message.contains("as it said"), "{failure}");
        failure.kind
    }

    #[test]
    fn what_the_service_says_means_the_same_whatever_was_asked() {
        use ErrorKind as Said;
        for (kind, expected) in [
            (Said::Credentials, FailureKind::Config),
            (Said::Config, FailureKind::Config),
            (Said::Unauthorized, FailureKind::Refused),
            (Said::QueueTokenExpired, FailureKind::TokenExpired),
            (Said::SessionNotFound, FailureKind::SessionNotFound),
            (Said::SessionConflict, FailureKind::SessionConflict),
            (Said::ScaleSetNotFound, FailureKind::ScaleSetNotFound),
            (Said::Unavailable, FailureKind::Unavailable),
            (Said::RunnerNotFound, FailureKind::Other),
            (Said::Other, FailureKind::Other),
        ] {
            for call in ["get_message", "refresh_session", "acquire_jobs"] {
                assert_eq!(
                    of_service(kind, call, Some(400)),
                    expected,
                    "{kind:?} {call}"
                );
            }
        }
    }

    /// Where the service gives its error no name, the status of some calls says what it is.
    #[test]
    fn a_status_says_what_is_missing_where_the_call_leaves_no_doubt() {
        let of = |call, status| of_service(ErrorKind::Other, call, status);
        for (call, status, expected) in [
            ("get_message", Some(404), FailureKind::SessionNotFound),
            ("get_message", Some(409), FailureKind::Other),
            ("get_message", None, FailureKind::Other),
            ("refresh_session", Some(409), FailureKind::SessionConflict),
            ("refresh_session", Some(404), FailureKind::Other),
            ("refresh_session", None, FailureKind::Other),
            ("acquire_jobs", Some(404), FailureKind::Other),
            ("acquire_jobs", Some(409), FailureKind::Other),
        ] {
            assert_eq!(of(call, status), expected, "{call} {status:?}");
        }
    }

    #[test]
    fn what_the_api_server_says_is_classed_by_its_code() {
        let of = |code: u16, seconds: u32| {
            let status = Status {
                code,
                message: "as it said".to_owned(),
                details: Some(StatusDetails {
                    name: String::new(),
                    group: String::new(),
                    kind: String::new(),
                    uid: String::new(),
                    causes: Vec::new(),
                    retry_after_seconds: seconds,
                }),
                ..Status::default()
            };
            Failure::from(kube::Error::Api(Box::new(status)))
        };
        for (codes, expected) in [
            (&[401, 403][..], FailureKind::Refused),
            (&[404], FailureKind::NotFound),
            (&[409], FailureKind::Conflict),
            (&[400, 405, 413, 415, 422], FailureKind::Invalid),
            (
                &[408, 429, 500, 502, 503, 504, 599],
                FailureKind::Unavailable,
            ),
            (&[402, 406, 410, 418], FailureKind::Other),
        ] {
            for &code in codes {
                let failure = of(code, 0);
                assert_eq!(failure.kind, expected, "{code}");
                assert_eq!(failure.message, format!("as it said ({code})"));
                assert_eq!(failure.retry_after, None, "{code}");
                let asked = of(code, 1).retry_after;
                assert_eq!(asked, Some(Duration::from_secs(1)), "{code}");
            }
        }
        let broken = kube::Error::Service("the wire broke".into());
        assert_eq!(Failure::from(broken).kind, FailureKind::Unavailable);
    }
}
