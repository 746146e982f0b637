//! What the listener does next: the life of its message session, and what becomes of each
//! message.
//!
//! Pure. [`Session::step`] takes how the last task ended and answers with the next one; there
//! is one task at a time. It is level triggered: an outcome goes into the state, and the next
//! task is the first thing that the state says is missing. So every path (a token that
//! expires while a message is in hand, say) comes back to where it was by itself.

use std::collections::BTreeSet;
use std::time::Duration;

use super::failure::{Failure, FailureKind};
use super::scaler::{Publication, Scaler};
use crate::actions::{JobDetails, JobMessage, Message, Polled, Statistics};

/// How long parts of a message that keep failing hold up the queue once the target is
/// published. A part is not given up while the target cannot be published either: nothing
/// would be gained by polling then.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often an acknowledgement is tried. A message that stays is met again and known.
const ACKNOWLEDGEMENTS: u32 = 3;
/// How many ids of finished messages are remembered.
const REMEMBERED: usize = 256;
/// A poll that brings nothing sooner than this was not held by the service.
const HELD: Duration = Duration::from_secs(1);
/// Longest wait that the other side can ask for. Polls must end more often than the liveness
/// limit.
const LONGEST_ASKED: Duration = Duration::from_secs(120);
/// After a signal, how long the message in hand may take.
const FINISHING: Duration = Duration::from_secs(30);
/// After a signal, how long an answer that would open a session is waited for.
const SETTLING: Duration = Duration::from_secs(15);

/// What to do now.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Task {
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
pub(super) enum Outcome {
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
pub(super) enum Record {
    /// It has started a job.
    Started(JobDetails),
    /// Its job has ended.
    Completed(JobDetails),
}

impl Record {
    pub(super) const fn job(&self) -> &JobDetails {
        match self {
            Self::Started(job) | Self::Completed(job) => job,
        }
    }
}

/// How a record was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Recording {
    /// It is written now.
    New,
    /// It stood there already.
    Already,
    /// There is no such runner, or it is about another job; the text says which.
    Skipped(String),
}

/// Something worth a log line or a metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Note {
    /// A session is open.
    SessionOpened,
    /// The session was lost; a new one is opened.
    SessionLost,
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
    /// Something failed and is not tried again.
    GivenUp(&'static str, String),
    /// The session is held by someone else, as the failure says.
    Held(Failure),
    /// Another try is made after this wait.
    Retry(Duration),
}

/// One step's result.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    /// What happened, in order.
    pub notes: Vec<Note>,
    /// What to do now.
    pub task: Task,
}

/// What becomes of the task under way when the program is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It is dropped at once.
    Drop,
    /// It may go on for so long.
    Await(Duration),
}

/// The state of the listener program.
#[derive(Clone, Debug)]
pub(super) struct Session {
    scaler: Scaler,
    capacity: i64,
    /// Spreads the waits of listeners that failed together.
    seed: i64,
    open: bool,
    /// The queue token has to be replaced.
    stale: bool,
    /// The queue token was replaced and nothing has been done with it since.
    fresh: bool,
    cursor: i64,
    hand: Option<Hand>,
    due: Option<Publication>,
    handled: BTreeSet<i64>,
    /// Failures since the loop last went round.
    failures: u32,
    wait: Option<Duration>,
    pause_before_poll: Option<Duration>,
    /// When to end, once it is told to.
    end_by: Option<Duration>,
    closed: bool,
    fatal: Option<Failure>,
    task: Task,
    notes: Vec<Note>,
}

/// The message in hand: what of it is still to be done.
#[derive(Clone, Debug)]
struct Hand {
    id: i64,
    duplicate: bool,
    since: Duration,
    acquire: Vec<i64>,
    records: Vec<Pending>,
    acknowledgements: u32,
    /// What was tried in this round; what is left after a round waits for the next.
    tried: Tried,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    acquire: bool,
    record: bool,
    publish: bool,
}

#[derive(Clone, Debug)]
struct Pending {
    record: Record,
    /// It may have been written although the answer was a failure.
    tried: bool,
}

