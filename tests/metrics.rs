//! The metrics: `docs/metrics.md` says what the code declares, and after a simulated run the
//! numbers add up.
//!
//! `UPDATE_DOCS=1 cargo test --test metrics` writes the file anew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use embedded_actions::{JobSpec, JobState};
use impresario::clock::Clock;
use impresario::listener::ListenerMetrics;
use impresario::metrics::Metrics;
use impresario::simulation::cluster::{Cluster, ClusterOptions, RunningController};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use prometheus::proto::{Metric, MetricType};
use serde_json::json;
use tokio::task::LocalSet;
use tokio::time::sleep;

const INTRODUCTION: &str = "\
# Metrics

This file is written by `UPDATE_DOCS=1 cargo test --test metrics` from the declarations in the
code; a test fails when it is stale.

Durations are in seconds. Histograms have the series `_bucket`, `_sum` and `_count`. Labels are
bounded: kinds of actors, messages, effects and requests, and results, never the name of an
object. The exceptions are the `gha_*` metrics, whose names and labels are those that users of
ARC scrape.

## Controller

Served under `/metrics` on `--metrics-addr` (default `:8080`; `0` turns it off). `/healthz` and
`/readyz` are on `--health-probe-bind-address`.

";

const LISTENER: &str = "
## Listener

Served by each listener pod on `--listener-metrics-addr` under `--listener-metrics-endpoint`,
with `/healthz` and `/readyz` beside it. The field `listenerMetrics` of an AutoscalingRunnerSet
chooses which of the `gha_*` metrics exist, with which of the labels below and with which
buckets. Without it, all of them exist, with all labels but `job_workflow_ref`,
`job_workflow_name` and `job_workflow_target`.

What people call jobs, workflows and branches has no end, so the series of a metric about jobs
have one: when a counter has 2000 of them (a histogram: 500), further ones have `other` for
`job_name` and the three about the workflow; after as many again, for all that a job brings with
it. Nothing is lost from the sums. To tell more apart, choose fewer labels.

";

#[test]
fn the_documentation_is_what_the_code_declares() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let controller = Metrics::new().unwrap();
    let text = format!(
        "{INTRODUCTION}{}{LISTENER}{}",
        controller.documentation(),
        ListenerMetrics::documentation()
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == text,
        "docs/metrics.md is stale: run UPDATE_DOCS=1 cargo test --test metrics"
    );
}

