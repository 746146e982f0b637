//! What can go wrong with a call, and what it means.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::messages::{ActionsError, ActionsErrorKind};

/// Why a call failed: what the service said, with the ids by which its operators find the
/// request. Holds no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What it means for the one who asked.
    pub kind: ErrorKind,
    /// The call.
    pub call: &'static str,
    /// HTTP status; `None` when no answer came or the call was not made.
    pub status: Option<u16>,
    /// The service's name for the error.
    pub type_name: Option<Box<str>>,
    /// The service's message, or what happened.
    pub message: String,
    /// Header `ActivityId`.
    pub activity_id: Option<Box<str>>,
    /// Header `X-GitHub-Request-Id`.
    pub request_id: Option<Box<str>>,
    /// How long the service asks to wait.
    pub retry_after: Option<Duration>,
}

/// What a failed call means for the one who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The credentials cannot be used as they are: a key that is no RSA key, say.
    Credentials,
    /// A setting cannot be used as it is.
    Config,
    /// The service refuses the credentials (401, 403).
    Unauthorized,
    /// The token of a message queue has expired (401 on the queue): refresh the session.
    QueueTokenExpired,
    /// A runner of that name is registered already.
    RunnerExists,
    /// There is no such runner.
    RunnerNotFound,
    /// The runner has a job and cannot be removed.
    JobStillRunning,
    /// There is no such scale set.
    ScaleSetNotFound,
    /// There is no such runner group.
    GroupNotFound,
    /// Another session of the scale set is open; the message names its holder.
    SessionConflict,
    /// There is no such session: open a new one.
    SessionNotFound,
    /// The service is busy, out of order or did not answer in time. The call may have taken
    /// effect.
    Unavailable,
    /// A success whose body cannot be read.
    Unreadable,
    /// Anything else.
    Other,
}

impl Error {
    /// An error that is not an answer of the service.
    pub(super) fn new(kind: ErrorKind, call: &'static str, message: impl Into<String>) -> Self {
        Self {
            kind,
            call,
            status: None,
            type_name: None,
            message: message.into(),
            activity_id: None,
            request_id: None,
            retry_after: None,
        }
    }

    /// Reads a refusal. `secret` is what the request was authorized with: should the service
    /// repeat it, it is left out.
    pub(super) fn read(call: &'static str, response: &http::Response<Bytes>, secret: &str) -> Self {
        let status = response.status().as_u16();
        let (type_name, message) = type_name_and_message(response.body());
        let header = |name| {
            let value = response.headers().get(name)?.to_str().ok()?;
            Some(value).filter(|value| !value.is_empty()).map(Box::from)
        };
        Self {
            kind: kind_of(status, type_name.as_deref().unwrap_or_default()),
            call,
            status: Some(status),
            type_name: type_name.map(Box::from),
            message: presentable(&message, secret),
            activity_id: header("activityid"),
            request_id: header("x-github-request-id"),
            retry_after: None,
        }
    }
}

fn kind_of(status: u16, type_name: &str) -> ErrorKind {
    let named = [
        ("AgentExistsException", ErrorKind::RunnerExists),
        ("AgentNotFoundException", ErrorKind::RunnerNotFound),
        ("JobStillRunningException", ErrorKind::JobStillRunning),
        (
            "RunnerScaleSetNotFoundException",
            ErrorKind::ScaleSetNotFound,
        ),
        (
            "RunnerScaleSetSessionConflictException",
            ErrorKind::SessionConflict,
        ),
    ];
    if let Some((_, kind)) = named.iter().find(|(name, _)| type_name.contains(name)) {
        return *kind;
    }
    match status {
        401 | 403 => ErrorKind::Unauthorized,
        408 | 429 | 500.. => ErrorKind::Unavailable,
        _ => ErrorKind::Other,
    }
}

fn type_name_and_message(body: &[u8]) -> (Option<String>, String) {
    let body = without_bom(body);
    if let Ok(Value::Object(fields)) = serde_json::from_slice(body) {
        let text = |key| fields.get(key).and_then(Value::as_str).map(str::to_owned);
        if let Some(message) = text("message") {
            return (text("typeName"), message);
        }
        if let Some(type_name) = text("typeName") {
            return (Some(type_name), String::new());
        }
    }
    (None, String::from_utf8_lossy(body).into_owned())
}

