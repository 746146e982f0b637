//! Who shares a namespace or a name with another: controllers that look after one namespace each
//! and keep their listeners in the same one, and a scale set made again under its name.

use std::time::Duration;

use impresario::api::{
    AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet,
};
use impresario::resources::{autoscaling_listener, listener_name};
use impresario::simulation::cluster::{CONTROLLER_NAMESPACE, RunningController};
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::stage::manifests::{RUN, SET, apply, credentials, fixture, namespace, scale_set};
use crate::stage::{Stage, Writes, play};

const TEAMS: [&str; 2] = ["team-a", "team-b"];

/// A scale set and its credentials in that namespace.
fn pool(team: &str) -> Vec<Value> {
    let mut documents = vec![namespace(team), credentials(), scale_set(2, 4)];
    for document in &mut documents[1..] {
        document["metadata"]["namespace"] = json!(team);
    }
    documents[2]["spec"]["githubConfigUrl"] = json!(format!("https://gh.test/org/{team}"));
    documents
}

async fn two_pools() -> Stage {
    let stage = Stage::embedded(7, true, false).await;
    for team in TEAMS {
        stage.apply(&pool(team)).await;
    }
    stage
}

async fn runners_of(stage: &Stage, team: &str) -> Vec<String> {
    let runners = stage.all::<EphemeralRunner>().await;
    let theirs = runners
        .iter()
        .filter(|one| one.namespace().as_deref() == Some(team));
    theirs.map(ResourceExt::name_any).collect()
}

/// Everything that is not a runner's: names and versions.
async fn listener_parts(stage: &Stage, team: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let listeners = stage.all::<AutoscalingListener>().await;
    let theirs = |name: &str| {
        listeners.iter().any(|one| {
            one.spec.autoscaling_runner_set_namespace == team && name.starts_with(&one.name_any())
        })
    };
    for object in &listeners {
        if theirs(&object.name_any()) {
            parts.push(format!(
                "{}@{:?}",
                object.name_any(),
                object.resource_version()
            ));
        }
    }
    for object in stage.all::<Pod>().await {
        if theirs(&object.name_any()) {
            parts.push(format!("pod {}@{:?}", object.name_any(), object.uid()));
        }
    }
    for object in stage.all::<Secret>().await {
        if theirs(&object.name_any()) {
            parts.push(format!(
                "{}@{:?}",
                object.name_any(),
                object.resource_version()
            ));
        }
    }
    for object in stage.all::<ServiceAccount>().await {
        if theirs(&object.name_any()) {
            parts.push(format!(
                "{}@{:?}",
                object.name_any(),
                object.resource_version()
            ));
        }
    }
    parts
}

async fn until_up(stage: &Stage) {
    stage
        .until("two pools with two runners each", async || {
            runners_of(stage, TEAMS[0]).await.len() == 2
                && runners_of(stage, TEAMS[1]).await.len() == 2
                && stage.listener_pods().await.len() == 2
        })
        .await;
    stage.pass(Duration::from_secs(60)).await;
}

fn start(stage: &Stage, team: &str) -> RunningController {
    stage.cluster().start_controller_in(team)
}

#[test]
fn two_controllers_of_one_namespace_each_make_each_runner_once() {
    play(async || {
        let stage = two_pools().await;
        let _both = TEAMS.map(|team| start(&stage, team));
        until_up(&stage).await;
        for team in TEAMS {
            assert_eq!(runners_of(&stage, team).await.len(), 2, "{team}");
        }
        assert_eq!(stage.listener_pods().await.len(), 2);
        assert_eq!(stage.created("ephemeralrunners"), 4);
        // and after a restart of the one, beside the other
        let _again = start(&stage, TEAMS[0]);
        stage.pass(Duration::from_secs(60)).await;
        assert_eq!(stage.created("ephemeralrunners"), 4);
    });
}

