//! A small API server in memory, enough to drive the machines of this folder to a fixpoint:
//! resourceVersions, optimistic locks, finalizers, merge patches, watch events, faults.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::{Value, json};

use crate::clock::{Timestamp, after};
use crate::messages::{
    Kind, KubeAnswer, KubeError, KubeErrorKind, KubeObject, KubeRequest, Object, ObjectRef,
};

/// What happens to a request in place of its execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is refused.
    Refuse(KubeErrorKind),
    /// It takes effect, but the answer is lost.
    LoseAnswer,
    /// It is lost on its way.
    LoseRequest,
}

/// What a watch shows.
#[derive(Clone, Debug)]
pub enum Shown {
    Observed(Object),
    Gone(ObjectRef, String),
}

type Saboteur = Box<dyn FnMut(&KubeRequest) -> Option<Fault>>;

/// The API server.
pub struct Cluster {
    pub now: Timestamp,
    pub objects: BTreeMap<ObjectRef, Object>,
    pub shown: VecDeque<Shown>,
    /// Writes that took effect, as `verb kind name`.
    pub writes: Vec<String>,
    pub requests: u64,
    saboteur: Option<Saboteur>,
    version: u64,
}

impl Cluster {
    pub fn new() -> Self {
        Self {
            now: "2026-03-01T08:00:00Z".parse().unwrap(),
            objects: BTreeMap::new(),
            shown: VecDeque::new(),
            writes: Vec::new(),
            requests: 0,
            saboteur: None,
            version: 1000,
        }
    }

    pub fn sabotage(&mut self, saboteur: impl FnMut(&KubeRequest) -> Option<Fault> + 'static) {
        self.saboteur = Some(Box::new(saboteur));
    }

    pub fn stop_sabotage(&mut self) {
        self.saboteur = None;
    }

    pub fn get<T: KubeObject>(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        let reference = ObjectRef::new(T::KIND, namespace, name);
        self.objects.get(&reference).and_then(Object::get)
    }

    pub fn names(&self, kind: Kind) -> Vec<String> {
        let all = self.objects.keys().filter(|one| one.kind == kind);
        all.map(|one| one.name.clone()).collect()
    }

    /// How often that write took effect.
    pub fn count(&self, write: &str) -> usize {
        self.writes
            .iter()
            .filter(|one| one.starts_with(write))
            .count()
    }

    /// Puts an object there, as a user or chart does.
    pub fn apply(&mut self, object: impl Into<Object>) {
        let object = object.into();
        let reference = object.reference();
        let mut value = to_value(&object);
        if let Some(known) = self.objects.get(&reference) {
            let known = known.meta().clone();
            value["metadata"]["uid"] = json!(known.uid);
            value["metadata"]["generation"] = json!(known.generation);
        } else {
            self.version += 1;
            value["metadata"]["uid"] = json!(format!("uid-{}", self.version));
            value["metadata"]["generation"] = json!(1);
        }
        self.store(reference.kind, value);
    }

    /// Changes an object behind everybody's back.
    pub fn edit(
        &mut self,
        kind: Kind,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) {
        let reference = ObjectRef::new(kind, namespace, name);
        let mut value = to_value(&self.objects[&reference]);
        let spec = value["spec"].clone();
        change(&mut value);
        if value["spec"] != spec {
            let generation = value["metadata"]["generation"].as_i64().unwrap_or(0);
            value["metadata"]["generation"] = json!(generation + 1);
        }
        self.store(kind, value);
        self.collect(&reference);
    }

    pub fn delete(&mut self, kind: Kind, namespace: &str, name: &str) {
        let target = ObjectRef::new(kind, namespace, name);
        self.execute(&KubeRequest::Delete {
            target,
            uid: None,
            lock: None,
            grace: None,
        })
        .unwrap();
        self.writes.pop();
    }

