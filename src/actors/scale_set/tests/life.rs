//! From a manifest to a scale set that takes jobs, and its changes.

use serde_json::json;

use super::world::{CONTROLLER, POOL, RUNNERS, World, scale_set};
use crate::actors::listener::tests::cluster::Fault;
use crate::actors::scale_set::ScaleSetReport;
use crate::api::AutoscalingRunnerSetPhase as Phase;
use crate::messages::{
    Effect, Kind, KubeErrorKind, KubeObject, KubeRequest, ObjectRef, RunnerCounts, Tally,
};

#[test]
fn a_manifest_becomes_a_scale_set_that_takes_jobs() {
    let mut world = World::new();
    world.pass(5);
    assert_eq!(world.phase(), Some(Phase::Running));
    assert!(world.is_observed());
    assert_eq!(world.condition("Ready"), "True Ready: jobs are taken");
    assert_eq!(world.ers().spec.replicas, Some(0));
    assert_eq!(world.ers().spec.actionable_revision, Some(1));
    assert_eq!(world.al().spec.runner_scale_set_id, 11);
    assert_eq!(world.al().spec.ephemeral_runner_set_name, POOL);
    assert_eq!(world.cluster.count("create EphemeralRunnerSet"), 1);
    assert_eq!(world.cluster.count("create AutoscalingListener"), 1);
    assert_eq!(world.cluster.count("create Pod"), 1);
    assert_eq!(world.events_of("Registered"), 1);
}

#[test]
fn nothing_is_decided_before_the_first_lists_are_complete() {
    let world = World::new();
    let mut machine = world.machine;
    let object = world
        .cluster
        .objects
        .values()
        .find(|one| one.kind() == Kind::AutoscalingRunnerSet);
    let input = crate::messages::Input::Observed(object.unwrap().clone());
    let effects = crate::actors::Machine::step(&mut machine, world.cluster.now, input);
    assert_eq!(effects, []);
}

#[test]
fn at_rest_repeated_messages_have_no_effect() {
    let mut world = World::settled();
    let all: Vec<_> = world.cluster.objects.values().cloned().collect();
    for _ in 0..1000 {
        for object in &all {
            if object.kind() == Kind::AutoscalingRunnerSet {
                let effects = world.observe(object.clone());
                assert!(
                    effects.iter().all(|one| matches!(one, Effect::WakeAt(_))),
                    "{effects:?}"
                );
            }
        }
    }
}

#[test]
fn an_hour_of_rest_writes_nothing_and_calls_nobody() {
    let mut world = World::settled();
    let (writes, calls) = (world.cluster.writes.len(), world.service.calls.len());
    world.pass(3600);
    assert_eq!(
        world.cluster.writes.len(),
        writes,
        "{:#?}",
        &world.cluster.writes[writes..]
    );
    assert_eq!(world.service.calls.len(), calls);
}

#[test]
fn a_restarted_controller_writes_nothing_and_calls_nobody() {
    let mut world = World::settled();
    let (writes, calls) = (world.cluster.writes.len(), world.service.calls.len());
    world.restart();
    world.pass(120);
    assert_eq!(
        world.cluster.writes.len(),
        writes,
        "{:#?}",
        &world.cluster.writes[writes..]
    );
    assert_eq!(world.service.calls.len(), calls);
}

#[test]
fn a_changed_runner_spec_raises_the_revision_and_spares_the_listener() {
    let mut world = World::settled();
    let (set, listener) = (
        world.ers().metadata.uid.clone(),
        world.al().metadata.uid.clone(),
    );
    world.edit_set(|set| {
        set["spec"]["replicas"] = json!(4);
        set["spec"]["patchID"] = json!(3);
    });
    world.edit(|ars| ars["spec"]["template"]["spec"]["containers"][0]["image"] = json!("runner:2"));
    world.pass(5);
    let ers = world.ers();
    assert_eq!(ers.spec.actionable_revision, Some(2));
    assert_eq!((ers.spec.replicas, ers.spec.patch_id), (Some(4), 3));
    let spec = ers.spec.ephemeral_runner_spec.as_ref().unwrap();
    assert_eq!(
        spec.spec.as_ref().unwrap().containers[0].image.as_deref(),
        Some("runner:2")
    );
    assert_eq!(ers.metadata.uid, set);
    assert_eq!(world.al().metadata.uid, listener);
    assert_eq!(world.cluster.count("create Pod"), 1);
    assert!(world.is_observed());
}

