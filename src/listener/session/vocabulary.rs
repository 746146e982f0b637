//! The words of the listener's decisions: tasks, how they end, and what is worth telling.

use std::time::Duration;

use crate::actions::{JobDetails, JobMessage, Polled, Statistics};
use crate::listener::failure::Failure;
use crate::listener::scaler::Publication;

/// What to do now.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::listener) enum Task {
    /// Open a message session.
    Open,
    /// Get a new queue token.
    Refresh,
    /// Write the target to the runner set.
    Publish(Publication),
    /// Wait for a message.
    Poll {
        /// Id of the last message that is done with.
        after: i64,
        /// Most jobs the scale set can have.
        capacity: i64,
    },
    /// Acquire jobs on offer, by request id.
    Acquire(Vec<i64>),
    /// Record what happened on runners.
    Record(Vec<Record>),
    /// Acknowledge a message.
    Acknowledge(i64),
    /// Wait.
    Wait(Duration),
    /// Delete the session.
    Close,
    /// End the program; with a reason when it cannot go on.
    End(Option<Failure>),
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::listener) enum Outcome {
    /// Of `Open`, with the scale set's statistics.
    Opened(Result<Option<Statistics>, Failure>),
    /// Of `Refresh`, with the scale set's statistics.
    Refreshed(Result<Option<Statistics>, Failure>),
    /// Of `Publish`.
    Published(Result<(), Failure>),
    /// Of `Poll`, with how long it took.
    Polled(Result<Polled, Failure>, Duration),
    /// Of `Acquire`, with the ids acquired.
    Acquired(Result<Vec<i64>, Failure>),
    /// Of `Record`, one for each in the same order.
    Recorded(Vec<Result<Recording, Failure>>),
    /// Of `Acknowledge`.
    Acknowledged(Result<(), Failure>),
    /// Of `Wait`.
    Waited,
    /// Of `Close`.
    Closed(Result<(), Failure>),
    /// Of any task that was given up.
    Dropped,
}

/// Something to be recorded on a runner.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::listener) enum Record {
    /// It has started a job.
    Started(JobDetails),
    /// Its job has ended.
    Completed(JobDetails),
}

impl Record {
    pub(in crate::listener) const fn job(&self) -> &JobDetails {
        match self {
            Self::Started(job) | Self::Completed(job) => job,
        }
    }
}

/// How a record was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::listener) enum Recording {
    /// It is written now.
    New,
    /// It stood there already.
    Already,
    /// There is no such runner, or it is about another job; the text says which.
    Skipped(String),
}

/// Something worth a log line or a metric.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::listener) enum Note {
    /// A session is open.
    SessionOpened,
    /// So many of the jobs on offer were not acquired: others have them.
    NotAcquired(usize),
    /// The session was lost, as the failure says; a new one is opened.
    SessionLost(Failure),
    /// The session is deleted.
    SessionClosed,
    /// The scale set's jobs and runners.
    Statistics(Statistics),
    /// The target.
    Desired(Publication),
    /// A poll ended: `message`, `empty`, `unreadable` or `error`.
    Polled(&'static str),
    /// A poll was answered with something unreadable; the text says what.
    Unreadable(String),
    /// A message came, with so many parts.
    Message(i64, usize),
    /// A message came again.
    Duplicate(i64),
    /// A part of a message, by its type.
    Part(&'static str),
    /// A part of a message of a type that is not known.
    Unknown(String),
    /// A job was started.
    Started(JobDetails),
    /// A job has ended.
    Completed(JobDetails),
    /// Something was not recorded, for this reason.
    NotRecorded(Record, String),
    /// Something failed and is tried again after the wait.
    Failed(&'static str, Failure),
    /// So many records are put off until after the next poll.
    PutOff(usize),
    /// Something failed and is not tried again.
    GivenUp(&'static str, String),
    /// The session is held by someone else, as the failure says.
    Held(Failure),
    /// Another try is made after this wait.
    Retry(Duration),
}

/// One step's result.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::listener) struct Step {
    /// What happened, in order.
    pub notes: Vec<Note>,
    /// What to do now.
    pub task: Task,
}

/// What becomes of the task under way when the program is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::listener) enum Stop {
    /// It is dropped at once.
    Drop,
    /// It may go on for so long.
    Await(Duration),
}

pub(super) const fn part_name(part: &JobMessage) -> &'static str {
    match part {
        JobMessage::Available(_) => "available",
        JobMessage::Assigned(_) => "assigned",
        JobMessage::Started(_) => "started",
        JobMessage::Completed(_) => "completed",
        JobMessage::Unknown { .. } => "unknown",
    }
}
