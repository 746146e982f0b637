//! All objects that a scale set leads to fit together: each reference in one of them is to
//! another, or to something that the user has. Shown on a small manifest and on what ARC's
//! charts render, where this checkout has it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use impresario::api::AutoscalingRunnerSet;
use impresario::messages::{JitConfig, Kind, Object, ObjectRef, Runner};
use impresario::resources as build;
use impresario::resources::{ControllerSettings, Sources};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

const SMALL: &str = "
apiVersion: actions.github.com/v1alpha1
kind: AutoscalingRunnerSet
metadata: {name: small, namespace: pools, uid: small-uid}
spec:
  githubConfigUrl: https://github.com/acme
  githubConfigSecret: token
  proxy: {https: {url: http://proxy:3128, credentialSecretRef: proxy-auth}}
  template: {spec: {containers: [{name: runner, image: runner}]}}
";

#[test]
fn every_secret_key_that_a_pod_refers_to_is_in_a_secret_we_made() {
    for objects in all() {
        let secrets = objects.secrets();
        for (owner, pod) in objects.pods() {
            for (name, key) in secret_keys_of_our_env(pod) {
                let data = secrets.get(name).and_then(|secret| secret.data.as_ref());
                assert!(
                    data.is_some_and(|data| data.contains_key(key)),
                    "{owner} refers to {key} of Secret {name}"
                );
            }
        }
    }
}

#[test]
fn every_volume_that_a_container_mounts_is_in_its_pod() {
    for objects in all() {
        for (owner, pod) in objects.pods() {
            let spec = pod.spec.as_ref().unwrap();
            let volumes: BTreeSet<&str> = spec
                .volumes
                .iter()
                .flatten()
                .map(|volume| volume.name.as_str())
                .collect();
            for mount in spec
                .containers
                .iter()
                .flat_map(|c| c.volume_mounts.iter().flatten())
            {
                assert!(
                    volumes.contains(mount.name.as_str()),
                    "{owner}: {}",
                    mount.name
                );
            }
        }
    }
}

#[test]
fn every_name_and_label_is_one_that_the_api_server_takes() {
    for objects in all() {
        for object in &objects.0 {
            let reference = object.reference();
            assert!(reference.name.len() <= 63, "{reference}");
            for (key, value) in object.meta().labels.iter().flatten() {
                assert!(is_label_value(value), "{reference}: {key}={value}");
            }
        }
    }
}

#[test]
fn every_object_has_its_owner_beside_it_unless_that_is_in_another_namespace() {
    for objects in all() {
        let names: BTreeSet<ObjectRef> = objects.0.iter().map(Object::reference).collect();
        for object in &objects.0 {
            let reference = object.reference();
            let owners = object
                .meta()
                .owner_references
                .as_deref()
                .unwrap_or_default();
            let unowned = [
                Kind::AutoscalingRunnerSet,
                Kind::AutoscalingListener,
                Kind::Role,
                Kind::RoleBinding,
            ];
            let expected = usize::from(!unowned.contains(&reference.kind));
            assert_eq!(owners.len(), expected, "{reference}");
            for owner in owners {
                let kind = Kind::ALL
                    .iter()
                    .find(|kind| kind.as_str() == owner.kind)
                    .unwrap();
                let owner = ObjectRef::new(*kind, reference.namespace.as_str(), &owner.name);
                assert!(names.contains(&owner), "{reference}: {owner}");
            }
        }
    }
}

#[test]
fn built_twice_the_objects_are_the_same() {
    for (first, second) in all().into_iter().zip(all()) {
        assert_eq!(first.0, second.0);
    }
}

/// A scale set and all that is built for it.
struct Objects(Vec<Object>);

impl Objects {
    fn of(mut ars: AutoscalingRunnerSet) -> Self {
        ars.metadata.uid = Some("set-uid".to_owned());
        let settings = ControllerSettings::default();
        let mut al = build::autoscaling_listener(&ars, 1, &settings);
        al.metadata.uid = Some("listener-uid".to_owned());
        let mut set = build::ephemeral_runner_set(&ars, 1, &settings);
        set.metadata.uid = Some("runner-set-uid".to_owned());
        let mut runner = build::ephemeral_runner(&set, &build::runner_name(&set, 3));
        runner.metadata.uid = Some("runner-uid".to_owned());
        let mut wanted = build::listener_sources(&al);
        wanted.extend(build::runner_proxy_sources(&set));
        let mut sources = Sources::default();
        for object in wanted {
            sources.insert(&users(&object));
        }
        let mut objects: Vec<Object> = vec![
            build::listener_service_account(&al).into(),
            build::listener_role(&al).into(),
            build::listener_role_binding(&al).into(),
            build::listener_config_secret(&al, &sources, &settings)
                .unwrap()
                .into(),
            build::listener_pod(&al, Some("7"), &settings).into(),
            build::jit_secret(&runner, &jit(runner.metadata.name.as_deref().unwrap())).into(),
            build::runner_pod(&runner, &settings).into(),
        ];
        let proxies = [
            build::listener_proxy_secret(&al, &sources).unwrap(),
            build::runner_proxy_secret(&set, &sources).unwrap(),
        ];
        objects.extend(proxies.into_iter().flatten().map(Object::from));
        objects.extend([ars.into(), al.into(), set.into(), runner.into()]);
        Self(objects)
    }

    fn secrets(&self) -> BTreeMap<&str, &Secret> {
        self.0
            .iter()
            .filter_map(|object| match object {
                Object::Secret(secret) => Some((secret.metadata.name.as_deref()?, &**secret)),
                _ => None,
            })
            .collect()
    }

    fn pods(&self) -> impl Iterator<Item = (ObjectRef, &Pod)> {
        self.0.iter().filter_map(|object| match object {
            Object::Pod(pod) => Some((object.reference(), &**pod)),
            _ => None,
        })
    }
}

/// The objects of the small scale set and of those that the charts render.
fn all() -> Vec<Objects> {
    let small = serde_saphyr::from_str(SMALL).unwrap();
    let mut all = vec![Objects::of(small)];
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/fixtures"));
    let Ok(entries) = fs::read_dir(folder) else {
        println!(
            "{} is not here: shown on the small manifest only",
            folder.display()
        );
        return all;
    };
    for path in entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "yaml"))
    {
        let text = fs::read_to_string(path).unwrap();
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            if object["kind"] == "AutoscalingRunnerSet" {
                all.push(Objects::of(serde_json::from_value(object).unwrap()));
            }
        }
    }
    all
}

