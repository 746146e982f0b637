//! The objects that the listener's Secrets are made from: GitHub Secret, proxy credentials, CA
//! ConfigMap. No watch shows them, so they are read every sync period, and on demand.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::SignedDuration;

use super::context::{ListenerContext, ListenerTag};
use crate::actors::core::backoff::Schedule;
use crate::clock::Timestamp;
use crate::messages::{
    Effect, KubeAnswer, KubeError, KubeErrorKind, KubeRequest, Object, ObjectRef, Reason,
};
use crate::resources::Sources;

/// For sources that are missing or may not be read: a person has to mend that, and what waits for
/// it goes on within ten seconds.
const MISSING: Schedule = Schedule {
    first_ms: 5_000,
    cap_ms: 10_000,
};

/// Reason for one that cannot be read.
const UNREADABLE: &str = "SourceUnreadable";

/// What is known of the sources.
#[derive(Debug, Default)]
pub struct SourceReader {
    known: BTreeMap<ObjectRef, Source>,
}

#[derive(Debug, Default)]
struct Source {
    state: State,
    in_flight: bool,
    /// Another read was asked for while one was in flight.
    again: bool,
    failures: u32,
    due: Due,
}

/// When a source is read next.
#[derive(Debug, Default)]
enum Due {
    #[default]
    Now,
    /// A period after this time, at which it was read.
    APeriodAfter(Timestamp),
    /// Then.
    At(Timestamp),
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Unread,
    Read(Object),
    Missing,
    Failed(KubeError),
}

impl SourceReader {
    /// Has every source read again. One that failed keeps its back-off.
    pub fn refresh(&mut self) {
        for source in self.known.values_mut().filter(|one| one.failures == 0) {
            source.due = Due::Now;
            source.again = source.in_flight;
        }
    }

    /// Sends the reads that are due, `period` after the last. Answers with all sources once each was read; one that is
    /// missing is left out, and what is built names it. `step.reading` says whether newer copies
    /// are on their way.
    pub fn gather(
        &mut self,
        wanted: Vec<ObjectRef>,
        period: SignedDuration,
        ctx: &mut ListenerContext,
    ) -> Option<Sources> {
        let wanted: BTreeSet<ObjectRef> = wanted.into_iter().collect();
        self.known.retain(|name, _| wanted.contains(name));
        let mut sources = Sources::default();
        let mut complete = true;
        for name in wanted {
            let source = self.known.entry(name.clone()).or_default();
            source.read_if_due(&name, period, ctx);
            ctx.notes.reading |= source.in_flight;
            complete &= source.collect(&name, &mut sources, ctx);
        }
        complete.then_some(sources)
    }

    /// Whether one was not read yet.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        let mut states = self.known.values().map(|source| &source.state);
        states.any(|state| matches!(state, State::Unread))
    }

    /// A source that may not be read, if there is one.
    #[must_use]
    pub fn refused(&self) -> Option<Reason> {
        self.known
            .iter()
            .find_map(|(name, source)| match &source.state {
                State::Failed(error) if error.kind == KubeErrorKind::Forbidden => {
                    Some(Reason::new(UNREADABLE, unreadable(name, error)))
                }
                _ => None,
            })
    }

    /// Takes in the answer to a read.
    pub fn finish(
        &mut self,
        now: Timestamp,
        name: &ObjectRef,
        result: &Result<KubeAnswer, KubeError>,
    ) {
        if let Some(source) = self.known.get_mut(name) {
            source.finish(now, name, result);
        }
    }
}

impl Source {
    fn read_if_due(&mut self, name: &ObjectRef, period: SignedDuration, ctx: &mut ListenerContext) {
        let due = match self.due {
            Due::Now => None,
            Due::APeriodAfter(time) => Some(time.saturating_add(period).unwrap_or(time)),
            Due::At(time) => Some(time),
        };
        match due {
            _ if self.in_flight => {}
            Some(time) if time > ctx.now => ctx.wake_at(time),
            _ => {
                self.in_flight = true;
                let tag = ListenerTag::Source(name.clone());
                let request = KubeRequest::Get(name.clone());
                ctx.push(Effect::Kube(tag, request));
            }
        }
    }

    /// Adds the source to the others. Says whether its state is known.
    fn collect(&self, name: &ObjectRef, sources: &mut Sources, ctx: &mut ListenerContext) -> bool {
        match &self.state {
            State::Unread => return false,
            State::Read(object) => sources.insert(object),
            State::Missing => {}
            State::Failed(error) => {
                ctx.trouble(UNREADABLE, unreadable(name, error));
                return false;
            }
        }
        true
    }

    fn finish(&mut self, now: Timestamp, name: &ObjectRef, result: &Result<KubeAnswer, KubeError>) {
        self.in_flight = false;
        let again = std::mem::take(&mut self.again);
        match result {
            Ok(KubeAnswer::Object(object)) => {
                self.state = State::Read(object.clone());
                self.failures = 0;
                self.due = if again {
                    Due::Now
                } else {
                    Due::APeriodAfter(now)
                };
                return;
            }
            Err(error) if error.kind == KubeErrorKind::Forbidden => {
                self.state = State::Failed(error.clone());
            }
            Err(error) if error.kind != KubeErrorKind::NotFound => {
                // the last copy is better than none while the API server has a bad time
                if !matches!(self.state, State::Read(_)) {
                    self.state = State::Failed(error.clone());
                }
            }
            _ => self.state = State::Missing,
        }
        self.failures = self.failures.saturating_add(1);
        self.due = Due::At(MISSING.until(now, self.failures, &name.to_string()));
    }
}

fn unreadable(name: &ObjectRef, error: &KubeError) -> String {
    format!("{name} cannot be read: {error}")
}
