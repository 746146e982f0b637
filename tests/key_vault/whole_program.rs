//! Controller, listener program and simulated runners, with nothing but the vault to know
//! their credentials from.

use std::time::Duration;

use embedded_actions::Outcome;
use impresario::api::ListenerConfig;
use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;

use crate::scene::{JOB, Scene};
use crate::stage::manifests::SET;
use crate::stage::play;
use crate::world::{NAME, TOKEN, value};

const ROTATED: &str = "ghp_RotatedInTheVault";

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
        assert_eq!(asked, 2, "once by the controller, once by the listener");

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
            stage.delete::<Pod>(CONTROLLER_NAMESPACE, &name).await;
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

#[test]
fn a_listener_without_its_certificate_ends_and_starts_again_until_it_is_mounted() {
    play(async || {
        let scene = Scene::new(8).await;
        let stage = &scene.stage;
        stage.apply(&scene.manifests(0, 4)).await;
        scene.settled().await;
        // the controller has its token still, as one whose own mount is well
        scene.unmount();
        let name = stage.listener_pods().await[0].name_any();
        stage.delete::<Pod>(CONTROLLER_NAMESPACE, &name).await;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..60 {
            seen.insert(scene.listener().await);
            stage.pass(Duration::from_secs(1)).await;
        }
        assert!((3..10).contains(&seen.len()), "started {seen:?}");
        scene.mount();
        scene.settled().await;
        scene.jobs(2).await;
        stage.settle().await;
        stage.assert_sound();
    });
}
