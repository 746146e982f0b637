//! `impresario controller`: the flags, the environment, and a process around the actors.

#[cfg(test)]
mod charts;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgAction, Parser};
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

use super::leadership::run_while_leading;
use super::{number, telemetry};
use crate::actions::{Clients, ClientsOptions, Proxies, ReqwestTransports, UserAgent};
use crate::actors::{
    ActionsIo, CallMetrics, ControllerOptions, Fenced, KubeSources, UnregistrarHandle, Workers,
};
use crate::api::constants::env;
use crate::api::{AllowedHosts, HostPattern, ListenerTemplatePolicy, Policy};
use crate::clock::Clock;
use crate::kube_io::{Candidate, Fence, KubeIo, Limiter, Refusals, connect};
use crate::metrics::Metrics;
use crate::metrics::http::{Endpoint, parse_address};
use crate::resources::ControllerSettings;

/// More of anything than this is a slip of the finger.
const MANY: u32 = 1_000_000;
const DEFAULT_LEASE: &str = "impresario";
const DAY: Duration = Duration::from_secs(24 * 3600);
const WEEK: Duration = Duration::from_secs(168 * 3600);

/// Flags for which empty means "off"; for all others it means the default.
pub const EMPTY_IS_OFF: &[&str] = &[
    "listener-metrics-addr",
    "metrics-addr",
    "health-probe-bind-address",
];

