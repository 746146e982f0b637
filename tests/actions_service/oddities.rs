//! What GitHub does besides answering and refusing: tokens that are not known yet, messages
//! that come again, jobs that others take, Apps whose JWTs are looked at closely.

use impresario::simulation::transports;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use embedded_actions::{App, JobSpec, JobState, RunnerInfo};
use impresario::actions::{ErrorKind, Polled, Statistics, TransportOptions};
use impresario::api::{ConfigUrl, Credentials};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use crate::keys;
use crate::world::{TOKEN, URL, World};

// === tokens ===

#[tokio::test(start_paused = true)]
async fn a_registration_token_may_take_a_moment_to_be_known() {
    let world = World::new();
    world
        .service
        .set_durations(|durations| durations.registration_unknown = 2);
    let began = Instant::now();
    world.scale_set("linux").await;
    assert!(began.elapsed() >= Duration::from_secs(2));
    let refused = world
        .log()
        .iter()
        .filter(|line| line.contains("register -> 401"))
        .count();
    assert!(refused >= 1, "{:#?}", world.log());
}

#[tokio::test(start_paused = true)]
async fn a_tenant_token_that_ends_soon_is_renewed_before_it_does() {
    let world = World::new();
    world
        .service
        .set_durations(|durations| durations.tenant_token = 90);
    let set = world.scale_set("linux").await;
    for _ in 0..6 {
        advance(Duration::from_secs(20)).await;
        world.client.get_scale_set(set).await.unwrap();
    }
    let log = world.log();
    let count = |part: &str| log.iter().filter(|line| line.contains(part)).count();
    assert_eq!(count("get_scale_set -> 401"), 0, "{log:#?}");
    assert_eq!(count("register -> 200"), 4, "{log:#?}");
}

// === Apps ===

fn app(issuer: &str, installation_id: i64) -> Credentials {
    Credentials::App {
        app_id: issuer.to_owned(),
        installation_id,
        private_key: keys::PRIVATE.into(),
    }
}

#[tokio::test(start_paused = true)]
async fn an_app_is_known_by_its_id_its_installation_and_its_signature() {
    let world = World::new();
    let known = App::new("4711", 36)
        .or_called("Iv23-larkspur")
        .installed_by("acme");
    world
        .service
        .add_app(known.signing_for(keys::PUBLIC).unwrap());
    let stranger = App::new("9000", 37).signing_for(keys::ANOTHER_PUBLIC);
    world.service.add_app(stranger.unwrap());
    for (url, issuer, installation, refusal) in [
        (URL, "4711", 36, None),
        (URL, "Iv23-larkspur", 36, None),
        ("https://ghes.test/acme", "4711", 36, None),
        (URL, "4712", 36, Some("iss")),
        (URL, "4711", 37, Some("no such installation")),
        (URL, "9000", 37, Some("signature")),
        ("https://github.com/umbrella", "4711", 36, Some("Not Found")),
    ] {
        let client = world.client_of(url, app(issuer, installation));
        let outcome = client.get_runner_group("default").await;
        let error = outcome.err().map(|error| error.to_string());
        match (refusal, error) {
            (None, None) => {}
            (Some(part), Some(error)) if error.contains(part) => {}
            (expected, error) => panic!("{url} {issuer} {installation}: {expected:?} {error:?}"),
        }
    }
}

/// Asks for an installation's token with a JWT of these claims.
async fn exchange(world: &World, claims: &Value, key: &str) -> (u16, String) {
    let key = EncodingKey::from_rsa_pem(key.as_bytes()).unwrap();
    let jwt = jsonwebtoken::encode(&Header::new(Algorithm::RS256), claims, &key).unwrap();
    ask_for_token(world, &jwt).await
}

async fn ask_for_token(world: &World, jwt: &str) -> (u16, String) {
    let transport = transports(&world.service).transport(&TransportOptions::default());
    let url = "https://api.github.com/app/installations/36/access_tokens";
    let request = http::Request::post(url).header("authorization", format!("Bearer {jwt}"));
    let request = request.body(bytes::Bytes::new()).unwrap();
    let response = transport.unwrap().send(request).await.unwrap();
    let body = String::from_utf8(response.body().to_vec()).unwrap();
    (response.status().as_u16(), body)
}

