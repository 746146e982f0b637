//! Why a vault gives no secret, and what a person has to mend.

use std::path::PathBuf;
use std::time::Duration;

use crate::actions::credentials::{SourceError, SourceErrorKind};

/// Why a vault gives no secret. Names who refused what, and holds no secret, token or
/// assertion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// A setting is missing or not usable.
    #[error("vault setting {field} {problem}")]
    Setting {
        /// The setting, in the words of the spec.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The file with certificate and private key cannot be used.
    #[error("the vault's certificatePath {} {problem}", .path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// The vault sends us where we do not go.
    #[error("the vault {vault} {problem}: nothing was sent there; check the url of azureKeyVault")]
    Challenge {
        /// The vault's host.
        vault: String,
        /// What its challenge asks for.
        problem: String,
    },
    /// The tenant does not let the application in.
    #[error("{host} does not let application {client_id} of tenant {tenant} in: {message}{advice}")]
    LoginRefused {
        /// Host that lets in.
        host: String,
        /// The tenant.
        tenant: String,
        /// The application.
        client_id: String,
        /// What it says, with its `AADSTS` code.
        message: String,
        /// What to do, when the code tells.
        advice: &'static str,
    },
    /// The vault does not let the application read the secret.
    #[error(
        "the vault {vault} does not let application {client_id} read secret {name}: {message}; \
         give it the role \"Key Vault Secrets User\", or an access policy with the permission \
         Get for secrets, and let this pod's network through the vault's firewall"
    )]
    Forbidden {
        /// The vault's host.
        vault: String,
        /// The secret.
        name: String,
        /// The application.
        client_id: String,
        /// What it says.
        message: String,
    },
    /// There is no such secret.
    #[error("the vault {vault} has no secret {name}: create it, or correct githubConfigSecret")]
    Missing {
        /// The vault's host.
        vault: String,
        /// The secret.
        name: String,
    },
    /// The secret's value is not what is expected.
    #[error("the value of secret {name} of the vault {vault} {problem}")]
    Value {
        /// The vault's host.
        vault: String,
        /// The secret.
        name: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// An answer that nobody expects.
    #[error("{whom} {problem}")]
    Unexpected {
        /// Whose.
        whom: String,
        /// What it says.
        problem: String,
    },
    /// Somebody is busy, out of order or did not answer in time.
    #[error("{whom} cannot be reached: {problem}")]
    Unavailable {
        /// Who.
        whom: String,
        /// What happened.
        problem: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
}

impl VaultError {
    pub(super) fn setting(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Setting {
            field,
            problem: problem.into(),
        }
    }
}

impl From<VaultError> for SourceError {
    fn from(error: VaultError) -> Self {
        let kind = match &error {
            VaultError::Setting { .. } | VaultError::Certificate { .. } => SourceErrorKind::Config,
            VaultError::LoginRefused { .. } | VaultError::Forbidden { .. } => {
                SourceErrorKind::Refused
            }
            VaultError::Missing { .. } | VaultError::Value { .. } => SourceErrorKind::Unusable,
            // one odd answer is no reason to give up
            VaultError::Challenge { .. }
            | VaultError::Unexpected { .. }
            | VaultError::Unavailable { .. } => SourceErrorKind::Unavailable,
        };
        let retry_after = match &error {
            VaultError::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        };
        Self {
            kind,
            message: error.to_string(),
            retry_after,
        }
    }
}
