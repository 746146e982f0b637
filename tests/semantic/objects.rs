//! Realistic objects: the spec of a runner with Docker beside it, and a listener's pod as it is
//! desired and as it comes back from a server.

use impresario::api::EphemeralRunnerSpec;
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};

/// The spec of a runner with Docker beside it.
pub fn runner() -> EphemeralRunnerSpec {
    serde_json::from_value(runner_json()).unwrap()
}

/// The same in other words: quantities, empty lists, zeros and nulls.
pub fn runner_respelled() -> EphemeralRunnerSpec {
    let mut value = runner_json();
    let pod = &mut value["spec"];
    pod["hostAliases"] = json!([]);
    pod["hostNetwork"] = json!(false);
    pod["containers"][0]["ports"] = json!([]);
    pod["containers"][0]["resources"] = json!({
        "limits": {"cpu": "2000m", "memory": "4096Mi"},
        "requests": {"cpu": "0.5", "memory": "2147483648"}
    });
    pod["containers"][1]["startupProbe"]["initialDelaySeconds"] = json!(0);
    pod["volumes"][1]["emptyDir"]["sizeLimit"] = json!("51200Mi");
    serde_json::from_value(value).unwrap()
}

/// With another image in the first container.
pub fn runner_drifted_early() -> EphemeralRunnerSpec {
    let mut value = runner_json();
    value["spec"]["initContainers"][0]["image"] = json!("ghcr.io/acme/runner:2.331.0");
    serde_json::from_value(value).unwrap()
}

/// With another toleration.
pub fn runner_drifted_late() -> EphemeralRunnerSpec {
    let mut value = runner_json();
    value["spec"]["tolerations"][1]["tolerationSeconds"] = json!(301);
    serde_json::from_value(value).unwrap()
}

fn runner_json() -> Value {
    let variables = |prefix: &str, count: usize| -> Vec<Value> {
        let name = |index| format!("{prefix}_{index}");
        let variable = |index| json!({"name": name(index), "value": format!("value {index}")});
        (0..count).map(variable).collect()
    };
    json!({
        "githubConfigUrl": "https://github.com/acme/rockets",
        "githubConfigSecret": "acme-github",
        "runnerScaleSetId": 17,
        "proxySecretRef": "acme-proxy",
        "metadata": {
            "labels": {"app.kubernetes.io/component": "runner", "team": "rockets"},
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
        },
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": "acme-runner",
            "nodeSelector": {"kubernetes.io/os": "linux", "pool": "ci"},
            "securityContext": {"fsGroup": 123},
            "tolerations": [
                {"key": "dedicated", "operator": "Equal", "value": "ci", "effect": "NoSchedule"},
                {"key": "spot", "operator": "Exists", "tolerationSeconds": 300}
            ],
            "initContainers": [{
                "name": "init-externals",
                "image": "ghcr.io/acme/runner:2.330.0",
                "command": ["cp", "-r", "/home/runner/externals/.", "/home/runner/tmpDir/"],
                "volumeMounts": [{"name": "externals", "mountPath": "/home/runner/tmpDir"}]
            }],
            "containers": [
                {
                    "name": "runner",
                    "image": "ghcr.io/acme/runner:2.330.0",
                    "command": ["/home/runner/run.sh"],
                    "env": variables("RUNNER", 20),
                    "resources": {
                        "limits": {"cpu": "2", "memory": "4Gi"},
                        "requests": {"cpu": "500m", "memory": "2Gi"}
                    },
                    "volumeMounts": [
                        {"name": "work", "mountPath": "/home/runner/_work"},
                        {"name": "sock", "mountPath": "/var/run"}
                    ]
                },
                {
                    "name": "dind",
                    "image": "docker:29-dind",
                    "args": ["dockerd", "--host=unix:///var/run/docker.sock"],
                    "env": variables("DIND", 10),
                    "securityContext": {"privileged": true},
                    "startupProbe": {
                        "exec": {"command": ["docker", "info"]}, "failureThreshold": 24
                    },
                    "volumeMounts": [
                        {"name": "work", "mountPath": "/home/runner/_work"},
                        {"name": "externals", "mountPath": "/home/runner/externals"}
                    ]
                }
            ],
            "volumes": [
                {"name": "sock", "emptyDir": {}},
                {"name": "work", "emptyDir": {"sizeLimit": "50Gi"}},
                {"name": "externals", "emptyDir": {}}
            ]
        }
    })
}

/// A listener's pod as it is desired.
pub fn listener() -> PodSpec {
    serde_json::from_value(json!({
        "serviceAccountName": "acme-7c9f-listener",
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "terminationGracePeriodSeconds": 60,
        "containers": [{
            "name": "listener",
            "image": "ghcr.io/acme/impresario:1.0.0",
            "command": ["/ghalistener"],
            "ports": [{"containerPort": 8080, "name": "metrics"}],
            "env": [{"name": "LISTENER_CONFIG_PATH", "value": "/etc/gha-listener/config.json"}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
            "resources": {"limits": {"cpu": "1000m"}},
            "volumeMounts": [{
                "name": "config", "mountPath": "/etc/gha-listener", "readOnly": true
            }]
        }],
        "volumes": [{"name": "config", "secret": {"secretName": "acme-7c9f-listener-config"}}]
    }))
    .unwrap()
}

/// The same pod from a server that put its defaults, in a cluster whose admission adds a
/// container, a volume and a toleration before what was there.
pub fn listener_live() -> PodSpec {
    let mut value = serde_json::to_value(listener()).unwrap();
    value["nodeName"] = json!("node-17");
    value["dnsPolicy"] = json!("ClusterFirst");
    value["schedulerName"] = json!("default-scheduler");
    value["serviceAccount"] = json!("acme-7c9f-listener");
    value["securityContext"] = json!({});
    value["priority"] = json!(0);
    value["enableServiceLinks"] = json!(true);
    value["tolerations"] = json!([
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}
    ]);
    let container = &mut value["containers"][0];
    container["imagePullPolicy"] = json!("IfNotPresent");
    container["terminationMessagePath"] = json!("/dev/termination-log");
    container["terminationMessagePolicy"] = json!("File");
    container["ports"][0]["protocol"] = json!("TCP");
    container["resources"]["limits"]["cpu"] = json!("1");
    container["livenessProbe"] = json!({
        "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
        "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3
    });
    let token = "/var/run/secrets/kubernetes.io/serviceaccount";
    put_first(
        &mut container["volumeMounts"],
        json!({"name": "token", "mountPath": token}),
    );
    put_first(
        &mut value["containers"],
        json!({"name": "mesh", "image": "mesh:9"}),
    );
    value["volumes"][0]["secret"]["defaultMode"] = json!(420);
    put_first(
        &mut value["volumes"],
        json!({"name": "token", "projected": {"sources": []}}),
    );
    serde_json::from_value(value).unwrap()
}

/// The live pod of an older image.
pub fn listener_live_drifted() -> PodSpec {
    let mut pod = listener_live();
    pod.containers[1].image = Some("ghcr.io/acme/impresario:0.9.0".to_owned());
    pod
}

fn put_first(list: &mut Value, element: Value) {
    list.as_array_mut().unwrap().insert(0, element);
}
