//! A set of field paths, as `managedFields` keeps for each manager, and its JSON form
//! (`fieldsV1`).

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A field or map entry: `f:replicas`.
    Field(String),
    /// A list element told by its keys, as canonical JSON: `k:{"name":"runner"}`.
    Keys(String),
    /// A list element told by its value, as JSON: `v:"finalizer"`.
    Value(String),
}

impl Step {
    /// The step to the element of a list that has these keys.
    pub fn keys(keys: Map<String, Value>) -> Self {
        Self::Keys(Value::Object(keys).to_string())
    }

    /// The step to an element of a set.
    pub fn value(value: &Value) -> Self {
        Self::Value(value.to_string())
    }

    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Keys(keys) => format!("k:{keys}"),
            Self::Value(value) => format!("v:{value}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            // parsed and printed again, so that one element has one spelling
            "k" => match serde_json::from_str(rest).ok()? {
                Value::Object(keys) => Some(Self::keys(keys)),
                _ => None,
            },
            "v" => Some(Self::value(&serde_json::from_str(rest).ok()?)),
            _ => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(out, ".{name}"),
            Self::Value(value) => write!(out, "[={value}]"),
            Self::Keys(keys) => {
                let keys: BTreeMap<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<String> = keys
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect();
                write!(out, "[{}]", keys.join(","))
            }
        }
    }
}

/// A set of paths, as a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Whether the path to here is in the set.
    pub member: bool,
    /// What is below.
    pub children: BTreeMap<Step, FieldSet>,
}

impl FieldSet {
    /// The set of only the path to here.
    #[must_use]
    pub fn leaf() -> Self {
        Self {
            member: true,
            children: BTreeMap::new(),
        }
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.member && self.children.values().all(Self::is_empty)
    }

    /// What is below a step.
    #[must_use]
    pub fn child(&self, step: &Step) -> Option<&Self> {
        self.children.get(step)
    }

    /// Adds all paths of a set that are below a step; nothing when it is empty.
    pub fn put(&mut self, step: Step, below: Self) {
        if !below.is_empty() {
            self.children.entry(step).or_default().unite(&below);
        }
    }

    /// Adds every path of `other`.
    pub fn unite(&mut self, other: &Self) {
        self.member |= other.member;
        for (step, below) in &other.children {
            self.children.entry(step.clone()).or_default().unite(below);
        }
    }

    /// Takes away every path of `other`, and what is left empty by it.
    pub fn subtract(&mut self, other: &Self) {
        self.member &= !other.member;
        for (step, gone) in &other.children {
            if let Some(below) = self.children.get_mut(step) {
                below.subtract(gone);
                if below.is_empty() {
                    self.children.remove(step);
                }
            }
        }
    }

    /// The paths that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self {
            member: self.member && other.member,
            children: BTreeMap::new(),
        };
        for (step, below) in &self.children {
            if let Some(others) = other.children.get(step) {
                both.put(step.clone(), below.intersection(others));
            }
        }
        both
    }

    /// Forgets a path of fields and all below it.
    pub fn forget(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else {
            *self = Self::default();
            return;
        };
        let step = Step::Field((*first).to_owned());
        if let Some(below) = self.children.get_mut(&step) {
            below.forget(rest);
            if below.is_empty() {
                self.children.remove(&step);
            }
        }
    }

    /// Every path, as the server prints it: `.spec.containers[name="runner"].image`.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect("", &mut paths);
        paths
    }

    fn collect(&self, prefix: &str, paths: &mut Vec<String>) {
        if self.member {
            paths.push(prefix.to_owned());
        }
        for (step, below) in &self.children {
            below.collect(&format!("{prefix}{step}"), paths);
        }
    }

    /// The set as `fieldsV1`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut fields = Map::new();
        if self.member && !self.children.is_empty() {
            fields.insert(".".into(), Value::Object(Map::new()));
        }
        for (step, below) in &self.children {
            fields.insert(step.encode(), below.to_json());
        }
        Value::Object(fields)
    }

    /// The set that `fieldsV1` describes. Steps of an unknown form are left out.
    #[must_use]
    pub fn from_json(fields: &Value) -> Self {
        let mut set = Self::default();
        for (name, below) in fields.as_object().into_iter().flatten() {
            if name == "." {
                set.member = true;
            } else if let Some(step) = Step::decode(name) {
                let below = match below.as_object() {
                    Some(fields) if !fields.is_empty() => Self::from_json(below),
                    _ => Self::leaf(),
                };
                set.children.insert(step, below);
            }
        }
        set
    }
}
