//! What others change of a listener's objects is set back, and the pod stays.

use std::time::Duration;

use impresario::simulation::cluster::CONTROLLER_NAMESPACE;
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use serde_json::json;

use crate::changes::documents;
use crate::drifted::stage;
use crate::stage::manifests::RUN;
use crate::stage::{Known, Stage, play};
use crate::watched::{Watched, name};

#[test]
fn rules_of_the_role() {
    play(async || {
        let stage = stage().await;
        let watched = Watched::at_rest(&stage, &documents()).await;
        let name = name(&stage).await;
        let before = stage.get::<Role>(RUN, &name).await.unwrap().rules;
        let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        stage
            .patch::<Role>(RUN, &name, json!({"rules": everything}))
            .await;
        stage
            .until("the rules are set back", async || {
                stage.get::<Role>(RUN, &name).await.unwrap().rules == before
            })
            .await;
        keeps_pod(&watched).await;
    });
}

#[test]
fn subjects_of_the_binding() {
    play(async || {
        let stage = stage().await;
        let watched = Watched::at_rest(&stage, &documents()).await;
        let name = name(&stage).await;
        let before = stage.get::<RoleBinding>(RUN, &name).await.unwrap().subjects;
        let somebody = json!([{"kind": "ServiceAccount", "name": "else", "namespace": RUN}]);
        stage
            .patch::<RoleBinding>(RUN, &name, json!({"subjects": somebody}))
            .await;
        stage
            .until("the subjects are set back", async || {
                stage.get::<RoleBinding>(RUN, &name).await.unwrap().subjects == before
            })
            .await;
        keeps_pod(&watched).await;
    });
}

#[test]
fn data_of_the_config_secret() {
    play(async || {
        let stage = stage().await;
        let watched = Watched::at_rest(&stage, &documents()).await;
        watched.pass_poll().await;
        let name = format!("{}-config", name(&stage).await);
        let control = CONTROLLER_NAMESPACE;
        let before = stage.get::<Secret>(control, &name).await.unwrap().data;
        let data = json!({"data": {"config.json": "e30=", "more": "eA=="}});
        stage.patch::<Secret>(control, &name, data).await;
        stage
            .within(
                Duration::from_secs(61),
                "the data are set back",
                async || stage.get::<Secret>(control, &name).await.unwrap().data == before,
            )
            .await;
        keeps_pod(&watched).await;
    });
}

#[test]
fn the_owner_of_account_secret_and_pod() {
    play(async || {
        let stage = stage().await;
        let watched = Watched::at_rest(&stage, &documents()).await;
        watched.pass_poll().await;
        let name = name(&stage).await;
        let config = format!("{name}-config");
        disown::<ServiceAccount>(&stage, &name).await;
        disown::<Secret>(&stage, &config).await;
        disown::<Pod>(&stage, &name).await;
        stage
            .until("the owner is set back", async || {
                owned::<ServiceAccount>(&stage, &name).await
                    && owned::<Secret>(&stage, &config).await
                    && owned::<Pod>(&stage, &name).await
            })
            .await;
        keeps_pod(&watched).await;
    });
}

async fn disown<K: Known>(stage: &Stage, name: &str) {
    let nobody = json!({"metadata": {"ownerReferences": null}});
    stage.patch::<K>(CONTROLLER_NAMESPACE, name, nobody).await;
}

async fn owned<K: Known>(stage: &Stage, name: &str) -> bool {
    let object = stage.get::<K>(CONTROLLER_NAMESPACE, name).await.unwrap();
    let mut owners = object.owner_references().iter();
    owners.any(|owner| owner.kind == "AutoscalingListener")
}

async fn keeps_pod(watched: &Watched<'_>) {
    watched.pass_poll().await;
    watched.nudge(10).await;
    watched.rest().await;
    assert_eq!(watched.made(), 1);
}