#[test]
fn a_controller_of_one_namespace_leaves_the_parts_of_another_alone() {
    play(async || {
        let stage = two_pools().await;
        let first = start(&stage, TEAMS[0]);
        let second = start(&stage, TEAMS[1]);
        until_up(&stage).await;
        drop(second);
        let before = listener_parts(&stage, TEAMS[1]).await;
        assert!(before.len() >= 4, "{before:?}");
        // a pool without its controller: it changes, it goes, its finalizers are forced off
        let sets = Api::<AutoscalingRunnerSet>::namespaced(stage.client.clone(), TEAMS[1]);
        let patch = |body: Value| Patch::Merge(body);
        let parameters = PatchParams::default();
        let change = patch(json!({"spec": {"maxRunners": 9}}));
        sets.patch(SET, &parameters, &change).await.unwrap();
        stage.pass(Duration::from_secs(60)).await;
        sets.delete(SET, &DeleteParams::default()).await.unwrap();
        let forced = patch(json!({"metadata": {"finalizers": null}}));
        sets.patch(SET, &parameters, &forced).await.unwrap();
        stage.pass(Duration::from_secs(600)).await;
        assert_eq!(listener_parts(&stage, TEAMS[1]).await, before);
        // nor does one that starts afresh, and meets what an absent set has left
        drop(first);
        let _first = start(&stage, TEAMS[0]);
        stage.pass(Duration::from_secs(600)).await;
        assert_eq!(listener_parts(&stage, TEAMS[1]).await, before);
        assert_eq!(runners_of(&stage, TEAMS[0]).await.len(), 2);
        // its own controller clears it away
        let _second = start(&stage, TEAMS[1]);
        stage
            .until("the orphan is gone", async || {
                listener_parts(&stage, TEAMS[1]).await.is_empty()
            })
            .await;
        assert_eq!(stage.listener_pods().await.len(), 1);
    });
}

/// The hash in a listener's name has 32 bits: it can be that of another pool.
#[test]
fn a_listener_of_another_that_has_the_name_is_told_of_and_left_alone() {
    for only in [None, Some(TEAMS[0])] {
        play(async || {
            let stage = Stage::embedded(9, true, false).await;
            for team in TEAMS {
                stage.apply(&pool(team)).await;
            }
            let mut set = stage.all::<AutoscalingRunnerSet>().await.remove(0);
            let name = listener_name(&set);
            set.metadata.namespace = Some(TEAMS[1].to_owned());
            let settings = stage.cluster().settings().clone();
            let mut theirs = autoscaling_listener(&set, 77, &settings);
            theirs.metadata.name = Some(name.clone());
            let listeners =
                Api::<AutoscalingListener>::namespaced(stage.client.clone(), CONTROLLER_NAMESPACE);
            let made = listeners.create(&PostParams::default(), &theirs).await;
            let made = made.unwrap();

            stage.watch_only(only);
            stage.start_controller();
            stage.pass(Duration::from_secs(120)).await;
            let set: AutoscalingRunnerSet = stage.get(TEAMS[0], SET).await.unwrap();
            let conditions = set.status.unwrap_or_default().conditions;
            let ready = conditions.iter().find(|one| one.type_ == "ListenerReady");
            let ready = ready.unwrap();
            assert_eq!(
                (ready.status.as_str(), ready.reason.as_str()),
                ("False", "ForeignObject"),
                "{ready:?}"
            );
            assert!(ready.message.contains(TEAMS[1]), "{ready:?}");
            let live = listeners.get_opt(&name).await.unwrap();
            if only.is_some() {
                assert_eq!(live.unwrap().uid(), made.uid());
            }
        });
    }
}

