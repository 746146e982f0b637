//! A runner exits with code 7: the scale set is switched off (SCN-11), says why, and stays off
//! without a write, whatever else is edited or lost.

use std::time::Duration;

use embedded_actions::Fault;
use embedded_kube::kubelet::PodFault;
use impresario::api::constants::annotations::RUNNER_SCALE_SET_ID;
use impresario::api::{
    AutoscalingListener, AutoscalingListenerPhase, AutoscalingRunnerSet, AutoscalingRunnerSetPhase,
    EphemeralRunner, EphemeralRunnerPhase,
};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::scenes::{
    FIVE_MINUTES, LAST_WORDS, condition, embedded, events, is_observed, is_parked, listener, park,
    park_without_jobs, phase, revision, revisions,
};
use crate::stage::manifests::{RUN, SET};
use crate::stage::{Stage, Who, Writes, play};

// === SCN-11 ===

#[test]
fn exit_code_7_parks_the_set() {
    embedded(scn_11);
}

pub async fn scn_11(stage: &Stage) {
    // 1. the idle one of two exits with code 7
    let parked = park(stage).await;
    let set = stage.runner_set().await;
    assert_eq!(set.uid(), parked.runner_set);
    assert_eq!(revisions(&set), (1, 1));
    assert_eq!(listener(stage).await.uid(), parked.listener);
    assert_eq!(stage.service()["delete_scale_set"], 0);
    // the rejected one is kept for a person to look at, without its pod
    let rejected: EphemeralRunner = stage.get(RUN, &parked.rejected).await.unwrap();
    let status = rejected.status.unwrap_or_default();
    assert_eq!(status.phase, Some(EphemeralRunnerPhase::Outdated));
    assert!(status.message.unwrap_or_default().contains(LAST_WORDS));
    assert!(stage.get::<Pod>(RUN, &parked.rejected).await.is_none());
    let busy: EphemeralRunner = stage.get(RUN, &parked.busy).await.unwrap();
    let pod: Pod = stage.get(RUN, &parked.busy).await.unwrap();
    assert_eq!(busy.metadata.deletion_timestamp, None);
    assert_eq!(pod.metadata.deletion_timestamp, None);

    // 2. a late listener
    let created = |stage: &Stage| (stage.created("ephemeralrunners"), stage.created("pods"));
    let before = created(stage);
    stage.ersset(3, 9).await;
    stage
        .until("that is taken back", async || is_parked(stage).await)
        .await;
    stage.settle().await;
    assert_eq!(created(stage), before);

    // 3. five minutes
    stage.pass(stage.soon_or(FIVE_MINUTES)).await;
    assert_eq!(created(stage), before);
    assert_eq!(stage.service()["create_scale_set"], 1);
    assert!(is_parked(stage).await);
    let now: EphemeralRunner = stage.get(RUN, &parked.busy).await.unwrap();
    assert_eq!(now.resource_version(), busy.resource_version(), "untouched");
    let now: Pod = stage.get(RUN, &parked.busy).await.unwrap();
    assert_eq!(now.resource_version(), pod.resource_version(), "untouched");
    stage.assert_at_rest().await;
}

// === what a person is told ===

#[test]
fn conditions_and_an_event_say_why_it_is_parked_and_what_to_do() {
    embedded(async |stage| {
        let parked = park(stage).await;
        let told = format!(
            "runner {} of revision 1: the Actions service rejected the runner's version (exit code 7: \
             {LAST_WORDS}): change the runner template (spec.template) to a newer runner image",
            parked.rejected
        );
        for (kind, reason) in [
            ("RunnersReady", "Outdated"),
            ("ListenerReady", "Stopped"),
            ("Ready", "Outdated"),
        ] {
            assert_eq!(
                condition(stage, kind).await,
                format!("False {reason}: {told}")
            );
        }
        assert_eq!(events(stage, "Parked").await, [told.as_str()]);
        // another controller, and without the runner that was rejected, says the same
        stage.delete::<EphemeralRunner>(RUN, &parked.rejected).await;
        stage.start_controller();
        stage.settle().await;
        assert_eq!(
            condition(stage, "RunnersReady").await,
            format!("False Outdated: {told}")
        );
        assert_eq!(events(stage, "Parked").await.len(), 1);
    });
}

/// What `kubectl get -o wide` shows of a resource, by column.
async fn shown(stage: &Stage, plural: &str) -> Value {
    let path = format!("/apis/actions.github.com/v1alpha1/namespaces/{RUN}/{plural}");
    let request = http::Request::get(path)
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .unwrap();
    let table: Value = stage.client.request(request).await.unwrap();
    let names = table["columnDefinitions"].as_array().unwrap().iter();
    let cells = table["rows"][0]["cells"].as_array().unwrap().iter();
    let pairs = names.zip(cells);
    pairs
        .map(|(column, cell)| (column["name"].as_str().unwrap().to_owned(), cell.clone()))
        .collect()
}

