//! From a request to its answer: which call it is, whether it is allowed, what comes of it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use super::ActionsService;
use super::faults::{CallInfo, Fault, Interceptor as _, Outcome as FaultOutcome, Refusal};
use super::runner::jit_config;
use super::serve::Lost;
use super::world::{Grant, Moment, OpenSession, Outcome, RegisteredRunner, World};
use crate::actions::percent_decode;
use crate::api::{ConfigScope, ConfigUrl};

/// How long a registration or installation token is valid, in seconds.
const SHORT_TOKEN: i64 = 3600;

/// A call, recognized by its method and path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Route {
    InstallationToken,
    RegistrationToken(ConfigScope),
    Registration,
    Tenant(i64, TenantRoute),
    Queue {
        session: String,
        message: Option<i64>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TenantRoute {
    Groups,
    FindScaleSet,
    CreateScaleSet,
    GetScaleSet(i64),
    UpdateScaleSet(i64),
    DeleteScaleSet(i64),
    Jit(i64),
    FindRunner,
    GetRunner(i64),
    RemoveRunner(i64),
    OpenSession(i64),
    RefreshSession(i64, String),
    DeleteSession(i64, String),
    Acquire(i64),
}

impl Route {
    fn of(method: &Method, segments: &[&str]) -> Option<Self> {
        let segments = segments.strip_prefix(&["api", "v3"]).unwrap_or(segments);
        let post = method == Method::POST;
        Some(match segments {
            ["app", "installations", _, "access_tokens"] if post => Self::InstallationToken,
            ["actions", "runner-registration"] if post => Self::Registration,
            [scope @ .., "actions", "runners", "registration-token"] if post => {
                Self::RegistrationToken(match scope {
                    ["orgs", name] => ConfigScope::Organization((*name).to_owned()),
                    ["enterprises", name] => ConfigScope::Enterprise((*name).to_owned()),
                    ["repos", owner, repository] => ConfigScope::Repository {
                        owner: (*owner).to_owned(),
                        repository: (*repository).to_owned(),
                    },
                    _ => return None,
                })
            }
            ["tenants", tenant, "_apis", path @ ..] => {
                Self::Tenant(tenant.parse().ok()?, TenantRoute::of(method, path)?)
            }
            ["tenants", _, "queue", session] if method == Method::GET => Self::Queue {
                session: (*session).to_owned(),
                message: None,
            },
            ["tenants", _, "queue", session, message] if method == Method::DELETE => Self::Queue {
                session: (*session).to_owned(),
                message: Some(message.parse().ok()?),
            },
            _ => return None,
        })
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::InstallationToken => "create_installation_token",
            Self::RegistrationToken(_) => "create_registration_token",
            Self::Registration => "register",
            Self::Tenant(_, route) => route.name(),
            Self::Queue { message: None, .. } => "get_message",
            Self::Queue { .. } => "delete_message",
        }
    }
}

