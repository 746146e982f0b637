//! `impresario actions-service` as a person meets it: the real program, the real client over
//! a socket, and the admin API.

use std::process::{Output, Stdio};
use std::time::Duration;

use impresario::actions::{
    Client, ClientOptions, ErrorKind, JobMessage, Message, Polled, ReqwestTransports, Session,
    TransportOptions, Transports as _,
};
use impresario::api::{ConfigUrl, Credentials};
use impresario::clock::Clock;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::keys;

/// How long anything may take, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A token that is accepted where one is asked for.
const TOKEN: &str = "ghp_foxglove";

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_impresario"));
    command
        .env_clear()
        .arg("actions-service")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command
}

/// A service that runs.
struct Running {
    child: Child,
    /// Kept open, as by a terminal.
    _stdout: Lines<BufReader<ChildStdout>>,
    address: String,
    http: reqwest::Client,
}

impl Running {
    async fn start(arguments: &[&str]) -> Self {
        let mut child = program(arguments).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = timeout(PATIENCE, stdout.next_line()).await.unwrap();
        let first = first.unwrap().expect("a line of greeting");
        let address = first.rsplit(' ').next().unwrap().to_owned();
        assert!(address.starts_with("http://127.0.0.1:"), "{first}");
        assert!(!address.ends_with(":0"), "{first}");
        Self {
            child,
            _stdout: stdout,
            address,
            http: reqwest::Client::new(),
        }
    }

    fn client(&self, path: &str, credentials: Credentials) -> Client {
        let url = ConfigUrl::parse(&format!("{}/{path}", self.address)).unwrap();
        let options = ClientOptions::new(url, credentials);
        let transport = ReqwestTransports.transport(&TransportOptions::default());
        Client::new(options, transport.unwrap(), Clock::system()).unwrap()
    }

    fn client_with(&self, token: &str) -> Client {
        self.client("acme/widgets", Credentials::Token(token.into()))
    }

    async fn admin(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let response = timeout(PATIENCE, request.send()).await.unwrap().unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap())
    }

    async fn get(&self, path: &str) -> Value {
        let request = self
            .http
            .get(format!("{}/_impresario/{path}", self.address));
        let (status, body) = self.admin(request).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// What the admin API answers, and how.
    async fn try_post(&self, path: &str, body: &str) -> (u16, Value) {
        let url = format!("{}/_impresario/{path}", self.address);
        self.admin(self.http.post(url).body(body.to_owned())).await
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.try_post(path, &body.to_string()).await;
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    }

    /// Interrupts it, as Ctrl-C does; answers its exit code.
    async fn interrupt(mut self) -> Option<i32> {
        let id = self.child.id().unwrap().to_string();
        let killed = Command::new("kill").args(["-INT", &id]).status().await;
        assert!(killed.unwrap().success());
        let status = timeout(PATIENCE, self.child.wait()).await.unwrap();
        status.unwrap().code()
    }
}

async fn message(client: &Client, session: &Session, last: i64) -> Message {
    let polled = timeout(PATIENCE, client.get_message(session, last, 10)).await;
    match polled.unwrap().unwrap() {
        Polled::Message(message) => message,
        other => panic!("no message: {other:?}"),
    }
}

async fn acknowledge(client: &Client, session: &Session, message: &Message) {
    client.delete_message(session, message.id).await.unwrap();
}

#[tokio::test]
async fn our_client_lives_a_whole_life_with_it_over_a_socket() {
    let service = Running::start(&["--token", TOKEN, "--runner-group", "gpu"]).await;
    let refused = service
        .client_with("ghp_nettle")
        .get_runner_group("gpu")
        .await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Unauthorized);

    let client = service.client_with(TOKEN);
    let group = client.get_runner_group("gpu").await.unwrap();
    let set = client
        .create_scale_set("big", group.id, &["big".to_owned()])
        .await;
    let set = set.unwrap().id;
    let session = client.open_session(set, "here").await.unwrap();
    let jobs = json!({"labels": ["big"], "seconds": 3600, "name": "compile"});
    let queued = service.post("jobs", jobs).await;
    let job = queued["queued"][0].as_i64().unwrap();

    let offer = message(&client, &session, 0).await;
    let [JobMessage::Available(details)] = &offer.jobs[..] else {
        panic!("{offer:?}");
    };
    assert_eq!(details.job_display_name, "compile");
    let acquired = client.acquire_jobs(set, &session, &[job]).await;
    assert_eq!(acquired.unwrap(), [job]);
    acknowledge(&client, &session, &offer).await;
    let jit = client.generate_jit_config(set, "big-1", "").await.unwrap();
    let started = service.post("runners/big-1/start", json!({})).await;
    assert_eq!(started, json!({"started": "big-1"}));
    let start = message(&client, &session, offer.id).await;
    assert!(matches!(
        start.jobs[..],
        [JobMessage::Assigned(_), JobMessage::Started(_)]
    ));
    acknowledge(&client, &session, &start).await;
    let busy = service.get("runners").await;
    assert_eq!(busy[0]["jobId"], job);
    let error = client.remove_runner(jit.runner.id).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::JobStillRunning);

    service
        .post(&format!("jobs/{job}/finish"), json!({"result": "failed"}))
        .await;
    let end = message(&client, &session, start.id).await;
    let [JobMessage::Completed(details)] = &end.jobs[..] else {
        panic!("{end:?}");
    };
    assert_eq!(details.result, "failed");
    assert_eq!(service.get("runners").await, json!([]));
    let session_seen = service.get("sessions").await;
    assert_eq!(session_seen[0]["owner"], "here");
    client.delete_session(set, &session.id).await.unwrap();
    client.delete_scale_set(set).await.unwrap();
    assert_eq!(service.get("scale-sets").await, json!([]));
    assert_eq!(service.interrupt().await, Some(0));
}

