//! Comparison agrees with a slow reference on many thousand pairs, and keeps its promises: it is
//! an equivalence, sees through spelling, and finds every drift but nothing that a server adds.

#[path = "semantic/facts.rs"]
mod facts;
#[path = "semantic/reference.rs"]
mod reference;
#[path = "semantic/samples.rs"]
mod samples;
#[path = "semantic/shapes.rs"]
mod shapes;

use std::fs;

use impresario::api::{
    AutoscalingListenerSpec, AzureKeyVaultConfig, EphemeralRunnerSpec, MetricsConfig, ProxyConfig,
    ProxyServerConfig, ResourceMeta, TlsCertificateSource, TlsConfig, VaultConfig,
};
use impresario::semantic::{Drift, Semantic, deep_equal, drift};
use k8s_openapi::api::core::v1::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ManagedFieldsEntry, ObjectMeta, OwnerReference,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::de::DeserializeOwned;
use serde_json::Value;

use samples::{Maker, another, sites};
use shapes::{Shape, Shapes};

/// How often each promise is tried. Those that compare with the reference do so on three pairs
/// each time, on 12 000 in all.
const CASES: u32 = 4_000;

/// A type whose values are compared, by the name that its shape has.
struct Root {
    name: &'static str,
    equal: fn(&Value, &Value) -> bool,
    drift: fn(&Value, &Value) -> Option<Drift>,
}

/// Those that hold most of the others.
const LARGE: [Root; 4] = [
    root::<PodTemplateSpec>("PodTemplateSpec"),
    root::<ObjectMeta>("metav1.ObjectMeta"),
    root::<EphemeralRunnerSpec>("EphemeralRunnerSpec"),
    root::<AutoscalingListenerSpec>("AutoscalingListenerSpec"),
];

macro_rules! roots {
    ($prefix:literal $($type:ident),+ $(,)?) => {
        &[$(root::<$type>(concat!($prefix, stringify!($type)))),+]
    };
}

const CORE: &[Root] = roots![""
    AWSElasticBlockStoreVolumeSource, Affinity, AppArmorProfile, AzureDiskVolumeSource,
    AzureFileVolumeSource, CSIVolumeSource, Capabilities, CephFSVolumeSource,
    CinderVolumeSource, ClusterTrustBundleProjection, ConfigMapEnvSource,
    ConfigMapKeySelector, ConfigMapProjection, ConfigMapVolumeSource, Container,
    ContainerPort, ContainerResizePolicy, ContainerRestartRule,
    ContainerRestartRuleOnExitCodes, DownwardAPIProjection, DownwardAPIVolumeFile,
    DownwardAPIVolumeSource, EmptyDirVolumeSource, EnvFromSource, EnvVar, EnvVarSource,
    EphemeralContainer, EphemeralVolumeSource, ExecAction, FCVolumeSource,
    FileKeySelector, FlexVolumeSource, FlockerVolumeSource,
    GCEPersistentDiskVolumeSource, GRPCAction, GitRepoVolumeSource,
    GlusterfsVolumeSource, HTTPGetAction, HTTPHeader, HostAlias, HostPathVolumeSource,
    ISCSIVolumeSource, ImageVolumeSource, KeyToPath, Lifecycle, LifecycleHandler,
    LocalObjectReference, NFSVolumeSource, NodeAffinity, NodeSelector,
    NodeSelectorRequirement, NodeSelectorTerm, ObjectFieldSelector,
    PersistentVolumeClaimSpec, PersistentVolumeClaimTemplate,
    PersistentVolumeClaimVolumeSource, PhotonPersistentDiskVolumeSource, PodAffinity,
    PodAffinityTerm, PodAntiAffinity, PodCertificateProjection, PodDNSConfig,
    PodDNSConfigOption, PodOS, PodReadinessGate, PodResourceClaim, PodSchedulingGate,
    PodSchedulingGroup, PodSecurityContext, PodSpec, PodTemplateSpec,
    PortworxVolumeSource, PreferredSchedulingTerm, Probe, ProjectedVolumeSource,
    QuobyteVolumeSource, RBDVolumeSource, ResourceClaim, ResourceFieldSelector,
    ResourceRequirements, SELinuxOptions, ScaleIOVolumeSource, SeccompProfile,
    SecretEnvSource, SecretKeySelector, SecretProjection, SecretVolumeSource,
    SecurityContext, ServiceAccountTokenProjection, SleepAction, StorageOSVolumeSource,
    Sysctl, TCPSocketAction, Toleration, TopologySpreadConstraint,
    TypedLocalObjectReference, TypedObjectReference, Volume, VolumeDevice, VolumeMount,
    VolumeProjection, VolumeResourceRequirements, VsphereVirtualDiskVolumeSource,
    WeightedPodAffinityTerm, WindowsSecurityContextOptions
];

