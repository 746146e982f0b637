//! Tokens: one registration for all, refreshed in time, refused and mended.

use crate::key_files::{PKCS1, PKCS8};
use crate::world::*;

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

#[tokio::test(start_paused = true)]
async fn a_refresh_that_hangs_keeps_no_call_for_long_while_the_old_token_lasts() {
    let world = world();
    let set = world.scale_set("ci").await;
    sleep(Duration::from_secs(3600 - 50)).await;
    world
        .service
        .faults()
        .always("create_registration_token", Outcome::Hang);
    let begun = Instant::now();
    world.client.get_scale_set(set).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
    // and the next does not try at once what has just failed
    world.client.get_scale_set(set).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
    world.service.faults().clear("create_registration_token");
    sleep(Duration::from_secs(10)).await;
    world.client.get_scale_set(set).await.unwrap();
    assert_eq!(world.requests.of("register"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_slow_steps_to_a_token_is_part_of_the_calls_minute() {
    let world = world();
    for call in ["create_registration_token", "register", "get_scale_set"] {
        let slow = Fault::delay(Duration::from_secs(25));
        world.service.faults().always(call, slow);
    }
    let begun = Instant::now();
    let error = world.client.get_scale_set(1).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert_eq!(begun.elapsed(), Duration::from_secs(60));
    // the token was got all the same, and serves the next call
    assert_eq!(world.client.get_scale_set(1).await, Ok(None));
    assert_eq!(world.requests.of("register"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_got_though_calls_in_flight_have_taken_all_turns() {
    let world = world();
    let set = world.scale_set("ci").await;
    let slow = Fault::delay(Duration::from_secs(30));
    world.service.faults().always("get_scale_set", slow);
    let calls = join_all((0..32).map(|_| world.client.get_scale_set(set)));
    let one_more = async {
        sleep(Duration::from_secs(1)).await;
        world.service.expire_tenant_tokens();
        sleep(Duration::from_secs(3600)).await;
    };
    let late = async {
        sleep(Duration::from_secs(30)).await;
        world.client.get_scale_set(set).await.unwrap();
    };
    let (found, (), ()) = tokio::join!(calls, one_more, late);
    assert!(found.iter().all(Result::is_ok));
    assert_eq!(world.requests.of("register"), 2);
}

#[tokio::test(start_paused = true)]
async fn what_a_token_may_not_see_is_a_matter_of_its_rights() {
    for call in ["create_registration_token", "create_installation_token"] {
        let world = world();
        let app = Credentials::App {
            app_id: "123".to_owned(),
            installation_id: 4711,
            private_key: PKCS8.into(),
        };
        let client = client(&world.service, &world.clock, &world.requests, app);
        world.service.faults().next(call, Fault::refuse(404, ""));
        let error = client.get_scale_set(1).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unauthorized, "{error}");
        assert!(error.message.contains("check "), "{error}");
        assert!(error.to_string().contains("ActivityId"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_repository_that_was_renamed_is_told_as_such() {
    let world = world();
    let moved = Refusal::new(307, "", "Moved").header("location", "https://api.github.com/x");
    world
        .service
        .faults()
        .next("create_registration_token", moved);
    let error = world.client.get_scale_set(1).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Config);
    assert!(error.message.contains("correct githubConfigUrl"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn credentials_that_stay_refused_are_tried_less_and_less_by_however_many_callers() {
    let world = world();
    world.service.accept_only(["another"]);
    for _ in 0..120 {
        let calls = (0..20).map(|_| world.client.get_scale_set(1));
        for error in join_all(calls).await {
            assert_eq!(error.unwrap_err().kind, ErrorKind::Unauthorized);
        }
        sleep(Duration::from_secs(1)).await;
    }
    let asked = world.requests.of("create_registration_token");
    assert!(
        (6..=12).contains(&asked),
        "asked {asked} times in two minutes"
    );
    // and are used again soon after the service has learned of them
    world.service.accept_only([TOKEN]);
    sleep(Duration::from_secs(31)).await;
    assert_eq!(world.client.get_scale_set(1).await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_clock_ahead_of_the_services_does_not_make_each_call_get_a_token() {
    let world = world();
    let ahead = Clock::simulated("2026-01-02T05:04:05Z".parse().unwrap());
    let token = Credentials::Token(TOKEN.into());
    let client = client(&world.service, &ahead, &world.requests, token);
    for _ in 0..20 {
        client.get_scale_set(1).await.unwrap();
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(world.requests.of("register"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_refresh_is_shared_whatever_it_failed_with_and_at_which_step() {
    let outcomes: [fn() -> Outcome; 4] = [
        || Outcome::Refuse(Refusal::new(403, "", "no")),
        || Outcome::Refuse(Refusal::new(400, "Odd", "no")),
        || Outcome::Replace(201, Bytes::from_static(b"no JSON")),
        || Outcome::Refuse(Refusal::new(429, "", "later").header("retry-after", "45")),
    ];
    for (step, tries) in [("create_registration_token", 1), ("register", 5)] {
        for outcome in outcomes {
            let world = world();
            let delay = Duration::from_secs(1);
            let outcome = outcome();
            // this one is tried again, since the service may not know the token yet
            let unknown = matches!(&outcome, Outcome::Refuse(refusal) if refusal.status == 403);
            let expected = if unknown { tries } else { 1 };
            world
                .service
                .faults()
                .always(step, Fault { delay, outcome });
            // some begin while the refresh is under way
            let calls = (0..20).map(|number| {
                let client = &world.client;
                async move {
                    sleep(Duration::from_millis(40 * number)).await;
                    client.get_scale_set(1).await
                }
            });
            let errors = join_all(calls).await;
            let first = errors[0].clone().unwrap_err();
            for error in errors {
                let error = error.unwrap_err();
                assert_eq!((error.kind, &error.message), (first.kind, &first.message));
            }
            assert_eq!(world.requests.of(step), expected, "{step}: {first}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_registration_refused_at_first_is_retried_when_the_service_says() {
    let refused = |wait: &str| Refusal::new(403, "NotYet", "later").header("retry-after", wait);
    let world = world();
    world.service.faults().next("register", refused("17"));
    let begun = Instant::now();
    world.client.get_scale_set(1).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(17));

    // who would have to wait for longer than a call may take is told so
    world.service.expire_tenant_tokens();
    world.service.faults().next("register", refused("120"));
    let error = world.client.get_scale_set(1).await.unwrap_err();
    assert_eq!(error.retry_after, Some(Duration::from_secs(120)));
    assert_eq!(begun.elapsed(), Duration::from_secs(17));
}