    /// Takes an object away as if somebody had forced it.
    pub fn vanish(&mut self, kind: Kind, namespace: &str, name: &str) {
        self.remove(&ObjectRef::new(kind, namespace, name));
    }

    /// Runs a request, faults included.
    pub fn run(&mut self, request: &KubeRequest) -> Result<KubeAnswer, KubeError> {
        self.requests += 1;
        request.assert_guarded();
        let fault = self.saboteur.as_mut().and_then(|fault| fault(request));
        match fault {
            None => self.execute(request),
            Some(Fault::Refuse(kind)) => Err(error(kind)),
            Some(Fault::LoseRequest) => Err(error(KubeErrorKind::Unanswered)),
            Some(Fault::LoseAnswer) => {
                let _ = self.execute(request);
                Err(error(KubeErrorKind::Unanswered))
            }
        }
    }

    fn execute(&mut self, request: &KubeRequest) -> Result<KubeAnswer, KubeError> {
        match request {
            KubeRequest::Get(target) => {
                let found = self.objects.get(target).cloned();
                found
                    .map(KubeAnswer::Object)
                    .ok_or_else(|| error(KubeErrorKind::NotFound))
            }
            KubeRequest::List {
                kind,
                namespace,
                selector,
            } => {
                let listed = |object: &&Object| {
                    let reference = object.reference();
                    reference.kind == *kind
                        && reference.namespace == *namespace
                        && is_selected(object, selector)
                };
                let found = self.objects.values().filter(listed);
                Ok(KubeAnswer::Objects(found.cloned().collect()))
            }
            KubeRequest::Create(object) => self.create(object),
            KubeRequest::Patch {
                target,
                body,
                status,
                lock,
            } => self.patch(target, body, *status, lock.as_deref()),
            KubeRequest::DropFinalizer { target, finalizer } => {
                let known = self.objects.get(target).map(|known| known.meta().clone());
                let held = known.and_then(|meta| meta.finalizers).unwrap_or_default();
                let rest: Vec<_> = held.iter().filter(|held| held != finalizer).collect();
                let body = json!({"metadata": {"finalizers": rest}});
                self.patch(target, &body, false, None)
            }
            KubeRequest::Delete {
                target, uid, grace, ..
            } => self.delete_object(target, uid.as_deref(), *grace),
        }
    }

    fn create(&mut self, object: &Object) -> Result<KubeAnswer, KubeError> {
        let reference = object.reference();
        if self.objects.contains_key(&reference) {
            return Err(error(KubeErrorKind::AlreadyExists));
        }
        self.wrote("create", &reference);
        self.apply(object.clone());
        Ok(KubeAnswer::Object(self.objects[&reference].clone()))
    }

    fn patch(
        &mut self,
        target: &ObjectRef,
        body: &Value,
        status: bool,
        lock: Option<&str>,
    ) -> Result<KubeAnswer, KubeError> {
        let Some(known) = self.objects.get(target).cloned() else {
            return Err(error(KubeErrorKind::NotFound));
        };
        if lock.is_some() && lock != known.meta().resource_version.as_deref() {
            return Err(error(KubeErrorKind::Conflict));
        }
        let before = to_value(&known);
        let mut value = before.clone();
        json_patch::merge(&mut value, body);
        if status {
            let status = value["status"].clone();
            value = before.clone();
            value["status"] = status;
        } else if let Some(status) = before.get("status") {
            value["status"] = status.clone();
        }
        if to_value(&from_value(target.kind, value.clone())) == before {
            return Ok(KubeAnswer::Object(known));
        }
        self.wrote(if status { "patch-status" } else { "patch" }, target);
        if !status && value["spec"] != before["spec"] {
            let generation = known.meta().generation.unwrap_or(0);
            value["metadata"]["generation"] = json!(generation + 1);
        }
        let object = self.store(target.kind, value);
        self.collect(target);
        Ok(KubeAnswer::Object(object))
    }

