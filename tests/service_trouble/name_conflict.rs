//! SCN-30: the name of a runner is taken when it is to be registered. The test plays listener
//! and kubelet.

use impresario::simulation::transports;
use std::sync::Arc;
use std::time::Duration;

use embedded_actions::{Fault, Outcome, Refusal};
use impresario::actions::{Client, ClientOptions, TransportOptions};
use impresario::api::{ConfigUrl, Credentials, EphemeralRunner, EphemeralRunnerPhase};
use kube::ResourceExt as _;

use crate::stage::manifests::{RUN, TOKEN};
use crate::stage::{Stage, play};
use crate::watched::Watched;

/// The fixture F(0, 10), settled.
async fn settled() -> (Stage, Arc<Watched>) {
    let (stage, watched) = Watched::stage(false).await;
    stage.start_controller();
    stage.settled_fixture(0, 10).await;
    (stage, watched)
}

fn first_jit_fails(stage: &Stage, fault: impl Into<Fault>) {
    stage.actions.faults().next("generate_jit_config", fault);
}

/// Asks for one runner and waits for its pod; answers the runner.
async fn one_runner(stage: &Stage) -> EphemeralRunner {
    stage.ersset(1, 1).await;
    stage
        .within(Duration::from_secs(20), "its pod is there", async || {
            stage.runner_pods().await.len() == 1
        })
        .await;
    let mut live = stage.live().await;
    assert_eq!(live.len(), 1, "{}", stage.picture().await);
    live.remove(0)
}

/// The id under which a runner's status names its registration, once its pod is up.
async fn recorded_id(stage: &Stage, runner: &str) -> Option<i64> {
    stage.up(runner).await;
    let recorded = async || {
        let runner: Option<EphemeralRunner> = stage.get(RUN, runner).await;
        let id = runner.and_then(|runner| runner.status?.runner_id);
        id.filter(|id| *id > 0)
    };
    stage
        .until("its id is recorded", async || recorded().await.is_some())
        .await;
    recorded().await
}

#[test]
fn a_a_leftover_of_this_scale_set_is_removed_once_and_the_name_used() {
    play(async || {
        let (stage, watched) = settled().await;
        let set = stage.actions.scale_sets()[0].id;
        first_jit_fails(&stage, Outcome::Forestall(set));
        let runner = one_runner(&stage).await;
        let name = runner.name_any();
        let registered = stage.actions.runners();
        assert_eq!(registered.len(), 1, "{registered:?}");
        let (ours, leftover) = (registered[0].id, registered[0].id - 1);
        assert_eq!(stage.warden.removals(), [leftover]);
        assert_eq!(registered[0].name, name);
        assert_eq!(watched.times("generate_jit_config").len(), 2);
        assert_eq!(recorded_id(&stage, &name).await, Some(ours));
        stage.settle().await;
        assert_eq!(stage.warden.removals(), [leftover]);
        stage.assert_sound();
    });
}

#[test]
fn b_a_name_that_nobody_has_is_tried_again_after_a_while() {
    play(async || {
        let (stage, watched) = settled().await;
        first_jit_fails(&stage, Fault::refuse(409, "AgentExistsException"));
        let runner = one_runner(&stage).await;
        assert_eq!(stage.warden.removals(), [0_i64; 0]);
        assert_eq!(watched.times("find_runner").len(), 1);
        let pauses = watched.pauses("generate_jit_config");
        assert_eq!(pauses.len(), 1, "{pauses:?}");
        assert!(pauses[0] > Duration::ZERO, "{pauses:?}");
        let id = stage.registration(&runner.name_any());
        assert_eq!(recorded_id(&stage, &runner.name_any()).await, Some(id));
        stage.assert_sound();
    });
}

