//! Every type below `PodTemplateSpec`: `k8s.io/api/core/v1`.
//!
//! Written by `tests/semantic_table.rs` from the facts on Kubernetes' Go types. Do not edit.

use k8s_openapi::api::core::v1::*;

use super::field::compare;
use super::list::keyed;

compare!(AWSElasticBlockStoreVolumeSource {
    volume_id "volumeID" value,
    fs_type "fsType" value,
    partition "partition" value,
    read_only "readOnly" value,
});

compare!(Affinity {
    node_affinity "nodeAffinity" pointer,
    pod_affinity "podAffinity" pointer,
    pod_anti_affinity "podAntiAffinity" pointer,
});

compare!(AppArmorProfile {
    type_ "type" value,
    localhost_profile "localhostProfile" pointer,
});

compare!(AzureDiskVolumeSource {
    disk_name "diskName" value,
    disk_uri "diskURI" value,
    caching_mode "cachingMode" pointer,
    fs_type "fsType" pointer,
    read_only "readOnly" pointer,
    kind "kind" pointer,
});

compare!(AzureFileVolumeSource {
    secret_name "secretName" value,
    share_name "shareName" value,
    read_only "readOnly" value,
});

compare!(CSIVolumeSource {
    driver "driver" value,
    read_only "readOnly" pointer,
    fs_type "fsType" pointer,
    volume_attributes "volumeAttributes" value,
    node_publish_secret_ref "nodePublishSecretRef" pointer,
});

compare!(Capabilities {
    add "add" value,
    drop "drop" value,
});

compare!(CephFSVolumeSource {
    monitors "monitors" value,
    path "path" value,
    user "user" value,
    secret_file "secretFile" value,
    secret_ref "secretRef" pointer,
    read_only "readOnly" value,
});

compare!(CinderVolumeSource {
    volume_id "volumeID" value,
    fs_type "fsType" value,
    read_only "readOnly" value,
    secret_ref "secretRef" pointer,
});

compare!(ClusterTrustBundleProjection {
    name "name" pointer,
    signer_name "signerName" pointer,
    label_selector "labelSelector" pointer,
    optional "optional" pointer,
    path "path" value,
});

compare!(ConfigMapEnvSource {
    name "name" value,
    optional "optional" pointer,
});

compare!(ConfigMapKeySelector {
    name "name" value,
    key "key" value,
    optional "optional" pointer,
});

compare!(ConfigMapProjection {
    name "name" value,
    items "items" value,
    optional "optional" pointer,
});

compare!(ConfigMapVolumeSource {
    name "name" value,
    items "items" value,
    default_mode "defaultMode" pointer,
    optional "optional" pointer,
});

compare!(Container {
    name "name" value,
    image "image" value,
    command "command" value,
    args "args" value,
    working_dir "workingDir" value,
    ports "ports" keyed,
    env_from "envFrom" value,
    env "env" keyed,
    resources "resources" value,
    resize_policy "resizePolicy" value,
    restart_policy "restartPolicy" pointer,
    restart_policy_rules "restartPolicyRules" value,
    volume_mounts "volumeMounts" keyed,
    volume_devices "volumeDevices" keyed,
    liveness_probe "livenessProbe" pointer,
    readiness_probe "readinessProbe" pointer,
    startup_probe "startupProbe" pointer,
    lifecycle "lifecycle" pointer,
    termination_message_path "terminationMessagePath" value,
    termination_message_policy "terminationMessagePolicy" value,
    image_pull_policy "imagePullPolicy" value,
    security_context "securityContext" pointer,
    stdin "stdin" value,
    stdin_once "stdinOnce" value,
    tty "tty" value,
});

compare!(ContainerPort {
    name "name" value,
    host_port "hostPort" defaulted,
    container_port "containerPort" value,
    protocol "protocol" value,
    host_ip "hostIP" value,
});

compare!(ContainerResizePolicy {
    resource_name "resourceName" value,
    restart_policy "restartPolicy" value,
});

