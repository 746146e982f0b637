//! A real etcd, kube-apiserver and kube-controller-manager, from the folder that
//! `KUBEBUILDER_ASSETS` names.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

/// How long the servers may take until they are ready.
const START: Duration = Duration::from_secs(90);

/// The token of a user who may do everything.
const TOKEN: &str = "envtest";

/// A control plane that ends when this is dropped.
pub struct Env {
    /// A client that may do everything.
    pub client: Client,
    config: Config,
    processes: Vec<Child>,
    // after the processes, so that it is removed when they are gone
    _folder: TempDir,
}

/// Starts a control plane; none, with a note, when `KUBEBUILDER_ASSETS` is not set.
///
/// # Panics
/// When the servers do not come up: the text holds the end of their logs.
pub async fn start() -> Option<Env> {
    let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS") else {
        println!("skipped on a real API server: KUBEBUILDER_ASSETS is not set");
        return None;
    };
    let folder = TempDir::new().expect("a folder for the servers");
    let mut control_plane = ControlPlane {
        assets: assets.into(),
        folder: folder.path().to_owned(),
        processes: Vec::new(),
    };
    match control_plane.start().await {
        Ok((client, config)) => Some(Env {
            client,
            config,
            processes: std::mem::take(&mut control_plane.processes),
            _folder: folder,
        }),
        Err(error) => panic!("{error}\n{}", control_plane.logs()),
    }
}

/// A CustomResourceDefinition as Kubernetes 1.20 accepts it: without empty defaults, and
/// without the list types whose keys rely on such a default.
#[must_use]
pub fn crd_for_old_server(mut crd: Value) -> Value {
    strip(&mut crd);
    crd
}

