//! Faults by name, as scripts and people ask for them: `{"fault": "slow", "milliseconds": 300}`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::faults::{Fault, Outcome, Refusal};
use super::mangling::Mangling;
use wall_clock::{Timestamp, after};

/// Something that can go wrong with a call, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "fault",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub enum NamedFault {
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 403 with nothing left of the REST API's rate limit.
    RateLimited {
        /// Seconds until it is reset.
        #[serde(default = "a_minute")]
        reset_after: i64,
    },
    /// 404 without a name.
    NotFound,
    /// 429.
    TooManyRequests {
        /// Seconds that the answer asks to wait.
        #[serde(default = "a_moment")]
        retry_after: i64,
    },
    /// 500.
    InternalError,
    /// 503.
    Unavailable {
        /// Seconds that the answer asks to wait, if it does.
        #[serde(default)]
        retry_after: Option<i64>,
    },
    /// No answer, ever. No effect.
    Hang,
    /// Answered as usual, later.
    Slow {
        /// How much later.
        milliseconds: u64,
    },
    /// No connection. No effect.
    Unreachable,
    /// The connection breaks. No effect.
    ConnectionReset,
    /// It takes effect, and the connection breaks.
    AnswerLost,
    /// It takes effect, and the answer has no body.
    EmptyBody,
    /// It takes effect, and the answer breaks off.
    GarbageBody,
    /// It takes effect, and the answer is a page of HTML.
    HtmlPage,
    /// 502 with a page of HTML.
    BadGateway,
    /// It takes effect, and the answer does not say what its body is.
    NoContentType,
    /// It takes effect, and the answer is very long.
    LongBody {
        /// How long.
        #[serde(default = "many")]
        mebibytes: u16,
    },
    /// It takes effect, and the answer says that its body is packed.
    PackedBody,
    /// It takes effect, and the name of the token in its answer is a number.
    NumberToken,
    /// 400 with a message that repeats the token and the body it got.
    Echo,
    /// A byte order mark before the body.
    ByteOrderMark,
    /// A runner of that name exists (409).
    RunnerExists,
    /// Somebody registers a runner of that name for this scale set first.
    RunnerTaken {
        /// The scale set's id.
        scale_set: i64,
    },
    /// There is no such runner (404).
    RunnerNotFound,
    /// The runner has a job (400).
    JobStillRunning,
    /// There is no such scale set (404).
    ScaleSetGone,
    /// There is no such session (404).
    SessionGone,
    /// Somebody holds the session (409).
    SessionConflict {
        /// Who.
        #[serde(default = "somebody")]
        holder: String,
    },
    /// The statistics are null.
    NullStatistics,
    /// The statistics are all zero.
    ZeroStatistics,
    /// A message of a type that nobody knows.
    UnknownMessageType,
    /// A message with an element of a type that nobody knows.
    UnknownElement,
    /// A message whose body is no JSON.
    BodyNotJson,
    /// Half of the jobs asked for are acquired.
    PartAcquired,
}

const fn a_minute() -> i64 {
    60
}

const fn a_moment() -> i64 {
    2
}

const fn many() -> u16 {
    100
}

fn somebody() -> String {
    "another-listener".to_owned()
}

