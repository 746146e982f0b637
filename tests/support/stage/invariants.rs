//! Invariants that what is stored shows, looked at before a write takes effect.

use embedded_kube::ApiServer;
use impresario::api::{EphemeralRunner, EphemeralRunnerPhase, EphemeralRunnerSet};
use impresario::clock::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;

use super::warden::Write;

/// INV-3: a runner is only created where the newest `replicas` leaves room for it.
pub fn too_many_runners(
    api: &ApiServer,
    namespace: &str,
    now: Option<Timestamp>,
) -> Option<String> {
    let sets: Vec<EphemeralRunnerSet> = api.list_as(Some(namespace));
    // a test has one set in a namespace
    let wanted = sets.first()?.spec.replicas.unwrap_or(0);
    let pods: Vec<Pod> = api.list_as(Some(namespace));
    let secrets: Vec<Secret> = api.list_as(Some(namespace));
    let holds = |runner: &EphemeralRunner| {
        let status = runner.status.clone().unwrap_or_default();
        let going = runner.metadata.deletion_timestamp.is_some();
        let name = runner.name_any();
        // what hangs on a lost node does nothing any more, and nobody can end that
        let is_lost = |pod: &Pod| {
            let end = pod.metadata.deletion_timestamp.as_ref().map(|end| end.0);
            end.zip(now).is_some_and(|(end, now)| end < now)
        };
        let pod = pods.iter().find(|pod| pod.name_any() == name);
        let has_something = pod.is_none_or(|pod| !is_lost(pod))
            && (pod.is_some() || secrets.iter().any(|secret| secret.name_any() == name));
        let over = matches!(
            status.phase,
            Some(
                EphemeralRunnerPhase::Succeeded
                    | EphemeralRunnerPhase::Failed
                    | EphemeralRunnerPhase::Outdated
            )
        );
        !over && (!going || has_something)
    };
    let runners: Vec<EphemeralRunner> = api.list_as(Some(namespace));
    let alive: Vec<String> = runners
        .iter()
        .filter(|r| holds(r))
        .map(|r| r.name_any())
        .collect();
    let room = i64::try_from(alive.len()).is_ok_and(|alive| alive < wanted);
    (!room).then(|| format!("INV-3: a runner is created beside {alive:?}, for {wanted} replicas"))
}

/// INV-1: a runner with a job is not taken away while its pod is alive.
pub fn job_cut_short(api: &ApiServer, write: &Write) -> Option<String> {
    let runners: Vec<EphemeralRunner> = api.list_as(Some(&write.namespace));
    let runner = runners
        .into_iter()
        .find(|runner| runner.name_any() == write.name)?;
    let status = runner.status.clone().unwrap_or_default();
    let busy = status.job_id.is_some_and(|id| !id.is_empty()) && status.job_result.is_none();
    let by_a_person = runner.metadata.deletion_timestamp.is_some();
    let pods: Vec<Pod> = api.list_as(Some(&write.namespace));
    let pod = pods.into_iter().find(|pod| pod.name_any() == write.name)?;
    let alive = is_alive(&pod);
    (busy && alive && !by_a_person).then(|| format!("INV-1: {write:?} while its job runs"))
}

/// Whether the pod's runner can still do something.
pub fn is_alive(pod: &Pod) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let mut containers = status.container_statuses.iter().flatten();
    let runner = containers.find(|container| container.name == "runner");
    let state = runner.and_then(|runner| runner.state.as_ref());
    let ended = state.is_some_and(|state| state.terminated.is_some());
    let runs = state.is_some_and(|state| state.running.is_some());
    runs || (!over && !ended)
}