/// Creates the scale set again in the moment in which its predecessor goes.
async fn made_again_at_once(stage: &Stage, delay: Duration) {
    let sets = Api::<AutoscalingRunnerSet>::namespaced(stage.client.clone(), RUN);
    let again: AutoscalingRunnerSet = serde_json::from_value(scale_set(1, 3)).unwrap();
    sets.delete(SET, &DeleteParams::default()).await.unwrap();
    loop {
        match sets.create(&PostParams::default(), &again).await {
            Ok(_) => break,
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
    tokio::time::sleep(delay).await;
}

#[test]
fn a_scale_set_made_again_at_once_is_looked_after() {
    play(async || {
        let stage = Stage::whole_without_log(11).await;
        stage.apply(&fixture(1, 3)).await;
        for round in 0..12 {
            stage
                .until("a runner", async || {
                    stage.live().await.len() == 1 && !stage.listener_pods().await.is_empty()
                })
                .await;
            made_again_at_once(&stage, Duration::from_millis(round)).await;
        }
        stage
            .until("a runner", async || stage.live().await.len() == 1)
            .await;
        let listeners = stage.all::<AutoscalingListener>().await;
        assert_eq!(listeners.len(), 1);
        assert_eq!(
            listeners[0].namespace().as_deref(),
            Some(CONTROLLER_NAMESPACE)
        );
    });
}

#[test]
fn a_made_up_scale_set_id_does_not_keep_that_of_another() {
    play(async || {
        let stage = Stage::whole_without_log(13).await;
        stage.apply(&fixture(1, 3)).await;
        stage
            .until("a runner", async || stage.live().await.len() == 1)
            .await;
        let id = stage.scale_set().await.annotations()["runner-scale-set-id"].clone();
        let mut forger = pool("forger");
        // no credentials for that place, only its id
        forger[1]["stringData"] = json!({"github_token": ""});
        forger[2]["metadata"]["annotations"] = json!({"runner-scale-set-id": id});
        forger[2]["spec"]["githubConfigUrl"] = json!("https://gh.test/org/repo");
        for document in &forger {
            apply(&stage.client, document).await;
        }
        stage.pass(Duration::from_secs(30)).await;
        let sets = Api::<AutoscalingRunnerSet>::namespaced(stage.client.clone(), RUN);
        sets.delete(SET, &DeleteParams::default()).await.unwrap();
        stage
            .until("the victim is gone", async || {
                sets.get_opt(SET).await.unwrap().is_none()
            })
            .await;
        assert_eq!(stage.service()["delete_scale_set"], 1);
    });
}

/// Somebody deletes a runner set and forces its finalizer off, while an answer about it is on its
/// way: its successor is looked after.
#[test]
fn a_late_answer_about_a_runner_set_that_was_forced_off_stands_in_nobodys_way() {
    for late in [Duration::ZERO, Duration::from_secs(2)] {
        play(async || {
            let stage = Stage::by_hand().await;
            stage.settled_fixture(0, 5).await;
            let one = stage.scale_up(1, 1).await.remove(0);
            stage.up(&one).await;
            stage.settle().await;
            let before: EphemeralRunnerSet = stage.get(RUN, SET).await.unwrap();
            let old = before.uid();
            let statuses = Writes::of("patch", "ephemeralrunnersets/status");
            let held = stage.warden.answer_late(statuses, late);
            stage.ersset(2, 2).await;
            stage.until("a status write", async || held.met() > 0).await;
            let sets = Api::<EphemeralRunnerSet>::namespaced(stage.client.clone(), RUN);
            sets.delete(SET, &DeleteParams::default()).await.unwrap();
            let none = Patch::Merge(json!({"metadata": {"finalizers": []}}));
            // the controller may have taken it off by itself
            let _ = sets.patch(SET, &PatchParams::default(), &none).await;
            stage
                .until("another set", async || {
                    let now: Option<EphemeralRunnerSet> = stage.get(RUN, SET).await;
                    now.is_some_and(|now| now.uid() != old)
                })
                .await;
            stage.pass(Duration::from_secs(60)).await;
            held.lift();
            stage.ersset(3, 7).await;
            stage
                .within(Duration::from_secs(120), "three runners", async || {
                    stage.live().await.len() == 3
                })
                .await;
        });
    }
}
