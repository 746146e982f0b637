//! Counts what is ever made on a real API server, where no warden stands: watches, and remembers
//! each uid.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use impresario::api::{AutoscalingListener, EphemeralRunner, EphemeralRunnerSet};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::task::JoinHandle;

use super::Known;

type Uids = Rc<RefCell<BTreeMap<String, BTreeSet<String>>>>;

/// The uids of what has been seen, by plural name.
#[derive(Debug)]
pub struct Census {
    seen: Uids,
    tasks: Vec<JoinHandle<()>>,
}

impl Census {
    /// Starts counting. To be called inside a `LocalSet`.
    pub fn start(client: &Client) -> Self {
        let seen = Uids::default();
        let tasks = vec![
            count::<EphemeralRunner>(client, &seen),
            count::<EphemeralRunnerSet>(client, &seen),
            count::<AutoscalingListener>(client, &seen),
            count::<Pod>(client, &seen),
        ];
        Self { seen, tasks }
    }

    /// How many objects of that plural name have been there.
    pub fn count(&self, plural: &str) -> usize {
        self.seen.borrow().get(plural).map_or(0, BTreeSet::len)
    }
}

impl Drop for Census {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn count<K: Known + Send + Sync + 'static>(client: &Client, seen: &Uids) -> JoinHandle<()> {
    use futures::StreamExt;
    let (api, seen) = (Api::<K>::all(client.clone()), Rc::clone(seen));
    let plural = K::plural(&()).into_owned();
    tokio::task::spawn_local(async move {
        let mut events = watcher(api, watcher::Config::default()).boxed_local();
        while let Some(event) = events.next().await {
            use watcher::Event::{Apply, InitApply};
            if let Ok(Apply(object) | InitApply(object)) = event {
                let uid = object.meta().uid.clone().unwrap_or_default();
                seen.borrow_mut()
                    .entry(plural.clone())
                    .or_default()
                    .insert(uid);
            }
        }
    })
}
