//! Running effects against Kubernetes: one request in, one answer out.
//!
//! Knows `kube` and tokio, and nothing of what the requests are for. It does not retry: a
//! failed request is an input of the step that asked, which knows what it means.

mod connect;
mod counted;
mod custom;
mod events;
mod fence;
#[cfg(test)]
pub(crate) mod late_client;
mod lease;
mod limiter;
mod newest;
mod patch_plan;
mod permission;
mod refusals;
mod retry_after;
mod schemas;
mod served;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{
    DeleteParams, ListParams, ObjectList, Patch, PatchParams, PostParams, Preconditions,
};
use kube::core::{NamespaceResourceScope, Status};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::{
    AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet, Section,
};
use crate::messages::{
    Kind, KubeAnswer, KubeError, KubeErrorKind, KubeObject, KubeRequest, Object, ObjectRef,
};
use crate::metrics::Metrics;

use self::newest::Newest;
pub use connect::{connect, connect_with};
pub use counted::Counter;
pub use custom::{CustomApi, raised};
pub use events::EventPublisher;
pub use fence::{Fence, Writing};
pub use lease::{Candidate, DRAIN, LeaseLost};
pub use limiter::{Access, Limiter};
pub use permission::Grant;
pub use refusals::{Refusals, missing_right};
pub use schemas::{Reading, SchemaReader};
pub use served::ServedFields;

use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};

/// Name under which our writes appear in an object's managed fields.
pub const FIELD_MANAGER: &str = "impresario";

/// How long a request may go without an answer.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs requests against one API server. Clones share the connection and the limit.
#[derive(Clone)]
pub struct KubeIo {
    client: Client,
    limiter: Arc<Limiter>,
    fence: Fence,
    counter: Counter,
    newest: Arc<Newest>,
    served: Arc<ServedFields>,
    refusals: Refusals,
    /// The controller's namespace, whose rights come from another role.
    home: Arc<str>,
}

impl KubeIo {
    /// Runs requests through `client`, at most as fast as `limiter` allows.
    #[must_use]
    pub fn new(client: Client, limiter: impl Into<Arc<Limiter>>, metrics: Arc<Metrics>) -> Self {
        Self {
            client,
            limiter: limiter.into(),
            fence: Fence::open(),
            counter: Counter::new(metrics),
            newest: Arc::default(),
            served: Arc::default(),
            refusals: Refusals::default(),
            home: Arc::from(""),
        }
    }

    /// The same, of a controller that runs in this namespace.
    #[must_use]
    pub fn at_home_in(self, namespace: &str) -> Self {
        let home = Arc::from(namespace);
        Self { home, ..self }
    }

    /// The same, with these refusals known: a right that is missing is named once by all who share
    /// them.
    #[must_use]
    pub fn sharing(self, refusals: Refusals) -> Self {
        Self { refusals, ..self }
    }

    /// The same, with writes through this fence.
    #[must_use]
    pub fn behind(self, fence: Fence) -> Self {
        Self { fence, ..self }
    }

    /// The client, for watches.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// The newest resourceVersion of a kind in an answer so far; 0 when there was none. No
    /// consistent list asked for now is older, unless the store went back.
    #[must_use]
    pub fn newest_version(&self, kind: Kind) -> u64 {
        self.newest.of(kind)
    }

    /// What is known of the schemas of the custom resources.
    #[must_use]
    pub const fn served(&self) -> &Arc<ServedFields> {
        &self.served
    }

