//! Metadata and label selectors: `k8s.io/apimachinery/pkg/apis/meta/v1`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, LabelSelectorRequirement, ManagedFieldsEntry, ObjectMeta, OwnerReference,
};

use super::field::compare;
use super::list::keyed;

compare!(LabelSelector {
    match_labels "matchLabels" value,
    match_expressions "matchExpressions" value,
});

compare!(LabelSelectorRequirement {
    key "key" value,
    operator "operator" value,
    values "values" value,
});

compare!(ManagedFieldsEntry {
    manager "manager" value,
    operation "operation" value,
    api_version "apiVersion" value,
    time "time" pointer,
    fields_type "fieldsType" value,
    fields_v1 "fieldsV1" pointer,
    subresource "subresource" value,
});

compare!(ObjectMeta {
    name "name" value,
    generate_name "generateName" value,
    namespace "namespace" value,
    self_link "selfLink" value,
    uid "uid" value,
    resource_version "resourceVersion" value,
    generation "generation" value,
    creation_timestamp "creationTimestamp" value,
    deletion_timestamp "deletionTimestamp" pointer,
    deletion_grace_period_seconds "deletionGracePeriodSeconds" pointer,
    labels "labels" value,
    annotations "annotations" value,
    owner_references "ownerReferences" keyed,
    finalizers "finalizers" value,
    managed_fields "managedFields" value,
});

compare!(OwnerReference {
    api_version "apiVersion" value,
    kind "kind" value,
    name "name" value,
    uid "uid" value,
    controller "controller" pointer,
    block_owner_deletion "blockOwnerDeletion" pointer,
});

keyed! {
    OwnerReference by uid,
}
