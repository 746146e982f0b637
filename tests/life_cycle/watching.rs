//! Watches that break, lists that are refused, objects that cannot be looked up: what is
//! missed meanwhile is found, and nothing is asked for too often.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use embedded_kube::ApiError;
use embedded_kube::Verb;
use embedded_kube::faults::{
    ChangeInfo, EventFate, EventInfo, Interceptor, Outcome, RequestFate, RequestInfo,
};
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};

use crate::stage::{Stage, play};

/// What is to become of a read of the controller; `None` lets it pass.
type Judge = Box<dyn Fn(&RequestInfo) -> Option<Outcome> + Send>;

/// Stands between the controller's reads and the API server.
struct Net {
    before: Arc<dyn Interceptor>,
    judge: Mutex<Judge>,
    /// Events about pods end the watch with 410.
    expires: AtomicBool,
    lists: AtomicUsize,
}

impl Net {
    fn judge(&self, judge: impl Fn(&RequestInfo) -> Option<Outcome> + Send + 'static) {
        *self.judge.lock().unwrap() = Box::new(judge);
    }

    fn let_pass(&self) {
        self.judge(|_| None);
        self.expires.store(false, Ordering::Relaxed);
    }

    fn lists(&self) -> usize {
        self.lists.load(Ordering::Relaxed)
    }
}

impl Interceptor for Net {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        let fate = self.before.request(request);
        let reads = matches!(request.verb, Some(Verb::Get | Verb::List | Verb::Watch));
        if !reads || !request.user_agent.contains("impresario-controller") {
            return fate;
        }
        if request.verb == Some(Verb::List) {
            self.lists.fetch_add(1, Ordering::Relaxed);
        }
        match self.judge.lock().unwrap()(request) {
            Some(outcome) => RequestFate { outcome, ..fate },
            None => fate,
        }
    }

    fn changed(&self, change: &ChangeInfo<'_>) {
        self.before.changed(change);
    }

    fn event(&self, event: &EventInfo<'_>) -> EventFate {
        if event.resource == "pods"
            && event.user_agent.contains("impresario-controller")
            && self.expires.load(Ordering::Relaxed)
        {
            return EventFate::Expired;
        }
        self.before.event(event)
    }
}

fn down() -> Outcome {
    Outcome::Refused(ApiError::new(
        503,
        "ServiceUnavailable",
        "etcd has no leader",
    ))
}

async fn stage() -> (Stage, Arc<Net>) {
    let mut net = None;
    let stage = Stage::embedded_with(6, |options| {
        options.run_pods = false;
        let made = Arc::new(Net {
            before: options.interceptor.clone(),
            judge: Mutex::new(Box::new(|_| None)),
            expires: AtomicBool::new(false),
            lists: AtomicUsize::new(0),
        });
        options.interceptor = made.clone();
        net = Some(made);
    })
    .await;
    stage.start_controller();
    stage.settled_fixture(0, 10).await;
    (stage, net.unwrap())
}

/// The listener's pod goes while the watch on pods is gone.
async fn lose_the_listener_pod(stage: &Stage, net: &Net) -> String {
    let lost = stage.listener_pods().await.remove(0).name_any();
    net.expires.store(true, Ordering::Relaxed);
    let pods = Api::<Pod>::namespaced(stage.client.clone(), CONTROLLER_NAMESPACE);
    let at_once = DeleteParams::default().grace_period(0);
    pods.delete(&lost, &at_once).await.unwrap();
    lost
}

#[test]
fn a_loss_is_noticed_though_it_could_not_be_looked_up_at_first() {
    play(async || {
        let (stage, net) = stage().await;
        let unanswered = Duration::from_secs(40);
        net.judge(|request| {
            let looks = request.verb == Some(Verb::Get) && request.resource == "pods";
            looks.then(down)
        });
        lose_the_listener_pod(&stage, &net).await;
        stage.pass(unanswered).await;
        assert!(stage.listener_pods().await.is_empty(), "nobody knows yet");
        net.let_pass();
        stage
            .within(
                Duration::from_secs(31),
                "the listener has a pod",
                async || !stage.listener_pods().await.is_empty(),
            )
            .await;
        stage.start_listener().await;
        stage.settle().await;
        stage.assert_sound();
    });
}

#[test]
fn refused_lists_back_off_and_after_five_minutes_the_controller_ends() {
    play(async || {
        let (stage, net) = stage().await;
        stage.settle().await;
        net.judge(|request| {
            let watches = matches!(request.verb, Some(Verb::List | Verb::Watch));
            watches.then(down)
        });
        let before = net.lists();
        // every watch has ended by then, and begins to fail
        stage.pass(Duration::from_secs(295)).await;
        stage.pass(Duration::from_secs(240)).await;
        let tries = net.lists() - before;
        // nine watches, each after 0.2, 0.4, … 30 s
        assert!((9..9 * 25).contains(&tries), "{tries} tries");
        assert!(!stage.controller_has_ended());
        stage.pass(Duration::from_secs(120)).await;
        assert!(stage.controller_has_ended());
        let before = net.lists();
        stage.pass(Duration::from_secs(60)).await;
        assert_eq!(net.lists(), before);
        net.let_pass();
        stage.start_controller();
        stage.scale_up(2, 1).await;
        stage.assert_sound();
    });
}

#[test]
fn an_outage_that_ends_in_time_leaves_no_trace() {
    play(async || {
        let (stage, net) = stage().await;
        stage.settle().await;
        net.judge(|request| {
            let watches = matches!(request.verb, Some(Verb::List | Verb::Watch));
            watches.then_some(Outcome::Lost)
        });
        stage.pass(Duration::from_secs(295 + 240)).await;
        stage.ersset(2, 1).await;
        net.let_pass();
        stage
            .within(
                Duration::from_secs(35),
                "two runners have pods",
                async || stage.runner_pods().await.len() == 2,
            )
            .await;
        stage.pass(Duration::from_secs(600)).await;
        assert!(!stage.controller_has_ended());
        stage.assert_at_rest().await;
        stage.assert_sound();
    });
}

#[test]
fn single_resets_far_apart_do_not_add_up() {
    play(async || {
        let (stage, net) = stage().await;
        let count = AtomicUsize::new(0);
        // of the asking where the server is, each time a watch has ended, the first is lost
        net.judge(move |request| {
            let lists = request.verb == Some(Verb::List);
            let odd = lists && count.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
            odd.then_some(Outcome::Lost)
        });
        let before = net.lists();
        stage.pass(Duration::from_secs(3_600)).await;
        let asked = net.lists() - before;
        assert!(
            asked > 9 * 12,
            "each watch is renewed, and asks twice: {asked}"
        );
        assert!(!stage.controller_has_ended());
        stage.scale_up(2, 1).await;
        stage.assert_sound();
    });
}
