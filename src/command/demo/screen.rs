//! How a demonstration is shown: a live view on a terminal, plain lines elsewhere.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::DefaultTerminal;

use super::snapshot::{Jobs, Runners, Snapshot};
use super::view;

/// Somewhere to show a demonstration. What it took over it gives back when dropped.
pub trait Screen {
    /// Shows how things are.
    fn draw(&mut self, snapshot: &Snapshot);
    /// Whether the person has asked to leave.
    fn wants_to_leave(&self) -> bool;
}

/// Plain lines: one when a number has changed, and one for each Event.
#[derive(Default)]
pub struct Plain {
    /// Whether it is over when nobody reads the lines any more.
    ends_with_reader: bool,
    unread: bool,
    last: Option<(Jobs, Runners)>,
    told: BTreeSet<String>,
}

impl Plain {
    /// Says how kubectl reaches the cluster.
    pub fn greet(kubectl: &str, ends_with_reader: bool) -> Self {
        let mut plain = Self {
            ends_with_reader,
            ..Self::default()
        };
        plain.say(&format!("the cluster is up; look at it with\n  {kubectl}"));
        plain
    }

    fn say(&mut self, line: &str) {
        self.unread |= writeln!(io::stdout(), "{line}").is_err();
    }

    fn once(&mut self, seconds: f64, line: String) {
        if !self.told.contains(&line) {
            self.say(&format!("{seconds:6.1}s  {line}"));
            self.told.insert(line);
        }
    }
}

impl Screen for Plain {
    fn draw(&mut self, snapshot: &Snapshot) {
        for event in &snapshot.events {
            let kind = if event.warning { "Warning" } else { "Normal" };
            self.once(event.seconds, format!("{kind} {}", event.text));
        }
        for set in &snapshot.scale_sets {
            if let Some(problem) = &set.problem {
                let line = format!("{} {}: {problem}", set.name, set.phase);
                self.once(snapshot.seconds, line);
            }
        }
        let now = (snapshot.jobs, snapshot.runners);
        if self.last != Some(now) {
            self.last = Some(now);
            self.say(&format!(
                "{:6.1}s  jobs: {}; runners: {}",
                snapshot.seconds, snapshot.jobs, snapshot.runners
            ));
        }
    }

    fn wants_to_leave(&self) -> bool {
        self.ends_with_reader && self.unread
    }
}

/// The live view.
pub struct Terminal {
    terminal: DefaultTerminal,
    kubectl: String,
    leave: Arc<AtomicBool>,
}

impl Terminal {
    /// Takes the terminal over.
    pub fn enter(kubectl: String) -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        let leave = Arc::new(AtomicBool::new(false));
        let there = leave.clone();
        // reading a terminal blocks; the thread ends with the process
        std::thread::spawn(move || {
            while let Ok(event) = event::read() {
                if asks_to_leave(&event) {
                    there.store(true, Ordering::Relaxed);
                }
            }
        });
        Ok(Self {
            terminal,
            kubectl,
            leave,
        })
    }
}

fn asks_to_leave(event: &Event) -> bool {
    let Event::Key(key) = event else {
        return false;
    };
    let interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

impl Screen for Terminal {
    fn draw(&mut self, snapshot: &Snapshot) {
        let kubectl = &self.kubectl;
        // a frame that cannot be drawn is followed by the next
        let _drawn = self
            .terminal
            .draw(|frame| view::draw(frame, kubectl, snapshot));
    }

    fn wants_to_leave(&self) -> bool {
        self.leave.load(Ordering::Relaxed)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
