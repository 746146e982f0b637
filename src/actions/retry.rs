//! Whether and when a failed request is sent again. Pure.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use k8s_openapi::jiff::fmt::rfc2822::DateTimeParser;

use crate::clock::Timestamp;

/// How often a request is repeated at most.
pub(super) const RETRIES: u32 = 4;
/// How far two tries are apart at most. Who has to wait longer is told so, and comes back.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The longest wait that is believed. GitHub's limits are lifted within the hour.
const LONGEST_ASKED: Duration = Duration::from_secs(3700);
/// The wait for a limit that does not say when it is lifted; GitHub asks for a minute.
const UNKNOWN_LIMIT: Duration = Duration::from_secs(60);

const FIRST_WAIT: Duration = Duration::from_secs(1);

/// The wait after so many failures (1 = the first): 1, 2, 4, … s, shortened by up to a
/// quarter. The share depends on `who` alone, so that callers come back apart from each
/// other and a simulation repeats itself.
pub(super) fn back_off(failures: u32, who: &str) -> Duration {
    let plain = (FIRST_WAIT * 2_u32.pow(failures.clamp(1, 6) - 1)).min(LONGEST_WAIT);
    plain - plain / 4 * (fnv(who, failures) % 256) / 256
}

fn fnv(who: &str, failures: u32) -> u32 {
    let bytes = who.bytes().chain(failures.to_le_bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// How long the service asks to wait, in a `Retry-After` header of either form.
pub(super) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers
        .get(http::header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let seconds = text.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(LONGEST_ASKED));
    }
    let until = DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(duration_until(until, now))
}

/// How long a limit of the REST API keeps us out, when that is why it refused. The primary
/// one says when it is lifted, the secondary ones how long to wait or nothing; all of them
/// refuse with a status that may mean something else.
pub(super) fn limit(
    status: StatusCode,
    headers: &HeaderMap,
    message: &str,
    now: Timestamp,
) -> Option<Duration> {
    if !matches!(status.as_u16(), 403 | 429) {
        return None;
    }
    let named = || {
        let message = message.to_ascii_lowercase();
        let named = message.contains("rate limit") || message.contains("abuse detection");
        named.then_some(UNKNOWN_LIMIT)
    };
    rate_limit(headers, now)
        .or_else(|| retry_after(headers, now))
        .or_else(named)
}

fn rate_limit(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let number =
        |name: &str| -> Option<i64> { headers.get(name)?.to_str().ok()?.trim().parse().ok() };
    if number("x-ratelimit-remaining")? != 0 {
        return None;
    }
    let reset = Timestamp::from_second(number("x-ratelimit-reset")?).ok()?;
    // The reset is a whole second that has to be over.
    Some(duration_until(reset, now) + Duration::from_secs(1))
}

/// When a wait is over, to the second.
pub(super) fn at_second(now: Timestamp, wait: Duration) -> Option<Timestamp> {
    let until = now.saturating_add(wait).ok()?;
    Timestamp::from_second(until.as_second()).ok()
}

fn duration_until(until: Timestamp, now: Timestamp) -> Duration {
    let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
    left.min(LONGEST_ASKED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    #[test]
    fn waits_double_and_are_cut_by_at_most_a_quarter() {
        for (failures, plain) in [(1, 1), (2, 2), (3, 4), (6, 30), (60, 30)] {
            let plain = Duration::from_secs(plain);
            let wait = back_off(failures, "acme/1");
            assert!(
                wait <= plain && wait >= plain * 3 / 4,
                "{failures}: {wait:?}"
            );
        }
        assert_ne!(back_off(3, "acme/1"), back_off(3, "acme/2"));
    }

    #[test]
    fn retry_after_is_read_in_seconds_and_as_a_date() {
        for (value, expected) in [
            ("17", Some(17)),
            ("Fri, 02 Jan 2026 03:04:15 GMT", Some(10)),
            ("Fri, 02 Jan 2026 03:04:00 GMT", Some(0)),
            ("soon", None),
            ("", None),
            ("-1", None),
            ("99999999999999999999999", Some(3700)),
            ("Fri, 02 Jan 2099 03:04:15 GMT", Some(3700)),
        ] {
            let wait = retry_after(&headers(&[("retry-after", value)]), now());
            assert_eq!(wait, expected.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn a_rate_limit_needs_both_headers_and_nothing_left() {
        let reset = "1767323055"; // ten seconds after now
        for (remaining, expected) in [("0", Some(11)), ("3", None)] {
            let headers = headers(&[
                ("x-ratelimit-remaining", remaining),
                ("x-ratelimit-reset", reset),
            ]);
            assert_eq!(
                rate_limit(&headers, now()),
                expected.map(Duration::from_secs)
            );
        }
        assert_eq!(
            rate_limit(&headers(&[("x-ratelimit-remaining", "0")]), now()),
            None
        );
    }

    #[test]
    fn a_limit_is_told_from_a_refusal_by_its_headers_or_its_words() {
        let rest = [
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1767323055"),
            ("retry-after", "5"),
        ];
        for (status, pairs, message, expected) in [
            (403, &rest[..], "", Some(11)),
            (403, &rest[2..], "", Some(5)),
            (429, &rest[2..], "", Some(5)),
            (
                403,
                &[][..],
                "You have exceeded a secondary rate limit.",
                Some(60),
            ),
            (403, &[], "Resource not accessible by integration", None),
            (401, &rest[..], "", None),
            (503, &rest[..], "", None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let found = limit(status, &headers(pairs), message, now());
            assert_eq!(
                found,
                expected.map(Duration::from_secs),
                "{status} {message}"
            );
        }
    }
}
