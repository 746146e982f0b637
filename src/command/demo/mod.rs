//! `impresario demo`: everything in one process. A real AutoscalingRunnerSet manifest on an
//! embedded cluster, a burst of jobs through it, and what happens, live.

mod jobs;
mod ledger;
mod manifests;
mod report;
mod screen;
mod snapshot;
mod view;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use k8s_openapi::jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

use self::jobs::{Arrival, DurationRange};
use self::ledger::Ledger;
use self::manifests::{Manifests, ScaleSet};
use self::report::Report;
use self::screen::{Plain, Screen, Terminal};
use self::snapshot::Snapshot;
use super::{number, telemetry};
use crate::clock::Clock;
use crate::simulation::cluster::{Cluster, ClusterOptions, RunningController};

/// How often the view is drawn.
const FRAME: Duration = Duration::from_millis(100);

/// How long the Actions service holds a poll. GitHub's does for 50 s; an idle pool shrinks to
/// its minimum after a poll without news, and nobody wants to watch for so long.
const POLL: Duration = Duration::from_secs(5);

/// How long the cluster may take to come to rest after the last job.
const SETTLE: Duration = Duration::from_secs(60);

/// More jobs than this are a slip of the finger.
const MOST_JOBS: usize = 100_000;
const SECOND: Duration = Duration::from_secs(1);
const WEEK: Duration = Duration::from_secs(168 * 3600);

/// Flags of the demonstration.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// Manifests to apply: at least one AutoscalingRunnerSet, and the Secrets and ConfigMaps it
    /// names. Without it, the sample from config/samples.
    #[arg(short = 'f', long = "filename", value_name = "FILE", num_args = 1..)]
    files: Vec<PathBuf>,

    /// How many jobs are queued, in turn for each scale set: from 0 to 100000.
    #[arg(long, default_value = "20", value_parser = number::whole(0, MOST_JOBS), value_name = "N")]
    jobs: usize,

    /// How long a job takes: one duration, or two with .. between, as 500ms..3s; each from 0s to 120h.
    #[arg(long, default_value = "1s..3s", value_name = "A..B")]
    job_duration: DurationRange,

    /// How jobs arrive: `burst` for all at once, or a number of jobs per second, from 0.001 to 1000.
    #[arg(long, default_value = "burst", value_name = "burst|N")]
    arrival: Arrival,

    /// Port of the API server on 127.0.0.1, for kubectl, from 0 to 65535; 0 takes a free one.
    #[arg(long, default_value = "0", value_parser = number::whole(0, u16::MAX), value_name = "PORT")]
    port: u16,

    /// End when all jobs are done and the cluster is at rest; the exit code says whether all
    /// went well. Without it, the cluster stays until Ctrl-C.
    #[arg(long)]
    exit_when_done: bool,

    /// Source of all that is drawn at random: from 0 to 18446744073709551615.
    #[arg(long, default_value = "1", value_parser = number::whole(0, u64::MAX), value_name = "N")]
    seed: u64,

    /// With --exit-when-done, give up after this time, from 1s to 168h.
    #[arg(long, default_value = "10m", value_parser = number::time(SECOND, WEEK), value_name = "DURATION")]
    timeout: Duration,

    /// How much is logged: error, warn, info, debug or trace. To standard error, unless there
    /// is a --log-file; not at all beside the live view, which has the terminal to itself.
    #[arg(long, default_value = "error", value_parser = telemetry::parse_level, value_name = "LEVEL")]
    log_level: String,

    /// File for the log.
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
}

