//! The AutoscalingListener of a scale set.

use k8s_openapi::api::core::v1::LocalObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::ControllerSettings;
use super::labels::owned_labels;
use super::metadata::users_annotations;
use super::names::listener_name;
use crate::api::constants::{UNLIMITED_RUNNERS, finalizers, labels};
use crate::api::{AutoscalingListener, AutoscalingListenerSpec, AutoscalingRunnerSet};

/// The AutoscalingListener of a scale set, in the controller's namespace. It has no owner
/// reference, since one cannot cross namespaces; its `autoscalingRunnerSet*` fields say whose
/// it is.
#[must_use]
pub fn autoscaling_listener(
    ars: &AutoscalingRunnerSet,
    scale_set_id: i64,
    settings: &ControllerSettings,
) -> AutoscalingListener {
    let user = ars.spec.autoscaling_listener.as_ref();
    AutoscalingListener {
        metadata: ObjectMeta {
            name: Some(listener_name(ars)),
            namespace: Some(settings.namespace.clone()),
            labels: Some(owned_labels(
                ars,
                labels::COMPONENT_LISTENER,
                user,
                settings,
            )),
            annotations: users_annotations(user),
            finalizers: Some(vec![finalizers::AUTOSCALING_LISTENER.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: listener_spec(ars, scale_set_id, settings),
        status: None,
    }
}

fn listener_spec(
    ars: &AutoscalingRunnerSet,
    scale_set_id: i64,
    settings: &ControllerSettings,
) -> AutoscalingListenerSpec {
    let spec = &ars.spec;
    let name = ars.metadata.name.clone().unwrap_or_default();
    AutoscalingListenerSpec {
        github_config_url: spec.github_config_url.clone(),
        github_config_secret: spec.github_config_secret.clone(),
        runner_scale_set_id: scale_set_id,
        autoscaling_runner_set_namespace: ars.metadata.namespace.clone().unwrap_or_default(),
        autoscaling_runner_set_name: name.clone(),
        ephemeral_runner_set_name: name,
        max_runners: spec.max_runners.unwrap_or(UNLIMITED_RUNNERS),
        min_runners: spec.min_runners.unwrap_or(0),
        image: settings.listener_image.clone(),
        image_pull_secrets: settings
            .image_pull_secrets
            .iter()
            .map(|name| LocalObjectReference { name: name.clone() })
            .collect(),
        proxy: spec.proxy.clone(),
        github_server_tls: spec.github_server_tls.clone(),
        vault_config: spec.vault_config.clone(),
        metrics: spec.listener_metrics.clone(),
        template: spec.listener_template.clone(),
        config_secret_metadata: spec.listener_config_secret_metadata.clone(),
        service_account_metadata: spec.listener_service_account_metadata.clone(),
        role_metadata: spec.listener_role_metadata.clone(),
        role_binding_metadata: spec.listener_role_binding_metadata.clone(),
        phase: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::test_support::{ars, settings};
    use super::*;

    #[test]
    fn each_field_comes_from_where_it_belongs() {
        let ars = ars();
        let listener = autoscaling_listener(&ars, 41, &settings());
        assert_eq!(
            serde_json::to_value(&listener.spec).unwrap(),
            json!({
                "githubConfigUrl": "https://github.com/acme/widgets",
                "githubConfigSecret": "github-secret",
                "runnerScaleSetId": 41,
                "autoscalingRunnerSetNamespace": "runners",
                "autoscalingRunnerSetName": "pool",
                "ephemeralRunnerSetName": "pool",
                "maxRunners": 9,
                "minRunners": 2,
                "image": "impresario:3",
                "imagePullSecrets": [{"name": "registry"}],
                "proxy": ars.spec.proxy,
                "githubServerTLS": ars.spec.github_server_tls,
                "metrics": ars.spec.listener_metrics,
                "template": ars.spec.listener_template,
                "configSecretMetadata": ars.spec.listener_config_secret_metadata,
                "serviceAccountMetadata": ars.spec.listener_service_account_metadata,
                "roleMetadata": ars.spec.listener_role_metadata,
                "roleBindingMetadata": ars.spec.listener_role_binding_metadata,
            })
        );
    }

    #[test]
    fn a_vault_is_handed_on() {
        let mut ars = ars();
        ars.spec.vault_config = Some(crate::api::VaultConfig::default());
        let listener = autoscaling_listener(&ars, 41, &settings());
        assert_eq!(listener.spec.vault_config, ars.spec.vault_config);
    }

    #[test]
    fn it_lives_in_the_controllers_namespace_without_an_owner() {
        let mut ars = ars();
        let metadata = autoscaling_listener(&ars, 41, &settings()).metadata;
        assert_eq!(metadata.name, Some(listener_name(&ars)));
        assert_eq!(metadata.namespace.as_deref(), Some("system"));
        assert_eq!(metadata.owner_references, None);
        assert_eq!(
            metadata.finalizers.unwrap(),
            ["autoscalinglistener.actions.github.com/finalizer"]
        );
        let labels = metadata.labels.unwrap();
        assert_eq!(labels["kind-label"], "listener");
        assert_eq!(labels[labels::COMPONENT], "runner-scale-set-listener");
        assert_eq!(metadata.annotations.unwrap()["kind-note"], "listener-note");
        ars.metadata.namespace = Some("system".to_owned());
        let metadata = autoscaling_listener(&ars, 41, &settings()).metadata;
        assert_eq!(metadata.owner_references, None);
    }

    #[test]
    fn without_limits_there_is_no_minimum_and_the_largest_maximum() {
        let mut ars = ars();
        ars.spec.min_runners = None;
        ars.spec.max_runners = None;
        let spec = autoscaling_listener(&ars, 41, &settings()).spec;
        assert_eq!((spec.min_runners, spec.max_runners), (0, 2_147_483_647));
    }
}
