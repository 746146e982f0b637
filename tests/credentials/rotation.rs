//! A Secret with credentials is changed while everything runs.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::key_files::PKCS8;
use crate::stage::manifests::{RUN, SET, TOKEN};
use crate::stage::{Stage, play};

const NEW: &str = "ghp_AndNobodyThisOne";
const JOB: Duration = Duration::from_secs(20);
/// A sync period of the listener's sources, and the making of a pod.
const RENEWED: Duration = Duration::from_secs(90);

fn app() -> Value {
    json!({
        "github_app_id": "Iv23liOrchid",
        "github_app_installation_id": "4711",
        "github_app_private_key": PKCS8,
    })
}

fn token(token: &str) -> Value {
    json!({ "github_token": token })
}

/// Replaces what the Secret holds, as a person does.
async fn hold(stage: &Stage, data: Value) {
    let api = Api::<Secret>::namespaced(stage.client.clone(), RUN);
    let mut secret = api.get("gh").await.unwrap();
    secret.data = None;
    secret.string_data = serde_json::from_value(data).unwrap();
    api.replace("gh", &PostParams::default(), &secret)
        .await
        .unwrap();
}

async fn listener_uids(stage: &Stage) -> Vec<String> {
    let pods = stage.listener_pods().await;
    pods.iter().filter_map(ResourceExt::uid).collect()
}

fn listeners_made(stage: &Stage) -> usize {
    let writes = stage.warden.writes();
    let made = writes.iter().filter(|write| {
        write.verb == "create"
            && write.resource == "pods"
            && write.namespace == impresario::simulation::cluster::CONTROLLER_NAMESPACE
    });
    made.count()
}

/// Waits until the listener's pod is another one, and shows that it is made again only once.
async fn renewed_once(stage: &Stage, before: &[String], made: usize) {
    stage
        .within(RENEWED, "the listener's pod is renewed", async || {
            let now = listener_uids(stage).await;
            now.len() == 1 && now != before
        })
        .await;
    stage.pass(Duration::from_secs(300)).await;
    assert_eq!(listeners_made(stage) - made, 1, "{}", stage.picture().await);
}

#[test]
fn a_rotated_token_is_used_by_the_next_call_and_renews_the_listener_once() {
    play(async || {
        let stage = Stage::whole(21).await;
        stage.actions.accept_only([TOKEN]);
        stage.settled_fixture(1, 4).await;
        let (before, made) = (listener_uids(&stage).await, listeners_made(&stage));

        hold(&stage, token(NEW)).await;
        stage.pass(Duration::from_secs(3)).await;
        // the next call of the controller, before the listener is renewed
        stage.actions.accept_only([NEW]);
        drop(stage.cluster().take_log());
        stage.edit(json!({"runnerScaleSetLabels": ["gpu"]})).await;
        stage
            .within(Duration::from_secs(5), "the call is made", async || {
                stage.actions.scale_sets()[0]
                    .labels
                    .contains(&"gpu".to_owned())
            })
            .await;
        assert_eq!(refusals(&stage), 0, "the new token was used at once");

        renewed_once(&stage, &before, made).await;
        stage.queue_jobs(3, SET, JOB);
        stage
            .until("all jobs are done", async || stage.jobs_done() == 3)
            .await;
        assert_eq!(listeners_made(&stage) - made, 1);
        stage.assert_sound();
    });
}

/// How many registration tokens were refused since the log was taken last.
fn refusals(stage: &Stage) -> usize {
    let log = stage.cluster().take_log();
    let refused = log
        .iter()
        .filter(|line| line.contains("create_registration_token -> 401"));
    refused.count()
}

#[test]
fn a_token_revoked_before_its_successor_is_there_is_replaced_without_an_edit() {
    play(async || {
        let stage = Stage::whole(22).await;
        stage.actions.accept_only([TOKEN]);
        stage.settled_fixture(1, 4).await;
        stage.actions.accept_only([NEW]);
        stage.pass(Duration::from_secs(120)).await;
        hold(&stage, token(NEW)).await;
        stage.queue_jobs(3, SET, JOB);
        stage
            .until("all jobs are done", async || stage.jobs_done() == 3)
            .await;
        stage.settle().await;
        stage.assert_sound();
    });
}

#[test]
fn an_app_takes_the_place_of_a_token_and_a_token_that_of_an_app() {
    play(async || {
        let stage = Stage::whole(23).await;
        stage.actions.accept_only([TOKEN]);
        stage.settled_fixture(1, 4).await;
        let mut done = 0;
        for (data, accepted) in [(app(), vec![]), (token(NEW), vec![NEW])] {
            let (before, made) = (listener_uids(&stage).await, listeners_made(&stage));
            hold(&stage, data).await;
            stage.actions.accept_only(accepted);
            renewed_once(&stage, &before, made).await;
            stage.queue_jobs(2, SET, JOB);
            done += 2;
            stage
                .until("all jobs are done", async || stage.jobs_done() == done)
                .await;
        }
        stage.settle().await;
        stage.assert_sound();
    });
}
