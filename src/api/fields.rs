//! The fields of the four custom resources by name, and which of them a cluster lacks.
//!
//! ARC's CustomResourceDefinitions know fewer fields than ours, and a server drops what its
//! schema does not know without a word. So the names are listed here, one level below `spec`
//! and `status`, for the schemas that are served to be compared with. A test keeps the list
//! equal to our own schemas.

use std::collections::BTreeSet;
use std::fmt;

/// How a person cures a cluster that lacks fields.
pub const CRD_COMMAND: &str =
    "impresario crds | kubectl apply --server-side --force-conflicts -f -";

/// Kind, fields of the spec, fields of the status.
type Row = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const FIELDS: &[Row] = &[
    (
        "AutoscalingListener",
        &[
            "autoscalingRunnerSetName",
            "autoscalingRunnerSetNamespace",
            "configSecretMetadata",
            "ephemeralRunnerSetName",
            "githubConfigSecret",
            "githubConfigUrl",
            "githubServerTLS",
            "image",
            "imagePullSecrets",
            "maxRunners",
            "metrics",
            "minRunners",
            "phase",
            "proxy",
            "roleBindingMetadata",
            "roleMetadata",
            "runnerScaleSetId",
            "serviceAccountMetadata",
            "template",
            "vaultConfig",
        ],
        &["lastRestartReason", "restarts"],
    ),
    (
        "AutoscalingRunnerSet",
        &[
            "autoscalingListener",
            "ephemeralRunnerConfigSecretMetadata",
            "ephemeralRunnerMetadata",
            "ephemeralRunnerSetMetadata",
            "githubConfigSecret",
            "githubConfigUrl",
            "githubServerTLS",
            "listenerConfigSecretMetadata",
            "listenerMetrics",
            "listenerRoleBindingMetadata",
            "listenerRoleMetadata",
            "listenerServiceAccountMetadata",
            "listenerTemplate",
            "maxRunners",
            "minRunners",
            "proxy",
            "runnerGroup",
            "runnerScaleSetLabels",
            "runnerScaleSetName",
            "template",
            "vaultConfig",
        ],
        &[
            "conditions",
            "currentRunners",
            "failedEphemeralRunners",
            "observedGeneration",
            "pendingEphemeralRunners",
            "phase",
            "runningEphemeralRunners",
        ],
    ),
    (
        "EphemeralRunner",
        &[
            "ephemeralRunnerConfigSecretMetadata",
            "githubConfigSecret",
            "githubConfigUrl",
            "githubServerTLS",
            "metadata",
            "proxy",
            "proxySecretRef",
            "runnerScaleSetId",
            "spec",
            "vaultConfig",
        ],
        &[
            "failures",
            "jobDisplayName",
            "jobFinishedAt",
            "jobId",
            "jobRepositoryName",
            "jobRequestId",
            "jobResult",
            "jobWorkflowRef",
            "message",
            "phase",
            "ready",
            "reason",
            "runnerId",
            "runnerName",
            "workflowRunId",
        ],
    ),
    (
        "EphemeralRunnerSet",
        &[
            "actionableRevision",
            "ephemeralRunnerMetadata",
            "ephemeralRunnerSpec",
            "patchID",
            "replicas",
        ],
        &[
            "appliedActionableRevision",
            "currentReplicas",
            "failedEphemeralRunners",
            "finishedRunnerCleanupPatchID",
            "pendingEphemeralRunners",
            "phase",
            "runningEphemeralRunners",
        ],
    ),
];

/// One of the two parts of a custom resource that have fields of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// What is wanted.
    Spec,
    /// What is known; written through a subresource of its own.
    Status,
}

impl Section {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Spec, Self::Status];

    /// Its name in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::Status => "status",
        }
    }
}

/// A field of ours, right below `spec` or `status`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Field {
    kind: &'static str,
    section: Section,
    name: &'static str,
}

impl Field {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        FIELDS.iter().flat_map(|(kind, spec, status)| {
            let of = |section, names: &'static [&'static str]| {
                names.iter().map(move |&name| Self {
                    kind,
                    section,
                    name,
                })
            };
            of(Section::Spec, spec).chain(of(Section::Status, status))
        })
    }

    /// The field of that name.
    #[must_use]
    pub fn find(kind: &str, section: Section, name: &str) -> Option<Self> {
        Self::all()
            .find(|field| field.kind == kind && field.section == section && field.name == name)
    }

    /// Whether objects of this kind have fields of ours.
    #[must_use]
    pub fn has_kind(kind: &str) -> bool {
        FIELDS.iter().any(|(known, ..)| *known == kind)
    }

    /// The kind it belongs to.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        self.kind
    }

    /// Where it stands.
    #[must_use]
    pub const fn section(self) -> Section {
        self.section
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// `status.jobResult`.
    #[must_use]
    pub fn path(self) -> String {
        format!("{}.{}", self.section.as_str(), self.name)
    }
}

/// `EphemeralRunner.status.jobResult`.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.kind, self.section.as_str(), self.name)
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The fields of ours that the schemas in a cluster do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingFields(BTreeSet<Field>);

impl MissingFields {
    /// Whether every field is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the field is missing.
    #[must_use]
    pub fn contains(&self, field: Field) -> bool {
        self.0.contains(&field)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Field> {
        self.0.iter().copied()
    }

    /// Takes note of one that is missing. Says whether that is news.
    pub fn insert(&mut self, field: Field) -> bool {
        self.0.insert(field)
    }

    /// Takes note of one that is there. Says whether that is news.
    pub fn remove(&mut self, field: Field) -> bool {
        self.0.remove(&field)
    }
}

impl FromIterator<Field> for MissingFields {
    fn from_iter<T: IntoIterator<Item = Field>>(fields: T) -> Self {
        Self(fields.into_iter().collect())
    }
}

/// What is missing and what to do, for a person.
impl fmt::Display for MissingFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the CustomResourceDefinitions in this cluster lack ")?;
        for (index, field) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{field}")?;
        }
        write!(
            f,
            "; what belongs there is kept in annotations until they are brought up to date: \
             {CRD_COMMAND}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::crds;

    #[test]
    fn the_list_is_what_our_schemas_say() {
        let listed: BTreeSet<String> = Field::all().map(|field| field.to_string()).collect();
        let mut derived = BTreeSet::new();
        for crd in crds() {
            let crd = serde_json::to_value(crd).unwrap();
            let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            for section in Section::ALL.map(Section::as_str) {
                let fields = &schema["properties"][section]["properties"];
                for name in fields.as_object().unwrap().keys() {
                    derived.insert(format!("{kind}.{section}.{name}"));
                }
            }
        }
        assert_eq!(listed, derived);
    }

    #[test]
    fn a_person_reads_what_is_missing_and_what_to_do() {
        let field = |name| Field::find("EphemeralRunner", Section::Status, name).unwrap();
        let missing = MissingFields::from_iter([field("jobResult"), field("jobFinishedAt")]);
        let text = missing.to_string();
        let both = "lack EphemeralRunner.status.jobFinishedAt, EphemeralRunner.status.jobResult;";
        assert!(text.contains(both), "{text}");
        assert!(text.ends_with(CRD_COMMAND), "{text}");
    }
}
