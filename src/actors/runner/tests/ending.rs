//! What ends a runner that may work, and that the service has the last word on it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::objects::*;
use crate::actors::core::cached::Verb;
use crate::actors::runner::{Origin, RunnerTag};
use crate::api::EphemeralRunner;
use crate::messages::{
    ActionsAnswer, ActionsError, ActionsErrorKind, KubeAnswer, KubeErrorKind, Object, Reason,
    RunnerCommand, RunnerState,
};
use crate::resources::ControllerSettings;

type Verdict = fn() -> Result<ActionsAnswer, ActionsError>;

fn agrees() -> Result<ActionsAnswer, ActionsError> {
    Ok(ActionsAnswer::Done)
}

fn refuses() -> Result<ActionsAnswer, ActionsError> {
    refused(ActionsErrorKind::JobStillRunning)
}

/// A runner with its pod, and servers that answer at once.
struct Scene {
    hand: Hand,
    runner: Value,
    pod: Arc<Pod>,
    version: u32,
    verdict: Verdict,
    /// All that was asked for.
    log: Vec<String>,
}

impl Scene {
    fn of(runner: &Arc<EphemeralRunner>, pod: &Arc<Pod>, verdict: Verdict) -> Self {
        let settings = ControllerSettings {
            force_delete_lost_pods_after: Some(Duration::from_secs(90)),
            ..ControllerSettings::default()
        };
        let origin = Origin::Found(Some(runner.clone()));
        let mut scene = Self {
            hand: Hand::with(NAME, origin, settings),
            runner: json!(**runner),
            pod: pod.clone(),
            version: 50,
            verdict,
            log: Vec::new(),
        };
        let asked = scene.hand.tick();
        scene.serve(asked);
        scene
    }

    /// Lets time pass, and whatever comes up with it.
    fn pass(&mut self, seconds: i64) {
        let end = crate::clock::after(self.hand.now, seconds);
        while self.hand.now < end {
            let step = self.hand.wakes_in().unwrap_or(seconds).clamp(1, 60);
            let left = end.duration_since(self.hand.now).as_secs();
            let asked = self.hand.after(step.min(left));
            self.serve(asked);
        }
    }

    fn tell(&mut self, command: RunnerCommand) {
        let asked = self.hand.tell(command);
        self.serve(asked);
    }

    fn serve(&mut self, asked: Vec<String>) {
        let mut open = VecDeque::from(asked);
        while let Some(line) = open.pop_front() {
            self.log.push(line.clone());
            assert!(self.log.len() < 500, "a hot loop: {:?}", self.log);
            let mut words = line.split(' ');
            let asked = match (words.next().unwrap(), words.next().unwrap()) {
                ("get", "Pod") => {
                    let found = answer(Object::Pod(self.pod.clone()));
                    self.hand.kube(RunnerTag::Pod(Verb::Read), found)
                }
                ("get", "Secret") => {
                    let found = answer(Object::Secret(secret(2, "42")));
                    self.hand.kube(RunnerTag::Secret(Verb::Read), found)
                }
                ("delete", "Secret") => self
                    .hand
                    .kube(RunnerTag::Secret(Verb::Delete), Ok(KubeAnswer::Deleted)),
                ("remove", "42") => self.hand.actions(RunnerTag::Remove, (self.verdict)()),
                ("patch", "EphemeralRunner") => {
                    let body = &line[line.find('{').unwrap()..];
                    let body = serde_json::from_str(body).unwrap();
                    let written = self.merge(&body);
                    self.hand.kube(RunnerTag::Runner(Verb::Patch), written)
                }
                ("delete", "EphemeralRunner") => {
                    let stamp = json!({ "metadata": { "deletionTimestamp": self.hand.now } });
                    let written = self.merge(&stamp);
                    self.hand.kube(RunnerTag::Runner(Verb::Delete), written)
                }
                // that is what it is about: it stays in flight
                ("delete", "Pod") => Vec::new(),
                other => panic!("{other:?}: {line}"),
            };
            open.extend(asked);
        }
    }

