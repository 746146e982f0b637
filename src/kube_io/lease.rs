//! Leader election: of several controllers one works, and the others wait.
//!
//! [`Election`] decides, from what the Lease says and how long it has said so; the loop
//! around it reads and writes. As in client-go, a holder's clock is never compared with ours:
//! what counts is for how long we have seen the record unchanged.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::Instant;

use crate::clock::{Clock, Timestamp};

/// How long a lease holds without being renewed.
const DURATION: Duration = Duration::from_secs(15);
/// How long the holder goes on trying to renew before it gives up.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How often it is looked at.
const RETRY: Duration = Duration::from_secs(2);

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

/// What to do about a Lease.
#[derive(Debug, PartialEq)]
enum Move {
    /// There is none: create it with this content.
    Create(LeaseSpec),
    /// Take it over or renew it, with this content.
    Write(LeaseSpec),
    /// Somebody else holds it.
    Wait,
}

/// Decides what to do about a Lease.
struct Election {
    identity: String,
    seen: Option<LeaseSpec>,
    seen_since: Instant,
}

impl Election {
    fn new(identity: String, now: Instant) -> Self {
        Self {
            identity,
            seen: None,
            seen_since: now,
        }
    }

    fn decide(&mut self, lease: Option<&LeaseSpec>, now: Instant, time: Timestamp) -> Move {
        let Some(lease) = lease else {
            return Move::Create(self.mine(None, time));
        };
        if self.seen.as_ref() != Some(lease) {
            self.seen = Some(lease.clone());
            self.seen_since = now;
        }
        let holder = lease.holder_identity.as_deref().unwrap_or_default();
        let holds_for = lease
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(DURATION, Duration::from_secs);
        let expired = now.saturating_duration_since(self.seen_since) > holds_for;
        if holder == self.identity || holder.is_empty() || expired {
            Move::Write(self.mine(Some(lease), time))
        } else {
            Move::Wait
        }
    }

    fn mine(&self, before: Option<&LeaseSpec>, time: Timestamp) -> LeaseSpec {
        let kept = before.filter(|spec| spec.holder_identity.as_ref() == Some(&self.identity));
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: kept
                .and_then(|spec| spec.acquire_time.clone())
                .or(Some(MicroTime(time))),
            renew_time: Some(MicroTime(time)),
            lease_transitions: Some(match (before, kept) {
                (Some(_), None) => transitions.saturating_add(1),
                _ => transitions,
            }),
            ..before.cloned().unwrap_or_default()
        }
    }
}

/// A candidate for one Lease.
pub struct Candidate {
    api: Api<Lease>,
    namespace: String,
    name: String,
    clock: Clock,
    election: Election,
}

