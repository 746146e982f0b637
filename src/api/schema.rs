//! The OpenAPI schemas of the custom resources, structural as the API server demands.
//!
//! schemars gives the shape of our types and of Kubernetes' own, as definitions that refer to
//! each other. Here they are completed with what Kubernetes' types mean beyond their shape
//! ([`schema_facts`](super::schema_facts)) and then written out in full, since the API server
//! follows no references. What schemars says that a structural schema may not (null as a
//! type, `const`, defaults from serde) is dropped on the way. Ours stay as lax as ARC's: no
//! enums, nothing required that ARC does not require.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::schema_facts::{
    ATOMIC_LISTS, ATOMIC_MAPS, ATOMIC_TYPES, DEFAULTS, INT_OR_STRING, MAP_LISTS, QUANTITY,
    QUANTITY_PATTERN, SET_LISTS, TEMPLATE_METADATA, full_name,
};

const REFERENCE_PREFIX: &str = "#/components/schemas/";
/// The descriptions of a pod's parts are Kubernetes' own; with them a CRD would not fit into
/// the annotation of client-side apply.
const UNDESCRIBED: [&str; 2] = [
    "io.k8s.api.core.v1.PodTemplateSpec",
    "io.k8s.api.core.v1.PodSpec",
];

type Definitions = Map<String, Value>;

/// The structural schema of one custom resource.
pub(super) fn structural<T: JsonSchema>(kind_description: &str) -> Value {
    let (root, mut definitions) = derived::<T>();
    complete(&mut definitions);
    let mut schema = Expansion {
        definitions: &definitions,
    }
    .expand(&root, Descriptions::Kept);
    add_type_meta(&mut schema, kind_description);
    Value::Object(schema)
}

/// The schema of any object's metadata, whole.
pub(super) fn metadata() -> JSONSchemaProps {
    let (root, definitions) = derived::<ObjectMeta>();
    let expansion = Expansion {
        definitions: &definitions,
    };
    // the shape does not depend on input, and the tests build it
    serde_json::from_value(Value::Object(
        expansion.expand(&root, Descriptions::Dropped),
    ))
    .expect("a structural schema has the form of JSONSchemaProps")
}

/// What schemars knows: the root and the definitions that it refers to.
fn derived<T: JsonSchema>() -> (Map<String, Value>, Definitions) {
    let mut settings = SchemaSettings::openapi3();
    settings.meta_schema = None;
    // they would rewrite the root and not the definitions
    settings.transforms.clear();
    let mut root = SchemaGenerator::from(settings).into_root_schema_for::<T>();
    let definitions = root
        .remove("components")
        .and_then(|mut components| components.get_mut("schemas").map(Value::take))
        .and_then(|schemas| match schemas {
            Value::Object(schemas) => Some(schemas),
            _ => None,
        })
        .unwrap_or_default();
    let root = root.as_object().cloned().unwrap_or_default();
    (root, definitions)
}

/// Adds to the definitions what their types mean. Rows for types that are not there are for
/// another custom resource.
fn complete(definitions: &mut Definitions) {
    for &(kind, properties) in ATOMIC_LISTS {
        for property in properties {
            set(
                definitions,
                kind,
                property,
                "x-kubernetes-list-type",
                "atomic",
            );
        }
    }
    for &(kind, property) in SET_LISTS {
        set(definitions, kind, property, "x-kubernetes-list-type", "set");
    }
    for &(kind, property, keys) in MAP_LISTS {
        set(definitions, kind, property, "x-kubernetes-list-type", "map");
        set(
            definitions,
            kind,
            property,
            "x-kubernetes-list-map-keys",
            keys.to_vec(),
        );
    }
    for &(kind, property) in ATOMIC_MAPS {
        set(
            definitions,
            kind,
            property,
            "x-kubernetes-map-type",
            "atomic",
        );
    }
    for &kind in ATOMIC_TYPES {
        if let Some(schema) = definition(definitions, kind) {
            schema.insert("x-kubernetes-map-type".into(), "atomic".into());
        }
    }
    for &(kind, property, value) in DEFAULTS {
        let value: Value = serde_json::from_str(value).unwrap_or_default();
        set(definitions, kind, property, DEFAULT, value);
        if let Some(required) = definition(definitions, kind)
            .and_then(|schema| schema.get_mut("required"))
            .and_then(Value::as_array_mut)
        {
            required.retain(|name| name != property);
        }
    }
    if let Some(properties) = definition(definitions, "ObjectMeta")
        .and_then(|schema| schema.get_mut("properties"))
        .and_then(Value::as_object_mut)
    {
        properties.retain(|name, _| TEMPLATE_METADATA.contains(&name.as_str()));
    }
    complete_scalars(definitions);
    complete_conditions(definitions);
}

