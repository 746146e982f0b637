//! The newest resourceVersion that answers have shown, of each kind: what a consistent list
//! asked for later cannot be older than, while the store goes forward.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::messages::{Kind, KubeAnswer};

/// The newest resourceVersion seen, of each kind. Two kinds are never compared: a cluster may
/// keep them in different stores.
#[derive(Debug)]
pub struct Newest([AtomicU64; Kind::ALL.len()]);

impl Default for Newest {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Kind::ALL.len()])
    }
}

impl Newest {
    /// Takes an answer in.
    pub fn note(&self, answer: &KubeAnswer) {
        let Some(object) = answer.object() else {
            return;
        };
        let version = object.meta().resource_version.as_deref();
        if let Some(version) = version.and_then(|version| version.parse().ok()) {
            self.0[object.kind() as usize].fetch_max(version, Ordering::Relaxed);
        }
    }

    /// The newest of a kind; 0 when none was seen.
    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::messages::Object;

    #[test]
    fn the_newest_of_each_kind_is_kept() {
        let newest = Newest::default();
        for version in ["7", "9", "8", "", "x"] {
            let mut pod = Pod::default();
            pod.metadata.resource_version = Some(version.to_owned());
            newest.note(&KubeAnswer::Object(Object::Pod(Arc::new(pod))));
        }
        newest.note(&KubeAnswer::Deleted);
        assert_eq!(newest.of(Kind::Pod), 9);
        assert_eq!(newest.of(Kind::Secret), 0);
    }
}
