//! What the service answers to each call that it need not hold.

use serde_json::{Value, json};

use super::asked::Asked;
use super::faults::Refusal;
use super::routes::{Route, TenantRoute};
use super::runner::jit_config;
use super::scope::ConfigScope;
use super::world::{Grant, Moment, OpenSession, Outcome, RegisteredRunner, World};

/// How long a registration or installation token is valid, in seconds.
const SHORT_TOKEN: i64 = 3600;

/// A success.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Option<Value>,
}

impl Answer {
    const EMPTY: Self = Self {
        status: 204,
        body: None,
    };

    pub(super) const fn json(status: u16, body: Value) -> Self {
        Self {
            status,
            body: Some(body),
        }
    }
}

pub(super) fn answer_at_once(
    world: &mut World,
    route: &Route,
    asked: &Asked,
    now: Moment,
) -> Outcome<Answer> {
    match route {
        Route::InstallationToken(id) => installation_token(world, *id, asked, now),
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

/// Whether an App that this owner has installed may act for a scope.
fn belongs_to(scope: &ConfigScope, owner: &str) -> bool {
    match scope {
        ConfigScope::Enterprise(_) => false,
        ConfigScope::Organization(name) => name.eq_ignore_ascii_case(owner),
        ConfigScope::Repository { owner: own, .. } => own.eq_ignore_ascii_case(owner),
    }
}

fn unauthorized() -> Refusal {
    Refusal::new(401, "", r#"{"message":"Bad credentials"}"#)
}

fn installation_token(
    world: &mut World,
    installation_id: i64,
    asked: &Asked,
    now: Moment,
) -> Outcome<Answer> {
    let owner = world.installation(asked.token("Bearer"), installation_id, now)?;
    let (token, expires) = world.grant(Grant::Installation(owner), SHORT_TOKEN, now);
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
    let installation = match world.granted(token, now) {
        Some(Grant::Installation(owner)) if owner.is_empty() => true,
        Some(Grant::Installation(owner)) if belongs_to(scope, owner) => true,
        // GitHub says so of what a token may not see
        Some(Grant::Installation(_)) => {
            let body = r#"{"message":"Not Found"}"#;
            return Err(Refusal::new(404, "", body));
        }
        _ => false,
    };
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
    let scope = ConfigScope::of_url(url)
        .ok_or_else(|| Refusal::new(400, "", "The url is not one of a tenant."))?;
    let scope = world.scope(&scope);
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
            let runner = runner_json(runner);
            world.keep_secret(&encoded);
            json!({"runner": runner, "encodedJITConfig": encoded})
        }
        TenantRoute::FindRunner => {
            let found = world.find_runner(scope, asked.parameter("agentName"));
            list(found.into_iter().map(runner_json).collect())
        }
        TenantRoute::GetRunner(id) => runner_json(world.runner(scope, *id)?),
        TenantRoute::RemoveRunner(id) => {
            // one that is gone is removed; ARC takes nothing but a 204 for that
            if world.runner(scope, *id).is_ok() {
                world.remove_runner(scope, *id)?;
            }
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
pub(super) fn queue_of(world: &World, session: &str, asked: &Asked, now: Moment) -> Outcome<i64> {
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
