//! Merges the user's listener template over the listener's pod.
//!
//! Labels and annotations are added where the pod has none of that name. In the container
//! `listener`, variables, arguments, ports and mounts are added and other fields replaced
//! when given; so are the fields of the pod. What leads the listener to its configuration
//! and its account stays ours.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, Pod, PodSpec, PodTemplateSpec, Volume, VolumeMount,
};

use super::listener_pod::{CONFIG_DIRECTORY, CONFIG_VOLUME};
use crate::api::constants::{LISTENER_CONTAINER, env};

/// Takes over each of the fields that the template gives.
macro_rules! replace_given {
    ($target:expr, $($field:ident),+ $(,)?) => {
        $(if $field.is_some() {
            $target.$field = $field;
        })+
    };
}

/// Merges `template` over `pod`.
pub(super) fn merge_template(pod: &mut Pod, template: &PodTemplateSpec) {
    if let Some(metadata) = &template.metadata {
        add_absent(&mut pod.metadata.labels, metadata.labels.as_ref());
        add_absent(&mut pod.metadata.annotations, metadata.annotations.as_ref());
    }
    if let Some(spec) = &template.spec {
        merge_pod(pod.spec.get_or_insert_default(), spec.clone());
    }
}

fn add_absent(
    target: &mut Option<BTreeMap<String, String>>,
    given: Option<&BTreeMap<String, String>>,
) {
    for (key, value) in given.into_iter().flatten() {
        target
            .get_or_insert_default()
            .entry(key.clone())
            .or_insert_with(|| value.clone());
    }
}

/// Taken apart without `..`, so that a field that Kubernetes adds is not forgotten here.
fn merge_pod(pod: &mut PodSpec, template: PodSpec) {
    let PodSpec {
        active_deadline_seconds,
        affinity,
        automount_service_account_token: _,
        containers,
        dns_config,
        dns_policy,
        enable_service_links,
        ephemeral_containers,
        host_aliases,
        host_ipc,
        host_network,
        host_pid,
        host_users,
        hostname,
        hostname_override,
        image_pull_secrets,
        init_containers,
        node_name,
        node_selector,
        os,
        overhead,
        preemption_policy,
        priority,
        priority_class_name,
        readiness_gates,
        resource_claims,
        resources,
        restart_policy,
        runtime_class_name,
        scheduler_name,
        scheduling_gates,
        scheduling_group,
        security_context,
        service_account: _,
        service_account_name: _,
        set_hostname_as_fqdn,
        share_process_namespace,
        subdomain,
        termination_grace_period_seconds,
        tolerations,
        topology_spread_constraints,
        volumes,
    } = template;
    replace_given!(
        pod,
        active_deadline_seconds,
        affinity,
        dns_config,
        dns_policy,
        enable_service_links,
        ephemeral_containers,
        host_aliases,
        host_ipc,
        host_network,
        host_pid,
        host_users,
        hostname,
        hostname_override,
        image_pull_secrets,
        init_containers,
        node_name,
        node_selector,
        os,
        overhead,
        preemption_policy,
        priority,
        priority_class_name,
        readiness_gates,
        resource_claims,
        resources,
        restart_policy,
        runtime_class_name,
        scheduler_name,
        scheduling_gates,
        scheduling_group,
        security_context,
        set_hostname_as_fqdn,
        share_process_namespace,
        subdomain,
        termination_grace_period_seconds,
        tolerations,
        topology_spread_constraints,
    );
    merge_list(&mut pod.volumes, volumes, same_volume, |volume: &Volume| {
        volume.name == CONFIG_VOLUME
    });
    for container in containers {
        let ours = pod
            .containers
            .iter_mut()
            .find(|ours| container.name == LISTENER_CONTAINER && ours.name == LISTENER_CONTAINER);
        match ours {
            Some(ours) => merge_container(ours, container),
            None => pod.containers.push(container),
        }
    }
}

fn merge_container(ours: &mut Container, template: Container) {
    let Container {
        args,
        command,
        env,
        env_from,
        image,
        image_pull_policy,
        lifecycle,
        liveness_probe,
        name: _,
        ports,
        readiness_probe,
        resize_policy,
        resources,
        restart_policy,
        restart_policy_rules,
        security_context,
        startup_probe,
        stdin,
        stdin_once,
        termination_message_path,
        termination_message_policy,
        tty,
        volume_devices,
        volume_mounts,
        working_dir,
    } = template;
    replace_given!(
        ours,
        command,
        env_from,
        image,
        image_pull_policy,
        lifecycle,
        liveness_probe,
        readiness_probe,
        resize_policy,
        resources,
        restart_policy,
        restart_policy_rules,
        security_context,
        startup_probe,
        stdin,
        stdin_once,
        termination_message_path,
        termination_message_policy,
        tty,
        volume_devices,
        working_dir,
    );
    if let Some(args) = args {
        ours.args.get_or_insert_default().extend(args);
    }
    merge_list(&mut ours.env, env, same_variable, |variable: &EnvVar| {
        variable.name == env::LISTENER_CONFIG_PATH
    });
    merge_list(&mut ours.ports, ports, same_port, |_| false);
    merge_list(
        &mut ours.volume_mounts,
        volume_mounts,
        same_mount,
        |mount: &VolumeMount| mount.mount_path == CONFIG_DIRECTORY,
    );
}