/// An object that the user has made, with all that may be read from it.
fn users(object: &ObjectRef) -> Object {
    let metadata = ObjectMeta {
        name: Some(object.name.clone()),
        namespace: Some(object.namespace.clone()),
        ..ObjectMeta::default()
    };
    if object.kind == Kind::ConfigMap {
        let data = [(
            "ca.crt".to_owned(),
            "-----BEGIN CERTIFICATE-----".to_owned(),
        )];
        return ConfigMap {
            metadata,
            data: Some(BTreeMap::from(data)),
            ..ConfigMap::default()
        }
        .into();
    }
    let keys: &[&str] = match object.name.contains("proxy") {
        true => &["username", "password"],
        false => &["github_token"],
    };
    let data = keys
        .iter()
        .map(|key| ((*key).to_owned(), ByteString(b"x".to_vec())));
    Secret {
        metadata,
        data: Some(data.collect()),
        ..Secret::default()
    }
    .into()
}

fn jit(name: &str) -> JitConfig {
    JitConfig {
        runner: Runner {
            id: 8,
            name: name.to_owned(),
            scale_set_id: 1,
        },
        encoded: "encoded".to_owned().into(),
    }
}

/// Secrets and keys that variables of the containers `runner` and `listener` come from.
fn secret_keys_of_our_env(pod: &Pod) -> impl Iterator<Item = (&str, &str)> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers
        .filter(|container| ["runner", "listener"].contains(&container.name.as_str()))
        .flat_map(|container| container.env.iter().flatten())
        .filter_map(|variable| variable.value_from.as_ref()?.secret_key_ref.as_ref())
        .map(|selector| (selector.name.as_str(), selector.key.as_str()))
}

fn is_label_value(value: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    value.len() <= 63
        && edge(value.bytes().next())
        && edge(value.bytes().next_back())
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}
