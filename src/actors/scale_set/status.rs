//! The status of a scale set: phase, observed generation, counts, conditions. Written when
//! something in it has changed, at most once a second, and the last value always lands.

use k8s_openapi::jiff::SignedDuration;
use serde_json::json;

use super::conditions::Findings;
use super::context::ScaleSetContext;
use super::record::identity;
use super::state::ScaleSetMachine;
use super::vocabulary::{GaugeLabels, ScaleSetReport, ScaleSetSummary, ScaleSetTag};
use crate::actors::core::backoff;
use crate::api::{
    AutoscalingRunnerSet, AutoscalingRunnerSetPhase as Phase, AutoscalingRunnerSetStatus, ConfigUrl,
};
use crate::clock::Timestamp;
use crate::messages::{
    Effect, KubeAnswer, KubeError, KubeErrorKind, KubeObject, KubeRequest, RunnerCounts,
};
use crate::resources::listener_name;

/// Between two writes.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);

/// When the status may be written. Apart from the object's own back-off: what hinders another
/// write of the object is said here.
#[derive(Debug, Default)]
pub struct StatusWriter {
    pub in_flight: bool,
    written: Option<Timestamp>,
    failures: u32,
    not_before: Option<Timestamp>,
}

impl StatusWriter {
    /// Takes in the end of a write. Says whether the object has to be read again.
    pub fn finish(
        &mut self,
        now: Timestamp,
        result: &Result<KubeAnswer, KubeError>,
        who: &str,
    ) -> bool {
        self.in_flight = false;
        let Err(error) = result else {
            self.failures = 0;
            self.not_before = None;
            return false;
        };
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(backoff::REQUESTS.until(now, self.failures, who));
        matches!(
            error.kind,
            KubeErrorKind::NotFound | KubeErrorKind::Conflict | KubeErrorKind::Unanswered
        )
    }

    fn is_free(&self, ctx: &mut ScaleSetContext) -> bool {
        let pause = self
            .written
            .and_then(|time| time.saturating_add(PAUSE).ok());
        let until = pause.max(self.not_before);
        match until {
            _ if self.in_flight => false,
            Some(time) if time > ctx.now => {
                ctx.wake_at(time);
                false
            }
            _ => true,
        }
    }
}

impl ScaleSetMachine {
    /// Writes the status if it has changed.
    pub(super) fn keep_status(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) {
        let live = ars.status.clone().unwrap_or_default();
        let wanted = self.wanted_status(ars, &live, ctx);
        if wanted == live || self.ars.is_in_flight() || !self.status.is_free(ctx) {
            return;
        }
        if wanted.phase == Some(Phase::Outdated) && live.phase != wanted.phase {
            self.announce_parking(ars, ctx);
        }
        self.status.in_flight = true;
        self.status.written = Some(ctx.now);
        let body = json!({ "status": wanted });
        let request = KubeRequest::patch_status(ars.reference(), body);
        ctx.push(Effect::Kube(ScaleSetTag::Status, request));
    }

    fn wanted_status(
        &self,
        ars: &AutoscalingRunnerSet,
        live: &AutoscalingRunnerSetStatus,
        ctx: &ScaleSetContext,
    ) -> AutoscalingRunnerSetStatus {
        let generation = ars.metadata.generation;
        let findings = &ctx.notes;
        let mut wanted = live.clone();
        wanted.conditions = findings.applied_to(&live.conditions, generation, ctx.now);
        if ars.metadata.deletion_timestamp.is_none() {
            wanted.phase = phase(generation, live, findings);
            if findings.settled {
                wanted.observed_generation = generation;
            }
        }
        if let Some(counts) = self.counts() {
            wanted.current_runners = Some(counts.pending + counts.running);
            wanted.pending_ephemeral_runners = Some(counts.pending);
            wanted.running_ephemeral_runners = Some(counts.running);
            wanted.failed_ephemeral_runners = Some(counts.failed);
        }
        wanted
    }

    /// How many runners there are, if that is known.
    fn counts(&self) -> Option<RunnerCounts> {
        match &self.runner_set.report {
            Some(report) => Some(report.counts),
            None if self.runner_set.object.is_absent() && !self.runner_set.alive => {
                Some(RunnerCounts::default())
            }
            None => None,
        }
    }

    /// Tells the controller what it has to know about this scale set.
    pub(super) fn report_summary(&mut self, ars: &AutoscalingRunnerSet, ctx: &mut ScaleSetContext) {
        let listener = self.listeners.get(&listener_name(ars));
        let url = ConfigUrl::parse(&ars.spec.github_config_url).ok();
        let part = |get: fn(&ConfigUrl) -> &str| url.as_ref().map_or("", get).to_owned();
        let summary = ScaleSetSummary {
            counts: self.counts().unwrap_or_default(),
            identity: identity(ars),
            proven: self.has_proof(ars),
            going: ars.metadata.deletion_timestamp.is_some(),
            listener_running: listener.is_some_and(super::children::ListenerChild::is_ready),
            labels: GaugeLabels {
                name: self.name.clone(),
                namespace: self.namespace.clone(),
                repository: part(ConfigUrl::repository),
                organization: part(ConfigUrl::organization),
                enterprise: part(ConfigUrl::enterprise),
            },
        };
        if self.summary.as_ref() != Some(&summary) {
            self.summary = Some(summary.clone());
            ctx.push(Effect::Report(ScaleSetReport::Summary(summary)));
        }
    }
}

/// The phase. Once everything is applied, only a new generation or a rejection of the runners
/// changes it: how well things go is what the conditions say. A parked scale set stays parked
/// through every edit but the one that corrects what was rejected.
fn phase(
    generation: Option<i64>,
    live: &AutoscalingRunnerSetStatus,
    findings: &Findings,
) -> Option<Phase> {
    let settled = findings.settled;
    let news = generation.unwrap_or(0) > live.observed_generation.unwrap_or(0);
    let was_parked = live.phase == Some(Phase::Outdated);
    Some(match (findings.parked, live.phase) {
        (None, _) if was_parked => Phase::Outdated,
        (Some(true), _) if findings.corrected => Phase::Pending,
        (Some(true), _) if settled || !news || was_parked => Phase::Outdated,
        (Some(true), _) => Phase::Pending,
        _ if news && !settled => Phase::Pending,
        _ if settled => Phase::Running,
        (_, Some(Phase::Running)) => Phase::Running,
        _ => Phase::Pending,
    })
}
