//! Pools are handed back to ARC: taken over, released, and then in the form that it left them in,
//! but for what it makes anew anyway.

use std::time::Duration;

use impresario::api::{
    AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet,
};
use impresario::command::release::{Args, release};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::recorded::{MASTER, NAMESPACE, POOL, RELEASE, Recorded};
use crate::stage::manifests::{SET, older_crds};
use crate::stage::{Stage, manifests, play};

/// What was told, or why it failed.
async fn released(stage: &Stage, args: &Args) -> Result<String, String> {
    let mut output = Vec::new();
    let done = release(stage.client.clone(), args, &mut output).await;
    let text = String::from_utf8(output).unwrap();
    done.map(|()| text).map_err(|error| format!("{error:#}"))
}

fn all() -> Args {
    Args {
        all: true,
        ..Args::default()
    }
}

fn named(name: &str) -> Args {
    Args {
        names: vec![name.to_owned()],
        namespace: Some(NAMESPACE.to_owned()),
        ..Args::default()
    }
}

/// Labels, annotations, finalizers and owners, without uids.
fn form(meta: &ObjectMeta) -> Value {
    let owners = meta.owner_references.iter().flatten();
    let owners: Vec<String> = owners
        .map(|owner| format!("{} {}", owner.kind, owner.name))
        .collect();
    json!([meta.labels, meta.annotations, meta.finalizers, owners])
}

/// The form of a recorded object.
fn recorded(file: &str, kind: &str, name: &str) -> Value {
    let documents = manifests::rendered(file).unwrap();
    let mut found = documents
        .into_iter()
        .filter(|one| one["kind"] == kind && one["metadata"]["name"] == name);
    form(&serde_json::from_value(found.next().unwrap()["metadata"].take()).unwrap())
}

#[test]
fn a_released_pool_has_the_form_that_arc_left_it_in() {
    play(async || {
        for file in [RELEASE, MASTER] {
            let stage = Stage::embedded(7, false, true).await;
            let Some(found) = Recorded::on(stage, file).await else {
                return;
            };
            found.take_over().await;
            let stage = &found.stage;
            stage.kill_controller();
            let told = released(stage, &all()).await.unwrap();
            assert!(told.contains("1 scale sets are released"), "{told}");
            assert!(found.busy_goes_on().await, "{file}");

            let pool: AutoscalingRunnerSet = stage.get(NAMESPACE, POOL).await.unwrap();
            let mut before = recorded(file, "AutoscalingRunnerSet", POOL);
            // what the service of the tests calls them
            before[1]["actions.github.com/runner-group-name"] = "default".into();
            let id = stage.actions.scale_sets()[0].id;
            before[1]["runner-scale-set-id"] = id.to_string().into();
            assert_eq!(form(&pool.metadata), before, "{file}");
            let busy: EphemeralRunner = stage.get(NAMESPACE, &found.busy).await.unwrap();
            let before = recorded(file, "EphemeralRunner", &found.busy);
            assert_eq!(form(&busy.metadata), before, "{file}");
            let set: EphemeralRunnerSet = stage.get(NAMESPACE, POOL).await.unwrap();
            assert_eq!(set.finalizers(), Vec::<String>::new(), "{file}");
            assert!(!set.annotations().is_empty(), "{file}");
            let listeners = stage.all::<AutoscalingListener>().await;
            assert!(!listeners[0].annotations().is_empty(), "{file}");
            let own = ["autoscalinglistener.actions.github.com/finalizer"];
            assert_eq!(listeners[0].finalizers(), own, "{file}");
            let mut marked = stage.objects_with("impresario.dev/");
            marked.retain(|one| {
                let rest = one.replace("impresario.dev/made-by", "");
                rest.contains("impresario.dev/")
            });
            assert!(marked.is_empty(), "{marked:#?}");
            // nothing is left to do
            let again = released(stage, &all()).await.unwrap();
            assert_eq!(again.lines().count(), 1, "{again}");
        }
    });
}

