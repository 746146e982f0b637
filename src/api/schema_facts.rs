//! What Kubernetes' own types mean beyond their shape: list and map types, defaults, patterns.
//!
//! schemars derives the shape only. Without these facts server-side apply would replace a
//! whole list of containers where it is to merge it by name, and an omitted default would
//! leave a list-map key unset. Each row restates a marker of the Kubernetes API; the tests
//! hold the table against the schemas that it is applied to.

/// Prefix of the types that are named without one below.
const CORE: &str = "io.k8s.api.core.v1.";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Full schema name of a type in these tables.
pub(super) fn full_name(short: &str) -> String {
    match short {
        "Condition" | "LabelSelector" | "LabelSelectorRequirement" | "ObjectMeta" => {
            format!("{META}{short}")
        }
        _ => format!("{CORE}{short}"),
    }
}

/// Lists that are replaced as a whole: type, properties.
pub(super) const ATOMIC_LISTS: &[(&str, &[&str])] = &[
    ("Capabilities", &["add", "drop"]),
    ("CephFSVolumeSource", &["monitors"]),
    ("ConfigMapProjection", &["items"]),
    ("ConfigMapVolumeSource", &["items"]),
    (
        "Container",
        &[
            "args",
            "command",
            "envFrom",
            "resizePolicy",
            "restartPolicyRules",
        ],
    ),
    ("DownwardAPIProjection", &["items"]),
    ("DownwardAPIVolumeSource", &["items"]),
    (
        "EphemeralContainer",
        &[
            "args",
            "command",
            "envFrom",
            "resizePolicy",
            "restartPolicyRules",
        ],
    ),
    ("ExecAction", &["command"]),
    ("FCVolumeSource", &["targetWWNs", "wwids"]),
    ("HTTPGetAction", &["httpHeaders"]),
    ("HostAlias", &["hostnames"]),
    ("ISCSIVolumeSource", &["portals"]),
    ("LabelSelector", &["matchExpressions"]),
    ("LabelSelectorRequirement", &["values"]),
    (
        "NodeAffinity",
        &["preferredDuringSchedulingIgnoredDuringExecution"],
    ),
    ("NodeSelector", &["nodeSelectorTerms"]),
    ("NodeSelectorRequirement", &["values"]),
    ("NodeSelectorTerm", &["matchExpressions", "matchFields"]),
    ("PersistentVolumeClaimSpec", &["accessModes"]),
    (
        "PodAffinity",
        &[
            "preferredDuringSchedulingIgnoredDuringExecution",
            "requiredDuringSchedulingIgnoredDuringExecution",
        ],
    ),
    (
        "PodAffinityTerm",
        &["matchLabelKeys", "mismatchLabelKeys", "namespaces"],
    ),
    (
        "PodAntiAffinity",
        &[
            "preferredDuringSchedulingIgnoredDuringExecution",
            "requiredDuringSchedulingIgnoredDuringExecution",
        ],
    ),
    ("PodDNSConfig", &["nameservers", "options", "searches"]),
    ("PodSecurityContext", &["supplementalGroups", "sysctls"]),
    ("PodSpec", &["readinessGates", "tolerations"]),
    ("ProjectedVolumeSource", &["sources"]),
    ("RBDVolumeSource", &["monitors"]),
    // keyed by name in Kubernetes; ARC's schemas let a runner's template have two of a name
    ("ResourceRequirements", &["claims"]),
    ("SecretProjection", &["items"]),
    ("SecretVolumeSource", &["items"]),
    ("TopologySpreadConstraint", &["matchLabelKeys"]),
];

/// Lists whose items are unlike each other: type, property.
pub(super) const SET_LISTS: &[(&str, &str)] = &[("ContainerRestartRuleOnExitCodes", "values")];

/// Lists that are merged item by item: type, property, keys that tell items apart.
pub(super) const MAP_LISTS: &[(&str, &str, &[&str])] = &[
    ("Container", "env", &["name"]),
    ("Container", "ports", &["containerPort", "protocol"]),
    ("Container", "volumeDevices", &["devicePath"]),
    ("Container", "volumeMounts", &["mountPath"]),
    ("EphemeralContainer", "env", &["name"]),
    (
        "EphemeralContainer",
        "ports",
        &["containerPort", "protocol"],
    ),
    ("EphemeralContainer", "volumeDevices", &["devicePath"]),
    ("EphemeralContainer", "volumeMounts", &["mountPath"]),
    ("PodSpec", "containers", &["name"]),
    ("PodSpec", "ephemeralContainers", &["name"]),
    ("PodSpec", "hostAliases", &["ip"]),
    ("PodSpec", "imagePullSecrets", &["name"]),
    ("PodSpec", "initContainers", &["name"]),
    ("PodSpec", "resourceClaims", &["name"]),
    ("PodSpec", "schedulingGates", &["name"]),
    (
        "PodSpec",
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
    ("PodSpec", "volumes", &["name"]),
];

/// Objects that are replaced as a whole wherever they stand.
pub(super) const ATOMIC_TYPES: &[&str] = &[
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "FileKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ResourceFieldSelector",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
    "TypedLocalObjectReference",
];

/// Maps of strings that are replaced as a whole: type, property.
pub(super) const ATOMIC_MAPS: &[(&str, &str)] = &[("PodSpec", "nodeSelector")];

/// What the server fills in: type, property, value as JSON. A property that has a default is
/// never required.
pub(super) const DEFAULTS: &[(&str, &str, &str)] = &[
    ("AzureDiskVolumeSource", "fsType", r#""ext4""#),
    ("AzureDiskVolumeSource", "readOnly", "false"),
    ("ConfigMapEnvSource", "name", r#""""#),
    ("ConfigMapKeySelector", "name", r#""""#),
    ("ConfigMapProjection", "name", r#""""#),
    ("ConfigMapVolumeSource", "name", r#""""#),
    ("ContainerPort", "protocol", r#""TCP""#),
    ("FileKeySelector", "optional", "false"),
    ("GRPCAction", "service", r#""""#),
    ("ISCSIVolumeSource", "iscsiInterface", r#""default""#),
    ("LocalObjectReference", "name", r#""""#),
    ("RBDVolumeSource", "keyring", r#""/etc/ceph/keyring""#),
    ("RBDVolumeSource", "pool", r#""rbd""#),
    ("RBDVolumeSource", "user", r#""admin""#),
    ("ScaleIOVolumeSource", "fsType", r#""xfs""#),
    ("ScaleIOVolumeSource", "storageMode", r#""ThinProvisioned""#),
    ("SecretEnvSource", "name", r#""""#),
    ("SecretKeySelector", "name", r#""""#),
    ("SecretProjection", "name", r#""""#),
];

/// Metadata that a pod template may carry. The server drops the rest without a word, and so
/// takes templates that were copied from a live object, nulls included.
pub(super) const TEMPLATE_METADATA: &[&str] =
    &["annotations", "finalizers", "labels", "name", "namespace"];

/// Schema name of a number or string that stands for an amount.
pub(super) const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";

/// Form of an amount: a decimal number with an optional binary, decimal or exponent suffix.
pub(super) const QUANTITY_PATTERN: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Schema name of a port's number or name, or the like.
pub(super) const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
