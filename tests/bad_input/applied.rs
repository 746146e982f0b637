//! What the API server refuses when a manifest is applied: with the path of each field.

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::world::{ILL, World, ill, on_stage};

#[tokio::test(start_paused = true)]
async fn a_wrong_type_or_unknown_field_is_refused_with_its_path() {
    let cases = [
        ("spec.minRunners", json!("two"), "integer"),
        ("spec.minRunners", json!(-1), "greater than or equal to 0"),
        ("spec.template", json!("runner"), "object"),
        ("spec.runnerScaleSetLabels", json!("gpu"), "array"),
        ("spec.maxRuners", json!(3), "unknown field"),
        (
            "spec.template.spec.containers[0].imag",
            json!("x"),
            "unknown field",
        ),
    ];
    on_stage(async {
        let world = World::new().await;
        for (path, bad, problem) in cases {
            let pointer = format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let mut set = ill();
            set.pointer_mut(parent).unwrap()[key] = bad;
            let server_side = world.cluster.apply(&set).await.unwrap_err().to_string();
            // a list's element has its key there, not its index
            for part in ["AutoscalingRunnerSet ci/linux", key] {
                assert!(server_side.contains(part), "{path}: {server_side}");
            }
            let client_side = create(&world, &set).await;
            for part in [path, problem] {
                assert!(client_side.contains(part), "no {part} in {client_side}");
            }
            assert!(world.scale_set(ILL).is_none());
        }
        world.others_go_on().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_nobody_serves_is_named() {
    on_stage(async {
        let world = World::new().await;
        let object = json!({
            "apiVersion": "acme.example/v1",
            "kind": "Gadget",
            "metadata": {"name": "g", "namespace": "ci"},
        });
        let error = world.cluster.apply(&object).await.unwrap_err().to_string();
        for part in ["Gadget ci/g", "acme.example/v1"] {
            assert!(error.contains(part), "no {part} in {error}");
        }
    })
    .await;
}

/// Creates an object as `kubectl apply` does, and answers with what the server objects to.
async fn create(world: &World, set: &Value) -> String {
    let path = format!(
        "/apis/actions.github.com/v1alpha1/namespaces/{}/autoscalingrunnersets?fieldValidation=Strict",
        ILL.0
    );
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Bytes::from(set.to_string()))
        .unwrap();
    let response = world.cluster.api.handle(request).await;
    assert!(response.status().is_client_error(), "{}", response.status());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&body).unwrap();
    status["message"].as_str().unwrap().to_owned()
}
