//! The Secrets of a listener: proxy variables and `config.json`, kept equal to their sources.
//!
//! No watch shows these two, so they are read again each sync period like the sources.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Map, Value, json};

use super::context::{ListenerContext, Part};
use super::health::running_since;
use super::objects::{Correction, Kept, keep};
use super::state::ListenerMachine;
use crate::actors::core::cached::Cached;
use crate::api::AutoscalingListener;
use crate::messages::{KubeObject, Reason, codes};
use crate::resources::{ConfigError, Sources, listener_config_secret, listener_proxy_secret};

/// On the config Secret: resourceVersion of the proxy Secret. The pod takes its proxy variables
/// from there at its start, so a change has to reach the version of what it was built from.
const PROXY_VERSION: &str = "actions.github.com/listener-proxy-resource-version";

impl ListenerMachine {
    /// Keeps both Secrets. Answers with the config Secret's version that a pod is to be marked
    /// with, when one may be built from it, and compared with it.
    pub(super) fn keep_secrets(
        &mut self,
        al: &AutoscalingListener,
        sources: &Sources,
        ctx: &mut ListenerContext,
    ) -> Option<String> {
        let (proxy, mut desired) = match self.build_secrets(al, sources) {
            Ok(built) => built,
            Err(error) => {
                let reason = Reason::new(code_of(&error), error.to_string());
                ctx.trouble(reason.code.clone(), reason.message.clone());
                self.problem = Some(reason);
                return None;
            }
        };
        // only now: a step that comes less far knows nothing about it
        self.problem = None;
        if let Some(proxy) = proxy {
            let version = self.keep_secret(Part::ProxySecret, al, proxy, ctx)?;
            let annotations = desired.metadata.annotations.get_or_insert_default();
            annotations.insert(PROXY_VERSION.to_owned(), version);
        }
        self.keep_secret(Part::ConfigSecret, al, desired, ctx)
    }

    /// The proxy Secret, where there is to be one, and the config Secret.
    fn build_secrets(
        &self,
        al: &AutoscalingListener,
        sources: &Sources,
    ) -> Result<(Option<Secret>, Secret), ConfigError> {
        let proxy = listener_proxy_secret(al, sources)?;
        let config = listener_config_secret(al, sources, &self.settings)?;
        Ok((proxy, config))
    }

    /// Keeps one of them. Answers with its version that a pod is to be marked with, once it is as
    /// it should be.
    fn keep_secret(
        &mut self,
        part: Part,
        al: &AutoscalingListener,
        desired: Secret,
        ctx: &mut ListenerContext,
    ) -> Option<String> {
        let period = self.sync_period();
        let slot = match part {
            Part::ProxySecret => &mut self.parts.proxy_secret,
            _ => &mut self.parts.config_secret,
        };
        if slot.get().is_some() && slot.is_stale(ctx.now, period, &mut ctx.wake) {
            ctx.read_part(slot, part, &desired.reference());
        }
        let Kept::Settled(live) = keep(slot, part, al, desired, correct_secret, ctx) else {
            return None;
        };
        let confirmed = slot.confirmed();
        let running = self.parts.pod.get().and_then(|pod| running_since(pod));
        let read = match part {
            Part::ProxySecret => &mut self.parts.proxy_read,
            _ => &mut self.parts.config_read,
        };
        Some(read.follow(&live, same_content, confirmed, running))
    }

    /// Has everything read again that no watch shows.
    pub(super) fn refresh_sources(&mut self) {
        self.sources.refresh();
        let secrets = [&mut self.parts.proxy_secret, &mut self.parts.config_secret];
        secrets.into_iter().for_each(Cached::distrust);
    }
}

/// The code of what is wrong with a source.
const fn code_of(error: &ConfigError) -> &'static str {
    match error {
        ConfigError::Missing { .. } => "SourceMissing",
        ConfigError::Credentials { .. } => codes::CREDENTIALS_UNUSABLE,
        _ => codes::SOURCE_UNUSABLE,
    }
}

/// Whether a listener reads the same from both.
pub(super) fn same_content(a: &Secret, b: &Secret) -> bool {
    let proxy = |secret: &Secret| {
        let annotations = secret.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(PROXY_VERSION)).cloned()
    };
    a.metadata.uid == b.metadata.uid && a.data == b.data && proxy(a) == proxy(b)
}

/// The data of our Secrets is exactly ours.
fn correct_secret(live: &Secret, desired: &Secret) -> Correction {
    let nothing = BTreeMap::new();
    let known = live.data.as_ref().unwrap_or(&nothing);
    let wanted = desired.data.as_ref().unwrap_or(&nothing);
    let missing = wanted
        .iter()
        .filter(|(key, value)| known.get(*key) != Some(*value))
        .map(|(key, value)| (key.clone(), encoded(value)));
    let foreign = known
        .keys()
        .filter(|key| !wanted.contains_key(*key))
        .map(|key| (key.clone(), Value::Null));
    let data: Map<String, Value> = missing.chain(foreign).collect();
    if data.is_empty() {
        Correction::None
    } else {
        Correction::Patch(json!({ "data": data }))
    }
}

fn encoded(value: &ByteString) -> Value {
    // bytes always have a JSON form: their base64
    serde_json::to_value(value).unwrap_or_default()
}
