//! Ages in kubectl's short form.

use wall_clock::Timestamp;

/// The time from `then` to `now`: `5s`, `4m30s`, `3h`, `12d`.
pub(super) fn since(then: Timestamp, now: Timestamp) -> String {
    short(now.as_second() - then.as_second())
}

/// A duration in at most two units, the second only while it matters.
pub(super) fn short(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".into();
    }
    let seconds = seconds.max(0);
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let pair = |big: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{small_unit}"),
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        pair(minutes, 'm', seconds % 60, 's')
    } else if hours < 3 {
        format!("{minutes}m")
    } else if hours < 8 {
        pair(hours, 'h', minutes % 60, 'm')
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        pair(days, 'd', hours % 24, 'h')
    } else if years < 2 {
        format!("{days}d")
    } else if years < 8 {
        pair(years, 'y', days % 365, 'd')
    } else {
        format!("{years}y")
    }
}
