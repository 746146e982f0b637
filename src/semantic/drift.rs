//! A difference, and how it is put together on the way back from the value that differs.

use std::fmt::{self, Write};

use super::field::Semantic;

/// Longest text of a value that is shown, in characters. Events hold 1024 bytes.
const MAX_SHOWN: usize = 120;

/// A difference between a desired and a live object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// Where, as `spec.containers[listener].image`.
    pub path: String,
    /// What is desired, in short; masked where it may be a secret.
    pub desired: String,
    /// What is there, likewise; `absent` when nothing is.
    pub live: String,
    reason: &'static str,
}

impl Drift {
    /// The last field of the path, without the element's key: one of a bounded set of names,
    /// for a metric's label. Empty when two bare values differ.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.reason
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{} → {}", self.live, self.desired)
    }
}

/// One step of a path.
#[derive(Debug)]
pub enum Part {
    /// A field, by its JSON name.
    Field(&'static str),
    /// An element of a keyed list, or an entry of a map.
    Key(String),
    /// An element of a list without keys, by its place in the desired list.
    Index(usize),
}

/// Takes down a difference. The value that differs says so first, then each of what holds it
/// adds its part of the path; as long as nothing differs, nothing is written.
#[derive(Debug)]
pub struct Trace(Option<Record>);

#[derive(Debug, Default)]
struct Record {
    /// Innermost first.
    parts: Vec<Part>,
    /// Absent is `None`.
    desired: Option<String>,
    live: Option<String>,
}

impl Trace {
    /// One that takes the difference down.
    pub fn on() -> Self {
        Self(Some(Record::default()))
    }

    /// One that takes nothing down, for a question whose answer is only yes or no.
    pub fn off() -> Self {
        Self(None)
    }

    /// Whether a difference is taken down.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Notes two values that differ. Answers `false`, for "does not derive".
    pub fn differs<T: Semantic>(&mut self, desired: &T, live: &T) -> bool {
        self.lacks(desired);
        if let Some(record) = &mut self.0 {
            record.live = Some(shorten(live.show()));
        }
        false
    }

    /// Notes a value that is not there. Answers `false`.
    pub fn lacks<T: Semantic>(&mut self, desired: &T) -> bool {
        if let Some(record) = &mut self.0 {
            record.desired = Some(shorten(desired.show()));
        }
        false
    }

    /// Notes what held the values noted so far. Answers `false`.
    pub fn within(&mut self, part: impl FnOnce() -> Part) -> bool {
        if let Some(record) = &mut self.0 {
            record.parts.push(part());
        }
        false
    }

    /// Hides the values noted so far, but not whether they are there. Answers `false`.
    pub fn redact(&mut self) -> bool {
        if let Some(record) = &mut self.0 {
            for text in [&mut record.desired, &mut record.live]
                .into_iter()
                .flatten()
            {
                "[redacted]".clone_into(text);
            }
        }
        false
    }

    /// The difference taken down.
    pub fn into_drift(self) -> Drift {
        let record = self.0.unwrap_or_default();
        let absent = || "absent".to_owned();
        Drift {
            path: path(&record.parts),
            reason: reason(&record.parts),
            desired: record.desired.unwrap_or_else(absent),
            live: record.live.unwrap_or_else(absent),
        }
    }
}

fn path(parts: &[Part]) -> String {
    let mut path = String::new();
    for part in parts.iter().rev() {
        // writing to a string does not fail
        let _ = match part {
            Part::Field(name) if path.is_empty() => write!(path, "{name}"),
            Part::Field(name) => write!(path, ".{name}"),
            Part::Key(key) => write!(path, "[{key}]"),
            Part::Index(index) => write!(path, "[{index}]"),
        };
    }
    path
}

fn reason(parts: &[Part]) -> &'static str {
    let mut fields = parts.iter().filter_map(|part| match part {
        Part::Field(name) => Some(*name),
        Part::Key(_) | Part::Index(_) => None,
    });
    fields.next().unwrap_or_default()
}

fn shorten(text: String) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
