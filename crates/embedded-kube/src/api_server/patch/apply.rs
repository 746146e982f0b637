//! Server-side apply, and the record of who set what (`metadata.managedFields`).
//!
//! Pure: the time of a record is an argument. The rules are those of Kubernetes' field
//! management: <https://kubernetes.io/docs/reference/using-api/server-side-apply/>.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::field_set::{FieldSet, Step};
use super::typed;
use crate::api_server::schema::{Node, Schema};

/// Who writes, and how the record names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    /// The `fieldManager` of the request.
    pub name: String,
    /// The version of the object written: `actions.github.com/v1alpha1`.
    pub api_version: String,
    /// The subresource written to: empty or `status`.
    pub subresource: String,
}

/// Why a configuration cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Other managers own fields and want other values there: 409.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The configuration has `metadata.managedFields`: 400.
    #[error("metadata.managedFields must be nil")]
    ManagedFields,
    /// The configuration does not fit the schema: 500, as the real server answers.
    #[error("failed to create typed patch object ({object}): {problem}")]
    Untyped {
        /// `namespace/name; group/version, Kind=Kind`
        object: String,
        /// `.spec.foo: field not declared in schema`
        problem: String,
    },
}

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager, as the server prints it: `"helm"`.
    pub manager: String,
    /// The field: `.spec.replicas`.
    pub path: String,
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            only.manager, only.path
        );
    }
    let mut by_manager: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for conflict in conflicts {
        by_manager
            .entry(&conflict.manager)
            .or_default()
            .push(&conflict.path);
    }
    let parts: Vec<String> = by_manager
        .iter()
        .map(|(manager, paths)| format!("conflicts with {manager}:\n- {}", paths.join("\n- ")))
        .collect();
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        parts.join("\n")
    )
}

impl ApplyError {
    /// The HTTP status code.
    #[must_use]
    pub fn code(&self) -> u16 {
        match self {
            Self::Conflicts(_) => 409,
            Self::ManagedFields => 400,
            Self::Untyped { .. } => 500,
        }
    }

    /// The Status' `reason`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Conflicts(_) => "Conflict",
            Self::ManagedFields => "BadRequest",
            Self::Untyped { .. } => "",
        }
    }
}

/// The object after `manager` applied `config` to `live`, its record included. For an object
/// that does not exist yet `live` is `None`.
///
/// # Errors
/// When the configuration does not fit the schema, or when others own what it changes and
/// `force` is not set.
pub fn apply(
    schema: &Schema,
    live: Option<&Value>,
    config: &Value,
    manager: &Manager,
    force: bool,
    now: &str,
) -> Result<Value, ApplyError> {
    if config
        .pointer("/metadata/managedFields")
        .is_some_and(|fields| !fields.is_null())
    {
        return Err(ApplyError::ManagedFields);
    }
    check_typed(schema.root(), config, "").map_err(|problem| ApplyError::Untyped {
        object: describe(config),
        problem,
    })?;
    let empty = json!({"apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": {}});
    let live = live.unwrap_or(&empty);
    let mut records = Records::read(live);
    if records.0.is_empty() && live.pointer("/metadata/uid").is_some() {
        records.adopt(schema, live, &manager.api_version);
    }

    let key = Key {
        manager: manager.clone(),
        applied: true,
    };
    let mut owned = typed::applied_paths(schema.root(), config);
    forget_unowned(&mut owned, &manager.subresource);
    let last = records.replace(&key, owned, now);

    let mut merged = live.clone();
    typed::merge(schema.root(), &mut merged, config);
    if let Some(last) = last {
        // what is set counts even where no record is kept of it, as of the name and of lists
        // that are empty
        let mut kept = records.everything();
        kept.unite(&typed::all_paths(schema.root(), config));
        typed::prune(schema.root(), &mut merged, &last, &kept);
    }
    let difference = typed::compare(schema.root(), live, &merged);
    records.take_over(&key, &difference, force, now)?;
    records.write(&mut merged);
    Ok(merged)
}

/// Records in `new` that `manager` changed it from `old` by any other request than apply.
/// For a create `old` is `None`. Records that the request carries replace those of `old`, so
/// that a person can mend them; a single empty one clears them.
pub fn record_update(
    schema: &Schema,
    old: Option<&Value>,
    new: &mut Value,
    manager: &Manager,
    now: &str,
) {
    let empty = skeleton(schema, new);
    let mut records = match old {
        None => Records::default(),
        Some(_) if clears_records(new) => Records::default(),
        Some(_) if carries_records(new) => Records::read(new),
        Some(old) => Records::read(old),
    };
    let difference = typed::compare(schema.root(), old.unwrap_or(&empty), new);
    let key = Key {
        manager: manager.clone(),
        applied: false,
    };
    // cannot fail: forced
    let _ = records.take_over(&key, &difference, true, now);
    let mut set = difference.set;
    forget_unowned(&mut set, &manager.subresource);
    records.add(&key, &set, &difference.removed, now);
    records.write(new);
}

