//! Rules of metadata and of the built-in kinds, as far as someone could break them here.

use serde_json::Value;

use super::kinds::ResourceType;
use super::object;
use super::status::FieldError;

/// What is wrong with a new object.
pub(super) fn on_create(resource: &ResourceType, object: &Value) -> Vec<FieldError> {
    let mut faults = Vec::new();
    check_name(resource, object, &mut faults);
    faults
}

/// What is wrong with a change.
pub(super) fn on_update(
    _resource: &ResourceType,
    old: &Value,
    new: &Value,
    _subresource: &str,
) -> Vec<FieldError> {
    let mut faults = Vec::new();
    check_finalizers(old, new, &mut faults);
    faults
}

fn check_name(resource: &ResourceType, object: &Value, faults: &mut Vec<FieldError>) {
    let name = object::name(object);
    if name.is_empty() {
        let detail = "name or generateName is required";
        faults.push(FieldError::required("metadata.name", detail));
        return;
    }
    // roles and bindings may be named freely, as "system:node" is
    let free = resource.group == "rbac.authorization.k8s.io";
    if !free && !is_subdomain(name) {
        let detail = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
                      characters, '-' or '.', and must start and end with an alphanumeric \
                      character (e.g. 'example.com', regex used for validation is \
                      '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
        faults.push(FieldError::invalid("metadata.name", name, detail));
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

fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Whether a text is a DNS label as RFC 1123 has it.
pub(super) fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && !text.starts_with('-') && !text.ends_with('-') && text.chars().all(inner)
}
