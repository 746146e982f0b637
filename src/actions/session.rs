//! Message sessions, and the messages that come over their queue.
//!
//! Messages are read leniently, field by field: what cannot be understood must never keep
//! a listener from the rest of the message.

use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::clock::Timestamp;

/// An open message session of a scale set. There is at most one per scale set.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// Who holds it.
    pub owner_name: String,
    /// Where its messages are.
    pub queue_url: String,
    /// What opens the queue; expires long before the session does.
    pub queue_token: SecretString,
    /// The scale set's jobs and runners when the session was opened.
    pub statistics: Option<Statistics>,
}

/// How many jobs and runners a scale set has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Jobs on offer, taken by nobody yet.
    pub available_jobs: i64,
    /// Jobs taken by the scale set and not yet assigned to it.
    pub acquired_jobs: i64,
    /// Jobs assigned to the scale set, running or not: the demand.
    pub assigned_jobs: i64,
    /// Jobs that run.
    pub running_jobs: i64,
    /// Runners that are registered.
    pub registered_runners: i64,
    /// Runners with a job.
    pub busy_runners: i64,
    /// Runners that are online and without a job.
    pub idle_runners: i64,
}

/// What a poll of the queue brought.
#[derive(Clone, Debug, PartialEq)]
pub enum Polled {
    /// No message within the time that the service holds a poll.
    None,
    /// A message.
    Message(Message),
    /// A success that cannot be read. Not an error: the poll is simply repeated.
    Unreadable {
        /// HTTP status.
        status: u16,
        /// What is wrong with it.
        problem: String,
    },
}

/// One message. It comes again until it is acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Its id; ids grow.
    pub id: i64,
    /// The scale set's jobs and runners when the message was made.
    pub statistics: Option<Statistics>,
    /// What happened, in the service's order.
    pub jobs: Vec<JobMessage>,
}

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq)]
pub enum JobMessage {
    /// It is on offer, and can be acquired.
    Available(JobDetails),
    /// It is assigned to the scale set and waits for a runner.
    Assigned(JobDetails),
    /// A runner has started it.
    Started(JobDetails),
    /// It has ended.
    Completed(JobDetails),
    /// Something that this client cannot understand.
    Unknown {
        /// What the service calls it; empty when it says nothing.
        message_type: String,
    },
}

/// A job, as far as a message tells. What the service leaves out is empty, 0 or `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobDetails {
    /// Id under which the job is acquired.
    pub runner_request_id: i64,
    /// Repository's name, without its owner.
    pub repository_name: String,
    /// Repository's owner.
    pub owner_name: String,
    /// The job's id.
    pub job_id: String,
    /// Workflow file and ref: `owner/repository/.github/workflows/file@ref`.
    pub job_workflow_ref: String,
    /// The job's name as people see it.
    pub job_display_name: String,
    /// Workflow run.
    pub workflow_run_id: i64,
    /// Event that started the workflow.
    pub event_name: String,
    /// Labels that the job asks for.
    pub request_labels: Vec<String>,
    /// When it was queued.
    pub queue_time: Option<Timestamp>,
    /// When it was assigned to the scale set.
    pub scale_set_assign_time: Option<Timestamp>,
    /// When it was assigned to a runner.
    pub runner_assign_time: Option<Timestamp>,
    /// When it ended.
    pub finish_time: Option<Timestamp>,
    /// The runner's id; started and completed jobs only.
    pub runner_id: i64,
    /// The runner's name; started and completed jobs only.
    pub runner_name: String,
    /// How it ended; completed jobs only.
    pub result: String,
}

/// The one type of message there is.
const JOB_MESSAGES: &str = "RunnerScaleSetJobMessages";

impl Polled {
    /// Reads the body of a 200 on the queue.
    pub(super) fn read(status: u16, body: &[u8]) -> Self {
        let unreadable = |problem: String| Self::Unreadable { status, problem };
        let envelope = match serde_json::from_slice::<Value>(body) {
            Ok(Value::Object(envelope)) => envelope,
            Ok(_) => return unreadable("the message is not a JSON object".to_owned()),
            Err(error) => return unreadable(format!("the message is not JSON: {error}")),
        };
        let Some(id) = envelope.get("messageId").and_then(Value::as_i64) else {
            return unreadable("the message has no messageId".to_owned());
        };
        Self::Message(Message {
            id,
            statistics: envelope.get("statistics").and_then(Statistics::read),
            jobs: job_messages(&envelope),
        })
    }
}

