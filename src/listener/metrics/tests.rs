use std::collections::BTreeSet;

use prometheus::TextEncoder;

use super::family::Series;
use super::*;
use crate::api::{CounterMetric, GaugeMetric, HistogramMetric, MetricsConfig};

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
    let set =
        r#"{enterprise="",name="linux",namespace="ci",organization="acme",repository="widgets"}"#;
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
                buckets: vec![-1.0, 0.0, 3.0, 2.0, f64::NAN, 3.0, 8.0, f64::INFINITY],
            },
        )]),
    };
    let (metrics, complaints) = ListenerMetrics::new(&config(Some(choice))).unwrap();
    let left_out = |bound: &str, problem: &str| {
        let metric = "gha_job_execution_duration_seconds";
        format!("bucket {bound} of {metric} {problem}; it is left out")
    };
    assert_eq!(
        complaints,
        [
            "gha_started_jobs_total has no label job_result; it is left out",
            "gha_started_jobs_total has the label event_name twice; the second is left out",
            &left_out("-1", "is not greater than 0"),
            &left_out("0", "is not greater than 0"),
            &left_out("2", "is not greater than the one before"),
            &left_out("NaN", "is no number of seconds"),
            &left_out("3", "is not greater than the one before"),
            &left_out("inf", "is no number of seconds"),
            "there is no gauge gha_moods; it is left out",
            "there is no counter gha_busy_runners; it is left out",
        ]
    );
    metrics.job_started(&job());
    metrics.job_completed(&job());
    let text = text(&metrics);
    assert!(
        text.contains("gha_started_jobs_total{event_name=\"push\"} 1\n"),
        "{text}"
    );
    let buckets = text
        .matches("job_execution_duration_seconds_bucket{")
        .count();
    assert_eq!(buckets, 3, "3, 8 and infinity\n{text}");
}

#[test]
fn buckets_of_which_none_is_left_are_the_default_ones() {
    for (buckets, complaints) in [(vec![], 0), (vec![f64::NAN, -3.0], 3)] {
        let labels = Vec::new();
        let choice = MetricsConfig {
            histograms: BTreeMap::from([(
                "job_startup_duration_seconds".to_owned(),
                HistogramMetric { labels, buckets },
            )]),
            ..MetricsConfig::default()
        };
        let (metrics, said) = ListenerMetrics::new(&config(Some(choice))).unwrap();
        assert_eq!(said.len(), complaints, "{said:?}");
        metrics.job_started(&job());
        let count = text(&metrics).matches("_bucket{").count();
        assert_eq!(count, 45 + 1);
    }
}

#[test]
fn a_metric_chosen_under_both_its_names_is_reported() {
    let labels = |name: &str| GaugeMetric {
        labels: strings(&[name]),
    };
    let choice = MetricsConfig {
        gauges: BTreeMap::from([
            ("gha_busy_runners".to_owned(), labels("name")),
            ("busy_runners".to_owned(), labels("namespace")),
        ]),
        ..MetricsConfig::default()
    };
    let (metrics, complaints) = ListenerMetrics::new(&config(Some(choice))).unwrap();
    assert_eq!(
        complaints,
        ["gauge busy_runners is gha_busy_runners once more; it is left out"]
    );
    assert!(text(&metrics).contains("gha_busy_runners{name=\"linux\"} 0\n"));
}

/// Series of a metric, and the sum of their values.
fn series(text: &str, metric: &str) -> (usize, f64) {
    let lines = text.lines().filter(|line| {
        line.strip_prefix(metric)
            .is_some_and(|rest| rest.starts_with('{'))
    });
    let values: Vec<f64> = lines
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    (values.len(), values.iter().sum())
}

#[test]
fn job_names_without_end_do_not_make_series_without_end() {
    let (metrics, _) = ListenerMetrics::new(&config(None)).unwrap();
    let jobs = IntCounterVec::MOST + 7;
    for number in 0..jobs {
        metrics.job_started(&JobDetails {
            job_display_name: format!("build {number}"),
            ..job()
        });
    }
    let text = text(&metrics);
    let (count, sum) = series(&text, "gha_started_jobs_total");
    assert_eq!((count, sum as usize), (IntCounterVec::MOST + 1, jobs));
    let other = text.lines().find(|line| {
        line.starts_with("gha_started_jobs_total{") && line.contains("job_name=\"other\"")
    });
    // where the job comes from is told all the same
    let other = other.unwrap();
    assert!(other.contains("repository=\"gears\""), "{other}");
    assert!(other.ends_with(" 7"), "{other}");
    let (count, sum) = series(&text, "gha_job_startup_duration_seconds_count");
    assert_eq!((count, sum as usize), (HistogramVec::MOST + 1, jobs));
}

#[test]
fn nor_do_repositories_and_events_without_end() {
    let (metrics, _) = ListenerMetrics::new(&config(None)).unwrap();
    let jobs = 2 * IntCounterVec::MOST + 500;
    for number in 0..jobs {
        metrics.job_started(&JobDetails {
            repository_name: format!("gears-{number}"),
            event_name: format!("event-{number}"),
            ..job()
        });
    }
    let text = text(&metrics);
    let (count, sum) = series(&text, "gha_started_jobs_total");
    assert_eq!((count, sum as usize), (2 * IntCounterVec::MOST + 1, jobs));
    let (count, sum) = series(&text, "gha_job_startup_duration_seconds_count");
    assert_eq!((count, sum as usize), (2 * HistogramVec::MOST + 1, jobs));
    let last =
        r#"event_name="other",job_name="other",organization="other",repository="other"} 500"#;
    assert!(text.contains(last), "{last}");
}

#[test]
fn every_metric_in_the_registry_is_documented() {
    let (metrics, _) = ListenerMetrics::new(&config(None)).unwrap();
    metrics.job_started(&job());
    metrics.job_completed(&job());
    metrics.error("publish", "unavailable");
    metrics.poll("empty");
    metrics.job_message("started");
    metrics.request("get_message", "200", Duration::from_secs(1));
    let documentation = ListenerMetrics::documentation();
    let families = metrics.registry().gather();
    for family in &families {
        let row = format!("| `{}` | ", family.name());
        assert!(documentation.contains(&row), "{}", family.name());
    }
    assert_eq!(documentation.lines().count(), 2 + families.len());
}
