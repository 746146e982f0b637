//! The state of the service, and how it changes. Knows no HTTP and waits for nothing: time
//! is an argument, and who waits is woken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::faults::Refusal;
use super::jobs::{Job, JobSpec, JobState};
use crate::api::ConfigScope;
use crate::clock::{Timestamp, after};

/// A point in time, on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// For waiting.
    pub(super) instant: Instant,
    /// For people and tokens.
    pub(super) time: Timestamp,
}

/// How long things last.
#[derive(Clone, Debug)]
pub struct Durations {
    /// How long a poll of a queue is held.
    pub poll: Duration,
    /// How long a tenant token is valid, in seconds.
    pub tenant_token: i64,
    /// How long a queue token is valid, in seconds.
    pub queue_token: i64,
    /// How long a session lasts that nobody polls for.
    pub idle_session: Duration,
    /// How long a job is on offer to a scale set before it is offered anew.
    pub offer: Duration,
    /// How long a runner with a job may be gone before the job fails.
    pub lost_runner: Duration,
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(50),
            tenant_token: 3600,
            queue_token: 3600,
            idle_session: Duration::from_secs(120),
            offer: Duration::from_secs(60),
            lost_runner: Duration::from_secs(120),
        }
    }
}

/// What a token opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    /// The REST API, for an installation of an App.
    Installation,
    /// Registration, for a scope.
    Registration(i64),
    /// The tenant of a scope.
    Tenant(i64),
    /// The queue of a session.
    Queue(String),
}

/// An enterprise, organization or repository.
#[derive(Debug)]
struct Scope {
    /// `acme`, `acme/widgets` or `enterprises/big`, in lower case.
    key: String,
    owner: String,
    repository: String,
    groups: BTreeMap<i64, String>,
}

/// A runner scale set.
#[derive(Debug)]
pub(super) struct ScaleSet {
    pub(super) id: i64,
    pub(super) scope: i64,
    pub(super) name: String,
    pub(super) group: i64,
    pub(super) labels: Vec<String>,
    pub(super) disable_update: bool,
    created: Timestamp,
    session: Option<String>,
    /// How many jobs it can have, as its latest poll told; 0 before there was one.
    capacity: i64,
    offered: BTreeMap<i64, Instant>,
    assigned: BTreeSet<i64>,
    running: BTreeSet<i64>,
    pub(super) runners: BTreeSet<i64>,
    idle: BTreeSet<i64>,
    events: Vec<Value>,
    messages: BTreeMap<i64, Value>,
    /// Wakes the polls of its queue.
    pub(super) news: Arc<Notify>,
}

/// A message session.
#[derive(Clone, Debug)]
pub(super) struct OpenSession {
    pub(super) id: String,
    pub(super) scale_set: i64,
    pub(super) owner: String,
    last_used: Instant,
}

/// A registered runner.
#[derive(Debug)]
pub(super) struct RegisteredRunner {
    pub(super) id: i64,
    pub(super) name: String,
    pub(super) scale_set: i64,
    scope: i64,
    secret: String,
    pub(super) online: bool,
    pub(super) job: Option<i64>,
    /// Wakes the runner.
    pub(super) news: Arc<Notify>,
}

#[derive(Clone, Copy, Debug)]
enum Timer {
    Offer(i64),
    LostRunner(i64),
}

/// The state of the service.
#[derive(Debug)]
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) durations: Durations,
    /// Personal access tokens that are accepted; `None` accepts any.
    pub(super) accepted: Option<BTreeSet<String>>,
    last_id: i64,
    scopes: BTreeMap<i64, Scope>,
    group_names: BTreeMap<String, i64>,
    tokens: BTreeMap<String, (Grant, Timestamp)>,
    pub(super) scale_sets: BTreeMap<i64, ScaleSet>,
    pub(super) sessions: BTreeMap<String, OpenSession>,
    pub(super) runners: BTreeMap<i64, RegisteredRunner>,
    runner_names: BTreeMap<(i64, String), i64>,
    pub(super) jobs: BTreeMap<i64, Job>,
    /// Jobs on offer to nobody, by what they run on.
    waiting: BTreeMap<Vec<String>, VecDeque<i64>>,
    /// Jobs that a runner has started, ever.
    pub(super) history: BTreeMap<i64, Vec<i64>>,
    timers: BTreeMap<(Instant, i64), Timer>,
    /// What happened since somebody last looked, for the log.
    pub(super) notes: Vec<String>,
}

