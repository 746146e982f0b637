//! What the annotations of an AutoscalingRunnerSet say about its scale set, and what its spec
//! wants: they are what counts after a restart.

use crate::api::constants::{annotations, labels};
use crate::api::{AutoscalingRunnerSet, ConfigUrl};
use crate::messages::RunnerScaleSet;
use crate::resources::{scale_set_labels, scale_set_name, url_labels};

/// Name of the default runner group, where the service does not give one.
const DEFAULT_GROUP_NAME: &str = "Default";

/// What the annotations say.
#[derive(Debug, PartialEq, Eq)]
pub struct Recorded<'a> {
    /// Id of the scale set; one that is no number counts as none.
    pub id: Option<i64>,
    /// Its name.
    pub name: &'a str,
    /// Name of its group.
    pub group: &'a str,
}

/// What the spec says.
pub struct Wanted {
    /// Name of the scale set.
    pub name: String,
    /// Name of its group; empty for the default group.
    pub group: String,
    /// Names of its labels.
    pub labels: Vec<String>,
}

/// The id in the annotation; one that is no number counts as none.
#[must_use]
pub fn recorded_id(ars: &AutoscalingRunnerSet) -> Option<i64> {
    annotation(ars, annotations::RUNNER_SCALE_SET_ID)
        .parse()
        .ok()
        .filter(|id| *id > 0)
}

fn annotation<'a>(ars: &'a AutoscalingRunnerSet, key: &str) -> &'a str {
    let all = ars.metadata.annotations.as_ref();
    all.and_then(|all| all.get(key))
        .map_or("", |value| value.trim())
}

/// What the annotations say.
pub fn recorded(ars: &AutoscalingRunnerSet) -> Recorded<'_> {
    Recorded {
        id: recorded_id(ars),
        name: annotation(ars, annotations::RUNNER_SCALE_SET_NAME),
        group: annotation(ars, annotations::RUNNER_GROUP_NAME),
    }
}

/// What the spec says.
pub fn wanted(ars: &AutoscalingRunnerSet) -> Wanted {
    Wanted {
        name: scale_set_name(ars),
        group: ars.spec.runner_group.clone(),
        labels: scale_set_labels(ars),
    }
}

/// Whether name or group differ from what was recorded. The default group has no name here:
/// whether it is meant shows when the service is asked.
pub fn differs(recorded: &Recorded<'_>, wanted: &Wanted) -> bool {
    !recorded.name.eq_ignore_ascii_case(&wanted.name)
        || (!wanted.group.is_empty() && !recorded.group.eq_ignore_ascii_case(&wanted.group))
}

/// Whether the scale set was registered at another place than the config URL names now: the
/// recorded id belongs to that one.
pub fn has_moved(ars: &AutoscalingRunnerSet) -> bool {
    let now = &ars.spec.github_config_url;
    match annotation(ars, annotations::CONFIG_URL) {
        // of a controller that did not write it down; then the labels tell most
        "" => labels_have_moved(ars),
        then => match (ConfigUrl::parse(then), ConfigUrl::parse(now)) {
            (Ok(then), Ok(now)) => !then.is_same_place(&now),
            _ => !then.eq_ignore_ascii_case(now.trim()),
        },
    }
}

/// Whether the place of the scale set is not written down yet.
pub fn lacks_place(ars: &AutoscalingRunnerSet) -> bool {
    annotation(ars, annotations::CONFIG_URL).is_empty()
}

/// The config URL, as it is written down.
pub fn place(ars: &AutoscalingRunnerSet) -> String {
    let url = &ars.spec.github_config_url;
    ConfigUrl::parse(url).map_or_else(|_| url.clone(), |url| url.to_string())
}

/// Names the scale set among all that this controller looks after.
pub fn identity(ars: &AutoscalingRunnerSet) -> Option<String> {
    let id = recorded_id(ars).filter(|_| !has_moved(ars))?;
    let url = ConfigUrl::parse(&ars.spec.github_config_url).ok()?;
    Some(format!("{} {id}", url.place()))
}

fn labels_have_moved(ars: &AutoscalingRunnerSet) -> bool {
    let now = url_labels(&ars.spec.github_config_url);
    let keys = [labels::ENTERPRISE, labels::ORGANIZATION, labels::REPOSITORY];
    let then = |key: &str| ars.metadata.labels.as_ref().and_then(|all| all.get(key));
    keys.iter().any(|key| then(key).is_some())
        && keys.iter().any(|key| match (then(key), now.get(*key)) {
            (Some(then), Some(now)) => !then.eq_ignore_ascii_case(now),
            (None, None) => false,
            _ => true,
        })
}

/// Whether these are the same labels, whatever their order and case.
pub fn same_labels(a: &[String], b: &[String]) -> bool {
    let covers = |one: &[String], other: &[String]| {
        one.iter()
            .all(|label| other.iter().any(|twin| twin.eq_ignore_ascii_case(label)))
    };
    covers(a, b) && covers(b, a)
}

/// The name of a scale set's group, of which the service may say nothing.
pub fn group_name(set: &RunnerScaleSet, asked: &str) -> String {
    let names = [set.group_name.as_str(), asked, DEFAULT_GROUP_NAME];
    let given = names.into_iter().find(|name| !name.is_empty());
    given.unwrap_or_default().to_owned()
}
