//! Scale sets and runners: every call of the table, and what does not exist.

use crate::world::*;

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
    let World {
        client, service, ..
    } = world();
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
    // a service may say so, or take it for done
    assert_eq!(client.remove_runner(NOBODY).await, Ok(()));
    let gone = Fault::refuse(404, "AgentNotFoundException");
    service.faults().next("remove_runner", gone);
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
    let jit = client.generate_jit_config(NOBODY, "a", "").await;
    let text = jit.unwrap_err().to_string();
    assert!(
        text.starts_with("generate_jit_config failed: 404 "),
        "{text}"
    );
    for part in [
        "RunnerScaleSetNotFoundException",
        "987654",
        "ActivityId",
        "X-GitHub-Request-Id",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

/// Answers every call with the same, and keeps what it was sent.
struct Same {
    body: Bytes,
    requests: Mutex<Vec<http::Request<Bytes>>>,
}

impl Same {
    fn new(body: impl Into<Bytes>) -> Arc<Self> {
        let (body, requests) = (body.into(), Mutex::default());
        Arc::new(Self { body, requests })
    }
}

impl Transport for Same {
    fn send(&self, request: http::Request<Bytes>) -> Answering {
        let path = request.uri().path().to_owned();
        self.requests.lock().unwrap().push(request);
        match path.as_str() {
            "/repos/acme/widgets/actions/runners/registration-token" => {
                answer(201, "\u{feff}{\"token\": \"reg-1\"}")
            }
            "/actions/runner-registration" => answer(
                200,
                "\u{feff}{\"url\": \"https://pipelines.test/abc\", \"token\": \"opaque\"}",
            ),
            _ => answer(200, self.body.clone()),
        }
    }
}

fn client_of(transport: &Arc<Same>) -> Client {
    let clock = Clock::simulated("2026-01-02T03:04:05Z".parse().unwrap());
    client_over(transport.clone(), &clock, Credentials::Token(TOKEN.into())).unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_call_says_who_calls_and_which_version_it_speaks() {
    let transport = Same::new("\u{feff}{\"id\": 7, \"name\": \"ci\"}");
    let client = client_of(&transport);
    // a byte order mark may precede a body
    let set = client.get_scale_set(7).await.unwrap().unwrap();
    assert_eq!((set.id, set.name.as_str()), (7, "ci"));
    let requests = transport.requests.lock().unwrap();
    let authorization = |at: usize| &requests[at].headers()["authorization"];
    assert_eq!(authorization(0), &format!("Bearer {TOKEN}"));
    assert_eq!(authorization(1), "RemoteAuth reg-1");
    let body = r#"{"runner_event":"register","url":"https://github.com/acme/widgets"}"#;
    assert_eq!(requests[1].body(), body);
    assert_eq!(authorization(2), "Bearer opaque");
    let call = "https://pipelines.test/abc/_apis/runtime/runnerscalesets/7?api-version=6.0-preview";
    assert_eq!(requests[2].uri(), call);
    for request in requests.iter() {
        let headers = request.headers();
        assert_eq!(headers["content-type"], "application/json");
        let agent: serde_json::Value =
            serde_json::from_slice(headers["user-agent"].as_bytes()).unwrap();
        let expected = serde_json::json!({
            "system": "impresario",
            "version": env!("CARGO_PKG_VERSION"),
            "commit_sha": impresario::actions::COMMIT,
            "scale_set_id": 0,
            "subsystem": "controller",
        });
        assert_eq!(agent, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_that_cannot_be_used_carries_the_ids_as_well() {
    let client = client_of(&Same::new("<html>"));
    let errors = [
        client.get_scale_set(7).await.unwrap_err(),
        client.find_scale_set(1, "ci").await.unwrap_err(),
        client.get_runner_group("big").await.unwrap_err(),
        client.open_session(7, "host").await.unwrap_err(),
        client.generate_jit_config(7, "r", "").await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind, ErrorKind::Unreadable);
        let ids = "(ActivityId act-7, X-GitHub-Request-Id AB:12)";
        assert!(error.to_string().ends_with(ids), "{error}");
    }
    let nothing = client_of(&Same::new("{\"count\": 0, \"value\": null}"));
    let error = nothing.get_runner_group("big").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::GroupNotFound);
    assert!(error.to_string().contains("ActivityId act-7"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn each_form_of_config_url_asks_for_its_own_registration_token() {
    for (url, expected) in [
        (
            "https://github.com/acme/widgets",
            "https://api.github.com/repos/acme/widgets/actions/runners/registration-token",
        ),
        (
            "https://www.GitHub.com/acme/",
            "https://api.github.com/orgs/acme/actions/runners/registration-token",
        ),
        (
            "https://big.ghe.com/enterprises/big",
            "https://api.big.ghe.com/enterprises/big/actions/runners/registration-token",
        ),
        (
            "http://ghes.acme.test:8080/acme",
            "http://ghes.acme.test:8080/api/v3/orgs/acme/actions/runners/registration-token",
        ),
    ] {
        let transport = Same::new("{}");
        let options = ClientOptions::new(
            ConfigUrl::parse(url).unwrap(),
            Credentials::Token(TOKEN.into()),
        );
        let clock = Clock::simulated("2026-01-02T03:04:05Z".parse().unwrap());
        let client = Client::new(options, transport.clone(), clock).unwrap();
        let _ = client.get_scale_set(7).await;
        assert_eq!(transport.requests.lock().unwrap()[0].uri(), expected);
    }
}
