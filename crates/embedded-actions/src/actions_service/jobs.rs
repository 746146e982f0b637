//! Jobs: what is queued, and what became of it.

use std::time::Duration;

use super::world::Moment;
use wall_clock::Timestamp;

/// A job to be queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// What it runs on: names or labels of a scale set, which must have them all.
    pub runs_on: Vec<String>,
    /// Owner of its repository. Empty: that of the scale set that takes it.
    pub owner: String,
    /// Its repository. Empty: that of the scale set that takes it.
    pub repository: String,
    /// Its name as people see it.
    pub display_name: String,
    /// Workflow file and ref.
    pub workflow_ref: String,
    /// Event that started the workflow.
    pub event_name: String,
    /// How long a simulated runner works on it.
    pub duration: Duration,
    /// How it ends, unless its runner is lost.
    pub result: String,
    /// For how long its runner goes on when the service has said that the job has ended: with the
    /// steps that clean up after a job that was cancelled, say.
    pub cleanup: Duration,
}

impl JobSpec {
    /// A job of a minute, which succeeds, for the scale set of this name or label.
    pub fn on(runs_on: impl Into<String>) -> Self {
        Self {
            runs_on: vec![runs_on.into()],
            owner: String::new(),
            repository: String::new(),
            display_name: "build".to_owned(),
            workflow_ref: "acme/widgets/.github/workflows/build.yaml@refs/heads/main".to_owned(),
            event_name: "push".to_owned(),
            duration: Duration::from_secs(60),
            result: "succeeded".to_owned(),
            cleanup: Duration::ZERO,
        }
    }

    /// With another duration.
    #[must_use]
    pub const fn lasting(mut self, duration: Duration) -> Self {
        self.duration = duration;
        self
    }

    /// Whose runner goes on for so long after its end.
    #[must_use]
    pub const fn cleaning_up(mut self, cleanup: Duration) -> Self {
        self.cleanup = cleanup;
        self
    }

    /// With another name.
    #[must_use]
    pub fn named(mut self, display_name: impl Into<String>) -> Self {
        self.display_name = display_name.into();
        self
    }
}

/// A job, and what became of it so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Id under which it is acquired; ids grow in the order of queueing.
    pub id: i64,
    /// What was queued.
    pub spec: JobSpec,
    /// Where it stands.
    pub state: JobState,
    /// When it was queued.
    pub queued: Timestamp,
    /// When a scale set got it.
    pub assigned: Option<Timestamp>,
    /// When a runner started it.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub completed: Option<Timestamp>,
    /// The scale set that got it.
    pub scale_set_id: Option<i64>,
    /// The runner that started it.
    pub runner_id: Option<i64>,
    /// That runner's name; empty without one.
    pub runner_name: String,
    /// How it ended; empty before.
    pub result: String,
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// On offer to no scale set.
    Queued,
    /// On offer to a scale set.
    Available,
    /// Assigned to a scale set, without a runner.
    Assigned,
    /// A runner has it.
    Running,
    /// It has ended.
    Completed,
}

impl Job {
    pub(super) const fn new(id: i64, spec: JobSpec, now: Moment) -> Self {
        Self {
            id,
            spec,
            state: JobState::Queued,
            queued: now.time,
            assigned: None,
            started: None,
            completed: None,
            scale_set_id: None,
            runner_id: None,
            runner_name: String::new(),
            result: String::new(),
        }
    }

    /// The job's id in the form the service gives it to workflows.
    #[must_use]
    pub fn job_id(&self) -> String {
        format!("00000000-0000-4000-9000-{:012x}", self.id)
    }

    /// The message that tells of it.
    pub(super) fn message(&self, message_type: &str) -> serde_json::Value {
        let time = |time: Option<Timestamp>| match time {
            Some(time) => time.to_string(),
            None => "0001-01-01T00:00:00Z".to_owned(),
        };
        let mut message = serde_json::json!({
            "messageType": message_type,
            "runnerRequestId": self.id,
            "repositoryName": self.spec.repository,
            "ownerName": self.spec.owner,
            "jobId": self.job_id(),
            "jobWorkflowRef": self.spec.workflow_ref,
            "jobDisplayName": self.spec.display_name,
            "workflowRunId": 9_000_000_000 + self.id,
            "eventName": self.spec.event_name,
            "requestLabels": self.spec.runs_on,
            "queueTime": time(Some(self.queued)),
            "scaleSetAssignTime": time(self.assigned),
            "runnerAssignTime": time(self.started),
            "finishTime": time(self.completed),
        });
        if matches!(message_type, "JobStarted" | "JobCompleted") {
            message["runnerId"] = self.runner_id.unwrap_or_default().into();
            message["runnerName"] = self.runner_name.as_str().into();
        }
        if message_type == "JobCompleted" {
            message["result"] = self.result.as_str().into();
        }
        message
    }
}