#[test]
fn every_metric_is_documented_once_with_a_name_by_the_conventions() {
    let controller = Metrics::new().unwrap();
    let tables = [
        controller.documentation().to_owned(),
        ListenerMetrics::documentation(),
    ];
    let mut names = BTreeSet::new();
    for table in &tables {
        for row in table.lines().skip(2) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let (name, kind, meaning) = (cells[1].trim_matches('`'), cells[2], cells[4]);
            assert!(names.insert(name.to_owned()), "{name} is declared twice");
            assert!(
                name.starts_with("impresario_") || name.starts_with("gha_"),
                "{name}"
            );
            assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
            assert_eq!(kind == "histogram", name.ends_with("_seconds"), "{name}");
            assert!(
                meaning.ends_with('.') && meaning.len() > 10,
                "{name}: {meaning}"
            );
        }
    }
    assert!(names.len() > 30, "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_run_the_numbers_add_up() {
    LocalSet::new()
        .run_until(async {
            let (cluster, controller) = start().await;
            run_jobs(&cluster, 5).await;
            // at rest: nothing under way, and only what there is at rest
            sleep(Duration::from_secs(30)).await;
            let page = Page::of(&controller);
            for actor in ["scale_set", "listener", "runner_set", "runner"] {
                let one = &[("actor", actor)];
                assert_eq!(page.sum("impresario_actors", one), 1.0, "{actor}");
                assert!(
                    page.sum("impresario_actor_messages_total", one) > 0.0,
                    "{actor}"
                );
                assert!(page.sum("impresario_effects_total", one) > 0.0, "{actor}");
                assert_eq!(
                    page.sum("impresario_effects_in_flight", one),
                    0.0,
                    "{actor}"
                );
                assert_eq!(page.sum("impresario_actor_mailbox_messages", one), 0.0);
                assert_eq!(
                    page.sum("impresario_actor_messages_total", one),
                    page.sum("impresario_actor_mailbox_wait_seconds", one),
                    "each message of {actor} has waited"
                );
                assert_eq!(
                    page.sum("impresario_effects_total", one),
                    page.sum("impresario_effect_duration_seconds", one),
                    "each effect of {actor} took its time"
                );
            }
            assert_eq!(page.sum("impresario_actor_restarts_total", &[]), 0.0);
            let created = [
                ("verb", "create"),
                ("kind", "EphemeralRunner"),
                ("code", "201"),
            ];
            // five that ran a job, and one that waits for the next
            assert_eq!(
                page.sum("impresario_kubernetes_requests_total", &created),
                6.0
            );
            assert_eq!(
                page.sum("impresario_kubernetes_requests_total", &[]),
                page.sum("impresario_kubernetes_request_duration_seconds", &[])
            );
            assert!(page.sum("impresario_actions_requests_total", &[("code", "200")]) >= 6.0);
            assert_eq!(
                page.sum("impresario_actions_requests_total", &[]),
                page.sum("impresario_actions_request_duration_seconds", &[])
            );
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_gauges_of_a_scale_set_follow_it_and_go_with_it() {
    LocalSet::new()
        .run_until(async {
            let (cluster, controller) = start().await;
            let own = [
                ("name", "linux"),
                ("namespace", "ci"),
                ("organization", "acme"),
                ("repository", "widgets"),
                ("enterprise", ""),
            ];
            let value = |name: &str| Page::of(&controller).sum(name, &own);
            assert_eq!(value("gha_controller_running_listeners"), 1.0);
            assert_eq!(value("gha_controller_pending_ephemeral_runners"), 1.0);
            assert_eq!(value("gha_controller_running_ephemeral_runners"), 0.0);
            assert_eq!(value("gha_controller_failed_ephemeral_runners"), 0.0);
            let job = JobSpec::on("linux").lasting(Duration::from_secs(60));
            cluster.actions.queue_job(job);
            sleep(Duration::from_secs(20)).await;
            assert_eq!(value("gha_controller_running_ephemeral_runners"), 1.0);
            sleep(Duration::from_secs(60)).await;

            let sets = Api::<impresario::api::AutoscalingRunnerSet>::namespaced(
                cluster.api.client(),
                "ci",
            );
            sets.delete("linux", &DeleteParams::default())
                .await
                .unwrap();
            sleep(Duration::from_secs(60)).await;
            assert!(sets.get_opt("linux").await.unwrap().is_none());
            let page = Page::of(&controller);
            let left: Vec<&String> = page
                .0
                .keys()
                .filter(|name| name.starts_with("gha_"))
                .collect();
            assert_eq!(left, [""; 0]);
            for actor in ["scale_set", "listener", "runner_set", "runner"] {
                let one = &[("actor", actor)];
                assert_eq!(page.sum("impresario_actors", one), 0.0, "{actor}");
            }
            for actor in ["controller", "unregistrar"] {
                let one = &[("actor", actor)];
                assert_eq!(page.sum("impresario_actors", one), 1.0, "{actor}");
                assert!(
                    page.sum("impresario_actor_messages_total", one) > 0.0,
                    "{actor}"
                );
            }
            assert_eq!(page.sum("impresario_effects_in_flight", &[]), 0.0);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn labels_are_bounded_and_hold_no_name_of_an_object() {
    LocalSet::new()
        .run_until(async {
            let (cluster, controller) = start().await;
            let few = Page::of(&controller);
            run_jobs(&cluster, 12).await;
            let many = Page::of(&controller);
            let pods: Vec<Pod> = cluster.api.list_as(None);
            let names: Vec<String> = pods
                .into_iter()
                .filter_map(|pod| pod.metadata.name)
                .collect();
            assert!(!names.is_empty());
            for (metric, series) in &many.0 {
                for labels in series.iter().map(|series| &series.labels) {
                    for value in labels.values().filter(|_| !metric.starts_with("gha_")) {
                        assert!(!names.contains(value), "{metric} {labels:?}");
                        assert!(!value.contains("linux-runner"), "{metric} {labels:?}");
                        assert!(value.len() <= 40, "{metric} {labels:?}");
                    }
                }
                // twelve more runners, and hardly a series more
                let before = few.0.get(metric).map_or(0, Vec::len);
                assert!(
                    series.len() <= before + 20,
                    "{metric}: {before} → {}",
                    series.len()
                );
            }
        })
        .await;
}

/// A cluster at rest, with a scale set that keeps one runner.
async fn start() -> (Cluster, RunningController) {
    let clock = Clock::simulated("2026-02-03T04:05:06Z".parse().unwrap());
    let options = ClusterOptions {
        poll: Duration::from_secs(5),
        ..ClusterOptions::new(clock, 23)
    };
    let cluster = Cluster::start(options).await.unwrap();
    let objects = [
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "github-auth", "namespace": "ci"},
            "stringData": {"github_token": "ghp_of-the-metrics"},
        }),
        json!({
            "apiVersion": "actions.github.com/v1alpha1",
            "kind": "AutoscalingRunnerSet",
            "metadata": {"name": "linux", "namespace": "ci"},
            "spec": {
                "githubConfigUrl": "https://github.com/acme/widgets",
                "githubConfigSecret": "github-auth",
                "minRunners": 1,
                "maxRunners": 6,
                "template": {"spec": {"containers": [{"name": "runner", "image": "runner:1"}]}},
            },
        }),
    ];
    for object in &objects {
        cluster.apply(object).await.unwrap();
    }
    let controller = cluster.start_controller();
    sleep(Duration::from_secs(30)).await;
    (cluster, controller)
}

async fn run_jobs(cluster: &Cluster, count: usize) {
    for _ in 0..count {
        let job = JobSpec::on("linux").lasting(Duration::from_secs(2));
        cluster.actions.queue_job(job);
    }
    sleep(Duration::from_secs(60)).await;
    let jobs = cluster.actions.jobs();
    assert!(jobs.iter().all(|job| job.state == JobState::Completed));
}

/// What a scrape shows: the series of each metric.
struct Page(BTreeMap<String, Vec<Series>>);

struct Series {
    labels: BTreeMap<String, String>,
    /// The value; of a histogram, its count.
    value: f64,
}

impl Page {
    fn of(controller: &RunningController) -> Self {
        let families = controller.metrics.registry().gather();
        Self(
            families
                .iter()
                .filter(|family| !family.get_metric().is_empty())
                .map(|family| {
                    let kind = family.get_field_type();
                    let series = family.get_metric().iter();
                    let series = series.map(|metric| Series::of(kind, metric)).collect();
                    (family.name().to_owned(), series)
                })
                .collect(),
        )
    }

    /// The sum over the series with these labels.
    fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> f64 {
        let fits = |series: &&Series| {
            labels
                .iter()
                .all(|(key, value)| series.labels.get(*key).is_some_and(|found| found == value))
        };
        let series = self.0.get(metric).into_iter().flatten();
        series.filter(fits).map(|series| series.value).sum()
    }
}

impl Series {
    #[allow(clippy::cast_precision_loss, reason = "counts of one short run")]
    fn of(kind: MetricType, metric: &Metric) -> Self {
        Self {
            labels: metric
                .get_label()
                .iter()
                .map(|pair| (pair.name().to_owned(), pair.value().to_owned()))
                .collect(),
            value: match kind {
                MetricType::COUNTER => metric.get_counter().get_value(),
                MetricType::GAUGE => metric.get_gauge().get_value(),
                _ => metric.get_histogram().get_sample_count() as f64,
            },
        }
    }
}
