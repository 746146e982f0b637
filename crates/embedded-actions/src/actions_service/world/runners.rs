//! Runners: registered, online, lost, removed.

use std::sync::Arc;

use serde_json::Value;

use super::super::faults::Refusal;
use super::{Moment, Outcome, RegisteredRunner, Timer, World, next};

impl World {
    pub(crate) fn register_runner(
        &mut self,
        scope: i64,
        set: i64,
        body: &Value,
    ) -> Outcome<(i64, String)> {
        self.scale_set(scope, set)?;
        let name = body["name"].as_str().unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(Refusal::new(400, "ArgumentException", "The name is empty."));
        }
        let key = (scope, name.to_ascii_lowercase());
        if self.runner_names.contains_key(&key) {
            let message = format!("The agent {name} exists already.");
            return Err(Refusal::new(409, "AgentExistsException", message));
        }
        let id = next(&mut self.last.runner);
        let secret = self.uuid();
        self.keep_secret(&secret);
        self.runner_names.insert(key, id);
        self.note(format!("runner {id} registered: {name}"));
        let runner = RegisteredRunner {
            id,
            name,
            scale_set: set,
            scope,
            secret: secret.clone(),
            online: false,
            job: None,
            news: Arc::default(),
        };
        self.runners.insert(id, runner);
        self.scale_set_mut(scope, set)?.runners.insert(id);
        Ok((id, secret))
    }

    pub(crate) fn runner(&self, scope: i64, id: i64) -> Outcome<&RegisteredRunner> {
        let runner = self.runners.get(&id).filter(|runner| runner.scope == scope);
        runner.ok_or_else(|| {
            let message = format!("No agent found with identifier {id}.");
            Refusal::new(404, "AgentNotFoundException", message)
        })
    }

    pub(crate) fn find_runner(&self, scope: i64, name: &str) -> Option<&RegisteredRunner> {
        let id = self.runner_names.get(&(scope, name.to_ascii_lowercase()))?;
        self.runners.get(id)
    }

    pub(crate) fn remove_runner(&mut self, scope: i64, id: i64) -> Outcome<()> {
        let runner = self.runner(scope, id)?;
        if runner.job.is_some() {
            let message = format!("The agent {} is running a job.", runner.name);
            return Err(Refusal::new(400, "JobStillRunningException", message));
        }
        self.forget_runner(id);
        Ok(())
    }

    pub(crate) fn forget_runner(&mut self, id: i64) {
        let Some(runner) = self.runners.remove(&id) else {
            return;
        };
        let key = (runner.scope, runner.name.to_ascii_lowercase());
        self.runner_names.remove(&key);
        if let Some(set) = self.scale_sets.get_mut(&runner.scale_set) {
            set.runners.remove(&id);
            set.idle.remove(&id);
        }
        runner.news.notify_waiters();
        self.note(format!("runner {id} gone: {}", runner.name));
    }

    /// What a runner signs in with.
    pub(crate) fn sign_in_secret(&self, id: i64) -> Option<String> {
        self.runners.get(&id).map(|runner| runner.secret.clone())
    }

    /// A runner signs in. The reason for a refusal is a text for people.
    pub(crate) fn bring_online(
        &mut self,
        id: i64,
        secret: &str,
        now: Moment,
    ) -> Result<(), &'static str> {
        let used = self.history.contains_key(&id);
        let Some(runner) = self.runners.get_mut(&id) else {
            return Err("the runner's registration is gone");
        };
        if runner.secret != secret {
            return Err("the JIT configuration is not that of the runner");
        }
        if runner.online {
            return Err("the runner is online already");
        }
        if used {
            return Err("the JIT configuration has been used for a job");
        }
        runner.online = true;
        let (set, name) = (runner.scale_set, runner.name.clone());
        if let Some(set) = self.scale_sets.get_mut(&set) {
            set.idle.insert(id);
        }
        self.note(format!("runner {id} online: {name}"));
        self.dispatch(set, now);
        Ok(())
    }

    /// A runner is gone, with or without a word.
    pub(crate) fn take_offline(&mut self, id: i64, now: Moment) {
        let due = now.instant + self.durations.lost_runner;
        let Some(runner) = self.runners.get_mut(&id).filter(|runner| runner.online) else {
            return;
        };
        runner.online = false;
        let busy = runner.job.is_some();
        if let Some(set) = self.scale_sets.get_mut(&runner.scale_set) {
            set.idle.remove(&id);
        }
        if busy {
            self.set_timer(due, Timer::LostRunner(id));
        }
        self.note(format!("runner {id} offline"));
    }
}
