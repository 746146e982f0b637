//! Jobs from offer to completion, and what the queue does with messages.

use crate::world::*;

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
