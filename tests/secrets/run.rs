//! The run: three scale sets with secrets of every kind, and everything that can go wrong.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use embedded_actions::{App, CALLS, JobSpec, JobState, NamedFault};
use embedded_kube::kubelet::PodFault;
use impresario::api::{AutoscalingRunnerSet, AutoscalingRunnerSetPhase};
use impresario::simulation::cluster::{CONTROLLER_NAMESPACE, Cluster};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use prometheus::IntCounter;
use serde_json::{Value, json};
use tokio::task::LocalSet;
use tokio::time::sleep;

use crate::cluster::{VAULT, World};
use crate::grep::Grep;
use crate::keys;

/// Tokens whose other forms differ from the plain one.
const TOKEN: &str = "ghp_first/of+two=tokens&such";
const NEXT_TOKEN: &str = "ghp_second?of>two=tokens&such";
const USER: &str = "proxy-user";
const PASSWORD: &str = "pr0xy/pass+word&=?";
const NEXT_PASSWORD: &str = "an0ther~pass/word#=?";
/// Used nowhere, and put everywhere, to see that it is found.
const PLANTED: &str = "planted/secret+that=is?found";

/// In the vault, one after the other.
const VAULT_TOKEN: &str = "ghp_third/in+the=vault&such";
const NEXT_VAULT_TOKEN: &str = "ghp_fourth?in+the=vault&such";
/// Certificate and key that open the vault.
const APPLICATION: &str = include_str!("../key_vault/application.pem");
const TENANT: &str = "c0ffee00-1111-2222-3333-444455556666";
const CLIENT: &str = "0badcafe-7777-8888-9999-aaaabbbbcccc";

/// Namespace and name of the scale set with a token, of the one with an App, and of the one
/// with a vault.
const WITH_TOKEN: (&str, &str) = ("one", "by-token");
const WITH_APP: (&str, &str) = ("two", "by-app");
const WITH_VAULT: (&str, &str) = ("three", "by-vault");
const ALL: [(&str, &str); 3] = [WITH_TOKEN, WITH_APP, WITH_VAULT];

const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ29uc3RydWN0ZWQ=\n-----END CERTIFICATE-----\n";

fn secret(namespace: &str, name: &str, fields: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": fields,
    })
}

fn app_credentials(private_key: &str) -> Value {
    let fields = json!({
        "github_app_id": "4711",
        "github_app_installation_id": "36",
        "github_app_private_key": private_key,
    });
    secret(WITH_APP.0, "github", &fields)
}

fn vault_value(token: &str) -> String {
    json!({"github_token": token}).to_string()
}

fn token_credentials(token: &str) -> Value {
    secret(WITH_TOKEN.0, "github", &json!({"github_token": token}))
}

fn proxy_login((namespace, _): (&str, &str), password: &str) -> Value {
    let fields = json!({"username": USER, "password": password});
    secret(namespace, "proxy-login", &fields)
}

fn scale_set((namespace, name): (&str, &str), url: &str) -> Value {
    let proxy = |port: u16| json!({"url": format!("http://proxy.corp:{port}"), "credentialSecretRef": "proxy-login"});
    json!({
        "apiVersion": "actions.github.com/v1alpha1", "kind": "AutoscalingRunnerSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "githubConfigUrl": url,
            "githubConfigSecret": "github",
            "minRunners": 1,
            "maxRunners": 4,
            "proxy": {"http": proxy(3128), "https": proxy(3129), "noProxy": ["10.0.0.0/8"]},
            "githubServerTLS": {
                "certificateFrom": {"configMapKeyRef": {"name": "corp-ca", "key": "ca.crt"}},
            },
            "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "runner", "image": "runner:1"}],
            }},
        },
    })
}

/// What the run consists of, in the order it is made.
fn manifests(certificate: &Path) -> Vec<Value> {
    let mut objects = Vec::new();
    for set in ALL {
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": set.0}});
        let authority = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "corp-ca", "namespace": set.0},
            "data": {"ca.crt": CERTIFICATE},
        });
        objects.extend([namespace, authority, proxy_login(set, PASSWORD)]);
    }
    objects.extend([token_credentials(TOKEN), app_credentials(keys::PRIVATE)]);
    objects.push(scale_set(WITH_TOKEN, "https://ghes.corp/acme/widgets"));
    objects.push(scale_set(WITH_APP, "https://github.com/umbrella"));
    let mut by_vault = scale_set(WITH_VAULT, "https://github.com/hat/felt");
    let access = json!({
        "url": VAULT, "tenantId": TENANT, "clientId": CLIENT, "certificatePath": certificate,
    });
    by_vault["spec"]["vaultConfig"] = json!({
        "type": "azure_key_vault", "azureKeyVault": access, "proxy": by_vault["spec"]["proxy"],
    });
    objects.push(by_vault);
    objects
}

