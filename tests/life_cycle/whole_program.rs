//! Everything runs: controller, listener program, simulated runners. A burst of jobs goes
//! through a scale set, and then the scale set goes.

use std::time::Duration;

use impresario::api::AutoscalingRunnerSet;
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::stage::manifests::{RUN, SET, TOKEN, rendered};
use crate::stage::{Known, Stage, play};

const JOB: Duration = Duration::from_secs(20);

#[test]
fn a_burst_of_jobs_is_done_and_the_pool_shrinks_to_its_minimum() {
    play(async || {
        let stage = Stage::whole(1).await;
        stage.settled_fixture(1, 4).await;
        stage.queue_jobs(6, SET, JOB);
        stage
            .until("the pool is full", async || stage.live().await.len() == 4)
            .await;
        stage
            .until("all jobs are done", async || stage.jobs_done() == 6)
            .await;
        stage
            .until("one runner is left", async || {
                stage.runners().await.len() == 1
            })
            .await;
        stage.settle().await;
        let status = stage.scale_set().await.status.unwrap();
        assert_eq!(status.current_runners, Some(1));
        stage.assert_nothing_left_over_beside_runners().await;
        stage.assert_sound();
    });
}

/// The listener's next poll may take 50 s. Its patch says which finished jobs it leaves out, so
/// nobody has to wait for it.
#[test]
fn a_full_pool_goes_from_job_to_job_without_waiting_for_a_poll() {
    for (seed, size) in [(21, 1), (22, 2)] {
        play(async || {
            let stage = Stage::whole(seed).await;
            stage.settled_fixture(0, size).await;
            let jobs = 5 * usize::try_from(size).unwrap();
            stage.queue_jobs(jobs, SET, JOB);
            let time = 5 * (JOB + Duration::from_secs(10));
            stage
                .within(time, "all jobs are done", async || {
                    stage.jobs_done() == jobs
                })
                .await;
            stage
                .until("nobody is left", async || stage.runners().await.is_empty())
                .await;
            let made = stage.warden.count("create", "ephemeralrunners");
            assert_eq!(
                made, jobs,
                "one for each job, and none for one that is done"
            );
            stage.assert_sound();
        });
    }
}

#[test]
fn a_deleted_scale_set_leaves_nothing_behind() {
    play(async || {
        let stage = Stage::whole(2).await;
        stage.settled_fixture(2, 4).await;
        stage.delete_scale_set().await;
        stage.settle().await;
        assert_eq!(stage.service()["delete_scale_set"], 1);
        assert_eq!(stage.service()["create_scale_set"], 1);
        stage.assert_sound();
    });
}

#[test]
fn a_pool_at_rest_is_not_written_to() {
    play(async || {
        let stage = Stage::whole(3).await;
        stage.settled_fixture(2, 5).await;
        stage.queue_jobs(3, SET, JOB);
        stage
            .until("all jobs are done", async || stage.jobs_done() == 3)
            .await;
        stage
            .until("two runners are left", async || {
                stage.runners().await.len() == 2
            })
            .await;
        stage.settle().await;
        // after a poll without news the listener says once that nothing goes on
        stage.pass(Duration::from_secs(120)).await;
        let before = stage.warden.writes().len();
        stage.pass(Duration::from_secs(600)).await;
        let since = stage.warden.writes().split_off(before);
        assert!(since.is_empty(), "written at rest: {since:#?}");
        stage.assert_sound();
    });
}

#[test]
fn a_credential_is_seen_nowhere_but_in_the_secrets_made_for_it() {
    play(async || {
        let stage = Stage::whole(4).await;
        stage.settled_fixture(1, 2).await;
        stage.queue_jobs(2, SET, JOB);
        stage
            .until("all jobs are done", async || stage.jobs_done() == 2)
            .await;
        let cluster = stage.cluster();
        let log = cluster.take_log();
        assert!(!log.is_empty());
        for line in log {
            assert!(!line.contains(TOKEN), "{line}");
        }
        for resource in cluster.api.resources() {
            if resource.kind == "Secret" {
                continue;
            }
            for object in cluster.api.list(&resource.group, &resource.plural, None) {
                assert!(!object.to_string().contains(TOKEN), "{object}");
            }
        }
    });
}

