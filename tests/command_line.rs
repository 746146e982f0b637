//! The program as a person meets it: the real binary, its help, its exit codes, what it says
//! of bad input, and a demonstration from start to end.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

const PROGRAM: &str = env!("CARGO_BIN_EXE_impresario");

/// How long one run may take, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

/// Must never be shown.
const TOKEN: &str = "ghp_private-and-not-to-be-shown";

/// The program, with nothing of the environment it could find a cluster by.
fn program(path: impl AsRef<Path>) -> Command {
    let mut command = Command::new(path.as_ref());
    command
        .env_clear()
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

async fn finish(command: &mut Command) -> Output {
    timeout(PATIENCE, command.output())
        .await
        .expect("the program ends")
        .unwrap()
}

async fn run(arguments: &[&str]) -> Output {
    finish(program(PROGRAM).args(arguments)).await
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn assert_parts(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

/// Runs the program, which must refuse with that exit code and an error with these parts.
async fn assert_refused(command: &mut Command, code: i32, parts: &[&str]) {
    let output = finish(command).await;
    let text = err(&output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert!(!text.contains("panicked"), "{text}");
    assert!(
        !text.contains(TOKEN) && !out(&output).contains(TOKEN),
        "{text}"
    );
    assert_parts(&text, parts);
}

// === help ===

#[tokio::test]
async fn without_a_command_the_help_lists_them() {
    let none = run(&[]).await;
    assert_eq!(none.status.code(), Some(2));
    let help = run(&["--help"]).await;
    assert_eq!(help.status.code(), Some(0));
    for text in [err(&none), out(&help)] {
        assert_parts(
            &text,
            &[
                "controller",
                "listener",
                "demo",
                "actions-service",
                "crds",
                "release",
                "Usage: impresario",
            ],
        );
    }
}

#[tokio::test]
async fn the_help_of_every_command_explains_every_flag() {
    for (command, flags) in [
        ("controller", 21),
        ("listener", 1),
        ("demo", 10),
        ("actions-service", 12),
        ("crds", 2),
        ("release", 3),
    ] {
        let output = run(&[command, "--help"]).await;
        assert_eq!(output.status.code(), Some(0));
        let text = out(&output);
        let about = text.lines().next().unwrap();
        assert!(about.len() > 20, "{command} is not explained: {about}");
        let options = text.split("Options:").nth(1).unwrap();
        let mut seen = 0;
        let mut lines = options.lines().peekable();
        while let Some(line) = lines.next() {
            if !line.trim_start().starts_with('-') {
                continue;
            }
            seen += 1;
            let beside = line.trim().split("  ").skip(1).collect::<String>();
            let below = lines.peek().copied().unwrap_or_default();
            let explained = beside.trim().len() + below.trim().len();
            assert!(explained >= "Print help".len(), "{command}: {line}");
        }
        assert!(seen >= flags, "{command} shows {seen} flags:\n{text}");
    }
}

#[tokio::test]
async fn called_by_the_names_of_arcs_programs_it_acts_as_they_do() {
    let folder = TempDir::new().unwrap();
    let link = |name: &str| {
        let path = folder.path().join(name);
        symlink(PROGRAM, &path).unwrap();
        path
    };
    let (manager, listener) = (link("manager"), link("ghalistener"));
    let help = finish(program(&manager).arg("--help")).await;
    assert_parts(
        &out(&help),
        &["--auto-scaling-runner-set-only", "--listener-metrics-addr"],
    );
    let parts = ["--no-such-flag"];
    assert_refused(program(&manager).arg("--no-such-flag"), 2, &parts).await;
    assert_refused(&mut program(&listener), 1, &["LISTENER_CONFIG_PATH"]).await;
}

#[tokio::test]
async fn crds_are_printed_for_kubectl() {
    let output = run(&["crds"]).await;
    assert_eq!(output.status.code(), Some(0));
    let text = out(&output);
    for name in [
        "autoscalingrunnersets",
        "autoscalinglisteners",
        "ephemeralrunnersets",
        "ephemeralrunners",
    ] {
        assert_parts(&text, &[&format!("name: {name}.actions.github.com\n")]);
    }
    assert_eq!(text.lines().filter(|line| *line == "---").count(), 4);
    let file = tempfile::NamedTempFile::new().unwrap();
    let below = file.path().join("crds");
    let below = below.to_str().unwrap();
    assert_refused(
        program(PROGRAM).args(["crds", "--write", below]),
        1,
        &[below],
    )
    .await;
}

// === flags ===

#[tokio::test]
async fn an_unknown_command_or_flag_or_a_bad_value_is_a_usage_error_that_names_it() {
    let cases: [(&[&str], &[&str]); 11] = [
        (&["paly"], &["paly"]),
        (&["demo", "--job", "3"], &["--job", "--jobs"]),
        (&["demo", "--jobs", "many"], &["--jobs", "many"]),
        (&["demo", "--jobs", "-1"], &["-1"]),
        (
            &["demo", "--job-duration", "3s..1s"],
            &["--job-duration", "3s..1s"],
        ),
        (
            &["demo", "--job-duration", "soon"],
            &["--job-duration", "500ms"],
        ),
        (&["demo", "--arrival", "often"], &["--arrival", "burst"]),
        (&["demo", "--port", "70000"], &["--port", "70000"]),
        (&["demo", "--log-level", "loud"], &["--log-level", "debug"]),
        (
            &["controller", "--log-format", "xml"],
            &["--log-format", "json"],
        ),
        (
            &["controller", "--sync-period", "1x"],
            &["--sync-period", "90s"],
        ),
    ];
    for (arguments, parts) in cases {
        assert_refused(program(PROGRAM).args(arguments), 2, parts).await;
    }
}

// === controller and listener ===

/// A controller that would start, but for a cluster.
fn controller() -> Command {
    let mut command = program(PROGRAM);
    command
        .arg("controller")
        .env("CONTROLLER_MANAGER_CONTAINER_IMAGE", "impresario:1")
        .env("CONTROLLER_MANAGER_POD_NAMESPACE", "arc-systems");
    command
}

#[tokio::test]
async fn a_controller_without_its_environment_names_what_is_missing() {
    let mut command = program(PROGRAM);
    command.arg("controller");
    assert_refused(&mut command, 1, &["CONTROLLER_MANAGER_CONTAINER_IMAGE"]).await;
    command.env("CONTROLLER_MANAGER_CONTAINER_IMAGE", "impresario:1");
    assert_refused(&mut command, 1, &["CONTROLLER_MANAGER_POD_NAMESPACE"]).await;
}

#[tokio::test]
async fn a_controller_without_a_cluster_says_how_to_give_it_one() {
    let off = ["--metrics-addr=0", "--health-probe-bind-address=0"];
    assert_refused(controller().args(off), 1, &["KUBECONFIG", "demo"]).await;
    let folder = TempDir::new().unwrap();
    let missing = folder.path().join("no-such-kubeconfig");
    let missing = missing.to_str().unwrap();
    let mut command = controller();
    command.args(off).env("KUBECONFIG", missing);
    assert_refused(&mut command, 1, &[missing]).await;
}

#[tokio::test]
async fn an_address_that_cannot_be_served_is_named_with_its_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (flag, other) in [
        ("--metrics-addr", "--health-probe-bind-address=0"),
        ("--health-probe-bind-address", "--metrics-addr=0"),
    ] {
        let mut command = controller();
        command.args([other, &format!("{flag}={address}")]);
        assert_refused(&mut command, 1, &[flag, &address, "in use"]).await;
    }
    let mut command = controller();
    command.arg("--metrics-addr=8080");
    assert_refused(
        &mut command,
        1,
        &["--metrics-addr", "\"8080\"", "HOST:PORT"],
    )
    .await;
}

#[tokio::test]
async fn a_config_that_the_listener_cannot_use_is_named_with_the_place_and_not_shown() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("config.json");
    let name = path.to_str().unwrap().to_owned();
    let listener = || {
        let mut command = program(PROGRAM);
        command.arg("listener").env("LISTENER_CONFIG_PATH", &path);
        command
    };
    assert_refused(&mut listener(), 1, &[&name, "LISTENER_CONFIG_PATH"]).await;
    let cases: [(String, &[&str]); 4] = [
        (
            format!("{{\n  \"github_token\": \"{TOKEN}\",\n  \"max_runners\": {TOKEN}\n}}"),
            &["line 3, column 18"],
        ),
        (
            format!("{{\"github_token\": \"{TOKEN}"),
            &["line 1", "too early"],
        ),
        (
            format!("{{\"github_token\": [\"{TOKEN}\"], \"runner_scale_set_id\": \"{TOKEN}\"}}"),
            &["github_token", "runner_scale_set_id", "wrong type"],
        ),
        (
            format!("{{\"github_token\": \"{TOKEN}\", \"min_runners\": 3, \"max_runners\": 2}}"),
            &[
                "configure_url",
                "ephemeral_runner_set_name",
                "min_runners is 3",
            ],
        ),
    ];
    for (text, parts) in cases {
        fs::write(&path, text).unwrap();
        assert_refused(&mut listener(), 1, parts).await;
    }
}

// === manifests ===

const SCALE_SET: &str = "\
apiVersion: actions.github.com/v1alpha1
kind: AutoscalingRunnerSet
metadata: {name: linux, namespace: ci}
spec:
  githubConfigUrl: https://github.com/acme
  githubConfigSecret: github-auth
  minRunners: 1
  maxRunners: 4
  template:
    spec:
      containers:
        - name: runner
          image: runner:1
";

fn secret(texts: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: github-auth, namespace: ci}}\n\
         stringData: {{{texts}}}\n"
    )
}