/// Flags of the controller. Those that ARC's charts pass are all here.
#[derive(Clone, Debug, Parser)]
#[command(
    after_help = "A flag that is there and empty, as charts render it (--sync-period=), has its \
                  default; an empty address is off."
)]
pub struct Args {
    /// Run only scale sets; implied, accepted for ARC's charts.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "true",
          require_equals = true, action = ArgAction::Set, value_name = "BOOL")]
    auto_scaling_runner_set_only: bool,

    /// Let only one of several controllers work, by a Lease in the controller's namespace.
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value = "false",
          require_equals = true, action = ArgAction::Set, value_name = "BOOL")]
    enable_leader_election: bool,

    /// Name of that Lease; default: impresario, and impresario-NAMESPACE with
    /// --watch-single-namespace, so that controllers for different namespaces do not wait for each
    /// other.
    #[arg(long, value_name = "NAME")]
    leader_election_id: Option<String>,

    /// How much is logged: error, warn, info, debug or trace.
    #[arg(long, default_value = "info", value_parser = telemetry::parse_level, value_name = "LEVEL")]
    log_level: String,

    /// Form of log lines: text or json.
    #[arg(long, default_value = "text", value_parser = telemetry::parse_format, value_name = "FORMAT")]
    log_format: String,

    /// Look after scale sets in this namespace only; empty means in all.
    #[arg(long, default_value = "", value_parser = parse_namespace, value_name = "NAMESPACE")]
    watch_single_namespace: String,

    /// Accepted for ARC's charts and ignored: runners with a job are never replaced, idle ones
    /// at once.
    #[arg(long, value_name = "STRATEGY")]
    update_strategy: Option<String>,

    /// Threads for scale sets, from 1 to 1000000, of which at most 8 are used; 0 means one less than
    /// there are cores. ARC's name for it is kept.
    #[arg(long, default_value = "0", value_parser = number::whole(0, MANY as usize), value_name = "N")]
    runner_max_concurrent_reconciles: usize,

    /// Accepted for ARC's newer charts and ignored: one number of threads serves all.
    #[arg(
        long,
        visible_aliases = [
            "autoscaling-runner-set-max-concurrent-reconciles",
            "autoscaling-listener-max-concurrent-reconciles",
            "ephemeral-runner-set-max-concurrent-reconciles",
            "ephemeral-runner-max-concurrent-reconciles",
        ],
        value_name = "ANY"
    )]
    default_max_concurrent_reconciles: Vec<String>,

    /// Address on which listeners serve metrics, HOST:PORT or :PORT; 0 or empty turns them off.
    #[arg(long, default_value = ":8080", value_name = "ADDRESS")]
    listener_metrics_addr: String,

    /// Path of the listeners' metrics; empty means the default.
    #[arg(long, default_value = "/metrics", value_parser = parse_metrics_path, value_name = "PATH")]
    listener_metrics_endpoint: String,

    /// Address for metrics, HOST:PORT or :PORT; 0 or empty turns them off.
    #[arg(long, default_value = ":8080", value_name = "ADDRESS")]
    metrics_addr: String,

    /// Address for /healthz and /readyz, HOST:PORT or :PORT; 0 or empty turns them off. When it
    /// is the address of the metrics, they share it.
    #[arg(long, default_value = ":8081", value_name = "ADDRESS")]
    health_probe_bind_address: String,

    /// Accepted for ARC's charts and ignored: there is no Go profiler in here.
    #[arg(long, default_value = "", value_name = "ADDRESS")]
    pprof_addr: String,

    /// Most requests a second to the API server, on average, from 0.001 to 1000000; 0 means no limit
    /// of ours.
    #[arg(long, default_value = "0", value_parser = parse_rate, value_name = "N")]
    k8s_client_rate_limiter_qps: f64,

    /// Most requests at once, with a limit: from 0 to 1000000, and 0 is as 1.
    #[arg(long, default_value = "30", value_parser = number::whole(0, MANY), value_name = "N")]
    k8s_client_rate_limiter_burst: u32,

    /// Accepted for ARC's charts and ignored: there is no work queue.
    #[arg(long, value_name = "LIMITER")]
    workqueue_rate_limiter: Option<String>,

    /// How often sources that cannot be watched (Secrets, ConfigMaps) are read again, from 0s to 24h;
    /// below 1s is as 1s.
    #[arg(long, default_value = "1m", value_parser = number::time(Duration::ZERO, DAY), value_name = "DURATION")]
    sync_period: Duration,

    /// Labels of a scale set with this prefix are not passed down; can be given several times.
    #[arg(long, value_name = "PREFIX")]
    exclude_label_propagation_prefix: Vec<String>,

    /// Secret to pull the listener's image with; can be given several times.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    auto_scaler_image_pull_secrets: Vec<String>,

    /// Remove a listener's or runner's pod with grace 0 when it hangs in deletion on a lost node
    /// for this long, from 0s to 168h; without it, such a pod is reported and left.
    #[arg(long, value_parser = number::time(Duration::ZERO, WEEK), value_name = "DURATION")]
    force_delete_lost_pods_after: Option<Duration>,

    /// What listenerTemplate of a scale set may contain: compatible (everything, as with ARC) or
    /// restricted (nothing that reaches beyond the listener's pod); for clusters whose users do
    /// not trust each other.
    #[arg(long, default_value = "compatible", value_name = "POLICY")]
    listener_template_policy: ListenerTemplatePolicy,

    /// Hosts that githubConfigUrl may name, as github.com, ghes.acme.io:8443 or *.ghe.com, with
    /// commas between; empty allows all.
    #[arg(long, default_value = "", value_parser = parse_hosts, value_name = "HOSTS")]
    allowed_config_hosts: AllowedHosts,

    /// Hosts of the vaults that vaultConfig may name, in the same form; empty allows all.
    #[arg(long, default_value = "", value_parser = parse_hosts, value_name = "HOSTS")]
    allowed_vaults: AllowedHosts,
}

impl Args {
    /// Name of the Lease that decides which of several controllers works.
    pub(super) fn lease(&self) -> String {
        match (&self.leader_election_id, &self.watch_single_namespace) {
            (Some(name), _) => name.clone(),
            (None, namespace) if namespace.is_empty() => DEFAULT_LEASE.to_owned(),
            (None, namespace) => format!("{DEFAULT_LEASE}-{namespace}"),
        }
    }
}

