//! One look at a running demonstration: everything that the view and the summary show.

use std::fmt;

use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use k8s_openapi::jiff::Timestamp;

use super::Stage;
use crate::api::constants::{LISTENER_CONTAINER, labels};
use crate::api::{AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerPhase};
use embedded_actions::JobState;
use embedded_kube::ApiServer;

/// How many events are kept for the view.
const EVENTS: usize = 50;

/// One look.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Seconds since the start.
    pub seconds: f64,
    /// Jobs.
    pub jobs: Jobs,
    /// Runners by state.
    pub runners: Runners,
    /// Scale sets, each with its phase and what it says of itself.
    pub scale_sets: Vec<ScaleSetLine>,
    /// Actors by kind: how many, and messages waiting for them.
    pub actors: Vec<(String, i64, i64)>,
    /// The last Kubernetes Events, the newest last.
    pub events: Vec<EventLine>,
    /// What exists.
    pub holdings: Holdings,
}

/// Jobs by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jobs {
    /// How many there are to be.
    pub wanted: usize,
    /// Waiting for a runner.
    pub queued: usize,
    /// Running.
    pub running: usize,
    /// Done, and successfully.
    pub done: usize,
    /// Ended in any other way.
    pub failed: usize,
}

/// Runners by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runners {
    /// Without a job, not ready.
    pub starting: usize,
    /// Without a job, ready.
    pub idle: usize,
    /// With a job.
    pub busy: usize,
    /// Ended, waiting to be counted or removed.
    pub finished: usize,
    /// Failed or rejected.
    pub failed: usize,
    /// Being deleted.
    pub deleting: usize,
}

impl fmt::Display for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} queued, {} running, {} of {} done",
            self.queued, self.running, self.done, self.wanted
        )?;
        match self.failed {
            0 => Ok(()),
            failed => write!(f, ", {failed} failed"),
        }
    }
}

impl Runners {
    /// The states in the order of a runner's life, each with its count.
    pub const fn by_state(&self) -> [(&'static str, usize); 6] {
        [
            ("starting", self.starting),
            ("idle", self.idle),
            ("busy", self.busy),
            ("finished", self.finished),
            ("failed", self.failed),
            ("deleting", self.deleting),
        ]
    }
}

/// The states there are runners in.
impl fmt::Display for Runners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (state, count) in self.by_state() {
            if count > 0 {
                write!(f, "{separator}{count} {state}")?;
                separator = ", ";
            }
        }
        if separator.is_empty() {
            f.write_str("none")?;
        }
        Ok(())
    }
}

/// One scale set.
#[derive(Clone, Debug)]
pub struct ScaleSetLine {
    /// Namespace and name.
    pub name: String,
    /// Phase, or `unknown`.
    pub phase: String,
    /// What its `Ready` condition says, when it is not ready.
    pub problem: Option<String>,
    /// State of its listener's pod.
    pub listener: String,
}

/// A Kubernetes Event.
#[derive(Clone, Debug, PartialEq)]
pub struct EventLine {
    /// Seconds from the start until it last happened.
    pub seconds: f64,
    /// Whether it is a warning.
    pub warning: bool,
    /// What it is about and what it says.
    pub text: String,
}

/// What exists, to find what is left over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// EphemeralRunners.
    pub runners: usize,
    /// Runners that there are to be at rest.
    pub minimum: usize,
    /// Runners registered in the Actions service.
    pub registrations: usize,
    /// JIT Secrets.
    pub secrets: usize,
    /// Runners' pods.
    pub pods: usize,
    /// Message sessions.
    pub sessions: usize,
    /// Scale sets.
    pub scale_sets: usize,
}

impl Holdings {
    /// Whether each thing has its owner, and there are as many runners as there are to be.
    pub const fn balanced(&self) -> bool {
        self.runners == self.minimum && self.nothing_left_over()
    }

    /// Whether each thing has its owner.
    pub const fn nothing_left_over(&self) -> bool {
        self.registrations == self.runners
            && self.secrets == self.runners
            && self.pods == self.runners
            && self.sessions == self.scale_sets
    }
}

impl Snapshot {
    /// Looks.
    pub fn take(stage: &Stage<'_>) -> Self {
        let api = &stage.cluster.api;
        let runners: Vec<EphemeralRunner> = api.list_as(None);
        let pods: Vec<Pod> = api.list_as(None);
        // one may have been applied or deleted since the start
        let mut scale_sets: Vec<AutoscalingRunnerSet> = api.list_as(None);
        let key = |set: &AutoscalingRunnerSet| {
            (set.metadata.namespace.clone(), set.metadata.name.clone())
        };
        scale_sets.sort_by_key(key);
        let elapsed = stage.cluster.clock.now().duration_since(stage.began);
        Self {
            seconds: elapsed.as_secs_f64(),
            jobs: jobs(stage),
            runners: count(&runners),
            scale_sets: scale_sets.iter().map(|set| line(&pods, set)).collect(),
            actors: actors(stage),
            events: events(api, stage.began),
            holdings: holdings(stage, runners.len(), &pods, &scale_sets),
        }
    }

    /// Whether all jobs have ended.
    pub const fn all_jobs_ended(&self) -> bool {
        self.jobs.done + self.jobs.failed == self.jobs.wanted
    }

    /// Whether nothing goes on any more.
    pub fn at_rest(&self) -> bool {
        let Runners {
            starting,
            idle: _,
            busy,
            finished,
            failed,
            deleting,
        } = self.runners;
        starting + busy + finished + failed + deleting == 0
            && self.holdings.balanced()
            && self.scale_sets.iter().all(|set| set.phase == "Running")
    }
}

