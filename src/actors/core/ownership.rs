//! Whose an object of an expected name is, and how a lost owner reference is put back.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use crate::messages::KubeObject;

/// Whose an object of an expected name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The owner's.
    Ours,
    /// Nobody's: it may be taken over.
    Nobodys,
    /// That of an earlier owner of the same name, and about to be collected.
    Predecessors,
    /// Somebody else's.
    Foreign,
}

/// Whose an object is, judged by its owner references. `owner` must be on the API server.
pub fn ownership<K: KubeObject>(meta: &ObjectMeta, owner: &K) -> Ownership {
    let references = meta.owner_references.as_deref().unwrap_or_default();
    let uid = owner.meta().uid.as_deref().unwrap_or_default();
    if references.iter().any(|reference| reference.uid == uid) {
        return Ownership::Ours;
    }
    match references
        .iter()
        .find(|reference| reference.controller == Some(true))
    {
        None => Ownership::Nobodys,
        Some(other)
            if other.kind == K::KIND.as_str()
                && Some(&other.name) == owner.meta().name.as_ref() =>
        {
            Ownership::Predecessors
        }
        Some(_) => Ownership::Foreign,
    }
}

/// The patch that puts a lost owner back beside those that are there.
#[must_use]
pub fn owner_patch(live: &ObjectMeta, desired: &ObjectMeta) -> Option<Value> {
    let known = live.owner_references.as_deref().unwrap_or_default();
    let wanted = desired.owner_references.as_deref().unwrap_or_default();
    let lost = wanted
        .iter()
        .filter(|wanted| known.iter().all(|known| known.uid != wanted.uid));
    let mut all = known.to_vec();
    all.extend(lost.cloned());
    (all.len() > known.len()).then(|| json!({ "metadata": { "ownerReferences": all } }))
}
