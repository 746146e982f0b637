//! The message in hand, and records that outlast their message.

use std::time::Duration;

use super::vocabulary::{Note, Record};

/// The message in hand: what of it is still to be done.
#[derive(Clone, Debug)]
pub(super) struct Hand {
    pub(super) id: i64,
    pub(super) duplicate: bool,
    pub(super) since: Duration,
    pub(super) acquire: Vec<i64>,
    pub(super) records: Vec<Pending>,
    pub(super) acknowledgements: u32,
    /// What was tried in this round; what is left after a round waits for the next.
    pub(super) tried: Tried,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tried {
    pub(super) acquire: bool,
    pub(super) record: bool,
    pub(super) publish: bool,
    /// The longest wait that the other side has asked for when it refused one of these.
    pub(super) asked: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) record: Record,
    pub(super) since: Duration,
    /// It may have been written although the answer was a failure.
    pub(super) tried: bool,
}

impl Hand {
    pub(super) const fn new(id: i64, duplicate: bool, since: Duration) -> Self {
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
                asked: None,
            },
        }
    }

    pub(super) fn offer(&mut self, request: i64) {
        if !self.acquire.contains(&request) {
            self.acquire.push(request);
        }
    }

    pub(super) fn news(&mut self, record: Record, now: Duration) {
        self.records.push(Pending {
            record,
            since: now,
            tried: false,
        });
    }
}

pub(super) fn records_of(pending: &[Pending]) -> Vec<Record> {
    pending
        .iter()
        .map(|pending| pending.record.clone())
        .collect()
}

pub(super) fn happened(record: Record) -> Note {
    match record {
        Record::Started(job) => Note::Started(job),
        Record::Completed(job) => Note::Completed(job),
    }
}
