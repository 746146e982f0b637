//! Manifests as a person writes them: YAML or JSON, several documents, lists.
//!
//! What is wrong is told before anything is sent: all problems of a file at once, each with
//! its line, object and field. Objects of ours are judged by their schema and as a whole;
//! those of others need a kind and a name, the rest is the API server's to judge.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::Error as YamlError;

use super::constants::{API_VERSION, GROUP};
use super::located::Node;
use super::structure::{known_kinds, structure_problems};
use super::{AutoscalingRunnerSet, FieldProblem};

/// One object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestObject {
    /// The object. In one of ours, fields without a value are left out.
    pub value: Value,
    /// The document that it stands in, from 1.
    pub document: usize,
    /// The line that it begins on, from 1.
    pub line: u64,
}

impl ManifestObject {
    /// Its `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> &str {
        text_at(&self.value, "/apiVersion")
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        text_at(&self.value, "/kind")
    }

    /// Its namespace; empty when it names none.
    #[must_use]
    pub fn namespace(&self) -> &str {
        text_at(&self.value, "/metadata/namespace")
    }

    /// Its name; empty when it has only a `generateName`.
    #[must_use]
    pub fn name(&self) -> &str {
        text_at(&self.value, "/metadata/name")
    }

    /// The object as a type. One of ours decodes without fail.
    ///
    /// # Errors
    ///
    /// When it is not of that type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&self.value)
    }

    fn is_ours(&self) -> bool {
        self.api_version()
            .strip_prefix(GROUP)
            .is_some_and(|version| version.starts_with('/'))
    }
}

/// A manifest that cannot be used, with all that is wrong in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ManifestError {
    /// The file, or what else the text comes from.
    pub source_name: String,
    /// What is wrong, by line; never empty.
    pub problems: Vec<ManifestProblem>,
}

/// One thing wrong in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestProblem {
    /// Its line, from 1; `None` when it is about the whole text.
    pub line: Option<u64>,
    /// The document it stands in, from 1; `None` when the text cannot be taken apart.
    pub document: Option<usize>,
    /// The object, as `Kind namespace/name`; empty when that is not known.
    pub object: String,
    /// What is wrong and what to do, with the field's path where it is about a field.
    pub message: String,
}

/// One line for each problem, as `FILE:LINE: document 1, KIND NAME: FIELD: MESSAGE`.
impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:", self.source_name)?;
            if let Some(line) = problem.line {
                write!(f, "{line}:")?;
            }
            if let Some(document) = problem.document {
                write!(f, " document {document}")?;
                if !problem.object.is_empty() {
                    write!(f, ", {}", problem.object)?;
                }
                write!(f, ":")?;
            }
            write!(f, " {}", problem.message)?;
        }
        Ok(())
    }
}

/// Reads the objects of a manifest, in their order. Lists are taken apart, and documents
/// without content are passed over.
///
/// # Errors
///
/// All that is wrong in the text, or that it holds no object.
pub fn read_manifests(text: &str, source_name: &str) -> Result<Vec<ManifestObject>, ManifestError> {
    let error = |problems| ManifestError {
        source_name: source_name.to_owned(),
        problems,
    };
    let documents: Vec<Node> =
        serde_saphyr::from_multiple(text).map_err(|cause| error(vec![syntax_problem(&cause)]))?;
    let mut reading = Reading::default();
    for (index, node) in documents.iter().enumerate() {
        reading.document(index + 1, node);
    }
    if !reading.problems.is_empty() {
        reading.problems.sort_by_key(|problem| problem.line);
        return Err(error(reading.problems));
    }
    if reading.objects.is_empty() {
        return Err(error(vec![ManifestProblem {
            line: None,
            document: None,
            object: String::new(),
            message: "holds no object; give at least one".to_owned(),
        }]));
    }
    Ok(reading.objects)
}

fn syntax_problem(error: &YamlError) -> ManifestProblem {
    let location = error.location();
    let message = match error.without_snippet() {
        YamlError::DuplicateMappingKey { key, .. } => format!(
            "the key {} is there twice; remove one of the two",
            key.as_deref().unwrap_or_default()
        ),
        other => {
            let message = other.to_string();
            // the line stands in front already
            let end = location.and_then(|_| message.rfind(" at line "));
            format!("is not YAML: {}", &message[..end.unwrap_or(message.len())])
        }
    };
    ManifestProblem {
        line: location.map(|location| location.line()),
        document: None,
        object: String::new(),
        message,
    }
}

/// What has been read so far.
#[derive(Default)]
struct Reading {
    objects: Vec<ManifestObject>,
    problems: Vec<ManifestProblem>,
}

impl Reading {
    fn document(&mut self, document: usize, node: &Node) {
        match node.field("items").and_then(Node::items) {
            Some(items) if is_list(node) => {
                for item in items {
                    self.object(document, item);
                }
            }
            _ => self.object(document, node),
        }
    }

