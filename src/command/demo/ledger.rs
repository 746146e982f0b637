//! Counts what a look now and then would miss: how many runners there were in all, and the
//! most at one time.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use futures::StreamExt;
use kube::Api;
use kube::runtime::watcher::{self, Event};

use crate::api::{EphemeralRunner, EphemeralRunnerPhase};
use crate::simulation::cluster::Cluster;

/// What has been counted. It goes on counting until dropped.
pub struct Ledger {
    counts: Rc<RefCell<Counts>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Counts {
    seen: BTreeSet<String>,
    alive: BTreeSet<String>,
    peak: usize,
}

impl Ledger {
    /// Starts counting.
    pub fn start(cluster: &Cluster) -> Self {
        let counts = Rc::new(RefCell::new(Counts::default()));
        let api = Api::<EphemeralRunner>::all(cluster.api.client());
        let there = counts.clone();
        let task = tokio::task::spawn_local(async move {
            let mut events = Box::pin(watcher::watcher(api, watcher::Config::default()));
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Apply(runner) | Event::InitApply(runner)) => {
                        there.borrow_mut().saw(&runner);
                    }
                    Ok(Event::Delete(runner)) => {
                        let uid = runner.metadata.uid.unwrap_or_default();
                        there.borrow_mut().alive.remove(&uid);
                    }
                    Ok(Event::Init | Event::InitDone) => {}
                    Err(error) => tracing::warn!(%error, "runners are not counted for a moment"),
                }
            }
        });
        Self { counts, task }
    }

    /// How many runners there have been.
    pub fn runners(&self) -> usize {
        self.counts.borrow().seen.len()
    }

    /// The most runners alive at one time.
    pub fn peak(&self) -> usize {
        self.counts.borrow().peak
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Counts {
    fn saw(&mut self, runner: &EphemeralRunner) {
        let uid = runner.metadata.uid.clone().unwrap_or_default();
        let phase = runner.status.as_ref().and_then(|status| status.phase);
        self.seen.insert(uid.clone());
        match phase {
            // one in deletion takes no job any more
            _ if runner.metadata.deletion_timestamp.is_some() => {
                self.alive.remove(&uid);
            }
            Some(
                EphemeralRunnerPhase::Succeeded
                | EphemeralRunnerPhase::Failed
                | EphemeralRunnerPhase::Outdated,
            ) => {
                self.alive.remove(&uid);
            }
            _ => {
                self.alive.insert(uid);
            }
        }
        self.peak = self.peak.max(self.alive.len());
    }
}
