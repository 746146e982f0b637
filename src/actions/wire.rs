//! The service's JSON, and how it becomes the terms of [`crate::messages`].

use bytes::Bytes;
use http::{HeaderValue, Response};
use secrecy::SecretString;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use url::Url;

use super::error::{Error, ErrorKind, without_bom};
use super::session::{Session, Statistics};
use crate::messages::{JitConfig, Runner, RunnerGroup, RunnerScaleSet};

/// Reads the body of a success. The error tells where it went wrong and nothing of what the
/// body holds: it may be a token.
pub(super) fn read<T: DeserializeOwned>(
    call: &'static str,
    response: &Response<Bytes>,
) -> Result<T, Error> {
    serde_json::from_slice(without_bom(response.body())).map_err(|error| {
        let problem = match error.classify() {
            serde_json::error::Category::Data => "has not the expected fields",
            _ => "is not JSON",
        };
        let (line, column) = (error.line(), error.column());
        let message = format!("the answer {problem} (at line {line}, column {column})");
        Error::about(ErrorKind::Unreadable, call, response, message)
    })
}

/// An installation token or a registration token.
#[derive(Deserialize)]
pub(super) struct Token {
    #[serde(deserialize_with = "secret")]
    pub(super) token: SecretString,
}

/// The answer to a registration.
#[derive(Deserialize)]
pub(super) struct Registration {
    pub(super) url: String,
    #[serde(deserialize_with = "secret")]
    pub(super) token: SecretString,
}

/// A list, as the service wraps it.
#[derive(Deserialize)]
pub(super) struct List<T> {
    value: Option<Vec<T>>,
}

impl<T> List<T> {
    pub(super) fn into_vec(self) -> Vec<T> {
        self.value.unwrap_or_default()
    }
}

#[derive(Deserialize)]
pub(super) struct WireGroup {
    id: i64,
    #[serde(default, deserialize_with = "null_is_default")]
    name: String,
}

impl From<WireGroup> for RunnerGroup {
    fn from(group: WireGroup) -> Self {
        Self {
            id: group.id,
            name: group.name,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireScaleSet {
    id: i64,
    #[serde(default, deserialize_with = "null_is_default")]
    name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    runner_group_id: i64,
    #[serde(default, deserialize_with = "null_is_default")]
    runner_group_name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    labels: Vec<WireLabel>,
}

#[derive(Deserialize)]
struct WireLabel {
    #[serde(default, deserialize_with = "null_is_default")]
    name: String,
}

impl From<WireScaleSet> for RunnerScaleSet {
    fn from(set: WireScaleSet) -> Self {
        Self {
            id: set.id,
            name: set.name,
            group_id: set.runner_group_id,
            group_name: set.runner_group_name,
            labels: set.labels.into_iter().map(|label| label.name).collect(),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireRunner {
    id: i64,
    #[serde(default, deserialize_with = "null_is_default")]
    name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    runner_scale_set_id: i64,
}

impl From<WireRunner> for Runner {
    fn from(runner: WireRunner) -> Self {
        Self {
            id: runner.id,
            name: runner.name,
            scale_set_id: runner.runner_scale_set_id,
        }
    }
}

#[derive(Deserialize)]
pub(super) struct WireJit {
    runner: WireRunner,
    #[serde(rename = "encodedJITConfig", deserialize_with = "secret")]
    encoded: SecretString,
}

impl From<WireJit> for JitConfig {
    fn from(jit: WireJit) -> Self {
        Self {
            runner: jit.runner.into(),
            encoded: jit.encoded,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireSession {
    session_id: String,
    #[serde(default, deserialize_with = "null_is_default")]
    owner_name: String,
    #[serde(deserialize_with = "url")]
    message_queue_url: String,
    #[serde(deserialize_with = "secret")]
    message_queue_access_token: SecretString,
    #[serde(default)]
    statistics: Value,
}

impl From<WireSession> for Session {
    fn from(session: WireSession) -> Self {
        Self {
            id: session.session_id,
            owner_name: session.owner_name,
            queue_url: session.message_queue_url,
            queue_token: session.message_queue_access_token,
            statistics: Statistics::read(&session.statistics),
        }
    }
}

/// A scale set as it is created or changed.
pub(super) fn scale_set_body(name: &str, group_id: i64, labels: &[String]) -> Value {
    let label = |name| json!({"type": "System", "name": name});
    json!({
        "name": name,
        "runnerGroupId": group_id,
        "labels": labels.iter().map(label).collect::<Vec<_>>(),
        "RunnerSetting": {"disableUpdate": true},
    })
}

/// Something that authorizes requests. What no header can carry is a fault of this one answer,
/// and not of the credentials, as it would be taken for when it is used.
fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    let text = String::deserialize(deserializer)?;
    match HeaderValue::from_str(&text) {
        Ok(_) => Ok(text.into()),
        Err(_) => Err(D::Error::custom("no header can carry it")),
    }
}

fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    match Url::parse(&text) {
        Ok(url) if is_http(&url) => Ok(text),
        _ => Err(D::Error::custom("it is no URL of a service")),
    }
}

/// Whether a request can be sent to it.
pub(super) fn is_http(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
