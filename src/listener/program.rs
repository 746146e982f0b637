//! Runs the program: carries out one task after the other, and tells metrics and log what
//! happened. Decides nothing.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::access::Access;
use super::config::{ConfigError, Settings};
use super::failure::{Failure, FailureKind};
use super::health::Health;
use super::metrics::ListenerMetrics;
use super::narrator::Narrator;
use super::recorder::Recorder;
use super::session::{Outcome, Session, Stop, Task};
use crate::actions::{self, Proxies, Transports};
use crate::api::ListenerConfig;
use crate::clock::Clock;

/// How long the deletion of the session may take at the end.
const CLOSING: Duration = Duration::from_secs(15);

/// What the program finds around it.
pub struct ListenerEnv {
    /// The API server.
    pub kube: kube::Client,
    /// Ways to the Actions service.
    pub transports: Arc<dyn Transports>,
    /// Proxies on those ways.
    pub proxies: Proxies,
    /// Wall time.
    pub clock: Clock,
    /// Who holds the session: the pod's host name.
    pub hostname: String,
    /// Version of this program.
    pub version: String,
    /// Treats every host as a GitHub Enterprise Server (`GITHUB_ACTIONS_FORCE_GHES`).
    pub force_ghes: bool,
    /// Where to count.
    pub metrics: Arc<ListenerMetrics>,
    /// Where to give signs of life.
    pub health: Arc<Health>,
}

/// Why the program cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenerError {
    /// The configuration is not usable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration is sound in form, and cannot be used as it is: a root certificate
    /// that is none, say.
    #[error("the listener's configuration cannot be used: {0}")]
    Unusable(String),
}