/// A folder with manifests.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

/// A short demonstration of these manifests.
fn demo(files: &[&Path]) -> Command {
    let mut command = program(PROGRAM);
    command.args(["demo", "--exit-when-done", "--jobs", "3"]);
    command.args(["--job-duration", "50ms..100ms", "--port", "0"]);
    if !files.is_empty() {
        command.arg("-f").args(files);
    }
    command
}

#[tokio::test]
async fn a_manifest_that_cannot_be_used_is_refused_with_file_line_object_and_field() {
    let files = Files::new();
    let broken = |from: &str, to: &str| {
        assert!(SCALE_SET.contains(from));
        SCALE_SET.replace(from, to)
    };
    let set = "AutoscalingRunnerSet ci/linux";
    let cases: [(String, &[&str]); 12] = [
        (
            broken("minRunners: 1", "minRunners: one"),
            &[":7:", set, "spec.minRunners", "integer"],
        ),
        (
            broken("maxRunners: 4", "maxRuners: 4"),
            &[":8:", set, "spec.maxRuners", "did you mean maxRunners?"],
        ),
        (
            broken("image: runner:1", "imag: runner:1"),
            &[":13:", set, "spec.template.spec.containers[0].imag"],
        ),
        (
            broken("https://github.com/acme", "github.com/acme"),
            &[
                ":5:",
                set,
                "spec.githubConfigUrl",
                "https://HOST/ORGANIZATION",
            ],
        ),
        (
            broken("minRunners: 1", "minRunners: 5"),
            &[":7:", set, "spec.minRunners", "spec.maxRunners, which is 4"],
        ),
        (
            broken("name: runner\n", "name: main\n"),
            &[set, "spec.template.spec.containers", "\"runner\""],
        ),
        (
            broken("AutoscalingRunnerSet", "RunnerSet"),
            &[":2:", "RunnerSet ci/linux", "kind", "AutoscalingRunnerSet"],
        ),
        (
            SCALE_SET[..SCALE_SET.find("spec:").unwrap()].to_owned(),
            &[set, "spec", "is not set"],
        ),
        (
            format!(
                "{SCALE_SET}---\napiVersion: acme.example/v1\nkind: Gadget\nmetadata: {{name: g}}\n\
                 ---\n{}",
                secret("github_token: t")
            ),
            &[":15", "Gadget g", "acme.example/v1"],
        ),
        ("{{ .Values.oops }}".to_owned(), &[":1:"]),
        ("a: [1,".to_owned(), &[":1:", "is not YAML"]),
        (String::new(), &["holds no object"]),
    ];
    for (text, parts) in cases {
        let path = files.write("pool.yaml", &text);
        let parts = [&["pool.yaml"], parts].concat();
        assert_refused(&mut demo(&[&path]), 1, &parts).await;
    }
}

