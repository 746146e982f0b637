use prometheus::TextEncoder;

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