    fn merge(&mut self, patch: &Value) -> Result<KubeAnswer, crate::messages::KubeError> {
        json_patch::merge(&mut self.runner, patch);
        self.version += 1;
        self.runner["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let runner: EphemeralRunner = serde_json::from_value(self.runner.clone()).unwrap();
        answer(Object::EphemeralRunner(Arc::new(runner)))
    }

    fn position(&self, begin: &str) -> Option<usize> {
        self.log.iter().position(|line| line.starts_with(begin))
    }

    fn count(&self, begin: &str) -> usize {
        let same = self.log.iter().filter(|line| line.starts_with(begin));
        same.count()
    }

    fn phase(&self) -> &str {
        self.runner["status"]["phase"].as_str().unwrap_or_default()
    }

    fn reason(&self) -> &str {
        self.runner["status"]["reason"].as_str().unwrap_or_default()
    }
}

fn changed(pod: &Arc<Pod>, patch: &Value) -> Arc<Pod> {
    let mut value = json!(**pod);
    json_patch::merge(&mut value, patch);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn up() -> Arc<Pod> {
    pod_in(21, "Running", running(), running())
}

fn waiting(word: &str) -> Arc<Pod> {
    let state = json!({ "waiting": { "reason": word, "message": "no img:1" } });
    pod_in(21, "Pending", state.clone(), state)
}

/// Shown as scheduled, and then nothing.
fn silent() -> Arc<Pod> {
    pod(
        21,
        json!({ "phase": "Pending", "conditions": [
            { "type": "PodScheduled", "status": "True", "lastTransitionTime": start() }] }),
    )
}

/// Declared failed for its node, while its container is shown as running.
fn declared_failed() -> Arc<Pod> {
    let status = json!({ "status": { "reason": "NodeLost" } });
    changed(&pod_in(21, "Failed", running(), running()), &status)
}

/// Its container has ended, and the kubelet will start it again.
fn restarting(code: i32) -> Arc<Pod> {
    let mut value = json!(*pod_in(21, "Running", ended(code), running()));
    value["spec"]["restartPolicy"] = json!("Always");
    let shown = &mut value["status"]["containerStatuses"][0];
    shown["state"] = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
    shown["lastState"] = ended(code);
    Arc::new(serde_json::from_value(value).unwrap())
}

/// No node has taken it, as far as is known.
fn unplaced() -> Arc<Pod> {
    let mut value = json!(*pod(21, json!({ "phase": "Pending" })));
    value["spec"]["nodeName"] = Value::Null;
    Arc::new(serde_json::from_value(value).unwrap())
}

fn idle() -> Arc<EphemeralRunner> {
    er(20, known(json!({ "ready": true })))
}

fn busy() -> Arc<EphemeralRunner> {
    er(20, with_job(json!({ "ready": true })))
}

fn job_ended() -> Arc<EphemeralRunner> {
    let end = json!({ "ready": true, "jobResult": "canceled", "jobFinishedAt": start() });
    er(20, with_job(end))
}

fn recorded(phase: &str) -> Arc<EphemeralRunner> {
    er(20, known(json!({ "phase": phase })))
}

fn going(runner: &Arc<EphemeralRunner>) -> Arc<EphemeralRunner> {
    let mut value = json!(**runner);
    json_patch::merge(&mut value, &deleted(json!({})));
    Arc::new(serde_json::from_value(value).unwrap())
}

/// Every way in which a pod whose runner may work comes to its end, and how.
fn paths() -> Vec<Path> {
    let timer = |what, runner, pod, after| Path {
        what,
        runner,
        pod,
        after,
        reads: true,
        tell: None,
    };
    let other = |what, runner, pod| Path {
        what,
        runner,
        pod,
        after: 0,
        reads: false,
        tell: None,
    };
    let told = |what, runner, tell| Path {
        what,
        runner,
        pod: up(),
        after: 0,
        reads: false,
        tell: Some(tell),
    };
    let unguarded = || {
        let left = json!(["ephemeralrunner.actions.github.com/finalizer"]);
        let mut value = json!(*going(&idle()));
        value["metadata"]["finalizers"] = left;
        Arc::new(serde_json::from_value(value).unwrap())
    };
    vec![
        timer("its job is over and it is not", job_ended(), up(), 30),
        timer("its node is lost", idle(), hanging(21), 5),
        timer("its node is lost, and it has a job", busy(), hanging(21), 5),
        timer(
            "its container does not start",
            idle(),
            waiting("ContainerCreating"),
            600,
        ),
        timer("nothing is shown of it", idle(), silent(), 600),
        timer(
            "its image is not there",
            idle(),
            waiting("ErrImagePull"),
            600,
        ),
        timer(
            "its image cannot be there",
            idle(),
            waiting("InvalidImageName"),
            0,
        ),
        timer(
            "its image must be there",
            idle(),
            waiting("ErrImageNeverPull"),
            0,
        ),
        timer("its pod is declared failed", idle(), declared_failed(), 0),
        timer("so is that of a busy one", busy(), declared_failed(), 0),
        timer("its container starts again", idle(), restarting(1), 0),
        timer("so does that of a busy one", busy(), restarting(1), 0),
        timer("so does a rejected one", idle(), restarting(7), 0),
        timer("so does one that ended well", idle(), restarting(0), 0),
        other("on record as failed", recorded("Failed"), up()),
        other("on record as ended well", recorded("Succeeded"), up()),
        other("on record as rejected", recorded("Outdated"), up()),
        other("being deleted", going(&idle()), up()),
        other("being deleted with its job", going(&busy()), up()),
        other(
            "being deleted before it has a node",
            going(&idle()),
            unplaced(),
        ),
        other("being deleted on a lost node", going(&idle()), hanging(21)),
        other(
            "being deleted with its finalizer taken off",
            unguarded(),
            up(),
        ),
        told("told to delete itself", idle(), RunnerCommand::Delete),
        told(
            "told to delete itself with its job",
            busy(),
            RunnerCommand::Delete,
        ),
        told("told to go", idle(), RunnerCommand::Release),
    ]
}

struct Path {
    what: &'static str,
    runner: Arc<EphemeralRunner>,
    pod: Arc<Pod>,
    /// When it comes to it.
    after: i64,
    /// Whether our own opinion is the cause, so that the pod is read again first.
    reads: bool,
    tell: Option<RunnerCommand>,
}

impl Path {
    fn walk(&self, verdict: Verdict) -> Scene {
        let mut scene = Scene::of(&self.runner, &self.pod, verdict);
        if let Some(command) = self.tell.clone() {
            scene.tell(command);
        }
        if self.after > 0 {
            scene.pass(self.after - 1);
            let early: Vec<_> = scene
                .log
                .iter()
                .filter(|line| line.contains("e Pod"))
                .collect();
            assert!(
                early.is_empty() || scene.count("remove") == 0,
                "{}: {early:?}",
                self.what
            );
        }
        scene
    }
}

#[test]
fn the_service_is_asked_before_a_pod_is_ended_whose_runner_may_work() {
    for path in paths() {
        let what = path.what;
        let mut scene = path.walk(agrees);
        scene.pass(600);
        let log = &scene.log;
        let asked = scene.position("remove 42");
        let asked = asked.unwrap_or_else(|| panic!("{what}: {log:?}"));
        let ended = scene.position("delete Pod");
        let ended = ended.unwrap_or_else(|| panic!("{what}: {log:?}"));
        assert!(asked < ended, "{what}: {log:?}");
        if let Some(terminal) = log.iter().position(|line| line.contains(r#""phase":"#)) {
            assert!(asked < terminal, "{what}: {log:?}");
        }
        // on this version and no other, where it rests on what the pod is seen to be
        let locked = log[ended].contains(" at 21");
        assert!(locked || !path.reads, "{what}: {log:?}");
        if path.after > 0 {
            let reads = log[..asked].iter().filter(|line| *line == "get Pod");
            assert!(reads.count() > 1, "{what}: read afresh first: {log:?}");
        }
    }
}

#[test]
fn a_runner_that_works_by_the_services_word_is_kept_whatever_happens_and_that_is_said() {
    for path in paths() {
        let what = path.what;
        let phase = json!(*path.runner)["status"]["phase"].clone();
        let mut scene = path.walk(refuses);
        let day = 24 * 3600;
        scene.pass(day);
        let log = &scene.log;
        assert_eq!(scene.count("delete Pod"), 0, "{what}: {log:?}");
        assert_eq!(scene.count("delete Secret"), 0, "{what}: {log:?}");
        assert_eq!(scene.phase(), phase.as_str().unwrap(), "{what}: {log:?}");
        let asked = scene.count("remove 42");
        let released = path.tell == Some(RunnerCommand::Release);
        if released {
            assert_eq!(asked, 1, "{what}: {log:?}");
            continue;
        }
        // every five minutes in the end
        assert!((288..=295).contains(&asked), "{what}: {asked} times");
        let writes = scene.count("patch");
        assert!(writes <= 2, "{what}: {writes} writes");
        let said = scene.hand.events.contains(&"RunnerKept") || !scene.reason().is_empty();
        assert!(said, "{what}: {:?}", scene.hand.events);
    }
}

/// A pod watch that shows nothing for long, a clock that jumps: our copy of the pod is old.
#[test]
fn a_timer_decides_on_a_pod_that_is_read_afresh() {
    for old in [
        waiting("ContainerCreating"),
        silent(),
        waiting("ErrImagePull"),
    ] {
        let mut scene = Scene::of(&idle(), &old, agrees);
        scene.pod = pod_in(30, "Running", running(), running());
        scene.pass(3600);
        assert_eq!(scene.count("remove"), 0, "{:?}", scene.log);
        assert_eq!(scene.count("delete"), 0, "{:?}", scene.log);
        assert!(scene.hand.report.clone().unwrap().ready);
    }
}

#[test]
fn a_timer_waits_while_the_pod_cannot_be_read() {
    let mut hand = Hand::with(
        NAME,
        Origin::Found(Some(idle())),
        ControllerSettings::default(),
    );
    hand.tick();
    hand.kube(RunnerTag::Pod(Verb::Read), answer(Object::Pod(silent())));
    let mut reads = 0;
    for _ in 0..20 {
        for line in hand.after(600) {
            assert_eq!(line, "get Pod");
            reads += 1;
            hand.kube(
                RunnerTag::Pod(Verb::Read),
                kube_error(KubeErrorKind::Unavailable),
            );
        }
    }
    assert!(reads > 15, "{reads}");
}

#[test]
fn no_timer_applies_to_a_pod_that_has_not_started_by_our_copy_and_has_a_job_on_record() {
    for old in [
        waiting("ContainerCreating"),
        silent(),
        waiting("ErrImagePull"),
        waiting("InvalidImageName"),
    ] {
        let mut scene = Scene::of(&busy(), &old, agrees);
        scene.pass(3600);
        assert_eq!(scene.count("remove"), 0, "{:?}", scene.log);
        assert_eq!(scene.count("delete"), 0, "{:?}", scene.log);
        assert_eq!(scene.phase(), "Running");
    }
}

#[test]
fn a_service_that_does_not_answer_ends_nothing() {
    fn fails() -> Result<ActionsAnswer, ActionsError> {
        refused(ActionsErrorKind::Unauthorized)
    }
    for path in paths() {
        let mut scene = path.walk(fails);
        scene.pass(600);
        // a person's deletion goes on without the service, unless a job is on record
        let deleting = scene.runner["metadata"]["deletionTimestamp"].is_string();
        let has_job = scene.runner["status"]["jobId"].is_string();
        let ended = scene.count("delete Pod") > 0;
        let what = path.what;
        assert_eq!(ended, deleting && !has_job, "{what}: {:?}", scene.log);
    }
}

#[test]
fn a_cancelled_job_may_clean_up_for_as_long_as_it_takes() {
    let mut scene = Scene::of(&job_ended(), &up(), refuses);
    scene.pass(2 * 3600);
    assert_eq!(scene.reason(), "RunnerDidNotEnd");
    assert_eq!(scene.hand.events, ["RunnerKept"], "once");
    let over = pod_in(60, "Succeeded", ended(0), ended(0));
    let asked = scene.hand.sees_pod(over);
    assert!(asked[0].contains(r#""phase":"Succeeded""#), "{asked:?}");
    assert!(asked[0].contains(r#""reason":null"#), "{asked:?}");
}

#[test]
fn one_that_does_not_end_once_the_service_agrees_is_ended() {
    let mut scene = Scene::of(&job_ended(), &up(), refuses);
    scene.pass(3600);
    scene.verdict = agrees;
    scene.pass(300);
    assert_eq!(scene.phase(), "Failed");
    assert_eq!(scene.reason(), "RunnerDidNotEnd");
    assert_eq!(scene.count("delete Pod at 21"), 1, "{:?}", scene.log);
}

/// The next pod needs a registration of its own.
#[test]
fn a_runner_whose_pod_did_not_start_is_registered_anew() {
    let mut scene = Scene::of(&idle(), &silent(), agrees);
    scene.pass(600);
    let tail: Vec<&str> = scene.log.iter().map(String::as_str).collect();
    let order = ["remove 42", "delete Secret", "failures", "delete Pod at 21"];
    let places = order.map(|part| tail.iter().position(|line| line.contains(part)));
    assert!(places.is_sorted() && places[0].is_some(), "{tail:?}");
    let mut hand = scene.hand;
    hand.kube(RunnerTag::Pod(Verb::Delete), Ok(KubeAnswer::Deleted));
    let asked = hand.after(5);
    assert!(
        asked.iter().any(|line| line.starts_with("register")),
        "{asked:?}"
    );
}

#[test]
fn an_image_that_cannot_be_had_fails_the_runner_without_another_pod() {
    for (word, patience) in [
        ("InvalidImageName", 0),
        ("ErrImageNeverPull", 0),
        ("ImagePullBackOff", 600),
        ("ErrImagePull", 600),
    ] {
        let runner = er(20, known(json!({ "reason": "ImagePullBackOff" })));
        let mut scene = Scene::of(&runner, &waiting(word), agrees);
        scene.pass(patience);
        let lines = &scene.log;
        let failed = lines.iter().find(|line| line.contains("failures")).unwrap();
        for part in [
            r#""phase":"Failed""#,
            r#""failures":{"pod-uid":""#,
            "no img:1",
        ] {
            assert!(failed.contains(part), "{word}: {failed}");
        }
        assert_eq!(scene.hand.events, ["RunnerFailed"], "{word}");
        assert_eq!(scene.count("delete Pod at 21"), 1, "{word}: {lines:?}");
        assert_eq!(scene.count("delete Secret"), 1, "{word}: {lines:?}");
        assert_eq!(scene.hand.report.unwrap().state, RunnerState::Failed);
    }
}

// === lost nodes ===

/// A pod that is being deleted, with its grace period over at the start.
fn hanging(version: u32) -> Arc<Pod> {
    let mut hanging = json!(*pod_in(version, "Running", running(), running()));
    hanging["metadata"]["deletionTimestamp"] = json!(start());
    Arc::new(serde_json::from_value(hanging).unwrap())
}

#[test]
fn a_pod_that_has_not_gone_within_its_grace_is_told_whatever_its_runner_does() {
    // (the runner, whether it is told to be in deletion)
    for (runner, deleting) in [
        (er(20, known(json!({ "ready": true }))), false),
        (er(20, with_job(json!({ "ready": true }))), false),
        (er(20, deleted(known(json!({ "ready": true })))), true),
    ] {
        let (mut hand, _) = Hand::found(runner, Some(hanging(21)));
        let report = hand.report.clone().unwrap();
        assert!(!report.lost && report.reason.is_none(), "{report:?}");
        assert!(matches!(hand.wakes_in(), Some(1..=5)), "{:?}", hand.wake);
        hand.after(5);
        let report = hand.report.clone().unwrap();
        assert!(report.lost && report.deleting == deleting, "{report:?}");
        let Reason {
            code: word,
            message,
        } = report.reason.unwrap();
        assert_eq!(word, "NodeLost");
        assert!(message.contains("node-a"), "{message}");
    }
}

#[test]
fn an_idle_runner_on_a_lost_node_is_replaced_and_its_pod_is_no_capacity() {
    let mut scene = Scene::of(&idle(), &hanging(21), agrees);
    assert!(scene.hand.report.clone().unwrap().holds_resources);
    scene.pass(5);
    assert_eq!(scene.count("delete EphemeralRunner"), 1, "{:?}", scene.log);
    assert_eq!(scene.hand.events, ["RunnerReplaced"]);
    let report = scene.hand.report.clone().unwrap();
    assert!(report.deleting && report.lost && !report.holds_resources);
    assert_eq!(scene.count("delete Pod"), 0, "its flag gives it longer");
    scene.pass(90);
    assert_eq!(
        scene.count("delete Pod at 21 grace 0"),
        1,
        "{:?}",
        scene.log
    );
}

#[test]
fn a_busy_runner_on_a_lost_node_stays_until_the_service_gives_its_job_up() {
    let mut scene = Scene::of(&busy(), &hanging(21), refuses);
    scene.pass(3600);
    assert_eq!(scene.reason(), "NodeLost");
    let report = scene.hand.report.clone().unwrap();
    assert!(report.lost && report.holds_resources && !report.deleting);
    scene.verdict = agrees;
    scene.pass(300);
    assert_eq!(scene.phase(), "Failed");
    assert_eq!(
        scene.hand.report.clone().unwrap().state,
        RunnerState::Finished
    );
}