/// Where a default waits until serde's defaults, under their usual key, have been dropped.
const DEFAULT: &str = "x-impresario-default";

fn complete_scalars(definitions: &mut Definitions) {
    let number_or_string = json!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": true,
    });
    for name in [QUANTITY, INT_OR_STRING] {
        if let Some(schema) = definitions.get_mut(name) {
            *schema = number_or_string.clone();
            if name == QUANTITY {
                schema["pattern"] = QUANTITY_PATTERN.into();
            }
        }
    }
}

fn complete_conditions(definitions: &mut Definitions) {
    set(
        definitions,
        "Condition",
        "status",
        "enum",
        vec!["True", "False", "Unknown"],
    );
    if let Some(conditions) = definitions
        .get_mut("AutoscalingRunnerSetStatus")
        .and_then(|schema| schema.pointer_mut("/properties/conditions"))
    {
        conditions["x-kubernetes-list-type"] = "map".into();
        conditions["x-kubernetes-list-map-keys"] = json!(["type"]);
    }
}

fn definition<'a>(
    definitions: &'a mut Definitions,
    kind: &str,
) -> Option<&'a mut Map<String, Value>> {
    definitions.get_mut(&full_name(kind))?.as_object_mut()
}

fn set(
    definitions: &mut Definitions,
    kind: &str,
    property: &str,
    key: &str,
    value: impl Into<Value>,
) {
    if let Some(schema) = definition(definitions, kind)
        .and_then(|schema| schema.get_mut("properties"))
        .and_then(|properties| properties.get_mut(property))
    {
        schema[key] = value.into();
    }
}

/// Whether descriptions are written out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Descriptions {
    Kept,
    Dropped,
}

/// Writes definitions out in full.
struct Expansion<'a> {
    definitions: &'a Definitions,
}

impl Expansion<'_> {
    /// The schema in place of `node`, with every reference replaced by what it refers to. A
    /// description beside a reference wins over that of the definition.
    fn expand(&self, node: &Map<String, Value>, descriptions: Descriptions) -> Map<String, Value> {
        if let Some(target) = self.referred(node) {
            let below = if UNDESCRIBED.contains(&target.0) {
                Descriptions::Dropped
            } else {
                descriptions
            };
            let mut schema = self.expand(target.1, below);
            if descriptions == Descriptions::Kept {
                copy(node, &mut schema, "description");
            }
            copy(node, &mut schema, "x-kubernetes-list-type");
            return schema;
        }
        let mut schema = Map::new();
        for (key, value) in node {
            match (key.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    let properties = properties
                        .iter()
                        .map(|(name, value)| (name.clone(), self.expand_value(value, descriptions)))
                        .collect();
                    schema.insert(key.clone(), Value::Object(properties));
                }
                ("items" | "additionalProperties", Value::Object(_)) => {
                    schema.insert(key.clone(), self.expand_value(value, descriptions));
                }
                ("type", Value::Array(types)) => {
                    if let Some(known) = types.iter().find(|known| *known != "null") {
                        schema.insert(key.clone(), known.clone());
                    }
                }
                ("required", Value::Array(names)) if names.is_empty() => {}
                ("description", Value::String(text)) => {
                    if descriptions == Descriptions::Kept {
                        schema.insert(key.clone(), unwrapped(text).into());
                    }
                }
                (DEFAULT, _) => {
                    schema.insert("default".to_owned(), value.clone());
                }
                // serde's defaults are how we read, not what the server is to write
                ("title" | "default" | "nullable", _) => {}
                ("oneOf", Value::Array(variants)) => {
                    open_enum(&mut schema, variants);
                }
                _ => {
                    schema.insert(key.clone(), value.clone());
                }
            }
        }
        schema
    }

    fn expand_value(&self, value: &Value, descriptions: Descriptions) -> Value {
        match value {
            Value::Object(node) => Value::Object(self.expand(node, descriptions)),
            other => other.clone(),
        }
    }

    /// The definition that a node refers to, be it optional or not.
    fn referred(&self, node: &Map<String, Value>) -> Option<(&str, &Map<String, Value>)> {
        let reference = match (node.get("$ref"), node.get("anyOf")) {
            (Some(reference), _) => reference,
            (None, Some(Value::Array(choices))) => {
                choices.iter().find_map(|choice| choice.get("$ref"))?
            }
            _ => return None,
        };
        let name = reference.as_str()?.strip_prefix(REFERENCE_PREFIX)?;
        let (name, schema) = self.definitions.get_key_value(name)?;
        Some((name, schema.as_object()?))
    }
}

