//! What controller and listener log about a vault. Alone in its process: whether a line of the
//! program is logged at all is decided once for all threads, so that tests beside this one
//! could silence it.

#[path = "../support/logged.rs"]
mod logged;
#[path = "../key_vault/scene.rs"]
#[allow(dead_code, reason = "shared with other tests, which use other parts")]
mod scene;
#[path = "../support/stage/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared with other tests, which use other parts"
)]
mod stage;
#[path = "../key_vault/world.rs"]
#[allow(dead_code, reason = "shared with other tests, which use other parts")]
mod world;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use embedded_actions::Outcome;

use logged::Logged;
use scene::Scene;
use stage::play;
use world::{APPLICATION, NAME, TOKEN, value};

const ROTATED: &str = "ghp_Rotated&In/The+Vault";

#[test]
fn the_log_of_a_life_with_a_vault_shows_its_troubles_and_no_secret() {
    let logged = Logged::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(logged.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    play(async || {
        let scene = Scene::new(7).await;
        let stage = &scene.stage;
        let pause = || stage.pass(Duration::from_secs(130));
        scene.vault.close(true);
        stage.apply(&scene.manifests(0, 4)).await;
        pause().await;
        scene.vault.close(false);
        scene.settled().await;
        scene.jobs(2).await;
        scene
            .vault
            .put(NAME, "{\"github_token\": [\"ghp_Not/A+Text\"]}");
        pause().await;
        scene.vault.put(NAME, &value(ROTATED));
        stage.actions.accept_only([ROTATED]);
        stage.actions.expire_queue_tokens();
        pause().await;
        let down = Outcome::Unreachable;
        scene.vault.faults().always("vault_login", down);
        scene.vault.revoke_tokens();
        pause().await;
        scene.vault.faults().clear("vault_login");
        scene.jobs(2).await;
    });

    let log = logged.text();
    for words in [
        "ForbiddenByRbac",
        "neither text nor a number",
        "credentials have changed",
        "login.microsoftonline.com cannot be reached",
    ] {
        assert!(log.contains(words), "{words} is not told");
    }
    let key = APPLICATION.split("PRIVATE KEY-----\n").nth(1).unwrap();
    let key = key.lines().next().unwrap();
    for secret in [TOKEN, ROTATED, "ghp_Not/A+Text", key, "akv-0", "eyJ"] {
        let url: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
        let plain = secret.to_owned();
        let encoded = [
            STANDARD_NO_PAD.encode(secret),
            URL_SAFE_NO_PAD.encode(secret),
        ];
        for form in [plain, url].into_iter().chain(encoded) {
            if let Some(at) = log.find(&form) {
                let line = log[..at].rfind('\n').map_or(0, |end| end + 1);
                panic!("{form} is logged: {}", &log[line..at + form.len()]);
            }
        }
    }
}