#[tokio::test]
async fn faults_and_mishaps_that_are_asked_for_are_met_and_end() {
    let service = Running::start(&["--poll", "1s"]).await;
    let client = service.client_with("any token at all");
    let set = client.create_scale_set("big", 1, &["big".to_owned()]).await;
    let set = set.unwrap().id;
    let session = client.open_session(set, "here").await.unwrap();
    let held =
        json!({"call": "open_session", "fault": "session-conflict", "holder": "there", "count": 1});
    let standing = service.post("faults", held).await;
    let expected =
        json!([{"call": "open_session", "next": 1, "secondsLeft": null, "always": false}]);
    assert_eq!(standing, expected);
    let error = client.open_session(set, "here").await.unwrap_err();
    assert!(error.to_string().contains("there"), "{error}");
    assert_eq!(service.get("faults").await, json!([]));

    // neither reaches the client whole: the connection ends without an answer
    for fault in ["connection-reset", "unreachable", "answer-lost"] {
        let asked = json!({"call": "get_message", "fault": fault, "count": 1});
        service.post("faults", asked).await;
        let error = client.get_message(&session, 0, 1).await.unwrap_err();
        assert_eq!(
            (error.kind, error.status),
            (ErrorKind::Unavailable, None),
            "{fault}"
        );
    }
    let all = json!({"call": "all", "fault": "forbidden", "seconds": 3600});
    service.post("faults", all).await;
    let error = client.find_runner("x").await.unwrap_err();
    assert_eq!(error.status, Some(403));
    let url = format!("{}/_impresario/faults", service.address);
    let (status, left) = service.admin(service.http.delete(url)).await;
    assert_eq!((status, left), (200, json!([])));

    let told = json!({"mishap": "pretend-statistics", "scaleSet": set, "statistics": {"totalAssignedJobs": 4}});
    service.post("mishaps", told).await;
    let refreshed = client.refresh_session(set, &session.id).await.unwrap();
    assert_eq!(refreshed.statistics.unwrap().assigned_jobs, 4);
    let strange = json!({"mishap": "tell", "scaleSet": set, "element": {"messageType": "Strange"}});
    service.post("mishaps", strange).await;
    let odd = message(&client, &refreshed, 0).await;
    assert!(
        matches!(odd.jobs[..], [JobMessage::Unknown { .. }]),
        "{odd:?}"
    );
    service
        .post("mishaps", json!({"mishap": "expire-queue-tokens"}))
        .await;
    let error = client.get_message(&refreshed, 0, 1).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::QueueTokenExpired);
    service
        .post("mishaps", json!({"mishap": "expire-tenant-tokens"}))
        .await;
    assert!(
        client.get_scale_set(set).await.unwrap().is_some(),
        "a new token is got"
    );
    service
        .post("mishaps", json!({"mishap": "drop-sessions"}))
        .await;
    let error = client.refresh_session(set, &session.id).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::SessionNotFound);
}

#[tokio::test]
async fn with_run_jobs_it_is_the_cluster_as_well() {
    let service = Running::start(&["--run-jobs"]).await;
    let client = service.client_with(TOKEN);
    let set = client.create_scale_set("big", 1, &["big".to_owned()]).await;
    let set = set.unwrap().id;
    let session = client.open_session(set, "here").await.unwrap();
    let queued = service
        .post(
            "jobs",
            json!({"labels": ["big"], "count": 2, "seconds": 0.05}),
        )
        .await;
    let ids: Vec<i64> = serde_json::from_value(queued["queued"].clone()).unwrap();
    let mut last = message(&client, &session, 0).await;
    client.acquire_jobs(set, &session, &ids).await.unwrap();
    for name in ["big-1", "big-2"] {
        client.generate_jit_config(set, name, "").await.unwrap();
    }
    let mut ended = 0;
    while ended < 2 {
        acknowledge(&client, &session, &last).await;
        last = message(&client, &session, last.id).await;
        let completed = |job: &&JobMessage| matches!(job, JobMessage::Completed(_));
        ended += last.jobs.iter().filter(completed).count();
    }
    let jobs = service.get("jobs").await;
    for job in jobs.as_array().unwrap() {
        assert_eq!(
            (&job["state"], &job["result"]),
            (&json!("completed"), &json!("succeeded"))
        );
    }
    assert_eq!(service.get("runners").await, json!([]));
}

