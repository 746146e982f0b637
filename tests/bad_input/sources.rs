//! Objects that a scale set refers to, and the Actions service, are not as they have to be.
//! Each test mends them and nothing else.

use serde_json::{Value, json};

use crate::world::{ILL, TOKEN, World, credentials, ill, on_stage, secret};

const SECRET: &str = "Secret ci/github-auth";

/// What a Secret must not show.
const PRIVATE: &str = "s3cr3t-and-private";

#[tokio::test(start_paused = true)]
async fn a_missing_secret_is_named_and_creating_it_heals() {
    on_stage(async {
        let world = World::new().await;
        world.apply(ill()).await;
        let parts = [SECRET, "githubConfigSecret", "does not exist"];
        world
            .until_told("Registered", "CredentialsUnusable", &parts)
            .await;
        world.others_go_on().await;
        world.apply(credentials()).await;
        world.until_ready(ILL).await;
        world.takes_a_job(ILL.1).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_holds_no_usable_credentials_is_named_and_replacing_it_heals() {
    const APP_ID: (&str, &str) = ("github_app_id", "12");
    const INSTALLATION: (&str, &str) = ("github_app_installation_id", "34");
    const KEY: (&str, &str) = ("github_app_private_key", PRIVATE);
    let cases: [(&[(&str, &str)], &str); 6] = [
        (&[("other", PRIVATE)], "holds no credentials"),
        (&[("github_token", "")], "holds no credentials"),
        (
            &[("github_token", PRIVATE), APP_ID],
            "holds both a personal access token (github_token) and a GitHub App (github_app_id)",
        ),
        (&[APP_ID, KEY], "github_app_installation_id is missing"),
        (
            &[APP_ID, ("github_app_installation_id", PRIVATE), KEY],
            "github_app_installation_id is not a number",
        ),
        (&[APP_ID, INSTALLATION, KEY], "github_app_private_key"),
    ];
    on_stage(async {
        for (texts, problem) in cases {
            let world = World::new().await;
            world.apply(secret(ILL.0, "github-auth", texts)).await;
            world.apply(ill()).await;
            world
                .until_told("Registered", "CredentialsUnusable", &[problem])
                .await;
            let told = world.condition(ILL, "Registered").unwrap().message;
            assert!(!told.contains(PRIVATE), "{told}");
            world.others_go_on().await;
            world.replace_secret(credentials()).await;
            world.until_ready(ILL).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_token_the_service_refuses_is_said_to_be_refused_until_it_is_accepted() {
    on_stage(async {
        let world = World::new().await;
        world.cluster.actions.accept_only(["ghp_of-the-calm-one"]);
        world.apply(credentials()).await;
        world.apply(ill()).await;
        let parts = ["401", "https://github.com/acme/widgets"];
        world
            .until_told("Registered", "CredentialsRefused", &parts)
            .await;
        world.others_go_on().await;
        world
            .cluster
            .actions
            .accept_only(["ghp_of-the-calm-one", TOKEN]);
        world.until_ready(ILL).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_token_revoked_later_is_reported_and_a_new_one_heals() {
    on_stage(async {
        let world = World::new().await;
        world.apply(credentials()).await;
        world.apply(ill()).await;
        world.until_ready(ILL).await;
        world
            .cluster
            .actions
            .accept_only(["ghp_of-the-calm-one", "ghp_new"]);
        world.cluster.actions.expire_tenant_tokens();
        // the next runner cannot be registered
        world.cluster.actions.queue_job(
            embedded_actions::JobSpec::on(ILL.1).lasting(std::time::Duration::from_secs(1)),
        );
        world
            .until("a runner's trouble is told", || {
                world
                    .condition(ILL, "Ready")
                    .is_some_and(|ready| ready.status == "False" && ready.message.contains("401"))
            })
            .await;
        world.others_go_on().await;
        world
            .replace_secret(secret(ILL.0, "github-auth", &[("github_token", "ghp_new")]))
            .await;
        world.until_ready(ILL).await;
        world.takes_a_job(ILL.1).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_runner_group_that_does_not_exist_is_named_and_creating_it_heals() {
    on_stage(async {
        let world = World::new().await;
        world.apply(credentials()).await;
        world
            .apply(with(&[("/spec/runnerGroup", json!("gpu-pool"))]))
            .await;
        world
            .until_told("Registered", "GroupNotFound", &["gpu-pool"])
            .await;
        world.others_go_on().await;
        world.cluster.actions.add_runner_group("gpu-pool");
        world.until_ready(ILL).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_certificate_is_named_and_creating_it_heals() {
    let tls = json!({"certificateFrom": {"configMapKeyRef": {"name": "ca", "key": "ca.crt"}}});
    on_stage(async {
        let world = World::new().await;
        world.apply(credentials()).await;
        world.apply(with(&[("/spec/githubServerTLS", tls)])).await;
        let parts = ["ConfigMap ci/ca", "githubServerTLS", "does not exist"];
        world
            .until_told("Registered", "CredentialsUnusable", &parts)
            .await;
        world.apply(config_map("other.crt")).await;
        let parts = ["ConfigMap ci/ca", "githubServerTLS", "no key ca.crt"];
        world
            .until_told("Registered", "CredentialsUnusable", &parts)
            .await;
        world.others_go_on().await;
        world.apply(config_map("ca.crt")).await;
        world.until_ready(ILL).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_login_for_the_proxy_is_named_and_creating_it_heals() {
    let proxy = json!({"https": {
        "url": "http://proxy.acme.example:3128", "credentialSecretRef": "proxy-auth",
    }});
    on_stage(async {
        let world = World::new().await;
        world.apply(credentials()).await;
        world.apply(with(&[("/spec/proxy", proxy)])).await;
        let parts = [
            "Secret ci/proxy-auth",
            "proxy.https.credentialSecretRef",
            "does not exist",
        ];
        world
            .until_told("Registered", "CredentialsUnusable", &parts)
            .await;
        world
            .apply(secret(ILL.0, "proxy-auth", &[("username", "u")]))
            .await;
        let parts = [
            "Secret ci/proxy-auth",
            "proxy.https.credentialSecretRef",
            "password",
        ];
        world
            .until_told("Registered", "CredentialsUnusable", &parts)
            .await;
        world.others_go_on().await;
        let login = [("username", "u"), ("password", PRIVATE)];
        world
            .replace_secret(secret(ILL.0, "proxy-auth", &login))
            .await;
        world.until_ready(ILL).await;
        world.takes_a_job(ILL.1).await;
    })
    .await;
}

/// The ill scale set with other fields.
fn with(fields: &[(&str, Value)]) -> Value {
    let mut set = ill();
    for (pointer, value) in fields {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        set.pointer_mut(parent).unwrap()[key] = value.clone();
    }
    set
}

fn config_map(key: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "ca", "namespace": ILL.0},
        "data": {key: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"},
    })
}
