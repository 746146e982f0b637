//! Durations as Go writes them, since ARC's flags take them: `90s`, `1m30s`, `500ms`, `1h`.

use std::time::Duration;

/// Reads a duration.
///
/// # Errors
///
/// When it is none; the message shows the form.
pub fn parse(text: &str) -> Result<Duration, String> {
    let error = || format!("\"{text}\" is not a duration; write it as 90s, 1m30s, 500ms or 1h");
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(error());
    }
    let mut total = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(error)?;
        let number: f64 = rest[..digits].parse().map_err(|_| error())?;
        rest = &rest[digits..];
        let unit = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        total += number
            * match &rest[..unit] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return Err(error()),
            };
        rest = &rest[unit..];
    }
    Duration::try_from_secs_f64(total).map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, millis) in [
            ("0", 0),
            ("1m0s", 60_000),
            ("1h2m3.5s", 3_723_500),
            ("500ms", 500),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "10", "s", "-1s", "1 minute", "1.2.3s"] {
            assert!(parse(text).unwrap_err().contains(text), "{text}");
        }
    }
}
