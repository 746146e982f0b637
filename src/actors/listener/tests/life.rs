//! Making, keeping and taking down what a listener needs.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde_json::json;

use super::world::{CONTROLLER, NAME, RUNNERS, World, secret};
use crate::actors::Machine;
use crate::api::AutoscalingListener;
use crate::api::constants::labels;
use crate::messages::{Input, Kind, ListenerCommand, ObjectRef, Reason};

#[test]
fn objects_are_made_in_the_order_in_which_they_need_each_other() {
    let mut world = World::new();
    world.settle();
    assert_eq!(
        world.cluster.writes,
        [
            format!("patch AutoscalingListener {NAME}"),
            format!("create ServiceAccount {NAME}"),
            format!("create Role {NAME}"),
            format!("create RoleBinding {NAME}"),
            format!("create Secret {NAME}-config"),
            format!("create Pod {NAME}"),
        ]
    );
    assert_eq!(world.config()["github_token"], "t0p-s3cret");
    let role: Arc<Role> = world.cluster.get(RUNNERS, NAME).unwrap();
    assert!(role.rules.is_some());
}

#[test]
fn a_running_listener_is_reported_once_as_ready() {
    let world = World::running();
    assert!(world.report().ready && world.report().has_pod);
    assert_eq!(world.reports.iter().filter(|one| one.ready).count(), 1);
}

#[test]
fn at_rest_repeated_messages_have_no_effect() {
    let mut world = World::running();
    let (now, requests) = (world.cluster.now, world.cluster.requests);
    let all: Vec<_> = world.cluster.objects.values().cloned().collect();
    for _ in 0..1000 {
        for object in &all {
            let effects = world.machine.step(now, Input::Observed(object.clone()));
            let other = effects
                .iter()
                .filter(|effect| !matches!(effect, crate::messages::Effect::WakeAt(_)));
            assert_eq!(other.count(), 0, "{effects:?}");
        }
    }
    assert_eq!(world.cluster.requests, requests);
}

#[test]
fn an_hour_of_rest_reads_the_sources_and_writes_nothing() {
    let mut world = World::running();
    let writes = world.cluster.writes.len();
    let requests = world.cluster.requests;
    world.pass(3600);
    assert_eq!(world.cluster.writes.len(), writes);
    let reads = world.cluster.requests - requests;
    assert!(
        (60..=180).contains(&reads),
        "{reads} reads in 60 sync periods"
    );
}

#[test]
fn a_restarted_controller_writes_nothing() {
    let mut world = World::running();
    let writes = world.cluster.writes.len();
    world.restart();
    world.settle();
    assert_eq!(world.cluster.writes.len(), writes);
    assert!(world.report().ready);
}

#[test]
fn a_changed_token_restarts_the_pod_once() {
    let mut world = World::running();
    let before = world.pod_uid();
    world
        .cluster
        .apply(secret("credentials", &[("github_token", "other")]));
    world.pass(61);
    world.finish_pod();
    world.pass(1);
    assert_eq!(world.config()["github_token"], "other");
    assert_ne!(world.pod_uid(), before);
    assert_eq!(world.cluster.count("create Pod"), 2);
    world.start_pod();
    world.pass(600);
    assert_eq!(world.cluster.count("create Pod"), 2);
    assert!(world.report().ready);
}

#[test]
fn a_touched_listener_has_its_sources_read_at_once() {
    let mut world = World::running();
    world
        .cluster
        .apply(secret("credentials", &[("github_token", "other")]));
    world
        .cluster
        .edit(Kind::AutoscalingListener, CONTROLLER, NAME, |al| {
            al["metadata"]["annotations"] = json!({"touched": "1"});
        });
    world.settle();
    assert_eq!(world.config()["github_token"], "other");
}

