//! Stands between the controller and the embedded servers: writes down what it is asked to
//! write and to call, checks the invariants of `docs/invariants.md` at each of its writes, and makes
//! trouble at a chosen one: kills the controller, or takes the answer away.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use embedded_actions::{ActionsService, CallInfo, Fault, Refusal};
use embedded_kube::ApiError;
use embedded_kube::ApiServer;
use embedded_kube::faults::{
    ChangeInfo, EventFate, EventInfo, Interceptor, Outcome, RequestFate, RequestInfo,
};
use impresario::api::EphemeralRunner;
use impresario::clock::Clock;
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::sync::{Notify, watch};

use super::invariants::{is_alive, job_cut_short, too_many_runners};
use super::ledger::Ledger;

/// Longer than any test takes: what waits so long never happens.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Controller,
    Listener,
    Other,
}

/// A request that writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub who: Who,
    pub verb: &'static str,
    /// Plural name, without the group; with the subresource after a slash.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    /// How often the Actions service had been called before.
    pub after_calls: usize,
}

/// Some of the controller's writes.
#[derive(Clone, Copy, Debug)]
pub struct Writes {
    verb: &'static str,
    /// As [`Write::resource`].
    resource: &'static str,
    namespace: Option<&'static str>,
}

impl Writes {
    /// All of that kind; `resource` as in [`Write::resource`].
    pub const fn of(verb: &'static str, resource: &'static str) -> Self {
        Self {
            verb,
            resource,
            namespace: None,
        }
    }

    /// Those in one namespace.
    pub const fn inside(self, namespace: &'static str) -> Self {
        Self {
            namespace: Some(namespace),
            ..self
        }
    }

    fn include(&self, write: &Write) -> bool {
        self.verb == write.verb
            && self.resource == write.resource
            && self
                .namespace
                .is_none_or(|namespace| namespace == write.namespace)
    }
}

/// What happens to the controller at its n-th write from now on, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It dies in place of the write.
    DeathBefore(usize),
    /// It dies after the write has taken effect, before it hears of that.
    DeathAfter(usize),
    /// The write takes effect, and the connection breaks before the answer.
    AnswerLost(usize),
    /// The write is refused for no fault of its own.
    Refused(usize),
}

impl Trouble {
    /// Counts a write; says whether it is the one.
    fn comes(&mut self) -> bool {
        let (Self::DeathBefore(left)
        | Self::DeathAfter(left)
        | Self::AnswerLost(left)
        | Self::Refused(left)) = self;
        *left = left.saturating_sub(1);
        *left == 0
    }

    /// What becomes of the write.
    fn fate(self) -> RequestFate {
        let (outcome, delay_after) = match self {
            Self::DeathBefore(_) => (Outcome::Lost, NEVER),
            Self::DeathAfter(_) => (Outcome::Answered, NEVER),
            Self::AnswerLost(_) => (Outcome::AnswerLost, Duration::ZERO),
            Self::Refused(_) => {
                let error = ApiError::new(500, "InternalError", "etcdserver: request timed out");
                (Outcome::Refused(error), Duration::ZERO)
            }
        };
        RequestFate {
            outcome,
            delay_after,
            ..RequestFate::default()
        }
    }
}

/// Writes of the controller that are held back or refused, until this is dropped.
#[must_use = "what is held back goes on when this is dropped"]
pub struct Hindrance {
    warden: Arc<Warden>,
    number: usize,
    /// Lets the held writes go.
    _held: Option<watch::Sender<bool>>,
}

impl Hindrance {
    /// How many writes it has met.
    pub fn met(&self) -> usize {
        let books = self.warden.books();
        let own = books.rules.iter().find(|rule| rule.number == self.number);
        own.map_or(0, |rule| rule.met)
    }

    /// Ends it: what was held back goes on.
    pub fn lift(self) {}
}

impl Drop for Hindrance {
    fn drop(&mut self) {
        let mut books = self.warden.books();
        books.rules.retain(|rule| rule.number != self.number);
    }
}

/// What becomes of some of the controller's writes.
#[derive(Debug)]
struct Rule {
    number: usize,
    writes: Writes,
    fate: RequestFate,
    met: usize,
}

