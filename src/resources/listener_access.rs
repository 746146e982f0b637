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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::metadata::owner_reference;
    use super::super::test_support::listener;
    use super::*;

    #[test]
    fn the_account_lives_beside_its_listener_and_goes_with_it() {
        let al = listener();
        let metadata = listener_service_account(&al).metadata;
        assert_eq!(metadata.name.as_deref(), Some("pool-al"));
        assert_eq!(metadata.namespace.as_deref(), Some("system"));
        assert_eq!(metadata.owner_references, Some(vec![owner_reference(&al)]));
        assert_eq!(metadata.annotations.unwrap()["kind-note"], "account-note");
        let labels = metadata.labels.unwrap();
        assert_eq!(labels["kind-label"], "account");
        assert_eq!(labels[labels::COMPONENT], "runner-scale-set-listener");
        assert!(!labels.contains_key(labels::LISTENER_NAME));
    }

    #[test]
    fn the_role_lets_it_scale_one_set_and_record_jobs_on_runners() {
        assert_eq!(
            serde_json::to_value(listener_role(&listener()).rules).unwrap(),
            json!([
                {
                    "apiGroups": ["actions.github.com"],
                    "resources": ["ephemeralrunnersets"],
                    "resourceNames": ["pool"],
                    "verbs": ["get", "patch"],
                },
                {
                    "apiGroups": ["actions.github.com"],
                    "resources": ["ephemeralrunners", "ephemeralrunners/status"],
                    "verbs": ["get", "patch"],
                },
            ])
        );
    }

    #[test]
    fn the_binding_gives_the_role_to_the_account_in_the_other_namespace() {
        let binding = serde_json::to_value(listener_role_binding(&listener())).unwrap();
        assert_eq!(
            binding["roleRef"],
            json!({
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "pool-al",
            })
        );
        assert_eq!(
            binding["subjects"],
            json!([{"kind": "ServiceAccount", "name": "pool-al", "namespace": "system"}])
        );
    }

    #[test]
    fn labels_say_whose_they_are_where_an_owner_reference_cannot() {
        let al = listener();
        for (metadata, kind) in [
            (listener_role(&al).metadata, "role"),
            (listener_role_binding(&al).metadata, "binding"),
        ] {
            assert_eq!(metadata.name.as_deref(), Some("pool-al"));
            assert_eq!(metadata.namespace.as_deref(), Some("runners"));
            assert_eq!(metadata.owner_references, None);
            let labels = metadata.labels.unwrap();
            assert_eq!(labels["auto-scaling-listener-namespace"], "system");
            assert_eq!(labels["auto-scaling-listener-name"], "pool-al");
            assert_eq!(labels["kind-label"], kind);
            let note = &metadata.annotations.unwrap()["kind-note"];
            assert_eq!(*note, format!("{kind}-note"));
        }
    }

    #[test]
    fn in_the_listeners_own_namespace_it_owns_them() {
        let mut al = listener();
        al.spec.autoscaling_runner_set_namespace = "system".to_owned();
        let owners = Some(vec![owner_reference(&al)]);
        assert_eq!(listener_role(&al).metadata.owner_references, owners);
        assert_eq!(listener_role_binding(&al).metadata.owner_references, owners);
    }
}
