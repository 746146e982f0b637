//! Specs that a schema takes and that make no sense: the controller says so, makes nothing of
//! them, and goes on when they are mended.

use serde_json::{Value, json};

use crate::world::{ILL, World, credentials, ill, on_stage};

#[tokio::test(start_paused = true)]
async fn a_spec_that_makes_no_sense_is_answered_with_the_field_and_mending_it_heals() {
    let cases = [
        (
            "/spec/githubConfigUrl",
            json!("github.com/acme"),
            vec![
                "spec.githubConfigUrl",
                "\"github.com/acme\"",
                "https://HOST/ORGANIZATION",
            ],
        ),
        (
            "/spec/minRunners",
            json!(9),
            vec!["spec.minRunners", "is 9", "spec.maxRunners, which is 3"],
        ),
        (
            "/spec/template/spec/containers/0/name",
            json!("main"),
            vec![
                "spec.template.spec.containers",
                "no container named \"runner\"",
            ],
        ),
        (
            "/spec/githubConfigSecret",
            json!("not a name"),
            vec!["spec.githubConfigSecret", "\"not a name\""],
        ),
    ];
    on_stage(async {
        let world = World::new().await;
        world.apply(credentials()).await;
        for (pointer, bad, parts) in cases {
            let mut set = ill();
            *set.pointer_mut(pointer).unwrap() = bad;
            world.apply(set).await;
            world.until_told("Ready", "InvalidSpec", &parts).await;
            world.others_go_on().await;
            world.apply(ill()).await;
            world.until_ready(ILL).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_spec_broken_later_tears_nothing_down() {
    on_stage(async {
        let world = World::new().await;
        world.apply(credentials()).await;
        world.apply(ill()).await;
        world.until_ready(ILL).await;
        let before = world.cluster.actions.runners();
        let mut set = ill();
        set["spec"]["minRunners"] = json!(9);
        world.apply(set).await;
        world
            .until_told("Ready", "InvalidSpec", &["spec.minRunners"])
            .await;
        let after = world.cluster.actions.runners();
        assert_eq!(ids(&after), ids(&before));
        world.takes_a_job(ILL.1).await;
        world.nothing_crashed();
    })
    .await;
}

fn ids(runners: &[embedded_actions::RunnerInfo]) -> Vec<i64> {
    runners.iter().map(|runner| runner.id).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stored_object_without_a_spec_is_named_and_the_watch_goes_on() {
    on_stage(async {
        let world = World::new().await;
        let bare: Value = json!({
            "apiVersion": "actions.github.com/v1alpha1",
            "kind": "AutoscalingRunnerSet",
            "metadata": {"name": ILL.1, "namespace": ILL.0},
        });
        world.apply(bare).await;
        world
            .until("a warning says what is wrong", || {
                world.warnings(ILL).iter().any(|event| {
                    let message = event.message.as_deref().unwrap_or_default();
                    event.reason.as_deref() == Some("Unreadable") && message.contains("spec")
                })
            })
            .await;
        world.others_go_on().await;
        world.apply(credentials()).await;
        world.apply(ill()).await;
        world.until_ready(ILL).await;
    })
    .await;
}
