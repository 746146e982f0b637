//! What the listener writes to Kubernetes: the target on the runner set, and on each runner
//! which job it has.
//!
//! What is to be written is decided by pure functions of the object that was read; around
//! them is one read and one write, the write bound to the resourceVersion that was read.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, Patch as KubePatch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Map, Value, json};

use super::config::is_object_name;
use super::failure::{Failure, FailureKind};
use super::scaler::{Patch, Publication};
use super::session::{Record, Recording};
use crate::actions::JobDetails;
use crate::api::constants::annotations;
use crate::api::{
    EphemeralRunner, EphemeralRunnerPhase, EphemeralRunnerSet, Section, listener_patch,
};
use crate::clock::{Clock, Timestamp};
use crate::kube_io::{CustomApi, ServedFields, raised};

/// How many runners are written at one time.
const CONCURRENCY: usize = 8;
/// How often a write that met a newer object is tried.
const ATTEMPTS: u32 = 5;
/// How long a request may take to be answered.
const DEADLINE: Duration = Duration::from_secs(30);

/// Writes to one runner set and its runners.
#[derive(Clone)]
pub(super) struct Recorder {
    sets: Api<EphemeralRunnerSet>,
    runners: Api<EphemeralRunner>,
    client: Client,
    namespace: String,
    /// Fields of runners that the cluster lacks; the answers to writes show it.
    served: Arc<ServedFields>,
    set: String,
    stamps: Stamps,
}

/// The times at which jobs are recorded as finished, in whole microseconds. No two are the
/// same, and each is later than all that are known: also than those of a predecessor whose
/// clock was ahead.
#[derive(Clone)]
struct Stamps {
    clock: Clock,
    last: Arc<AtomicI64>,
    /// Jobs recorded as finished up to then are left out of the target.
    told: Arc<AtomicI64>,
    /// The latest that the set was seen to say of that.
    said: Arc<AtomicI64>,
}

impl Stamps {
    fn new(clock: Clock) -> Self {
        Self {
            clock,
            last: Arc::new(AtomicI64::new(i64::MIN)),
            told: Arc::new(AtomicI64::new(i64::MIN)),
            said: Arc::new(AtomicI64::new(i64::MIN)),
        }
    }

    fn next(&self) -> Timestamp {
        let now = self.clock.now().as_microsecond();
        let later = |last: i64| now.max(last.saturating_add(1));
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
                Some(later(last))
            });
        let (Ok(last) | Err(last)) = last;
        Timestamp::from_microsecond(later(last)).unwrap_or(Timestamp::MAX)
    }

    /// Takes note of a time that was met.
    fn met(&self, time: Timestamp) {
        self.last
            .fetch_max(microseconds_up(time), Ordering::Relaxed);
    }

    /// Takes note of what the set says. Answers whether that is less than it has said before: it
    /// has come back from a backup.
    fn has_gone_back(&self, says: Timestamp) -> bool {
        self.met(says);
        let says = microseconds_up(says);
        says < self.said.fetch_max(says, Ordering::Relaxed)
    }

    /// Whether [`Self::tell`] was asked before.
    fn has_told(&self) -> bool {
        self.told.load(Ordering::Relaxed) != i64::MIN
    }

    /// Up to when finished jobs are left out of the target: `all` that are recorded, or those
    /// up to the time told before. That begins with what a predecessor has told, or else with
    /// now: the first target is computed when a session begins, and so without all jobs of
    /// whose ends an earlier session has heard.
    fn tell(&self, all: bool) -> Timestamp {
        if self.last.load(Ordering::Relaxed) == i64::MIN {
            self.next();
        }
        if all || !self.has_told() {
            let last = self.last.load(Ordering::Relaxed);
            self.told.store(last, Ordering::Relaxed);
        }
        Timestamp::from_microsecond(self.told.load(Ordering::Relaxed)).unwrap_or(Timestamp::MAX)
    }
}

