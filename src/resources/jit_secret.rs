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
    let text = |key| secret_text(secret, key);
    let invalid = |key: &str, problem| ConfigError::InvalidKey {
        object: secret.reference(),
        key: key.to_owned(),
        problem,
    };
    let runner_id = text(keys::RUNNER_ID)?
        .ok_or_else(|| invalid(keys::RUNNER_ID, "is missing"))?
        .trim()
        .parse()
        .ok()
        .filter(|id| *id > 0)
        .ok_or_else(|| invalid(keys::RUNNER_ID, "is not the id of a runner"))?;
    if text(keys::JIT_TOKEN)?.is_none_or(|token| token.is_empty()) {
        return Err(invalid(keys::JIT_TOKEN, "is missing or empty"));
    }
    let optional = |key| text(key).ok().flatten().filter(|text| !text.is_empty());
    Ok(JitRecord {
        runner_id,
        runner_name: optional(keys::RUNNER_NAME)
            .or_else(|| secret.metadata.name.clone())
            .unwrap_or_default(),
        scale_set_id: optional(keys::SCALE_SET_ID)
            .and_then(|id| id.trim().parse().ok())
            .unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::super::metadata::owner_reference;
    use super::super::test_support::{map, runner, secret, texts};
    use super::*;
    use crate::messages::Runner;

    fn jit(scale_set_id: i64) -> JitConfig {
        JitConfig {
            runner: Runner {
                id: 501,
                name: "registered-name".to_owned(),
                scale_set_id,
            },
            encoded: "t0ken".to_owned().into(),
        }
    }

    fn read(pairs: &[(&str, &str)]) -> Result<JitRecord, ConfigError> {
        let object = secret("runners", "pool-runner-abcde", pairs);
        read_jit_secret(&object.get::<Secret>().unwrap())
    }

    #[test]
    fn it_holds_the_token_and_the_registration() {
        assert_eq!(
            texts(jit_secret(&runner(), &jit(43)).data.as_ref()),
            map(&[
                ("jitToken", "t0ken"),
                ("runnerName", "registered-name"),
                ("runnerId", "501"),
                ("scaleSetId", "43"),
            ])
        );
    }

    #[test]
    fn a_scale_set_that_the_service_left_out_is_the_runners() {
        let data = jit_secret(&runner(), &jit(0)).data;
        assert_eq!(texts(data.as_ref())["scaleSetId"], "42");
    }

    #[test]
    fn it_has_the_runners_name_and_goes_with_it() {
        let runner = runner();
        let metadata = jit_secret(&runner, &jit(43)).metadata;
        assert_eq!(metadata.name.as_deref(), Some("pool-runner-abcde"));
        assert_eq!(metadata.namespace.as_deref(), Some("runners"));
        assert_eq!(
            metadata.owner_references,
            Some(vec![owner_reference(&runner)])
        );
        assert_eq!(
            metadata.annotations,
            Some(map(&[("kind-note", "jit-note")]))
        );
        let labels = metadata.labels.unwrap();
        assert_eq!(labels["kind-label"], "jit");
        assert_eq!(labels[labels::COMPONENT], "runner");
    }

    #[test]
    fn what_was_written_is_read_back() {
        assert_eq!(
            read_jit_secret(&jit_secret(&runner(), &jit(43))),
            Ok(JitRecord {
                runner_id: 501,
                runner_name: "registered-name".to_owned(),
                scale_set_id: 43,
            })
        );
    }

    #[test]
    fn what_the_runner_can_do_without_may_be_missing() {
        for scale_set in [("scaleSetId", "no number"), ("other", "key")] {
            assert_eq!(
                read(&[("jitToken", "t"), ("runnerId", "502\n"), scale_set]),
                Ok(JitRecord {
                    runner_id: 502,
                    runner_name: "pool-runner-abcde".to_owned(),
                    scale_set_id: 0,
                })
            );
        }
    }

    #[test]
    fn without_a_usable_id_or_token_it_is_refused_without_showing_the_value() {
        for (pairs, expected) in [
            (vec![("jitToken", "s3cret")], "key runnerId of Secret"),
            (
                vec![("jitToken", "t"), ("runnerId", "s3cret")],
                "not the id of a runner",
            ),
            (
                vec![("jitToken", "t"), ("runnerId", "0")],
                "not the id of a runner",
            ),
            (
                vec![("jitToken", ""), ("runnerId", "5")],
                "key jitToken of Secret",
            ),
            (vec![("runnerId", "5")], "missing or empty"),
        ] {
            let error = read(&pairs).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains("runners/pool-runner-abcde"), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
