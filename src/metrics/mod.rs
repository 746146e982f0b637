//! The controller's metrics: every name is declared here and nowhere else.
//!
//! Labels are bounded: actors, kinds of message, verbs, codes; never an object's name, but
//! for the `gha_controller_*` gauges, whose labels are a contract with ARC's users.
//! `docs/metrics.md` is written from [`Metrics::documentation`], and a test keeps them equal.

mod declare;
pub mod http;

use std::time::Duration;

use tokio::time::Instant;

use prometheus::{GaugeVec, HistogramVec, IntCounterVec, IntGaugeVec, Registry};

use declare::Declarations;

use crate::messages::Tally;

/// Bounds for what takes micro- to milliseconds, in seconds.
const SHORT: &[f64] = &[
    0.000_01, 0.000_05, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0,
];
/// Bounds for requests, in seconds.
const REQUEST: &[f64] = &[
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// All metrics of a controller process.
pub struct Metrics {
    registry: Registry,
    documentation: String,
    /// Actors.
    pub actors: ActorMetrics,
    /// Requests to the API server.
    pub kubernetes: RequestMetrics,
    /// Calls to the Actions service.
    pub actions: RequestMetrics,
    /// Pools, under ARC's names.
    pub pools: PoolMetrics,
    /// Listener pods that had to be made again, by reason.
    pub listener_recreations: IntCounterVec,
    /// Watch streams opened, by kind and why.
    pub watch_restarts: IntCounterVec,
    /// Restorations of the API server's store that were noticed.
    pub store_restorations: IntCounterVec,
    /// Fields that the cluster's schemas lack, 1 each.
    pub missing_fields: IntGaugeVec,
    /// Whether this process leads, 0 or 1.
    pub leader: IntGaugeVec,
}

/// What the actors do, by actor and kind of message.
pub struct ActorMetrics {
    /// Live actors.
    pub live: IntGaugeVec,
    /// Messages handled.
    pub messages: IntCounterVec,
    /// Time between a message's sending and its handling.
    pub mailbox_wait: HistogramVec,
    /// Time inside the step.
    pub step: HistogramVec,
    /// Messages sent and not yet handled.
    pub mailbox_depth: IntGaugeVec,
    /// Messages that met a full mailbox and waited in the coalescing slot.
    pub overflows: IntCounterVec,
    /// Restarts.
    pub restarts: IntCounterVec,
    /// Effects that have not ended.
    pub effects_in_flight: IntGaugeVec,
    /// Effects that ended, by result.
    pub effects: IntCounterVec,
    /// How long effects took.
    pub effect_duration: HistogramVec,
}

impl ActorMetrics {
    /// Counts a message as handled, and times it until the answer is dropped. For the actors
    /// that are no step functions in a shell.
    #[must_use]
    pub fn handling(&self, actor: &str, message: &str) -> HistogramTimer {
        self.messages.with_label_values(&[actor, message]).inc();
        let step = self.step.with_label_values(&[actor, message]);
        HistogramTimer {
            step,
            started: Instant::now(),
        }
    }
}

/// Times something until it is dropped, on tokio's clock.
pub struct HistogramTimer {
    step: prometheus::Histogram,
    started: Instant,
}

impl Drop for HistogramTimer {
    fn drop(&mut self) {
        self.step.observe(self.started.elapsed().as_secs_f64());
    }
}

/// Requests to one server.
pub struct RequestMetrics {
    total: IntCounterVec,
    duration: HistogramVec,
}

impl RequestMetrics {
    /// Notes the end of a request. `labels` are those of the counter; the duration goes without
    /// the last one, the code.
    pub fn ended(&self, labels: &[&str], took: Duration) {
        self.total.with_label_values(labels).inc();
        let without_code = &labels[..labels.len().saturating_sub(1)];
        self.duration
            .with_label_values(without_code)
            .observe(took.as_secs_f64());
    }
}

/// `gha_controller_*`, the names ARC's users scrape.
pub struct PoolMetrics {
    /// Runners without a job so far.
    pub pending: GaugeVec,
    /// Runners with a job.
    pub running: GaugeVec,
    /// Runners that failed without a job.
    pub failed: GaugeVec,
    /// Listeners that run, 0 or 1.
    pub listeners: GaugeVec,
}

impl Metrics {
    /// Declares all metrics in a registry of their own.
    ///
    /// # Errors
    ///
    /// When a name is declared twice, which a test would have shown.
    pub fn new() -> Result<Self, prometheus::Error> {
        let mut d = Declarations::default();
        let actors = ActorMetrics {
            live: d.gauge("impresario_actors", "Live actors.", &["actor"])?,
            messages: d.counter(
                "impresario_actor_messages_total",
                "Messages handled.",
                &["actor", "message"],
            )?,
            mailbox_wait: d.histogram(
                "impresario_actor_mailbox_wait_seconds",
                "Time between a message's sending and its handling.",
                &["actor", "message"],
                SHORT,
            )?,
            step: d.histogram(
                "impresario_actor_step_duration_seconds",
                "Time a step function took to decide.",
                &["actor", "message"],
                SHORT,
            )?,
            mailbox_depth: d.gauge(
                "impresario_actor_mailbox_messages",
                "Messages sent and not yet handled.",
                &["actor"],
            )?,
            overflows: d.counter(
                "impresario_actor_mailbox_overflows_total",
                "Messages that met a full mailbox and waited, coalesced by object, outside of it.",
                &["actor"],
            )?,
            restarts: d.counter(
                "impresario_actor_restarts_total",
                "Actors made anew, by reason; a panic is a bug to report.",
                &["actor", "reason"],
            )?,
            effects_in_flight: d.gauge(
                "impresario_effects_in_flight",
                "Effects that have not ended.",
                &["actor", "effect"],
            )?,
            effects: d.counter(
                "impresario_effects_total",
                "Effects that ended, by result.",
                &["actor", "effect", "result"],
            )?,
            effect_duration: d.histogram(
                "impresario_effect_duration_seconds",
                "How long effects took, waiting for a free slot included.",
                &["actor", "effect"],
                REQUEST,
            )?,
        };
        let kubernetes = RequestMetrics {
            total: d.counter(
                "impresario_kubernetes_requests_total",
                "Requests to the API server but for watches and Events, by HTTP status code, or \
                 `none` without an answer.",
                &["verb", "kind", "code"],
            )?,
            duration: d.histogram(
                "impresario_kubernetes_request_duration_seconds",
                "How long these requests to the API server took.",
                &["verb", "kind"],
                REQUEST,
            )?,
        };
        let actions = RequestMetrics {
            total: d.counter(
                "impresario_actions_requests_total",
                "Requests to the Actions service and to vaults, by HTTP status code, or `none` \
                 without an answer.",
                &["call", "code"],
            )?,
            duration: d.histogram(
                "impresario_actions_request_duration_seconds",
                "How long requests to the Actions service and to vaults took.",
                &["call"],
                REQUEST,
            )?,
        };
        let pool = [
            "name",
            "namespace",
            "repository",
            "organization",
            "enterprise",
        ];
        let pools = PoolMetrics {
            pending: d.float_gauge(
                "gha_controller_pending_ephemeral_runners",
                "Runners of a scale set without a job so far.",
                &pool,
            )?,
            running: d.float_gauge(
                "gha_controller_running_ephemeral_runners",
                "Runners of a scale set with a job.",
                &pool,
            )?,
            failed: d.float_gauge(
                "gha_controller_failed_ephemeral_runners",
                "Runners of a scale set that failed without a job.",
                &pool,
            )?,
            listeners: d.float_gauge(
                "gha_controller_running_listeners",
                "Whether the listener of a scale set runs.",
                &pool,
            )?,
        };
        let listener_recreations = d.counter(
            "impresario_listener_recreations_total",
            "Listener pods that had to be made again, by reason: the field that had drifted, \
             `config`, or how the pod ended.",
            &["reason"],
        )?;
        let watch_restarts = d.counter(
            "impresario_watch_restarts_total",
            "Watches that were started anew with a list, by kind and reason.",
            &["kind", "reason"],
        )?;
        let store_restorations = d.counter(
            "impresario_store_restorations_total",
            "Times that the API server's store was found to have gone back, as when etcd is \
             restored from a backup, by the kind whose list showed it. All objects are then read \
             anew.",
            &["kind"],
        )?;
        let missing_fields = d.gauge(
            "impresario_crd_missing_fields",
            "Fields that the CustomResourceDefinitions in the cluster lack, 1 each; annotations \
             stand in for them until `impresario crds` are applied.",
            &["kind", "field"],
        )?;
        let leader = d.gauge(
            "impresario_leader",
            "Whether this process holds the lease; 1 without leader election.",
            &["lease"],
        )?;
        let (registry, documentation) = d.finish();
        Ok(Self {
            registry,
            documentation,
            actors,
            kubernetes,
            actions,
            pools,
            listener_recreations,
            watch_restarts,
            store_restorations,
            missing_fields,
            leader,
        })
    }

    /// Counts what an actor decided.
    pub fn count(&self, tally: Tally) {
        match tally {
            Tally::ListenerRecreation { reason } => {
                self.listener_recreations.with_label_values(&[reason]).inc();
            }
        }
    }

    /// The registry, for the HTTP endpoint.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// A Markdown table of all metrics, as in `docs/metrics.md`.
    #[must_use]
    pub fn documentation(&self) -> &str {
        &self.documentation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_prometheus_conventions() {
        let metrics = Metrics::new().unwrap();
        for row in metrics.documentation().lines().skip(2) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let (name, kind) = (cells[1].trim_matches('`'), cells[2]);
            match kind {
                "counter" => assert!(name.ends_with("_total"), "{name}"),
                "histogram" => assert!(name.ends_with("_seconds"), "{name}"),
                _ => assert!(!name.ends_with("_total"), "{name}"),
            }
        }
    }
}
