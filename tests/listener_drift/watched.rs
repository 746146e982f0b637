//! A listener under observation: how many pods it has had, messages without news, and rest.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use futures::StreamExt;
use impresario::api::{AutoscalingListener, AutoscalingRunnerSet, EphemeralRunnerSet};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::stage::hands::running;
use crate::stage::manifests::{RUN, SET};
use crate::stage::{Known, Stage};

/// Longer than a sync period and a poll of the listener.
const LONG: Duration = Duration::from_secs(130);

/// The listener of a stage, with every pod it has had since.
pub struct Watched<'a> {
    stage: &'a Stage,
    pods: Rc<RefCell<Pods>>,
    task: JoinHandle<()>,
    nudges: Cell<u32>,
}

/// Uids of pods in the controller's namespace.
#[derive(Default)]
struct Pods {
    made: BTreeSet<String>,
    gone: BTreeSet<String>,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<'a> Watched<'a> {
    /// Applies a scale set with what belongs to it, and waits until its listener runs and
    /// nothing is written any more.
    pub async fn at_rest(stage: &'a Stage, documents: &[Value]) -> Self {
        stage.apply(documents).await;
        let pods = Rc::new(RefCell::new(Pods::default()));
        let api = Api::<Pod>::namespaced(stage.client.clone(), CONTROLLER_NAMESPACE);
        let task = tokio::task::spawn_local(take_down(api, pods.clone()));
        let watched = Self {
            stage,
            pods,
            task,
            nudges: Cell::default(),
        };
        watched.rest().await;
        watched
    }

    /// How many pods there have been.
    pub fn made(&self) -> usize {
        self.pods.borrow().made.len()
    }

    /// Makes a change, sends ten messages about every object, and shows that the pod has been
    /// made again so often, and not once more.
    pub async fn replaces(&self, what: &str, times: usize, change: impl AsyncFnOnce(&Stage)) {
        let before = self.made();
        let deleted = self.stage.warden.count("delete", "ephemeralrunners");
        change(self.stage).await;
        self.nudge(10).await;
        self.stage
            .until(&format!("{what}: the pod is made again"), async || {
                self.made() >= before + times
            })
            .await;
        self.rest().await;
        if self.stage.runs_pods {
            self.stage.pass(LONG).await;
            self.rest().await;
        }
        assert_eq!(self.made() - before, times, "{what}: pods made");
        assert_eq!(self.made(), self.pods.borrow().gone.len() + 1, "{what}");
        let now = self.stage.warden.count("delete", "ephemeralrunners");
        assert_eq!(now, deleted, "{what}: runners deleted");
    }

    /// Shows that a change and messages about every object have nothing written, to the
    /// listener's pod or anything else.
    pub async fn shrugs_off(&self, what: &str, change: impl AsyncFnOnce(&Stage)) {
        self.pass_poll().await;
        let writes = self.stage.warden.writes_of_ours();
        self.replaces(what, 0, change).await;
        let since = self.stage.warden.writes_of_ours() - writes;
        assert_eq!(since, 0, "{what}: {:#?}", self.stage.warden.writes());
    }

    /// After a poll without news the listener says once that nothing goes on.
    pub async fn pass_poll(&self) {
        if self.stage.runs_pods {
            self.stage.pass(LONG).await;
        }
        self.rest().await;
    }

    /// Touches every object about which the listener's actor gets messages, so many times.
    pub async fn nudge(&self, times: u32) {
        for _ in 0..times {
            self.nudges.set(self.nudges.get() + 1);
            let note = json!({"metadata": {"annotations": {
                "tests/nudge": self.nudges.get().to_string(),
            }}});
            touch::<AutoscalingRunnerSet>(self.stage, RUN, SET, &note).await;
            touch::<EphemeralRunnerSet>(self.stage, RUN, SET, &note).await;
            for name in names(self.stage).await {
                touch::<AutoscalingListener>(self.stage, CONTROLLER_NAMESPACE, &name, &note).await;
                touch::<ServiceAccount>(self.stage, CONTROLLER_NAMESPACE, &name, &note).await;
                touch::<Pod>(self.stage, CONTROLLER_NAMESPACE, &name, &note).await;
                touch::<Role>(self.stage, RUN, &name, &note).await;
                touch::<RoleBinding>(self.stage, RUN, &name, &note).await;
            }
        }
    }

    /// Waits until the listener runs and nothing is written any more.
    pub async fn rest(&self) {
        self.stage
            .until(
                "the scale set is settled and its listener runs",
                async || {
                    if !self.stage.runs_pods {
                        self.start_pods().await;
                    }
                    self.stage.is_settled().await && self.one_runs().await
                },
            )
            .await;
        self.stage.settle().await;
    }

    async fn one_runs(&self) -> bool {
        let pods = self.stage.listener_pods().await;
        let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone());
        let [pod] = pods.as_slice() else { return false };
        pod.metadata.deletion_timestamp.is_none() && phase(pod).as_deref() == Some("Running")
    }

    /// As the kubelet.
    async fn start_pods(&self) {
        for pod in self.stage.listener_pods().await {
            let phase = pod
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            if phase != Some("Running") {
                let api = Api::<Pod>::namespaced(self.stage.client.clone(), CONTROLLER_NAMESPACE);
                let patch = Patch::Merge(json!({"status": running("listener")}));
                let parameters = PatchParams::default();
                ignore_missing(api.patch_status(&pod.name_any(), &parameters, &patch).await);
            }
        }
    }
}

/// Names of the listeners: their objects have them too.
pub async fn names(stage: &Stage) -> Vec<String> {
    let listeners = stage.all::<AutoscalingListener>().await;
    listeners.iter().map(ResourceExt::name_any).collect()
}

/// The name of the only listener.
pub async fn name(stage: &Stage) -> String {
    let mut names = names(stage).await;
    assert_eq!(names.len(), 1, "{names:?}");
    names.remove(0)
}

/// The pod of the only listener.
pub async fn pod(stage: &Stage) -> Pod {
    let name = name(stage).await;
    let pod = stage.get::<Pod>(CONTROLLER_NAMESPACE, &name).await;
    pod.expect("a listener pod")
}

async fn take_down(api: Api<Pod>, pods: Rc<RefCell<Pods>>) {
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()));
    while let Some(event) = events.next().await {
        let mut pods = pods.borrow_mut();
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => pods.made.extend(pod.uid()),
            Ok(Event::Delete(pod)) => pods.gone.extend(pod.uid()),
            _ => {}
        }
    }
}

async fn touch<K: Known>(stage: &Stage, namespace: &str, name: &str, patch: &Value) {
    let api = Api::<K>::namespaced(stage.client.clone(), namespace);
    let patch = Patch::Merge(patch);
    ignore_missing(api.patch(name, &PatchParams::default(), &patch).await);
}

/// What is being made again may not be there.
fn ignore_missing<T>(result: Result<T, kube::Error>) {
    match result {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => panic!("{error}"),
    }
}
