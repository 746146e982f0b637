//! What the API consists of: the documents below `/api` and `/apis`, in their old form and in
//! the aggregated one that current clients ask for.
//!
//! Pure functions of the registry.

use std::cmp::Reverse;

use serde_json::{Map, Value, json};

use super::kinds::{Registry, ResourceType};

/// The media type of aggregated discovery.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Whether an `Accept` header asks for aggregated discovery in the version that is spoken.
#[must_use]
pub fn wants_aggregated(accept: &str) -> bool {
    accept.split(',').any(|media_type| {
        let mut parameters = media_type.split(';').map(str::trim);
        parameters.next() == Some("application/json")
            && parameters
                .clone()
                .any(|one| one == "as=APIGroupDiscoveryList")
            && parameters.clone().any(|one| one == "v=v2")
    })
}

/// The document at a path below `/api` or `/apis`; `None` when there is nothing there.
#[must_use]
pub fn document(path: &str, registry: &Registry, aggregated: bool) -> Option<Value> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [] => Some(json!({"paths": paths(registry)})),
        ["api"] if aggregated => Some(aggregate(registry, |group| group.is_empty())),
        ["apis"] if aggregated => Some(aggregate(registry, |group| !group.is_empty())),
        ["api"] => Some(json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        })),
        ["apis"] => {
            let groups = groups(registry)
                .into_iter()
                .filter(|group| !group.is_empty());
            let groups: Vec<Value> = groups
                .map(|group| group_document(&group, registry))
                .collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["api", version] => resource_list("", version, registry),
        ["apis", group] if !versions(group, registry).is_empty() => {
            let mut document = group_document(group, registry);
            document["kind"] = json!("APIGroup");
            document["apiVersion"] = json!("v1");
            Some(document)
        }
        ["apis", group, version] => resource_list(group, version, registry),
        _ => None,
    }
}

/// Where there is something to read.
fn paths(registry: &Registry) -> Vec<String> {
    let mut paths = vec!["/api".to_owned(), "/api/v1".into(), "/apis".into()];
    for group in groups(registry).iter().filter(|group| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        let versions = versions(group, registry);
        paths.extend(
            versions
                .iter()
                .map(|version| format!("/apis/{group}/{version}")),
        );
    }
    for path in [
        "/healthz",
        "/livez",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ] {
        paths.push(path.into());
    }
    paths
}

/// The groups, the core one (empty) first, then by name.
fn groups(registry: &Registry) -> Vec<String> {
    let mut groups: Vec<String> = registry.iter().map(|rt| rt.group.clone()).collect();
    groups.sort();
    groups.dedup();
    groups
}

/// A group's versions, the preferred one first.
fn versions(group: &str, registry: &Registry) -> Vec<String> {
    let of_group = registry.iter().filter(|rt| rt.group == group);
    let mut versions: Vec<String> = of_group.map(|rt| rt.version.clone()).collect();
    versions.sort_by_key(|version| (Reverse(maturity(version)), version.clone()));
    versions.dedup();
    versions
}

/// Orders versions as Kubernetes does: `v2`, `v1`, `v1beta2`, `v1alpha1`, then any other.
fn maturity(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let digits = |text: &str| {
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len())
    };
    let (major, rest) = rest.split_at(digits(rest));
    let major = major.parse().ok()?;
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (stage, minor) = match rest.strip_prefix("beta") {
        Some(minor) => (1, minor),
        None => (0, rest.strip_prefix("alpha")?),
    };
    Some((stage, major, minor.parse().ok()?))
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn group_document(group: &str, registry: &Registry) -> Value {
    let versions: Vec<Value> = versions(group, registry)
        .iter()
        .map(|version| json!({"groupVersion": group_version(group, version), "version": version}))
        .collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

fn resources<'r>(
    group: &'r str,
    version: &'r str,
    registry: &'r Registry,
) -> impl Iterator<Item = &'r ResourceType> {
    let all = registry.iter().map(AsRef::as_ref);
    all.filter(move |rt: &&ResourceType| rt.group == group && rt.version == version)
}

/// What can be done with a resource.
fn verbs(resource: &ResourceType) -> &'static [&'static str] {
    if resource.is_virtual {
        &["create"]
    } else if resource.is("", "namespaces") {
        &[
            "create", "delete", "get", "list", "patch", "update", "watch",
        ]
    } else {
        &[
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ]
    }
}

/// The group, version and kind that a subresource speaks, and what can be done with it.
fn subresource(
    resource: &ResourceType,
    name: &str,
) -> (String, String, String, &'static [&'static str]) {
    let kind = |group: &str, version: &str, kind: &str| {
        (group.to_owned(), version.to_owned(), kind.to_owned())
    };
    let own = || kind(&resource.group, &resource.version, &resource.kind);
    let (kind, verbs): (_, &[&str]) = match name {
        "binding" => (kind("", "v1", "Binding"), &["create"]),
        "eviction" => (kind("policy", "v1", "Eviction"), &["create"]),
        "finalize" => (own(), &["update"]),
        "log" => (own(), &["get"]),
        "scale" => (
            kind("autoscaling", "v1", "Scale"),
            &["get", "patch", "update"],
        ),
        _ => (own(), &["get", "patch", "update"]),
    };
    (kind.0, kind.1, kind.2, verbs)
}

