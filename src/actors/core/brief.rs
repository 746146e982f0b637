//! What the actors' own vocabularies say, in a line.

use std::fmt::{self, Formatter};

use crate::actors::runner_set::RunnerSetCommand;
use crate::actors::scale_set::{ChildReport, ScaleSetCommand, ScaleSetReport};
use crate::messages::Brief;

impl Brief for RunnerSetCommand {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Brief for ScaleSetCommand {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared(others) => write!(f, "Shared with {} others", others.len()),
            other => write!(f, "{other:?}"),
        }
    }
}

impl Brief for ScaleSetReport {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Summary(summary) => write!(
                f,
                "scale set {:?} listener {} going {}",
                summary.counts, summary.listener_running, summary.going
            ),
            Self::Gone => f.write_str("gone"),
        }
    }
}

impl Brief for ChildReport {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listener(report) => report.brief(f),
            Self::RunnerSet(report) => report.brief(f),
        }
    }
}
