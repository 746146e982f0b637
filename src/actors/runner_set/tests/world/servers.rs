//! The API server, the Actions service and the nodes, and what goes wrong with a request.

use secrecy::SecretString;
use serde_json::{Value, json};

use super::{Fault, Message, Registered, SetOrRunnerTag, To, World};
use crate::actors::runner::RunnerTag;
use crate::actors::unregistrar::Claim;
use crate::api::{EphemeralRunner, EphemeralRunnerSet};
use crate::messages::{
    ActionsAnswer, ActionsCall, ActionsError, ActionsErrorKind, ActionsRequest, Input, JitConfig,
    Kind, KubeAnswer, KubeError, KubeErrorKind, KubeRequest, Object, ObjectRef, Runner,
};

enum Luck {
    Fine,
    Lost,
    Refused,
    Crash,
}

impl World {
    /// What becomes of the next request; `Crash` has happened already.
    fn luck(&mut self) -> Luck {
        self.requests += 1;
        match self.fault {
            Some(Fault::LostAnswer(at)) if at == self.requests => Luck::Lost,
            Some(Fault::Refused(at)) if at == self.requests => Luck::Refused,
            Some(Fault::CrashBefore(at)) if at == self.requests => Luck::Crash,
            _ => Luck::Fine,
        }
    }

    fn crashes_after(&self) -> bool {
        self.fault == Some(Fault::CrashAfter(self.requests))
    }

    pub(super) fn run_kube(&mut self, to: To, tag: SetOrRunnerTag, request: &KubeRequest) {
        request.assert_guarded();
        let unanswered = |kind| {
            Err(KubeError {
                kind,
                message: "the wire broke".to_owned(),
                retry_after: None,
            })
        };
        let result = match self.luck() {
            Luck::Crash => return self.restart(),
            Luck::Refused => unanswered(KubeErrorKind::Unavailable),
            Luck::Lost => {
                let _ = self.serve(request);
                unanswered(KubeErrorKind::Unanswered)
            }
            Luck::Fine => self.serve(request),
        };
        if self.crashes_after() {
            return self.restart();
        }
        match (to, tag) {
            (To::Set, SetOrRunnerTag::Set(tag)) => {
                self.inbox.push_back(Message::Set(Input::Kube(tag, result)));
            }
            (To::Runner(name), SetOrRunnerTag::Runner(tag)) => {
                self.inbox
                    .push_back(Message::Runner(name, Input::Kube(tag, result)));
            }
            _ => unreachable!(),
        }
    }

    pub(super) fn run_actions(
        &mut self,
        name: String,
        tag: RunnerTag,
        request: ActionsRequest,
        claim: Option<Claim>,
    ) {
        let unavailable = Err(error_of(ActionsErrorKind::Unavailable));
        let result = match self.luck() {
            Luck::Crash => return self.restart(),
            Luck::Refused => unavailable,
            Luck::Lost => {
                let _ = self.serve_actions(&request.call);
                unavailable
            }
            Luck::Fine => self.serve_actions(&request.call),
        };
        if self.crashes_after() {
            return self.restart();
        }
        if let Some(claim) = claim {
            self.unregistrar.finished(claim, result, self.now);
            self.run_unregistrar();
        } else {
            self.inbox
                .push_back(Message::Runner(name, Input::Actions(tag, result)));
        }
    }
}

// === the Actions service ===

