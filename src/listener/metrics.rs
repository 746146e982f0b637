//! The listener's metrics: those that ARC's users scrape, as `listenerMetrics` chooses them,
//! and a few of our own about the program itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use super::workflow_ref::WorkflowRef;
use crate::actions::{JobDetails, Observer, Statistics};
use crate::api::{ConfigUrl, ListenerConfig, MetricsConfig};
use crate::clock::Timestamp;

/// Most series of one metric. Job and workflow names come from outside and have no end; past
/// this limit they are counted as [`OTHER`].
const MOST_SERIES: usize = 2_000;
/// Label value that stands for names past the limit.
const OTHER: &str = "other";

/// Upper bounds, in seconds, of buckets that are not configured.
const BUCKETS: [f64; 45] = [
    0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 15.0, 18.0,
    20.0, 25.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0, 110.0, 120.0, 150.0, 180.0, 210.0,
    240.0, 300.0, 360.0, 420.0, 480.0, 540.0, 600.0, 900.0, 1200.0, 1800.0, 2400.0, 3000.0, 3600.0,
];

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

/// A label that a metric can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Name,
    Namespace,
    Enterprise,
    Organization,
    Repository,
    JobName,
    EventName,
    JobResult,
    JobWorkflowRef,
    JobWorkflowName,
    JobWorkflowTarget,
}

const SCALE_SET_LABELS: &[Label] = &[
    Label::Name,
    Label::Namespace,
    Label::Enterprise,
    Label::Organization,
    Label::Repository,
];
const STARTED_LABELS: &[Label] = &[
    Label::Enterprise,
    Label::Organization,
    Label::Repository,
    Label::JobName,
    Label::EventName,
];
const COMPLETED_LABELS: &[Label] = &[
    Label::Enterprise,
    Label::Organization,
    Label::Repository,
    Label::JobName,
    Label::EventName,
    Label::JobResult,
];
/// Labels that a metric of jobs carries only when it is configured to.
const WORKFLOW_LABELS: &[Label] = &[
    Label::JobWorkflowRef,
    Label::JobWorkflowName,
    Label::JobWorkflowTarget,
];

impl Label {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Namespace => "namespace",
            Self::Enterprise => "enterprise",
            Self::Organization => "organization",
            Self::Repository => "repository",
            Self::JobName => "job_name",
            Self::EventName => "event_name",
            Self::JobResult => "job_result",
            Self::JobWorkflowRef => "job_workflow_ref",
            Self::JobWorkflowName => "job_workflow_name",
            Self::JobWorkflowTarget => "job_workflow_target",
        }
    }

    /// Whether its values come from outside and have no end.
    const fn is_unbounded(self) -> bool {
        matches!(
            self,
            Self::JobName | Self::JobWorkflowRef | Self::JobWorkflowName | Self::JobWorkflowTarget
        )
    }

    fn value(self, job: &JobDetails, enterprise: &str) -> String {
        let text = match self {
            // no metric of jobs has these two
            Self::Name | Self::Namespace => "",
            Self::Enterprise => enterprise,
            Self::Organization => &job.owner_name,
            Self::Repository => &job.repository_name,
            Self::JobName => &job.job_display_name,
            Self::EventName => &job.event_name,
            Self::JobResult => &job.result,
            Self::JobWorkflowRef => &job.job_workflow_ref,
            Self::JobWorkflowName => WorkflowRef::parse(&job.job_workflow_ref).name,
            Self::JobWorkflowTarget => WorkflowRef::parse(&job.job_workflow_ref).target,
        };
        text.to_owned()
    }
}

/// A metric about jobs, with the labels chosen for it.
struct Family<V> {
    metric: V,
    labels: Vec<Label>,
    seen: Mutex<BTreeSet<Vec<String>>>,
}

impl<V> Family<V> {
    /// The label values of this job.
    fn values(&self, job: &JobDetails, enterprise: &str) -> Vec<String> {
        let mut values: Vec<String> = self
            .labels
            .iter()
            .map(|label| label.value(job, enterprise))
            .collect();
        // the set is sound after a panic elsewhere
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.contains(&values) {
            return values;
        }
        if seen.len() < MOST_SERIES {
            seen.insert(values.clone());
        } else {
            for (label, value) in self.labels.iter().zip(&mut values) {
                if label.is_unbounded() {
                    OTHER.clone_into(value);
                }
            }
        }
        values
    }
}