/// Sees every request to the API server and every call of the Actions service.
#[derive(Default)]
pub struct Warden {
    books: Mutex<Books>,
    died: Notify,
}

#[derive(Default)]
struct Books {
    api: Option<ApiServer>,
    service: Option<ActionsService>,
    clock: Option<Clock>,
    /// Plural name of the objects that the controller cannot watch or list.
    unseen: Option<&'static str>,
    ledger: Ledger,
    rules: Vec<Rule>,
    next_rule: usize,
    writes: Vec<Write>,
    calls: Vec<(String, String)>,
    violations: Vec<String>,
    planned: Option<Trouble>,
    dead: bool,
    with_job: BTreeSet<i64>,
}

impl Warden {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells it where to look things up; `None` when the server is not used any more.
    pub fn look_at(&self, api: Option<ApiServer>, service: Option<ActionsService>) {
        let mut books = self.books();
        books.api = api;
        books.service = service;
    }

    /// What it knows of objects now.
    pub fn ledger(&self) -> Ledger {
        self.books().ledger.clone()
    }

    /// The objects are those of an earlier time.
    pub fn go_back(&self, ledger: Ledger) {
        self.books().ledger = ledger;
    }

    /// Tells it the time.
    pub fn goes_by(&self, clock: Clock) {
        self.books().clock = Some(clock);
    }

    /// From now on each watch of the controller on these objects ends with 410, and each list is
    /// refused; `None` ends that.
    pub fn blind(&self, plural: Option<&'static str>) {
        self.books().unseen = plural;
    }

    /// How many objects of that plural name were ever made, by whomever.
    pub fn created(&self, plural: &str) -> usize {
        self.books().ledger.created(plural)
    }

    /// Each phase that the objects of that plural name have had, in order.
    pub fn phases(&self, plural: &str) -> Vec<String> {
        self.books().ledger.phases(plural)
    }

    /// Notes what must not be so at rest.
    pub fn check_rest(&self) {
        let mut books = self.books();
        let found = books.ledger.untold_verdicts();
        books.violations.extend(found);
    }

    /// Holds these writes of the controller back.
    pub fn hold(self: &Arc<Self>, writes: Writes) -> Hindrance {
        let (sender, held) = watch::channel(false);
        let fate = RequestFate {
            held_until: Some(held),
            ..RequestFate::default()
        };
        self.hinder(writes, fate, Some(sender))
    }

    /// Lets these writes of the controller take effect, and their answers come late.
    pub fn answer_late(self: &Arc<Self>, writes: Writes, delay: Duration) -> Hindrance {
        let fate = RequestFate {
            delay_after: delay,
            ..RequestFate::default()
        };
        self.hinder(writes, fate, None)
    }

    /// Refuses these writes of the controller.
    pub fn refuse(self: &Arc<Self>, writes: Writes, error: ApiError) -> Hindrance {
        let fate = RequestFate {
            outcome: Outcome::Refused(error),
            ..RequestFate::default()
        };
        self.hinder(writes, fate, None)
    }

    fn hinder(
        self: &Arc<Self>,
        writes: Writes,
        fate: RequestFate,
        held: Option<watch::Sender<bool>>,
    ) -> Hindrance {
        let mut books = self.books();
        books.next_rule += 1;
        let number = books.next_rule;
        books.rules.push(Rule {
            number,
            writes,
            fate,
            met: 0,
        });
        Hindrance {
            warden: Arc::clone(self),
            number,
            _held: held,
        }
    }

    /// All writes so far.
    pub fn writes(&self) -> Vec<Write> {
        self.books().writes.clone()
    }

    /// How often the controller or a listener has written, Events apart.
    pub fn writes_of_ours(&self) -> usize {
        let books = self.books();
        let ours = books.writes.iter().filter(|write| write.who != Who::Other);
        ours.filter(|write| write.resource != "events").count()
    }

    /// How often the controller has asked for this.
    pub fn count(&self, verb: &str, resource: &str) -> usize {
        let books = self.books();
        let same = books.writes.iter().filter(|write| {
            write.who == Who::Controller && write.verb == verb && write.resource == resource
        });
        same.count()
    }

