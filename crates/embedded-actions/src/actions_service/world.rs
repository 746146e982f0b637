//! The state of the service, and how it changes. Knows no HTTP and waits for nothing: time
//! is an argument, and who waits is woken.

mod apps;
mod dispatch;
mod runners;
mod scale_sets;
mod sessions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use apps::{App, BadKey};

use super::faults::Refusal;
use super::jobs::Job;
use super::scope::ConfigScope;
use wall_clock::{Timestamp, after};

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
    /// How long after its issue a registration token is not known yet, in seconds.
    pub registration_unknown: i64,
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
            registration_unknown: 0,
            idle_session: Duration::from_secs(120),
            offer: Duration::from_secs(60),
            lost_runner: Duration::from_secs(120),
        }
    }
}

/// What a token opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    /// The REST API, for an App installed by this owner; by all, if empty.
    Installation(String),
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
    pub(super) capacity: i64,
    offered: BTreeMap<i64, Instant>,
    assigned: BTreeSet<i64>,
    running: BTreeSet<i64>,
    pub(super) runners: BTreeSet<i64>,
    idle: BTreeSet<i64>,
    events: Vec<Value>,
    messages: BTreeMap<i64, Value>,
    /// The message delivered last.
    latest: Option<Value>,
    /// A message to be delivered once more, wherever the cursor is.
    again: Option<Value>,
    /// What is told in place of its statistics.
    pretended: Option<Value>,
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

/// The latest ids given out. They begin apart, so that one taken for another is noticed.
#[derive(Debug)]
struct LastIds {
    scale_set: i64,
    runner: i64,
    job: i64,
    message: i64,
    other: i64,
}

/// A token given out.
#[derive(Debug)]
struct Token {
    grant: Grant,
    /// It is known from then on,
    from: Timestamp,
    /// and until then.
    until: Timestamp,
}

/// The state of the service.
#[derive(Debug)]
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) durations: Durations,
    /// Personal access tokens that are accepted; `None` accepts any.
    pub(super) accepted: Option<BTreeSet<String>>,
    /// The Apps there are; `None` believes any.
    pub(super) apps: Option<Vec<App>>,
    /// Whether a queue delivers what is not acknowledged whatever the poll's cursor.
    pub(super) ignores_cursor: bool,
    /// Whether tokens have numbers for names, which RFC 7519 forbids.
    pub(super) numbers_tokens: bool,
    /// Every secret given out or shown, for who looks for leaks.
    pub(super) secrets: Option<BTreeSet<String>>,
    last: LastIds,
    scopes: BTreeMap<i64, Scope>,
    group_names: BTreeMap<String, i64>,
    tokens: BTreeMap<String, Token>,
    pub(super) scale_sets: BTreeMap<i64, ScaleSet>,
    pub(super) sessions: BTreeMap<String, OpenSession>,
    pub(super) runners: BTreeMap<i64, RegisteredRunner>,
    runner_names: BTreeMap<(i64, String), i64>,
    pub(super) jobs: BTreeMap<i64, Job>,
    /// Jobs on offer to nobody, by what they run on.
    waiting: BTreeMap<Vec<String>, VecDeque<i64>>,
    /// Jobs that have ended and are remembered, the oldest first.
    ended: VecDeque<i64>,
    /// Jobs that a runner has started, as far as they are remembered.
    pub(super) history: BTreeMap<i64, Vec<i64>>,
    timers: BTreeMap<(Instant, i64), Timer>,
    /// What happened since somebody last looked, for the log.
    pub(super) notes: Vec<String>,
}

pub(super) type Outcome<T> = Result<T, Refusal>;

const DEFAULT_GROUP: i64 = 1;
/// How many jobs that have ended are remembered: as many as a demonstration can have.
const REMEMBERED: usize = 100_000;

