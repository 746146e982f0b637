//! Controller, listener program and simulated runners, with nothing but the vault to know
//! their credentials from.

use std::time::Duration;

use impresario::api::ListenerConfig;
use impresario::simulation::actions_service::Outcome;
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use impresario::simulation::key_vault::KeyVault as EmbeddedVault;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use url::Url;

use crate::stage::manifests::{RUN, SET, namespace, scale_set};
use crate::stage::{Stage, play};
use crate::world::{APPLICATION, CLIENT, NAME, TENANT, TOKEN, URL, value};

const JOB: Duration = Duration::from_secs(20);
const ROTATED: &str = "ghp_RotatedInTheVault";

struct Scene {
    stage: Stage,
    vault: EmbeddedVault,
    folder: TempDir,
}

impl Scene {
    async fn new(seed: u64) -> Self {
        let mut vault = None;
        let stage = Stage::embedded_with(seed, |options| {
            options.keep_log = true;
            let url = Url::parse(URL).unwrap();
            let made = EmbeddedVault::new(options.clock.clone(), &url);
            options.key_vault = Some(made.clone());
            vault = Some(made);
        })
        .await;
        stage.start_controller();
        let vault = vault.unwrap();
        vault
            .register(TENANT, CLIENT, APPLICATION.as_bytes())
            .unwrap();
        vault.put(NAME, &value(TOKEN));
        stage.actions.accept_only([TOKEN]);
        let folder = tempfile::tempdir().unwrap();
        let scene = Self {
            stage,
            vault,
            folder,
        };
        scene.mount();
        scene
    }

    /// Mounts the certificate, in all pods.
    fn mount(&self) {
        std::fs::write(self.certificate(), APPLICATION).unwrap();
    }

    fn unmount(&self) {
        std::fs::remove_file(self.certificate()).unwrap();
    }

    fn certificate(&self) -> String {
        let path = self.folder.path().join("application.pem");
        path.to_str().unwrap().to_owned()
    }

    /// A scale set whose credentials are in the vault. There is no Secret with any.
    fn manifests(&self, min: i64, max: i64) -> Vec<Value> {
        let mut set = scale_set(min, max);
        set["spec"]["githubConfigSecret"] = json!(NAME);
        set["spec"]["vaultConfig"] = json!({
            "type": "azure_key_vault",
            "azureKeyVault": {
                "url": URL,
                "tenantId": TENANT,
                "clientId": CLIENT,
                "certificatePath": self.certificate(),
            },
        });
        vec![namespace(RUN), set]
    }

    async fn settled(&self) {
        self.stage
            .within(
                Duration::from_secs(600),
                "the scale set is settled",
                async || self.stage.is_settled().await && !self.stage.actions.sessions().is_empty(),
            )
            .await;
        self.stage.settle().await;
    }

    async fn jobs(&self, count: usize) {
        let before = self.stage.jobs_done();
        self.stage.queue_jobs(count, SET, JOB);
        self.stage
            .until("the jobs are done", async || {
                self.stage.jobs_done() == before + count
            })
            .await;
    }