#[test]
fn kubectl_get_shows_why_it_is_parked_and_which_revision_is_applied() {
    embedded(async |stage| {
        let parked = park(stage).await;
        let row = shown(stage, "autoscalingrunnersets").await;
        assert_eq!(row["Phase"], "Outdated");
        assert_eq!(
            (&row["Ready"], &row["Reason"]),
            (&json!("False"), &json!("Outdated"))
        );
        let message = row["Message"].as_str().unwrap();
        for part in [&parked.rejected, "exit code 7", "spec.template"] {
            assert!(message.contains(part), "{message}");
        }
        let refused = stage.warden.refuse(
            Writes::of("patch", "ephemeralrunnersets/status"),
            crate::half_applied::out_of_order(),
        );
        stage.set_image("img:2").await;
        stage.pass(Duration::from_secs(20)).await;
        let row = shown(stage, "ephemeralrunnersets").await;
        assert_eq!(
            (&row["Revision"], &row["Applied Revision"]),
            (&json!(2), &json!(1))
        );
        let row = shown(stage, "autoscalingrunnersets").await;
        assert_eq!(row["Phase"], "Pending");
        let message = row["Message"].as_str().unwrap();
        let differ = "revision 2 of the runner spec is wanted, revision 1 is applied";
        assert!(message.contains(differ), "{message}");
        refused.lift();
    });
}

#[test]
fn a_credential_in_a_runners_last_words_is_told_to_nobody() {
    embedded(async |stage| {
        stage.settled_fixture(0, 10).await;
        let runner = stage.scale_up(1, 1).await.remove(0);
        stage.up(&runner).await;
        let token = "ghs_16C7e42F292c6912E7710c838347Ae178B4a";
        let words = format!("401 for {token}\nAuthorization: Bearer {token}");
        stage.exit_saying(&runner, 7, &words).await;
        stage
            .until("it is parked", async || is_parked(stage).await)
            .await;
        stage.settle().await;
        assert!(
            condition(stage, "Ready")
                .await
                .contains("401 for [redacted]")
        );
        // the pod's own status is gone with the pod
        assert_eq!(stage.objects_with(token), [""; 0]);
    });
}

// === nothing more happens ===

/// With the real listener and more jobs than runners.
#[test]
fn a_bad_spec_costs_as_many_runners_as_were_wanted_and_then_nothing() {
    play(async || {
        let stage = Stage::whole(71).await;
        stage.settled_fixture(1, 4).await;
        stage.queue_jobs(20, SET, Duration::from_secs(90));
        stage
            .until("the pool is full", async || stage.live().await.len() == 4)
            .await;
        stage.pass(Duration::from_secs(20)).await;
        let before = stage.created("ephemeralrunners");
        let bad = json!({"template": {"metadata": {
            "annotations": {"impresario.dev/fault": PodFault::Exit(7).to_string()},
        }}});
        stage.edit(bad).await;
        stage
            .until("it is applied", async || {
                revisions(&stage.runner_set().await) == (2, 2)
            })
            .await;
        let wanted = stage.runner_set().await.spec.replicas.unwrap_or(0);
        stage
            .within(FIVE_MINUTES, "it is parked", async || {
                is_parked(&stage).await
            })
            .await;
        stage
            .within(FIVE_MINUTES, "jobs that ran have ended", async || {
                let runners = stage.runners().await;
                runners.iter().all(|runner| revision(runner) == 2)
            })
            .await;
        stage.settle().await;
        let spent = stage.created("ephemeralrunners") - before;
        assert!(
            i64::try_from(spent).unwrap() <= wanted,
            "{spent} runners for {wanted}\n{}",
            stage.picture().await
        );
        assert!(spent > 0);

        // jobs are waiting all the time
        let (writes, calls) = (stage.warden.writes().len(), stage.warden.all_calls());
        stage.pass(Duration::from_secs(3600)).await;
        let since = stage.warden.writes().split_off(writes);
        assert!(since.is_empty(), "written at rest: {since:#?}");
        assert_eq!(stage.warden.all_calls(), calls, "nobody is called");
        assert!(stage.actions.sessions().is_empty());
        assert!(stage.jobs_done() < 20);

        // and are done when it is mended
        let good = json!({"template": {"metadata": {"annotations": null}}});
        stage.edit(good).await;
        let patience = Duration::from_secs(3600);
        stage
            .within(patience, "all jobs are done", async || {
                stage.jobs_done() == 20
            })
            .await;
        stage.assert_sound();
    });
}

