//! The resources that are served: built-in ones, and those that a CustomResourceDefinition
//! adds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::object;
use super::schema::Schema;
use super::status::Resource;

/// One resource in one version, and what is special about it.
#[derive(Clone, Debug)]
pub struct ResourceType {
    /// API group; empty for the core one.
    pub group: String,
    /// API version, without its group.
    pub version: String,
    /// `kind` of its objects.
    pub kind: String,
    /// Its name in paths.
    pub plural: String,
    /// Its name for one object.
    pub singular: String,
    /// `kind` of its lists.
    pub list_kind: String,
    /// Short names that kubectl takes.
    pub short_names: Vec<String>,
    /// Groups of resources, as `all`, that kubectl takes.
    pub categories: Vec<String>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Subresources such as `status`.
    pub subresources: BTreeSet<String>,
    /// The whole CustomResourceDefinition, for a resource that comes from one.
    pub crd: Option<Arc<Value>>,
    /// Where its objects are kept. Versions of one resource, and resources that are two
    /// faces of one, share a shelf.
    pub(super) shelf: Arc<str>,
    /// Whether it only answers a POST and keeps nothing.
    pub(super) is_virtual: bool,
    /// What its objects may hold.
    pub(super) schema: Schema,
}

impl ResourceType {
    /// `apiVersion` of its objects.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Group and plural name, for errors.
    #[must_use]
    pub fn resource(&self) -> Resource<'_> {
        Resource {
            group: &self.group,
            plural: &self.plural,
        }
    }

    /// Whether it is the built-in resource of that group and plural name.
    #[must_use]
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// Whether it comes from a CustomResourceDefinition.
    #[must_use]
    pub fn is_custom(&self) -> bool {
        self.crd.is_some()
    }

    /// Whether its status is written apart from the rest.
    #[must_use]
    pub fn has_status(&self) -> bool {
        self.subresources.contains("status")
    }

    /// Whether `metadata.generation` counts its changes.
    #[must_use]
    pub fn has_generation(&self) -> bool {
        self.is_custom()
            || matches!(
                self.plural.as_str(),
                "pods" | "deployments" | "jobs" | "customresourcedefinitions"
            )
    }

    /// Whether a PUT may leave `metadata.resourceVersion` out.
    #[must_use]
    pub fn allows_unconditional_update(&self) -> bool {
        !self.is_custom() && !matches!(self.plural.as_str(), "leases" | "customresourcedefinitions")
    }

    /// Whether a PUT of an object that is not there creates it.
    #[must_use]
    pub fn creates_on_update(&self) -> bool {
        matches!(
            self.plural.as_str(),
            "roles" | "rolebindings" | "clusterroles" | "clusterrolebindings" | "leases" | "events"
        )
    }

    /// Whether DELETE answers with the object even when it is gone.
    #[must_use]
    pub fn returns_deleted(&self) -> bool {
        !self.is_custom()
            && matches!(
                self.plural.as_str(),
                "pods"
                    | "serviceaccounts"
                    | "persistentvolumeclaims"
                    | "resourcequotas"
                    | "services"
            )
    }

    /// Whether `status` cannot be set on creation, since there is a subresource for it. A
    /// node comes with its status.
    #[must_use]
    pub fn drops_status_on_create(&self) -> bool {
        self.has_status() && !self.is("", "nodes")
    }
}

/// Name of the resource with its group, as CRDs are named.
#[must_use]
pub fn shelf_name(group: &str, plural: &str) -> String {
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}

/// All resources, by group, version and plural name.
#[derive(Clone, Debug)]
pub struct Registry(BTreeMap<(String, String, String), Arc<ResourceType>>);

impl Registry {
    /// The built-in resources.
    #[must_use]
    pub fn builtin() -> Self {
        let mut registry = Self(BTreeMap::new());
        for row in BUILTIN {
            registry.insert(row.resource_type());
        }
        registry
    }

    /// The resource of that group, version and plural name.
    #[must_use]
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceType>> {
        self.0
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// All resources, by group, version and plural name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceType>> {
        self.0.values()
    }

