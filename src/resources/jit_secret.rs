//! The Secret with which a runner signs in, and which remembers its registration.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use secrecy::ExposeSecret;

use super::error::ConfigError;
use super::metadata::owned_meta;
use super::sources::secret_text;
use crate::api::EphemeralRunner;
use crate::api::constants::{keys, labels};
use crate::messages::{JitConfig, KubeObject};

/// What a runner's Secret says of its registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JitRecord {
    /// The runner's id in the Actions service; greater than 0.
    pub runner_id: i64,
    /// The runner's name in the Actions service.
    pub runner_name: String,
    /// The scale set it belongs to; 0 when the Secret does not say.
    pub scale_set_id: i64,
}

/// The Secret of a runner that was just registered.
#[must_use]
pub fn jit_secret(er: &EphemeralRunner, jit: &JitConfig) -> Secret {
    let name = er.metadata.name.clone().unwrap_or_default();
    let user = er.spec.ephemeral_runner_config_secret_metadata.as_ref();
    // the service leaves the scale set out of its answer at times
    let scale_set_id = match jit.runner.scale_set_id {
        0 => er.spec.runner_scale_set_id,
        id => id,
    };
    let data = [
        (keys::JIT_TOKEN, jit.encoded.expose_secret().to_owned()),
        (keys::RUNNER_NAME, jit.runner.name.clone()),
        (keys::RUNNER_ID, jit.runner.id.to_string()),
        (keys::SCALE_SET_ID, scale_set_id.to_string()),
    ];
    Secret {
        metadata: owned_meta(er, name, labels::COMPONENT_RUNNER, user),
        data: Some(BTreeMap::from(data.map(|(key, value)| {
            (key.to_owned(), ByteString(value.into_bytes()))
        }))),
        ..Secret::default()
    }
}

/// Reads a runner's Secret. Only what the runner cannot do without has to be right: its id and
/// its token. A name that is missing is the Secret's own.
///
/// # Errors
///
/// When the runner's id is missing or is none, or the token is missing: the Secret is of no
/// use then.
pub fn read_jit_secret(secret: &Secret) -> Result<JitRecord, ConfigError> {
    const FIELD: &str = "the EphemeralRunner";
    let text = |key| secret_text(secret, key, FIELD);
    let invalid = |key: &str, problem| ConfigError::InvalidKey {
        object: secret.reference(),
        key: key.to_owned(),
        problem,
    };
    let runner_id = text(keys::RUNNER_ID)?
        .trim()
        .parse()
        .ok()
        .filter(|id| *id > 0)
        .ok_or_else(|| invalid(keys::RUNNER_ID, "is not the id of a runner"))?;
    if text(keys::JIT_TOKEN)?.is_empty() {
        return Err(invalid(keys::JIT_TOKEN, "is empty"));
    }
    Ok(JitRecord {
        runner_id,
        runner_name: text(keys::RUNNER_NAME)
            .ok()
            .filter(|name| !name.is_empty())
            .or_else(|| secret.metadata.name.clone())
            .unwrap_or_default(),
        scale_set_id: text(keys::SCALE_SET_ID)
            .ok()
            .and_then(|id| id.trim().parse().ok())
            .unwrap_or(0),
    })
}