#[test]
fn what_a_real_chart_renders_does_jobs_and_is_released_in_the_end() {
    chart("scale-set-default.yaml", "my-set", &[], 1);
}

#[test]
fn a_chart_in_kubernetes_mode_does_jobs_and_is_released_in_the_end() {
    let credentials = secret("pre-defined", &json!({"github_token": TOKEN}));
    chart(
        "scale-set-kubernetes-mode.yaml",
        "gpu-large",
        &[credentials],
        0,
    );
}

#[test]
fn a_chart_with_docker_ghes_and_a_proxy_does_jobs_and_is_released_in_the_end() {
    let proxy = secret(
        "proxy-auth",
        &json!({"username": "mara", "password": "hush"}),
    );
    let authority = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "ca", "namespace": "arc-runners"},
        "data": {"ca.crt": AUTHORITY},
    });
    chart(
        "scale-set-dind-ghes-proxy.yaml",
        "ghes-set",
        &[proxy, authority],
        0,
    );
}

/// Some authority's certificate. Nobody is asked to prove anything by it here.
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";

fn secret(name: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "arc-runners"},
        "stringData": data,
    })
}

/// Applies a rendered chart, runs jobs through it, deletes the scale set and then the rest.
fn chart(file: &str, label: &str, first: &[Value], minimum: usize) {
    let Some(mut documents) = rendered(file) else {
        return;
    };
    for document in &mut documents {
        if document["kind"] == "Secret" {
            // the key of a GitHub App that it holds may be none
            document["data"] = json!({});
            document["stringData"] = json!({"github_token": TOKEN});
        }
    }
    play(async || {
        let stage = Stage::whole(6).await;
        stage.actions.add_runner_group("gpu");
        stage
            .apply(&[crate::stage::manifests::namespace("arc-runners")])
            .await;
        stage.apply(first).await;
        stage.apply(&documents).await;
        stage
            .until("it is settled", async || stage.is_settled().await)
            .await;
        stage.settle().await;
        stage.queue_jobs(5, label, JOB);
        stage
            .until("all jobs are done", async || stage.jobs_done() == 5)
            .await;
        stage
            .until("the pool has shrunk", async || {
                stage.runners().await.len() == minimum
            })
            .await;
        stage.settle().await;
        stage.assert_nothing_left_over_beside_runners().await;

        stage
            .delete::<AutoscalingRunnerSet>("arc-runners", label)
            .await;
        stage
            .until("the scale set is gone", async || {
                stage.all::<AutoscalingRunnerSet>().await.is_empty()
            })
            .await;
        // what the chart protected can be deleted now
        let protected = [
            release::<ServiceAccount>(&stage).await,
            release::<Secret>(&stage).await,
            release::<RoleBinding>(&stage).await,
            release::<Role>(&stage).await,
        ];
        assert!(
            protected.iter().sum::<usize>() >= 3,
            "the chart protects something"
        );
        stage
            .until("nothing is left", async || {
                stage.leftovers().await.is_empty()
            })
            .await;
        assert_eq!(stage.service()["delete_scale_set"], 1);
        stage.assert_sound();
    });
}

/// Deletes the chart's objects of a kind; they must go at once. Answers how many there were.
async fn release<K: Known>(stage: &Stage) -> usize {
    let of_chart = |object: &K| {
        let managed = object.labels().get("app.kubernetes.io/managed-by");
        managed.is_some_and(|by| by == "Helm")
            && object.namespace().as_deref() != Some(CONTROLLER_NAMESPACE)
    };
    let mut released = 0;
    for object in stage.all::<K>().await.into_iter().filter(of_chart) {
        let name = object.name_any();
        let finalizers = object.finalizers();
        assert!(
            finalizers.is_empty(),
            "{} {name} is held by {finalizers:?}",
            K::kind(&())
        );
        stage.delete::<K>("arc-runners", &name).await;
        assert!(stage.get::<K>("arc-runners", &name).await.is_none());
        released += 1;
    }
    released
}

