//! Metadata that owned objects have in common, and how it is brought onto live ones.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Map, Value, json};

use super::labels::{URL_LABELS, inherited_labels};
use crate::api::ResourceMeta;
use crate::api::constants::annotations;
use crate::messages::KubeObject;

/// A reference that makes `owner` the controller of an object; `owner` goes only after it.
#[must_use]
pub fn owner_reference<K: KubeObject>(owner: &K) -> OwnerReference {
    let meta = owner.meta();
    OwnerReference {
        api_version: K::KIND.api_version().to_owned(),
        kind: K::KIND.as_str().to_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Metadata of an object beside its owner, with the owner's labels.
pub(super) fn owned_meta<K: KubeObject>(
    owner: &K,
    name: String,
    component: &str,
    user: Option<&ResourceMeta>,
) -> ObjectMeta {
    let meta = owner.meta();
    ObjectMeta {
        name: Some(name),
        namespace: meta.namespace.clone(),
        labels: Some(inherited_labels(meta.labels.as_ref(), component, user)),
        annotations: users_annotations(user),
        owner_references: Some(vec![owner_reference(owner)]),
        ..ObjectMeta::default()
    }
}

/// Gives an object that neither has nor is to have an annotation one, so that ARC can take it
/// over; `live` is what is there of it.
pub fn provide_annotation(desired: &mut ObjectMeta, live: Option<&ObjectMeta>) {
    let has_some = |meta: &ObjectMeta| meta.annotations.as_ref().is_some_and(|all| !all.is_empty());
    if !has_some(desired) && !live.is_some_and(has_some) {
        let made_by = (annotations::MADE_BY.to_owned(), "impresario".to_owned());
        desired.annotations = Some(BTreeMap::from([made_by]));
    }
}

/// The annotations that a user asks for, absent when there are none.
pub(super) fn users_annotations(user: Option<&ResourceMeta>) -> Option<BTreeMap<String, String>> {
    user.map(|meta| meta.annotations.clone())
        .filter(|annotations| !annotations.is_empty())
}

/// The merge patch that gives `live` the labels and annotations of `desired`; `None` when it
/// has them. What others put on `live` stays. A label of an earlier config URL goes when
/// `desired` carries those of another.
#[must_use]
pub fn metadata_patch(live: &ObjectMeta, desired: &ObjectMeta) -> Option<Value> {
    let mut labels = missing(live.labels.as_ref(), desired.labels.as_ref());
    labels.extend(stale_url_labels(live, desired));
    let annotations = missing(live.annotations.as_ref(), desired.annotations.as_ref());
    let mut metadata = Map::new();
    for (key, section) in [("labels", labels), ("annotations", annotations)] {
        if !section.is_empty() {
            metadata.insert(key.to_owned(), Value::Object(section));
        }
    }
    (!metadata.is_empty()).then(|| json!({ "metadata": metadata }))
}

fn missing(
    live: Option<&BTreeMap<String, String>>,
    desired: Option<&BTreeMap<String, String>>,
) -> Map<String, Value> {
    desired
        .into_iter()
        .flatten()
        .filter(|(key, value)| live.and_then(|live| live.get(*key)) != Some(*value))
        .map(|(key, value)| (key.clone(), Value::from(value.as_str())))
        .collect()
}

fn stale_url_labels(live: &ObjectMeta, desired: &ObjectMeta) -> Vec<(String, Value)> {
    let has = |meta: &ObjectMeta, key: &str| {
        let labels = meta.labels.as_ref();
        labels.is_some_and(|labels| labels.contains_key(key))
    };
    if !URL_LABELS.iter().any(|key| has(desired, key)) {
        return Vec::new();
    }
    URL_LABELS
        .iter()
        .filter(|key| has(live, key) && !has(desired, key))
        .map(|key| ((*key).to_owned(), Value::Null))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{map, set};
    use super::*;

    fn meta(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> ObjectMeta {
        ObjectMeta {
            labels: Some(map(labels)),
            annotations: Some(map(annotations)),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn an_owner_reference_names_the_controller_and_holds_its_deletion() {
        assert_eq!(
            serde_json::to_value(owner_reference(&set())).unwrap(),
            json!({
                "apiVersion": "actions.github.com/v1alpha1",
                "kind": "EphemeralRunnerSet",
                "name": "pool",
                "uid": "ers-uid",
                "controller": true,
                "blockOwnerDeletion": true,
            })
        );
    }

    #[test]
    fn an_object_is_given_an_annotation_only_where_it_would_have_none() {
        let none = ObjectMeta::default();
        let some = meta(&[], &[("theirs", "1")]);
        for (desired, live, given) in [
            (&none, None, true),
            (&none, Some(&none), true),
            (&none, Some(&some), false),
            (&some, None, false),
            (&some, Some(&none), false),
        ] {
            let mut found = desired.clone();
            provide_annotation(&mut found, live);
            let known = found.annotations.unwrap_or_default();
            assert_eq!(known.contains_key(annotations::MADE_BY), given, "{live:?}");
        }
    }

    #[test]
    fn what_others_put_there_needs_no_patch() {
        let live = meta(
            &[("a", "1"), ("foreign", "x")],
            &[("b", "2"), ("theirs", "y")],
        );
        let desired = meta(&[("a", "1")], &[("b", "2")]);
        assert_eq!(metadata_patch(&live, &desired), None);
        assert_eq!(metadata_patch(&live, &ObjectMeta::default()), None);
    }

    #[test]
    fn the_patch_holds_what_is_missing_or_different_and_nothing_else() {
        let live = meta(&[("same", "1"), ("other", "2")], &[]);
        let desired = meta(&[("same", "1"), ("other", "3"), ("new", "4")], &[]);
        assert_eq!(
            metadata_patch(&live, &desired),
            Some(json!({"metadata": {"labels": {"other": "3", "new": "4"}}}))
        );
        assert_eq!(
            metadata_patch(&ObjectMeta::default(), &meta(&[], &[("note", "5")])),
            Some(json!({"metadata": {"annotations": {"note": "5"}}}))
        );
    }

    #[test]
    fn a_new_config_url_takes_the_labels_of_the_old_one_away() {
        let organization = "actions.github.com/organization";
        let repository = "actions.github.com/repository";
        let live = meta(&[(organization, "acme"), (repository, "widgets")], &[]);
        assert_eq!(
            metadata_patch(&live, &meta(&[(organization, "other")], &[])),
            Some(json!({"metadata": {"labels": {organization: "other", repository: null}}}))
        );
        // a desired object that says nothing of the URL leaves them alone
        assert_eq!(metadata_patch(&live, &meta(&[], &[])), None);
    }
}
