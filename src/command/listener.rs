//! `impresario listener`: the listener program inside its pod. Called as `ghalistener` too.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use kube::Config;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

use crate::actions::{Proxies, ReqwestTransports};
use crate::api::ListenerConfig;
use crate::api::constants::env;
use crate::clock::Clock;
use crate::kube_io::connect;
use crate::listener::{self, ConfigError, Health, ListenerEnv, ListenerMetrics, Settings};
use crate::metrics::http::Endpoint;

/// Where a container says why it ended. The kubelet puts it into the pod's status, from where
/// the controller takes it into that of the listener.
const LAST_WORDS: &str = "/dev/termination-log";

/// Run one scale set's listener. It takes no flags: its configuration is the file that the
/// environment variable LISTENER_CONFIG_PATH names, which the controller writes.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Args {}

/// What the environment says. Read once, here.
struct Environment {
    config_path: Option<PathBuf>,
    hostname: Option<String>,
    force_ghes: bool,
    proxies: Proxies,
}

impl Environment {
    fn read() -> anyhow::Result<Self> {
        let text = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        Ok(Self {
            config_path: text(env::LISTENER_CONFIG_PATH).map(PathBuf::from),
            hostname: text("HOSTNAME"),
            // set to nothing is set
            force_ghes: std::env::var_os(env::FORCE_GHES).is_some(),
            proxies: Proxies::from_environment(text).context("proxy environment variables")?,
        })
    }
}

/// Runs the listener until it is told to stop.
///
/// # Errors
///
/// When the configuration is not usable, or the program cannot start.
pub fn run(_: Args) -> anyhow::Result<()> {
    listen().inspect_err(|error| leave_message(Path::new(LAST_WORDS), &format!("{error:#}")))
}

/// Writes why the program ends, where there is a file for it.
fn leave_message(path: &Path, text: &str) {
    let file = OpenOptions::new().write(true).truncate(true).open(path);
    // it is logged as well
    let _ = file.and_then(|mut file| file.write_all(text.as_bytes()));
}

fn listen() -> anyhow::Result<()> {
    let environment = Environment::read()?;
    let path = environment.config_path.as_ref();
    let config = listener::load(path.ok_or(ConfigError::NoPath)?)?;
    let settings = Settings::resolve(&config)?;
    super::telemetry::init(settings.log.level, settings.log.format)?;
    super::install_tls_provider();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the async runtime could not be started")?;
    LocalSet::new().block_on(&runtime, serve(config, settings, environment))
}

async fn serve(
    config: ListenerConfig,
    settings: Settings,
    environment: Environment,
) -> anyhow::Result<()> {
    let (metrics, complaints) = ListenerMetrics::new(&config).context("metrics")?;
    for complaint in complaints {
        tracing::warn!(complaint, "listenerMetrics is not what it seems");
    }
    let metrics = Arc::new(metrics);
    let health = Arc::new(Health::new());
    start_endpoint(&settings, &metrics, &health).await?;

    let cluster = Config::infer()
        .await
        .context("no way to a cluster: run inside a pod, or set KUBECONFIG to a kubeconfig file")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let stop = async {
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let hostname = environment
        .hostname
        .unwrap_or_else(|| format!("impresario-listener-{}", std::process::id()));
    let env = ListenerEnv {
        kube: connect(cluster).context("the client for the API server")?,
        transports: Arc::new(ReqwestTransports),
        proxies: environment.proxies,
        clock: Clock::system(),
        hostname,
        version,
        force_ghes: environment.force_ghes,
        metrics,
        health,
    };
    listener::run(config, env, stop).await?;
    tracing::info!("listener ends");
    Ok(())
}

/// Serves metrics and health in the background, when the configuration has an address.
async fn start_endpoint(
    settings: &Settings,
    metrics: &ListenerMetrics,
    health: &Arc<Health>,
) -> anyhow::Result<()> {
    let Some(address) = settings.metrics_address else {
        return Ok(());
    };
    let socket = TcpListener::bind(address).await.with_context(|| {
        format!("metrics_addr {address} cannot be served; free the port or choose another")
    })?;
    let (live, ready) = (Arc::clone(health), Arc::clone(health));
    let endpoint = Endpoint::default()
        .metrics(&settings.metrics_path, metrics.registry().clone())
        .check("/healthz", Arc::new(move || live.live()))
        .check("/readyz", Arc::new(move || ready.ready()));
    tokio::task::spawn_local(async move {
        if let Err(error) = endpoint.serve(socket).await {
            tracing::error!(%address, %error, "endpoint ended");
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_left_only_where_they_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("termination-log");
        leave_message(&path, "nobody reads this");
        assert!(!path.exists());
        std::fs::write(&path, "of an earlier container, and longer").unwrap();
        leave_message(&path, "certificatePath does not exist");
        let left = std::fs::read_to_string(&path).unwrap();
        assert_eq!(left, "certificatePath does not exist");
    }
}
