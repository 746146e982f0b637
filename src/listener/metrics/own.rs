//! Metrics about the program itself, which ARC does not have.

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use super::register;

/// A metric's name, meaning and labels.
type Declared = (&'static str, &'static str, &'static [&'static str]);

pub(super) const ERRORS: Declared = (
    "impresario_listener_errors_total",
    "Things the listener tried that failed, by what and why.",
    &["operation", "kind"],
);
pub(super) const POLLS: Declared = (
    "impresario_listener_polls_total",
    "Polls of the message queue that have ended: message, empty, unreadable or error.",
    &["outcome"],
);
pub(super) const JOB_MESSAGES: Declared = (
    "impresario_listener_job_messages_total",
    "Parts of messages about jobs; those of a type that is not known are unknown.",
    &["type"],
);
pub(super) const REQUESTS: Declared = (
    "impresario_listener_actions_request_duration_seconds",
    "Time of requests to the Actions service and the vault, each retry for itself, by call and status.",
    &["call", "outcome"],
);

const REQUEST_BUCKETS: [f64; 11] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

pub(super) struct Own {
    pub(super) errors: IntCounterVec,
    pub(super) polls: IntCounterVec,
    pub(super) job_messages: IntCounterVec,
    pub(super) requests: HistogramVec,
}

impl Own {
    pub(super) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |(name, help, labels): Declared| {
            register(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let (name, help, labels) = REQUESTS;
        let options = HistogramOpts::new(name, help).buckets(REQUEST_BUCKETS.to_vec());
        Ok(Self {
            errors: counter(ERRORS)?,
            polls: counter(POLLS)?,
            job_messages: counter(JOB_MESSAGES)?,
            requests: register(registry, HistogramVec::new(options, labels)?)?,
        })
    }
}
