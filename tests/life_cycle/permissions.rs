//! Rights that are lost: with their namespace, which has to be let go all the same, and elsewhere,
//! where it is said which right is missing, and all goes on when it is back.

use std::time::Duration;

use impresario::api::{AutoscalingListener, AutoscalingRunnerSet};
use k8s_openapi::api::core::v1::{Event, Namespace};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::stage::manifests::{RUN, SET, apply, binding, fixture, namespace, rights};
use crate::stage::{Stage, play, play_live};
use real_kube::envtest;

/// The binding that gives the controller its rights where the runners are.
const BINDING: &str = "impresario-controller";
const ROLE: &str = "impresario-runner-namespace";

async fn lose_rights(stage: &Stage) {
    let bindings = Api::<RoleBinding>::namespaced(stage.client.clone(), RUN);
    bindings
        .delete(BINDING, &DeleteParams::default())
        .await
        .unwrap();
}

pub async fn delete_namespace(stage: &Stage) {
    let namespaces = Api::<Namespace>::all(stage.client.clone());
    namespaces
        .delete(RUN, &DeleteParams::default())
        .await
        .unwrap();
}

pub async fn until_namespace_is_gone(stage: &Stage) {
    let namespaces = Api::<Namespace>::all(stage.client.clone());
    stage
        .within(
            Duration::from_secs(400),
            "the namespace is gone",
            async || namespaces.get_opt(RUN).await.unwrap().is_none(),
        )
        .await;
    stage
        .until("nothing is left of the listener", async || {
            stage.all::<AutoscalingListener>().await.is_empty()
                && stage.listener_pods().await.is_empty()
                && stage
                    .all::<Role>()
                    .await
                    .iter()
                    .all(|role| role.namespace().as_deref() != Some(RUN))
        })
        .await;
}

/// Messages of the events of that reason, wherever they are.
async fn told(stage: &Stage, reason: &str) -> Vec<String> {
    let events = Api::<Event>::all(stage.client.clone());
    let events = events.list(&Default::default()).await.unwrap().items;
    let those = events
        .into_iter()
        .filter(|one| one.reason.as_deref() == Some(reason));
    those.filter_map(|one| one.message).collect()
}

async fn with_two_runners() -> Stage {
    let stage = Stage::whole_without_log(21).await;
    stage.apply(&fixture(2, 4)).await;
    stage
        .until("two runners", async || {
            stage.runner_pods().await.len() == 2 && !stage.listener_pods().await.is_empty()
        })
        .await;
    stage.pass(Duration::from_secs(10)).await;
    stage
}

fn refusals(stage: &Stage) -> f64 {
    stage.counted("impresario_kubernetes_requests_total", ("code", "403"))
}

#[test]
fn a_namespace_is_let_go_when_the_rights_in_it_went_first() {
    play(async || {
        let stage = with_two_runners().await;
        lose_rights(&stage).await;
        delete_namespace(&stage).await;
        until_namespace_is_gone(&stage).await;
        let left = told(&stage, "RegistrationLeft").await;
        let scale_set = told(&stage, "ScaleSetLeft").await;
        // what could not be removed is named, where it can be
        assert!(
            stage.actions.runners().is_empty() || !left.is_empty(),
            "{left:?}"
        );
        assert_eq!(scale_set.len(), 1, "{scale_set:?}");
        assert!(scale_set[0].contains(SET), "{scale_set:?}");
    });
}

#[test]
fn a_namespace_is_let_go_with_a_job_in_it() {
    play(async || {
        let stage = with_two_runners().await;
        stage.queue_jobs(1, SET, Duration::from_secs(3600));
        stage.pass(Duration::from_secs(10)).await;
        lose_rights(&stage).await;
        delete_namespace(&stage).await;
        until_namespace_is_gone(&stage).await;
    });
}

#[test]
fn a_namespace_is_let_go_at_any_moment_of_its_first_seconds() {
    for milliseconds in (0..3000).step_by(200) {
        play(async || {
            let stage = Stage::whole_without_log(23).await;
            stage.apply(&fixture(1, 3)).await;
            stage.pass(Duration::from_millis(milliseconds)).await;
            lose_rights(&stage).await;
            delete_namespace(&stage).await;
            until_namespace_is_gone(&stage).await;
        });
    }
}

#[test]
fn a_namespace_is_let_go_by_a_controller_that_starts_without_rights_in_it() {
    play(async || {
        let stage = with_two_runners().await;
        stage.kill_controller();
        lose_rights(&stage).await;
        delete_namespace(&stage).await;
        stage.pass(Duration::from_secs(60)).await;
        stage.start_controller();
        until_namespace_is_gone(&stage).await;
    });
}

/// With the namespace controller of Kubernetes in place of ours, and no kubelet: a pod that no node
/// has goes at once.
#[test]
fn a_namespace_is_let_go_on_a_real_api_server() {
    play_live(async || {
        let Some(env) = envtest::start().await else {
            return;
        };
        env.install(impresario::api::crds()).await;
        for with_job in [false, true] {
            println!("--- with a job: {with_job}");
            let user = "system:serviceaccount:arc-systems:impresario-controller";
            let stage = Stage::real(env.client.clone(), env.impersonating()(user));
            stage.apply(&rights()).await;
            stage.apply(&[namespace(RUN), binding(RUN)]).await;
            stage.start_controller();
            stage.settled_fixture(0, 4).await;
            let runners = stage.scale_up(2, 1).await;
            for runner in &runners {
                stage.up(runner).await;
            }
            if with_job {
                stage.busy(&runners[0], 7).await;
            }
            stage.settle().await;
            lose_rights(&stage).await;
            delete_namespace(&stage).await;
            until_namespace_is_gone(&stage).await;
            assert_eq!(told(&stage, "ScaleSetLeft").await.len(), 1);
            stage.clear().await;
        }
    });
}