fn jobs(stage: &Stage<'_>) -> Jobs {
    let mut jobs = Jobs {
        wanted: stage.args.jobs,
        ..Jobs::default()
    };
    for job in stage.cluster.actions.jobs() {
        match job.state {
            JobState::Completed if job.result == "succeeded" => jobs.done += 1,
            JobState::Completed => jobs.failed += 1,
            JobState::Running => jobs.running += 1,
            _ => jobs.queued += 1,
        }
    }
    jobs
}

fn count(all: &[EphemeralRunner]) -> Runners {
    let mut runners = Runners::default();
    for runner in all {
        let status = runner.status.clone().unwrap_or_default();
        let slot = match status.phase {
            _ if runner.metadata.deletion_timestamp.is_some() => &mut runners.deleting,
            Some(EphemeralRunnerPhase::Running) => &mut runners.busy,
            Some(EphemeralRunnerPhase::Succeeded) => &mut runners.finished,
            Some(EphemeralRunnerPhase::Failed | EphemeralRunnerPhase::Outdated) => {
                &mut runners.failed
            }
            Some(EphemeralRunnerPhase::Pending) | None if status.ready => &mut runners.idle,
            Some(EphemeralRunnerPhase::Pending) | None => &mut runners.starting,
        };
        *slot += 1;
    }
    runners
}

fn line(pods: &[Pod], set: &AutoscalingRunnerSet) -> ScaleSetLine {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let status = set.status.clone().unwrap_or_default();
    // the first condition that does not hold says most; an untested chart is no problem
    let problem = status
        .conditions
        .iter()
        .find(|condition| condition.status == "False" && condition.type_ != "VersionTested")
        .map(|condition| format!("{}: {}", condition.reason, condition.message));
    ScaleSetLine {
        name: format!("{namespace}/{name}"),
        phase: status
            .phase
            .map_or_else(|| "unknown".to_owned(), |phase| format!("{phase:?}")),
        problem,
        listener: listener(pods, namespace, name),
    }
}

fn listener(pods: &[Pod], namespace: &str, name: &str) -> String {
    let wanted = [
        (labels::SCALE_SET_NAME, name),
        (labels::SCALE_SET_NAMESPACE, namespace),
    ];
    let pod = pods.iter().find(|pod| {
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let listens = pod.spec.as_ref().is_some_and(|spec| {
            let mut containers = spec.containers.iter();
            containers.any(|container| container.name == LISTENER_CONTAINER)
        });
        listens
            && wanted
                .iter()
                .all(|(key, value)| labels.get(*key).is_some_and(|found| found == value))
    });
    match pod {
        None => "no pod".to_owned(),
        Some(pod) if pod.metadata.deletion_timestamp.is_some() => "Terminating".to_owned(),
        Some(pod) => pod
            .status
            .as_ref()
            .and_then(|status| status.phase.clone())
            .unwrap_or_else(|| "Pending".to_owned()),
    }
}

fn actors(stage: &Stage<'_>) -> Vec<(String, i64, i64)> {
    let metrics = &stage.controller.metrics.actors;
    ["scale_set", "listener", "runner_set", "runner"]
        .into_iter()
        .map(|actor| {
            (
                actor.to_owned(),
                metrics.live.with_label_values(&[actor]).get(),
                metrics.mailbox_depth.with_label_values(&[actor]).get(),
            )
        })
        .collect()
}

fn events(api: &ApiServer, began: Timestamp) -> Vec<EventLine> {
    let mut events: Vec<Event> = api.list_as(None);
    let stamp = |event: &Event| event.last_timestamp.as_ref().map_or(began, |time| time.0);
    events.sort_by_key(stamp);
    let skip = events.len().saturating_sub(EVENTS);
    events
        .iter()
        .skip(skip)
        .map(|event| {
            let about = &event.involved_object;
            let text = |field: &Option<String>| field.clone().unwrap_or_default();
            EventLine {
                seconds: stamp(event).duration_since(began).as_secs_f64().max(0.0),
                warning: event.type_.as_deref() == Some("Warning"),
                text: format!(
                    "{} {} {}/{}: {}",
                    text(&event.reason),
                    text(&about.kind),
                    text(&about.namespace),
                    text(&about.name),
                    text(&event.message),
                ),
            }
        })
        .collect()
}

fn holdings(
    stage: &Stage<'_>,
    runners: usize,
    pods: &[Pod],
    scale_sets: &[AutoscalingRunnerSet],
) -> Holdings {
    let secrets: Vec<Secret> = stage.cluster.api.list_as(None);
    let jit = |secret: &&Secret| {
        let data = secret.data.as_ref();
        data.is_some_and(|data| data.contains_key(crate::api::constants::keys::JIT_TOKEN))
    };
    let of_runners = |pod: &&Pod| {
        let labels = pod.metadata.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(labels::EPHEMERAL_RUNNER))
    };
    let minimum: i64 = scale_sets
        .iter()
        .filter_map(|set| set.spec.min_runners)
        .sum();
    Holdings {
        runners,
        minimum: usize::try_from(minimum).unwrap_or_default(),
        registrations: stage.cluster.actions.runners().len(),
        secrets: secrets.iter().filter(jit).count(),
        pods: pods.iter().filter(of_runners).count(),
        sessions: stage.cluster.actions.sessions().len(),
        scale_sets: scale_sets.len(),
    }
}
