//! The runtime around a step function, shown with a machine that only writes down what it
//! is told.

mod lives;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use tokio::task::LocalSet;

use super::actor::{ActorSpec, Children, MachineActor, NoChildren};
use super::mailbox::{CAPACITY, Mailbox};
use super::router::{ActorKey, ActorKind, ObjectEvent, Router};
use super::services::{ActionsIo, Services, Unregister};
use crate::actors::core::machine::{Coalesce, EffectOf, InputOf, Machine, Topic};
use crate::api::AutoscalingRunnerSet;
use crate::clock::{Clock, Timestamp, after};
use crate::kube_io::{EventPublisher, KubeIo, Limiter};
use crate::messages::{
    ActionsAnswer, ActionsError, ActionsRequest, Brief, Effect, Input, Kind, KubeErrorKind,
    KubeRequest, NoDirective, NoReport, Object, ObjectRef,
};
use crate::metrics::Metrics;
use crate::resources::ControllerSettings;
use embedded_kube::faults::{Interceptor, NoFaults};
use embedded_kube::{ApiServer, ApiServerOptions};

impl Brief for &'static str {
    fn brief(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self)
    }
}

type Script = Rc<RefCell<VecDeque<Vec<EffectOf<Scribe>>>>>;

/// Writes down its inputs and answers with the effects that its script holds.
struct Scribe {
    heard: Rc<RefCell<Vec<String>>>,
    script: Script,
}

impl Machine for Scribe {
    const NAME: &'static str = "scribe";
    type Tag = u32;
    type Command = &'static str;
    type Report = &'static str;
    type ChildReport = NoReport;
    type Directive = NoDirective;
    type Notes = ();

    fn step(&mut self, now: Timestamp, input: InputOf<Self>) -> Vec<EffectOf<Self>> {
        assert!(!matches!(input, Input::Command("panic")), "as asked");
        let is_poison = |object: &Object| object.meta().name.as_deref() == Some("poison");
        if let Input::Observed(object) = &input
            && is_poison(object)
        {
            self.heard.borrow_mut().push("poison".to_owned());
            panic!("as it does each time");
        }
        let second = now.as_second();
        let line = match &input {
            Input::Observed(object) => format!("observed {object:?}"),
            Input::Kube(tag, Err(error)) => format!("kube {tag} {:?}", error.kind),
            Input::Tick => format!("tick {second}"),
            other => format!("{other:?}"),
        };
        self.heard.borrow_mut().push(line);
        self.script.borrow_mut().pop_front().unwrap_or_default()
    }
}

struct Nobody;

impl ActionsIo for Nobody {
    fn run(&self, _: ActionsRequest) -> BoxFuture<'static, Result<ActionsAnswer, ActionsError>> {
        Box::pin(std::future::pending())
    }
}

impl Unregister for Nobody {
    fn remove(&self, _: ActionsRequest) -> BoxFuture<'static, Result<ActionsAnswer, ActionsError>> {
        Box::pin(std::future::pending())
    }
}

struct Stage {
    services: Arc<Services>,
    mailbox: Mailbox<Scribe>,
    heard: Rc<RefCell<Vec<String>>>,
    reports: Rc<RefCell<Vec<&'static str>>>,
    script: Script,
}

impl Stage {
    fn new() -> Self {
        Self::with(ApiServer::client)
    }

    fn with(client: impl FnOnce(&ApiServer) -> kube::Client) -> Self {
        Self::on(Arc::new(NoFaults), client)
    }