pub(super) type Outcome<T> = Result<T, Refusal>;

const DEFAULT_GROUP: i64 = 1;

impl World {
    pub(super) fn new(seed: u64, durations: Durations) -> Self {
        Self {
            seed,
            durations,
            accepted: None,
            last_id: 0,
            scopes: BTreeMap::new(),
            group_names: BTreeMap::from([("default".to_owned(), DEFAULT_GROUP)]),
            tokens: BTreeMap::new(),
            scale_sets: BTreeMap::new(),
            sessions: BTreeMap::new(),
            runners: BTreeMap::new(),
            runner_names: BTreeMap::new(),
            jobs: BTreeMap::new(),
            waiting: BTreeMap::new(),
            history: BTreeMap::new(),
            timers: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    fn next_id(&mut self) -> i64 {
        self.last_id += 1;
        self.last_id
    }

    /// An id in the form of a UUID, from the seed and a counter.
    pub(super) fn uuid(&mut self) -> String {
        let (seed, id) = (self.seed, self.next_id());
        format!(
            "{:08x}-{:04x}-4000-8000-{id:012x}",
            seed & 0xffff_ffff,
            (seed >> 32) & 0xffff
        )
    }

    fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    // === time ===

    /// Does what has come due.
    pub(super) fn advance(&mut self, now: Moment) {
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= now.instant
        {
            match entry.remove() {
                Timer::Offer(job) => self.lapse(job, now),
                Timer::LostRunner(runner) => self.fail_job_of(runner, now),
            }
        }
    }

    /// When something comes due next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((due, _), _)| *due)
    }

    fn set_timer(&mut self, due: Instant, timer: Timer) {
        let id = self.next_id();
        self.timers.insert((due, id), timer);
    }

    /// An offer that nobody took up: the job is offered anew.
    fn lapse(&mut self, job: i64, now: Moment) {
        let set = self.jobs.get(&job).and_then(|job| job.scale_set_id);
        let Some(set) = set.and_then(|id| self.scale_sets.get_mut(&id)) else {
            return;
        };
        let id = set.id;
        if set
            .offered
            .get(&job)
            .is_some_and(|until| *until <= now.instant)
        {
            set.offered.remove(&job);
            self.queue_again(job);
            self.dispatch(id, now);
        }
    }

    fn fail_job_of(&mut self, runner: i64, now: Moment) {
        let lost = self.runners.get(&runner).filter(|runner| !runner.online);
        if let Some(job) = lost.and_then(|runner| runner.job) {
            self.complete(job, "failed", now);
        }
    }

    // === tokens ===

    pub(super) fn grant(&mut self, grant: Grant, seconds: i64, now: Moment) -> (String, Timestamp) {
        let expires = after(now.time, seconds);
        let id = self.next_id();
        let token = match &grant {
            Grant::Installation => format!("ghs_simulated{id}"),
            Grant::Registration(_) => format!("registration-simulated{id}"),
            Grant::Tenant(_) | Grant::Queue(_) => unsigned_jwt(id, expires),
        };
        self.tokens.insert(token.clone(), (grant, expires));
        (token, expires)
    }

    /// What a token opens, if it is valid.
    pub(super) fn granted(&self, token: &str, now: Moment) -> Option<&Grant> {
        let (grant, expires) = self.tokens.get(token)?;
        (*expires > now.time).then_some(grant)
    }

    /// Makes every token of a kind invalid.
    pub(super) fn revoke(&mut self, which: impl Fn(&Grant) -> bool) {
        self.tokens.retain(|_, (grant, _)| !which(grant));
    }

    // === scopes and groups ===

    /// The id of a scope, which is made known by being asked for.
    pub(super) fn scope(&mut self, scope: &ConfigScope) -> i64 {
        let (owner, repository) = match scope {
            ConfigScope::Enterprise(_) => (String::new(), String::new()),
            ConfigScope::Organization(name) => (name.clone(), String::new()),
            ConfigScope::Repository { owner, repository } => (owner.clone(), repository.clone()),
        };
        let key = scope_key(scope);
        let known = self.scopes.iter().find(|(_, scope)| scope.key == key);
        if let Some((id, _)) = known {
            return *id;
        }
        let id = self.scopes.len() as i64 + 1;
        let groups = self.group_names.iter();
        let scope = Scope {
            key,
            owner,
            repository,
            groups: groups.map(|(name, id)| (*id, name.clone())).collect(),
        };
        self.scopes.insert(id, scope);
        id
    }

    /// Adds a runner group everywhere.
    pub(super) fn add_group(&mut self, name: &str) -> i64 {
        let next = self.group_names.len() as i64 + 1;
        let id = *self.group_names.entry(name.to_owned()).or_insert(next);
        for scope in self.scopes.values_mut() {
            scope.groups.insert(id, name.to_owned());
        }
        id
    }

    pub(super) fn groups(&self, scope: i64, name: &str) -> Vec<Value> {
        let groups = self.scopes.get(&scope).map(|scope| &scope.groups);
        let groups = groups.into_iter().flatten();
        groups
            .filter(|(_, known)| name.is_empty() || known.eq_ignore_ascii_case(name))
            .map(|(id, name)| {
                json!({"id": id, "name": name, "isDefaultGroup": *id == DEFAULT_GROUP})
            })
            .collect()
    }

    fn group_name(&self, scope: i64, group: i64) -> Option<&str> {
        let scope = self.scopes.get(&scope)?;
        scope.groups.get(&group).map(String::as_str)
    }

    // === scale sets ===

    pub(super) fn find_scale_sets(&self, scope: i64, group: i64, name: &str) -> Vec<Value> {
        let sets = self.scale_sets.values().filter(|set| {
            set.scope == scope && set.group == group && set.name.eq_ignore_ascii_case(name)
        });
        sets.map(|set| self.scale_set_json(set)).collect()
    }

    pub(super) fn scale_set(&self, scope: i64, id: i64) -> Outcome<&ScaleSet> {
        let set = self.scale_sets.get(&id).filter(|set| set.scope == scope);
        set.ok_or_else(|| {
            let message = format!("No runner scale set found with identifier {id}.");
            Refusal::new(404, "RunnerScaleSetNotFoundException", message)
        })
    }

    fn scale_set_mut(&mut self, scope: i64, id: i64) -> Outcome<&mut ScaleSet> {
        self.scale_set(scope, id)?;
        self.scale_sets
            .get_mut(&id)
            .ok_or_else(|| Refusal::new(404, "RunnerScaleSetNotFoundException", "gone"))
    }

    /// Refuses a name that another scale set of the group has, and a group that there is not.
    fn check_scale_set(&self, scope: i64, id: i64, name: &str, group: i64) -> Outcome<()> {
        if name.trim().is_empty() {
            return Err(Refusal::new(400, "ArgumentException", "The name is empty."));
        }
        if self.group_name(scope, group).is_none() {
            let message = format!("No runner group found with identifier {group}.");
            return Err(Refusal::new(404, "RunnerGroupNotFoundException", message));
        }
        let taken = self.scale_sets.values().any(|set| {
            set.id != id
                && set.scope == scope
                && set.group == group
                && set.name.eq_ignore_ascii_case(name)
        });
        if taken {
            let message = format!("A runner scale set named {name} exists in the group.");
            return Err(Refusal::new(409, "RunnerScaleSetExistsException", message));
        }
        Ok(())
    }

    pub(super) fn create_scale_set(
        &mut self,
        scope: i64,
        body: &Value,
        now: Moment,
    ) -> Outcome<Value> {
        let name = body["name"].as_str().unwrap_or_default().to_owned();
        let group = body["runnerGroupId"].as_i64().unwrap_or(DEFAULT_GROUP);
        self.check_scale_set(scope, 0, &name, group)?;
        let id = self.next_id();
        self.note(format!("scale set {id} created: {name}"));
        let set = ScaleSet {
            id,
            scope,
            name,
            group,
            labels: label_names(body),
            disable_update: body["RunnerSetting"]["disableUpdate"] == true,
            created: now.time,
            session: None,
            capacity: 0,
            offered: BTreeMap::new(),
            assigned: BTreeSet::new(),
            running: BTreeSet::new(),
            runners: BTreeSet::new(),
            idle: BTreeSet::new(),
            events: Vec::new(),
            messages: BTreeMap::new(),
            news: Arc::default(),
        };
        let json = self.scale_set_json(&set);
        self.scale_sets.insert(id, set);
        Ok(json)
    }

    pub(super) fn update_scale_set(&mut self, scope: i64, id: i64, body: &Value) -> Outcome<Value> {
        let set = self.scale_set(scope, id)?;
        let name = body["name"].as_str().unwrap_or(&set.name).to_owned();
        let group = body["runnerGroupId"].as_i64().unwrap_or(set.group);
        self.check_scale_set(scope, id, &name, group)?;
        let set = self.scale_set_mut(scope, id)?;
        set.name = name;
        set.group = group;
        if body["labels"].is_array() {
            set.labels = label_names(body);
        }
        if let Some(disable) = body["RunnerSetting"]["disableUpdate"].as_bool() {
            set.disable_update = disable;
        }
        Ok(self.scale_set_json(self.scale_set(scope, id)?))
    }

    pub(super) fn delete_scale_set(&mut self, scope: i64, id: i64, now: Moment) -> Outcome<()> {
        self.scale_set(scope, id)?;
        self.close_session_of(id, now);
        let Some(set) = self.scale_sets.remove(&id) else {
            return Ok(());
        };
        set.news.notify_waiters();
        for runner in set.runners {
            self.forget_runner(runner);
        }
        for job in set.assigned {
            self.queue_again(job);
        }
        for job in set.running {
            self.end(job, "failed", now);
        }
        self.note(format!("scale set {id} deleted"));
        Ok(())
    }

    pub(super) fn scale_set_json(&self, set: &ScaleSet) -> Value {
        let label = |name| json!({"id": 0, "type": "System", "name": name});
        json!({
            "id": set.id,
            "name": set.name,
            "runnerGroupId": set.group,
            "runnerGroupName": self.group_name(set.scope, set.group).unwrap_or_default(),
            "labels": set.labels.iter().map(label).collect::<Vec<_>>(),
            "RunnerSetting": {"disableUpdate": set.disable_update},
            "createdOn": set.created.to_string(),
            "runnerJitConfigUrl": format!("_apis/runtime/runnerscalesets/{}/generatejitconfig", set.id),
            "statistics": set.statistics(),
        })
    }

    // === runners ===

    pub(super) fn register_runner(
        &mut self,
        scope: i64,
        set: i64,
        body: &Value,
    ) -> Outcome<(i64, String)> {
        self.scale_set(scope, set)?;
        let name = body["name"].as_str().unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(Refusal::new(400, "ArgumentException", "The name is empty."));
        }
        let key = (scope, name.to_ascii_lowercase());
        if self.runner_names.contains_key(&key) {
            let message = format!("The agent {name} exists already.");
            return Err(Refusal::new(409, "AgentExistsException", message));
        }
        let id = self.next_id();
        let secret = self.uuid();
        self.runner_names.insert(key, id);
        self.note(format!("runner {id} registered: {name}"));
        let runner = RegisteredRunner {
            id,
            name,
            scale_set: set,
            scope,
            secret: secret.clone(),
            online: false,
            job: None,
            news: Arc::default(),
        };
        self.runners.insert(id, runner);
        self.scale_set_mut(scope, set)?.runners.insert(id);
        Ok((id, secret))
    }

