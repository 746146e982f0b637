//! On a cluster with the CustomResourceDefinitions of ARC 0.14.2, which lack fields of ours:
//! what has no field stands in annotations, everything works, nothing is written twice, and
//! the state moves into the fields when our definitions are applied.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use impresario::api::stand_in::{annotation_value, native, stand_ins_of, standing};
use impresario::api::{
    AutoscalingListener, AutoscalingRunnerSet, CRD_COMMAND, EphemeralRunner, EphemeralRunnerSet,
    Field, MissingFields, Section,
};
use impresario::kube_io::{Reading, SchemaReader};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::Request;
use kube::{Api, Resource};
use serde_json::{Value, json};

use crate::scenes::{condition, events, is_parked, park, phase, revisions, until_recovered};
use crate::stage::manifests::{RUN, SET, older_crds, our_crds};
use crate::stage::{Stage, play};
use crate::{changing, parking, recovery};
use real_kube::envtest::crd_for_old_server;

/// What ARC 0.14.2 has no field for.
const LACKING: [&str; 10] = [
    "AutoscalingListener.spec.phase",
    "AutoscalingListener.status.lastRestartReason",
    "AutoscalingListener.status.restarts",
    "AutoscalingRunnerSet.status.conditions",
    "AutoscalingRunnerSet.status.observedGeneration",
    "EphemeralRunner.status.jobFinishedAt",
    "EphemeralRunner.status.jobResult",
    "EphemeralRunnerSet.spec.actionableRevision",
    "EphemeralRunnerSet.status.appliedActionableRevision",
    "EphemeralRunnerSet.status.finishedRunnerCleanupPatchID",
];

const METRIC: &str = "impresario_crd_missing_fields";

// === where it is played ===

/// On the embedded API server; the test plays kubelet and listener.
fn embedded(scenario: impl AsyncFn(&Stage)) {
    let Some(crds) = older_crds() else { return };
    play(async || {
        let stage = Stage::embedded_with(5, |options| {
            options.run_pods = false;
            options.keep_log = true;
            options.crds = Some(crds);
        })
        .await;
        stage.start_controller();
        scenario(&stage).await;
        stage.assert_sound();
    });
}

/// On the embedded API server, with the real listener and simulated runners.
fn whole(scenario: impl AsyncFn(&Stage)) {
    let Some(crds) = older_crds() else { return };
    play(async || {
        let stage = Stage::embedded_with(6, |options| {
            options.keep_log = true;
            options.crds = Some(crds);
        })
        .await;
        stage.start_controller();
        scenario(&stage).await;
        stage.assert_sound();
    });
}