/// One empty entry clears the records, as Kubernetes documents it; an empty list does not.
fn clears_records(object: &Value) -> bool {
    let records = object.pointer("/metadata/managedFields");
    records.is_some_and(|records| *records == json!([{}]))
}

fn carries_records(object: &Value) -> bool {
    let records = object.pointer("/metadata/managedFields");
    records
        .and_then(Value::as_array)
        .is_some_and(|records| !records.is_empty())
}

/// What an object of the kind is before anything is set: built-in kinds always have their
/// `spec` and `status`.
fn skeleton(schema: &Schema, object: &Value) -> Value {
    let mut empty = json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": {},
    });
    for name in ["spec", "status"] {
        if !schema.is_custom() && schema.root().named(name).is_some() {
            empty[name] = json!({});
        }
    }
    empty
}

/// Fields that the server sets itself, or that a request of this kind does not write.
fn forget_unowned(set: &mut FieldSet, subresource: &str) {
    set.forget(&[if subresource.is_empty() {
        "status"
    } else {
        "spec"
    }]);
    forget_system_fields(set);
}

/// Fields that the server sets itself, and the object and its metadata, which are always
/// there.
fn forget_system_fields(set: &mut FieldSet) {
    set.forget(&["apiVersion"]);
    set.forget(&["kind"]);
    for name in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        set.forget(&["metadata", name]);
    }
    set.member = false;
    if let Some(metadata) = set.children.get_mut(&Step::Field("metadata".into())) {
        metadata.member = false;
    }
    set.children.retain(|_, below| !below.is_empty());
}

fn describe(object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or("")
    };
    format!(
        "{}/{}; {}, Kind={}",
        text("/metadata/namespace"),
        text("/metadata/name"),
        text("/apiVersion"),
        text("/kind"),
    )
}