const META: &[Root] = roots!["metav1."
    LabelSelector, LabelSelectorRequirement, ManagedFieldsEntry, ObjectMeta, OwnerReference
];

const OURS: &[Root] = roots![""
    AutoscalingListenerSpec, AzureKeyVaultConfig, EphemeralRunnerSpec, MetricsConfig, ProxyConfig,
    ProxyServerConfig, ResourceMeta, TlsCertificateSource, TlsConfig, VaultConfig
];

/// Every type that the reference knows.
fn roots() -> Vec<&'static Root> {
    CORE.iter().chain(META).chain(OURS).collect()
}

const fn root<T: Semantic + DeserializeOwned>(name: &'static str) -> Root {
    Root {
        name,
        equal: |a, b| deep_equal::<T>(&read(a), &read(b)),
        drift: |desired, live| drift::<T>(&read(desired), &read(live)),
    }
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    T::deserialize(value).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// Tries a promise with many seeds, half of them on large types and half on any.
fn holds(promise: impl Fn(&Root, &Shape, &mut Maker) -> Result<(), TestCaseError>) {
    let Some(shapes) = Shapes::load() else { return };
    let all = roots();
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(CASES)
    });
    let seeds = any::<u64>().no_shrink();
    let outcome = runner.run(&seeds, |seed| {
        let mut random = StdRng::seed_from_u64(seed);
        let root = if random.random_bool(0.5) {
            &LARGE[random.random_range(0..LARGE.len())]
        } else {
            all[random.random_range(0..all.len())]
        };
        let mut maker = Maker {
            shapes: &shapes,
            random,
        };
        promise(root, &Shapes::root(root.name), &mut maker)
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// Whether a path is the one of the reference or goes further, or there is none in both.
fn agree(found: &Option<String>, expected: &Option<String>) -> bool {
    match (found, expected) {
        (Some(found), Some(expected)) => found.starts_with(expected.as_str()),
        (found, expected) => found == expected,
    }
}

/// Absent, zero, and two values: each of them against each, in every field of every type.
#[test]
fn every_field_agrees_with_the_reference() {
    let Some(shapes) = Shapes::load() else { return };
    let mut pairs = 0;
    for root in roots() {
        let shape = Shapes::root(root.name);
        for field in shapes.fields(root.name) {
            let values = samples::of_field(&shapes, root.name, field);
            for (a, b) in values
                .iter()
                .flat_map(|a| values.iter().map(move |b| (a, b)))
            {
                let equal = reference::equal(&shapes, &shape, a, b);
                let drift = reference::drift(&shapes, &shape, a, b);
                let context = format!("{}: {a} and {b}", root.name);
                assert_eq!((root.equal)(a, b), equal, "{context}");
                let found = (root.drift)(a, b).map(|drift| drift.path);
                assert!(agree(&found, &drift), "{found:?}, {drift:?}, {context}");
                pairs += 1;
            }
        }
    }
    assert!(pairs > 5_000, "only {pairs}");
}

#[test]
fn every_type_of_the_facts_is_compared() {
    let Some(facts) = facts::load() else { return };
    // inlined in Go, and no types in JSON
    let inlined = ["EphemeralContainerCommon", "ProbeHandler", "VolumeSource"];
    for name in facts
        .keys()
        .filter(|name| !inlined.contains(&name.as_str()))
    {
        assert!(roots().iter().any(|root| root.name == name), "{name}");
    }
}

#[test]
fn equality_agrees_with_the_reference() {
    holds(|root, shape, maker| {
        let a = maker.value(shape, 0);
        let same = maker.respelled(shape, &a);
        let changed = maker.changed(shape, &same);
        for b in [&a, &same, &changed] {
            let expected = reference::equal(maker.shapes, shape, &a, b);
            prop_assert_eq!((root.equal)(&a, b), expected, "{} and {}", a, b);
            prop_assert_eq!((root.equal)(b, &a), expected, "{} and {}", b, a);
        }
        Ok(())
    });
}

#[test]
fn equality_sees_through_spelling_and_is_transitive() {
    holds(|root, shape, maker| {
        let a = maker.value(shape, 0);
        let b = maker.respelled(shape, &a);
        let c = maker.respelled(shape, &b);
        prop_assert!((root.equal)(&a, &b), "{} and {}", a, b);
        prop_assert!((root.equal)(&b, &c), "{} and {}", b, c);
        prop_assert!((root.equal)(&a, &c), "{} and {}", a, c);
        let other = maker.changed(shape, &c);
        prop_assert_eq!(
            (root.equal)(&a, &other),
            (root.equal)(&b, &other),
            "{} {} {}",
            a,
            b,
            other
        );
        Ok(())
    });
}

#[test]
fn what_is_equal_derives() {
    holds(|root, shape, maker| {
        let a = maker.value(shape, 0);
        let b = maker.respelled(shape, &a);
        let found = (root.drift)(&a, &b);
        prop_assert!(found.is_none(), "{:?}: {} and {}", found, a, b);
        Ok(())
    });
}

#[test]
fn drift_agrees_with_the_reference() {
    holds(|root, shape, maker| {
        let desired = maker.value(shape, 0);
        let admitted = maker.admitted(shape, &desired);
        let changed = maker.changed(shape, &admitted);
        let other = maker.value(shape, 0);
        for live in [&admitted, &changed, &other] {
            let found = (root.drift)(&desired, live).map(|drift| drift.path);
            let expected = reference::drift(maker.shapes, shape, &desired, live);
            prop_assert!(
                agree(&found, &expected),
                "{:?}, {:?}, {} and {}",
                found,
                expected,
                desired,
                live
            );
        }
        Ok(())
    });
}

#[test]
fn what_a_server_and_admission_add_is_no_drift() {
    holds(|root, shape, maker| {
        let desired = maker.value(shape, 0);
        let live = maker.admitted(shape, &desired);
        let found = (root.drift)(&desired, &live);
        prop_assert!(found.is_none(), "{:?}: {} and {}", found, desired, live);
        Ok(())
    });
}

#[test]
fn every_single_change_of_what_is_desired_is_drift_with_its_path() {
    holds(|root, shape, maker| {
        let before = maker.value(shape, 0);
        let live = maker.admitted(shape, &before);
        for site in sites(maker.shapes, shape, &before) {
            let mut desired = before.clone();
            let value = desired.pointer_mut(&site.pointer).unwrap();
            *value = another(&site.shape, value);
            let Some(found) = (root.drift)(&desired, &live) else {
                // another element may happen to fit
                let expected = reference::drift(maker.shapes, shape, &desired, &live);
                prop_assert_eq!(expected, None, "{}: {} and {}", site.path, desired, live);
                prop_assert_ne!(&site.clear, &site.path, "{} and {}", desired, live);
                continue;
            };
            if site.clear == site.path {
                prop_assert_eq!(&found.path, &site.path, "{} and {}", desired, live);
            } else if matches!(site.shape, Shape::Text | Shape::Number) {
                prop_assert!(
                    found.path.starts_with(&site.clear),
                    "{} {}",
                    found.path,
                    site.clear
                );
            }
        }
        Ok(())
    });
}

// === the pairs that are timed ===

fn pair<T: DeserializeOwned>(a: &str, b: &str) -> Option<(T, T)> {
    let read = |name: &str| {
        let text = fs::read_to_string(facts::path(&format!("semantic/{name}.json"))?).unwrap();
        Some(serde_json::from_str(&text).unwrap())
    };
    Some((read(a)?, read(b)?))
}

#[test]
fn runner_specs_of_the_facts_are_equal_when_only_their_spelling_differs() {
    for (other, equal, path) in [
        ("er_spec.a", true, None),
        ("er_spec.b_equal_respelled", true, None),
        (
            "er_spec.b_drift_early",
            false,
            Some("spec.initContainers[init-dind-externals].image"),
        ),
        (
            "er_spec.b_drift_late",
            false,
            Some("spec.topologySpreadConstraints[topology.kubernetes.io/zone].maxSkew"),
        ),
    ] {
        let Some((a, b)) = pair::<EphemeralRunnerSpec>("er_spec.a", other) else {
            return;
        };
        assert_eq!(deep_equal(&a, &b), equal, "{other}");
        assert_eq!(
            drift(&b, &a).map(|drift| drift.path).as_deref(),
            path,
            "{other}"
        );
    }
}

#[test]
fn the_listener_pod_of_the_facts_derives_until_its_image_differs() {
    let name = "listener_pod_spec.desired";
    let Some((desired, live)) = pair::<PodSpec>(name, "listener_pod_spec.live") else {
        return;
    };
    assert_eq!(drift(&desired, &live), None);
    assert!(!deep_equal(&desired, &live));
    let (_, live) = pair::<PodSpec>(name, "listener_pod_spec.live_drift").unwrap();
    let found = drift(&desired, &live).unwrap();
    assert_eq!(found.path, "containers[listener].image");
}
