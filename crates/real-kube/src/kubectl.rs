//! Unmodified kubectl and helm, run against an API server on a port of loopback.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// How long one kubectl may take, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

/// A kubectl that talks to one server.
pub struct Kubectl {
    program: PathBuf,
    /// kubectl's home, with its configuration and caches.
    home: TempDir,
}

/// What a kubectl said.
#[derive(Debug)]
pub struct Said {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
}

impl Said {
    /// What it printed, of a run that must have gone well.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.status.success(), "kubectl failed: {self:#?}");
        self.stdout
    }

    /// What it complained of, in a run that must have failed.
    #[track_caller]
    pub fn err(self) -> String {
        assert!(!self.status.success(), "kubectl did not fail: {self:#?}");
        self.stderr
    }
}

impl Kubectl {
    /// A kubectl that talks plain HTTP to a server, without credentials; none when this machine has
    /// no kubectl (named by `KUBECTL`, or on the `PATH`), which is printed.
    ///
    /// # Panics
    ///
    /// When no folder can be made for its configuration.
    #[must_use]
    pub fn of(server: SocketAddr) -> Option<Self> {
        let program = find_program("kubectl", "KUBECTL")?;
        let home = tempfile::tempdir().expect("a folder for kubectl");
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: sim\n\
             clusters: [{{name: sim, cluster: {{server: 'http://{server}'}}}}]\n\
             contexts: [{{name: sim, context: {{cluster: sim, user: sim, namespace: default}}}}]\n\
             users: [{{name: sim, user: {{}}}}]\n"
        );
        std::fs::write(home.path().join("config"), config).expect("a configuration for kubectl");
        Some(Self { program, home })
    }

    /// Runs a helm to its end; none when this machine has no helm, which is printed.
    pub async fn helm(&self, arguments: &[&str]) -> Option<Said> {
        let program = find_program("helm", "HELM")?;
        let child = self.command_of(&program, arguments).spawn().unwrap();
        Some(finish(child, "").await)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(&self.program, arguments)
    }

    fn command_of(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("config"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a kubectl to its end.
    pub async fn run(&self, arguments: &[&str]) -> Said {
        finish(self.command(arguments).spawn().unwrap(), "").await
    }

    /// Runs a kubectl that reads `input` (`-f -`).
    pub async fn run_with(&self, arguments: &[&str], input: &str) -> Said {
        let mut command = self.command(arguments);
        finish(command.stdin(Stdio::piped()).spawn().unwrap(), input).await
    }

    /// Runs `kubectl edit` with a command in place of an editor.
    pub async fn edit(&self, editor: &str, arguments: &[&str]) -> Said {
        let arguments = [&["edit"], arguments].concat();
        let mut command = self.command(&arguments);
        finish(command.env("KUBE_EDITOR", editor).spawn().unwrap(), "").await
    }

    /// Starts a kubectl that goes on (`-w`).
    pub fn watch(&self, arguments: &[&str]) -> Watch {
        let mut child = self.command(arguments).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        Watch {
            lines: BufReader::new(stdout).lines(),
            _child: child,
        }
    }
}

/// A kubectl that goes on until this is dropped.
pub struct Watch {
    lines: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Watch {
    /// The next line in which all of these words stand.
    pub async fn line_with(&mut self, words: &[&str]) -> String {
        let found = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if words.iter().all(|word| line.contains(word)) {
                    return line;
                }
            }
            panic!("the watch ended before a line with {words:?}");
        };
        timeout(PATIENCE, found)
            .await
            .unwrap_or_else(|_| panic!("no line with {words:?}"))
    }
}

async fn finish(mut child: Child, input: &str) -> Said {
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).await.unwrap();
    }
    let output = timeout(PATIENCE, child.wait_with_output())
        .await
        .expect("kubectl takes no longer than it may")
        .unwrap();
    Said {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The program that a variable names, or that is on the `PATH`.
fn find_program(name: &str, variable: &str) -> Option<PathBuf> {
    if let Some(program) = std::env::var_os(variable) {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join(name));
    let found = programs.find(|program| program.is_file());
    if found.is_none() {
        println!("skipped: no {name} on the PATH, and {variable} does not name one");
    }
    found
}