    /// Moves what stands in annotations of a custom resource into the fields that are there by
    /// now. Says whether there was something to move.
    ///
    /// # Errors
    ///
    /// As the server answered.
    pub async fn move_into_fields(&self, object: &ObjectRef) -> kube::Result<bool> {
        let (namespace, name) = (&object.namespace, &object.name);
        let (client, served) = (&self.client, &self.served);
        let manager = Some(FIELD_MANAGER);
        let _admitted = self.limiter.admit(Access::Write).await;
        let _writing = self.fence.pass().await;
        let work = async {
            match object.kind {
                Kind::AutoscalingRunnerSet => {
                    CustomApi::new::<AutoscalingRunnerSet>(client, served, namespace, manager)
                }
                Kind::AutoscalingListener => {
                    CustomApi::new::<AutoscalingListener>(client, served, namespace, manager)
                }
                Kind::EphemeralRunnerSet => {
                    CustomApi::new::<EphemeralRunnerSet>(client, served, namespace, manager)
                }
                Kind::EphemeralRunner => {
                    CustomApi::new::<EphemeralRunner>(client, served, namespace, manager)
                }
                _ => return Ok(false),
            }
            .counted_by(&self.counter)
            .move_into_fields(name)
            .await
        };
        match tokio::time::timeout(DEADLINE, work).await {
            Ok(result) => result,
            Err(late) => Err(kube::Error::Service(late.into())),
        }
    }

    /// Runs one request. A write that the fence holds back is never answered.
    ///
    /// # Errors
    ///
    /// As the server answered, or [`KubeErrorKind::Unanswered`] when no answer came to a write.
    pub async fn run(&self, request: KubeRequest) -> Result<KubeAnswer, KubeError> {
        let KubeRequest::Get(target) = request else {
            return self.run_as(request, Way::Straight).await;
        };
        let read = KubeRequest::Get(target.clone());
        let answer = self.run_as(read, Way::Straight).await;
        match answer {
            Err(error) if error.kind == KubeErrorKind::Forbidden && is_listed(target.kind) => {
                self.find(target).await.unwrap_or(Err(error))
            }
            answer => answer,
        }
    }

    /// Looks for an object in the list of its kind: where the rights in a namespace are gone,
    /// those to list are still there. Nothing when these are not either.
    async fn find(&self, target: ObjectRef) -> Option<Result<KubeAnswer, KubeError>> {
        let message = format!("{} \"{}\" not found", target.kind.plural(), target.name);
        let read = KubeRequest::Get(target);
        let found = match self.run_as(read, Way::ByList).await {
            Ok(KubeAnswer::Objects(found)) => found.into_iter().next(),
            Err(error) if error.kind == KubeErrorKind::Forbidden => return None,
            other => return Some(other),
        };
        Some(found.map(KubeAnswer::Object).ok_or(KubeError {
            kind: KubeErrorKind::NotFound,
            message,
            retry_after: None,
        }))
    }

    async fn run_as(&self, request: KubeRequest, way: Way) -> Result<KubeAnswer, KubeError> {
        let kind = request.kind();
        let verb = way.verb(&request);
        let (grant, namespace) = (
            Grant::of(&request, &self.home),
            request.namespace().to_owned(),
        );
        let reads = matches!(request, KubeRequest::Get(_) | KubeRequest::List { .. });
        let access = if reads { Access::Read } else { Access::Write };
        let _admitted = self.limiter.admit(access).await;
        // last, since the lease may be lost while a request waits for its turn
        let _writing = match access {
            Access::Read => None,
            Access::Write => Some(self.fence.pass().await),
        };
        let result = tokio::time::timeout(DEADLINE, self.send(request, way)).await;
        let result = match result {
            Ok(result) => result.map_err(|error| classify(&error, verb, reads)),
            Err(_) => {
                let late = format!("no answer to {verb} {kind} within {} s", DEADLINE.as_secs());
                Err(unanswered(reads, late))
            }
        };
        match &result {
            Ok(answer) => self.newest.note(answer),
            Err(error) => self.refusals.log(error),
        }
        result.map_err(|mut error| {
            if error.kind == KubeErrorKind::Forbidden {
                error.message = permission::explained(&error.message, grant, &namespace);
            }
            error
        })
    }