/// What is finer than microseconds is rounded up.
fn microseconds_up(time: Timestamp) -> i64 {
    let up = time.as_nanosecond().saturating_add(999).div_euclid(1_000);
    i64::try_from(up).unwrap_or(i64::MAX)
}

impl Recorder {
    /// For the set of this name and namespace.
    pub(super) fn new(client: &Client, namespace: &str, set: &str, clock: Clock) -> Self {
        Self {
            sets: Api::namespaced(client.clone(), namespace),
            runners: Api::namespaced(client.clone(), namespace),
            client: client.clone(),
            namespace: namespace.to_owned(),
            served: Arc::default(),
            set: set.to_owned(),
            stamps: Stamps::new(clock),
        }
    }

    /// Publishes the target. One that should stand there already is read first, and written
    /// only if it does not.
    ///
    /// From the first one on the set says up to when finished jobs are left out: before that,
    /// the controller takes the listener for one that never says so, and counts runners as soon
    /// as they have ended.
    pub(super) async fn publish(&self, publication: Publication) -> Result<(), Failure> {
        let Publication {
            patch,
            standing,
            tells_of_finished,
        } = publication;
        let mut behind = false;
        // without the permission to read (a Role made by ARC), writing it again is harmless
        if (standing || !self.stamps.has_told())
            && let Ok(set) = within(self.sets.get(&self.set)).await
        {
            behind = self.hear(&set);
            if standing && !behind && stands(&set, patch) {
                return Ok(());
            }
        }
        let until = self.stamps.tell(tells_of_finished);
        let said = (tells_of_finished || behind).then_some(until);
        let body = |until| stamped(publication.body(until), patch);
        if self.write(body(said)).await? {
            // it could not be read, was made anew, or has come back from a backup
            self.write(body(Some(until))).await?;
        }
        Ok(())
    }

    /// Patches the set. Answers as [`Self::hear`].
    async fn write(&self, body: Value) -> Result<bool, Failure> {
        let body = KubePatch::Merge(body);
        let set = within(self.sets.patch(&self.set, &PatchParams::default(), &body)).await?;
        Ok(self.hear(&set))
    }

    /// Takes note of what the set says of finished jobs: a predecessor may have written it.
    /// Answers whether it says less than it has said: nothing, or an earlier time.
    fn hear(&self, set: &EphemeralRunnerSet) -> bool {
        counted_until(set).is_none_or(|until| self.stamps.has_gone_back(until))
    }

    /// Records what happened on runners: several runners at a time, each one's records in
    /// order; behind one that failed the others of its runner fail too. The results are in the
    /// order of the records.
    pub(super) async fn record(&self, records: Vec<Record>) -> Vec<Result<Recording, Failure>> {
        let mut results: Vec<(usize, Result<Recording, Failure>)> =
            stream::iter(by_runner(records))
                .map(|of_runner| self.record_all(of_runner))
                .buffered(CONCURRENCY)
                .concat()
                .await;
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }

    async fn record_all(
        &self,
        records: Vec<(usize, Record)>,
    ) -> Vec<(usize, Result<Recording, Failure>)> {
        let mut results = Vec::with_capacity(records.len());
        let mut broken = None;
        for (index, record) in records {
            let result = match &broken {
                Some(failure) => Err(Failure::clone(failure)),
                None => self.record_one(&record).await,
            };
            if let Err(failure) = &result
                && failure.kind != FailureKind::Invalid
            {
                broken = Some(failure.clone());
            }
            results.push((index, result));
        }
        results
    }

    /// Writes onto the copy that was read.
    async fn write_status(
        &self,
        runner: &EphemeralRunner,
        status: Value,
    ) -> kube::Result<EphemeralRunner> {
        let runners =
            CustomApi::new::<EphemeralRunner>(&self.client, &self.served, &self.namespace, None);
        let body = json!({"status": status});
        let lock = runner.resource_version();
        runners
            .patch(&runner.name_any(), Section::Status, body, lock)
            .await
    }

