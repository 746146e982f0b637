//! Unmodified kubectl takes our definitions and what ARC's charts rendered.
//!
//! On a machine without kubectl they pass and say that they were skipped.

use embedded_kube::{ApiServer, ApiServerOptions};
use real_kube::kubectl::Kubectl;
use tokio::net::TcpListener;
use wall_clock::Clock;

/// A kubectl that talks to a server of its own.
async fn start() -> Option<Kubectl> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let kubectl = Kubectl::of(listener.local_addr().unwrap())?;
    let server = ApiServer::new(ApiServerOptions::new(Clock::system(), 7));
    tokio::spawn(async move { server.serve(listener).await });
    Some(kubectl)
}

#[tokio::test(flavor = "multi_thread")]
async fn impresarios_own_definitions_are_installed_and_used() {
    let Some(kubectl) = start().await else {
        return;
    };
    let apply = ["apply", "--server-side", "-f", "-"];
    for file in impresario::api::crd_files() {
        kubectl.run_with(&apply, &file.yaml).await.ok();
        // and once more: nothing conflicts with what was applied
        kubectl.run_with(&apply, &file.yaml).await.ok();
    }
    let crds = kubectl.run(&["get", "crd", "-o", "name"]).await.ok();
    assert_eq!(crds.lines().count(), 4, "{crds}");
    let set = "
apiVersion: actions.github.com/v1alpha1
kind: AutoscalingRunnerSet
metadata: {name: pool}
spec:
  githubConfigUrl: https://github.com/acme
  githubConfigSecret: token
  minRunners: 1
  maxRunners: 5
  template: {spec: {containers: [{name: runner, image: 'runner:1'}]}}
";
    kubectl.run_with(&["apply", "-f", "-"], set).await.ok();
    let table = kubectl.run(&["get", "autoscalingrunnersets"]).await.ok();
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert!(row.starts_with(&["pool", "1", "5"]), "{table}");
    let refused = kubectl
        .run_with(
            &["apply", "-f", "-"],
            &set.replace("minRunners: 1", "minRunners: -1"),
        )
        .await
        .err();
    assert!(refused.contains("spec.minRunners"), "{refused}");
    let refused = kubectl
        .run_with(
            &["apply", "-f", "-"],
            &set.replace("minRunners", "minRuners"),
        )
        .await
        .err();
    assert!(
        refused.contains("unknown field \"spec.minRuners\""),
        "{refused}"
    );
    let explained = kubectl.run(&["explain", "ers.spec"]).await.ok();
    assert!(explained.contains("FIELDS:"), "{explained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_that_real_charts_rendered_are_taken_whole() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/fixtures");
    let Ok(folder) = std::fs::read_dir(fixtures) else {
        println!("skipped: there is no {fixtures}");
        return;
    };
    let Some(kubectl) = start().await else {
        return;
    };
    let apply = ["apply", "--server-side", "-f", "-"];
    for file in impresario::api::crd_files() {
        kubectl.run_with(&apply, &file.yaml).await.ok();
    }
    for namespace in ["arc-systems", "arc-runners"] {
        kubectl.run(&["create", "namespace", namespace]).await.ok();
    }
    let files = folder.map(|entry| entry.unwrap().path());
    for file in files.filter(|path| path.extension().is_some_and(|ending| ending == "yaml")) {
        let file = file.to_str().unwrap();
        // strict: a field that is not known is an error
        let said = kubectl
            .run(&["apply", "--validate=strict", "-f", file])
            .await;
        assert_eq!(said.stderr, "", "{file}");
        said.ok();
        let same = kubectl
            .run(&["apply", "--validate=strict", "-f", file])
            .await
            .ok();
        assert!(
            same.lines().all(|line| line.ends_with(" unchanged")),
            "{file}: {same}"
        );
    }
    let sets = kubectl
        .run(&["get", "autoscalingrunnersets", "-A", "-o", "name"])
        .await
        .ok();
    assert_eq!(sets.lines().count(), 3, "{sets}");
}
