//! The CustomResourceDefinitions mean what ARC's mean, and `config/crd/` holds them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use impresario::api::{AutoscalingRunnerSet, EphemeralRunner, crd_files, crds};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::discovery::ApiResource;
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Map, Value, json};

/// Largest annotation, and so the largest object that client-side apply takes.
const ANNOTATION_LIMIT: usize = 262_144;

/// What has to be the same in both schemas, beside the properties and what is required.
const MEANING: &[&str] = &[
    "additionalProperties",
    "allOf",
    "anyOf",
    "default",
    "enum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maximum",
    "minItems",
    "minLength",
    "minimum",
    "not",
    "nullable",
    "oneOf",
    "pattern",
    "type",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// Formats that only ours have. ARC's generator writes none for Go's `int`, which is read as
/// 64 bits all the same; ours says so, and a number that nobody can read is refused where it
/// is written.
const FORMATS_OF_OURS: &[(&str, &str, &[&str])] = &[
    (
        "AutoscalingListener",
        "int64",
        &[
            "spec.maxRunners",
            "spec.minRunners",
            "spec.runnerScaleSetId",
        ],
    ),
    (
        "AutoscalingListener",
        "double",
        &["spec.metrics.histograms.*.buckets[]"],
    ),
    (
        "AutoscalingRunnerSet",
        "int64",
        &[
            "spec.maxRunners",
            "spec.minRunners",
            "status.currentRunners",
            "status.failedEphemeralRunners",
            "status.pendingEphemeralRunners",
            "status.runningEphemeralRunners",
        ],
    ),
    (
        "AutoscalingRunnerSet",
        "double",
        &["spec.listenerMetrics.histograms.*.buckets[]"],
    ),
    (
        "EphemeralRunner",
        "int64",
        &["spec.runnerScaleSetId", "status.runnerId"],
    ),
    (
        "EphemeralRunnerSet",
        "int64",
        &[
            "spec.ephemeralRunnerSpec.runnerScaleSetId",
            "spec.patchID",
            "spec.replicas",
            "status.currentReplicas",
            "status.failedEphemeralRunners",
            "status.pendingEphemeralRunners",
            "status.runningEphemeralRunners",
        ],
    ),
];

/// Properties that only ours have. All are optional, so that ARC's objects stay valid.
const PROPERTIES_OF_OURS: &[(&str, &[&str])] = &[
    (
        "AutoscalingListener",
        &["spec.phase", "status.lastRestartReason", "status.restarts"],
    ),
    (
        "AutoscalingRunnerSet",
        &["status.conditions", "status.observedGeneration"],
    ),
    (
        "EphemeralRunner",
        &["status.jobFinishedAt", "status.jobResult"],
    ),
    (
        "EphemeralRunnerSet",
        &[
            "spec.actionableRevision",
            "status.appliedActionableRevision",
            "status.finishedRunnerCleanupPatchID",
        ],
    ),
];

/// Where the claims of a pod's resources stand, and those that ARC keys by name. The others
/// it takes as a whole, as ours does everywhere, which is the laxer of the two.
const CLAIMS: &[(&str, &str, &[&str])] = &[
    ("AutoscalingListener", "spec.template.spec", PLACES),
    ("AutoscalingRunnerSet", "spec.listenerTemplate.spec", PLACES),
    ("AutoscalingRunnerSet", "spec.template.spec", &[]),
    ("EphemeralRunner", "spec.spec", &[""]),
    ("EphemeralRunnerSet", "spec.ephemeralRunnerSpec.spec", &[""]),
];
const PLACES: &[&str] = &[
    "",
    "containers[].",
    "ephemeralContainers[].",
    "initContainers[].",
];

/// Columns of ARC that no controller fills, and that ours leave out.
const EMPTY_COLUMNS: &[&str] = &["Finished Runners", "Deleting Runners"];

#[test]
fn every_schema_means_what_arc_s_means() {
    let Some(folder) = fixtures() else { return };
    let mut found = BTreeSet::new();
    for (theirs, ours) in pairs(&folder) {
        let kind = &ours.spec.names.kind;
        compare(kind, "", &schema(&theirs), &schema(&ours), &mut found);
    }
    let mut expected = BTreeSet::new();
    for (kind, format, paths) in FORMATS_OF_OURS {
        for path in *paths {
            expected.insert(line(kind, path, "format", None, Some(&json!(format))));
        }
    }
    for (kind, paths) in PROPERTIES_OF_OURS {
        for path in *paths {
            expected.insert(line(kind, path, "property", None, Some(&json!("there"))));
        }
    }
    expected.extend(differences_of_claims());
    assert_eq!(
        found.symmetric_difference(&expected).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "differences that are not in the lists above, or are in them in vain"
    );
}

#[test]
fn names_scope_and_columns_are_arc_s() {
    let Some(folder) = fixtures() else { return };
    for (theirs, ours) in pairs(&folder) {
        let kind = &ours.spec.names.kind;
        assert_eq!(ours.metadata.name, theirs.metadata.name);
        assert_eq!(ours.spec.group, theirs.spec.group);
        assert_eq!(ours.spec.scope, theirs.spec.scope);
        let mut names = ours.spec.names.clone();
        assert!(
            names.short_names.take().is_some(),
            "{kind} has no short name"
        );
        assert_eq!(names, theirs.spec.names);
        let [their_version, our_version] = [&theirs, &ours].map(|crd| &crd.spec.versions[0]);
        assert_eq!(our_version.name, their_version.name);
        assert_eq!(our_version.subresources, their_version.subresources);
        let columns = our_version.additional_printer_columns.as_deref().unwrap();
        for column in their_version.additional_printer_columns.iter().flatten() {
            if !EMPTY_COLUMNS.contains(&column.name.as_str()) {
                assert!(columns.contains(column), "{kind} lacks {column:?}");
            }
        }
    }
}

#[test]
fn the_files_in_config_are_fresh() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/crd");
    let kustomization = fs::read_to_string(folder.join("kustomization.yaml")).unwrap();
    let mut expected = BTreeSet::from(["kustomization.yaml".to_owned()]);
    for file in crd_files() {
        let written = fs::read_to_string(folder.join(&file.name)).unwrap_or_default();
        assert!(
            written == file.yaml,
            "config/crd/{} is stale; run `cargo run -- crds --write config/crd`",
            file.name
        );
        assert!(kustomization.contains(&file.name), "{}", file.name);
        expected.insert(file.name);
    }
    let present: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(present, expected);
}

