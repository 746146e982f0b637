//! Applying manifests to an embedded API server, as `kubectl apply` would.

use bytes::Bytes;
use embedded_kube::ApiServer;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

/// A manifest was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {message}")]
pub struct ApplyError {
    /// Kind, namespace and name.
    pub object: String,
    /// What the API server says.
    pub message: String,
}

/// Applies an object server-side, with strict validation. A namespace that is missing is
/// created, as people expect of a demonstration.
pub async fn apply(api: &ApiServer, object: &Value) -> Result<(), ApplyError> {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or("")
    };
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    let error = |message: String| ApplyError {
        object: format!("{kind} {namespace}/{name}").replace(" /", " "),
        message,
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = api
        .resources()
        .into_iter()
        .find(|known| known.group == group && known.version == version && known.kind == kind)
        .ok_or_else(|| error(format!("no such kind in {api_version}")))?;
    let root = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    let namespace = if namespace.is_empty() {
        "default"
    } else {
        namespace
    };
    let path = if resource.namespaced {
        if api.get("", "namespaces", "", namespace).is_none() {
            let missing = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
            });
            patch(api, &format!("/api/v1/namespaces/{namespace}"), &missing)
                .await
                .map_err(error)?;
        }
        format!("{root}/namespaces/{namespace}/{}/{name}", resource.plural)
    } else {
        format!("{root}/{}/{name}", resource.plural)
    };
    patch(api, &path, object).await.map_err(error)
}

async fn patch(api: &ApiServer, path: &str, object: &Value) -> Result<(), String> {
    let request = Request::patch(format!(
        "{path}?fieldManager=impresario-demo&force=true&fieldValidation=Strict"
    ))
    .header("content-type", "application/apply-patch+yaml")
    .body(Bytes::from(object.to_string()))
    .map_err(|error| error.to_string())?;
    let response = api.handle(request).await;
    let status = response.status();
    let body = response.into_body().collect().await;
    if status.is_success() {
        return Ok(());
    }
    let body = body
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    Err(answer["message"].as_str().map_or_else(
        || format!("the API server answered {status}"),
        str::to_owned,
    ))
}
