//! Walks over an object by its schema for server-side apply: the paths it sets, the paths in
//! which two objects differ, the merge of one into the other, and removal by path.

use serde_json::{Map, Value};

use super::field_set::{FieldSet, Step};
use crate::api_server::schema::{ListKind, Node};

/// The step that leads to each element of a list that merges; `None` for an atomic list.
///
/// # Errors
/// When an element lacks a key: the server's words, without the path.
pub(super) fn element_steps(node: Node<'_>, items: &[Value]) -> Result<Option<Vec<Step>>, String> {
    match node.list_kind() {
        ListKind::Atomic => Ok(None),
        ListKind::Set => Ok(Some(items.iter().map(Step::value).collect())),
        ListKind::Map(keys) => items
            .iter()
            .enumerate()
            .map(|(index, item)| element_keys(node, &keys, index, item))
            .collect::<Result<Vec<_>, _>>()
            .map(Some),
    }
}

fn element_keys(node: Node<'_>, keys: &[&str], index: usize, item: &Value) -> Result<Step, String> {
    let mut found = Map::new();
    for key in keys {
        let default = || node.items().named(key)?.keyword("default").cloned();
        let value = item.get(key).cloned().or_else(default).ok_or_else(|| {
            format!(
                "element {index}: associative list with keys has an element that omits key field {key:?} (and doesn't have default value)"
            )
        })?;
        found.insert((*key).to_owned(), value);
    }
    Ok(Step::keys(found))
}

/// The steps of a list that is known to be well formed; an element that is not has none.
fn steps(node: Node<'_>, items: &[Value]) -> Option<Vec<Step>> {
    element_steps(node, items).ok().flatten()
}

/// The paths that an applied configuration sets: its scalars and atomic values, empty
/// objects, list elements, and entries of maps.
pub(super) fn applied_paths(node: Node<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    match value {
        Value::Object(fields) if !node.atomic_map() => {
            for (name, inner_value) in fields {
                let inner = node.field(name).unwrap_or_else(Node::anything);
                let mut below = applied_paths(inner, inner_value);
                let empty = inner_value.as_object().is_some_and(Map::is_empty);
                below.member |= inner_value.is_null() || empty || node.named(name).is_none();
                set.put(Step::Field(name.clone()), below);
            }
        }
        Value::Array(items) => match steps(node, items) {
            Some(steps) => {
                for (step, item) in steps.into_iter().zip(items) {
                    let mut below = applied_paths(node.items(), item);
                    below.member = true;
                    set.put(step, below);
                }
            }
            None => set.member = true,
        },
        _ => set.member = true,
    }
    set
}

/// In what one object differs from an earlier one.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// Paths that are new or have another value.
    pub(super) set: FieldSet,
    /// Paths that are gone.
    pub(super) removed: FieldSet,
}

/// Compares two objects.
pub(super) fn compare(node: Node<'_>, old: &Value, new: &Value) -> Difference {
    let mut difference = Difference::default();
    if old == new {
        return difference;
    }
    match (old, new) {
        (Value::Object(old), Value::Object(new)) if !node.atomic_map() => {
            for (name, new_value) in new {
                let inner = node.field(name).unwrap_or_else(Node::anything);
                let step = Step::Field(name.clone());
                match old.get(name) {
                    Some(old_value) => {
                        let below = compare(inner, old_value, new_value);
                        difference.set.put(step.clone(), below.set);
                        difference.removed.put(step, below.removed);
                    }
                    None => difference.set.put(step, field_paths(node, name, new_value)),
                }
            }
            for (name, old_value) in old {
                if !new.contains_key(name) {
                    let inner = node.field(name).unwrap_or_else(Node::anything);
                    let step = Step::Field(name.clone());
                    difference.removed.put(step, all_paths(inner, old_value));
                }
            }
        }
        (Value::Array(old), Value::Array(new)) => match (steps(node, old), steps(node, new)) {
            (Some(old_steps), Some(new_steps)) => {
                compare_elements(node, (&old_steps, old), (&new_steps, new), &mut difference);
            }
            _ => difference.set.member = true,
        },
        _ => difference.set.member = true,
    }
    difference
}

fn compare_elements(
    node: Node<'_>,
    (old_steps, old): (&[Step], &[Value]),
    (new_steps, new): (&[Step], &[Value]),
    difference: &mut Difference,
) {
    for (step, new_item) in new_steps.iter().zip(new) {
        match old_steps.iter().position(|other| other == step) {
            Some(at) => {
                let below = compare(node.items(), &old[at], new_item);
                difference.set.put(step.clone(), below.set);
                difference.removed.put(step.clone(), below.removed);
            }
            None => difference
                .set
                .put(step.clone(), all_paths(node.items(), new_item)),
        }
    }
    for (step, old_item) in old_steps.iter().zip(old) {
        if !new_steps.contains(step) {
            difference
                .removed
                .put(step.clone(), all_paths(node.items(), old_item));
        }
    }
}