#[test]
fn a_changed_proxy_password_restarts_the_pod_once() {
    let mut world = World::new();
    world
        .cluster
        .edit(Kind::AutoscalingListener, CONTROLLER, NAME, |al| {
            al["spec"]["proxy"] =
                json!({"https": {"url": "http://proxy:3128", "credentialSecretRef": "px"}});
        });
    world
        .cluster
        .apply(secret("px", &[("username", "u"), ("password", "p1")]));
    world.pass(1);
    assert_eq!(world.cluster.count("create Secret"), 2);
    world.start_pod();
    world.settle();
    world
        .cluster
        .apply(secret("px", &[("username", "u"), ("password", "p2")]));
    world.pass(61);
    world.finish_pod();
    world.pass(1);
    world.start_pod();
    world.pass(600);
    assert_eq!(world.cluster.count("create Pod"), 2);
    assert!(world.report().ready);
}

#[test]
fn a_missing_secret_is_named_and_makes_no_pod() {
    let mut world = World::new();
    world.cluster.vanish(Kind::Secret, RUNNERS, "credentials");
    world.pass(600);
    assert!(world.pod().is_none());
    assert!(
        world.reason().starts_with("SourceMissing"),
        "{}",
        world.reason()
    );
    assert!(
        world.reason().contains("runners/credentials"),
        "{}",
        world.reason()
    );
    assert!(!world.report().ready);
    // the reason does not flicker with each attempt
    assert!(world.reports.len() < 6, "{:#?}", world.reports);
    world
        .cluster
        .apply(secret("credentials", &[("github_token", "late")]));
    world.pass(60);
    assert!(world.pod().is_some());
}

#[test]
fn unusable_credentials_are_named_and_make_no_pod() {
    let mut world = World::new();
    let both = [("github_token", "hush"), ("github_app_id", "1")];
    world.cluster.apply(secret("credentials", &both));
    world.settle();
    assert!(world.pod().is_none());
    assert!(
        world.reason().starts_with("CredentialsUnusable"),
        "{}",
        world.reason()
    );
    assert!(
        world.reason().contains("github_app_id"),
        "{}",
        world.reason()
    );
    assert!(!world.reason().contains("hush"));
}

#[test]
fn a_running_pod_outlives_its_sources() {
    let mut world = World::running();
    let before = world.pod_uid();
    world.cluster.vanish(Kind::Secret, RUNNERS, "credentials");
    world.pass(600);
    assert_eq!(world.pod_uid(), before);
    assert!(world.report().ready);
}

#[test]
fn what_others_change_is_set_back_and_what_they_add_stays() {
    let mut world = World::running();
    world.cluster.edit(Kind::Role, RUNNERS, NAME, |role| {
        role["rules"] = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        role["metadata"]["labels"]["theirs"] = json!("x");
    });
    world
        .cluster
        .edit(Kind::RoleBinding, RUNNERS, NAME, |binding| {
            binding["subjects"] = json!([]);
        });
    world
        .cluster
        .edit(Kind::ServiceAccount, CONTROLLER, NAME, |account| {
            account["metadata"]["ownerReferences"] = json!([]);
        });
    world.settle();
    let role: Arc<Role> = world.cluster.get(RUNNERS, NAME).unwrap();
    assert_ne!(role.rules.as_ref().unwrap()[0].verbs, ["*"]);
    assert_eq!(role.metadata.labels.as_ref().unwrap()["theirs"], "x");
    let binding: Arc<RoleBinding> = world.cluster.get(RUNNERS, NAME).unwrap();
    assert_eq!(binding.subjects.as_ref().unwrap().len(), 1);
    let account: Arc<ServiceAccount> = world.cluster.get(CONTROLLER, NAME).unwrap();
    assert_eq!(account.metadata.owner_references.as_ref().unwrap().len(), 1);
}

