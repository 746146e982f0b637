//! `impresario demo`: everything in one process. A real AutoscalingRunnerSet manifest on an
//! embedded cluster, a burst of jobs through it, and what happens, live.

mod jobs;
mod ledger;
mod report;
mod screen;
mod snapshot;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

use self::jobs::{Arrival, DurationRange};
use self::ledger::Ledger;
use self::report::Report;
use self::screen::{Plain, Screen, Terminal};
use self::snapshot::Snapshot;
use super::{duration, telemetry};
use crate::api::{AutoscalingRunnerSet, read_manifests};
use crate::clock::Clock;
use crate::simulation::cluster::{Cluster, ClusterOptions, RunningController};

/// The sample that is played when no file is given.
const SAMPLES: &str = concat!(
    include_str!("../../../config/samples/namespace.yaml"),
    "\n---\n",
    include_str!("../../../config/samples/secret.yaml"),
    "\n---\n",
    include_str!("../../../config/samples/scale_set.yaml"),
);

/// How often the view is drawn.
const FRAME: Duration = Duration::from_millis(100);

/// How long the cluster may take to come to rest after the last job.
const SETTLE: Duration = Duration::from_secs(60);

/// Flags of the demonstration.
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// Manifests to apply: at least one AutoscalingRunnerSet and the Secret it names. Without
    /// it, the sample from config/samples.
    #[arg(short = 'f', long = "filename", value_name = "FILE", num_args = 1..)]
    files: Vec<PathBuf>,

    /// How many jobs are queued, in turn for each scale set.
    #[arg(long, default_value_t = 20, value_name = "N")]
    jobs: usize,

    /// How long a job takes: one duration, or two with .. between, as 500ms..3s.
    #[arg(long, default_value = "1s..3s", value_name = "A..B")]
    job_duration: DurationRange,

    /// How jobs arrive: `burst` for all at once, or a number of jobs per second.
    #[arg(long, default_value = "burst", value_name = "burst|N")]
    arrival: Arrival,

    /// Port of the API server on 127.0.0.1, for kubectl; 0 takes a free one.
    #[arg(long, default_value_t = 0, value_name = "PORT")]
    port: u16,

    /// End when all jobs are done and the cluster is at rest; the exit code says whether all
    /// went well. Without it, the cluster stays until Ctrl-C.
    #[arg(long)]
    exit_when_done: bool,

    /// Source of all that is drawn at random.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// With --exit-when-done, give up after this time.
    #[arg(long, default_value = "10m", value_parser = duration::parse, value_name = "DURATION")]
    timeout: Duration,

    /// How much is logged to standard error when it is no terminal, or to --log-file.
    #[arg(long, default_value = "error", value_name = "LEVEL")]
    log_level: String,
}