/// Every path of a field's value, containers included; but not a container that a built-in
/// type always has, such as a pod's list of containers.
fn field_paths(parent: Node<'_>, name: &str, value: &Value) -> FieldSet {
    let node = parent.field(name).unwrap_or_else(Node::anything);
    let mut set = all_paths(node, value);
    let always = parent.type_name().is_some() && parent.requires(name);
    set.member &= !always || set.children.is_empty();
    set
}

/// Every path of a value, containers included.
pub(super) fn all_paths(node: Node<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::leaf();
    match value {
        Value::Object(fields) if !node.atomic_map() => {
            for (name, value) in fields {
                set.put(Step::Field(name.clone()), field_paths(node, name, value));
            }
        }
        Value::Array(items) => {
            for (step, item) in steps(node, items).into_iter().flatten().zip(items) {
                set.put(step, all_paths(node.items(), item));
            }
        }
        _ => {}
    }
    set
}

/// Merges an applied configuration into a live value.
pub(super) fn merge(node: Node<'_>, live: &mut Value, applied: &Value) {
    match (live, applied) {
        (Value::Object(live), Value::Object(applied)) if !node.atomic_map() => {
            for (name, value) in applied {
                let inner = node.field(name).unwrap_or_else(Node::anything);
                match live.get_mut(name) {
                    Some(there) => merge(inner, there, value),
                    None => {
                        live.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(live), Value::Array(applied)) => {
            match (steps(node, live), steps(node, applied)) {
                (Some(live_steps), Some(applied_steps)) => {
                    *live = merge_elements(node, (&live_steps, live), (&applied_steps, applied));
                }
                _ => live.clone_from(applied),
            }
        }
        (live, applied) => live.clone_from(applied),
    }
}

/// The applied elements have the order that they were applied in; a live element that is not
/// applied stays behind the live element that it followed.
fn merge_elements(
    node: Node<'_>,
    (live_steps, live): (&[Step], &[Value]),
    (applied_steps, applied): (&[Step], &[Value]),
) -> Vec<Value> {
    let mut result = Vec::with_capacity(live.len().max(applied.len()));
    let mut merged = vec![false; live.len()];
    let mut next = 0;
    for (step, item) in applied_steps.iter().zip(applied) {
        while next < live.len() && (merged[next] || !applied_steps.contains(&live_steps[next])) {
            if !merged[next] {
                result.push(live[next].clone());
            }
            next += 1;
        }
        let mut element = item.clone();
        if let Some(at) = live_steps.iter().position(|other| other == step) {
            element = live[at].clone();
            merge(node.items(), &mut element, item);
            merged[at] = true;
        }
        result.push(element);
    }
    let rest = (next..live.len()).filter(|at| !merged[*at]);
    result.extend(rest.map(|at| live[at].clone()));
    result
}

/// Takes away what a manager set before (`last`) and nobody sets any more (`kept`: the paths
/// of all managers, this one's new ones included). What is left out of a manager's
/// configuration goes with all below it, unless somebody owns something there.
pub(super) fn prune(node: Node<'_>, value: &mut Value, last: &FieldSet, kept: &FieldSet) {
    let nothing = FieldSet::default();
    match value {
        Value::Object(fields) => {
            for (step, before) in &last.children {
                let Step::Field(name) = step else { continue };
                let Some(there) = fields.get_mut(name) else {
                    continue;
                };
                let inner = node.field(name).unwrap_or_else(Node::anything);
                match kept.child(step).filter(|below| !below.is_empty()) {
                    Some(below) => prune(inner, there, before, below),
                    None if before.member || node.named(name).is_some() => {
                        fields.remove(name);
                    }
                    None => prune(inner, there, before, &nothing),
                }
            }
        }
        Value::Array(items) => {
            let Some(steps) = steps(node, items) else {
                return;
            };
            let mut steps = steps.into_iter();
            items.retain_mut(|item| {
                let Some(step) = steps.next() else {
                    return true;
                };
                let Some(before) = last.child(&step) else {
                    return true;
                };
                match kept.child(&step).filter(|below| !below.is_empty()) {
                    Some(below) => prune(node.items(), item, before, below),
                    None if before.member => return false,
                    None => prune(node.items(), item, before, &nothing),
                }
                true
            });
        }
        _ => {}
    }
}