impl Session {
    /// A program that has not begun. `seed` spreads its waits against those of others.
    pub(super) const fn new(min_runners: i64, max_runners: i64, seed: i64) -> Self {
        Self {
            scaler: Scaler::new(min_runners, max_runners),
            capacity: max_runners,
            seed,
            open: false,
            stale: false,
            fresh: false,
            cursor: 0,
            hand: None,
            due: None,
            handled: BTreeSet::new(),
            failures: 0,
            wait: None,
            pause_before_poll: None,
            end_by: None,
            closed: false,
            fatal: None,
            task: Task::Open,
            notes: Vec::new(),
        }
    }

    /// Whether a session is open.
    pub(super) const fn is_open(&self) -> bool {
        self.open
    }

    /// The first task.
    pub(super) fn start(&mut self, now: Duration) -> Step {
        self.proceed(now)
    }

    /// Takes how the task ended and answers with the next. `now` is time since any fixed
    /// moment.
    pub(super) fn step(&mut self, now: Duration, outcome: Outcome) -> Step {
        match outcome {
            Outcome::Opened(result) => self.opened(result),
            Outcome::Refreshed(result) => self.refreshed(result),
            Outcome::Published(result) => self.published(result),
            Outcome::Polled(result, took) => self.polled(now, result, took),
            Outcome::Acquired(result) => self.acquired(result),
            Outcome::Recorded(results) => self.recorded(results),
            Outcome::Acknowledged(result) => self.acknowledged(result),
            Outcome::Closed(result) => self.session_closed(result),
            Outcome::Waited => {}
            Outcome::Dropped => self.dropped(),
        }
        self.proceed(now)
    }

    /// Takes the order to stop, and says what becomes of the task under way.
    pub(super) fn stop(&mut self, now: Duration) -> Stop {
        let limit = if self.hand.is_some() {
            FINISHING
        } else {
            SETTLING
        };
        self.end_by = Some(now + limit);
        match self.task {
            Task::Poll { .. } | Task::Wait(_) => Stop::Drop,
            Task::Publish(_) if self.hand.is_none() => Stop::Drop,
            _ => Stop::Await(limit),
        }
    }

    fn proceed(&mut self, now: Duration) -> Step {
        self.task = self.next(now);
        if let Task::Wait(wait) = self.task
            && self.failures > 0
        {
            self.notes.push(Note::Retry(wait));
        }
        Step {
            notes: std::mem::take(&mut self.notes),
            task: self.task.clone(),
        }
    }

    /// The first thing that is missing.
    fn next(&mut self, now: Duration) -> Task {
        if let Some(end_by) = self.end_by
            && (self.hand.is_none() || now >= end_by || self.fatal.is_some() || !self.open)
        {
            return if self.open && !self.closed {
                Task::Close
            } else {
                Task::End(self.fatal.take())
            };
        }
        if let Some(wait) = self.wait.take() {
            return Task::Wait(self.bounded(now, wait));
        }
        if !self.open {
            return Task::Open;
        }
        if self.stale {
            return Task::Refresh;
        }
        if self.hand.is_some() {
            return self.next_in_hand(now);
        }
        if let Some(publication) = self.due {
            return Task::Publish(publication);
        }
        if let Some(pause) = self.pause_before_poll.take() {
            return Task::Wait(pause);
        }
        Task::Poll {
            after: self.cursor,
            capacity: self.capacity,
        }
    }

    /// The next thing to do for the message in hand: acquire, record, publish, acknowledge. A
    /// part that fails does not keep the others from being tried.
    fn next_in_hand(&mut self, now: Duration) -> Task {
        let Some(hand) = &mut self.hand else {
            return Task::Wait(Duration::ZERO);
        };
        if !hand.acquire.is_empty() && !hand.tried.acquire {
            return Task::Acquire(hand.acquire.clone());
        }
        if !hand.records.is_empty() && !hand.tried.record {
            let records = hand.records.iter().map(|pending| pending.record.clone());
            return Task::Record(records.collect());
        }
        if let Some(publication) = self.due
            && !hand.tried.publish
        {
            return Task::Publish(publication);
        }
        let left = !hand.acquire.is_empty() || !hand.records.is_empty();
        if self.due.is_none() && (!left || now.saturating_sub(hand.since) >= PATIENCE) {
            self.give_up_rest();
            return self.acknowledgement();
        }
        hand.tried = Tried::default();
        let wait = self.back_off(None);
        Task::Wait(self.bounded(now, wait))
    }