/// Hosts with commas between.
fn parse_hosts(text: &str) -> Result<AllowedHosts, String> {
    let hosts = text.split(',').map(str::trim);
    hosts
        .filter(|host| !host.is_empty())
        .map(str::parse::<HostPattern>)
        .collect()
}

/// A namespace, or nothing. A name that is none would make requests to other paths.
fn parse_namespace(text: &str) -> Result<String, String> {
    let inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.len() <= 63 && text.chars().all(inside) && text.trim_matches('-') == text {
        return Ok(text.to_owned());
    }
    Err(format!(
        "\"{text}\" is no name of a namespace; use lower case letters, digits and \"-\""
    ))
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        // one request in a quarter of an hour is as good as none
        Ok(rate) if rate == 0.0 || (0.001..=f64::from(MANY)).contains(&rate) => Ok(rate),
        _ => Err(format!(
            "\"{text}\" is no rate; give a number of requests a second, from 0.001 to {MANY}, or 0 for \
             no limit"
        )),
    }
}

/// A path that a listener can serve beside its health checks.
fn parse_metrics_path(text: &str) -> Result<String, String> {
    match text {
        "/healthz" | "/readyz" => Err(format!(
            "\"{text}\" is taken by the health checks; choose another path"
        )),
        path if path.starts_with('/') && !path.contains(['?', '#', '{', '}', '*', ':', ' ']) => {
            Ok(path.to_owned())
        }
        _ => Err(format!(
            "\"{text}\" is no path; it must begin with a slash, as /metrics"
        )),
    }
}

/// The environment that the controller reads.
#[derive(Clone, Debug, Default)]
struct Environment {
    image: Option<String>,
    namespace: Option<String>,
    entrypoint: Option<String>,
    hostname: Option<String>,
    force_ghes: bool,
    proxies: Proxies,
}

impl Environment {
    fn read() -> anyhow::Result<Self> {
        // set to nothing is set
        let force_ghes = std::env::var_os(env::FORCE_GHES).is_some();
        Self::from(|name| std::env::var(name).ok(), force_ghes)
    }

    /// From variables, of which an empty one is as none.
    fn from(variable: impl Fn(&str) -> Option<String>, force_ghes: bool) -> anyhow::Result<Self> {
        let get = |name: &str| variable(name).filter(|value| !value.is_empty());
        Ok(Self {
            image: get(env::CONTROLLER_IMAGE),
            namespace: get(env::CONTROLLER_NAMESPACE),
            entrypoint: get(env::LISTENER_ENTRYPOINT),
            hostname: get("HOSTNAME"),
            force_ghes,
            proxies: Proxies::from_environment(get).context("proxy environment variables")?,
        })
    }
}

fn settings(args: &Args, environment: &Environment) -> anyhow::Result<ControllerSettings> {
    let Some(image) = environment.image.clone() else {
        bail!(
            "{} is not set: set it to the image that listeners run, which is the controller's own",
            env::CONTROLLER_IMAGE
        );
    };
    let Some(namespace) = environment.namespace.clone() else {
        bail!(
            "{} is not set: set it to the namespace the controller runs in",
            env::CONTROLLER_NAMESPACE
        );
    };
    let listener_metrics = off_when_zero(&args.listener_metrics_addr);
    if let Some(address) = &listener_metrics {
        parse_address("--listener-metrics-addr", address).map_err(anyhow::Error::msg)?;
    }
    Ok(ControllerSettings {
        namespace,
        listener_image: image,
        image_pull_secrets: without_empty(&args.auto_scaler_image_pull_secrets),
        listener_entrypoint: environment
            .entrypoint
            .clone()
            .unwrap_or_else(|| "/ghalistener".to_owned()),
        listener_metrics_addr: listener_metrics.unwrap_or_default(),
        listener_metrics_endpoint: args.listener_metrics_endpoint.clone(),
        log_level: args.log_level.clone(),
        log_format: args.log_format.clone(),
        excluded_label_prefixes: without_empty(&args.exclude_label_propagation_prefix),
        sync_period: args.sync_period.max(Duration::from_secs(1)),
        force_delete_lost_pods_after: args.force_delete_lost_pods_after,
        force_ghes: environment.force_ghes,
        policy: Policy {
            listener_template: args.listener_template_policy,
            config_hosts: args.allowed_config_hosts.clone(),
            vaults: args.allowed_vaults.clone(),
        },
        ..ControllerSettings::default()
    })
}