impl World {
    pub(super) fn new(seed: u64, durations: Durations) -> Self {
        Self {
            seed,
            durations,
            accepted: None,
            apps: None,
            ignores_cursor: false,
            numbers_tokens: false,
            secrets: None,
            last: LastIds {
                scale_set: 0,
                runner: 1_000,
                job: 70_000,
                message: 0,
                other: 0,
            },
            scopes: BTreeMap::new(),
            group_names: BTreeMap::from([("default".to_owned(), DEFAULT_GROUP)]),
            tokens: BTreeMap::new(),
            scale_sets: BTreeMap::new(),
            sessions: BTreeMap::new(),
            runners: BTreeMap::new(),
            runner_names: BTreeMap::new(),
            jobs: BTreeMap::new(),
            waiting: BTreeMap::new(),
            ended: VecDeque::new(),
            history: BTreeMap::new(),
            timers: BTreeMap::new(),
            notes: Vec::new(),
        }
    }

    /// An id for something that nobody sees the id of.
    fn next_id(&mut self) -> i64 {
        next(&mut self.last.other)
    }

    /// An id in the form of a UUID, from the seed and a counter.
    pub(super) fn uuid(&mut self) -> String {
        let id = self.next_id();
        uuid_of(self.seed, id)
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

    // === tokens ===

    pub(super) fn grant(&mut self, grant: Grant, seconds: i64, now: Moment) -> (String, Timestamp) {
        let until = after(now.time, seconds);
        self.tokens.retain(|_, token| token.until > now.time);
        let id = self.next_id();
        let text = match &grant {
            Grant::Installation(_) => format!("ghs_simulated{id}"),
            Grant::Registration(_) => format!("registration-simulated{id}"),
            Grant::Tenant(_) | Grant::Queue(_) => {
                let name = if self.numbers_tokens {
                    json!(id)
                } else {
                    json!(uuid_of(self.seed, id))
                };
                unsigned_jwt(&name, now.time, until)
            }
        };
        let from = match &grant {
            Grant::Registration(_) => after(now.time, self.durations.registration_unknown),
            _ => now.time,
        };
        let token = Token { grant, from, until };
        self.tokens.insert(text.clone(), token);
        self.keep_secret(&text);
        (text, until)
    }

    /// What a token opens, if it is valid.
    pub(super) fn granted(&self, token: &str, now: Moment) -> Option<&Grant> {
        let token = self.tokens.get(token)?;
        let valid = token.from <= now.time && now.time < token.until;
        valid.then_some(&token.grant)
    }

    /// Makes every token of a kind invalid.
    pub(super) fn revoke(&mut self, which: impl Fn(&Grant) -> bool) {
        self.tokens.retain(|_, token| !which(&token.grant));
    }

    /// Writes a secret down, where that is asked for.
    pub(super) fn keep_secret(&mut self, secret: &str) {
        if let Some(secrets) = &mut self.secrets
            && !secret.is_empty()
        {
            secrets.insert(secret.to_owned());
        }
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

    /// Whose a scope is.
    pub(super) fn scope_name(&self, scope: i64) -> &str {
        let scope = self.scopes.get(&scope);
        scope.map(|scope| scope.key.as_str()).unwrap_or_default()
    }

    fn group_name(&self, scope: i64, group: i64) -> Option<&str> {
        let scope = self.scopes.get(&scope)?;
        scope.groups.get(&group).map(String::as_str)
    }
}

fn next(last: &mut i64) -> i64 {
    *last += 1;
    *last
}

fn scope_key(scope: &ConfigScope) -> String {
    let key = match scope {
        ConfigScope::Enterprise(name) => format!("enterprises/{name}"),
        ConfigScope::Organization(name) => name.clone(),
        ConfigScope::Repository { owner, repository } => format!("{owner}/{repository}"),
    };
    key.to_ascii_lowercase()
}

fn uuid_of(seed: u64, id: i64) -> String {
    format!(
        "{:08x}-{:04x}-4000-8000-{id:012x}",
        seed & 0xffff_ffff,
        (seed >> 32) & 0xffff
    )
}

/// Claims are of the types that RFC 7519 gives them: clients refuse a token with others.
fn unsigned_jwt(name: &Value, issued: Timestamp, expires: Timestamp) -> String {
    use base64::Engine as _;
    let encode =
        |value: Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string());
    let header = encode(json!({"alg": "none", "typ": "JWT"}));
    let claims = encode(json!({
        "iss": "actions-service.simulated",
        "aud": "runner-scale-sets",
        "jti": name,
        "iat": issued.as_second(),
        "nbf": issued.as_second(),
        "exp": expires.as_second(),
    }));
    format!("{header}.{claims}.simulated")
}