#[test]
fn a_field_taken_out_of_the_runner_spec_is_taken_out_of_the_set() {
    let mut world = World::new();
    world.edit(|ars| ars["spec"]["template"]["spec"]["serviceAccountName"] = json!("builder"));
    world.pass(5);
    world.edit(|ars| {
        ars["spec"]["template"]["spec"]
            .as_object_mut()
            .unwrap()
            .remove("serviceAccountName");
    });
    world.pass(5);
    let ers = world.ers();
    let spec = ers.spec.ephemeral_runner_spec.as_ref().unwrap();
    assert_eq!(spec.spec.as_ref().unwrap().service_account_name, None);
    assert_eq!(ers.spec.actionable_revision, Some(2));
    world.pass(600);
    assert_eq!(world.ers().spec.actionable_revision, Some(2));
}

#[test]
fn changed_runner_metadata_reaches_new_runners_only() {
    let mut world = World::settled();
    world.edit(|ars| ars["spec"]["ephemeralRunnerMetadata"] = json!({"labels": {"a": "b"}}));
    world.pass(5);
    let ers = world.ers();
    assert_eq!(ers.spec.actionable_revision, Some(1));
    assert_eq!(
        ers.spec.ephemeral_runner_metadata.as_ref().unwrap().labels["a"],
        "b"
    );
    assert!(world.is_observed());
}

#[test]
fn changed_limits_replace_the_listener_one_after_the_other() {
    let mut world = World::settled();
    let before = world.al().metadata.uid.clone();
    world.edit(|ars| ars["spec"]["maxRunners"] = json!(2));
    world.pass(5);
    assert_eq!(world.al().spec.max_runners, 2);
    assert_ne!(world.al().metadata.uid, before);
    assert_eq!(world.most_pods, 1);
    assert_eq!(world.cluster.count("create AutoscalingListener"), 2);
    assert_eq!(world.events_of("ListenerReplaced"), 1);
    let reason = "maxRunners";
    assert_eq!(world.tallies, [Tally::ListenerRecreation { reason }]);
    let told = world
        .events
        .iter()
        .find(|note| note.reason == "ListenerReplaced");
    assert!(
        told.unwrap().message.contains("spec.maxRunners"),
        "{told:?}"
    );
    assert!(world.is_observed());
}

#[test]
fn a_listener_edited_by_hand_is_made_as_it_was() {
    let mut world = World::settled();
    let name = world.al().metadata.name.clone().unwrap();
    world
        .cluster
        .edit(Kind::AutoscalingListener, CONTROLLER, &name, |al| {
            al["spec"]["ephemeralRunnerSetName"] = json!("ghost");
        });
    world.pass(5);
    assert_eq!(world.al().spec.ephemeral_runner_set_name, POOL);
    assert_eq!(world.cluster.count("create AutoscalingListener"), 2);
    assert_eq!(world.most_pods, 1);
}

#[test]
fn a_new_name_of_the_listener_waits_for_the_end_of_the_old_one() {
    let mut world = World::settled();
    let before = world.al().metadata.name.clone();
    world.edit(|ars| ars["spec"]["runnerGroup"] = json!("gpu"));
    world.pass(10);
    assert_ne!(world.al().metadata.name, before);
    assert_eq!(world.most_pods, 1);
    assert_eq!(world.service.sets[&11].group_id, 7);
    assert_eq!(
        world.annotation("actions.github.com/runner-group-name"),
        "gpu"
    );
    assert!(world.is_observed());
    assert_eq!(world.phase(), Some(Phase::Running));
}

#[test]
fn a_label_of_the_scale_set_costs_at_most_one_listener() {
    let mut world = World::settled();
    world.edit(|ars| ars["metadata"]["labels"]["more"] = json!("x"));
    world.pass(5);
    assert_eq!(world.cluster.count("create AutoscalingListener"), 2);
    assert_eq!(world.ers().metadata.labels.as_ref().unwrap()["more"], "x");
    assert_eq!(world.ers().spec.actionable_revision, Some(1));
    world.pass(3600);
    assert_eq!(world.cluster.count("create AutoscalingListener"), 2);
}

#[test]
fn empty_collections_and_nudges_change_nothing() {
    let mut manifest = scale_set();
    manifest["spec"]["listenerTemplate"] = json!({"metadata": {"labels": {}}, "spec": {
        "tolerations": [], "imagePullSecrets": [], "containers": [{"name": "listener", "env": []}]}});
    manifest["spec"]["template"]["spec"]["tolerations"] = json!([]);
    let mut world = World::new();
    world.apply(manifest);
    world.pass(10);
    for nudge in 0..20 {
        world.edit(|ars| ars["metadata"]["annotations"]["nudge"] = json!(nudge.to_string()));
        world.pass(2);
    }
    assert_eq!(world.cluster.count("delete"), 0);
    assert_eq!(world.ers().spec.actionable_revision, Some(1));
    assert_eq!(world.phase(), Some(Phase::Running));
}