/// Jobs that run when the verdict comes go on, and end well.
#[test]
fn a_bad_spec_from_the_start_costs_as_many_runners_as_were_wanted() {
    play(async || {
        let stage = Stage::whole(72).await;
        let mut documents = crate::stage::manifests::fixture(2, 6);
        documents[2]["spec"]["template"]["metadata"] = json!({
            "annotations": {"impresario.dev/fault": PodFault::Exit(7).to_string()},
        });
        stage.queue_jobs(9, SET, Duration::from_secs(30));
        stage.apply(&documents).await;
        stage
            .within(FIVE_MINUTES, "it is parked", async || {
                !stage.all::<AutoscalingListener>().await.is_empty() && is_parked(&stage).await
            })
            .await;
        stage.settle().await;
        assert!(stage.created("ephemeralrunners") <= 6);
        assert!(is_observed(&stage).await, "{}", stage.picture().await);
        stage.assert_at_rest().await;
        stage.assert_sound();
    });
}

// === edits that do not touch the runner spec ===

/// Edits a parked scale set, and sees that the edit is passed on and does not un-park it.
fn is_passed_on(change: Value, arrived: impl AsyncFn(&Stage) -> bool) {
    embedded(async |stage| {
        stage.actions.add_runner_group("gpu");
        park_without_jobs(stage).await;
        let revision = revisions(&stage.runner_set().await);
        let phases = |stage: &Stage| {
            let of = |plural: &str| stage.warden.phases(plural).len();
            (of("autoscalingrunnersets"), of("ephemeralrunnersets"))
        };
        let before = (
            phases(stage),
            stage.created("pods"),
            stage.created("ephemeralrunners"),
        );
        stage
            .patch::<AutoscalingRunnerSet>(RUN, SET, change.clone())
            .await;
        stage
            .until("it arrives", async || arrived(stage).await)
            .await;
        stage.settle().await;
        assert!(is_parked(stage).await, "{}", stage.picture().await);
        assert!(is_observed(stage).await, "{}", stage.picture().await);
        assert_eq!(revisions(&stage.runner_set().await), revision);
        let after = (
            phases(stage),
            stage.created("pods"),
            stage.created("ephemeralrunners"),
        );
        assert_eq!(after, before, "it was parked all the time");
        assert!(events(stage, "Recovered").await.is_empty());
        assert_eq!(events(stage, "Parked").await.len(), 1);
        stage.assert_at_rest().await;
        assert_eq!(stage.service()["delete_scale_set"], 0);
    });
}

#[test]
fn other_limits_are_passed_on_and_do_not_unpark() {
    let change = json!({"spec": {"minRunners": 3, "maxRunners": 7}});
    is_passed_on(change, async |stage| {
        let listeners = stage.all::<AutoscalingListener>().await;
        let mut limits = listeners
            .iter()
            .map(|one| (one.spec.min_runners, one.spec.max_runners));
        limits.next() == Some((3, 7))
    });
}

#[test]
fn another_group_is_passed_on_and_does_not_unpark() {
    let change = json!({"spec": {"runnerGroup": "gpu"}});
    is_passed_on(change, async |stage| {
        let sets = stage.actions.scale_sets();
        let listeners = stage.all::<AutoscalingListener>().await;
        sets[0].group_id != 1 && listeners.len() == 1
    });
}

#[test]
fn another_name_is_passed_on_and_does_not_unpark() {
    let change = json!({"spec": {"runnerScaleSetName": "other"}});
    is_passed_on(change, async |stage| {
        stage.actions.scale_sets()[0].name == "other"
    });
}

#[test]
fn other_labels_in_the_service_are_passed_on_and_do_not_unpark() {
    let change = json!({"spec": {"runnerScaleSetLabels": ["gpu", "fast"]}});
    is_passed_on(change, async |stage| {
        let labels = &stage.actions.scale_sets()[0].labels;
        labels.iter().any(|label| label == "fast")
    });
}

#[test]
fn another_label_of_the_object_is_passed_on_and_does_not_unpark() {
    let change = json!({"metadata": {"labels": {"team": "build"}}});
    is_passed_on(change, async |stage| {
        let listeners = stage.all::<AutoscalingListener>().await;
        let is = |labels: &std::collections::BTreeMap<String, String>| {
            labels.get("team").map(String::as_str) == Some("build")
        };
        listeners.first().is_some_and(|one| is(one.labels()))
            && is(stage.runner_set().await.labels())
    });
}

