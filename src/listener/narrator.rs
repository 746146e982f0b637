//! Tells log and metrics what happened. In the log, a message says what a person can do about
//! it where there is something.

use std::sync::Arc;

use super::failure::{Failure, FailureKind};
use super::metrics::ListenerMetrics;
use super::session::{Note, Record};

pub(super) struct Narrator {
    metrics: Arc<ListenerMetrics>,
    /// Under which name this program opens sessions.
    owner: String,
}

impl Narrator {
    pub(super) const fn new(metrics: Arc<ListenerMetrics>, owner: String) -> Self {
        Self { metrics, owner }
    }

    pub(super) fn tell(&self, notes: Vec<Note>) {
        for note in notes {
            self.count(&note);
            match &note {
                Note::Held(failure) => tracing::warn!(
                    error = %failure,
                    hint = self.hint_of_held(failure),
                    "another session of this scale set is open; waiting for it to end"
                ),
                note => log(note),
            }
        }
    }

    /// The service names the holder. A pod made again has the name of the one before.
    fn hint_of_held(&self, failure: &Failure) -> &'static str {
        if !self.owner.is_empty() && failure.message.contains(&self.owner) {
            "it is that of an earlier run of this listener, which could not close it; the service \
             ends it by itself"
        } else {
            "the holder is named in the error; should it be a listener that is not to run, stop it"
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
        Note::SessionLost(failure) => {
            tracing::warn!(error = %failure, "the message session is lost, opening another");
        }
        Note::NotAcquired(count) => tracing::debug!(count, "jobs on offer have gone to others"),
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
        // counted only, and told by the caller
        Note::Part(_) | Note::Held(_) => {}
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
        (FailureKind::ScaleSetNotFound, _) => {
            "it is asked for a few times more; then this listener ends, and the controller \
             registers the scale set again"
        }
        _ => "it is tried again",
    }
}