#[test]
fn a_listener_that_admission_always_changes_is_not_replaced_without_end() {
    let mut world = World::settled();
    for _ in 0..600 {
        let names = world.cluster.names(Kind::AutoscalingListener);
        for name in names {
            world
                .cluster
                .edit(Kind::AutoscalingListener, CONTROLLER, &name, |al| {
                    al["spec"]["image"] = json!("mirror/x");
                });
        }
        world.pass(1);
    }
    let made = world.cluster.count("create AutoscalingListener");
    assert!((5..12).contains(&made), "{made} listeners in 10 minutes");
}

#[test]
fn a_half_applied_update_stays_pending_until_it_is_whole() {
    let mut world = World::settled();
    world.cluster.sabotage(|request| {
        let patch = matches!(request, KubeRequest::Patch { .. });
        (patch && request.kind() == Kind::EphemeralRunnerSet)
            .then_some(Fault::Refuse(KubeErrorKind::Unavailable))
    });
    world.edit(|ars| ars["spec"]["template"]["spec"]["containers"][0]["image"] = json!("runner:2"));
    let requests = world.cluster.requests;
    world.pass(300);
    assert_eq!(world.phase(), Some(Phase::Pending));
    assert!(!world.is_observed());
    assert!(
        world
            .condition("RunnersReady")
            .contains("EphemeralRunnerSet")
    );
    assert!(world.cluster.requests - requests < 60);
    world.cluster.stop_sabotage();
    world.pass(40);
    assert_eq!(world.phase(), Some(Phase::Running));
    assert!(world.is_observed());
    assert_eq!(world.ers().spec.actionable_revision, Some(2));
}

#[test]
fn a_new_generation_is_pending_until_its_listener_runs() {
    let mut world = World::settled();
    world.kubelet = false;
    world.edit(|ars| ars["spec"]["maxRunners"] = json!(2));
    world.settle();
    assert_eq!(world.phase(), Some(Phase::Pending));
    world.pass(60);
    assert!(!world.is_observed());
    assert!(world.condition("Ready").starts_with("False"));
    world.kubelet = true;
    world.pass(5);
    assert_eq!(world.phase(), Some(Phase::Running));
    assert!(world.is_observed());
}

#[test]
fn a_listener_that_dies_later_shows_in_the_conditions_and_not_in_the_phase() {
    let mut world = World::settled();
    world.kubelet = false;
    let name = world.cluster.names(Kind::Pod).remove(0);
    world.cluster.edit(Kind::Pod, CONTROLLER, &name, |pod| {
        pod["status"] = json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"});
    });
    world.pass(5);
    assert_eq!(world.phase(), Some(Phase::Running));
    assert!(world.condition("ListenerReady").starts_with("False"));
    assert!(world.condition("Ready").starts_with("False"));
    assert_eq!(world.cluster.count("create Pod"), 2);
    assert_eq!(world.cluster.count("create AutoscalingListener"), 1);
}

#[test]
fn a_missing_permission_keeps_it_pending_and_is_named() {
    let mut world = World::new();
    world.cluster.sabotage(|request| {
        let create = matches!(request, KubeRequest::Create(_));
        (create && request.kind() == Kind::Role).then_some(Fault::Refuse(KubeErrorKind::Forbidden))
    });
    world.pass(300);
    assert_eq!(world.phase(), Some(Phase::Pending));
    assert!(!world.is_observed());
    assert!(
        world.condition("Ready").contains("Role"),
        "{}",
        world.condition("Ready")
    );
    world.cluster.stop_sabotage();
    world.pass(120);
    assert_eq!(world.phase(), Some(Phase::Running));
}

#[test]
fn an_invalid_edit_is_named_and_tears_nothing_down() {
    let mut world = World::settled();
    world.edit(|ars| ars["spec"]["minRunners"] = json!(50));
    world.pass(60);
    assert!(world.condition("Ready").starts_with("False InvalidSpec"));
    assert_eq!(world.events_of("InvalidSpec"), 1);
    assert_eq!(world.phase(), Some(Phase::Pending));
    assert_eq!(world.cluster.count("delete"), 0);
    world.edit(|ars| ars["spec"]["minRunners"] = json!(1));
    world.pass(5);
    assert_eq!(world.phase(), Some(Phase::Running));
    assert!(world.condition("Ready").starts_with("True"));
}

