//! The manifests in `config/` fit the program and each other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use impresario::api::{
    AutoscalingListener, AutoscalingRunnerSet, Credentials, ManifestObject, constants,
    read_manifests,
};
use impresario::metrics::Metrics;
use impresario::resources::listener_role;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role, RoleBinding};
use serde_json::Value;

/// Metrics of the listener that the dashboard may show; ARC's names.
const LISTENER_METRICS: &[&str] = &[
    "gha_assigned_jobs",
    "gha_running_jobs",
    "gha_registered_runners",
    "gha_busy_runners",
    "gha_min_runners",
    "gha_max_runners",
    "gha_desired_runners",
    "gha_idle_runners",
    "gha_started_jobs_total",
    "gha_completed_jobs_total",
    "gha_job_startup_duration_seconds_bucket",
    "gha_job_execution_duration_seconds_bucket",
];

#[test]
fn every_kustomization_lists_all_that_stands_beside_it() {
    for folder in [
        "crd",
        "rbac",
        "manager",
        "samples",
        "samples/key-vault",
        "prometheus",
        ".",
    ] {
        let folder = config(folder);
        let text = fs::read_to_string(folder.join("kustomization.yaml")).unwrap();
        let kustomization: Value = serde_saphyr::from_str(&text).unwrap();
        let listed: BTreeSet<String> =
            serde_json::from_value(kustomization["resources"].clone()).unwrap();
        for entry in &listed {
            assert!(folder.join(entry).exists(), "{}: {entry}", folder.display());
        }
        for file in yaml_files(&folder) {
            let name = file.file_name().unwrap().to_str().unwrap().to_owned();
            assert!(listed.contains(&name), "{} is not listed", file.display());
        }
    }
}

#[test]
fn the_sample_is_a_pool_from_one_to_ten_with_credentials() {
    let objects = objects("samples");
    let scale_set: AutoscalingRunnerSet = one(&objects, "AutoscalingRunnerSet");
    assert_eq!(scale_set.spec.min_runners, Some(1));
    assert_eq!(scale_set.spec.max_runners, Some(10));
    assert_eq!(scale_set.validate(), Ok(()));

    let secret: Secret = one(&objects, "Secret");
    assert_eq!(
        secret.metadata.name.as_deref(),
        Some(scale_set.spec.github_config_secret.as_str())
    );
    assert_eq!(secret.metadata.namespace, scale_set.metadata.namespace);
    let data = secret.string_data.unwrap();
    let data = data
        .into_iter()
        .map(|(key, value)| (key, k8s_openapi::ByteString(value.into_bytes())))
        .collect();
    assert!(Credentials::from_data(&data).is_ok());
}

#[test]
fn the_sample_with_a_vault_mounts_its_certificate_into_the_listener() {
    let scale_set: AutoscalingRunnerSet =
        one(&objects("samples/key-vault"), "AutoscalingRunnerSet");
    assert_eq!(scale_set.validate(), Ok(()));
    let vault = scale_set.spec.vault_config.unwrap();
    let path = vault.azure_key_vault.unwrap().certificate_path;
    let pod = scale_set.spec.listener_template.unwrap().spec.unwrap();
    let mounts = pod.containers[0].volume_mounts.as_ref().unwrap();
    let mount = mounts
        .iter()
        .find(|mount| path.starts_with(&mount.mount_path));
    let mount = mount.unwrap_or_else(|| panic!("{path} is not mounted"));
    let volumes = pod.volumes.unwrap();
    assert!(volumes.iter().any(|volume| volume.name == mount.name));
}

#[test]
fn the_sample_lets_the_controller_into_its_namespace() {
    let samples = objects("samples");
    let rbac = objects("rbac");
    let binding: RoleBinding = one(&samples, "RoleBinding");
    let named = |kind: &str, name: &str| {
        rbac.iter()
            .any(|object| object.kind() == kind && object.name() == name)
    };
    assert!(named("ClusterRole", &binding.role_ref.name));
    let subject = &binding.subjects.unwrap()[0];
    assert!(named("ServiceAccount", &subject.name));
    let scale_set: AutoscalingRunnerSet = one(&samples, "AutoscalingRunnerSet");
    assert_eq!(binding.metadata.namespace, scale_set.metadata.namespace);
}

#[test]
fn the_controller_has_every_right_that_it_gives_to_a_listener() {
    let mut listener = AutoscalingListener::default();
    listener.spec.ephemeral_runner_set_name = "linux".to_owned();
    let given = listener_role(&listener).rules.unwrap();
    let held = role::<ClusterRole>("impresario-controller").rules.unwrap();
    for (group, resource, verb) in given.iter().flat_map(rights) {
        assert!(
            held.iter()
                .any(|rule| rights(rule).contains(&(group, resource, verb))),
            "{verb} {resource}.{group}"
        );
    }
}

