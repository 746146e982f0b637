//! Where credentials come from: the one small trait that a Kubernetes Secret and an entry of
//! a vault are behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use secrecy::{ExposeSecret, SecretString};

use super::clients::Sources;
use crate::api::Credentials;
use crate::messages::{ActionsError, ActionsErrorKind, KubeError, KubeErrorKind};

/// The fields of a secret, as the data of a Kubernetes Secret has them.
pub type Fields = BTreeMap<String, ByteString>;

/// Holds secrets, each with a name and fields.
pub trait CredentialSource: Send + Sync {
    /// Reads the fields of a secret.
    ///
    /// # Errors
    ///
    /// When there is no such secret, or it cannot be read.
    fn fields<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Fields, SourceError>>;

    /// What a secret of this name is to a person, for errors.
    fn describe(&self, name: &str) -> String;
}

/// Why a secret cannot be had. Tells what a person has to mend, and holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// What it means for the one who asked.
    pub kind: SourceErrorKind,
    /// What happened.
    pub message: String,
    /// How long the other side asks to wait.
    pub retry_after: Option<Duration>,
}

/// What a secret that cannot be had means for the one who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceErrorKind {
    /// A setting of this program is wrong: no secret can be read with it.
    Config,
    /// The source refuses us.
    Refused,
    /// The secret is not there, or holds nothing usable.
    Unusable,
    /// The API server does not let us read it.
    Denied,
    /// The source is busy, out of order or did not answer in time.
    Unavailable,
}

impl SourceError {
    pub(super) const fn new(kind: SourceErrorKind, message: String) -> Self {
        Self {
            kind,
            message,
            retry_after: None,
        }
    }

    pub(super) const fn unusable(message: String) -> Self {
        Self::new(SourceErrorKind::Unusable, message)
    }

    /// The API server's answer to the attempt to read an object.
    pub(super) fn from_kube(what: &str, error: &KubeError) -> Self {
        let kind = match error.kind {
            KubeErrorKind::Forbidden => SourceErrorKind::Denied,
            // it goes with its namespace
            KubeErrorKind::NamespaceTerminating => SourceErrorKind::Unusable,
            _ => SourceErrorKind::Unavailable,
        };
        Self {
            kind,
            message: format!("{what} cannot be read: {error}"),
            retry_after: error.retry_after,
        }
    }
}

impl From<SourceError> for ActionsError {
    fn from(error: SourceError) -> Self {
        let kind = match error.kind {
            SourceErrorKind::Config => ActionsErrorKind::Config,
            SourceErrorKind::Refused => ActionsErrorKind::Unauthorized,
            SourceErrorKind::Unusable => ActionsErrorKind::Credentials,
            SourceErrorKind::Denied => ActionsErrorKind::Denied,
            SourceErrorKind::Unavailable => ActionsErrorKind::Unavailable,
        };
        Self {
            kind,
            message: error.message,
            retry_after: error.retry_after,
        }
    }
}

/// Reads credentials for GitHub from a source.
///
/// # Errors
///
/// When the secret cannot be read, or holds no usable credentials.
pub async fn read_credentials(
    source: &dyn CredentialSource,
    name: &str,
) -> Result<Credentials, SourceError> {
    let fields = source.fields(name).await?;
    Credentials::from_data(&fields).map_err(|error| {
        let message = format!("{} is not usable: {error}", source.describe(name));
        SourceError::unusable(message)
    })
}

/// Whether both open the same.
#[must_use]
pub fn same_credentials(one: &Credentials, other: &Credentials) -> bool {
    let same =
        |one: &SecretString, other: &SecretString| one.expose_secret() == other.expose_secret();
    match (one, other) {
        (Credentials::Token(one), Credentials::Token(other)) => same(one, other),
        (
            Credentials::App {
                app_id,
                installation_id,
                private_key,
            },
            Credentials::App {
                app_id: other_app_id,
                installation_id: other_installation_id,
                private_key: other_private_key,
            },
        ) => {
            app_id == other_app_id
                && installation_id == other_installation_id
                && same(private_key, other_private_key)
        }
        _ => false,
    }
}

/// The Secrets of a namespace.
pub(super) struct KubernetesSecrets<'a> {
    pub(super) sources: &'a Arc<dyn Sources>,
    pub(super) namespace: &'a str,
    /// The field that names the secret, for errors.
    pub(super) field: &'a str,
}

impl CredentialSource for KubernetesSecrets<'_> {
    fn fields<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Fields, SourceError>> {
        let read = self.sources.secret(self.namespace, name);
        async move {
            let what = self.describe(name);
            let secret = read
                .await
                .map_err(|error| SourceError::from_kube(&what, &error))?;
            let field = self.field;
            let secret = secret.ok_or_else(|| {
                SourceError::unusable(format!(
                    "{what}, named by {field}, does not exist: create it, or correct {field}"
                ))
            })?;
            Ok(secret.data.unwrap_or_default())
        }
        .boxed()
    }

    fn describe(&self, name: &str) -> String {
        format!("Secret {}/{name}", self.namespace)
    }
}
