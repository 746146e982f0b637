//! How a demonstration is shown: a live view on a terminal, plain lines elsewhere.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Gauge, Paragraph, Wrap};

use super::snapshot::{Jobs, Runners, Snapshot};

/// Somewhere to show a demonstration.
pub trait Screen {
    /// Says how kubectl reaches the cluster.
    fn greet(&mut self, kubectl: &str);
    /// Shows how things are.
    fn draw(&mut self, snapshot: &Snapshot);
    /// Whether the person has asked to leave.
    fn wants_to_leave(&self) -> bool;
    /// Gives the terminal back.
    fn leave(&mut self);
}

/// Plain lines: one when a number has changed, and one for each Event.
#[derive(Default)]
pub struct Plain {
    last: Option<(Jobs, Runners)>,
    told: BTreeSet<String>,
}

impl Screen for Plain {
    fn greet(&mut self, kubectl: &str) {
        println!("the cluster is up; look at it with\n  {kubectl}");
    }

    fn draw(&mut self, snapshot: &Snapshot) {
        let mut out = io::stdout().lock();
        for event in &snapshot.events {
            if self.told.insert(event.clone()) {
                let _written = writeln!(out, "{:6.1}s  {event}", snapshot.seconds);
            }
        }
        for set in &snapshot.scale_sets {
            let Some(problem) = &set.problem else {
                continue;
            };
            let line = format!("{} {}: {problem}", set.name, set.phase);
            if self.told.insert(line.clone()) {
                let _written = writeln!(out, "{:6.1}s  {line}", snapshot.seconds);
            }
        }
        let now = (snapshot.jobs, snapshot.runners);
        if self.last == Some(now) {
            return;
        }
        self.last = Some(now);
        let _written = writeln!(
            out,
            "{:6.1}s  {}; runners: {}",
            snapshot.seconds,
            jobs_line(&snapshot.jobs),
            runners_line(&snapshot.runners)
        );
    }

    fn wants_to_leave(&self) -> bool {
        false
    }

    fn leave(&mut self) {}
}

/// The live view.
pub struct Terminal {
    terminal: DefaultTerminal,
    kubectl: String,
    leave: Arc<AtomicBool>,
    entered: bool,
}

impl Terminal {
    /// Takes the terminal over.
    pub fn enter() -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        let leave = Arc::new(AtomicBool::new(false));
        let there = leave.clone();
        // reading a terminal blocks; the thread ends with the process
        std::thread::spawn(move || {
            while let Ok(event) = event::read() {
                if let Event::Key(key) = event {
                    let interrupt = key.modifiers.contains(KeyModifiers::CONTROL)
                        && key.code == KeyCode::Char('c');
                    if interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                        there.store(true, Ordering::Relaxed);
                    }
                }
            }
        });
        Ok(Self {
            terminal,
            kubectl: String::new(),
            leave,
            entered: true,
        })
    }
}

impl Screen for Terminal {
    fn greet(&mut self, kubectl: &str) {
        kubectl.clone_into(&mut self.kubectl);
    }

    fn draw(&mut self, snapshot: &Snapshot) {
        let kubectl = self.kubectl.clone();
        // a frame that cannot be drawn is followed by the next
        let _drawn = self.terminal.draw(|frame| draw(frame, &kubectl, snapshot));
    }

    fn wants_to_leave(&self) -> bool {
        self.leave.load(Ordering::Relaxed)
    }

    fn leave(&mut self) {
        if std::mem::take(&mut self.entered) {
            ratatui::restore();
            println!("kubectl: {}", self.kubectl);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.leave();
    }
}

fn draw(frame: &mut Frame<'_>, kubectl: &str, snapshot: &Snapshot) {
    let sets = u16::try_from(snapshot.scale_sets.len()).unwrap_or(1);
    let rows = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(3),
        Constraint::Length(sets.saturating_mul(2).saturating_add(2).min(10)),
        Constraint::Length(3),
        Constraint::Length(6),
        Constraint::Min(4),
    ])
    .split(frame.area());
    let header = vec![
        Line::from(format!(
            "impresario demo   {:.1} s   q leaves",
            snapshot.seconds
        ))
        .bold(),
        Line::from(kubectl.to_owned()).fg(Color::DarkGray),
    ];
    frame.render_widget(Paragraph::new(header), rows[0]);
    draw_jobs(frame, rows[1], &snapshot.jobs);
    draw_scale_sets(frame, rows[2], snapshot);
    let runners =
        Paragraph::new(runners_line(&snapshot.runners)).block(Block::bordered().title(" runners "));
    frame.render_widget(runners, rows[3]);
    draw_actors(frame, rows[4], snapshot);
    let events: Vec<Line<'_>> = snapshot
        .events
        .iter()
        .map(|event| {
            let color = if event.starts_with("Warning") {
                Color::Yellow
            } else {
                Color::Reset
            };
            Line::styled(event.clone(), Style::new().fg(color))
        })
        .collect();
    let events = Paragraph::new(events)
        .wrap(Wrap { trim: true })
        .block(Block::bordered().title(" last events "));
    frame.render_widget(events, rows[5]);
}

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, jobs: &Jobs) {
    #[allow(clippy::cast_precision_loss, reason = "a share for a bar")]
    let share = if jobs.wanted == 0 {
        1.0
    } else {
        jobs.done as f64 / jobs.wanted as f64
    };
    let gauge = Gauge::default()
        .block(Block::bordered().title(" jobs "))
        .gauge_style(Style::new().fg(Color::Green))
        .ratio(share.clamp(0.0, 1.0))
        .label(jobs_line(jobs));
    frame.render_widget(gauge, area);
}

fn draw_scale_sets(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
    let mut lines = Vec::new();
    for set in &snapshot.scale_sets {
        let color = match set.phase.as_str() {
            "Running" => Color::Green,
            "Pending" => Color::Yellow,
            _ => Color::Red,
        };
        lines.push(Line::styled(
            format!("{}  {}  listener: {}", set.name, set.phase, set.listener),
            Style::new().fg(color),
        ));
        if let Some(problem) = &set.problem {
            lines.push(Line::styled(
                format!("  {problem}"),
                Style::new().fg(Color::Yellow),
            ));
        }
    }
    let view = Paragraph::new(lines)
        .wrap(Wrap { trim: false })
        .block(Block::bordered().title(" scale sets "));
    frame.render_widget(view, area);
}

fn draw_actors(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
    let lines: Vec<Line<'_>> = snapshot
        .actors
        .iter()
        .map(|(actor, live, waiting)| {
            Line::from(format!(
                "{actor:<12} {live:>5} live {waiting:>5} messages waiting"
            ))
        })
        .collect();
    let view = Paragraph::new(lines).block(Block::bordered().title(" actors "));
    frame.render_widget(view, area);
}

fn jobs_line(jobs: &Jobs) -> String {
    format!(
        "{} queued, {} running, {} of {} done",
        jobs.queued, jobs.running, jobs.done, jobs.wanted
    )
}

fn runners_line(runners: &Runners) -> String {
    format!(
        "{} starting, {} idle, {} busy, {} finished, {} failed, {} deleting",
        runners.starting,
        runners.idle,
        runners.busy,
        runners.finished,
        runners.failed,
        runners.deleting
    )
}
