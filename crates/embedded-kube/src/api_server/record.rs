//! What the server remembers of its own work: how many requests of which kind, and, when
//! asked to, one line for each request and each change.

use std::collections::BTreeMap;

use super::faults::RequestInfo;
use super::store::{Change, ChangeKind, ObjectId};
use wall_clock::Timestamp;

/// By what requests are counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey {
    /// Kubernetes' verb, or `GET` and the like for paths that are not about a resource.
    pub verb: &'static str,
    /// Group and plural name, with the subresource after a slash; else the path.
    pub resource: String,
    /// The client's name for itself.
    pub user_agent: String,
}

/// Counters and log.
#[derive(Debug, Default)]
pub struct Record {
    requests: BTreeMap<RequestKey, u64>,
    log: Option<Vec<String>>,
}

impl Record {
    /// Counters, and a log when `keep_log` is set.
    #[must_use]
    pub fn new(keep_log: bool) -> Self {
        Self {
            requests: BTreeMap::new(),
            log: keep_log.then(Vec::new),
        }
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> &BTreeMap<RequestKey, u64> {
        &self.requests
    }

    /// Takes the lines logged since this was called last.
    pub fn take_log(&mut self) -> Vec<String> {
        self.log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Counts a request and logs its answer.
    pub fn request(&mut self, now: Timestamp, request: &RequestInfo, code: u16) {
        let mut resource = request.resource.clone();
        if !request.subresource.is_empty() {
            resource.push('/');
            resource.push_str(&request.subresource);
        }
        let key = RequestKey {
            verb: request.verb.map_or("meta", |verb| verb.as_str()),
            resource,
            user_agent: request.user_agent.clone(),
        };
        if let Some(log) = &mut self.log {
            log.push(format!(
                "{now:.3} request {} {} {}/{} -> {code}",
                key.verb, key.resource, request.namespace, request.name
            ));
        }
        *self.requests.entry(key).or_default() += 1;
    }

    /// Logs a change.
    pub fn change(&mut self, now: Timestamp, id: &ObjectId, change: &Change) {
        let Some(log) = &mut self.log else { return };
        let kind = match change.kind {
            ChangeKind::Added => "added",
            ChangeKind::Modified => "modified",
            ChangeKind::Deleted => "deleted",
        };
        log.push(format!(
            "{now:.3} {kind} {} {}/{} at {}",
            id.shelf, id.namespace, id.name, change.revision
        ));
    }
}
