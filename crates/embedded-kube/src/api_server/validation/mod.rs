//! Rules of metadata and of the built-in kinds, as far as someone could break them here.

mod pods;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::kinds::{ResourceType, shelf_name};
use super::object;
use super::status::{Fault, FieldError};

const IMMUTABLE: &str = "field is immutable";
const LABEL_TEXT: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
                          characters or '-', and must start and end with an alphanumeric \
                          character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                          '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_TEXT: &str = "a lowercase RFC 1123 subdomain must consist of lower case \
                              alphanumeric characters, '-' or '.', and must start and end with an \
                              alphanumeric character (e.g. 'example.com', regex used for \
                              validation is \
                              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_VALUE_TEXT: &str = "a valid label must be an empty string or consist of alphanumeric \
                                characters, '-', '_' or '.', and must start and end with an \
                                alphanumeric character (e.g. 'MyValue',  or 'my_value',  or \
                                '12345', regex used for validation is \
                                '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const QUALIFIED_TEXT: &str = "name part must consist of alphanumeric characters, '-', '_' or \
                              '.', and must start and end with an alphanumeric character (e.g. \
                              'MyName',  or 'my.name',  or '123-abc', regex used for validation \
                              is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

/// Longest label, and longest part of a name.
const LONGEST_LABEL: usize = 63;
/// Longest name of an object.
const LONGEST_NAME: usize = 253;
/// Most bytes in all annotations of an object.
const MOST_ANNOTATIONS: usize = 256 * 1024;
/// Most bytes in a Secret or a ConfigMap.
const MOST_DATA: usize = 1024 * 1024;

/// What is wrong with a new object.
pub(super) fn on_create(resource: &ResourceType, object: &Value) -> Vec<FieldError> {
    let mut faults = Vec::new();
    check_name(resource, object, &mut faults);
    check_metadata(object, &mut faults);
    if resource.is_custom() {
        return faults;
    }
    match resource.plural.as_str() {
        "pods" => pods::check(&object["spec"], "spec", &mut faults),
        "secrets" | "configmaps" => check_data(object, &mut faults),
        "rolebindings" | "clusterrolebindings" => check_binding(object, &mut faults),
        "customresourcedefinitions" => check_definition(object, &mut faults),
        "deployments" | "jobs" => {
            let spec = &object["spec"]["template"]["spec"];
            pods::check(spec, "spec.template.spec", &mut faults);
        }
        _ => {}
    }
    faults
}

/// What is wrong with a change.
pub(super) fn on_update(
    resource: &ResourceType,
    old: &Value,
    new: &Value,
    subresource: &str,
) -> Vec<FieldError> {
    let mut faults = Vec::new();
    check_metadata(new, &mut faults);
    check_finalizers(old, new, &mut faults);
    if resource.is_custom() || !subresource.is_empty() {
        return faults;
    }
    match resource.plural.as_str() {
        "pods" => pods::check_change(&old["spec"], &new["spec"], &mut faults),
        "secrets" => {
            check_unchanged("type", &old["type"], &new["type"], &mut faults);
            check_immutable(old, new, &mut faults);
            check_data(new, &mut faults);
        }
        "configmaps" => {
            check_immutable(old, new, &mut faults);
            check_data(new, &mut faults);
        }
        "rolebindings" | "clusterrolebindings" => {
            if old["roleRef"] != new["roleRef"] {
                let value = new["roleRef"].clone();
                let fault = FieldError::invalid("roleRef", value, "cannot change roleRef");
                faults.push(fault);
            }
            check_binding(new, &mut faults);
        }
        "customresourcedefinitions" => {
            for field in ["group", "scope"] {
                let path = format!("spec.{field}");
                check_unchanged(&path, &old["spec"][field], &new["spec"][field], &mut faults);
            }
            check_definition(new, &mut faults);
        }
        _ => {}
    }
    faults
}

fn check_unchanged(path: &str, old: &Value, new: &Value, faults: &mut Vec<FieldError>) {
    if old != new {
        faults.push(FieldError::invalid(path, new.clone(), IMMUTABLE));
    }
}

