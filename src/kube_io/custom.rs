//! Reads and writes of the four custom resources, whose schemas may be ARC's and lack fields:
//! objects are raised as they come, and writes lowered as they go (see
//! [`crate::api::stand_in`]).

use kube::api::{PatchParams, PostParams};
use kube::core::{NamespaceResourceScope, Request};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::counted::Counter;
use super::patch_plan::PatchPlan;
use super::served::ServedFields;
use crate::api::stand_in::{
    annotate, decode, lower_new, native, stand_ins, stand_ins_of, standing,
};
use crate::api::{Field, Section};
use crate::messages::KubeObject;

/// A way to the objects of one custom resource in a namespace.
pub struct CustomApi<'a> {
    client: &'a Client,
    served: &'a ServedFields,
    kind: &'static str,
    url: String,
    manager: Option<&'static str>,
    counter: Option<&'a Counter>,
}

impl<'a> CustomApi<'a> {
    /// The way to objects of kind `K`. Writes appear under the manager's name.
    pub fn new<K>(
        client: &'a Client,
        served: &'a ServedFields,
        namespace: &str,
        manager: Option<&'static str>,
    ) -> Self
    where
        K: KubeObject + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Self {
            client,
            served,
            kind: K::KIND.as_str(),
            url: K::url_path(&(), Some(namespace)),
            manager,
            counter: None,
        }
    }

    /// The same, with each of its requests counted.
    #[must_use]
    pub fn counted_by(self, counter: &'a Counter) -> Self {
        Self {
            counter: Some(counter),
            ..self
        }
    }

    /// Creates an object.
    ///
    /// # Errors
    ///
    /// As the server answered.
    pub async fn create<K: Serialize + DeserializeOwned>(&self, object: &K) -> kube::Result<K> {
        let mut asked = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
        lower_new(self.kind, &mut asked, &self.served.missing());
        let name = asked["metadata"]["name"].as_str().unwrap_or_default();
        let name = name.to_owned();
        let params = PostParams {
            field_manager: self.manager.map(str::to_owned),
            ..PostParams::default()
        };
        let body = serde_json::to_vec(&asked).map_err(kube::Error::SerdeError)?;
        let request = Request::new(&self.url).create(&params, body);
        let answer = self.send("create", request).await?;
        self.carry_out(&name, PatchPlan::after_create(self.kind, asked, answer))
            .await
    }

    /// Patches an object, or its status.
    ///
    /// # Errors
    ///
    /// As the server answered. Where several requests were needed, those before have taken
    /// effect.
    pub async fn patch<K: DeserializeOwned>(
        &self,
        name: &str,
        section: Section,
        body: Value,
        lock: Option<String>,
    ) -> kube::Result<K> {
        let missing = self.served.missing();
        self.carry_out(
            name,
            PatchPlan::new(self.kind, section, body, lock, &missing),
        )
        .await
    }

    async fn carry_out<K: DeserializeOwned>(
        &self,
        name: &str,
        mut plan: PatchPlan,
    ) -> kube::Result<K> {
        self.served.learn(&plan.learned());
        while let Some(next) = plan.next() {
            plan.answered(self.patch_once(name, next.section, &next.body).await?);
            self.served.learn(&plan.learned());
        }
        // a plan begins with a request
        self.decoded(plan.into_answer().unwrap_or_default())
    }

    /// Moves what stands in annotations into the fields that are there by now. Says whether
    /// there was something to move.
    ///
    /// # Errors
    ///
    /// As the server answered.
    pub async fn move_into_fields(&self, name: &str) -> kube::Result<bool> {
        let object = self.read(name).await?;
        let missing = self.served.missing();
        let mut fields = stand_ins_of(self.kind, &object);
        fields.retain(|field| !missing.contains(*field));
        let mut version = object.pointer("/metadata/resourceVersion").cloned();
        for section in Section::ALL {
            let values = |field: &Field| {
                let absent = field.section() == section && native(&object, *field).is_none();
                let value = absent.then(|| standing(&object, *field)).flatten()?;
                Some((field.name().to_owned(), value))
            };
            let values: Map<_, _> = fields.iter().filter_map(values).collect();
            if values.is_empty() {
                continue;
            }
            let names: Vec<String> = values.keys().cloned().collect();
            let body = json!({
                "metadata": { "resourceVersion": version },
                section.as_str(): values,
            });
            let answer = self.patch_once(name, section, &body).await?;
            version = answer.pointer("/metadata/resourceVersion").cloned();
            // a server that has not heard of the new schema keeps nothing
            fields.retain(|field| {
                field.section() != section
                    || !names.iter().any(|name| name == field.name())
                    || native(&answer, *field).is_some()
            });
        }
        if fields.is_empty() {
            return Ok(false);
        }
        let mut body = json!({ "metadata": { "resourceVersion": version } });
        let gone = fields.iter().map(|field| (field.annotation(), Value::Null));
        annotate(&mut body, gone.collect());
        self.patch_once(name, Section::Spec, &body).await?;
        Ok(true)
    }

    async fn read(&self, name: &str) -> kube::Result<Value> {
        let request = Request::new(&self.url).get(name, &kube::api::GetParams::default());
        self.send("get", request).await
    }

    async fn patch_once(&self, name: &str, section: Section, body: &Value) -> kube::Result<Value> {
        let params = PatchParams {
            field_manager: self.manager.map(str::to_owned),
            ..PatchParams::default()
        };
        let patch = kube::api::Patch::Merge(body);
        let request = Request::new(&self.url);
        let request = match section {
            Section::Spec => request.patch(name, &params, &patch),
            Section::Status => request.patch_subresource("status", name, &params, &patch),
        };
        self.send("patch", request).await
    }

    async fn send(
        &self,
        verb: &str,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> kube::Result<Value> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        let answer = self.client.request_text(request);
        let text = match self.counter {
            Some(counter) => counter.count(verb, self.kind, answer).await?,
            None => answer.await?,
        };
        serde_json::from_str(&text).map_err(kube::Error::SerdeError)
    }

    fn decoded<K: DeserializeOwned>(&self, object: Value) -> kube::Result<K> {
        decode(self.kind, &object)
            .map(|(object, _)| object)
            .map_err(kube::Error::SerdeError)
    }
}

