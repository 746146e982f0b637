//! Ten minutes in which everything goes wrong in a random order, from a seed: every refusal, lost
//! and broken answer of the service and of the API server, tokens and sessions that end before
//! their time, messages that come again, elements and statistics that make no sense.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use embedded_actions::{
    CallInfo, Fault, Interceptor as ServiceInterceptor, JobSpec, JobState, Outcome, Refusal,
};
use embedded_kube::ApiError;
use embedded_kube::faults::{
    Interceptor as ApiInterceptor, Outcome as ApiOutcome, RequestFate, RequestInfo,
};
use impresario::clock::Clock;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::stage::{Running, SCALE_SET, START, Setting, Stage, minutes, until};

const JOBS: usize = 12;
/// Of the runs by default; `STORM_SEEDS=1..500` asks for others.
const SEEDS: [u64; 12] = [1, 2, 6, 17, 39, 55, 71, 92, 93, 94, 118, 4711];

/// Draws what goes wrong, while it is on.
struct Storm {
    on: AtomicBool,
    /// So many calls and requests go well beside one of each fault.
    calm: u32,
    rng: Mutex<StdRng>,
    /// The sessions, in the order in which the listener used them.
    used: Mutex<Vec<String>>,
    clock: Clock,
}

impl Storm {
    fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            on: AtomicBool::new(false),
            // from one in which hardly anything gets through to one that hides its faults well
            calm: [10, 40, 120][usize::try_from(seed % 3).unwrap()],
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            used: Mutex::default(),
            clock: Clock::simulated(START.parse().unwrap()),
        })
    }

    /// Takes note of which session a call is about.
    fn saw(&self, call: &CallInfo<'_>) {
        let parts = call.path.split('/');
        let mut parts = parts.skip_while(|part| !["queue", "sessions"].contains(part));
        let mut used = self.used.lock().unwrap();
        if let Some(id) = parts.nth(1)
            && used.last().is_none_or(|last| last != id)
        {
            used.push(id.to_owned());
        }
    }

    /// No session was used any more once there was another.
    fn assert_one_session_at_a_time(&self) {
        let used = self.used.lock().unwrap();
        let mut each = used.clone();
        each.sort();
        each.dedup();
        println!("{} sessions", used.len());
        assert!(!used.is_empty());
        assert_eq!(each.len(), used.len(), "{used:?}");
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
const LISTENER_CALLS: [&str; 8] = [
    "create_registration_token",
    "register",
    "open_session",
    "refresh_session",
    "delete_session",
    "get_message",
    "delete_message",
    "acquire_jobs",
];

impl ServiceInterceptor for Storm {
    fn intercept(&self, call: &CallInfo<'_>) -> Option<Fault> {
        self.saw(call);
        if !LISTENER_CALLS.contains(&call.name) || !self.on.load(Ordering::Relaxed) {
            return None;
        }
        let delay = Duration::from_millis(u64::from(self.draw(3_000)));
        let named = |status, name| Outcome::Refuse(Refusal::new(status, name, "the storm"));
        let refusal = |status| named(status, "");
        let body = |body: &'static [u8]| Outcome::Replace(200, Bytes::from_static(body));
        let limited = || {
            let refusal = Refusal::new(403, "", "API rate limit exceeded.");
            let reset = (self.clock.now().as_second() + 20).to_string();
            refusal
                .header("x-ratelimit-remaining", "0")
                .header("x-ratelimit-reset", reset)
        };
        let outcome = match self.draw(25 + self.calm) {
            0 => refusal(401),
            1 => refusal(403),
            2 => named(404, "RunnerScaleSetSessionNotFoundException"),
            // of an acknowledgement, this says that there is nothing to acknowledge
            3 => refusal(404),
            4 => named(409, "RunnerScaleSetSessionConflictException"),
            5 => refusal(409),
            6 => Outcome::Refuse(Refusal::new(429, "", "slow down").header("retry-after", "3")),
            7 => Outcome::Refuse(Refusal::new(429, "", "slow down").header("retry-after", "100")),
            8 => refusal(500),
            9 => refusal(503),
            10 => refusal(400),
            11 => Outcome::Unreachable,
            12 | 13 => Outcome::LoseAnswer,
            14 => Outcome::Hang,
            15 => body(b""),
            16 => body(b"<html>bad gateway</html>"),
            17 => body(b"{\"messageId\": "),
            18 => body(b"null"),
            19 => Outcome::Replace(202, Bytes::new()),
            20 => named(404, "RunnerScaleSetNotFoundException"),
            21 => Outcome::Refuse(limited()),
            22 => Outcome::Refuse(Refusal::new(502, "", "<html>bad gateway</html>")),
            23 => Outcome::Reset,
            24 => Outcome::Echo,
            _ => Outcome::Answer,
        };
        // an acknowledgement or an acquisition that is answered without having happened is
        // not among the faults: nobody could notice
        if matches!(outcome, Outcome::Replace(..))
            && matches!(call.name, "delete_message" | "acquire_jobs")
        {
            return None;
        }
        Some(Fault { delay, outcome })
    }
}

impl ApiInterceptor for Storm {
    fn request(&self, request: &RequestInfo) -> RequestFate {
        if request.verb.is_none() || request.name.is_empty() || !self.on.load(Ordering::Relaxed) {
            return RequestFate::default();
        }
        let error = |code, reason| ApiError::new(code, reason, "the storm");
        let target = request.resource.starts_with("ephemeralrunnersets");
        let outcome = match self.draw(12 + self.calm) {
            0 => ApiOutcome::Refused(error(503, "ServiceUnavailable")),
            1 => ApiOutcome::Refused(error(500, "InternalError")),
            2 => ApiOutcome::Refused(error(409, "Conflict")),
            3 => ApiOutcome::Refused(error(429, "TooManyRequests")),
            4 => ApiOutcome::Refused(error(403, "Forbidden")),
            5 => ApiOutcome::Refused(error(401, "Unauthorized")),
            // of a runner, this says that there is nothing to record on
            6 if target => ApiOutcome::Refused(error(404, "NotFound")),
            7 => ApiOutcome::Lost,
            8 | 9 => ApiOutcome::AnswerLost,
            10 => ApiOutcome::AnsweredWrongly(error(504, "Timeout")),
            11 => ApiOutcome::Stale(2),
            _ => ApiOutcome::Answered,
        };
        let slow = u64::from(self.draw(500));
        let hangs = self.draw(60) == 0;
        RequestFate {
            delay_before: Duration::from_millis(if hangs { 40_000 } else { slow }),
            outcome,
            ..RequestFate::default()
        }
    }
}

/// Statistics that are none or wrong, and an element that nobody knows.
fn bend(storm: &Storm, message: &mut Value) {
    if !message.is_object() {
        return;
    }
    let wrong = |assigned: i64| json!({"totalAssignedJobs": assigned, "totalIdleRunners": -4});
    match storm.draw(16) {
        0 => message["statistics"] = Value::Null,
        1 => message["statistics"] = json!({}),
        2 => message["statistics"] = json!("many"),
        3 => message["statistics"] = wrong(999),
        4 => message["statistics"] = wrong(0),
        5 => message["statistics"] = wrong(-1),
        6 => message["statistics"] = json!({"totalAssignedJobs": "3"}),
        7 => message["somethingNew"] = json!([{}]),
        _ => {}
    }
}

/// One thing that happens to the service itself, or in it.
fn strike(storm: &Storm, stage: &Stage) {
    let odd = match storm.draw(10 + storm.calm) {
        0 => return stage.service.expire_queue_tokens(),
        1 => return stage.service.expire_tenant_tokens(),
        2 => return stage.service.drop_sessions(),
        3..=7 => return stage.service.deliver_again(stage.scale_set),
        8 => json!("rubbish"),
        9 => json!({"messageType": "JobPaused", "runnerRequestId": 7}),
        10 => json!({"messageType": "JobStarted", "runnerName": "nobody"}),
        11 => json!([1, null]),
        _ => return,
    };
    stage.service.tell(stage.scale_set, odd);
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

/// Ten minutes of storm, second by second.
async fn blow(storm: &Storm, stage: &Stage) {
    minutes(1).await;
    storm.on.store(true, Ordering::Relaxed);
    for second in 0..600 {
        if second % 40 == 0 && second / 40 < JOBS {
            stage.service.queue_job(JobSpec::on(SCALE_SET));
        }
        if second % 5 == 0 {
            strike(storm, stage);
        }
        sleep(Duration::from_secs(1)).await;
        assert!(stage.service.sessions().len() <= 1);
    }
    storm.on.store(false, Ordering::Relaxed);
}

struct Weather {
    storm: Arc<Storm>,
    stage: Stage,
    names: Vec<String>,
}

impl Weather {
    async fn new(seed: u64) -> Self {
        println!("seed {seed}");
        let storm = Storm::new(seed);
        let stage = Stage::with(Setting {
            api: Arc::clone(&storm) as Arc<dyn ApiInterceptor>,
            service: Some(Arc::clone(&storm) as Arc<dyn ServiceInterceptor>),
            ..Setting::default()
        })
        .await;
        let bending = Arc::clone(&storm);
        stage.wire.bend(move |message| bend(&bending, message));
        let names = (0..JOBS).map(|number| format!("linux-runner-{number}"));
        Self {
            names: names.collect(),
            storm,
            stage,
        }
    }

    /// Jobs come, run and end, through the storm.
    async fn pass(&self) {
        let workers = self.names.iter().map(|name| work(&self.stage, name));
        let workers = futures::future::join_all(workers);
        tokio::join!(workers, blow(&self.storm, &self.stage));
        // what the last statistics of the storm said may be wrong: here are others
        let calm = json!({"messageType": "Calm"});
        self.stage.service.tell(self.stage.scale_set, calm);
    }

    /// All jobs ran, and each is recorded on its runner.
    async fn assert_nothing_lost(&self) {
        let stage = &self.stage;
        until("the set is empty", || stage.target() == (0, 0)).await;
        until("every end is recorded", || {
            let mut names = self.names.iter();
            names.all(|name| stage.status(name)["jobResult"] == "succeeded")
        })
        .await;
        let jobs = stage.service.jobs();
        assert_eq!(jobs.len(), JOBS);
        assert!(jobs.iter().all(|job| job.state == JobState::Completed));
        for job in &jobs {
            let status = stage.status(&job.runner_name);
            assert_eq!(status["jobId"], job.job_id());
            assert_eq!(status["phase"], "Running");
        }
    }

    /// Start and end are written once each, whatever became of the answers.
    fn assert_nothing_written_twice(&self) {
        let mut written: BTreeMap<&str, usize> = BTreeMap::new();
        let log = self.stage.api.take_log();
        for name in &self.names {
            let change = format!("modified ephemeralrunners.actions.github.com ci/{name} ");
            let count = log.iter().filter(|line| line.contains(&change)).count();
            written.insert(name, count);
        }
        assert!(written.values().all(|count| *count == 2), "{written:?}");
    }
}

async fn ended_well(stage: &Stage, listener: Running) {
    until("it listens", || listener.health.ready().is_ok()).await;
    assert_eq!(listener.health.live(), Ok(()));
    listener.terminate().await.unwrap();
    assert_eq!(stage.service.sessions(), []);
}

fn seeds() -> Vec<u64> {
    let Ok(range) = std::env::var("STORM_SEEDS") else {
        return SEEDS.to_vec();
    };
    let (first, last) = range.split_once("..").expect("STORM_SEEDS=FIRST..LAST");
    (first.parse().unwrap()..last.parse().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_every_fault_loses_no_message_and_counts_none_twice() {
    for seed in seeds() {
        let weather = Weather::new(seed).await;
        let stage = &weather.stage;
        let listener = stage.listen("listener-a", 0, 20);
        until("it listens", || stage.service.sessions().len() == 1).await;
        weather.pass().await;
        assert!(!listener.task.is_finished());
        weather.assert_nothing_lost().await;
        weather.assert_nothing_written_twice();
        weather.storm.assert_one_session_at_a_time();
        // a record whose answer was lost is counted when it is seen to stand
        let all = JOBS as f64;
        let counted = |name: &str| (listener.metric(name, "") - all).abs() < f64::EPSILON;
        until("each start and end is counted once", || {
            counted("gha_completed_jobs_total") && counted("gha_started_jobs_total")
        })
        .await;
        ended_well(stage, listener).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_is_killed_again_and_again_in_a_storm_loses_no_message() {
    for seed in seeds() {
        let weather = Weather::new(seed).await;
        let stage = &weather.stage;
        let listener = Mutex::new(Some(stage.listen("listener-a", 0, 20)));
        until("it listens", || stage.service.sessions().len() == 1).await;
        let killing = async {
            for death in 0..4 {
                // not at the beat of the jobs
                sleep(Duration::from_secs(97 + 13 * death + seed % 31)).await;
                let running = listener.lock().unwrap().take();
                running.unwrap().kill().await;
                let next = stage.listen("listener-a", 0, 20);
                *listener.lock().unwrap() = Some(next);
            }
        };
        tokio::join!(weather.pass(), killing);
        weather.assert_nothing_lost().await;
        weather.assert_nothing_written_twice();
        weather.storm.assert_one_session_at_a_time();
        let listener = listener.into_inner().unwrap().unwrap();
        ended_well(stage, listener).await;
    }
}
