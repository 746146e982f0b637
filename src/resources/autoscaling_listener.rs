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
