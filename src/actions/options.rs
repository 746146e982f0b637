//! What a client is made with.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;

use crate::api::{ConfigUrl, Credentials};

/// Whose jobs, as whom, and how.
#[derive(Clone)]
pub struct ClientOptions {
    /// Enterprise, organization or repository.
    pub url: ConfigUrl,
    /// As whom.
    pub credentials: Credentials,
    /// Who says it is calling.
    pub user_agent: UserAgent,
    /// Treats every host as a GitHub Enterprise Server (`GITHUB_ACTIONS_FORCE_GHES`).
    pub force_ghes: bool,
    /// How many calls may be in flight at once. Polls of a message queue do not count.
    pub concurrency: usize,
    /// Told of every request.
    pub observer: Option<Arc<dyn Observer>>,
}

impl ClientOptions {
    /// Options with the usual values: 32 concurrent calls, nobody told of them.
    #[must_use]
    pub fn new(url: ConfigUrl, credentials: Credentials) -> Self {
        Self {
            url,
            credentials,
            user_agent: UserAgent::default(),
            force_ghes: false,
            concurrency: 32,
            observer: None,
        }
    }
}

/// Is told of every request that was sent, retries included. Meant for metrics.
pub trait Observer: Send + Sync {
    /// A request ended. `outcome` is the HTTP status, or `connection` or `timeout` when no
    /// answer came; `call` and `outcome` are few and safe to be labels.
    fn request(&self, call: &'static str, outcome: &str, duration: Duration);
}

/// The commit that this program was built from: what `IMPRESARIO_COMMIT`, or else `GITHUB_SHA`
/// as GitHub's own workflows set it, was at build time; empty when neither was set.
pub const COMMIT: &str = match (option_env!("IMPRESARIO_COMMIT"), option_env!("GITHUB_SHA")) {
    (Some(commit), _) | (None, Some(commit)) => commit,
    (None, None) => "",
};

/// What the service is told about this program, as a JSON object in the `User-Agent` header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserAgent {
    /// Version of this program.
    pub version: String,
    /// Commit it was built from; empty when the build was not told. See [`COMMIT`].
    pub commit_sha: String,
    /// Scale set it calls for; 0 when for several.
    pub scale_set_id: i64,
    /// Part of the program: `controller` or `listener`.
    pub subsystem: String,
}

impl Default for UserAgent {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit_sha: COMMIT.to_owned(),
            scale_set_id: 0,
            subsystem: "controller".to_owned(),
        }
    }
}

impl UserAgent {
    pub(super) fn header(&self) -> HeaderValue {
        let json = serde_json::json!({
            "system": env!("CARGO_PKG_NAME"),
            "version": self.version,
            "commit_sha": self.commit_sha,
            "scale_set_id": self.scale_set_id,
            "subsystem": self.subsystem,
        });
        HeaderValue::from_str(&json.to_string())
            .unwrap_or_else(|_| HeaderValue::from_static(env!("CARGO_PKG_NAME")))
    }
}
