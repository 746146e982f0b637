//! Why a live object has to be made again.

use crate::semantic::Drift;

/// Why a live object has to be made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// One of a bounded set of words, for a metric's label.
    pub reason: &'static str,
    /// Where, and both values, for a person; without secrets.
    pub text: String,
}

impl Difference {
    /// Of the specs of the two.
    #[must_use]
    pub fn of_specs(drift: &Drift) -> Self {
        Self {
            reason: drift.reason(),
            text: format!("spec.{drift}"),
        }
    }
}
