//! When the pod is made again, and when it is not.

use std::time::Duration;

use serde_json::json;

use super::cluster::Fault;
use super::world::{World, container, settings};
use crate::api::AutoscalingListener;
use crate::messages::{Kind, KubeErrorKind, KubeRequest, Tally};
use crate::resources::ControllerSettings;

use super::world::{CONTROLLER, NAME};

#[test]
fn each_way_to_end_is_answered_with_one_new_pod() {
    let rows = [
        (
            "terminated",
            json!({"phase": "Failed", "containerStatuses": [
            container("listener", json!({"terminated": {"exitCode": 1}}))]}),
        ),
        (
            "evicted",
            json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}),
        ),
        (
            "hidden by a sidecar",
            json!({"phase": "Running", "containerStatuses": [
            container("side", json!({"running": {}})),
            container("listener", json!({"terminated": {"exitCode": 0}}))]}),
        ),
        (
            "failed before it started",
            json!({"phase": "Failed", "initContainerStatuses": [
            container("init", json!({"terminated": {"exitCode": 3}}))]}),
        ),
        (
            "node lost",
            json!({"phase": "Running", "reason": "NodeLost", "containerStatuses": [
            container("listener", json!({"running": {}}))]}),
        ),
    ];
    for (row, status) in rows {
        let mut world = World::running();
        let before = world.pod_uid();
        world.edit_pod(|pod| pod["status"] = status);
        world.settle();
        if world
            .pod()
            .is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
        {
            world.finish_pod();
        }
        world.pass(1);
        assert_ne!(world.pod_uid(), before, "{row}");
        assert_eq!(world.cluster.count("create Pod"), 2, "{row}");
        let told = world
            .events
            .iter()
            .filter(|note| note.reason == "ListenerRestarted");
        assert_eq!(told.count(), 1, "{row}");
        let reason = match row {
            "evicted" => "evicted",
            "node lost" => "node_lost",
            _ => "ended",
        };
        assert_eq!(world.tallies, [recreation(reason)], "{row}");
    }
}

#[test]
fn these_pods_are_left_alone() {
    let rows = [
        (
            "a dead sidecar",
            json!({"phase": "Running", "containerStatuses": [
            container("side", json!({"terminated": {"exitCode": 1}})),
            container("listener", json!({"running": {}}))]}),
        ),
        (
            "still initialising",
            json!({"phase": "Pending", "initContainerStatuses": [
            container("init", json!({"terminated": {"exitCode": 1}}))],
            "containerStatuses": [container("listener", json!({"waiting": {"reason": "PodInitializing"}}))]}),
        ),
        (
            "image not there yet",
            json!({"phase": "Pending", "containerStatuses": [
            container("listener", json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}))]}),
        ),
        (
            "not scheduled",
            json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]}),
        ),
    ];
    for (row, status) in rows {
        let mut world = World::running();
        let before = world.pod_uid();
        world.edit_pod(|pod| pod["status"] = status);
        world.pass(1800);
        assert_eq!(world.pod_uid(), before, "{row}");
    }
}

#[test]
fn a_pod_that_cannot_start_says_why() {
    let mut world = World::running();
    world.edit_pod(|pod| pod["status"] = json!({"phase": "Pending", "containerStatuses": [
        container("listener", json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}))]}));
    world.settle();
    assert!(!world.report().ready);
    assert_eq!(world.reason(), "ImagePullBackOff: no such tag");
}

#[test]
fn what_server_and_admission_add_is_no_reason_to_make_it_again() {
    let mut world = World::running();
    let before = world.pod_uid();
    world.edit_pod(|pod| {
        let listener = &mut pod["spec"]["containers"][0];
        listener["imagePullPolicy"] = json!("Always");
        listener["ports"][0]["protocol"] = json!("TCP");
        listener["volumeMounts"].as_array_mut().unwrap().insert(
            0,
            json!({"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io"}),
        );
        let injected = json!({"name": "injected", "image": "mesh"});
        pod["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .insert(0, injected);
        pod["spec"]["tolerations"] =
            json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]);
        pod["metadata"]["labels"]["theirs"] = json!("x");
    });
    world.pass(1800);
    assert_eq!(world.pod_uid(), before);
}

#[test]
fn each_drift_makes_it_again_once() {
    type Change = fn(&mut serde_json::Value);
    let rows: [(&str, &str, Change); 4] = [
        ("image", "image", |pod| {
            pod["spec"]["containers"][0]["image"] = json!("listener:0")
        }),
        ("no config version", "config", |pod| {
            pod["metadata"]["annotations"] = json!({});
        }),
        ("one port more", "ports", |pod| {
            let more = json!({"name": "more", "containerPort": 9});
            pod["spec"]["containers"][0]["ports"]
                .as_array_mut()
                .unwrap()
                .push(more);
        }),
        ("container renamed", "containers", |pod| {
            pod["spec"]["containers"][0]["name"] = json!("other")
        }),
    ];
    for (row, reason, change) in rows {
        let mut world = World::running();
        let before = world.pod_uid();
        world.edit_pod(change);
        world.settle();
        assert!(!world.report().ready, "{row}");
        world.finish_pod();
        world.settle();
        world.start_pod();
        world.pass(1800);
        assert_ne!(world.pod_uid(), before, "{row}");
        assert_eq!(world.cluster.count("create Pod"), 2, "{row}");
        assert!(
            world
                .events
                .iter()
                .any(|note| note.reason == "ListenerRecreated"),
            "{row}"
        );
        assert_eq!(world.tallies, [recreation(reason)], "{row}");
    }
}

