//! A run is a function of its seed.

use std::time::Duration;

use crate::stage::manifests::SET;
use crate::stage::{Stage, play};

#[test]
fn two_runs_with_one_seed_give_the_same_log_byte_for_byte() {
    let (first, second) = (log_of_a_run(11), log_of_a_run(11));
    assert!(
        first.len() > 500,
        "the log is all there: {} lines",
        first.len()
    );
    for (number, (one, other)) in first.iter().zip(&second).enumerate() {
        assert_eq!(one, other, "line {number} differs");
    }
    assert_eq!(first.len(), second.len());
}

#[test]
fn another_seed_gives_another_log() {
    assert_ne!(log_of_a_run(11), log_of_a_run(12));
}

/// A burst of jobs, a killed controller, a deletion.
fn log_of_a_run(seed: u64) -> Vec<String> {
    play(async || {
        let stage = Stage::whole(seed).await;
        stage.settled_fixture(1, 4).await;
        stage.queue_jobs(7, SET, Duration::from_secs(9));
        stage
            .until("some are done", async || stage.jobs_done() >= 3)
            .await;
        stage.start_controller();
        stage
            .until("all are done", async || stage.jobs_done() == 7)
            .await;
        stage.delete_scale_set().await;
        stage.settle().await;
        stage.cluster().take_log()
    })
}