/// Runs the controller until it is told to stop.
///
/// # Errors
///
/// When it cannot start, or has lost its lease or a watch; then the process is to start anew.
pub fn run(args: Args) -> anyhow::Result<()> {
    telemetry::init(&args.log_level, &args.log_format)?;
    super::install_tls_provider();
    let environment = Environment::read()?;
    let settings = settings(&args, &environment)?;
    for (flag, given) in [
        ("--update-strategy", args.update_strategy.is_some()),
        (
            "--workqueue-rate-limiter",
            args.workqueue_rate_limiter.is_some(),
        ),
        ("--pprof-addr", !args.pprof_addr.is_empty()),
        (
            "--default-max-concurrent-reconciles",
            !args.default_max_concurrent_reconciles.is_empty(),
        ),
    ] {
        if given {
            tracing::info!(flag, "accepted for compatibility and ignored");
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the async runtime could not be started")?;
    let ended = LocalSet::new().block_on(&runtime, serve(args, environment, settings));
    // a name that is still being looked up must not hold the process
    runtime.shutdown_background();
    ended
}

async fn serve(
    args: Args,
    environment: Environment,
    settings: ControllerSettings,
) -> anyhow::Result<()> {
    let metrics = Arc::new(Metrics::new().context("metrics")?);
    let ready = Arc::new(AtomicBool::new(false));
    start_endpoints(&args, &metrics, &ready).await?;
    let config = Config::infer().await.context(
        "no way to a cluster: run inside a pod, or set KUBECONFIG to a kubeconfig file (for a \
         cluster in this process, see `impresario demo`)",
    )?;
    let client = connect(config.clone()).context("the client for the API server")?;
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    let stop = async move {
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
    };
    let lease = args.lease();
    let leads = metrics.leader.with_label_values(&[lease.as_str()]);
    leads.set(0);
    let (candidate, fence) = if args.enable_leader_election {
        // a standby is ready, or a rollout would wait for ever
        ready.store(true, Ordering::Relaxed);
        let fence = Fence::shut();
        // connections of its own: a renewal must not wait behind other requests
        let client = connect(config).context("the client for the lease")?;
        let candidate = Candidate::new(
            client,
            Clock::system(),
            &settings.namespace,
            &lease,
            &identity(environment.hostname.as_deref())?,
            fence.clone(),
        );
        (Some(candidate), fence)
    } else {
        (None, Fence::open())
    };
    let work = {
        let fence = fence.clone();
        move || {
            leads.set(1);
            tracing::info!(lease, "this controller leads");
            let options =
                controller_options(&args, &environment, settings, client, fence, metrics, ready)?;
            Ok(async move {
                match crate::actors::run_controller(options).await {
                    Ok(never) => match never {},
                    Err(ended) => anyhow::Error::from(ended),
                }
            })
        }
    };
    run_while_leading(candidate, fence, stop, work).await
}

/// The name of this process as a candidate. Pods in the network of their node, and processes on
/// one machine, share a host name; two of one name would both take the lease for their own.
fn identity(hostname: Option<&str>) -> anyhow::Result<String> {
    let mut tail = [0; 8];
    aws_lc_rs::rand::fill(&mut tail)
        .map_err(|_| anyhow::anyhow!("the operating system gives no random numbers"))?;
    let host = hostname.unwrap_or("impresario");
    Ok(format!("{host}_{:016x}", u64::from_ne_bytes(tail)))
}

fn controller_options(
    args: &Args,
    environment: &Environment,
    settings: ControllerSettings,
    client: Client,
    fence: Fence,
    metrics: Arc<Metrics>,
    ready: Arc<AtomicBool>,
) -> anyhow::Result<ControllerOptions> {
    let clock = Clock::system();
    let limiter = Arc::new(Limiter::new(
        args.k8s_client_rate_limiter_qps,
        args.k8s_client_rate_limiter_burst,
    ));
    let refusals = Refusals::default();
    let sources = KubeIo::new(client.clone(), limiter.clone(), metrics.clone())
        .at_home_in(&settings.namespace)
        .sharing(refusals.clone());
    let clients = Clients::new(
        Arc::new(KubeSources(sources)),
        Arc::new(ReqwestTransports),
        clock.clone(),
        ClientsOptions {
            user_agent: UserAgent {
                version: settings.version.clone(),
                subsystem: "controller".to_owned(),
                ..UserAgent::default()
            },
            force_ghes: environment.force_ghes,
            sync_period: settings.sync_period,
            default_proxies: environment.proxies.clone(),
            policy: settings.policy.clone(),
            observer: Some(Arc::new(CallMetrics(metrics.clone()))),
            ..ClientsOptions::default()
        },
    );
    let actions: Arc<dyn ActionsIo> = Arc::new(Fenced {
        actions: Arc::new(clients),
        fence: fence.clone(),
    });
    let threads = match args.runner_max_concurrent_reconciles {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get() - 1),
        asked => asked,
    };
    Ok(ControllerOptions {
        client,
        limiter,
        refusals,
        fence,
        unregistrar: Arc::new(UnregistrarHandle::start(
            actions.clone(),
            clock.clone(),
            metrics.clone(),
        )),
        actions,
        clock,
        metrics,
        settings: Arc::new(settings),
        namespace: Some(args.watch_single_namespace.clone()).filter(|name| !name.is_empty()),
        workers: Workers::threads(threads.clamp(1, 8)).context("threads for scale sets")?,
        ready,
        journal: None,
    })
}

async fn start_endpoints(
    args: &Args,
    metrics: &Arc<Metrics>,
    ready: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let ready = ready.clone();
    let health = |endpoint: Endpoint| {
        endpoint.check("/healthz", Arc::new(|| Ok(()))).check(
            "/readyz",
            Arc::new(move || match ready.load(Ordering::Relaxed) {
                true => Ok(()),
                false => Err("the watches are not established yet".to_owned()),
            }),
        )
    };
    let metrics_addr = off_when_zero(&args.metrics_addr);
    let health_addr = off_when_zero(&args.health_probe_bind_address);
    let registry = metrics.registry().clone();
    match (metrics_addr, health_addr) {
        (Some(one), Some(other)) if one == other => {
            let endpoint = health(Endpoint::default().metrics("/metrics", registry));
            serve_on("--metrics-addr", &one, endpoint).await?;
        }
        (metrics_addr, health_addr) => {
            if let Some(address) = metrics_addr {
                let endpoint = Endpoint::default().metrics("/metrics", registry);
                serve_on("--metrics-addr", &address, endpoint).await?;
            }
            if let Some(address) = health_addr {
                let endpoint = health(Endpoint::default());
                serve_on("--health-probe-bind-address", &address, endpoint).await?;
            }
        }
    }
    Ok(())
}

/// Serves an endpoint in the background for as long as the process lives.
async fn serve_on(flag: &str, address: &str, endpoint: Endpoint) -> anyhow::Result<()> {
    let address = parse_address(flag, address).map_err(anyhow::Error::msg)?;
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("{flag} {address} cannot be served; free the port, choose another, or turn it off with 0")
    })?;
    tokio::task::spawn_local(async move {
        if let Err(error) = endpoint.serve(listener).await {
            tracing::error!(%address, %error, "endpoint ended");
        }
    });
    Ok(())
}