/// Everything that can go wrong with a call, whatever it is.
fn faults() -> Vec<NamedFault> {
    [
        json!({"fault": "echo"}),
        json!({"fault": "unauthorized"}),
        json!({"fault": "forbidden"}),
        json!({"fault": "rate-limited", "resetAfter": 20}),
        json!({"fault": "not-found"}),
        json!({"fault": "too-many-requests"}),
        json!({"fault": "internal-error"}),
        json!({"fault": "unavailable"}),
        json!({"fault": "bad-gateway"}),
        json!({"fault": "hang"}),
        json!({"fault": "unreachable"}),
        json!({"fault": "connection-reset"}),
        json!({"fault": "answer-lost"}),
        json!({"fault": "empty-body"}),
        json!({"fault": "garbage-body"}),
        json!({"fault": "html-page"}),
        json!({"fault": "byte-order-mark"}),
        json!({"fault": "runner-exists"}),
        json!({"fault": "runner-not-found"}),
        json!({"fault": "job-still-running"}),
        json!({"fault": "session-gone"}),
        json!({"fault": "session-conflict"}),
        json!({"fault": "unknown-message-type"}),
        json!({"fault": "body-not-json"}),
    ]
    .into_iter()
    .map(|fault| serde_json::from_value(fault).unwrap())
    .collect()
}

fn is_settled(cluster: &Cluster, (namespace, name): (&str, &str)) -> bool {
    let sets: Vec<AutoscalingRunnerSet> = cluster.api.list_as(Some(namespace));
    sets.iter().any(|set| {
        let status = set.status.clone().unwrap_or_default();
        set.name_any() == name
            && status.phase == Some(AutoscalingRunnerSetPhase::Running)
            && status.observed_generation == set.metadata.generation
    })
}

async fn until_settled(world: &World) {
    for set in ALL {
        world.until(set.1, |cluster| is_settled(cluster, set)).await;
    }
}

/// Both scale sets do jobs.
async fn do_jobs(world: &World) {
    for (_, name) in ALL {
        for _ in 0..2 {
            let job = JobSpec::on(name).lasting(Duration::from_secs(5));
            world.cluster.actions.queue_job(job);
        }
    }
    world
        .until("jobs are done", |cluster| {
            let jobs = cluster.actions.jobs();
            jobs.iter().all(|job| job.state == JobState::Completed)
        })
        .await;
}

async fn replace(world: &World, object: Value) {
    let secret: Secret = serde_json::from_value(object).unwrap();
    let namespace = secret.namespace().unwrap();
    let api = Api::<Secret>::namespaced(world.cluster.api.client(), &namespace);
    let parameters = PostParams::default();
    api.replace(&secret.name_any(), &parameters, &secret)
        .await
        .unwrap();
}

/// Every call goes wrong in every way, for a while each, and tokens expire.
async fn suffer_the_service(world: &mut World) {
    for fault in faults() {
        let fault = fault.at(world.cluster.clock.now());
        for call in CALLS {
            let time = Duration::from_secs(20);
            world
                .cluster
                .actions
                .faults()
                .lasting(call, time, fault.clone());
        }
        // the tenant of the vault and the vault itself suffer likewise
        for call in ["vault_login", "vault_secret"] {
            let time = Duration::from_secs(20);
            world.vault.faults().lasting(call, time, fault.clone());
        }
        world.vault.revoke_tokens();
        world.cluster.actions.expire_tenant_tokens();
        world.cluster.actions.expire_queue_tokens();
        for (_, name) in ALL {
            let job = JobSpec::on(name).lasting(Duration::from_secs(5));
            world.cluster.actions.queue_job(job);
        }
        sleep(Duration::from_secs(25)).await;
        world.look();
    }
    world.cluster.actions.faults().clear_all();
    world.vault.faults().clear_all();
    world.cluster.actions.drop_sessions();
    until_settled(world).await;
    do_jobs(world).await;
}

