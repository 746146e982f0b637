//! The listener as a process: the real binary, over real sockets, from its configuration file to
//! the end that SIGTERM brings.

use impresario::simulation::transports;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use embedded_actions::{ActionsService, JobSpec, Options};
use embedded_kube::{ApiServer, ApiServerOptions};
use impresario::actions::{Client, ClientOptions, TransportOptions};
use impresario::api::{ConfigUrl, Credentials, EphemeralRunnerSet, EphemeralRunnerSetSpec, crds};
use impresario::clock::Clock;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// How long anything may take, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);
const TOKEN: &str = "ghp_private-and-not-to-be-shown";

/// An Actions service and an API server on ports of loopback, with a scale set and its runner set.
struct World {
    service: ActionsService,
    api: ApiServer,
    folder: TempDir,
    config: Value,
}

impl World {
    async fn new() -> Self {
        let clock = Clock::system();
        let service = ActionsService::new(Options::new(clock.clone()));
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/acme/widgets", socket.local_addr().unwrap());
        tokio::spawn(service.clone().serve(socket));
        let transport = transports(&service)
            .transport(&TransportOptions::default())
            .unwrap();
        let options = ClientOptions::new(
            ConfigUrl::parse(&url).unwrap(),
            Credentials::Token(TOKEN.into()),
        );
        let github = Client::new(options, transport, clock.clone()).unwrap();
        let labels = ["linux".to_owned()];
        let scale_set = github.create_scale_set("linux", 1, &labels).await.unwrap();

        let api = ApiServer::new(ApiServerOptions::new(clock, 7));
        for crd in crds() {
            api.install_crd(serde_json::to_value(crd).unwrap()).unwrap();
        }
        let set = EphemeralRunnerSet::new("linux-set", EphemeralRunnerSetSpec::default());
        let sets: Api<EphemeralRunnerSet> = Api::namespaced(api.client(), "default");
        sets.create(&PostParams::default(), &set).await.unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(api.serve(socket));

        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: sim\n\
             clusters: [{{name: sim, cluster: {{server: 'http://{address}'}}}}]\n\
             contexts: [{{name: sim, context: {{cluster: sim, user: sim, namespace: default}}}}]\n\
             users: [{{name: sim, user: {{}}}}]\n"
        );
        std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
        let config = json!({
            "configure_url": url, "github_token": TOKEN,
            "ephemeral_runner_set_namespace": "default", "ephemeral_runner_set_name": "linux-set",
            "runner_scale_set_id": scale_set.id, "runner_scale_set_name": "linux",
            "min_runners": 1, "max_runners": 10, "log_level": "debug",
            "metrics_addr": free_address(), "metrics_endpoint": "/numbers",
            "metrics": {"gauges": {"gha_desired_runners": {"labels": ["name", "mood"]}}},
        });
        Self {
            service,
            api,
            folder,
            config,
        }
    }

    fn replicas(&self) -> Value {
        let set = self.api.get(
            "actions.github.com",
            "ephemeralrunnersets",
            "default",
            "linux-set",
        );
        set.unwrap()["spec"]["replicas"].clone()
    }

    /// The listener, as in its pod.
    fn start(&self) -> Child {
        let path = self.folder.path().join("config.json");
        std::fs::write(&path, self.config.to_string()).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_impresario"));
        Command::new(program)
            .arg("listener")
            .env_clear()
            .env("HOME", self.folder.path())
            .env("HOSTNAME", "linux-listener")
            .env("LISTENER_CONFIG_PATH", path)
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// Status and body of a page that the listener serves.
    async fn page(&self, path: &str) -> (u16, String) {
        let address = self.config["metrics_addr"].as_str().unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }
}

/// An address whose port was free a moment ago.
fn free_address() -> String {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().to_string()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "it did not happen: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// How it ended, and what it said.
async fn end(child: Child) -> (ExitStatus, String) {
    let output = timeout(PATIENCE, child.wait_with_output()).await;
    let output = output.expect("it ends").unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status, String::from_utf8(said).unwrap())
}

#[tokio::test]
async fn it_listens_tells_how_it_is_and_ends_with_its_session_on_sigterm() {
    let world = World::new().await;
    let listener = world.start();
    until("the target is published", async || world.replicas() == 1).await;
    until("it is ready", async || world.page("/readyz").await.0 == 200).await;
    assert_eq!(world.page("/healthz").await.0, 200);
    world.service.queue_job(JobSpec::on("linux"));
    until("the job is scaled for", async || world.replicas() == 2).await;
    until("the number is shown", async || {
        let (status, numbers) = world.page("/numbers").await;
        status == 200 && numbers.contains("\ngha_desired_runners{name=\"linux\"} 2\n")
    })
    .await;
    let (_, numbers) = world.page("/numbers").await;
    assert!(!numbers.contains("gha_busy_runners"), "{numbers}");
    let sessions = world.service.sessions();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].owner, "linux-listener");

    let id = listener.id().unwrap().to_string();
    let told = Command::new("kill").args(["-TERM", &id]).status().await;
    assert!(told.unwrap().success());
    let (status, said) = end(listener).await;
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(world.service.sessions(), []);
    assert!(
        said.contains("gha_desired_runners has no label mood"),
        "{said}"
    );
    assert!(said.contains("message session deleted"), "{said}");
    assert!(!said.contains(TOKEN), "{said}");
}

#[tokio::test]
async fn a_scale_set_that_does_not_exist_ends_it_with_a_code_that_the_controller_knows() {
    let mut world = World::new().await;
    world.config["runner_scale_set_id"] = json!(987_654);
    world.config["metrics_addr"] = json!("0");
    let (status, said) = end(world.start()).await;
    assert_eq!(status.code(), Some(44), "{said}");
    assert!(said.contains("runner_scale_set_id 987654"), "{said}");
    assert!(!said.contains(TOKEN), "{said}");
}
