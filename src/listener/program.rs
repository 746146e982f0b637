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
use crate::api::constants::SCALE_SET_GONE_EXIT_CODE;
use crate::clock::Clock;

/// How long the deletion of the session may take at the end.
const CLOSING: Duration = Duration::from_secs(15);
/// How long one try may take, with the repetitions that the client makes by itself. What is done
/// for a message holds up the target or the next poll, and what has no answer for longer than
/// [`super::health::LIVENESS_LIMIT`] would look dead.
const OPENING: Duration = Duration::from_secs(120);
const ACQUIRING: Duration = Duration::from_secs(20);
const RECORDING: Duration = Duration::from_secs(30);
const ACKNOWLEDGING: Duration = Duration::from_secs(30);

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
    /// The service has said several times that it does not know the scale set.
    #[error(
        "runner_scale_set_id {id}: the scale set does not exist in GitHub any more; the controller \
         registers it again and replaces this listener: {problem}"
    )]
    ScaleSetGone {
        /// The scale set's id.
        id: i64,
        /// What the service said.
        problem: String,
    },
}

impl ListenerError {
    /// The exit code by which the controller knows what to do.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Unusable(_) => 1,
            Self::ScaleSetGone { .. } => SCALE_SET_GONE_EXIT_CODE,
        }
    }

    fn of(failure: Failure, id: i64) -> Self {
        match failure.kind {
            FailureKind::ScaleSetNotFound => Self::ScaleSetGone {
                id,
                problem: failure.message,
            },
            _ => Self::Unusable(failure.message),
        }
    }
}

/// Listens until `shutdown` ends: then the message in hand is finished and the session
/// deleted. Nothing else that the service or the API server answers ends the program than that
/// the configuration is of no use.
///
/// # Errors
///
/// When the configuration is not usable, or names a scale set that does not exist (any more).
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
    let narrator = Narrator::new(env.metrics.clone(), env.hostname.clone());
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
                Some(failure) => Err(ListenerError::of(failure, id)),
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
        if matches!(
            outcome,
            Outcome::Polled(..) | Outcome::Opened(_) | Outcome::Refreshed(_)
        ) {
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
                    .call(|client| async move { client.open_session(set, owner).await });
                let opened = answered(OPENING, opened).await;
                Outcome::Opened(opened.map(|session| self.keep(session)))
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
                    let acquired = self.access.call(|client| async move {
                        client.acquire_jobs(set, session, requests).await
                    });
                    answered(ACQUIRING, acquired).await
                }
                None => Err(no_session()),
            }),
            Task::Record(records) => {
                let count = records.len();
                let recorded = timeout(RECORDING, self.recorder.record(records)).await;
                // what was written nevertheless is found so at the next try
                Outcome::Recorded(
                    recorded.unwrap_or_else(|_| vec![Err(unanswered(RECORDING)); count]),
                )
            }
            Task::Acknowledge(id) => Outcome::Acknowledged(match &self.session {
                Some(session) => {
                    let acknowledged = self
                        .access
                        .call(|client| async move { client.delete_message(session, id).await });
                    answered(ACKNOWLEDGING, acknowledged).await
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

    fn keep(&mut self, session: actions::Session) -> Option<actions::Statistics> {
        self.session.insert(session).statistics
    }

    async fn refresh(&mut self) -> Result<Option<actions::Statistics>, Failure> {
        let Some(session) = &self.session else {
            return Err(no_session());
        };
        let (set, id) = (self.scale_set, &session.id);
        let refreshed = self
            .access
            .call(|client| async move { client.refresh_session(set, id).await });
        let refreshed = answered(OPENING, refreshed).await?;
        Ok(self.keep(refreshed))
    }

    async fn close(&mut self) -> Result<(), Failure> {
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        let (set, id) = (self.scale_set, &session.id);
        let deleted = self
            .access
            .call(|client| async move { client.delete_session(set, id).await });
        answered(CLOSING, deleted).await
    }
}

/// The call's answer, if it comes in time.
async fn answered<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    timeout(limit, call)
        .await
        .unwrap_or_else(|_| Err(unanswered(limit)))
}

fn unanswered(limit: Duration) -> Failure {
    Failure::new(
        FailureKind::Unavailable,
        format!("no answer within {} s", limit.as_secs()),
    )
}

/// Asks for a new one; the state machine does not let it come to this.
fn no_session() -> Failure {
    Failure::new(FailureKind::SessionNotFound, "no session is open")
}