    fn object(&mut self, document: usize, node: &Node) {
        let mut object = ManifestObject {
            value: node.value(),
            document,
            line: node.line,
        };
        let mut problems = identity_problems(&object);
        if problems.is_empty() && object.is_ours() {
            drop_nulls(&mut object.value);
            problems = problems_of_ours(&object);
        }
        let name = describe(&object);
        self.problems
            .extend(problems.into_iter().map(|problem| ManifestProblem {
                line: Some(node.line_of(&problem.path)).filter(|line| *line > 0),
                document: Some(document),
                object: name.clone(),
                message: if problem.path.is_empty() {
                    problem.message
                } else {
                    problem.to_string()
                },
            }));
        self.objects.push(object);
    }
}

fn is_list(node: &Node) -> bool {
    text_at(&node.value(), "/kind").ends_with("List")
}

/// What every object needs to be sent anywhere.
fn identity_problems(object: &ManifestObject) -> Vec<FieldProblem> {
    let problem = |path: &str, message: &str| FieldProblem {
        path: path.to_owned(),
        message: message.to_owned(),
    };
    if !object.value.is_object() {
        return vec![problem(
            "",
            "is not an object; write apiVersion, kind and metadata",
        )];
    }
    let mut problems = Vec::new();
    if object.api_version().is_empty() {
        problems.push(problem(
            "apiVersion",
            "is not set; give the object's version",
        ));
    }
    if object.kind().is_empty() {
        problems.push(problem("kind", "is not set; give the object's kind"));
    }
    if object.name().is_empty() && text_at(&object.value, "/metadata/generateName").is_empty() {
        problems.push(problem("metadata.name", "is not set; name the object"));
    }
    problems
}

fn problems_of_ours(object: &ManifestObject) -> Vec<FieldProblem> {
    let problem = |path: &str, message| {
        vec![FieldProblem {
            path: path.to_owned(),
            message,
        }]
    };
    if object.api_version() != API_VERSION {
        return problem(
            "apiVersion",
            format!(
                "\"{}\" is not served; use {API_VERSION}",
                object.api_version()
            ),
        );
    }
    let Some(problems) = structure_problems(object.kind(), &object.value) else {
        return problem(
            "kind",
            format!(
                "\"{}\" is not a kind of {API_VERSION}; use one of {}",
                object.kind(),
                known_kinds().join(", ")
            ),
        );
    };
    if object.value.get("spec").is_none() {
        return problem("spec", "is not set; it is required".to_owned());
    }
    if !problems.is_empty() || object.kind() != "AutoscalingRunnerSet" {
        return problems;
    }
    match object.decode::<AutoscalingRunnerSet>() {
        Ok(scale_set) => scale_set
            .validate()
            .map_or_else(|errors| errors.problems().to_vec(), |()| Vec::new()),
        Err(error) => problem("", error.to_string()),
    }
}

