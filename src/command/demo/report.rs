//! The summary at the end of a demonstration, and whether all went well.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;

use super::snapshot::{Holdings, Jobs, Snapshot};
use super::{Outcome, Stage};
use crate::api::AutoscalingRunnerSet;

/// How many kinds of request are shown.
const SHOWN_REQUESTS: usize = 8;

/// The summary.
#[derive(Debug)]
pub struct Report {
    outcome: Outcome,
    took: f64,
    jobs: Jobs,
    waits: Waits,
    several_jobs: usize,
    runners: usize,
    peak: usize,
    max: Option<usize>,
    holdings: Holdings,
    requests: Vec<(String, u64)>,
    problems: Vec<String>,
}

/// How long jobs waited for a runner.
#[derive(Debug, Default)]
struct Waits {
    p50: Duration,
    p95: Duration,
    max: Duration,
}

impl Report {
    /// Sums up.
    pub fn new(stage: &Stage<'_>, outcome: Outcome) -> Self {
        let snapshot = Snapshot::take(stage);
        let problems = snapshot
            .scale_sets
            .iter()
            .filter_map(|set| {
                let problem = set.problem.as_ref()?;
                Some(format!("{} is {}: {problem}", set.name, set.phase))
            })
            .collect();
        Self {
            outcome,
            took: snapshot.seconds,
            jobs: snapshot.jobs,
            waits: waits(stage),
            several_jobs: stage.cluster.actions.runners_with_several_jobs().len(),
            runners: stage.ledger.runners(),
            peak: stage.ledger.peak(),
            max: max_runners(stage),
            holdings: snapshot.holdings,
            requests: requests(stage),
            problems,
        }
    }

    /// Whether all went well.
    ///
    /// # Errors
    ///
    /// What did not, and where to look.
    pub fn verdict(&self) -> Result<(), String> {
        let mut wrong = Vec::new();
        match self.outcome {
            Outcome::Done => {}
            Outcome::Interrupted => wrong.push("it was interrupted".to_owned()),
            Outcome::TimedOut => wrong.push("it took too long".to_owned()),
        }
        if self.jobs.done != self.jobs.wanted {
            wrong.push(format!(
                "{} of {} jobs done",
                self.jobs.done, self.jobs.wanted
            ));
        }
        if self.several_jobs > 0 {
            wrong.push(format!("{} runners ran two jobs", self.several_jobs));
        }
        if self.max.is_some_and(|max| self.peak > max) {
            wrong.push(format!("{} runners at one time", self.peak));
        }
        if self.outcome == Outcome::Done && !self.holdings.balanced() {
            wrong.push("something is left over".to_owned());
        }
        wrong.extend(self.problems.iter().cloned());
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(format!(
                "the demonstration did not go well: {}",
                wrong.join("; ")
            ))
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holdings {
            runners,
            minimum,
            registrations,
            secrets,
            pods,
            sessions,
            scale_sets,
        } = self.holdings;
        writeln!(f, "\nSummary after {:.1} s", self.took)?;
        writeln!(
            f,
            "  jobs        {} of {} jobs done",
            self.jobs.done, self.jobs.wanted
        )?;
        writeln!(
            f,
            "  wait        p50 {:.2} s, p95 {:.2} s, max {:.2} s",
            self.waits.p50.as_secs_f64(),
            self.waits.p95.as_secs_f64(),
            self.waits.max.as_secs_f64()
        )?;
        match self.several_jobs {
            0 => writeln!(
                f,
                "  runners     {} in all, no runner ran two jobs",
                self.runners
            )?,
            some => writeln!(
                f,
                "  runners     {} in all, {some} RAN TWO JOBS",
                self.runners
            )?,
        }
        match self.max {
            Some(max) if self.peak <= max => {
                writeln!(f, "  peak        {} ≤ maxRunners {max}", self.peak)?;
            }
            Some(max) => writeln!(f, "  peak        {} > MAXRUNNERS {max}", self.peak)?,
            None => writeln!(f, "  peak        {}, no maxRunners", self.peak)?,
        }
        if runners == minimum {
            writeln!(f, "  at rest     back at minRunners {minimum}")?;
        } else {
            writeln!(
                f,
                "  at rest     {runners} runners, minRunners is {minimum}"
            )?;
        }
        if self.holdings.nothing_left_over() {
            writeln!(
                f,
                "  leftovers   no leftover registration, Secret, pod or session"
            )?;
        } else {
            writeln!(
                f,
                "  leftovers   for {runners} runners: {registrations} registrations, {secrets} \
                 Secrets, {pods} pods; for {scale_sets} scale sets: {sessions} sessions"
            )?;
        }
        let total: u64 = self.requests.iter().map(|(_, count)| count).sum();
        if self.runners > 0 {
            #[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
            let each = total as f64 / self.runners as f64;
            writeln!(
                f,
                "  requests    {total} to the API server by controller and listeners, {each:.1} \
                 per runner"
            )?;
        }
        for (what, count) in self.requests.iter().take(SHOWN_REQUESTS) {
            writeln!(f, "              {count:>6} {what}")?;
        }
        for problem in &self.problems {
            writeln!(f, "  problem     {problem}")?;
        }
        Ok(())
    }
}

