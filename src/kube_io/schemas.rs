//! Reading the schemas that the cluster serves, from the OpenAPI documents that every
//! authenticated user may read. (CustomResourceDefinitions are cluster-scoped, and ARC's
//! ClusterRole gives no right to them.)

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use http::Request;
use kube::Client;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::api::constants::{GROUP, VERSION};
use crate::api::{Field, MissingFields, Section};

/// The index of the documents of version 3, one for each group and version.
const INDEX: &str = "/openapi/v3";
/// The one document of version 2, for servers that have no other.
const SWAGGER: &str = "/openapi/v2";
/// Our group and version in the index.
const OURS: &str = "apis/actions.github.com/v1alpha1";
/// How long a document may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// Reads the schemas, and again where they have changed.
pub struct SchemaReader {
    client: Client,
    /// Names the state of the document that was read last.
    seen: Option<String>,
}

/// What a look at the schemas found.
#[derive(Debug, PartialEq, Eq)]
pub enum Reading {
    /// They are as they were.
    Unchanged,
    /// These fields are missing.
    Read(MissingFields),
    /// They cannot be read, and why.
    Unreadable(String),
}

impl SchemaReader {
    /// Reads through that client.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client, seen: None }
    }

    /// Has the next look read them, changed or not.
    pub fn forget(&mut self) {
        self.seen = None;
    }

    /// Looks at the schemas.
    pub async fn read(&mut self) -> Reading {
        match tokio::time::timeout(DEADLINE, self.attempt()).await {
            Ok(Ok(reading)) => reading,
            Ok(Err(problem)) => Reading::Unreadable(problem),
            Err(_) => Reading::Unreadable(format!("no answer within {} s", DEADLINE.as_secs())),
        }
    }

    async fn attempt(&mut self) -> Result<Reading, String> {
        let index = match self.fetch(INDEX).await {
            // an older server has none; what it says then has as many forms as there are versions
            Err(kube::Error::Api(status)) if ![401, 403].contains(&status.code) => {
                let text = self.fetch(SWAGGER).await.map_err(|e| e.to_string())?;
                let seen = fingerprint(&text);
                return self.read_document(&text, seen);
            }
            index => index.map_err(|error| error.to_string())?,
        };
        let index: Index = serde_json::from_str(&index).map_err(|error| error.to_string())?;
        let Some(ours) = index.paths.get(OURS) else {
            return Err(format!("the index of the schemas has no {OURS}"));
        };
        // the address names the state of what it leads to
        let address = &ours.server_relative_url;
        if address.contains("hash=") && self.seen.as_ref() == Some(address) {
            return Ok(Reading::Unchanged);
        }
        let text = self.fetch(address).await.map_err(|e| e.to_string())?;
        self.read_document(&text, address.clone())
    }

    fn read_document(&mut self, text: &str, seen: String) -> Result<Reading, String> {
        if !seen.contains("hash=") && self.seen.as_ref() == Some(&seen) {
            return Ok(Reading::Unchanged);
        }
        let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let missing = document.missing()?;
        self.seen = Some(seen);
        Ok(Reading::Read(missing))
    }

    async fn fetch(&self, address: &str) -> kube::Result<String> {
        let request = Request::get(address)
            .header(http::header::ACCEPT, "application/json")
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        self.client.request_text(request).await
    }
}