impl TenantRoute {
    fn of(method: &Method, path: &[&str]) -> Option<Self> {
        let id = |text: &str| text.parse().ok();
        Some(match (method.as_str(), path) {
            ("GET", ["runtime", "runnergroups"]) => Self::Groups,
            ("GET", ["runtime", "runnerscalesets"]) => Self::FindScaleSet,
            ("POST", ["runtime", "runnerscalesets"]) => Self::CreateScaleSet,
            ("GET", ["runtime", "runnerscalesets", set]) => Self::GetScaleSet(id(set)?),
            ("PATCH", ["runtime", "runnerscalesets", set]) => Self::UpdateScaleSet(id(set)?),
            ("DELETE", ["runtime", "runnerscalesets", set]) => Self::DeleteScaleSet(id(set)?),
            ("POST", ["runtime", "runnerscalesets", set, "generatejitconfig"]) => {
                Self::Jit(id(set)?)
            }
            ("POST", ["runtime", "runnerscalesets", set, "sessions"]) => {
                Self::OpenSession(id(set)?)
            }
            ("PATCH", ["runtime", "runnerscalesets", set, "sessions", session]) => {
                Self::RefreshSession(id(set)?, (*session).to_owned())
            }
            ("DELETE", ["runtime", "runnerscalesets", set, "sessions", session]) => {
                Self::DeleteSession(id(set)?, (*session).to_owned())
            }
            ("POST", ["runtime", "runnerscalesets", set, "acquirejobs"]) => Self::Acquire(id(set)?),
            ("GET", ["distributedtask", "pools", "0", "agents"]) => Self::FindRunner,
            ("GET", ["distributedtask", "pools", "0", "agents", runner]) => {
                Self::GetRunner(id(runner)?)
            }
            ("DELETE", ["distributedtask", "pools", "0", "agents", runner]) => {
                Self::RemoveRunner(id(runner)?)
            }
            _ => return None,
        })
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Groups => "get_runner_group",
            Self::FindScaleSet => "find_scale_set",
            Self::CreateScaleSet => "create_scale_set",
            Self::GetScaleSet(_) => "get_scale_set",
            Self::UpdateScaleSet(_) => "update_scale_set",
            Self::DeleteScaleSet(_) => "delete_scale_set",
            Self::Jit(_) => "generate_jit_config",
            Self::FindRunner => "find_runner",
            Self::GetRunner(_) => "get_runner",
            Self::RemoveRunner(_) => "remove_runner",
            Self::OpenSession(_) => "open_session",
            Self::RefreshSession(..) => "refresh_session",
            Self::DeleteSession(..) => "delete_session",
            Self::Acquire(_) => "acquire_jobs",
        }
    }
}

/// A success.
struct Answer {
    status: u16,
    body: Option<Value>,
}

impl Answer {
    const EMPTY: Self = Self {
        status: 204,
        body: None,
    };

    const fn json(status: u16, body: Value) -> Self {
        Self {
            status,
            body: Some(body),
        }
    }
}

/// A request, taken apart.
struct Asked {
    authorization: String,
    query: Vec<(String, String)>,
    capacity: Option<i64>,
    body: Value,
    /// Scheme, host and port under which the service was reached.
    origin: String,
}