/// An object that was decoded as it came, with what stands in annotations in its fields.
#[must_use]
pub fn raised<K: KubeObject + Clone + Serialize + DeserializeOwned>(object: K) -> K {
    let kind = K::KIND.as_str();
    let annotations = object.meta().annotations.iter().flatten();
    if stand_ins(kind, annotations.map(|(name, _)| name)).is_empty() {
        return object;
    }
    let value = serde_json::to_value(&object);
    let raised = value.and_then(|value| decode(kind, &value));
    raised.map_or(object, |(raised, _)| raised)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request as HttpRequest, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;
    use crate::api::{EphemeralRunnerSet, MissingFields};

    fn set(version: &str, spec: Value, status: Value, annotations: Value) -> Value {
        json!({
            "apiVersion": "actions.github.com/v1alpha1", "kind": "EphemeralRunnerSet",
            "metadata": {"name": "pool", "namespace": "ci", "resourceVersion": version,
                         "annotations": annotations},
            "spec": spec, "status": status,
        })
    }

    /// Moves what stands in annotations into fields, on a server that answers so one after the
    /// other. Says whether there was something to move, and what was sent.
    async fn moved(missing: &[Field], answers: Vec<Value>) -> (bool, Vec<(String, Value)>) {
        let answers = Arc::new(Mutex::new(answers.into_iter()));
        let sent = Arc::new(Mutex::new(Vec::new()));
        let there = sent.clone();
        let client = Client::new(
            service_fn(move |request: HttpRequest<Body>| {
                let answer = answers.lock().unwrap().next().expect("no further request");
                let sent = there.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let body = body.collect_bytes().await?;
                    let line = format!("{} {}", parts.method, parts.uri.path());
                    let body = serde_json::from_slice(&body).unwrap_or_default();
                    sent.lock().unwrap().push((line, body));
                    let body = Body::from(answer.to_string().into_bytes());
                    Ok::<_, tower::BoxError>(Response::new(body))
                }
            }),
            "default",
        );
        let served = ServedFields::default();
        served.told(missing.iter().copied().collect::<MissingFields>());
        let api = CustomApi::new::<EphemeralRunnerSet>(&client, &served, "ci", None);
        let moved = api.move_into_fields("pool").await.unwrap();
        let sent = sent.lock().unwrap().clone();
        (moved, sent)
    }

    fn field(section: Section, name: &str) -> Field {
        Field::find("EphemeralRunnerSet", section, name).unwrap()
    }

    const PATH: &str = "/apis/actions.github.com/v1alpha1/namespaces/ci/ephemeralrunnersets/pool";
    const WANTED: &str = "impresario.dev/spec.actionableRevision";
    const APPLIED: &str = "impresario.dev/status.appliedActionableRevision";

    /// Each request is made to the version that the one before has left: what others write in
    /// between is not undone by an older value out of an annotation.
    #[tokio::test]
    async fn a_move_goes_field_by_field_under_a_lock_and_takes_the_annotations_last() {
        let standing = json!({(WANTED): "4", (APPLIED): "3"});
        let (spec, status) = (
            json!({"actionableRevision": 4}),
            json!({"appliedActionableRevision": 3}),
        );
        let (moved, sent) = moved(
            &[],
            vec![
                set("10", json!({}), json!({}), standing.clone()),
                set("11", spec.clone(), json!({}), standing.clone()),
                set("12", spec.clone(), status.clone(), standing),
                set("13", spec.clone(), status.clone(), json!({})),
            ],
        )
        .await;
        assert!(moved);
        let at = |version: &str| json!({ "resourceVersion": version });
        let gone = json!({"resourceVersion": "12",
                          "annotations": {(WANTED): null, (APPLIED): null}});
        assert_eq!(
            sent,
            [
                (format!("GET {PATH}"), Value::Null),
                (
                    format!("PATCH {PATH}"),
                    json!({"metadata": at("10"), "spec": spec})
                ),
                (
                    format!("PATCH {PATH}/status"),
                    json!({"metadata": at("11"), "status": status})
                ),
                (format!("PATCH {PATH}"), json!({ "metadata": gone })),
            ]
        );
    }

    #[tokio::test]
    async fn a_field_that_is_there_already_wins_over_its_annotation() {
        let there = json!({"appliedActionableRevision": 7});
        let (moved, sent) = moved(
            &[],
            vec![
                set("10", json!({}), there.clone(), json!({(APPLIED): "3"})),
                set("11", json!({}), there, json!({})),
            ],
        )
        .await;
        assert!(moved);
        let gone = json!({"resourceVersion": "10", "annotations": {(APPLIED): null}});
        assert_eq!(
            sent[1..],
            [(format!("PATCH {PATH}"), json!({ "metadata": gone }))]
        );
    }

    /// What has no field yet, or not on the server that answered, stays where it is.
    #[tokio::test]
    async fn an_annotation_whose_field_is_not_there_stays() {
        let missing = field(Section::Status, "appliedActionableRevision");
        let standing = json!({(APPLIED): "3"});
        let before = set("10", json!({}), json!({}), standing.clone());
        let (found, sent) = moved(&[missing], vec![before.clone()]).await;
        assert_eq!((found, sent.len()), (false, 1));
        // it was thought to be there, and did not come back
        let after = set("10", json!({}), json!({}), standing);
        let (found, sent) = moved(&[], vec![before, after]).await;
        assert_eq!((found, sent.len()), (false, 2));
        let nothing = set("10", json!({}), json!({}), json!({}));
        let (found, sent) = moved(&[], vec![nothing]).await;
        assert_eq!((found, sent.len()), (false, 1));
    }
}
