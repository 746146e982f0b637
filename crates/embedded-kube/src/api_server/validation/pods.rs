//! Rules of pods.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{LABEL_TEXT, is_label};
use crate::api_server::object;
use crate::api_server::status::FieldError;

const CHANGEABLE: &str = "pod updates may not change fields other than \
                          `spec.containers[*].image`,`spec.initContainers[*].image`,\
                          `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                          existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to \
                          be set to 1 if it was previously negative)";

/// Checks a pod's spec, or a template's.
pub(super) fn check(spec: &Value, path: &str, faults: &mut Vec<FieldError>) {
    let volumes = check_volumes(&spec["volumes"], &format!("{path}.volumes"), faults);
    if object::list(&spec["containers"]).is_empty() {
        faults.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut names = BTreeSet::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in object::list(&spec[list]).iter().enumerate() {
            let path = format!("{path}.{list}[{index}]");
            check_unique_name(&container["name"], &path, &mut names, faults);
            check_container(container, &path, &volumes, faults);
        }
    }
    let choice = |field: &str, supported: &[&str], faults: &mut Vec<FieldError>| {
        check_choice(&spec[field], &format!("{path}.{field}"), supported, faults);
    };
    choice("restartPolicy", &["Always", "OnFailure", "Never"], faults);
    choice(
        "dnsPolicy",
        &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"],
        faults,
    );
}

fn check_choice(value: &Value, path: &str, supported: &[&str], faults: &mut Vec<FieldError>) {
    let Some(given) = value.as_str() else { return };
    if !supported.contains(&given) {
        let mut sorted = supported.to_vec();
        sorted.sort_unstable();
        faults.push(FieldError::not_supported(path, given, &sorted));
    }
}

fn check_volumes<'a>(
    volumes: &'a Value,
    path: &str,
    faults: &mut Vec<FieldError>,
) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (index, volume) in object::list(volumes).iter().enumerate() {
        let path = format!("{path}[{index}]");
        check_unique_name(&volume["name"], &path, &mut names, faults);
        let sources = volume.as_object().map_or(0, |fields| fields.len());
        if sources > 2 {
            let detail = "may not specify more than 1 volume type";
            faults.push(FieldError::forbidden(path, detail));
        }
    }
    names
}

fn check_unique_name<'a>(
    name: &'a Value,
    path: &str,
    names: &mut BTreeSet<&'a str>,
    faults: &mut Vec<FieldError>,
) {
    let path = format!("{path}.name");
    let name = name.as_str().unwrap_or_default();
    if name.is_empty() {
        faults.push(FieldError::required(path, ""));
    } else if !is_label(name) {
        faults.push(FieldError::invalid(path, name, LABEL_TEXT));
    } else if !names.insert(name) {
        faults.push(FieldError::duplicate(path, name));
    }
}

fn check_container(
    container: &Value,
    path: &str,
    volumes: &BTreeSet<&str>,
    faults: &mut Vec<FieldError>,
) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if text(&container["image"]).trim().is_empty() {
        faults.push(FieldError::required(format!("{path}.image"), ""));
    }
    let policies = ["Always", "IfNotPresent", "Never"];
    let policy = &container["imagePullPolicy"];
    check_choice(
        policy,
        &format!("{path}.imagePullPolicy"),
        &policies,
        faults,
    );
    for (index, variable) in object::list(&container["env"]).iter().enumerate() {
        let path = format!("{path}.env[{index}]");
        match text(&variable["name"]) {
            name if name.is_empty() => {
                faults.push(FieldError::required(format!("{path}.name"), ""));
            }
            name if name.contains('=') => {
                let detail = "a valid environment variable name must consist only of printable \
                              ASCII characters other than '='";
                faults.push(FieldError::invalid(format!("{path}.name"), name, detail));
            }
            _ => {}
        }
        let given = !text(&variable["value"]).is_empty();
        if given && variable["valueFrom"].is_object() {
            let detail = "may not be specified when `value` is not empty";
            let path = format!("{path}.valueFrom");
            faults.push(FieldError::invalid(path, "", detail));
        }
    }
    let mut paths = BTreeSet::new();
    for (index, mount) in object::list(&container["volumeMounts"]).iter().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        let (name, mount_path) = (text(&mount["name"]), text(&mount["mountPath"]));
        if name.is_empty() {
            faults.push(FieldError::required(format!("{path}.name"), ""));
        } else if !volumes.contains(name.as_str()) {
            faults.push(FieldError::not_found(format!("{path}.name"), name));
        }
        let path = format!("{path}.mountPath");
        if mount_path.is_empty() {
            faults.push(FieldError::required(path, ""));
        } else if !paths.insert(mount_path.clone()) {
            faults.push(FieldError::invalid(path, mount_path, "must be unique"));
        }
    }
}

/// Checks that a change leaves alone what cannot change on a pod.
pub(super) fn check_change(old: &Value, new: &Value, faults: &mut Vec<FieldError>) {
    if !has_all_tolerations(old, new) || fixed_part(old) != fixed_part(new) {
        faults.push(FieldError::forbidden("spec", CHANGEABLE));
    }
}

fn has_all_tolerations(old: &Value, new: &Value) -> bool {
    let new = object::list(&new["tolerations"]);
    let mut old = object::list(&old["tolerations"]).iter();
    old.all(|toleration| new.contains(toleration))
}

fn fixed_part(spec: &Value) -> Value {
    let mut fixed = spec.clone();
    for list in ["containers", "initContainers"] {
        let containers = fixed.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Value::Object(container) = container {
                container.remove("image");
            }
        }
    }
    let negative = spec["terminationGracePeriodSeconds"]
        .as_i64()
        .is_some_and(|s| s < 0);
    if let Value::Object(fields) = &mut fixed {
        fields.remove("tolerations");
        fields.remove("activeDeadlineSeconds");
        if negative {
            fields.insert("terminationGracePeriodSeconds".into(), 1.into());
        }
    }
    fixed
}
