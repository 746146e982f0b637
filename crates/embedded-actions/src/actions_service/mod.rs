//! The Actions service: GitHub's side of runner scale sets.
//!
//! It speaks the protocol within the process or on a local port, gives queued jobs to scale sets
//! and to their runners, and refuses, delays or loses whatever it is asked to (see [`Faults`]).
//! Its ids come from counters and its time from the clock it is given, so that two runs with one
//! seed are the same.
//!
//! ```text
//!  client ─► handle ─► answers ─► World ◄─ RunnerHandle (a simulated runner)
//!               │                   └ scale sets, runners, jobs, sessions, queues; no
//!               └ routes, faults      waiting, no HTTP
//! ```

mod admin;
mod answers;
mod asked;
mod faults;
mod handle;
mod jobs;
mod mangling;
mod named;
mod routes;
mod runner;
mod scope;
mod serve;
mod world;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use admin::ADMIN;
pub use faults::{CallInfo, Fault, Faults, Interceptor, Outcome, Refusal, Standing};
pub use jobs::{Job, JobSpec, JobState};
pub use mangling::Mangling;
pub use named::NamedFault;
pub use routes::CALLS;
pub use runner::{RunnerHandle, SignInRefused};
pub use serve::Lost;
pub use world::{App, BadKey, Durations};
use world::{Grant, Moment, World};

use wall_clock::Clock;

/// Is told what happens, a line at a time.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// What a service is made with.
#[derive(Clone)]
pub struct Options {
    /// Wall time. To be another one than that of the cluster, if that one's clock is to jump.
    pub clock: Clock,
    /// Goes into ids, so that runs with different seeds can be told apart.
    pub seed: u64,
    /// How long things last.
    pub durations: Durations,
    /// Is told one line for everything that happens.
    pub log: Option<Log>,
    /// Decides what goes wrong, after [`ActionsService::faults`] had their say.
    pub interceptor: Option<Arc<dyn Interceptor>>,
}

impl Options {
    /// Options with the usual values.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            seed: 0,
            durations: Durations::default(),
            log: None,
            interceptor: None,
        }
    }
}

/// The service. Clones are the same service.
#[derive(Clone)]
pub struct ActionsService(Arc<Shared>);

struct Shared {
    clock: Clock,
    world: Mutex<World>,
    log: Option<Log>,
    faults: Faults,
    interceptor: Option<Arc<dyn Interceptor>>,
    /// Wakes who waits for anything to happen.
    changed: Notify,
}

/// A scale set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleSetInfo {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Whose it is: `acme`, `acme/widgets` or `enterprises/big`, in lower case.
    pub scope: String,
    /// Its runner group's id.
    pub group_id: i64,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// Whether its runners do not update themselves.
    pub disable_update: bool,
    /// Its jobs and runners.
    pub statistics: Statistics,
    /// Most jobs at one time, as the last poll of its queue announced.
    pub capacity: i64,
}

/// The jobs and runners of a scale set, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Jobs on offer, taken by nobody yet.
    #[serde(rename = "totalAvailableJobs")]
    pub available_jobs: usize,
    /// Jobs taken by the scale set and not yet assigned to it.
    #[serde(rename = "totalAcquiredJobs")]
    pub acquired_jobs: usize,
    /// Jobs assigned to the scale set, running or not.
    #[serde(rename = "totalAssignedJobs")]
    pub assigned_jobs: usize,
    /// Jobs that run.
    #[serde(rename = "totalRunningJobs")]
    pub running_jobs: usize,
    /// Runners that are registered.
    #[serde(rename = "totalRegisteredRunners")]
    pub registered_runners: usize,
    /// Runners with a job.
    #[serde(rename = "totalBusyRunners")]
    pub busy_runners: usize,
    /// Runners that are online and without a job.
    #[serde(rename = "totalIdleRunners")]
    pub idle_runners: usize,
}

/// A registered runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerInfo {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its scale set.
    pub scale_set_id: i64,
    /// Whether it is signed in.
    pub online: bool,
    /// The job it runs.
    pub job: Option<i64>,
}

/// An open message session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its id.
    pub id: String,
    /// Its scale set.
    pub scale_set_id: i64,
    /// Who holds it.
    pub owner: String,
}