fn job_messages(envelope: &Map<String, Value>) -> Vec<JobMessage> {
    let message_type = text(envelope, "messageType");
    if message_type != JOB_MESSAGES {
        return vec![JobMessage::Unknown { message_type }];
    }
    let body = match envelope.get("body") {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::String(body)) if body.trim().is_empty() => return Vec::new(),
        Some(Value::String(body)) => serde_json::from_str(body).unwrap_or(Value::Null),
        Some(other) => other.clone(),
    };
    match body {
        Value::Array(elements) => elements.iter().map(JobMessage::read).collect(),
        _ => vec![JobMessage::Unknown { message_type }],
    }
}

impl JobMessage {
    fn read(element: &Value) -> Self {
        let Value::Object(fields) = element else {
            return Self::Unknown {
                message_type: String::new(),
            };
        };
        let message_type = text(fields, "messageType");
        let make = match message_type.as_str() {
            "JobAvailable" => Self::Available,
            "JobAssigned" => Self::Assigned,
            "JobStarted" => Self::Started,
            "JobCompleted" => Self::Completed,
            _ => return Self::Unknown { message_type },
        };
        let details = JobDetails::read(fields);
        // Without its request id, nothing can be done with the news of a job.
        if details.runner_request_id == 0 {
            return Self::Unknown { message_type };
        }
        make(details)
    }
}

impl JobDetails {
    fn read(fields: &Map<String, Value>) -> Self {
        Self {
            runner_request_id: number(fields, "runnerRequestId"),
            repository_name: text(fields, "repositoryName"),
            owner_name: text(fields, "ownerName"),
            job_id: text(fields, "jobId"),
            job_workflow_ref: text(fields, "jobWorkflowRef"),
            job_display_name: text(fields, "jobDisplayName"),
            workflow_run_id: number(fields, "workflowRunId"),
            event_name: text(fields, "eventName"),
            request_labels: texts(fields, "requestLabels"),
            queue_time: time(fields, "queueTime"),
            scale_set_assign_time: time(fields, "scaleSetAssignTime"),
            runner_assign_time: time(fields, "runnerAssignTime"),
            finish_time: time(fields, "finishTime"),
            runner_id: number(fields, "runnerId"),
            runner_name: text(fields, "runnerName"),
            result: text(fields, "result"),
        }
    }
}

impl Statistics {
    /// Reads them. Without the number of assigned jobs, the demand, they are as good as missing.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        let fields = value.as_object()?;
        fields.get("totalAssignedJobs")?.as_i64()?;
        Some(Self {
            available_jobs: number(fields, "totalAvailableJobs"),
            acquired_jobs: number(fields, "totalAcquiredJobs"),
            assigned_jobs: number(fields, "totalAssignedJobs"),
            running_jobs: number(fields, "totalRunningJobs"),
            registered_runners: number(fields, "totalRegisteredRunners"),
            busy_runners: number(fields, "totalBusyRunners"),
            idle_runners: number(fields, "totalIdleRunners"),
        })
    }
}

fn text(fields: &Map<String, Value>, key: &str) -> String {
    let value = fields.get(key).and_then(Value::as_str);
    value.unwrap_or_default().to_owned()
}

