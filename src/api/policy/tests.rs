use k8s_openapi::api::core::v1::Volume;
use serde_json::{Value, json};

use super::*;
use crate::api::AutoscalingListener;

fn hosts(patterns: &[&str]) -> AllowedHosts {
    patterns.iter().map(|one| one.parse().unwrap()).collect()
}

fn restricted() -> Policy {
    Policy {
        listener_template: ListenerTemplatePolicy::Restricted,
        ..Policy::default()
    }
}

fn scale_set(spec: &Value) -> AutoscalingRunnerSet {
    let mut whole = json!({
        "githubConfigUrl": "https://github.com/acme",
        "githubConfigSecret": "github-auth",
        "template": {"spec": {"containers": [{"name": "runner"}]}},
    });
    json_patch::merge(&mut whole, spec);
    let object = json!({"metadata": {"name": "linux", "namespace": "team-a"}, "spec": whole});
    serde_json::from_value(object).unwrap()
}

/// Paths of what the policy refuses.
fn refused(policy: &Policy, spec: &Value) -> Vec<String> {
    match policy.check(&scale_set(spec)) {
        Ok(()) => Vec::new(),
        Err(errors) => {
            let problems = errors.problems().iter();
            problems.map(|problem| problem.path.clone()).collect()
        }
    }
}

fn pod(spec: Value) -> Value {
    let mut pod = json!({"containers": []});
    json_patch::merge(&mut pod, &spec);
    json!({"listenerTemplate": {"spec": pod}})
}

fn container(fields: Value) -> Value {
    let mut container = json!({"name": "listener"});
    json_patch::merge(&mut container, &fields);
    pod(json!({"containers": [container]}))
}

/// What reaches beyond the listener's own pod: the template's field, and the path that names it.
fn overreaching() -> Vec<(Value, &'static str)> {
    vec![
        (pod(json!({"hostNetwork": true})), "hostNetwork"),
        (pod(json!({"hostPID": true})), "hostPID"),
        (pod(json!({"hostIPC": true})), "hostIPC"),
        (
            pod(json!({"serviceAccountName": "admin"})),
            "serviceAccountName",
        ),
        (pod(json!({"serviceAccount": "admin"})), "serviceAccount"),
        (pod(json!({"nodeName": "control-plane"})), "nodeName"),
        (
            pod(json!({"imagePullSecrets": [{"name": "theirs"}]})),
            "imagePullSecrets[0]",
        ),
        (
            pod(json!({"resourceClaims": [{"name": "gpu"}]})),
            "resourceClaims",
        ),
        (
            pod(json!({"ephemeralContainers": [{"name": "debug"}]})),
            "ephemeralContainers",
        ),
        (
            pod(json!({"securityContext": {"sysctls": [{"name": "kernel.x", "value": "1"}]}})),
            "securityContext.sysctls",
        ),
        (
            pod(json!({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}})),
            "securityContext.seLinuxOptions",
        ),
        (
            pod(json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}})),
            "securityContext.seccompProfile",
        ),
        (
            pod(json!({"securityContext": {"windowsOptions": {"hostProcess": true}}})),
            "securityContext.windowsOptions",
        ),
        (
            container(json!({"securityContext": {"privileged": true}})),
            "containers[0].securityContext.privileged",
        ),
        (
            container(json!({"securityContext": {"allowPrivilegeEscalation": true}})),
            "containers[0].securityContext.allowPrivilegeEscalation",
        ),
        (
            container(json!({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}})),
            "containers[0].securityContext.capabilities.add",
        ),
        (
            container(json!({"securityContext": {"procMount": "Unmasked"}})),
            "containers[0].securityContext.procMount",
        ),
        (
            container(json!({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}})),
            "containers[0].securityContext.appArmorProfile",
        ),
        (
            container(json!({"ports": [{"containerPort": 80, "hostPort": 80}]})),
            "containers[0].ports[0].hostPort",
        ),
        (
            container(json!({"volumeDevices": [{"name": "d", "devicePath": "/dev/sda"}]})),
            "containers[0].volumeDevices",
        ),
        (
            container(json!({"env": [
                {"name": "PLAIN", "value": "text"},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "theirs", "key": "t"}}},
            ]})),
            "containers[0].env[1].valueFrom.secretKeyRef",
        ),
        (
            container(json!({"envFrom": [{"secretRef": {"name": "theirs"}}]})),
            "containers[0].envFrom[0].secretRef",
        ),
        (
            pod(json!({"initContainers": [
                {"name": "init", "securityContext": {"privileged": true}}]})),
            "initContainers[0].securityContext.privileged",
        ),
    ]
}

