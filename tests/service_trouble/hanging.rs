//! SCN-17: calls that are never answered wedge nothing: not the other scale sets, and not those
//! that they were made for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use embedded_actions::{CallInfo, Fault, Outcome, Refusal};
use impresario::api::constants::annotations;
use impresario::api::{
    AutoscalingListener, AutoscalingRunnerSet, AutoscalingRunnerSetPhase, EphemeralRunnerSet,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::stage::manifests::{self, RUN, SET};
use crate::stage::{Stage, play};
use crate::watched::Watched;

/// Every call has a deadline, and what waited goes on within this time.
const SOON: Duration = Duration::from_secs(90);
/// The runner group that the stuck scale sets are moved to.
const GROUP: &str = "isolated";
const NAMES: [&str; 3] = ["a1", "a2", "b"];

/// The namespace of a scale set.
fn namespace(name: &str) -> String {
    format!("run-{name}")
}

/// The fixture's objects under another name and for another config URL.
fn fixture(name: &str, url: &str) -> Vec<Value> {
    let mut documents = manifests::fixture(0, 10);
    for document in &mut documents {
        if document["kind"] == "Namespace" {
            document["metadata"]["name"] = namespace(name).into();
        } else {
            document["metadata"]["namespace"] = namespace(name).into();
        }
        if document["metadata"]["name"] == SET {
            document["metadata"]["name"] = name.into();
            document["spec"]["githubConfigUrl"] = url.into();
        }
    }
    assert!(!json!(documents).to_string().contains(&format!("\"{RUN}\"")));
    documents
}

async fn set(stage: &Stage, name: &str) -> AutoscalingRunnerSet {
    stage.get(&namespace(name), name).await.unwrap()
}

async fn is_settled(stage: &Stage, name: &str) -> bool {
    let set = set(stage, name).await;
    let status = set.status.unwrap_or_default();
    status.phase == Some(AutoscalingRunnerSetPhase::Running)
        && status.observed_generation == set.metadata.generation
}

async fn edit(stage: &Stage, name: &str, spec: Value) {
    let patch = json!({"spec": spec});
    stage
        .patch::<AutoscalingRunnerSet>(&namespace(name), name, patch)
        .await;
}

/// Three settled scale sets: a1 and a2 of one owner, b as told.
async fn settled(url_of_b: &str) -> (Stage, Arc<Watched>, BTreeMap<String, i64>) {
    let (stage, watched) = Watched::stage(true).await;
    stage.actions.add_runner_group(GROUP);
    stage.start_controller();
    for (name, url) in
        NAMES
            .into_iter()
            .zip(["https://gh.test/stuck", "https://gh.test/stuck", url_of_b])
    {
        stage.apply(&fixture(name, url)).await;
    }
    for name in NAMES {
        stage
            .until("it is settled", async || is_settled(&stage, name).await)
            .await;
    }
    stage.settle().await;
    let sets = stage.actions.scale_sets().into_iter();
    let ids = sets.map(|set| (set.name, set.id)).collect();
    (stage, watched, ids)
}

/// Plays the scenario with a service that is in trouble with these calls.
async fn play_through(
    stage: &Stage,
    watched: &Watched,
    concerns: impl Fn(&CallInfo<'_>) -> bool + Clone + Send + Sync + 'static,
) {
    let hanging = concerns.clone();
    watched.decide(move |call| hanging(call).then(|| Outcome::Hang.into()));
    for name in ["a1", "a2"] {
        edit(stage, name, json!({"runnerGroup": GROUP})).await;
    }
    edit(stage, "b", json!({"maxRunners": 7})).await;
    let began = Instant::now();
    let listener_allows_seven = async || {
        let listeners = stage.all::<AutoscalingListener>().await;
        listeners.iter().any(|one| one.spec.max_runners == 7)
    };
    stage
        .within(SOON, "b is settled", async || {
            is_settled(stage, "b").await && listener_allows_seven().await
        })
        .await;
    stage.pass(SOON.saturating_sub(began.elapsed())).await;
    for name in ["a1", "a2"] {
        assert!(!is_settled(stage, name).await, "{name} cannot be");
    }

    let down = Refusal::new(503, "", "The service is down.");
    watched.decide(move |call| concerns(call).then(|| Fault::from(down.clone())));
    stage.pass(Duration::from_secs(120)).await;
    watched.recover();
    stage
        .within(SOON, "a1 and a2 are settled without an edit", async || {
            is_settled(stage, "a1").await && is_settled(stage, "a2").await
        })
        .await;
    assert_complete(stage).await;
    stage.settle().await;
    assert_complete(stage).await;
}

/// No scale set ends without its listener, its runner set or its id.
async fn assert_complete(stage: &Stage) {
    let listeners = stage.all::<AutoscalingListener>().await;
    for name in NAMES {
        let set = set(stage, name).await;
        let id = set.annotations().get(annotations::RUNNER_SCALE_SET_ID);
        let known = stage.actions.scale_sets();
        let registered = known.iter().find(|known| known.name == name).unwrap();
        assert_eq!(id, Some(&registered.id.to_string()), "{name}");
        let moved = registered.group_id != 1;
        assert_eq!(
            moved,
            name != "b",
            "{name} is in group {}",
            registered.group_id
        );
        let runners: Option<EphemeralRunnerSet> = stage.get(&namespace(name), name).await;
        assert!(runners.is_some(), "{name} has no runner set");
        let its = |one: &&AutoscalingListener| one.spec.autoscaling_runner_set_name == name;
        assert_eq!(listeners.iter().filter(its).count(), 1, "{name}");
    }
}

/// The controller's calls, and not those of listeners.
fn is_controllers(call: &CallInfo<'_>) -> bool {
    !matches!(
        call.name,
        "open_session"
            | "refresh_session"
            | "delete_session"
            | "acquire_jobs"
            | "get_message"
            | "delete_message"
    )
}

#[test]
fn scale_sets_of_one_tenant_do_not_wait_for_each_others_calls() {
    play(async || {
        // one config URL and one credential: they share a client
        let (stage, watched, ids) = settled("https://gh.test/stuck").await;
        let stuck = [ids["a1"], ids["a2"]];
        play_through(&stage, &watched, move |call| {
            let of_set = stuck.iter().any(|id| {
                let path = format!("/runnerscalesets/{id}");
                call.path.ends_with(&path) || call.path.contains(&format!("{path}/"))
            });
            let by_name = ["name=a1&", "name=a2&"]
                .iter()
                .any(|name| format!("{}&", call.query).contains(name));
            let of_group = call.query.contains(GROUP);
            is_controllers(call) && (of_set || by_name || of_group)
        })
        .await;
    });
}

#[test]
fn a_tenant_that_hangs_as_a_whole_holds_no_other_up() {
    play(async || {
        let (stage, watched, _) = settled("https://gh.test/well").await;
        // new tokens are needed as well, and are not got
        stage.actions.expire_tenant_tokens();
        play_through(&stage, &watched, |call| {
            let by_owner = call.path.contains("/orgs/stuck/");
            let in_tenant = call.path.starts_with("/tenants/1/");
            is_controllers(call) && (by_owner || in_tenant)
        })
        .await;
    });
}

#[test]
fn a_scale_set_that_is_made_while_the_service_hangs_is_registered_in_the_end() {
    play(async || {
        let (stage, watched) = Watched::stage(true).await;
        stage.start_controller();
        watched.decide(|call| is_controllers(call).then(|| Outcome::Hang.into()));
        stage.apply(&fixture("a1", "https://gh.test/stuck")).await;
        stage.pass(Duration::from_secs(600)).await;
        let set = set(&stage, "a1").await;
        let conditions = serde_json::to_string(&set.status).unwrap();
        assert!(
            conditions.contains("no answer"),
            "it is told why: {conditions}"
        );
        watched.recover();
        stage
            .within(Duration::from_secs(330), "it is settled", async || {
                is_settled(&stage, "a1").await
            })
            .await;
        let calls = watched.times("create_registration_token").len();
        assert!(calls < 30, "{calls} calls in ten minutes");
    });
}