#[test]
fn b_a_service_that_contradicts_itself_for_ever_is_asked_ever_less() {
    play(async || {
        let (stage, watched) = settled().await;
        let exists = Fault::refuse(409, "AgentExistsException");
        stage.actions.faults().always("generate_jit_config", exists);
        stage.ersset(1, 1).await;
        stage.pass(Duration::from_secs(600)).await;
        let calls = watched.times("generate_jit_config").len();
        assert!((3..40).contains(&calls), "{calls} calls in ten minutes");
        assert_eq!(stage.warden.removals(), [0_i64; 0]);
        stage.actions.faults().clear("generate_jit_config");
        stage
            .within(Duration::from_secs(330), "it is registered", async || {
                stage.runner_pods().await.len() == 1
            })
            .await;
        stage.assert_sound();
    });
}

#[test]
fn c_a_name_of_another_scale_set_is_left_alone_and_another_one_used() {
    play(async || {
        let (stage, _) = settled().await;
        let theirs = other_scale_set(&stage).await;
        first_jit_fails(&stage, Outcome::Forestall(theirs));
        stage.ersset(1, 1).await;
        stage
            .within(Duration::from_secs(20), "a pod is there", async || {
                stage.runner_pods().await.len() == 1
            })
            .await;
        stage.settle().await;
        let registered = stage.actions.runners();
        let of_theirs = registered.iter().find(|known| known.scale_set_id == theirs);
        let taken = of_theirs.expect("it is registered still").name.clone();
        assert_eq!(stage.warden.removals(), [0_i64; 0]);
        let (ended, alive): (Vec<_>, Vec<_>) = stage
            .live()
            .await
            .into_iter()
            .partition(|runner| runner.name_any() == taken);
        // it is kept for a person to look at, and takes nobody's place
        let status = ended[0].status.clone().unwrap();
        assert_eq!(status.phase, Some(EphemeralRunnerPhase::Failed));
        assert_eq!(status.reason.as_deref(), Some("RunnerNameTaken"));
        let message = status.message.unwrap();
        let parts = [
            format!("scale set {theirs}"),
            of_theirs.unwrap().id.to_string(),
        ];
        for part in parts {
            assert!(message.contains(&part), "{message}");
        }
        assert_eq!(alive.len(), 1, "{}", stage.picture().await);
        let name = alive[0].name_any();
        assert_eq!(stage.runner_pods().await[0].name_any(), name);
        // its success clears what failed away, and not what others have
        stage.up(&name).await;
        stage.busy(&name, 8).await;
        stage.exit(&name, 0).await;
        stage.ersset(0, 2).await;
        stage
            .until("both are gone", async || {
                let live = stage.live().await;
                live.iter()
                    .all(|runner| ![&taken, &name].contains(&&runner.name_any()))
            })
            .await;
        stage.settle().await;
        assert_eq!(stage.warden.removals(), [0_i64; 0]);
        stage.assert_sound();
    });
}

#[test]
fn d_a_busy_service_is_not_asked_before_it_wants_to_be() {
    play(async || {
        let (stage, watched) = settled().await;
        let busy = Refusal::new(429, "", "slow down").header("retry-after", "20");
        first_jit_fails(&stage, busy);
        stage.ersset(1, 1).await;
        stage
            .until("its pod is there", async || {
                stage.runner_pods().await.len() == 1
            })
            .await;
        let pauses = watched.pauses("generate_jit_config");
        assert_eq!(pauses.len(), 1, "{pauses:?}");
        assert!(pauses[0] >= Duration::from_secs(20), "{pauses:?}");
        assert!(pauses[0] < Duration::from_secs(25), "{pauses:?}");
        stage.assert_sound();
    });
}

/// A scale set in the same repository that somebody else has made; its id.
async fn other_scale_set(stage: &Stage) -> i64 {
    let url = ConfigUrl::parse("https://gh.test/org/repo").unwrap();
    let transport = transports(&stage.actions).transport(&TransportOptions::default());
    let options = ClientOptions::new(url, Credentials::Token(TOKEN.into()));
    let clock = stage.cluster().clock.clone();
    let client = Client::new(options, transport.unwrap(), clock).unwrap();
    client.create_scale_set("theirs", 1, &[]).await.unwrap().id
}
