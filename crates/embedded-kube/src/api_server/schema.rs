//! What shape an object may have: one view of the schemas of custom resources (their CRD's
//! `openAPIV3Schema`) and of built-in kinds (generated from `k8s-openapi`), which decoding,
//! defaulting, validation, strategic merge, server-side apply and OpenAPI all walk.
//!
//! Pure functions over [`serde_json::Value`]; knows nothing of stores, requests or time.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};

pub mod builtin;
pub mod default;
mod omit;
pub mod prune;
pub mod validate;

pub use builtin::Definitions;
pub use prune::{DecodeError, FieldValidation};

/// The schema of one kind in one version. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Schema {
    root: Arc<Value>,
    patterns: Arc<validate::Patterns>,
    custom: bool,
}

impl Schema {
    /// The schema of a kind that the API server is born with, or `None` for any other.
    #[must_use]
    pub fn builtin(api_version: &str, kind: &str) -> Option<Self> {
        let name = Definitions::builtin().name_of(api_version, kind)?;
        Some(Self {
            root: Arc::new(builtin::reference(name)),
            patterns: Arc::default(),
            custom: false,
        })
    }

    /// The schema that a CustomResourceDefinition document gives for one of its versions.
    /// A version without a schema accepts everything.
    #[must_use]
    pub fn of_crd(crd: &Value, version: &str) -> Option<Self> {
        let version = crd
            .pointer("/spec/versions")?
            .as_array()?
            .iter()
            .find(|candidate| candidate["name"] == version)?;
        let mut root = version
            .pointer("/schema/openAPIV3Schema")
            .filter(|schema| schema.is_object())
            .cloned()
            .unwrap_or_else(|| json!({"type": "object", PRESERVE_UNKNOWN: true}));
        add_object_fields(&mut root);
        add_embedded_object_fields(&mut root);
        Some(Self {
            patterns: Arc::new(validate::patterns(&root)),
            root: Arc::new(root),
            custom: true,
        })
    }

    /// The schema of a kind of which nothing is known.
    #[must_use]
    pub fn anything() -> Self {
        Self {
            root: Arc::new(ANYTHING.clone()),
            patterns: Arc::default(),
            custom: false,
        }
    }

    /// Whether it came from a CustomResourceDefinition.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        self.custom
    }

    /// Where a walk through it starts.
    #[must_use]
    pub fn root(&self) -> Node<'_> {
        Node::new(&self.root)
    }

    /// The document itself, with references to [`Definitions::builtin`].
    #[must_use]
    pub fn document(&self) -> &Value {
        &self.root
    }
}

const PRESERVE_UNKNOWN: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// Gives an object's schema the three fields that every object has and no CRD spells out.
fn add_object_fields(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else {
        return;
    };
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        for name in ["apiVersion", "kind"] {
            properties
                .entry(name)
                .or_insert_with(|| json!({"type": "string"}));
        }
        properties.insert("metadata".into(), builtin::reference(builtin::OBJECT_META));
    }
}

/// The same for objects inside the object (`x-kubernetes-embedded-resource`).
fn add_embedded_object_fields(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(add_embedded_object_fields);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(key) {
            add_embedded_object_fields(inner);
        }
    }
    if fields.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        add_object_fields(schema);
    }
}

/// How the elements of a list are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind<'s> {
    /// They are not: the list is one value.
    Atomic,
    /// By their values, which are scalars.
    Set,
    /// By the values of these fields.
    Map(Vec<&'s str>),
}

/// One place in a [`Schema`].
#[derive(Clone, Copy, Debug)]
pub struct Node<'s> {
    /// The schema where it is used: it may add extensions to what it refers to.
    outer: &'s Value,
    /// The schema itself, reference resolved.
    inner: &'s Value,
    /// The name of the built-in type when `inner` is one.
    type_name: Option<&'s str>,
}

static ANYTHING: LazyLock<Value> = LazyLock::new(|| json!({PRESERVE_UNKNOWN: true}));

impl<'s> Node<'s> {
    fn new(outer: &'s Value) -> Self {
        match builtin::referenced(outer) {
            Some((name, inner)) => Self {
                outer,
                inner,
                type_name: Some(name),
            },
            None => Self {
                outer,
                inner: outer,
                type_name: None,
            },
        }
    }