fn check_name(resource: &ResourceType, object: &Value, faults: &mut Vec<FieldError>) {
    let name = object::name(object);
    if name.is_empty() {
        let detail = "name or generateName is required";
        faults.push(FieldError::required("metadata.name", detail));
        return;
    }
    let problem = match (resource.group.as_str(), resource.plural.as_str()) {
        // roles and bindings may be named freely, as "system:node" is
        ("rbac.authorization.k8s.io", _) => {
            let free = !matches!(name, "." | "..") && !name.contains(['/', '%']);
            (!free).then_some("may not be '.' or '..' or contain '/' or '%'")
        }
        ("", "namespaces" | "services") => (!is_label(name)).then_some(LABEL_TEXT),
        _ => (!is_subdomain(name)).then_some(SUBDOMAIN_TEXT),
    };
    if let Some(problem) = problem {
        faults.push(FieldError::invalid("metadata.name", name, problem));
    }
    if name.len() > LONGEST_NAME {
        let detail = format!("must be no more than {LONGEST_NAME} characters");
        faults.push(FieldError::invalid("metadata.name", name, detail));
    }
}

fn check_metadata(object: &Value, faults: &mut Vec<FieldError>) {
    let metadata = &object["metadata"];
    check_labels(&metadata["labels"], "metadata.labels", faults);
    check_annotations(&metadata["annotations"], faults);
    let mut controllers = Vec::new();
    for (index, owner) in object::owner_references(object).iter().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let path = format!("metadata.ownerReferences[{index}].{field}");
                let detail = format!("{field} must not be empty");
                faults.push(FieldError::invalid(path, "", detail));
            }
        }
        if owner["controller"] == true {
            controllers.push(owner["kind"].as_str().unwrap_or_default());
        }
    }
    if let [first, second, ..] = controllers.as_slice() {
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references \
             for {first} and {second}"
        );
        let value = metadata["ownerReferences"].clone();
        faults.push(FieldError::invalid(
            "metadata.ownerReferences",
            value,
            detail,
        ));
    }
    for (index, finalizer) in object::finalizers(object).enumerate() {
        if let Some(problem) = qualified_name_problem(finalizer) {
            let path = format!("metadata.finalizers[{index}]");
            faults.push(FieldError::invalid(path, finalizer, problem));
        }
    }
}

fn check_labels(labels: &Value, path: &str, faults: &mut Vec<FieldError>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        if let Some(problem) = qualified_name_problem(key) {
            faults.push(FieldError::invalid(path, key.as_str(), problem));
        }
        let value = value.as_str().unwrap_or_default();
        if value.len() > LONGEST_LABEL {
            let detail = format!("must be no more than {LONGEST_LABEL} bytes");
            faults.push(FieldError::invalid(path, value, detail));
        }
        if !value.is_empty() && !is_word(value) {
            faults.push(FieldError::invalid(path, value, LABEL_VALUE_TEXT));
        }
    }
}

fn check_annotations(annotations: &Value, faults: &mut Vec<FieldError>) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        size += key.len() + value.as_str().map_or(0, str::len);
        if let Some(problem) = qualified_name_problem(&key.to_lowercase()) {
            let path = "metadata.annotations";
            faults.push(FieldError::invalid(path, key.as_str(), problem));
        }
    }
    if size > MOST_ANNOTATIONS {
        let detail = format!("may not be more than {MOST_ANNOTATIONS} bytes");
        faults.push(FieldError::new(
            "metadata.annotations",
            Fault::TooLong,
            detail,
        ));
    }
}

fn check_finalizers(old: &Value, new: &Value, faults: &mut Vec<FieldError>) {
    if !object::is_deleting(old) {
        return;
    }
    let known: Vec<&str> = object::finalizers(old).collect();
    let added: Vec<String> = object::finalizers(new)
        .filter(|finalizer| !known.contains(finalizer))
        .map(|finalizer| format!("{finalizer:?}"))
        .collect();
    if !added.is_empty() {
        let detail = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers \
             []string{{{}}}",
            added.join(", ")
        );
        faults.push(FieldError::forbidden("metadata.finalizers", detail));
    }
}

