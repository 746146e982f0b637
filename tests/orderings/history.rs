//! What was: every version of the scale set, its runner set and its runners, in the order in
//! which the API server took them; and whether it may have been so (invariants INV-7 and INV-8).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::rc::Rc;

use futures::StreamExt as _;
use impresario::api::constants::annotations;
use impresario::api::{
    AutoscalingRunnerSet, AutoscalingRunnerSetPhase, EphemeralRunner, EphemeralRunnerPhase,
    EphemeralRunnerSet, EphemeralRunnerSetPhase,
};
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};

use crate::stage::{Known, raised};

/// A version of something.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a test has few")]
pub enum Seen {
    ScaleSet(AutoscalingRunnerSet),
    RunnerSet(EphemeralRunnerSet),
    Runner(EphemeralRunner),
    /// The last version of a runner that is gone.
    Gone(EphemeralRunner),
    /// Something else is gone.
    Other,
}

/// Collects versions from watches of its own.
#[derive(Clone, Default)]
pub struct History {
    entries: Rc<RefCell<BTreeMap<u64, Seen>>>,
    /// Whether a status takes two writes, since some of it has no fields.
    in_two_writes: bool,
}

/// How a runner set stood: phase, revision applied, revision wanted.
pub type Standing = (Option<EphemeralRunnerSetPhase>, i64, i64);

impl History {
    /// Begins to watch. To be called before there is anything.
    pub fn begin(client: &Client) -> Self {
        let history = Self::default();
        history.follow(client, Seen::ScaleSet, |_| Seen::Other);
        history.follow(client, Seen::RunnerSet, |_| Seen::Other);
        history.follow(client, Seen::Runner, Seen::Gone);
        history
    }

    /// The same, where a status takes two writes. What stands between these has to be right with
    /// the second one.
    pub fn in_two_writes(self) -> Self {
        Self {
            in_two_writes: true,
            ..self
        }
    }

    fn follow<K: Known + 'static>(
        &self,
        client: &Client,
        seen: fn(K) -> Seen,
        gone: fn(K) -> Seen,
    ) {
        let (entries, api) = (self.entries.clone(), Api::<K>::all(client.clone()));
        tokio::task::spawn_local(async move {
            let mut version = "0".to_owned();
            loop {
                let parameters = WatchParams::default().timeout(290);
                let mut events = api.watch(&parameters, &version).await.unwrap().boxed();
                while let Some(event) = events.next().await {
                    let (object, seen) = match event.unwrap() {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, seen),
                        WatchEvent::Deleted(object) => (object, gone),
                        WatchEvent::Bookmark(bookmark) => {
                            version = bookmark.metadata.resource_version;
                            continue;
                        }
                        WatchEvent::Error(status) => panic!("the history is torn: {status:?}"),
                    };
                    version = object.resource_version().unwrap();
                    let at = version.parse().unwrap();
                    entries.borrow_mut().insert(at, seen(raised(object)));
                }
            }
        });
    }

    fn all(&self) -> Vec<(u64, Seen)> {
        let entries = self.entries.borrow();
        entries
            .iter()
            .map(|(at, seen)| (*at, seen.clone()))
            .collect()
    }

    // === looking at it ===

    /// The phases of the scale set, one after the other.
    pub fn scale_set_phases(&self) -> Vec<AutoscalingRunnerSetPhase> {
        let all = self.all().into_iter().filter_map(|(_, seen)| match seen {
            Seen::ScaleSet(set) => set.status.and_then(|status| status.phase),
            _ => None,
        });
        let mut all: Vec<_> = all.collect();
        all.dedup();
        all
    }

    /// How many runners there ever were.
    pub fn created(&self) -> usize {
        let all = self.all().into_iter().filter_map(|(_, seen)| match seen {
            Seen::Runner(runner) => runner.uid(),
            _ => None,
        });
        all.collect::<BTreeSet<_>>().len()
    }

    /// When this first held of a version.
    pub fn when(&self, holds: impl Fn(&Seen) -> bool) -> Option<u64> {
        let all = self.all();
        all.iter().find(|(_, seen)| holds(seen)).map(|(at, _)| *at)
    }

    /// When a runner's verdict was written down.
    pub fn verdict_of(&self, name: &str) -> u64 {
        let found = self.when(|seen| match seen {
            Seen::Runner(runner) => runner.name_any() == name && is_verdict(runner),
            _ => false,
        });
        found.unwrap_or_else(|| panic!("{name} was never rejected"))
    }

    /// When a revision was wanted.
    pub fn wanted(&self, revision: i64) -> u64 {
        let found = self.when(|seen| match seen {
            Seen::RunnerSet(set) => standing(set).2 >= revision,
            _ => false,
        });
        found.unwrap_or_else(|| panic!("revision {revision} was never wanted"))
    }

    /// When a revision was applied.
    pub fn applied(&self, revision: i64) -> u64 {
        let found = self.when(|seen| match seen {
            Seen::RunnerSet(set) => standing(set).1 >= revision,
            _ => false,
        });
        found.unwrap_or_else(|| panic!("revision {revision} was never applied"))
    }

    /// When the runner set was first called outdated.
    pub fn condemned(&self) -> Option<u64> {
        self.when(|seen| match seen {
            Seen::RunnerSet(set) => standing(set).0 == Some(EphemeralRunnerSetPhase::Outdated),
            _ => false,
        })
    }

    // === judging it ===

    /// What must not have been.
    pub fn violations(&self) -> Vec<String> {
        let mut judge = Judge {
            in_two_writes: self.in_two_writes,
            ..Judge::default()
        };
        for (at, seen) in self.all() {
            match seen {
                Seen::RunnerSet(set) => judge.runner_set(at, &set),
                Seen::Runner(runner) => judge.runner(&runner),
                Seen::Gone(runner) => {
                    judge.standing.remove(&runner.uid().unwrap());
                }
                Seen::ScaleSet(_) | Seen::Other => {}
            }
        }
        judge.violations.extend(judge.half);
        judge.violations
    }

    /// The course of a run, for a failure's message.
    pub fn picture(&self) -> String {
        let mut text = String::new();
        for (at, seen) in self.all() {
            let _ = match seen {
                Seen::ScaleSet(set) => {
                    let phase = set.status.and_then(|status| status.phase);
                    writeln!(text, "{at} ARS {phase:?}")
                }
                Seen::RunnerSet(set) => {
                    let (replicas, patch) = (set.spec.replicas, set.spec.patch_id);
                    let marker = set.status.as_ref();
                    let marker = marker.and_then(|one| one.finished_runner_cleanup_patch_id);
                    let (phase, applied, wanted) = standing(&set);
                    writeln!(
                        text,
                        "{at} ERS {replicas:?}/{patch} counted {marker:?} revision \
                         {applied}/{wanted} {phase:?}"
                    )
                }
                Seen::Runner(runner) => {
                    let going = runner.metadata.deletion_timestamp.is_some();
                    let patch = runner.annotations().get(annotations::PATCH_ID);
                    let status = runner.status.clone().unwrap_or_default();
                    let (name, revision) = (runner.name_any(), revision(&runner));
                    writeln!(
                        text,
                        "{at} ER {name} revision {revision} patch {patch:?} {:?} deleting {going}",
                        status.phase
                    )
                }
                Seen::Gone(runner) => writeln!(text, "{at} ER {} is gone", runner.name_any()),
                Seen::Other => Ok(()),
            };
        }
        text
    }
}

