//! From a request to its answer: which call it is, what goes wrong with it, and how long it
//! is held.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout_at};

use super::ActionsService;
use super::answers::{Answer, answer_at_once, queue_of};
use super::asked::{Asked, percent_decode};
use super::faults::{CallInfo, Fault, Interceptor as _, Outcome as FaultOutcome, Refusal};
use super::routes::{Route, TenantRoute};
use super::serve::Lost;
use super::world::Outcome;

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
            let asked = format!("{} {path}", request.method());
            let refusal = Refusal::new(404, "", format!("There is nothing at {asked}."));
            return Ok(self.respond(&asked, Err(refusal)));
        };
        let fault = self.fault(&CallInfo {
            name: route.name(),
            path: &path,
            query: request.uri().query().unwrap_or_default(),
        });
        let Fault { delay, outcome } = fault.unwrap_or(Fault::delay(Duration::ZERO));
        if !delay.is_zero() {
            sleep(delay).await;
        }
        let asked = Asked::of(&request);
        self.change(|world, _| world.keep_secret(asked.secret()));
        self.suffer(outcome, &route, asked).await
    }

    /// Answers a call as what goes wrong with it lets it be answered.
    async fn suffer(
        &self,
        outcome: FaultOutcome,
        route: &Route,
        mut asked: Asked,
    ) -> Result<Response<Bytes>, Lost> {
        let call = route.name();
        match outcome {
            FaultOutcome::Answer => {}
            FaultOutcome::Forestall(scale_set) => {
                if let Route::Tenant(scope, TenantRoute::Jit(_)) = route {
                    // one that cannot be registered is in nobody's way
                    let _taken = self
                        .change(|world, _| world.register_runner(*scope, scale_set, &asked.body));
                }
            }
            FaultOutcome::Halve => {
                if let Value::Array(wanted) = &mut asked.body {
                    wanted.truncate(wanted.len() / 2);
                }
            }
            FaultOutcome::Mangle(mangling) => {
                let answer = self.answer(route, &asked).await;
                let mut response = self.respond(call, answer);
                mangling.apply(&mut response);
                self.log(&format!("{call}: {mangling:?}"));
                return Ok(response);
            }
            FaultOutcome::NumberToken => {
                self.change(|world, _| world.numbers_tokens = true);
                let answer = self.answer(route, &asked).await;
                self.change(|world, _| world.numbers_tokens = false);
                return Ok(self.respond(call, answer));
            }
            FaultOutcome::Refuse(refusal) => return Ok(self.respond(call, Err(refusal))),
            FaultOutcome::Echo => {
                let (secret, body) = (asked.secret(), &asked.body);
                let message = format!("Neither {secret} nor {body} makes sense.");
                let refusal = Refusal::new(400, "ArgumentException", message);
                return Ok(self.respond(call, Err(refusal)));
            }
            FaultOutcome::Replace(status, body) => {
                self.log(&format!("{call} -> {status}, replaced"));
                let mut response = Response::new(body);
                *response.status_mut() = status_code(status);
                return Ok(response);
            }
            FaultOutcome::Unreachable => {
                self.log(&format!("{call} -> unreachable"));
                return Err(Lost::Unreachable);
            }
            FaultOutcome::Reset => {
                self.log(&format!("{call} -> connection reset"));
                return Err(Lost::Request);
            }
            FaultOutcome::LoseAnswer => {
                let answer = self.answer(route, &asked).await;
                self.respond(call, answer);
                self.log(&format!("{call}: answer lost"));
                return Err(Lost::Answer);
            }
            FaultOutcome::Hang => {
                self.log(&format!("{call} -> no answer"));
                std::future::pending().await
            }
        }
        let answer = self.answer(route, &asked).await;
        Ok(self.respond(call, answer))
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
                    set_text(&mut response, refusal.message);
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

fn status_code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn set_json(response: &mut Response<Bytes>, body: &Value) {
    *response.body_mut() = Bytes::from(body.to_string());
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, json);
}

/// A body that says itself what it is: the REST API's JSON, a page, or words.
fn set_text(response: &mut Response<Bytes>, text: String) {
    let content_type = if serde_json::from_str::<Value>(&text).is_ok_and(|body| body.is_object()) {
        "application/json; charset=utf-8"
    } else if text.starts_with('<') {
        "text/html; charset=utf-8"
    } else {
        "text/plain; charset=utf-8"
    };
    *response.body_mut() = Bytes::from(text);
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
}

fn set_header(response: &mut Response<Bytes>, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse()) {
        response.headers_mut().insert(name, value);
    }
}
