//! A cluster and a namespace of its own for each test.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use embedded_kube::{ApiServer, ApiServerOptions};
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind, Status};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;
use wall_clock::Clock;

use real_kube::envtest::Env;

/// How long to wait for what happens behind requests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster, and a namespace in it.
pub struct World {
    pub client: Client,
    pub namespace: String,
    source: Source,
}

enum Source {
    Embedded(ApiServer),
    Real(Box<dyn Fn(&str) -> Client + Send + Sync>),
}

impl World {
    /// A world of the embedded server.
    pub fn embedded() -> Self {
        let clock = Clock::simulated("2026-02-03T04:05:06Z".parse().unwrap());
        let server = ApiServer::new(ApiServerOptions::new(clock, 11));
        server.install_crd(gadget_crd()).unwrap();
        Self {
            client: server.client(),
            namespace: "default".into(),
            source: Source::Embedded(server),
        }
    }

    /// A namespace on a real server.
    pub async fn real(env: &Env, name: &str) -> Self {
        let (_, name) = name.rsplit_once("::").unwrap_or(("", name));
        let namespace = name.replace('_', "-");
        let world = Self {
            client: env.client.clone(),
            namespace,
            source: Source::Real(Box::new(env.impersonating())),
        };
        world.create_namespace(&world.namespace).await;
        world
    }

    /// A client of someone without any rights but those that roles give.
    pub fn client_of(&self, user: &str) -> Client {
        match &self.source {
            Source::Embedded(server) => server.client_as(user, &[]),
            Source::Real(impersonate) => impersonate(user),
        }
    }

    /// Waits until a user may do something to the object `this`: a real server's authorizer
    /// learns of new roles a moment later.
    pub async fn wait_until_allowed(&self, user: &str, verb: &str, resource: &str) {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client_of(user));
        let review: SelfSubjectAccessReview = object(json!({
            "metadata": {},
            "spec": { "resourceAttributes": {
                "verb": verb,
                "resource": resource,
                "namespace": self.namespace,
                "name": "this",
            } },
        }));
        let allowed = async || {
            let answer = reviews
                .create(&PostParams::default(), &review)
                .await
                .unwrap();
            answer.status.unwrap().allowed
        };
        within(async {
            while !allowed().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }

    /// A namespace beside the world's own.
    pub async fn create_namespace(&self, name: &str) {
        let namespace: Namespace = object(json!({ "metadata": { "name": name } }));
        self.namespaces()
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
    }

    pub fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    pub fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn gadgets(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("test.impresario.dev", "v1", "Gadget");
        let resource = ApiResource::from_gvk(&kind);
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    pub async fn create_map(&self, map: Value) -> ConfigMap {
        self.maps()
            .create(&PostParams::default(), &object(map))
            .await
            .unwrap()
    }

    pub async fn create_pod(&self, pod: Value) -> Pod {
        self.pods()
            .create(&PostParams::default(), &object(pod))
            .await
            .unwrap()
    }

    pub async fn create_gadget(&self, mut gadget: Value) -> DynamicObject {
        gadget["apiVersion"] = "test.impresario.dev/v1".into();
        gadget["kind"] = "Gadget".into();
        self.gadgets()
            .create(&PostParams::default(), &object(gadget))
            .await
            .unwrap()
    }
}

/// Installs on a real server what the embedded one has from the start.
pub async fn prepare(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd: CustomResourceDefinition = object(gadget_crd());
    definitions
        .create(&PostParams::default(), &crd)
        .await
        .unwrap();
    let established = conditions::is_crd_established();
    within(await_condition(
        definitions,
        "gadgets.test.impresario.dev",
        established,
    ))
    .await
    .unwrap();
}

fn gadget_crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "gadgets.test.impresario.dev" },
        "spec": {
            "group": "test.impresario.dev",
            "scope": "Namespaced",
            "names": { "plural": "gadgets", "singular": "gadget", "kind": "Gadget" },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {
                            "type": "object",
                            "properties": {
                                "size": { "type": "integer", "format": "int64", "minimum": 0 },
                                "colour": { "type": "string", "default": "green" },
                                "parts": { "type": "array", "items": { "type": "string" } },
                            },
                        },
                        "status": {
                            "type": "object",
                            "properties": { "phase": { "type": "string" } },
                        },
                    },
                } },
            }],
        },
    })
}

/// A typed object from JSON.
pub fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// The refusal in a result.
pub fn refusal<T: Debug>(result: kube::Result<T>) -> Box<Status> {
    match result {
        Err(kube::Error::Api(status)) => status,
        other => panic!("not refused: {other:?}"),
    }
}

/// Waits for something, but not for ever.
pub async fn within<F: Future>(future: F) -> F::Output {
    timeout(PATIENCE, future).await.expect("it never happens")
}

/// Waits until an object is gone.
pub async fn gone<K>(api: Api<K>, object: &K)
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let uid = object.uid().unwrap();
    let deleted = conditions::is_deleted(&uid);
    within(await_condition(api, &object.name_any(), deleted))
        .await
        .unwrap();
}

/// A watch as a stream of event kinds, names and objects.
pub struct Events<K>(BoxStream<'static, kube::Result<WatchEvent<K>>>);

pub async fn watch<K>(api: &Api<K>, parameters: &WatchParams, revision: &str) -> Events<K>
where
    K: Clone + DeserializeOwned + Debug + Send + 'static,
{
    let api = api.clone();
    let events = api.watch(parameters, revision).await.unwrap();
    Events(events.boxed())
}

impl<K: kube::Resource + Debug> Events<K> {
    /// The next event, as its kind and the object.
    pub async fn next(&mut self) -> (&'static str, K) {
        match within(self.0.next()).await {
            Some(Ok(WatchEvent::Added(object))) => ("ADDED", object),
            Some(Ok(WatchEvent::Modified(object))) => ("MODIFIED", object),
            Some(Ok(WatchEvent::Deleted(object))) => ("DELETED", object),
            other => panic!("not a change: {other:?}"),
        }
    }

    /// The next event, as its kind and the object's name.
    pub async fn next_name(&mut self) -> (&'static str, String) {
        let (kind, object) = self.next().await;
        (kind, object.name_any())
    }

    /// What comes next, of any kind; none at the end.
    pub async fn next_raw(&mut self) -> Option<kube::Result<WatchEvent<K>>> {
        within(self.0.next()).await
    }
}
