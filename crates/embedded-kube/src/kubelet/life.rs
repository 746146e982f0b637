//! The life of one pod: scheduled, started, ready, ended, removed.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use tokio::sync::watch;
use tokio::time::sleep;

use super::fault::PodFault;
use super::status::{ContainerState, PodState};
use super::{Inner, NODE, Seen, Stop};
use wall_clock::Timestamp;

/// The life of one pod.
pub struct Life {
    kubelet: Rc<Inner>,
    first: Arc<Pod>,
    seen: watch::Receiver<Seen>,
    api: Api<Pod>,
    name: String,
    started: Timestamp,
}

/// Why a stage of the life ended early.
enum Cut {
    /// The pod is gone from the API server: a power cut for its programs.
    Gone,
    /// The pod is being deleted.
    Deleted,
    /// Something went wrong with it.
    Fault(PodFault),
}

impl Life {
    pub fn new(kubelet: Rc<Inner>, first: Arc<Pod>, seen: watch::Receiver<Seen>) -> Self {
        let namespace = first.metadata.namespace.clone().unwrap_or_default();
        Self {
            api: Api::namespaced(kubelet.client.clone(), &namespace),
            name: first.metadata.name.clone().unwrap_or_default(),
            started: kubelet.clock.now(),
            kubelet,
            first,
            seen,
        }
    }

    /// Lives it to the end.
    pub async fn run(mut self) {
        let phase = self.first.status.as_ref().and_then(|s| s.phase.clone());
        if matches!(phase.as_deref(), Some("Succeeded" | "Failed")) {
            return self.wait_and_remove().await;
        }
        match self.stages().await {
            Ok(()) | Err(Cut::Deleted) => self.wait_and_remove().await,
            Err(Cut::Gone) => {}
            Err(Cut::Fault(PodFault::NodeLost)) => self.until_gone().await,
            Err(Cut::Fault(fault)) => {
                self.end_by(&fault).await;
                self.wait_and_remove().await;
            }
        }
    }

    async fn stages(&mut self) -> Result<(), Cut> {
        let options = self.kubelet.options;
        if self.seen.borrow().fault == Some(PodFault::Unschedulable) {
            self.unschedulable().await;
            return Err(self.cut(|_| false).await);
        }
        self.pause(options.scheduling).await?;
        if self.node_name().is_none() {
            self.bind().await;
        }
        self.started = self.kubelet.clock.now();
        if self.seen.borrow().fault == Some(PodFault::Silent) {
            return Err(self.cut(|_| false).await);
        }
        let waiting = ContainerState::Waiting("ContainerCreating".into(), String::new());
        self.write("Pending", None, waiting.clone(), |_| waiting.clone())
            .await;
        self.pause(options.starting).await?;
        if let Some(fault @ (PodFault::Image(_) | PodFault::InitFailed)) = self.planned() {
            return Err(Cut::Fault(fault));
        }
        let done = || ContainerState::Ended(0, "Completed".into());
        self.write("Running", None, done(), |_| ContainerState::Running(false))
            .await;
        let code = self.run_program(options.readiness).await?;
        self.ended(code).await;
        Ok(())
    }

    /// Runs the program of the container that matters, gets it ready beside, and answers with
    /// its exit code.
    async fn run_program(&mut self, readiness: Duration) -> Result<i32, Cut> {
        let (teller, told) = watch::channel(false);
        let programs = &self.kubelet.programs;
        let program = programs.run(self.first.clone(), Stop(told));
        let mut program = tokio::task::spawn_local(program);
        let abort = AbortOnDrop(program.abort_handle());
        tokio::select! {
            biased;
            code = &mut program => return Ok(code.unwrap_or(137)),
            cut = self.cut(|fault| !matches!(fault, PodFault::NodeLost)) => {
                return self.stop(cut, &teller, program).await;
            }
            () = sleep(readiness) => {}
        }
        let done = ContainerState::Ended(0, "Completed".into());
        self.write("Running", None, done, |_| ContainerState::Running(true))
            .await;
        let cut = tokio::select! {
            biased;
            code = &mut program => return Ok(code.unwrap_or(137)),
            cut = self.cut(|_| true) => cut,
        };
        let result = self.stop(cut, &teller, program).await;
        drop(abort);
        result
    }

