//! The client of the Actions service against the embedded one, in process and under paused
//! time: every call, every refusal, and how it holds on when the service does not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use impresario::actions::{
    Client, ClientOptions, ErrorKind, JobMessage, Message, Observer, Polled, Proxies, ProxyServer,
    ReqwestTransports, Session, TransportErrorKind, TransportOptions, Transports as _,
};
use impresario::api::{ConfigUrl, Credentials};
use impresario::clock::Clock;
use impresario::messages::{ActionsError, ActionsErrorKind};
use impresario::simulation::actions_service::{
    ActionsService, CallInfo, Fault, Interceptor, JobSpec, JobState, Options, Outcome, Refusal,
};
use secrecy::ExposeSecret;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

const TOKEN: &str = "ghp_orchid";
const NOBODY: i64 = 987_654;

struct World {
    service: ActionsService,
    client: Client,
    requests: Arc<Requests>,
    log: Arc<Mutex<Vec<String>>>,
    clock: Clock,
}

/// Counts requests by call and outcome.
#[derive(Default)]
struct Requests(Mutex<BTreeMap<(&'static str, String), u32>>);

impl Observer for Requests {
    fn request(&self, call: &'static str, outcome: &str, _duration: Duration) {
        let key = (call, outcome.to_owned());
        *self.0.lock().unwrap().entry(key).or_default() += 1;
    }
}

impl Requests {
    fn of(&self, call: &str) -> u32 {
        let counts = self.0.lock().unwrap();
        let of_call = counts.iter().filter(|((name, _), _)| *name == call);
        of_call.map(|(_, count)| count).sum()
    }

    fn with(&self, call: &'static str, outcome: &str) -> u32 {
        let counts = self.0.lock().unwrap();
        let count = counts.get(&(call, outcome.to_owned()));
        count.copied().unwrap_or_default()
    }
}

fn world() -> World {
    let clock = Clock::simulated("2026-01-02T03:04:05Z".parse().unwrap());
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut options = Options::new(clock.clone());
    let sink = Arc::clone(&log);
    options.log = Some(Arc::new(move |line: &str| {
        sink.lock().unwrap().push(line.to_owned());
    }));
    let service = ActionsService::new(options);
    service.accept_only([TOKEN]);
    let requests: Arc<Requests> = Arc::default();
    let client = client(
        &service,
        &clock,
        &requests,
        Credentials::Token(TOKEN.into()),
    );
    World {
        service,
        client,
        requests,
        log,
        clock,
    }
}

fn client(
    service: &ActionsService,
    clock: &Clock,
    requests: &Arc<Requests>,
    credentials: Credentials,
) -> Client {
    let url = ConfigUrl::parse("https://github.com/acme/widgets").unwrap();
    let mut options = ClientOptions::new(url, credentials);
    options.observer = Some(requests.clone());
    let transport = service.transports().transport(&TransportOptions::default());
    Client::new(options, transport.unwrap(), clock.clone()).unwrap()
}

impl World {
    async fn scale_set(&self, name: &str) -> i64 {
        let labels = [name.to_owned(), "gpu".to_owned()];
        let set = self.client.create_scale_set(name, 1, &labels).await;
        set.unwrap().id
    }

    async fn session(&self, set: i64) -> Session {
        self.client.open_session(set, "listener-0").await.unwrap()
    }

    async fn next_message(&self, session: &Session, last: i64, capacity: i64) -> Message {
        match self.client.get_message(session, last, capacity).await {
            Ok(Polled::Message(message)) => message,
            other => panic!("no message: {other:?}"),
        }
    }

    async fn jit(&self, set: i64, name: &str) -> String {
        let jit = self
            .client
            .generate_jit_config(set, name, "")
            .await
            .unwrap();
        jit.encoded.expose_secret().to_owned()
    }
}

fn kinds(message: &Message) -> Vec<(&'static str, i64)> {
    let kind = |job: &JobMessage| match job {
        JobMessage::Available(job) => ("available", job.runner_request_id),
        JobMessage::Assigned(job) => ("assigned", job.runner_request_id),
        JobMessage::Started(job) => ("started", job.runner_request_id),
        JobMessage::Completed(job) => ("completed", job.runner_request_id),
        JobMessage::Unknown { .. } => ("unknown", 0),
    };
    message.jobs.iter().map(kind).collect()
}

// === scale sets and runners ===

#[tokio::test(start_paused = true)]
async fn a_scale_set_is_found_created_changed_and_deleted() {
    let World {
        service, client, ..
    } = world();
    let group = service.add_runner_group("Big Machines");
    let found = client.get_runner_group("big machines").await.unwrap();
    assert_eq!((found.id, found.name.as_str()), (group, "Big Machines"));
    assert_eq!(client.find_scale_set(group, "ci-gpu").await, Ok(None));

    let labels = ["ci-gpu".to_owned(), "cuda".to_owned()];
    let created = client
        .create_scale_set("ci-gpu", group, &labels)
        .await
        .unwrap();
    assert_eq!(created.group_name, "Big Machines");
    assert_eq!(created.labels, labels);
    assert!(service.scale_sets()[0].disable_update);
    let taken = client.create_scale_set("ci-gpu", group, &labels).await;
    assert_eq!(taken.unwrap_err().status, Some(409));
    let found = client.find_scale_set(group, "CI-GPU").await;
    assert_eq!(found, Ok(Some(created.clone())));
    assert_eq!(client.find_scale_set(1, "ci-gpu").await, Ok(None));

    let changed = client.update_scale_set(created.id, "ci-big", 1, &labels[1..]);
    let changed = changed.await.unwrap();
    assert_eq!((changed.group_id, changed.name.as_str()), (1, "ci-big"));
    assert_eq!(client.get_scale_set(created.id).await, Ok(Some(changed)));

    client.delete_scale_set(created.id).await.unwrap();
    client.delete_scale_set(created.id).await.unwrap();
    assert_eq!(client.get_scale_set(created.id).await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_exist_is_told_apart() {
    let World { client, .. } = world();
    let group = client.get_runner_group("nope").await.unwrap_err();
    assert_eq!(group.kind, ErrorKind::GroupNotFound);
    assert!(group.message.contains("\"nope\""), "{group}");
    let update = client
        .update_scale_set(NOBODY, "a", 1, &[])
        .await
        .unwrap_err();
    assert_eq!(update.kind, ErrorKind::ScaleSetNotFound);
    let jit = client
        .generate_jit_config(NOBODY, "a", "")
        .await
        .unwrap_err();
    assert_eq!(jit.kind, ErrorKind::ScaleSetNotFound);
    let removal = client.remove_runner(NOBODY).await.unwrap_err();
    assert_eq!(removal.kind, ErrorKind::RunnerNotFound);
    assert_eq!(client.get_runner(NOBODY).await, Ok(None));
    assert_eq!(client.find_runner("nope").await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_name_is_registered_once_and_can_be_looked_up_and_freed() {
    let world = world();
    let set = world.scale_set("ci").await;
    let client = &world.client;
    let jit = client
        .generate_jit_config(set, "ci-runner-a", "_work")
        .await
        .unwrap();
    let taken = client
        .generate_jit_config(set, "ci-runner-a", "")
        .await
        .unwrap_err();
    assert_eq!(taken.kind, ErrorKind::RunnerExists);
    let found = client.find_runner("ci-runner-a").await.unwrap().unwrap();
    assert_eq!(found, jit.runner);
    assert_eq!(found.scale_set_id, set);
    assert_eq!(client.get_runner(found.id).await, Ok(Some(found.clone())));
    client.remove_runner(found.id).await.unwrap();
    client
        .generate_jit_config(set, "ci-runner-a", "")
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_error_names_the_refusal_and_the_ids_to_ask_about() {
    let World { client, .. } = world();
    let text = client.remove_runner(NOBODY).await.unwrap_err().to_string();
    assert!(text.starts_with("remove_runner failed: 404 "), "{text}");
    for part in [
        "AgentNotFoundException",
        "987654",
        "ActivityId",
        "X-GitHub-Request-Id",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

// === jobs ===

#[tokio::test(start_paused = true)]
async fn a_job_goes_from_offer_to_completion_and_its_runner_deregisters_itself() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    assert_eq!(session.owner_name, "listener-0");
    assert_eq!(session.statistics.unwrap().assigned_jobs, 0);
    let job = JobSpec::on("GPU").lasting(Duration::from_secs(40));
    let job = world.service.queue_job(job);

    let offer = world.next_message(&session, 0, 5).await;
    assert_eq!(kinds(&offer), [("available", job)]);
    assert_eq!(offer.statistics.unwrap().available_jobs, 1);
    let acquired = world
        .client
        .acquire_jobs(set, &session, &[job, NOBODY])
        .await;
    assert_eq!(acquired, Ok(vec![job]));
    world
        .client
        .delete_message(&session, offer.id)
        .await
        .unwrap();

    let assigned = world.next_message(&session, offer.id, 5).await;
    assert_eq!(kinds(&assigned), [("assigned", job)]);
    assert_eq!(assigned.statistics.unwrap().assigned_jobs, 1);

    let jit = world.jit(set, "ci-runner-b").await;
    let runner = world.service.runner_online(&jit).unwrap();
    let work = runner.next_job().await.unwrap();
    assert_eq!((work.id, work.spec.duration.as_secs()), (job, 40));
    let busy = world.client.remove_runner(runner.id()).await.unwrap_err();
    assert_eq!(busy.kind, ErrorKind::JobStillRunning);

    let started = world.next_message(&session, assigned.id, 5).await;
    let [JobMessage::Started(details)] = started.jobs.as_slice() else {
        panic!("{started:?}");
    };
    assert_eq!(details.runner_name, "ci-runner-b");
    assert_eq!(details.runner_id, runner.id());
    assert_eq!(details.owner_name, "acme");
    assert_eq!(details.repository_name, "widgets");
    assert!(details.finish_time.is_none() && details.runner_assign_time.is_some());
    assert_eq!(started.statistics.unwrap().busy_runners, 1);

    sleep(work.spec.duration).await;
    runner.complete(&work, "succeeded");
    let completed = world.next_message(&session, started.id, 5).await;
    let [JobMessage::Completed(details)] = completed.jobs.as_slice() else {
        panic!("{completed:?}");
    };
    assert_eq!(details.result, "succeeded");
    let begun = details.runner_assign_time.unwrap();
    let ran = details.finish_time.unwrap().duration_since(begun);
    assert_eq!(ran.as_secs(), 40);
    assert!(world.service.runners().is_empty());
    assert_eq!(world.service.job(job).unwrap().state, JobState::Completed);
    assert!(world.service.runners_with_several_jobs().is_empty());
}

#[tokio::test(start_paused = true)]
async fn jobs_are_offered_up_to_the_capacity_that_a_poll_tells() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    let queue = |_| world.service.queue_job(JobSpec::on("ci"));
    let jobs: Vec<i64> = (0..5).map(queue).collect();
    let offer = world.next_message(&session, 0, 2).await;
    assert_eq!(
        kinds(&offer),
        [("available", jobs[0]), ("available", jobs[1])]
    );
    let acquired = world.client.acquire_jobs(set, &session, &jobs).await;
    assert_eq!(acquired, Ok(jobs[..2].to_vec()));
    let assigned = world.next_message(&session, offer.id, 2).await;
    let statistics = assigned.statistics.unwrap();
    assert_eq!(statistics.assigned_jobs, 2);
    assert_eq!(statistics.available_jobs, 0);

    // One ends: there is room for one more.
    let jit = world.jit(set, "ci-runner-c").await;
    let runner = world.service.runner_online(&jit).unwrap();
    let work = runner.next_job().await.unwrap();
    runner.complete(&work, "failed");
    let next = world.next_message(&session, assigned.id, 2).await;
    let expected = [
        ("started", jobs[0]),
        ("completed", jobs[0]),
        ("available", jobs[2]),
    ];
    assert_eq!(kinds(&next), expected);
}

#[tokio::test(start_paused = true)]
async fn a_scale_set_without_capacity_is_offered_nothing() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    world.service.queue_job(JobSpec::on("ci"));
    let polled = world.client.get_message(&session, 0, 0).await;
    assert_eq!(polled, Ok(Polled::None));
}

#[tokio::test(start_paused = true)]
async fn a_job_of_another_owner_is_not_offered() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    let mut foreign = JobSpec::on("ci");
    foreign.owner = "umbrella".to_owned();
    world.service.queue_job(foreign);
    let own = world.service.queue_job(JobSpec::on("ci"));
    let offer = world.next_message(&session, 0, 9).await;
    assert_eq!(kinds(&offer), [("available", own)]);
}

#[tokio::test(start_paused = true)]
async fn a_message_comes_again_until_it_is_acknowledged() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    world.service.queue_job(JobSpec::on("ci"));
    let first = world.next_message(&session, 0, 9).await;
    assert_eq!(world.next_message(&session, 0, 9).await, first);
    world
        .client
        .delete_message(&session, first.id)
        .await
        .unwrap();
    world
        .client
        .delete_message(&session, first.id)
        .await
        .unwrap();
    let polled = world.client.get_message(&session, 0, 9).await;
    assert_eq!(polled, Ok(Polled::None));
}

#[tokio::test(start_paused = true)]
async fn an_acknowledged_message_can_be_made_to_come_again() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    world.service.queue_job(JobSpec::on("ci"));
    let first = world.next_message(&session, 0, 9).await;
    world
        .client
        .delete_message(&session, first.id)
        .await
        .unwrap();
    world.service.deliver_again(set);
    let second = world.next_message(&session, first.id, 9).await;
    assert_eq!(second, first);
    let polled = world.client.get_message(&session, first.id, 9).await;
    assert_eq!(polled, Ok(Polled::None));
}

#[tokio::test(start_paused = true)]
async fn what_a_message_brings_that_nobody_knows_is_kept_apart() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    let element = serde_json::json!({"messageType": "JobPaused"});
    world.service.tell(set, element);
    let job = world.service.queue_job(JobSpec::on("ci"));
    let message = world.next_message(&session, 0, 9).await;
    assert_eq!(kinds(&message), [("unknown", 0), ("available", job)]);
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_delivery_was_lost_comes_again() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    let job = world.service.queue_job(JobSpec::on("ci"));
    world
        .service
        .faults()
        .next("get_message", Outcome::LoseAnswer);
    let lost = world.client.get_message(&session, 0, 9).await.unwrap_err();
    assert_eq!(lost.kind, ErrorKind::Unavailable);
    let again = world.next_message(&session, 0, 9).await;
    assert_eq!(kinds(&again), [("available", job)]);
}

#[tokio::test(start_paused = true)]
async fn an_offer_that_nobody_takes_up_is_made_again() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    let job = world.service.queue_job(JobSpec::on("ci"));
    let first = world.next_message(&session, 0, 9).await;
    world
        .client
        .delete_message(&session, first.id)
        .await
        .unwrap();
    let begun = Instant::now();
    let polled = world.client.get_message(&session, first.id, 9).await;
    assert_eq!(polled, Ok(Polled::None));
    let second = world.next_message(&session, first.id, 9).await;
    assert_eq!(kinds(&second), [("available", job)]);
    assert_eq!(begun.elapsed(), Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_poll_is_held_and_ends_without_a_message() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    let begun = Instant::now();
    let polled = world.client.get_message(&session, 0, 9).await;
    assert_eq!(polled, Ok(Polled::None));
    assert_eq!(begun.elapsed(), Duration::from_secs(50));
}

#[tokio::test(start_paused = true)]
async fn a_held_poll_ends_as_soon_as_something_happens() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    let begun = Instant::now();
    let later = async {
        sleep(Duration::from_secs(7)).await;
        world.service.queue_job(JobSpec::on("ci"))
    };
    let (message, job) = tokio::join!(world.next_message(&session, 0, 9), later);
    assert_eq!(kinds(&message), [("available", job)]);
    assert_eq!(begun.elapsed(), Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_job_cancelled_before_it_starts_is_told_as_completed() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    let job = world.service.queue_job(JobSpec::on("ci"));
    let offer = world.next_message(&session, 0, 9).await;
    assert!(world.service.cancel_job(job));
    assert!(!world.service.cancel_job(job));
    let message = world.next_message(&session, offer.id, 9).await;
    let [JobMessage::Completed(details)] = message.jobs.as_slice() else {
        panic!("{message:?}");
    };
    assert_eq!(
        (details.result.as_str(), details.runner_id),
        ("canceled", 0)
    );
    let acquired = world.client.acquire_jobs(set, &session, &[job]).await;
    assert_eq!(acquired, Ok(vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_runner_lost_with_its_job_fails_it_after_a_while() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    let job = world.service.queue_job(JobSpec::on("ci"));
    world.next_message(&session, 0, 9).await;
    world
        .client
        .acquire_jobs(set, &session, &[job])
        .await
        .unwrap();
    let jit = world.jit(set, "ci-runner-d").await;
    let runner = world.service.runner_online(&jit).unwrap();
    runner.next_job().await.unwrap();
    let id = runner.id();
    drop(runner);
    let again = world.service.runner_online(&jit).err().unwrap();
    assert!(again.to_string().contains("has been used"), "{again}");
    let busy = world.client.remove_runner(id).await.unwrap_err();
    assert_eq!(busy.kind, ErrorKind::JobStillRunning);
    let gone = |service: &ActionsService| service.runners().is_empty();
    world.service.until(gone).await;
    assert_eq!(world.service.job(job).unwrap().result, "failed");
}

#[tokio::test(start_paused = true)]
async fn an_idle_runner_that_is_removed_ends_without_a_job() {
    let world = world();
    let set = world.scale_set("ci").await;
    let jit = world.jit(set, "ci-runner-e").await;
    let runner = world.service.runner_online(&jit).unwrap();
    let removal = world.client.remove_runner(runner.id());
    let (job, removed) = tokio::join!(runner.next_job(), removal);
    assert_eq!((job, removed), (None, Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_jit_configuration_serves_one_runner_at_a_time() {
    let world = world();
    let set = world.scale_set("ci").await;
    let jit = world.jit(set, "ci-runner-f").await;
    let runner = world.service.runner_online(&jit).unwrap();
    let second = world.service.runner_online(&jit).err().unwrap();
    assert!(second.to_string().contains("online already"), "{second}");
    runner.offline();
    world.service.runner_online(&jit).unwrap().offline();
    for garbage in ["", "%%%", "e30="] {
        let error = world.service.runner_online(garbage).err().unwrap();
        assert!(error.to_string().contains("cannot be read"), "{error}");
    }
}

// === sessions ===

#[tokio::test(start_paused = true)]
async fn a_second_session_is_refused_and_the_holder_named() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world
        .client
        .open_session(set, "listener-old")
        .await
        .unwrap();
    let refused = world
        .client
        .open_session(set, "listener-new")
        .await
        .unwrap_err();
    assert_eq!(refused.kind, ErrorKind::SessionConflict);
    assert!(refused.to_string().contains("listener-old"), "{refused}");
    world.client.delete_session(set, &session.id).await.unwrap();
    world
        .client
        .open_session(set, "listener-new")
        .await
        .unwrap();
    assert_eq!(world.service.sessions()[0].owner, "listener-new");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_polls_for_gives_way() {
    let world = world();
    let set = world.scale_set("ci").await;
    world
        .client
        .open_session(set, "listener-killed")
        .await
        .unwrap();
    sleep(Duration::from_secs(121)).await;
    world
        .client
        .open_session(set, "listener-new")
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_expired_queue_token_is_told_apart_and_refreshed() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    let expire = async {
        sleep(Duration::from_secs(3)).await;
        world.service.expire_queue_tokens();
    };
    let poll = world.client.get_message(&session, 0, 9);
    let (polled, ()) = tokio::join!(poll, expire);
    assert_eq!(polled.unwrap_err().kind, ErrorKind::QueueTokenExpired);
    let acknowledged = world.client.delete_message(&session, 1).await;
    assert_eq!(acknowledged.unwrap_err().kind, ErrorKind::QueueTokenExpired);
    let acquired = world.client.acquire_jobs(set, &session, &[1]).await;
    assert_eq!(acquired.unwrap_err().kind, ErrorKind::QueueTokenExpired);
    let refreshed = world
        .client
        .refresh_session(set, &session.id)
        .await
        .unwrap();
    assert_eq!(refreshed.id, session.id);
    let polled = world.client.get_message(&refreshed, 0, 9).await;
    assert_eq!(polled, Ok(Polled::None));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_the_service_forgot_is_told_apart() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    world.service.drop_sessions();
    let polled = world.client.get_message(&session, 0, 9).await;
    assert_eq!(polled.unwrap_err().kind, ErrorKind::QueueTokenExpired);
    let refreshed = world.client.refresh_session(set, &session.id).await;
    assert_eq!(refreshed.unwrap_err().kind, ErrorKind::SessionNotFound);
    let deleted = world.client.delete_session(set, &session.id).await;
    assert_eq!(deleted.unwrap_err().kind, ErrorKind::SessionNotFound);
}

#[tokio::test(start_paused = true)]
async fn jobs_on_offer_to_a_closed_session_are_offered_to_the_next() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    let job = world.service.queue_job(JobSpec::on("ci"));
    let offer = world.next_message(&session, 0, 9).await;
    world
        .client
        .delete_message(&session, offer.id)
        .await
        .unwrap();
    world.client.delete_session(set, &session.id).await.unwrap();
    let session = world.session(set).await;
    let offer = world.next_message(&session, offer.id, 9).await;
    assert_eq!(kinds(&offer), [("available", job)]);
}

#[tokio::test(start_paused = true)]
async fn a_success_that_cannot_be_read_is_no_error_of_a_poll() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    for body in ["", "<html>oops</html>"] {
        let replaced = Outcome::Replace(200, body.into());
        world.service.faults().next("get_message", replaced);
        let polled = world.client.get_message(&session, 0, 9).await.unwrap();
        let unreadable = matches!(polled, Polled::Unreadable { status: 200, .. });
        assert!(unreadable, "{polled:?}");
    }
}

// === tokens ===

#[tokio::test(start_paused = true)]
async fn many_calls_share_one_registration() {
    let world = world();
    let set = world.scale_set("ci").await;
    world.service.expire_tenant_tokens();
    let calls = (0..50).map(|_| world.client.get_scale_set(set));
    for found in join_all(calls).await {
        assert_eq!(found.unwrap().unwrap().id, set);
    }
    // One at the start, one after the token was refused.
    assert_eq!(world.requests.of("register"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_refreshed_when_less_than_a_minute_is_left() {
    let world = world();
    let set = world.scale_set("ci").await;
    sleep(Duration::from_secs(3600 - 61)).await;
    world.client.get_scale_set(set).await.unwrap();
    assert_eq!(world.requests.of("register"), 1);
    sleep(Duration::from_secs(2)).await;
    world.client.get_scale_set(set).await.unwrap();
    assert_eq!(world.requests.of("register"), 2);
    assert_eq!(world.requests.with("get_scale_set", "401"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_fails_harms_nobody_while_the_old_token_lasts() {
    let world = world();
    let set = world.scale_set("ci").await;
    sleep(Duration::from_secs(3600 - 50)).await;
    let faults = world.service.faults();
    faults.always("create_registration_token", Fault::refuse(400, "X"));
    world.client.get_scale_set(set).await.unwrap();
    sleep(Duration::from_secs(60)).await;
    world.client.get_scale_set(set).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn callers_that_waited_for_a_failed_refresh_do_not_repeat_it() {
    let world = world();
    let slow = Fault {
        delay: Duration::from_secs(1),
        outcome: Outcome::Refuse(Refusal::new(403, "", "no")),
    };
    world
        .service
        .faults()
        .always("create_registration_token", slow);
    let calls = (0..20).map(|_| world.client.get_scale_set(1));
    for error in join_all(calls).await {
        assert_eq!(error.unwrap_err().kind, ErrorKind::Unauthorized);
    }
    assert_eq!(world.requests.of("create_registration_token"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_registration_refused_at_first_is_retried() {
    for status in [401, 403] {
        let world = world();
        for _ in 0..2 {
            let fault = Fault::refuse(status, "NotYet");
            world.service.faults().next("register", fault);
        }
        world.scale_set("ci").await;
        assert_eq!(world.requests.of("register"), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_are_told_as_such_without_showing_them() {
    let world = world();
    world.service.accept_only(["another"]);
    let error = world.client.get_scale_set(1).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unauthorized);
    let text = format!("{error} {error:?}");
    assert!(text.contains("https://github.com/acme/widgets"), "{text}");
    assert!(!text.contains(TOKEN), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_installation_of_an_app_signs_in_with_either_form_of_its_key() {
    let world = world();
    for pem in [PKCS1, PKCS8] {
        let app = Credentials::App {
            app_id: "Iv23liOrchid".to_owned(),
            installation_id: 4711,
            private_key: pem.into(),
        };
        let client = client(&world.service, &world.clock, &world.requests, app);
        client.get_runner_group("default").await.unwrap();
    }
    assert_eq!(world.requests.with("create_installation_token", "201"), 2);
}

// === when the service does not hold ===

#[tokio::test(start_paused = true)]
async fn outages_are_retried_four_times_and_then_told() {
    let world = world();
    let set = world.scale_set("ci").await;
    let faults = world.service.faults();
    for fault in [
        Fault::refuse(500, "Oops"),
        Fault::refuse(503, "Busy"),
        Fault::refuse(429, "Slow"),
        Outcome::Unreachable.into(),
        Outcome::LoseAnswer.into(),
    ] {
        for _ in 0..3 {
            faults.next("get_scale_set", fault.clone());
        }
        world.client.get_scale_set(set).await.unwrap();
        faults.always("get_scale_set", fault);
        let before = world.requests.of("get_scale_set");
        let error = world.client.get_scale_set(set).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert_eq!(world.requests.of("get_scale_set") - before, 4);
        faults.clear("get_scale_set");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_up_to_half_a_minute() {
    let world = world();
    let set = world.scale_set("ci").await;
    let faults = world.service.faults();
    let busy = |wait: &str| Refusal::new(429, "", "slow down").header("retry-after", wait);
    faults.next("get_scale_set", busy("17"));
    let begun = Instant::now();
    world.client.get_scale_set(set).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(17));

    faults.next("get_scale_set", busy("120"));
    let error = world.client.get_scale_set(set).await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::from_secs(17));
    assert_eq!(error.retry_after, Some(Duration::from_secs(120)));
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_waited_out_when_short_and_told_when_long() {
    const CALL: &str = "create_registration_token";
    let world = world();
    let limited = |seconds: i64| {
        let reset = world.clock.now().as_second() + seconds;
        Refusal::new(403, "", "API rate limit exceeded")
            .header("x-ratelimit-remaining", "0")
            .header("x-ratelimit-reset", reset.to_string())
    };
    world.service.faults().next(CALL, limited(20));
    let begun = Instant::now();
    world.scale_set("ci").await;
    assert_eq!(begun.elapsed(), Duration::from_secs(21));

    world.service.expire_tenant_tokens();
    world.service.faults().next(CALL, limited(1800));
    let error = world.client.get_scale_set(NOBODY).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert_eq!(error.retry_after, Some(Duration::from_secs(1801)));
    // Nobody burns the next quota with calls that cannot succeed.
    let before = world.requests.of(CALL);
    sleep(Duration::from_secs(600)).await;
    let error = world.client.get_scale_set(NOBODY).await.unwrap_err();
    assert_eq!(error.retry_after, Some(Duration::from_secs(1201)));
    assert_eq!(world.requests.of(CALL), before);
    sleep(Duration::from_secs(1202)).await;
    assert_eq!(world.client.get_scale_set(NOBODY).await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends_after_a_minute_and_a_poll_half_a_minute_later() {
    let world = world();
    let set = world.scale_set("ci").await;
    let session = world.session(set).await;
    world.service.faults().next("get_scale_set", Outcome::Hang);
    world.service.faults().next("get_message", Outcome::Hang);
    let begun = Instant::now();
    let error = world.client.get_scale_set(set).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert_eq!(begun.elapsed(), Duration::from_secs(60));
    let error = world.client.get_message(&session, 0, 9).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert_eq!(begun.elapsed(), Duration::from_secs(150));
    assert_eq!(world.requests.with("get_message", "timeout"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_registration_whose_answer_was_lost_is_met_as_a_runner_that_exists() {
    let world = world();
    let set = world.scale_set("ci").await;
    let faults = world.service.faults();
    faults.next("generate_jit_config", Outcome::LoseAnswer);
    let error = world.client.generate_jit_config(set, "r", "").await;
    assert_eq!(error.unwrap_err().kind, ErrorKind::RunnerExists);
    let found = world.client.find_runner("r").await.unwrap().unwrap();
    assert_eq!(found.scale_set_id, set);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_slow_calls_run_thirty_two_at_a_time() {
    let world = world();
    let set = world.scale_set("ci").await;
    let slow = Fault::delay(Duration::from_millis(100));
    world.service.faults().always("generate_jit_config", slow);
    let begun = Instant::now();
    let names: Vec<String> = (0..1000).map(|n| format!("ci-runner-{n}")).collect();
    let calls = names.iter();
    let calls = calls.map(|name| world.client.generate_jit_config(set, name, ""));
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    // 1000 / 32, rounded up, times 100 ms.
    assert_eq!(begun.elapsed(), Duration::from_millis(3200));
}

#[tokio::test(start_paused = true)]
async fn held_polls_do_not_keep_other_calls_waiting() {
    let world = world();
    let mut sessions = Vec::new();
    for n in 0..40 {
        let set = world.scale_set(&format!("ci-{n}")).await;
        sessions.push(world.session(set).await);
    }
    let polls = sessions.iter();
    let polls = join_all(polls.map(|session| world.client.get_message(session, 0, 9)));
    let call = async {
        sleep(Duration::from_secs(1)).await;
        let begun = Instant::now();
        world.client.get_runner_group("default").await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
    };
    tokio::join!(polls, call);
}

#[tokio::test(start_paused = true)]
async fn errors_become_those_of_the_actors_with_the_kind_and_the_wait() {
    let world = world();
    let busy = Refusal::new(503, "", "later").header("retry-after", "90");
    world
        .service
        .faults()
        .next("create_registration_token", busy);
    let error = world.client.get_scale_set(1).await.unwrap_err();
    let error = ActionsError::from(error);
    assert_eq!(error.kind, ActionsErrorKind::Unavailable);
    assert_eq!(error.retry_after, Some(Duration::from_secs(90)));
}

// === the embedded service itself ===

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

// === over a real connection ===

#[tokio::test]
async fn the_same_service_is_reached_over_a_port() {
    let service = ActionsService::new(Options::new(Clock::system()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(service.clone().serve(listener));
    let url = ConfigUrl::parse(&format!("http://{address}/acme")).unwrap();
    let options = ClientOptions::new(url, Credentials::Token(TOKEN.into()));
    let transport = ReqwestTransports.transport(&TransportOptions::default());
    let client = Client::new(options, transport.unwrap(), Clock::system()).unwrap();

    let set = client
        .create_scale_set("ci", 1, &["ci".to_owned()])
        .await
        .unwrap();
    let session = client.open_session(set.id, "listener-0").await.unwrap();
    let job = service.queue_job(JobSpec::on("ci"));
    let polled = client.get_message(&session, 0, 3).await.unwrap();
    let Polled::Message(message) = polled else {
        panic!("{polled:?}");
    };
    assert_eq!(kinds(&message), [("available", job)]);
    let acquired = client.acquire_jobs(set.id, &session, &[job]).await;
    assert_eq!(acquired, Ok(vec![job]));
    client.delete_message(&session, message.id).await.unwrap();

    service
        .faults()
        .always("get_scale_set", Outcome::LoseAnswer);
    let transport = ReqwestTransports.transport(&TransportOptions::default());
    let request = http::Request::get(format!(
        "http://{address}/tenants/1/_apis/runtime/runnerscalesets/1"
    ));
    let lost = transport
        .unwrap()
        .send(request.body(Bytes::new()).unwrap())
        .await;
    assert_eq!(lost.unwrap_err().kind, TransportErrorKind::Broken);

    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled());
    let transport = ReqwestTransports.transport(&TransportOptions::default());
    let request = http::Request::get(format!("http://user:s3cret@{address}/"));
    let refused = transport
        .unwrap()
        .send(request.body(Bytes::new()).unwrap())
        .await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind, TransportErrorKind::Connect, "{refused}");
    assert!(!refused.message.contains("s3cret"), "{refused}");
}

#[tokio::test]
async fn a_request_through_a_proxy_signs_in_there_and_names_its_target() {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = proxy.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let (mut stream, _) = proxy.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(answer).await.unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let server = ProxyServer::parse(&format!("http://us%40er:s%2Fcret@{address}")).unwrap();
    let options = TransportOptions {
        root_ca: None,
        proxies: Proxies::new(Some(server), None, []),
    };
    let transport = ReqwestTransports.transport(&options).unwrap();
    let request = http::Request::get("http://ghes.acme.test/api/v3/x");
    let answer = transport.send(request.body(Bytes::new()).unwrap()).await;
    assert_eq!(answer.unwrap().body(), "{}");
    let seen = served.await.unwrap();
    assert!(
        seen.starts_with("GET http://ghes.acme.test/api/v3/x HTTP/1.1"),
        "{seen}"
    );
    // "us@er:s/cret" in base 64.
    assert!(seen.contains("Basic dXNAZXI6cy9jcmV0"), "{seen}");
}

/// Keys made for this test. They open nothing.
const PKCS1: &str = "\
-----BEGIN RSA PRIVATE KEY-----\n\
MIIEowIBAAKCAQEA1ytAkbEgWiu2tkMU4jmU8JgQKrSOCi/NiBb8j2hYm/ocvglX\n\
KlGyiVsovVRRgHYFcDusdLOZzsIO7Ln5DIOWdjmyGmqT1ZQSaZ0ToT7+ymZReeMR\n\
1ievc+sdQrTxRG2IuTBec4fXnTS9OjYFnaWATwZc6SM+z051luYbMl59igD6956E\n\
dboWL1xexzmDtig4ImhQNGGlWMKC9ppWxh+B1+BkhZ9qaeXrnBVWJ0KSxy7mCHmL\n\
w1+KG3hf1Cl8YDwERAkKxqT6jVnLjU31LzT4szoIXSJ73rejXND7/vkUe3eVtHA+\n\
2lj8mFY+/sYXozRuMPmmj4xJi/LYeiR2GBwE+QIDAQABAoIBADxe8lrua7lhEn7J\n\
C479wQBQahjRWBkbmHtal7pU+Keq4W2giUhia8mGPkQA6G02sAfxdk24JquQX0ek\n\
VnBga1L4lTQ8OwZt6UygueVAG5UGaE3enB6OO/g2O5t/0UH1yarMG3Qm5SRCq+Ut\n\
Sx4UVY/WpTL0pKbdyLhyD6duQ6L4Z4epdawbJ0Oegqb/R/EHUkKk+5Wy4BKAELI8\n\
k/1atr6uIqAUAPkA1w5Fw7mTxkBgPzJ+HRmgAGeCa4LHucmZPs6gEpcEQF51f3F8\n\
MQe3qMju57gQwWrXz4HuE8FI2KV1xxQwfsBuwWOVFa/sEtylG1Lvzq//4qyxYN60\n\
1Qg2VBECgYEA+G/8UYEn1Yfb0n72JtZWBt7F/rk38O4mE9GjODBfLJ2NEvULJfci\n\
6y6WvSehS6w6SL4kL8pjZfHrQINGZJVkAsbLhjdpWBBfIF4XaiJbvOj0MApijMB6\n\
oDExrP2s/rjupJikKtzfma9ViLXCVmzIjqZxSyS7ZC0WD3WHJFWMx3cCgYEA3bgD\n\
W10ICuBV2+VVXW1HtH6eY5klDtXdfVAbLLPz1+jJBqIHXGFclvdP5yOAFv0EGgzV\n\
yFiWM/wR8/k+eEg2R+GbR8KmSWeRnRwBb+AfARYRtiUUHUoakG2JEMEUeyL0InoV\n\
b0ArAd5Gsd8umJsNCUBP3cllGfz2Ggspfa8Fkw8CgYEA7o4JyPGuIFoOeLe1AWH6\n\
xSoRESElWFI1ef5pLkE0gpDer/9grxn6C752vDdbqGA+ry71bHZ4r6F29kGXzGmu\n\
2QOu1rhKjWdbEKeI8D8BvAoswByYuPLyTPQv8R69iPJnJOH1cbsZcmdsSJPPglF+\n\
24tzamZhEjZA4qNGG1uSjM0CgYBD+g/lag92LjOEuLpEa6XJW+y5wpFPDBjdO7sp\n\
KH8BWliP1QuGsj8N9gMkbYjvA2HHjtnYk/hxNb5XW7pgbFtgDHZsOOx8oulNDvIN\n\
19wJnDeP7axOEpM0ZrDYVyotWpkZHO8HbdgBuaFZFYEWvqrvhC04ZW++2QSnFXcC\n\
FrAR1wKBgCzv0PeiVrSwzWSTGPS47wpaB8CV99NCQQRPpFiz7tRab1C21SXciuSM\n\
1uX2aBZDAQE7rSDhUAfBlGMErW7+oJWvNS4YSVtp3jTFyrNrOZfQlGLpl84jPmfo\n\
63HCaoBZPhpknhm3oe+KnAEvlc340+GqOue9K8h6rbMN2AM5N83h\n\
-----END RSA PRIVATE KEY-----\n\
";
const PKCS8: &str = "\
-----BEGIN PRIVATE KEY-----\n\
MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDXK0CRsSBaK7a2\n\
QxTiOZTwmBAqtI4KL82IFvyPaFib+hy+CVcqUbKJWyi9VFGAdgVwO6x0s5nOwg7s\n\
ufkMg5Z2ObIaapPVlBJpnROhPv7KZlF54xHWJ69z6x1CtPFEbYi5MF5zh9edNL06\n\
NgWdpYBPBlzpIz7PTnWW5hsyXn2KAPr3noR1uhYvXF7HOYO2KDgiaFA0YaVYwoL2\n\
mlbGH4HX4GSFn2pp5eucFVYnQpLHLuYIeYvDX4obeF/UKXxgPARECQrGpPqNWcuN\n\
TfUvNPizOghdInvet6Nc0Pv++RR7d5W0cD7aWPyYVj7+xhejNG4w+aaPjEmL8th6\n\
JHYYHAT5AgMBAAECggEAPF7yWu5ruWESfskLjv3BAFBqGNFYGRuYe1qXulT4p6rh\n\
baCJSGJryYY+RADobTawB/F2Tbgmq5BfR6RWcGBrUviVNDw7Bm3pTKC55UAblQZo\n\
Td6cHo47+DY7m3/RQfXJqswbdCblJEKr5S1LHhRVj9alMvSkpt3IuHIPp25Dovhn\n\
h6l1rBsnQ56Cpv9H8QdSQqT7lbLgEoAQsjyT/Vq2vq4ioBQA+QDXDkXDuZPGQGA/\n\
Mn4dGaAAZ4Jrgse5yZk+zqASlwRAXnV/cXwxB7eoyO7nuBDBatfPge4TwUjYpXXH\n\
FDB+wG7BY5UVr+wS3KUbUu/Or//irLFg3rTVCDZUEQKBgQD4b/xRgSfVh9vSfvYm\n\
1lYG3sX+uTfw7iYT0aM4MF8snY0S9Qsl9yLrLpa9J6FLrDpIviQvymNl8etAg0Zk\n\
lWQCxsuGN2lYEF8gXhdqIlu86PQwCmKMwHqgMTGs/az+uO6kmKQq3N+Zr1WItcJW\n\
bMiOpnFLJLtkLRYPdYckVYzHdwKBgQDduANbXQgK4FXb5VVdbUe0fp5jmSUO1d19\n\
UBsss/PX6MkGogdcYVyW90/nI4AW/QQaDNXIWJYz/BHz+T54SDZH4ZtHwqZJZ5Gd\n\
HAFv4B8BFhG2JRQdShqQbYkQwRR7IvQiehVvQCsB3kax3y6Ymw0JQE/dyWUZ/PYa\n\
Cyl9rwWTDwKBgQDujgnI8a4gWg54t7UBYfrFKhERISVYUjV5/mkuQTSCkN6v/2Cv\n\
GfoLvna8N1uoYD6vLvVsdnivoXb2QZfMaa7ZA67WuEqNZ1sQp4jwPwG8CizAHJi4\n\
8vJM9C/xHr2I8mck4fVxuxlyZ2xIk8+CUX7bi3NqZmESNkDio0YbW5KMzQKBgEP6\n\
D+VqD3YuM4S4ukRrpclb7LnCkU8MGN07uykofwFaWI/VC4ayPw32AyRtiO8DYceO\n\
2diT+HE1vldbumBsW2AMdmw47Hyi6U0O8g3X3AmcN4/trE4SkzRmsNhXKi1amRkc\n\
7wdt2AG5oVkVgRa+qu+ELThlb77ZBKcVdwIWsBHXAoGALO/Q96JWtLDNZJMY9Ljv\n\
CloHwJX300JBBE+kWLPu1FpvULbVJdyK5IzW5fZoFkMBATutIOFQB8GUYwStbv6g\n\
la81LhhJW2neNMXKs2s5l9CUYumXziM+Z+jrccJqgFk+GmSeGbeh74qcAS+VzfjT\n\
4ao6570ryHqtsw3YAzk3zeE=\n\
-----END PRIVATE KEY-----\n\
";
