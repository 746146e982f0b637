//! What the API server has stored, as far as the invariants about revisions, finished runners
//! and single listeners need it (INV-2, INV-7, INV-8, INV-11), and these invariants, checked at
//! each change.
//!
//! Changes of everybody are followed; only those that the controller makes can be wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use embedded_actions::{ActionsService, JobState};
use embedded_kube::faults::ChangeInfo;
use impresario::api::constants::{annotations, labels};
use impresario::api::stand_in::{raise, stand_ins_of};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

/// On an EphemeralRunnerSet: jobs that ended up to then are left out of `replicas`.
const JOBS_COUNTED_UNTIL: &str = "impresario.dev/jobs-counted-until";
/// For so long a change may be decided on what was before another: requests cross each other.
const CROSSING: Duration = Duration::from_secs(1);

/// The books.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Whether the object of the last change has annotations in place of fields.
    stands_in: bool,
    /// By uid.
    sets: BTreeMap<String, Set>,
    /// By uid; those that are gone are kept.
    runners: BTreeMap<String, Runner>,
    /// What there is only one of for a scale set, by uid: which, and of which scale set.
    singles: BTreeMap<String, Single>,
    /// How many objects were made, by plural name.
    created: BTreeMap<String, usize>,
    /// Each phase that a scale set or a runner set has had, in order, by plural name.
    phases: BTreeMap<String, Vec<String>>,
    /// Ids of runners that the service has refused to remove.
    kept_by_service: BTreeSet<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Single {
    plural: String,
    namespace: String,
    scale_set: String,
}

#[derive(Clone, Debug, Default)]
struct Set {
    namespace: String,
    name: String,
    deleting: bool,
    wanted: i64,
    applied: i64,
    outdated: bool,
    counted_until: Option<Timestamp>,
    wish: Wish,
    /// The wish before, which a creation under way may still serve.
    wish_before: Wish,
}

/// What the listener has asked for.
#[derive(Clone, Debug, Default)]
struct Wish {
    replicas: i64,
    patch: i64,
    /// When it was replaced by another.
    until: Option<Instant>,
    /// The runners that were there when it was written, and those made since: it counts on them.
    counts_on: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
struct Runner {
    set: String,
    name: String,
    id: Option<i64>,
    revision: i64,
    phase: String,
    has_job: bool,
    job_finished: Option<Timestamp>,
    deleting: bool,
    gone: bool,
    /// Since when its verdict stands.
    rejected: Option<Instant>,
}

impl Runner {
    fn is_there(&self) -> bool {
        !self.gone && !self.deleting
    }

    /// It has ended by itself with exit code 0, or in any other way after a job was recorded.
    fn is_finished(&self) -> bool {
        self.phase == "Succeeded" || (self.phase == "Failed" && self.has_job)
    }

    fn is_over(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed" | "Outdated")
    }

    fn is_idle(&self) -> bool {
        self.is_there() && !self.is_over() && !self.has_job && self.phase != "Running"
    }

    /// Whether its verdict stands under the applied revision.
    fn verdict_stands(&self, applied: i64) -> bool {
        self.is_there() && self.rejected.is_some() && self.revision >= applied
    }
}

impl Ledger {
    /// How many objects of that plural name were ever made.
    pub fn created(&self, plural: &str) -> usize {
        self.created.get(plural).copied().unwrap_or(0)
    }

    /// Each phase that the objects of that plural name have had, in order.
    pub fn phases(&self, plural: &str) -> Vec<String> {
        self.phases.get(plural).cloned().unwrap_or_default()
    }

    /// The service has refused to remove this runner: it has a job, told or not.
    pub fn kept_by_service(&mut self, id: i64) {
        self.kept_by_service.insert(id);
    }

    /// Takes a change in. Answers with the invariants that it breaks.
    pub fn take(
        &mut self,
        change: &ChangeInfo<'_>,
        by_controller: bool,
        service: Option<&ActionsService>,
    ) -> Vec<String> {
        let plural = change.resource.split('.').next().unwrap_or_default();
        if change.before.is_none() {
            *self.created.entry(plural.to_owned()).or_default() += 1;
        }
        let mut found = Vec::new();
        // what stands in annotations counts as the field that it stands in for
        let raised = change.after.and_then(raised);
        self.stands_in = raised.is_some();
        let change = &ChangeInfo {
            after: raised.as_ref().or(change.after),
            ..*change
        };
        match plural {
            "ephemeralrunnersets" => self.take_set(change, by_controller, service, &mut found),
            "ephemeralrunners" => self.take_runner(change, by_controller, service, &mut found),
            "autoscalingrunnersets" => self.take_scale_set(change, by_controller, &mut found),
            "autoscalinglisteners" | "pods" => found.extend(self.take_single(plural, change)),
            _ => {}
        }
        found
    }