fn fingerprint(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[derive(Deserialize)]
struct Index {
    paths: BTreeMap<String, Address>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Address {
    #[serde(rename = "serverRelativeURL")]
    server_relative_url: String,
}

/// As much of a document as is needed, so that the rest is skipped and not kept.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    components: Components,
    /// What version 2 calls it.
    #[serde(default)]
    definitions: BTreeMap<String, Schema>,
}

#[derive(Default, Deserialize)]
struct Components {
    #[serde(default)]
    schemas: BTreeMap<String, Schema>,
}

#[derive(Deserialize)]
struct Schema {
    #[serde(default, rename = "x-kubernetes-group-version-kind")]
    kinds: Vec<Gvk>,
    #[serde(default, rename = "x-kubernetes-preserve-unknown-fields")]
    keeps_all: bool,
    #[serde(default)]
    properties: Sections,
}

#[derive(Deserialize)]
struct Gvk {
    group: String,
    version: String,
    kind: String,
}

#[derive(Default, Deserialize)]
struct Sections {
    spec: Option<Fields>,
    status: Option<Fields>,
}

#[derive(Deserialize)]
struct Fields {
    #[serde(default, rename = "x-kubernetes-preserve-unknown-fields")]
    keeps_all: bool,
    #[serde(default)]
    properties: BTreeMap<String, IgnoredAny>,
}

impl Document {
    fn missing(&self) -> Result<MissingFields, String> {
        let schemas = self.components.schemas.values();
        let mut ours = BTreeMap::new();
        for schema in schemas.chain(self.definitions.values()) {
            for gvk in &schema.kinds {
                if gvk.group == GROUP && gvk.version == VERSION {
                    ours.insert(gvk.kind.as_str(), schema);
                }
            }
        }
        if let Some(field) = Field::all().find(|field| !ours.contains_key(field.kind())) {
            return Err(format!("there is no schema of {}", field.kind()));
        }
        Ok(Field::all()
            .filter(|field| ours.get(field.kind()).is_some_and(|one| one.lacks(*field)))
            .collect())
    }
}

impl Schema {
    fn lacks(&self, field: Field) -> bool {
        if self.keeps_all {
            return false;
        }
        let fields = match field.section() {
            Section::Spec => &self.properties.spec,
            Section::Status => &self.properties.status,
        };
        fields
            .as_ref()
            .is_none_or(|fields| !fields.keeps_all && !fields.properties.contains_key(field.name()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(
        kind: &str,
        spec: &serde_json::Value,
        status: &serde_json::Value,
    ) -> serde_json::Value {
        json!({
            "type": "object",
            "properties": {
                "metadata": {"allOf": [{"$ref": "#/x"}]}, "spec": spec, "status": status,
            },
            "x-kubernetes-group-version-kind": [
                {"group": GROUP, "kind": kind, "version": VERSION},
            ],
        })
    }

    /// Schemas with all fields but those that `lacks` names.
    fn document(lacks: &[&str]) -> serde_json::Value {
        let section = |kind: &str, section: Section| {
            let fields = Field::all().filter(|field| {
                field.kind() == kind
                    && field.section() == section
                    && !lacks.contains(&field.to_string().as_str())
            });
            let fields = fields.map(|field| (field.name().to_owned(), json!({"type": "string"})));
            json!({"type": "object", "properties": fields.collect::<serde_json::Map<_, _>>()})
        };
        let kinds = Field::all().map(Field::kind);
        let schemas = kinds.map(|kind| {
            let (spec, status) = (section(kind, Section::Spec), section(kind, Section::Status));
            (format!("com.github.{kind}"), schema(kind, &spec, &status))
        });
        let mut schemas: serde_json::Map<_, _> = schemas.collect();
        // others have parts of these names too
        schemas.insert(
            "Status".to_owned(),
            json!({"properties": {"status": {"type": "string"}}}),
        );
        json!(schemas)
    }

    fn missing(document: &serde_json::Value) -> Vec<String> {
        let document: Document = serde_json::from_value(document.clone()).unwrap();
        let missing = document.missing().unwrap();
        missing.iter().map(|field| field.to_string()).collect()
    }

    #[test]
    fn documents_of_both_versions_say_what_is_missing() {
        for lacks in [
            &[][..],
            &["EphemeralRunner.status.jobResult"],
            &[
                "AutoscalingListener.spec.phase",
                "EphemeralRunnerSet.spec.actionableRevision",
            ],
        ] {
            let schemas = document(lacks);
            assert_eq!(missing(&json!({"components": {"schemas": schemas}})), lacks);
            assert_eq!(missing(&json!({"definitions": schemas})), lacks);
        }
    }

    #[test]
    fn a_schema_that_keeps_everything_lacks_nothing_and_an_empty_one_everything() {
        let mut schemas = document(&[]);
        let kept = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let kind = "AutoscalingListener";
        schemas[format!("com.github.{kind}")] = schema(kind, &kept, &json!({"type": "object"}));
        let lacks = missing(&json!({"components": {"schemas": schemas}}));
        let status = ["lastRestartReason", "restarts"];
        assert_eq!(lacks, status.map(|name| format!("{kind}.status.{name}")));
    }

    #[test]
    fn a_document_without_our_kinds_says_so() {
        let document: Document = serde_json::from_value(json!({})).unwrap();
        assert!(
            document
                .missing()
                .unwrap_err()
                .contains("AutoscalingListener")
        );
    }
}
