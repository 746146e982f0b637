//! What the end of a listener is taken for: its own failure, which waits and is counted, or
//! somebody else's doing, which does neither.

use serde_json::{Value, json};

use super::world::{CONTROLLER, NAME, RUNNERS, World, container, secret};
use crate::api::AutoscalingListener;
use crate::messages::Kind;

fn told(world: &World) -> usize {
    let restarts = world.events.iter();
    restarts
        .filter(|note| note.reason == "ListenerRestarted")
        .count()
}

fn recorded(world: &World) -> Option<i64> {
    let al = world.cluster.get::<AutoscalingListener>(CONTROLLER, NAME);
    al.unwrap().status.clone().unwrap_or_default().restarts
}

/// A listener whose node has ended and started it so often, last with that exit code.
fn restarted(world: &mut World, count: i32, exit_code: i32, state: &Value) {
    world.edit_pod(|pod| {
        let mut listener = container("listener", state.clone());
        listener["restartCount"] = json!(count);
        listener["lastState"] = json!({"terminated": {"exitCode": exit_code, "reason": "Error"}});
        pod["status"] = json!({"phase": "Running", "containerStatuses": [listener]});
    });
}

fn runs(world: &World) -> Value {
    json!({"running": {"startedAt": world.cluster.now.to_string()}})
}

#[test]
fn an_end_that_the_node_has_answered_with_another_start_is_counted_and_the_pod_stays() {
    let mut world = World::running();
    let before = world.pod_uid();
    for count in 1..=2 {
        world.pass(30);
        let state = runs(&world);
        restarted(&mut world, count, 1, &state);
        world.pass(30);
        assert_eq!(told(&world), usize::try_from(count).unwrap());
        assert_eq!(recorded(&world), Some(i64::from(count)));
        assert!(world.report().ready);
        assert!(world.reason().contains("exit code 1"), "{}", world.reason());
        assert_eq!(world.report().missed_scale_set, None);
    }
    assert_eq!(world.pod_uid(), before);
    // who was not there has it on record, and counts it no second time
    let writes = world.cluster.writes.len();
    world.restart();
    world.pass(30);
    assert_eq!((told(&world), recorded(&world)), (2, Some(2)));
    assert_eq!(world.cluster.writes.len(), writes);
    world.pass(600);
    assert_eq!(recorded(&world), Some(0));
    // and it is history then
    world.restart();
    world.pass(30);
    assert_eq!((told(&world), recorded(&world)), (2, Some(0)));
}

#[test]
fn a_listener_that_waits_for_another_start_has_ended() {
    let mut world = World::running();
    let before = world.pod_uid();
    let waits = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}});
    restarted(&mut world, 3, 7, &waits);
    world.settle();
    world.finish_pod();
    world.pass(1);
    assert_ne!(world.pod_uid(), before);
    assert_eq!(told(&world), 1);
    assert!(world.events[0].message.contains("exit code 7"));
}

#[test]
fn a_scale_set_is_missed_however_the_end_shows() {
    type Show = fn(&mut World, i32);
    let rows: [(&str, Show); 3] = [
        ("terminated", |world, _| world.end_listener(44)),
        ("started again", |world, count| {
            let state = runs(world);
            restarted(world, count, 44, &state);
        }),
        ("waits for a start", |world, count| {
            let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
            restarted(world, count, 44, &waits);
        }),
    ];
    for (row, show) in rows {
        let mut world = World::running();
        let mut missed = Vec::new();
        for count in 1..=2 {
            show(&mut world, count);
            world.settle();
            missed.push(world.report().missed_scale_set.clone().expect(row));
            if world
                .pod()
                .is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
            {
                world.finish_pod();
            }
            world.pass(30);
            if row != "started again" {
                world.start_pod();
            }
            world.settle();
        }
        assert_ne!(missed[0], missed[1], "{row}: each is looked into");
    }
}

#[test]
fn from_the_third_failure_in_a_row_on_the_scale_set_is_looked_for() {
    for exit_code in [0, 1, 2, 137, 255] {
        let mut world = World::running();
        let mut missed = Vec::new();
        for _ in 0..4 {
            world.end_listener(exit_code);
            world.settle();
            missed.push(world.report().missed_scale_set.clone());
            world.pass(60);
            world.start_pod();
            world.settle();
        }
        assert_eq!(missed[..2], [None, None], "{exit_code}");
        assert!(missed[2].is_some() && missed[3].is_some(), "{exit_code}");
        assert_ne!(missed[2], missed[3], "{exit_code}");

        // one that was well in between has failed once
        let mut world = World::running();
        for _ in 0..4 {
            world.end_listener(exit_code);
            world.pass(60);
            world.start_pod();
            world.pass(601);
        }
        assert_eq!(world.report().missed_scale_set, None, "{exit_code}");
    }
}