/// As `impresario crds | kubectl apply --server-side --force-conflicts -f -` does.
async fn apply_crds(stage: &Stage, crds: Vec<Value>) {
    let api = Api::<CustomResourceDefinition>::all(stage.client.clone());
    for crd in crds {
        let crd = if stage.is_real() {
            crd_for_old_server(crd)
        } else {
            crd
        };
        let name = crd["metadata"]["name"].as_str().unwrap().to_owned();
        let params = PatchParams::apply("kubectl").force();
        let applied = api.patch(&name, &params, &Patch::Apply(&crd)).await;
        applied.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// Sees to it that the server has these definitions, and publishes their schemas.
pub async fn until_served(stage: &Stage, crds: &[Value]) {
    apply_crds(stage, crds.to_vec()).await;
    let missing = Field::all().filter(|field| lacks(crds, field));
    let mut reader = SchemaReader::new(stage.client.clone());
    reads(&mut reader, missing.collect()).await;
}

// === what is looked at ===

/// The objects of a kind as the server has them.
async fn raw<K: Resource<DynamicType = ()>>(stage: &Stage) -> Vec<Value> {
    let path = K::url_path(&(), None);
    let request = Request::new(path).list(&ListParams::default()).unwrap();
    let list: Value = stage.client.request(request).await.unwrap();
    let items = list["items"].as_array().unwrap().iter();
    let with_kind = |item: &Value| {
        let mut item = item.clone();
        item["kind"] = json!(K::kind(&()));
        item
    };
    items.map(with_kind).collect()
}

/// All objects of the four kinds.
async fn objects(stage: &Stage) -> Vec<Value> {
    let mut all = raw::<AutoscalingRunnerSet>(stage).await;
    all.extend(raw::<AutoscalingListener>(stage).await);
    all.extend(raw::<EphemeralRunnerSet>(stage).await);
    all.extend(raw::<EphemeralRunner>(stage).await);
    all
}

/// The fields for which annotations stand in somewhere, by the name of their object.
async fn standing_in(stage: &Stage) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for object in objects(stage).await {
        let kind = object["kind"].as_str().unwrap();
        found.extend(stand_ins_of(kind, &object).iter().map(Field::to_string));
    }
    found
}

fn missing_of_arc() -> Vec<Field> {
    let missing = Field::all().filter(|field| LACKING.contains(&field.to_string().as_str()));
    missing.collect()
}

/// What the state says in each object that has any, wherever it stands.
async fn state(stage: &Stage) -> BTreeSet<String> {
    let mut state = BTreeSet::new();
    for object in objects(stage).await {
        let name = object["metadata"]["name"].as_str().unwrap();
        for field in missing_of_arc() {
            if object["kind"] != field.kind() || field.name() == "conditions" {
                continue;
            }
            let value = native(&object, field)
                .cloned()
                .or_else(|| standing(&object, field));
            if let Some(value) = value {
                state.insert(format!("{field} of {name}: {value}"));
            }
        }
    }
    state
}

/// Another controller changes nothing.
async fn restart(stage: &Stage) {
    stage.settle().await;
    let before = state(stage).await;
    stage.start_controller();
    stage.assert_at_rest().await;
    assert_eq!(state(stage).await, before);
}

// === what the cluster lacks ===

/// The list in this file is what the two definitions say, so that no field of ours that ARC
/// lacks can be forgotten.
#[test]
fn the_older_definitions_lack_what_stands_here() {
    let Some(older) = older_crds() else { return };
    let lacking = Field::all().filter(|field| lacks(&older, field));
    let lacking: Vec<String> = lacking.map(|field| field.to_string()).collect();
    assert_eq!(lacking, LACKING);
}

fn lacks(crds: &[Value], field: &Field) -> bool {
    let of_kind = |crd: &&Value| crd["spec"]["names"]["kind"] == field.kind();
    let crd = crds.iter().find(of_kind).unwrap();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let section = &schema["properties"][field.section().as_str()];
    section["properties"].get(field.name()).is_none()
}

#[test]
fn the_schemas_say_what_is_missing() {
    embedded(told);
}

pub async fn told(stage: &Stage) {
    let mut reader = SchemaReader::new(stage.client.clone());
    reads(&mut reader, missing_of_arc().into_iter().collect()).await;
    assert_eq!(reader.read().await, Reading::Unchanged);
    apply_crds(stage, our_crds()).await;
    reads(&mut reader, MissingFields::default()).await;
}

/// Reads that in the end: a real server takes a moment.
async fn reads(reader: &mut SchemaReader, missing: MissingFields) {
    let wanted = Reading::Read(missing);
    let mut last = Reading::Unchanged;
    for _ in 0..100 {
        match reader.read().await {
            reading if reading == wanted => return,
            Reading::Unchanged => {}
            other => last = other,
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("{last:?} and not {wanted:?}");
}

#[test]
fn what_is_missing_is_said_once_with_the_command_that_cures_it() {
    embedded(async |stage| {
        stage.settled_fixture(1, 3).await;
        let told = condition(stage, "FieldsServed").await;
        assert!(told.starts_with("False FieldsMissing: "), "{told}");
        assert!(told.ends_with(CRD_COMMAND), "{told}");
        for field in LACKING {
            assert!(told.contains(field), "{told}");
        }
        assert!(condition(stage, "Ready").await.starts_with("True"));
        assert_eq!(stage.series(METRIC), LACKING.len());
        stage.start_controller();
        stage.settle().await;
        assert_eq!(events(stage, "FieldsMissing").await.len(), 1);

        apply_crds(stage, our_crds()).await;
        stage
            .until("it is taken back", async || {
                condition(stage, "FieldsServed").await == "absent"
            })
            .await;
        assert_eq!(stage.series(METRIC), 0);
        stage.assert_at_rest().await;
    });
}

// === everything works ===

#[test]
fn another_image_reaches_idle_runners() {
    embedded(changing::scn_15);
}

#[test]
fn exit_code_7_parks_the_set() {
    embedded(parking::scn_11);
}

#[test]
fn another_image_recovers() {
    embedded(recovery::scn_13);
}

const JOB: Duration = Duration::from_secs(20);

#[test]
fn jobs_run_and_at_rest_nothing_is_written() {
    whole(async |stage| {
        stage.settled_fixture(1, 4).await;
        restart(stage).await;
        stage.queue_jobs(9, SET, JOB);
        stage
            .until("a job runs", async || {
                let runners = stage.runners().await;
                runners.iter().any(|runner| {
                    let status = runner.status.clone().unwrap_or_default();
                    status.job_id.is_some()
                })
            })
            .await;
        stage.start_controller();
        stage
            .until("all jobs are done", async || stage.jobs_done() == 9)
            .await;
        stage
            .until("one runner is left", async || {
                stage.runners().await.len() == 1
            })
            .await;
        let made = stage.created("ephemeralrunners");
        assert_eq!(made, 10, "one for each job, and the one that waits");
        stage.pass(Duration::from_secs(120)).await;
        restart(stage).await;
        stage.assert_nothing_left_over_beside_runners().await;
        stage.delete_scale_set().await;
    });
}

/// What a write of ours takes on the wire is what the metric says, also where it takes two requests.
#[test]
fn every_request_is_counted() {
    let Some(older) = older_crds() else { return };
    for crds in [our_crds(), older] {
        play(async || {
            let stage = Stage::embedded_with(6, |options| options.crds = Some(crds)).await;
            stage.start_controller();
            stage.settled_fixture(1, 4).await;
            stage.queue_jobs(5, SET, JOB);
            stage
                .until("all jobs are done", async || stage.jobs_done() == 5)
                .await;
            apply_crds(&stage, our_crds()).await;
            stage
                .until("all of it has moved", async || {
                    standing_in(&stage).await.is_empty()
                })
                .await;
            stage.delete_scale_set().await;
            stage.settle().await;
            let mut sent = BTreeMap::<(String, String), f64>::new();
            for (key, count) in stage.cluster().api.requests() {
                let controller = key.user_agent.contains("impresario-controller");
                let plural = key.resource.split(['.', '/']).next().unwrap();
                // those of watches, and those that tell people
                let counted = !["watch", "list", "meta"].contains(&key.verb) && plural != "events";
                if controller && counted {
                    let key = (key.verb.to_owned(), plural.to_owned());
                    *sent.entry(key).or_default() += count as f64;
                }
            }
            let mut told = BTreeMap::<(String, String), f64>::new();
            for ([verb, kind, code], count) in stage.requests() {
                // one that was given up with its actor may not have been sent
                if verb != "list" && code != "none" {
                    let plural = format!("{}s", kind.to_lowercase());
                    *told.entry((verb, plural)).or_default() += count;
                }
            }
            assert_eq!(told, sent);
        });
    }
}

/// A controller that believes every field to be there, since the schemas changed behind its
/// back, sees in the answers what does not come back.
#[test]
fn what_does_not_come_back_is_noticed_without_the_schemas() {
    let Some(crds) = older_crds() else { return };
    play(async || {
        let stage = Stage::embedded_with(7, |options| {
            options.run_pods = false;
            options.keep_log = true;
        })
        .await;
        stage.restart_with(|settings| settings.sync_period = Duration::from_secs(86_400));
        stage.settle().await;
        apply_crds(&stage, crds).await;
        changing::scn_15(&stage).await;
        stage.assert_at_rest().await;
        // only what was written can be noticed
        let series = stage.series(METRIC);
        assert!((5..=LACKING.len()).contains(&series), "{series}");
        stage.assert_sound();
    });
}

// === our definitions come later ===

/// The state moves in every state, on a cluster of each sort.
async fn moves(stage: &Stage) {
    stage.settle().await;
    let before = state(stage).await;
    assert!(!standing_in(stage).await.is_empty());
    apply_crds(stage, our_crds()).await;
    stage
        .until("all of it has moved", async || {
            standing_in(stage).await.is_empty()
        })
        .await;
    stage.assert_at_rest().await;
    assert_eq!(state(stage).await, before);
    restart(stage).await;
}

#[test]
fn state_moves_into_the_fields() {
    embedded(idle_and_busy);
}

/// Two runners have jobs, and one is idle.
pub async fn idle_and_busy(stage: &Stage) {
    stage.settled_fixture(1, 10).await;
    let names = stage.scale_up(3, 1).await;
    for name in &names {
        stage.up(name).await;
    }
    stage.busy(&names[0], 7).await;
    stage.busy(&names[1], 8).await;
    stage.set_image("img:2").await;
    stage
        .until("it is applied", async || {
            revisions(&stage.runner_set().await) == (2, 2)
        })
        .await;
    restart(stage).await;
    moves(stage).await;
    assert_eq!(revisions(&stage.runner_set().await), (2, 2));
}

#[test]
fn the_end_of_a_job_moves_too() {
    embedded(async |stage| {
        stage.restart_with(|settings| settings.sync_period = Duration::from_secs(2));
        stage.settled_fixture(0, 10).await;
        let runner = stage.scale_up(1, 1).await.remove(0);
        stage.up(&runner).await;
        stage.busy(&runner, 7).await;
        let ended = [
            ("jobResult", json!("succeeded")),
            ("jobFinishedAt", json!("2026-03-04T05:06:07.000001Z")),
        ];
        for (field, value) in ended.clone() {
            stand_in(stage, &runner, field, value).await;
        }
        apply_crds(stage, our_crds()).await;
        stage
            .until("it has moved", async || standing_in(stage).await.is_empty())
            .await;
        let object = raw::<EphemeralRunner>(stage).await.remove(0);
        for (field, value) in ended {
            assert_eq!(object["status"][field], value);
        }
    });
}

/// As the listener does it.
async fn stand_in(stage: &Stage, runner: &str, field: &str, value: Value) {
    let field = Field::find("EphemeralRunner", Section::Status, field).unwrap();
    let annotations = json!({field.annotation(): annotation_value(&value)});
    stage
        .patch::<EphemeralRunner>(
            RUN,
            runner,
            json!({"metadata": {"annotations": annotations}}),
        )
        .await;
}

#[test]
fn a_parked_set_stays_parked_and_recovers() {
    embedded(parked_and_recovered);
}

pub async fn parked_and_recovered(stage: &Stage) {
    park(stage).await;
    restart(stage).await;
    assert!(is_parked(stage).await);
    moves(stage).await;
    assert!(is_parked(stage).await);
    stage.set_image("img:2").await;
    until_recovered(stage).await;
    assert_eq!(revisions(&stage.runner_set().await), (2, 2));
    stage.assert_at_rest().await;
    assert_eq!(standing_in(stage).await, BTreeSet::new());
    assert!(phase(stage).await.is_some());
}

/// A field that was written after the annotation wins, and the annotation goes.
#[test]
fn of_a_field_and_its_annotation_the_field_wins() {
    play(async || {
        let stage = Stage::by_hand().await;
        stage.settled_fixture(0, 3).await;
        let before = state(&stage).await;
        let revision = Field::find("EphemeralRunnerSet", Section::Spec, "actionableRevision");
        let annotations = json!({revision.unwrap().annotation(): "17"});
        let patch = json!({"metadata": {"annotations": annotations}});
        stage.patch::<EphemeralRunnerSet>(RUN, SET, patch).await;
        stage
            .until("it is gone", async || standing_in(&stage).await.is_empty())
            .await;
        stage.assert_at_rest().await;
        assert_eq!(state(&stage).await, before);
        stage.assert_sound();
    });
}
