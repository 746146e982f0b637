//! The registered runners that watches have shown.
//!
//! When the API server's store is restored from a backup, EphemeralRunners made since are gone
//! without a word, and with them the only trace of their registrations: nobody would take
//! these away. So they are remembered here, beyond the life of the actors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::router::ObjectEvent;
use super::services::Services;
use crate::actors::core::backoff;
use crate::api::EphemeralRunner;
use crate::messages::{ActionsCall, ActionsErrorKind, ActionsRequest, Object};
use crate::resources::tenant_of_runner;

/// How often a removal is tried. A runner whose pod is gone loses its job, and then can be
/// removed; GitHub itself removes one that stays away for a day.
const ATTEMPTS: u32 = 20;

/// The registered runners that watches have shown, by uid.
#[derive(Default)]
pub struct Registered(Mutex<BTreeMap<String, Arc<EphemeralRunner>>>);

impl Registered {
    /// Takes in what a watch has shown.
    pub fn note(&self, event: &ObjectEvent) {
        match event {
            ObjectEvent::Observed(object) => self.seen(object),
            ObjectEvent::Gone { uid, .. } => {
                self.runners().remove(uid);
            }
        }
    }

    /// Takes in an object that a watch has shown.
    pub fn seen(&self, object: &Object) {
        let Object::EphemeralRunner(runner) = object else {
            return;
        };
        if id_of(runner).is_some() {
            self.runners()
                .insert(object.uid().to_owned(), runner.clone());
        } else {
            self.runners().remove(object.uid());
        }
    }

    /// Takes those out that are not among these.
    pub fn take_missing(&self, present: &BTreeSet<String>) -> Vec<Arc<EphemeralRunner>> {
        let mut runners = self.runners();
        let (kept, missing) = std::mem::take(&mut *runners)
            .into_iter()
            .partition(|(uid, _)| present.contains(uid));
        *runners = kept;
        missing.into_values().collect()
    }

    fn runners(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<EphemeralRunner>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the registration of a runner whose object is gone. The service refuses while it has
/// a job.
pub async fn remove_registration(services: Arc<Services>, runner: Arc<EphemeralRunner>) {
    let Some(id) = id_of(&runner) else {
        return;
    };
    let name = runner.metadata.name.clone().unwrap_or_default();
    let request = ActionsRequest {
        tenant: tenant_of_runner(&runner),
        call: ActionsCall::RemoveRunner { id },
    };
    for attempt in 1..=ATTEMPTS {
        let error = match services.unregistrar.remove(request.clone()).await {
            Ok(_) => {
                tracing::info!(name, id, "registration without an EphemeralRunner removed");
                return;
            }
            Err(error) if error.kind == ActionsErrorKind::RunnerNotFound => return,
            Err(error) => error,
        };
        tracing::warn!(name, id, %error, "registration without an EphemeralRunner not removed");
        let wait = backoff::RECREATION.spread(attempt, &name);
        tokio::time::sleep(Duration::try_from(wait).unwrap_or_default()).await;
    }
}

fn id_of(runner: &EphemeralRunner) -> Option<i64> {
    let id = runner.status.as_ref()?.runner_id?;
    (id != 0).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::EphemeralRunnerStatus;
    use crate::messages::{Kind, KubeObject, ObjectRef};
    use crate::resources::test_support;

    fn runner(uid: &str, id: Option<i64>) -> Object {
        let mut runner = test_support::runner();
        runner.metadata.uid = Some(uid.to_owned());
        runner.status = Some(EphemeralRunnerStatus {
            runner_id: id,
            ..EphemeralRunnerStatus::default()
        });
        Arc::new(runner).into_object()
    }

    #[test]
    fn the_registered_are_known_until_they_are_gone() {
        let registered = Registered::default();
        for (uid, id) in [
            ("new", None),
            ("zero", Some(0)),
            ("kept", Some(1)),
            ("lost", Some(2)),
            ("gone", Some(3)),
        ] {
            registered.note(&ObjectEvent::Observed(runner(uid, id)));
        }
        registered.note(&ObjectEvent::Gone {
            object: ObjectRef::new(Kind::EphemeralRunner, "ci", "a"),
            uid: "gone".to_owned(),
            keys: Vec::new(),
        });
        let present = BTreeSet::from(["kept".to_owned(), "new".to_owned()]);
        let ids = |runners: Vec<Arc<EphemeralRunner>>| {
            let ids = runners.iter().map(|runner| id_of(runner));
            ids.collect::<Vec<_>>()
        };
        assert_eq!(ids(registered.take_missing(&present)), [Some(2)]);
        assert!(registered.take_missing(&present).is_empty(), "taken once");
        let lost = registered.take_missing(&BTreeSet::new());
        assert_eq!(ids(lost), [Some(1)]);
    }
}