impl Candidate {
    /// A candidate of this name for the Lease.
    #[must_use]
    pub fn new(client: Client, clock: Clock, namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            clock,
            election: Election::new(identity.to_owned(), Instant::now()),
        }
    }

    /// Waits until the lease is held.
    pub async fn acquire(&mut self) {
        let mut last = String::new();
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) => {
                    let holder = self.holder();
                    if holder != last {
                        tracing::info!(lease = self.name, %holder, "another controller leads");
                        last = holder;
                    }
                }
                Err(error) => tracing::warn!(lease = self.name, %error, "lease not acquired"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Renews the lease until it is lost.
    pub async fn hold(&mut self) -> LeaseLost {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(RETRY).await;
            let left = (renewed + RENEW_DEADLINE).saturating_duration_since(Instant::now());
            let reason = match tokio::time::timeout(left, self.attempt()).await {
                Ok(Ok(true)) => {
                    renewed = Instant::now();
                    continue;
                }
                Ok(Ok(false)) => return self.lost(format!("{} holds it", self.holder())),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the API server does not answer".to_owned(),
            };
            if renewed.elapsed() >= RENEW_DEADLINE {
                return self.lost(reason);
            }
            tracing::warn!(lease = self.name, reason, "lease not renewed, trying again");
        }
    }

    /// Gives the lease up, so that a successor need not wait for it to expire.
    pub async fn release(&mut self) {
        let released: kube::Result<()> = async {
            let Some(mut lease) = self.api.get_opt(&self.name).await? else {
                return Ok(());
            };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_ref() == Some(&self.election.identity) {
                spec.holder_identity = Some(String::new());
                spec.lease_duration_seconds = Some(1);
                self.api
                    .replace(&self.name, &PostParams::default(), &lease)
                    .await?;
            }
            Ok(())
        }
        .await;
        if let Err(error) = released {
            tracing::warn!(lease = self.name, %error, "lease not released; it will expire");
        }
    }

    /// One look and one move. Says whether the lease is held now.
    async fn attempt(&mut self) -> kube::Result<bool> {
        let lease = self.api.get_opt(&self.name).await?;
        let spec = lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let seen = lease.as_ref().map(|_| spec.cloned().unwrap_or_default());
        let decided = self
            .election
            .decide(seen.as_ref(), Instant::now(), self.clock.now());
        let params = PostParams::default();
        let result = match (decided, lease) {
            (Move::Wait, _) => return Ok(false),
            (Move::Create(spec) | Move::Write(spec), None) => {
                let lease = Lease {
                    metadata: ObjectMeta {
                        name: Some(self.name.clone()),
                        namespace: Some(self.namespace.clone()),
                        ..ObjectMeta::default()
                    },
                    spec: Some(spec),
                };
                self.api.create(&params, &lease).await
            }
            (Move::Create(spec) | Move::Write(spec), Some(mut lease)) => {
                // the resourceVersion read makes this an optimistic write
                lease.spec = Some(spec);
                self.api.replace(&self.name, &params, &lease).await
            }
        };
        // a conflict says that it has changed since it was read: who holds it, the next look tells
        result.map(|_| true)
    }

    fn holder(&self) -> String {
        self.election
            .seen
            .as_ref()
            .and_then(|spec| spec.holder_identity.clone())
            .unwrap_or_default()
    }

    fn lost(&self, reason: String) -> LeaseLost {
        LeaseLost {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Timestamp = Timestamp::UNIX_EPOCH;

    fn held_by(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(4),
            ..LeaseSpec::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_of_another_is_taken_only_after_it_was_seen_unchanged_for_its_duration() {
        let start = Instant::now();
        let mut election = Election::new("me".into(), start);
        let other = held_by("other");
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(election.decide(Some(&other), at(100), TIME), Move::Wait);
        assert_eq!(election.decide(Some(&other), at(115), TIME), Move::Wait);
        let Move::Write(spec) = election.decide(Some(&other), at(116), TIME) else {
            panic!("not taken");
        };
        assert_eq!(spec.holder_identity.as_deref(), Some("me"));
        assert_eq!(spec.lease_transitions, Some(5));
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewed_lease_of_another_is_waited_for() {
        let start = Instant::now();
        let mut election = Election::new("me".into(), start);
        for round in 0..20_u64 {
            let mut other = held_by("other");
            other.renew_time = Some(MicroTime(crate::clock::after(TIME, round as i64)));
            let now = start + Duration::from_secs(round * 10);
            assert_eq!(election.decide(Some(&other), now, TIME), Move::Wait);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_free_lease_and_our_own_are_written_at_once() {
        let now = Instant::now();
        let mut election = Election::new("me".into(), now);
        assert!(matches!(election.decide(None, now, TIME), Move::Create(_)));
        for holder in ["", "me"] {
            let decided = election.decide(Some(&held_by(holder)), now, TIME);
            let Move::Write(spec) = decided else {
                panic!("not written");
            };
            let expected = if holder == "me" { 4 } else { 5 };
            assert_eq!(spec.lease_transitions, Some(expected));
        }
    }
}