#[test]
fn another_listener_template_is_passed_on_and_does_not_unpark() {
    let change = json!({"spec": {"listenerTemplate": {"spec": {"containers": [
        {"name": "listener", "resources": {"limits": {"cpu": "1"}}},
    ]}}}});
    is_passed_on(change, async |stage| {
        let listeners = stage.all::<AutoscalingListener>().await;
        listeners
            .first()
            .is_some_and(|listener| listener.spec.template.is_some())
    });
}

#[test]
fn several_edits_at_once_are_passed_on_through_a_restart() {
    embedded(async |stage| {
        park_without_jobs(stage).await;
        stage.kill_controller();
        stage
            .edit(json!({"maxRunners": 5, "runnerScaleSetName": "other"}))
            .await;
        stage.start_controller();
        stage
            .until("it is observed", async || is_observed(stage).await)
            .await;
        stage.settle().await;
        assert!(is_parked(stage).await, "{}", stage.picture().await);
        assert_eq!(listener(stage).await.spec.max_runners, 5);
        assert_eq!(stage.actions.scale_sets()[0].name, "other");
        stage.assert_at_rest().await;
    });
}

// === what is lost while it is parked ===

#[test]
fn a_listener_deleted_while_parked_is_made_again_and_stays_stopped() {
    embedded(async |stage| {
        park_without_jobs(stage).await;
        let before = listener(stage).await;
        let pods = stage.created("pods");
        stage
            .delete::<AutoscalingListener>(CONTROLLER_NAMESPACE, &before.name_any())
            .await;
        stage
            .until("there is another", async || {
                let all = stage.all::<AutoscalingListener>().await;
                all.len() == 1 && all[0].uid() != before.uid()
            })
            .await;
        stage.settle().await;
        assert!(is_parked(stage).await, "{}", stage.picture().await);
        assert_eq!(stage.created("pods"), pods);
        stage.assert_at_rest().await;
    });
}

#[test]
fn an_id_removed_while_parked_is_looked_up_and_it_stays_parked() {
    embedded(async |stage| {
        park_without_jobs(stage).await;
        let id = |set: &AutoscalingRunnerSet| set.annotations().get(RUNNER_SCALE_SET_ID).cloned();
        let before = id(&stage.scale_set().await);
        assert!(before.is_some());
        remove_id(stage).await;
        stage
            .until("it is there again", async || {
                id(&stage.scale_set().await) == before
            })
            .await;
        stage.settle().await;
        assert!(is_parked(stage).await, "{}", stage.picture().await);
        assert_eq!(stage.service()["create_scale_set"], 1);
        assert!(events(stage, "Recovered").await.is_empty());
        stage.assert_at_rest().await;
    });
}

async fn remove_id(stage: &Stage) {
    let mut annotations = json!({});
    annotations[RUNNER_SCALE_SET_ID] = Value::Null;
    let change = json!({"metadata": {"annotations": annotations}});
    stage.patch::<AutoscalingRunnerSet>(RUN, SET, change).await;
}

/// While the service cannot be asked, it goes on trying: that is no state to rest in.
#[test]
fn a_parked_set_without_an_id_does_not_rest() {
    embedded(async |stage| {
        park_without_jobs(stage).await;
        let down = || Fault::refuse(503, "");
        stage.actions.faults().always("find_scale_set", down());
        stage.actions.faults().always("get_scale_set", down());
        remove_id(stage).await;
        stage.pass(FIVE_MINUTES).await;
        let asked = stage.warden.calls("find_scale_set");
        assert!(asked > 3, "it was tried {asked} times");
        assert!(condition(stage, "Registered").await.starts_with("False"));
        assert_eq!(
            phase(stage).await,
            Some(AutoscalingRunnerSetPhase::Outdated)
        );
        assert_eq!(
            listener(stage).await.spec.phase,
            Some(AutoscalingListenerPhase::Stopped)
        );
        stage.actions.faults().clear("find_scale_set");
        stage.actions.faults().clear("get_scale_set");
        stage
            .until("it is registered", async || {
                let set = stage.scale_set().await;
                set.annotations().contains_key(RUNNER_SCALE_SET_ID)
            })
            .await;
        stage.settle().await;
        assert!(is_parked(stage).await, "{}", stage.picture().await);
        assert!(condition(stage, "Registered").await.starts_with("True"));
        stage.assert_at_rest().await;
    });
}

#[test]
fn a_controller_started_anew_leaves_a_parked_set_alone() {
    embedded(async |stage| {
        park(stage).await;
        stage.kill_controller();
        let before = stage.warden.writes().len();
        stage.start_controller();
        stage.pass(FIVE_MINUTES).await;
        let mut since = stage.warden.writes().split_off(before);
        since.retain(|write| write.who == Who::Controller);
        assert!(since.is_empty(), "{since:#?}");
        assert!(is_parked(stage).await);
    });
}