/// All metrics of one listener program.
pub struct ListenerMetrics {
    registry: Registry,
    enterprise: String,
    gauges: BTreeMap<&'static str, Gauge>,
    started: Option<Family<IntCounterVec>>,
    completed: Option<Family<IntCounterVec>>,
    startup: Option<Family<HistogramVec>>,
    execution: Option<Family<HistogramVec>>,
    errors: IntCounterVec,
    polls: IntCounterVec,
    job_messages: IntCounterVec,
    requests: HistogramVec,
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
            errors: own_counter(
                &registry,
                "impresario_listener_errors_total",
                "Things the listener tried that failed.",
                &["operation", "kind"],
            )?,
            polls: own_counter(
                &registry,
                "impresario_listener_polls_total",
                "Polls of the message queue that have ended.",
                &["outcome"],
            )?,
            job_messages: own_counter(
                &registry,
                "impresario_listener_job_messages_total",
                "Parts of messages about jobs; those of no known type are unknown.",
                &["type"],
            )?,
            requests: register(
                &registry,
                HistogramVec::new(
                    HistogramOpts::new(
                        "impresario_listener_actions_request_duration_seconds",
                        "Time of a request to the Actions service, retries counted apart.",
                    )
                    .buckets(vec![
                        0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
                    ]),
                    &["call", "outcome"],
                )?,
            )?,
            registry,
        };
        metrics.set("gha_min_runners", config.min_runners);
        metrics.set("gha_max_runners", config.max_runners);
        Ok((metrics, chosen.finish()))
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
        self.errors.with_label_values(&[operation, kind]).inc();
    }

    pub(super) fn poll(&self, outcome: &str) {
        self.polls.with_label_values(&[outcome]).inc();
    }

    pub(super) fn job_message(&self, message_type: &str) {
        self.job_messages.with_label_values(&[message_type]).inc();
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
        self.requests
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

fn own_counter(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, prometheus::Error> {
    register(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
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
    Ok(Some(Family {
        metric: register(registry, metric)?,
        labels,
        seen: Mutex::default(),
    }))
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
    Ok(Some(Family {
        metric: register(registry, HistogramVec::new(options, &names(&labels))?)?,
        labels,
        seen: Mutex::default(),
    }))
}

/// Reads the choice of metrics, and remembers what in it was not known.
struct Chooser<'a> {
    config: Option<&'a MetricsConfig>,
    complaints: Vec<String>,
}

impl<'a> Chooser<'a> {
    const fn new(config: Option<&'a MetricsConfig>) -> Self {
        Self {
            config,
            complaints: Vec::new(),
        }
    }

    fn gauge(&mut self, name: &'static str) -> Option<Vec<Label>> {
        let Some(config) = self.config else {
            return Some(SCALE_SET_LABELS.to_vec());
        };
        let chosen = find(&config.gauges, name)?;
        Some(self.labels(name, &chosen.labels, &[SCALE_SET_LABELS]))
    }

    fn counter(&mut self, name: &'static str, known: &'static [Label]) -> Option<Vec<Label>> {
        let Some(config) = self.config else {
            return Some(known.to_vec());
        };
        let chosen = find(&config.counters, name)?;
        Some(self.labels(name, &chosen.labels, &[known, WORKFLOW_LABELS]))
    }

    fn histogram(
        &mut self,
        name: &'static str,
        known: &'static [Label],
    ) -> Option<(Vec<Label>, Vec<f64>)> {
        let Some(config) = self.config else {
            return Some((known.to_vec(), BUCKETS.to_vec()));
        };
        let chosen = find(&config.histograms, name)?;
        let labels = self.labels(name, &chosen.labels, &[known, WORKFLOW_LABELS]);
        let ascending = chosen.buckets.windows(2).all(|pair| pair[0] < pair[1]);
        let buckets = if chosen.buckets.is_empty() {
            BUCKETS.to_vec()
        } else if ascending && chosen.buckets.iter().all(|bound| bound.is_finite()) {
            chosen.buckets.clone()
        } else {
            self.complaints.push(format!(
                "the buckets of {name} do not ascend; it has the default ones"
            ));
            BUCKETS.to_vec()
        };
        Some((labels, buckets))
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
                Some(label) if labels.contains(label) => {}
                Some(label) => labels.push(*label),
                None => self
                    .complaints
                    .push(format!("{metric} has no label {name}; it is left out")),
            }
        }
        labels
    }

    /// What was not known, labels first.
    fn finish(mut self) -> Vec<String> {
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
        for key in keys {
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

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;
    use crate::api::{CounterMetric, GaugeMetric, HistogramMetric};

    fn config(metrics: Option<MetricsConfig>) -> ListenerConfig {
        ListenerConfig {
            configure_url: "https://github.com/acme/widgets".to_owned(),
            runner_scale_set_name: "linux".to_owned(),
            ephemeral_runner_set_namespace: "ci".to_owned(),
            min_runners: 2,
            max_runners: 9,
            metrics,
            ..ListenerConfig::default()
        }
    }

    fn job() -> JobDetails {
        let time = |text: &str| text.parse().ok();
        JobDetails {
            owner_name: "acme".to_owned(),
            repository_name: "gears".to_owned(),
            job_display_name: "build".to_owned(),
            event_name: "push".to_owned(),
            job_workflow_ref: "acme/gears/.github/workflows/ci.yml@refs/heads/main".to_owned(),
            queue_time: time("2026-01-01T00:00:00Z"),
            scale_set_assign_time: time("2026-01-01T00:00:01Z"),
            runner_assign_time: time("2026-01-01T00:00:08.5Z"),
            finish_time: time("2026-01-01T00:01:08.5Z"),
            result: "succeeded".to_owned(),
            ..JobDetails::default()
        }
    }

    fn text(metrics: &ListenerMetrics) -> String {
        TextEncoder::new()
            .encode_to_string(&metrics.registry().gather())
            .unwrap()
    }

    #[test]
    fn by_default_all_metrics_exist_with_the_names_and_labels_that_users_scrape() {
        let (metrics, complaints) = ListenerMetrics::new(&config(None)).unwrap();
        assert!(complaints.is_empty());
        metrics.statistics(&Statistics {
            available_jobs: 1,
            acquired_jobs: 2,
            assigned_jobs: 3,
            running_jobs: 4,
            registered_runners: 5,
            busy_runners: 6,
            idle_runners: 7,
        });
        metrics.desired_runners(8);
        metrics.job_started(&job());
        metrics.job_completed(&job());
        let text = text(&metrics);
        let set = r#"{enterprise="",name="linux",namespace="ci",organization="acme",repository="widgets"}"#;
        for (name, value) in [
            ("assigned_jobs", 3),
            ("running_jobs", 4),
            ("registered_runners", 5),
            ("busy_runners", 6),
            ("idle_runners", 7),
            ("desired_runners", 8),
            ("min_runners", 2),
            ("max_runners", 9),
        ] {
            let line = format!("\ngha_{name}{set} {value}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
        let job = r#"enterprise="",event_name="push",job_name="build""#;
        let place = r#"organization="acme",repository="gears""#;
        let done = format!(r#"{job},job_result="succeeded",{place}"#);
        for line in [
            format!("gha_started_jobs_total{{{job},{place}}} 1\n"),
            format!("gha_completed_jobs_total{{{done}}} 1\n"),
            format!("gha_job_startup_duration_seconds_sum{{{job},{place}}} 7.5\n"),
            format!("gha_job_startup_duration_seconds_bucket{{{job},{place},le=\"8\"}} 1\n"),
            format!("gha_job_startup_duration_seconds_bucket{{{job},{place},le=\"7\"}} 0\n"),
            format!("gha_job_execution_duration_seconds_sum{{{done}}} 60\n"),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
    }

    #[test]
    fn a_duration_with_an_unset_end_is_not_recorded() {
        let (metrics, _) = ListenerMetrics::new(&config(None)).unwrap();
        metrics.job_started(&JobDetails {
            scale_set_assign_time: None,
            ..job()
        });
        metrics.job_completed(&JobDetails {
            finish_time: None,
            ..job()
        });
        let text = text(&metrics);
        assert!(text.contains("gha_completed_jobs_total"), "{text}");
        assert!(!text.contains("duration_seconds_sum"), "{text}");
    }

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn only_what_is_chosen_exists_with_the_labels_and_buckets_chosen() {
        let choice = MetricsConfig {
            counters: BTreeMap::from([(
                "gha_completed_jobs_total".to_owned(),
                CounterMetric {
                    labels: strings(&["job_workflow_target", "job_workflow_name", "job_result"]),
                },
            )]),
            gauges: BTreeMap::from([(
                "busy_runners".to_owned(),
                GaugeMetric {
                    labels: strings(&["name"]),
                },
            )]),
            histograms: BTreeMap::from([(
                "gha_job_startup_duration_seconds".to_owned(),
                HistogramMetric {
                    labels: strings(&["event_name"]),
                    buckets: vec![5.0, 10.0],
                },
            )]),
        };
        let (metrics, complaints) = ListenerMetrics::new(&config(Some(choice))).unwrap();
        assert_eq!(complaints, Vec::<String>::new());
        metrics.job_started(&job());
        metrics.job_completed(&job());
        let text = text(&metrics);
        let names: BTreeSet<&str> = text
            .lines()
            .filter(|line| line.starts_with("gha_"))
            .filter_map(|line| line.split('{').next())
            .collect();
        let expected = BTreeSet::from([
            "gha_busy_runners",
            "gha_completed_jobs_total",
            "gha_job_startup_duration_seconds_bucket",
            "gha_job_startup_duration_seconds_count",
            "gha_job_startup_duration_seconds_sum",
        ]);
        assert_eq!(names, expected, "{text}");
        for line in [
            "gha_busy_runners{name=\"linux\"} 0\n",
            "{job_result=\"succeeded\",job_workflow_name=\"ci\",job_workflow_target=\"heads/main\"} 1\n",
            "startup_duration_seconds_bucket{event_name=\"push\",le=\"5\"} 0\n",
            "startup_duration_seconds_bucket{event_name=\"push\",le=\"10\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert_eq!(text.matches("startup_duration_seconds_bucket").count(), 3);
    }

    #[test]
    fn unknown_metrics_labels_and_buckets_are_reported_and_skipped() {
        let choice = MetricsConfig {
            counters: BTreeMap::from([
                ("gha_busy_runners".to_owned(), CounterMetric::default()),
                (
                    "started_jobs_total".to_owned(),
                    CounterMetric {
                        labels: strings(&["job_result", "event_name", "event_name"]),
                    },
                ),
            ]),
            gauges: BTreeMap::from([("gha_moods".to_owned(), GaugeMetric::default())]),
            histograms: BTreeMap::from([(
                "gha_job_execution_duration_seconds".to_owned(),
                HistogramMetric {
                    labels: Vec::new(),
                    buckets: vec![3.0, 2.0],
                },
            )]),
        };
        let (metrics, complaints) = ListenerMetrics::new(&config(Some(choice))).unwrap();
        assert_eq!(
            complaints,
            [
                "gha_started_jobs_total has no label job_result; it is left out",
                "the buckets of gha_job_execution_duration_seconds do not ascend; it has the default ones",
                "there is no gauge gha_moods; it is left out",
                "there is no counter gha_busy_runners; it is left out",
            ]
        );
        metrics.job_started(&job());
        assert!(text(&metrics).contains("gha_started_jobs_total{event_name=\"push\"} 1\n"));
    }

    #[test]
    fn job_names_without_end_do_not_make_series_without_end() {
        let (metrics, _) = ListenerMetrics::new(&config(None)).unwrap();
        for number in 0..MOST_SERIES + 7 {
            metrics.job_started(&JobDetails {
                job_display_name: format!("build {number}"),
                ..job()
            });
        }
        let text = text(&metrics);
        let series = text.matches("\ngha_started_jobs_total{").count();
        assert_eq!(series, MOST_SERIES + 1);
        let other = text.lines().find(|line| {
            line.starts_with("gha_started_jobs_total{") && line.contains("job_name=\"other\"")
        });
        assert!(other.unwrap().ends_with(" 7"), "{other:?}");
    }
}