#[test]
fn a_listener_that_is_evicted_is_replaced_once() {
    use embedded_kube::kubelet::PodFault;
    play(async || {
        let stage = Stage::whole(7).await;
        stage.settled_fixture(1, 3).await;
        let before = stage.listener_pods().await.remove(0);
        let fault = PodFault::Evicted;
        stage
            .cluster()
            .kubelet
            .fail(CONTROLLER_NAMESPACE, &before.name_any(), fault);
        stage
            .until("another pod listens", async || {
                let pods = stage.listener_pods().await;
                pods.len() == 1 && pods[0].uid() != before.uid()
            })
            .await;
        stage.settle().await;
        let creations = stage.warden.count("create", "pods");
        // the pod of the one idle runner, the first listener and the second
        assert_eq!(creations, 3, "{}", stage.picture().await);
        stage.queue_jobs(2, SET, JOB);
        // the service holds the dead listener's session for two minutes
        let patience = Duration::from_secs(300);
        stage
            .within(patience, "jobs are done", async || stage.jobs_done() == 2)
            .await;
        stage.assert_sound();
    });
}

#[test]
fn a_pool_whose_credentials_come_late_starts_by_itself() {
    use crate::stage::manifests::{credentials, namespace, scale_set};
    play(async || {
        let stage = Stage::whole(8).await;
        stage.apply(&[namespace(RUN), scale_set(1, 2)]).await;
        stage
            .until("it says what is missing", async || {
                let status = stage.scale_set().await.status.unwrap_or_default();
                let mut conditions = status.conditions.iter();
                conditions.any(|condition| {
                    condition.status == "False" && condition.message.contains("gh")
                })
            })
            .await;
        stage.apply(&[credentials()]).await;
        stage
            .within(Duration::from_secs(400), "it is settled", async || {
                stage.is_settled().await && stage.runners().await.len() == 1
            })
            .await;
        stage.assert_sound();
    });
}

#[test]
fn jobs_that_waited_before_there_was_a_pool_are_done() {
    play(async || {
        let stage = Stage::whole(9).await;
        stage.queue_jobs(3, SET, JOB);
        stage.apply(&crate::stage::manifests::fixture(0, 5)).await;
        stage
            .until("all are done", async || stage.jobs_done() == 3)
            .await;
        stage
            .until("nobody is left", async || stage.runners().await.is_empty())
            .await;
        stage.assert_sound();
    });
}

#[test]
fn a_lower_maximum_lets_running_jobs_end_and_takes_no_more_than_it_says() {
    play(async || {
        let stage = Stage::whole(10).await;
        stage.settled_fixture(0, 6).await;
        stage.queue_jobs(4, SET, Duration::from_secs(400));
        stage.queue_jobs(4, SET, Duration::from_secs(900));
        stage
            .until("six jobs run", async || running(&stage) == 6)
            .await;
        stage.settle().await;
        let before = stage.listener_pods().await.remove(0).uid();
        let created = stage.warden.count("create", "ephemeralrunners");
        stage.edit(json!({"maxRunners": 2})).await;
        stage
            .until("another pod listens", async || {
                let pods = stage.listener_pods().await;
                pods.len() == 1 && pods[0].uid() != before
            })
            .await;
        stage.pass(Duration::from_secs(120)).await;
        assert_eq!(running(&stage), 6, "no job is cut short");
        stage
            .within(Duration::from_secs(600), "four are done", async || {
                stage.jobs_done() == 4
            })
            .await;
        stage.settle().await;
        assert_eq!(stage.live().await.len(), 2, "{}", stage.picture().await);
        assert_eq!(stage.warden.count("create", "ephemeralrunners"), created);
        // the two that wait get runners when there is room
        stage
            .within(Duration::from_secs(3600), "all are done", async || {
                stage.jobs_done() == 8
            })
            .await;
        assert_eq!(
            stage.warden.count("create", "ephemeralrunners"),
            created + 2
        );
        stage.assert_sound();
    });
}

fn running(stage: &Stage) -> usize {
    use embedded_actions::JobState;
    let jobs = stage.actions.jobs();
    jobs.iter()
        .filter(|job| job.state == JobState::Running)
        .count()
}
