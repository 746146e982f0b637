//! Unmodified kubectl, and helm, work against the embedded API server.
//!
//! Each test starts a server of its own. On a machine without kubectl they pass and say that
//! they were skipped.

use embedded_kube::{ApiServer, ApiServerOptions};
use real_kube::kubectl::Kubectl;
use tokio::net::TcpListener;
use wall_clock::Clock;

const GADGETS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.test.example}
spec:
  group: test.example
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, shortNames: [gd], categories: [tools]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    - {name: Home, type: string, jsonPath: .spec.url, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        description: A thing to test with.
        type: object
        properties:
          spec:
            description: What is wanted.
            type: object
            required: [url]
            properties:
              url: {type: string, description: Where it lives.}
              size: {type: integer, minimum: 0, default: 1}
              note: {type: string}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, weight: {type: integer}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"#;

const ONE: &str = "
apiVersion: test.example/v1
kind: Gadget
metadata: {name: one, labels: {tier: front}}
spec: {url: 'https://one', size: 2, note: keep, parts: [{name: left, weight: 1}]}
";

const TWO: &str = "
apiVersion: test.example/v1
kind: Gadget
metadata: {name: two, labels: {tier: back}}
spec: {url: 'https://two'}
";

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: worker, labels: {app: w}}
spec:
  containers:
  - {name: main, image: 'busybox:1', env: [{name: A, value: '1'}, {name: B, value: '2'}]}
  - {name: side, image: 'busybox:1'}
";

/// A kubectl that talks to a server of its own.
async fn start() -> Option<Kubectl> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let kubectl = Kubectl::of(listener.local_addr().unwrap())?;
    let server = ApiServer::new(ApiServerOptions::new(Clock::system(), 7));
    tokio::spawn(async move { server.serve(listener).await });
    Some(kubectl)
}

/// A server that knows gadgets.
async fn with_gadgets() -> Option<Kubectl> {
    let kubectl = start().await?;
    let said = kubectl.run_with(&["apply", "-f", "-"], GADGETS).await;
    assert!(said.ok().contains("gadgets.test.example created"));
    let wait = [
        "wait",
        "--for=condition=Established",
        "crd/gadgets.test.example",
        "--timeout=30s",
    ];
    kubectl.run(&wait).await.ok();
    Some(kubectl)
}

/// The same with two gadgets.
async fn with_two() -> Option<Kubectl> {
    let kubectl = with_gadgets().await?;
    for manifest in [ONE, TWO] {
        kubectl
            .run_with(&["create", "-f", "-"], manifest)
            .await
            .ok();
    }
    Some(kubectl)
}