impl World {
    fn serve_actions(&mut self, call: &ActionsCall) -> Result<ActionsAnswer, ActionsError> {
        self.log.push(format!("{} {call:?}", call.name()));
        if let Some(kind) = self.refuse_calls.get(call.name()) {
            return Err(error_of(*kind));
        }
        match call {
            ActionsCall::GenerateJitConfig {
                scale_set_id, name, ..
            } => {
                if self.is_registered(name) {
                    return Err(error_of(ActionsErrorKind::RunnerExists));
                }
                self.next_runner += 1;
                let id = self.next_runner;
                self.registered.insert(
                    id,
                    Registered {
                        name: name.clone(),
                        scale_set: *scale_set_id,
                        busy: false,
                    },
                );
                Ok(ActionsAnswer::Jit(JitConfig {
                    runner: Runner {
                        id,
                        name: name.clone(),
                        scale_set_id: *scale_set_id,
                    },
                    encoded: SecretString::from(format!("jit-{id}")),
                }))
            }
            ActionsCall::FindRunner { name } => Ok(ActionsAnswer::Runner(
                self.registered
                    .iter()
                    .find(|(_, registered)| registered.name == *name)
                    .map(|(id, registered)| Runner {
                        id: *id,
                        name: name.clone(),
                        scale_set_id: registered.scale_set,
                    }),
            )),
            ActionsCall::RemoveRunner { id } => match self.registered.get(id) {
                _ if *id == 0 => {
                    self.violations.push("asked about id 0".to_owned());
                    Err(error_of(ActionsErrorKind::RunnerNotFound))
                }
                None => Err(error_of(ActionsErrorKind::RunnerNotFound)),
                Some(registered) if registered.busy => {
                    Err(error_of(ActionsErrorKind::JobStillRunning))
                }
                Some(_) => {
                    self.registered.remove(id);
                    Ok(ActionsAnswer::Done)
                }
            },
            other => panic!("not expected of runners: {other:?}"),
        }
    }
}

fn error_of(kind: ActionsErrorKind) -> ActionsError {
    ActionsError {
        kind,
        message: format!("the service said {kind}"),
        retry_after: None,
    }
}

// === the API server ===

fn object(value: &Value) -> Object {
    fn read<T: serde::de::DeserializeOwned + Into<Object>>(value: &Value) -> Object {
        serde_json::from_value::<T>(value.clone()).unwrap().into()
    }
    use k8s_openapi::api::core::v1::{Pod, Secret};
    match value["kind"].as_str().unwrap() {
        "EphemeralRunnerSet" => read::<EphemeralRunnerSet>(value),
        "EphemeralRunner" => read::<EphemeralRunner>(value),
        "Pod" => read::<Pod>(value),
        "Secret" => read::<Secret>(value),
        other => panic!("unknown kind {other}"),
    }
}

fn value(object: &Object) -> Value {
    match object {
        Object::EphemeralRunnerSet(inner) => json!(**inner),
        Object::EphemeralRunner(inner) => json!(**inner),
        Object::Pod(inner) => json!(**inner),
        Object::Secret(inner) => json!(**inner),
        other => panic!("unknown kind {other:?}"),
    }
}

fn kube_error(kind: KubeErrorKind) -> KubeError {
    KubeError {
        kind,
        message: format!("the API server said {kind:?}"),
        retry_after: None,
    }
}

impl World {
    pub(super) fn all(&self, kind: Kind) -> Vec<Object> {
        self.objects
            .iter()
            .filter(|(target, _)| target.kind == kind)
            .map(|(_, value)| object(value))
            .collect()
    }

    fn serve(&mut self, request: &KubeRequest) -> Result<KubeAnswer, KubeError> {
        self.log.push(format!("{request:?}"));
        match request {
            KubeRequest::Get(target) => self
                .objects
                .get(target)
                .map(|value| KubeAnswer::Object(object(value)))
                .ok_or_else(|| kube_error(KubeErrorKind::NotFound)),
            KubeRequest::List { kind, selector, .. } => {
                let (key, wanted) = selector.split_once('=').unwrap();
                Ok(KubeAnswer::Objects(
                    self.all(*kind)
                        .into_iter()
                        .filter(|object| {
                            let labels = object.meta().labels.as_ref();
                            labels
                                .and_then(|labels| labels.get(key))
                                .map(String::as_str)
                                == Some(wanted)
                        })
                        .collect(),
                ))
            }
            KubeRequest::Create(object) => self.create(object),
            KubeRequest::Patch {
                target, body, lock, ..
            } => {
                let live = self
                    .objects
                    .get(target)
                    .ok_or_else(|| kube_error(KubeErrorKind::NotFound))?;
                let version = live["metadata"]["resourceVersion"].as_str();
                if lock.is_some() && lock.as_deref() != version {
                    return Err(kube_error(KubeErrorKind::Conflict));
                }
                if !self.strict && !body["status"]["appliedActionableRevision"].is_null() {
                    // it takes the marker back, and with it what a successor could know
                    self.begin_patch();
                }
                Ok(KubeAnswer::Object(self.merge(target, body)))
            }
            KubeRequest::DropFinalizer { .. } => unreachable!("a runner set has no such wish"),
            KubeRequest::Delete {
                target,
                uid,
                lock,
                grace,
            } => {
                let differs = |wish: &Option<String>, live: &Value| {
                    wish.is_some() && wish.as_deref() != live.as_str()
                };
                if let Some(live) = self.objects.get(target)
                    && (differs(uid, &live["metadata"]["uid"])
                        || differs(lock, &live["metadata"]["resourceVersion"]))
                {
                    return Err(kube_error(KubeErrorKind::Conflict));
                }
                self.judge_deletion(target);
                self.remove(target, *grace)
            }
        }
    }

