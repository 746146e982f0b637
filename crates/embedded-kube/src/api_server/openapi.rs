//! The schemas of everything that is served, as OpenAPI documents: `/openapi/v3` with one
//! document for each group and version, which current kubectl reads for `explain`, for
//! three-way merges and to learn whether the server validates fields; and `/openapi/v2`.
//!
//! Pure functions of the registry.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

use super::kinds::{Registry, ResourceType};
use super::schema::Definitions;

/// Whether an `Accept` header allows JSON. kubectl asks for some documents as protobuf only,
/// which is not spoken here; told so, it goes on without them.
#[must_use]
pub fn accepts_json(accept: &str) -> bool {
    let mut media_types = accept
        .split(',')
        .map(|one| one.split(';').next().unwrap_or(one).trim());
    media_types.any(|one| matches!(one, "" | "*/*" | "application/*" | "application/json"))
}

/// The document at a path below `/openapi`; `None` when there is nothing there.
#[must_use]
pub fn document(path: &str, registry: &Registry) -> Option<Value> {
    let path = path.trim_matches('/');
    match path.strip_prefix("openapi/")? {
        "v2" => Some(swagger(registry)),
        "v3" => Some(index(registry)),
        rest => group_version(rest.strip_prefix("v3/")?, registry),
    }
}

/// Where a group and version is served: `api/v1`, `apis/apps/v1`.
fn prefix(resource: &ResourceType) -> String {
    if resource.group.is_empty() {
        format!("api/{}", resource.version)
    } else {
        format!("apis/{}/{}", resource.group, resource.version)
    }
}

fn index(registry: &Registry) -> Value {
    let mut states: BTreeMap<String, DefaultHasher> = BTreeMap::new();
    for resource in registry.iter() {
        let state = states.entry(prefix(resource)).or_default();
        resource.plural.hash(state);
        // each write of a CustomResourceDefinition gives it another version
        if let Some(metadata) = resource.crd.as_ref().map(|crd| &crd["metadata"]) {
            for key in ["uid", "resourceVersion"] {
                metadata[key].as_str().hash(state);
            }
        }
    }
    let paths: Map<String, Value> = states
        .into_iter()
        .map(|(prefix, state)| {
            // clients keep the document until there is another hash
            let address = format!("/openapi/v3/{prefix}?hash={:016X}", state.finish());
            (prefix, json!({"serverRelativeURL": address}))
        })
        .collect();
    json!({"paths": paths})
}

fn group_version(wanted: &str, registry: &Registry) -> Option<Value> {
    let mut paths = Map::new();
    let mut schemas = Schemas::new(Dialect::V3);
    for resource in registry.iter().filter(|rt| prefix(rt) == wanted) {
        schemas.add_resource(resource);
        add_paths(&mut paths, resource, Dialect::V3);
    }
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "components": {"schemas": schemas.finish()},
    }))
}

fn swagger(registry: &Registry) -> Value {
    let mut paths = Map::new();
    let mut schemas = Schemas::new(Dialect::V2);
    for resource in registry.iter() {
        schemas.add_resource(resource);
        add_paths(&mut paths, resource, Dialect::V2);
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "definitions": schemas.finish(),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}

impl Dialect {
    fn reference(self, name: &str) -> Value {
        match self {
            Self::V2 => json!({"$ref": format!("#/definitions/{name}")}),
            Self::V3 => json!({"$ref": format!("#/components/schemas/{name}")}),
        }
    }
}

/// The media types in which a resource takes patches.
fn patch_types(resource: &ResourceType) -> Vec<&'static str> {
    let mut types = vec![
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
    ];
    if !resource.is_custom() {
        types.push("application/strategic-merge-patch+json");
    }
    types
}

