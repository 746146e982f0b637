//! The EphemeralRunnerSet of a scale set.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::ControllerSettings;
use super::labels::owned_labels;
use super::metadata::{owner_reference, users_annotations};
use crate::api::constants::{finalizers, labels};
use crate::api::{
    AutoscalingRunnerSet, EphemeralRunnerSet, EphemeralRunnerSetSpec, EphemeralRunnerSpec,
    ResourceMeta,
};

/// The EphemeralRunnerSet of a scale set, as it is created: with no runners and at revision 1.
/// `replicas` and `patchID` are the listener's from then on.
#[must_use]
pub fn ephemeral_runner_set(
    ars: &AutoscalingRunnerSet,
    scale_set_id: i64,
    settings: &ControllerSettings,
) -> EphemeralRunnerSet {
    let user = ars.spec.ephemeral_runner_set_metadata.as_ref();
    let component = labels::COMPONENT_RUNNER_SET;
    EphemeralRunnerSet {
        metadata: ObjectMeta {
            name: ars.metadata.name.clone(),
            namespace: ars.metadata.namespace.clone(),
            labels: Some(owned_labels(ars, component, user, settings)),
            annotations: users_annotations(user),
            finalizers: Some(vec![finalizers::EPHEMERAL_RUNNER_SET.to_owned()]),
            owner_references: Some(vec![owner_reference(ars)]),
            ..ObjectMeta::default()
        },
        spec: EphemeralRunnerSetSpec {
            replicas: Some(0),
            patch_id: 0,
            actionable_revision: Some(1),
            ephemeral_runner_spec: Some(ephemeral_runner_spec(ars, scale_set_id)),
            ephemeral_runner_metadata: runner_metadata(ars),
        },
        status: None,
    }
}

/// What each runner of a scale set is made of. The name of the proxy Secret is not in it: each
/// runner gets it when it is made.
#[must_use]
pub fn ephemeral_runner_spec(ars: &AutoscalingRunnerSet, scale_set_id: i64) -> EphemeralRunnerSpec {
    let spec = &ars.spec;
    let config_secret_metadata = &spec.ephemeral_runner_config_secret_metadata;
    let PodTemplateSpec {
        metadata,
        spec: pod_spec,
    } = spec.template.clone();
    EphemeralRunnerSpec {
        github_config_url: spec.github_config_url.clone(),
        github_config_secret: spec.github_config_secret.clone(),
        github_server_tls: spec.github_server_tls.clone(),
        runner_scale_set_id: scale_set_id,
        proxy: spec.proxy.clone(),
        proxy_secret_ref: String::new(),
        vault_config: spec.vault_config.clone(),
        ephemeral_runner_config_secret_metadata: config_secret_metadata.clone(),
        metadata,
        spec: pod_spec,
    }
}

/// Labels and annotations that each new runner of a scale set gets.
#[must_use]
pub fn runner_metadata(ars: &AutoscalingRunnerSet) -> Option<ResourceMeta> {
    ars.spec.ephemeral_runner_metadata.clone()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::test_support::{ars, settings};
    use super::*;

    #[test]
    fn it_starts_with_no_runners_at_the_first_revision() {
        let ars = ars();
        let set = ephemeral_runner_set(&ars, 42, &settings());
        assert_eq!(
            serde_json::to_value(&set.spec).unwrap(),
            json!({
                "replicas": 0,
                "patchID": 0,
                "actionableRevision": 1,
                "ephemeralRunnerSpec": {
                    "githubConfigUrl": "https://github.com/acme/widgets",
                    "githubConfigSecret": "github-secret",
                    "githubServerTLS": ars.spec.github_server_tls,
                    "runnerScaleSetId": 42,
                    "proxy": ars.spec.proxy,
                    "ephemeralRunnerConfigSecretMetadata":
                        ars.spec.ephemeral_runner_config_secret_metadata,
                    "metadata": ars.spec.template.metadata,
                    "spec": ars.spec.template.spec,
                },
                "ephemeralRunnerMetadata": ars.spec.ephemeral_runner_metadata,
            })
        );
    }

    #[test]
    fn it_is_named_as_its_scale_set_and_owned_by_it() {
        let ars = ars();
        let metadata = ephemeral_runner_set(&ars, 42, &settings()).metadata;
        assert_eq!(metadata.name.as_deref(), Some("pool"));
        assert_eq!(metadata.namespace.as_deref(), Some("runners"));
        assert_eq!(metadata.owner_references, Some(vec![owner_reference(&ars)]));
        assert_eq!(
            metadata.finalizers.unwrap(),
            ["ephemeralrunnerset.actions.github.com/finalizer"]
        );
        let labels = metadata.labels.unwrap();
        assert_eq!(labels["kind-label"], "set");
        assert_eq!(labels[labels::COMPONENT], "runner-set");
        assert_eq!(metadata.annotations.unwrap()["kind-note"], "set-note");
    }

    #[test]
    fn a_vault_is_handed_on_to_runners() {
        let mut ars = ars();
        ars.spec.vault_config = Some(crate::api::VaultConfig::default());
        assert_eq!(
            ephemeral_runner_spec(&ars, 42).vault_config,
            ars.spec.vault_config
        );
    }
}
