//! The four CustomResourceDefinitions, as objects and as the files of `config/crd/`.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceValidation, JSONSchemaProps,
};
use kube::CustomResourceExt;
use schemars::JsonSchema;
use serde_json::Value;

use super::schema::structural;
use super::{AutoscalingListener, AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet};

/// They are derived once: that costs as much as a whole short simulation.
static CRDS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
    vec![
        definition::<AutoscalingListener>("The listener of one pool of runners."),
        definition::<AutoscalingRunnerSet>("A pool of GitHub Actions runners."),
        definition::<EphemeralRunner>("A runner that takes one job."),
        definition::<EphemeralRunnerSet>("The runners of one pool."),
    ]
});

/// The CustomResourceDefinitions of Impresario, each ready to be applied.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    CRDS.clone()
}

fn definition<T: CustomResourceExt + JsonSchema>(description: &str) -> CustomResourceDefinition {
    let mut crd = T::crd();
    let schema: JSONSchemaProps = serde_json::from_value(structural::<T>(description))
        // no input reaches this: every schema is built in the tests
        .expect("a structural schema has the form of JSONSchemaProps");
    for version in &mut crd.spec.versions {
        version.schema = Some(CustomResourceValidation {
            open_api_v3_schema: Some(schema.clone()),
        });
    }
    crd.spec.names.list_kind = Some(format!("{}List", crd.spec.names.kind));
    crd
}

/// A manifest of one CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrdFile {
    /// File name in `config/crd/`.
    pub name: String,
    /// The manifest, as YAML.
    pub yaml: String,
}

/// The CustomResourceDefinitions as the files of `config/crd/`.
#[must_use]
pub fn crd_files() -> Vec<CrdFile> {
    crds().iter().map(file).collect()
}

fn file(crd: &CustomResourceDefinition) -> CrdFile {
    // no input reaches this: every file is built in the tests
    let mut value = serde_json::to_value(crd).expect("a CustomResourceDefinition is JSON");
    whole_numbers(&mut value);
    let yaml = serde_saphyr::to_string(&value).expect("JSON is YAML");
    CrdFile {
        name: format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural),
        yaml: format!("# Written by `impresario crds --write`; do not edit.\n{yaml}"),
    }
}

/// Writes bounds as a person would: 0 and not 0.0.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                match (key.as_str(), field.as_f64()) {
                    ("minimum" | "maximum", Some(bound)) if bound.fract() == 0.0 => {
                        #[allow(clippy::cast_possible_truncation)] // bounds are small
                        let bound = bound as i64;
                        *field = bound.into();
                    }
                    _ => whole_numbers(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        _ => {}
    }
}