impl NamedFault {
    /// The fault, as it is to be asked for at that time.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Fault {
        match self {
            Self::Unauthorized => Refusal::new(401, "", "The token is not valid.").into(),
            Self::Forbidden => Refusal::new(403, "", "You may not do that.").into(),
            Self::RateLimited { reset_after } => rate_limited(after(now, *reset_after)).into(),
            Self::NotFound => Refusal::new(404, "", "Not Found").into(),
            Self::TooManyRequests { retry_after } => busy(429, Some(*retry_after)).into(),
            Self::InternalError => busy(500, None).into(),
            Self::Unavailable { retry_after } => busy(503, *retry_after).into(),
            Self::Hang => Outcome::Hang.into(),
            Self::Slow { milliseconds } => Fault::delay(Duration::from_millis(*milliseconds)),
            Self::Unreachable => Outcome::Unreachable.into(),
            Self::ConnectionReset => Outcome::Reset.into(),
            Self::AnswerLost => Outcome::LoseAnswer.into(),
            Self::EmptyBody => Mangling::Empty.into(),
            Self::GarbageBody => Mangling::Garbage.into(),
            Self::HtmlPage => Mangling::HtmlPage.into(),
            Self::BadGateway => Refusal::new(502, "", "<html><h1>Bad gateway</h1></html>").into(),
            Self::NoContentType => Mangling::NoContentType.into(),
            Self::LongBody { mebibytes } => Mangling::Long(*mebibytes).into(),
            Self::PackedBody => Mangling::Packed.into(),
            Self::NumberToken => Outcome::NumberToken.into(),
            Self::Echo => Outcome::Echo.into(),
            Self::ByteOrderMark => Mangling::ByteOrderMark.into(),
            Self::RunnerExists => Fault::refuse(409, "AgentExistsException"),
            Self::RunnerTaken { scale_set } => Outcome::Forestall(*scale_set).into(),
            Self::RunnerNotFound => Fault::refuse(404, "AgentNotFoundException"),
            Self::JobStillRunning => Fault::refuse(400, "JobStillRunningException"),
            Self::ScaleSetGone => Fault::refuse(404, "RunnerScaleSetNotFoundException"),
            Self::SessionGone => Fault::refuse(404, "RunnerScaleSetSessionNotFoundException"),
            Self::SessionConflict { holder } => session_conflict(holder).into(),
            Self::NullStatistics => Mangling::NullStatistics.into(),
            Self::ZeroStatistics => Mangling::ZeroStatistics.into(),
            Self::UnknownMessageType => Mangling::UnknownMessageType.into(),
            Self::UnknownElement => Mangling::UnknownElement.into(),
            Self::BodyNotJson => Mangling::BodyNotJson.into(),
            Self::PartAcquired => Outcome::Halve.into(),
        }
    }
}

fn rate_limited(reset: Timestamp) -> Refusal {
    Refusal::new(403, "", "API rate limit exceeded.")
        .header("x-ratelimit-remaining", "0")
        .header("x-ratelimit-reset", reset.as_second().to_string())
}

fn busy(status: u16, retry_after: Option<i64>) -> Refusal {
    let refusal = Refusal::new(status, "", "The service is busy.");
    match retry_after {
        Some(seconds) => refusal.header("retry-after", seconds.to_string()),
        None => refusal,
    }
}

fn session_conflict(holder: &str) -> Refusal {
    let message = format!("The scale set already has an active session for owner {holder}.");
    Refusal::new(409, "RunnerScaleSetSessionConflictException", message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: serde_json::Value) -> Result<NamedFault, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_and_its_parameters_make_a_fault() {
        let now: Timestamp = "2026-02-03T04:05:06Z".parse().unwrap();
        let limited = read(json!({"fault": "rate-limited", "resetAfter": 90})).unwrap();
        let Outcome::Refuse(refusal) = limited.at(now).outcome else {
            panic!("{limited:?}");
        };
        let reset = (now.as_second() + 90).to_string();
        assert!(refusal.headers.contains(&("x-ratelimit-reset", reset)));
        let slow = read(json!({"fault": "slow", "milliseconds": 300})).unwrap();
        assert_eq!(slow.at(now), Fault::delay(Duration::from_millis(300)));
        let held = read(json!({"fault": "session-conflict", "holder": "old-pod"})).unwrap();
        let Outcome::Refuse(refusal) = held.at(now).outcome else {
            panic!("{held:?}");
        };
        assert!(refusal.message.contains("old-pod"), "{refusal:?}");
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_there_are() {
        let error = read(json!({"fault": "explode"})).unwrap_err();
        for part in ["explode", "`slow`", "`answer-lost`", "`session-conflict`"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_parameter_that_is_missing_or_unknown_is_named() {
        let error = read(json!({"fault": "slow"})).unwrap_err();
        assert!(error.contains("milliseconds"), "{error}");
        let error = read(json!({"fault": "slow", "milliseconds": 1, "speed": 2})).unwrap_err();
        assert!(error.contains("speed"), "{error}");
    }
}