    /// INV-11: never two listeners of one scale set, nor two pods of them.
    fn take_single(&mut self, plural: &str, change: &ChangeInfo<'_>) -> Option<String> {
        let object = change.after.or(change.before)?;
        let uid = text(object, "/metadata/uid").to_owned();
        let label = |name: &str| {
            object["metadata"]["labels"][name]
                .as_str()
                .unwrap_or_default()
        };
        if label(labels::COMPONENT) != labels::COMPONENT_LISTENER {
            return None;
        }
        if change.after.is_none() {
            self.singles.remove(&uid);
            return None;
        }
        let single = Single {
            plural: plural.to_owned(),
            namespace: label(labels::SCALE_SET_NAMESPACE).to_owned(),
            scale_set: label(labels::SCALE_SET_NAME).to_owned(),
        };
        let second = change.before.is_none() && self.singles.values().any(|one| *one == single);
        let violation = second.then(|| format!("INV-11: a second one of {single:?}"));
        self.singles.insert(uid, single);
        violation
    }

    /// INV-7 at rest: a verdict that stands is said.
    pub fn untold_verdicts(&self) -> Vec<String> {
        let at_rest = |set: &&Set| !set.deleting && !set.outdated && set.applied >= set.wanted;
        let untold = |(uid, set): (&String, &Set)| {
            let verdict = self.standing_verdict(uid, set.applied)?;
            let Set { name, applied, .. } = set;
            Some(format!(
                "INV-7: {name} is not Outdated at revision {applied}, though {verdict:?} is rejected"
            ))
        };
        let sets = self.sets.iter().filter(|(_, set)| at_rest(set));
        sets.filter_map(untold).collect()
    }

    // === runner sets ===

    fn take_set(
        &mut self,
        change: &ChangeInfo<'_>,
        by_controller: bool,
        service: Option<&ActionsService>,
        found: &mut Vec<String>,
    ) {
        let Some(object) = change.after else {
            let uid = change.before.map(|before| text(before, "/metadata/uid"));
            self.sets.remove(uid.unwrap_or_default());
            return;
        };
        let uid = text(object, "/metadata/uid").to_owned();
        let before = self.sets.get(&uid).cloned().unwrap_or_default();
        let mut set = self.read_set(&uid, object, &before);
        if by_controller {
            found.extend(self.check_applied(&uid, &before, &set, service));
            found.extend(self.check_verdict(&uid, &before, &set, object));
        }
        if set.applied > before.applied {
            // the marker of the cleanup starts anew
            set.wish.counts_on.clear();
            set.wish_before.counts_on.clear();
        }
        self.note_phase("ephemeralrunnersets", text(object, "/status/phase"));
        self.sets.insert(uid, set);
    }

    fn read_set(&self, uid: &str, object: &Value, before: &Set) -> Set {
        let (replicas, patch) = (
            number(object, "/spec/replicas"),
            number(object, "/spec/patchID"),
        );
        let same = (before.wish.replicas, before.wish.patch) == (replicas, patch);
        let (wish, wish_before) = if same && !before.name.is_empty() {
            (before.wish.clone(), before.wish_before.clone())
        } else {
            let there = self.runners_of(uid).filter(|(_, runner)| runner.is_there());
            let wish = Wish {
                replicas,
                patch,
                until: None,
                counts_on: there.map(|(uid, _)| uid.clone()).collect(),
            };
            let last = Wish {
                until: Some(Instant::now()),
                ..before.wish.clone()
            };
            (wish, last)
        };
        Set {
            namespace: text(object, "/metadata/namespace").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
            deleting: is_deleting(object),
            wanted: number(object, "/spec/actionableRevision"),
            applied: number(object, "/status/appliedActionableRevision"),
            outdated: text(object, "/status/phase") == "Outdated",
            counted_until: annotation(object, JOBS_COUNTED_UNTIL).parse().ok(),
            wish,
            wish_before,
        }
    }

