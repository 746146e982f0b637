//! Which metrics exist, with which labels and buckets, as `listenerMetrics` chooses.

use std::collections::BTreeMap;

use super::label::{Label, SCALE_SET_LABELS, WORKFLOW_LABELS};
use super::{COMPLETED, EXECUTION, GAUGES, STARTED, STARTUP};
use crate::api::MetricsConfig;

/// Upper bounds, in seconds, of buckets that are not configured.
const BUCKETS: [f64; 45] = [
    0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 15.0, 18.0,
    20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 110.0, 120.0, 150.0, 180.0, 210.0,
    240.0, 300.0, 360.0, 420.0, 480.0, 540.0, 600.0, 900.0, 1200.0, 1800.0, 2400.0, 3000.0, 3600.0,
];

/// Reads the choice of metrics, and remembers what in it was not known.
pub(super) struct Chooser<'a> {
    config: Option<&'a MetricsConfig>,
    complaints: Vec<String>,
}

impl<'a> Chooser<'a> {
    pub(super) const fn new(config: Option<&'a MetricsConfig>) -> Self {
        Self {
            config,
            complaints: Vec::new(),
        }
    }

    pub(super) fn gauge(&mut self, name: &'static str) -> Option<Vec<Label>> {
        let Some(config) = self.config else {
            return Some(SCALE_SET_LABELS.to_vec());
        };
        let chosen = find(&config.gauges, name)?;
        Some(self.labels(name, &chosen.labels, &[SCALE_SET_LABELS]))
    }

    pub(super) fn counter(
        &mut self,
        name: &'static str,
        known: &'static [Label],
    ) -> Option<Vec<Label>> {
        let Some(config) = self.config else {
            return Some(known.to_vec());
        };
        let chosen = find(&config.counters, name)?;
        Some(self.labels(name, &chosen.labels, &[known, WORKFLOW_LABELS]))
    }

    pub(super) fn histogram(
        &mut self,
        name: &'static str,
        known: &'static [Label],
    ) -> Option<(Vec<Label>, Vec<f64>)> {
        let Some(config) = self.config else {
            return Some((known.to_vec(), BUCKETS.to_vec()));
        };
        let chosen = find(&config.histograms, name)?;
        let labels = self.labels(name, &chosen.labels, &[known, WORKFLOW_LABELS]);
        let buckets = self.buckets(name, &chosen.buckets);
        Some((labels, buckets))
    }

    /// The buckets that make sense; the default ones, if there are none.
    fn buckets(&mut self, metric: &str, wanted: &[f64]) -> Vec<f64> {
        let mut buckets: Vec<f64> = Vec::new();
        for bound in wanted {
            let problem = if !bound.is_finite() {
                "is no number of seconds"
            } else if *bound <= 0.0 {
                "is not greater than 0"
            } else if buckets.last().is_some_and(|last| bound <= last) {
                "is not greater than the one before"
            } else {
                buckets.push(*bound);
                continue;
            };
            self.complaints.push(format!(
                "bucket {bound} of {metric} {problem}; it is left out"
            ));
        }
        if !buckets.is_empty() {
            return buckets;
        }
        if !wanted.is_empty() {
            self.complaints.push(format!(
                "{metric} has no bucket left; it has the default ones"
            ));
        }
        BUCKETS.to_vec()
    }

    fn labels(&mut self, metric: &str, wanted: &[String], known: &[&[Label]]) -> Vec<Label> {
        let mut labels = Vec::new();
        for name in wanted {
            let label = known
                .iter()
                .copied()
                .flatten()
                .find(|label| label.as_str() == name);
            match label {
                Some(label) if labels.contains(label) => self.complaints.push(format!(
                    "{metric} has the label {name} twice; the second is left out"
                )),
                Some(label) => labels.push(*label),
                None => self
                    .complaints
                    .push(format!("{metric} has no label {name}; it is left out")),
            }
        }
        labels
    }

    /// What was not known, labels first.
    pub(super) fn finish(mut self) -> Vec<String> {
        if let Some(config) = self.config {
            let gauges: Vec<&str> = GAUGES.iter().map(|(name, _)| *name).collect();
            self.unknown("gauge", config.gauges.keys(), &gauges);
            self.unknown("counter", config.counters.keys(), &[STARTED.0, COMPLETED.0]);
            self.unknown(
                "histogram",
                config.histograms.keys(),
                &[STARTUP.0, EXECUTION.0],
            );
        }
        self.complaints
    }

    fn unknown<'k>(&mut self, kind: &str, keys: impl Iterator<Item = &'k String>, known: &[&str]) {
        let keys: Vec<&String> = keys.collect();
        for key in &keys {
            let full = format!("gha_{key}");
            if known.contains(&full.as_str()) && keys.contains(&&full) {
                self.complaints
                    .push(format!("{kind} {key} is {full} once more; it is left out"));
            }
            if !known.iter().any(|name| is_named(key, name)) {
                self.complaints
                    .push(format!("there is no {kind} {key}; it is left out"));
            }
        }
    }
}

/// The settings under a metric's name, with or without the prefix that all names have.
fn find<'a, V>(settings: &'a BTreeMap<String, V>, name: &str) -> Option<&'a V> {
    settings.get(name).or_else(|| {
        let short = name.strip_prefix("gha_")?;
        settings.get(short)
    })
}

fn is_named(key: &str, name: &str) -> bool {
    key == name || name.strip_prefix("gha_") == Some(key)
}
