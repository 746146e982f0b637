//! Label and field selectors, parsed from a request's query and matched against objects.

use serde_json::Value;

/// What an object must look like to be selected.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    labels: Vec<LabelRule>,
    fields: Vec<FieldRule>,
}

#[derive(Clone, Debug)]
struct LabelRule {
    key: String,
    test: LabelTest,
}

#[derive(Clone, Debug)]
enum LabelTest {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

#[derive(Clone, Debug)]
struct FieldRule {
    path: String,
    value: String,
    equal: bool,
}

/// A selector that cannot be understood; the text says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadSelector(String);

impl Selector {
    /// Parses the two query parameters; either may be empty.
    ///
    /// # Errors
    /// When one is not well-formed, or a field is not one that `plural` can be selected by.
    pub fn parse(labels: &str, fields: &str, plural: &str) -> Result<Self, BadSelector> {
        Ok(Self {
            labels: parse_labels(labels)?,
            fields: parse_fields(fields, plural)?,
        })
    }

    /// Whether the object is selected.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.iter().all(|rule| rule.matches(labels))
            && self.fields.iter().all(|rule| rule.matches(object))
    }

    /// Whether everything is selected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

impl LabelRule {
    fn matches(&self, labels: &Value) -> bool {
        let value = labels[&self.key].as_str();
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.test {
            LabelTest::Exists => value.is_some(),
            LabelTest::Absent => value.is_none(),
            LabelTest::In(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
            LabelTest::NotIn(values) => value.is_none_or(|value| values.iter().all(|v| v != value)),
            LabelTest::Above(bound) => number().is_some_and(|number| number > *bound),
            LabelTest::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

impl FieldRule {
    fn matches(&self, object: &Value) -> bool {
        let value = self
            .path
            .split('.')
            .fold(object, |value, field| &value[field]);
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        (text == self.value) == self.equal
    }
}

fn parse_labels(text: &str) -> Result<Vec<LabelRule>, BadSelector> {
    split_outside_parentheses(text)
        .into_iter()
        .map(str::trim)
        .filter(|term| !term.is_empty())
        .map(parse_label_rule)
        .collect()
}

fn parse_label_rule(term: &str) -> Result<LabelRule, BadSelector> {
    let rule = |key: &str, test: LabelTest| {
        let key = key.trim();
        if is_label_key(key) {
            let key = key.to_owned();
            Ok(LabelRule { key, test })
        } else {
            Err(unparsable(term))
        }
    };
    if let Some(key) = term.strip_prefix('!') {
        return rule(key, LabelTest::Absent);
    }
    if let Some((head, set)) = term.split_once('(') {
        let set = set.strip_suffix(')').ok_or_else(|| unparsable(term))?;
        let values = set.split(',').map(|value| value.trim().to_owned());
        let values: Vec<String> = values.collect();
        let words: Vec<&str> = head.split_whitespace().collect();
        return match words.as_slice() {
            [key, "in"] => rule(key, LabelTest::In(values)),
            [key, "notin"] => rule(key, LabelTest::NotIn(values)),
            _ => Err(unparsable(term)),
        };
    }
    if let Some((key, value)) = term.split_once("!=") {
        return rule(key, LabelTest::NotIn(vec![value.trim().to_owned()]));
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return rule(key, LabelTest::In(vec![value.trim().to_owned()]));
    }
    let number = |value: &str| value.trim().parse().map_err(|_| unparsable(term));
    if let Some((key, value)) = term.split_once('>') {
        return rule(key, LabelTest::Above(number(value)?));
    }
    if let Some((key, value)) = term.split_once('<') {
        return rule(key, LabelTest::Below(number(value)?));
    }
    rule(term, LabelTest::Exists)
}

fn unparsable(term: &str) -> BadSelector {
    BadSelector(format!("unable to parse requirement: {term:?}"))
}

fn is_label_key(key: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    !key.is_empty() && key.chars().all(plain)
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let mut depth = 0;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

fn parse_fields(text: &str, plural: &str) -> Result<Vec<FieldRule>, BadSelector> {
    text.split(',')
        .map(str::trim)
        .filter(|term| !term.is_empty())
        .map(|term| {
            let (path, value, equal) = split_field_term(term).ok_or_else(|| {
                BadSelector(format!(
                    "invalid selector: '{term}'; can't understand '{term}'"
                ))
            })?;
            if !is_selectable(path, plural) {
                return Err(BadSelector(format!("field label not supported: {path}")));
            }
            Ok(FieldRule {
                path: path.to_owned(),
                value: value.to_owned(),
                equal,
            })
        })
        .collect()
}

fn split_field_term(term: &str) -> Option<(&str, &str, bool)> {
    if let Some((path, value)) = term.split_once("!=") {
        return Some((path, value, false));
    }
    let (path, value) = term.split_once("==").or_else(|| term.split_once('='))?;
    Some((path, value, true))
}

/// The fields that the real server indexes, by resource.
fn is_selectable(path: &str, plural: &str) -> bool {
    const EVERYWHERE: &[&str] = &["metadata.name", "metadata.namespace"];
    let own: &[&str] = match plural {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        "secrets" => &["type"],
        "namespaces" => &["status.phase"],
        "nodes" => &["spec.unschedulable"],
        "jobs" => &["status.successful"],
        _ => &[],
    };
    EVERYWHERE.contains(&path) || own.contains(&path)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(labels: &str, object: &Value) -> bool {
        Selector::parse(labels, "", "pods").unwrap().matches(object)
    }

    #[test]
    fn label_terms_of_every_form_select() {
        let pod = json!({ "metadata": { "labels": { "app": "runner", "size": "3" } } });
        for term in [
            "app",
            "!gone",
            "app=runner",
            "app==runner",
            "app!=listener",
            "gone!=x",
            "app in (listener, runner)",
            "app notin (listener,x)",
            "gone notin (x)",
            "size>2",
            "size<4",
            "app in (runner,x),size=3",
        ] {
            assert!(selects(term, &pod), "{term}");
        }
        for term in [
            "gone",
            "!app",
            "app=listener",
            "app!=runner",
            "app in (x)",
            "app notin (runner)",
            "size>3",
            "app=runner,size=4",
        ] {
            assert!(!selects(term, &pod), "{term}");
        }
    }

    #[test]
    fn fields_are_those_of_the_resource() {
        let pod =
            json!({ "metadata": { "name": "a" }, "spec": {}, "status": { "phase": "Running" } });
        let fields = |text: &str| Selector::parse("", text, "pods").unwrap().matches(&pod);
        assert!(fields("status.phase=Running"));
        assert!(fields("spec.nodeName="));
        assert!(!fields("status.phase!=Running"));
        let refusal = Selector::parse("", "spec.image=x", "pods").unwrap_err();
        assert_eq!(refusal.to_string(), "field label not supported: spec.image");
    }

    #[test]
    fn a_malformed_label_selector_is_refused() {
        for term in ["a in x", "a in (x", "=x", "a b"] {
            assert!(Selector::parse(term, "", "pods").is_err(), "{term}");
        }
    }
}
