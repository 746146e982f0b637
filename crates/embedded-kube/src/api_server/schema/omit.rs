//! The zero values that do not survive a real server: its Go types leave an empty list, map
//! or string out when they write an object, unless the field is a pointer.
//!
//! The fields named here are those in which a pod differs from that rule.

use serde_json::Value;

use super::Node;

/// Whether a field of a built-in type, set to this value, is as good as absent.
pub(super) fn is_omitted(parent: Node<'_>, name: &str, value: &Value) -> bool {
    let (Some(type_name), Some(inner)) = (parent.type_name(), parent.named(name)) else {
        return false;
    };
    if parent.requires(name) {
        return false;
    }
    let listed = |table: &[(&str, &[&str])]| {
        table
            .iter()
            .any(|(type_, fields)| *type_ == type_name && fields.contains(&name))
    };
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => {
            fields.is_empty() && inner.type_name().is_none() && !inner.preserves_unknown()
        }
        Value::String(text) => text.is_empty() && !listed(STRING_POINTERS),
        Value::Bool(false) => listed(PLAIN_BOOLS),
        Value::Number(number) => number.as_i64() == Some(0) && listed(PLAIN_INTEGERS),
        _ => false,
    }
}

/// Strings of which the empty one is a value.
const STRING_POINTERS: &[(&str, &[&str])] = &[
    ("AppArmorProfile", &["localhostProfile"]),
    ("AzureDiskVolumeSource", &["cachingMode", "fsType", "kind"]),
    ("CSIVolumeSource", &["fsType"]),
    ("ClusterTrustBundleProjection", &["name", "signerName"]),
    ("Container", &["restartPolicy"]),
    ("EphemeralContainer", &["restartPolicy"]),
    ("GRPCAction", &["service"]),
    ("HostPathVolumeSource", &["type"]),
    ("ISCSIVolumeSource", &["initiatorName"]),
    (
        "JSONSchemaProps",
        &["x-kubernetes-list-type", "x-kubernetes-map-type"],
    ),
    (
        "LeaseSpec",
        &["holderIdentity", "preferredHolder", "strategy"],
    ),
    ("Lifecycle", &["stopSignal"]),
    (
        "PersistentVolumeClaimSpec",
        &[
            "storageClassName",
            "volumeAttributesClassName",
            "volumeMode",
        ],
    ),
    ("PodDNSConfigOption", &["value"]),
    (
        "PodResourceClaim",
        &["resourceClaimName", "resourceClaimTemplateName"],
    ),
    (
        "PodSecurityContext",
        &[
            "fsGroupChangePolicy",
            "seLinuxChangePolicy",
            "supplementalGroupsPolicy",
        ],
    ),
    (
        "PodSpec",
        &["hostnameOverride", "preemptionPolicy", "runtimeClassName"],
    ),
    ("SeccompProfile", &["localhostProfile"]),
    ("SecurityContext", &["procMount"]),
    (
        "TopologySpreadConstraint",
        &["nodeAffinityPolicy", "nodeTaintsPolicy"],
    ),
    ("TypedLocalObjectReference", &["apiGroup"]),
    ("TypedObjectReference", &["apiGroup", "namespace"]),
    ("VolumeMount", &["mountPropagation", "recursiveReadOnly"]),
    (
        "WindowsSecurityContextOptions",
        &[
            "gmsaCredentialSpec",
            "gmsaCredentialSpecName",
            "runAsUserName",
        ],
    ),
];

/// Truth values of which false is absent.
const PLAIN_BOOLS: &[(&str, &[&str])] = &[
    ("AWSElasticBlockStoreVolumeSource", &["readOnly"]),
    ("AzureFileVolumeSource", &["readOnly"]),
    ("CephFSVolumeSource", &["readOnly"]),
    ("CinderVolumeSource", &["readOnly"]),
    ("Container", &["stdin", "stdinOnce", "tty"]),
    ("EphemeralContainer", &["stdin", "stdinOnce", "tty"]),
    ("FCVolumeSource", &["readOnly"]),
    ("FlexVolumeSource", &["readOnly"]),
    ("GCEPersistentDiskVolumeSource", &["readOnly"]),
    ("GlusterfsVolumeSource", &["readOnly"]),
    (
        "ISCSIVolumeSource",
        &["chapAuthDiscovery", "chapAuthSession", "readOnly"],
    ),
    ("NFSVolumeSource", &["readOnly"]),
    ("PersistentVolumeClaimVolumeSource", &["readOnly"]),
    ("PodSpec", &["hostIPC", "hostNetwork", "hostPID"]),
    ("PortworxVolumeSource", &["readOnly"]),
    ("QuobyteVolumeSource", &["readOnly"]),
    ("RBDVolumeSource", &["readOnly"]),
    ("ScaleIOVolumeSource", &["readOnly", "sslEnabled"]),
    ("StorageOSVolumeSource", &["readOnly"]),
    ("VolumeMount", &["readOnly"]),
];

/// Integers of which zero is absent.
const PLAIN_INTEGERS: &[(&str, &[&str])] = &[
    ("AWSElasticBlockStoreVolumeSource", &["partition"]),
    ("ContainerPort", &["hostPort"]),
    ("GCEPersistentDiskVolumeSource", &["partition"]),
    (
        "Probe",
        &[
            "failureThreshold",
            "initialDelaySeconds",
            "periodSeconds",
            "successThreshold",
            "timeoutSeconds",
        ],
    ),
];
