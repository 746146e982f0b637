//! Stands before the warden: writes down when each call comes, and makes chosen ones go wrong.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use embedded_actions::{CallInfo, Fault, Interceptor};
use tokio::time::Instant;

use crate::stage::Stage;

type Fate = Box<dyn Fn(&CallInfo<'_>) -> Option<Fault> + Send + Sync>;

/// The calls of the Actions service.
#[derive(Default)]
pub struct Watched {
    warden: Mutex<Option<Arc<dyn Interceptor>>>,
    calls: Mutex<Vec<(Instant, &'static str)>>,
    fate: Mutex<Option<Fate>>,
}

impl Watched {
    /// A stage without a controller, whose service is watched.
    pub async fn stage(run_pods: bool) -> (Stage, Arc<Self>) {
        let watched = Arc::new(Self::default());
        let there = Arc::clone(&watched);
        let stage = Stage::embedded_with(17, move |options| {
            options.run_pods = run_pods;
            options.keep_log = true;
            let warden = options.actions_interceptor.replace(there.clone());
            *there.warden.lock().unwrap() = warden;
        })
        .await;
        (stage, watched)
    }

    /// Calls go wrong so from now on.
    pub fn decide(&self, fate: impl Fn(&CallInfo<'_>) -> Option<Fault> + Send + Sync + 'static) {
        *self.fate.lock().unwrap() = Some(Box::new(fate));
    }

    /// All goes well from now on.
    pub fn recover(&self) {
        *self.fate.lock().unwrap() = None;
    }

    /// When calls of this name came.
    pub fn times(&self, name: &str) -> Vec<Instant> {
        let calls = self.calls.lock().unwrap();
        let of_name = calls.iter().filter(|(_, call)| *call == name);
        of_name.map(|(time, _)| *time).collect()
    }

    /// How far apart calls of this name came.
    pub fn pauses(&self, name: &str) -> Vec<Duration> {
        let times = self.times(name);
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

impl Interceptor for Watched {
    fn intercept(&self, call: &CallInfo<'_>) -> Option<Fault> {
        self.calls.lock().unwrap().push((Instant::now(), call.name));
        let warden = self.warden.lock().unwrap().clone();
        let of_warden = warden.and_then(|warden| warden.intercept(call));
        let fate = self.fate.lock().unwrap();
        let decided = fate.as_ref().and_then(|fate| fate(call));
        decided.or(of_warden)
    }
}
