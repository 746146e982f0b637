//! Numbers and times on the command line. Each has a range in which it makes sense: its help names
//! it, and a refusal says it.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use super::duration;

/// A parser of whole numbers from `least` to `most`.
pub fn whole<T>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Copy,
{
    move |text| match text.parse::<T>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!(
            "\"{text}\" is not a whole number from {least} to {most}"
        )),
    }
}

/// A parser of durations from `least` to `most`.
pub fn time(least: Duration, most: Duration) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| {
        let range = || format!("give {} to {}", shown(least), shown(most));
        match duration::parse(text) {
            Ok(time) if (least..=most).contains(&time) => Ok(time),
            Ok(_) => Err(format!("\"{text}\" is out of range; {}", range())),
            Err(problem) => Err(format!("{problem}; {}", range())),
        }
    }
}

/// A duration in its largest unit that is none too large.
fn shown(time: Duration) -> String {
    let seconds = time.as_secs();
    let unit = [(3600, "h"), (60, "m"), (1, "s")]
        .into_iter()
        .find(|(unit, _)| seconds.is_multiple_of(*unit));
    match unit {
        Some((unit, letter)) if seconds > 0 => format!("{}{letter}", seconds / unit),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused_with_the_range() {
        let port = whole(0, u16::MAX);
        assert_eq!(port("0"), Ok(0));
        assert_eq!(port("65535"), Ok(65_535));
        for text in ["65536", "-1", "", "1e3", "80 "] {
            let refusal = port(text).unwrap_err();
            assert!(refusal.contains("from 0 to 65535"), "{refusal}");
            assert!(refusal.contains(text), "{refusal}");
        }
        let time = time(Duration::from_secs(1), Duration::from_secs(86_400));
        assert_eq!(time("24h"), Ok(Duration::from_secs(86_400)));
        for text in ["0", "999ms", "24h1ns", "soon", "99999999999999999999999h"] {
            let refusal = time(text).unwrap_err();
            assert!(refusal.contains("give 1s to 24h"), "{refusal}");
        }
    }

    #[test]
    fn a_duration_is_shown_in_a_unit_that_suits_it() {
        for (seconds, text) in [
            (0, "0s"),
            (1, "1s"),
            (90, "90s"),
            (120, "2m"),
            (604_800, "168h"),
        ] {
            assert_eq!(shown(Duration::from_secs(seconds)), text);
        }
    }
}
