//! A stage with a seam and a history, and what the tests here do on it.

use std::sync::Arc;
use std::time::Duration;

use impresario::api::{
    AutoscalingListener, AutoscalingListenerPhase, AutoscalingRunnerSetPhase, EphemeralRunner,
    EphemeralRunnerPhase, EphemeralRunnerSetPhase,
};
use impresario::simulation::cluster::ClusterOptions;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::history::{History, Standing, revision};
use crate::seam::{Held, Seam};
use crate::stage::manifests::RUN;
use crate::stage::{Known, Stage};

/// A world in which one thing can be made to come early, late, twice or not at all.
pub struct World {
    pub stage: Stage,
    pub seam: Arc<Seam>,
    pub history: History,
}

impl World {
    /// In which the test plays listener and kubelet.
    pub async fn by_hand() -> Self {
        Self::new(5, |options| options.run_pods = false).await
    }

    /// The same with CustomResourceDefinitions that lack fields of ours.
    pub async fn by_hand_with_older(crds: Vec<Value>) -> Self {
        let world = Self::new(5, |options| {
            options.run_pods = false;
            options.crds = Some(crds);
        });
        let world = world.await;
        let history = world.history.in_two_writes();
        Self { history, ..world }
    }

    /// In which pods live by themselves.
    pub async fn whole(seed: u64) -> Self {
        Self::new(seed, |_| {}).await
    }

    async fn new(seed: u64, change: impl FnOnce(&mut ClusterOptions)) -> Self {
        let mut seam = None;
        let stage = Stage::embedded_with(seed, |options| {
            // a log takes more time than all else, and there are many runs
            options.keep_log = std::env::var_os("STAGE_LOG").is_some();
            let warden = options.actions_interceptor.take();
            let made = Seam::before(options.interceptor.clone(), warden);
            options.interceptor = made.clone();
            options.actions_interceptor = Some(made.clone());
            seam = Some(made);
            change(options);
        })
        .await;
        let history = History::begin(&stage.client);
        stage.start_controller();
        let seam = seam.unwrap();
        Self {
            stage,
            seam,
            history,
        }
    }

    /// Starts a controller in place of the one that runs, or ran.
    pub fn restart(&self) {
        self.seam.revive();
        self.stage.start_controller();
    }

    // === doing ===

    /// So many runners that are ready, the first of them with a job.
    pub async fn one_busy_of(&self, count: usize) -> Vec<String> {
        self.stage.settled_fixture(0, 10).await;
        let names = self.stage.scale_up(count, 1).await;
        for name in &names {
            self.stage.up(name).await;
        }
        self.stage.busy(&names[0], 4711).await;
        self.stage.settle().await;
        names
    }

    /// A person changes the runner's image.
    pub async fn fix(&self, image: &str) {
        self.stage
            .edit(json!({"template": {"spec": {"containers": [
                {"name": "runner", "image": image},
            ]}}}))
            .await;
    }

    /// Merges something into the status of an object.
    pub async fn patch_status<K: Known>(&self, name: &str, patch: Value) {
        let api = Api::<K>::namespaced(self.stage.client.clone(), RUN);
        let patch = Patch::Merge(patch);
        let patched = api
            .patch_status(name, &PatchParams::default(), &patch)
            .await;
        patched.unwrap();
    }

    /// Holds back for a while the writes of the runner set's status, and so the mark that a
    /// revision is applied.
    pub fn hold_the_mark(&self) {
        let time = Duration::from_secs(8);
        self.seam
            .hold("ephemeralrunnersets/status", Held::Before, time);
    }

    /// Waits until the scale set has published a revision.
    #[track_caller]
    pub fn until_wanted(&self, revision: i64) -> impl Future<Output = ()> {
        self.stage.until("it is wanted", async move || {
            self.standing().await.2 == revision
        })
    }

    /// Waits until the runner set has applied a revision.
    #[track_caller]
    pub fn until_applied(&self, revision: i64) -> impl Future<Output = ()> {
        self.stage.until("it is applied", async move || {
            self.standing().await.1 == revision
        })
    }

    /// Waits until the scale set is parked, and nothing happens any more.
    #[track_caller]
    pub fn until_parked(&self) -> impl Future<Output = ()> {
        let parked = self.stage.within(
            Duration::from_secs(300),
            "the scale set is parked",
            async || self.is_parked().await,
        );
        async move {
            parked.await;
            self.stage.settle().await;
        }
    }