compare!(ContainerRestartRule {
    action "action" value,
    exit_codes "exitCodes" pointer,
});

compare!(ContainerRestartRuleOnExitCodes {
    operator "operator" value,
    values "values" value,
});

compare!(DownwardAPIProjection {
    items "items" value,
});

compare!(DownwardAPIVolumeFile {
    path "path" value,
    field_ref "fieldRef" pointer,
    resource_field_ref "resourceFieldRef" pointer,
    mode "mode" pointer,
});

compare!(DownwardAPIVolumeSource {
    items "items" value,
    default_mode "defaultMode" pointer,
});

compare!(EmptyDirVolumeSource {
    medium "medium" value,
    size_limit "sizeLimit" pointer,
});

compare!(EnvFromSource {
    prefix "prefix" value,
    config_map_ref "configMapRef" pointer,
    secret_ref "secretRef" pointer,
});

compare!(EnvVar {
    name "name" value,
    value "value" masked,
    value_from "valueFrom" pointer,
});

compare!(EnvVarSource {
    field_ref "fieldRef" pointer,
    resource_field_ref "resourceFieldRef" pointer,
    config_map_key_ref "configMapKeyRef" pointer,
    secret_key_ref "secretKeyRef" pointer,
    file_key_ref "fileKeyRef" pointer,
});

compare!(EphemeralContainer {
    name "name" value,
    image "image" value,
    command "command" value,
    args "args" value,
    working_dir "workingDir" value,
    ports "ports" keyed,
    env_from "envFrom" value,
    env "env" keyed,
    resources "resources" value,
    resize_policy "resizePolicy" value,
    restart_policy "restartPolicy" pointer,
    restart_policy_rules "restartPolicyRules" value,
    volume_mounts "volumeMounts" keyed,
    volume_devices "volumeDevices" keyed,
    liveness_probe "livenessProbe" pointer,
    readiness_probe "readinessProbe" pointer,
    startup_probe "startupProbe" pointer,
    lifecycle "lifecycle" pointer,
    termination_message_path "terminationMessagePath" value,
    termination_message_policy "terminationMessagePolicy" value,
    image_pull_policy "imagePullPolicy" value,
    security_context "securityContext" pointer,
    stdin "stdin" value,
    stdin_once "stdinOnce" value,
    tty "tty" value,
    target_container_name "targetContainerName" value,
});

compare!(EphemeralVolumeSource {
    volume_claim_template "volumeClaimTemplate" pointer,
});

compare!(ExecAction {
    command "command" value,
});

compare!(FCVolumeSource {
    target_wwns "targetWWNs" value,
    lun "lun" pointer,
    fs_type "fsType" value,
    read_only "readOnly" value,
    wwids "wwids" value,
});

compare!(FileKeySelector {
    volume_name "volumeName" value,
    path "path" value,
    key "key" value,
    optional "optional" pointer,
});

compare!(FlexVolumeSource {
    driver "driver" value,
    fs_type "fsType" value,
    secret_ref "secretRef" pointer,
    read_only "readOnly" value,
    options "options" value,
});

compare!(FlockerVolumeSource {
    dataset_name "datasetName" value,
    dataset_uuid "datasetUUID" value,
});

compare!(GCEPersistentDiskVolumeSource {
    pd_name "pdName" value,
    fs_type "fsType" value,
    partition "partition" value,
    read_only "readOnly" value,
});

compare!(GRPCAction {
    port "port" value,
    service "service" pointer,
});

compare!(GitRepoVolumeSource {
    repository "repository" value,
    revision "revision" value,
    directory "directory" value,
});

compare!(GlusterfsVolumeSource {
    endpoints "endpoints" value,
    path "path" value,
    read_only "readOnly" value,
});

compare!(HTTPGetAction {
    path "path" value,
    port "port" value,
    host "host" value,
    scheme "scheme" value,
    http_headers "httpHeaders" value,
});

compare!(HTTPHeader {
    name "name" value,
    value "value" masked,
});

