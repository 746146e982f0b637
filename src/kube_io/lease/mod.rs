//! Leader election: of several controllers one works, and the others wait.
//!
//! [`election`] decides; here stands the loop around it, which sends what was decided and tells
//! the [`Fence`] until when the process may write.

mod election;

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::Instant;

use self::election::{Action, Election, Failure, Input};
use super::fence::Fence;
use crate::clock::Clock;

/// For how long writes may still be under way when a lease is given up or lost: less than others
/// wait beyond its validity, and little enough for a pod's usual grace period.
pub const DRAIN: Duration = Duration::from_secs(4);

/// The lease was lost to another, or could not be renewed in time.
#[derive(Debug, thiserror::Error)]
#[error("lease {namespace}/{name} was lost: {reason}")]
pub struct LeaseLost {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who holds it, or why it could not be renewed.
    pub reason: String,
}

/// A candidate for one Lease.
pub struct Candidate {
    api: Api<Lease>,
    namespace: String,
    name: String,
    clock: Clock,
    /// From when the election's times count.
    start: Instant,
    election: Election,
    fence: Fence,
}

impl Candidate {
    /// A candidate of this name for the Lease. Two processes must not have the same name. Through
    /// the client go its requests alone, so that none waits behind others; the fence is the one
    /// that its process writes through.
    #[must_use]
    pub fn new(
        client: Client,
        clock: Clock,
        namespace: &str,
        name: &str,
        identity: &str,
        fence: Fence,
    ) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            clock,
            start: Instant::now(),
            election: Election::new(namespace.to_owned(), name.to_owned(), identity.to_owned()),
            fence,
        }
    }

    /// Waits until the lease is held.
    pub async fn acquire(&mut self) {
        let mut last = String::new();
        let mut input = Input::Due;
        loop {
            if let Input::Read(Err(failure)) | Input::Written(Err(failure)) = &input {
                tracing::warn!(lease = self.name, ?failure, "lease not acquired");
            }
            let action = self.step(input);
            if self.election.valid_until().is_some() {
                return;
            }
            let holder = self.election.holder();
            if !holder.is_empty() && holder != last {
                tracing::info!(lease = self.name, %holder, "another controller leads");
                holder.clone_into(&mut last);
            }
            input = self.perform(action).await.unwrap_or(Input::Due);
        }
    }

    /// Renews the lease until it is lost. May be dropped and called again.
    pub async fn hold(&mut self) -> LeaseLost {
        let mut action = self.election.wait(self.start.elapsed());
        loop {
            let input = match self.perform(action).await {
                Ok(input) => input,
                Err(Ended::Lost(reason)) => {
                    return LeaseLost {
                        namespace: self.namespace.clone(),
                        name: self.name.clone(),
                        reason,
                    };
                }
                Err(Ended::Released(_)) => Input::Due,
            };
            if let Input::Read(Err(failure)) | Input::Written(Err(failure)) = &input {
                tracing::warn!(
                    lease = self.name,
                    ?failure,
                    "lease not renewed, trying again"
                );
            }
            action = self.step(input);
        }
    }

    /// Gives the lease up, if it is ours, so that a successor need not wait for it to expire.
    /// Nothing may be written under it any more.
    pub async fn release(&mut self) {
        self.fence.close();
        let mut input = Input::Release;
        let released = loop {
            let action = self.step(input);
            match self.perform(action).await {
                Ok(next) => input = next,
                Err(Ended::Released(result)) => break result,
                Err(Ended::Lost(reason)) => break Err(reason),
            }
        };
        match released {
            Ok(()) => tracing::info!(lease = self.name, "lease released"),
            Err(reason) => {
                tracing::warn!(
                    lease = self.name,
                    reason,
                    "lease not released; it will expire"
                );
            }
        }
    }

    fn step(&mut self, input: Input) -> Action {
        let now = self.start.elapsed();
        let action = self.election.step(now, self.clock.now(), input);
        if let Some(until) = self.election.valid_until() {
            self.fence.open_until(self.start + until);
        }
        action
    }

    /// Does what was decided, and says how it went.
    async fn perform(&self, action: Action) -> Result<Input, Ended> {
        let params = PostParams::default();
        Ok(match action {
            Action::Get { within } => {
                Input::Read(answered(within, &[], self.api.get_opt(&self.name)).await)
            }
            Action::Create { lease, within } => {
                let created = self.api.create(&params, &lease);
                Input::Written(answered(within, &[409], created).await)
            }
            Action::Replace { lease, within } => {
                let replaced = self.api.replace(&self.name, &params, &lease);
                // one that is not there any more is no longer the one that was read
                Input::Written(answered(within, &[404, 409], replaced).await)
            }
            Action::Wait(time) => {
                tokio::time::sleep(time).await;
                Input::Due
            }
            Action::Lost(reason) => return Err(Ended::Lost(reason)),
            Action::Released(result) => return Err(Ended::Released(result)),
        })
    }
}

/// How it ended.
enum Ended {
    Lost(String),
    Released(Result<(), String>),
}

async fn answered<T>(
    within: Duration,
    conflicts: &[u16],
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(within, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if conflicts.contains(&status.code) => {
            Err(Failure::Conflict)
        }
        Ok(Err(error)) => Err(Failure::Other(error.to_string())),
        Err(_) => Err(Failure::Other("the API server does not answer".to_owned())),
    }
}

#[cfg(test)]
mod answers;
#[cfg(test)]
mod rivals;