    /// The resource that a kind names.
    #[must_use]
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<ResourceType>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let mut all = self.iter();
        all.find(|rt| rt.group == group && rt.version == version && rt.kind == kind)
    }

    /// The resource whose objects are kept on that shelf, in the version they are kept in.
    #[must_use]
    pub fn by_shelf(&self, shelf: &str) -> Option<&Arc<ResourceType>> {
        let mut all = self.iter();
        all.find(|rt| *rt.shelf == *shelf && shelf_name(&rt.group, &rt.plural) == shelf)
    }

    /// Serves what a CustomResourceDefinition defines, in place of what it did before.
    pub fn install(&mut self, crd: &Arc<Value>) {
        self.uninstall(crd);
        for version in object::list(&crd["spec"]["versions"]) {
            if version["served"] == true {
                self.insert(from_crd(crd, version));
            }
        }
    }

    /// No longer serves what a CustomResourceDefinition defines.
    pub fn uninstall(&mut self, crd: &Value) {
        let name = object::name(crd);
        self.0.retain(|_, rt| !rt.is_custom() || *rt.shelf != *name);
    }

    fn insert(&mut self, resource: ResourceType) {
        let key = (
            resource.group.clone(),
            resource.version.clone(),
            resource.plural.clone(),
        );
        self.0.insert(key, Arc::new(resource));
    }
}

fn from_crd(crd: &Arc<Value>, version: &Value) -> ResourceType {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| object::strings(value).map(str::to_owned).collect();
    let names = &crd["spec"]["names"];
    let kind = text(&names["kind"]);
    let mut subresources = BTreeSet::new();
    for name in ["status", "scale"] {
        if version["subresources"][name].is_object() {
            subresources.insert(name.to_owned());
        }
    }
    ResourceType {
        group: text(&crd["spec"]["group"]),
        version: text(&version["name"]),
        plural: text(&names["plural"]),
        singular: match names["singular"].as_str() {
            Some(singular) => singular.to_owned(),
            None => kind.to_lowercase(),
        },
        list_kind: match names["listKind"].as_str() {
            Some(list_kind) => list_kind.to_owned(),
            None => format!("{kind}List"),
        },
        kind,
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: crd["spec"]["scope"] != "Cluster",
        subresources,
        crd: Some(Arc::clone(crd)),
        shelf: object::name(crd).into(),
        is_virtual: false,
        schema: Schema::of_crd(crd, version["name"].as_str().unwrap_or_default())
            .unwrap_or_else(Schema::anything),
    }
}

/// A row of the table of built-in resources.
struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    subresources: &'static [&'static str],
    shelf: Option<&'static str>,
    is_virtual: bool,
}

impl Row {
    const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            kind,
            plural,
            short_names: &[],
            categories: &[],
            namespaced: true,
            subresources: &[],
            shelf: None,
            is_virtual: false,
        }
    }

    const fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    const fn all(mut self) -> Self {
        self.categories = &["all"];
        self
    }

    const fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }

    const fn sub(mut self, names: &'static [&'static str]) -> Self {
        self.subresources = names;
        self
    }

    const fn on_shelf(mut self, shelf: &'static str) -> Self {
        self.shelf = Some(shelf);
        self
    }

    const fn answer_only(mut self) -> Self {
        self.is_virtual = true;
        self
    }

    fn resource_type(&self) -> ResourceType {
        let api_version = match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        };
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        ResourceType {
            group: self.group.into(),
            version: self.version.into(),
            kind: self.kind.into(),
            plural: self.plural.into(),
            singular: self.kind.to_lowercase(),
            list_kind: format!("{}List", self.kind),
            short_names: owned(self.short_names),
            categories: owned(self.categories),
            namespaced: self.namespaced,
            subresources: self.subresources.iter().map(|&s| s.to_owned()).collect(),
            crd: None,
            shelf: match self.shelf {
                Some(shelf) => shelf.into(),
                None => shelf_name(self.group, self.plural).into(),
            },
            is_virtual: self.is_virtual,
            schema: Schema::builtin(&api_version, self.kind).unwrap_or_else(Schema::anything),
        }
    }
}

