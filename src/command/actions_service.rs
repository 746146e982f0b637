//! `impresario actions-service`: the embedded Actions service alone, on a port, for whoever
//! tests a client of runner scale sets.

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::{number, telemetry};
use crate::clock::Clock;
use embedded_actions::{ADMIN, ActionsService, App, Durations, Options};

const EXAMPLE: &str = "\
Example, with the service in one terminal and all else in another:

  impresario actions-service --port 9000 --token t0 --run-jobs

  # what a client does first, by hand; ours, and ARC, need only the config URL and the token
  curl -X POST -H 'Authorization: Bearer t0' \\
      http://127.0.0.1:9000/api/v3/orgs/acme/actions/runners/registration-token

  # what there is, and what can be done
  curl http://127.0.0.1:9000/_impresario
  curl http://127.0.0.1:9000/_impresario/scale-sets

  # three jobs of ten seconds for the scale set of that name or label
  curl -d '{\"labels\": [\"my-set\"], \"count\": 3, \"seconds\": 10}' \\
      http://127.0.0.1:9000/_impresario/jobs

  # the next two polls of a message queue find the service busy
  curl -d '{\"call\": \"get_message\", \"fault\": \"unavailable\", \"count\": 2}' \\
      http://127.0.0.1:9000/_impresario/faults

  # all tokens of tenants expire
  curl -d '{\"mishap\": \"expire-tenant-tokens\"}' http://127.0.0.1:9000/_impresario/mishaps";

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const YEAR: Duration = Duration::from_secs(8760 * 3600);

/// Flags of the service.
#[derive(Clone, Debug, Parser)]
#[command(after_long_help = EXAMPLE)]
pub struct Args {
    /// Port to serve on, from 0 to 65535; 0 takes a free one. The first line printed tells which.
    #[arg(long, default_value = "0", value_parser = number::whole(0, u16::MAX), value_name = "PORT")]
    port: u16,

    /// Address to serve on. Whoever reaches it may do everything: it is for tests.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "ADDRESS")]
    address: IpAddr,

    /// Personal access token that is accepted; can be given several times. Without it, any is,
    /// unless there is a GitHub App.
    #[arg(long = "token", value_name = "TOKEN")]
    tokens: Vec<String>,

    /// Id, or client id, of the one GitHub App that is accepted. Without it, any is, unless
    /// there is a token.
    #[arg(long, value_name = "ID", requires = "app_installation_id")]
    app_id: Option<String>,

    /// Id of that App's installation: from 1 to 9223372036854775807.
    #[arg(long, value_parser = number::whole(1, i64::MAX), value_name = "N", requires = "app_id")]
    app_installation_id: Option<i64>,

    /// File with the public half of that App's key, in PEM form, by which its signatures are
    /// checked: openssl rsa -in key.pem -pubout. Without it, they are not.
    #[arg(long, value_name = "FILE", requires = "app_id")]
    app_public_key: Option<PathBuf>,

    /// Runner group that there is beside `default`; can be given several times.
    #[arg(long = "runner-group", value_name = "NAME")]
    runner_groups: Vec<String>,

    /// Play the runners, too: each that is registered comes online, takes a job and ends.
    /// Without it, whoever has the JIT configurations cannot use them: ask the admin API to
    /// start a runner.
    #[arg(long)]
    run_jobs: bool,

    /// How long a poll of a message queue is held, from 0s to 1h.
    #[arg(long, default_value = "50s", value_parser = number::time(Duration::ZERO, HOUR), value_name = "DURATION")]
    poll: Duration,

    /// How long the tokens of tenants and queues are valid, from 1s to 8760h.
    #[arg(long, default_value = "1h", value_parser = number::time(SECOND, YEAR), value_name = "DURATION")]
    token_lifetime: Duration,

    /// How much is logged, to standard error: with info, each call and what comes of it.
    #[arg(long, default_value = "info", value_parser = telemetry::parse_level, value_name = "LEVEL")]
    log_level: String,
}

/// Serves until it is told to stop.
///
/// # Errors
///
/// When a flag is not usable, or the port cannot be served.
pub fn run(args: Args) -> anyhow::Result<()> {
    telemetry::init(&args.log_level, "text")?;
    super::install_tls_provider();
    let app = app(&args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the async runtime could not be started")?;
    runtime.block_on(serve(&args, app))
}

/// The GitHub App of the flags.
fn app(args: &Args) -> anyhow::Result<Option<App>> {
    let (Some(id), Some(installation_id)) = (&args.app_id, args.app_installation_id) else {
        return Ok(None);
    };
    let mut app = App::new(id, installation_id);
    if let Some(path) = &args.app_public_key {
        let shown = path.display();
        let pem = fs::read_to_string(path)
            .with_context(|| format!("--app-public-key {shown} cannot be read"))?;
        app = app.signing_for(&pem).with_context(|| {
            format!("--app-public-key {shown} is not usable; make it with openssl rsa -pubout")
        })?;
    }
    Ok(Some(app))
}

async fn serve(args: &Args, app: Option<App>) -> anyhow::Result<()> {
    let address = SocketAddr::new(args.address, args.port);
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("{address} cannot be served; choose another --port, or 0 for a free one")
    })?;
    let address = listener.local_addr().context("the address served")?;
    let service = service(args, app);
    // nobody may be reading
    let _greeted = io::stdout().write_all(greeting(args, address).as_bytes());
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let runners = async {
        if args.run_jobs {
            service.run_runners().await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        () = runners => Ok(()),
        ended = service.clone().serve_with_admin(listener) => match ended {
            Ok(never) => match never {},
            Err(error) => Err(error).context(format!("{address} cannot be served any more")),
        },
    }
}

fn service(args: &Args, app: Option<App>) -> ActionsService {
    let lifetime = i64::try_from(args.token_lifetime.as_secs()).unwrap_or(i64::MAX);
    let service = ActionsService::new(Options {
        durations: Durations {
            poll: args.poll,
            tenant_token: lifetime,
            queue_token: lifetime,
            ..Durations::default()
        },
        log: Some(Arc::new(|line: &str| tracing::info!("{line}"))),
        ..Options::new(Clock::system())
    });
    // with an App alone, no token is accepted
    if !args.tokens.is_empty() || app.is_some() {
        service.accept_only(args.tokens.iter().cloned());
    }
    match app {
        Some(app) => service.add_app(app),
        None if args.tokens.is_empty() => {}
        None => service.accept_no_app(),
    }
    for group in &args.runner_groups {
        service.add_runner_group(group);
    }
    service
}

fn greeting(args: &Args, address: SocketAddr) -> String {
    let credentials = match (args.tokens.is_empty(), &args.app_id) {
        (true, None) => "any token, or any GitHub App".to_owned(),
        (false, None) => "the tokens given".to_owned(),
        (true, Some(id)) => format!("the GitHub App {id}"),
        (false, Some(id)) => format!("the tokens given, or the GitHub App {id}"),
    };
    let runners = if args.run_jobs {
        "come online by themselves"
    } else {
        "are started by the admin API, or by --run-jobs"
    };
    format!(
        "the Actions service is at http://{address}\n\
         config URL   http://{address}/ORGANIZATION, /OWNER/REPOSITORY or /enterprises/ENTERPRISE\n\
         credentials  {credentials}\n\
         runners      {runners}\n\
         admin API    http://{address}{ADMIN}\n\
         Ctrl-C ends it\n"
    )
}
