//! The schemas of built-in kinds, generated from the types of `k8s-openapi` and completed
//! with what these lack: how lists and maps merge. The facts are those of Kubernetes' own
//! OpenAPI document, as far as kinds of [`Definitions::builtin`] need them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::api::{
    apps::v1 as apps, authorization::v1 as authorization, batch::v1 as batch,
    coordination::v1 as coordination, core::v1 as core, events::v1 as events, policy::v1 as policy,
    rbac::v1 as rbac,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

/// The definition of `metadata`.
pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const REF_PREFIX: &str = "#/definitions/";

macro_rules! core_type {
    ($name:literal) => {
        concat!("io.k8s.api.core.v1.", $name)
    };
}

/// Every built-in type by its name in Kubernetes' OpenAPI document.
#[derive(Debug)]
pub struct Definitions {
    types: Map<String, Value>,
    kinds: BTreeMap<(String, String), String>,
}

static BUILTIN: LazyLock<Definitions> = LazyLock::new(Definitions::generate);

impl Definitions {
    /// All of them, generated at first use.
    #[must_use]
    pub fn builtin() -> &'static Self {
        &BUILTIN
    }

    /// The types by name. References in them start with `#/definitions/`.
    #[must_use]
    pub fn types(&self) -> &Map<String, Value> {
        &self.types
    }

    /// The name of a kind's type, as `Pod` of `v1` is `io.k8s.api.core.v1.Pod`.
    #[must_use]
    pub fn name_of(&self, api_version: &str, kind: &str) -> Option<&str> {
        let key = (api_version.to_owned(), kind.to_owned());
        self.kinds.get(&key).map(String::as_str)
    }

    fn generate() -> Self {
        let mut builder = Builder::new();
        builder.add::<core::Namespace>();
        builder.add::<core::Node>();
        builder.add::<core::Pod>();
        builder.add::<core::Secret>();
        builder.add::<core::ConfigMap>();
        builder.add::<core::ServiceAccount>();
        builder.add::<core::Event>();
        builder.add::<core::PersistentVolume>();
        builder.add::<core::PersistentVolumeClaim>();
        builder.add::<core::Service>();
        builder.add::<core::ResourceQuota>();
        builder.add::<core::LimitRange>();
        builder.add::<core::Binding>();
        builder.add::<events::Event>();
        builder.add::<apps::Deployment>();
        builder.add::<apps::ReplicaSet>();
        builder.add::<apps::StatefulSet>();
        builder.add::<apps::DaemonSet>();
        builder.add::<batch::Job>();
        builder.add::<batch::CronJob>();
        builder.add::<coordination::Lease>();
        builder.add::<policy::Eviction>();
        builder.add::<policy::PodDisruptionBudget>();
        builder.add::<rbac::Role>();
        builder.add::<rbac::RoleBinding>();
        builder.add::<rbac::ClusterRole>();
        builder.add::<rbac::ClusterRoleBinding>();
        builder.add::<authorization::SelfSubjectAccessReview>();
        builder.add::<authorization::SubjectAccessReview>();
        builder.add::<apiextensions::CustomResourceDefinition>();
        builder.generator.subschema_for::<meta::ObjectMeta>();
        builder.generator.subschema_for::<meta::ListMeta>();
        builder.generator.subschema_for::<meta::Status>();
        builder.generator.subschema_for::<meta::DeleteOptions>();
        builder.finish()
    }
}

/// A schema that refers to a built-in type.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("{REF_PREFIX}{name}")})
}

/// The built-in type that a schema refers to, if it does.
pub(super) fn referenced(schema: &Value) -> Option<(&'static str, &'static Value)> {
    let name = schema.get("$ref")?.as_str()?.strip_prefix(REF_PREFIX)?;
    let (name, schema) = BUILTIN.types.get_key_value(name)?;
    Some((name.as_str(), schema))
}

struct Builder {
    generator: SchemaGenerator,
    kinds: BTreeMap<(String, String), String>,
}

impl Builder {
    fn new() -> Self {
        let settings = SchemaSettings::draft07();
        Self {
            generator: settings.into_generator(),
            kinds: BTreeMap::new(),
        }
    }

    fn add<T: k8s_openapi::Resource + schemars::JsonSchema>(&mut self) {
        self.generator.subschema_for::<T>();
        self.kinds.insert(
            (T::API_VERSION.to_owned(), T::KIND.to_owned()),
            T::schema_name().into_owned(),
        );
    }