#[test]
fn changed_secret_data_is_set_back_within_a_sync_period() {
    let mut world = World::running();
    let name = format!("{NAME}-config");
    world
        .cluster
        .edit(Kind::Secret, CONTROLLER, &name, |secret| {
            secret["data"] = json!({"config.json": "e30=", "more": "eA=="});
        });
    world.pass(61);
    assert_eq!(world.config()["github_token"], "t0p-s3cret");
    let secret: Arc<Secret> = world.cluster.get(CONTROLLER, &name).unwrap();
    assert_eq!(secret.data.as_ref().unwrap().len(), 1);
}

#[test]
fn a_foreign_label_on_a_secret_leaves_the_pod_alone() {
    let mut world = World::new();
    world
        .cluster
        .edit(Kind::AutoscalingListener, CONTROLLER, NAME, |al| {
            al["spec"]["proxy"] = json!({"https": {"url": "http://proxy:3128"}});
        });
    world.pass(1);
    world.start_pod();
    world.pass(70);
    let before = world.pod_uid();
    for secret in ["config", "proxy", "config"] {
        let name = format!("{NAME}-{secret}");
        let writes = world.cluster.writes.len();
        world
            .cluster
            .edit(Kind::Secret, CONTROLLER, &name, |secret| {
                let count = secret["metadata"]["labels"].as_object().unwrap().len();
                secret["metadata"]["labels"][format!("theirs-{count}")] = json!("x");
            });
        world.pass(130);
        assert_eq!(world.pod_uid(), before, "{secret}");
        assert_eq!(world.cluster.writes.len(), writes, "{secret}");
        assert!(world.report().ready, "{secret}");
    }
    // a pod made from now on is marked with the version that is there
    world.end_listener(1);
    world.pass(1);
    world.start_pod();
    world.pass(70);
    world.restart();
    world.pass(70);
    assert_eq!(world.cluster.count("create Pod"), 2);
    assert!(world.report().ready);
}

#[test]
fn a_label_on_a_secret_that_a_pod_may_not_have_read_restarts_it_once() {
    let mut world = World::new();
    world.settle();
    let label = |world: &mut World, value: &str| {
        let name = format!("{NAME}-config");
        world
            .cluster
            .edit(Kind::Secret, CONTROLLER, &name, |secret| {
                secret["metadata"]["labels"]["theirs"] = json!(value);
            });
    };
    // between the pod's creation and its start the Secret may have been another
    label(&mut world, "x");
    world.pass(30);
    world.start_pod();
    world.pass(61);
    world.finish_pod();
    world.pass(1);
    assert_eq!(world.cluster.count("create Pod"), 2);
    world.start_pod();
    world.pass(600);
    assert_eq!(world.cluster.count("create Pod"), 2);
}

#[test]
fn a_binding_to_another_role_is_made_again() {
    let mut world = World::running();
    world
        .cluster
        .edit(Kind::RoleBinding, RUNNERS, NAME, |binding| {
            binding["roleRef"]["name"] = json!("admin");
        });
    world.settle();
    assert_eq!(world.cluster.count("delete RoleBinding"), 1);
    let binding: Arc<RoleBinding> = world.cluster.get(RUNNERS, NAME).unwrap();
    assert_eq!(binding.role_ref.name, NAME);
}

#[test]
fn somebody_who_undoes_a_correction_each_time_does_not_spin_it() {
    let mut world = World::running();
    let before = world.cluster.writes.len();
    for _ in 0..600 {
        world
            .cluster
            .edit(Kind::Role, RUNNERS, NAME, |role| role["rules"] = json!([]));
        world.pass(1);
    }
    let writes = world.cluster.writes.len() - before;
    assert!((5..12).contains(&writes), "{writes} writes in 10 minutes");
}

#[test]
fn an_object_that_lost_the_label_of_the_watch_is_not_taken_for_gone() {
    let mut world = World::running();
    let pod = world.pod().unwrap();
    let gone = Input::Gone {
        object: crate::messages::KubeObject::reference(pod.as_ref()),
        uid: world.pod_uid(),
    };
    let effects = world.machine.step(world.cluster.now, gone);
    assert!(
        matches!(
            effects.first(),
            Some(crate::messages::Effect::Kube(
                _,
                crate::messages::KubeRequest::Get(_)
            ))
        ),
        "{effects:?}"
    );
}

