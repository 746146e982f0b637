//! Objects for the tests of the builders; every value differs from every other, so that a
//! swap shows.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::{
    ControllerSettings, Sources, autoscaling_listener, ephemeral_runner, ephemeral_runner_set,
};
use crate::api::{AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet};
use crate::messages::Object;

pub(super) const CA: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

/// A scale set that uses most of what its spec has, but for a vault.
pub(super) fn ars() -> AutoscalingRunnerSet {
    let meta = |kind: &str| {
        json!({
            "labels": {"kind-label": kind, "app.kubernetes.io/component": "users"},
            "annotations": {"kind-note": format!("{kind}-note")},
        })
    };
    serde_json::from_value(json!({
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "AutoscalingRunnerSet",
        "metadata": {
            "name": "pool",
            "namespace": "runners",
            "uid": "ars-uid",
            "labels": {
                "team": "blue",
                "argocd.argoproj.io/instance": "pools",
                "app.kubernetes.io/version": "0.14.2",
                "app.kubernetes.io/part-of": "gha-rs",
                "actions.github.com/enterprise": "of-an-earlier-url",
            },
            "annotations": {"not": "passed down"},
        },
        "spec": {
            "githubConfigUrl": "https://github.com/acme/widgets",
            "githubConfigSecret": "github-secret",
            "runnerGroup": "gpu",
            "proxy": {
                "http": {"url": "http://plain.proxy:3128"},
                "https": {"url": "http://tls.proxy:3129", "credentialSecretRef": "proxy-auth"},
                "noProxy": ["10.0.0.0/8", "acme.internal"],
            },
            "githubServerTLS": {
                "certificateFrom": {"configMapKeyRef": {"name": "ca-map", "key": "ca.crt"}},
            },
            "minRunners": 2,
            "maxRunners": 9,
            "listenerTemplate": {"metadata": {"labels": {"from": "listener-template"}}},
            "listenerMetrics": {"gauges": {"gha_busy_runners": {"labels": ["name"]}}},
            "autoscalingListener": meta("listener"),
            "listenerServiceAccountMetadata": meta("account"),
            "listenerRoleMetadata": meta("role"),
            "listenerRoleBindingMetadata": meta("binding"),
            "listenerConfigSecretMetadata": meta("config"),
            "ephemeralRunnerSetMetadata": meta("set"),
            "ephemeralRunnerMetadata": meta("runner"),
            "ephemeralRunnerConfigSecretMetadata": meta("jit"),
            "template": {
                "metadata": {
                    "labels": {"from": "runner-template", "team": "green"},
                    "annotations": {"sidecar": "off"},
                },
                "spec": {
                    "serviceAccountName": "no-permission",
                    "containers": [
                        {"name": "sidecar", "image": "sidecar:1"},
                        {
                            "name": "runner",
                            "image": "runner:2",
                            "workingDir": "/work",
                            "env": [
                                {"name": "FIRST", "value": "1"},
                                {"name": "ACTIONS_RUNNER_INPUT_JITCONFIG", "value": "users"},
                                {"name": "no_proxy", "value": "the-users"},
                            ],
                        },
                    ],
                },
            },
        },
    }))
    .unwrap()
}

pub(super) fn settings() -> ControllerSettings {
    ControllerSettings {
        namespace: "system".to_owned(),
        listener_image: "impresario:3".to_owned(),
        image_pull_secrets: vec!["registry".to_owned()],
        listener_entrypoint: "/entry".to_owned(),
        listener_metrics_addr: ":8081".to_owned(),
        listener_metrics_endpoint: "/scrape".to_owned(),
        log_level: "debug".to_owned(),
        log_format: "json".to_owned(),
        excluded_label_prefixes: vec!["argocd.argoproj.io/".to_owned()],
        version: "1.2.3".to_owned(),
        ..ControllerSettings::default()
    }
}

/// The listener of [`ars`], as the API server has it.
pub(super) fn listener() -> AutoscalingListener {
    let mut listener = autoscaling_listener(&ars(), 41, &settings());
    listener.metadata.name = Some("pool-al".to_owned());
    listener.metadata.uid = Some("al-uid".to_owned());
    listener
}

/// The runner set of [`ars`], as the API server has it after some patches.
pub(super) fn set() -> EphemeralRunnerSet {
    let mut set = ephemeral_runner_set(&ars(), 42, &settings());
    set.metadata.uid = Some("ers-uid".to_owned());
    set.spec.patch_id = 17;
    set.spec.actionable_revision = Some(5);
    set
}

/// A runner of [`set`], as the API server has it.
pub(crate) fn runner() -> EphemeralRunner {
    let mut runner = ephemeral_runner(&set(), "pool-runner-abcde");
    runner.metadata.uid = Some("er-uid".to_owned());
    runner
}

/// All that the Secrets of [`listener`] and [`set`] are made from.
pub(super) fn sources() -> Sources {
    let mut sources = Sources::default();
    for object in [
        secret("runners", "github-secret", &[("github_token", "ghp_token")]),
        secret(
            "runners",
            "proxy-auth",
            &[("username", "me@acme"), ("password", "p:/ss\n")],
        ),
        config_map("runners", "ca-map", &[("ca.crt", CA)]),
    ] {
        sources.insert(&object);
    }
    sources
}

pub(super) fn secret(namespace: &str, name: &str, pairs: &[(&str, &str)]) -> Object {
    Secret {
        metadata: named(namespace, name),
        data: Some(
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())))
                .collect(),
        ),
        ..Secret::default()
    }
    .into()
}

pub(super) fn config_map(namespace: &str, name: &str, pairs: &[(&str, &str)]) -> Object {
    ConfigMap {
        metadata: named(namespace, name),
        data: Some(map(pairs)),
        ..ConfigMap::default()
    }
    .into()
}

pub(super) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// The data of a Secret as text.
pub(super) fn texts(data: Option<&BTreeMap<String, ByteString>>) -> BTreeMap<String, String> {
    data.into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), String::from_utf8(value.0.clone()).unwrap()))
        .collect()
}

fn named(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ObjectMeta::default()
    }
}
