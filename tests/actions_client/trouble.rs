//! A service that is slow, out of order, or limits how often it is asked.

use std::sync::atomic::Ordering;

use impresario::messages::{ActionsError, ActionsErrorKind};

use crate::world::*;

#[tokio::test(start_paused = true)]
async fn a_call_that_meets_an_outage_is_repeated_four_times_and_then_told() {
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
        for _ in 0..4 {
            faults.next("get_scale_set", fault.clone());
        }
        world.client.get_scale_set(set).await.unwrap();
        faults.always("get_scale_set", fault);
        let before = world.requests.of("get_scale_set");
        let error = world.client.get_scale_set(set).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert_eq!(world.requests.of("get_scale_set") - before, 5);
        faults.clear("get_scale_set");
    }
}

/// Whoever asks for these asks again: a back-off within each call would begin anew every time.
#[tokio::test(start_paused = true)]
async fn calls_about_a_runner_are_sent_once() {
    let world = world();
    let set = world.scale_set("ci").await;
    let faults = world.service.faults();
    let calls = ["generate_jit_config", "find_runner", "remove_runner"];
    for fault in [
        Fault::refuse(500, "Oops"),
        Fault::refuse(429, "Slow"),
        Outcome::Unreachable.into(),
    ] {
        for call in calls {
            faults.always(call, fault.clone());
        }
        let client = &world.client;
        let before = calls.map(|call| world.requests.of(call));
        let errors = [
            client.generate_jit_config(set, "r", "").await.unwrap_err(),
            client.find_runner("r").await.unwrap_err(),
            client.remove_runner(7).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
        }
        let after = calls.map(|call| world.requests.of(call));
        assert_eq!(before.map(|count| count + 1), after);
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
    // 21 s after 03:04:05, and then half an hour
    let lifted = "the limit is lifted at 2026-01-02T03:34:27Z";
    assert!(error.message.contains(lifted), "{error}");
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
    for expected in [ErrorKind::Unavailable, ErrorKind::RunnerExists] {
        let error = world.client.generate_jit_config(set, "r", "").await;
        assert_eq!(error.unwrap_err().kind, expected);
    }
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
    let took = begun.elapsed();
    println!("1000 JIT configurations at 100 ms each: {took:?}");
    assert_eq!(took, Duration::from_millis(3200));
}

#[tokio::test(start_paused = true)]
async fn no_more_than_thirty_two_calls_are_under_way_together() {
    let world = world();
    let set = world.scale_set("ci").await;
    let slow = Fault::delay(Duration::from_millis(100));
    world.service.faults().always("get_scale_set", slow);
    let transport = Counting::of(&world.service);
    let token = Credentials::Token(TOKEN.into());
    let client = client_over(transport.clone(), &world.clock, token).unwrap();
    let found = join_all((0..200).map(|_| client.get_scale_set(set))).await;
    assert!(found.iter().all(Result::is_ok));
    assert_eq!(transport.most.load(Ordering::Relaxed), 32);
}

#[tokio::test(start_paused = true)]
async fn a_slow_tenant_does_not_hold_another_up() {
    let world = world();
    let set = world.scale_set("ci").await;
    let faults = world.service.faults();
    faults.always("remove_runner", Outcome::Hang);
    let token = Credentials::Token(TOKEN.into());
    let other = client(&world.service, &world.clock, &world.requests, token);
    let slow = join_all((0..40).map(|id| world.client.remove_runner(id)));
    let quick = async {
        sleep(Duration::from_secs(1)).await;
        let begun = Instant::now();
        other.get_scale_set(set).await.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
    };
    tokio::join!(slow, quick);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_its_turn_does_not_count_against_a_call() {
    let world = world();
    let set = world.scale_set("ci").await;
    let slow = Fault::delay(Duration::from_secs(40));
    world.service.faults().always("get_scale_set", slow);
    let begun = Instant::now();
    let found = join_all((0..96).map(|_| world.client.get_scale_set(set))).await;
    assert!(found.iter().all(Result::is_ok));
    assert_eq!(begun.elapsed(), Duration::from_secs(120));
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

#[tokio::test(start_paused = true)]
async fn a_call_is_over_within_a_minute_with_all_its_tries() {
    let world = world();
    let set = world.scale_set("ci").await;
    let slow = Fault {
        delay: Duration::from_secs(25),
        outcome: Outcome::Refuse(Refusal::new(503, "Busy", "come back")),
    };
    world.service.faults().always("get_scale_set", slow);
    let begun = Instant::now();
    let error = world.client.get_scale_set(set).await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::from_secs(60));
    assert_eq!(
        (error.kind, error.status),
        (ErrorKind::Unavailable, Some(503))
    );
    let text = error.to_string();
    for part in ["come back; then no answer within 60 s", "ActivityId"] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_does_not_fit_into_the_minute_is_left_to_the_caller() {
    let world = world();
    let set = world.scale_set("ci").await;
    let busy = Refusal::new(429, "", "slow down").header("retry-after", "25");
    world.service.faults().always("get_scale_set", busy);
    let begun = Instant::now();
    let error = world.client.get_scale_set(set).await.unwrap_err();
    assert_eq!(begun.elapsed(), Duration::from_secs(50));
    assert_eq!(error.retry_after, Some(Duration::from_secs(25)));
}

#[tokio::test(start_paused = true)]
async fn retry_after_may_be_a_date() {
    let world = world();
    let set = world.scale_set("ci").await;
    // the clock began at 03:04:05
    let busy = Refusal::new(503, "", "x").header("retry-after", "Fri, 02 Jan 2026 03:04:17 GMT");
    world.service.faults().next("get_scale_set", busy);
    let begun = Instant::now();
    world.client.get_scale_set(set).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(12));
}

/// Scenario SCN-30 D.
#[tokio::test(start_paused = true)]
async fn whoever_asks_for_a_registration_is_told_how_long_it_is_put_off() {
    let world = world();
    let set = world.scale_set("ci").await;
    let busy = Refusal::new(429, "", "slow down").header("retry-after", "20");
    world.service.faults().next("generate_jit_config", busy);
    let error = world
        .client
        .generate_jit_config(set, "ci-runner-a", "")
        .await;
    let wait = error.unwrap_err().retry_after;
    assert_eq!(wait, Some(Duration::from_secs(20)));
    world.jit(set, "ci-runner-a").await;
}

#[tokio::test(start_paused = true)]
async fn a_secondary_limit_is_no_refusal_of_the_credentials() {
    const CALL: &str = "create_registration_token";
    let limited = |message: &str| Refusal::new(403, "", message);
    for (refusal, waited, told) in [
        (limited("no").header("retry-after", "20"), 20, None),
        (limited("no").header("retry-after", "90"), 0, Some(90)),
        (
            limited("You have exceeded a secondary rate limit."),
            0,
            Some(60),
        ),
    ] {
        let world = world();
        world.service.faults().next(CALL, refusal);
        let begun = Instant::now();
        let found = world.client.get_scale_set(1).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(waited));
        match told {
            None => assert_eq!(found, Ok(None)),
            Some(seconds) => {
                let error = found.unwrap_err();
                assert_eq!(error.kind, ErrorKind::Unavailable);
                assert_eq!(error.retry_after, Some(Duration::from_secs(seconds)));
            }
        }
    }
}

/// Between two tries, whichever call it is.
#[tokio::test(start_paused = true)]
async fn a_wait_that_is_asked_for_between_tries_is_kept_by_every_call() {
    for call in [
        "create_registration_token",
        "register",
        "get_runner_group",
        "create_scale_set",
        "open_session",
    ] {
        for status in [429, 503] {
            let world = world();
            for wait in ["13", "21"] {
                let busy = Refusal::new(status, "", "slow down").header("retry-after", wait);
                world.service.faults().next(call, busy);
            }
            let begun = Instant::now();
            world.client.get_runner_group("default").await.unwrap();
            let set = world.scale_set("ci").await;
            world.client.open_session(set, "listener-0").await.unwrap();
            assert_eq!(begun.elapsed(), Duration::from_secs(34), "{call} {status}");
        }
    }
}
