//! Whole objects that the controller owns, and their parts.

use k8s_openapi::api::core::v1::{ObjectReference, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};

use super::field::compare;

compare!(ObjectReference {
    kind "kind" value,
    namespace "namespace" value,
    name "name" value,
    uid "uid" value,
    api_version "apiVersion" value,
    resource_version "resourceVersion" value,
    field_path "fieldPath" value,
});

compare!(Pod {
    metadata "metadata" value,
    spec "spec" value,
    status "status" value,
});

compare!(PolicyRule {
    verbs "verbs" value,
    api_groups "apiGroups" value,
    resources "resources" value,
    resource_names "resourceNames" value,
    non_resource_urls "nonResourceURLs" value,
});

compare!(Role {
    metadata "metadata" value,
    rules "rules" value,
});

compare!(RoleBinding {
    metadata "metadata" value,
    subjects "subjects" value,
    role_ref "roleRef" value,
});

compare!(RoleRef {
    api_group "apiGroup" value,
    kind "kind" value,
    name "name" value,
});

compare!(Secret {
    metadata "metadata" value,
    immutable "immutable" pointer,
    data "data" masked,
    string_data "stringData" masked,
    type_ "type" value,
});

compare!(ServiceAccount {
    metadata "metadata" value,
    secrets "secrets" keyed,
    image_pull_secrets "imagePullSecrets" keyed,
    automount_service_account_token "automountServiceAccountToken" pointer,
});

compare!(Subject {
    kind "kind" value,
    api_group "apiGroup" value,
    name "name" value,
    namespace "namespace" value,
});
