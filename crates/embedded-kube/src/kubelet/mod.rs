//! A simulated kubelet (and scheduler): takes pods through their life, and runs what is in them.
//!
//! It knows pods as the API server shows them. What their programs do is the business of
//! [`Programs`]: futures in this process. Delays are set, failures can be asked for, and nothing
//! is random.

mod fault;
mod life;
mod status;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use tokio::sync::watch;

pub use fault::{PodFault, UnknownFault};

use wall_clock::Clock;

/// What runs in pods.
pub trait Programs {
    /// Which container's program decides how a pod ends; the others end with it. The pod's first
    /// one, unless said otherwise.
    fn main_container<'a>(&self, pod: &'a Pod) -> Option<&'a str> {
        let containers = &pod.spec.as_ref()?.containers;
        containers.first().map(|container| container.name.as_str())
    }

    /// Runs the program of a pod's main container until it ends or is stopped; answers its exit
    /// code. When its pod is gone, or its grace period is over, it is dropped.
    fn run(&self, pod: Arc<Pod>, stop: Stop) -> LocalBoxFuture<'static, i32>;
}

/// Programs that run until they are told to stop, as servers do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Servers;

impl Programs for Servers {
    fn run(&self, _: Arc<Pod>, stop: Stop) -> LocalBoxFuture<'static, i32> {
        Box::pin(async move {
            stop.told().await;
            Stop::EXIT_CODE
        })
    }
}

/// Tells a program that it is to stop, as SIGTERM does.
#[derive(Clone)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// The exit code of a program that SIGTERM has ended.
    pub const EXIT_CODE: i32 = 143;

    /// Waits until the program is told to stop.
    pub async fn told(mut self) {
        if self.0.wait_for(|stop| *stop).await.is_err() {
            // whoever could tell is gone, and with it the program's task
            std::future::pending::<()>().await;
        }
    }
}

/// How long each stage of a pod's life takes, and how a pod asks for trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeletOptions {
    /// From creation to a node.
    pub scheduling: Duration,
    /// From a node to running containers: image pull, volumes, init containers.
    pub starting: Duration,
    /// From running to ready.
    pub readiness: Duration,
    /// Annotation by which a pod asks for a [`PodFault`], as `fault: exit=7`; none of them can
    /// when there is none.
    pub fault_annotation: Option<&'static str>,
}

impl KubeletOptions {
    /// The fault that annotations ask for.
    ///
    /// # Errors
    ///
    /// When it is asked for in words nobody knows.
    pub fn fault_in(
        &self,
        annotations: &BTreeMap<String, String>,
    ) -> Result<Option<PodFault>, UnknownFault> {
        let text = self.fault_annotation.and_then(|key| annotations.get(key));
        text.map(|text| text.parse()).transpose()
    }
}

impl Default for KubeletOptions {
    fn default() -> Self {
        Self {
            scheduling: Duration::from_millis(20),
            starting: Duration::from_millis(400),
            readiness: Duration::from_millis(100),
            fault_annotation: None,
        }
    }
}

/// The one node of a simulated cluster.
pub const NODE: &str = "node-1";

/// A simulated kubelet (and scheduler). Dropping the future of [`Kubelet::run`] is a power cut.
#[derive(Clone)]
pub struct Kubelet(Rc<Inner>);

struct Inner {
    client: Client,
    clock: Clock,
    options: KubeletOptions,
    programs: Rc<dyn Programs>,
    pods: RefCell<BTreeMap<String, Known>>,
    planned: RefCell<BTreeMap<(String, String), PodFault>>,
}

/// A pod that a task looks after.
struct Known {
    latest: watch::Sender<Seen>,
}

/// What the task of a pod is told.
#[derive(Clone)]
struct Seen {
    /// The newest copy; `None` when it is gone.
    pod: Option<Arc<Pod>>,
    /// What is to go wrong with it.
    fault: Option<PodFault>,
}

impl Kubelet {
    /// A kubelet for one cluster. `client` may do everything.
    #[must_use]
    pub fn new(
        client: Client,
        clock: Clock,
        options: KubeletOptions,
        programs: Rc<dyn Programs>,
    ) -> Self {
        Self(Rc::new(Inner {
            client,
            clock,
            options,
            programs,
            pods: RefCell::default(),
            planned: RefCell::default(),
        }))
    }

    /// Looks after all pods, until dropped. To be called inside a `LocalSet`.
    pub async fn run(self) {
        let api = Api::<Pod>::all(self.0.client.clone());
        let mut events = Box::pin(watcher::watcher(api, watcher::Config::default()));
        let mut listed = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                    listed.push(uid(&pod));
                    self.saw(pod);
                }
                Ok(Event::Delete(pod)) => self.saw_gone(&uid(&pod)),
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitDone) => {
                    let present = std::mem::take(&mut listed);
                    let known: Vec<String> = self.0.pods.borrow().keys().cloned().collect();
                    for uid in known.iter().filter(|uid| !present.contains(uid)) {
                        self.saw_gone(uid);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the kubelet's watch failed");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }

    /// Makes something go wrong with a pod: at once if it exists, else when it is created.
    pub fn fail(&self, namespace: &str, name: &str, fault: PodFault) {
        let pods = self.0.pods.borrow();
        let there = pods.values().find(|known| {
            known.latest.borrow().pod.as_ref().is_some_and(|pod| {
                pod.metadata.namespace.as_deref() == Some(namespace)
                    && pod.metadata.name.as_deref() == Some(name)
            })
        });
        match there {
            Some(known) => known.latest.send_modify(|seen| seen.fault = Some(fault)),
            None => {
                let key = (namespace.to_owned(), name.to_owned());
                self.0.planned.borrow_mut().insert(key, fault);
            }
        }
    }

    fn asked_for_by(&self, pod: &Pod) -> Option<PodFault> {
        let annotations = pod.metadata.annotations.as_ref()?;
        let fault = self.0.options.fault_in(annotations);
        fault.unwrap_or_else(|error| {
            tracing::warn!(%error, "ignored");
            None
        })
    }

    fn saw(&self, pod: Pod) {
        let uid = uid(&pod);
        let pod = Arc::new(pod);
        let mut pods = self.0.pods.borrow_mut();
        if let Some(known) = pods.get(&uid) {
            known.latest.send_modify(|seen| seen.pod = Some(pod));
            return;
        }
        let key = (
            pod.metadata.namespace.clone().unwrap_or_default(),
            pod.metadata.name.clone().unwrap_or_default(),
        );
        let fault = self
            .0
            .planned
            .borrow_mut()
            .remove(&key)
            .or_else(|| self.asked_for_by(&pod));
        let (latest, seen) = watch::channel(Seen {
            pod: Some(pod.clone()),
            fault,
        });
        pods.insert(uid.clone(), Known { latest });
        let life = life::Life::new(self.0.clone(), pod, seen);
        let inner = self.0.clone();
        tokio::task::spawn_local(async move {
            life.run().await;
            inner.pods.borrow_mut().remove(&uid);
        });
    }

    fn saw_gone(&self, uid: &str) {
        if let Some(known) = self.0.pods.borrow().get(uid) {
            known.latest.send_modify(|seen| seen.pod = None);
        }
    }
}

fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests;