#[tokio::test(start_paused = true)]
async fn the_times_of_a_jwt_are_judged_by_the_services_clock() {
    let world = World::new();
    let known = App::new("4711", 36).signing_for(keys::PUBLIC).unwrap();
    world.service.add_app(known);
    let now = world.clock.now().as_second();
    for (issued, expires, refusal) in [
        (now - 60, now + 480, None),
        (now, now + 600, None),
        (now + 30, now + 400, Some("iat")),
        (now - 700, now - 100, Some("expired")),
        (now - 60, now + 700, Some("exp")),
    ] {
        let claims = json!({"iss": 4711, "iat": issued, "exp": expires});
        let (status, body) = exchange(&world, &claims, keys::PRIVATE).await;
        match refusal {
            None => assert_eq!(status, 201, "{body}"),
            Some(part) => assert!(status == 401 && body.contains(part), "{claims}: {body}"),
        }
    }
    let missing = json!({"iss": "4711"});
    assert_eq!(exchange(&world, &missing, keys::PRIVATE).await.0, 401);
    let encode = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let claims = json!({"iss": "4711", "iat": now, "exp": now + 60});
    let unsigned = format!("{}.{}.", encode(json!({"alg": "none"})), encode(claims));
    for jwt in ["", "ghp_larkspur", "a.b.c", &unsigned] {
        assert_eq!(ask_for_token(&world, jwt).await.0, 401, "{jwt}");
    }
}

// === jobs and messages ===