#[test]
fn a_file_holds_the_definition_and_nothing_else() {
    for (file, crd) in crd_files().iter().zip(crds()) {
        let read: CustomResourceDefinition = serde_saphyr::from_str(&file.yaml).unwrap();
        assert_eq!(read, crd);
    }
}

#[test]
fn client_side_apply_can_hold_each_definition_in_its_annotation() {
    for crd in crds() {
        let size = serde_json::to_string(&crd).unwrap().len();
        assert!(size < ANNOTATION_LIMIT, "{}: {size}", crd.spec.names.kind);
    }
}

#[test]
fn explain_has_words_for_every_field_of_ours() {
    for crd in crds() {
        let schema = schema(&crd);
        for part in ["spec", "status"] {
            for (name, property) in properties(&schema["properties"][part]) {
                assert!(
                    property.get("description").is_some(),
                    "{}: {part}.{name}",
                    crd.spec.names.kind
                );
            }
        }
    }
}

#[tokio::test]
async fn a_real_server_serves_them_and_judges_by_them() {
    let Some(server) = real_kube::envtest::start().await else {
        return;
    };
    let client = server.client.clone();
    install(&client).await;
    what_is_left_out_is_filled_in(&client).await;
    what_is_wrong_is_refused_by_field(&client).await;
    a_phase_of_another_version_is_kept_and_we_can_read_it(&client).await;
}

async fn what_is_left_out_is_filled_in(client: &Client) {
    let scale_sets = dynamic::<AutoscalingRunnerSet>(client);
    let made = create(&scale_sets, scale_set("taken", json!({}))).await;
    let made = made.unwrap().data;
    let port = &made["spec"]["template"]["spec"]["containers"][0]["ports"][0];
    assert_eq!(port["protocol"], "TCP");
}

async fn what_is_wrong_is_refused_by_field(client: &Client) {
    let scale_sets = dynamic::<AutoscalingRunnerSet>(client);
    for (name, spec, field) in [
        ("negative", json!({"minRunners": -1}), "spec.minRunners"),
        ("text", json!({"maxRunners": "two"}), "spec.maxRunners"),
        (
            "amount",
            json!({"template": {"spec": {"containers": [
                {"name": "runner", "resources": {"limits": {"cpu": "4 GB"}}}]}}}),
            "limits",
        ),
        (
            "twice",
            json!({"template": {"spec": {"containers": [
                {"name": "runner"}, {"name": "runner"}]}}}),
            "spec.template.spec.containers[1]",
        ),
    ] {
        let refused = create(&scale_sets, scale_set(name, spec)).await;
        let Err(kube::Error::Api(status)) = refused else {
            panic!("{name} was taken");
        };
        assert_eq!(status.code, 422, "{name}");
        assert!(status.message.contains(field), "{}", status.message);
    }
}

async fn a_phase_of_another_version_is_kept_and_we_can_read_it(client: &Client) {
    let runners = dynamic::<EphemeralRunner>(client);
    let name = "linux-runner-x";
    let runner = json!({
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "EphemeralRunner",
        "metadata": {"name": name, "namespace": "ci"},
        "spec": {"githubConfigUrl": "https://github.com/acme", "githubConfigSecret": "s",
                 "runnerScaleSetId": 3},
    });
    create(&runners, runner).await.unwrap();
    let status = json!({"status": {"phase": "Aborted", "runnerId": 9}});
    let patched = runners
        .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    assert_eq!(patched.data["status"]["phase"], "Aborted");
    let typed: Api<EphemeralRunner> = Api::namespaced(client.clone(), "ci");
    let read = typed.get(name).await.unwrap().status.unwrap();
    assert_eq!((read.phase, read.runner_id), (None, Some(9)));
}

