//! Pods: defaults, rules, grace.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchParams};
use serde_json::{Value, json};

use crate::world::{World, object, refusal, watch};

fn patch() -> PatchParams {
    PatchParams::default()
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{ "name": "runner", "image": "ghcr.io/acme/runner:1" }],
        },
    })
}

fn with_grace(seconds: u32) -> DeleteParams {
    DeleteParams::default().grace_period(seconds)
}

async fn bind(world: &World, name: &str) -> kube::Result<Value> {
    let path = format!("/api/v1/namespaces/{}/pods/{name}/binding", world.namespace);
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "name": name },
        "target": { "apiVersion": "v1", "kind": "Node", "name": "node-1" },
    });
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(binding.to_string().into_bytes()).unwrap();
    world.client.request(request).await
}

pub async fn a_pod_is_filled_in(world: World) {
    let pod = json!({
        "metadata": { "name": "p" },
        "spec": {
            "automountServiceAccountToken": false,
            "nodeSelector": {},
            "initContainers": [],
            "hostNetwork": false,
            "containers": [{
                "name": "runner",
                "image": "ghcr.io/acme/runner:1",
                "env": [
                    { "name": "EMPTY", "value": "" },
                    { "name": "NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                ],
                "ports": [{ "containerPort": 8080 }],
                "resources": { "limits": { "cpu": "1" } },
                "readinessProbe": { "httpGet": { "port": 8080 } },
                "volumeMounts": [{ "name": "s", "mountPath": "/s", "readOnly": false }],
            }, { "name": "side", "image": "busybox" }],
            "volumes": [{ "name": "s", "secret": { "secretName": "x" } }, { "name": "e" }],
        },
    });
    let created = world.create_pod(pod).await;
    let spec = json!(created.spec);
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("securityContext", json!({})),
        ("enableServiceLinks", json!(true)),
        ("priority", json!(0)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("automountServiceAccountToken", json!(false)),
        ("nodeSelector", Value::Null),
        ("initContainers", Value::Null),
        ("hostNetwork", Value::Null),
        (
            "volumes",
            json!([
                { "name": "s", "secret": { "secretName": "x", "defaultMode": 420 } },
                { "name": "e", "emptyDir": {} },
            ]),
        ),
    ] {
        assert_eq!(spec[field], value, "{field}");
    }
    let tolerations = spec["tolerations"].as_array().unwrap();
    assert!(
        tolerations
            .iter()
            .all(|toleration| toleration["tolerationSeconds"] == 300)
    );
    assert_eq!(tolerations.len(), 2);
    assert_eq!(
        spec["containers"],
        json!([{
            "name": "runner",
            "image": "ghcr.io/acme/runner:1",
            "imagePullPolicy": "IfNotPresent",
            "env": [
                { "name": "EMPTY" },
                {
                    "name": "NAME",
                    "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.name" } },
                },
            ],
            "ports": [{ "containerPort": 8080, "protocol": "TCP" }],
            "resources": { "limits": { "cpu": "1" }, "requests": { "cpu": "1" } },
            "readinessProbe": {
                "httpGet": { "path": "/", "port": 8080, "scheme": "HTTP" },
                "timeoutSeconds": 1,
                "periodSeconds": 10,
                "successThreshold": 1,
                "failureThreshold": 3,
            },
            "volumeMounts": [{ "name": "s", "mountPath": "/s" }],
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }, {
            "name": "side",
            "image": "busybox",
            "imagePullPolicy": "Always",
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }])
    );
    let status = created.status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    assert_eq!(status.qos_class.as_deref(), Some("Burstable"));
}

pub async fn a_pod_has_to_make_sense(world: World) {
    let pod: Pod = object(json!({
        "metadata": { "name": "p" },
        "spec": {
            "containers": [
                { "name": "a", "image": "i", "volumeMounts": [{ "name": "w", "mountPath": "/w" }] },
                { "name": "a", "image": "i" },
                { "name": "Bad_Name" },
            ],
        },
    }));
    let refused = refusal(world.pods().create(&PostParams::default(), &pod).await);
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    let causes = refused.details.unwrap().causes;
    let mut causes: Vec<(String, String)> = causes
        .into_iter()
        .map(|cause| (cause.field, cause.reason))
        .collect();
    causes.sort();
    let expected = [
        (
            "spec.containers[0].volumeMounts[0].name",
            "FieldValueNotFound",
        ),
        ("spec.containers[1].name", "FieldValueDuplicate"),
        ("spec.containers[2].image", "FieldValueRequired"),
        ("spec.containers[2].name", "FieldValueInvalid"),
    ];
    assert_eq!(
        causes,
        expected.map(|(field, reason)| (field.to_owned(), reason.to_owned()))
    );
    let pod: Pod = object(json!({ "metadata": { "name": "p" }, "spec": { "containers": [] } }));
    let refused = refusal(world.pods().create(&PostParams::default(), &pod).await);
    assert_eq!(
        refused.message,
        "Pod \"p\" is invalid: spec.containers: Required value"
    );
}

pub async fn a_pods_spec_is_fixed_but_for_its_image(world: World) {
    world.create_pod(pod("p")).await;
    let change = |field: &str, value: &str| {
        Patch::Merge(json!({
            "spec": { "containers": [{ "name": "runner", "image": "ghcr.io/acme/runner:1", field: value }] },
        }))
    };
    let patched = world
        .pods()
        .patch("p", &patch(), &change("image", "ghcr.io/acme/runner:2"))
        .await;
    let image = patched.unwrap().spec.unwrap().containers[0].image.clone();
    assert_eq!(image.as_deref(), Some("ghcr.io/acme/runner:2"));
    let refusal = refusal(
        world
            .pods()
            .patch("p", &patch(), &change("workingDir", "/x"))
            .await,
    );
    assert_eq!((refusal.code, refusal.reason.as_str()), (422, "Invalid"));
    let start = "Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`";
    assert!(refusal.message.starts_with(start), "{}", refusal.message);
}

