//! The four custom resources, the names that go with them, and their validation.
//!
//! Knows Kubernetes' own types and nothing else of ours. JSON names are a contract with
//! ARC's charts and with objects that ARC wrote, so a field here is never renamed.

mod autoscaling_listener;
mod autoscaling_runner_set;
mod common;
mod config_url;
pub mod constants;
mod crd;
mod credentials;
mod ephemeral_runner;
mod ephemeral_runner_set;
mod fields;
mod listener_config;
mod located;
mod manifest;
mod names;
mod policy;
mod schema;
mod schema_facts;
pub mod stand_in;
mod structure;
mod validation;

pub use autoscaling_listener::{
    AutoscalingListener, AutoscalingListenerPhase, AutoscalingListenerSpec,
    AutoscalingListenerStatus,
};
pub use autoscaling_runner_set::{
    AutoscalingRunnerSet, AutoscalingRunnerSetPhase, AutoscalingRunnerSetSpec,
    AutoscalingRunnerSetStatus,
};
pub use common::{
    AZURE_KEY_VAULT, AzureKeyVaultConfig, CounterMetric, GaugeMetric, HistogramMetric,
    MetricsConfig, ProxyConfig, ProxyServerConfig, ResourceMeta, TlsCertificateSource, TlsConfig,
    VaultConfig,
};
pub use config_url::{ConfigScope, ConfigUrl, ConfigUrlError};
pub use crd::{CrdFile, crd_files, crds};
pub use credentials::{Credentials, CredentialsError};
pub use ephemeral_runner::{
    EphemeralRunner, EphemeralRunnerPhase, EphemeralRunnerSpec, EphemeralRunnerStatus,
};
pub use ephemeral_runner_set::{
    EphemeralRunnerSet, EphemeralRunnerSetPhase, EphemeralRunnerSetSpec, EphemeralRunnerSetStatus,
    listener_patch,
};
pub use fields::{CRD_COMMAND, Field, MissingFields, Section};
pub use listener_config::{ListenerConfig, ListenerVault, ListenerVaultProxy};
pub use manifest::{ManifestError, ManifestObject, ManifestProblem, read_manifests};
pub use policy::{AllowedHosts, HostPattern, ListenerTemplatePolicy, Policy};
pub use structure::structure_problems;
pub use validation::{FieldProblem, MAX_SCALE_SET_NAME, ValidationErrors};
