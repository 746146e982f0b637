//! A simulated runner's side: signing in, taking a job, ending it.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::ActionsService;
use super::jobs::{Job, JobState};

/// Why a runner cannot sign in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the runner cannot sign in: {reason}")]
pub struct SignInRefused {
    /// Why.
    pub reason: &'static str,
}

/// A runner that is online. Dropping it takes it offline without a word, as a lost pod is.
pub struct RunnerHandle {
    service: ActionsService,
    id: i64,
    name: String,
    news: Arc<Notify>,
}

/// The JIT configuration of a runner, encoded. Means nothing to anybody but
/// [`RunnerHandle::sign_in`].
pub(super) fn jit_config(id: i64, name: &str, secret: &str) -> String {
    STANDARD.encode(json!({"agentId": id, "agentName": name, "secret": secret}).to_string())
}

impl RunnerHandle {
    pub(super) fn sign_in(
        service: ActionsService,
        jit_config: &str,
    ) -> Result<Self, SignInRefused> {
        let refused = |reason| SignInRefused { reason };
        let unreadable = || refused("the JIT configuration cannot be read");
        let json = STANDARD
            .decode(jit_config.trim())
            .map_err(|_| unreadable())?;
        let fields: Value = serde_json::from_slice(&json).map_err(|_| unreadable())?;
        let (Some(id), Some(secret)) = (fields["agentId"].as_i64(), fields["secret"].as_str())
        else {
            return Err(unreadable());
        };
        Self::enter(service, id, secret)
    }

    pub(super) fn sign_in_by_id(service: ActionsService, id: i64) -> Result<Self, SignInRefused> {
        let secret = service.read(|world| world.sign_in_secret(id));
        let secret = secret.ok_or(SignInRefused {
            reason: "the runner's registration is gone",
        })?;
        Self::enter(service, id, &secret)
    }

    fn enter(service: ActionsService, id: i64, secret: &str) -> Result<Self, SignInRefused> {
        let signed_in = service.change(|world, now| {
            world.bring_online(id, secret, now)?;
            let runner = world.runners.get(&id);
            runner
                .map(|runner| (runner.name.clone(), Arc::clone(&runner.news)))
                .ok_or("the runner's registration is gone")
        });
        let (name, news) = signed_in.map_err(|reason| SignInRefused { reason })?;
        Ok(Self {
            service,
            id,
            name,
            news,
        })
    }

    /// The runner's id.
    #[must_use]
    pub const fn id(&self) -> i64 {
        self.id
    }

    /// The runner's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits for the runner's job; `None` when its registration was removed meanwhile, after
    /// which a runner ends.
    pub async fn next_job(&self) -> Option<Job> {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let standing = self.service.read(|world| {
                let runner = world.runners.get(&self.id)?;
                Some(runner.job.and_then(|job| world.jobs.get(&job).cloned()))
            });
            match standing {
                None => return None,
                Some(Some(job)) => return Some(job),
                Some(None) => news.await,
            }
        }
    }

    /// Waits until the registration is gone: the job was cancelled, say.
    pub async fn removed(&self) {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if self
                .service
                .read(|world| !world.runners.contains_key(&self.id))
            {
                return;
            }
            news.await;
        }
    }

    /// Waits until the job has ended by the service's word: it was cancelled, say.
    pub async fn job_over(&self, job: &Job) {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let over = self.service.read(|world| {
                let known = world.jobs.get(&job.id);
                !world.runners.contains_key(&self.id)
                    || known.is_none_or(|job| job.state == JobState::Completed)
            });
            if over {
                return;
            }
            news.await;
        }
    }

    /// Ends the runner's job. The runner, being ephemeral, is not registered any more.
    pub fn complete(&self, job: &Job, result: &str) {
        self.service.change(|world, now| {
            let runner = world.runners.get(&self.id);
            if runner.is_some_and(|runner| runner.job == Some(job.id)) {
                world.complete(job.id, result, now);
            }
        });
    }

    /// Does what a runner does: waits for a job, works on it for as long as it takes, ends it, and
    /// cleans up after it. Without one, or with one that is cancelled, it ends when its registration is gone.
    pub async fn work(self) {
        let Some(job) = self.next_job().await else {
            return;
        };
        tokio::select! {
            biased;
            () = sleep(job.spec.duration) => self.complete(&job, &job.spec.result),
            () = self.job_over(&job) => {}
        }
        if !job.spec.cleanup.is_zero() {
            sleep(job.spec.cleanup).await;
            self.service.change(|world, _| world.forget_runner(self.id));
        }
    }

    /// Takes the runner offline. A job it has fails after a while.
    pub fn offline(self) {
        drop(self);
    }
}

impl Drop for RunnerHandle {
    fn drop(&mut self) {
        self.service
            .change(|world, now| world.take_offline(self.id, now));
    }
}

impl fmt::Debug for RunnerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "runner {} {}", self.id, self.name)
    }
}