pub async fn a_pods_status_is_written_apart(world: World) {
    let mut new = pod("p");
    new["status"] = json!({ "phase": "Running", "podIP": "10.0.0.1" });
    let created = world.create_pod(new).await;
    assert_eq!(created.status.unwrap().phase.as_deref(), Some("Pending"));
    let change = Patch::Merge(json!({ "status": { "phase": "Running" } }));
    let patched = world.pods().patch("p", &patch(), &change).await.unwrap();
    assert_eq!(patched.status.unwrap().phase.as_deref(), Some("Pending"));
    let change = Patch::Merge(json!({
        "spec": { "activeDeadlineSeconds": 5 },
        "status": { "phase": "Running" },
    }));
    let patched = world
        .pods()
        .patch_status("p", &patch(), &change)
        .await
        .unwrap();
    assert_eq!(patched.status.unwrap().phase.as_deref(), Some("Running"));
    assert_eq!(patched.spec.unwrap().active_deadline_seconds, None);
}

pub async fn metadata_can_be_written_with_a_pods_status(world: World) {
    world.create_pod(pod("p")).await;
    let change = Patch::Merge(json!({
        "metadata": { "annotations": { "a": "1" } },
        "status": { "phase": "Running" },
    }));
    let patched = world
        .pods()
        .patch_status("p", &patch(), &change)
        .await
        .unwrap();
    assert_eq!(json!(patched.annotations()), json!({ "a": "1" }));
}

pub async fn a_pod_on_a_node_is_given_time(world: World) {
    world.create_pod(pod("p")).await;
    bind(&world, "p").await.unwrap();
    let bound = world.pods().get("p").await.unwrap();
    let revision = bound.resource_version().unwrap();
    let mut events = watch(&world.pods(), &WatchParams::default(), &revision).await;
    let answer = world
        .pods()
        .delete("p", &DeleteParams::default())
        .await
        .unwrap();
    let marked = answer.left().unwrap();
    assert_eq!(marked.metadata.deletion_grace_period_seconds, Some(30));
    assert!(marked.metadata.deletion_timestamp.is_some());
    assert!(world.pods().get_opt("p").await.unwrap().is_some());
    assert_eq!(events.next_name().await.0, "MODIFIED");
    // the kubelet deletes it when it has ended
    world.pods().delete("p", &with_grace(0)).await.unwrap();
    assert!(world.pods().get_opt("p").await.unwrap().is_none());
    assert_eq!(events.next_name().await.0, "MODIFIED");
    assert_eq!(events.next_name().await, ("DELETED", "p".into()));
}

pub async fn the_time_of_a_pod_can_only_be_shortened(world: World) {
    world.create_pod(pod("p")).await;
    bind(&world, "p").await.unwrap();
    let delete = async |parameters: DeleteParams| {
        let answer = world.pods().delete("p", &parameters).await.unwrap();
        answer.left().unwrap().metadata
    };
    let first = delete(with_grace(60)).await;
    assert_eq!(first.deletion_grace_period_seconds, Some(60));
    let longer = delete(with_grace(90)).await;
    assert_eq!(longer.deletion_timestamp, first.deletion_timestamp);
    let shorter = delete(with_grace(20)).await;
    assert_eq!(shorter.deletion_grace_period_seconds, Some(20));
    assert!(shorter.deletion_timestamp.unwrap().0 < first.deletion_timestamp.unwrap().0);
    delete(with_grace(0)).await;
}

pub async fn a_finalizer_holds_a_pod_after_its_time(world: World) {
    let mut new = pod("p");
    new["metadata"]["finalizers"] = json!(["test.impresario.dev/hold"]);
    world.create_pod(new).await;
    bind(&world, "p").await.unwrap();
    world
        .pods()
        .delete("p", &DeleteParams::default())
        .await
        .unwrap();
    world.pods().delete("p", &with_grace(0)).await.unwrap();
    let held = world.pods().get("p").await.unwrap();
    assert_eq!(held.metadata.deletion_grace_period_seconds, Some(0));
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    world.pods().patch("p", &patch(), &release).await.unwrap();
    assert!(world.pods().get_opt("p").await.unwrap().is_none());
}

pub async fn a_pod_without_a_node_is_gone_at_once(world: World) {
    world.create_pod(pod("p")).await;
    let answer = world
        .pods()
        .delete("p", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(answer.left().unwrap().name_any(), "p");
    assert!(world.pods().get_opt("p").await.unwrap().is_none());
}

pub async fn a_finished_pod_is_gone_at_once(world: World) {
    world.create_pod(pod("p")).await;
    bind(&world, "p").await.unwrap();
    let done = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    world
        .pods()
        .patch_status("p", &patch(), &done)
        .await
        .unwrap();
    world
        .pods()
        .delete("p", &DeleteParams::default())
        .await
        .unwrap();
    assert!(world.pods().get_opt("p").await.unwrap().is_none());
}

pub async fn a_pod_is_bound_once(world: World) {
    world.create_pod(pod("p")).await;
    bind(&world, "p").await.unwrap();
    let bound = world.pods().get("p").await.unwrap();
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("node-1"));
    let conditions = bound.status.unwrap().conditions.unwrap();
    assert_eq!(conditions[0].type_, "PodScheduled");
    let refusal = refusal(bind(&world, "p").await);
    assert_eq!((refusal.code, refusal.reason.as_str()), (409, "Conflict"));
}