#[test]
fn a_foreign_object_in_the_way_is_named_and_kept() {
    let mut world = World::new();
    let mut theirs = ServiceAccount::default();
    theirs.metadata.name = Some(NAME.to_owned());
    theirs.metadata.namespace = Some(CONTROLLER.to_owned());
    world.cluster.apply(theirs);
    world.pass(300);
    assert!(
        world.reason().starts_with("ForeignObject"),
        "{}",
        world.reason()
    );
    let told = world
        .events
        .iter()
        .filter(|note| note.reason == "ForeignObject");
    assert_eq!(told.count(), 1);
    assert_eq!(world.cluster.count("create"), 0);
    assert_eq!(world.cluster.count("delete"), 0);
    world.cluster.vanish(Kind::ServiceAccount, CONTROLLER, NAME);
    world.pass(300);
    assert!(world.pod().is_some());
}

#[test]
fn a_stopped_listener_keeps_nothing_but_itself() {
    let mut world = World::running();
    world
        .cluster
        .edit(Kind::AutoscalingListener, CONTROLLER, NAME, |al| {
            al["spec"]["phase"] = json!("Stopped");
        });
    world.settle();
    // permissions stay while the pod ends
    assert!(world.cluster.get::<Role>(RUNNERS, NAME).is_some());
    world.finish_pod();
    world.settle();
    assert_eq!(world.cluster.names(Kind::Secret), ["credentials"]);
    for kind in [
        Kind::Pod,
        Kind::Role,
        Kind::RoleBinding,
        Kind::ServiceAccount,
    ] {
        assert!(world.cluster.names(kind).is_empty(), "{kind}");
    }
    assert!(!world.report().has_pod);
    assert!(
        world
            .cluster
            .get::<AutoscalingListener>(CONTROLLER, NAME)
            .is_some()
    );
    let writes = world.cluster.writes.len();
    world.pass(3600);
    assert_eq!(world.cluster.writes.len(), writes);

    world
        .cluster
        .edit(Kind::AutoscalingListener, CONTROLLER, NAME, |al| {
            al["spec"]["phase"] = json!("Running");
        });
    world.settle();
    world.start_pod();
    world.settle();
    assert!(world.report().ready);
    assert_eq!(world.report().listener.as_ref().unwrap().status, None);
}

#[test]
fn a_stopped_listener_loses_its_proxy_secret_even_without_a_proxy() {
    let mut world = World::running();
    let mut left = secret(&format!("{NAME}-proxy"), &[("https_proxy", "x")]);
    left.metadata.namespace = Some(CONTROLLER.to_owned());
    let owner: Arc<AutoscalingListener> = world.cluster.get(CONTROLLER, NAME).unwrap();
    left.metadata.owner_references = Some(vec![crate::resources::owner_reference(owner.as_ref())]);
    world.cluster.apply(left);
    world
        .cluster
        .edit(Kind::AutoscalingListener, CONTROLLER, NAME, |al| {
            al["spec"]["phase"] = json!("Stopped");
        });
    world.settle();
    world.finish_pod();
    world.settle();
    assert_eq!(world.cluster.names(Kind::Secret), ["credentials"]);
}

#[test]
fn a_deleted_listener_removes_everything_and_ends() {
    let mut world = World::running();
    world
        .cluster
        .delete(Kind::AutoscalingListener, CONTROLLER, NAME);
    world.settle();
    world.finish_pod();
    world.settle();
    assert_eq!(
        world.cluster.objects.len(),
        1,
        "only the credentials are left"
    );
    assert!(world.stopped);
    assert_eq!(world.report().listener, None);
    assert!(!world.report().has_pod);
}

