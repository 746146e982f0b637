//! None of these has the pod made again, or anything written at all.

use embedded_kube::Admission;
use impresario::api::{AutoscalingListener, EphemeralRunnerSet};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde_json::{Value, json};

use crate::changes::{documents, made_otherwise, with_template};
use crate::drifted::stage;
use crate::stage::manifests::{RUN, SET};
use crate::stage::{Known, Stage, play};
use crate::watched::{Watched, name, pod};

#[test]
fn a_thousand_messages_to_a_healthy_listener_cause_no_write() {
    play(async || {
        let stage = stage().await;
        let watched = Watched::at_rest(&stage, &documents()).await;
        watched.pass_poll().await;
        let before = stage.warden.writes().len();
        // seven objects are touched each time
        watched.nudge(150).await;
        stage.settle().await;
        let since = stage.warden.writes().split_off(before);
        let ours = since
            .iter()
            .filter(|write| write.who != crate::stage::warden::Who::Other);
        assert_eq!(ours.count(), 0);
        assert!(since.len() >= 1000, "{}", since.len());
        assert_eq!(watched.made(), 1);
        stage.assert_sound();
    });
}

/// A listener template, and whether the pod shows what the server made of it.
pub struct Template {
    pub what: &'static str,
    pub template: Value,
    pub shows: fn(&PodSpec) -> bool,
}

/// Templates of which the server makes more than is in them.
pub fn templates() -> Vec<Template> {
    let container = |fields: Value| {
        let mut container = fields;
        container["name"] = json!("listener");
        json!({"spec": {"containers": [container]}})
    };
    let port = json!([{"name": "extra", "containerPort": 9000}]);
    let mut host_network = container(json!({"ports": port}));
    host_network["spec"]["hostNetwork"] = json!(true);
    vec![
        Template {
            what: "a probe without timeoutSeconds",
            template: container(json!({"livenessProbe": {"httpGet": {"port": 8080}}})),
            shows: |pod| {
                let probe = listener(pod).liveness_probe.as_ref();
                probe.and_then(|probe| probe.timeout_seconds) == Some(1)
            },
        },
        Template {
            what: "hostPort left out under hostNetwork",
            template: host_network,
            shows: |pod| {
                let ports = listener(pod).ports.iter().flatten();
                let mut extra = ports.filter(|port| port.container_port == 9000);
                extra.all(|port| port.host_port == Some(9000))
            },
        },
        Template {
            what: "an empty list of tolerations",
            template: json!({"spec": {"tolerations": [], "containers": []}}),
            shows: |pod| pod.tolerations.as_ref().is_some_and(|all| all.len() == 2),
        },
        Template {
            what: "1000m, which is 1",
            template: container(json!({"resources": {"limits": {"cpu": "1000m"}}})),
            shows: |pod| listener(pod).resources.is_some(),
        },
        Template {
            what: "empty collections everywhere",
            template: json!({
                "metadata": {"labels": {}},
                "spec": {
                    "tolerations": [],
                    "imagePullSecrets": [],
                    "containers": [{"name": "listener", "env": [], "args": [], "ports": []}],
                },
            }),
            shows: |_| true,
        },
    ]
}

fn listener(pod: &PodSpec) -> &Container {
    let found = pod.containers.iter().find(|one| one.name == "listener");
    found.expect("a container listener")
}

#[test]
fn what_the_server_fills_in() {
    for Template {
        what,
        template,
        shows,
    } in templates()
    {
        play(async || {
            let stage = stage().await;
            let watched = Watched::at_rest(&stage, &with_template(&template)).await;
            let spec = pod(&stage).await.spec.unwrap();
            assert!(shows(&spec), "{what}: {spec:#?}");
            watched.shrugs_off(what, async |_| {}).await;
            stage.assert_sound();
        });
    }
}

#[test]
fn what_admission_injects() {
    play(async || {
        let stage = Stage::embedded_with(51, |options| {
            options.settings.listener_metrics_addr = ":8080".to_owned();
            options.admission = vec![
                Admission::FirstContainer(json!({"name": "inj", "image": "mesh:1"})),
                Admission::Volume {
                    volume: json!({"name": "certs", "emptyDir": {}}),
                    mount_path: "/certs".to_owned(),
                },
                Admission::Labels {
                    plural: "pods".to_owned(),
                    labels: vec![("mesh".to_owned(), "on".to_owned())],
                },
            ];
        })
        .await;
        stage.start_controller();
        let watched = Watched::at_rest(&stage, &documents()).await;
        let spec = pod(&stage).await.spec.unwrap();
        assert_eq!(spec.containers[0].name, "inj");
        let volumes: Vec<&str> = spec
            .volumes
            .iter()
            .flatten()
            .map(|volume| volume.name.as_str())
            .collect();
        assert_eq!(volumes[..2], ["listener-config", "certs"], "{volumes:?}");
        assert!(volumes.len() > 2, "{volumes:?}");
        watched.shrugs_off("injection", async |_| {}).await;
        stage.assert_sound();
    });
}