    fn delete_object(
        &mut self,
        target: &ObjectRef,
        uid: Option<&str>,
        grace: Option<u32>,
    ) -> Result<KubeAnswer, KubeError> {
        let Some(known) = self.objects.get(target).cloned() else {
            return Err(error(KubeErrorKind::NotFound));
        };
        if uid.is_some_and(|uid| uid != known.uid()) {
            return Err(error(KubeErrorKind::Conflict));
        }
        self.wrote("delete", target);
        let meta = known.meta();
        let held = meta.finalizers.as_ref().is_some_and(|all| !all.is_empty());
        let runs = to_value(&known)["spec"]["nodeName"].is_string() && target.kind == Kind::Pod;
        if !held && (!runs || grace == Some(0)) {
            self.remove(target);
            return Ok(KubeAnswer::Deleted);
        }
        let mut value = to_value(&known);
        let seconds = if target.kind == Kind::Pod {
            grace.unwrap_or(60)
        } else {
            0
        };
        if value["metadata"]["deletionTimestamp"].is_null() {
            let deadline = after(self.now, i64::from(seconds));
            value["metadata"]["deletionTimestamp"] = json!(Time(deadline));
        }
        value["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
        Ok(KubeAnswer::Object(self.store(target.kind, value)))
    }

    fn store(&mut self, kind: Kind, mut value: Value) -> Object {
        self.version += 1;
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if value["metadata"]["creationTimestamp"].is_null() {
            value["metadata"]["creationTimestamp"] = json!(Time(self.now));
        }
        let object = from_value(kind, value);
        self.objects.insert(object.reference(), object.clone());
        if !matches!(kind, Kind::Secret | Kind::ConfigMap) {
            self.shown.push_back(Shown::Observed(object.clone()));
        }
        object
    }

    fn collect(&mut self, reference: &ObjectRef) {
        let meta: &ObjectMeta = self.objects[reference].meta();
        let held = meta.finalizers.as_ref().is_some_and(|all| !all.is_empty());
        if meta.deletion_timestamp.is_some() && !held {
            self.remove(reference);
        }
    }

    fn remove(&mut self, reference: &ObjectRef) {
        if let Some(object) = self.objects.remove(reference)
            && !matches!(reference.kind, Kind::Secret | Kind::ConfigMap)
        {
            let uid = object.uid().to_owned();
            self.shown.push_back(Shown::Gone(reference.clone(), uid));
        }
    }

    fn wrote(&mut self, verb: &str, target: &ObjectRef) {
        let ObjectRef { kind, name, .. } = target;
        self.writes.push(format!("{verb} {kind} {name}"));
    }
}

/// Whether an object has the label of a selector `key=value`; an empty one selects all.
fn is_selected(object: &Object, selector: &str) -> bool {
    let Some((key, value)) = selector.split_once('=') else {
        return selector.is_empty();
    };
    let labels = object.meta().labels.as_ref();
    labels
        .and_then(|labels| labels.get(key))
        .map(String::as_str)
        == Some(value)
}

pub fn error(kind: KubeErrorKind) -> KubeError {
    KubeError {
        kind,
        message: format!("the server says {}", kind.as_str()),
        retry_after: None,
    }
}

macro_rules! convert {
    ($($kind:ident),*) => {
        pub fn to_value(object: &Object) -> Value {
            match object { $(Object::$kind(object) => serde_json::to_value(object.as_ref()).unwrap()),* }
        }

        pub fn from_value(kind: Kind, value: Value) -> Object {
            use crate::api::*;
            use k8s_openapi::api::{core::v1::*, rbac::v1::*};
            match kind {
                $(Kind::$kind => serde_json::from_value::<$kind>(value).unwrap().into()),*
            }
        }
    };
}

convert!(
    AutoscalingRunnerSet,
    AutoscalingListener,
    EphemeralRunnerSet,
    EphemeralRunner,
    Pod,
    Secret,
    ConfigMap,
    ServiceAccount,
    Role,
    RoleBinding
);
