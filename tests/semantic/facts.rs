//! What `../shared/facts` says of Kubernetes' types, when it is there.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;

/// One field of a type.
#[derive(Clone, Debug, Deserialize)]
pub struct Field {
    /// Its name in JSON.
    pub json: String,
    /// Its type in Go, without a star.
    #[serde(rename = "type")]
    pub go_type: String,
    /// Whether the server drops it when it is zero, so that it need not be there.
    #[serde(default)]
    pub omitempty: bool,
    /// Whether an absent value is something else than a zero.
    #[serde(default)]
    pub pointer: bool,
    /// The field by which elements are found.
    #[serde(rename = "mergeKey")]
    pub merge_key: Option<String>,
}

/// The fields of each type, by its name in Go.
pub type Facts = BTreeMap<String, Vec<Field>>;

/// A path in the folder of facts, when it exists. Says so when it does not.
pub fn path(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/facts")).join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {} is not there", path.display());
    None
}

/// The facts on the types below `PodTemplateSpec`.
pub fn load() -> Option<Facts> {
    let text = fs::read_to_string(path("pod-field-kinds.json")?).unwrap();
    let mut facts: Facts = serde_json::from_str(&text).unwrap();
    // a pointer in Go, but required, so that k8s-openapi knows no absent one
    let scale_io = facts.get_mut("ScaleIOVolumeSource").unwrap();
    let secret = scale_io.iter_mut().find(|field| field.json == "secretRef");
    secret.unwrap().pointer = false;
    Some(facts)
}