/// Pods and controllers die, and the API server loses every seventh request.
async fn suffer_the_cluster(world: &mut World) {
    world.trouble.every(7);
    for fault in [PodFault::OutOfMemory, PodFault::Evicted, PodFault::Exit(3)] {
        for pod in world.cluster.api.list_as::<Pod>(None) {
            let namespace = pod.namespace().unwrap_or_default();
            let name = pod.name_any();
            world.cluster.kubelet.fail(&namespace, &name, fault.clone());
        }
        world.restart_controller();
        sleep(Duration::from_secs(150)).await;
        world.look();
    }
    world.trouble.every(0);
    until_settled(world).await;
    do_jobs(world).await;
}

/// Credentials are missing, malformed, refused, and changed.
async fn suffer_credentials(world: &mut World) {
    let one_line = keys::PRIVATE.replace('\n', "\\n");
    let half = &keys::PRIVATE[..keys::PRIVATE.len() / 2];
    for key in [&one_line, half, &keys::PRIVATE.replace('\n', " ")] {
        replace(world, app_credentials(key)).await;
        // the vault holds half a secret now
        world
            .vault
            .put("github", &vault_value(NEXT_VAULT_TOKEN)[..24]);
        world
            .cluster
            .actions
            .accept_only([NEXT_TOKEN, NEXT_VAULT_TOKEN]);
        sleep(Duration::from_secs(90)).await;
        world.look();
    }
    let api = Api::<Secret>::namespaced(world.cluster.api.client(), WITH_APP.0);
    for name in ["github", "proxy-login"] {
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }
    let both = json!({"github_token": TOKEN, "github_app_private_key": keys::PRIVATE});
    replace(world, secret(WITH_TOKEN.0, "github", &both)).await;
    sleep(Duration::from_secs(90)).await;
    world.look();
    world.apply(app_credentials(keys::PRIVATE)).await;
    world.apply(proxy_login(WITH_APP, NEXT_PASSWORD)).await;
    replace(world, token_credentials(NEXT_TOKEN)).await;
    world.vault.put("github", &vault_value(NEXT_VAULT_TOKEN));
    sleep(Duration::from_secs(120)).await;
    until_settled(world).await;
    do_jobs(world).await;
}

/// Everything goes, while the service refuses to let go at first.
async fn depart(world: &mut World) {
    for call in ["remove_runner", "delete_scale_set", "delete_session"] {
        let echo = NamedFault::Echo.at(world.cluster.clock.now());
        world.cluster.actions.faults().times(call, 3, echo);
    }
    for (namespace, name) in ALL {
        let api = Api::<AutoscalingRunnerSet>::namespaced(world.cluster.api.client(), namespace);
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }
    sleep(Duration::from_secs(10)).await;
    world.look();
    world
        .until("all are gone", |cluster| {
            cluster.api.list_as::<AutoscalingRunnerSet>(None).is_empty()
        })
        .await;
}

/// Puts a secret where each of them would be seen, written in another way each time.
async fn plant(world: &World) {
    tracing::debug!(
        config = STANDARD.encode(format!("{{\"x\":\"{PLANTED}\"}}")),
        "planted"
    );
    let query: String = url::form_urlencoded::byte_serialize(PLANTED.as_bytes()).collect();
    world
        .apply(json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "planted", "namespace": CONTROLLER_NAMESPACE},
            "involvedObject": {"kind": "Pod", "name": "planted", "namespace": CONTROLLER_NAMESPACE},
            "message": format!("GET /?token={query} failed"),
        }))
        .await;
    let status = json!({"status": {"message": format!("it is {PLANTED}")}});
    let node = Api::<k8s_openapi::api::core::v1::Node>::all(world.cluster.api.client());
    let patch = kube::api::Patch::Merge(
        json!({"metadata": {"annotations": {"planted": status.to_string()}}}),
    );
    let nodes = node.list(&Default::default()).await.unwrap();
    let name = nodes.items[0].name_any();
    node.patch(&name, &Default::default(), &patch)
        .await
        .unwrap();
    let options = prometheus::Opts::new("planted_total", "Planted.").const_label("reason", PLANTED);
    let registry = world.controller.as_ref().unwrap().metrics.registry();
    registry
        .register(Box::new(IntCounter::with_opts(options).unwrap()))
        .unwrap();
}

