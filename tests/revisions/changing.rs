//! A changed runner spec spares busy runners and the listener (SCN-15).

use impresario::api::EphemeralRunner;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

use crate::scenes::{embedded, image, is_observed, listener, revision, revisions};
use crate::stage::Stage;
use crate::stage::manifests::RUN;

/// Three runners, the first one busy, the others idle and registered.
async fn one_busy_two_idle(stage: &Stage) -> [String; 3] {
    stage.settled_fixture(1, 10).await;
    let names = stage.scale_up(3, 1).await;
    for name in &names {
        stage.up(name).await;
    }
    stage.busy(&names[0], 7).await;
    stage.settle().await;
    <[String; 3]>::try_from(names).unwrap()
}

#[test]
fn another_image_spares_busy_runners_and_the_listener() {
    embedded(scn_15);
}

pub async fn scn_15(stage: &Stage) {
    let [busy, second, third] = one_busy_two_idle(stage).await;
    let idle = [&second, &third].map(|name| (name.clone(), stage.registration(name)));
    let before: EphemeralRunner = stage.get(RUN, &busy).await.unwrap();
    let pod: Pod = stage.get(RUN, &busy).await.unwrap();
    let uids = async |stage: &Stage| {
        let pods = stage.listener_pods().await;
        assert_eq!(pods.len(), 1);
        (
            listener(stage).await.uid(),
            pods[0].uid(),
            stage.runner_set().await.uid(),
        )
    };
    let kept = uids(stage).await;

    // 1. another image
    stage.set_image("img:2").await;
    stage
        .until("it is applied", async || {
            revisions(&stage.runner_set().await) == (2, 2)
        })
        .await;
    stage.settle().await;
    for (name, id) in &idle {
        assert!(!stage.is_live(name).await, "{name} is replaced");
        let (asked, asked_before) = stage.warden.removals_of(name, *id);
        assert!(asked_before > 0, "{name} is deleted before it is removed");
        assert_eq!(asked, 1, "{name} is removed once");
    }
    let still: EphemeralRunner = stage.get(RUN, &busy).await.unwrap();
    assert_eq!(still.resource_version(), before.resource_version());
    let still: Pod = stage.get(RUN, &busy).await.unwrap();
    assert_eq!(still.resource_version(), pod.resource_version());
    assert_eq!(uids(stage).await, kept);
    stage
        .until("it is observed", async || is_observed(stage).await)
        .await;

    // 2. the listener asks again; they may have been replaced before
    stage.ersset(3, 2).await;
    stage
        .until("there are three", async || stage.live().await.len() == 3)
        .await;
    stage.settle().await;
    let live = stage.live().await;
    assert_eq!(live.len(), 3, "{}", stage.picture().await);
    let new = live.iter().filter(|one| one.name_any() != busy);
    for runner in new {
        assert_eq!((image(runner).as_str(), revision(runner)), ("img:2", 2));
    }
    assert!(live.iter().any(|one| one.name_any() == busy));
    assert_eq!(stage.created("ephemeralrunners"), 5);
    stage.assert_at_rest().await;
}

/// SCN-15, variant M.
#[test]
fn other_runner_metadata_spares_everybody_and_reaches_new_runners() {
    embedded(async |stage| {
        let names = one_busy_two_idle(stage).await;
        stage
            .edit(json!({"ephemeralRunnerMetadata": {"annotations": {"cost-center": "42"}}}))
            .await;
        stage
            .until("it is observed", async || is_observed(stage).await)
            .await;
        stage.settle().await;
        assert_eq!(stage.warden.count("delete", "ephemeralrunners"), 0);
        assert_eq!(stage.service()["remove_runner"], 0);
        assert_eq!(revisions(&stage.runner_set().await), (1, 1));
        stage.ersset(4, 2).await;
        stage
            .until("there are four", async || stage.live().await.len() == 4)
            .await;
        let live = stage.live().await;
        for runner in &live {
            let old = names.contains(&runner.name_any());
            let carries = runner.annotations().contains_key("cost-center");
            assert_eq!(carries, !old, "{}", runner.name_any());
        }
        stage.assert_at_rest().await;
    });
}
