//! An in-memory kube-apiserver: used by the kube client in process, and served on a port for
//! kubectl.
//!
//! ```text
//!  request ─► faults ─► http (route, verb) ─► rbac ─► handlers ─► store ─► watchers, gc
//! ```
//!
//! A request is carried out in one piece under one lock, so that nothing happens between its
//! reading and its writing. Time comes from the [`Clock`], chance from the seed.

mod admission;
mod defaults;
mod discovery;
mod events;
pub mod faults;
mod gc;
mod handlers;
mod handlers_delete;
mod handlers_pods;
mod handlers_read;
mod handlers_write;
mod http;
mod kinds;
mod object;
mod openapi;
mod patch;
mod protobuf;
mod quota;
mod rbac;
mod record;
mod schema;
mod seams;
mod selectors;
mod serve;
mod status;
mod store;
mod table;
mod validation;
mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use k8s_openapi::serde::de::DeserializeOwned;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use tokio::sync::Notify;

pub use self::admission::Admission;
use self::faults::{ChangeInfo, Interceptor, NoFaults, Outcome, RequestInfo};
pub use self::http::{Body, BodyError, Verb};
use self::kinds::Registry;
pub use self::kinds::ResourceType;
use self::record::Record;
pub use self::record::RequestKey;
pub use self::status::ApiError;
pub use self::store::Snapshot;
use self::store::Store;
use wall_clock::Clock;

/// How a server is set up.
#[derive(Clone)]
pub struct ApiServerOptions {
    /// What time it is. Timestamps come from it; waiting is tokio's, which it should move with.
    pub clock: Clock,
    /// Source of uids and generated names.
    pub seed: u64,
    /// What admission does to new objects.
    pub admission: Vec<Admission>,
    /// What goes wrong.
    pub interceptor: Arc<dyn Interceptor>,
    /// Whether a line is kept for each request and change.
    pub keep_log: bool,
}

impl ApiServerOptions {
    /// A server without admission, faults or log.
    #[must_use]
    pub fn new(clock: Clock, seed: u64) -> Self {
        Self {
            clock,
            seed,
            admission: Vec::new(),
            interceptor: Arc::new(NoFaults),
            keep_log: false,
        }
    }
}

/// Who makes a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Such as `system:serviceaccount:NAMESPACE:NAME`.
    pub user: String,
    /// Its groups, those included that a real server adds.
    pub groups: Vec<String>,
}

impl Identity {
    /// Someone with the groups given, and those that a real server adds.
    #[must_use]
    pub fn new(user: &str, groups: &[&str]) -> Self {
        let mut groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        groups.push("system:authenticated".into());
        if let Some(account) = user.strip_prefix("system:serviceaccount:") {
            let namespace = account.split(':').next().unwrap_or_default();
            groups.push("system:serviceaccounts".into());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        let user = user.to_owned();
        Self { user, groups }
    }

    /// Whoever may do everything.
    #[must_use]
    pub fn admin() -> Self {
        Self {
            user: "system:admin".into(),
            groups: vec!["system:masters".into()],
        }
    }
}

/// The connection broke: the client cannot know whether its request took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connection reset by peer")]
pub struct ConnectionLost;

/// The server. Clones are the same server; it ends with the last of them.
#[derive(Clone)]
pub struct ApiServer(Arc<Inner>);

struct Inner {
    clock: Clock,
    interceptor: Arc<dyn Interceptor>,
    state: Mutex<State>,
    /// Wakes the background work.
    work: Arc<Notify>,
}

/// Everything that requests read and write.
struct State {
    store: Store,
    registry: Registry,
    rng: StdRng,
    admission: Vec<Admission>,
    record: Record,
    garbage: gc::Garbage,
    logs: handlers_pods::Logs,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // the background task finds the server gone, and ends
        self.work.notify_one();
    }
}

impl ApiServer {
    /// Starts a server with the namespaces of a fresh cluster. To be called inside a tokio
    /// runtime.
    #[must_use]
    pub fn new(options: ApiServerOptions) -> Self {
        let server = Self(Arc::new(Inner {
            clock: options.clock,
            interceptor: options.interceptor,
            work: Arc::default(),
            state: Mutex::new(State {
                store: Store::default(),
                registry: Registry::builtin(),
                rng: StdRng::seed_from_u64(options.seed),
                admission: options.admission,
                record: Record::new(options.keep_log),
                garbage: gc::Garbage::default(),
                logs: handlers_pods::Logs::default(),
            }),
        }));
        server.create_namespaces();
        let work = Arc::clone(&server.0.work);
        tokio::spawn(gc::run(Arc::downgrade(&server.0), work));
        server
    }