    fn acknowledgement(&self) -> Task {
        Task::Acknowledge(self.hand.as_ref().map_or(0, |hand| hand.id))
    }

    fn give_up_rest(&mut self) {
        let Some(hand) = &mut self.hand else { return };
        if !hand.acquire.is_empty() {
            let ids = std::mem::take(&mut hand.acquire);
            self.notes.push(Note::GivenUp(
                "acquire_jobs",
                format!("requests {ids:?} were not acquired; the service will offer them again"),
            ));
        }
        for pending in std::mem::take(&mut hand.records) {
            self.notes.push(Note::NotRecorded(
                pending.record.clone(),
                "it failed for too long".to_owned(),
            ));
            self.notes.push(happened(pending.record));
        }
    }

    /// The wait after one more failure: 1, 2, 4, … up to 30 s, less up to a quarter.
    fn back_off(&mut self, asked: Option<Duration>) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let wait = spread(self.failures, self.seed);
        asked.map_or(wait, |asked| wait.max(asked.min(LONGEST_ASKED)))
    }

    /// No wait goes on after the end that a signal has set.
    fn bounded(&self, now: Duration, wait: Duration) -> Duration {
        self.end_by
            .map_or(wait, |end_by| wait.min(end_by.saturating_sub(now)))
    }

    fn failed(&mut self, what: &'static str, failure: Failure) {
        if failure.kind == FailureKind::Config {
            self.fatal = Some(failure);
            self.end_by = Some(Duration::ZERO);
            return;
        }
        self.wait = Some(self.back_off(failure.retry_after));
        self.notes.push(Note::Failed(what, failure));
    }

    /// Takes a failure on the queue. The first time a token is refused it is replaced at once.
    /// Answers whether the failure was no more than that.
    fn token_refused(&mut self, failure: &Failure) -> bool {
        let refused = matches!(
            failure.kind,
            FailureKind::TokenExpired | FailureKind::SessionNotFound
        );
        if !refused {
            return false;
        }
        self.stale = true;
        !self.fresh
    }

    fn opened(&mut self, result: Result<Option<Statistics>, Failure>) {
        match result {
            Ok(statistics) => {
                self.open = true;
                self.stale = false;
                self.fresh = true;
                self.notes.push(Note::SessionOpened);
                self.take_statistics(Some(statistics.unwrap_or_default()));
                self.decide();
            }
            Err(failure) if failure.kind == FailureKind::SessionConflict => {
                self.wait = Some(self.back_off(failure.retry_after));
                self.notes.push(Note::Held(failure));
            }
            Err(failure) => self.failed("open_session", failure),
        }
    }

    fn refreshed(&mut self, result: Result<Option<Statistics>, Failure>) {
        match result {
            Ok(statistics) => {
                self.stale = false;
                self.fresh = true;
                self.take_statistics(statistics);
            }
            Err(failure) if failure.kind == FailureKind::SessionNotFound => {
                self.open = false;
                self.stale = false;
                self.notes.push(Note::SessionLost);
                // at once, but not again and again
                if self.failures > 0 {
                    self.wait = Some(self.back_off(failure.retry_after));
                }
                self.failures = self.failures.max(1);
            }
            Err(failure) => self.failed("refresh_session", failure),
        }
    }

    fn take_statistics(&mut self, statistics: Option<Statistics>) {
        if let Some(statistics) = statistics {
            self.scaler.demand(statistics.assigned_jobs);
            self.notes.push(Note::Statistics(statistics));
        }
    }

    fn decide(&mut self) {
        let publication = self.scaler.decide();
        self.due = Some(publication);
        self.notes.push(Note::Desired(publication));
    }

    fn published(&mut self, result: Result<(), Failure>) {
        if let Some(publication) = self.due {
            self.scaler.published(publication.patch, result.is_ok());
            // what failed has to be written, whatever stood there before
            self.due = result.is_err().then_some(Publication {
                standing: false,
                ..publication
            });
        }
        match (result, &mut self.hand) {
            (Ok(()), _) => {}
            (Err(failure), Some(hand)) => {
                hand.tried.publish = true;
                self.notes.push(Note::Failed("publish", failure));
            }
            (Err(failure), None) => self.failed("publish", failure),
        }
    }

    fn polled(&mut self, now: Duration, result: Result<Polled, Failure>, took: Duration) {
        match result {
            Ok(Polled::Message(message)) => {
                self.fresh = false;
                self.notes.push(Note::Polled("message"));
                self.take_message(now, message);
            }
            Ok(Polled::None) => {
                self.fresh = false;
                self.failures = 0;
                self.notes.push(Note::Polled("empty"));
                if took < HELD {
                    self.pause_before_poll = Some(HELD);
                }
                self.decide();
            }
            Ok(Polled::Unreadable { status, problem }) => {
                self.notes.push(Note::Polled("unreadable"));
                let problem = format!("answer with status {status}: {problem}");
                self.notes.push(Note::Unreadable(problem));
                self.pause_before_poll = Some(self.back_off(None));
                self.decide();
            }
            Err(failure) => {
                self.notes.push(Note::Polled("error"));
                if !self.token_refused(&failure) {
                    self.failed("get_message", failure);
                }
            }
        }
    }

    fn take_message(&mut self, now: Duration, message: Message) {
        if self.handled.contains(&message.id) {
            self.notes.push(Note::Duplicate(message.id));
            // a service that repeats itself is not asked again at once
            self.pause_before_poll = Some(self.back_off(None));
            self.hand = Some(Hand::new(message.id, true, now));
            return;
        }
        self.failures = 0;
        self.notes
            .push(Note::Message(message.id, message.jobs.len()));
        self.take_statistics(message.statistics);
        self.scaler.happened();
        let mut hand = Hand::new(message.id, false, now);
        for part in message.jobs {
            self.notes.push(Note::Part(part_name(&part)));
            match part {
                JobMessage::Available(job) => hand.offer(job.runner_request_id),
                JobMessage::Assigned(_) => {}
                JobMessage::Started(job) => hand.records.push(Record::Started(job).into()),
                JobMessage::Completed(job) => hand.records.push(Record::Completed(job).into()),
                JobMessage::Unknown { message_type } => {
                    self.notes.push(Note::Unknown(message_type));
                }
            }
        }
        if self.capacity == 0 {
            hand.acquire.clear();
        }
        self.hand = Some(hand);
        self.decide();
    }

    fn acquired(&mut self, result: Result<Vec<i64>, Failure>) {
        match result {
            Ok(_) => {
                self.fresh = false;
                if let Some(hand) = &mut self.hand {
                    hand.acquire.clear();
                }
            }
            Err(failure) => {
                if self.token_refused(&failure) {
                    return;
                }
                if let Some(hand) = &mut self.hand {
                    hand.tried.acquire = true;
                }
                self.part_failed("acquire_jobs", failure);
            }
        }
    }

    /// Takes a failure of a part of the message in hand; what it waits for is the next round.
    fn part_failed(&mut self, what: &'static str, failure: Failure) {
        if failure.kind == FailureKind::Config {
            self.failed(what, failure);
        } else {
            self.notes.push(Note::Failed(what, failure));
        }
    }

    fn recorded(&mut self, results: Vec<Result<Recording, Failure>>) {
        let Some(hand) = &mut self.hand else { return };
        hand.tried.record = true;
        let records = std::mem::take(&mut hand.records);
        for (mut pending, result) in records.into_iter().zip(results) {
            match result {
                Ok(Recording::Already) if !pending.tried => {}
                Ok(Recording::New | Recording::Already) => {
                    self.notes.push(happened(pending.record));
                }
                Ok(Recording::Skipped(reason)) => {
                    self.notes
                        .push(Note::NotRecorded(pending.record.clone(), reason));
                    self.notes.push(happened(pending.record));
                }
                Err(failure) if failure.kind == FailureKind::Invalid => {
                    self.notes
                        .push(Note::NotRecorded(pending.record.clone(), failure.message));
                    self.notes.push(happened(pending.record));
                }
                Err(failure) => {
                    self.notes.push(Note::Failed("record", failure));
                    pending.tried = true;
                    hand.records.push(pending);
                }
            }
        }
    }

    fn acknowledged(&mut self, result: Result<(), Failure>) {
        let Some(hand) = &mut self.hand else { return };
        match result {
            Ok(()) => {
                self.fresh = false;
                self.put_down();
            }
            Err(failure) => {
                hand.acknowledgements += 1;
                if hand.acknowledgements >= ACKNOWLEDGEMENTS {
                    let id = hand.id;
                    self.notes.push(Note::GivenUp(
                        "delete_message",
                        format!("message {id} was not acknowledged: {failure}"),
                    ));
                    self.put_down();
                } else if !self.token_refused(&failure) {
                    self.failed("delete_message", failure);
                }
            }
        }
    }

    /// Is done with the message in hand.
    fn put_down(&mut self) {
        let Some(hand) = self.hand.take() else { return };
        if !hand.duplicate {
            self.cursor = hand.id;
            self.failures = 0;
        }
        self.handled.insert(hand.id);
        if self.handled.len() > REMEMBERED {
            self.handled.pop_first();
        }
    }

    fn session_closed(&mut self, result: Result<(), Failure>) {
        self.closed = true;
        self.open = false;
        match result {
            Ok(()) => self.notes.push(Note::SessionClosed),
            // closed by the service already
            Err(failure) if failure.kind == FailureKind::SessionNotFound => {}
            Err(failure) => {
                let reason = format!("the session was left to expire: {failure}");
                self.notes.push(Note::GivenUp("delete_session", reason));
            }
        }
    }

    fn dropped(&mut self) {
        match self.task {
            Task::Close => self.closed = true,
            Task::Poll { .. } | Task::Wait(_) => {}
            // its time is up
            _ => self.hand = None,
        }
    }
}