/// Installs the definitions, and the namespace `ci`.
async fn install(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let create = PostParams::default();
    for crd in crds() {
        let name = crd.metadata.name.clone().unwrap();
        let crd = real_kube::envtest::crd_for_old_server(json!(crd));
        let crd = serde_json::from_value(crd).unwrap();
        definitions.create(&create, &crd).await.unwrap();
        await_condition(definitions.clone(), &name, is_crd_established())
            .await
            .unwrap();
    }
    let namespace = serde_json::from_value(json!({"metadata": {"name": "ci"}})).unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&create, &namespace).await.unwrap();
}

/// The objects of a kind in the namespace `ci`, as JSON.
fn dynamic<T: kube::Resource<DynamicType = ()>>(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), "ci", &ApiResource::erase::<T>(&()))
}

async fn create(api: &Api<DynamicObject>, object: Value) -> kube::Result<DynamicObject> {
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await
}

/// A scale set whose spec has these fields over those of a good one.
fn scale_set(name: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "AutoscalingRunnerSet",
        "metadata": {"name": name, "namespace": "ci"},
        "spec": {
            "githubConfigUrl": "https://github.com/acme",
            "githubConfigSecret": "github-auth",
            "template": {
                // as it is copied from a live object
                "metadata": {"creationTimestamp": null},
                "spec": {"containers": [{"name": "runner", "ports": [{"containerPort": 80}]}]},
            },
        },
    });
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object
}

fn differences_of_claims() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let (map, keys, atomic) = (json!("map"), json!(["name"]), json!("atomic"));
    for (kind, pod, keyed) in CLAIMS {
        for place in PLACES {
            let path = format!("{pod}.{place}resources.claims");
            let keyed = keyed.contains(place);
            let theirs = keyed.then_some(&map);
            let list_type = "x-kubernetes-list-type";
            lines.insert(line(kind, &path, list_type, theirs, Some(&atomic)));
            if keyed {
                let map_keys = "x-kubernetes-list-map-keys";
                lines.insert(line(kind, &path, map_keys, Some(&keys), None));
            }
        }
    }
    lines
}

/// The folder of ARC's definitions, if this checkout has it.
fn fixtures() -> Option<PathBuf> {
    let folder = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../shared/fixtures/crds-0.14.2"
    ));
    if folder.is_dir() {
        return Some(folder.to_owned());
    }
    println!("skipped: {} is not here", folder.display());
    None
}

/// ARC's definitions, each with ours.
fn pairs(folder: &Path) -> Vec<(CustomResourceDefinition, CustomResourceDefinition)> {
    crd_files()
        .iter()
        .zip(crds())
        .map(|(file, ours)| {
            let text = fs::read_to_string(folder.join(&file.name)).unwrap();
            (serde_saphyr::from_str(&text).unwrap(), ours)
        })
        .collect()
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    let validation = crd.spec.versions[0].schema.as_ref().unwrap();
    serde_json::to_value(&validation.open_api_v3_schema).unwrap()
}

fn properties(schema: &Value) -> Map<String, Value> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.cloned().unwrap_or_default()
}

/// Walks both schemas and notes where they differ, one line each.
fn compare(kind: &str, path: &str, theirs: &Value, ours: &Value, found: &mut BTreeSet<String>) {
    for keyword in MEANING {
        match (*keyword, theirs.get(keyword), ours.get(keyword)) {
            ("items", Some(theirs), Some(ours)) => {
                compare(kind, &format!("{path}[]"), theirs, ours, found);
            }
            ("additionalProperties", Some(theirs), Some(ours)) => {
                compare(kind, &format!("{path}.*"), theirs, ours, found);
            }
            (_, theirs, ours) if theirs == ours => {}
            (_, theirs, ours) => {
                found.insert(line(kind, path, keyword, theirs, ours));
            }
        }
    }
    let [their_required, our_required] = [theirs, ours].map(required);
    if their_required != our_required {
        let [theirs, ours] = [their_required, our_required].map(|names| json!(names));
        found.insert(line(kind, path, "required", Some(&theirs), Some(&ours)));
    }
    let [theirs, ours] = [theirs, ours].map(properties);
    for name in theirs.keys().chain(ours.keys()).collect::<BTreeSet<_>>() {
        let path = [path, name].join(".").trim_start_matches('.').to_owned();
        match (theirs.get(name), ours.get(name)) {
            (Some(theirs), Some(ours)) => compare(kind, &path, theirs, ours, found),
            (theirs, ours) => {
                let there = json!("there");
                let [theirs, ours] = [theirs, ours].map(|property| property.map(|_| &there));
                found.insert(line(kind, &path, "property", theirs, ours));
            }
        }
    }
}

fn required(schema: &Value) -> BTreeSet<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    names
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn line(
    kind: &str,
    path: &str,
    keyword: &str,
    theirs: Option<&Value>,
    ours: Option<&Value>,
) -> String {
    let shown = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
    format!(
        "{kind} {path} {keyword}: ARC {}, ours {}",
        shown(theirs),
        shown(ours)
    )
}
