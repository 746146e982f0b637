//! ResourceQuota: refuses a new object for which there is no room, and tells in its status
//! how much is used.

mod quantity;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use self::quantity::Quantity;
use super::kinds::{ResourceType, shelf_name};
use super::object;
use super::status::ApiError;
use super::store::Store;

const QUOTAS: &str = "resourcequotas";

/// What an object takes up, by the name that quotas have for it.
type Usage = BTreeMap<String, Quantity>;

/// Refuses an object that would exceed a quota of its namespace.
///
/// # Errors
/// 403 with the real server's text.
pub(super) fn check(
    store: &Store,
    resource: &ResourceType,
    object: &Value,
) -> Result<(), ApiError> {
    let namespace = object::namespace(object);
    if namespace.is_empty() {
        return Ok(());
    }
    for quota in store.list(QUOTAS, Some(namespace)) {
        if let Err(why) = check_one(store, quota, resource, object) {
            let name = object::name(object);
            return Err(ApiError::forbidden(resource.resource(), name, &why));
        }
    }
    Ok(())
}

fn check_one(
    store: &Store,
    quota: &Value,
    resource: &ResourceType,
    object: &Value,
) -> Result<(), String> {
    let quota_name = object::name(quota);
    let hard = hard_limits(quota);
    let asked = usage_of(&resource.shelf, object);
    if &*resource.shelf == "pods" {
        check_everything_is_said(quota_name, &hard, object)?;
    }
    let used = used_in(store, object::namespace(object), &hard);
    let mut exceeded: [Vec<String>; 3] = Default::default();
    for (name, limit) in &hard {
        let asked = asked.get(name).copied().unwrap_or_default();
        let used = used.get(name).copied().unwrap_or_default();
        if asked > Quantity::default() && used + asked > *limit {
            exceeded[0].push(format!("{name}={asked}"));
            exceeded[1].push(format!("{name}={used}"));
            exceeded[2].push(format!("{name}={limit}"));
        }
    }
    if exceeded[0].is_empty() {
        return Ok(());
    }
    let [asked, used, limited] = exceeded.map(|list| list.join(","));
    Err(format!(
        "exceeded quota: {quota_name}, requested: {asked}, used: {used}, limited: {limited}"
    ))
}

/// A quota on what containers ask for wants every container to say how much.
fn check_everything_is_said(quota: &str, hard: &Usage, pod: &Value) -> Result<(), String> {
    let mut missing = Vec::new();
    for name in hard.keys() {
        let Some((list, of)) = container_field(name) else {
            continue;
        };
        let containers = object::list(&pod["spec"]["containers"]).iter();
        let silent: Vec<&str> = containers
            .filter(|container| container["resources"][list][of].is_null())
            .filter_map(|container| container["name"].as_str())
            .collect();
        if !silent.is_empty() {
            missing.push(format!("{name} for: {}", silent.join(",")));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join("; ");
    Err(format!("failed quota: {quota}: must specify {missing}"))
}

/// Where containers say what the quota of that name counts: `requests` or `limits`, and the
/// resource.
fn container_field(name: &str) -> Option<(&'static str, &str)> {
    match name {
        "cpu" | "memory" | "ephemeral-storage" => Some(("requests", name)),
        _ => name
            .strip_prefix("requests.")
            .filter(|of| *of != "storage")
            .map(|of| ("requests", of))
            .or_else(|| name.strip_prefix("limits.").map(|of| ("limits", of))),
    }
}

fn hard_limits(quota: &Value) -> Usage {
    let hard = quota["spec"]["hard"].as_object().into_iter().flatten();
    hard.filter_map(|(name, value)| Some((name.clone(), Quantity::parse(value)?)))
        .collect()
}

/// What an object on a shelf takes up.
fn usage_of(shelf: &str, object: &Value) -> Usage {
    let mut usage = Usage::from([
        (format!("count/{shelf}"), Quantity::ONE),
        // core resources are also counted under their plain names
        (shelf.to_owned(), Quantity::ONE),
    ]);
    if shelf != "pods" {
        return usage;
    }
    if matches!(
        object["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    ) {
        usage.remove("pods");
        return usage;
    }
    for list in ["requests", "limits"] {
        for (name, amount) in needed(&object["spec"], list) {
            if list == "requests" {
                usage.insert(name.clone(), amount);
            }
            usage.insert(format!("{list}.{name}"), amount);
        }
    }
    usage
}

/// What a pod needs at a time: its containers together, or its largest init container.
fn needed(spec: &Value, list: &str) -> Usage {
    let mut total = Usage::new();
    let amounts = |container: &Value| -> Usage {
        let fields = container["resources"][list].as_object();
        let fields = fields.cloned().unwrap_or_default();
        fields
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), Quantity::parse(value)?)))
            .collect()
    };
    for container in object::list(&spec["containers"]) {
        for (name, amount) in amounts(container) {
            let sum = total.entry(name).or_default();
            *sum = *sum + amount;
        }
    }
    for container in object::list(&spec["initContainers"]) {
        for (name, amount) in amounts(container) {
            let largest = total.entry(name).or_default();
            *largest = amount.max(*largest);
        }
    }
    total
}

fn used_in(store: &Store, namespace: &str, hard: &Usage) -> Usage {
    let mut used = Usage::new();
    let counts_pods = |name: &String| name == "pods" || container_field(name).is_some();
    let mut shelves: Vec<String> = Vec::new();
    for name in hard.keys() {
        let shelf = match name.strip_prefix("count/") {
            Some(shelf) => shelf.to_owned(),
            None if counts_pods(name) => "pods".to_owned(),
            None => name.clone(),
        };
        if !shelves.contains(&shelf) {
            shelves.push(shelf);
        }
    }
    for shelf in shelves {
        for object in store.list(&shelf, Some(namespace)) {
            for (name, amount) in usage_of(&shelf, object) {
                let sum = used.entry(name).or_default();
                *sum = *sum + amount;
            }
        }
    }
    used
}

/// Whether the quotas of a namespace may have to be told of a change on a shelf.
pub(super) fn is_counted(shelf: &str) -> bool {
    shelf != QUOTAS && shelf != "events"
}

/// The status that a quota should have now.
pub(super) fn status(store: &Store, quota: &Value) -> Value {
    let hard = hard_limits(quota);
    let used = used_in(store, object::namespace(quota), &hard);
    let amounts: Map<String, Value> = hard
        .keys()
        .map(|name| {
            let amount = used.get(name).copied().unwrap_or_default();
            (name.clone(), amount.to_string().into())
        })
        .collect();
    json!({ "hard": quota["spec"]["hard"], "used": amounts })
}

/// The shelf of quotas.
pub(super) fn shelf() -> String {
    shelf_name("", QUOTAS)
}