#[test]
fn the_same_pod_in_other_words() {
    play(async || {
        let stage = stage().await;
        let template = json!({"spec": {"containers": [{
            "name": "listener",
            "resources": {"limits": {"cpu": "1000m", "memory": "1Gi"}},
        }]}});
        let watched = Watched::at_rest(&stage, &with_template(&template)).await;
        let respell = async |stage: &Stage| made_otherwise(stage, respelled).await;
        watched.replaces("respelled by hand", 1, respell).await;
        watched.shrugs_off("respelled", async |_| {}).await;
        stage.assert_sound();
    });
}

/// The same limits, written as a server or a person may.
pub fn respelled(pod: &mut Value) {
    for container in pod["spec"]["containers"].as_array_mut().unwrap() {
        if container["name"] == "listener" {
            container["resources"]["limits"] = json!({"cpu": "1", "memory": "1024Mi"});
            container["resources"]["requests"] = json!({"cpu": "1", "memory": "1024Mi"});
        }
    }
}

/// A container before all others, and a volume with its mount between others.
pub fn injected(pod: &mut Value) {
    let spec = &mut pod["spec"];
    insert(
        &mut spec["containers"],
        0,
        json!({"name": "inj", "image": "mesh:1"}),
    );
    insert(
        &mut spec["volumes"],
        1,
        json!({"name": "certs", "emptyDir": {}}),
    );
    let mount = json!({"name": "certs", "mountPath": "/certs"});
    insert(&mut spec["containers"][1]["volumeMounts"], 0, mount);
}

fn insert(list: &mut Value, at: usize, item: Value) {
    list.as_array_mut().unwrap().insert(at, item);
}

#[test]
fn a_foreign_label_and_annotation_on_any_owned_object() {
    play(async || {
        let stage = stage().await;
        let watched = Watched::at_rest(&stage, &with_proxy()).await;
        watched.pass_poll().await;
        let name = name(&stage).await;
        let config = format!("{name}-config");
        let proxy = format!("{name}-proxy");
        let control = CONTROLLER_NAMESPACE;
        // its labels are handed down, which is no reason for another pod
        watched
            .replaces("AL", 0, async |s| {
                mark::<AutoscalingListener>(s, control, &name).await
            })
            .await;
        watched
            .shrugs_off("account", async |s| {
                mark::<ServiceAccount>(s, control, &name).await
            })
            .await;
        watched
            .shrugs_off("pod", async |s| mark::<Pod>(s, control, &name).await)
            .await;
        watched
            .shrugs_off("config", async |s| {
                mark::<Secret>(s, control, &config).await
            })
            .await;
        watched
            .shrugs_off("proxy", async |s| mark::<Secret>(s, control, &proxy).await)
            .await;
        watched
            .shrugs_off("role", async |s| mark::<Role>(s, RUN, &name).await)
            .await;
        watched
            .shrugs_off("binding", async |s| {
                mark::<RoleBinding>(s, RUN, &name).await
            })
            .await;
        watched
            .shrugs_off("ERS", async |s| {
                mark::<EphemeralRunnerSet>(s, RUN, SET).await
            })
            .await;
        // and they are still there
        for secret in [&config, &proxy] {
            let secret = stage.get::<Secret>(control, secret).await.unwrap();
            assert_eq!(secret.metadata.labels.unwrap()["theirs"], "label");
        }
        let role = stage.get::<Role>(RUN, &name).await.unwrap();
        assert_eq!(role.metadata.annotations.unwrap()["theirs"], "note");
        stage.assert_sound();
    });
}

fn with_proxy() -> Vec<Value> {
    let mut documents = documents();
    for document in &mut documents {
        if document["kind"] == "AutoscalingRunnerSet" {
            document["spec"]["proxy"] = json!({"http": {"url": "http://proxy.test:3128"}});
        }
    }
    documents
}

/// Somebody's label and annotation.
pub async fn mark<K: Known>(stage: &Stage, namespace: &str, name: &str) {
    let theirs = json!({"labels": {"theirs": "label"}, "annotations": {"theirs": "note"}});
    stage
        .patch::<K>(namespace, name, json!({"metadata": theirs}))
        .await;
}

#[test]
fn a_move_of_the_pods_resource_version() {
    play(async || {
        let stage = stage().await;
        let watched = Watched::at_rest(&stage, &documents()).await;
        let before = pod(&stage).await.metadata.resource_version;
        watched.shrugs_off("a condition", move_pod).await;
        assert_ne!(pod(&stage).await.metadata.resource_version, before);
        stage.assert_sound();
    });
}

/// Writes a condition of the pod, as a controller of readiness gates does.
pub async fn move_pod(stage: &Stage) {
    let mut status = serde_json::to_value(pod(stage).await.status.unwrap()).unwrap();
    let condition = json!({"type": "Fine", "status": "True", "lastTransitionTime": null});
    status["conditions"].as_array_mut().unwrap().push(condition);
    let name = name(stage).await;
    stage.pod_status(CONTROLLER_NAMESPACE, &name, status).await;
}