    /// INV-8: the applied revision never moves backwards, nor before its cleanup is done.
    fn check_applied(
        &self,
        uid: &str,
        before: &Set,
        after: &Set,
        service: Option<&ActionsService>,
    ) -> Option<String> {
        let (old, new) = (before.applied, after.applied);
        if new < old {
            return Some(format!(
                "INV-8: the applied revision goes from {old} to {new}"
            ));
        }
        if new == old {
            return None;
        }
        let idle: Vec<&str> = self
            .runners_of(uid)
            .map(|(_, runner)| runner)
            .filter(|runner| runner.is_idle() && runner.revision < new)
            .filter(|runner| !self.has_job_by_service(runner, service))
            .map(|runner| runner.name.as_str())
            .collect();
        (!idle.is_empty()).then(|| format!("INV-8: revision {new} is applied beside idle {idle:?}"))
    }

    /// INV-7: `Outdated` follows from a verdict about the applied revision, and no other; and
    /// `Running` is not said while one stands.
    fn check_verdict(
        &self,
        uid: &str,
        before: &Set,
        after: &Set,
        object: &Value,
    ) -> Option<String> {
        let applied = after.applied;
        if after.outdated {
            let ever = self
                .runners_of(uid)
                .any(|(_, runner)| runner.rejected.is_some() && runner.revision >= applied);
            let new = !before.outdated || applied > before.applied;
            return (new && !ever)
                .then(|| format!("INV-7: Outdated without a verdict about revision {applied}"));
        }
        if self.stands_in && after.wanted > after.applied {
            // where the revision has no field, it is applied in a second request
            return None;
        }
        let said = text(object, "/status/phase") == "Running";
        let new = before.outdated || before.name.is_empty() || applied > before.applied;
        let verdict = self
            .standing_verdict(uid, applied)
            .filter(|_| said && new)?;
        Some(format!(
            "INV-7: Running at revision {applied}, though {verdict:?} is rejected"
        ))
    }

    /// A runner whose verdict has stood for a while.
    fn standing_verdict<'a>(&'a self, uid: &'a str, applied: i64) -> Option<&'a str> {
        let stands = |runner: &&Runner| {
            runner.verdict_stands(applied)
                && runner
                    .rejected
                    .is_some_and(|since| since.elapsed() > CROSSING)
        };
        let mut runners = self.runners_of(uid).map(|(_, runner)| runner);
        runners.find(stands).map(|runner| runner.name.as_str())
    }

    /// Whether the service knows, or has known, of a job of this runner.
    fn has_job_by_service(&self, runner: &Runner, service: Option<&ActionsService>) -> bool {
        let known = service.map(ActionsService::runners).unwrap_or_default();
        let known = known.into_iter().find(|one| one.name == runner.name);
        let id = known.map(|known| known.id).or(runner.id);
        let jobs = service.map(ActionsService::jobs).unwrap_or_default();
        id.is_some_and(|id| self.kept_by_service.contains(&id))
            || jobs.iter().any(|job| job.runner_name == runner.name)
    }

    // === runners ===

    fn take_runner(
        &mut self,
        change: &ChangeInfo<'_>,
        by_controller: bool,
        service: Option<&ActionsService>,
        found: &mut Vec<String>,
    ) {
        let Some(object) = change.after else {
            let uid = change.before.map(|before| text(before, "/metadata/uid"));
            if let Some(runner) = self.runners.get_mut(uid.unwrap_or_default()) {
                runner.gone = true;
            }
            return;
        };
        let uid = text(object, "/metadata/uid").to_owned();
        let before = self.runners.get(&uid);
        let phase = text(object, "/status/phase").to_owned();
        let rejected = before.and_then(|before| before.rejected);
        let runner = Runner {
            set: text(object, "/metadata/ownerReferences/0/uid").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
            id: Some(number(object, "/status/runnerId")).filter(|id| *id > 0),
            revision: annotation(object, annotations::ACTIONABLE_REVISION)
                .parse()
                .unwrap_or(0),
            has_job: !text(object, "/status/jobId").is_empty()
                || number(object, "/status/jobRequestId") > 0
                || phase == "Running",
            job_finished: text(object, "/status/jobFinishedAt").parse().ok(),
            deleting: is_deleting(object),
            gone: false,
            rejected: (phase == "Outdated").then(|| rejected.unwrap_or_else(Instant::now)),
            phase,
        };
        let set = runner.set.clone();
        self.runners.insert(uid.clone(), runner);
        if change.before.is_some() {
            return;
        }
        if by_controller {
            found.extend(self.check_creation(&set, service));
        }
        if let Some(set) = self.sets.get_mut(&set) {
            set.wish.counts_on.insert(uid);
        }
    }