    pub(super) fn runner(&self, scope: i64, id: i64) -> Outcome<&RegisteredRunner> {
        let runner = self.runners.get(&id).filter(|runner| runner.scope == scope);
        runner.ok_or_else(|| {
            let message = format!("No agent found with identifier {id}.");
            Refusal::new(404, "AgentNotFoundException", message)
        })
    }

    pub(super) fn find_runner(&self, scope: i64, name: &str) -> Option<&RegisteredRunner> {
        let id = self.runner_names.get(&(scope, name.to_ascii_lowercase()))?;
        self.runners.get(id)
    }

    pub(super) fn remove_runner(&mut self, scope: i64, id: i64) -> Outcome<()> {
        let runner = self.runner(scope, id)?;
        if runner.job.is_some() {
            let message = format!("The agent {} is running a job.", runner.name);
            return Err(Refusal::new(400, "JobStillRunningException", message));
        }
        self.forget_runner(id);
        Ok(())
    }

    fn forget_runner(&mut self, id: i64) {
        let Some(runner) = self.runners.remove(&id) else {
            return;
        };
        let key = (runner.scope, runner.name.to_ascii_lowercase());
        self.runner_names.remove(&key);
        if let Some(set) = self.scale_sets.get_mut(&runner.scale_set) {
            set.runners.remove(&id);
            set.idle.remove(&id);
        }
        runner.news.notify_waiters();
        self.note(format!("runner {id} gone: {}", runner.name));
    }