#[test]
fn an_untested_chart_is_said_to_be_one_and_served() {
    let mut world = World::new();
    world.edit(|ars| ars["metadata"]["labels"]["app.kubernetes.io/version"] = json!("9.9.9"));
    world.pass(5);
    assert_eq!(world.phase(), Some(Phase::Running));
    assert!(world.condition("VersionTested").contains("9.9.9"));
    assert_eq!(world.events_of("UntestedVersion"), 1);
    world.edit(|ars| ars["metadata"]["labels"]["app.kubernetes.io/version"] = json!("0.15.1"));
    world.pass(5);
    assert_eq!(world.condition("VersionTested"), "absent");
}

#[test]
fn the_status_is_written_at_most_once_a_second_and_the_last_count_lands() {
    let mut world = World::settled();
    let before = world.cluster.count("patch-status AutoscalingRunnerSet");
    for running in 0..50 {
        world.count_runners(RunnerCounts {
            running,
            pending: 1,
            ..RunnerCounts::default()
        });
    }
    world.pass(2);
    let writes = world.cluster.count("patch-status AutoscalingRunnerSet") - before;
    assert!(writes <= 2, "{writes}");
    let status = world.ars().status.clone().unwrap();
    assert_eq!(status.running_ephemeral_runners, Some(49));
    assert_eq!(status.current_runners, Some(50));
}

#[test]
fn the_controller_hears_of_changed_counts_once() {
    let mut world = World::settled();
    let before = world.reports.len();
    let counts = RunnerCounts {
        running: 2,
        ..RunnerCounts::default()
    };
    world.count_runners(counts);
    world.count_runners(counts);
    let Some(ScaleSetReport::Summary(summary)) = world.reports.last() else {
        panic!("no summary");
    };
    assert_eq!(world.reports.len(), before + 1);
    assert_eq!(summary.counts, counts);
    assert!(summary.listener_running);
    assert_eq!(summary.labels.repository, "widgets");
    assert_eq!(summary.labels.namespace, RUNNERS);
}

#[test]
fn a_transition_time_stays_while_the_status_of_its_condition_does() {
    let mut world = World::settled();
    let time = |world: &World| {
        let ars = world.ars();
        let all = &ars.status.as_ref().unwrap().conditions;
        let ready = all.iter().find(|one| one.type_ == "Registered").unwrap();
        (
            ready.last_transition_time.clone(),
            ready.observed_generation,
        )
    };
    let before = time(&world);
    world.edit(|ars| ars["spec"]["maxRunners"] = json!(3));
    world.pass(60);
    let now = time(&world);
    assert_eq!(now.0, before.0);
    assert_eq!(now.1, Some(before.1.unwrap() + 1));
}

#[test]
fn a_missing_set_is_made_again() {
    let mut world = World::settled();
    world
        .cluster
        .delete(Kind::EphemeralRunnerSet, RUNNERS, POOL);
    world.pass(5);
    assert_eq!(world.cluster.count("create EphemeralRunnerSet"), 2);
    assert_eq!(world.phase(), Some(Phase::Running));
}

#[test]
fn a_set_left_by_a_predecessor_goes_first() {
    let mut world = World::new();
    world.cluster.apply(crate::actors::listener::tests::cluster::from_value(
        Kind::EphemeralRunnerSet,
        json!({"metadata": {"name": POOL, "namespace": RUNNERS,
                "finalizers": ["ephemeralrunnerset.actions.github.com/finalizer"],
                "ownerReferences": [{"apiVersion": "actions.github.com/v1alpha1", "kind": "AutoscalingRunnerSet",
                    "name": POOL, "uid": "of-long-ago", "controller": true}]},
               "spec": {"patchID": 3, "replicas": 2}}),
    ));
    world.pass(5);
    assert_eq!(world.cluster.count("delete EphemeralRunnerSet"), 1);
    assert_eq!(world.ers().spec.patch_id, 0);
    let owner = &world.ers().metadata.owner_references.clone().unwrap()[0];
    assert_eq!(Some(&owner.uid), world.ars().metadata.uid.as_ref());
}

