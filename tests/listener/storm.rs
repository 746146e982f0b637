//! Ten minutes in which everything goes wrong in a random order, from a seed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use impresario::simulation::actions_service::{
    CallInfo, Fault, Interceptor as ServiceInterceptor, JobSpec, JobState, Outcome, Refusal,
};
use impresario::simulation::api_server::faults::{
    Interceptor as ApiInterceptor, Outcome as ApiOutcome, RequestFate, RequestInfo,
};
use impresario::simulation::api_server::status::ApiError;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use secrecy::ExposeSecret;
use tokio::time::sleep;

use crate::stage::{SCALE_SET, Setting, Stage, minutes, until};

const JOBS: usize = 12;

/// Draws what goes wrong, while it is on.
struct Storm {
    on: AtomicBool,
    rng: Mutex<StdRng>,
}

impl Storm {
    fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            on: AtomicBool::new(false),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
        })
    }

    /// A number below the limit; the limit itself, which stands for nothing, when it is off.
    fn draw(&self, limit: u32) -> u32 {
        if self.on.load(Ordering::Relaxed) {
            self.rng.lock().unwrap().random_range(0..limit)
        } else {
            limit
        }
    }
}

/// Calls that the listener makes: the rest of the stage is not in the storm.
const LISTENER_CALLS: [&str; 6] = [
    "open_session",
    "refresh_session",
    "get_message",
    "delete_message",
    "acquire_jobs",
    "register",
];

impl ServiceInterceptor for Storm {
    fn intercept(&self, call: &CallInfo<'_>) -> Option<Fault> {
        if !LISTENER_CALLS.contains(&call.name) {
            return None;
        }
        let delay = Duration::from_millis(u64::from(self.draw(3_000)));
        let refusal = |status| Outcome::Refuse(Refusal::new(status, "", "the storm"));
        let outcome = match self.draw(24) {
            0 => refusal(401),
            1 => refusal(500),
            2 => refusal(503),
            3 => Outcome::Refuse(Refusal::new(429, "", "slow down").header("retry-after", "3")),
            4 => Outcome::Unreachable,
            5 | 6 => Outcome::LoseAnswer,
            7 if call.name == "get_message" => Outcome::Hang,
            7 | 8 => Outcome::Replace(200, Bytes::from_static(b"<html>")),
            9 if call.name == "refresh_session" => refusal(404),
            10 => Outcome::Replace(202, Bytes::new()),
            24 => return None,
            _ => Outcome::Answer,
        };
        // an acknowledgement or an acquisition that is answered without having happened is
        // not among the faults: nobody could notice
        if matches!(outcome, Outcome::Replace(..)) && call.name != "get_message" {
            return None;
        }
        Some(Fault { delay, outcome })
    }
}

impl ApiInterceptor for Storm {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        if request.verb.is_none() || request.name.is_empty() {
            return RequestFate::default();
        }
        let error = |code, reason| ApiError::new(code, reason, "the storm");
        let outcome = match self.draw(20) {
            0 => ApiOutcome::Refused(error(503, "ServiceUnavailable")),
            1 => ApiOutcome::Refused(error(500, "InternalError")),
            2 => ApiOutcome::Refused(error(409, "Conflict")),
            3 => ApiOutcome::Refused(error(429, "TooManyRequests")),
            4 => ApiOutcome::Lost,
            5 | 6 => ApiOutcome::AnswerLost,
            7 => ApiOutcome::AnsweredWrongly(error(504, "Timeout")),
            8 => ApiOutcome::Stale(2),
            _ => ApiOutcome::Answered,
        };
        RequestFate {
            delay_before: Duration::from_millis(u64::from(self.draw(500) % 500)),
            outcome,
            ..RequestFate::default()
        }
    }
}

/// One runner: takes a job, works half a minute, is done.
async fn work(stage: &Stage, name: &str) {
    let jit = stage.register(name).await;
    let runner = stage
        .service
        .runner_online(jit.encoded.expose_secret())
        .unwrap();
    let job = runner.next_job().await.unwrap();
    sleep(Duration::from_secs(30)).await;
    runner.complete(&job, "succeeded");
}

async fn weather(seed: u64) {
    let storm = Storm::new(seed);
    let stage = Stage::with(Setting {
        api: Arc::clone(&storm) as Arc<dyn ApiInterceptor>,
        service: Some(Arc::clone(&storm) as Arc<dyn ServiceInterceptor>),
    })
    .await;
    let names: Vec<String> = (0..JOBS).map(|n| format!("linux-runner-{n}")).collect();
    let listener = stage.listen("listener-a", 0, 20);
    until("it listens", || stage.service.sessions().len() == 1).await;

    let runners = futures::future::join_all(names.iter().map(|name| work(&stage, name)));
    let script = async {
        minutes(1).await;
        storm.on.store(true, Ordering::Relaxed);
        for _ in 0..JOBS {
            stage.service.queue_job(JobSpec::on(SCALE_SET));
            sleep(Duration::from_secs(40)).await;
            assert!(stage.service.sessions().len() <= 1);
        }
        minutes(2).await;
        storm.on.store(false, Ordering::Relaxed);
    };
    tokio::join!(runners, script);

    until("the set is empty", || stage.target() == (0, 0)).await;
    until("every end is recorded", || {
        names
            .iter()
            .all(|name| stage.status(name)["jobResult"] == "succeeded")
    })
    .await;
    let jobs = stage.service.jobs();
    assert!(jobs.iter().all(|job| job.state == JobState::Completed));
    for job in &jobs {
        let status = stage.status(&job.runner_name);
        assert_eq!(status["jobId"], job.job_id());
        assert_eq!(status["phase"], "Running");
    }
    // a record whose answer was lost is counted when it is seen to stand
    let counted = |name: &str| (listener.metric(name, "") - 12.0).abs() < f64::EPSILON;
    until("each start and end is counted once", || {
        counted("gha_completed_jobs_total") && counted("gha_started_jobs_total")
    })
    .await;
    until("it listens", || listener.health.ready().is_ok()).await;
    listener.terminate().await.unwrap();
    assert_eq!(stage.service.sessions(), []);
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_every_fault_loses_no_message() {
    for seed in [1, 6, 39, 92, 93, 94] {
        println!("seed {seed}");
        weather(seed).await;
    }
}