/// Adds elements to a list. One that is there already is replaced in its place, since the
/// API server takes no two of a kind, unless it is protected.
fn merge_list<T>(
    target: &mut Option<Vec<T>>,
    given: Option<Vec<T>>,
    same: fn(&T, &T) -> bool,
    is_protected: fn(&T) -> bool,
) {
    for element in given.into_iter().flatten() {
        let list = target.get_or_insert_default();
        match list.iter_mut().find(|present| same(present, &element)) {
            Some(present) if is_protected(present) => {}
            Some(present) => *present = element,
            None => list.push(element),
        }
    }
}

fn same_volume(one: &Volume, other: &Volume) -> bool {
    one.name == other.name
}

fn same_variable(one: &EnvVar, other: &EnvVar) -> bool {
    one.name == other.name
}

fn same_port(one: &ContainerPort, other: &ContainerPort) -> bool {
    let protocol = |port: &ContainerPort| match port.protocol.as_deref() {
        None | Some("" | "TCP") => "TCP".to_owned(),
        Some(protocol) => protocol.to_owned(),
    };
    one.container_port == other.container_port && protocol(one) == protocol(other)
}

fn same_mount(one: &VolumeMount, other: &VolumeMount) -> bool {
    one.mount_path.trim_end_matches('/') == other.mount_path.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::listener_pod::listener_pod;
    use super::super::test_support::{listener, settings};

    /// The listener's pod with this template merged over it.
    fn merged(template: Value) -> Value {
        let mut al = listener();
        al.spec.template = Some(serde_json::from_value(template).unwrap());
        serde_json::to_value(listener_pod(&al, Some("123"), &settings())).unwrap()
    }

    fn merged_container(fields: Value) -> Value {
        let mut container = fields;
        container["name"] = json!("listener");
        let pod = merged(json!({"spec": {"containers": [container]}}));
        assert_eq!(pod["spec"]["containers"].as_array().unwrap().len(), 1);
        pod["spec"]["containers"][0].clone()
    }

    fn merged_spec(fields: Value) -> Value {
        let mut spec = fields;
        spec["containers"] = json!([]);
        merged(json!({ "spec": spec }))["spec"].clone()
    }

    #[test]
    fn labels_and_annotations_are_added_where_absent() {
        let metadata = merged(json!({"metadata": {
            "name": "ignored",
            "labels": {"added": "label", "actions.github.com/scale-set-name": "other"},
            "annotations": {
                "added": "note",
                "actions.github.com/listener-config-resource-version": "other",
            },
        }}))["metadata"]
            .clone();
        assert_eq!(metadata["name"], "pool-al");
        assert_eq!(metadata["labels"]["added"], "label");
        assert_eq!(
            metadata["labels"]["actions.github.com/scale-set-name"],
            "pool"
        );
        assert_eq!(
            metadata["annotations"],
            json!({
                "added": "note",
                "actions.github.com/listener-config-resource-version": "123",
            })
        );
    }

    #[test]
    fn lists_of_the_listener_container_are_added_to() {
        let plain = merged_container(json!({}));
        let container = merged_container(json!({
            "args": ["--more"],
            "env": [{"name": "MORE", "value": "1"}],
            "ports": [{"name": "probe", "containerPort": 9000}],
            "volumeMounts": [{"name": "more", "mountPath": "/more"}],
        }));
        assert_eq!(container["args"], json!(["--more"]));
        for (list, added) in [
            ("env", json!({"name": "MORE", "value": "1"})),
            ("ports", json!({"name": "probe", "containerPort": 9000})),
            (
                "volumeMounts",
                json!({"name": "more", "mountPath": "/more"}),
            ),
        ] {
            let mut expected = plain[list].as_array().unwrap().clone();
            expected.push(added);
            assert_eq!(container[list], json!(expected), "{list}");
        }
    }

    #[test]
    fn an_element_that_is_there_already_is_replaced_in_its_place() {
        let container = merged_container(json!({
            "env": [{"name": "http_proxy", "value": "http://mine"}],
            "ports": [{"name": "mine", "containerPort": 8081}],
        }));
        assert_eq!(
            container["env"][1],
            json!({"name": "http_proxy", "value": "http://mine"})
        );
        assert_eq!(container["env"].as_array().unwrap().len(), 4);
        assert_eq!(
            container["ports"],
            json!([{"name": "mine", "containerPort": 8081}])
        );
    }

    #[test]
    fn a_port_of_another_protocol_is_another_port() {
        let port = json!({"name": "quic", "containerPort": 8081, "protocol": "UDP"});
        let container = merged_container(json!({"ports": [port]}));
        assert_eq!(container["ports"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_leads_to_the_configuration_stays_ours() {
        let plain = merged(json!({}))["spec"].clone();
        let spec = merged(json!({"spec": {
            "containers": [{
                "name": "listener",
                "env": [{"name": "LISTENER_CONFIG_PATH", "value": "/elsewhere"}],
                "volumeMounts": [{"name": "mine", "mountPath": "/etc/gha-listener/"}],
            }],
            "volumes": [{"name": "listener-config", "emptyDir": {}}],
        }}))["spec"]
            .clone();
        assert_eq!(spec, plain);
    }

    #[test]
    fn other_fields_of_the_listener_container_are_replaced_when_given() {
        let plain = merged_container(json!({}));
        let given = json!({
            "command": ["/mine"],
            "envFrom": [{"secretRef": {"name": "more"}}],
            "image": "mine:1",
            "imagePullPolicy": "Always",
            "lifecycle": {"stopSignal": "SIGTERM"},
            "livenessProbe": {"periodSeconds": 1},
            "readinessProbe": {"periodSeconds": 2},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
            "resources": {"limits": {"cpu": "1"}},
            "restartPolicy": "Never",
            "restartPolicyRules": [{"action": "Restart"}],
            "securityContext": {"runAsUser": 1000},
            "startupProbe": {"periodSeconds": 3},
            "stdin": true,
            "stdinOnce": true,
            "terminationMessagePath": "/message",
            "terminationMessagePolicy": "File",
            "tty": true,
            "volumeDevices": [{"name": "disk", "devicePath": "/dev/x"}],
            "workingDir": "/mine",
        });
        let mut expected = plain;
        for (field, value) in given.as_object().unwrap() {
            expected[field] = value.clone();
        }
        assert_eq!(merged_container(given), expected);
    }

    #[test]
    fn other_containers_are_added_behind() {
        let sidecar = json!({"name": "sidecar", "image": "sidecar:1"});
        let pod = merged(json!({"spec": {"containers": [sidecar]}}));
        assert_eq!(pod["spec"]["containers"][0]["name"], "listener");
        assert_eq!(pod["spec"]["containers"][1], sidecar);
    }

    #[test]
    fn fields_of_the_pod_win_when_given_and_volumes_are_added() {
        let given: Value = serde_json::from_str(
            r#"{
            "activeDeadlineSeconds": 1,
            "affinity": {"nodeAffinity": {}},
            "dnsConfig": {"searches": ["acme"]},
            "dnsPolicy": "None",
            "enableServiceLinks": false,
            "ephemeralContainers": [{"name": "debug"}],
            "hostAliases": [{"ip": "10.0.0.1"}],
            "hostIPC": true,
            "hostNetwork": true,
            "hostPID": true,
            "hostUsers": false,
            "hostname": "host",
            "hostnameOverride": "override",
            "imagePullSecrets": [{"name": "mine"}],
            "initContainers": [{"name": "init"}],
            "nodeName": "node",
            "nodeSelector": {"pool": "mine"},
            "os": {"name": "linux"},
            "overhead": {"cpu": "1"},
            "preemptionPolicy": "Never",
            "priority": 2,
            "priorityClassName": "high",
            "readinessGates": [{"conditionType": "gate"}],
            "resourceClaims": [{"name": "claim"}],
            "resources": {"limits": {"cpu": "2"}},
            "restartPolicy": "Always",
            "runtimeClassName": "gvisor",
            "schedulerName": "mine",
            "schedulingGates": [{"name": "gate"}],
            "schedulingGroup": {"podGroupName": "group"},
            "securityContext": {"runAsUser": 1001},
            "setHostnameAsFQDN": true,
            "shareProcessNamespace": true,
            "subdomain": "sub",
            "terminationGracePeriodSeconds": 3,
            "tolerations": [{"key": "mine"}],
            "topologySpreadConstraints":
                [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
        }"#,
        )
        .unwrap();
        let mut expected = merged_spec(json!({}));
        for (field, value) in given.as_object().unwrap() {
            expected[field] = value.clone();
        }
        let volume = json!({"name": "mine", "emptyDir": {}});
        expected["volumes"]
            .as_array_mut()
            .unwrap()
            .push(volume.clone());
        let mut given = given;
        given["volumes"] = json!([volume]);
        assert_eq!(merged_spec(given), expected);
    }

    #[test]
    fn the_account_stays_ours() {
        assert_eq!(
            merged_spec(json!({
                "serviceAccountName": "mine",
                "serviceAccount": "mine",
                "automountServiceAccountToken": false,
            })),
            merged_spec(json!({}))
        );
    }
}