impl ActionsService {
    /// A service without scale sets and jobs.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self(Arc::new(Shared {
            clock: options.clock,
            world: Mutex::new(World::new(options.seed, options.durations)),
            log: options.log,
            faults: Faults::of(&CALLS),
            interceptor: options.interceptor,
            changed: Notify::new(),
        }))
    }

    /// Where to ask for things to go wrong.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    // === what a person does ===

    /// Queues a job; answers its id.
    pub fn queue_job(&self, spec: JobSpec) -> i64 {
        self.change(|world, now| world.queue_job(spec, now))
    }

    /// Cancels a job; answers whether it had not ended yet.
    pub fn cancel_job(&self, id: i64) -> bool {
        self.change(|world, now| world.finish(id, "canceled", now))
    }

    /// Adds a runner group; answers its id. The group `default` with id 1 is always there.
    pub fn add_runner_group(&self, name: &str) -> i64 {
        self.change(|world, _| world.add_group(name))
    }

    /// From now on, only these personal access tokens are accepted, and tenant tokens got
    /// with others are not any more.
    pub fn accept_only<S: Into<String>>(&self, tokens: impl IntoIterator<Item = S>) {
        let tokens: BTreeSet<String> = tokens.into_iter().map(Into::into).collect();
        self.change(|world, _| {
            world.accepted = Some(tokens);
            world.revoke(|grant| matches!(grant, Grant::Tenant(_)));
        });
    }

    /// Makes an App known. Once one is, only those are accepted that are.
    pub fn add_app(&self, app: App) {
        self.change(|world, _| world.apps.get_or_insert_default().push(app));
    }

    /// From now on, no App is accepted but those that are made known.
    pub fn accept_no_app(&self) {
        self.change(|world, _| world.apps = Some(Vec::new()));
    }

    /// Makes things last longer or shorter; what has begun ends as it would have.
    pub fn set_durations(&self, change: impl FnOnce(&mut Durations)) {
        self.change(|world, _| change(&mut world.durations));
    }

    /// Makes all tenant tokens invalid before their time.
    pub fn expire_tenant_tokens(&self) {
        self.change(|world, _| world.revoke(|grant| matches!(grant, Grant::Tenant(_))));
    }

    /// Makes the tokens of all queues invalid before their time.
    pub fn expire_queue_tokens(&self) {
        self.change(|world, _| {
            world.revoke(|grant| matches!(grant, Grant::Queue(_)));
            for set in world.scale_sets.values() {
                set.news.notify_waiters();
            }
        });
    }

    /// Forgets all sessions, as a service that was restarted does.
    pub fn drop_sessions(&self) {
        self.change(|world, now| {
            let sets: Vec<i64> = world.scale_sets.keys().copied().collect();
            for set in sets {
                world.close_session_of(set, now);
            }
        });
    }

    /// Puts an element of any kind into a scale set's next message.
    pub fn tell(&self, scale_set_id: i64, element: Value) {
        self.change(|world, _| world.tell(scale_set_id, element));
    }

    /// Delivers a scale set's latest message once more, acknowledged or not.
    pub fn deliver_again(&self, scale_set_id: i64) {
        self.change(|world, _| world.deliver_again(scale_set_id));
    }

    /// Whether queues deliver what is not acknowledged again and again, whatever the cursor
    /// of a poll.
    pub fn redeliver_until_acknowledged(&self, on: bool) {
        self.change(|world, _| world.ignores_cursor = on);
    }

    /// From now on, this is told in place of a scale set's statistics, null or not; `None`
    /// goes back to the truth.
    pub fn pretend_statistics(&self, scale_set_id: i64, statistics: Option<Value>) {
        self.change(|world, _| world.pretend(scale_set_id, statistics));
    }

    /// From now on, every secret that is given out or shown is written down.
    pub fn keep_secrets(&self) {
        self.change(|world, _| {
            world.secrets.get_or_insert_default();
        });
    }

    /// The secrets that were written down.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        self.read(|world| world.secrets.iter().flatten().cloned().collect())
    }

    // === what a runner does ===

    /// A runner signs in with its JIT configuration, as the text in its environment gives it.
    ///
    /// # Errors
    ///
    /// When the text is not one, when its runner is not registered (any more) or online, or
    /// when it has been used for a job.
    pub fn runner_online(&self, jit_config: &str) -> Result<RunnerHandle, SignInRefused> {
        RunnerHandle::sign_in(self.clone(), jit_config)
    }

    /// A registered runner signs in, without anybody having to hand its JIT configuration over.
    ///
    /// # Errors
    ///
    /// As [`runner_online`](Self::runner_online).
    pub fn start_runner(&self, runner_id: i64) -> Result<RunnerHandle, SignInRefused> {
        RunnerHandle::sign_in_by_id(self.clone(), runner_id)
    }

    /// Ends a job, as its runner does, which is deregistered then; answers whether it had not
    /// ended yet.
    pub fn complete_job(&self, id: i64, result: &str) -> bool {
        self.change(|world, now| world.finish(id, result, now))
    }

    /// A runner signs off for good, as one does that has done its job.
    pub fn deregister(&self, runner_id: i64) {
        self.change(|world, _| world.forget_runner(runner_id));
    }

    // === what there is ===

    /// All jobs, in the order of their queueing.
    #[must_use]
    pub fn jobs(&self) -> Vec<Job> {
        self.read(|world| world.jobs.values().cloned().collect())
    }

    /// A job.
    #[must_use]
    pub fn job(&self, id: i64) -> Option<Job> {
        self.read(|world| world.jobs.get(&id).cloned())
    }

    /// All registered runners, in the order of their registration.
    #[must_use]
    pub fn runners(&self) -> Vec<RunnerInfo> {
        self.read(|world| {
            let runners = world.runners.values();
            let info = runners.map(|runner| RunnerInfo {
                id: runner.id,
                name: runner.name.clone(),
                scale_set_id: runner.scale_set,
                online: runner.online,
                job: runner.job,
            });
            info.collect()
        })
    }

    /// All scale sets, in the order of their creation.
    #[must_use]
    pub fn scale_sets(&self) -> Vec<ScaleSetInfo> {
        self.read(|world| {
            let sets = world.scale_sets.values();
            let info = sets.map(|set| ScaleSetInfo {
                id: set.id,
                name: set.name.clone(),
                scope: world.scope_name(set.scope).to_owned(),
                group_id: set.group,
                labels: set.labels.clone(),
                disable_update: set.disable_update,
                statistics: set.counts(),
                capacity: set.capacity,
            });
            info.collect()
        })
    }

    /// All open sessions.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.read(|world| {
            let sessions = world.sessions.values();
            let info = sessions.map(|session| SessionInfo {
                id: session.id.clone(),
                scale_set_id: session.scale_set,
                owner: session.owner.clone(),
            });
            info.collect()
        })
    }

    /// Runners that were given more than one job, with these: there must be none.
    #[must_use]
    pub fn runners_with_several_jobs(&self) -> Vec<(i64, Vec<i64>)> {
        self.read(|world| {
            let history = world.history.iter();
            let several = history.filter(|(_, jobs)| jobs.len() > 1);
            several.map(|(id, jobs)| (*id, jobs.clone())).collect()
        })
    }

    /// Waits until the condition holds. It is looked at again whenever something happens.
    pub async fn until(&self, condition: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if condition(self) {
                return;
            }
            match self.read(World::next_due) {
                Some(due) => {
                    let _ = tokio::time::timeout_at(due, changed).await;
                }
                None => changed.await,
            }
        }
    }

    // === how the world is reached ===

    fn now(&self) -> Moment {
        Moment {
            instant: Instant::now(),
            time: self.0.clock.now(),
        }
    }

    /// Changes the world, after what has come due, and tells everyone who waits.
    fn change<T>(&self, change: impl FnOnce(&mut World, Moment) -> T) -> T {
        let now = self.now();
        let mut world = self.lock();
        world.advance(now);
        let answer = change(&mut world, now);
        self.publish(world);
        answer
    }

    fn read<T>(&self, read: impl FnOnce(&World) -> T) -> T {
        let mut world = self.lock();
        world.advance(self.now());
        let answer = read(&world);
        self.publish(world);
        answer
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.0.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs what happened, and wakes who waits for it.
    fn publish(&self, mut world: MutexGuard<'_, World>) {
        let notes = std::mem::take(&mut world.notes);
        drop(world);
        for note in &notes {
            self.log(note);
        }
        if !notes.is_empty() {
            self.0.changed.notify_waiters();
        }
    }

    fn log(&self, line: &str) {
        if let Some(log) = &self.0.log {
            log(&format!("actions: {line}"));
        }
    }
}

impl fmt::Debug for ActionsService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActionsService").finish_non_exhaustive()
    }
}