#[tokio::test]
async fn a_secret_that_is_missing_or_will_not_do_is_refused_with_field_and_place() {
    let files = Files::new();
    let set = files.write("set.yaml", SCALE_SET);
    let parts = [
        "set.yaml:1:",
        "spec.githubConfigSecret",
        "Secret ci/github-auth",
    ];
    assert_refused(&mut demo(&[&set]), 1, &parts).await;
    for (texts, problem) in [
        (String::from("other: x"), "holds no credentials"),
        (
            format!("github_token: {TOKEN}, github_app_id: '1'"),
            "holds both",
        ),
        (
            format!(
                "github_app_id: '1', github_app_installation_id: {TOKEN}, github_app_private_key: {TOKEN}"
            ),
            "github_app_installation_id is not a number",
        ),
    ] {
        let secret = files.write("secret.yaml", &secret(&texts));
        let parts = [&parts[..], &["secret.yaml:1:", problem]].concat();
        assert_refused(&mut demo(&[&set, &secret]), 1, &parts).await;
    }
}

#[tokio::test]
async fn a_file_that_is_not_there_or_no_text_is_named() {
    let files = Files::new();
    let missing = files.0.path().join("missing.yaml");
    assert_refused(&mut demo(&[&missing]), 1, &["missing.yaml", "No such file"]).await;
    let binary = files.0.path().join("binary.yaml");
    fs::write(&binary, [0xff, 0xfe, 0x00]).unwrap();
    assert_refused(&mut demo(&[&binary]), 1, &["binary.yaml"]).await;
    assert_refused(&mut demo(&[files.0.path()]), 1, &["directory"]).await;
}

