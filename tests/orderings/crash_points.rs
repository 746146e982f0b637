//! While a revision is applied, a set parked, and a set recovered: at each single write and
//! call of the controller it is killed (before, after), the answer is lost (reset, timeout),
//! or it is refused (409, 500). The end is that of the run without trouble. So it is with ARC's
//! own CustomResourceDefinitions, where a status takes two writes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use embedded_actions::Fault;
use impresario::api::constants::annotations;
use impresario::api::{AutoscalingListener, EphemeralRunnerSet};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use serde_json::Value;

use crate::history::revision;
use crate::seam::Trouble;
use crate::stage::manifests::older_crds;
use crate::stage::play;
use crate::world::{World, phase};

/// From a controller's death to its successor.
const RESTART: Duration = Duration::from_millis(700);

/// Within this every request is answered, and what its answer leads to begun.
const DEADLINE: Duration = Duration::from_secs(100);

#[derive(Clone, Copy, Debug)]
enum Scene {
    /// A revision is applied to one busy runner, two idle ones, and one that has no id yet.
    Application,
    /// A runner is rejected, beside a busy one and two idle ones.
    Parking,
    /// The template of a parked set is corrected, and jobs come.
    Recovery,
}

/// Whose CustomResourceDefinitions the cluster has.
#[derive(Clone, Copy, Debug)]
enum Definitions {
    Ours,
    /// Of ARC 0.14.2.
    Arcs,
}

macro_rules! exhaustive {
    ($definitions:ident; $($name:ident: $scene:ident, $trouble:ident;)*) => {$(
        #[test]
        fn $name() {
            exhaust(Definitions::$definitions, Scene::$scene, Trouble::$trouble);
        }
    )*};
}

exhaustive! {
    Arcs;
    with_older_definitions_an_application_survives_a_death_before_any: Application, DeathBefore;
    with_older_definitions_an_application_survives_a_death_after_any: Application, DeathAfter;
    with_older_definitions_an_application_survives_a_conflict_at_any: Application, Conflict;
    with_older_definitions_parking_survives_a_death_before_any: Parking, DeathBefore;
    with_older_definitions_parking_survives_a_death_after_any: Parking, DeathAfter;
    with_older_definitions_parking_survives_a_conflict_at_any: Parking, Conflict;
    with_older_definitions_a_recovery_survives_a_death_before_any: Recovery, DeathBefore;
    with_older_definitions_a_recovery_survives_a_death_after_any: Recovery, DeathAfter;
    with_older_definitions_a_recovery_survives_a_conflict_at_any: Recovery, Conflict;
}

exhaustive! {
    Ours;
    an_application_survives_a_death_before_any_write_or_call: Application, DeathBefore;
    an_application_survives_a_death_after_any_write_or_call: Application, DeathAfter;
    an_application_survives_a_reset_at_any_write_or_call: Application, Reset;
    an_application_survives_a_timeout_of_any_write_or_call: Application, Timeout;
    an_application_survives_a_conflict_at_any_write_or_call: Application, Conflict;
    an_application_survives_an_error_at_any_write_or_call: Application, Error;
    parking_survives_a_death_before_any_write_or_call: Parking, DeathBefore;
    parking_survives_a_death_after_any_write_or_call: Parking, DeathAfter;
    parking_survives_a_reset_at_any_write_or_call: Parking, Reset;
    parking_survives_a_timeout_of_any_write_or_call: Parking, Timeout;
    parking_survives_a_conflict_at_any_write_or_call: Parking, Conflict;
    parking_survives_an_error_at_any_write_or_call: Parking, Error;
    a_recovery_survives_a_death_before_any_write_or_call: Recovery, DeathBefore;
    a_recovery_survives_a_death_after_any_write_or_call: Recovery, DeathAfter;
    a_recovery_survives_a_reset_at_any_write_or_call: Recovery, Reset;
    a_recovery_survives_a_timeout_of_any_write_or_call: Recovery, Timeout;
    a_recovery_survives_a_conflict_at_any_write_or_call: Recovery, Conflict;
    a_recovery_survives_an_error_at_any_write_or_call: Recovery, Error;
}

/// What is left at the end of a run, and what the controller did in it.
struct Run {
    end: String,
    steps: Vec<String>,
    came: bool,
}

/// Plays a scene without trouble, and then with it at each step; tells all that fail.
fn exhaust(definitions: Definitions, scene: Scene, trouble: Trouble) {
    let older = match definitions {
        Definitions::Ours => None,
        Definitions::Arcs => match older_crds() {
            None => return,
            older => older,
        },
    };
    let run = |trouble| run(older.clone(), scene, trouble);
    let calm = run(None);
    assert!(
        calm.steps.len() >= scene.least(),
        "few steps: {:#?}",
        calm.steps
    );
    let mut failed = String::new();
    for (number, step) in calm.steps.iter().enumerate() {
        let run = catch_unwind(AssertUnwindSafe(|| run(Some((number, trouble)))));
        let why = match run {
            Ok(run) if !run.came => "it never came".to_owned(),
            Ok(run) if run.end == calm.end => continue,
            Ok(run) => format!("it ends as\n{}instead of\n{}", run.end, calm.end),
            Err(panic) => panic
                .downcast_ref::<String>()
                .cloned()
                .unwrap_or_else(|| "it panics".to_owned()),
        };
        let _ = writeln!(failed, "=== {trouble:?} at {number}, {step}: {why}");
    }
    assert!(failed.is_empty(), "{scene:?}\n{failed}");
}

