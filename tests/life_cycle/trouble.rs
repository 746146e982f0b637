//! At every single write of a scenario something goes wrong: the controller is killed before it
//! takes effect, or after, and started again; the answer is lost; it is refused. Nothing is lost
//! and nothing is done twice.

use std::time::Duration;

use crate::stage::manifests::SET;
use crate::stage::{Stage, Trouble, Who, play};

const JOB: Duration = Duration::from_secs(6);
const JOBS: usize = 3;
/// From a controller's death to its successor.
const RESTART: Duration = Duration::from_millis(700);

#[test]
fn killed_in_place_of_any_write_it_loses_and_doubles_nothing() {
    exhaust(Trouble::DeathBefore);
}

#[test]
fn killed_after_any_write_it_loses_and_doubles_nothing() {
    exhaust(Trouble::DeathAfter);
}

#[test]
fn a_lost_answer_to_any_write_doubles_nothing() {
    exhaust(Trouble::AnswerLost);
}

#[test]
fn a_refusal_of_any_write_is_got_over() {
    exhaust(Trouble::Refused);
}

#[test]
fn killed_again_and_again_it_still_gets_there() {
    for writes in [3, 5, 8, 13] {
        play(async || {
            let stage = Stage::whole_without_log(31).await;
            let killing = async {
                loop {
                    stage.warden.plan(Trouble::DeathAfter(writes));
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
        stage
            .until("both jobs are done", async || stage.jobs_done() == 2)
            .await;
        stage
            .until("three are left", async || stage.runners().await.len() == 3)
            .await;
        stage.settle().await;
        let before = stage.warden.writes().len();
        stage.start_controller();
        stage.pass(Duration::from_secs(30)).await;
        let mut since = stage.warden.writes().split_off(before);
        since.retain(|write| write.who == Who::Controller);
        assert!(
            since.is_empty(),
            "written: {since:#?}\n{}",
            stage.picture().await
        );
    });
}

/// Makes trouble at the first write, then at the second, until the scenario has no more.
fn exhaust(trouble: fn(usize) -> Trouble) {
    let mut number = 1;
    while comes(trouble(number)) {
        number += 1;
    }
    assert!(number > 40, "the scenario has few writes: {number}");
}

/// Plays the scenario with one trouble; answers whether it came.
fn comes(trouble: Trouble) -> bool {
    // the last of these lines says where it failed
    println!("{trouble:?}");
    play(async || {
        let stage = Stage::whole_without_log(30).await;
        stage.warden.plan(trouble);
        let replace = async {
            stage.warden.death().await;
            tokio::time::sleep(RESTART).await;
            stage.start_controller();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = scenario(&stage) => {}
            () = replace => {}
        }
        !stage.warden.expects_trouble()
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