fn columns(table: &str) -> Vec<Vec<&str>> {
    table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn get_shows_tables_with_the_definitions_columns() {
    let Some(kubectl) = with_two().await else {
        return;
    };
    let table = kubectl.run(&["get", "gadgets"]).await.ok();
    let rows = columns(&table);
    assert_eq!(rows[0], ["NAME", "SIZE", "READY", "AGE"]);
    assert_eq!(rows[1][..2], ["one", "2"]);
    assert_eq!(rows[2][..2], ["two", "1"]);
    let wide = kubectl.run(&["get", "gd", "-o", "wide"]).await.ok();
    assert_eq!(columns(&wide)[0], ["NAME", "SIZE", "READY", "HOME", "AGE"]);
    assert!(wide.contains("https://two"));
    let all = kubectl.run(&["get", "tools", "-A"]).await.ok();
    assert_eq!(columns(&all)[1][..2], ["default", "one"]);
    kubectl.run_with(&["apply", "-f", "-"], POD).await.ok();
    let pods = kubectl.run(&["get", "pods", "-o", "wide"]).await.ok();
    assert_eq!(
        columns(&pods)[0][..7],
        ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    );
    assert_eq!(columns(&pods)[1][..4], ["worker", "0/2", "Pending", "0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn get_shows_documents_in_every_format() {
    let Some(kubectl) = with_two().await else {
        return;
    };
    let yaml = kubectl.run(&["get", "gd", "one", "-o", "yaml"]).await.ok();
    assert!(
        yaml.contains("note: keep") && yaml.contains("generation: 1"),
        "{yaml}"
    );
    let json = kubectl.run(&["get", "gd", "-o", "json"]).await.ok();
    let list: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(list["items"][1]["spec"]["size"], 1);
    let path = "jsonpath={.items[*].spec.url}";
    let urls = kubectl.run(&["get", "gd", "-o", path]).await.ok();
    assert_eq!(urls, "https://one https://two");
    let names = kubectl.run(&["get", "gd", "-o", "name"]).await.ok();
    assert_eq!(names, "gadget.test.example/one\ngadget.test.example/two\n");
    let missing = kubectl.run(&["get", "gd", "three"]).await.err();
    assert!(
        missing.contains("gadgets.test.example \"three\" not found"),
        "{missing}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_choose_objects() {
    let Some(kubectl) = with_two().await else {
        return;
    };
    for (selector, expected) in [
        (["-l", "tier=front"], "gadget.test.example/one\n"),
        (["-l", "tier notin (front)"], "gadget.test.example/two\n"),
        (["-l", "!tier"], ""),
        (
            ["--field-selector", "metadata.name=two"],
            "gadget.test.example/two\n",
        ),
    ] {
        let arguments = [&["get", "gd", "-o", "name"], &selector[..]].concat();
        assert_eq!(kubectl.run(&arguments).await.ok(), expected, "{selector:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_shows_changes_as_they_come() {
    let Some(kubectl) = with_two().await else {
        return;
    };
    let mut watch = kubectl.watch(&["get", "gd", "-w", "--output-watch-events"]);
    watch.line_with(&["ADDED", "two", "1"]).await;
    let patch = r#"{"spec":{"size":5}}"#;
    kubectl
        .run(&["patch", "gd", "two", "--type=merge", "-p", patch])
        .await
        .ok();
    watch.line_with(&["MODIFIED", "two", "5"]).await;
    kubectl.run(&["delete", "gd", "two"]).await.ok();
    watch.line_with(&["DELETED", "two"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn describe_shows_an_object_with_its_events() {
    let Some(kubectl) = with_two().await else {
        return;
    };
    kubectl.run_with(&["apply", "-f", "-"], POD).await.ok();
    for (kind, api_version, name) in [
        ("Gadget", "test.example/v1", "one"),
        ("Pod", "v1", "worker"),
    ] {
        let path = ["get", kind, name, "-o", "jsonpath={.metadata.uid}"];
        let uid = kubectl.run(&path).await.ok();
        let event = format!(
            "apiVersion: v1\nkind: Event\nmetadata: {{name: {name}.1, namespace: default}}\n\
             type: Warning\nreason: Broken\nmessage: {name} broke\ncount: 2\n\
             lastTimestamp: '2026-01-02T03:04:05Z'\nsource: {{component: tester}}\n\
             involvedObject: {{apiVersion: {api_version}, kind: {kind}, name: {name}, \
             namespace: default, uid: {uid}}}\n"
        );
        kubectl.run_with(&["create", "-f", "-"], &event).await.ok();
        let described = kubectl.run(&["describe", kind, name]).await.ok();
        assert!(described.contains(&format!("{name} broke")), "{described}");
        assert!(described.contains("tester"), "{described}");
    }
    let gadget = kubectl.run(&["describe", "gd", "one"]).await.ok();
    assert!(gadget.contains("Weight:  1"), "{gadget}");
    let pod = kubectl.run(&["describe", "pod", "worker"]).await.ok();
    assert!(
        pod.contains("busybox:1") && pod.contains("Status:"),
        "{pod}"
    );
    let events = kubectl.run(&["get", "events"]).await.ok();
    assert!(
        events.contains("pod/worker") && events.contains("gadget/one"),
        "{events}"
    );
    let of_one = kubectl.run(&["events", "--for", "gadget/one"]).await.ok();
    assert!(
        of_one.contains("one broke") && !of_one.contains("worker broke"),
        "{of_one}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_creates_changes_and_removes_what_was_left_out() {
    let Some(kubectl) = with_gadgets().await else {
        return;
    };
    let apply = ["apply", "-f", "-"];
    assert!(
        kubectl
            .run_with(&apply, ONE)
            .await
            .ok()
            .ends_with("one created\n")
    );
    assert!(
        kubectl
            .run_with(&apply, ONE)
            .await
            .ok()
            .ends_with("one unchanged\n")
    );
    let changed = ONE
        .replace("note: keep, ", "")
        .replace("size: 2", "size: 4");
    assert!(
        kubectl
            .run_with(&apply, &changed)
            .await
            .ok()
            .ends_with("one configured\n")
    );
    let path = "jsonpath={.spec.size} {.spec.note}";
    assert_eq!(
        kubectl.run(&["get", "gd", "one", "-o", path]).await.ok(),
        "4 "
    );

    // a built-in kind, whose lists merge by name
    kubectl.run_with(&apply, POD).await.ok();
    let pod = POD.replace(
        "{name: side, image: 'busybox:1'}",
        "{name: side, image: 'busybox:2'}",
    );
    kubectl.run_with(&apply, &pod).await.ok();
    let path = "jsonpath={.spec.containers[*].image}";
    assert_eq!(
        kubectl
            .run(&["get", "pod", "worker", "-o", path])
            .await
            .ok(),
        "busybox:1 busybox:2"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn server_side_apply_repeats_and_names_conflicts() {
    let Some(kubectl) = with_gadgets().await else {
        return;
    };
    let apply = ["apply", "--server-side", "-f", "-"];
    kubectl.run_with(&apply, ONE).await.ok();
    let version = [
        "get",
        "gd",
        "one",
        "-o",
        "jsonpath={.metadata.resourceVersion}",
    ];
    let before = kubectl.run(&version).await.ok();
    kubectl.run_with(&apply, ONE).await.ok();
    assert_eq!(
        kubectl.run(&version).await.ok(),
        before,
        "the second apply wrote nothing"
    );

    let other = ["apply", "--server-side", "--field-manager=other", "-f", "-"];
    let conflict = kubectl
        .run_with(&other, &ONE.replace("size: 2", "size: 3"))
        .await
        .err();
    let expected = "Apply failed with 1 conflict: conflict with \"kubectl\": .spec.size";
    assert!(conflict.contains(expected), "{conflict}");
    let forced = [&other[..], &["--force-conflicts"]].concat();
    kubectl
        .run_with(&forced, &ONE.replace("size: 2", "size: 3"))
        .await
        .ok();

    // what only the first manager set goes when it leaves it out
    let less = "
apiVersion: test.example/v1
kind: Gadget
metadata: {name: one}
spec: {url: 'https://one'}
";
    kubectl.run_with(&other, less).await.ok();
    kubectl
        .run_with(
            &apply,
            &less.replace(
                "'https://one'",
                "'https://one', parts: [{name: left, weight: 1}]",
            ),
        )
        .await
        .ok();
    let path = "jsonpath={.spec.note}|{.spec.parts[*].name}";
    assert_eq!(
        kubectl.run(&["get", "gd", "one", "-o", path]).await.ok(),
        "|left"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_of_every_kind_are_taken() {
    let Some(kubectl) = with_two().await else {
        return;
    };
    let patch = |kind, body| ["patch", "gd", "one", kind, "-p", body];
    kubectl
        .run(&patch("--type=merge", r#"{"spec":{"note":null,"size":6}}"#))
        .await
        .ok();
    let add = r#"[{"op":"add","path":"/spec/parts/-","value":{"name":"right"}}]"#;
    kubectl.run(&patch("--type=json", add)).await.ok();
    let path = "jsonpath={.spec.size} {.spec.note} {.spec.parts[*].name}";
    assert_eq!(
        kubectl.run(&["get", "gd", "one", "-o", path]).await.ok(),
        "6  left right"
    );
    let refused = kubectl.run(&patch("--type=strategic", "{}")).await.err();
    assert!(
        refused.contains("strategic-merge-patch+json is not supported"),
        "{refused}"
    );

    kubectl.run_with(&["apply", "-f", "-"], POD).await.ok();
    let body = r#"{"spec":{"containers":[{"name":"side","image":"busybox:9"}]}}"#;
    kubectl
        .run(&["patch", "pod", "worker", "-p", body])
        .await
        .ok();
    let path = "jsonpath={.spec.containers[*].image}";
    assert_eq!(
        kubectl
            .run(&["get", "pod", "worker", "-o", path])
            .await
            .ok(),
        "busybox:1 busybox:9"
    );
    let status = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    kubectl
        .run(&[
            "patch",
            "gd",
            "one",
            "--subresource=status",
            "--type=merge",
            "-p",
            status,
        ])
        .await
        .ok();
    let table = kubectl.run(&["get", "gd", "one"]).await.ok();
    assert_eq!(columns(&table)[1][2], "True");
}

#[tokio::test(flavor = "multi_thread")]
async fn edit_writes_what_the_editor_left_and_refuses_what_is_invalid() {
    let Some(kubectl) = with_two().await else {
        return;
    };
    let edited = kubectl
        .edit("sed -i 's/size: 2/size: 8/'", &["gd", "one"])
        .await
        .ok();
    assert!(edited.ends_with("one edited\n"), "{edited}");
    let path = ["get", "gd", "one", "-o", "jsonpath={.spec.size}"];
    assert_eq!(kubectl.run(&path).await.ok(), "8");
    let refused = kubectl
        .edit("sed -i 's/size: 8/size: -8/'", &["gd", "one"])
        .await
        .err();
    assert!(refused.contains("\"one\" is invalid"), "{refused}");
    assert_eq!(kubectl.run(&path).await.ok(), "8");
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_and_annotations_are_set_and_removed() {
    let Some(kubectl) = with_two().await else {
        return;
    };
    kubectl
        .run(&["label", "gd", "one", "colour=red"])
        .await
        .ok();
    kubectl
        .run(&["annotate", "gd", "one", "why=because"])
        .await
        .ok();
    let path = "jsonpath={.metadata.labels.colour} {.metadata.annotations.why}";
    assert_eq!(
        kubectl.run(&["get", "gd", "one", "-o", path]).await.ok(),
        "red because"
    );
    let twice = kubectl
        .run(&["label", "gd", "one", "colour=blue"])
        .await
        .err();
    assert!(twice.contains("already has a value"), "{twice}");
    kubectl.run(&["label", "gd", "one", "colour-"]).await.ok();
    assert_eq!(
        kubectl
            .run(&["get", "gd", "-l", "colour", "-o", "name"])
            .await
            .ok(),
        ""
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_waits_for_finalizers() {
    let Some(kubectl) = with_two().await else {
        return;
    };
    let finalizers = |value: &str| format!(r#"{{"metadata":{{"finalizers":{value}}}}}"#);
    let hold = finalizers(r#"["test.example/hold"]"#);
    kubectl
        .run(&["patch", "gd", "one", "--type=merge", "-p", &hold])
        .await
        .ok();
    let waits = kubectl
        .run(&["delete", "gd", "one", "--timeout=1s"])
        .await
        .err();
    assert!(
        waits.contains("timed out waiting for the condition"),
        "{waits}"
    );
    let path = "jsonpath={.metadata.deletionTimestamp}";
    assert_ne!(
        kubectl.run(&["get", "gd", "one", "-o", path]).await.ok(),
        ""
    );
    let release = finalizers("null");
    let wait = ["wait", "gd/one", "--for=delete", "--timeout=30s"];
    let patch = ["patch", "gd", "one", "--type=merge", "-p", &release];
    let (waited, released) = tokio::join!(kubectl.run(&wait), kubectl.run(&patch));
    released.ok();
    waited.ok();
    let all = kubectl.run(&["delete", "gd", "--all"]).await.ok();
    assert!(all.contains("\"two\" deleted"), "{all}");
    assert_eq!(kubectl.run(&["get", "gd", "-o", "name"]).await.ok(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_on_a_node_stays_for_its_grace_period_unless_forced() {
    let Some(kubectl) = start().await else {
        return;
    };
    let pod = POD.replace("spec:\n", "spec:\n  nodeName: node-1\n");
    kubectl.run_with(&["create", "-f", "-"], &pod).await.ok();
    kubectl
        .run(&[
            "delete",
            "pod",
            "worker",
            "--grace-period=9",
            "--wait=false",
        ])
        .await
        .ok();
    let path = "jsonpath={.metadata.deletionGracePeriodSeconds}";
    assert_eq!(
        kubectl
            .run(&["get", "pod", "worker", "-o", path])
            .await
            .ok(),
        "9"
    );
    let table = kubectl.run(&["get", "pods"]).await.ok();
    assert_eq!(columns(&table)[1][2], "Terminating");
    kubectl
        .run(&["delete", "pod", "worker", "--grace-period=0", "--force"])
        .await
        .ok();
    assert_eq!(kubectl.run(&["get", "pods", "-o", "name"]).await.ok(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_sees_conditions_and_fields() {
    let Some(kubectl) = with_two().await else {
        return;
    };
    let status = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
    let ready = ["wait", "gd/one", "--for=condition=Ready", "--timeout=30s"];
    let patch = [
        "patch",
        "gd",
        "one",
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    ];
    let (waited, patched) = tokio::join!(kubectl.run(&ready), kubectl.run(&patch));
    patched.ok();
    assert!(waited.ok().contains("condition met"));
    let field = [
        "wait",
        "gd/one",
        "--for=jsonpath={.spec.size}=2",
        "--timeout=30s",
    ];
    kubectl.run(&field).await.ok();
    let never = ["wait", "gd/two", "--for=condition=Ready", "--timeout=1s"];
    assert!(kubectl.run(&never).await.err().contains("timed out"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_is_discovered_and_explained() {
    let Some(kubectl) = with_gadgets().await else {
        return;
    };
    let resources = kubectl.run(&["api-resources"]).await.ok();
    let rows = columns(&resources);
    assert!(
        rows.contains(&vec!["gadgets", "gd", "test.example/v1", "true", "Gadget"]),
        "{resources}"
    );
    assert!(
        rows.contains(&vec!["pods", "po", "v1", "true", "Pod"]),
        "{resources}"
    );
    let tools = kubectl
        .run(&["api-resources", "--categories=tools", "-o", "name"])
        .await
        .ok();
    assert_eq!(tools, "gadgets.test.example\n");
    let versions = kubectl.run(&["api-versions"]).await.ok();
    assert!(
        versions.lines().any(|line| line == "test.example/v1"),
        "{versions}"
    );
    let explained = kubectl.run(&["explain", "gadget.spec"]).await.ok();
    assert!(explained.contains("What is wanted."), "{explained}");
    assert!(
        explained.contains("url\t<string> -required-"),
        "{explained}"
    );
    let explained = kubectl
        .run(&["explain", "pod.spec.containers.ports"])
        .await
        .ok();
    assert!(
        explained.contains("FIELD: ports <[]ContainerPort>"),
        "{explained}"
    );
    let version = kubectl.run(&["version"]).await.ok();
    assert!(version.contains("Server Version: v1.36"), "{version}");
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_created_from_the_command_line() {
    let Some(kubectl) = start().await else {
        return;
    };
    for line in [
        "create namespace ci",
        "create secret generic token -n ci --from-literal=github_token=abc",
        "create configmap settings -n ci --from-literal=colour=red",
        "create serviceaccount robot -n ci",
        "create role reader -n ci --verb=get,list --resource=pods,secrets",
        "create rolebinding reads -n ci --role=reader --serviceaccount=ci:robot",
        "create clusterrole watcher --verb=watch --resource=nodes",
        "create clusterrolebinding watches --clusterrole=watcher --user=joe",
        "create quota few -n ci --hard=pods=3",
        "run one -n ci --image=busybox:1",
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        let said = kubectl.run(&arguments).await.ok();
        assert!(said.ends_with("created\n"), "{line}: {said}");
    }
    let path = "jsonpath={.type} {.data.github_token}";
    let secret = kubectl
        .run(&["get", "secret", "token", "-n", "ci", "-o", path])
        .await
        .ok();
    assert_eq!(secret, "Opaque YWJj");
    let bindings = kubectl
        .run(&["get", "rolebindings", "-n", "ci", "-o", "wide"])
        .await
        .ok();
    assert!(
        bindings.contains("Role/reader") && bindings.contains("ci/robot"),
        "{bindings}"
    );
    kubectl.run(&["delete", "namespace", "ci"]).await.ok();
    let gone = kubectl
        .run(&["get", "secrets", "-n", "ci", "-o", "name"])
        .await
        .ok();
    assert_eq!(gone, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_decide_who_can_do_what() {
    let Some(kubectl) = start().await else {
        return;
    };
    assert_eq!(
        kubectl.run(&["auth", "can-i", "create", "pods"]).await.ok(),
        "yes\n"
    );
    let joe = ["auth", "can-i", "watch", "nodes", "--as=joe"];
    assert_eq!(kubectl.run(&joe).await.stdout, "no\n");
    for line in [
        "create clusterrole watcher --verb=watch --resource=nodes",
        "create clusterrolebinding watches --clusterrole=watcher --user=joe",
    ] {
        let arguments: Vec<&str> = line.split(' ').collect();
        kubectl.run(&arguments).await.ok();
    }
    assert_eq!(kubectl.run(&joe).await.stdout, "yes\n");
    let forbidden = kubectl.run(&["get", "pods", "--as=joe"]).await.err();
    assert!(
        forbidden.contains("User \"joe\" cannot list resource \"pods\""),
        "{forbidden}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_shows_and_changes_nothing() {
    let Some(kubectl) = with_gadgets().await else {
        return;
    };
    kubectl.run_with(&["apply", "-f", "-"], ONE).await.ok();
    let changed = ONE.replace("size: 2", "size: 7");
    let diff = kubectl.run_with(&["diff", "-f", "-"], &changed).await;
    assert_eq!(diff.status.code(), Some(1), "{diff:?}");
    assert!(
        diff.stdout.contains("-  size: 2") && diff.stdout.contains("+  size: 7"),
        "{diff:?}"
    );
    let dry = ["apply", "--dry-run=server", "-f", "-"];
    let said = kubectl.run_with(&dry, &changed).await.ok();
    assert!(said.contains("configured (server dry run)"), "{said}");
    let path = ["get", "gd", "one", "-o", "jsonpath={.spec.size}"];
    assert_eq!(kubectl.run(&path).await.ok(), "2");
    let same = kubectl.run_with(&["diff", "-f", "-"], ONE).await;
    assert_eq!(same.status.code(), Some(0), "{same:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_manifests_are_refused_with_what_is_wrong_and_where() {
    let Some(kubectl) = with_gadgets().await else {
        return;
    };
    let unknown = ONE.replace("note:", "nope:");
    let wrong = ONE.replace("size: 2", "size: many");
    let small = ONE.replace("size: 2", "size: -2");
    let without = ONE.replace("url: 'https://one', ", "");
    let pod = POD.replace("image: 'busybox:1', env", "imag: 'busybox:1', env");
    let typed = POD
        .replace("containers:", "containers: 7")
        .replace("\n  - {", "\n  # {");
    for (manifest, expected) in [
        (
            &unknown,
            "strict decoding error: unknown field \"spec.nope\"",
        ),
        (
            &wrong,
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer",
        ),
        (
            &small,
            "spec.size: Invalid value: -2: spec.size in body should be greater than or equal to 0",
        ),
        (&without, "spec.url: Required value"),
        (
            &pod,
            "strict decoding error: unknown field \"spec.containers[0].imag\"",
        ),
        (
            &typed,
            "cannot unmarshal number into Go struct field PodSpec.spec.containers",
        ),
    ] {
        let refused = kubectl
            .run_with(&["apply", "-f", "-"], manifest)
            .await
            .err();
        assert!(refused.contains(expected), "{refused}");
    }
    let refused = kubectl
        .run_with(&["apply", "--server-side", "-f", "-"], &unknown)
        .await
        .err();
    assert!(
        refused.contains(".spec.nope: field not declared in schema"),
        "{refused}"
    );
    let loose = ["apply", "--validate=warn", "-f", "-"];
    let said = kubectl.run_with(&loose, &unknown).await;
    assert!(
        said.stderr.contains("Warning: unknown field \"spec.nope\""),
        "{said:?}"
    );
    said.ok();
    // the same on an object that exists
    let refused = kubectl
        .run_with(
            &["apply", "-f", "-"],
            &unknown.replace("size: 2", "size: 3"),
        )
        .await
        .err();
    assert!(refused.contains("unknown field \"spec.nope\""), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_upgrades_rolls_back_and_removes() {
    let Some(kubectl) = with_gadgets().await else {
        return;
    };
    let chart = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(chart.path().join(name), text).unwrap();
    std::fs::create_dir(chart.path().join("templates")).unwrap();
    write("Chart.yaml", "{apiVersion: v2, name: tiny, version: 0.1.0}");
    write("values.yaml", "{size: 2}");
    let gadget = ONE.replace("size: 2", "size: {{ .Values.size }}");
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}";
    write("templates/all.yaml", &format!("{gadget}\n---\n{map}\n"));
    let chart = chart.path().to_str().unwrap();

    let size = ["get", "gd", "one", "-o", "jsonpath={.spec.size}"];
    let Some(said) = kubectl.helm(&["install", "rel", chart]).await else {
        return;
    };
    assert!(said.ok().contains("STATUS: deployed"));
    let upgrade = ["upgrade", "rel", chart, "--set", "size=4"];
    kubectl.helm(&upgrade).await.unwrap().ok();
    assert_eq!(kubectl.run(&size).await.ok(), "4");
    let invalid = ["upgrade", "rel", chart, "--set", "size=-4"];
    let refused = kubectl.helm(&invalid).await.unwrap().err();
    assert!(
        refused.contains("should be greater than or equal to 0"),
        "{refused}"
    );
    kubectl.helm(&["rollback", "rel", "1"]).await.unwrap().ok();
    assert_eq!(kubectl.run(&size).await.ok(), "2");
    kubectl.helm(&["uninstall", "rel"]).await.unwrap().ok();
    let left = kubectl
        .run(&["get", "gd,configmaps,secrets", "-o", "name"])
        .await
        .ok();
    assert_eq!(left, "");
}