fn run(older: Option<Vec<Value>>, scene: Scene, trouble: Option<(usize, Trouble)>) -> Run {
    play(async || {
        let world = match older {
            Some(crds) => World::by_hand_with_older(crds).await,
            None => World::by_hand().await,
        };
        scene.prepare(&world).await;
        world.seam.record();
        if let Some((number, trouble)) = trouble {
            world.seam.plan(number, trouble);
        }
        let replace = async {
            world.seam.death().await;
            tokio::time::sleep(RESTART).await;
            world.restart();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scene.play(&world) => {}
            () = replace => {}
        }
        let steps = world.seam.recorded();
        let came = !world.seam.expects_trouble();
        if trouble.is_some() {
            // what waits for an answer still has something to do
            world.stage.pass(DEADLINE).await;
        }
        world.assert_sound().await;
        Run {
            end: end(&world).await,
            steps,
            came,
        }
    })
}

impl Scene {
    /// So many steps there are at least; less would show that nothing is tried.
    const fn least(self) -> usize {
        match self {
            Self::Application => 20,
            Self::Parking => 15,
            Self::Recovery => 25,
        }
    }

    async fn prepare(self, world: &World) {
        let names = world.one_busy_of(3).await;
        match self {
            Self::Application => {
                let slow = Fault::delay(Duration::from_secs(25));
                world
                    .stage
                    .actions
                    .faults()
                    .next("generate_jit_config", slow);
                world.stage.ersset(4, 2).await;
                world
                    .stage
                    .until("a fourth without an id", async || {
                        world.stage.live().await.len() == 4
                    })
                    .await;
                world.stage.pass(Duration::from_secs(2)).await;
            }
            Self::Parking => {
                let more = world.stage.scale_up(4, 2).await;
                let fourth = more.iter().find(|name| !names.contains(name)).unwrap();
                world.stage.up(fourth).await;
                world.stage.settle().await;
            }
            Self::Recovery => {
                world.stage.exit(&names[1], 7).await;
                world.until_parked().await;
            }
        }
    }

    async fn play(self, world: &World) {
        match self {
            Self::Application => {
                world.fix("img:2").await;
                world
                    .stage
                    .within(Duration::from_secs(300), "the new fleet", async || {
                        world.revisions().await == [1, 2, 2, 2]
                    })
                    .await;
                world.until_running().await;
            }
            Self::Parking => {
                let idle = world.stage.live().await.pop().unwrap().name_any();
                world.stage.exit(&idle, 7).await;
                world
                    .stage
                    .within(
                        Duration::from_secs(300),
                        "the busy one is left",
                        async || world.revisions().await == [1],
                    )
                    .await;
                world.until_parked().await;
            }
            Self::Recovery => {
                world.fix("img:2").await;
                world.until_running().await;
                world.stage.ersset(3, 1).await;
                world
                    .stage
                    .within(Duration::from_secs(300), "the new fleet", async || {
                        world.revisions().await == [1, 2, 2]
                    })
                    .await;
                world.until_running().await;
            }
        }
    }
}

/// How the world stands, without names and versions.
async fn end(world: &World) -> String {
    let mut text = String::new();
    let stage = &world.stage;
    let status = stage.scale_set().await.status.unwrap_or_default();
    let conditions = status.conditions.iter();
    let conditions: BTreeMap<_, _> = conditions
        .map(|one| (&one.type_, (&one.status, &one.reason)))
        .collect();
    let _ = writeln!(text, "ARS {:?} {conditions:?}", status.phase);
    let counts = (
        status.current_runners,
        status.pending_ephemeral_runners,
        status.running_ephemeral_runners,
        status.failed_ephemeral_runners,
    );
    let _ = writeln!(text, "counts {counts:?}");
    for listener in stage.all::<AutoscalingListener>().await {
        let _ = writeln!(text, "AL {:?}", listener.spec.phase);
    }
    for set in stage.all::<EphemeralRunnerSet>().await {
        let (spec, status) = (set.spec, set.status);
        let target = (spec.replicas, spec.patch_id, spec.actionable_revision);
        let _ = writeln!(text, "ERS {target:?} {status:?}");
    }
    let mut runners = Vec::new();
    let mut newest = 0;
    for runner in stage.runners().await {
        let going = runner.metadata.deletion_timestamp.is_some();
        runners.push(format!(
            "ER {} {:?} deleting {going}",
            revision(&runner),
            phase(&runner)
        ));
        let patch = runner.annotations().get(annotations::PATCH_ID);
        let patch: i64 = patch.map_or(0, |patch| patch.parse().unwrap());
        newest = newest.max(patch);
    }
    runners.sort_unstable();
    let _ = writeln!(text, "{runners:#?} newest patch {newest}");
    let secrets = stage.all::<Secret>().await.len();
    let (pods, listeners) = (stage.runner_pods().await, stage.listener_pods().await);
    let _ = writeln!(
        text,
        "{secrets} secrets, {} and {} pods, {} registered, {} runners made",
        pods.len(),
        listeners.len(),
        stage.actions.runners().len(),
        world.history.created(),
    );
    text
}
