//! Jobs on their way: waiting in line, on offer, assigned to a scale set, started on a
//! runner, ended.

use serde_json::Value;

use super::super::jobs::{Job, JobSpec, JobState};
use super::{Moment, REMEMBERED, Scope, Timer, World, next};

impl World {
    pub(crate) fn queue_job(&mut self, mut spec: JobSpec, now: Moment) -> i64 {
        for label in &mut spec.runs_on {
            label.make_ascii_lowercase();
        }
        let id = next(&mut self.last.job);
        self.note(format!("job {id} queued on {}", spec.runs_on.join(",")));
        let line = self.waiting.entry(spec.runs_on.clone()).or_default();
        line.push_back(id);
        self.jobs.insert(id, Job::new(id, spec, now));
        self.dispatch_all(now);
        id
    }

    /// Puts a job back in front of its line.
    pub(super) fn queue_again(&mut self, id: i64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.state = JobState::Queued;
            job.scale_set_id = None;
            job.assigned = None;
            let line = self.waiting.entry(job.spec.runs_on.clone()).or_default();
            let place = line.partition_point(|other| *other < id);
            line.insert(place, id);
        }
    }

    /// Ends a job, wherever it stands; answers whether it had not ended yet.
    pub(crate) fn finish(&mut self, id: i64, result: &str, now: Moment) -> bool {
        let Some(job) = self.jobs.get(&id) else {
            return false;
        };
        match job.state {
            JobState::Completed => return false,
            JobState::Queued => {
                if let Some(line) = self.waiting.get_mut(&job.spec.runs_on) {
                    line.retain(|other| *other != id);
                }
            }
            JobState::Available | JobState::Assigned | JobState::Running => {}
        }
        self.complete(id, result, now);
        true
    }

    /// Ends a job; its runner, which is ephemeral, deregisters itself, at once or when it has cleaned
    /// up.
    pub(crate) fn complete(&mut self, id: i64, result: &str, now: Moment) {
        let Some((set, runner)) = self.end(id, result, now) else {
            return;
        };
        let cleans_up = |job: &Job| !job.spec.cleanup.is_zero();
        let goes_on = self.jobs.get(&id).is_some_and(cleans_up);
        match runner {
            Some(runner) if goes_on => {
                if let Some(runner) = self.runners.get(&runner) {
                    runner.news.notify_waiters();
                }
            }
            Some(runner) => self.forget_runner(runner),
            None => {}
        }
        if let Some(set) = set {
            self.dispatch(set, now);
        }
    }

    pub(super) fn end(
        &mut self,
        id: i64,
        result: &str,
        now: Moment,
    ) -> Option<(Option<i64>, Option<i64>)> {
        let job = self.jobs.get_mut(&id)?;
        if job.state == JobState::Completed {
            return None;
        }
        let announced = job.state != JobState::Queued;
        job.state = JobState::Completed;
        job.completed = Some(now.time);
        job.result = result.to_owned();
        let ended = (job.scale_set_id, job.runner_id);
        let message = job.message("JobCompleted");
        if let Some(set) = ended.0.and_then(|set| self.scale_sets.get_mut(&set)) {
            set.offered.remove(&id);
            set.assigned.remove(&id);
            set.running.remove(&id);
            if announced {
                set.tell(message);
            }
        }
        self.note(format!("job {id} completed: {result}"));
        self.ended.push_back(id);
        self.forget_ended(REMEMBERED);
        Some(ended)
    }

    /// Forgets all jobs that have ended but the last.
    fn forget_ended(&mut self, but: usize) {
        while self.ended.len() > but
            && let Some(oldest) = self.ended.pop_front()
        {
            let job = self.jobs.remove(&oldest);
            if let Some(runner) = job.and_then(|job| job.runner_id)
                && !self.runners.contains_key(&runner)
            {
                self.history.remove(&runner);
            }
        }
    }

    /// Offers waiting jobs to a scale set, and gives its jobs to its idle runners.
    pub(crate) fn dispatch(&mut self, id: i64, now: Moment) {
        while self.offer_one(id, now) {}
        while self.start_one(id, now) {}
    }

    /// Does so for every scale set, when jobs have come that any of them may take.
    pub(super) fn dispatch_all(&mut self, now: Moment) {
        let sets: Vec<i64> = self.scale_sets.keys().copied().collect();
        for set in sets {
            self.dispatch(set, now);
        }
    }

    fn offer_one(&mut self, id: i64, now: Moment) -> bool {
        let Some(set) = self.scale_sets.get(&id) else {
            return false;
        };
        let session = set.session.as_ref().and_then(|id| self.sessions.get(id));
        let live = session.is_some_and(|session| self.is_live(session, now));
        if !live || set.load() >= set.capacity {
            return false;
        }
        let Some(scope) = self.scopes.get(&set.scope) else {
            return false;
        };
        let lines = self.waiting.iter().filter(|(on, _)| set.has_all(on));
        let candidates = lines.filter_map(|(on, line)| {
            let mut jobs = line.iter().enumerate();
            let serves = |job: &Job| scope.serves(&job.spec);
            let found = jobs.find(|(_, job)| self.jobs.get(job).is_some_and(serves));
            found.map(|(place, job)| (*job, on.clone(), place))
        });
        let Some((job_id, on, place)) = candidates.min() else {
            return false;
        };
        if let Some(line) = self.waiting.get_mut(&on) {
            line.remove(place);
            if line.is_empty() {
                self.waiting.remove(&on);
            }
        }
        let Some(job) = self.jobs.get_mut(&job_id) else {
            return true;
        };
        job.state = JobState::Available;
        job.scale_set_id = Some(id);
        scope.name_origin(&mut job.spec);
        let message = job.message("JobAvailable");
        let until = now.instant + self.durations.offer;
        if let Some(set) = self.scale_sets.get_mut(&id) {
            set.offered.insert(job_id, until);
            set.tell(message);
        }
        self.set_timer(until, Timer::Offer(job_id));
        self.note(format!("job {job_id} offered to scale set {id}"));
        true
    }

    fn start_one(&mut self, id: i64, now: Moment) -> bool {
        let Some(set) = self.scale_sets.get_mut(&id) else {
            return false;
        };
        let (Some(job_id), Some(runner_id)) = (set.assigned.first(), set.idle.first()) else {
            return false;
        };
        let (job_id, runner_id) = (*job_id, *runner_id);
        set.assigned.remove(&job_id);
        set.idle.remove(&runner_id);
        set.running.insert(job_id);
        let (Some(job), Some(runner)) =
            (self.jobs.get_mut(&job_id), self.runners.get_mut(&runner_id))
        else {
            return true;
        };
        job.state = JobState::Running;
        job.started = Some(now.time);
        job.runner_id = Some(runner_id);
        job.runner_name.clone_from(&runner.name);
        runner.job = Some(job_id);
        runner.news.notify_waiters();
        let note = format!(
            "job {job_id} started on runner {runner_id}: {}",
            runner.name
        );
        set.tell(job.message("JobStarted"));
        self.history.entry(runner_id).or_default().push(job_id);
        self.note(note);
        true
    }

    /// A scale set takes jobs on offer; answers which of them it has.
    pub(crate) fn acquire(&mut self, set_id: i64, ids: &[i64], now: Moment) -> Vec<i64> {
        let mut acquired = Vec::new();
        for id in ids {
            let Some(set) = self.scale_sets.get_mut(&set_id) else {
                break;
            };
            let Some(job) = self.jobs.get_mut(id) else {
                continue;
            };
            if set.assigned.contains(id) || set.running.contains(id) {
                acquired.push(*id);
                continue;
            }
            let full = set.demand() >= set.capacity;
            if full || set.offered.remove(id).is_none() {
                continue;
            }
            job.state = JobState::Assigned;
            job.assigned = Some(now.time);
            set.assigned.insert(*id);
            set.tell(job.message("JobAssigned"));
            acquired.push(*id);
            self.note(format!("job {id} acquired by scale set {set_id}"));
        }
        self.dispatch(set_id, now);
        acquired
    }

    /// An offer that nobody took up: the job is offered anew.
    pub(super) fn lapse(&mut self, job: i64, now: Moment) {
        let set = self.jobs.get(&job).and_then(|job| job.scale_set_id);
        let Some(set) = set.and_then(|id| self.scale_sets.get_mut(&id)) else {
            return;
        };
        if set
            .offered
            .get(&job)
            .is_some_and(|until| *until <= now.instant)
        {
            set.offered.remove(&job);
            let untold = |event: &Value| {
                event["messageType"] == "JobAvailable" && event["runnerRequestId"] == job
            };
            set.events.retain(|event| !untold(event));
            self.queue_again(job);
            self.dispatch_all(now);
        }
    }

    pub(super) fn fail_job_of(&mut self, runner: i64, now: Moment) {
        let lost = self.runners.get(&runner).filter(|runner| !runner.online);
        if let Some(job) = lost.and_then(|runner| runner.job) {
            self.complete(job, "failed", now);
            self.forget_runner(runner);
        }
    }
}

