//! What these tests add to the stage: something that stands between the listener and the API
//! server, and the listener as a process.

use impresario::simulation::transports;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use embedded_kube::Verb;
use embedded_kube::faults::{EventFate, EventInfo, Interceptor, RequestFate, RequestInfo};
use embedded_kube::kubelet::PodFault;
use impresario::actions::{Client, ClientOptions, TransportOptions};
use impresario::api::{AutoscalingListener, ConfigUrl, Credentials};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use kube::ResourceExt;

use crate::stage::Stage;
use crate::stage::manifests::TOKEN;

/// Holds the first status patch that the listener sends after it was armed.
pub struct Holding {
    behind: Arc<dyn Interceptor>,
    /// How many such patches were seen, since it was armed.
    seen: AtomicUsize,
    armed: AtomicUsize,
}

impl Holding {
    /// How long that patch takes to reach the server.
    pub const HOLD: Duration = Duration::from_secs(3);

    /// In front of another.
    pub fn before(behind: Arc<dyn Interceptor>) -> Arc<Self> {
        Arc::new(Self {
            behind,
            seen: AtomicUsize::new(0),
            armed: AtomicUsize::new(0),
        })
    }

    pub fn arm(&self) {
        self.seen.store(0, Ordering::Relaxed);
        self.armed.store(1, Ordering::Relaxed);
    }

    pub fn seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }
}

impl Interceptor for Holding {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        let fate = self.behind.request(request);
        let by_a_listener = request.user_agent.ends_with("-listener");
        let record = request.verb == Some(Verb::Patch)
            && request.resource.starts_with("ephemeralrunners.")
            && request.subresource == "status";
        if !by_a_listener || !record {
            return fate;
        }
        self.seen.fetch_add(1, Ordering::Relaxed);
        let held = self.armed.swap(0, Ordering::Relaxed) > 0;
        RequestFate {
            delay_before: if held { Self::HOLD } else { fate.delay_before },
            ..fate
        }
    }

    fn event(&self, event: &EventInfo<'_>) -> EventFate {
        self.behind.event(event)
    }
}

impl Stage {
    /// The one AutoscalingListener.
    pub async fn listener(&self) -> AutoscalingListener {
        let mut all = self.all::<AutoscalingListener>().await;
        assert_eq!(all.len(), 1, "a scale set has one listener");
        all.remove(0)
    }

    /// A client of the Actions service, as a person has it.
    pub fn github(&self) -> Client {
        let transports = transports(&self.actions);
        let transport = transports.transport(&TransportOptions::default()).unwrap();
        let url = ConfigUrl::parse("https://gh.test/org/repo").unwrap();
        let options = ClientOptions::new(url, Credentials::Token(TOKEN.into()));
        Client::new(options, transport, self.cluster().clock.clone()).unwrap()
    }

    /// Uid of the one listener pod that is there; none, between two of them.
    pub async fn listener_uid(&self) -> Option<String> {
        let pods = self.listener_pods().await;
        assert!(pods.len() <= 1, "{}", self.picture().await);
        pods.first().and_then(ResourceExt::uid)
    }

    /// Ends the process of the listener, as `kill -9` does.
    pub async fn kill_listener(&self) {
        let pods = self.listener_pods().await;
        let name = pods.first().expect("a listener pod").name_any();
        let kubelet = &self.cluster().kubelet;
        kubelet.fail(CONTROLLER_NAMESPACE, &name, PodFault::Exit(137));
    }
}
