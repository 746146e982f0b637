//! Whether two Kubernetes objects mean the same, and where they differ.
//!
//! Knows nothing of ours. [`drift`] asks whether a live object still carries everything a
//! desired one sets, whatever the server and admission added; [`deep_equal`] whether two
//! objects are the same but for spelling. Both look at the serialised form, in which
//! absent fields are not there at all.

mod json;

use serde::Serialize;

pub use json::Drift;

/// Whether `a` and `b` mean the same: absent, null and empty are one.
#[must_use]
pub fn deep_equal<T: Serialize>(a: &T, b: &T) -> bool {
    match (serde_json::to_value(a), serde_json::to_value(b)) {
        (Ok(a), Ok(b)) => json::equal(&a, &b),
        _ => false,
    }
}

/// The first thing that `desired` sets and `live` has not, or has otherwise. `None` means that
/// nothing of `desired` is missing.
#[must_use]
pub fn drift<T: Serialize>(desired: &T, live: &T) -> Option<Drift> {
    match (serde_json::to_value(desired), serde_json::to_value(live)) {
        (Ok(desired), Ok(live)) => json::drift(&desired, &live),
        _ => None,
    }
}