    /// Whether a namespace is being deleted, or gone. Nothing is changed, and no right is needed
    /// but the one to create runners: their creation is tried without taking effect.
    pub async fn is_terminating(&self, namespace: &str) -> bool {
        let _admitted = self.limiter.admit(Access::Read).await;
        let mut probe = EphemeralRunner::default();
        probe.metadata.name = Some("impresario-probe".to_owned());
        let params = PostParams {
            dry_run: true,
            field_manager: Some(FIELD_MANAGER.to_owned()),
        };
        let api = Api::<EphemeralRunner>::namespaced(self.client.clone(), namespace);
        let probed = self.counter.count(
            "create",
            Kind::EphemeralRunner.as_str(),
            api.create(&params, &probe),
        );
        let tried = tokio::time::timeout(DEADLINE, probed).await;
        match tried {
            Ok(Err(error)) => matches!(
                classify(&error, "create", true).kind,
                KubeErrorKind::NamespaceTerminating | KubeErrorKind::NotFound
            ),
            _ => false,
        }
    }

    /// Reads a Secret; `None` when there is none.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub async fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Secret>>, KubeError> {
        self.read(ObjectRef::new(Kind::Secret, namespace, name))
            .await
    }

    /// Reads a ConfigMap; `None` when there is none.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub async fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<ConfigMap>>, KubeError> {
        self.read(ObjectRef::new(Kind::ConfigMap, namespace, name))
            .await
    }

    async fn read<K: KubeObject>(&self, target: ObjectRef) -> Result<Option<Arc<K>>, KubeError> {
        let namespace = target.namespace.clone();
        match self.run(KubeRequest::Get(target)).await {
            Ok(answer) => Ok(answer.object().and_then(K::from_object)),
            Err(error) if error.kind == KubeErrorKind::NotFound => Ok(None),
            // the rights go with a namespace that is being deleted, and do not come back
            Err(error)
                if error.kind == KubeErrorKind::Forbidden
                    && self.is_terminating(&namespace).await =>
            {
                Err(KubeError {
                    kind: KubeErrorKind::NamespaceTerminating,
                    message: format!("the namespace {namespace} is being deleted; {error}"),
                    retry_after: None,
                })
            }
            Err(error) => Err(error),
        }
    }

    async fn send(&self, request: KubeRequest, way: Way) -> kube::Result<KubeAnswer> {
        match request.kind() {
            Kind::AutoscalingRunnerSet => self.send_custom::<AutoscalingRunnerSet>(request).await,
            Kind::AutoscalingListener => self.send_custom::<AutoscalingListener>(request).await,
            Kind::EphemeralRunnerSet => self.send_custom::<EphemeralRunnerSet>(request).await,
            Kind::EphemeralRunner => self.send_custom::<EphemeralRunner>(request).await,
            Kind::Pod => self.send_as::<Pod>(request, way).await,
            Kind::Secret => self.send_as::<Secret>(request, way).await,
            Kind::ConfigMap => self.send_as::<ConfigMap>(request, way).await,
            Kind::ServiceAccount => self.send_as::<ServiceAccount>(request, way).await,
            Kind::Role => self.send_as::<Role>(request, way).await,
            Kind::RoleBinding => self.send_as::<RoleBinding>(request, way).await,
        }
    }

    /// As [`Self::send_as`], for kinds whose schemas may lack fields.
    async fn send_custom<K>(&self, request: KubeRequest) -> kube::Result<KubeAnswer>
    where
        K: KubeObject
            + Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let way = |namespace: &str| {
            CustomApi::new::<K>(&self.client, &self.served, namespace, Some(FIELD_MANAGER))
                .counted_by(&self.counter)
        };
        let one = |object: K| KubeAnswer::Object(Arc::new(object).into_object());
        match request {
            KubeRequest::Create(object) => {
                let Some(typed) = K::from_object(&object) else {
                    unreachable!("send() chooses K by the object's kind")
                };
                let namespace = object.reference().namespace;
                way(&namespace).create(typed.as_ref()).await.map(one)
            }
            KubeRequest::Patch {
                target,
                body,
                status,
                lock,
            } => {
                let section = if status {
                    Section::Status
                } else {
                    Section::Spec
                };
                way(&target.namespace)
                    .patch(&target.name, section, body, lock)
                    .await
                    .map(one)
            }
            other => Ok(match self.send_as::<K>(other, Way::Straight).await? {
                KubeAnswer::Object(object) => KubeAnswer::Object(raise::<K>(object)),
                KubeAnswer::Objects(objects) => {
                    KubeAnswer::Objects(objects.into_iter().map(raise::<K>).collect())
                }
                KubeAnswer::Deleted => KubeAnswer::Deleted,
            }),
        }
    }

    /// Sends the one request that it takes, and counts it.
    async fn send_as<K>(&self, request: KubeRequest, way: Way) -> kube::Result<KubeAnswer>
    where
        K: KubeObject
            + Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let (verb, kind) = (way.verb(&request), request.kind());
        let answer = self.send_once::<K>(request, way);
        self.counter.count(verb, kind.as_str(), answer).await
    }

    async fn send_once<K>(&self, request: KubeRequest, way: Way) -> kube::Result<KubeAnswer>
    where
        K: KubeObject
            + Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let api = |namespace: &str| Api::<K>::namespaced(self.client.clone(), namespace);
        let one = |object: K| KubeAnswer::Object(Arc::new(object).into_object());
        match request {
            KubeRequest::Get(target) if way == Way::ByList => {
                let of_that_name = format!("metadata.name={}", target.name);
                let params = ListParams::default().fields(&of_that_name);
                api(&target.namespace).list(&params).await.map(several)
            }
            KubeRequest::Get(target) => api(&target.namespace).get(&target.name).await.map(one),
            KubeRequest::List {
                namespace,
                selector,
                ..
            } => {
                let params = ListParams::default().labels(&selector);
                api(&namespace).list(&params).await.map(several)
            }
            KubeRequest::Create(object) => create(&api(&object.reference().namespace), &object)
                .await
                .map(one),
            KubeRequest::Patch {
                target,
                body,
                status,
                lock,
            } => {
                let patch = Patch::Merge(with_lock(body, lock));
                let api = api(&target.namespace);
                if status {
                    api.patch_status(&target.name, &patch_params(), &patch)
                        .await
                        .map(one)
                } else {
                    api.patch(&target.name, &patch_params(), &patch)
                        .await
                        .map(one)
                }
            }
            KubeRequest::DropFinalizer { target, finalizer } => {
                // a merge patch would have to say what stays, and so to read it first
                let patch = Patch::Strategic(json!({
                    "metadata": { "$deleteFromPrimitiveList/finalizers": [finalizer] },
                }));
                api(&target.namespace)
                    .patch(&target.name, &patch_params(), &patch)
                    .await
                    .map(one)
            }
            KubeRequest::Delete {
                target,
                uid,
                lock,
                grace,
            } => {
                let params = DeleteParams {
                    grace_period_seconds: grace,
                    preconditions: Some(Preconditions {
                        uid,
                        resource_version: lock,
                    }),
                    ..DeleteParams::background()
                };
                let answer = api(&target.namespace).delete(&target.name, &params).await?;
                Ok(answer.either(lingering, |_| KubeAnswer::Deleted))
            }
        }
    }
}