compare!(HostAlias {
    ip "ip" value,
    hostnames "hostnames" value,
});

compare!(HostPathVolumeSource {
    path "path" value,
    type_ "type" pointer,
});

compare!(ISCSIVolumeSource {
    target_portal "targetPortal" value,
    iqn "iqn" value,
    lun "lun" value,
    iscsi_interface "iscsiInterface" value,
    fs_type "fsType" value,
    read_only "readOnly" value,
    portals "portals" value,
    chap_auth_discovery "chapAuthDiscovery" value,
    chap_auth_session "chapAuthSession" value,
    secret_ref "secretRef" pointer,
    initiator_name "initiatorName" pointer,
});

compare!(ImageVolumeSource {
    reference "reference" value,
    pull_policy "pullPolicy" value,
});

compare!(KeyToPath {
    key "key" value,
    path "path" value,
    mode "mode" pointer,
});

compare!(Lifecycle {
    post_start "postStart" pointer,
    pre_stop "preStop" pointer,
    stop_signal "stopSignal" pointer,
});

compare!(LifecycleHandler {
    exec "exec" pointer,
    http_get "httpGet" pointer,
    tcp_socket "tcpSocket" pointer,
    sleep "sleep" pointer,
});

compare!(LocalObjectReference {
    name "name" value,
});

compare!(NFSVolumeSource {
    server "server" value,
    path "path" value,
    read_only "readOnly" value,
});

compare!(NodeAffinity {
    required_during_scheduling_ignored_during_execution "requiredDuringSchedulingIgnoredDuringExecution" pointer,
    preferred_during_scheduling_ignored_during_execution "preferredDuringSchedulingIgnoredDuringExecution" value,
});

compare!(NodeSelector {
    node_selector_terms "nodeSelectorTerms" value,
});

compare!(NodeSelectorRequirement {
    key "key" value,
    operator "operator" value,
    values "values" value,
});

compare!(NodeSelectorTerm {
    match_expressions "matchExpressions" value,
    match_fields "matchFields" value,
});

compare!(ObjectFieldSelector {
    api_version "apiVersion" value,
    field_path "fieldPath" value,
});

compare!(PersistentVolumeClaimSpec {
    access_modes "accessModes" value,
    selector "selector" pointer,
    resources "resources" value,
    volume_name "volumeName" value,
    storage_class_name "storageClassName" pointer,
    volume_mode "volumeMode" pointer,
    data_source "dataSource" pointer,
    data_source_ref "dataSourceRef" pointer,
    volume_attributes_class_name "volumeAttributesClassName" pointer,
});

compare!(PersistentVolumeClaimTemplate {
    metadata "metadata" value,
    spec "spec" value,
});

compare!(PersistentVolumeClaimVolumeSource {
    claim_name "claimName" value,
    read_only "readOnly" value,
});

compare!(PhotonPersistentDiskVolumeSource {
    pd_id "pdID" value,
    fs_type "fsType" value,
});

compare!(PodAffinity {
    required_during_scheduling_ignored_during_execution "requiredDuringSchedulingIgnoredDuringExecution" value,
    preferred_during_scheduling_ignored_during_execution "preferredDuringSchedulingIgnoredDuringExecution" value,
});

compare!(PodAffinityTerm {
    label_selector "labelSelector" pointer,
    namespaces "namespaces" value,
    topology_key "topologyKey" value,
    namespace_selector "namespaceSelector" pointer,
    match_label_keys "matchLabelKeys" value,
    mismatch_label_keys "mismatchLabelKeys" value,
});

compare!(PodAntiAffinity {
    required_during_scheduling_ignored_during_execution "requiredDuringSchedulingIgnoredDuringExecution" value,
    preferred_during_scheduling_ignored_during_execution "preferredDuringSchedulingIgnoredDuringExecution" value,
});

