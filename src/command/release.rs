//! `impresario release`: hands pools back to ARC.
//!
//! ARC 0.14 does not know the finalizer of our EphemeralRunnerSets and would wait for somebody to
//! take it off. Everything else is in a form that it manages; what only we read is taken off
//! as well, also from runners. Pods and Secrets are not touched, so jobs go on.

mod patches;

use std::fmt::Debug;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Config, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::constants::finalizers;
use crate::api::{AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet};
use crate::kube_io::FIELD_MANAGER;

/// How long a controller that still runs may take to undo what was done.
const LOOK_AFTER: Duration = Duration::from_secs(3);

/// How often a change is tried whose object changes meanwhile.
const ATTEMPTS: u32 = 5;

/// Flags of `impresario release`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = "\
Scale the controller's Deployment to 0 first: a controller that runs puts its marks back.

  kubectl scale -n arc-systems deployment/arc-gha-rs-controller --replicas 0
  impresario release --all
  helm upgrade arc ... --set image.tag=0.14.2")]
pub struct Args {
    /// Names of the AutoscalingRunnerSets to release
    #[arg(
        value_name = "NAME",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub names: Vec<String>,

    /// Release all of them
    #[arg(long)]
    pub all: bool,

    /// Only those in this namespace; with names, "default" is meant if it is not given
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Runs the command with the cluster of the current kubeconfig context, or that of the pod.
///
/// # Errors
///
/// When a pool is not there, cannot be changed, or is changed back by a controller.
pub fn run(args: &Args) -> anyhow::Result<()> {
    super::install_tls_provider();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the async runtime could not be started")?;
    runtime.block_on(async {
        let config = Config::infer()
            .await
            .context("no way to a cluster: set KUBECONFIG to a kubeconfig file")?;
        let client = Client::try_from(config).context("the client for the API server")?;
        release(client, args, &mut std::io::stdout().lock()).await
    })
}

/// Releases pools and tells on `output` what was done.
///
/// # Errors
///
/// As [`run`].
pub async fn release(client: Client, args: &Args, output: &mut dyn Write) -> anyhow::Result<()> {
    let pools = pools(&client, args).await?;
    let all_sets = objects::<EphemeralRunnerSet>(&client, args.namespace.as_deref()).await?;
    let all_listeners = objects::<AutoscalingListener>(&client, None).await?;
    let all_runners = objects::<EphemeralRunner>(&client, args.namespace.as_deref()).await?;
    let mut work = Work {
        client,
        dry_run: args.dry_run,
        output,
    };
    let mut sets = Vec::new();
    for pool in &pools {
        for listener in all_listeners.iter().filter(|one| is_listener_of(one, pool)) {
            work.change(listener.clone(), patches::of_listener).await?;
        }
        for set in all_sets.iter().filter(|one| is_owned_by(*one, pool)) {
            for runner in all_runners.iter().filter(|one| is_owned_by(*one, set)) {
                work.change(runner.clone(), patches::of_runner).await?;
            }
            work.change(set.clone(), patches::of_runner_set).await?;
            sets.push(set);
        }
        work.change(pool.clone(), patches::of_scale_set).await?;
    }
    if !args.dry_run {
        tokio::time::sleep(LOOK_AFTER).await;
        for set in sets {
            work.assert_released(set).await?;
        }
    }
    work.say(&match (args.dry_run, pools.len()) {
        (true, count) => format!("{count} scale sets would be released"),
        (false, count) => {
            format!("{count} scale sets are released; jobs go on, install ARC's controller next")
        }
    })
}

/// The pools that are asked for.
async fn pools(client: &Client, args: &Args) -> anyhow::Result<Vec<AutoscalingRunnerSet>> {
    if args.all {
        return objects(client, args.namespace.as_deref()).await;
    }
    let namespace = args.namespace.as_deref().unwrap_or("default");
    let api = Api::<AutoscalingRunnerSet>::namespaced(client.clone(), namespace);
    let mut pools = Vec::new();
    for name in &args.names {
        let found = api.get_opt(name).await;
        let found = found.with_context(|| format!("AutoscalingRunnerSet {namespace}/{name}"))?;
        let Some(pool) = found else {
            bail!(
                "there is no AutoscalingRunnerSet {name} in namespace {namespace}; \
                 `kubectl get autoscalingrunnersets --all-namespaces` lists them"
            );
        };
        pools.push(pool);
    }
    Ok(pools)
}

async fn objects<K>(client: &Client, namespace: Option<&str>) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api = match namespace {
        Some(namespace) => Api::<K>::namespaced(client.clone(), namespace),
        None => Api::<K>::all(client.clone()),
    };
    let list = api.list(&ListParams::default()).await;
    let list = list.with_context(|| format!("the {} could not be listed", K::plural(&())))?;
    Ok(list.items)
}

