//! The seam through which trouble comes in: every request and every watch event passes here.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;

use super::http::Verb;
use super::status::ApiError;

/// What is known of a request before it is carried out.
#[derive(Clone, Debug)]
pub struct RequestInfo {
    /// Kubernetes' verb; none for paths that are not about a resource.
    pub verb: Option<Verb>,
    /// Group and plural name, such as `ephemeralrunners.actions.github.com`; else the path.
    pub resource: String,
    /// Namespace in the path; empty when there is none.
    pub namespace: String,
    /// Name in the path, of an object to be created that in its body; empty when there is none.
    pub name: String,
    /// Such as `status`; empty for the object itself.
    pub subresource: String,
    /// The client's name for itself, before the slash.
    pub user_agent: String,
}

/// What becomes of a request.
#[derive(Clone, Debug, Default)]
pub struct RequestFate {
    /// It reaches the server when this says `true`, or when nobody is left to say it.
    pub held_until: Option<watch::Receiver<bool>>,
    /// Time before it reaches the server.
    pub delay_before: Duration,
    /// Whether it takes effect, and what is answered.
    pub outcome: Outcome,
    /// Time until the answer arrives.
    pub delay_after: Duration,
}

/// Whether a request takes effect, and what is answered.
#[derive(Clone, Debug, Default)]
pub enum Outcome {
    /// It is carried out and answered.
    #[default]
    Answered,
    /// It has no effect, and this is the answer.
    Refused(ApiError),
    /// It takes effect, and yet this is the answer.
    AnsweredWrongly(ApiError),
    /// The connection breaks before it has an effect.
    Lost,
    /// It takes effect, and the connection breaks before the answer.
    AnswerLost,
    /// A read is answered with the state of so many revisions ago, as by a server that lags.
    Stale(u64),
}

/// What is known of a watch event before it is sent.
#[derive(Clone, Copy, Debug)]
pub struct EventInfo<'a> {
    /// Group and plural name.
    pub resource: &'a str,
    /// The object's; empty for one of the cluster, and for a bookmark.
    pub namespace: &'a str,
    /// The object's; empty for a bookmark.
    pub name: &'a str,
    /// `ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`.
    pub kind: &'a str,
    /// Of the client that watches.
    pub user_agent: &'a str,
}

/// What becomes of a watch event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventFate {
    /// It arrives.
    #[default]
    Delivered,
    /// It and those behind it arrive later.
    Delayed(Duration),
    /// It arrives twice.
    Duplicated,
    /// It never arrives, though later ones do.
    Dropped,
    /// The watch ends in its place, as when a server restarts.
    Closed,
    /// The watch ends with 410 in its place.
    Expired,
}

/// A change of an object that has just been stored.
#[derive(Clone, Copy, Debug)]
pub struct ChangeInfo<'a> {
    /// Group and plural name.
    pub resource: &'a str,
    /// The object before; none where it was created.
    pub before: Option<&'a Value>,
    /// The object now; none where it was removed.
    pub after: Option<&'a Value>,
    /// The request that did it; none for the server's own work.
    pub request: Option<&'a RequestInfo>,
}

/// Decides about requests and watch events. Called in the order in which they happen, so one
/// that draws from a seeded generator is deterministic.
pub trait Interceptor: Send + Sync {
    /// What becomes of a request.
    fn request(&self, _request: &RequestInfo) -> RequestFate {
        RequestFate::default()
    }

    /// Hears of every change, before anything else happens.
    fn changed(&self, _change: &ChangeInfo<'_>) {}

    /// What becomes of an event of a watch.
    fn event(&self, _event: &EventInfo<'_>) -> EventFate {
        EventFate::default()
    }
}

/// Lets everything pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFaults;

impl Interceptor for NoFaults {}