/// Failed for what happened to the node or to make room, after it had run.
fn disruptions() -> [(&'static str, Value); 6] {
    let ran = |status: Value| {
        let mut status = status;
        let listener = json!({"terminated": {"exitCode": 137, "reason": "Error"}});
        status["containerStatuses"] = json!([container("listener", listener)]);
        status
    };
    let target = |reason| json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}]);
    [
        (
            "evicted",
            ran(json!({"phase": "Failed", "reason": "Evicted"})),
        ),
        // an old kubelet leaves nothing of the containers
        (
            "evicted, bare",
            json!({"phase": "Failed", "reason": "Evicted"}),
        ),
        (
            "node lost",
            json!({"phase": "Running", "reason": "NodeLost",
            "containerStatuses": [container("listener", json!({"running": {}}))]}),
        ),
        (
            "node shut down",
            ran(json!({"phase": "Failed", "reason": "Terminated",
            "conditions": target("TerminationByKubelet")})),
        ),
        (
            "preempted",
            ran(json!({"phase": "Failed", "conditions": target("PreemptionByScheduler")})),
        ),
        (
            "collected",
            ran(json!({"phase": "Failed", "conditions": target("DeletionByPodGC")})),
        ),
    ]
}

#[test]
fn what_somebody_else_ends_is_made_again_at_once_however_often() {
    type EndIt = Box<dyn Fn(&mut World)>;
    let mut rows: Vec<(&str, EndIt)> = vec![
        (
            "deleted",
            Box::new(|world| world.cluster.delete(Kind::Pod, CONTROLLER, NAME)),
        ),
        (
            "gone",
            Box::new(|world| world.cluster.vanish(Kind::Pod, CONTROLLER, NAME)),
        ),
    ];
    for (row, status) in disruptions() {
        let end = move |world: &mut World| world.edit_pod(|pod| pod["status"] = status.clone());
        rows.push((row, Box::new(end)));
    }
    for (row, end) in rows {
        let mut world = World::running();
        for round in 0..12 {
            world.pass(5);
            let before = world.pod_uid();
            end(&mut world);
            world.settle();
            if world
                .pod()
                .is_some_and(|pod| pod.metadata.deletion_timestamp.is_some())
            {
                world.finish_pod();
            }
            world.settle();
            assert_ne!(world.pod_uid(), before, "{row}, round {round}");
            world.start_pod();
            world.settle();
        }
        assert_eq!(told(&world), 12, "{row}");
        assert_eq!(recorded(&world), Some(0), "{row}: nothing has failed");
        assert_eq!(world.report().missed_scale_set, None, "{row}");
        world.end_listener(1);
        world.settle();
        assert!(
            world.pod().is_some(),
            "{row}: the first failure is answered at once"
        );
    }
}

#[test]
fn somebody_who_ends_each_pod_at_once_gets_one_every_few_seconds() {
    let mut world = World::running();
    for _ in 0..60 {
        if world.pod().is_some() {
            world.cluster.vanish(Kind::Pod, CONTROLLER, NAME);
        }
        world.pass(1);
    }
    let pods = world.cluster.count("create Pod");
    assert!((15..=22).contains(&pods), "{pods} pods in a minute");
}

#[test]
fn a_node_that_takes_no_pod_in_is_not_given_one_after_the_other() {
    let mut world = World::running();
    for _ in 0..300 {
        if world.pod().is_some() {
            world.edit_pod(|pod| {
                pod["status"] = json!({"phase": "Failed", "reason": "Evicted", "message": "The node had condition: [DiskPressure]."});
            });
        }
        world.pass(1);
    }
    let pods = world.cluster.count("create Pod");
    assert!((5..=9).contains(&pods), "{pods} pods in five minutes");
}

