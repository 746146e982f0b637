//! What every actor has at hand to run effects.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::registered_runners::Registered;
use super::router::Router;
use crate::clock::Clock;
use crate::kube_io::{EventPublisher, KubeIo};
use crate::messages::{ActionsAnswer, ActionsError, ActionsRequest};
use crate::metrics::Metrics;
use crate::resources::ControllerSettings;

/// Calls the Actions service.
pub trait ActionsIo: Send + Sync {
    /// Makes one call for its tenant.
    fn run(
        &self,
        request: ActionsRequest,
    ) -> BoxFuture<'static, Result<ActionsAnswer, ActionsError>>;
}

/// Removes registered runners, as [`crate::messages::Effect::Unregister`] says.
pub trait Unregister: Send + Sync {
    /// Waits until the service has agreed, or has said that the runner has a job.
    fn remove(
        &self,
        request: ActionsRequest,
    ) -> BoxFuture<'static, Result<ActionsAnswer, ActionsError>>;
}

/// Takes lines of a run's journal.
pub type Journal = Arc<dyn Fn(&str) + Send + Sync>;

/// What every actor has at hand.
pub struct Services {
    /// The API server.
    pub kube: KubeIo,
    /// The Actions service.
    pub actions: Arc<dyn ActionsIo>,
    /// Removal of runners.
    pub unregistrar: Arc<dyn Unregister>,
    /// Kubernetes Events.
    pub events: EventPublisher,
    /// Wall time.
    pub clock: Clock,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// The way to all actors.
    pub router: Router,
    /// Registered runners.
    pub registered: Arc<Registered>,
    /// What the controller was started with.
    pub settings: Arc<ControllerSettings>,
    /// Where each step is written down, if anywhere.
    pub journal: Option<Journal>,
}

impl Services {
    /// Writes a line into the journal, if there is one.
    pub fn journal(&self, line: impl FnOnce() -> String) {
        if let Some(journal) = &self.journal {
            journal(&line());
        }
    }
}