    /// How often the Actions service was called so.
    pub fn calls(&self, name: &str) -> usize {
        self.books()
            .calls
            .iter()
            .filter(|(call, _)| call == name)
            .count()
    }

    /// How often the Actions service was called at all.
    pub fn all_calls(&self) -> usize {
        self.books().calls.len()
    }

    /// The ids of the runners whose removal was asked for, in order.
    pub fn removals(&self) -> Vec<i64> {
        let books = self.books();
        let removals = books
            .calls
            .iter()
            .filter(|(call, _)| call == "remove_runner");
        let id = |path: &str| path.rsplit('/').next().and_then(|id| id.parse().ok());
        removals.filter_map(|(_, path)| id(path)).collect()
    }

    /// How often the Actions service was asked to remove this runner, and how often that was
    /// before the runner was deleted; all of them where it was not.
    pub fn removals_of(&self, runner: &str, id: i64) -> (usize, usize) {
        let books = self.books();
        let end = books.writes.iter().find(|write| {
            write.verb == "delete" && write.resource == "ephemeralrunners" && write.name == runner
        });
        let end = end.map_or(books.calls.len(), |write| write.after_calls);
        let path = format!("/{id}");
        let asked = |calls: &[(String, String)]| {
            let of_it =
                |(call, at): &&(String, String)| call == "remove_runner" && at.ends_with(&path);
            calls.iter().filter(of_it).count()
        };
        (asked(&books.calls), asked(&books.calls[..end]))
    }

    /// What should not have happened.
    pub fn violations(&self) -> Vec<String> {
        self.books().violations.clone()
    }

    /// The service says of this runner that it has a job.
    pub fn refuses_to_remove(&self, runner_id: i64) {
        self.books().with_job.insert(runner_id);
    }

    /// The service does not say so any more.
    pub fn lets_remove(&self, runner_id: i64) {
        self.books().with_job.remove(&runner_id);
    }

    /// Plans trouble for the controller.
    pub fn plan(&self, trouble: Trouble) {
        self.books().planned = Some(trouble);
    }

    /// Waits for the controller's death: nothing that it asks for happens any more.
    pub async fn death(&self) {
        self.died.notified().await;
    }

    /// A new controller is heard, and nothing is planned for it.
    pub fn revive(&self) {
        let mut books = self.books();
        books.dead = false;
        books.planned = None;
    }

    /// Whether the planned trouble has not come yet.
    pub fn expects_trouble(&self) -> bool {
        self.books().planned.is_some()
    }
}

fn who(user_agent: &str) -> Who {
    let account = format!("system:serviceaccount:{CONTROLLER_NAMESPACE}:");
    match user_agent.strip_prefix(&account) {
        Some("impresario-controller") => Who::Controller,
        Some(_) => Who::Listener,
        None => Who::Other,
    }
}

impl Interceptor for Warden {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        let who = who(&request.user_agent);
        let mut books = self.books();
        if who == Who::Controller && books.dead {
            return Trouble::DeathBefore(0).fate();
        }
        let verb = request.verb.map_or("", |verb| verb.as_str());
        let hidden = books.hides(who, &request.resource);
        if hidden && matches!(verb, "list" | "watch") {
            let error = ApiError::new(503, "ServiceUnavailable", "etcdserver: leader changed");
            return RequestFate {
                outcome: Outcome::Refused(error),
                ..RequestFate::default()
            };
        }
        if !matches!(
            verb,
            "create" | "update" | "patch" | "delete" | "deletecollection"
        ) {
            return RequestFate::default();
        }
        let plural = request.resource.split('.').next().unwrap_or_default();
        let resource = match request.subresource.as_str() {
            "" => plural.to_owned(),
            subresource => format!("{plural}/{subresource}"),
        };
        let write = Write {
            who,
            verb,
            resource,
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            after_calls: books.calls.len(),
        };
        // Events tell people; nothing is decided by them
        if who != Who::Controller || write.resource == "events" {
            books.writes.push(write);
            return RequestFate::default();
        }
        let comes = books.planned.as_mut().is_some_and(Trouble::comes);
        let trouble = if comes { books.planned.take() } else { None };
        if let Some(Trouble::DeathBefore(_) | Trouble::DeathAfter(_)) = trouble {
            books.dead = true;
            self.died.notify_one();
        }
        if let Some(api) = books.api.clone() {
            let found = books.violation(&api, &write);
            books.violations.extend(found);
        }
        let mut rules = books.rules.iter_mut();
        let rule = rules.find(|rule| rule.writes.include(&write));
        let hindered = rule.map(|rule| {
            rule.met += 1;
            rule.fate.clone()
        });
        books.writes.push(write);
        trouble.map(Trouble::fate).or(hindered).unwrap_or_default()
    }

    fn changed(&self, change: &ChangeInfo<'_>) {
        let mut books = self.books();
        let by = change.request.map(|request| who(&request.user_agent));
        let service = books.service.clone();
        let by_controller = by == Some(Who::Controller);
        let found = books.ledger.take(change, by_controller, service.as_ref());
        books.violations.extend(found);
    }

    fn event(&self, event: &EventInfo<'_>) -> EventFate {
        if self.books().hides(who(event.user_agent), event.resource) {
            return EventFate::Expired;
        }
        EventFate::Delivered
    }
}