fn check_data(object: &Value, faults: &mut Vec<FieldError>) {
    let is_secret = object["kind"] == "Secret";
    let mut size = 0;
    for field in ["data", "binaryData"] {
        for (key, value) in object[field].as_object().into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            if key.is_empty() || !key.chars().all(is_word_char) {
                let detail = "a valid config key must consist of alphanumeric characters, '-', \
                              '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex \
                              used for validation is '[-._a-zA-Z0-9]+')";
                let path = format!("{field}[{key}]");
                faults.push(FieldError::invalid(path, key.as_str(), detail));
            }
            if (is_secret || field == "binaryData") && STANDARD.decode(text).is_err() {
                let path = format!("{field}[{key}]");
                faults.push(FieldError::invalid(path, "", "is not base64"));
            }
            size += text.len();
        }
    }
    if size > MOST_DATA {
        let detail = format!("may not be more than {MOST_DATA} bytes");
        faults.push(FieldError::new("data", Fault::TooLong, detail));
    }
}

fn check_immutable(old: &Value, new: &Value, faults: &mut Vec<FieldError>) {
    if old["immutable"] != true {
        return;
    }
    for field in ["immutable", "data", "binaryData"] {
        if old[field] != new[field] {
            let detail = "field is immutable when `immutable` is set";
            faults.push(FieldError::forbidden(field, detail));
        }
    }
}

fn check_binding(binding: &Value, faults: &mut Vec<FieldError>) {
    let reference = &binding["roleRef"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&reference["kind"]);
    if !matches!(kind.as_str(), "Role" | "ClusterRole") {
        let supported = ["ClusterRole", "Role"];
        faults.push(FieldError::not_supported("roleRef.kind", kind, &supported));
    }
    if text(&reference["name"]).is_empty() {
        faults.push(FieldError::required("roleRef.name", ""));
    }
    for (index, subject) in object::list(&binding["subjects"]).iter().enumerate() {
        let path = format!("subjects[{index}]");
        if text(&subject["name"]).is_empty() {
            faults.push(FieldError::required(format!("{path}.name"), ""));
        }
        let kind = text(&subject["kind"]);
        match kind.as_str() {
            "User" | "Group" => {}
            "ServiceAccount" if text(&subject["namespace"]).is_empty() => {
                faults.push(FieldError::required(format!("{path}.namespace"), ""));
            }
            "ServiceAccount" => {}
            _ => {
                let supported = ["Group", "ServiceAccount", "User"];
                let path = format!("{path}.kind");
                faults.push(FieldError::not_supported(path, kind, &supported));
            }
        }
    }
}

fn check_definition(crd: &Value, faults: &mut Vec<FieldError>) {
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for (path, value) in [
        ("spec.group", &spec["group"]),
        ("spec.names.plural", &spec["names"]["plural"]),
        ("spec.names.kind", &spec["names"]["kind"]),
    ] {
        if text(value).is_empty() {
            faults.push(FieldError::required(path, ""));
        }
    }
    if !matches!(spec["scope"].as_str(), Some("Namespaced" | "Cluster")) {
        let supported = ["Cluster", "Namespaced"];
        let fault = FieldError::not_supported("spec.scope", text(&spec["scope"]), &supported);
        faults.push(fault);
    }
    let name = shelf_name(&text(&spec["group"]), &text(&spec["names"]["plural"]));
    if object::name(crd) != name {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        let given = object::name(crd);
        faults.push(FieldError::invalid("metadata.name", given, detail));
    }
    let versions = object::list(&spec["versions"]);
    let stored = versions.iter().filter(|version| version["storage"] == true);
    if stored.count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        let value = spec["versions"].clone();
        faults.push(FieldError::invalid("spec.versions", value, detail));
    }
    for (index, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
            faults.push(FieldError::required(path, "schemas are required"));
        }
    }
}

fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label_of_any_length)
}

/// Whether a text is a DNS label as RFC 1123 has it.
fn is_label(text: &str) -> bool {
    text.len() <= LONGEST_LABEL && is_label_of_any_length(text)
}

fn is_label_of_any_length(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.chars().all(inner)
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn is_word(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    ends(text.chars().next()) && ends(text.chars().next_back()) && text.chars().all(is_word_char)
}

fn qualified_name_problem(name: &str) -> Option<&'static str> {
    let (prefix, name) = match name.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, name),
    };
    if prefix.is_some_and(|prefix| !is_subdomain(prefix)) {
        return Some("prefix part a DNS-1123 subdomain is required");
    }
    match name {
        "" => Some("name part must be non-empty"),
        name if name.len() > LONGEST_LABEL => Some("name part must be no more than 63 bytes"),
        name if !is_word(name) => Some(QUALIFIED_TEXT),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
