//! The shape of JSON values, from the facts and, for types that the facts leave out, from the
//! table below.

use std::collections::{BTreeMap, BTreeSet};

use super::facts;

/// Metadata as in `k8s.io/apimachinery`, and our own specs: a field is `name:type`, with a
/// star for a pointer, `!` for one that is always there and `/key` for the key of a list.
const MORE: &str = "
metav1.ObjectMeta name:string generateName:string namespace:string selfLink:string uid:string \
    resourceVersion:string generation:int64 creationTimestamp:metav1.Time \
    deletionTimestamp:*metav1.Time deletionGracePeriodSeconds:*int64 labels:map[string]string \
    annotations:map[string]string ownerReferences:[]metav1.OwnerReference/uid \
    finalizers:[]string managedFields:[]metav1.ManagedFieldsEntry
metav1.OwnerReference apiVersion:!string kind:!string name:!string uid:!string \
    controller:*bool blockOwnerDeletion:*bool
metav1.ManagedFieldsEntry manager:string operation:string apiVersion:string \
    time:*metav1.Time fieldsType:string subresource:string
metav1.LabelSelector matchLabels:map[string]string \
    matchExpressions:[]metav1.LabelSelectorRequirement
metav1.LabelSelectorRequirement key:!string operator:!string values:[]string
EphemeralRunnerSpec githubConfigUrl:!string githubConfigSecret:!string \
    githubServerTLS:*TlsConfig runnerScaleSetId:!int64 proxy:*ProxyConfig \
    proxySecretRef:string vaultConfig:*VaultConfig \
    ephemeralRunnerConfigSecretMetadata:ResourceMeta metadata:metav1.ObjectMeta spec:PodSpec
AutoscalingListenerSpec githubConfigUrl:string githubConfigSecret:string \
    runnerScaleSetId:!int64 autoscalingRunnerSetNamespace:string \
    autoscalingRunnerSetName:string ephemeralRunnerSetName:string maxRunners:!int64 \
    minRunners:!int64 image:string imagePullSecrets:[]LocalObjectReference/name \
    proxy:*ProxyConfig githubServerTLS:*TlsConfig vaultConfig:*VaultConfig \
    metrics:*MetricsConfig template:PodTemplateSpec configSecretMetadata:ResourceMeta \
    serviceAccountMetadata:ResourceMeta roleMetadata:ResourceMeta \
    roleBindingMetadata:ResourceMeta
ResourceMeta labels:map[string]string annotations:map[string]string
TlsConfig certificateFrom:*TlsCertificateSource
TlsCertificateSource configMapKeyRef:*ConfigMapKeySelector
ProxyConfig http:*ProxyServerConfig https:*ProxyServerConfig noProxy:[]string
ProxyServerConfig url:string credentialSecretRef:string
VaultConfig type:string azureKeyVault:*AzureKeyVaultConfig proxy:*ProxyConfig
AzureKeyVaultConfig url:!string tenantId:!string clientId:!string certificatePath:!string
MetricsConfig counters:map[string]Labelled gauges:map[string]Labelled
Labelled labels:![]string
";

/// Numbers for whose zero the API server puts its default.
const DEFAULTED: [&str; 5] = [
    "ContainerPort.hostPort",
    "Probe.timeoutSeconds",
    "Probe.periodSeconds",
    "Probe.successThreshold",
    "Probe.failureThreshold",
];

/// What a JSON value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    Text,
    Bool,
    Number,
    Quantity,
    Time,
    IntOrString,
    List(Box<Shape>, Option<String>),
    Map(Box<Shape>),
    Struct(String),
}

/// A field of a struct.
#[derive(Clone, Debug)]
pub struct Field {
    pub name: String,
    pub shape: Shape,
    /// Absent is something else than zero.
    pub pointer: bool,
    /// Rust's type has no absent value.
    pub required: bool,
    /// It may be left out or null, as every field of a Kubernetes type; ours are stricter.
    pub lenient: bool,
    /// The server puts its default in place of zero.
    pub defaulted: bool,
}

/// The fields of each struct.
#[derive(Debug)]
pub struct Shapes(BTreeMap<String, Vec<Field>>);

impl Shapes {
    /// Reads the facts, when they are there.
    pub fn load() -> Option<Self> {
        let facts = facts::load()?;
        let more = MORE.trim().lines();
        let structs: BTreeSet<&str> = facts
            .keys()
            .map(String::as_str)
            .chain(
                more.clone()
                    .filter_map(|line| line.split_whitespace().next()),
            )
            .collect();
        let mut known: BTreeMap<String, Vec<Field>> = BTreeMap::new();
        for (owner, fields) in &facts {
            let fields = fields.iter().map(|field| Field {
                name: field.json.clone(),
                shape: shape(&structs, &field.go_type, field.merge_key.clone()),
                pointer: field.pointer,
                required: !field.omitempty && !field.pointer,
                lenient: true,
                defaulted: DEFAULTED.contains(&format!("{owner}.{}", field.json).as_str()),
            });
            known.insert(owner.clone(), fields.collect());
        }
        for line in more {
            let mut words = line.split_whitespace();
            let owner = words.next().unwrap().to_owned();
            let lenient = owner.starts_with("metav1.");
            let fields = words.map(|word| declared(&structs, word, lenient));
            known.insert(owner, fields.collect());
        }
        Some(Self(known))
    }

    /// The fields of a struct.
    pub fn fields(&self, name: &str) -> &[Field] {
        &self.0[name]
    }

    /// The shape of a struct by its name.
    pub fn root(name: &str) -> Shape {
        Shape::Struct(name.to_owned())
    }
}

fn declared(structs: &BTreeSet<&str>, word: &str, lenient: bool) -> Field {
    let (name, rest) = word.split_once(':').unwrap();
    let (go_type, key) = match rest.split_once('/') {
        Some((go_type, key)) => (go_type, Some(key.to_owned())),
        None => (rest, None),
    };
    Field {
        name: name.to_owned(),
        shape: shape(structs, go_type.trim_start_matches(['*', '!']), key),
        pointer: go_type.starts_with('*'),
        required: go_type.starts_with('!'),
        lenient,
        defaulted: false,
    }
}

fn shape(structs: &BTreeSet<&str>, go_type: &str, key: Option<String>) -> Shape {
    if let Some(element) = go_type.strip_prefix("[]") {
        return Shape::List(Box::new(shape(structs, element, None)), key);
    }
    if let Some(value) = go_type.strip_prefix("map[string]") {
        return Shape::Map(Box::new(shape(structs, value, None)));
    }
    match go_type {
        "ResourceList" => Shape::Map(Box::new(Shape::Quantity)),
        "bool" => Shape::Bool,
        "int32" | "int64" => Shape::Number,
        "resource.Quantity" => Shape::Quantity,
        "metav1.Time" => Shape::Time,
        "intstr.IntOrString" => Shape::IntOrString,
        name if structs.contains(name) => Shape::Struct(name.to_owned()),
        // texts, many of them with a type of their own
        _ => Shape::Text,
    }
}