    async fn record_one(&self, record: &Record) -> Result<Recording, Failure> {
        let name = record.job().runner_name.as_str();
        if name.is_empty() {
            return Ok(Recording::Skipped("no runner had the job".to_owned()));
        }
        if !is_object_name(name) {
            let reason = format!("\"{name}\" is no name of a runner of ours");
            return Ok(Recording::Skipped(reason));
        }
        for _ in 0..ATTEMPTS {
            let Some(runner) = within(self.runners.get_opt(name)).await? else {
                return Ok(missing(name));
            };
            let runner = raised(runner);
            if let Some(finished) = finish_time(&runner) {
                self.stamps.met(finished);
            }
            let change = match record {
                Record::Started(job) => started(&runner, job),
                Record::Completed(job) => completed(&runner, job, self.stamps.next()),
            };
            let status = match change {
                Change::Write(status) => status,
                Change::Nothing => return Ok(Recording::Already),
                Change::Refused(reason) => return Ok(Recording::Skipped(reason)),
            };
            match within(self.write_status(&runner, status)).await {
                Ok(_) => return Ok(Recording::New),
                Err(failure) if failure.kind == FailureKind::NotFound => return Ok(missing(name)),
                Err(failure) if failure.kind == FailureKind::Conflict => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::new(
            FailureKind::Conflict,
            format!("runner {name} changed {ATTEMPTS} times between reading and writing it"),
        ))
    }
}

/// Says in a patch of the set that it is ours.
fn stamped(mut body: Value, patch: Patch) -> Value {
    let stamp = listener_patch(patch.patch_id, patch.replicas);
    body["metadata"]["annotations"][annotations::LISTENER_PATCH] = json!(stamp);
    body
}

/// When the runner's job was recorded as finished.
fn finish_time(runner: &EphemeralRunner) -> Option<Timestamp> {
    let status = runner.status.as_ref()?;
    Some(status.job_finished_at.as_ref()?.0)
}

fn counted_until(set: &EphemeralRunnerSet) -> Option<Timestamp> {
    set.annotations()
        .get(annotations::JOBS_COUNTED_UNTIL)?
        .parse()
        .ok()
}

fn missing(name: &str) -> Recording {
    Recording::Skipped(format!("there is no runner {name} any more"))
}

async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    match tokio::time::timeout(DEADLINE, request).await {
        Ok(result) => result.map_err(Failure::from),
        Err(_) => Err(Failure::new(
            FailureKind::Unavailable,
            format!(
                "the API server did not answer within {} s",
                DEADLINE.as_secs()
            ),
        )),
    }
}

/// Groups records by runner, in the order in which the runners first appear, and remembers
/// where each record stood.
fn by_runner(records: Vec<Record>) -> Vec<Vec<(usize, Record)>> {
    let mut groups: indexmap::IndexMap<String, Vec<(usize, Record)>> = indexmap::IndexMap::new();
    for (index, record) in records.into_iter().enumerate() {
        let name = record.job().runner_name.clone();
        groups.entry(name).or_default().push((index, record));
    }
    groups.into_values().collect()
}

fn stands(set: &EphemeralRunnerSet, patch: Patch) -> bool {
    // absent means 0
    set.spec.replicas.unwrap_or_default() == patch.replicas && set.spec.patch_id == patch.patch_id
}

/// What is to be done to a runner's status.
#[derive(Clone, Debug, PartialEq)]
enum Change {
    Write(Value),
    Nothing,
    Refused(String),
}

