//! Stands before the warden and makes things come in another order: holds writes back, slows
//! watch events down, and makes trouble at the n-th write or call of the controller.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use embedded_actions::{CallInfo, Fault, Refusal};
use embedded_kube::ApiError;
use embedded_kube::faults::{
    ChangeInfo, EventFate, EventInfo, Interceptor, Outcome, RequestFate, RequestInfo,
};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::Notify;

/// Longer than any test takes: what waits so long never happens.
const NEVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// The controller's user, as the API server knows it.
const CONTROLLER: &str = "system:serviceaccount:arc-systems:impresario-controller";
/// How the users of the cluster's own programs begin, the controller's and the listeners'.
const PROGRAMS: &str = "system:serviceaccount:";

/// What goes wrong with one write or call of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The controller dies just before it.
    DeathBefore,
    /// The controller dies just after it has taken effect.
    DeathAfter,
    /// It takes effect, and the connection is reset before the answer.
    Reset,
    /// It takes effect, and the answer is that it took too long. A call is never answered, and
    /// has no effect.
    Timeout,
    /// It is refused with 409.
    Conflict,
    /// It is refused with 500.
    Error,
}

impl Trouble {
    const fn kills(self) -> bool {
        matches!(self, Self::DeathBefore | Self::DeathAfter)
    }