    fn on(
        interceptor: Arc<dyn Interceptor>,
        client: impl FnOnce(&ApiServer) -> kube::Client,
    ) -> Self {
        let clock = Clock::simulated(Timestamp::UNIX_EPOCH);
        let server = ApiServer::new(ApiServerOptions {
            interceptor,
            ..ApiServerOptions::new(clock.clone(), 1)
        });
        let metrics = Arc::new(Metrics::new().unwrap());
        let client = client(&server);
        let services = Arc::new(Services {
            kube: KubeIo::new(client.clone(), Limiter::unlimited(), metrics.clone()),
            actions: Arc::new(Nobody),
            unregistrar: Arc::new(Nobody),
            events: EventPublisher::new(client, clock.clone()),
            clock,
            metrics: metrics.clone(),
            router: Router::default(),
            registered: Arc::default(),
            settings: Arc::new(ControllerSettings::default()),
            journal: None,
        });
        Self {
            mailbox: Mailbox::new(&metrics.actors),
            services,
            heard: Rc::default(),
            reports: Rc::default(),
            script: Rc::default(),
        }
    }

    fn start(&self) {
        let (heard, script) = (self.heard.clone(), self.script.clone());
        let make = move || Scribe {
            heard: heard.clone(),
            script: script.clone(),
        };
        let reports = self.reports.clone();
        MachineActor::start(
            self.services.clone(),
            self.mailbox.clone(),
            ActorSpec {
                key: key(),
                ancestors: vec![scale_set_key()],
                own: &[Kind::ConfigMap],
                machine: make(),
                factory: Box::new(make),
                report: Box::new(move |report| {
                    assert_ne!(report, "panic", "as asked");
                    reports.borrow_mut().push(report);
                }),
                children: Box::new(NoChildren),
            },
        );
    }

    async fn pass(&self, time: Duration) -> Vec<String> {
        tokio::time::sleep(time).await;
        std::mem::take(&mut *self.heard.borrow_mut())
    }

    fn gauge(&self, name: &str) -> f64 {
        let families = self.services.metrics.registry().gather();
        let children = families.iter().find(|children| children.name() == name);
        children.map_or(0.0, |children| {
            let values = children.get_metric().iter();
            values
                .map(|metric| metric.get_gauge().get_value() + metric.get_counter().get_value())
                .sum()
        })
    }
}

fn key() -> ActorKey {
    ActorKey::new(ActorKind::Runner, "ci", "a")
}

fn scale_set_key() -> ActorKey {
    ActorKey::new(ActorKind::ScaleSet, "ci", "a")
}

/// Each word is a topic of its own, and those that end with a dot hold.
impl Topic for &'static str {
    fn topic(&self) -> &'static str {
        self.split_once('=').map_or(self, |(topic, _)| topic)
    }
    fn holds(&self) -> bool {
        self.ends_with('.')
    }
}

fn config_map(version: u32) -> Object {
    let mut map = ConfigMap::default();
    map.metadata.namespace = Some("ci".into());
    map.metadata.name = Some("a".into());
    map.metadata.uid = Some("uid".into());
    map.metadata.resource_version = Some(version.to_string());
    Object::from(map)
}

fn missing(name: &str) -> KubeRequest {
    KubeRequest::Get(ObjectRef::new(Kind::ConfigMap, "default", name))
}

async fn staged<F: Future<Output = ()>>(play: impl FnOnce(Stage) -> F) {
    LocalSet::new()
        .run_until(async { play(Stage::new()).await })
        .await;
}

