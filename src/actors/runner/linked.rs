//! Pods and Secrets that a runner's container hooks made for its job. They name the runner's
//! pod in a label and outlive a runner that died, so they are deleted with it.

use std::collections::BTreeMap;

use super::RunnerTag;
use super::machine::RunnerMachine;
use crate::actors::core::backoff;
use crate::actors::core::step_context::StepContext;
use crate::api::constants::labels;
use crate::clock::Timestamp;
use crate::messages::{Kind, KubeAnswer, KubeError, KubeErrorKind, KubeRequest, Object, ObjectRef};

/// What is left to do about the linked objects of both kinds.
#[derive(Debug, Default)]
pub struct Linked {
    pods: Sweep,
    secrets: Sweep,
}

#[derive(Debug, Default)]
struct Sweep {
    stage: Stage,
    failures: u32,
    not_before: Option<Timestamp>,
}

#[derive(Debug, Default)]
enum Stage {
    /// They must be listed.
    #[default]
    Due,
    /// The list is under way.
    Listing,
    /// These were found; `sent` says whether the deletes are under way.
    Found {
        left: BTreeMap<ObjectRef, Seen>,
        sent: bool,
    },
    Done,
}

/// The object as the list showed it. Only that one is deleted: another of its name may be another
/// job's, and one that was changed since may not be this runner's any more.
#[derive(Debug)]
struct Seen {
    uid: Option<String>,
    version: Option<String>,
}

/// The runner whose linked objects are swept.
pub struct Of<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name, which is its pod's name.
    pub name: &'a str,
}

impl Seen {
    fn of(object: &Object) -> Self {
        let meta = object.meta();
        Self {
            uid: meta.uid.clone(),
            version: meta.resource_version.clone(),
        }
    }
}

impl Linked {
    /// Does what is to be done next. Says whether all is done.
    pub fn sweep(&mut self, of: &Of<'_>, ctx: &mut StepContext<RunnerMachine>) -> bool {
        let pods = self.pods.go_on(Kind::Pod, of, ctx);
        let secrets = self.secrets.go_on(Kind::Secret, of, ctx);
        pods && secrets
    }

    /// Takes in a list. Answers with a message when we lack the permission.
    pub fn listed(
        &mut self,
        now: Timestamp,
        kind: Kind,
        result: &Result<KubeAnswer, KubeError>,
        of: &Of<'_>,
    ) -> Option<String> {
        self.of_kind(kind).listed(now, result, of)
    }

    /// Takes in the end of a delete. Answers with a message when we lack the permission.
    pub fn deleted(
        &mut self,
        now: Timestamp,
        object: &ObjectRef,
        result: &Result<KubeAnswer, KubeError>,
    ) -> Option<String> {
        self.of_kind(object.kind).deleted(now, object, result)
    }

    const fn of_kind(&mut self, kind: Kind) -> &mut Sweep {
        match kind {
            Kind::Pod => &mut self.pods,
            _ => &mut self.secrets,
        }
    }
}

impl Sweep {
    fn go_on(&mut self, kind: Kind, of: &Of<'_>, ctx: &mut StepContext<RunnerMachine>) -> bool {
        if self.not_before.is_some_and(|time| time > ctx.now) {
            ctx.wake_at_some(self.not_before);
            return false;
        }
        match &mut self.stage {
            Stage::Done => return true,
            Stage::Due => {
                self.stage = Stage::Listing;
                ctx.kube(
                    RunnerTag::ListLinked(kind),
                    KubeRequest::List {
                        kind,
                        namespace: of.namespace.to_owned(),
                        selector: format!("{}={}", labels::RUNNER_POD, of.name),
                    },
                );
            }
            Stage::Found { left, sent } if !*sent => {
                *sent = true;
                for (target, seen) in left.iter() {
                    ctx.kube(
                        RunnerTag::DeleteLinked(target.clone()),
                        KubeRequest::Delete {
                            target: target.clone(),
                            uid: seen.uid.clone(),
                            lock: seen.version.clone(),
                            grace: None,
                        },
                    );
                }
            }
            Stage::Listing | Stage::Found { .. } => {}
        }
        false
    }

    fn listed(
        &mut self,
        now: Timestamp,
        result: &Result<KubeAnswer, KubeError>,
        of: &Of<'_>,
    ) -> Option<String> {
        match result {
            Ok(KubeAnswer::Objects(objects)) => {
                let left: BTreeMap<_, _> = objects
                    .iter()
                    .filter(|object| object.meta().deletion_timestamp.is_none())
                    .map(|object| (object.reference(), Seen::of(object)))
                    .filter(|(target, _)| target.name != of.name)
                    .collect();
                self.stage = if left.is_empty() {
                    Stage::Done
                } else {
                    Stage::Found { left, sent: false }
                };
                None
            }
            Ok(_) => {
                self.stage = Stage::Done;
                None
            }
            Err(error) if error.kind == KubeErrorKind::Forbidden => {
                self.stage = Stage::Done;
                Some(error.message.clone())
            }
            Err(_) => {
                self.retry(now, of.name);
                None
            }
        }
    }

    fn deleted(
        &mut self,
        now: Timestamp,
        object: &ObjectRef,
        result: &Result<KubeAnswer, KubeError>,
    ) -> Option<String> {
        let Stage::Found { left, .. } = &mut self.stage else {
            return None;
        };
        let refused = match result {
            Ok(_) => None,
            Err(error) if error.kind == KubeErrorKind::NotFound => None,
            Err(error) if error.kind == KubeErrorKind::Forbidden => Some(error.message.clone()),
            Err(_) => {
                self.retry(now, &object.name);
                return None;
            }
        };
        left.remove(object);
        if left.is_empty() {
            self.stage = Stage::Done;
        }
        refused
    }

    /// From the list again, after a while. Answers to deletes still under way are passed over.
    fn retry(&mut self, now: Timestamp, who: &str) {
        self.stage = Stage::Due;
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(backoff::REQUESTS.until(now, self.failures, who));
    }
}