impl Hand {
    const fn new(id: i64, duplicate: bool, since: Duration) -> Self {
        Self {
            id,
            duplicate,
            since,
            acquire: Vec::new(),
            records: Vec::new(),
            acknowledgements: 0,
            tried: Tried {
                acquire: false,
                record: false,
                publish: false,
            },
        }
    }

    fn offer(&mut self, request: i64) {
        if !self.acquire.contains(&request) {
            self.acquire.push(request);
        }
    }
}

impl From<Record> for Pending {
    fn from(record: Record) -> Self {
        Self {
            record,
            tried: false,
        }
    }
}

fn happened(record: Record) -> Note {
    match record {
        Record::Started(job) => Note::Started(job),
        Record::Completed(job) => Note::Completed(job),
    }
}

const fn part_name(part: &JobMessage) -> &'static str {
    match part {
        JobMessage::Available(_) => "available",
        JobMessage::Assigned(_) => "assigned",
        JobMessage::Started(_) => "started",
        JobMessage::Completed(_) => "completed",
        JobMessage::Unknown { .. } => "unknown",
    }
}

/// 1, 2, 4, … up to 30 s, less up to a quarter that depends on the seed. (FNV-1a.)
fn spread(failures: u32, seed: i64) -> Duration {
    let plain = Duration::from_secs(1_u64 << failures.saturating_sub(1).min(5))
        .min(Duration::from_secs(30));
    let bytes = seed.to_le_bytes().into_iter().chain(failures.to_le_bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    plain - plain / 4 * (hash % 256) / 256
}

#[cfg(test)]
mod tests;