    fn of_write(self) -> RequestFate {
        let (outcome, delay_after) = match self {
            Self::DeathBefore => (Outcome::Lost, NEVER),
            Self::DeathAfter => (Outcome::Answered, NEVER),
            Self::Reset => (Outcome::AnswerLost, Duration::ZERO),
            Self::Timeout => {
                let error = ApiError::new(504, "Timeout", "request did not complete in time");
                (Outcome::AnsweredWrongly(error), Duration::from_secs(30))
            }
            Self::Conflict => {
                let error = ApiError::new(409, "Conflict", "please apply your changes again");
                (Outcome::Refused(error), Duration::ZERO)
            }
            Self::Error => {
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

    fn of_call(self) -> Fault {
        match self {
            Self::DeathBefore | Self::Timeout => embedded_actions::Outcome::Hang.into(),
            // nobody is there to hear of the loss
            Self::DeathAfter | Self::Reset => embedded_actions::Outcome::LoseAnswer.into(),
            Self::Conflict => Refusal::new(409, "", "try again").into(),
            Self::Error => Fault::refuse(500, "InternalServerError"),
        }
    }
}

/// Where a write is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// On its way there.
    Before,
    /// On the answer's way back.
    After,
}

/// Sees every request, watch event and call first.
pub struct Seam {
    requests: Arc<dyn Interceptor>,
    calls: Option<Arc<dyn embedded_actions::Interceptor>>,
    state: Mutex<State>,
    died: Notify,
}

/// Finds fault with a write.
type Judge = Box<dyn Fn(&RequestInfo) -> Option<String> + Send>;

#[derive(Default)]
struct State {
    /// Resource with subresource, where, for how long.
    held: Vec<(&'static str, Held, Duration)>,
    /// Resource whose watch events reach the controller late, and how late.
    slow: Option<(&'static str, Duration)>,
    /// Delays everything of ours at random, up to this.
    jitter: Option<(StdRng, Duration)>,
    /// Writes and calls of the controller since [`Seam::record`].
    recorded: Option<Vec<String>>,
    planned: Option<(usize, Trouble)>,
    dead: bool,
    watch: Option<Judge>,
    violations: Vec<String>,
}

impl Seam {
    /// Before these.
    pub fn before(
        requests: Arc<dyn Interceptor>,
        calls: Option<Arc<dyn embedded_actions::Interceptor>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            requests,
            calls,
            state: Mutex::default(),
            died: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds the controller's writes of a resource (`plural/subresource`) back from now on.
    pub fn hold(&self, resource: &'static str, held: Held, time: Duration) {
        self.state().held.push((resource, held, time));
    }

    /// Lets the controller hear late of this resource.
    pub fn slow_down(&self, plural: &'static str, time: Duration) {
        self.state().slow = Some((plural, time));
    }

    /// Nothing that comes from now on is late.
    pub fn let_go(&self) {
        let mut state = self.state();
        state.held.clear();
        state.slow = None;
    }

    /// Every request, event and call takes a random time up to this.
    pub fn jitter(&self, seed: u64, most: Duration) {
        self.state().jitter = Some((StdRng::seed_from_u64(seed), most));
    }

    /// Whether requests and events take time.
    pub fn is_slow(&self) -> bool {
        self.state().jitter.is_some()
    }

    /// Has every write of the controller looked at, before it takes effect.
    pub fn watch(&self, judge: impl Fn(&RequestInfo) -> Option<String> + Send + 'static) {
        self.state().watch = Some(Box::new(judge));
    }

    /// What [`Seam::watch`] has found.
    pub fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// From now on the controller's writes and calls are counted, and written down.
    pub fn record(&self) {
        self.state().recorded = Some(Vec::new());
    }

    /// What was written down.
    pub fn recorded(&self) -> Vec<String> {
        self.state().recorded.clone().unwrap_or_default()
    }

    /// Plans trouble at the n-th write or call since [`Seam::record`], counted from 0.
    pub fn plan(&self, number: usize, trouble: Trouble) {
        self.state().planned = Some((number, trouble));
    }

    /// Whether the planned trouble has not come.
    pub fn expects_trouble(&self) -> bool {
        self.state().planned.is_some()
    }

    /// Waits for the controller's death: nothing that it asks for happens any more.
    pub async fn death(&self) {
        self.died.notified().await;
    }

    /// A new controller is heard.
    pub fn revive(&self) {
        self.state().dead = false;
    }

    /// Writes a write or call of the controller down; answers the trouble it gets.
    fn note(&self, what: impl FnOnce() -> String) -> Option<Trouble> {
        let mut state = self.state();
        let recorded = state.recorded.as_mut()?;
        let number = recorded.len();
        recorded.push(what());
        let trouble = state.planned.take_if(|(at, _)| *at == number)?.1;
        if trouble.kills() {
            state.dead = true;
            self.died.notify_one();
        }
        Some(trouble)
    }
}

impl State {
    fn delay(&mut self) -> Duration {
        self.jitter.as_mut().map_or(Duration::ZERO, |(rng, most)| {
            // mostly short, and now and then long
            let part = rng.random_range(0.0_f64..1.0);
            most.mul_f64(part.powi(4))
        })
    }
}

impl Interceptor for Seam {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        if !request.user_agent.starts_with(PROGRAMS) {
            return self.requests.request(request);
        }
        let of_controller = request.user_agent == CONTROLLER;
        let verb = request.verb.map_or("", |verb| verb.as_str());
        let writes = matches!(verb, "create" | "update" | "patch" | "delete");
        let plural = request.resource.split('.').next().unwrap_or_default();
        let resource = match request.subresource.as_str() {
            "" => plural.to_owned(),
            subresource => format!("{plural}/{subresource}"),
        };
        if of_controller && self.state().dead {
            return Trouble::DeathBefore.of_write();
        }
        if of_controller && writes && plural != "events" {
            let found = self.state().watch.as_ref().and_then(|judge| judge(request));
            self.state().violations.extend(found);
            let trouble = self.note(|| format!("{verb} {resource} {}", request.name));
            if let Some(trouble) = trouble {
                // seen by the warden all the same
                self.requests.request(request);
                return trouble.of_write();
            }
        }
        let mut fate = self.requests.request(request);
        let mut state = self.state();
        if verb != "watch" {
            fate.delay_before += state.delay();
            fate.delay_after += state.delay();
        }
        if of_controller && writes {
            for (_, held, time) in state.held.iter().filter(|(held, ..)| *held == resource) {
                match held {
                    Held::Before => fate.delay_before += *time,
                    Held::After => fate.delay_after += *time,
                }
            }
        }
        fate
    }

    fn changed(&self, change: &ChangeInfo<'_>) {
        self.requests.changed(change);
    }

    fn event(&self, event: &EventInfo<'_>) -> EventFate {
        if !event.user_agent.starts_with(PROGRAMS) {
            return self.requests.event(event);
        }
        let mut state = self.state();
        let plural = event.resource.split('.').next().unwrap_or_default();
        let late = state.slow.filter(|(slow, _)| *slow == plural);
        let late = late.filter(|_| event.user_agent == CONTROLLER);
        match late.map_or_else(|| state.delay(), |(_, time)| time) {
            Duration::ZERO => self.requests.event(event),
            time => EventFate::Delayed(time),
        }
    }
}

impl embedded_actions::Interceptor for Seam {
    fn intercept(&self, call: &CallInfo<'_>) -> Option<Fault> {
        let of_listener = call.path.contains("sessions") || call.path.contains("message");
        if !of_listener && self.state().dead {
            return Some(embedded_actions::Outcome::Hang.into());
        }
        let own = self.calls.as_ref().and_then(|calls| calls.intercept(call));
        if !of_listener
            && let Some(trouble) = self.note(|| format!("call {} {}", call.name, call.path))
        {
            return Some(trouble.of_call());
        }
        let delay = self.state().delay();
        match own {
            None if delay.is_zero() => None,
            None => Some(Fault::delay(delay)),
            Some(fault) => Some(Fault {
                delay: fault.delay + delay,
                ..fault
            }),
        }
    }
}