/// A list may end in a comma; an empty prefix would be one of every label.
fn without_empty(texts: &[String]) -> Vec<String> {
    let given = texts.iter().map(|text| text.trim());
    given
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
        .collect()
}

fn off_when_zero(address: &str) -> Option<String> {
    (!matches!(address, "" | "0")).then(|| address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["controller"].iter().chain(arguments))
    }

    #[test]
    fn the_flags_of_arcs_chart_are_accepted() {
        let args = parse(&[
            "--auto-scaling-runner-set-only",
            "--enable-leader-election",
            "--leader-election-id=arc-gha-rs-controller",
            "--log-level=debug",
            "--log-format=text",
            "--update-strategy=eventual",
            "--runner-max-concurrent-reconciles=2",
            "--listener-metrics-addr=:8080",
            "--listener-metrics-endpoint=/metrics",
            "--metrics-addr=:8080",
            "--watch-single-namespace=ci",
            "--k8s-client-rate-limiter-qps=20",
            "--k8s-client-rate-limiter-burst=30",
            "--exclude-label-propagation-prefix=argocd.argoproj.io/",
            "--exclude-label-propagation-prefix=acme.io/",
            "--auto-scaler-image-pull-secrets=one,two",
            "--sync-period=10m",
            "--pprof-addr=:6060",
            "--workqueue-rate-limiter=bucket",
        ])
        .unwrap();
        assert!(args.enable_leader_election);
        assert_eq!(args.sync_period, Duration::from_secs(600));
        assert_eq!(args.exclude_label_propagation_prefix.len(), 2);
        assert_eq!(args.auto_scaler_image_pull_secrets, ["one", "two"]);
    }

    #[test]
    fn an_unknown_flag_is_named() {
        let error = parse(&["--no-such-flag"]).unwrap_err().to_string();
        assert!(error.contains("--no-such-flag"), "{error}");
    }

    #[test]
    fn a_value_that_a_flag_cannot_have_is_named_with_the_flag() {
        for (argument, advice) in [
            ("--log-level=loud", "debug"),
            ("--log-format=xml", "json"),
            ("--watch-single-namespace=ci/../cd", "lower case"),
            ("--k8s-client-rate-limiter-qps=-1", "requests a second"),
            ("--k8s-client-rate-limiter-qps=NaN", "requests a second"),
            ("--k8s-client-rate-limiter-qps=1e-300", "requests a second"),
            ("--k8s-client-rate-limiter-burst=-1", "invalid"),
            ("--listener-metrics-endpoint=metrics", "slash"),
            ("--listener-metrics-endpoint=/healthz", "health"),
            ("--runner-max-concurrent-reconciles=many", "many"),
            ("--sync-period=soon", "90s"),
            ("--force-delete-lost-pods-after=1x", "90s"),
            ("--enable-leader-election=perhaps", "true"),
            ("--listener-template-policy=strict", "restricted"),
            ("--allowed-config-hosts=https://github.com", "ghes.acme.io"),
            ("--allowed-vaults=*", "*.ghe.com"),
        ] {
            let error = parse(&[argument]).unwrap_err().to_string();
            let (flag, value) = argument.split_once('=').unwrap();
            for part in [flag, value, advice] {
                assert!(error.contains(part), "{argument}: no {part} in {error}");
            }
        }
    }

    #[test]
    fn a_missing_environment_is_named_with_what_to_do() {
        let args = parse(&[]).unwrap();
        let error = settings(&args, &Environment::default()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("CONTROLLER_MANAGER_CONTAINER_IMAGE")
        );
    }

    #[test]
    fn two_processes_on_one_host_are_two_candidates() {
        let name = || identity(Some("node")).unwrap();
        let (one, other) = (name(), name());
        assert!(one.starts_with("node_") && one != other, "{one} {other}");
    }

    #[test]
    fn zero_turns_the_listeners_metrics_off() {
        let environment = Environment {
            image: Some("i".into()),
            namespace: Some("n".into()),
            ..Environment::default()
        };
        let args = parse(&["--listener-metrics-addr=0"]).unwrap();
        assert_eq!(
            settings(&args, &environment).unwrap().listener_metrics_addr,
            ""
        );
    }
}
