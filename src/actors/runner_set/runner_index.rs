//! The index of the runners: every runner of the set, by state, kept up to date report by report.
//!
//! Whatever a decision asks of them is a count or the head of a sorted set, so its cost does
//! not grow with the number of runners.

mod counting;

use std::collections::{BTreeMap, BTreeSet};

use crate::actors::core::backoff::Schedule;
use crate::actors::runner::is_denial;
use crate::clock::{Timestamp, after};
use crate::messages::{
    Launch, Reason, Refusal, Rejected, RunnerCommand, RunnerCounts, RunnerReport, RunnerState,
};

/// When an idle runner is asked again that the service did not let go: it may have a job.
const BUSY: Schedule = Schedule {
    first_ms: 30_000,
    cap_ms: 120_000,
};
/// The same when the service could not be asked: mended credentials are to be noticed.
const NOT_ASKED: Schedule = Schedule {
    first_ms: 5_000,
    cap_ms: 60_000,
};
/// After how many seconds a command without effect is given again; and how long a runner
/// without an id on record may take to get one before it is deleted without asking.
const PATIENCE: i64 = 60;
/// So many seconds the listener may take to say that it has left a finished job out.
const HEARING: i64 = 60;
/// A runner without an id is left alone by a scale-down until it has that age, in seconds.
const UNREGISTERED_AGE: i64 = 120;

/// A runner's state as the decisions see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RunnerClass {
    /// Without a job so far.
    Pending,
    /// With a job.
    Running,
    /// Ended, waiting to be counted.
    Finished,
    /// Failed without having had a job.
    Failed,
    /// Rejected for its version, under the applied revision or a newer one.
    Outdated,
    /// Rejected for its version, under a revision that is gone.
    Stale,
    /// Being deleted; its pod or Secret may still exist.
    Deleting,
    /// Being deleted, and only waiting for its deregistration.
    Leaving,
}

const RUNNER_CLASSES: usize = 8;

/// By creation, oldest first.
type ByTime = BTreeSet<(Timestamp, String)>;

#[derive(Debug)]
struct IndexedRunner {
    report: RunnerReport,
    class: RunnerClass,
    told: Option<(RunnerCommand, Timestamp)>,
    /// Asked, refused, and not to be asked again before.
    rests: Option<Timestamp>,
    /// Why it stayed when it was last to go, and how often in a row it stayed for that.
    refusal: Option<(Refusal, u32)>,
    /// Being deleted without having had a job: its place is to be filled when it is free.
    lost: bool,
    /// Finished and counted: by a decision, or since `replicas` was computed without its job.
    counted: bool,
    /// Its pod was accepted, now or before.
    launched: bool,
    /// Finished, and part of the count that was last put on record.
    marked: bool,
    /// Since when it is known here as finished, and under the how manieth patch that was.
    ended: Option<(Timestamp, u64)>,
}

/// What becomes of the place of a runner that has come free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SlotFate {
    /// It has not come free now, or that is recorded.
    #[default]
    Kept,
    /// It is to be filled: no job was done in it, or `replicas` was computed without that job.
    Open,
    /// It was left behind by a job that `replicas` may still include.
    Spent,
}

/// A finished runner that was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CountedRunner {
    pub name: String,
    /// When its job was recorded as finished.
    pub finished: Option<Timestamp>,
    /// It ended when the patch at hand was known already: the next one may have been computed before
    /// that.
    pub late: bool,
}

/// What a report changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// What became of the runner's place.
    pub place: SlotFate,
    /// It failed without a job.
    pub failed: bool,
    /// It got ready.
    pub ready: bool,
    /// It has had a job, or ended well.
    pub finished: bool,
    /// Its first pod was accepted.
    pub launched: bool,
    /// Its pod and its Secret are gone.
    pub freed: bool,
}