    fn finish(mut self) -> Definitions {
        let mut types = self.generator.take_definitions(false);
        types.values_mut().for_each(settle_references);
        for name in OPAQUE {
            types.insert(
                (*name).to_owned(),
                json!({"x-kubernetes-preserve-unknown-fields": true}),
            );
        }
        for schema in types.values_mut() {
            open_untyped_objects(schema);
        }
        for (name, field, merge) in MERGES {
            let property = types
                .get_mut(*name)
                .and_then(|schema| schema.pointer_mut(&format!("/properties/{field}")))
                .and_then(Value::as_object_mut);
            if let Some(property) = property {
                merge.write(property);
            }
        }
        for name in [core_type!("ContainerPort"), core_type!("ServicePort")] {
            // a part of the list's key, which server-side apply needs even when left out
            if let Some(Value::Object(protocol)) = types
                .get_mut(name)
                .and_then(|schema| schema.pointer_mut("/properties/protocol"))
            {
                protocol.insert("default".into(), json!("TCP"));
            }
        }
        for name in ATOMIC {
            if let Some(Value::Object(schema)) = types.get_mut(*name) {
                schema.insert("x-kubernetes-map-type".into(), json!("atomic"));
            }
        }
        for ((api_version, kind), name) in &self.kinds {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            if let Some(Value::Object(schema)) = types.get_mut(name) {
                schema.insert(
                    "x-kubernetes-group-version-kind".into(),
                    json!([{"group": group, "version": version, "kind": kind}]),
                );
            }
        }
        Definitions {
            types,
            kinds: self.kinds,
        }
    }
}

/// Writes every reference in one form, whatever path the generator gave it.
fn settle_references(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(target)) = fields.get_mut("$ref")
                && let Some(name) = target.rsplit('/').next()
            {
                *target = format!("{REF_PREFIX}{name}");
            }
            // draft 7 wraps a reference that has siblings
            if let Some(Value::Array(all)) = fields.get("allOf")
                && let [only] = all.as_slice()
                && let Some(target) = only.get("$ref").cloned()
            {
                fields.remove("allOf");
                fields.insert("$ref".into(), target);
                return settle_references(schema);
            }
            fields.values_mut().for_each(settle_references);
        }
        Value::Array(items) => items.iter_mut().for_each(settle_references),
        _ => {}
    }
}

/// A type that is an object and says nothing of its fields takes any.
fn open_untyped_objects(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    if fields.get("type") == Some(&json!("object"))
        && !fields.contains_key("properties")
        && !fields.contains_key("additionalProperties")
    {
        fields.insert("x-kubernetes-preserve-unknown-fields".into(), json!(true));
    }
}

/// Types that take any JSON value, which their generated schemas do not say.
const OPAQUE: &[&str] = &[
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
];