fn strip(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let keys = fields.get("x-kubernetes-list-map-keys").cloned();
            let keys = keys
                .as_ref()
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let keys: Vec<&str> = keys.filter_map(Value::as_str).collect();
            let item = fields.get("items").cloned().unwrap_or_default();
            let required = item["required"].as_array().cloned().unwrap_or_default();
            let has_value = |key: &str| {
                let default = &item["properties"][key]["default"];
                required.contains(&key.into()) || !(default.is_null() || *default == "")
            };
            if !keys.iter().all(|key| has_value(key)) {
                fields.remove("x-kubernetes-list-type");
                fields.remove("x-kubernetes-list-map-keys");
            }
            if fields.get("default").is_some_and(|default| *default == "") {
                fields.remove("default");
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

impl Env {
    /// Installs kinds, as the old server takes them, and waits until it serves them.
    pub async fn install(&self, kinds: Vec<CustomResourceDefinition>) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for kind in kinds {
            let name = kind.name_any();
            let kind = serde_json::from_value(crd_for_old_server(json!(kind)));
            let kind = kind.expect("what is left is a definition");
            let created = definitions.create(&PostParams::default(), &kind).await;
            created.unwrap_or_else(|error| panic!("{name}: {error}"));
            await_condition(definitions.clone(), &name, is_crd_established())
                .await
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    /// Makes clients of users who have no rights but those that roles give.
    pub fn impersonating(&self) -> impl Fn(&str) -> Client + Send + Sync + use<> {
        let config = self.config.clone();
        move |user| {
            let mut config = config.clone();
            config.auth_info.impersonate = Some(user.to_owned());
            Client::try_from(config).expect("the configuration has been used before")
        }
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        stop(&mut self.processes);
    }
}

fn stop(processes: &mut Vec<Child>) {
    // the last started depends on the others
    while let Some(mut process) = processes.pop() {
        let _ = process.kill();
        let _ = process.wait();
    }
}

struct ControlPlane {
    assets: PathBuf,
    folder: PathBuf,
    processes: Vec<Child>,
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        stop(&mut self.processes);
    }
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

impl ControlPlane {
    async fn start(&mut self) -> Outcome<(Client, Config)> {
        let etcd = format!("http://127.0.0.1:{}", free_port()?);
        self.run(
            "etcd",
            &[
                &format!("--data-dir={}", self.path("etcd")),
                &format!("--listen-client-urls={etcd}"),
                &format!("--advertise-client-urls={etcd}"),
                "--listen-peer-urls=http://127.0.0.1:0",
                "--unsafe-no-fsync",
            ],
        )?;
        let port = free_port()?;
        fs::write(
            self.path("tokens.csv"),
            format!("{TOKEN},admin,admin,\"system:masters\"\n"),
        )?;
        fs::write(self.path("sa.key"), signing_key())?;
        self.run(
            "kube-apiserver",
            &[
                &format!("--etcd-servers={etcd}"),
                &format!("--cert-dir={}", self.path("certs")),
                &format!("--secure-port={port}"),
                "--bind-address=127.0.0.1",
                "--service-cluster-ip-range=10.0.0.0/24",
                &format!("--token-auth-file={}", self.path("tokens.csv")),
                &format!("--service-account-key-file={}", self.path("sa.key")),
                &format!("--service-account-signing-key-file={}", self.path("sa.key")),
                "--service-account-issuer=https://kubernetes.default.svc",
                "--authorization-mode=RBAC",
                "--disable-admission-plugins=ServiceAccount",
                "--allow-privileged=true",
            ],
        )?;
        let kubeconfig = kubeconfig(port);
        let options = KubeConfigOptions::default();
        let parsed: Kubeconfig = serde_json::from_value(kubeconfig.clone())?;
        let config = Config::from_custom_kubeconfig(parsed, &options).await?;
        let client = Client::try_from(config.clone())?;
        timeout(START, self.wait_until_ready(&client)).await??;
        fs::write(self.path("kubeconfig"), kubeconfig.to_string())?;
        self.run(
            "kube-controller-manager",
            &[
                &format!("--kubeconfig={}", self.path("kubeconfig")),
                "--controllers=garbagecollector,namespace",
                "--leader-elect=false",
                "--port=0",
                "--secure-port=0",
            ],
        )?;
        Ok((client, config))
    }

    /// Asks until the server says it is ready, or a process has ended.
    async fn wait_until_ready(&mut self, client: &Client) -> Outcome<()> {
        loop {
            for process in &mut self.processes {
                if let Some(status) = process.try_wait()? {
                    return Err(format!("a server ended with {status}").into());
                }
            }
            let request = http::Request::get("/readyz").body(Vec::new())?;
            if client
                .request_text(request)
                .await
                .is_ok_and(|text| text == "ok")
            {
                return Ok(());
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn run(&mut self, program: &str, arguments: &[&str]) -> Outcome<()> {
        let log = File::create(self.path(&format!("{program}.log")))?;
        let path = self.assets.join(program);
        let process = Command::new(&path)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", path.display()))?;
        self.processes.push(process);
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn logs(&self) -> String {
        let programs = ["etcd", "kube-apiserver", "kube-controller-manager"];
        let end = |program: &str| {
            let path = Path::new(&self.folder).join(format!("{program}.log"));
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let end = lines[lines.len().saturating_sub(15)..].join("\n");
            format!("--- {program}\n{end}\n")
        };
        programs.map(end).concat()
    }
}

/// A port that is free now; the server takes it over at once.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A P-256 key to sign service account tokens with. It protects nothing.
fn signing_key() -> String {
    let mut der = vec![0x30, 0x31, 0x02, 0x01, 0x01, 0x04, 0x20];
    der.extend([7; 32]);
    der.extend([
        0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,
    ]);
    let kind = "EC PRIVATE KEY";
    format!(
        "-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n",
        STANDARD.encode(der)
    )
}

fn kubeconfig(port: u16) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "envtest",
        "clusters": [{ "name": "envtest", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "insecure-skip-tls-verify": true,
        } }],
        "users": [{ "name": "envtest", "user": { "token": TOKEN } }],
        "contexts": [{ "name": "envtest", "context": {
            "cluster": "envtest",
            "user": "envtest",
        } }],
    })
}