    /// Ends a program: with notice and a grace period when the pod is deleted, else at once.
    async fn stop(
        &self,
        cut: Cut,
        teller: &watch::Sender<bool>,
        mut program: tokio::task::JoinHandle<i32>,
    ) -> Result<i32, Cut> {
        if let Cut::Fault(PodFault::Exit(code)) = cut {
            program.abort();
            return Ok(code);
        }
        if let Cut::Deleted = cut {
            teller.send_replace(true);
            let grace = Duration::from_secs(self.grace());
            match tokio::time::timeout(grace, &mut program).await {
                Ok(code) => return Ok(code.unwrap_or(137)),
                Err(_) => {
                    program.abort();
                    return Ok(137);
                }
            }
        }
        program.abort();
        Err(cut)
    }

    /// Waits for something that cuts the life short. Faults that `minds` does not mind are left
    /// for later.
    async fn cut(&mut self, minds: impl Fn(&PodFault) -> bool) -> Cut {
        loop {
            {
                let seen = self.seen.borrow_and_update();
                match (&seen.pod, &seen.fault) {
                    (None, _) => return Cut::Gone,
                    (Some(_), Some(fault)) if minds(fault) => return Cut::Fault(fault.clone()),
                    (Some(pod), _) if pod.metadata.deletion_timestamp.is_some() => {
                        return Cut::Deleted;
                    }
                    _ => {}
                }
            }
            if self.seen.changed().await.is_err() {
                return Cut::Gone;
            }
        }
    }

    /// Waits, unless something cuts the life short.
    async fn pause(&mut self, time: Duration) -> Result<(), Cut> {
        tokio::select! {
            biased;
            cut = self.cut(|fault| matches!(
                fault,
                PodFault::Evicted | PodFault::Rejected | PodFault::NodeLost
            )) => Err(cut),
            () = sleep(time) => Ok(()),
        }
    }

    fn planned(&self) -> Option<PodFault> {
        self.seen.borrow().fault.clone()
    }

    /// The pod has ended; when it is deleted, takes it away.
    async fn wait_and_remove(mut self) {
        match self.cut(|fault| *fault == PodFault::NodeLost).await {
            Cut::Deleted => self.remove().await,
            Cut::Gone => return,
            Cut::Fault(_) => {}
        }
        self.until_gone().await;
    }

    async fn until_gone(&mut self) {
        while self.seen.borrow_and_update().pod.is_some() {
            if self.seen.changed().await.is_err() {
                return;
            }
        }
    }

    async fn remove(&self) {
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: self.first.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        self.insist(|| self.api.delete(&self.name, &params)).await;
    }

    async fn ended(&self, code: i32) {
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let reason = if code == 0 { "Completed" } else { "Error" };
        let done = ContainerState::Ended(0, "Completed".into());
        let main = self.main_container().to_owned();
        self.write(phase, None, done, |name| {
            // what else runs in the pod is stopped with it
            if name == main {
                ContainerState::Ended(code, reason.into())
            } else {
                ContainerState::Ended(0, "Completed".into())
            }
        })
        .await;
    }

    async fn end_by(&self, fault: &PodFault) {
        let done = ContainerState::Ended(0, "Completed".into());
        let waiting =
            |reason: &str, message: &str| ContainerState::Waiting(reason.into(), message.into());
        match fault {
            PodFault::Exit(code) => self.ended(*code).await,
            PodFault::OutOfMemory => {
                self.write("Failed", None, done, |_| {
                    ContainerState::Ended(137, "OOMKilled".into())
                })
                .await;
            }
            PodFault::Evicted => {
                let reason = ("Evicted", "The node was low on resource: memory.");
                self.write_bare("Failed", reason).await;
            }
            PodFault::Rejected => {
                let reason = ("OutOfcpu", "Pod was rejected: Node didn't have enough cpu");
                self.write_bare("Failed", reason).await;
            }
            PodFault::InitFailed => {
                let failed = ContainerState::Ended(1, "Error".into());
                self.write("Failed", None, failed, |_| waiting("PodInitializing", ""))
                    .await;
            }
            PodFault::Image(reason) => {
                self.write("Pending", None, done, |_| {
                    waiting(reason, "the image cannot be pulled")
                })
                .await;
            }
            PodFault::Unschedulable | PodFault::Silent | PodFault::NodeLost => {}
        }
    }