/// The runners of one set, by what decisions ask for.
#[derive(Debug, Default)]
pub(super) struct RunnerIndex {
    applied: i64,
    /// Counts the patches that were seen.
    patch: u64,
    /// `replicas` was computed without jobs recorded as finished up to then.
    counted_until: Option<Timestamp>,
    runners: BTreeMap<String, IndexedRunner>,
    counts: [i64; RUNNER_CLASSES],
    patches: BTreeMap<i64, u64>,
    revisions: BTreeMap<i64, u64>,
    releases: usize,
    /// On their way to their first pod.
    starting: usize,
    // runners that were told nothing, by what they may be told
    idle: ByTime,
    unregistered: ByTime,
    finished: ByTime,
    /// Finished and not counted, by when their jobs were recorded as finished; those of which
    /// that is not known at the end.
    uncounted: ByTime,
    /// The same, by until when the listener may take to say that it has left them out.
    unheard: ByTime,
    /// Those among them that the count on record is about.
    marked: ByTime,
    /// Finished and counted, without pod and Secret.
    settled: ByTime,
    failed: ByTime,
    outdated: ByTime,
    stale: ByTime,
    /// Idle, but the service could not be asked: the credentials are of no use.
    unasked: ByTime,
    /// By revision, what is in `idle` and `unregistered`.
    askable_by_revision: BTreeSet<(i64, String)>,
    /// By revision, what is in `unasked`.
    unasked_by_revision: BTreeSet<(i64, String)>,
    /// A quota leaves no room for their pod or Secret.
    crowded: ByTime,
    /// Told something, by when to say it again.
    told: ByTime,
    /// Refused, by when they may be asked again.
    resting: ByTime,
    /// With a reason why they do not get ready or have failed.
    troubled: BTreeSet<String>,
}

impl RunnerIndex {
    // === keeping them ===

    /// Takes a report in. One about an earlier runner of the name is passed over.
    pub fn record_report(&mut self, now: Timestamp, report: RunnerReport) -> Change {
        let name = report.name.clone();
        let class = self.classify(&report);
        let old = self.unlink(&name);
        let old_class = old.as_ref().map(|old| old.class);
        let was_ready = old.as_ref().is_some_and(|old| old.report.ready);
        let was_lost = old.as_ref().is_some_and(|old| old.lost);
        let old_ended = old.as_ref().and_then(|old| old.ended);
        let was_launched = old.as_ref().is_some_and(|old| old.launched);
        let held = old.as_ref().is_some_and(|old| old.report.holds_resources);
        let old_marked = old.as_ref().is_some_and(|old| old.marked);
        // one that was found finished and in deletion has been counted by a predecessor
        let by_a_predecessor = report.deleting && report.state == RunnerState::Finished;
        let was_counted = old.as_ref().map_or(by_a_predecessor, |old| old.counted);
        let (mut told, mut rests, mut refusal) =
            old.map_or((None, None, None), |old| (old.told, old.rests, old.refusal));
        let release_is_moot =
            class != RunnerClass::Pending && matches!(told, Some((RunnerCommand::Release, _)));
        let stays = report.refused.is_some();
        if matches!(class, RunnerClass::Deleting | RunnerClass::Leaving) || release_is_moot || stays
        {
            told = None;
        }
        if let Some(why) = report.refused.clone() {
            let (schedule, before) = match (&why, &refusal) {
                (Refusal::Busy, Some((Refusal::Busy, count))) => (BUSY, *count),
                (Refusal::Busy, _) => (BUSY, 0),
                (Refusal::NotAsked(..), Some((Refusal::NotAsked(..), count))) => {
                    (NOT_ASKED, *count)
                }
                (Refusal::NotAsked(..), _) => (NOT_ASKED, 0),
            };
            let count = before.saturating_add(1);
            rests = now.saturating_add(schedule.plain(count)).ok();
            refusal = Some((why, count));
        }
        let ended = old_ended.or((class == RunnerClass::Finished).then_some((now, self.patch)));
        let entry = IndexedRunner {
            ended,
            marked: old_marked,
            launched: was_launched || report.launch == Launch::Done,
            lost: was_lost || (class == RunnerClass::Deleting && deprives(old_class, &report)),
            counted: was_counted || (class == RunnerClass::Finished && self.is_known_of(&report)),
            report,
            class,
            told,
            rests,
            refusal,
        };
        let change = Change {
            place: self.place(old_class, was_counted, &entry),
            failed: class == RunnerClass::Failed && old_class != Some(RunnerClass::Failed),
            ready: entry.report.ready && !was_ready,
            finished: class == RunnerClass::Finished && old_class != Some(RunnerClass::Finished),
            launched: old_class.is_some() && entry.launched && !was_launched,
            freed: held && !entry.report.holds_resources,
        };
        self.link(name, entry);
        change
    }

