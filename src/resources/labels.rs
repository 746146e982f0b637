//! Labels of owned objects.
//!
//! Three layers, the later one winning: what passes down from the scale set or the owner,
//! what the user asks for this kind of object, and what we set ourselves.

use std::collections::BTreeMap;

use super::ControllerSettings;
use crate::api::constants::labels;
use crate::api::{AutoscalingRunnerSet, ConfigUrl, ResourceMeta};

/// Labels by name.
pub(super) type Labels = BTreeMap<String, String>;

/// The labels that a config URL gives.
pub(super) const URL_LABELS: [&str; 3] =
    [labels::ENTERPRISE, labels::ORGANIZATION, labels::REPOSITORY];

/// The other labels that are ours alone: nobody else's value for them passes down.
const OUR_LABELS: [&str; 5] = [
    labels::PART_OF,
    labels::COMPONENT,
    labels::VERSION,
    labels::SCALE_SET_NAME,
    labels::SCALE_SET_NAMESPACE,
];

/// Longest value of a label.
const MAX_VALUE: usize = 63;
/// What a shortened value ends with.
const TRIMMED: &str = "-trim";

/// Labels of an object of a scale set. `component` is the part that the object plays, `user`
/// what the scale set asks for this kind of object.
#[must_use]
pub fn owned_labels(
    ars: &AutoscalingRunnerSet,
    component: &str,
    user: Option<&ResourceMeta>,
    settings: &ControllerSettings,
) -> Labels {
    let mut result: Labels = ars
        .metadata
        .labels
        .iter()
        .flatten()
        .filter(|(key, _)| !is_ours(key) && !is_excluded(key, settings))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    add_users(&mut result, user);
    result.extend(url_labels(&ars.spec.github_config_url));
    let name = ars.metadata.name.as_deref().unwrap_or_default();
    let namespace = ars.metadata.namespace.as_deref().unwrap_or_default();
    for (key, value) in [
        (labels::PART_OF, labels::PART_OF_VALUE),
        (labels::COMPONENT, component),
        (labels::VERSION, &settings.version),
        (labels::SCALE_SET_NAME, name),
        (labels::SCALE_SET_NAMESPACE, namespace),
    ] {
        result.insert(key.to_owned(), label_value(value));
    }
    result
}

/// Labels of an object whose owner carries those of a scale set already.
pub(super) fn inherited_labels(
    owner: Option<&Labels>,
    component: &str,
    user: Option<&ResourceMeta>,
) -> Labels {
    let mut result = owner.cloned().unwrap_or_default();
    add_users(&mut result, user);
    result.insert(labels::COMPONENT.to_owned(), component.to_owned());
    result
}

/// Labels that say whose jobs a scale set takes; none for a URL that is not usable.
#[must_use]
pub fn url_labels(url: &str) -> Labels {
    let Ok(url) = ConfigUrl::parse(url) else {
        return Labels::new();
    };
    [
        (labels::ENTERPRISE, url.enterprise()),
        (labels::ORGANIZATION, url.organization()),
        (labels::REPOSITORY, url.repository()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), label_value(value)))
    .filter(|(_, value)| !value.is_empty())
    .collect()
}

/// `text` as the value of a label: characters that a label cannot hold become `-`, `-_.` at
/// both ends go, and what is too long is cut and marked.
pub(super) fn label_value(text: &str) -> String {
    let legal: String = text
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' => c,
            _ => '-',
        })
        .collect();
    let value = legal.trim_matches(['-', '_', '.']);
    if value.len() <= MAX_VALUE {
        return value.to_owned();
    }
    value[..MAX_VALUE - TRIMMED.len()].to_owned() + TRIMMED
}

fn add_users(result: &mut Labels, user: Option<&ResourceMeta>) {
    let wanted = user.iter().flat_map(|meta| &meta.labels);
    result.extend(
        wanted
            .filter(|(key, _)| !is_ours(key))
            .map(|(key, value)| (key.clone(), value.clone())),
    );
}

fn is_ours(key: &str) -> bool {
    OUR_LABELS.contains(&key) || URL_LABELS.contains(&key)
}

fn is_excluded(key: &str, settings: &ControllerSettings) -> bool {
    settings
        .excluded_label_prefixes
        .iter()
        .any(|prefix| key.starts_with(prefix.as_str()))
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{ars, map, settings};
    use super::*;

    #[test]
    fn an_owned_object_says_what_it_is_and_whose() {
        let ars = ars();
        let user = ars.spec.ephemeral_runner_set_metadata.as_ref();
        assert_eq!(
            owned_labels(&ars, labels::COMPONENT_RUNNER_SET, user, &settings()),
            map(&[
                ("team", "blue"),
                ("kind-label", "set"),
                ("app.kubernetes.io/part-of", "gha-runner-scale-set"),
                ("app.kubernetes.io/component", "runner-set"),
                ("app.kubernetes.io/version", "1.2.3"),
                ("actions.github.com/scale-set-name", "pool"),
                ("actions.github.com/scale-set-namespace", "runners"),
                ("actions.github.com/organization", "acme"),
                ("actions.github.com/repository", "widgets"),
            ])
        );
    }

    #[test]
    fn a_users_label_for_the_kind_wins_over_one_that_passes_down() {
        let mut ars = ars();
        let labels = ars.metadata.labels.get_or_insert_default();
        labels.insert("kind-label".to_owned(), "of-the-scale-set".to_owned());
        let user = ars.spec.autoscaling_listener.as_ref();
        let labels = owned_labels(&ars, "part", user, &settings());
        assert_eq!(labels["kind-label"], "listener");
    }

    #[test]
    fn labels_without_an_excluded_prefix_pass_down() {
        let mut settings = settings();
        settings.excluded_label_prefixes.clear();
        let labels = owned_labels(&ars(), "part", None, &settings);
        assert_eq!(labels["argocd.argoproj.io/instance"], "pools");
        settings.excluded_label_prefixes = vec!["te".to_owned(), "actions.github.com/".to_owned()];
        let labels = owned_labels(&ars(), "part", None, &settings);
        assert!(!labels.contains_key("team"));
        // what we set is not passed down, so nothing excludes it
        assert_eq!(labels["actions.github.com/scale-set-name"], "pool");
    }

    #[test]
    fn the_url_gives_the_labels_of_its_scope() {
        for (url, expected) in [
            (
                "https://github.com/acme",
                map(&[("actions.github.com/organization", "acme")]),
            ),
            (
                "https://ghes.acme.io/enterprises/big",
                map(&[("actions.github.com/enterprise", "big")]),
            ),
            ("no url", map(&[])),
        ] {
            assert_eq!(url_labels(url), expected, "{url}");
        }
    }

    #[test]
    fn every_value_is_one_that_a_label_can_hold() {
        let long = "a".repeat(64);
        let trimmed = "a".repeat(58) + "-trim";
        for (text, expected) in [
            ("-_.widgets.-_", "widgets"),
            (long.as_str(), trimmed.as_str()),
            (&long[..63], &long[..63]),
            ("1.2.3+build", "1.2.3-build"),
            ("a b/é", "a-b"),
            ("...", ""),
        ] {
            assert_eq!(label_value(text), expected, "{text}");
        }
    }
}