#[test]
fn a_listener_whose_finalizer_was_forced_off_still_removes_its_role() {
    let mut world = World::running();
    world
        .cluster
        .vanish(Kind::AutoscalingListener, CONTROLLER, NAME);
    world.settle();
    world.finish_pod();
    world.settle();
    assert_eq!(
        world.cluster.objects.len(),
        1,
        "only the credentials are left"
    );
    assert!(world.stopped);
}

#[test]
fn an_orphan_deletes_itself() {
    let mut world = World::running();
    world.command(ListenerCommand::Orphaned);
    world.finish_pod();
    world.settle();
    assert!(world.stopped);
    assert_eq!(
        world.cluster.objects.len(),
        1,
        "only the credentials are left"
    );
}

#[test]
fn a_listener_that_was_never_there_ends_without_a_write() {
    let mut world = World::new();
    world
        .cluster
        .vanish(Kind::AutoscalingListener, CONTROLLER, NAME);
    world.cluster.shown.clear();
    world.command(ListenerCommand::RefreshSources);
    assert!(world.stopped);
    assert!(world.cluster.writes.is_empty());
}

#[test]
fn no_secret_reaches_events_reports_or_debug_output() {
    let mut world = World::running();
    world.end_listener(1);
    world.settle();
    let said = format!("{:?}{:?}{:?}", world.events, world.reports, world.machine);
    assert!(!said.contains("t0p-s3cret"));
}

#[test]
fn what_was_being_created_when_the_listener_was_deleted_goes_too() {
    for kind in [
        Kind::ServiceAccount,
        Kind::Role,
        Kind::RoleBinding,
        Kind::Secret,
        Kind::Pod,
    ] {
        let mut world = World::new();
        world.hold = Some(kind);
        world.pass(1);
        world
            .cluster
            .delete(Kind::AutoscalingListener, CONTROLLER, NAME);
        world.settle();
        assert!(!world.stopped, "{kind}");
        world.release();
        world.pass(30);
        assert!(world.stopped, "{kind}");
        assert_eq!(
            world.cluster.objects.len(),
            1,
            "{kind}: {:?}",
            world.cluster.objects.keys()
        );
    }
}

#[test]
fn watch_events_may_overtake_answers() {
    let mut world = World::new();
    world.watch_first = true;
    world.pass(1);
    world.start_pod();
    world.settle();
    assert!(world.report().ready);
    assert_eq!(world.cluster.count("create"), 5);
    world.end_listener(1);
    world.pass(1);
    assert_eq!(world.cluster.count("create Pod"), 2);
    world.start_pod();
    world
        .cluster
        .delete(Kind::AutoscalingListener, CONTROLLER, NAME);
    world.settle();
    world.finish_pod();
    world.pass(1);
    assert!(world.stopped);
    assert_eq!(world.cluster.objects.len(), 1);
}

#[test]
fn a_successor_of_an_orphan_is_kept() {
    let mut world = World::running();
    world.command(ListenerCommand::Orphaned);
    world.finish_pod();
    // the successor comes before the end of the old one was noticed
    world
        .cluster
        .vanish(Kind::AutoscalingListener, CONTROLLER, NAME);
    world.cluster.shown.clear();
    world.cluster.apply(super::world::listener());
    world.pass(1);
    assert!(!world.stopped);
    assert!(world.pod().is_some());
}

#[test]
fn a_role_that_lost_the_labels_of_its_listener_gets_them_back() {
    for kind in [Kind::Role, Kind::RoleBinding] {
        let mut world = labelled();
        world.cluster.edit(kind, RUNNERS, NAME, |object| {
            let all = object["metadata"]["labels"].as_object_mut().unwrap();
            all.remove(labels::LISTENER_NAME);
            all.remove(labels::LISTENER_NAMESPACE);
        });
        world.settle();
        let reference = crate::messages::ObjectRef::new(kind, RUNNERS, NAME);
        let labels = world.cluster.objects[&reference].meta().labels.clone();
        assert_eq!(labels.unwrap()[labels::LISTENER_NAME], NAME, "{kind}");
        assert!(world.events.is_empty(), "{:?}", world.events);
        assert_eq!(world.cluster.count("delete"), 0);
    }
}