    /// A runner signs in. The reason for a refusal is a text for people.
    pub(super) fn bring_online(
        &mut self,
        id: i64,
        secret: &str,
        now: Moment,
    ) -> Result<(), &'static str> {
        let used = self.history.contains_key(&id);
        let Some(runner) = self.runners.get_mut(&id) else {
            return Err("the runner's registration is gone");
        };
        if runner.secret != secret {
            return Err("the JIT configuration is not that of the runner");
        }
        if runner.online {
            return Err("the runner is online already");
        }
        if used {
            return Err("the JIT configuration has been used for a job");
        }
        runner.online = true;
        let (set, name) = (runner.scale_set, runner.name.clone());
        if let Some(set) = self.scale_sets.get_mut(&set) {
            set.idle.insert(id);
        }
        self.note(format!("runner {id} online: {name}"));
        self.dispatch(set, now);
        Ok(())
    }

    /// A runner is gone, with or without a word.
    pub(super) fn take_offline(&mut self, id: i64, now: Moment) {
        let due = now.instant + self.durations.lost_runner;
        let Some(runner) = self.runners.get_mut(&id).filter(|runner| runner.online) else {
            return;
        };
        runner.online = false;
        let busy = runner.job.is_some();
        if let Some(set) = self.scale_sets.get_mut(&runner.scale_set) {
            set.idle.remove(&id);
        }
        if busy {
            self.set_timer(due, Timer::LostRunner(id));
        }
        self.note(format!("runner {id} offline"));
    }

    // === jobs ===

    pub(super) fn queue_job(&mut self, mut spec: JobSpec, now: Moment) -> i64 {
        for label in &mut spec.runs_on {
            label.make_ascii_lowercase();
        }
        let id = self.next_id();
        self.note(format!("job {id} queued on {}", spec.runs_on.join(",")));
        let line = self.waiting.entry(spec.runs_on.clone()).or_default();
        line.push_back(id);
        self.jobs.insert(id, Job::new(id, spec, now));
        let sets: Vec<i64> = self.scale_sets.keys().copied().collect();
        for set in sets {
            self.dispatch(set, now);
        }
        id
    }

    /// Puts a job back in front of its line.
    fn queue_again(&mut self, id: i64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.state = JobState::Queued;
            job.scale_set_id = None;
            job.assigned = None;
            let line = self.waiting.entry(job.spec.runs_on.clone()).or_default();
            let place = line.partition_point(|other| *other < id);
            line.insert(place, id);
        }
    }

    /// Ends a job that has not started yet, as a person who cancels it does.
    pub(super) fn cancel(&mut self, id: i64, now: Moment) -> bool {
        let Some(job) = self.jobs.get(&id) else {
            return false;
        };
        match job.state {
            JobState::Completed => return false,
            JobState::Queued => {
                if let Some(line) = self.waiting.get_mut(&job.spec.runs_on) {
                    line.retain(|other| *other != id);
                }
            }
            JobState::Available | JobState::Assigned | JobState::Running => {}
        }
        self.complete(id, "canceled", now);
        true
    }

    /// Ends a job; its runner, which is ephemeral, deregisters itself.
    pub(super) fn complete(&mut self, id: i64, result: &str, now: Moment) {
        let Some((set, runner)) = self.end(id, result, now) else {
            return;
        };
        if let Some(runner) = runner {
            self.forget_runner(runner);
        }
        if let Some(set) = set {
            self.dispatch(set, now);
        }
    }

    fn end(&mut self, id: i64, result: &str, now: Moment) -> Option<(Option<i64>, Option<i64>)> {
        let job = self.jobs.get_mut(&id)?;
        if job.state == JobState::Completed {
            return None;
        }
        let announced = job.state != JobState::Queued;
        job.state = JobState::Completed;
        job.completed = Some(now.time);
        job.result = result.to_owned();
        let ended = (job.scale_set_id, job.runner_id);
        let message = job.message("JobCompleted");
        if let Some(set) = ended.0.and_then(|set| self.scale_sets.get_mut(&set)) {
            set.offered.remove(&id);
            set.assigned.remove(&id);
            set.running.remove(&id);
            if announced {
                set.tell(message);
            }
        }
        self.note(format!("job {id} completed: {result}"));
        Some(ended)
    }

    /// Offers waiting jobs to a scale set, and gives its jobs to its idle runners.
    pub(super) fn dispatch(&mut self, id: i64, now: Moment) {
        while self.offer_one(id, now) {}
        while self.start_one(id, now) {}
    }

    fn offer_one(&mut self, id: i64, now: Moment) -> bool {
        let Some(set) = self.scale_sets.get(&id) else {
            return false;
        };
        if set.session.is_none() || set.load() >= set.capacity {
            return false;
        }
        let Some(scope) = self.scopes.get(&set.scope) else {
            return false;
        };
        let lines = self.waiting.iter().filter(|(on, _)| set.has_all(on));
        let candidates = lines.filter_map(|(on, line)| {
            let mut jobs = line.iter().enumerate();
            let serves = |job: &Job| scope.serves(&job.spec);
            let found = jobs.find(|(_, job)| self.jobs.get(job).is_some_and(serves));
            found.map(|(place, job)| (*job, on.clone(), place))
        });
        let Some((job_id, on, place)) = candidates.min() else {
            return false;
        };
        if let Some(line) = self.waiting.get_mut(&on) {
            line.remove(place);
            if line.is_empty() {
                self.waiting.remove(&on);
            }
        }
        let Some(job) = self.jobs.get_mut(&job_id) else {
            return true;
        };
        job.state = JobState::Available;
        job.scale_set_id = Some(id);
        scope.name_origin(&mut job.spec);
        let message = job.message("JobAvailable");
        let until = now.instant + self.durations.offer;
        if let Some(set) = self.scale_sets.get_mut(&id) {
            set.offered.insert(job_id, until);
            set.tell(message);
        }
        self.set_timer(until, Timer::Offer(job_id));
        self.note(format!("job {job_id} offered to scale set {id}"));
        true
    }

    fn start_one(&mut self, id: i64, now: Moment) -> bool {
        let Some(set) = self.scale_sets.get_mut(&id) else {
            return false;
        };
        let (Some(job_id), Some(runner_id)) = (set.assigned.first(), set.idle.first()) else {
            return false;
        };
        let (job_id, runner_id) = (*job_id, *runner_id);
        set.assigned.remove(&job_id);
        set.idle.remove(&runner_id);
        set.running.insert(job_id);
        let (Some(job), Some(runner)) =
            (self.jobs.get_mut(&job_id), self.runners.get_mut(&runner_id))
        else {
            return true;
        };
        job.state = JobState::Running;
        job.started = Some(now.time);
        job.runner_id = Some(runner_id);
        job.runner_name.clone_from(&runner.name);
        runner.job = Some(job_id);
        runner.news.notify_waiters();
        let note = format!(
            "job {job_id} started on runner {runner_id}: {}",
            runner.name
        );
        set.tell(job.message("JobStarted"));
        self.history.entry(runner_id).or_default().push(job_id);
        self.note(note);
        true
    }

    /// A scale set takes jobs on offer; answers which of them it has.
    pub(super) fn acquire(&mut self, set_id: i64, ids: &[i64], now: Moment) -> Vec<i64> {
        let mut acquired = Vec::new();
        for id in ids {
            let Some(set) = self.scale_sets.get_mut(&set_id) else {
                break;
            };
            let Some(job) = self.jobs.get_mut(id) else {
                continue;
            };
            if set.assigned.contains(id) || set.running.contains(id) {
                acquired.push(*id);
                continue;
            }
            let full = set.demand() >= set.capacity;
            if full || set.offered.remove(id).is_none() {
                continue;
            }
            job.state = JobState::Assigned;
            job.assigned = Some(now.time);
            set.assigned.insert(*id);
            set.tell(job.message("JobAssigned"));
            acquired.push(*id);
            self.note(format!("job {id} acquired by scale set {set_id}"));
        }
        self.dispatch(set_id, now);
        acquired
    }

    // === sessions and queues ===

    pub(super) fn open_session(
        &mut self,
        scope: i64,
        set: i64,
        owner: &str,
        now: Moment,
    ) -> Outcome<String> {
        let idle = self.durations.idle_session;
        let found = self.scale_set(scope, set)?;
        let held = found.session.as_ref().and_then(|id| self.sessions.get(id));
        if let Some(held) = held
            && now.instant.duration_since(held.last_used) < idle
        {
            let message = format!(
                "The runner scale set {} already has an active session for owner {}.",
                found.name, held.owner
            );
            return Err(Refusal::new(
                409,
                "RunnerScaleSetSessionConflictException",
                message,
            ));
        }
        self.close_session_of(set, now);
        let id = self.uuid();
        let session = OpenSession {
            id: id.clone(),
            scale_set: set,
            owner: owner.to_owned(),
            last_used: now.instant,
        };
        self.sessions.insert(id.clone(), session);
        let opened = self.scale_set_mut(scope, set)?;
        opened.session = Some(id.clone());
        opened.capacity = 0;
        self.note(format!("session of scale set {set} opened by {owner}"));
        Ok(id)
    }

    pub(super) fn session(&self, scope: i64, set: i64, id: &str) -> Outcome<&OpenSession> {
        self.scale_set(scope, set)?;
        let session = self.sessions.get(id).filter(|found| found.scale_set == set);
        session.ok_or_else(|| {
            let message = format!("No session found with identifier {id}.");
            Refusal::new(404, "RunnerScaleSetSessionNotFoundException", message)
        })
    }

    /// Closes a scale set's session, if it has one. What was on offer is on offer to others.
    pub(super) fn close_session_of(&mut self, set_id: i64, now: Moment) {
        let Some(set) = self.scale_sets.get_mut(&set_id) else {
            return;
        };
        let Some(session) = set.session.take() else {
            return;
        };
        let offered = std::mem::take(&mut set.offered);
        set.events
            .retain(|event| event["messageType"] != "JobAvailable");
        set.news.notify_waiters();
        self.sessions.remove(&session);
        for job in offered.into_keys() {
            self.queue_again(job);
        }
        self.revoke(|grant| *grant == Grant::Queue(session.clone()));
        self.note(format!("session of scale set {set_id} closed"));
        let others: Vec<i64> = self.scale_sets.keys().copied().collect();
        for other in others.into_iter().filter(|other| *other != set_id) {
            self.dispatch(other, now);
        }
    }

    /// A poll of a queue: the capacity it tells, and the next message, if there is one.
    pub(super) fn poll(
        &mut self,
        session: &str,
        last: i64,
        capacity: Option<i64>,
        now: Moment,
    ) -> Option<Value> {
        let session = self.sessions.get_mut(session)?;
        session.last_used = now.instant;
        let id = session.scale_set;
        self.scale_sets.get_mut(&id)?.capacity = capacity.unwrap_or(i64::MAX);
        self.dispatch(id, now);
        let next = self.last_id + 1;
        let set = self.scale_sets.get_mut(&id)?;
        let known = set.messages.range(last.max(0).saturating_add(1)..).next();
        if let Some((_, message)) = known {
            return Some(message.clone());
        }
        if set.events.is_empty() {
            return None;
        }
        let events = Value::Array(std::mem::take(&mut set.events));
        let message = json!({
            "messageId": next,
            "messageType": "RunnerScaleSetJobMessages",
            "body": events.to_string(),
            "statistics": set.statistics(),
        });
        set.messages.insert(next, message.clone());
        self.last_id = next;
        Some(message)
    }

    pub(super) fn acknowledge(&mut self, set: i64, message: i64) -> bool {
        let set = self.scale_sets.get_mut(&set);
        set.is_some_and(|set| set.messages.remove(&message).is_some())
    }

    /// Puts an element of any kind into the next message.
    pub(super) fn tell(&mut self, set: i64, element: Value) {
        if let Some(set) = self.scale_sets.get_mut(&set) {
            set.tell(element);
        }
    }
}

