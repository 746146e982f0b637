//! What ARC's charts render is read into our types and Kubernetes' own, and nothing is lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use impresario::api::{AutoscalingRunnerSet, read_manifests};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

#[test]
fn every_object_of_the_charts_is_read_and_written_back_without_loss() {
    let mut kinds = BTreeMap::<String, usize>::new();
    for file in fixtures() {
        for mut object in documents(&file) {
            drop_nulls(&mut object);
            let kind = object["kind"].as_str().unwrap().to_owned();
            let read: fn(&Value) -> Value = match kind.as_str() {
                "AutoscalingRunnerSet" => through::<AutoscalingRunnerSet>,
                "ClusterRole" => through::<ClusterRole>,
                "ClusterRoleBinding" => through::<ClusterRoleBinding>,
                "Deployment" => through::<Deployment>,
                "Role" => through::<Role>,
                "RoleBinding" => through::<RoleBinding>,
                "Secret" => through::<Secret>,
                "ServiceAccount" => through::<ServiceAccount>,
                other => panic!("{}: no type for {other}", file.display()),
            };
            let name = object["metadata"]["name"].to_string();
            assert_eq!(read(&object), object, "{}: {kind} {name}", file.display());
            *kinds.entry(kind).or_default() += 1;
        }
    }
    println!("read {kinds:?}");
}

#[test]
fn every_manifest_of_the_charts_can_be_applied() {
    for file in fixtures() {
        let text = fs::read_to_string(&file).unwrap();
        let objects = match read_manifests(&text, &file.display().to_string()) {
            Ok(objects) => objects,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(objects.len(), documents(&file).len(), "{}", file.display());
        for object in objects {
            if object.kind() == "AutoscalingRunnerSet" {
                object.decode::<AutoscalingRunnerSet>().unwrap();
            }
        }
    }
}

/// The files, if this checkout has them.
fn fixtures() -> Vec<PathBuf> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/fixtures"));
    let Ok(entries) = fs::read_dir(folder) else {
        println!("skipped: {} is not here", folder.display());
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "yaml"));
    files.sort();
    assert!(!files.is_empty(), "{} has no manifests", folder.display());
    files
}

fn documents(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// Reads an object as `T` and writes it again.
fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    serde_json::to_value(typed).unwrap()
}

/// Charts write keys without a value, which mean nothing.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