#[test]
fn the_default_allows_what_arc_allows() {
    for (spec, _) in overreaching() {
        assert_eq!(refused(&Policy::default(), &spec), [""; 0], "{spec}");
    }
}

#[test]
fn a_restricted_listener_reaches_nothing_beyond_its_own_pod() {
    for (spec, path) in overreaching() {
        let path = format!("spec.listenerTemplate.spec.{path}");
        assert_eq!(refused(&restricted(), &spec), [path], "{spec}");
    }
}

#[test]
fn a_restricted_listener_has_no_volume_but_its_own_and_certificates() {
    // each kind of volume there is, by the names of its fields
    let all = serde_json::to_value(schemars::schema_for!(Volume)).unwrap();
    let kinds = all["properties"].as_object().unwrap().keys();
    let kinds: Vec<&String> = kinds.filter(|kind| *kind != "name").collect();
    assert!(kinds.len() > 25, "{kinds:?}");
    for kind in kinds {
        let volume: Volume = match serde_json::from_value(json!({"name": "v", kind: {}})) {
            Ok(volume) => volume,
            Err(error) => panic!("{kind}: {error}"),
        };
        let spec = pod(json!({"volumes": [volume]}));
        let allowed = matches!(kind.as_str(), "emptyDir" | "projected");
        assert_eq!(refused(&restricted(), &spec).is_empty(), allowed, "{kind}");
    }
    for (source, allowed) in [
        (json!({"configMap": {"name": "ca"}}), true),
        (json!({"clusterTrustBundle": {"path": "ca.crt"}}), true),
        (json!({"secret": {"name": "theirs"}}), false),
        (json!({"serviceAccountToken": {"path": "token"}}), false),
        (json!({"downwardAPI": {}}), false),
    ] {
        let volumes = json!([{"name": "v", "projected": {"sources": [source]}}]);
        let found = refused(&restricted(), &pod(json!({"volumes": volumes})));
        assert_eq!(found.is_empty(), allowed, "{source}: {found:?}");
    }
}