fn is_listener_of(listener: &AutoscalingListener, pool: &AutoscalingRunnerSet) -> bool {
    let spec = &listener.spec;
    Some(&spec.autoscaling_runner_set_name) == pool.metadata.name.as_ref()
        && Some(&spec.autoscaling_runner_set_namespace) == pool.metadata.namespace.as_ref()
}

fn is_owned_by(object: &impl Resource, owner: &impl Resource) -> bool {
    let owners = object.owner_references();
    owners
        .iter()
        .any(|one| Some(&one.uid) == owner.meta().uid.as_ref())
}

/// What is done, where, and where it is told.
struct Work<'a> {
    client: Client,
    dry_run: bool,
    output: &'a mut dyn Write,
}

impl Work<'_> {
    fn say(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.output, "{line}").context("the output is closed")
    }

    /// Brings an object into the form that ARC manages, if it is not yet. One that changes
    /// meanwhile is looked at again.
    async fn change<K>(
        &mut self,
        mut object: K,
        decide: fn(&K) -> Option<patches::Change>,
    ) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned,
    {
        let namespace = object.namespace().unwrap_or_default();
        let name = object.name_any();
        let what = format!("{} {namespace}/{name}", K::kind(&()));
        let api = Api::<K>::namespaced(self.client.clone(), &namespace);
        for _ in 0..ATTEMPTS {
            let Some(change) = decide(&object) else {
                return Ok(());
            };
            if self.dry_run {
                return self.say(&format!("{what}: would {}", change.text));
            }
            match api
                .patch(&name, &params(), &locked(change.body, &object))
                .await
            {
                Ok(_) => return self.say(&format!("{what}: {}", change.text)),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let Some(newest) = api.get_opt(&name).await.context(what.clone())? else {
                        return Ok(());
                    };
                    object = newest;
                }
                Err(error) => return Err(error).context(what),
            }
        }
        bail!("{what} changes all the time: a controller still runs; {STOP_IT}")
    }

    /// A controller that runs takes the set for its own again.
    async fn assert_released(&self, set: &EphemeralRunnerSet) -> anyhow::Result<()> {
        let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
        let api = Api::<EphemeralRunnerSet>::namespaced(self.client.clone(), &namespace);
        let now = api.get_opt(&name).await;
        let now = now.with_context(|| format!("EphemeralRunnerSet {namespace}/{name}"))?;
        let ours = |set: &EphemeralRunnerSet| {
            let held = set.finalizers();
            held.iter()
                .any(|name| name == finalizers::EPHEMERAL_RUNNER_SET)
        };
        if now.is_some_and(|set| ours(&set)) {
            bail!(
                "a controller still runs and has taken EphemeralRunnerSet {namespace}/{name} \
                 back; {STOP_IT}"
            );
        }
        Ok(())
    }
}

const STOP_IT: &str = "scale its Deployment to 0 and run this again";

fn params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// The patch, for the object as it was seen.
fn locked<K: Resource>(mut body: Value, seen: &K) -> Patch<Value> {
    body["metadata"]["resourceVersion"] = seen.meta().resource_version.clone().into();
    Patch::Merge(body)
}
