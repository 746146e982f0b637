//! Scale sets: made, changed, deleted, and counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::Statistics;
use super::super::faults::Refusal;
use super::{DEFAULT_GROUP, Moment, Outcome, ScaleSet, World, next};

impl World {
    pub(crate) fn find_scale_sets(&self, scope: i64, group: i64, name: &str) -> Vec<Value> {
        let sets = self.scale_sets.values().filter(|set| {
            set.scope == scope && set.group == group && set.name.eq_ignore_ascii_case(name)
        });
        sets.map(|set| self.scale_set_json(set)).collect()
    }

    pub(crate) fn scale_set(&self, scope: i64, id: i64) -> Outcome<&ScaleSet> {
        let set = self.scale_sets.get(&id).filter(|set| set.scope == scope);
        set.ok_or_else(|| {
            let message = format!("No runner scale set found with identifier {id}.");
            Refusal::new(404, "RunnerScaleSetNotFoundException", message)
        })
    }

    pub(super) fn scale_set_mut(&mut self, scope: i64, id: i64) -> Outcome<&mut ScaleSet> {
        self.scale_set(scope, id)?;
        self.scale_sets
            .get_mut(&id)
            .ok_or_else(|| Refusal::new(404, "RunnerScaleSetNotFoundException", "gone"))
    }

    /// Refuses a name that another scale set of the group has, and a group that there is not.
    fn check_scale_set(&self, scope: i64, id: i64, name: &str, group: i64) -> Outcome<()> {
        if name.trim().is_empty() {
            return Err(Refusal::new(400, "ArgumentException", "The name is empty."));
        }
        if self.group_name(scope, group).is_none() {
            let message = format!("No runner group found with identifier {group}.");
            return Err(Refusal::new(404, "RunnerGroupNotFoundException", message));
        }
        let taken = self.scale_sets.values().any(|set| {
            set.id != id
                && set.scope == scope
                && set.group == group
                && set.name.eq_ignore_ascii_case(name)
        });
        if taken {
            let message = format!("A runner scale set named {name} exists in the group.");
            return Err(Refusal::new(409, "RunnerScaleSetExistsException", message));
        }
        Ok(())
    }

    pub(crate) fn create_scale_set(
        &mut self,
        scope: i64,
        body: &Value,
        now: Moment,
    ) -> Outcome<Value> {
        let name = body["name"].as_str().unwrap_or_default().to_owned();
        let group = body["runnerGroupId"].as_i64().unwrap_or(DEFAULT_GROUP);
        self.check_scale_set(scope, 0, &name, group)?;
        let id = next(&mut self.last.scale_set);
        self.note(format!("scale set {id} created: {name}"));
        let set = ScaleSet {
            id,
            scope,
            name,
            group,
            labels: label_names(body),
            disable_update: body["RunnerSetting"]["disableUpdate"] == true,
            created: now.time,
            session: None,
            capacity: 0,
            offered: BTreeMap::new(),
            assigned: BTreeSet::new(),
            running: BTreeSet::new(),
            runners: BTreeSet::new(),
            idle: BTreeSet::new(),
            events: Vec::new(),
            messages: BTreeMap::new(),
            latest: None,
            again: None,
            pretended: None,
            news: Arc::default(),
        };
        let json = self.scale_set_json(&set);
        self.scale_sets.insert(id, set);
        Ok(json)
    }

    pub(crate) fn update_scale_set(&mut self, scope: i64, id: i64, body: &Value) -> Outcome<Value> {
        let set = self.scale_set(scope, id)?;
        let name = body["name"].as_str().unwrap_or(&set.name).to_owned();
        let group = body["runnerGroupId"].as_i64().unwrap_or(set.group);
        self.check_scale_set(scope, id, &name, group)?;
        let set = self.scale_set_mut(scope, id)?;
        set.name = name;
        set.group = group;
        if body["labels"].is_array() {
            set.labels = label_names(body);
        }
        if let Some(disable) = body["RunnerSetting"]["disableUpdate"].as_bool() {
            set.disable_update = disable;
        }
        Ok(self.scale_set_json(self.scale_set(scope, id)?))
    }

    pub(crate) fn delete_scale_set(&mut self, scope: i64, id: i64, now: Moment) -> Outcome<()> {
        self.scale_set(scope, id)?;
        self.close_session_of(id, now);
        let Some(set) = self.scale_sets.remove(&id) else {
            return Ok(());
        };
        set.news.notify_waiters();
        for runner in set.runners {
            self.forget_runner(runner);
        }
        for job in set.assigned {
            self.queue_again(job);
        }
        for job in set.running {
            self.end(job, "failed", now);
        }
        self.dispatch_all(now);
        self.note(format!("scale set {id} deleted"));
        Ok(())
    }

    /// From now on, this is told in place of a scale set's statistics; `None` goes back to the
    /// truth.
    pub(crate) fn pretend(&mut self, id: i64, statistics: Option<Value>) {
        if let Some(set) = self.scale_sets.get_mut(&id) {
            set.pretended = statistics;
        }
    }

    pub(crate) fn scale_set_json(&self, set: &ScaleSet) -> Value {
        let label = |name| json!({"id": 0, "type": "System", "name": name});
        json!({
            "id": set.id,
            "name": set.name,
            "runnerGroupId": set.group,
            "runnerGroupName": self.group_name(set.scope, set.group).unwrap_or_default(),
            "labels": set.labels.iter().map(label).collect::<Vec<_>>(),
            "RunnerSetting": {"disableUpdate": set.disable_update},
            "createdOn": set.created.to_string(),
            "runnerJitConfigUrl": format!("_apis/runtime/runnerscalesets/{}/generatejitconfig", set.id),
            "statistics": set.statistics(),
        })
    }
}

impl ScaleSet {
    pub(super) fn tell(&mut self, event: Value) {
        self.events.push(event);
        self.news.notify_waiters();
    }

    /// Jobs it has.
    pub(super) fn demand(&self) -> i64 {
        (self.assigned.len() + self.running.len()) as i64
    }

    /// Jobs it has or may take.
    pub(super) fn load(&self) -> i64 {
        self.demand() + self.offered.len() as i64
    }

    pub(super) fn has_all(&self, runs_on: &[String]) -> bool {
        runs_on.iter().all(|wanted| {
            self.name.eq_ignore_ascii_case(wanted)
                || self
                    .labels
                    .iter()
                    .any(|label| label.eq_ignore_ascii_case(wanted))
        })
    }

    /// What is told of its jobs and runners: the truth, or what is told in its place.
    pub(crate) fn statistics(&self) -> Value {
        let pretended = self.pretended.clone();
        pretended.unwrap_or_else(|| json!(self.counts()))
    }

    /// Its jobs and runners, counted.
    pub(crate) fn counts(&self) -> Statistics {
        Statistics {
            available_jobs: self.offered.len(),
            acquired_jobs: 0,
            assigned_jobs: self.assigned.len() + self.running.len(),
            running_jobs: self.running.len(),
            registered_runners: self.runners.len(),
            busy_runners: self.running.len(),
            idle_runners: self.idle.len(),
        }
    }
}

fn label_names(body: &Value) -> Vec<String> {
    let labels = body["labels"].as_array().into_iter().flatten();
    let names = labels.filter_map(|label| label["name"].as_str());
    names.map(str::to_owned).collect()
}
