//! Takes a job's workflow ref apart, for metric labels.

/// The parts of `owner/repository/.github/workflows/FILE@refs/TARGET` that make good labels.
/// Both are empty when the ref is of another form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkflowRef<'a> {
    /// The file's name, without folder and ending.
    pub name: &'a str,
    /// `heads/BRANCH`, `tags/TAG` or `pull/NUMBER`; anything else as it stands.
    pub target: &'a str,
}

impl<'a> WorkflowRef<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let Some((path, target)) = text.split_once('@') else {
            return Self::default();
        };
        let file = path.rsplit('/').next().unwrap_or(path);
        let name = file
            .strip_suffix(".yml")
            .or_else(|| file.strip_suffix(".yaml"))
            .unwrap_or(file);
        let target = target.strip_prefix("refs/").unwrap_or(target);
        // what follows the number only says which of a pull request's refs it is
        let target = match target.strip_prefix("pull/").and_then(|rest| rest.find('/')) {
            Some(end) => &target[.."pull/".len() + end],
            None => target,
        };
        Self { name, target }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_and_target_are_read() {
        for (text, name, target) in [
            (
                "acme/widgets/.github/workflows/ci.yml@refs/heads/main",
                "ci",
                "heads/main",
            ),
            (
                "acme/widgets/.github/workflows/nightly.v2.yaml@refs/heads/feature/x@y",
                "nightly.v2",
                "heads/feature/x@y",
            ),
            ("a/b/.github/workflows/r.yml@refs/tags/v1", "r", "tags/v1"),
            (
                "a/b/.github/workflows/r.yml@refs/pull/12/merge",
                "r",
                "pull/12",
            ),
            ("a/b/.github/workflows/r.yml@refs/pull/7", "r", "pull/7"),
            ("a/b/.github/workflows/r.yml@0a1b2c", "r", "0a1b2c"),
            ("a/b/.github/workflows/r.yml", "", ""),
            ("", "", ""),
        ] {
            assert_eq!(
                WorkflowRef::parse(text),
                WorkflowRef { name, target },
                "{text}"
            );
        }
    }
}
