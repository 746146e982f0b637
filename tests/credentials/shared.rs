//! Two AutoscalingRunnerSets of one name, group and config URL, in two namespaces.

use std::time::Duration;

use impresario::api::AutoscalingRunnerSet;
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

use crate::stage::manifests::{RUN, SET, credentials, fixture, namespace, scale_set};
use crate::stage::{Stage, play};

const TEAM: &str = "team-b";

fn moved(mut document: Value) -> Value {
    document["metadata"]["namespace"] = json!(TEAM);
    document
}

async fn registered(stage: &Stage, namespace: &str) -> String {
    let set: Option<AutoscalingRunnerSet> = stage.get(namespace, SET).await;
    let conditions = set
        .and_then(|set| set.status)
        .unwrap_or_default()
        .conditions;
    let found = conditions.iter().find(|one| one.type_ == "Registered");
    found.map_or(String::new(), |one| {
        format!("{} {}", one.reason, one.message)
    })
}

async fn warnings(stage: &Stage, namespace: &str, reason: &str) -> Vec<String> {
    let events = stage.all::<Event>().await;
    let those = events.into_iter().filter(|event| {
        event.involved_object.namespace.as_deref() == Some(namespace)
            && event.reason.as_deref() == Some(reason)
    });
    those.filter_map(|event| event.message).collect()
}

#[test]
fn a_scale_set_that_two_have_is_said_on_both_and_left_to_the_one_that_stays() {
    play(async || {
        let stage = Stage::whole(25).await;
        stage.apply(&fixture(1, 2)).await;
        stage
            .until("the first is registered", async || {
                registered(&stage, RUN).await.starts_with("Registered ")
            })
            .await;
        stage
            .apply(&[
                namespace(TEAM),
                moved(credentials()),
                moved(scale_set(1, 2)),
            ])
            .await;
        stage
            .until("both say so", async || {
                let (one, other) = (
                    registered(&stage, RUN).await,
                    registered(&stage, TEAM).await,
                );
                one.starts_with("ScaleSetShared ")
                    && one.contains("team-b/set")
                    && other.starts_with("ScaleSetShared ")
                    && other.contains("run/set")
            })
            .await;
        assert_eq!(stage.actions.scale_sets().len(), 1);
        for namespace in [RUN, TEAM] {
            assert_eq!(warnings(&stage, namespace, "ScaleSetShared").await.len(), 1);
        }

        // a new controller sees it again
        stage.start_controller();
        stage.pass(Duration::from_secs(30)).await;
        assert!(registered(&stage, RUN).await.starts_with("ScaleSetShared "));

        stage.delete::<AutoscalingRunnerSet>(TEAM, SET).await;
        stage
            .until("the second is gone", async || {
                stage.get::<AutoscalingRunnerSet>(TEAM, SET).await.is_none()
            })
            .await;
        assert_eq!(stage.actions.scale_sets().len(), 1, "it is still in use");
        let left = warnings(&stage, TEAM, "ScaleSetLeft").await;
        assert!(left[0].contains("run/set still has it"), "{left:?}");
        stage
            .until("the first has it alone", async || {
                registered(&stage, RUN).await.starts_with("Registered ")
            })
            .await;
        stage.queue_jobs(2, SET, Duration::from_secs(20));
        stage
            .within(Duration::from_secs(400), "all jobs are done", async || {
                stage.jobs_done() == 2
            })
            .await;
        stage.delete_scale_set().await;
    });
}