#[test]
fn a_role_of_another_listener_or_of_nobody_is_left_alone() {
    for theirs in [
        json!({(labels::LISTENER_NAMESPACE): "elsewhere"}),
        json!({(labels::SCALE_SET_NAME): "other", (labels::LISTENER_NAME): null}),
        json!({(labels::COMPONENT): null, (labels::LISTENER_NAME): null}),
    ] {
        let mut world = labelled();
        world.cluster.edit(Kind::Role, RUNNERS, NAME, |role| {
            json_patch::merge(&mut role["metadata"]["labels"], &theirs);
        });
        world
            .cluster
            .delete(Kind::AutoscalingListener, CONTROLLER, NAME);
        world.settle();
        world.finish_pod();
        world.pass(60);
        assert!(world.stopped);
        assert_eq!(world.cluster.names(Kind::Role), [NAME], "{theirs}");
    }
}

/// Running, with the labels that a scale set gives its listener.
#[test]
fn an_object_elsewhere_that_is_labelled_as_ours_is_not_taken_for_ours() {
    for kind in [Kind::Role, Kind::RoleBinding] {
        let mut world = World::running();
        let writes = world.cluster.writes.len();
        let ours = world.cluster.objects[&ObjectRef::new(kind, RUNNERS, NAME)].clone();
        let mut forged = crate::actors::listener::tests::cluster::to_value(&ours);
        forged["metadata"]["namespace"] = json!("somebody-else");
        forged["metadata"]["uid"] = json!("forged");
        forged["metadata"]["resourceVersion"] = json!("999999");
        forged["rules"] = json!([]);
        forged["subjects"] = json!([]);
        let forged = crate::actors::listener::tests::cluster::from_value(kind, forged);
        let now = world.cluster.now;
        let effects = world.machine.step(now, Input::Observed(forged.clone()));
        let gone = Input::Gone {
            object: forged.reference(),
            uid: ours.uid().to_owned(),
        };
        let more = world.machine.step(now, gone);
        for effect in effects.iter().chain(&more) {
            assert!(
                matches!(effect, crate::messages::Effect::WakeAt(_)),
                "{effect:?}"
            );
        }
        // and ours is still looked after
        world.cluster.edit(kind, RUNNERS, NAME, |object| {
            object["rules"] = json!([]);
            object["subjects"] = json!([]);
        });
        world.settle();
        assert!(world.cluster.writes.len() > writes, "{kind}");
    }
}

fn labelled() -> World {
    let mut world = World::new();
    world
        .cluster
        .edit(Kind::AutoscalingListener, CONTROLLER, NAME, |al| {
            al["metadata"]["labels"][labels::SCALE_SET_NAME] = json!("pool");
            al["metadata"]["labels"][labels::SCALE_SET_NAMESPACE] = json!(RUNNERS);
        });
    world.pass(1);
    world.start_pod();
    world.settle();
    world
}

#[test]
fn a_listener_started_anew_does_not_report_before_it_has_looked_at_its_sources() {
    let mut world = World::running();
    world.cluster.vanish(Kind::Secret, RUNNERS, "credentials");
    world.pass(120);
    let Reason {
        code: reason,
        message,
    } = world.report().problem.clone().unwrap();
    assert_eq!(reason, "SourceMissing");
    assert!(message.contains("runners/credentials"), "{message}");
    let told = world.reports.len();
    world.restart();
    world.settle();
    let since: Vec<_> = world.reports[told..]
        .iter()
        .map(|report| (report.ready, report.problem.is_some()))
        .collect();
    assert_eq!(since, [(true, true)]);
}