const APPS: &str = "apps";
const AUTHORIZATION: &str = "authorization.k8s.io";
const BATCH: &str = "batch";
const COORDINATION: &str = "coordination.k8s.io";
const EVENTS: &str = "events.k8s.io";
const EXTENSIONS: &str = "apiextensions.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

const BUILTIN: &[Row] = &[
    Row::new("", "v1", "Namespace", "namespaces")
        .short(&["ns"])
        .cluster()
        .sub(&["finalize", "status"]),
    Row::new("", "v1", "Node", "nodes")
        .short(&["no"])
        .cluster()
        .sub(&["status"]),
    Row::new("", "v1", "Pod", "pods")
        .short(&["po"])
        .all()
        .sub(&["binding", "eviction", "log", "status"]),
    Row::new("", "v1", "Secret", "secrets"),
    Row::new("", "v1", "ConfigMap", "configmaps").short(&["cm"]),
    Row::new("", "v1", "ServiceAccount", "serviceaccounts").short(&["sa"]),
    Row::new("", "v1", "Event", "events").short(&["ev"]),
    Row::new(EVENTS, "v1", "Event", "events")
        .short(&["ev"])
        .on_shelf("events"),
    Row::new("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
        .short(&["pvc"])
        .sub(&["status"]),
    Row::new("", "v1", "Service", "services")
        .short(&["svc"])
        .all()
        .sub(&["status"]),
    Row::new("", "v1", "ResourceQuota", "resourcequotas")
        .short(&["quota"])
        .sub(&["status"]),
    Row::new(RBAC, "v1", "Role", "roles"),
    Row::new(RBAC, "v1", "RoleBinding", "rolebindings"),
    Row::new(RBAC, "v1", "ClusterRole", "clusterroles").cluster(),
    Row::new(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings").cluster(),
    Row::new(COORDINATION, "v1", "Lease", "leases"),
    Row::new(APPS, "v1", "Deployment", "deployments")
        .short(&["deploy"])
        .all()
        .sub(&["status"]),
    Row::new(BATCH, "v1", "Job", "jobs").all().sub(&["status"]),
    Row::new(
        EXTENSIONS,
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    )
    .short(&["crd", "crds"])
    .cluster()
    .sub(&["status"]),
    Row::new(
        AUTHORIZATION,
        "v1",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
    )
    .cluster()
    .answer_only(),
    Row::new(
        AUTHORIZATION,
        "v1",
        "SubjectAccessReview",
        "subjectaccessreviews",
    )
    .cluster()
    .answer_only(),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_adds_each_served_version_and_takes_it_away_again() {
        let crd = Arc::new(json!({
            "metadata": { "name": "gadgets.test.example" },
            "spec": {
                "group": "test.example",
                "scope": "Cluster",
                "names": { "plural": "gadgets", "kind": "Gadget", "shortNames": ["gd"] },
                "versions": [
                    { "name": "v1", "served": true, "storage": true, "subresources": { "status": {} } },
                    { "name": "v0", "served": false },
                ],
            },
        }));
        let mut registry = Registry::builtin();
        registry.install(&crd);
        let gadget = registry.get("test.example", "v1", "gadgets").unwrap();
        assert_eq!(gadget.singular, "gadget");
        assert_eq!(gadget.list_kind, "GadgetList");
        assert!(gadget.has_status() && !gadget.namespaced);
        assert!(registry.get("test.example", "v0", "gadgets").is_none());
        registry.uninstall(&crd);
        assert!(registry.get("test.example", "v1", "gadgets").is_none());
        assert!(registry.get("", "v1", "pods").is_some());
    }

    #[test]
    fn both_faces_of_events_share_a_shelf() {
        let registry = Registry::builtin();
        let core = registry.get("", "v1", "events").unwrap();
        let new = registry.get("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(core.shelf, new.shelf);
        assert_eq!(registry.by_shelf("events").unwrap().group, "");
    }
}