    /// What becomes of an entry's place with the step from its class before to the one now.
    fn place(
        &self,
        before: Option<RunnerClass>,
        was_counted: bool,
        now: &IndexedRunner,
    ) -> SlotFate {
        let open_if = |open| if open { SlotFate::Open } else { SlotFate::Kept };
        match now.class {
            RunnerClass::Pending
            | RunnerClass::Running
            | RunnerClass::Deleting
            | RunnerClass::Outdated => SlotFate::Kept,
            RunnerClass::Failed | RunnerClass::Stale => {
                open_if(matches!(before, None | Some(RunnerClass::Pending)))
            }
            RunnerClass::Finished => open_if(now.counted && !was_counted),
            RunnerClass::Leaving => match before {
                Some(RunnerClass::Leaving) => SlotFate::Kept,
                None => open_if(deprives(None, &now.report)),
                Some(before) => self.left_by(before, now),
            },
        }
    }

    /// What becomes of the place of a runner that is gone, or as good as gone.
    fn left_by(&self, before: RunnerClass, entry: &IndexedRunner) -> SlotFate {
        let settled = entry.counted || self.is_known_of(&entry.report);
        match before {
            RunnerClass::Leaving => SlotFate::Kept,
            _ if entry.lost || deprives(Some(before), &entry.report) => SlotFate::Open,
            RunnerClass::Finished if settled => SlotFate::Kept,
            _ if settled => SlotFate::Open,
            _ => SlotFate::Spent,
        }
    }

    /// Strikes a runner off that is gone. Says what becomes of its place.
    pub fn remove(&mut self, name: &str, uid: &str) -> SlotFate {
        if self.uid(name) != Some(uid) {
            return SlotFate::Kept;
        }
        let entry = self.unlink(name);
        entry.map_or(SlotFate::Kept, |entry| self.left_by(entry.class, &entry))
    }

    /// The applied revision that the runners are judged by.
    pub const fn applied(&self) -> i64 {
        self.applied
    }

    /// Takes in which revision is applied. Says whether verdicts went stale by it.
    pub fn set_applied(&mut self, applied: i64) -> bool {
        if applied == self.applied {
            return false;
        }
        self.applied = applied;
        let judged: Vec<String> = self
            .outdated
            .iter()
            .chain(&self.stale)
            .map(|(_, name)| name.clone())
            .collect();
        let mut lost = false;
        for name in judged {
            if let Some(mut entry) = self.unlink(&name) {
                entry.class = self.classify(&entry.report);
                lost |= entry.class == RunnerClass::Stale;
                self.link(name, entry);
            }
        }
        lost
    }

    /// Notes that a runner was told something.
    pub fn record_command(&mut self, now: Timestamp, name: &str, command: RunnerCommand) {
        if let Some(mut entry) = self.unlink(name) {
            entry.told = Some((command, now));
            entry.rests = None;
            self.link(name.to_owned(), entry);
        }
    }

    /// Puts refused runners back among the idle ones whose rest is over.
    pub fn end_pauses(&mut self, now: Timestamp) {
        while let Some((until, name)) = self.resting.first().cloned()
            && until <= now
        {
            if let Some(mut entry) = self.unlink(&name) {
                entry.rests = None;
                self.link(name, entry);
            }
        }
    }

    // === reading them ===

    pub fn count(&self, class: RunnerClass) -> i64 {
        self.counts[class as usize]
    }

    /// The counts as the scale set reports them.
    pub fn counts(&self) -> RunnerCounts {
        RunnerCounts {
            pending: self.count(RunnerClass::Pending),
            running: self.count(RunnerClass::Running),
            failed: self.count(RunnerClass::Failed),
            finished: self.count(RunnerClass::Finished),
            outdated: self.count(RunnerClass::Outdated) + self.count(RunnerClass::Stale),
            deleting: self.count(RunnerClass::Deleting) + self.count(RunnerClass::Leaving),
        }
    }

    /// Runners that count as capacity.
    pub fn capacity(&self) -> i64 {
        self.count(RunnerClass::Pending)
            + self.count(RunnerClass::Running)
            + self.count(RunnerClass::Deleting)
    }

    pub fn is_empty(&self) -> bool {
        self.runners.is_empty()
    }