/// The guard of the whole comparison: it is no equality, and a change that makes it one fails
/// here. Each row is a pod that carries all that is desired and something besides.
#[test]
fn more_than_is_desired_is_never_drift() {
    type Change = fn(&mut serde_json::Value);
    let rows: [(&str, Change); 9] = [
        ("a field of the pod", |pod| {
            pod["spec"]["schedulerName"] = json!("default-scheduler");
        }),
        ("a structure of the pod", |pod| {
            pod["spec"]["securityContext"] = json!({"fsGroup": 1});
        }),
        ("an entry of a map", |pod| {
            pod["spec"]["nodeSelector"]["zone"] = json!("a");
        }),
        ("a first container", |pod| {
            put_first(
                &mut pod["spec"]["containers"],
                json!({"name": "mesh", "image": "mesh:1"}),
            );
        }),
        ("a first volume", |pod| {
            put_first(
                &mut pod["spec"]["volumes"],
                json!({"name": "certs", "emptyDir": {}}),
            );
        }),
        ("a first variable", |pod| {
            put_first(
                &mut pod["spec"]["containers"][0]["env"],
                json!({"name": "MESH", "value": "on"}),
            );
        }),
        ("a field of a container", |pod| {
            pod["spec"]["containers"][0]["terminationMessagePath"] = json!("/dev/log");
        }),
        ("a field of a port", |pod| {
            pod["spec"]["containers"][0]["ports"][0]["hostPort"] = json!(8080);
        }),
        ("a field of a volume", |pod| {
            pod["spec"]["volumes"][0]["secret"]["defaultMode"] = json!(420);
        }),
    ];
    for (row, change) in rows {
        let mut world = World::running();
        let writes = world.cluster.writes.len();
        world.edit_pod(change);
        world.pass(300);
        assert_eq!(world.cluster.writes[writes..], [] as [String; 0], "{row}");
        assert!(world.report().ready, "{row}");
    }
}

fn put_first(list: &mut serde_json::Value, item: serde_json::Value) {
    list.as_array_mut().unwrap().insert(0, item);
}

fn recreation(reason: &'static str) -> Tally {
    Tally::ListenerRecreation { reason }
}

#[test]
fn a_refused_deletion_is_told_and_counted_once() {
    let mut world = World::running();
    world.cluster.sabotage(|request| {
        let refused = Fault::Refuse(KubeErrorKind::Unavailable);
        matches!(request, KubeRequest::Delete { .. }).then_some(refused)
    });
    world.edit_pod(|pod| pod["spec"]["containers"][0]["image"] = json!("listener:0"));
    world.pass(120);
    world.cluster.stop_sabotage();
    world.pass(600);
    assert_eq!(world.tallies, [recreation("image")]);
    let told = world
        .events
        .iter()
        .filter(|note| note.reason == "ListenerRecreated");
    assert_eq!(told.count(), 1);
}

#[test]
fn a_pod_that_lost_its_owner_gets_it_back_and_stays() {
    let mut world = World::running();
    let before = world.pod_uid();
    let theirs = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u-n"}]);
    world.edit_pod(|pod| pod["metadata"]["ownerReferences"] = theirs);
    world.pass(300);
    assert_eq!(world.pod_uid(), before);
    let owners = world.pod().unwrap().metadata.owner_references.clone();
    let kinds: Vec<String> = owners.into_iter().flatten().map(|one| one.kind).collect();
    assert_eq!(kinds, ["Node", "AutoscalingListener"]);
}

#[test]
fn the_config_version_is_never_written_onto_an_existing_pod() {
    let mut world = World::running();
    world.edit_pod(|pod| pod["metadata"]["annotations"] = json!({}));
    world.settle();
    let pod = world.pod().unwrap();
    assert!(pod.metadata.deletion_timestamp.is_some());
    assert!(
        pod.metadata
            .annotations
            .as_ref()
            .is_none_or(|all| all.is_empty())
    );
}

#[test]
fn admission_that_always_changes_the_pod_does_not_spin_it() {
    let mut world = World::running();
    for _ in 0..600 {
        if let Some(pod) = world.pod() {
            if pod.metadata.deletion_timestamp.is_some() {
                world.finish_pod();
            } else if pod.spec.as_ref().unwrap().containers[0].image.as_deref() != Some("mirror/x")
            {
                world.edit_pod(|pod| pod["spec"]["containers"][0]["image"] = json!("mirror/x"));
            }
        }
        world.pass(1);
    }
    let pods = world.cluster.count("create Pod");
    assert!((5..12).contains(&pods), "{pods} pods in 10 minutes");
}

