//! What the controller logs in a whole run: one line a step, and never what objects hold. Alone
//! in its process, and one test: whether a line of the program is logged at all is decided once
//! for all threads, so that tests beside this one could silence it.

#[path = "../support/logged.rs"]
mod logged;
#[path = "../support/stage/mod.rs"]
#[allow(dead_code, reason = "shared with other tests, which use other parts")]
mod stage;

use std::time::Duration;

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, DeleteParams};
use serde_json::json;
use tracing_subscriber::EnvFilter;

use logged::Logged;
use stage::manifests::{RUN, SET};
use stage::{Stage, play};

/// Stands in the template of the pool's runners, and so in nearly every object.
const BODY: &str = "only-in-the-body-of-objects";
const JOBS: usize = 6;

/// What is logged from that level on while that is played.
fn log_of(level: &str, what: impl AsyncFnOnce()) -> String {
    let logged = Logged::default();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(format!("warn,impresario={level}")))
        .with_ansi(false)
        .with_writer(logged.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || play(what));
    logged.text()
}

/// Runs jobs through a pool, and removes it; answers with the log of that level.
fn log_of_a_run(level: &str) -> String {
    log_of(level, async || {
        let stage = Stage::whole_without_log(31).await;
        stage.settled_fixture(0, 3).await;
        let template = json!({"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "runner", "image": "img:1",
                "env": [{"name": "BODY", "value": BODY}]}],
        }}});
        stage.edit(template).await;
        stage.settle().await;
        stage.queue_jobs(JOBS, SET, Duration::from_secs(20));
        stage
            .until("all jobs are done", async || stage.jobs_done() == JOBS)
            .await;
        stage
            .until("nobody is left", async || stage.runners().await.is_empty())
            .await;
        stage.delete_scale_set().await;
        stage.settle().await;
        stage.assert_sound();
    })
}

#[test]
fn at_debug_a_step_is_a_line_without_bodies_and_at_trace_it_is_all_there() {
    at_debug_a_step_is_a_line_that_names_what_happened_and_no_bodies();
    at_trace_it_is_all_there();
    a_missing_right_is_one_warning_whoever_lacks_it();
}

fn at_debug_a_step_is_a_line_that_names_what_happened_and_no_bodies() {
    let log = log_of_a_run("debug");
    let body = log.lines().find(|line| line.contains(BODY));
    assert_eq!(body, None, "a body is in the log");
    let longest = log.lines().max_by_key(|line| line.len()).unwrap();
    assert!(longest.len() < 2_500, "{longest}");
    // the sets and the listener included
    let each = log.len() / JOBS;
    assert!(each < 25_000, "{each} bytes for each runner");
    for part in [
        "actor=\"runner\"",
        "key=Runner/run/set-",
        "because=seen EphemeralRunner run/set-",
        "because=Pod(Create): Pod run/set-",
        "create Pod run/set-",
        "status [status.phase",
        "generate_jit_config set-",
        "decided=nothing",
    ] {
        assert!(log.contains(part), "{part} is not in the log");
    }
}

fn at_trace_it_is_all_there() {
    let log = log_of_a_run("trace");
    assert!(log.contains(BODY), "no patch of the template is shown");
}

/// Secrets are read by runners, by listeners, and for each call of the Actions service.
fn a_missing_right_is_one_warning_whoever_lacks_it() {
    let log = log_of("warn", async || {
        let stage = Stage::whole_without_log(33).await;
        stage.settled_fixture(1, 3).await;
        stage
            .until("one runs", async || stage.runner_pods().await.len() == 1)
            .await;
        let bindings = Api::<RoleBinding>::namespaced(stage.client.clone(), RUN);
        let all = DeleteParams::default();
        bindings
            .delete("impresario-controller", &all)
            .await
            .unwrap();
        stage.kill_controller();
        stage.start_controller();
        stage.pass(Duration::from_secs(60)).await;
        stage.edit(json!({"runnerScaleSetName": "another"})).await;
        stage.pass(Duration::from_secs(600)).await;
    });
    let told = log.lines().filter(|line| line.contains(" may not "));
    let right = |line: &str| {
        let from = line.find(" may not ").unwrap();
        let to = line.find(": give it that right").unwrap();
        line[from..to].to_owned()
    };
    let mut rights: Vec<String> = told.map(right).collect();
    let secrets = rights
        .iter()
        .filter(|right| right.contains("get resource \"secrets\""));
    assert_eq!(secrets.count(), 1, "{rights:#?}");
    rights.sort();
    let count = rights.len();
    rights.dedup();
    assert_eq!(rights.len(), count, "{rights:#?}");
}
