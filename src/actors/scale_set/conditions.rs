//! Conditions of a scale set: what was found in one step, and how it is brought into the list
//! that is there.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::runner_set::Revisions;
use crate::clock::Timestamp;
use crate::messages::{Reason, codes};

/// Names of the conditions.
pub mod kinds {
    /// The Actions service knows the scale set.
    pub const REGISTERED: &str = "Registered";
    /// The listener runs.
    pub const LISTENER_READY: &str = "ListenerReady";
    /// Runners can be made and get ready.
    pub const RUNNERS_READY: &str = "RunnersReady";
    /// All of these: jobs are taken.
    pub const READY: &str = "Ready";
    /// The scale set comes from a chart that this controller was tested with. There only
    /// when it does not.
    pub const VERSION_TESTED: &str = "VersionTested";
    /// The CustomResourceDefinitions in the cluster have every field that is written. There
    /// only when they do not.
    pub const FIELDS_SERVED: &str = "FieldsServed";
}

/// What one step found about one condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Finding {
    /// Nothing: what the condition says stays.
    #[default]
    Unknown,
    /// It holds.
    Holds(Reason),
    /// It does not hold.
    Fails(Reason),
    /// It has no place in the list.
    Absent,
}

impl Finding {
    /// That it holds.
    pub fn holds(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::Holds(Reason::new(code, message))
    }

    /// That it does not hold.
    pub fn fails(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::Fails(Reason::new(code, message))
    }
}

/// What one step found.
#[derive(Debug, Default)]
pub struct Findings {
    /// About [`kinds::REGISTERED`].
    pub registered: Finding,
    /// About [`kinds::LISTENER_READY`].
    pub listener: Finding,
    /// About [`kinds::RUNNERS_READY`].
    pub runners: Finding,
    /// About [`kinds::READY`], where that does not follow from the three.
    pub ready: Finding,
    /// About [`kinds::VERSION_TESTED`].
    pub version: Finding,
    /// About [`kinds::FIELDS_SERVED`].
    pub fields: Finding,
    /// Everything that the spec asks for is in place.
    pub settled: bool,
    /// Whether the scale set is parked, if that was looked at.
    pub parked: Option<bool>,
    /// It is, but the runner spec was corrected.
    pub corrected: bool,
    /// Which revision of the runner spec is wanted and which applied, if there is one.
    pub revisions: Option<Revisions>,
}

impl Findings {
    /// The list that takes the place of `live`. Conditions of others stay; a transition time
    /// changes only with the status.
    #[must_use]
    pub fn applied_to(
        &self,
        live: &[Condition],
        generation: Option<i64>,
        now: Timestamp,
    ) -> Vec<Condition> {
        let mut list = live.to_vec();
        let named = [
            (kinds::REGISTERED, &self.registered),
            (kinds::LISTENER_READY, &self.listener),
            (kinds::RUNNERS_READY, &self.runners),
            (kinds::VERSION_TESTED, &self.version),
            (kinds::FIELDS_SERVED, &self.fields),
        ];
        for (kind, finding) in named {
            apply(&mut list, kind, finding, generation, now);
        }
        let ready = match &self.ready {
            Finding::Unknown => summed_up(&list),
            given => given.clone(),
        };
        apply(&mut list, kinds::READY, &ready, generation, now);
        list
    }
}

/// `Ready` as it follows from the conditions that it sums up.
fn summed_up(list: &[Condition]) -> Finding {
    // the listener of a parked scale set is stopped for its runners' sake
    for kind in [
        kinds::REGISTERED,
        kinds::RUNNERS_READY,
        kinds::LISTENER_READY,
    ] {
        match list.iter().find(|condition| condition.type_ == kind) {
            None => return Finding::fails(codes::STARTING, format!("{kind} is not known yet")),
            Some(condition) if condition.status != "True" => {
                return Finding::fails(condition.reason.clone(), &condition.message);
            }
            Some(_) => {}
        }
    }
    let shared = list.iter().find(|condition| {
        condition.type_ == kinds::REGISTERED && condition.reason == codes::SCALE_SET_SHARED
    });
    match shared {
        Some(condition) => Finding::holds(codes::SCALE_SET_SHARED, &condition.message),
        None => Finding::holds(codes::READY, "jobs are taken"),
    }
}

fn apply(
    list: &mut Vec<Condition>,
    kind: &str,
    finding: &Finding,
    generation: Option<i64>,
    now: Timestamp,
) {
    let (status, why) = match finding {
        Finding::Unknown => return,
        Finding::Absent => {
            list.retain(|condition| condition.type_ != kind);
            return;
        }
        Finding::Holds(why) => ("True", why),
        Finding::Fails(why) => ("False", why),
    };
    let known = list.iter_mut().find(|condition| condition.type_ == kind);
    let since = known
        .as_ref()
        .filter(|known| known.status == status)
        .map_or(Time(now), |known| known.last_transition_time.clone());
    let condition = Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: word(&why.code),
        message: why.message.clone(),
        observed_generation: generation,
        last_transition_time: since,
    };
    match known {
        Some(known) => *known = condition,
        None => list.push(condition),
    }
}

/// A reason must be one word; what pods give as reasons is not always.
fn word(reason: &str) -> String {
    let kept: String = reason
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect();
    if kept.starts_with(|c: char| c.is_ascii_alphabetic()) {
        kept
    } else {
        format!("Reason{kept}")
    }
}