/// Plays the demonstration.
///
/// # Errors
///
/// When a manifest or flag is not usable, or, with `--exit-when-done`, when not all went well.
pub fn run(args: Args) -> anyhow::Result<()> {
    super::install_tls_provider();
    let objects = read_objects(&args)?;
    let scale_sets = scale_sets(&objects)?;
    let terminal = std::io::stdout().is_terminal();
    if !terminal {
        telemetry::init(&args.log_level, "text")?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the async runtime could not be started")?;
    let screen: Box<dyn Screen> = if terminal {
        Box::new(Terminal::enter().context("the terminal")?)
    } else {
        Box::new(Plain::default())
    };
    let played = LocalSet::new().block_on(&runtime, play(&args, &objects, scale_sets, screen));
    let report = played?;
    print!("{report}");
    match report.verdict() {
        Ok(()) => Ok(()),
        Err(problem) if args.exit_when_done => bail!("{problem}"),
        Err(_) => Ok(()),
    }
}

/// A scale set that jobs are queued for.
#[derive(Clone, Debug)]
pub struct ScaleSet {
    namespace: String,
    name: String,
    /// What a job asks for in `runs-on`.
    label: String,
    min: i64,
    max: Option<i64>,
}

fn read_objects(args: &Args) -> anyhow::Result<Vec<Value>> {
    if args.files.is_empty() {
        let objects = read_manifests(SAMPLES, "config/samples")?;
        return Ok(objects.into_iter().map(|object| object.value).collect());
    }
    let mut all = Vec::new();
    for path in &args.files {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{} cannot be read", path.display()))?;
        let objects = read_manifests(&text, &path.display().to_string())?;
        all.extend(objects.into_iter().map(|object| object.value));
    }
    Ok(all)
}

fn scale_sets(objects: &[Value]) -> anyhow::Result<Vec<ScaleSet>> {
    let mut found = Vec::new();
    for object in objects {
        if object["kind"] != "AutoscalingRunnerSet" {
            continue;
        }
        let set: AutoscalingRunnerSet =
            serde_json::from_value(object.clone()).context("AutoscalingRunnerSet")?;
        let name = set.metadata.name.clone().unwrap_or_default();
        let namespace = set.metadata.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        set.validate()
            .with_context(|| format!("AutoscalingRunnerSet {namespace}/{name}"))?;
        found.push(ScaleSet {
            label: crate::resources::scale_set_name(&set).to_owned(),
            namespace,
            name,
            min: set.spec.min_runners.unwrap_or(0),
            max: set.spec.max_runners,
        });
    }
    if found.is_empty() {
        bail!("the manifests hold no AutoscalingRunnerSet, so there is nothing to run");
    }
    Ok(found)
}

async fn play(
    args: &Args,
    objects: &[Value],
    scale_sets: Vec<ScaleSet>,
    mut screen: Box<dyn Screen>,
) -> anyhow::Result<Report> {
    let listener = TcpListener::bind(("127.0.0.1", args.port))
        .await
        .with_context(|| {
            format!(
                "port {} on 127.0.0.1 cannot be served; choose another with --port, or 0 for a \
                 free one",
                args.port
            )
        })?;
    let address = listener.local_addr().context("the address served")?;
    let clock = Clock::system();
    let options = ClusterOptions::new(clock.clone(), args.seed);
    let cluster = Rc::new(Cluster::start(options).await?);
    tokio::task::spawn_local(cluster.api.serve(listener));
    for object in objects {
        cluster.apply(object).await?;
    }
    let controller = cluster.start_controller();
    let ledger = Ledger::start(&cluster);
    screen.greet(&format!(
        "kubectl --server http://{address} get ars,ers,er,pods --all-namespaces"
    ));
    let queue = jobs::queue(args, &cluster, &scale_sets);
    let queue = tokio::task::spawn_local(queue);

    let stage = Stage {
        args,
        cluster: &cluster,
        controller: &controller,
        ledger: &ledger,
        scale_sets: &scale_sets,
        began: clock.now(),
    };
    let outcome = stage.watch(screen.as_mut()).await;
    queue.abort();
    screen.leave();
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
    async fn watch(&self, screen: &mut dyn Screen) -> Outcome {
        let deadline = Instant::now() + self.args.timeout;
        let mut settle_by = None;
        let interrupt = tokio::signal::ctrl_c();
        tokio::pin!(interrupt);
        loop {
            let snapshot = Snapshot::take(self);
            screen.draw(&snapshot);
            if screen.wants_to_leave() {
                return Outcome::Interrupted;
            }
            if self.args.exit_when_done {
                if snapshot.all_jobs_done() {
                    if snapshot.at_rest() {
                        return Outcome::Done;
                    }
                    let by = *settle_by.get_or_insert_with(|| Instant::now() + SETTLE);
                    if Instant::now() >= by {
                        return Outcome::TimedOut;
                    }
                }
                if Instant::now() >= deadline {
                    return Outcome::TimedOut;
                }
            }
            tokio::select! {
                biased;
                _ = &mut interrupt => return Outcome::Interrupted,
                () = sleep(FRAME) => {}
            }
        }
    }
}
