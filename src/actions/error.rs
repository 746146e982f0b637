//! What can go wrong with a call, and what it means.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::Value;

use super::proxy::percent_decode;
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
    /// By which the service's operators find the request.
    pub ids: Ids,
    /// How long the service asks to wait.
    pub retry_after: Option<Duration>,
}

/// The ids that the service gives a request. Shown in brackets, or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Header `ActivityId`.
    pub activity: Option<Box<str>>,
    /// Header `X-GitHub-Request-Id`.
    pub request: Option<Box<str>>,
}

/// What a failed call means for the one who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The credentials cannot be used as they are: a key that is no RSA key, say.
    Credentials,
    /// A setting cannot be used as it is.
    Config,
    /// The certificate of the service is not trusted. A person has to mend that, here or there.
    Untrusted,
    /// The proxy refuses its credentials, or wants some. A person has to mend that.
    ProxyRefused,
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
            ids: Ids::default(),
            retry_after: None,
        }
    }

    /// An error about an answer that is none of the service's refusals.
    pub(super) fn about(
        kind: ErrorKind,
        call: &'static str,
        response: &http::Response<Bytes>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status: Some(response.status().as_u16()),
            ids: Ids::of(response),
            ..Self::new(kind, call, message)
        }
    }

    /// Reads a refusal. `secret` is what the request was authorized with: should the service
    /// repeat it, it is left out.
    pub(super) fn read(call: &'static str, response: &http::Response<Bytes>, secret: &str) -> Self {
        let status = response.status().as_u16();
        let (type_name, message) = type_name_and_message(response.body());
        let kind = kind_of(status, type_name.as_deref().unwrap_or_default());
        Self {
            type_name: type_name.map(|name| redact_secret(&name, secret).into()),
            ..Self::about(kind, call, response, redact_secret(&message, secret))
        }
    }
}

impl Ids {
    /// The ids in the headers of an answer.
    pub(super) fn of(response: &http::Response<Bytes>) -> Self {
        let header = |name| {
            let value = response.headers().get(name)?.to_str().ok()?;
            let id: String = value.chars().take(100).collect();
            Some(id).filter(|id| !id.is_empty()).map(Box::from)
        };
        Self {
            activity: header("activityid"),
            request: header("x-github-request-id"),
        }
    }
}

impl fmt::Display for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = [
            ("ActivityId", &self.activity),
            ("X-GitHub-Request-Id", &self.request),
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

/// One line of bounded length, without the secret in any form that it may be repeated in.
pub(super) fn redact_secret(message: &str, secret: &str) -> String {
    const LONGEST: usize = 400;
    let mut message = message.to_owned();
    let forms = forms(secret);
    let shows = |text: &str| forms.iter().any(|form| text.contains(form));
    // which characters are percent-encoded is up to whoever does it
    let decoded = percent_decode(&message);
    if shows(&decoded) {
        message = decoded;
    }
    for form in &forms {
        message = message.replace(form, "[redacted]");
    }
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// A secret as it is and in base64.
fn forms(secret: &str) -> Vec<String> {
    if secret.is_empty() {
        return Vec::new();
    }
    vec![
        secret.to_owned(),
        STANDARD_NO_PAD.encode(secret),
        URL_SAFE_NO_PAD.encode(secret),
    ]
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
        write!(f, "{}", self.ids)
    }
}

impl std::error::Error for Error {}

impl From<Error> for ActionsError {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::Credentials | ErrorKind::ProxyRefused => ActionsErrorKind::Credentials,
            ErrorKind::Config | ErrorKind::Untrusted => ActionsErrorKind::Config,
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
            (400, ErrorKind::Other),
            (404, ErrorKind::Other),
            (407, ErrorKind::Other),
            (408, ErrorKind::Unavailable),
            (409, ErrorKind::Other),
            (422, ErrorKind::Other),
            (428, ErrorKind::Other),
            (429, ErrorKind::Unavailable),
            (431, ErrorKind::Other),
            (499, ErrorKind::Other),
            (500, ErrorKind::Unavailable),
            (502, ErrorKind::Unavailable),
            (503, ErrorKind::Unavailable),
            (504, ErrorKind::Unavailable),
            (599, ErrorKind::Unavailable),
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
    fn a_secret_is_left_out_in_whatever_form_it_is_repeated() {
        use base64::engine::general_purpose::STANDARD;
        let secret = "t\u{f6}p/s?cr~t+1";
        let forms = [
            secret.to_owned(),
            STANDARD.encode(secret),
            URL_SAFE_NO_PAD.encode(secret),
            "t%c3%B6p%2Fs%3Fcr~t%2b1".to_owned(),
        ];
        for form in &forms {
            let text = redact_secret(&format!("bad token <{form}>"), secret);
            assert!(
                !forms
                    .iter()
                    .any(|form| text.contains(form.trim_end_matches('='))),
                "{text}"
            );
            assert!(text.contains("[redacted]"), "{text}");
        }
    }

    #[test]
    fn a_page_of_text_is_cut_to_a_line_and_a_repeated_token_is_left_out() {
        let page = format!("<html>\n  bad token s3cret {}", "x".repeat(5000));
        let text = refusal(502, &page).to_string();
        assert!(text.len() < 600, "{}", text.len());
        assert!(!text.contains("s3cret") && !text.contains('\n'), "{text}");
    }
}