#[test]
fn elsewhere_a_deletion_waits_for_the_rights_and_says_which() {
    play(async || {
        let stage = with_two_runners().await;
        lose_rights(&stage).await;
        let sets = Api::<AutoscalingRunnerSet>::namespaced(stage.client.clone(), RUN);
        sets.delete(SET, &DeleteParams::default()).await.unwrap();
        stage.pass(Duration::from_secs(300)).await;
        let said = stage.condition("Ready").await;
        for part in ["cannot delete resource", "rolebindings", RUN, ROLE] {
            assert!(said.contains(part), "{said}");
        }
        let listener = stage.condition("ListenerReady").await;
        assert!(listener.starts_with("False Deleting"), "{listener}");
        let before = refusals(&stage);
        stage.pass(Duration::from_secs(600)).await;
        let more = refusals(&stage) - before;
        assert!(more < 60.0, "{more} refused requests in ten minutes");
        apply(&stage.client, &binding(RUN)).await;
        stage
            .within(Duration::from_secs(300), "everything is gone", async || {
                stage.leftovers().await.is_empty()
            })
            .await;
        // nothing was given up in the meantime
        assert_eq!(told(&stage, "RegistrationLeft").await, [""; 0]);
        assert_eq!(told(&stage, "ScaleSetLeft").await, [""; 0]);
        assert!(stage.actions.runners().is_empty());
    });
}

/// The rights in a namespace with runners, one by one.
async fn single_rights(stage: &Stage) -> Vec<(String, String)> {
    let role = Api::<ClusterRole>::all(stage.client.clone())
        .get(ROLE)
        .await
        .unwrap();
    let mut rights = Vec::new();
    for rule in role.rules.unwrap() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                rights.push((resource.clone(), verb.clone()));
            }
        }
    }
    rights
}

/// The rules without one right.
fn without(rules: &[PolicyRule], resource: &str, verb: &str) -> Vec<PolicyRule> {
    let mut rest = Vec::new();
    for rule in rules {
        for one in rule.resources.iter().flatten() {
            let mut rule = rule.clone();
            rule.resources = Some(vec![one.clone()]);
            rule.verbs.retain(|known| one != resource || known != verb);
            if !rule.verbs.is_empty() {
                rest.push(rule);
            }
        }
    }
    rest
}

async fn set_rules(stage: &Stage, rules: &[PolicyRule]) {
    let roles = Api::<ClusterRole>::all(stage.client.clone());
    let body = Patch::Merge(json!({ "rules": rules }));
    roles
        .patch(ROLE, &PatchParams::default(), &body)
        .await
        .unwrap();
}

/// Every right is taken away in turn, a pool is made, gets a job, and is deleted. Each time it
/// either goes its way without the right, or waits for it and says which one it is, asks seldom,
/// and goes on when it is back.
#[test]
fn each_right_that_is_missing_is_done_without_or_named() {
    let all = play(async || single_rights(&Stage::embedded(1, true, false).await).await);
    assert!(all.len() > 15, "{all:?}");
    let mut named = Vec::new();
    for (resource, verb) in &all {
        let waited = play(async || {
            let stage = Stage::whole_without_log(31).await;
            let roles = Api::<ClusterRole>::all(stage.client.clone());
            let whole = roles.get(ROLE).await.unwrap().rules.unwrap();
            set_rules(&stage, &without(&whole, resource, verb)).await;
            stage.apply(&fixture(1, 3)).await;
            stage.pass(Duration::from_secs(120)).await;
            let mut waits = stage.said_of(resource, verb).await;
            let before = refusals(&stage);
            stage.pass(Duration::from_secs(300)).await;
            let more = refusals(&stage) - before;
            assert!(more < 60.0, "{verb} {resource}: {more} in five minutes");
            let up = stage.runner_pods().await.len() == 1 && stage.listener_pods().await.len() == 1;
            assert!(up || waits, "{verb} {resource}: {}", stage.picture().await);
            // it heals
            set_rules(&stage, &whole).await;
            stage
                .within(
                    Duration::from_secs(600),
                    "a pool with one runner",
                    async || {
                        let ready = stage.condition("Ready").await;
                        stage.runner_pods().await.len() == 1 && ready.starts_with("True")
                    },
                )
                .await;
            // and it goes
            set_rules(&stage, &without(&whole, resource, verb)).await;
            let sets = Api::<AutoscalingRunnerSet>::namespaced(stage.client.clone(), RUN);
            sets.delete(SET, &DeleteParams::default()).await.unwrap();
            stage.pass(Duration::from_secs(180)).await;
            let gone = sets.get_opt(SET).await.unwrap().is_none();
            if !gone {
                let said = stage.said_of(resource, verb).await;
                assert!(said, "{verb} {resource}: {}", stage.picture().await);
                waits = true;
            }
            set_rules(&stage, &whole).await;
            stage
                .within(Duration::from_secs(600), "everything is gone", async || {
                    stage.leftovers().await.is_empty()
                })
                .await;
            waits
        });
        if waited {
            named.push(format!("{verb} {resource}"));
        }
    }
    // those without which nothing can be done
    for right in [
        "create pods",
        "create secrets",
        "create roles",
        "delete rolebindings",
    ] {
        assert!(named.iter().any(|one| one == right), "{right}: {named:?}");
    }
}