#[derive(Default)]
struct Judge {
    last: Option<(Option<String>, Standing)>,
    /// Revisions of the runners that were rejected and are there, by uid.
    standing: BTreeMap<String, i64>,
    /// Highest revision of a runner that ever was rejected.
    highest: Option<i64>,
    violations: Vec<String>,
    in_two_writes: bool,
    /// What is wrong unless the next write puts it right.
    half: Option<String>,
}

impl Judge {
    fn runner(&mut self, runner: &EphemeralRunner) {
        let uid = runner.uid().unwrap();
        if !is_verdict(runner) || runner.metadata.deletion_timestamp.is_some() {
            self.standing.remove(&uid);
            return;
        }
        let revision = revision(runner);
        self.highest = self.highest.max(Some(revision));
        self.standing.insert(uid, revision);
    }

    fn runner_set(&mut self, at: u64, set: &EphemeralRunnerSet) {
        let now = standing(set);
        let (phase, applied, _) = now;
        let before = self.last.replace((set.uid(), now));
        // one made anew knows nothing of its predecessor's revisions
        let anew = before.as_ref().is_some_and(|(uid, _)| *uid != set.uid());
        let before = before.filter(|_| !anew).map(|(_, one)| one);
        if anew {
            self.standing.clear();
            self.highest = None;
        }
        let outdated = phase == Some(EphemeralRunnerSetPhase::Outdated);
        if outdated && self.highest.is_none_or(|verdict| verdict < applied) {
            self.violations.push(format!(
                "INV-7: Outdated at {at} under {applied}, the newest verdict is about {:?}",
                self.highest
            ));
        }
        let turns = before.is_some_and(|before| (before.0, before.1) != (phase, applied));
        let stands = self.standing.values().any(|verdict| *verdict >= applied);
        let half = self.half.take().filter(|_| !outdated && stands);
        self.violations.extend(half);
        if turns && !outdated && stands {
            let wrong = format!(
                "INV-7: {phase:?} at {at} under {applied}, verdicts {:?} stand",
                self.standing
            );
            match self.in_two_writes {
                true => self.half = Some(wrong),
                false => self.violations.push(wrong),
            }
        }
        if before.is_some_and(|before| before.1 > applied) {
            self.violations
                .push(format!("INV-8: back to {applied} at {at}, from {before:?}"));
        }
    }
}