/// Plays the demonstration.
///
/// # Errors
///
/// When a manifest or flag is not usable, or, with `--exit-when-done`, when not all went well.
pub fn run(args: Args) -> anyhow::Result<()> {
    super::install_tls_provider();
    let manifests = Manifests::read(&args.files)?;
    let loose_ends = manifests.loose_ends();
    if args.exit_when_done && !loose_ends.is_empty() {
        bail!(loose_ends.join("\n"));
    }
    for problem in &loose_ends {
        // the cluster stays, and what is missing can be made there
        eprintln!("warning: {problem}");
    }
    let live_view = io::stdout().is_terminal();
    match &args.log_file {
        Some(path) => telemetry::init_to_file(&args.log_level, path)?,
        None if live_view && io::stderr().is_terminal() => {}
        None => telemetry::init(&args.log_level, "text")?,
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the async runtime could not be started")?;
    let report = LocalSet::new().block_on(&runtime, play(&args, &manifests, live_view))?;
    // nobody may be reading any more
    let _written = write!(io::stdout(), "{report}");
    match report.verdict() {
        Err(problem) if args.exit_when_done => bail!(problem),
        _ => Ok(()),
    }
}

async fn play(args: &Args, manifests: &Manifests, live_view: bool) -> anyhow::Result<Report> {
    let listener = TcpListener::bind(("127.0.0.1", args.port))
        .await
        .with_context(|| {
            format!(
                "--port {} on 127.0.0.1 cannot be served; choose another, or 0 for a free one",
                args.port
            )
        })?;
    let address = listener.local_addr().context("the address served")?;
    let clock = Clock::system();
    let options = ClusterOptions {
        poll: POLL,
        ..ClusterOptions::new(clock.clone(), args.seed)
    };
    let cluster = Rc::new(Cluster::start(options).await?);
    tokio::task::spawn_local(cluster.api.serve(listener));
    for group in manifests.runner_groups() {
        cluster.actions.add_runner_group(group);
    }
    manifests.apply(&cluster).await?;
    let controller = cluster.start_controller();
    let ledger = Ledger::start(&cluster);
    let scale_sets = manifests.scale_sets();
    let queue = tokio::task::spawn_local(jobs::queue(args, &cluster, &scale_sets));
    let stage = Stage {
        args,
        cluster: &cluster,
        controller: &controller,
        ledger: &ledger,
        scale_sets: &scale_sets,
        began: clock.now(),
    };
    // before anybody is told that there is something to end
    let mut signals = Signals {
        interrupt: signal(SignalKind::interrupt()).context("SIGINT")?,
        terminate: signal(SignalKind::terminate()).context("SIGTERM")?,
    };
    let kubectl = format!("kubectl -s http://{address} get ars,ers,er,pods -A");
    let mut screen: Box<dyn Screen> = if live_view {
        Box::new(Terminal::enter(kubectl).context("the terminal")?)
    } else {
        // its exit code counts, read or not
        Box::new(Plain::greet(&kubectl, !args.exit_when_done))
    };
    let outcome = stage.watch(screen.as_mut(), &mut signals).await?;
    queue.abort();
    drop(screen);
    Ok(Report::new(&stage, outcome))
}

/// What a running demonstration consists of.
struct Stage<'a> {
    args: &'a Args,
    cluster: &'a Cluster,
    controller: &'a RunningController,
    ledger: &'a Ledger,
    scale_sets: &'a [ScaleSet],
    began: Timestamp,
}

/// What ends a demonstration from outside.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// How a demonstration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// All jobs are done and the cluster is at rest.
    Done,
    /// Somebody ended it.
    Interrupted,
    /// It took too long.
    TimedOut,
}

impl Stage<'_> {
    /// Draws until it is over.
    async fn watch(
        &self,
        screen: &mut dyn Screen,
        signals: &mut Signals,
    ) -> anyhow::Result<Outcome> {
        // a time past all reckoning is none
        let deadline = Instant::now().checked_add(self.args.timeout);
        let passed = |time: Option<Instant>| time.is_some_and(|time| Instant::now() >= time);
        let mut settle_by = None;
        loop {
            let snapshot = Snapshot::take(self);
            screen.draw(&snapshot);
            if screen.wants_to_leave() {
                return Ok(Outcome::Interrupted);
            }
            if self.args.exit_when_done {
                if snapshot.all_jobs_ended() {
                    if snapshot.at_rest() {
                        return Ok(Outcome::Done);
                    }
                    settle_by = settle_by.or_else(|| Instant::now().checked_add(SETTLE));
                }
                if passed(settle_by) || passed(deadline) {
                    return Ok(Outcome::TimedOut);
                }
            }
            tokio::select! {
                biased;
                _ = signals.interrupt.recv() => return Ok(Outcome::Interrupted),
                _ = signals.terminate.recv() => return Ok(Outcome::Interrupted),
                () = sleep(FRAME) => {}
            }
        }
    }
}
