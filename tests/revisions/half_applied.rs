//! A half-applied update is not settled (SCN-16): it stays pending, is tried again and again at
//! longer intervals, says what is in its way, and gets through without an edit.

use std::time::Duration;

use embedded_kube::ApiError;
use impresario::api::{AutoscalingRunnerSet, AutoscalingRunnerSetPhase, EphemeralRunnerSet};
use serde_json::Value;

use crate::scenes::revisions;
use crate::stage::manifests::{RUN, SET, fixture};
use crate::stage::{Hindrance, Stage, Writes, play};

const OTHER: &str = "other";
const MINUTE: Duration = Duration::from_secs(60);
/// A refused request is tried again after that time at the latest.
const LONGEST: Duration = Duration::from_secs(400);

/// What an API server says that has lost its etcd.
pub fn out_of_order() -> ApiError {
    ApiError::new(500, "InternalError", "etcdserver: request timed out")
}

async fn scale_set(stage: &Stage, namespace: &str) -> AutoscalingRunnerSet {
    stage.get(namespace, SET).await.unwrap()
}

async fn is_settled(stage: &Stage, namespace: &str) -> bool {
    let set = scale_set(stage, namespace).await;
    let status = set.status.unwrap_or_default();
    status.phase == Some(AutoscalingRunnerSetPhase::Running)
        && status.observed_generation == set.metadata.generation
}

/// It is pending, and less was observed than there is.
async fn assert_pending(stage: &Stage) {
    let set = scale_set(stage, RUN).await;
    let status = set.status.unwrap_or_default();
    assert_eq!(status.phase, Some(AutoscalingRunnerSetPhase::Pending));
    assert!(status.observed_generation < set.metadata.generation);
}

/// Another scale set, in another namespace, settles meanwhile.
async fn another_settles(stage: &Stage) {
    let mut documents = fixture(0, 10);
    for document in &mut documents {
        match document["kind"].as_str() {
            Some("Namespace") => document["metadata"]["name"] = OTHER.into(),
            _ => document["metadata"]["namespace"] = Value::from(OTHER),
        }
    }
    let before = stage.listener_pods().await.len();
    stage.apply(&documents).await;
    stage
        .until("it has a listener pod", async || {
            stage.listener_pods().await.len() > before
        })
        .await;
    stage.start_listener().await;
    stage
        .until("it is settled", async || is_settled(stage, OTHER).await)
        .await;
}

/// Attempts per minute fall, to hardly any.
async fn assert_patience(stage: &Stage, hindrance: &Hindrance) {
    let mut met = vec![hindrance.met()];
    for _ in 0..6 {
        stage.pass(MINUTE).await;
        met.push(hindrance.met());
    }
    let per_minute: Vec<usize> = met.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(met[1] > 3, "it is tried at first: {met:?}");
    assert!(per_minute[5] <= 2, "it is hardly tried any more: {met:?}");
    let falls = per_minute.windows(2).all(|pair| pair[1] <= pair[0] + 1);
    assert!(falls, "{per_minute:?}");
    assert!(
        per_minute[5] > 0 || per_minute[4] > 0,
        "it goes on: {met:?}"
    );
}

/// Variant A.
#[test]
fn a_runner_set_that_cannot_be_patched_keeps_an_update_pending() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 10).await;
        let patches = Writes::of("patch", "ephemeralrunnersets").inside(RUN);
        let statuses = Writes::of("patch", "ephemeralrunnersets/status").inside(RUN);
        let refused = stage.warden.refuse(patches, out_of_order());
        let also = stage.warden.refuse(statuses, out_of_order());
        stage.set_image("img:2").await;
        stage.until("it is tried", async || refused.met() > 0).await;
        assert_patience(&stage, &refused).await;
        assert_pending(&stage).await;
        another_settles(&stage).await;
        assert_pending(&stage).await;

        refused.lift();
        also.lift();
        stage
            .within(LONGEST, "it is settled", async || {
                is_settled(&stage, RUN).await
            })
            .await;
        let set: EphemeralRunnerSet = stage.get(RUN, SET).await.unwrap();
        assert_eq!(revisions(&set), (2, 2));
        stage.assert_at_rest().await;
        stage.assert_sound();
    });
}

/// The spec is there, and only its application cannot be put on record.
#[test]
fn a_revision_that_cannot_be_recorded_as_applied_keeps_an_update_pending() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 10).await;
        let statuses = Writes::of("patch", "ephemeralrunnersets/status").inside(RUN);
        let refused = stage.warden.refuse(statuses, out_of_order());
        stage.set_image("img:2").await;
        stage.pass(MINUTE).await;
        assert_pending(&stage).await;
        let set: EphemeralRunnerSet = stage.get(RUN, SET).await.unwrap();
        assert_eq!(revisions(&set), (2, 1));
        refused.lift();
        stage
            .within(LONGEST, "it is settled", async || {
                is_settled(&stage, RUN).await
            })
            .await;
        stage.assert_at_rest().await;
        stage.assert_sound();
    });
}

/// Variant B.
#[test]
fn a_missing_right_keeps_a_new_scale_set_pending_and_is_named() {
    play(async || {
        let stage = Stage::by_hand().await;
        let message = "roles.rbac.authorization.k8s.io is forbidden: User \
                       \"system:serviceaccount:arc-systems:impresario-controller\" cannot create \
                       resource \"roles\" in API group \"rbac.authorization.k8s.io\" in the \
                       namespace \"run\"";
        let refused = stage.warden.refuse(
            Writes::of("create", "roles").inside(RUN),
            ApiError::new(403, "Forbidden", message),
        );
        stage.apply(&fixture(0, 10)).await;
        stage.until("it is tried", async || refused.met() > 0).await;
        assert_patience(&stage, &refused).await;
        assert_pending(&stage).await;
        assert!(stage.listener_pods().await.is_empty());
        // verb and resource are named
        let named = |text: &str| text.contains("cannot create") && text.contains("\"roles\"");
        let status = scale_set(&stage, RUN).await.status.unwrap_or_default();
        let mut told = status.conditions.iter();
        assert!(
            told.any(|one| one.status == "False" && named(&one.message)),
            "{told:?}"
        );
        another_settles(&stage).await;
        assert_pending(&stage).await;

        refused.lift();
        stage
            .within(LONGEST, "it has a listener pod", async || {
                stage.listener_pods().await.len() == 2
            })
            .await;
        stage.start_listener().await;
        stage
            .until("it is settled", async || is_settled(&stage, RUN).await)
            .await;
        stage.assert_at_rest().await;
        stage.assert_sound();
    });
}