impl ScaleSet {
    fn tell(&mut self, event: Value) {
        self.events.push(event);
        self.news.notify_waiters();
    }

    /// Jobs it has.
    fn demand(&self) -> i64 {
        (self.assigned.len() + self.running.len()) as i64
    }

    /// Jobs it has or may take.
    fn load(&self) -> i64 {
        self.demand() + self.offered.len() as i64
    }

    fn has_all(&self, runs_on: &[String]) -> bool {
        runs_on.iter().all(|wanted| {
            self.name.eq_ignore_ascii_case(wanted)
                || self
                    .labels
                    .iter()
                    .any(|label| label.eq_ignore_ascii_case(wanted))
        })
    }

    pub(super) fn statistics(&self) -> Value {
        json!({
            "totalAvailableJobs": self.offered.len(),
            "totalAcquiredJobs": 0,
            "totalAssignedJobs": self.demand(),
            "totalRunningJobs": self.running.len(),
            "totalRegisteredRunners": self.runners.len(),
            "totalBusyRunners": self.running.len(),
            "totalIdleRunners": self.idle.len(),
        })
    }
}

impl Scope {
    /// Whether the scope's runners may take the job.
    fn serves(&self, job: &JobSpec) -> bool {
        let fits = |mine: &str, other: &str| {
            mine.is_empty() || other.is_empty() || mine.eq_ignore_ascii_case(other)
        };
        fits(&self.owner, &job.owner) && fits(&self.repository, &job.repository)
    }