    /// INV-2: no runner is made for a job that has ended. A wish counts on the runners that are
    /// there when it is written: what they give up by finishing is not theirs who come later.
    fn check_creation(&self, uid: &str, service: Option<&ActionsService>) -> Option<String> {
        let set = self.sets.get(uid)?;
        let alive = self.runners_of(uid).map(|(_, runner)| runner);
        let alive = alive.filter(|runner| runner.is_there() && !runner.is_over());
        let alive = i64::try_from(alive.count()).unwrap_or(i64::MAX);
        let too_many = |wish: &Wish| {
            let given_up: Vec<&str> = self.given_up(set, wish, service);
            let held = i64::try_from(given_up.len()).unwrap_or(i64::MAX);
            (wish.patch > 0 && alive + held > wish.replicas).then_some(given_up)
        };
        let given_up = too_many(&set.wish)?;
        let last = &set.wish_before;
        let crossed = last.until.is_some_and(|end| end.elapsed() <= CROSSING);
        if crossed && too_many(last).is_none() {
            return None;
        }
        let Wish {
            replicas, patch, ..
        } = &set.wish;
        Some(format!(
            "INV-2: {alive} runners under patch {patch} for {replicas} replicas, of which \
             {given_up:?} have been served"
        ))
    }

    /// The runners that a wish counted on, and that have finished.
    fn given_up<'a>(
        &'a self,
        set: &Set,
        wish: &Wish,
        service: Option<&ActionsService>,
    ) -> Vec<&'a str> {
        let jobs = service.map(ActionsService::jobs).unwrap_or_default();
        // the listener says so, and where the service knows the job, it agrees
        let left_out = |runner: &Runner| {
            let told = runner
                .job_finished
                .is_some_and(|time| set.counted_until.is_some_and(|until| time <= until));
            let mut own = jobs.iter().filter(|job| job.runner_name == runner.name);
            told && own.all(|job| job.state == JobState::Completed)
        };
        let counted = wish
            .counts_on
            .iter()
            .filter_map(|uid| self.runners.get(uid));
        counted
            .filter(|runner| runner.is_finished() && !left_out(runner))
            .map(|runner| runner.name.as_str())
            .collect()
    }

    fn runners_of<'a>(&'a self, set: &'a str) -> impl Iterator<Item = (&'a String, &'a Runner)> {
        self.runners
            .iter()
            .filter(move |(_, runner)| runner.set == set)
    }

    // === scale sets ===

    /// INV-7 above: only a runner set that is rejected as a whole parks its scale set.
    fn take_scale_set(
        &mut self,
        change: &ChangeInfo<'_>,
        by_controller: bool,
        found: &mut Vec<String>,
    ) {
        let Some(object) = change.after else { return };
        let phase = text(object, "/status/phase");
        self.note_phase("autoscalingrunnersets", phase);
        let before = change.before.map_or("", |one| text(one, "/status/phase"));
        if !by_controller || phase != "Outdated" || before == phase {
            return;
        }
        let (namespace, name) = (
            text(object, "/metadata/namespace"),
            text(object, "/metadata/name"),
        );
        let mut sets = self.sets.values();
        let set = sets.find(|set| set.namespace == namespace && set.name == name);
        if let Some(set) = set.filter(|set| !set.outdated || set.applied < set.wanted) {
            found.push(format!("INV-7: {name} is parked under {set:?}"));
        }
    }

    fn note_phase(&mut self, plural: &str, phase: &str) {
        let known = self.phases.entry(plural.to_owned()).or_default();
        if !phase.is_empty() && known.last().map(String::as_str) != Some(phase) {
            known.push(phase.to_owned());
        }
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let found = object.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default()
}

/// The object with what stands in annotations in its fields; none where nothing does.
fn raised(object: &Value) -> Option<Value> {
    let kind = text(object, "/kind");
    if stand_ins_of(kind, object).is_empty() {
        return None;
    }
    let mut whole = object.clone();
    raise(kind, &mut whole);
    Some(whole)
}

fn number(object: &Value, pointer: &str) -> i64 {
    let found = object.pointer(pointer).and_then(Value::as_i64);
    found.unwrap_or(0)
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a str {
    let found = object["metadata"]["annotations"][name].as_str();
    found.unwrap_or_default()
}

fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}