compare!(PodCertificateProjection {
    signer_name "signerName" value,
    key_type "keyType" value,
    max_expiration_seconds "maxExpirationSeconds" pointer,
    credential_bundle_path "credentialBundlePath" value,
    key_path "keyPath" value,
    certificate_chain_path "certificateChainPath" value,
    user_annotations "userAnnotations" value,
});

compare!(PodDNSConfig {
    nameservers "nameservers" value,
    searches "searches" value,
    options "options" value,
});

compare!(PodDNSConfigOption {
    name "name" value,
    value "value" pointer,
});

compare!(PodOS {
    name "name" value,
});

compare!(PodReadinessGate {
    condition_type "conditionType" value,
});

compare!(PodResourceClaim {
    name "name" value,
    resource_claim_name "resourceClaimName" pointer,
    resource_claim_template_name "resourceClaimTemplateName" pointer,
});

compare!(PodSchedulingGate {
    name "name" value,
});

compare!(PodSchedulingGroup {
    pod_group_name "podGroupName" pointer,
});

compare!(PodSecurityContext {
    se_linux_options "seLinuxOptions" pointer,
    windows_options "windowsOptions" pointer,
    run_as_user "runAsUser" pointer,
    run_as_group "runAsGroup" pointer,
    run_as_non_root "runAsNonRoot" pointer,
    supplemental_groups "supplementalGroups" value,
    supplemental_groups_policy "supplementalGroupsPolicy" pointer,
    fs_group "fsGroup" pointer,
    sysctls "sysctls" value,
    fs_group_change_policy "fsGroupChangePolicy" pointer,
    seccomp_profile "seccompProfile" pointer,
    app_armor_profile "appArmorProfile" pointer,
    se_linux_change_policy "seLinuxChangePolicy" pointer,
});

compare!(PodSpec {
    volumes "volumes" keyed,
    init_containers "initContainers" keyed,
    containers "containers" keyed,
    ephemeral_containers "ephemeralContainers" keyed,
    restart_policy "restartPolicy" value,
    termination_grace_period_seconds "terminationGracePeriodSeconds" pointer,
    active_deadline_seconds "activeDeadlineSeconds" pointer,
    dns_policy "dnsPolicy" value,
    node_selector "nodeSelector" value,
    service_account_name "serviceAccountName" value,
    service_account "serviceAccount" value,
    automount_service_account_token "automountServiceAccountToken" pointer,
    node_name "nodeName" value,
    host_network "hostNetwork" value,
    host_pid "hostPID" value,
    host_ipc "hostIPC" value,
    share_process_namespace "shareProcessNamespace" pointer,
    security_context "securityContext" pointer,
    image_pull_secrets "imagePullSecrets" keyed,
    hostname "hostname" value,
    subdomain "subdomain" value,
    affinity "affinity" pointer,
    scheduler_name "schedulerName" value,
    tolerations "tolerations" value,
    host_aliases "hostAliases" keyed,
    priority_class_name "priorityClassName" value,
    priority "priority" pointer,
    dns_config "dnsConfig" pointer,
    readiness_gates "readinessGates" value,
    runtime_class_name "runtimeClassName" pointer,
    enable_service_links "enableServiceLinks" pointer,
    preemption_policy "preemptionPolicy" pointer,
    overhead "overhead" value,
    topology_spread_constraints "topologySpreadConstraints" keyed,
    set_hostname_as_fqdn "setHostnameAsFQDN" pointer,
    os "os" pointer,
    host_users "hostUsers" pointer,
    scheduling_gates "schedulingGates" keyed,
    resource_claims "resourceClaims" keyed,
    resources "resources" pointer,
    hostname_override "hostnameOverride" pointer,
    scheduling_group "schedulingGroup" pointer,
});

compare!(PodTemplateSpec {
    metadata "metadata" value,
    spec "spec" value,
});

compare!(PortworxVolumeSource {
    volume_id "volumeID" value,
    fs_type "fsType" value,
    read_only "readOnly" value,
});

compare!(PreferredSchedulingTerm {
    weight "weight" value,
    preference "preference" value,
});

