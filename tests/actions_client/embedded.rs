//! The embedded service itself.

use crate::world::*;

/// Makes every call about runners slow, and writes down what it sees.
#[derive(Default)]
struct SlowRunners(Mutex<Vec<String>>);

impl Interceptor for SlowRunners {
    fn intercept(&self, call: &CallInfo<'_>) -> Option<Fault> {
        let seen = format!("{} {}", call.name, call.path);
        self.0.lock().unwrap().push(seen);
        let slow = call.path.contains("/agents");
        slow.then(|| Fault::delay(Duration::from_secs(5)))
    }
}

#[tokio::test(start_paused = true)]
async fn an_interceptor_sees_every_call_and_decides_about_it() {
    let clock = Clock::simulated("2026-01-02T03:04:05Z".parse().unwrap());
    let interceptor = Arc::new(SlowRunners::default());
    let mut options = Options::new(clock.clone());
    options.interceptor = Some(interceptor.clone());
    let service = ActionsService::new(options);
    let credentials = Credentials::Token(TOKEN.into());
    let client = client(&service, &clock, &Arc::default(), credentials);
    let begun = Instant::now();
    client.get_runner_group("default").await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    client.find_runner("ci-runner-h").await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    let expected = [
        "create_registration_token /repos/acme/widgets/actions/runners/registration-token",
        "register /actions/runner-registration",
        "get_runner_group /tenants/1/_apis/runtime/runnergroups/",
        "find_runner /tenants/1/_apis/distributedtask/pools/0/agents",
    ];
    assert_eq!(*interceptor.0.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn two_runs_of_the_same_events_give_the_same_log() {
    async fn run() -> Vec<String> {
        let world = world();
        let set = world.scale_set("ci").await;
        let session = world.session(set).await;
        let queue = |_| world.service.queue_job(JobSpec::on("ci"));
        let jobs: Vec<i64> = (0..3).map(queue).collect();
        world.next_message(&session, 0, 9).await;
        world
            .client
            .acquire_jobs(set, &session, &jobs)
            .await
            .unwrap();
        let jit = world.jit(set, "ci-runner-g").await;
        let runner = world.service.runner_online(&jit).unwrap();
        let job = runner.next_job().await.unwrap();
        runner.complete(&job, "succeeded");
        let log = world.log.lock().unwrap();
        log.clone()
    }
    let first = run().await;
    assert!(first.len() > 15, "{first:?}");
    assert_eq!(first, run().await);
}
