//! Scenarios on a real API server, where there is one. To start a server takes longer than most
//! scenarios do, so they use one, one after the other.

use std::time::Duration;

use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use serde_json::Value;

use crate::older_crds::{self, until_served};
use crate::stage::manifests::{RUN, binding, namespace, older_crds, our_crds, rights};
use crate::stage::{Stage, play_live};
use crate::{changing, parking, recovery};
use real_kube::envtest::{self, Env};

#[test]
fn revisions_on_a_real_api_server() {
    play_live(async || {
        let Some(server) = Server::start(our_crds()).await else {
            return;
        };
        server.play("SCN-15", changing::scn_15).await;
        server.play("SCN-11", parking::scn_11).await;
        server.play("SCN-13", recovery::scn_13).await;
    });
}

#[test]
fn older_definitions_on_a_real_api_server() {
    let Some(older) = older_crds() else { return };
    play_live(async || {
        let Some(server) = Server::start(older).await else {
            return;
        };
        server.play("SCN-15", changing::scn_15).await;
        // parks the set first
        server.play("SCN-13", recovery::scn_13).await;
        // those that apply our definitions
        server.play("schemas", older_crds::told).await;
        server
            .play("idle and busy", older_crds::idle_and_busy)
            .await;
        server
            .play("parked", older_crds::parked_and_recovered)
            .await;
    });
}

/// A real API server that scenarios share.
struct Server {
    env: Env,
    crds: Vec<Value>,
}

impl Server {
    /// With these definitions, and the controller's rights.
    async fn start(crds: Vec<Value>) -> Option<Self> {
        let env = envtest::start().await?;
        let kinds = crds.iter().cloned();
        let kinds = kinds.map(|crd| serde_json::from_value(crd).unwrap());
        env.install(kinds.collect()).await;
        Some(Self { env, crds })
    }

    /// Plays a scenario with a controller of its own, and clears the server after it.
    async fn play(&self, what: &str, scenario: impl AsyncFnOnce(&Stage)) {
        // shown when it fails
        println!("--- {what}");
        let user = format!("system:serviceaccount:{CONTROLLER_NAMESPACE}:impresario-controller");
        let controller = self.env.impersonating()(&user);
        let stage = Stage::real(self.env.client.clone(), controller);
        stage.apply(&rights()).await;
        stage.apply(&[namespace(RUN), binding(RUN)]).await;
        until_served(&stage, &self.crds).await;
        stage.restart_with(|settings| settings.sync_period = Duration::from_secs(3));
        scenario(&stage).await;
        stage.assert_sound();
        stage.clear().await;
    }
}