fn raise<K: KubeObject + Clone + Serialize + DeserializeOwned>(object: Object) -> Object {
    match K::from_object(&object) {
        Some(typed) => Arc::new(raised(K::clone(&typed))).into_object(),
        None => object,
    }
}

/// How an object is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By its name.
    Straight,
    /// As the only one in a list.
    ByList,
}

impl Way {
    /// Kubernetes' verb for that request.
    const fn verb(self, request: &KubeRequest) -> &'static str {
        match self {
            Self::Straight => request.verb(),
            Self::ByList => "list",
        }
    }
}

/// Kinds that may be listed everywhere, whatever the rights in a namespace.
const fn is_listed(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Pod | Kind::ServiceAccount | Kind::Role | Kind::RoleBinding
    )
}

fn several<K: KubeObject + Clone>(list: ObjectList<K>) -> KubeAnswer {
    let items = list.items.into_iter();
    KubeAnswer::Objects(items.map(|item| Arc::new(item).into_object()).collect())
}

async fn create<K>(api: &Api<K>, object: &Object) -> kube::Result<K>
where
    K: KubeObject + Clone + Debug + Serialize + DeserializeOwned,
{
    let params = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let Some(object) = K::from_object(object) else {
        unreachable!("send() chooses K by the object's kind")
    };
    api.create(&params, object.as_ref()).await
}