#[test]
fn a_crash_loop_backs_off_and_a_healthy_time_resets_it() {
    let mut world = World::running();
    let mut made = Vec::new();
    let start = world.cluster.now;
    for _ in 0..1200 {
        let pods = world.cluster.count("create Pod");
        if world.pod().is_some() {
            world.end_listener(1);
        }
        world.pass(1);
        if world.cluster.count("create Pod") > pods {
            made.push(world.cluster.now.duration_since(start).as_secs());
        }
    }
    let gaps: Vec<i64> = made.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let expected = [5, 10, 20, 40, 80, 160, 300];
    for (gap, expected) in gaps.iter().zip(expected) {
        let range = expected * 3 / 4..=expected + 2;
        assert!(range.contains(gap), "{gaps:?}");
    }
    let restarts = |world: &World| {
        let al = world.cluster.get::<AutoscalingListener>(CONTROLLER, NAME);
        al.unwrap().status.clone().unwrap().restarts
    };
    assert!(restarts(&world) >= Some(7));
    world.pass(301);
    world.start_pod();
    world.pass(601);
    assert_eq!(restarts(&world), Some(0));
    world.end_listener(1);
    world.settle();
    assert!(
        world.pod().is_some_and(|pod| pod.status.is_none()),
        "made at once"
    );
}

#[test]
fn the_count_of_restarts_survives_the_controller() {
    let mut world = World::running();
    for _ in 0..3 {
        world.end_listener(1);
        world.pass(60);
    }
    world.start_pod();
    world.restart();
    world.settle();
    world.end_listener(1);
    world.pass(10);
    assert!(world.pod().is_none(), "the fourth waits 20 s");
    world.pass(11);
    assert!(world.pod().is_some());
}

#[test]
fn drift_does_not_wait_for_the_back_off() {
    let mut world = World::running();
    for _ in 0..4 {
        world.end_listener(1);
        world.pass(120);
    }
    world.start_pod();
    world.settle();
    world.edit_pod(|pod| pod["spec"]["containers"][0]["image"] = json!("listener:0"));
    world.settle();
    world.finish_pod();
    world.settle();
    assert!(world.pod().is_some());
}

#[test]
fn a_deleted_pod_is_waited_for_and_said_to_be_terminating() {
    let mut world = World::running();
    world.cluster.delete(Kind::Pod, CONTROLLER, NAME);
    world.pass(50);
    assert!(
        world.reason().starts_with("PodTerminating"),
        "{}",
        world.reason()
    );
    assert!(world.reason().contains("node-1"), "{}", world.reason());
    world.pass(3600);
    let stuck = world
        .events
        .iter()
        .filter(|note| note.reason == "ListenerStuck");
    assert_eq!(stuck.count(), 1);
    assert_eq!(world.cluster.count("delete Pod"), 0);
    world.finish_pod();
    world.settle();
    assert!(world.pod().is_some());
}

#[test]
fn a_pod_on_a_lost_node_is_forced_out_where_that_is_allowed() {
    let mut world = World::with(ControllerSettings {
        force_delete_lost_pods_after: Some(Duration::from_secs(300)),
        ..settings()
    });
    world.settle();
    world.start_pod();
    world.settle();
    let before = world.pod_uid();
    world.cluster.delete(Kind::Pod, CONTROLLER, NAME);
    world.pass(350);
    assert_eq!(world.pod_uid(), before);
    world.pass(15);
    assert_ne!(world.pod_uid(), before);
    assert!(
        world
            .events
            .iter()
            .any(|note| note.reason == "ListenerForceDeleted")
    );
}

#[test]
fn an_ended_pod_needs_no_grace_and_a_running_sidecar_gets_it() {
    let mut world = World::running();
    world.end_listener(1);
    world.settle();
    assert!(
        world.pod().unwrap().metadata.deletion_timestamp.is_none(),
        "already made again"
    );

    let mut world = World::running();
    world.edit_pod(|pod| {
        pod["status"] = json!({"phase": "Running", "containerStatuses": [
        container("side", json!({"running": {}})),
        container("listener", json!({"terminated": {"exitCode": 0}}))]})
    });
    world.settle();
    let grace = world.pod().unwrap().metadata.deletion_grace_period_seconds;
    assert_eq!(grace, Some(60));
}

#[test]
fn the_last_words_of_a_listener_are_told_without_credentials() {
    let mut world = World::running();
    world.edit_pod(|pod| {
        pod["status"] = json!({"phase": "Failed", "containerStatuses": [
        container("listener", json!({"terminated": {
            "exitCode": 1, "reason": "Error", "message": "refused:\nBearer ghs_0123456789abcdef\n",
        }}))]});
    });
    world.settle();
    let told = format!("{:?} {:?}", world.reports, world.events);
    assert!(
        told.contains("exit code 1: refused: Bearer [redacted]"),
        "{told}"
    );
    // the object itself is not ours to change
    let events = format!("{:?}", world.events);
    assert!(!events.contains("ghs_"), "{events}");
}