    async fn write(
        &self,
        phase: &str,
        reason: Option<(&str, &str)>,
        init: ContainerState,
        state: impl Fn(&str) -> ContainerState,
    ) {
        let containers = self.container_names();
        let containers = containers
            .into_iter()
            .map(|name| {
                let state = state(&name);
                (name, state)
            })
            .collect();
        self.write_state(phase, reason, init, containers).await;
    }

    /// Writes a status without a word on any container.
    async fn write_bare(&self, phase: &str, reason: (&str, &str)) {
        let init = ContainerState::Waiting("PodInitializing".into(), String::new());
        self.write_state(phase, Some(reason), init, Vec::new())
            .await;
    }

    async fn write_state(
        &self,
        phase: &str,
        reason: Option<(&str, &str)>,
        init: ContainerState,
        containers: Vec<(String, ContainerState)>,
    ) {
        let state = PodState {
            pod: &self.first,
            phase,
            reason,
            init,
            containers,
            started: self.started,
            now: self.kubelet.clock.now(),
        };
        let mut patch = state.patch();
        // a successor of the same name is another pod
        patch["metadata"]["uid"] = self.first.metadata.uid.clone().into();
        let patch = Patch::Merge(patch);
        let params = PatchParams::default();
        self.insist(|| self.api.patch_status(&self.name, &params, &patch))
            .await;
    }

    async fn unschedulable(&self) {
        let patch = Patch::Merge(serde_json::json!({ "status": {
            "phase": "Pending",
            "conditions": [{
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available",
                "lastTransitionTime": self.kubelet.clock.now(),
            }],
        }}));
        let params = PatchParams::default();
        self.insist(|| self.api.patch_status(&self.name, &params, &patch))
            .await;
    }

    async fn bind(&self) {
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(NODE.to_owned()),
                ..ObjectReference::default()
            },
        };
        let params = PostParams::default();
        self.insist(|| {
            self.api.create_subresource::<_, serde_json::Value>(
                "binding", &self.name, &params, &binding,
            )
        })
        .await;
    }

    /// Tries a request again while the API server is out of order; any other answer is one.
    async fn insist<T, F>(&self, mut request: impl FnMut() -> F)
    where
        F: Future<Output = kube::Result<T>>,
    {
        for attempt in 0..60_u64 {
            match request().await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => return,
                Err(error) => tracing::debug!(pod = self.name, %error, "kubelet tries again"),
            }
            sleep(Duration::from_millis(100 * (attempt + 1))).await;
        }
    }

    fn node_name(&self) -> Option<String> {
        let seen = self.seen.borrow();
        seen.pod.as_ref()?.spec.as_ref()?.node_name.clone()
    }

    fn grace(&self) -> u64 {
        let seen = self.seen.borrow();
        seen.pod
            .as_ref()
            .and_then(|pod| pod.metadata.deletion_grace_period_seconds)
            .and_then(|seconds| u64::try_from(seconds).ok())
            .unwrap_or(30)
    }

    fn container_names(&self) -> Vec<String> {
        let spec = self.first.spec.as_ref();
        spec.map(|spec| spec.containers.iter().map(|c| c.name.clone()).collect())
            .unwrap_or_default()
    }

    fn main_container(&self) -> &str {
        let main = self.kubelet.programs.main_container(&self.first);
        main.unwrap_or_default()
    }
}

/// Kills a program when its pod's task ends before it.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