#[tokio::test(start_paused = true)]
async fn what_is_not_acknowledged_comes_again_whatever_the_cursor() {
    let world = World::new();
    // shorter than an offer lasts, so that the job is not offered anew
    let short = Duration::from_secs(5);
    world
        .service
        .set_durations(|durations| durations.poll = short);
    let set = world.scale_set("linux").await;
    let session = world.session(set).await;
    world.service.queue_job(JobSpec::on("linux"));
    let first = world.message(&session, 0).await;
    let nothing = world.client.get_message(&session, first.id, 10).await;
    assert_eq!(nothing.unwrap(), Polled::None);
    world.service.redeliver_until_acknowledged(true);
    for _ in 0..2 {
        assert_eq!(world.message(&session, first.id).await, first);
    }
    world
        .client
        .delete_message(&session, first.id)
        .await
        .unwrap();
    let nothing = world.client.get_message(&session, first.id, 10).await;
    assert_eq!(nothing.unwrap(), Polled::None);
    world.service.deliver_again(set);
    assert_eq!(world.message(&session, first.id).await, first);
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_may_be_granted_in_part() {
    let world = World::new();
    let set = world.scale_set("linux").await;
    let session = world.session(set).await;
    for _ in 0..3 {
        world.service.queue_job(JobSpec::on("linux"));
    }
    let message = world.message(&session, 0).await;
    let ids: Vec<i64> = world.service.jobs().iter().map(|job| job.id).collect();
    assert_eq!(message.jobs.len(), 3);
    world.ask_once("acquire_jobs", json!({"fault": "part-acquired"}));
    let acquired = world
        .client
        .acquire_jobs(set, &session, &ids)
        .await
        .unwrap();
    assert_eq!(acquired, ids[..1]);
    let states: Vec<JobState> = world.service.jobs().iter().map(|job| job.state).collect();
    let expected = [JobState::Assigned, JobState::Available, JobState::Available];
    assert_eq!(states, expected);
    let rest = world
        .client
        .acquire_jobs(set, &session, &ids)
        .await
        .unwrap();
    assert_eq!(rest, ids, "what was granted before is granted still");
}

#[tokio::test(start_paused = true)]
async fn a_session_begins_with_statistics_and_they_may_be_anything() {
    let world = World::new();
    let set = world.scale_set("linux").await;
    let assigned = |session: impresario::actions::Session| {
        session
            .statistics
            .map(|statistics: Statistics| statistics.assigned_jobs)
    };
    for (pretended, expected) in [
        (None, Some(0)),
        (Some(json!({"totalAssignedJobs": 3})), Some(3)),
        (Some(Value::Null), None),
    ] {
        world.service.pretend_statistics(set, pretended.clone());
        let session = world.session(set).await;
        let id = session.id.clone();
        assert_eq!(assigned(session), expected, "{pretended:?}");
        world.client.delete_session(set, &id).await.unwrap();
    }
    assert_eq!(
        world.service.scale_sets()[0].statistics,
        embedded_actions::Statistics::default()
    );
}

#[tokio::test(start_paused = true)]
async fn the_name_of_a_runner_may_be_another_scale_sets() {
    let world = World::new();
    let (ours, theirs) = (world.scale_set("linux").await, world.scale_set("arm").await);
    let taken = json!({"fault": "runner-taken", "scaleSet": theirs});
    world.ask_once("generate_jit_config", taken);
    let error = world.client.generate_jit_config(ours, "linux-1", "").await;
    assert_eq!(error.unwrap_err().kind, ErrorKind::RunnerExists);
    let found = world.client.find_runner("linux-1").await.unwrap().unwrap();
    assert_eq!(found.scale_set_id, theirs);
}

#[tokio::test(start_paused = true)]
async fn jobs_go_to_the_scale_sets_of_their_owner_with_all_their_labels() {
    let world = World::new();
    let here = world.scale_set("linux").await;
    let elsewhere = world.client_of(
        "https://ghes.test:8443/umbrella",
        Credentials::Token(TOKEN.into()),
    );
    let group = world.service.add_runner_group("gpu");
    let found = elsewhere.get_runner_group("GPU").await.unwrap();
    assert_eq!(found.id, group);
    let labels = ["linux".to_owned(), "gpu".to_owned()];
    let there = elsewhere.create_scale_set("linux", group, &labels).await;
    let there = there.unwrap().id;
    let scopes: Vec<String> = world
        .service
        .scale_sets()
        .into_iter()
        .map(|set| set.scope)
        .collect();
    assert_eq!(scopes, ["acme/widgets", "umbrella"]);
    let session = world.session(here).await;
    let their_session = elsewhere.open_session(there, "umbrella-0").await.unwrap();
    let job = |labels: &[&str], owner: &str| {
        world.service.queue_job(JobSpec {
            runs_on: labels.iter().map(|label| (*label).to_owned()).collect(),
            owner: owner.to_owned(),
            ..JobSpec::on("")
        })
    };
    let (ours, theirs) = (job(&["linux"], "acme"), job(&["gpu", "linux"], ""));
    world.message(&session, 0).await;
    let message = elsewhere.get_message(&their_session, 0, 10).await.unwrap();
    assert!(matches!(message, Polled::Message(_)), "{message:?}");
    let set_of = |id| world.service.job(id).unwrap().scale_set_id;
    assert_eq!((set_of(ours), set_of(theirs)), (Some(here), Some(there)));
}

// === runners ===

#[tokio::test(start_paused = true)]
async fn runners_can_be_played_by_the_service_itself() {
    let world = World::new();
    let set = world.scale_set("linux").await;
    let session = world.session(set).await;
    let ids: Vec<i64> = (0..2)
        .map(|_| world.service.queue_job(JobSpec::on("linux")))
        .collect();
    let service = world.service.clone();
    let playing = tokio::spawn(async move { service.run_runners().await });
    world.message(&session, 0).await;
    world
        .client
        .acquire_jobs(set, &session, &ids)
        .await
        .unwrap();
    for name in ["linux-1", "linux-2", "linux-3"] {
        world.runner(set, name).await;
    }
    world
        .service
        .until(|service| {
            service
                .jobs()
                .iter()
                .all(|job| job.state == JobState::Completed)
        })
        .await;
    let idle: Vec<RunnerInfo> = world.service.runners();
    assert_eq!(idle.len(), 1, "who has done a job is gone: {idle:?}");
    assert!(idle[0].online);
    playing.abort();
}

#[test]
fn the_url_of_a_service_on_a_port_is_a_config_url() {
    let url = ConfigUrl::parse("http://127.0.0.1:9000/acme/widgets").unwrap();
    assert_eq!(url.api_base(false), "http://127.0.0.1:9000/api/v3");
}
