//! A metric about jobs. What jobs are called comes from outside and has no end, so the number of
//! its series has one.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use prometheus::{HistogramVec, IntCounterVec};

use super::label::{Label, Origin};
use crate::actions::JobDetails;

/// Label value that stands for what has no series of its own.
pub(super) const OTHER: &str = "other";

/// A metric about jobs, with the labels chosen for it.
pub(super) struct Family<V> {
    pub(super) metric: V,
    labels: Vec<Label>,
    seen: Mutex<Seen>,
}

/// A metric of which a job can have a series.
pub(super) trait Series {
    /// How many series it has in full before names become [`OTHER`]. As many again may there be
    /// without names, and then one more.
    const MOST: usize;
}

impl Series for IntCounterVec {
    const MOST: usize = 2_000;
}

/// One has half a hundred lines.
impl Series for HistogramVec {
    const MOST: usize = 500;
}

#[derive(Default)]
struct Seen {
    full: BTreeSet<Vec<String>>,
    nameless: BTreeSet<Vec<String>>,
}

impl<V: Series> Family<V> {
    pub(super) fn new(metric: V, labels: Vec<Label>) -> Self {
        Self {
            metric,
            labels,
            seen: Mutex::default(),
        }
    }

    /// The label values of this job. Past the limit job and workflow are [`OTHER`]; past the
    /// next, so is everything that a job brings with it.
    pub(super) fn values(&self, job: &JobDetails, enterprise: &str) -> Vec<String> {
        let mut values: Vec<String> = self
            .labels
            .iter()
            .map(|label| label.value(job, enterprise))
            .collect();
        // the sets are sound after a panic elsewhere
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if admitted(&mut seen.full, &values, V::MOST) {
            return values;
        }
        self.blur(&mut values, |origin| origin == Origin::Names);
        if !admitted(&mut seen.nameless, &values, V::MOST) {
            self.blur(&mut values, |origin| origin != Origin::ScaleSet);
        }
        values
    }

    fn blur(&self, values: &mut [String], which: impl Fn(Origin) -> bool) {
        for (label, value) in self.labels.iter().zip(values) {
            if which(label.origin()) {
                OTHER.clone_into(value);
            }
        }
    }
}

/// Whether these have a series, or get one.
fn admitted(seen: &mut BTreeSet<Vec<String>>, values: &[String], most: usize) -> bool {
    seen.contains(values) || (seen.len() < most && seen.insert(values.to_vec()))
}