    fn create_namespaces(&self) {
        let now = self.0.clock.now();
        let mut state = self.0.lock();
        for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
            state.create_namespace(name, now);
        }
    }

    /// Carries out a request as [`Identity::admin`].
    pub async fn handle(&self, request: ::http::Request<Bytes>) -> ::http::Response<http::Body> {
        match self.answer(request, &Identity::admin()).await {
            Ok(response) => response,
            Err(lost) => http::refusal(&ApiError::new(503, "ServiceUnavailable", lost.to_string())),
        }
    }

    /// Carries out a request as someone.
    ///
    /// # Errors
    /// When a fault broke the connection.
    pub async fn answer(
        &self,
        request: ::http::Request<Bytes>,
        identity: &Identity,
    ) -> Result<::http::Response<http::Body>, ConnectionLost> {
        let (parts, body) = request.into_parts();
        let info = self.0.lock().describe(&parts);
        let fate = self.0.interceptor.request(&info);
        if let Some(mut held) = fate.held_until {
            // a sender that is gone holds nothing back
            let _ = held.wait_for(|free| *free).await;
        }
        pause(fate.delay_before).await;
        let response = match fate.outcome {
            Outcome::Refused(error) => Ok(http::refusal(&error)),
            Outcome::Lost => Err(ConnectionLost),
            Outcome::Answered => Ok(self.carry_out(&parts, &body, identity, &info, 0)),
            Outcome::Stale(behind) => Ok(self.carry_out(&parts, &body, identity, &info, behind)),
            Outcome::AnsweredWrongly(error) => {
                self.carry_out(&parts, &body, identity, &info, 0);
                Ok(http::refusal(&error))
            }
            Outcome::AnswerLost => {
                self.carry_out(&parts, &body, identity, &info, 0);
                Err(ConnectionLost)
            }
        };
        let code = match &response {
            Ok(response) => response.status().as_u16(),
            Err(ConnectionLost) => 0,
        };
        self.0
            .lock()
            .record
            .request(self.0.clock.now(), &info, code);
        pause(fate.delay_after).await;
        response
    }

    fn carry_out(
        &self,
        parts: &::http::request::Parts,
        body: &[u8],
        identity: &Identity,
        info: &RequestInfo,
        behind: u64,
    ) -> ::http::Response<http::Body> {
        let request = handlers::Incoming {
            parts,
            body,
            identity,
            info,
            behind,
            now: self.0.clock.now(),
        };
        let response = handlers::respond(&self.0, &request);
        self.0.work.notify_one();
        response
    }

    /// Installs a CustomResourceDefinition, or replaces one.
    ///
    /// # Errors
    /// When it is not a valid one.
    pub fn install_crd(&self, crd: Value) -> Result<(), ApiError> {
        let now = self.0.clock.now();
        let installed = self.0.lock().install_crd(crd, now);
        self.0.work.notify_one();
        installed
    }

    /// An object as it is stored.
    #[must_use]
    pub fn get(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Value>> {
        let shelf = kinds::shelf_name(group, plural);
        self.0.lock().store.get(&shelf, namespace, name).cloned()
    }

    /// Objects as they are stored, by namespace and name; of one namespace when it is given.
    #[must_use]
    pub fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let shelf = kinds::shelf_name(group, plural);
        let state = self.0.lock();
        state.store.list(&shelf, namespace).cloned().collect()
    }

    /// Objects of a type, by namespace and name; those that do not fit the type are left out.
    #[must_use]
    pub fn list_as<K>(&self, namespace: Option<&str>) -> Vec<K>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned,
    {
        let objects = self.list(&K::group(&()), &K::plural(&()), namespace);
        let typed = objects.iter().map(|object| K::deserialize(&**object));
        typed.filter_map(Result::ok).collect()
    }

    /// The resources that are served now.
    #[must_use]
    pub fn resources(&self) -> Vec<Arc<ResourceType>> {
        self.0.lock().registry.iter().cloned().collect()
    }

    /// Adds a line to what a container has written, for `kubectl logs`; nothing when the pod
    /// is gone.
    pub fn append_pod_log(&self, namespace: &str, pod: &str, container: &str, line: &str) {
        let mut state = self.0.lock();
        if let Some(pod) = state.store.get("pods", namespace, pod).cloned() {
            state.logs.append(&pod, container, line);
        }
    }

    /// The revision of the last change.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.0.lock().store.revision()
    }

    /// Forgets all history, as etcd's compaction does: older watches get 410.
    pub fn compact(&self) {
        self.0.lock().store.compact();
    }

    /// Everything that is stored now, as a backup of etcd has it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.0.lock().store.snapshot()
    }

    /// Puts a snapshot in the place of everything, as restoring etcd does: resource versions go
    /// back, watches end, and history is gone.
    pub fn restore(&self, snapshot: &Snapshot) {
        let mut state = self.0.lock();
        state.store.restore(snapshot);
        state.garbage = gc::Garbage::default();
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> BTreeMap<RequestKey, u64> {
        self.0.lock().record.requests().clone()
    }

    /// Takes the lines logged since this was called last.
    #[must_use]
    pub fn take_log(&self) -> Vec<String> {
        self.0.lock().record.take_log()
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // a panic in one request says nothing about the store, which is written last
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the interceptor what was stored. Not under the lock: it may look at the server.
    fn tell(&self, changes: &[(store::ObjectId, store::Change)], request: Option<&RequestInfo>) {
        for (id, change) in changes {
            let gone = change.kind == store::ChangeKind::Deleted;
            self.interceptor.changed(&ChangeInfo {
                resource: &id.shelf,
                before: change.previous.as_deref(),
                after: (!gone).then_some(&*change.object),
                request,
            });
        }
    }
}

async fn pause(time: std::time::Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}
