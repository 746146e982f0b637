//! A run is a function of its seed, also when it lasts so long that watches are renewed, and
//! the service is in trouble.

use std::time::Duration;

use embedded_actions::{CALLS, NamedFault};

use crate::stage::manifests::SET;
use crate::stage::{Stage, play};

#[test]
fn long_runs_in_trouble_with_one_seed_give_the_same_log() {
    let first = log_of_a_run();
    assert!(first.len() > 500, "only {} lines", first.len());
    // what is drawn at random shows in some runs only
    for _ in 0..3 {
        let other = log_of_a_run();
        for (number, (one, other)) in first.iter().zip(&other).enumerate() {
            assert_eq!(one, other, "line {number} differs");
        }
        assert_eq!(first.len(), other.len());
    }
}

/// Twenty-five minutes with jobs, in which all calls go wrong in turn.
fn log_of_a_run() -> Vec<String> {
    play(async || {
        let stage = Stage::whole(41).await;
        stage.settled_fixture(1, 4).await;
        let faults = stage.actions.faults();
        for fault in [
            NamedFault::Unavailable { retry_after: None },
            NamedFault::AnswerLost,
            NamedFault::ConnectionReset,
            NamedFault::SessionGone,
            NamedFault::GarbageBody,
        ] {
            stage.queue_jobs(2, SET, Duration::from_secs(9));
            let fault = fault.at(stage.cluster().clock.now());
            for call in CALLS {
                faults.lasting(call, Duration::from_secs(15), fault.clone());
            }
            stage.pass(Duration::from_secs(300)).await;
        }
        stage.cluster().take_log()
    })
}
