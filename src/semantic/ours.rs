//! The specs of our own resources and their parts.
//!
//! ARC's Go types have pointers where these have an `Option`. Absent metadata and an absent
//! pod template mean the same as empty ones and count as values all the same; absent metrics,
//! say, do not: they mean the default ones.

use super::field::compare;
use crate::api::{
    AutoscalingListenerSpec, AutoscalingRunnerSetSpec, AzureKeyVaultConfig, CounterMetric,
    EphemeralRunnerSetSpec, EphemeralRunnerSpec, GaugeMetric, HistogramMetric, MetricsConfig,
    ProxyConfig, ProxyServerConfig, ResourceMeta, TlsCertificateSource, TlsConfig, VaultConfig,
};

compare!(AutoscalingListenerSpec {
    github_config_url "githubConfigUrl" value,
    github_config_secret "githubConfigSecret" value,
    runner_scale_set_id "runnerScaleSetId" value,
    autoscaling_runner_set_namespace "autoscalingRunnerSetNamespace" value,
    autoscaling_runner_set_name "autoscalingRunnerSetName" value,
    ephemeral_runner_set_name "ephemeralRunnerSetName" value,
    max_runners "maxRunners" value,
    min_runners "minRunners" value,
    image "image" value,
    image_pull_secrets "imagePullSecrets" keyed,
    proxy "proxy" pointer,
    github_server_tls "githubServerTLS" pointer,
    vault_config "vaultConfig" pointer,
    metrics "metrics" pointer,
    template "template" value,
    config_secret_metadata "configSecretMetadata" value,
    service_account_metadata "serviceAccountMetadata" value,
    role_metadata "roleMetadata" value,
    role_binding_metadata "roleBindingMetadata" value,
    phase "phase" value,
});

compare!(AutoscalingRunnerSetSpec {
    github_config_url "githubConfigUrl" value,
    github_config_secret "githubConfigSecret" value,
    runner_group "runnerGroup" value,
    runner_scale_set_name "runnerScaleSetName" value,
    runner_scale_set_labels "runnerScaleSetLabels" value,
    proxy "proxy" pointer,
    github_server_tls "githubServerTLS" pointer,
    vault_config "vaultConfig" pointer,
    template "template" value,
    listener_template "listenerTemplate" value,
    listener_metrics "listenerMetrics" pointer,
    max_runners "maxRunners" pointer,
    min_runners "minRunners" pointer,
    autoscaling_listener "autoscalingListener" value,
    listener_service_account_metadata "listenerServiceAccountMetadata" value,
    listener_role_metadata "listenerRoleMetadata" value,
    listener_role_binding_metadata "listenerRoleBindingMetadata" value,
    listener_config_secret_metadata "listenerConfigSecretMetadata" value,
    ephemeral_runner_set_metadata "ephemeralRunnerSetMetadata" value,
    ephemeral_runner_metadata "ephemeralRunnerMetadata" value,
    ephemeral_runner_config_secret_metadata "ephemeralRunnerConfigSecretMetadata" value,
});

compare!(EphemeralRunnerSetSpec {
    replicas "replicas" value,
    patch_id "patchID" value,
    actionable_revision "actionableRevision" value,
    ephemeral_runner_spec "ephemeralRunnerSpec" value,
    ephemeral_runner_metadata "ephemeralRunnerMetadata" value,
});

compare!(EphemeralRunnerSpec {
    github_config_url "githubConfigUrl" value,
    github_config_secret "githubConfigSecret" value,
    github_server_tls "githubServerTLS" pointer,
    runner_scale_set_id "runnerScaleSetId" value,
    proxy "proxy" pointer,
    proxy_secret_ref "proxySecretRef" value,
    vault_config "vaultConfig" pointer,
    ephemeral_runner_config_secret_metadata "ephemeralRunnerConfigSecretMetadata" value,
    metadata "metadata" value,
    spec "spec" value,
});

compare!(AzureKeyVaultConfig {
    url "url" value,
    tenant_id "tenantId" value,
    client_id "clientId" value,
    certificate_path "certificatePath" value,
});

compare!(CounterMetric {
    labels "labels" value,
});

compare!(GaugeMetric {
    labels "labels" value,
});

compare!(HistogramMetric {
    labels "labels" value,
    buckets "buckets" value,
});

compare!(MetricsConfig {
    counters "counters" value,
    gauges "gauges" value,
    histograms "histograms" value,
});

compare!(ProxyConfig {
    http "http" pointer,
    https "https" pointer,
    no_proxy "noProxy" value,
});

compare!(ProxyServerConfig {
    url "url" value,
    credential_secret_ref "credentialSecretRef" value,
});

compare!(ResourceMeta {
    labels "labels" value,
    annotations "annotations" value,
});

compare!(TlsCertificateSource {
    config_map_key_ref "configMapKeyRef" pointer,
});

compare!(TlsConfig {
    certificate_from "certificateFrom" pointer,
});

compare!(VaultConfig {
    vault_type "type" value,
    azure_key_vault "azureKeyVault" pointer,
    proxy "proxy" pointer,
});