/// A delete is answered with the object while it lingers. A pod deleted without grace is
/// answered too, although it is gone: nothing holds it any more.
fn lingering<K: KubeObject>(object: K) -> KubeAnswer {
    let meta = object.meta();
    let held = meta
        .finalizers
        .as_ref()
        .is_some_and(|held| !held.is_empty());
    let graced = meta.deletion_grace_period_seconds.unwrap_or(0) > 0;
    if meta.deletion_timestamp.is_some() && (held || graced) {
        KubeAnswer::Object(Arc::new(object).into_object())
    } else {
        KubeAnswer::Deleted
    }
}

fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn with_lock(mut body: Value, lock: Option<String>) -> Value {
    if let Some(lock) = lock {
        json_patch::merge(
            &mut body,
            &json!({ "metadata": { "resourceVersion": lock } }),
        );
    }
    body
}

fn unanswered(reads: bool, message: String) -> KubeError {
    KubeError {
        // a read takes no effect, so there is nothing to find out
        kind: if reads {
            KubeErrorKind::Unavailable
        } else {
            KubeErrorKind::Unanswered
        },
        message,
        retry_after: None,
    }
}

/// Whether a request was refused because its namespace is being deleted.
fn says_terminating(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| {
        let mut causes = details.causes.iter();
        causes.any(|cause| cause.reason == "NamespaceTerminating")
    })
}

fn classify(error: &kube::Error, verb: &str, reads: bool) -> KubeError {
    let kube::Error::Api(status) = error else {
        return match error {
            // the answer came, and was not what the type says
            kube::Error::SerdeError(_) | kube::Error::BuildRequest(_) => KubeError {
                kind: KubeErrorKind::Other,
                message: error.to_string(),
                retry_after: None,
            },
            _ => unanswered(reads, format!("the API server did not answer: {error}")),
        };
    };
    let kind = match (status.code, status.reason.as_str()) {
        (404, _) => KubeErrorKind::NotFound,
        (409, "AlreadyExists") => KubeErrorKind::AlreadyExists,
        (409, _) if verb == "create" && status.reason != "Conflict" => KubeErrorKind::AlreadyExists,
        (409, _) => KubeErrorKind::Conflict,
        (403, _) if says_terminating(status) => KubeErrorKind::NamespaceTerminating,
        (403, _) if status.message.contains("exceeded quota") => KubeErrorKind::QuotaExceeded,
        (401 | 403, _) => KubeErrorKind::Forbidden,
        (400 | 422, _) => KubeErrorKind::Invalid,
        // a timeout inside the server, or a server that goes away behind a balancer, says nothing
        // about the effect
        (502 | 504, _) => unanswered(reads, String::new()).kind,
        // the store may have done what the server did not hear of
        (500, _) if status.message.contains("request timed out") => {
            unanswered(reads, String::new()).kind
        }
        (429 | 500..=599, _) => KubeErrorKind::Unavailable,
        _ => KubeErrorKind::Other,
    };
    let wait = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    KubeError {
        kind,
        message: status.message.clone(),
        retry_after: (wait > 0).then(|| Duration::from_secs(u64::from(wait))),
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
