//! YAML or JSON as a tree that knows the line of each of its nodes.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

/// A node and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The line it begins on, from 1; 0 when that is not known.
    pub(super) line: u64,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    /// The value without its lines.
    pub(super) fn value(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(items) => items.iter().map(Self::value).collect(),
            Content::Map(fields) => fields
                .iter()
                .map(|(name, field)| (name.clone(), field.value()))
                .collect::<Map<_, _>>()
                .into(),
        }
    }

    /// The field of that name.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        match &self.content {
            Content::Map(fields) => fields
                .iter()
                .find_map(|(key, field)| (key == name).then_some(field)),
            _ => None,
        }
    }

    /// The items of a list; `None` when it is no list.
    pub(super) fn items(&self) -> Option<&[Self]> {
        match &self.content {
            Content::List(items) => Some(items),
            _ => None,
        }
    }

    /// The line of what a path such as `spec.containers[0].name` leads to, or of the last
    /// node on the way when the rest is not there.
    pub(super) fn line_of(&self, path: &str) -> u64 {
        let step = path.trim_start_matches(['.', '[', ']']);
        let next = match &self.content {
            Content::Scalar(_) => None,
            Content::List(items) => step.find(']').and_then(|end| {
                let item = items.get(step[..end].parse::<usize>().ok()?)?;
                Some((item, &step[end..]))
            }),
            // keys may hold dots, so the longest one that the path goes on with is meant
            Content::Map(fields) => fields
                .iter()
                .filter_map(|(name, field)| Some((name, field, step.strip_prefix(name.as_str())?)))
                .filter(|(_, _, rest)| rest.is_empty() || rest.starts_with(['.', '[', ']']))
                .max_by_key(|(name, _, _)| name.len())
                .map(|(_, field, rest)| (field, rest)),
        };
        match next {
            Some((node, rest)) if !step.is_empty() => node.line_of(rest),
            _ => self.line,
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content>::deserialize(deserializer)?;
        Ok(Self {
            line: spanned.referenced.line(),
            content: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    #[allow(clippy::cast_precision_loss)] // as JSON does with numbers of that size
    fn visit_i128<E>(self, value: i128) -> Result<Content, E> {
        Ok(Content::Scalar((value as f64).into()))
    }

    #[allow(clippy::cast_precision_loss)] // as JSON does with numbers of that size
    fn visit_u128<E>(self, value: u128) -> Result<Content, E> {
        Ok(Content::Scalar((value as f64).into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Content, E> {
        Number::from_f64(value)
            .map(|number| Content::Scalar(number.into()))
            .ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Content, E> {
        Ok(Content::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Content, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Content::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Content, A::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = map.next_entry()? {
            fields.push(entry);
        }
        Ok(Content::Map(fields))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "\
spec:
  list:
    - name: a
    -
      name: b
  labels:
    acme.io/team: x
    acme: {io/team: 1}
  empty:
";

    #[test]
    fn a_path_leads_to_a_line() {
        let node: Node = serde_saphyr::from_str(TEXT).unwrap();
        for (path, line) in [
            ("spec.list[1].name", 5),
            ("spec.list[0].name", 3),
            ("spec.list[7]", 3),
            ("spec.labels[acme.io/team]", 7),
            ("spec.labels[acme].io/team", 8),
            ("spec.labels.nothing.here", 7),
            ("spec.list[x]", 3),
        ] {
            assert_eq!(node.line_of(path), line, "{path}");
        }
    }

    #[test]
    fn the_value_is_what_was_written() {
        let node: Node = serde_saphyr::from_str(TEXT).unwrap();
        assert_eq!(
            node.value(),
            json!({"spec": {
                "list": [{"name": "a"}, {"name": "b"}],
                "labels": {"acme.io/team": "x", "acme": {"io/team": 1}},
                "empty": null,
            }})
        );
    }
}
