//! The pod that a runner runs in, and what its template says of the runner.

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::ControllerSettings;
use super::metadata::owned_meta;
use super::proxy::{env_from_secret, proxy_env};
use crate::api::EphemeralRunner;
use crate::api::constants::{RUNNER_CONTAINER, env, keys, labels};

/// The pod of a runner: its template, with what the runner needs to sign in.
#[must_use]
pub fn runner_pod(er: &EphemeralRunner, settings: &ControllerSettings) -> Pod {
    let mut spec = er.spec.spec.clone().unwrap_or_default();
    // Kubernetes' own default starts an ended runner again, with a registration that is used up
    spec.restart_policy
        .get_or_insert_with(|| "Never".to_owned());
    for container in &mut spec.containers {
        if container.name == RUNNER_CONTAINER {
            add_runner_env(container, er, settings);
        }
    }
    Pod {
        metadata: pod_metadata(er),
        spec: Some(spec),
        status: None,
    }
}

/// The runner's work folder: the working directory of its container, empty when the template
/// leaves it to the image.
#[must_use]
pub fn work_folder(er: &EphemeralRunner) -> String {
    runner_container(er.spec.spec.as_ref())
        .and_then(|container| container.working_dir.clone())
        .unwrap_or_default()
}

/// Whether the runner makes pods of its own for jobs, which outlive it when it dies.
#[must_use]
pub fn has_container_hooks(er: &EphemeralRunner) -> bool {
    runner_container(er.spec.spec.as_ref())
        .and_then(|container| container.env.as_deref())
        .unwrap_or_default()
        .iter()
        .any(|variable| {
            variable.name == env::RUNNER_CONTAINER_HOOKS
                && (variable.value_from.is_some()
                    || variable
                        .value
                        .as_deref()
                        .is_some_and(|path| !path.is_empty()))
        })
}

fn runner_container(spec: Option<&PodSpec>) -> Option<&Container> {
    spec?
        .containers
        .iter()
        .find(|container| container.name == RUNNER_CONTAINER)
}

/// Labels and annotations of the runner, those of the template winning.
fn pod_metadata(er: &EphemeralRunner) -> ObjectMeta {
    let name = er.metadata.name.clone().unwrap_or_default();
    let mut meta = owned_meta(er, name, labels::COMPONENT_RUNNER, None);
    meta.annotations = er.metadata.annotations.clone();
    let own = meta.labels.get_or_insert_default();
    if let Some(template) = &er.spec.metadata {
        own.extend(template.labels.clone().into_iter().flatten());
        if let Some(annotations) = &template.annotations {
            let target = meta.annotations.get_or_insert_default();
            target.extend(annotations.clone());
        }
    }
    own.insert(
        labels::EPHEMERAL_RUNNER.to_owned(),
        labels::EPHEMERAL_RUNNER_VALUE.to_owned(),
    );
    meta
}

/// Gives the runner's container our variables. The template's own proxy variables stay; what
/// the runner signs in with is always ours.
fn add_runner_env(container: &mut Container, er: &EphemeralRunner, settings: &ControllerSettings) {
    let value = |name: &str, value: String| EnvVar {
        name: name.to_owned(),
        value: Some(value),
        value_from: None,
    };
    let secret = er.metadata.name.as_deref().unwrap_or_default();
    let ours = [
        env_from_secret(env::RUNNER_JIT_CONFIG, secret, keys::JIT_TOKEN),
        value(env::RUNNER_USER_AGENT, user_agent(settings)),
        value(env::RUNNER_DEPRECATED_EXIT_CODE, "1".to_owned()),
    ];
    let variables = container.env.get_or_insert_default();
    variables.retain(|present| ours.iter().all(|our| our.name != present.name));
    variables.extend(ours);
    if !er.spec.proxy_secret_ref.is_empty() {
        for variable in proxy_env(er.spec.proxy.as_ref(), &er.spec.proxy_secret_ref) {
            if variables
                .iter()
                .all(|present| present.name != variable.name)
            {
                variables.push(variable);
            }
        }
    }
}

fn user_agent(settings: &ControllerSettings) -> String {
    format!("{}/{}", env!("CARGO_PKG_NAME"), settings.version)
}