    pub fn contains(&self, name: &str) -> bool {
        self.runners.contains_key(name)
    }

    pub fn uid(&self, name: &str) -> Option<&str> {
        self.runners
            .get(name)
            .map(|entry| entry.report.uid.as_str())
    }

    /// Whether some verdict would stand if that revision were applied.
    pub fn is_outdated_at(&self, revision: i64) -> bool {
        self.outdated.iter().any(|(_, name)| {
            self.runners
                .get(name)
                .is_some_and(|entry| entry.report.revision >= revision)
        })
    }

    /// The highest patch id among all runners; 0 when there is none.
    pub fn latest_patch(&self) -> i64 {
        self.patches.last_key_value().map_or(0, |(id, _)| *id)
    }

    /// The lowest revision that a runner was made under, if there are runners.
    pub fn oldest_revision(&self) -> Option<i64> {
        self.revisions.first_key_value().map(|(id, _)| *id)
    }

    /// Runners without a job that were told to release or delete themselves, and have neither
    /// refused nor begun to go.
    pub const fn releases(&self) -> usize {
        self.releases
    }

    /// Runners on their way to their first pod.
    pub const fn starting(&self) -> usize {
        self.starting
    }

    /// The runner that a quota has kept from its pod or Secret for longest.
    pub fn first_crowded(&self) -> Option<String> {
        head(&self.crowded)
    }

    /// The last of them, if there is more than one.
    pub fn next_crowded(&self) -> Option<String> {
        let (_, name) = self.crowded.last().filter(|_| self.crowded.len() > 1)?;
        Some(name.clone())
    }

    /// Why some runner does not get ready, why one has failed, or why one cannot be asked to go.
    pub fn trouble(&self) -> Option<Reason> {
        let name = self.troubled.first()?;
        let entry = self.runners.get(name)?;
        not_asked(entry).or_else(|| entry.report.reason.clone())
    }

    /// The first runner that was rejected for its version under the applied revision.
    pub fn rejected(&self) -> Option<Rejected> {
        let (_, name) = self.outdated.first()?;
        let reason = self.runners.get(name)?.report.reason.as_ref();
        Some(Rejected {
            runner: name.clone(),
            message: reason
                .map(|reason| reason.message.clone())
                .unwrap_or_default(),
        })
    }

    /// The idle runner that a scale-down asks next: the oldest, but none that is young and
    /// without an id.
    pub fn next_surplus(&self, now: Timestamp) -> Option<String> {
        let young = |created: Timestamp| after(created, UNREGISTERED_AGE) > now;
        let unregistered = self
            .unregistered
            .first()
            .filter(|(created, _)| !young(*created));
        let (_, name) = match (self.idle.first(), unregistered) {
            (Some(a), Some(b)) => a.min(b),
            (one, other) => one.or(other)?,
        };
        Some(name.clone())
    }

    /// When [`Self::next_surplus`] may find another one.
    pub fn next_surplus_at(&self) -> Option<Timestamp> {
        let grown = self
            .unregistered
            .first()
            .map(|(created, _)| after(*created, UNREGISTERED_AGE));
        let rested = self.resting.first().map(|(until, _)| *until);
        [grown, rested].into_iter().flatten().min()
    }

    /// Any runner without a job that was told nothing.
    pub fn next_idle(&self) -> Option<String> {
        head(&self.idle).or_else(|| head(&self.unregistered))
    }

    /// One that was made before `revision`.
    pub fn next_idle_before(&self, revision: i64) -> Option<String> {
        let (made, name) = self.askable_by_revision.first()?;
        (*made < revision).then(|| name.clone())
    }

    /// Whether a runner was made before `revision` that could not be asked to go: it will be.
    pub fn is_unasked_before(&self, revision: i64) -> bool {
        let first = self.unasked_by_revision.first();
        first.is_some_and(|(made, _)| *made < revision)
    }

    /// Any finished runner that was told nothing.
    pub fn next_finished(&self) -> Option<String> {
        head(&self.finished)
    }

    /// A finished runner of which nothing is left to be done: counted, without pod and Secret.
    pub fn next_settled(&self) -> Option<String> {
        head(&self.settled)
    }

    pub fn next_stale(&self) -> Option<String> {
        head(&self.stale)
    }