impl Scope {
    /// Whether the scope's runners may take the job.
    fn serves(&self, job: &JobSpec) -> bool {
        let fits = |mine: &str, other: &str| {
            mine.is_empty() || other.is_empty() || mine.eq_ignore_ascii_case(other)
        };
        fits(&self.owner, &job.owner) && fits(&self.repository, &job.repository)
    }

    /// Fills in where a job comes from that does not say so.
    fn name_origin(&self, job: &mut JobSpec) {
        let fill = |field: &mut String, mine: &str, other: &str| {
            if field.is_empty() {
                let value = if mine.is_empty() { other } else { mine };
                value.clone_into(field);
            }
        };
        fill(&mut job.owner, &self.owner, "acme");
        fill(&mut job.repository, &self.repository, "widgets");
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::super::Durations;
    use super::*;

    #[test]
    fn jobs_that_have_ended_are_forgotten_and_no_others() {
        let mut world = World::new(0, Durations::default());
        let now = Moment {
            instant: Instant::now(),
            time: wall_clock::Timestamp::UNIX_EPOCH,
        };
        let waiting = world.queue_job(JobSpec::on("ci"), now);
        let ended: Vec<i64> = (0..5)
            .map(|_| {
                let job = world.queue_job(JobSpec::on("ci"), now);
                assert!(world.finish(job, "succeeded", now));
                job
            })
            .collect();
        world.forget_ended(2);
        let known: Vec<i64> = world.jobs.keys().copied().collect();
        assert_eq!(known, [waiting, ended[3], ended[4]]);
    }
}