#[tokio::test]
async fn a_port_in_use_is_named_with_its_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut command = program(PROGRAM);
    command.args(["demo", "--exit-when-done", "--port", &port]);
    assert_refused(&mut command, 1, &["--port", &port, "in use"]).await;
}

// === a demonstration ===

#[tokio::test]
async fn a_demonstration_sums_up_what_it_has_shown() {
    let output = finish(&mut demo(&[])).await;
    let text = out(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", err(&output));
    assert_parts(
        &text,
        &[
            "kubectl -s http://127.0.0.1:",
            "3 of 3 jobs done",
            "no runner ran two jobs",
            "≤ maxRunners 10",
            "back at minRunners 1",
            "no leftover registration, Secret, pod or session",
            "per runner",
        ],
    );
    assert!(text.contains("p50") && text.contains("p95") && text.contains("max"));
    assert_eq!(err(&output), "");
}

#[tokio::test]
async fn scale_sets_and_their_secrets_may_come_in_several_files() {
    let files = Files::new();
    let first = files.write("first.yaml", SCALE_SET);
    let second = SCALE_SET
        .replace("linux", "gpu")
        .replace("minRunners: 1", "minRunners: 0");
    let second = files.write("second.yaml", &second);
    let secret = files.write("secret.yaml", &secret(&format!("github_token: {TOKEN}")));
    let output = finish(&mut demo(&[&first, &second, &secret])).await;
    let text = out(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", err(&output));
    let parts = [
        "3 of 3 jobs done",
        "≤ maxRunners 8",
        "back at minRunners 1",
        "ci/gpu",
    ];
    assert_parts(&text, &parts);
    assert!(!text.contains(TOKEN));
}

#[tokio::test]
async fn without_a_terminal_neither_lines_nor_log_have_colours() {
    let files = Files::new();
    let log = files.0.path().join("demo.log");
    let output = finish(demo(&[]).args(["--log-level", "debug"])).await;
    let (text, logged) = (out(&output), err(&output));
    assert!(logged.contains("DEBUG"), "{logged}");
    for text in [&text, &logged] {
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(!text.contains("put-your-token-here"));
    }
    let output = finish(
        demo(&[])
            .args(["--log-level", "debug", "--log-file"])
            .arg(&log),
    )
    .await;
    assert_eq!(err(&output), "");
    assert!(fs::read_to_string(&log).unwrap().contains("DEBUG"));
}

#[tokio::test]
async fn a_reader_that_goes_away_or_a_signal_ends_a_demonstration_in_order() {
    let mut child = program(PROGRAM)
        .args(["demo", "--jobs", "2", "--job-duration", "50ms"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines
            .next_line()
            .await
            .unwrap()
            .unwrap()
            .contains("cluster is up")
    );
    let pid = child.id().unwrap().to_string();
    let told = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(told.unwrap().success());
    let mut rest = String::new();
    while let Some(line) = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap() {
        rest += &format!("{line}\n");
    }
    assert_parts(&rest, &["Summary after", "of 2 jobs done"]);
    let status = timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));

    let mut stays = program(PROGRAM);
    stays.args(["demo", "--jobs", "2", "--job-duration", "50ms"]);
    for command in [&mut demo(&[]), &mut stays] {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let ended = timeout(PATIENCE, child.wait_with_output()).await;
        let output = ended.expect("the program ends").unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(!err(&output).contains("panicked"), "{}", err(&output));
    }
}

#[tokio::test]
async fn on_a_terminal_there_is_a_live_view_and_the_terminal_is_given_back() {
    let line = format!(
        "stty cols 80 rows 24; {PROGRAM} demo --exit-when-done --jobs 2 --job-duration 50ms"
    );
    let mut command = program("/usr/bin/script");
    command.args(["-qec", &line, "/dev/null"]);
    command.env("PATH", "/usr/bin:/bin").env("TERM", "xterm");
    let Ok(output) = timeout(PATIENCE, command.output()).await.unwrap() else {
        println!("skipped: there is no program script to make a terminal with");
        return;
    };
    let text = out(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let (view, after) = text.split_once("\u{1b}[?1049l").expect("the view is left");
    assert!(view.contains("\u{1b}[?1049h"), "{view:?}");
    for part in ["impresario demo", "leaves", "runners", "actors", "kubectl"] {
        assert!(view.contains(part), "no {part} in {view:?}");
    }
    assert_parts(after, &["Summary after", "2 of 2 jobs done"]);
}
