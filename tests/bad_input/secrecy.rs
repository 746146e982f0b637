//! What a Secret holds stands nowhere else: in no other object, no log line, no metric.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use k8s_openapi::api::core::v1::Secret;
use prometheus::{Encoder, TextEncoder};
use serde_json::json;

use crate::world::{ILL, TOKEN, World, credentials, ill, on_stage, secret};

const PASSWORD: &str = "pr0xy/pass+word&=";

#[tokio::test(start_paused = true)]
async fn what_secrets_hold_stands_nowhere_else() {
    on_stage(async {
        let world = World::new().await;
        // some trouble first, since errors are where secrets leak
        let both = [
            ("github_token", TOKEN),
            ("github_app_private_key", PASSWORD),
        ];
        world.apply(secret(ILL.0, "github-auth", &both)).await;
        let mut set = ill();
        set["spec"]["proxy"] = json!({"https": {
            "url": "http://proxy.acme.example:3128", "credentialSecretRef": "proxy-auth",
        }});
        world.apply(set).await;
        world
            .until_told("Registered", "CredentialsUnusable", &["holds both"])
            .await;
        let login = [("username", "acme-user"), ("password", PASSWORD)];
        world.apply(secret(ILL.0, "proxy-auth", &login)).await;
        world.cluster.actions.accept_only(["ghp_of-the-calm-one"]);
        world.replace_secret(credentials()).await;
        world
            .until_told("Registered", "CredentialsRefused", &["401"])
            .await;
        world
            .cluster
            .actions
            .accept_only(["ghp_of-the-calm-one", TOKEN]);
        world.until_ready(ILL).await;
        world.takes_a_job(ILL.1).await;
        world.cluster.actions.expire_tenant_tokens();
        world.cluster.actions.expire_queue_tokens();
        world.takes_a_job(ILL.1).await;

        let mut private = vec![
            TOKEN.to_owned(),
            PASSWORD.to_owned(),
            format!("acme-user:{PASSWORD}"),
        ];
        private.extend(jit_tokens(&world));
        assert!(private.len() > 3, "no JIT Secret was looked at");
        // what is looked for can be found: Secrets hold it
        let stored = format!("{:?}", world.cluster.api.list("", "secrets", None));
        for text in &private[..2] {
            let found = forms(text).iter().any(|form| stored.contains(form));
            assert!(found, "{text} is in no Secret");
        }
        let places = everything(&world);
        for (place, text) in &places {
            for form in private.iter().flat_map(|text| forms(text)) {
                if let Some(at) = text.find(&form) {
                    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
                    panic!("{form} stands in {place}: {}", &text[line..at + form.len()]);
                }
            }
        }
    })
    .await;
}

/// The ways a text may be written.
fn forms(text: &str) -> Vec<String> {
    let url_encoded: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
    let mut url = url::Url::parse("http://proxy").unwrap();
    url.set_password(Some(text)).unwrap();
    let mut forms = vec![
        text.to_owned(),
        STANDARD.encode(text),
        STANDARD_NO_PAD.encode(text),
        URL_SAFE.encode(text),
        url_encoded,
        url.password().unwrap().to_owned(),
        // how Rust shows bytes
        format!("{:?}", text.as_bytes()),
        // how JSON inside JSON is written
        text.replace('/', "\\/"),
    ];
    forms.sort();
    forms.dedup();
    forms
}

fn jit_tokens(world: &World) -> Vec<String> {
    let all: Vec<Secret> = world.cluster.api.list_as(None);
    all.into_iter()
        .filter_map(|secret| secret.data?.remove("jitToken"))
        .map(|token| String::from_utf8(token.0).unwrap())
        .collect()
}

/// All objects but Secrets, all that was logged, and all metrics.
fn everything(world: &World) -> Vec<(String, String)> {
    let mut places = vec![
        ("the log".to_owned(), world.logged.text()),
        (
            "the journal".to_owned(),
            world.cluster.take_log().join("\n"),
        ),
    ];
    let mut metrics = Vec::new();
    let registry = world.controller.as_ref().unwrap().metrics.registry();
    TextEncoder::new()
        .encode(&registry.gather(), &mut metrics)
        .unwrap();
    places.push((
        "the metrics".to_owned(),
        String::from_utf8(metrics).unwrap(),
    ));
    for resource in world.cluster.api.resources() {
        if resource.is("", "secrets") {
            continue;
        }
        for object in world
            .cluster
            .api
            .list(&resource.group, &resource.plural, None)
        {
            let name = format!("{} {}", resource.kind, object["metadata"]["name"]);
            places.push((name, object.to_string()));
        }
    }
    // the log is kept, and something is in it
    assert!(places[0].1.contains("step"), "nothing was logged");
    assert!(places.len() > 20, "only {} places", places.len());
    places
}
