//! What the listener does next: the life of its message session, and what becomes of each
//! message.
//!
//! Pure. [`Session::step`] takes how the last task ended and answers with the next one; there
//! is one task at a time. It is level triggered: an outcome goes into the state, and the next
//! task is the first thing that the state says is missing. So every path (a token that
//! expires while a message is in hand, say) comes back to where it was by itself.

mod hand;
mod link;
mod vocabulary;

use std::collections::BTreeSet;
use std::time::Duration;

use self::hand::{Hand, Pending, happened, records_of};
use self::vocabulary::part_name;
pub(super) use self::vocabulary::{Note, Outcome, Record, Recording, Step, Stop, Task};
use super::failure::{Failure, FailureKind};
use super::scaler::{Publication, Scaler};
use crate::actions::{JobMessage, Message, Polled, Statistics};

/// How long parts of a message that keep failing hold up the queue once the target is
/// published. (While it cannot be published nothing would be gained by polling.) Records are
/// then put off, and tried again after each poll; only a crash loses them.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long records that were put off are kept, and how many.
const PUT_OFF: Duration = Duration::from_secs(3600);
const MOST_PUT_OFF: usize = 1_000;
/// How often an acknowledgement is tried. A message that stays is met again and known.
const ACKNOWLEDGEMENTS: u32 = 3;
/// How many ids of finished messages are remembered.
const REMEMBERED: usize = 256;
/// A poll that brings nothing sooner than this was not held by the service, or by something on
/// the way to it. After some of them in a row it is not asked more often than every so many
/// seconds: news come later then, but each poll costs a write.
const HELD: Duration = Duration::from_secs(1);
const LONGEST_UNHELD: Duration = Duration::from_secs(10);
/// Longest wait that the other side can ask for. Polls must end more often than the liveness
/// limit.
const LONGEST_ASKED: Duration = Duration::from_secs(120);
/// After a signal, how long the message in hand may take.
const FINISHING: Duration = Duration::from_secs(30);
/// After a signal, how long an answer that would open a session is waited for.
const SETTLING: Duration = Duration::from_secs(15);

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
    /// The demand is not known, and a refreshed session tells it.
    ask: bool,
    /// Answers in a row by which the service does not know the scale set.
    disowned: u32,
    cursor: i64,
    hand: Option<Hand>,
    due: Option<Publication>,
    /// Records of messages that are done with.
    put_off: Vec<Pending>,
    /// They were tried since the last poll.
    put_off_tried: bool,
    handled: BTreeSet<i64>,
    /// Failures since the loop last went round.
    failures: u32,
    wait: Option<Duration>,
    pause_before_poll: Option<Duration>,
    /// Polls in a row that brought nothing at once.
    unheld: u32,
    /// When to end, once it is told to.
    end_by: Option<Duration>,
    closed: bool,
    fatal: Option<Failure>,
    task: Task,
    notes: Vec<Note>,
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
            ask: false,
            disowned: 0,
            cursor: 0,
            hand: None,
            due: None,
            put_off: Vec::new(),
            put_off_tried: false,
            handled: BTreeSet::new(),
            failures: 0,
            wait: None,
            pause_before_poll: None,
            unheld: 0,
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

    /// How long the task under way may take; `None` leaves it to the task.
    pub(super) fn time_left(&self, now: Duration) -> Option<Duration> {
        match self.task {
            // it has a limit of its own
            Task::Close => None,
            _ => self.end_by.map(|end_by| end_by.saturating_sub(now)),
        }
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
        if self.ask {
            return Task::Refresh;
        }
        if let Some(publication) = self.due {
            return Task::Publish(self.scaler.complete(publication));
        }
        if !self.put_off.is_empty() && !self.put_off_tried {
            return Task::Record(records_of(&self.put_off));
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
            return Task::Record(records_of(&hand.records));
        }
        if let Some(publication) = self.due
            && !hand.tried.publish
        {
            return Task::Publish(self.scaler.complete(publication));
        }
        let young = |since: Duration| now.saturating_sub(since) < PATIENCE;
        let left = (!hand.acquire.is_empty() && young(hand.since))
            || hand.records.iter().any(|pending| young(pending.since));
        if self.due.is_none() && !left {
            self.put_off_rest(now);
            return self.acknowledgement();
        }
        let asked = std::mem::take(&mut hand.tried).asked;
        // the target does not wait for what is asked of others
        let asked = asked.filter(|_| self.due.is_none());
        let wait = self.back_off(asked.map(|asked| asked.min(PATIENCE)));
        Task::Wait(self.bounded(now, wait))
    }

    fn acknowledgement(&self) -> Task {
        Task::Acknowledge(self.hand.as_ref().map_or(0, |hand| hand.id))
    }

    /// Lets go of what is left of the message in hand.
    fn put_off_rest(&mut self, now: Duration) {
        let Some(hand) = &mut self.hand else { return };
        if !hand.acquire.is_empty() {
            let ids = std::mem::take(&mut hand.acquire);
            self.notes.push(Note::GivenUp(
                "acquire_jobs",
                format!("requests {ids:?} were not acquired; the service will offer them again"),
            ));
        }
        if !hand.records.is_empty() {
            let records = std::mem::take(&mut hand.records);
            self.notes.push(Note::PutOff(records.len()));
            self.put_off.extend(records);
            self.put_off_tried = true;
        }
        self.forget_oldest(now);
    }

    /// Gives up records that have been put off for too long, or that are too many.
    fn forget_oldest(&mut self, now: Duration) {
        let excess = self.put_off.len().saturating_sub(MOST_PUT_OFF);
        let records = std::mem::take(&mut self.put_off);
        for (index, pending) in records.into_iter().enumerate() {
            if index >= excess && now.saturating_sub(pending.since) < PUT_OFF {
                self.put_off.push(pending);
            } else {
                let reason = "it failed for too long".to_owned();
                self.notes
                    .push(Note::NotRecorded(pending.record.clone(), reason));
                self.notes.push(happened(pending.record));
            }
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

    /// Ends the program: its configuration is of no use, and a restart brings another.
    fn end_with(&mut self, failure: Failure) {
        self.fatal = Some(failure);
        self.end_by = Some(Duration::ZERO);
    }

    fn failed(&mut self, what: &'static str, failure: Failure) {
        if failure.kind == FailureKind::Config {
            self.end_with(failure);
            return;
        }
        self.wait = Some(self.back_off(failure.retry_after));
        self.notes.push(Note::Failed(what, failure));
    }

    /// Takes what the service says of the scale set's jobs. Its word alone counts, also against
    /// the body of the same message, which tells of single jobs and may be older. Without it the
    /// demand stays what it was, and is asked for as soon as there is nothing more urgent. Answers
    /// whether the demand has changed.
    fn take_statistics(&mut self, statistics: Option<Statistics>) -> bool {
        self.scaler.informed(statistics.is_some());
        let Some(statistics) = statistics else {
            self.ask = true;
            return false;
        };
        self.ask = false;
        self.notes.push(Note::Statistics(statistics));
        self.scaler.demand(statistics.assigned_jobs)
    }

    /// Publishes once more when the runner set could not be told of a finished job with the last
    /// target: its place is waiting to be filled.
    pub(super) fn tell_of_finished(&mut self) {
        if self.due.is_none() && self.scaler.has_to_tell() {
            self.scaler.happened();
            self.decide();
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
        self.tell_of_finished();
    }

    fn polled(&mut self, now: Duration, result: Result<Polled, Failure>, took: Duration) {
        self.put_off_tried = false;
        self.forget_oldest(now);
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
                self.pause_before_poll = self.pause_after(took);
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

    /// The pause after a poll that brought nothing: 1, 2, 4, 8, 10 s after those that were not
    /// held.
    fn pause_after(&mut self, took: Duration) -> Option<Duration> {
        if took >= HELD {
            self.unheld = 0;
            return None;
        }
        let pause = (HELD * (1 << self.unheld.min(4))).min(LONGEST_UNHELD);
        self.unheld = self.unheld.saturating_add(1);
        Some(pause)
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
        self.unheld = 0;
        self.notes
            .push(Note::Message(message.id, message.jobs.len()));
        self.take_statistics(message.statistics);
        self.scaler.happened();
        let mut hand = Hand::new(message.id, false, now);
        // older news of a runner go before newer ones
        hand.records.append(&mut self.put_off);
        for part in message.jobs {
            self.notes.push(Note::Part(part_name(&part)));
            match part {
                JobMessage::Available(job) => hand.offer(job.runner_request_id),
                JobMessage::Assigned(_) => {}
                JobMessage::Started(job) => hand.news(Record::Started(job), now),
                JobMessage::Completed(job) => hand.news(Record::Completed(job), now),
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
            Ok(acquired) => {
                self.fresh = false;
                if let Some(hand) = &mut self.hand {
                    // what is not among them has gone to someone else
                    let mut left = std::mem::take(&mut hand.acquire);
                    left.retain(|request| !acquired.contains(request));
                    if !left.is_empty() {
                        self.notes.push(Note::NotAcquired(left.len()));
                    }
                }
            }
            Err(failure) => {
                if self.token_refused(&failure) {
                    return;
                }
                if let Some(hand) = &mut self.hand {
                    hand.tried.acquire = true;
                    hand.tried.asked = hand.tried.asked.max(failure.retry_after);
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
        let records = match &mut self.hand {
            Some(hand) => {
                hand.tried.record = true;
                &mut hand.records
            }
            None => {
                self.put_off_tried = true;
                &mut self.put_off
            }
        };
        let mut asked = None;
        for (mut pending, result) in std::mem::take(records).into_iter().zip(results) {
            let recorded = matches!(result, Ok(Recording::New | Recording::Already));
            if recorded && matches!(pending.record, Record::Completed(_)) {
                self.scaler.finished();
            }
            let unrecorded = match result {
                Ok(Recording::Already) if !pending.tried => continue,
                Ok(Recording::New | Recording::Already) => None,
                Ok(Recording::Skipped(reason)) => Some(reason),
                Err(failure) if failure.kind == FailureKind::Invalid => Some(failure.message),
                Err(failure) => {
                    asked = asked.max(failure.retry_after);
                    self.notes.push(Note::Failed("record", failure));
                    pending.tried = true;
                    records.push(pending);
                    continue;
                }
            };
            if let Some(reason) = unrecorded {
                self.notes
                    .push(Note::NotRecorded(pending.record.clone(), reason));
            }
            self.notes.push(happened(pending.record));
        }
        if let Some(hand) = &mut self.hand {
            hand.tried.asked = hand.tried.asked.max(asked);
        }
        self.tell_of_finished();
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

    fn dropped(&mut self) {
        match self.task {
            Task::Close => self.closed = true,
            Task::Poll { .. } | Task::Wait(_) => {}
            // its time is up
            _ => self.hand = None,
        }
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
