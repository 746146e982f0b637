//! What an actor must not take: results of an earlier life, and what is sent to one that was torn
//! down; and what must not be lost when messages take each other's place.

use super::*;
use crate::actors::runner_set::RunnerSetMachine;
use crate::actors::runtime::mailbox::{Timed, Waiting};
use crate::messages::{Launch, Refusal, RunnerReport, RunnerState};
use embedded_kube::faults::{Interceptor, RequestFate, RequestInfo};

/// Answers after half a minute, which is longer than an actor is down.
struct Slow;

impl Interceptor for Slow {
    fn request(&self, _: &RequestInfo) -> RequestFate {
        RequestFate {
            delay_after: Duration::from_secs(30),
            ..RequestFate::default()
        }
    }
}

async fn slow<F: Future<Output = ()>>(play: impl FnOnce(Stage) -> F) {
    LocalSet::new()
        .run_until(async { play(Stage::on(Arc::new(Slow), ApiServer::client)).await })
        .await;
}

#[tokio::test(start_paused = true)]
async fn results_and_alarms_of_an_earlier_life_are_dropped() {
    slow(|stage| async move {
        let alarm = Effect::WakeAt(after(Timestamp::UNIX_EPOCH, 25));
        let asked = vec![Effect::Kube(1, missing("x")), alarm];
        stage.script.borrow_mut().push_back(asked);
        stage.start();
        stage.pass(MOMENT).await;
        stage.mailbox.send(Input::Command("panic"));
        // it is up again long before the answer comes, and asks again
        let asked = vec![Effect::Kube(2, missing("y"))];
        stage.script.borrow_mut().push_back(asked);
        let heard = stage.pass(Duration::from_secs(20)).await;
        assert!(
            heard.iter().any(|line| line.starts_with("tick")),
            "{heard:?}"
        );
        let heard = stage.pass(Duration::from_secs(60)).await;
        assert_eq!(heard, ["kube 2 NotFound"]);
        assert_eq!(stage.gauge("impresario_effects_in_flight"), 0.0);
    })
    .await;
}

/// A panic outside the step is one too: the actor is made anew, and does not just end.
#[tokio::test(start_paused = true)]
async fn an_actor_whose_effects_panic_is_made_anew() {
    staged(|stage| async move {
        stage.start();
        stage.mailbox.send(Input::Observed(config_map(5)));
        stage.pass(MOMENT).await;
        stage
            .script
            .borrow_mut()
            .push_back(vec![Effect::Report("panic")]);
        stage.mailbox.send(Input::Tick);
        stage.pass(MOMENT).await;
        assert_eq!(stage.gauge("impresario_actor_restarts_total"), 1.0);
        let heard = stage.pass(Duration::from_secs(20)).await;
        assert!(
            heard.contains(&"observed ConfigMap ci/a@5".to_owned()),
            "{heard:?}"
        );
        stage.mailbox.send(Input::Command("work"));
        assert_eq!(stage.pass(MOMENT).await, ["Command(\"work\")"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_message_to_one_that_was_torn_down_is_not_kept() {
    let local = LocalSet::new();
    let stage = local
        .run_until(async {
            let stage = Stage::new();
            stage.start();
            stage.pass(MOMENT).await;
            stage
        })
        .await;
    drop(local);
    for version in 0..1_000 {
        stage.mailbox.send(Input::Observed(config_map(version)));
        stage.mailbox.send(Input::Command("work"));
    }
    assert_eq!(stage.gauge("impresario_actor_mailbox_messages"), 0.0);
    assert_eq!(stage.mailbox.take_waiting().count(), 0);
}

fn report(name: &str, uid: &str, refused: bool) -> RunnerReport {
    RunnerReport {
        name: name.to_owned(),
        uid: uid.to_owned(),
        created: Timestamp::UNIX_EPOCH,
        patch_id: 0,
        revision: 0,
        state: RunnerState::Pending,
        has_job: false,
        job_finished: None,
        deleting: false,
        holds_resources: true,
        lost: false,
        launch: Launch::Done,
        registered: true,
        ready: true,
        refused: refused.then_some(Refusal::Busy),
        reason: None,
    }
}

/// A refusal is said once, so a newer report of the same runner carries it on, and not one of a
/// successor of the name.
#[tokio::test(start_paused = true)]
async fn what_is_said_once_survives_a_newer_report() {
    for (first, second, expected) in [
        (report("a", "1", true), report("a", "1", false), vec![true]),
        (report("a", "1", false), report("a", "1", true), vec![true]),
        (
            report("a", "1", false),
            report("a", "1", false),
            vec![false],
        ),
        (report("a", "1", true), report("a", "2", false), vec![false]),
        (
            report("a", "1", true),
            report("b", "1", false),
            vec![true, false],
        ),
    ] {
        let mut waiting = Waiting::<RunnerSetMachine>::default();
        for report in [first, second] {
            waiting.put(Timed {
                input: Input::Report(report),
                sent: tokio::time::Instant::now(),
            });
        }
        let heard = waiting.take().map(|timed| match timed.input {
            Input::Report(report) => report.refused.is_some(),
            other => panic!("{other:?}"),
        });
        assert_eq!(heard.collect::<Vec<_>>(), expected);
    }
}
