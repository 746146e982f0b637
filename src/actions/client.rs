//! The calls of the protocol, as methods.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use url::Url;

use super::error::{Error, ErrorKind, Ids, without_bom};
use super::exchange::{Deadline, Exchange, Sender};
use super::options::ClientOptions;
use super::session::{Polled, Session};
use super::tokens::{TenantToken, Tokens};
use super::transport::Transport;
use super::wire::{self, List, WireGroup, WireJit, WireRunner, WireScaleSet, WireSession};
use crate::clock::Clock;
use crate::messages::{ActionsAnswer, ActionsCall, JitConfig, Runner, RunnerGroup, RunnerScaleSet};

const API_VERSION: &str = "6.0-preview";
const QUEUE_ACCEPT: &str = "application/json; api-version=6.0-preview";
const GROUPS: &str = "_apis/runtime/runnergroups/";
const SCALE_SETS: &str = "_apis/runtime/runnerscalesets";
const RUNNERS: &str = "_apis/distributedtask/pools/0/agents";

/// A client for one config URL and one set of credentials. To be shared: calls run
/// concurrently up to a limit, and use one tenant token.
///
/// Every call is over within 60 s (a poll of the queue: 90 s), retries, their waits and a new
/// token included; only the wait for its turn, when many calls are in flight, is not counted.
/// A call that met 429, 5xx or a broken connection is repeated up to four times; one that was
/// not answered in time is not, and may have taken effect. A poll is sent once, and so are the calls
/// about a runner: who asks for these asks again, ever more rarely.
pub struct Client {
    sender: Sender,
    tokens: Tokens,
}

impl Client {
    /// A client; nothing is sent before the first call.
    ///
    /// # Errors
    ///
    /// When the private key of a GitHub App is not usable.
    pub fn new(
        options: ClientOptions,
        transport: Arc<dyn Transport>,
        clock: Clock,
    ) -> Result<Self, Error> {
        Ok(Self {
            sender: Sender {
                transport,
                clock,
                permits: Semaphore::new(options.concurrency.max(1)),
                observer: options.observer,
                user_agent: options.user_agent.header(),
            },
            tokens: Tokens::new(options.url, options.credentials, options.force_ghes)?,
        })
    }

    /// Runs an actor's call.
    ///
    /// # Errors
    ///
    /// As the method that the call stands for.
    pub async fn run(&self, call: &ActionsCall) -> Result<ActionsAnswer, Error> {
        Ok(match call {
            ActionsCall::GetRunnerGroup { name } => {
                ActionsAnswer::Group(self.get_runner_group(name).await?)
            }
            ActionsCall::FindScaleSet { group_id, name } => {
                ActionsAnswer::ScaleSet(self.find_scale_set(*group_id, name).await?)
            }
            ActionsCall::GetScaleSet { id } => {
                ActionsAnswer::ScaleSet(self.get_scale_set(*id).await?)
            }
            ActionsCall::CreateScaleSet {
                name,
                group_id,
                labels,
            } => {
                let set = self.create_scale_set(name, *group_id, labels).await?;
                ActionsAnswer::ScaleSet(Some(set))
            }
            ActionsCall::UpdateScaleSet {
                id,
                name,
                group_id,
                labels,
            } => {
                let set = self.update_scale_set(*id, name, *group_id, labels).await?;
                ActionsAnswer::ScaleSet(Some(set))
            }
            ActionsCall::DeleteScaleSet { id } => {
                self.delete_scale_set(*id).await?;
                ActionsAnswer::Done
            }
            ActionsCall::GenerateJitConfig {
                scale_set_id,
                name,
                work_folder,
            } => {
                let jit = self.generate_jit_config(*scale_set_id, name, work_folder);
                ActionsAnswer::Jit(jit.await?)
            }
            ActionsCall::FindRunner { name } => {
                ActionsAnswer::Runner(self.find_runner(name).await?)
            }
            ActionsCall::RemoveRunner { id } => {
                self.remove_runner(*id).await?;
                ActionsAnswer::Done
            }
        })
    }