fn add_paths(paths: &mut Map<String, Value>, resource: &ResourceType, dialect: Dialect) {
    let scope = if resource.namespaced {
        "namespaces/{namespace}/"
    } else {
        ""
    };
    let collection = format!("/{}/{scope}{}", prefix(resource), resource.plural);
    let operation =
        |action: &str, parameters: &[&str]| operation(resource, dialect, action, parameters);
    let writes = ["dryRun", "fieldManager", "fieldValidation"];
    if resource.is_virtual {
        paths.insert(collection, json!({"post": operation("post", &writes)}));
        return;
    }
    let listing = ["fieldSelector", "labelSelector", "limit", "watch"];
    let mut patch = operation(
        "patch",
        &["dryRun", "fieldManager", "fieldValidation", "force"],
    );
    match dialect {
        Dialect::V2 => patch["consumes"] = json!(patch_types(resource)),
        Dialect::V3 => {
            let content: Map<String, Value> = patch_types(resource)
                .into_iter()
                .map(|media_type| (media_type.to_owned(), json!({"schema": {"type": "object"}})))
                .collect();
            patch["requestBody"] = json!({"content": content, "required": true});
        }
    }
    paths.insert(
        format!("{collection}/{{name}}"),
        json!({
            "get": operation("get", &[]),
            "put": operation("put", &writes),
            "patch": patch,
            "delete": operation("delete", &["dryRun", "gracePeriodSeconds", "propagationPolicy"]),
        }),
    );
    paths.insert(
        collection,
        json!({
            "get": operation("list", &listing),
            "post": operation("post", &writes),
        }),
    );
}

fn operation(
    resource: &ResourceType,
    dialect: Dialect,
    action: &str,
    parameters: &[&str],
) -> Value {
    let parameters: Vec<Value> = parameters
        .iter()
        .map(|name| {
            let type_ = match *name {
                "force" | "watch" => "boolean",
                "gracePeriodSeconds" | "limit" => "integer",
                _ => "string",
            };
            let mut parameter = json!({"name": name, "in": "query", "uniqueItems": true});
            match dialect {
                Dialect::V2 => parameter["type"] = json!(type_),
                Dialect::V3 => parameter["schema"] = json!({"type": type_, "uniqueItems": true}),
            }
            parameter
        })
        .collect();
    let schema = dialect.reference(&type_name(resource));
    let answer = match dialect {
        Dialect::V2 => json!({"description": "OK", "schema": schema}),
        Dialect::V3 => json!({
            "description": "OK",
            "content": {"application/json": {"schema": schema}},
        }),
    };
    json!({
        "parameters": parameters,
        "responses": {"200": answer},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk(resource),
    })
}

fn gvk(resource: &ResourceType) -> Value {
    json!({
        "group": resource.group,
        "version": resource.version,
        "kind": resource.kind,
    })
}

/// The name of a resource's type: Kubernetes' own for built-in kinds, and for custom ones the
/// group's domain turned round, as the real server makes it.
fn type_name(resource: &ResourceType) -> String {
    let builtin = Definitions::builtin().name_of(&resource.api_version(), &resource.kind);
    if let Some(name) = builtin.filter(|_| !resource.is_custom()) {
        return name.to_owned();
    }
    let mut parts: Vec<&str> = resource.group.split('.').rev().collect();
    parts.extend([resource.version.as_str(), resource.kind.as_str()]);
    parts.join(".")
}

/// The schemas of a document, and of all types that they refer to.
struct Schemas {
    dialect: Dialect,
    done: Map<String, Value>,
}

