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
    meta.annotations.clone_from(&er.metadata.annotations);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::metadata::owner_reference;
    use super::super::names::runner_proxy_secret_name;
    use super::super::test_support::{map, runner, settings};
    use super::*;

    fn from_secret(name: &str, secret: &str, key: &str) -> serde_json::Value {
        json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}})
    }

    #[test]
    fn the_runners_container_gets_what_it_signs_in_with_and_others_stay_as_they_are() {
        let proxy = runner_proxy_secret_name("runners", "pool");
        assert_eq!(
            serde_json::to_value(runner_pod(&runner(), &settings()).spec).unwrap(),
            json!({
                "serviceAccountName": "no-permission",
                "restartPolicy": "Never",
                "containers": [
                    {"name": "sidecar", "image": "sidecar:1"},
                    {
                        "name": "runner",
                        "image": "runner:2",
                        "workingDir": "/work",
                        "env": [
                            {"name": "FIRST", "value": "1"},
                            {"name": "no_proxy", "value": "the-users"},
                            from_secret(
                                "ACTIONS_RUNNER_INPUT_JITCONFIG",
                                "pool-runner-abcde",
                                "jitToken",
                            ),
                            {
                                "name": "GITHUB_ACTIONS_RUNNER_EXTRA_USER_AGENT",
                                "value": "impresario/1.2.3",
                            },
                            {
                                "name": "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE",
                                "value": "1",
                            },
                            from_secret("http_proxy", &proxy, "http_proxy"),
                            from_secret("https_proxy", &proxy, "https_proxy"),
                        ],
                    },
                ],
            })
        );
    }

    #[test]
    fn without_a_proxy_secret_there_are_no_proxy_variables() {
        let mut runner = runner();
        runner.spec.proxy_secret_ref.clear();
        let spec = runner_pod(&runner, &settings()).spec.unwrap();
        let variables = spec.containers[1].env.as_ref().unwrap();
        assert!(
            variables
                .iter()
                .all(|variable| variable.name != "http_proxy")
        );
    }

    #[test]
    fn a_restart_policy_of_the_template_stays() {
        let mut runner = runner();
        let template = runner.spec.spec.as_mut().unwrap();
        template.restart_policy = Some("OnFailure".to_owned());
        let spec = runner_pod(&runner, &settings()).spec.unwrap();
        assert_eq!(spec.restart_policy.as_deref(), Some("OnFailure"));
    }

    #[test]
    fn the_templates_labels_and_annotations_win_over_the_runners() {
        let mut runner = runner();
        let template = runner.spec.metadata.get_or_insert_default();
        let labels = template.labels.get_or_insert_default();
        labels.insert("actions-ephemeral-runner".to_owned(), "no".to_owned());
        let annotations = template.annotations.get_or_insert_default();
        annotations.insert("kind-note".to_owned(), "of-the-template".to_owned());
        let metadata = runner_pod(&runner, &settings()).metadata;
        let labels = metadata.labels.unwrap();
        assert_eq!(labels["from"], "runner-template");
        assert_eq!(labels["team"], "green");
        assert_eq!(labels["kind-label"], "runner");
        assert_eq!(labels["actions.github.com/scale-set-name"], "pool");
        assert_eq!(labels["actions-ephemeral-runner"], "True");
        assert_eq!(
            metadata.annotations.unwrap(),
            map(&[
                ("actions.github.com/patch-id", "17"),
                ("actions.github.com/actionable-revision", "5"),
                ("kind-note", "of-the-template"),
                ("sidecar", "off"),
            ])
        );
    }

    #[test]
    fn the_pod_has_the_runners_name_and_goes_with_it() {
        let runner = runner();
        let metadata = runner_pod(&runner, &settings()).metadata;
        assert_eq!(metadata.name.as_deref(), Some("pool-runner-abcde"));
        assert_eq!(metadata.namespace.as_deref(), Some("runners"));
        assert_eq!(
            metadata.owner_references,
            Some(vec![owner_reference(&runner)])
        );
    }

    #[test]
    fn the_work_folder_is_the_working_directory_of_the_runners_container() {
        let mut runner = runner();
        assert_eq!(work_folder(&runner), "/work");
        runner.spec.spec = None;
        assert_eq!(work_folder(&runner), "");
    }

    #[test]
    fn container_hooks_are_seen_on_the_runners_container_alone() {
        let mut runner = runner();
        let hooks = |value: &str| {
            Some(vec![EnvVar {
                name: "ACTIONS_RUNNER_CONTAINER_HOOKS".to_owned(),
                value: Some(value.to_owned()),
                value_from: None,
            }])
        };
        let mut with = |container: usize, value: &str| {
            let spec = runner.spec.spec.as_mut().unwrap();
            spec.containers.iter_mut().for_each(|c| c.env = None);
            spec.containers[container].env = hooks(value);
            has_container_hooks(&runner)
        };
        assert!(with(1, "/home/runner/k8s/index.js"));
        assert!(!with(1, ""));
        assert!(!with(0, "/home/runner/k8s/index.js"));
    }
}
