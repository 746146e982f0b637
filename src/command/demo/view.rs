//! The live view: one snapshot drawn on a terminal, from 80 columns by 24 rows upwards.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Gauge, Paragraph};

use super::snapshot::{EventLine, Jobs, ScaleSetLine, Snapshot};

/// Rows of the header, of the jobs, and of runners and actors.
const FIXED_ROWS: u16 = 2 + 2 + 7;
/// Rows that events get at least.
const EVENT_ROWS: u16 = 4;
/// Columns of the actors, beside which the runners have the rest.
const ACTOR_COLUMNS: u16 = 38;

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, kubectl: &str, snapshot: &Snapshot) {
    let area = frame.area();
    let most = area.height.saturating_sub(FIXED_ROWS + EVENT_ROWS + 1);
    let scale_sets = scale_set_lines(&snapshot.scale_sets, area.width, most.max(1));
    let scale_set_rows = u16::try_from(scale_sets.len()).unwrap_or(most);
    let [header, jobs, sets, middle, events] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(2),
        Constraint::Length(1 + scale_set_rows),
        Constraint::Length(7),
        Constraint::Min(EVENT_ROWS),
    ])
    .areas(area);
    let [runners, actors] =
        Layout::horizontal([Constraint::Min(20), Constraint::Length(ACTOR_COLUMNS)]).areas(middle);
    draw_header(frame, header, kubectl, snapshot);
    draw_jobs(frame, jobs, &snapshot.jobs);
    frame.render_widget(Paragraph::new(scale_sets).block(rule("scale sets")), sets);
    draw_runners(frame, runners, snapshot);
    draw_actors(frame, actors, snapshot);
    draw_events(frame, events, &snapshot.events);
}

fn draw_header(frame: &mut Frame<'_>, area: Rect, kubectl: &str, snapshot: &Snapshot) {
    let what = if snapshot.all_jobs_ended() {
        "all jobs are done"
    } else {
        ""
    };
    let title = format!("impresario demo  {:.1} s  {what}", snapshot.seconds);
    let lines = vec![
        Line::from(title).bold(),
        Line::from(kubectl.to_owned()).dim(),
    ];
    frame.render_widget(Paragraph::new(lines), area);
    let first = Rect { height: 1, ..area };
    let hint = Paragraph::new("q leaves").alignment(Alignment::Right);
    frame.render_widget(hint, first);
}

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, jobs: &Jobs) {
    #[allow(clippy::cast_precision_loss, reason = "a share for a bar")]
    let share = if jobs.wanted == 0 {
        1.0
    } else {
        jobs.done as f64 / jobs.wanted as f64
    };
    let gauge = Gauge::default()
        .block(rule("jobs"))
        .gauge_style(Style::new().fg(Color::Green).bg(Color::Black))
        .use_unicode(true)
        .ratio(share.clamp(0.0, 1.0))
        .label(format!(" {jobs} "));
    frame.render_widget(gauge, area);
}

/// One line for each scale set, and what it complains of below; at most so many rows.
fn scale_set_lines(sets: &[ScaleSetLine], width: u16, most: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for set in sets {
        let color = match set.phase.as_str() {
            "Running" => Color::Green,
            "Pending" => Color::Yellow,
            _ => Color::Red,
        };
        lines.push(Line::from(vec![
            Span::raw(format!("{}  ", set.name)),
            Span::styled(set.phase.clone(), Style::new().fg(color)),
            Span::raw(format!("  listener: {}", set.listener)),
        ]));
        let problem = set.problem.iter();
        let below = problem.flat_map(|text| wrapped(text, usize::from(width), "  "));
        lines.extend(below.map(|line| Line::from(line).fg(Color::Yellow)));
    }
    let most = usize::from(most);
    if lines.len() > most {
        lines.truncate(most.saturating_sub(1));
        lines.push(Line::from("… and more, which kubectl shows").dim());
    }
    lines
}

fn draw_runners(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
    let states = snapshot.runners.by_state();
    let most = states.iter().map(|(_, count)| *count).max().unwrap_or(0);
    let room = usize::from(area.width.saturating_sub(17)).max(1);
    let each = most.div_ceil(room).max(1);
    let lines: Vec<Line<'_>> = states
        .into_iter()
        .map(|(state, count)| {
            let color = match state {
                "busy" => Color::Green,
                "idle" => Color::Cyan,
                "failed" => Color::Red,
                _ => Color::Yellow,
            };
            Line::from(vec![
                Span::raw(format!("{state:<9}{count:>5} ")),
                Span::styled("■".repeat(count.div_ceil(each)), Style::new().fg(color)),
            ])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines).block(rule("runners")), area);
}

