//! What a person may do to a service that runs alone: an HTTP API beside the protocol, with
//! bodies of JSON, under `/_impresario/`.
//!
//! It does nothing that [`ActionsService`] does not offer as a method. Nobody is asked who
//! they are: it is for tests, on loopback.

mod asked;
mod view;

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use self::asked::{FaultAsked, GroupAsked, JobsAsked, Mishap, ResultAsked, read};
use super::asked::percent_decode;
use super::serve::Lost;
use super::{ActionsService, RunnerInfo};

/// Where it is.
pub const ADMIN: &str = "/_impresario";

/// What it can do, as it tells.
const HELP: [(&str, &str); 15] = [
    ("GET scale-sets", "the scale sets, with their statistics"),
    ("GET runners", "the registered runners"),
    ("GET jobs", "the jobs"),
    ("GET sessions", "the open message sessions"),
    ("GET faults", "the faults that have not come to pass yet"),
    (
        "POST jobs",
        r#"queue jobs: {"labels": ["NAME"], "count": 3, "seconds": 30, "result": "succeeded"}"#,
    ),
    ("POST jobs/ID/finish", r#"end a job: {"result": "failed"}"#),
    ("POST jobs/ID/cancel", "cancel a job"),
    ("POST runner-groups", r#"add a group: {"name": "gpu"}"#),
    (
        "POST runners/NAME/start",
        "start the runner that was registered: it takes a job, works on it, and ends",
    ),
    (
        "POST runners/NAME/remove",
        "remove the registration, with or without a job",
    ),
    (
        "POST faults",
        r#"make calls go wrong: {"call": "get_message", "fault": "unavailable", "count": 2}; with "seconds" for a while, with neither for ever; "call": "all" for all"#,
    ),
    ("DELETE faults", "make all calls go well again"),
    (
        "DELETE faults/CALL",
        "make calls of this name go well again",
    ),
    (
        "POST mishaps",
        r#"what befalls the whole service: {"mishap": "expire-tenant-tokens"}"#,
    ),
];

/// A service with its admin API, and the runners started by it.
#[derive(Clone)]
struct Alone {
    service: ActionsService,
    runners: Arc<Mutex<JoinSet<()>>>,
}

/// What is said to a request that cannot be done.
struct Refused(StatusCode, String);

type Done = Result<Value, Refused>;

impl ActionsService {
    /// Answers requests on a port as [`serve`](Self::serve) does, and those of a person under
    /// [`ADMIN`].
    ///
    /// # Errors
    ///
    /// When the port cannot be listened on any more.
    pub async fn serve_with_admin(self, listener: TcpListener) -> io::Result<Infallible> {
        let alone = Alone {
            service: self,
            runners: Arc::default(),
        };
        embedded_http::serve(listener, move |request| alone.clone().receive(request)).await
    }

    /// Plays all runners: starts each that is registered, as a cluster would.
    pub async fn run_runners(&self) -> Infallible {
        let mut working = JoinSet::new();
        let mut known: Vec<i64> = Vec::new();
        loop {
            let is_new = |runner: &RunnerInfo| !known.contains(&runner.id);
            self.until(|service| service.runners().iter().any(is_new))
                .await;
            let runners = self.runners();
            for runner in runners.iter().filter(|runner| is_new(runner)) {
                // one that somebody else has started, or removed, is none of ours
                if let Ok(handle) = self.start_runner(runner.id) {
                    working.spawn(handle.work());
                }
            }
            known = runners.iter().map(|runner| runner.id).collect();
            while working.try_join_next().is_some() {}
        }
    }
}

impl Alone {
    async fn receive(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Lost> {
        let path = request.uri().path();
        let Some(path) = path.strip_prefix(ADMIN).map(str::to_owned) else {
            return self.service.receive(request).await;
        };
        let method = request.method().clone();
        let done = match super::serve::whole(request).await {
            Ok(request) => self.act(&method, &path, request.body()),
            Err(_) => Err(Refused(
                StatusCode::PAYLOAD_TOO_LARGE,
                "the request is too large or broke off".to_owned(),
            )),
        };
        let (status, body) = match done {
            Ok(body) => (StatusCode::OK, body),
            Err(Refused(status, error)) => (status, json!({"error": error})),
        };
        let mut response = Response::new(Full::new(Bytes::from(format!("{body:#}\n"))));
        *response.status_mut() = status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        Ok(response)
    }

    fn act(&self, method: &Method, path: &str, body: &[u8]) -> Done {
        let service = &self.service;
        let parts: Vec<String> = path
            .split('/')
            .filter(|part| !part.is_empty())
            .map(percent_decode)
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        match (method.as_str(), parts.as_slice()) {
            ("GET", []) => Ok(view::help(&HELP)),
            ("GET", ["scale-sets"]) => Ok(view::scale_sets(service)),
            ("GET", ["runners"]) => Ok(view::runners(service)),
            ("GET", ["jobs"]) => Ok(view::jobs(service)),
            ("GET", ["sessions"]) => Ok(view::sessions(service)),
            ("GET", ["faults"]) => Ok(view::faults(service)),
            ("POST", ["jobs"]) => {
                let jobs: JobsAsked = read(body)?;
                Ok(json!({"queued": jobs.queue(service)?}))
            }
            ("POST", ["jobs", id, "finish"]) => {
                let asked: ResultAsked = read(body)?;
                self.end_job(id, &asked.result)
            }
            ("POST", ["jobs", id, "cancel"]) => self.end_job(id, "canceled"),
            ("POST", ["runner-groups"]) => {
                let group: GroupAsked = read(body)?;
                Ok(json!({"id": service.add_runner_group(&group.name)}))
            }
            ("POST", ["runners", name, "start"]) => self.start_runner(name),
            ("POST", ["runners", name, "remove"]) => {
                let runner = self.runner(name)?;
                service.deregister(runner.id);
                Ok(json!({"removed": runner.name}))
            }
            ("POST", ["faults"]) => {
                FaultAsked::read(body)?.ask(service);
                Ok(view::faults(service))
            }
            ("DELETE", ["faults"]) => {
                service.faults().clear_all();
                Ok(view::faults(service))
            }
            ("DELETE", ["faults", call]) => {
                service.faults().clear(asked::call(call)?);
                Ok(view::faults(service))
            }
            ("POST", ["mishaps"]) => {
                let mishap: Mishap = read(body)?;
                mishap.befall(service)?;
                Ok(json!({}))
            }
            _ => Err(Refused(
                StatusCode::NOT_FOUND,
                format!("there is no {method} {ADMIN}{path}; GET {ADMIN} tells what there is"),
            )),
        }
    }

    fn end_job(&self, id: &str, result: &str) -> Done {
        let known = id.parse().ok().and_then(|id| self.service.job(id));
        let job = known.ok_or_else(|| not_found(format!("there is no job {id}")))?;
        if !self.service.complete_job(job.id, result) {
            let problem = format!("job {id} has ended already: {}", job.result);
            return Err(Refused(StatusCode::CONFLICT, problem));
        }
        Ok(json!({"ended": job.id, "result": result}))
    }

    fn runner(&self, name: &str) -> Result<RunnerInfo, Refused> {
        let runners = self.service.runners();
        let found = runners
            .into_iter()
            .find(|runner| runner.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| not_found(format!("there is no runner \"{name}\"")))
    }

    fn start_runner(&self, name: &str) -> Done {
        let runner = self.runner(name)?;
        let handle = self
            .service
            .start_runner(runner.id)
            .map_err(|refused| Refused(StatusCode::CONFLICT, refused.to_string()))?;
        let mut runners = self.runners.lock().unwrap_or_else(PoisonError::into_inner);
        while runners.try_join_next().is_some() {}
        runners.spawn(handle.work());
        Ok(json!({"started": runner.name}))
    }
}

fn not_found(problem: String) -> Refused {
    Refused(StatusCode::NOT_FOUND, problem)
}
