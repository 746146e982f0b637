//! Calls to the GitHub Actions service, and its answers, in the terms of the actors. The
//! wire format belongs to `crate::actions`.

use std::fmt;
use std::time::Duration;

use secrecy::SecretString;

use crate::api::{ProxyConfig, TlsConfig, VaultConfig};

/// Where and as whom to call the Actions service. Calls of equal tenants share one client.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    /// Config URL: an enterprise, organization or repository.
    pub config_url: String,
    /// Namespace of the Secrets and the ConfigMap below.
    pub namespace: String,
    /// Name of the Secret with the credentials, or their key in the vault.
    pub secret: String,
    /// Proxies.
    pub proxy: Option<ProxyConfig>,
    /// Root certificate.
    pub tls: Option<TlsConfig>,
    /// Vault that holds the credentials.
    pub vault: Option<VaultConfig>,
}

/// One call, and the tenant it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionsRequest {
    /// For whom.
    pub tenant: Tenant,
    /// What.
    pub call: ActionsCall,
}

/// A call to the Actions service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionsCall {
    /// Looks a runner group up by name. Answer: `Group`.
    GetRunnerGroup {
        /// Its name.
        name: String,
    },
    /// Looks a scale set up by name in a runner group. Answer: `ScaleSet`, `None` when there is
    /// none.
    FindScaleSet {
        /// Runner group.
        group_id: i64,
        /// Its name.
        name: String,
    },
    /// Reads a scale set. Answer: `ScaleSet`, `None` when there is none.
    GetScaleSet {
        /// Its id.
        id: i64,
    },
    /// Creates a scale set of type `System` labels, its runners not updating themselves.
    /// Answer: `ScaleSet`.
    CreateScaleSet {
        /// Its name.
        name: String,
        /// Runner group.
        group_id: i64,
        /// Names of its labels.
        labels: Vec<String>,
    },
    /// Changes a scale set. Answer: `ScaleSet`.
    UpdateScaleSet {
        /// Its id.
        id: i64,
        /// Its new name.
        name: String,
        /// Its new runner group.
        group_id: i64,
        /// Names of its labels.
        labels: Vec<String>,
    },
    /// Deletes a scale set; one that is gone already counts as deleted. Answer: `Done`.
    DeleteScaleSet {
        /// Its id.
        id: i64,
    },
    /// Registers a runner. Answer: `Jit`.
    GenerateJitConfig {
        /// Scale set it belongs to.
        scale_set_id: i64,
        /// The runner's name.
        name: String,
        /// Its work folder; empty leaves it to the runner.
        work_folder: String,
    },
    /// Looks a runner up by name. Answer: `Runner`, `None` when there is none.
    FindRunner {
        /// Its name.
        name: String,
    },
    /// Removes a runner's registration. Answer: `Done`; error `RunnerNotFound` when there is none.
    RemoveRunner {
        /// Its id; never 0.
        id: i64,
    },
}

impl ActionsCall {
    /// The call's name, for logs and metrics.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::GetRunnerGroup { .. } => "get_runner_group",
            Self::FindScaleSet { .. } => "find_scale_set",
            Self::GetScaleSet { .. } => "get_scale_set",
            Self::CreateScaleSet { .. } => "create_scale_set",
            Self::UpdateScaleSet { .. } => "update_scale_set",
            Self::DeleteScaleSet { .. } => "delete_scale_set",
            Self::GenerateJitConfig { .. } => "generate_jit_config",
            Self::FindRunner { .. } => "find_runner",
            Self::RemoveRunner { .. } => "remove_runner",
        }
    }
}

/// What the service answered.
#[derive(Clone, Debug)]
pub enum ActionsAnswer {
    /// A runner group.
    Group(RunnerGroup),
    /// A scale set, or that there is none.
    ScaleSet(Option<RunnerScaleSet>),
    /// A registered runner with its JIT configuration.
    Jit(JitConfig),
    /// A runner, or that there is none.
    Runner(Option<Runner>),
    /// It is done.
    Done,
}

/// A runner group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerGroup {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub name: String,
}

/// A scale set as the service knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerScaleSet {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its runner group's id.
    pub group_id: i64,
    /// Its runner group's name.
    pub group_name: String,
    /// Names of its labels.
    pub labels: Vec<String>,
}

/// A runner as the service knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// Its id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// The scale set it belongs to; 0 when to none.
    pub scale_set_id: i64,
}

/// A registered runner and what it signs in with.
#[derive(Clone, Debug)]
pub struct JitConfig {
    /// The runner.
    pub runner: Runner,
    /// Its JIT configuration, encoded.
    pub encoded: SecretString,
}

/// Why a call failed. The message holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ActionsError {
    /// What it means for the one who asked.
    pub kind: ActionsErrorKind,
    /// What happened, with the service's request ids, or what a person has to mend.
    pub message: String,
    /// How long the service asks to wait.
    pub retry_after: Option<Duration>,
}

/// What a failed call means for the one who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActionsErrorKind {
    /// The Secret, vault entry, proxy Secret or ConfigMap is missing or holds nothing usable.
    Credentials,
    /// The API server does not let the controller read what the call needs.
    Denied,
    /// The config URL or another setting is wrong.
    Config,
    /// The service refuses the credentials (401, 403).
    Unauthorized,
    /// A runner of that name is registered already.
    RunnerExists,
    /// There is no such runner.
    RunnerNotFound,
    /// The runner has a job and cannot be removed.
    JobStillRunning,
    /// There is no such scale set.
    ScaleSetNotFound,
    /// There is no such runner group.
    GroupNotFound,
    /// The service is busy, out of order or did not answer in time.
    Unavailable,
    /// Anything else.
    Other,
}

impl ActionsErrorKind {
    /// The kind's name, for metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Credentials => "credentials",
            Self::Denied => "denied",
            Self::Config => "config",
            Self::Unauthorized => "unauthorized",
            Self::RunnerExists => "runner_exists",
            Self::RunnerNotFound => "runner_not_found",
            Self::JobStillRunning => "job_still_running",
            Self::ScaleSetNotFound => "scale_set_not_found",
            Self::GroupNotFound => "group_not_found",
            Self::Unavailable => "unavailable",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for ActionsErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