compare!(Probe {
    exec "exec" pointer,
    http_get "httpGet" pointer,
    tcp_socket "tcpSocket" pointer,
    grpc "grpc" pointer,
    initial_delay_seconds "initialDelaySeconds" value,
    timeout_seconds "timeoutSeconds" defaulted,
    period_seconds "periodSeconds" defaulted,
    success_threshold "successThreshold" defaulted,
    failure_threshold "failureThreshold" defaulted,
    termination_grace_period_seconds "terminationGracePeriodSeconds" pointer,
});

compare!(ProjectedVolumeSource {
    sources "sources" value,
    default_mode "defaultMode" pointer,
});

compare!(QuobyteVolumeSource {
    registry "registry" value,
    volume "volume" value,
    read_only "readOnly" value,
    user "user" value,
    group "group" value,
    tenant "tenant" value,
});

compare!(RBDVolumeSource {
    monitors "monitors" value,
    image "image" value,
    fs_type "fsType" value,
    pool "pool" value,
    user "user" value,
    keyring "keyring" value,
    secret_ref "secretRef" pointer,
    read_only "readOnly" value,
});

compare!(ResourceClaim {
    name "name" value,
    request "request" value,
});

compare!(ResourceFieldSelector {
    container_name "containerName" value,
    resource "resource" value,
    divisor "divisor" value,
});

compare!(ResourceRequirements {
    limits "limits" value,
    requests "requests" value,
    claims "claims" value,
});

compare!(SELinuxOptions {
    user "user" value,
    role "role" value,
    type_ "type" value,
    level "level" value,
});

compare!(ScaleIOVolumeSource {
    gateway "gateway" value,
    system "system" value,
    secret_ref "secretRef" value,
    ssl_enabled "sslEnabled" value,
    protection_domain "protectionDomain" value,
    storage_pool "storagePool" value,
    storage_mode "storageMode" value,
    volume_name "volumeName" value,
    fs_type "fsType" value,
    read_only "readOnly" value,
});

compare!(SeccompProfile {
    type_ "type" value,
    localhost_profile "localhostProfile" pointer,
});

compare!(SecretEnvSource {
    name "name" value,
    optional "optional" pointer,
});

compare!(SecretKeySelector {
    name "name" value,
    key "key" value,
    optional "optional" pointer,
});

compare!(SecretProjection {
    name "name" value,
    items "items" value,
    optional "optional" pointer,
});

compare!(SecretVolumeSource {
    secret_name "secretName" value,
    items "items" value,
    default_mode "defaultMode" pointer,
    optional "optional" pointer,
});

compare!(SecurityContext {
    capabilities "capabilities" pointer,
    privileged "privileged" pointer,
    se_linux_options "seLinuxOptions" pointer,
    windows_options "windowsOptions" pointer,
    run_as_user "runAsUser" pointer,
    run_as_group "runAsGroup" pointer,
    run_as_non_root "runAsNonRoot" pointer,
    read_only_root_filesystem "readOnlyRootFilesystem" pointer,
    allow_privilege_escalation "allowPrivilegeEscalation" pointer,
    proc_mount "procMount" pointer,
    seccomp_profile "seccompProfile" pointer,
    app_armor_profile "appArmorProfile" pointer,
});

compare!(ServiceAccountTokenProjection {
    audience "audience" value,
    expiration_seconds "expirationSeconds" pointer,
    path "path" value,
});

compare!(SleepAction {
    seconds "seconds" value,
});

compare!(StorageOSVolumeSource {
    volume_name "volumeName" value,
    volume_namespace "volumeNamespace" value,
    fs_type "fsType" value,
    read_only "readOnly" value,
    secret_ref "secretRef" pointer,
});

compare!(Sysctl {
    name "name" value,
    value "value" value,
});

compare!(TCPSocketAction {
    port "port" value,
    host "host" value,
});

compare!(Toleration {
    key "key" value,
    operator "operator" value,
    value "value" value,
    effect "effect" value,
    toleration_seconds "tolerationSeconds" pointer,
});