/// The most runners that there may have been at one time: those of the scale sets of the start
/// and of those that were applied since. None if one of them has no limit.
fn max_runners(stage: &Stage<'_>) -> Option<usize> {
    let started = stage
        .scale_sets
        .iter()
        .map(|set| ((set.namespace.clone(), set.name.clone()), set.max));
    let mut limits: BTreeMap<(String, String), Option<i64>> = started.collect();
    for set in stage.cluster.api.list_as::<AutoscalingRunnerSet>(None) {
        let key = (
            set.metadata.namespace.unwrap_or_default(),
            set.metadata.name.unwrap_or_default(),
        );
        limits.insert(key, set.spec.max_runners);
    }
    let limits = limits.into_values();
    limits
        .map(|max| max.and_then(|max| usize::try_from(max).ok()))
        .sum()
}

fn waits(stage: &Stage<'_>) -> Waits {
    let mut waits: Vec<SignedDuration> = stage
        .cluster
        .actions
        .jobs()
        .iter()
        .filter_map(|job| Some(job.started?.duration_since(job.queued)))
        .collect();
    waits.sort_unstable();
    let at = |share: usize| {
        let index = (waits.len() * share).div_ceil(100).saturating_sub(1);
        let wait = waits.get(index).copied().unwrap_or_default();
        Duration::try_from(wait).unwrap_or_default()
    };
    Waits {
        p50: at(50),
        p95: at(95),
        max: at(100),
    }
}

/// Requests of controller and listeners by what they are, the most frequent first; watches and
/// Events included.
fn requests(stage: &Stage<'_>) -> Vec<(String, u64)> {
    let mut counts = BTreeMap::<String, u64>::new();
    for (key, count) in stage.cluster.api.requests() {
        if key.user_agent.starts_with("system:serviceaccount:") {
            *counts
                .entry(format!("{} {}", key.verb, key.resource))
                .or_default() += count;
        }
    }
    let mut requests: Vec<(String, u64)> = counts.into_iter().collect();
    requests.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(jobs: Jobs, peak: usize) -> Report {
        Report {
            outcome: Outcome::Done,
            took: 1.0,
            jobs,
            waits: Waits::default(),
            several_jobs: 0,
            runners: 3,
            peak,
            max: Some(4),
            holdings: Holdings::default(),
            requests: Vec::new(),
            problems: Vec::new(),
        }
    }

    const ALL_DONE: Jobs = Jobs {
        wanted: 3,
        queued: 0,
        running: 0,
        done: 3,
        failed: 0,
    };

    #[test]
    fn a_job_that_failed_is_not_done() {
        assert_eq!(report(ALL_DONE, 4).verdict(), Ok(()));
        let jobs = Jobs {
            done: 2,
            failed: 1,
            ..ALL_DONE
        };
        let problem = report(jobs, 4).verdict().unwrap_err();
        assert!(problem.contains("2 of 3 jobs done"), "{problem}");
    }

    #[test]
    fn more_runners_than_the_maximum_are_told() {
        let problem = report(ALL_DONE, 5).verdict().unwrap_err();
        assert!(problem.contains("5 runners at one time"), "{problem}");
        assert!(report(ALL_DONE, 5).to_string().contains("5 > MAXRUNNERS 4"));
    }
}