/// A job has started: its fields are recorded in any case, since they say that the runner had
/// a job. The phase moves only on a runner that is alive.
fn started(runner: &EphemeralRunner, job: &JobDetails) -> Change {
    let mut status = job_fields(runner, job);
    let phase = runner.status.as_ref().and_then(|status| status.phase);
    let over = matches!(
        phase,
        Some(
            EphemeralRunnerPhase::Succeeded
                | EphemeralRunnerPhase::Failed
                | EphemeralRunnerPhase::Outdated
        )
    );
    let going = runner.metadata.deletion_timestamp.is_some();
    if !over && !going && phase != Some(EphemeralRunnerPhase::Running) {
        status.insert("phase".to_owned(), json!(EphemeralRunnerPhase::Running));
    }
    written(status)
}

/// A job has ended: recorded when runner and job are those of this object. What is not known
/// of either yet does not speak against it, and is recorded with it. `finished` is our own
/// time, and not the service's: it is put in order with the times of our patches.
fn completed(runner: &EphemeralRunner, job: &JobDetails, finished: Timestamp) -> Change {
    let known = runner.status.clone().unwrap_or_default();
    let name = runner.name_any();
    let registered = known.runner_id.filter(|id| *id != 0 && job.runner_id != 0);
    if let Some(id) = registered
        && id != job.runner_id
    {
        return Change::Refused(format!(
            "runner {name} is registered under id {id}, and the job ran under {}",
            job.runner_id
        ));
    }
    if let Some(id) = known.job_id.as_deref().filter(|id| !id.is_empty())
        && id != job.job_id
    {
        return Change::Refused(format!(
            "runner {name} has job {id}, and job {} has ended",
            job.job_id
        ));
    }
    let mut status = job_fields(runner, job);
    let result = Some(job.result.as_str()).filter(|result| !result.is_empty());
    let recorded = known.job_result.as_deref();
    if recorded != result.or(recorded) {
        status.insert("jobResult".to_owned(), json!(result));
    }
    if known.job_finished_at.is_none() {
        status.insert("jobFinishedAt".to_owned(), json!(MicroTime(finished)));
    }
    written(status)
}

fn written(status: Map<String, Value>) -> Change {
    if status.is_empty() {
        Change::Nothing
    } else {
        Change::Write(Value::Object(status))
    }
}

