//! The whole program on an embedded cluster, with nothing but a vault to know its credentials
//! from.

use std::time::Duration;

use embedded_actions::KeyVault as EmbeddedVault;
use kube::ResourceExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use url::Url;

use crate::stage::Stage;
use crate::stage::manifests::{RUN, SET, namespace, scale_set};
use crate::world::{APPLICATION, CLIENT, NAME, TENANT, TOKEN, URL, value};

pub const JOB: Duration = Duration::from_secs(20);

/// A cluster with a vault that all in it can reach.
pub struct Scene {
    pub stage: Stage,
    pub vault: EmbeddedVault,
    folder: TempDir,
}

impl Scene {
    pub async fn new(seed: u64) -> Self {
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
    pub fn mount(&self) {
        std::fs::write(self.certificate(), APPLICATION).unwrap();
    }

    pub fn unmount(&self) {
        std::fs::remove_file(self.certificate()).unwrap();
    }

    fn certificate(&self) -> String {
        let path = self.folder.path().join("application.pem");
        path.to_str().unwrap().to_owned()
    }

    /// A scale set whose credentials are in the vault. There is no Secret with any.
    pub fn manifests(&self, min: i64, max: i64) -> Vec<Value> {
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

    pub async fn settled(&self) {
        self.stage
            .within(
                Duration::from_secs(600),
                "the scale set is settled",
                async || self.stage.is_settled().await && !self.stage.actions.sessions().is_empty(),
            )
            .await;
        self.stage.settle().await;
    }

    pub async fn jobs(&self, count: usize) {
        let before = self.stage.jobs_done();
        self.stage.queue_jobs(count, SET, JOB);
        self.stage
            .until("the jobs are done", async || {
                self.stage.jobs_done() == before + count
            })
            .await;
    }

    pub async fn listener(&self) -> String {
        let pods = self.stage.listener_pods().await;
        let uids = pods.iter().map(|pod| pod.uid().unwrap());
        uids.collect::<Vec<_>>().join(" ")
    }
}