    /// Fills in where a job comes from that does not say so.
    fn name_origin(&self, job: &mut JobSpec) {
        let fill = |field: &mut String, mine: &str, other: &str| {
            if field.is_empty() {
                let value = if mine.is_empty() { other } else { mine };
                value.clone_into(field);
            }
        };
        fill(&mut job.owner, &self.owner, "acme");
        fill(&mut job.repository, &self.repository, "widgets");
    }
}

fn scope_key(scope: &ConfigScope) -> String {
    let key = match scope {
        ConfigScope::Enterprise(name) => format!("enterprises/{name}"),
        ConfigScope::Organization(name) => name.clone(),
        ConfigScope::Repository { owner, repository } => format!("{owner}/{repository}"),
    };
    key.to_ascii_lowercase()
}

fn label_names(body: &Value) -> Vec<String> {
    let labels = body["labels"].as_array().into_iter().flatten();
    let names = labels.filter_map(|label| label["name"].as_str());
    names.map(str::to_owned).collect()
}

fn unsigned_jwt(id: i64, expires: Timestamp) -> String {
    use base64::Engine as _;
    let encode =
        |value: Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string());
    let header = encode(json!({"alg": "none", "typ": "JWT"}));
    let claims = encode(json!({"exp": expires.as_second(), "jti": id}));
    format!("{header}.{claims}.simulated")
}