    async fn listener(&self) -> String {
        let pods = self.stage.listener_pods().await;
        let uids = pods.iter().map(|pod| pod.uid().unwrap());
        uids.collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn a_scale_set_lives_on_credentials_from_a_vault_alone() {
    play(async || {
        let scene = Scene::new(1).await;
        let stage = &scene.stage;
        stage.apply(&scene.manifests(1, 4)).await;
        scene.settled().await;
        scene.jobs(6).await;
        stage.settle().await;

        let secret: Secret = stage
            .all()
            .await
            .into_iter()
            .find(|secret: &Secret| secret.name_any().ends_with("-config"))
            .unwrap();
        assert_eq!(secret.namespace().as_deref(), Some(CONTROLLER_NAMESPACE));
        let text = String::from_utf8(secret.data.unwrap()["config.json"].0.clone()).unwrap();
        assert!(!text.contains(TOKEN), "{text}");
        let config: ListenerConfig = serde_json::from_str(&text).unwrap();
        assert_eq!(config.vault_lookup_key, NAME);

        stage.delete_scale_set().await;
        stage.settle().await;
        stage.assert_sound();
    });
}

#[test]
fn a_rotated_credential_reaches_controller_and_listener_in_place() {
    play(async || {
        let scene = Scene::new(2).await;
        let stage = &scene.stage;
        stage.apply(&scene.manifests(0, 4)).await;
        scene.settled().await;
        scene.jobs(2).await;
        let (pod, sessions) = (scene.listener().await, stage.actions.sessions());

        // the new one is there before the old one ends, as it is done with care
        stage.actions.accept_only([TOKEN, ROTATED]);
        scene.vault.put(NAME, &value(ROTATED));
        stage.pass(Duration::from_secs(70)).await;
        stage.actions.accept_only([ROTATED]);
        let refused = stage.warden.calls("create_registration_token");
        stage.actions.expire_queue_tokens();
        scene.jobs(2).await;
        let asked = stage.warden.calls("create_registration_token") - refused;
        assert!(asked <= 2, "{asked} tries for controller and listener");

        // and without any care, under way
        stage.queue_jobs(3, SET, JOB);
        stage
            .until("jobs run", async || stage.live().await.len() == 3)
            .await;
        scene.vault.put(NAME, &value(TOKEN));
        stage.actions.accept_only([TOKEN]);
        stage.actions.expire_queue_tokens();
        stage
            .until("the jobs are done", async || stage.jobs_done() == 7)
            .await;
        scene.jobs(2).await;

        assert_eq!(
            scene.listener().await,
            pod,
            "the listener was not restarted"
        );
        assert_eq!(stage.actions.sessions(), sessions, "it is the same session");
        stage.settle().await;
        stage.assert_sound();
    });
}

#[test]
fn an_old_credential_that_ends_first_is_replaced_as_soon_as_there_is_another() {
    play(async || {
        let scene = Scene::new(3).await;
        let stage = &scene.stage;
        stage.apply(&scene.manifests(0, 4)).await;
        scene.settled().await;
        let pod = scene.listener().await;
        stage.actions.accept_only([ROTATED]);
        stage.actions.expire_queue_tokens();
        stage.queue_jobs(2, SET, JOB);
        stage.pass(Duration::from_secs(300)).await;
        assert_eq!(stage.jobs_done(), 0);
        scene.vault.put(NAME, &value(ROTATED));
        stage
            .until("the jobs are done", async || stage.jobs_done() == 2)
            .await;
        assert_eq!(
            scene.listener().await,
            pod,
            "the listener was not restarted"
        );
        stage.settle().await;
        stage.assert_sound();
    });
}

#[test]
fn a_vault_that_is_down_for_two_minutes_is_waited_for() {
    for (seed, call) in [(4, "vault_secret"), (5, "vault_login")] {
        play(async || {
            let scene = Scene::new(seed).await;
            let stage = &scene.stage;
            // from the start
            scene.vault.faults().always(call, Outcome::Unreachable);
            stage.apply(&scene.manifests(1, 4)).await;
            stage.pass(Duration::from_secs(120)).await;
            assert!(stage.actions.scale_sets().is_empty());
            let condition = stage.scale_set().await.status.unwrap().conditions;
            let shown = serde_json::to_string(&condition).unwrap();
            assert!(shown.contains("cannot be reached"), "{shown}");
            scene.vault.faults().clear(call);
            scene.settled().await;
            scene.jobs(2).await;

            // in the middle of life, also for a listener that starts meanwhile
            scene.vault.faults().always(call, Outcome::Hang);
            scene.vault.revoke_tokens();
            let pod = &stage.listener_pods().await[0];
            let (name, old) = (pod.name_any(), scene.listener().await);
            stage
                .delete::<k8s_openapi::api::core::v1::Pod>(CONTROLLER_NAMESPACE, &name)
                .await;
            stage.pass(Duration::from_secs(120)).await;
            assert_ne!(scene.listener().await, old);
            assert!(stage.actions.sessions().is_empty());
            let waiting = scene.listener().await;
            scene.vault.faults().clear(call);
            scene.jobs(2).await;
            assert_eq!(
                scene.listener().await,
                waiting,
                "it waited, and did not exit"
            );
            stage.settle().await;
            stage.assert_sound();
        });
    }
}

#[test]
fn what_a_person_mends_in_the_vault_needs_no_edit_of_the_scale_set() {
    play(async || {
        let scene = Scene::new(6).await;
        let stage = &scene.stage;
        scene.vault.remove(NAME);
        scene.unmount();
        stage.apply(&scene.manifests(1, 4)).await;
        let told = async |words: &str| {
            let what = format!("the scale set says {words}");
            stage
                .within(Duration::from_secs(400), &what, async || {
                    let status = stage.scale_set().await.status.unwrap_or_default();
                    let shown = serde_json::to_string(&status.conditions).unwrap();
                    shown.contains(words)
                })
                .await;
        };
        told("does not exist: mount the certificate").await;
        scene.mount();
        told("has no secret github-auth").await;
        scene.vault.put(NAME, "not json");
        told("is no JSON").await;
        scene.vault.put(NAME, &value(TOKEN));
        scene.vault.close(true);
        told("Key Vault Secrets User").await;
        scene.vault.close(false);
        scene.settled().await;
        scene.jobs(2).await;
        stage.assert_sound();
    });
}