impl Schemas {
    fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            done: Map::new(),
        }
    }

    fn add_resource(&mut self, resource: &ResourceType) {
        if !resource.is_custom() {
            self.add_builtin(&type_name(resource));
            return;
        }
        let mut schema = resource.schema.document().clone();
        schema["x-kubernetes-group-version-kind"] = json!([gvk(resource)]);
        for (field, description) in [
            (
                "apiVersion",
                "The version of the schema that this object has.",
            ),
            ("kind", "The kind of this object."),
            ("metadata", "Standard object's metadata."),
        ] {
            if let Some(Value::Object(property)) =
                schema.pointer_mut(&format!("/properties/{field}"))
            {
                property
                    .entry("description")
                    .or_insert_with(|| json!(description));
            }
        }
        self.translate(&mut schema);
        self.done.insert(type_name(resource), schema);
    }

    fn add_builtin(&mut self, name: &str) {
        if self.done.contains_key(name) {
            return;
        }
        let Some(schema) = Definitions::builtin().types().get(name) else {
            return;
        };
        // reserved first: types refer to themselves
        self.done.insert(name.to_owned(), Value::Null);
        let mut schema = schema.clone();
        self.translate(&mut schema);
        self.done.insert(name.to_owned(), schema);
    }

    /// Writes a schema in the document's dialect and adds what it refers to.
    fn translate(&mut self, schema: &mut Value) {
        let fields = match schema {
            Value::Object(fields) => fields,
            Value::Array(items) => {
                for item in items {
                    self.translate(item);
                }
                return;
            }
            _ => return,
        };
        let target = fields
            .get("$ref")
            .and_then(Value::as_str)
            .map(str::to_owned);
        if let Some(name) = target
            .as_deref()
            .and_then(|target| target.rsplit('/').next())
        {
            self.add_builtin(name);
            let reference = self.dialect.reference(name);
            if self.dialect == Dialect::V3 && fields.len() > 1 {
                // version 3 ignores what stands beside a reference
                fields.remove("$ref");
                fields.insert("allOf".into(), json!([reference]));
            } else {
                fields.insert("$ref".into(), reference["$ref"].clone());
            }
        }
        if fields.get("x-kubernetes-int-or-string") == Some(&json!(true))
            && self.dialect == Dialect::V2
        {
            fields.insert("type".into(), json!("string"));
            fields.insert("format".into(), json!("int-or-string"));
        }
        for (name, value) in fields.iter_mut() {
            match name.as_str() {
                // a map from names to schemas, whose names may be keywords
                "properties" => {
                    for property in value.as_object_mut().into_iter().flat_map(Map::values_mut) {
                        self.translate(property);
                    }
                }
                "items" | "additionalProperties" | "allOf" | "anyOf" | "oneOf" | "not" => {
                    self.translate(value);
                }
                _ => {}
            }
        }
    }

    fn finish(self) -> Value {
        Value::Object(self.done)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::schema::tests::gadget_crd;
    use super::*;

    fn registry() -> Registry {
        let mut registry = Registry::builtin();
        registry.install(&Arc::new(gadget_crd()));
        registry
    }

    /// Every reference of a document points to something in it.
    fn assert_closed(document: &Value, value: &Value) {
        match value {
            Value::Object(fields) => {
                if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
                    let pointer = target.trim_start_matches('#');
                    assert!(
                        document.pointer(pointer).is_some_and(Value::is_object),
                        "{target}"
                    );
                }
                fields
                    .values()
                    .for_each(|value| assert_closed(document, value));
            }
            Value::Array(items) => items
                .iter()
                .for_each(|value| assert_closed(document, value)),
            _ => {}
        }
    }

    #[test]
    fn every_group_version_has_a_document_that_is_complete() {
        let registry = registry();
        let index = document("/openapi/v3", &registry).unwrap();
        let paths = index["paths"].as_object().unwrap();
        assert!(paths.contains_key("api/v1") && paths.contains_key("apis/test.example/v1"));
        for entry in paths.values() {
            let address = entry["serverRelativeURL"].as_str().unwrap();
            let (address, state) = address.split_once('?').unwrap();
            assert!(state.starts_with("hash="), "{state}");
            let one = document(address, &registry).unwrap();
            assert_closed(&one, &one);
        }
        let swagger = document("/openapi/v2", &registry).unwrap();
        assert_closed(&swagger, &swagger);
        assert!(document("/openapi/v3/apis/nope/v1", &registry).is_none());
    }

    #[test]
    fn patches_say_what_kubectl_looks_for() {
        let pods = document("/openapi/v3/api/v1", &registry()).unwrap();
        let patch = &pods["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "Pod");
        let parameters = patch["parameters"].as_array().unwrap();
        assert!(
            parameters
                .iter()
                .any(|one| one["name"] == "fieldValidation")
        );
        assert!(
            patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object()
        );
        let spec = &pods["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"];
        assert_eq!(
            spec["properties"]["containers"]["x-kubernetes-patch-merge-key"],
            "name"
        );
    }

    #[test]
    fn custom_resources_are_named_as_the_server_names_them() {
        let gadgets = document("/openapi/v3/apis/test.example/v1", &registry()).unwrap();
        let schema = &gadgets["components"]["schemas"]["example.test.v1.Gadget"];
        assert_eq!(
            schema["x-kubernetes-group-version-kind"][0]["kind"],
            "Gadget"
        );
        assert_eq!(
            schema["properties"]["spec"]["properties"]["replicas"]["minimum"],
            0
        );
        let patch = &gadgets["paths"]["/apis/test.example/v1/namespaces/{namespace}/gadgets/{name}"]
            ["patch"];
        assert!(
            patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_null()
        );
    }
}