#[test]
fn what_stays_inside_the_pod_is_left_to_a_restricted_listener() {
    let spec = json!({
        "listenerTemplate": {
            "metadata": {"labels": {"team": "a"}},
            "spec": {
                "nodeSelector": {"pool": "small"},
                "tolerations": [{"key": "dedicated", "operator": "Exists"}],
                "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                "volumes": [{"name": "tmp", "emptyDir": {}}],
                "containers": [{
                    "name": "listener",
                    "resources": {"limits": {"memory": "64Mi"}},
                    "env": [{"name": "LANG", "value": "C"}],
                    "ports": [{"containerPort": 8080}],
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                    "securityContext": {
                        "privileged": false,
                        "allowPrivilegeEscalation": false,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }],
            },
        },
        "listenerServiceAccountMetadata": {},
    });
    assert_eq!(refused(&restricted(), &spec), [""; 0]);
}

#[test]
fn a_restricted_listener_gets_no_identity_in_a_cloud() {
    let role = "arn:aws:iam::1:role/admin";
    let spec = json!({"listenerServiceAccountMetadata":
        {"annotations": {"eks.amazonaws.com/role-arn": role}}});
    let found = refused(&restricted(), &spec);
    assert_eq!(found, ["spec.listenerServiceAccountMetadata"]);
}

#[test]
fn hosts_are_allowed_by_name_by_port_and_by_domain() {
    let some = hosts(&["github.com", "*.ghe.com", "ghes.acme.io:8443", "[::1]:8080"]);
    for (host, port, allowed) in [
        ("github.com", 443, true),
        ("GitHub.com", 443, true),
        ("github.com.", 443, true),
        ("github.com", 8443, true),
        ("gitHub.com.evil.io", 443, false),
        ("api.github.com", 443, false),
        ("acme.ghe.com", 443, true),
        ("a.b.ghe.com", 443, true),
        ("ghe.com", 443, false),
        (".ghe.com", 443, false),
        ("evilghe.com", 443, false),
        ("ghes.acme.io", 8443, true),
        ("ghes.acme.io", 443, false),
        ("[::1]", 8080, true),
        ("[::1]", 80, false),
        ("169.254.169.254", 80, false),
    ] {
        assert_eq!(some.allow(host, Some(port)), allowed, "{host}:{port}");
        assert!(AllowedHosts::default().allow(host, Some(port)));
    }
}

#[test]
fn what_is_no_host_is_refused_with_the_forms() {
    for text in [
        "https://github.com",
        "github.com/acme",
        "*",
        "*.",
        "a..b:x",
        "host:",
        "host:70000",
        ".com",
        "a b",
    ] {
        let error = text.parse::<HostPattern>().unwrap_err();
        for part in [text, "ghes.acme.io", "*.ghe.com"] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn only_allowed_services_and_vaults_are_called() {
    let policy = Policy {
        config_hosts: hosts(&["github.com"]),
        vaults: hosts(&["ours.vault.azure.net"]),
        ..Policy::default()
    };
    let vault = |url: &str| {
        json!({"type": "azure_key_vault", "azureKeyVault": {"url": url, "tenantId": "t",
               "clientId": "c", "certificatePath": "/c.pem"}})
    };
    for (spec, path) in [
        (json!({}), None),
        (
            json!({"githubConfigUrl": "http://169.254.169.254/latest"}),
            Some("spec.githubConfigUrl"),
        ),
        (
            json!({"vaultConfig": vault("https://ours.vault.azure.net")}),
            None,
        ),
        (
            json!({"vaultConfig": vault("https://theirs.vault.azure.net")}),
            Some("spec.vaultConfig.azureKeyVault.url"),
        ),
    ] {
        let found = refused(&policy, &spec);
        let expected: Vec<&str> = path.into_iter().collect();
        assert_eq!(found, expected, "{spec}");
    }
    let errors = policy
        .check(&scale_set(
            &json!({"githubConfigUrl": "https://ghes.evil.io/acme"}),
        ))
        .unwrap_err()
        .to_string();
    for part in ["ghes.evil.io", "github.com", "--allowed-config-hosts"] {
        assert!(errors.contains(part), "{errors}");
    }
}

#[test]
fn a_listener_made_before_is_judged_as_its_scale_set_is() {
    let listener = |spec: &Value| -> AutoscalingListener {
        let scale_set = scale_set(spec);
        let mut listener = AutoscalingListener::default();
        listener.spec.github_config_url = scale_set.spec.github_config_url;
        listener.spec.vault_config = scale_set.spec.vault_config;
        listener.spec.template = scale_set.spec.listener_template;
        listener
    };
    for (spec, path) in overreaching() {
        assert!(Policy::default().allows_listener(&listener(&spec).spec));
        assert!(
            !restricted().allows_listener(&listener(&spec).spec),
            "{path}"
        );
    }
    assert!(restricted().allows_listener(&listener(&json!({})).spec));
    let elsewhere = Policy {
        config_hosts: hosts(&["ghes.acme.io"]),
        ..Policy::default()
    };
    assert!(!elsewhere.allows_listener(&listener(&json!({})).spec));
}
