//! Tells log and metrics what happened. In the log, a message says what a person can do about
//! it where there is something.

use std::sync::Arc;

use super::failure::{Failure, FailureKind};
use super::metrics::ListenerMetrics;
use super::session::{Note, Record};

pub(super) struct Narrator {
    metrics: Arc<ListenerMetrics>,
}

impl Narrator {
    pub(super) const fn new(metrics: Arc<ListenerMetrics>) -> Self {
        Self { metrics }
    }

    pub(super) fn tell(&self, notes: Vec<Note>) {
        for note in notes {
            self.count(&note);
            log(&note);
        }
    }

    fn count(&self, note: &Note) {
        match note {
            Note::Statistics(statistics) => self.metrics.statistics(statistics),
            Note::Desired(publication) => {
                self.metrics.desired_runners(publication.patch.replicas);
            }
            Note::Polled(outcome) => self.metrics.poll(outcome),
            Note::Part(message_type) => self.metrics.job_message(message_type),
            Note::Started(job) => self.metrics.job_started(job),
            Note::Completed(job) => self.metrics.job_completed(job),
            Note::Failed(operation, failure) => {
                self.metrics.error(operation, failure.kind.as_str());
            }
            Note::Held(failure) => {
                self.metrics.error("open_session", failure.kind.as_str());
            }
            Note::GivenUp(operation, _) => self.metrics.error(operation, "given_up"),
            _ => {}
        }
    }
}

fn log(note: &Note) {
    match note {
        Note::SessionOpened => tracing::info!("message session opened"),
        Note::SessionLost => {
            tracing::warn!(
                "the service does not know the message session any more, opening another"
            );
        }
        Note::SessionClosed => tracing::info!("message session deleted"),
        Note::Statistics(statistics) => tracing::debug!(?statistics, "statistics"),
        Note::Desired(publication) => tracing::debug!(
            replicas = publication.patch.replicas,
            patch_id = publication.patch.patch_id,
            "target"
        ),
        Note::Polled(outcome) => tracing::debug!(outcome, "poll ended"),
        Note::Unreadable(problem) => {
            tracing::warn!(problem, "the queue's answer cannot be read, polling again");
        }
        Note::Message(id, parts) => tracing::debug!(id, parts, "message"),
        Note::Duplicate(id) => {
            tracing::debug!(id, "message was handled before, acknowledging it again");
        }
        // counted only
        Note::Part(_) => {}
        Note::Unknown(message_type) => {
            tracing::warn!(
                message_type,
                "part of a message is of no known type, leaving it out"
            );
        }
        Note::Started(job) => tracing::info!(
            job = job.job_display_name,
            job_id = job.job_id,
            request_id = job.runner_request_id,
            runner = job.runner_name,
            "job started"
        ),
        Note::Completed(job) => tracing::info!(
            job = job.job_display_name,
            job_id = job.job_id,
            request_id = job.runner_request_id,
            runner = job.runner_name,
            result = job.result,
            "job completed"
        ),
        Note::NotRecorded(record, reason) => {
            let what = match record {
                Record::Started(_) => "start",
                Record::Completed(_) => "end",
            };
            let job = record.job();
            tracing::info!(
                what,
                job_id = job.job_id,
                runner = job.runner_name,
                reason,
                "not recorded on its runner"
            );
        }
        Note::Failed(operation, failure) => {
            tracing::warn!(operation, error = %failure, hint = hint(operation, failure), "failed");
        }
        Note::Held(failure) => tracing::warn!(
            error = %failure,
            "another session of this scale set is open; waiting for it to end"
        ),
        Note::PutOff(records) => tracing::warn!(
            records,
            "runners could not be written for a minute; going on, and trying again after each poll"
        ),
        Note::GivenUp(operation, reason) => tracing::error!(operation, reason, "given up"),
        Note::Retry(wait) => tracing::debug!(seconds = wait.as_secs_f32(), "trying again later"),
    }
}

/// What a person can do.
fn hint(operation: &str, failure: &Failure) -> &'static str {
    let kubernetes = matches!(operation, "publish" | "record");
    match (failure.kind, kubernetes) {
        (FailureKind::Refused, true) => {
            "the listener's Role or RoleBinding lacks a permission; the controller sets them back"
        }
        (FailureKind::NotFound, true) => {
            "the EphemeralRunnerSet does not exist; the controller makes it again"
        }
        (FailureKind::Refused, false) => {
            "GitHub refuses the credentials; check the token or the GitHub App, its permissions \
             and githubConfigUrl"
        }
        (FailureKind::NotFound, false) => {
            "the scale set does not exist in GitHub any more; the controller registers it again \
             and replaces this listener"
        }
        _ => "it is tried again",
    }
}