/// `Kind namespace/name`, as far as they are known.
fn describe(object: &ManifestObject) -> String {
    let name = [object.namespace(), object.name()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("/");
    [object.kind(), &name].join(" ").trim().to_owned()
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Takes fields without a value out; charts write them, and they mean nothing.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "\
apiVersion: v1
kind: Secret
metadata: {name: github-auth, namespace: ci}
stringData: {github_token: t}
";

    const SCALE_SET: &str = "\
apiVersion: actions.github.com/v1alpha1
kind: AutoscalingRunnerSet
metadata:
  name: linux
  namespace: ci
  annotations:
spec:
  githubConfigUrl: https://github.com/acme
  githubConfigSecret: github-auth
  minRunners: 1
  template:
    spec:
      containers:
        - name: runner
          image: runner:1
";

    fn names(text: &str) -> Vec<(String, usize, u64)> {
        read_manifests(text, "pool.yaml")
            .unwrap()
            .iter()
            .map(|object| (describe(object), object.document, object.line))
            .collect()
    }

    fn error(text: &str) -> String {
        read_manifests(text, "pool.yaml").unwrap_err().to_string()
    }

    #[test]
    fn documents_are_read_in_their_order() {
        assert_eq!(
            names(&format!(
                "# two objects\n---\n{SECRET}---\n---\n{SCALE_SET}"
            )),
            [
                ("Secret ci/github-auth".to_owned(), 1, 3),
                ("AutoscalingRunnerSet ci/linux".to_owned(), 2, 9),
            ]
        );
    }

    #[test]
    fn a_list_is_taken_apart() {
        let list = r#"{"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ci"}},
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cd"}}]}"#;
        assert_eq!(
            names(list),
            [
                ("Namespace ci".to_owned(), 1, 2),
                ("Namespace cd".to_owned(), 1, 3),
            ]
        );
    }

    #[test]
    fn json_may_be_indented_with_tabs() {
        let text = "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Namespace\",\n\t\"metadata\": {\"name\": \"ci\"}\n}\n";
        assert_eq!(names(text), [("Namespace ci".to_owned(), 1, 1)]);
    }

    #[test]
    fn an_object_of_ours_loses_the_fields_without_a_value() {
        let objects = read_manifests(SCALE_SET, "pool.yaml").unwrap();
        assert_eq!(objects[0].value["metadata"].get("annotations"), None);
        let scale_set: AutoscalingRunnerSet = objects[0].decode().unwrap();
        assert_eq!(scale_set.spec.min_runners, Some(1));
    }

    #[test]
    fn every_fault_of_a_file_is_told_with_line_object_and_field() {
        let broken = SCALE_SET
            .replace("minRunners: 1", "minRunners: two")
            .replace("image: runner:1", "imag: runner:1");
        assert_eq!(
            error(&format!("{SECRET}---\n{broken}---\nkind: Secret\n")),
            "pool.yaml:15: document 2, AutoscalingRunnerSet ci/linux: spec.minRunners: is a \
             string; it must be an integer\n\
             pool.yaml:20: document 2, AutoscalingRunnerSet ci/linux: \
             spec.template.spec.containers[0].imag: is not a field; did you mean image?\n\
             pool.yaml:22: document 3, Secret: apiVersion: is not set; give the object's \
             version\n\
             pool.yaml:22: document 3, Secret: metadata.name: is not set; name the object"
        );
    }

    #[test]
    fn a_scale_set_is_judged_as_a_whole() {
        let broken = SCALE_SET.replace("minRunners: 1", "minRunners: 5\n  maxRunners: 4");
        assert_eq!(
            error(&broken),
            "pool.yaml:10: document 1, AutoscalingRunnerSet ci/linux: spec.minRunners: is 5, \
             more than spec.maxRunners, which is 4; lower the one or raise the other"
        );
    }

    #[test]
    fn what_cannot_be_used_at_all_is_told() {
        for (text, expected) in [
            ("", "pool.yaml: holds no object; give at least one"),
            (
                "---\n# nothing\n",
                "pool.yaml: holds no object; give at least one",
            ),
            (
                "a: 1\na: 2\n",
                "pool.yaml:2: the key a is there twice; remove one of the two",
            ),
            ("a: [1,\n", "pool.yaml:1: is not YAML: unclosed bracket '['"),
            (
                "hello",
                "pool.yaml:1: document 1: is not an object; write apiVersion, kind and metadata",
            ),
            (
                "apiVersion: actions.github.com/v1\nkind: AutoscalingRunnerSet\nmetadata: {name: a}",
                "pool.yaml:1: document 1, AutoscalingRunnerSet a: apiVersion: \
                 \"actions.github.com/v1\" is not served; use actions.github.com/v1alpha1",
            ),
            (
                "apiVersion: actions.github.com/v1alpha1\nkind: EphemeralRunner\nmetadata: {name: a}",
                "pool.yaml:1: document 1, EphemeralRunner a: spec: is not set; it is required",
            ),
            (
                "apiVersion: actions.github.com/v1alpha1\nkind: RunnerSet\nmetadata: {name: a}",
                "pool.yaml:2: document 1, RunnerSet a: kind: \"RunnerSet\" is not a kind of \
                 actions.github.com/v1alpha1; use one of AutoscalingListener, \
                 AutoscalingRunnerSet, EphemeralRunner, EphemeralRunnerSet",
            ),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
    }

    #[test]
    fn a_text_nested_without_end_is_an_error_and_no_crash() {
        for text in [
            "[".repeat(100_000),
            "{a: ".repeat(100_000),
            "- ".repeat(100_000),
        ] {
            assert!(error(&text).starts_with("pool.yaml:"));
        }
    }

    #[test]
    fn a_text_that_grows_by_its_aliases_is_an_error_and_no_crash() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = format!("*a{}, ", level - 1).repeat(9);
            text += &format!("a{level}: &a{level} [{}]\n", below.trim_end_matches(", "));
        }
        assert!(error(&text).starts_with("pool.yaml:"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(\\PC|[\\n\\t :{}\\[\\]&*!|>-]){0,60}") {
            if let Err(error) = read_manifests(&text, "any") {
                prop_assert!(!error.problems.is_empty());
            }
        }

        #[test]
        fn a_scale_set_with_any_change_is_read_or_refused(
            at in 0..SCALE_SET.len(), length in 0_usize..12, text in "\\PC{0,8}",
        ) {
            let end = (at + length).min(SCALE_SET.len());
            let mut changed = SCALE_SET.to_owned();
            changed.replace_range(at..end, &text);
            if let Err(error) = read_manifests(&changed, "any") {
                prop_assert!(!error.problems.is_empty());
            }
        }
    }
}