impl Books {
    /// Whether the controller is not to see objects of this kind.
    fn hides(&self, who: Who, resource: &str) -> bool {
        let plural = resource.split('.').next();
        who == Who::Controller && self.unseen.is_some() && plural == self.unseen
    }

    /// Which invariant a write of the controller breaks.
    fn violation(&self, api: &ApiServer, write: &Write) -> Option<String> {
        match (write.verb, write.resource.as_str()) {
            ("create", "ephemeralrunners") => {
                let now = self.clock.as_ref().map(Clock::now);
                too_many_runners(api, &write.namespace, now)
            }
            ("delete", "pods") => self
                .works_by_service(api, write)
                .or_else(|| job_cut_short(api, write)),
            ("delete", "ephemeralrunners") => job_cut_short(api, write),
            // its finalizers come off, and its pod would go with it
            ("patch", "ephemeralrunners") => self.works_by_service(api, write),
            _ => None,
        }
    }

    /// INV-1: a runner that has a job at the service, and whose container runs or may run, keeps its
    /// pod. No time makes that otherwise, nor does a deletion by a person: the service has not
    /// agreed to that while it has the job.
    fn works_by_service(&self, api: &ApiServer, write: &Write) -> Option<String> {
        let pods: Vec<Pod> = api.list_as(Some(&write.namespace));
        let pod = pods.into_iter().find(|pod| pod.name_any() == write.name)?;
        let ends = write.resource == "pods" || {
            let runners: Vec<EphemeralRunner> = api.list_as(Some(&write.namespace));
            let runner = runners.iter().find(|one| one.name_any() == write.name);
            runner.is_some_and(|runner| runner.metadata.deletion_timestamp.is_some())
        };
        let known = self.service.as_ref()?.runners();
        let runner = known.into_iter().find(|one| one.name == write.name)?;
        let works = runner.job.is_some() || self.with_job.contains(&runner.id);
        (ends && works && is_alive(&pod)).then(|| {
            let id = runner.id;
            format!("INV-1: {write:?}, while runner {id} has a job at the service")
        })
    }
}

impl embedded_actions::Interceptor for Warden {
    fn intercept(&self, call: &CallInfo<'_>) -> Option<Fault> {
        let mut books = self.books();
        books
            .calls
            .push((call.name.to_owned(), call.path.to_owned()));
        if call.name != "remove_runner" {
            return None;
        }
        let id: i64 = call.path.rsplit('/').next()?.parse().ok()?;
        if id == 0 {
            books
                .violations
                .push("INV-13: runner 0 is to be removed".to_owned());
        }
        let still_running = "JobStillRunningException";
        let refusal = || Refusal::new(400, still_running, "The runner has a job.").into();
        let refused = books.with_job.contains(&id);
        if refused {
            books.ledger.kept_by_service(id);
        }
        refused.then(refusal)
    }
}

/// A warden, to be shared with the servers.
pub fn warden() -> Arc<Warden> {
    Arc::default()
}