    pub fn next_outdated(&self) -> Option<String> {
        head(&self.outdated)
    }

    pub fn next_unasked(&self) -> Option<String> {
        head(&self.unasked)
    }

    /// The oldest failed runner, if more than `kept` are there.
    pub fn next_failed(&self, kept: usize) -> Option<String> {
        (self.failed.len() > kept)
            .then(|| head(&self.failed))
            .flatten()
    }

    /// A runner that was told something long ago, and what it is to be told now.
    pub fn next_repeat(&self, now: Timestamp) -> Option<(String, RunnerCommand)> {
        let (due, name) = self.told.first()?;
        if *due > now {
            return None;
        }
        let entry = self.runners.get(name)?;
        let (command, _) = entry.told.as_ref()?;
        let nameless = *command == RunnerCommand::Release && !entry.report.registered;
        Some((
            name.clone(),
            if nameless {
                RunnerCommand::Delete
            } else {
                command.clone()
            },
        ))
    }

    /// When [`Self::next_repeat`] has something.
    pub fn next_repeat_at(&self) -> Option<Timestamp> {
        self.told.first().map(|(due, _)| *due)
    }

    /// When the first refused runner may be asked again.
    pub fn next_rest_end(&self) -> Option<Timestamp> {
        self.resting.first().map(|(until, _)| *until)
    }

    // === indexes ===

    fn classify(&self, report: &RunnerReport) -> RunnerClass {
        if report.deleting {
            return if report.holds_resources {
                RunnerClass::Deleting
            } else {
                RunnerClass::Leaving
            };
        }
        match report.state {
            RunnerState::Pending => RunnerClass::Pending,
            RunnerState::Running => RunnerClass::Running,
            RunnerState::Finished => RunnerClass::Finished,
            RunnerState::Failed => RunnerClass::Failed,
            RunnerState::Outdated if report.revision < self.applied => RunnerClass::Stale,
            RunnerState::Outdated => RunnerClass::Outdated,
            RunnerState::Gone => RunnerClass::Leaving,
        }
    }

    fn link(&mut self, name: String, entry: IndexedRunner) {
        self.counts[entry.class as usize] += 1;
        *self.patches.entry(entry.report.patch_id).or_default() += 1;
        *self.revisions.entry(entry.report.revision).or_default() += 1;
        if is_asked_to_go(&entry) {
            self.releases += 1;
        }
        if is_starting(&entry) {
            self.starting += 1;
        }
        for (queue, key) in self.queues_of(&entry) {
            queue.insert((key, name.clone()));
        }
        if let Some(by_revision) = self.by_revision(&entry) {
            by_revision.insert((entry.report.revision, name.clone()));
        }
        if is_troubled(&entry) {
            self.troubled.insert(name.clone());
        }
        self.runners.insert(name, entry);
    }

    fn unlink(&mut self, name: &str) -> Option<IndexedRunner> {
        let entry = self.runners.remove(name)?;
        self.counts[entry.class as usize] -= 1;
        take_one(&mut self.patches, entry.report.patch_id);
        take_one(&mut self.revisions, entry.report.revision);
        if is_asked_to_go(&entry) {
            self.releases -= 1;
        }
        if is_starting(&entry) {
            self.starting -= 1;
        }
        for (queue, key) in self.queues_of(&entry) {
            queue.remove(&(key, name.to_owned()));
        }
        if let Some(by_revision) = self.by_revision(&entry) {
            by_revision.remove(&(entry.report.revision, name.to_owned()));
        }
        self.troubled.remove(name);
        Some(entry)
    }

    /// The order by revision that an entry stands in.
    const fn by_revision(&mut self, entry: &IndexedRunner) -> Option<&mut BTreeSet<(i64, String)>> {
        match (&entry.told, entry.rests, &entry.refusal, entry.class) {
            (None, None, _, RunnerClass::Pending) => Some(&mut self.askable_by_revision),
            (None, Some(_), Some((Refusal::NotAsked(..), _)), RunnerClass::Pending) => {
                Some(&mut self.unasked_by_revision)
            }
            _ => None,
        }
    }