/// State for which ARC's definitions have no field stands in annotations, of runners too.
#[test]
fn with_arcs_definitions_nothing_is_left_that_only_we_read() {
    let Some(crds) = older_crds() else { return };
    play(async || {
        let stage = Stage::embedded_with(8, |options| {
            options.keep_log = true;
            options.crds = Some(crds);
        })
        .await;
        stage.start_controller();
        stage.settled_fixture(1, 4).await;
        stage.queue_jobs(1, SET, Duration::from_secs(60));
        stage.queue_jobs(1, SET, Duration::from_secs(3600));
        stage
            .until("both run", async || {
                let runners = stage.runners().await;
                let busy = |one: &&EphemeralRunner| {
                    let status = one.status.as_ref();
                    status.is_some_and(|status| status.job_id.is_some())
                };
                runners.iter().filter(busy).count() == 2
            })
            .await;
        stage.kill_controller();
        // one ends, and nobody is there to remove its runner
        stage.pass(Duration::from_secs(120)).await;
        let before = stage.objects_with("impresario.dev/");
        let stand_in = |of: &str| before.iter().any(|object| object.contains(of));
        for annotation in [
            "impresario.dev/status.jobFinishedAt",
            "impresario.dev/spec.actionableRevision",
            "impresario.dev/status.conditions",
        ] {
            assert!(stand_in(annotation), "no {annotation}");
        }
        released(&stage, &all()).await.unwrap();
        let mut marked = stage.objects_with("impresario.dev/");
        marked.retain(|one| {
            let rest = one.replace("impresario.dev/made-by", "");
            rest.contains("impresario.dev/")
        });
        assert!(marked.is_empty(), "{marked:#?}");
        for set in stage.all::<EphemeralRunnerSet>().await {
            assert_eq!(set.finalizers(), Vec::<String>::new());
        }
        // the job goes on
        assert_eq!(stage.jobs_done(), 1);
        stage.pass(Duration::from_secs(3600)).await;
        assert_eq!(stage.jobs_done(), 2);
    });
}

#[test]
fn a_dry_run_tells_what_would_be_done_and_does_nothing() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 3).await;
        stage.kill_controller();
        let before = stage.runner_set().await.resource_version();
        let dry = Args {
            dry_run: true,
            ..all()
        };
        let told = released(&stage, &dry).await.unwrap();
        let finalizer = "would take finalizer ephemeralrunnerset.actions.github.com/finalizer off";
        assert!(told.contains(finalizer), "{told}");
        assert!(told.contains("1 scale sets would be released"), "{told}");
        assert_eq!(stage.runner_set().await.resource_version(), before);
    });
}

#[test]
fn a_controller_that_still_runs_is_told_of() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 3).await;
        let told = released(&stage, &all()).await.unwrap_err();
        assert!(told.contains("a controller still runs"), "{told}");
        assert!(told.contains("scale its Deployment to 0"), "{told}");
    });
}

#[test]
fn a_pool_that_is_not_there_is_named() {
    play(async || {
        let stage = Stage::by_hand().await;
        let told = released(&stage, &named("nobody")).await.unwrap_err();
        assert!(told.contains("no AutoscalingRunnerSet nobody"), "{told}");
        assert!(told.contains(NAMESPACE), "{told}");
    });
}

/// ARC's master panics at a listener without annotations, and copies those of the runner set onto
/// runners.
#[test]
fn what_is_made_always_has_an_annotation() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(1, 3).await;
        assert!(!stage.runner_set().await.annotations().is_empty());
        for listener in stage.all::<AutoscalingListener>().await {
            assert!(!listener.annotations().is_empty());
        }
        // one that an earlier version made is given one, and not made again
        let listener = stage.all::<AutoscalingListener>().await.remove(0);
        let (namespace, name) = (listener.namespace().unwrap(), listener.name_any());
        let none = json!({"metadata": {"annotations": null}});
        stage
            .patch::<AutoscalingListener>(&namespace, &name, none)
            .await;
        stage.settle().await;
        let after = stage.all::<AutoscalingListener>().await.remove(0);
        assert_eq!(after.uid(), listener.uid());
        assert!(!after.annotations().is_empty());
    });
}