#[test]
fn no_right_is_a_wildcard_and_secrets_are_read_only_where_bound() {
    let everywhere = role::<ClusterRole>("impresario-controller").rules.unwrap();
    let runners = role::<ClusterRole>("impresario-runner-namespace")
        .rules
        .unwrap();
    let own = role::<Role>("impresario-controller").rules.unwrap();
    for rule in everywhere.iter().chain(&runners).chain(&own) {
        for (_, resource, verb) in rights(rule) {
            assert!(resource != "*" && verb != "*", "{rule:?}");
        }
    }
    for (_, resource, _) in everywhere.iter().flat_map(rights) {
        assert!(
            !matches!(resource, "secrets" | "serviceaccounts" | "configmaps"),
            "{resource} is needed in some namespaces only"
        );
    }
}

#[test]
fn the_deployment_runs_as_nobody_and_gives_listeners_its_own_image() {
    let deployment: Deployment = one(&objects("manager"), "Deployment");
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    assert_eq!(
        pod.security_context.unwrap().run_as_non_root,
        Some(true),
        "runAsNonRoot"
    );
    let container = &pod.containers[0];
    let image = container
        .env
        .iter()
        .flatten()
        .find(|variable| variable.name == constants::env::CONTROLLER_IMAGE)
        .unwrap();
    assert_eq!(image.value, container.image);
    // with --watch-single-namespace its name is another one
    let args = container.args.clone().unwrap_or_default();
    let names_lease = |arg: &String| arg.starts_with("--leader-election-id");
    assert!(!args.iter().any(names_lease), "{args:?}");
    let own = role::<Role>("impresario-controller").rules.unwrap();
    let lease = own.iter().find(|rule| {
        let resources = rule.resources.iter().flatten();
        resources.clone().any(|resource| resource == "leases")
    });
    let lease = lease.unwrap();
    assert_eq!(lease.verbs, ["create", "get", "update"]);
    assert_eq!(lease.resource_names, None);
    let account: Value = one(&objects("rbac"), "ServiceAccount");
    assert_eq!(
        account["metadata"]["name"].as_str(),
        pod.service_account_name.as_deref()
    );
}

#[test]
fn the_dashboard_shows_metrics_that_exist() {
    let text = fs::read_to_string(config("grafana/impresario.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let metrics = Metrics::new().unwrap();
    let mut shown = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            for name in expression
                .split(|character: char| !character.is_ascii_alphanumeric() && character != '_')
                .filter(|word| word.starts_with("gha_") || word.starts_with("impresario_"))
            {
                shown += 1;
                assert!(
                    LISTENER_METRICS.contains(&name)
                        || metrics.documentation().contains(&format!("`{name}`")),
                    "{}: {name} does not exist",
                    panel["title"]
                );
            }
        }
    }
    assert!(shown > 10, "the dashboard shows {shown} metrics");
}

fn config(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("config")
        .join(path)
}

/// The YAML files of a folder, but for its kustomization.
fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "yaml"))
        .filter(|path| !path.ends_with("kustomization.yaml"))
        .collect();
    files.sort();
    files
}

/// The objects of a folder.
fn objects(folder: &str) -> Vec<ManifestObject> {
    yaml_files(&config(folder))
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).unwrap();
            read_manifests(&text, &file.display().to_string())
                .unwrap_or_else(|error| panic!("{error}"))
        })
        .collect()
}

/// The only object of that kind.
fn one<T: serde::de::DeserializeOwned>(objects: &[ManifestObject], kind: &str) -> T {
    let found: Vec<_> = objects
        .iter()
        .filter(|object| object.kind() == kind)
        .collect();
    assert_eq!(found.len(), 1, "{kind}");
    found[0].decode().unwrap()
}

/// The Role or ClusterRole of that name.
fn role<T: serde::de::DeserializeOwned + kube::Resource<DynamicType = ()>>(name: &str) -> T {
    let objects = objects("rbac");
    let found = objects
        .iter()
        .find(|object| object.kind() == T::kind(&()) && object.name() == name);
    found.unwrap().decode().unwrap()
}

/// Each right of a rule: group, resource, verb.
fn rights(rule: &PolicyRule) -> Vec<(&str, &str, &str)> {
    let mut rights = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                rights.push((group.as_str(), resource.as_str(), verb.as_str()));
            }
        }
    }
    rights
}
