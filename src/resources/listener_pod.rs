//! The pod that runs the listener program.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, Pod, PodSpec, SecretVolumeSource, Volume, VolumeMount,
};

use super::ControllerSettings;
use super::listener_template::merge_template;
use super::metadata::owned_meta;
use super::names::{listener_config_secret_name, listener_proxy_secret_name};
use super::proxy::proxy_env;
use crate::api::AutoscalingListener;
use crate::api::constants::{LISTENER_CONTAINER, annotations, env, keys, labels};

/// Volume with the configuration.
pub(super) const CONFIG_VOLUME: &str = "listener-config";
/// Where it is mounted.
pub(super) const CONFIG_DIRECTORY: &str = "/etc/gha-listener";
/// Name of the port that serves the metrics.
const METRICS_PORT: &str = "metrics";
/// Long enough to finish the message in hand and to delete the session.
const GRACE_SECONDS: i64 = 60;

/// The listener's pod. `config_version` is the resourceVersion of the config Secret that it is
/// to read, which the pod is marked with: the listener reads it only once.
#[must_use]
pub fn listener_pod(
    al: &AutoscalingListener,
    config_version: Option<&str>,
    settings: &ControllerSettings,
) -> Pod {
    let name = al.metadata.name.clone().unwrap_or_default();
    let mut metadata = owned_meta(al, name.clone(), labels::COMPONENT_LISTENER, None);
    metadata.annotations = config_version.map(|version| {
        BTreeMap::from([(
            annotations::LISTENER_CONFIG_RESOURCE_VERSION.to_owned(),
            version.to_owned(),
        )])
    });
    let spec = PodSpec {
        service_account_name: Some(name.clone()),
        containers: vec![listener_container(al, &name, settings)],
        volumes: Some(vec![Volume {
            name: CONFIG_VOLUME.to_owned(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(listener_config_secret_name(&name)),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        }]),
        image_pull_secrets: Some(al.spec.image_pull_secrets.clone())
            .filter(|secrets| !secrets.is_empty()),
        node_selector: Some(BTreeMap::from([(
            "kubernetes.io/os".to_owned(),
            "linux".to_owned(),
        )])),
        restart_policy: Some("Never".to_owned()),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        ..PodSpec::default()
    };
    let mut pod = Pod {
        metadata,
        spec: Some(spec),
        status: None,
    };
    if let Some(template) = &al.spec.template {
        merge_template(&mut pod, template);
    }
    pod
}

fn listener_container(
    al: &AutoscalingListener,
    name: &str,
    settings: &ControllerSettings,
) -> Container {
    let mut variables = vec![EnvVar {
        name: env::LISTENER_CONFIG_PATH.to_owned(),
        value: Some(format!("{CONFIG_DIRECTORY}/{}", keys::LISTENER_CONFIG)),
        value_from: None,
    }];
    if settings.force_ghes {
        // both have to mean the same server
        variables.push(EnvVar {
            name: env::FORCE_GHES.to_owned(),
            value: Some("true".to_owned()),
            value_from: None,
        });
    }
    variables.extend(proxy_env(
        al.spec.proxy.as_ref(),
        &listener_proxy_secret_name(name),
    ));
    Container {
        name: LISTENER_CONTAINER.to_owned(),
        image: Some(al.spec.image.clone()),
        command: Some(vec![settings.listener_entrypoint.clone()]),
        env: Some(variables),
        ports: settings.listener_metrics_port().map(|port| {
            vec![ContainerPort {
                name: Some(METRICS_PORT.to_owned()),
                container_port: i32::from(port),
                protocol: Some("TCP".to_owned()),
                ..ContainerPort::default()
            }]
        }),
        volume_mounts: Some(vec![VolumeMount {
            name: CONFIG_VOLUME.to_owned(),
            mount_path: CONFIG_DIRECTORY.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::metadata::owner_reference;
    use super::super::test_support::{listener, settings};
    use super::*;

    fn plain() -> AutoscalingListener {
        let mut al = listener();
        al.spec.template = None;
        al
    }

    #[test]
    fn the_listener_takes_hosts_for_what_the_controller_takes_them_for() {
        for force_ghes in [false, true] {
            let settings = ControllerSettings {
                force_ghes,
                ..settings()
            };
            let spec = listener_pod(&plain(), None, &settings).spec.unwrap();
            let variables = spec.containers[0].env.clone().unwrap();
            let told = variables
                .iter()
                .any(|variable| variable.name == "GITHUB_ACTIONS_FORCE_GHES");
            assert_eq!(told, force_ghes);
        }
    }

    #[test]
    fn each_field_of_the_pod_comes_from_where_it_belongs() {
        let from_proxy_secret = |name: &str| {
            json!({
                "name": name,
                "valueFrom": {"secretKeyRef": {"name": "pool-al-proxy", "key": name}},
            })
        };
        assert_eq!(
            serde_json::to_value(listener_pod(&plain(), None, &settings()).spec).unwrap(),
            json!({
                "serviceAccountName": "pool-al",
                "containers": [{
                    "name": "listener",
                    "image": "impresario:3",
                    "command": ["/entry"],
                    "env": [
                        {"name": "LISTENER_CONFIG_PATH", "value": "/etc/gha-listener/config.json"},
                        from_proxy_secret("http_proxy"),
                        from_proxy_secret("https_proxy"),
                        from_proxy_secret("no_proxy"),
                    ],
                    "ports": [{"name": "metrics", "containerPort": 8081, "protocol": "TCP"}],
                    "volumeMounts": [{
                        "name": "listener-config",
                        "mountPath": "/etc/gha-listener",
                        "readOnly": true,
                    }],
                }],
                "volumes": [{
                    "name": "listener-config",
                    "secret": {"secretName": "pool-al-config"},
                }],
                "imagePullSecrets": [{"name": "registry"}],
                "nodeSelector": {"kubernetes.io/os": "linux"},
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 60,
            })
        );
    }

    #[test]
    fn the_pod_carries_the_listeners_labels_and_goes_with_it() {
        let al = plain();
        let metadata = listener_pod(&al, None, &settings()).metadata;
        assert_eq!(metadata.name.as_deref(), Some("pool-al"));
        assert_eq!(metadata.namespace.as_deref(), Some("system"));
        assert_eq!(metadata.labels, al.metadata.labels);
        assert_eq!(metadata.owner_references, Some(vec![owner_reference(&al)]));
    }

    #[test]
    fn the_pod_is_marked_with_the_configuration_it_reads_when_that_is_known() {
        let annotations = |version| {
            listener_pod(&plain(), version, &settings())
                .metadata
                .annotations
        };
        assert_eq!(annotations(None), None);
        assert_eq!(
            annotations(Some("123")).unwrap()["actions.github.com/listener-config-resource-version"],
            "123"
        );
    }

    #[test]
    fn what_is_not_configured_is_not_there() {
        let mut al = plain();
        al.spec.proxy = None;
        al.spec.image_pull_secrets.clear();
        for none in ["", "0", "host", "host:0", "host:x"] {
            let mut settings = settings();
            settings.listener_metrics_addr = none.to_owned();
            let spec = listener_pod(&al, None, &settings).spec.unwrap();
            assert_eq!(spec.image_pull_secrets, None);
            assert_eq!(spec.containers[0].ports, None, "{none}");
            assert_eq!(spec.containers[0].env.as_ref().unwrap().len(), 1);
        }
    }

    #[test]
    fn the_template_is_merged_over_it() {
        let labels = listener_pod(&listener(), None, &settings()).metadata.labels;
        assert_eq!(labels.unwrap()["from"], "listener-template");
    }
}