/// How a list or map of a built-in type merges.
enum Merge {
    /// A list whose elements strategic merge matches by this field.
    Key(&'static str),
    /// The same, where server-side apply needs all of these fields to tell elements apart.
    Keys(&'static [&'static str]),
    /// The same as `Key`; fields of an element that a patch leaves out can be cleared.
    KeyRetaining(&'static str),
    /// A list of scalars that merges.
    Set,
    /// A map that is one value.
    AtomicMap,
    /// An object whose fields a patch can clear by naming those it retains.
    Retaining,
}

impl Merge {
    fn write(&self, schema: &mut Map<String, Value>) {
        let mut put =
            |name: &str, value: Value| schema.insert(format!("x-kubernetes-{name}"), value);
        let (keys, strategy): (&[&str], _) = match self {
            Self::Key(key) => (&[*key], "merge"),
            Self::Keys(keys) => (*keys, "merge"),
            Self::KeyRetaining(key) => (&[*key], "merge,retainKeys"),
            Self::Set => {
                put("list-type", json!("set"));
                put("patch-strategy", json!("merge"));
                return;
            }
            Self::AtomicMap => {
                put("map-type", json!("atomic"));
                return;
            }
            Self::Retaining => {
                put("patch-strategy", json!("retainKeys"));
                return;
            }
        };
        put("list-type", json!("map"));
        put("list-map-keys", json!(keys));
        put("patch-merge-key", json!(keys.first()));
        put("patch-strategy", json!(strategy));
    }
}

const MERGES: &[(&str, &str, Merge)] = &[
    (OBJECT_META, "finalizers", Merge::Set),
    (OBJECT_META, "ownerReferences", Merge::Key("uid")),
    (core_type!("PodSpec"), "containers", Merge::Key("name")),
    (core_type!("PodSpec"), "initContainers", Merge::Key("name")),
    (
        core_type!("PodSpec"),
        "ephemeralContainers",
        Merge::Key("name"),
    ),
    (core_type!("PodSpec"), "hostAliases", Merge::Key("ip")),
    (
        core_type!("PodSpec"),
        "imagePullSecrets",
        Merge::Key("name"),
    ),
    (core_type!("PodSpec"), "nodeSelector", Merge::AtomicMap),
    (
        core_type!("PodSpec"),
        "resourceClaims",
        Merge::KeyRetaining("name"),
    ),
    (core_type!("PodSpec"), "schedulingGates", Merge::Key("name")),
    (
        core_type!("PodSpec"),
        "topologySpreadConstraints",
        Merge::Keys(&["topologyKey", "whenUnsatisfiable"]),
    ),
    (
        core_type!("PodSpec"),
        "volumes",
        Merge::KeyRetaining("name"),
    ),
    (core_type!("Container"), "env", Merge::Key("name")),
    (
        core_type!("Container"),
        "ports",
        Merge::Keys(&["containerPort", "protocol"]),
    ),
    (
        core_type!("Container"),
        "volumeDevices",
        Merge::Key("devicePath"),
    ),
    (
        core_type!("Container"),
        "volumeMounts",
        Merge::Key("mountPath"),
    ),
    (core_type!("EphemeralContainer"), "env", Merge::Key("name")),
    (
        core_type!("EphemeralContainer"),
        "ports",
        Merge::Keys(&["containerPort", "protocol"]),
    ),
    (
        core_type!("EphemeralContainer"),
        "volumeDevices",
        Merge::Key("devicePath"),
    ),
    (
        core_type!("EphemeralContainer"),
        "volumeMounts",
        Merge::Key("mountPath"),
    ),
    (
        core_type!("ResourceRequirements"),
        "claims",
        Merge::Key("name"),
    ),
    (core_type!("PodStatus"), "conditions", Merge::Key("type")),
    (core_type!("PodStatus"), "hostIPs", Merge::Key("ip")),
    (core_type!("PodStatus"), "podIPs", Merge::Key("ip")),
    (
        core_type!("PodStatus"),
        "resourceClaimStatuses",
        Merge::KeyRetaining("name"),
    ),
    (
        core_type!("ContainerStatus"),
        "allocatedResourcesStatus",
        Merge::Key("name"),
    ),
    (
        core_type!("ContainerStatus"),
        "volumeMounts",
        Merge::Key("mountPath"),
    ),
    (
        core_type!("NamespaceStatus"),
        "conditions",
        Merge::Key("type"),
    ),
    (core_type!("NodeSpec"), "podCIDRs", Merge::Set),
    (core_type!("NodeStatus"), "addresses", Merge::Key("type")),
    (core_type!("NodeStatus"), "conditions", Merge::Key("type")),
    (
        core_type!("PersistentVolumeClaimStatus"),
        "conditions",
        Merge::Key("type"),
    ),
    (core_type!("ServiceAccount"), "secrets", Merge::Key("name")),
    (
        core_type!("ServiceSpec"),
        "ports",
        Merge::Keys(&["port", "protocol"]),
    ),
    (core_type!("ServiceSpec"), "selector", Merge::AtomicMap),
    (
        core_type!("ServiceStatus"),
        "conditions",
        Merge::Key("type"),
    ),
    (
        "io.k8s.api.apps.v1.DeploymentSpec",
        "strategy",
        Merge::Retaining,
    ),
    (
        "io.k8s.api.apps.v1.DeploymentStatus",
        "conditions",
        Merge::Key("type"),
    ),
    (
        "io.k8s.api.apps.v1.ReplicaSetStatus",
        "conditions",
        Merge::Key("type"),
    ),
    (
        "io.k8s.api.apps.v1.StatefulSetStatus",
        "conditions",
        Merge::Key("type"),
    ),
    (
        "io.k8s.api.apps.v1.DaemonSetStatus",
        "conditions",
        Merge::Key("type"),
    ),
    (
        "io.k8s.api.batch.v1.JobStatus",
        "conditions",
        Merge::Key("type"),
    ),
    (
        "io.k8s.api.batch.v1.UncountedTerminatedPods",
        "failed",
        Merge::Set,
    ),
    (
        "io.k8s.api.batch.v1.UncountedTerminatedPods",
        "succeeded",
        Merge::Set,
    ),
    (
        "io.k8s.api.policy.v1.PodDisruptionBudgetStatus",
        "conditions",
        Merge::Key("type"),
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionStatus",
        "conditions",
        Merge::Key("type"),
    ),
];

/// Types whose objects are one value to server-side apply.
const ATOMIC: &[&str] = &[
    core_type!("ConfigMapKeySelector"),
    core_type!("SecretKeySelector"),
    core_type!("FileKeySelector"),
    core_type!("ObjectFieldSelector"),
    core_type!("ResourceFieldSelector"),
    core_type!("LocalObjectReference"),
    core_type!("TypedLocalObjectReference"),
    core_type!("ObjectReference"),
    core_type!("SecretReference"),
    core_type!("NodeSelector"),
    core_type!("NodeSelectorTerm"),
    core_type!("ScopedResourceSelectorRequirement"),
    core_type!("ScopeSelector"),
    "io.k8s.api.rbac.v1.RoleRef",
    "io.k8s.api.rbac.v1.Subject",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
];

/// The types and fields that the table of merges names.
#[cfg(test)]
pub(super) fn merge_rules() -> impl Iterator<Item = (&'static str, &'static str)> {
    MERGES.iter().map(|(name, field, _)| (*name, *field))
}