#[test]
fn a_deletion_does_not_forget_the_failures_before_it() {
    let mut world = World::running();
    for _ in 0..3 {
        world.end_listener(1);
        world.pass(60);
        world.start_pod();
        world.settle();
    }
    world.cluster.vanish(Kind::Pod, CONTROLLER, NAME);
    world.pass(1);
    world.start_pod();
    world.end_listener(1);
    world.pass(14);
    assert!(world.pod().is_none(), "the fourth failure waits 20 s");
    world.pass(7);
    assert!(world.pod().is_some());
}

/// With what a listener can have for sources, and failed so often that the next pod would come
/// in minutes.
fn waiting() -> World {
    let mut world = World::new();
    world
        .cluster
        .apply(secret("px", &[("username", "u"), ("password", "p1")]));
    world.cluster.apply(authority("one"));
    world
        .cluster
        .edit(Kind::AutoscalingListener, CONTROLLER, NAME, |al| {
            al["spec"]["proxy"] =
                json!({"https": {"url": "http://proxy:3128", "credentialSecretRef": "px"}});
            al["spec"]["githubServerTLS"] = json!({"certificateFrom": {"configMapKeyRef": {
                "name": "authority", "key": "ca.crt"}}});
        });
    world.pass(1);
    for _ in 0..7 {
        world.start_pod();
        world.end_listener(1);
        world.pass(300);
    }
    world.start_pod();
    world.settle();
    world.end_listener(1);
    world.pass(50);
    assert!(world.pod().is_none());
    world
}

fn authority(certificate: &str) -> k8s_openapi::api::core::v1::ConfigMap {
    serde_json::from_value(json!({
        "metadata": {"name": "authority", "namespace": RUNNERS},
        "data": {"ca.crt": format!("-----BEGIN CERTIFICATE-----\n{certificate}\n")},
    }))
    .unwrap()
}

#[test]
fn a_wait_ends_within_ten_seconds_when_what_it_waits_for_has_changed() {
    type Mend = fn(&mut World);
    let rows: [(&str, Mend); 5] = [
        ("credentials", |world| {
            let token = secret("credentials", &[("github_token", "other")]);
            world.cluster.apply(token);
        }),
        ("proxy credentials", |world| {
            let other = secret("px", &[("username", "u"), ("password", "p2")]);
            world.cluster.apply(other);
        }),
        ("root certificate", |world| {
            world.cluster.apply(authority("two"))
        }),
        ("spec of the pod", |world| {
            world
                .cluster
                .edit(Kind::AutoscalingListener, CONTROLLER, NAME, |al| {
                    al["spec"]["image"] = json!("listener:2");
                });
        }),
        ("spec of the configuration", |world| {
            world
                .cluster
                .edit(Kind::AutoscalingListener, CONTROLLER, NAME, |al| {
                    al["spec"]["maxRunners"] = json!(3);
                });
        }),
    ];
    for (row, mend) in rows {
        let mut world = waiting();
        mend(&mut world);
        world.pass(10);
        assert!(world.pod().is_some(), "{row}");
    }
}

#[test]
fn a_wait_goes_on_when_nothing_has_changed_that_a_listener_reads() {
    let mut world = waiting();
    world
        .cluster
        .edit(Kind::Secret, RUNNERS, "credentials", |secret| {
            secret["metadata"]["labels"] = json!({"theirs": "x"});
        });
    let config = format!("{NAME}-config");
    world
        .cluster
        .edit(Kind::Secret, CONTROLLER, &config, |secret| {
            secret["metadata"]["labels"]["theirs"] = json!("x");
        });
    world
        .cluster
        .edit(Kind::AutoscalingListener, CONTROLLER, NAME, |al| {
            al["metadata"]["annotations"] = json!({"touched": "1"});
        });
    world.pass(120);
    assert!(world.pod().is_none());
    world.pass(120);
    assert!(world.pod().is_some());
}

#[test]
fn a_source_that_was_missing_is_found_within_ten_seconds() {
    let mut world = World::new();
    world.cluster.vanish(Kind::Secret, RUNNERS, "credentials");
    world.pass(600);
    assert!(world.pod().is_none());
    let token = secret("credentials", &[("github_token", "t0p-s3cret")]);
    world.cluster.apply(token);
    world.pass(10);
    assert!(world.pod().is_some());
}

#[test]
fn reading_sources_more_often_ends_with_the_wait() {
    let mut world = waiting();
    world.pass(300);
    world.start_pod();
    world.pass(1);
    let requests = world.cluster.requests;
    world.pass(600);
    let reads = world.cluster.requests - requests;
    assert!(reads <= 60, "{reads} reads in ten sync periods");
}
