//! What a person may ask for, as JSON.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::super::routes::CALLS;
use super::super::{ActionsService, JobSpec, NamedFault};
use super::{Refused, not_found};

/// No more jobs than this are queued at once: what asks for more is a slip of the finger.
const MOST_JOBS: usize = 100_000;

fn bad(problem: String) -> Refused {
    Refused(StatusCode::BAD_REQUEST, problem)
}

/// Reads a body; an empty one is an empty object.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    let body = if body.trim_ascii().is_empty() {
        b"{}"
    } else {
        body
    };
    serde_json::from_slice(body).map_err(|error| bad(error.to_string()))
}

/// The call of this name.
pub(super) fn call(name: &str) -> Result<&'static str, Refused> {
    let found = CALLS.into_iter().find(|call| *call == name);
    found.ok_or_else(|| {
        let known = CALLS.join(", ");
        bad(format!("there is no call \"{name}\"; there are {known}"))
    })
}

/// The longest time that can be asked for: a year.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

fn seconds(seconds: f64) -> Result<Duration, Refused> {
    let time = Duration::try_from_secs_f64(seconds).ok();
    time.filter(|time| *time <= LONGEST).ok_or_else(|| {
        let most = LONGEST.as_secs();
        bad(format!(
            "{seconds} is no number of seconds from 0 to {most}"
        ))
    })
}

/// Jobs to be queued.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobsAsked {
    labels: Vec<String>,
    #[serde(default = "one")]
    count: usize,
    #[serde(default)]
    seconds: Option<f64>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    owner: String,
    #[serde(default)]
    repository: String,
    #[serde(default)]
    result: Option<String>,
}

const fn one() -> usize {
    1
}

impl JobsAsked {
    /// Queues them; answers their ids.
    pub(super) fn queue(self, service: &ActionsService) -> Result<Vec<i64>, Refused> {
        if self.labels.is_empty() {
            let problem = "labels is empty: name the scale set, or labels of it";
            return Err(bad(problem.to_owned()));
        }
        if self.count > MOST_JOBS {
            return Err(bad(format!("count is more than {MOST_JOBS}")));
        }
        let mut spec = JobSpec {
            runs_on: self.labels,
            owner: self.owner,
            repository: self.repository,
            ..JobSpec::on("")
        };
        if let Some(long) = self.seconds {
            spec.duration = seconds(long)?;
        }
        if let Some(name) = self.name {
            spec.display_name = name;
        }
        if let Some(result) = self.result {
            spec.result = result;
        }
        let jobs = std::iter::repeat_n(spec, self.count);
        Ok(jobs.map(|spec| service.queue_job(spec)).collect())
    }
}

/// How a job ends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ResultAsked {
    #[serde(default = "succeeded")]
    pub(super) result: String,
}

fn succeeded() -> String {
    "succeeded".to_owned()
}

/// A runner group.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupAsked {
    pub(super) name: String,
}

/// A fault, where it comes, and how often.
#[derive(Debug)]
pub(super) struct FaultAsked {
    calls: Vec<&'static str>,
    fault: NamedFault,
    count: Option<usize>,
    lasting: Option<Duration>,
}

#[derive(Debug, Deserialize)]
struct FaultFields {
    call: String,
    #[serde(default)]
    count: Option<usize>,
    #[serde(default)]
    seconds: Option<f64>,
    /// The fault with its parameters.
    #[serde(flatten)]
    fault: Map<String, Value>,
}

impl FaultAsked {
    pub(super) fn read(body: &[u8]) -> Result<Self, Refused> {
        let fields: FaultFields = read(body)?;
        let fault = serde_json::from_value(Value::Object(fields.fault));
        let count = fields.count;
        if count.is_some() && fields.seconds.is_some() {
            let problem = "give a count or seconds, not both";
            return Err(bad(problem.to_owned()));
        }
        if count.is_some_and(|count| count > MOST_JOBS) {
            return Err(bad(format!("count is more than {MOST_JOBS}")));
        }
        Ok(Self {
            calls: match fields.call.as_str() {
                "all" => CALLS.to_vec(),
                name => vec![call(name)?],
            },
            fault: fault.map_err(|error: serde_json::Error| bad(error.to_string()))?,
            count,
            lasting: fields.seconds.map(seconds).transpose()?,
        })
    }

    pub(super) fn ask(&self, service: &ActionsService) {
        let fault = self.fault.at(service.now().time);
        for call in &self.calls {
            match (self.count, self.lasting) {
                (Some(count), _) => service.faults().times(call, count, fault.clone()),
                (None, Some(time)) => service.faults().lasting(call, time, fault.clone()),
                (None, None) => service.faults().always(call, fault.clone()),
            }
        }
    }
}

/// What befalls the service, and not a single call.
#[derive(Debug, Deserialize)]
#[serde(
    tag = "mishap",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
pub(super) enum Mishap {
    /// All tenant tokens are invalid.
    ExpireTenantTokens,
    /// The tokens of all queues are invalid.
    ExpireQueueTokens,
    /// All sessions are forgotten.
    DropSessions,
    /// The latest message of a scale set comes once more.
    DeliverAgain { scale_set: i64 },
    /// Messages come until they are acknowledged, whatever the cursor.
    Redeliver { on: bool },
    /// A scale set's next message has this element.
    Tell { scale_set: i64, element: Value },
    /// A scale set's statistics are told so, null or not; without, the truth is told again.
    PretendStatistics {
        scale_set: i64,
        #[serde(default, deserialize_with = "present")]
        statistics: Option<Value>,
    },
    /// Tokens given out from now on last for so many seconds.
    Lifetimes {
        #[serde(default)]
        tenant_token: Option<i64>,
        #[serde(default)]
        queue_token: Option<i64>,
        /// After its issue, a registration token is unknown for so long.
        #[serde(default)]
        registration_unknown: Option<i64>,
    },
}

/// Null is a value, too.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Mishap {
    pub(super) fn befall(self, service: &ActionsService) -> Result<(), Refused> {
        if let Self::DeliverAgain { scale_set }
        | Self::Tell { scale_set, .. }
        | Self::PretendStatistics { scale_set, .. } = &self
        {
            let mut sets = service.scale_sets().into_iter();
            if !sets.any(|set| set.id == *scale_set) {
                return Err(not_found(format!("there is no scale set {scale_set}")));
            }
        }
        match self {
            Self::ExpireTenantTokens => service.expire_tenant_tokens(),
            Self::ExpireQueueTokens => service.expire_queue_tokens(),
            Self::DropSessions => service.drop_sessions(),
            Self::DeliverAgain { scale_set } => service.deliver_again(scale_set),
            Self::Redeliver { on } => service.redeliver_until_acknowledged(on),
            Self::Tell { scale_set, element } => service.tell(scale_set, element),
            Self::PretendStatistics {
                scale_set,
                statistics,
            } => service.pretend_statistics(scale_set, statistics),
            Self::Lifetimes {
                tenant_token,
                queue_token,
                registration_unknown,
            } => service.set_durations(|durations| {
                let set = |field: &mut i64, value: Option<i64>| *field = value.unwrap_or(*field);
                set(&mut durations.tenant_token, tenant_token);
                set(&mut durations.queue_token, queue_token);
                set(&mut durations.registration_unknown, registration_unknown);
            }),
        }
        Ok(())
    }
}
