//! The labels that metrics can carry, and their values for a job.

use crate::actions::JobDetails;
use crate::listener::workflow_ref::WorkflowRef;

/// A label that a metric can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Label {
    Name,
    Namespace,
    Enterprise,
    Organization,
    Repository,
    JobName,
    EventName,
    JobResult,
    JobWorkflowRef,
    JobWorkflowName,
    JobWorkflowTarget,
}

/// Where a label's values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// From the configuration: there is one.
    ScaleSet,
    /// From where jobs come and how they end: there are some.
    Jobs,
    /// From what people call jobs, workflows and branches: there is no end to them.
    Names,
}

pub(super) const SCALE_SET_LABELS: &[Label] = &[
    Label::Name,
    Label::Namespace,
    Label::Enterprise,
    Label::Organization,
    Label::Repository,
];
pub(super) const STARTED_LABELS: &[Label] = &[
    Label::Enterprise,
    Label::Organization,
    Label::Repository,
    Label::JobName,
    Label::EventName,
];
pub(super) const COMPLETED_LABELS: &[Label] = &[
    Label::Enterprise,
    Label::Organization,
    Label::Repository,
    Label::JobName,
    Label::EventName,
    Label::JobResult,
];
/// Labels that a metric of jobs carries only when it is configured to.
pub(super) const WORKFLOW_LABELS: &[Label] = &[
    Label::JobWorkflowRef,
    Label::JobWorkflowName,
    Label::JobWorkflowTarget,
];

impl Label {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Namespace => "namespace",
            Self::Enterprise => "enterprise",
            Self::Organization => "organization",
            Self::Repository => "repository",
            Self::JobName => "job_name",
            Self::EventName => "event_name",
            Self::JobResult => "job_result",
            Self::JobWorkflowRef => "job_workflow_ref",
            Self::JobWorkflowName => "job_workflow_name",
            Self::JobWorkflowTarget => "job_workflow_target",
        }
    }

    /// Where its values come from.
    pub(super) const fn origin(self) -> Origin {
        match self {
            Self::Name | Self::Namespace | Self::Enterprise => Origin::ScaleSet,
            Self::Organization | Self::Repository | Self::EventName | Self::JobResult => {
                Origin::Jobs
            }
            Self::JobName
            | Self::JobWorkflowRef
            | Self::JobWorkflowName
            | Self::JobWorkflowTarget => Origin::Names,
        }
    }

    pub(super) fn value(self, job: &JobDetails, enterprise: &str) -> String {
        let text = match self {
            // no metric of jobs has these two
            Self::Name | Self::Namespace => "",
            Self::Enterprise => enterprise,
            Self::Organization => &job.owner_name,
            Self::Repository => &job.repository_name,
            Self::JobName => &job.job_display_name,
            Self::EventName => &job.event_name,
            Self::JobResult => &job.result,
            Self::JobWorkflowRef => &job.job_workflow_ref,
            Self::JobWorkflowName => WorkflowRef::parse(&job.job_workflow_ref).name,
            Self::JobWorkflowTarget => WorkflowRef::parse(&job.job_workflow_ref).target,
        };
        text.to_owned()
    }
}