/// The body without the byte order mark that some of the service's answers begin with.
pub(super) fn without_bom(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body)
}

/// One line of bounded length, without the secret.
pub(super) fn presentable(message: &str, secret: &str) -> String {
    const LONGEST: usize = 400;
    let message = if secret.is_empty() {
        message.to_owned()
    } else {
        message.replace(secret, "[redacted]")
    };
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed", self.call)?;
        if let Some(status) = self.status {
            write!(f, ": {status}")?;
            if let Some(type_name) = &self.type_name {
                write!(f, " {type_name}")?;
            }
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        let ids = [
            ("ActivityId", &self.activity_id),
            ("X-GitHub-Request-Id", &self.request_id),
        ];
        let mut before = " (";
        for (name, id) in ids {
            if let Some(id) = id {
                write!(f, "{before}{name} {id}")?;
                before = ", ";
            }
        }
        if before == ", " {
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<Error> for ActionsError {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::Credentials => ActionsErrorKind::Credentials,
            ErrorKind::Config => ActionsErrorKind::Config,
            ErrorKind::Unauthorized => ActionsErrorKind::Unauthorized,
            ErrorKind::RunnerExists => ActionsErrorKind::RunnerExists,
            ErrorKind::RunnerNotFound => ActionsErrorKind::RunnerNotFound,
            ErrorKind::JobStillRunning => ActionsErrorKind::JobStillRunning,
            ErrorKind::ScaleSetNotFound => ActionsErrorKind::ScaleSetNotFound,
            ErrorKind::GroupNotFound => ActionsErrorKind::GroupNotFound,
            ErrorKind::Unavailable => ActionsErrorKind::Unavailable,
            ErrorKind::QueueTokenExpired
            | ErrorKind::SessionConflict
            | ErrorKind::SessionNotFound
            | ErrorKind::Unreadable
            | ErrorKind::Other => ActionsErrorKind::Other,
        };
        Self {
            kind,
            message: error.to_string(),
            retry_after: error.retry_after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, body: &str) -> Error {
        let response = http::Response::builder()
            .status(status)
            .header("ActivityId", "act-1")
            .header("X-GitHub-Request-Id", "AB:12")
            .body(Bytes::copy_from_slice(body.as_bytes()))
            .unwrap();
        Error::read("remove_runner", &response, "s3cret")
    }

    #[test]
    fn a_type_name_decides_whatever_the_status() {
        for (type_name, kind) in [
            ("AgentExistsException", ErrorKind::RunnerExists),
            ("AgentNotFoundException", ErrorKind::RunnerNotFound),
            ("JobStillRunningException", ErrorKind::JobStillRunning),
            (
                "RunnerScaleSetNotFoundException",
                ErrorKind::ScaleSetNotFound,
            ),
            (
                "RunnerScaleSetSessionConflictException",
                ErrorKind::SessionConflict,
            ),
        ] {
            let body = format!(r#"{{"typeName":"GitHub.X.{type_name}, Y","message":"m"}}"#);
            for status in [400, 404, 409, 500] {
                assert_eq!(refusal(status, &body).kind, kind);
            }
        }
    }

    #[test]
    fn without_a_type_name_the_status_decides() {
        for (status, kind) in [
            (401, ErrorKind::Unauthorized),
            (403, ErrorKind::Unauthorized),
            (404, ErrorKind::Other),
            (429, ErrorKind::Unavailable),
            (503, ErrorKind::Unavailable),
        ] {
            assert_eq!(refusal(status, "no").kind, kind, "{status}");
        }
    }

    #[test]
    fn the_text_names_the_call_the_refusal_and_both_ids() {
        let body = "\u{feff}{\"typeName\":\"T\",\"message\":\"job is running\"}";
        let text = refusal(400, body).to_string();
        assert_eq!(
            text,
            "remove_runner failed: 400 T: job is running (ActivityId act-1, X-GitHub-Request-Id AB:12)"
        );
    }

    #[test]
    fn a_page_of_text_is_cut_to_a_line_and_a_repeated_token_is_left_out() {
        let page = format!("<html>\n  bad token s3cret {}", "x".repeat(5000));
        let text = refusal(502, &page).to_string();
        assert!(text.len() < 600, "{}", text.len());
        assert!(!text.contains("s3cret") && !text.contains('\n'), "{text}");
    }
}
