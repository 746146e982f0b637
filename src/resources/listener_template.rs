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
