//! What lets a listener change the objects of its scale set: ServiceAccount, Role and
//! RoleBinding.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::metadata::owned_meta;
use crate::api::constants::{GROUP, labels};
use crate::api::{AutoscalingListener, ResourceMeta};
use crate::messages::Kind;

/// API group of Role and RoleBinding.
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// The account that the listener's pod runs as.
#[must_use]
pub fn listener_service_account(al: &AutoscalingListener) -> ServiceAccount {
    let name = al.metadata.name.clone().unwrap_or_default();
    let user = al.spec.service_account_metadata.as_ref();
    ServiceAccount {
        metadata: owned_meta(al, name, labels::COMPONENT_LISTENER, user),
        ..ServiceAccount::default()
    }
}

/// What the listener may do in its scale set's namespace: scale the one set, and record jobs
/// on its runners.
#[must_use]
pub fn listener_role(al: &AutoscalingListener) -> Role {
    let set = al.spec.ephemeral_runner_set_name.as_str();
    let runners = Kind::EphemeralRunner.plural();
    Role {
        metadata: access_meta(al, al.spec.role_metadata.as_ref()),
        rules: Some(vec![
            rule(&[Kind::EphemeralRunnerSet.plural()], Some(set)),
            rule(&[runners, &format!("{runners}/status")], None),
        ]),
    }
}

/// Gives the Role to the ServiceAccount.
#[must_use]
pub fn listener_role_binding(al: &AutoscalingListener) -> RoleBinding {
    let name = al.metadata.name.clone().unwrap_or_default();
    RoleBinding {
        metadata: access_meta(al, al.spec.role_binding_metadata.as_ref()),
        role_ref: RoleRef {
            api_group: Some(RBAC_GROUP.to_owned()),
            kind: Kind::Role.as_str().to_owned(),
            name: name.clone(),
        },
        subjects: Some(vec![Subject {
            api_group: None,
            kind: Kind::ServiceAccount.as_str().to_owned(),
            name,
            namespace: al.metadata.namespace.clone(),
        }]),
    }
}

fn rule(resources: &[&str], name: Option<&str>) -> PolicyRule {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    PolicyRule {
        api_groups: Some(owned(&[GROUP])),
        resources: Some(owned(resources)),
        resource_names: name.map(|name| owned(&[name])),
        verbs: owned(&["get", "patch"]),
        ..PolicyRule::default()
    }
}

/// Metadata of an object in the scale set's namespace. An owner reference cannot cross
/// namespaces, so labels say which listener it is for.
fn access_meta(al: &AutoscalingListener, user: Option<&ResourceMeta>) -> ObjectMeta {
    let name = al.metadata.name.clone().unwrap_or_default();
    let namespace = al.metadata.namespace.clone().unwrap_or_default();
    let mut meta = owned_meta(al, name.clone(), labels::COMPONENT_LISTENER, user);
    if namespace != al.spec.autoscaling_runner_set_namespace {
        meta.owner_references = None;
    }
    meta.namespace = Some(al.spec.autoscaling_runner_set_namespace.clone());
    let own = meta.labels.get_or_insert_default();
    own.insert(labels::LISTENER_NAMESPACE.to_owned(), namespace);
    own.insert(labels::LISTENER_NAME.to_owned(), name);
    meta
}