    /// The place where nothing is known of the value.
    #[must_use]
    pub fn anything() -> Self {
        Node::new(&ANYTHING)
    }

    /// The built-in type's short name (`Container`), when it is a built-in type.
    #[must_use]
    pub fn type_name(&self) -> Option<&'s str> {
        self.type_name
            .map(|name| name.rsplit('.').next().unwrap_or(name))
    }

    /// A keyword of the schema, of the place before the type.
    #[must_use]
    pub fn keyword(&self, name: &str) -> Option<&'s Value> {
        self.outer.get(name).or_else(|| self.inner.get(name))
    }

    fn text(&self, name: &str) -> Option<&'s str> {
        self.keyword(name)?.as_str()
    }

    fn flag(&self, name: &str) -> bool {
        self.keyword(name) == Some(&Value::Bool(true))
    }

    /// The JSON type it asks for, if it asks for one.
    #[must_use]
    pub fn type_(&self) -> Option<&'s str> {
        self.text("type")
    }

    /// The named fields.
    #[must_use]
    pub fn properties(&self) -> Option<&'s Map<String, Value>> {
        self.keyword("properties")?.as_object()
    }

    /// The schema of a field that is there by name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Node<'s>> {
        self.properties()?.get(name).map(Node::new)
    }

    /// The schema of a field or map entry, or `None` when there must not be one.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Node<'s>> {
        if let Some(node) = self.named(name) {
            return Some(node);
        }
        match self.keyword("additionalProperties") {
            Some(Value::Bool(true)) => return Some(Node::anything()),
            Some(schema @ Value::Object(_)) => return Some(Node::new(schema)),
            _ => {}
        }
        self.preserves_unknown().then(Node::anything)
    }

    /// The schema of a list's elements.
    #[must_use]
    pub fn items(&self) -> Node<'s> {
        self.keyword("items").map_or_else(Node::anything, Node::new)
    }

    /// Whether a field must be there.
    #[must_use]
    pub fn requires(&self, name: &str) -> bool {
        let required = self.keyword("required").and_then(Value::as_array);
        required.is_some_and(|required| required.iter().any(|one| one == name))
    }

    /// Whether fields that it does not name are kept as they are.
    #[must_use]
    pub fn preserves_unknown(&self) -> bool {
        self.flag(PRESERVE_UNKNOWN)
    }

    /// Whether it takes integers and strings.
    #[must_use]
    pub fn int_or_string(&self) -> bool {
        self.flag(INT_OR_STRING)
    }

    /// Whether null is a value of its own.
    #[must_use]
    pub fn nullable(&self) -> bool {
        self.flag("nullable")
    }

    /// How server-side apply and validation tell a list's elements apart.
    #[must_use]
    pub fn list_kind(&self) -> ListKind<'s> {
        match self.text("x-kubernetes-list-type") {
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map(
                self.keyword("x-kubernetes-list-map-keys")
                    .and_then(Value::as_array)
                    .map(|keys| keys.iter().filter_map(Value::as_str).collect())
                    .unwrap_or_default(),
            ),
            _ => ListKind::Atomic,
        }
    }

    /// Whether an object is owned as one value.
    #[must_use]
    pub fn atomic_map(&self) -> bool {
        self.text("x-kubernetes-map-type") == Some("atomic")
    }

    /// The field by which strategic merge matches a list's elements.
    #[must_use]
    pub fn patch_merge_key(&self) -> Option<&'s str> {
        self.text("x-kubernetes-patch-merge-key")
    }

    /// Whether strategic merge does so with this list or map (`merge`, `retainKeys`).
    #[must_use]
    pub fn has_patch_strategy(&self, strategy: &str) -> bool {
        self.text("x-kubernetes-patch-strategy")
            .is_some_and(|all| all.split(',').any(|one| one == strategy))
    }
}

/// `path` with a field's name added: `spec` and `replicas` make `spec.replicas`.
pub(crate) fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// `path` with an index added: `spec.list[0]`.
pub(crate) fn element(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

#[cfg(test)]
pub(crate) mod tests;