#[tokio::test]
async fn one_app_is_accepted_and_nothing_else_when_it_is_named() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("app.pub");
    std::fs::write(&path, keys::PUBLIC).unwrap();
    let key = path.to_str().unwrap();
    let app = [
        "--app-id",
        "4711",
        "--app-installation-id",
        "36",
        "--app-public-key",
        key,
    ];
    let service = Running::start(&app).await;
    let credentials = |app_id: &str| Credentials::App {
        app_id: app_id.to_owned(),
        installation_id: 36,
        private_key: keys::PRIVATE.into(),
    };
    let client = service.client("acme", credentials("4711"));
    client.get_runner_group("default").await.unwrap();
    for refused in [
        service.client("acme", credentials("4712")),
        service.client_with(TOKEN),
    ] {
        let error = refused.get_runner_group("default").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unauthorized, "{error}");
    }
}

#[tokio::test]
async fn what_cannot_be_done_is_answered_with_what_can() {
    let service = Running::start(&[]).await;
    for (path, body, status, parts) in [
        (
            "faults",
            r#"{"call": "get_mesage", "fault": "hang"}"#,
            400,
            &["get_mesage", "get_message"][..],
        ),
        (
            "faults",
            r#"{"call": "get_message", "fault": "hung"}"#,
            400,
            &["hung", "`hang`"],
        ),
        ("faults", r#"{"call": "get_message"}"#, 400, &["fault"]),
        (
            "faults",
            r#"{"call": "get_message", "fault": "hang", "count": 1, "seconds": 1}"#,
            400,
            &["not both"],
        ),
        (
            "faults",
            r#"{"call": "get_message", "fault": "hang", "seconds": -1}"#,
            400,
            &["-1"],
        ),
        (
            "mishaps",
            r#"{"mishap": "flood"}"#,
            400,
            &["flood", "`drop-sessions`"],
        ),
        (
            "mishaps",
            r#"{"mishap": "deliver-again", "scaleSet": 77}"#,
            404,
            &["77"],
        ),
        ("jobs", r#"{"labels": []}"#, 400, &["labels"]),
        (
            "jobs",
            r#"{"labels": ["x"], "cuont": 3}"#,
            400,
            &["cuont", "count"],
        ),
        (
            "jobs",
            r#"{"labels": ["x"], "count": 1000000000}"#,
            400,
            &["count"],
        ),
        ("jobs", "no JSON", 400, &["line 1"]),
        ("jobs/99/cancel", "", 404, &["99"]),
        ("runners/nobody/start", "", 404, &["nobody"]),
        ("jbos", "", 404, &["jbos", "GET /_impresario"]),
    ] {
        let (seen, answer) = service.try_post(path, body).await;
        let error = answer["error"].as_str().unwrap();
        assert_eq!(seen, status, "{path} {body}: {error}");
        for part in parts {
            assert!(error.contains(part), "{path} {body}: {error}");
        }
    }
    let queued = service.post("jobs", json!({"labels": ["x"]})).await;
    let cancel = format!("jobs/{}/cancel", queued["queued"][0]);
    service.post(&cancel, json!({})).await;
    let (status, again) = service.try_post(&cancel, "").await;
    assert_eq!(status, 409, "{again}");
    let help = service.get("").await;
    assert!(
        help["POST faults"]
            .as_str()
            .unwrap()
            .contains("get_message"),
        "{help}"
    );
}

async fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = program(arguments);
    command.stderr(Stdio::piped());
    let Output { status, stderr, .. } = timeout(PATIENCE, command.output()).await.unwrap().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[tokio::test]
async fn a_flag_that_cannot_be_used_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let app = [
        "--app-id",
        "1",
        "--app-installation-id",
        "2",
        "--app-public-key",
    ];
    let no_key = [&app[..], &["Cargo.toml"]].concat();
    let no_file = [&app[..], &["/no/such.pem"]].concat();
    for (arguments, code, parts) in [
        (
            &["--port", &port][..],
            1,
            &[port.as_str(), "in use", "--port"][..],
        ),
        (&["--port", "http"], 2, &["--port", "http"]),
        (&["--address", "nowhere"], 2, &["--address", "nowhere"]),
        (&["--poll", "long"], 2, &["--poll", "90s"]),
        (&["--app-id", "4711"], 2, &["--app-installation-id"]),
        (&no_key, 1, &["--app-public-key", "Cargo.toml", "openssl"]),
        (&no_file, 1, &["--app-public-key", "/no/such.pem"]),
    ] {
        let (seen, text) = refused(arguments).await;
        assert_eq!(seen, Some(code), "{arguments:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{arguments:?}: {text}");
        }
    }
}