fn texts(fields: &Map<String, Value>, key: &str) -> Vec<String> {
    let values = fields.get(key).and_then(Value::as_array);
    let texts = values.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

fn number(fields: &Map<String, Value>, key: &str) -> i64 {
    fields.get(key).and_then(Value::as_i64).unwrap_or_default()
}

/// A time; `None` when it is missing, unreadable, or .NET's and Go's way to say unset.
fn time(fields: &Map<String, Value>, key: &str) -> Option<Timestamp> {
    let text = fields.get(key)?.as_str()?;
    if text.starts_with("0001-01-01T") {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn poll(body: &Value) -> Polled {
        Polled::read(200, body.to_string().as_bytes())
    }

    fn message(elements: &Value) -> Message {
        let body = json!({
            "messageId": 41, "messageType": JOB_MESSAGES, "body": elements.to_string(),
            "statistics": {"totalAssignedJobs": 3, "totalIdleRunners": null},
        });
        match poll(&body) {
            Polled::Message(message) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_field_of_a_job_is_read() {
        let message = message(&json!([{
            "messageType": "JobCompleted", "runnerRequestId": 7001, "repositoryName": "widgets",
            "ownerName": "acme", "jobId": "c0ffee", "jobWorkflowRef": "acme/widgets/w.yml@main",
            "jobDisplayName": "build", "workflowRunId": 88, "eventName": "push",
            "requestLabels": ["gpu", "big"], "queueTime": "2026-01-02T03:04:05Z",
            "scaleSetAssignTime": "2026-01-02T03:04:06.5Z",
            "runnerAssignTime": "2026-01-02T03:04:07.1234567Z",
            "finishTime": "0001-01-01T00:00:00Z", "runnerId": 12, "runnerName": "ci-runner-x",
            "result": "succeeded", "somethingNew": {},
        }]));
        assert_eq!(message.id, 41);
        assert_eq!(message.statistics.unwrap().assigned_jobs, 3);
        let [JobMessage::Completed(job)] = message.jobs.as_slice() else {
            panic!("{message:?}");
        };
        let expected = JobDetails {
            runner_request_id: 7001,
            repository_name: "widgets".into(),
            owner_name: "acme".into(),
            job_id: "c0ffee".into(),
            job_workflow_ref: "acme/widgets/w.yml@main".into(),
            job_display_name: "build".into(),
            workflow_run_id: 88,
            event_name: "push".into(),
            request_labels: vec!["gpu".into(), "big".into()],
            queue_time: "2026-01-02T03:04:05Z".parse().ok(),
            scale_set_assign_time: "2026-01-02T03:04:06.5Z".parse().ok(),
            runner_assign_time: "2026-01-02T03:04:07.1234567Z".parse().ok(),
            finish_time: None,
            runner_id: 12,
            runner_name: "ci-runner-x".into(),
            result: "succeeded".into(),
        };
        assert_eq!(*job, expected);
    }

    #[test]
    fn a_bad_element_does_not_spoil_the_good_ones() {
        let message = message(&json!([
            17,
            {"messageType": "JobStarted", "runnerRequestId": "seven"},
            {"messageType": "JobPaused", "runnerRequestId": 3},
            {"messageType": "JobAvailable", "runnerRequestId": 4, "queueTime": "soon"},
        ]));
        let types = message.jobs.iter().map(|job| match job {
            JobMessage::Unknown { message_type } => message_type.as_str(),
            JobMessage::Available(job) if job.runner_request_id == 4 => "4",
            other => panic!("{other:?}"),
        });
        assert_eq!(
            types.collect::<Vec<_>>(),
            ["", "JobStarted", "JobPaused", "4"]
        );
    }

    #[test]
    fn a_message_whose_body_is_garbage_can_still_be_acknowledged() {
        for body in [json!("{"), json!("7"), json!({"a": 1})] {
            let polled = poll(&json!({"messageId": 9, "messageType": JOB_MESSAGES, "body": body}));
            let Polled::Message(message) = polled else {
                panic!("{polled:?}");
            };
            assert_eq!(message.id, 9);
            assert!(matches!(message.jobs[..], [JobMessage::Unknown { .. }]));
        }
    }

    #[test]
    fn an_empty_body_is_a_message_without_jobs() {
        for body in [json!(null), json!(""), json!("[]")] {
            let polled = poll(&json!({"messageId": 9, "messageType": JOB_MESSAGES, "body": body}));
            let jobs = Vec::new();
            let statistics = None;
            let expected = Message {
                id: 9,
                statistics,
                jobs,
            };
            assert_eq!(polled, Polled::Message(expected));
        }
    }

    #[test]
    fn a_message_without_an_id_is_unreadable_and_no_error() {
        for body in ["", "<html>", "[]", "{}", r#"{"messageId":"x"}"#] {
            let polled = Polled::read(200, body.as_bytes());
            assert!(
                matches!(polled, Polled::Unreadable { status: 200, .. }),
                "{body}"
            );
        }
    }
}