impl Asked {
    fn of(request: &Request<Bytes>) -> Self {
        let header = |name: &HeaderName| {
            let value = request.headers().get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let uri = request.uri();
        let query = uri.query().unwrap_or_default();
        let query = url::form_urlencoded::parse(query.as_bytes()).into_owned();
        let host = uri.authority().map(ToString::to_string);
        let host = host.or_else(|| header(&HOST)).unwrap_or_default();
        let capacity = HeaderName::from_static("x-scalesetmaxcapacity");
        Self {
            authorization: header(&AUTHORIZATION).unwrap_or_default(),
            query: query.collect(),
            capacity: header(&capacity).and_then(|text| text.parse().ok()),
            body: serde_json::from_slice(request.body()).unwrap_or(Value::Null),
            origin: format!("{}://{host}", uri.scheme_str().unwrap_or("http")),
        }
    }

    fn parameter(&self, name: &str) -> &str {
        let found = self.query.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    fn number(&self, name: &str) -> i64 {
        self.parameter(name).parse().unwrap_or_default()
    }

    fn token(&self, scheme: &str) -> &str {
        let rest = self.authorization.strip_prefix(scheme);
        rest.map(str::trim).unwrap_or_default()
    }
}

impl ActionsService {
    /// Answers a request. A poll of a queue is held until there is a message or its time is
    /// over.
    ///
    /// # Errors
    ///
    /// When a fault takes the request or its answer away.
    pub async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Lost> {
        let path = request.uri().path().to_owned();
        let segments: Vec<String> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(percent_decode)
            .collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let Some(route) = Route::of(request.method(), &segments) else {
            let message = format!("There is nothing at {} {path}.", request.method());
            return Ok(self.respond("unknown", Err(Refusal::new(404, "", message))));
        };
        let fault = self.fault(&CallInfo {
            name: route.name(),
            path: &path,
        });
        let Fault { delay, outcome } = fault.unwrap_or(Fault::delay(Duration::ZERO));
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let asked = Asked::of(&request);
        match outcome {
            FaultOutcome::Answer => {
                let answer = self.answer(&route, &asked).await;
                Ok(self.respond(route.name(), answer))
            }
            FaultOutcome::Refuse(refusal) => Ok(self.respond(route.name(), Err(refusal))),
            FaultOutcome::Replace(status, body) => {
                self.log(&format!("{} -> {status}, replaced", route.name()));
                let mut response = Response::new(body);
                *response.status_mut() = status_code(status);
                Ok(response)
            }
            FaultOutcome::Unreachable => {
                self.log(&format!("{} -> unreachable", route.name()));
                Err(Lost::Unreachable)
            }
            FaultOutcome::LoseAnswer => {
                let answer = self.answer(&route, &asked).await;
                self.respond(route.name(), answer);
                self.log(&format!("{}: answer lost", route.name()));
                Err(Lost::Answer)
            }
            FaultOutcome::Hang => {
                self.log(&format!("{} -> no answer", route.name()));
                std::future::pending().await
            }
        }
    }

    fn fault(&self, call: &CallInfo<'_>) -> Option<Fault> {
        let asked_for = self.0.faults.intercept(call);
        // is asked about every call, so that it can count them
        let interceptor = self.0.interceptor.as_ref();
        let drawn = interceptor.and_then(|interceptor| interceptor.intercept(call));
        asked_for.or(drawn)
    }

    async fn answer(&self, route: &Route, asked: &Asked) -> Outcome<Answer> {
        match route {
            Route::Queue {
                session,
                message: None,
            } => self.poll(session, asked).await,
            route => self.change(|world, now| answer_at_once(world, route, asked, now)),
        }
    }

    async fn poll(&self, session: &str, asked: &Asked) -> Outcome<Answer> {
        let last = asked.number("lastMessageId");
        let mut until = None;
        loop {
            let news = self.change(|world, now| {
                let set = queue_of(world, session, asked, now)?;
                let news = world.scale_sets.get(&set).map(|set| set.news.clone());
                news.ok_or_else(|| Refusal::new(404, "", "The queue is gone."))
            })?;
            let notified = news.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            let (message, hold, due) = self.change(|world, now| {
                let message = world.poll(session, last, asked.capacity, now);
                (message, world.durations.poll, world.next_due())
            });
            if let Some(message) = message {
                return Ok(Answer::json(200, message));
            }
            let until = *until.get_or_insert_with(|| Instant::now() + hold);
            if Instant::now() >= until {
                return Ok(Answer {
                    status: 202,
                    body: None,
                });
            }
            let wake = due.map_or(until, |due| due.min(until));
            let _ = timeout_at(wake, notified).await;
        }
    }

    fn respond(&self, call: &str, answer: Outcome<Answer>) -> Response<Bytes> {
        let activity = self.lock().uuid();
        let mut response = Response::new(Bytes::new());
        let outcome = match answer {
            Ok(Answer { status, body }) => {
                *response.status_mut() = status_code(status);
                if let Some(body) = body {
                    set_json(&mut response, &body);
                }
                status.to_string()
            }
            Err(refusal) => {
                *response.status_mut() = status_code(refusal.status);
                for (name, value) in &refusal.headers {
                    set_header(&mut response, name, value);
                }
                if refusal.type_name.is_empty() {
                    *response.body_mut() = Bytes::from(refusal.message);
                } else {
                    let type_name = format!("GitHub.Actions.Simulation.{}", refusal.type_name);
                    let body = json!({"typeName": type_name, "message": refusal.message});
                    set_json(&mut response, &body);
                }
                format!("{} {}", refusal.status, refusal.type_name)
            }
        };
        set_header(&mut response, "activityid", &activity);
        set_header(&mut response, "x-github-request-id", &activity[..13]);
        self.log(format!("{call} -> {outcome}").trim_end());
        response
    }
}

fn answer_at_once(world: &mut World, route: &Route, asked: &Asked, now: Moment) -> Outcome<Answer> {
    match route {
        Route::InstallationToken => installation_token(world, asked, now),
        Route::RegistrationToken(scope) => registration_token(world, scope, asked, now),
        Route::Registration => register(world, asked, now),
        Route::Tenant(tenant, route) => in_tenant(world, *tenant, route, asked, now),
        Route::Queue { session, message } => {
            let set = queue_of(world, session, asked, now)?;
            match message {
                Some(message) if world.acknowledge(set, *message) => Ok(Answer::EMPTY),
                _ => Err(Refusal::new(404, "", "There is no such message.")),
            }
        }
    }
}

fn unauthorized() -> Refusal {
    Refusal::new(401, "", r#"{"message":"Bad credentials"}"#)
}

/// An App's JWT is taken at its word, as long as it is one that has not expired.
fn installation_token(world: &mut World, asked: &Asked, now: Moment) -> Outcome<Answer> {
    let claims = claims(asked.token("Bearer")).ok_or_else(unauthorized)?;
    let issuer = claims["iss"].as_str().unwrap_or_default();
    let (issued, expires) = (claims["iat"].as_i64(), claims["exp"].as_i64());
    let (Some(issued), Some(expires)) = (issued, expires) else {
        return Err(unauthorized());
    };
    let seconds = now.time.as_second();
    if issuer.is_empty() || issued > seconds || expires <= seconds || expires - issued > 600 {
        return Err(unauthorized());
    }
    let (token, expires) = world.grant(Grant::Installation, SHORT_TOKEN, now);
    let body = json!({"token": token, "expires_at": expires.to_string()});
    Ok(Answer::json(201, body))
}

fn registration_token(
    world: &mut World,
    scope: &ConfigScope,
    asked: &Asked,
    now: Moment,
) -> Outcome<Answer> {
    let token = asked.token("Bearer");
    let installation = world.granted(token, now) == Some(&Grant::Installation);
    let accepted = match &world.accepted {
        _ if token.is_empty() => false,
        Some(accepted) => accepted.contains(token),
        // An installation token that has expired is known, and refused.
        None => !token.starts_with("ghs_"),
    };
    if !installation && !accepted {
        return Err(unauthorized());
    }
    let scope = world.scope(scope);
    let (token, expires) = world.grant(Grant::Registration(scope), SHORT_TOKEN, now);
    let body = json!({"token": token, "expires_at": expires.to_string()});
    Ok(Answer::json(201, body))
}

fn register(world: &mut World, asked: &Asked, now: Moment) -> Outcome<Answer> {
    let url = asked.body["url"].as_str().unwrap_or_default();
    let url = ConfigUrl::parse(url)
        .map_err(|_| Refusal::new(400, "", "The url is not one of a tenant."))?;
    let scope = world.scope(&url.scope);
    if world.granted(asked.token("RemoteAuth"), now) != Some(&Grant::Registration(scope)) {
        return Err(unauthorized());
    }
    let seconds = world.durations.tenant_token;
    let (token, _) = world.grant(Grant::Tenant(scope), seconds, now);
    let url = format!("{}/tenants/{scope}/", asked.origin);
    Ok(Answer::json(200, json!({"url": url, "token": token})))
}

fn in_tenant(
    world: &mut World,
    scope: i64,
    route: &TenantRoute,
    asked: &Asked,
    now: Moment,
) -> Outcome<Answer> {
    let token = asked.token("Bearer");
    if let TenantRoute::Acquire(set) = route {
        return acquire(world, *set, asked, now);
    }
    if world.granted(token, now) != Some(&Grant::Tenant(scope)) {
        return Err(Refusal::new(401, "", "The token is not valid."));
    }
    let body = &asked.body;
    let value = match route {
        TenantRoute::Groups => list(world.groups(scope, asked.parameter("groupName"))),
        TenantRoute::FindScaleSet => {
            let group = asked.number("runnerGroupId");
            list(world.find_scale_sets(scope, group, asked.parameter("name")))
        }
        TenantRoute::CreateScaleSet => world.create_scale_set(scope, body, now)?,
        TenantRoute::GetScaleSet(id) => world.scale_set_json(world.scale_set(scope, *id)?),
        TenantRoute::UpdateScaleSet(id) => world.update_scale_set(scope, *id, body)?,
        TenantRoute::DeleteScaleSet(id) => {
            world.delete_scale_set(scope, *id, now)?;
            return Ok(Answer::EMPTY);
        }
        TenantRoute::Jit(set) => {
            let (id, secret) = world.register_runner(scope, *set, body)?;
            let runner = world.runner(scope, id)?;
            let encoded = jit_config(id, &runner.name, &secret);
            json!({"runner": runner_json(runner), "encodedJITConfig": encoded})
        }
        TenantRoute::FindRunner => {
            let found = world.find_runner(scope, asked.parameter("agentName"));
            list(found.into_iter().map(runner_json).collect())
        }
        TenantRoute::GetRunner(id) => runner_json(world.runner(scope, *id)?),
        TenantRoute::RemoveRunner(id) => {
            world.remove_runner(scope, *id)?;
            return Ok(Answer::EMPTY);
        }
        TenantRoute::OpenSession(set) => {
            let owner = body["ownerName"].as_str().unwrap_or_default();
            let session = world.open_session(scope, *set, owner, now)?;
            session_json(world, scope, *set, &session, asked, now)?
        }
        TenantRoute::RefreshSession(set, session) => {
            session_json(world, scope, *set, session, asked, now)?
        }
        TenantRoute::DeleteSession(set, session) => {
            world.session(scope, *set, session)?;
            world.close_session_of(*set, now);
            return Ok(Answer::EMPTY);
        }
        TenantRoute::Acquire(_) => Value::Null,
    };
    Ok(Answer::json(200, value))
}

fn acquire(world: &mut World, set: i64, asked: &Asked, now: Moment) -> Outcome<Answer> {
    let session = queue_session(world, asked, now)?;
    if session.scale_set != set {
        return Err(Refusal::new(401, "", "The token is another queue's."));
    }
    let ids = asked.body.as_array().into_iter().flatten();
    let ids: Vec<i64> = ids.filter_map(Value::as_i64).collect();
    let acquired = world.acquire(set, &ids, now);
    Ok(Answer::json(
        200,
        json!({"count": acquired.len(), "value": acquired}),
    ))
}

/// The session whose queue the request's token opens.
fn queue_session<'a>(world: &'a World, asked: &Asked, now: Moment) -> Outcome<&'a OpenSession> {
    let session = match world.granted(asked.token("Bearer"), now) {
        Some(Grant::Queue(session)) => world.sessions.get(session),
        _ => None,
    };
    session.ok_or_else(|| Refusal::new(401, "", "The token of the queue has expired."))
}

/// The scale set whose queue a request may use.
fn queue_of(world: &World, session: &str, asked: &Asked, now: Moment) -> Outcome<i64> {
    let open = queue_session(world, asked, now)?;
    if open.id != session {
        return Err(Refusal::new(401, "", "The token is another queue's."));
    }
    Ok(open.scale_set)
}

fn session_json(
    world: &mut World,
    scope: i64,
    set: i64,
    session: &str,
    asked: &Asked,
    now: Moment,
) -> Outcome<Value> {
    let owner = world.session(scope, set, session)?.owner.clone();
    let seconds = world.durations.queue_token;
    let (token, _) = world.grant(Grant::Queue(session.to_owned()), seconds, now);
    let set = world.scale_set(scope, set)?;
    Ok(json!({
        "sessionId": session,
        "ownerName": owner,
        "runnerScaleSet": world.scale_set_json(set),
        "messageQueueUrl": format!("{}/tenants/{scope}/queue/{session}", asked.origin),
        "messageQueueAccessToken": token,
        "statistics": set.statistics(),
    }))
}

fn runner_json(runner: &RegisteredRunner) -> Value {
    json!({
        "id": runner.id,
        "name": runner.name,
        "runnerScaleSetId": runner.scale_set,
        "status": if runner.online { "online" } else { "offline" },
    })
}

fn list(value: Vec<Value>) -> Value {
    json!({"count": value.len(), "value": value})
}

fn claims(jwt: &str) -> Option<Value> {
    use base64::Engine as _;
    let payload = jwt.split('.').nth(1)?;
    let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    serde_json::from_slice(&engine.decode(payload).ok()?).ok()
}

fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn set_json(response: &mut Response<Bytes>, body: &Value) {
    *response.body_mut() = Bytes::from(body.to_string());
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, json);
}

fn set_header(response: &mut Response<Bytes>, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse()) {
        response.headers_mut().insert(name, value);
    }
}