fn draw_actors(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot) {
    let head = Line::from(format!("{:<12}{:>7}{:>18}", "", "live", "messages waiting")).dim();
    let rows = snapshot
        .actors
        .iter()
        .map(|(actor, live, waiting)| Line::from(format!("{actor:<12}{live:>7}{waiting:>18}")));
    let lines: Vec<Line<'_>> = std::iter::once(head).chain(rows).collect();
    frame.render_widget(Paragraph::new(lines).block(rule("actors")), area);
}

/// The newest on top, where it cannot be cut off.
fn draw_events(frame: &mut Frame<'_>, area: Rect, events: &[EventLine]) {
    const INDENT: &str = "          ";
    let mut lines = Vec::new();
    for event in events.iter().rev() {
        if lines.len() >= usize::from(area.height) {
            break;
        }
        let color = if event.warning {
            Color::Yellow
        } else {
            Color::Reset
        };
        let text = wrapped(&event.text, usize::from(area.width), INDENT);
        for (index, line) in text.into_iter().enumerate() {
            let line = if index == 0 {
                format!("{:>7.1} s{}", event.seconds, &line[INDENT.len() - 1..])
            } else {
                line
            };
            lines.push(Line::from(line).fg(color));
        }
    }
    frame.render_widget(
        Paragraph::new(lines).block(rule("last events, newest first")),
        area,
    );
}

/// A line with a title, above what belongs to it.
fn rule(title: &str) -> Block<'_> {
    Block::new()
        .borders(Borders::TOP)
        .border_style(Style::new().fg(Color::DarkGray))
        .title(Span::styled(format!("── {title} "), Style::new().bold()))
}

/// The text in lines of at most that width, broken between words where there are any.
fn wrapped(text: &str, width: usize, indent: &str) -> Vec<String> {
    let room = width.saturating_sub(indent.len()).max(1);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    for word in text.split_whitespace() {
        let mut letters: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + letters.len() > room {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        while letters.len() > room {
            let rest = letters.split_off(room);
            lines.push(letters.into_iter().collect());
            letters = rest;
        }
        used += letters.len();
        line.extend(letters);
    }
    if used > 0 {
        lines.push(line);
    }
    lines.iter().map(|line| format!("{indent}{line}")).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::command::demo::snapshot::Runners;

    fn snapshot() -> Snapshot {
        Snapshot {
            seconds: 12.34,
            jobs: Jobs {
                wanted: 50,
                queued: 20,
                running: 9,
                done: 21,
                failed: 0,
            },
            runners: Runners {
                busy: 9,
                idle: 1,
                finished: 123,
                ..Runners::default()
            },
            scale_sets: vec![ScaleSetLine {
                name: "ci/linux".into(),
                phase: "Pending".into(),
                problem: Some(
                    "CredentialsUnusable: Secret ci/github-auth, named by githubConfigSecret, \
                     does not exist: create it, or correct githubConfigSecret"
                        .into(),
                ),
                listener: "no pod".into(),
            }],
            actors: ["scale_set", "listener", "runner_set", "runner"]
                .map(|actor| (actor.to_owned(), 7, 3))
                .into(),
            events: (0..9)
                .map(|number| EventLine {
                    seconds: f64::from(number),
                    warning: number == 8,
                    text: format!("Reason{number} AutoscalingRunnerSet/linux: something happened"),
                })
                .collect(),
            ..Snapshot::default()
        }
    }

    fn drawn(snapshot: &Snapshot, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let kubectl = "kubectl -s http://127.0.0.1:65535 get ars,ers,er,pods -A";
        terminal
            .draw(|frame| draw(frame, kubectl, snapshot))
            .unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn all_that_matters_is_seen_on_a_small_terminal() {
        let screen = drawn(&snapshot(), 80, 24);
        for part in [
            "q leaves",
            "kubectl -s http://127.0.0.1:65535 get ars,ers,er,pods -A",
            "21 of 50 done",
            "ci/linux  Pending  listener: no pod",
            "or correct githubConfigSecret",
            "busy         9",
            "finished   123",
            "runner_set        7                 3",
            "    8.0 s Reason8",
        ] {
            assert!(screen.contains(part), "no {part} in\n{screen}");
        }
    }

    #[test]
    fn any_size_of_terminal_can_be_drawn_on() {
        let mut snapshot = snapshot();
        let set = snapshot.scale_sets[0].clone();
        snapshot.scale_sets = vec![set; 40];
        for (width, height) in [(1, 1), (10, 3), (40, 12), (80, 24), (300, 100)] {
            let _screen = drawn(&snapshot, width, height);
        }
        assert!(drawn(&snapshot, 80, 24).contains("and more, which kubectl shows"));
    }

    #[test]
    fn text_is_broken_between_words_and_a_long_word_within() {
        assert_eq!(wrapped("ab cd ef", 6, " "), [" ab cd", " ef"]);
        assert_eq!(wrapped("a bcdefgh", 5, " "), [" a", " bcde", " fgh"]);
        assert_eq!(wrapped("", 5, " "), [""; 0]);
    }
}
