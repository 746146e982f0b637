//! The listener's metrics: those that ARC's users scrape, as `listenerMetrics` chooses them,
//! and a few of our own about the program itself.

mod choice;
mod family;
mod label;
mod own;

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use self::choice::Chooser;
use self::family::Family;
use self::label::{COMPLETED_LABELS, Label, SCALE_SET_LABELS, STARTED_LABELS, WORKFLOW_LABELS};
use self::own::Own;
use crate::actions::{JobDetails, Observer, Statistics};
use crate::api::{ConfigUrl, ListenerConfig};
use crate::clock::Timestamp;

const GAUGES: [(&str, &str); 8] = [
    (
        "gha_assigned_jobs",
        "Jobs assigned to the scale set, running or waiting for a runner.",
    ),
    ("gha_running_jobs", "Jobs of the scale set that run."),
    (
        "gha_registered_runners",
        "Runners of the scale set that are registered.",
    ),
    ("gha_busy_runners", "Registered runners that have a job."),
    (
        "gha_min_runners",
        "Runners that the scale set keeps waiting for jobs.",
    ),
    (
        "gha_max_runners",
        "Most runners that the scale set may have.",
    ),
    (
        "gha_desired_runners",
        "Runners that the listener last asked for.",
    ),
    ("gha_idle_runners", "Registered runners that have no job."),
];
const STARTED: (&str, &str) = ("gha_started_jobs_total", "Jobs that were started.");
const COMPLETED: (&str, &str) = ("gha_completed_jobs_total", "Jobs that have ended.");
const STARTUP: (&str, &str) = (
    "gha_job_startup_duration_seconds",
    "Time from a job's assignment to the scale set to its assignment to a runner.",
);
const EXECUTION: (&str, &str) = (
    "gha_job_execution_duration_seconds",
    "Time from a job's assignment to a runner to its end.",
);

/// All metrics of one listener program.
pub struct ListenerMetrics {
    registry: Registry,
    enterprise: String,
    gauges: BTreeMap<&'static str, Gauge>,
    started: Option<Family<IntCounterVec>>,
    completed: Option<Family<IntCounterVec>>,
    startup: Option<Family<HistogramVec>>,
    execution: Option<Family<HistogramVec>>,
    own: Own,
}

impl ListenerMetrics {
    /// The metrics that the configuration chooses, in a registry of their own, and one sentence
    /// for each thing in the configuration that is skipped since it is not known.
    ///
    /// # Errors
    ///
    /// When the registry refuses a metric; no configuration leads to that.
    pub fn new(config: &ListenerConfig) -> Result<(Self, Vec<String>), prometheus::Error> {
        let mut chosen = Chooser::new(config.metrics.as_ref());
        let registry = Registry::new();
        let url = ConfigUrl::parse(&config.configure_url).ok();
        let mut gauges = BTreeMap::new();
        for (name, help) in GAUGES {
            let Some(labels) = chosen.gauge(name) else {
                continue;
            };
            let metric = register(
                &registry,
                GaugeVec::new(Opts::new(name, help), &names(&labels))?,
            )?;
            let values: Vec<&str> = labels
                .iter()
                .map(|label| scale_set_label(*label, config, url.as_ref()))
                .collect();
            gauges.insert(name, metric.get_metric_with_label_values(&values)?);
        }
        let metrics = Self {
            enterprise: url
                .map(|url| url.enterprise().to_owned())
                .unwrap_or_default(),
            gauges,
            started: counter(&registry, &mut chosen, STARTED, STARTED_LABELS)?,
            completed: counter(&registry, &mut chosen, COMPLETED, COMPLETED_LABELS)?,
            startup: histogram(&registry, &mut chosen, STARTUP, STARTED_LABELS)?,
            execution: histogram(&registry, &mut chosen, EXECUTION, COMPLETED_LABELS)?,
            own: Own::new(&registry)?,
            registry,
        };
        metrics.set("gha_min_runners", config.min_runners);
        metrics.set("gha_max_runners", config.max_runners);
        Ok((metrics, chosen.finish()))
    }

    /// A Markdown table of all metrics that a listener can have.
    #[must_use]
    pub fn documentation() -> String {
        let mut table = "| metric | kind | labels | meaning |\n|---|---|---|---|\n".to_owned();
        let mut row = |name: &str, kind: &str, labels: &[&str], help: &str| {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = labels.join(", ");
            table.push_str(&format!("| `{name}` | {kind} | {labels} | {help} |\n"));
        };
        for (name, help) in GAUGES {
            row(name, "gauge", &names(SCALE_SET_LABELS), help);
        }
        let with_workflow = |labels: &[Label]| names(&[labels, WORKFLOW_LABELS].concat());
        for ((name, help), kind, labels) in [
            (STARTED, "counter", STARTED_LABELS),
            (COMPLETED, "counter", COMPLETED_LABELS),
            (STARTUP, "histogram", STARTED_LABELS),
            (EXECUTION, "histogram", COMPLETED_LABELS),
        ] {
            row(name, kind, &with_workflow(labels), help);
        }
        for ((name, help, labels), kind) in [
            (own::ERRORS, "counter"),
            (own::POLLS, "counter"),
            (own::JOB_MESSAGES, "counter"),
            (own::REQUESTS, "histogram"),
        ] {
            row(name, kind, labels, help);
        }
        table
    }