/// Listens until `shutdown` ends: then the message in hand is finished and the session
/// deleted. Nothing that the service or the API server answers ends the program.
///
/// # Errors
///
/// When the configuration is not usable.
pub async fn run(
    config: ListenerConfig,
    env: ListenerEnv,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ListenerError> {
    let settings = Settings::resolve(&config)?;
    // the settings hold all of it from here on
    drop(config);
    let (min, max, id) = (
        settings.min_runners,
        settings.max_runners,
        settings.scale_set_id,
    );
    tracing::info!(
        url = %settings.url,
        scale_set_id = id,
        namespace = %settings.namespace,
        runner_set = %settings.runner_set,
        min_runners = min,
        max_runners = max,
        version = %env.version,
        "listener starts"
    );
    let narrator = Narrator::new(env.metrics.clone());
    let health = env.health.clone();
    let access = Arc::new(Access::new(&settings, &env)?);
    let mut keeping_up = pin!(access.keep_up());
    let mut hands = Hands::new(settings, env, Arc::clone(&access));
    let mut session = Session::new(min, max, id);
    let mut shutdown = pin!(shutdown);
    let mut stopping = false;
    let began = Instant::now();

    let mut step = session.start(began.elapsed());
    loop {
        narrator.tell(step.notes);
        let closing = matches!(step.task, Task::Close);
        health.set_ready(session.is_open() && !closing);
        if let Task::End(reason) = step.task {
            return match reason {
                None => Ok(()),
                Some(failure) => Err(ListenerError::Unusable(failure.message)),
            };
        }
        let outcome = {
            let limit = session.time_left(began.elapsed());
            let mut work = pin!(hands.perform(step.task));
            let stopped = async {
                if stopping {
                    std::future::pending().await
                }
                shutdown.as_mut().await;
            };
            tokio::select! {
                biased;
                outcome = within(limit, work.as_mut()) => outcome,
                never = keeping_up.as_mut() => match never {},
                () = stopped => {
                    stopping = true;
                    tracing::info!("listener was told to stop");
                    match session.stop(began.elapsed()) {
                        Stop::Drop => Outcome::Dropped,
                        Stop::Await(limit) => within(Some(limit), work).await,
                    }
                }
            }
        };
        if matches!(outcome, Outcome::Polled(..) | Outcome::Opened(_)) {
            health.turned();
        }
        step = session.step(began.elapsed(), outcome);
    }
}

async fn within(limit: Option<Duration>, work: impl Future<Output = Outcome>) -> Outcome {
    match limit {
        Some(limit) => timeout(limit, work).await.unwrap_or(Outcome::Dropped),
        None => work.await,
    }
}

/// What tasks are carried out with.
struct Hands {
    access: Arc<Access>,
    recorder: Recorder,
    scale_set: i64,
    owner: String,
    session: Option<actions::Session>,
}

impl Hands {
    fn new(settings: Settings, env: ListenerEnv, access: Arc<Access>) -> Self {
        Self {
            access,
            recorder: Recorder::new(
                &env.kube,
                &settings.namespace,
                &settings.runner_set,
                env.clock,
            ),
            scale_set: settings.scale_set_id,
            owner: env.hostname,
            session: None,
        }
    }

    async fn perform(&mut self, task: Task) -> Outcome {
        let set = self.scale_set;
        match task {
            Task::Open => {
                // of one that the service says it does not know it may know enough to hold it
                // against the next
                if let Err(failure) = self.close().await {
                    tracing::debug!(error = %failure, "the session before is gone");
                }
                let owner = &self.owner;
                let opened = self
                    .access
                    .call(|client| async move { client.open_session(set, owner).await })
                    .await;
                Outcome::Opened(self.keep(opened))
            }
            Task::Refresh => Outcome::Refreshed(self.refresh().await),
            Task::Publish(publication) => {
                Outcome::Published(self.recorder.publish(publication).await)
            }
            Task::Poll { after, capacity } => {
                let began = Instant::now();
                let Some(session) = &self.session else {
                    return Outcome::Polled(Err(no_session()), Duration::ZERO);
                };
                let polled = self.access.call(|client| async move {
                    client.get_message(session, after, capacity).await
                });
                Outcome::Polled(polled.await, began.elapsed())
            }
            Task::Acquire(requests) => Outcome::Acquired(match &self.session {
                Some(session) => {
                    let requests = &requests;
                    self.access
                        .call(|client| async move {
                            client.acquire_jobs(set, session, requests).await
                        })
                        .await
                }
                None => Err(no_session()),
            }),
            Task::Record(records) => Outcome::Recorded(self.recorder.record(records).await),
            Task::Acknowledge(id) => Outcome::Acknowledged(match &self.session {
                Some(session) => {
                    self.access
                        .call(|client| async move { client.delete_message(session, id).await })
                        .await
                }
                None => Err(no_session()),
            }),
            Task::Wait(duration) => {
                sleep(duration).await;
                Outcome::Waited
            }
            Task::Close => Outcome::Closed(self.close().await),
            // the loop ends before it is performed
            Task::End(_) => Outcome::Waited,
        }
    }

    fn keep(
        &mut self,
        result: Result<actions::Session, Failure>,
    ) -> Result<Option<actions::Statistics>, Failure> {
        let session = result?;
        let statistics = session.statistics;
        self.session = Some(session);
        Ok(statistics)
    }

    async fn refresh(&mut self) -> Result<Option<actions::Statistics>, Failure> {
        let Some(session) = &self.session else {
            return Err(no_session());
        };
        let (set, id) = (self.scale_set, &session.id);
        let refreshed = self
            .access
            .call(|client| async move { client.refresh_session(set, id).await })
            .await;
        self.keep(refreshed)
    }

    async fn close(&mut self) -> Result<(), Failure> {
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        let (set, id) = (self.scale_set, &session.id);
        let deleted = self
            .access
            .call(|client| async move { client.delete_session(set, id).await });
        match timeout(CLOSING, deleted).await {
            Ok(result) => result,
            Err(_) => Err(Failure::new(
                FailureKind::Unavailable,
                format!("no answer within {} s", CLOSING.as_secs()),
            )),
        }
    }
}

/// Asks for a new one; the state machine does not let it come to this.
fn no_session() -> Failure {
    Failure::new(FailureKind::SessionNotFound, "no session is open")
}
