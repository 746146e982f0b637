//! One EphemeralRunner of a set.

use super::metadata::owned_meta;
use super::names::{runner_name_prefix, runner_proxy_secret_name};
use super::proxy::configured;
use crate::api::constants::{annotations, finalizers, labels};
use crate::api::{EphemeralRunner, EphemeralRunnerSet};

/// A runner of a set, stamped with the patch and the revision that the set's spec now has.
/// `name` comes from [`super::runner_name`].
#[must_use]
pub fn ephemeral_runner(set: &EphemeralRunnerSet, name: &str) -> EphemeralRunner {
    let user = set.spec.ephemeral_runner_metadata.as_ref();
    let mut metadata = owned_meta(set, name.to_owned(), labels::COMPONENT_RUNNER, user);
    metadata.generate_name = Some(runner_name_prefix(set));
    metadata.finalizers = Some(vec![
        finalizers::EPHEMERAL_RUNNER.to_owned(),
        finalizers::EPHEMERAL_RUNNER_REGISTRATION.to_owned(),
    ]);
    let stamps = metadata.annotations.get_or_insert_default();
    for (key, number) in [
        (annotations::PATCH_ID, set.spec.patch_id),
        (
            annotations::ACTIONABLE_REVISION,
            set.spec.actionable_revision.unwrap_or(0),
        ),
    ] {
        stamps.insert(key.to_owned(), number.to_string());
    }
    let mut spec = set.spec.ephemeral_runner_spec.clone().unwrap_or_default();
    if configured(spec.proxy.as_ref()).is_some() {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let set_name = set.metadata.name.as_deref().unwrap_or_default();
        spec.proxy_secret_ref = runner_proxy_secret_name(namespace, set_name);
    }
    EphemeralRunner {
        metadata,
        spec,
        status: None,
    }
}