    /// The registry that holds them.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn statistics(&self, statistics: &Statistics) {
        self.set("gha_assigned_jobs", statistics.assigned_jobs);
        self.set("gha_running_jobs", statistics.running_jobs);
        self.set("gha_registered_runners", statistics.registered_runners);
        self.set("gha_busy_runners", statistics.busy_runners);
        self.set("gha_idle_runners", statistics.idle_runners);
    }

    pub(super) fn desired_runners(&self, count: i64) {
        self.set("gha_desired_runners", count);
    }

    /// A job was started. Its startup lasted from its assignment to the scale set to its
    /// assignment to a runner.
    pub(super) fn job_started(&self, job: &JobDetails) {
        self.count(self.started.as_ref(), job);
        let lasted = seconds(job.scale_set_assign_time, job.runner_assign_time);
        self.observe(self.startup.as_ref(), job, lasted);
    }

    /// A job has ended. Its execution lasted from its assignment to a runner to its end.
    pub(super) fn job_completed(&self, job: &JobDetails) {
        self.count(self.completed.as_ref(), job);
        let lasted = seconds(job.runner_assign_time, job.finish_time);
        self.observe(self.execution.as_ref(), job, lasted);
    }

    pub(super) fn error(&self, operation: &str, kind: &str) {
        self.own.errors.with_label_values(&[operation, kind]).inc();
    }

    pub(super) fn poll(&self, outcome: &str) {
        self.own.polls.with_label_values(&[outcome]).inc();
    }

    pub(super) fn job_message(&self, message_type: &str) {
        self.own
            .job_messages
            .with_label_values(&[message_type])
            .inc();
    }

    // counts of jobs and runners are far below 2^53
    #[allow(clippy::cast_precision_loss)]
    fn set(&self, name: &str, value: i64) {
        if let Some(gauge) = self.gauges.get(name) {
            gauge.set(value as f64);
        }
    }

    fn count(&self, family: Option<&Family<IntCounterVec>>, job: &JobDetails) {
        if let Some(family) = family {
            let values = family.values(job, &self.enterprise);
            family.metric.with_label_values(&values).inc();
        }
    }

    fn observe(
        &self,
        family: Option<&Family<HistogramVec>>,
        job: &JobDetails,
        lasted: Option<f64>,
    ) {
        if let (Some(family), Some(lasted)) = (family, lasted) {
            let values = family.values(job, &self.enterprise);
            family.metric.with_label_values(&values).observe(lasted);
        }
    }
}

impl Observer for ListenerMetrics {
    fn request(&self, call: &'static str, outcome: &str, duration: Duration) {
        self.own
            .requests
            .with_label_values(&[call, outcome])
            .observe(duration.as_secs_f64());
    }
}

/// Seconds from one time to the other; `None` when either is unset. Clocks of GitHub's that
/// differ a little make no negative durations.
fn seconds(from: Option<Timestamp>, to: Option<Timestamp>) -> Option<f64> {
    Some(to?.duration_since(from?).as_secs_f64().max(0.0))
}

fn scale_set_label<'a>(
    label: Label,
    config: &'a ListenerConfig,
    url: Option<&'a ConfigUrl>,
) -> &'a str {
    match (label, url) {
        (Label::Name, _) => &config.runner_scale_set_name,
        (Label::Namespace, _) => &config.ephemeral_runner_set_namespace,
        (Label::Enterprise, Some(url)) => url.enterprise(),
        (Label::Organization, Some(url)) => url.organization(),
        (Label::Repository, Some(url)) => url.repository(),
        _ => "",
    }
}

fn names(labels: &[Label]) -> Vec<&'static str> {
    labels.iter().map(|label| label.as_str()).collect()
}

fn register<C: Collector + Clone + 'static>(
    registry: &Registry,
    metric: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn counter(
    registry: &Registry,
    chosen: &mut Chooser<'_>,
    (name, help): (&'static str, &str),
    defaults: &'static [Label],
) -> Result<Option<Family<IntCounterVec>>, prometheus::Error> {
    let Some(labels) = chosen.counter(name, defaults) else {
        return Ok(None);
    };
    let metric = IntCounterVec::new(Opts::new(name, help), &names(&labels))?;
    Ok(Some(Family::new(register(registry, metric)?, labels)))
}

fn histogram(
    registry: &Registry,
    chosen: &mut Chooser<'_>,
    (name, help): (&'static str, &str),
    defaults: &'static [Label],
) -> Result<Option<Family<HistogramVec>>, prometheus::Error> {
    let Some((labels, buckets)) = chosen.histogram(name, defaults) else {
        return Ok(None);
    };
    let options = HistogramOpts::new(name, help).buckets(buckets);
    let metric = HistogramVec::new(options, &names(&labels))?;
    Ok(Some(Family::new(register(registry, metric)?, labels)))
}

#[cfg(test)]
mod tests;
