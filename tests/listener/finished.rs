//! The ends of jobs, as the runner set is told of them.

use std::time::Duration;

use secrecy::ExposeSecret;
use tokio::time::sleep;

use impresario::api::constants::annotations;
use impresario::clock::Timestamp;
use impresario::simulation::actions_service::JobSpec;

use super::stage::{NAMESPACE, RUNNER_SET, SCALE_SET, Stage, until};

/// Up to when finished jobs are left out of `replicas`.
fn told(stage: &Stage) -> Option<String> {
    let (group, plural) = ("actions.github.com", "ephemeralrunnersets");
    let set = stage.api.get(group, plural, NAMESPACE, RUNNER_SET).unwrap();
    let annotation = &set["metadata"]["annotations"][annotations::JOBS_COUNTED_UNTIL];
    annotation.as_str().map(str::to_owned)
}

/// Runs one job on a runner of that name; gives when its end was recorded.
async fn job_on(stage: &Stage, name: &str) -> String {
    stage.service.queue_job(JobSpec::on(SCALE_SET));
    until("a runner is asked for", || stage.target().0 == 1).await;
    let jit = stage.register(name).await;
    let runner = stage
        .service
        .runner_online(jit.encoded.expose_secret())
        .unwrap();
    let job = runner.next_job().await.unwrap();
    sleep(Duration::from_secs(20)).await;
    runner.complete(&job, "succeeded");
    until("none is asked for", || stage.target().0 == 0).await;
    let status = stage.status(name);
    status["jobFinishedAt"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_target_that_leaves_a_finished_job_out_says_so_by_the_time_of_its_record() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    until("nobody is asked for", || stage.target() == (0, 0)).await;
    assert_eq!(told(&stage), None);
    let first = job_on(&stage, "runner-a").await;
    assert_eq!(first.len(), "2026-03-04T05:06:07.000000Z".len(), "{first}");
    assert_eq!(told(&stage).as_ref(), Some(&first));
    let second = job_on(&stage, "runner-b").await;
    assert_eq!(told(&stage).as_ref(), Some(&second));
    assert!(second > first);
    listener.terminate().await.unwrap();
}

/// Otherwise an end would be taken for one that an old target leaves out.
#[tokio::test(start_paused = true)]
async fn a_listener_whose_clock_is_behind_goes_on_where_its_predecessor_was() {
    let stage = Stage::new().await;
    let listener = stage.listen("listener-a", 0, 10);
    let first: Timestamp = job_on(&stage, "runner-a").await.parse().unwrap();
    listener.terminate().await.unwrap();
    stage.clock.jump(-3_600_000);
    let listener = stage.listen("listener-b", 0, 10);
    let second: Timestamp = job_on(&stage, "runner-b").await.parse().unwrap();
    assert_eq!(second.duration_since(first).as_micros(), 1);
    assert_eq!(told(&stage).unwrap().parse::<Timestamp>().unwrap(), second);
    listener.terminate().await.unwrap();
}