/// The job's fields that the runner does not have yet.
fn job_fields(runner: &EphemeralRunner, job: &JobDetails) -> Map<String, Value> {
    let known = runner.status.clone().unwrap_or_default();
    let mut fields = Map::new();
    let mut number = |key: &str, value: i64, known: Option<i64>| {
        if value != 0 && known != Some(value) {
            fields.insert(key.to_owned(), json!(value));
        }
    };
    number("jobRequestId", job.runner_request_id, known.job_request_id);
    number("workflowRunId", job.workflow_run_id, known.workflow_run_id);
    let repository = match (job.owner_name.as_str(), job.repository_name.as_str()) {
        ("", "") => String::new(),
        (owner, repository) => format!("{owner}/{repository}"),
    };
    let mut text = |key: &str, value: &str, known: Option<&str>| {
        if !value.is_empty() && known != Some(value) {
            fields.insert(key.to_owned(), json!(value));
        }
    };
    text("jobId", &job.job_id, known.job_id.as_deref());
    text(
        "jobRepositoryName",
        &repository,
        known.job_repository_name.as_deref(),
    );
    text(
        "jobWorkflowRef",
        &job.job_workflow_ref,
        known.job_workflow_ref.as_deref(),
    );
    text(
        "jobDisplayName",
        &job.job_display_name,
        known.job_display_name.as_deref(),
    );
    fields
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::api::{EphemeralRunnerSetSpec, EphemeralRunnerSpec, EphemeralRunnerStatus};

    fn job() -> JobDetails {
        JobDetails {
            runner_request_id: 7001,
            repository_name: "widgets".to_owned(),
            owner_name: "acme".to_owned(),
            job_id: "c0ffee".to_owned(),
            job_workflow_ref: "acme/widgets/.github/workflows/ci.yml@refs/heads/main".to_owned(),
            job_display_name: "build".to_owned(),
            workflow_run_id: 88,
            finish_time: "2026-01-02T03:04:05Z".parse().ok(),
            runner_id: 12,
            runner_name: "linux-runner-a".to_owned(),
            result: "succeeded".to_owned(),
            ..JobDetails::default()
        }
    }

    fn runner(status: EphemeralRunnerStatus) -> EphemeralRunner {
        let mut runner = EphemeralRunner::new("linux-runner-a", EphemeralRunnerSpec::default());
        runner.status = Some(status);
        runner
    }

    fn with_job(phase: EphemeralRunnerPhase) -> EphemeralRunnerStatus {
        EphemeralRunnerStatus {
            phase: Some(phase),
            runner_id: Some(12),
            job_request_id: Some(7001),
            job_id: Some("c0ffee".to_owned()),
            job_repository_name: Some("acme/widgets".to_owned()),
            job_workflow_ref: Some(job().job_workflow_ref),
            job_display_name: Some("build".to_owned()),
            workflow_run_id: Some(88),
            ..EphemeralRunnerStatus::default()
        }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn fields() -> Value {
        json!({
            "jobRequestId": 7001,
            "workflowRunId": 88,
            "jobId": "c0ffee",
            "jobRepositoryName": "acme/widgets",
            "jobWorkflowRef": "acme/widgets/.github/workflows/ci.yml@refs/heads/main",
            "jobDisplayName": "build",
        })
    }

    fn and(mut value: Value, more: Value) -> Value {
        json_patch::merge(&mut value, &more);
        value
    }

    #[test]
    fn a_started_job_is_recorded_with_the_phase_running() {
        for phase in [None, Some(EphemeralRunnerPhase::Pending)] {
            let runner = runner(EphemeralRunnerStatus {
                phase,
                ..EphemeralRunnerStatus::default()
            });
            let expected = and(fields(), json!({"phase": "Running"}));
            assert_eq!(started(&runner, &job()), Change::Write(expected));
        }
    }

    #[test]
    fn a_runner_that_is_over_or_going_gets_the_job_and_keeps_its_phase() {
        for phase in [
            EphemeralRunnerPhase::Failed,
            EphemeralRunnerPhase::Succeeded,
            EphemeralRunnerPhase::Outdated,
        ] {
            let runner = runner(EphemeralRunnerStatus {
                phase: Some(phase),
                ..EphemeralRunnerStatus::default()
            });
            assert_eq!(started(&runner, &job()), Change::Write(fields()));
        }
        let mut going = runner(EphemeralRunnerStatus::default());
        going.metadata.deletion_timestamp = Some(Time(at("2026-01-01T00:00:00Z")));
        assert_eq!(started(&going, &job()), Change::Write(fields()));
    }

    #[test]
    fn a_job_recorded_already_changes_nothing() {
        for phase in [EphemeralRunnerPhase::Running, EphemeralRunnerPhase::Failed] {
            assert_eq!(started(&runner(with_job(phase)), &job()), Change::Nothing);
        }
        let done = runner(EphemeralRunnerStatus {
            job_result: Some("succeeded".to_owned()),
            job_finished_at: Some(MicroTime(at("2026-01-02T03:04:05Z"))),
            ..with_job(EphemeralRunnerPhase::Running)
        });
        let later = at("2026-06-01T00:00:00Z");
        assert_eq!(completed(&done, &job(), later), Change::Nothing);
    }

    #[test]
    fn an_ended_job_is_recorded_with_its_result_and_time() {
        let finished = at("2026-06-01T00:00:00.000123Z");
        let running = runner(with_job(EphemeralRunnerPhase::Running));
        let expected =
            json!({"jobResult": "succeeded", "jobFinishedAt": "2026-06-01T00:00:00.000123Z"});
        assert_eq!(
            completed(&running, &job(), finished),
            Change::Write(expected)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn times_are_whole_microseconds_and_later_than_all_that_are_known() {
        let stamps = Stamps::new(Clock::simulated(at("2026-06-01T00:00:00.0000019Z")));
        assert_eq!(stamps.next(), at("2026-06-01T00:00:00.000001Z"));
        assert_eq!(stamps.next(), at("2026-06-01T00:00:00.000002Z"));
        // an earlier one changes nothing, a later one does, and is rounded up
        stamps.met(at("2026-01-01T00:00:00Z"));
        assert_eq!(stamps.next(), at("2026-06-01T00:00:00.000003Z"));
        stamps.met(at("2026-06-01T01:00:00.0000005Z"));
        assert_eq!(stamps.next(), at("2026-06-01T01:00:00.000002Z"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_begins_with_the_first_target_and_moves_only_when_all_is_told() {
        let stamps = Stamps::new(Clock::simulated(at("2026-06-01T00:00:00Z")));
        assert!(!stamps.has_told());
        let beginning = at("2026-06-01T00:00:00Z");
        assert_eq!(stamps.tell(false), beginning);
        assert!(stamps.has_told());
        let finished = stamps.next();
        assert!(finished > beginning);
        // it is not known yet whether the target leaves it out
        assert_eq!(stamps.tell(false), beginning);
        assert_eq!(stamps.tell(true), finished);
        stamps.next();
        assert_eq!(stamps.tell(false), finished);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_told_goes_on_where_a_predecessor_was() {
        let stamps = Stamps::new(Clock::simulated(at("2026-06-01T00:00:00Z")));
        let before = at("2026-06-01T01:00:00Z");
        stamps.met(before);
        assert_eq!(stamps.tell(false), before);
        assert_eq!(stamps.next(), at("2026-06-01T01:00:00.000001Z"));
    }

    #[test]
    fn an_end_without_a_start_records_the_job_too() {
        let runner = runner(EphemeralRunnerStatus::default());
        let expected = and(
            fields(),
            json!({"jobResult": "succeeded", "jobFinishedAt": "2026-06-01T00:00:00.000000Z"}),
        );
        let now = at("2026-06-01T00:00:00Z");
        assert_eq!(completed(&runner, &job(), now), Change::Write(expected));
    }

    #[test]
    fn the_end_of_another_job_or_runner_is_refused() {
        let now = at("2026-06-01T00:00:00Z");
        let running = runner(with_job(EphemeralRunnerPhase::Running));
        let other_job = JobDetails {
            job_id: "decaf".to_owned(),
            ..job()
        };
        let other_runner = JobDetails {
            runner_id: 13,
            ..job()
        };
        for (job, words) in [(other_job, "has job c0ffee"), (other_runner, "under id 12")] {
            let Change::Refused(reason) = completed(&running, &job, now) else {
                panic!("it was taken")
            };
            assert!(reason.contains(words), "{reason}");
        }
    }

    #[test]
    fn records_of_one_runner_stay_in_order_and_together() {
        let record = |runner: &str| {
            Record::Started(JobDetails {
                runner_name: runner.to_owned(),
                ..JobDetails::default()
            })
        };
        let groups = by_runner(vec![record("b"), record("a"), record("b")]);
        let shape: Vec<Vec<usize>> = groups
            .iter()
            .map(|group| group.iter().map(|(index, _)| *index).collect())
            .collect();
        assert_eq!(shape, [vec![0, 2], vec![1]]);
    }

    #[test]
    fn a_target_stands_when_both_numbers_do() {
        let set = |replicas, patch_id| {
            EphemeralRunnerSet::new(
                "linux",
                EphemeralRunnerSetSpec {
                    replicas,
                    patch_id,
                    ..EphemeralRunnerSetSpec::default()
                },
            )
        };
        let patch = |replicas, patch_id| Patch { replicas, patch_id };
        assert!(stands(&set(Some(2), 0), patch(2, 0)));
        assert!(stands(&set(None, 0), patch(0, 0)));
        assert!(!stands(&set(Some(2), 1), patch(2, 0)));
        assert!(!stands(&set(Some(3), 0), patch(2, 0)));
    }
}