fn standing(set: &EphemeralRunnerSet) -> Standing {
    let status = set.status.clone().unwrap_or_default();
    (
        status.phase,
        status.applied_actionable_revision.unwrap_or(0),
        set.spec.actionable_revision.unwrap_or(0),
    )
}

fn is_verdict(runner: &EphemeralRunner) -> bool {
    let phase = runner.status.as_ref().and_then(|status| status.phase);
    phase == Some(EphemeralRunnerPhase::Outdated)
}

/// The revision that a runner was made under.
pub fn revision(runner: &EphemeralRunner) -> i64 {
    let stamp = runner.annotations().get(annotations::ACTIONABLE_REVISION);
    stamp.map_or(0, |stamp| stamp.parse().unwrap())
}

/// A history that never happened, to see that the judge would have seen it.
#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn history(versions: Vec<Seen>) -> History {
        let history = History::default();
        history.entries.borrow_mut().extend((1..).zip(versions));
        history
    }

    fn set(uid: &str, phase: &str, applied: i64) -> Seen {
        let value = json!({
            "apiVersion": "actions.github.com/v1alpha1", "kind": "EphemeralRunnerSet",
            "metadata": {"name": "set", "uid": uid},
            "spec": {"patchID": 0, "actionableRevision": 9},
            "status": {
                "currentReplicas": 0, "phase": phase, "appliedActionableRevision": applied,
            },
        });
        Seen::RunnerSet(serde_json::from_value(value).unwrap())
    }

    fn runner(revision: &str, phase: &str) -> EphemeralRunner {
        let value: Value = json!({
            "apiVersion": "actions.github.com/v1alpha1", "kind": "EphemeralRunner",
            "metadata": {
                "name": "r", "uid": format!("uid-{revision}"),
                "annotations": {annotations::ACTIONABLE_REVISION: revision},
            },
            "spec": {
                "githubConfigUrl": "https://gh.test/o", "githubConfigSecret": "gh",
                "runnerScaleSetId": 1,
            },
            "status": {"phase": phase},
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_must_not_be_is_seen() {
        let rejected = |revision| Seen::Runner(runner(revision, "Outdated"));
        let table = [
            (
                "nothing wrong",
                vec![
                    set("a", "Running", 1),
                    rejected("1"),
                    set("a", "Outdated", 1),
                ],
                0,
            ),
            (
                "no verdict",
                vec![set("a", "Running", 1), set("a", "Outdated", 1)],
                1,
            ),
            (
                "an older verdict",
                vec![
                    set("a", "Running", 2),
                    rejected("1"),
                    set("a", "Outdated", 2),
                ],
                1,
            ),
            (
                "one that stands, and the set runs again",
                vec![
                    rejected("1"),
                    set("a", "Outdated", 1),
                    set("a", "Running", 1),
                ],
                1,
            ),
            (
                "one that is gone with its runner",
                vec![
                    rejected("2"),
                    set("a", "Outdated", 1),
                    Seen::Gone(runner("2", "Outdated")),
                    set("a", "Running", 2),
                ],
                0,
            ),
            (
                "one about what is applied now",
                vec![
                    set("a", "Running", 1),
                    rejected("2"),
                    set("a", "Running", 2),
                ],
                1,
            ),
            (
                "backwards",
                vec![set("a", "Running", 2), set("a", "Running", 1)],
                1,
            ),
            (
                "another set",
                vec![set("a", "Running", 2), set("b", "Running", 1)],
                0,
            ),
        ];
        for (row, versions, expected) in table {
            let found = history(versions).violations();
            assert_eq!(found.len(), expected, "{row}: {found:#?}");
        }
    }

    #[test]
    fn of_two_writes_the_second_has_to_put_it_right() {
        let rejected = Seen::Runner(runner("1", "Outdated"));
        let outdated = set("a", "Outdated", 1);
        let half = set("a", "Running", 1);
        for (after, expected) in [
            (vec![set("a", "Running", 2)], 0),
            (vec![outdated.clone()], 0),
            (vec![half.clone()], 1),
            (vec![], 1),
        ] {
            let mut versions = vec![rejected.clone(), outdated.clone(), half.clone()];
            versions.extend(after);
            let found = history(versions).in_two_writes().violations();
            assert_eq!(found.len(), expected, "{found:#?}");
        }
    }
}
