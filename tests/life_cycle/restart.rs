//! The controller is killed at every one of its writes, before it takes effect and after, and
//! started again. Nothing is lost and nothing is done twice.

use std::time::Duration;

use crate::stage::manifests::SET;
use crate::stage::{Death, Stage, Who, play};

const JOB: Duration = Duration::from_secs(6);
const JOBS: usize = 3;
/// From a controller's death to its successor.
const RESTART: Duration = Duration::from_millis(700);

#[test]
fn killed_in_place_of_any_write_it_loses_and_doubles_nothing() {
    exhaust(Death::Before);
}

#[test]
fn killed_after_any_write_it_loses_and_doubles_nothing() {
    exhaust(Death::After);
}

#[test]
fn killed_again_and_again_it_still_gets_there() {
    for pause in [2, 3, 5, 8] {
        play(async || {
            let stage = Stage::whole_without_log(31).await;
            let killing = async {
                loop {
                    stage.warden.plan(Some(Death::After(pause)));
                    stage.warden.death().await;
                    tokio::time::sleep(RESTART).await;
                    stage.start_controller();
                }
            };
            tokio::select! {
                biased;
                () = scenario(&stage) => {}
                () = killing => {}
            }
        });
    }
}

#[test]
fn started_anew_at_rest_it_writes_nothing() {
    play(async || {
        let stage = Stage::whole(32).await;
        stage.settled_fixture(3, 6).await;
        stage.queue_jobs(2, SET, JOB);
        stage.until("both jobs are done", async || stage.jobs_done() == 2).await;
        stage.until("three are left", async || stage.runners().await.len() == 3).await;
        stage.settle().await;
        stage.cluster().take_log();
        let before = stage.warden.writes().len();
        stage.start_controller();
        stage.pass(Duration::from_secs(30)).await;
        let mut since = stage.warden.writes().split_off(before);
        since.retain(|write| write.who == Who::Controller);
        assert!(since.is_empty(), "written: {since:#?}\n{}", stage.picture().await);
    });
}

/// Kills at the first write, then at the second, until the scenario has no more of them.
fn exhaust(death: fn(usize) -> Death) {
    let mut number = 1;
    while dies_at(death(number)) {
        number += 1;
    }
    assert!(number > 40, "the scenario has few writes: {number}");
    println!("killed at {} writes", number - 1);
}

/// Plays the scenario with one death; answers whether it came.
fn dies_at(death: Death) -> bool {
    play(async || {
        let stage = Stage::whole_without_log(30).await;
        stage.warden.plan(Some(death));
        let replace = async {
            stage.warden.death().await;
            tokio::time::sleep(RESTART).await;
            stage.start_controller();
            std::future::pending::<()>().await;
        };
        println!("{death:?}");
        tokio::select! {
            biased;
            () = scenario(&stage) => {}
            () = replace => {}
        }
        !stage.warden.death_is_due()
    })
}

/// A pool of one to four is made, does a burst of jobs, shrinks and is deleted.
async fn scenario(stage: &Stage) {
    stage.settled_fixture(1, 4).await;
    stage.queue_jobs(JOBS, SET, JOB);
    stage
        .until("all jobs are done", async || stage.jobs_done() == JOBS)
        .await;
    stage
        .until("one runner is left", async || {
            let runners = stage.runners().await;
            runners.len() == 1 && stage.actions.runners().len() == 1
        })
        .await;
    stage.settle().await;
    stage.assert_nothing_left_over_beside_runners().await;
    stage.delete_scale_set().await;
    stage.settle().await;
    assert_eq!(stage.actions.jobs().len(), JOBS);
    stage.assert_sound();
}