    fn create(&mut self, wanted: &Object) -> Result<KubeAnswer, KubeError> {
        if let Some(kind) = self.refuse_creates.get(&wanted.kind()) {
            return Err(kube_error(*kind));
        }
        let there = self.names(wanted.kind()).len();
        if self
            .quota
            .get(&wanted.kind())
            .is_some_and(|most| there >= *most)
        {
            return Err(kube_error(KubeErrorKind::QuotaExceeded));
        }
        if self.objects.contains_key(&wanted.reference()) {
            return Err(kube_error(KubeErrorKind::AlreadyExists));
        }
        if wanted.kind() == Kind::EphemeralRunner {
            self.judge_creation(&wanted.reference().name);
        }
        Ok(KubeAnswer::Object(self.apply(value(wanted))))
    }

    pub(super) fn apply(&mut self, mut value: Value) -> Object {
        self.version += 1;
        let meta = value["metadata"].as_object_mut().unwrap();
        meta.insert("uid".to_owned(), json!(format!("uid-{}", self.version)));
        meta.insert("creationTimestamp".to_owned(), json!(self.now));
        meta.insert(
            "resourceVersion".to_owned(),
            json!(self.version.to_string()),
        );
        let created = object(&value);
        self.objects.insert(created.reference(), value);
        self.inbox.push_back(Message::Watch(created.clone()));
        created
    }

    pub(super) fn merge(&mut self, target: &ObjectRef, patch: &Value) -> Object {
        let live = self.objects.get_mut(target).unwrap();
        json_patch::merge(live, patch);
        self.version += 1;
        live["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let updated = object(live);
        let meta = updated.meta();
        let done = meta.deletion_timestamp.is_some()
            && meta.finalizers.iter().flatten().next().is_none()
            && updated.kind() != Kind::Pod;
        if done {
            self.objects.remove(target);
            let uid = updated.uid().to_owned();
            self.inbox.push_back(Message::Gone(target.clone(), uid));
        } else {
            self.inbox.push_back(Message::Watch(updated.clone()));
        }
        updated
    }

    /// As the server deletes: what has finalizers or a grace period lingers.
    pub(super) fn remove(
        &mut self,
        target: &ObjectRef,
        grace: Option<u32>,
    ) -> Result<KubeAnswer, KubeError> {
        let live = self
            .objects
            .get(target)
            .ok_or_else(|| kube_error(KubeErrorKind::NotFound))?;
        let meta = object(live);
        let meta = meta.meta();
        let scheduled = !live["spec"]["nodeName"].is_null();
        let lingers = meta.finalizers.iter().flatten().next().is_some()
            || (target.kind == Kind::Pod && grace != Some(0) && scheduled);
        if lingers {
            if meta.deletion_timestamp.is_some() {
                return Ok(KubeAnswer::Object(object(live)));
            }
            let stamp = json!({ "metadata": { "deletionTimestamp": self.now } });
            return Ok(KubeAnswer::Object(self.merge(target, &stamp)));
        }
        let uid = meta.uid.clone().unwrap_or_default();
        self.objects.remove(target);
        self.inbox.push_back(Message::Gone(target.clone(), uid));
        Ok(KubeAnswer::Deleted)
    }

    // === nodes ===

    /// Starts new pods and lets ones go that are being deleted. Says whether it did anything.
    pub(super) fn nodes_act(&mut self) -> bool {
        let pods: Vec<(ObjectRef, Value)> = self
            .objects
            .iter()
            .filter(|(target, _)| target.kind == Kind::Pod)
            .map(|(target, value)| (target.clone(), value.clone()))
            .collect();
        for (target, pod) in pods {
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                let _ = self.remove(&target, Some(0));
                return true;
            }
            if self.auto_start && pod["status"]["phase"].is_null() {
                self.up(&target.name);
                return true;
            }
        }
        false
    }
}
