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

#[cfg(test)]
mod tests {
    use super::super::metadata::owner_reference;
    use super::super::test_support::{map, set};
    use super::*;

    #[test]
    fn it_is_stamped_with_the_patch_and_the_revision_it_is_made_under() {
        let runner = ephemeral_runner(&set(), "pool-runner-xyz");
        assert_eq!(
            runner.metadata.annotations.unwrap(),
            map(&[
                ("actions.github.com/patch-id", "17"),
                ("actions.github.com/actionable-revision", "5"),
                ("kind-note", "runner-note"),
            ])
        );
    }

    #[test]
    fn a_set_without_a_revision_stamps_zero_and_no_users_annotation_replaces_a_stamp() {
        let mut set = set();
        set.spec.actionable_revision = None;
        let user = set.spec.ephemeral_runner_metadata.get_or_insert_default();
        user.annotations
            .insert(annotations::PATCH_ID.to_owned(), "users".to_owned());
        let stamps = ephemeral_runner(&set, "x").metadata.annotations.unwrap();
        assert_eq!(stamps[annotations::ACTIONABLE_REVISION], "0");
        assert_eq!(stamps[annotations::PATCH_ID], "17");
    }

    #[test]
    fn it_is_named_by_us_and_guarded_from_its_first_moment() {
        let set = set();
        let metadata = ephemeral_runner(&set, "pool-runner-xyz").metadata;
        assert_eq!(metadata.name.as_deref(), Some("pool-runner-xyz"));
        assert_eq!(metadata.generate_name.as_deref(), Some("pool-runner-"));
        assert_eq!(metadata.namespace.as_deref(), Some("runners"));
        assert_eq!(metadata.owner_references, Some(vec![owner_reference(&set)]));
        assert_eq!(
            metadata.finalizers.unwrap(),
            [
                "ephemeralrunner.actions.github.com/finalizer",
                "ephemeralrunner.actions.github.com/runner-registration-finalizer",
            ]
        );
        let labels = metadata.labels.unwrap();
        assert_eq!(labels[labels::COMPONENT], "runner");
        assert_eq!(labels["kind-label"], "runner");
        assert_eq!(labels["team"], "blue");
        assert_eq!(labels[labels::SCALE_SET_NAME], "pool");
        assert_eq!(labels[labels::REPOSITORY], "widgets");
    }

    #[test]
    fn its_spec_is_the_sets_with_the_name_of_the_proxy_secret() {
        let mut set = set();
        let mut expected = set.spec.ephemeral_runner_spec.clone().unwrap();
        expected.proxy_secret_ref = runner_proxy_secret_name("runners", "pool");
        assert_eq!(ephemeral_runner(&set, "x").spec, expected);
        set.spec.ephemeral_runner_spec.as_mut().unwrap().proxy = None;
        assert_eq!(ephemeral_runner(&set, "x").spec.proxy_secret_ref, "");
    }
}