/// An enum of ours is any string to the server, as it is in ARC's schemas, so that an object
/// with a phase of another version is still valid.
fn open_enum(schema: &mut Map<String, Value>, variants: &[Value]) {
    debug_assert!(variants.iter().all(|variant| variant["type"] == "string"));
    schema.insert("type".to_owned(), "string".into());
}

fn copy(from: &Map<String, Value>, to: &mut Map<String, Value>, key: &str) {
    match from.get(key) {
        Some(Value::String(text)) => {
            to.insert(key.to_owned(), unwrapped(text).into());
        }
        Some(value) => {
            to.insert(key.to_owned(), value.clone());
        }
        None => {}
    }
}

/// A doc comment without its line breaks; paragraphs stay apart.
fn unwrapped(text: &str) -> String {
    text.split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// Adds what every Kubernetes object has and kube's derive leaves out.
fn add_type_meta(schema: &mut Map<String, Value>, description: &str) {
    schema.insert("description".into(), description.into());
    // an object without a spec is valid in ARC's schemas
    schema.remove("required");
    if let Some(properties) = schema.get_mut("properties") {
        properties["apiVersion"] = json!({
            "description": "Group and version of this object's schema.",
            "type": "string",
        });
        properties["kind"] = json!({
            "description": "Kind of this object.",
            "type": "string",
        });
        properties["metadata"] = json!({"type": "object"});
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{AutoscalingListener, AutoscalingRunnerSet};

    #[test]
    fn every_fact_is_about_a_property_that_exists() {
        let (_, definitions) = derived::<AutoscalingListener>();
        let has = |kind: &str, property: &str| {
            let name = full_name(kind);
            assert!(
                definitions[&name]["properties"].get(property).is_some(),
                "{name} has no {property}"
            );
        };
        for (kind, properties) in ATOMIC_LISTS {
            properties.iter().for_each(|property| has(kind, property));
        }
        for (kind, property) in SET_LISTS.iter().chain(ATOMIC_MAPS) {
            has(kind, property);
        }
        for (kind, property, keys) in MAP_LISTS {
            has(kind, property);
            assert!(!keys.is_empty());
        }
        for (kind, property, value) in DEFAULTS {
            has(kind, property);
            serde_json::from_str::<Value>(value).unwrap();
        }
        for kind in ATOMIC_TYPES {
            assert!(definitions.contains_key(&full_name(kind)), "{kind}");
        }
        for property in TEMPLATE_METADATA {
            has("ObjectMeta", property);
        }
        for name in [QUANTITY, INT_OR_STRING].into_iter().chain(UNDESCRIBED) {
            assert!(definitions.contains_key(name), "{name}");
        }
    }

    #[test]
    fn every_list_of_a_pod_says_how_it_is_merged() {
        let (_, mut definitions) = derived::<AutoscalingListener>();
        complete(&mut definitions);
        for (kind, schema) in &definitions {
            if !kind.starts_with("io.k8s.api.core.v1.") {
                continue;
            }
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                if property["type"] == "array" {
                    assert!(
                        property.get("x-kubernetes-list-type").is_some(),
                        "{kind}.{name} has no list type; add it to schema_facts"
                    );
                }
            }
        }
    }

    #[test]
    fn a_schema_has_nothing_that_a_structural_schema_may_not_have() {
        let schema = structural::<AutoscalingRunnerSet>("A pool.");
        let text = schema.to_string();
        for refused in [
            "$ref",
            "nullable",
            "\"null\"",
            "\"title\"",
            "\"const\"",
            DEFAULT,
        ] {
            assert!(!text.contains(refused), "{refused}");
        }
    }

    #[test]
    fn phases_are_free_strings() {
        let schema = structural::<AutoscalingRunnerSet>("A pool.");
        assert_eq!(
            schema["properties"]["status"]["properties"]["phase"],
            json!({"type": "string", "description": "Where the scale set stands as a whole."})
        );
    }

    #[test]
    fn a_default_of_serde_is_not_a_default_of_the_server() {
        let schema = structural::<AutoscalingRunnerSet>("A pool.");
        let template = &schema["properties"]["spec"]["properties"]["template"];
        assert_eq!(template["type"], "object");
        assert_eq!(template.get("default"), None);
    }
}
