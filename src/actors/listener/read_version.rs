//! Which version of a Secret a running listener has read.
//!
//! A listener reads its Secrets once, at its start, and its pod is marked with their version.
//! Somebody's label on a Secret moves the version and changes nothing of what was read, so the
//! mark stays good: as long as the same data was found at the version of the mark after the
//! listener had started. Where that is not known, the mark is taken at its word.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;

use crate::clock::Timestamp;

/// Follows one Secret.
#[derive(Debug, Default)]
pub struct ReadVersion(Option<Seen>);

#[derive(Debug)]
struct Seen {
    live: Arc<Secret>,
    /// When the API server last answered with this version.
    confirmed: Option<Timestamp>,
    /// The version that is as good as that of `live`.
    mark: String,
}

impl ReadVersion {
    /// Takes in the Secret as it is now, at `confirmed`, and since when the listener has been
    /// running. Answers with the version that a pod has to be marked with.
    pub fn follow(
        &mut self,
        live: &Arc<Secret>,
        same: impl FnOnce(&Secret, &Secret) -> bool,
        confirmed: Option<Timestamp>,
        running: Option<Timestamp>,
    ) -> String {
        let version = version(live);
        let mark = match self.0.take() {
            Some(seen) if running.is_some() && is_version(&seen.live, &version) => seen.mark,
            Some(seen) if seen.was_read(running) && same(&seen.live, live) => seen.mark,
            _ => version,
        };
        self.0 = Some(Seen {
            live: live.clone(),
            confirmed,
            mark: mark.clone(),
        });
        mark
    }

    /// The version that a pod which has read this Secret is marked with.
    #[must_use]
    pub fn mark(&self, live: &Secret) -> String {
        let version = version(live);
        match &self.0 {
            Some(seen) if is_version(&seen.live, &version) => seen.mark.clone(),
            _ => version,
        }
    }
}

impl Seen {
    /// Whether the listener, running since then, has read this version.
    fn was_read(&self, running: Option<Timestamp>) -> bool {
        running
            .zip(self.confirmed)
            .is_some_and(|(since, confirmed)| since <= confirmed)
    }
}

fn version(secret: &Secret) -> String {
    secret.metadata.resource_version.clone().unwrap_or_default()
}

fn is_version(secret: &Secret, version: &str) -> bool {
    secret.metadata.resource_version.as_deref() == Some(version)
}