    /// The queues that an entry stands in, with its place there.
    fn queues_of(
        &mut self,
        entry: &IndexedRunner,
    ) -> impl Iterator<Item = (&mut ByTime, Timestamp)> {
        let created = entry.report.created;
        let mut third = None;
        let mut fourth = None;
        if entry.class == RunnerClass::Pending && entry.told.is_none() {
            let is_crowded = entry.report.launch == Launch::Crowded;
            third = is_crowded.then_some((&mut self.crowded, created));
        }
        let (own, second) = match (&entry.told, entry.rests, entry.class) {
            (Some((_, at)), _, _) => (Some((&mut self.told, after(*at, PATIENCE))), None),
            (None, Some(until), RunnerClass::Pending) => {
                let second = not_asked(entry)
                    .is_some()
                    .then_some((&mut self.unasked, created));
                (Some((&mut self.resting, until)), second)
            }
            (None, None, RunnerClass::Pending) if entry.report.registered => {
                (Some((&mut self.idle, created)), None)
            }
            (None, None, RunnerClass::Pending) => (Some((&mut self.unregistered, created)), None),
            (None, _, RunnerClass::Finished) => {
                let finished = entry.report.job_finished.unwrap_or(Timestamp::MAX);
                let second = if !entry.counted {
                    let ended = entry.ended.map_or(created, |(time, _)| time);
                    third = Some((&mut self.unheard, after(ended, HEARING)));
                    fourth = entry.marked.then_some((&mut self.marked, created));
                    Some((&mut self.uncounted, finished))
                } else if entry.report.holds_resources {
                    None
                } else {
                    Some((&mut self.settled, created))
                };
                (Some((&mut self.finished, created)), second)
            }
            (None, _, RunnerClass::Failed) => (Some((&mut self.failed, created)), None),
            (None, _, RunnerClass::Outdated) => (Some((&mut self.outdated, created)), None),
            (None, _, RunnerClass::Stale) => (Some((&mut self.stale, created)), None),
            (None, _, RunnerClass::Running | RunnerClass::Deleting | RunnerClass::Leaving) => {
                (None, None)
            }
        };
        [own, second, third, fourth].into_iter().flatten()
    }
}

/// Whether the set is one runner short, for no job's sake, when this one goes.
fn deprives(before: Option<RunnerClass>, report: &RunnerReport) -> bool {
    match before {
        None => !report.has_job && report.state != RunnerState::Finished,
        Some(class) => matches!(
            class,
            RunnerClass::Pending | RunnerClass::Failed | RunnerClass::Outdated | RunnerClass::Stale
        ),
    }
}

/// Whether it is on its way out without having had a job, and nothing is to be seen of that yet.
const fn is_asked_to_go(entry: &IndexedRunner) -> bool {
    match entry.told {
        Some((RunnerCommand::Release, _)) => true,
        Some((RunnerCommand::Delete, _)) => matches!(entry.class, RunnerClass::Pending),
        Some((RunnerCommand::TryAgain, _)) | None => false,
    }
}

/// Whether it is on its way to its first pod.
fn is_starting(entry: &IndexedRunner) -> bool {
    entry.class == RunnerClass::Pending && entry.told.is_none() && !entry.launched
}

fn is_troubled(entry: &IndexedRunner) -> bool {
    let tells = match entry.class {
        RunnerClass::Pending | RunnerClass::Failed | RunnerClass::Outdated => true,
        // a pod that hangs is capacity that takes no job
        RunnerClass::Running | RunnerClass::Deleting => entry.report.lost,
        RunnerClass::Finished | RunnerClass::Stale | RunnerClass::Leaving => false,
    };
    // of one that is done or goes, what a person has to mend
    let denied = entry.report.reason.as_ref().is_some_and(is_denial);
    denied || tells && (entry.report.reason.is_some() || not_asked(entry).is_some())
}

/// Why the service could not be asked to let the runner go, while that stands.
fn not_asked(entry: &IndexedRunner) -> Option<Reason> {
    match (&entry.told, entry.rests, &entry.refusal) {
        (None, Some(_), Some((Refusal::NotAsked(reason), _))) => Some(reason.clone()),
        _ => None,
    }
}

/// Counts one less of `id`.
fn take_one(counts: &mut BTreeMap<i64, u64>, id: i64) {
    if let Some(count) = counts.get_mut(&id) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&id);
        }
    }
}

fn head(queue: &ByTime) -> Option<String> {
    queue.first().map(|(_, name)| name.clone())
}
