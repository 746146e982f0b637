//! Each of these has the pod made again, exactly once, and is told.

use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;

use crate::changes::{self, OTHER_COLOUR, OTHER_TOKEN, documents};
use crate::stage::manifests::TOKEN;
use crate::stage::{Stage, play};
use crate::watched::Watched;

#[test]
fn another_image() {
    once(&["image"], changes::image);
}

#[test]
fn another_value_of_a_variable() {
    once(&["value"], changes::variable);
}

#[test]
fn a_port_more() {
    once(&["ports"], changes::port_more);
}

#[test]
fn a_port_less() {
    once(&["ports"], changes::port_less);
}

#[test]
fn a_toleration_less() {
    once(&["tolerations"], changes::toleration_less);
}

#[test]
fn metrics_switched_off_by_the_controllers_flag() {
    once(&["config", "ports"], changes::metrics_off);
}

#[test]
fn another_certificate() {
    once(&["config"], changes::certificate);
}

#[test]
fn other_metrics() {
    once(&["labels"], changes::metrics_config);
}

#[test]
fn another_minimum() {
    once(&["minRunners"], changes::minimum);
}

#[test]
fn another_maximum() {
    once(&["maxRunners"], changes::maximum);
}

#[test]
fn other_credentials() {
    once(&["config"], changes::token);
}

#[test]
fn other_credentials_while_no_controller_ran() {
    once(&["config"], changes::token_unobserved);
}

#[test]
fn a_pod_that_lost_its_mark() {
    once(&["config"], changes::mark_removed);
}

#[test]
fn a_pod_of_an_older_controller() {
    once(&["config"], changes::older_controller);
}

#[test]
fn a_pod_of_an_older_controller_that_did_not_see_the_last_change() {
    once(&["config"], changes::older_controller_and_token);
}

#[test]
fn another_config_url() {
    // not drift but another listener, under another name
    once(&[], changes::config_url);
}

/// Makes a change of a listener at rest. The pod is made again once; that is counted under one
/// of the reasons, and an Event tells why, without secrets.
fn once(reasons: &[&str], change: impl AsyncFnOnce(&Stage)) {
    play(async || {
        let stage = stage().await;
        let watched = Watched::at_rest(&stage, &documents()).await;
        watched.replaces("change", 1, change).await;
        let events = stage.all::<Event>().await;
        let told = events.iter().filter(|event| {
            let reason = event.reason.as_deref();
            matches!(reason, Some("ListenerRecreated" | "ListenerReplaced"))
        });
        let expected = usize::from(!reasons.is_empty());
        assert_eq!(told.count(), expected, "{events:#?}");
        let counted: f64 = reasons
            .iter()
            .map(|reason| {
                stage.counted("impresario_listener_recreations_total", ("reason", reason))
            })
            .sum();
        assert!(
            counted == if reasons.is_empty() { 0.0 } else { 1.0 },
            "{counted}"
        );
        for event in &events {
            let message = event.message.clone().unwrap_or_default();
            for secret in [TOKEN, OTHER_TOKEN, OTHER_COLOUR] {
                assert!(!message.contains(secret), "{}: {message}", event.name_any());
            }
        }
        stage.assert_sound();
    });
}

/// Everything runs, and listeners serve metrics.
pub async fn stage() -> Stage {
    let stage = Stage::embedded_with(50, |options| {
        options.settings.listener_metrics_addr = ":8080".to_owned();
    })
    .await;
    stage.start_controller();
    stage
}