    /// Looks a runner group up by name, whatever its case.
    ///
    /// # Errors
    ///
    /// `GroupNotFound` when there is none.
    pub async fn get_runner_group(&self, name: &str) -> Result<RunnerGroup, Error> {
        const CALL: &str = "get_runner_group";
        let path = path(GROUPS, &[]).query("groupName", name);
        let response = self.call(CALL, Method::GET, path, None).await?;
        let groups: List<WireGroup> = wire::read(CALL, &response)?;
        let mut groups = groups.into_vec().into_iter().map(RunnerGroup::from);
        groups
            .find(|group| group.name.eq_ignore_ascii_case(name))
            .ok_or_else(|| {
                let message = format!(
                    "there is no runner group \"{name}\"; create it or correct runnerGroup"
                );
                Error::about(ErrorKind::GroupNotFound, CALL, &response, message)
            })
    }

    /// Looks a scale set up by name, whatever its case, in a runner group.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub async fn find_scale_set(
        &self,
        group_id: i64,
        name: &str,
    ) -> Result<Option<RunnerScaleSet>, Error> {
        const CALL: &str = "find_scale_set";
        let path = path(SCALE_SETS, &[])
            .query("runnerGroupId", &group_id.to_string())
            .query("name", name);
        let response = self.call(CALL, Method::GET, path, None).await?;
        let sets: List<WireScaleSet> = wire::read(CALL, &response)?;
        let mut sets = sets.into_vec().into_iter().map(RunnerScaleSet::from);
        Ok(sets.find(|set| set.name.eq_ignore_ascii_case(name)))
    }

    /// Reads a scale set; `None` when there is none of this id.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub async fn get_scale_set(&self, id: i64) -> Result<Option<RunnerScaleSet>, Error> {
        const CALL: &str = "get_scale_set";
        let path = path(SCALE_SETS, &[&id.to_string()]);
        match self.call(CALL, Method::GET, path, None).await {
            Ok(response) => Ok(Some(wire::read::<WireScaleSet>(CALL, &response)?.into())),
            Err(error) if is_missing(&error, ErrorKind::ScaleSetNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a scale set with labels of type `System`, its runners not updating themselves.
    ///
    /// # Errors
    ///
    /// When the call fails, as it does when the name is taken.
    pub async fn create_scale_set(
        &self,
        name: &str,
        group_id: i64,
        labels: &[String],
    ) -> Result<RunnerScaleSet, Error> {
        const CALL: &str = "create_scale_set";
        let body = wire::scale_set_body(name, group_id, labels);
        let path = path(SCALE_SETS, &[]);
        let response = self.call(CALL, Method::POST, path, Some(&body)).await?;
        Ok(wire::read::<WireScaleSet>(CALL, &response)?.into())
    }

    /// Changes a scale set.
    ///
    /// # Errors
    ///
    /// `ScaleSetNotFound` when there is none of this id.
    pub async fn update_scale_set(
        &self,
        id: i64,
        name: &str,
        group_id: i64,
        labels: &[String],
    ) -> Result<RunnerScaleSet, Error> {
        const CALL: &str = "update_scale_set";
        let body = wire::scale_set_body(name, group_id, labels);
        let path = path(SCALE_SETS, &[&id.to_string()]);
        let sent = self.call(CALL, Method::PATCH, path, Some(&body)).await;
        let response = sent.map_err(scale_set_not_found)?;
        Ok(wire::read::<WireScaleSet>(CALL, &response)?.into())
    }

    /// Deletes a scale set; one that is gone already counts as deleted.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub async fn delete_scale_set(&self, id: i64) -> Result<(), Error> {
        let path = path(SCALE_SETS, &[&id.to_string()]);
        match self
            .call("delete_scale_set", Method::DELETE, path, None)
            .await
        {
            Err(error) if !is_missing(&error, ErrorKind::ScaleSetNotFound) => Err(error),
            _ => Ok(()),
        }
    }

    /// Registers a runner. An empty work folder leaves it to the runner.
    ///
    /// # Errors
    ///
    /// `RunnerExists` when the name is taken, `ScaleSetNotFound` when there is no such scale
    /// set.
    pub async fn generate_jit_config(
        &self,
        scale_set_id: i64,
        name: &str,
        work_folder: &str,
    ) -> Result<JitConfig, Error> {
        const CALL: &str = "generate_jit_config";
        let body = if work_folder.is_empty() {
            json!({"name": name})
        } else {
            json!({"name": name, "workFolder": work_folder})
        };
        let path = path(
            SCALE_SETS,
            &[&scale_set_id.to_string(), "generatejitconfig"],
        );
        let sent = self.call_once(CALL, Method::POST, path, Some(&body)).await;
        let response = sent.map_err(scale_set_not_found)?;
        Ok(wire::read::<WireJit>(CALL, &response)?.into())
    }

    /// Reads a runner; `None` when there is none of this id.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub async fn get_runner(&self, id: i64) -> Result<Option<Runner>, Error> {
        const CALL: &str = "get_runner";
        let path = path(RUNNERS, &[&id.to_string()]);
        match self.call_once(CALL, Method::GET, path, None).await {
            Ok(response) => Ok(Some(wire::read::<WireRunner>(CALL, &response)?.into())),
            Err(error) if is_missing(&error, ErrorKind::RunnerNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Looks a runner up by name, whatever its case.
    ///
    /// # Errors
    ///
    /// When the call fails.
    pub async fn find_runner(&self, name: &str) -> Result<Option<Runner>, Error> {
        const CALL: &str = "find_runner";
        let path = path(RUNNERS, &[]).query("agentName", name);
        let response = self.call_once(CALL, Method::GET, path, None).await?;
        let runners: List<WireRunner> = wire::read(CALL, &response)?;
        let mut runners = runners.into_vec().into_iter().map(Runner::from);
        Ok(runners.find(|runner| runner.name.eq_ignore_ascii_case(name)))
    }

    /// Removes a runner's registration.
    ///
    /// # Errors
    ///
    /// `RunnerNotFound` when there is none of this id, `JobStillRunning` when it has a job.
    pub async fn remove_runner(&self, id: i64) -> Result<(), Error> {
        let path = path(RUNNERS, &[&id.to_string()]);
        let sent = self
            .call_once("remove_runner", Method::DELETE, path, None)
            .await;
        sent.map(drop).map_err(|mut error| {
            if is_missing(&error, ErrorKind::RunnerNotFound) {
                error.kind = ErrorKind::RunnerNotFound;
            }
            error
        })
    }

    /// Opens the message session of a scale set.
    ///
    /// # Errors
    ///
    /// `SessionConflict` when another is open; its message says who holds it.
    pub async fn open_session(&self, scale_set_id: i64, owner: &str) -> Result<Session, Error> {
        const CALL: &str = "open_session";
        let path = path(SCALE_SETS, &[&scale_set_id.to_string(), "sessions"]);
        let body = json!({"ownerName": owner});
        let sent = self.call(CALL, Method::POST, path, Some(&body)).await;
        let response = sent.map_err(|mut error| {
            if error.status == Some(409) {
                error.kind = ErrorKind::SessionConflict;
            }
            scale_set_not_found(error)
        })?;
        Ok(wire::read::<WireSession>(CALL, &response)?.into())
    }

    /// Gets a new token for a session's queue.
    ///
    /// # Errors
    ///
    /// `SessionNotFound` when the service does not know the session any more.
    pub async fn refresh_session(
        &self,
        scale_set_id: i64,
        session_id: &str,
    ) -> Result<Session, Error> {
        const CALL: &str = "refresh_session";
        let path = path(
            SCALE_SETS,
            &[&scale_set_id.to_string(), "sessions", session_id],
        );
        let sent = self.call(CALL, Method::PATCH, path, None).await;
        let response = sent.map_err(session_not_found)?;
        Ok(wire::read::<WireSession>(CALL, &response)?.into())
    }

    /// Closes a session.
    ///
    /// # Errors
    ///
    /// `SessionNotFound` when it is closed already.
    pub async fn delete_session(&self, scale_set_id: i64, session_id: &str) -> Result<(), Error> {
        let path = path(
            SCALE_SETS,
            &[&scale_set_id.to_string(), "sessions", session_id],
        );
        let sent = self
            .call("delete_session", Method::DELETE, path, None)
            .await;
        sent.map(drop).map_err(session_not_found)
    }

    /// Waits for a message newer than `last_message_id` (0: for any), for as long as the
    /// service holds the poll. `max_capacity` is how many jobs the scale set can have at
    /// most. Sent once: the caller polls again anyway, honouring the error's `retry_after`.
    ///
    /// # Errors
    ///
    /// `QueueTokenExpired` when the session has to be refreshed.
    pub async fn get_message(
        &self,
        session: &Session,
        last_message_id: i64,
        max_capacity: i64,
    ) -> Result<Polled, Error> {
        const CALL: &str = "get_message";
        let mut url = queue_url(CALL, session)?;
        if last_message_id > 0 {
            url.query_pairs_mut()
                .append_pair("lastMessageId", &last_message_id.to_string());
        }
        let exchange = Exchange::new(CALL, Method::GET, url, &session.queue_token)
            .accept(QUEUE_ACCEPT)
            .number("X-ScaleSetMaxCapacity", max_capacity)
            .poll();
        let sent = self.sender.send(&exchange, &mut Deadline::of_poll()).await;
        let response = match sent {
            // a message that is too long, and stays the next one
            Err(error) if error.kind == ErrorKind::Unreadable => {
                return Ok(Polled::Unreadable {
                    status: error.status.unwrap_or(200),
                    problem: error.message,
                });
            }
            sent => sent.map_err(queue_expired)?,
        };
        Ok(match response.status().as_u16() {
            202 | 204 => Polled::None,
            status => match Polled::read(status, without_bom(response.body())) {
                Polled::Unreadable { status, problem } => Polled::Unreadable {
                    status,
                    problem: format!("{problem}{}", Ids::of(&response)),
                },
                read => read,
            },
        })
    }

    /// Acknowledges a message: it does not come again. One that is gone already counts as
    /// acknowledged.
    ///
    /// # Errors
    ///
    /// `QueueTokenExpired` when the session has to be refreshed.
    pub async fn delete_message(&self, session: &Session, message_id: i64) -> Result<(), Error> {
        const CALL: &str = "delete_message";
        let mut url = queue_url(CALL, session)?;
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(&message_id.to_string());
        }
        let exchange =
            Exchange::new(CALL, Method::DELETE, url, &session.queue_token).accept(QUEUE_ACCEPT);
        let sent = self.sender.send(&exchange, &mut Deadline::of_call()).await;
        match sent {
            Err(error) if error.status != Some(404) => Err(queue_expired(error)),
            _ => Ok(()),
        }
    }

    /// Takes jobs on offer. Answers which of them the scale set has got.
    ///
    /// # Errors
    ///
    /// `QueueTokenExpired` when the session has to be refreshed.
    pub async fn acquire_jobs(
        &self,
        scale_set_id: i64,
        session: &Session,
        request_ids: &[i64],
    ) -> Result<Vec<i64>, Error> {
        const CALL: &str = "acquire_jobs";
        let path = path(SCALE_SETS, &[&scale_set_id.to_string(), "acquirejobs"]);
        let mut deadline = Deadline::of_call();
        let current = self.tokens.current(&self.sender, None, &mut deadline).await;
        let tenant = current?;
        let exchange = Exchange::new(
            CALL,
            Method::POST,
            path.at(&tenant.url),
            &session.queue_token,
        )
        .json(&json!(request_ids));
        let sent = self.sender.send(&exchange, &mut deadline).await;
        let response = sent.map_err(queue_expired)?;
        Ok(wire::read::<List<i64>>(CALL, &response)?.into_vec())
    }

    /// Sends a call to the tenant. One that is refused with 401 is repeated with a new token.
    async fn call(
        &self,
        call: &'static str,
        method: Method,
        path: Path,
        body: Option<&Value>,
    ) -> Result<Response<Bytes>, Error> {
        let deadline = Deadline::of_call();
        self.call_within(deadline, call, method, path, body).await
    }

    /// As [`Self::call`], for a call that whoever asks for makes again.
    async fn call_once(
        &self,
        call: &'static str,
        method: Method,
        path: Path,
        body: Option<&Value>,
    ) -> Result<Response<Bytes>, Error> {
        let deadline = Deadline::of_one_try();
        self.call_within(deadline, call, method, path, body).await
    }

    async fn call_within(
        &self,
        mut deadline: Deadline,
        call: &'static str,
        method: Method,
        path: Path,
        body: Option<&Value>,
    ) -> Result<Response<Bytes>, Error> {
        let exchange = |tenant: &TenantToken| {
            let url = path.at(&tenant.url);
            let exchange = Exchange::new(call, method.clone(), url, &tenant.token);
            match body {
                Some(body) => exchange.json(body),
                None => exchange,
            }
        };
        let (sender, tokens) = (&self.sender, &self.tokens);
        let tenant = tokens.current(sender, None, &mut deadline).await?;
        match sender.send(&exchange(&tenant), &mut deadline).await {
            Err(error) if error.status == Some(401) => {
                let rejected = Some(&tenant);
                let tenant = tokens.current(sender, rejected, &mut deadline).await?;
                sender.send(&exchange(&tenant), &mut deadline).await
            }
            sent => sent,
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// A path below the tenant's URL, with its query.
struct Path {
    segments: Vec<String>,
    query: Vec<(&'static str, String)>,
}

fn path(base: &str, segments: &[&str]) -> Path {
    let segments = base.split('/').chain(segments.iter().copied());
    Path {
        segments: segments.map(str::to_owned).collect(),
        query: vec![("api-version", API_VERSION.to_owned())],
    }
}

impl Path {
    fn query(mut self, name: &'static str, value: &str) -> Self {
        self.query.push((name, value.to_owned()));
        self
    }

    fn at(&self, base: &Url) -> Url {
        let mut url = base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(&self.segments);
        }
        url.query_pairs_mut().extend_pairs(&self.query);
        url
    }
}

fn queue_url(call: &'static str, session: &Session) -> Result<Url, Error> {
    Url::parse(&session.queue_url).map_err(|_| {
        let message = "the service named a queue URL that cannot be used";
        Error::new(ErrorKind::Unreadable, call, message)
    })
}

fn queue_expired(mut error: Error) -> Error {
    if error.status == Some(401) {
        error.kind = ErrorKind::QueueTokenExpired;
    }
    error
}

/// A 404 that names nothing speaks of the scale set in the path.
fn scale_set_not_found(mut error: Error) -> Error {
    if error.status == Some(404) && error.type_name.is_none() {
        error.kind = ErrorKind::ScaleSetNotFound;
    }
    error
}

fn session_not_found(mut error: Error) -> Error {
    if is_missing(&error, ErrorKind::SessionNotFound) {
        error.kind = ErrorKind::SessionNotFound;
    }
    error
}

/// Whether the error says that the thing asked for is not there: by name, or by a 404 that
/// names nothing else.
fn is_missing(error: &Error, kind: ErrorKind) -> bool {
    error.kind == kind || (error.status == Some(404) && error.kind == ErrorKind::Other)
}