/// Whether a configuration has only declared fields, of the declared types, and keys on the
/// elements of its lists.
fn check_typed(node: Node<'_>, value: &Value, path: &str) -> Result<(), String> {
    let expected = |what: &str| Err(format!("{path}: expected {what}, got {value}"));
    match (node.type_(), value) {
        (_, Value::Null) => return Ok(()),
        (Some("object"), other) if !other.is_object() => return expected("map"),
        (Some("array"), other) if !other.is_array() => return expected("list"),
        (Some("string"), other) if !other.is_string() => return expected("string"),
        (Some("boolean"), other) if !other.is_boolean() => return expected("boolean"),
        (Some("integer" | "number"), other) if !other.is_number() => {
            return expected("numeric (int or float)");
        }
        _ => {}
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                let inner = node
                    .field(name)
                    .ok_or_else(|| format!("{path}: field not declared in schema"))?;
                check_typed(inner, value, &path)?;
            }
        }
        Value::Array(items) => {
            let steps = typed::element_steps(node, items)
                .map_err(|problem| format!("{path}: {problem}"))?;
            if let Some(twice) = steps.as_deref().and_then(duplicate) {
                return Err(format!("{path}: duplicate entries for key {twice}"));
            }
            for (index, item) in items.iter().enumerate() {
                let step = steps
                    .as_ref()
                    .map_or_else(|| format!("[{index}]"), |steps| steps[index].to_string());
                check_typed(node.items(), item, &format!("{path}{step}"))?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// A step that leads to two elements.
fn duplicate(steps: &[Step]) -> Option<&Step> {
    let twice = steps
        .iter()
        .enumerate()
        .find(|(at, step)| steps[..*at].contains(step));
    twice.map(|(_, step)| step)
}

/// What tells one entry of `managedFields` from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    manager: Manager,
    applied: bool,
}

impl Key {
    /// The manager as the server prints it in a conflict.
    fn print(&self) -> String {
        let mut text = format!("{:?}", self.manager.name);
        if !self.manager.subresource.is_empty() {
            text = format!("{text} with subresource {:?}", self.manager.subresource);
        }
        if !self.applied {
            text = format!("{text} using {}", self.manager.api_version);
        }
        text
    }
}

#[derive(Clone, Debug)]
struct Record {
    fields: FieldSet,
    time: String,
}

/// The entries of one object's `managedFields`.
#[derive(Clone, Debug, Default)]
struct Records(BTreeMap<Key, Record>);

impl Records {
    fn read(object: &Value) -> Self {
        let entries = object
            .pointer("/metadata/managedFields")
            .and_then(Value::as_array);
        let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or("").to_owned();
        Self(
            entries
                .into_iter()
                .flatten()
                .map(|entry| {
                    let key = Key {
                        manager: Manager {
                            name: text(entry, "manager"),
                            api_version: text(entry, "apiVersion"),
                            subresource: text(entry, "subresource"),
                        },
                        applied: entry["operation"] == "Apply",
                    };
                    let record = Record {
                        fields: FieldSet::from_json(&entry["fieldsV1"]),
                        time: text(entry, "time"),
                    };
                    (key, record)
                })
                .collect(),
        )
    }

    /// Writes them where they belong, in the server's order: applied ones first, then by time.
    fn write(&self, object: &mut Value) {
        let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
            return;
        };
        if self.0.is_empty() {
            metadata.remove("managedFields");
            return;
        }
        let mut entries: Vec<(&Key, &Record)> = self.0.iter().collect();
        entries.sort_by_key(|(key, record)| (!key.applied, record.time.clone(), (*key).clone()));
        let entries = entries.into_iter().map(|(key, record)| entry(key, record));
        metadata.insert("managedFields".into(), entries.collect());
    }

    /// An object that nobody has a record of belongs to whoever made it before.
    fn adopt(&mut self, schema: &Schema, live: &Value, api_version: &str) {
        let empty = skeleton(schema, live);
        let mut fields = typed::compare(schema.root(), &empty, live).set;
        forget_system_fields(&mut fields);
        let key = Key {
            manager: Manager {
                name: "before-first-apply".into(),
                api_version: api_version.to_owned(),
                subresource: String::new(),
            },
            applied: false,
        };
        let time = live
            .pointer("/metadata/creationTimestamp")
            .and_then(Value::as_str);
        let time = time.unwrap_or("").to_owned();
        self.0.insert(key, Record { fields, time });
    }

    fn everything(&self) -> FieldSet {
        let mut all = FieldSet::default();
        for record in self.0.values() {
            all.unite(&record.fields);
        }
        all
    }

    /// Sets what a manager owns and returns what it owned before.
    fn replace(&mut self, key: &Key, fields: FieldSet, now: &str) -> Option<FieldSet> {
        let before = self.0.remove(key);
        let time = match &before {
            Some(before) if before.fields == fields => before.time.clone(),
            _ => now.to_owned(),
        };
        if !fields.is_empty() {
            self.0.insert(key.clone(), Record { fields, time });
        }
        before.map(|before| before.fields)
    }

    /// Adds to what a manager owns.
    fn add(&mut self, key: &Key, set: &FieldSet, removed: &FieldSet, now: &str) {
        let mut fields = self
            .0
            .get(key)
            .map(|record| record.fields.clone())
            .unwrap_or_default();
        fields.unite(set);
        fields.subtract(removed);
        self.replace(key, fields, now);
    }

    /// Takes changed and removed fields from all other managers.
    fn take_over(
        &mut self,
        writer: &Key,
        difference: &typed::Difference,
        force: bool,
        now: &str,
    ) -> Result<(), ApplyError> {
        let mut conflicts = Vec::new();
        for (key, record) in &self.0 {
            if key == writer {
                continue;
            }
            for path in record.fields.intersection(&difference.set).paths() {
                conflicts.push(Conflict {
                    manager: key.print(),
                    path,
                });
            }
        }
        if !force && !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
        for (key, record) in &mut self.0 {
            let before = record.fields.clone();
            if key != writer {
                record.fields.subtract(&difference.set);
            }
            record.fields.subtract(&difference.removed);
            if record.fields != before {
                record.time = now.to_owned();
            }
        }
        self.0.retain(|_, record| !record.fields.is_empty());
        Ok(())
    }
}

fn entry(key: &Key, record: &Record) -> Value {
    let mut entry = Map::new();
    entry.insert("manager".into(), json!(key.manager.name));
    let operation = if key.applied { "Apply" } else { "Update" };
    entry.insert("operation".into(), json!(operation));
    entry.insert("apiVersion".into(), json!(key.manager.api_version));
    if !record.time.is_empty() {
        entry.insert("time".into(), json!(record.time));
    }
    entry.insert("fieldsType".into(), json!("FieldsV1"));
    entry.insert("fieldsV1".into(), record.fields.to_json());
    if !key.manager.subresource.is_empty() {
        entry.insert("subresource".into(), json!(key.manager.subresource));
    }
    Value::Object(entry)
}

#[cfg(test)]
mod tests;