fn resource_list(group: &str, version: &str, registry: &Registry) -> Option<Value> {
    let mut list = Vec::new();
    for resource in resources(group, version, registry) {
        let mut entry = Map::new();
        entry.insert("name".into(), json!(resource.plural));
        entry.insert("singularName".into(), json!(resource.singular));
        entry.insert("namespaced".into(), json!(resource.namespaced));
        entry.insert("kind".into(), json!(resource.kind));
        entry.insert("verbs".into(), json!(verbs(resource)));
        add_names(&mut entry, resource);
        list.push(Value::Object(entry));
        for name in &resource.subresources {
            let (sub_group, sub_version, kind, verbs) = subresource(resource, name);
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind,
                "verbs": verbs,
            });
            if (sub_group.as_str(), sub_version.as_str()) != (group, version) {
                entry["group"] = json!(sub_group);
                entry["version"] = json!(sub_version);
            }
            list.push(entry);
        }
    }
    if list.is_empty() {
        return None;
    }
    Some(json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version(group, version),
        "resources": list,
    }))
}

fn add_names(entry: &mut Map<String, Value>, resource: &ResourceType) {
    for (field, names) in [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ] {
        if !names.is_empty() {
            entry.insert(field.into(), json!(names));
        }
    }
}

fn aggregate(registry: &Registry, wanted: impl Fn(&str) -> bool) -> Value {
    let groups = groups(registry).into_iter().filter(|group| wanted(group));
    let items: Vec<Value> = groups
        .map(|group| {
            let versions: Vec<Value> = versions(&group, registry)
                .iter()
                .map(|version| {
                    let resources: Vec<Value> = resources(&group, version, registry)
                        .map(aggregate_resource)
                        .collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            json!({"metadata": {"name": group}, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn aggregate_resource(resource: &ResourceType) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut entry = Map::new();
    entry.insert("resource".into(), json!(resource.plural));
    entry.insert(
        "responseKind".into(),
        kind(&resource.group, &resource.version, &resource.kind),
    );
    let scope = if resource.namespaced {
        "Namespaced"
    } else {
        "Cluster"
    };
    entry.insert("scope".into(), json!(scope));
    entry.insert("singularResource".into(), json!(resource.singular));
    entry.insert("verbs".into(), json!(verbs(resource)));
    add_names(&mut entry, resource);
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|name| {
            let (group, version, of_kind, verbs) = subresource(resource, name);
            json!({
                "subresource": name,
                "responseKind": kind(&group, &version, &of_kind),
                "verbs": verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry.insert("subresources".into(), Value::Array(subresources));
    }
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn registry() -> Registry {
        let mut registry = Registry::builtin();
        registry.install(&Arc::new(json!({
            "metadata": {"name": "gadgets.test.example"},
            "spec": {
                "group": "test.example",
                "scope": "Namespaced",
                "names": {
                    "plural": "gadgets", "singular": "gadget", "kind": "Gadget",
                    "shortNames": ["gd"], "categories": ["tools"],
                },
                "versions": [
                    {"name": "v1beta1", "served": true},
                    {"name": "v1", "served": true, "subresources": {"status": {}}},
                ],
            },
        })));
        registry
    }

    #[test]
    fn groups_prefer_their_most_mature_version() {
        let group = document("/apis/test.example", &registry(), false).unwrap();
        assert_eq!(group["preferredVersion"]["version"], "v1");
        assert_eq!(group["versions"][1]["groupVersion"], "test.example/v1beta1");
        let mut versions = ["v1alpha1", "odd", "v10", "v2beta1", "v2"];
        versions.sort_by_key(|version| Reverse(maturity(version)));
        assert_eq!(versions, ["v10", "v2", "v2beta1", "v1alpha1", "odd"]);
    }

    #[test]
    fn resources_name_their_subresources_and_short_names() {
        let list = document("/apis/test.example/v1", &registry(), false).unwrap();
        assert_eq!(list["resources"][0]["shortNames"], json!(["gd"]));
        assert_eq!(list["resources"][1]["name"], "gadgets/status");
        let core = document("/api/v1", &registry(), false).unwrap();
        let eviction = core["resources"]
            .as_array()
            .unwrap()
            .iter()
            .find(|resource| resource["name"] == "pods/eviction")
            .unwrap();
        assert_eq!(eviction["group"], "policy");
    }

    #[test]
    fn aggregated_discovery_says_the_same_in_one_document() {
        assert!(wants_aggregated(
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
        ));
        assert!(!wants_aggregated("application/json"));
        let apis = document("/apis", &registry(), true).unwrap();
        let items = apis["items"].as_array().unwrap();
        let group = items
            .iter()
            .find(|item| item["metadata"]["name"] == "test.example")
            .unwrap();
        assert_eq!(
            group["versions"][0]["resources"][0]["subresources"][0]["subresource"],
            "status"
        );
        let core = document("/api", &registry(), true).unwrap();
        assert_eq!(core["items"][0]["metadata"]["name"], "");
    }

    #[test]
    fn nothing_is_found_where_nothing_is() {
        for path in ["/apis/nope", "/apis/test.example/v7", "/api/v2", "/other"] {
            assert!(document(path, &registry(), false).is_none(), "{path}");
        }
    }
}