/// What was secret in the run, with what it is called.
fn secrets(world: &World) -> Vec<(String, String)> {
    let named = |name: &str, secret: &str| (name.to_owned(), secret.to_owned());
    let mut secrets = vec![
        named("the token", TOKEN),
        named("the next token", NEXT_TOKEN),
        named("the token in the vault", VAULT_TOKEN),
        named("the next token in the vault", NEXT_VAULT_TOKEN),
        named("the proxy's password", PASSWORD),
        named("the proxy's next password", NEXT_PASSWORD),
        named("the proxy's login", &format!("{USER}:{PASSWORD}")),
    ];
    let key_to_vault = APPLICATION.split_once("PRIVATE KEY-----").unwrap().1;
    for (whose, key) in [("App", keys::PRIVATE), ("vault", key_to_vault)] {
        let lines = key.lines().filter(|line| line.len() > 16);
        let lines = lines.take_while(|line| !line.starts_with("-----END"));
        let lines = lines.filter(|line| !line.starts_with("-----"));
        let name = format!("a line of the key to the {whose}");
        secrets.extend(lines.map(|line| named(&name, line)));
    }
    let issued = world.cluster.actions.secrets();
    secrets.extend(
        issued
            .iter()
            .map(|secret| named("an issued secret", secret)),
    );
    secrets
}

/// The kinds of secrets that the service gave out or was shown.
fn assert_all_kinds(world: &World) {
    let issued = world.cluster.actions.secrets();
    let some = |what: &str, is: &dyn Fn(&str) -> bool| {
        assert!(
            issued.iter().any(|secret| is(secret)),
            "no {what} was issued"
        );
    };
    some("JWT of the App", &|secret| {
        secret.starts_with("eyJ") && secret.len() > 400
    });
    some("tenant or queue token", &|secret| {
        secret.ends_with(".simulated")
    });
    some("installation token", &|secret| secret.starts_with("ghs_"));
    some("registration token", &|secret| {
        secret.starts_with("registration-")
    });
    some("JIT configuration", &|secret| {
        STANDARD
            .decode(secret)
            .is_ok_and(|json| json.starts_with(b"{\"agentId\""))
    });
    for token in [TOKEN, NEXT_TOKEN, VAULT_TOKEN, NEXT_VAULT_TOKEN] {
        some("use of the token", &|secret| secret == token);
    }
}

#[test]
fn what_is_secret_stands_nowhere_but_in_secrets() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        let mut world = World::new().await;
        plant(&world).await;
        let app = App::new("4711", 36).signing_for(keys::PUBLIC).unwrap();
        world.cluster.actions.add_app(app);
        let tokens = [TOKEN, NEXT_TOKEN, VAULT_TOKEN, NEXT_VAULT_TOKEN];
        world.cluster.actions.accept_only(tokens);
        let folder = tempfile::tempdir().unwrap();
        let certificate = folder.path().join("application.pem");
        std::fs::write(&certificate, APPLICATION).unwrap();
        let pem = APPLICATION.as_bytes();
        world.vault.register(TENANT, CLIENT, pem).unwrap();
        world.vault.put("github", &vault_value(VAULT_TOKEN));
        for object in manifests(&certificate) {
            world.apply(object).await;
        }
        until_settled(&world).await;
        do_jobs(&world).await;
        suffer_the_service(&mut world).await;
        suffer_the_cluster(&mut world).await;
        suffer_credentials(&mut world).await;

        // what is looked for is there to be found, in Secrets
        let stored = world.stored();
        for secret in [NEXT_TOKEN, PASSWORD, NEXT_PASSWORD, keys::PRIVATE] {
            let grep = Grep::new(&[("it".to_owned(), secret.to_owned())]);
            assert!(grep.find(&stored).is_some(), "{secret} is in no Secret");
        }
        depart(&mut world).await;
        assert_all_kinds(&world);
        let places = world.everything();
        let planted = Grep::new(&[("it".to_owned(), PLANTED.to_owned())]);
        let seen = places
            .iter()
            .filter(|(_, text)| planted.find(text).is_some());
        let seen: Vec<&str> = seen.map(|(place, _)| place.as_str()).collect();
        for place in [
            "the log",
            "metrics of a killed controller",
            "Event \"planted\"",
            "Node",
        ] {
            assert!(
                seen.iter().any(|seen| seen.starts_with(place)),
                "{place}: {seen:?}"
            );
        }
        let secrets = secrets(&world);
        assert!(secrets.len() > 100, "only {} secrets", secrets.len());
        let size: usize = places.iter().map(|(_, text)| text.len()).sum();
        println!(
            "{} secrets, {} places, {size} bytes",
            secrets.len(),
            places.len()
        );
        let grep = Grep::new(&secrets);
        let leaks = places.iter().filter_map(|(place, text)| {
            let found = grep.find(text)?;
            Some(format!("{place}: {found}"))
        });
        let leaks: Vec<String> = leaks.collect();
        assert!(leaks.is_empty(), "{leaks:#?}");
    });
}