#[test]
fn watch_events_may_overtake_answers() {
    let mut world = World::new();
    world.watch_first = true;
    world.pass(5);
    assert_eq!(world.phase(), Some(Phase::Running));
    world.edit(|ars| {
        ars["spec"]["maxRunners"] = json!(2);
        ars["spec"]["runnerGroup"] = json!("gpu");
        ars["spec"]["template"]["spec"]["containers"][0]["image"] = json!("runner:2");
    });
    world.pass(10);
    assert!(world.is_observed());
    assert_eq!(world.ers().spec.actionable_revision, Some(2));
    assert_eq!(world.most_pods, 1);
    world
        .cluster
        .delete(Kind::AutoscalingRunnerSet, RUNNERS, POOL);
    world.pass(10);
    assert!(world.stopped);
    assert_eq!(world.cluster.objects.len(), 1);
}

#[test]
fn a_listener_whose_owner_fields_were_edited_is_still_ours() {
    let mut world = World::settled();
    let name = world.al().metadata.name.clone().unwrap();
    world
        .cluster
        .edit(Kind::AutoscalingListener, CONTROLLER, &name, |al| {
            al["spec"]["autoscalingRunnerSetName"] = json!("ghost");
        });
    world.pass(10);
    assert_eq!(world.al().spec.autoscaling_runner_set_name, POOL);
    assert_eq!(world.phase(), Some(Phase::Running));
}

#[test]
fn credentials_that_are_lost_while_the_listener_runs_are_told_and_heal() {
    let mut world = World::settled();
    let credentials = ObjectRef::new(Kind::Secret, RUNNERS, "credentials");
    let secret = world.cluster.objects[&credentials].clone();
    let pods = world.cluster.count("create Pod");
    world.cluster.vanish(Kind::Secret, RUNNERS, "credentials");
    world.pass(600);
    let told = world.condition("ListenerReady");
    assert!(told.starts_with("True SourceMissing"), "{told}");
    assert!(told.contains("runners/credentials"), "{told}");
    let told = world.condition("Ready");
    assert!(told.starts_with("False SourceMissing"), "{told}");
    assert_eq!(world.phase(), Some(Phase::Running));
    assert_eq!(world.events_of("SourceUnusable"), 1);
    let event = world.events.last().unwrap();
    assert_eq!(event.about, world.ars().reference());
    assert!(event.message.contains("runners/credentials"), "{event:?}");
    let writes = world.cluster.writes.len();
    world.pass(3600);
    assert_eq!(world.cluster.writes.len(), writes);
    assert_eq!(world.events_of("SourceUnusable"), 1);

    world.cluster.apply(secret);
    world.pass(60);
    let told = world.condition("Ready");
    assert!(told.starts_with("True Ready"), "{told}");
    let told = world.condition("ListenerReady");
    assert!(told.starts_with("True ListenerRunning"), "{told}");
    assert_eq!(world.cluster.count("create Pod"), pods);

    world.cluster.vanish(Kind::Secret, RUNNERS, "credentials");
    world.pass(120);
    assert_eq!(world.events_of("SourceUnusable"), 2, "it is news again");
}

#[test]
fn credentials_that_become_unusable_while_the_listener_runs_are_told_without_their_value() {
    let mut world = World::settled();
    world
        .cluster
        .edit(Kind::Secret, RUNNERS, "credentials", |secret| {
            secret["data"] = json!({"github_token": "aHVzaA==", "github_app_id": "MQ=="});
        });
    world.pass(120);
    let told = world.condition("Ready");
    assert!(told.starts_with("False CredentialsUnusable"), "{told}");
    assert_eq!(world.events_of("SourceUnusable"), 1);
    // another problem is another event
    world.cluster.vanish(Kind::Secret, RUNNERS, "credentials");
    world.pass(120);
    assert_eq!(world.events_of("SourceUnusable"), 2);
    assert!(!format!("{:?}", world.events).contains("hush"));
}

#[test]
fn a_secret_that_is_missing_before_there_is_a_listener_is_an_event_too() {
    let mut world = World::settled();
    world.edit(|ars| ars["spec"]["githubConfigSecret"] = json!("renamed"));
    world.pass(600);
    let told = world.condition("ListenerReady");
    assert!(told.starts_with("False SourceMissing"), "{told}");
    assert_eq!(world.events_of("SourceUnusable"), 1);
    assert!(world.cluster.names(Kind::Pod).is_empty());
}

#[test]
fn a_controller_started_anew_does_not_take_lost_credentials_for_found() {
    let mut world = World::settled();
    world.cluster.vanish(Kind::Secret, RUNNERS, "credentials");
    world.pass(120);
    let writes = world.cluster.writes.len();
    world.restart();
    world.pass(60);
    assert_eq!(
        world.cluster.writes.len(),
        writes,
        "{:?}",
        &world.cluster.writes[writes..]
    );
    let told = world.condition("Ready");
    assert!(told.starts_with("False SourceMissing"), "{told}");
}