    /// Waits until the scale set is running and all is in place, and nothing happens any
    /// more. Starts the listener's pod when there is a new one.
    #[track_caller]
    pub fn until_running(&self) -> impl Future<Output = ()> {
        let running = self.stage.within(
            Duration::from_secs(600),
            "the scale set is running",
            async || self.is_running().await,
        );
        async move {
            running.await;
            self.stage.settle().await;
        }
    }

    // === looking ===

    /// How the runner set stands.
    pub async fn standing(&self) -> Standing {
        let set = self.stage.runner_set().await;
        let status = set.status.unwrap_or_default();
        (
            status.phase,
            status.applied_actionable_revision.unwrap_or(0),
            set.spec.actionable_revision.unwrap_or(0),
        )
    }

    async fn is_parked(&self) -> bool {
        let status = self.stage.scale_set().await.status.unwrap_or_default();
        let listeners = self.stage.all::<AutoscalingListener>().await;
        let stopped =
            |one: &AutoscalingListener| one.spec.phase == Some(AutoscalingListenerPhase::Stopped);
        status.phase == Some(AutoscalingRunnerSetPhase::Outdated)
            && listeners.len() == 1
            && listeners.iter().all(stopped)
            && self.stage.listener_pods().await.is_empty()
    }

    async fn is_running(&self) -> bool {
        if !self.stage.runs_pods {
            let pods = self.stage.listener_pods().await;
            let fresh = pods.iter().any(|pod| {
                let status = pod.status.as_ref();
                let phase = status.and_then(|status| status.phase.as_deref());
                pod.metadata.deletion_timestamp.is_none() && phase != Some("Running")
            });
            if fresh {
                self.stage.start_listener().await;
            }
        }
        let sets = self
            .stage
            .all::<impresario::api::EphemeralRunnerSet>()
            .await;
        sets.len() == 1
            && self.stage.is_settled().await
            && self.stage.listener_pods().await.len() == 1
            && self.standing().await.0 == Some(EphemeralRunnerSetPhase::Running)
    }

    /// Runners that are there and not rejected, and the revisions they were made under.
    pub async fn fleet(&self) -> Vec<(String, i64)> {
        let mut live = self.stage.live().await;
        live.retain(|runner| phase(runner) != Some(EphemeralRunnerPhase::Outdated));
        let fleet = live.iter().map(|one| (one.name_any(), revision(one)));
        fleet.collect()
    }

    /// The revisions of these, in order.
    pub async fn revisions(&self) -> Vec<i64> {
        let mut revisions: Vec<i64> = self.fleet().await.into_iter().map(|one| one.1).collect();
        revisions.sort_unstable();
        revisions
    }

    /// Waits until the fleet has these revisions, and nothing happens any more.
    #[track_caller]
    pub fn until_fleet(&self, revisions: &[i64]) -> impl Future<Output = ()> {
        let there = self.stage.until("the fleet is there", async move || {
            self.revisions().await == revisions
        });
        async move {
            there.await;
            self.stage.settle().await;
            assert_eq!(
                self.revisions().await,
                revisions,
                "{}",
                self.picture().await
            );
        }
    }

    /// Everything that helps to see why a test fails.
    pub async fn picture(&self) -> String {
        format!("{}{}", self.stage.picture().await, self.history.picture())
    }

    /// Nothing was that must not be, nothing is left over, and nothing is written at rest.
    #[track_caller]
    pub fn assert_sound(&self) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move {
            self.stage.settle().await;
            let before = self.stage.warden.writes_of_ours();
            self.stage.pass(Duration::from_secs(120)).await;
            let since = self.stage.warden.writes_of_ours() - before;
            assert_eq!(since, 0, "{at}: written at rest\n{}", self.picture().await);
            self.stage.assert_nothing_left_over_beside_runners().await;
            let several = self.stage.actions.runners_with_several_jobs();
            assert!(several.is_empty(), "{at}: several jobs: {several:?}");
            let mut violations = self.stage.warden.violations();
            // it looks at a create when it arrives, not when it was decided on
            let crosses = |one: &String| one.starts_with("INV-2:") || one.starts_with("INV-3:");
            violations.retain(|one| !(self.seam.is_slow() && crosses(one)));
            violations.extend(self.history.violations());
            violations.extend(self.seam.violations());
            let picture = self.history.picture();
            assert!(violations.is_empty(), "{at}: {violations:#?}\n{picture}");
        }
    }

    /// A runner.
    pub async fn runner(&self, name: &str) -> Option<EphemeralRunner> {
        self.stage.get(RUN, name).await
    }
}

/// A runner's phase.
pub fn phase(runner: &EphemeralRunner) -> Option<EphemeralRunnerPhase> {
    runner.status.as_ref().and_then(|status| status.phase)
}