const MOMENT: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn an_actor_starts_with_what_was_sent_before_and_then_a_tick() {
    staged(|stage| async move {
        stage.mailbox.send(Input::Command("hello"));
        stage.start();
        assert_eq!(stage.pass(MOMENT).await, ["Command(\"hello\")", "tick 0"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_is_told_once_on_the_object_of_the_actor() {
    let mut seen = None;
    let stage = Stage::with(|server| {
        seen = Some(server.client());
        server.client_as("nobody", &[])
    });
    let client = seen.unwrap();
    // whoever may do nothing else may write events
    let rights =
        json!([{"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}]);
    grant(&client, rights).await;
    let ci: Namespace = from(json!({"metadata": {"name": "ci"}}));
    let params = PostParams::default();
    Api::all(client.clone()).create(&params, &ci).await.unwrap();
    LocalSet::new()
        .run_until(async {
            let two = |name: &str| {
                vec![
                    Effect::Kube(1, missing(name)),
                    Effect::Kube(2, missing(name)),
                ]
            };
            stage
                .script
                .borrow_mut()
                .extend([vec![], two("a"), two("b")]);
            stage.start();
            stage.mailbox.send(Input::Observed(config_map(1)));
            let heard = stage.pass(MOMENT).await;
            assert!(heard.contains(&"kube 1 Forbidden".to_owned()), "{heard:?}");
            let events = Api::<Event>::all(client).list(&ListParams::default()).await;
            let events = events.unwrap().items;
            assert_eq!(events.len(), 1, "{events:#?}");
            let event = &events[0];
            assert_eq!(event.reason.as_deref(), Some("PermissionMissing"));
            assert_eq!(event.involved_object.uid.as_deref(), Some("uid"));
            let message = event.message.as_deref().unwrap();
            let right =
                "get resource \"configmaps\" in API group \"\" in the namespace \"default\"";
            assert!(message.contains(right), "{message}");
        })
        .await;
}

/// Gives the rights to the user "nobody".
async fn grant(client: &kube::Client, rules: serde_json::Value) {
    let role: ClusterRole = from(json!({"metadata": {"name": "r"}, "rules": rules}));
    let binding: ClusterRoleBinding = from(json!({
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "nobody"}],
    }));
    let params = PostParams::default();
    Api::all(client.clone())
        .create(&params, &role)
        .await
        .unwrap();
    Api::all(client.clone())
        .create(&params, &binding)
        .await
        .unwrap();
}

fn from<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

#[tokio::test(start_paused = true)]
async fn before_the_actor_starts_only_the_newest_state_of_an_object_waits() {
    staged(|stage| async move {
        for version in 1..1000 {
            stage.mailbox.send(Input::Observed(config_map(version)));
        }
        stage.mailbox.send(Input::Command("last"));
        stage.start();
        let heard = stage.pass(MOMENT).await;
        assert_eq!(
            heard,
            ["observed ConfigMap ci/a@999", "Command(\"last\")", "tick 0"]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_full_mailbox_loses_nothing_and_coalesces_by_object() {
    staged(|stage| async move {
        stage.start();
        stage.pass(MOMENT).await;
        let sent = u32::try_from(CAPACITY).unwrap() * 4;
        for version in 1..=sent {
            stage.mailbox.send(Input::Observed(config_map(version)));
        }
        stage.mailbox.send(Input::Command("last"));
        let heard = stage.pass(MOMENT).await;
        assert!(heard.len() < CAPACITY + 10, "{}", heard.len());
        let end = &heard[heard.len() - 2..];
        assert_eq!(
            end,
            [
                format!("observed ConfigMap ci/a@{sent}"),
                "Command(\"last\")".to_owned()
            ]
        );
        assert!(stage.gauge("impresario_actor_mailbox_overflows_total") > 0.0);
        assert_eq!(stage.gauge("impresario_actor_mailbox_messages"), 0.0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn effects_run_beside_each_other_and_each_result_comes_back_with_its_tag() {
    staged(|stage| async move {
        stage.script.borrow_mut().push_back(vec![
            Effect::Kube(7, missing("x")),
            Effect::Kube(8, missing("y")),
            Effect::Report("asked"),
        ]);
        stage.start();
        let heard = stage.pass(MOMENT).await;
        let error = KubeErrorKind::NotFound;
        assert_eq!(
            heard,
            [
                "tick 0".to_owned(),
                format!("kube 7 {error:?}"),
                format!("kube 8 {error:?}")
            ]
        );
        assert_eq!(*stage.reports.borrow(), ["asked"]);
        assert_eq!(stage.gauge("impresario_effects_in_flight"), 0.0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_earliest_wish_wakes_the_actor_and_is_forgotten_then() {
    staged(|stage| async move {
        let at = |seconds| Effect::WakeAt(after(Timestamp::UNIX_EPOCH, seconds));
        stage
            .script
            .borrow_mut()
            .push_back(vec![at(60), at(10), at(30)]);
        stage.start();
        let heard = stage.pass(Duration::from_secs(120)).await;
        assert_eq!(heard, ["tick 0", "tick 10"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_the_past_does_not_spin() {
    staged(|stage| async move {
        for _ in 0..5 {
            let past = Effect::WakeAt(after(Timestamp::UNIX_EPOCH, -60));
            stage.script.borrow_mut().push_back(vec![past]);
        }
        stage.start();
        let heard = stage.pass(Duration::from_millis(3)).await;
        assert!(heard.len() <= 4, "{heard:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_counted_and_the_state_made_anew_from_the_last_objects_seen() {
    staged(|stage| async move {
        stage.start();
        stage.mailbox.send(Input::Observed(config_map(5)));
        stage.pass(MOMENT).await;
        stage
            .script
            .borrow_mut()
            .push_back(vec![Effect::Kube(1, missing("x"))]);
        stage.mailbox.send(Input::Tick);
        stage.mailbox.send(Input::Command("panic"));
        // while the actor is down, objects are taken in, and the effect of the old state ends
        stage.pass(MOMENT).await;
        stage.mailbox.send(Input::Observed(config_map(6)));
        stage.mailbox.send(Input::Command("work"));
        assert_eq!(stage.pass(Duration::from_secs(1)).await, [""; 0]);
        let heard = stage.pass(Duration::from_secs(10)).await;
        assert_eq!(heard.len(), 3, "{heard:?}");
        assert_eq!(heard[0], "observed ConfigMap ci/a@6");
        assert_eq!(heard[1], "Command(\"work\")");
        assert!(heard[2].starts_with("tick"));
        assert_eq!(stage.gauge("impresario_actor_restarts_total"), 1.0);
    })
    .await;
}

/// What a child of [`Parent`] says: its name, and whether it is gone.
#[derive(Clone, Debug, PartialEq)]
struct Word(&'static str, bool);

impl Coalesce for Word {
    fn subject(&self) -> String {
        self.0.to_owned()
    }
    fn absorb(&mut self, _older: &Self) {}
}

impl Brief for Word {
    fn brief(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// Writes down what its children say.
struct Parent(Rc<RefCell<Vec<Word>>>);

impl Machine for Parent {
    const NAME: &'static str = "parent";
    type Tag = u32;
    type Command = &'static str;
    type Report = &'static str;
    type ChildReport = Word;
    type Directive = NoDirective;
    type Notes = ();

    fn step(&mut self, _: Timestamp, input: InputOf<Self>) -> Vec<EffectOf<Self>> {
        assert!(!matches!(input, Input::Command("panic")), "as asked");
        if let Input::Report(word) = input {
            self.0.borrow_mut().push(word);
        }
        Vec::new()
    }
}

/// Keeps the last word of each child that is not gone.
#[derive(Default)]
struct Nursery(BTreeMap<String, Word>);

impl Children<Parent> for Nursery {
    fn direct(&mut self, directive: NoDirective, _: &Mailbox<Parent>) {
        match directive {}
    }
    fn on_report(&mut self, report: &Word) {
        if report.1 {
            self.0.remove(report.0);
        } else {
            self.0.insert(report.0.to_owned(), report.clone());
        }
    }
    fn on_command(&mut self, _: &&'static str) {}
    fn last_reports(&self) -> Vec<Word> {
        self.0.values().cloned().collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_goes_while_its_parent_is_down_does_not_come_back_with_it() {
    staged(|stage| async move {
        let heard = Rc::new(RefCell::new(Vec::new()));
        let mailbox = Mailbox::new(&stage.services.metrics.actors);
        let there = heard.clone();
        let make = move || Parent(there.clone());
        let spec = ActorSpec {
            key: key(),
            ancestors: Vec::new(),
            own: &[],
            machine: make(),
            factory: Box::new(make),
            report: Box::new(|_| {}),
            children: Box::new(Nursery::default()),
        };
        MachineActor::start(stage.services.clone(), mailbox.clone(), spec);
        mailbox.send(Input::Report(Word("a", false)));
        mailbox.send(Input::Report(Word("b", false)));
        stage.pass(MOMENT).await;
        mailbox.send(Input::Command("panic"));
        stage.pass(MOMENT).await;
        mailbox.send(Input::Report(Word("a", true)));
        mailbox.send(Input::Command("work"));
        heard.borrow_mut().clear();
        stage.pass(Duration::from_secs(10)).await;
        assert_eq!(*heard.borrow(), [Word("b", false)]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stopped_actor_leaves_the_router_and_late_events_do_not_come_back() {
    staged(|stage| async move {
        stage.start();
        stage.mailbox.send(Input::Observed(config_map(5)));
        stage.pass(MOMENT).await;
        stage.script.borrow_mut().push_back(vec![Effect::Stop]);
        stage.mailbox.send(Input::Tick);
        stage.pass(MOMENT).await;
        assert_eq!(stage.gauge("impresario_actors"), 0.0);
        let late = ObjectEvent::Observed(config_map(9));
        assert!(stage.services.router.deliver(late).is_none());
        stage.mailbox.send(Input::Tick);
        assert_eq!(stage.pass(MOMENT).await, [""; 0]);
    })
    .await;
}

/// Of a kind that the machine does not own.
fn scale_set(name: &str, version: u32) -> Object {
    let mut set = AutoscalingRunnerSet::default();
    set.metadata.namespace = Some("ci".into());
    set.metadata.name = Some(name.into());
    set.metadata.uid = Some(format!("uid-{version}"));
    set.metadata.resource_version = Some(version.to_string());
    Object::from(set)
}

fn gone(name: &str, version: u32) -> Input<u32, &'static str, NoReport> {
    Input::Gone {
        object: ObjectRef::new(Kind::AutoscalingRunnerSet, "ci", name),
        uid: format!("uid-{version}"),
    }
}

/// Collects what is handed on to nobody.
fn collect_unclaimed(stage: &Stage) -> Arc<Mutex<Vec<String>>> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let there = lines.clone();
    stage.services.router.set_unclaimed(move |key, event| {
        let line = match event {
            ObjectEvent::Observed(object) => format!("{key} observed {object:?}"),
            ObjectEvent::Gone { object, uid, .. } => format!("{key} gone {object} {uid}"),
        };
        there.lock().unwrap().push(line);
    });
    lines
}

#[tokio::test(start_paused = true)]
async fn what_a_stopped_actor_did_not_handle_is_handed_on_in_order() {
    // in the mailbox; beside it, when it is full; and after the end
    for (place, before) in [("mailbox", 1), ("beside", CAPACITY), ("late", 0)] {
        staged(|stage| async move {
            let lines = collect_unclaimed(&stage);
            stage.start();
            stage.mailbox.send(Input::Observed(config_map(5)));
            stage.pass(MOMENT).await;
            stage.script.borrow_mut().push_back(vec![Effect::Stop]);
            stage.mailbox.send(Input::Tick);
            if place == "late" {
                stage.pass(MOMENT).await;
            }
            for _ in 1..before {
                stage.mailbox.send(Input::Tick);
            }
            stage.mailbox.send(gone("a", 1));
            stage.mailbox.send(Input::Observed(scale_set("b", 2)));
            stage.mailbox.send(gone("b", 2));
            stage.mailbox.send(Input::Observed(scale_set("c", 3)));
            // of its own, and gone
            stage.mailbox.send(Input::Observed(config_map(6)));
            stage.mailbox.send(Input::Command("work"));
            stage.pass(MOMENT).await;
            let mut expected = vec![
                "ScaleSet/ci/a gone AutoscalingRunnerSet ci/a uid-1",
                "ScaleSet/ci/b observed AutoscalingRunnerSet ci/b@2",
                "ScaleSet/ci/a gone AutoscalingRunnerSet ci/b uid-2",
                "ScaleSet/ci/c observed AutoscalingRunnerSet ci/c@3",
            ];
            if place == "beside" {
                // of each object only the newest waits there
                expected.remove(1);
            }
            assert_eq!(*lines.lock().unwrap(), expected, "{place}");
            assert_eq!(stage.gauge("impresario_actor_mailbox_messages"), 0.0);
            assert_eq!(stage.gauge("impresario_actors"), 0.0);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_successor_gets_what_still_comes_for_its_predecessor() {
    staged(|mut stage| async move {
        stage.start();
        stage.script.borrow_mut().push_back(vec![]);
        stage.script.borrow_mut().push_back(vec![Effect::Stop]);
        stage.mailbox.send(Input::Tick);
        stage.mailbox.send(gone("a", 1));
        stage.pass(MOMENT).await;
        let predecessor = stage.mailbox.clone();
        stage.mailbox = Mailbox::new(&stage.services.metrics.actors);
        stage.start();
        stage.pass(MOMENT).await;
        predecessor.send(gone("a", 2));
        let heard = stage.pass(MOMENT).await;
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert!(heard[0].contains("uid-2"), "{heard:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn commands_wait_by_their_topics() {
    staged(|stage| async move {
        for _ in 0..500 {
            stage.mailbox.send(Input::Command("a=1"));
            stage.mailbox.send(Input::Command("b"));
            stage.mailbox.send(Input::Command("a=2"));
        }
        stage.start();
        let heard = stage.pass(MOMENT).await;
        let expected = ["Command(\"a=2\")", "Command(\"b\")", "tick 0"];
        assert_eq!(heard, expected);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_state_made_anew_is_told_all_commands_that_hold() {
    staged(|stage| async move {
        stage.start();
        for command in ["z.", "a=1.", "once", "a=2.", "panic"] {
            stage.mailbox.send(Input::Command(command));
        }
        stage.pass(MOMENT).await;
        let heard = stage.pass(Duration::from_secs(10)).await;
        assert_eq!(heard[..2], ["Command(\"a=2.\")", "Command(\"z.\")"]);
        assert!(heard[2].starts_with("tick"), "{heard:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_an_actor_is_down_waits_for_it() {
    staged(|stage| async move {
        stage.start();
        stage.mailbox.send(Input::Command("panic"));
        stage.pass(MOMENT).await;
        stage.mailbox.send(Input::Observed(scale_set("a", 1)));
        stage.mailbox.send(Input::Observed(scale_set("a", 2)));
        stage.mailbox.send(gone("b", 3));
        stage.mailbox.send(Input::Command("once"));
        assert_eq!(stage.pass(Duration::from_secs(1)).await, [""; 0]);
        let heard = stage.pass(Duration::from_secs(10)).await;
        assert_eq!(heard.len(), 4, "{heard:?}");
        assert_eq!(heard[0], "observed AutoscalingRunnerSet ci/a@2");
        assert!(heard[1].contains("uid-3"), "{heard:?}");
        assert_eq!(heard[2], "Command(\"once\")");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn news_that_makes_a_state_panic_is_told_once_more_and_then_left_out() {
    staged(|stage| async move {
        stage.start();
        stage.mailbox.send(Input::Observed(scale_set("poison", 1)));
        stage.mailbox.send(Input::Observed(scale_set("a", 2)));
        let heard = stage.pass(Duration::from_secs(60)).await;
        let count = |line: &str| heard.iter().filter(|heard| *heard == line).count();
        assert_eq!(count("poison"), 2, "{heard:?}");
        assert_eq!(count("observed AutoscalingRunnerSet ci/a@2"), 1);
        assert_eq!(stage.gauge("impresario_actor_restarts_total"), 2.0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn late_news_of_a_predecessor_does_not_forget_the_object() {
    staged(|stage| async move {
        stage.start();
        stage.mailbox.send(Input::Observed(config_map(5)));
        stage.mailbox.send(Input::Gone {
            object: config_map(5).reference(),
            uid: "of its predecessor".to_owned(),
        });
        stage.mailbox.send(Input::Command("panic"));
        stage.pass(MOMENT).await;
        let heard = stage.pass(Duration::from_secs(10)).await;
        assert_eq!(heard[0], "observed ConfigMap ci/a@5");
    })
    .await;
}