compare!(TopologySpreadConstraint {
    max_skew "maxSkew" value,
    topology_key "topologyKey" value,
    when_unsatisfiable "whenUnsatisfiable" value,
    label_selector "labelSelector" pointer,
    min_domains "minDomains" pointer,
    node_affinity_policy "nodeAffinityPolicy" pointer,
    node_taints_policy "nodeTaintsPolicy" pointer,
    match_label_keys "matchLabelKeys" value,
});

compare!(TypedLocalObjectReference {
    api_group "apiGroup" pointer,
    kind "kind" value,
    name "name" value,
});

compare!(TypedObjectReference {
    api_group "apiGroup" pointer,
    kind "kind" value,
    name "name" value,
    namespace "namespace" pointer,
});

compare!(Volume {
    name "name" value,
    host_path "hostPath" pointer,
    empty_dir "emptyDir" pointer,
    gce_persistent_disk "gcePersistentDisk" pointer,
    aws_elastic_block_store "awsElasticBlockStore" pointer,
    git_repo "gitRepo" pointer,
    secret "secret" pointer,
    nfs "nfs" pointer,
    iscsi "iscsi" pointer,
    glusterfs "glusterfs" pointer,
    persistent_volume_claim "persistentVolumeClaim" pointer,
    rbd "rbd" pointer,
    flex_volume "flexVolume" pointer,
    cinder "cinder" pointer,
    cephfs "cephfs" pointer,
    flocker "flocker" pointer,
    downward_api "downwardAPI" pointer,
    fc "fc" pointer,
    azure_file "azureFile" pointer,
    config_map "configMap" pointer,
    vsphere_volume "vsphereVolume" pointer,
    quobyte "quobyte" pointer,
    azure_disk "azureDisk" pointer,
    photon_persistent_disk "photonPersistentDisk" pointer,
    projected "projected" pointer,
    portworx_volume "portworxVolume" pointer,
    scale_io "scaleIO" pointer,
    storageos "storageos" pointer,
    csi "csi" pointer,
    ephemeral "ephemeral" pointer,
    image "image" pointer,
});

compare!(VolumeDevice {
    name "name" value,
    device_path "devicePath" value,
});

compare!(VolumeMount {
    name "name" value,
    read_only "readOnly" value,
    recursive_read_only "recursiveReadOnly" pointer,
    mount_path "mountPath" value,
    sub_path "subPath" value,
    mount_propagation "mountPropagation" pointer,
    sub_path_expr "subPathExpr" value,
});

compare!(VolumeProjection {
    secret "secret" pointer,
    downward_api "downwardAPI" pointer,
    config_map "configMap" pointer,
    service_account_token "serviceAccountToken" pointer,
    cluster_trust_bundle "clusterTrustBundle" pointer,
    pod_certificate "podCertificate" pointer,
});

compare!(VolumeResourceRequirements {
    limits "limits" value,
    requests "requests" value,
});

compare!(VsphereVirtualDiskVolumeSource {
    volume_path "volumePath" value,
    fs_type "fsType" value,
    storage_policy_name "storagePolicyName" value,
    storage_policy_id "storagePolicyID" value,
});

compare!(WeightedPodAffinityTerm {
    weight "weight" value,
    pod_affinity_term "podAffinityTerm" value,
});

compare!(WindowsSecurityContextOptions {
    gmsa_credential_spec_name "gmsaCredentialSpecName" pointer,
    gmsa_credential_spec "gmsaCredentialSpec" pointer,
    run_as_user_name "runAsUserName" pointer,
    host_process "hostProcess" pointer,
});

keyed! {
    Container by name,
    EnvVar by name,
    EphemeralContainer by name,
    HostAlias by ip,
    LocalObjectReference by name,
    PodResourceClaim by name,
    PodSchedulingGate by name,
    TopologySpreadConstraint by topology_key,
    Volume by name,
    VolumeDevice by device_path,
    VolumeMount by mount_path,
}
